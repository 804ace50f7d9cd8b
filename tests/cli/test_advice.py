"""What a plan advises is asked for with the flags that it names."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from dmodels.cli import main, plan
from dmodels.studies.plan.suggestions import _others

LINE = "plan --model llama-3.1-70b --gpu h100 --ttft '2 s' --tpot '80 ms'"
FIXED = "--isl 1000 --osl 200 --rate '20 req/s'"


@pytest.fixture
def asked(monkeypatch):
    """Words of a command line -> the question that is answered."""
    seen = []
    monkeypatch.setattr(plan, "answer", lambda inputs, *_, **__: seen.append(inputs.call().run()) or 0)

    def ask(words):
        monkeypatch.setattr("sys.argv", ["dmodels", *shlex.split(words)])
        assert main(shlex.split(words)) == 0
        return seen[-1]

    return ask


def alike(a, b):
    """Questions of the same numbers, whatever their traffic is called."""
    if hasattr(a, "__dataclass_fields__"):
        names = [name for name in a.__dataclass_fields__ if name not in ("workload_name", "name")]
        return type(a) is type(b) and all(alike(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray | float | int):
        return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")
    return repr(a) == repr(b)


@pytest.mark.parametrize("more", ["", "--weights fp8", "--kv fp8", "--max-num-batched-tokens 4096"])
def test_what_may_pay_is_asked_for_by_its_flags(more, asked):
    question = asked(f"{LINE} {FIXED} {more}")
    found = list(_others(question))
    named = {what for what, *_ in found}
    assert ("FP8 weights and KV cache" in named) == (not more or "max" in more)
    assert ("an FP8 KV cache" in named) == ("kv" not in more)
    budgets = [flags.split()[1] for what, flags, *_ in found if "budget" in what]
    assert budgets == [b for b in ("2048", "4096", "16384") if b not in more and b != "8192"]
    for what, flags, _, other in found:
        assert alike(asked(f"{LINE} {FIXED} {more} {flags}"), other), what
        assert not alike(question, other)


def test_prefix_hits_that_may_pay_are_asked_for_by_their_flag(asked, tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"timestamp": 500 * k, "input_length": 2048, "output_length": 50, "hash_ids": [1, 2, 3, 10 + k]}
        for k in range(40)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    line = f"{LINE} --trace {path}"
    question = asked(line)
    ((_, flags, _, other),) = [one for one in _others(question) if one[0] == "prefix caching"]
    assert alike(asked(f"{line} {flags}"), other) and not alike(question, other)
    assert not [one for one in _others(other) if one[0] == "prefix caching"]
