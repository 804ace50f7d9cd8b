"""Models: one file per model under data/models, holding the fields of its config.json that matter here."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmodels.core.errors import InputWarning

from .tables import DATA, find, index

if TYPE_CHECKING:
    from dmodels.core.model import Model


def models() -> dict[str, dict[str, Any]]:
    """Name -> Hugging Face id, aliases, source and remark of every model."""
    shown = ("hf_id", "aliases", "source", "note")
    return {name: {k: entry[k] for k in shown if k in entry} for name, entry in _shipped().items()}


def model(name: str | Path) -> Model:
    """A model by its catalogue name, its Hugging Face id, or the path of a config.json or of its folder."""
    from .hf import read_model

    config = model_config(name)
    found = read_model(config)
    if isinstance(config, Path) and (kind := architecture(config)) not in STANDARD | _architectures():
        warnings.warn(
            f"{config}: model_type {kind!r} is not known; read as a standard decoder, so compare its parameters "
            "(dmodels catalog) with the model card",
            InputWarning,
            stacklevel=2,
        )
    return found


def model_config(name: str | Path) -> dict[str, Any] | Path:
    """The config of a model of the catalogue, or the path, where `name` is one."""
    if isinstance(name, Path) or (isinstance(name, str) and _is_path(name)):
        return Path(name).expanduser()
    known = index({n: _spellings(entry) for n, entry in _shipped().items()})
    return _resolved(find("model", name, known))


def model_name(name: str | Path) -> str:
    """What to call a model in tables: its catalogue name, or the folder or file that it was read from."""
    config = model_config(name)
    if isinstance(config, Path):
        return config.parent.name if config.name == "config.json" and config.parent.name else config.name
    return find("model", str(name), index({n: _spellings(entry) for n, entry in _shipped().items()}))


def architecture(name: str | Path) -> str:
    """The `model_type` of a model's config: engines write their kernels per architecture, so a fine-tune shares it.

    >>> architecture("llama-3.1-8b"), architecture("deepseek-r1")
    ('llama', 'deepseek_v3')
    """
    from .hf import read_architecture

    return read_architecture(model_config(name))


#: Architectures without an entry of their own that are standard decoders. What says nothing is taken at its fields.
STANDARD = {"", "mistral", "qwen2", "qwen2_moe", "phi", "phi3", "granite", "olmo", "olmo2", "internlm2", "stablelm"}
STANDARD |= {"starcoder2", "cohere", "cohere2", "gemma", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "minimax", "yi"}


@cache
def _architectures() -> set[str]:
    """The architectures of the catalogue's models."""
    return {architecture(name) for name in _shipped()}


def _is_path(name: str) -> bool:
    return name.endswith(".json") or name.startswith((".", "~", "/")) or (0 < len(name) < 200 and Path(name).exists())


def _spellings(entry: dict[str, Any]) -> list[str]:
    ids = [entry["hf_id"], *entry.get("aliases", ())]
    return ids + [i.rsplit("/", 1)[-1] for i in ids]


def _resolved(name: str) -> dict[str, Any]:
    """The config of an entry over that of its base (a fine-tune, or a quantised variant of the same shape)."""
    entry = _shipped()[name]
    base = _resolved(entry["base"]) if "base" in entry else {}
    own: dict[str, Any] = entry["config"]
    return base | own


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    found = {f.name.removesuffix(".json"): f for f in (DATA / "models").iterdir() if f.name.endswith(".json")}
    return {name: json.loads(found[name].read_text(encoding="utf-8")) for name in sorted(found)}
