"""One instance whose steps follow a known law, worked out once more in plain Python, and what its tables read."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.flags import Flag
from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.models import instance
from dmodels.models.instance import Engine, Roofline, operate, step_table
from dmodels.models.latency import Efficiency, iteration_s
from dmodels.models.queueing import erlang_c
from dmodels.models.traffic import GAP_WEIGHTS, LEVELS, Requests

pytestmark = pytest.mark.usefixtures("op_by_op")


def tail_of_stalls(q, alone_s, stall_mean_s, stall_variance, gap_tokens, weights):
    """Stands in for `stalled_tpot_s`, which has facts of its own: a number that every argument moves."""
    return alone_s + q * (((stall_mean_s + stall_variance) / gap_tokens) @ weights)


def tail_of_sum(q, wait_probability, mean_s, edges_s, levels):
    """Stands in for `sum_quantile_s` in the same way."""
    return q * (wait_probability + mean_s) + edges_s @ (0.1 + levels)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch):
    monkeypatch.setattr(instance, "stalled_tpot_s", tail_of_stalls)
    monkeypatch.setattr(instance, "sum_quantile_s", tail_of_sum)


class Law(NamedTuple):
    """Steps of `alone` + `mate` n seconds, `prompt` + `crowd` n more with a prompt."""

    alone: float = 8e-3
    mate: float = 2e-4
    prompt: float = 0.03
    crowd: float = 1e-4

    def times(self, n):
        return self.alone + self.mate * n, self.prompt + self.crowd * n

    def occupancy(self, x, output_tokens, slots):
        """n (1 - x K(n)) = x E[O] t_0(n): a quadratic equation."""
        b, c = 1.0 - x * self.prompt - x * output_tokens * self.mate, x * output_tokens * self.alone
        room = b * b - 4.0 * x * self.crowd * c
        n = 2.0 * c / (b + jnp.sqrt(jnp.maximum(room, 0.0)))
        short = (b <= 0.0) | (room < 0.0) | (n > slots)
        return jnp.where(short, slots, n), short


class Power(NamedTuple):
    """Steps of n^power/10 ms with a hundred decoding, whoever arrives."""

    power: float

    def times(self, n):
        return 1e-4 * n**self.power, 0.01 + 0.0 * n

    def occupancy(self, _, __, slots):
        return 100.0 + 0.0 * slots, jnp.asarray(False)


MIXED = Requests(
    1.0,
    900.0,
    700.0,
    9e5,
    2.5e9,
    200.0,
    0.6,
    1000.0,
    np.linspace(50.0, 2500.0, 11),
    np.linspace(5.0, 900.0, 11),
    np.geomspace(3.0, 800.0, 10),
    4000.0,
)
PREFILL = MIXED.replace(output_tokens=0.0, output_scv=0.0, output_edge_tokens=np.zeros(11), gap_tokens=np.full(10, 1e9))
DECODE = MIXED.replace(prefill_tokens=0.0, prefill_square=0.0, prefill_cube=0.0, prefill_edge_tokens=np.zeros(11))


def by_hand(law, r, rate, slots_count, q=0.99, prompt_s=0.0, transfer=0.0, slow_by=1.0, dp=1.0, pp=1.0, waits=0.5):
    """(decoding, busy, wait, TTFT and its mean, TPOT and its mean, E2E), by the formulas in their own order."""
    r = jax.tree.map(np.asarray, r)
    x, prompt, output = rate * slow_by, float(r.prefill_tokens), float(r.output_tokens)
    slots = min(slots_count, 256 * dp)
    n = float(law.occupancy(x, output, slots)[0])
    (t, k), (t_next, _), (t_all, k_all) = (law.times(m) for m in (n, n + math.sqrt(n), slots))
    rho = x * k
    step = t / (1 - rho)
    inertia = np.clip(1 - (t_next / t - 1) * math.sqrt(n), 1e-3, 1)  # 1 - d log t / d log n, over one deviation
    square, cube = (float(r.prefill_square) / prompt**2, float(r.prefill_cube) / prompt**3) if prompt else (1.0, 1.0)

    one = k + t * prompt / 8192
    behind = x * one**2 * square / 2 / (1 - x * one)  # Pollaczek and Khinchine
    behind2 = 2 * behind**2 + x * one**3 * cube / 3 / (1 - x * one)  # Takacs
    behind, behind2 = behind * (1 + rho / 2), behind2 * (1 + rho / 2) ** 2

    service = output * step + t + one
    slow = output * t_all / (1 - x * k_all) + t_all + one if output else t + one
    queued = slow * (1 + float(r.output_scv)) / 2 / (slots - x * slow)
    stiff = min((slots - x * slow) / (slots - x * service), 1)
    slot = float(erlang_c(stiff * slots, stiff * x * service)) * queued
    wait = slot + behind
    chance = min(2 * wait**2 / (2 * slot * queued + behind2 + 2 * slot * behind), 1)

    per_token = (pp * one / prompt if prompt else 0.0) + transfer / slow_by
    fixed = prompt_s + (1 + waits) * step
    own = fixed + step * (LEVELS - 0.5) + per_token * r.prefill_edge_tokens
    answered, variance = behind + 1.5 * step + one, behind2 - behind**2 + one**2 * (square - 1)
    backlog = x * k / (1 - rho) * answered
    stalled = rho * step * r.gap_tokens + backlog
    spread = k * square / (1 - rho) ** 2 * stalled + (x * k / (1 - rho)) ** 2 * variance

    seen = min(n + 1 / inertia, slots)
    crowd = min(seen + 3 * math.sqrt(n / inertia), slots)
    mine, mate = t, 0.0
    if output:
        mine = law.times(seen)[0]
        mate = (law.times(crowd)[0] - mine) / (crowd - seen) if crowd > seen else 0.0
    lives = inertia * r.gap_tokens / (r.gap_tokens @ GAP_WEIGHTS)
    crowding = (r.gap_tokens * mate * (crowd - seen) / 3) ** 2 / (1 + lives / 3)
    tpot = tail_of_stalls(
        q, mine - mate * seen, stalled + mate * seen * r.gap_tokens, spread + crowding, r.gap_tokens, GAP_WEIGHTS
    )
    token = mine / (1 - rho)
    whole = fixed + per_token * prompt + backlog + token * r.output_edge_tokens
    ttft, e2e = (float(tail_of_sum(q, chance, wait, np.asarray(edges), LEVELS)) for edges in (own, whole))
    tpot_mean = token + backlog * float((1 / r.gap_tokens) @ GAP_WEIGHTS)
    decoding = min(x * (output * token + backlog), slots) if output else 0.0
    times = [wait, ttft, wait + fixed + per_token * prompt, float(tpot), tpot_mean, e2e]
    return [decoding, rho] + [slow_by * s for s in times]


CASES = {
    "light": (Law(), MIXED, 1.5, 300.0),
    "few slots": (Law(mate=1e-3), MIXED, 3.0, 30.0),
    "everything": (Law(), MIXED, 5.0, 300.0, 0.9, 0.05, 1e-5, 1.1, 2.0, 3.0, 2.0),
    "two ranks": (Law(mate=1e-5, prompt=0.02), MIXED, 14.0, 900.0, 0.95, 0.0, 0.0, 0.9, 0.125),
    "prefill": (Law(), PREFILL, 12.0, 40.0, 0.99, 0.01),
    "decode": (Law(prompt=1e-3, crowd=0.0), DECODE, 12.0, 200.0, 0.9),
    "one token": (Law(), MIXED.replace(output_tokens=1.0), 3.0, 300.0),
    "one slot": (Law(), MIXED, 0.1, 1.0),
    "steeper than the batch": (Power(1.5), MIXED, 0.2, 200.0),
    "faster in a batch": (Power(-0.5), MIXED, 1.0, 200.0),
    "steeper, and slots for all": (Power(1.5), MIXED, 0.2, 5000.0, 0.99, 0.0, 0.0, 1.0, 20.0),
    "nearly too slow when full": (Law(mate=1e-3), MIXED, 3.465831, 30.0),  # 1/667 of the mean room
    "faster when full": (Law(mate=-5e-5, prompt=0.01), MIXED, 14.0, 30.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_steady_state_of_an_instance(case):
    law, r, rate, slots, *rest = CASES[case]
    q, *others = rest or [0.99]
    found = operate(law, r, rate, slots, SLO(percentile=q), Engine(), *others)
    assert int(found.flags) == 0
    got = [
        found.decode_count,
        found.prefill_busy_frac,
        found.wait_s,
        found.ttft_s,
        found.ttft_mean_s,
        found.tpot_s,
        found.tpot_mean_s,
        found.e2e_s,
    ]
    assert [float(v) for v in got] == pytest.approx(by_hand(law, r, rate, slots, q, *others), rel=1e-9)
    assert float(found.tokens_per_s) == pytest.approx(rate * float(r.output_tokens))
    dp = others[3] if len(others) > 3 else 1.0
    assert float(found.slots_count) == min(slots, 256 * dp)


def test_each_promise_alone_is_missed_and_said():
    kept = operate(Law(), MIXED, 1.5, 300.0)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        at = float(getattr(kept, name))
        flags = [int(operate(Law(), MIXED, 1.5, 300.0, SLO(**{name: s})).flags) for s in (at, 0.999 * at)]
        assert flags == [0, Flag.SLO_MISS]


def test_an_instance_that_cannot_keep_up_takes_for_ever():
    """Two slots for its answers, and prompts of more than a thirtieth of a second at 33 a second."""
    for r, rate, slots in ((MIXED, 5.0, 2.0), (PREFILL, 33.0, 1e6)):
        found = operate(Law(), r, rate, slots)
        assert int(found.flags) == Flag.OVERLOAD
        times = [found.ttft_s, found.ttft_mean_s, found.tpot_s, found.tpot_mean_s, found.e2e_s, found.wait_s]
        assert np.isinf(times).all()
        assert int(operate(Law(), r, rate, slots, SLO(1.0)).flags) == Flag.OVERLOAD | Flag.SLO_MISS


def test_at_its_capacity_to_the_second_it_is_overloaded():
    """Steps of 0.25 s, which 8,192 tokens fill and make as long again: two prompts a second; then one slot."""
    r = PREFILL.replace(prefill_tokens=8192.0, prefill_square=8192.0**2, prefill_cube=8192.0**3)
    for prompt_s, rate, slots in ((0.25, 2.0, 50.0), (0.5, 1.0, 1.0)):
        law = Law(0.25, 0.0, prompt_s, 0.0)
        flags = [int(operate(law, r, x, slots).flags) for x in (rate, 0.999 * rate)]
        assert flags == [Flag.OVERLOAD, 0]


def test_one_request_fits_into_one_slot():
    found = [operate(Law(), MIXED, 0.01, slots) for slots in (0.9, 1.0)]
    assert [(int(f.flags), float(f.slots_count)) for f in found] == [(Flag.NO_FIT, 1.0), (0, 1.0)]


def test_without_arrivals_one_request_would_find_nobody():
    """Its first token after one and a half steps and its prompt's own; its others with nobody but itself."""
    found = operate(Law(), MIXED, 0.0, 300.0)
    assert (float(found.decode_count), float(found.wait_s), int(found.flags)) == (0.0, 0.0, 0)
    assert float(found.ttft_mean_s) == pytest.approx(1.5 * 8e-3 + 0.03 + 8e-3 * 700 / 8192)
    assert float(found.tpot_mean_s) == pytest.approx(8.2e-3)
    assert float(found.ttft_s) == pytest.approx(
        float(
            tail_of_sum(
                0.99,
                0.0,
                0.0,
                8e-3 * (1 + LEVELS) + (0.03 / 700 + 8e-3 / 8192) * np.asarray(MIXED.prefill_edge_tokens),
                LEVELS,
            )
        )
    )


# The tables.


def test_a_table_is_read_along_straight_lines_and_beyond_its_last():
    n = np.array([0.0, 1.0, 4.0, 10.0, 10.0])
    steps = step_table(n, 0.01 + 0.001 * n**2, 0.05 - 0.002 * n, 100.0)
    at = np.array([0.0, 0.5, 3.0, 9.0])
    alone, extra = steps.times(at)
    np.testing.assert_allclose(alone, np.interp(at, n[:4], 0.01 + 0.001 * n[:4] ** 2), rtol=1e-12)
    np.testing.assert_allclose(extra, 0.05 - 0.002 * at, rtol=1e-12)
    beyond, _ = step_table(n[:4], 0.01 + 0.001 * n[:4] ** 2, 0.0 * n[:4], 100.0).times(16.0)
    assert float(beyond) == pytest.approx(0.11 + 6 * (0.11 - 0.026) / 6)
    assert float(steps.times(-1.0)[0]) == pytest.approx(0.01)


def test_a_table_knows_the_arrivals_that_keep_so_many_decoding():
    """n = x (E[O] t_0 + n K): at 4 decoding, 0.01 + 0.004 and 0.05 s, answers of 100: 4/(1.4 + 0.2)."""
    n = np.array([0.0, 4.0, 8.0])
    steps = step_table(n, 0.01 + 0.001 * n, np.full(3, 0.05), 100.0)
    np.testing.assert_allclose(steps.arrival_rps, [0.0, 2.5, 8 / 2.2], rtol=1e-12)
    np.testing.assert_allclose(steps.mean_step_s, [0.01, 0.016, 0.022], rtol=1e-12)
    none = step_table(n, 0.01 + 0.001 * n, np.full(3, 0.05), 0.0)  # a prefill worker
    np.testing.assert_allclose(none.arrival_rps, [0.0, 20.0, 20.0], rtol=1e-12)
    np.testing.assert_allclose(none.mean_step_s, 0.01 + 0.001 * n, rtol=1e-12)


@pytest.mark.parametrize("x", [0.3, 2.0, 3.5])
def test_occupancy_of_linear_steps_from_a_table(x):
    """n = x E[O] W/(1 - x (E[O] H + K)) whatever the rungs."""
    n = np.array([0.0, 4.0, 8.0, 40.0])
    steps = step_table(n, 0.01 + 0.001 * n, np.full(4, 0.05), 100.0)
    found, short = steps.occupancy(x, 100.0, 30.0)
    assert float(found) == pytest.approx(x * 1.0 / (1 - x * 0.15)) and not bool(short)
    few, short = steps.occupancy(x, 100.0, 4.0)
    assert (float(few), bool(short)) == (min(float(found), 4.0), x > 2.5)
    assert not bool(steps.occupancy(x, 0.0, 0.01)[1])  # nothing decodes


def test_arrivals_that_fill_the_slots_to_the_digit_are_not_too_many():
    """One token each, steps of 0.5 s and 0.125 s more with a prompt: 4/(0.5 + 4/8) a second keep four decoding."""
    n = np.array([0.0, 4.0, 8.0])
    steps = step_table(n, np.full(3, 0.5), np.full(3, 0.125), 1.0)
    found = [steps.occupancy(x, 1.0, 4.0) for x in (4.0, 4.01)]
    assert [(float(count), bool(short)) for count, short in found] == [(4.0, False), (4.0, True)]


HEAVY = Roofline(
    Model(32, 8, 128, hidden_size=4096, dense_params=8e9, n_q_heads=32),
    GPU(8e10, 2e12, 3e14),
    Parallel(2.0, 1.0, 1.0),
    MIXED,
    Efficiency(),
)


def test_a_roofline_adds_a_prompt_to_a_step():
    """700 new tokens see 200 in the cache, and of one another the mean square of prompts over twice their mean."""
    place = HEAVY.model, HEAVY.gpu, HEAVY.parallel
    alone, extra = HEAVY.times(20.0)
    expected = float(iteration_s(*place, 20.0, 1000.0, efficiency=HEAVY.efficiency))
    assert float(alone) == pytest.approx(expected)
    seen = 9e5 / 1400 + 200
    mixed = float(iteration_s(*place, 20.0, 1000.0, 700.0, seen - 350, HEAVY.efficiency))
    assert float(extra) == pytest.approx(mixed - expected)


@pytest.mark.parametrize("x", [0.5, 6.0])
def test_occupancy_of_a_roofline_balances_arrivals_and_leavers(x):
    """n (1 - x K(n)) = x E[O] t_0(n), to the last digits."""
    found, short = HEAVY.occupancy(x, 200.0, 5000.0)
    alone, extra = HEAVY.times(found)
    assert float(found * (1 - x * extra)) == pytest.approx(float(x * 200.0 * alone), rel=1e-11) and not bool(short)


def test_occupancy_of_a_roofline_grows_with_arrivals_as_its_balance_says():
    """n (1 - x K) - x E[O] t_0 stays 0: dn/dx is what it loses with x over what it gains with n."""
    n, more = jax.jvp(lambda x: HEAVY.occupancy(x, 200.0, 5000.0)[0], (3.0,), (1.0,))
    (low, below), (alone, extra), (high, above) = (HEAVY.times(n + step) for step in (-1e-3, 0.0, 1e-3))
    gains = 1 - 3.0 * (extra + n * (above - below) / 2e-3) - 3.0 * 200.0 * (high - low) / 2e-3
    assert float(more) == pytest.approx(float((n * extra + 200.0 * alone) / gains), rel=1e-5)


def test_a_roofline_without_a_balance_fills_its_slots():
    """A thousandth more than the balance is enough."""
    n = float(HEAVY.occupancy(3.0, 200.0, 5000.0)[0])
    for x, slots, expected in ((3.0, 0.9 * n, 0.9 * n), (3.0, 1.001 * n, n), (1e3, 77.0, 77.0)):
        found, short = HEAVY.occupancy(x, 200.0, slots)
        assert (float(found), bool(short)) == (pytest.approx(expected), expected != n)
    assert [float(v) for v in HEAVY.occupancy(0.0, 200.0, 50.0)] == [0.0, 0.0]


def test_the_table_of_a_roofline_holds_its_steps():
    """Every count up to 8, then 32 in a geometric row."""
    steps = HEAVY.table(4096.0)
    counts = np.asarray(steps.decode_count)
    assert counts.shape == (40,) and counts[:9].tolist() == list(range(9)) and counts[-1] == pytest.approx(4096.0)
    np.testing.assert_allclose(np.diff(np.log(counts[8:])), math.log(512) / 31, rtol=1e-9)
    alone, extra = HEAVY.times(counts)
    np.testing.assert_allclose(steps.alone_s, alone, rtol=1e-12)
    np.testing.assert_allclose(steps.arrival_rps, counts / (200.0 * alone + counts * extra), rtol=1e-9)
    assert float(HEAVY.table().decode_count[-1]) == pytest.approx(8192.0)
