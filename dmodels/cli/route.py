"""Routing as a game: what selfish, greedy or cache-affine routing costs against the best assignment.

Requests come in groups with the same prefix, prefix g cached on worker g mod m. Latency of n requests on a worker is
a n + b + d/(saturation - n)^beta; a miss costs omega. Prints the price of anarchy and of stability as certified
intervals over all pure equilibria, and what simple policies cost. Give a, b, d, saturation once or per worker: 5ms,8ms.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from . import render
from .calls import Code, call
from .command import Form, asks
from .schema import Degree, Positive, Table, Wait, flag, several

Times = Annotated[list[Wait], BeforeValidator(several), Field(min_length=1)]
Counts = Annotated[list[Positive], BeforeValidator(several), Field(min_length=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RouteAsked(Table):
    """A routing game, and how often its random policies are drawn."""

    requests: Degree = flag(64, "concurrent requests")
    workers: Annotated[int, Field(ge=1, le=10_000)] = flag(2, "workers")  # parameters are listed worker by worker
    prefixes: Degree = flag(5, "prefix groups of equal size")
    a_s: Times = flag("5 ms", "latency per request on the worker", "--a")
    b_s: Times = flag("20 ms", "latency of an idle worker", "--b")
    d_s: Times = flag("10 ms", "scale of the pole", "--d")
    n_sat: Counts = flag("64", "requests at the pole", "--saturation")
    beta: Positive = flag(2.0, "order of the pole")
    omega_s: Wait = flag("15 ms", "what a whole miss costs", "--omega")
    tau: NotNegative = flag(0.0, "temperature of the dynamo policy, in units of the cost range")
    runs: Degree = flag(200, "random draws per policy")
    seed: Annotated[int, Field(ge=0)] = flag(0, "of the random draws")

    @model_validator(mode="after")
    def _per_worker(self):
        for name, flag_name in (("a_s", "a"), ("b_s", "b"), ("d_s", "d"), ("n_sat", "saturation")):
            values = getattr(self, name)
            if len(values) not in (1, self.workers):
                accepted = f"accepted are 1 or {self.workers}, one per worker"
                raise ValueError(f"--{flag_name} has {len(values)} values; {accepted}")
            setattr(self, name, values * self.workers if len(values) == 1 else values)
        return self

    def call(self) -> Code:
        """The library call."""
        law = self.a_s, self.b_s, self.d_s, self.n_sat, [self.beta] * self.workers
        curve = call("dmodels.models.latency:LatencyCurve", *law)
        game = "dmodels.studies.router_costs:grouped_game"
        return call(
            "dmodels.studies.router_costs:router_costs",
            call(game, self.requests, self.prefixes, curve, self.omega_s, label="game"),
            runs=self.runs,
            seed=self.seed,
            tau=self.tau,
        )


@asks(RouteAsked)
def command(asked: RouteAsked, form: Form) -> int:
    return form.give(
        asked.call(), lambda found: asked.model_dump(), _result, lambda found: _show(asked, found), feasible=_feasible
    )


def _feasible(found: Any) -> bool:
    from dmodels.core.flags import Flag, usable

    return usable(int(found.price.flags) & ~int(Flag.NOT_CONVERGED))  # a search that was cut short ends in an interval


def _result(found: Any) -> dict[str, Any]:
    from dmodels.core.flags import describe

    policies = {
        name: {"mean_s": c.mean_s, "worst_s": c.worst_s, "ratio": c.ratio} for name, c in found.policies.items()
    }
    return found.price._asdict() | {"flags": describe(int(found.price.flags)), "policies": policies}


def _show(asked: RouteAsked, found: Any) -> None:
    from dmodels.core.flags import Flag, describe

    price = found.price
    worst, best, least = (float(cost) / asked.requests for cost in (price.worst_s, price.best_s, price.optimum_s))
    rows = [
        ["worst equilibrium", worst, float(price.lower), float(price.upper)],
        ["best equilibrium", best, float(price.stability_lower), float(price.stability_upper)],
        ["optimum", least, 1.0, 1.0],
    ]
    rows += [[name, cost.mean_s, cost.ratio, cost.worst_ratio] for name, cost in found.policies.items()]
    told = describe(int(price.flags) & ~int(Flag.NOT_CONVERGED))
    title = f"{asked.requests} requests, {asked.prefixes} prefixes, {asked.workers} workers: {told}"
    render.show([(title, ["", "mean cost [s]", "over optimum, from (mean)", "to (worst)"], rows)])
    if int(price.flags) & int(Flag.NOT_CONVERGED):
        dear, cheap = (f"{float(found):.4g} times" for found in (price.lower, price.stability_upper))
        most, least = (f"{float(bound):.4g} times" for bound in (price.upper, price.stability_lower))
        told = (
            f"The dearest that was found costs {dear} the optimum, and none costs more than {most}; the cheapest costs"
        )
        render.say([f"The search for equilibria was cut short. {told} {cheap}, and none costs less than {least}."])
