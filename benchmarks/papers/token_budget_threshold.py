"""The token-budget paper's future work in the loop: a threshold that finds itself, and compressed borderline prompts.

Threshold: one short instance of 128 slots over 65,536 blocks of 16 tokens whose pages are given out as tokens come, and
the share of the Azure lengths that its threshold lets in, at an arrival rate for which 8,192 tokens are 70 % of its
throughput. The router sees totals with a lognormal error of 15 %. Every 500 responses the threshold moves by the share
that was preempted or turned out longer than the context of 16,384. Compression: the split at each threshold with
prompts of which a half, or a fifth, must remain, at compressors that read 50,000 tokens a second.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.papers.token_budget import LAW
from benchmarks.registry import Row, benchmark
from dmodels.catalog import workload
from dmodels.catalog.workloads import totals_cdf
from dmodels.control.token_budget import adapt, failure_bound, threshold_settings
from dmodels.models.compression import Compression
from dmodels.models.pooling import Headroom
from dmodels.sim import batching, lengths
from dmodels.sim.requests import KVCache
from dmodels.studies.pools import pool_study

BLOCKS, SLOTS, CONTEXT, BATCH, NOISE = 65_536, 128, 16_384, 500, 0.15
AT_8K_RPS = 0.7 * 13.5  # of Table 1's short pool


def served(prompt, output, rate_rps: float, rng, blocks: int) -> tuple[np.ndarray, float]:
    """(which requests were preempted, P99 TTFT) on one short instance."""
    arrival = np.cumsum(rng.exponential(1 / rate_rps, prompt.size))
    run = batching.simulate(arrival, prompt, output, LAW, SLOTS, kv=KVCache(blocks))
    return np.asarray(run.restarts) > 0, float(np.nanquantile(run.ttft_s, 0.99))


@benchmark()
def token_budget_threshold(quick: bool) -> Iterator[Row]:
    """Error-driven threshold in the loop: where it settles, what fails, and how long requests then wait."""
    drawn = lengths.draw_totals(jax.random.key(2), totals_cdf("azure-paper"), 40_000)
    prompt, output = (np.asarray(x, np.int64) for x in (drawn.input_tokens, drawn.output_tokens))
    total = prompt + output
    everything_rps = AT_8K_RPS / (total <= 8192).mean()
    for blocks in (BLOCKS, BLOCKS // 4):
        for target in (0.01,) if quick else (0.001, 0.01, 0.05):
            params = threshold_settings(512.0, float(CONTEXT), target)
            rng, threshold, failures, responses = np.random.default_rng(4), float(CONTEXT), 0, 0
            seen = total * np.exp(NOISE * rng.standard_normal(total.size))
            course, waits = [], []
            for _ in range(4 if quick else 40):
                at = rng.integers(0, total.size, 4 * BATCH)
                at = at[seen[at] <= threshold][:BATCH]
                fits = total[at] <= CONTEXT
                rate = everything_rps * (seen <= threshold).mean()
                preempted, wait = served(prompt[at][fits], output[at][fits], rate, rng, blocks)
                failed = int(preempted.sum() + (~fits).sum())
                failures, responses = failures + failed, responses + at.size
                course.append(threshold)
                waits.append(wait)
                threshold = float(adapt(threshold, at.size, failed, params))
            yield {
                "kv_blocks": blocks,
                "target_frac": target,
                "threshold_median_tokens": float(np.median(course[len(course) // 2 :])),
                "failed_frac": failures / responses,
                "bound_frac": float(failure_bound(responses, float(CONTEXT), params)),
                "ttft_p99_s": float(np.median(waits[len(waits) // 2 :])),
                "responses": responses,
            }


@benchmark()
def token_budget_compression(quick: bool) -> Iterator[Row]:
    """Compressed borderline prompts: instances with compressors against the split without, by threshold."""
    headroom = Headroom(1.08, 1.05, 1.02)
    for trace in ("azure-paper", "lmsys-paper"):
        for keep in (0.5, 0.2):
            asked = Compression(keep, 50_000.0, 0.5)
            study = pool_study(
                workload(trace), rate_rps=1000.0, context_tokens=65536, headroom=headroom, compression=asked
            )
            for k, threshold in enumerate(study.threshold_tokens):
                yield {
                    "trace": trace,
                    "keep_frac": keep,
                    "threshold_tokens": float(threshold),
                    "single_instances": float(study.savings.homo_instances_count),
                    "split_instances": float(study.savings.dual_instances_count[k]),
                    "compressed_frac": float(study.compressed_frac[k]),
                    "compressed_instances": float(study.compressed_instances_count[k]),
                }
