"""Commands that name a flow which has lanes: a fake Connect cluster, and brokers without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mm2mgr.apply.history import Recorder
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.plan.history import HistoryEntry
from tests.clock import jumping
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .leases import FakeLease
from .load import PAIR_HEAD, addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
OWN, HEAVY = "mm2.a.b.source.all", "mm2.a.b.source.all.heavy"
TREE = (
    PAIR_HEAD
    + """\
  all:
    {{sources: [a], targets: [b], topics: {{include: [orders, logs]}}, checkpoints: false, heartbeats: false,
    balance: {{lanes: {{heavy: [orders]}}}}}}
"""
)


@pytest.fixture
def connect(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[FakeConnect]:
    fake = FakeConnect(source_topics={"orders": 1, "logs": 1})
    with serving(fake) as url, jumping():
        a, b = addresses(mock_cluster)
        write(mm2mgr.tree, x=TREE.format(a=a, b=b, url=url))
        for topic in ("orders", "logs"):
            produce(mock_cluster, topic, 10)
        mm2mgr("apply", "--yes", "--wait", "0")
        yield fake


def test_describe_shows_the_flow_s_own_connector_and_each_lane(mm2mgr: Command, connect: FakeConnect) -> None:
    lanes = "lanes    all.heavy:a->b, each with topics of its own"
    for name, connector, line in (
        ("all", OWN, lanes),
        ("all:a->b", OWN, lanes),
        ("a->b", OWN, lanes),
        ("all.heavy", HEAVY, "lane of  all:a->b"),
    ):
        out = mm2mgr("describe", name).out
        assert f"{connector}: RUNNING" in out
        assert line in out
    lines = [line.split() for line in out.splitlines()]
    (include,) = [line for line in lines if line[:1] == ["topics.include"]]
    assert include[1:3] == ["orders", "spec"]


def test_who_and_topics_name_the_lane_that_has_a_topic(mm2mgr: Command, connect: FakeConnect) -> None:
    tree = mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("include: [orders, logs]", "include: ['orders|logs']"))
    assert "all.heavy:a->b of the same flow has it" in mm2mgr("who", "orders", "--offline").out
    lines = [line.split() for line in mm2mgr("topics", "all", "--all").out.splitlines()]
    reasons = {line[0]: line[4:] for line in lines if line[:1] in (["orders"], ["logs"]) and "of" in line}
    assert reasons == {"orders": ["all.heavy:a->b", "of", "the", "same", "flow", "has", "it"],
                       "logs": ["all:a->b", "of", "the", "same", "flow", "has", "it"]}  # fmt: skip


def test_what_interrupts_a_lane_is_counted_for_its_flow_too(mm2mgr: Command, connect: FakeConnect) -> None:
    mm2mgr("status")
    connect.connectors[HEAVY].failed_tasks = {0: "java.lang.OutOfMemoryError"}
    flows = {flow["flow"]: flow for flow in mm2mgr("status", "-o", "json", code=1).json["flows"]}
    own, heavy = flows["all:a->b"], flows["all.heavy:a->b"]
    assert [own[key]["last_hour"]["failures"] for key in ("interruptions", "interruptions_with_lanes")] == [0, 1]
    assert (heavy["interruptions"]["last_hour"]["failures"], heavy["interruptions_with_lanes"]) == (1, None)
    assert "with its lanes: 1 failure of tasks in the last hour" in own["notes"]


def remove_lanes(mm2mgr: Command) -> None:
    tree = mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("balance: {lanes: {heavy: [orders]}}", "balance: {lanes: {}}"))


def test_a_lane_that_the_tree_has_no_more_belongs_to_its_flow_until_it_ends(
    mm2mgr: Command, connect: FakeConnect
) -> None:
    connect.add_offsets(HEAVY, "orders", {0: 5}, alias="a")
    remove_lanes(mm2mgr)
    said = mm2mgr("status", code=1).out
    assert "it is a lane of all:a->b, to which mm2mgr apply gives its topics back" in said
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        done = mm2mgr(verb, "all", "--yes", "--wait", "0", "-o", "json").json["connectors"]
        assert {change["connector"]: change["action"] for change in done} == {OWN: "write", HEAVY: "write"}
        assert done[1]["flows"] == ["all.heavy:a->b", "all:a->b"]
        assert {connector.state for connector in connect.connectors.values()} == {state}
    reset = ("offsets", "reset", "all", "--topic", "orders", "--partition", "0", "--to", "2", "--yes")
    assert f"orders is mirrored by w/{HEAVY} until an apply" in mm2mgr(*reset, code=1).err
    assert [entry["offset"] for entry in connect.offsets[HEAVY].values()] == [5]
    mm2mgr("resume", f"w/{OWN}", "--yes", "--wait", "0")
    assert {name: connector.state for name, connector in connect.connectors.items()} == {
        OWN: "RUNNING",
        HEAVY: "STOPPED",
    }


def test_a_lane_of_another_owner_is_not_touched_with_a_flow(mm2mgr: Command, connect: FakeConnect) -> None:
    remove_lanes(mm2mgr)
    connect.connectors[HEAVY].config["mm2mgr.owner"] = "others"
    mm2mgr("pause", "all", "--yes", "--wait", "0")
    assert {name: connector.state for name, connector in connect.connectors.items()} == {
        OWN: "PAUSED",
        HEAVY: "RUNNING",
    }


def test_the_history_of_a_flow_has_that_of_its_lanes(
    mm2mgr: Command, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: dict[str, HistoryEntry] = {}

    def write(_: Recorder, _connect: str, key: str, value: str | None) -> None:
        if entry := HistoryEntry.parse(value or ""):
            entries[key] = entry

    monkeypatch.setattr(lease, "Lease", FakeLease)
    monkeypatch.setattr(Recorder, "write", write)
    monkeypatch.setattr(Recorder, "close", lambda _: {})
    remove_lanes(mm2mgr)
    tree = mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace(", history: false", ""))
    mm2mgr("pause", "all", "--yes", "--wait", "0")
    FakeLease.forget()
    assert {entry.connector: entry.flows for entry in entries.values()} == {
        OWN: ("all:a->b",),
        HEAVY: ("all.heavy:a->b", "all:a->b"),
    }


def test_a_topic_of_a_lane_is_reset_there(mm2mgr: Command, connect: FakeConnect) -> None:
    connect.add_offsets(OWN, "logs", {0: 5}, alias="a")
    connect.add_offsets(HEAVY, "orders", {0: 5}, alias="a")
    mm2mgr("stop", "all", "--yes")
    done = mm2mgr(
        "offsets", "reset", "all", "--topic", "orders", "--partition", "0", "--to", "2", "--yes", "-o", "json"
    ).json
    assert [flow["flow"] for flow in done["flows"]] == ["all.heavy:a->b"]
    assert [entry["offset"] for entry in connect.offsets[HEAVY].values()] == [1]
    assert [entry["offset"] for entry in connect.offsets[OWN].values()] == [5]
    mm2mgr("offsets", "reset", "all", "--topic", "orders", "--topic", "logs", "--partition", "0", "--to", "3", "--yes")
    assert [entry["offset"] for entry in connect.offsets[OWN].values()] == [2]
    refused = mm2mgr("offsets", "reset", "all", "--topic", "typo", "--to", "earliest", "--yes", code=1)
    assert "does not mirror typo" in refused.err


def test_audits_compare_one_lane_with_one_flow(mm2mgr: Command, connect: FakeConnect) -> None:
    refused = mm2mgr("audit", "all", "all.heavy", "--compare", code=64).err
    assert "'all' means 2 flows, and one is compared with one: name one of all:a->b, all.heavy:a->b" in " ".join(
        refused.split()
    )
