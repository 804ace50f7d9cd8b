"""JAX's operations on arrays, as NumPy and SciPy carry them out; see `interpreted`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

#: rule(parameters of the operation, *operands) -> its result
Rule = Callable[..., Any]


def _div(x: Any, y: Any) -> Any:
    return x / y if x.dtype.kind == "f" else (np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)).astype(x.dtype)


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _special(name: str) -> Rule:
    """A function of SciPy, imported when it is first called: that takes as long as a small game."""
    return lambda *operands: getattr(import_module("scipy.special"), name)(*operands)


def _each(function: Callable[[float], float]) -> Rule:
    """A function of Python's `math`, number by number: at once, where importing SciPy takes a tenth of a second."""
    entrywise = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(entrywise(x), x.dtype)


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond the largest number
        return math.inf


#: Operation -> what NumPy and SciPy call it.
ELEMENTWISE: dict[str, Rule] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": np.fmod,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "square": np.square,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "logistic": _sigmoid,
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erf_inv": _special("erfinv"),
    "lgamma": _each(_log_gamma),
    "igamma": _special("gammainc"),
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "nextafter": np.nextafter,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "copy": np.copy,
}


def _broadcast(params: Any, x: Any, *_: Any) -> Any:
    shape, axes = params["shape"], params["broadcast_dimensions"]
    out = np.empty(shape, x.dtype)  # several times faster than `np.broadcast_to`
    laid_out = [1] * len(shape)
    for axis, size in zip(axes, x.shape, strict=True):
        laid_out[axis] = size
    out[...] = x.reshape(laid_out)
    return out


def _select(_: Any, which: Any, *cases: Any) -> Any:
    if which.dtype == bool:
        if not which.ndim:
            return cases[1] if which else cases[0]
        return np.where(which, cases[1], cases[0])
    return np.choose(np.broadcast_to(which, np.shape(cases[0])), cases)


def _dot(params: Any, x: Any, y: Any) -> Any:
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    names = list(range(np.ndim(x) + np.ndim(y)))
    of_x, of_y = names[: np.ndim(x)], names[np.ndim(x) :]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        of_y[j] = of_x[i]
    kept = [of_x[i] for i in left_batch]
    kept += [of_x[i] for i in range(np.ndim(x)) if i not in (*left, *left_batch)]
    kept += [of_y[j] for j in range(np.ndim(y)) if j not in (*right, *right_batch)]
    found = np.einsum(x, of_x, y, of_y, kept)
    kind = params["preferred_element_type"]
    return found if kind is None else found.astype(kind)


def _convert(params: Any, x: Any, *_: Any) -> Any:
    kind = np.dtype(params["new_dtype"])
    if kind.kind in "iu" and x.dtype.kind == "f":  # as XLA has it: the nearest number there is, 0 for NaN
        info = np.iinfo(kind)
        whole = np.clip(np.nan_to_num(np.trunc(x), nan=0.0), info.min, info.max)
        return np.where(x >= info.max, info.max, whole.astype(kind)).astype(kind)
    return x.astype(kind)


def _round(params: Any, x: Any) -> Any:
    if int(params["rounding_method"]) == 1:
        return np.rint(x)
    return np.where(np.abs(x - np.trunc(x)) == 0.5, np.trunc(x) + np.sign(x), np.rint(x))


def _starts(x: Any, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slice of `x` nearest to the one that begins at `starts` and fits."""
    ends = [most - size for most, size in zip(np.shape(x), sizes, strict=True)]
    begins = [min(max(int(s), 0), end) for s, end in zip(starts, ends, strict=True)]
    return tuple(slice(b, b + size) for b, size in zip(begins, sizes, strict=True))


def _update(_: Any, x: Any, part: Any, *starts: Any) -> Any:
    out = np.array(x)
    out[_starts(x, starts, np.shape(part))] = part
    return out


def _gather(params: Any, x: Any, indices: Any) -> Any:
    sizes, numbers = params["slice_sizes"], params["dimension_numbers"]
    batch = indices.shape[:-1]
    flat = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [axis for axis in range(x.ndim) if axis not in flat]
    rank = len(batch) + len(window)
    at: list[Any] = [np.zeros((1,) * rank, int)] * x.ndim
    inside = np.ones((1,) * rank, bool)
    for column, axis in enumerate(numbers.start_index_map):
        start, most = indices[..., column].astype(np.int64), x.shape[axis] - sizes[axis]
        start = start.reshape(*batch, *(1,) * len(window))
        inside = inside & (start >= 0) & (start <= most)
        at[axis] = np.clip(start, 0, most)
    for axis, of_indices in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        shape = [1] * rank
        shape[of_indices] = x.shape[axis]
        at[axis] = np.arange(x.shape[axis]).reshape(shape)
    for place, axis in enumerate(window):
        shape = [1] * rank
        shape[len(batch) + place] = sizes[axis]
        at[axis] = at[axis] + np.arange(sizes[axis]).reshape(shape)
    out = np.broadcast_to(x[tuple(at)], (*batch, *(sizes[axis] for axis in window)))
    if params["mode"].name == "FILL_OR_DROP":
        fill = params["fill_value"]
        if fill is None:
            fill = np.nan if x.dtype.kind == "f" else _ends(x.dtype)[1 if x.dtype.kind in "ub" else 0]
        out = np.where(inside, out, np.asarray(fill, x.dtype))
    return np.moveaxis(out, range(len(batch), rank), numbers.offset_dims)


def _ends(kind: Any) -> tuple[Any, Any]:
    """The least and the largest value of a type."""
    if kind.kind == "b":
        return False, True
    return (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)


def _cumulative(function: Any) -> Rule:
    def along(params: Any, x: Any) -> Any:
        axis = params["axis"]
        if params["reverse"]:
            return np.flip(function(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)
        return function(x, axis=axis, dtype=x.dtype)

    return along


def _slice(params: Any, x: Any) -> Any:
    strides = params["strides"] or (1,) * np.ndim(x)
    return x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]


def _pad(params: Any, x: Any, filler: Any) -> Any:
    shape, target, source = [], [], []
    for size, (low, high, inner) in zip(np.shape(x), params["padding_config"], strict=True):
        low, high, step = int(low), int(high), int(inner) + 1
        first = max(0, -(low // step))  # of x, within what is left where padding is negative
        last = min(size, -(-(low + max(step * (size - 1) + 1, 0) + high - low) // step))
        shape.append(low + max(step * (size - 1) + 1, 0) + high)
        target.append(slice(low + first * step, max(low + (last - 1) * step + 1, 0), step))
        source.append(slice(first, last))
    out = np.full(shape, filler, x.dtype)
    out[tuple(target)] = x[tuple(source)]
    return out


def _triangular(params: Any, a: Any, b: Any) -> Any:
    """Substitution, for each of a batch of systems."""
    if not params["left_side"]:
        flipped = dict(params, left_side=True, transpose_a=not params["transpose_a"])
        return np.swapaxes(_triangular(flipped, a, np.swapaxes(b, -1, -2)), -1, -2)
    lower = params["lower"]
    if params["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    x, n = np.array(b), a.shape[-1]
    for i in range(n) if lower else reversed(range(n)):
        done = slice(0, i) if lower else slice(i + 1, n)
        x[..., i, :] -= np.einsum("...k,...kj->...j", a[..., i, done], x[..., done, :])
        if not params["unit_diagonal"]:
            x[..., i, :] /= a[..., i, i, None]
    return x


def _iota(params: Any) -> Any:
    shape, axis = params["shape"], params["dimension"]
    laid_out = [1] * len(shape)
    laid_out[axis] = -1
    return np.broadcast_to(np.arange(shape[axis], dtype=params["dtype"]).reshape(laid_out), shape)


#: Operation -> its result, one array.
RULES: dict[str, Rule] = {
    "integer_pow": lambda params, x: x ** params["y"] if params["y"] >= 0 else 1.0 / x ** -params["y"],
    "convert_element_type": _convert,
    "round": _round,
    "select_n": _select,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "pad": _pad,
    "stack": lambda params, *parts: np.stack(parts, params["axis"]),
    "bitcast_convert_type": lambda params, x: np.asarray(x).view(params["new_dtype"]),
    "triangular_solve": _triangular,
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "slice": _slice,
    "dynamic_slice": lambda params, x, *starts: x[_starts(x, starts, params["slice_sizes"])],
    "dynamic_update_slice": _update,
    "gather": _gather,
    "iota": _iota,
    "dot_general": _dot,
    "reduce_sum": lambda params, x: np.sum(x, params["axes"], x.dtype),
    "reduce_prod": lambda params, x: np.prod(x, params["axes"], x.dtype),
    "reduce_max": lambda params, x: np.max(x, params["axes"], initial=_ends(x.dtype)[0]),
    "reduce_min": lambda params, x: np.min(x, params["axes"], initial=_ends(x.dtype)[1]),
    "reduce_and": lambda params, x: np.all(x, params["axes"]),
    "reduce_or": lambda params, x: np.any(x, params["axes"]),
    "argmax": lambda params, x: np.argmax(x, params["axes"][0]).astype(params["index_dtype"]),
    "argmin": lambda params, x: np.argmin(x, params["axes"][0]).astype(params["index_dtype"]),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
}


def _sort(params: Any, *operands: Any) -> list[Any]:
    axis, keys = params["dimension"], params["num_keys"]
    order = np.lexsort(operands[keys - 1 :: -1], axis) if keys > 1 else np.argsort(operands[0], axis, kind="stable")
    return [np.take_along_axis(each, order, axis) for each in operands]


def _split(params: Any, x: Any) -> list[Any]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"])


def _lu(_: Any, matrix: Any) -> list[Any]:
    """(both factors in one matrix, swaps of rows, the order of rows that they make), for each of a batch."""
    a, n = np.array(matrix), min(matrix.shape[-2:])
    flat = a.reshape(-1, *a.shape[-2:])
    swaps, order = np.zeros((len(flat), n), np.int32), np.empty((len(flat), a.shape[-2]), np.int32)
    for m, swapped, rows in zip(flat, swaps, order, strict=True):
        rows[:] = np.arange(len(rows))
        for k in range(n):
            p = swapped[k] = k + int(np.argmax(np.abs(m[k:, k])))
            m[[k, p]], rows[[k, p]] = m[[p, k]], rows[[p, k]]
            m[k + 1 :, k] /= m[k, k]
            m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    batch = a.shape[:-2]
    return [flat.reshape(a.shape), swaps.reshape(*batch, n), order.reshape(*batch, -1)]


#: Operation -> its results, several arrays.
SEVERAL: dict[str, Rule] = {
    "sort": _sort,
    "split": _split,
    "unstack": lambda params, x: [*np.moveaxis(x, params["axis"], 0)],
    "lu": _lu,
    "eigh": lambda params, x: np.linalg.eigh(x, "L" if params["lower"] else "U")[::-1],
}
