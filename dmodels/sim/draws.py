"""Random numbers of any count from programs of few sizes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from dmodels.core.numerics import power_of_two
from dmodels.core.records import Floats

#: From here on counts are filled up to its multiples: twice as many draws would take longer than compiling.
_MOST = 1 << 16


def sample(law: Callable[..., jax.Array], key: jax.Array, count: int, *parameters: float) -> Floats:
    """`count` independent numbers of a law of `jax.random`, on the host.

    A draw depends on the key and its place, not on how many there are; every count by itself would be compiled for,
    which takes a second for gamma.
    """
    size = min(power_of_two(count), _MOST)
    return np.asarray(law(key, *parameters, (-(-count // size) * size,), float))[:count]
