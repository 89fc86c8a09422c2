"""pause, resume, stop and restart on two fake Connect clusters: what is requested, refused and waited for."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from mm2mgr import timing
from mm2mgr.apply import verbs
from mm2mgr.apply.history import Recorder
from mm2mgr.apply.settle import judge_state
from mm2mgr.apply.verbs import StateChange, StateRequest
from mm2mgr.comparison.ownership import Journal, Move, Ownership
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskStatus
from mm2mgr.output.history_text import recorded_change
from mm2mgr.plan.history import HistoryEntry
from tests.fake_connect import CLASSES
from tests.plan.site import FLOWS, Site

from .command import Command, finish, start, until

FLUSH_SECONDS = 0.2
QUICK = f"defaults: {{connect: {{flush_interval: {int(1000 * FLUSH_SECONDS)}ms}}}}\n"
ORDERS = "mm2.a.east.source.orders"
LOGS = "mm2.a.east.source.logs"


@pytest.fixture
def applied(site: Site, mm2mgr: Command) -> Site:
    """Everything runs, on workers that flush five times a second."""
    site.declare(FLOWS + QUICK)
    mm2mgr("apply", "--yes", "--wait", "0")
    site.forget()
    return site


def sent(site: Site) -> list[str]:
    """Return the requests that change something."""
    return [f"{one.method} {one.path.removeprefix('/connectors/')}" for one in (*site.east.writes, *site.west.writes)]


def states(site: Site) -> dict[str, str]:
    fakes = site.fakes.items()
    return {f"{connect}/{name}": one.state for connect, fake in fakes for name, one in fake.connectors.items()}


def test_a_flow_is_paused_and_a_second_call_sends_nothing(applied: Site, mm2mgr: Command) -> None:
    said = mm2mgr("pause", "orders", "--reason", "upgrade")
    assert said.lines == [f"~ east/{ORDERS}: PAUSED", "pause: 1 of 1 connector sent a request"]
    assert sent(applied) == [f"PUT {ORDERS}/pause"]
    applied.forget()
    again = mm2mgr("pause", "orders")
    assert again.lines[0] == f"= east/{ORDERS}: PAUSED; already PAUSED"
    assert sent(applied) == []
    planned = mm2mgr("plan", "--detailed-exitcode").out
    assert "0 to create, 0 to update, 0 to delete, 7 unchanged" in planned
    assert f"  = {ORDERS}: PAUSED; it stays so until mm2mgr resume\n" in planned
    assert f"{ORDERS}: PAUSED; it stays so until mm2mgr resume" in mm2mgr("plan", "-o", "markdown").out.replace(
        "\\", ""
    )
    mm2mgr("apply")
    assert applied.east.connectors[ORDERS].state == "PAUSED"
    assert mm2mgr("resume", "orders").lines[0] == f"~ east/{ORDERS}: RUNNING"
    assert sent(applied) == [f"PUT {ORDERS}/resume"]


def test_stop_ends_when_no_task_is_left(applied: Site, mm2mgr: Command) -> None:
    assert mm2mgr("stop", "orders").lines[0] == f"~ east/{ORDERS}: STOPPED"
    assert applied.east.task_count(ORDERS) == 0


def move_offsets(site: Site, offset_of: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Store another offset of `orders` whenever stored offsets are asked for."""
    handle = site.east.handle

    def handled(method: str, path: str, *rest: Any) -> Any:
        if path.endswith("/offsets"):
            site.east.add_offsets(ORDERS, "orders", {0: offset_of()}, "a")
        return handle(method, path, *rest)

    monkeypatch.setattr(site.east, "handle", handled)


def test_pause_waits_until_stored_offsets_stood_still_over_two_flushes(
    applied: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = timing.now()  # the tasks flush three times more what they had sent before they paused
    move_offsets(applied, lambda: min(3, int((timing.now() - begun) / FLUSH_SECONDS)), monkeypatch)
    mm2mgr("pause", "orders")
    assert timing.now() - begun >= (3 + 2) * FLUSH_SECONDS


def test_offsets_that_go_on_moving_are_inconclusive(
    applied: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = timing.now()
    move_offsets(applied, lambda: int((timing.now() - begun) / (FLUSH_SECONDS / 4)), monkeypatch)
    said = mm2mgr("pause", "orders", "--wait", "0.5", code=3)
    assert re.match(rf"~ east/{ORDERS}: PAUSED, stored offsets unchanged for 0 of 0\.4 s", said.lines[0])
    assert "1 not seen in that state in time" in said.lines[-1]


def test_ctrl_c_ends_the_waiting_and_the_pause_stays(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes", "--wait", "0")
    running = start(mm2mgr.folder, "pause", "orders")  # on workers that flush once a minute, for all it knows
    try:
        until(lambda: any(one.path.endswith("/offsets") for one in site.east.requests), "offsets are looked at")
        running.send_signal(signal.SIGINT)
    finally:
        said = finish(running)
    assert said.code == 130
    assert f"east/{ORDERS}: sent, waiting" in said.err
    assert said.err.splitlines()[-1] == "interrupted"
    assert site.east.connectors[ORDERS].state == "PAUSED"


def test_a_flow_of_two_targets_is_asked_for_and_a_pair_means_all_its_connectors(applied: Site, mm2mgr: Command) -> None:
    refused = mm2mgr("pause", "logs", code=1)
    assert "error: pause asks first and there is no terminal" in refused.err
    assert f"east/{LOGS}: RUNNING" in refused.err
    assert "error: pause -o json cannot ask" in mm2mgr("pause", "logs", "-o", "json", code=1).err
    assert sent(applied) == []
    both = mm2mgr("pause", "logs", "--yes", "-o", "json").json
    assert {(each["connect"], each["state"]) for each in both["connectors"]} == {("east", "PAUSED"), ("west", "PAUSED")}
    mm2mgr("stop", "a->west", "--yes")
    stopped = {name for name, state in states(applied).items() if state == "STOPPED"}
    assert stopped == {f"west/mm2.a.west.{kind}" for kind in ("heartbeat", "checkpoint", "source.logs")}


def test_labels_choose_flows_by_their_clusters(applied: Site, mm2mgr: Command) -> None:
    applied.declare(FLOWS + QUICK)
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("cluster_id: west", "cluster_id: west, labels: {dc: west}"))
    mm2mgr("pause", "--label", "dc=west")
    assert [name for name, state in states(applied).items() if state == "PAUSED"] == ["west/mm2.a.west.source.logs"]
    none = mm2mgr("pause", "--label", "dc=nowhere", code=1)
    assert none.err.splitlines()[-2:] == [
        "error: no flow has clusters with the labels dc=nowhere",
        "hint: did you mean dc=west?",
    ]
    assert "'west' is not a label such as tier=local" in mm2mgr("pause", "--label", "west", code=64).err
    assert "no connector is named" in mm2mgr("pause", code=1).err


def test_foreign_and_missing_connectors_are_refused_by_name_and_stop_no_other(applied: Site, mm2mgr: Command) -> None:
    applied.east.add("theirs", {"connector.class": "some.Other", "mm2mgr.owner": "others"})
    applied.east.add("by-hand", {"connector.class": "some.Other"})
    del applied.west.connectors["mm2.a.west.source.logs"]
    names = ("orders", "logs:a->west", "east/theirs", "east/by-hand", "east/mm2.a.east.source.order")
    said = mm2mgr("stop", *names, "--yes", code=1)
    assert "! east/theirs: refused: belongs to owner 'others'; mm2mgr does not touch it" in said.out
    assert "! east/by-hand: refused: carries no owner mark; mm2mgr does not touch it" in said.out
    assert "to manage that connector, write adopt: [{connect: east, connector: by-hand}]" in said.out
    assert "! west/mm2.a.west.source.logs: refused: does not exist there\n    run mm2mgr apply" in said.out
    assert f"does not exist there\n    did you mean {ORDERS}" in said.out
    assert f"~ east/{ORDERS}: STOPPED" in said.out
    assert "1 of 5 connectors sent a request; 4 failed or refused" in said.lines[-1]
    assert sent(applied) == [f"PUT {ORDERS}/stop"]


def test_adopted_connectors_obey_and_released_ones_are_refused(site: Site, mm2mgr: Command) -> None:
    config = {"connector.class": CLASSES[0], "source.cluster.alias": "a", "target.cluster.alias": "east"}
    for name in ("legacy", "gone"):
        site.east.add(name, config | {"topics": "orders"})
    off = "checkpoints: false, heartbeats: false, connector_name: legacy"
    flow = f"flows:\n  old: {{sources: [a], targets: [east], topics: {{include: [orders]}}, {off}}}\n"
    lists = "adopt: [{connect: east, connector: legacy}]\nrelease: [{connect: east, connector: gone}]\n"
    site.declare(flow + lists + QUICK)
    said = mm2mgr("pause", "old", "east/gone", "--yes", code=1)
    assert "~ east/legacy: PAUSED" in said.lines
    assert "! east/gone: refused: is released" in said.out
    assert sent(site) == ["PUT legacy/pause"]


def test_a_cluster_that_is_down_stops_no_other(applied: Site, mm2mgr: Command) -> None:
    applied.west.answer_only("/connectors", 500)
    said = mm2mgr("pause", "--all", "--yes", code=1)
    assert "! west/mm2.a.west.source.logs: failed: Connect cluster 'west'" in said.out
    on_east = {name: state for name, state in states(applied).items() if name.startswith("east/")}
    assert set(on_east.values()) == {"PAUSED"}


def test_a_move_that_is_not_finished_is_left_alone(applied: Site, mm2mgr: Command) -> None:
    applied.east.connectors[ORDERS].config["mm2mgr.journal"] = '{"then": "RUNNING"}'
    said = mm2mgr("resume", "orders", code=1)
    assert "refused: a move of its stored offsets is not finished" in said.out
    assert sent(applied) == []


def test_a_connector_whose_topics_another_one_takes_over_is_not_resumed(applied: Site, mm2mgr: Command) -> None:
    mm2mgr("stop", "orders", "--wait", "0")
    applied.forget()
    move = Move(("east", ORDERS), ("a", "east"), "RUNNING", created=True)
    receiver = applied.west.connectors["mm2.a.west.source.logs"]
    receiver.config = Journal("RUNNING", move=move).added_to(receiver.config)
    said = mm2mgr("resume", "orders", code=1)
    assert f"! east/{ORDERS}: refused: west/mm2.a.west.source.logs is taking over its topics" in said.out
    assert sent(applied) == []
    applied.west.answer_only("/connectors", 500)
    unread = mm2mgr("resume", "orders")
    assert "whether a move to west takes over its topics could not be read" in unread.err


def test_the_line_of_the_tree_that_says_otherwise_is_named(applied: Site, mm2mgr: Command) -> None:
    applied.declare(FLOWS.replace("[orders]}}", "[orders]}, state: running}") + QUICK)
    said = mm2mgr("pause", "orders")
    assert re.search(
        rf"warning: east/{ORDERS}: the tree declares state: running \(.*x\.yaml:\d+.*\), so the next apply", said.err
    )
    assert "warning" not in mm2mgr("resume", "orders").err


def test_a_second_pause_sends_nothing(applied: Site, mm2mgr: Command) -> None:
    applied.declare(FLOWS.replace("[orders]}}", "[orders]}, state: paused}") + QUICK)
    mm2mgr("pause", "orders", "--wait", "0")
    said = mm2mgr("pause", "orders", "--wait", "0")
    assert said.lines[0] == f"= east/{ORDERS}: already PAUSED"
    assert "warning" not in said.err


def test_restart_failed_restarts_what_failed_and_nothing_else(
    applied: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mm2mgr("restart", "--failed", "--all").lines[-1] == "restart: 0 of 7 connectors sent a request"
    assert sent(applied) == []
    applied.east.connectors[ORDERS].failed_tasks[0] = "java.lang.IllegalStateException: no space"
    applied.east.fail_next("POST", f"/connectors/{ORDERS}/restart", 409, "stale configuration", times=2)
    said = mm2mgr("restart", "--failed", "--all")
    assert f"~ east/{ORDERS}: RUNNING" in said.lines
    assert f"east/{ORDERS}: RUNNING (FAILED: task 0)" in said.err
    assert sent(applied) == [f"POST {ORDERS}/restart"] * 3
    assert applied.east.writes[-1].query == "includeTasks=true&onlyFailed=true"


def test_a_task_that_fails_again_is_told_with_its_cause(
    applied: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = applied.east.connectors[ORDERS]
    connector.failed_tasks = _Again({0: "java.lang.IllegalStateException: the secret is pa55\nCaused by: why"})
    said = mm2mgr("restart", "--failed", "orders", code=1)
    assert "RUNNING, 1 of 1 task FAILED: java.lang.IllegalStateException" in said.lines[0]
    assert "Caused by: why" in said.lines[0]


class _Again(dict[int, str]):
    def pop(self, *_: object) -> None:  # type: ignore[override]
        """A restart does not help."""


def test_a_plain_restart_whose_answer_is_lost_is_inconclusive(applied: Site, mm2mgr: Command) -> None:
    applied.east.drop_next("POST", f"/connectors/{ORDERS}/restart")
    said = mm2mgr("restart", "orders", code=3)
    assert "the answer was lost, so it may not have been restarted" in said.lines[0]


def test_what_rests_is_not_restarted(applied: Site, mm2mgr: Command) -> None:
    mm2mgr("pause", "orders")
    applied.forget()
    assert mm2mgr("restart", "orders").lines[0] == f"= east/{ORDERS}: PAUSED: nothing of it runs"
    assert sent(applied) == []


def test_single_tasks_are_restarted_and_no_other(applied: Site, mm2mgr: Command) -> None:
    applied.east.connectors[ORDERS].forced_tasks = 3
    said = mm2mgr("restart", "orders", "--task", "2", "--task", "0", "--task", "2")
    assert said.lines == [f"~ east/{ORDERS}: RUNNING", "restart: 1 of 1 connector sent a request"]
    assert f"east/{ORDERS}: RUNNING (task 2 RUNNING, task 0 RUNNING)" in said.err
    assert sent(applied) == [f"POST {ORDERS}/tasks/2/restart", f"POST {ORDERS}/tasks/0/restart"]


def test_the_history_has_the_numbers_of_restarted_tasks(
    applied: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied.east.connectors[ORDERS].forced_tasks = 3
    recorded: dict[str, HistoryEntry] = {}
    monkeypatch.setattr(Recorder, "put", lambda _, entry: recorded.update({entry.id: entry}))

    def change_of(*arguments: str) -> str:
        recorded.clear()
        mm2mgr("restart", "orders", *arguments)
        (entry,) = recorded.values()
        assert (entry.outcome, entry.user != "", entry.host) == ("done", True, socket.gethostname())
        return recorded_change(entry)

    assert change_of("--task", "2", "--task", "0") == "restart of task 2, 0"
    assert change_of() == "restart of connector and task 0, 1, 2"
    applied.east.connectors[ORDERS].failed_tasks[1] = "java.lang.IllegalStateException: no space"
    assert change_of("--failed") == "restart of task 1"


def test_a_task_that_does_not_exist_is_refused_with_those_that_do(applied: Site, mm2mgr: Command) -> None:
    applied.east.connectors[ORDERS].forced_tasks = 2
    said = mm2mgr("restart", f"east/{ORDERS}", "--task", "0", "--task", "7", code=1)
    assert said.lines[:2] == [f"! east/{ORDERS}: refused: has no task 7", "    its tasks: 0, 1"]
    assert sent(applied) == []


def test_tasks_are_those_of_one_connector(applied: Site, mm2mgr: Command) -> None:
    said = mm2mgr("restart", "logs", "--task", "0", "--yes", code=1)
    assert f"2 are meant: east/{LOGS}, west/{LOGS.replace('east', 'west')}" in said.err
    assert "name one of them as CONNECT/CONNECTOR" in said.err
    assert "exclude each other" in mm2mgr("restart", "orders", "--failed", "--task", "0", code=64).err
    mm2mgr("pause", "orders", "--wait", "0")
    applied.forget()
    assert "PAUSED: nothing of it runs" in mm2mgr("restart", "orders", "--task", "0").lines[0]
    assert sent(applied) == []


def test_a_task_whose_restart_fails_is_told_with_those_before_it(applied: Site, mm2mgr: Command) -> None:
    applied.east.connectors[ORDERS].forced_tasks = 2
    applied.east.fail_next("POST", f"/connectors/{ORDERS}/tasks/1/restart", 404, "Unknown task: 1")
    said = mm2mgr("restart", "orders", "--task", "0", "--task", "1", code=1)
    assert "Unknown task" in said.lines[0]
    assert "restarted before it: task 0" in said.lines[0]
    applied.east.drop_next("POST", f"/connectors/{ORDERS}/tasks/1/restart")
    lost = mm2mgr("restart", "orders", "--task", "1", code=3)
    assert "the answer for task 1 was lost, so it may not have been restarted" in lost.lines[0]


def shown(status: ConnectorStatus | None, *tasks: int) -> RunningConnector:
    return RunningConnector("c", {}, tasks, status=status)


def status(state: str, *tasks: str) -> ConnectorStatus:
    return ConnectorStatus("c", state, tasks=tuple(TaskStatus(number, each) for number, each in enumerate(tasks)))


@pytest.mark.parametrize(
    ("goal", "seen", "verdict"),
    [
        ("PAUSED", status("PAUSED", "PAUSED", "PAUSED"), "ok"),
        ("PAUSED", status("PAUSED", "PAUSED", "RUNNING"), "inconclusive"),
        ("PAUSED", status("PAUSED", "PAUSED"), "inconclusive"),  # a status may miss tasks
        ("PAUSED", status("PAUSED", "PAUSED", "PAUSED", "RUNNING"), "ok"),  # or hold removed ones
        ("PAUSED", status("PAUSED", "PAUSED", "FAILED"), "ok"),  # which moves nothing
        ("PAUSED", status("RUNNING", "PAUSED", "PAUSED"), "inconclusive"),
        ("PAUSED", None, "inconclusive"),
        ("PAUSED", status("FAILED"), "failed"),
        ("RUNNING", status("RUNNING", "RUNNING", "RUNNING"), "ok"),
        ("RUNNING", status("RUNNING", "RUNNING", "PAUSED"), "inconclusive"),
        ("RUNNING", status("RUNNING", "RUNNING", "FAILED"), "failed"),
        ("STOPPED", status("STOPPED", "RUNNING"), "inconclusive"),
    ],
)
def test_every_task_has_to_show_the_state(goal: str, seen: ConnectorStatus | None, verdict: str) -> None:
    assert judge_state(goal, shown(seen, 0, 1), is_source=True).verdict == verdict


def test_a_connector_that_was_deleted_meanwhile_failed() -> None:
    assert judge_state("STOPPED", None, is_source=True).verdict == "failed"
    assert judge_state("STOPPED", shown(status("STOPPED")), is_source=True).verdict == "ok"
    assert verbs.decide(StateRequest("stop"), StateChange("east", "c"), Ownership("team"), {}).action == "refused"


def test_offsets_that_workers_do_not_show_are_inconclusive(applied: Site, mm2mgr: Command) -> None:
    applied.east.version = "3.4.1"
    said = mm2mgr("pause", "orders", code=3)
    assert "PAUSED; whether its stored offsets still change is unknown" in said.lines[0]


def test_offsets_that_cannot_be_read_for_a_moment_are_read_again(applied: Site, mm2mgr: Command) -> None:
    applied.east.fail_next("GET", f"/connectors/{ORDERS}/offsets", 500, "no", times=2)
    assert mm2mgr("pause", "orders").lines[0] == f"~ east/{ORDERS}: PAUSED"
