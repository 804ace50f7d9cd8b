"""How an answer moves with its inputs: elasticities at a point, by derivatives, and one input at a time, by evaluation.

Shadow prices of constraints come with the optima: `fleet(...).certificate` and `minimize(...).value["multipliers"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real, float64

from .axes import zipped
from .formula import flagged, named, nested
from .space import sweep

if TYPE_CHECKING:
    import xarray as xr


@float64
def elasticities(
    function: Callable[..., Any], /, *, arguments: Sequence[str] | None = None, **given: Any
) -> xr.Dataset:
    r"""$\partial \ln y / \partial \ln x$ of each output y in each number x: percent of y per percent of x.

    Numbers inside records count one by one, as `gpu.hbm_bytes_per_s`; arrays as a whole (all entries move together).
    `arguments` restricts them. A Dataset over `argument`; an output that is 0 or not finite, or without a derivative,
    is NaN there and flagged. Whole-number outputs (a ceiling) have elasticity 0 almost everywhere: ask for the smooth
    quantity under it, or see `one_at_a_time`.

    >>> ds = elasticities(lambda rate_rps, price: {"cost": price * rate_rps**2}, rate_rps=3.0, price=2.0)
    >>> dict(zip(ds.argument.values.tolist(), ds.cost.values.round(9).tolist()))
    {'rate_rps': 2.0, 'price': 1.0}
    """
    import xarray as xr

    leaves = _leaves(given)
    chosen = list(leaves) if arguments is None else list(arguments)
    for name in chosen:
        if name not in leaves:
            raise InputError(f"argument {name!r} is no number; accepted: {', '.join(leaves)}")

    def outputs(logs: Real) -> dict[str, Real]:
        moved = {name: leaves[name] * jnp.exp(logs[place]) for place, name in enumerate(chosen)}
        found = named(function(**nested({**given, **moved})), getattr(function, "__name__", "value"))
        return {name: value for name, value in found.items() if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)}

    zero = np.zeros(len(chosen))
    at = jax.device_get(jax.jit(outputs)(zero))
    slopes = jax.device_get(jax.jit(jax.jacfwd(outputs))(zero))
    wide = [name for name, value in at.items() if np.ndim(value)]
    if wide:
        raise InputError(f"outputs {', '.join(wide)} hold several numbers; accepted is one per output")
    ratios = {
        name: slopes[name] / value if np.isfinite(value) and value != 0 else np.full(len(chosen), np.nan)
        for name, value in at.items()
    }
    flags = jax.vmap(lambda row: flagged(row)["flags"])(ratios)
    variables = {name: ("argument", value, {"units": "1"}) for name, value in ratios.items()}
    return xr.Dataset(variables | {"flags": ("argument", np.asarray(flags))}, {"argument": chosen})


def one_at_a_time(
    function: Callable[..., Any], spans: Mapping[str, tuple[float, float]], /, **given: Any
) -> xr.Dataset:
    """`function` with one argument after the other at the ends of its span, the others as given: a tornado's data.

    `spans`: argument (or `record.field`) -> (low, high). A Dataset over `argument` and `end` ("low", "high"), with the
    outputs at the given values as `base_...`, and `low`, `high` as coordinates.
    """
    import xarray as xr

    leaves = _leaves(given)
    for name in spans:
        if name not in leaves or np.ndim(leaves[name]):
            raise InputError(f"span of {name!r}: accepted are numbers that are given: {', '.join(leaves)}")
    rows = [{name: float(leaves[name]) for name in spans}]
    for name, ends in spans.items():
        rows += [{**rows[0], name: float(end)} for end in ends]
    constants = {name: value for name, value in given.items() if name not in spans}
    ds = sweep(function, point=zipped(rows), **constants)
    names = list(spans)
    table = {
        name: (("argument", "end"), values.values[1:].reshape(len(names), 2), values.attrs)
        for name, values in ds.data_vars.items()
    }
    base = {f"base_{name}": ((), values.values[0], values.attrs) for name, values in ds.data_vars.items()}
    sides = {place: ("argument", [float(spans[name][i]) for name in names]) for i, place in enumerate(("low", "high"))}
    return xr.Dataset(table | base, {"argument": names, "end": ["low", "high"], **sides}, ds.attrs)


def _leaves(given: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name, those of records by `record.field`."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        fields = getattr(value, "__dict__", None)
        if fields:
            found |= {f"{name}.{field}": inner for field, inner in _leaves(fields).items()}
        elif isinstance(value, int | float | np.ndarray | np.generic) and not isinstance(value, bool):
            found[name] = np.asarray(value, np.float64)
    return found
