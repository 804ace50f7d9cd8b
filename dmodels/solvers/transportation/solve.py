"""Transportation and convex-congestion placement: many rows, few columns, exact and certified."""

from __future__ import annotations

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real
from dmodels.solvers.assignment.host import real_array
from dmodels.solvers.device import HOST_CORES, check_backend, takes_device
from dmodels.solvers.solution import Solution

from .host import congestion_host, transport_host, transport_one


def transport(cost: Real, capacity: Real, supply: Real | None = None, *, backend: str = "auto") -> Solution:
    r"""Ship every row's supply to columns of limited capacity at least cost: min sum_ij c_ij x_ij.

    subject to sum_j x_ij = s_i, sum_i x_ij <= C_j, x >= 0. `cost` is (..., n, m), `capacity` (..., m) or one
    number, `supply` (..., n); leading axes broadcast. Without `supply` each row is one unit that goes to one column
    (the semi-assignment problem, which a Hungarian would solve on a matrix with C_j copies of column j). With it a row
    is a group of identical units. Whole supplies and capacities give whole flows. inf in `cost` is forbidden, inf in
    `capacity` is no limit. All in float64, exact for whole costs while sums of m of them stay below 2**53. Where
    columns are few, time grows as n m log n + paths m^2; elsewhere a network simplex ships groups of equal rows.

    Returns a `Solution` with

    value         `columns` (..., n) or, with `supply`, `flow` (..., n, m); `loads` (..., m), `cost` (...,)
    certificate   `row_duals` u (..., n), `column_duals` v (..., m): u_i + v_j <= c_ij and v <= 0, so that
                  sum_i s_i u_i + sum_j C_j v_j is a lower bound on every shipment's cost; `gap` is how far the cost
                  is above it, `reduced` the least slack of c_ij - u_i - v_j and -v_j
    flags         per problem: INFEASIBLE (the duals are then a Farkas ray: u_i + v_j <= 0 where allowed, v <= 0, and
                  the bound is > 0: too much supply can only use these columns), NONFINITE (NaN, or -inf in `cost`),
                  OUT_OF_DOMAIN (negative supply or capacity), NOT_CONVERGED (rounding left a gap that proves nothing)
    steps         augmenting paths

    `backend`: "cpu" (compiled loops), "device" (rows of one unit in chunks on JAX's first devices; what is not proved
    there in float64 is solved again on the host, so answers carry the same certificate) or "auto", which takes an
    accelerator where there is one, the batch has at least `solvers.device.FEWEST` problems and the host at most
    `solvers.device.HOST_CORES` cores. Rows with `supply` are shipped on the host.

    The derivative of the cost is the flow (by `cost`), u (by `supply`) and v (by `capacity`; one subgradient).

    Source: successive shortest paths, Ahuja, Magnanti and Orlin, *Network Flows*, 1993, section 9.7, on the graph of
    the columns, and chapter 11, the network simplex.

    >>> s = transport([[1.0, 5.0], [2.0, 4.0], [1.0, 9.0]], capacity=[2, 2])
    >>> s.value.columns.tolist(), float(s.value.cost), s.certificate["column_duals"].tolist()
    ([0, 1, 0], 6.0, [-4.0, 0.0])
    """
    if backend == "auto" and (one := transport_one(cost, capacity, supply)):
        return one
    cost, capacity = _array("cost", cost, 2), _array("capacity", capacity, 0)
    if not capacity.ndim:
        capacity = capacity + np.zeros(cost.shape[-1], capacity.dtype)  # one capacity for all columns
    supply = None if supply is None else _array("supply", supply, 1)
    n, m = cost.shape[-2:]
    if capacity.shape[-1] != m:
        raise InputError(f"capacity has {capacity.shape[-1]} entries; accepted is one per column of cost, {m}")
    if supply is not None and supply.shape[-1] != n:
        raise InputError(f"supply has {supply.shape[-1]} entries; accepted is one per row of cost, {n}")
    if all(type(a) is np.ndarray for a in (cost, capacity, supply) if a is not None):
        if supply is not None:
            check_backend(backend, ("auto", "cpu"))
        elif takes_device(backend, cost.shape[:-2], capacity.shape[:-1], host_cores=HOST_CORES):
            from .device import transport_on_device

            return transport_on_device(cost, capacity)
        return transport_host(cost, capacity, supply)
    from .traced import transport_traced

    return transport_traced(cost, capacity, supply)


def congestion_transport(cost: Real, marginal: Real, *, backend: str = "auto") -> Solution:
    r"""Place n rows on m columns under convex congestion: min over x of sum_i c[i, x_i] + sum_j g_j(n_j).

    n_j is how many rows choose column j, and `marginal` (..., m, K) holds the congestion's increments
    g_j(k) - g_j(k-1), k = 1..K, nondecreasing in k; inf (or k > K) is beyond the column's capacity. `cost` is
    (..., n, m) as in `transport`, which is the case of increments 0, ..., 0, inf.

    The certificate has `row_duals` u, `column_duals` v and `gap`: u_i + v_j <= c_ij, and
    sum_i u_i + sum_jk min(marginal_jk + v_j, 0) is a lower bound on every placement's cost. -v_j is the price of a
    place on column j. Decreasing increments (congestion that is not convex) are flagged OUT_OF_DOMAIN: for these
    neither the method nor the bound holds.

    `backend` as in `transport`.

    The derivative of the cost is 1 at each chosen pair (by `cost`) and at each used slot (by `marginal`).

    Source: successive shortest paths with convex costs, Ahuja, Magnanti and Orlin, *Network Flows*, 1993,
    section 14.5; R. W. Rosenthal, Int. J. Game Theory 2 (1973) 65-67, for the slots.

    >>> s = congestion_transport([[0.0, 1.0]] * 3, marginal=[[1.0, 3.0, 5.0], [1.0, 3.0, 5.0]])
    >>> s.value.loads.tolist(), float(s.value.cost)
    ([2.0, 1.0], 6.0)
    """
    cost, marginal = _array("cost", cost, 2), _array("marginal", marginal, 2)
    if marginal.shape[-2] != cost.shape[-1]:
        raise InputError(
            f"marginal has {marginal.shape[-2]} rows; accepted is one per column of cost, {cost.shape[-1]}"
        )
    if isinstance(cost, jax.core.Tracer) or isinstance(marginal, jax.core.Tracer):
        from .traced import congestion_traced

        return congestion_traced(cost, marginal)
    if takes_device(backend, cost.shape[:-2], marginal.shape[:-2]):
        from .device import congestion_on_device

        return congestion_on_device(cost, marginal)
    return congestion_host(cost, marginal)


def _array(name: str, value: Real, axes: int) -> Real:
    """On the host, unless it is traced."""
    value = real_array(name, value, axes)
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)
