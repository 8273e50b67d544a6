"""Short forms of floats with fewer bits than Python's: the shortest decimal that is stored as the same number."""

from __future__ import annotations

import math
import struct


def shortest_float(value: float, bits: int) -> float:
    """Return the shortest decimal that is stored as this number with `bits` bits: 0.1, and not 0.10000000149011612.

    Whole numbers below 1e16, such as counts, do not change. Python writes larger ones with an exponent: 3.4e38.

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
        except OverflowError:  # rounded up beyond the largest float
            continue
    return value
