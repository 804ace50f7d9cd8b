"""The fewest instances that replays leave, and the margin for other days: by trying every number, with replays that are
known beforehand."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace as Record

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.studies.plan import ensure

counts = st.integers(1, 30)


class Known:
    """Verdicts of a trial whose pools take so many instances each on a day; of a split, prefill workers that answer,
    and decoders, of which each prefill worker beyond the fewest spares some."""

    def __init__(self, trial, day):
        self.trial, self.need, self.own = trial, day, range(len(day))

    def keeps(self, k, instances):
        if self.trial.fleet.in_turn:
            return self.holds(instances)
        return instances[k] >= self.need[k]

    def holds(self, instances):
        if self.trial.fleet.in_turn:
            first, second = self.need
            spared = max(instances[0] - first, 0) // 2
            return instances[0] >= first and instances[1] >= max(second - spared, 1)
        return all(n >= need for n, need in zip(instances, self.need, strict=True))

    def possible(self, k):
        return True

    def answers(self, workers):
        return workers >= self.need[0]


class Asked(Known):
    """Known verdicts of which nobody asks for ever."""

    def __init__(self, trial, day):
        super().__init__(trial, day)
        self.left = 5000

    def holds(self, instances):
        self.left -= 1
        assert self.left > 0, "it goes on and on"
        return super().holds(instances)

    def keeps(self, k, instances):
        self.left -= 1
        assert self.left > 0, "it goes on and on"
        return super().keeps(k, instances)


@pytest.fixture(autouse=True)
def known_verdicts(monkeypatch):
    monkeypatch.setattr(ensure, "Verdict", Asked)


def trial(guess, most, prices, in_turn, least=None):
    size = len(guess)
    return ensure.Trial(
        Record(in_turn=in_turn),
        None,
        tuple(guess),
        least or (1,) * size,
        tuple(most),
        prices,
        (2,) * size,
        ("g",) * size,
        1.0,
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(counts, counts, st.integers(1, 60), st.integers(1, 5)), min_size=1, max_size=2),
    st.booleans(),
    st.integers(1, 200),
)
def test_pools_of_their_own_take_the_fewest_of_each(pools, bounded, money):
    need, guess, most, prices = zip(*pools, strict=True)
    budget = float(money) if bounded else math.inf
    found = ensure.fewest(trial(guess, most, tuple(map(float, prices)), in_turn=False), need, budget)
    cost = sum(n * price for n, price in zip(need, prices, strict=True))
    fits = all(n <= top for n, top in zip(need, most, strict=True)) and cost <= budget
    assert found == (need if fits else None)


@settings(max_examples=60)
@given(
    counts,
    counts,
    counts,
    counts,
    st.integers(1, 40),
    st.integers(1, 60),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_a_split_is_the_cheapest_of_all_pairs(first, second, guess, other, most_first, most_second, prices):
    """Of those that lie in reach: four times what the closed forms say of decoders."""
    asked = trial((guess, other), (most_first, most_second), tuple(map(float, prices)), in_turn=True)
    found = ensure.fewest(asked, (first, second))
    reach = min(most_second, 4 * other)
    known = Known(asked, (first, second))
    pairs = [p for p in itertools.product(range(1, most_first + 1), range(1, reach + 1)) if known.holds(p)]
    begin = next((n for n in range(1, most_first + 1) if known.holds((n, reach))), None)
    if not pairs:
        assert found is None
        return
    assert known.holds(found)
    step = max(1, begin // 16)  # of larger fleets not every number of prefill workers is tried
    tried = [p for p in pairs if (p[0] - begin) % step == 0]
    assert asked.cost(found) == min(map(asked.cost, tried))


def test_no_more_is_spent_than_there_is_and_never_what_was_spent_before():
    asked = trial((4, 4), (50, 50), (3.0, 2.0), in_turn=True)
    free = ensure.fewest(asked, (5, 9))
    cost = asked.cost(free)
    assert ensure.fewest(asked, (5, 9), cost) == free and ensure.fewest(asked, (5, 9), cost - 0.01) is None


@pytest.mark.parametrize("in_turn", [False, True])
def test_what_costs_as_much_is_not_kept_out_by_rounding(in_turn):
    """3 x 2.79 is a little over 8.37 in floating point, and 0.1 + 0.2 over 0.3, also where no fewer keep up."""
    size = 1 + in_turn
    for least in (1, 3):
        alike = trial((3,) * size, (9,) * size, (2.79,) * size, in_turn, least=(least,) * size)
        assert ensure.fewest(alike, (3,) * size, 8.37 * size) == (3,) * size
        assert ensure.fewest(alike, (3,) * size, 8.36 * size) is None
    ones = trial((1, 1), (9, 9), (0.1, 0.2), in_turn)
    assert ensure.fewest(ones, (1, 1), 0.3) == (1, 1) and ensure.fewest(ones, (1, 1), 0.29) is None


@pytest.mark.parametrize("money", [0.0, 5.0, 20.0, math.inf])
def test_what_costs_nothing_is_limited_by_nothing(money):
    assert ensure.fewest(trial((3, 3), (9, 9), (0.0, 0.0), in_turn=False), (7, 2), money) == (7, 2)
    free_decoders = trial((5, 9), (50, 50), (2.0, 0.0), in_turn=True)
    assert ensure.fewest(free_decoders, (5, 9), money) == (None if money < 10 else ensure.fewest(free_decoders, (5, 9)))


def test_what_costs_too_much_to_keep_up_is_not_played(monkeypatch):
    monkeypatch.setattr(ensure, "Verdict", None)
    assert ensure.fewest(trial((9, 9), (50, 50), (2.0, 3.0), in_turn=True, least=(2, 3)), (1, 1), 12.9) is None


def test_of_a_split_decoders_are_saved_down_to_the_fewest_that_keep_up():
    """Two prefill workers more spare one decoder, which costs five times as much: 1 + 3 at 16 USD/h, 3 + 2 at 13, and
    5 + 1 at 10."""
    assert ensure.fewest(trial((1, 3), (9, 9), (1.0, 5.0), in_turn=True), (1, 3)) == (5, 1)
    assert ensure.fewest(trial((5, 5), (5, 9), (1.0, 1.0), in_turn=True), (5, 1)) == (5, 1)
    for pools in ((9, 2), (2, 9)):  # fewer than what keeps up for ever are none
        assert ensure.fewest(trial((3, 3), pools, (1.0, 1.0), in_turn=True, least=(3, 3)), (1, 1)) is None
        assert ensure.fewest(trial((3, 3), pools, (1.0, 1.0), in_turn=False, least=(3, 3)), (1, 1)) is None


@pytest.mark.parametrize(("guess", "first"), [(5, 5), (14, 14), (15, 14), (500, 14)])
def test_a_search_begins_where_a_pool_may_be_twice_as_large_as_keeps_up_and_eight_more(guess, first, monkeypatch):
    tried = []

    class Noted(Asked):
        def keeps(self, k, instances):
            tried.append(instances[k])
            return super().keeps(k, instances)

    monkeypatch.setattr(ensure, "Verdict", Noted)
    assert ensure.fewest(trial((guess,), (900,), (1.0,), in_turn=False, least=(3,)), (7,)) == (7,)
    assert tried[0] == first


@pytest.mark.parametrize("first, second", [(64, 40), (100, 7), (33, 90)])
def test_of_a_large_split_prefill_workers_are_tried_a_sixteenth_apart(first, second):
    """So that it costs at most a sixteenth of them more than the cheapest pair, which has all that spare a decoder."""
    asked = trial((first, second), (400, 400), (1.0, 5.0), in_turn=True)
    found, known = ensure.fewest(asked, (first, second)), Known(asked, (first, second))
    best = min(asked.cost(p) for p in itertools.product(range(first, 400), range(1, second + 1)) if known.holds(p))
    assert known.holds(found) and best <= asked.cost(found) <= best + first / 16 + 1


days = st.lists(st.lists(counts, min_size=2, max_size=2), min_size=1, max_size=5)


def test_the_smallest_number_is_between_the_ends_and_is_looked_for_near_the_guess():
    """And is that of trying all of them; no further away than twice as far as it is, and a step."""
    for need, guess, least, most in itertools.product((0, 1, 5, 18, 40, 90), (1, 7, 33, 80), (1, 6, 20), (4, 30, 95)):
        tried = []

        def holds(n, need=need, tried=tried):
            assert len(tried) < 200, "it goes on and on"
            tried.append(n)
            return n >= need

        found = ensure.smallest(holds, guess, least, most)
        asked = f"{need} are needed; {guess} guessed, from {least} to {most}"
        assert found == next((n for n in range(least, max(least, most) + 1) if n >= need), None), asked
        assert all(least <= n <= max(least, most) for n in tried), asked
        first = tried[0]
        if found is not None:
            assert max(abs(n - first) for n in tried) <= 2 * abs(found - first) + max(1, first // 16), asked


@settings(max_examples=80)
@given(st.tuples(counts, counts), days, st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_the_margin_is_the_least_that_holds_on_other_days(fewest, others, room):
    """Of each pool the first of the margins with which it holds on all days so far, or the greatest; on how many days
    that held is counted."""
    margins = ensure.MARGINS
    most = tuple(max(n, top) for n, top in zip(fewest, room, strict=True))
    asked = trial(fewest, most, (1.0, 1.0), in_turn=False)
    found = ensure.with_margin(asked, fewest, fewest, others)

    def sizes(n, top):
        greatest = math.floor(n * (1 + margins[-1]) + 1e-9)
        return [max(n, min(math.floor(n * (1 + m) + 0.5), greatest, top)) for m in margins]

    choices, held = [sizes(*pair) for pair in zip(fewest, most, strict=True)], 0
    level = [0, 0]
    for day in others:
        kept = True
        for k in (0, 1):
            while choices[k][level[k]] < day[k] and level[k] < len(margins) - 1:
                level[k] += 1
            kept &= choices[k][level[k]] >= day[k]
        held += kept
    assert found.instances == tuple(choices[k][level[k]] for k in (0, 1))
    assert (found.held_count, found.days_count) == (held, len(others))


@given(counts, st.integers(-1, 2), st.integers(1, 99))
def test_a_margin_is_never_less_than_nothing_nor_more_than_there_is(n, level, most):
    margins = ensure.MARGINS
    found = ensure._more(n, level, most)
    assert found >= n and (found == n or found <= most) and found <= n * (1 + margins[-1]) + 1e-9
    if level < 0 or most <= n:
        assert found == n
    elif most >= 2 * n:
        assert abs(found - n * (1 + margins[level])) <= 0.5 or found == math.floor(n * (1 + margins[-1]))


def test_other_days_are_halves_quarters_and_resamples_no_shorter_than_a_life():
    """Of a recording of 100 s: requests that last 30 s leave its halves, those of 20 s its quarters, too."""
    made = []

    class Days:
        size, period_s = 100, 100.0
        part = lambda self, low, high: made.append(("part", low, high)) or "part"
        resampled = lambda self, seed, blocks: made.append(("resample", seed, blocks)) or "resample"

    for life, parts in ((60.0, 0), (50.0, 2), (30.0, 2), (25.0, 6), (1.0, 6)):
        made.clear()
        found = list(ensure.other_days(Days(), life))
        assert found == ["part"] * parts + ["resample"] * 4
        pieces = [(low, high) for what, low, high in made if what == "part"]
        assert pieces == [(0, 0.5), (0.5, 1)][:parts] + [(k / 4, (k + 1) / 4) for k in range(4)] * (parts == 6)
        assert len({seed for what, seed, _ in made if what == "resample"}) == 4
    Days.size = 7  # too few to be parted
    assert list(ensure.other_days(Days(), 1.0)) == ["resample"] * 4
