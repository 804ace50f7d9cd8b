r"""What a fleet is sized for beyond the rate and the prediction: growth, lost instances, and the model's error.

The measured step time is the predicted one times a factor whose 80 % interval the calibration states. A plan with
confidence c is sized for the factor that is exceeded with probability 1 - c: 1 at one half, the upper end h of the
interval at 0.9, and $h^{z(c) / z(0.9)}$ with normal scores z elsewhere (a log-normal upper half). TTFT has a factor of
its own; both are taken to err together, as they do where a whole engine is slower than predicted, and so are all pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from dmodels.core.errors import check_number
from dmodels.core.flags import Flag
from dmodels.models.instance import Engine

from .calibration import Confidence
from .designs import Cells
from .evaluate import Smallest, fewest_instances, sweep_instances

#: The greatest confidence that can be asked for; beyond 0.9 the interval is extrapolated.
MOST_SURE = 0.975
#: Confidences at which a fleet is looked at.
LEVELS = np.linspace(0.5, MOST_SURE, 20)


class Margins(NamedTuple):
    """What a plan keeps in hand."""

    headroom_frac: float = 0.0  # growth of the rate at which every SLO still holds
    spare_count: int = 0  # instances that each pool may lose and keep its SLOs
    confidence: float = 0.5  # probability, under the model's error, that the SLOs hold

    @property
    def any(self) -> bool:
        """Whether anything is kept in hand."""
        return self != Margins()

    @property
    def words(self) -> str:
        """The same for a reader."""
        said = [f"a headroom of {self.headroom_frac:.0%}"] if self.headroom_frac else []
        said += (
            [f"{self.spare_count} spare instance{'s' * (self.spare_count > 1)} per pool"] if self.spare_count else []
        )
        said += [f"a confidence of {self.confidence:.4g}"] if self.confidence > 0.5 else []
        return " and ".join(", ".join(said).rsplit(", ", 1))


class Strain(NamedTuple):
    """How much slower than predicted things are, per cell."""

    slowdown: np.ndarray  # factor on step times
    ttft: np.ndarray  # what TTFT is slower still


def check(margins: Margins) -> None:
    """Margins that mean nothing are an `InputError`."""
    check_number("headroom", margins.headroom_frac, 0, 10, "shares of the rate from 0 to 10, like 0.2")
    check_number("spare", margins.spare_count, 0, 1000, "whole numbers from 0 to 1000", whole=True)
    check_number("confidence", margins.confidence, 0.5, MOST_SURE, f"probabilities from 0.5 to {MOST_SURE}")


def factor(confidence: float, high: np.ndarray) -> np.ndarray:
    """The factor on a prediction that is exceeded with probability 1 - `confidence`; `high` is that of 0.9.

    >>> factor(0.5, np.array([1.3])), factor(0.9, np.array([1.3])), factor(0.975, np.array([1.3])).round(3)
    (array([1.]), array([1.3]), array([1.494]))
    """
    return np.asarray(np.maximum(high, 1.0) ** (norm.ppf(confidence) / norm.ppf(0.9)))


def strain(confidence: float, each: Sequence[Confidence]) -> Strain:
    """How slow things are at a confidence, one entry for each."""
    steps, ttft = factor(confidence, np.array([(x.tpot[1], x.ttft[1]) for x in each])).T
    return Strain(steps, np.maximum(ttft / steps, 1.0))


def fewest(cells: Cells, rate_rps: float, engine: Engine, margins: Margins, at: Strain) -> Smallest:
    """The smallest pools that keep their SLOs with these margins, with things as slow as `at`."""
    found = fewest_instances(_strict(cells, at), _grown(rate_rps, margins), engine, at.slowdown)
    return found._replace(instances=found.instances + margins.spare_count)


def flags(
    cells: Cells, instances: np.ndarray, rate_rps: float, engine: Engine, margins: Margins, at: Strain
) -> np.ndarray:
    """What pools of `instances` (cells, r) break with these margins; 0: nothing."""
    left = instances - margins.spare_count
    counts = np.maximum(left, 0.5)
    found = sweep_instances(_strict(cells, at), counts, _grown(rate_rps, margins), engine, at.slowdown).flags
    return np.where(left > 0, found, Flag.OVERLOAD)


def _strict(cells: Cells, at: Strain) -> Cells:
    """With the TTFT that has to be predicted, where the measured one is so much slower."""
    return cells._replace(slo=cells.slo.replace(ttft_s=cells.slo.ttft_s / np.asarray(at.ttft)[..., None]))


def _grown(rate_rps: float, margins: Margins) -> float:
    return rate_rps * (1.0 + margins.headroom_frac)
