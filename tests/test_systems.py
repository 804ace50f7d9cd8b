"""The page of systems: every work of the papers is on it, every name on it exists, and no gap goes unexplained."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "systems.md"
LINES = [line.strip("|").split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
ROWS = [row for row in ([cell.strip() for cell in line] for line in LINES) if row[1] != "has" and "---" not in row[1]]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`((?:dmodels|benchmarks)[\w.]*)`", row[2])})
#: What the papers build on or compare with.
WORKS = (
    "Orca vLLM SGLang TensorRT-LLM Sarathi FlexGen DistServe Splitwise TaiChi Dynamo llm-d Mooncake Conductor "
    "P/D-Serve WindServe MemServe semi-PD Nexus DéjàVu FlowKV ServerlessLLM AlpaServe Llumnix SageServe EWSJF "
    "Helix GORGO CASSINI TopoOpt vClos AIConfigurator Vidur PagedAttention LMCache LLMLingua DRF Themis Shockwave "
    "Fisher Rosenthal Roughgarden Milchtaich Chun Gaitonde Perin Xu Azure BurstGPT LMSYS ShareGPT ServeGen KVBM "
    "NIXL TetriInfer HexGen Jiang Colini-Baldeschi Haviv Sparrow Omega CacheGen Pond Infiniswap LaCache KVShare "
    "OrbitFlow Selective POD-Attention NeuPIMs FlashDecoding LLM-PQ MLPerf"
).split()


def thing(name: str):
    """What a dotted name stands for: a module, or an attribute of one."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name):
    assert thing(name) is not None


def test_every_work_has_a_row():
    told = " ".join(row[0] for row in ROWS)
    assert len(ROWS) >= 60 and [work for work in WORKS if work not in told] == []


def test_a_row_has_something_or_says_why_not():
    kinds = {"model", "policy", "baseline", "reader"}
    for what, has, how in ROWS:
        if has == "-":
            assert how.startswith("Nothing: ") and how.endswith("."), what
        else:
            assert set(has.split(", ")) <= kinds, what
            assert "`" in how or "ledger" in how, what


def test_unknown_names_are_seen():
    with pytest.raises(AttributeError):
        thing("dmodels.sim.fleet.no_such_thing")
