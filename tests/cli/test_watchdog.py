"""`watch` as people meet it, on fake Connect clusters: what is restarted, what never is, and how it ends. Real ones: tests/live/test_watch.py."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.apply.history import Recorder
from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS
from mm2mgr.json_values import to_json
from mm2mgr.kafka import lease
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.live.reach import Limits
from mm2mgr.operations import RestartPolicy, WatchAction, WatchOrder, WatchRound, Workspace, watch
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.serve_parts import ServeOrder, WatchdogOrder
from mm2mgr.output.console import log_lines
from mm2mgr.output.history_text import action_line, say_watch_round
from mm2mgr.plan.history import History, HistoryEntry
from mm2mgr.problems.watchdog import Watchdog
from mm2mgr.render import OWNER_KEY
from tests.fake_connect import CLASSES, FakeConnect, Request
from tests.fake_connect import serving as serving_fake
from tests.plan.site import Site
from tests.serve.estate import SURVEY, look_of

from .command import Command, allowed_seconds, finish, start, until
from .leases import FakeLease

LOGS, ORDERS = "mm2.a.east.source.logs", "mm2.a.east.source.orders"
NOW = RestartPolicy(first_seconds=0.0, longest_seconds=0.0, restarts=3, jitter=0.0)
FOLDER = Path(__file__).parents[1] / "observe" / "without_plugin"
STOCK_CLASS = CLASSES[0]
TEXT = "version=1;rates=1;unlisted=1;orders:0@0"
CALLBACK = (
    "org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback\nCaused by: "
)
TIMED_OUT = f"{CALLBACK}org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for a.orders-0"
TOO_LARGE = f"{CALLBACK}org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088 bytes"
OPERATION = sys.modules[watch.__module__]


class Recorded:
    """A history that is kept here."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self.unread: dict[str, str] = {}

    def write(self, _connect: str, key: str, value: str | None) -> None:
        entry = HistoryEntry.parse(value or "") if key.startswith("entry/") else None
        if entry is None or entry.command != "watch":
            return
        self.entries = [*(one for one in self.entries if one.id != entry.id), entry]

    async def read(self, _topology: object, connects: set[str]) -> History:
        unread = {name: why for name, why in self.unread.items() if name in connects}
        return History(tuple(self.entries), unread=unread)


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeLease]]:
    monkeypatch.setattr(lease, "Lease", FakeLease)
    yield FakeLease
    assert FakeLease.groups <= {"mm2mgr-team-watch"}
    FakeLease.forget()


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    monkeypatch.setattr(Recorder, "write", lambda _, *entry: found.write(*entry))
    monkeypatch.setattr(OPERATION, "read", found.read)
    return found


@pytest.fixture
def applied(mm2mgr: Command, site: Site, closed_port: int) -> Site:
    mm2mgr("apply", "--yes", "--wait", "0")
    site.brokers |= {"east": f"127.0.0.1:{closed_port}", "west": f"127.0.0.2:{closed_port}"}
    site.declare()
    for fake in (site.east, site.west):
        fake.requests.clear()
    return site


class Watching:
    """A watchdog of which a test takes look after look, without a pause."""

    def __init__(self, **order: Any) -> None:
        self._rounds = watch(Workspace(), WatchOrder(**{"policy": NOW, **order}), every_seconds=0.001)

    def look(self) -> WatchRound:
        return next(self._rounds)

    def actions(self, looks: int = 1) -> list[tuple[str, str, str]]:
        found = [action for _ in range(looks) for action in self.look().actions]
        return [(one.action, one.reason, _name(one)) for one in found]

    def close(self) -> None:
        self._rounds.close()


def _name(action: WatchAction) -> str:
    subject = action.problem.subject
    return f"{subject.flow or subject.connector} {','.join(map(str, subject.tasks))}".strip()


@pytest.fixture
def watching() -> Iterator[Callable[..., Watching]]:
    made: list[Watching] = []

    def make(**order: Any) -> Watching:
        made.append(Watching(**order))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fail(site: Site, connector: str, **traces: str) -> None:
    site.east.connectors[connector].failed_tasks = {int(task[1:]): trace for task, trace in traces.items()}


def sent(site: Site) -> list[str]:
    return [
        f"{one.method} {one.path}" for fake in (site.east, site.west) for one in fake.writes if isinstance(one, Request)
    ]


def test_only_the_task_that_a_restart_can_cure_is_restarted(
    applied: Site, watching: Callable[..., Watching], recorded: Recorded
) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    fail(applied, LOGS, t0=TOO_LARGE)
    dog = watching(reason="night shift")
    assert sorted(dog.actions()) == [
        ("restart", "", "orders:a->east 0"),
        ("tell", "not-retryable", "logs:a->east 0"),
    ]
    assert sent(applied) == [f"POST /connectors/{ORDERS}/tasks/0/restart"]
    assert dog.actions(3) == [("recovered", "", "orders:a->east 0")], "the other one was told once"
    assert sent(applied) == [f"POST /connectors/{ORDERS}/tasks/0/restart"]
    (entry,) = recorded.entries
    assert (entry.command, entry.connect, entry.connector, entry.outcome) == ("watch", "east", ORDERS, "done")
    assert (entry.reason, entry.keys[0]["key"], entry.flows) == (
        "task 0: time-out; night shift",
        "task 0",
        ("orders:a->east",),
    )


def test_a_connector_that_failed_itself_is_restarted_without_its_tasks(
    applied: Site, watching: Callable[..., Watching]
) -> None:
    connector = applied.east.connectors[ORDERS]
    connector.shown_state, connector.trace = "FAILED", TIMED_OUT
    assert watching().actions(2) == [("restart", "", "orders:a->east"), ("recovered", "", "orders:a->east")]
    assert sent(applied) == [f"POST /connectors/{ORDERS}/restart"]


def test_the_breaker_opens_also_over_a_restart_of_the_watchdog(
    applied: Site, watching: Callable[..., Watching]
) -> None:
    def again(dog: Watching) -> list[str]:
        fail(applied, ORDERS, t0=TIMED_OUT)
        return [action for action, _, _ in dog.actions()]

    first = watching()
    assert [again(first) for _ in range(2)] == [["restart"], ["restart"]]
    first.close()
    second = watching()
    assert [again(second) for _ in range(4)] == [["restart"], ["tell"], [], []]
    assert len(sent(applied)) == NOW.restarts


def test_a_history_that_cannot_be_read_allows_no_restart(
    applied: Site, watching: Callable[..., Watching], recorded: Recorded
) -> None:
    recorded.unread = {"east": "east: no broker answered"}
    fail(applied, ORDERS, t0=TIMED_OUT)
    dog = watching()
    done = dog.look()
    assert (done.actions, sent(applied)) == ((), [])
    assert done.without_lease == {"east": "its history could not be read: east: no broker answered"}
    recorded.unread = {}
    assert dog.actions() == [("restart", "", "orders:a->east 0")]


def test_a_dry_run_says_what_it_would_do_and_sends_nothing(
    applied: Site, watching: Callable[..., Watching], recorded: Recorded, leases: type[FakeLease]
) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    dog = watching(dry_run=True)
    (action,) = dog.look().actions
    assert "task 0 FAILED (time-out): would be restarted (1): org.apache.kafka" in action_line(action)
    assert (sent(applied), recorded.entries, leases.groups) == ([], [], set())


def story() -> dict[str, Any]:
    """What a worker without the jar made of a connector, as 4.3.1 told it."""
    return json.loads((FOLDER / "joined-4.3.1.json").read_text())  # type: ignore[no-any-return]


def lose_plugin(site: Site, connector: str = ORDERS) -> None:
    """Let a connector have the plugin's class and an assignment, and its task 0 be on a worker that lacks it."""
    there = site.east.connectors[connector]
    there.config |= {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: TEXT}
    there.failed_tasks = {0: story()["tasks"][0]["trace"]}


def test_where_a_worker_lacks_the_plugin_the_connector_gets_the_stock_class(
    applied: Site, watching: Callable[..., Watching], recorded: Recorded, tmp_path: Path
) -> None:
    before = dict(applied.east.connectors[ORDERS].config)
    lose_plugin(applied)
    dog = watching(reason="night shift")
    first = dog.look()
    (action,) = first.actions
    assert (action.action, action.problem.cause, action.problem.subject.tasks) == (
        "stock-class",
        "plugin-missing",
        (0,),
    )
    text = action_line(action)
    assert "task 0 FAILED (plugin-missing): has the stock class now (1) and goes on from the stored offsets" in text
    assert "mm2mgr plugin write onto every worker, then run mm2mgr apply" in text
    assert sent(applied) == [f"PUT /connectors/{ORDERS}/config"]
    assert applied.east.connectors[ORDERS].config == before, "nothing of the plugin is left, all else is as it was"
    assert dog.actions(3) == [("recovered", "", "orders:a->east 0")]
    (entry,) = recorded.entries
    assert (entry.command, entry.connector, entry.outcome) == ("watch", ORDERS, "done")
    assert entry.reason == "connector.class: plugin-missing; night shift"
    assert [(key["key"], key["after"]) for key in entry.keys] == [
        ("connector.class", before["connector.class"]),
        (ASSIGNMENT_KEY, None),
    ]


def test_what_is_restarting_for_ever_on_a_worker_without_the_plugin_counts_too(
    applied: Site, watching: Callable[..., Watching]
) -> None:
    """A restart leaves tasks without the class RESTARTING, without a trace: their worker is asked."""
    lose_plugin(applied)
    there = applied.east.connectors[ORDERS]
    there.failed_tasks, there.shown_task_state = {}, "RESTARTING"
    applied.east.plugins[PLUGIN_CLASS] = "1.0"
    applied.east.worker_ids = {None: "elsewhere:8083", 0: applied.urls["east"].removeprefix("http://")}
    assert watching().actions(2) == [], "it has the class, and only restarts"
    del applied.east.plugins[PLUGIN_CLASS]
    applied.east.worker_ids[0] = "127.0.0.1:1"
    assert watching().actions(2) == [], "its worker did not answer"
    applied.east.worker_ids[0] = applied.urls["east"].removeprefix("http://")
    dog = watching()
    (action,) = dog.look().actions
    assert (action.action, action.problem.cause) == ("stock-class", "plugin-missing")
    assert f"has no {PLUGIN_CLASS}" in action.problem.sentence
    assert sent(applied) == [f"PUT /connectors/{ORDERS}/config"]


def test_the_stock_class_is_set_within_the_limits_of_restarts_and_only_where_that_is_allowed(
    applied: Site, watching: Callable[..., Watching], tmp_path: Path
) -> None:
    switch = tmp_path / "freeze"
    switch.touch()
    lose_plugin(applied)
    assert watching(freeze_file=switch).actions(2) == [("tell", "frozen", "orders:a->east 0")]
    assert "would get the stock class now (1)" in action_line(watching(dry_run=True).look().actions[0])
    assert sent(applied) == []
    applied.east.connectors[ORDERS].config[OWNER_KEY] = "somebody else"
    assert watching().actions(2) == []
    applied.east.connectors[ORDERS].config[OWNER_KEY] = "team"
    first, second = watching(), watching()
    for dog in (first, first, second, second):  # somebody sets the plugin's class again and again
        dog.look()
        lose_plugin(applied)
        if dog is first and len(sent(applied)) == 2:
            first.close()
    assert len(sent(applied)) == NOW.restarts
    assert second.actions() == [], "told before that the breaker is open"


def test_a_config_that_was_changed_meanwhile_is_not_overwritten(
    applied: Site, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_plugin(applied)
    reading = OPERATION.read_states  # type: ignore[attr-defined]

    async def read_then_change(*args: Any) -> Any:
        read = await reading(*args)
        applied.east.connectors[ORDERS].config["tasks.max"] = "7"
        return read

    monkeypatch.setattr(OPERATION, "read_states", read_then_change)
    (action,) = watching().look().actions
    assert action.error == "its config was changed meanwhile"
    assert sent(applied) == []


def test_after_the_stock_class_plan_waits_until_each_worker_has_the_plugin(
    mm2mgr: Command, site: Site, watching: Callable[..., Watching], recorded: Recorded, closed_port: int
) -> None:
    bare = FakeConnect(cluster_id="east")
    site.east.plugins[PLUGIN_CLASS] = "1.0"
    only = "heartbeats: false, checkpoints: false, balance: plugin"
    flows = f"flows: {{orders: {{sources: [a], targets: [east], topics: {{include: [orders]}}, {only}}}}}\n"
    site.declare(flows)
    own = site.urls["east"].removeprefix("http://")
    site.worker_groups["east"] = (WorkerGroup("connect", (own,)),)
    mm2mgr("apply", "--yes", "--wait", "0")
    site.brokers["east"] = f"127.0.0.1:{closed_port}"
    site.declare(flows)
    config = site.east.connectors[ORDERS].config
    with serving_fake(bare) as url:
        joined = url.removeprefix("http://")
        site.worker_groups["east"] = (WorkerGroup("connect", (own, joined)),)
        config[ASSIGNMENT_KEY] = TEXT
        fail(site, ORDERS, t0=story()["tasks"][0]["trace"])
        dog = watching()
        assert dog.actions(2) == [("stock-class", "", "orders:a->east 0"), ("recovered", "", "orders:a->east 0")]
        text = " ".join(mm2mgr("plan", code=1).out.split())
        assert f"{joined} of 'east' has no {PLUGIN_CLASS}, and would fail its tasks" in text
        site.apply(site.plan(flows), flows)
        assert dog.actions(2) == []
        assert site.east.connectors[ORDERS].config["connector.class"] == STOCK_CLASS, "it does not swing"
        bare.plugins[PLUGIN_CLASS] = "1.0"
        site.apply(site.plan(flows), flows)
        assert site.east.connectors[ORDERS].config["connector.class"] == PLUGIN_CLASS
        assert ASSIGNMENT_KEY not in site.east.connectors[ORDERS].config, "it begins anew"
        assert dog.actions(2) == []


def test_another_class_that_a_worker_lacks_is_told(applied: Site, watching: Callable[..., Watching]) -> None:
    fail(applied, ORDERS, t0=story()["tasks"][0]["trace"])
    (action,) = watching().look().actions
    assert (action.action, action.reason, action.problem.cause) == ("tell", "not-retryable", "class-missing")
    assert sent(applied) == []


def test_one_look_has_an_exit_code(applied: Site, mm2mgr: Command, leases: type[FakeLease]) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    line = ("watch", "--once", "--first-wait", "0s")
    assert "would be restarted (1)" in mm2mgr(*line, "--dry-run").out.replace("\n  ", " ")
    assert sent(applied) == []
    (action,) = mm2mgr(*line, "-o", "json").json["actions"]
    assert (action["action"], action["problem"]["subject"]["connector"]) == ("restart", ORDERS)
    assert sent(applied) == [f"POST /connectors/{ORDERS}/tasks/0/restart"]
    leases.dead = {"west"}
    assert "Connect cluster west is not watched: no lease: west: no broker answered" in mm2mgr(*line, code=1).out


def test_while_it_is_frozen_it_only_tells(applied: Site, watching: Callable[..., Watching], tmp_path: Path) -> None:
    switch = tmp_path / "freeze"
    switch.touch()
    fail(applied, ORDERS, t0=TIMED_OUT)
    fail(applied, LOGS, t0=TOO_LARGE)
    dog = watching(freeze_file=switch)
    assert sorted(dog.actions(3)) == [
        ("tell", "frozen", "orders:a->east 0"),
        ("tell", "not-retryable", "logs:a->east 0"),
    ]
    assert sent(applied) == []
    switch.unlink()
    assert dog.actions() == [("restart", "", "orders:a->east 0")]


def test_connectors_of_others_at_rest_or_moving_are_left_alone(
    applied: Site, watching: Callable[..., Watching]
) -> None:
    for name in (ORDERS, LOGS):
        fail(applied, name, t0=TIMED_OUT)
    applied.east.connectors[ORDERS].config[OWNER_KEY] = "somebody else"
    applied.east.connectors[LOGS].state = "PAUSED"
    applied.east.add("stranger", {"connector.class": applied.east.connectors[LOGS].config["connector.class"]})
    applied.east.connectors["stranger"].failed_tasks = {0: TIMED_OUT}
    assert watching().actions(3) == []
    assert sent(applied) == []


def test_only_the_flows_that_are_named_are_watched(applied: Site, watching: Callable[..., Watching]) -> None:
    for name in (ORDERS, LOGS):
        fail(applied, name, t0=TIMED_OUT)
    assert watching(flows=("logs:a->east",)).actions(2) == [
        ("restart", "", "logs:a->east 0"),
        ("recovered", "", "logs:a->east 0"),
    ]


def test_a_connect_cluster_that_is_away_rests_and_the_others_are_watched(
    applied: Site, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPERATION, "LIMITS", Limits(connect_seconds=0.5))
    monkeypatch.setattr("mm2mgr.plan.schedule.RoundSchedule._backoff", lambda self, failures: 1000.0)
    applied.west.answer_only("/connectors", 500)
    dog = watching()
    assert list(dog.look().unread) == ["west"]
    applied.west.requests.clear()
    fail(applied, ORDERS, t0=TIMED_OUT)
    done = dog.look()
    assert ([_name(one) for one in done.actions], list(done.resting)) == (["orders:a->east 0"], ["west"])
    assert applied.west.requests == []


def test_what_another_process_watches_is_left_to_it(
    applied: Site, watching: Callable[..., Watching], leases: type[FakeLease]
) -> None:
    leases.of_others, leases.dead = {"east"}, {"west"}
    fail(applied, ORDERS, t0=TIMED_OUT)
    dog = watching()
    done = dog.look()
    assert (done.standby, list(done.without_lease), done.actions) == (("east",), ["west"], ())
    assert sent(applied) == []
    dog.close()
    assert leases.closed == ["east"], "the group is left at the end"


def test_a_restart_that_is_refused_counts_and_is_told(applied: Site, watching: Callable[..., Watching]) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    applied.east.fail_next("POST", f"/connectors/{ORDERS}/tasks/0/restart", 404, "Unknown task", times=9)
    dog = watching()
    errors = [one.error for _ in range(6) for one in dog.look().actions if one.action == "restart"]
    assert len(errors) == NOW.restarts
    assert all(error and "Unknown task" in error for error in errors)


def test_a_tree_with_mistakes_is_told_and_nothing_is_restarted(
    applied: Site, watching: Callable[..., Watching]
) -> None:
    dog = watching()
    dog.look()
    fail(applied, ORDERS, t0=TIMED_OUT)
    (applied.folder / "mistake.yaml").write_text("flows: {x: 1}\n")
    done = dog.look()
    assert done.error
    assert sent(applied) == []


def test_lines_say_what_and_why_once(
    applied: Site, watching: Callable[..., Watching], capsys: pytest.CaptureFixture[str]
) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    fail(applied, LOGS, t0=TOO_LARGE)
    dog, said = watching(policy=replace(NOW, first_seconds=3600.0)), ""
    for _ in range(3):
        said = say_watch_round(dog.look(), said, log_lines("result"))
    lines = [
        line.partition("Z watch: ")[2] for line in capsys.readouterr().out.replace("\n  ", " ").splitlines() if line
    ]
    text = "\n".join(lines)
    assert text.count("orders:a->east: task 0 FAILED (time-out): restart in 60 min unless it runs again: ") == 1
    assert (
        text.count(
            "logs:a->east: task 0 FAILED (record-size): not restarted, since a restart does not help; fix the cause, then"
            " run mm2mgr restart --failed 'logs:a->east': "
        )
        == 1
    )


def test_a_cluster_that_does_not_answer_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Between two tries it rests: that is no news."""
    refused, timed_out = {"east": "connection refused"}, {"east": "no answer in time"}
    rounds = [
        WatchRound(1, 1.0, unread=refused),
        WatchRound(2, 2.0, resting={"east": 20.0}),
        WatchRound(3, 3.0, unread=refused),
        WatchRound(4, 4.0, resting={"east": 40.0}, unread={"west": "no answer"}),
        WatchRound(5, 5.0, unread=timed_out),
        WatchRound(6, 6.0),
    ]
    said = ""
    for done in rounds:
        said = say_watch_round(done, said, log_lines("result"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("1970-01-01T00:00:01Z watch: ")
    assert [line.partition("Z watch: ")[2] for line in printed] == [
        "Connect cluster east is not watched: connection refused",
        "Connect cluster west is not watched: no answer",
        "Connect cluster east is not watched: no answer in time",
        "all Connect clusters are watched again",
    ]


def test_the_end_of_a_freeze_and_of_an_outage_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""
    for done in (
        WatchRound(1, 1.0, frozen=True, unread={"east": "no answer"}),
        WatchRound(2, 2.0, unread={"east": "no answer"}),
        WatchRound(3, 3.0, frozen=True),
        WatchRound(4, 4.0),
    ):
        said = say_watch_round(done, said, log_lines("result"))
    assert [line.partition("Z watch: ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "Connect cluster east is not watched: no answer",
        "frozen: nothing is restarted",
        "no longer frozen: tasks are restarted again",
        "frozen: nothing is restarted",
        "all Connect clusters are watched again",
        "no longer frozen: tasks are restarted again",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_signal_ends_it_within_two_seconds(
    applied: Site, mm2mgr: Command, number: signal.Signals, is_away: bool, tmp_path: Path
) -> None:
    """A process of its own has no stand-in for the lease: its Kafka does not answer."""
    if is_away:
        applied.east.delay_next("GET", "/connectors", seconds=20)
    else:
        fail(applied, ORDERS, t0=TIMED_OUT)
    log = tmp_path / "events.jsonl"
    more = ["--dry-run"] if is_away else ["--dry-run", "--first-wait", "0s"]
    running = start(mm2mgr.folder, "watch", "--every", "1s", "--events", str(log), *more)
    try:
        if is_away:
            until(lambda: applied.east.requests, "the cluster is asked")
        else:
            until(lambda: log.exists() and log.read_text(), "something happens")
        began = time.monotonic()
        running.send_signal(number)
    finally:
        said = finish(running)
    assert time.monotonic() - began < allowed_seconds()
    assert (said.code, said.err.splitlines()[-1:]) == (0, ["ended"])
    if not is_away:
        event = json.loads(log.read_text().splitlines()[0])
        assert (event["event"], event["action"], event["dry_run"]) == ("watch_action", "restart", True)
        assert event["problem"]["cause"] == "time-out"


def test_it_ends_in_time_though_no_broker_answers_for_the_lease(applied: Site, mm2mgr: Command, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    running = start(mm2mgr.folder, "watch", "--every", "1s", "--events", str(log))
    try:
        until(log.exists, "it watches")
        began = time.monotonic()
        running.send_signal(signal.SIGTERM)
    finally:
        said = finish(running)
    assert time.monotonic() - began < allowed_seconds()
    assert said.code == 0


def test_an_unknown_flow_is_an_error_before_anything_is_asked(applied: Site, mm2mgr: Command) -> None:
    said = mm2mgr("watch", "nowhere", code=1)
    assert "nowhere" in said.err
    assert applied.east.requests == []


# --- inside serve -----------------------------------------------------------------------------------------------------


@pytest.fixture
def serving(applied: Site) -> Iterator[Callable[..., EstateWatch]]:
    """Begin to serve the tree with a watchdog that looks all the time, beside looks at status that find nothing."""
    made: list[EstateWatch] = []

    def make(**order: Any) -> EstateWatch:
        dog = WatchdogOrder(WatchOrder(**{"policy": NOW, **order}), every_seconds=0.01)
        asked = ServeOrder(every_seconds=1000, survey_seconds=1000, watchdog=dog)
        made.append(EstateWatch(Workspace(), asked, look=lambda *_: look_of([]), survey=lambda *_: SURVEY))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        assert one.close(10)


def last_look(serve: EstateWatch) -> WatchRound | None:
    return serve.view.watchdog.last if serve.view.watchdog else None


def test_serve_restarts_as_watch_does_and_shows_it(
    applied: Site, serving: Callable[..., EstateWatch], leases: type[FakeLease], recorded: Recorded
) -> None:
    fail(applied, ORDERS, t0=TIMED_OUT)
    fail(applied, LOGS, t0=TOO_LARGE)
    serve = serving()
    until(lambda: serve.view.watchdog and serve.view.watchdog.restarts and len(serve.view.watchdog.actions) > 2, "seen")
    assert sent(applied) == [f"POST /connectors/{ORDERS}/tasks/0/restart"]
    assert [one.connector for one in recorded.entries] == [ORDERS]
    dog = serve.view.watchdog
    assert dog is not None
    found = [(action.action, action.reason, action.problem.subject.connector) for _, action in dog.actions]
    assert sorted(found) == [("recovered", "", ORDERS), ("restart", "", ORDERS), ("tell", "not-retryable", LOGS)]
    assert serve.close(10)
    assert sorted(leases.closed) == ["east", "west"], "the group is left at the end"


def test_serve_stands_by_while_another_process_watches(
    applied: Site, serving: Callable[..., EstateWatch], leases: type[FakeLease]
) -> None:
    leases.of_others = {"east", "west"}
    fail(applied, ORDERS, t0=TIMED_OUT)
    serve = serving()
    until(lambda: (last := last_look(serve)) and last.number > 3, "it looked")
    assert serve.view.watchdog
    assert sorted(to_json(serve.view.watchdog)["standby"]) == ["east", "west"]
    assert sent(applied) == []


def test_a_watchdog_that_breaks_is_said_and_begins_anew(
    applied: Site, serving: Callable[..., EstateWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [ZeroDivisionError("a bug"), ZeroDivisionError("a bug")]
    real = Watchdog.look

    def look(*given: Any, **more: Any) -> Any:
        if broken:
            raise broken.pop()
        return real(*given, **more)

    monkeypatch.setattr(Watchdog, "look", look)
    fail(applied, ORDERS, t0=TIMED_OUT)
    said: list[str | None] = []
    serve = serving()
    until(lambda: said.append((last := last_look(serve)) and last.error) or sent(applied), "it restarts")
    assert "ZeroDivisionError: a bug" in said
