"""The background looks: what is published, that no failure ends them, and that memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from mm2mgr import timing
from mm2mgr.apply.history import Author, Recorder
from mm2mgr.audit.report import AuditReport
from mm2mgr.errors import Mm2mgrError
from mm2mgr.evidence.flow_load import TaskLoad, measured_load
from mm2mgr.failover.check import PairReadiness, RecoveryPoint
from mm2mgr.operations.audit import AuditRound, FollowOrder
from mm2mgr.operations.estate_view import EstateLook, Survey
from mm2mgr.operations.failover import CheckedPair
from mm2mgr.operations.failover_watch import FailoverOrder, FailoverRound, FailoverView
from mm2mgr.operations.history import HistoryReport
from mm2mgr.operations.lint import LintReport
from mm2mgr.operations.serve import EstateWatch, serve
from mm2mgr.operations.serve_parts import AuditsOrder, FailoverChecksOrder, ServeOrder
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change
from mm2mgr.problems.health import FlowStatus
from mm2mgr.problems.kind import ProblemSubject
from mm2mgr.samples.schema import Store
from mm2mgr.samples.store import AuditStore
from mm2mgr.serve.app import application
from tests.audit.reports import DIFFERS, EQUAL
from tests.cli.command import until
from tests.cli.load import measured
from tests.clock import Clock, ShownClock, go_by
from tests.observe.examples import example_problem
from tests.serve.estate import NOW, SURVEY, ask_application, flow_status, look_of
from tests.sizing.assignments import assigned

FLOW = "orders:a->b"
TREE = """\
owner: tester
clusters:
  a: {bootstrap_servers: ["127.0.0.1:1"]}
  b: {bootstrap_servers: ["127.0.0.1:2"]}
connect:
  w: {url: "http://127.0.0.1:1", kafka: b}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [orders]}}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "tree.yaml").write_text(TREE)
    return Workspace((tmp_path / "tree.yaml",))


class Looks:
    """Looks that succeed, fail or take for ever, in the order that a test says."""

    def __init__(self) -> None:
        self.count, self.fails, self.blocks = 0, set[int](), threading.Event()
        self.blocks.set()
        self.began = threading.Event()

    def __call__(self, workspace: Workspace, store: object, _: object) -> EstateLook:
        self.count += 1
        self.began.set()
        assert self.blocks.wait(30)
        if self.count in self.fails:
            raise ValueError("password=geheim123 was refused")
        lag = {f"t{topic}": self.count for topic in range(10)}
        return look_of([flow_status(FLOW, "a->b")], {FLOW: lag}, at=NOW + self.count)


def test_a_look_that_fails_is_published_and_the_next_one_counts(workspace: Workspace) -> None:
    looks = Looks()
    looks.fails = {2}
    watch = EstateWatch(workspace, look=looks, clock=lambda: NOW)
    watch.look_once()
    watch.look_once()
    assert (watch.view.looks, watch.view.failed_looks, watch.view.began_at) == (1, 1, None)
    assert "geheim123" not in watch.view.error, "no secret is shown"
    assert watch.view.look is not None
    assert watch.view.look.ended_at == NOW + 1, "the last complete look stays"
    watch.look_once()
    assert (watch.view.looks, watch.view.error) == (2, "")


def test_no_answer_names_a_path_of_this_machine(workspace: Workspace, tmp_path: Path) -> None:
    store, tree = tmp_path / "samples", workspace.files[0]
    (store / "throughput" / "_delta_log").mkdir(parents=True)
    (store / "throughput" / "_delta_log" / f"{0:020}.json").write_text("{")
    watch = EstateWatch(workspace, ServeOrder(store=store), look=Looks(), clock=lambda: NOW)
    watch.look_once()
    tree.write_text(TREE.replace("topics:", "topcs:"))
    watch.survey_once()
    assert str(tmp_path) in f"{watch.view.load.unknown} {watch.view.tree_error}", "there is something to hide"
    app = application(lambda: watch.view, clock=lambda: NOW)
    names = ("", "flows", "workers", "traffic", "losses", "findings", "changes", "plan", "watchdog", "parts")
    parts = ("status", f"flow?id={FLOW}", "workers", "findings", "plan", "history", "failover")
    paths = [*(f"/{name}" for name in names), f"/flow?id={FLOW}", *(f"/api/{part}" for part in parts), "/metrics"]
    texts = {path: ask_application(app, path).text for path in paths}
    assert {path for path, text in texts.items() if str(tmp_path) in text} == set()
    assert "counts: tree.yaml:" in texts["/"], watch.view.tree_error
    assert "the store" in texts["/workers"]


def test_what_the_first_look_waits_for_is_published_and_gone_after_it(workspace: Workspace) -> None:
    noted = list[tuple[str, ...]]()

    def waiting_look(_: Workspace, __: object, report: Callable[[tuple[str, ...]], object]) -> EstateLook:
        report(("connect main",))
        noted.append(watch.view.waits_for)
        return look_of([flow_status(FLOW, "a->b")], at=NOW)

    watch = EstateWatch(workspace, look=waiting_look, clock=lambda: NOW)
    watch.look_once()
    watch.look_once()
    assert (noted, watch.view.waits_for) == ([("connect main",), ()], ())


@pytest.mark.parametrize("death", [asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt(), MemoryError()])
def test_a_look_that_is_killed_is_a_failed_one_and_the_next_one_counts(
    workspace: Workspace, death: BaseException
) -> None:
    deaths = iter([death])

    def look(*_: object) -> EstateLook:
        if (now := next(deaths, None)) is not None:
            raise now
        return look_of([flow_status(FLOW, "a->b")], at=NOW)

    def survey(*_: object) -> Survey:
        raise death

    watch = EstateWatch(workspace, ServeOrder(0.001, 1000), look=look, survey=survey)
    watch.start()
    until(lambda: watch.view.looks > 1 and watch.view.survey is not None, "it looks again")
    assert watch.close(10)
    assert watch.view.failed_looks == 1
    assert watch.view.survey is not None
    assert isinstance(watch.view.survey.plan, str)
    assert type(death).__name__ in watch.view.survey.plan


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_changes_no_age(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Neither is a look that no longer ends taken for a new one after a jump back, nor a new one for an old one after a jump forth."""
    wall, tick = [NOW], [100.0]
    go_by(ShownClock(lambda: tick[0]), monkeypatch)
    watch = EstateWatch(workspace, look=Looks(), clock=lambda: wall[0])
    app = application(lambda: watch.view, clock=lambda: wall[0])

    def health() -> tuple[int, str, float | None]:
        said = ask_application(app, "/healthz")
        return said.status_code, said.json()["state"], said.json()["age_seconds"]

    wall[0] += jump
    assert health() == (503, "starting", None)
    watch.look_once()
    wall[0] -= 2 * jump
    tick[0] += 5
    assert health() == (200, "ok", 5.0)
    assert "Looked 5 s ago" in ask_application(app, "/").text
    tick[0] += 200
    wall[0] = NOW
    assert health() == (503, "stale", 205.0)
    assert 'mm2mgr_looks_stale{owner="tester"} 1.0' in ask_application(app, "/metrics").text


def test_a_view_does_not_change_and_tells_of_the_running_look(workspace: Workspace) -> None:
    looks = Looks()
    looks.blocks.clear()
    watch = EstateWatch(workspace, ServeOrder(1000, 1000), look=looks, survey=lambda *_: SURVEY)
    before = watch.view
    watch.start()
    assert looks.began.wait(10)
    assert watch.view.began_at is not None
    assert not watch.close(0.1), "a look that runs is not waited for"
    assert (before.look, before.began_at) == (None, None)
    looks.blocks.set()
    assert watch.close(10)
    assert watch.view.looks == 1


def test_a_changed_tree_is_read_and_a_wrong_one_is_said(workspace: Workspace) -> None:
    seen: list[int] = []

    def survey(read: Workspace, _: Store) -> Survey:
        seen.append(len(read.topology.flows))
        return SURVEY

    watch = EstateWatch(workspace, look=Looks(), survey=survey)
    (file,) = workspace.files
    watch.survey_once()
    file.write_text(TREE + "  more: {sources: [a], targets: [b], topics: {include: [more]}}\n")
    watch.survey_once()
    assert (seen, watch.view.tree_error) == ([1, 2], "")
    file.write_text("flows: [")
    watch.survey_once()
    assert seen == [1, 2, 2], "the last good tree counts"
    assert "tree.yaml" in watch.view.tree_error


def test_what_a_command_here_recorded_is_known_with_the_next_look(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow part, which reads the history, comes later."""
    monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / "state"))
    watch = EstateWatch(workspace, look=Looks(), survey=lambda _, __: SURVEY, clock=lambda: NOW)
    watch.survey_once()
    topology = workspace.topology
    (connect,) = topology.connects
    recorder = Recorder(topology, "apply", Author("ann"))
    monkeypatch.setattr(recorder, "write", lambda *_: None)
    recorder.end(Change(connect, "orders", "source", "create", ()), "done")
    assert watch.view.survey is SURVEY
    watch.look_once()
    assert watch.view.survey
    history = watch.view.survey.history
    assert not isinstance(history, str)
    assert [(entry.connector, entry.outcome) for entry in history.entries][1:] == [("orders", "done")]


def test_a_changed_tree_counts_from_the_next_look_on_and_is_surveyed_until_its_apply_is_seen(
    workspace: Workspace,
) -> None:
    """The slow part comes once an hour here, so that what makes it earlier is seen alone."""
    differs = example_problem("config-differs", ProblemSubject("w", "mm2.a.b.source.orders", FLOW))
    well, other = flow_status(FLOW, "a->b"), flow_status(FLOW, "a->b", problems=(differs,))
    shown, looked = [well], list[int]()

    def look(read: Workspace, *_: object) -> EstateLook:
        looked.append(len(read.topology.flows))
        return look_of(shown, at=NOW)

    def surveys(status: FlowStatus) -> bool:
        """Look once, and tell whether the slow part is due; it is made then."""
        shown[:] = [status]
        watch.look_once()
        is_due = watch._survey_due.is_set()
        watch._survey_due.clear()
        return is_due

    watch = EstateWatch(workspace, ServeOrder(30, 3600), look=look, survey=lambda *_: SURVEY)
    (file,) = workspace.files
    assert [surveys(well) for _ in range(3)] == [False] * 3
    file.write_text(TREE + "  more: {sources: [a], targets: [b], topics: {include: [more]}}\n")
    assert [surveys(well) for _ in range(3)] == [True, True, False], "it may be applied between two looks"
    assert (looked, watch.view.tree_error) == ([1, 1, 1, 2, 2, 2], "")
    assert [surveys(other), surveys(other), surveys(well), surveys(well)] == [True, False, True, False]
    file.write_text("flows: [")
    assert [surveys(well) for _ in range(3)] == [True, True, False]
    assert (looked[-1], "tree.yaml" in watch.view.tree_error) == (2, True), "the last good tree counts"
    file.unlink()
    assert surveys(well)
    assert "no such file" in watch.view.tree_error
    file.write_text(TREE)
    assert surveys(well)
    assert (looked[-1], watch.view.tree_error) == (1, "")


def test_the_slow_part_is_made_when_it_is_due_and_the_end_waits_for_no_hour(workspace: Workspace) -> None:
    made = [threading.Event() for _ in range(3)]
    count = iter(made)

    def survey(*_: object) -> Survey:
        next(count).set()
        return SURVEY

    watch = EstateWatch(workspace, ServeOrder(3600, 3600), look=Looks(), survey=survey)
    watch.start()
    assert made[0].wait(30)
    watch._survey_due.set()
    assert made[1].wait(30), "before the hour is over"
    assert watch.close(30)
    assert not made[2].is_set()


def test_one_part_of_the_survey_that_fails_leaves_the_others(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mm2mgr.operations import plan as planning
    from mm2mgr.operations import serve as serving  # noqa: F401  the function of that name

    def refuse(workspace: Workspace) -> None:
        raise Mm2mgrError("no plan today")

    monkeypatch.setitem(planning.__globals__, "plan", refuse)
    from mm2mgr.operations.serve import survey

    found = survey(workspace)
    assert found.plan == "no plan today"
    assert isinstance(found.findings, LintReport)
    assert isinstance(found.history, HistoryReport)
    assert "w" in found.history.unread


def test_memory_is_flat_over_many_looks(workspace: Workspace) -> None:
    watch = EstateWatch(workspace, look=Looks(), survey=lambda *_: replace(SURVEY))
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(3):
            for _ in range(400):
                watch.look_once()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert watch.view.looks == 1200
    assert sizes[2] - sizes[1] < 100_000, sizes


def test_the_load_of_tasks_is_that_of_their_partitions_in_the_newest_hour(tmp_path: Path) -> None:
    rates = {("a", "orders", 0): 3000.0, ("a", "orders", 1): 1000.0, ("a", "clicks", 0): 500.0, ("b", "orders", 0): 9.0}
    found = measured_load(measured(tmp_path / "store", dict.fromkeys(rates, 1.0), rates))
    assert (found.unknown, "1 h" in found.hours) == ("", True)
    tasks = {TopicPartition("orders", 0): 0, TopicPartition("clicks", 0): 0, TopicPartition("orders", 1): 1}
    tasks |= {TopicPartition("new", 0): 1, TopicPartition("new", 1): 2}
    first, second, third = found.of_tasks("a", assigned(tasks))
    assert first == TaskLoad(0, pytest.approx(3500), pytest.approx(35), 0)
    assert (second.bytes_per_second, second.unmeasured_partitions) == (pytest.approx(1000), 1)
    assert (third.bytes_per_second, third.records_per_second) == (None, None), "unknown is no zero"


def test_a_store_without_a_rolled_up_hour_makes_the_load_unknown(tmp_path: Path) -> None:
    found = measured_load(tmp_path / "store")
    assert (found.rates, found.hours) == ({}, "")
    assert "no throughput" in found.unknown


# --- audits -----------------------------------------------------------------------------------------------------------


def audited(workspace: Workspace, order: FollowOrder, answers: list[AuditReport | Exception]) -> list[AuditRound]:
    """Return the rounds of a server that audits until it has no more answers."""
    rounds: list[AuditRound] = []
    ended = threading.Event()

    def answer(*_: object) -> AuditReport:
        if len(answers) == 1:
            ended.set()
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    watch = EstateWatch(
        workspace,
        ServeOrder(30.0, 300.0, order.store, audits=AuditsOrder(order, rounds.append)),
        look=Looks(),
        survey=lambda *_: SURVEY,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("mm2mgr.operations.audit"), "audit", answer)
        watch.start()
        assert ended.wait(30)
        until(lambda: watch.view.audit is not None and len(rounds) > len(answers), "the round is published")
        watch.close(30)
    return rounds


def test_a_server_audits_what_the_tree_declares_and_keeps_it(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(TREE.replace("topics:", "audit: 2%, topics:"))
    order = FollowOrder(store=tmp_path / "store", started_by="serve")
    (done, *_) = audited(replace(workspace), order, [replace(DIFFERS, began=NOW)])
    assert done.verdict == "differs"
    assert {row.started_by for row in AuditStore(tmp_path / "store", "tester").read()} == {"serve"}


def test_an_audit_that_fails_ends_neither_the_server_nor_the_audits(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(TREE.replace("topics:", "audit: 2%, topics:"))
    order = FollowOrder(store=tmp_path / "store", every_seconds=0.01, started_by="serve")
    rounds = audited(replace(workspace), order, [ValueError("password=geheim123 was refused"), EQUAL])
    assert "geheim123" not in str(rounds[0].error)
    assert rounds[-1].verdict == "equal"


# --- failover ---------------------------------------------------------------------------------------------------------


def test_a_server_checks_pairs_and_publishes_what_they_came_to_whatever_fails(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree.yaml").write_text(TREE.replace("topics:", "failover: true, topics:"))
    answers: list[PairReadiness | Exception] = [
        ValueError("password=geheim123 was refused"),
        PairReadiness("a->b", NOW + 900, recovery=RecoveryPoint(3)),
    ]
    now, rounds = [NOW], list[FailoverRound]()

    def check(_: Workspace, pair: str, order: FailoverOrder) -> CheckedPair:
        assert (pair, order.started_by) == ("a->b", "serve")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return CheckedPair(answer, ("the store is full",))

    def turn_ended(done: FailoverRound) -> None:
        rounds.append(done)
        now[0] += 900
        if not answers:
            watch.stop()

    order = FailoverChecksOrder(FailoverOrder(tmp_path / "store"), check, turn_ended)
    watch = EstateWatch(
        replace(workspace), ServeOrder(failover=order), look=Looks(), survey=lambda *_: SURVEY, clock=lambda: now[0]
    )
    assert watch.view.failover == FailoverView()
    watch.look_once()
    app = application(lambda: watch.view, clock=lambda: NOW + 960)
    assert "No pair declares" in ask_application(app, "/failover").text
    go_by(Clock(), monkeypatch)
    watch._parts.run("failover")
    assert "geheim123" not in repr(rounds)
    assert [check.error != "" for done in rounds for check in done.checks] == [True, False]
    assert watch.view.failover is not None
    (checked,) = watch.view.failover.checks.values()
    assert (checked.verdict, checked.warnings) == ("GO WITH", ("the store is full",))
    assert "a-&gt;b: the store is full" in ask_application(app, "/failover").text


def test_a_server_that_has_nothing_to_check_says_so_at_the_start(workspace: Workspace, tmp_path: Path) -> None:
    order = ServeOrder(failover=FailoverChecksOrder(FailoverOrder(tmp_path / "store")))
    with pytest.raises(Mm2mgrError, match="--with failover: no flow of the tree declares failover"):
        serve(workspace, order)


def test_a_server_that_has_nothing_to_audit_says_so_at_the_start(workspace: Workspace, tmp_path: Path) -> None:
    order = ServeOrder(audits=AuditsOrder(FollowOrder(store=tmp_path / "store")))
    with pytest.raises(Mm2mgrError, match="--with audit: no flow of the tree declares audits"):
        serve(workspace, order)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_waits_for_leases_and_not_for_what_only_reads(workspace: Workspace) -> None:
    """A look that hangs at a dead cluster has 0.3 s after the stop, though a lease would have more."""
    looks = Looks()
    looks.blocks.clear()
    now = [0.0]
    with timing.use(ShownClock(lambda: now[0])):
        watch = EstateWatch(workspace, look=looks, survey=lambda *_: SURVEY)
        watch.start()
        assert looks.began.wait(30)
        watch.stop()
        now[0] = 0.3
        assert watch.close(1000.0, read_seconds=0.3) is False
        looks.blocks.set()
        assert watch.close(1000.0)


def test_an_audit_gives_its_lease_up_before_spark_ends(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    ended = list[str]()
    audit = import_module("mm2mgr.operations.audit")
    monkeypatch.setattr(audit.Leases, "close_within", lambda *_: ended.append("lease"))
    monkeypatch.setattr(audit.WarmSpark, "close", lambda _: ended.append("spark"))
    workspace.files[0].write_text(TREE.replace("topics:", "audit: 2%, topics:"))
    rounds = audit.follow_audits(replace(workspace), FollowOrder(), wait=lambda _: True, run=lambda *_: EQUAL)
    next(rounds)
    rounds.close()
    assert ended == ["lease", "spark"]
