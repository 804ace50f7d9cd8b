"""Make the small files of `examples/data`: slices of two traces, measured rows, and a router's log.

    python tools/make_samples.py FOLDER

FOLDER holds azure_2023_conv.csv (Azure/AzurePublicDataset, CC-BY), mooncake_conversation.jsonl (kvcache-ai/Mooncake,
Apache-2.0) and silicon_fit.csv (ai-dynamo/aiconfigurator, InferenceX runs, Apache-2.0). The router's log comes from the
simulator, not from a machine.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import jax
import numpy as np

from dmodels.core.records import float64
from dmodels.models.latency import StepLaw
from dmodels.sim.fleet import Pool, RoutingPolicy, simulate

OUT = Path(__file__).resolve().parents[1] / "examples" / "data"
#: Columns of the measured rows that an aggregated deployment needs.
COLUMNS = (
    "id",
    "model_path",
    "system",
    "backend",
    "precision",
    "mode",
    "isl",
    "osl",
    "gemm_quant_mode",
    "batch_size",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_tp_size",
    "moe_ep_size",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
)


def trace_slice(path: Path, start: str = "2023-11-16 18:30", end: str = "2023-11-16 18:35") -> str:
    """The head of a trace and its requests from `start` to before `end`."""
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    return "\n".join([head, *(row for row in rows if start <= row < end)]) + "\n"


def head(path: Path, count: int = 600) -> str:
    """The first lines of a file."""
    return "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:count])


def measured(path: Path, model: str = "Qwen/Qwen3-32B", system: str = "h100_sxm") -> list[dict[str, str]]:
    """Aggregated vLLM rows of one model on one GPU."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["model_path"] == model
            and row["system"] == system
            and row["backend"] == "vllm"
            and row["mode"] == "agg"
        ]
    return [{name: row[name] for name in COLUMNS} for row in rows]


@float64
def router_log(count: int = 2048, workers: int = 4, groups: int = 6) -> list[list[str]]:
    """A random router over 4 workers of 64 slots. Load doubles in the second half. Prompts start with one of 6 texts
    of 1,024 tokens, and a worker knows the texts 1 and 2 steps before its own number."""
    draws = np.random.default_rng(7)
    rate = np.where(np.arange(count) < count // 2, 20.0, 40.0)
    arrival = np.cumsum(draws.exponential(1.0, count) / rate)
    prompt = 1024 + np.ceil(draws.lognormal(5.5, 0.8, count))
    output = np.ceil(draws.lognormal(5.0, 0.6, count))
    group = draws.integers(0, groups, count)
    served = simulate(
        arrival, prompt, output, Pool(workers, 64, StepLaw(8e-3, 0.65e-3)), RoutingPolicy.RANDOM, key=jax.random.key(7)
    )
    rows = []
    for i in np.argsort(served.end_s):
        worker = int(served.instance[i])
        knows = (group[i] - worker) % groups in (0, 1)
        overlap = 1024 / prompt[i] if knows else 0.0
        rows.append(
            [
                f"r{i}",
                f"{arrival[i]:.3f}",
                f"{served.end_s[i]:.3f}",
                f"w{worker}",
                f"{served.first_token_s[i] - arrival[i]:.4f}",
                f"{overlap:.2f}",
            ]
        )
    return rows


def main() -> None:
    """Write all of them, after all could be made."""
    folder = Path(sys.argv[1])
    requests = trace_slice(folder / "azure_2023_conv.csv")
    prefixes = head(folder / "mooncake_conversation.jsonl")
    rows = measured(folder / "silicon_fit.csv")
    log = router_log()
    (OUT / "azure_conv_5min.csv").write_text(requests, encoding="utf-8")
    (OUT / "mooncake_head.jsonl").write_text(prefixes, encoding="utf-8")
    with open(OUT / "measured.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    with open(OUT / "router_log.csv", "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["id", "arrival", "completion", "worker", "ttft", "overlap"])
        lines.writerows(log)


if __name__ == "__main__":
    main()
