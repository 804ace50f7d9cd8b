"""Classes and small tables of length distributions of a few atoms, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.workload import Workload
from dmodels.models.traffic import between, compress, condition, split, whole

pytestmark = pytest.mark.usefixtures("op_by_op")

TEN = Workload(np.arange(1.0, 11.0), np.ones(10), np.full(10, 0.1))


def test_a_slot_holds_the_prompt_at_once_and_half_the_answer_on_average():
    """10 tokens of prompt for 1 + 4 iterations, 4 of answer for half of 4: 58 token-iterations over 5."""
    one = whole(Workload([10.0], [4.0], [1.0]))
    assert float(one.held_tokens) == pytest.approx(58 / 5) and float(one.iterations_count) == 5.0


def test_shares_of_tenths_sum_to_one_exactly():
    assert float(whole(TEN).request_frac) == 1.0 == float(whole(TEN).work_frac)


def test_a_request_of_nothing_is_all_the_work_there_is():
    assert float(whole(Workload([0.0], [0.0], [1.0])).work_frac) == 1.0


def test_a_total_that_carries_rounding_is_within_its_threshold():
    load = Workload([3.0 * (1 + 1e-13), 5.0], [1.0, 1.0], [0.5, 0.5])
    short, long = split(load, 4.0)
    assert (float(short.request_frac), float(long.request_frac)) == (0.5, 0.5)
    assert float(between(load, 4.0, 6.0).input_tokens) == 5.0


def test_one_class_and_a_batch_of_classes_as_workloads_of_their_own():
    lower = condition(TEN, 0.0, 6.0)
    assert lower.weight_frac.tolist() == pytest.approx([0.2] * 5 + [0.0] * 5)
    both = condition(TEN.replace(rate_rps=10.0), [0.0, 20.0], [6.0, 30.0])
    assert both.rate_rps.tolist() == pytest.approx([5.0, 0.0]) and both.weight_frac[1].tolist() == [0.1] * 10


def test_four_cells_and_the_last_halved_down_to_the_longest():
    """Totals 2, 3, ..., 9: two each, and of the last pair each alone."""
    eight = Workload(np.arange(1.0, 9.0), np.ones(8), np.full(8, 1 / 8))
    small = compress(eight, totals_count=4, outputs_count=1)
    np.testing.assert_allclose(small.weight_frac, [0.25, 0.25, 0.25, 0.125, 0.125])
    np.testing.assert_allclose(small.input_tokens, [1.5, 3.5, 5.5, 7.0, 8.0])


TWO = Workload([100.0, 300.0], [10.0, 20.0], [0.5, 0.5])


def test_squares_and_medians_of_two_requests():
    """Means of 100^2 and 300^2, and of 10^2 and 20^2; half of all are reached at the smaller."""
    both = whole(TWO)
    assert (float(both.input_square), float(both.output_square)) == (5e4, 250.0)
    assert (float(both.output_p50_tokens), float(both.input_p50_tokens)) == (10.0, 100.0)


def test_a_hundred_classes_at_once_are_the_same_as_one():
    many = between(TWO, np.zeros(100), np.full(100, 200.0))
    assert many.output_p50_tokens.tolist() == [10.0] * 100


def test_a_request_of_nothing_is_none_of_the_work_of_another():
    with_nothing = Workload([0.0, 1.0], [0.0, 0.0], [0.5, 0.5])
    assert float(between(with_nothing, 0.5, 9.0).work_frac) == 1.0


def test_what_never_comes_is_not_the_longest():
    never = Workload([1.0, 5.0], [1.0, 1.0], [1.0, 0.0])
    assert float(whole(never).max_total_tokens) == 2.0
    assert compress(never).input_tokens.tolist() == [1.0]


def test_answers_of_one_total_are_halved_three_times():
    """16 requests of 17 tokens: the shorter half of the answers, a quarter, an eighth, and the longest eighth."""
    answers = np.arange(1.0, 17.0)
    small = compress(Workload(17.0 - answers, answers, np.full(16, 1 / 16)), totals_count=1, outputs_count=1)
    np.testing.assert_allclose(small.weight_frac, [0.5, 0.25, 0.125, 0.125])
    np.testing.assert_allclose(small.output_tokens, [4.5, 10.5, 13.5, 15.5])
