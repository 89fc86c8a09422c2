"""`reconcile` as people meet it, on fake Connect clusters; the lease is a stand-in here, real ones are in tests/live/test_history.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from mm2mgr.kafka import lease
from mm2mgr.operations import ReconcileOrder, ReconcileRound, Workspace, reconcile
from mm2mgr.operations import reconcile as _reconcile
from tests.reconcile.site import FLOWS, ON_EAST, ON_WEST, Site

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
    assert said.lines[0].endswith("round 1: done; 7 to create")
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    site.east.connectors[SOURCE].config["tasks.max"] = "9"
    reported = mm2mgr("reconcile", "--once", "--report-only", code=2)
    assert reported.lines[0].endswith("round 1: changes; 1 to update")
    assert reported.lines[1:] == [f"  east: update {SOURCE}"]
    assert site.east.connectors[SOURCE].config["tasks.max"] == "9"
    assert mm2mgr("reconcile", "--once", "-o", "json").json["counts"]["update"] == 1
    assert site.east.connectors[SOURCE].config["tasks.max"] == "1"


def test_nothing_is_deleted_unless_it_is_said(mm2mgr: Command, site: Site) -> None:
    mm2mgr("reconcile", "--once")
    site.declare("flows: {}\n")
    mm2mgr("reconcile", "--once")
    assert site.names("east") == sorted(ON_EAST)
    mm2mgr("reconcile", "--once", "--prune")
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
    assert "  Connect cluster west: no lease: west: no broker answered" in said.lines
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), [])


def rounds(count: int, between: dict[int, Callable[[], object]] | None = None) -> list[ReconcileRound]:
    """Return so many rounds without a pause; `between` has what is done before a round."""
    found, loop = [], reconcile(Workspace(), ReconcileOrder(wait_seconds=0), every_seconds=0.001)
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
    monkeypatch.setattr("mm2mgr.reconcile.schedule.RoundSchedule._backoff", lambda self, failures: 1000.0)
    first, second = rounds(2, {2: slower})
    assert (first.outcome, first.failed) == ("failed", {"west"})
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
        loop = reconcile(Workspace(), ReconcileOrder(wait_seconds=0), every_seconds=0.001, report=lambda event: lose())

        def lose() -> None:
            leases.of_others = {"east", "west"} if lost else leases.of_others
            while lost:
                lost.pop().changed()

        done = next(loop)
        assert done.applied is not None
        assert done.applied.left, "changes of later waves were not begun"
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


def test_a_loop_goes_on_on_a_full_disk(mm2mgr: Command, site: Site, leases: type[FakeLease]) -> None:
    full = "the event log /dev/full is incomplete: "
    done = mm2mgr("reconcile", "--once", "--events", "/dev/full")
    assert full in done.out
    assert site.names("east") == sorted(ON_EAST)
    assert mm2mgr("reconcile", "--once", "--events", "/dev/full", "-o", "json").json["unlogged"].startswith(full)
    assert full in mm2mgr("reconcile", "--once", "--report-only", "--events", "/dev/full").out
