"""Which law gives the time of which kind of operator, and where its kernels switch.

A kind has one law and several kinds may share one. `edges` are values of the field `switch` at which engines take
another kernel or tile (CUTLASS and cuBLAS choose by m; decoding kernels are compiled per head dimension): each range
has constants of its own, which the fit pulls towards each other. Where a law `climbs`, time never falls at an edge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dmodels.core.errors import unknown
from dmodels.core.hardware import GPU
from dmodels.core.records import Real

from . import attention, block, collective, gemm, moe, recurrent
from .constants import Constant


class Law(NamedTuple):
    """Fields of a shape, constants, the formula, the work that no kernel can avoid, and where kernels switch."""

    fields: tuple[str, ...]
    constants: tuple[Constant, ...]
    seconds: Callable[..., Real]
    work: Callable[..., tuple[Real, Real]]
    switch: str
    edges: tuple[float, ...]
    bandwidth: Callable[[dict[str, Real], GPU], Real] = lambda shape, gpu: gpu.hbm_bytes_per_s
    climbs: bool = True  # whether time may not fall where `switch` passes an edge


_GEMM = Law(gemm.FIELDS, gemm.CONSTANTS, gemm.seconds, gemm.work, "m", (16.0, 64.0, 128.0, 256.0, 1024.0))
_MOE = Law(moe.FIELDS, moe.CONSTANTS, moe.seconds, moe.work, "num_tokens", (24.0, 128.0, 1024.0, 4096.0))
_CONTEXT = Law(
    attention.FIELDS, attention.CONTEXT_CONSTANTS, attention.context_seconds, attention.work, "isl", (64.0, 512.0)
)
_GENERATION = Law(
    attention.FIELDS,
    attention.GENERATION_CONSTANTS,
    attention.generation_seconds,
    attention.work,
    "qk_dim",
    (64.0, 128.0, 192.0, 256.0),
    climbs=False,
)
_COLLECTIVE = Law(
    collective.FIELDS,
    collective.CONSTANTS,
    collective.seconds,
    collective.work,
    "message_bytes",
    (2.0**16, 2.0**21, 2.0**25),
    collective.link_bytes_per_s,
)
_RECURRENT = Law(recurrent.FIELDS, recurrent.CONSTANTS, recurrent.seconds, recurrent.work, "seq_len", (256.0,))
_PROMPT_BLOCK = Law(block.FIELDS, block.CONSTANTS, block.seconds, block.work, "isl", (16.0, 512.0))
_TOKEN_BLOCK = Law(block.FIELDS, block.CONSTANTS, block.seconds, block.work, "batch_size", (16.0, 128.0))

#: Attention blocks that engines time as one module.
BLOCKS = ("mla", "dsa", "msa", "dsv4_csa", "dsv4_hca")

LAWS: dict[str, Law] = {
    "gemm": _GEMM,
    "moe": _MOE,
    "context_attention": _CONTEXT,
    "encoder_attention": _CONTEXT,
    "context_mla": _CONTEXT,
    "generation_attention": _GENERATION,
    "generation_mla": _GENERATION,
    **{f"{name}_context_module": _PROMPT_BLOCK for name in BLOCKS},
    **{f"{name}_generation_module": _TOKEN_BLOCK for name in BLOCKS},
    **{
        f"{name}_{part}": _RECURRENT
        for name in ("gdn", "kda", "mamba2")
        for part in ("conv", "recurrence", "conv_step", "step")
    },
    **{name: _COLLECTIVE for name in collective.SENDS},
}


def law(kind: str) -> Law:
    """The law of a kind of operator."""
    if kind not in LAWS:
        raise unknown("operator", kind, LAWS)
    return LAWS[kind]
