"""All workers of a Connect cluster are dead: lag from what they stored last and from both Kafka clusters, which answer;
and a look at workers whose own Kafka cluster is down ends soon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.types import SourceOffset
from mm2mgr.errors import KafkaSilence
from mm2mgr.live.internal_topics import parse_connect_offsets
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs
from mm2mgr.live.questions import OffsetsInTopic
from mm2mgr.live.reach import KafkaReach
from tests.clock import jumping
from tests.connect.dead_ends import dead_url, silent_url
from tests.observe.estate import TREE, Estate, FakeKafka, estate, kinds, sentences, topology_of

NOBODY = "http://127.0.0.1:1"


def kill_workers(small: Estate, directory: Path, connect: str = "", more: str = "", *urls: str) -> None:
    """Let the Connect cluster answer no more; `connect`: more of its declaration, `urls`: of its workers."""
    tree = TREE.format(url=NOBODY, more=more).replace("kafka: B}", f"kafka: B{connect}}}")
    tree = tree.replace(f'"{NOBODY}"', json.dumps(urls or [NOBODY]))
    small.topology = topology_of(tree, directory)


def level(small: Estate) -> None:
    """Let the flow be level at offset 100, as a look sees it."""
    small.log(0, 100)
    small.log(0, 100, alias="B", topic="A.orders")
    small.stored(99)
    assert small.flow().lag_records == 0


def test_lag_is_known_and_grows_while_no_worker_answers(small: Estate, tmp_path: Path) -> None:
    level(small)
    kill_workers(small, tmp_path)
    small.log(0, 400)
    first = small.flow(later_seconds=30)
    assert (first.state, first.lag_records, first.lag_at_least) == ("unknown", 300, True)
    assert "no worker of cb answers: lag is counted from the offsets that were stored at the last look" in (
        first.offsets_note
    )
    assert "30 s ago" in first.offsets_note
    small.log(0, 1000)
    second = small.flow(later_seconds=30)
    assert (second.lag_records, second.health, kinds(second)) == (900, "problem", ["workers-silent"])
    assert second.trend is not None
    assert (second.trend.direction, second.trend.records, second.trend.seconds) == ("growing", 900, 60)
    (sentence,) = sentences(second)
    assert sentence == (
        "no worker of cb answers: at least 900 records wait, 900 of them new in the last 60 s, and the target does not"
        " move; start its workers: they go on at the stored offsets"
    )


def test_workers_that_accept_connections_and_do_not_answer_are_named(small: Estate, tmp_path: Path) -> None:
    level(small)
    with silent_url() as hung, dead_url() as dead, jumping() as clock:
        kill_workers(small, tmp_path, "", "", dead, hung)
        for end in (400, 1000):
            began = clock.seconds
            small.log(0, end)
            look = small.look(later_seconds=30)
            assert clock.seconds - began < 6.5, "a look has answered within ten seconds"
    flow = look.status.flows[0]
    assert sentences(flow) == [
        f"no worker of cb answers, though {hung} accepts connections: at least 900 records wait, 900 of them new in the"
        " last 60 s, and the target does not move; look at process and log there, and restart what stays silent:"
        " it goes on at the stored offsets"
    ]
    assert f"{dead}: All connection attempts failed" in flow.notes[0]
    assert f"{hung}: accepted the connection, no answer in " in flow.notes[0]
    failure = look.status.failures["connect cb"]
    assert "check the brokers that Connect cluster 'cb' lives on" in str(failure.hint)
    assert "restart it if it stays silent" in str(failure.hint)


def test_workers_whose_own_kafka_is_silent_too_are_not_to_be_restarted_first(small: Estate, tmp_path: Path) -> None:
    level(small)
    kill_workers(small, tmp_path)
    small.kafka.down.add("B")
    for end in (400, 1000):
        small.log(0, end)
        status = small.status(later_seconds=30)
    assert sentences(status.flows[0]) == [
        "no worker of cb answers, nor does B, on which they live: at least 900 records wait, 900 of them new in the last"
        " 60 s, and the target could not be read; start its brokers first, then the workers that stay silent: they go"
        " on at the stored offsets"
    ]
    assert status.told_failures().keys() == {"connect cb", "kafka B"}


def test_a_source_and_workers_that_all_hang_are_told_within_ten_seconds(
    small: Estate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level(small)
    read = FakeKafka.__call__
    with silent_url() as hung, jumping() as clock:

        def hang(self: FakeKafka, reach: KafkaReach, choose: WantedLogs) -> RunningKafka:
            if reach.access.alias != "A":
                return read(self, reach, choose)
            clock.sleep(reach.limits.kafka_seconds)
            raise KafkaSilence("A: no broker answered")

        monkeypatch.setattr(FakeKafka, "__call__", hang)
        kill_workers(small, tmp_path, "", "", hung)
        began = clock.seconds
        status = small.status(later_seconds=30)
        assert clock.seconds - began < 10
    assert status.failures.keys() == {"connect cb", "kafka A"}


def test_one_worker_that_hangs_costs_a_look_a_second(small: Estate, tmp_path: Path) -> None:
    level(small)
    (alive,) = small.topology.connects["cb"].model.url
    with silent_url() as hung, jumping() as clock:
        kill_workers(small, tmp_path, "", "", hung, alive)
        began = clock.seconds
        flow = small.flow(later_seconds=30)
        assert clock.seconds - began < 3
    assert (flow.state, flow.lag_records, flow.problems) == ("RUNNING", 0, ())


def test_records_that_came_twice_before_workers_died_do_not_hide_what_waits(small: Estate, tmp_path: Path) -> None:
    level(small)
    small.log(0, 120)
    small.log(0, 1100, alias="B", topic="A.orders")  # a worker that was lost sends again, and nothing is flushed
    assert small.flow(later_seconds=10).lag_records == 0
    kill_workers(small, tmp_path)
    lags = []
    for end in (320, 520, 720):
        small.log(0, end)
        lags.append((flow := small.flow(later_seconds=10)).lag_records)
    assert lags == [0, 200, 400]
    assert kinds(flow) == ["workers-silent"]


def test_what_had_arrived_counts_also_while_the_target_is_down(small: Estate, tmp_path: Path) -> None:
    level(small)
    small.log(0, 300)
    small.log(0, 280, alias="B", topic="A.orders")
    assert small.flow(later_seconds=10).lag_records == 20
    kill_workers(small, tmp_path)
    assert small.flow(later_seconds=10).lag_records == 20
    small.kafka.down.add("B")
    small.log(0, 330)
    assert small.flow(later_seconds=10).lag_records == 50
    small.kafka.down.clear()
    assert small.flow(later_seconds=10).lag_records == 50


def test_a_target_that_grows_shows_that_workers_run(small: Estate, tmp_path: Path) -> None:
    level(small)
    kill_workers(small, tmp_path)
    for end in (400, 700, 1000):
        small.log(0, end)
        small.log(0, end - 10, alias="B", topic="A.orders")
        flow = small.flow(later_seconds=30)
        assert (flow.health, flow.problems, flow.lag_records) == ("unknown", (), 10)
    assert "the target grows, so workers run, and only mm2mgr cannot reach them" in flow.offsets_note


@pytest.mark.parametrize(
    ("more", "topic"),
    [("replication_policy: identity", "orders"), ("delivery: exactly_once", "A.orders")],
    ids=["anybody may write", "transaction markers"],
)
def test_at_least_is_not_said_where_arrivals_cannot_be_counted(tmp_path: Path, more: str, topic: str) -> None:
    with estate(tmp_path, more=more) as small:
        small.kafka.clusters["B"] = {topic: [(0, 0), (0, 0)]}
        small.log(0, 100)
        small.log(0, 100, alias="B", topic=topic)
        small.stored(99)
        small.flow()
        kill_workers(small, tmp_path, more=more)
        for end in (150, 200, 200, 203, 203):  # workers run, and mm2mgr cannot reach them
            small.log(0, end)
            small.log(0, end, alias="B", topic=topic)
            flow = small.flow(later_seconds=30)
            assert (flow.health, flow.problems, flow.lag_at_least) == ("unknown", (), False), end
        assert "the target has grown since, so fewer may wait" in flow.offsets_note
        small.log(0, 210)  # and now they are dead
        flow = small.flow(later_seconds=30)
        assert (flow.lag_records, flow.lag_at_least) == (110, False)
        (sentence,) = sentences(flow)
        assert "at least 7 records wait, 7 of them new in the last 30 s" in sentence


def test_a_flow_that_nobody_produces_to_is_no_problem_without_workers(small: Estate, tmp_path: Path) -> None:
    level(small)
    kill_workers(small, tmp_path)
    looks = [small.flow(later_seconds=30) for _ in range(3)]
    assert {(look.lag_records, look.health) for look in looks} == {(0, "unknown")}


def test_a_flow_that_was_paused_does_not_need_its_workers(small: Estate, tmp_path: Path) -> None:
    level(small)
    small.connect.connectors[small.source].state = "PAUSED"
    small.flow(later_seconds=30)
    kill_workers(small, tmp_path)
    for end in (400, 700, 1000):
        small.log(0, end)
        flow = small.flow(later_seconds=30)
    assert (flow.lag_records, kinds(flow)) == (900, [])


def test_without_a_look_before_lag_is_unknown(small: Estate, tmp_path: Path) -> None:
    small.log(0, 100)
    kill_workers(small, tmp_path)
    flow = small.flow()
    assert (flow.lag_records, flow.offsets_note) == (None, "unknown: the Connect cluster could not be read")


def test_a_trend_begins_anew_when_workers_are_back(small: Estate, tmp_path: Path) -> None:
    level(small)
    alive = small.topology
    kill_workers(small, tmp_path)
    for end in (400, 1000):
        small.log(0, end)
        small.flow(later_seconds=30)
    small.topology = alive
    back = small.flow(later_seconds=30)
    assert (back.lag_records, back.lag_at_least, back.trend) == (900, False, None)


@pytest.mark.parametrize(
    ("stored", "lag"),
    [({"mm2.A.B.source.orders": 149}, 250), ({"mm2.A.B.source.orders": None}, 400), ({}, 400)],
    ids=["newer than the last look", "reset", "nothing stored"],
)
def test_offsets_are_read_from_the_topic_that_the_tree_names(
    small: Estate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Mapping[str, int | None], lag: int
) -> None:
    asked: list[tuple[str, str]] = []

    def ask(question: OffsetsInTopic, reach: KafkaReach) -> dict[str, tuple[SourceOffset, ...]]:
        asked.append((reach.access.alias, question.topic))
        place = {"cluster": "A", "topic": "orders", "partition": 0}
        return {
            name: (SourceOffset(dict(place), None if offset is None else {"offset": offset}),)
            for name, offset in stored.items()
        }

    monkeypatch.setattr(OffsetsInTopic, "ask", ask)
    small.kafka.down.add("B")
    small.log(0, 100)
    small.stored(99)
    small.flow()
    small.log(0, 400)
    kill_workers(small, tmp_path, connect=", offsets_topic: cb-offsets")
    flow = small.flow(later_seconds=30)
    assert (asked, flow.lag_records) == ([("B", "cb-offsets")], lag)
    assert "lag is counted from the offsets in the workers' topic" in flow.offsets_note


def test_records_of_an_offsets_topic_are_those_of_connect() -> None:
    place = {"cluster": "A", "partition": 0, "topic": "orders"}
    records: list[tuple[bytes, bytes | None]] = [
        (json.dumps(["ours", place]).encode(), b'{"offset": 7}'),
        (json.dumps(["ours", {**place, "partition": 1}]).encode(), None),
        (json.dumps(["other", place]).encode(), b'{"offset": 9}'),
        (b"\xff", b"{}"),
        (b'["ours"]', b"{}"),
        (b"7", b"{}"),
        (json.dumps(["ours", "place"]).encode(), b"{}"),
        (json.dumps(["ours", {"wrong": 1}]).encode(), b"[1]"),
        (json.dumps([["ours"], place]).encode(), b"{}"),
    ]
    assert parse_connect_offsets(records, ["ours"]) == {
        "ours": (SourceOffset(place, {"offset": 7}), SourceOffset({**place, "partition": 1}, None))
    }


def test_requests_that_need_a_silent_kafka_share_one_short_time(small: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers let each of them run into its time-out: one after the other took a minute and more."""
    clock = [0.0]
    monkeypatch.setattr(timing, "now", lambda: clock[0])
    deadlines: list[float] = []

    async def late(self: ConnectClient, name: str, *_: Any) -> Any:
        seconds = self._caller._deadline_seconds
        assert seconds is not None
        deadlines.append(seconds)
        clock[0] += seconds
        raise KafkaSilence(f"{name}: no answer within {seconds:g} s")

    monkeypatch.setattr(ConnectClient, "tasks", late)
    monkeypatch.setattr(ConnectClient, "offsets", late)
    small.kafka.down.add("B")
    flow = small.flow()
    assert sum(deadlines) <= 3.0
    assert flow.state == "RUNNING"
    assert "stored offsets could not be read" in flow.offsets_note
    small.kafka.down.clear()
    deadlines.clear()
    small.flow(later_seconds=30)
    assert max(deadlines) > 3.0, "while it answers, they have their whole time"


def silence_own_kafka(small: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target be down, on which the workers live: they answer for states only."""

    async def late(self: ConnectClient, name: str, *_: Any) -> Any:
        raise KafkaSilence(f"{name}: no answer in time")

    monkeypatch.setattr(ConnectClient, "tasks", late)
    monkeypatch.setattr(ConnectClient, "offsets", late)
    small.kafka.down.add("B")


def test_lag_grows_while_the_kafka_of_the_workers_is_down(small: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    level(small)
    with monkeypatch.context() as down:
        silence_own_kafka(small, down)
        small.log(0, 400)
        first = small.flow(later_seconds=30)
        assert (first.state, first.health, first.lag_records, first.lag_at_least) == ("RUNNING", "unknown", 300, True)
        assert (
            "B does not answer: lag is counted from the offsets that were stored at the last look at its workers, 30 s"
            in first.offsets_note
        )
        small.log(0, 1000)
        second = small.flow(later_seconds=30)
        assert (second.lag_records, second.health, kinds(second)) == (900, "problem", ["workers-silent"])
        assert second.trend is not None
        assert (second.trend.direction, second.trend.records) == ("growing", 900)
        assert sentences(second) == [
            "B, on which the workers of cb live, does not answer: at least 900 records wait, 900 of them new in the"
            " last 60 s, and the target could not be read; start its brokers, restart nothing: workers and tasks go on"
            " by themselves"
        ]
    small.kafka.down.clear()
    back = small.flow(later_seconds=30)
    assert (back.lag_records, back.lag_at_least, back.trend, back.problems) == (900, False, None, ())


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "FAILED"])
def test_a_flow_that_does_not_run_is_not_silent(small: Estate, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    level(small)
    small.connect.connectors[small.source].state = state
    small.flow(later_seconds=30)
    silence_own_kafka(small, monkeypatch)
    for end in (400, 700, 1000):
        small.log(0, end)
        flow = small.flow(later_seconds=30)
    assert (flow.lag_records, flow.lag_at_least) == (900, True)
    assert "workers-silent" not in kinds(flow)
