"""The values of the declaration as annotated types: names, addresses, patterns, quantities, client settings with
checked scalars.

A ValueError says what to write instead.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from mm2mgr.off_peak import OffPeak
from mm2mgr.spec import scalars
from mm2mgr.spec.scalars import (
    byte_size,
    bytes_per_second,
    check_address,
    check_headers,
    check_pattern,
    check_proxy,
    check_url,
    duration_seconds,
    price,
    share,
    timeout_seconds,
)
from mm2mgr.text import is_addressable, nearest

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_LANE = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
_LABEL = r"^[A-Za-z_][A-Za-z0-9_]*$"
_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
_PARTITION = r"^[A-Za-z0-9._-]{1,249}-[0-9]{1,9}$"
_CLUSTER_ID = r"^[A-Za-z0-9_-]{1,100}$"
_VERSION = r"^\d+\.\d+"
_SEPARATOR = r"^[A-Za-z0-9._-]+$"
_CURRENCY = r"^[A-Za-z]{1,16}$"
_PAIR = r"^\S+->\S+$"
FLOW_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*:[A-Za-z0-9][A-Za-z0-9._-]*->[A-Za-z0-9][A-Za-z0-9._-]*$"
_MOVED_TO = r"^([A-Za-z0-9][A-Za-z0-9._-]*:)?[A-Za-z0-9][A-Za-z0-9._-]*->[A-Za-z0-9][A-Za-z0-9._-]*$"
_ADDRESS = r"^(\$\{.+\}(:[0-9]{1,5})?|\[?[A-Za-z0-9._:-]+\]?:[0-9]{1,5})$"
_URL = r"^https?://[^\s@]+$"
_PROXY = r"^(https?://[^\s@]+|\$\{[^}]+\})$"
_POLICY = r"^(default|identity|.*[^.]\.[^.]+)$"
SIGNS = {
    _NAME: "a name of letters, digits, '.', '_' and '-' that begins with a letter or digit",
    _LANE: "a name of letters, digits, '_' and '-' that begins with a letter or digit",
    _LABEL: "a name of letters, digits and '_' that begins with a letter or '_'",
    _TOPIC: "a topic name of letters, digits, '.', '_' and '-', at most 249 of them",
    _PARTITION: "a partition as its topic, '-' and its number: orders-0",
    _CLUSTER_ID: "a cluster id of letters, digits, '_' and '-', at most 100 of them",
    _VERSION: "a Kafka version such as 3.9, in quotes",
    _SEPARATOR: "a separator of signs that topic names may have: letters, digits, '.', '_' and '-'",
    _CURRENCY: "a currency as a word of letters, such as EUR",
    _PAIR: "a pair source->target, without blanks",
    FLOW_ID: "a flow id as plan prints it, name:source->target",
    _MOVED_TO: "a flow id as plan prints it, name:source->target, or a pair, source->target",
    _ADDRESS: "a host and its port, host:port",
    _URL: "a URL that begins with http:// or https:// and has no user",
    _PROXY: "a proxy such as http://proxy:3128, or a placeholder such as ${env:HTTPS_PROXY}",
    _POLICY: "a known policy (default, identity) or the full name of a Java class",
}
"""What each pattern of the declaration means, in words: no message shows a regular expression that mm2mgr wrote."""


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


def _pattern(text: str) -> str:
    if text.startswith("!"):
        raise ValueError("what is not to be taken is written under exclude:, without the exclamation mark")
    if re.fullmatch(r"/.*/", text):
        raise ValueError(f"write the regular expression without slashes around it: {text[1:-1]}")
    if re.search("[“”„‘’]", text):
        raise ValueError("typographic quotes belong to the name here: write plain ones, \" or '")
    return check_pattern(text)


# By these a flow is known, or other parts of mm2mgr go by what the flow says of them.
_NEVER_VERBATIM = frozenset(
    {
        *("name", "connector.class", "source.cluster.alias", "target.cluster.alias"),
        *("replication.policy.class", "replication.policy.separator", "exactly.once.support"),
    }
)


def _plain_key(key: str) -> str:
    if not re.fullmatch(r"[\w.$-]+", key):
        raise ValueError("a Kafka key of letters, digits and . - _ $ only")
    return key


def _security_key(key: str) -> str:
    if key == "protocol":
        return "security.protocol"
    if key in scalars.LIBRDKAFKA_KEYS:
        raise ValueError(scalars.LIBRDKAFKA_KEYS[key])
    if key not in scalars.SECURITY_KEYS:
        near = nearest(key, scalars.SECURITY_KEYS)
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
    for key, value in values.items():
        if match := re.search(r"\$\{(\w+)\}", value):
            raise ValueError(
                f"{key}: Kafka takes ${{{match[1]}}} as it is written: write ${{env:{match[1]}}}, with the name of a"
                " config provider"
            )
    protocol = values.get("security.protocol", "PLAINTEXT")
    if protocol not in scalars.PROTOCOLS:
        near = nearest(protocol.upper().replace("-", "_"), scalars.PROTOCOLS, 0.8)
        raise ValueError(
            f"protocol must be one of {', '.join(scalars.PROTOCOLS)}" + (f": write {near[0]}" if near else "")
        )
    return values


def _client_key(key: str) -> str:
    _plain_key(key)
    for prefix, block in scalars.PREFIX_BLOCKS.items():
        if key.startswith(prefix):
            plain = f"write the plain Kafka key, without the prefix {prefix!r}"
            raise ValueError(f"{plain}, under {block}; mm2mgr adds the prefixes")
    if key == "bootstrap.servers":
        raise ValueError("addresses belong to the cluster: use bootstrap_servers under clusters:")
    return key


def _connector_key(key: str) -> str:
    _plain_key(key)
    if key in scalars.OWNED_CONNECTOR_KEYS:
        raise ValueError(f"mm2mgr writes this key itself: {scalars.OWNED_CONNECTOR_KEYS[key]}")
    for prefix, block in scalars.PREFIX_BLOCKS.items():
        if key.startswith(prefix) and key not in scalars.CONNECTOR_KEYS_LIKE_PREFIXES:
            raise ValueError(f"write {key.removeprefix(prefix)!r} under {block}; mm2mgr adds the prefixes")
    if key.startswith("mm2mgr."):
        raise ValueError("keys that start with 'mm2mgr.' mark ownership; mm2mgr writes them")
    return key


def _verbatim_key(key: str) -> str:
    _plain_key(key)
    if key in _NEVER_VERBATIM or key.startswith("mm2mgr."):
        raise ValueError(f"it cannot be overruled: {scalars.OWNED_CONNECTOR_KEYS.get(key, 'mm2mgr writes it itself')}")
    return key


def _verbatim_key_of_source(key: str) -> str:
    if key == "tasks.max":
        raise ValueError(f"it cannot be overruled: {scalars.OWNED_CONNECTOR_KEYS[key]}")
    return _verbatim_key(key)


def _connector_name(name: str) -> str:
    if not is_addressable(name):
        raise ValueError("a name that Connect can be asked about: without / \\ % and without blanks at its ends")
    return name


def _pair(value: object) -> object:
    if not isinstance(value, str) or re.fullmatch(_PAIR, value):
        return value
    ends = re.fullmatch(
        r"\s*([A-Za-z0-9][\w.-]*)(?:\s*[-=]+>\s*|\s*→\s*|\s+to\s+|\s+-\s+|\s*,\s*)([A-Za-z0-9][\w.-]*)\s*", value
    )
    raise ValueError(f"write the pair as {ends[1]}->{ends[2]}" if ends else "a pair source->target, such as dc1->agg")


def _policy(value: object) -> object:
    if isinstance(value, str) and not re.search(_POLICY, value):
        word = value.lower().removesuffix("replicationpolicy")
        word = next(iter(nearest(word, ("default", "identity"), 0.7)), "default or identity")
        raise ValueError(f"write {word}, or the full name of a Java class with its package")
    return value


def flag(value: object) -> object:
    """Read `true` and `false` as the short form of `{enabled: …}`."""
    return {"enabled": value} if isinstance(value, bool) else value


def balance_way(value: object) -> object:
    """Read a word as the short form of `{by: …}`."""
    return {"by": value} if isinstance(value, str) else value


def _no_switch(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value  # pydantic takes true as 1


def no_lanes(value: object) -> object:
    """Refuse `lanes` where the class that assigns partitions belongs: either class may have lanes."""
    if value == "lanes":
        raise ValueError("lanes are written with their topics, beside `by`: balance: {lanes: {heavy: [TOPIC]}}")
    return value


def _local_file(path: str) -> str:
    if path.startswith("~") or "$" in path:
        raise ValueError("'~' and variables are not expanded here, so that this file is never there: write its path")
    return path


def lane_topics(value: object) -> object:
    """Read a list of topics as the short form of `{topics: […]}`."""
    return {"topics": value} if isinstance(value, list) else value


def _hours(text: str) -> str:
    try:
        OffPeak.parse(text)
    except ValueError:
        raise ValueError("write hours of the day in UTC, such as 22-5: from the first to before the last") from None
    return text


def _list_of_one(value: object) -> object:
    return [value] if isinstance(value, str) else value


def triggers(value: object) -> object:
    """Read `true` as every trigger and `false` as none."""
    return (["overload", "schedule"] if value else []) if isinstance(value, bool) else value


def proxy_settings(value: object) -> object:
    """Read a URL as the short form of `{url: …}`; `false` is no proxy, whatever the defaults say."""
    if isinstance(value, bool):
        if value:
            raise ValueError("write the URL of the proxy, such as http://proxy:3128, or false for none")
        return None
    return {"url": value} if isinstance(value, str) else value


ConfigValue = Annotated[
    str,
    BeforeValidator(_config_value),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "Kafka value"}),
]
_OneOrMany = BeforeValidator(_one_or_many, json_schema_input_type=str | list[str])
NameList = Annotated[list[str], _OneOrMany, Field(min_length=1)]
Addresses = Annotated[
    list[Annotated[str, Field(pattern=_ADDRESS), BeforeValidator(check_address)]],
    _OneOrMany,
    Field(min_length=1, examples=[["dc1-k1:9092", "dc1-k2:9092"]]),
]
Url = Annotated[str, Field(pattern=_URL, examples=["http://connect-1:8083"]), BeforeValidator(check_url)]
Urls = Annotated[
    list[Url], _OneOrMany, Field(min_length=1, examples=[["http://connect-1:8083", "http://connect-2:8083"]])
]
ProxyUrl = Annotated[str, Field(pattern=_PROXY, examples=["http://proxy:3128"]), BeforeValidator(check_proxy)]
Headers = Annotated[
    dict[str, ConfigValue], AfterValidator(check_headers), Field(examples=[{"X-Tenant": "${env:TENANT}"}])
]
_SecurityValue = Annotated[ConfigValue, WithJsonSchema({"type": ["string", "number", "boolean", "null"]})]
Security = Annotated[
    dict[Annotated[str, AfterValidator(_security_key)], _SecurityValue],
    BeforeValidator(_security_as_written, json_schema_input_type=dict[str, _SecurityValue]),
    AfterValidator(_security),
    Field(examples=[{"protocol": "SASL_SSL"}]),
]
ClientSettings = Annotated[
    dict[Annotated[str, AfterValidator(_client_key)], ConfigValue | None],
    Field(examples=[{"request.timeout.ms": 60_000}]),
]
ConnectorSettings = Annotated[
    dict[Annotated[str, AfterValidator(_connector_key)], ConfigValue | None], Field(examples=[{"offset.lag.max": 100}])
]
_VERBATIM = Field(examples=[{"errors.tolerance": "all", "key.converter": None}])
VerbatimSettings = Annotated[dict[Annotated[str, AfterValidator(_verbatim_key)], ConfigValue | None], _VERBATIM]
VerbatimOfSource = Annotated[
    dict[Annotated[str, AfterValidator(_verbatim_key_of_source)], ConfigValue | None], _VERBATIM
]
Patterns = Annotated[
    list[Annotated[str, AfterValidator(_pattern)]],
    BeforeValidator(_patterns, json_schema_input_type=str | list[str]),
    Field(examples=[["app.orders", "logs[.].*"]]),
]
Labels = Annotated[
    dict[str, Annotated[list[str], BeforeValidator(_label_values, json_schema_input_type=str | list[str])]],
    Field(min_length=1),  # no label at all would select every cluster
]
Selector = Annotated[NameList | Labels, Field(union_mode="left_to_right", examples=[["dc1"]])]
TimeSpan = Annotated[
    float, BeforeValidator(duration_seconds), WithJsonSchema({"type": "string", "examples": ["80ms", "10min"]})
]
Timeout = Annotated[
    float, BeforeValidator(timeout_seconds), WithJsonSchema({"type": "string", "examples": ["60s", "5min"]})
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
Price = Annotated[
    Decimal, BeforeValidator(price), WithJsonSchema({"type": ["number", "string"], "minimum": 0, "examples": [0.02]})
]
Currency = Annotated[str, Field(pattern=_CURRENCY, examples=["EUR"])]
NO_SWITCH = BeforeValidator(_no_switch)
"""For a number, after its limits: `true` is none."""
TaskCount = Annotated[int, Field(ge=1, le=2**31 - 1), NO_SWITCH]  # Connect reads tasks.max as a Java int
PairName = Annotated[str, Field(pattern=_PAIR, examples=["dc1->agg"]), BeforeValidator(_pair)]
Alias = Annotated[str, Field(pattern=_NAME, max_length=100)]
Owner = Annotated[str, Field(pattern=_NAME, examples=["data-platform"])]
LaneName = Annotated[str, Field(pattern=_LANE, max_length=50)]
LabelName = Annotated[str, Field(pattern=_LABEL)]
ConnectorName = Annotated[str, AfterValidator(_connector_name), Field(min_length=1, examples=["legacy-orders"])]
MovedTo = Annotated[str, Field(pattern=_MOVED_TO, examples=["orders:dc1->agg"])]
FlowId = Annotated[str, Field(pattern=FLOW_ID, examples=["orders:dc1->agg"])]
PartitionName = Annotated[str, Field(pattern=_PARTITION, examples=["orders-0"])]
LocalFile = Annotated[str, Field(min_length=1, examples=["/run/mm2mgr/freeze"]), AfterValidator(_local_file)]
HourSpans = Annotated[
    list[Annotated[str, AfterValidator(_hours)]],
    BeforeValidator(_list_of_one, json_schema_input_type=str | list[str]),
    Field(examples=[["22-5"]]),
]
TopicName = Annotated[str, Field(pattern=_TOPIC)]
ClusterId = Annotated[str, Field(pattern=_CLUSTER_ID)]
KafkaVersion = Annotated[str, Field(pattern=_VERSION, examples=["3.9"])]
Separator = Annotated[str, Field(min_length=1, pattern=_SEPARATOR, examples=["_"])]
PolicyName = Annotated[str, Field(pattern=_POLICY), BeforeValidator(_policy)]
