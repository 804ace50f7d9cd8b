"""A fleet that runs, beside the plan: the plan's own files keep its promises, and twice the servers serve twice."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dmodels import SLO, Workload
from dmodels.core.errors import InputError
from dmodels.formats.deployments import joined, read_text, write_deployment
from dmodels.formats.serving import Server, ServerPool, Serving
from dmodels.studies.plan import Kind, plan, question, serving, verify
from dmodels.studies.plan import existing as existing_module
from dmodels.studies.plan.existing import existing


@pytest.fixture(scope="module")
def answer(short_replays):
    lengths = Workload([300.0, 5000.0], [200.0, 300.0], [0.7, 0.3], rate_rps=40.0)
    return plan(question("llama-3.1-8b", ["h100_sxm"], lengths, SLO(2.0, 0.05), tp=(2,), thresholds_tokens=(1024.0,)))


@pytest.mark.parametrize("kind", list(Kind))
def test_what_a_plan_writes_keeps_the_slos_when_it_is_read(answer, kind):
    deployed = next(d for d in answer.kinds if d.kind == kind)
    files = write_deployment(serving(deployed, answer.question), "kubernetes")
    fleet = joined(read_text(text, name) for name, text in files.items())
    now = existing(answer.question, fleet)
    assert now.keeps_slo and now.gpus == deployed.gpus and now.refused_frac == 0
    assert replace(now, serves_rps=now.rate_rps).keeps_slo
    assert not replace(now, serves_rps=0.999 * now.rate_rps).keeps_slo
    assert now.usd_per_hour == pytest.approx(deployed.usd_per_hour)
    if kind == Kind.ONE_POOL:  # Little's law: 40 answers a second of 230 tokens in the mean, the first of them apart
        (pool,) = now.pools
        assert pool.decode_count * pool.instances == pytest.approx(40.0 * 229.0 * pool.tpot_mean_s, rel=0.05)
        assert pool.ttft_mean_s < pool.ttft_s and pool.tpot_mean_s < pool.tpot_s
    twice = replace(fleet, pools=tuple(replace(p, replicas=2 * p.replicas) for p in fleet.pools))
    assert existing(answer.question, twice).serves_rps >= 2 * now.serves_rps * 0.99  # larger pools share their loads


def test_a_pool_serves_as_much_alone(answer):
    """Of its own requests, which no others delay."""
    both = serving(next(d for d in answer.kinds if d.kind == Kind.TWO_POOLS), answer.question)
    short = replace(answer.question, workload=Workload([300.0], [200.0], [1.0], rate_rps=28.0))
    alone = existing(short, replace(both, pools=both.pools[:1], threshold_tokens=None))
    beside = existing(answer.question, both).pools[0]
    assert (alone.pools[0].share_frac, beside.share_frac) == pytest.approx((1.0, 0.7))
    assert beside.serves_rps == pytest.approx(alone.serves_rps, rel=0.05)  # other random arrivals


def test_an_autoscaler_may_start_what_slow_steps_take(answer):
    """The fleet's interval ends at so many GPUs, and its pools may grow to as many; without an end to twice as many."""
    one = next(d for d in answer.kinds if d.kind == Kind.ONE_POOL)
    (pool,) = serving(one, answer.question).pools
    assert one.gpus < one.gpus_high <= pool.max_replicas * pool.server.gpus < one.gpus_high + pool.server.gpus
    (endless,) = serving(replace(one, gpus_high=math.inf), answer.question).pools
    assert endless.max_replicas == 2 * endless.replicas


def test_a_server_less_is_as_the_plan_says(answer):
    """The fewest of a replay keep the SLOs: with one server less the rate is not served."""
    one = next(d for d in answer.kinds if d.kind == Kind.ONE_POOL)
    fleet = serving(one, answer.question)
    (fewest,) = verify(replace(answer, best=one)).smallest
    assert existing(answer.question, replace(fleet, pools=(replace(fleet.pools[0], replicas=fewest),))).keeps_slo
    less = replace(fleet, pools=(replace(fleet.pools[0], replicas=fewest - 1),))
    now = existing(answer.question, less)
    assert not now.keeps_slo and now.serves_rps < 40.0
    again = existing(answer.question, replace(less, pools=(replace(less.pools[0], gpu=""),)))
    assert again == now  # the only GPU asked about


def test_a_fleet_without_a_steady_state_is_endlessly_late(answer):
    one = serving(next(d for d in answer.kinds if d.kind == Kind.ONE_POOL), answer.question)
    now = existing(replace(answer.question, workload=answer.question.workload.replace(rate_rps=4000.0)), one)
    assert now.pools[0].ttft_s == now.pools[0].ttft_mean_s == float("inf") and not now.keeps_slo


def test_a_fleet_that_is_late_at_any_rate_serves_none(answer):
    one = serving(next(d for d in answer.kinds if d.kind == Kind.ONE_POOL), answer.question)
    now = existing(replace(answer.question, slo=SLO(1e-3, 0.05)), one)
    assert now.serves_rps == now.pools[0].serves_rps == 0.0 and now.pools[0].ttft_s > 1e-3


def test_limits_of_the_file_count(answer):
    fleet = serving(next(d for d in answer.kinds if d.kind == Kind.ONE_POOL), answer.question)
    (pool,) = fleet.pools
    narrow = replace(pool, server=replace(pool.server, max_num_seqs_count=8))
    short = replace(pool, server=replace(pool.server, max_model_len_tokens=1024))
    full = existing(answer.question, fleet)
    assert existing(answer.question, replace(fleet, pools=(narrow,))).serves_rps < 0.5 * full.serves_rps
    assert existing(answer.question, replace(fleet, pools=(short,))).refused_frac == pytest.approx(0.3)
    long = Workload([300.0, 5000.0, 200_000.0], [200.0, 300.0, 10.0], [0.5, 0.3, 0.2], rate_rps=40.0)
    asked = replace(answer.question, workload=long)  # of which the model itself refuses the longest fifth
    assert existing(asked, replace(fleet, pools=(short,))).refused_frac == pytest.approx(0.5)
    assert existing(asked, fleet).refused_frac == pytest.approx(0.2)


def test_what_cannot_be_compared_is_said(answer):
    fleet = serving(next(d for d in answer.kinds if d.kind == Kind.ONE_POOL), answer.question)
    (pool,) = fleet.pools
    other = replace(pool, server=replace(pool.server, model="Qwen/Qwen3-8B"))
    with pytest.raises(InputError, match=r"serves Qwen/Qwen3-8B; accepted is a plan of it: --model qwen3-8b"):
        existing(answer.question, replace(fleet, pools=(other,)))
    nobodys = replace(pool, server=replace(pool.server, model="a/model-of-ones-own"))
    with pytest.raises(InputError, match=r"serves a/model-of-ones-own; accepted is a plan of it"):
        existing(answer.question, replace(fleet, pools=(nobodys,)))
    with pytest.raises(InputError, match=r"3 pools; accepted are one, two with a threshold on tokens"):
        existing(answer.question, replace(fleet, pools=(pool,) * 3))
    two = question("llama-3.1-8b", ["h100_sxm", "h200_sxm"], answer.question.workload, SLO(2.0, 0.05))
    with pytest.raises(InputError, match="pool all names no GPU; --gpu NAME"):
        existing(two, replace(fleet, pools=(replace(pool, gpu=""),)))


def running(*pools, threshold=None):
    made = [ServerPool(f"p{k}", Server("vllm", "m", **own), 2, "h100_sxm") for k, own in enumerate(pools)]
    return Serving("fleet", tuple(made), threshold)


def test_how_pools_share_requests_is_read_off_their_servers():
    """A split by roles, whatever their order; two pools by a threshold, or by the shorter context; otherwise one."""
    short, long = {"max_model_len_tokens": 2048}, {"max_model_len_tokens": 9000}
    decode, prefill = {"role": "decode"}, {"role": "prefill"}
    assert existing_module._kind(running({})) == (Kind.ONE_POOL, None)
    assert existing_module._kind(running(decode, prefill)) == (Kind.SPLIT, None)
    assert existing_module._kind(running(long, short)) == (Kind.TWO_POOLS, 2048)
    assert existing_module._kind(running(long, short, threshold=512)) == (Kind.TWO_POOLS, 512)
    assert existing_module._kind(running(long, long)) == (Kind.ONE_POOL, None)
    assert existing_module._kind(running({}, short)) == (Kind.ONE_POOL, None)
    in_order = lambda fleet, kind: [pool.name for pool in existing_module._ordered(list(fleet.pools), kind)]
    assert in_order(running(decode, prefill), Kind.SPLIT) == ["p1", "p0"]
    assert in_order(running({}, long, short), Kind.TWO_POOLS) == ["p2", "p1", "p0"]
    with pytest.raises(InputError, match="a split has prefill and decode"):
        existing_module._ordered(list(running(prefill, {"role": "serve"}).pools), Kind.SPLIT)


def test_a_servers_layout_and_limits_are_those_of_its_file(answer):
    """What the file does not say is as asked about; weights are the published ones unless it says otherwise."""
    asked = replace(answer.question, checkpoint="mine", weights=("fp8",))
    served = {"tp": 2, "pp": 3, "dp": 4, "ep": 8, "max_num_seqs_count": 33}
    (pool,) = running(served | {"kv_dtype": "fp8"}).pools
    layout, engine = existing_module._layout(asked, pool), existing_module._engine(asked, pool.server)
    assert (layout.gpu, layout.tp, layout.pp, layout.dp, layout.ep) == ("h100_sxm", 2, 3, 4, 8)
    assert (layout.weights, layout.kv) == ("as published", "fp8")
    assert (float(engine.max_num_seqs_count), float(engine.max_num_batched_tokens)) == (33, 8192)
    (pool,) = running({"quantization": "fp8", "kv_dtype": "auto", "max_num_batched_tokens": 512}).pools
    assert (
        existing_module._layout(asked, pool).weights == "fp8"
        and existing_module._layout(asked, pool).kv == "as published"
    )
    assert float(existing_module._engine(asked, pool.server).max_num_seqs_count) == 256
    mine = replace(pool, server=replace(pool.server, model="mine", quantization=""))
    assert existing_module._layout(asked, mine).weights == "fp8"  # the checkpoint that the plan was asked about
