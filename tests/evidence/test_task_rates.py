"""Tasks watched beside sampling, on a Connect that answers as a real one: what lags is kept, what is not certain is not."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.evidence import task_rates
from mm2mgr.evidence.measured import settings_mark, task_measurements
from mm2mgr.evidence.task_rates import RecentLogs, TaskReader, TaskWatch, remember_compacted, task_readers
from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import TaskRow, TaskStore
from mm2mgr.sizing.capacity import Pace, find_saturation
from tests.clock import Clock, go_by, jumping
from tests.fake_connect import CLASSES, FakeConnect, serving
from tests.kafka.conftest import closed_port
from tests.spec.trees import write

__all__ = ["closed_port"]
TREE = """\
owner: team
clusters:
  a: {{bootstrap_servers: ["a:1"]}}
  hub: {{bootstrap_servers: ["hub:1"]}}
connect:
  w: {{url: "{url}", kafka: hub}}
flows:
  logs: {{sources: [a], targets: [hub], topics: {{include: [logs]}}, source_consumer: {{fetch.max.bytes: 1000000}}}}
  orders: {{sources: [a], targets: [hub], topics: {{include: [orders]}}}}
"""
SOURCE = next(each for each in CLASSES if "Source" in each)
LOGS, ORDERS = "mm2.a.hub.source.logs", "mm2.a.hub.source.orders"
TOPICS = {"logs": 4, "orders": 2}
START = 1_763_719_200  # 2025-11-21T10:00:00Z


@dataclass
class World(timing.Clock):
    """A cluster whose logs grow by 1 000 records of 100 bytes a second and partition, mirrored by a fake Connect."""

    fake: FakeConnect
    workspace: Workspace
    store: TaskStore
    reader: TaskReader
    recent: RecentLogs
    seconds: float = 0.0
    first_offset: int = 0
    compacted: set[str] = field(default_factory=set)
    lag_seconds: dict[str, float] = field(default_factory=lambda: {"logs": 600.0, "orders": 2.0})

    def now(self) -> float:
        return 1_000.0 + self.seconds

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return Clock().run(coroutine)

    def time_ns(self) -> int:
        return round((START + self.seconds) * 1000) * 1_000_000

    def pass_(self, seconds: float, speed: float = 1.0) -> None:
        """Let time pass while every task carries, at a multiple of what comes in."""
        self.seconds += seconds
        for topic, count in TOPICS.items():
            self.lag_seconds[topic] = max(0.0, self.lag_seconds[topic] + seconds * (1 - speed))
            name = {"logs": LOGS, "orders": ORDERS}[topic]
            self.fake.add_offsets(name, topic, {one: self.end(topic) - 1 for one in range(count)}, "a")
        topics = [topic for topic, count in TOPICS.items() for _ in range(count)]
        numbers = [one for count in TOPICS.values() for one in range(count)]
        ends = array("q", [1_000_000 + round(self.seconds * 1000)] * len(topics))
        starts, sizes = array("q", [self.first_offset] * len(topics)), [100.0] * len(topics)
        time_ms = round((START + self.seconds) * 1000)
        more = {"end_offset": ends, "start_offset": starts, "record_bytes": sizes}
        self.recent.take(Batch("a", "test", time_ms, topics, numbers, **more))  # type: ignore[arg-type]

    def end(self, topic: str) -> int:
        return 1_000_000 + round((self.seconds - self.lag_seconds[topic]) * 1000)

    def look(self) -> list[TaskRow]:
        """Poll once more, and return the rows that came of it, confirmed or not."""
        known = self.history()
        self.reader.poll()
        return [row for row in self.history() if row not in known]

    def history(self) -> list[TaskRow]:
        """Return what is stored, and what the next poll of the logs would prove."""
        unconfirmed = [task_rates._row(one, each.span) for one in self.reader._watched for each in one.unconfirmed]
        return sorted([*self.store.read(), *unconfirmed], key=lambda row: (row.connector, row.task, row.time_ms))

    def minutes(self, count: int) -> list[list[TaskRow]]:
        rows = []
        for _ in range(count):
            self.pass_(60)
            rows.append(self.look())
        return rows


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    fake = FakeConnect(source_topics=TOPICS)
    with serving(fake) as url:
        workspace = Workspace((write(tmp_path / "clusters", x=TREE.format(url=url)),))
        for connector in workspace.connectors:
            if connector.type == "source":
                fake.add(connector.name, {**dict(connector.config), "tasks.max": "2"})
        recent, store = RecentLogs(600), TaskStore(tmp_path / "store", lambda _: None)

        def compacted(alias: str, topics: Collection[str]) -> frozenset[str]:
            assert alias == "a"
            return frozenset(made.compacted & set(topics))

        watch = TaskWatch(recent, store, compacted, Pace(), timeout_seconds=2.0)
        (reader,) = task_readers(workspace.topology.flows, watch)
        made = World(fake, workspace, store, reader, recent)
        monkeypatch.setattr(task_rates, "time", made)
        go_by(made, monkeypatch)
        reader._due = 0.0
        yield made


def test_a_lagging_task_has_moments_and_one_that_keeps_up_has_none(world: World) -> None:
    seen = world.minutes(9)
    assert [len(rows) for rows in seen[:3]] == [0, 0, 2]  # a past of two minutes is needed to judge by
    rows = [row for each in seen for row in each]
    assert {row.connector for row in rows} == {LOGS}
    assert {row.span_ms for row in seen[2]} == {0}
    assert {(row.bytes_per_second, row.span_ms) for row in seen[3]} == {(200_000.0, 60_000)}
    assert {(row.connect, row.source, row.target, row.task) for row in rows} == {
        ("w", "a", "hub", 0),
        ("w", "a", "hub", 1),
    }
    held = find_saturation(task_measurements(world.history()))
    assert held is not None
    assert held.bytes_per_second == pytest.approx(200_000 * 360 / 420)


def test_records_that_retention_took_before_they_were_read_are_not_carried(world: World) -> None:
    world.minutes(5)
    stored = len(world.store.read())
    assert stored
    world.pass_(60, speed=5)  # 300 000 offsets on: jumped over, but the log's start was polled before
    assert {row.bytes_per_second for row in world.look()} == {1_000_000.0}
    assert len(world.store.read()) > stored
    stored = len(world.store.read())
    world.first_offset = world.end("logs") - 100
    world.pass_(60)
    world.look()
    assert len(world.store.read()) == stored
    assert max(row.bytes_per_second for row in world.store.read()) == 200_000.0


def test_who_keeps_up_costs_one_request_a_look(world: World) -> None:
    world.minutes(4)
    asked = [request.path for request in world.fake.requests if ORDERS in request.path]
    assert asked == [f"/connectors/{ORDERS}/offsets"] * 4
    assert [request.method for request in world.fake.requests if request.writes] == []


def test_the_history_counts_under_the_settings_of_the_tree_only(world: World) -> None:
    world.minutes(3)
    desired = {each.name: each.config for each in world.workspace.connectors}
    assert {row.settings for row in world.history()} == {settings_mark(desired[LOGS])}
    assert settings_mark(desired[LOGS]) != settings_mark(desired[ORDERS])


def test_settings_that_only_protect_or_name_things_do_not_count() -> None:
    plain = {"source.consumer.fetch.max.bytes": "1", "producer.override.acks": "all"}
    other = {
        "topics": "x",
        "tasks.max": "9",
        "source.cluster.bootstrap.servers": "elsewhere:1",
        "source.consumer.sasl.jaas.config": "password='geheim'",
        "producer.override.ssl.keystore.password": "geheim",
        "source.consumer.client.id": "me",
    }
    assert settings_mark(plain) == settings_mark({**other, **plain})
    assert settings_mark(plain) != settings_mark({**plain, "producer.override.acks": "1"})
    assert settings_mark(plain) != settings_mark({**plain, "source.cluster.security.protocol": "SSL"})
    assert settings_mark(plain) == settings_mark({**plain, "producer.override.client.id": "me"})


def test_what_is_carried_under_a_catch_up_limit_is_told_apart() -> None:
    plain = {"source.consumer.fetch.max.bytes": "1"}
    limited = {**plain, "producer.override.client.id": "mm2mgr.team/logs:a->hub"}
    assert settings_mark(plain) != settings_mark(limited)
    assert settings_mark(limited) == settings_mark({**plain, "producer.override.client.id": "mm2mgr.team/a->hub"})


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (f"/connectors/{LOGS}/offsets", 404, "Connector not found"),
        (f"/connectors/{LOGS}/tasks", 404, "Connector not found"),
        (f"/connectors/{LOGS}/status", 404, f"No status found for connector {LOGS}"),
        (f"/connectors/{LOGS}/status", 500, "broken"),
    ],
)
def test_what_is_not_answered_has_no_moment_and_never_a_wrong_one(
    world: World, path: str, status: int, body: str
) -> None:
    world.minutes(4)
    world.fake.fail_next("GET", path, status, body)
    assert world.minutes(1) == [[]]
    after = world.minutes(2)
    whole = [(row.span_ms, row.bytes_per_second) for row in after[0]]
    if "offsets" in path:  # the look is missing, and the next span is as long as what it measures
        assert whole == [(120_000, 200_000.0)] * 2
    else:
        assert whole == [(0, 0.0)] * 2
    assert [(row.span_ms, row.bytes_per_second) for row in after[1]] == [(60_000, 200_000.0)] * 2


def test_conflicts_that_last_and_answers_that_do_not_come_have_no_moment(world: World) -> None:
    world.reader._watch = TaskWatch(world.recent, world.store, world.reader._watch.compacted, Pace(), 0.5)
    world.minutes(4)
    world.fake.fail_next("GET", f"/connectors/{LOGS}/offsets", 409, "rebalance", times=1_000)
    assert world.minutes(1) == [[]]
    world.fake.faults.clear()
    world.fake.delay_next("GET", f"/connectors/{LOGS}/status", 1.0)
    assert world.minutes(1) == [[]]
    assert [row.span_ms for row in world.minutes(1)[0]] == [0, 0]


def test_offsets_that_go_back_and_connectors_that_vanish_end_the_stretch(world: World) -> None:
    world.minutes(4)
    world.lag_seconds["logs"] += 120
    assert [row.span_ms for row in world.minutes(1)[0]] == []
    assert [[row.span_ms for row in rows] for rows in world.minutes(2)] == [[0, 0], [60_000, 60_000]]
    gone = world.fake.connectors.pop(LOGS)
    assert world.minutes(3) == [[], [], []]
    world.fake.connectors[LOGS] = gone
    assert [[row.span_ms for row in rows] for rows in world.minutes(2)] == [[0, 0], [60_000, 60_000]]


def test_another_number_of_tasks_a_failed_task_and_other_settings_begin_anew(world: World) -> None:
    world.minutes(4)
    logs = world.fake.connectors[LOGS]
    logs.config["tasks.max"] = "4"
    assert [(row.task, row.span_ms) for row in world.minutes(1)[0]] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    logs.failed_tasks[2] = "trace"
    assert [(row.task, row.span_ms) for row in world.minutes(1)[0]] == [(0, 60_000), (1, 60_000), (3, 60_000)]
    logs.failed_tasks.clear()
    assert [(row.task, row.span_ms) for row in world.minutes(1)[0]] == [(0, 60_000), (1, 60_000), (2, 0), (3, 60_000)]
    logs.config["source.consumer.fetch.max.bytes"] = "7"
    assert {row.span_ms for row in world.minutes(1)[0]} == {0}


def test_compacted_topics_are_not_counted(world: World) -> None:
    world.compacted.add("logs")
    assert world.minutes(5) == [[]] * 5


def test_a_source_that_does_not_tell_its_topic_configs_is_said(world: World) -> None:
    def refused(alias: str, topics: Collection[str]) -> None:
        return None

    compacted = remember_compacted(refused)
    world.reader._watch = TaskWatch(world.recent, world.store, compacted, Pace(), 2.0)
    assert world.minutes(4) == [[]] * 4
    assert world.reader.poll().notes == (
        "a: no permission to read topic configs; record counts of compacted topics would be wrong",
    )


def test_topic_configs_are_asked_for_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = World.__new__(World), list[list[str]]()
    clock.seconds = 0

    def ask(alias: str, topics: Collection[str]) -> frozenset[str]:
        asked.append(sorted(topics))
        return frozenset({"b"} & set(topics))

    go_by(clock, monkeypatch)
    compacted = remember_compacted(ask)
    assert [compacted("x", each) for each in (["a"], ["a", "b"], ["b"], [])] == [
        frozenset(),
        frozenset({"b"}),
        frozenset({"b"}),
        frozenset(),
    ]
    clock.seconds = 3_601
    compacted("x", ["a"])
    assert asked == [["a"], ["b"], ["a"]]


def test_looks_come_once_a_minute_whatever_the_beat(world: World) -> None:
    world.minutes(1)
    before = len(world.fake.requests)
    for _ in range(10):
        world.pass_(6)
        world.reader.poll()
    assert [request.path for request in world.fake.requests[before:]].count("/connectors") == 1


def test_workers_that_are_too_old_are_said(world: World) -> None:
    world.fake.version = "3.4.0"
    world.pass_(60)
    with pytest.raises(Mm2mgrError, match="Connect cluster 'w': task capacity is not measured: workers do not expose"):
        world.reader.poll()


def test_workers_that_are_gone_are_said_in_one_line(world: World, closed_port: int) -> None:
    tree = world.workspace.files[0] / "x.yaml"
    tree.write_text(TREE.format(url=f"http://127.0.0.1:{closed_port}"))
    (reader,) = task_readers(Workspace((tree,)).topology.flows, world.reader._watch)
    reader._due = 0
    with pytest.raises(Mm2mgrError) as said:
        reader.poll()
    assert said.value.message.startswith("Connect cluster 'w': task capacity is not measured: GET /connectors: no URL")
    assert "\n" not in said.value.message


def test_a_look_ends_in_time_and_who_was_late_comes_first_in_the_next(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(60)]
    flows = "\n".join(f"  {name}: {{sources: [a], targets: [hub], topics: {{include: [{name}]}}}}" for name in names)
    fake = FakeConnect(source_topics=dict.fromkeys(names, 1))
    with serving(fake) as url, jumping() as clock:
        head = TREE.format(url=url).partition("flows:")[0]
        workspace = Workspace((write(tmp_path / "clusters", x=f"{head}flows:\n{flows}\n"),))
        for name in names:
            fake.add(f"mm2.a.hub.source.{name}", {"connector.class": SOURCE, "topics": name})
        watch = TaskWatch(RecentLogs(600), TaskStore(tmp_path, lambda _: None), lambda *_: frozenset(), Pace(), 1.0)
        (reader,) = task_readers(workspace.topology.flows, watch)
        fake.delay_next("GET", "/connectors/", 0.3, times=40)
        looked = [0]
        while looked[-1] < 60:
            assert len(looked) < 5, looked
            reader._due = 0
            started = clock.seconds
            reader.poll()
            assert clock.seconds - started < 1.5
            looked.append(sum(one.snapshot is not None for one in reader._watched))
    assert 0 < looked[1] < 60


def test_an_error_of_kafka_does_not_hide_the_moments_of_others(world: World) -> None:
    def ask(alias: str, topics: Collection[str]) -> frozenset[str]:
        if "logs" in topics:
            raise KafkaError("a: no answer")
        return frozenset()

    world.lag_seconds["orders"] = 600.0
    world.reader._watch = TaskWatch(world.recent, world.store, ask, Pace(), 2.0)
    rows = [row for each in world.minutes(4) for row in each]
    assert {row.connector for row in rows} == {ORDERS}
    assert world.reader.poll().notes == ("a: no answer",)


def test_no_secret_reaches_the_store(world: World, tmp_path: Path) -> None:
    world.fake.connectors[LOGS].config["source.consumer.sasl.jaas.config"] = "password='geheim'"
    world.minutes(4)
    assert "geheim" not in json.dumps([vars(row) for row in world.history()])
