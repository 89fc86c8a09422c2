"""What a source connector calls topics on the target: policy, then transformations; what is unknown is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.lint.hops import Hop, arriving_alike, hops
from mm2mgr.lint.rules.topics import named_too_long
from mm2mgr.lint.subject import KafkaFacts
from mm2mgr.lint.target_names import filters_of, naming_of
from mm2mgr.spec.scalars import replacement_of
from mm2mgr.topics.shared import Catalog
from tests.examples import draw_examples
from tests.lint import made

ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
TOMBSTONE = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
OF_OTHERS = {"replication.policy.class": "com.acme.Policy"}


def routed(regex: str, replacement: str, type_: str = ROUTER, **more: str) -> dict[str, str]:
    keys = {"type": type_, "regex": regex, "replacement": replacement, **more}
    return {"transforms": "r", **{f"transforms.r.{key}": value for key, value in keys.items()}}


def chosen(type_: str, pattern: str = "", negate: str = "false") -> dict[str, str]:
    more = {"predicates": "p", "predicates.p.type": type_, "predicates.p.pattern": pattern}
    return {**routed("A[.](.*)", "new.$1", predicate="p", negate=negate), **more}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "A.orders"),
        ({"replication.policy.separator": "-"}, "A-orders"),
        (IDENTITY, "orders"),
        (routed(r"A\.(.*)", "mirror.$1"), "mirror.orders"),
        (routed("A[.](o)(r)ders", "$2$1-$0"), "ro-A.orders"),
        (routed("A[.](.*)", r"\$1.x"), "$1.x"),
        (routed("B[.](.*)", "mirror.$1"), "A.orders"),
        (routed("orders", "x"), "A.orders"),  # the whole name must match
        (routed("orders", "x") | IDENTITY, "x"),
        (chosen(MATCHES, "A[.]o.*"), "new.orders"),
        (chosen(MATCHES, "A[.]x.*"), "A.orders"),
        (chosen(MATCHES, "A[.]x.*", negate="true"), "new.orders"),
        (
            routed("B[.].{1,3}", "$2"),
            "A.orders",
        ),  # what is unknown of an expression does not matter to names that it does not match
        (routed("((a+)+)+[.]x", "$1"), "A.orders"),
        (routed("(?!A[.]).*", "x.$0"), "A.orders"),
        (routed("B[.](.*+)", "$1"), "A.orders"),
        (chosen(TOMBSTONE) | {"transforms.r.regex": "B[.](.*)"}, "A.orders"),
        (chosen(MATCHES, "B[.].{1,3}"), "A.orders"),
        ({"transforms": "d", "transforms.d.type": "org.apache.kafka.connect.transforms.DropHeaders"}, "A.orders"),
        (
            routed("A[.](.*)", "b.$1")
            | {
                "transforms": "r,s",
                "transforms.s.type": ROUTER,
                "transforms.s.regex": "b[.](.*)",
                "transforms.s.replacement": "c.$1",
            },
            "c.orders",
        ),
    ],
)
def test_a_name_that_is_known(config: dict[str, str], name: str) -> None:
    found = naming_of(made.source(config))("orders")
    assert (str(found), found.unknown) == (name, ())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (routed("", "", "com.acme.Router"), "what com.acme.Router makes of A.orders"),
        (routed("", "", "org.apache.kafka.connect.transforms.TimestampRouter"), "TimestampRouter makes of A.orders"),
        (chosen(TOMBSTONE), "RegexRouter makes of A.orders"),
        (routed("(?i)a[.](.*)", "$1"), "RegexRouter makes of A.orders"),
        (routed("A[.](.*)", "$2"), "RegexRouter makes of A.orders"),  # Java throws
        (routed("((A+)+)+[.]orders", "$1"), "RegexRouter makes of A.orders"),
        (routed("A[.].{1,9}", "x"), "RegexRouter makes of A.orders"),
        (chosen(MATCHES, "A[.].{1,9}") | {"transforms.r.replacement": "$2"}, "RegexRouter makes of A.orders"),
        (OF_OTHERS, "what com.acme.Policy makes of orders"),
    ],
)
def test_a_name_that_is_not(config: dict[str, str], text: str) -> None:
    naming = naming_of(made.source(config))
    assert str(naming("orders")).endswith(text)
    assert naming("orders") == naming_of(made.source({**config, "tasks.max": "7"}))("orders")
    changed = {
        key: f"{value}x" if key in {"transforms.r.regex", "replication.policy.class"} else value
        for key, value in config.items()
    }
    assert naming("orders") != naming_of(made.source(changed))("orders")


def test_more_digits_belong_to_a_group_as_long_as_there_is_one() -> None:
    replaced = replacement_of("(.)(.)", "$12")
    assert replaced
    assert replaced("ab") == "a2"


def test_a_name_on_the_target_has_249_characters_at_most() -> None:
    fits, long = "n" * 247, "n" * 248
    source = made.source({"topics": ".*"})
    assert named_too_long(source, (fits, long, f"__{long}")) == [long]
    assert named_too_long(made.source({"topics": ".*", **IDENTITY}), (long,)) == []
    assert named_too_long(made.source({"topics": ".*", "topics.exclude": "n.*"}), (long,)) == []
    [hit] = made.hits(
        "name-too-long", made.source({"topics": ".*"}, source_kafka=KafkaFacts(partitions={long: 1, fits: 1}))
    )
    assert "250" in hit.message
    assert made.hits("name-too-long", source) == []


TOPICS = ["a", "b", "a.b", "a-b", "ab", "A.a", "orders.a", "orders.b", "mm2-x.internal", "a.heartbeats"]
FILTER = "org.apache.kafka.connect.transforms.Filter"
WAYS = [
    {},
    IDENTITY,
    OF_OTHERS,
    routed("A[.](a.*)", "new.$1"),
    routed(".{1,3}", "$2"),
    {"transforms": "f", "transforms.f.type": FILTER},
    {"transforms": "f", "transforms.f.type": FILTER, "transforms.f.predicate": "p", "predicates": "p"}
    | {"predicates.p.type": MATCHES, "predicates.p.pattern": "A[.]a.*"},
    {"transforms": "f", "transforms.f.type": FILTER, "transforms.f.predicate": "p", "predicates": "p"}
    | {"predicates.p.type": TOMBSTONE},
    {"transforms": "f", "transforms.f.type": FILTER, "transforms.f.predicate": "p", "predicates": "p"}
    | {"predicates.p.type": TOMBSTONE, "transforms.f.negate": "true"},
]
PATTERNS = st.sampled_from(["a", "b", "a.*", ".*b", ".*", "orders[.].*", "orders\\..", "(a|ab)", "[^a].*", "a.b"])
CONNECTORS = st.builds(
    lambda takes, leaves, way, alias: {
        "topics": ",".join(takes),
        "topics.exclude": ",".join(leaves),
        "source.cluster.alias": alias,
        **way,
    },
    st.lists(PATTERNS, min_size=1, max_size=2),
    st.lists(PATTERNS, max_size=1),
    st.sampled_from(WAYS),
    st.sampled_from(["A", "A", "A", "C"]),
)


@draw_examples(200)
@given(st.lists(CONNECTORS, max_size=4), st.lists(CONNECTORS, max_size=4), st.lists(CONNECTORS, max_size=2))
def test_what_arrives_from_two_is_what_comparing_each_with_each_finds(
    ours: list[dict[str, str]], others: list[dict[str, str]], both: list[dict[str, str]]
) -> None:
    every = hops(tuple(made.source(config, name=str(number)) for number, config in enumerate([*ours, *both, *others])))
    ones, rivals = every[: len(ours) + len(both)], every[len(ours) :]
    plainly = [(one, other, topics) for one in ones for other in rivals if (topics := _alike(one, other))]
    found = list(arriving_alike(ones, rivals, Catalog(TOPICS)))
    assert sorted(found, key=_places) == sorted(plainly, key=_places)


def _places(pair: tuple[Hop, Hop, list[str]]) -> tuple[int, int]:
    return int(pair[0].subject.name), int(pair[1].subject.name)


def _alike(one: Hop, other: Hop) -> list[str]:
    """The plain way: each topic is asked of both connectors."""
    topics = []
    for topic in TOPICS if one is not other else ():
        both_take = one.selection and other.selection and one.selection.takes(topic) and other.selection.takes(topic)
        if both_take and one.target_names(topic) == other.target_names(topic):
            first, second = filters_of(one.subject, topic), filters_of(other.subject, topic)
            if None not in (first, second) and (first == second or not first or not second):
                topics.append(topic)
    return sorted(topics)
