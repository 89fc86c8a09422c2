"""`reconcile` as people meet it, on fake Connect clusters; the lease is a stand-in here, real ones are in tests/live/test_history.py."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from mm2mgr import timing
from mm2mgr.errors import KafkaError
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations import PlanOptions, ReconcileOrder, ReconcileRound, Workspace, reconcile
from mm2mgr.operations import reconcile as _reconcile
from tests.clock import Clock
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site

from .command import Command
from .leases import FakeLease

SOURCE = "mm2.a.east.source.orders"
__all__ = ["_reconcile"]


@pytest.fixture(autouse=True)
def leases(site: Site, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> Iterator[type[FakeLease]]:
    monkeypatch.setattr(lease, "Lease", FakeLease)
    site.brokers |= {"east": f"127.0.0.1:{closed_port}", "west": f"127.0.0.2:{closed_port}"}
    site.declare()
    yield FakeLease
    assert FakeLease.groups <= {"mm2mgr-team"}
    FakeLease.forget()


def test_a_round_applies_the_tree_and_the_next_one_repairs_what_was_changed(mm2mgr: Command, site: Site) -> None:
    said = mm2mgr("reconcile", "--once")
    line = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ reconcile: round 1: done; 7 to create"
    assert re.fullmatch(line, said.lines[0])
    assert all(re.match(r"20\S+Z reconcile: (east|west): ", event) for event in said.err.splitlines()[:7])
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    site.east.connectors[SOURCE].config["tasks.max"] = "9"
    reported = mm2mgr("reconcile", "--once", "--report-only", code=2)
    assert reported.lines[0].endswith("round 1: changes; 1 to update")
    assert [event.partition("Z ")[2] for event in reported.lines[1:]] == [f"reconcile: east: update {SOURCE}"]
    assert site.east.connectors[SOURCE].config["tasks.max"] == "9"
    assert mm2mgr("reconcile", "--once", "-o", "json").json["counts"]["update"] == 1
    assert site.east.connectors[SOURCE].config["tasks.max"] == "1"


@pytest.fixture
def pruning(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], ReconcileRound]]:
    """Do one round after another, so many seconds later, with --prune; `orders` and `logs` run."""
    order = ReconcileOrder(PlanOptions(prune=True), wait_seconds=0)
    module = sys.modules["mm2mgr.operations.plan"]  # the function hides it
    monkeypatch.setattr(module._Reconciling, "rest", lambda *_: None)  # type: ignore[attr-defined]
    loop = reconcile(Workspace(), order)

    def after(seconds: float) -> ReconcileRound:
        timing.sleep(seconds)
        return next(loop)

    assert after(0).outcome == "done"
    yield after
    loop.close()


def test_nothing_is_deleted_unless_it_is_said(mm2mgr: Command, site: Site) -> None:
    mm2mgr("reconcile", "--once")
    site.declare(FLOWS.replace("targets: [east, west]", "targets: [west]"))
    mm2mgr("reconcile", "--once")
    assert site.names("east") == sorted(ON_EAST)


def test_a_file_that_is_away_for_a_moment_deletes_nothing(
    site: Site, pruning: Callable[[float], ReconcileRound]
) -> None:
    site.declare(FLOWS.replace("  orders:", "  # orders:"))
    first, second = pruning(2), pruning(2)
    assert "must be read unchanged again, at least 60 s later" in first.deletes_held
    assert (first.outcome, second.deletes_held, second.deletes_wait) == ("done", first.deletes_held, True)
    site.declare()
    assert pruning(2).deletes_held == ""
    site.declare(FLOWS.replace("  orders:", "  # orders:"))
    assert pruning(3600).deletes_wait, "a reading of another tree confirms nothing"
    assert site.names("east") == sorted(ON_EAST)
    assert pruning(61).deletes_held == ""
    assert SOURCE not in site.names("east")


def test_while_deletes_are_held_no_remedy_asks_for_what_is_there(
    site: Site, pruning: Callable[[float], ReconcileRound]
) -> None:
    """--prune is there: what waits for a deletion says why."""
    flows = FLOWS.replace("topics:", "checkpoints: {connector_name: other}, topics:").replace("[east, west]", "[east]")
    site.declare(flows)
    first = pruning(2)
    assert first.plan
    (blocked,) = (change for change in first.plan.changes if change.action == "blocked")
    assert (blocked.connector, blocked.remedy) == (
        "other",
        "nothing: it is deleted in a later round: the tree must be read unchanged again, at least 60 s later, before anything is deleted",
    )
    assert site.plan(flows, prune=True).writes


def test_a_tree_that_could_not_be_read_has_to_be_read_twice_again(
    site: Site, pruning: Callable[[float], ReconcileRound]
) -> None:
    fewer = FLOWS.replace("  orders:", "  # orders:")
    site.declare(fewer)
    pruning(2)
    site.declare(fewer)
    (site.folder / "broken.yaml").write_text("flow: {}\n")
    assert pruning(30).error
    (site.folder / "broken.yaml").unlink()
    assert pruning(31).deletes_wait
    assert SOURCE in site.names("east")


def test_nothing_is_deleted_while_git_is_at_work(site: Site, pruning: Callable[[float], ReconcileRound]) -> None:
    git = site.folder.parent / ".git"
    git.mkdir()
    site.declare(FLOWS.replace("  orders:", "  # orders:"))
    pruning(2)
    for name in ("index.lock", "MERGE_HEAD", "rebase-merge"):
        (git / name).touch()
        done = pruning(61)
        assert (name in done.deletes_held, done.deletes_wait, done.outcome) == (True, False, "done")
        (git / name).unlink()
    assert SOURCE in site.names("east")
    pruning(1)
    assert SOURCE not in site.names("east")


def test_a_loop_never_deletes_everything(site: Site, monkeypatch: pytest.MonkeyPatch, mm2mgr: Command) -> None:
    monkeypatch.setattr("mm2mgr.plan.schedule.UNCHANGED_SECONDS", 0.0)
    mm2mgr("reconcile", "--once")
    site.declare("flows: {}\n")
    said = mm2mgr("reconcile", "--once", "--prune", code=1)
    assert "one of 7 deletes, of 7 connectors of this owner; fix: if all of them are intended" in said.out
    said = mm2mgr("reconcile", "--once", "--prune", "--allow-deletes", "7")
    assert (
        "nothing is deleted: a loop never deletes all connectors of its owner (7); if that is meant: mm2mgr apply"
        in said.out
    )
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    mm2mgr("apply", "--yes", "--prune", "--allow-deletes", "7")
    assert site.names("east") == []


def test_what_another_process_holds_is_left_to_it(mm2mgr: Command, site: Site, leases: type[FakeLease]) -> None:
    leases.of_others = {"west"}
    said = mm2mgr("reconcile", "--once")
    assert "another process holds the lease for west" in said.lines[0]
    assert (site.names("east"), site.names("west"), site.west.requests) == (sorted(ON_EAST), [], [])
    assert sorted(leases.closed) == ["east", "west"], "the group is left at the end"
    leases.of_others = {"east", "west"}
    assert mm2mgr("reconcile", "--once", "-o", "json").json["outcome"] == "standby"


def test_without_a_lease_nothing_is_written_and_the_others_go_on(
    mm2mgr: Command, site: Site, leases: type[FakeLease]
) -> None:
    leases.dead = {"west"}
    said = mm2mgr("reconcile", "--once", code=1)
    assert " reconcile: Connect cluster west: no lease: west: no broker answered\n" in said.out
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), [])


def rounds(count: int, between: dict[int, Callable[[], object]] | None = None) -> list[ReconcileRound]:
    """Return so many rounds without a pause; `between` has what is done before a round."""
    found, loop = [], reconcile(Workspace(), ReconcileOrder(every_seconds=0.001, wait_seconds=0))
    for number in range(1, count + 1):
        (between or {}).get(number, lambda: None)()
        found.append(next(loop))
    loop.close()
    return found


def test_a_cluster_that_fails_rests_while_the_others_are_repaired(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def slower() -> None:
        site.west.requests.clear()
        del site.east.connectors[SOURCE]

    site.west.answer_only("/connectors", 500)
    monkeypatch.setattr("mm2mgr.plan.schedule.RoundSchedule._backoff", lambda self, failures: 1000.0)
    first, second = rounds(2, {2: slower})
    assert (first.outcome, first.failed_connects) == ("failed", {"west"})
    assert list(second.resting) == ["west"]
    assert (site.names("east"), site.west.requests) == (sorted(ON_EAST), [])


def test_a_tree_with_mistakes_is_reported_and_nothing_is_written(site: Site) -> None:
    def broken() -> None:
        (site.folder / "x.yaml").write_text("owner: team\nflow: {}\n")
        site.forget()

    first, second, third = rounds(3, {2: broken, 3: lambda: site.declare(FLOWS.replace("orders:", "sales:"))})
    assert first.outcome == "done"
    assert second.outcome == "failed"
    assert "unknown key 'flow'" in str(second.error)
    assert third.error is None
    assert site.names("east") != []


def test_a_lost_lease_ends_the_writes_and_the_loop_goes_on(site: Site, leases: type[FakeLease]) -> None:
    lost: list[FakeLease] = []
    first = FakeLease.__init__

    def noted(self: FakeLease, *arguments: object) -> None:
        first(self, *arguments)  # type: ignore[arg-type]
        lost.append(self)

    leases.__init__ = noted  # type: ignore[method-assign,assignment]
    try:
        loop = reconcile(Workspace(), ReconcileOrder(every_seconds=0.001, wait_seconds=0), report=lambda event: lose())

        def lose() -> None:
            leases.of_others = {"east", "west"} if lost else leases.of_others
            while lost:
                lost.pop().changed()

        done = next(loop)
        assert done.applied is not None
        assert done.applied.left_changes, "changes of later waves were not begun"
        assert next(loop).outcome == "standby"
        leases.of_others = set()
        assert next(loop).outcome == "done"
        loop.close()
    finally:
        leases.__init__ = first  # type: ignore[method-assign]
    assert site.names("east") == sorted(ON_EAST)


def test_events_of_rounds_have_runs_of_their_own(mm2mgr: Command, site: Site, leases: type[FakeLease]) -> None:
    file = mm2mgr.folder / "events.jsonl"
    leases.of_others = {"west"}
    mm2mgr("reconcile", "--once", "--events", file)
    kinds = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert kinds[:2] == ["standby", "plan_made"]
    assert kinds[-1] == "finished"
    assert kinds.count("change_begun") == len(ON_EAST)


# --- apply beside others: orders of two of them are in tests/operations/test_two_applies.py ------------------------------


class Holders(dict[str, lease.Holder | None]):
    """Who holds the lease on each Kafka cluster; `naps` counts the seconds that apply waits, after `gone_after` of which nobody does."""

    naps = 0.0
    gone_after = 1e9

    def read(self, access: KafkaAccess, topic: str, group: str) -> lease.Holder | None:
        assert (topic, group) == ("mm2mgr.history.internal", "mm2mgr-team")
        return self.get(access.alias) if self.naps < self.gone_after else None


@pytest.fixture
def holders(monkeypatch: pytest.MonkeyPatch) -> Holders:
    holders = Holders()

    def nap(clock: Clock, seconds: float) -> None:
        clock.seconds += seconds
        holders.naps += seconds

    monkeypatch.setattr(Clock, "sleep", nap)
    monkeypatch.setattr(lease, "read_holder", holders.read)
    return holders


def test_apply_refuses_beside_a_process_that_is_seen_and_names_it(
    mm2mgr: Command, site: Site, leases: type[FakeLease], monkeypatch: pytest.MonkeyPatch, holders: Holders
) -> None:
    monkeypatch.setenv("MM2MGR_WHO", "ann")
    mm2mgr("reconcile", "--once")
    (note,) = set(leases.notes)
    assert note.startswith("`reconcile` by ann, since 20")
    assert note.endswith(" UTC")
    holders["west"] = lease.Holder("10.0.0.5", note)
    del site.west.connectors["mm2.a.west.source.logs"]
    leases.notes.clear()
    said = mm2mgr("apply", "--yes", code=1)
    assert f"another process holds the lease on Kafka 'west' ({note}, on 10.0.0.5): waiting up to 12 s" in said.err
    assert "another process of owner 'team' is at work: it holds the lease on Kafka 'west'" in said.err
    assert f"({note}, on 10.0.0.5); nothing was written" in said.err
    assert 12 <= holders.naps <= 14
    assert (leases.notes, "mm2.a.west.source.logs" in site.west.connectors) == ([], False), "nothing was joined"
    holders["west"] = None
    mm2mgr("apply", "--yes")
    assert "mm2.a.west.source.logs" in site.west.connectors
    assert leases.notes[0].startswith("`apply` by ann, since 20")
    site.east.connectors.clear()
    holders["west"] = lease.Holder("10.0.0.5", "")
    leases.closed.clear()
    mm2mgr("apply", "--yes")
    assert site.names("east") == sorted(ON_EAST), "the lease elsewhere says nothing of this Kafka cluster"
    assert leases.closed == ["east"]


def test_apply_waits_for_a_process_that_was_killed_and_plans_anew(
    mm2mgr: Command, site: Site, holders: Holders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the killed one wrote last is in the plan that is applied."""
    read = Holders.read

    def wrote_meanwhile(self: Holders, *arguments: str) -> lease.Holder | None:
        site.east.connectors.pop(SOURCE, None)
        return read(self, *arguments)  # type: ignore[arg-type]

    mm2mgr("apply", "--yes")
    holders |= {"west": lease.Holder("10.0.0.5", "")}
    holders.gone_after = 9
    monkeypatch.setattr(lease, "read_holder", partial(wrote_meanwhile, holders))
    del site.west.connectors["mm2.a.west.source.logs"]
    said = mm2mgr("apply", "--yes")
    assert "(on 10.0.0.5): waiting up to 12 s" in said.err
    assert "Applied: 2 of 2 changes" in said.out
    assert 9 <= holders.naps < 12


def test_apply_without_changes_takes_no_lease(mm2mgr: Command, leases: type[FakeLease], holders: Holders) -> None:
    mm2mgr("apply", "--yes")
    assert len(leases.notes) == 2
    leases.notes.clear()
    holders["east"] = lease.Holder("10.0.0.5", "")
    mm2mgr("apply", "--yes")
    assert (leases.notes, holders.naps) == ([], 0)


def test_apply_says_where_it_cannot_be_the_only_one_and_goes_on(
    mm2mgr: Command, site: Site, leases: type[FakeLease]
) -> None:
    leases.dead = {"east"}
    said = mm2mgr("apply", "--yes")
    note = "not verified: that no other process of owner 'team' writes here at the same time (no lease: east: no broker"
    assert said.err.count("not verified") == 1
    assert f"east: {note}" in said.err
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    site.east.connectors.clear()
    assert any(note in text for text in mm2mgr("apply", "--yes", "-o", "json").json["notes"])


def test_a_refused_login_holds_up_nothing_and_is_named(
    mm2mgr: Command, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read on the group is missing: brokers say so to one who joins."""

    class Refused(FakeLease):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            self.refused = KafkaError("joining group mm2mgr-team failed: Group authorization failed")

        held = False  # type: ignore[assignment]

    monkeypatch.setattr(lease, "Lease", Refused)
    assert "(no lease: joining group mm2mgr-team failed: Group authorization failed)" in mm2mgr("apply", "--yes").err
    assert site.names("east") == sorted(ON_EAST)
    said = mm2mgr("reconcile", "--once", code=1)
    refused = "no lease: joining group mm2mgr-team failed: Group authorization failed"
    assert f" reconcile: Connect cluster east: {refused}\n" in said.out


def test_a_lost_lease_ends_an_apply_that_says_so(
    mm2mgr: Command, site: Site, leases: type[FakeLease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its process slept: Kafka has given the lease to another one."""

    class Slept(FakeLease):
        def was_confirmed(self) -> bool:
            leases.of_others = {"east"}
            return False

    monkeypatch.setattr(lease, "Lease", Slept)
    said = mm2mgr("apply", "--yes", "-o", "json", code=1)
    assert (said.json["lost_leases"], site.names("east"), site.east.writes) == (["east"], [], [])
    (error,) = {result["error"] for result in said.json["results"] if not result["ok"]}
    assert error == "not written: the lease on Kafka 'east' was lost, so another process may write now"
    leases.of_others = set()
    monkeypatch.setattr(lease, "Lease", leases)
    mm2mgr("apply", "--yes")
    assert site.names("east") == sorted(ON_EAST)


def test_a_text_that_nobody_expected_ends_a_round_and_not_the_loop(
    pruning: Callable[[float], ReconcileRound], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["mm2mgr.operations.plan"]
    del site.east.connectors[SOURCE]
    site.declare(FLOWS.replace("  logs:", "  # logs:"))
    pruning(2)
    with monkeypatch.context() as broken:
        broken.setattr(module, "read_plan_of", lambda *args: {}["what a cluster sent"])
        failed = pruning(60)
    assert (failed.outcome, failed.error) == ("failed", "KeyError: 'what a cluster sent'")
    following = pruning(60)
    assert (following.outcome, following.deletes_wait) == ("done", True), "and the tree has to be read twice again"
    assert SOURCE in site.east.connectors


def test_a_loop_goes_on_on_a_full_disk(mm2mgr: Command, site: Site, leases: type[FakeLease]) -> None:
    full = "the event log /dev/full is incomplete: "
    done = mm2mgr("reconcile", "--once", "--events", "/dev/full")
    assert full in done.out
    assert site.names("east") == sorted(ON_EAST)
    assert mm2mgr("reconcile", "--once", "--events", "/dev/full", "-o", "json").json["unlogged"].startswith(full)
    assert full in mm2mgr("reconcile", "--once", "--report-only", "--events", "/dev/full").out
