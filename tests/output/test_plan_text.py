"""A plan as text, and the topology as a matrix: what people review, as files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.apply.applied import Applied
from mm2mgr.apply.waves import Result
from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import Journal, ListEntry, Move, Picks, TakeOver
from mm2mgr.expand import expand
from mm2mgr.json_values import to_json
from mm2mgr.kafka.quotas import QuotaEntity
from mm2mgr.output.apply_text import say_applied
from mm2mgr.output.plan_markdown import plan_markdown
from mm2mgr.output.plan_text import data_text, say_plan, say_topology, taken_texts
from mm2mgr.plan.changes import Action, Change, ClusterPlan, Plan, Price, Taken, Volume
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.plan.saved import flow_matrix
from mm2mgr.remarks import Remark
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.topics.names import NameFilter
from tests.spec.trees import ESTATE, write

GOLDEN = Path(__file__).parent / "golden"
JAAS = 'ScramLoginModule required username="mirror" password="pa55";'
EAST = ClusterPlan(
    "east",
    (
        Change("east", "mm2.a.b.heartbeat", "heartbeat", "no-op"),
        Change(
            "east",
            "mm2.a.b.source.logs",
            "source",
            "update",
            ("logs:a->b",),
            (
                KeyChange("topics", "logs[.].*", ", ".join(f"logs[.]{number:02}[.].*" for number in range(20))),
                KeyChange("source.cluster.sasl.jaas.config", None, JAAS),
                KeyChange("source.cluster.ssl.key.password", "old-word", "${file:/etc/a.properties:key}"),
                KeyChange("source.cluster.ssl.truststore.certificates", "-----BEGIN\nabc\nEND-----", None),
                KeyChange("tasks.max", "1", "4", "spec clusters/flows.yaml:12"),
            ),
            price=Price(1, 18, 24, irreversible=("3 topics get other names on 'b', such as a.x -> a-x",)),
            steps=("compare its live config with the plan's; stop here if they differ", "write its config"),
        ),
        Change(
            "east",
            "mm2.a.b.source.new",
            "source",
            "create",
            ("new:a->b",),
            (KeyChange("name", None, "mm2.a.b.source.new"), KeyChange("tasks.max", None, "2")),
        ),
        Change(
            "east",
            "mm2.a.b.source.old",
            "source",
            "delete",
            (),
            (KeyChange("tasks.max", "1", None),),
            (Remark("no longer declared", "notes"),),
        ),
        Change(
            "east",
            "mm2.a.b.checkpoint",
            "checkpoint",
            "blocked",
            ("logs:a->b",),
            remarks=(Remark("a connector of this name exists and belongs to owner 'them'; mm2mgr does not touch it"),),
        ),
        Change(
            "east",
            "mm2.a.b.source.trade",
            "source",
            "blocked",
            ("trade:a->b",),
            remarks=(
                Remark(
                    "'mm2.a.b.source.orders' on Connect cluster 'east' has mirrored these topics (orders)",
                    remedy="keep the flow's name; or add --allow mirror-again",
                    rule="mirrored-already",
                ),
            ),
            price=Price(again=Volume(300_000, 314_200_000, ("logs",))),
        ),
    ),
    unowned=3,
)
ADOPTED = ListEntry(
    "adopt", "legacy", "x.yaml:7", "adopted; nothing is written", pending=("mm2mgr.owner", "errors.tolerance")
)
LISTS = (
    ADOPTED,
    *(
        ListEntry("adopt", f"old-{number}", f"x.yaml:{number}", "it carries the owner mark", done=True)
        for number in range(9)
    ),
    ListEntry("release", "left", "y.yaml:1", "left running"),
)
WEST = ClusterPlan(
    "west", (Change("west", "mm2.a.c.heartbeat", "heartbeat", "no-op"),), ("mm2.a.c.source.gone",), lists=LISTS
)
NORTH = ClusterPlan("north", error="Connect cluster 'north': no URL answered", hint="Check `url` [of the cluster].")


def golden(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("full", [False, True])
def test_a_plan_is_shown_as_reviewed(printed: Callable[[], list[str]], full: bool) -> None:
    say_plan(Plan("team", (EAST, WEST, NORTH)), full=full)
    lines, name = printed(), "plan_full.txt" if full else "plan.txt"
    if os.environ.get("UPDATE_SCREENS"):
        (GOLDEN / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == golden(name)
    assert not any(secret in "\n".join(lines) for secret in ("pa55", "old-word"))


MOVE = Move(("east", "old"), ("a", "b"), "RUNNING", created=True)
TAKE_OVER = TakeOver(
    ("east", "old"), {}, None, Journal("RUNNING", move=MOVE), Picks(takes=(NameFilter(("orders",), ()),))
)


def source(name: str, action: Action, **more: Any) -> Change:
    return Change("east", f"mm2.a.b.source.{name}", "source", action, (f"{name}:a->b",), **more)


def data(*changes: Change) -> str:
    return data_text(Plan("team", (ClusterPlan("east", changes),)))


def test_topics_that_move_are_not_to_be_copied() -> None:
    """What is stored of them goes along; only what is new to both connectors is copied."""
    takes = Taken({"orders": (3, 61_000), "logs": (1, 500)}, 9, moved=frozenset({"orders"}))
    moved = source("new", "create", takes=takes, takes_over=TAKE_OVER)
    given = source("old", "delete", moves_to=("east", "mm2.a.b.source.new"))
    assert list(taken_texts(moved)) == [
        "takes over 1 topic, 3 partitions, 0 to copy; goes on at the stored offsets: orders",
        "takes 1 of 9 topics, 1 partition, 500 records to copy: logs",
    ]
    assert data(moved, given) == (
        "nothing is mirrored again; 500 records of 1 topic to copy for the first time; 1 topic pauses for some seconds"
    )


def test_a_giver_that_stays_pauses_with_all_its_topics() -> None:
    moved = source(
        "new", "create", takes=Taken({"orders": (3, 0)}, 9, moved=frozenset({"orders"})), takes_over=TAKE_OVER
    )
    given = source("old", "update", moves_to=("east", "mm2.a.b.source.new"), price=Price(restarts=2))
    assert data(moved, given).endswith("; 1 topic and the topics of 1 flow pause for some seconds")


def test_a_topic_that_comes_back_is_not_copied_for_the_first_time() -> None:
    """Its connector has stored offsets of it: what came since then is what is behind."""
    back = source("x", "update", takes=Taken({"back": (3, 40), "new": (1, 500)}, 9, frozenset({"back"})))
    assert list(taken_texts(back)) == [
        "goes on with 1 topic at the stored offsets, 3 partitions, 40 records behind: back",
        "takes 1 of 9 topics, 1 partition, 500 records to copy: new",
    ]
    assert data(back) == (
        "nothing is mirrored again; 500 records of 1 topic to copy for the first time; "
        "1 topic goes on at the stored offsets, 40 records behind"
    )


def test_a_flow_that_is_declared_again_copies_nothing_for_the_first_time() -> None:
    """It runs only if the offsets of a former connector of its name are there; how far that came is read then."""
    again = source("x", "create", takes=Taken({"a": (3, 6952)}, 9), needs_offsets=("a",))
    assert list(taken_texts(again)) == ["takes 1 of 9 topics, 3 partitions, at most 6952 records to copy: a"]
    assert data(again) == (
        "nothing is mirrored again; 1 topic goes on at the offsets that a former connector of the name stored"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (source("x", "update", price=Price(restarts=2)), "nothing is mirrored again; the topics of 1 flow pause for"),
        (
            source("x", "update", state=("RUNNING", "PAUSED")),
            "nothing is mirrored again; 1 flow stands still from then",
        ),
        (
            source("x", "update", state=("PAUSED", "RUNNING")),
            "nothing is mirrored again; 1 flow goes on where it stood",
        ),
        (source("x", "delete"), "nothing is mirrored again; 1 flow is mirrored no longer"),
        (
            source("x", "update", ends=("a", "b")),
            "nothing is mirrored again; 2 topics are mirrored no longer",
        ),
        (source("x", "create"), "nothing is mirrored again; what 1 new flow has to copy is not known"),
        (
            source("x", "create", takes=Taken({"a": (1, 7)}, 2), price=Price(again=Volume(7, 70))),
            "7 records are mirrored again",
        ),
        (
            source("x", "create", takes=Taken({}, 2), price=Price(again=Volume(0, 0, ("logs",)))),
            "an unknown volume (logs) is mirrored again",
        ),
    ],
    ids=["restart", "pause", "resume", "delete", "topics left out", "unread", "again", "again, unknown"],
)
def test_a_plan_ends_with_a_sentence_on_the_data(printed: Callable[[], list[str]], change: Change, words: str) -> None:
    assert data(change).startswith(words)
    say_plan(Plan("team", (ClusterPlan("east", (change,)),)))
    assert printed()[-1] == f"Data: {data(change)}"


NOTHING_WRITTEN = "nothing is written, so nothing is mirrored again and no topic pauses"


def test_what_is_held_back_stays_as_it_is() -> None:
    held = Remark("too many", remedy="say so")
    absent = source("new", "blocked", remarks=(held,), price=Price(again=Volume(7, 70)))
    others = Change("east", "mm2.a.b.source.theirs", "source", "blocked", shown="RUNNING", remarks=(held,))
    checkpoint = Change("east", "mm2.a.b.checkpoint", "checkpoint", "blocked", remarks=(held,))
    assert data(source("x", "no-op")) == NOTHING_WRITTEN
    assert data(absent) == f"{NOTHING_WRITTEN}; 1 blocked flow does not begin"
    runs = replace(checkpoint, shown="RUNNING")
    assert data(others, source("old", "blocked", before={"topics": "t"}), checkpoint, runs) == (
        f"{NOTHING_WRITTEN}; 2 blocked flows stay as they are; 1 blocked checkpoint or heartbeat connector does not"
        " begin; 1 blocked checkpoint or heartbeat connector stays as it is"
    )
    plan = Plan("team", (NORTH,))
    assert data_text(plan) == f"{NOTHING_WRITTEN}; 1 unread Connect cluster stays as it is"
    quota = QuotaChange("b", QuotaEntity("mm2mgr.team.x"), "create", after=5)
    assert data_text(replace(plan, clusters=(), quotas=(quota,))) == (
        "only client quotas are written, so nothing is mirrored again and no topic pauses"
    )


VOLUMES = st.none() | st.builds(
    Volume, st.integers(0, 9), st.integers(0, 99), st.sets(st.sampled_from("tu"), max_size=2).map(tuple)
)
CHANGES = st.builds(
    Change,
    st.just("east"),
    st.sampled_from(("c", "d", "e")),
    st.sampled_from(("source", "checkpoint", "heartbeat")),
    st.sampled_from(("create", "update", "delete", "no-op", "blocked")),
    takes=st.none() | st.just(Taken({"t": (3, 9)}, 2)),
    before=st.none() | st.just({"topics": "t"}),
    state=st.none() | st.sampled_from((("RUNNING", "PAUSED"), ("PAUSED", "RUNNING"))),
    price=st.builds(Price, st.integers(0, 2), again=VOLUMES),
)
PLANS = st.builds(
    Plan,
    st.just("team"),
    st.lists(st.builds(ClusterPlan, st.just("east"), st.lists(CHANGES, max_size=4).map(tuple)) | st.just(NORTH)).map(
        tuple
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLANS)
def test_each_plan_ends_with_one_sentence_on_data_that_its_price_bears_out(
    capsys: pytest.CaptureFixture[str], plan: Plan
) -> None:
    say_plan(plan)
    lines = capsys.readouterr().out.splitlines()
    sentences = [line for line in lines if line.startswith("Data: ")]
    assert sentences == [f"Data: {data_text(plan)}"]
    assert lines[-1] == sentences[0]
    assert ("nothing is mirrored again" in sentences[0]) is (plan.price.again is None)
    assert plan_markdown(plan).count("**Data:**") == 1
    if plan.price.again:
        assert re.match(r"Data: .*\b(is|are) mirrored again", sentences[0])


def test_an_apply_that_wrote_a_part_says_what_that_part_does(printed: Callable[[], list[str]]) -> None:
    """Two flows were to be mirrored again; what is left or was taken back is not said to be done."""
    again = Price(again=Volume(7, 70))
    done, back, left = (source(name, "create", takes=Taken({}, 1), price=again) for name in ("x", "y", "z"))
    results = (
        Result("east", done.connector, "create", "source", change=done),
        Result("east", back.connector, "create", "source", rolled_back=True, was_written=True, change=back),
    )
    plan = Plan("team", (ClusterPlan("east", (done, back, left)),))
    say_applied(Applied(plan, results, begun=frozenset({done.full_name, back.full_name})))
    assert [line for line in printed() if line.startswith("Data: ")] == [
        "Data: 7 records are mirrored again; what 1 flow mirrored before the change was taken back or cut short stays"
        " on the target"
    ]
    say_applied(Applied(plan, begun=frozenset()))
    assert f"Data: {NOTHING_WRITTEN}" in printed()


def test_two_long_values_are_shown_where_they_differ(printed: Callable[[], list[str]]) -> None:
    long = ", ".join(f"topic-{number:03}" for number in range(100))
    keys = (KeyChange("topics", long, f"{long}, one-more"), KeyChange("topics.exclude", f"x{long}", f"y{long}"))
    say_plan(Plan("t", (ClusterPlan("w", (Change("w", "c", "source", "update", keys=keys),)),)))
    assert printed()[2:4] == [
        "      ~ topics: …topic-098, topic-099 -> …topic-098, topic-099, one-more",
        f"      ~ topics.exclude: x{long[:98]}… -> y{long[:98]}…",
    ]


def test_an_empty_plan_is_its_counts_and_what_they_do_to_the_data(printed: Callable[[], list[str]]) -> None:
    say_plan(Plan("team", ()))
    assert printed() == ["Plan: 0 to create, 0 to update, 0 to delete, 0 unchanged", f"Data: {NOTHING_WRITTEN}"]


def test_the_example_estate_is_a_matrix(printed: Callable[[], list[str]]) -> None:
    topology = expand(load([ESTATE]))
    say_topology(flow_matrix(topology, render(topology)))
    assert printed() == golden("estate.txt")


def test_a_pair_without_a_flow_is_a_dash(printed: Callable[[], list[str]], tmp_path: Path) -> None:
    aliases = ("a", "b", "x", "y")
    clusters = "".join(f"  {alias}: {{bootstrap_servers: ['{alias}:1']}}\n" for alias in aliases)
    connects = "".join(f"  {alias}: {{url: 'http://{alias}:2', kafka: {alias}}}\n" for alias in ("x", "y"))
    flow = "topics: {include: [t]}, checkpoints: false, heartbeats: false"
    flows = f"  f: {{sources: [a, b], targets: [x, y], except: ['a->y'], {flow}, tasks: {{max: 3}}}}\n"
    folder = write(tmp_path, x=f"owner: t\nclusters:\n{clusters}connect:\n{connects}flows:\n{flows}")
    topology = expand(load([folder]))
    say_topology(flow_matrix(topology, render(topology)))
    head, *rows, last = [line.split(maxsplit=1) for line in printed()]
    assert head == ["source", r"\ target   x             y"]
    assert rows == [["a", "f (3 tasks)   -"], ["b", "f (3 tasks)   f (3 tasks)"]]
    assert last == ["3", "flows, 3 connectors on 2 Connect clusters"]


def change(name: str, action: str = "no-op", **more: object) -> Change:
    return Change("w", name, "source", action, **more)  # type: ignore[arg-type]


def test_one_warning_of_many_connectors_is_one_line(printed: Callable[[], list[str]]) -> None:
    changes = [change(f"c{number}", remarks=(Remark("it may be late", "warns"),)) for number in range(376)]
    plan = Plan("t", (ClusterPlan("w", (*changes, change("d", remarks=(Remark("late", "warns"),)))),))
    say_plan(plan)
    assert printed()[1:4] == [
        "  ! warning 376 connectors: c0, c1, c2 and 373 more  it may be late",
        "  ! warning d  late",
        "  = 377 unchanged",
    ]
    assert sum(len(shown["warnings"]) for shown in to_json(plan)["clusters"][0]["changes"]) == 377


def test_what_is_blocked_for_one_reason_is_one_line(printed: Callable[[], list[str]]) -> None:
    changes = [change(f"c{number}", "blocked", remarks=(Remark("too many", remedy="say so"),)) for number in range(5)]
    say_plan(Plan("t", (ClusterPlan("w", (*changes, change("d", "blocked", remarks=(Remark("taken"),)))),)))
    assert printed()[1:4] == [
        "  ! blocked 5 connectors: c0, c1, c2 and 2 more  too many",
        "      fix: say so",
        "  ! blocked d  taken",
    ]


def test_a_state_is_a_line_of_its_own(printed: Callable[[], list[str]]) -> None:
    changes = (change("c", "update", state=("RUNNING", "PAUSED")), change("d", "create", state=("", "STOPPED")))
    say_plan(Plan("t", (ClusterPlan("w", changes),)))
    assert printed()[1:5] == [
        "  ~ update  c",
        "      ~ state: RUNNING -> PAUSED",
        "  + create  d",
        "      + state: STOPPED",
    ]
