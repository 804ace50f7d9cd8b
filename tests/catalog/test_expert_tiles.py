"""Which experts an engine has tuned tiles for: public names of files, spelled as the catalogue spells them."""

from __future__ import annotations

import pytest

from dmodels import catalog
from dmodels.catalog.expert_tiles import _shipped, tuned_shapes
from dmodels.models.operators import FORMATS


def test_names_are_those_of_the_catalogue_and_shapes_are_whole_and_ordered():
    for (engine, gpu, dtype), shapes in _shipped().items():
        assert engine in ("sglang", "vllm") and gpu in catalog.gpus() and dtype in FORMATS
        assert list(shapes) == sorted(set(shapes)) and all(value == int(value) > 0 for pair in shapes for value in pair)


@pytest.mark.parametrize(
    "engine, gpu, dtype, experts, width, listed",
    [  # files E=...,N=...,device_name=... of the releases named in the table
        ("sglang", "h100_sxm", "bfloat16", 128, 768, True),
        ("sglang", "h100_sxm", "bfloat16", 128, 1536, False),
        ("sglang", "h200_sxm", "fp8_block", 256, 256, True),
        ("sglang", "b200_sxm", "bfloat16", 16, 2048, True),
        ("sglang", "gb200", "bfloat16", 16, 2048, False),
        ("vllm", "h100_sxm", "bfloat16", 8, 7168, True),
        ("vllm", "h200_sxm", "bfloat16", 16, 2048, True),
        ("vllm", "a100_80gb_sxm", "bfloat16", 8, 14336, False),
        ("trtllm", "h100_sxm", "bfloat16", 8, 7168, False),
    ],
)
def test_shapes_that_are_listed(engine, gpu, dtype, experts, width, listed):
    assert ((float(experts), float(width)) in tuned_shapes(engine, gpu, dtype)) == listed
