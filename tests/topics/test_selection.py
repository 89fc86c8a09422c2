"""What a source connector takes and how it names topics, against Kafka's Java code written down line by line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.topics.automaton import accepts
from mm2mgr.topics.names import (  # the machine of cycles by itself too
    NameFilter,
    PolicyName,
    Selection,
    _Cycle,
    refused_by,
)
from tests.examples import draw_examples

EVERYTHING = NameFilter((".*",), ())


class Kafka:
    """MirrorSourceConnector.shouldReplicateTopic without heartbeats, and the policies, as in Kafka 3.9 (4.0 where it differs)."""

    def __init__(self, policy: PolicyName, source: str, target: str, separator: str, *, is_4: bool) -> None:
        self.policy, self.source, self.target, self.separator, self.is_4 = policy, source, target, separator, is_4

    def split(self, topic: str) -> list[str]:
        """java.util.regex.Pattern.split of the quoted separator, limit 0."""
        if not self.separator:
            return list(topic)
        parts, index = [], 0
        for found in re.finditer(re.escape(self.separator), topic):
            parts.append(topic[index : found.start()])
            index = found.end()
        if index == 0:
            return [topic]
        parts.append(topic[index:])
        size = len(parts)
        while size > 0 and parts[size - 1] == "":
            size -= 1
        return parts[:size]

    def default_source(self, topic: str) -> str | None:
        parts = self.split(topic)
        return None if len(parts) < 2 else parts[0]

    def looks_like_heartbeat(self, topic: str) -> bool:
        return self.policy == "identity" and topic.endswith("heartbeats")

    def topic_source(self, topic: str) -> str | None:
        if self.policy == "identity" and not self.looks_like_heartbeat(topic):
            return self.source
        return self.default_source(topic)

    def upstream_topic(self, topic: str) -> str | None:
        if self.policy == "identity" and not self.looks_like_heartbeat(topic):
            return topic
        source = self.default_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def is_cycle(self, topic: str) -> bool:
        source = self.topic_source(topic)
        if source is None:
            return False
        if source == self.target:
            return True
        upstream = self.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        return self.is_cycle(upstream)

    def original_topic(self, topic: str) -> str:
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def is_internal(self, topic: str) -> bool:
        checkpoints = f"{self.separator}checkpoints{self.separator}internal"
        mine = topic.endswith(f"{self.separator}internal")
        kafkas = topic.startswith(("__", "."))
        if self.is_4:
            return (topic.startswith("mm2") and mine) or topic.endswith(checkpoints) or kafkas
        return mine or kafkas or topic.endswith(("-internal", ".internal"))

    def format_remote(self, topic: str) -> str:
        if self.policy == "identity" and not self.looks_like_heartbeat(topic):
            return topic
        return self.source + self.separator + topic


PARTS = st.sampled_from(
    ["a", "b", "A", "B", "", "t", "orders", "heartbeats", "internal", "mm2", "checkpoints", "-", "_", "x"]
)
SEPARATORS = st.sampled_from([".", "_", "-", "--", "__", "", ".-", "a"])


@st.composite
def topics(draw: st.DrawFn, separator: str) -> str:
    marks = st.sampled_from([separator, separator, separator, ".", "-", ""])
    return "".join(draw(PARTS) + draw(marks) for _ in range(draw(st.integers(1, 5))))


@pytest.mark.parametrize(
    ("topic", "separator", "is_heartbeats"),
    [
        ("heartbeats", ".", True),
        ("a.b.heartbeats", ".", True),
        ("orders-heartbeats", ".", False),
        ("a__heartbeats", "__", True),
        ("a___heartbeats", "__", False),
        ("heartbeats", "", False),
    ],
)
def test_a_topic_of_heartbeats_is_told_by_its_name_after_the_aliases(
    topic: str, separator: str, is_heartbeats: bool
) -> None:
    assert Selection(EVERYTHING, "default", "a", "b", separator, ".").is_heartbeats(topic) is is_heartbeats
    assert (Kafka("default", "a", "b", separator, is_4=True).original_topic(topic) == "heartbeats") is is_heartbeats


@draw_examples(500, many=1500)
@given(st.data())
def test_what_is_taken_and_named_is_what_kafka_does(data: st.DataObject) -> None:
    policy: PolicyName = data.draw(st.sampled_from(["default", "identity"]))
    separator, source = data.draw(SEPARATORS), data.draw(st.sampled_from("aAbB"))
    target, is_4 = data.draw(st.sampled_from(["B", "b", "-B", "a"])), data.draw(st.booleans())
    topic = data.draw(topics(separator))
    kafka = Kafka(policy, source, target, separator, is_4=is_4)
    ours = Selection(EVERYTHING, policy, source, target, separator, separator, "4.0.0" if is_4 else "3.9.1")
    assert ours.is_cycle(topic) is kafka.is_cycle(topic)
    assert ours.is_internal(topic) is kafka.is_internal(topic)
    assert ours.target_name(topic) == kafka.format_remote(topic)
    is_heartbeats = kafka.original_topic(topic) == "heartbeats"
    taken = topic != "" and not kafka.is_internal(topic) and not kafka.is_cycle(topic)
    assert ours.is_heartbeats(topic) is is_heartbeats
    assert ours.takes_heartbeats(topic) is (is_heartbeats and taken)
    if topic:
        assert ours.takes(topic) is taken
        if policy == "default" or (source != target and separator not in "heartbeats"):  # not worth a machine
            assert taken is not any(accepts(machine, topic) for machine in refused_by(ours))
        assert ours.upstream(ours.target_name(topic)) == topic


@given(st.data(), SEPARATORS, st.sampled_from(["B", "-B", "b-", "a.b"]))
def test_the_machine_of_cycles_says_what_the_policy_says(data: st.DataObject, separator: str, target: str) -> None:
    parts = st.sampled_from([separator, separator, target, target[:1], "x", "-", "."])
    topic = "".join(data.draw(st.lists(parts, min_size=1, max_size=8)))
    kafka = Kafka("default", "A", target, separator, is_4=True)
    assert accepts(_Cycle(target, separator), topic) is kafka.is_cycle(topic)


def test_the_separator_of_internal_names_and_old_lines() -> None:
    own = Selection(EVERYTHING, "default", "a", "b", "_", "_", "3.9.1")
    assert [topic for topic in ("x_internal", "x.internal", "x-internal", "internal") if own.is_internal(topic)] == [
        *("x_internal", "x.internal", "x-internal")
    ]
    assert not replace(own, internal_separator=".").is_internal("x_internal")  # KIP-949
    assert not replace(own, version="3.0.2").is_internal("x_internal")  # before KIP-690
    newest = replace(own, version="")
    assert [
        t for t in ("x_internal", "mm2x_internal", "x.internal", "a_checkpoints_internal") if newest.is_internal(t)
    ] == [*("mm2x_internal", "a_checkpoints_internal")]
    assert replace(own, version="7.6.0-ccs").is_internal("x-internal")


@pytest.mark.parametrize(
    ("topic", "taken"), [("b.", True), ("a.b.", True), ("b.x", False), ("a.b.x", False), ("x.b", True)]
)
def test_a_dot_at_the_end_hides_the_alias(topic: str, *, taken: bool) -> None:
    """Java's split drops what is empty at the end, so `b.` is one part and came from nowhere."""
    assert Selection(EVERYTHING, "default", "a", "b").takes(topic) is taken


def test_a_policy_of_ones_own_knows_no_cycle_and_no_upstream() -> None:
    own = Selection(EVERYTHING, None, "a", "b")
    assert own.takes("b.x")
    assert own.upstream("a.x") is None


@pytest.mark.parametrize(
    ("one", "other", "topic", "alike"),
    [
        (("default", "A"), ("default", "A"), "t", True),
        (("default", "A"), ("default", "B"), "t", False),
        (("default", "A"), ("identity", "A"), "t", False),
        (("identity", "A"), ("identity", "B"), "t", True),
        (("identity", "A"), ("identity", "B"), "heartbeats", False),
        (("default", "A"), ("identity", "A"), "heartbeats", True),
    ],
)
def test_two_connectors_name_a_topic_alike_or_not(
    one: tuple[PolicyName, str], other: tuple[PolicyName, str], topic: str, alike: bool
) -> None:
    everything = NameFilter((".*",), ())
    first, second = (Selection(everything, policy, source, "T") for policy, source in (one, other))
    assert first.names_alike(second, topic) is alike
