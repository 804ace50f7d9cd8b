"""The prefill/decode game as data: the budget, both violation rates, and a division of it with what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp

from dmodels.core.records import Real, Record, quantity
from dmodels.solvers.functions import check_shape


class Game(Record):
    """Two violation rates and a budget. Leaves broadcast: a game with leaves of shape (n,) is n games.

    prefill(prefill_gpus) and decode(decode_gpus, prefill_gpus) are records with parameters as leaves (games.violation,
    games.queueing), or plain functions without parameters.
    """

    prefill: Callable[..., Real]
    decode: Callable[..., Real]
    budget_gpus: Real = quantity()
    prefill_weight: Real = quantity(1.0)  # cost of one TTFT violation, in any unit common to both
    decode_weight: Real = quantity(1.0)
    prefill_worker_gpus: Real = quantity(1.0)  # GPUs of one worker, for whole-worker splits
    decode_worker_gpus: Real = quantity(1.0)

    @property
    def convex(self) -> bool:
        """The families themselves prove uniqueness: both convex, and no cross term in decode's marginal."""
        return bool(getattr(self.prefill, "convex", False) and getattr(self.decode, "convex", False))

    @property
    def convex_cost(self) -> bool:
        """The families themselves prove that the social cost is convex along the budget."""
        return bool(getattr(self.prefill, "convex", False) and getattr(self.decode, "convex_in_both", False))

    def ttft(self, x: Real) -> Real:
        """Weighted TTFT violation rate with x prefill GPUs."""
        return self.prefill_weight * self.prefill(x)

    def itl(self, x: Real) -> Real:
        """Weighted ITL violation rate with x prefill GPUs and the rest for decode."""
        return self.decode_weight * self.decode(self.budget_gpus - x, x)

    def cost(self, x: Real) -> Real:
        """Social cost: both weighted violation rates."""
        return self.ttft(x) + self.itl(x)

    @eqx.filter_jit
    def marginals(self, x: Real) -> tuple[Real, Real]:
        """(what one more GPU saves prefill, what one more GPU saves decode), each in its owner's own variable."""
        x = jnp.asarray(x, float)
        saved_prefill = -jax.grad(self.ttft)(x)
        own = jax.grad(lambda d: self.decode_weight * self.decode(d, x))
        return saved_prefill, -own(self.budget_gpus - x)

    def difference(self, x: Real) -> Real:
        """g(x): decode's marginal saving less prefill's; negative where prefill should have more."""
        prefill, decode = self.marginals(x)
        return decode - prefill

    def balance(self, x: Real) -> Real:
        """Same sign and zeros as g, better behaved: the logarithm of the ratio of the two savings.

        For exponential families it is linear in x, whatever the orders of magnitude of the savings.
        """
        return balance_of(*self.marginals(x))


def balance_of(prefill: Real, decode: Real) -> Real:
    """log(decode / prefill) where both savings are positive, else 1000 (decode - prefill) / (|decode| + |prefill|)."""
    both = (prefill > 1e-280) & (decode > 1e-280)
    ratio = jnp.log(jnp.where(both, decode, 1.0)) - jnp.log(jnp.where(both, prefill, 1.0))
    # To the order of 1 first: the derivative of a quotient squares its divisor, which underflows below 1e-154.
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(prefill), jnp.abs(decode)))
    size = jnp.where(size > 0, size, 1.0)
    prefill, decode = prefill / size, decode / size
    total = jnp.abs(prefill) + jnp.abs(decode)
    share = 1e3 * (decode - prefill) / jnp.where(total > 0, total, 1.0)
    return jnp.where(both, ratio, share)


class Split(Record):
    """A division of the budget and what it costs."""

    prefill_gpus: Real = quantity()
    decode_gpus: Real = quantity()
    ttft_violation_frac: Real = quantity()
    itl_violation_frac: Real = quantity()
    cost: Real = quantity()  # weighted sum of the two
    multiplier: Real = quantity()  # what one more GPU in the budget saves its receiver


@contextmanager
def mistakes_named(game: Game) -> Iterator[None]:
    """Where solving fails because of what the caller's violation rates are, an `InputError` that names the rate."""
    try:
        yield
    except Exception:  # whatever a caller's function raises; what is no mistake of a rate goes on below
        arrays, rest = eqx.partition(game, eqx.is_array_like)
        one = eqx.combine(jax.tree.map(lambda leaf: jnp.ones(()), arrays), rest)
        gpus = jnp.ones(())
        check_shape("prefill", one.prefill, "a violation rate, one number for one number of GPUs", (), gpus)
        wanted = "a violation rate, one number for (decode GPUs, prefill GPUs)"
        check_shape("decode", one.decode, wanted, (), gpus, gpus)
        raise
