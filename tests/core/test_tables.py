"""Answers as tables: one type a column, and the same table for pandas, Arrow, Polars and in files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from dmodels.core.answers import Answer
from dmodels.core.errors import InputError
from dmodels.core.tables import check_table, records, write_table


@dataclass(frozen=True)
class Part(Answer):
    gpus: int
    usd_per_hour: float
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fleet(Answer):
    name: str
    parts: tuple[Part, ...]
    spare: Part
    interval: tuple[float, float] = (1.0, 2.0)


@dataclass(frozen=True)
class Curve(Answer):
    rows_in = "load"
    notes: tuple[str, ...]
    other: tuple[float, ...]
    load: np.ndarray
    ttft_s: np.ndarray


FLEET = Fleet("f", (Part(8, 20.0), Part(2, float("inf"))), Part(1, 2.0))
CURVE = Curve(("a", "b", "c"), (9.0,) * 5, np.array([1, 2, 3]), np.array([0.1, np.nan, 0.3]))


def test_records_are_rows_and_gaps_are_nan():
    frame = FLEET.to_dataframe()
    assert frame.columns.tolist() == ["gpus", "usd_per_hour"] and frame.gpus.tolist() == [8, 2]
    assert frame.dtypes.tolist() == [np.int64, np.float64] and np.isnan(frame.usd_per_hour[1])


def test_numbers_side_by_side_are_columns():
    assert CURVE.records() == [{"load": 1, "ttft_s": 0.1}, {"load": 2, "ttft_s": None}, {"load": 3, "ttft_s": 0.3}]


def test_an_answer_of_single_values_is_one_row():
    assert Part(8, 20.0, ("dear",)).records() == [{"gpus": 8, "usd_per_hour": 20.0}]
    assert records({"a": {"b": {"c": 1}}, "d": None, "e": [1.0, 2.0]}) == [{"a.b.c": 1, "d": None}]


def test_columns_have_one_type():
    from dmodels.core.tables import frame

    pa = pytest.importorskip("pyarrow")
    made = frame([{"a": 1, "b": "x", "c": True, "d": 1}, {"a": 2.5, "c": None, "d": "one"}, {"a": None, "d": None}])
    assert made.a.dtype == np.float64
    table = pa.Table.from_pandas(made).to_pydict()
    assert table == {"a": [1, 2.5, None], "b": ["x", None, None], "c": [True, None, None], "d": ["1", "one", None]}


def test_arrow_and_polars_take_an_answer():
    pa = pytest.importorskip("pyarrow")
    table = pa.table(CURVE)
    assert table.column_names == ["load", "ttft_s"] and str(table.schema.field("load").type) == "int64"
    assert table.column("ttft_s").to_pylist()[0] == 0.1


def test_polars_takes_an_answer():
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(FLEET).shape == (2, 2)
    assert polars.from_dataframe(FLEET.to_dataframe())["gpus"].to_list() == [8, 2]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_files_hold_the_table(suffix, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    path = write_table(FLEET.to_dataframe(), tmp_path / f"fleet{suffix}")
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".arrow": pd.read_feather}[suffix]
    pd.testing.assert_frame_equal(read(path), FLEET.to_dataframe())
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_written_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"--out .*x.xlsx: a name that ends in .csv, .parquet or .arrow is accepted"):
        check_table("out", tmp_path / "x.xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_table("out", tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"x.parquet needs pyarrow: pip install 'dmodels\[io\]'"):
        check_table("out", tmp_path / "x.parquet")
    with pytest.raises(InputError, match="needs pyarrow"):
        FLEET.__arrow_c_stream__()


@pytest.mark.slow
def test_predictions_are_written_as_columns(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    import pandas as pd

    from dmodels.cli import main

    out = tmp_path / "predicted.parquet"
    assert main(["predict", "examples/data/measured.csv", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["predict", "examples/data/measured.csv", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["result"]["predictions"]
    found = pd.read_parquet(out)
    assert found.ttft_ms.tolist() == [one["ttft_ms"] for one in told] and len(found) == 69


def test_a_table_needs_no_library_to_be_imported_first():
    """Importing answers brings neither pandas nor pyarrow."""
    code = "import sys, dmodels.core.answers; print(*{'pandas', 'pyarrow', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == ""


ASKED = {
    "plan": "plan --model llama-3.1-8b --isl 1000 --osl 200 --rate 20req/s --gpu h100_sxm --tp 1 --no-split",
    "size": "size --model llama-3.1-8b --gpu h100_sxm",
    "step": "step --model llama-3.1-8b --gpu h100_sxm",
    "pools": "pools --workload azure-conv",
    "place": "place examples/place.toml --trace examples/data/mooncake_head.jsonl",
    "split": "split examples/split.toml",
    "sweep": "sweep examples/sweep.toml --axis rate=2,20",
    "predict": "predict examples/data/measured.csv",
    "fit": "fit examples/data/measured.csv --steps 1",
}
#: Those with a figure of their own below the tables.
DRAWN = {"plan", "place", "split", "step"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ASKED)
def test_every_study_has_a_table_and_a_face(command, monkeypatch, tmp_path):
    """A table of single values, which Arrow takes, and for notebooks HTML that shows itself, with a figure."""
    pa = pytest.importorskip("pyarrow")
    from dmodels.cli import main
    from dmodels.cli.command import Form

    found = []
    monkeypatch.setattr(Form, "give", lambda form, call, *rest, **more: found.append(call.run()) or 0)
    assert main(ASKED[command].split()) == 0
    (answer,) = found
    assert isinstance(answer, Answer)
    table = pa.table(answer)
    assert table.num_rows and table.num_columns > 1
    assert not any(pa.types.is_nested(field.type) for field in table.schema)
    shown = answer._repr_html_()
    assert type(answer).__name__ in shown and ("data:image/png;base64," in shown) == (command in DRAWN)
    write_table(answer.to_dataframe(), tmp_path / "t.parquet")


@pytest.mark.slow
def test_a_plan_is_written_as_columns(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    from dmodels.cli import main

    out = tmp_path / "plan.parquet"
    assert main([*ASKED["plan"].split(), "--no-sensitivity", "--out", str(out)]) == 0
    assert pd.read_parquet(out).recommended.sum() == 1
