"""What the comparison of two sets of connectors reports: the client and the key that differ, and nothing for what does nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.formats.connectors import FoundConnector, FoundWorkers
from mm2mgr.formats.recognise import read_file
from mm2mgr.imports.equivalence import CONNECTOR, Equivalence, compare_connectors
from mm2mgr.json_values import to_json

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
SOURCE = {
    **{"name": "orders", "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"},
    **{"source.cluster.alias": "dc1", "target.cluster.alias": "agg", "topics": "orders,logs[.].*", "tasks.max": "4"},
    **{"source.cluster.bootstrap.servers": "dc1-k1:9092", "target.cluster.bootstrap.servers": "agg-k1:9092"},
    **dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES),
    **{"producer.override.linger.ms": "100", "producer.override.bootstrap.servers": "agg-k1:9092"},
}
CHECKPOINT = {
    **{key: value for key, value in SOURCE.items() if not key.startswith("producer.")},
    **{"name": "offsets", "connector.class": "MirrorCheckpointConnector", "groups": "app-.*"},
}


def found(config: dict[str, str], workers: FoundWorkers | None = None) -> FoundConnector:
    return FoundConnector(config["name"], config["connector.class"], config, workers=workers)


def rows(result: Equivalence) -> list[tuple[str, str]]:
    return [(row.client, row.key) for row in result.differences]


def compared(changes: dict[str, str | None], config: dict[str, str], kafka: str | None = "4.3.1") -> Equivalence:
    """Compare a connector with itself after some of its keys have changed; None removes one."""
    after = {key: value for key, value in {**config, **changes}.items() if value is not None}
    return compare_connectors([found(config)], [found(after)], kafka)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"producer.override.linger.ms": "0100"}, []),
        ({"producer.override.linger.ms": "99"}, [("record producer", "linger.ms")]),
        ({"producer.override.linger.ms": None}, [("record producer", "linger.ms")]),
        ({"producer.override.acks": "all"}, []),  # as Connect sets it
        ({"producer.override.acks": "1"}, [("record producer", "acks")]),
        ({"producer.override.liger.ms": "1"}, []),  # no producer knows it
        ({"consumer.override.fetch.max.bytes": "1"}, []),  # this client is not there
        ({"producer.linger.ms": "7"}, [("offset-syncs producer", "linger.ms")]),
        ({"target.producer.linger.ms": "7"}, []),
        ({"source.cluster.client.rack": "r1"}, []),
        ({"source.consumer.client.rack": "r1"}, [("source consumer", "client.rack")]),
        ({"source.consumer.group.id": "g"}, []),
        ({"linger.ms": "1", "security.protocol": "SSL"}, []),
        ({"source.consumer.fetch.max.bytes": "52428800"}, []),  # Kafka's default
        ({"admin.retries": "7"}, [(f"{name} admin", "retries") for name in ("source", "target", "offset-syncs")]),
        ({"topics": "logs[.].*, orders"}, []),
        ({"topics": "orders|logs\\..*"}, []),
        ({"topics": "orders,logs..*"}, [(CONNECTOR, "topics")]),
        ({"topics.blacklist": "x"}, []),  # 4.0 does not read it any more
        ({"topics.exclude": "x"}, [(CONNECTOR, "topics.exclude")]),
        ({"tasks.max": "5"}, [(CONNECTOR, "tasks.max")]),
        ({"replication.policy.separator": "."}, []),
        ({"replication.policy.separator": "_"}, [(CONNECTOR, "replication.policy.separator")]),
        ({"refresh.topics.enabled": "TRUE"}, []),
        ({"value.converter": "ByteArrayConverter"}, []),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, [(CONNECTOR, "value.converter")]),
        ({"value.converter.schemas.enable": "true"}, []),
        ({"transforms.drop.type": "x"}, []),  # `transforms` does not list it
        (
            {"transforms": "drop", "transforms.drop.type": "org.apache.kafka.connect.transforms.DropHeaders"},
            [(CONNECTOR, "transforms"), (CONNECTOR, "transforms.drop.type")],
        ),
        ({"emit.offset-syncs.enabled": "false"}, None),
        ({"source.cluster.sasl.mechanism": "PLAIN", "source.cluster.ssl.keystore.location": "/k"}, []),  # PLAINTEXT
        ({"mm2mgr.owner": "team"}, []),
        ({"replication.policy.class": "com.example.Policy", "com.example.rule": "x"}, None),
        ({"name": "other"}, [(CONNECTOR, "name")]),
    ],
)
def test_a_change_is_reported_where_it_counts(
    changes: dict[str, str | None], expected: list[tuple[str, str]] | None
) -> None:
    result = compared(changes, SOURCE)
    if expected is not None:
        assert rows(result) == expected
    assert result.outcome == ("equal" if expected == [] else "differs")
    assert not result.open


def test_a_switched_off_sync_takes_its_clients_along() -> None:
    result = compared({"emit.offset-syncs.enabled": "false"}, SOURCE)
    assert rows(result)[0] == (CONNECTOR, "emit.offset-syncs.enabled")
    assert {("offset-syncs producer", ""), ("offset-syncs admin", "")} <= set(rows(result))


def test_a_class_of_others_may_read_any_key() -> None:
    other = {**SOURCE, "replication.policy.class": "com.example.Policy"}
    assert rows(compared({"com.example.rule": "x"}, other)) == [(CONNECTOR, "com.example.rule")]
    reporter = {**SOURCE, "source.consumer.metric.reporters": "com.example.Reporter"}
    assert rows(compared({"source.consumer.reporter.url": "x"}, reporter)) == [("source consumer", "reporter.url")]


def test_one_key_may_reach_several_clients() -> None:
    assert rows(compared({"consumer.client.rack": "r1"}, CHECKPOINT)) == [
        ("offset-syncs consumer", "client.rack"),
        ("checkpoints consumer", "client.rack"),
    ]


def test_old_names_count_where_the_version_reads_them() -> None:
    before = [found({**SOURCE, "topics.blacklist": "x"})]
    assert compare_connectors(before, [found({**SOURCE, "topics.exclude": "x"})], "3.9.1").outcome == "equal"
    assert compare_connectors(before, [found(SOURCE)], "4.0.0").outcome == "equal"
    both = compare_connectors(before, [found(SOURCE)])
    assert (both.outcome, [(row.client, row.key) for row in both.open]) == ("open", [(CONNECTOR, "topics.exclude")])
    assert "all known lines" in both.assumptions[-1]


def test_another_version_of_the_workers_brings_other_defaults() -> None:
    before = found(SOURCE, FoundWorkers({}, version="3.6.2"))
    after = found(SOURCE, FoundWorkers({}, version="4.3.1"))
    result = compare_connectors([before], [after])
    differing = {(row.client, row.key): (row.old, row.new) for row in result.differences}
    assert differing[CONNECTOR, "topics.exclude"] == (
        r".*[\-\.]internal,.*\.replica,__.*",
        r"mm2.*\.internal,.*\.replica,__.*",
    )
    assert differing["offset-syncs producer", "linger.ms"] == ("0", "5")
    assert ("record producer", "linger.ms") not in differing  # both have 100


def test_what_the_workers_have_is_inherited() -> None:
    def on(properties: dict[str, str], **config: str) -> FoundConnector:
        return found({**SOURCE, **config}, FoundWorkers({"group.id": "w", **properties}, version="3.9.1"))

    assert compare_connectors([on({"producer.acks": "1"})], [on({})]).differences[0].key == "acks"
    assert compare_connectors([on({"producer.linger.ms": "5"})], [on({})]).outcome == "equal"  # both override it
    without = {key: value for key, value in SOURCE.items() if key not in ("key.converter", "value.converter")}
    plain = found(without, FoundWorkers({"group.id": "w", "key.converter": _BYTES, "value.converter": _BYTES}, "3.9.1"))
    assert compare_connectors([plain], [on({})]).outcome == "equal"


def test_converters_of_unknown_workers_leave_it_open() -> None:
    result = compared({"key.converter": None}, SOURCE)
    assert (result.outcome, result.open[0].key, result.open[0].new) == (
        "open",
        "key.converter",
        "what the workers have",
    )


@pytest.mark.parametrize(
    ("policy", "version", "refused"),
    [
        ("None", "4.3.1", True),
        (None, "2.8.2", True),  # its default
        (None, "3.9.1", False),
        ("Principal", "3.9.1", True),
        ("All", "2.8.2", False),
    ],
)
def test_workers_that_refuse_overrides(policy: str | None, version: str, refused: bool) -> None:
    before = found(SOURCE, FoundWorkers({"group.id": "w"}, version, "All"))
    after = found(SOURCE, FoundWorkers({"group.id": "w"}, version, policy))
    result = compare_connectors([before], [after])
    assert (result.outcome == "differs") == refused
    if refused:
        [row] = result.differences
        assert row.key == "connector.client.config.override.policy"
        assert "refuses producer.override.bootstrap.servers, producer.override.linger.ms" in (row.new or "")


def test_connectors_of_one_pair_are_matched_by_name_then_by_topics() -> None:
    orders, logs = found({**SOURCE, "topics": "orders"}), found({**SOURCE, "name": "logs", "topics": "logs"})
    renamed = [
        replace(connector, name=f"mm2.{connector.name}", config={**connector.config, "name": f"mm2.{connector.name}"})
        for connector in (logs, orders)
    ]
    result = compare_connectors([orders, logs], renamed, "4.3.1")
    assert [(row.key, row.old, row.new) for row in result.differences] == [
        ("name", "orders", "mm2.orders"),
        ("name", "logs", "mm2.logs"),
    ]


def test_a_missing_and_an_extra_connector_differ() -> None:
    result = compare_connectors([found(SOURCE)], [found(CHECKPOINT)], "4.3.1")
    assert [(row.connector, row.old is None, row.new is None) for row in result.differences] == [
        ("orders", False, True),
        ("offsets", True, False),
    ]
    assert result.connectors == 0


SECURED = {
    **SOURCE,
    **{f"{side}.cluster.security.protocol": "SASL_SSL" for side in ("source", "target")},
}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'


def test_a_secret_that_became_a_placeholder_is_a_condition() -> None:
    key = "source.cluster.sasl.jaas.config"
    before = {**SECURED, key: JAAS.format("hunter22"), "target.cluster.ssl.key.password": "hunter33"}
    after = {**SECURED, key: JAAS.format("${env:DC1}"), "target.cluster.ssl.key.password": "${env:AGG}"}
    result = compare_connectors([found(before)], [found(after)], "4.3.1")
    assert result.outcome == "equal"
    assert {(place.placeholder, place.keys) for place in result.secrets} == {
        ("${env:DC1}", ("sasl.jaas.config",)),
        ("${env:AGG}", ("ssl.key.password",)),
    }
    shown = json.dumps(to_json(result))
    assert "hunter" not in shown
    assert "hunter" not in repr(result)


def test_a_placeholder_cannot_hold_two_secrets() -> None:
    before = {**SECURED, "source.cluster.ssl.key.password": "hunter22", "target.cluster.ssl.key.password": "hunter33"}
    after = {key: "${env:ALL}" if key.endswith("password") else value for key, value in before.items()}
    result = compare_connectors([found(before)], [found(after)], "4.3.1")
    assert result.outcome == "differs"
    assert "hunter" not in json.dumps(to_json(result))


def test_another_secret_differs_and_is_not_shown() -> None:
    before = {**SECURED, "source.cluster.sasl.jaas.config": JAAS.format("hunter22")}
    after = {**SECURED, "source.cluster.sasl.jaas.config": JAAS.format("hunter33")}
    result = compare_connectors([found(before)], [found(after)], "4.3.1")
    assert rows(result)[0] == ("source consumer", "sasl.jaas.config")
    assert "hunter" not in json.dumps(to_json(result))


def test_mm2_properties_count_as_java_reads_them(tmp_path: Path) -> None:
    """A remark behind a value is part of it, and a single backslash is lost."""
    texts = {
        "old": "dc1->agg.topics = a\\.b\nagg.producer.linger.ms = 5 # five\n",
        "new": "dc1->agg.topics = a\\\\.b\nagg.producer.linger.ms = 5\n",
    }
    sides = {}
    for name, lines in texts.items():
        file = tmp_path / f"{name}.properties"
        file.write_text(
            "clusters = dc1, agg\ndc1.bootstrap.servers = a:1\nagg.bootstrap.servers = b:1\ndc1->agg.enabled = true\n"
            + lines,
            encoding="utf-8",
        )
        sides[name] = read_file(file).connectors
    result = compare_connectors(sides["old"], sides["new"], "3.9.1")
    reported = {(row.client, row.key, row.old, row.line) for row in result.differences}
    assert (CONNECTOR, "topics", "a.b", 5) in reported
    assert ("record producer", "linger.ms", "5 # five", 6) in reported
