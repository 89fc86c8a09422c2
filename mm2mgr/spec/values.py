"""The values of the declaration as annotated types: names, addresses, patterns, quantities, client settings with checked keys.

A ValueError says what to write instead.
"""

from __future__ import annotations

import math
import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from mm2mgr.spec import keys
from mm2mgr.spec.patterns import check_pattern
from mm2mgr.text import nearest

# Decimal units (kB, MB, GB = 10^3, 10^6, 10^9) and binary units (KiB, MiB, GiB) are distinct; bit rates are divided by eight.
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_TEN_YEARS_SECONDS = 10 * 366 * 86400.0
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)\s*(/\s*s|ps)?\s*")


def _config_value(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _one_or_many(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _label_values(value: object) -> object:
    return value if isinstance(value, list) else [str(value)]


def _patterns(value: object) -> object:
    # A comma inside braces belongs to the expression; check_pattern says what to do about it.
    return [value] if isinstance(value, str) and re.search(r"\{[^}]*,", value) else _one_or_many(value)


def _plain_key(key: str) -> str:
    if not re.fullmatch(r"[\w.$-]+", key):
        raise ValueError("a Kafka key of letters, digits and . - _ $ only")
    return key


def _security_key(key: str) -> str:
    if key == "protocol":
        return "security.protocol"
    if key not in keys.SECURITY_KEYS:
        near = nearest(key, keys.SECURITY_KEYS)
        raise ValueError(f"not a security setting of a Kafka client{f'; did you mean {near[0]!r}?' if near else ''}")
    return key


def _security_as_written(values: object) -> object:
    """Check keys before spellings are unified; null removes a default, which happens when layers are merged."""
    if not isinstance(values, dict):
        return values
    if {"protocol", "security.protocol"} <= values.keys():
        raise ValueError("'protocol' and 'security.protocol' are the same key: write only one")
    for key in [key for key, value in values.items() if value is None]:
        try:
            _security_key(key)
        except ValueError as error:
            raise ValueError(f"{key!r} is {error}") from error
    return {key: value for key, value in values.items() if value is not None}


def _security(values: dict[str, str]) -> dict[str, str]:
    protocol = values.get("security.protocol", "PLAINTEXT")
    if protocol not in keys.PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(keys.PROTOCOLS)}")
    return values


def _client_key(key: str) -> str:
    _plain_key(key)
    for prefix, block in keys.PREFIX_BLOCKS.items():
        if key.startswith(prefix):
            raise ValueError(
                f"write the plain Kafka key, without the prefix {prefix!r}, under {block}; mm2mgr adds the prefixes"
            )
    if key == "bootstrap.servers":
        raise ValueError("addresses belong to the cluster: use bootstrap_servers under clusters:")
    return key


def _connector_key(key: str) -> str:
    _plain_key(key)
    if key in keys.OWNED_CONNECTOR_KEYS:
        raise ValueError(f"mm2mgr writes this key itself: {keys.OWNED_CONNECTOR_KEYS[key]}")
    for prefix, block in keys.PREFIX_BLOCKS.items():
        if key.startswith(prefix) and key not in keys.CONNECTOR_KEYS_LIKE_PREFIXES:
            raise ValueError(f"write {key.removeprefix(prefix)!r} under {block}; mm2mgr adds the prefixes")
    if key.startswith("mm2mgr."):
        raise ValueError("keys that start with 'mm2mgr.' mark ownership; mm2mgr writes them")
    return key


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
        if value.partition("://")[2].startswith("["):
            usable = usable and bool(ip_address(str(parts.hostname).partition("%")[0]))
        else:
            str(parts.hostname).encode("idna")
    except ValueError:  # UnicodeError too
        usable = False
    if not usable or not value.isprintable():
        raise ValueError(
            "a URL such as https://connect-1:8083, with a host, a port from 1 to 65535, no query and no user"
        )
    return value


def flag(value: object) -> object:
    """Read `true` and `false` as the short form of `{enabled: …}`."""
    return {"enabled": value} if isinstance(value, bool) else value


# --- quantities -------------------------------------------------------------------------------------------------------


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


# --- the types --------------------------------------------------------------------------------------------------------

ConfigValue = Annotated[
    str,
    BeforeValidator(_config_value),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "Kafka value"}),
]
NameList = Annotated[
    list[str], BeforeValidator(_one_or_many, json_schema_input_type=str | list[str]), Field(min_length=1)
]
Addresses = Annotated[
    list[Annotated[str, Field(pattern=r"^(\$\{.+\}|\[?[A-Za-z0-9._:-]+\]?:[0-9]{1,5})$")]],
    BeforeValidator(_one_or_many, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Url = Annotated[str, Field(pattern=r"^https?://[^\s@]+$"), AfterValidator(_url)]
Urls = Annotated[
    list[Url],
    BeforeValidator(_one_or_many, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
_SecurityValue = Annotated[ConfigValue, WithJsonSchema({"type": ["string", "number", "boolean", "null"]})]
Security = Annotated[
    dict[Annotated[str, AfterValidator(_security_key)], _SecurityValue],
    BeforeValidator(_security_as_written, json_schema_input_type=dict[str, _SecurityValue]),
    AfterValidator(_security),
]
ClientSettings = dict[Annotated[str, AfterValidator(_client_key)], ConfigValue | None]
ConnectorSettings = dict[Annotated[str, AfterValidator(_connector_key)], ConfigValue | None]
Patterns = Annotated[
    list[Annotated[str, AfterValidator(check_pattern)]],
    BeforeValidator(_patterns, json_schema_input_type=str | list[str]),
]
Labels = Annotated[
    dict[str, Annotated[list[str], BeforeValidator(_label_values, json_schema_input_type=str | list[str])]],
    Field(min_length=1),  # no label at all would select every cluster
]
Selector = Annotated[NameList | Labels, Field(union_mode="left_to_right")]
TimeSpan = Annotated[
    float, BeforeValidator(duration_seconds), WithJsonSchema({"type": "string", "examples": ["80ms", "10min"]})
]
ByteRate = Annotated[
    float, BeforeValidator(bytes_per_second), WithJsonSchema({"type": "string", "examples": ["10 MB/s"]})
]
ByteSize = Annotated[
    float, BeforeValidator(byte_size), WithJsonSchema({"type": "string", "examples": ["4 GiB", "512 MiB"]})
]
Share = Annotated[
    float, BeforeValidator(share), WithJsonSchema({"type": ["string", "number"], "examples": ["70%", 0.7]})
]
TaskCount = Annotated[int, Field(ge=1, le=2**31 - 1)]  # Connect reads tasks.max as a Java int
PairName = Annotated[str, Field(pattern=r"^\S+->\S+$")]
