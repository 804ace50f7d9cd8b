"""The servers of a fleet that was planned and saved."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.core.files import broken, read_text
from dmodels.core.hardware import Parallel
from dmodels.core.precision import Precision
from dmodels.core.records import float64
from dmodels.models.memory import kv_bytes_per_token, with_kv_dtype

from .playing import PoolOf, SimulatedServer, SplitServers, server


def of_plan(answer: Mapping[str, Any], **options: Any) -> list[PoolOf]:
    """The servers of the fleet that a saved answer of `dmodels plan --json` recommends."""
    best = answer.get("result", {}).get("recommended") if answer.get("command") == "plan" else None
    if not best:
        raise InputError("plan: no answer of `dmodels plan --json` with a recommended fleet; accepted is such a file")
    pools, inputs = best["pools"], answer["inputs"]
    if inputs["asked"]["gpu"].get("file"):
        options.setdefault("gpu_file", inputs["asked"]["gpu"]["file"])
    made = [_server(pool, inputs, options) for pool in pools]
    if any(pool["role"] != "serve" for pool in pools):
        by_role = {pool["role"]: one for pool, one in zip(pools, made, strict=True)}
        split = SplitServers((by_role["prefill"], by_role["decode"]), _transfer_s(pools, inputs, options))
        return [PoolOf("all", split)]
    edges = [0.0, *([best["router"]["threshold_tokens"]] if len(pools) > 1 else []), np.inf]
    return [PoolOf(pool["name"], *one) for pool, *one in zip(pools, made, edges, edges[1:], strict=False)]


def _server(pool: Mapping[str, Any], inputs: Mapping[str, Any], options: Mapping[str, Any]) -> SimulatedServer:
    """The instances of a pool."""
    own: dict[str, Any] = {
        "weight_dtype": None if pool["weights"] == Precision.AS_PUBLISHED else pool["weights"],
        "kv_dtype": None if pool["kv"] == Precision.AS_PUBLISHED else pool["kv"],
    }
    return server(
        inputs["model"],
        pool["gpu"],
        _parallel(pool),
        backend=inputs["backend"],
        max_num_seqs=int(inputs["max_num_seqs_count"]),
        max_num_batched_tokens=int(inputs["max_num_batched_tokens"]),
        instances=int(pool["pool_instances"]),
        **{**own, **options},
    )


def _parallel(pool: Mapping[str, Any]) -> Parallel:
    degrees = re.fullmatch(r"tp(\d+)pp(\d+)dp(\d+)ep(\d+)", pool["layout"])
    if degrees is None:
        raise InputError(f"plan: layout {pool['layout']!r}; accepted are names like tp8pp1dp1ep1")
    return Parallel(*map(float, degrees.groups()))


@float64
def _transfer_s(pools: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any], options: Mapping[str, Any]) -> float:
    """Seconds of a prompt token from a prefill worker's GPUs, each of which sends its share of the cache."""
    pool = next(pool for pool in pools if pool["role"] == "prefill")
    record, gpu = catalog.model(inputs["model"]), catalog.gpu(pool["gpu"], options.get("gpu_file"))
    if pool["kv"] != Precision.AS_PUBLISHED:
        record = with_kv_dtype(record, pool["kv"].lower())
    sent = float(kv_bytes_per_token(record, _parallel(pool).tp))
    return sent / float(gpu.nic_bytes_per_s_per_gpu_oneway)


def read_plan(path: str | Path) -> Mapping[str, Any]:
    """A saved answer of `dmodels plan --json`."""
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise broken(path, error) from None
    if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
        raise InputError(f"{path}: no answer of a command; accepted is what `dmodels plan --json` printed")
    return found
