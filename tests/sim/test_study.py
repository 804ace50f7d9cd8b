"""Long studies: the same answers as in one piece, resumable to the bit, in bounded memory."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from dmodels.core.errors import InputError
from dmodels.core.workload import Workload
from dmodels.models.latency import StepLaw
from dmodels.sim import batching, lengths, study
from dmodels.sim.requests import Prefill

LAW = StepLaw(8e-3, 0.65e-3)
WORK = Workload([100.0, 3000.0, 900.0], [30.0, 200.0, 1.0], [0.6, 0.3, 0.1], rate_rps=10.0)
KEY = jax.random.key(9)


@pytest.mark.parametrize(
    "prefill, emits, chunk_tokens, cv, percentile",
    [
        (Prefill.OWN, False, 512, 1.0, 0.99),
        (Prefill.SHARED, False, 512, 2.0, 0.9),
        (Prefill.PACKED, False, 512, 1.0, 0.99),
        (Prefill.PACKED, True, 300, 0.5, 0.95),
    ],
)
def test_chunks_give_what_one_run_gives(prefill, emits, chunk_tokens, cv, percentile):
    chunk, chunks = 2000, 5
    cached = [0.0, 1500.0, 900.0] if emits else 0.0
    work = WORK.replace(cached_tokens=np.asarray(cached), arrival_cv=np.float64(cv))
    how = {"chunk_tokens": chunk_tokens, "prefill": prefill, "emits": emits}
    found = study.run(work, LAW, 12, KEY, chunk * chunks, chunk=chunk, percentile=percentile, **how)
    pieces = [jax.random.split(jax.random.fold_in(KEY, c)) for c in range(chunks)]
    arrival = np.cumsum(np.concatenate([study._gaps(gaps, cv, chunk) for gaps, _ in pieces])) / 10.0
    drawn = [np.concatenate(column) for column in zip(*(lengths.draw(k, work, chunk) for _, k in pieces), strict=True)]
    whole = batching.simulate(arrival, drawn[0], drawn[1], LAW, 12, cached_tokens=drawn[2], **how)
    # a request counts where it ends; the queue never empties, so that all slots are taken when a chunk ends
    order = np.argsort(whole.end_s, kind="stable")
    groups = [order[max(c * chunk - 12, 0) : (c + 1) * chunk - 12] for c in range(1, chunks)]
    for name in study.METRICS:
        values = [getattr(whole, name)[group] for group in groups]
        means = [np.nanmean(one) for one in values]
        assert found[f"{name[:-2]}_mean_s"].value == pytest.approx(np.mean(means), rel=1e-9)
        late = np.nanquantile(np.concatenate(values), percentile)
        each = [np.nanquantile(one, percentile) for one in values]
        measured = found[f"{name[:-2]}_p{100 * percentile:g}_s"]
        assert measured.value == pytest.approx(late, rel=2.5e-3)  # half a bin
        for estimate, batches, abs_s in ((found[f"{name[:-2]}_mean_s"], means, 1e-12), (measured, each, 0.01 * late)):
            half_s = stats.t.ppf(0.975, chunks - 2) * np.std(batches, ddof=1) / np.sqrt(chunks - 1)
            assert estimate.half_width == pytest.approx(half_s, rel=1e-6, abs=abs_s)


def test_each_further_token_of_a_request_alone_takes_a_step():
    """Of two tokens there is one such time, of one there is none."""
    alone = lambda tokens: study.run(Workload.fixed(1, tokens, rate_rps=1e-3), LAW, 12, KEY, 3000, chunk=1000)
    assert "tpot_mean_s" not in alone(1) and alone(2)["tpot_mean_s"].value == pytest.approx(8.65e-3, rel=1e-6)
    assert alone(1)["e2e_mean_s"].value == pytest.approx(2 * 8.65e-3, rel=1e-6)


@pytest.mark.parametrize("cv", [1.0, 0.3, 3.0])
def test_gaps_have_a_mean_of_one_and_the_variation_asked_for(cv):
    gaps = study._gaps(jax.random.key(4), cv, 2000)
    assert gaps.mean() == pytest.approx(1.0, abs=4 * cv / 45) and gaps.std() == pytest.approx(cv, rel=0.25)
    assert gaps.dtype == np.float64 and gaps.min() > 0


def test_a_count_is_rounded_up_to_whole_chunks_and_three_at_least():
    seen = []
    for count, done in ((1, [1, 1, 1]), (3001, [1000, 2000, 3000, 3001])):
        study.run(WORK, LAW, 12, KEY, count, chunk=1000, progress=lambda *of: seen.append(of))
        assert seen == [(k, count) for k in done]
        seen.clear()
    for wrong in ({"chunk": 999}, {"chunk": 1 << 27}, {"count": 0}):
        with pytest.raises(InputError, match="a positive count in chunks of 1000 to"):
            study.run(**{"workload": WORK, "law": LAW, "slots": 2, "key": KEY, "count": 5} | wrong)


def test_an_interrupted_study_resumes_to_the_bit(tmp_path):
    file = tmp_path / "deep" / "study.npz"
    arguments = {"workload": WORK, "law": LAW, "slots": 8, "key": KEY, "count": 9000, "chunk": 1500}

    def stop(done, count):
        if done >= 4500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(**arguments, checkpoint=file, progress=stop)
    seen = []
    resumed = study.run(**arguments, checkpoint=file, progress=lambda done, count: seen.append(done))
    assert seen == [6000, 7500, 9000]  # nothing is done twice
    assert resumed == study.run(**arguments)
    assert [p.name for p in file.parent.iterdir()] == ["study.npz"]


def test_a_checkpoint_of_another_study_is_refused(tmp_path):
    file = tmp_path / "study.npz"
    study.run(WORK, LAW, 8, KEY, 3000, chunk=1000, checkpoint=file)
    with pytest.raises(InputError, match="other arguments"):
        study.run(WORK, LAW, 9, KEY, 3000, chunk=1000, checkpoint=file)
    file.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a checkpoint"):
        study.run(WORK, LAW, 8, KEY, 3000, chunk=1000, checkpoint=file)


def test_an_md1_study_covers_pollaczek_khinchine():
    work = Workload.fixed(1, 999, rate_rps=0.7)
    found = study.run(work, [1e-3], 1, KEY, 2_000_000, chunk=100_000)
    wide = 2.1 * found["wait_mean_s"].half_width  # 20 batches: 95 % to 99.9 %
    assert abs(found["wait_mean_s"].value - 0.7 / 0.6) < wide + 1e-3
    np.testing.assert_allclose(found["e2e_mean_s"].value, found["wait_mean_s"].value + 1.0, rtol=1e-6)


def test_no_key_is_used_twice():
    with jax.debug_key_reuse(True):
        study.run(WORK, LAW, 8, jax.random.key(1), 3000, chunk=1000)


def test_a_quantile_is_the_middle_of_a_256th_of_an_octave():
    """Requests alone: a step for the prompt and three for the answer. Nobody waits, which is below every bin."""
    found = study.run(Workload.fixed(1, 3, rate_rps=1e-4), LAW, 12, KEY, 3000, chunk=1000)
    assert [*found] == [f"{k}_{x}_s" for k in ("ttft", "tpot", "e2e", "wait") for x in ("mean", "p99")]
    for name, value in (("ttft", 2 * 8.65e-3), ("tpot", 8.65e-3), ("e2e", 4 * 8.65e-3), ("wait", 0.0)):
        mean, late = found[f"{name}_mean_s"], found[f"{name}_p99_s"]
        octave = 2.0 ** np.floor(np.log2(value)) if value else 0.0
        middle = octave * (1 + (np.floor(256 * (value / octave - 1)) + 0.5) / 256) if value else 0.0
        assert mean.value == pytest.approx(value, rel=1e-5) and late.value == pytest.approx(middle, rel=1e-12)
        assert (mean.flags, late.flags, late.samples) == (0, 0, 2) and mean.half_width <= 1e-5 * value
        assert (late.low + late.high) / 2 == pytest.approx(middle)


@pytest.mark.parametrize("step_s, told", [(9.5e-7, 0.0), (9.6e-7, 2.0**-20 * (1 + 1.5 / 256)), (1e6, 1e6), (2e6, None)])
def test_times_beyond_the_first_and_the_last_bin_are_in_them(step_s, told):
    """Below a microsecond, 2^-20 s, is none; above 2^20 s, twelve days, the middle of the last 256th before it."""
    found = study.run(Workload.fixed(1, 2, rate_rps=0.1 / step_s), [step_s], 1, KEY, 3000, chunk=1000)
    late = found["tpot_p99_s"].value
    if told is None:
        assert late == 2.0**20 * (1 - 0.25 / 256)
    else:
        assert late == pytest.approx(told, rel=2e-3 if told == 1e6 else 1e-12)
    assert found["tpot_mean_s"].value == pytest.approx(step_s)
