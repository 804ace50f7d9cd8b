"""Length distributions: exact moments, classes between thresholds, compression, the bundled tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dmodels.catalog import totals_cdf, workload, workload_names, workload_source
from dmodels.core.errors import InputError
from dmodels.core.lengths import TotalsCdf, iterations_by_total, partial_iterations, partial_moments, probabilities
from dmodels.core.records import stack
from dmodels.core.workload import Workload
from dmodels.models.traffic import between, compress, condition, iterations, quantile, read_trace, split, whole

SMALL = TotalsCdf([7, 40, 100], [0.2, 0.7, 1.0], 0.3, 0.1)


def _workload(seed=0, k=200):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 3000, (2, k)).astype(float)
    return Workload(lengths[0], lengths[1], rng.dirichlet(np.ones(k)), np.floor(lengths[0] / 3))


def test_bucket_moments_are_sums_over_integers():
    total, chance = np.arange(1, 101), probabilities(SMALL)
    for b in (0, 1, 7, 8, 39.5, 40, 99, 100, 1e6):
        inside = chance * (total <= b)
        expected = [inside.sum(), (inside * total).sum(), (inside * total**2).sum()]
        np.testing.assert_allclose([float(x) for x in partial_moments(SMALL, b)], expected, rtol=1e-12, atol=1e-12)


def test_bucket_moments_broadcast_and_compile():
    thresholds = jnp.array([[1.0, 50.0], [100.0, jnp.inf]])
    moments = jax.jit(partial_moments)(SMALL, thresholds)
    assert all(m.shape == (2, 2) for m in moments) and float(moments[0][1, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("cdf", [SMALL, TotalsCdf([64, 3000], [0.5, 1.0], 0.75, 0.1), TotalsCdf([2500], [1.0], 0.1)])
def test_mean_iterations_are_exact(cdf):
    """Against the sum over every (total, output) pair, with P(output) from the error function of the library."""
    from math import erf, sqrt

    chunk = 16
    mean, std, low, high = (
        float(x) for x in (cdf.share_mean_frac, cdf.share_std_frac, cdf.share_low_frac, cdf.share_high_frac)
    )

    def reaches(share):  # P(f >= share)
        if share <= low or share > high:
            return float(share <= low)
        return 0.5 * (1 - erf((share - mean) / std / sqrt(2))) if std else float(share <= mean + 1e-12)

    for total in (1, 2, 5, 30, int(cdf.upper_tokens[-1])):
        tail = [1.0, *(reaches(j / total) for j in range(2, total + 1)), 0.0]  # P(output >= 1, 2, ...)
        chance = -np.diff(tail)
        output = np.arange(1, total + 1)
        expected = np.sum(chance * (np.ceil((total - output) / chunk) + output))
        assert iterations_by_total(cdf, chunk)[total - 1] == pytest.approx(expected, rel=1e-9)


def test_the_papers_mean_iterations():
    """arXiv:2604.09613, Appendix A: about 290 (Azure); rates 3.0, 13.5, 0.37."""
    azure = totals_cdf("azure-paper")
    short, every = partial_iterations(azure, [8192.0, np.inf])
    assert every == pytest.approx(290, abs=1)
    w = whole(workload("azure-paper"))
    assert float(w.iterations_count) == pytest.approx(every, rel=2e-5)
    assert float(split(workload("azure-paper"), 8192.0).short.work_frac) == pytest.approx(short / every, rel=1e-4)


def test_a_support_keeps_the_mean_of_its_cdf():
    for name in ("azure-paper", "lmsys-paper", "lmsys"):
        w, cdf = workload(name), totals_cdf(name)
        assert float(w.mean_total_tokens) == pytest.approx(float(cdf.mean_tokens), rel=1e-12)
        second = float(w.mean(w.total_tokens**2))
        assert second == pytest.approx(float(partial_moments(cdf, np.inf)[2]), rel=1e-3)


def test_classes_are_conditional_sums():
    w = _workload()
    low, high = 500.0, 2500.0
    c = between(w, low, high)
    inside = (w.total_tokens > low) & (w.total_tokens <= high)
    p = w.weight_frac * inside / (w.weight_frac * inside).sum()
    work = iterations(w.prefill_tokens, w.output_tokens)
    expected = {
        "request_frac": (w.weight_frac * inside).sum(),
        "input_tokens": p @ w.input_tokens,
        "work_frac": (w.weight_frac * inside) @ work / (w.weight_frac @ work),
        "iterations_count": p @ work,
        "prefill_square": p @ w.prefill_tokens**2,
        "prefill_output": p @ (w.prefill_tokens * w.output_tokens),
        "iterations_square": p @ work**2,
        "max_total_tokens": w.total_tokens[inside].max(),
    }
    for name, value in expected.items():
        assert float(getattr(c, name)) == pytest.approx(value, rel=1e-12), name


@given(st.integers(0, 50), arrays(float, 6, elements=st.floats(-10, 8000)))
def test_the_two_classes_of_a_threshold_make_the_whole(seed, thresholds):
    w = _workload(seed, 30)
    short, long = split(w, thresholds)
    every = whole(w)
    np.testing.assert_allclose(short.request_frac + long.request_frac, 1.0, rtol=1e-12)
    np.testing.assert_allclose(short.work_frac + long.work_frac, 1.0, rtol=1e-12)
    for name in ("input_tokens", "output_square", "iterations_square"):
        parts = short.request_frac * getattr(short, name) + long.request_frac * getattr(long, name)
        np.testing.assert_allclose(parts, getattr(every, name), rtol=1e-9)
    assert (short.max_total_tokens <= np.maximum(thresholds, 0) + 1e-6).all()


def test_an_empty_class_is_all_zeros():
    short, long = split(_workload(), np.array([0.0, 1e9]))
    assert all(np.asarray(leaf)[0] == 0 for leaf in jax.tree.leaves(short))
    assert all(np.asarray(leaf)[1] == 0 for leaf in jax.tree.leaves(long))


def test_conditioning_gives_the_class_as_a_workload():
    w = _workload().at_rate(10.0)
    sub = condition(w, np.array([-np.inf, 1000.0]), np.array([1000.0, np.inf]))
    short, long = split(w, 1000.0)
    assert sub.weight_frac.shape == (2, 200)
    np.testing.assert_allclose(sub.mean_input_tokens, [short.input_tokens, long.input_tokens], rtol=1e-12)
    np.testing.assert_allclose(sub.rate_rps, [10 * short.request_frac, 10 * long.request_frac], rtol=1e-12)


@given(arrays(float, 12, elements=st.integers(0, 9).map(float)), st.floats(0.01, 1.0))
def test_quantiles_are_those_of_numpy(values, p):
    weight = np.arange(1.0, 13.0) / 78
    assert quantile(values, weight, p) == np.quantile(values, p, method="inverted_cdf", weights=weight)


def test_compression_keeps_means_maximum_and_nearly_the_rest():
    w = _workload(3, 5000)
    small = compress(w)
    a, b = whole(w), whole(small)
    assert len(small.weight_frac) < 1500
    for name in ("input_tokens", "output_tokens", "prefill_tokens", "max_total_tokens"):
        assert float(getattr(b, name)) == pytest.approx(float(getattr(a, name)), rel=1e-11)
    for name in ("input_square", "output_square", "prefill_output"):
        assert float(getattr(b, name)) == pytest.approx(float(getattr(a, name)), rel=0.02)
    a, b = (float(quantile(x.input_tokens, x.weight_frac, 0.9)) for x in (w, small))
    assert b == pytest.approx(a, rel=0.02)


def test_bundled_tables_have_the_means_of_the_raw_traces(shared_data):
    for name, file in (
        ("azure-conv", "azure_2023_conv.csv"),
        ("azure-code", "azure_2023_code.csv"),
        ("mooncake", "mooncake_conversation.jsonl"),
    ):
        raw, table = Workload.from_trace(read_trace(shared_data / file)), workload(name)
        for field in ("mean_input_tokens", "mean_output_tokens", "rate_rps", "arrival_cv"):
            assert float(getattr(table, field)) == pytest.approx(float(getattr(raw, field)), rel=1e-8)
        assert float(whole(table).max_total_tokens) == pytest.approx(float(whole(raw).max_total_tokens), rel=1e-8)


def test_the_catalogue_names_its_sources():
    assert {"azure-conv", "azure-code", "mooncake", "lmsys", "azure-paper", "lmsys-paper"} <= set(workload_names())
    assert "CC-BY" in workload_source("azure_conv") and workload("Azure_Conv").shape == workload("azure-conv").shape
    with pytest.raises(InputError, match="'azure' is unknown; the nearest are azure-co"):
        workload("azure")


def test_mooncakes_prefix_hits_are_separate():
    assert float(workload("mooncake").prefix_hit_frac) == 0
    assert float(workload("mooncake", prefix_hits=True).prefix_hit_frac) == pytest.approx(0.3736, abs=1e-4)


def test_workloads_stack_index_and_map():
    both = stack(Workload.fixed(1000, 200), Workload([10.0], [5.0], [1.0], 4.0, 3.0))
    assert both.prefill_tokens.shape == (2, 1) and both[1].prefill_tokens.tolist() == [6.0]
    assert jax.vmap(lambda w: w.prefix_hit_frac)(both).tolist() == [0.0, 0.4]


def test_rate_changes_and_lengths_do_not():
    w = Workload.fixed(1000, 200, 5.0)
    assert float(w.at_rate(50.0).rate_rps) == 50 and float(w.at_rate(50.0).mean_total_tokens) == 1200
    with pytest.raises(InputError, match="rate_rps = -1"):
        w.at_rate(-1.0)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Workload([1.0], [1.0], [0.5]), "sums to"),
        (lambda: Workload([1.0, 2.0], [1.0], [1.0]), "shapes"),
        (lambda: Workload([-1.0], [1.0], [1.0]), "input_tokens = -1"),
        (lambda: Workload([float("nan")], [1.0], [1.0]), "input_tokens = nan"),
        (lambda: Workload([1.0], [1.0], [1.0], [2.0]), "cached_tokens exceed"),
        (lambda: TotalsCdf([5, 5], [0.5, 1.0], 0.1), "increasing whole numbers"),
        (lambda: TotalsCdf([5, 9], [0.5, 0.9], 0.1), "end at 1"),
        (lambda: TotalsCdf([5, 9], [0.5, 1.0], 1.5), "shares between 0 and 1"),
        (lambda: Workload.from_trace("x.csv"), "accepted is a Trace"),
        (lambda: split(_workload(), float("nan")), "holds NaN"),
    ],
)
def test_mistakes_are_one_line(build, says):
    with pytest.raises(InputError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)


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


def test_squares_of_two_requests():
    """Means of 100^2 and 300^2, and of 10^2 and 20^2."""
    both = whole(TWO)
    assert (float(both.input_square), float(both.output_square)) == (5e4, 250.0)


def test_a_hundred_classes_at_once_are_the_same_as_one():
    many = between(TWO, np.zeros(100), np.full(100, 200.0))
    assert many.output_tokens.tolist() == [10.0] * 100


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
