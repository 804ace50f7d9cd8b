r"""TB-5. Qwen3-235B-A22B on MI300X, TP = 8: 23.5 KB of KV per token and GPU, 676 sequences of 8K, 169 of 32K (4.7).

**Verdict: conditional** on FP8 KV. The arithmetic follows Eq. (1) divided by 8, which is half a KV head per GPU in
BF16 (1). Four heads over eight GPUs are replicated, so BF16 needs 47 KiB and holds 338 and 84 (2); FP8 with replication
is exactly 23.5 KiB again. The dollars follow from the node counts, which the text does not derive.
"""

from fractions import Fraction

import sympy as sp

from dmodels.catalog import model
from dmodels.models.memory import kv_bytes_per_token, sequences_that_fit
from proofs.claim import TOKEN_BUDGET, Claim, Verdict
from proofs.papers.token_budget.printed import equation_1_bytes

CLAIM = Claim(
    id="TB-5",
    source=TOKEN_BUDGET,
    where="Section 4.7",
    says="Qwen3-235B at TP = 8 needs 23.5 KB of KV per token and GPU and fits 676 sequences of 8K or 169 of 32K",
    verdict=Verdict.CONDITIONAL,
    needs=("the KV cache is FP8: in BF16 the four KV heads are replicated on eight GPUs",),
    error="a factor 2 in BF16: 338 and 84 sequences",
    counterexample="With a BF16 cache the four KV heads are copied on eight GPUs: 47 KiB a token, 338 sequences of "
    "8K instead of 676.",
    means="TP beyond the number of KV heads does not make the cache smaller.",
)
ROOM = 133.4e9


def _slots(per_token: float) -> list[float]:
    return [float(sequences_that_fit(ROOM, per_token * c)) for c in (8192, 32768)]


def test_bytes_and_sequences_exactly():  # 1, 2: 2 x 94 layers x heads per GPU x 128 x bytes
    half_head, replicated = (188 * heads * 128 for heads in (Fraction(4, 8), Fraction(1)))
    fits = lambda token, context: int(Fraction(1334 * 10**8) // (token * context))
    assert 2 * half_head == replicated == 24_064 == Fraction(47, 2) * 1024  # BF16 by Eq. (1)/8; FP8 with copies
    assert [fits(replicated, c) for c in (8192, 32768)] == [676, 169]
    assert [fits(2 * replicated, c) for c in (8192, 32768)] == [338, 84]  # BF16 with copies


def test_replication_takes_back_what_sharding_gives():  # 2: for any layers, head size and number of heads
    layers, heads, dim, gpus, width = sp.symbols("n_l n_kv d_h G b", positive=True)
    sharded = 2 * layers * heads * dim * width / gpus
    replicated = 2 * layers * dim * width  # one whole head on each of G > n_kv GPUs
    assert sp.simplify(replicated / sharded - gpus / heads) == 0  # 2 for four heads on eight GPUs
    assert sp.simplify(replicated.subs(width, 1) - sharded.subs({width: 2, gpus: 2 * heads})) == 0


def test_equation_1_over_eight_is_half_a_head():  # 1
    token = equation_1_bytes(94, 4, 128, 2, tp=8)
    assert token == 24_064 == 23.5 * 1024 and _slots(token) == [676, 169]


def test_replicated_heads_halve_the_sequences():  # 2
    qwen = model("qwen3-235b-a22b")
    bf16 = float(kv_bytes_per_token(qwen.replace(kv_dtype_bytes=2.0), 8.0))
    assert bf16 == 48_128 and _slots(bf16) == [338, 84]
    fp8 = float(kv_bytes_per_token(qwen.replace(kv_dtype_bytes=1.0), 8.0))
    assert fp8 == 24_064 and _slots(fp8) == [676, 169]
