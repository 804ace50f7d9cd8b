"""Refit the laws of operators from a folder of measured tables: constants, and the error on what was held out.

Three kinds of held-out rows, none of which the constants in question have seen:

- `shapes`: every tenth shape, by a hash of the shape (the same on every GPU);
- `pair`: all rows of a (GPU, engine), predicted from the other pairs;
- `gpu`: all rows of a GPU, predicted from the other GPUs and its data sheet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmodels.catalog.expert_tiles import tuned_shapes
from dmodels.core.errors import InputError
from dmodels.core.hardware import GPU
from dmodels.core.records import Floats, float64
from dmodels.models.operators import law
from dmodels.models.operators.choice import LISTED, Tree, listed

from .cells import Fitted
from .coefficients import Coefficients, Kind, Measured
from .columns import TOKENS_PER_EXPERT, WIDTH_REST
from .predicted import predicted
from .rows import tables
from .samples import Sample, catalogue_name, fit_kind, hardware, samples
from .tree import learn

PROTOCOLS = ("shapes", "pair", "gpu")
#: What engines choose kernels by, beside the fields of a shape.
FEATURES = {
    "gemm": ("n%128", "k%128"),
    "generation_attention": ("num_heads/num_key_value_heads",),
    "moe": (LISTED, TOKENS_PER_EXPERT, WIDTH_REST),
}
Key = tuple[str, str, str]


class HeldOut(NamedTuple):
    """Errors |predicted / measured - 1| of the held-out rows of one (kind, GPU, engine, format)."""

    kind: str
    gpu: str
    engine: str
    dtype: str
    errors: dict[str, Floats]  # by protocol


class Refit(NamedTuple):
    """Constants with provenance, errors by cell, and tables that were left out with the reason."""

    coefficients: Coefficients
    rows: list[HeldOut]
    skipped: list[tuple[str, str]]

    def summary(self, *by: str) -> list[dict[str, Any]]:
        """Median and P90 of the error by the columns named (kind, gpu, engine, dtype), for every protocol."""
        groups: dict[tuple, list[HeldOut]] = defaultdict(list)
        for row in self.rows:
            groups[tuple(getattr(row, name) for name in by)].append(row)
        return [dict(zip(by, map(str, key), strict=True)) | _quantiles(rows) for key, rows in sorted(groups.items())]


def _quantiles(rows: list[HeldOut]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for protocol in PROTOCOLS:
        held = [row.errors[protocol] for row in rows if protocol in row.errors]
        errors = np.concatenate(held) if held else np.zeros(0)
        found[f"{protocol}_count"] = len(errors)
        for name, q in (("median", 0.5), ("p90", 0.9)):
            found[f"{protocol}_{name}"] = round(float(np.quantile(errors, q)), 4) if len(errors) else None
    return found


def refit(folder: str | Path, kinds: tuple[str, ...] = (), say: Callable[[str], None] = lambda line: None) -> Refit:
    """The laws' constants from the tables under `folder`; `kinds` limits it to some."""
    found = [t for t in tables(folder) if not kinds or t.kind in kinds]
    gpus, skipped, used = {}, [], []
    for t in found:
        try:
            gpu = catalogue_name(t.gpu)
            gpus |= hardware([gpu])
            used.append(t._replace(gpu=gpu))
        except InputError as error:
            skipped.append((str(t.path), str(error)))
    if not used:
        raise InputError(f"{folder}: no table of {', '.join(kinds) or 'a kind that has a law'} and of a known GPU")
    known, counts, rows = {}, {}, []
    for kind, cells in sorted(samples(used).items()):
        _, fitted = fit_kind(kind, cells, gpus, say=say)
        known[kind] = gathered(kind, cells, fitted, trees(kind, cells))
        counts[kind] = sum(len(s.fitted.seconds) for s in cells)
        rows += errors(kind, cells, fitted, gpus)
        say(f"{kind}: {_line(_quantiles([r for r in rows if r.kind == kind]))}")
    provenance = {
        "made_by": "dmodels fit operators",
        "date": date.today().isoformat(),
        "source": "NVIDIA AIConfigurator operator database (Apache-2.0), or tables in its layout",
        "tables": {f"{t.gpu}/{t.engine}/{t.kind}": t.release for t in used},
        "rows": counts,
        "held_out_error": Refit(Coefficients({}, {}), rows, []).summary("kind"),
    }
    return Refit(Coefficients(known, provenance), rows, skipped)


def _groups(cells: list[Sample]) -> dict[Key, list[int]]:
    """(GPU, engine, format) -> indices of its cells."""
    groups: dict[Key, list[int]] = defaultdict(list)
    for i, s in enumerate(cells):
        groups[s.cell.gpu, s.cell.engine, s.cell.dtype].append(i)
    return groups


def _kernels(cells: list[Sample]) -> list[str]:
    return sorted({s.cell.kernel for s in cells})


def trees(kind: str, cells: list[Sample]) -> dict[Key, Tree]:
    """(GPU, engine, format) -> which of its kernels runs which shape."""
    found: dict[Key, Tree] = {}
    for key, index in _groups(cells).items():
        group = [cells[i] for i in index]
        names = _kernels(group)
        shape = {f: np.concatenate([s.fitted.shape[f] for s in group]) for f in law(kind).fields}
        kernel = np.concatenate([np.full(len(s.fitted.seconds), names.index(s.cell.kernel)) for s in group])
        weight = np.concatenate([np.full(len(s.fitted.seconds), s.count / len(s.fitted.seconds)) for s in group])
        features = [*law(kind).fields, *FEATURES.get(kind, ())]
        if LISTED in features:
            shape[LISTED] = listed(shape, tuned_shapes(key[1], key[0], key[2]))
        found[key] = learn(shape, kernel, features, weight) if len(names) > 1 else 0
    return found


def gathered(kind: str, cells: list[Sample], fitted: list[Fitted], known_trees: dict[Key, Tree]) -> Kind:
    """The cells' own constants, with the trees that choose between their kernels."""
    measured = {}
    for key, index in _groups(cells).items():
        kernels: dict[str, dict[int, Fitted]] = {name: {} for name in _kernels([cells[i] for i in index])}
        for i in index:
            kernels[cells[i].cell.kernel][cells[i].cell.range] = fitted[i]
        measured[key] = Measured(kernels, known_trees[key])
    return Kind(kind, measured)


def held_out(kind: str, cells: list[Sample]) -> dict[Key, tuple[dict[str, Floats], Floats]]:
    """(GPU, engine, format) -> shapes that no fit sees, and their measured seconds."""
    found = {}
    for key, index in _groups(cells).items():
        held = [cells[i].held_out for i in index if len(cells[i].held_out.seconds)]
        if held:
            shape = {f: np.concatenate([h.shape[f] for h in held]) for f in law(kind).fields}
            found[key] = shape, np.concatenate([h.seconds for h in held])
    return found


@float64
def errors(kind: str, cells: list[Sample], fitted: list[Fitted], gpus: dict[str, GPU]) -> list[HeldOut]:
    """The error of what was held out, by (GPU, engine, format) and protocol, predicted as a user would: the kernel is
    not stated, it is chosen."""
    known_trees = trees(kind, cells)

    def without(drop: Callable[[Sample], bool]) -> Coefficients | None:
        kept = [i for i, s in enumerate(cells) if not drop(s)]
        if not kept or len(kept) == len(cells):
            return None
        left = gathered(kind, [cells[i] for i in kept], [fitted[i] for i in kept], known_trees)
        return Coefficients({kind: left}, {})

    whole = Coefficients({kind: gathered(kind, cells, fitted, known_trees)}, {})
    pairs = {key[:2] for key in _groups(cells)}
    by_pair = {pair: without(lambda s, p=pair: (s.cell.gpu, s.cell.engine) == p) for pair in pairs}
    by_gpu = {gpu: without(lambda s, g=gpu: s.cell.gpu == g) for gpu, _ in pairs}
    rows = []
    for key, (shape, seconds) in held_out(kind, cells).items():
        gpu, engine, dtype = key
        found = {}
        for protocol, used in zip(PROTOCOLS, (whole, by_pair[gpu, engine], by_gpu[gpu]), strict=True):
            if used is not None:
                guess = predicted(kind, shape, dtype, gpus[gpu], used.choice(kind, gpu, engine, dtype), warm=1.0)
                found[protocol] = np.abs(guess / seconds - 1.0)
        rows.append(HeldOut(kind, gpu, engine, dtype, found))
    return rows


def _line(q: dict[str, Any]) -> str:
    parts = [
        f"{p} {100 * q[f'{p}_median']:.1f} % (P90 {100 * q[f'{p}_p90']:.0f} %)"
        for p in PROTOCOLS
        if q[f"{p}_median"] is not None
    ]
    return "held out: " + ", ".join(parts)
