"""What would make an instance fit, change by change; and the longest sequence, by trying every block."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from types import SimpleNamespace as Record
from unittest import mock

import numpy as np
import pytest

from dmodels import Model, Parallel, Workload, catalog
from dmodels.core.flags import Flag
from dmodels.core.records import float64
from dmodels.models.instance import Engine
from dmodels.models.memory import Slots, kv_reserved_bytes
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
    unknown = asked._replace(model=Model(80.0, 8.0, 128.0, weight_bytes=141e9))  # of which only the bytes are known
    assert not [text for text, _ in float64(study._changes)(unknown) if text.startswith("weights")]


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


def test_a_size_is_put_together_from_its_parts(monkeypatch):
    """The asked one first, then each change; where it is not usable the mildest change of each kind that is, and the
    longest context before them all."""
    seen = {}

    def kept(name, given):
        def part(*asked, **more):
            seen[name] = (asked, more)
            return given

        monkeypatch.setattr(study, name, part)

    changes = [
        ("KV cache in FP8", "kv"),
        ("tp = 4", "four"),
        ("tp = 8", "eight"),
        ("weights in FP8", "w"),
        ("pp = 2", "p"),
    ]
    flags = np.array([int(Flag.NO_FIT), int(Flag.NO_FIT), int(Flag.NO_FIT), 0, 0, 0])
    one = dict.fromkeys((x.name for x in fields(Slots)), 0.0)
    one |= {"budget_bytes": 100.0, "weight_bytes": 1000.0, "activation_bytes": 200.0, "runtime_bytes": 30.0}
    slots = Slots(
        **one | {"slots_count": np.array([0.0, 1.0, 2.0, 8.0, 16.0, 4.0]), "sequence_bytes": 7.0, "flags": flags}
    )
    fakes = {"_changes": changes, "stack": "batch", "_slots": slots, "_longest": 4096, "_mixed": "mixed"}
    fakes |= {"engine_memory": "memory", "default_utilization": 0.875, "default_sequences": 64.0, "_binds": "why"}
    fakes |= {"_reserved_bytes": "held", "sequences_that_fit": 3.0, "_weights": np.array(5.0)}
    for name, given in fakes.items():
        kept(name, given)
    model, gpu, two = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(tp=2.0, dp=2.0)
    found = study.size(model, gpu, two, 8192.0)
    asked = (model, gpu, two, 8192.0)
    options = (0.875, 16.0, 8192.0, 64.0, "memory")
    assert seen["stack"][0] == (asked, "kv", "four", "eight", "w", "p") and seen["_slots"][0] == ("batch", options)
    assert seen["engine_memory"][0] == ("vllm", "") and seen["default_sequences"][0] == ("vllm", gpu)
    assert seen["default_utilization"][0] == ("memory", gpu, two, 8192) and seen["_changes"][0] == (asked,)
    assert seen["_longest"][0] == (asked, 100.0, options) and seen["_weights"][0] == (model, two)
    assert seen["_reserved_bytes"][0] == (model, two, 4096.0, 16.0, 8192.0)
    assert seen["sequences_that_fit"][0] == (100.0, "held") and seen["_binds"][0][1] == 8192.0 and "_mixed" not in seen
    assert [(fix.change, fix.slots_count) for fix in found.fixes] == [
        *[("a context of 4,096 tokens", 6), ("tp = 8", 8), ("weights in FP8", 16), ("pp = 2", 4)],
    ]
    assert (found.longest_context_tokens, found.binds, found.mixed, found.fits) == (4096, "why", None, False)
    assert (found.have_bytes, found.need_bytes, float(found.weights)) == (1330.0, 1237.0, 5.0)
    assert float(found.slots.slots_count) == 0.0 and int(found.slots.flags) == int(Flag.NO_FIT)
    given = {"utilization": 0.5, "block_tokens": 32, "batched_tokens": 512, "probability": 0.9, "max_sequences": 8}
    full = study.size(model, gpu, two, 4096.0, "work", **given, backend="sglang", release="0.5")
    asked, options = (model, gpu, two, 4096.0), (0.5, 32.0, 512.0, 8.0, "memory")
    assert seen["_slots"][0][1] == options and seen["engine_memory"][0] == ("sglang", "0.5")
    assert seen["_mixed"][0] == (asked, "work", 0.9, options) and full.mixed == "mixed"
    assert [fix.change for fix in full.fixes] == ["tp = 8", "weights in FP8", "pp = 2"]  # as long as was asked for
    flags[0] = 0
    assert study.size(model, gpu, two, 8192.0).fixes == () and study.size(model, gpu, two, 8192.0).fits
    flags[0] = int(Flag.OUT_OF_DOMAIN)  # of a layout that no engine runs no context fits
    assert [fix.change for fix in study.size(model, gpu, two, 8192.0).fixes] == ["tp = 8", "weights in FP8", "pp = 2"]


@float64
def test_a_mix_of_lengths_in_words_and_numbers(monkeypatch):
    """Two ranks hold as many each; what is certain is no more than what is likely."""
    held = Record(budget_bytes=90.0, each=Record(mean_bytes=8.5), count=12.75)
    seen = []
    monkeypatch.setattr(study, "residents", lambda *given, **more: seen.append((given, more)) or held)
    certain = iter([4.5, 7.0])
    monkeypatch.setattr(study, "sequences_by_bernstein", lambda *given: seen.append(given) or next(certain))
    work = Record(input_tokens="in", output_tokens="out", weight_frac="shares")
    options = study._Options(0.9, 16.0, 8192.0, 256.0, "memory")
    asked = study._Try("model", "gpu", Record(dp=2.0), 1024.0)
    assert study._mixed(asked, work, 0.95, options) == study.Mixed(8.5, 12, 9, 0.95)
    (place, more), given = seen
    assert place == ("model", "gpu", asked.parallel) and given == (90.0, held.each, 0.95)
    lengths = {"input_tokens": "in", "output_tokens": "out", "weights": "shares", "probability": 0.95}
    assert more == lengths | options._asdict()
    assert study._mixed(asked, work, 0.95, options).certain_count == 12
