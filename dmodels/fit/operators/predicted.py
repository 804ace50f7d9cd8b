"""Seconds of many shapes of one kind of operator, in blocks of two sizes: one compilation per law and arithmetic."""

from __future__ import annotations

import numpy as np

from dmodels.core.hardware import GPU
from dmodels.core.programs import at_once
from dmodels.core.records import Floats
from dmodels.models.operators import Choice, kernel_s, law, number_format
from dmodels.models.operators.choice import chosen
from dmodels.models.operators.formats import Format

#: Rows that are predicted at once, so that nothing recompiles; and few rows, for which nothing is compiled at all.
CHUNK, FEW = 2048, 64


def predicted(kind: str, shape: dict[str, Floats], dtype: str, gpu: GPU, choice: Choice, warm: float) -> Floats:
    """`operators.time_s` without its floor, chunk by chunk and kernel by kernel; `warm` 1: a benchmark's loop."""
    rows = len(next(iter(shape.values())))
    form = number_format(dtype)
    numbers = np.array([form.weight_bytes, form.activation_bytes, form.quantises])
    which = np.asarray(chosen(choice.tree, shape)) + np.zeros(rows)
    found = np.zeros(rows)
    for i, u in enumerate(choice.u):
        mine = np.flatnonzero(which == i)
        for first in range(0, len(mine), CHUNK):
            part = mine[first : first + CHUNK]
            size = FEW if len(part) <= FEW else CHUNK
            held = {field: np.resize(values[part], size) for field, values in shape.items()}
            found[part] = np.asarray(_seconds(str(kind), form.bits, held, gpu, u, numbers, warm))[: len(part)]
    return found


@at_once
def _seconds(kind: str, bits: int, shape, gpu: GPU, u, numbers, warm):
    return kernel_s(law(kind), shape, Format(numbers[0], numbers[1], bits, numbers[2]), gpu, u, warm)
