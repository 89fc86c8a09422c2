"""Keys whose value is the name of a class: what Kafka must be able to create from it, and when. Pure.

Kafka's own classes are in `keys.json`, written by `tools/kafka_keys` from its jars. Classes of others are not judged:
whether they are there only the workers know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

from mm2mgr.truth.keys import load

KAFKA = "org.apache.kafka."
# What the class is for -> Kafka's interface (or class) that it must implement.
INTERFACES = {
    "metrics reporter": "org.apache.kafka.common.metrics.MetricsReporter",
    "partitioner": "org.apache.kafka.clients.producer.Partitioner",
    "assignor": "org.apache.kafka.clients.consumer.ConsumerPartitionAssignor",
    "producer interceptor": "org.apache.kafka.clients.producer.ProducerInterceptor",
    "consumer interceptor": "org.apache.kafka.clients.consumer.ConsumerInterceptor",
    "serializer": "org.apache.kafka.common.serialization.Serializer",
    "deserializer": "org.apache.kafka.common.serialization.Deserializer",
    "replication policy": "org.apache.kafka.connect.mirror.ReplicationPolicy",
    "topic filter": "org.apache.kafka.connect.mirror.TopicFilter",
    "group filter": "org.apache.kafka.connect.mirror.GroupFilter",
    "property filter": "org.apache.kafka.connect.mirror.ConfigPropertyFilter",
    "admin client": "org.apache.kafka.clients.admin.ForwardingAdmin",
    "callback handler": "org.apache.kafka.common.security.auth.AuthenticateCallbackHandler",
    "login": "org.apache.kafka.common.security.auth.Login",
    "token retriever": "org.apache.kafka.common.security.oauthbearer.JwtRetriever",
    "token validator": "org.apache.kafka.common.security.oauthbearer.JwtValidator",
    "TLS engine factory": "org.apache.kafka.common.security.auth.SslEngineFactory",
    "converter": "org.apache.kafka.connect.storage.Converter",
    "header converter": "org.apache.kafka.connect.storage.HeaderConverter",
    "transformation": "org.apache.kafka.connect.transforms.Transformation",
    "predicate": "org.apache.kafka.connect.transforms.predicates.Predicate",
}
# always: whenever the connector or client is made; the others only with such a security.protocol, or never (its class
# is loaded).
Use = Literal["always", "SASL", "SSL", "never"]
# (scopes, key) -> what it is for, and when Kafka creates it.
OF_CONNECTORS: dict[str, dict[str, str]] = {
    "source": {"topic.filter.class": "topic filter", "config.property.filter.class": "property filter"},
    "checkpoint": {"topic.filter.class": "topic filter", "group.filter.class": "group filter"},
    "heartbeat": {},
}
_OF_EVERY_CONNECTOR = {
    "replication.policy.class": "replication policy",
    "forwarding.admin.class": "admin client",
    "key.converter": "converter",
    "value.converter": "converter",
    "header.converter": "header converter",
}
_OF_EVERY_CLIENT: dict[str, tuple[str, Use]] = {
    "metric.reporters": ("metrics reporter", "always"),
    "sasl.login.class": ("login", "SASL"),
    "sasl.login.callback.handler.class": ("callback handler", "SASL"),
    "sasl.client.callback.handler.class": ("callback handler", "SASL"),
    "sasl.oauthbearer.jwt.retriever.class": ("token retriever", "never"),
    "sasl.oauthbearer.jwt.validator.class": ("token validator", "never"),
    "ssl.engine.factory.class": ("TLS engine factory", "SSL"),
}
_OF_CLIENTS: dict[str, dict[str, tuple[str, Use]]] = {
    "producer": {
        **{"interceptor.classes": ("producer interceptor", "always"), "partitioner.class": ("partitioner", "always")},
        **{"key.serializer": ("serializer", "never"), "value.serializer": ("serializer", "never")},
    },
    "consumer": {
        "interceptor.classes": ("consumer interceptor", "always"),
        "partition.assignment.strategy": ("assignor", "always"),
        **{"key.deserializer": ("deserializer", "never"), "value.deserializer": ("deserializer", "never")},
    },
    "admin": {},
}
_NAME = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
PLUGINS = ("converter", "header converter", "transformation", "predicate")  # whose short names Connect knows, too


def purpose_of(scope: str, key: str) -> tuple[str, Use] | None:
    """Return the purpose of the class in a key, and when Kafka creates it; None for any other key."""
    if scope in _OF_CLIENTS:
        return _OF_CLIENTS[scope].get(key) or _OF_EVERY_CLIENT.get(key)
    purpose = OF_CONNECTORS[scope].get(key) or _OF_EVERY_CONNECTOR.get(key)
    if purpose:
        return purpose, "always"
    if key == "metric.reporters":
        return ("metrics reporter", "always") if scope != "heartbeat" else None
    loaded = _OF_EVERY_CLIENT.get(key)
    return (loaded[0], "never") if loaded else None


@cache
def problem(purpose: str, name: str, version: str, *, created: bool) -> str:
    """Return why Kafka cannot use a class, in words that follow `is`, "" for one that it can or that is not Kafka's.

    `created` is False where Kafka loads the class and does no more.
    """
    keys = load()
    own, every = keys.classes(purpose, version), _every_class(version)
    if not _NAME.fullmatch(name):
        return "no name of a class" if name else "empty: Kafka looks for a class without a name"
    if name in own or (name in every and not created) or (purpose in PLUGINS and _is_plugin(purpose, name, version)):
        return ""
    if name in every:
        return f"no {purpose} that Kafka can create"
    if right := _in_other_letters(purpose, name, version):
        return f"written in other letters than {right}"
    if "." not in name and purpose not in PLUGINS:
        whole = next((class_name for class_name in own if class_name.rpartition(".")[2] == name), "")
        return f"a name without its package{f': {whole}' if whole else ''}"
    return f"no class of Kafka {keys.line(version)}" if name.startswith(KAFKA) or "." not in name else ""


def _is_plugin(purpose: str, name: str, version: str) -> bool:
    """Tell whether Connect may know a short name: of a plugin of Kafka or, as far as is known, of somebody else."""
    keys = load()
    of_other_lines = any(name in _short_names(purpose, line) for line in keys.lines)
    is_known = of_other_lines or name in _every_class(version) or bool(_in_other_letters(purpose, name, version))
    return name in _short_names(purpose, keys.line(version)) or ("." not in name and not is_known)


def _in_other_letters(purpose: str, name: str, version: str) -> str:
    """Return the name of Kafka that differs only in the case of its letters: Java tells them apart."""
    candidates = (*load().classes(purpose, version), *(_short_names(purpose, version) if purpose in PLUGINS else ()))
    return next((candidate for candidate in candidates if candidate != name and candidate.lower() == name.lower()), "")


@cache
def _every_class(version: str) -> frozenset[str]:
    """Return the classes of Kafka that are known by name, interfaces and the short names of plugins included."""
    created = (class_name for purpose in INTERFACES for class_name in load().classes(purpose, version))
    short = (class_name for purpose in PLUGINS for class_name in _short_names(purpose, version))
    interfaces = (interface for purpose, interface in INTERFACES.items() if load().classes(purpose, version))
    return frozenset({*created, *short, *interfaces})


@cache
def _short_names(purpose: str, version: str) -> frozenset[str]:
    return frozenset(_aliases(purpose, version))


def _aliases(purpose: str, version: str) -> Iterator[str]:
    for name in load().classes(purpose, version):
        yield from _short(purpose, name)


def _short(purpose: str, name: str) -> tuple[str, ...]:
    """Return the names that Connect takes for a plugin besides its own (PluginUtils.aliases); X$Key has none."""
    if "$" in name:
        return ()
    suffix = {"converter": "Converter", "header converter": "HeaderConverter", "transformation": "Transformation"}
    simple = name.rpartition(".")[2]
    return simple, simple.removesuffix(suffix.get(purpose, "Predicate"))


@cache
def own_class(purpose: str, name: str, version: str) -> str:
    """Return Kafka's class that Connect takes a plugin's name for, short names too; "" where it is none of Kafka's."""
    own = load().classes(purpose, version)
    if name in own:
        return name
    return next((class_name for class_name in own if name in _short(purpose, class_name)), "")


def is_of_other_lines(purpose: str, name: str) -> bool:
    """Tell whether some line of Kafka has a class for a purpose."""
    return any(name in load().classes(purpose, line) for line in load().lines)


def is_among(purpose: str, name: str, plugins: frozenset[str]) -> bool:
    """Tell whether Connect finds a plugin by this name among the classes that a worker lists."""
    return name in plugins or any(name in _short(purpose, plugin) for plugin in plugins)


def names(purpose: str, version: str) -> tuple[str, ...]:
    """Return Kafka's own classes for a purpose."""
    return load().classes(purpose, version)
