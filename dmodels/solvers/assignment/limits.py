"""What rounding in float64 may do to a matching's proof; plain Python, which the compiled loops take in, too."""

from __future__ import annotations

#: A duality gap above this share of the sum of the magnitudes in the balance is no proof of optimality.
GAP_RTOL = 1e-9


def exact_below(size: int) -> float:
    """Whole costs below this keep every intermediate sum below 2**53, for duals are sums of n + m costs at most."""
    return doubtful(size)[0]


def doubtful(size: int) -> tuple[float, float]:
    """The least dual (`exact_below`) and the largest with which sums of whole costs may have been rounded."""
    return 2.0**53 / (2 * (size + 1)), 2.0**54 * (size + 1)
