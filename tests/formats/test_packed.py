"""Every reader takes what gzip and zstd packed as what was in it, whatever the file is called."""

from __future__ import annotations

import gzip

import pytest

from dmodels.formats.deployments import FORMATS, read_deployment, write_deployment
from dmodels.formats.measurements import read_measurements
from dmodels.formats.telemetry import observe
from dmodels.formats.telemetry.request_log import read_requests
from dmodels.models.traffic import read_trace

from .fleets import KINDS, fleet
from .test_measurements import TOLD, written
from .test_telemetry import SCRAPE

TRACES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:05,3180,8\n",
    "mooncake": '{"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]}\n',
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,472,18,490,API log\n",
    "plain": "time_s,input_tokens,output_tokens\n0,100,10\n1.5,200,20\n",
    "access-log": '{"startTime": "2026-01-24T09:20:46Z", "prompt_tokens": 8, "completion_tokens": 3}\n'
    '{"startTime": "2026-01-24T09:20:47Z", "prompt_tokens": 9, "completion_tokens": 2}\n',
}
REQUESTS = "request_id,arrival_s,input_tokens,output_tokens,first_token_s,end_s\na,0,10,5,1,2\nb,1,10,5,1.5,2\n"


def zstd(data: bytes) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    out = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(out, "zstd") as packed:
        packed.write(data)
    return out.getvalue().to_pybytes()


def of_trace(path) -> list:
    found = read_trace(path)
    return [column.tolist() for column in (found.time_s, found.input_tokens, found.output_tokens)]


def cases(folder) -> list[tuple]:
    """(name, what the reader makes of a file, its bytes)."""
    reports = [
        (name, lambda f: read_measurements([f]), written(folder, name, TOLD[name]).read_bytes()) for name in TOLD
    ]
    of = fleet("vllm", "qwen3-8b", KINDS[0])
    files = {form: next(iter(write_deployment(of, form).values())) for form in FORMATS}
    deployments = [(form, lambda f: read_deployment([f]), text.encode()) for form, text in files.items()]
    traces = [(name, of_trace, text.encode()) for name, text in TRACES.items()]
    others = [("prometheus-text", lambda f: observe([f]), SCRAPE.encode())]
    return [*reports, *deployments, *traces, *others, ("request-log", read_requests, REQUESTS.encode())]


def test_packed_files_read_as_what_is_in_them(tmp_path):
    for name, read, whole in cases(tmp_path):
        path = tmp_path / "same.txt"  # names of files are in answers
        made = []
        for data in (whole, gzip.compress(whole), zstd(whole)):
            path.write_bytes(data)
            made.append(str(read(path)))
        assert made[0] == made[1] == made[2], name
