"""Which topics a flow carries and what they are called on the target, against Kafka's documented rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.topology import Flow, matches_nothing
from tests.spec.trees import BASE, FLOW, expanded


@cache
def flow(folder: Path, more: str = "", include: str = "'.*'") -> Flow:
    return expanded(folder, x=BASE + FLOW.replace("[t]", f"[{include}]") + more).flows[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tree")


@pytest.mark.parametrize(
    ("topic", "carried"),
    [
        ("orders", True),
        ("app.orders", True),
        ("a.orders", True),  # a hop through the own source is no cycle
        ("b", True),  # only what stands before a separator is a hop
        ("c.b", True),
        ("b.orders", False),  # came from the target
        ("c.b.orders", False),  # passed through the target
        ("bb.orders", True),
        ("__consumer_offsets", False),
        ("_schemas", True),
        (".hidden", False),
        ("mm2-offset-syncs.b.internal", False),
        ("a.checkpoints.internal", False),
        ("x-internal", False),
        ("old.replica", False),
    ],
)
def test_what_a_flow_carries(folder: Path, topic: str, carried: bool) -> None:
    assert flow(folder).carries(topic) is carried


@pytest.mark.parametrize(
    ("topic", "carried"),
    [
        ("b_orders", False),
        ("b.orders", True),
        ("mm2-offset-syncs_b_internal", False),
        ("a_checkpoints_internal", False),
    ],
)
def test_internal_names_and_hops_follow_the_separator(folder: Path, topic: str, carried: bool) -> None:
    assert flow(folder, "    separator: _\n").carries(topic) is carried


def test_the_declared_version_decides_what_is_internal(tmp_path: Path) -> None:
    new = flow(tmp_path, "    separator: _\n")
    old = expanded(
        tmp_path / "old",
        x=BASE.replace("kafka: b}", "kafka: b, version: 3.9.1}") + FLOW.replace("[t]", "['.*']") + "    separator: _\n",
    ).flows[0]
    assert [each.carries("audit_internal") for each in (new, old)] == [True, False]


def test_a_dot_at_the_end_is_no_hop(folder: Path) -> None:
    """Java's split drops what is empty at the end: `b.` has one part, so it came from nowhere."""
    assert [topic for topic in ("b.", "a.b.", "b.x") if flow(folder).carries(topic)] == ["b.", "a.b."]


def test_identity_puts_the_alias_before_all_that_ends_in_heartbeats(folder: Path) -> None:
    identity = flow(folder, "    replication_policy: identity\n    separator: _\n")
    assert identity.remote_topic("my-heartbeats") == "a_my-heartbeats"
    assert [topic for topic in ("b_heartbeats", "c_heartbeats") if identity.carries(topic)] == ["c_heartbeats"]


def test_include_and_exclude(folder: Path) -> None:
    one = flow(folder, "", "app.orders, 'logs[.].*'], exclude: ['logs[.]debug[.].*'")
    carried = ["app.orders", "appXorders", "logs.x", "logs.debug.x", "xlogs.y", "__logs"]
    assert [topic for topic in carried if one.carries(topic)] == ["app.orders", "logs.x"]


def test_identity_keeps_names_and_knows_no_cycles(folder: Path) -> None:
    identity = flow(folder, "    replication_policy: identity\n")
    assert identity.carries("b.orders")
    assert identity.remote_topic("app.orders") == "app.orders"
    assert identity.remote_topic("heartbeats") == "a.heartbeats"
    assert not identity.carries("__consumer_offsets")


def test_remote_names(folder: Path) -> None:
    assert flow(folder).remote_topic("app.orders") == "a.app.orders"
    assert flow(folder).remote_topic("heartbeats") == "a.heartbeats"
    assert flow(folder, "    separator: _\n").remote_topic("app.orders") == "a_app.orders"


def hops(topic: str, separator: str) -> list[str]:
    """The chain as DefaultReplicationPolicy walks it: source of the topic, then of the upstream topic, and so on."""
    first, found, rest = topic.partition(separator)
    return [first, *hops(rest, separator)] if found else []


@given(st.lists(st.sampled_from(["a", "b", "c", "bb", "orders"]), min_size=1, max_size=5), st.sampled_from("._"))
def test_cycles_are_found_wherever_the_target_stands(folder: Path, parts: list[str], separator: str) -> None:
    topic = separator.join(parts)
    one = flow(folder, f"    separator: {separator}\n")
    assert one.carries(topic) is ("b" not in hops(topic, separator))


@given(st.from_regex(r"[a-z][a-z.]{0,20}[a-z]", fullmatch=True))
def test_what_was_mirrored_does_not_come_back(folder: Path, topic: str) -> None:
    there = flow(folder)
    back = expanded_back(folder)
    assert not back.carries(there.remote_topic(topic))


@cache
def expanded_back(folder: Path) -> Flow:
    text = BASE.replace("kafka: b", "kafka: a") + FLOW.replace("[t]", "['.*']")
    text = text.replace("sources: [a]", "sources: [b]").replace("targets: [b]", "targets: [a]")
    return expanded(folder / "back", x=text).flows[0]


def test_a_flow_that_takes_none_of_the_topics_says_so(tmp_path: Path) -> None:
    one = flow(tmp_path, "", "'app[.].*'")
    seen = ["orders", "app-x", "b.app.x", "__consumer_offsets", ".x", "mm2-offset-syncs.b.internal"]
    assert matches_nothing(one, seen) == "topics: app[.].* matches 0 of 3 topics on a"
    assert matches_nothing(one, [*seen, "app.x"]) is None
    assert matches_nothing(one, []) == "topics: app[.].* matches 0 of 0 topics on a"
    many = flow(tmp_path, "", "p, q, r, s")
    assert matches_nothing(many, ["x"]) == "topics: p, q, r and 1 more match 0 of 1 topic on a"
