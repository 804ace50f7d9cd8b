"""Rows of benchmark exports: every spelling of a layout, and every bad cell, is understood or named."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels.core.errors import InputError
from dmodels.fit.points import family, nearest_model, to_points
from dmodels.fit.recipes import Layout
from dmodels.fit.rows import Table, measurement, parse_row, read_rows

AGG = {
    "id": "a",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "b200_sxm",
    "backend": "sglang",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8_block",
    "batch_size": "64",
    "tp_size": "8",
    "pp_size": "1",
    "attention_dp_size": "1",
    "moe_tp_size": "8",
    "moe_ep_size": "1",
    "silicon_ttft_ms": "500",
    "silicon_tpot_ms": "20",
}
DISAGG = AGG | {
    "mode": "disagg",
    "batch_size": "",
    "tp_size": "",
    "prefill_tp_size": "4",
    "prefill_moe_ep_size": "4",
    "decode_tp_size": "8",
    "decode_moe_ep_size": "4",
    "silicon_data_source": "source_file=2026-04-06.csv; silicon_concurrency=128; wip=False",
}
INFERENCEX = "source_file=2026-04-06.csv; silicon_concurrency=64; wip=False"


def test_one_instance_is_read_as_written():
    row = parse_row(AGG)
    assert row.decode == Layout(8.0, 1.0, 1.0, 1.0) == row.prefill
    assert (row.concurrency, row.stated, row.ttft_s, row.tpot_s) == (64.0, True, 0.5, 0.02)


@pytest.mark.parametrize(
    ("tp", "dp", "moe_tp", "ep", "batch", "layout"),
    [
        ("64", "1", "8", "8", "64", Layout(8.0, 1.0, 8.0)),  # the product of 8 and 8 is an instance of 8
        ("1", "64", "8", "8", "1", Layout(1.0, 8.0, 8.0)),  # with attention data parallelism
        ("16", "1", "4", "4", "64", Layout(4.0, 1.0, 4.0)),
        ("4", "4", "1", "16", "16", Layout(4.0, 1.0, 4.0)),
        ("1", "8", "1", "8", "8", Layout(1.0, 8.0, 8.0)),  # not a product
        ("8", "1", "4", "4", "64", Layout(8.0, 1.0, 4.0)),
    ],
)
def test_exports_that_multiply_the_layout_are_undone(tp, dp, moe_tp, ep, batch, layout):
    cells = {"tp_size": tp, "attention_dp_size": dp, "moe_tp_size": moe_tp, "moe_ep_size": ep, "batch_size": batch}
    row = parse_row(AGG | cells | {"silicon_data_source": INFERENCEX})
    assert row.decode == layout
    assert row.concurrency == 64.0


def test_copies_of_one_measurement_have_one_layout(shared_data):
    """Three exports of the same runs: where TTFT and TPOT agree to nine digits, so must the layouts."""
    layouts = {}
    for row in read_rows(shared_data / "silicon_fit.csv").rows:
        if row.mode == "agg" and row.stated:
            layouts.setdefault((row.system, row.ttft_s, row.tpot_s), set()).add((row.decode, row.concurrency))
    copied = [found for found in layouts.values() if len(found) > 1]
    assert len(layouts) > 1500
    assert not copied


def test_separate_instances_state_their_numbers_or_are_marked_as_assumed():
    assumed = parse_row(DISAGG)
    assert not assumed.stated and assumed.concurrency == 128.0 and assumed.prefill.instances == 0.0
    numbers = {"prefill_num_workers": "2", "decode_num_workers": "4", "decode_batch_size": "16"}
    stated = parse_row(DISAGG | numbers)
    assert stated.stated and stated.decode.instances == 4.0 and stated.prefill.instances == 2.0
    silent = parse_row({**DISAGG, **numbers, "silicon_data_source": ""})
    assert silent.concurrency == 64.0  # 16 requests on each of 4 instances


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("isl", "0"),
        ("isl", "-5"),
        ("osl", "1.5"),
        ("osl", ""),
        ("batch_size", "nan"),
        ("tp_size", "0"),
        ("mode", "x"),
        ("silicon_ttft_ms", ""),
        ("silicon_ttft_ms", "-1"),
        ("silicon_tpot_ms", "0"),
        ("silicon_tpot_ms", "inf"),
        ("model_path", ""),
        ("pp_size", "2"),
        ("moe_ep_size", "some"),
    ],
)
def test_a_bad_cell_is_named(column, value):
    with pytest.raises(InputError, match=column):
        parse_row(AGG | {column: value})


def test_measurements_are_optional_when_asked_for_predictions():
    row = parse_row(AGG | {"silicon_ttft_ms": "", "silicon_tpot_ms": "soon"}, measured=False)
    assert not row.measured


def test_bad_rows_are_counted_and_the_rest_is_kept(tmp_path):
    rows = [
        AGG,
        AGG | {"id": "b", "isl": "0"},
        AGG | {"id": "c", "model_path": "no/such-model"},
        AGG | {"id": "d", "system": "abacus"},
        AGG | {"id": "e", "gemm_quant_mode": "fp3"},
    ]
    points, table = to_points(read_rows(_write(tmp_path, rows)))
    assert [row.id for row in table.rows] == ["a"]
    assert sorted(r.id for r in table.rejected) == ["b", "c", "d", "e"]
    assert points.isl == pytest.approx(0.9 * 1024)


def test_a_file_without_a_needed_column_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,isl\na,3\n")
    with pytest.raises(InputError, match="model_path"):
        read_rows(path)


@given(st.binary(max_size=300))
def test_any_bytes_give_rows_or_one_line(tmp_path_factory, blob):
    path = tmp_path_factory.mktemp("rows") / "x.csv"
    head = ",".join(AGG).encode() + b"\n"
    path.write_bytes(head + blob)
    try:
        read_rows(path, measured=False)
    except InputError as error:
        assert "\n" not in str(error)


@given(st.dictionaries(st.sampled_from(sorted(AGG)), st.text(max_size=12)))
def test_any_cells_give_a_row_or_one_line(cells):
    try:
        assert parse_row(AGG | cells).concurrency >= 1
    except InputError as error:
        assert str(error)


def test_the_runs_that_speculate_are_known_by_their_software():
    image = "source_file=x.csv; silicon_concurrency=4; wip=False; image=nvidia/tensorrt-llm/release:1.2.0rc6.post3"
    row = AGG | {"backend": "trtllm", "precision": "fp4", "silicon_data_source": image}
    assert parse_row(row).draft_tokens == 3.0
    assert parse_row(row | {"silicon_data_source": image.replace("post3", "post2")}).draft_tokens == 0.0
    assert parse_row(row | {"model_path": "openai/gpt-oss-120b"}).draft_tokens == 0.0


def test_how_often_the_scheduler_looks_is_known_by_the_run():
    """The runs' published scripts: --scheduler-recv-interval 10, or 30 from 16 clients on; none on H200."""
    assert parse_row(AGG).poll_steps == 30.0
    assert parse_row(AGG | {"batch_size": "8"}).poll_steps == 10.0
    assert parse_row(AGG | {"system": "h200_sxm"}).poll_steps == 0.0
    assert parse_row(AGG | {"backend": "vllm"}).poll_steps == 0.0


def test_a_run_that_compiled_in_its_first_full_step_says_so_in_every_mean():
    """The run of 2025-11-10: 6.7 s more where the clients' first prompts are more than one step of 16,384 tokens."""
    cells = AGG | {"precision": "fp4", "silicon_data_source": "wip=False; measured=2025-11-10"}
    few, many = (parse_row(cells | {"batch_size": str(n), "isl": "1024"}) for n in (16, 32))
    assert (few.compile_s, many.compile_s) == (0.0, 6.7)
    assert parse_row(cells | {"silicon_data_source": "wip=False; measured=2025-11-02"}).compile_s == 0.0


def test_runs_that_draw_no_lengths_are_as_long_as_they_say():
    equal = parse_row(AGG | {"silicon_data_source": "source_file=/x/aic-auto-gap-analysis/data/y.csv"})
    found = [points.isl for points in (to_points(Table([row]))[0] for row in (parse_row(AGG), equal))]
    assert found == pytest.approx([0.9 * equal.isl, equal.isl])


def test_a_sweep_with_one_client_more_than_slots_says_so_in_its_waits():
    cells = AGG | {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct",
        "backend": "trtllm",
        "system": "h100_sxm",
        "precision": "",
        "moe_tp_size": "1",
        "silicon_data_source": "trtllm/1.0.0rc3/x.csv",
    }
    row = parse_row(cells)
    assert row.concurrency == 65.0 and row.decode.batch == 64.0 and row.decode == row.prefill


def test_exports_that_round_are_copies_of_one_measurement():
    exact, rounded = (
        parse_row(AGG | {"silicon_ttft_ms": t, "silicon_tpot_ms": p})
        for t, p in (("4413.1041586297215", "52.69031890729453"), ("4413.10", "52.69"))
    )
    assert measurement(exact) == measurement(rounded) != measurement(parse_row(AGG))


def test_quantised_copies_and_fine_tunes_are_their_model():
    assert nearest_model("nvidia/Llama-3.1-8B-Instruct-FP8") == "llama-3.1-8b-fp8"
    assert nearest_model("someone/Qwen3-32B-AWQ") == "qwen3-32b"
    assert family("nvidia/DeepSeek-V3.1-NVFP4") == family("deepseek-ai/DeepSeek-R1")
    with pytest.raises(InputError, match="is unknown"):
        nearest_model("no/such-model")


def _write(folder, rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(AGG))
    writer.writeheader()
    writer.writerows(rows)
    path = folder / "rows.csv"
    path.write_text(out.getvalue())
    return path
