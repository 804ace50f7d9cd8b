r"""Laws of operators: seconds of a GPU kernel from its shape, the GPU's data sheet, and fitted constants.

A layer is a list of `Operator`s, each a kind, a shape (numbers that broadcast) and a number format. `time_s` gives the
seconds of one kind for arrays of shapes, in JAX, differentiable; `layer_s` adds up a list. The constants come from
measured tables (`dmodels.fit.operators.coefficients`); where none are given, each law's typical values are used with
the GPU's data sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError, unknown
from dmodels.core.hardware import GPU
from dmodels.core.records import Floats, Real

from .choice import Choice, chosen
from .constants import Constant, merged, origins, values
from .formats import FORMATS, Format, cache_bytes, number_format, peak_flop_per_s
from .laws import LAWS, Law, law

__all__ = [
    "FORMATS",
    "LAWS",
    "Choice",
    "Constant",
    "Law",
    "Operator",
    "cache_bytes",
    "floor_s",
    "kernel_s",
    "law",
    "layer_s",
    "number_format",
    "time_s",
    "typical",
]


class Operator(NamedTuple):
    """One operator of a layer: which kernel, on what shape, in which format, and how many of it."""

    kind: str
    shape: Mapping[str, Real]
    dtype: str = "bfloat16"
    count: Real = 1.0


def typical(kind: str) -> Floats:
    """(ranges, constants): the typical constants of a kind, in u, for every range between its switches."""
    of = law(kind)
    return np.tile(origins(of.constants), (len(of.edges) + 1, 1))


def time_s(
    kind: str, shape: Mapping[str, Real], dtype: str, gpu: GPU, u: Choice | Real | None = None, warm: float = 0.0
) -> Real:
    """Seconds of one call of the operator, for every shape; never less than the data sheet allows.

    `u` (ranges, constants) holds the constants of each range between the law's switches, as `typical(kind)` does, or of
    several kernels with the tree that chooses between them. A kernel's time is at least what its ranges below give at
    their upper ends, so it never falls where the engine switches tiles.
    `warm` 1: a benchmark's loop over one matrix, which may stay in the last-level cache (see `gemm.seconds`).

    A 16-bit product with m = 1, n = k = 8192 moves 134 MB: at 3.35 TB/s no less than 40 us on an H100.

    >>> from dmodels.core.hardware import GPU
    >>> h100 = GPU(79e9, 3.35e12, 989e12, sm_count=132)
    >>> 40e-6 < float(time_s("gemm", {"m": 1.0, "n": 8192.0, "k": 8192.0}, "bfloat16", h100)) < 60e-6
    True
    """
    of, form = law(kind), number_format(dtype)
    for field in of.fields:
        if field not in shape:
            raise InputError(f"{kind}: {field} is missing; a shape has {', '.join(of.fields)}")
    for field in shape:
        if field not in of.fields:
            raise unknown(f"field of {kind}", field, of.fields)
    like = np.broadcast_shapes(*(jnp.shape(shape[field]) for field in of.fields))
    flat = merged({field: shape[field] for field in of.fields})
    choice = u if isinstance(u, Choice) else Choice(jnp.asarray(typical(kind) if u is None else u)[None])
    which = chosen(choice.tree, flat)
    found: Real = 0.0
    for i, constants in enumerate(choice.u):
        found = jnp.where(which == i, kernel_s(of, flat, form, gpu, constants, warm), found)
    if warm == 0.0:
        found = jnp.maximum(found, floor_s(kind, flat, dtype, gpu))
    return jnp.reshape(found, like)


def kernel_s(of: Law, shape: dict[str, Real], form: Format, gpu: GPU, u: Real, warm: float = 0.0) -> Real:
    """Seconds by one kernel, of a flat shape, by u (ranges, constants). A law that climbs never falls at an edge."""
    here = shape[of.switch]

    def by(constants: Real, edge: Real) -> Real:
        rows = jnp.broadcast_to(constants, (*here.shape, len(of.constants)))
        return of.seconds(shape | {of.switch: jnp.minimum(here, edge)}, values(of.constants, rows), gpu, form, warm)

    took = jax.vmap(by)(jnp.asarray(u), jnp.array([*of.edges, jnp.inf]))
    reached = here[None, :] > jnp.array([-jnp.inf, *of.edges])[:, None]
    if not of.climbs:
        reached &= here[None, :] <= jnp.array([*of.edges, jnp.inf])[:, None]
    return jnp.max(jnp.where(reached, took, 0.0), axis=0)


def floor_s(kind: str, shape: Mapping[str, Real], dtype: str, gpu: GPU) -> Real:
    """Seconds that no kernel can undercut: the FLOPs at the peak or the bytes at the bandwidth of the
    data sheet (the memory's, or the link's).

    >>> from dmodels.core.hardware import GPU
    >>> float(floor_s("gemm", {"m": 1.0, "n": 1e3, "k": 1e3}, "bfloat16", GPU(79e9, 2.004e12, 1e15)))
    1e-06
    """
    form = number_format(dtype)
    of = law(kind)
    flops, bytes_ = of.work(dict(shape), form)
    return jnp.maximum(flops / peak_flop_per_s(gpu, form), bytes_ / of.bandwidth(dict(shape), gpu))


def layer_s(
    operators: Sequence[Operator], gpu: GPU, constants: Callable[[str, str], Choice | Real] | None = None
) -> Real:
    """Seconds of operators one after the other. `constants(kind, dtype)` gives each u, as `Coefficients.at` does."""
    total: Real = 0.0
    for o in operators:
        u = None if constants is None else constants(o.kind, o.dtype)
        total = total + o.count * time_s(o.kind, o.shape, o.dtype, gpu, u)
    return total
