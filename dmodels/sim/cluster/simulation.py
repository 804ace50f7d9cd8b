r"""A prefill/decode cluster whose workers change roles: Phasor's loop and its baselines, in one compiled event loop.

Unlike `disaggregated`, stages are coupled: a control epoch looks at both pools, standby workers join either, sequences
move between decoders, and with a closed loop of clients an answer brings the next request. Prefill workers serve one
prompt at a time; decoders step all their sequences together, t(n) = W + H n, and admit a sequence only if blocks for
all its tokens are free (nothing is ever preempted). Decoding starts when a decoder has room; until then the KV cache
waits, and so does everyone behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmodels.core.compiled import NONE
from dmodels.core.errors import InputError
from dmodels.sim.requests import Requests

from . import engine, hybrid, state
from .records import ClusterRun, Control, Hybrid, Role, Workers


def simulate(
    arrival_s: Any,
    input_tokens: Any,
    output_tokens: Any,
    prefill_s: Any,
    cluster: Workers,
    control: Control | Hybrid = Control(),  # noqa: B008 - a tuple of constants
    *,
    virtual_s: Any = None,
    clients: int = 0,
) -> ClusterRun:
    """Serve requests (n,). `prefill_s` (n,) is what a prompt takes; `virtual_s` what the router believes it takes.

    With `clients` above 0 the loop is closed: so many requests are in flight, the next in the list arrives when one
    ends, and `arrival_s` only spaces the first ones out.
    """
    requests = Requests.checked(arrival_s, input_tokens, output_tokens)
    n = requests.arrival_s.size
    if not 0 <= clients <= n:
        raise InputError(f"clients = {clients}; accepted: 0 to the number of requests, {n}")
    _check(cluster, control)
    rows = np.zeros(n, state.REQUEST)
    rows["arrival"], rows["prompt"], rows["left"] = requests[:3]
    rows["seconds"] = prefill_s
    rows["believed"] = prefill_s if virtual_s is None else virtual_s
    rows["blocks"] = np.ceil((requests.input_tokens + requests.output_tokens) / cluster.block_tokens)
    rows["after"] = NONE
    rows["first"] = rows["end"] = np.nan
    if not (np.isfinite(rows["seconds"]).all() and (rows["seconds"] > 0).all() and np.isfinite(rows["believed"]).all()):
        raise InputError("prefill_s, virtual_s: accepted are finite seconds, prefill above 0")
    if n and (most := rows["blocks"].max()) > cluster.kv_blocks:
        raise InputError(f"kv_blocks {cluster.kv_blocks:g}: a request needs {most:g}; accepted: at least that")
    floor = _floor(rows, cluster, control, clients)
    machine = state.Machine(
        base_s=float(cluster.step.base_s),
        per_sequence_s=float(cluster.step.per_sequence_s),
        slots=int(cluster.slots),
        kv_blocks=float(cluster.kv_blocks),
        block_transfer_s=float(cluster.block_transfer_s),
        ttft_slo_s=float(cluster.ttft_slo_s),
    )
    if isinstance(control, Hybrid):
        epochs, queues = hybrid.run(floor, machine, _hybrid_rules(control, cluster), hybrid.prompts(floor))
    else:
        rules = state.ControlRules(int(control.signal), int(control.flow), *map(float, control[2:]))
        epochs, queues = engine.run(floor, machine, rules)
    tally = floor.tally[0]
    return ClusterRun(
        arrival_s=rows["arrival"].copy(),
        first_token_s=rows["first"].copy(),
        end_s=rows["end"].copy(),
        output_tokens=requests.output_tokens,
        worker=rows["worker"].copy(),
        epoch_s=epochs[:, 0],
        queues=queues,
        batch=epochs[:, 1],
        stranded_frac=epochs[:, 2],
        changes=int(tally["changes"]),
        moved_blocks=float(tally["moved"]),
    )


def _hybrid_rules(control: Hybrid, cluster: Workers) -> state.HybridRules:
    return state.HybridRules(
        chunk=float(control.chunk_tokens),
        decode_chunk=float(control.decode_chunk_tokens),
        watermark=float(control.watermark_frac * cluster.kv_blocks),
        flows=bool(control.watermark_frac < 1),
        late_s=float(control.back_frac * control.tpot_slo_s),
        epoch_s=float(control.epoch_s),
    )


def _check(cluster: Workers, control: Control | Hybrid) -> None:
    if not (cluster.prefill >= 1 and cluster.decode >= 1 and cluster.standby >= 0 and cluster.slots >= 1):
        raise InputError(
            f"prefill {cluster.prefill}, decode {cluster.decode}, standby {cluster.standby}, slots "
            f"{cluster.slots}; accepted: at least one of each, standby from 0"
        )
    if not np.isfinite(cluster.kv_blocks):
        raise InputError(f"kv_blocks {cluster.kv_blocks}; accepted: a finite number, freeness is a share of it")
    if isinstance(control, Hybrid):
        _check_hybrid(cluster, control)
    elif not (control.epoch_s > 0 and 0 < control.theta_flow < 1 and 0 <= control.theta_frag < 1):
        raise InputError(
            f"epoch_s {control.epoch_s}, theta_flow {control.theta_flow}, theta_frag "
            f"{control.theta_frag}; accepted: above 0, between 0 and 1, from 0 to 1"
        )


def _check_hybrid(cluster: Workers, control: Hybrid) -> None:
    if cluster.standby:
        raise InputError(f"standby {cluster.standby}; accepted with Hybrid is 0: every worker does both")
    if not (control.chunk_tokens >= 1 and (control.decode_chunk_tokens >= 1 or control.decode_chunk_tokens == 0)):
        raise InputError(
            f"chunk_tokens {control.chunk_tokens}, decode_chunk_tokens {control.decode_chunk_tokens}; accepted: "
            "from 1, and from 1 or 0"
        )
    if not (
        0 < control.watermark_frac <= 1 and control.tpot_slo_s > 0 and control.back_frac > 0 and control.epoch_s > 0
    ):
        raise InputError(
            f"watermark_frac {control.watermark_frac}, tpot_slo_s {control.tpot_slo_s}, back_frac {control.back_frac}, "
            f"epoch_s {control.epoch_s}; accepted: above 0, the first up to 1"
        )


def _floor(rows: np.ndarray, cluster: Workers, control: Control | Hybrid, clients: int) -> state.Floor:
    """Before the first arrival."""
    workers = np.zeros(cluster.prefill + cluster.decode + cluster.standby, state.WORKER)
    workers["role"] = np.repeat(list(Role), [cluster.prefill, cluster.decode, cluster.standby])
    workers["head"] = NONE
    workers["done_at"] = workers["step_at"] = np.inf
    tally = np.zeros(1, state.TALLY)
    tally["horizon"], tally["closed"] = clients or rows.size, clients > 0
    tally["mean_blocks"] = np.ceil(rows["blocks"].mean()) if rows.size else 1.0
    tally["next_epoch"] = control.epoch_s
    lines = np.zeros((workers.size, int(cluster.slots)), np.int64)
    return state.Floor(workers, rows, lines, np.zeros(rows.size, np.int64), tally)
