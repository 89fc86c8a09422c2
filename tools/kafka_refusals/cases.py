"""Draws connector configs: each key that a client or the connector reads, with values of each kind; pairs, triples, whole ones."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import get_args

from mm2mgr.connectors import ConnectorType
from mm2mgr.truth.keys import Key, load
from mm2mgr.truth.reach import CLUSTER_KEYS, clients_of_line
from tools.kafka_refusals.kafka import ADDRESS

MIRROR = "org.apache.kafka.connect.mirror."
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
TYPES: tuple[ConnectorType, ...] = get_args(ConnectorType)
_KAFKA = "org.apache.kafka."
# Values that depend on files, hosts, the JVM or the network; Kafka alone does not decide about them.
_OF_THE_MACHINE = (
    *("ssl.truststore.location", "ssl.keystore.location", "ssl.cipher.suites", "ssl.provider", "security.providers"),
    *("ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
    *("sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd", "ssl.engine.factory.class"),
    *("config.providers", "name", "connector.class"),
    "enabled",  # a connector that is off is judged as if it were on
)
_LOGINS = {
    module: f'{_KAFKA}common.security.{module} required username="u" password="p";'
    for module in ("plain.PlainLoginModule", "scram.ScramLoginModule")
}
_TOKEN = f"{_KAFKA}common.security.oauthbearer.OAuthBearerLoginModule required"
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "boolean": ("true", "false", "TRUE", "False", "yes", "1", "", " true "),
    "int": (
        "0",
        "1",
        "-1",
        "-2",
        "7",
        "100",
        "30000",
        "2147483647",
        "2147483648",
        "abc",
        "1.5",
        "",
        " 7 ",
        "+5",
        "1e3",
    ),
    "short": ("0", "1", "-1", "3", "300", "32767", "32768", "abc", ""),
    "long": ("0", "1", "-1", "-2", "7", "60000", "9223372036854775807", "9223372036854775808", "abc", "1.5", "", " 7 "),
    "double": ("0", "0.1", "0.5", "0.8", "1.5", "-1", "1,5", "NaN", "abc", "", "1e-1", "0.8d"),
    "password": ("x", ""),
    "string": ("abc", "", "a b"),
    "list": ("", "a", "a,b", "a,a", "a,,b", "a,", " a , b "),
}
# Classes of Kafka, right ones and wrong ones for every key.
_CLASSES = (
    *(f"{MIRROR}Default{name}" for name in ("TopicFilter", "GroupFilter", "ConfigPropertyFilter", "ReplicationPolicy")),
    *(
        f"{MIRROR}IdentityReplicationPolicy",
        f"{MIRROR}NoSuchPolicy",
        f"{MIRROR}ReplicationPolicy",
        "DefaultTopicFilter",
    ),
    *(f"{_KAFKA}clients.admin.ForwardingAdmin",),
    *(f"{_KAFKA}clients.producer.{name}" for name in ("RoundRobinPartitioner", "UniformStickyPartitioner")),
    f"{_KAFKA}clients.producer.internals.DefaultPartitioner",
    *(f"{_KAFKA}clients.consumer.{name}" for name in ("RangeAssignor", "CooperativeStickyAssignor")),
    *(f"{_KAFKA}common.serialization.{name}" for name in ("ByteArraySerializer", "StringDeserializer")),
    *(f"{_KAFKA}common.metrics.JmxReporter", f"{_KAFKA}common.metrics.MetricsReporter"),
    *(f"{_KAFKA}connect.storage.{name}" for name in ("StringConverter", "SimpleHeaderConverter", "Converter")),
    *(BYTES, "ByteArrayConverter", f"{_KAFKA}connect.json.JsonConverter", ""),
    *(
        f"{_KAFKA}common.security.oauthbearer.{name}"
        for name in ("OAuthBearerLoginCallbackHandler", "DefaultJwtRetriever")
    ),
    f"{_KAFKA}common.security.authenticator.DefaultLogin",
    f"{_KAFKA}common.security.authenticator.SaslClientCallbackHandler",
)
# A class of somebody else, which the workers asked here do not have; whether others have it nobody knows.
FOREIGN = "com.example.mirror"
_SPECIAL: Mapping[str, tuple[str, ...]] = {
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-1", "scram-sha-512", "plain", "OAUTHBEARER", ""),
    "sasl.jaas.config": (
        *(*_LOGINS.values(), f"{_TOKEN};", f'{_TOKEN} unsecuredLoginStringClaim_sub="u";', ""),
        *(text.replace(" required", wrong) for text, wrong in zip(_LOGINS.values(), (" must", ""), strict=True)),
        *(_LOGINS["plain.PlainLoginModule"].replace('"', quote) for quote in ("", "'")),
        *(f"com.sun.security.auth.module.{name} required;" for name in ("JndiLoginModule", "LdapLoginModule")),
        f"{_LOGINS['plain.PlainLoginModule'].removesuffix(';')} debug;",
    ),
    "ssl.protocol": ("TLSv1.2", "TLSv1.3", "TLS", "TLSv1.4", "tlsv1.2", "SSLv3", ""),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3,TLSv1.2", "TLSv1.4", "TLSv1.2,TLSv1.2", "tlsv1.2", ""),
    "ssl.endpoint.identification.algorithm": ("https", "HTTPS", "", "none", "false", "LDAPS"),
    "ssl.truststore.type": ("JKS", "PKCS12", "PEM", "pem"),
    "ssl.keystore.type": ("JKS", "PKCS12", "PEM", "pem"),
    "bootstrap.servers": (
        ADDRESS,
        f"{ADDRESS},{ADDRESS}",
        f"{ADDRESS},",
        "127.0.0.1",
        "127.0.0.1:x",
        "",
        ":9092",
        "127.0.0.1:99999",
    ),
    "topics": (".*", "a", "a,b", "a,a", "[", "a(", "*", "a,,b", ""),
    "groups": (".*", "a,a", "*", "[", ""),
    "replication.policy.separator": (".", "-", "_", "", " "),
    "source.cluster.alias": ("A", "B", ""),
    "target.cluster.alias": ("B", "A", ""),
    "exactly.once.support": ("requested", "REQUESTED", "required", "Required", "always", ""),
    "client.id": ("x", ""),
    "group.id": ("g", "", "a b"),
    "group.instance.id": ("g", "", "a b"),
    "transactional.id": ("t", ""),
    "offsets.storage.topic": ("t", "", " "),
    # Lists that are refused as such; those of _PLUGINS come with their types.
    "transforms": ("a,a", "a,", ""),
    "predicates": ("p,p", ""),
    "topic.creation.groups": ("g", "g,g", ""),
    "tasks.max": ("1", "0", "x", "10", "", "-1"),
    "metadata.recovery.strategy": ("none", "rebootstrap", "REBOOTSTRAP", "x"),
    "sasl.oauthbearer.token.endpoint.url": ("", "x"),  # of others the network decides, and what the JVM allows
}
_TRANSFORMS = f"{_KAFKA}connect.transforms."
_PREDICATES = f"{_TRANSFORMS}predicates."
_DROP = {
    "transforms": "t",
    "transforms.t.type": f"{_TRANSFORMS}Filter",
    "transforms.t.predicate": "p",
    "predicates": "p",
}
# Whole transformations and predicates, right ones and wrong ones.
_PLUGINS: tuple[Mapping[str, str], ...] = (
    {**_DROP, "predicates.p.type": f"{_PREDICATES}RecordIsTombstone"},
    {**_DROP, "predicates.p.type": "RecordIsTombstone", "transforms.t.negate": "true"},
    {**_DROP, "predicates.p.type": f"{_PREDICATES}RecordIsTombstone", "transforms.t.negate": "yes"},
    {**_DROP, "predicates.p.type": f"{_PREDICATES}TopicNameMatches"},
    {**_DROP, "predicates.p.type": f"{_PREDICATES}TopicNameMatches", "predicates.p.pattern": "old-.*"},
    {**_DROP, "predicates.p.type": f"{_PREDICATES}HasHeaderKey", "predicates.p.name": ""},
    {**_DROP, "predicates.p.type": f"{_TRANSFORMS}Filter"},
    {**_DROP, "predicates.p.type": f"{_PREDICATES}NoSuchPredicate"},
    {**_DROP, "predicates": "q", "predicates.q.type": f"{_PREDICATES}RecordIsTombstone"},
    _DROP,
    {"transforms": "t"},
    {"transforms": "t", "transforms.t.type": f"{_TRANSFORMS}DropHeaders"},
    {"transforms": "t", "transforms.t.type": "DropHeaders", "transforms.t.headers": "h"},
    {"transforms": "t", "transforms.t.type": f"{_TRANSFORMS}RegexRouter", "transforms.t.regex": "a"},
    {"transforms": "t", "transforms.t.type": f"{_PREDICATES}RecordIsTombstone"},
    {"transforms": "t", "transforms.t.type": f"{_TRANSFORMS}NoSuchTransformation"},
    {
        "transforms": "t",
        "transforms.t.type": f"{_TRANSFORMS}DropHeaders",
        "transforms.t.headers": "h",
        "transforms.t.negate": "true",
    },
    {"predicates": "p"},
    *({"connector.class": f"{MIRROR}{name}"} for name in ("MirrorSource", "MirrorSourceTask", "MirrorSourceConector")),
    {"connector.class": "MirrorSource"},
)
# Settings of transformations, predicates and converters, right ones and wrong ones; of others those of their type.
_OF_PLUGINS: Mapping[str, tuple[str, ...]] = {
    "spec": (
        "int8",
        "a:int8,b:string",
        "A:INT8",
        "a:bytes",
        "a:x",
        "int8,a:int8",
        "int8,string",
        "a:b:int8",
        "a:",
        ":",
        "",
        "a: float64 ",
    ),
    "renames": ("a:b", "a:b,c:d", "a", "a:b:c", "a:", ":b", "", "a:b,"),
    "fields": ("a", "a,b", "a,a", "", "a,"),
    "headers": ("h", "h,i", "h,h", "", "h,"),
    "include": ("a", "a,b", "a,a", ""),
    "exclude": ("a", ""),
    "operation": ("move", "copy", "MOVE", "x", ""),
    "field": ("a", "a.b", "`a.b`.c", "`a", "a.`b", "`a`b`", "`a\\\\`.b", "``", "", "a..b"),
    "field.syntax.version": ("V1", "V2", "v2", "V2", "V3", ""),
    "target.type": ("string", "unix", "Date", "Time", "Timestamp", "STRING", "timestamp", " unix ", ""),
    "format": ("yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ssXXX", "XXXX", "yyyy'T", "b", "YYYY-uu", "jj", "''", "", " ", "{0}"),
    "timestamp.format": ("yyyyMMdd", "yyyy'T", "bbb", "", "XXXX", "e"),
    "unix.precision": ("seconds", "SECONDS", "s", ""),
    "regex": ("a.*", "(", "*", "", "[a", "a{2}", "(?<n>a)", "\\\\"),
    "pattern": ("a.*", "(", "*", "", "[a"),
    "name": ("h", "", " "),
    "header": ("h", ""),
    "value.literal": ("1", "", "abc", "{"),
    "schema.version": ("1", "x", "", "-1"),
    "schema.name": ("s", ""),
    "replacement": ("x", "$1", "", "$"),
    "converter.encoding": ("UTF-8", "utf8", "x", ""),
    "decimal.format": ("NUMERIC", "numeric", "base64", "x", ""),
    "schema.content": ("", "{", '{"type": "string"}', '{"type": "x"}', "[]", "1"),
}
_PLUGIN_KEYS = ("transforms.t.type", "predicates.p.type")
_TYPES: Mapping[str, str] = {"transformation": "transforms", "predicate": "predicates"}
_OUTER = tuple(f"{_TRANSFORMS}{name}" for name in ("Cast", "ExtractField", "InsertField"))
_CREATION: Mapping[str, tuple[str, ...]] = {
    "topic.creation.default.replication.factor": ("1", "-1", "0", "-2", "x"),
    "topic.creation.default.partitions": ("1", "-1", "0", "x", ""),
    "topic.creation.default.cleanup.policy": ("compact", "x"),
    "topic.creation.groups": ("g", "g", "g", "g,h", "default", ""),
    "topic.creation.g.include": ("a.*", "a.*", "(", "", "a,a"),
    "topic.creation.g.exclude": ("b", "[", ""),
    "topic.creation.g.replication.factor": ("1", "-1", "0", "x"),
    "topic.creation.g.partitions": ("1", "-1", "-2", "x"),
}


def _plugins_drawn(chance: random.Random, version: str) -> dict[str, str]:
    """Return a transformation, with or without a predicate, or a converter, or groups of topics to create, each with settings."""
    kind = chance.random()
    if kind < 0.15:
        return dict(chance.choice(_PLUGINS))
    if kind < 0.25:
        return {key: chance.choice(values) for key, values in _CREATION.items() if chance.random() < 0.6}
    if kind < 0.45:
        part = chance.choice(("key", "value", "header"))
        name = chance.choice(load().classes("header converter" if part == "header" else "converter", version))
        return {f"{part}.converter": name, **_settings(chance, name, f"{part}.converter.", version)}
    found = {"transforms": "t", **_plugin(chance, "transformation", "t", version)}
    if kind < 0.55:
        found |= {"transforms": "t,u", **_plugin(chance, "transformation", "u", version)}
    if chance.random() < 0.4:
        found |= {"transforms.t.predicate": "p", "predicates": "p", **_plugin(chance, "predicate", "p", version)}
    return found


def _plugin(chance: random.Random, purpose: str, alias: str, version: str) -> dict[str, str]:
    every = load().classes(purpose, version)
    name = chance.choice(every)
    prefix = f"{_TYPES[purpose]}.{alias}."
    kind = chance.random()
    written = name.rpartition(".")[2] if kind < 0.15 else chance.choice(_OUTER) if kind < 0.18 else name
    return {f"{prefix}type": written, **_settings(chance, name, prefix, version)}


def _settings(chance: random.Random, name: str, prefix: str, version: str) -> dict[str, str]:
    return {
        prefix + each.name: chance.choice(_of_plugin(each))
        for each in load().settings(name, version)
        if chance.random() < (0.9 if each.required else 0.5)
    }


@cache
def _of_plugin(setting: Key) -> tuple[str, ...]:
    return _OF_PLUGINS.get(setting.name) or values(Place(setting.name, "", setting))


_RIGHT_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": _LOGINS["plain.PlainLoginModule"],
}
_SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": _LOGINS["scram.ScramLoginModule"]}
_OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f'{_TOKEN} unsecuredLoginStringClaim_sub="u";'}
_MODES: tuple[Mapping[str, str], ...] = (
    *({}, {}, {"security.protocol": "SSL"}, _RIGHT_LOGIN, _RIGHT_LOGIN | {"security.protocol": "SASL_SSL"}),
    *({"security.protocol": "SASL_SSL", **_SCRAM}, {"security.protocol": "sasl_plaintext", **_OAUTH}),
)


@dataclass(frozen=True)
class Place:
    """A key of a connector's config, and what Kafka says of the plain key."""

    key: str
    plain: str
    definition: Key


def healthy(type_: ConnectorType) -> dict[str, str]:
    """Return a config of which nothing is refused."""
    own = {"topics": "orders"} if type_ == "source" else {}
    return {
        "name": f"mm2.A.B.{type_}",
        "connector.class": f"{MIRROR}Mirror{type_.capitalize()}Connector",
        **{"source.cluster.alias": "A", "target.cluster.alias": "B"},
        **{f"{side}.cluster.bootstrap.servers": ADDRESS for side in ("source", "target")},
        "producer.override.bootstrap.servers": ADDRESS,
        **{f"{part}.converter": BYTES for part in ("key", "value", "header")},
        **own,
    }


@cache
def places(type_: ConnectorType, version: str) -> tuple[Place, ...]:
    """Return every key that a connector of a version, or a client of it, reads."""
    known, found = load(), {}
    for name in known.names(type_, version):
        definition = known.find(type_, name, version)
        if definition and "<" not in name:
            found[name] = Place(name, name, definition)
    for client in clients_of_line(type_, version):
        for layer in client.layers:
            for name in known.names(client.kind, version):
                key, definition = layer.prefix + name, known.find(client.kind, name, version)
                if definition and layer.plain(key) and not (layer.filtered and name not in CLUSTER_KEYS):
                    found.setdefault(key, Place(key, name, definition))
    left_out = (*_OF_THE_MACHINE, *(name for name in found if name.endswith("plugin.version")))
    return tuple(place for place in found.values() if place.plain not in left_out)


def _is_of_classes(place: Place) -> bool:
    lists = ("classes", "metric.reporters", "assignment.strategy")
    return place.definition.type == "class" or place.plain.endswith(lists)


@cache
def values(place: Place) -> tuple[str, ...]:
    """Return values of each kind for a key, right ones and wrong ones."""
    definition = place.definition
    if place.plain in _SPECIAL:
        return _SPECIAL[place.plain]
    if _is_of_classes(place):
        if place.plain.endswith("converter"):  # another short name may be that of somebody's plugin
            return tuple(name for name in _CLASSES if name != "DefaultTopicFilter")
        listed = (f"{_CLASSES[0]},{_CLASSES[0]}",) if definition.type == "list" else ()
        return (*_CLASSES, *listed)
    texts = _TEXTS[definition.type]
    choices = definition.choices
    if choices:
        texts = (*choices, *(text.swapcase() for text in choices), f" {choices[0]} ", *texts[:2])
    if definition.type == "list" and len(choices) > 1:
        texts = (*texts, ",".join(choices[:2]), f"{choices[0]},{choices[0]}")
    default = (definition.default,) if definition.default else ()
    return tuple(dict.fromkeys((*texts, *default, *_limits(definition.valid))))


def _limits(valid: str) -> Iterator[str]:
    """Yield the ends of a range, and the numbers beyond them."""
    for text in re.findall(r"-?[0-9]+(?![0-9.]*[.][0-9])", valid if "..." in valid else ""):
        yield from (str(int(text) + more) for more in (-1, 0, 1))


def singles(type_: ConnectorType, version: str) -> Iterator[dict[str, str]]:
    """Return each key with each of its values."""
    for place in places(type_, version):
        for value in values(place):
            yield {place.key: value}
            if place.plain.startswith(("sasl.", "ssl.")):
                yield from ({**mode, place.key: value} for mode in _modes_of(place))


def _modes_of(place: Place) -> Iterator[dict[str, str]]:
    prefix = place.key.removesuffix(place.plain)
    if prefix:
        yield {f"{prefix}security.protocol": "SSL"}
        yield {prefix + name: value for name, value in _RIGHT_LOGIN.items()}


def drawn(chance: random.Random, type_: ConnectorType, version: str, number: int) -> dict[str, str]:
    """Return some keys with values; keys of one client are drawn together more often than by chance."""
    every = places(type_, version)
    first = chance.choice(every)
    near = _beside(type_, version, first.key.removesuffix(first.plain))
    chosen = [first, *(chance.choice(near if chance.random() < 0.6 else every) for _ in range(number - 1))]
    changes: dict[str, str] = {}
    prefix = first.key.removesuffix(first.plain)
    mode = chance.choice(_MODES) if prefix else {}
    changes |= {prefix + name: value for name, value in mode.items() if prefix + name in _written(type_, version)}
    if chance.random() < 0.25:
        changes |= _plugins_drawn(chance, version)
    changes |= {place.key: chance.choice(values(place)) for place in chosen}
    if (
        any(place.key.startswith(("consumer.override.", "admin.override.")) for place in chosen)
        and chance.random() < 0.5
    ):
        changes.setdefault("offsets.storage.topic", "own")
    return changes


def with_foreign(
    chance: random.Random, type_: ConnectorType, version: str, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the changes with a class of somebody else at one key more."""
    of_classes = [place for place in places(type_, version) if _is_of_classes(place)]
    keys = [place.key for place in of_classes]
    own = [place.key for place in of_classes if place.key == place.plain]
    own += [*(f"{part}.converter" for part in ("key", "value", "header")), *_PLUGIN_KEYS]
    key = chance.choice(chance.choice((keys, own)))
    name = f"{FOREIGN}.{chance.choice(('Own', 'policies.Own', 'Outer$Inner'))}"
    if key not in _PLUGIN_KEYS:
        return {**changes, key: name}
    rest = {name: value for name, value in changes.items() if not name.startswith(("transforms", "predicates"))}
    drops = {"transforms.t.type": f"{_TRANSFORMS}DropHeaders", "transforms.t.headers": "h"}
    return {**rest, **_PLUGINS[0], **drops, key: name}


@cache
def _written(type_: ConnectorType, version: str) -> frozenset[str]:
    return frozenset(place.key for place in places(type_, version))


@cache
def _beside(type_: ConnectorType, version: str, prefix: str) -> Sequence[Place]:
    return tuple(place for place in places(type_, version) if place.key == prefix + place.plain)
