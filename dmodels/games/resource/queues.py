r"""Violation rates of the prefill/decode game from queues and rooflines, for a real model, GPU and workload.

Prefill workers are the servers of an M/G/c line; decode workers are batches whose step takes W + H n. Both formulas
take a real number of workers, so that the game has marginals.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.core.numerics import safe_divide
from dmodels.core.programs import program
from dmodels.core.records import Real, Record, float64, quantity
from dmodels.core.workload import Workload
from dmodels.models.latency import Efficiency, StepLaw, linear_law, prefill_s
from dmodels.models.memory import residents
from dmodels.models.queueing import wait_mean_s, wait_tail

from .game import Game

#: Nodes of the standard normal distribution, for prompts with a lognormal prefill time.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class PrefillQueue(Record):
    """V_T(G_P) = P(W + S > SLO) in M/G/c with c = servers_per_gpu * G_P real servers.

    S is lognormal with the workload's mean and squared coefficient of variation, W has an exponential tail
    (models.queueing). 1 where arrivals exceed capacity, so not convex there.
    """

    arrival_rps: Real = quantity()
    service_s: Real = quantity()  # mean prefill of one prompt, alone
    service_scv: Real = quantity()
    servers_per_gpu: Real = quantity()  # prompts served at once, per GPU: dp / (tp * pp * dp)
    ttft_slo_s: Real = quantity()
    arrival_scv: Real = quantity(1.0)
    convex: ClassVar[bool] = False

    @jax.jit  # traced once, however often a solver's program mentions it
    def __call__(self, gpus: Real) -> Real:
        servers, load = gpus * self.servers_per_gpu, self.arrival_rps * self.service_s
        serves = servers > load
        safe = jnp.where(serves, servers, 2.0 * load)
        mean = wait_mean_s(self.arrival_rps, self.service_s, safe, self.service_scv, self.arrival_scv)
        # P(wait) read off an exponential tail of the M/M/c line: theta = S (c_a^2 + c_s^2) / 2 / (c - load)
        theta = self.service_s * (self.arrival_scv + self.service_scv) / 2.0 / (safe - load)
        wait_probability = safe_divide(mean, theta, 0.0)
        sigma = jnp.sqrt(jnp.log1p(self.service_scv))
        nodes = np.expand_dims(_NODES, tuple(range(jnp.ndim(mean))))
        service = jnp.expand_dims(self.service_s * jnp.exp(-0.5 * sigma**2), -1) * jnp.exp(sigma[..., None] * nodes)
        left = self.ttft_slo_s[..., None] - service
        in_time = left >= 0  # on time to the second: late if it waits at all
        tail = wait_tail(jnp.where(in_time, left, 1.0), wait_probability[..., None], mean[..., None])
        missed = jnp.where(in_time, tail, 1.0) @ _WEIGHTS.astype(tail.dtype)
        return jnp.where(serves, missed, 1.0)


class DecodeBatch(Record):
    r"""V_I(G_D, G_P) = 1 - s (1 - v): prefill hands the request over within the window, and decode is in time.

    s: share of arrivals handed over within `window_s`, $E[\min(A, C)]/E[A]$ for A ~ Normal(lambda T, c_a^2 lambda T)
    arrivals and capacity C: prefill's externality. v: probability that a worker holds more requests than its step
    affords, $P(N > n_{max})$, N Poisson (as a normal) about the fluid occupancy n* = W y/(1 - H y), y tokens per second
    and worker; $n_{max}$ = min((SLO - W)/H, slots). More prefill hands over more, which also *loads* decode.
    """

    arrival_rps: Real = quantity()
    output_tokens: Real = quantity()
    step: StepLaw  # of a worker's batch
    slots_count: Real = quantity()  # of one worker, by memory
    worker_gpus: Real = quantity()
    tpot_slo_s: Real = quantity()
    prefill_rps_per_gpu: Real = quantity()  # capacity of prefill
    arrival_scv: Real = quantity(1.0)
    window_s: Real = quantity(30.0)
    convex: ClassVar[bool] = False

    def handed_over_frac(self, prefill_gpus: Real) -> Real:
        """s(G_P), between 0 and 1."""
        expected = self.arrival_rps * self.window_s
        spread = jnp.sqrt(jnp.maximum(self.arrival_scv, 0.01) * expected)
        z = (expected - prefill_gpus * self.prefill_rps_per_gpu * self.window_s) / spread
        density = jnp.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        late = spread * (density + z * _normal(z))
        return jnp.maximum(1.0 - late / expected, 0.0)

    def occupancy_count(self, decode_gpus: Real, prefill_gpus: Real) -> Real:
        """Mean requests in one worker; inf where its steps cannot keep up."""
        share = self.handed_over_frac(prefill_gpus)
        workers = jnp.maximum(decode_gpus, 1e-9) / self.worker_gpus
        y = self.arrival_rps * share * self.output_tokens / workers
        return safe_divide(self.step.base_s * y, 1.0 - self.step.per_sequence_s * y)

    @jax.jit
    def __call__(self, decode_gpus: Real, prefill_gpus: Real) -> Real:
        share = self.handed_over_frac(prefill_gpus)
        mean = self.occupancy_count(decode_gpus, prefill_gpus)
        most = jnp.minimum(self.step.most_count(self.tpot_slo_s), self.slots_count)
        keeps_up = jnp.isfinite(mean) & (most >= 1.0)
        safe = jnp.maximum(jnp.where(keeps_up, mean, 1.0), 1e-12)
        late = jnp.where(keeps_up, _normal((safe - most - 0.5) / jnp.sqrt(safe)), 1.0)
        return 1.0 - share * (1.0 - late)


def _normal(z: Real) -> Real:
    return jax.scipy.stats.norm.cdf(z)


class _Instance(NamedTuple):
    """What the rooflines say of one prefill and one decode worker."""

    prefill_s: Real  # (k,): of each prompt of the workload's support, alone
    step: StepLaw
    slots_count: Real


@program
def _instance(
    model: Model, gpu: GPU, workload: Workload, prefill: Parallel, decode: Parallel, efficiency: Efficiency | None
) -> _Instance:
    weight, inputs, outputs = workload.weight_frac, workload.input_tokens, workload.output_tokens
    prompts = jnp.maximum(inputs - workload.cached_tokens, 1.0)
    held = weight @ (outputs * (inputs + 0.5 * outputs)) / (weight @ outputs)
    return _Instance(
        jax.vmap(lambda tokens: prefill_s(model, gpu, prefill, tokens, efficiency))(prompts),
        linear_law(model, gpu, decode, held, 64.0, efficiency),
        residents(model, gpu, decode, inputs, outputs, weight).count,
    )


@float64
def serving_game(
    model: Model,
    gpu: GPU,
    workload: Workload,
    slo: SLO,
    budget_gpus: Real,
    prefill: Parallel,
    decode: Parallel,
    efficiency: Efficiency | None = None,
    prefill_weight: Real = 1.0,
    decode_weight: Real = 1.0,
    window_s: Real = 30.0,
) -> Game:
    """The game of one model on one GPU type under a workload; the workload's rate is the arrival rate.

    Prefill times and contexts are means over the workload's support, step times a chord of the roofline between 1 and
    64 requests. Change single leaves afterwards, or pass a workload at_rate(array of rates), for batches.
    """
    weight = np.asarray(workload.weight_frac)
    instance = jax.tree.map(np.asarray, _instance(model, gpu, workload, prefill, decode, efficiency))
    times = instance.prefill_s
    mean = float(weight @ times)
    scv = float(weight @ times**2) / mean**2 - 1.0
    rate = workload.rate_rps
    servers_per_gpu = prefill.dp / prefill.gpus
    return Game(
        PrefillQueue(rate, mean, max(scv, 0.0), servers_per_gpu, slo.ttft_s, workload.arrival_cv**2),
        DecodeBatch(
            arrival_rps=rate,
            output_tokens=float(weight @ np.asarray(workload.output_tokens)),
            step=StepLaw(*map(float, instance.step)),
            slots_count=float(instance.slots_count),
            worker_gpus=decode.gpus,
            tpot_slo_s=slo.tpot_s,
            prefill_rps_per_gpu=servers_per_gpu / mean,
            arrival_scv=workload.arrival_cv**2,
            window_s=window_s,
        ),
        budget_gpus=budget_gpus,
        prefill_weight=prefill_weight,
        decode_weight=decode_weight,
        prefill_worker_gpus=prefill.gpus,
        decode_worker_gpus=decode.gpus,
    )
