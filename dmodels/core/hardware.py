"""The machine: one GPU, how GPUs are put together into an instance, and the fabric between instances."""

from __future__ import annotations

from .records import Real, Record, quantity


class GPU(Record):
    """One accelerator. Peaks are dense (no sparsity); 0 means "has none". Links count one direction, per GPU."""

    memory_bytes: Real = quantity()  # as the driver reports it
    hbm_bytes_per_s: Real = quantity()
    peak_flop_per_s: Real = quantity()  # BF16/FP16
    peak_fp8_flop_per_s: Real = quantity(0.0)
    peak_fp4_flop_per_s: Real = quantity(0.0)
    nvlink_bytes_per_s_oneway: Real = quantity(0.0)  # scale-up link (NVLink, Infinity Fabric; PCIe where there is none)
    nic_bytes_per_s_per_gpu_oneway: Real = quantity(0.0)  # scale-out
    gpus_per_node: Real = quantity(8.0)  # GPUs in one scale-up domain
    tdp_w: Real = quantity(0.0)
    price_usd_per_hour: Real = quantity(0.0, at_least=0)  # one GPU, one hour
    sm_count: Real = quantity(0.0)  # streaming multiprocessors (compute units, Xe cores); 0 means "not stated"
    l2_bytes: Real = quantity(0.0)  # last-level cache; 0 means "not stated"


class Parallel(Record):
    """How one instance is laid over GPUs, written `tp8pp1dp1ep8`. It occupies tp * pp * dp GPUs.

    tp splits heads and FFNs, pp splits layers, dp replicates attention (each rank has its own KV pool and its own
    requests) while experts stay spread over all tp * dp GPUs of a stage; ep of these hold whole experts, the
    remaining factor tp * dp / ep splits each expert.
    """

    tp: Real = quantity(1.0, at_least=1)
    pp: Real = quantity(1.0, at_least=1)
    dp: Real = quantity(1.0, at_least=1)
    ep: Real = quantity(1.0, at_least=1)

    @property
    def gpus(self) -> Real:
        """GPUs of one instance."""
        return self.tp * self.pp * self.dp


class Fabric(Record):
    """A network between instances: what one link carries in one direction, and a small message's latency."""

    bytes_per_s_oneway: Real = quantity(above=0)
    latency_s: Real = quantity(0.0, at_least=0)


class SLO(Record):
    """Promises to keep: a bound in seconds on a percentile of TTFT, TPOT and E2E. inf: no promise."""

    ttft_s: Real = quantity(float("inf"), above=0)
    tpot_s: Real = quantity(float("inf"), above=0)
    e2e_s: Real = quantity(float("inf"), above=0)
    percentile: Real = quantity(0.99, above=0, below=1)  # of requests that must meet each bound
