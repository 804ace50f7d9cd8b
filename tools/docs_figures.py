"""Draw the figures of the guide's explanation pages from runs, into docs/img.

    python tools/docs_figures.py [NAME ...]

Each function draws one figure; without names all are drawn, which takes a few minutes (the simulations).
`latency` reads the residuals that `python -m tools.make_calibration` leaves in benchmarks/results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from dmodels import SLO, Workload, catalog, kv_bytes
from dmodels.core.records import float64
from dmodels.report import style
from dmodels.report.naming import Group, name_groups, name_lines, note

OUT = Path(__file__).resolve().parents[1] / "docs" / "img"
GIB = 2.0**30
FIGURES: dict[str, Callable] = {}


def picture(draw: Callable) -> Callable:
    """Register a function that draws on axes under its name."""
    FIGURES[draw.__name__] = float64(draw)
    return FIGURES[draw.__name__]


@picture
def memory(axes) -> None:
    """KV cache of one sequence on each of 8 GPUs, against its length."""
    tokens = np.geomspace(256.0, 131072.0, 200)
    ends = []
    for i, name in enumerate(("llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3", "gemma-3-27b")):
        gib = np.asarray(kv_bytes(catalog.model(name), tokens, 8)) / GIB
        axes.plot(tokens, gib)
        ends.append((gib[-1], name, i))
    axes.set(xscale="log", yscale="log", xlabel="sequence [token]", ylabel="KV cache per GPU, tp 8 [GiB]")
    axes.set_xlim(tokens[0], tokens[-1])
    name_lines(axes, ends)


@picture
def latency(axes) -> None:
    """Shares of held-out rows by absolute error: what the accuracy benchmark wrote, for all four protocols."""
    import json

    path = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "accuracy.jsonl"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = {row["protocol"]: row for row in found if row.get("use") == "plan"}
    names = {
        "random": "random rows",
        "pair": "an architecture on a GPU",
        "architecture": "a whole architecture",
        "gpu": "a whole GPU type",
    }
    at = np.arange(len(names))
    for k, metric in enumerate(("tpot", "ttft")):
        median, high = (np.array([100 * rows[p][metric][s] for p in names]) for s in ("median", "p90"))
        bars = axes.barh(at + 0.2 - 0.4 * k, median, 0.36)
        axes.annotate(
            metric.upper(),
            (high[-1], at[-1] + 0.2 - 0.4 * k),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=style.SMALL,
            color=style.writing(k),
        )
        axes.hlines(at + 0.2 - 0.4 * k, median, high, color=bars[0].get_facecolor(), linewidth=1.5)
    axes.set_yticks(at, [f"held out:\n{text}" for text in names.values()])
    axes.set(xlabel="absolute error on held-out rows: bar to the median, line to P90 [%]", xlim=(0, None))


@picture
def queueing(axes) -> None:
    """Closed forms of P99 as lines, simulated ones with 95 % intervals as points."""
    from dmodels.studies.plan import plan, question, verify

    rates = (1.0, 2.0, 3.0, 4.0, 5.0, 5.5)
    shown = {"TTFT": "TTFT P99", "TPOT": "TPOT P99", "E2E": "E2E P99"}
    rows: dict[str, list] = {name: [] for name in shown}
    for rate in rates:
        answer = plan(
            question(
                "llama-3.1-70b",
                ["h100_sxm"],
                catalog.workload("azure-conv", rate).replace(arrival_cv=np.float64(1.0)),
                SLO(20.0, 1.0),
                tp=(4,),
                split=False,
                thresholds_tokens=(),
            )
        )
        for row in verify(answer).replays[0].promises:
            rows[row.metric].append(row)
    ends = []
    for k, (name, label) in enumerate(shown.items()):
        axes.plot(rates, [1e3 * r.predicted_s for r in rows[name]])
        ends.append((1e3 * rows[name][-1].predicted_s, label, k))
        value = 1e3 * np.array([[r.measured_s, r.low_s, r.high_s] for r in rows[name]]).T
        axes.errorbar(
            rates,
            value[0],
            np.abs(value[1:] - value[0]),
            fmt=style.MARKERS[k],
            color=style.COLOURS[k],
            capsize=2,
            markersize=4,
        )
    axes.set(yscale="log", xlabel="rate to one instance [req/s]", ylabel="latency [ms]")
    style.plain(axes.yaxis)
    note(axes, "lines: closed forms; points: simulated, 95 % interval")
    name_lines(axes, ends)


@picture
def pooling(axes) -> None:
    """Saved instances against the threshold, for the token-budget paper's traffic."""
    from dmodels.studies.pools import pool_study

    found = pool_study(catalog.workload("azure-paper"), 2.0 ** np.arange(9, 16))
    shares = {
        "published\nformula, Eq. (7)": found.savings.ideal_frac,
        "exact: by work": found.law_frac,
        "if memory is paged": found.paged_frac,
    }
    for share in shares.values():
        axes.plot(found.threshold_tokens, 100 * np.asarray(share), marker=".")
    axes.set(xscale="log", xlabel="threshold [token]", ylabel="instances saved [%]")
    style.plain(axes.xaxis)
    name_lines(axes, [(100 * float(share[-1]), name, i) for i, (name, share) in enumerate(shares.items())])


@picture
def split(axes) -> None:
    """Two violation rates along a budget of 40 GPUs, with the equilibrium."""
    from dmodels.games.resource import Alone, Exponential, Game, equilibrium

    game = Game(Exponential(0.10), Alone(Exponential(0.25)), budget_gpus=40.0)
    x = np.linspace(0.0, 40.0, 400)
    ttft, itl = np.exp(-0.10 * x), np.exp(-0.25 * (40.0 - x))
    groups = []
    for i, (values, name) in enumerate(((ttft, "TTFT missed"), (itl, "ITL missed"), (ttft + itl, "together"))):
        axes.plot(x, 100 * values)
        groups.append(Group(x, 100 * values, name, i, line=True))
    at = float(equilibrium(game).value.prefill_gpus)
    axes.axvline(at, color=style.SOFT, linewidth=1, linestyle="--")
    axes.annotate(
        f"equal marginals at {at:.2f}",
        (at, 60),
        (-6, 0),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL,
        color=style.INK,
    )
    axes.set(xlabel="prefill, of 40 [GPU]", ylabel="requests [%]", ylim=(0, 110))
    name_groups(axes, groups)


@picture
def routing(axes) -> None:
    """Exact price of anarchy of two equal workers against load, and its bound in closed form."""
    from dmodels.games.anarchy import identical_workers_price, price_of_anarchy
    from dmodels.games.routing import RoutingGame

    counts = np.arange(2, 41, 2)
    curve = 0.020 + 0.005 * np.arange(1, 41)
    omega = 0.004
    found = []
    for n in counts:
        overlap = np.zeros((n, 2))
        overlap[np.arange(n), np.arange(n) % 2] = 1.0
        found.append(price_of_anarchy(RoutingGame(np.tile(curve, (2, 1)), overlap, omega)))
    axes.plot(counts, [float(np.max(p.upper)) for p in found], "o", markersize=4)
    bound = [identical_workers_price(float(curve[n // 2 - 1]), omega) for n in counts]
    axes.plot(counts, bound)
    axes.set(xlabel="requests on two workers", ylabel="price of anarchy [1]", ylim=(0.99, None))
    note(axes, "points: exact, worst equilibrium")
    name_groups(axes, [Group(counts, bound, "1 + omega / f(N/m)", 1, line=True)])


@picture
def placement(axes) -> None:
    """Share of prompt tokens found in a shared cache of a given size: the Mooncake trace replayed."""
    from dmodels.catalog.workloads import prefix_cache_sizes

    sizes = prefix_cache_sizes("mooncake")
    blocks, *_ = (name for name in sizes if "block" in name)
    hits, *_ = (name for name in sizes if name != blocks)
    finite = np.isfinite(sizes[blocks]) & (sizes[blocks] > 0)
    axes.plot(sizes[blocks][finite], 100 * sizes[hits][finite], marker="o")
    most = 100 * sizes[hits][~np.isfinite(sizes[blocks])].max()
    axes.axhline(most, linestyle="--", color=style.SOFT)
    axes.annotate(
        "unlimited",
        (sizes[blocks][finite].min(), most),
        (0, -4),
        textcoords="offset points",
        va="top",
        fontsize=style.SMALL,
        color=style.SOFT,
    )
    axes.set(xscale="log", xlabel="cache size [blocks of 512 tokens]", ylabel="prompt tokens found [%]", ylim=(0, None))
    style.plain(axes.xaxis)
    name_groups(axes, [Group(sizes[blocks][finite], 100 * sizes[hits][finite], "least recently used leaves", 0, True)])


@picture
def transfer(axes) -> None:
    """Transfer's share of TTFT over a 100 Gbit/s path, at once and layer by layer, against context."""
    from dmodels.models.transfer import kv_cache_bytes, pipelined_transfer_s, transfer_time_s

    tokens = np.geomspace(512.0, 131072.0, 100)
    bytes_ = np.asarray(kv_cache_bytes(catalog.model("llama-3.1-70b"), tokens))
    prefill = 0.05 + 68e-6 * tokens
    ends = []
    for i, (rate, name) in enumerate(((12.5e9, "100 Gbit/s"), (50e9, "400 Gbit/s"))):
        whole = _share(np.asarray(transfer_time_s(bytes_, rate)), prefill)
        layered = _share(np.asarray(pipelined_transfer_s(bytes_, rate, prefill, 80.0)), prefill)
        axes.plot(tokens, whole, color=style.colour(i))
        axes.plot(tokens, layered, "--", color=style.colour(i))
        ends += [(whole[-1], f"{name},\nafter prefill", i), (layered[-1], f"{name},\nlayer by layer", i)]
    axes.set(xscale="log", xlabel="prompt [token]", ylabel="transfer's share of TTFT [%]", ylim=(-1, None))
    axes.set_xlim(tokens[0], tokens[-1])
    style.plain(axes.xaxis)
    name_lines(axes, ends)


def _share(transfer_s, prefill_s):
    return 100 * transfer_s / (transfer_s + prefill_s)


@picture
def phasor(axes) -> None:
    """P99 of the wait for prefill on 8 unequal workers, under three dispatch rules, in a replay of one stream."""
    draws = np.random.default_rng(1)
    flop = draws.lognormal(np.log(20e12), 1.0, 20_000)
    speed = np.repeat([60e12, 120e12], 4)
    loads = np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.9])
    gaps = draws.exponential(1.0, flop.size)
    rules = {"freeness after dispatch": "free", "fewest queued": "count", "round robin": "turn"}
    ends = []
    for i, (label, rule) in enumerate(rules.items()):
        waits = [
            1e3 * np.quantile(_waits(np.cumsum(gaps) * flop.mean() / speed.sum() / load, flop, speed, rule), 0.99)
            for load in loads
        ]
        axes.plot(loads, waits, marker=style.marker(i))
        ends.append((waits[-1], label, i))
    axes.set(yscale="log", xlabel="load of the pool [1]", ylabel="P99 of wait plus prefill [ms]")
    style.plain(axes.yaxis)
    name_lines(axes, ends)


def _waits(arrival, flop, speed, rule):
    free_at = np.zeros(speed.size)
    ends = [[] for _ in speed]
    out = np.empty(arrival.size)
    for i, (now, work) in enumerate(zip(arrival, flop, strict=True)):
        backlog = np.maximum(free_at - now, 0.0)
        if rule == "free":
            j = int(np.argmin(backlog + work / speed))
        elif rule == "count":
            for k in range(speed.size):
                ends[k] = [e for e in ends[k] if e > now]
            j = int(np.argmin([len(e) for e in ends]))
        else:
            j = i % speed.size
        free_at[j] = now + backlog[j] + work / speed[j]
        ends[j].append(free_at[j])
        out[i] = free_at[j] - now
    return out


@picture
def token_budget(axes) -> None:
    """Under-estimated prompts on a stream whose bytes per token drift down: the padding and the quantile."""
    from dmodels.control import token_budget as tb

    draws = np.random.default_rng(3)
    count, window = 40_000, 2_000
    drift = 4.0 - 1.5 * np.clip((np.arange(count) - count // 3) / (count // 3), 0.0, 1.0)
    ratio = drift * draws.lognormal(0.0, 0.12, count)
    tokens = np.ceil(draws.lognormal(6.5, 0.8, count))
    bytes_ = np.maximum(np.floor(tokens * ratio), 1.0)
    ends = []
    for i, (name, params) in enumerate(
        (
            ("average less\n1 mean error", tb.settings()),
            ("tracked\n1 % quantile", tb.settings(gamma=0.0, miss_frac=0.01)),
        )
    ):

        def step(state, x, params=params):
            used = tb.conservative_ratio(state, params)[0]
            return tb.update(state, 0, x[0], x[1], params), x[0] / x[1] < used

        _, missed = jax.lax.scan(step, tb.init(1, params), (bytes_, tokens))
        share = np.asarray(missed, float).reshape(-1, window).mean(axis=1)
        axes.plot(np.arange(1, share.size + 1) * window, 100 * share, marker=".")
        ends.append((100 * share[-1], name, i))
    axes.set(xlabel="responses seen", ylabel="prompts under-estimated [%]", ylim=(0, None))
    name_lines(axes, ends)


@picture
def simulator(axes) -> None:
    """Mean waits of M/M/1 and M/D/1 simulated in 32 runs, with 4 standard errors, on the exact curves."""
    from dmodels.models.latency import StepLaw
    from dmodels.models.queueing import wait_mean_s
    from dmodels.sim.batching import simulate

    loads = np.array([0.3, 0.5, 0.7, 0.8, 0.9])
    fine = np.linspace(0.2, 0.93, 100)
    draws = np.random.default_rng(5)
    ends = []
    for k, (name, scv) in enumerate((("M/D/1", 0.0), ("M/M/1", 1.0))):
        exact = np.asarray(wait_mean_s(fine, 1.0, service_scv=scv))
        axes.plot(fine, exact)
        ends.append((exact[-1], name, k))
        points = []
        for load in loads:
            runs = []
            for _ in range(32):
                gap = draws.exponential(1.0 / load, 8_000)
                steps = np.full(8_000, 1000.0) if scv == 0 else np.maximum(draws.geometric(1e-3, 8_000), 1.0)
                served = simulate(np.cumsum(gap), np.ones(8_000), steps, StepLaw(0.0, 1e-3), slots=1, emits=True)
                runs.append(served.wait_s[2_000:].mean())
            points.append((np.mean(runs), 4 * np.std(runs, ddof=1) / 32**0.5))
        mean, error = np.array(points).T
        axes.errorbar(loads, mean, error, fmt=style.MARKERS[k], color=style.COLOURS[k], capsize=2, markersize=4)
    axes.set(xlabel="load [1]", ylabel="mean wait [service times]", yscale="log", xlim=(fine[0], fine[-1]))
    style.plain(axes.yaxis)
    note(axes, "lines: exact; points: simulated, 4 standard errors")
    name_lines(axes, ends)


@picture
def plan_search(axes) -> None:
    """All one-pool designs for one trace, and the front of cost against TTFT."""
    from dmodels.report import plan_figures
    from dmodels.studies.plan import plan, question

    chat: Workload = catalog.workload("azure-conv", 200.0)
    plan_figures.cost_front(plan(question("llama-3.1-70b", ["h100_sxm", "h200_sxm"], chat, SLO(2.0, 0.08))), axes)


def main() -> None:
    """Draw what is asked for."""
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or FIGURES:
        axes = style.panel(6.4, 3.6)
        FIGURES[name](axes)
        axes.figure.savefig(OUT / f"{name}.png", dpi=110, facecolor="white")
        print(OUT / f"{name}.png")


if __name__ == "__main__":
    main()
