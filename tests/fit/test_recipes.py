"""Published deployments complete the rows that leave out how many instances ran."""

from __future__ import annotations

import math

import pytest

from dmodels.fit import recipes
from dmodels.fit.layouts import layouts
from dmodels.fit.recipes import KEYS, Layout, Recipe, _recipes, side
from dmodels.fit.rows import parse_row

ROW = {
    "id": "r",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "backend": "trtllm",
    "system": "gb200",
    "precision": "fp4",
    "mode": "disagg",
    "isl": "1024",
    "osl": "8192",
    "gemm_quant_mode": "nvfp4",
    "moe_quant_mode": "nvfp4",
    "prefill_tp_size": "4",
    "prefill_moe_ep_size": "4",
    "decode_tp_size": "4",
    "decode_moe_ep_size": "4",
    "silicon_data_source": "2026-03-25.csv; silicon_concurrency=60; measured=2026-03-23",
}


def test_sixty_clients_of_this_row_are_served_by_fifteen_instances_of_four_slots():
    """The run is named ctx1_gen15_tep4_batch4: one prefill instance, fifteen to decode, four requests each."""
    ran = layouts(ROW, "disagg")
    assert ran.stated and ran.draft_tokens == 0.0
    assert (ran.decode.instances, ran.decode.tp, ran.decode.ep, ran.decode.batch) == (15.0, 4.0, 4.0, 4.0)
    assert (ran.prefill.instances, ran.prefill.dp, ran.prefill.gpus) == (1.0, 4.0, 4.0)
    assert parse_row(ROW, measured=False).concurrency == 60.0


def test_a_row_that_two_deployments_agree_with_is_not_stated():
    cell = ROW | {
        "osl": "1024",
        "decode_tp_size": "8",
        "silicon_data_source": "silicon_concurrency=48; measured=2026-03-23",
    }
    ran = layouts(cell, "disagg")
    assert not ran.stated and ran.decode.instances == 4.0  # with and without speculation, else the same


def test_older_runs_have_deployments_of_their_own():
    cell = ROW | {
        "osl": "1024",
        "prefill_tp_size": "36",
        "decode_tp_size": "36",
        "prefill_moe_ep_size": "1",
        "silicon_data_source": "silicon_concurrency=144; measured=2025-12-05",
    }
    ran = layouts(cell, "disagg")  # 36 GPUs in all: 4 for prefill, 4 x 8 to decode
    assert ran.prefill.gpus * ran.prefill.instances + ran.decode.gpus * ran.decode.instances == 36.0


def test_all_gpus_of_separate_instances_in_one_number():
    """36 GPUs written as one tp of an aggregated row: 4 prefill and 32 decode, as published for 144 clients."""
    cell = {key: value for key, value in ROW.items() if not key.startswith(("prefill", "decode"))}
    cell |= {"mode": "agg", "osl": "1024", "tp_size": "36", "moe_tp_size": "36", "moe_ep_size": "1"}
    cell |= {"batch_size": "144", "silicon_data_source": "2026-04-06.csv; measured=2025-11-17; wip=False"}
    row = parse_row(cell, measured=False)
    assert row.stated and row.mode == "disagg" and row.concurrency == 144.0
    assert [side.gpus * side.instances for side in (row.prefill, row.decode)] == [4.0, 32.0]
    other = parse_row(cell | {"batch_size": "145"}, measured=False)  # nowhere published
    assert not other.stated and other.mode == "disagg" and other.decode.gpus == 8.0


def test_clients_of_h200_are_those_of_all_decode_instances():
    """The run is named c16_ctx1_gen9_tep8_batch256_eplb0_mtp0: sixteen clients for each of nine instances; and one with
    mtp3 has as many. Nine requests on seven instances of one slot each are those of c1_ctx1_gen7."""
    cell = ROW | {"system": "h200_sxm", "precision": "fp8", "osl": "1024", "id": "2026_03_25_r_426"}
    cell |= {f"{side}_{size}_size": "8" for side in ("prefill", "decode") for size in ("tp", "moe_ep")}
    cell["silicon_data_source"] = "silicon_concurrency=144; measured=2026-03-23"
    plain, speculative = (layouts(cell | {"id": name}, "disagg") for name in (cell["id"], "another"))
    assert plain.decode == Layout(8.0, 1.0, 8.0, 9.0, 256.0) and plain.draft_tokens == 0.0 and plain.stated
    assert speculative.decode == Layout(8.0, 1.0, 8.0, 9.0, 128.0) and speculative.draft_tokens == 3.0
    alone = cell | {"isl": "8192", "silicon_data_source": "silicon_concurrency=9; measured=2026-03-23"}
    assert layouts(alone, "disagg").decode == Layout(8.0, 1.0, 8.0, 7.0, 1.0)


@pytest.mark.parametrize(("number", "drafts"), [(701, 0.0), (702, 3.0), (709, 3.0), (710, 0.0)])
def test_rows_beside_each_other_are_of_one_job(number, drafts):
    """Those from 702 to 709 of an export speculate: at two clients a token takes 9 ms, not 18."""
    cell = ROW | {"system": "h100_sxm", "backend": "sglang", "precision": "fp8", "osl": "1024"}
    cell |= {f"{side}_tp_size": "16" for side in ("prefill", "decode")}
    cell |= {f"{side}_moe_ep_size": "1" for side in ("prefill", "decode")} | {"id": f"2026_03_25_r_{number}"}
    cell["silicon_data_source"] = "silicon_concurrency=2; measured=2026-02-13"
    assert parse_row(cell, measured=False).draft_tokens == drafts
    assert parse_row(cell | {"id": f"2026_04_06_r_{number}"}, measured=False).draft_tokens == 0.0


def test_unlisted_rows_are_assumed_and_stated_rows_keep_what_they_state():
    unlisted = ROW | {"silicon_data_source": "silicon_concurrency=61; measured=2026-03-23"}
    assert not layouts(unlisted, "disagg").stated and layouts(unlisted, "disagg").draft_tokens is None
    stated = ROW | {"prefill_num_workers": "2", "decode_num_workers": "3", "decode_batch_size": "20"}
    ran = layouts(stated, "disagg")
    assert ran.stated and (ran.prefill.instances, ran.decode.instances) == (2.0, 3.0)
    assert math.isinf(ran.decode.batch)  # no published deployment of this kind


def test_every_line_of_the_list_is_well_formed():
    lines = _recipes()
    assert len(lines) > 300
    for _, _, _, recipe in lines:
        assert isinstance(recipe, Recipe) and recipe.clients and min(recipe.clients) >= 1
        assert recipe.prefill.instances >= 1 and recipe.decode.instances >= 1 and recipe.decode.batch >= 1
        assert 0 <= recipe.draft_tokens <= 3


@pytest.mark.parametrize(("text", "gpus", "dp"), [("2xtp16", 16, 1), ("1xdep32", 32, 32), ("3xdp4", 4, 4)])
def test_spellings_of_a_side(text, gpus, dp):
    assert side(text).gpus == gpus and side(text).dp == dp


def test_experts_that_are_spread_over_some_gpus_were_spread_whatever_their_number(monkeypatch):
    """A row says over how many of one instance or of all; of deployments that are else alike the one that spreads."""
    key = tuple(ROW[name] for name in KEYS)
    known = [Recipe(side(prefill), side("1xtp4"), 0.0, frozenset({9})) for prefill in ("1xdp4", "1xdep4")]
    monkeypatch.setattr(recipes, "_recipes", lambda: [("deepseek", "", key, one) for one in known])
    for spread, (wanted,) in ((1.0, known[:1]), (2.0, known[1:]), (4.0, known[1:]), (32.0, known[1:])):
        assert recipes.candidates(ROW, 9.0, 1.0, spread, 1.0) == [wanted]
    assert recipes.candidates(ROW, 8.0, 1.0, 1.0, 1.0) == []
