"""What `quantization_config` means in bytes: per weight with its scales, for which modules, and for the KV cache."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from dmodels.core.precision import FORMAT_BYTES

from .fields import Fields

#: `quant_algo` of TensorRT Model Optimizer -> format.
ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8_block",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "fp4",
    "W4A8_NVFP4_FP8": "fp4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "INT4_AWQ": "int4",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A16": "int8",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
}
METHODS = (
    "fp8",
    "fbgemm_fp8",
    "modelopt",
    "modelopt_fp4",
    "nvfp4",
    "mxfp4",
    "awq",
    "gptq",
    "compressed-tensors",
    "bitsandbytes",
)


class Quantization(NamedTuple):
    """How the linear weights are stored."""

    weight_bytes: float  # per quantised weight
    ignored: re.Pattern[str] | None  # names of modules that stay in the model's dtype
    kv_bytes: float | None  # per KV element, where the checkpoint states it
    experts_only: bool = False

    def keeps(self, module: str) -> bool:
        """Whether `module`, like "model.layers.3.self_attn.q_proj", is left unquantised."""
        if module == "lm_head" or (self.experts_only and ".experts." not in module):
            return True
        if self.ignored is None:
            return False
        stem = module.removeprefix("model.")
        names = (module, f"language_model.{module}", f"model.language_model.{stem}", f"language_model.model.{stem}")
        return any(self.ignored.fullmatch(name) for name in names)


def read_quantization(f: Fields) -> Quantization | None:
    """The quantisation of a config, or None where weights are stored in the model's dtype."""
    section = f.section("quantization_config") or f.section("quantization")
    if not section:
        return None
    if inner := section.get("quantization"):  # hf_quant_config.json as a whole
        section = inner if isinstance(inner, dict) else section
    q = Fields(section, where=f"{f.where}: quantization_config")
    algorithm, method = q.text("quant_algo"), q.text("quant_method").lower().replace("_", "-")
    kv = _kv_bytes(q)
    if method == "modelopt-fp4" or (not method and not algorithm and kv is not None):
        algorithm = algorithm or ("NVFP4" if method else "")
    if algorithm:
        if algorithm.upper() not in ALGORITHMS:
            raise q.wrong("quant_algo", algorithm, ", ".join(ALGORITHMS))
        return Quantization(FORMAT_BYTES[ALGORITHMS[algorithm.upper()]], _ignored(q), kv)
    if method == "mxfp4":
        return Quantization(FORMAT_BYTES["mxfp4"], _ignored(q), kv, experts_only=True)
    if method == "nvfp4":
        return Quantization(FORMAT_BYTES["fp4"], _ignored(q), kv)
    if method in ("fp8", "fbgemm-fp8"):
        return Quantization(1.0 + 4.0 / _block(q) if q.raw("weight_block_size") else 1.0, _ignored(q), kv)
    if method in ("awq", "gptq"):
        return Quantization(_grouped(q.count("bits"), q.raw("group_size"), q, zero=True), _ignored(q), kv)
    if method == "bitsandbytes":
        four = q.flag("load_in_4bit", False) or q.flag("_load_in_4bit", False)
        return Quantization(0.5 + 4.0 / 64 if four else 1.0, _ignored(q), kv)
    if method in ("compressed-tensors", "modelopt"):
        return _groups(q, kv)
    if kv is not None and not method:
        return Quantization(2.0, None, kv)
    raise q.wrong("quant_method", section.get("quant_method"), ", ".join(METHODS))


def _groups(q: Fields, kv: float | None) -> Quantization:
    """compressed-tensors: the first group of `config_groups` states bits, type and group size."""
    groups = q.section("config_groups") or {}
    group = next(iter(groups.values()), None)
    if not isinstance(group, dict) or not isinstance(group.get("weights"), dict):
        raise q.wrong("config_groups", group, "an object with groups that state their weights")
    w = Fields(group["weights"], where=f"{q.where}: weights")
    bits, kind, strategy = w.count("num_bits"), w.text("type", "int"), w.text("strategy")
    if kind == "float" and bits == 4:
        size = w.count("group_size", 16)
        return Quantization(0.5 + 1.0 / size, _ignored(q), kv)
    if strategy == "block" and w.raw("block_structure"):
        return Quantization(bits / 8 + 4.0 / _block(w, "block_structure"), _ignored(q), kv)
    zero = not w.flag("symmetric", True)
    return Quantization(_grouped(bits, w.raw("group_size"), w, zero), _ignored(q), kv)


def _grouped(bits: int, size: Any, q: Fields, zero: bool) -> float:
    """Bytes per weight of integer groups: the bits, a float16 scale, and a zero point of as many bits."""
    if bits > 16:
        raise q.wrong("bits", bits, "at most 16")
    if size is None or size == -1:
        return bits / 8
    return bits / 8 + (2.0 + (bits / 8 if zero else 0.0)) / q.count("group_size")


def _block(q: Fields, name: str = "weight_block_size") -> int:
    block = q.items(name)
    if not block or not all(isinstance(b, int) and not isinstance(b, bool) and 0 < b <= 2**20 for b in block):
        raise q.wrong(name, block, "a list of positive whole numbers, like [128, 128],")
    return math.prod(block)


def _kv_bytes(q: Fields) -> float | None:
    algorithm = q.raw("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm.upper() in ("FP8", "INT8"):
        return 1.0
    if isinstance(algorithm, str) and algorithm.upper() == "NVFP4":
        return FORMAT_BYTES["fp4"]
    scheme = q.section("kv_cache_scheme")
    if not scheme:
        return None
    bits = Fields(scheme, where=f"{q.where}: kv_cache_scheme").count("num_bits")
    if bits not in (4, 8, 16):
        raise q.wrong("kv_cache_scheme", scheme, "num_bits of 4, 8 or 16")
    return FORMAT_BYTES["fp4"] if bits == 4 else bits / 8


def _ignored(q: Fields) -> re.Pattern[str] | None:
    """One pattern of all modules that the checkpoint leaves unquantised."""
    for name in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
        if entries := q.items(name):
            if not all(isinstance(entry, str) and len(entry) < 500 for entry in entries):
                raise q.wrong(name, entries, "a list of module names")
            try:
                return re.compile("|".join(_patterns(entries)))
            except (re.error, RecursionError, OverflowError):
                raise q.wrong(name, entries, "a list of module names, globs, or re: patterns") from None
    return None


def _patterns(entries: Iterable[str]) -> Iterable[str]:
    for entry in entries:
        if entry.startswith("re:"):
            yield f"(?:{entry[3:]}).*"
        else:
            stem = fnmatch.translate(entry.removesuffix("*"))[:-2]  # without its end-of-string mark
            anywhere = "(?:.*\\.)?" if "." not in entry else ""
            end = ".*" if entry.endswith("*") else "(?:\\..*)?"
            yield f"{anywhere}{stem}{end}"
