"""Games per second: dmodels in batches against quantecon's Lemke, nashopt, SciPy and cvxpy, one game at a time.

Families: the prefill/decode game (2 variables, nonlinear), the river basin (3, linear-quadratic), and random strongly
monotone linear-quadratic games of 20 and 50 players with 2 and 10 shared rows. Every peer solves the same games in the
same run; a peer whose answers are off by more than 1e-4 is left out. Rates are the best over rounds that run all peers
in turn, with calls of a few milliseconds each. Seconds are CPU-seconds, so that neither other work on the machine nor
our second thread in `affine_equilibria` decides; the peers have no batch form.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import root

from benchmarks.registry import Row, benchmark, interleaved
from dmodels.games.resource import Alone, Exponential, Game, Power, equilibrium
from dmodels.solvers import affine_equilibria, variational_equilibria

ONE_BY_ONE = 60  # games that a peer solves per round
NASHOPT = ("lemke", "lemke_dual", "qp_gnep", "dr_daqp")


def rates(cases: dict, quick: bool) -> dict[str, float]:
    """Games per CPU-second by name from {name: (games per call, call)}."""
    best = interleaved({name: run for name, (_, run) in cases.items()}, 2 if quick else 5, time.process_time)
    return {name: cases[name][0] / seconds for name, seconds in best.items()}


def lcp(m, q, a, b):
    """(matrix, offset) of the complementarity problem of F = M x + q, A x <= b, x >= 0."""
    rows = len(b)
    return np.block([[m, a.T], [-a, np.zeros((rows, rows))]]), np.concatenate([q, b])


def lemke(games):
    from quantecon.optimize import lcp_lemke

    return [lcp_lemke(*lcp(*game)).z[: len(game[1])] for game in games]


def natural_map(games):
    """SciPy's hybrid Powell method on the natural residual of the KKT conditions."""
    out = []
    for m, q, a, b in games:
        n = len(q)

        def residual(z, m=m, q=q, a=a, b=b, n=n):
            x, lam = z[:n], z[n:]
            return np.concatenate([np.minimum(x, m @ x + q + a.T @ lam), np.minimum(lam, b - a @ x)])

        out.append(root(residual, np.full(n + len(b), 1.0), method="lm").x[:n])
    return out


class Convex:
    """cvxpy: min of the symmetric part's quadratic; exact where M is symmetric (the river basin is). Compiled once."""

    def __init__(self, n, rows):
        import cvxpy as cp

        self.solver = cp.CLARABEL
        self.x, self.q, self.b = cp.Variable(n), cp.Parameter(n), cp.Parameter(rows)
        self.root, self.a = cp.Parameter((n, n)), cp.Parameter((rows, n))
        goal = 0.5 * cp.sum_squares(self.root @ self.x) + self.q @ self.x
        self.problem = cp.Problem(cp.Minimize(goal), [self.a @ self.x <= self.b, self.x >= 0])

    def __call__(self, games):
        out = []
        for m, q, a, b in games:
            self.root.value, self.q.value, self.a.value, self.b.value = np.linalg.cholesky(m).T, q, a, b
            self.problem.solve(solver=self.solver)
            out.append(self.x.value.copy())
        return out


def nashopt_games(games, solver):
    """Set up outside the clock: only `solve` is timed."""
    from nashopt import GNEP_LQ

    made = []
    for m, q, a, b in games:
        n = len(q)
        costs = []
        for i in range(n):
            cost = np.zeros((n, n))
            cost[i], cost[:, i] = m[i], m[i]
            costs.append(cost)
        offsets = [np.where(np.arange(n) == i, q, 0.0) for i in range(n)]
        made.append(
            GNEP_LQ(
                [1] * n, costs, offsets, lb=np.zeros(n), ub=np.full(n, 1e3), A=a, b=b, variational=True, solver=solver
            )
        )
    return made


def solve_all(made):
    return [np.asarray(game.solve().x) for game in made]


def river(count, seed=0):
    rng = np.random.default_rng(seed)
    cost = np.array([0.01, 0.05, 0.01]) * (1.0 + 0.2 * rng.random((count, 3)))
    m = np.full((count, 3, 3), 0.01)
    m[:, np.arange(3), np.arange(3)] = 2.0 * cost + 0.02
    return m, -np.array([2.9, 2.88, 2.85]), np.array([[3.25, 1.25, 4.125], [2.2915, 1.5625, 2.8125]]), np.full(2, 100.0)


def random_games(count, n=20, limits=2, seed=1):
    rng = np.random.default_rng(seed)
    spread, skew = rng.normal(size=(2, count, n, n))
    m = spread @ spread.transpose(0, 2, 1) / n + 0.1 * np.eye(n) + 0.3 * (skew - skew.transpose(0, 2, 1))
    return m, 2.0 * rng.normal(size=(count, n)), rng.uniform(0, 1, (count, limits, n)), np.full((count, limits), 3.0)


def _map(x, game):
    return game[0] @ x + game[1]


def _rows(x, game):
    return game[2] @ x - game[3]


def take(games, k):
    m, q, a, b = games
    return m[k], q if q.ndim == 1 else q[k], a if a.ndim == 2 else a[k], b if b.ndim == 1 else b[k]


def affine_family(name, games, batch, quick, extra=None, convex=False):
    """Rows of one linear-quadratic family."""
    few = [take(games, k) for k in range(ONE_BY_ONE)]
    answer = affine_equilibria(games[0], games[1], games[2:], (0, np.inf))
    assert answer.certificate["kkt_residual"].max() < 1e-9 and not answer.flags.any()
    cases = {"dmodels affine_equilibria": (batch, lambda: affine_equilibria(*games[:2], games[2:], (0, np.inf)))}
    cases |= extra or {}
    peers = {"quantecon lcp_lemke": lambda: lemke(few), "scipy root lm": lambda: natural_map(few)}
    if convex:
        compiled = Convex(len(few[0][1]), len(few[0][3]))
        peers["cvxpy clarabel"] = lambda: compiled(few)
    for solver in NASHOPT:
        try:
            made = nashopt_games(few, solver)
            solve_all(made[:1])
        except Exception as error:  # a solver that is not installed is named and left out
            print(f"nashopt {solver}: left out ({type(error).__name__}: {error})")
            continue
        peers[f"nashopt {solver}"] = lambda made=made: solve_all(made)
    errors = {}
    for peer, run in peers.items():
        errors[peer] = max(float(np.abs(x - answer.value.x[k]).max()) for k, x in enumerate(run()))
        if errors[peer] < 1e-4:
            cases[peer] = (ONE_BY_ONE, run)
        else:
            print(f"{name}: {peer} is off by {errors[peer]:.1e}: left out")
    return rows(name, rates(cases, quick), errors)


def rows(name, measured, errors):
    ours = max(rate for peer, rate in measured.items() if peer.startswith("dmodels"))
    return [
        {
            "family": name,
            "solver": peer,
            "games_per_cpu_s": rate,
            "ours_over_it": ours / rate,
            "off_by": errors.get(peer, 0.0),
        }
        for peer, rate in measured.items()
    ]


def split_family(batch, quick):
    """P/D games with analytic families; the closed form checks the first."""
    rng = np.random.default_rng(2)
    a, b, total = rng.uniform(0.05, 2, batch), rng.uniform(0.05, 2, batch), rng.uniform(2, 64, batch)
    exponential = Game(Exponential(a), Alone(Exponential(b)), total)
    mixed = Game(Power(10 * a, 1 + b), Alone(Power(5 * b)), total)
    exact = np.clip((b * total + np.log(a / b)) / (a + b), 0, total)
    error = float(np.abs(equilibrium(exponential).value.prefill_gpus - exact).max())
    cases = {
        "dmodels equilibrium, exponential": (batch, lambda: equilibrium(exponential)),
        "dmodels equilibrium, power": (batch, lambda: equilibrium(mixed)),
    }
    return rows("prefill/decode (2)", rates(cases, quick), {"dmodels equilibrium, exponential": error})


@benchmark("quantecon", "nashopt", "clarabel", "scipy")
def variational_peers(quick: bool) -> Iterator[Row]:
    """Games per CPU-second in batches, beside complementarity, root-finding and convex solvers, one game at a time."""
    import jax.numpy as jnp

    count = 100 if quick else 5_000
    basin = river(count)
    e, limits = np.array([2.9, 2.88, 2.85]), (basin[2], basin[3])
    costs = [lambda x, p, i=i: (p["a"][i] * x[i] + 0.01 * jnp.sum(x) - e[i]) * x[i] for i in range(3)]
    params = {"a": 0.5 * (basin[0][:, np.arange(3), np.arange(3)] - 0.02)}
    solve = lambda: variational_equilibria(costs, limits, (0, np.inf), params=params, samples=0)
    extra = {"dmodels variational_equilibria (any costs)": (count, solve)}
    yield from affine_family("river basin (3)", basin, count, quick, extra, convex=True)
    for n, limits, most in ((20, 2, count), (20, 10, count), (50, 2, count // 4)):
        some = most // 5 + 60
        games = random_games(some, n, limits)
        bounds = np.zeros(n), np.full(n, np.inf)
        general = lambda games=games, bounds=bounds: variational_equilibria(
            _map, _rows, bounds, params=games, samples=0
        )
        name = f"linear-quadratic ({n})" + (f", {limits} shared rows" if limits != 2 else "")
        yield from affine_family(
            name, games, some, quick, {"dmodels variational_equilibria (any costs)": (some, general)}
        )
    yield from split_family(20 * count, quick)
