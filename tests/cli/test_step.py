"""`dmodels step`: the table, the JSON, the picture, and refusals."""

from __future__ import annotations

import json
from types import SimpleNamespace as Record

from dmodels.cli import main, step
from dmodels.report import step_figures, style
from tests.audit.shown import terminal_tables

ASKED = ["step", "--model", "llama-3.1-70b", "--gpu", "h100"]


def test_the_step_as_a_table_as_json_and_as_a_picture(capsys, tmp_path, monkeypatch):
    titles, drawn = [], step_figures.figure
    monkeypatch.setattr(step_figures, "figure", lambda found, title: titles.append(title) or drawn(found, title))
    assert main([*ASKED, "--tp", "4", "--json", "--out", str(tmp_path / "step.png")]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert sum(o["seconds"] for o in result["operators"]) == result["step_s"]
    assert (tmp_path / "step.png").stat().st_size > 10_000 and titles == ["llama-3.1-70b on h100_sxm (tp4pp1dp1ep1)"]
    assert main([*ASKED, "--tp", "4", "--concurrency", "8"]) == 0
    out = capsys.readouterr().out
    assert "attention projections" in out and "output tokens a second" in out


def test_what_does_not_fit_is_an_answer(capsys):
    assert main(ASKED) == 1
    assert "Nothing fits" in capsys.readouterr().out


def test_refusals_name_the_option(capsys):
    assert main([*ASKED, "--backend", "vlm"]) == 2
    assert "backend 'vlm' is unknown" in capsys.readouterr().err
    assert main([*ASKED, "--out", "step.abc"]) == 2
    assert "--out step.abc" in capsys.readouterr().err


def stepped(**more):
    """A step whose numbers all differ."""
    operators = [
        Record(
            name="attention", seconds=2e-3, share_frac=0.25, bytes=3e9, flop=4e12, roofline_frac=0.5, binds="memory"
        ),
        Record(name="overhead", seconds=6e-3, share_frac=0.75, bytes=0.0, flop=0.0, roofline_frac=0.0, binds="host"),
    ]
    for one, source in zip(operators, ("measured", "assumed"), strict=True):
        one.source = source
    known = {"fits": True, "operators": operators, "step_s": 0.0123, "tpot_80": (0.9, 1.2), "tpot_s": 0.02}
    known |= {"decode_count": 1234.4, "mixed_frac": 0.0625, "prompt_tokens": 2345.4, "ttft_s": 0.75}
    return Record(**known | {"tokens_per_s": 34_567.4, "concurrency": 4567.4} | more)


ASKED_FOR = {"model": "m", "gpu": "g", "parallel": "tp2", "backend": "vllm", "input_tokens": 2000, "output_tokens": 500}


def test_the_operators_of_a_step_and_what_they_come_to(capsys):
    step._show(ASKED_FOR, stepped())
    out = capsys.readouterr().out
    ((title, rows),) = terminal_tables(out).items()
    assert title == "m on g (tp2, vllm): a mean step takes 12.3 ms"
    first = {
        "operator": "attention",
        "ms": "2",
        "of the step": "25%",
        "GB": "3",
        "TFLOP": "4",
        "of the roofline": "50%",
    }
    first |= {"binds": "memory", "rests on": "measured"}
    assert rows[0] == first and list(rows[0]) == list(first)
    assert [*rows[1].values()] == ["overhead", "6", "75%", "0", "0", "-", "host", "assumed"]
    assert out.splitlines()[-2:] == [
        "1,234 requests decode in it; 6.25% of the steps compute prompts, 2,345 tokens a step in the mean of all; TPOT "
        "20 ms (80 %: 18 to 24 ms), TTFT 750 ms in the mean",
        "at most 34,567 output tokens a second, with 4,567 requests of 2,000 + 500 tokens in flight",
    ]
    step._show(ASKED_FOR, Record(fits=False))
    no = "Nothing fits: m on g (tp2, vllm) holds no request of this length; `dmodels size` says what would.\n"
    assert capsys.readouterr().out == no


def test_a_step_that_fits_is_drawn_under_what_it_is_of(monkeypatch):
    done = []
    monkeypatch.setattr(step_figures, "figure", lambda *given: ("drawn", *given))
    monkeypatch.setattr(style, "save", lambda *given: done.append(given))
    found = stepped()
    step._draw(ASKED_FOR, found, None)
    step._draw(ASKED_FOR, stepped(fits=False), "x.svg")
    assert done == []
    step._draw(ASKED_FOR, found, "x.svg")
    assert done == [(("drawn", found, "m on g (tp2)"), "x.svg")]


def test_a_step_states_what_was_asked_and_shows_and_draws_it(handed, monkeypatch, tmp_path):
    monkeypatch.setattr(step, "_show", lambda inputs, found: (inputs["gpu"], found))
    monkeypatch.setattr(step, "_draw", lambda inputs, *given: (inputs["model"], *given))
    out = tmp_path / "x.pdf"
    assert main([*ASKED, "--dp", "2", "--out", str(out)]) == 0
    stated = handed.inputs(None)
    assert (stated["parallel"], stated["gpu"], stated["input_tokens"]) == ("tp1pp1dp2ep1", "h100_sxm", 2000)
    assert handed.call.target == "dmodels.studies.step:step_times"
    assert handed.result(stepped(to_dict=lambda: "a document")) == "a document"
    assert [handed.feasible(stepped(fits=fits)) for fits in (True, False)] == [True, False]
    assert handed.show("found") == ("h100_sxm", "found")
    assert handed.write("written") == ("llama-3.1-70b", "written", out)


def test_a_gpu_of_ones_own_is_no_gpu_of_the_measured_ones(tmp_path, capsys):
    own = tmp_path / "own.toml"
    own.write_text(
        'mine = { memory_bytes = "80 GiB", hbm_bytes_per_s = "3 TB/s", peak_flop_per_s = "900 TFLOP/s", '
        'nvlink_bytes_per_s_oneway = "450 GB/s", price_usd_per_hour = 4 }\n'
    )
    named = []
    for gpu in ("mine", "h100"):
        assert main(["step", "--model", "qwen3-8b", "--gpu", gpu, "--gpu-file", str(own), "--show-python"]) == 0
        named.append("gpu_name='h100_sxm'" in capsys.readouterr().out)
    assert named == [False, True]
