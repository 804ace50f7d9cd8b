"""How a benchmark row says over which GPUs the model was laid, in each of the spellings that exports use.

Exports of the InferenceX runs (they say `wip=` or `db-dump`) write an instance of N GPUs with expert parallelism as
tp = moe_tp * moe_ep with moe_tp = N and moe_ep = N, so that tp = 64 is an instance of 8; the same runs appear elsewhere
as tp = 8. With attention data parallelism they put the product into `attention_dp_size`. Rows of separate prefill and
decode instances from the same exports state the GPUs of one instance of each kind, but neither the number of instances
nor whether attention is data parallel, or only the GPUs of all instances in one number: the published deployments of
those runs tell (`recipes`). What is not listed there is assumed (`stated` is False) by the rules below, which are the
habits of those rows that state both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from dmodels.core.errors import InputError

from .recipes import Layout, candidates, recipe

#: Longest scale-up domain in the data (NVL72); an "aggregated" row above a node is a sum over separate instances.
NODE_GPUS = 8.0
#: Models that need several GPUs of any kind in the data.
LARGE = re.compile("deepseek-(r1|v3)|kimi", re.IGNORECASE)


class Deployment(NamedTuple):
    """What a row ran on."""

    decode: Layout
    prefill: Layout
    concurrency: float  # clients
    stated: bool  # by the row, or by the only published deployment that agrees with it
    draft_tokens: float | None = None  # drafted per step, where the deployment says so


def layouts(cell: Mapping[str, str], mode: str) -> Deployment:
    """The deployment of a row."""
    if mode == "disagg":
        return _separate(cell)
    dp = max(whole(cell, "attention_dp_size", 0.0), 1.0)
    tp, moe_tp, ep = whole(cell, "tp_size"), whole(cell, "moe_tp_size", 1.0), whole(cell, "moe_ep_size", 1.0)
    moe_tp, ep = max(moe_tp, 1.0), max(ep, 1.0)
    clients = whole(cell, "batch_size") * dp
    if whole(cell, "pp_size", 1.0) > 1:
        raise InputError(f"pp_size is {cell['pp_size']}; rows with pipeline stages are not supported")
    if tp > NODE_GPUS and ep == 1 and tp == moe_tp:
        return _sum_of_instances(cell, tp, clients)
    if _is_inferencex(cell) and ep > 1 and moe_tp * ep == tp * dp:
        if moe_tp > 1:  # GPUs written as moe_tp
            tp, dp = (1.0, moe_tp) if dp > 1 else (moe_tp, 1.0)
        elif tp > 1:  # tensor-parallel attention; the dp column repeats tp
            dp = 1.0
    layout = Layout(tp, dp, min(ep, tp * dp))
    return Deployment(layout, layout, clients, True)


def whole(cell: Mapping[str, str], column: str, default: float | None = None) -> float:
    """A whole number >= 1 (>= 0 where 0 is the default); `default` where the cell is empty."""
    text = cell.get(column, "")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value.is_integer() and value >= (1.0 if default is None else 0.0)):
        said = f"is {text!r}" if column in cell else "is no column"
        raise InputError(f"{column} {said}; a whole number of at least 1 is accepted")
    return value


def stated_concurrency(cell: Mapping[str, str]) -> float:
    """Clients as the data source states them (`silicon_concurrency=`); 0 where it does not."""
    found = re.search(r"silicon_concurrency=(\d+)", cell.get("silicon_data_source", ""))
    return float(found[1]) if found else 0.0


def _separate(cell: Mapping[str, str]) -> Deployment:
    prefill, decode = (_side(cell, side) for side in ("prefill", "decode"))
    batch, clients = whole(cell, "decode_batch_size", 0.0), stated_concurrency(cell)
    stated = min(prefill.instances, decode.instances) > 0
    clients = clients or batch * decode.dp * decode.instances
    if clients < 1:
        raise InputError("concurrency is missing; state decode_batch_size, or silicon_concurrency in the data source")
    if stated:
        same = [
            r
            for r in candidates(cell, clients, prefill.gpus, prefill.ep, decode.gpus)
            if r.decode._replace(batch=math.inf) == decode
        ]
        same.sort(key=lambda r: r.draft_tokens)  # exports that state instances left speculative runs out
        return Deployment(decode._replace(batch=same[0].decode.batch) if same else decode, prefill, clients, True)
    listed, only = recipe(cell, clients, prefill.gpus, prefill.ep, decode.gpus)
    if listed:
        return Deployment(listed.decode, listed.prefill, clients, only, listed.draft_tokens)
    if decode.gpus == 1 and LARGE.search(cell.get("model_path", "")):  # does not fit: the export lost the layout
        prefill = Layout(4.0)
        decode = Layout(1.0, 32.0, 32.0) if clients >= 256 else Layout(4.0)
    gpus, expert = decode.gpus, decode.gpus if decode.ep > 1 else 1.0
    prefill = Layout(1.0, prefill.gpus, prefill.gpus if prefill.ep > 1 else 1.0, 0.0)
    if (gpus >= NODE_GPUS or expert > 1) and (gpus >= 3 * NODE_GPUS or clients >= 32 * gpus):
        wide = Layout(1.0, gpus, gpus, 1.0)  # or full: attention is replicated
        return Deployment(wide, prefill, clients, False)
    several = 1.0 if cell.get("backend") == "sglang" else min(4.0, clients)
    return Deployment(Layout(gpus, 1.0, expert, several), prefill, clients, False)


def _side(cell: Mapping[str, str], side: str) -> Layout:
    tp = whole(cell, f"{side}_tp_size")
    dp = max(whole(cell, f"{side}_attention_dp_size", 1.0), 1.0)
    ep = max(whole(cell, f"{side}_moe_ep_size", 1.0), 1.0)
    return Layout(tp, dp, min(ep, tp * dp), whole(cell, f"{side}_num_workers", 0.0))


def _sum_of_instances(cell: Mapping[str, str], gpus: float, clients: float) -> Deployment:
    """The GPUs of a whole deployment of separate instances, written as one tp. Where no deployment of so many GPUs is
    listed: prefill instances of 4, decode instances of 8 or one wide."""
    listed, only = recipe(cell, clients, gpus, 1.0, gpus)
    if listed:
        return Deployment(listed.decode, listed.prefill, clients, only, listed.draft_tokens)
    prefill = Layout(1.0, 4.0, 4.0, 0.0)
    if clients >= 16 * gpus:
        wide = max(8.0, 8.0 * (2 * gpus // 24))
        return Deployment(Layout(1.0, wide, wide, 1.0), prefill, clients, False)
    return Deployment(Layout(8.0, 1.0, 8.0, max(1.0, (gpus - 4.0) // 8)), prefill, clients, False)


def _is_inferencex(cell: Mapping[str, str]) -> bool:
    source = cell.get("silicon_data_source", "")
    return "wip=" in source or source.startswith("db-dump")
