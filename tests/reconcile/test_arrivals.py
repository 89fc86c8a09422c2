"""Whether an update is judged rightly by log ends: any old and new tasks, any traffic, any readings on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.expand import expand
from mm2mgr.partitions import TopicPartition
from mm2mgr.reconcile.arrivals import Arrivals
from mm2mgr.spec.loader import load
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
            ends[one] = source + (one in grown[0]), target + (one in grown[1])
        arrivals.set_partitions(new if runs else old, is_new=runs)
        arrivals.take({one: ends[one] for one in arrivals.partitions}, runs=runs)

    for grown in before:
        look(grown, runs=False)
    for grown in after:
        look(grown, runs=True)
    judged = {one.topic for one in new if one.topic in ("in", "in.too")}
    assert set(arrivals.waiting) <= set(arrivals.fresh) <= judged
    grew, came = ({one.topic for each in after[1:] for one in each[side] & new} for side in (0, 1))
    assert not set(arrivals.waiting) & came, "of these something arrived"
    if arrivals.is_broken:
        assert grew & set(arrivals.waiting)
    if judged & grew and not judged & came and not any(each[1] for each in (*before, after[0])):
        assert arrivals.is_broken, "what came while the tasks ran with the new config, and nowhere arrived"
