"""Mutilated files of every format are read or refused in one line: no traceback, and nothing that cannot be true.

`python -m tests.formats.test_mutilated 100000` prints how many were read and refused, format by format (some minutes).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.formats import deployments, table
from dmodels.formats.measurements import LoadPoint, read_measurements
from dmodels.formats.telemetry import observe, workload
from dmodels.formats.telemetry.request_log import read_requests
from dmodels.models.traffic import read_trace
from tests.models import test_access_log as logs
from tests.models import test_trace as traces

from . import test_measurements as reports
from . import test_telemetry as telemetry
from .fleets import KINDS, fleet
from .mutilation import Outcome, Reader, survive

SAMPLES = Path(__file__).parent / "samples"
MANY = 100_000


def measured(path: Path) -> None:
    for point in read_measurements([path]):
        assert isinstance(point, LoadPoint) and 5e-4 <= point.ttft.typical_s <= 3600
        assert not point.tpot.typical_s > 60 and point.throughput_rps > 0


def watched(path: Path) -> None:
    seen = observe([path])
    assert seen.requests_count >= 0 and not seen.rate_rps < 0
    if seen.input_tokens and seen.output_tokens:
        taken = workload(seen, 1.0)
        assert float(np.sum(taken.weight_frac)) == pytest.approx(1.0) and np.all(np.asarray(taken.input_tokens) >= 1)


def traced(path: Path) -> None:
    """Also mended, which is accepted of more files than what is read as it is."""
    mended = read_trace(path, repair=True)
    for trace in (mended, read_trace(path)):
        assert (trace.input_tokens > 0).all() and (trace.output_tokens > 0).all() and (np.diff(trace.time_s) >= 0).all()
        assert trace.duration_s < 1e12 and np.isfinite(trace.time_s).all()


def served(path: Path) -> None:
    log = read_requests(path)
    assert (log.first_token_s >= log.arrival_s).all() and (log.end_s >= log.first_token_s).all()
    assert min(log.input_tokens.min(), log.output_tokens.min()) >= 1


def deployed(path: Path) -> None:
    assert deployments.read_deployment([path]).gpus >= 1


def _reports(form: str) -> Reader:
    """The run that is told in every format, the format's file of a public repository, and logs of requests."""
    found = [document for name, document in reports.TOLD.items() if name.startswith(REPORTS[form])]
    files = [document if isinstance(document, str) else json.dumps(document) for document in found]
    if form == "vllm-bench":
        files[1] = json.dumps(reports.VLLM | {"ttfts": [0.08] * 3, "itls": [[0.01]]})
    if form == "aiperf":
        files.append("\n".join(json.dumps(reports.request(i)) for i in range(3)))
        files += [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("aiperf*"))]
    if form == "llm-d-report":
        files.append((SAMPLES / "llmd_report.yaml").read_text(encoding="utf-8"))
    if form == "inference-perf":
        import yaml

        files.append(yaml.safe_dump(reports.INFERENCE_PERF))
    return Reader([text.encode() for text in files], measured)


#: Format -> how its files in `reports.TOLD` begin.
REPORTS = {
    "vllm-bench": "vllm",
    "sglang-bench": "sglang",
    "guidellm": "guidellm",
    "aiperf": "profile",
    "inference-perf": "stage",
    "llmperf": "llmperf",
    "llm-d-report": "report",
    "csv": "points",
}


def _columns(folder: Path) -> Reader:
    """Parquet and Arrow files of a plain trace and of a gateway's log."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    files = []
    for columns in (logs.PLAIN, logs.GATEWAY):
        made = arrow.table(columns)
        pq.write_table(made, folder / "t.parquet")
        files.append((folder / "t.parquet").read_bytes())
        for make in (arrow.ipc.new_file, arrow.ipc.new_stream):
            with make(str(folder / "t.arrow"), made.schema) as writer:
                writer.write_table(made)
            files.append((folder / "t.arrow").read_bytes())
    return Reader(files, traced)


def _logs(folder: Path) -> Reader:
    rows = {name: [style(*one) for one in logs.REQUESTS] for name, style in logs.STYLES.items()}
    return Reader([logs.write(folder, one).read_bytes() for one in rows.values()], traced)


def _requests(folder: Path) -> Reader:
    rows = [{"queued_ts": 1.0 * k, "input_tokens": 10, "output_tokens": 5, "first_token_ts": k + 0.5} for k in range(3)]
    rows = [row | {"last_token_ts": row["first_token_ts"] + 2.0} for row in rows]
    text = "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    return Reader([text.encode(), "\n".join(map(json.dumps, rows)).encode()], served)


def _manifests(form: str) -> Reader:
    of = [fleet("vllm", "qwen3-30b-a3b", kind) for kind in KINDS]
    files = [text.encode() for one in of for text in deployments.write_deployment(one, form).values()]
    return Reader(files, deployed, {"lines": ".sh"}.get(form, ".yaml"))


#: Format -> its reader, given a folder for what has to be written first.
READERS: dict[str, Callable[[Path], Reader]] = {
    **{form: lambda folder, form=form: _reports(form) for form in REPORTS},
    "prometheus-json": lambda folder: Reader([telemetry.small_answer(folder)], watched),
    "prometheus-text": lambda folder: Reader(
        [telemetry.SCRAPE.encode(), (SAMPLES / "sglang_metrics.txt").read_bytes()[:3000]], watched
    ),
    "azure": lambda folder: Reader([traces.AZURE.encode()], traced),
    "burstgpt": lambda folder: Reader([traces.BURST.encode()], traced),
    "mooncake": lambda folder: Reader(["\n".join(map(json.dumps, traces.MOONCAKE)).encode()], traced),
    "plain": lambda folder: Reader(
        [traces.PLAIN.encode(), b'{"time_s": 0, "input_tokens": 9, "output_tokens": 3}'], traced
    ),
    "access-log": _logs,
    "request-log": _requests,
    "parquet": _columns,
    **{form: lambda folder, form=form: _manifests(form) for form in deployments.FORMATS},
}


def outcome(form: str, folder: Path, count: int) -> Outcome:
    return survive(READERS[form](folder), folder, count, InputError)


def test_every_format_has_a_reader_here():
    assert set(READERS) == {row.name for row in table()}


@pytest.mark.parametrize("form", READERS)
def test_mutilated_files_are_read_or_refused_in_one_line(form, tmp_path):
    assert sum(outcome(form, tmp_path, 60)) == 60


@pytest.mark.slow
@pytest.mark.parametrize("form", READERS)
def test_a_hundred_thousand_mutilated_files_are_read_or_refused_in_one_line(form, tmp_path):
    found = outcome(form, tmp_path, MANY)
    print(f"{form}: {found.read:,} read, {found.refused:,} refused")
    assert sum(found) == MANY and found.refused > MANY // 20


def main(count: int, forms: list[str]) -> None:
    """Print how many files of each format were read and refused, and how long that took."""
    for form in forms or READERS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(form, Path(folder), count)
        seconds = time.process_time() - began
        print(f"{form:16s} {found.read:8,d} read {found.refused:8,d} refused {seconds:7.1f} CPU s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:])
