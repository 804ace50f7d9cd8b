"""Which of an engine's kernels runs a shape: a small decision tree over the shape, as the engine's own dispatch is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from dmodels.core.records import Real

#: A leaf is the kernel's number; a node is (feature, threshold, at or below it, above it). A feature is a product of
#: fields, over another product (heads of a KV head), or what is left of it by a modulus (whether a side is a whole
#: number of tiles). A node of `LISTED` has shapes in place of a threshold: (experts of a rank, their width) that an
#: engine lists; those that are not among them go the first way.
Tree = Any
LISTED = "listed"


class Choice(NamedTuple):
    """Constants of each kernel, u (kernels, ranges, constants), and the tree that chooses."""

    u: Real
    tree: Tree = 0
    kernels: tuple[str, ...] = ("",)


def feature(shape: Mapping[str, Real], name: str) -> Real:
    """The values of a feature.

    >>> feature({"n": 130.0}, "n%128")
    2.0
    >>> feature({"num_heads": 64.0, "num_key_value_heads": 8.0}, "num_heads/num_key_value_heads")
    8.0
    """
    ratio, _, modulus = name.partition("%")
    above, _, below = ratio.partition("/")
    value: Real = math.prod(shape[field] for field in above.split("*"))
    if below:
        value = value / math.prod(shape[field] for field in below.split("*"))
    return value % float(modulus) if modulus else value


def listed(shape: Mapping[str, Real], pairs: Sequence[Sequence[float]]) -> Real:
    """Whether the experts of a rank and their width are among the pairs.

    >>> shape = {"num_experts": 128.0, "moe_ep_size": 2.0, "inter_size": 1536.0, "moe_tp_size": 1.0}
    >>> bool(listed(shape, [(64.0, 1536.0)])), bool(listed(shape, []))
    (True, False)
    """
    own = (feature(shape, "num_experts/moe_ep_size"), feature(shape, "inter_size/moe_tp_size"))
    found: Real = own[0] < 0
    for experts, width in pairs:
        found = found | ((own[0] == experts) & (own[1] == width))
    return found


def with_listed(tree: Tree, pairs: Sequence[Sequence[float]]) -> Tree:
    """The tree with these pairs in its nodes of `LISTED`."""
    if not isinstance(tree, list | tuple):
        return tree
    name, threshold, low, high = tree
    return [name, pairs if name == LISTED else threshold, with_listed(low, pairs), with_listed(high, pairs)]


def chosen(tree: Tree, shape: Mapping[str, Real]) -> Real:
    """The kernel's number for every shape.

    >>> tree = ["m", 16.0, 1, 0]
    >>> int(chosen(tree, {"m": 8.0})), int(chosen(tree, {"m": 32.0}))
    (1, 0)
    """
    if not isinstance(tree, list | tuple):
        return jnp.asarray(float(tree))
    name, threshold, low, high = tree
    above = listed(shape, threshold) if name == LISTED else feature(shape, name) > threshold
    return jnp.where(above, chosen(high, shape), chosen(low, shape))
