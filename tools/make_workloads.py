"""Make the quantile tables of `dmodels/catalog/data/workloads` from the raw traces.

    python tools/make_workloads.py FOLDER

FOLDER holds azure_2023_conv.csv, azure_2023_code.csv (Azure/AzurePublicDataset, CC-BY), mooncake_conversation.jsonl
(kvcache-ai/Mooncake, Apache-2.0) and lmsys_cdf.json (vllm-project/semantic-router, Apache-2.0). Each table is written
only when all of them could be read, and states what compressing it cost.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from dmodels.core.workload import Workload
from dmodels.models.traffic import Trace, burstiness, compress, prefix_hits, read_trace, whole
from dmodels.models.traffic.workload import quantile

OUT = Path(__file__).resolve().parents[1] / "dmodels" / "catalog" / "data" / "workloads"
TRACES = {
    "azure-conv": ("azure_2023_conv.csv", "Azure LLM inference 2023, conversation (Azure/AzurePublicDataset, CC-BY)"),
    "azure-code": ("azure_2023_code.csv", "Azure LLM inference 2023, code (Azure/AzurePublicDataset, CC-BY)"),
    "mooncake": ("mooncake_conversation.jsonl", "Mooncake conversation trace (kvcache-ai/Mooncake, Apache-2.0)"),
}
LMSYS = "LMSYS-Chat-1M, CDF of total tokens (lmsys_cdf.json of vllm-project/semantic-router, Apache-2.0)"
CACHE_BLOCKS = (0, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, float("inf"))


def table(title: str, file: str, trace: Trace) -> str:
    """The text of a quantile table: provenance, what it cost, and the cells."""
    cached = prefix_hits(trace) if trace.block_ids is not None else None
    exact = Workload.from_trace(trace, cached_tokens=cached)
    small = compress(exact)
    a, b = whole(exact), whole(small)
    error = {
        name: float(getattr(b, name) / getattr(a, name)) - 1
        for name in ("input_square", "output_square", "prefill_output")
    }
    for name in ("input", "output"):
        of = f"{name}_tokens"
        most, least = (float(quantile(getattr(w, of), w.weight_frac, 0.99)) for w in (small, exact))
        error[f"{name}_p99_tokens"] = most / least - 1
    burst = burstiness(trace.time_s)
    names = ["input_tokens", "output_tokens", "weight_frac"] + (["cached_tokens"] if cached is not None else [])
    head = [
        title,
        f"made by tools/make_workloads.py from {file}: {len(trace):,} requests in {len(small.weight_frac)} cells, "
        "each at its conditional mean",
        "means are exact; relative error of " + ", ".join(f"{name} {value:+.2%}" for name, value in error.items()),
        "index of dispersion of arrivals in windows of "
        + ", ".join(f"{w:g} s: {d:.2f}" for w, d in zip(burst.window_s, burst.dispersion_count, strict=True)),
        f"rate_rps = {float(exact.rate_rps)!r}",
        f"arrival_cv = {float(exact.arrival_cv)!r}",
    ]
    if cached is not None:
        head.insert(
            3,
            "cached_tokens: what an unlimited prefix cache of 512-token blocks holds, "
            f"{cached.sum() / trace.input_tokens.sum():.1%} of the input",
        )
    rows = zip(*(getattr(small, name) for name in names), strict=True)
    return _lines(head, names, rows)


def cache_table(file: str, trace: Trace) -> str:
    """Hit share by cache size, as text."""
    head = [
        "Mooncake conversation trace: share of input tokens found in one shared prefix cache, by size",
        f"made by tools/make_workloads.py from {file}; blocks of 512 tokens, least recently used out",
    ]
    share = [prefix_hits(trace, blocks).sum() / trace.input_tokens.sum() for blocks in CACHE_BLOCKS]
    return _lines(head, ["capacity_blocks_count", "prefix_hit_frac"], zip(CACHE_BLOCKS, share, strict=True))


def cdf_table(path: Path) -> str:
    """The measured CDF of LMSYS-Chat-1M with the output share that the token-budget paper gives for it."""
    points = json.loads(path.read_text(encoding="utf-8"))
    head = [
        LMSYS,
        f"made by tools/make_workloads.py from {path.name}; the output share, N(0.75, 0.10), is that of "
        "arXiv:2604.09613, Appendix A; the rate is a unit rate",
        "rate_rps = 1",
        "share_mean_frac = 0.75",
        "share_std_frac = 0.1",
    ]
    return _lines(head, ["upper_tokens", "cumulative_frac"], points)


def _lines(head: list[str], names: list[str], rows) -> str:
    body = [",".join(f"{float(value):.10g}" for value in row) for row in rows]
    return "\n".join([*(f"# {line}" for line in head), ",".join(names), *body]) + "\n"


def main(folder: Path) -> None:
    texts = {}
    for name, (file, title) in TRACES.items():
        trace = read_trace(folder / file)
        texts[name] = table(title, file, trace)
        if trace.block_ids is not None:
            texts[f"{name}.prefix_cache"] = cache_table(file, trace)
    texts["lmsys"] = cdf_table(folder / "lmsys_cdf.json")
    for name, text in texts.items():
        (OUT / f"{name}.csv").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text):,} bytes, {np.sum([not x.startswith('#') for x in text.splitlines()]) - 1} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
