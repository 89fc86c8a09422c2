"""Kafka's keys as the data file has them: facts seen elsewhere, versions, patterns, and no sentence of Kafka's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from mm2mgr.truth.keys import CLIENTS, SCOPES, Key, Keys, load, server_setting
from tools.kafka_keys.generate import DATA, releases

LINES = (
    *("2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5"),
    *("3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3"),
)
# Dots, brackets and commas of regular expressions and class names; no prose.
VALUE = re.compile(r"[\w.*\\\[\]$:<>/+{}-]*(?:,[\w.*\\\[\]$:<>/+{}-]+)*")
VALID = re.compile(r"[\w.,$\[\]:; -]{0,80}")


@pytest.fixture(scope="module")
def keys() -> Keys:
    return load()


def found(scope: str, name: str, version: str) -> Key:
    key = load().find(scope, name, version)
    assert key is not None, f"{name} of {scope} is unknown in {version}"
    return key


def lines_of(scope: str, name: str) -> tuple[str, ...]:
    history = load().history(scope, name)
    return history[0].exists_in if history else ()


def from_line(first: str) -> tuple[str, ...]:
    return LINES[LINES.index(first) :]


def until(last: str) -> tuple[str, ...]:
    return LINES[: LINES.index(last) + 1]


def test_every_supported_line_was_read_from_its_locked_release(keys: Keys) -> None:
    assert keys.lines == LINES
    assert keys.releases == releases()


@pytest.mark.parametrize(
    ("scope", "name", "lines"),
    [
        ("source", "emit.offset-syncs.enabled", from_line("3.9")),  # KIP-1031
        ("checkpoint", "emit.offset-syncs.enabled", from_line("3.9")),
        ("source", "heartbeats.replication.enabled", from_line("4.0")),  # KIP-1089
        ("source", "use.incremental.alter.configs", ("3.5", "3.6", "3.7", "3.8", "3.9")),  # KIP-894
        ("source", "add.source.alias.to.metrics", ("3.5", "3.6", "3.7", "3.8", "3.9")),
        ("source", "offset-syncs.topic.location", from_line("3.0")),  # KIP-716
        ("source", "exactly.once.support", from_line("3.3")),  # KIP-618
        ("source", "forwarding.admin.class", from_line("3.4")),  # KIP-787
        ("checkpoint", "sync.group.offsets.enabled", LINES),  # KIP-545
        ("source", "topics.exclude", LINES),  # KIP-629
        ("source", "groups", ()),  # before 3.4 one definition held the keys of all connectors
        ("checkpoint", "offset.lag.max", ()),
        ("consumer", "session.timeout.ms", LINES),
        ("source", "topics.blacklist", until("3.9")),
        ("source", "config.properties.blacklist", until("3.9")),
        ("checkpoint", "groups.blacklist", until("3.9")),
        ("checkpoint", "topics.blacklist", until("3.9")),
        ("source", "metric.names.formats", ("4.3",)),  # KIP-1280
        ("checkpoint", "metric.names.formats", ("4.3",)),
        ("heartbeat", "metric.names.formats", ()),
        ("source", "tasks.max.enforce", from_line("3.8")),  # KIP-1004
        ("source", "connector.plugin.version", from_line("4.1")),  # KIP-891
        ("source", "use.defaults.from", from_line("3.5")),
        ("source", "replication.policy.internal.topic.separator.enabled", from_line("3.6")),  # KIP-949
        ("checkpoint", "replication.factor", ()),
        ("heartbeat", "topics", ()),
        ("consumer", "group.protocol", from_line("3.7")),  # KIP-848
        ("producer", "auto.include.jmx.reporter", ("3.4", "3.5", "3.6", "3.7", "3.8", "3.9")),
        ("worker", "exactly.once.source.support", from_line("3.3")),
    ],
)
def test_a_key_exists_in(scope: str, name: str, lines: tuple[str, ...]) -> None:
    assert lines_of(scope, name) == lines


@pytest.mark.parametrize(
    ("scope", "name", "version", "default"),
    [
        ("producer", "linger.ms", "3.9.2", "0"),
        ("producer", "linger.ms", "4.0.0", "5"),
        ("producer", "batch.size", "4.3.1", "16384"),
        ("producer", "acks", "3.6.2", "all"),
        ("consumer", "auto.offset.reset", "4.3.1", "latest"),
        ("source", "topics", "4.3.1", ".*"),
        ("source", "topics.exclude", "3.9.2", r".*[\-\.]internal,.*\.replica,__.*"),
        ("source", "topics.exclude", "4.0.2", r"mm2.*\.internal,.*\.replica,__.*"),  # KIP-1074
        ("checkpoint", "topics.exclude", "4.0.2", r"mm2.*\.internal,.*\.replica,__.*"),
        ("checkpoint", "groups.exclude", "4.3.1", "console-consumer-.*,connect-.*,__.*"),
        ("source", "replication.factor", "4.3.1", "2"),
        ("source", "offset-syncs.topic.replication.factor", "4.3.1", "3"),
        ("source", "offset.lag.max", "3.6.2", "100"),
        ("source", "sync.topic.acls.enabled", "4.3.1", "true"),
        ("checkpoint", "sync.group.offsets.enabled", "4.3.1", "false"),
        ("heartbeat", "emit.heartbeats.interval.seconds", "4.3.1", "1"),
        ("source", "metric.names.formats", "4.3.1", "legacy"),
        ("source", "use.defaults.from", "3.6.2", "target"),
        ("source", "enabled", "4.3.1", "true"),
        ("worker", "offset.flush.interval.ms", "4.3.1", "60000"),
        ("worker", "connector.client.config.override.policy", "2.8.2", "None"),
        ("worker", "connector.client.config.override.policy", "3.0.2", "All"),  # KIP-722
        ("worker", "connector.client.config.override.policy", "4.3.1", "All"),
    ],
)
def test_a_default(scope: str, name: str, version: str, default: str) -> None:
    assert found(scope, name, version).default == default


def test_all_facts_of_one_key() -> None:
    assert found("source", "offset-syncs.topic.location", "4.3.1") == Key(
        scope="source",
        name="offset-syncs.topic.location",
        type="string",
        default="source",
        required=False,
        valid="[source, target]",
        importance="low",
        lines=from_line("3.0"),
        exists_in=from_line("3.0"),
        read_by="",
        internal=False,
        typed=False,
        deprecated=False,
    )


def test_where_facts_change_there_is_one_value_for_each_span(keys: Keys) -> None:
    history = keys.history("producer", "linger.ms")
    assert [(key.default, key.lines) for key in history] == [("0", until("3.9")), ("5", from_line("4.0"))]
    assert all(key.exists_in == LINES for key in history)


def test_required_null_and_empty_are_told_apart() -> None:
    alias, converter, transforms = (
        found("source", name, "4.3.1") for name in ("source.cluster.alias", "key.converter", "transforms")
    )
    assert (alias.required, alias.default) == (True, None)
    assert (converter.required, converter.default) == (False, None)
    assert (transforms.required, transforms.default) == (False, "")


def test_choices_and_their_case() -> None:
    assert found("producer", "acks", "4.3.1").choices == ("all", "-1", "0", "1")
    assert not found("producer", "acks", "4.3.1").any_case
    protocol = found("source", "security.protocol", "4.3.1")
    assert protocol.choices == ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
    assert protocol.any_case
    assert found("producer", "compression.gzip.level", "4.3.1").choices == ()  # "[1,...,9] or -1" is a range
    assert found("source", "metric.names.formats", "4.3.1").choices == ("legacy", "new")


def test_kip_1161_is_in_the_validity_of_lists() -> None:
    assert "not null" in found("source", "topics", "4.2.0").valid  # an empty list stays allowed
    assert "not empty" not in found("source", "topics", "4.2.0").valid
    assert found("source", "topics", "4.2.0").valid.endswith("no doubles")
    assert found("source", "topics", "4.1.2").valid == ""
    assert found("source", "metric.names.formats", "4.3.1").valid.endswith("not empty; not null; no doubles")


def test_keys_outside_the_connectors_definition_name_their_reader(keys: Keys) -> None:
    readers = {name: found("checkpoint", name, "4.3.1").read_by for name in ("topics", "topics.exclude", "groups")}
    assert readers == {"topics": "DefaultTopicFilter", "topics.exclude": "DefaultTopicFilter", "groups": ""}
    assert found("source", "use.defaults.from", "4.3.1").read_by == "DefaultConfigPropertyFilter"
    by_hand = {name for scope in SCOPES for name in keys.names(scope) if keys.history(scope, name)[0].typed}
    assert by_hand == {"transforms.<alias>.predicate", "transforms.<alias>.negate", "emit.offset-syncs.enabled"}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("transforms.route.type", "transforms.<alias>.type"),
        ("transforms.route.predicate", "transforms.<alias>.predicate"),
        ("predicates.old.type", "predicates.<alias>.type"),
        ("topic.creation.big.partitions", "topic.creation.<group>.partitions"),
        ("topic.creation.default.partitions", "topic.creation.default.partitions"),
    ],
)
def test_a_name_with_a_chosen_part_is_found(name: str, known: str) -> None:
    assert found("source", name, "4.3.1").name == known


def test_a_group_of_topics_takes_the_default_groups_numbers_but_the_default_group_must_give_them() -> None:
    assert not found("source", "topic.creation.big.partitions", "4.3.1").required
    assert found("source", "topic.creation.default.partitions", "4.3.1").required


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("3.9.2", "3.9"),
        ("4.0", "4.0"),
        ("4.3.1-rc0", "4.3"),
        ("4.10.0", "4.3"),
        ("5.0.0", "4.3"),
        ("2.8.0", "2.8"),
        ("2.9", "2.8"),
    ],
)
def test_a_version_is_judged_by_its_line_or_the_nearest_before(keys: Keys, version: str, line: str) -> None:
    assert keys.line(version) == line


@pytest.mark.parametrize("version", ["2.6.3", "2.5", "0.11.0.3"])
def test_a_version_before_the_oldest_line_is_judged_by_no_other_line(keys: Keys, version: str) -> None:
    assert not keys.knows(version)
    with pytest.raises(ValueError, match=rf"Kafka {version} is not known: 2.7 to 4.3 are"):
        keys.line(version)


def test_a_version_that_is_none_is_refused(keys: Keys) -> None:
    with pytest.raises(ValueError, match="not a Kafka version: 'latest'"):
        keys.line("latest")


def test_deprecated_keys() -> None:
    keys = load()
    found_now = {name for name in keys.names("source", "4.3") if found("source", name, "4.3").deprecated}
    assert found_now == {"tasks.max.enforce", "metric.names.formats"}
    assert found("source", "topics.blacklist", "3.9").deprecated


def test_nearest(keys: Keys) -> None:
    assert keys.nearest("sync.topic.config.enabled", "source") == "sync.topic.configs.enabled"
    assert keys.nearest("linger", "producer") == "linger.ms"
    assert keys.nearest("retention.bytes", "heartbeat") is None
    assert keys.nearest("metric.name.formats", "source", "4.3.1") == "metric.names.formats"
    assert keys.nearest("metric.name.formats", "source", "4.2.0") is None
    assert keys.find("source", "metric.name.formats", "4.3.1") is None


def test_what_the_framework_sets_on_its_clients(keys: Keys) -> None:
    for version in LINES:
        producer = keys.framework_defaults("record_producer", version)
        old = version in ("2.7", "2.8")
        assert {name: producer[name] for name in producer if not name.endswith("serializer")} == {
            "acks": "all",
            **({"request.timeout.ms": str(2**31 - 1)} if old else {"enable.idempotence": "false"}),
            "max.in.flight.requests.per.connection": "1",
            "delivery.timeout.ms": str(2**31 - 1),
            "max.block.ms": str(2**63 - 1),
        }
        exactly_once = keys.framework_defaults("record_producer_exactly_once", version)
        assert exactly_once.get("enable.idempotence") == ("true" if version in from_line("3.3") else None)
        reads = {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        assert keys.framework_defaults("source_consumer", version) == reads
        assert keys.framework_defaults("target_consumer", version) == ({} if old else reads)


@pytest.mark.parametrize(("clients", "scope"), [(CLIENTS[:2], "producer"), (CLIENTS[2:], "consumer")])
def test_what_the_framework_sets_are_keys_of_that_client(keys: Keys, clients: tuple[str, ...], scope: str) -> None:
    for client in clients:
        names = keys.framework_defaults(client, "4.3.1")
        assert names
        assert all(keys.find(scope, name, "4.3.1") for name in names)


def rows() -> list[tuple[str, dict[str, Any]]]:
    data = json.loads(DATA.read_text())
    scopes = {**data["keys"], **data["clients"]}
    return [(name, row) for names in scopes.values() for name, each in names.items() for row in each]


def test_no_documentation_is_in_the_data() -> None:
    assert set(json.loads(DATA.read_text())) == {"kafka", "keys", "clients", "classes"}
    parts = {"in", "type", "default", "valid", "importance", "read_by", "internal", "typed", "deprecated", "value"}
    for name, row in rows():
        assert set(row) <= parts
        assert re.fullmatch(r"[a-z][a-z0-9.<>_-]*", name)
        assert VALUE.fullmatch(row.get("default") or row.get("value") or ""), f"{name}: {row}"
        assert VALID.fullmatch(row.get("valid", "")), f"{name}: {row}"
        words = re.sub(r"\[.*?\]", "", row.get("valid", "")).split()
        assert len(words) <= 7, f"{name}: {row}"
        assert re.fullmatch(r"\d\.\d(-\d\.\d)?", row["in"])
    types = {"string", "int", "short", "long", "double", "boolean", "list", "class", "password"}
    assert {row["type"] for _, row in rows() if "type" in row} == types
    assert {row["importance"] for _, row in rows() if "importance" in row} == {"high", "medium", "low"}


def test_the_patterns_refuse_prose() -> None:
    assert not VALUE.fullmatch("The number of acknowledgments the producer requires")
    assert not VALID.fullmatch("non-empty string (and more of it)")


def test_asking_loads_nothing_heavy() -> None:
    code = "import sys; from mm2mgr.truth.keys import load; load().find('producer', 'acks', '4.3'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"pydantic", "py4j", "pyspark", "mm2mgr.sandbox"} & set(done.stdout.split())


def test_settings_of_topics_and_brokers_are_known_by_name() -> None:
    assert server_setting("retention.ms") == server_setting("min.insync.replicas") == "topic"
    assert server_setting("log.retention.hours") == "broker"
    assert {server_setting(name) for name in ("fetch.max.bytes", "compression.type", "listeners", "retention.s")} == {
        None
    }
