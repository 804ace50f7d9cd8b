"""The fitted constants of the laws of operators, as a file, and what they say for a GPU, an engine and a format.

`refit.refit` makes them from a folder of measured tables; `dump` and `load` write and read them. A (GPU, engine,
format) that was measured has its own constants; one that was not has its relatives' (see `hierarchy`), with
the choice of kernels of the nearest GPU that the same engine was measured on; and a kind that is not in the file has
the law's typical values. `label` says which.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.catalog.expert_tiles import tuned_shapes
from dmodels.core.errors import InputError
from dmodels.core.records import Floats
from dmodels.models.operators import LAWS, Choice, law, typical
from dmodels.models.operators.choice import Tree, with_listed

from .cells import Fitted
from .hierarchy import Cell, effects, expected, generation

MEASURED, RELATIVES, DATA_SHEET = "kernels measured", "relatives", "data sheet"
#: Constants are kept in hundredths of u: to about 1 % of themselves.
UNIT = 0.01


class Measured(NamedTuple):
    """Of one (GPU, engine, format): kernel -> range -> its constants, and the tree that chooses the kernel."""

    kernels: dict[str, dict[int, Fitted]]
    tree: Tree


@dataclass(frozen=True)
class Kind:
    """Of one kind: what was measured, and what its cells share."""

    name: str
    measured: dict[tuple[str, str, str], Measured]

    @cached_property
    def levels(self) -> dict[str, Floats]:
        """Level -> effect, in u relative to the typical values (see `hierarchy`)."""
        cells, fitted = [], []
        for key, of in self.measured.items():
            for kernel, ranges in of.kernels.items():
                cells += [Cell(*key, kernel, i) for i in ranges]
                fitted += list(ranges.values())
        u = np.array([f.u for f in fitted]) - typical(self.name)[0]
        return effects(cells, u, np.array([f.variance for f in fitted]))

    @cached_property
    def ranges(self) -> frozenset[int]:
        """Those in which any kernel was measured."""
        return frozenset(i for of in self.measured.values() for ran in of.kernels.values() for i in ran)

    @cached_property
    def generations(self) -> frozenset[tuple[str, str, str]]:
        """The (generation, engine, format) that any GPU was measured in."""
        return frozenset((generation(gpu), engine, dtype) for gpu, engine, dtype in self.measured)

    def library(self, engine: str) -> str:
        """Whose kernels an engine runs: its own, or NCCL's where it has none of the kind."""
        engines = {e for _, e, _ in self.measured}
        return "nccl" if engine not in engines and "nccl" in engines else engine


class Coefficients(NamedTuple):
    """Constants by kind, and where they come from."""

    kinds: dict[str, Kind]
    provenance: dict[str, Any]

    def at(self, gpu: str, engine: str) -> Callable[[str, str], Choice]:
        """(kind, format) -> constants, for `operators.layer_s`; `gpu` and `engine` as the tables name them."""
        return lambda kind, dtype: self.choice(kind, gpu, engine, dtype)

    def label(self, kind: str, gpu: str, engine: str, dtype: str) -> str:
        """Whether these kernels were measured, or their relatives, or nothing but the data sheet is known."""
        if kind not in self.kinds:
            return DATA_SHEET
        known = self.kinds[kind]
        engine = known.library(engine)
        if (gpu, engine, dtype) in known.measured:
            return MEASURED
        near = any(g == gpu or generation(g) == generation(gpu) or e == engine for g, e, _ in known.measured)
        return RELATIVES if near else DATA_SHEET

    def runs(self, kind: str, gpu: str, engine: str, dtypes: tuple[str, ...]) -> str:
        """The first of the formats in which these kernels were measured on this GPU, or else on one of its generation,
        which can run what it can; the first of all where none was."""
        if kind not in self.kinds:
            return dtypes[0]
        known = self.kinds[kind]
        engine = known.library(engine)
        own = [d for d in dtypes if (gpu, engine, d) in known.measured]
        return (own or [d for d in dtypes if (generation(gpu), engine, d) in known.generations] or dtypes)[0]

    def choice(self, kind: str, gpu: str, engine: str, dtype: str) -> Choice:
        """Constants of the kernels, and which kernel runs which shape."""
        origin = typical(kind)
        if kind not in self.kinds:
            return Choice(origin[None])
        known = self.kinds[kind]
        engine = known.library(engine)
        own = known.measured.get((gpu, engine, dtype))
        like = own or _nearest(known, gpu, engine, dtype)
        kernels = tuple(like.kernels) if like else ("",)
        ranges, width = range(len(origin)), origin.shape[1]
        relatives = lambda kernel, i: origin[i] + expected(known.levels, Cell(gpu, engine, dtype, kernel, i), width)

        def at(kernel: str, i: int) -> Floats:
            """Between ranges where the kernel ran it is like the nearest of them; beyond them, like its relatives."""
            ran = own.kernels[kernel] if own else {}
            if not ran or (i > max(ran) and i in known.ranges):
                return relatives(kernel, i)
            return ran[min(ran, key=lambda j: abs(j - i))].u

        found = [[at(kernel, i) for i in ranges] for kernel in kernels]
        pairs = tuned_shapes(engine, gpu, dtype)
        return Choice(np.array(found), with_listed(like.tree, pairs) if like else 0, kernels)


def _nearest(known: Kind, gpu: str, engine: str, dtype: str) -> Measured | None:
    """What the engine runs in that format on the nearest GPU that it was measured on; None: it never was."""
    near = [key for key in known.measured if key[1] == engine and key[2] == dtype]
    near.sort(key=lambda key: (generation(key[0]) != generation(gpu), key))
    return known.measured[near[0]] if near else None


@lru_cache(maxsize=4)
def load(path: str | Path) -> Coefficients:
    """The constants of a file that `dump` wrote."""
    path = Path(path)
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        kinds = {kind: _kind(kind, facts) for kind, facts in held["kinds"].items()}
        return Coefficients(kinds, held["provenance"])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.name}: holds no constants of operators ({error})") from None


def _kind(kind: str, facts: dict[str, Any]) -> Kind:
    names = [c.name for c in law(kind).constants]
    if facts["constants"] != names:
        raise InputError(f"{kind} has the constants {facts['constants']}; the law's are {names}: refit")
    measured = {}
    for key, cell in facts["measured"].items():
        kernels = {
            name: {int(i): Fitted(np.array(u) * UNIT, _variance(letters)) for i, (u, letters) in ranges.items()}
            for name, ranges in cell["kernels"].items()
        }
        measured[tuple(key.split("|"))] = Measured(kernels, cell["choice"])
    return Kind(kind, measured)


def _variance(letters: str) -> Floats:
    """One letter per constant: a factor of ten in the variance is two letters, `m` is 1."""
    return 10.0 ** ((np.array([ord(letter) for letter in letters]) - ord("m")) / 2.0)


def _letters(variance: Floats) -> str:
    return "".join(chr(ord("m") + int(step)) for step in np.clip(np.round(2.0 * np.log10(variance)), -12, 13))


def dump(coefficients: Coefficients) -> str:
    """The file's text: of each cell the constants in hundredths of u, and how well its rows show each."""

    def plain(of: Fitted) -> list[Any]:
        return [[round(float(x) / UNIT) for x in of.u], _letters(of.variance)]

    kinds = {}
    for kind, known in coefficients.kinds.items():
        measured = {
            "|".join(key): {
                "kernels": {
                    name: {str(i): plain(of) for i, of in ranges.items()} for name, ranges in cell.kernels.items()
                },
                "choice": cell.tree,
            }
            for key, cell in known.measured.items()
        }
        kinds[kind] = {"constants": [c.name for c in LAWS[kind].constants], "measured": measured}
    text = json.dumps({"provenance": coefficients.provenance, "kinds": kinds}, separators=(",", ":"))
    return text.replace('{"constants":', '\n{"constants":').replace('"measured":', '\n"measured":') + "\n"
