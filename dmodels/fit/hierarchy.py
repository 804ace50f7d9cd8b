r"""Efficiencies as sums of effects: global, GPU generation, GPU, backend, precision, architecture, their combinations.

Each efficiency is a link function of $u = u_0 + \sum_{l} \beta_l$ over the levels l that a row belongs to; u_0 is what
the row's own kernels say (`fit.kernels`), so that the effects are what serving adds to kernels. Each
$\beta$ is pulled to zero with a standard deviation of its own (`deviation`). A (GPU, backend, precision) never seen
so keeps what its GPU, its backend and its precision are known for, and a GPU never seen what its generation is. What a
single deployment has of its own is found last, from its rows alone (`fit.deployed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real, jit
from dmodels.models.latency import Efficiency

from .points import checkpoint, family
from .recipes import Layout
from .rows import Row

#: What is fitted: all but which kernels run, which is known.
NAMES = tuple(name for name in Efficiency.__dataclass_fields__ if name != "beside_rows")
#: Links: fractions of a peak lie in (0, 1), so that nothing beats the data sheet, as shares do; ratios above 1; all
#: else is positive.
OF_PEAK = (
    "hbm_frac",
    "kv_frac",
    "flop_frac",
    "expert_hbm_frac",
    "expert_flop_frac",
    "attention_flop_frac",
    "decode_flop_frac",
    "link_frac",
    "bus_frac",
)
#: Of the memory's rate on the data sheet, the most that reads reach: refreshing takes the rest (assumed).
OF_MEMORY, MOST_OF_MEMORY = {"hbm_frac", "kv_frac", "expert_hbm_frac"}, 0.92
SHARES = {"acceptance_frac", "routing_spread_frac", "exchange_overlap_frac"}
RATIOS = ("expert_imbalance",)
#: Of its bound, the most that a share starts from: at the bound itself nothing could move it.
MOST_SHARE = 0.98

#: Standard deviation of an effect, by level; in units of u (about the logarithm of the efficiency).
DEVIATION = {
    "all": 0.25,
    "generation": 0.15,
    "gpu": 0.1,
    "backend": 0.3,
    "generation+backend": 0.15,
    "gpu+backend": 0.1,
    "precision": 0.05,
    "generation+precision": 0.2,
}
#: What may differ between GPUs and backends; every other efficiency is the same for all of them.
CELL = {
    "hbm_frac",
    "kv_frac",
    "flop_frac",
    "expert_hbm_frac",
    "expert_flop_frac",
    "attention_flop_frac",
    "decode_flop_frac",
    "link_frac",
    "hop_us",
    "exchange_us",
    "layer_us",
    "moe_layer_us",
    "request_us",
    "prefill_layer_us",
    "prompt_ms",
    "burst_frac",
}
#: What belongs to a backend's scheduler.
SCHEDULER = ("ahead_count", "prefill_batch_tokens")
#: What depends on the architecture's kernels, on a backend's release, and on how prompts reach a deployment. Where the
#: evidence of the rows (empirical Bayes) asked for more spread, it has some; all that it asked for predicts worse what
#: is left out, because the rows of one run err together.
SPECIAL = {
    # a matrix product does not know whose it is: what prompts wait for on their way is no share of the peak
    ("backend", "flop_frac"): 0.1,
    ("precision", "flop_frac"): 0.15,
    ("generation+precision", "prefill_layer_us"): 0.5,
    ("family", "flop_frac"): 0.15,
    ("family", "attention_flop_frac"): 0.3,
    ("family", "expert_hbm_frac"): 0.3,
    ("family", "expert_flop_frac"): 0.3,
    ("family", "decode_flop_frac"): 0.3,
    ("family", "kv_frac"): 0.3,
    ("family", "hbm_frac"): 0.3,
    ("family", "link_frac"): 0.4,
    ("family", "hop_us"): 0.3,
    ("generation+backend", "exchange_us"): 0.2,
    ("gpu+backend", "exchange_us"): 0.15,
    ("family", "layer_us"): 0.3,
    ("family", "moe_layer_us"): 0.3,
    ("family", "prefill_layer_us"): 0.3,
    ("family", "prompt_ms"): 0.3,
    ("family", "routing_spread_frac"): 0.5,
    ("family+backend", "flop_frac"): 0.1,
    ("family+backend", "attention_flop_frac"): 0.3,
    ("family+backend", "layer_us"): 0.2,
    ("family+backend", "moe_layer_us"): 0.2,
    ("family+backend", "prefill_layer_us"): 0.4,
    ("family+backend", "prompt_ms"): 0.4,
    ("release+family", "layer_us"): 0.055,
    ("release+family", "moe_layer_us"): 0.07,
    ("release+family", "link_frac"): 0.07,
    ("release+family", "hop_us"): 0.07,
    ("release+family", "request_us"): 0.07,
    ("release+family", "flop_frac"): 0.11,
    ("release+family", "prefill_layer_us"): 0.07,
    ("release+family", "prompt_ms"): 0.09,
    ("release+family", "burst_frac"): 0.07,
    ("mode", "prompt_ms"): 0.3,
    ("mode", "prefill_layer_us"): 0.3,
    ("mode", "layer_us"): 0.12,
    ("mode", "burst_frac"): 0.3,
    # engine loops between a prompt's arrival and its first token on the wire
    ("backend", "wait_steps"): 0.7,
    ("family", "wait_steps"): 0.7,
    ("family+backend", "wait_steps"): 0.3,
    ("release+family", "wait_steps"): 0.11,
    ("mode", "wait_steps"): 0.3,
    # the few rows that span nodes, all of one GPU type, which would pass for what its generation is like
    ("all", "node_hop_us"): 1.0,
    ("all", "node_exchange_us"): 0.5,
    ("backend", "node_exchange_us"): 1.0,
    # how a deployment was started (compilation in the first requests, batching of prompts) shows in TTFT, and on
    # separate instances what stands between (router, hand-over of the cache): seconds, at any load
    ("mode+gpu+backend", "prompt_ms"): 1.2,
    ("mode+gpu+backend", "burst_frac"): 0.4,
}
#: What one combination of GPU, engine, precision and architecture has of its own, and the part of its variance that
#: the GPUs of a generation, which run the same kernels, have in common.
OWN = {
    "hbm_frac": 0.2,
    "kv_frac": 0.2,
    "flop_frac": 0.3,
    "expert_hbm_frac": 0.2,
    "expert_flop_frac": 0.3,
    "attention_flop_frac": 0.2,
    "link_frac": 0.3,
    "layer_us": 0.2,
    "moe_layer_us": 0.2,
    "prefill_layer_us": 0.4,
    "request_us": 0.15,
    "prompt_ms": 0.3,
    "burst_frac": 0.3,
    "wait_steps": 0.5,
}
IN_COMMON = 0.64
#: What an architecture has in common on the GPUs of a generation, under any engine and in any format.
OF_ARCHITECTURE = 0.3
SPECIAL |= {("family+generation", name): OF_ARCHITECTURE for name in OWN}
SPECIAL |= {("generation+run", name): IN_COMMON**0.5 * own for name, own in OWN.items()}
SPECIAL |= {("run", name): (1.0 - IN_COMMON) ** 0.5 * own for name, own in OWN.items()}

#: What the host does is no property of a GPU: the same for a generation, so that a better GPU of it is never slower.
OF_HOST = {"layer_us", "moe_layer_us", "request_us", "prefill_layer_us", "prompt_ms", "burst_frac"}
#: Levels that only a row which states its release has: a plan does not, but knows all else of a run.
OF_RELEASE = ("release+family",)
#: The level of one model and layout of a run. Its effects are found when all others are (`fit.deployed`).
DEPLOYMENT = "deployment"
#: What measured kernels say of a machine (`fit.kernels`), and by how much less than others serving points move it.
OF_KERNELS = dict.fromkeys((*OF_PEAK, "moe_layer_us", "pass_count", "moe_pass_count"), 0.6)


@lru_cache
def generation(system: str) -> str:
    """The GPU generation, which shares tensor-core types and kernels: by the narrowest type with a unit of its own."""
    from dmodels import catalog

    if not system:  # in no catalogue
        return ""
    gpu = catalog.gpu(system)
    return "fp4" if gpu.peak_fp4_flop_per_s > 0 else "fp8" if gpu.peak_fp8_flop_per_s > 0 else "bf16"


def levels(
    system: str, backend: str, precision: str, architecture: str, mode: str, release: str = "", ran: str = ""
) -> tuple[str, ...]:
    """Names of the effects that add up for a row: "gpu=h200_sxm", "gpu+backend=h200_sxm+vllm", ..."""
    gen = generation(system)
    run = f"{mode}+{system}+{backend}+{precision}+{architecture}"
    return (
        "all",
        f"generation={gen}",
        f"gpu={system}",
        f"backend={backend}",
        f"generation+backend={gen}+{backend}",
        f"gpu+backend={system}+{backend}",
        f"precision={precision}",
        f"generation+precision={gen}+{precision}",  # a type has units of its own only from some generation on
        f"family={architecture}",
        f"family+backend={architecture}+{backend}",
        f"family+generation={architecture}+{gen}",
        f"mode={mode}",
        f"mode+gpu+backend={mode}+{system}+{backend}",
        f"release+family={backend}+{release}+{architecture}" if release else "release+family=",
        f"generation+run={mode}+{gen}+{backend}+{precision}+{architecture}",
        f"run={run}",
        f"{DEPLOYMENT}={run}+{ran}" if ran else f"{DEPLOYMENT}=",
    )


def deployment(model: Model, *sides: Parallel | Layout) -> str:
    """The size of a model and its layout (TP x attention DP x EP); of separate instances, those that decode first.

    >>> deployment(Model(80, hidden_size=8192), Parallel(tp=4.0))
    '80x8192+4x1x1'
    """
    layouts = "/".join(f"{float(side.tp):g}x{float(side.dp):g}x{float(side.ep):g}" for side in sides)
    return f"{float(model.n_layers):g}x{float(model.hidden_size):g}+{layouts}"


def row_levels(row: Row) -> tuple[str, ...]:
    """The effects of a row. 16-bit rows leave their precision empty."""
    separate = row.prefill != row.decode or row.mode == "disagg"
    mode = "disagg" if separate else "agg"
    release = row.release or row.day[:7]  # builds without a number: by the month of the run
    ran = deployment(checkpoint(row), *(row.decode, row.prefill)[: 1 + separate])
    return levels(row.system, row.backend, row.precision or "bf16", family(row.model_path), mode, release, ran)


def deviation(level: str, name: str) -> float:
    """Standard deviation of an effect of one level on one efficiency; 0: the level has no such effect."""
    kind, _, which = level.partition("=")
    if kind == DEPLOYMENT or (kind == "release+family" and not which):
        return 0.0
    if name in OF_HOST and kind in ("gpu", "gpu+backend"):
        return 0.0
    share = OF_KERNELS.get(name, 1.0)
    if (kind, name) in SPECIAL:
        return share * SPECIAL[kind, name]
    if name in CELL or kind == "all" or (kind == "backend" and name in SCHEDULER):
        return share * DEVIATION.get(kind, 0.0)
    return 0.0


def deviations(known: Sequence[str]) -> np.ndarray:
    """(levels, efficiencies) table of `deviation`."""
    return np.array([[deviation(level, name) for name in NAMES] for level in known])


def origin(kernels: Mapping[str, float] | None = None) -> np.ndarray:
    """u_0: what a machine's kernels say, and the defaults of `Efficiency` for the rest, through the inverse links."""
    default, known = Efficiency(), {} if kernels is None else kernels
    told = {name: known[name] for name in OF_KERNELS if name in known}
    return np.array([_inverse(name, told.get(name, float(getattr(default, name)))) for name in NAMES])


@jit
def efficiency(u: jax.Array | np.ndarray, gathers: Real) -> Efficiency:
    """Efficiencies of u (..., names); `gathers` is 1 of engines whose ranks wait for each other's prompts, else 0."""
    found = Efficiency(**{name: _link(name, u[..., i]) for i, name in enumerate(NAMES)})
    return found.replace(dp_wait_steps=gathers * found.dp_wait_steps)


def _most(name: str) -> float:
    return MOST_OF_MEMORY if name in OF_MEMORY else 1.0


def _link(name: str, u):
    if name in OF_PEAK or name in SHARES:
        return _most(name) * jax.nn.sigmoid(u)
    return 1.0 + jnp.exp(u) if name in RATIOS else jnp.exp(u)


def _inverse(name: str, value: float) -> float:
    if name in OF_PEAK or name in SHARES:
        share = min(value / _most(name), MOST_SHARE)
        return float(np.log(share / (1.0 - share)))
    return float(np.log(value - 1.0 if name in RATIOS else value))
