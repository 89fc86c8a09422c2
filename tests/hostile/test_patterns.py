"""Regular expressions that somebody else wrote: matched as Java does, in a time that does not depend on how they are written."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.store import SampleStore
from mm2mgr.spec.scalars import check_pattern
from mm2mgr.topics.automaton import Backtracker, Regular
from mm2mgr.topics.java_regex import shape
from mm2mgr.topics.names import NameFilter, TooCostly, readable
from tests.cli.command import Command
from tests.cli.load import produce
from tests.cli.test_watch import Watched
from tests.samples.rows import stored
from tests.spec.trees import BASE, FLOW, write

QUICK_SECONDS = 8.0  # of processor time
EVENTS = "([a-z]+[.-]?)+[.]events"
LONG = ["abcdefgh." * 27 + "event", "a" * 249, "a-" * 120 + ".event", "abcdefgh." * 26 + "events"]


def quickly(work: Callable[[], Any]) -> Any:
    """Run something that must end soon; end it by a signal when it does not, which an expression that goes back hears too."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60)
    begun = process_time()
    try:
        found = work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert process_time() - begun < QUICK_SECONDS
    return found


def takes(pattern: str, names: list[str]) -> list[bool]:
    return [NameFilter((pattern,), ()).takes(name) for name in names]


@pytest.mark.parametrize(
    ("pattern", "names", "answers"),
    [
        (EVENTS, [*LONG, "a.events", "events"], [False, False, False, True, True, False]),
        ("(a?){50}a{50}", ["a" * 49, "a" * 50, "a" * 100, "a" * 101], [False, True, True, False]),
        ("(a|a)*b", ["a" * 200, "a" * 200 + "b"], [False, True]),
        ("(a|ab)(c|bcd)(d*)", ["abcd", "abcdd", "abd"], [True, True, False]),
        ("(.*)*(.*)*(.*)*x", ["y" * 240, "y" * 240 + "x"], [False, True]),
        (".*a.*b.*c.*d.*e.*f", ["abcde" * 40, "abcde" * 40 + "f"], [False, True]),
        (f"(?!test){EVENTS}", [*LONG, "test.events", "a.events"], [False, False, False, True, False, True]),
        (f"(?=.*prod){EVENTS}", [*LONG, "prod.events"], [False, False, False, False, True]),
        (f"{EVENTS}(?<!old-events)", [*LONG, "a.events"], [False, False, False, True, True]),
        ("([a-z]+[.-]?)++[.]events", [*LONG, "a.events"], [False, False, False, False, False]),
        (r"(a+)+\1b", ["a" * 240, "aaaab", "ab"], [False, True, False]),
        (r"(?:(?:a+)+\b-?)+z", ["a" * 240, "a-a-z", "az"], [False, True, False]),
    ],
)
def test_the_answer_is_right_and_quick(pattern: str, names: list[str], answers: list[bool]) -> None:
    assert quickly(lambda: takes(pattern, names)) == answers


def test_a_hundred_thousand_topics_cost_no_more_than_a_second_or_two() -> None:
    names = [f"team{n % 97}.{'abcdefgh.' * 3}event{n}" for n in range(100_000)] + ["team.a.events"]
    assert quickly(lambda: sum(takes(EVENTS, names))) == 1


def test_names_of_groups_may_hold_other_characters() -> None:
    group = NameFilter((r"(\w+[:@/ ]?)+",), ())
    names = ["a:b@c/d", "x" * 300 + "!", "x y", "é", "a:é"]
    assert quickly(lambda: [group.matches(name) for name in names]) == [True, False, True, False, False]
    anything = NameFilter(("(.+)+x",), ())
    assert [anything.matches(name) for name in ("é-ü x", "é" * 200)] == [True, False]


def test_what_cannot_be_bounded_ends_with_a_sentence_that_holds_the_pattern() -> None:
    pattern = r"(?:(a|b|ab|ba)\1?)+(?:(a|b|ab|ba)\2?)+(?:(a|b)\3?\1?)+-"
    assert readable(pattern)
    names = [f"{n:08b}".replace("0", "a").replace("1", "b") * 20 + "-" for n in range(256)]
    with pytest.raises(TooCostly) as caught:
        quickly(lambda: takes(pattern + "(?<=c-)", names))
    assert f"the pattern '{pattern}(?<=c-)' takes too long to match" in caught.value.message


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 3000 + ")" * 3000,
        "[" * 100_000,
        "\\Q" * 100_000,
        "(?:" * 40 + "a{8}" + "){8}" * 40,
        "(?:" * 40 + "{9}" + "){9}" * 40,
        "((){200}){200}" * 3 + "(((){250}){250}){250}",
        "(a{200}){200}",
        "a" * 1_000_001 + "?",
        "(?:a?){5000}a{5000}",
        "|".join(f"(x{n}*)*" for n in range(2000)),
        "(.*[ab].{12}){3}" + "x?" * 40,
    ],
    ids=[
        "groups",
        "sets",
        "quotes",
        "counts",
        "empty counts",
        "empty",
        "squared",
        "long",
        "optional",
        "many",
        "states",
    ],
)
def test_reading_a_pattern_is_bounded(pattern: str) -> None:
    def read() -> None:
        try:
            check_pattern(pattern)
            takes(pattern, ["a" * 249, "x" * 100, "ab" * 120])
        except (ValueError, TooCostly):
            pass

    quickly(read)


def test_a_thread_other_than_the_main_one_is_not_deaf() -> None:
    """`status` matches in threads, where no signal reaches an expression: it must come to an end by itself."""
    found: list[bool] = []
    running = threading.Thread(target=lambda: found.extend(takes(EVENTS, LONG)), daemon=True)
    running.start()
    running.join(QUICK_SECONDS * 4)
    assert found == [False, False, False, True]


def test_lint_finishes(mm2mgr: Command) -> None:
    for pattern in ("(a?){50}a{50}", EVENTS):
        tree = FLOW.replace("[t]", f"['{pattern}']").replace("  f:", "  one:")
        write(mm2mgr.tree, x=BASE + tree + FLOW.replace("flows:\n", "").replace("[t]", f"[{'a' * 60}, x.y.events]"))
        said = quickly(lambda: mm2mgr("lint", code=1))
        assert "twice" in str(said) or "both" in str(said)


@pytest.mark.usefixtures("impatient")
def test_commands_that_match_topics_of_a_cluster_finish(watched: Watched, mock_cluster: KafkaAccess) -> None:
    produce(mock_cluster, "a" * 60, 1)
    produce(mock_cluster, "team.events", 1)
    tree = watched.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("[orders]", f"[orders, '{EVENTS}']"))
    said = quickly(lambda: watched.mm2mgr("describe", "orders:a->b", "-o", "json", code=1))
    assert {row["topic"] for row in said.json["lag"]} == {"orders", "team.events"}
    said = quickly(lambda: watched.mm2mgr("status", code=1))
    assert said.lines[1].startswith("orders:a->b")
    said = quickly(lambda: watched.mm2mgr("sample", "--interval", "100ms", "--duration", "200ms"))
    assert "team.events" in str(stored(SampleStore(watched.mm2mgr.folder / ".mm2mgr/samples"))["topic"].to_pylist())


# Pattern, names that it matches, names that it does not: random ones, answered by java.util.regex of Java 17.
JAVA = [
    (r"(\w++.??)", "a. abbbab1 1a1baa", "-ab--1. -aba1-a --.aba.."),
    (r"\w?+[^a]?.+(?<!\.+)?", ".bb- ---a--a b-bb", "1 b 1"),
    (r"[^a]*+\.*", "1-.-. b1 b", "1.-aa- 111-a1 1...1-1-a"),
    (r"[ab]++", "a aaa b", ".-bbabb 1ba11 1a1baa"),
    (r"\wa?(a(?<=[^a]?+)?)??", "a b 1a", "1a. 1a1 1ba11"),
    (r"\b+?[ab]\.??", "a a. a", "a1 1-..bbba 11a-.aa-"),
    (r"a*+\d??[.]??", "a 1 1", "b111.b aba1b.- ---a--a"),
    (r".\B??", "b 1 1", "ba-1 b11a-1 1a1"),
    (r"\.++[.]?+.?+", "..a .- .1", "a 1ba11 -a"),
    (r"[ab][^a]++b?+", "b1 ab-b a.", "1 1 -b-."),
    (r"-?\B*?[^a]*+", "1..1 -1. -b.b", "b.b--aa .-bbabb ..a"),
    (r"a++b??", "aaa a a", "111-a1 aba1b.- ba-1"),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), JAVA)
def test_what_java_says(pattern: str, yes: str, no: str) -> None:
    tree = shape(pattern).whole
    assert tree is not None
    matches = Backtracker(tree).matches
    assert [name for name in yes.split() if not matches(name)] == []
    assert [name for name in no.split() if matches(name)] == []


PIECES = ["a", "b", "ab", "[ab]", "[^a]", "[.]", r"\.", "-", ".", r"\w", r"\W", r"\b", "(a|b)", "(?:ab|b.)", "(?=a)"]
PIECES += ["(?!b)", "(?<=a)", "(?<!-)", "(?>a|ab)", "(a*b)", "(?:a?b)"]
SIGNS = ["", "", "", "*", "+", "?", "{2}", "*?", "+?", "*+", "?+"]
PLAIN_SIGNS = SIGNS[:7]


@st.composite
def expressions(draw: st.DrawFn) -> str:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        piece = draw(st.sampled_from(PIECES))
        is_place = piece.startswith(("(?=", "(?!", "(?<")) or piece == r"\b"
        found.append(piece + ("" if is_place else draw(st.sampled_from(SIGNS))))
    text = "".join(found)
    return draw(st.sampled_from([text, f"(?:{text}){draw(st.sampled_from(PLAIN_SIGNS))}", f"(?:{text}|a-)"]))


@settings(max_examples=400, deadline=None)
@given(expressions(), st.lists(st.text("ab.-", max_size=7), min_size=8, max_size=8))
def test_all_matchers_agree_with_python(expression: str, names: list[str]) -> None:
    wanted = [re.fullmatch(expression, name, re.ASCII) is not None for name in names]
    found = shape(expression)
    assert found.whole is not None
    assert [Backtracker(found.whole).matches(name) for name in names] == wanted
    if found.tree is not None:
        assert [Regular(found.tree).matches(name) for name in names] == wanted
    if readable(expression):
        assert [NameFilter((expression,), ()).matches(name) for name in names] == wanted
