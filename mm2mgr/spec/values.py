"""The values of the declaration as annotated types: names, addresses, patterns, quantities, client settings with checked keys.

A ValueError says what to write instead.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from mm2mgr.spec import keys
from mm2mgr.spec.scalars import byte_size, bytes_per_second, check_pattern, duration_seconds, share
from mm2mgr.text import nearest


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
            plain = f"write the plain Kafka key, without the prefix {prefix!r}"
            raise ValueError(f"{plain}, under {block}; mm2mgr adds the prefixes")
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


ConfigValue = Annotated[
    str,
    BeforeValidator(_config_value),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "Kafka value"}),
]
_OneOrMany = BeforeValidator(_one_or_many, json_schema_input_type=str | list[str])
NameList = Annotated[list[str], _OneOrMany, Field(min_length=1)]
Addresses = Annotated[
    list[Annotated[str, Field(pattern=r"^(\$\{.+\}|\[?[A-Za-z0-9._:-]+\]?:[0-9]{1,5})$")]],
    _OneOrMany,
    Field(min_length=1),
]
Url = Annotated[str, Field(pattern=r"^https?://[^\s@]+$"), AfterValidator(_url)]
Urls = Annotated[list[Url], _OneOrMany, Field(min_length=1)]
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
