"""Published deployments complete the rows that leave out how many instances ran."""

from __future__ import annotations

import math

import pytest

from dmodels.fit.layouts import layouts
from dmodels.fit.recipes import Recipe, _recipes, side
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
