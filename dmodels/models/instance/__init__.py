r"""One instance under open load, in steady state: occupancy, TTFT and TPOT percentiles, in closed form.

An instance runs forward steps. With n requests decoding, a step takes $t_0(n)$, and each prompt that enters makes
steps longer by $K(n)$ (its share of what a step with prompts takes more: `latency.mixed`). At x requests a second

$$\bar t = \frac{t_0(n)}{1 - x K(n)}, \qquad n = x\,E[G]\,\bar t,$$

(Little's law, $G = O - 1$ steps after the prompt's own, which emits the first token; the token-budget paper's fluid
$n^* = Wx/(1 - Hx)$ is the case $t_0 = W + Hn$, $K = 0$). About this fluid the number in flight swings as a birth-death
chain with departures $n/(E[G]\,\bar t(n))$: with the inertia $a = 1 - d\log t_0/d\log n$ its mean is $n + (1 - a)/a$
and its variance $n/a$ (NEW-20). With prompts, an arrival also holds up the answers under way, so that it counts as
$1/(1 - xK)$: of M/G/inf's variance the arrivals make a share $\kappa = E[\min(G_1, G_2)]/E[G]$, so the variance is $v =
1 - \kappa + \kappa (1 - xK)^{-2}$ times as much, and the mean $n + v (1 - a)/a$. A request waits for a slot (with the
chain's chance, from its potential between n and N, what memory and the batch limit allow; while all are taken who
leaves makes room for a prompt, so that $1/(1 - xK)$ times as long) and for the prompts ahead of its own (in steps that
they share: `queueing.sharing`; where they fill the token budget: `queueing.packing`), then runs its own steps.
Assumptions: Poisson arrivals at the instance, first come first served, waits with exponential tails. `dmodels.sim`
measures the error of these formulas.

The records and step times come first (`records`, `ladder`, `roofline`), then the parts of a steady state (`batch`,
`prompts`, `slots`, `tokens`), last the state itself (`steady`).
"""

from __future__ import annotations

from .ladder import StepTable, step_table
from .records import Engine, Operating
from .roofline import Roofline
from .steady import operate

__all__ = ["Engine", "Operating", "Roofline", "StepTable", "operate", "step_table"]
