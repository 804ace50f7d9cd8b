"""The best split against all splits, counted in plain Python, where bounds are met to the digit and where watts tie."""

from __future__ import annotations

import itertools
import math

import pytest

from dmodels.core.errors import InputError
from dmodels.core.flags import Flag
from dmodels.core.hardware import SLO
from dmodels.models.energy import Power
from dmodels.models.energy_split import Load, best_split, split_metrics

pytestmark = pytest.mark.usefixtures("op_by_op")

#: Two prompts a second of 0.25 s, answered by one token each in steps of (1 + n)/4 s: all numbers of few binary digits.
EVEN = Load(2.0, 0.25, 1.0, 1.0, 0.25, 0.25, decode_compute_frac=0.0)
POWERS = (Power(40.0, 100.0), Power(20.0, 50.0))


def by_hand(load, count, clock, powers):
    """((mean TTFT, watts) of `count` prefill workers, (TPOT, watts) of decode workers): M/G/1, n = x (W + H n)."""
    busy = load.rate_rps * load.prefill_s / (count * clock)
    wait = busy * (1 + load.prefill_scv) / 2 / (1 - busy) if busy < 1 else math.inf
    ttft = load.prefill_s / clock * (1 + wait)
    slow = 1 + load.decode_compute_frac * (1 / clock - 1)
    tokens_per_s = load.rate_rps * load.output_tokens / count
    left = 1 / tokens_per_s - load.per_sequence_s * slow  # 1/x - H, in seconds: n = W/left
    batch = load.base_s * slow / left if left > 0 else math.inf
    tpot = batch / tokens_per_s if batch <= load.slots_count else math.inf
    watts = [
        count * (p.idle_w + (p.active_w - p.idle_w) * clock**p.clock_exponent * min(u, 1.0))
        for p, u in zip(powers, (busy, batch), strict=True)
    ]
    return (ttft, watts[0]), (tpot, watts[1])


def best_of_all(load, powers, slo, counts, clocks):
    """(watts, prefill workers, decode workers, their clocks) of the best, all tried in turn."""
    found = []
    for (p, d), f, g in itertools.product(counts, clocks, clocks):
        (ttft, prefill_w), (tpot, decode_w) = by_hand(load, p, f, powers)[0], by_hand(load, d, g, powers)[1]
        if math.isfinite(ttft + tpot) and ttft <= slo.ttft_s and tpot <= slo.tpot_s:
            found.append((prefill_w + decode_w, p, d, f, g))
    return min(found, default=None)


HEAVY = Load(7.0, 0.3, 0.4, 90.0, 0.02, 0.0011, slots_count=40.0, decode_compute_frac=0.3)


@pytest.mark.parametrize(("most", "workers"), [(5, None), (5, 4), (5, 5), (8, None), (8, 6), (8, 8)])
@pytest.mark.parametrize("promised", [(), (0.9, 0.05), (0.55, 0.2), (5.0, 0.03)])
def test_the_best_of_all_splits(promised, most, workers):
    """Prefill draws most; slower clocks let more workers win; a promise of nothing still asks for a steady state."""
    slo = SLO(*promised)
    clocks = (1.0, 0.7, 0.45)
    powers = Power(30.0, 200.0), Power(15.0, 90.0, 2.0)
    counts = [
        (p, d)
        for p, d in itertools.product(range(1, most), repeat=2)
        if (p + d <= most if workers is None else p + d == workers)
    ]
    expected = best_of_all(HEAVY, powers, slo, counts, clocks)
    found = best_split(HEAVY, powers, slo, most, clocks, workers)
    if expected is None:
        assert found.flags == Flag.INFEASIBLE and not found.value
        return
    assert found.flags == 0
    value = found.value
    got = [value[name] for name in ("prefill_gpus", "decode_gpus", "prefill_clock_frac", "decode_clock_frac")]
    assert (value["watts_w"], *got) == pytest.approx(expected, rel=1e-12)
    for name, phase, count, clock in (("prefill_w", 0, *got[::2]), ("decode_w", 1, *got[1::2])):
        assert found.certificate[name][count] == pytest.approx(by_hand(HEAVY, count, clock, powers)[phase][1])


def test_promises_kept_to_the_digit_by_every_gpu_there_is():
    """Half busy, a prompt of 0.25 s waits as long; one sequence at a time, steps of half a second."""
    best = lambda slo, most=2: best_split(EVEN, POWERS, slo, most, (1.0,))
    found = best(SLO(0.5, 0.5))
    assert found.flags == 0 and (found.value["prefill_gpus"], found.value["decode_gpus"]) == (1, 1)
    assert found.certificate["prefill_w"][1] == 40 + 60 / 2 and found.certificate["decode_w"][1] == 50
    for slo in (SLO(0.499, 0.5), SLO(0.5, 0.499)):
        assert best(slo).flags == Flag.INFEASIBLE and best(slo, 3).flags == 0


def test_at_capacity_to_the_digit_no_steps_are_steady():
    """Four tokens a second, each of which makes steps a quarter of a second longer; and four prompts of 0.25 s."""
    full = split_metrics(EVEN._replace(rate_rps=4.0), 1, 1, 1.0, 1.0, POWERS)
    assert math.isinf(full["tpot_s"]) and math.isinf(full["ttft_s"])
    assert best_split(EVEN._replace(rate_rps=4.0), POWERS, SLO(), 2, (1.0,)).flags == Flag.INFEASIBLE


def test_of_clocks_that_draw_the_same_the_first_is_taken():
    """GPUs that draw no more when busy."""
    flat = Power(40.0, 40.0), Power(20.0, 20.0)
    for clocks in ((0.75, 1.0), (1.0, 0.75)):
        value = best_split(EVEN, flat, SLO(), 2, clocks).value
        assert (value["prefill_clock_frac"], value["decode_clock_frac"], value["watts_w"]) == (clocks[0],) * 2 + (60.0,)


def test_more_workers_than_gpus_are_refused():
    with pytest.raises(InputError, match=r"workers 9.*at most most_gpus = 8"):
        best_split(EVEN, POWERS, SLO(), 8, workers=9)
