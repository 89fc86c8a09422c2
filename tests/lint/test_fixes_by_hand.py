"""Fixes that are left to people since they would change what is mirrored, with what that costs; and those a machine makes beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mm2mgr.lint.findings import SEVERITIES
from mm2mgr.lint.fixing import Healed, heal
from mm2mgr.lint.reading import read_files
from tests.lint import made

BASE = {"name": "mirror", **made.OWN["source"], **made.PAIR, **made.CONVERTERS, **made.DECIDED}
DRIVEN = "clusters = A, B\nA.bootstrap.servers = a1:9092\nB.bootstrap.servers = b1:9092\nA->B.enabled = true\nA->B.topics = orders\n"


def mend(folder: Path, text: str, name: str = "mm2.properties") -> tuple[str, Healed]:
    """Return the text after all fixes that a machine applies."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    healed = heal(
        {str(path): text.encode()}, lambda contents: read_files([path], contents=contents), severities=SEVERITIES[:2]
    )
    return healed.contents.get(str(path), text.encode()).decode(), healed


def mend_connector(folder: Path, changes: made.Changes) -> tuple[dict[str, str], dict[str, str]]:
    """Return a connector's config after all fixes, and of each rule whose finding is left why."""
    config = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    text, healed = mend(folder, json.dumps(config, indent=1), "mirror.json")
    return json.loads(text), {finding.rule: why for finding, why in healed.left if finding.severity != "info"}


@pytest.mark.parametrize(
    ("changes", "rule", "cost"),
    [
        ({"topics": " "}, "empty-topics", ""),
        ({"topics": "orders*"}, "glob-not-regex", "other topics would be mirrored: 'ordersx', and no longer 'order'"),
        ({"topics": "pay.orders"}, "pattern-dot", ""),
        ({"enabled": "false"}, "enabled-false", "mirror is switched off and would start"),
        ({"topics": None, "topics.whitelist": "orders"}, "other-tools-key", "topics such as 'x' would no longer be mirrored"),
        ({"topics": None, "topicsPattern": "orders"}, "other-tools-key", "topics such as 'x' would no longer be mirrored"),
        ({"topics": None, "topcis": "orders"}, "unknown-key", "topics such as 'x' would no longer be mirrored"),
        ({"source.cluster.alias": "us.west"}, "alias-has-separator", "all of them are mirrored again under these"),
        ({"replication.policy.separator": ""}, "alias-has-separator", "all of them are mirrored again under these"),
        ({"replication.policy.separator": "", "source.cluster.alias": ""}, "alias-blank", ""),
        ({"replication.policy.source.prefix": "my-topic"}, "unknown-key", ""),
        ({"source.cluster.producer.sasl.jaas.config": "${file:/c/a:jaas}"}, "dead-key", "the source admin and 1 more would log in otherwise"),
        ({"auto.offset.reset": "latest"}, "dead-key", "would be read from elsewhere on"),
        ({"source.consumer.group.id": "x"}, "forced-key", "where this group committed offsets"),
        ({"name": "mirror "}, "blank-in-value", "offsets are stored by the connector's name"),
    ],
)  # fmt: skip
def test_what_changes_what_is_mirrored_is_left_with_its_price(
    tmp_path: Path, changes: made.Changes, rule: str, cost: str
) -> None:
    config, left = mend_connector(tmp_path, changes)
    assert config == {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    if rule != "pattern-dot":  # a hint, which is not applied anyway
        assert cost in left[rule]
        assert bool(cost) == left[rule].startswith("to be done by hand, as it changes what is mirrored: ")


def test_null_topics_are_not_taken_for_all(tmp_path: Path) -> None:
    text = json.dumps({**BASE, "topics": None})
    assert mend(tmp_path, text, "mirror.json")[0] == text


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset-syncs.topic.retention.ms", "604800000"), ("checkpoints.topic.retention.ms", "604800000")],
)
def test_a_setting_of_an_internal_topic_is_removed_and_not_renamed(tmp_path: Path, key: str, value: str) -> None:
    assert mend_connector(tmp_path, {key: value})[0] == BASE


@pytest.mark.parametrize(
    ("key", "right", "value"),
    [
        ("task.max", "tasks.max", "4"),
        ("refresh.topic.interval.seconds", "refresh.topics.interval.seconds", "60"),
        ("source.consumer.max.pol.records", "source.consumer.max.poll.records", "700"),
        ("tasksmax", "tasks.max", "4"),
    ],
)
def test_a_slip_of_the_pen_is_corrected(tmp_path: Path, key: str, right: str, value: str) -> None:
    config, left = mend_connector(tmp_path, {"tasks.max": None, key: value})
    assert config[right] == value
    assert key not in config
    assert left == {}


def test_a_slip_whose_right_key_would_bring_another_fault_is_left(tmp_path: Path) -> None:
    """To remove it would hide what was meant."""
    config, left = mend_connector(tmp_path, {"config.property.exclude": "retention.ms"})
    assert config == {**BASE, "config.property.exclude": "retention.ms"}
    assert "exclude-replaced" in left["unknown-key"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("task.max", "many"),  # no value for tasks.max
        ("source.consumer.request.timeout.s", "30"),  # seconds are no milliseconds
        ("target.admin.reconnect.backoff.seconds", "3"),
    ],
)
def test_a_neighbour_is_not_a_slip_of_the_pen(tmp_path: Path, key: str, value: str) -> None:
    config, _ = mend_connector(tmp_path, {key: value})
    assert config in ({**BASE}, {**BASE, key: value})


def test_clusters_without_a_comma_get_one(tmp_path: Path) -> None:
    text = DRIVEN.replace("A, B", "A B").replace("topics = orders", "topics = orders\nA->B.tasks.max = 2")
    assert mend(tmp_path, text)[0] == text.replace("A B", "A, B")


def test_a_blank_separator_with_blank_aliases_is_left_and_says_how_names_stay(tmp_path: Path) -> None:
    text = DRIVEN + "replication.policy.separator =\nsource.cluster.alias =\ntarget.cluster.alias =\n"
    after, healed = mend(tmp_path, text)
    fixes = {finding.rule: finding.fix for finding, _ in healed.left}
    assert after == text
    assert (
        "A->B.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        in fixes["alias-blank"]
    )
    assert "A->B.tasks.max" in fixes["one-task"]


def test_the_header_that_ends_a_loop_stays(tmp_path: Path) -> None:
    guard = {
        "replication.policy.class": f"{made.MIRROR}IdentityReplicationPolicy",
        "transforms": "drop,mark",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "came",
        "predicates": "came",
        "predicates.came.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.came.name": "origin",
        "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.mark.header": "origin",
        "transforms.mark.value.literal": "A",
    }
    config, left = mend_connector(tmp_path, guard)
    assert config == {**BASE, **guard}
    assert "transform-needs-fields" in left


def test_one_alias_never_stands_for_both_ends(tmp_path: Path) -> None:
    """A fix of one connector is compared with the findings of that connector, not with those of another one."""
    there = {"name": "one", "source.cluster.alias": "far", "target.cluster.alias": "near"}
    back = {
        **{"name": "two", "source.cluster.alias": "far", "target.cluster.alias": "near"},
        **{"source.cluster.bootstrap.servers": "b1:9092", "target.cluster.bootstrap.servers": "a1:9092"},
        "producer.override.bootstrap.servers": "a1:9092",
    }
    text = json.dumps([{**BASE, **there, "topics": ".*"}, {**BASE, **back, "topics": ".*"}])
    after, healed = mend(tmp_path, text, "both.json")
    assert after == text
    assert {"loop", "alias-reused"} <= {finding.rule for finding, _ in healed.left}


def test_a_misspelt_password_stays_and_a_misspelt_number_does_not(tmp_path: Path) -> None:
    text = DRIVEN + "A.security.protocol = SSL\nA.ssl.truststore.pasword = geheim99\nB.consumer.max.pol.records = 700\n"
    after, healed = mend(tmp_path, text)
    assert after == text.replace("pol.records", "poll.records")
    assert "unknown-key" in {finding.rule for finding, _ in healed.left}


def test_a_lost_backslash_in_topics_is_left_and_one_elsewhere_is_doubled(tmp_path: Path) -> None:
    """Kafka reads `a\\.b` as a.b, which takes axb too: the reader's repaired value is not what is mirrored."""
    text = DRIVEN.replace("orders", r"shop\.orders") + "A->B.config.properties.exclude = retention\\.ms\n"
    after, healed = mend(tmp_path, text)
    assert r"A->B.topics = shop\.orders" in after
    assert any("no longer be mirrored" in why for finding, why in healed.left if finding.rule == "lost-backslash")
