"""What a JAX program becomes for a device that is not here, and whether it would stay there."""

from __future__ import annotations

import re

import jax
import pytest

#: Custom calls that are compiled with the program; a callback to the host is a custom call of another name.
ON_THE_DEVICE = {"__gpu$xla.gpu.triton"}


def lowered(traced, platform: str = "cuda") -> str:
    """The text of a traced program, lowered for `platform`."""
    try:
        return traced.lower(lowering_platforms=(platform,)).as_text()
    except RuntimeError as error:  # jax 0.11 on wants a GPU to lower a Triton kernel for
        assert "No supported GPU devices" in str(error)
        pytest.skip("this JAX lowers Triton kernels only where there is a GPU")


def lowered_for(platform: str, program, *arrays) -> str:
    """The same of a function of arrays of these shapes."""
    return lowered(jax.jit(program).trace(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays)), platform)


def check_stays_on_the_device(text: str, calls: set[str] = ON_THE_DEVICE) -> None:
    """No callback to the host, no custom call but `calls`, no shape that is not known."""
    found = set(re.findall(r"custom_call @([\w$.]+)", text)) | set(re.findall(r'call_target_name = "([^"]+)"', text))
    assert found <= calls, found
    assert "callback" not in text and "tensor<?" not in text and "x?x" not in text
