"""Prefix-cache hits that a trace states count alike in the command and in the library."""

from __future__ import annotations

import json

import pytest

from dmodels import SLO, Workload, read_trace
from dmodels.cli import main
from dmodels.studies.plan import RequestClass, plan, plan_apart, question


def test_measured_prefix_hits_count_in_command_and_library_alike(tmp_path, capsys, short_replays):
    """90 % of the prompts need no prefill, with `--prefix-hits` and without."""
    trace = tmp_path / "agent.csv"
    rows = [f"{0.2 * i:.1f},10000,100,9000" for i in range(300)]
    trace.write_text("\n".join(["time_s,input_tokens,output_tokens,cached_tokens", *rows]))
    given = ["plan", "--trace", str(trace), "--gpu", "h100_sxm", "--tp", "4", "--no-split"]
    given += ["--no-sensitivity", "--json"]
    found = []
    for more in ([], ["--prefix-hits"]):
        assert main([*given, *more]) == 0
        out, err = capsys.readouterr()
        assert "cached_tokens: 90.0% of the prompt tokens" in err
        found.append(json.loads(out))
    assert found[0]["result"] == found[1]["result"]
    assert found[0]["inputs"]["prefix_hit_frac"] == pytest.approx(0.9)
    workload = Workload.from_trace(read_trace(trace))
    asked = lambda traffic: question("llama-3.1-70b", ["h100_sxm"], traffic, SLO(2.0, 0.08), tp=(4,), split=False)
    gpus = plan(asked(workload)).best.gpus
    assert gpus == found[0]["result"]["recommended"]["fleet_gpus"]
    assert plan_apart(asked(workload), [RequestClass("all", asked(workload).slo)]).gpus == gpus
    assert plan(asked(workload.replace(cached_tokens=0.0))).best.gpus > gpus
