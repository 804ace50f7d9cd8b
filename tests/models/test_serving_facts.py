"""A closed loop of clients over steps of a known law, worked out once more in plain Python."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from scipy import stats

from dmodels.core.flags import Flag
from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.models.latency import Efficiency, serve, serve_disaggregated
from dmodels.models.latency import serving as latency_serving
from dmodels.models.memory import residents_of_length

pytestmark = pytest.mark.usefixtures("op_by_op")

MODEL = Model(
    32,
    8,
    128,
    hidden_size=4096,
    n_q_heads=32,
    attention_params=2e9,
    dense_params=3e9,
    n_moe_layers=10,
    n_experts=40,
    n_active_experts=6,
    expert_params=3e7,
    head_params=5e8,
    embedding_params=4e8,
    dense_dtype_bytes=1.0,
    expert_dtype_bytes=0.5,
    n_mla_layers=4,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    index_topk_tokens=700,
)
NODE = GPU(8e10, 2e12, 3e14, nvlink_bytes_per_s_oneway=4e11, nic_bytes_per_s_per_gpu_oneway=5e10)
E = Efficiency(burst_frac=0.2, ahead_count=0.7)


def law(decode, context, prompt, attended, drafts=0.0):
    """Seconds of a step: a number that every argument moves."""
    return 2e-3 + decode * (1e-4 + 2e-8 * context) + prompt * (1e-6 + 2e-9 * attended) + 1e-3 * drafts


@pytest.fixture(autouse=True)
def _steps_of_the_law(monkeypatch):
    """In the place of `step`, which has facts of its own."""

    def step(
        model,
        gpu,
        parallel,
        decode_count,
        context_tokens,
        prefill_tokens,
        attended_tokens,
        efficiency,
        draft_tokens=0.0,
    ):
        return SimpleNamespace(total_s=law(decode_count, context_tokens, prefill_tokens, attended_tokens, draft_tokens))

    monkeypatch.setattr(latency_serving, "step", step)


def cache_of(tokens, tp):
    """Bytes a GPU: 28 layers of 8 heads over tp, and 4 latent layers, which keep every token that they may look up."""
    return tokens * 2 * (2 * 28 * max(8 / tp, 1) * 128 + 4 * 576)


def resident(tp, pp, dp, isl, osl):
    return float(residents_of_length(MODEL, NODE, Parallel(tp, pp, dp, tp * dp), isl, osl))


def slot_wait(requests, slots, ranks):
    """E max(k - slots, 0)/slots, k normal about one more than its variance."""
    variance = 0.5**2 * (1 - 1 / ranks)
    deviation = math.sqrt(variance * max(requests, 0) + 1e-12)
    z = (requests + variance - slots) / deviation
    return deviation * (z * stats.norm.cdf(z) + stats.norm.pdf(z)) / slots


def test_where_hardly_anyone_is_sent_hardly_anyone_waits():
    for requests in (0.5, -3.0):
        found = latency_serving._slot_wait(requests, 1.0, 4.0, Efficiency())
        assert float(found) == pytest.approx(slot_wait(requests, 1.0, 4.0), rel=1e-9, abs=1e-30)


def one_instance(tp, pp, dp, isl, osl, clients, drafts=0.0, batch=math.inf, poll=0.0):
    """(TTFT, TPOT, decoding, held by the memory, tokens a second)."""
    context = isl + osl / 2
    held = resident(tp, pp, dp, isl, osl)
    slots = min(held, batch * dp)
    most = min(clients, max(slots, 1))
    gain = sum(0.55**i for i in range(int(drafts) + 1))
    alone = lambda n: law(n, context, 0, 0, drafts)
    mixed = lambda n, prompts=1.0: law(n, context, dp * isl * prompts, isl / 2, drafts)
    share = max(8192 / isl, 1)
    ahead = 0.2 * (most - 1) + 0.7 * (1 - 1 / most)
    queue = ahead / dp * (mixed(most, share) - alone(most)) / share
    n = most
    for _ in range(5):
        tpot = alone(n) / gain + n / osl / dp * (mixed(n) - alone(n))
        admitted = 0.055 + mixed(n) + (3 + poll) * alone(n) + queue + (40 * alone(n) if dp > 1 else 0)
        n = most * osl * tpot / (osl * tpot + admitted)
    first = admitted + slot_wait(clients / dp, max(slots, 1) / dp, dp) * osl * tpot
    rate = clients * osl / (first + osl * tpot)
    return first, tpot, rate * tpot, held, rate


@pytest.mark.parametrize(
    "case",
    [
        (4.0, 2.0, 2.0, 3000.0, 1000.0, 100.0, 2.0),
        (4.0, 1.0, 1.0, 300.0, 200.0, 60.0, 0.0, 40.0, 5.0),
        (8.0, 1.0, 4.0, 9000.0, 50.0, 130.0, 0.0, 30.0),
        (4.0, 1.0, 1.0, 3000.0, 50.0, 1.0),
        (4.0, 1.0, 1.0, 300.0, 200.0, 8.0, 0.0, 1.0),
    ],
)
def test_one_instance_serves_its_clients(case):
    tp, pp, dp, isl, osl, clients, *rest = case
    found = serve(MODEL, NODE, Parallel(tp, pp, dp, tp * dp), isl, osl, clients, E, *rest)
    assert [float(v) for v in found[:5]] == pytest.approx(one_instance(*case), rel=1e-9)
    assert int(found.flags) == 0


def test_where_not_one_request_fits_it_is_said():
    small = NODE.replace(memory_bytes=2e9)
    assert int(serve(MODEL, small, Parallel(8.0), 9e4, 50.0, 4.0, E).flags) == Flag.NO_FIT
    assert int(serve(MODEL, NODE, Parallel(8.0), 900.0, 50.0, 4.0, E, 0.0, 1.0).flags) == 0
    two = (Parallel(8.0), 1.0, Parallel(8.0), 1.0)
    assert int(serve_disaggregated(MODEL, small, *two, 9e4, 50.0, 4.0, E).flags) == Flag.NO_FIT
    assert int(serve_disaggregated(MODEL, NODE, *two, 900.0, 50.0, 4.0, E, 0.0, 1.0).flags) == 0


def two_kinds(prefill, n_prefill, decode, n_decode, isl, osl, clients, drafts=0.0, batch=math.inf):
    context = isl + osl / 2
    tp, dp = decode
    gain = sum(0.55**i for i in range(int(drafts) + 1))
    held = resident(tp, 1, dp, isl, osl)
    slots = min(held, batch * dp)
    alone = lambda n: law(n, context, 0, 0, drafts)
    prompt = lambda count: law(0, context, prefill[1] * isl * count, isl / 2)
    share = max(8192 / isl, 1)
    service, queued = prompt(1), prompt(share) / share
    fixed = 0.055 + cache_of(isl, prefill[0]) / (5e10 * 0.42)
    each = clients / n_decode
    most = min(each, max(slots, 1))
    servers = n_prefill * prefill[1]
    if not n_prefill:
        servers = max(clients * queued / (osl * alone(most) / gain + fixed), prefill[1])
    n = most
    for _ in range(5):
        tpot = alone(n) / gain
        life = osl * tpot + fixed
        b = life - service - queued * clients / servers  # R^2 + b R - S Z = 0
        residence = (-b + math.sqrt(b * b + 4 * service * life)) / 2
        n, decoding = most * osl * tpot / (life + residence), n
    admitted = fixed + residence + 0.2 * max(clients / servers - 1, 0) * queued
    elsewhere = max(slots, 1) * admitted / (osl * tpot)
    wait = slot_wait((each - elsewhere) / dp, max(slots, 1) / dp, n_decode * dp)
    return admitted + (3 + wait * osl) * tpot, tpot, decoding, held, n_decode * decoding / tpot


@pytest.mark.parametrize(
    "case",
    [
        ((2.0, 3.0), 2.0, (4.0, 2.0), 3.0, 3000.0, 400.0, 90.0, 2.0),
        ((4.0, 1.0), 0.0, (4.0, 2.0), 2.0, 300.0, 200.0, 160.0, 0.0, 30.0),
        ((4.0, 2.0), 0.0, (8.0, 1.0), 1.0, 9000.0, 300.0, 3.0),
        ((4.0, 1.0), 1.0, (8.0, 1.0), 2.0, 5000.0, 20.0, 400.0, 0.0, 100.0),
        ((4.0, 1.0), 1.0, (8.0, 1.0), 2.0, 500.0, 20.0, 40.0, 0.0, 1.0),
        ((4.0, 1.0), 0.0, (8.0, 1.0), 1.0, 9000.0, 20.0, 130.0, 2.0),
    ],
)
def test_prefill_and_decode_apart(case):
    prefill, n_prefill, decode, n_decode, *rest = case
    isl, osl, clients, *more = rest
    layouts = (Parallel(tp, 1.0, dp, tp * dp) for tp, dp in (prefill, decode))
    first, second = layouts
    found = serve_disaggregated(MODEL, NODE, first, n_prefill, second, n_decode, isl, osl, clients, E, *more)
    assert [float(v) for v in found[:5]] == pytest.approx(two_kinds(*case), rel=1e-9)
