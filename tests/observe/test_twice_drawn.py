"""Records that arrive twice, judged over whole days that are drawn, and held to what arrived by record ids.

What nobody doubled is never named, whatever happens to the topics, the clusters, the tree, the clock and the looks; what was doubled is never
counted too high.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connectors import Connector, ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.lag import doubtful
from mm2mgr.observe.memory import Memory, measure_lags, remember
from mm2mgr.observe.reading import LiveConnector, Reading, SeenConnect
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.problems.health import judge
from mm2mgr.render import render
from mm2mgr.topology import Flow
from tests.examples import draw_examples
from tests.observe.estate import TREE, topology_of

TOPIC = "orders"
SOURCE = TopicPartition(TOPIC, 0)


@cache
def _tree(separator: str, exactly_once: bool) -> tuple[tuple[Flow, ...], Connector]:
    more = f"separator: '{separator}'\n    delivery: {'exactly_once' if exactly_once else 'at_least_once'}"
    with TemporaryDirectory() as folder:
        topology = topology_of(TREE.format(url="http://127.0.0.1:1", more=more), Path(folder))
    return topology.flows, next(connector for connector in render(topology) if connector.type == "source")


@dataclass
class Task:
    """What mirrors the partition: the flow's own task, or another connector's."""

    position: int = 0
    stored: int = -1


@dataclass
class Day:
    """One partition on its way from A to B, with all that people, brokers and workers do to it; `batch`: records of a transaction, 0 without."""

    batch: int = 0
    log: list[int | None] = field(default_factory=list)
    start: int = 0
    topic_id: int = 0
    task: Task = field(default_factory=Task)
    other: Task | None = None
    ends: dict[tuple[str, str], int] = field(default_factory=lambda: {("b1", "."): 0})
    arrived: Counter[int] = field(default_factory=Counter)
    made: int = 0
    now: float = 1_000_000.0
    cluster: str = "b1"
    separator: str = "."
    written: str = "."
    memory: Memory = field(default_factory=Memory)
    hidden: set[str] = field(default_factory=set)
    repeats: int = 0

    @property
    def place(self) -> tuple[str, str]:
        """The topic on the target that records go to: the tree may say another one, before it is applied."""
        return self.cluster, self.written

    @property
    def twice(self) -> int:
        """Records that arrived more often than once."""
        return sum(count - 1 for count in self.arrived.values())

    def append(self, offsets: int) -> None:
        self.ends[self.place] = self.ends.get(self.place, 0) + offsets

    def produce(self, entries: Iterable[bool]) -> None:
        for is_record in entries:
            self.made += 1
            self.log.append(self.made if is_record else None)

    def mirror(self, count: int) -> None:
        self._mirror(self.task, count, self.batch)
        if self.other:
            self._mirror(self.other, count, 0)
        if self.batch:
            self.flush()

    def _mirror(self, task: Task, count: int, batch: int) -> None:
        if not self.start <= task.position <= len(self.log):
            task.position = self.start if task.position < self.start else 0
        passed = self.log[task.position : task.position + count]
        task.position += len(passed)
        records = [record for record in passed if record is not None]
        self.arrived.update(records)
        self.append(len(records) + (-(-len(records) // batch) if batch else 0))

    def flush(self) -> None:
        at = [at for at in range(min(self.task.position, len(self.log))) if self.log[at] is not None]
        if at and self.task.position > 0:
            self.task.stored = at[-1]

    def die(self) -> None:
        self.repeats += self.task.position > self.task.stored + 1
        self.task.position = min(self.task.position, self.task.stored + 1)

    def abort(self) -> None:
        """A transaction that ends badly, of what waits: offsets on the target that are no records."""
        waiting = [record for record in self.log[self.task.position :] if record is not None]
        if self.batch and waiting:
            self.append(len(waiting[: self.batch]) + 1)

    def recreate(self) -> None:
        """Delete the topic and create it again; the task that runs begins at its beginning, its stored offset stays for now."""
        self.topic_id += 1
        self.log, self.start = [], 0
        self.task.position = 0
        if self.other:
            self.other.position = 0

    def recreate_target(self) -> None:
        self.ends[self.place] = 0

    def retain(self) -> None:
        self.start = len(self.log)

    def change_tree(self) -> None:
        """Another separator in the tree, which nobody applies."""
        self.separator = "_" if self.separator == "." else "."

    def apply(self) -> None:
        self.written = self.separator

    def replace_target(self) -> None:
        """The target's name leads to another cluster, which has had such a topic for long."""
        self.cluster = "b2" if self.cluster == "b1" else "b1"
        self.ends.setdefault(self.place, 500)

    def hide(self, what: str) -> None:
        self.hidden ^= {what}

    def jump(self, seconds: float) -> None:
        self.now += seconds

    # what doubles records

    def reset(self) -> None:
        """A person sets offsets back, and looks on."""
        self.repeats = 99
        self.task.stored = -1
        self.task.position = 0

    def copy(self, *, all_of_it: bool) -> None:
        self.repeats = 99
        self.other = Task(0 if all_of_it else len(self.log))

    def uncopy(self) -> None:
        self.other = None

    def look(self, arriving: int = 0, later: int = 0) -> int:
        """Look, with so many records produced and mirrored while it reads; return how many it says arrived twice."""
        self.now += 30
        flows, connector = _tree(self.separator, exactly_once=bool(self.batch))
        stored, end = self.task.stored, len(self.log)
        self.produce([True] * arriving)
        self.mirror(arriving + later)
        there = self.ends.get((self.cluster, self.separator))
        remote = TopicPartition(f"A{self.separator}{TOPIC}", 0)
        offsets: dict[TopicPartition, int] | Failure = {} if stored < 0 else {SOURCE: stored}
        if "offsets" in self.hidden:
            offsets = Failure("no answer")
        live = LiveConnector(
            connector,
            RunningConnector(
                connector.name,
                dict(connector.config),
                (0,),
                status=ConnectorStatus(connector.name, "RUNNING", tasks=(TaskStatus(0, "RUNNING"),)),
                tasks=(TaskConfig(0, {"task.assigned.partitions": f"{TOPIC}-0"}),),
                offsets=offsets,
            ),
        )
        exactly_once = None if "workers" in self.hidden else bool(self.batch)
        logs = {} if "partition" in self.hidden else {SOURCE: Offsets(min(self.start, end), end)}
        source = RunningKafka({TOPIC: 1}, logs, topic_ids={TOPIC: str(self.topic_id)})
        target = RunningKafka({}, cluster_id=self.cluster)
        if there is not None:
            target = RunningKafka({remote.topic: 1}, {remote: Offsets(0, there)}, cluster_id=self.cluster)
        clusters = {
            "A": RunningKafka(failure=Failure("down")) if "source" in self.hidden else source,
            "B": RunningKafka(failure=Failure("down")) if "target" in self.hidden else target,
        }
        connect = SeenConnect("cb", {connector.name: live}, kafka_cluster_id="k", exactly_once=exactly_once)
        reading = Reading(self.now, flows, {"cb": connect}, clusters, begun_at=self.now - 1, declared=flows)
        if "later" not in self.hidden and [*doubtful(reading, flows[0], self.memory.flow(flows[0].id).surplus)]:
            clusters["A"] = replace(clusters["A"], later_ends={SOURCE: len(self.log)})
        lags = measure_lags(reading, self.memory)
        earlier, self.memory = self.memory, remember(self.memory, reading, lags)
        (flow,) = judge(reading, lags, earlier, self.memory).flows
        return sum(to_json(problem.evidence)["records"] for problem in flow.problems if problem.kind == "arrives-twice")


entries = st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=12)
Step = Callable[[Day], object]
WORK: list[st.SearchStrategy[Step]] = [
    st.builds(lambda entries, times: lambda day: day.produce(entries * times), entries, st.sampled_from([1, 1, 9])),
    st.sampled_from([1, 5, 999]).map(lambda count: lambda day: day.mirror(count)),
    st.just(Day.flush),
]
TROUBLE: list[st.SearchStrategy[Step]] = [
    st.sampled_from(
        [
            Day.die,
            Day.abort,
            Day.recreate,
            Day.recreate_target,
            Day.retain,
            Day.change_tree,
            Day.apply,
            Day.replace_target,
        ]
    ),
    st.sampled_from(["offsets", "partition", "source", "target", "workers", "later"]).map(
        lambda what: lambda day: day.hide(what)
    ),
    st.sampled_from([-4000.0, -30.0, 1.0, 3600.0, 1e8, -1e8]).map(lambda seconds: lambda day: day.jump(seconds)),
]
DOUBLES: list[st.SearchStrategy[Step]] = [
    st.sampled_from(
        [Day.reset, Day.uncopy, lambda day: day.copy(all_of_it=True), lambda day: day.copy(all_of_it=False)]
    )
]
looks = st.tuples(st.sampled_from([0, 0, 0, 7, 60]), st.sampled_from([0, 0, 999]))


def _days(*kinds: st.SearchStrategy[Step]) -> st.SearchStrategy[list[tuple[list[Step], tuple[int, int]]]]:
    return st.lists(st.tuples(st.lists(st.one_of(*kinds), max_size=5), looks), min_size=2, max_size=25)


@pytest.mark.long
@draw_examples(100, many=300)
@given(day=_days(*WORK * 3, *TROUBLE), batch=st.sampled_from([0, 0, 0, 1, 4]))
def test_what_nobody_doubled_is_not_named(day: list[tuple[list[Step], tuple[int, int]]], batch: int) -> None:
    estate = Day(batch)
    for steps, (arriving, later) in day:
        for step in steps:
            step(estate)
        named = estate.look(arriving, later)
        assert named <= estate.twice
        assert not named or estate.repeats > 1, "one restart of workers is no second copy"


@pytest.mark.long
@draw_examples(100, many=300)
@given(day=_days(*WORK * 3, *TROUBLE, *DOUBLES * 2), batch=st.sampled_from([0, 0, 0, 1, 4]))
def test_no_more_is_named_than_arrived_twice(day: list[tuple[list[Step], tuple[int, int]]], batch: int) -> None:
    estate = Day(batch)
    for steps, (arriving, later) in day:
        for step in steps:
            step(estate)
        assert estate.look(arriving, later) <= estate.twice


@pytest.mark.long
@draw_examples(70, many=200)
@given(day=_days(*WORK, *TROUBLE, *DOUBLES), seconds=st.sampled_from([-1e8, -4000.0, 0.0, 1e8]))
def test_whatever_happened_before_a_second_copy_is_named(
    day: list[tuple[list[Step], tuple[int, int]]], seconds: float
) -> None:
    estate = Day()

    def work() -> int:
        estate.produce([True] * 300)
        estate.mirror(9999)
        estate.flush()
        return estate.look()

    for steps, (arriving, later) in day:
        for step in steps:
            step(estate)
        estate.look(arriving, later)
    estate.uncopy()
    estate.apply()
    estate.hidden.clear()
    estate.mirror(9999)  # also of a topic that is there again
    for _ in range(4):
        work()
    estate.jump(4000.0)
    work()
    assert work() == 0, "what was doubled an hour before is over"
    estate.copy(all_of_it=False)
    estate.jump(seconds)
    assert [*(work() for _ in range(4))][-1] > 300
