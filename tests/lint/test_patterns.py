"""Java's expressions, filters made of them, and which connectors speak of one cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.lint.hops import clusters
from mm2mgr.topics.java_regex import shape
from mm2mgr.topics.names import NameFilter, Selection, samples
from mm2mgr.topics.shared import overlaps
from tests.lint import made


# What java.util.regex.Pattern of Java 17 says of each, taken down from a run.
@pytest.mark.parametrize(
    "text",
    [
        *(
            "a{2}{3}",
            "(a|b)",
            "[]a]",
            "[a[b]c]",
            "[a&&b]",
            "]",
            "}",
            "a*+",
            "^*",
            "(?i)x",
            "(?<n>x)",
            r"\Q[*",
            r"\p{Alpha}*",
        ),
        *("", "|", "x{2}", "(?!a).*", "(?:a|)", r"\-", "[^a-z]", "(?i-s:x)", "{1}"),
    ],
)
def test_what_java_takes(text: str) -> None:
    shape(text)


@pytest.mark.parametrize(
    "text",
    [
        *("*", "a**", "(*)", "a|+", "[", "[]", "[a", "a)", "(a", "(?P<n>x)", "(?", "{x}", "a{1|2}", "a{1,2", "a{2,1}"),
        *("[z-a]", "\\", r"\y", r"\E", r"\p{Alpha"),
    ],
)
def test_what_java_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        shape(text)


@given(st.text(alphabet="ab.*+?{}[]()|\\^-&1Q", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = shape(text)
    except ValueError:
        return
    assert len(found.samples) <= 8


@given(st.text(alphabet="abcXYZ019_-", min_size=1, max_size=20))
def test_a_plain_name_is_itself(name: str) -> None:
    found = shape(name)
    assert (found.literal, found.prefix, found.suffix, found.samples) == (name, name, name, (name,))


@pytest.mark.parametrize(
    ("item", "name"),
    [
        *[(r"orders\..*", "orders.x"), ("(a|b)-c", "b-c"), ("[xyz]1?", "x"), (r"\d+", "1"), ("a.b", "a.b")],
        *[("x*", "x"), ("(?!a)b", "b"), (r"\Qa.b\E.*", "a.bx")],
    ],
)
def test_samples(item: str, name: str) -> None:
    assert name in list(samples(item))


@pytest.mark.parametrize(
    ("text", "costly"), [("(x+x+)+y", True), ("(a|b)*", True), (".*.*.*.*", True), ("(ab)+.*", False)]
)
def test_what_may_match_for_ever(text: str, *, costly: bool) -> None:
    assert shape(text).costly is costly


def test_filters_read_as_java_does() -> None:
    assert NameFilter(("a.b",), ()).takes("a-b")
    assert not NameFilter((".*",), ("a.*",)).takes("abc")
    assert not NameFilter((".*",), ()).takes("x" * 250)


def test_overlaps_say_each_later_filter_once() -> None:
    items = ("orders.*", "payments", "pay.*", "orders-eu", "orders-.*", "x")
    taken = [Selection(NameFilter((item,), ()), "default", "A", "B") for item in items]
    found = {(before, later) for before, later, _ in overlaps(taken)}
    assert {later for _, later in found} == {2, 3, 4}
    assert len(found) == 3
    assert list(overlaps(taken, [1] * len(taken))) == []


def test_clusters_by_address_and_alias() -> None:
    back = {"source.cluster.alias": "B", "target.cluster.alias": "A", "source.cluster.bootstrap.servers": None}
    subjects = (made.source(), made.heartbeat({**back, "target.cluster.bootstrap.servers": "SSL://A2:9092"}))
    known = clusters(subjects)
    assert known[subjects[0]] == known[subjects[1]][::-1]


def test_the_ends_of_a_connector_are_never_joined_by_alias() -> None:
    """Two data centres that use one example file, in which the other one is always `source` (strimzi#2919)."""
    ends = {"source.cluster.alias": "source", "target.cluster.alias": "target"}
    there = {**ends, "source.cluster.bootstrap.servers": "dc2-k1:1", "target.cluster.bootstrap.servers": "dc1-k1:1"}
    back = {**ends, "source.cluster.bootstrap.servers": "dc1-k1:1", "target.cluster.bootstrap.servers": "dc2-k1:1"}
    subjects = (made.source(there), made.source(back))
    known = clusters(subjects)
    assert len(set(known[subjects[0]])) == 2
    assert known[subjects[0]] == known[subjects[1]][::-1]
