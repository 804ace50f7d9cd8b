"""The plan against brute force, its own monotony, and what a planner would do with its advice."""

from __future__ import annotations

import json
from types import SimpleNamespace as Record

import jax
import numpy as np
import pytest

from dmodels import SLO, catalog
from dmodels.catalog.agreement import trusted_load
from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.core.workload import Workload
from dmodels.design.program import arguments, block
from dmodels.studies.plan import Margins, Precision, evaluate, plan, price, question, sensitivity
from dmodels.studies.plan.evaluate import sweep_instances
from dmodels.studies.plan.margins import fewest, flags, strain
from tests.lowered import check_stays_on_the_device, lowered

CHAT = catalog.workload("azure-conv", 20.0)

METRICS = ("TTFT", "TPOT", "E2E")


def asked(**changes):
    options = {"tp": (2, 4, 8), "pp": (1,), "thresholds_tokens": (1024.0, 4096.0)} | changes
    model, gpus = options.pop("model", "llama-3.1-70b"), options.pop("gpus", ["h100", "h200"])
    return question(model, gpus, options.pop("workload", CHAT), options.pop("slo", SLO(2.0, 0.08)), **options)


def by_formula(**changes):
    """These are facts about the closed forms, which replays may better."""
    return plan(asked(**changes), ensure=False)


@pytest.fixture(scope="module")
def answer():
    return by_formula()


def test_the_smallest_pool_is_the_smallest(answer):
    """Every number of instances from 1 on, tried one by one."""
    priced = answer.priced
    counts = np.arange(1.0, 65.0)[None] + 0.0 * priced.cells.slots_count
    with_flags = float64(sweep_instances)(priced.cells, counts, priced.question.rate_rps, priced.question.engine).flags
    ok = with_flags == 0
    expected = np.where(ok.any(1), 1 + ok.argmax(1), np.inf)
    reach = priced.instances.ravel() <= 64
    np.testing.assert_array_equal(priced.instances.ravel()[reach], expected[reach])
    assert np.all(ok == np.maximum.accumulate(ok, axis=1)), "one more instance broke an SLO"


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_the_evaluation_stays_on_a_device(answer, platform):
    """What plans and sweeps compile calls no host and has no shape that is not known, whatever it is lowered for."""
    priced = answer.priced
    asked = evaluate._asked(priced.cells, priced.question.rate_rps, priced.question.engine, 1.0)
    with jax.enable_x64(True):
        traced = block.trace(asked.function, asked.layout, *arguments(asked, asked.window(0)))
        check_stays_on_the_device(lowered(traced, platform), calls=set())


def test_the_cheapest_is_the_cheapest_of_all_combinations(answer):
    costs = answer.priced.costs_usd_per_hour
    by_hand = [sum(costs[:, s].min() for s in scheme.stages) for scheme in answer.priced.schemes]
    assert answer.cheapest.usd_per_hour == pytest.approx(min(by_hand))
    others = [d.usd_per_hour for d in answer.kinds[1:]]
    assert answer.kinds[0] is answer.best and others == sorted(others)


def test_gpus_and_dollars_decompose(answer):
    for d in (*answer.kinds, *answer.by_gpu):
        assert d.gpus == sum(p.instances * p.layout.tp * p.layout.pp * p.layout.dp for p in d.pools)
        price = {"h100_sxm": 2.69, "h200_sxm": 3.59}
        assert d.usd_per_hour == pytest.approx(sum(p.gpus * price[p.layout.gpu] for p in d.pools))
        assert d.usd_per_year == pytest.approx(8760 * d.usd_per_hour)
        assert d.ttft_s <= 2.0 and d.tpot_s <= 0.08
        assert d.gpus_low <= d.gpus <= d.gpus_high


def test_every_request_is_served_once(answer):
    for d in answer.kinds:
        shares = [p.request_share_frac for p in d.pools]
        assert (min(shares) if d.kind == "prefill/decode split" else sum(shares)) == pytest.approx(1.0)


def test_output_tokens_add_up_to_the_offered_load(answer):
    offered = 20.0 * float(CHAT.mean_output_tokens)
    for d in answer.kinds:
        assert d.tokens_per_s == pytest.approx(offered, rel=1e-6)


def test_more_load_costs_more_and_looser_slos_less(answer):
    base = answer.best.usd_per_hour
    assert by_formula(workload=CHAT.at_rate(40.0)).best.usd_per_hour > base
    assert by_formula(slo=SLO(4.0, 0.16)).best.usd_per_hour <= base
    assert by_formula(slo=SLO(2.0, 0.08, percentile=0.9)).best.usd_per_hour <= base


def test_the_same_question_has_the_same_answer(answer):
    again = by_formula()
    assert again.best == answer.best
    assert again.rejections == answer.rejections


def test_an_impossible_slo_says_which_and_its_fix_works():
    strict = by_formula(slo=SLO(2.0, 0.002), split=False)
    assert strict.best is None
    nearest = strict.rejections[0]
    assert nearest.binding == "TPOT without load"
    fixed_ms = float(nearest.fix.split(" ms")[0].split()[-1].replace(",", ""))
    relaxed = by_formula(slo=SLO(2.0, fixed_ms / 1e3), split=False)
    assert relaxed.best is not None


def test_a_model_that_fits_nowhere_says_how_much_is_missing():
    too_small = by_formula(model="llama-3.1-405b", gpus=["l4"], split=False)
    assert too_small.best is None
    assert {r.binding for r in too_small.rejections} == {"memory for weights"}
    assert all(r.have.endswith("per GPU") and "GiB" in r.need for r in too_small.rejections)


def test_requests_without_an_answer_are_planned_for():
    """They take prompts alone: the fleet is at least that of the others, and at most that of all with answers."""
    some = Workload([2000.0, 2000.0], [0.0, 200.0], [0.5, 0.5], rate_rps=20.0)
    with_all, half = Workload.fixed(2000.0, 200.0, 20.0), Workload.fixed(2000.0, 200.0, 10.0)
    costs = [
        by_formula(workload=x, gpus=["h100"], tp=(4,), split=False, thresholds_tokens=()).cheapest.usd_per_hour
        for x in (half, some, with_all)
    ]
    assert costs == sorted(costs)


def test_a_gpu_budget_binds():
    base = by_formula().best
    short = by_formula(max_gpus=2.0, gpus=["h100"], tp=(4,), split=False)
    assert short.best is None
    assert short.rejections[0].binding == "GPU budget"
    assert by_formula(max_gpus=float(base.gpus)).best is not None


def test_pools_lose_an_instance_only_where_it_shows(answer):
    """With one instance less than planned, the cell that binds is flagged."""
    priced = answer.priced
    for pool in answer.best.pools:
        row, stage = priced.layouts.index(pool.layout), priced.stages.index(pool.stage)
        assert priced.instances[row, stage] == pool.instances
        if pool.instances > 1:
            assert pool.binding in {"throughput", "TTFT", "TPOT", "TTFT and TPOT", "memory"}


def test_what_binds_is_what_breaks_with_one_instance_less(answer):
    """Of every kind and GPU, pools evaluated anew; of the best, at rates grown as far as is said to hold, too."""
    priced, slo = answer.priced, answer.priced.cells.slo

    def at(count, cell):
        counts = np.full((len(priced.cells.slots_count), 1), count)
        found = sweep_instances(priced.cells, counts, 20.0, answer.question.engine)
        return jax.tree.map(lambda leaf: leaf[cell, 0], found)

    for d in (*answer.kinds, *answer.by_gpu):
        assert d.gpus_low <= d.gpus <= d.gpus_high
        for pool in d.pools:
            cell = priced.cell_of(pool)
            less = at(max(pool.instances - 1.0, 0.5), cell)
            late = [(name, getattr(less, f"{name.lower()}_s"), getattr(slo, f"{name.lower()}_s")) for name in METRICS]
            late = [name for name, seconds, bound in late if float(seconds) > float(bound[cell, 0])]
            if int(less.flags) & Flag.OVERLOAD:
                late = ["throughput"]
            alone = "all service" if pool.instances == 1 else " and ".join(late)
            assert pool.binding == (alone or ("memory" if int(less.flags) else "nothing"))
    pools = [(pool.instances, priced.cell_of(pool)) for pool in answer.best.pools]
    breaks = lambda growth: any(int(at(n / growth, cell).flags) for n, cell in pools)
    assert not breaks(1.0 + answer.headroom_frac) and breaks(1.021 + answer.headroom_frac)
    assert answer.survives_loss == all(n > 1 and int(at(n - 1.0, cell).flags) == 0 for n, cell in pools)


def test_margins_are_a_plan_of_more(answer):
    """Spare instances are bought beside those that are needed, and what a pool breaks is what the rest of it does;
    growth is a higher rate; TTFT is at least as much slower as the steps are."""
    cells, engine, rate = answer.priced.cells, answer.question.engine, 20.0
    each = [Record(tpot=(0.9, 1.2), ttft=(0.8, 1.5)), Record(tpot=(0.9, 1.4), ttft=(0.8, 1.1))]
    found = strain(0.9, each)
    assert found.slowdown == pytest.approx([1.2, 1.4]) and found.slowdown * found.ttft == pytest.approx([1.5, 1.4])
    none = strain(0.5, each[:1] * len(cells.slots_count))
    asked = lambda rate, margins: fewest(cells, rate, engine, margins, none).instances
    plain, spare = asked(rate, Margins()), asked(rate, Margins(spare_count=2))
    sized = np.isfinite(plain)
    np.testing.assert_array_equal(spare[sized], plain[sized] + 2)
    np.testing.assert_array_equal(asked(rate, Margins(headroom_frac=0.3)), asked(1.3 * rate, Margins()))
    counts = np.where(sized, plain, 1.0).reshape(-1, 1) + np.array([-1.0, 0.0, 1.0, 2.0])
    broken = lambda counts, margins: flags(cells, np.maximum(counts, 1.0), rate, engine, margins, none)
    with_spare, left = broken(counts + 2, Margins(spare_count=2)), broken(counts, Margins())
    kept = counts >= 1.0
    np.testing.assert_array_equal(with_spare[kept], left[kept])
    assert (with_spare[~kept] & Flag.OVERLOAD).all()  # no instance is left


def test_latencies_beyond_the_checked_load_are_named(answer):
    """A pool's load is that of its slots: more arrivals than 1/load times today's are more than it can serve."""
    for pool in answer.best.pools:
        assert 0.0 < pool.load_frac <= 1.0
        cell = answer.priced.cell(answer.priced.layouts.index(pool.layout), answer.priced.stages.index(pool.stage))
        fewer = np.full((len(answer.priced.cells.slots_count), 1), pool.instances * pool.load_frac / 1.01)
        flags = sweep_instances(answer.priced.cells, fewer, answer.question.rate_rps, answer.question.engine).flags
        assert flags[cell, 0] & Flag.OVERLOAD
        slots = min(pool.slots_count, float(answer.question.engine.max_num_seqs_count))
        for name, form in (("TTFT", "plan_ttft_p99"), ("TPOT", "plan_tpot_p99"), ("E2E", "plan_e2e_p99")):
            if name in pool.extrapolated:  # the most cautious spread of lengths
                assert pool.load_frac > min(trusted_load(form, slots, cv) for cv in (0.5, 1.0, 2.0))


def test_a_pool_never_gets_faster_with_load(answer):
    """From a third of what saturates it on; and no number is missing without a reason."""
    stable = answer.priced.stable_instances.reshape(-1, 1)
    counts = np.where(np.isfinite(stable), stable, 1.0) * np.linspace(3.0, 0.9, 64)
    point = sweep_instances(answer.priced.cells, counts, answer.question.rate_rps, answer.question.engine)
    over = (point.flags & int(Flag.OVERLOAD)) != 0
    assert not np.any((point.flags & int(Flag.NONFINITE)) != 0)
    for name in ("ttft_s", "ttft_mean_s", "tpot_s", "tpot_mean_s", "e2e_s"):
        value = np.where(over, np.inf, getattr(point, name))
        assert np.all(value[:, 1:] >= value[:, :-1] * (1 - 1e-3)), name


def test_narrow_stages_are_sized_too(answer):
    """No prompt-and-answer of Azure's chats is below 128 tokens in the compressed workload, but some are."""
    narrow = float64(price)(asked(thresholds_tokens=(128.0,)))
    assert np.isfinite(narrow.instances[:, 1]).any()


def test_headroom_is_room(answer):
    grown = by_formula(workload=CHAT.at_rate(20.0 * (1.0 + answer.headroom_frac)))
    assert grown.best.gpus <= answer.best.gpus


def test_sensitivity_moves_the_right_way(answer):
    found = {(c.what, c.factor): c.usd_per_hour for c in sensitivity(answer)}
    base = answer.cheapest.usd_per_hour  # of each changed question it is the cheapest that is said, not the simplest
    assert found["request rate", 0.8] <= base <= found["request rate", 1.2]
    assert found["output length", 0.8] <= found["output length", 1.2]
    assert found["input length", 0.8] <= found["input length", 1.2]
    assert found["TTFT SLO", 2.0] <= found["TTFT SLO", 0.5]
    assert found["price of h100_sxm", 1.2] <= 1.2 * base + 1e-9


def test_prefix_hits_never_cost_more():
    slow = SLO(60.0, 0.2)
    cold, warm = (
        by_formula(workload=catalog.workload("mooncake", 5.0, prefix_hits=hits), slo=slow, split=False)
        for hits in (False, True)
    )
    assert warm.best.usd_per_hour <= cold.best.usd_per_hour


def test_fp8_weights_and_cache_are_asked_for_where_units_are():
    formats = {"weights": ("as published", "fp8"), "kv": ("as published", "fp8")}
    layouts = float64(price)(asked(gpus=["a100", "h100"], thresholds_tokens=(), split=False, **formats)).layouts
    assert not any(x.gpu.startswith("a100") and "fp8" in (x.weights, x.kv) for x in layouts)
    assert any(x.gpu == "h100_sxm" and x.weights == "fp8" for x in layouts)


def test_mixtures_of_experts_and_latent_attention_get_their_layouts():
    moe = by_formula(model="deepseek-v3", gpus=["h200"], tp=(8,), workload=CHAT.at_rate(5.0), slo=SLO(5.0, 0.2))
    shapes = {x.parallel for x in moe.priced.layouts}
    assert {"tp8pp1dp1ep1", "tp8pp1dp1ep8", "tp1pp1dp8ep8"} <= shapes
    assert moe.best is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rate_rps": -1.0}, "rate_rps"),
        ({"rate_rps": float("nan")}, "rate_rps"),
        ({"rate_rps": 0.0}, "rate 0 req/s"),
        ({"slo": SLO(2.0, 0.08, percentile=0.4)}, "percentile 0.4"),
        ({"gpus": ["h1000"]}, "nearest"),
        ({"gpus": []}, "none named"),
        ({"model": "lama-70b"}, "nearest"),
        ({"thresholds_tokens": (1.0,)}, "leaves a pool empty"),
        ({"tp": (3,)}, "does not divide"),
        ({"workload": Workload([10.0], [0.0], [1.0])}, "no request generates"),
    ],
)
def test_bad_questions_are_one_line(changes, says):
    with pytest.raises(InputError) as caught:
        by_formula(**changes)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_overload_is_flagged_not_hidden(answer):
    flags = answer.fleets.one_pool["flags"]
    assert np.isfinite(answer.fleets.one_pool["ttft_s"][(flags & int(Flag.OVERLOAD)) == 0]).all()


@pytest.mark.parametrize("max_gpus", [6.0, 10.0])
def test_no_fleet_takes_more_gpus_than_there_are(answer, max_gpus):
    """Over all pools together; of all pairs of pools within the limit the cheapest, or a fix that suffices."""
    few = by_formula(max_gpus=max_gpus)
    deployments = (*few.kinds, *few.by_gpu)
    assert all(d.gpus <= max_gpus for d in deployments)
    gpus, costs, possible = few.priced.pool_gpus, answer.priced.costs_usd_per_hour, []
    for scheme in few.priced.schemes:
        rows = np.indices((len(gpus),) * len(scheme.stages)).reshape(len(scheme.stages), -1)
        need = sum(gpus[r, s] for r, s in zip(rows, scheme.stages, strict=True))
        cost = sum(costs[r, s] for r, s in zip(rows, scheme.stages, strict=True))
        possible.append(cost[need <= max_gpus].min(initial=np.inf))
    if np.isfinite(min(possible)):
        assert few.cheapest.usd_per_hour == pytest.approx(min(possible))
    else:
        assert few.best is None
    if few.best is None:
        more = float(few.rejections[0].fix.split(" more GPU")[0].replace(",", ""))
        assert by_formula(max_gpus=max_gpus + more).best is not None
        assert by_formula(max_gpus=max_gpus + more - 1.0).best is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_gpus": 0.0}, "max_gpus = 0"),
        ({"max_gpus": float("nan")}, "max_gpus = nan"),
        ({"weights": ("fp9",)}, "precision 'fp9' is unknown; the nearest are fp8"),
    ],
)
def test_bad_options_name_themselves(options, says):
    with pytest.raises(InputError, match=says):
        asked(**options)


def test_a_precision_is_one_name_however_it_is_written():
    assert asked(weights="FP8", kv=("as-published", "fp8")).kv == ("as published", "fp8")
    assert asked(weights="FP8").weights == ("fp8",)
    assert asked(weights="FP8").weights[0] is Precision.FP8


def test_an_answer_is_plain_data(answer):
    found = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert found["best"]["gpus"] == answer.best.gpus
    assert found["best"]["pools"][0]["layout"]["weights"] == "as published"
    assert found["best"]["kind"] in ("one pool", "two pools", "prefill/decode split")
