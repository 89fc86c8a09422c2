"""offsets show and reset: a fake Connect cluster, and brokers without a JVM that hold the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.questions import PlaceInLogs
from mm2mgr.log_places import AtTime, LogPosition, LogPositions
from mm2mgr.partitions import Offsets, TopicPartition, goes_on
from mm2mgr.plan.resets import OffsetReset, by_topic, resets
from mm2mgr.spec.scalars import log_place
from tests.asking import answer_kafka
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .load import addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
ONE_OF_ORDERS = TopicPartition("orders", 0)
FLOW, SOURCE = "orders:a->b", "mm2.a.b.source.orders"
TREE = """\
owner: tester
clusters:
  a: {{bootstrap_servers: ["{a}"]}}
  b: {{cluster_id: fake-kafka-cluster-id, bootstrap_servers: ["{b}"]}}
connect:
  w: {{url: "{url}", kafka: b}}
flows:
  orders: {{sources: [a], targets: [b], topics: {{include: [orders, gone]}}, checkpoints: false, heartbeats: false}}
"""


@dataclass
class World:
    """One flow whose topic has ten records in partition 0, of which six are mirrored."""

    mm2mgr: Command
    connect: FakeConnect

    @property
    def stored(self) -> dict[str, int]:
        found = self.connect.offsets.get(SOURCE, {})
        return {key: entry["offset"] for key, entry in found.items()}


@pytest.fixture
def world(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[World]:
    connect = FakeConnect(source_topics={"orders": 4})
    with serving(connect) as url:
        a, b = addresses(mock_cluster)
        write(mm2mgr.tree, x=TREE.format(a=a, b=b, url=url))
        produce(mock_cluster, "orders", 10)
        produce(mock_cluster, "mm2mgr.history.internal")  # these brokers cannot create it
        mm2mgr("apply", "--yes", "--wait", "0")
        connect.add_offsets(SOURCE, "orders", {0: 5}, alias="a")
        connect.requests.clear()
        yield World(mm2mgr, connect)


def test_show_has_stored_offsets_beside_the_log(world: World) -> None:
    world.connect.add_offsets(SOURCE, "gone", {0: 7}, alias="a")
    said = world.mm2mgr("offsets", "show", "orders")
    assert said.lines[0] == f"{FLOW}: RUNNING, lag 4 records; stored offsets are exact once it is STOPPED"
    assert said.lines[2].split() == ["orders-0", "5", "0", "10", "4"]
    assert said.lines[3].split() == ["orders-1", "-", "0", "0", "0"]
    assert "gone-0: stored offset 7 of a partition that the flow does not mirror, or that is gone" in said.out
    (flow,) = world.mm2mgr("offsets", "show", FLOW, "-o", "json").json["flows"]
    assert (flow["lag_records"], flow["exact"], flow["partitions"][0]["stored_offset"]) == (4, False, 5)
    assert world.connect.writes == []


def test_reset_is_refused_while_it_runs(world: World) -> None:
    said = world.mm2mgr("offsets", "reset", "orders", "--to", "earliest", "--yes", code=1)
    assert f"error: w/{SOURCE} is RUNNING: offsets can only be changed while it is STOPPED" in said.err
    assert f"hint: stop it first: mm2mgr stop '{FLOW}'" in said.err
    world.mm2mgr("pause", "orders", "--wait", "0")
    assert "is PAUSED" in world.mm2mgr("offsets", "reset", "orders", "--to", "latest", "--yes", code=1).err
    assert [one.path for one in world.connect.writes] == [f"/connectors/{SOURCE}/pause"]


def test_reset_waits_for_tasks_that_have_not_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("mm2mgr.operations.pause"), "_PAUSE_SECONDS", 0.01)
    world.mm2mgr("stop", "orders")
    world.connect.connectors[SOURCE].ending_statuses = 3
    (flow,) = world.mm2mgr("offsets", "show", FLOW, "-o", "json").json["flows"]
    assert (flow["state"], flow["exact"]) == ("STOPPED", False)
    world.mm2mgr("offsets", "reset", "orders", "--to", "4", "--partition", "0", "--yes")
    assert list(world.stored.values()) == [3]


def test_tasks_that_do_not_end_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("mm2mgr.operations.pause"), "_END_SECONDS", 0.5)
    monkeypatch.setattr(import_module("mm2mgr.operations.pause"), "_PAUSE_SECONDS", 0.01)
    world.mm2mgr("stop", "orders")
    world.connect.connectors[SOURCE].ending_statuses = 1_000_000
    said = world.mm2mgr("offsets", "reset", "orders", "--to", "4", "--yes", code=1)
    assert f"w/{SOURCE} is STOPPED, but its tasks have not ended" in said.err
    assert list(world.stored.values()) == [5]


@pytest.mark.parametrize(
    ("to", "shown", "stored"),
    [
        ("earliest", "orders: 6 records mirrored again, 1 partition written", None),
        ("latest", "orders: 4 records never mirrored, 1 partition written", 9),
        ("4", "orders: 2 records mirrored again, 1 partition written", 3),
        ("8", "orders: 2 records never mirrored, 1 partition written", 7),
    ],
)
def test_reset_shows_what_comes_again_or_is_skipped_writes_and_reads_back(
    world: World, to: str, shown: str, stored: int | None
) -> None:
    world.mm2mgr("stop", "orders")
    line = ("offsets", "reset", "orders", "--topic", "orders", "--partition", "0", "--to", to)
    unasked = world.mm2mgr(*line, code=1)
    assert shown in unasked.err
    count, _, what = shown.removeprefix("orders: ").partition(",")[0].partition(" records ")
    data = f"{count} records are {what}"
    assert f"Data: {data}; nothing is skipped\n" in unasked.err or (
        f"Data: nothing is mirrored again; {data}\n" in unasked.err
    )
    place = "nothing stored" if stored is None else f"offset {stored}"
    assert f"    orders-0: offset 5 -> {place}\n" in unasked.err
    assert "offsets reset asks first and there is no terminal" in unasked.err
    assert list(world.stored.values()) == [5]
    said = world.mm2mgr(*line, "--yes")
    assert "offsets of 1 partition written and read back; mm2mgr resume 'orders:a->b' starts it again" in said.out
    assert list(world.stored.values()) == ([] if stored is None else [stored])
    world.connect.requests.clear()
    assert "nothing to write" in world.mm2mgr(*line).out
    assert world.connect.writes == []


def test_what_connect_would_take_and_kafka_does_not_have_is_refused(world: World) -> None:
    world.mm2mgr("stop", "orders")
    world.connect.requests.clear()

    def refused(*more: str) -> str:
        return world.mm2mgr("offsets", "reset", "orders", *more, "--yes", code=1).err

    assert "offset 11 is not in every log: orders-0 has 0 to 10" in refused("--to", "11", "--partition", "0")
    assert f"{FLOW} does not mirror payments, and a has no such topic" in refused("--to", "0", "--topic", "payments")
    assert f"{FLOW} has no such partition" in refused("--to", "latest", "--partition", "9")
    assert "nowhere" in world.mm2mgr("offsets", "reset", "orders", "--to", "nowhere", code=64).err
    assert world.connect.writes == []


def test_reset_to_where_a_group_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions without an offset of it stay as they are, and are named. These brokers do not say what a group has."""

    def place(_access: KafkaAccess, question: PlaceInLogs) -> LogPositions:
        first = {ONE_OF_ORDERS: LogPosition(Offsets(0, 10), 8)} if question.place == "group:mm1" else {}
        return LogPositions({p: first.get(p, LogPosition(Offsets(0, 0), None)) for p in question.partitions})

    answer_kafka(monkeypatch, places=place)
    world.mm2mgr("stop", "orders")
    world.connect.add_offsets(SOURCE, "orders", {1: 3}, alias="a")
    line = ("offsets", "reset", "orders", "--from-group", "mm1")
    said = world.mm2mgr(*line, "--yes")
    assert "orders: 2 records never mirrored, 1 partition written" in said.err
    assert "orders-1, orders-2, orders-3: the group has no offset there: left as it is" in said.err
    assert sorted(world.stored.values()) == [3, 7]
    (flow,) = world.mm2mgr(*line, "-o", "json", "--yes").json["flows"]
    assert [entry["partition"] for entry in flow["left_alone"]] == [1, 2, 3]
    assert "group 'typo' has no committed offset" in world.mm2mgr(*line[:-1], "typo", "--yes", code=1).err


def test_reset_to_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """These brokers look no offset up by time."""
    asked: list[PlaceInLogs] = []

    def place(_access: KafkaAccess, question: PlaceInLogs) -> LogPositions:
        asked.append(question)
        first = {ONE_OF_ORDERS: LogPosition(Offsets(0, 10), 4)}
        return LogPositions({p: first.get(p, LogPosition(Offsets(0, 0), 0)) for p in question.partitions})

    answer_kafka(monkeypatch, places=place)
    world.mm2mgr("stop", "orders")
    said = world.mm2mgr("offsets", "reset", "orders", "--to", "2026-11-26T10:00", "--yes")
    assert "orders: 2 records mirrored again, 1 partition written" in said.err
    assert list(world.stored.values()) == [3]
    world.mm2mgr("offsets", "reset", "orders", "--to", "90min", "--yes")
    world.mm2mgr("offsets", "reset", "orders", "--to", "30d", "--yes")
    assert [question.place for question in asked] == ["2026-11-26T10:00:00Z", "5400s", "2592000s"]
    assert [log_place(place) for place in ("5400s", "2592000s")] == [AtTime(None, 5400.0), AtTime(None, 2_592_000.0)]


def test_reset_to_a_time_to_come_is_refused(world: World) -> None:
    world.mm2mgr("stop", "orders")
    said = world.mm2mgr("offsets", "reset", "orders", "--to", "2099-01-01", "--yes", code=1).err
    assert "2099-01-01T00:00:00Z is in the future" in said
    assert list(world.stored.values()) == [5]


def test_a_reset_goes_to_one_place(world: World) -> None:
    for places in ((), ("--to", "latest", "--from-group", "mm1")):
        said = world.mm2mgr("offsets", "reset", "orders", *places, code=64)
        assert "write one of --to and --from-group" in said.err
    assert "is no name of a group" in world.mm2mgr("offsets", "reset", "orders", "--from-group", "", code=64).err


def test_the_connector_of_somebody_else_is_refused(world: World) -> None:
    world.mm2mgr("stop", "orders")
    world.connect.connectors[SOURCE].config["mm2mgr.owner"] = "others"
    said = world.mm2mgr("offsets", "reset", "orders", "--to", "earliest", "--yes", code=1)
    assert "belongs to owner 'others'; mm2mgr does not touch it" in said.err


def test_a_source_that_cannot_be_read_is_no_reason_to_guess(world: World, closed_port: int) -> None:
    world.mm2mgr("stop", "orders")
    tree = next(world.mm2mgr.tree.glob("*.yaml"))
    lines = tree.read_text().splitlines()
    lines[2] = f"  a: {{bootstrap_servers: ['127.0.0.1:{closed_port}']}}"
    tree.write_text("\n".join(lines))
    assert "a could not be read" in world.mm2mgr("offsets", "reset", "orders", "--to", "latest", "--yes", code=1).err
    shown = world.mm2mgr("offsets", "show", "orders", code=1)
    assert "lag unknown" in shown.lines[0]


# --- the arithmetic ---------------------------------------------------------------------------------------------------

ONE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("start", "stored", "begins_at", "at"),
    [
        (100, None, "earliest", 100),
        (100, None, "latest", 200),
        (100, 149, "earliest", 150),
        (100, 199, "earliest", 200),
        (100, 50, "earliest", 100),  # retention took what comes next
        (100, 500, "earliest", 100),  # past the end: the consumer begins anew
        (100, 500, "latest", 200),
    ],
)
def test_where_a_task_goes_on(start: int, stored: int | None, begins_at: str, at: int) -> None:
    assert goes_on(Offsets(start, 200), stored, begins_at) == at


def test_earliest_is_the_start_of_the_log_and_needs_no_entry_only_at_offset_0() -> None:
    (after_retention,) = resets("earliest", {ONE: Offsets(100, 200)}, {ONE: 149}, "latest")
    assert after_retention == OffsetReset(ONE, Offsets(100, 200), 149, 99, again=50)
    (from_zero,) = resets("earliest", {ONE: Offsets(0, 200)}, {ONE: 149}, "earliest")
    assert (from_zero.wanted, from_zero.again) == (None, 150)
    with pytest.raises(Mm2mgrError, match=r"auto\.offset\.reset=latest decides"):
        resets("earliest", {ONE: Offsets(0, 200)}, {ONE: 149}, "latest")


def test_counts_are_by_topic() -> None:
    other = TopicPartition("t", 1)
    found = resets("latest", {ONE: Offsets(0, 10), other: Offsets(0, 5)}, {ONE: 3, other: 4}, "earliest")
    assert by_topic(found) == {"t": {"partitions": 1, "again": 0, "skipped": 6}}
