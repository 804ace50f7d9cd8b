"""Typed access to the fields of a config.json: the value, or one line that says which field holds what nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from dmodels.core.errors import ConfigError

#: Names that older or other families use for the same thing.
ALIASES: dict[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "num_query_groups"),
    "hidden_size": ("n_embd", "d_model"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim"),
    "head_dim": ("attention_head_dim",),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("top_k_experts", "num_experts_per_token", "moe_top_k", "moe_topk", "experts_per_token"),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "seq_length", "model_max_length"),
    "dtype": ("torch_dtype",),
    "mamba_num_heads": ("mamba_n_heads",),
    "mamba_head_dim": ("mamba_d_head",),
    "ssm_state_size": ("mamba_d_state",),
    "n_groups": ("mamba_n_groups",),
    "conv_kernel": ("mamba_d_conv",),
}

#: Far above any model, far below where products of counts stop being whole in float64.
LARGEST = {"num_hidden_layers": 4096, "num_experts": 65536, "vocab_size": 2**28, "max_position_embeddings": 2**48}


class Fields:
    """The fields of one config, with defaults of its family behind them."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, where: str = "config"):
        self.config, self.defaults, self.where = config, dict(defaults or {}), where

    def raw(self, name: str) -> Any:
        """What the config holds under `name` or one of its other names, else the family's default, else None."""
        for key in (name, *ALIASES.get(name, ())):
            if self.config.get(key) is not None:
                return self.config[key]
        return self.defaults.get(name)

    def wrong(self, name: str, value: Any, accepted: str) -> ConfigError:
        """The error for a field: its name, what it holds, what is accepted."""
        names = " or ".join((name, *ALIASES.get(name, ()))) if value is None else self._spelt(name)
        held = "missing" if value is None else f"{value!r}"
        held = held if len(held) <= 60 else held[:57] + "..."
        return ConfigError(f"{self.where}: {names} is {held}; {accepted} is accepted")

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`. Without a default the field must be there."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        most = LARGEST.get(name, 2**24)
        whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, value, f"a whole number from {least} to {most}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def items(self, name: str, length: int | None = None) -> list[Any] | None:
        """A list, of `length` items where that is given; None where the field is absent."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
            raise self.wrong(name, value, "a list" if length is None else f"a list of {length} items, one per layer")
        return list(value)

    def section(self, name: str) -> Mapping[str, Any] | None:
        """A nested object; None where the field is absent."""
        value = self.raw(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return value

    def _spelt(self, name: str) -> str:
        return next((k for k in (name, *ALIASES.get(name, ())) if self.config.get(k) is not None), name)
