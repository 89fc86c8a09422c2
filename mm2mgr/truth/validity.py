"""Compares a value with Kafka's definition of its key: a few words on the fault, "" for a valid value. Pure."""

from __future__ import annotations

import re
from functools import cache

from mm2mgr.truth.keys import Key, load

_RANGE = re.compile(r"\[(?P<low>[^,\]]+),\.\.\.(?:,(?P<high>[^\]]+))?\](?P<unset> or -1)?")
_WIDTH = {"short": 16, "int": 32, "long": 64}


def is_checked(key: Key) -> bool:
    """Tell whether values of this key are checked; secrets, names and classes are not."""
    return key.type in ("boolean", "double", *_WIDTH) or (key.type in ("string", "list") and bool(key.valid))


@cache
def fault(scope: str, name: str, version: str, value: str) -> str:
    """Return the problem of a value of a checked key; the same few values come back in thousands of connectors."""
    key = load().find(scope, name, version)
    return problem(key, value) if key else ""


def problem(key: Key, value: str) -> str:
    """Return the fault of a value, in words that follow `is`."""
    text = value.strip()
    if text.lower() == (key.default or "").lower() != "":  # Kafka writes some of its own defaults in other letters
        return ""
    if key.type == "boolean":
        return "" if text.lower() in ("true", "false") else "neither true nor false"
    if key.type in ("short", "int", "long", "double"):
        return _number_problem(key, text)
    if key.type == "list":
        return next(
            (wrong for item in _items(text) if (wrong := _choice_problem(key, item))), _empty_problem(key, text)
        )
    return _choice_problem(key, text) if key.type == "string" else ""


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _empty_problem(key: Key, text: str) -> str:
    return "empty, which this key must not be" if not text and "not empty" in key.valid else ""


def _choice_problem(key: Key, text: str) -> str:
    forms = tuple(choice.partition(":")[0] + ":" for choice in key.choices if ":" in choice)
    allowed = [choice.lower() if key.any_case else choice for choice in key.choices]
    if allowed and (text.lower() if key.any_case else text) not in allowed:
        return "" if forms and text.startswith(forms) else "none of the values it can have"
    return _empty_problem(key, text)


def _number_problem(key: Key, text: str) -> str:
    if key.default is None and not key.required and text == "":
        return ""
    number = _float(text) if key.type == "double" else _whole(text, _WIDTH[key.type])
    if number is None:
        return f"no number of type {key.type}"
    found = _RANGE.search(key.valid)
    if not found or (found["unset"] and number == -1):
        return ""
    if number < float(found["low"]):
        return f"less than {found['low']}"
    return f"more than {found['high']}" if found["high"] and number > float(found["high"]) else ""


def _whole(text: str, bits: int) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def _float(text: str) -> float | None:
    try:
        return float(text.rstrip("dDfF"))
    except ValueError:
        return None
