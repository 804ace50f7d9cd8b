"""`dmodels predict` and `dmodels fit`: rows in, latencies with intervals out; what is bad is named and counted."""

from __future__ import annotations

import csv
import io
import json
from importlib import import_module
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import main, predict, render
from dmodels.core.errors import InputError
from dmodels.fit.predict import to_csv
from tests.audit.commands import audit

HEAD = (
    "id,model_path,system,backend,precision,mode,isl,osl,gemm_quant_mode,moe_quant_mode,batch_size,tp_size,pp_size,"
    "attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms"
)


def line(name="a", model="meta-llama/Llama-3.1-8B-Instruct", system="h200_sxm", batch=16, tp=1, ttft="", tpot=""):
    return f"{name},{model},{system},vllm,fp8,agg,1024,512,fp8,fp8,{batch},{tp},1,1,1,1,{ttft},{tpot}"


@pytest.fixture
def write(tmp_path):
    def of(*lines):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([HEAD, *lines]) + "\n")
        return str(path)

    return of


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_predictions_are_a_csv_of_nested_intervals(capsys, write, tmp_path):
    path, out_path = write(line(), line("b", tp=2)), tmp_path / "out.csv"
    code, out, err = run(capsys, "predict", path, "--out", str(out_path))
    assert code == 0 and out == "" and "2 rows predicted, 0 skipped" in err
    rows = list(csv.DictReader(io.StringIO(out_path.read_text())))
    assert [row["id"] for row in rows] == ["a", "b"]
    for row in rows:
        for metric in ("ttft", "tpot"):
            names = (f"{metric}_lo95_ms", f"{metric}_lo80_ms", f"{metric}_ms", f"{metric}_hi80_ms", f"{metric}_hi95_ms")
            values = [float(row[name]) for name in names]
            assert values == sorted(values) and values[0] > 0
    assert float(rows[1]["tpot_ms"]) < float(rows[0]["tpot_ms"])  # two GPUs are faster than one


def test_a_line_that_is_cut_off_or_too_long_spoils_no_other(capsys, write):
    at = [line(name, ttft="100", tpot="10") for name in "abc"]
    code, out, err = run(capsys, "predict", write(at[0], at[1] + ",7,8", "c,"))
    assert code == 0 and [row.split(",")[0] for row in out.splitlines()] == ["id", "a", "b"]
    assert "2 rows predicted, 1 skipped" in err and "line 4" in err and "model_path" in err


def test_bad_rows_are_named_and_counted(capsys, write):
    path = write(line(), line("b", model="no/such"), line("c", system="abacus"), line("d", batch=0))
    code, out, err = run(capsys, "predict", path)
    assert code == 0 and len(out.splitlines()) == 2
    assert "1 row predicted, 3 skipped" in err
    for name, word in (("b", "model"), ("c", "GPU"), ("d", "batch_size")):
        assert any(said.startswith(f"skipped {name}") and word in said for said in err.splitlines())


def test_json_carries_inputs_and_rejections(capsys, write):
    code, out, _ = run(capsys, "predict", write(line(), line("b", batch="x")), "--json")
    document = json.loads(out)
    assert code == 0 and document["command"] == "predict"
    assert document["result"]["rejected"][0]["id"] == "b" and len(document["result"]["predictions"]) == 1


def test_predictions_are_audited(capsys, write):
    """Loads and layouts of a dense and of a sparse model; `tests/audit` holds each document against file and cards."""
    sizes = [line(f"{b}x{tp}", batch=b, tp=tp) for tp in (1, 2) for b in (64, 1, 300, 8)]
    more = [
        line("moe", "Qwen/Qwen3-30B-A3B"),
        line("big", "meta-llama/Llama-3.1-70B-Instruct", tp=8),
        line("no", "a/b"),
    ]
    assert run(capsys, "predict", write(*sizes, *more), "--json")[0] == 0


@pytest.mark.parametrize(
    "name, wrong, why",
    [
        ("tpot_ms", lambda ms: 0.02 * ms, "reading the weights"),
        ("ttft_hi80_ms", lambda ms: 9.0 * ms, "intervals of ttft"),
        ("id", lambda name: "x", "predicted or refused"),
    ],
)
def test_the_audit_notices_wrong_predictions(capsys, write, name, wrong, why):
    document = json.loads(run(capsys, "predict", write(line()), "--json")[1])
    row = document["result"]["predictions"][0]
    row[name] = wrong(row[name])
    with pytest.raises(AssertionError, match=why):
        audit(document)


def test_files_that_hold_no_rows_are_bad_input(capsys, write, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    assert run(capsys, "predict", str(tmp_path / "empty.csv"))[0] == 2
    assert run(capsys, "predict", str(tmp_path / "missing.csv"))[0] == 2
    code, _, err = run(capsys, "predict", write(line(model="no/such")))
    assert code == 2 and "no row can be used" in err


def test_the_printed_call_runs(capsys, write):
    path = write(line())
    _, code_text, _ = run(capsys, "predict", path, "--show-python")
    scope = {}
    exec(compile(code_text, "shown", "exec"), scope)
    assert to_csv(scope["predictions"]) == run(capsys, "predict", path)[1]


@pytest.mark.slow
def test_a_refit_lowers_the_error_and_its_calibration_predicts(capsys, write, tmp_path):
    loads = [line(f"r{b}{t}", batch=b, tp=t) for b in (1, 4, 16, 64) for t in (1, 2, 4)]
    _, out, _ = run(capsys, "predict", write(*loads))
    told = {row["id"]: row for row in csv.DictReader(io.StringIO(out))}
    slow = [
        line(
            f"r{b}{t}",
            batch=b,
            tp=t,
            ttft=2 * float(told[f"r{b}{t}"]["ttft_ms"]),
            tpot=1.4 * float(told[f"r{b}{t}"]["tpot_ms"]),
        )
        for b in (1, 4, 16, 64)
        for t in (1, 2, 4)
    ]
    path, calibration = write(*slow, line("bad", ttft="-1", tpot="1")), tmp_path / "mine.json"
    code, out, err = run(capsys, "fit", path, "--out", str(calibration), "--json")
    result = json.loads(out)["result"]
    assert code == 0 and "12 rows used, 1 skipped" in err
    for metric in ("ttft", "tpot"):
        assert result["errors"]["after"][metric]["median"] < 0.3 * result["errors"]["before"][metric]["median"]
    _, out, _ = run(capsys, "predict", path, "--calibration", str(calibration))
    now = float(next(csv.DictReader(io.StringIO(out)))["tpot_ms"])
    assert now == pytest.approx(1.4 * float(told["r11"]["tpot_ms"]), rel=0.1)


@pytest.mark.slow
def test_the_table_of_a_fit_names_every_efficiency_and_machine_whole(capsys, write, monkeypatch):
    from dmodels.fit.hierarchy import NAMES

    monkeypatch.setenv("COLUMNS", "120")
    path = write(
        *(
            line(f"{gpu} {b}", system=gpu, batch=b, ttft=60 * b**0.3, tpot=8 * b**0.2)
            for gpu in ("h200_sxm", "h100_sxm")
            for b in (1, 8, 64)
        )
    )
    code, out, _ = run(capsys, "fit", path, "--steps", "1")
    assert code == 0
    for name in (*NAMES, "h200_sxm vllm fp8", "h100_sxm vllm fp8"):
        assert name in out
    assert max(len(row) for row in out.splitlines()) <= 120


@pytest.fixture
def told_by_hand(unaudited, monkeypatch):
    """Predictions of two rows, of which every form says what it is; what was asked of the library."""
    frame = Record(name="frame")
    found = Record(values=[{"id": "a"}], rejected=[Record(id="b", line=4, reason="no GPU")], notes=["a note"])
    found.to_dataframe = lambda: frame
    asked = []
    library = import_module("dmodels.fit.predict")
    monkeypatch.setattr(library, "predict_file", lambda *given, **how: asked.append((given, how)) or found)
    monkeypatch.setattr(library, "to_csv", lambda answer: "id\na\n" if answer is found else "?")
    monkeypatch.setattr(import_module("dmodels.fit.calibration"), "read", lambda path: f"read {path}")
    monkeypatch.setattr(predict, "write_table", lambda made, out: asked.append((made is frame, out)))
    return asked


def test_predictions_go_to_the_file_that_is_named_as_its_ending_says(told_by_hand, capsys, tmp_path):
    said = "skipped b (line 4): no GPU\na note\n1 row predicted, 1 skipped\n"
    assert run(capsys, "predict", "rows.csv") == (0, "id\na\n", said)
    for name in ("x.csv", "x.CSV", "x.txt"):
        assert run(capsys, "predict", "rows.csv", "--out", str(tmp_path / name)) == (0, "", said)
        assert (tmp_path / name).read_text() == "id\na\n"
    assert told_by_hand == [(("rows.csv",), {})] * 4
    table = tmp_path / "x.parquet"
    assert run(capsys, "predict", "rows.csv", "--out", str(table)) == (0, "", said)
    assert told_by_hand[-1] == (True, table) and not table.exists()


def test_what_is_asked_of_predictions_is_told_to_the_library_and_in_the_document(told_by_hand, capsys, monkeypatch):
    documents = []
    monkeypatch.setattr(render, "as_json", lambda *told: documents.append(told) or "{}")
    code, out, _ = run(capsys, "predict", "r.csv", "--calibration", "c.json", "--tuned", "--gpu", "g", "--json")
    assert (code, out) == (0, "{}\n")
    ((given, how),) = told_by_hand
    assert given[:2] == ("r.csv", "read c.json") and given[2].gpu == "g" and how == {"tuned": True}
    ((name, inputs, result),) = documents
    assert name == "predict" and inputs["rows"] == "r.csv" and (inputs["tuned"], inputs["gpu"]) == (True, "g")
    assert result == {
        "predictions": [{"id": "a"}],
        "rejected": [{"id": "b", "line": 4, "reason": "no GPU"}],
    }
    assert (
        run(capsys, "predict", "r.csv", "--show-python")[1].splitlines()[-1].startswith("predictions = predict_file(")
    )


def test_a_table_that_cannot_be_written_is_refused_before_the_work(told_by_hand, capsys, monkeypatch):
    monkeypatch.setattr(
        predict, "check_table", lambda option, out: (_ for _ in ()).throw(InputError(f"{option} {out}"))
    )
    assert run(capsys, "predict", "r.csv", "--out", "x.parquet") == (2, "", "dmodels: out x.parquet\n")
    assert run(capsys, "predict", "r.csv")[0] == 0
