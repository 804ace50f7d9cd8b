"""Routing as a game: what selfish, greedy or cache-affine routing costs against the best assignment.

Requests come in groups with the same prefix, prefix g cached on worker g mod m. Latency of n requests on a worker is
a n + b + d/(saturation - n)^beta; a miss costs omega. Prints the price of anarchy and of stability as certified
intervals over all pure equilibria, and what simple policies cost. Give a, b, d, saturation once or per worker: 5ms,8ms.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Json


def command(
    requests: Annotated[int, typer.Option(help="concurrent requests")] = 64,
    workers: Annotated[int, typer.Option(help="workers")] = 2,
    prefixes: Annotated[int, typer.Option(help="prefix groups of equal size")] = 5,
    a: Annotated[str, typer.Option("--a", help="latency per request on the worker")] = "5 ms",
    b: Annotated[str, typer.Option("--b", help="latency of an idle worker")] = "20 ms",
    d: Annotated[str, typer.Option("--d", help="scale of the pole")] = "10 ms",
    saturation: Annotated[str, typer.Option(help="requests at the pole")] = "64",
    beta: Annotated[float, typer.Option(help="order of the pole")] = 2.0,
    omega: Annotated[str, typer.Option(help="what a whole miss costs")] = "15 ms",
    tau: Annotated[float, typer.Option(help="temperature of the dynamo policy, in units of the cost range")] = 0.0,
    runs: Annotated[int, typer.Option(help="random draws per policy")] = 200,
    seed: Annotated[int, typer.Option(help="of the random draws")] = 0,
    json: Json = False,
    show_python: Annotated[bool, typer.Option("--show-python", help="print the library call")] = False,
) -> int:
    """Parse, solve, show."""
    import numpy as np

    from dmodels.core.errors import InputError

    from .options import quantity
    from .render import as_json, print_table

    def per_worker(name: str, text: str, read) -> list[float]:
        values = [read(part) for part in text.split(",")]
        if len(values) not in (1, workers):
            raise InputError(f"--{name} has {len(values)} values; accepted are 1 or {workers}, one per worker")
        return [float(v) for v in np.broadcast_to(values, workers)]

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"--saturation {text!r}: accepted are numbers of requests") from None

    for name, value in (("requests", requests), ("workers", workers), ("prefixes", prefixes), ("runs", runs)):
        if value < 1:
            raise InputError(f"--{name} {value}: accepted are whole numbers from 1")
    seconds = lambda name: lambda text: quantity(name, text, "s")
    a_s, b_s, d_s = (per_worker(n, v, seconds(n)) for n, v in (("a", a), ("b", b), ("d", d)))
    n_sat, omega_s = per_worker("saturation", saturation, number), quantity("omega", omega, "s")
    if show_python:
        print(f"""import numpy as np
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve

curve = LatencyCurve({a_s}, {b_s}, {d_s}, {n_sat}, {[beta] * workers})
overlap = np.eye({workers})[np.arange({prefixes}) % {workers}]
counts = np.bincount(np.arange({requests}) % {prefixes}, minlength={prefixes})
price_of_anarchy(RoutingGame(curve, overlap, {omega_s}, counts))""")
        return 0

    from dmodels.core.flags import describe, usable
    from dmodels.games.anarchy import price_of_anarchy
    from dmodels.games.routing import POLICIES, RoutingGame, policy_flows, sums
    from dmodels.models.latency import LatencyCurve

    counts = np.bincount(np.arange(requests) % prefixes, minlength=prefixes)
    overlap = np.eye(workers)[np.arange(prefixes) % workers]
    game = RoutingGame(LatencyCurve(a_s, b_s, d_s, n_sat, [beta] * workers), overlap, omega_s, counts)
    price = price_of_anarchy(game)
    a = game.arrays()
    rng, least = np.random.default_rng(seed), float(price.optimum_s)
    costs = {name: sums(a, policy_flows(game, name, rng, runs, tau=tau))[0] for name in POLICIES}
    ratio = {name: cost / least if np.isfinite(least) else cost * np.nan for name, cost in costs.items()}
    if json:
        inputs = {
            "requests": requests,
            "workers": workers,
            "prefixes": prefixes,
            "a_s": a_s,
            "b_s": b_s,
            "d_s": d_s,
            "n_sat": n_sat,
            "beta": beta,
            "omega_s": omega_s,
            "tau": tau,
            "runs": runs,
            "seed": seed,
        }
        result = {name: getattr(price, name) for name in price._fields if name != "flags"}
        result |= {
            "flags": describe(int(price.flags)),
            "policies": {
                name: {"mean_s": cost.mean() / requests, "worst_s": cost.max() / requests, "ratio": ratio[name].mean()}
                for name, cost in costs.items()
            },
        }
        print(as_json("route", inputs, result))
        return 0 if usable(int(price.flags)) else 1
    rows = [
        ["worst equilibrium", float(price.worst_s) / requests, float(price.lower), float(price.upper)],
        [
            "best equilibrium",
            float(price.best_s) / requests,
            float(price.stability_lower),
            float(price.stability_upper),
        ],
        ["optimum", least / requests, 1.0, 1.0],
    ]
    rows += [[name, cost.mean() / requests, ratio[name].mean(), ratio[name].max()] for name, cost in costs.items()]
    print_table(
        f"{requests} requests, {prefixes} prefixes, {workers} workers: {describe(int(price.flags))}",
        ["", "mean cost [s]", "over optimum, from (mean)", "to (worst)"],
        rows,
    )
    return 0 if usable(int(price.flags)) else 1
