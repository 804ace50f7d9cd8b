"""Every number of the catalogue against another publisher's, and against what no real part can break.

A mistake in a data sheet's cell buys the wrong machines, and no formula notices it. So a changed value fails here with
both sources named. The second values lie in `second_sources`, each with its address.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from dmodels import catalog
from dmodels.catalog.workloads import prefix_cache_sizes
from dmodels.core.files import PACKAGE, csv_rows
from dmodels.core.records import float64
from dmodels.models.memory import kv_bytes_per_token, weight_bytes

FOLDER = Path(__file__).parent / "second_sources"


def published(name: str) -> dict[str, dict[str, str]]:
    """Name -> cells of a table of second sources."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return {row["name"]: row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}


GPUS, MODELS, FABRICS = (published(f"{kind}.csv") for kind in ("gpus", "models", "fabrics"))
#: Column of the catalogue -> column of the second source, the unit of the latter, and how far apart they may be.
RATES = {
    "hbm_bytes_per_s": ("hbm_tb_per_s", 1e12, 0.01),
    "peak_flop_per_s": ("bf16_tflops", 1e12, 0.01),
    "peak_fp8_flop_per_s": ("fp8_tflops", 1e12, 0.01),
    "peak_fp4_flop_per_s": ("fp4_tflops", 1e12, 0.03),
    "nvlink_bytes_per_s_oneway": ("link_gb_per_s", 1e9, 0.02),
    "nic_bytes_per_s_per_gpu_oneway": ("nic_gbit_per_s", 1e9 / 8, 0.0),
    "gpus_per_node": ("node_gpus", 1.0, 0.0),
    "tdp_w": ("tdp_w", 1.0, 0.0),
    "sm_count": ("sm_count", 1.0, 0.0),
    "l2_bytes": ("cache_mib", 2.0**20, 0.0),
}


@pytest.mark.parametrize("name", catalog.gpus())
def test_a_gpu_is_as_two_sources_say(name):
    gpu, other, ours = catalog.gpu(name), GPUS[name], catalog.gpus()[name]["source"]
    for field, (column, unit, apart) in RATES.items():
        value, second = float(getattr(gpu, field)), unit * float(other[column] or 0.0)
        assert value == pytest.approx(second, rel=apart + 1e-9), f"{name}.{field}: {ours} and {other['source']} differ"
    box = float(other["memory_gib"]) * (1.0 - float(other["ecc_frac"])) * 2**30
    reported = float(gpu.memory_bytes) / box  # a driver keeps a little, and never finds more
    assert 0.975 < reported < 1.0, f"{name}.memory_bytes is {reported:.3f} of {other['memory_gib']} GiB"
    price = float(gpu.price_usd_per_hour)
    assert float(other["usd_low"]) <= price <= float(other["usd_high"]), (
        f"{name}: {catalog.gpus()[name]['price_source']} says {price} USD/h, {other['price_source']} "
        f"{other['usd_low']} to {other['usd_high']}"
    )
    assert float(other["usd_high"]) < 2 * float(other["usd_low"]), "a range that says nothing"


def test_the_tables_of_second_sources_hold_the_catalogue_and_nothing_else():
    assert GPUS.keys() == catalog.gpus().keys()
    assert MODELS.keys() == catalog.models().keys()
    assert FABRICS.keys() == catalog.fabrics().keys()
    for table in (GPUS, MODELS, FABRICS):
        assert all(
            row["source"].startswith("https://") or row["source"].startswith("http://") for row in table.values()
        )


@pytest.mark.parametrize("name", catalog.gpus())
def test_what_no_gpu_breaks(name):
    """Rates double with half the bits; a memory is read in 16 to 90 ms; an operation takes a picojoule."""
    gpu = catalog.gpu(name)
    rates = [float(getattr(gpu, f"peak_{kind}flop_per_s")) for kind in ("", "fp8_", "fp4_")]
    for wide, narrow in itertools.pairwise(rates):
        assert narrow == 0 or 1.95 <= narrow / wide <= 3.1
    assert 0.016 < float(gpu.memory_bytes / gpu.hbm_bytes_per_s) < 0.09
    assert 30 < rates[0] / float(gpu.hbm_bytes_per_s) < 600  # operations a byte
    assert 0.3e12 < rates[0] / float(gpu.tdp_w) < 2.5e12
    assert float(gpu.nic_bytes_per_s_per_gpu_oneway) < float(gpu.nvlink_bytes_per_s_oneway)
    assert float(gpu.nvlink_bytes_per_s_oneway) < float(gpu.hbm_bytes_per_s)
    assert 1.0e12 < rates[0] / float(gpu.sm_count) < 17.5e12  # of one multiprocessor


@pytest.mark.parametrize("name", [*catalog.gpus(), *catalog.fabrics()])
def test_a_source_is_a_source_and_says_what_the_cells_say(name):
    """Links times their rate, both directions, GPUs of a domain; dates lie between the standard and today; every
    other spelling of a GPU has the number of the part."""
    facts = {**catalog.gpus(), **catalog.fabrics()}[name]
    assert len(facts["source"].split()) > 2
    assert re.fullmatch(r"20[0-2]\d(-(0[1-9]|1[0-2]))?", facts["date"]) and "2010" < facts["date"] < "2028"
    one_way = float(facts.get("nvlink_bytes_per_s_oneway", facts.get("bytes_per_s_oneway"))) / 1e9
    if told := re.search(r"\((\d+) links of ([\d.]+) GB/s\)", facts["source"]):
        assert float(told[1]) * float(told[2]) == pytest.approx(one_way)
    if told := re.search(r"\(([\d.]+) ([GT])B/s both directions\)", facts["source"]):
        assert float(told[1]) * {"G": 1, "T": 1e3}[told[2]] == pytest.approx(2 * one_way)
    if told := re.search(r"divided by (\d+)|NVL(\d+) data sheet", facts["source"]):
        size = facts.get("gpus_per_node", facts.get("scope", "").removeprefix("domain of "))
        assert float(told[1] or told[2]) == float(size)
    for spelling in facts.get("aliases", ()):
        assert re.findall(r"\d+", name)[0] in re.findall(r"\d+", spelling), f"{spelling} for {name}"


def test_a_dollar_buys_about_the_same_bandwidth_everywhere():
    """Within a factor of 3 of the median: what is far off is a slip, or no price that anybody pays."""
    worth = {
        n: float(g.hbm_bytes_per_s / g.price_usd_per_hour) for n, g in ((n, catalog.gpu(n)) for n in catalog.gpus())
    }
    median = sorted(worth.values())[len(worth) // 2]
    assert {n: w / median for n, w in worth.items() if not 1 / 3 < w / median < 3} == {}


def catalog_files(kind: str) -> list[Path]:
    """The files of the catalogue's models."""
    return list((Path(catalog.__file__).parent / "data" / kind).glob("*.json"))


def product(text: str) -> float:
    """The value of a card's arithmetic: '61*(576*2+132)'."""
    assert set(text) <= set("0123456789*+() ."), text
    return float(eval(text))


@pytest.mark.parametrize("name", catalog.models())
def test_a_model_is_as_its_card_says(name):
    m, card = catalog.model(name), MODELS[name]
    sources = f"{catalog.models()[name]['source']} and {card['source']} differ"
    assert catalog.models()[name]["hf_id"] == card["hf_id"]
    assert float(m.params_count) == pytest.approx(1e9 * float(card["params_b"]), rel=0.015), sources
    # what a token passes: without the table of inputs, of which it reads a row
    assert float(m.active_params_count) == pytest.approx(1e9 * float(card["active_b"]), rel=0.08), sources
    # DeepSeek's configurations leave room for an answer beyond what the card says
    assert float(m.max_context_tokens) / float(card["context_tokens"]) in (1.0, 1.25), sources
    assert float(float64(kv_bytes_per_token)(m)) == product(card["cache_bytes"]), sources
    stored = 1e9 * float(card["params_b"]) * float(card["weight_bits"]) / 8
    assert 0.97 < float(float64(weight_bytes)(m)) / stored < 1.16, sources  # what is left in 16 bits


@pytest.mark.parametrize("path", sorted(catalog_files("models")), ids=lambda path: path.stem)
def test_a_models_file_is_of_one_model(path):
    """Heads share keys and values in groups of one size; a list has a whole number for each layer; another spelling
    has the numbers of the name, but for the month of a release."""
    found = json.loads(path.read_text(encoding="utf-8"))
    config = found.get("config", {})
    for part in (config, config.get("text_config", {})):
        heads, shared = part.get("num_attention_heads"), part.get("num_key_value_heads")
        assert not (heads and shared) or heads % shared == 0, f"{heads} heads, {shared} of keys and values"
        for key, value in part.items():
            if isinstance(value, list) and value and not isinstance(value[0], str | list | dict):
                assert all(one == int(one) for one in value), f"{key} of {value}"
        assert part.get("vocab_size", 0) % 64 == 0  # as kernels want tables to be
    known = set(re.findall(r"\d+(?:\.\d+)?", f"{path.stem} {found['hf_id']}"))
    for spelling in found.get("aliases", ()):
        other = set(re.findall(r"\d+(?:\.\d+)?", spelling)) - known
        months = {
            number for number in other if re.fullmatch(r"(2[3-7](0[1-9]|1[0-2]))|((0[1-9]|1[0-2])[0-3]\d)", number)
        }
        sister = path.stem == "minimax-m2.5" and other == {"2.1"}  # one architecture, released twice
        assert other == months or sister, f"{spelling} for {found['hf_id']}"


@pytest.mark.parametrize("name", catalog.fabrics())
def test_a_fabric_is_as_fast_as_its_lanes(name):
    fabric, other = catalog.fabric(name), FABRICS[name]
    lanes = float(other["lanes"]) * float(other["gbit_per_s_lane"]) * 1e9 / 8
    assert float(fabric.bytes_per_s_oneway) == pytest.approx(lanes), other["source"]
    assert float(other["latency_low_us"]) <= 1e6 * float(fabric.latency_s) <= float(other["latency_high_us"])
    assert catalog.fabrics()[name]["scope"] == other["scope"]


#: Requests, input and output tokens of the published traces, summed up; seconds from the first to the last, and the
#: standard deviation of the seconds between two over their mean.
TRACES = {
    "azure-conv": (19_366, 22_361_870, 4_088_665, 3501.722, 1.09417),
    "azure-code": (8_819, 18_059_974, 245_896, 3435.948, 13.15129),
    "mooncake": (12_031, 144_793_823, 4_122_048, 3536.999, 3.03374),
}
#: Layers that see a window of so many tokens, by the reports: gpt-oss (arXiv:2508.10925) and Gemma 2 (2408.00118) every
#: other one, Gemma 3 (2503.19786) five of six.
WINDOWS = {
    "gpt-oss-120b": (128, 18),
    "gpt-oss-20b": (128, 12),
    "gemma-2-9b": (4096, 21),
    "gemma-2-27b": (4096, 23),
    "gemma-3-12b": (1024, 40),
    "gemma-3-27b": (1024, 52),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_the_reports(name):
    model = catalog.model(name)
    assert (float(model.sliding_window_tokens), float(model.n_sliding_layers)) == WINDOWS[name]


@pytest.mark.parametrize("name", TRACES)
def test_a_workloads_cells_add_up_to_its_trace(name):
    """Each cell is at its conditional mean, so that means are exact: a changed or misplaced cell moves them."""
    workload, (count, inputs, outputs, seconds, cv) = catalog.workload(name), TRACES[name]
    assert float(workload.rate_rps) == pytest.approx((count - 1) / seconds, rel=1e-6)
    assert float(workload.arrival_cv) == pytest.approx(cv, rel=1e-5)
    assert float(workload.weight_frac.sum()) == pytest.approx(1.0, rel=1e-8)
    assert float((workload.weight_frac * workload.input_tokens).sum()) == pytest.approx(inputs / count, rel=1e-7)
    assert float((workload.weight_frac * workload.output_tokens).sum()) == pytest.approx(outputs / count, rel=1e-7)


def test_the_prefix_hits_of_mooncake_are_those_of_its_blocks():
    """What an unlimited cache of 512-token blocks holds of each prompt, counted on the published trace: 54,098,411
    tokens; of the 118 prompts that it holds whole, an engine computes the last token all the same."""
    workload = catalog.workload("mooncake", prefix_hits=True)
    cached = float((workload.weight_frac * workload.cached_tokens).sum())
    assert cached == pytest.approx((54_098_411 - 118) / 12_031, rel=1e-8)
    assert (workload.cached_tokens <= workload.input_tokens).all()


def test_the_prefix_cache_of_mooncake_by_keeping_blocks_in_order_of_use(shared_data):
    """Every size of the table: blocks found before the first that is missing; the longest unused makes
    room. Which block of one prompt goes first is open: within 2 %, and of large caches it is all the same."""
    lines = (shared_data / "mooncake_conversation.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["timestamp"])
    total = sum(row["input_length"] for row in rows)
    for size, share in zip(*prefix_cache_sizes().values(), strict=True):
        held, found = OrderedDict(), 0
        for row in rows:
            there = [block in held for block in row["hash_ids"]]
            found += min(512 * (there.index(False) if False in there else len(there)), row["input_length"])
            for block in row["hash_ids"]:
                held[block] = True
                held.move_to_end(block)
                if len(held) > size:
                    held.popitem(last=False)
        assert share == pytest.approx(found / total, rel=0.02 if size < 50_000 else 1e-5), size


def test_tables_were_read_when_their_releases_were_out():
    tables = (PACKAGE / "catalog" / "data").glob("*.csv")
    rows = [row for path in tables for row in csv_rows(path.read_text(encoding="utf-8"))]
    dates = [row["date"] for row in rows if "date" in row]
    assert len(dates) > 40
    assert not [date for date in dates if not re.fullmatch(r"20[12]\d(-(0[1-9]|1[0-2]))?", date) or date > "2028"]


def test_published_distributions_of_total_tokens(shared_data):
    """LMSYS-Chat-1M: 69.5 tokens a prompt and 214.5 an answer (arXiv:2309.11998, Table 1). Azure's in arXiv:2604.09613:
    80 % up to 2K and 91.7 % up to 8K. The semantic router's CDF: as its project publishes it."""
    lmsys, azure = catalog.workload("lmsys-paper"), catalog.totals_cdf("azure-paper")
    assert float(lmsys.mean_total_tokens) == pytest.approx(69.5 + 214.5, rel=2e-3)
    assert float(lmsys.mean_output_tokens) == pytest.approx(214.5, rel=0.02)
    below = dict(zip(azure.upper_tokens, azure.cumulative_frac, strict=True))
    assert (below[2048], below[8192], below[65536]) == (0.8, 0.917, 1.0)
    published = json.loads((shared_data / "lmsys_cdf.json").read_text(encoding="utf-8"))
    router = catalog.totals_cdf("lmsys")
    found = list(zip(router.upper_tokens, router.cumulative_frac, strict=True))
    assert np.array(found) == pytest.approx(np.array(published), rel=1e-8)


def stated(entry, path=()):
    """(fields, value) of everything that a model's file states of its configuration."""
    for key, value in entry.items():
        if isinstance(value, dict):
            yield from stated(value, (*path, key))
        else:
            yield (*path, key), value


def test_a_quantized_release_is_the_same_model_in_other_numbers():
    """What a file states beside its base's differs in how numbers are kept; blocks are those of the formats' makers:
    128 x 128 weights share a scale in DeepSeek's FP8, 16 in NVIDIA's FP4."""
    files = Path(catalog.__file__).with_name("data").glob("models/*.json")
    entries = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
    compared = 0
    for name, entry in entries.items():
        config = dict(stated(entry.get("config", {})))
        base = entries.get(name.removesuffix("-nvfp4").removesuffix("-fp8"))
        if base is not entry and base is not None:
            of = dict(stated(base.get("config", {})))
            compared += 1
            assert {k: v for k, v in config.items() if k in of and of[k] != v and "quantization_config" not in k} == {}
        for path, value in config.items():
            if path[-1] == "weight_block_size":
                assert value == [128, 128], name
            if path[-1] == "moe_layer_freq":
                assert value == 1, name
            if path[-1] == "group_size" and name.endswith("nvfp4"):
                assert value == 16, name
    assert compared >= 9
