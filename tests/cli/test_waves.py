"""What `apply` says and returns when a wave is not good, and what it refuses before it writes."""

from __future__ import annotations

import json

from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site

from .command import Command

HEARTBEAT, LOGS, ORDERS, CHECKPOINT = ON_EAST
INVALID = FLOWS.replace(
    "[orders]}", "[orders]}, silence: {invalid-value: a test}, source_consumer: {fetch.max.bytes: -5}"
)


def test_a_wave_that_breaks_a_connector_halts_its_connect_cluster(site: Site, mm2mgr: Command) -> None:
    site.declare(INVALID)
    said = mm2mgr("apply", "--yes", code=1)
    for lines in (said.out.splitlines(), said.err.splitlines()):
        halted = next(line for line in lines if line.startswith("east: halted: "))
        assert halted.startswith(f"east: halted: {ORDERS}: RUNNING, 1 of 1 tasks FAILED: org.apache.kafka")
        assert halted.endswith("; not begun: 1 change")
    assert f"left: create east/{CHECKPOINT}" in said.out.splitlines()
    assert (
        f"Applied: {len(ON_EAST) - 1 + len(ON_WEST)} of {len(ON_EAST) + len(ON_WEST)} changes; 1 of them FAILED"
        in said.out
    )
    assert "west: wave 3 of 3 is good (1 connector)" in said.err
    assert site.names("west") == sorted(ON_WEST)


def test_a_wave_of_which_a_write_is_refused_is_not_good(site: Site, mm2mgr: Command) -> None:
    site.declare()
    site.west.fail_next("POST", "/connectors", 400, "Connector configuration is invalid: a list has an item twice")
    said = mm2mgr("apply", "--yes", "-o", "json", code=1)
    assert "west: wave 1 of 3 is not good: 1 of 1 connector not written" in said.err
    assert "west: wave 2 of 3 is good (1 connector)" in said.err
    wave = next(wave for wave in said.json["waves"] if (wave["connect"], wave["number"]) == ("west", 1))
    assert (wave["verdict"], wave["unwritten"]) == ("failed", [ON_WEST[0]])
    assert site.names("west") == sorted(ON_WEST[1:])


def test_what_is_rolled_back_is_listed_and_an_apply_of_the_right_tree_converges(site: Site, mm2mgr: Command) -> None:
    site.declare(INVALID)
    said = mm2mgr("apply", "--yes", "--rollback", code=1)
    assert "east: rolled back 3 changes: " in said.err
    assert {line for line in said.out.splitlines() if line.startswith("rolled back:")} == {
        f"rolled back: create east/{name}" for name in (HEARTBEAT, LOGS, ORDERS)
    }
    assert said.out.splitlines()[-1] == "What was rolled back runs as before; correct the tree, then apply again."
    assert site.names("east") == []
    site.declare()
    mm2mgr("apply", "--yes")
    assert site.names("east") == sorted(ON_EAST)


def test_json_has_waves_halts_and_what_was_rolled_back(site: Site, mm2mgr: Command) -> None:
    site.declare(INVALID)
    said = mm2mgr("apply", "--yes", "--rollback", "--events", "events.jsonl", "-o", "json", code=1).json
    waves = [(each["number"], each["of"], each["verdict"]) for each in said["waves"] if each["connect"] == "east"]
    assert waves == [(1, 3, "ok"), (2, 3, "failed")]
    [halted] = said["halted"]
    assert (halted["connect"], halted["verdict"], halted["left"]) == ("east", "failed", [CHECKPOINT])
    assert sorted(said["rolled_back"]) == sorted([HEARTBEAT, LOGS, ORDERS])
    assert {each["connector"]: each["ok"] for each in said["results"] if each["connect"] == "east"} == dict.fromkeys(
        [HEARTBEAT, LOGS, ORDERS], False
    )
    events = [json.loads(line)["event"] for line in (mm2mgr.folder / "events.jsonl").read_text().splitlines()]
    assert (
        events.index("wave_begun")
        < events.index("wave_verified")
        < events.index("rolled_back")
        < events.index("halted")
    )


def test_a_canary_goes_first(site: Site, mm2mgr: Command) -> None:
    site.declare(INVALID)
    said = mm2mgr("apply", "--yes", "--canary", "orders", "--rollback", code=1)
    assert "west: halted: the canary on Connect cluster 'east' is not good: " in said.out
    assert (site.names("east"), site.names("west")) == ([], [])
    site.declare()
    mm2mgr("apply", "--yes", "--canary", "orders")
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))


def test_a_canary_that_could_prove_nothing_is_refused(site: Site, mm2mgr: Command, closed_port: int) -> None:
    assert "with 0 nothing is looked at" in mm2mgr("apply", "--yes", "--canary", "orders", "--wait", "0", code=64).err
    assert "with 0 nothing is looked at" in mm2mgr("apply", "--yes", "--rollback", "--wait", "0", code=64).err
    mm2mgr("apply", "--yes", "--canary", "no-such-flow", code=1)
    said = mm2mgr("apply", "--yes", "--flow", "logs", "--canary", "orders", code=1)
    assert "the canary cannot go first: the plan has no connector of orders:a->east" in said.err
    site.urls["east"] = f"http://127.0.0.1:{closed_port}"
    site.declare()
    said = mm2mgr("apply", "--yes", "--canary", "orders", code=1)
    assert "the canary cannot go first: Connect cluster 'east' could not be read" in said.err
    assert site.east.writes == site.west.writes == []


def test_waves_are_as_small_as_asked_for(site: Site, mm2mgr: Command) -> None:
    waves = mm2mgr("apply", "--yes", "--at-once", "1", "--pause-between", "0.1", "-o", "json").json["waves"]
    assert [each["connectors"] for each in waves if each["connect"] == "east"] == [[name] for name in ON_EAST]


def test_an_apply_says_of_which_flows_nothing_was_seen_to_arrive(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("apply", "--yes")
    assert said.lines[-2] == (
        "No record was seen to arrive yet of logs:a->east, logs:a->west, orders:a->east; this shows whether they do: "
        "mm2mgr lag 'logs:a->east' 'logs:a->west' 'orders:a->east'"
    )
    site.declare(FLOWS.replace("orders: {sources", "orders: {refresh_interval: 7s, sources"))
    again = mm2mgr("apply", "--yes", "-o", "json")
    assert {result["connector"]: result["arrived"] for result in again.json["results"]}[ORDERS] is False
    site.declare(FLOWS)
    assert "mm2mgr lag 'logs:a->east' 'orders:a->east'\n" in mm2mgr("apply", "--yes").out
    site.declare(FLOWS.replace("[orders]}", "[orders]}, state: paused"))
    assert "No record was seen" not in mm2mgr("apply", "--yes").out
    assert "No record was seen" not in mm2mgr("apply", "--yes").out
