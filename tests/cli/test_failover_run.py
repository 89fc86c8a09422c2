"""`failover plan` and `failover run` as people type them: runbook, stages, journal, history, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from mm2mgr.failover.journal import JOURNAL, parse_journal
from mm2mgr.kafka import groups as kafka_groups
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import GroupState
from mm2mgr.live.questions import OffsetsSince, RecordlessEnds, TextsByKey
from mm2mgr.live.rights import LogIn
from mm2mgr.live.snapshot import Question
from mm2mgr.partitions import Offsets, TopicPartition
from tests.clock import jumping
from tests.failover.fake_pair import FakePair
from tests.plan.site import Site
from tests.scale.kept import Kept, keeping

from .command import Command, Said
from .leases import FakeLease
from .test_failover import FLOWS, ORDERS, PAIR, REMOTE, Estate

SOURCE, GROUPS, BEATS = (f"mm2.a.east.{name}" for name in ("source.orders", "checkpoint", "heartbeat"))
RUN = ("failover", "run", PAIR, "--yes", "--producers-stopped", "--quiet-for", "3s", "--timeout", "30s")


class RunnablePair(FakePair):
    """Clusters that also keep a journal, and let group offsets be altered."""

    kept: Kept
    logins: list[str]

    def _answer(self, alias: str, question: Question[Any]) -> Any:
        match question:
            case LogIn():
                self.logins.append(alias)
            case TextsByKey():
                return dict(self.kept.get(alias, {}))
            case RecordlessEnds():
                return frozenset()
            case OffsetsSince():
                return {partition: self.clusters[alias].logs[partition].end - 3 for partition in question.partitions}
        return super()._answer(alias, question)


class Runnable(Estate):
    """A pair whose group is behind on the target, and that can be failed over."""

    def __init__(self, site: Site, mm2mgr: Command) -> None:
        site.brokers["east"] = "127.0.0.1:1"
        super().__init__(site, mm2mgr)
        self.kept = keeping(site.patch)
        self.pair = RunnablePair(self.pair.clusters)
        self.pair.kept, self.pair.logins = self.kept, []
        self.pair.serve(site.patch)
        self.altered: list[str] = []
        self.refused: dict[str, tuple[str, bool]] = {}
        site.patch.setattr(kafka_groups, "alter_group_offsets", self._alter)
        site.patch.setattr("mm2mgr.kafka.lease.Lease", FakeLease)
        site.patch.setattr("mm2mgr.kafka.lease.read_holder", lambda *_: None)
        self.target.commits["billing"][REMOTE] = 350

    def _alter(self, _: object, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, tuple[str, bool]]:
        for group, places in offsets.items():
            self.altered.append(group)
            if group not in self.refused:
                self.target.commits.setdefault(group, {}).update(places)
        return {group: refusal for group, refusal in self.refused.items() if group in offsets}

    @property
    def states(self) -> dict[str, str]:
        return {name: connector.state for name, connector in self.site.east.connectors.items()}

    @property
    def journal(self) -> Any:
        return parse_journal(self.kept.get("east", {}), "team", PAIR)

    def run(self, *arguments: str, code: int = 0) -> Said:
        with jumping():
            return self.mm2mgr(*RUN, *arguments, code=code)

    def plan(self, *arguments: str, code: int = 0) -> Said:
        return self.mm2mgr("failover", "plan", PAIR, *arguments, code=code)


@pytest.fixture
def estate(site: Site, mm2mgr: Command) -> Iterator[Runnable]:
    made = Runnable(site, mm2mgr)
    made.settle()
    yield made
    FakeLease.forget()


def writes_of(estate: Runnable) -> Sequence[str]:
    return [f"{request.method} {request.path}" for request in estate.site.east.writes]


def test_a_plan_is_a_runbook_with_the_verdict_as_its_last_line_and_writes_nothing(estate: Runnable) -> None:
    told = estate.plan()
    assert told.lines[-1] == "GO: a->east: 1 group, 1 to be written"
    assert [line[:2] for line in told.lines if line[0].isdigit()][:3] == ["1.", "2.", "3."]
    text = told.out
    for part in (
        "mm2mgr failover check 'a->east' --translated",
        f"mm2mgr stop east/{SOURCE} east/{GROUPS}",
        "2 offsets of 1 group written, 0 there already",
        "bootstrap.servers=",
        "orders is a.orders",
        "mm2mgr failover run 'a->east'",
    ):
        assert part in text or part in " ".join(text.split()), part
    assert (writes_of(estate), estate.altered, estate.kept) == ([], [], {})


def test_a_plan_as_markdown_and_json_has_every_stage(estate: Runnable) -> None:
    text = estate.plan("-o", "markdown").out
    assert text.count("- [ ]") == 11
    made = estate.plan("-o", "json").json
    assert [step["stage"] for step in made["steps"]][:3] == ["readiness", "drain", "producers"]
    disaster = estate.plan("--disaster", "-o", "json").json
    assert [step["stage"] for step in disaster["steps"]] == ["readiness", "stop", "ends", "groups", "consumers", "back"]


def test_a_plan_for_a_group_with_members_there_is_no_go(estate: Runnable) -> None:
    estate.target.states["billing"] = GroupState("STABLE")
    assert "NO-GO: a->east: 1 group (billing): has members on the target" in estate.plan(code=1).lines[-1]


def test_a_run_stops_the_pair_writes_the_groups_and_says_what_comes_next(estate: Runnable) -> None:
    told = estate.run()
    assert told.lines[-1] == "done: a->east: 1 group at the offsets to go on from, 1 written"
    assert any(line.startswith("Next: start consumers and producers on the target") for line in told.lines)
    assert estate.states == {SOURCE: "STOPPED", GROUPS: "STOPPED", BEATS: "RUNNING"}
    assert estate.target.commits["billing"] == {REMOTE: 400, TopicPartition("a.payments", 0): 0}
    journal = estate.journal
    assert (journal.outcome, journal.target_ends[REMOTE], journal.source_stored[ORDERS]) == ("done", 800, 1_000)
    assert FakeLease.groups == {"mm2mgr-team"}
    assert FakeLease.closed == ["east"]
    entries = [json.loads(text) for key, text in estate.kept["east"].items() if key.startswith("entry/")]
    assert {(entry["command"], entry["connector"], entry["outcome"]) for entry in entries} == {
        ("failover run", SOURCE, "done"),
        ("failover run", GROUPS, "done"),
        ("failover run", "groups on east", "done"),
    }
    assert "✓ write the offsets of the groups on the target" in told.err


def test_a_second_run_does_nothing_and_a_plan_says_that_it_is_done(estate: Runnable) -> None:
    estate.run()
    before = writes_of(estate), list(estate.altered)
    assert "already done: a->east: 1 group at the offsets to go on from, 1 written, begun by" in estate.run().lines[-1]
    assert (writes_of(estate), estate.altered) == before
    assert "a failover of" in estate.plan(code=2).out


def test_a_dry_run_writes_nothing(estate: Runnable) -> None:
    told = estate.mm2mgr("failover", "run", PAIR, "--dry-run")
    assert "  billing: 2 offsets to be written" in told.lines
    assert told.lines[-2:] == ["nothing was written (--dry-run)", "GO: a->east: 1 group, 1 to be written"]
    assert (writes_of(estate), estate.altered, estate.kept) == ([], [], {})


def test_without_a_terminal_the_missing_answers_are_named_and_nothing_is_written(estate: Runnable) -> None:
    said = estate.mm2mgr("failover", "run", PAIR, "--yes", code=1)
    assert "hint: add --producers-stopped" in said.err
    assert "hint: add --yes and --producers-stopped" in estate.mm2mgr("failover", "run", PAIR, code=1).err
    assert (writes_of(estate), estate.kept) == ([], {})


def test_an_expression_that_no_group_matches_stops_nothing(estate: Runnable) -> None:
    assert "no group that reads a mirrored topic matches 'biling'" in estate.run("--group", "biling", code=1).err
    assert writes_of(estate) == []
    assert estate.run("--group", "bill.*").lines[-1] == "done: a->east: 1 group at the offsets to go on from, 1 written"


def test_modes_exclude_each_other(estate: Runnable) -> None:
    assert "one of --planned" in estate.run("--disaster", "--planned", code=64).err
    assert "is no time" in estate.run("--cutoff", "2h", code=64).err


def test_a_cutoff_names_records_that_were_written_later(estate: Runnable) -> None:
    told = estate.run("--cutoff", "2020-01-01T00:00")
    assert "3 records written after the cutoff: orders-0 (+3)" in told.err


def test_a_group_that_is_refused_is_named_with_the_right_and_the_next_run_goes_on(estate: Runnable) -> None:
    estate.refused["billing"] = "Broker: Group authorization failed", True
    said = estate.run(code=1)
    assert "needs Read on group billing" in said.err.replace("`", "")
    assert "--abandon" in said.err
    assert estate.journal.is_open
    estate.refused.clear()
    assert estate.run().lines[-1] == "done: a->east: 1 group at the offsets to go on from, 1 written"


def test_a_run_that_wrote_no_group_is_abandoned(estate: Runnable) -> None:
    estate.refused["billing"] = "Broker: not now", False
    estate.run(code=1)
    told = estate.run("--abandon")
    assert told.lines[-1] == "abandoned: a->east: its connectors are back in the states that they had"
    assert set(estate.states.values()) == {"RUNNING"}
    assert "no failover is under way" in estate.run("--abandon", code=1).err


def test_a_journal_of_another_version_ends_it_and_is_deleted_on_request(estate: Runnable) -> None:
    key = f"{JOURNAL}team/{PAIR}"
    estate.kept["east"] = {key: '{"version": 9}'}
    said = estate.run(code=1)
    assert "is of version 9; this mm2mgr reads 1" in said.err
    assert "--forget" in said.err
    assert writes_of(estate) == []
    assert estate.run("--forget").lines[-1] == "1 texts of the journal deleted"
    assert key not in estate.kept["east"]


def test_another_process_of_the_owner_ends_it(estate: Runnable) -> None:
    FakeLease.of_others = {"east"}
    assert "another process of owner 'team' is at work" in estate.run(code=1).err
    assert writes_of(estate) == []


def test_a_tree_that_keeps_no_history_is_refused(estate: Runnable) -> None:
    estate.site.brokers.clear()
    estate.site.declare(FLOWS)
    assert "keeps its journal in the topic of the history" in estate.run(code=1).err


def test_a_state_that_the_tree_declares_as_running_is_no_go(estate: Runnable) -> None:
    estate.site.declare(FLOWS.replace("topics:", "state: running, topics:"))
    assert "the tree declares state: running" in " ".join(estate.run(code=1).err.split())


def test_a_connector_of_another_owner_is_no_go(estate: Runnable) -> None:
    config = estate.site.east.connectors[SOURCE].config
    config.pop("mm2mgr.owner", None)
    said = " ".join(estate.run(code=1).err.split())
    assert "does not touch it" in said
    assert writes_of(estate) == []


def test_with_a_dead_source_a_disaster_writes_what_is_known(estate: Runnable) -> None:
    estate.check("--translated", code=0)  # leaves a look
    estate.source.dead = True
    assert "NO-GO" not in estate.plan("--disaster", code=2).out
    before = estate.pair.logins.count("a")
    told = estate.run("--disaster")
    assert told.lines[-1] == "done: a->east: 1 group at the offsets to go on from, 1 written"
    assert estate.pair.logins.count("a") == before + 1, "each further look would wait for it anew"
    assert estate.target.commits["billing"][REMOTE] == 400
    assert estate.journal.target_ends[REMOTE] == 800
    assert estate.journal.source_stored[ORDERS] == 1_000


def test_a_disaster_that_never_saw_the_groups_of_the_source_says_so(estate: Runnable) -> None:
    estate.source.dead = True
    for outcome in ("done", "already done"):
        told = estate.run("--disaster", code=2)
        assert "! groups of the source that have no checkpoint are not known" in " ".join(told.out.split())
        assert told.lines[-1].startswith(f"{outcome}: a->east: ")


def test_a_planned_failover_with_a_dead_source_is_refused(estate: Runnable) -> None:
    estate.source.dead = True
    estate.run(code=1)
    assert writes_of(estate) == []


def test_a_group_that_gets_a_member_in_the_middle_is_told(estate: Runnable) -> None:
    alter = estate._alter

    def join(*arguments: Any) -> dict[str, tuple[str, bool]]:
        estate.target.states["billing"] = GroupState("STABLE")
        estate.refused["billing"] = "has members now", False
        return alter(*arguments)

    estate.site.patch.setattr(kafka_groups, "alter_group_offsets", join)
    said = " ".join(estate.run(code=1).err.split())
    assert "1 group not written: billing: a member joined: it is not written" in said
    assert estate.target.commits["billing"] == {REMOTE: 350}


def test_an_interrupt_says_how_to_go_on_and_the_next_run_does(estate: Runnable) -> None:
    alter = estate._alter

    def interrupt(*arguments: Any) -> dict[str, tuple[str, bool]]:
        estate.site.patch.setattr(kafka_groups, "alter_group_offsets", alter)
        raise KeyboardInterrupt

    estate.site.patch.setattr(kafka_groups, "alter_group_offsets", interrupt)
    said = estate.run(code=130)
    assert "mm2mgr failover run 'a->east' goes on, --abandon takes it back" in said.err
    assert FakeLease.closed == ["east"]
    assert estate.run().lines[-1].startswith("done: a->east: 1 group at the offsets")


def test_an_interrupt_before_the_first_write_says_that_nothing_was_written(estate: Runnable) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    estate.site.patch.setattr("mm2mgr.apply.failover_run.QuietSource.next_look", interrupt)
    said = estate.run(code=130)
    assert "this run wrote nothing" in said.err
    assert "--abandon" not in said.err
    assert (writes_of(estate), estate.kept) == ([], {})


def test_groups_that_the_first_run_left_out_are_written_by_the_next(estate: Runnable) -> None:
    estate.source.commits["audit"] = {ORDERS: 500}
    assert "1 group at the offsets" in estate.run("--group", "audit", code=0).lines[-1]
    assert estate.target.commits["billing"][REMOTE] == 350
    assert "2 groups at the offsets" in estate.run().lines[-1]
    assert estate.target.commits["billing"][REMOTE] == 400


def test_a_plan_that_cannot_read_the_target_is_not_judged(estate: Runnable) -> None:
    estate.target.dead = True
    estate.plan(code=1)


def test_after_it_nothing_of_the_tree_starts_the_pair_again(estate: Runnable) -> None:
    estate.run()
    planned = estate.mm2mgr("plan", "-o", "json").json
    states = [change.get("state") for part in planned["clusters"] for change in part["changes"]]
    assert not any(state and state.get("after") == "RUNNING" for state in states if isinstance(state, dict))
    with jumping():
        estate.mm2mgr("watch", "--once", "--first-wait", "0s")
    assert estate.states == {SOURCE: "STOPPED", GROUPS: "STOPPED", BEATS: "RUNNING"}


def test_offsets_of_the_target_are_not_set_back(estate: Runnable) -> None:
    estate.target.commits["billing"][REMOTE] = 407
    assert "is ahead of where it may start" in " ".join(estate.run(code=1).err.split())
    assert (writes_of(estate), estate.altered) == ([], [])
    estate.target.logs[REMOTE] = Offsets(0, 800)


def test_rights_that_writing_the_groups_takes_are_named_before_the_pair_is_stopped(estate: Runnable) -> None:
    estate.target.denied = {Right("Read", "group", "billing")}
    said = estate.run(code=1)
    assert "east: mm2mgr's login may not write the offsets of groups: it needs Read on group billing" in said.err
    assert "--operation Read --group billing" in said.err
    assert set(estate.states.values()) == {"RUNNING"}
    estate.target.denied = set()
    assert "done: " in estate.run().out
