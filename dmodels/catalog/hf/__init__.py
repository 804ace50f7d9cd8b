"""Models from a Hugging Face `config.json`: sizes of every layer, read by kind, or a refusal that names the field."""

from __future__ import annotations

from .read import read_architecture, read_config, read_model

__all__ = ["read_architecture", "read_config", "read_model"]
