"""Where a flow begins: `start:` becomes stored offsets before its connector first runs, and never afterwards."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import pytest

from mm2mgr.apply.carry_out import carry_out
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, never_ran
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.stages import stages
from tests.asking import topics_with
from tests.plan.site import Site, actions, errors, running

NAME = "mm2.a.east.source.orders"
ABOUT = f"/connectors/{NAME}"
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
LOGS = {P0: Offsets(0, 100), P1: Offsets(40, 70), P2: Offsets(0, 0)}


def flows(start: str = "", more: str = "") -> str:
    lines = f"start: {start}, " if start else ""
    return f"flows:\n  orders: {{{lines}sources: [a], targets: [east], topics: {{include: [orders]}}, {more}heartbeats: false, checkpoints: false}}\n"


@pytest.fixture(autouse=True)
def _logs(site: Site) -> None:
    there = RunningKafka({"orders": 3, "other": 1}, {**LOGS, TopicPartition("other", 0): Offsets(0, 9)})
    site.kafka = {"a": there, "east": topics_with({}), "west": topics_with({})}


def stored(site: Site, name: str = NAME) -> dict[tuple[str, int], int]:
    """Return the stored offsets of the source's alias."""
    entries = {
        tuple(json.loads(key).values()): value["offset"] for key, value in site.east.offsets.get(name, {}).items()
    }
    return {(key[2], key[1]): offset for key, offset in entries.items()}  # type: ignore[misc]


def change_of(plan: Plan, name: str = NAME) -> Change:
    (change,) = (change for change in plan.changes if change.connector == name)
    return change


def writes(site: Site, name: str = NAME) -> list[str]:
    about = f"/connectors/{name}"
    sent = [f"{one.method} {one.path.removeprefix(about)}" for one in site.east.writes if one.path.startswith(about)]
    return (
        ["POST"] if any(one.method == "POST" and one.body["name"] == name for one in site.east.writes) else []
    ) + sent


def has_begun(site: Site, offsets: dict[tuple[str, int], int], name: str = NAME) -> bool:
    """Tell whether a connector runs with these offsets, and nothing of its beginning is left to do."""
    connector = site.east.connectors[name]
    assert JOURNAL_KEY not in connector.config
    assert "enabled" not in connector.config
    return connector.state == "RUNNING" and stored(site, name) == offsets


def test_latest_is_stored_before_it_runs(site: Site) -> None:
    plan = site.plan(flows("latest"))
    change = change_of(plan)
    assert change.reason.startswith("begins at the ends of the logs, unless offsets are stored under its name")
    assert change.reason.endswith("skips 130 records of 3 partitions")
    assert change.takes is not None
    assert change.takes.topics == {"orders": (3, 0)}
    assert "read where that is at the ends of the logs of a" in change.steps
    assert errors(site.apply(plan, flows("latest"))) == {}
    assert has_begun(site, {("orders", 0): 99, ("orders", 1): 69})
    order = writes(site)
    assert order.index("PATCH /offsets") < order.index("PUT /resume")
    created = next(one.body for one in site.east.writes if one.method == "POST" and one.body["name"] == NAME)
    assert (created["initial_state"], created["config"]["enabled"]) == ("STOPPED", "false")


def test_the_ends_are_those_when_apply_reads_them(site: Site) -> None:
    plan = site.plan(flows("latest"))
    assert site.kafka is not None
    site.kafka["a"] = RunningKafka({"orders": 3}, {**LOGS, P0: Offsets(0, 120)})
    assert errors(site.apply(plan, flows("latest"))) == {}
    assert has_begun(site, {("orders", 0): 119, ("orders", 1): 69})


@pytest.mark.parametrize("start", ["", "earliest"])
def test_earliest_is_as_without_it(site: Site, start: str) -> None:
    assert errors(site.converge(flows(start))) == {}
    assert has_begun(site, {})
    assert writes(site) == ["POST"]


@pytest.mark.parametrize(("start", "seconds"), [("30d", 2_592_000), ("1234567s", 1_234_567), ("1500ms", 1.5)])
def test_a_time_long_back(site: Site, start: str, seconds: float) -> None:
    asked: set[int] = set()

    def since(_alias: str, _partition: TopicPartition, time_ms: int) -> int:
        asked.add(time_ms)
        return -1

    site.since = since
    assert errors(site.converge(flows(start))) == {}
    assert asked == {round(1000 * (site.now - seconds))}


def test_a_time_back_and_a_time(site: Site) -> None:
    asked: list[int] = []

    def since(_alias: str, partition: TopicPartition, time_ms: int) -> int:
        asked.append(time_ms)
        return {P0: 30, P1: -1, P2: -1}[partition]

    site.since = since
    plan = site.plan(flows("2h"))
    assert change_of(plan).reason.startswith("begins with the records of the last 2 h")
    assert set(asked) == {round(1000 * (site.now - 7200))}
    assert errors(site.apply(plan, flows("2h"))) == {}
    assert has_begun(site, {("orders", 0): 29, ("orders", 1): 69})
    asked.clear()
    site.east.connectors.clear()
    site.east.offsets.clear()
    plan = site.plan(flows("2026-11-26T10:00:00Z"))
    assert change_of(plan).reason.startswith("begins at 2026-11-26T10:00:00Z")
    assert set(asked) == {1_795_687_200_000}


def test_where_a_group_goes_on(site: Site) -> None:
    site.committed = {"mm1": {P0: 60, P1: 10, TopicPartition("other", 0): 3}}
    group = flows("{group: mm1}")
    plan = site.plan(group)
    change = change_of(plan)
    assert change.reason.startswith("begins where group 'mm1' goes on")
    assert change.warnings == (
        "group 'mm1' has no offset in orders-2: there it begins at the first record",
        "records after the offset of group 'mm1' are gone from orders-1",
    )
    assert errors(site.apply(plan, group)) == {}
    assert has_begun(site, {("orders", 0): 59, ("orders", 1): 39})
    assert site.plan(group).is_empty


@pytest.mark.parametrize("policy", ["default", "identity"])
def test_a_topic_that_the_group_never_read_and_the_target_has_is_told(site: Site, policy: str) -> None:
    """Another mirror has filled it, say, as another group."""
    site.committed = {"mm1": {P0: 60, P1: 50, P2: 0}}
    there = {"orders": 3, "other": 1, "new": 1}
    logs = {**LOGS, TopicPartition("other", 0): Offsets(0, 9), TopicPartition("new", 0): Offsets(0, 9)}
    remote = "other" if policy == "identity" else "a.other"
    site.kafka = {
        "a": RunningKafka(there, logs),
        "east": topics_with({remote: 1, "a.orders": 3}),
        "west": topics_with({}),
    }
    text = flows("{group: mm1}", f"replication_policy: {policy}, ").replace("[orders]", "[orders, other, new]")
    change = change_of(site.plan(text))
    assert (
        f"group 'mm1' never read {remote}, which east has: what was mirrored there by others comes a second time, behind"
        " what is there (exclude these topics, or delete them on the target, unless others wrote them)"
    ) in change.warnings
    assert not any(f"never read {name}" in warning for warning in change.warnings for name in ("new", "a.orders"))


def test_a_group_that_is_still_at_work_is_a_warning(site: Site) -> None:
    site.committed, site.members = {"mm1": {P0: 60, P1: 200, P2: 0}}, 2
    said = change_of(site.plan(flows("{group: mm1}"))).warnings
    assert said == (
        "the offset of group 'mm1' is beyond the end of orders-1: there it begins at the first record",
        "group 'mm1' has 2 members: what it reads after apply has looked it up, this flow mirrors, too"
        " (where it is another mirror, stop it before apply)",
    )


@pytest.mark.parametrize("committed", [{}, {TopicPartition("other", 0): 3}])
def test_a_group_without_offsets_there_is_no_start(site: Site, committed: dict[TopicPartition, int]) -> None:
    site.committed = {"typo": committed}
    change = change_of(site.plan(flows("{group: typo}")))
    assert change.action == "blocked"
    assert (
        change.reason == "start: where it begins: group 'typo' has no committed offset in orders-0, orders-1, orders-2"
    )
    assert errors(site.apply(site.plan(flows("{group: typo}")), flows("{group: typo}"))) == {}
    assert NAME not in site.east.connectors


def test_what_cannot_be_read_creates_nothing(site: Site) -> None:
    assert "may not be read" in change_of(site.plan(flows("{group: mm1}"))).reason
    plan = site.plan(flows("latest"))
    kafka, site.kafka = site.kafka, None
    failed = errors(site.apply(plan, flows("latest")))
    assert failed[NAME].endswith("where it begins: no broker answered")
    assert NAME not in site.east.connectors
    assert change_of(site.plan(flows("latest"))).action == "blocked"
    site.kafka = kafka
    assert errors(site.converge(flows("latest"))) == {}
    assert has_begun(site, {("orders", 0): 99, ("orders", 1): 69})


@pytest.mark.parametrize(("version", "born"), [("3.6.2", None), ("3.7.2", "STOPPED")])
def test_older_workers_create_it_without_tasks(site: Site, version: str, born: str | None) -> None:
    site.east.version = version
    assert errors(site.converge(flows("latest"))) == {}
    created = next(one.body for one in site.east.writes if one.method == "POST" and one.body["name"] == NAME)
    assert (created.get("initial_state"), created["config"]["enabled"]) == (born, "false")
    assert has_begun(site, {("orders", 0): 99, ("orders", 1): 69})


@pytest.mark.parametrize("version", ["3.4.1", "3.5.2"])
def test_workers_that_cannot_are_told_what_can_be_had(site: Site, version: str) -> None:
    site.east.version = version
    change = change_of(site.plan(flows("latest")))
    assert change.action == "blocked"
    assert f"run Kafka {version}" in change.reason
    assert "3.6 (KIP-875)" in change.reason
    assert "auto.offset.reset: latest" in change.remedy
    assert change_of(site.plan(flows("earliest"))).action == "create"


@pytest.mark.parametrize("state", ["paused", "stopped", "running"])
def test_it_ends_in_the_state_that_the_tree_wants(site: Site, state: str) -> None:
    wanted = flows("latest", f"state: {state}, ")
    assert errors(site.converge(wanted)) == {}
    assert site.east.connectors[NAME].state == state.upper()
    assert stored(site) == {("orders", 0): 99, ("orders", 1): 69}
    assert site.plan(wanted).is_empty


def test_exactly_once_stores_them_where_its_records_go(site: Site) -> None:
    """The workers' Kafka is not the target, so its offsets are in a topic of its own; open transactions come whole."""
    site.west.exactly_once = True
    once = flows("latest", "run_on: west, delivery: exactly_once, ")
    change = change_of(site.plan(once))
    assert change.start is not None
    assert change.start.committed
    assert errors(site.converge(once)) == {}
    assert site.west.connectors[NAME].state == "RUNNING"
    ((place, entries),) = ((place, entries) for place, entries in site.west.own_offsets.items() if entries)
    assert place[:2] == (NAME, "mm2mgr-offsets.west.internal")
    assert sorted(entry["offset"] for entry in entries.values()) == [69, 99]
    assert site.plan(once).is_empty


@pytest.mark.parametrize("reset", ["latest", "none"])
def test_what_has_no_entry_must_not_begin_elsewhere(site: Site, reset: str) -> None:
    """Of offset 0 none can be stored, so the consumer's setting would decide."""
    site.since = lambda _alias, partition, _time: LOGS[partition].start
    beside = flows("2026-11-26", f"source_consumer: {{auto.offset.reset: {reset}}}, ")
    change = change_of(site.plan(beside))
    assert change.action == "blocked"
    assert change.reason.endswith(f"auto.offset.reset={reset} decides") or "reset-none" in change.reason
    assert NAME not in site.east.connectors


# --- what runs, or ran before -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("", "latest"), ("latest", "earliest"), ("earliest", "latest")])
def test_another_start_of_what_runs_changes_nothing_and_is_noted(site: Site, before: str, after: str) -> None:
    site.converge(flows(before))
    had = stored(site)
    site.forget()
    plan = site.plan(flows(after))
    assert set(actions(plan).values()) == {"no-op"}
    notes = [note for part in plan.clusters for note in part.notes]
    how = f"began with start: {before}" if before else "began without it"
    assert notes == [
        f"start: {after} of orders:a->east changes nothing: what exists {how}, and goes on from its stored offsets;"
        " mm2mgr offsets reset stores others"
    ]
    site.apply(plan, flows(after))
    assert (stored(site), site.east.writes) == (had, [])


@pytest.mark.parametrize(("before", "after"), [("latest", "latest"), ("", "earliest"), ("latest", "")])
def test_what_says_the_same_is_not_noted(site: Site, before: str, after: str) -> None:
    site.converge(flows(before))
    plan = site.plan(flows(after))
    assert plan.is_empty
    assert not [note for part in plan.clusters for note in part.notes]


def test_another_change_of_it_leaves_its_offsets_alone(site: Site) -> None:
    site.converge(flows("latest"))
    site.east.add_offsets(NAME, "orders", {0: 150}, alias="a")
    assert errors(site.converge(flows("earliest", "tasks: {max: 2}, "))) == {}
    assert has_begun(site, {("orders", 0): 150, ("orders", 1): 69})
    assert site.east.connectors[NAME].config["mm2mgr.start"] == "latest"


def test_what_was_deleted_goes_on_from_its_stored_offsets(site: Site) -> None:
    site.east.add_offsets(NAME, "orders", {0: 20}, alias="a")
    (result,) = site.converge(flows("latest"))
    assert "which ran before: it goes on from them, and start: changed nothing" in result.doubt
    assert has_begun(site, {("orders", 0): 20})


def test_offsets_of_topics_that_it_does_not_take_say_nothing_of_where_it_begins(site: Site) -> None:
    """A test flow of that name, say: all that the group has read would be mirrored again."""
    site.east.add_offsets(NAME, "tried", {0: 20}, alias="a")
    site.committed = {"mm1": {P0: 60, P1: 70, P2: 0}}
    (result,) = site.converge(flows("{group: mm1}"))
    assert not result.doubt
    assert has_begun(site, {("tried", 0): 20, ("orders", 0): 59, ("orders", 1): 69})


def test_stored_offsets_of_a_topic_outrank_a_start_for_that_topic_alone(site: Site) -> None:
    site.east.add_offsets(NAME, "orders", {0: 20}, alias="a")
    both = flows("latest").replace("[orders]", "[orders, other]")
    site.east.fail_next("PATCH", f"{ABOUT}/offsets", 400, "no")
    assert list(errors(site.converge(both))) == [NAME]
    (result,) = site.converge(both)
    assert "offsets of orders are stored under the name of" in result.doubt
    assert has_begun(site, {("orders", 0): 20, ("other", 0): 8})


@pytest.mark.parametrize("start", ["asked", "begun"])
def test_what_another_apply_ends_meanwhile_keeps_what_it_has_mirrored(
    site: Site, start: Literal["asked", "begun"]
) -> None:
    site.east.fail_next("PATCH", f"{ABOUT}/offsets", 400, "no")
    site.converge(flows("latest"))
    connector = site.east.connectors[NAME]
    connector.config = Journal("RUNNING", start=start).added_to({**connector.config, "enabled": "false"})
    change = change_of(site.plan(flows("latest")))

    class OtherApply(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/stop"):
                connector.config = {k: v for k, v in connector.config.items() if k not in {JOURNAL_KEY, "enabled"}}
                site.east.add_offsets(NAME, "orders", {0: 150}, alias="a")
            return await site.east.transport().handle_async_request(request)

    async def main() -> Mm2mgrError | None:
        target = ConnectTarget("east", ("http://east:8083",))
        async with ConnectClient(target, deadline_seconds=5, transport=OtherApply()) as client:
            return await carry_out({"east": client}, stages(change, "team"))

    refused = asyncio.run(main())
    assert refused is not None
    assert "its config changed since the plan was made" in refused.message
    assert stored(site) == {("orders", 0): 150}
    assert JOURNAL_KEY not in connector.config


def test_offsets_of_another_alias_are_none(site: Site) -> None:
    site.east.add_offsets(NAME, "orders", {0: 20}, alias="old")
    (result,) = site.converge(flows("latest"))
    assert not result.doubt
    assert site.east.connectors[NAME].state == "RUNNING"
    assert len(site.east.offsets[NAME]) == 3


def test_topics_that_arrived_from_a_mirror_before_need_no_proof(site: Site) -> None:
    """Without a start, its stored offsets must be there, or every record would be mirrored again."""
    assert site.kafka is not None
    site.kafka["east"] = topics_with({"a.orders": 3}, {"a.orders": 60})
    site.committed = {"mm1": {P0: 60, P1: 70, P2: 0}}
    site.since = lambda _alias, partition, _time: LOGS[partition].start
    assert change_of(site.plan(flows())).needs_offsets == ("orders",)
    assert change_of(site.plan(flows("2026-11-26"))).needs_offsets == ("orders",)
    group = flows("{group: mm1}")
    assert change_of(site.plan(group)).needs_offsets == ()
    assert errors(site.converge(group)) == {}
    assert has_begun(site, {("orders", 0): 59, ("orders", 1): 69})


def test_what_takes_over_brings_its_offsets(site: Site) -> None:
    site.converge(flows())
    site.east.add_offsets(NAME, "orders", {0: 20}, alias="a")
    renamed = flows("latest").replace("orders: {", "trade: {", 1)
    moved = renamed + "moved: [{from: 'orders:a->east', to: 'trade:a->east'}]\n"
    new = "mm2.a.east.source.trade"
    assert "start: latest has no effect" in change_of(site.plan(moved), new).reason
    assert errors(site.converge(moved)) == {}
    assert has_begun(site, {("orders", 0): 20}, new)


def test_lanes_begin_there_too(site: Site) -> None:
    assert site.kafka is not None
    logs = {TopicPartition(topic, 0): Offsets(0, end) for topic, end in (("orders", 10), ("heavy", 20))}
    site.kafka["a"] = RunningKafka({"orders": 1, "heavy": 1}, logs)
    lanes = flows("latest", "balance: {lanes: {big: [heavy]}}, ").replace("[orders]", "[orders, heavy]")
    assert errors(site.converge(lanes)) == {}
    assert has_begun(site, {("orders", 0): 9})
    assert has_begun(site, {("heavy", 0): 19}, f"{NAME}.big")
    assert site.plan(lanes).is_empty


def test_an_adopted_connector_keeps_where_it_is(site: Site) -> None:
    site.converge(flows())
    live = site.east.connectors[NAME].config
    del live["mm2mgr.owner"]
    site.east.add_offsets(NAME, "orders", {0: 20}, alias="a")
    adopted = flows("latest") + f"adopt: [{{connect: east, connector: {NAME}}}]\n"
    site.forget()
    plan = site.plan(adopted)
    assert change_of(plan).action == "no-op"
    assert any(
        "start: latest of orders:a->east changes nothing" in note for part in plan.clusters for note in part.notes
    )
    site.apply(plan, adopted)
    assert (site.east.writes, stored(site)) == ([], {("orders", 0): 20})


# --- cut short --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["PUT /stop", "GET /offsets", "PUT /config", "PATCH /offsets", "PUT /resume"])
def test_what_was_cut_short_goes_on_where_it_was(site: Site, refused: str) -> None:
    method, path = refused.split()
    site.east.fail_next(method, ABOUT + path, 400, "no")
    assert list(errors(site.converge(flows("latest")))) == [NAME]
    connector = site.east.connectors[NAME]
    assert connector.state != "RUNNING" or connector.config["enabled"] == "false"
    change = change_of(site.plan(flows("latest")))
    assert (change.action, change.reason.partition(",")[0]) in {
        ("update", "finishes writing where it begins"),
        ("update", "finishes moving its stored offsets"),
    }
    assert errors(site.converge(flows("latest"))) == {}
    assert has_begun(site, {("orders", 0): 99, ("orders", 1): 69})


@pytest.mark.parametrize("start", ["", "earliest", "2026-11-26"])
def test_cut_short_it_begins_where_the_tree_says_now(site: Site, start: str) -> None:
    site.since = lambda _alias, partition, _time: {P0: 30, P1: 50, P2: -1}[partition]
    site.east.fail_next("GET", f"{ABOUT}/offsets", 400, "no")
    site.converge(flows("latest"))
    connector = site.east.connectors[NAME]
    connector.config = Journal("RUNNING", start="begun").added_to({**connector.config, "enabled": "false"})
    site.east.add_offsets(NAME, "orders", {0: 99, 1: 69}, alias="a")
    assert errors(site.converge(flows(start))) == {}
    assert has_begun(site, {("orders", 0): 29, ("orders", 1): 49} if start.startswith("2") else {("orders", 1): 39})


def test_cut_short_what_has_arrived_is_not_mirrored_again_unasked(site: Site) -> None:
    """`latest` lifts the objection to topics that have arrived, and the tree may say something else by then."""
    assert site.kafka is not None
    site.kafka["east"] = topics_with({"a.orders": 3}, {"a.orders": 60})
    site.east.fail_next("PATCH", f"{ABOUT}/offsets", 400, "no")
    assert list(errors(site.converge(flows("latest")))) == [NAME]
    change = change_of(site.plan(flows()))
    assert change.action == "blocked"
    assert "a.orders on 'east' already had records" in change.reason
    assert "--allow mirror-again" in change.remedy
    assert change_of(site.plan(flows(), mirror_again=True)).action == "update"
    assert errors(site.converge(flows("latest"))) == {}
    assert has_begun(site, {("orders", 0): 99, ("orders", 1): 69})


def test_a_journal_is_no_authority_over_what_runs(site: Site) -> None:
    site.converge(flows("latest"))
    site.east.add_offsets(NAME, "orders", {0: 150}, alias="a")
    connector = site.east.connectors[NAME]
    connector.config = Journal("RUNNING", start="begun").added_to(connector.config)
    change = change_of(site.plan(flows("latest")))
    assert change.action == "blocked"
    assert "its journal says that it never ran, and its config lets it run" in change.reason
    site.apply(site.plan(flows("latest")), flows("latest"))
    assert stored(site)[("orders", 0)] == 150
    connector.config[JOURNAL_KEY] = json.dumps({"then": "RUNNING", "start": "elsewhere"})
    assert "unreadable" in change_of(site.plan(flows("latest"))).reason


def test_rolled_back_it_leaves_no_connector(site: Site) -> None:
    plan = site.plan(flows("latest"))
    site.east.fail_next("PUT", f"{ABOUT}/resume", 400, "no", times=100)
    assert list(errors(site.apply(plan, flows("latest")))) == [NAME]
    removed = "flows:\n  other: {sources: [a], targets: [east], topics: {include: [other]}, heartbeats: false, checkpoints: false}\n"
    assert errors(site.converge(removed, prune=True)) == {}
    assert NAME not in site.east.connectors


# --- whatever kills it ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """kill -9: nothing reaches a worker any more."""


@dataclass
class Workers(httpx.AsyncBaseTransport):
    """A fake Connect that dies to mm2mgr after so many requests; records arrive with each of them."""

    site: Site
    choice: random.Random
    requests_left: int = 10**6

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.requests_left <= 0:
            raise Killed
        self.requests_left -= 1
        assert self.site.kafka is not None
        kafka = self.site.kafka["a"]
        for partition, log in list(kafka.offsets.items()):
            if self.choice.random() < 0.2:
                logs = {**kafka.offsets, partition: Offsets(log.start, log.end + self.choice.randint(1, 9))}
                kafka = self.site.kafka["a"] = RunningKafka(kafka.topics, logs)
        return await self.site.east.transport().handle_async_request(request)

    def carry_out(self, change: Change, requests: int) -> bool:
        """Carry out a change in a process that is killed after so many requests; tell whether it lived."""
        self.requests_left = requests

        async def main() -> Mm2mgrError | None:
            target = ConnectTarget("east", ("http://east:8083",))
            async with ConnectClient(target, deadline_seconds=5, transport=self, first_backoff_seconds=0.001) as client:
                return await carry_out({"east": client}, stages(change, "team"))

        try:
            assert asyncio.run(main()) is None
        except Killed:
            return False
        return True


def judge_one_life(site: Site, choice: random.Random) -> None:
    """Create a flow while records arrive, kill mm2mgr some times, and hold it to where the tree last said it begins."""
    site.east.version = choice.choice(["3.6.2", "3.7.2", "4.3.1"])
    starts = {P0: choice.randint(0, 50), P1: 0, P2: choice.choice([0, 7])}
    kafka = RunningKafka(
        {"orders": 3}, {p: Offsets(start, start + choice.choice([0, 1, 30])) for p, start in starts.items()}
    )
    site.kafka = {"a": kafka, "east": topics_with({}), "west": topics_with({})}
    site.committed = {"mm1": {p: choice.randint(starts[p], log.end) for p, log in kafka.offsets.items() if p != P1}}
    times = {p: choice.randint(starts[p], log.end) for p, log in kafka.offsets.items()}
    site.since = lambda _alias, partition, _time: times[partition]
    has_run_before = choice.random() < 0.2
    if has_run_before:
        site.east.add_offsets(NAME, "orders", {0: starts[P0] + 1}, alias="a")
    workers = Workers(site, choice)
    while True:
        start = choice.choice(["latest", "latest", "{group: mm1}", "2026-11-26", "earliest", ""])
        change, ends = change_of(site.plan(flows(start))), dict(site.kafka["a"].offsets)
        is_done = workers.carry_out(change, choice.choice([choice.randint(1, 14), 10**6]))
        connector = site.east.connectors.get(NAME)
        if is_done:
            break
        if connector and connector.state != "RUNNING" and choice.random() < 0.3:
            connector.state = "RUNNING"  # somebody resumes it by hand
        if connector and not never_ran(connector.config):
            break  # its offsets are there: the next plan only clears up
    next_offsets = {p: stored(site).get((p.topic, p.partition), starts[p] - 1) + 1 for p in starts}
    if has_run_before:
        assert next_offsets == {**starts, P0: starts[P0] + 2}
    elif start == "latest":
        assert all(ends[p].end <= at <= site.kafka["a"].offsets[p].end for p, at in next_offsets.items()), next_offsets
    else:
        group = {**starts, **site.committed["mm1"]}
        expected = {"{group: mm1}": group, "2026-11-26": times}.get(start, starts)
        assert next_offsets == expected, start
    assert errors(site.converge(flows(start))) == {}
    assert JOURNAL_KEY not in site.east.connectors[NAME].config
    assert site.east.connectors[NAME].state == "RUNNING"
    assert site.plan(flows(start)).is_empty


@pytest.mark.parametrize("seed", range(8))
def test_whatever_kills_it_it_begins_where_the_tree_says(site: Site, seed: int) -> None:
    judge_one_life(site, random.Random(seed))


@pytest.mark.matrix
@pytest.mark.parametrize("block", range(20))
def test_whatever_kills_it_it_begins_where_the_tree_says_often(tmp_path: Path, block: int) -> None:
    with running(tmp_path) as site:
        for seed in range(1000 + 25 * block, 1025 + 25 * block):
            site.east.connectors.clear()
            site.east.offsets.clear()
            judge_one_life(site, random.Random(seed))
