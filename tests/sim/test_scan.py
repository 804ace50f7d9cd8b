"""The batched scan gives, lane by lane, what one compiled instance gives."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim import batching
from dmodels.sim.batching import scan
from dmodels.sim.requests import Prefill


@pytest.mark.parametrize("prefill", list(Prefill), ids=lambda p: p.name)
def test_lanes_agree_with_single_instances(prefill):
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1 / np.array([[2.0], [9.0], [30.0]]), (3, 300)), axis=1)
    prompt, output = rng.integers(1, 2500, (3, 300)), rng.integers(1, 60, (3, 300))
    slots = np.array([1, 4, 6])
    law = np.cumsum(rng.uniform(1e-3, 9e-3, (3, 7)), axis=1)
    law[1], arrival[1] = 0.01, np.round(arrival[1], 2)  # most come at the end of an iteration
    law[:, 0] = np.nan  # nobody asks how long an iteration of nobody takes
    emits = prefill == Prefill.SHARED
    many = scan.simulate(arrival, prompt, output, law, slots, prefill=prefill, emits=emits, cached_tokens=prompt // 2)
    for b in range(3):
        one = batching.simulate(
            arrival[b],
            prompt[b],
            output[b],
            law[b, : slots[b] + 1],
            slots[b],
            prefill=prefill,
            emits=emits,
            cached_tokens=prompt[b] // 2,
        )
        for name in ("admitted_s", "first_token_s", "end_s"):
            np.testing.assert_allclose(getattr(many, name)[b], getattr(one, name), rtol=0, atol=1e-9, err_msg=name)


def test_it_runs_in_float64_whatever_the_caller_configured():
    with jax.enable_x64(False):
        served = scan.simulate([[0.0, 1e6]], 513, 10, StepLaw(8e-3, 1e-3), 4)  # two chunks of 512, nothing cached
    np.testing.assert_allclose(served.e2e_s, 12 * 9e-3, rtol=1e-6)  # float32 would lose 0.06 s at 10^6 s
    assert served.tpot_s.shape == (1, 2)


def test_the_least_that_is_accepted():
    """One slot, chunks of a token, prompts of a token that is cached or not, and answers of one, all at once."""
    served = scan.simulate([[0.0, 0.0]], 1, 1, np.array([9.0, 0.5]), 1, chunk_tokens=1, cached_tokens=[[0, 1]])
    assert served.end_s.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"arrival_s": [0.0]}, r"arrival_s: shape \(1,\)"),
        ({"arrival_s": [[0.0, 1.0], [1.0, 0.0]]}, r"arrival_s: shape \(2, 2\)"),
        ({"arrival_s": [[0.0, np.inf]]}, "finite and in order"),
        ({"slots": 0}, "slots = 0, chunk_tokens = 512"),
        ({"arrival_s": [[0.0], [0.0]], "slots": [2, 0]}, "slots = 0"),
        ({"chunk_tokens": 0}, "slots = 2, chunk_tokens = 0"),
        ({"law": np.ones((2, 3))}, r"law: \(2, 3\) times; accepted: positive times \(1, 3\)"),
        ({"law": np.array([[1.0, 1.0, 0.0]])}, "law: .* positive times"),
        ({"law": np.array([[1.0, 0.0, 1.0]])}, "law: .* positive times"),
        ({"law": np.array([[1.0, 1.0, np.inf]])}, "law: .* positive times"),
        ({"input_tokens": [[1, 0]]}, "input_tokens"),
        ({"output_tokens": [[1, 0]]}, "output_tokens"),
        ({"cached_tokens": [[0, -1]]}, "cached_tokens"),
        ({"cached_tokens": [[0, 11]]}, "cached_tokens within the input"),
    ],
)
def test_bad_input_is_named(change, why):
    good = {"arrival_s": [[0.0, 1.0]], "input_tokens": 10, "output_tokens": 5, "law": [0.1, 0.1], "slots": 2}
    with pytest.raises(InputError, match=why):
        scan.simulate(**(good | change))
