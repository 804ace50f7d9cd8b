"""The model's context: what it keeps out of a plan, and that the plan's commands start."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import SLO, catalog
from dmodels.core.workload import Workload
from dmodels.studies.plan import by_formula, command, question, sensitivity
from dmodels.studies.plan.admitted import admitted
from dmodels.studies.plan.rescale import with_lengths

CHAT = catalog.workload("azure-conv", 20.0)
lengths = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), min_size=1, max_size=12)


def asked(context_tokens, workload=CHAT, thresholds=(1024.0, 2048.0)):
    """Llama 3.1 70B as if its config stated another context."""
    found = question(
        "llama-3.1-70b", ["h100", "h200"], workload, SLO(2.0, 0.08), tp=(2, 4, 8), thresholds_tokens=thresholds
    )
    return replace(found, model=found.model.replace(max_context_tokens=float(context_tokens)))


def alike(prompt):
    """Requests of one prompt length and two answer lengths."""
    outputs = np.where(np.arange(CHAT.output_tokens.size) % 2, 50.0, 60.0)
    return CHAT.replace(input_tokens=0.0 * outputs + prompt, output_tokens=outputs)


@given(lengths, st.integers(1, 6000))
def test_what_is_taken_fits_and_nothing_is_lost(requests, limit):
    inputs, outputs = np.array(requests, float).T
    share = np.full(len(inputs), 1.0 / len(inputs))
    found = admitted(Workload(inputs, outputs, share, rate_rps=7.0), float(limit))
    assert found.longest_tokens == (inputs + outputs).max()
    assert found.refused_frac == pytest.approx(np.mean((inputs >= limit) & (inputs + outputs > limit)))
    assert found.refused_frac + found.cut_frac == pytest.approx(np.mean(inputs + outputs > limit))
    if found.none:
        return
    taken = found.workload
    assert (taken.total_tokens <= limit).all() and (taken.output_tokens >= 1).all()
    assert found.rate_rps == pytest.approx(7.0 * (1.0 - found.refused_frac))
    assert taken.input_tokens.tolist() == [x for x, y in requests if x < limit or x + y <= limit]  # never cut


def test_a_context_that_all_fit_changes_nothing():
    longest = float(CHAT.total_tokens.max())
    free, wide = by_formula(asked(0)), by_formula(asked(longest))
    assert wide.priced.admitted.refused_frac == wide.priced.admitted.cut_frac == 0.0
    assert wide.best.decomposition() == free.best.decomposition()
    assert all(p.max_model_len_tokens == longest for p in wide.best.pools if not np.isfinite(p.stage.high_tokens))


@pytest.fixture(scope="module")
def short():
    return by_formula(asked(3000))


def test_every_command_starts(short):
    """vLLM refuses a --max-model-len beyond the config's context."""
    for deployment in (*short.kinds, *short.by_gpu):
        for pool in deployment.pools:
            told = re.search(r"--max-model-len (\d+)", command(pool, short.question))[1]
            assert pool.longest_tokens <= int(told) <= 3000


def test_the_plan_is_that_of_the_requests_taken(short):
    """The same traffic, made by hand: long prompts left out, long answers cut, at the rate that is left."""
    kept = CHAT.input_tokens < 3000
    inputs, outputs = CHAT.input_tokens[kept], CHAT.output_tokens[kept]
    weight = CHAT.weight_frac[kept]
    by_hand = Workload(
        inputs, np.minimum(outputs, 3000 - inputs), weight / weight.sum(), 0.0, 20.0 * weight.sum(), CHAT.arrival_cv
    )
    other = by_formula(asked(0, by_hand))
    assert short.priced.rate_rps == pytest.approx(float(by_hand.rate_rps))
    assert short.best.decomposition() == other.best.decomposition()
    assert short.best.ttft_s == pytest.approx(other.best.ttft_s, rel=1e-6)


def test_where_no_prompt_fits_nothing_is_planned_and_the_reason_is_the_context():
    none = by_formula(asked(500, alike(600.0), (652.0, 655.0)))
    assert none.best is None and {r.binding for r in none.rejections} == {"the model's context"}
    assert none.rejections[0].have == "500 tokens" and "600" in none.rejections[0].need


def test_longer_prompts_may_be_refused_altogether():
    found = {(c.what, c.factor): c for c in sensitivity(by_formula(asked(700, alike(600.0), (652.0, 655.0))))}
    assert found["input length", 1.2].usd_per_hour == np.inf and found["input length", 1.2].refused_frac == 1.0
    assert found["input length", 0.8].refused_frac == 0.0 and np.isfinite(found["input length", 0.8].usd_per_hour)


def test_where_all_that_still_fit_are_alike_no_threshold_is_asked_about():
    few = Workload(np.array([600.0, 100.0]), np.array([50.0, 50.0]), np.array([0.5, 0.5]), rate_rps=5.0)
    before = asked(700, few, (200.0,))
    assert with_lengths(before, 0.8).thresholds_tokens and with_lengths(before, 1.2).thresholds_tokens == ()
