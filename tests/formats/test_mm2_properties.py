"""mm2.properties becomes the connectors that MirrorMaker's own driver would start, each key with its line."""

from __future__ import annotations

import pytest

from mm2mgr.formats import properties
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.mm2_properties import Dedicated, Line, connectors, is_ignored, is_passed
from mm2mgr.truth import keys
from mm2mgr.truth.reach import CLUSTER_KEYS

TEXT = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
security.protocol = SASL_SSL
B.security.protocol = SSL
B.producer.linger.ms = 5
A.consumer.max.poll.records = 7
A.consumers = odd
A.producer.acks = 1
producer.acks = 0
offset.flush.interval.ms = 5
offset.storage.replication.factor = 1
B.offset.storage.replication.factor = 2
topics = x
groups = g
use.defaults.from = source
transforms = t
transforms.t.type = q
exactly.once.support = required
config.providers = file
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
replication.policy.separator = _
tasks.max = 3
value.converter = org.apache.kafka.connect.storage.StringConverter
A->B.enabled = true
A->B.topics = y
A->B.producer.override.acks = all
B->A.emit.heartbeats.enabled = False
"""


def of(text: str) -> dict[tuple[str, str], FoundConnector]:
    file = Dedicated(properties.read(text, "mm2.properties"))
    return {(each.name.partition(" ")[0], str(each.type)): each for each in connectors(file)}


def line(key: str) -> int:
    return next(number for number, text in enumerate(TEXT.split("\n"), 1) if text.startswith(f"{key} ="))


def test_each_layer_of_a_connector() -> None:
    config = of(TEXT)["A->B", "source"].config
    assert {
        "name": "MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "topics": "y",
        "tasks.max": "3",
        "replication.policy.separator": "_",
        "source.cluster.bootstrap.servers": "a:9092",
        "source.cluster.security.protocol": "SASL_SSL",
        "target.cluster.security.protocol": "SSL",
        "source.consumer.max.poll.records": "7",
        "source.consumers": "odd",
        "source.producer.acks": "1",
        "target.producer.linger.ms": "5",
        "producer.override.linger.ms": "5",
        "producer.override.acks": "all",
    }.items() <= config.items()
    left_out = {"enabled", "use.defaults.from", "transforms.t.type", "producer.acks", "offset.flush.interval.ms"}
    assert not left_out & config.keys()
    assert "security.protocol" not in config  # its copy on the connector reaches no client


def test_every_derived_key_knows_its_line() -> None:
    derived = of(TEXT)["A->B", "source"]
    places = {key: entry.line for key, entry in derived.lines.items()}
    assert places["topics"] == line("A->B.topics")
    assert places["source.cluster.security.protocol"] == line("security.protocol")
    assert places["target.admin.security.protocol"] == line("B.security.protocol")
    assert places["producer.override.linger.ms"] == line("B.producer.linger.ms")
    assert derived.lines["source.consumer.max.poll.records"].key == "A.consumer.max.poll.records"
    assert derived.line == line("A->B.enabled")


def test_the_workers_are_the_targets() -> None:
    workers = of(TEXT)["A->B", "source"].workers
    assert workers
    worker = workers.properties
    assert {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SSL",
        "producer.linger.ms": "5",
        "offset.storage.replication.factor": "1",  # a top-level line outranks the cluster's here
        "offset.storage.topic": "mm2-offsets.A.internal",
        "group.id": "A-mm2",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }.items() <= worker.items()
    assert "offset.flush.interval.ms" not in worker


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("A->B.enabled = true", {"A->B": 3, "B->A": 1}),
        ("A->B.enabled = TRUE", {"A->B": 3, "B->A": 1}),
        ("A->B.enabled = yes", {"A->B": 1, "B->A": 1}),
        ("", {"A->B": 1, "B->A": 1}),
        ("emit.heartbeats.enabled = false", {}),
        ("emit.heartbeats.enabled = false\nA->B.enabled = true", {"A->B": 3}),
        ("emit.heartbeats.enabled = false\nB->A.emit.heartbeats.enabled = true", {"B->A": 1}),
        ("B->A.emit.heartbeats.enabled = false\nA->B.enabled = true", {"A->B": 3}),
    ],
)
def test_which_pairs_run(lines: str, expected: dict[str, int]) -> None:
    found = of(f"clusters = A, B\n{lines}")
    counts = {pair: sum(1 for each, _ in found if each == pair) for pair, _ in found}
    assert counts == expected
    assert all((pair, "heartbeat") in found for pair in expected)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("topics", True),
        ("tasks.max", True),
        ("replication.policy.separator", True),
        ("config.providers.file.class", True),
        ("consumer.poll.timeout.ms", True),
        ("transforms", True),
        ("transforms.x.type", False),
        ("use.defaults.from", False),
        ("topic.creation.default.partitions", False),
        ("exactly.once.support", False),
        ("producer.acks", False),
        ("source.consumer.fetch.max.bytes", False),
        ("offset.flush.interval.ms", False),
    ],
)
def test_what_is_passed_on(key: str, expected: bool) -> None:
    assert is_passed(key) is expected


@pytest.mark.parametrize(
    "key", ["bootstrap.servers", "ssl.truststore.location", "clusters", "rest.advertised.port", "offset.storage.topic"]
)
def test_what_the_driver_reads_itself_is_not_ignored(key: str) -> None:
    assert not is_ignored(key)


@pytest.mark.parametrize(
    ("key", "aliases", "plain"),
    [
        ("source.bootstrap.servers", ("source",), "bootstrap.servers"),
        ("source.consumer.max.poll.records", ("source",), "consumer.max.poll.records"),
        ("source->target.topics", ("source", "target"), "topics"),
        ("source.cluster.alias", (), "source.cluster.alias"),  # the driver passes it on, whatever clusters are called
        ("us.bootstrap.servers", ("us",), "bootstrap.servers"),
        ("us.west.bootstrap.servers", ("us.west",), "bootstrap.servers"),
        ("source->us.west.topics", ("source", "us.west"), "topics"),
        ("task.bootstrap.servers", ("task",), "bootstrap.servers"),
        ("task.shutdown.graceful.timeout.ms", (), "task.shutdown.graceful.timeout.ms"),
        ("topics.exclude", (), "topics.exclude"),
        ("my.own.key", (), "my.own.key"),
        # Of no cluster that is listed.
        ("A.bootstrap.servers", ("A",), "bootstrap.servers"),
        ("us.east.producer.acks", ("us",), "east.producer.acks"),
        ("A->us.east.enabled", ("A", "us.east"), "enabled"),
        ("us-west->us-east.topics", ("us-west", "us-east"), "topics"),
        ("dc1.offset.storage.topic", ("dc1",), "offset.storage.topic"),
    ],
)
def test_whose_line_it_is(key: str, aliases: tuple[str, ...], plain: str) -> None:
    file = Dedicated(properties.read(f"clusters = source, target, us, us.west, task\n{key} = x", "f"))
    assert (file.lines[key].aliases, file.lines[key].plain) == (aliases, plain)


OTHERS = """\
clusters = source, target, us, us.west
source.bootstrap.servers = s:9092
target.bootstrap.servers = t:9092
us.bootstrap.servers = u:9092
us.west.bootstrap.servers = w:9092
us.west.alias = west
source.cluster.security.protocol = SSL
source.tasks.max = 7
source.topics = z
target.linger.ms = 50
target.producer.override.acks = 1
target.consumer.isolation.levl = read_committed
target.offset.flush.interval.ms = 5
source.consumer.max.poll.records = 7
source->target.enabled = true
source->target.source.producer.max.block.ms = 500
us->us.west.enabled = true
us->us.west.topics = x
"""


@pytest.mark.live
@pytest.mark.parametrize("text", [TEXT, OTHERS], ids=["A and B", "source, target and names within names"])
def test_the_real_driver_does_the_same(text: str) -> None:
    """MirrorMakerConfig of the newest line, asked for the same file: every connector and every worker that it makes."""
    from mm2mgr.sandbox.runtime import kafka_runtime
    from tools.kafka_keys.definitions import KafkaClasses, gateway

    line = keys.load().lines[-1]
    runtime = kafka_runtime(keys.load().releases[line])
    file = Dedicated(properties.read(text, "f"))
    made = of(text)
    with gateway(runtime.java.java, runtime.jars) as opened:
        kafka = KafkaClasses(opened)
        mirror = kafka.packages.connect.mirror
        config = mirror.MirrorMakerConfig(kafka.map({key: entry.value for key, entry in file.lines.items()}))
        names = {str(name) for name in kafka.call("connect.mirror.MirrorMakerConfig", "allConfigNames", on=config)}
        known = {name for scope in ("source", "checkpoint", "heartbeat") for name in keys.load().names(scope, line)}
        assert {name for name in known if is_passed(name)} == names
        assert {str(pair) for pair in config.clusterPairs()} == {pair for pair, _ in made}
        for (name, type_), found in made.items():
            pair = mirror.SourceAndTarget(*name.split("->"))
            class_ = kafka.type(f"connect.mirror.Mirror{type_.capitalize()}Connector")
            real = dict(kafka.call("connect.mirror.MirrorMakerConfig", "connectorBaseConfig", pair, class_, on=config))
            # Of the workers: what their producers get reaches the records.
            mine = {key: value for key, value in found.config.items() if not is_of_records(found.lines.get(key), key)}
            assert mine == {key: value for key, value in real.items() if key != "enabled" and key not in CLUSTER_KEYS}
            assert found.workers
            assert dict(found.workers.properties) == dict(config.workerConfig(pair))


def is_of_records(line: Line | None, key: str) -> bool:
    return key.startswith("producer.override.") and line is not None and len(line.aliases) == 1
