r"""What measured kernels say of a machine's efficiencies, before any serving point is seen.

The step's formula is a roofline by component (`models.latency.steps`). Here its constants are those with which it
follows the laws of operators (`models.operators`, fitted to kernels of this GPU and engine, or of their relatives)
over the whole range of tokens: for each component

$$t(T) = \left(\Big(\frac{\text{bytes}(T)}{b\,\beta}\Big)^4 + \Big(\frac{\text{FLOPs}(T)}{P f}\Big)^4\right)^{1/4} + L
  + \frac{2 h T\, q}{b}$$

by least squares of the logarithm, with $\beta$ and f at most `MOST`. L is the launches' part of a layer, and q the
passes of a product's other kernels over the tokens' hidden states (2 h bytes each), which quantise and sort them.
Matrices and experts are asked for at several widths: the bytes of one matrix are as many at every T, so that one width
does not tell their time from a launch's, nor that of FLOPs from that of passes. So a model that no serving point was
measured of has the efficiencies of its own kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Floats, Real, float64, jit
from dmodels.models.latency import terms
from dmodels.models.memory import FAST_LINK
from dmodels.models.operators import layers

from .operators.coefficients import DATA_SHEET, Coefficients, load
from .operators.hierarchy import generation
from .operators.predicted import predicted

#: Efficiencies stay at or below this share of a peak, and at or above these of bandwidth and of arithmetic.
MOST, LEAST_BYTES, LEAST_FLOP = 0.95, 0.3, 0.02
#: Passes over a token's hidden state in the kernels of products: quantising, sorting and summing.
LEAST_PASSES, MOST_PASSES = 0.01, 300.0
#: Ranks of the collectives that are asked about where GPUs have no link but a bus. A ring sends over each way once,
#: however many its ranks, so it keeps the rate of two. The tables' own falls from 20 GB/s for two L40S to 2 for eight:
#: their host's ways are shared, as a virtual machine's are; published servers reach 16 GB/s at least with eight.
BUS_RANKS = 2.0
#: Bytes per second of a link that no data sheet names: PCIe 4 x8.
_PCIE = 16e9
#: Bytes of a parameter in 8 bits, with its scales and what few parameters beside it have 16.
EIGHT_BITS = (0.75, 1.5)
#: Experts on more GPUs than this are replicated where they are asked for most, and get their tokens sorted (DeepEP with
#: DeepGEMM): medians of the wide-EP kernels of six GPUs with even routing, where the fused kernels' law extrapolates.
FUSED_EP = 8.0
WIDE_EXPERTS = {"expert_hbm_frac": 0.9, "expert_flop_frac": 0.5, "moe_layer_us": 30.0}
#: Rows of a tile in FlashAttention 2's kernels of a paged cache, and the GPUs where vLLM runs these. Where the longest
#: query of a call is one token, the query heads of a KV head share a tile; beside a prompt every head of a request that
#: decodes has one of its own. FlashAttention 3 (Hopper) packs heads in any call, and vLLM's kernels for data-centre
#: Blackwell, SGLang and TensorRT-LLM take prompts and answers apart. Source: vllm-project/flash-attention,
#: csrc/flash_attn/flash_api.cpp (`seqlenq_ngroups_swapped`) and src/flash_fwd_launch_template.h (`kBlockM`).
TILE_ROWS, TILED = 64.0, ("ampere", "ada", "blackwell_rtx")
#: Passes (of 2 h bytes) over the tokens that reach such a rank, for each expert of them: 8 bits are written where they
#: arrive and read, 16 bits written and read when they are summed.
PAIR_PASSES = 3.0


class Hosted(NamedTuple):
    """What kernels run on: a model over the GPUs of one instance under an engine."""

    model: Model
    gpu: GPU
    gpu_name: str  # as the catalogue has it; "" where it is in none
    engine: str
    parallel: Parallel


def beside_rows(gpu_name: str, engine: str) -> float:
    """Rows that attention computes for one query of a request that decodes in a step with a prompt.

    >>> beside_rows("rtx_4090", "vllm"), beside_rows("h100_sxm", "vllm"), beside_rows("rtx_4090", "sglang")
    (64.0, 1.0, 1.0)
    """
    return TILE_ROWS if engine == "vllm" and generation(gpu_name) in TILED else 1.0


@cache
def shipped() -> Coefficients:
    """The constants of the laws of operators that the package comes with."""
    return load(str(files("dmodels.fit").joinpath("data/operators.json")))


def label(machine: Hosted, kind: str) -> str:
    """What a machine's efficiencies rest on for one kind of kernel: whether it, or a relative, was measured."""
    coefficients = shipped()
    for kernel in layers.kernels(machine.model, machine.parallel):
        if kernel.kind == kind:
            dtype = coefficients.runs(kind, machine.gpu_name, machine.engine, kernel.formats)
            return coefficients.label(kind, machine.gpu_name, machine.engine, dtype)
    return DATA_SHEET


#: What was found, by engine and every number of an instance: a plan that is asked again asks for the same ones.
_KNOWN: dict[tuple[Any, ...], dict[str, float]] = {}


def efficiencies(machines: Sequence[Hosted]) -> list[dict[str, float]]:
    """The efficiencies of each machine, by the names of `Efficiency`; those that no kernel shows are left out."""
    keys = [(m.gpu_name, m.engine, *map(float, jax.tree.leaves((m.model, m.gpu, m.parallel)))) for m in machines]
    new = {key: machine for key, machine in zip(keys, machines, strict=True) if key not in _KNOWN}
    _KNOWN.update(zip(new, _of_kernels(list(new.values())), strict=True))
    return [dict(_KNOWN[key]) for key in keys]


@float64
def _of_kernels(machines: Sequence[Hosted]) -> list[dict[str, float]]:
    asked = [layers.kernels(m.model, m.parallel, _most_ranks(m)) for m in machines]
    seconds = _seconds(machines, asked)
    curves: dict[str, list[tuple[int, Work, Floats]]] = defaultdict(list)
    for i, machine in enumerate(machines):
        for part, took in _by_part(asked[i], seconds[i]).items():
            curves[part].append((i, _WORK[part](machine), took))
    found: list[dict[str, float]] = [{} for _ in machines]
    launches: list[float] = [0.0] * len(machines)
    for part, several in curves.items():
        work = Work(*(np.stack(column) for column in zip(*(work for _, work, _ in several), strict=True)))
        constants = _fitted(work, np.stack([took for *_, took in several]))
        for (row, *_), values in zip(several, constants, strict=True):
            launches[row] += _named(part, machines[row], found[row], Curve(*map(float, values)))
    for own, shared, machine in zip(found, launches, machines, strict=True):
        own["layer_us"] = 1e6 * shared / float(machine.model.n_layers)
        if _sorts(machine):
            spread = float(machine.model.n_active_experts) / float(machine.parallel.ep)  # pairs per rank and token
            own |= WIDE_EXPERTS | {"moe_pass_count": PAIR_PASSES * spread}
    return found


class Curve(NamedTuple):
    """A component's constants."""

    bytes_frac: float  # of the bandwidth
    flop_frac: float  # of the peak
    launch_s: float
    pass_count: float  # passes over a token's hidden state


def _named(part: str, machine: Hosted, found: dict[str, float], of: Curve) -> float:
    """Write a component's constants under their names; returns the launches that every layer has."""
    layers_count = float(machine.model.n_layers)
    if part == "matrix":
        found |= {"hbm_frac": of.bytes_frac, "flop_frac": of.flop_frac, "pass_count": terms.PASSES + of.pass_count}
        return of.launch_s
    if part == "expert":
        moe_us = 1e6 * of.launch_s / float(machine.model.n_moe_layers)
        found |= {"expert_hbm_frac": of.bytes_frac, "expert_flop_frac": of.flop_frac}
        found |= {"moe_layer_us": moe_us, "moe_pass_count": of.pass_count}
        return 0.0
    if part == "decode":
        found |= {"kv_frac": of.bytes_frac, "decode_flop_frac": of.flop_frac}
        return of.launch_s * layers_count
    if part == "prompt":
        found |= {"attention_flop_frac": of.flop_frac}
        return 0.0
    link = "bus_frac" if _on_bus(machine) else "link_frac"
    found |= {link: of.flop_frac, "hop_us": 1e6 * of.launch_s / np.log2(_ranks(machine))}
    return 0.0


def _on_bus(machine: Hosted) -> bool:
    return float(machine.gpu.nvlink_bytes_per_s_oneway) <= FAST_LINK


def _sorts(machine: Hosted) -> bool:
    """Whether experts get their tokens sorted: on many GPUs, and by SGLang wherever attention is data parallel, but for
    experts of fewer than 8 bits."""
    ranks, few_bits = machine.parallel, float(machine.model.expert_dtype_bytes) <= EIGHT_BITS[0]
    by_engine = machine.engine == "sglang" and float(ranks.dp) > 1.0 and float(ranks.ep) > 1.0
    return float(ranks.ep) > FUSED_EP or (by_engine and not few_bits)


def _most_ranks(machine: Hosted) -> float:
    """Ranks of a collective over the GPUs' own link: beyond a node messages go over the network, by another share."""
    return BUS_RANKS if _on_bus(machine) else float(machine.gpu.gpus_per_node)


def _ranks(machine: Hosted) -> float:
    """Ranks of the collective that is asked about."""
    return min(float(machine.parallel.tp), _most_ranks(machine))


def _seconds(machines: Sequence[Hosted], asked: Sequence[Sequence[layers.LayerKernels]]) -> list[list[Floats]]:
    """Seconds of every operator at its shapes, one call of a law for all that share kernels."""
    coefficients = shipped()
    groups: dict[tuple[str, str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for i, (machine, own) in enumerate(zip(machines, asked, strict=True)):
        for j, kernel in enumerate(own):
            dtype = coefficients.runs(kernel.kind, machine.gpu_name, machine.engine, kernel.formats)
            groups[kernel.kind, machine.gpu_name, machine.engine, dtype].append((i, j))
    found: list[list[Floats]] = [[np.zeros(0)] * len(own) for own in asked]
    for (kind, gpu_name, engine, dtype), places in groups.items():
        shapes = [asked[i][j].shape for i, j in places]
        sizes = [np.broadcast_shapes(*(np.shape(v) for v in shape.values())) for shape in shapes]
        flat = {
            field: np.concatenate([np.broadcast_to(s[field], n).ravel() for s, n in zip(shapes, sizes, strict=True)])
            for field in shapes[0]
        }
        gpu, choice = machines[places[0][0]].gpu, coefficients.choice(kind, gpu_name, engine, dtype)
        took = predicted(kind, flat, dtype, gpu, choice, warm=0.0)
        ends = np.cumsum([int(np.prod(n)) for n in sizes])
        for (i, j), part in zip(places, np.split(took, ends[:-1]), strict=True):
            found[i][j] = part
    return found


def _by_part(own: Sequence[layers.LayerKernels], seconds: Sequence[Floats]) -> dict[str, Floats]:
    """Seconds of a component's operators together."""
    found: dict[str, Floats] = {}
    for kernel, took in zip(own, seconds, strict=True):
        found[kernel.part] = found.get(kernel.part, 0.0) + kernel.layer_count * took
    return found


class Work(NamedTuple):
    """What a component does at each of its points, in seconds at whole rates of the data sheet."""

    moved_s: Floats  # bytes at the bandwidth (of the memory, or of the link)
    flop_s: Floats  # FLOPs at the peak
    pass_s: Floats  # one pass over the tokens' hidden states at the bandwidth of the memory

    @classmethod
    def of(cls, moved_s: Any, flop_s: Any, pass_s: Any = 0.0) -> Work:
        """The arrays in their common flat shape."""
        return cls(*(np.ravel(a) for a in np.broadcast_arrays(*map(np.asarray, (moved_s, flop_s, pass_s)))))


def _of_machines(formula: Callable[[Model, GPU, Parallel], tuple[Any, ...]]) -> Callable[[Hosted], Work]:
    """The work of a component, whose seconds are one program."""
    seconds = jit(formula)
    return lambda machine: Work.of(*seconds(machine.model, machine.gpu, machine.parallel))


@_of_machines
def _matrix_work(m: Model, gpu: GPU, p: Parallel) -> tuple[Real, Real, Real]:
    """Dense matrices for `layers.SHARD_TOKENS` in `layers.SHARDS`."""
    ranks, tokens = p.tp * layers.SHARDS, layers.SHARD_TOKENS
    moved = (m.attention_params * m.attention_dtype_bytes + m.dense_params * m.dense_dtype_bytes) / ranks
    per_row = m.attention_params / terms.peak_flop_per_s(gpu, m.attention_dtype_bytes)
    per_row = per_row + m.dense_params / terms.peak_flop_per_s(gpu, m.dense_dtype_bytes)
    passed = terms.pass_bytes(m.hidden_size, tokens) * m.n_layers
    bandwidth = gpu.hbm_bytes_per_s
    return moved / bandwidth, 2.0 * tokens / ranks * per_row, passed / bandwidth


@_of_machines
def _expert_work(m: Model, gpu: GPU, p: Parallel) -> tuple[Real, Real, Real]:
    tokens = layers.SHARD_TOKENS
    held = m.n_moe_layers * m.expert_params / (p.tp * p.dp * layers.SHARDS)
    moved = held * m.n_experts * terms.expert_hit_frac(m, tokens, EXPERT_SPREAD) * m.expert_dtype_bytes
    flop = 2.0 * held * m.n_active_experts * tokens
    passed = terms.pass_bytes(m.hidden_size, tokens) * m.n_moe_layers
    bandwidth = gpu.hbm_bytes_per_s
    return moved / bandwidth, flop / terms.peak_flop_per_s(gpu, m.expert_dtype_bytes), passed / bandwidth


#: Independence of the experts that tokens choose (`Efficiency.routing_spread_frac`), under which experts are fitted.
EXPERT_SPREAD = 0.8


def _one_layer(model: Model) -> Model:
    """A model of one layer with full attention or a latent (and its indexer)."""
    latent = jnp.where(model.n_mla_layers > 0, 1.0, 0.0)
    heads = jnp.where(model.n_kv_heads > 0, model.n_kv_heads, model.sliding_kv_heads)
    dim = jnp.where(model.head_dim > 0, model.head_dim, model.sliding_head_dim)
    none = {"n_sliding_layers": 0.0, "n_linear_layers": 0.0, "n_cacheless_layers": 0.0}
    return model.replace(n_layers=1.0, n_mla_layers=latent, n_kv_heads=heads, head_dim=dim, **none)


@_of_machines
def _decode_work(m: Model, gpu: GPU, p: Parallel) -> tuple[Real, Real]:
    one, sequences, contexts = _one_layer(m), layers.SEQUENCES, layers.CONTEXTS
    moved = sequences * terms.kv_read_bytes(one, contexts, p.tp)
    by_flop = terms.decode_attention_flop(one, contexts, p.tp) / gpu.peak_flop_per_s
    by_flop = by_flop + terms.index_flop(one, contexts) / terms.peak_flop_per_s(gpu, 1.0)
    return moved / gpu.hbm_bytes_per_s, sequences * by_flop


@_of_machines
def _prompt_work(m: Model, gpu: GPU, p: Parallel) -> tuple[float, Real]:
    one, prompts = _one_layer(m), layers.PROMPTS
    by_flop = terms.prefill_attention_flop(one, prompts / 2.0, p.tp) / gpu.peak_flop_per_s
    by_flop = by_flop + terms.index_flop(one, prompts / 2.0) / terms.peak_flop_per_s(gpu, 1.0)
    return 1e-12, prompts * by_flop


def _collective_work(machine: Hosted) -> Work:
    link = float(machine.gpu.nvlink_bytes_per_s_oneway) or _PCIE
    sent = terms.all_reduce_bytes(machine.model.hidden_size, layers.TOKENS, _ranks(machine))
    return Work.of(1e-12, sent / link)


_WORK = {
    "matrix": _matrix_work,
    "expert": _expert_work,
    "decode": _decode_work,
    "prompt": _prompt_work,
    "collective": _collective_work,
}


def _fitted(work: Work, took: Floats, rounds: int = 40) -> Floats:
    """(rows, 4): shares of bandwidth and peak, seconds of launches, and passes over the tokens' hidden states, of every
    curve (rows, points): a robust Gauss-Newton of the logarithms inside the bounds, all rows at once."""
    every = np.where(np.isfinite(took[:, :1]), 0.0, np.nan)  # what ends: without a link nothing is sent
    low = np.log([LEAST_BYTES, LEAST_FLOP, 1e-8, LEAST_PASSES]) + every
    high = np.log([MOST, MOST, 1.0, MOST_PASSES]) + every
    launch = np.maximum(took[:, 0] - work.moved_s[:, 0] / 0.75, 0.2 * took[:, 0])
    x = np.log(np.stack([*np.broadcast_arrays(0.75, 0.5, launch, 4.0)], 1))
    x, target, damping = np.clip(x, low, high), np.log(took), np.full(len(took), 1e-2)

    def residual(x: Floats) -> tuple[Floats, Floats]:
        a, b, c = work.moved_s / np.exp(x[:, :1]), work.flop_s / np.exp(x[:, 1:2]), np.exp(x[:, 2:3])
        roof, passed = (a**4 + b**4) ** 0.25, work.pass_s * np.exp(x[:, 3:])
        total = roof + c + passed
        share = roof / total
        slopes = (-share * a**4 / roof**4, -share * b**4 / roof**4, c / total, passed / total)
        return np.log(total) - target, np.stack(slopes, -1)

    def loss(r: Floats) -> Floats:
        total: Floats = np.log1p((r / 0.15) ** 2).sum(-1)
        return total

    r, slope = residual(x)
    for _ in range(rounds):
        weight = 1.0 / (1.0 + (r / 0.15) ** 2)
        normal = np.einsum("np,npi,npj->nij", weight, slope, slope)
        pull = np.einsum("np,npi,np->ni", weight, slope, r)
        eye = np.eye(4) * (1e-6 + np.einsum("nii->ni", normal)[:, None, :]) * damping[:, None, None]
        trial = np.clip(x - np.linalg.solve(normal + eye + 1e-9 * np.eye(4), pull[..., None])[..., 0], low, high)
        r_new, slope_new = residual(trial)
        better = loss(r_new) <= loss(r)
        damping = np.where(better, damping / 3.0, damping * 5.0)
        x = np.where(better[:, None], trial, x)
        r, slope = np.where(better[:, None], r_new, r), np.where(better[:, None, None], slope_new, slope)
    found: Floats = np.exp(x)
    return found
