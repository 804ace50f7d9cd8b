"""What would make an instance fit, change by change; and the longest sequence, by trying every block."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace as Record
from unittest import mock

import numpy as np
import pytest

from dmodels import Parallel, Workload, catalog
from dmodels.core.records import float64
from dmodels.models.instance import Engine
from dmodels.models.memory import kv_reserved_bytes
from dmodels.models.memory import stage as pipeline_stage
from dmodels.studies import size as study


def tried(model, parallel=None):
    gpu = catalog.gpu("h100_sxm")
    asked = study._Try(catalog.model(model), gpu, parallel or Parallel(tp=2.0, pp=2.0, dp=1.0, ep=1.0), 8192.0)
    return asked, float64(study._changes)(asked)


def bytes_each(model):
    """Of dense weights, of experts' and of a number in the cache."""
    return [float(getattr(model, f"{kind}_dtype_bytes")) for kind in ("dense", "expert", "kv")]


@pytest.mark.parametrize(("model", "narrow"), [("llama-3.1-70b", False), ("llama-3.1-70b-fp8", True)])
def test_each_change_is_what_it_says_and_nothing_else(model, narrow):
    """The mildest of each kind first; nothing is asked for that is there already."""
    asked, changes = tried(model)
    texts = [text for text, _ in changes]
    wide = [f"tp = {n}" for n in (4, 8, 16, 32, 64)]
    eight = lambda what: [] if narrow else [f"{what} in FP8"]
    expected = [*eight("KV cache"), *wide, *eight("weights"), "weights in FP4", "pp = 4", "pp = 8"]
    assert texts == expected
    was = bytes_each(asked.model)
    for text, change in changes:
        degrees = {name: float(getattr(change.parallel, name)) for name in ("tp", "pp", "dp", "ep")}
        before = {name: float(getattr(asked.parallel, name)) for name in degrees}
        now = bytes_each(change.model)
        assert (change.gpu, change.context_tokens) == (asked.gpu, asked.context_tokens)
        name, _, number = text.partition(" = ")
        if number:
            assert degrees == before | {name: float(number)} and now == was
            continue
        assert degrees == before
        if text.startswith("KV"):
            assert now == [*was[:2], 1.0]
        else:
            low, high = {"FP8": (1.0, 1.1), "FP4": (0.5, 0.6)}[text.split()[-1]]
            assert low <= now[0] <= high and now[2] == was[2]


def test_weights_are_not_stored_as_they_are_already():
    """As most of them are: experts of 8 or 4 bits stand beside routers of 16, and MXFP4's beside attention of 16. In
    plans' suggestions, too."""
    asked = {name: [t for t, _ in tried(name)[1] if t.startswith("weights")] for name in PUBLISHED}
    assert asked == PUBLISHED
    for name, changes in PUBLISHED.items():
        question = Record(
            model=catalog.model(name),
            gpus={"h100_sxm": catalog.gpu("h100_sxm")},
            engine=Engine(),
            trace=None,
            **dict.fromkeys(("kv", "weights"), ("as published",)),
        )
        suggestions = import_module("dmodels.studies.plan.suggestions")
        with mock.patch.object(suggestions, "replace", lambda asked, **changed: changed):
            offered = [what for what, *_ in suggestions._others(question)]
        assert ("FP8 weights and KV cache" in offered) == ("weights in FP8" in changes), name
        assert "an FP8 KV cache" in offered and offered.count("another token budget of a step") == 3
    for names, offers in ((("a100_80gb_sxm",), False), (("a100_80gb_sxm", "h100_sxm"), True)):  # which any may have
        question.gpus = {name: catalog.gpu(name) for name in names}
        with mock.patch.object(suggestions, "replace", lambda asked, **changed: changed):
            offered = [what for what, *_ in suggestions._others(question)]
        assert ("an FP8 KV cache" in offered) == offers and offered.count("another token budget of a step") == 3


#: Model -> the narrower weights that it may have.
PUBLISHED = {
    "llama-3.1-70b": ["weights in FP8", "weights in FP4"],
    "llama-3.1-70b-fp8": ["weights in FP4"],
    "llama-3.3-70b-nvfp4": [],
    "qwen3-235b-a22b": ["weights in FP8", "weights in FP4"],
    "qwen3-235b-a22b-fp8": ["weights in FP4"],
    "minimax-m2": ["weights in FP4"],
    "kimi-k2.5": [],
    "gpt-oss-120b": [],
}


def test_an_eight_bit_cache_is_not_made_narrower_again():
    asked, _ = tried("llama-3.1-70b")
    again = asked._replace(model=asked.model.replace(kv_dtype_bytes=1.0))
    assert not any(text.startswith("KV") for text, _ in float64(study._changes)(again))
    assert [t for t, _ in float64(study._changes)(asked._replace(parallel=Parallel(tp=64.0, pp=8.0)))] == [
        "KV cache in FP8",
        "weights in FP8",
        "weights in FP4",
    ]


def test_llama_70b_on_eight_h100s_by_default():
    """154 sequences of 8,192 tokens and 320 MiB a GPU, as vLLM is started unless told otherwise."""
    llama, gpu = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm")
    mix = Workload([1000.0, 9000.0], [200.0, 900.0], [0.9, 0.1])
    plain = study.size(llama, gpu, Parallel(tp=8.0), 8192.0, mix)
    said = {"block_tokens": 16, "batched_tokens": 8192, "probability": 0.99, "backend": "vllm", "release": ""}
    same = study.size(llama, gpu, Parallel(tp=8.0), 8192.0, mix, utilization=None, max_sequences=None, **said)
    assert plain.to_dict() == same.to_dict() and int(plain.slots.slots_count) == 154
    assert float(plain.slots.sequence_bytes) == 320 * 2**20
    two = study.size(llama, gpu, Parallel(tp=8.0, dp=2.0), 8192.0, mix)  # of which each rank holds as many
    assert two.mixed.certain_count == pytest.approx(2 * plain.mixed.certain_count, rel=0.05) and two.slots.gpus == 16


@float64
def longest(model, budget, most, tp=2.0):
    """Tokens in whole blocks of 16, one more at a time."""
    part = pipeline_stage(model, 1.0)
    blocks = np.arange(1.0, most // 16 + 1)
    held = np.asarray(kv_reserved_bytes(part, 16.0 * blocks, tp, 16.0, 8192.0))
    return int(16 * np.count_nonzero(held <= budget))


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b"])
@pytest.mark.parametrize("gib", [0.0, 0.5, 3.7, 500.0])
def test_the_longest_sequence_is_the_last_block_that_fits(model, gib, monkeypatch):
    """Of a window's layers, too, which stop growing; never beyond the model's own context. A thousand lengths at a
    time: two looks at a million tokens in blocks of 16."""
    looks = []

    def reserved(*given):
        assert len(looks) < 2, "it goes on and on"
        looks.append(given)
        return kv_reserved_bytes(*given)

    monkeypatch.setattr(study, "kv_reserved_bytes", reserved)
    record, budget = catalog.model(model), gib * 2**30
    asked = study._Try(record, catalog.gpu("h100_sxm"), Parallel(tp=2.0), 1024.0)
    options = study._Options(0.9, 16.0, 8192.0, 256.0, None)
    found = float64(study._longest)(asked, budget, options)
    assert found == longest(record, budget, float(record.max_context_tokens))
