"""What a refit says of itself, which published deployment a row ran on, and what fits, by other means."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from statistics import fmean, median, stdev

import numpy as np
import pytest
from scipy import stats

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.fit import refit as refitting
from dmodels.fit.calibration import calibration, efficiency_for
from dmodels.fit.descent import Weighing
from dmodels.fit.hierarchy import NAMES
from dmodels.fit.layouts import layouts
from dmodels.fit.operators.blocks import block
from dmodels.fit.operators.columns import EXPANDED, LATENT
from dmodels.fit.points import checkpoint, nearest_model, to_points
from dmodels.fit.recipes import Layout, candidates, recipe
from dmodels.fit.refit import read_own, refit, written
from dmodels.fit.rows import Rejected, Table
from dmodels.fit.runs import settings
from dmodels.fit.silicon import Effects
from tests.fit.test_by_counting import PLAIN


def lines(name):
    """A list of the package by the standard library's reader, without its comments."""
    text = files("dmodels.fit").joinpath(f"data/{name}.csv").read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def test_a_refit_says_how_far_off_it_was_is_and_would_be(monkeypatch, tmp_path):
    """Before, after, and on points that it did not see, each error by hand; the spread of new points by Student's t."""
    rng = np.random.default_rng(0)
    rows = [
        replace(
            PLAIN,
            id=f"r{k}",
            concurrency=float(4 << (k % 5)),
            precision=("", "fp8")[k > 8],
            ttft_s=0.1 + 0.01 * k,
            tpot_s=0.01 + 1e-4 * k,
        )
        for k in range(12)
    ]
    measured = np.array([[row.ttft_s, row.tpot_s] for row in rows])
    before, after, blind = (np.log(measured) + rng.normal(shift, 0.2, (12, 2)) for shift in (0.5, 0.0, 0.1))
    after[3] += math.log(9.0)
    asked = []
    beta = np.full((2, len(NAMES)), 0.25)
    found = Effects(("all", "gpu=h100_sxm"), beta)
    monkeypatch.setattr(refitting, "read_any", lambda paths, machine: (paths, machine))
    monkeypatch.setattr(refitting, "to_points", lambda table: (table, Table(rows, [Rejected("x", 3, "why")])))
    monkeypatch.setattr(refitting, "predict_log", lambda p, r, effects: after if effects is found else before)
    monkeypatch.setattr(refitting, "fit", lambda p, r, **more: asked.append(more) or found)
    monkeypatch.setattr(
        refitting, "held_out", lambda p, r, protocol, **more: asked.append((protocol, more)) or [blind, None]
    )
    told = refit("file.csv", 7)
    own = {"prior": calibration(), "max_steps": 7, "weighing": Weighing(12.0, (0.125, 0.10))}
    assert asked == [own, ("random", own)]
    for name, log in (("before", before), ("after", after), ("held_out", blind)):
        for j, metric in enumerate(("ttft", "tpot")):
            off = sorted(abs(math.exp(log[i, j]) / measured[i, j] - 1) for i in range(12))
            said = getattr(told, name)[metric]
            assert (said.count, said.median, said.mean) == (12, pytest.approx(median(off)), pytest.approx(fmean(off)))
    for j, metric in enumerate(("ttft", "tpot")):
        error = [math.log(measured[i, j]) - blind[i, j] for i in range(12)]
        half = stats.t.ppf(0.9, 11) * stdev(error) * math.sqrt(1 + 1 / 12)
        ends = min(fmean(error) - half, 0.0), max(fmean(error) + half, 0.0)
        assert told.spread80[metric] == pytest.approx(tuple(map(math.exp, ends)))
    assert {one.id for one in told.outliers} >= {"r3"} and told.rejected == [Rejected("x", 3, "why")]
    assert told.rows == rows and len(told.sweeps) == 1 and set(told.sweeps[0].concurrency_count) == {4, 8, 16, 32, 64}
    places = {level: i for i, level in enumerate(told.effects.levels)}
    assert set(places) == {*calibration().levels, *found.levels}
    assert (told.effects.beta[places["all"]] == 0.25).all() and (
        told.effects.beta[places["gpu=h100_sxm"]] == 0.25
    ).all()
    old = calibration().beta[calibration().levels.index("backend=vllm")]
    assert told.effects.beta[places["backend=vllm"]].tolist() == old.tolist()
    assert [(row["gpu"], row["backend"], row["precision"]) for row in told.table] == [
        ("h100_sxm", "vllm", "bf16"),
        ("h100_sxm", "vllm", "fp8"),
    ]
    mine = efficiency_for("h100_sxm", "vllm", "bf16", effects=found)
    assert told.table[0]["hbm_frac"] == pytest.approx(float(mine.hbm_frac))
    mine = told.own
    assert mine.pairs == {("llama-3.1-8b", "h100_sxm", "vllm")} and (mine.points_count, mine.spread80) == (
        12,
        told.spread80,
    )
    assert mine.effects is told.effects
    path = tmp_path / "own.json"
    path.write_text(written(mine, "ours"))
    again = read_own(path)
    assert (again.pairs, again.points_count) == (mine.pairs, 12) and again.spread80 == mine.spread80
    said = json.loads(path.read_text())["provenance"]
    assert (said["rows"], said["count"]) == ("ours", 12)
    np.testing.assert_allclose(again.effects.beta, mine.effects.beta, atol=1.01e-4)


def test_few_points_have_the_spread_of_a_gpu_that_nobody_measured():
    rows = [replace(PLAIN, ttft_s=0.1, tpot_s=0.01)] * 2
    assert refitting._spread(np.zeros((2, 2)), rows) == {"ttft": (0.5, 2.5), "tpot": (0.6, 1.7)}
    three = refitting._spread(np.log([[0.1, 0.01]] * 3) + np.log(2.0), [*rows, rows[0]])
    assert three == {
        "ttft": pytest.approx((0.5, 1.0)),
        "tpot": pytest.approx((0.5, 1.0)),
    }  # all are half of what is said


@pytest.mark.parametrize(
    "factor, wrong", [(99.0, None), (101.0, "TTFT is 101"), (1 / 99, None), (1 / 101, "TTFT is 0.0099")]
)
def test_units_are_judged_by_the_middle_of_all_points(factor, wrong):
    rows = [replace(PLAIN, ttft_s=0.1 * factor, tpot_s=0.01), replace(PLAIN, ttft_s=9e9, tpot_s=0.01)]
    rows += [replace(PLAIN, id="low", ttft_s=1e-9, tpot_s=0.01)]
    predicted = np.log([[0.1, 0.01]] * 3)
    if wrong is None:
        refitting._check_units(predicted, rows)
        return
    with pytest.raises(InputError, match=f"{wrong}.*median of 3 points, r the first"):
        refitting._check_units(predicted, rows)
    with pytest.raises(InputError, match="TPOT is"):
        refitting._check_units(np.log([[0.1 * factor, 0.01 / factor]] * 3), rows)


def listed(row, cell, clients, prefill, ep, decode):
    """How well a line of the list agrees with a row, or None: a date counts more than expert parallelism alike."""
    if str(int(clients)) not in row["clients"].split() or row["date"] not in cell["silicon_data_source"]:
        return None
    if any(row[name] != cell[name] for name in ("backend", "system", "precision", "isl", "osl")):
        return None
    if not re.search(row["model"], cell["model_path"], re.IGNORECASE):
        return None
    sides = [re.fullmatch(r"(\d+)x(d?)(t?)(e?)p(\d+)", row[name]).groups() for name in ("prefill", "decode")]
    each = [int(gpus) for *_, gpus in sides]
    whole = sum(int(count) * int(gpus) for count, *_, gpus in sides)
    if (prefill, decode) not in ((1, 1), (whole, whole), tuple(each)):
        return None
    expert = int(sides[0][4]) if sides[0][3] else 1
    return bool(row["date"]), min(expert, 2) == min(ep, 2)


def test_the_deployment_of_a_row_by_reading_the_whole_list():
    """Of rows that state the GPUs of one instance of each kind, of all, or none."""
    rows, rng, seen = lines("recipes"), np.random.default_rng(0), {0: 0, 1: 0, 2: 0}
    for _ in range(150):
        one = rows[rng.integers(len(rows))]
        cell = {name: one[name] for name in ("backend", "system", "precision", "isl", "osl")}
        cell |= {"model_path": "deepseek-ai/DeepSeek-R1" if "deepseek" in one["model"] else f"x/{one['model']}"}
        cell["silicon_data_source"] = rng.choice(["", f"measured={one['date']}", "measured=2026-03-23"])
        clients = float(rng.choice(one["clients"].split()))
        gpus = [int(re.search(r"p(\d+)$", one[name])[1]) for name in ("prefill", "decode")]
        counts = [int(one[name].split("x")[0]) for name in ("prefill", "decode")]
        whole = sum(n * g for n, g in zip(counts, gpus, strict=True))
        prefill, decode = [(1, 1), (whole, whole), tuple(gpus), (gpus[0], gpus[1] + 1)][rng.integers(4)]
        ep = int(rng.choice([1, 4, 8]))
        ranks = [listed(row, cell, clients, prefill, ep, decode) for row in rows]
        best = max((rank for rank in ranks if rank is not None), default=None)
        wanted = [row for row, rank in zip(rows, ranks, strict=True) if rank is not None and rank == best]
        found = candidates(cell, clients, float(prefill), float(ep), float(decode))
        assert [(r.draft_tokens, r.decode.gpus * r.decode.instances, min(r.decode.batch, 1e9)) for r in found] == [
            (
                float(row["draft_tokens"]),
                math.prod(int(part) for part in re.findall(r"\d+", row["decode"])),
                float(row["batch"] or 1e9),
            )
            for row in wanted
        ]
        told, only = recipe(cell, clients, float(prefill), float(ep), float(decode))
        known = settings(cell, "disagg").draft_tokens
        kinds = {known > 0} if known is not None else {False, True}
        left = [r for r in found if (r.draft_tokens > 0) in kinds] or found
        plain = [r for r in left if not r.draft_tokens]  # without speculation where nothing tells
        assert told == ((plain or left)[0] if found else None) and only == (len(left) == 1)
        seen[min(len(found), 2)] += 1
    assert min(seen.values()) > 10


def test_a_row_that_states_its_instances_takes_the_batch_of_the_deployment_alike():
    """The least speculative of those that agree; none where the decode side is another."""
    rows = [
        row for row in lines("recipes") if row["batch"] and row["draft_tokens"] == "0" and "deepseek" in row["model"]
    ]
    checked = 0
    for one in rows[::7]:
        sides = [re.fullmatch(r"(\d+)x(d?)(t?)(e?)p(\d+)", one[name]).groups() for name in ("prefill", "decode")]
        cell = {name: one[name] for name in ("backend", "system", "precision", "isl", "osl")}
        clients = one["clients"].split()[0]
        cell |= {
            "model_path": "deepseek-ai/DeepSeek-R1",
            "silicon_data_source": f"silicon_concurrency={clients}; measured={one['date']}",
        }
        for name, (count, dp, _, ep, gpus) in zip(("prefill", "decode"), sides, strict=True):
            cell |= {f"{name}_num_workers": count, f"{name}_moe_ep_size": gpus if ep else "1"}
            cell |= {f"{name}_tp_size": "1" if dp else gpus, f"{name}_attention_dp_size": gpus if dp else "1"}
        told = layouts(cell, "disagg")
        width = float(sides[1][4])
        decode = Layout(
            *((1.0, width) if sides[1][1] else (width, 1.0)), width if sides[1][3] else 1.0, float(sides[1][0])
        )
        same = candidates(cell, float(clients), told.prefill.gpus, told.prefill.ep, decode.gpus)
        same = [r for r in same if r.decode._replace(batch=math.inf) == decode]
        assert told.stated and told.decode._replace(batch=math.inf) == decode and told.draft_tokens is None
        batch = min(same, key=lambda r: r.draft_tokens).decode.batch if same else math.inf
        assert told.decode.batch == batch and told.concurrency == float(clients)
        checked += batch < math.inf
    assert checked > 10


def test_an_engine_that_held_its_model_was_given_the_memory():
    """0.9 of a GPU is usual; where that leaves less for the cache than it leaves idle, 0.98 were used; and decoders
    whose number is assumed are enough for all clients' caches."""
    plain = replace(PLAIN, id="roomy", ttft_s=0.1, tpot_s=0.01)
    large = "meta-llama/Llama-3.1-70B-Instruct"
    said = replace(plain, id="said", isl=8000.0, concurrency=900.0, decode=Layout(1.0), prefill=Layout(1.0))
    rows = [plain, replace(plain, id="tight", model_path=large), replace(said, id="many", stated=False), said]
    points, kept = to_points(Table(rows, []))
    assert [row.id for row in kept.rows] == ["roomy", "tight", "many", "said"]
    assert points.utilization.tolist() == [0.9, 0.98, 0.9, 0.9]
    assert points.decode_instances.tolist()[:2] == [1.0, 1.0] and points.decode_instances[3] == 1.0
    # 79.1 GiB x 0.9 hold 16.1 GB of weights, some GB of activations, and 131,072 bytes a token
    tokens = (0.9 * 85.0e9 - 16.1e9 - 4e9) / 131_072
    assert points.decode_instances[2] == pytest.approx(900 * (7200 + 45) / tokens, rel=0.15)
    assert points.decode_instances[2] == round(points.decode_instances[2]) > 10


@pytest.mark.parametrize(
    "name, model",
    [
        ("nvidia/Llama-3.1-70B-Instruct-FP8-dynamic", "llama-3.1-70b-fp8"),
        ("RedHatAI/Qwen3-32B-NVFP4", "qwen3-32b"),
        ("someone/Qwen3-8B-AWQ", "qwen3-8b"),
        ("ours/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("meta-llama/llama-3.1-8b_w4a16", "llama-3.1-8b"),
        ("nobody/Nothing-FP8", None),
    ],
)
def test_copies_are_named_after_their_model(name, model):
    if model is None:
        with pytest.raises(InputError):
            nearest_model(name)
    else:
        assert nearest_model(name) == model


def test_blocks_of_attention_are_those_of_the_models_configs():
    """Weights of a layer from config.json: what every rank has, and what each head has; and what a token leaves."""
    for name in ("deepseek-v3", "deepseek-v3.2", "glm-5"):
        c = catalog.model_config(name)
        q, kv, rope, nope, v = (
            c[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        )
        h, heads, index = c["hidden_size"], c["num_attention_heads"], c.get("index_n_heads", 0)
        own = block(f"org/{name.upper()}-Base")
        indexer = index * 128 * q + h * (128 + index) if index else 0
        assert own.token_weights == h * q + h * (kv + rope) + indexer
        assert own.head_weights == q * (nope + rope) + kv * (nope + v) + v * h
        assert own.expanded == (nope + rope, v) and own.latent == (kv + rope, kv) and own.entries == kv + rope
        assert (own.top_k, own.index_dim) == (c.get("index_topk", 0), index * c.get("index_head_dim", 0))
        counted = float(catalog.model(name).attention_params) / c["num_hidden_layers"]
        assert own.token_weights + heads * own.head_weights == pytest.approx(counted, rel=2e-3)  # but for norms
    v3 = block("deepseek-v3")  # of a layer's attention, as published; two norms have 2,048 of it
    assert v3.token_weights + 128 * v3.head_weights + 2048 == 187_107_328
    assert (v3.expanded, v3.latent) == (EXPANDED, LATENT)
    assert block("nobody") is None and block("DeepSeek-V4-Flash").top_k == 512.0
    small, large = block("deepseek-v4-flash"), block("deepseek-v4-pro")
    assert small.latent == large.latent == (512, 448) and small.expanded == large.expanded == (512, 512)
    assert small.index_dim == large.index_dim == 8192
    grouped = block("minimax-m3-preview")  # keys and values of 1,024 columns, of which a token leaves the whole
    assert (grouped.index_dim, grouped.top_k, grouped.entries) == (512.0, 2048.0, 1024.0)
    assert grouped.expanded == grouped.latent == (128.0, 128.0)  # queries against what is cached, as it is
    assert grouped.token_weights == 6144 * grouped.entries  # hidden columns for each column that is made of them
    assert grouped.head_weights == 6144 * sum(grouped.expanded)


def test_formats_that_no_checkpoint_has_are_refused():
    row = replace(PLAIN, gemm_dtype="fp7")
    with pytest.raises(InputError, match="number format 'fp7' is unknown; accepted are none, bf16"):
        checkpoint(row)
    with pytest.raises(InputError, match="'q8'"):
        checkpoint(replace(PLAIN, moe_dtype="q8"))
    with pytest.raises(InputError, match=r"no row can be used: .*'fp7'"):
        to_points(Table([row], []))
    with pytest.raises(InputError, match=r"^no row can be used$"):
        to_points(Table([], []))
