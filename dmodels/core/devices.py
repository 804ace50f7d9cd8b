"""Where this process computes its batches: JAX's platform, chosen once, before JAX begins."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from .errors import InputError

DEVICES = ("auto", "cpu", "gpu")

_chosen = "auto"


def choose_device(device: str) -> None:
    """Where this process computes batches; `--device` of the commands.

    device    "auto": JAX's programs run where JAX puts them, and batches that have a solver on the host, too, go to an
              accelerator where there is one and they are large enough (`backend="auto"` of solvers).
              "cpu": everything stays on the CPU.
              "gpu": everything that has a program for accelerators runs on one, however small; InputError where JAX
              sees none (any accelerator will do: CUDA's, AMD's, a TPU).

    A choice of the process, as its threads and its children have to agree; make it before anything is computed.
    """
    global _chosen
    if device not in DEVICES:
        raise InputError(f"device = {device!r}; accepted are {', '.join(DEVICES)}")
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
        if "jax" in sys.modules:  # it has read the environment already
            import jax

            jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
            if accelerators():
                raise InputError("device = 'cpu': this process has begun on an accelerator; accepted in one of its own")
    if device == "gpu" and not accelerators():
        raise InputError("device = 'gpu', but JAX sees no accelerator here; accepted are auto, cpu")
    _chosen = device


def chosen_device() -> str:
    """What `choose_device` was told, "auto" before."""
    return _chosen


@cache
def accelerators() -> tuple[Any, ...]:
    """Devices of JAX's default platform that are not CPUs; to ask starts JAX's."""
    import jax

    return tuple(device for device in jax.devices() if device.platform != "cpu")
