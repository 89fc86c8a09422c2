"""What holds for any numbers: lag is never negative, a FAILED task is never ok, traces never show a secret, a flow that
moves is never said to stand still nor to write elsewhere, and a loss is never forgotten."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import Assignment
from mm2mgr.connectors import Connector, ConnectorStatus, RunningConnector, TaskConfig, TaskStatus
from mm2mgr.errors import Failure
from mm2mgr.json_values import to_json
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.losses import Acknowledgement, LossEntry, acknowledgement_of, entries_of
from mm2mgr.observe.memory import Memory, measure_lags, remember
from mm2mgr.observe.reading import LiveConnector, Reading, SeenConnect
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.problems.health import Status, judge
from mm2mgr.render import render
from mm2mgr.topology import Flow
from tests.examples import draw_examples
from tests.observe.estate import TREE, sentences, topology_of
from tests.sizing.assignments import Drawn, assignments, running

offsets = st.integers(0, 10_000)
logs = st.lists(st.tuples(offsets, offsets).map(sorted), min_size=1, max_size=4)
stored = st.lists(st.none() | offsets, min_size=4, max_size=4)


@dataclass(frozen=True)
class Draw:
    """Logs (start, end) and stored offsets by partition."""

    logs: list[list[int]]
    stored: list[int | None]


draws = st.builds(Draw, logs, stored)
states = st.sampled_from(["RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING", "DESTROYED"])
tasks = st.lists(states, max_size=4)


@dataclass(frozen=True)
class Declared:
    """A flow and its rendered source connector."""

    flow: Flow
    desired: Connector


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Declared:
    directory: Path = tmp_path_factory.mktemp("tree")
    topology = topology_of(TREE.format(url="http://127.0.0.1:1", more=""), directory)
    return Declared(topology.flows[0], next(one for one in render(topology) if one.type == "source"))


def reading(declared: Declared, draw: Draw, state: str, task_states: list[str], now: float) -> Reading:
    flow, desired = declared.flow, declared.desired
    assigned = ",".join(f"orders-{number}" for number in range(len(draw.logs)))
    config = {**desired.config, "task.assigned.partitions": assigned}
    trace = "boom: password=hunter2"
    status = ConnectorStatus(
        desired.name, state, "w", trace, tuple(TaskStatus(n, one, "w", trace) for n, one in enumerate(task_states))
    )
    running = RunningConnector(
        desired.name,
        dict(desired.config),
        status=status,
        tasks=tuple(TaskConfig(n, config) for n in range(min(1, len(task_states)))),
        offsets={
            TopicPartition("orders", n): value
            for n, value in enumerate(draw.stored[: len(draw.logs)])
            if value is not None
        },
    )
    seen = LiveConnector(desired, running)
    found = {TopicPartition("orders", n): Offsets(*log) for n, log in enumerate(draw.logs)}
    clusters = {"A": RunningKafka({"orders": len(draw.logs)}, found), "B": RunningKafka()}
    return Reading(
        now, (flow,), {"cb": SeenConnect("cb", {desired.name: seen}, exactly_once=False)}, clusters, begun_at=now
    )


def judged(one: Reading, earlier: Memory) -> tuple[Status, Memory]:
    lags = measure_lags(one)
    memory = remember(earlier, one, lags)
    return judge(one, lags, earlier, memory, ledger=entries_of(memory.unwritten)), memory


@draw_examples(50, many=150)
@given(first=draws, later=draws, state=states, task_states=tasks)
def test_no_numbers_break_the_promises(
    declared: Declared, first: Draw, later: Draw, state: str, task_states: list[str]
) -> None:
    before, memory = judged(reading(declared, first, state, task_states, 0.0), Memory())
    after, _ = judged(reading(declared, later, state, task_states, 1000.0), memory)
    for status in (before, after):
        flow = status.flows[0]
        assert flow.lag_records is not None
        assert flow.lag_records >= 0
        assert all(0 < one.lag_records <= one.log.end - one.log.start for one in flow.lag_partitions)
        if "FAILED" in task_states or state == "FAILED":
            assert flow.health == "problem"
        if flow.health == "ok":
            assert state == "RUNNING"
            assert set(task_states) == {"RUNNING"}
        assert (flow.health == "problem") == bool(flow.problems)
        assert "hunter2" not in json.dumps(to_json(status))


@draw_examples(50, many=150)
@given(drawn=assignments())
def test_whatever_dealt_the_partitions_the_lag_is_that_of_each_one_and_defects_are_told(
    declared: Declared, drawn: Drawn
) -> None:
    """All topics of the source match the flow here."""
    one = reading(declared, Draw([[0, 5]], [None]), "RUNNING", ["RUNNING"], 0.0)
    (seen,) = one.connects["cb"].connectors.values()
    assert seen.running is not None
    names = {
        topic: f"orders.{number}" for number, topic in enumerate(drawn.there | dict.fromkeys(drawn.assignment.topics))
    }
    there = {names[topic]: count for topic, count in drawn.there.items()}
    hands = tuple(
        tuple(TopicPartition(names[partition.topic], partition.partition) for partition in hand)
        for hand in drawn.assignment.tasks
    )
    connector = running(Assignment(hands))
    held = replace(seen, running=replace(seen.running, config=connector.config, tasks=connector.tasks))
    ends = {TopicPartition(topic, number): Offsets(0, 5) for topic, count in there.items() for number in range(count)}
    one = replace(
        one,
        connects={"cb": replace(one.connects["cb"], connectors={seen.desired.name: held})},
        clusters=one.clusters | {"A": RunningKafka(there, ends)},
    )
    (lag,) = measure_lags(one).values()
    assert {part.partition: part.task for part in lag.partitions} == {
        partition: next((task for task, hand in enumerate(hands) if partition in hand), None) for partition in ends
    }
    status, _ = judged(one, Memory())
    kinds, told = {problem.kind for problem in status.flows[0].problems}, " ".join(status.flows[0].notes)
    flat = [partition for hand in hands for partition in hand]
    assert ("partitions-in-two-tasks" in kinds) == (len(set(flat)) < len(flat))
    assert ("partitions have no task" in told) == bool(flat and ends.keys() - set(flat))
    assert ("tasks still hold partitions" in told) == bool(set(flat) - ends.keys())
    assert ("without a partition" in told) == bool(flat and not all(hands))


@dataclass(frozen=True)
class Look:
    """What one look sees, so many seconds after the one before: which sides answer, and by how much the flow moved."""

    seconds: float
    unread: frozenset[str]
    moved: int
    flushed: bool = True


DOWN = Failure("no answer")
unread = st.frozensets(st.sampled_from(["source", "target", "connect", "offsets"]), max_size=2)
looks = st.lists(st.builds(Look, st.floats(1, 5_000), unread, st.integers(1, 50), st.booleans()), max_size=12)


def seen_by(declared: Declared, look: Look, draw: Draw, arrived: int, now: float) -> Reading:
    """Return a reading of the draw in which some sides could not be read."""
    whole = reading(declared, draw, "RUNNING", ["RUNNING"], now)
    ends = {TopicPartition("A.orders", 0): Offsets(0, arrived)}
    source, target = whole.clusters["A"], RunningKafka({"A.orders": 1}, ends)
    if "source" in look.unread:
        source = RunningKafka(failure=DOWN)
    if "target" in look.unread:
        target = RunningKafka(failure=DOWN)
    connects = whole.connects
    if "connect" in look.unread:
        connects = {"cb": SeenConnect("cb", failure=DOWN)}
    elif "offsets" in look.unread:
        (seen,) = whole.connects["cb"].connectors.values()
        assert seen.running is not None
        hidden = replace(seen, running=replace(seen.running, offsets=DOWN))
        connects = {"cb": SeenConnect("cb", {seen.desired.name: hidden})}
    return replace(whole, connects=connects, clusters={"A": source, "B": target})


@draw_examples(100, many=300)
@given(taken=looks)
def test_a_flow_that_moves_between_looks_never_stands_still(declared: Declared, taken: list[Look]) -> None:
    """Stored offsets may stand for some looks as long as the target is seen: commits are late, records are not."""
    memory, now, arrived, stored = Memory(), 0.0, 0, 0
    for look in taken:
        now += look.seconds
        arrived += look.moved
        if look.flushed or "target" in look.unread:
            stored = arrived
        draw = Draw([[0, arrived + 1000]], [stored - 1 if stored else None])
        status, memory = judged(seen_by(declared, look, draw, arrived, now), memory)
        (flow,) = status.flows
        assert not any("no progress" in problem for problem in sentences(flow))
        assert status.losses == ()


@draw_examples(100, many=300)
@given(taken=looks, draws=st.lists(draws, min_size=12, max_size=12), ids=st.lists(st.sampled_from("xyz"), min_size=12, max_size=12),
       acks=st.lists(st.booleans(), min_size=12, max_size=12))  # fmt: skip
def test_a_loss_stays_until_it_is_acknowledged_and_then_stays_away(
    declared: Declared, taken: list[Look], draws: list[Draw], ids: list[str], acks: list[bool]
) -> None:
    memory, now = Memory(), 0.0
    waiting, done = tuple[LossEntry, ...](), list[LossEntry]()
    for look, draw, topic_id, ack in zip(taken, draws, ids, acks, strict=False):
        now += look.seconds
        one = seen_by(declared, look, draw, 0, now)
        one = replace(one, clusters=one.clusters | {"A": replace(one.clusters["A"], topic_ids={"orders": topic_id})})
        status, memory = judged(one, memory)
        assert all(any(bounds(old) <= bounds(new) for new in status.losses) for old in waiting), "none is forgotten"
        assert not any(bounds(new).overlaps(bounds(old)) for new in status.losses for old in done)
        assert len({loss.id for loss in status.losses}) == len(status.losses)
        assert status.health == "problem" or not status.losses
        waiting = status.losses
        again, memory = judged(one, memory)
        assert again.losses == status.losses, "a second look at the same sees nothing more"
        if ack:
            acked = (acknowledgement_of(loss, Acknowledgement("me", now, "")) for loss in status.losses)
            memory = replace(memory, unwritten=(*memory.unwritten, *acked))
            done, waiting = [*done, *status.losses], ()
            after, memory = judged(one, memory)
            assert after.losses == (), "nor does it see an acknowledged loss once more"


@dataclass(frozen=True)
class Range:
    """The offsets of an entry in the log that they belong to."""

    log: tuple[object, ...]
    first: int
    last: float

    def __le__(self, other: Range) -> bool:
        return self.log == other.log and other.first <= self.first and self.last <= other.last

    def overlaps(self, other: Range) -> bool:
        return self.log == other.log and max(self.first, other.first) <= min(self.last, other.last)


def bounds(loss: LossEntry) -> Range:
    last = float("inf") if loss.last_offset is None else loss.last_offset
    return Range((loss.partition, loss.topic_id, loss.cause), loss.first_offset, last)


@dataclass(frozen=True)
class Step:
    """What happens between two looks: entries that the log gets, records (True) and markers or compacted offsets (False); how many
    of those that wait are mirrored; and how many of the mirrored ones the workers store the offsets of."""

    entries: list[bool]
    mirrored: int
    flushed: int


# Flushes of many partitions, each at its own time, while little arrives: the hardest to tell from records elsewhere.
steps = st.builds(Step, st.lists(st.booleans(), max_size=5), st.sampled_from([0, 0, 0, 1, 9]), st.integers(0, 2))


@given(had=st.integers(0, 3), day=st.lists(steps, min_size=3, max_size=25))
@draw_examples(50, many=150)
def test_records_that_arrive_are_never_said_to_be_elsewhere_nor_to_come_twice(
    declared: Declared, had: int, day: list[Step]
) -> None:
    """Whatever the log holds beside records, however late offsets are stored, and also where nobody looked before."""
    log, mirrored, flushed = list[bool](), 0, 0
    memory = Memory()
    for number, step in enumerate(day):
        log += step.entries
        mirrored = min(len(log), mirrored + step.mirrored)
        flushed = min(mirrored, flushed + step.flushed)
        stored = max((offset for offset, is_record in enumerate(log[:flushed]) if is_record), default=None)
        there = {TopicPartition("A.orders", 0): Offsets(0, had + sum(log[:mirrored]))}
        look = reading(declared, Draw([[0, len(log)]], [stored]), "RUNNING", ["RUNNING"], 1000.0 * number)
        source = replace(look.clusters["A"], later_ends={TopicPartition("orders", 0): len(log)})
        look = replace(look, clusters={"A": source, "B": RunningKafka({"A.orders": 1}, there)})
        lags = measure_lags(look, memory)
        earlier, memory = memory, remember(memory, look, lags)
        (flow,) = judge(look, lags, earlier, memory).flows
        assert not {"records-not-on-target", "arrives-twice"} & {problem.kind for problem in flow.problems}
