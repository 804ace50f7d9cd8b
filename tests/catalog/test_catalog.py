"""The catalogue: every name is there, spelt in any way, with source and date; a user's file goes over it."""

from __future__ import annotations

import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmodels import catalog
from dmodels.core.errors import InputError


def test_gpus_have_sane_numbers_source_and_date():
    table = catalog.gpus()
    assert len(table) >= 18
    for name, facts in table.items():
        gpu = catalog.gpu(name)
        assert 15e9 < float(gpu.memory_bytes) < 320e9
        assert 0.2e12 < float(gpu.hbm_bytes_per_s) <= 8e12
        assert 100e12 < float(gpu.peak_flop_per_s) < 3e15  # dense
        fp8, fp4 = float(gpu.peak_fp8_flop_per_s), float(gpu.peak_fp4_flop_per_s)
        assert fp8 == 0 or fp8 == pytest.approx(2 * float(gpu.peak_flop_per_s), rel=0.02)
        assert fp4 == 0 or fp4 >= 2 * fp8 * 0.999
        assert float(gpu.price_usd_per_hour) > 0
        assert facts["source"] and facts["price_source"] and facts["date"].startswith("20")


def test_memory_is_what_the_driver_reports():
    assert float(catalog.gpu("h100").memory_bytes) / 2**30 == pytest.approx(79.18)
    assert float(catalog.gpu("mi300x").memory_bytes) / 2**30 == pytest.approx(191.98)


def test_links_count_one_direction():
    assert float(catalog.gpu("h100").nvlink_bytes_per_s_oneway) == 450e9  # 900 GB/s both directions
    assert float(catalog.gpu("h100").nic_bytes_per_s_per_gpu_oneway) == 50e9  # 400 Gbit/s
    assert float(catalog.fabric("ethernet_25g").bytes_per_s_oneway) == 3.125e9


@pytest.mark.parametrize("spelling", ["h200_sxm", "H200-SXM", "h200", "H200 SXM", "h200sxm"])
def test_spellings_of_one_gpu(spelling):
    assert catalog.gpu_facts(spelling)["name"] == "h200_sxm"


@pytest.mark.parametrize(
    "spelling",
    ["llama-3.1-70b", "Llama_3.1_70B", "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B", "llama3.1-70b"],
)
def test_spellings_of_one_model(spelling):
    assert catalog.model_name(spelling) == "llama-3.1-70b"


def test_no_two_entries_share_a_spelling():
    from dmodels.catalog.tables import key

    for table in (catalog.gpus(), catalog.models()):
        owner: dict[str, str] = {}
        for name, facts in table.items():
            names = {name, *facts.get("aliases", ()), *([facts["hf_id"]] if "hf_id" in facts else [])}
            for spelling in {key(n) for n in names}:
                assert owner.setdefault(spelling, name) == name, spelling


def test_every_model_of_the_measured_rows_is_there(shared_data):
    with open(shared_data / "silicon_fit.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["model_path"] for row in rows}
    for path in {row["model_path"] for row in rows}:
        assert float(catalog.model(path).params_count) > 7e9, path
    for system in {row["system"] for row in rows}:
        assert catalog.gpu_facts(system)["name"] == system


def test_models_state_where_they_come_from():
    table = catalog.models()
    assert len(table) >= 30
    for name, facts in table.items():
        assert facts["hf_id"] in facts["source"], name
        m = catalog.model(name)
        assert float(m.params_count) > 1e9 and float(m.max_context_tokens) >= 4096
        assert 0.5 < float(m.expert_dtype_bytes) <= 2 and 0.5 < float(m.attention_dtype_bytes) <= 2


def test_a_path_is_read_as_a_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(catalog.model_config("qwen3-8b")))
    assert float(catalog.model(str(path)).params_count) == 8_190_735_360
    assert float(catalog.model(path.parent).params_count) == 8_190_735_360
    assert catalog.model_name(path) == tmp_path.name


@pytest.mark.parametrize(
    ("find", "typed", "near"),
    [(catalog.gpu, "h10", "h100_sxm"), (catalog.model, "llama-3.1-7b", "llama-3.1-70b"), (catalog.fabric, "ib400", "")],
)
def test_unknown_names_get_the_nearest(find, typed, near):
    with pytest.raises(InputError) as caught:
        find(typed)
    assert repr(typed) in str(caught.value) and near in str(caught.value)


FILES = {
    "mine.csv": "name,memory_bytes,hbm_bytes_per_s,peak_flop_per_s,price_usd_per_hour\n"
    "H100-SXM,,,,2.1\nmy chip,96 GiB,4 TB/s,500 TFLOP/s,1.5\n",
    "mine.toml": '[h100_sxm]\nprice_usd_per_hour = 2.1\n["my chip"]\nmemory_bytes = "96 GiB"\n'
    'hbm_bytes_per_s = 4e12\npeak_flop_per_s = "500 TFLOP/s"\nprice_usd_per_hour = "1.5 $/h"\n',
    "mine.json": json.dumps(
        {
            "h100": {"price_usd_per_hour": 2.1},
            "my chip": {
                "memory_bytes": 96 * 2**30,
                "hbm_bytes_per_s": 4e12,
                "peak_flop_per_s": 5e14,
                "price_usd_per_hour": 1.5,
            },
        }
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_users_file_changes_prices_and_adds_gpus(tmp_path, name):
    path = tmp_path / name
    path.write_text(FILES[name])
    h100, mine = catalog.gpu("h100", path), catalog.gpu("My-Chip", path)
    assert float(h100.price_usd_per_hour) == 2.1
    assert float(h100.memory_bytes) == float(catalog.gpu("h100").memory_bytes)
    assert float(catalog.gpu("h100").price_usd_per_hour) != 2.1  # the shipped table stays as it is
    assert (float(mine.memory_bytes), float(mine.peak_flop_per_s)) == (96 * 2**30, 500e12)
    assert len(catalog.gpus(path)) == len(catalog.gpus()) + 1


def test_a_users_file_may_be_yaml(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "mine.yaml"
    path.write_text("h100_sxm:\n  price_usd_per_hour: 2.1\n")
    assert float(catalog.gpu("h100", path).price_usd_per_hour) == 2.1
    path.write_text("a: [1, 2")
    with pytest.raises(InputError, match=r"mine\.yaml"):
        catalog.load_gpus(path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("a.csv", "", "column names"),
        ("a.csv", "gpu,price\nx,1\n", "'name'"),
        ("a.csv", "name,price_usd_per_hour\nh100,1,2\n", "cells"),
        ("a.csv", "name,price_usd_per_hour\nh100,-1\n", "price_usd_per_hour is '-1'"),
        ("a.csv", "name,price_usd_per_hour\nh100,nan\n", "finite"),
        ("a.csv", "name,price_usd_per_hour\nh100,cheap\n", "cheap"),
        ("a.csv", "name,price\nh100,1\n", "'price' is no column"),
        ("a.csv", "name,memory_bytes\nnew,80 GiB\n", "hbm_bytes_per_s is missing"),
        ("a.csv", "name,memory_bytes\nh100,80 Gb\n", "'Gb'"),
        ("a.csv", "name,gpus_per_node\nh100,2.5\n", "gpus_per_node is '2.5'"),
        ("a.toml", "[h100", "cannot be read"),
        ("a.toml", "x = 1", "table of names"),
        ("a.json", "[1]", "table of names"),
        ("a.json", "{", "cannot be read"),
        ("a.txt", "x", ".toml"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, file, content, words):
    path = tmp_path / file
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        catalog.load_gpus(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv"):
        catalog.load_gpus(tmp_path / "none.csv")


@given(st.text(max_size=200), st.sampled_from([".csv", ".toml", ".json"]), st.booleans())
def test_any_file_gives_a_table_or_one_line(tmp_path_factory, text, ending, with_head):
    path = tmp_path_factory.mktemp("any") / f"a{ending}"
    path.write_text(("name,memory_bytes\n" if with_head else "") + text, encoding="utf-8", errors="replace")
    try:
        table = catalog.load_gpus(path)
    except InputError as error:
        assert "\n" not in str(error)
        return
    numbers = [v for facts in table.values() for v in facts.values() if isinstance(v, float)]
    assert all(math.isfinite(v) and v >= 0 for v in numbers)
