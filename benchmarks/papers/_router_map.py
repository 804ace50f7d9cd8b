r"""Experiment 4 as a model: what omega and tau of Dynamo's router do to price of anarchy, TTFT, ITL and throughput.

A closed loop of C clients: one prefill server (its service shortened by cache hits), then decode on m workers whose
iteration takes W + H n. The router's chain gives the law of the loads and the hits; the finite-source queue (decode is
the think time) gives throughput and TTFT. That queue alone explains the paper's ceiling, knee and flat maps below
saturation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmodels.core.errors import InputError
from dmodels.core.records import Real
from dmodels.games.routing import RoutingGame, closed_loop, optimum_flows
from dmodels.models.latency import StepLaw, iteration_time


class Deployment(NamedTuple):
    """One prefill server and m decode workers; defaults close to the paper's 340B, 1P/2D (Table 4, C <= 96)."""

    workers_count: int = 2
    prefill_s: float = 0.0702  # service of a request that hits nothing; at half hits 1/19 s, the measured ceiling
    hit_saves_frac: float = 0.5  # part of it that a full hit saves
    step: StepLaw = StepLaw(20e-3, 0.025e-3)  # an iteration of decode
    output_tokens: int = 256
    prefixes_count: int = 5
    request_blocks: float = 8.0  # 128 tokens of 16


class RouterMap(NamedTuple):
    """Maps with axes (tau, omega)."""

    tau: np.ndarray
    omega: np.ndarray
    poa: np.ndarray  # mean social cost of the router's law / optimum, miss form
    ttft_p99_s: np.ndarray
    itl_p99_s: np.ndarray
    throughput_rps: np.ndarray
    hit_frac: np.ndarray


def router_map(
    clients: int,
    tau: Real = (0.0, 0.3, 0.7, 1.0),
    omega: Real = (0.0, 0.3, 0.7, 1.0),
    deployment: Deployment | None = None,
    rng: np.random.Generator | None = None,
    steps: int = 40_000,
) -> RouterMap:
    """The maps of Figure 6 and their companions for C = `clients` over a grid of tau (rows) and omega (columns)."""
    d = Deployment() if deployment is None else deployment
    if clients < 1 or d.workers_count < 1:
        raise InputError(f"clients {clients}, workers {d.workers_count}; accepted are whole numbers from 1")
    rng = np.random.default_rng(0) if rng is None else rng
    tau, omega = np.asarray(tau, np.float64), np.asarray(omega, np.float64)
    overlap = np.eye(d.workers_count)[np.arange(d.prefixes_count) % d.workers_count]
    law, hit = closed_loop(overlap, clients, omega[None, :], tau[:, None], rng, d.request_blocks, steps=steps)
    k = np.arange(clients + 1.0)
    itl = d.step.iteration_s(k)
    weight = (law * k).sum(-2) / clients  # share of requests that have company k
    itl_mean = weight @ itl
    itl_p99 = itl[np.minimum((np.cumsum(weight, -1) < 0.99).sum(-1), clients)]
    service = d.prefill_s * (1.0 - d.hit_saves_frac * hit)
    _, p99, rate = finite_source(clients, d.output_tokens * itl_mean, service)
    miss_s = d.prefill_s * d.hit_saves_frac
    curve = iteration_time(d.step, np.full(d.workers_count, d.output_tokens))
    counts = np.bincount(np.arange(clients) % d.prefixes_count, minlength=d.prefixes_count)
    game = RoutingGame(curve, overlap, miss_s, counts)
    _, least = optimum_flows(game.arrays())
    paid = clients * (d.output_tokens * itl_mean + miss_s * (1.0 - hit))
    return RouterMap(tau, omega, paid / float(least[0]), p99, itl_p99, rate, hit)


def finite_source(clients: int, think_s: Real, service_s: Real) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""(mean response, its 99th percentile, throughput) of C clients around one exponential FIFO server.

    An arrival sees the queue of C - 1 clients (Sevcik and Mitrani 1981): k waiting with $\pi_k \propto
    \frac{(C-1)!}{(C-1-k)!}(S/Z)^k$, so the response is a mixture of Erlang(k + 1, 1/S).
    """
    from scipy.special import gammaincc, gammaln

    think, service = (np.asarray(a, np.float64) for a in np.broadcast_arrays(think_s, service_s))
    k = np.arange(clients)
    log_p = -gammaln(clients - k) + k * np.log(service / think)[..., None]
    p = np.exp(log_p - log_p.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    mean = service * (p @ (k + 1.0))
    low, high = np.zeros(think.shape), service * (clients + 12.0 * np.sqrt(clients) + 12.0)
    for _ in range(60):
        middle = (low + high) / 2
        tail = (p * gammaincc(k + 1.0, (middle / service)[..., None])).sum(-1)
        low, high = np.where(tail > 0.01, middle, low), np.where(tail > 0.01, high, middle)
    return mean, high, clients / (mean + think)
