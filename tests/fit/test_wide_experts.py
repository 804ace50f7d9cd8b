"""Experts over several nodes against published throughputs, by the shipped calibration.

All within 1.3 times, though serving rows on H100 leave the matrix products of prompts 0.4 of the peak, below what
kernels reach.
"""

from __future__ import annotations

import jax
import pytest

from dmodels import Parallel, catalog
from dmodels.fit.calibration import efficiency_for
from dmodels.models.latency import parts

#: GPU, GPUs of one instance, tokens a GPU and step that decode, of a prompt, (context or half a prompt), and tokens per
#: second and GPU that were published. DeepSeek-V3/R1 in FP8, attention on every GPU for itself.
PUBLISHED = {
    # lmsys.org/blog/2025-05-05-large-scale-ep: 22,282 output tokens/s per node of 8 at 2,000-token prompts, 9 nodes
    "LMSYS decode EP72": ("h100_sxm", 72, 256, 0, 2050, 22_282 / 8),
    # the same: 54,543 input tokens/s per node, 4 nodes, chunks of 16,384 tokens a GPU
    "LMSYS prefill EP32, 2k": ("h100_sxm", 32, 0, 16384, 1000, 54_543 / 8),
    "LMSYS prefill EP32, 4k": ("h100_sxm", 32, 0, 16384, 2000, 50_302 / 8),
    # DeepSeek, "V3/R1 inference system overview": 14.8k output tokens/s per H800 node, 20 to 22 tokens/s a request,
    # hence 88 requests a GPU; EP144; a mean cache of 4,989 tokens
    "DeepSeek decode EP144": ("h100_sxm", 144, 88, 0, 4989, 14_800 / 8),
    # InfoQ, 2025-05-19, RTP-LLM: 13,200 requests over 144 H800 at 20 tokens/s, 1,850 tokens/s per GPU
    "RTP-LLM decode EP144": ("h100_sxm", 144, 13_200 / 144, 0, 4989, 1850),
    # lmsys.org/blog/2025-06-16-gb200-part-1: 7,583 output tokens/s per GPU, 12 trays of 4; 768 requests fill the memory
    "LMSYS GB200 decode EP48": ("gb200", 48, 768, 0, 2050, 7583),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_throughputs_of_wide_expert_parallelism(name):
    gpu, ranks, decode, prompt, context, published = PUBLISHED[name]
    parallel = Parallel(1.0, 1.0, float(ranks), float(ranks))
    with jax.enable_x64(True):
        found = parts(
            catalog.model("deepseek-v3"),
            catalog.gpu(gpu),
            parallel,
            decode_count=float(decode * ranks),
            context_tokens=float(context),
            prefill_tokens=float(prompt * ranks),
            attended_tokens=float(context),
            efficiency=efficiency_for(gpu, "sglang", "fp8", "deepseek-v3", "disagg", parallel=parallel),
        )
    rate = (decode + prompt) / sum(float(part.seconds) for part in found.values())
    assert published / 1.3 < rate < published * 1.3, rate
