r"""Smoothness against a placement that is known: a ceiling on what the equilibria in a box of load vectors can cost.

In an equilibrium nobody gains by moving to his place in a placement x (the optimum, or a cheap equilibrium), so

$$SC = \sum_i C_i \le \sum_j T_j(n_j), \qquad T_j(n) = \sum_g x_{gj} \min(f_j(n+1) + c_{gj},\, \text{most}_g)$$

with $\text{most}_g$ what a request of group g can pay at most. Hence for every $s \ge 1$

$$SC \le \max_{n \in \text{box},\, \sum n_j = N} \sum_j \big[s\,T_j(n_j) - (s-1)\, n_j f_j(n_j)\big]
- (s-1)\,c_{\min},$$

and the maximum over the upper concave hulls of the terms is found greedily, exactly. s = 1/(1 - mu) of Roughgarden's
(lambda, mu)-smoothness (J. ACM 62 (2015) 32, Definition 2.1), for the game at hand instead of its class: lambda's
part is what x costs, and the constraint that loads sum to N enters as well. The inequality only adds up deviations to
fixed places, so over the whole range of loads, without `most`, it holds in expectation for every coarse correlated
equilibrium.
"""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def _concave_steps(value, first, last, steps):
    """Slopes of the upper concave hull of value[first..last], one per unit of load, into steps[first..last-1]."""
    corner = np.empty(last - first + 1, np.int64)
    top = 0
    corner[0] = first
    for n in range(first + 1, last + 1):
        while top > 0:
            a, b = corner[top - 1], corner[top]
            if (value[b] - value[a]) * (n - b) <= (value[n] - value[b]) * (b - a):
                top -= 1
            else:
                break
        top += 1
        corner[top] = n
    for k in range(top):
        slope = (value[corner[k + 1]] - value[corner[k]]) / (corner[k + 1] - corner[k])
        for n in range(corner[k], corner[k + 1]):
            steps[n] = slope


@kernel
def smooth_ceiling(f, c, x, box, ceilings, s):
    """The bound above for loads in `box` = (lo, hi); inf where a term is infinite. `ceilings` as of `cost_ceilings`."""
    lo, hi = box
    most, private_low = ceilings
    groups, workers = c.shape
    limit = f.shape[1]
    total, widest, left = 0, 0, 0
    for g in range(groups):
        for j in range(workers):
            total += x[g, j]
    left = total
    for j in range(workers):
        widest = max(widest, hi[j])
        left -= lo[j]
    steps = np.zeros((workers, widest))
    value = np.zeros(widest + 1)
    bound = -(s - 1.0) * private_low
    for j in range(workers):
        for n in range(lo[j], hi[j] + 1):
            here = f[j, n - 1] if n > 0 else 0.0
            newcomer = max(here, f[j, min(n, limit - 1)])
            value[n] = -(s - 1.0) * n * here if s > 1.0 else 0.0
            for g in range(groups):
                if x[g, j] > 0:
                    value[n] += s * x[g, j] * min(newcomer + c[g, j], most[g])
            if not np.isfinite(value[n]):
                return np.inf
        bound += value[lo[j]]
        _concave_steps(value, lo[j], hi[j], steps[j])
    n = lo.copy()
    while left > 0:
        pick = -1
        for j in range(workers):
            if n[j] < hi[j] and (pick < 0 or steps[j, n[j]] > steps[pick, n[pick]]):
                pick = j
        if pick < 0:
            break
        bound += steps[pick, n[pick]]
        n[pick] += 1
        left -= 1
    return bound


@kernel(tiered=True)
def cost_ceilings(f, c, q, lo, hi, arc, reach):
    """(what a request of each group can pay at most in a tightened box, the least sum of private costs)."""
    groups, workers = c.shape
    most = np.full(groups, -np.inf)
    private_low = 0.0
    for g in range(groups):
        least = np.inf
        for j in range(workers):
            if arc[g, j]:
                highest = 0.0
                for n in range(max(lo[j], 1), hi[j] + 1):
                    highest = max(highest, f[j, n - 1])
                most[g] = max(most[g], min(highest, reach[g, j]) + c[g, j])
                least = min(least, c[g, j])
        private_low += q[g] * least
    return most, private_low
