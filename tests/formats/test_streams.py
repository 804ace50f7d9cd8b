"""A log of a gigabyte is read in little memory, packed or not: what nobody asks of a request is dropped at once."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from tests.models import test_access_log as logs
from tests.models import test_trace as traces

from . import test_measurements as reports

#: Requests in a file, and those that are written as one piece, again and again.
REQUESTS, PIECE = 250_000, 1_000
PADDING = "x" * 4_000

TRACE = "from dmodels.models.traffic import read_trace as read; count = len"
#: Reader -> (imports of `read`, which takes a path, and `count`, of what it returns; first line; a request).
READERS = {
    "aiperf": (
        "from dmodels.formats.measurements import read_measurements; read = lambda path: read_measurements([path]); "
        "count = lambda points: int(points[0].completed_count)",
        "",
        json.dumps(reports.request(1, chat=PADDING)),
    ),
    "access-log": (TRACE, "", json.dumps(logs.litellm(1.0, 100, 50, messages=PADDING))),
    "request-log": (
        "from dmodels.formats.telemetry.request_log import read_requests as read; count = lambda log: len(log.ids)",
        "",
        json.dumps(
            {"queued_ts": 1.0, "first_token_ts": 1.5, "last_token_ts": 3.0}
            | {"input_tokens": 10, "output_tokens": 5, "text": PADDING}
        ),
    ),
    "burstgpt": (TRACE, traces.BURST.splitlines()[0] + "\n", f"5,m,472,18,490,{PADDING}"),
    "mooncake": (TRACE, "", json.dumps(traces.MOONCAKE[0] | {"chat": PADDING})),
}
READ = """
import resource, sys
{imports}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = read(sys.argv[1])
print(count(found), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


def packed(data: bytes, packing: str) -> bytes:
    """A member of a .gz or a frame of a .zst: several, one after another, are a file, too."""
    if packing == "zst":
        return pytest.importorskip("pyarrow").compress(data, "zstd", asbytes=True)
    return gzip.compress(data, 1) if packing == "gz" else data


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
@pytest.mark.parametrize("reader", READERS)
def test_a_gigabyte_is_read_in_little_memory(reader, packing, tmp_path):
    imports, first, line = READERS[reader]
    path, piece = tmp_path / "log", (line + "\n").encode() * PIECE
    assert len(piece) * REQUESTS / PIECE > 1e9
    whole = packed(piece, packing)
    with path.open("wb") as out:
        out.write(packed(first.encode(), packing) if first else b"")
        for _ in range(REQUESTS // PIECE):
            out.write(whole)
    code = READ.format(imports=imports)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    path.unlink()
    count, grown = map(int, done.stdout.split())
    print(f"{reader}, {packing}: {count:,} requests, {grown / 1e6:.0f} MB more in memory")
    assert count == REQUESTS and grown < 1.5e8, grown
