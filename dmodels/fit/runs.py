"""Settings of benchmark runs that no column states: speculative decoding, and how many tokens go out at a time.

data/runs.csv lists the runs by what the columns do say. Speculation (multi-token prediction) was told from pairs of
rows that agree in every column but differ in TPOT by a factor of about two, job by job: a job's rows stand beside each
other in an export, and all of them speculate or none; the stream interval from rows whose TTFT is 16 to 20 TPOT longer
than their neighbours'; one client more than batch slots from a TTFT that is longer than the neighbours' by the time
between two completions; kernels compiled while requests waited from a TTFT that is 7 s longer as soon as the clients'
first prompts are more than one step; equal lengths from a TTFT under SGLang of half of all clients' prompts at any
length of the answers. How often a scheduler looks for new requests (SGLang's `--scheduler-recv-interval`) is in the
published scripts of the runs. A row of which nothing tells is taken for one without speculation, and the error is the
data's own: `predict.noise_floor`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dmodels.core.files import csv_rows

KEYS = ("backend", "mode", "system", "precision", "isl", "osl", "moe_ep_size")
#: Tokens of SGLang's largest step on a GPU of 180 GB (`--chunked-prefill-size`).
FULL_STEP_TOKENS = 16384
#: Clients from which on the longer of a run's two polling intervals holds.
MANY_CLIENTS = 16


class Settings(NamedTuple):
    """What a run was set to."""

    draft_tokens: float | None = None  # drafted per step; 0: no speculation; None: not known
    stream_interval: float = 1.0  # tokens per message to the client
    poll_steps: tuple[float, float] = (0.0, 0.0)  # steps between two looks for new requests: below and from 16 clients
    compile_s: float = 0.0  # of compiling kernels for full steps, in the mean over the run's requests
    equal_lengths: bool = False  # of prompts and of answers: as long as the row says
    extra_clients: float = 0.0  # beyond the batch slots, which are as many as the row states clients

    def compiling(self, prompt_tokens: float) -> float:
        """Seconds of compiling where the clients' first prompts, so many tokens, fill more than one step."""
        return self.compile_s if prompt_tokens > FULL_STEP_TOKENS else 0.0

    def polling(self, clients: float) -> float:
        """Steps between two looks for new requests under so many clients."""
        return self.poll_steps[clients >= MANY_CLIENTS]


#: Sources whose load generators draw no lengths: every request is as long as the row says.
EQUAL_LENGTHS = "/aic-auto-gap-analysis/"


def settings(cell: Mapping[str, str], mode: str) -> Settings:
    """The settings of the run that a row belongs to."""
    equal = EQUAL_LENGTHS in cell.get("silicon_data_source", "")
    return _listed(cell, mode)._replace(equal_lengths=equal)


def _listed(cell: Mapping[str, str], mode: str) -> Settings:
    """What data/runs.csv says of the run."""
    source, model = cell.get("silicon_data_source", ""), cell.get("model_path", "").lower()
    known = {**cell, "mode": mode}
    for run in _runs():
        if not re.search(run["model"], model) or any(run[key] and run[key] != known.get(key, "") for key in KEYS):
            continue
        if run["tp_size"] and not re.fullmatch(run["tp_size"], _gpus(cell)):
            continue
        if run["rows"] and not _among(run["rows"], cell.get("id", "")):
            continue
        if run["date"] in source and re.search(run["image"], source):
            # the db-dump export left speculative runs out
            draft = 0.0 if source.startswith("db-dump") else float(run["draft_tokens"])
            few, many = (run["poll_steps"].split() * 2)[:2]
            return Settings(
                draft,
                float(run["stream_interval"]),
                (float(few), float(many)),
                extra_clients=float(run["extra_clients"]),
                compile_s=float(run["compile_s"]),
            )
    return Settings()


def _among(rows: str, name: str) -> bool:
    """A row is one of a job's, which stand beside each other in an export: "2026_03_25 515-523"."""
    export, numbers = rows.split()
    first, last = map(int, numbers.split("-"))
    number = re.search(r"_(\d+)$", name)
    return name.startswith(export) and number is not None and first <= int(number[1]) <= last


def _gpus(cell: Mapping[str, str]) -> str:
    """GPUs of an instance in either spelling of the exports (see `layouts`)."""
    moe = cell.get("moe_tp_size", "")
    return moe if moe not in ("", "0", "1") else cell.get("tp_size", "")


@cache
def _runs() -> list[dict[str, str]]:
    text = files("dmodels.fit").joinpath("data/runs.csv").read_text(encoding="utf-8")
    return list(csv_rows(text))
