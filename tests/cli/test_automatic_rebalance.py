"""`serve --with rebalance` and `reconcile --rebalance`: what is written without a person, and what never is."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.apply.history import Recorder
from mm2mgr.apply.leases import Leases
from mm2mgr.apply.rounds import EventLog, Rounds
from mm2mgr.assignment_text import ASSIGNMENT_KEY, read_text
from mm2mgr.evidence.flow_load import EstateNeeds, FlowNeed, MeasuredLoad
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.observe.lag import FlowLag, PartitionLag
from mm2mgr.observe.lag_report import FlowFacts
from mm2mgr.operations import automatic_rebalance
from mm2mgr.operations.automatic_rebalance import FlowRound, LoadFacts, RebalanceOrder, Rebalancing
from mm2mgr.operations.estate_view import EstateLook, Survey
from mm2mgr.operations.plan import ReconcileOrder
from mm2mgr.operations.rebalance import automatic_rules
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.serve_parts import RebalancesOrder, ReconcilesOrder, ServeOrder
from mm2mgr.operations.status import LagReport
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import Offsets
from mm2mgr.plan.assignments import with_stock_class
from mm2mgr.plan.history import History, HistoryEntry
from mm2mgr.plan.schedule import RoundSchedule
from mm2mgr.problems.health import Status
from mm2mgr.render import OWNER_KEY
from mm2mgr.serve.app import application
from mm2mgr.topology import lease_group
from tests.fake_connect import Connector, FakeConnect
from tests.serve.estate import SURVEY, ask_application

from .command import Command, environment, finish, impatient_mm2mgr, until
from .leases import FakeLease
from .test_rebalance import ALL, DEALT, FLOW, NAME, SKEWED, Site, site_of

pytestmark = pytest.mark.usefixtures("impatient")
BALANCE = "balance: {by: plugin, automatic: %s}, max_lag: 10min"


class Recorded:
    """A history that is kept here; `unread` and `unwritten` are why not."""

    def __init__(self) -> None:
        self.entries: dict[str, HistoryEntry] = {}
        self.unread = self.unwritten = ""
        self.reads = 0

    def write(self, _connect: str, key: str, value: str | None) -> None:
        if not self.unwritten and (entry := HistoryEntry.parse(value or "")):
            self.entries[key] = entry

    def close(self) -> dict[str, str]:
        return {"w": self.unwritten} if self.unwritten else {}

    def read(self, *_: object) -> Iterator[object]:
        self.reads += 1
        yield ()
        return History(tuple(self.entries.values()), unread={"w": self.unread} if self.unread else {})

    @property
    def rebalances(self) -> list[HistoryEntry]:
        return [entry for entry in self.entries.values() if entry.command == "rebalance"]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    history = Recorded()
    monkeypatch.setattr(lease, "Lease", FakeLease)
    monkeypatch.setattr(Recorder, "write", history.write)
    monkeypatch.setattr(Recorder, "close", history.close)
    for name in ("rebalance", "automatic_rebalance"):
        monkeypatch.setattr(sys.modules[f"mm2mgr.operations.{name}"], "read_history", history.read)
    return history


@pytest.fixture
def site(mm2mgr: Command, mock_cluster: KafkaAccess, recorded: Recorded) -> Iterator[Site]:
    with site_of(mm2mgr, mock_cluster) as site:
        site.measure(SKEWED)
        declare(site)
        site.use_plugin()
        yield site
    FakeLease.forget()


def declare(site: Site, automatic: str = "[overload]", more: str = "") -> None:
    """Let the flow be rebalanced, and the history be kept."""
    tree = site.mm2mgr.tree / "x.yaml"
    text = tree.read_text().replace(", history: false", ", workers: {count: 1}")
    head, _, _ = text.partition("tasks: {max: 4}")
    settings = BALANCE % automatic
    tree.write_text(f"{head}tasks: {{max: 4}}, {settings.replace('}', f'{more}}}', 1)}}}\n")


def facts(late_seconds: float = 900.0, busy: float = 1.0) -> LoadFacts:
    """Return the facts of a look: all partitions of task 0 wait so long, and get `busy` times what was measured."""
    now = time.time()
    lags = tuple(PartitionLag(place, Offsets(0, 110), 99, 100, 100, task=DEALT.task_of[place]) for place in ALL)
    since = {place: now - (late_seconds if DEALT.task_of[place] == 0 else 1.0) for place in ALL}
    lag = FlowLag(lags, len(lags), assignment=DEALT)
    flow = FlowFacts(FLOW, "w", NAME, "RUNNING", now, 60.0, lag, written_at=since)
    load = MeasuredLoad({"a": {place: (busy * rate, None) for place, rate in SKEWED.items()}}, "an hour", "", now)
    return LoadFacts(LagReport(now, "flow", (flow,)), load, EstateNeeds({FLOW: FlowNeed(4, 7e6, None)}))


class Loop:
    """A process of `serve --with rebalance`, of which a test takes look after look."""

    def __init__(self, read: Callable[[], LoadFacts] = facts, freeze: Path | None = None) -> None:
        rounds = Rounds(Leases(lease_group), RoundSchedule(60.0), EventLog(None))
        order = RebalanceOrder(freeze_file=freeze, wait_seconds=0.0, store=Path("store"), reason="night")
        self.loop = Rebalancing(order, lambda _: read(), rounds)

    def look(self, looks: int = 1) -> FlowRound:
        for _ in range(looks):
            (flow,) = self.loop.look(Workspace()).flows
        return flow


def test_a_late_and_overloaded_task_is_relieved_after_two_looks_and_the_history_says_why(
    site: Site, recorded: Recorded
) -> None:
    loop, before = Loop(), dict(site.config)
    assert loop.look().outcome == ""
    assert site.config == before
    flow = loop.look()
    assert flow.outcome in {"inconclusive", "written"}, flow
    assert {key for key in site.config if site.config[key] != before.get(key)} == {ASSIGNMENT_KEY}
    assert max(site.loads()) * 4 / sum(site.loads()) <= 1.1
    (entry,) = recorded.rebalances
    assert entry.reason.startswith("automatic: task 0 gets 129 % of what it is planned to carry and is 15 min late")
    assert entry.reason.endswith("; night")
    assert "busiest task, times the mean" in [key["key"] for key in entry.keys]
    flow = loop.look()
    assert (flow.rounds, flow.last is not None and flow.last.before) == (1, 2.86)
    assert FakeLease.closed, "the lease is given up, so that apply by hand is not kept out"


def test_after_a_rebalance_nothing_is_to_be_applied(site: Site) -> None:
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    site.mm2mgr("plan", "--detailed-exitcode", code=0)


def test_a_kill_and_a_restart_give_no_fresh_budget(site: Site, recorded: Recorded) -> None:
    Loop().look(2)
    text = site.config[ASSIGNMENT_KEY]
    site.use_plugin()
    for _ in range(3):
        flow = Loop().look(4)
        assert (flow.decision.action, flow.decision.hold) == ("wait", "rounds")
    assert len(recorded.rebalances) == 1
    assert site.config[ASSIGNMENT_KEY] != text


def test_a_kill_between_the_record_and_the_write_counts_as_a_round(
    site: Site, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before, writes = dict(site.config), len(site.fake.writes)
    with monkeypatch.context() as patch:
        patch.setattr("mm2mgr.apply.applied.write_approved", killed)
        with pytest.raises(KeyboardInterrupt):
            Loop().look(2)
    (entry,) = recorded.rebalances
    assert entry.outcome == "begun"
    assert Loop().look(3).decision.hold == "rounds"
    assert (site.config, len(site.fake.writes)) == (before, writes)


@pytest.mark.parametrize("where", ["tree", "option", "link"])
def test_a_freeze_file_stops_it_and_is_named(site: Site, tmp_path: Path, where: str) -> None:
    """A link to nothing is there as well: whoever made it wants it to stop."""
    file = tmp_path / "freeze"
    declare(site, more="" if where == "option" else f", freeze: {file}")
    loop = Loop(freeze=file if where == "option" else None)
    file.symlink_to("nowhere") if where == "link" else file.touch()
    before = dict(site.config)
    flow = loop.look(4)
    assert (flow.decision.action, flow.decision.hold, str(file) in flow.text) == ("wait", "frozen", True)
    assert site.config == before
    file.unlink()
    loop.look()
    assert site.config != before


def test_a_history_that_cannot_be_read_or_written_stops_it_and_says_so(site: Site, recorded: Recorded) -> None:
    before = dict(site.config)
    recorded.unread = "no broker answered"
    flow = Loop().look(3)
    assert (flow.decision.hold, flow.rounds, "no broker answered" in flow.text) == ("history", None, True)
    recorded.unread, recorded.unwritten = "", "no right to write"
    flow = Loop().look(2)
    assert (flow.outcome, "no right to write" in flow.text) == ("left", True)
    assert site.config == before


def test_another_process_of_the_owner_that_writes_is_left_alone(site: Site, recorded: Recorded) -> None:
    before = dict(site.config)
    FakeLease.of_others = {"b"}
    flow = Loop().look(2)
    assert (flow.outcome, "another process" in flow.text) == ("standby", True)
    assert (site.config, recorded.rebalances) == (before, [])


def test_a_process_that_stood_by_takes_over_a_minute_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other may have been killed; without that, a plan is made every ten minutes."""
    before, loop, now = dict(site.config), Loop(), time.time()
    times = iter([now, now + 5, now + 30, now + 70])
    monkeypatch.setattr(Workspace, "now", property(lambda workspace: current))
    outcomes = []
    for current in times:
        FakeLease.of_others = {"b"} if current < now + 20 else set()
        outcomes.append(loop.look().outcome)
    assert outcomes[:3] == ["", "standby", ""]
    assert outcomes[3] in {"written", "inconclusive"}
    assert site.config != before


def test_a_task_that_is_late_and_not_overloaded_is_not_moved(site: Site) -> None:
    before = dict(site.config)
    flow = Loop(lambda: facts(busy=0.5)).look(4)
    assert (flow.outcome, flow.decision.action) == ("", "keep")
    assert site.config == before


def test_outside_of_its_hours_and_by_old_rates_nothing_is_written(site: Site) -> None:
    before, hour = dict(site.config), time.gmtime().tm_hour
    declare(site, more=f", windows: {(hour + 2) % 24}-{(hour + 3) % 24}")
    flow = Loop().look(3)
    assert (flow.decision.action, flow.decision.hold) == ("wait", "window")
    assert flow.decision.allowed_at is not None
    assert 3_600 < flow.decision.allowed_at - time.time() <= 2 * 3_600
    declare(site, "[overload, schedule]")

    def old() -> LoadFacts:
        made = facts()
        return replace(made, load=replace(made.load, until_seconds=time.time() - 3 * 3_600))

    flow = Loop(old).look(3)
    assert (flow.decision.action, flow.decision.hold) == ("keep", "stale")
    assert site.config == before


def test_a_round_reads_the_history_once_for_the_looks_and_once_before_the_write(site: Site, recorded: Recorded) -> None:
    assert Loop().look(2).outcome in {"inconclusive", "written"}
    assert (len(recorded.rebalances), recorded.reads) == (1, 2)


@pytest.mark.parametrize(
    ("tasks", "balance", "rounds"),
    [
        ("max: 4, elastic: true", "", 1),  # its tasks are set by hand
        ("limit: 4", "", 1),
        ("limit: 4, elastic: true", "", 3),
        ("limit: 4, elastic: true", ", rounds_per_day: 1", 1),
    ],
)
def test_a_flow_with_elastic_tasks_has_the_rounds_that_these_need(
    site: Site, tasks: str, balance: str, rounds: int
) -> None:
    declare(site, more=balance)
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("tasks: {max: 4}", f"tasks: {{{tasks}}}"))
    (flow,) = Workspace().topology.flows
    assert automatic_rules(flow).rules.rounds_per_day == rounds


def test_only_flows_that_the_tree_lets_are_rebalanced(site: Site) -> None:
    declare(site, "false")
    before = dict(site.config)
    ended = Loop().loop.look(Workspace())
    assert (ended.flows, "automatic" in ended.note) == ((), True)
    assert site.config == before


def test_reconcile_rebalances_what_is_due_and_then_rests(site: Site, recorded: Recorded) -> None:
    declare(site, "[schedule]")
    before = dict(site.config)
    arguments = ("reconcile", "--rebalance", "--store", "store", "--once", "--wait", "0")
    said = site.mm2mgr(*arguments, code=0)
    assert site.config != before
    assert "due by schedule" in recorded.rebalances[0].reason, said.out
    text = site.config[ASSIGNMENT_KEY]
    site.mm2mgr(*arguments, code=0)
    assert (site.config[ASSIGNMENT_KEY], len(recorded.rebalances)) == (text, 1)


@pytest.mark.parametrize("automatic", ["[schedule]", "[overload]"])
def test_what_a_person_has_to_end_is_told_although_nothing_asks_for_a_round(
    site: Site, recorded: Recorded, tmp_path: Path, automatic: str
) -> None:
    declare(site, automatic)
    writes, file = len(site.fake.writes), tmp_path / "freeze"
    arguments = ("reconcile", "--rebalance", "--once", "--wait", "0")
    said = f"{FLOW}: nothing is rebalanced now: "
    assert f"{said}no rates: gone holds no throughput" in site.mm2mgr(*arguments, "--store", "gone").out
    recorded.unread = "the tree says history: false"
    assert f"{said}the history was not read" in site.mm2mgr(*arguments, "--store", "store").out
    recorded.unread = ""
    file.touch()
    assert f"{said}{file} exists" in site.mm2mgr(*arguments, "--store", "store", "--freeze-file", file).out
    assert len(site.fake.writes) == writes


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_in_a_day_there_are_no_more_rounds_than_are_allowed(
    site: Site, recorded: Recorded, tmp_path: Path, seed: int
) -> None:
    """Kills, freeze files, histories that fail, other processes, refused writes, lost answers, writers in between, rest,
    other owners, the stock class, and hands that skew the tasks again, in any order."""
    draw, file = random.Random(seed), tmp_path / "freeze"
    declare(site, more=f", rounds_per_day: 2, cool_down: 0s, freeze: {file}")
    loop, written = Loop(), 0
    for number in range(33):
        is_calm = number >= 30  # in the end nothing is in the way, so that all rounds that are allowed are seen
        if draw.random() < 0.5:  # killed, and started again
            loop = Loop()
        if is_calm or draw.random() < 0.5:
            site.use_plugin()
        file.unlink(missing_ok=True)
        if not is_calm and draw.random() < 0.2:
            file.touch()
        rarely = 0 if is_calm else 0.25
        recorded.unread = "no broker answered" if draw.random() < rarely else ""
        recorded.unwritten = "no right to write" if draw.random() < rarely else ""
        FakeLease.of_others = {"b"} if draw.random() < rarely else set()
        connector = site.fake.connectors[NAME]
        connector.state = "PAUSED" if draw.random() < rarely else "RUNNING"
        owner = "other" if draw.random() < rarely else "tester"
        connector.config = {**connector.config, OWNER_KEY: owner}
        site.fake.faults.clear()
        match None if is_calm else draw.randrange(6):
            case 0:
                site.fake.fail_next("PUT", "/connectors", status=400, body="refused")
            case 1:
                site.fake.drop_next("PUT", "/connectors", apply=True)
            case 2:
                connector.config = with_stock_class(connector.config) | {"name": NAME}
        is_free = (connector.state, connector.config[OWNER_KEY]) == ("RUNNING", "tester")
        before, rounds = dict(site.config), len(recorded.rebalances)
        loop.look(2 if is_calm else draw.randint(1, 3))
        if site.config != before:
            written += 1
            assert is_free
            assert ASSIGNMENT_KEY in before, "the stock class gets none"
            assert (file.exists(), recorded.unread, recorded.unwritten, FakeLease.of_others) == (False, "", "", set())
            assert len(recorded.rebalances) == rounds + 1
    refused = sum(entry.outcome == "failed" for entry in recorded.rebalances)
    assert written == len(recorded.rebalances) - refused == 2, "as many as are allowed, and none more"


def served(seconds: float = 900.0, reconciles: ReconcilesOrder | None = None) -> EstateWatch:
    """Return `serve --with rebalance` that looks without a pause; the task has been late for so long."""

    def look(*_: object) -> EstateLook:
        made = facts(seconds)
        return EstateLook(made.lag.taken_at, made.lag.taken_at, Status(made.lag.taken_at, ()), made.lag, {})

    def survey(*_: object) -> Survey:
        made = facts(seconds)
        return replace(SURVEY, load=made.load, needs=made.needs)

    order = RebalanceOrder(wait_seconds=0.0, store=Path("store"))
    asked = ServeOrder(every_seconds=0.05, survey_seconds=1000, rebalances=RebalancesOrder(order))
    asked = replace(asked, reconciles=reconciles)
    return EstateWatch(Workspace(), asked, look=look, survey=survey)


def test_serve_rebalances_by_its_own_looks_and_shows_it(site: Site, recorded: Recorded) -> None:
    before, serve = dict(site.config), served()
    serve.start()
    try:
        until(lambda: serve.view.rebalances and serve.view.rebalances.done, "it is rebalanced")
        until(
            lambda: serve.view.rebalances and serve.view.rebalances.last and serve.view.rebalances.last.flows[0].rounds,
            "counted",
        )
    finally:
        assert serve.close(10)
    assert site.config != before
    assert len(recorded.rebalances) == 1
    assert serve.view.rebalances is not None
    ((_, done),) = serve.view.rebalances.done
    assert (done.flow, done.decision.trigger) == (FLOW, "overload")


def test_beside_reconcile_it_is_rebalanced_in_its_rounds_under_its_lease(site: Site, recorded: Recorded) -> None:
    before = dict(site.config)
    rounds = ReconcileOrder(every_seconds=0.1, wait_seconds=0.0)
    serve = served(reconciles=ReconcilesOrder(rounds))
    serve.start()
    try:
        until(lambda: serve.view.rebalances and serve.view.rebalances.done, "it is rebalanced")
        assert FakeLease.closed == [], "it is the lease of reconcile, which keeps it"
    finally:
        assert serve.close(10, 10)
    assert site.config != before
    assert len(recorded.rebalances) == 1
    assert (FakeLease.groups, FakeLease.closed) == ({"mm2mgr-tester"}, ["b"])
    assert serve.view.reconciles is not None
    assert serve.view.reconciles.rounds.keys() <= {"done", "changes"}


def test_while_reconcile_stands_by_nothing_is_rebalanced(
    site: Site, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeLease.of_others = {"b"}
    holder = lease.Holder("10.0.0.7", "`reconcile` by ann, since 2026-11-27 10:00 UTC")
    monkeypatch.setattr(lease, "read_holder", lambda *_: holder)
    before, serve = dict(site.config), served(reconciles=ReconcilesOrder(ReconcileOrder(every_seconds=0.05)))
    serve.start()
    try:
        until(lambda: serve.view.reconciles and serve.view.reconciles.rounds.get("standby", 0) > 3, "it stands by")
        app = application(lambda: serve.view)
        answers = {name: ask_application(app, f"/api/{name}") for name in ("rebalance", "reconcile")}
        texts = [ask_application(app, path).text for path in ("/rebalance", "/parts")]
    finally:
        assert serve.close(10, 10)
    assert site.config == before
    assert recorded.rebalances == []
    for answer in answers.values():
        assert answer.status_code == 200
        part = answer.json()["part"]
        assert (part["outcome"], part["standby"]) == ("standby", answer.json()["standby"])
        assert part["leaders"] == {"b": f"{holder.note}, on 10.0.0.7"}
    assert all("`reconcile` by ann, since 2026-11-27 10:00 UTC, on 10.0.0.7 leads on b" in text for text in texts)


def test_the_end_of_the_server_ends_a_write_in_order(site: Site) -> None:
    serve = served()

    async def write() -> bool:
        with serve._parts._halting(None) as halt:
            assert serve._parts.is_writing
            serve.stop()
            await asyncio.wait_for(halt.wait(), 10)
        with serve._parts._halting(None) as late:
            return late.is_set()

    assert asyncio.run(write()), "nor does one begin afterwards"
    assert not serve._parts.is_writing


def test_options_that_contradict_each_other_are_refused(mm2mgr: Command) -> None:
    assert "--freeze-file needs --rebalance" in mm2mgr("reconcile", "--freeze-file", "f", code=64).err
    assert "leave one out" in mm2mgr("reconcile", "--rebalance", "--report-only", code=64).err
    assert "--dry-run needs --with watch" in mm2mgr("serve", "--with", "rebalance", "--dry-run", code=64).err
    both = ("serve", "--with", "watch,rebalance", "--dry-run")
    assert "--with rebalance writes, and --dry-run does not: leave one out" in mm2mgr(*both, code=64).err


def test_ctrl_c_ends_rebalance_as_it_ends_apply(site: Site) -> None:
    """The connector's write is answered late, so the interrupt comes while it is begun: it is ended, recorded, and told."""
    site.fake.delay_next("PUT", "/connectors", seconds=2)
    before = dict(site.config)
    command = [*impatient_mm2mgr(), "rebalance", "--store", "store", "--apply", "--yes", "--wait", "0"]
    folder, pipe = site.mm2mgr.folder, subprocess.PIPE
    running = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True)
    try:
        until(lambda: site.config != before, "the assignment is written")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 130, said
    assert "interrupted: no new change begins, those in progress have 60 s to finish" in said.err
    assert "Applied: 1 of 1 changes" in said.out


def overwritten(site: Site, patch: pytest.MonkeyPatch) -> None:
    """Another process writes the config right after it."""
    change = type(site.fake)._change

    def change_twice(fake: FakeConnect, connector: Connector, config: dict[str, str]) -> None:
        change(fake, connector, config)
        change(fake, connector, config | {"by.hand": "1"})

    patch.setattr(type(site.fake), "_change", change_twice)


def unanswered(site: Site, patch: pytest.MonkeyPatch) -> None:
    """The write is stored, its answer is lost, and nothing can be read back."""
    site.fake.drop_next("PUT", f"/connectors/{NAME}/config", apply=True)
    change = type(site.fake)._change

    def change_and_die(fake: FakeConnect, connector: Connector, config: dict[str, str]) -> None:
        change(fake, connector, config)
        fake.drop_next("*", "/", times=10_000)

    patch.setattr(type(site.fake), "_change", change_and_die)


@pytest.mark.parametrize("spoil", [overwritten, unanswered])
def test_a_write_that_failed_after_it_was_stored_is_a_round(
    site: Site, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Site, pytest.MonkeyPatch], None]
) -> None:
    declare(site, more=", cool_down: 0s")
    before = dict(site.config)
    with monkeypatch.context() as patch:
        spoil(site, patch)
        assert Loop().look(2).outcome == "failed"
    site.fake.faults.clear()
    assert site.config != before
    assert [(entry.outcome, entry.was_written) for entry in recorded.rebalances] == [("failed", True)]
    site.use_plugin()
    flow = Loop().look(4)
    assert (flow.decision.action, flow.decision.hold, flow.rounds) == ("wait", "rounds", 1)
    assert len(recorded.rebalances) == 1


def test_a_refused_write_is_no_round_and_waits_for_the_cool_down(site: Site, recorded: Recorded) -> None:
    site.fake.fail_next("PUT", f"/connectors/{NAME}/config", status=400, body={"error_code": 400, "message": "no"})
    before = dict(site.config)
    flow = Loop().look(2)
    assert (flow.outcome, site.config) == ("failed", before), flow
    assert [(entry.outcome, entry.was_written) for entry in recorded.rebalances] == [("failed", False)]
    flow = Loop().look(2)
    assert (flow.decision.hold, flow.rounds) == ("rounds", 0)
    assert "the last try was" in flow.text
    declare(site, more=", cool_down: 0s")
    Loop().look(2)
    assert site.config != before


@pytest.mark.parametrize("what", ["stock class", "paused", "stopped", "gone", "other owner", "failed task", "by hand"])
def test_what_changes_between_the_plan_and_the_write_is_left(
    site: Site, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As when `watch` sets the stock class, or somebody pauses the flow, while the clusters are read."""
    judge = automatic_rebalance.judge_flows
    left: list[tuple[Connector | None, int]] = []

    def judge_and_spoil(*arguments: Any, **options: Any) -> Any:
        judged = judge(*arguments, **options)
        connector = site.fake.connectors[NAME]
        match what:
            case "stock class":
                connector.config = with_stock_class(connector.config) | {"name": NAME}
            case "paused" | "stopped":
                connector.state = what.upper()
            case "gone":
                del site.fake.connectors[NAME]
            case "other owner":
                connector.config = {**connector.config, OWNER_KEY: "other"}
            case "failed task":
                connector.failed_tasks = {1: "boom"}
            case "by hand":
                connector.config = {**connector.config, "by.hand": "1"}
        left.append((deepcopy(site.fake.connectors.get(NAME)), len(site.fake.writes)))
        return judged

    monkeypatch.setattr(automatic_rebalance, "judge_flows", judge_and_spoil)
    flow = Loop().look(2)
    assert flow.outcome == "left", flow
    assert left == [(site.fake.connectors.get(NAME), len(site.fake.writes))]
    assert recorded.rebalances == [], "it costs no round"


def test_fewer_tasks_in_the_tree_come_by_a_rebalance_and_then_an_apply(site: Site, recorded: Recorded) -> None:
    """The plugin refuses tasks.max below its assignment, so reconcile rebalances first, and applies in the next round."""
    declare(site, "[schedule]")
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("tasks: {max: 4}", "tasks: {max: 2}"))
    arguments = ("reconcile", "--rebalance", "--store", "store", "--once", "--wait", "0")
    said = site.mm2mgr(*arguments, code=1).out
    assert "the plugin refuses that; fix: write an assignment of fewer tasks first (mm2mgr rebalance --apply)" in said
    text = site.config[ASSIGNMENT_KEY]
    assert (len(read_text(text).rates), site.config["tasks.max"]) == (2, "4")
    site.mm2mgr(*arguments, code=0)
    assert (site.config[ASSIGNMENT_KEY], site.config["tasks.max"]) == (text, "2")
    site.mm2mgr("plan", "--detailed-exitcode", code=0)
    (entry,) = recorded.rebalances
    assert entry.reason == "automatic: due by schedule; 4 tasks run; the limit is 2"


def test_pinned_partitions_are_told_and_so_are_those_that_are_not_there(site: Site) -> None:
    declare(site, more=", pinned: [t0-0, nope-7, t1-99]")
    said = site.rebalance(code=2).out
    assert "Pinned, but not a partition that the tasks of this flow have: nope-7, t1-99." in said
    declare(site, more=", pinned: [t0-0], rounds_per_day: 0")
    said = site.rebalance(code=0).out
    assert "1 partition stays pinned." in said
    assert "but rounds_per_day is 0: unchanged" in said
