"""What a scenario leaves out is what its page and its options say: written out, it asks the same."""

from __future__ import annotations

import copy

import pytest

from dmodels.cli.place_scenario import PlaceAsked
from dmodels.cli.split import SplitAsked
from dmodels.cli.sweep import SweepAsked

PLACE = {
    "model": {"name": "llama-3.1-70b"},
    "gpu": {"name": "h100_sxm"},
    "trace": {"file": "a.jsonl"},
    "tiers": {
        "hbm": {"size": "320 GiB"},
        "dram": {"size": "1 TiB", "bandwidth": "50 GB/s"},
        "ssd": {"size": "2 TiB", "bandwidth": "12 GB/s"},
        "remote": {"bandwidth": "3 GB/s"},
    },
}
SPLIT = {
    "model": {"name": "llama-3.1-70b"},
    "gpu": {"name": "h100_sxm", "count": 64},
    "workload": {"name": "azure-conv"},
    "slo": {"ttft": "2 s", "tpot": "50 ms"},
}
SWEEP = {
    "model": {"name": "llama-3.1-70b"},
    "gpu": {"name": "h100_sxm"},
    "workload": {"name": "azure-conv"},
    "traffic": {"rate": "10 req/s"},
}

LEFT_OUT = {  # path: (its value where it is left out, another one)
    "place": (
        PLACE,
        {
            "parallel.tp": (1, 2),
            "trace.repair": (False, True),
            "tiers.hbm.price": (375.0, 376.0),
            "tiers.dram.price": (5.0, 6.0),
            "tiers.dram.latency": ("20 us", "30 us"),
            "tiers.ssd.price": (0.12, 0.13),
            "tiers.ssd.latency": ("100 us", "20 us"),
            "tiers.remote.price": (0.0, 0.1),
            "tiers.remote.latency": ("1 ms", "1 us"),
            "sharing.workers": (1, 2),
            "policy.decay": ("60 s", "1 s"),
        },
    ),
    "split": (
        SPLIT,
        {"parallel.prefill_tp": (1, 2), "parallel.decode_tp": (1, 2), "traffic.burst": (1.5, 2.0)},
    ),
    "sweep": (
        SWEEP,
        {
            "parallel.tp": (1, 2),
            "parallel.pp": (1, 2),
            "parallel.dp": (1, 2),
            "parallel.ep": (1, 2),
            "precision.weights": ("as published", "fp8"),
            "precision.kv": ("as published", "fp8"),
            "slo.percentile": (0.99, 0.95),
            "engine.backend": ("vllm", "sglang"),
            "engine.max_num_seqs": (256, 64),
            "engine.max_num_batched_tokens": (8192, 2048),
        },
    ),
}
CASES = [(command, path) for command, (_, paths) in LEFT_OUT.items() for path in paths]


def asked(command: str, document: dict) -> str:
    """The library call that the scenario makes, in full."""
    if command == "sweep":
        return repr(SweepAsked.model_validate(document).call({"rate_rps": [1.0]}, "gpus", 3, None))
    return repr({"place": PlaceAsked, "split": SplitAsked}[command].model_validate(document).call())


def written(document: dict, path: str, value: object) -> dict:
    document = copy.deepcopy(document)
    *tables, name = path.split(".")
    at = document
    for table in tables:
        at = at.setdefault(table, {})
    at[name] = value
    return document


@pytest.mark.parametrize(("command", "path"), CASES)
def test_what_is_left_out_asks_the_same_written_out(command, path):
    document, paths = LEFT_OUT[command]
    said, other = paths[path]
    assert asked(command, written(document, path, said)) == asked(command, document)
    assert asked(command, written(document, path, other)) != asked(command, document)
