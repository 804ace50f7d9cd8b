"""The servers of a fleet that was planned and saved."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.files import broken, read_text
from dmodels.core.hardware import Parallel

from .playing import PoolOf, server


def of_plan(answer: Mapping[str, Any], **options: Any) -> list[PoolOf]:
    """The servers of the fleet that a saved answer of `dmodels plan --json` recommends."""
    best = answer.get("result", {}).get("recommended") if answer.get("command") == "plan" else None
    if not best:
        raise InputError("plan: no answer of `dmodels plan --json` with a recommended fleet; accepted is such a file")
    pools, inputs = best["pools"], answer["inputs"]
    if any(pool["role"] != "serve" for pool in pools):
        raise InputError("plan: it splits prefill from decode, which `dmodels plan --verify` replays; accepted: pools")
    if inputs["asked"]["gpu"].get("file"):
        options.setdefault("gpu_file", inputs["asked"]["gpu"]["file"])
    edges = [0.0, *([best["router"]["threshold_tokens"]] if len(pools) > 1 else []), np.inf]
    found = []
    for pool, low, high in zip(pools, edges, edges[1:], strict=False):
        degrees = re.fullmatch(r"tp(\d+)pp(\d+)dp(\d+)ep(\d+)", pool["layout"])
        if degrees is None:
            raise InputError(f"plan: layout {pool['layout']!r}; accepted are names like tp8pp1dp1ep1")
        own: dict[str, Any] = {
            "weight_dtype": None if pool["weights"] == "as published" else pool["weights"],
            "kv_dtype": None if pool["kv"] == "as published" else pool["kv"],
        }
        made = server(
            inputs["model"],
            pool["gpu"],
            Parallel(*map(float, degrees.groups())),
            backend=inputs["backend"],
            max_num_seqs=int(inputs["max_num_seqs_count"]),
            max_num_batched_tokens=int(inputs["max_num_batched_tokens"]),
            instances=int(pool["pool_instances"]),
            **(own | options),
        )
        found.append(PoolOf(pool["name"], made, low, high))
    return found


def read_plan(path: str | Path) -> Mapping[str, Any]:
    """A saved answer of `dmodels plan --json`."""
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise broken(path, error) from None
    if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
        raise InputError(f"{path}: no answer of a command; accepted is what `dmodels plan --json` printed")
    return found
