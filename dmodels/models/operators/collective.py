r"""Time of a collective among r GPUs: a launch, a latency per rank, and the bytes that each GPU sends over its link.

$$t = t_0 + (r-1)\,\tau + \frac{V}{\beta\,b\,(2/r)^{\theta}}$$

V is what one GPU sends for a message of M bytes (the whole tensor): all-reduce $2M(r-1)/r$ as a ring, all-gather,
reduce-scatter and all-to-all $M(r-1)/r$. $\theta$ is how much ranks share the link's way (PCIe: nearly 1; NVLink
through a switch: 0). b is the link of the scale-up domain, or the network of the scale-out where r exceeds the
domain. Small messages have kernels of their own (one shot, low latency), hence the ranges.
"""

from __future__ import annotations

import jax.numpy as jnp

from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from .constants import Constant
from .formats import Format

FIELDS = ("message_bytes", "ranks", "sends")
CONSTANTS = (
    Constant("launch_us", 0.5, 1000.0, 8.0, "start and end of the kernel; of the whole call where no graph is used"),
    Constant("rank_us", 0.001, 20.0, 0.6, "latency of each further rank"),
    Constant("link_frac", 0.01, 1.0, 0.6, "of the link's data sheet, one direction, two ranks"),
    Constant("sharing_power", 0.001, 2.0, 0.1, "how the bandwidth falls with the ranks"),
)
#: Messages' worth that one GPU sends, per (r - 1) / r.
SENDS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def link_bytes_per_s(shape: dict[str, Real], gpu: GPU) -> Real:
    """The link that the collective uses: the scale-up domain's, or the network's beyond it."""
    return jnp.where(
        shape["ranks"] > gpu.gpus_per_node, gpu.nic_bytes_per_s_per_gpu_oneway, gpu.nvlink_bytes_per_s_oneway
    )


def work(shape: dict[str, Real], form: Format) -> tuple[Real, Real]:
    """(0 FLOPs, bytes that each GPU must send): with reduction in the switch an all-reduce sends its message once."""
    del form
    return 0.0 * shape["ranks"], shape["message_bytes"] * (shape["ranks"] - 1.0) / shape["ranks"]


def seconds(shape: dict[str, Real], c: dict[str, Real], gpu: GPU, form: Format, warm: float = 0.0) -> Real:
    """Seconds of a collective."""
    del warm
    ranks = shape["ranks"]
    rate = link_bytes_per_s(shape, gpu) * c["link_frac"] * (2.0 / ranks) ** c["sharing_power"]
    return 1e-6 * (c["launch_us"] + c["rank_us"] * (ranks - 1.0)) + shape["sends"] * work(shape, form)[1] / rate
