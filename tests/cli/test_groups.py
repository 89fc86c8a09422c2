"""`groups` as people type it: lag, members, translated or not, filters, and what could not be read."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.failover.syncs import CheckpointLog
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import GroupState
from mm2mgr.live.questions import CheckpointRecords, CommittedOffsets, MemberCounts, PartitionEnds
from mm2mgr.partitions import Offsets, TopicPartition
from tests.failover.fake_pair import FakeCluster, FakePair, checkpoint
from tests.plan.site import Site

from .command import Command

FLOWS = """\
flows:
  orders: {sources: [a], targets: [east, west], topics: {include: [orders, payments]}, checkpoints: {enabled: true}}
"""
ORDERS, PAYMENTS, OTHER = (TopicPartition(topic, 0) for topic in ("orders", "payments", "other"))
CHECKPOINTS = TopicPartition("a.checkpoints.internal", 0)


class Estate:
    """Source `a` with three groups, mirrored to `east`, which has their checkpoints, and to `west`, which has none."""

    def __init__(self, site: Site, mm2mgr: Command) -> None:
        self.mm2mgr, self.site = mm2mgr, site
        self.source = FakeCluster(
            {ORDERS: Offsets(0, 1_000), PAYMENTS: Offsets(0, 50), OTHER: Offsets(0, 70)},
            commits={
                "billing": {ORDERS: 600, PAYMENTS: 20, OTHER: 0},
                "audit": {ORDERS: 1_000},
                "elsewhere": {OTHER: 10},
                "console-consumer-7": {PAYMENTS: 49},
                "idle": {},
            },
            states={"billing": GroupState("STABLE")},
            members={"billing": 3},
        )
        at = time.time() - 120
        self.east = FakeCluster(
            {CHECKPOINTS: Offsets(0, 9), TopicPartition("a.orders", 0): Offsets(0, 900)},
            commits={"reports": {TopicPartition("a.orders", 0): 890}},
            checkpoints=CheckpointLog(
                {
                    checkpoint("billing", "a.orders", 600, 500): at,
                    checkpoint("audit", "a.orders", 1_000, 900): at,
                }
            ),
        )
        self.west = FakeCluster({TopicPartition("a.orders", 0): Offsets(0, 900)})
        self.pair = FakePair({"a": self.source, "east": self.east, "west": self.west})
        self.pair.serve(site.patch)
        site.declare(FLOWS)

    def groups(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        report = self.mm2mgr("groups", *arguments, "-o", "json", code=code).json
        return {group["group"]: group for group in report["groups"]}

    def text(self, *arguments: str, code: int = 0) -> str:
        return self.mm2mgr("groups", *arguments, code=code).out


@pytest.fixture
def estate(site: Site, mm2mgr: Command) -> Estate:
    return Estate(site, mm2mgr)


def words(group: dict[str, Any]) -> dict[str, str]:
    return {target["target"]: target["translated"] for target in group["targets"]}


def test_groups_that_read_mirrored_topics_are_listed_most_behind_first(estate: Estate) -> None:
    groups = estate.groups("a")
    assert list(groups) == ["billing", "console-consumer-7", "audit"]
    billing = groups["billing"]
    assert (billing["state"], billing["members"], billing["topics"]) == ("STABLE", 3, ["orders", "payments"])
    assert (billing["lag_records"], billing["worst"]["topic"], billing["worst"]["lag_records"]) == (430, "orders", 400)
    assert (groups["audit"]["lag_records"], groups["audit"]["worst"], groups["audit"]["members"]) == (0, None, 0)


def test_where_offsets_are_translated_is_a_word_for_each_target(estate: Estate) -> None:
    groups = estate.groups("a")
    assert words(groups["billing"]) == {"east": "partly", "west": "no"}
    assert words(groups["audit"]) == {"east": "yes", "west": "no"}
    assert words(groups["console-consumer-7"]) == {"east": "left out", "west": "left out"}
    row = next(line for line in estate.text("a").splitlines() if line.startswith("billing"))
    assert "orders-0 (400)" in row
    assert "east: partly (1 of 2 partitions), 2 min old, west: no" in row


def test_a_pair_without_checkpoints_says_so_and_asks_for_none(estate: Estate) -> None:
    estate.site.declare(FLOWS.replace("enabled: true", "enabled: false"))
    assert words(estate.groups("a")["audit"]) == {"east": "not declared", "west": "not declared"}
    assert "CheckpointRecords" not in estate.pair.asked


def test_a_pair_names_its_source_and_its_target_alone(estate: Estate) -> None:
    estate.west.dead = True
    assert words(estate.groups("a->east")["audit"]) == {"east": "yes"}


def test_without_a_name_all_clusters_of_flows_are_listed_with_readers_of_remote_topics(estate: Estate) -> None:
    groups = estate.groups()
    assert (groups["reports"]["cluster"], groups["reports"]["lag_records"]) == ("east", 10)
    assert groups["reports"]["targets"] == []
    assert groups["billing"]["cluster"] == "a"


def test_groups_and_topics_are_named_or_matched(estate: Estate) -> None:
    assert list(estate.groups("a", "--group", "bill.*")) == ["billing"]
    assert list(estate.groups("a", "--group", "bill")) == []
    assert list(estate.groups("a", "--topic", "payments")) == ["billing", "console-consumer-7"]
    assert estate.groups("a", "--topic", "other")["billing"]["lag_records"] == 70
    everything = estate.groups("a", "--all")
    assert everything["billing"]["lag_records"] == 500
    assert (everything["idle"]["lag_records"], everything["idle"]["topics"]) == (None, [])
    assert "no expression that Java reads" in estate.mm2mgr("groups", "--group", "(", code=64).err
    assert "no Kafka cluster, pair or flow 'nowhere'" in estate.mm2mgr("groups", "nowhere", code=1).err


def test_as_many_rows_as_asked_and_json_has_all(estate: Estate) -> None:
    text = estate.text("a", "--most", "1")
    assert "billing" in text
    assert "audit" not in text
    assert "… and 2 more groups" in text
    assert len(estate.groups("a", "--most", "1")) == 3


def test_a_cluster_that_does_not_answer_is_named_and_hides_no_other(estate: Estate) -> None:
    estate.source.dead = True
    text = estate.text(code=1)
    assert "? a: groups could not be read" in text
    assert "reports" in text
    assert "No consumer group" not in estate.text("a", code=1)


def test_offsets_that_may_not_be_read_are_unknown_with_the_command_that_helps(estate: Estate) -> None:
    estate.source.refused_groups = {"billing"}
    billing = estate.groups("a", code=1)["billing"]
    assert (billing["lag_records"], billing["topics"], billing["members"]) == (None, None, None)
    text = estate.text("a", code=1)
    assert "kafka-acls.sh" in text
    assert "unknown" in next(line for line in text.splitlines() if line.startswith("billing"))


@pytest.mark.parametrize("question", [CommittedOffsets, PartitionEnds])
def test_a_read_that_fails_never_becomes_a_lag_of_0(estate: Estate, question: type) -> None:
    estate.source.refused = {question}
    assert estate.groups("a", code=1)["audit"]["lag_records"] is None


def test_members_and_checkpoints_that_cannot_be_read_are_unknown(estate: Estate) -> None:
    estate.source.refused, estate.east.refused = {MemberCounts}, {CheckpointRecords}
    groups = estate.groups("a", code=1)
    assert groups["billing"]["members"] is None
    assert words(groups["audit"]) == {"east": "unknown", "west": "no"}
    assert estate.text("a", code=1).count("could not be read") == 2


def test_a_checkpoint_topic_that_is_hidden_is_unknown_and_one_that_is_not_there_is_no(estate: Estate) -> None:
    estate.east.refused_topics = {"a.checkpoints.internal"}
    assert words(estate.groups("a", code=1)["audit"]) == {"east": "unknown", "west": "no"}


def test_a_log_that_ends_before_what_was_committed_is_unknown(estate: Estate) -> None:
    estate.source.logs[ORDERS] = Offsets(0, 500)
    groups = estate.groups("a", code=1)
    assert (groups["audit"]["lag_records"], groups["billing"]["lag_records"]) == (None, None)
    assert groups["billing"]["at_least_records"] == 30
    text = estate.text("a", code=1)
    assert "at least 30" in text
    assert "orders-0 ends before what was committed: truncated, or its topic was made anew" in text


def test_a_login_that_may_not_list_all_groups_is_told(estate: Estate) -> None:
    estate.source.operations = frozenset()
    assert estate.groups("a", code=1)["audit"]["lag_records"] == 0
    assert str(Right("Describe", "cluster")) in estate.text("a", code=1)


def test_a_name_of_a_group_steers_no_terminal(estate: Estate) -> None:
    estate.source.commits["evil\x1b[2J\u202e"] = {ORDERS: 5}
    text = estate.text("a")
    assert "evil" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_a_group_that_is_not_there_names_the_nearest(estate: Estate) -> None:
    said = estate.mm2mgr("groups", "a", "--group", "biling")
    assert said.out == "No consumer group there has this name, or matches it; did you mean billing?\n"
    assert "did you mean" not in estate.mm2mgr("groups", "a", "--group", "zz.*").out
    assert "has committed offsets on these topics" in estate.mm2mgr("groups", "a", "--group", "elsewhere").out


def test_the_group_of_a_lease_has_no_lag(estate: Estate) -> None:
    """It commits on the topic of the history, which may be empty: that is no position in it."""
    estate.source.commits["mm2mgr-team"] = {TopicPartition(HISTORY_TOPIC, 0): 7}
    (row,) = [row for row in estate.mm2mgr("groups", "a", "--all").lines if row.startswith("mm2mgr-team")]
    assert row.split()[3] == "-"
