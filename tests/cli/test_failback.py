"""`failover back` as people type it: what to declare, what is refused, and two directions that never run at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.apply.failback import WayBackWriter
from mm2mgr.comparison.ownership import HELD_KEY
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.journal import FailoverJournal, journal_texts
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.groups import RecordMark
from mm2mgr.live.questions import OffsetSyncRecords
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.topology import Topology
from tests.failover.fake_pair import FakeCluster, FakePair, sync, syncs_of
from tests.plan.site import Site

from .command import Command

ORDERS, NEW = TopicPartition("orders", 0), TopicPartition("new", 0)
PAIR, THERE, BACK = "a->east", "mm2.a.east.source.there", "mm2.east.a.source.back"
FORWARD = "there: {sources: [a], targets: [east], topics: {include: ['orders|new']}, replication_policy: identity}"
RETURN = (
    "back: {sources: [east], targets: [a], run_on: east, topics: {include: ['orders|new']},"
    " replication_policy: identity, state: stopped}"
)


def flows(*entries: str) -> str:
    return "flows:\n" + "".join(f"  {entry}\n" for entry in entries)


class Estate:
    """`orders` has 100 records of `a` on both sides, 5 on `a` alone, and 20 of east's own; `new` is on east alone."""

    def __init__(self, site: Site, mm2mgr: Command, declared: str) -> None:
        self.site, self.mm2mgr, self.tree = site, mm2mgr, mm2mgr.tree
        here = [RecordMark(number, "", f"a{number}", number) for number in range(105)]
        own = [RecordMark(100 + number, "", f"east{number}", number) for number in range(20)]
        self.a = FakeCluster({ORDERS: Offsets(0, 105)}, records={ORDERS: here})
        self.east = FakeCluster({ORDERS: Offsets(0, 120), NEW: Offsets(0, 9)}, records={ORDERS: [*here[:100], *own]})
        self.a.syncs = syncs_of(sync("orders", 0, 0), sync("orders", 90, 90))
        self.pair = FakePair({"a": self.a, "east": self.east, "west": FakeCluster()})
        self.pair.serve(site.patch)
        site.patch.setattr(WayBackWriter, "keep", self._keep)
        site.east.source_topics = {"orders": 1}
        self.declare(declared)
        self.kill_at: str = ""

    def declare(self, text: str) -> None:
        self.text = text
        self.topology, self.connectors = self.site.declare(text)

    async def _keep(self, alias: str, texts: dict[str, str | None]) -> None:
        if self.kill_at == "keep":
            raise Mm2mgrError("killed")
        kept = self.pair.clusters[alias].texts | texts
        self.pair.clusters[alias].texts = {key: text for key, text in kept.items() if text is not None}

    def settle(self, *, stopped: bool = True) -> None:
        """Run what `apply` would have created."""
        for connector in self.connectors:
            is_back = connector.name == BACK
            config = dict(connector.config)
            if is_back:
                config |= {HELD_KEY: f"until mm2mgr failover back '{PAIR}'", "enabled": "false"}
            rests = is_back or (stopped and connector.name == THERE)
            self.site.fakes[connector.connect].add(connector.name, config, state="STOPPED" if rests else "RUNNING")
        self.site.east.add_offsets(THERE, "orders", {0: 99}, alias="a")

    def journal(self, **more: Any) -> None:
        values = {"target_ends": {ORDERS: 100}, "source_stored": {ORDERS: 100}, "source_ends": {ORDERS: 105}, **more}
        owner = str(self.topology.owner)
        self.east.texts = journal_texts(FailoverJournal("id", PAIR, owner, "disaster", 1.0, "me", **values))

    def back(self, *arguments: str, code: int = 0) -> str:
        said = self.mm2mgr("failover", "back", PAIR, *arguments, code=code)
        return said.out + said.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return self.mm2mgr("failover", "back", PAIR, *arguments, "-o", "json", code=code).json

    def held(self) -> dict[str, bool]:
        return {name: HELD_KEY in self.site.east.connectors[name].config for name in (THERE, BACK)}

    def states(self) -> dict[str, str]:
        return {name: self.site.east.connectors[name].state for name in (THERE, BACK)}

    def stored(self) -> dict[str, int]:
        entries = self.site.east.stores(BACK)[0]
        return {key: entry["offset"] for key, entry in entries.items()}


@pytest.fixture
def estate(site: Site, mm2mgr: Command) -> Estate:
    return Estate(site, mm2mgr, flows(FORWARD, RETURN))


def test_the_flow_to_add_is_valid_and_lint_has_nothing_against_it(site: Site, mm2mgr: Command) -> None:
    estate = Estate(site, mm2mgr, flows(FORWARD))
    text = estate.back(code=1)
    added = yaml.safe_load(text[text.index("flows:") :])
    assert added["flows"]["there-back"]["state"] == "stopped"
    assert added["flows"]["there-back"]["topics"] == {"include": ["orders|new"]}
    tree = yaml.safe_load(estate.text)
    estate.declare(yaml.safe_dump({"flows": tree["flows"] | added["flows"]}))
    assert "identity-loop" not in mm2mgr("lint").out
    assert [flow.pair for flow in Topology.select(estate.topology, "there-back")] == ["east->a"]


def test_two_directions_that_both_run_are_refused_by_lint(site: Site, mm2mgr: Command) -> None:
    Estate(site, mm2mgr, flows(FORWARD, RETURN.replace(", state: stopped", "")))
    assert "identity-loop" in mm2mgr("lint", code=1).out


def test_by_the_journal_it_begins_at_the_end_at_the_stop_and_what_is_lost_is_exact(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    found = estate.json()
    parts = {part["topic"]: part for part in found["partitions"]}
    assert (found["outcome"], found["journal"]) == ("to prepare", "used")
    assert (parts["orders"]["first"], parts["orders"]["own_records"], parts["new"]["first"]) == (100, 20, 0)
    assert [(lost["first"], lost["end"], lost["exact"]) for lost in found["lost"]] == [(100, 105, True)]
    assert estate.site.east.writes == []


def test_without_a_journal_records_are_compared(estate: Estate) -> None:
    estate.settle()
    found = estate.json()
    parts = {part["topic"]: part for part in found["partitions"]}
    assert (parts["orders"]["first"], parts["orders"]["how"]) == (100, "behind the last copy, by comparison")
    assert "Not by the journal (there is no journal of a failover)" in estate.back()


def test_it_is_prepared_held_released_and_started(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    assert estate.json("--apply", "--yes")["outcome"] == "prepared"
    assert (estate.held(), set(estate.states().values())) == ({THERE: True, BACK: False}, {"STOPPED"})
    assert list(estate.stored().values()) == [99]
    assert estate.mm2mgr("drift", "-o", "json").json["drift"] == []
    estate.site.east.connectors["mm2.east.a.checkpoint"].state = "STOPPED"  # by an earlier failover
    assert estate.json("--start", "--yes")["outcome"] == "started"
    assert estate.states() == {THERE: "STOPPED", BACK: "RUNNING"}
    assert estate.site.east.connectors["mm2.east.a.checkpoint"].state == "RUNNING"
    again = estate.json("--apply", "--yes")
    assert (again["outcome"], again["lost"][0]["noted_at"] is not None) == ("prepared", True)


def test_a_start_before_it_is_prepared_starts_nothing_and_is_no_success(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    assert "Nothing was started: it is not prepared" in estate.back("--start", "--yes", code=1)
    assert estate.site.east.writes == []


def test_a_file_that_exists_is_refused_before_anything_is_written(estate: Estate, tmp_path: Path) -> None:
    estate.settle()
    estate.journal()
    file = tmp_path / "lost.jsonl"
    file.write_text("mine")
    assert "it exists already" in estate.back("--apply", "--start", "--yes", "--export", str(file), code=1)
    assert (file.read_text(), estate.site.east.writes) == ("mine", [])


@pytest.mark.parametrize("end", [0, 60])
def test_a_source_whose_log_ends_before_what_was_mirrored_gets_back_what_it_has_lost(estate: Estate, end: int) -> None:
    """A disk that was lost, or what was not flushed: by the journal alone these records would be on `east` for good."""
    estate.settle()
    estate.journal()
    estate.a.logs[ORDERS] = Offsets(0, end)
    estate.a.records[ORDERS] = estate.a.records[ORDERS][:end]
    estate.a.syncs = syncs_of(sync("orders", 0, 0), sync("orders", 40, 40), sync("orders", 90, 90))
    if end:
        part = next(part for part in estate.json()["partitions"] if part["topic"] == "orders")
        assert (part["first"], part["own_records"]) == (60, 60)
        assert "A lacks what was mirrored behind it" in part["how"]
    else:
        text = estate.back(code=1)
        assert "A's log ends at offset 0, and A->B has mirrored up to offset 100 of it" in text
        assert "delete these topics on a once" in text


def test_the_journal_of_an_earlier_failover_of_the_way_back_ends_with_its_start(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    owner = str(estate.topology.owner)
    estate.a.texts = journal_texts(FailoverJournal("id", "east->a", owner, "planned", 1.0, "me", {}, {}, {ORDERS: 1}))
    estate.back("--apply", "--yes")
    assert estate.a.texts
    estate.back("--start", "--yes")
    assert estate.a.texts == {}
    assert [key for key in estate.east.texts if key.startswith("failover/")]


def test_nothing_resumes_what_is_held(estate: Estate) -> None:
    estate.settle()
    said = estate.mm2mgr("resume", "back", code=1)
    assert "it must not run" in said.out + said.err
    estate.back("--apply", "--yes")
    said = estate.mm2mgr("resume", "there", code=1)
    assert "until mm2mgr failover back 'east->a'" in said.out + said.err


@pytest.mark.parametrize(
    ("state", "reason"),
    [("RUNNING", "a->east/mm2.a.east"), ("PAUSED", "is PAUSED")],
)
def test_a_pair_that_is_not_stopped_is_refused(estate: Estate, state: str, reason: str) -> None:
    estate.settle(stopped=False)
    estate.site.east.connectors[THERE].state = state
    text = estate.back("--apply", "--yes", code=1)
    assert f"{THERE} is {state}" in text
    assert "must be STOPPED" in text
    assert estate.site.east.writes == []


def test_records_that_are_not_of_the_source_are_named(estate: Estate) -> None:
    estate.settle()
    marks = estate.east.records[ORDERS]
    estate.east.records[ORDERS] = [*marks[:95], RecordMark(95, "", "stranger", 1), *(
        mark._replace(offset=mark.offset + 1) for mark in marks[95:]
    )]  # fmt: skip
    estate.east.logs[ORDERS] = Offsets(0, 121)
    assert "records that are not from A lie between copies of A's (first: offset 95)" in estate.back(code=1)
    estate.journal(target_ends={ORDERS: 101})
    assert "1 record before these places is not from the source (orders-0 offset 95)" in estate.back()


@pytest.mark.parametrize("place", ["hold", "stop", "offsets", "keep", "release"])
def test_a_run_that_is_cut_short_anywhere_ends_the_same_when_it_is_run_again(estate: Estate, place: str) -> None:
    estate.settle()
    estate.journal()
    match place:
        case "hold":
            estate.site.east.fail_next("PUT", f"/connectors/{THERE}/config", status=400)
        case "stop":
            estate.site.east.fail_next("PUT", f"/connectors/{BACK}/stop", status=400)
        case "offsets":
            estate.site.east.fail_next("PATCH", f"/connectors/{BACK}/offsets", status=400)
        case "release":
            estate.site.east.fail_next("PUT", f"/connectors/{BACK}/config", status=400)
        case _:
            estate.kill_at = "keep"
    estate.mm2mgr("failover", "back", PAIR, "--apply", "--yes", code=1)
    held = estate.held()
    assert held[BACK] or held[THERE]
    assert set(estate.states().values()) == {"STOPPED"}
    estate.kill_at = ""
    assert estate.json("--apply", "--yes")["outcome"] == "prepared"
    assert (estate.held(), list(estate.stored().values())) == ({THERE: True, BACK: False}, [99])


def test_an_older_journal_is_not_used(estate: Estate) -> None:
    estate.settle()
    estate.journal(target_ends={ORDERS: 60}, source_stored={ORDERS: 60})
    found = estate.json()
    assert found["journal"] == "the mirror has stored other offsets since the failover"
    assert {part["topic"]: part["first"] for part in found["partitions"]}["orders"] == 100


def test_offset_syncs_of_both_directions_in_one_topic_are_refused(site: Site, mm2mgr: Command) -> None:
    there = FORWARD.replace("identity}", "identity, offset_syncs: {location: target}}")
    estate = Estate(site, mm2mgr, flows(there, RETURN))
    estate.settle()
    assert "both directions write their offset syncs to mm2-offset-syncs.a.internal on 'east'" in estate.back(code=1)


def test_what_the_tree_does_not_declare_and_mirrors_the_same_way_is_refused(estate: Estate) -> None:
    estate.settle()
    config = dict(estate.site.east.connectors[THERE].config) | {"name": "by-hand", "mm2mgr.owner": "other"}
    estate.site.east.add("by-hand", config)
    assert "by-hand, which the tree does not declare, mirrors a->east and is not STOPPED" in estate.back(code=1)


def test_with_default_names_it_takes_the_own_topics_only_and_is_only_started(site: Site, mm2mgr: Command) -> None:
    estate = Estate(site, mm2mgr, flows(FORWARD, RETURN).replace("identity", "default"))
    estate.east.logs[TopicPartition("a.orders", 0)] = Offsets(0, 100)
    estate.settle(stopped=False)
    del estate.site.east.connectors[BACK].config[HELD_KEY]
    assert "takes the own topics of its source only (new, orders)" in estate.back()
    assert estate.json("--start", "--yes")["outcome"] == "started"
    assert estate.states() == {THERE: "RUNNING", BACK: "RUNNING"}


def plan_of(estate: Estate, code: int = 0) -> dict[str, Any]:
    found = estate.mm2mgr("plan", "-o", "json", code=code).json
    changes = (change for part in found["clusters"] for change in part["changes"] if change["action"] != "no-op")
    return {change["connector"]: change for change in changes}


def test_plan_creates_the_way_back_held_beside_the_flow_that_runs(estate: Estate) -> None:
    change = plan_of(estate)[BACK]
    keys = {key["key"]: key["after"] for key in change["keys"]}
    assert (change["action"], keys["enabled"], keys[HELD_KEY]) == (
        "create",
        "false",
        "until mm2mgr failover back 'a->east'",
    )
    assert "STOPPED without tasks until mm2mgr failover back 'a->east'" in estate.mm2mgr("plan").out


def test_plan_leaves_what_is_held_whatever_state_the_tree_declares(estate: Estate) -> None:
    estate.settle(stopped=False)
    assert not {THERE, BACK} & plan_of(estate).keys()
    stopped_there = FORWARD.replace("policy: identity", "policy: identity, state: stopped")
    estate.declare(flows(stopped_there, RETURN.replace(", state: stopped", ", state: running")))
    planned = plan_of(estate)
    assert BACK not in planned
    assert planned[THERE]["state"] == {"before": "RUNNING", "after": "STOPPED"}


def test_what_the_tree_changes_in_a_held_connector_is_written_and_it_stays_held(estate: Estate) -> None:
    estate.settle(stopped=False)
    estate.declare(flows(FORWARD, RETURN.replace("state: stopped", "state: stopped, refresh_interval: 1min")))
    change = plan_of(estate)[BACK]
    assert [key["key"] for key in change["keys"]] == ["refresh.topics.interval.seconds"]
    estate.mm2mgr("apply", "--yes", "--wait", "0s")
    assert estate.held()[BACK]
    assert estate.site.east.connectors[BACK].config["enabled"] == "false"


def test_with_the_states_of_the_tree_swapped_after_the_start_nothing_is_left_to_do(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    estate.back("--apply", "--yes")
    estate.back("--start", "--yes")
    stopped_there = FORWARD.replace("policy: identity", "policy: identity, state: stopped")
    estate.declare(flows(stopped_there, RETURN.replace(", state: stopped", "")))
    assert not {THERE, BACK} & plan_of(estate).keys()
    estate.declare(flows(FORWARD, RETURN.replace(", state: stopped", "")))
    planned = estate.mm2mgr("plan", code=0).out
    assert not {THERE, BACK} & plan_of(estate).keys(), planned


def test_a_held_connector_that_somebody_resumed_has_no_tasks_and_is_in_nobodys_way(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    estate.site.east.connectors[BACK].state = "RUNNING"
    estate.back("--apply", "--yes")
    estate.site.east.connectors[THERE].state = "RUNNING"
    estate.site.east.connectors[THERE].forced_tasks = 0  # as Connect with enabled=false
    assert estate.json("--start", "--yes")["outcome"] == "started"
    assert estate.held() == {THERE: True, BACK: False}


def test_it_is_not_started_while_something_else_mirrors_there(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    estate.back("--apply", "--yes")
    config = {key: value for key, value in estate.site.east.connectors[THERE].config.items() if key != HELD_KEY}
    estate.site.east.add("by-hand", config | {"name": "by-hand", "mm2mgr.owner": "other", "enabled": "true"})
    assert "by-hand, which the tree does not declare" in estate.back("--start", "--yes", code=1)
    assert estate.states()[BACK] == "STOPPED"


@pytest.mark.parametrize("version", ["4.3.1", "3.6.2"])
def test_apply_creates_the_way_back_without_running_it(estate: Estate, version: str) -> None:
    estate.site.east.version = version
    estate.mm2mgr("apply", "--yes", "--wait", "0s")
    assert estate.held() == {THERE: False, BACK: True}
    assert estate.states() == {THERE: "RUNNING", BACK: "STOPPED"}
    assert "0 to create, 0 to update" in estate.mm2mgr("plan").out


def test_lost_records_are_exported_once_into_a_file_of_this_user_alone(estate: Estate, tmp_path: Path) -> None:
    estate.settle()
    estate.journal()
    asked: list[object] = []

    def read_ranges(access: KafkaAccess, ranges: list[object]) -> Iterator[dict[str, Any]]:
        asked.append((access.alias, ranges))
        yield {"topic": "orders", "partition": 0, "offset": 100, "timestamp": 5, "key": None, "value": b"\xff",
               "headers": [("h", b"x"), ("n", None)]}  # fmt: skip
        if len(asked) == 2:
            raise Mm2mgrError("a: no record for 30 s")

    estate.site.patch.setattr("mm2mgr.kafka.records.read_ranges", read_ranges)
    file = tmp_path / "lost.jsonl"
    estate.back("--export", str(file))
    assert asked == [("a", [(ORDERS, 100, 105)])]
    assert json.loads(file.read_text()) == {
        **{"topic": "orders", "partition": 0, "offset": 100, "timestamp": 5, "key": None, "value": "/w=="},
        "headers": [["h", "eA=="], ["n", None]],
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert "it exists already" in estate.back("--export", str(file), code=1)
    estate.back("--export", str(tmp_path / "cut.jsonl"), code=1)
    assert not (tmp_path / "cut.jsonl").exists()
    assert "it is a file of the tree" in estate.back("--export", str(estate.tree / "lost.yaml"), code=1)


def test_lost_records_are_listed_while_the_pair_runs_again(estate: Estate, tmp_path: Path) -> None:
    estate.settle()
    estate.journal()
    estate.back("--apply", "--yes")
    there = estate.site.east.connectors[THERE]
    there.config = {key: value for key, value in there.config.items() if key != HELD_KEY} | {"enabled": "true"}
    there.state = "RUNNING"
    records = [
        {"topic": "orders", "partition": 0, "offset": 100, "timestamp": 5, "key": None, "value": b"", "headers": []}
    ]
    estate.site.patch.setattr("mm2mgr.kafka.records.read_ranges", lambda access, ranges: iter(records))
    estate.back("--export", str(tmp_path / "lost.jsonl"))
    assert [lost["noted_at"] is not None for lost in estate.json("--lost")["lost"]] == [True]
    assert "must be STOPPED" in estate.back(code=1)
    assert "must be STOPPED" in estate.back("--apply", "--yes", "--lost", code=1)


def test_the_tree_of_the_page_is_valid_and_lint_has_nothing_against_its_two_directions(
    site: Site, mm2mgr: Command
) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "failover-back.md"
    text = page.read_text(encoding="utf-8")
    folder = mm2mgr.folder / "of-page"
    folder.mkdir()
    (folder / "tree.yaml").write_text(text.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert "identity-loop" not in mm2mgr("--clusters", folder, "lint").out


def test_a_mirrored_topic_that_the_login_does_not_see_on_the_target_is_refused(estate: Estate) -> None:
    estate.settle()
    estate.journal()
    estate.east.refused_topics = {"orders"}
    text = estate.back("--apply", "--yes", code=1)
    assert "east: mm2mgr's login may not describe orders, which was mirrored there" in text
    assert estate.site.east.writes == []


def test_what_no_longer_keeps_names_is_not_held_any_more(estate: Estate) -> None:
    estate.settle()
    default = [
        entry.replace("policy: identity", "policy: default, checkpoints: false, allow: [target-names]")
        for entry in (FORWARD, RETURN)
    ]
    estate.declare(flows(*default))
    keys = {key["key"]: key["after"] for key in plan_of(estate)[BACK]["keys"]}
    assert (keys[HELD_KEY], keys["enabled"]) == (None, None)


# --- groups that are still within what came from the other side -------------------------------------------------------


def positions_back(estate: Estate, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return what a check of the way back says of each group in `orders`."""
    told = estate.mm2mgr("failover", "check", "east->a", "--translated", *arguments, "-o", "json", code=1).json
    return {group["group"]: position for group in told["groups"] for position in group["positions"]}


def test_a_group_within_what_came_from_the_other_side_is_translated_by_the_offset_syncs_of_the_way_there(
    site: Site, mm2mgr: Command
) -> None:
    estate = Estate(site, mm2mgr, flows(FORWARD, RETURN))
    estate.settle()
    estate.a.syncs = syncs_of(sync("orders", 30, 30), sync("orders", 90, 90))
    estate.a.logs[TopicPartition("mm2-offset-syncs.east.internal", 0)] = Offsets(0, 2)
    estate.east.commits = {name: {ORDERS: at} for name, at in (("slow", 40), ("first", 7), ("last", 97), ("at", 90))}
    found = positions_back(estate)
    assert {name: (each["translated"], each["translated_repeats_at_most"]) for name, each in found.items()} == {
        **{"slow": (40, 0), "last": (97, 0), "at": (90, 0)},
        "first": (None, None),
    }
    assert found["slow"]["sampled"] == "same"
    assert "no offset sync" in found["first"]["reason"]

    estate.a.records[ORDERS] = [mark for mark in estate.a.records[ORDERS] if mark.offset != 30]  # compacted
    found = positions_back(estate)
    assert (found["slow"]["translated"], found["slow"]["translated_repeats_at_most"]) == (31, 9)
    estate.a.records[ORDERS].append(RecordMark(30, "", "another", 30))
    estate.a.records[ORDERS].sort()
    found = positions_back(estate)
    assert found["slow"]["translated"] is None
    assert "made anew" in found["slow"]["reason"]


def test_offset_syncs_of_the_way_there_that_may_not_be_read_are_named_where_nothing_else_tells(
    site: Site, mm2mgr: Command
) -> None:
    estate = Estate(site, mm2mgr, flows(FORWARD, RETURN))
    estate.settle()
    estate.a.logs[TopicPartition("mm2-offset-syncs.east.internal", 0)] = Offsets(0, 2)
    estate.east.commits = {"slow": {ORDERS: 40}}
    estate.a.refused = {OffsetSyncRecords}
    told = estate.mm2mgr("failover", "check", "east->a", code=1).out
    assert "offset syncs of the way there (mm2-offset-syncs.east.internal)" in told
    assert "Read" in told


def test_a_topic_that_was_made_anew_on_the_source_since_a_look_is_refused(site: Site, mm2mgr: Command) -> None:
    estate = Estate(site, mm2mgr, flows(FORWARD, RETURN))
    estate.settle(stopped=False)
    estate.mm2mgr("failover", "check", PAIR, "-o", "json", code=2)
    site.east.connectors[THERE].state = "STOPPED"
    estate.settle()
    estate.journal()
    assert estate.mm2mgr("failover", "back", PAIR).out
    estate.a.ids["orders"] = "another"
    said = estate.mm2mgr("failover", "back", PAIR, code=1).out
    assert "the topic was made anew on A after 20" in said
    assert "delete these topics on a" in said
