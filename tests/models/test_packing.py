"""Steps that prompts fill, against an engine that is stepped through, prompt by prompt."""

from bisect import bisect_right
from math import ceil

import numpy as np
import pytest

from dmodels.models.queueing import last_step, packed_frac, packed_steps, partial_fill
from dmodels.models.queueing.packing import LastStep

BARE, BEGUN, FULL = 0.01, 0.03, 0.1  # seconds of a step without prompts, with hardly any, with as many as it holds
DRAWN = {
    "half a budget and more": lambda rng, count: np.full(count, 0.57),
    "nearly one": lambda rng, count: np.full(count, 0.87),
    "more than one": lambda rng, count: np.full(count, 1.7),
    "any number": lambda rng, count: rng.exponential(0.8, count),
}


def engine(arrival_s, budgets, decodes):
    """(mean time to the end of a prompt's last step, mean step): one step after the other."""
    there, done, computed, now, came, left, steps, none = np.cumsum(budgets).tolist(), [], 0.0, 0.0, 0, 0, [], 0
    arrivals = arrival_s.tolist()
    while left < len(arrivals):
        came = bisect_right(arrivals, now, came)
        backlog = (there[came - 1] if came else 0.0) - computed
        if backlog <= 1e-9:  # nothing to compute until the next comes
            bare = max(ceil((arrivals[came] - now) / BARE), 1)
            now, none = (now + bare * BARE, none + bare) if decodes else (arrivals[came], 0)
            continue
        share = min(backlog, 1.0)
        steps.append(BEGUN + (FULL - BEGUN) * share)
        now, computed = now + steps[-1], computed + share
        while left < len(arrivals) and there[left] <= computed + 1e-7:
            done.append(now)
            left += 1
    return float(np.mean(np.array(done) - arrival_s)), (sum(steps) + none * BARE) / (len(steps) + none)


@pytest.mark.parametrize("decodes", [True, False])
@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("prompts", DRAWN)
def test_prompts_wait_as_long_as_in_an_engine(prompts, load, decodes):
    rng = np.random.default_rng(1)
    budgets = DRAWN[prompts](rng, 40_000)
    mean, square = budgets.mean(), np.mean(budgets**2)
    x = load / (mean * FULL)
    arrivals = np.cumsum(rng.exponential(1.0 / x, budgets.size))
    until, step = engine(arrivals, budgets, decodes)
    levels = np.linspace(0.0, 1.0, 1001)
    last = last_step(np.quantile(budgets, levels), levels)
    found = packed_steps(
        x,
        bare_s=BARE,
        begun_s=BEGUN,
        full_s=FULL,
        budgets=mean,
        budgets_square=square,
        last=last,
        step_s=step,
        decoding=float(decodes),
    )
    said = float(found.left_over_s + found.own_s + found.met_s)
    assert said == pytest.approx(until, rel=0.08)  # of 40,000 prompts: some percent themselves
    if decodes:
        fill = partial_fill(x, BARE, BEGUN, FULL, mean, last)
        partial = BEGUN + (FULL - BEGUN) * float(fill.share)
        busy = float(packed_frac(x * step, step, BARE, partial, mean, fill))
        assert BARE + busy * (BEGUN - BARE) + x * mean * step * (FULL - BEGUN) == pytest.approx(step, rel=0.03)


@pytest.mark.parametrize(("answer_s", "slower", "load"), [(10.0, 0.2, 0.93), (10.0, 1.0, 0.9), (100.0, 1.0, 0.95)])
def test_a_backlog_that_outlasts_an_answer_slows_itself_down(answer_s, slower, load):
    """Every answer that is being written makes a step longer, and a backlog ends in more of them than there were."""
    rng = np.random.default_rng(2)
    budgets = rng.exponential(0.8, 300_000)
    mean, longest = budgets.mean(), (1.0 + slower) * FULL
    most = answer_s / (mean * longest)  # answers where every step is full
    x = load * most / answer_s
    came, now, waits, ends, written = np.cumsum(rng.exponential(1.0 / x, budgets.size)), 0.0, [], [], 0
    for arrival, share in zip(came.tolist(), budgets.tolist(), strict=True):
        now = max(now, arrival)
        waits.append(now - arrival)
        while written < len(ends) and ends[written] <= now:
            written += 1
        now += share * FULL * (1.0 + slower * (len(ends) - written) / most)
        ends.append(now + answer_s)
    full_s, levels = FULL * (1.0 + slower * load), np.linspace(0.0, 1.0, 11)
    steps = {"bare_s": 1e-9, "begun_s": 1e-9, "full_s": full_s, "step_s": full_s, "decoding": 0.0}
    given = steps | {"budgets": mean, "budgets_square": np.mean(budgets**2), "last": last_step(levels, levels)}
    said, alone, never = (
        float(packed_steps(x, **given, **further).left_over_s)
        for further in (
            {"lasting_s": longest, "answer_s": answer_s},
            {},
            {"lasting_s": longest, "answer_s": np.inf},
        )
    )
    assert alone < said
    assert said == pytest.approx(np.mean(waits), rel=0.2)
    assert abs(said - np.mean(waits)) < abs(alone - np.mean(waits))
    assert never == pytest.approx(alone)


def test_the_last_step_of_prompts_of_any_length_is_half_full():
    levels = np.linspace(0.0, 1.0, 11)
    gap, square = last_step(np.linspace(0.0, 7.0, 11), levels)
    assert float(gap) == pytest.approx(0.5)
    assert float(square) == pytest.approx(1.0 / 3.0)


def test_whole_budgets_leave_no_room():
    assert float(last_step(np.full(11, 3.0), np.linspace(0.0, 1.0, 11)).gap) == pytest.approx(0.0, abs=1e-4)


def test_as_many_as_an_engine_can_compute_leave_no_step_without():
    fill = partial_fill(12.5, BARE, BEGUN, FULL, 0.8, last_step(np.full(11, 0.8), np.linspace(0.0, 1.0, 11)))
    assert float(packed_frac(1.25, FULL, BARE, 0.08, 0.8, fill)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arrival_rps", "bare_s", "step_s"), [(50.0, 0.01, 0.03), (20.0, 0.01, 0.01), (1.0, 0.01, 0.02)]
)
def test_short_prompts_fill_a_step_by_those_that_came_in_the_step_before(arrival_rps, bare_s, step_s):
    """Runs of steps played one by one: begun by who came in a step without prompts, over when nobody came in one."""
    rng, prompts, steps = np.random.default_rng(0), 0, 0
    for came in rng.poisson(arrival_rps * bare_s, 5000).tolist():
        while came:
            prompts, steps, came = prompts + came, steps + 1, int(rng.poisson(arrival_rps * step_s))
    tiny = 1e-3
    fill = partial_fill(arrival_rps, bare_s, step_s, step_s, tiny, LastStep(1.0 - tiny, (1.0 - tiny) ** 2))
    assert float(fill.share) / tiny == pytest.approx(prompts / steps, rel=0.07)
