"""How long a prompt and its answer may be together: what engines derive from a config and refuse to exceed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .fields import Fields

#: Rope types whose configs state the scaled length; for the others the engine multiplies by the factor.
_SCALED_ALREADY = ("su", "longrope", "llama3")
_MOST = 1e5


def context_tokens(f: Fields, family: str) -> int:
    """The longest context in tokens; 0: the config does not say.

    `max_position_embeddings` times the factor of rope scaling where one is declared, YaRN's from the length that it
    was trained at; Gemma 3 states the scaled length. vLLM refuses a larger `--max-model-len` than this
    (`_get_and_verify_max_len` in vllm/config/model.py).

    >>> context_tokens(Fields({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}), "")
    16384
    """
    stated = f.count("max_position_embeddings", 0, least=0)
    if not stated or family.startswith("gemma3"):
        return stated
    longest, factor = float(stated), 1.0
    for rope in _ropes(f):
        kind = rope.raw("rope_type") or rope.raw("type")
        if kind in _SCALED_ALREADY:
            continue
        factor = _factor(rope)
        if kind == "yarn":
            longest = float(rope.count("original_max_position_embeddings", stated))
    return int(longest * factor)


def _ropes(f: Fields) -> list[Fields]:
    """The sections that describe rotary positions: one, or one per kind of layer (transformers 5)."""
    for name in ("rope_parameters", "rope_scaling"):
        section: Mapping[str, Any] | None = f.section(name)
        if section:
            nested = [one for one in section.values() if isinstance(one, Mapping)]
            return [Fields(one, where=f"{f.where}: {name}") for one in nested or [section]]
    return []


def _factor(rope: Fields) -> float:
    factor = rope.raw("factor")
    if factor is None:
        return 1.0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= _MOST:
        raise rope.wrong("factor", factor, f"a number up to {_MOST:,.0f}")
    return float(factor)
