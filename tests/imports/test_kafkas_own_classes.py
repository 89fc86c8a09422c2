"""What each client of random connectors gets, asked of Kafka's own classes (MirrorSourceConfig, MirrorCheckpointConfig, Connect's Worker)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from mm2mgr.connectors import CLASSES, PACKAGE, ConnectorType
from mm2mgr.formats.connectors import FoundConnector, FoundWorkers
from mm2mgr.imports.effective import EffectiveConnector, effective, meaning_of
from mm2mgr.imports.equivalence import CONNECTOR, compare_connectors
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS

pytestmark = [pytest.mark.live, pytest.mark.matrix]
PREFIXES = sorted({layer.prefix for of_type in CLIENTS.values() for client in of_type for layer in client.layers})
DEAD = (
    "",
    "source.cluster.consumer.",
    "target.cluster.producer.",
    "offset-syncs.producer.",
    "source.",
    "target.override.",
)
# Values that several clients share, each of its kind; what Kafka would refuse to parse is not drawn.
KEYS = {
    **dict.fromkeys(
        ("fetch.max.bytes", "max.poll.records", "request.timeout.ms", "retry.backoff.ms", "batch.size"), "77"
    ),
    **dict.fromkeys(("linger.ms", "buffer.memory", "metadata.max.age.ms", "max.block.ms", "send.buffer.bytes"), "99"),
    **{"client.rack": "rack", "client.dns.lookup": "use_all_dns_ips", "isolation.level": "read_committed", "acks": "1"},
    **{"compression.type": "lz4", "auto.offset.reset": "latest", "enable.auto.commit": "true", "no.such.key": "x"},
    **{
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.protocol": "TLSv1.3",
        "bootstrap.servers": "x:1",
    },
}
OTHERS = {
    **{"client.rack": "other", "client.dns.lookup": "resolve_canonical_bootstrap_servers_only", "acks": "all"},
    **{"isolation.level": "read_uncommitted", "compression.type": "gzip", "auto.offset.reset": "earliest"},
    **{"enable.auto.commit": "false", "no.such.key": "y", "sasl.mechanism": "GSSAPI", "ssl.protocol": "TLSv1.2"},
    **{"bootstrap.servers": "y:1"},
}
OWN = {
    **{"tasks.max": "7", "topics": "a, b.c", "topics.exclude": "z", "groups": "g.*", "replication.factor": "5"},
    **{"refresh.topics.interval.seconds": "0060", "sync.topic.acls.enabled": "FALSE", "offset.lag.max": "1000"},
    **{"replication.policy.separator": "_", "emit.checkpoints.interval.seconds": "5", "errors.tolerance": "all"},
    **{"sync.group.offsets.enabled": "true", "admin.timeout.ms": "5", "emit.heartbeats.interval.seconds": "9"},
}


def drawn(dice: random.Random, type_: ConnectorType) -> tuple[dict[str, str], dict[str, str]]:
    """Draw the config of a connector and properties of its workers."""
    class_name = next(name for name, of_type in CLASSES.items() if of_type == type_)
    config = {
        **{"name": "name", "connector.class": f"{PACKAGE}.{class_name}"},
        **{"source.cluster.alias": "a", "source.cluster.bootstrap.servers": "a:1"},
        **{"target.cluster.alias": "b", "target.cluster.bootstrap.servers": "b:1"},
    }
    for _ in range(dice.randrange(30)):
        plain = dice.choice(sorted(KEYS))
        config[dice.choice([*PREFIXES, *DEAD]) + plain] = dice.choice((KEYS[plain], f" {KEYS[plain]} "))
    for key in dice.sample(sorted(OWN), dice.randrange(len(OWN))):
        config[key] = OWN[key]
    if dice.random() < 0.3:
        config["offset-syncs.topic.location"] = "target"
    workers = {"bootstrap.servers": "w:1", "group.id": "w"}
    for _ in range(dice.randrange(6)):
        plain = dice.choice(sorted(KEYS.keys() - {"security.protocol"}))
        workers[dice.choice(("producer.", "consumer.", "admin.")) + plain] = KEYS[plain]
    return config, workers


Ask = Callable[[], Mapping[str, object]]


def asked(kafka: Any, connector: EffectiveConnector) -> Iterator[tuple[str, Ask]]:
    """Yield the clients of a connector by name with what Kafka's classes make their config."""
    from tools.kafka_keys.definitions import WORKER, worker_arguments

    config = {key: value.strip() if key == "name" else value for key, value in connector.connector.config.items()}
    class_name = f"connect.mirror.Mirror{connector.type.capitalize()}Config"
    own = getattr(kafka.packages.connect.mirror, class_name.rpartition(".")[2])(kafka.map(config))
    base = "connect.mirror.MirrorConnectorConfig"
    methods = {
        "source consumer": (base, "sourceConsumerConfig"),
        "source admin": (base, "sourceAdminConfig"),
        "target admin": (base, "targetAdminConfig"),
        "checkpoints consumer": (base, "targetConsumerConfig"),
        "offset-syncs producer": (class_name, "offsetSyncsTopicProducerConfig"),
        "offset-syncs admin": (class_name, "offsetSyncsTopicAdminConfig"),
        "offset-syncs consumer": (class_name, "offsetSyncsTopicConsumerConfig"),
    }
    made_for = worker_arguments(kafka, {**WORKER, **connector.properties}, config)
    more = (kafka.field("connect.health.ConnectorType", "SOURCE"),)
    more = more if kafka.has("connect.runtime.Worker", "adminConfigs", 8) else ()
    for name in connector.clients:
        if name in methods:
            owner, method = methods[name]
            role = () if kafka.has(owner, method, 0) else ("role",)
            yield name, lambda owner=owner, method=method, role=role: kafka.call(owner, method, *role, on=own)  # type: ignore[misc]
        elif name == "record producer":
            yield name, lambda: kafka.call("connect.runtime.Worker", "baseProducerConfigs", "name", "client", *made_for)
        elif name == "framework offsets consumer":
            method = "regularSourceOffsetsConsumerConfigs"
            yield name, lambda method=method: kafka.call("connect.runtime.Worker", method, "name", "client", *made_for)  # type: ignore[misc]
        else:
            yield name, lambda: kafka.call("connect.runtime.Worker", "adminConfigs", "name", "client", *made_for, *more)


# What Kafka's methods add beside settings: names, and objects that MirrorMaker hands over.
_NAMES = ("client.id", "metrics.context.", "group.id", "key.", "value.", "plugin.path")


def check_clients(kafka: Any, connector: EffectiveConnector) -> int:
    """Hold each value of each client equal with Kafka's own; return how many were compared."""
    count = 0
    for name, ask in asked(kafka, connector):
        client = connector.clients[name]
        real = {str(key): text_of(value) for key, value in dict(ask()).items() if not str(key).startswith(_NAMES)}
        names = {key for key in connector.names_of(client) if not key.startswith(_NAMES)}
        for key in sorted(names | real.keys()):
            value = connector.value_of(client, key)
            definition = connector.definition_of(client, key)
            if value is None:  # no such key, or one that this client never looks at
                assert definition is None or key.startswith(("sasl.", "ssl.")), (name, key, real)
                continue
            kind = definition.type if definition else ""
            expected = real.get(key, definition.default if definition else None)
            assert expected is not None, (name, key)
            assert meaning_of(key, value.value, kind) == meaning_of(key, expected, kind), (name, key, connector.config)
            count += 1
    return count


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_own_values(kafka: Any, connector: EffectiveConnector) -> int:
    """Hold the values of the connector itself equal with those that its own config class parses."""
    class_name = f"Mirror{connector.type.capitalize()}Config"
    own = getattr(kafka.packages.connect.mirror, class_name)(kafka.map(dict(connector.connector.config)))
    values = dict(own.values())
    count = 0
    for key in values.keys() & set(load().names(connector.type, connector.version)):
        definition = load().find(connector.type, key, connector.version)
        value = connector.own_value(key)
        if definition is None or value is None or definition.type == "class" or key in CLUSTER_KEYS:
            continue
        real = values[key]
        text = ",".join(map(str, real)) if definition.type == "list" and real is not None else text_of(real)
        assert meaning_of(key, value.value, definition.type) == meaning_of(key, text, definition.type), key
        count += 1
    return count


@pytest.mark.parametrize("version", ["3.6.2", "4.3.1"])
def test_each_client_gets_what_kafkas_own_classes_give_it(version: str) -> None:
    from mm2mgr.sandbox.runtime import find_java
    from tools.kafka_keys.definitions import KafkaClasses, gateway
    from tools.kafka_keys.generate import jars

    dice, clients, own = random.Random(version), 0, 0
    with gateway(find_java().java, jars(version)) as opened:
        kafka = KafkaClasses(opened)
        for _ in range(60):
            for type_ in CLIENTS:
                config, workers = drawn(dice, type_)
                connector = FoundConnector("name", config["connector.class"], config)
                subject = effective(connector, version, FoundWorkers(workers, version))
                clients += check_clients(kafka, subject)
                own += check_own_values(kafka, subject)
    assert clients > 2_000
    assert own > 1_000


@pytest.mark.parametrize("version", ["3.6.2", "4.3.1"])
def test_two_configs_differ_where_kafkas_own_classes_see_a_difference(version: str) -> None:
    """Pairs of configs with a key or two between them: each client that Kafka gives another value is named, and no other."""
    from mm2mgr.sandbox.runtime import find_java
    from tools.kafka_keys.definitions import KafkaClasses, gateway
    from tools.kafka_keys.generate import jars

    dice, named = random.Random(version), 0
    with gateway(find_java().java, jars(version)) as opened:
        kafka = KafkaClasses(opened)
        for _ in range(60):
            for type_ in CLIENTS:
                config, workers = drawn(dice, type_)
                other = dict(config)
                for _ in range(dice.randrange(1, 3)):
                    plain = dice.choice(sorted(KEYS.keys() - {"security.protocol"}))
                    other[dice.choice([*PREFIXES, *DEAD]) + plain] = OTHERS.get(plain, "88")
                sides = [
                    FoundConnector("name", each["connector.class"], each, workers=FoundWorkers(workers, version))
                    for each in (config, other)
                ]
                effects = [effective(side, version, side.workers) for side in sides]
                real = [{name: dict(ask()) for name, ask in asked(kafka, effect)} for effect in effects]
                expected = {
                    (name, key)
                    for name in real[0]
                    for key in real[0][name].keys() | real[1][name].keys()
                    if text_of(real[0][name].get(key)).strip() != text_of(real[1][name].get(key)).strip()
                    and effects[0].definition_of(effects[0].clients[name], key)
                    and not key.startswith(_NAMES)
                    and not is_default_on_both(effects, real, name, key)
                    and effects[0].value_of(effects[0].clients[name], key) is not None
                }
                result = compare_connectors(sides[:1], sides[1:])
                reported = {(row.client, row.key) for row in result.differences if row.client != CONNECTOR}
                assert reported == expected
                named += len(reported)
    assert named > 40


def is_default_on_both(effects: list[EffectiveConnector], real: list[dict[str, Any]], name: str, key: str) -> bool:
    """Tell whether a key that only one side writes has Kafka's default there."""
    definition = effects[0].definition_of(effects[0].clients[name], key)
    assert definition
    texts = [side[name].get(key, definition.default) for side in real]
    return len({str(meaning_of(key, text_of(text), definition.type)) for text in texts}) == 1
