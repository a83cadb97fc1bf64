"""Amounts in USD: exact sums, and their text."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal

NOTHING = Decimal(0)
LARGEST = Decimal(10) ** 9
"""No price and no cost has so many USD: sums of what is below it are exact."""
_PLACES = Decimal(1).scaleb(-15)
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""The digits of the application's own context may be fewer."""
_TWO_DIGITS = Context(prec=2, rounding=ROUND_HALF_EVEN)
_CENT = Decimal("0.01")
_SMALL = Decimal("0.0001")


def exact(amount: Decimal) -> Decimal:
    """The amount to 15 decimal places: equal ones have the same text."""
    return Decimal(usd_text(_EXACT.quantize(amount, _PLACES)))


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Their exact sum, in whatever order they come."""
    found = NOTHING
    for amount in amounts:
        found = _EXACT.add(found, amount)
    return found


def of_tokens(*priced: tuple[int, Decimal]) -> Decimal:
    """The cost in USD of pairs of a count of tokens and a price in USD per million tokens."""
    found = NOTHING
    for count, price in priced:
        found = _EXACT.fma(count, price, found)
    return _EXACT.scaleb(found, -6)


def usd_text(amount: Decimal) -> str:
    """All its digits, without an exponent and without zeros at the end."""
    text = format(amount, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def shown_usd(amount: Decimal) -> str:
    """As people read it: cents from a dollar on; four places below; two digits below a cent."""
    if amount == 0:
        return "$0"
    if amount < _CENT:
        return f"${usd_text(_TWO_DIGITS.plus(amount))}"
    return f"${_EXACT.quantize(amount, _CENT if amount >= 1 else _SMALL):,f}"
