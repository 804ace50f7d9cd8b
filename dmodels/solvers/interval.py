"""All roots of a function of one variable, proved: interval arithmetic over the function's own operations.

The function is traced once; its operations are then carried out on intervals, each result widened by rounding. An
enclosure of f over a cell that excludes 0 proves that the cell holds no root; an enclosure of f' that excludes 0 proves
that it holds at most one. Cells that neither settles are halved. (R. E. Moore, Methods and Applications of Interval
Analysis, 1979.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from dmodels.core.records import Real

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr


class Roots(NamedTuple):
    """roots: sorted; each lies within rounding of a true root. doubtful: (k, 2) cells in which nothing was proved."""

    roots: np.ndarray
    doubtful: np.ndarray

    @property
    def complete(self) -> bool:
        """The list is proved to hold every root, each exactly once."""
        return len(self.doubtful) == 0


#: Lower and upper ends of an interval, or of many at once.
Ends = tuple[Real, Real]
Bounds = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
#: rule(parameters of the operation, operands) -> an interval that holds its results
Rule = Callable[..., Ends]


class Unsupported(NotImplementedError):
    """An operation that has no interval form here; the function can be solved, but its roots are not proved."""


def all_roots(
    function: Callable[[Real], Real], low: float, high: float, cells: int = 64, rounds: int = 40, most: int = 20_000
) -> Roots:
    """Every root of a smooth scalar `function` (written with jax.numpy) in [low, high]. Raises `Unsupported`.

    >>> all_roots(lambda x: (x - 0.25) * (x - 0.5) * (x - 0.75), 0.0, 1.0).roots.tolist()
    [0.25, 0.5, 0.75]
    """
    value = enclosure(function)
    value(np.array([low]), np.array([high]))  # an operation without a rule stops here, before more is traced
    slope = enclosure(jax.grad(function))
    edges = np.linspace(low, high, cells + 1)
    a, b = edges[:-1], edges[1:]
    roots: list[float] = []
    doubtful = []
    for _ in range(rounds):
        if not len(a):
            break
        lo, hi = value(a, b)
        keep = ~((lo > 0) | (hi < 0))
        a, b = a[keep], b[keep]
        lo, hi = slope(a, b)
        monotone = (lo > 0) | (hi < 0)
        roots += _monotone_roots(value, a[monotone], b[monotone])
        a, b = a[~monotone], b[~monotone]
        narrow = b - a <= 1e-12 * (high - low)
        doubtful += list(zip(a[narrow], b[narrow], strict=True))
        a, b = a[~narrow], b[~narrow]
        middle = 0.5 * (a + b)
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
        if len(a) > most:
            break
    doubtful += list(zip(a, b, strict=True))
    found: list[float] = []
    for root in sorted(roots):  # a root on an edge is found from both sides
        if not found or root - found[-1] > 4e-14 * max(abs(high), abs(low)):
            found.append(root)
    return Roots(np.array(found), np.reshape(np.array(doubtful, float), (-1, 2)))


def least_values(
    function: Callable[..., Real],
    total: np.ndarray,
    known: np.ndarray,
    parameters: Sequence[np.ndarray],
    rtol: float = 1e-9,
    cells: int = 64,
    rounds: int = 48,
    most: int = 500_000,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least value of `function(x, *parameters)` over 0 <= x <= total, for each of many problems: branch and bound.

    total, known (a value that is attained), each parameter (k,). Cells are bounded by the enclosure of the function and
    by its value in the middle with the enclosure of its slope; those that cannot hold a value below the best known one
    by more than rtol of the largest value seen are dropped; where cells are left after `rounds` halvings, the bound is
    what they give, and so it is, where there are more than `most` at once, for the problems that have most of them.
    Returns (proved lower bound, best value found, where), each (k,). Raises
    `Unsupported`.
    """
    value, count = enclosure(function, len(parameters)), len(total)
    value(total, total, *parameters)  # an operation without a rule stops here, before more is traced
    if count > 1000:  # what is laid out at once
        parts = [
            least_values(
                function,
                total[k : k + 1000],
                known[k : k + 1000],
                [p[k : k + 1000] for p in parameters],
                rtol,
                cells,
                rounds,
                most,
            )
            for k in range(0, count, 1000)
        ]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]
    slope = enclosure(jax.grad(function), len(parameters))
    best, where, floor = known.astype(float).copy(), np.full(count, np.nan), np.full(count, np.inf)
    edges = np.linspace(0.0, 1.0, cells + 1)
    game = np.repeat(np.arange(count), cells)
    a, b = (np.outer(total, e).reshape(-1) for e in (edges[:-1], edges[1:]))
    slack = np.maximum(rtol * np.abs(best), 1e-300)  # enclosures of 0 have a width, too
    for left in reversed(range(rounds)):
        given = [p[game] for p in parameters]
        middle = 0.5 * (a + b)
        at_low, at = value(middle, middle, *given)
        rise_low, rise_high = slope(a, b, *given)
        half = np.maximum(b - middle, middle - a)
        with np.errstate(invalid="ignore"):
            near = at_low - half * np.maximum(np.abs(rise_low), np.abs(rise_high))
        low = np.fmax(value(a, b, *given)[0], near)
        # a cell in which the function only falls or rises has its least value at an end, which is tried as a middle
        tries = np.where(rise_low >= 0, a, np.where(rise_high <= 0, b, middle))
        at = np.where(tries == middle, at, value(tries, tries, *given)[1])
        if left == rounds - 1:
            np.maximum.at(slack, game, rtol * np.where(np.isfinite(at), np.abs(at), 0.0))
        order = np.lexsort((at, game))
        first = order[np.unique(game[order], return_index=True)[1]]
        better = first[at[first] < best[game[first]]]
        best[game[better]], where[game[better]] = at[better], tries[better]
        keep = low < best[game] - slack[game]
        np.minimum.at(floor, game[~keep], low[~keep])
        game, a, b, low, middle = game[keep], a[keep], b[keep], low[keep], middle[keep]
        if len(game) > most:
            crowd = np.bincount(game, minlength=count)
            fewest = np.argsort(crowd)
            goes_on = np.zeros(count, bool)
            goes_on[fewest[np.cumsum(crowd[fewest]) <= most // 2]] = True
            keep = goes_on[game]
            np.minimum.at(floor, game[~keep], low[~keep])
            game, a, b, low, middle = game[keep], a[keep], b[keep], low[keep], middle[keep]
        if not len(game) or not left:
            break
        game, a, b = np.tile(game, 2), np.concatenate([a, middle]), np.concatenate([middle, b])
    np.minimum.at(floor, game, low)
    return np.minimum(floor, best), best, where


def _monotone_roots(value: Bounds, a: np.ndarray, b: np.ndarray) -> list[float]:
    """Roots in cells on which the function is monotone, by bisection on the midpoints of point enclosures."""

    def at(x: np.ndarray) -> np.ndarray:
        lo, hi = value(x, x)
        middle = 0.5 * (lo + hi)
        return np.where((lo <= 0) & (hi >= 0), 0.0, middle)

    if not len(a):
        return []
    fa, fb = at(a), at(b)
    has = (fa == 0) | (np.sign(fa) != np.sign(fb))
    a, b, fa, fb = a[has], b[has], fa[has], fb[has]
    a, b = np.where((fb == 0) & (fa != 0), b, a), np.where(fa == 0, a, b)
    for _ in range(70):
        middle = 0.5 * (a + b)
        fm = at(middle)
        left = np.sign(fm) != np.sign(fa)
        a, b = np.where(left & (fm != 0), a, middle), np.where(left | (fm == 0), middle, b)
        fa = np.where(left, fa, fm)
    return [float(v) for v in 0.5 * (a + b)]


def enclosure(function: Callable[..., Real], parameters: int = 0) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """(low, high, *parameters) -> bounds on `function(x, *parameters)` over each cell [low, high]; arrays of cells at
    once, with parameters of their own for each."""
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(*[np.float64(0.0)] * (1 + parameters))

    def bounds(low: np.ndarray, high: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.asarray(low, float), np.asarray(high, float)
        with np.errstate(all="ignore"):
            (out,) = _run(closed.jaxpr, closed.consts, [(low, high), *((value, value) for value in given)])
        lo, hi = (np.broadcast_to(side, low.shape).astype(float) for side in out)
        broken = ~(lo <= hi)  # NaN anywhere: nothing is known
        return np.where(broken, -np.inf, lo), np.where(broken, np.inf, hi)

    return bounds


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Ends]) -> list[Ends]:
    env: dict[Any, Ends] = {}

    def read(v: Any) -> Ends:
        if hasattr(v, "val"):
            value = np.asarray(v.val)
            _scalar(value.shape)
            return value, value
        return env[v]

    def write(variables: Sequence[Any], values: Sequence[Ends]) -> None:
        for v, value in zip(variables, values, strict=True):
            env[v] = value

    for v, const in zip(jaxpr.constvars, consts, strict=True):
        value = np.asarray(const)
        _scalar(value.shape)
        env[v] = (value, value)
    write(jaxpr.invars, args)
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        if inner is not None:
            closed = inner if hasattr(inner, "jaxpr") else None
            body, held = (closed.jaxpr, closed.consts) if closed else (inner, ())
            if len(body.invars) != len(inputs):
                raise Unsupported(f"interval arithmetic: {eqn.primitive.name} is not supported")
            write(eqn.outvars, _run(body, held, inputs))
            continue
        for v in eqn.outvars:
            kind: Any = v.aval  # of an array, as every operation with a rule has
            _scalar(kind.shape)
        rule = RULES.get(eqn.primitive.name)
        if rule is None:
            raise Unsupported(f"interval arithmetic: {eqn.primitive.name} is not supported")
        out = rule(eqn.params, *inputs)
        write(eqn.outvars, [out])
    return [read(v) for v in jaxpr.outvars]


def _scalar(shape: tuple[int, ...]) -> None:
    if shape not in ((), (1,)):
        raise Unsupported("interval arithmetic: only scalar operations are supported")


def _wide(lo: Real, hi: Real, ulps: int = 1) -> Ends:
    for _ in range(ulps):
        lo, hi = np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf)
    return lo, hi


def _increasing(f: Callable[[Real], Real], ulps: int = 2) -> Rule:
    return lambda _, x: _wide(f(x[0]), f(x[1]), ulps)


def _mul(_: Any, x: Ends, y: Ends) -> Ends:
    products = [np.where((p == 0) | (q == 0), 0.0, p * q) for p in x for q in y]
    return _wide(np.minimum.reduce(products), np.maximum.reduce(products))


def _div(_: Any, x: Ends, y: Ends) -> Ends:
    crosses = (y[0] <= 0) & (y[1] >= 0)
    inverse = np.where(crosses, -np.inf, 1.0 / y[1]), np.where(crosses, np.inf, 1.0 / y[0])
    return _mul(_, x, _wide(*inverse))


def _integer_pow(params: Mapping[str, Any], x: Ends) -> Ends:
    n = params["y"]
    if n < 0:
        return _div(None, (1.0, 1.0), _integer_pow({"y": -n}, x))
    a, b = x[0] ** n, x[1] ** n
    if n % 2:
        return _wide(a, b, n)
    lo = np.where((x[0] <= 0) & (x[1] >= 0), 0.0, np.minimum(a, b))
    lo, hi = _wide(lo, np.maximum(a, b), n)
    return np.maximum(lo, 0.0), hi


def _pow(_: Any, x: Ends, y: Ends) -> Ends:
    corners = [p**q for p in x for q in y]
    low, high = _wide(np.minimum.reduce(corners), np.maximum.reduce(corners), 4)
    known = (np.asarray(x[0]) > 0) | ((np.asarray(x[0]) >= 0) & (np.asarray(y[0]) > 0))
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _abs(_: Any, x: Ends) -> Ends:
    a, b = np.abs(x[0]), np.abs(x[1])
    return np.where((x[0] <= 0) & (x[1] >= 0), 0.0, np.minimum(a, b)), np.maximum(a, b)


def _select(_: Any, which: Ends, *cases: Ends) -> Ends:
    """Booleans are intervals of 0 and 1: certain, or both cases joined."""
    lo, hi = np.asarray(which[0], float), np.asarray(which[1], float)
    (a, b), (c, d) = cases
    out_lo = np.where(lo == 1, c, np.where(hi == 0, a, np.minimum(a, c)))
    out_hi = np.where(lo == 1, d, np.where(hi == 0, b, np.maximum(b, d)))
    return out_lo, out_hi


def _compare(sure: Callable[[Ends, Ends], np.ndarray], possible: Callable[[Ends, Ends], np.ndarray]) -> Rule:
    return lambda _, x, y: (sure(x, y).astype(float), possible(x, y).astype(float))


def _sigmoid(x: Real) -> Real:
    """1 / (1 + exp(-x)) to a few units in the last place, where it is next to 0 too."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _wave(f: Callable[[Real], Real], peak: float) -> Rule:
    """Sine or cosine: 1 at `peak` and every full turn on, -1 half a turn away; what may be so by rounding counts."""

    def rule(_: Any, x: Ends) -> Ends:
        a, b = x
        doubt = 1e-9 + 1e-15 * (np.abs(a) + np.abs(b))

        def meets(place: float) -> Real:
            first, last = (a - place) / (2 * np.pi), (b - place) / (2 * np.pi)
            return np.floor(last + doubt) >= np.ceil(first - doubt)

        low, high = _wide(np.minimum(f(a), f(b)), np.maximum(f(a), f(b)), 2)
        low, high = np.where(meets(peak + np.pi), -1.0, low), np.where(meets(peak), 1.0, high)
        return np.maximum(low, -1.0), np.minimum(high, 1.0)

    return rule


_SAME: Rule = lambda _, x: x

#: Operation -> its interval form, entry by entry.
RULES: dict[str, Rule] = {
    "add": lambda _, x, y: _wide(x[0] + y[0], x[1] + y[1]),
    "add_any": lambda _, x, y: _wide(x[0] + y[0], x[1] + y[1]),
    "sub": lambda _, x, y: _wide(x[0] - y[1], x[1] - y[0]),
    "neg": lambda _, x: (-x[1], -x[0]),
    "mul": _mul,
    "div": _div,
    "integer_pow": _integer_pow,
    "square": lambda _, x: _integer_pow({"y": 2}, x),
    "pow": _pow,
    "exp": lambda _, x: (np.maximum(np.nextafter(np.exp(x[0]), -np.inf), 0.0), _wide(0.0, np.exp(x[1]), 2)[1]),
    "exp2": _increasing(np.exp2),
    "log": _increasing(np.log),
    "log1p": _increasing(np.log1p),
    "expm1": _increasing(np.expm1),
    "tanh": _increasing(np.tanh, 4),
    "logistic": _increasing(_sigmoid, 4),
    "sqrt": _increasing(np.sqrt),
    "sin": _wave(np.sin, 0.5 * np.pi),
    "cos": _wave(np.cos, 0.0),
    "abs": _abs,
    "max": lambda _, x, y: (np.maximum(x[0], y[0]), np.maximum(x[1], y[1])),
    "min": lambda _, x, y: (np.minimum(x[0], y[0]), np.minimum(x[1], y[1])),
    "gt": _compare(lambda x, y: x[0] > y[1], lambda x, y: x[1] > y[0]),
    "ge": _compare(lambda x, y: x[0] >= y[1], lambda x, y: x[1] >= y[0]),
    "lt": _compare(lambda x, y: x[1] < y[0], lambda x, y: x[0] < y[1]),
    "le": _compare(lambda x, y: x[1] <= y[0], lambda x, y: x[0] <= y[1]),
    "eq": _compare(
        lambda x, y: (x[0] == x[1]) & (y[0] == y[1]) & (x[0] == y[0]), lambda x, y: (x[0] <= y[1]) & (y[0] <= x[1])
    ),
    "and": lambda _, x, y: (np.minimum(x[0], y[0]), np.minimum(x[1], y[1])),
    "or": lambda _, x, y: (np.maximum(x[0], y[0]), np.maximum(x[1], y[1])),
    "select_n": _select,
    "convert_element_type": _SAME,
    "broadcast_in_dim": _SAME,
    "reshape": _SAME,
    "squeeze": _SAME,
    "copy": _SAME,
    "copy_p": _SAME,
    "stop_gradient": _SAME,
}
