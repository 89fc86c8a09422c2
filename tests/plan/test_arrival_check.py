"""Whether an update is judged rightly by log ends: any old and new tasks, any traffic, any readings on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.apply.arrival_check import Arrivals
from mm2mgr.expand import expand
from mm2mgr.partitions import TopicPartition
from mm2mgr.spec.files import load
from mm2mgr.topology import Flow
from tests.examples import draw_examples
from tests.spec.trees import write

TOPICS = ("in", "in.too", "out", "heartbeats", "a.in")
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(2)]
TREE = """
owner: team
clusters:
  a: {bootstrap_servers: ['a:9092']}
  b: {bootstrap_servers: ['b:9092']}
connect: {b: {url: 'http://b:8083', kafka: b}}
flows: {f: {sources: [a], targets: [b], topics: {include: ['in', 'in[.]too']}}}
"""
CHOSEN = st.sets(st.sampled_from(PARTITIONS))
LOOK = st.tuples(st.sets(st.sampled_from(PARTITIONS)), st.sets(st.sampled_from(PARTITIONS)))
"""The partitions that grow at the source, and those that grow at the target, until a look."""


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    (flow,) = expand(load([write(tmp_path_factory.mktemp("tree"), x=TREE)])).flows
    return flow


@pytest.mark.long
@draw_examples(300)
@given(old=CHOSEN, new=CHOSEN, before=st.lists(LOOK, max_size=3), after=st.lists(LOOK, min_size=1, max_size=4))
def test_only_what_is_still_taken_is_missed(
    flow: Flow,
    old: set[TopicPartition],
    new: set[TopicPartition],
    before: list[tuple[set[TopicPartition], set[TopicPartition]]],
    after: list[tuple[set[TopicPartition], set[TopicPartition]]],
) -> None:
    """A topic that the new tasks have and the config takes is missed when it grew at the source and never at the target."""
    arrivals = Arrivals(flow)
    ends = dict.fromkeys(PARTITIONS, (100, 100))

    def look(grown: tuple[set[TopicPartition], set[TopicPartition]], *, runs: bool) -> None:
        for one, (source, target) in ends.items():
            ends[one] = source + 5 * (one in grown[0]), target + 5 * (one in grown[1])
        arrivals.set_partitions(new if runs else old, is_new=runs)
        arrivals.take({one: ends[one] for one in arrivals.partitions}, 0.0, runs=runs)

    for grown in before:
        look(grown, runs=False)
    for grown in (*after, (set[TopicPartition](), set[TopicPartition]())):  # what came last had the time to arrive
        look(grown, runs=True)
    judged = {one.topic for one in new if one.topic in ("in", "in.too")}
    assert set(arrivals.waiting) <= set(arrivals.fresh) <= judged
    grew, came = ({one.topic for each in after[1:] for one in each[side] & new} for side in (0, 1))
    assert not set(arrivals.waiting) & came, "of these something arrived"
    if arrivals.is_broken:
        assert grew & set(arrivals.waiting)
    if judged & grew and not judged & came and not any(each[1] for each in (*before, after[0])):
        assert arrivals.is_broken, "what came while the tasks ran with the new config, and nowhere arrived"


@dataclass
class Mirrored:
    """One partition and its copy; times are seconds, `source` has the time of each record, and None for a marker of a transaction."""

    source: list[float | None] = field(default_factory=lambda: [0.0] * 100)
    target: int = 100
    copied: int = 100

    def mirror(self, until: float) -> None:
        while self.copied < len(self.source) and (self.source[self.copied] or 0.0) <= until:
            self.target += self.source[self.copied] is not None
            self.copied += 1


STEP = st.tuples(
    st.sampled_from(PARTITIONS[:4]),
    st.sampled_from(["records", "records", "record", "marker", "target created again", "nothing"]),
    st.floats(0.1, 3.0),
)


@pytest.mark.long
@draw_examples(300)
@given(
    steps=st.lists(STEP, min_size=3, max_size=40),
    runs_at=st.integers(0, 5),
    latency=st.floats(0.0, 4.0),
    fault=st.sampled_from(["", "", "", "mirrors nothing", "mirrors nothing", "target is hidden"]),
)
def test_a_mirror_that_works_is_never_called_broken(
    flow: Flow,
    steps: list[tuple[TopicPartition, str, float]],
    runs_at: int,
    latency: float,
    fault: str,
) -> None:
    """However late records come, whatever else takes offsets; one that mirrors nothing is, once it had the time."""
    breaks, is_hidden = fault == "mirrors nothing", fault == "target is hidden"
    logs = {partition: Mirrored() for partition in PARTITIONS[:4]}
    arrivals, now = Arrivals(flow, patience_seconds=6.0), 0.0
    written: list[tuple[float, TopicPartition]] = []  # records since the tasks run
    for number, (partition, what, seconds) in enumerate(steps):
        now += seconds
        log, runs = logs[partition], number >= runs_at
        if what == "target created again" and not breaks:
            log.target = 0
        count = {"records": 5, "record": 1, "marker": 1}.get(what, 0)
        log.source += [None if what == "marker" else now] * count
        written += [(now, partition)] * (count if runs and arrivals.base and what != "marker" else 0)
        if runs and not breaks:
            for log in logs.values():
                log.mirror(now - latency)
        arrivals.set_partitions(PARTITIONS[:4], is_new=runs)
        ends = {one: (len(log.source), 0 if is_hidden else log.target) for one, log in logs.items()}
        arrivals.take({} if is_hidden else ends, now, runs=runs)
    if not breaks or is_hidden:
        assert not arrivals.is_broken
        assert not arrivals.overdue, "nor is a person asked"
    elif any(sum(at < now - 14 for at, one in written if one == partition) > 1 for partition in PARTITIONS[:4]):
        assert arrivals.is_broken
