"""The engines' schedulers: every step of random cases against a plain second version; what each promises."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.sim.engines import Balance, Capacity, EngineLaw, SGLang, SharedPrompts, TensorRTLLM, VllmV1, simulate
from tests.sim import engine_oracle

#: A step's time depends on everything that it may depend on.
LAW = EngineLaw(
    counts=np.array([0.0, 4.0, 100.0]),
    tokens=np.array([0.0, 1.0, 300.0]),
    contexts=np.array([0.0, 50.0, 2000.0]),
    step_s=np.array([[5.0, 7.0, 40.0], [6.0, 8.0, 42.0], [20.0, 23.0, 61.0]]) * 1e-3,
    decode_s=np.array([[0.0, 0.0, 0.0], [0.0, 0.3, 7.0], [0.0, 8.0, 150.0]]) * np.array([[[1e-3]], [[1.6e-3]]]),
    prompt_s=np.array([0.0, 1e-6, 7e-5]),
)


def policies(rng, blocks, block_tokens):
    slots, step = int(rng.integers(1, 12)), int(rng.integers(20, 300))
    common = {"slots": slots, "step_tokens": step, "block_tokens": block_tokens, "overlap": bool(rng.integers(2))}
    yield VllmV1(blocks, whole_prompt=bool(rng.integers(2)), **common)
    yield SGLang(blocks, prompt_tokens=int(rng.integers(20, 500)), first_ratio=float(rng.uniform(0.0, 1.0)), **common)
    for capacity in Capacity:
        chunked = bool(rng.integers(2))
        tokens = common if chunked else common | {"step_tokens": 400}
        yield TensorRTLLM(blocks, capacity=capacity, chunked=chunked, **tokens)


def case(seed):
    """(arrivals, prompts, answers, limits, contents, tokens of a content, blocks, tokens of a block)."""
    rng = np.random.default_rng(seed)
    n, block = int(rng.integers(1, 40)), int(rng.choice([1, 2, 8]))
    arrival = np.sort(np.round(rng.uniform(0.0, rng.choice([0.0, 0.5, 4.0]), n), 2))
    prompt, output = rng.integers(1, 200, n), rng.integers(1, 60, n)
    limit = output + rng.integers(0, 60, n)
    tokens = block * int(rng.choice([1, 4]))
    trees = [list(range(1000 * t, 1000 * t + 200)) for t in range(3)]  # prompts of three families, cut at random
    contents = []
    for i in range(n):
        same = int(rng.integers(0, 200))
        contents.append((trees[rng.integers(3)][:same] + [10**6 + 1000 * i + j for j in range(200)])[:200])
    blocks = int(np.ceil((prompt + limit).max() / block)) + 2 + int(rng.integers(0, 400 // block))
    return arrival, prompt, output, limit, contents, tokens, blocks, block


@pytest.mark.parametrize("seed", range(60))
def test_every_step_is_that_of_the_plain_version(seed):
    arrival, prompt, output, limit, contents, tokens, blocks, block = case(seed)
    rng = np.random.default_rng(seed)
    for policy in policies(rng, blocks, block):
        cached = bool(rng.integers(2))
        named = [own[: p // tokens] if cached else [] for own, p in zip(contents, prompt, strict=True)]
        want = engine_oracle.simulate(arrival, prompt, output, LAW, policy, limit, named, tokens)
        prefixes = SharedPrompts.of(named, tokens)
        found = simulate(arrival, prompt, output, LAW, policy, limit_tokens=limit, prefixes=prefixes)
        check_steps(found, want, policy)
        if isinstance(policy, VllmV1):
            rank = rng.integers(-1, 2, len(arrival))
            want = engine_oracle.simulate(arrival, prompt, output, LAW, policy, limit, named, tokens, rank)
            found = simulate(arrival, prompt, output, LAW, policy, prefixes=prefixes, priority=rank)
            check_steps(found, want, f"{policy} by priority")


@pytest.mark.parametrize("seed", range(12))
def test_requests_that_bring_their_cache_step_as_in_the_plain_version(seed):
    """Memory is short, so that some give way and lose what came along."""
    arrival, prompt, output, limit, _, tokens, blocks, block = case(seed + 200)
    output, limit = output + 1, limit + 1
    rng = np.random.default_rng(seed)
    for policy in policies(rng, blocks, block):
        given = arrival, prompt, output, LAW, policy
        want = engine_oracle.simulate(*given, limit, [[]] * len(arrival), tokens, sent=True)
        found = simulate(*given, limit_tokens=limit, sent=True)
        check_steps(found, want, policy)


def check_steps(found, want, said):
    for mine, theirs in zip((found.admitted_s, found.first_token_s, found.end_s), want[:3], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, err_msg=str(said))
    np.testing.assert_array_equal(found.restarts, want[3], err_msg=str(said))


def crowd(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.0, 5.0, n)), rng.integers(20, 300, n), rng.integers(20, 200, n)


def test_who_gives_way():
    """Only GUARANTEED_NO_EVICT never computes anything twice; the others admit more at once, and then do."""
    arrival, prompt, output = crowd()
    served = {}
    for policy in (
        VllmV1(500, slots=64),
        SGLang(8000, slots=64, first_ratio=0.1),
        TensorRTLLM(250, slots=64),
        TensorRTLLM(250, slots=64, capacity=Capacity.MAX_UTILIZATION),
    ):
        served[f"{policy.name} {getattr(policy, 'capacity', '')}"] = simulate(arrival, prompt, output, LAW, policy)
    restarts = {name: int(found.restarts.sum()) for name, found in served.items()}
    assert restarts.pop(f"trtllm {Capacity.GUARANTEED_NO_EVICT}") == 0
    assert all(count > 0 for count in restarts.values()), restarts


def test_a_priority_orders_who_waits_and_stops_nobody_who_runs():
    """One place: a job runs to its end; of those that wait then the chat goes first, though it came last."""
    law, policy = EngineLaw.straight(10e-3, 0.0), VllmV1(1000, slots=1, overlap=False)
    came = [0.0, 0.01, 0.02], 10, 5
    assert simulate(*came, law, policy).end_s == pytest.approx([0.05, 0.10, 0.15])
    assert simulate(*came, law, policy, priority=[1, 1, 0]).end_s == pytest.approx([0.05, 0.15, 0.10])
    with pytest.raises(InputError, match="accepted with vllm"):
        simulate(*came, law, SGLang(1000), priority=[1, 1, 0])


@pytest.mark.parametrize("kind", [VllmV1, SGLang, TensorRTLLM])
@pytest.mark.parametrize("overlap", [False, True])
def test_who_comes_at_the_instant_at_which_a_step_ends(kind, overlap):
    """Steps of half a second. Half a second after the first, and then with its second step ending, comes another: it
    is in the next step, or where steps overlap in the one after, which SGLang keeps for its prompt."""
    law, alone = EngineLaw.straight(0.5, 0.0), kind is SGLang
    found = simulate([0.0, 0.5], 1, [4, 2], law, kind(1000, overlap=overlap))
    begin = 1.0 if overlap else 0.5
    assert found.admitted_s.tolist() == [0.0, begin] and found.first_token_s.tolist() == [0.5, begin + 0.5]
    assert found.end_s.tolist() == [2.5 if alone else 2.0, begin + 1.0] and not found.restarts.any()
    later = simulate([0.0, 0.5], 1, [1, 1], law, kind(1000, overlap=overlap))  # the first is gone
    assert later.end_s.tolist() == [0.5, 1.0]


def test_answers_stop_for_prompts_in_sglang_alone():
    """A prompt of three chunks arrives while an answer is written: in SGLang its gap is as long as the prompt."""
    law = EngineLaw.straight(10e-3, 0.0)
    both = ([0.0, 0.105], [10, 300], [40, 1], law)
    ends = {
        kind.__name__: simulate(*both, kind(1000, step_tokens=100, overlap=False)).end_s[0] for kind in (VllmV1, SGLang)
    }
    assert ends["VllmV1"] == pytest.approx(0.40)
    assert ends["SGLang"] == pytest.approx(0.43)


def test_a_prefix_is_computed_once_and_forgotten_when_others_need_the_room():
    """100 tokens of system prompt: the second request computes its own 20 alone; after a flood it computes all."""
    law = EngineLaw.straight(1e-3, 0.0, 1e-3)
    system, own = list(range(10)), [[100, 101], [200, 201], [], [300, 301]]
    prompt, when = [120, 120, 600, 120], [0.0, 1.0, 2.0, 4.0]
    flood = list(range(1000, 1060))
    contents = [system + own[0], system + own[1], flood, system + own[3]]
    policy = VllmV1(61, step_tokens=1000, block_tokens=10, overlap=False)
    ttft = simulate(when, prompt, 2, law, policy, prefixes=SharedPrompts.of(contents, 10)).ttft_s
    assert ttft == pytest.approx([0.121, 0.021, 0.601, 0.121])


def test_shared_prompts_are_cut_to_their_full_blocks():
    """Traces name the last block of a prompt, too, though it is not full: of 600 tokens one of 512, of 1,100 two."""
    named = SharedPrompts.of([[70, 80], [70], [70, 80, 90], []], 512)
    assert (named.content.tolist(), named.start.tolist(), named.tokens) == ([0, 1, 0, 0, 1, 2], [0, 2, 3, 6, 6], 512)
    full = named.checked(np.array([600, 511, 1100, 2000]), 16)
    assert (full.content.tolist(), full.start.tolist(), full.tokens) == ([0, 0, 1], [0, 1, 1, 3, 3], 512)
    nobody = SharedPrompts.of([], 512).checked(np.zeros(0, int), 16)
    assert (nobody.content.size, nobody.start.tolist()) == (0, [0])


@pytest.mark.parametrize("balance", list(Balance), ids=lambda b: b.name)
def test_each_of_several_instances_serves_its_own_as_if_alone(balance):
    """Who has the fewest that have not ended is chosen, of equals the next in turn."""
    for seed in range(4):
        arrival, prompt, output, *_, blocks, block = case(seed + 100)
        arrival = np.cumsum(np.random.default_rng(seed).exponential(0.05, arrival.size))
        for policy in (VllmV1(blocks, 3, 64, block), SGLang(blocks + 60, 3, 64, block)):
            found = simulate(arrival, prompt, output, LAW, policy, instances=3, balance=balance)
            for k in range(3):
                mine = found.instance == k
                if mine.any():
                    alone = simulate(arrival[mine], prompt[mine], output[mine], LAW, policy)
                    np.testing.assert_allclose(alone.end_s, found.end_s[mine], rtol=1e-9)
            for i, now in enumerate(arrival):
                there = [int(((found.instance[:i] == k) & (found.end_s[:i] >= now)).sum()) for k in range(3)]
                turns = [(i + k) % 3 for k in range(3)]
                best = min(turns, key=there.__getitem__) if balance == Balance.LEAST_LOADED else turns[0]
                assert found.instance[i] == best


def test_least_loaded_instances_share_a_burst():
    """Eight requests at once on four instances: two each, so nobody's step is longer than one's of two."""
    law = EngineLaw.straight(10e-3, 5e-3)
    served = simulate(np.zeros(8), 10, 11, law, VllmV1(100, overlap=False), instances=4)
    assert np.bincount(served.instance).tolist() == [2, 2, 2, 2]
    assert served.e2e_s == pytest.approx(10e-3 + 10 * 20e-3)
    turns = simulate(np.zeros(8), 10, 11, law, VllmV1(100), instances=4, balance=Balance.ROUND_ROBIN)
    assert turns.instance.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (VllmV1(3), "kv_blocks"),
        (SGLang(100), "kv_blocks"),
        (TensorRTLLM(100, step_tokens=64), "step_tokens"),
        (VllmV1(100, slots=0), "slots"),
        (SGLang(1000, first_ratio=2.0), "first_ratio"),
    ],
)
def test_what_an_engine_would_never_admit_is_refused(policy, field):
    with pytest.raises(InputError, match=field):
        simulate([0.0], 90, 10, LAW, policy)


def test_nobody_comes():
    assert simulate([], [], [], LAW, VllmV1(10)).end_s.size == 0


def test_a_law_of_a_model_is_its_step():
    """Between the points of its tables the law follows the step that it was made of."""
    from dmodels import catalog
    from dmodels.core.hardware import Parallel
    from dmodels.models.latency import Efficiency
    from dmodels.models.latency.steps import step

    place = catalog.model("llama-3.1-8b"), catalog.gpu("h100_sxm"), Parallel()
    tiled = Efficiency(beside_rows=64.0)  # so that prompts make the attention of answers slower
    law = EngineLaw.of(*place, tiled, slots=200, step_tokens=4096, longest_tokens=20_000)
    for grid, most, points in ((law.counts, 200, 48), (law.tokens, 4096, 64), (law.contexts, 20_000, 40)):
        assert grid[0] == 0 and grid[-1] == most and 0.9 * points < len(grid) <= points + 1
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, [200, 20_000, 4096, 20_000]) for _ in range(40)]
    for n, context, w, attended in ((37, 3141, 0, 0), (0, 0, 777, 388), (3, 5, 7, 9), *map(tuple, drawn)):
        want = float(step(*place, float(n), float(context), float(w), float(attended), tiled).total_s)
        assert law.seconds(n, context, w, attended) == pytest.approx(want, rel=3e-4)


@pytest.mark.parametrize("kind", [VllmV1, SGLang, TensorRTLLM])
def test_a_request_that_brings_its_cache_begins_with_its_answer(kind):
    """vLLM computes the last prompt token again; the others have the first token already. A step takes 9 ms."""
    law, first = EngineLaw.straight(9e-3, 0.0), 1 if kind is VllmV1 else 0
    alone = simulate([1.0], 5000, 10, law, kind(20_000), sent=True)
    assert (alone.ttft_s[0], alone.e2e_s[0]) == pytest.approx((first * 9e-3, (9 + first) * 9e-3))
    # 100 more, who come meanwhile, stall nobody: 5,000 tokens each would take whole steps
    when = np.concatenate([[0.0], np.linspace(0.01, 0.5, 100)])
    many = simulate(when, 5000, 100, law, kind(600_000), sent=True)
    assert many.end_s[0] == pytest.approx((99 + first) * 9e-3) and not many.restarts.any()
    # what came along is lost with who gives way
    blocks = -(-1300 // kind(1).block_tokens)
    tight = simulate([0.0, 0.0], 512, 300, law, kind(blocks, step_tokens=600), sent=True)
    assert np.isfinite(tight.end_s).all() and tight.restarts.sum() == (kind is VllmV1)
    if kind is not VllmV1:
        with pytest.raises(InputError, match="one token"):
            simulate([0.0], 10, 1, law, kind(100), sent=True)


def test_a_slower_law_is_slower_in_every_part():
    for step in ((3, 700.0, 0, 0.0), (0, 0.0, 200, 900.0), (7, 40.0, 90, 300.0), (0, 0.0, 1, 1900.0)):
        assert LAW.scaled(3.0).seconds(*step) == pytest.approx(3.0 * LAW.seconds(*step), rel=1e-12)


def test_a_law_is_linear_between_its_points_and_beyond_the_last_ones():
    """Rows and columns one after the other; the attention of answers, alone and beside prompts, by their mean context,
    of prompts by a token's."""
    rng = np.random.default_rng(1)
    counts, tokens, contexts = np.array([0.0, 1.0, 4.0]), np.array([0.0, 3.0, 10.0, 11.0]), np.array([0.0, 5.0])
    law = EngineLaw(counts, tokens, contexts, rng.random((3, 4)), rng.random((2, 3, 2)), rng.random(2))

    def along(x, grid, values):
        k = next((k for k in range(len(grid) - 1) if x <= grid[k + 1]), len(grid) - 2)
        return values[k] + (x - grid[k]) / (grid[k + 1] - grid[k]) * (values[k + 1] - values[k])

    for n, context, prompts, attended in product((0, 1, 2, 4, 7), (0.0, 2.0, 9.0), (0, 2, 10, 14), (0.0, 4.0, 8.0)):
        expected = along(n, counts, [along(prompts, tokens, row) for row in law.step_s])
        expected += (
            along(n, counts, [along(context, contexts, row) for row in law.decode_s[int(prompts > 0)]]) if n else 0.0
        )
        expected += prompts * along(attended, contexts, law.prompt_s)
        assert law.seconds(n, context, prompts, attended) == pytest.approx(expected)
    straight = EngineLaw.straight(2.0, 0.5, 0.25)
    assert straight.seconds(6, 100.0, 3, 50.0) == pytest.approx(2.0 + 3.0 + 0.75)
