"""How numbers look in a report, the same in both its forms."""

from __future__ import annotations

import math

from concept_audit.reporting.document import Number

__all__ = ["interval_text", "number_text", "signed_text"]

_MINUS = "\N{MINUS SIGN}"
_MISSING = "\N{EN DASH}"


def number_text(value: float) -> str:
    """Three decimals; small values in scientific form; a dash for none.

    >>> number_text(0.30051), number_text(0.00042), number_text(12345.6), number_text(0.0)
    ('0.301', '4.2e-04', '12346', '0.000')
    """
    if math.isnan(value):
        return _MISSING
    size = abs(value)
    if size == 0 or 0.0005 <= size < 1000:
        text = f"{value:.3f}"
    elif size >= 1000:
        text = f"{value:.0f}"
    elif size < 1e-9:
        text = "0.000"  # rounding noise of an exact zero
    else:
        text = f"{value:.1e}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", _MINUS, value < 0)


def signed_text(value: float) -> str:
    """A difference with its sign, three decimals throughout.

    >>> signed_text(0.004), signed_text(0.0001)
    ('+0.004', '0.000')
    """
    text = number_text(0.0 if abs(value) < 0.0005 else value)
    return f"+{text}" if value >= 0.0005 else text


def interval_text(number: Number) -> str:
    """The interval in brackets, empty if there is none."""
    if not number.has_interval:
        return ""
    return f"[{number_text(number.low)}, {number_text(number.high)}]"
