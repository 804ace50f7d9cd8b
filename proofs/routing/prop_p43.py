r"""POA-4.3. "The transition from stable to rapidly growing PoA is detectable via the second derivative of aggregate
latency with respect to load".

$f'' = \beta(\beta+1)d/(c-n)^{\beta+2}$ (1), and with all workers used and a = b = 0 the common latency is $D^\beta /
s^\beta$, s the free capacity and $D = \sum_j d_j^{1/\beta}$: the alarm at curvature theta rings at $s^* =
(\beta(\beta+1)D^\beta/\theta)^{1/(\beta+2)}$ (2). **Verdict: refuted** as a detector of anarchy. Identical workers:
curvature without bound, price 1 (3). Pigou's pair: the price peaks at r = 1, where the slope of latency *falls* from 1
to 0, and the curvature is never positive (4). It is no "hardware-agnostic" signal either: theta has units of seconds
per request squared.

**What the authors could answer.** That the second derivative "signals the onset of saturation", which is what a
controller needs. As such it works, and (2) says at which slack it rings. The sentence is about "rapidly growing PoA",
and there is none: where the curvature explodes the price is 1 (3), and where the price peaks the curvature is not
positive (4). The verdict stands; an alarm on curvature means add capacity, not reroute.
"""

import numpy as np
import sympy as sp

from dmodels.control.regime import alarm_slack, curvature
from dmodels.games.anarchy import price_of_anarchy
from dmodels.games.routing import RoutingGame
from dmodels.models.latency import LatencyCurve
from proofs.claim import PRICE_OF_ANARCHY, Claim, Verdict

CLAIM = Claim(
    id="POA-4.3",
    source=PRICE_OF_ANARCHY,
    where="Proposition 4(3)",
    says="the growth of the price of anarchy is detected by the second derivative of latency in load",
    verdict=Verdict.REFUTED,
    counterexample="Two workers, latencies x and 1: the price of anarchy peaks at load 1, where latency stops rising.",
    means="Curvature tells that a pole is near, which is reason to add capacity; it does not tell that routing is bad.",
    minimal="least: one worker has price 1 at every load, so two are needed",
)


def test_the_curvature_of_the_curve():  # 1
    n, a, b, c, d, beta = sp.symbols("n a b c d beta", positive=True)
    second = sp.diff(a * n + b + d / (c - n) ** beta, n, 2)
    assert sp.simplify(second - beta * (beta + 1) * d / (c - n) ** (beta + 2)) == 0


def test_the_alarm_rings_at_the_stated_slack():  # 2
    s, beta, scale, theta = sp.symbols("s beta D theta", positive=True)
    second = sp.diff(scale**beta / s**beta, s, 2)  # in load: d/d(load) = -d/ds, twice
    at = (beta * (beta + 1) * scale**beta / theta) ** (1 / (beta + 2))
    assert sp.simplify(second * s ** (beta + 2) - beta * (beta + 1) * scale**beta) == 0  # so theta at s = at:
    assert sp.simplify(at ** (beta + 2) - beta * (beta + 1) * scale**beta / theta) == 0
    d, c, slack = np.array([0.2, 0.7]), 7.0, float(alarm_slack(0.5, np.sum(np.sqrt([0.2, 0.7])), 2.0))
    loads = c - slack + np.array([-1e-3, 0.0, 1e-3])
    latency = np.sum(np.sqrt(d)) ** 2 / (c - loads) ** 2
    assert abs(float(curvature(loads, latency)) - 0.5) < 1e-4


def test_identical_workers_have_curvature_without_anarchy():  # 3
    curve = LatencyCurve(*(np.full(2, v) for v in (0.0, 0.0, 1.0, 20.0, 1.0)))
    for n in (4, 20, 38):
        assert abs(float(price_of_anarchy(RoutingGame(curve, np.zeros((1, 2)), 0.0, [float(n)])).upper) - 1) < 1e-12
    f = lambda x: 1 / (20 - sp.Integer(x))
    curvatures = [f(x + 1) - 2 * f(x) + f(x - 1) for x in (2, 10, 18)]
    assert curvatures[2] > 100 * curvatures[1] > 500 * curvatures[0]


def test_pigou_peaks_where_latency_bends_down():  # 4: Wardrop latency min(r, 1); the optimum sends 1/2 to the first
    r = sp.symbols("r", positive=True)
    best = sp.Rational(1, 4) + (r - sp.Rational(1, 2))
    below, above = r * r / best, r / best  # for 1/2 <= r <= 1 and r >= 1
    assert sp.factor(sp.diff(below, r)).subs(r, sp.Rational(3, 4)) > 0 > sp.diff(above, r).subs(r, sp.Rational(5, 4))
    assert below.subs(r, 1) == above.subs(r, 1) == sp.Rational(4, 3)
    latency = lambda x: min(sp.Rational(x), sp.Integer(1))
    assert latency("1.1") - 2 * latency(1) + latency("0.9") == sp.Rational(-1, 10)
