"""Whether a number is what a paper prints."""

from decimal import ROUND_HALF_UP, Decimal


def rounds_to(number: float, printed: str) -> bool:
    """True if `number` rounds to the printed text at the printed precision (2.9E+2 is a printed "about 290")."""
    shown = Decimal(printed)
    return Decimal(repr(number)).quantize(Decimal((0, (1,), shown.as_tuple().exponent)), ROUND_HALF_UP) == shown
