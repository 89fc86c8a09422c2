"""Parses quantities: durations to seconds, byte sizes to bytes, rates to bytes per second, shares to numbers up to 1.

Decimal units (kB, MB, GB = 10^3, 10^6, 10^9) and binary units (KiB, MiB, GiB) are distinct; bit rates are divided by
eight.
"""

from __future__ import annotations

import math
import re

_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_TEN_YEARS_SECONDS = 10 * 366 * 86400.0
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)\s*(/\s*s|ps)?\s*")


def duration_seconds(value: object) -> float:
    """Parse `80ms`, `10min`, `1h`; returns seconds. ValueError says what is accepted."""
    number, unit, per_second = _split(value)
    if unit not in _SECONDS or per_second:
        raise ValueError("a duration such as 80ms, 30s, 10min or 2h")
    seconds = number * _SECONDS[unit]
    if seconds > _TEN_YEARS_SECONDS:
        raise ValueError("a duration of at most ten years")
    return seconds


def bytes_per_second(value: object) -> float:
    """Parse `10 MB/s`, `1Gbit/s`; returns bytes per second."""
    number, unit, per_second = _split(value)
    size = _BYTES.get(unit) or _BITS.get(unit, math.inf) / 8
    rate = number * size
    if not per_second or not math.isfinite(rate):
        raise ValueError("a rate such as 10 MB/s, 500 kB/s or 1Gbit/s")
    return rate


def byte_size(value: object) -> float:
    """Parse `4 GiB`, `512 MiB`; returns bytes."""
    number, unit, per_second = _split(value)
    size = number * _BYTES.get(unit, math.inf)
    if per_second or not math.isfinite(size):
        raise ValueError("a size such as 4 GiB, 512 MiB or 8 GB")
    return size


def share(value: object) -> float:
    """Parse `70%` or `0.7`; returns a number above 0 and up to 1."""
    number, unit, per_second = _split(value)
    result = number / 100 if unit == "%" else number
    if per_second or unit not in {"", "%"} or not 0 < result <= 1:
        raise ValueError("a share such as 70% or 0.7")
    return result


def _split(value: object) -> tuple[float, str, bool]:
    found = _NUMBER.fullmatch(str(value)) if not isinstance(value, bool) else None
    if not found:
        return 0.0, "?", False
    # A small b is a bit to some people and a byte to others: neither is guessed.
    return float(found[1]), "?" if found[2].endswith("b") else found[2].lower(), bool(found[3])
