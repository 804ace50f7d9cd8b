"""Real servers' logs beside their simulation under vLLM's own scheduler: reads every folder of ../shared/data/servers.

A folder is called GPU_MODEL and has `requests.jsonl` and `meta.json`. None of them is in the calibration.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.registry import Row, benchmark
from dmodels import catalog
from dmodels.core.hardware import Parallel
from dmodels.formats.telemetry.request_log import read_requests
from dmodels.studies.servers import compare, server

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "servers"


@benchmark()
def servers(quick: bool) -> Iterator[Row]:
    """Request logs of real servers beside the simulation: TTFT, TPOT, E2E and the whole duration."""
    for folder in sorted(path for path in FOLDER.iterdir() if (path / "requests.jsonl").is_file()):
        gpu = max((name for name in catalog.gpus() if folder.name.startswith(name)), key=len, default="")
        if not gpu:
            raise SystemExit(f"{folder.name}: no GPU of the catalogue begins this name")
        log = read_requests(folder)
        known = log.engine
        made = server(
            str(known["model"]),
            gpu,
            Parallel(float(known.get("tensor_parallel_size") or 1)),
            release=str(known["release"]),
            max_num_seqs=int(known["max_num_seqs"]),
            max_num_batched_tokens=int(known["max_num_batched_tokens"]),
        )
        found = compare(made, log)
        for metric in found.metrics:
            yield {
                "log": folder.name,
                "metric": metric.name,
                "simulated": metric.simulated_s,
                "measured": metric.measured_s,
                "error": metric.error_frac,
            }
        yield {"log": folder.name, "metric": "step law", "slower": found.slower} | {
            f"{name} {field}": getattr(law, field)
            for name, law in (("measured", found.measured_law), ("calibrated", found.simulated_law))
            for field in ("base_s", "per_request_s", "per_prompt_token_s")
        }
