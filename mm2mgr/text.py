"""Small parts of messages: text from outside made safe to show, counts, rates and times with units, shortened lists,
the nearest name.

Text from outside is shown as characters only: no terminal or browser obeys it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

# Drawn as nothing, or as a blank, although Unicode counts them as letters or marks (Default_Ignorable_Code_Point).
_INVISIBLE = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})

# Letters first, so that it is no number, and no word that YAML reads as something else.
_PLAIN_IN_YAML = re.compile(r"(?!(?i:true|false|yes|no|on|off|y|n|null)\Z)[A-Za-z][\w./>-]*(?::[\w./>-]+)*", re.ASCII)


# Jetty 12 (Kafka 4) answers 400 to %2F, %5C and %25; `.` and `..` are path segments; POST trims white space.
_UNADDRESSABLE = re.compile(r"[/\\%]|^\.{0,2}\Z|^\s|\s\Z")


def is_addressable(connector: str) -> bool:
    """Tell whether every Connect version can be asked about a connector of this name."""
    return _UNADDRESSABLE.search(connector) is None


def visible(text: str) -> str:
    """Return the text on one line, with everything that is not drawn in its place written as an escape such as \\x1b.

    These are control and format characters (bidi, zero-width), line breaks, blanks other than the space, lone
    surrogates, letters written from right to left, which reorder the digits and signs beside them, and marks that
    follow no letter.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 2  # as many marks may follow a letter; at the start they would change what comes before the text
    for char in text:
        if char.isascii() and char.isprintable():
            shown.append(char)
            marks = 0 if char.isalnum() else 2
        elif unicodedata.category(char)[0] == "M" and char not in _INVISIBLE:
            shown.append(char if marks < 2 and not _selects(char) else _escape(char))
            marks += 1
        else:
            hidden = not char.isprintable() or char in _INVISIBLE
            is_reordered = unicodedata.bidirectional(char) in _RIGHT_TO_LEFT
            shown.append(_escape(char) if hidden or is_reordered else char)
            marks = 0 if char.isalnum() else 2
    return "".join(shown)


def one_line(text: str) -> str:
    """Return a message of several lines as one, for a sentence or a cell."""
    return " ".join(map(str.strip, text.splitlines()))


def cells(text: str) -> int:
    """Return how many columns of a terminal a line takes; rather one too many than one too few."""
    return len(text) if text.isascii() else sum(map(cells_of, text))


def cells_of(character: str) -> int:
    """Return the columns that one character takes: none for marks, two for wide letters and pictures."""
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if character >= "\U0001f000" or unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _selects(mark: str) -> bool:
    return mark in "\u034f\u180b\u180c\u180d\u180f" or "\ufe00" <= mark <= "\ufe0f" or mark >= "\U000e0100"


def _escape(character: str) -> str:
    return _SHORT.get(character) or character.encode("unicode_escape", "surrogatepass").decode("ascii")


def fit_text(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that was cut ends with …."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: 1 task, 4 tasks."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def whole_number(text: str, most_digits: int = 19) -> int | None:
    """Return a number that is written in decimal digits; None for any other text, and where there are more of them.

    Python refuses to read thousands of digits (ValueError); 19 are those of the largest long of Java.
    """
    return int(text) if text.isdecimal() and len(text) <= most_digits else None


def first_few(lines: Sequence[str], rest: str, most: int = 3) -> list[str]:
    """Return the first of many lines, and how many there are of the `rest`."""
    return [*lines[:most], *([f"{len(lines) - most} {rest}"] if len(lines) > most else [])]


def in_yaml(text: str) -> str:
    """Return a text as a value in YAML, in quotes where YAML would read something else without them."""
    return text if _PLAIN_IN_YAML.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def few(names: Sequence[str], shown: int = 3, between: str = ", ") -> str:
    """Return the first names, and how many more there are: a, b, c and 4 more."""
    more = len(names) - shown
    return between.join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def without_cluster(message: str, name: str) -> str:
    """Return a message without the cluster that it begins with, for a sentence that names it already."""
    for start in (f"Connect cluster '{name}': ", f"Kafka cluster '{name}': ", f"{name}: "):
        message = message.removeprefix(start)
    return message


def nearest(name: str, known_names: Iterable[str], cutoff: float = 0.6, count: int = 1) -> list[str]:
    """Return the known names most like a misspelt one, best first; none below the cutoff."""
    from difflib import get_close_matches  # a command without a misspelt name does without it

    spelt = {name.lower(): name for name in known_names}  # a name in other letters is the nearest of all
    return [spelt[match] for match in get_close_matches(name.lower(), list(spelt), count, cutoff)]


_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_NAMES_SHOWN = 5


def rate_text(bytes_per_second: float) -> str:
    """Write a rate in decimal units (kB = 10³, MB = 10⁶) with three digits, such as 26.6 MB/s."""
    digits, prefix = _decimal(bytes_per_second)
    return f"{digits} {prefix}B/s"


def count_text(count: float) -> str:
    """Write a number in decimal units (k = 10³, M = 10⁶) with three digits, such as 12.3 k."""
    return " ".join(filter(None, _decimal(count)))


def records_rate_text(records_per_second: float) -> str:
    """Write records per second in decimal units with three digits, such as 12.3 k records/s."""
    return f"{count_text(records_per_second)} records/s"


def bytes_text(size_bytes: float) -> str:
    """Write an amount of data in decimal units (kB = 10³, MB = 10⁶) with three digits, such as 314 MB."""
    return rate_text(size_bytes).removesuffix("/s")


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


def list_names(names: Sequence[str]) -> str:
    """Join names with commas; after five, say how many more there are."""
    return few(names, _NAMES_SHOWN)


def _decimal(value: float) -> tuple[str, str]:
    """Return the digits of a number and its prefix; beyond the largest one as a power of ten, so that no text is
    long."""
    if value >= 999.5e18:
        return f"{value:.0e}", ""
    size, prefix = next((unit for unit in _PREFIXES if value >= 0.9995 * unit[0]), (1.0, ""))
    return _three_digits(value / size), prefix


def _three_digits(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
