"""Whether two connectors take one topic: decided for the expressions that people write, against trying every name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from random import Random
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2mgr.topics.automaton import accepts
from mm2mgr.topics.names import NameFilter, Selection, machine_of
from mm2mgr.topics.shared import Catalog, Shared, meeting, overlaps
from tests.examples import draw_examples

PIECES = [
    "a",
    "b",
    "ab",
    "[ab]",
    "[^a]",
    "[.]",
    r"\.",
    "-",
    ".*",
    ".+",
    ".",
    "a?",
    "b*",
    "b+",
    "a{2}",
    "(a|b)",
    "(?:ab|b.)",
    "(a|bb)*",
]
EXPRESSIONS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
SHORT = ["".join(letters) for size in (1, 2, 3, 4, 5) for letters in product("ab.-", repeat=size)]


def takes(include: str, exclude: str = "", *, target: str = "B") -> Selection:
    lists = (tuple(item for item in each.split(",") if item) for each in (include, exclude))
    return Selection(NameFilter(*lists), "default", "A", target)


def test_the_issues_examples() -> None:
    assert meeting([takes("dc[12]-orders"), takes("dc[32]-orders")]) == Shared("dc2-orders")
    assert meeting([takes("eu[.].*"), takes("us[.].*")]) == Shared()


@draw_examples(133, many=400)
@given(EXPRESSIONS)
def test_a_machine_matches_what_the_expression_matches(expression: str) -> None:
    machine = machine_of((expression,))
    assert machine is not None
    for name in SHORT:
        assert accepts(machine, name) is (re.fullmatch(expression, name) is not None), name


# Which of ab1-._AB the Pattern of Java 17 matches with each, taken down from a run.
JAVA = [
    *[(".", "ab1-._AB"), (r"\.", "."), ("[ab]", "ab"), ("[^a]", "b1-._AB"), ("[a-c]", "ab"), ("[a-c&&[^b]]", "a")],
    *[("[a[1]]", "a1"), ("[.]", "."), (r"[\w&&[^_]]", "ab1AB"), (r"\d", "1"), (r"\w", "ab1_AB"), (r"\W", "-.")],
    *[(r"\D", "ab-._AB"), (r"\p{Alpha}", "abAB"), (r"\p{Lower}", "ab"), (r"\P{Upper}", "ab1-._")],
    *[(r"\pL", "abAB"), (r"\p{Punct}", "-._"), (r"\p{XDigit}", "ab1AB"), (r"\x61", "a"), (r"\u0062", "b")],
    *[(r"\0101", "A"), ("(a|b)", "ab"), ("(?:ab|1)", "1"), ("(?i:a)", "aA"), ("((?i)a|b)", "abAB")],
    *[("((?i)[a-b])", "abAB"), ("(?i:[^a])", "b1-._B"), ("(?-i:a)", "a"), (r"\Qa.\E", ""), (r"\Q-\E", "-")],
    *[("^", ""), ("$", ""), (r"\A", ""), (r"\z", ""), (r"\s", ""), (r"\S", "ab1-._AB"), (r"\h", "")],
    *[(r"\H", "ab1-._AB"), ("(|a)", "a"), ("[]a]", "a"), ("[a-]", "a-"), ("[-a]", "a-"), (r"[\-a]", "a-")],
    *[(r"[a\]]", "a"), ("[&a]", "a"), ("[a&]", "a"), (r"[a-\x62]", "ab"), (r"\t", ""), ("(?<n>a)", "a")],
    *[("(?s).", "ab1-._AB"), ("(?m:^a)", "a"), ("[1-9&&[^2]]", "1"), ("a&&b", ""), ("]", ""), ("}", "")],
    *[(r"[\p{Lower}1]", "ab1"), (r"[^\p{Lower}]", "1-._AB"), (r"[^\w]", "-."), (r"[\d.-]", "1-."), ("[+--]", "-")],
    *[("[,-.]", "-."), ("[.-a]", "a1._AB"), ("[a&&b]", ""), ("[a-z&&a-b]", "ab")],
]


@pytest.mark.parametrize(("expression", "letters"), JAVA)
def test_what_java_says(expression: str, letters: str) -> None:
    machine = machine_of((expression,))
    assert machine is not None
    assert "".join(each for each in "ab1-._AB" if accepts(machine, each)) == letters


@pytest.mark.parametrize(
    "expression",
    ["(?=a)a", "(?!a)b", r"(a)\1", "a*+a", "(?>a|ab)", r"a\b", "(?x)a b", r"[^a[b]]", "[a&&&b]", "(?i)a", r"\Qa"],
)
def test_what_is_not_regular_or_not_understood_is_no_machine(expression: str) -> None:
    assert machine_of((expression,)) is None


@pytest.mark.long
@example("b*", "b*", "b")  # a text that leads back to where it began
@draw_examples(200, many=600)
@given(EXPRESSIONS, EXPRESSIONS, st.one_of(st.just(""), EXPRESSIONS))
def test_two_are_decided_as_trying_every_short_name_says(one: str, other: str, excluded: str) -> None:
    first, second = takes(one, excluded), takes(other, target="b")
    found = meeting([first, second])
    assert not found.undecided
    if found.topic is not None:
        assert first.takes(found.topic)
        assert second.takes(found.topic)
    else:
        assert [name for name in SHORT if first.takes(name) and second.takes(name)] == []


ITEMS = st.one_of(
    EXPRESSIONS, st.sampled_from(["(?i)ab.*", "(?i:a)b", "^a.*", "a|b.", "(?!a).*", "", ".", ".*a", "a.b"])
)


@draw_examples(300)
@given(st.lists(ITEMS, max_size=3), st.lists(ITEMS, max_size=2), st.sets(st.sampled_from([*SHORT, "A", "aB", "AB-"])))
def test_a_catalog_finds_what_trying_every_topic_finds(wanted: list[str], left: list[str], topics: set[str]) -> None:
    selection = Selection(NameFilter(tuple(wanted), tuple(left)), "default", "A", "b")
    assert Catalog(topics).taken_by(selection) == sorted(topic for topic in topics if selection.takes(topic))


def written(random: Random) -> str:
    """Return an expression as people write them: prefixes, suffixes, sets, alternatives."""
    parts = [
        "orders",
        "app",
        "dc",
        "eu",
        "us",
        "[12]",
        "[23]",
        "(eu|us)",
        "(orders|stock)",
        ".*",
        ".*",
        r"\.",
        "-",
        "[.]",
        "1",
    ]
    return "".join(random.choice(parts) for _ in range(random.randint(2, 5)))


def generalised(name: str, random: Random) -> str:
    """Return an expression as people write them that matches a name."""

    def one(found: re.Match[str]) -> str:
        text = re.escape(found[0]).replace("\\-", "-")
        other = random.choice(["eu", "us", "orders", "x1"])
        forms = [text, f"({other}|{text})", f"({text}|{other})", ".*", ".+", f"{text}.*", f".*{text}", f"{text}?"]
        if len(found[0]) == 1:
            forms += [f"[{text}{random.choice('q789')}]", f"[^{random.choice('qQ')}]", ".", f"{text}+"]
        return random.choice([text, *forms])

    return re.sub(r"[a-z]+|.", one, name)


def test_of_400_random_overlapping_pairs_each_is_found() -> None:
    random = Random(7)
    for _ in range(400):
        parts = random.choices(["orders", "app", "dc", "eu", "1", "2", "-", ".", "_", "stock"], k=random.randint(3, 6))
        name = "t" + "".join(parts)
        one, other = generalised(name, random), generalised(name, random)
        first, second = takes(one), takes(other)
        assert first.takes(name), (one, name)
        shared = meeting([first, second])
        assert shared.topic is not None, (one, other, name)
        assert first.takes(shared.topic)
        assert second.takes(shared.topic)


def test_random_pairs_that_start_or_end_apart_share_nothing() -> None:
    random = Random(8)
    for _ in range(300):
        one, other = written(random), written(random)
        assert meeting([takes(f"p[12].*{one}"), takes(f"p[34].*{other}")]) == Shared()
        assert meeting([takes(f"{one}.*[12]q"), takes(f"{other}.*[34]q")]) == Shared()


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (["(?!x).*-a"], ["b-.*"], "b-x-a"),  # a sample is a proof
        (["(?!x)[pq]+[12]"], ["[pq]+[34]"], None),
        ([r"(a|b)\1-[12]y+"], ["[ab]{2}-[34]y+"], None),
        (["(a|b)*a(a|b){12}-x[12]y+"], ["(a|b)*b(a|b){14}-x[34]y+"], None),
    ],
)
def test_what_is_not_decided_says_so(one: Sequence[str], other: Sequence[str], shared: str | None) -> None:
    found = meeting([takes(one[0]), takes(other[0])])
    if shared:
        assert found.topic is not None
    else:
        assert found.topic is None
        assert one[0] in found.undecided


def test_what_is_left_out_is_no_shared_topic() -> None:
    """Internal names, what has been on the target and excluded names do not count, and the search goes on behind them."""
    assert meeting([takes(r"__a.*|x1"), takes(r"__.*|x[12]")]) == Shared("x1")
    assert meeting([takes(r"B\..*"), takes(r".*\.orders")]) == Shared()
    assert meeting([takes(r"B\..*"), takes(r".*\.")]).topic in {"B.", "B.."}
    assert meeting([takes(".*", "a.*,b.*"), takes("[ab].*")]) == Shared()
    assert meeting([takes(".*", "a.*,b[^c].*"), takes("[ab].*")]).topic in {"b", "bc", "bcx"}
    assert meeting([takes(r"mm2.*\.internal"), takes(".*")]) == Shared()
    named = ",".join(["ab", "ac", "x"])
    assert meeting([takes("a[bc]", named), takes("a.")]) == Shared()


def test_a_hop_reads_what_the_one_before_has_put_there() -> None:
    assert meeting([takes("t[12]"), takes(r"A\.t[23]")], ["", "A."]) == Shared("t2")
    assert meeting([takes("t[12]"), takes(r"A\.t[34]")], ["", "A."]) == Shared()
    assert meeting([takes("t1,t2"), takes(r"A\.t2")], ["", "A."]) == Shared("t2")
    assert meeting([takes(".*"), takes(".*")], ["", "A."], but=(".*",)) == Shared()


def test_many_names_and_patterns_are_compared_quickly() -> None:
    one = takes(",".join(f"orders-{number}-eu" for number in range(8000)))
    other = takes(",".join(f"orders-{number}-us" for number in range(8000)))
    wild = takes(",".join(f"orders-[{n % 10}]{n}.*-(x|y)" for n in range(100)))
    started = process_time()
    assert list(overlaps([one, other, wild])) == []
    both = takes(",".join([*one.names.include, "orders-7-us"]))
    assert [found.topic for _, _, found in overlaps([both, other])] == ["orders-7-us"]
    assert process_time() - started < 2


def test_a_question_has_a_bounded_cost() -> None:
    """Twenty expressions that need thousands of states each are not decided, after a bounded time, each told once."""
    costly = [
        takes(f"(a|b)*{'ab'[number % 2]}(a|b){{12}}-[{number % 2}-9]+{'cd'[number % 2]}x+") for number in range(20)
    ]
    started = process_time()
    found = list(overlaps(costly))
    assert process_time() - started < 5
    assert len(found) <= 19
    assert any(shared.undecided for _, _, shared in found)


def test_hundreds_of_patterns_that_share_nothing_are_told_apart_quickly() -> None:
    started = process_time()
    assert list(overlaps([takes(f"app[.](t{number}|u{number})") for number in range(300)])) == []
    assert list(overlaps([takes(f".*-(t{number}|u{number})") for number in range(300)])) == []
    assert process_time() - started < 3
