"""Every layout that was measured in public did run, so the memory model must say that it fits, by its engine's rule."""

from __future__ import annotations

import csv

import numpy as np

from dmodels import stack
from dmodels.catalog import gpu, model
from dmodels.core.flags import usable
from dmodels.models.memory import concurrent_sequences, engine_memory, with_weight_dtype

#: `gemm_quant_mode` of the rows -> the format of the weights; published quantised checkpoints state their own.
FORMATS = {"fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "fp4", "int4_wo": "int4"}


def layout(row: dict[str, str]) -> tuple:
    """Model, GPU, format, tp, pp, dp, ep and engine of an aggregated row.

    Some rows of one server state the product of two equal expert degrees as `tp_size` (64 "GPUs" of an 8-GPU
    server); the server's own count is the stricter test of memory.
    """
    names = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    tp, pp, dp, moe_tp, ep = (max(float(row[k] or 1), 1.0) for k in names)
    tp = moe_tp if tp > 8 and moe_tp == ep else tp
    return row["model_path"], row["system"], row["gemm_quant_mode"], tp, pp, dp, ep, row["backend"]


def test_all_measured_layouts_fit(shared_data):
    with open(shared_data / "silicon_fit.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "agg"]
    longest: dict[tuple, float] = {}
    for row in rows:
        if layout(row)[3] > 8:
            continue  # wider than a server: prefill and decode workers added up in one row
        tokens = float(row["isl"]) + float(row["osl"])
        longest[layout(row)] = max(tokens, longest.get(layout(row), 0.0))
    assert len(longest) > 100

    def stored(path, quantised):
        published = model(path)
        own = path.endswith(("NVFP4", "FP8")) or path.startswith("moonshotai/")
        return published if own or not quantised else with_weight_dtype(published, FORMATS[quantised])

    used = []
    for engine in sorted({key[-1] for key in longest}):
        own = {key: tokens for key, tokens in longest.items() if key[-1] == engine}
        models = stack(*(stored(key[0], key[2]) for key in own))
        gpus = stack(*(gpu(key[1]) for key in own))
        tp, pp, dp, ep = np.array([key[3:-1] for key in own]).T
        layouts = tp, pp, dp, np.minimum(ep, tp * dp)
        answer = concurrent_sequences(
            models, gpus, np.array(list(own.values())), *layouts, engine=engine_memory(engine)
        )
        misjudged = [key for key, mask in zip(own, np.asarray(answer.flags), strict=True) if not usable(int(mask))]
        assert misjudged == []
        used += (np.asarray(answer.weight_bytes) / np.asarray(gpus.memory_bytes)).tolist()
    assert max(used) > 0.5  # some of them are tight
