"""`apply --reason --events`, `history` and `drift` as people meet them: fake Connect clusters, and brokers that keep the history of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.apply.rounds import EVENTS
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from tests.kafka.quick import Producer
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions
from tests.plan.test_adopt import BY_HAND, ORDERS, adopt

from .command import Command, start, until
from .leases import FakeLease

SOURCE = "mm2.a.east.source.orders"


@pytest.fixture
def kept(site: Site, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The site, whose `east` has brokers with the topic; nobody answers for `west`."""
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        producer.send((HISTORY_TOPIC, 0), b"", key=b"first")
    site.brokers |= {"east": mock_cluster.bootstrap_servers.partition(",")[0], "west": "west:9092"}
    site.declare()
    monkeypatch.setenv("MM2MGR_WHO", "ann")
    monkeypatch.setattr(lease, "Lease", FakeLease)
    yield site
    FakeLease.forget()


def test_apply_is_recorded_and_says_where_it_could_not_be(mm2mgr: Command, kept: Site) -> None:
    said = mm2mgr("apply", "--yes", "--reason", "first day")
    (line,) = [line for line in said.err.splitlines() if "history not written" in line]
    assert line.startswith("history not written for Connect cluster west: west: no broker of west:9092 answered")

    said = mm2mgr("history", "orders", "--full", code=1)
    assert "history not read for Connect cluster west" in said.err
    row = next(line for line in said.lines if SOURCE in line)
    assert "ann" in row
    assert "create (" in row
    assert row.endswith("done      first day")
    assert any(line.strip() == "topics: (not set) -> orders" for line in said.lines)
    entries = mm2mgr("history", "-o", "json", code=1).json["entries"]
    assert sorted(each["connector"] for each in entries) == sorted(ON_EAST)
    assert {each["outcome"] for each in entries} == {"done"}


def test_history_is_limited_by_flow_cluster_time_and_number(mm2mgr: Command, kept: Site) -> None:
    mm2mgr("apply", "--yes")

    def names(*options: str) -> list[str]:
        return [
            each["connector"] for each in mm2mgr("history", "-o", "json", "--connect", "east", *options).json["entries"]
        ]

    assert SOURCE in names("orders")
    assert names(SOURCE) == [SOURCE]
    assert len(names("-n", "2")) == 2
    assert len(names("--since", "1h")) == len(ON_EAST)
    assert len(names("--since", "2026-01-31")) == len(ON_EAST)
    ahead = mm2mgr("history", "--since", "2999-01-31T10:00Z", code=64)
    assert "'2999-01-31T10:00Z' lies ahead: it is 20" in ahead.err
    assert "should be a date such as 2026-11-20" in mm2mgr("history", "--since", "2026-13-01", code=64).err
    assert "known: east, west" in mm2mgr("history", "--connect", "nowhere", code=64).err
    assert "no flow 'nothing'" in mm2mgr("history", "nothing", code=1).err.replace("is ", "")


def test_a_line_of_adopt_that_is_gone_leaves_no_claim(mm2mgr: Command, kept: Site) -> None:
    """Its tree writes nothing under `release:`; the next apply that writes there withdraws the claim, and another tree may adopt."""
    kept.east.add("legacy", BY_HAND | {"target.cluster.bootstrap.servers": kept.brokers["east"]})
    kept.declare(ORDERS + adopt())
    mm2mgr("apply", "--yes")
    kept.owner = "others"
    assert actions(kept.plan(ORDERS + adopt())) == {"legacy": "blocked"}
    kept.owner = "team"
    kept.declare(FLOWS)
    mm2mgr("apply", "--yes", code=1)
    kept.owner = "others"
    assert actions(kept.plan(ORDERS + adopt())) == {"legacy": "no-op"}


def test_old_changes_are_forgotten_and_what_was_applied_last_is_not(mm2mgr: Command, kept: Site) -> None:
    mm2mgr("apply", "--yes")
    said = mm2mgr("history", "orders", "--forget", "1d", code=64)
    assert "leave FLOWS, --label, --since and --last out" in said.err
    assert mm2mgr("history", "--connect", "east", "--forget", "1d", "-o", "json").json["entries"] == []
    gone = mm2mgr("history", "--connect", "east", "--forget", "0s", "-o", "json").json["entries"]
    assert sorted(each["connector"] for each in gone) == sorted(ON_EAST)
    assert mm2mgr("history", "--connect", "east", "-o", "json").json["entries"] == []
    kept.east.connectors[SOURCE].config["tasks.max"] = "9"
    assert "  tasks.max: 1 -> 9" in mm2mgr("drift", code=2).lines


def test_drift_names_what_was_changed_by_hand(mm2mgr: Command, kept: Site) -> None:
    mm2mgr("apply", "--yes")
    said = mm2mgr("drift")
    assert said.lines == ["Drift: none"]
    assert "compared with the tree" in said.err
    kept.east.connectors[SOURCE].config["tasks.max"] = "9"
    del kept.east.connectors[ON_EAST[0]]
    said = mm2mgr("drift", code=2)
    assert said.lines == [
        f"east/{ON_EAST[0]}  deleted",
        f"east/{SOURCE}",
        "  tasks.max: 1 -> 9",
        "Drift: 2 connectors changed by hand",
    ]
    assert [each["connector"] for each in mm2mgr("drift", "orders", "-o", "json", code=2).json["drift"]] == [
        ON_EAST[0],
        SOURCE,
    ]


def test_every_event_has_the_documented_fields_and_no_secret(mm2mgr: Command, kept: Site) -> None:
    file = mm2mgr.folder / "events.jsonl"
    kept.declare(
        FLOWS.replace(
            "topics: {include: [orders]}", "topics: {include: [orders]}, source_connector: {my.api.key: hunter2hunter2}"
        )
    )
    mm2mgr("apply", "--yes", "--events", file)
    mm2mgr("apply", "--yes", "--events", file)
    assert "hunter2" not in file.read_text()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({each["run"] for each in events}) == 2
    for each in events:
        assert each.keys() - {"time", "run", "event"} == EVENTS[each["event"]][1].keys(), each["event"]
    kinds = [each["event"] for each in events]
    assert (kinds[0], kinds[-2:]) == ("plan_made", ["plan_made", "finished"])
    for kind in ("change_begun", "change_done"):
        assert kinds.count(kind) == len(ON_EAST + ON_WEST)


def test_an_event_file_that_cannot_be_written_is_named_before_anything_is_done(
    mm2mgr: Command, kept: Site, tmp_path: Path
) -> None:
    said = mm2mgr("apply", "--yes", "--events", tmp_path / "none" / "x.jsonl", code=1)
    assert "--events" in said.err
    assert "cannot be written" in said.err
    assert kept.names("east") == []


def test_an_apply_that_is_killed_leaves_a_trace(mm2mgr: Command, kept: Site) -> None:
    kept.east.delay_next("POST", "/connectors", 60.0, times=100)
    running = start(mm2mgr.folder, "apply", "--yes")
    try:
        until(lambda: kept.east.writes, "the apply writes")
        until(
            lambda: mm2mgr("history", "--connect", "east", "-o", "json").json["entries"], "the first change is recorded"
        )
    finally:
        running.kill()
        running.communicate()
    (entry,) = mm2mgr("history", "--connect", "east", "-o", "json").json["entries"]
    assert (entry["connector"], entry["outcome"]) == (ON_EAST[0], "begun")
    assert "begun" in mm2mgr("history", "--connect", "east").out


# --- what the tree had paused -----------------------------------------------------------------------------------------


def with_state(state: str) -> str:
    """Return the flows, that of the topic `orders` in this state."""
    assert "topics: {include: [orders]}" in FLOWS
    return FLOWS.replace("topics: {include: [orders]}", f"topics: {{include: [orders]}}, state: {state}")


def test_a_flow_goes_on_when_the_tree_no_longer_pauses_it(mm2mgr: Command, kept: Site) -> None:
    mm2mgr("apply", "--yes")
    kept.declare(with_state("paused"))
    mm2mgr("apply", "--yes")
    assert kept.east.connectors[SOURCE].state == "PAUSED"

    kept.declare(FLOWS)
    said = mm2mgr("plan")
    (line,) = [line for line in said.lines if f"update  {SOURCE}" in line]
    assert "goes on: the tree, which had it PAUSED since" in line
    assert "no longer says state: paused" in line
    assert "      ~ state: PAUSED -> RUNNING" in said.out.splitlines()
    mm2mgr("apply", "--yes")
    assert kept.east.connectors[SOURCE].state == "RUNNING"
    assert "0 to create, 0 to update" in mm2mgr("plan").out


def test_a_flow_that_a_person_paused_stays_so(mm2mgr: Command, kept: Site) -> None:
    """Also where the tree had paused it before that."""
    mm2mgr("apply", "--yes")
    kept.declare(with_state("paused"))
    mm2mgr("apply", "--yes")
    kept.declare(FLOWS)
    mm2mgr("apply", "--yes")
    mm2mgr("pause", "orders:a->east", "--wait", "0", "--reason", "upgrade")
    assert "PAUSED by ann since" in mm2mgr("plan").out
    mm2mgr("apply", "--yes")
    assert kept.east.connectors[SOURCE].state == "PAUSED"
