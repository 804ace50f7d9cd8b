"""NetKV's Table V at packet level: the transfers of the flow-level runs sent again as packets on the same links.

Decisions, starts and batches are those of the flow level; what changes is how long a transfer takes, and TTFT by as
much. So this says what fluid flows miss on this fabric: queues at links and, at equal windows, shares that are equal
per flow at each link instead of max-min fair over all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.papers._netkv_setting import windows
from benchmarks.papers._packets import transfers_s
from benchmarks.papers._printed import verdicts
from dmodels.core.routing import RoutingPolicy
from dmodels.sim.estimate import mean_of
from dmodels.sim.network import RAG, netkv_cluster, simulate
from dmodels.studies.transfer.policies import MEASURE_S, WARMUP_S
from proofs.papers.rows import Printed

CLA, FULL = RoutingPolicy.CACHE_LOAD, RoutingPolicy.NETKV_FULL
SIZES = {64: 2, 128: 4}  # GPUs -> pods
#: Table V, packet level: TTFT reduction (%), SLO attainment gained (points), transfer of NetKV and CLA* (ms).
PRINTED = {64: ("7.0", "1.0", "451", "559"), 128: ("7.4", "1.0", "451", "565")}
WINDOWS = {64: (8, 32), 128: (8,)}  # packets of 256 KiB; 8 are more than 12.5 Gbit/s need over six hops
HOW = (
    "lossless packets of 256 KiB, FIFO links, 8 on their way per flow: as the flow level, so packets do not explain "
    "the printed gap"
)


def seen(gpus: int, policy: RoutingPolicy, k: int, count: int) -> dict[str, float]:
    """Means over one window of arrivals, at flow level and at packet level."""
    cluster = netkv_cluster(SIZES[gpus])
    arrivals = windows(RAG, 1.0, count, len(cluster.decode))(k)
    run = simulate(cluster, arrivals, policy, seed=k, sees_inbound=False)
    here = (run.arrival_s >= WARMUP_S) & (run.arrival_s < WARMUP_S + MEASURE_S)
    ready = np.asarray(arrivals.arrival_s) + np.asarray(arrivals.prefill_s)
    found = {"flow_s": float(np.nanmean(run.transfer_s[here]))}
    for window in WINDOWS[gpus]:
        sent = transfers_s(cluster, run, ready, k, window)
        later = np.nan_to_num(sent - run.transfer_s)
        ttft = (run.ttft_s + later)[here]
        found |= {
            f"packet_{window}_s": float(np.nanmean(sent[here])),
            f"ttft_{window}_s": float(np.nanmean(ttft)),
            f"slo_{window}": float((ttft <= RAG.ttft_slo_s).mean()),
        }
    return found


def packet_rows(quick: bool = False) -> Iterator[Printed]:
    """Table V, packet level, and the ratio of packet to flow level that it stands on."""
    count = 2 if quick else 10
    for gpus in SIZES:
        runs = {policy: [seen(gpus, policy, k, count) for k in range(count)] for policy in (CLA, FULL)}
        of = lambda policy, name, runs=runs: np.array([run[name] for run in runs[policy]])
        first = WINDOWS[gpus][0]
        cut = 100 * (1 - of(FULL, f"ttft_{first}_s") / of(CLA, f"ttft_{first}_s"))
        ours = (
            ("cut_pct", "TTFT reduction", "%", cut),
            (
                "slo_points",
                "SLO attainment gained",
                "points",
                100 * (of(FULL, f"slo_{first}") - of(CLA, f"slo_{first}")),
            ),
            ("full_xfer_ms", "mean transfer, NetKV", "ms", 1e3 * of(FULL, f"packet_{first}_s")),
            ("cla_xfer_ms", "mean transfer, CLA*", "ms", 1e3 * of(CLA, f"packet_{first}_s")),
        )
        for (key, what, unit, values), printed in zip(ours, PRINTED[gpus], strict=True):
            value, name = mean_of(values), f"{what}, {gpus} GPUs (packet level)"
            told = f"t5p_{gpus}_{key}", "Table V", printed, value.value, "relative 0.1", HOW, name, unit
            yield Printed(*told, value.low, value.high)
        for policy, short in ((FULL, "full"), (CLA, "cla")):
            for window in WINDOWS[gpus]:
                value = mean_of(of(policy, f"packet_{window}_s") / of(policy, "flow_s"))
                how = f"the same transfers on the same links, {window} packets on their way; printed: 0.75 and 0.70"
                what = f"packet level over flow level, mean transfer, {policy}, {gpus} GPUs"
                key = f"packet_over_flow_{gpus}_{short}_w{window}"
                yield Printed(key, "Table V", "", value.value, "", how, what, "1", value.low, value.high)


verdicts("netkv_packets", "netkv/packets", "NetKV. Table V at packet level", __file__, packet_rows)
