"""A saved plan reads as the plan that was made, and never otherwise than what apply compares; whatever else is in the file is refused."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.comparison.ownership import EVERY, Journal, ListEntry, TakeOver
from mm2mgr.errors import Mm2mgrError, StalePlan
from mm2mgr.json_values import to_json
from mm2mgr.kafka.quotas import QuotaEntity
from mm2mgr.output.plan_markdown import plan_markdown
from mm2mgr.output.plan_text import making_texts, say_plan, say_topology
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import (
    KINDS,
    WRITES,
    Action,
    Change,
    ClusterPlan,
    Handover,
    Plan,
    Price,
    RenamedTopic,
    Taken,
    Volume,
    Wish,
)
from mm2mgr.plan.planfile import PlanFile, as_reviewed, read_plan, write_plan
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.plan.resets import GroupGaps, OffsetReset, StartPositions
from mm2mgr.plan.saved import FlowMatrix, Making
from mm2mgr.remarks import Remark
from tests.examples import draw_examples

MADE = Making("2026-11-28T10:00:00Z", "sam", "0123456789ab+dirty")
MATRIX = FlowMatrix(("a", "b"), ("x",), ((("orders (2 tasks)", "heartbeat"),), ((),)), 1, 3, 1)


def text_of(saved: Plan, matrix: FlowMatrix | None) -> str:
    """Return all that is printed of a plan as text and as Markdown."""
    out = io.StringIO()
    with redirect_stdout(out):
        if matrix:
            say_topology(matrix)
        say_plan(saved)
        say_plan(saved, full=True, explain=True)
    return out.getvalue() + plan_markdown(saved)


def save(path: Path, plan: Plan, only: list[str] | None = None, matrix: FlowMatrix | None = MATRIX) -> PlanFile:
    path.unlink(missing_ok=True)
    write_plan(path, plan, ["clusters", "more"], "templates", only, matrix, MADE)
    return read_plan(path)


# --- plans of all kinds -----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["t", "u", "eu.t", "a->b", "x" * 120, "\x1b[2J", "\u202egnp", "a|b`c", "日本", "\ud800", ""])
TEXTS = st.lists(NAMES, max_size=3).map(tuple)
COUNTS = st.integers(0, 9) | st.sampled_from([10**12])
MAYBE = st.none() | COUNTS
VOLUMES = st.builds(Volume, COUNTS, COUNTS, TEXTS, TEXTS)
PRICES = st.just(Price()) | st.builds(Price, COUNTS, MAYBE, COUNTS, st.none() | VOLUMES, TEXTS, TEXTS, TEXTS)
TAKEN = st.dictionaries(NAMES, st.tuples(COUNTS, COUNTS), max_size=4).flatmap(
    lambda topics: st.builds(
        Taken, st.just(topics), COUNTS, *[st.sets(st.sampled_from(sorted(topics) or ["t"])).map(frozenset)] * 2
    )
)
PLAIN = st.none() | st.sampled_from(["1", "t,u", "", "y" * 150, "z" * 150])
SECRET = st.none() | st.sampled_from(["p4ss-word", 'M required username="u" password="p4ss-word";', "${file:/x:y}"])
KEYS = st.builds(KeyChange, st.sampled_from(["tasks.max", "topics", "x"]), PLAIN, PLAIN, NAMES) | st.builds(
    KeyChange, st.sampled_from(["producer.override.sasl.jaas.config", "my.password"]), SECRET, SECRET, NAMES
)
NAMED = st.tuples(NAMES, NAMES)
STATES = st.sampled_from(["", "RUNNING", "PAUSED", "STOPPED"])
HANDOVERS = st.builds(Handover, COUNTS, MAYBE, MAYBE, MAYBE)
RENAMES = st.builds(RenamedTopic, NAMES, NAMES, NAMES, st.lists(HANDOVERS, max_size=2).map(tuple), st.booleans())
POSITIONS = StartPositions(
    (OffsetReset(TopicPartition("t", 0), Offsets(0, 9), None, 4, skipped=5),), GroupGaps((TopicPartition("t", 1),)), 2
)


def _change(number: int, draw: Callable[..., Any]) -> Change:
    action: Action = draw(st.sampled_from(["create", "update", "delete", "no-op", "blocked"]))
    text = draw(st.sampled_from(["", "why", "two\nlines", "z" * 400]))
    remarks = [Remark(text, "blocks", draw(NAMES)) if action == "blocked" else Remark(text, "notes")]
    remarks += [Remark(f"wrong {each}", "warns", each) for each in draw(TEXTS)]
    remarks += [Remark("off peak", "waits")] if action == "no-op" and draw(st.booleans()) else []
    remarks += [Remark("PAUSED by sam", "rests")] if draw(st.booleans()) else []
    live = draw(st.none() | st.just({"topics": "t"}))
    return Change(
        "east",
        f"c{number}",
        draw(st.sampled_from(["source", "checkpoint", "heartbeat"])),
        action,
        draw(TEXTS),
        draw(st.lists(KEYS, max_size=3).map(tuple)),
        tuple(remarks),
        {"topics": "u"} if action in WRITES else None,
        draw(st.none() | TAKEN),
        draw(TEXTS),
        draw(st.lists(RENAMES, max_size=2).map(tuple)),
        draw(TEXTS),
        live,
        draw(COUNTS),
        draw(STATES),
        draw(st.none() | st.tuples(STATES, STATES)),
        draw(PRICES),
        draw(TEXTS),
        draw(st.none() | st.builds(lambda giver: TakeOver(giver, None, None, Journal("RUNNING"), EVERY), NAMED)),
        draw(st.none() | NAMED),
        None,
        draw(st.none() | st.just(POSITIONS)),
        draw(st.lists(NAMED, max_size=2).map(tuple)),
    )


QUOTAS = st.builds(
    QuotaChange,
    st.sampled_from(["a", "b"]),
    st.builds(QuotaEntity, st.sampled_from(["m.x", "m.y"]), st.sampled_from(["", "u"])),
    st.sampled_from(["create", "update", "delete", "no-op", "blocked"]),
    st.none() | st.floats(1, 1e9),
    MAYBE,
    st.none() | st.floats(1, 1e9),
    MAYBE,
    TEXTS,
    NAMES,
    NAMES,
    TEXTS,
)
LISTS = st.builds(ListEntry, st.sampled_from(["adopt", "moved"]), NAMES, NAMES, NAMES, st.booleans(), TEXTS)


@st.composite
def plans(draw: Callable[..., Any]) -> Plan:
    """Return a plan of any kind, as no estate would ever have it."""
    parts = []
    for connect in draw(st.lists(st.sampled_from(["east", "west", "\x1b[2J"]), max_size=2, unique=True)):
        is_unread = draw(st.integers(0, 5)) == 5
        changes = () if is_unread else tuple(_change(number, draw) for number in range(draw(st.integers(0, 3))))
        changes = tuple(replace(change, connect=connect) for change in changes)
        error, hint = (draw(NAMES), draw(st.none() | NAMES)) if is_unread else (None, None)
        lists = draw(st.lists(LISTS, max_size=2).map(tuple))
        parts.append(ClusterPlan(connect, changes, draw(TEXTS), draw(COUNTS), error, hint, draw(TEXTS), lists))
    kinds = frozenset(draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=2)))
    quotas = {(quota.kafka, quota.entity): quota for quota in draw(st.lists(QUOTAS, max_size=2))}
    wish = Wish(draw(st.booleans()), kinds, draw(COUNTS), draw(MAYBE))
    return Plan("team", tuple(parts), wish, tuple(quotas.values()))


# --- it reads as the plan that was made -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved") / "plan.json"


@draw_examples(15, 1_000)
@given(plan=plans(), matrix=st.none() | st.just(MATRIX))
def test_a_saved_plan_reads_as_it_did_when_it_was_made(path: Path, plan: Plan, matrix: FlowMatrix | None) -> None:
    saved = save(path, plan, matrix=matrix)
    assert text_of(saved.as_shown, saved.matrix) == text_of(plan, matrix)
    document = to_json(saved)
    made = document.pop("saved")
    assert document == to_json(plan)
    assert made["commit"] == MADE.commit
    assert "p4ss-word" not in path.read_text()


# --- it never reads otherwise than what apply compares ----------------------------------------------------------------


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where the values of a document are, lists and objects too."""
    yield place
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(below, (*place, key))


def at(document: Any, place: tuple[str | int, ...]) -> Any:
    """Return the value at a place."""
    for key in place:
        document = document[key]
    return document


def others(value: object) -> list[object]:
    """Return values to write in the place of this one."""
    if isinstance(value, bool):
        return [not value, None, 1]
    if isinstance(value, int | float):
        return [value + 1, -value, str(value), None, 1e400, 10**400, True]
    if isinstance(value, str):
        texts = ["create", "update", "delete", "no-op", "blocked", "", f"{value}x", "\x1b[2J", "((", "[hidden]"]
        return [*(text for text in texts if text != value), 7, None, [value]]
    if isinstance(value, list):
        return [*([value[:-1], [*value, value[-1]], value[::-1]] if value else [["x"]]), {}, None, "x"]
    if isinstance(value, dict):
        return [{key: below for key, below in value.items() if key != gone} for gone in [*value][:3]] + [
            {**value, "more": 1},
            [],
            None,
        ]
    return ["x", "", 0, False, [], ["x"], {}]


def check_edited(path: Path, plan: Plan, saved: PlanFile, document: Any) -> str:
    """Hold an edited plan file to what it promises; return `refused`, `stale`, `reads otherwise` or `the same`."""
    path.write_text(json.dumps(document))
    refused = None
    try:
        edited = read_plan(path)
    except Mm2mgrError as error:
        refused = error
    if refused:
        assert re.search(r"damaged: [\w.\[\]>-]+.*: |not a plan file of mm2mgr|of format", refused.message)
        assert "mm2mgr plan --out FILE" in (refused.hint or "")
        return "refused"
    before, after = ([text_of(plan.as_shown, plan.matrix), *making_texts(plan)] for plan in (saved, edited))
    assert after != before
    try:
        to_do = as_reviewed(edited.plan, plan)
    except StalePlan:
        return "stale"
    if after[:-1] != before[:-1]:  # but for the digest of the file
        return "reads otherwise"
    assert (edited.clusters, edited.templates, edited.only) == (saved.clusters, saved.templates, saved.only)
    assert (edited.wish, edited.matrix) == (saved.wish, saved.matrix)
    assert to_do == as_reviewed(saved.plan, plan)
    return "the same"


@draw_examples(25, 1_000)
@given(data=st.data())
def test_an_edited_plan_file_is_refused_or_reads_otherwise_or_does_the_same(path: Path, data: st.DataObject) -> None:
    plan = data.draw(plans())
    saved = save(path, plan, data.draw(st.none() | st.just(["f:a->x"])))
    document = json.loads(path.read_text())
    place = data.draw(st.sampled_from([*places(document)][1:]))
    edited = copy.deepcopy(document)
    at(edited, place[:-1])[place[-1]] = data.draw(st.sampled_from(others(at(document, place))))
    if edited != document:
        check_edited(path, plan, saved, edited)


def rich_plan() -> Plan:
    """Return a plan with everything in it that a plan can have."""
    price = Price(2, 1, 3, Volume(7, 70, ("u",), ("t",)), ("g",), ("h.*",), ("gone",))
    takes = Taken({"t": (1, 2), "u": (3, 4), "v": (1, 0)}, 9, frozenset({"t"}), frozenset({"u"}))
    source = Change(
        "east",
        "c1",
        "source",
        "update",
        ("f:a->x",),
        (KeyChange("topics", "t", "u", "spec x.yaml:3"), KeyChange("x", None, "1"), KeyChange("y", "1", None)),
        (Remark("why", "notes"), Remark("odd", "warns", "look"), Remark("PAUSED", "rests")),
        {"topics": "u"},
        takes,
        ("w",),
        (RenamedTopic("t", "a.t", "t", (Handover(0, 5, 6, 7),), is_final=False),),
        ("u",),
        {"topics": "t"},
        2,
        "RUNNING",
        ("RUNNING", "PAUSED"),
        price,
        ("write it",),
        TakeOver(("west", "old"), None, None, Journal("RUNNING"), EVERY),
        ("west", "new"),
        None,
        POSITIONS,
        (("west", "gone"),),
    )
    later = Change("east", "c2", "source", "no-op", remarks=(Remark("off peak", "waits"),), before={"topics": "t"})
    held = Change("east", "c3", "source", "blocked", remarks=(Remark("too many", remedy="say so"),))
    entry = ListEntry("adopt", "c2", "x.yaml:9", "adopted", pending=("k",))
    east = ClusterPlan("east", (source, later, held), ("left",), 4, notes=("unsure",), lists=(entry,))
    quota = QuotaChange("a", QuotaEntity("m.x", "u"), "update", 5.0, 6, 12.0, 2, ("f:a->x",), "r", "fix", ("note",))
    wish = Wish(prune=True, allow=frozenset({"deletes"}), allow_deletes=3, max_changes=9)
    return Plan("team", (east, ClusterPlan("west", error="down", hint="start it")), wish, (quota,))


DECIDING = re.compile(
    r"clusters|templates|only.*|topology.*|plan\.(owner|prune|allow|allow_deletes|max_changes)"
    r"|plan\.clusters\.connect|plan\.clusters\.changes\.(connector|action|keys(\.(key|kind|before|after))?|state.*|renames\.(old|new)|takes_over|moves_to)"
    r"|plan\.quotas\.(kafka|client_id|user|action|before|after)"
)
"""The values by which apply decides what to write."""
COMPARED = re.compile(r"plan\.(owner|prune|allow$|clusters\.c|quotas\.(?!action))")
"""Those that it compares with a plan of its own (a quota that is edited to be blocked is not written); with the others it makes that plan, or looks at the tree."""


@pytest.mark.matrix
def test_what_decides_is_shown_or_guarded(path: Path) -> None:
    """An edit of it is refused, or reads otherwise, or makes the plan stale; what else is silent decides nothing."""
    plan = rich_plan()
    saved = save(path, plan)
    document = json.loads(path.read_text())
    became: dict[str, set[str]] = {}
    for place in [*places(document)][1:]:
        for number in range(len(others(at(document, place)))):
            edited = copy.deepcopy(document)
            at(edited, place[:-1])[place[-1]] = others(at(document, place))[number]
            if json.dumps(edited) != json.dumps(document):
                name = ".".join(key for key in place if isinstance(key, str))
                became.setdefault(check_edited(path, plan, saved, edited), set()).add(name)
    assert not list(filter(DECIDING.fullmatch, became["the same"]))
    assert not [name for name in became["reads otherwise"] if DECIDING.fullmatch(name) and COMPARED.match(name)]
    assert {"plan.clusters.changes.saw.config", "plan.clusters.changes.type"} <= became["stale"]
    assert {"plan.clusters.changes.keys.after", "plan.quotas.after"} <= became["stale"]
    assert "plan.clusters.changes.action" in became["refused"]
