"""Numbers in sentences: rates, sizes and durations with a unit, counts with a noun, shortened lists."""

from __future__ import annotations

from collections.abc import Sequence

from mm2mgr.text import few

_UNITS = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_NAMES_SHOWN = 5


def rate_text(bytes_per_second: float) -> str:
    """Write a rate in decimal units (kB = 10³, MB = 10⁶) with three digits, such as 26.6 MB/s."""
    for size, unit in _UNITS:
        if bytes_per_second >= 0.9995 * size:
            return f"{_three_digits(bytes_per_second / size)} {unit}"
    return f"{_three_digits(bytes_per_second)} B/s"


def size_text(size_bytes: float) -> str:
    """Write a size in binary units with three digits, such as 1.38 GiB: Java's memory is given in these."""
    for size, unit in ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if size_bytes >= 0.9995 * size:
            return f"{_three_digits(size_bytes / size)} {unit}"
    return f"{size_bytes:.0f} B"


def span_text(seconds: float) -> str:
    """Write a length of time in the unit that fits, such as 40 min or 2.5 h."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s"


def listed(names: Sequence[str]) -> str:
    """Join names with commas; after five, say how many more there are."""
    return few(names, _NAMES_SHOWN)


def _three_digits(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
