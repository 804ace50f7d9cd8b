"""Very long runs of one instance in bounded memory: 10^8 requests, with progress, interruptible, resumable.

Requests are drawn, served and counted chunk by chunk; what is in flight is carried over, and times are counted from
the chunk's start so that they keep their digits. Counts go into histograms of constant relative width. Each chunk is
also one batch of the confidence intervals; the first chunk is dropped as warm-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dmodels.core.compiled import kernel
from dmodels.core.errors import InputError
from dmodels.core.files import replacing
from dmodels.core.records import float64
from dmodels.core.workload import Workload

from . import estimate, lengths
from .batching import check_instance, virtual_time
from .batching import step_times as laws
from .draws import sample
from .requests import Prefill

METRICS = ("ttft_s", "tpot_s", "e2e_s", "wait_s")
#: A histogram bin is 2**-8 of an octave's start wide: a quantile is known to 0.2 %. Bins span 2**-20 s to 2**20 s.
_SHIFT, _LOW, _BINS = 44, (1023 - 20) << 8, 40 << 8


class Study(NamedTuple):
    """What is known after some chunks: arrays only, so that it can be written down and read again."""

    done: np.ndarray  # (): chunks finished
    clock: np.ndarray  # (5,): tau_s, v, prefill_v, in flight, pending
    lines: np.ndarray  # (3, slots): keys, first_v, first_id
    carried: np.ndarray  # (4, k): arrival, admitted, first token, output of the requests in flight
    last_s: np.ndarray  # (): last arrival, in the chunk's time
    counts: np.ndarray  # (4, bins): requests by metric, warm-up left out
    batches: np.ndarray  # (chunks, 8): mean and percentile of each metric, per chunk


def run(
    workload: Workload,
    law: Any,
    slots: int,
    key: jax.Array,
    count: int,
    *,
    chunk: int = 1 << 20,
    percentile: float = 0.99,
    chunk_tokens: int = 512,
    prefill: Prefill = Prefill.OWN,
    emits: bool = False,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, estimate.Estimate]:
    """Mean and percentile of TTFT, TPOT, E2E and waiting over `count` requests, rounded up to whole chunks, at least 3.

    `progress(done, count)` is called after each chunk. With a `checkpoint` the study is written there after each
    chunk, whole or not at all; a later call with the same arguments continues where it stopped and gives the same
    bits as one that was never interrupted.
    """
    check_instance(slots, chunk_tokens)
    if chunk < 1000 or chunk >= 1 << (virtual_time.ID_BITS - 1) or count < 1:
        raise InputError(f"count = {count}, chunk = {chunk}; accepted: a positive count in chunks of 1000 to 2**27")
    chunks = max(3, -(-count // chunk))
    instance = virtual_time.Instance(laws.table(law, slots), int(prefill), int(chunk_tokens), 0 if emits else 1)
    settings = _Settings(workload, instance, chunk, percentile)
    asked = _fingerprint(settings, jax.random.key_data(key))
    study = _read(checkpoint, asked, slots)
    for c in range(int(study.done), chunks):
        study = _chunk(study, settings, jax.random.fold_in(key, c))
        if checkpoint is not None:
            _write(checkpoint, asked, study)
        if progress is not None:
            progress(min(count, (c + 1) * chunk), count)
    return _estimates(study, percentile)


class _Settings(NamedTuple):
    """What all chunks of a study have in common."""

    workload: Workload
    instance: virtual_time.Instance
    chunk: int
    percentile: float


def _chunk(study: Study, settings: _Settings, key: jax.Array) -> Study:
    """Draw, serve and count one more chunk."""
    work, times = _drawn(study, settings, key)
    tau, v, busy, in_flight, pending = study.clock
    keys, first_v, first_id = study.lines.copy()
    clock = virtual_time.Clock(
        float(tau), int(v), int(busy), keys, first_v, first_id=first_id, in_flight=int(in_flight), pending=int(pending)
    )
    clock = virtual_time.run(work, settings.instance, clock, study.carried.shape[1], False, times)
    counts, sums = np.zeros_like(study.counts), np.zeros(4)
    _count(work, times, counts, sums)
    with np.errstate(invalid="ignore"):
        means = sums / counts.sum(1)
    row = np.concatenate([means, [_quantile(c, settings.percentile) for c in counts]])
    kept = study.counts + counts if study.done > 0 else study.counts
    lines = _carried(work, times, clock, settings.instance)
    return Study(study.done + 1, *lines, kept, np.vstack([study.batches, row]))  # type: ignore[call-arg]


def _drawn(study: Study, settings: _Settings, key: jax.Array) -> tuple[virtual_time.Work, virtual_time.Times]:
    """The requests in flight and the chunk's new ones, with what is known of their times."""
    key_gaps, key_lengths = jax.random.split(key)
    workload, chunk = settings.workload, settings.chunk
    gaps = np.cumsum(_gaps(key_gaps, float(workload.arrival_cv), chunk)) / workload.rate_rps
    drawn = lengths.draw(key_lengths, workload, chunk)
    arrival, admitted, first, output = study.carried
    unread = np.ones(arrival.size, np.int64)  # prompts in flight have been counted already
    work = virtual_time.Work(
        np.concatenate([arrival, float(study.last_s) + gaps]),
        np.concatenate([unread, np.maximum(1, drawn.input_tokens - drawn.cached_tokens)]),
        np.concatenate([output.astype(np.int64), drawn.output_tokens]),
    )
    times = virtual_time.Times.unknown(arrival.size + chunk)
    times.admitted[: arrival.size], times.first[: arrival.size] = admitted, first
    return work, times


def _carried(
    work: virtual_time.Work, times: virtual_time.Times, clock: virtual_time.Clock, instance: virtual_time.Instance
) -> tuple[np.ndarray, ...]:
    """`Study.clock` to `last_s`: what is in flight, numbered anew from 0, seconds and virtual time from here."""
    mask, v = (1 << virtual_time.ID_BITS) - 1, clock.v
    keys, first_v, first_id = clock.keys[: clock.in_flight], clock.first_v[: clock.pending], clock.first_id
    going = np.sort(keys & mask)
    keys[:] = ((keys >> virtual_time.ID_BITS) - v << virtual_time.ID_BITS) + np.searchsorted(going, keys & mask)
    first_v -= v
    first_id[: clock.pending] = np.searchsorted(going, first_id[: clock.pending])
    origin = work.arrival_s[-1]
    seconds = [x[going] - origin for x in (work.arrival_s, times.admitted, times.first)]
    busy = clock.prefill_v - v * (instance.chunk_tokens if instance.mode == Prefill.PACKED else 1)
    now = np.array([clock.tau_s - origin, 0.0, busy, clock.in_flight, clock.pending])
    lines = np.stack([clock.keys, clock.first_v, first_id])
    return now, lines, np.stack([*seconds, work.output_tokens[going].astype(np.float64)]), np.array(0.0)


@float64
def _gaps(key: jax.Array, cv: float, count: int) -> np.ndarray:
    """Gaps of mean 1."""
    if cv == 1:
        return sample(jax.random.exponential, key, count)
    shape = 1.0 / max(cv, 1e-6) ** 2
    return sample(jax.random.gamma, key, count, shape) / shape


@kernel
def _count(work: virtual_time.Work, times: virtual_time.Times, counts: np.ndarray, sums: np.ndarray) -> None:
    """Histograms of the metrics of finished requests. The bits of a float64 are its logarithm, nearly."""
    arrival, _, output = work
    admitted, first, end = times
    value = np.empty(1)
    bits = value.view(np.int64)
    for i in range(arrival.size):
        if np.isnan(end[i]):
            continue
        for k in range(4):
            if k == 0:
                value[0] = first[i] - arrival[i]
            elif k == 1:
                if output[i] < 2:
                    continue
                value[0] = (end[i] - first[i]) / (output[i] - 1)
            elif k == 2:
                value[0] = end[i] - arrival[i]
            else:
                value[0] = max(0.0, admitted[i] - arrival[i])
            sums[k] += value[0]
            counts[k, min(max((bits[0] >> _SHIFT) - _LOW, 0), counts.shape[1] - 1)] += 1


def _quantile(counts: np.ndarray, q: float) -> float:
    """Middle of the bin that holds the quantile; 0 where it is the bin of everything below a microsecond."""
    total = counts.sum()
    if total == 0:
        return np.nan
    k = int(np.searchsorted(np.cumsum(counts), q * total))
    if k == 0:
        return 0.0
    edges = (np.array([k, k + 1], np.int64) + _LOW << _SHIFT).view(np.float64)
    return float(edges.mean())


def _estimates(study: Study, percentile: float) -> dict[str, estimate.Estimate]:
    found = {}
    for k, name in enumerate(METRICS):
        for column, tag, value in (
            (k, "mean", None),
            (4 + k, f"p{100 * percentile:g}", _quantile(study.counts[k], percentile)),
        ):
            batches = study.batches[1:, column]
            if np.isnan(batches).all():
                continue
            e = estimate.mean_of(batches)
            centre = e.value if value is None else value
            found[f"{name[:-2]}_{tag}_s"] = e._replace(
                value=centre, low=centre - e.half_width, high=centre + e.half_width
            )
    return found


def _fingerprint(*asked: Any) -> str:
    digest = hashlib.sha256()
    for part in jax.tree.leaves(asked):
        digest.update(np.ascontiguousarray(np.asarray(part, np.float64)).tobytes())
    return digest.hexdigest()


def _read(checkpoint: str | Path | None, asked: str, slots: int) -> Study:
    if checkpoint is None or not Path(checkpoint).exists():
        return Study(
            np.array(0),
            np.zeros(5),
            np.zeros((3, slots), np.int64),
            np.zeros((4, 0)),
            np.array(0.0),
            np.zeros((4, _BINS), np.int64),
            np.zeros((0, 8)),
        )
    try:
        with np.load(checkpoint, allow_pickle=False) as file:
            if str(file["asked"]) != asked:
                raise InputError(f"checkpoint {checkpoint}: belongs to a study with other arguments; accepted: its own")
            return Study(*(file[name] for name in Study._fields))
    except (KeyError, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"checkpoint {checkpoint}: not a checkpoint of a study") from error


def _write(checkpoint: str | Path, asked: str, study: Study) -> None:
    with replacing(checkpoint) as draft, draft.open("wb") as file:
        np.savez(file, asked=np.array(asked), **study._asdict())
