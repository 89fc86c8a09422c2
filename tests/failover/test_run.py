"""A failover that is killed anywhere and run again comes to the same end: no group with members is written, none is set
back, and nothing outside of the pair is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.apply.failover_run import FailoverResult, FailoverRun, GroupOutcome, RunOrder, StageError, abandon
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import (
    GroupPosition,
    GroupReadiness,
    PairReadiness,
    PositionBounds,
    RecoveryPoint,
    TimeToExpect,
    Unread,
)
from mm2mgr.failover.group_offsets import Written
from mm2mgr.failover.journal import FailoverJournal, journal_texts, parse_journal
from mm2mgr.failover.stages import MirrorFacts, PairConnector
from mm2mgr.partitions import Offsets, TopicPartition
from tests.clock import jumping
from tests.examples import draw_examples

ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
STATES = {"mirror": "RUNNING", "groups": "RUNNING", "beats": "RUNNING"}


class Killed(BaseException):
    """The run was killed."""


@dataclass
class FakeEstate:
    """A pair whose target has each record at the source's offset, and groups by (committed, on target)."""

    groups: dict[str, tuple[int, int | None]]
    members: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    end: int = 100
    stored: int = 90
    states: dict[str, str] = field(default_factory=lambda: dict(STATES))
    texts: dict[str, str] = field(default_factory=dict)
    kill_at: int = -1
    joins_at: Mapping[int, str] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    connect_failure: str = ""
    source_is_dead: bool = False
    still_written: bool = False
    asked: set[str] | None = None
    refuse_groups: bool = False
    pair: str = "a->east"
    owner: str = "team"
    author: str = "ops"
    seconds: float = 1_000.0
    _calls: int = 0

    def _step(self) -> None:
        """Let something happen between two calls: a member joins, the mirror goes on, or the run is killed."""
        self._calls += 1
        self.seconds += 1
        if group := self.joins_at.get(self._calls):
            self.members.add(group)
        if self.states["mirror"] == "RUNNING" and not self.source_is_dead:
            self.end += 3 * self.still_written
            self.stored = self.end
        if self._calls == self.kill_at:
            raise Killed

    def now(self) -> float:
        return self.seconds

    def judge(self) -> tuple[PairReadiness, MirrorFacts]:
        self._step()
        groups = tuple(
            GroupReadiness(group, (self._position(group),), group in self.members, "EMPTY", translated=True)
            for group in sorted(self.groups)
            if self.asked is None or group in self.asked
        )
        recovery = RecoveryPoint(self.end - self.stored, 1.0)
        return PairReadiness(
            self.pair,
            self.seconds,
            groups,
            recovery=recovery,
            time=TimeToExpect(1.0, 5.0),
            asked="biling" if self.asked == set() else None,
        ), self._facts()

    def _position(self, group: str) -> GroupPosition:
        committed, on_target = self.groups[group]
        lower = min(committed, self.stored)
        bounds = None if group in self.unknown else PositionBounds(lower, 0)
        log = Offsets(0, max(self.end, self.stored))
        return GroupPosition(group, ORDERS, REMOTE, committed, self.end, on_target, bounds=bounds, log=log)

    def look(self) -> MirrorFacts:
        self._step()
        return self._facts()

    def _facts(self) -> MirrorFacts:
        behind = {ORDERS: self.end - self.stored} if self.end > self.stored else {}
        return MirrorFacts(
            self.seconds,
            tuple(
                PairConnector("east", name, "source", state, state == "STOPPED")
                for name, state in self.states.items()
                if name != "beats"
            ),
            {ORDERS: self.stored},
            {} if self.source_is_dead else {ORDERS: self.end},
            {REMOTE: self.stored},
            {},
            behind,
            1.0,
            "a does not answer" if self.source_is_dead else "",
            connect_failure=self.connect_failure,
        )

    def clients(self) -> Sequence[str]:
        return ["user importer"]

    def read_journal(self) -> FailoverJournal | None:
        self._step()
        return parse_journal(self.texts, self.owner, self.pair)

    def keep_journal(self, journal: FailoverJournal) -> None:
        for key, text in journal_texts(journal).items():
            self._step()
            self.texts[key] = text

    @contextmanager
    def lease(self) -> Iterator[object]:
        self._step()
        yield self

    def set_states(self, wanted: Mapping[PairConnector, str]) -> None:
        for connector, state in wanted.items():
            self._step()
            self.writes.append(f"{connector.name} {state}")
            self.states[connector.name] = state
        self._step()

    def write_groups(self, changes: Mapping[str, Written]) -> Sequence[GroupOutcome]:
        outcomes = []
        for group, written in changes.items():
            self._step()
            if group in self.members:
                outcomes.append(GroupOutcome(group, "joined", "a member joined"))
                continue
            if self.refuse_groups:
                outcomes.append(GroupOutcome(group, "failed", "not now"))
                continue
            committed, before = self.groups[group]
            assert before == written[REMOTE].before
            assert before is None or written[REMOTE].after > before, "set back"
            self.groups[group] = committed, written[REMOTE].after
            self.writes.append(f"{group} {written[REMOTE].after}")
            outcomes.append(GroupOutcome(group, "written"))
        self._step()
        return outcomes

    def run(self, order: RunOrder = RunOrder(timeout_seconds=60), ask: Any = lambda *_: True) -> FailoverResult:
        said: list[str] = []
        self.said = said
        with jumping():
            return FailoverRun(self, order, lambda stage, at: said.append(f"{stage.name}: {at.text}"), ask).run()


def usual() -> FakeEstate:
    return FakeEstate({"billing": (100, 40), "audit": (70, None), "level": (100, 100)})


def test_a_planned_failover_stops_the_pair_and_writes_what_is_behind() -> None:
    estate = usual()
    result = estate.run()
    assert (result.outcome, result.left_out) == ("done", [])
    assert estate.groups == {"billing": (100, 100), "audit": (70, 70), "level": (100, 100)}
    assert estate.states == {"mirror": "STOPPED", "groups": "STOPPED", "beats": "RUNNING"}
    assert result.journal
    assert (result.journal.stopped, result.journal.target_ends) == (
        {"east/mirror": "RUNNING", "east/groups": "RUNNING"},
        {REMOTE: 100},
    )
    assert [stage.stage.name for stage in result.stages] == [
        *("readiness", "drain", "producers", "quiet", "arrived", "translated", "stop", "ends", "groups"),
    ]
    before = list(estate.writes)
    estate.groups["level"] = (100, 130)  # its consumer has started there
    again = estate.run()
    assert (again.outcome, again.left_out) == ("already done", [])
    assert estate.writes == before


def test_a_dry_run_writes_nothing_and_asks_nothing() -> None:
    estate = usual()

    def refuse(*_: object) -> bool:
        raise AssertionError("asked")

    result = estate.run(RunOrder(dry_run=True), refuse)
    assert (result.outcome, estate.writes, estate.texts) == ("dry run", [], {})
    assert sum(order.action == "write" for order in result.orders) == 2


@pytest.mark.parametrize("question", ["producers", "write"])
def test_an_answer_no_leaves_everything_as_it_is(question: str) -> None:
    estate = usual()
    with pytest.raises(Mm2mgrError, match=r"not stopped|not approved"):
        estate.run(ask=lambda asked, _: asked != question)
    assert (estate.writes, estate.texts) == ([], {})


def test_a_producer_that_goes_on_is_named_and_nothing_is_written() -> None:
    estate = usual()
    estate.still_written = True
    with pytest.raises(
        StageError, match=r"1 partition still written: orders-0 \(\+\d+\).*quota there: user importer"
    ) as told:
        estate.run()
    assert (estate.writes, estate.texts) == ([], {})
    assert "nothing was written" in (told.value.hint or "")


def test_a_group_with_members_on_the_target_is_no_go_before_anything_is_written() -> None:
    estate = usual()
    estate.members = {"billing"}
    with pytest.raises(StageError, match=r"NO-GO: 1 group \(billing\): has members on the target"):
        estate.run()
    assert estate.writes == []


def test_a_group_that_is_ahead_is_no_go_and_never_set_back() -> None:
    estate = usual()
    estate.groups["billing"] = 50, 80
    with pytest.raises(StageError, match=r"billing\): is ahead"):
        estate.run()
    assert estate.writes == []


def test_an_idle_group_without_a_position_is_named_and_not_written() -> None:
    estate = usual()
    estate.unknown = {"audit"}
    result = estate.run()
    assert [order.group for order in result.left_out] == ["audit"]
    assert estate.groups["audit"] == (70, None)


def test_a_disaster_goes_on_with_what_has_arrived_and_names_the_risk_of_workers_that_do_not_answer() -> None:
    estate = usual()
    estate.source_is_dead, estate.connect_failure, estate.members = True, "no worker answers", {"level"}
    result = estate.run(RunOrder("disaster"), lambda asked, _: asked == "write")
    assert result.outcome == "done"
    assert estate.groups == {"billing": (100, 90), "audit": (70, 70), "level": (100, 100)}
    assert any("whether its workers still run" in line for line in estate.said)
    assert [order.group for order in result.left_out] == ["level"]


def test_until_groups_are_written_it_is_taken_back() -> None:
    estate = usual()
    estate.states["groups"] = "PAUSED"
    kills = 0
    for kill_at in range(1, 60):
        tried = replace(
            estate, kill_at=kill_at, states=dict(estate.states), texts={}, groups=dict(estate.groups), writes=[]
        )
        try:
            tried.run()
        except Killed:
            tried.kill_at = -1
            is_written = tried.groups != estate.groups
            journal = parse_journal(tried.texts, "team", "a->east")
            with jumping():
                if journal is None:
                    with pytest.raises(Mm2mgrError, match="no failover is under way"):
                        abandon(tried, lambda *_: True, 60)
                elif is_written:
                    with pytest.raises(
                        Mm2mgrError, match=r"were written on the target already|no failover is under way"
                    ):
                        abandon(tried, lambda *_: True, 60)
                else:
                    kills += 1
                    assert abandon(tried, lambda *_: True, 60).outcome == "abandoned"
                    assert tried.states == estate.states
                    assert tried.run().outcome == "done", "a new one begins"
    assert kills >= 5


def test_what_a_later_failover_finds_of_an_earlier_one_is_of_no_use_once_the_pair_has_run() -> None:
    estate = usual()
    first = estate.run().journal
    estate.states |= {"mirror": "RUNNING", "groups": "RUNNING"}
    estate.end += 20
    estate.groups["billing"] = 120, 100
    second = estate.run().journal
    assert first
    assert second
    assert second.id != first.id
    assert second.target_ends == {REMOTE: 120}
    assert estate.groups["billing"] == (120, 120)


def test_records_written_while_the_pair_stops_end_it_and_it_can_be_taken_back() -> None:
    estate = usual()
    stop = estate.set_states

    def stop_late(wanted: Mapping[PairConnector, str]) -> None:
        stop(wanted)
        estate.end += 5 * ("STOPPED" in wanted.values())

    estate.set_states = stop_late  # type: ignore[method-assign]
    with pytest.raises(StageError, match=r"5 records were written while the pair stopped.*orders-0 \(5\)") as told:
        estate.run()
    assert "--abandon" in (told.value.hint or "")
    assert not any(write.startswith(("billing", "audit")) for write in estate.writes)
    with jumping():
        abandon(estate, lambda *_: True, 60)
    assert estate.states == STATES


def test_groups_that_a_first_run_left_out_are_written_by_the_next() -> None:
    estate = usual()
    estate.asked = {"billing"}
    assert estate.run(RunOrder(only="billing")).outcome == "done"
    assert estate.groups["audit"] == (70, None)
    estate.asked, estate.groups["billing"] = None, (100, 40)  # somebody reads it again there
    before = list(estate.writes)
    result = estate.run()
    assert (result.outcome, estate.writes) == ("done", [*before, "audit 70"])
    assert [order.group for order in result.left_out] == ["billing"]
    again = estate.run()
    assert (again.outcome, [order.group for order in again.left_out]) == ("already done", ["billing"])


def test_an_expression_that_matches_no_group_ends_a_disaster_too() -> None:
    estate = usual()
    estate.source_is_dead, estate.asked = True, set()
    with pytest.raises(StageError, match="no group that reads a mirrored topic matches 'biling'"):
        estate.run(RunOrder("disaster", only="biling"))
    assert (estate.writes, estate.texts) == ([], {})


def test_a_failover_that_was_done_may_be_an_older_one_where_connect_does_not_answer() -> None:
    estate = usual()
    assert estate.run().may_have_run == ""
    estate.source_is_dead, estate.connect_failure = True, "no worker answers"
    again = estate.run(RunOrder("disaster"))
    assert (again.outcome, again.may_have_run) == ("already done", "no worker answers")


@pytest.mark.parametrize("mode", ["planned", "disaster"])
def test_groups_that_are_not_read_any_more_are_not_done(mode: Literal["planned", "disaster"]) -> None:
    estate = usual()
    judge = estate.judge

    def judge_blindly() -> tuple[PairReadiness, MirrorFacts]:
        readiness, facts = judge()
        if estate.states["mirror"] != "STOPPED":
            return readiness, facts
        return replace(readiness, groups=(), unread=(Unread("a", "groups", "timed out"),)), facts

    estate.judge = judge_blindly  # type: ignore[method-assign]
    with pytest.raises(StageError, match=r"3 groups \(audit, billing, level\) could not be read any more"):
        estate.run(RunOrder(mode, timeout_seconds=60))
    journal = parse_journal(estate.texts, "team", "a->east")
    assert journal
    assert journal.is_open
    estate.judge = judge  # type: ignore[method-assign]
    assert estate.run(RunOrder(mode, timeout_seconds=60)).outcome == "done"


def test_a_source_that_falls_silent_while_the_pair_stops_ends_a_planned_failover() -> None:
    estate = usual()
    stop = estate.set_states

    def stop_and_die(wanted: Mapping[PairConnector, str]) -> None:
        stop(wanted)
        estate.source_is_dead = True

    estate.set_states = stop_and_die  # type: ignore[method-assign]
    with pytest.raises(StageError, match=r"stop the connectors of the pair: STOPPED; the lag is not known: a does not"):
        estate.run()
    assert not any(write.startswith(("billing", "audit")) for write in estate.writes)
    assert estate.run(RunOrder("disaster")).outcome == "done"


@pytest.mark.parametrize("is_read", [True, False])
def test_it_is_not_taken_back_where_groups_cannot_be_read(is_read: bool) -> None:
    estate = usual()
    estate.refuse_groups = True
    with pytest.raises(StageError):
        estate.run()
    judge = estate.judge

    def judge_blindly() -> tuple[PairReadiness, MirrorFacts]:
        readiness, facts = judge()
        unread = (Unread("east", "group offsets", "timed out"),)
        return replace(readiness, groups=readiness.groups if is_read else (), unread=unread if is_read else ()), facts

    estate.judge = judge_blindly  # type: ignore[method-assign]
    with jumping(), pytest.raises(Mm2mgrError, match=r"whether audit, billing were written .* could not be read"):
        abandon(estate, lambda *_: True, 60)
    assert estate.states["mirror"] == "STOPPED"


@st.composite
def estates(draw: st.DrawFn) -> tuple[FakeEstate, list[int]]:
    groups = {
        f"g{number}": (draw(st.integers(0, 100)), draw(st.none() | st.integers(0, 100)))
        for number in range(draw(st.integers(1, 4)))
    }
    estate = FakeEstate(groups, unknown={name for name in groups if draw(st.integers(0, 5)) == 0})
    for name, state in STATES.items():
        estate.states[name] = (
            draw(st.sampled_from(["RUNNING", "RUNNING", state, "PAUSED"])) if name == "groups" else state
        )
    estate.joins_at = {draw(st.integers(1, 40)): name for name in groups if draw(st.integers(0, 4)) == 0}
    return estate, draw(st.lists(st.integers(1, 45), max_size=6))


@draw_examples(60)
@given(estates())
def test_killed_anywhere_it_comes_to_the_same_end(drawn: tuple[FakeEstate, list[int]]) -> None:
    estate, kills = drawn
    before = dict(estate.groups)
    joined: set[str] = set()

    def attempt(kill_at: int, into: FakeEstate) -> Callable[[], str]:
        into.kill_at, into._calls = kill_at, 0

        def go() -> str:
            members = set(into.members)
            try:
                return into.run().outcome
            except Killed:
                return "killed"
            except StageError as error:
                return f"refused: {error.message}"
            finally:
                joined.update(into.members - members)

        return go

    whole = replace(
        estate, groups=dict(before), states=dict(estate.states), texts={}, writes=[], members=set(), joins_at={}
    )
    wanted = attempt(-1, whole)()
    for kill_at in kills:
        attempt(kill_at, estate)()
    estate.joins_at = {}
    outcome = attempt(-1, estate)()
    assert estate.states["beats"] == "RUNNING"
    for group, (_, on_target) in estate.groups.items():
        start = before[group][1]
        assert on_target is start or (on_target is not None and (start is None or on_target >= start))
    if not joined:
        assert (outcome == wanted) or (outcome, wanted) == ("already done", "done"), (outcome, wanted)
        assert (estate.groups, estate.states) == (whole.groups, whole.states)
    written = [write for write in estate.writes if write.startswith("g")]
    assert len(written) == len(set(written)), "written twice"
