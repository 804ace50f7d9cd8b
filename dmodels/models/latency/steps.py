r"""How long one forward step takes: a roofline by component, with a few named efficiencies.

A step costs, per pipeline stage, the sum of: dense matrices, routed experts, attention over the cache, passes over the
activations between them, collectives, and launch and host overheads. Each of the first three is a roofline of its own:
max(bytes / HBM rate, FLOPs / peak), joined by a smooth maximum. The efficiencies are calibrated on measured serving
points (`dmodels.fit.silicon`); the defaults are about the calibration's values over all GPUs and backends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import log, power
from dmodels.core.records import Real, Record, quantity
from dmodels.models.memory import FAST_LINK

from . import terms

#: Bytes per second of a link that no data sheet names: PCIe 4 x8.
_PCIE = 16e9
#: Of a network card's rate, what kernels that exchange tokens between experts reach: 43 to 47 of 50 GB/s over 16 and 32
#: GPUs, dispatch and combine (deepseek-ai/DeepEP, README, normal kernels). Messages of a collective are smaller.
EXCHANGED_FRAC = 0.88
#: The same of the link within a domain: DeepEP's low-latency kernels and TensorRT-LLM's over 4 to 64 GPUs.
EXCHANGED_NEAR_FRAC = 0.6


class Efficiency(Record):
    """What silicon and software leave of the peaks. Fractions lie in (0, 1], times are in microseconds."""

    hbm_frac: Real = quantity(0.9)  # of HBM bandwidth, when weights are read
    kv_frac: Real = quantity(0.58)  # of HBM bandwidth, when the KV cache is read
    flop_frac: Real = quantity(0.48)  # of the dense peak, in matrix products
    expert_hbm_frac: Real = quantity(0.75)  # of HBM bandwidth, when routed experts are read
    expert_flop_frac: Real = quantity(0.25)  # of the dense peak, in routed experts
    pass_count: Real = quantity(20.0)  # passes over a token's hidden state in a layer's norms and quantising
    moe_pass_count: Real = quantity(10.0)  # the same, more for a layer with routed experts: sorting and summing
    attention_flop_frac: Real = quantity(0.38)  # of the 16-bit peak, in the attention of prompts
    decode_flop_frac: Real = quantity(0.5)  # of the 16-bit peak, in the attention of single tokens
    beside_rows: Real = quantity(1.0)  # rows that attention computes for one such query in a step with a prompt
    link_frac: Real = quantity(0.42)  # of the link's one-way rate, in collectives
    bus_frac: Real = quantity(0.5)  # of a PCIe link's one-way rate, in a ring of GPUs without a faster link
    hop_us: Real = quantity(1.5)  # latency of a collective, per doubling of its ranks
    exchange_us: Real = quantity(30.0)  # latency of a layer's exchange between experts: dispatch and combine
    node_exchange_us: Real = quantity(60.0)  # what an exchange over several nodes takes more, before its bytes
    node_hop_us: Real = quantity(30.0)  # latency of a collective between nodes, per doubling of the nodes
    layer_us: Real = quantity(32.0)  # kernel launches and tails, per layer (`terms.launched_layers`) and step
    moe_layer_us: Real = quantity(67.0)  # the same, more for a layer with routed experts
    request_us: Real = quantity(8.0)  # sampling, block tables and streaming, per request in the step of a rank
    routing_spread_frac: Real = quantity(0.8)  # independence of the experts that tokens of one step choose
    expert_imbalance: Real = quantity(1.1)  # busiest GPU's expert work over the mean's, for expert parallelism
    exchange_overlap_frac: Real = quantity(0.5)  # of the shorter of exchange and computation, hidden by half-batches
    prefill_layer_us: Real = quantity(200.0)  # launches without a captured graph, per layer of a step with a prompt
    acceptance_frac: Real = quantity(0.55)  # of drafted tokens, those accepted (speculative decoding)
    # how prompts wait in a server (models.latency_serving)
    burst_frac: Real = quantity(0.11)  # of the requests in flight, those whose prompts are ahead of a new one
    prompt_ms: Real = quantity(55.0)  # tokenizer, HTTP and scheduling before a prompt's first step
    wait_steps: Real = quantity(3.0)  # steps until a server has seen a prompt, and has sent its first token
    dp_wait_steps: Real = quantity(40.0)  # steps a prompt waits for other ranks' (attention data parallelism); 0: none
    ahead_count: Real = quantity(3.0)  # prompts ahead of one where equal lengths keep groups of clients together
    prefill_batch_tokens: Real = quantity(8192.0)  # of queued prompts that share one step
    dispatch_spread: Real = quantity(0.5)  # of requests over instances; 1: as if each were drawn at random


class Step(NamedTuple):
    """Seconds of one forward step by component; their sum is the step."""

    matrix_s: Real  # attention projections, dense FFNs, shared experts, output head
    expert_s: Real
    attention_s: Real
    pointwise_s: Real  # norms, rotary embeddings, gates, quantising, sampling: bytes and hardly any arithmetic
    collective_s: Real
    overhead_s: Real

    @property
    def total_s(self) -> Real:
        """The whole step."""
        return sum(self, 0.0)


def iteration_s(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    decode_count: Real,
    context_tokens: Real,
    prefill_tokens: Real = 0.0,
    prefill_context_tokens: Real = 0.0,
    efficiency: Efficiency | None = None,
) -> Real:
    """Seconds of one forward step of one instance.

    decode_count            requests that decode one token each, over the whole instance (all dp ranks)
    context_tokens          their mean context
    prefill_tokens          new prompt tokens of one prompt in the same step (chunked prefill)
    prefill_context_tokens  tokens of that prompt already in the cache
    """
    attended = prefill_context_tokens + prefill_tokens / 2.0
    place = (model, gpu, parallel, decode_count, context_tokens, prefill_tokens, attended, efficiency)
    return step(*place, crowd=parallel.dp).total_s


def decode_step_s(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    decode_count: Real,
    context_tokens: Real,
    efficiency: Efficiency | None = None,
) -> Real:
    """Seconds of one step in which `decode_count` requests of mean context `context_tokens` each gain a token."""
    return step(model, gpu, parallel, decode_count, context_tokens, 0.0, 0.0, efficiency).total_s


def prefill_s(model: Model, gpu: GPU, parallel: Parallel, tokens: Real, efficiency: Efficiency | None = None) -> Real:
    """Seconds to prefill one prompt of `tokens` tokens alone, from an empty cache, on one instance.

    A prompt lives on one rank of attention data parallelism, so the instance prefills dp prompts in this time.
    """
    return step(model, gpu, parallel, 0.0, 0.0, parallel.dp * tokens, tokens / 2.0, efficiency).total_s


def step(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    decode_count: Real,
    context_tokens: Real,
    prefill_tokens: Real,
    attended_tokens: Real,
    efficiency: Efficiency | None = None,
    draft_tokens: Real = 0.0,
    crowd: Real = 1.0,
) -> Step:
    """The components of one forward step.

    attended_tokens  mean number of tokens that a new prompt token attends to (half the prompt, for a whole prompt)
    draft_tokens     drafted tokens that the step verifies per request, beside the one it would produce anyway
    crowd            prompt tokens of the fullest rank of attention data parallelism over the ranks' mean, up to dp: the
                     others wait for it, and experts see the tokens of all

    With pipeline stages the tokens in flight are spread over the stages, and a token's step passes all of them.
    """
    found = parts(
        model,
        gpu,
        parallel,
        decode_count=decode_count,
        context_tokens=context_tokens,
        prefill_tokens=prefill_tokens,
        attended_tokens=attended_tokens,
        efficiency=efficiency,
        draft_tokens=draft_tokens,
        crowd=crowd,
    )
    sums = {field: 0.0 for field in Step._fields}
    for field, names in PARTS_OF.items():
        for name in names:
            sums[field] = sums[field] + found[name].seconds
    return Step(**sums)


class Part(NamedTuple):
    """One operator of a step on one GPU: what it takes, and what the data sheet alone would."""

    seconds: Real
    bytes: Real = 0.0  # of memory that must move, or of messages sent
    flop: Real = 0.0
    least_s: Real = 0.0  # at the whole bandwidth (of the memory or of the link) or the whole peak, whichever is slower


#: The parts of each component.
PARTS_OF = {
    "matrix_s": ("attention projections", "dense feed-forward", "output head"),
    "expert_s": ("routed experts",),
    "attention_s": ("attention of decodes", "attention of prompts"),
    "pointwise_s": ("norms and activations", "sampling"),
    "collective_s": ("all-reduce", "expert exchange"),
    "overhead_s": ("launches and tails", "launches of prompts", "host per request"),
}


def parts(
    model: Model,
    gpu: GPU,
    parallel: Parallel,
    decode_count: Real,
    context_tokens: Real,
    prefill_tokens: Real,
    attended_tokens: Real,
    efficiency: Efficiency | None = None,
    draft_tokens: Real = 0.0,
    crowd: Real = 1.0,
) -> dict[str, Part]:
    """The operators of one step, one after the other; arguments as of `step`, which adds them up."""
    e = Efficiency() if efficiency is None else efficiency
    tp, pp, dp = parallel.tp, parallel.pp, parallel.dp
    decode, prefill = decode_count / pp * (1.0 + draft_tokens), prefill_tokens / pp
    tokens, crowded = decode + prefill, crowd * prefill
    rank = (decode + crowded) / dp

    def roof(moved: Real, flop: Real, by_flop: Real, bytes_frac: Real, flop_frac: Real, skew: Real = 1.0) -> Part:
        by_bytes = moved / gpu.hbm_bytes_per_s
        seconds = _smooth_max(by_bytes / bytes_frac, by_flop / flop_frac) * skew
        return Part(seconds, moved, flop, jnp.maximum(by_bytes, by_flop))

    def matrix(params: Real, dtype_bytes: Real, rows: Real) -> Part:
        flop = 2.0 * params / tp * rows
        by_flop = flop / terms.peak_flop_per_s(gpu, dtype_bytes)
        return roof(params * dtype_bytes / tp, flop, by_flop, e.hbm_frac, e.flop_frac)

    held = model.n_moe_layers * model.expert_params / (tp * dp)
    touched = model.n_experts * terms.expert_hit_frac(model, tokens, e.routing_spread_frac)
    routed = 2.0 * held * model.n_active_experts * tokens
    experts = roof(
        held * touched * model.expert_dtype_bytes,
        routed,
        routed / terms.peak_flop_per_s(gpu, model.expert_dtype_bytes),
        e.expert_hbm_frac,
        e.expert_flop_frac,
        skew=1.0 + (e.expert_imbalance - 1.0) * (1.0 - 1.0 / parallel.ep),
    )
    eight = terms.peak_flop_per_s(gpu, 1.0)
    tiled = (prefill_tokens > 0) & (e.beside_rows > 1.0) & (model.n_mla_layers <= 0)  # as prompts' queries are
    wide, scored = terms.decode_attention_flop(model, context_tokens, tp), terms.index_flop(model, context_tokens)
    rows = decode / dp * jnp.where(tiled, e.beside_rows, 1.0)
    decodes = roof(
        decode_count / pp / dp * terms.kv_read_bytes(model, context_tokens, tp),
        rows * (wide + scored),
        rows * (wide / gpu.peak_flop_per_s + scored / eight),
        e.kv_frac,
        jnp.where(tiled, e.attention_flop_frac, e.decode_flop_frac),
    )
    wide, scored = terms.prefill_attention_flop(model, attended_tokens, tp), terms.index_flop(model, attended_tokens)
    fresh, by_flop = crowded / dp * (wide + scored), crowded / dp * (wide / gpu.peak_flop_per_s + scored / eight)
    launched = terms.launched_layers(model)
    layers = launched * e.layer_us + model.n_moe_layers * e.moe_layer_us
    moe = model.n_moe_layers * terms.MOE_KERNELS / terms.KERNELS
    begun = (launched + moe) * jnp.where(prefill_tokens > 0, e.prefill_layer_us, 0.0)
    found = {
        "attention projections": matrix(model.attention_params, model.attention_dtype_bytes, rank),
        "dense feed-forward": matrix(model.dense_params, model.dense_dtype_bytes, rank),
        "output head": matrix(model.head_params, model.embedding_dtype_bytes, decode / dp),
        "routed experts": experts,
        "norms and activations": _activations(model, gpu, parallel, tokens, rank, e),
        "sampling": _streamed(gpu, terms.sampling_bytes(model, decode / dp), e),
        "attention of decodes": decodes,
        "attention of prompts": Part(by_flop / e.attention_flop_frac, 0.0, fresh, by_flop),
        "all-reduce": _all_reduce(model, gpu, parallel, rank, e),
        "launches and tails": Part(1e-6 * layers),
        "launches of prompts": Part(1e-6 * begun),
    }
    computed = sum(part.seconds for part in found.values())
    found["expert exchange"] = _exchange(model, gpu, parallel, (decode, crowded), computed, e)
    found["host per request"] = Part(1e-6 * e.request_us * decode_count / dp)
    return found


def tokens_per_step(draft_tokens: Real, acceptance_frac: Real) -> Real:
    r"""Expected tokens that a verification step yields per request, $1 + a + \dots + a^k$.

    Each of k drafted tokens is accepted with probability a while all before it were; arXiv:2211.17192, Eq. (1).

    >>> round(float(tokens_per_step(3.0, 0.7)), 3)
    2.533
    """
    a = jnp.minimum(acceptance_frac, 1.0 - 1e-9)
    return (1.0 - power(a, draft_tokens + 1.0)) / (1.0 - a)


def _links(gpu: GPU, e: Efficiency) -> tuple[tuple[Real, Real], tuple[Real, Real]]:
    """One-way bytes per second of a GPU's link, by the data sheet and in a collective: within its scale-up domain, and
    between domains. A link faster than any bus is never slower than one."""
    near = jnp.where(gpu.nvlink_bytes_per_s_oneway > 0, gpu.nvlink_bytes_per_s_oneway, _PCIE)
    far = jnp.where(gpu.nic_bytes_per_s_per_gpu_oneway > 0, gpu.nic_bytes_per_s_per_gpu_oneway, _PCIE)
    over_bus = e.bus_frac * jnp.minimum(near, FAST_LINK)
    reached = jnp.where(near > FAST_LINK, jnp.maximum(e.link_frac * near, over_bus), over_bus)
    return (near, reached), (far, e.link_frac * far)


def _activations(model: Model, gpu: GPU, parallel: Parallel, tokens: Real, rank: Real, e: Efficiency) -> Part:
    """The passes over the activations of the whole instance's `tokens`, and of a rank's, on one GPU."""
    passed = model.n_layers * e.pass_count * rank + model.n_moe_layers * e.moe_pass_count * tokens
    moved = terms.pass_bytes(model.hidden_size, passed) + terms.split_pass_bytes(model, rank, parallel.tp)
    return _streamed(gpu, moved, e)


def _streamed(gpu: GPU, moved: Real, e: Efficiency) -> Part:
    """Bytes through the memory, with hardly any arithmetic."""
    by_bytes = moved / gpu.hbm_bytes_per_s
    return Part(by_bytes / e.hbm_frac, moved, 0.0, by_bytes)


def _all_reduce(model: Model, gpu: GPU, parallel: Parallel, rank_tokens: Real, e: Efficiency) -> Part:
    """All-reduces of tensor parallelism: attention, and FFN without dp."""
    tp, node = parallel.tp, gpu.gpus_per_node
    (near, near_reached), (far, far_reached) = _links(gpu, e)
    # a node reduces its own copies first: between nodes every GPU carries its share of one message
    inside, nodes = jnp.minimum(tp, node), jnp.maximum(tp / node, 1.0)
    to_near = terms.all_reduce_bytes(model.hidden_size, rank_tokens, inside)
    to_far = terms.all_reduce_bytes(model.hidden_size, rank_tokens, tp / inside) / inside
    reduces = model.n_layers * jnp.where(parallel.dp > 1, 1.0, 2.0)
    least, sent_s = to_near / near + to_far / far, to_near / near_reached + to_far / far_reached
    hops_s = 1e-6 / math.log(2.0) * (log(tp / nodes) * e.hop_us + log(nodes) * e.node_hop_us)
    return Part(reduces * (sent_s + hops_s), reduces * (to_near + to_far), 0.0, reduces * least)


def _exchange(
    model: Model, gpu: GPU, parallel: Parallel, tokens: tuple[Real, Real], computed_s: Real, e: Efficiency
) -> Part:
    """The exchange of tokens between experts, less what is hidden behind the rest of the step (`computed_s`).

    `tokens` are those that decode and those of prompts. Every rank writes to every other at once, so it begins as late
    however many they are, and both links send at a time: what comes over the network is handed on while more arrives. A
    step whose experts lie beyond the domain runs as two half-batches, of which one computes while the other is sent.
    """
    gpus, node = parallel.tp * parallel.dp, gpu.gpus_per_node
    (near, over_bus), (far, _) = _links(gpu, e)
    sent = terms.expert_exchange_bytes(model, *tokens, parallel, node)
    layers = jnp.where(parallel.dp > 1, model.n_moe_layers, 0.0)
    least = jnp.maximum(sent.near / near, sent.far / far)
    near_reached = jnp.where(near > FAST_LINK, EXCHANGED_NEAR_FRAC * near, over_bus)
    sent_s = _smooth_max(sent.near / near_reached, sent.far / (EXCHANGED_FRAC * far))
    beyond = gpus > node
    began_s = 1e-6 * (e.exchange_us + jnp.where(beyond, e.node_exchange_us, 0.0))
    seconds = layers * (sent_s + began_s)
    hidden = jnp.where(beyond, e.exchange_overlap_frac, 0.0) * jnp.minimum(seconds, computed_s)
    return Part(seconds - hidden, layers * (sent.near + sent.far), 0.0, layers * least)


def _smooth_max(a: Real, b: Real) -> Real:
    """(a^4 + b^4)^(1/4): the larger of two times, up to 19 % more where they are equal; exact zeros stay zero.

    The overlap of memory and compute is never perfect; a sharp maximum would also stop gradients.
    """
    top = jnp.maximum(jnp.maximum(a, b), 1e-30)
    # two square roots, because a power costs ten times as much
    return top * jnp.sqrt(jnp.sqrt(1.0 + (jnp.minimum(a, b) / top) ** 4))
