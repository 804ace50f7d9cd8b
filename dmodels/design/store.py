"""Where the outputs of a sweep are gathered: in memory, or in files that outlive a killed run.

On disk each output is one `.npy` file, written block by block through a memory map, beside a byte per block that says
whether it is finished. A block's byte is set after its numbers are on disk, so a killed sweep goes on where it stopped;
writing a block twice writes the same numbers to the same places, so nothing is ever counted twice.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import float64

from .program import Program


class Store:
    """Arrays (rows, columns, ...) of every output, and which blocks are in them."""

    def __init__(self, asked: Program, arrays: dict[str, np.ndarray], done: np.ndarray):
        self.asked, self.arrays, self.done = asked, arrays, done

    def todo(self) -> list[int]:
        """Blocks that are not finished, in order."""
        return [int(block) for block in np.flatnonzero(self.done == 0)]

    def put(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Write a block's numbers, and then that they are there."""
        window = self.asked.window(number)
        for name, value in outputs.items():
            self.arrays[name][window] = value
        if isinstance(self.done, np.memmap):
            for array in self.arrays.values():
                array.flush()
        self.done[number] = 1


def in_memory(asked: Program, shapes: Mapping) -> Store:
    """A store that lives as long as the process."""
    arrays = {name: np.empty((*asked.shape, *like.shape[2:]), like.dtype) for name, like in shapes.items()}
    return Store(asked, arrays, np.zeros(asked.blocks_count, np.uint8))


def on_disk(folder: Path, asked: Program, shapes: Mapping, fingerprint: str) -> Store:
    """The store in `folder`: a new one, or one that an earlier run of the same question left unfinished."""
    manifest = folder / "manifest.json"
    if manifest.exists():
        found = json.loads(manifest.read_text(encoding="utf-8")).get("fingerprint")
        if found != fingerprint:
            raise InputError(
                f"{folder} holds an unfinished sweep of another formula, other numbers or other versions; "
                "accepted: delete it, or write to another file"
            )
        arrays = {name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="r+") for name in shapes}
        return Store(asked, arrays, np.lib.format.open_memmap(folder / "done.npy", mode="r+"))
    shutil.rmtree(folder, ignore_errors=True)  # a run that died before its manifest was written
    folder.mkdir(parents=True)
    try:
        arrays = {
            name: _reserved(folder / f"{name}.npy", like.dtype, (*asked.shape, *like.shape[2:]))
            for name, like in shapes.items()
        }
        done = _reserved(folder / "done.npy", np.uint8, (asked.blocks_count,))
        half = folder / ".manifest.json"
        half.write_text(json.dumps({"fingerprint": fingerprint, "outputs": list(shapes)}), encoding="utf-8")
        half.replace(manifest)
    except OSError as error:  # a full disk
        shutil.rmtree(folder)
        raise InputError(f"{folder}: cannot be written ({(error.strerror or str(error)).lower()})") from None
    return Store(asked, arrays, done)


def _reserved(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array on disk whose bytes are its own: a memory map of a disk that fills up later ends the process."""
    array: np.ndarray = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


@float64
def agree(store: Store) -> None:
    """Let all processes go on from the blocks that the first one found finished."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    done = np.asarray(broadcast_one_to_all(np.asarray(store.done)))
    if not done.any():
        return
    for array in store.arrays.values():
        first = np.asarray(broadcast_one_to_all(np.asarray(array)))
        if jax.process_index() > 0:
            array[...] = first
    store.done[...] = done
