"""The prefill/decode split of a fleet: the selfish one, the best one, whole workers, and how planners would find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from dmodels.control.planner import (
    Course,
    Score,
    TandemPools,
    anarchy_driven,
    best_response,
    planner,
    reactive,
    run,
    score,
    sla_target,
)
from dmodels.core.answers import Answer
from dmodels.core.flags import usable
from dmodels.core.hardware import GPU, SLO, Parallel
from dmodels.core.model import Model
from dmodels.core.programs import program
from dmodels.core.records import Real, float64, on_host
from dmodels.core.workload import Workload
from dmodels.games.resource import (
    DecodeBatch,
    Game,
    PrefillQueue,
    equilibrium,
    explain,
    integer_split,
    serving_game,
    social_optimum,
)
from dmodels.models.memory import check_layout
from dmodels.solvers.solution import Solution

#: Pool sizes that a price-driven planner compares; of a larger fleet every so many workers.
COUNTS = 1024

CALM, BURST, AFTER = 20, 20, 60  # intervals of 30 s in the burst that planners are scored on


@dataclass(frozen=True)
class Split(Answer):
    """The whole answer. Curves are over `prefill_gpus`; courses over planning intervals."""

    internal = ("game",)
    rows_in = "prefill_gpus"
    picture = "dmodels.report.split_figures:figure"
    game: Game
    equilibrium: Solution
    optimum: Solution
    whole: Solution
    loss_frac: float  # cost of the equilibrium over the optimum's, less 1; nan where the optimum is free
    slope_gpus_per_rps: float  # how the optimum moves with the arrival rate
    notes: list[str]
    prefill_gpus: np.ndarray
    ttft_frac: np.ndarray
    itl_frac: np.ndarray
    arrival_rps: np.ndarray
    courses: dict[str, Course]
    scores: dict[str, Score]


@float64
def split(
    model: Model,
    gpu: GPU,
    workload: Workload,
    slo: SLO,
    budget_gpus: float,
    prefill: Parallel,
    decode: Parallel,
    burst: float = 1.5,
) -> Split:
    """The split of `budget_gpus` between prefill and decode workers at the workload's rate, with its planners.

    `burst`: how many times higher the arrival rate of the ten minutes is on which planners are scored.
    """
    check_layout(model, prefill, "prefill")
    check_layout(model, decode, "decode")
    game = serving_game(model, gpu, workload, slo, budget_gpus, prefill=prefill, decode=decode)
    selfish, best = equilibrium(game), social_optimum(game)
    whole = integer_split(game, best)
    x = np.linspace(0.0, budget_gpus, 241)
    ttft, itl = (np.asarray(v) for v in _curves(game, x))
    cost = float(best.value.cost)
    loss = float(selfish.value.cost) / cost - 1.0 if cost > 1e-9 else np.nan
    notes = explain(game, selfish)
    courses: dict[str, Course] = {}
    scores: dict[str, Score] = {}
    rate = np.zeros(0)
    if float(prefill.gpus) != float(decode.gpus):
        notes.append("Prefill and decode workers differ in GPUs, so no worker can change pools: planners are not run.")
    elif int(whole.flags) == 0:
        rate = float(workload.rate_rps) * np.r_[np.ones(CALM), np.full(BURST, burst), np.ones(AFTER)]
        courses, scores = _planners(game, whole, rate)
    slope = float(_slope(game, best.value.prefill_gpus)) if usable(int(best.flags)) else np.nan
    return Split(
        game,
        equilibrium=selfish,
        optimum=best,
        whole=whole,
        loss_frac=loss,
        slope_gpus_per_rps=slope,
        notes=notes,
        prefill_gpus=x,
        ttft_frac=ttft,
        itl_frac=itl,
        arrival_rps=rate,
        courses=courses,
        scores=scores,
    )


def at_rate(game: Game, arrival_rps: Real) -> Game:
    """The same game at another arrival rate."""
    prefill, decode = _queues(game)
    return game.replace(
        prefill=prefill.replace(arrival_rps=arrival_rps), decode=decode.replace(arrival_rps=arrival_rps)
    )


def _queues(game: Game) -> tuple[PrefillQueue, DecodeBatch]:
    """Both violation rates of a `serving_game`, as the records that they are."""
    return cast(PrefillQueue, game.prefill), cast(DecodeBatch, game.decode)


@program
def _curves(game: Game, x: Real) -> tuple[Real, Real]:
    """Both violation rates at x (k,)."""
    return jax.vmap(lambda x: (game.prefill(x), game.decode(game.budget_gpus - x, x)))(x)


@program
def _slope(game: Game, x: Real) -> Real:
    """d(prefill GPUs of the optimum x)/d(arrival rate) by the implicit function S'(x; rate) = 0; 0 in a corner."""
    marginal = lambda rate, x: jax.jvp(at_rate(game, rate).cost, (x,), (jnp.ones_like(x),))[1]
    rate = jnp.asarray(_queues(game)[0].arrival_rps)
    across, bend = jax.jacfwd(marginal, (0, 1))(rate, jnp.asarray(x))
    inside = (x > 0.0) & (x < game.budget_gpus) & (bend > 0.0)
    return jnp.where(inside, -across / jnp.where(inside, bend, 1.0), 0.0)


def _planners(game: Game, whole: Solution, rate: np.ndarray) -> tuple[dict[str, Course], dict[str, Score]]:
    """(courses, scores) of four planners, from the whole split at the calm rate."""
    worker = float(game.prefill_worker_gpus)
    total = float(whole.value.prefill_instances + whole.value.decode_instances)
    p, d = _queues(game)
    most = float(min(d.step.most_count(d.tpot_slo_s), d.slots_count))
    pools = TandemPools(
        prefill_rps=float(d.prefill_rps_per_gpu) * worker,
        decode_rps=most / (float(d.step.iteration_s(most)) * float(d.output_tokens)),
        ttft_wait_slo_s=float(p.ttft_slo_s),
        decode_wait_slo_s=float(p.ttft_slo_s),
    )
    counts = np.unique(np.linspace(1.0, max(total - 1.0, 1.0), COUNTS).round())
    start = whole.value.prefill_instances, whole.value.prefill_instances + whole.value.decode_instances
    return on_host(_courses(game, pools, counts, rate, *start))


@program
def _courses(
    game: Game, pools: TandemPools, counts: Real, rates: Real, start: Real, total: Real
) -> tuple[dict[str, Course], dict[str, Score]]:
    """Of planners that start with `start` of `total` workers; the price-driven one compares `counts` of prefill's."""
    worker = game.prefill_worker_gpus

    def cost(prefill: Real, of: Real, arrival_rps: Real) -> Real:
        there = at_rate(game, arrival_rps)
        used = there.replace(budget_gpus=of * worker)
        return used.cost(prefill * worker)

    def target(of: Real, arrival_rps: Real) -> Real:
        costs = jax.vmap(lambda n: cost(n, of, arrival_rps))(counts)
        alike = costs <= jnp.min(costs) + 1e-6
        middle = jnp.sum(jnp.where(alike, counts, 0.0)) / jnp.sum(jnp.where(alike, 1.0, 0.0))
        return jnp.round(middle)

    kinds = {
        "one at a time": planner(reactive(), delay=1),
        "best response": planner(best_response(cost)),
        "price-driven": planner(anarchy_driven(cost, target), step=total, grace=0.0),
        "SLA target": planner(sla_target(pools.prefill_rps, pools.decode_rps), step=total, grace=0.0),
    }
    runs = {name: run(kind, pools, rates, start, total) for name, kind in kinds.items()}
    return runs, {name: score(course, rates) for name, course in runs.items()}
