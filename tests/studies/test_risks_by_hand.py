"""Bursts, losses and stale readings of toy pools whose curves are known, by plain arithmetic."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.models.queueing import backlog_s
from dmodels.studies.plan import risks as module
from dmodels.studies.plan.designs import Kind, Role

SLO = SimpleNamespace(percentile=0.95)


class Toy(SimpleNamespace):
    """A pool with waits of M/M/1: idle times, the load at the plan's rate, and what its SLO is."""

    def point(self, factor):
        load = self.load_frac * factor
        wait = self.idle_s * load / (1 - load) if load < 1 else math.inf
        late = self.bound_s < self.idle_s + 3 * wait
        flags = int(Flag.OVERLOAD) if load >= 1 else int(Flag.SLO_MISS) if late else 0
        return {
            "ttft_s": self.idle_s + 3 * wait,
            "ttft_mean_s": self.idle_s + wait,
            "tpot_s": self.tpot * (1 + load),
            "decode_count": 20 * load,
            "prefill_busy_frac": 0.4 * load,
            "flags": flags,
        }


def pool(name, load, instances, role=None, share=1.0, idle=0.2, bound=2.0):
    made = Toy(name=name, load_frac=load, instances=instances, idle_s=idle, tpot=0.02, bound_s=bound)
    made.stage, made.request_share_frac, made.usd_per_hour = SimpleNamespace(role=role), share, 3.0 * instances
    told = made.point(1.0)
    made.ttft_s, made.ttft_mean_s, made.decode_count = told["ttft_s"], told["ttft_mean_s"], told["decode_count"]
    return made


@pytest.fixture
def toys(monkeypatch):
    def at(priced, pools, factors):
        names = pools[0].point(1.0)
        found = {
            n: np.array([[p.point(f)[n] for f in row] for p, row in zip(pools, factors, strict=True)]) for n in names
        }
        rest = dict.fromkeys(module.Operating._fields, np.zeros(factors.shape))
        asked.append(factors)
        return module.Operating(**rest | found)

    asked = []
    monkeypatch.setattr(module, "_at", at)
    return asked


def asked_of(pools, kind=Kind.TWO_POOLS, rate=10.0):
    bounds = np.array([[p.bound_s] for p in pools])
    cells = SimpleNamespace(slo=SimpleNamespace(ttft_s=bounds, tpot_s=0.1 * bounds))
    priced = SimpleNamespace(rate_rps=rate, cells=cells, cell_of=pools.index, question=SimpleNamespace(slo=SLO))
    best = SimpleNamespace(pools=pools, kind=kind, seen=lambda pool, metric: math.inf)
    return SimpleNamespace(best=best, priced=priced, question=priced.question)


def expected(pools, found, factors, kind, lasting):
    """What all pools come to at their factors after so long: (TTFT, TPOT, whether one saturates, the time to drain)."""
    ttft, tpot, drain, over = [], [], 0.0, False
    for own, load, factor in zip(pools, found.loads, factors, strict=True):
        told, top = own.point(factor), 1 / own.load_frac
        reached = own.ttft_s + backlog_s(0.95, factor * own.load_frac, load.work_variance_s, lasting)
        beyond = bool(told["flags"] & int(Flag.OVERLOAD))
        over |= beyond
        ttft.append(reached if beyond else min(reached, told["ttft_s"]))
        if beyond:
            drain = max(drain, lasting * (factor - top) / (top - 1) if top > 1 else math.inf)
        tpot.append(told["tpot_s"] if own.stage.role != Role.PREFILL else 0.0)
    return sum(ttft) if kind == Kind.SPLIT else max(ttft), max(tpot), over, drain


@pytest.mark.parametrize("kind", [Kind.TWO_POOLS, Kind.SPLIT])
def test_bursts_and_losses(toys, kind):
    roles = (Role.PREFILL, Role.DECODE) if kind == Kind.SPLIT else (None, None)
    pools = [pool("a", 0.6, 3, roles[0], 0.7), pool("b", 0.8, 1, roles[1], 0.3 if roles[0] is None else 1.0, idle=0.1)]
    found = module.risks(asked_of(pools, kind), burst_s=30.0, bursts=(1.05, 1.2, 1.5, 2.0))
    assert [one.factor for one in found.bursts] == [1.05, 1.2, 1.5, 2.0] and found.burst_s == 30.0
    for one in found.bursts:
        wanted = expected(pools, found, [one.factor] * 2, kind, 30.0)
        assert (one.ttft_s, one.tpot_s, one.saturates, one.drain_s) == pytest.approx(wanted)
        assert one.keeps_slo == all(p.point(one.factor)["flags"] == 0 for p in pools)
    assert [one.saturates for one in found.bursts] == [False, False, True, True]
    first, second = found.losses
    assert second.after is None and (first.spare_usd_per_hour, second.spare_usd_per_hour) == (3.0, 3.0)
    assert first.after.factor == pytest.approx(1.5) and first.pool is pools[0]
    wanted = expected(pools, found, [1.5, 1.0], kind, 30.0)
    assert (first.after.ttft_s, first.after.tpot_s, first.after.saturates, first.after.drain_s) == pytest.approx(wanted)
    assert found.first.pool is pools[1] and [one.pool for one in found.stale] == pools[:1]
    assert {float(f) for row in toys[1] for f in row} == {1.0, 1.05, 1.2, 1.5, 2.0}
    assert module.BURSTS == (1.1, 1.25, 1.5, 2.0) and module.risks(asked_of(pools, kind)).burst_s == 60.0


def test_a_pool_that_is_full_already_never_drains(toys):
    full = pool("a", 0.5, 2)
    full.ttft_s = 1.0
    answer = asked_of([full])
    (load,) = module.loads(answer)
    point = module._at(None, [full], np.array([[2.5]]))
    gone = module._grown(answer, (load,), point, 0, np.array([2.5]), 10.0)
    assert gone.drain_s == pytest.approx(10 * 0.5 / 1.0)
    tight = SimpleNamespace(pool=full, growth=1.0, work_variance_s=0.0)
    assert module._grown(answer, (tight,), point, 0, np.array([2.5]), 10.0).drain_s == math.inf


def test_loads_from_idle_to_saturation(toys):
    one, two = pool("a", 0.6, 3, None, 0.7), pool("b", 0.8, 2, Role.PREFILL, 0.3)
    answer = asked_of([one, two])
    loads = module.loads(answer)
    np.testing.assert_allclose(loads[0].load_frac[[0, 47, 48, 63]], [0.02, 0.9, 0.905, 0.999])
    assert len(loads[0].load_frac) == 64 and (np.diff(loads[0].load_frac) > 0).all()
    for own, load in zip((one, two), loads, strict=True):
        points = [own.point(f / own.load_frac) for f in load.load_frac]
        np.testing.assert_allclose(load.ttft_s, [p["ttft_s"] for p in points])
        np.testing.assert_allclose(load.tpot_s, [p["tpot_s"] for p in points])
        each = 10.0 * own.request_share_frac / own.instances
        held = [each * f / own.load_frac * p["ttft_mean_s"] for f, p in zip(load.load_frac, points, strict=True)]
        np.testing.assert_allclose(load.in_flight_count, held if own is two else [p["decode_count"] for p in points])
        assert (load.operating_frac, load.growth) == (own.load_frac, 1 / own.load_frac)
        powers = [f / p["ttft_s"] for f, p in zip(load.load_frac, points, strict=True)]
        assert load.knee_frac == load.load_frac[int(np.argmax(powers))]
        assert (load.ttft_bound_s, load.tpot_bound_s) == (2.0, pytest.approx(0.2))
        near = load.load_frac[np.argmin(abs(load.load_frac - 0.99))]
        waits = own.idle_s * near / (1 - near) - own.idle_s * 0.02 / 0.98
        assert load.work_variance_s == pytest.approx(2 * (1 - near) * waits / near)  # Pollaczek-Khinchine backwards


def test_readings_grow_stale_with_prompts_and_with_counts():
    """Prompts of w seconds at r a second fill the room to the bound in room/(r w); counts of M/G/infinity drift by one
    deviation in the time t of a life L where 2 (1 - exp(-t/L)) = 1. No mean life is above a percentile of a replay."""
    own = pool("a", 0.5, 4, None, 0.5)
    answer = asked_of([own])
    load = SimpleNamespace(pool=own, ttft_bound_s=2.0)
    told = module._stale(answer, load, busy_frac=0.2, decode_count=16.0)
    work_s = 0.2 * 4 / 5.0
    assert told.pool is own and told.herd_s == pytest.approx((2.0 - own.ttft_mean_s) / (5.0 * work_s))
    alive = own.ttft_mean_s + 16.0 * 4 / 5.0
    assert told.memory_s == pytest.approx(alive * math.log(2.0))
    answer.best.seen = lambda pool, metric: {"E2E": 0.9 * alive}[metric]
    assert module._stale(answer, load, 0.2, 16.0).memory_s == pytest.approx(0.9 * told.memory_s)
    assert module._stale(answer, load, 0.0, 0.2).herd_s == math.inf
    late = SimpleNamespace(pool=own, ttft_bound_s=0.1)
    assert module._stale(answer, late, 0.2, 16.0).herd_s == 0.0


def test_each_pools_readings_are_those_of_its_own_at_the_plans_rate(toys):
    pools = [pool("a", 0.6, 3, None, 0.7), pool("b", 0.8, 2, None, 0.3, idle=0.1)]
    answer = asked_of(pools)
    found = module.risks(answer)
    for own, load, told in zip(pools, found.loads, found.stale, strict=True):
        now = own.point(1.0)
        assert told == module._stale(answer, load, now["prefill_busy_frac"], now["decode_count"])


def test_a_knee_is_where_power_is_greatest():
    loads = np.linspace(0.1, 0.9, 9)
    times = np.array([1.0, 1.0, 1.0, 1.2, 2.0, 3.0, math.inf, 0.1, 9.0])
    powers = [(f / t if math.isfinite(t) else -1, f) for f, t in itertools.zip_longest(loads, times)]
    assert module.knee(loads, times) == max(powers)[1]
