"""When the tree lets plan and apply give up tasks: cool_down, off_peak and move_budget, with a reviewed sizing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plan.site import FLOWS, Site

from .command import Command

ORDERS = "mm2.a.east.source.orders"


def sizing(mm2mgr: Command, tasks: int, hours_ago: float = 0.0, **more: object) -> Path:
    """Write what `size` writes of flow orders."""
    changed = f"{datetime.fromtimestamp(time.time() - hours_ago * 3600, UTC):%Y-%m-%dT%H:%M:%SZ}"
    entry = {"tasks_max": tasks, "changed": changed, **more}
    path = mm2mgr.tree / "overrides" / "sizing.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"sizing": {"orders:a->east": entry}}))
    return path


@pytest.fixture
def running(site: Site, mm2mgr: Command) -> Command:
    """Orders with 10 tasks; then `size` finds 9 to be enough, just now."""
    sizing(mm2mgr, 10)
    mm2mgr("apply", "--yes")
    assert tasks(site) == "10"
    sizing(mm2mgr, 9, saves_tasks=True, partitions=20)
    site.forget()
    return mm2mgr


def due(more: str = "") -> str:
    """The flows of the site, of which orders gives up tasks without a cool-down."""
    return FLOWS.replace("[orders]}", f"[orders]}}, tasks: {{cool_down: 0s{more}}}")


def tasks(site: Site) -> str:
    return str(site.east.connectors[ORDERS].config["tasks.max"])


def orders(mm2mgr: Command, *options: str) -> dict[str, Any]:
    (cluster,) = [each for each in mm2mgr("plan", "-o", "json", *options).json["clusters"] if each["connect"] == "east"]
    (change,) = [each for each in cluster["changes"] if each["connector"] == ORDERS]
    found: dict[str, Any] = change
    return found


def test_a_saving_waits_a_day_and_nothing_else_is_held_up(running: Command, site: Site) -> None:
    site.declare(FLOWS.replace('"logs[.].*"', '"logs[.].*", more'))
    said = running("apply", "--yes")
    assert (
        f"{ORDERS}  waiting with 9 instead of 10 tasks: 1 d after the last change of its sizing (tasks: cool_down)"
        in said.out
    )
    assert tasks(site) == "10"
    assert "more" in site.east.connectors["mm2.a.east.source.logs"].config["topics"]
    assert "Applied: 0 of 0 changes" in running("apply", "--yes").out


def test_what_waits_is_no_change_for_exit_codes(running: Command) -> None:
    assert orders(running)["waits"] == "1 d after the last change of its sizing (tasks: cool_down)"
    assert "0 to update" in running("plan", "--detailed-exitcode").out


def test_after_the_cool_down_it_is_applied(running: Command, site: Site) -> None:
    site.declare(due())
    running("apply", "--yes")
    assert tasks(site) == "9"


def test_a_day_later_it_is_applied(running: Command, site: Site) -> None:
    sizing(running, 9, hours_ago=25, saves_tasks=True, partitions=20)
    running("apply", "--yes")
    assert tasks(site) == "9"


def test_an_elastic_saving_is_applied_while_it_holds_and_not_later(running: Command, site: Site) -> None:
    def until(hours: float) -> str:
        return f"{datetime.fromtimestamp(time.time() + hours * 3600, UTC):%Y-%m-%dT%H:%M:%SZ}"

    sizing(running, 9, hours_ago=25, saves_tasks=True, partitions=20, holds_until=until(-0.1))
    assert (
        orders(running)["waits"] == "they were enough for the hours that it was sized for, which are over (mm2mgr size)"
    )
    sizing(running, 9, saves_tasks=True, partitions=20, holds_until=until(20))
    running("apply", "--yes")
    assert tasks(site) == "9"


def test_it_waits_for_the_hours_and_for_the_budget(running: Command, site: Site) -> None:
    hour = datetime.now(UTC).hour
    site.declare(due(f", off_peak: {(hour + 2) % 24}-{(hour + 3) % 24}"))
    assert orders(running)["waits"].endswith("h UTC (tasks: off_peak)")
    site.declare(f"{due()}defaults: {{move_budget: 3}}\n")
    assert orders(running)["waits"] == "11 partitions would move, 3 left of the budget (defaults: move_budget)"
    site.declare(f"{due()}defaults: {{move_budget: 11}}\n")
    assert orders(running)["action"] == "update"


def test_more_tasks_and_numbers_that_are_no_saving_do_not_wait(running: Command, site: Site) -> None:
    sizing(running, 9)
    running("apply", "--yes")
    assert tasks(site) == "9"
    sizing(running, 12, saves_tasks=True, partitions=20)
    running("apply", "--yes")
    assert tasks(site) == "12"


def test_a_number_that_people_wrote_does_not_wait(running: Command, site: Site) -> None:
    site.declare(FLOWS.replace("[orders]}", "[orders]}, tasks: {max: 9}"))
    running("apply", "--yes")
    assert tasks(site) == "9"


def test_a_reviewed_plan_does_what_it_says_whatever_the_hour(running: Command, site: Site) -> None:
    running("plan", "--out", "waits.json")
    site.declare(due())
    running("plan", "--out", "writes.json")
    site.declare(FLOWS)
    sizing(running, 9, hours_ago=25, saves_tasks=True, partitions=20)
    running("apply", "waits.json")
    assert tasks(site) == "10"
    running("apply", "writes.json")
    assert tasks(site) == "9"


@pytest.mark.parametrize("command", ["plan", "apply", "reconcile", "size"])
@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--cool-down", "`tasks: {cool_down: 1d}` for a flow"),
        ("--off-peak", "`tasks: {off_peak: 22-5}` for a flow"),
        ("--move-budget", "`defaults: {move_budget: 40}`"),
    ],
)
def test_the_options_of_before_name_their_keys(mm2mgr: Command, command: str, option: str, key: str) -> None:
    said = mm2mgr(command, option, "3", code=64).err
    assert said.endswith(f"Error: {option} is gone; it is in the tree now: write {key}\n")


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--cool-down", "`balance: {cool_down: 1h}` for a flow"),
        ("--off-peak", "`balance: {windows: 22-5}` for a flow"),
        ("--move-budget", "`balance: {rounds_per_day: 1}` for a flow, or `defaults: {move_budget: 40}` for `size`"),
    ],
)
def test_rebalance_names_its_keys_of_the_tree(mm2mgr: Command, option: str, key: str) -> None:
    said = mm2mgr("rebalance", option, "3", code=64).err
    assert said.endswith(f"Error: {option} is gone; it is in the tree now: write {key}\n")
