"""What the parameter counts are made from: the sizes of a config, and the parts in which weights are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .fields import Fields


class Part(NamedTuple):
    """Parameters that are stored together. `module` is relative to the layer; vectors are never quantised."""

    component: str  # attention, dense or expert
    module: str
    params: int
    matrix: bool = True
    every_rank: bool = False  # whole on every tensor-parallel rank


@dataclass(frozen=True)
class Shape:
    """Sizes and family habits that the counts need."""

    family: str
    hidden: int
    heads: int
    kv_heads: int  # of full layers
    head_dim: int  # of full layers
    sliding_kv_heads: int
    sliding_head_dim: int
    intermediate: int
    f: Fields


def vector(component: str, module: str, params: int) -> Part:
    """Norms and biases: never quantised, whole on every rank."""
    return Part(component, module, int(params), matrix=False, every_rank=True)


class LinearSizes(NamedTuple):
    """Sizes of a layer with a constant state of heads x head_dim x state numbers."""

    kind: str
    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    conv_channels: int


def linear_sizes(s: Shape) -> LinearSizes:
    """What kind of linear layer the config describes, and its sizes."""
    f = s.f
    if f.raw("linear_num_value_heads") is not None:
        heads, d_v = f.count("linear_num_value_heads"), f.count("linear_value_head_dim")
        groups, d_k = f.count("linear_num_key_heads"), f.count("linear_key_head_dim")
        channels = 2 * groups * d_k + heads * d_v
        return LinearSizes("gated_delta_net", heads, d_v, d_k, groups, f.count("linear_conv_kernel_dim"), channels)
    if f.raw("attn_type_list") is not None:
        return LinearSizes("lightning", s.heads, s.head_dim, s.head_dim, s.heads, 1, 0)
    heads, d = f.count("mamba_num_heads"), f.count("mamba_head_dim")
    groups, state, kernel = f.count("n_groups"), f.count("ssm_state_size"), f.count("conv_kernel")
    return LinearSizes("mamba2", heads, d, state, groups, kernel, heads * d + 2 * groups * state)
