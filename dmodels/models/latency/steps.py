r"""How long one forward step takes: a roofline by component, with a few named efficiencies.

A step costs, per pipeline stage, the sum of: dense matrices, routed experts, attention over the cache, collectives,
and launch and host overheads. Each of the first three is a roofline of its own: max(bytes / HBM rate, FLOPs / peak),
joined by a smooth maximum. The efficiencies are calibrated against measured serving points (`dmodels.fit.silicon`);
the defaults are the calibration's values over all GPUs and backends.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dmodels.core.hardware import GPU, Parallel
from dmodels.core.model import Model
from dmodels.core.records import Real, Record, quantity

from . import terms

#: Bytes per second of a link that no data sheet names: PCIe 4 x8.
_PCIE = 16e9


class Efficiency(Record):
    """What silicon and software leave of the peaks. Fractions lie in (0, 1.2], times are in microseconds."""

    hbm_frac: Real = quantity(0.9)  # of HBM bandwidth, when weights are read
    kv_frac: Real = quantity(0.58)  # of HBM bandwidth, when the KV cache is read
    flop_frac: Real = quantity(0.48)  # of the dense peak, in matrix products
    expert_hbm_frac: Real = quantity(0.75)  # of HBM bandwidth, when routed experts are read
    expert_flop_frac: Real = quantity(0.25)  # of the dense peak, in routed experts
    attention_flop_frac: Real = quantity(0.38)  # of the 16-bit peak, in the attention of prompts
    decode_flop_frac: Real = quantity(0.5)  # of the 16-bit peak, in the attention of single tokens
    link_frac: Real = quantity(0.42)  # of the link's one-way rate, in collectives
    hop_us: Real = quantity(1.5)  # latency of a collective, per doubling of its ranks
    node_hop_us: Real = quantity(30.0)  # the same between nodes, per doubling of the nodes
    layer_us: Real = quantity(32.0)  # kernel launches and tails, per layer and step
    moe_layer_us: Real = quantity(67.0)  # the same, more for a layer with routed experts
    request_us: Real = quantity(15.0)  # scheduler, sampler and host, per request in the step
    routing_spread_frac: Real = quantity(0.8)  # independence of the experts that tokens of one step choose
    expert_imbalance: Real = quantity(1.1)  # busiest GPU's expert work over the mean's, for expert parallelism
    prefill_layer_us: Real = quantity(200.0)  # launches without a captured graph, per layer of a step with a prompt
    acceptance_frac: Real = quantity(0.55)  # of drafted tokens, those accepted (speculative decoding)
    # how prompts wait in a server (models.latency_serving)
    burst_frac: Real = quantity(0.11)  # of the requests in flight, those whose prompts are ahead of a new one
    prompt_ms: Real = quantity(55.0)  # tokenizer, HTTP and scheduling before a prompt's first step
    wait_steps: Real = quantity(3.0)  # steps until a server has seen a prompt, and has sent its first token
    dp_wait_steps: Real = quantity(40.0)  # steps a prompt waits for the other ranks of attention data parallelism
    ahead_count: Real = quantity(1.0)  # prompts that arrive together with one at any load, apart from that burst
    prefill_batch_tokens: Real = quantity(8192.0)  # of queued prompts that share one step
    dispatch_spread: Real = quantity(0.5)  # of requests over instances; 1: as if each were drawn at random


class Step(NamedTuple):
    """Seconds of one forward step by component; their sum is the step."""

    matrix_s: Real  # attention projections, dense FFNs, shared experts, output head
    expert_s: Real
    attention_s: Real
    collective_s: Real
    overhead_s: Real

    @property
    def total_s(self) -> Real:
        """The whole step."""
        return self.matrix_s + self.expert_s + self.attention_s + self.collective_s + self.overhead_s


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
    return step(model, gpu, parallel, decode_count, context_tokens, prefill_tokens, attended, efficiency).total_s


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
) -> Step:
    """The components of one forward step.

    attended_tokens  mean number of tokens that a new prompt token attends to (half the prompt, for a whole prompt)
    draft_tokens     drafted tokens that the step verifies per request, beside the one it would produce anyway

    With pipeline stages the tokens in flight are spread over the stages, and a token's step passes all of them.
    """
    e = Efficiency() if efficiency is None else efficiency
    tp, pp, dp = parallel.tp, parallel.pp, parallel.dp
    decode = decode_count / pp * (1.0 + draft_tokens)
    prefill = prefill_tokens / pp
    tokens = decode + prefill
    rank = tokens / dp
    hbm = gpu.hbm_bytes_per_s * e.hbm_frac

    def matrix(params: Real, dtype_bytes: Real, rows: Real) -> Real:
        flop = 2.0 * params / tp * rows / (terms.peak_flop_per_s(gpu, dtype_bytes) * e.flop_frac)
        return _smooth_max(params * dtype_bytes / tp / hbm, flop)

    body = matrix(model.attention_params, model.attention_dtype_bytes, rank)
    body = body + matrix(model.dense_params, model.dense_dtype_bytes, rank)
    head = matrix(model.head_params, model.embedding_dtype_bytes, decode / dp)

    gpus = tp * dp
    experts = model.n_moe_layers * model.expert_params / gpus
    touched = model.n_experts * terms.expert_hit_frac(model, tokens, e.routing_spread_frac)
    hit = experts * touched * model.expert_dtype_bytes / (gpu.hbm_bytes_per_s * e.expert_hbm_frac)
    expert_peak = terms.peak_flop_per_s(gpu, model.expert_dtype_bytes) * e.expert_flop_frac
    expert_flop = 2.0 * experts * model.n_active_experts * tokens / expert_peak
    skew = 1.0 + (e.expert_imbalance - 1.0) * (1.0 - 1.0 / parallel.ep)
    expert = _smooth_max(hit, expert_flop) * skew

    peak16 = gpu.peak_flop_per_s
    sequences = decode_count / pp / dp
    read = sequences * terms.kv_read_bytes(model, context_tokens, tp) / (gpu.hbm_bytes_per_s * e.kv_frac)
    multiply = decode / dp * terms.decode_attention_flop(model, context_tokens, tp) / (peak16 * e.decode_flop_frac)
    fresh = prefill / dp * terms.prefill_attention_flop(model, attended_tokens, tp) / (peak16 * e.attention_flop_frac)
    attention = _smooth_max(read, multiply) + fresh

    launches = model.n_layers * e.layer_us + model.n_moe_layers * e.moe_layer_us
    launches = launches + model.n_layers * jnp.where(prefill_tokens > 0, e.prefill_layer_us, 0.0)
    overhead = launches + e.request_us * decode_count / dp
    return Step(body + head, expert, attention, _collective_s(model, gpu, parallel, rank, tokens, e), overhead * 1e-6)


def tokens_per_step(draft_tokens: Real, acceptance_frac: Real) -> Real:
    r"""Expected tokens that a verification step yields per request, $1 + a + \dots + a^k$.

    Each of k drafted tokens is accepted with probability a while all before it were; arXiv:2211.17192, Eq. (1).

    >>> round(float(tokens_per_step(3.0, 0.7)), 3)
    2.533
    """
    a = jnp.minimum(acceptance_frac, 1.0 - 1e-9)
    return (1.0 - a ** (draft_tokens + 1.0)) / (1.0 - a)


def _collective_s(model: Model, gpu: GPU, parallel: Parallel, rank_tokens: Real, tokens: Real, e: Efficiency) -> Real:
    """All-reduces of tensor parallelism (attention, and FFN without dp) and the exchange of tokens between experts."""
    tp, dp = parallel.tp, parallel.dp
    gpus, node = tp * dp, gpu.gpus_per_node
    near = jnp.where(gpu.nvlink_bytes_per_s_oneway > 0, gpu.nvlink_bytes_per_s_oneway, _PCIE) * e.link_frac
    far = jnp.where(gpu.nic_bytes_per_s_per_gpu_oneway > 0, gpu.nic_bytes_per_s_per_gpu_oneway, _PCIE) * e.link_frac

    def hops_s(ranks: Real) -> Real:
        nodes = jnp.maximum(ranks / node, 1.0)
        return (jnp.log2(ranks / nodes) * e.hop_us + jnp.log2(nodes) * e.node_hop_us) * 1e-6

    # a node reduces its own copies first: between nodes every GPU carries its share of one message
    inside = jnp.minimum(tp, node)
    reduce = terms.all_reduce_bytes(model.hidden_size, rank_tokens, inside) / near
    reduce = reduce + terms.all_reduce_bytes(model.hidden_size, rank_tokens, tp / inside) / inside / far
    reduces = model.n_layers * jnp.where(dp > 1, 1.0, 2.0)
    sent = terms.expert_exchange_bytes(model, tokens, parallel)
    away = jnp.maximum(gpus - node, 0.0) / jnp.maximum(gpus - 1.0, 1.0)  # of the other GPUs, those in other nodes
    exchange = sent * ((1.0 - away) / near + away / far) + 2.0 * hops_s(gpus)
    return reduces * (reduce + hops_s(tp)) + jnp.where(dp > 1, model.n_moe_layers * exchange, 0.0)


def _smooth_max(a: Real, b: Real) -> Real:
    """(a^4 + b^4)^(1/4): the larger of two times, up to 19 % more where they are equal; exact zeros stay zero.

    The overlap of memory and compute is never perfect; a sharp maximum would also stop gradients.
    """
    top = jnp.maximum(jnp.maximum(a, b), 1e-30)
    # at least 1, or 0/0 in the gradient at 0; two square roots, because a power costs ten times as much
    return top * jnp.sqrt(jnp.sqrt(jnp.maximum((a / top) ** 4 + (b / top) ** 4, 1.0)))
