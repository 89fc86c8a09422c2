"""`failover rehearse` as people type it: verdicts, what is deleted whatever happens, missing rights, and what the store keeps."""

from __future__ import annotations

import copy
import os
import re
import signal
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from mm2mgr.failover.rehearsal import ABANDONED_SECONDS, PREFIX
from mm2mgr.failover.syncs import CheckpointLog
from mm2mgr.files import Locked
from mm2mgr.kafka.groups import GroupState, RecordMark
from mm2mgr.kafka.scratch_groups import GroupRead
from mm2mgr.live.questions import RecordMarks
from mm2mgr.observe.state_file import StorePlace, rehearsals_of
from mm2mgr.operations import RehearsalOptions, Workspace, failover_rehearse
from mm2mgr.partitions import Offsets, TopicPartition
from tests.clock import sleep_for_others
from tests.failover.fake_pair import FakeScratch, checkpoint, sync, syncs_of
from tests.plan.site import Site

from .command import Command
from .test_failover import ORDERS, PAIR, REMOTE, Estate

OWN = re.compile(re.escape(PREFIX) + r"team\.[0-9a-f]{8}-[0-9]{10}\.[0-9]+")


class Stage:
    """An estate that is level, and scratch groups on its target; what is there before is there afterwards."""

    def __init__(self, estate: Estate, mm2mgr: Command) -> None:
        self.estate, self.mm2mgr = estate, mm2mgr
        self.scratch = FakeScratch(estate.pair)
        self.scratch.serve(estate.site.patch)
        self.before = copy.deepcopy((estate.source, estate.target))

    def rehearse(self, *arguments: str, code: int = 0) -> Any:
        return self.mm2mgr("failover", "rehearse", PAIR, *arguments, "-o", "json", code=code).json

    def text(self, *arguments: str, code: int = 0) -> str:
        return self.mm2mgr("failover", "rehearse", PAIR, *arguments, code=code).out

    def assert_untouched(self) -> None:
        assert (self.estate.source, self.estate.target) == self.before
        assert self.estate.site.east.writes == []


@pytest.fixture
def stage(site: Site, mm2mgr: Command) -> Stage:
    estate = Estate(site, mm2mgr)
    estate.settle()
    return Stage(estate, mm2mgr)


def test_a_level_pair_is_good_and_nothing_is_left(stage: Stage) -> None:
    found = stage.rehearse()
    assert found["verdict"] == {"word": "good", "reasons": []}
    (group,) = found["groups"]
    assert OWN.fullmatch(group["scratch"])
    assert stage.scratch.reads == [group["scratch"]]
    (orders,) = group["positions"]
    assert (orders["topic"], orders["remote_topic"], orders["committed"], orders["translated"]) == (
        *("orders", "a.orders", 600),
        400,
    )
    assert (orders["outcome"], orders["compared"], orders["again"]) == ("same", 10, 0)
    assert found["deleted"] == 1
    names = {stage["name"] for stage in found["stages"]}
    assert names >= {"read and judge", "write groups", "delete scratch groups"}
    assert found["recovery_seconds"] >= 0.25
    stage.assert_untouched()
    last = stage.text().splitlines()[-1]
    assert last == ("GOOD: a->east: 1 group in 1 position: 1 same, 0 within, 0 at the end, 0 differ, 0 not compared")
    assert "Not in it: how long people take" in stage.text()
    assert stage.text("-o", "markdown").startswith("### GOOD: ")


def test_scratch_groups_are_left_out_of_checkpoints_and_checks(stage: Stage) -> None:
    _, connectors = stage.estate.site.declare(
        "flows: {orders: {sources: [a], targets: [east], topics: {include: [orders]}, checkpoints: {groups: {include: ['.*'], exclude: [mine]}}}}\n"
    )
    (checkpoints,) = (connector for connector in connectors if connector.type == "checkpoint")
    excluded = checkpoints.config["groups.exclude"].split(",")
    assert any(re.fullmatch(expression, f"{PREFIX}team.0123abcd-1764000000.0") for expression in excluded)
    stage.estate.source.commits[f"{PREFIX}team.0123abcd-1764000000.0"] = {ORDERS: 3}
    stage.estate.settle()
    assert [group["group"] for group in stage.estate.check()["groups"]] == ["billing"]


def test_records_that_come_again_are_good_up_to_the_number_that_is_named(stage: Stage) -> None:
    stage.estate.source.syncs = syncs_of(sync("orders", 999, 799))
    stage.estate.target.checkpoints = CheckpointLog({checkpoint("billing", "a.orders", 590, 390): time.time()})
    found = stage.rehearse(code=2)
    assert found["verdict"] == {"word": "good with", "reasons": ["10 records came again, 410 may at most"]}
    (position,) = found["groups"][0]["positions"]
    assert (position["translated"], position["repeats_at_most"]) == (390, 410)
    assert (position["outcome"], position["compared"], position["again"]) == ("within", 10, 10)
    stage.estate.target.records[REMOTE] = stage.estate.target.records[REMOTE][:400]
    stage.estate.target.records[REMOTE] += [RecordMark(number, "x", f"{number}", 1) for number in range(400, 800)]
    assert stage.rehearse(code=2)["counts"]["not compared"] == 1, "so many more may come again"


def test_a_record_that_is_not_there_is_an_error(stage: Stage) -> None:
    records = stage.estate.target.records[REMOTE]
    stage.estate.target.records[REMOTE] = [mark for mark in records if mark.offset != 403]
    found = stage.rehearse(code=1)
    assert found["verdict"]["word"] == "not good"
    (position,) = found["groups"][0]["positions"]
    assert (position["outcome"], position["reason"]) == (
        "differs",
        "a record that it has to read is not there, and later ones are",
    )
    assert (
        stage.text(code=1)
        .splitlines()[-1]
        .startswith("NOT GOOD: a->east: other records than the source has: billing in orders-0 (")
    )
    assert not any(name.startswith(PREFIX) for name in stage.estate.target.commits)


def test_other_records_are_an_error(stage: Stage) -> None:
    stage.estate.target.records[REMOTE] = [RecordMark(number, "x", f"{number}", 1) for number in range(800)]
    assert stage.rehearse(code=1)["groups"][0]["positions"][0]["outcome"] == "differs"


def test_compacted_topics_may_lack_records(stage: Stage) -> None:
    stage.estate.target.settings["a.orders"] = {"cleanup.policy": "compact"}
    stage.estate.source.settings["orders"] = {"cleanup.policy": "compact"}
    records = stage.estate.target.records[REMOTE]
    stage.estate.target.records[REMOTE] = [mark for mark in records if mark.offset != 403]
    found = stage.rehearse()
    (position,) = found["groups"][0]["positions"]
    assert (position["outcome"], position["compared"]) == ("same", 9)


def test_a_group_at_the_end_has_nothing_to_compare(stage: Stage) -> None:
    stage.estate.source.commits["billing"] = {ORDERS: 1_000}
    found = stage.rehearse()
    assert [place["outcome"] for place in found["groups"][0]["positions"]] == ["at the end"]


def test_members_of_the_real_group_are_no_matter(stage: Stage) -> None:
    stage.estate.target.states["billing"] = GroupState("STABLE")
    stage.before = copy.deepcopy((stage.estate.source, stage.estate.target))
    assert stage.rehearse()["verdict"]["word"] == "good"
    stage.assert_untouched()


def test_a_group_whose_position_is_not_known_is_not_judged(stage: Stage) -> None:
    stage.estate.source.commits["idle"] = {ORDERS: 150}
    stage.estate.source.syncs = syncs_of(sync("orders", 500, 300), sync("orders", 600, 400), sync("orders", 999, 799))
    stage.before = copy.deepcopy((stage.estate.source, stage.estate.target))
    found = stage.rehearse(code=1)
    assert found["verdict"]["reasons"][0] == "1 group (idle): position not known"
    words = {group["group"]: group["word"] for group in found["groups"]}
    assert words == {"billing": "good", "idle": "not judged"}
    stage.assert_untouched()


def test_what_a_killed_rehearsal_left_is_deleted_and_nothing_else(stage: Stage) -> None:
    target, now = stage.estate.target, int(time.time())
    first = stage.rehearse()["groups"][0]["scratch"]
    old, recent = now - int(ABANDONED_SECONDS) - 60, now - 60
    left = [first, f"{PREFIX}team.ffffffff-{old}.7"]
    others = [
        f"{PREFIX}team.ffffffff-{recent}.7",  # it may still run, on another machine
        f"{PREFIX}other.ffffffff-{old}.7",
        f"{PREFIX}team.ffffffff-{old}",
        f"{PREFIX}team.ffffffff-{old}.7.backup",
        f"x{PREFIX}team.ffffffff-{old}.7",
        "mm2mgr-rehearsal",
    ]
    for name in (*left, *others):
        target.commits[name] = {REMOTE: 1}
    found = stage.rehearse()
    assert found["abandoned"] == 2
    assert sorted(target.commits) == sorted(["billing", *others])
    assert "and 2 of an earlier" not in stage.text()


def test_an_interrupt_deletes_what_was_made(stage: Stage) -> None:
    stage.estate.source.commits["other"] = {ORDERS: 999}
    stage.before = copy.deepcopy((stage.estate.source, stage.estate.target))
    stage.scratch.interrupt_at = 1
    stage.text("--groups-at-once", "1", code=130)
    assert len(stage.scratch.created) == 2
    stage.assert_untouched()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_groups_are_read_ends_their_members_and_deletes_them(
    stage: Stage, number: signal.Signals
) -> None:
    ended: list[bool] = []

    def read(access: object, group: str, most: object, limit_seconds: float, stop: Event) -> GroupRead:
        sleep_for_others(0.2)  # the command waits for this thread by then
        os.kill(os.getpid(), number)
        ended.append(stop.wait(30))
        return GroupRead()

    stage.estate.site.patch.setattr("mm2mgr.kafka.scratch_groups.read_as_member", read)
    stage.text(code=130)
    assert ended == [True]
    assert len(stage.scratch.created) == 1
    stage.assert_untouched()


def test_a_failure_in_the_middle_deletes_what_was_made(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from mm2mgr.operations import failover_rehearsal

    def fail(*_: object) -> object:
        raise ValueError("broken")

    monkeypatch.setattr(failover_rehearsal, "compare", fail)
    with pytest.raises(ValueError, match="broken"):
        failover_rehearse(Workspace((stage.mm2mgr.tree,)), PAIR, RehearsalOptions())
    assert len(stage.scratch.created) == 1
    stage.assert_untouched()


def test_a_group_that_cannot_be_deleted_is_named_and_not_good(stage: Stage) -> None:
    stage.scratch.stays = ".0"
    stage.estate.site.patch.setattr(
        "mm2mgr.operations.failover_rehearsal.ScratchGroups.refusal_to_delete", lambda *_: ""
    )
    text = stage.text(code=1)
    assert "1 scratch group not deleted (" in text.splitlines()[-1]
    (name,) = (name for name in stage.estate.target.commits if name.startswith(PREFIX))
    assert f"still there: {name}" in text


@pytest.mark.parametrize(
    ("refused", "command"),
    [
        ("delete", f"--operation Delete --group {PREFIX} --resource-pattern-type prefixed"),
        ("write", f"--group {PREFIX} --resource-pattern-type prefixed"),
        ("a.orders", "--operation Read --topic a.orders"),
    ],
)
def test_a_missing_right_is_named_with_the_command_that_gives_it(stage: Stage, refused: str, command: str) -> None:
    stage.scratch.refuses.add(refused)
    text = stage.text(code=1)
    (line,) = (shown for shown in text.splitlines() if command in shown)
    assert "kafka-acls.sh --bootstrap-server" in line
    assert "--add --allow-principal" in line
    assert text.splitlines()[-1].startswith("NOT JUDGED: ")
    assert stage.scratch.created == [], "nothing was written"
    stage.assert_untouched()


def test_records_of_the_source_that_may_not_be_read_are_not_judged(stage: Stage) -> None:
    stage.estate.source.refused.add(RecordMarks)
    found = stage.rehearse(code=1)
    assert found["verdict"]["word"] == "not judged"
    assert found["groups"][0]["positions"][0]["outcome"] == "not read"


def test_a_dead_source_leaves_nothing_to_compare_with_and_nothing_is_written(stage: Stage) -> None:
    stage.estate.source.dead = True
    assert "a does not answer, and there is nothing to compare with" in stage.text(code=1)
    assert stage.scratch.created == []


def test_a_topic_that_is_missing_on_the_target_is_not_good(stage: Stage) -> None:
    stage.estate.target.logs.pop(TopicPartition("a.payments", 0))
    assert "1 topic not on the target yet (payments)" in stage.text(code=1).splitlines()[-1]


def test_many_groups_are_bounded_and_the_rest_is_named(stage: Stage) -> None:
    for number in range(9):
        stage.estate.source.commits[f"group-{number}"] = {ORDERS: 700 + number}
    found = stage.rehearse("--most-groups", "4", "--groups-at-once", "2", code=2)
    assert (len(found["groups"]), found["left_out"], found["deleted"]) == (4, 6, 4)
    assert "6 groups left out" in found["verdict"]["reasons"]
    assert stage.estate.pair.asked["RecordMarks"] == 1


def test_no_group_is_not_judged(stage: Stage) -> None:
    text = stage.text("--group", "nothing", code=1)
    assert text.splitlines()[-1] == (
        "NOT JUDGED: a->east: no group that matches 'nothing' has committed offsets on a topic that this pair mirrors"
    )


def test_only_rehearsals_of_all_groups_are_kept(stage: Stage, tmp_path: Path) -> None:
    store = tmp_path / "store"
    place = StorePlace(store, "team", tmp_path / "memory.json")
    stage.rehearse("--group", "billing", "--store", str(store))
    assert rehearsals_of(place, {PAIR}) == ({}, [])
    stage.rehearse("--store", str(store))
    states, warnings = rehearsals_of(place, {PAIR})
    assert (warnings, states and states[PAIR].verdict, states and states[PAIR].groups) == ([], "good", 1)
    good_at = states and states[PAIR].good_at
    stage.estate.target.records[REMOTE] = []
    stage.estate.target.logs[REMOTE] = Offsets(0, 800)
    stage.estate.source.dead = True
    stage.rehearse("--store", str(store), code=1)
    states, _ = rehearsals_of(place, {PAIR})
    assert states
    assert (states[PAIR].verdict, states[PAIR].good_at) == ("not judged", good_at)


def test_a_second_rehearsal_of_the_pair_here_is_refused(stage: Stage) -> None:
    during: list[Locked] = []
    workspace = Workspace((stage.mm2mgr.tree,))

    def read(*arguments: object) -> object:
        with pytest.raises(Locked) as refusal:
            failover_rehearse(workspace, PAIR, RehearsalOptions())
        during.append(refusal.value)
        return FakeScratch.read_as_member(stage.scratch, *arguments)  # type: ignore[arg-type]

    stage.estate.site.patch.setattr("mm2mgr.kafka.scratch_groups.read_as_member", read)
    stage.text("--groups-at-once", "1")
    assert "rehearsing the failover of a->east" in during[0].message
    assert len(stage.scratch.created) == 1
