"""Published cards of models and GPUs, as the auditor needs them: from the second sources, not from the catalogue."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "catalog" / "second_sources"


@cache
def _table(name: str) -> dict[str, dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return {row["name"]: row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}


def gpu_card(name: str) -> dict[str, float] | None:
    """Memory, bandwidth and the range of prices of a GPU; None where it is the user's own."""
    row = _table("gpus.csv").get(name)
    if row is None:
        return None
    memory = float(row["memory_gib"]) * 2**30 * (1 - float(row["ecc_frac"]))
    prices = {name: float(row[name]) for name in ("usd_low", "usd_high")}
    return {"memory_bytes": memory, "hbm_bytes_per_s": 1e12 * float(row["hbm_tb_per_s"]), **prices}


def model_card(name: str) -> dict[str, float | str] | None:
    """Least bytes of weights, of what a step reads, of a token in the cache; the context; None: no published model."""
    row = _table("models.csv").get(name)
    if row is None:
        return None
    each = 0.95e9 * float(row["weight_bits"]) / 8
    return {
        "hf_id": row["hf_id"],
        "weight_bytes": each * float(row["params_b"]),
        "read_bytes": 0.9 * each * float(row["active_b"]),
        "kv_bytes_per_token": float(eval(row["cache_bytes"])),
        "kv_heads": float(row["cache_bytes"].split("*")[2]) if "*2*" in row["cache_bytes"] else 1.0,
        "weight_bits": float(row["weight_bits"]),
        "context_tokens": float(row["context_tokens"]),
    }


def model_card_of(hf_id: str) -> dict[str, float | str] | None:
    """The same by the name that the publisher gives."""
    names = {row["hf_id"].lower(): name for name, row in _table("models.csv").items()}
    return model_card(names.get(hf_id.lower(), ""))


@cache
def vouched_loads(form: str, slots: float) -> tuple[float, float]:
    """(the load up to which a closed form was near the simulation however lengths vary, and where they do as it likes
    best), at the numbers of slots that were tried next to this one."""
    path = FOLDER.parents[2] / "dmodels" / "catalog" / "data" / "agreement.csv"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    loads = [(float(r["slots_count"]), float(r["load_frac"])) for r in csv.DictReader(lines) if r["form"] == form]
    tried = sorted({count for count, _ in loads})
    held = min(max(slots, tried[0]), tried[-1])
    near = {max(c for c in tried if c <= held), min(c for c in tried if c >= held)}
    return tuple(end(load for count, load in loads if count in near) for end in (min, max))
