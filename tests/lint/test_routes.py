"""Routes of a topic against a simulation that mirrors topics from cluster to cluster until nothing new appears."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mm2mgr.connectors import Connector
from mm2mgr.lint.routes import LONGEST, Routes, TopicPlace
from mm2mgr.lint.subject import Spot, Subject

CLUSTERS = ("a", "b", "c", "d")
POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def connector(number: int, source: str, target: str, topics: str, identity: bool) -> Subject:
    config = {
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": f"{source}:1",
        "target.cluster.bootstrap.servers": f"{target}:1",
        "topics": topics,
        **({"replication.policy.class": POLICY} if identity else {}),
    }
    return Subject(Connector(f"m{number}", "source", config=config), Spot(connect="w"))


connectors = st.lists(
    st.tuples(
        st.sampled_from(CLUSTERS),
        st.sampled_from(CLUSTERS),
        st.sampled_from(["orders", ".*", ".*orders", "a[.].*", "[^.]*"]),
        st.booleans(),
    ).filter(lambda each: each[0] != each[1]),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each[:3],
).map(lambda found: tuple(connector(number, *each) for number, each in enumerate(found)))


def reached(subjects: Sequence[Subject], start: tuple[str, str]) -> set[tuple[str, str]]:
    """Return every name that a topic gets anywhere, mirrored as MirrorMaker does."""
    found, waiting = {start}, [start]
    while waiting:
        cluster, topic = waiting.pop()
        for each in subjects:
            selection = Routes((each,), ()).every[0].selection
            if each.source == cluster and selection and selection.takes(topic):
                name = each.target, selection.target_name(topic)
                if name not in found and len(name[1]) < 60:
                    found.add(name)
                    waiting.append(name)
    return found


@settings(max_examples=150, deadline=None)
@given(connectors)
def test_the_routes_pass_exactly_the_names_that_the_topic_gets(subjects: tuple[Subject, ...]) -> None:
    routes = Routes(subjects, ())
    numbers = {name: number for number, name in routes.names.items()}
    start = subjects[0].source, "orders"
    first = TopicPlace(numbers[start[0]], start[1])
    ways = list(islice(routes.onward(first), 2000))
    assume(all(len(way) < LONGEST for way in ways))
    passed = {first} | {leg.end for way in ways for leg in way if leg.end}
    named = {(routes.names[stop.cluster], stop.topic) for stop in passed}
    assert named == reached(subjects, start)


def test_a_topic_that_goes_round_for_ever_ends() -> None:
    ring = (connector(0, "a", "b", ".*", False), connector(1, "b", "a", ".*", True))
    routes = Routes(ring, ())
    (way,) = routes.onward(TopicPlace(0, "orders"))
    assert len(way) == LONGEST
    assert way[3].end == TopicPlace(0, "a.a.orders")


@settings(max_examples=150, deadline=None)
@given(connectors)
def test_from_its_last_name_the_same_way_is_found(subjects: tuple[Subject, ...]) -> None:
    routes = Routes(subjects, ())
    for number in routes.names:
        for way in islice(routes.onward(TopicPlace(number, "orders")), 50):
            stops = [leg.start for leg in way] + [leg.end for leg in way[-1:]]
            if way and way[-1].end and len(set(stops)) == len(stops):  # no loop
                assert any(set(way) <= set(one) for one in routes.routes_through(way[-1].end))
