"""What fits is one number, whoever is asked: `size`, `plan`, `predict` and `serve`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dmodels import SLO, Efficiency, Flag, Parallel, Workload, catalog
from dmodels.fit.points import LENGTH_FRAC, TIGHT, checkpoint, resident_counts, to_points
from dmodels.fit.predict import predict
from dmodels.fit.rows import Table, parse_row
from dmodels.models.instance import Engine
from dmodels.models.latency import serve
from dmodels.models.memory import (
    ENGINES,
    LAYOUT_RULE,
    activation_bytes,
    concurrent_sequences,
    engine_memory,
    kv_budget_bytes,
    residents_of_length,
    room_and_need_bytes,
    runtime_bytes,
)
from dmodels.studies.plan.designs import Stage, cells
from dmodels.studies.plan.layouts import instances, layouts
from dmodels.studies.size import size
from dmodels.studies.step import step_times
from tests.models.closed_loops import serve_one

LENGTHS = ((7000.0, 1000.0), (1024.0, 256.0))
QUICK_MODELS = ("llama-3.1-70b", "gemma-3-27b", "gpt-oss-120b", "deepseek-r1", "qwen3-next-80b-a3b")
QUICK_GPUS = ("h100_sxm", "b200_sxm")


def everything(models, gpus):
    """(names, records) of each model on each GPU in every layout that a plan asks about, pipeline stages among them."""
    found = [
        (model, layout)
        for model in models
        for layout in layouts(catalog.model(model), {g: catalog.gpu(g) for g in gpus}, pp=(1, 2))
    ]
    records = [catalog.model(model) for model, _ in found]
    on = {g: catalog.gpu(g) for g in gpus}
    return found, instances(records, on, [layout for _, layout in found], lambda _: Efficiency())


def planned(records, isl, osl, memory):
    workload = Workload([isl], [osl], [1.0])
    found = cells(records, workload, workload, [Stage("all")], SLO(), Engine(), memory=memory)
    return np.asarray(found.slots_count)[:, 0]


def served(records, isl, osl, memory):
    """Of each layout by itself, in a program that other tests have, too; and the slots of whole requests."""
    each = (jax.tree.map(lambda leaf, i=i: leaf[i], records) for i in range(len(records.parallel.tp)))
    found = [serve_one(one.model, one.gpu, one.parallel, isl, osl, 8.0, engine=memory) for one in each]
    p = records.parallel
    worst = concurrent_sequences(records.model, records.gpu, isl + osl, p.tp, p.pp, p.dp, p.ep, engine=memory)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found), np.asarray(worst.slots_count)


def same_number(models, gpus, sized, lengths=LENGTHS, engine="vllm"):
    """One check of all layouts; `size` is asked about every `sized`-th of them."""
    found, records = everything(models, gpus)
    memory = engine_memory(engine)
    for isl, osl in lengths:
        plan = planned(records, isl, osl, memory)
        s, worst = served(records, isl, osl, memory)
        np.testing.assert_array_equal(s.resident_max_count, plan)
        np.testing.assert_array_equal(plan >= 1, worst >= 1)  # one fits where there is room for its last token
        assert (plan >= worst).all()
        np.testing.assert_array_equal((s.flags & Flag.NO_FIT) != 0, plan < 1)
        np.testing.assert_array_equal(np.isinf(s.ttft_s), plan < 1)
        workload = Workload([isl], [osl], [1.0])
        for i in range(0, len(found), sized):
            model, layout = found[i]
            parallel = Parallel(layout.tp, layout.pp, layout.dp, layout.ep)
            place = (catalog.model(model), catalog.gpu(layout.gpu), parallel)
            answer = size(*place, isl + osl, workload, max_sequences=256, backend=engine)
            assert answer.mixed.slots_count == plan[i], (model, layout)
            assert float(answer.slots.slots_count) == worst[i], (model, layout)
    return len(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_size_plan_and_serve_say_the_same_number(engine):
    assert same_number(QUICK_MODELS, QUICK_GPUS, sized=37, lengths=LENGTHS[:1], engine=engine) > 50


@pytest.mark.slow
def test_size_plan_and_serve_say_the_same_number_of_the_whole_catalogue():
    assert same_number(catalog.models(), catalog.gpus(), sized=31) > 5000


def test_step_and_predict_count_by_the_engines_rule():
    """Llama-3.1-70B in BF16 on two H100s: TensorRT-LLM's share is of what weights leave, SGLang's starts lower."""
    model, gpu, parallel = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), Parallel(2.0)
    counts = []
    for engine in ENGINES:
        points, _ = to_points(Table([row("llama-3.1-70b", "h100_sxm", 2, 1000, 500, backend=engine)], []))
        isl, osl = float(points.isl[0]), float(points.osl[0])
        said = size(model, gpu, parallel, 1500, Workload([isl], [osl], [1.0]), max_sequences=256, backend=engine)
        share = float(points.utilization[0])
        assert share == TIGHT or said.mixed.slots_count == resident_counts(points, points.decode, points.osl)[0]
        shown = step_times(
            model, gpu, parallel, input_tokens=isl, output_tokens=osl, gpu_name="h100_sxm", backend=engine
        )
        assert shown.fits == (said.mixed.slots_count >= 1)
        counts.append(said.mixed.slots_count)
    assert len(set(counts)) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_room_and_need_of_what_does_not_fit(engine):
    """Llama-3.1-70B in BF16 on one H100, by each engine's own rule and by hand: 141 GB of weights and what is charged
    beside them, of 85 GB. Where the same fits over four, the room is larger than the need by what is left."""
    model, gpu, memory = catalog.model("llama-3.1-70b"), catalog.gpu("h100_sxm"), engine_memory(engine)
    for tp in (1.0, 4.0):
        place = Parallel(tp)
        left = float(kv_budget_bytes(model, gpu, place, engine=memory))
        room, need = room_and_need_bytes(gpu, place, left, engine=memory)
        charged = float(runtime_bytes(gpu, place, memory))
        charged += memory.activations_charged * float(activation_bytes(model, place, 8192, 256, memory))
        assert need == pytest.approx(141.1e9 / tp + charged, rel=2e-3)
        assert (room < need) == (left < 0) == (tp == 1.0)
        share = {"vllm": 0.9, "trtllm": 1.0}.get(engine)
        assert share is None or room == pytest.approx(share * 79.18 * 2**30, rel=1e-6)
        assert 0.8 * 79 * 2**30 < room <= 79.2 * 2**30


def row(model, gpu, tp, isl, osl, precision="", backend="vllm"):
    cell = {"id": f"{model} {gpu} tp{tp}", "model_path": model, "system": gpu, "backend": backend, "batch_size": "8"}
    cell |= {"isl": str(isl), "osl": str(osl), "tp_size": str(tp), "gemm_dtype": precision, "moe_dtype": precision}
    return parse_row(cell, measured=False)


def rows_of(models, gpus):
    return [
        row(model, gpu, tp, *lengths)
        for model in models
        for gpu in gpus
        for tp in (1, 2, 8)
        if float(catalog.model(model).n_q_heads) % tp == 0  # others no engine runs
        for lengths in ((7000, 1000), (1024, 256))
    ]


def predicted_fits(models, gpus, served):
    """`predict` counts as `serve` does; rows that do not fit in all of the memory are refused, and no other."""
    rows = rows_of(models, gpus)
    points, kept = to_points(Table(rows, []))
    accepted = {r.id + str(r.isl) for r in kept.rows}
    for r in rows:
        most = concurrent_sequences(
            checkpoint(r), catalog.gpu(r.system), LENGTH_FRAC * (r.isl + r.osl), tp=r.decode.tp, utilization=TIGHT
        )
        assert (r.id + str(r.isl) in accepted) == (float(most.slots_count) >= 1), r
    assert all("does not fit" in rejected.reason for rejected in kept.rejected)
    said = resident_counts(points, points.decode, points.osl)
    assert (said >= 1).all()
    if served:
        asked = (points.model, points.gpu, points.decode, points.isl, points.osl, points.concurrency)
        s = jax.jit(serve)(*asked, utilization=points.utilization, engine=points.memory)
        np.testing.assert_array_equal(said, s.resident_max_count)
    return kept


def test_predict_refuses_what_does_not_fit_and_nothing_else():
    kept = predicted_fits(("llama-3.1-70b", "qwen3-32b"), QUICK_GPUS, served=False)
    assert {r.id for r in kept.rejected} == {"llama-3.1-70b h100_sxm tp1"}  # 141 GB of weights on 85 GB


@pytest.mark.slow
def test_predict_counts_as_serve_does_over_the_whole_catalogue():
    predicted_fits(catalog.models(), catalog.gpus(), served=True)


def test_a_row_that_does_not_fit_gets_a_reason_and_no_latency():
    fits, not_ = row("llama-3.1-70b", "h100_sxm", 8, 1024, 256), row("llama-3.1-70b", "h100_sxm", 1, 1024, 256)
    answer = predict(Table([fits, not_], []))
    assert [v["id"] for v in answer.values] == [fits.id] and answer.values[0]["ttft_ms"] < 1e4
    (refused,) = answer.rejected
    assert refused.id == not_.id and refused.reason.startswith("does not fit: llama-3.1-70b (bf16) over tp1 dp1 ep1")


def test_a_row_of_a_layout_that_no_engine_runs_is_refused():
    """64 query heads over 3 GPUs."""
    answer = predict(Table([row("llama-3.1-70b", "h100_sxm", tp, 1024, 256) for tp in (3, 4)], []))
    assert len(answer.values) == 1
    assert answer.rejected[0].reason == f"no engine runs llama-3.1-70b over tp3 dp1 ep1: {LAYOUT_RULE}"


@pytest.mark.parametrize(
    ("model", "tp", "isl", "osl", "count"),
    [
        ("gemma-3-27b", 1.0, 7000.0, 1000.0, 4),
        ("llama-3.1-70b", 2.0, 6500.0, 1000.0, 2),
        ("llama-3.1-70b", 2.0, 7000.0, 1000.0, 1),
    ],
)
def test_requests_on_h100s(model, tp, isl, osl, count):
    """19.7 GB over at most 508 kB a token; 2.53 GB over 164 kB a token and GPU: by hand, from the config's fields."""
    assert float(residents_of_length(catalog.model(model), catalog.gpu("h100_sxm"), Parallel(tp), isl, osl)) == count
