"""What `status` says of failover: a pair that is not ready, and one that nothing checks, where the tree declares it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.failover.check import PairReadiness, RecoveryPoint, Unread
from mm2mgr.failover.rehearsal import JUDGE, WRITE, Rehearsal, RehearsedGroup, Stage
from mm2mgr.observe.failover_rows import check_row, rehearsal_row
from mm2mgr.observe.state_file import StorePlace, record_check, record_rehearsal
from mm2mgr.problems.health import ConnectorState
from tests.observe.estate import TREE, Estate, estate, kinds, sentences, topology_of

PAIR = "A->B"
HOUR = 3_600.0


@contextmanager
def declared(tmp_path: Path, more: str = "failover: true") -> Iterator[Estate]:
    with estate(tmp_path, more=more) as small:
        yield small


def checkpoint(small: Estate, *, later_seconds: float = 0.0) -> ConnectorState:
    """Return the state of the pair's checkpoint connector, whose matter failover is."""
    companions = small.status(later_seconds=later_seconds).companions
    return next(companion for companion in companions if companion.type == "checkpoint")


def check(small: Estate, *, unread: tuple[Unread, ...] = (), lost: int | None = 0) -> None:
    """Write a check that was made now into the store."""
    readiness = PairReadiness(PAIR, small.now, unread=unread, recovery=RecoveryPoint(lost, 0.0))
    assert record_check(StorePlace(small.store, "tester", small.memory_file), check_row(readiness, "serve")) == []


def test_a_pair_that_is_not_ready_is_a_problem_of_its_checkpoint_connector_until_it_is(tmp_path: Path) -> None:
    with declared(tmp_path) as small:
        check(small)
        assert kinds(checkpoint(small, later_seconds=60)) == []
        check(small, unread=(Unread("A", "groups", "refused"),))
        first = checkpoint(small, later_seconds=600)
        assert (kinds(first), first.health) == (["failover-not-ready"], "problem")
        (sentence,) = sentences(first)
        assert sentence == (
            "A->B cannot fail over (not judged, no group, checked 10 min ago): A: groups could not be read; "
            "mm2mgr failover check 'A->B' names each group and what to do"
        )
        check(small, unread=(Unread("A", "groups", "refused"),))
        assert first.problems[0].since_seconds == 600
        later = checkpoint(small, later_seconds=60)
        assert later.problems[0].since_seconds == 660, "it is as old as the first check that failed"
        check(small, lost=5)
        assert kinds(checkpoint(small, later_seconds=1)) == [], "GO WITH numbers is ready"


def test_a_pair_that_nothing_checks_for_four_intervals_is_a_problem(tmp_path: Path) -> None:
    with declared(tmp_path, "failover: {check_every: 30min}") as small:
        assert kinds(checkpoint(small)) == []
        assert kinds(checkpoint(small, later_seconds=2 * HOUR - 1)) == []
        (sentence,) = sentences(checkpoint(small, later_seconds=2))
        assert sentence.startswith(
            "A->B: failover is declared, and nothing checked it for 2 h (every 30 min is asked for)"
        )
        check(small)
        assert kinds(checkpoint(small, later_seconds=2 * HOUR)) == []
        assert kinds(checkpoint(small, later_seconds=1)) == ["failover-not-checked"]


def test_a_dead_connect_cluster_hides_no_pair_that_is_not_ready(tmp_path: Path) -> None:
    with declared(tmp_path) as small:
        small.status()
        check(small, unread=(Unread("A", "groups", "refused"),))
        small.connect.answer_only("/connectors", 500)
        status = small.status(later_seconds=60)
        (flow,) = status.flows
        assert (flow.state, flow.health, kinds(flow)) == ("unknown", "problem", ["failover-not-ready"])
        assert [problem.kind for problem in status.problems()] == ["failover-not-ready"]
        check(small)
        assert small.flow(later_seconds=60).health == "unknown"


def test_short_intervals_wait_for_an_hour(tmp_path: Path) -> None:
    with declared(tmp_path, "failover: {check_every: 1min}") as small:
        checkpoint(small)
        assert kinds(checkpoint(small, later_seconds=HOUR)) == []
        assert kinds(checkpoint(small, later_seconds=1)) == ["failover-not-checked"]


def test_a_tree_without_failover_is_never_asked_for_a_check(tmp_path: Path) -> None:
    with declared(tmp_path, "") as small:
        check(small, unread=(Unread("A", "groups", "refused"),))
        assert small.status(later_seconds=90 * 86_400).failover == {}
        assert kinds(checkpoint(small)) == []


def test_checks_that_cannot_be_read_are_a_warning_and_no_problem(tmp_path: Path) -> None:
    with declared(tmp_path) as small:
        check(small)
        (file,) = (small.store / "failover_checks").glob("day=*/*.parquet")
        file.write_bytes(b"nothing")
        status = small.status(later_seconds=86_400)
        assert any("is not a readable Parquet file" in warning for warning in status.warnings)
        assert status.failover == {}
        assert [kind for companion in status.companions for kind in kinds(companion)] == []


# --- rehearsals -------------------------------------------------------------------------------------------------------

DAY = 86_400.0


def rehearsed(small: Estate, *, good: bool = True, pair: str = PAIR) -> None:
    """Write a rehearsal that was made now into the store."""
    groups = (RehearsedGroup("billing", "scratch", failure="" if good else "not read within 30 s"),)
    rehearsal = Rehearsal(pair, small.now, groups, (Stage(JUDGE, 2.0), Stage(WRITE, 0.5)))
    place = StorePlace(small.store, "tester", small.memory_file)
    assert record_rehearsal(place, rehearsal_row(rehearsal, "command")) == []


def test_a_pair_without_a_good_rehearsal_for_longer_than_it_asks_for_is_a_problem(tmp_path: Path) -> None:
    with declared(tmp_path, "failover: {check_every: 90d, rehearse_every: 30d}") as small:
        (sentence,) = sentences(checkpoint(small))
        assert sentence == (
            "A->B: its failover was never rehearsed with a good result (one in 30 d is asked for); "
            "run mm2mgr failover rehearse 'A->B'"
        )
        rehearsed(small, pair="A->C")
        assert kinds(checkpoint(small)) == ["failover-not-rehearsed"]
        rehearsed(small)
        assert kinds(checkpoint(small, later_seconds=30 * DAY)) == []
        late = checkpoint(small, later_seconds=60)
        assert (kinds(late), late.problems[0].since_seconds) == (["failover-not-rehearsed"], 60)
        rehearsed(small, good=False)
        (sentence,) = sentences(checkpoint(small))
        assert "is 30 d old" in sentence
        assert "the newest came to not good: billing: not read within 30 s;" in sentence
        checkpoint(small, later_seconds=60)  # of two at one moment none is the newest
        rehearsed(small)
        status = small.status(later_seconds=60)
        state = status.rehearsals[PAIR]
        assert state is not None
        assert (state.verdict, state.groups, state.good_at) == ("good", 1, small.now - 60)
        assert [problem.kind for problem in status.problems()] == []


def test_a_pair_that_asks_for_no_rehearsal_is_no_problem_without_one(tmp_path: Path) -> None:
    with declared(tmp_path) as small:
        status = small.status()
        assert (kinds(checkpoint(small)), status.rehearsals) == ([], {})


# --- the tree ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("failover: {check_every: 10s}", "check_every"),
        ("failover: {every: 10min}", "every"),
        ("failover: {rehearse_every: 10min}", "rehearse_every"),
        ("failover: {rehearse_every: 91d}", "rehearse_every"),
        ("failover: true, checkpoints: false", "declares failover, and none of its flows has checkpoints"),
        ("failover: true, offset_syncs: false", "declares failover, and none of its flows has checkpoints"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_place(tmp_path: Path, more: str, message: str) -> None:
    text = TREE.format(url="http://127.0.0.1:1", more="").replace("tasks: {max: 2}", more.replace(", ", "\n    "))
    with pytest.raises(SpecError) as refusal:
        topology_of(text, tmp_path)
    assert message in str(refusal.value)
    assert "tree.yaml:" in str(refusal.value)


def test_flows_of_a_pair_agree_and_a_flow_switches_the_default_off(tmp_path: Path) -> None:
    text = TREE.format(url="http://127.0.0.1:1", more="failover: true")
    both = text + '  clicks: {sources: [A], targets: [B], topics: {include: ["clicks"]}}\n'
    assert {flow.settings.failover is not None for flow in topology_of(both, tmp_path).flows} == {True}
    with pytest.raises(SpecError, match="which has one failover"):
        topology_of(both.replace('"clicks"]}', '"clicks"]}, failover: false'), tmp_path)
    shared = "defaults: {flows: {failover: {check_every: 5min}}}\n" + both.replace("failover: true", "")
    assert topology_of(shared, tmp_path).failover_pairs["A->B"].check_every == 300
    off = shared.replace("tasks: {max: 2}", "failover: false").replace('"clicks"]}', '"clicks"]}, failover: false')
    assert topology_of(off, tmp_path).failover_pairs == {}
