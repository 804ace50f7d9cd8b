"""Files of other tools: benchmarks' results and engines' telemetry in, deployments out and in.

`engines` knows the command lines of vLLM, SGLang and TensorRT-LLM; `deployments` the manifests around them;
`measurements` the reports of load generators; `telemetry` what Prometheus collects. Each has one table of its formats,
and `table` joins them. `serving` is what runs, as a record; `paths` looks up what lies in a document.
"""

from __future__ import annotations

from typing import NamedTuple


class FormatRow(NamedTuple):
    """A format, and the options that read and write it; "" where none does."""

    name: str
    title: str
    read_by: str
    written_by: str


def table() -> list[FormatRow]:
    """Every format that is read or written.

    >>> [row.name for row in table() if row.written_by][:3]
    ['parquet', 'llm-d', 'kserve']
    """
    from dmodels.models.traffic import TRACE_FORMATS

    from . import deployments, measurements, telemetry

    read = "dmodels fit FILE, dmodels predict FILE, dmodels plan --measured FILE"
    found = [FormatRow(name, row.title, read, "") for name, row in measurements.FORMATS.items()]
    watched = "dmodels watch FILE, dmodels plan --telemetry FILE"
    found += [FormatRow(name, title, watched, "") for name, title in telemetry.FORMATS.items()]
    traced = "dmodels plan --trace FILE, dmodels simulate --trace FILE"
    found += [FormatRow(name, title, traced, "") for name, title in TRACE_FORMATS.items()]
    logged = "a server's log of each request's times (JSONL, CSV): arrival, first and last token"
    found.append(FormatRow("request-log", logged, "dmodels simulate --replay FILE", ""))
    tables = "dmodels plan --out FILE, dmodels predict --out FILE, dmodels sweep --out FILE"
    found.append(FormatRow("parquet", "Parquet and Arrow: any trace, and tables of answers", traced, tables))
    for name, one in deployments.FORMATS.items():
        written = f"dmodels plan --deploy {name} --out FOLDER"
        found.append(FormatRow(name, one.title, "dmodels plan --from-deployment FILE", written))
    return found
