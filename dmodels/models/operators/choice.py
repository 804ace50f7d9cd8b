"""Which of an engine's kernels runs a shape: a small decision tree over the shape, as the engine's own dispatch is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from dmodels.core.records import Real

#: A leaf is the kernel's number; a node is (feature, threshold, at or below it, above it). A feature is a field of the
#: shape, `field%128` (whether a matrix' side is a whole number of tiles), or `field/other` (heads of a KV head).
Tree = Any


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
    if "/" in name:
        above, below = name.split("/")
        return shape[above] / shape[below]
    field, _, modulus = name.partition("%")
    return shape[field] % float(modulus) if modulus else shape[field]


def chosen(tree: Tree, shape: Mapping[str, Real]) -> Real:
    """The kernel's number for every shape.

    >>> tree = ["m", 16.0, 1, 0]
    >>> int(chosen(tree, {"m": 8.0})), int(chosen(tree, {"m": 32.0}))
    (1, 0)
    """
    if not isinstance(tree, list | tuple):
        return jnp.asarray(float(tree))
    name, threshold, low, high = tree
    return jnp.where(feature(shape, name) <= threshold, chosen(low, shape), chosen(high, shape))
