"""Numbers of fewer bits than Python's, as the shortest decimal that is stored as the same number."""

from __future__ import annotations

import math
import struct


def shortest_float(value: float, bits: int) -> float:
    """The number that a person wrote who stored it in so many bits: 0.1, and not 0.10000000149011612.

    Whole numbers below 1e16 stay as they are, such as counts. Python writes larger ones with an exponent: 3.4e38.

    bits: 16, 32 or 64 (`value` itself).
    """
    if bits >= 64 or not math.isfinite(value) or (value.is_integer() and abs(value) < 1e16):
        return value
    form = "<f" if bits == 32 else "<e"
    stored = struct.pack(form, value)
    for digits in range(3 if bits == 16 else 6, 10):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.pack(form, short) == stored:
                return short
        except OverflowError:  # rounded up beyond the largest
            continue
    return value
