"""Power, joules per token and money; the paper's Table 6."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dmodels.models import energy as en


def test_table_6():
    """Printed 0.243, 0.201 and 0.175 J/token; 28.0 % is from the rounded values, 27.8 % from the watts."""
    joules = np.asarray(en.joules_per_token(jnp.array([1315.0, 1410.0, 1720.0]), jnp.array([5422.0, 7009.0, 9820.0])))
    np.testing.assert_array_equal(joules.round(3), [0.243, 0.201, 0.175])
    assert round(100 * float(en.saved_frac(0.175, 0.243)), 1) == 28.0
    assert round(100 * float(en.saved_frac(joules[2], joules[0])), 1) == 27.8
    assert round(100 * (1720 / 1315 - 1)) == 31
