"""Linear assignment, exact and certified, for batches: the least-cost matching of rows to columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.records import Real
from dmodels.solvers import device
from dmodels.solvers.solution import Solution

from .host import real_array, solve_host, solve_small
from .records import solution_of

#: What a caller can ask for: those of `solvers.device`, and two engines in the precision of the costs.
BACKENDS = (*device.BACKENDS, "pallas", "xla")

_FLOAT64 = np.dtype(np.float64)


def assign(cost: Real, maximize: bool = False, *, backend: str = "auto") -> Solution:
    r"""The matching of rows to columns of least total cost: min over x of sum_i c[i, x_i], columns used at most once.

    `cost` is (..., n, m). min(n, m) pairs are matched; where n > m the other rows get column -1. Leading axes are a
    batch of independent problems. Whole costs are solved in exact integer arithmetic where float64 would round.
    An entry of +inf is forbidden (-inf where `maximize`).

    Returns a `Solution` with

    value         `columns` (..., n), `cost` (...,)
    certificate   `row_duals` u (..., n), `column_duals` v (..., m), `gap`, `reduced`: linear-programming duals.
                  u_i + v_j <= c_ij for all pairs, and the duals of the larger side are <= 0, so that
                  sum u + sum v is a lower bound on every matching's cost; `gap` is how far the cost is above it, and
                  `reduced` the least slack of all these constraints. (For `maximize`, all inequalities turn round.)
    flags         per problem: INFEASIBLE (columns -1, cost inf, and the duals are a Farkas ray: u_i + v_j <= 0 on
                  all pairs that are allowed while sum u + sum v > 0), NONFINITE (a NaN, or -inf among costs to
                  minimise), NOT_CONVERGED (rounding left a gap that proves nothing), OUT_OF_DOMAIN (an integer
                  above 2**58)
    steps         rows scanned

    `backend`: "cpu" (compiled loops over problems, on all cores), "device" (in chunks on JAX's devices: matched in
    float32, proved in float64, and what is not proved there solved again on the host, so that answers carry the same
    certificate) or "auto", which takes an accelerator where there is one, the batch has at least
    `solvers.device.FEWEST` problems and the host at most `solvers.device.HOST_CORES` cores. For JAX arrays "auto" is
    "cpu" on a CPU, else an engine in the costs' own precision, without the host: "pallas" (a kernel for GPUs, one
    program per problem; interpreted on a CPU) up to 512 columns, else "xla" (plain XLA, anywhere). `assign_many` takes
    matrices of several sizes. Where columns repeat (workers with capacities), `transport` is faster.

    NumPy arrays in, NumPy arrays out, in float64 (int64 for integers) whatever `jax.config` says. Inside `jit` and
    `vmap` it yields traced arrays of the cost's own precision. Its derivative with respect to `cost` is the matching
    (the envelope theorem; where the optimum is not unique, one subgradient); columns and certificate are constants.

    Source: R. Jonker and A. Volgenant, Computing 38 (1987) 325-340; D. F. Crouse, IEEE TAES 52 (2016) 1679-1696.

    >>> from dmodels.solvers import assign
    >>> s = assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> s.value.columns.tolist(), int(s.value.cost), int(s.certificate["gap"])
    ([1, 0, 2], 5, 0)
    """
    if type(cost) is np.ndarray and cost.dtype is _FLOAT64 and not maximize and backend == "auto":
        small = solve_small(cost)
        if small is not None:
            return small
    device.check_backend(backend, BACKENDS)
    given = cost
    cost = real_array("cost", cost, 2)
    traced = isinstance(cost, jax.core.Tracer)
    if not traced and backend in device.BACKENDS and (not isinstance(given, jax.Array) or _on_cpu(given)):
        cost = np.asarray(cost)
        if device.takes_device(backend, cost.shape[:-2], host_cores=device.HOST_CORES):
            from .device import assign_on_device

            return solution_of(*assign_on_device(cost, maximize))
        return solution_of(*solve_host(cost, maximize))
    from .traced import assign_traced

    if isinstance(given, jax.Array):
        return solution_of(*assign_traced(cost, maximize, backend))
    with jax.enable_x64(True):  # a host array, and a device backend that was asked for
        found: Solution = jax.tree.map(np.asarray, solution_of(*assign_traced(jnp.asarray(cost), maximize, backend)))
        return found


def _on_cpu(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())
