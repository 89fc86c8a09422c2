"""Waves that stop: a bad one halts its Connect cluster and can be taken back, one that is not known waits, the others go on."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2mgr.apply.execute import apply_plan
from mm2mgr.apply.settle import Settled, States, _failures
from mm2mgr.apply.waves import Event, Halted, Result, RolledBack, Rollout, WaveBegun, WaveVerified
from mm2mgr.connectors import ConnectorStatus, TaskStatus
from mm2mgr.live.reach import Limits
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Plan
from mm2mgr.render import OWNER_KEY
from tests.asking import topics_with
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions, errors

HEARTBEAT, LOGS, ORDERS, CHECKPOINT = ON_EAST
SLOWLY = FLOWS.replace("targets: [", "refresh_interval: 7s, targets: [")
"""Changes a key of each source and checkpoint connector."""
INVALID = FLOWS.replace(
    "[orders]}", "[orders]}, silence: {invalid-value: a test}, source_consumer: {fetch.max.bytes: -5}"
)
"""The tasks of `orders` fail."""


@dataclass
class Seen:
    results: list[Result]
    events: list[Event] = field(default_factory=list)
    states: States = field(default_factory=dict)

    @property
    def halted(self) -> dict[str, Halted]:
        return {event.connect: event for event in self.events if isinstance(event, Halted)}

    @property
    def waves(self) -> dict[str, list[tuple[str, ...]]]:
        found: dict[str, list[tuple[str, ...]]] = {}
        for event in self.events:
            if isinstance(event, WaveBegun):
                found.setdefault(event.connect, []).append(event.connectors)
        return found


def applied(site: Site, plan: Plan, flows: str = FLOWS, wait_seconds: float = 20.0, **rollout: Any) -> Seen:
    seen = Seen([])
    options = {"rollout": Rollout(wait_seconds, **rollout), "report": seen.events.append, "states": seen.states}
    topology, _ = site.declare(flows)
    seen.results = asyncio.run(apply_plan(topology, plan, limits=Limits(write_seconds=10.0), **options))
    return seen


def live(site: Site) -> dict[str, tuple[dict[str, str], str]]:
    """Return configs and states of all connectors, by Connect cluster and name."""
    return {
        f"{cluster}/{name}": (dict(one.config), one.state)
        for cluster, fake in site.fakes.items()
        for name, one in fake.connectors.items()
    }


def with_tasks_lost(site: Site, connector: str) -> None:
    """Let a connector that is there have no tasks from its next write on, as with a wrong password."""
    put = site.east._config

    def config(method: str, name: str, sent: Any) -> Any:
        answer = put(method, name, sent)
        if method == "PUT" and name == connector:
            site.east.connectors[name].forced_tasks = 0
        return answer

    site.east._config = config  # type: ignore[method-assign]


def test_each_wave_is_verified_before_the_next(site: Site) -> None:
    seen = applied(site, site.plan())
    assert errors(seen.results) == {}
    assert seen.waves == {
        "east": [(HEARTBEAT,), (LOGS, ORDERS), (CHECKPOINT,)],
        "west": [(ON_WEST[0],), (ON_WEST[1],), (ON_WEST[2],)],
    }
    east = [event for event in seen.events if isinstance(event, WaveBegun | WaveVerified) and event.connect == "east"]
    assert [type(event) for event in east] == [WaveBegun, WaveVerified] * 3
    requests = list(site.east.requests)
    begun = next(at for at, one in enumerate(requests) if one.writes)
    assert [one.query for one in requests[begun:] if not one.writes] == ["expand=info&expand=status"] * 3


def test_a_look_is_one_question_to_a_connect_cluster_however_many_connectors(site: Site) -> None:
    more = FLOWS + "".join(
        f"  more{number}: {{sources: [a], targets: [east], topics: {{include: [more{number}]}}}}\n"
        for number in range(9)
    )
    plan = site.plan(more)
    site.forget()
    seen = applied(site, plan, more)
    assert errors(seen.results) == {}
    reads = [request.path for request in site.east.requests if request.method == "GET"]
    with_records = [f"/connectors/{name}/topics" for name in (LOGS, ORDERS)]
    assert [path for path in reads if path not in with_records] == ["/connectors"] * len(seen.waves["east"])


def test_a_wave_that_fails_halts_its_cluster_and_no_other(site: Site) -> None:
    plan = site.plan(INVALID)
    seen = applied(site, plan, INVALID)
    assert site.names("east") == sorted([HEARTBEAT, LOGS, ORDERS])
    assert site.names("west") == sorted(ON_WEST)
    halted = seen.halted["east"]
    assert (halted.verdict, halted.left) == ("failed", (CHECKPOINT,))
    assert halted.why.startswith(f"{ORDERS}: RUNNING, 1 of 1 tasks FAILED: org.apache.kafka.common.config.ConfigExc")
    assert list(seen.halted) == ["east"]


def test_tasks_that_vanish_from_what_ran_are_bad_at_the_deadline(site: Site) -> None:
    site.converge()
    with_tasks_lost(site, LOGS)
    before = live(site)
    seen = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=3.0, rollback=True)
    assert seen.halted["east"].verdict == "failed"
    assert f"{LOGS}: RUNNING, no tasks" in seen.halted["east"].why
    assert {name: each for name, each in live(site).items() if "east/" in name} == {
        name: each for name, each in before.items() if "east/" in name
    }


def test_tasks_that_keep_the_config_before_are_bad_if_they_ran(site: Site) -> None:
    site.converge()
    site.east.restart_reads = (1000, 0)
    seen = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=3.0)
    assert seen.halted["east"].verdict == "failed"
    assert "its tasks still have the previous config" in seen.halted["east"].why
    assert seen.halted["east"].left == (CHECKPOINT,)
    assert "west" not in seen.halted


def test_a_new_connector_without_tasks_is_bad_if_its_topics_exist(site: Site) -> None:
    site.east.source_topics = {}
    seen = applied(site, site.plan(), wait_seconds=3.0)
    assert seen.halted["east"].verdict == "failed"
    assert "no tasks although topics match" in seen.halted["east"].why


def test_a_new_connector_whose_topics_do_not_exist_yet_is_good(site: Site) -> None:
    assert site.kafka is not None
    site.kafka["a"] = topics_with({"others": 1})
    site.east.source_topics = site.west.source_topics = {}
    seen = applied(site, site.plan())
    assert seen.halted == {}
    assert seen.states["east", LOGS].state == "RUNNING, no topic matches yet"
    assert site.names("east") == sorted(ON_EAST)


def test_what_has_records_to_copy_is_good_when_the_first_has_arrived(site: Site) -> None:
    assert site.kafka is not None
    site.kafka["a"] = topics_with({"orders": 1, "logs.web": 1}, {"orders": 3000})
    plan = site.plan()
    seen = applied(site, plan, wait_seconds=3.0)
    assert seen.halted["east"].why == f"{ORDERS}: RUNNING, no record has arrived yet (a right may be missing)"
    assert seen.halted["east"].verdict == "failed"
    assert site.names("west") == sorted(ON_WEST), "nothing is to be copied there"

    site.east.connectors.clear()
    site.east.add_offsets(ORDERS, "orders", {0: 5}, alias="a")
    assert applied(site, plan, wait_seconds=3.0).halted == {}
    site.east.connectors.clear()
    site.east.offsets.clear()
    plan, stop = site.plan(), asyncio.Event()
    create = site.east._create

    def created(sent: dict[str, Any]) -> Any:
        answer = create(sent)
        site.east.connectors[sent["name"]].topics = ["a.orders"]
        return answer

    site.east._create = created  # type: ignore[method-assign]
    assert applied(site, plan, wait_seconds=3.0).halted == {}
    assert not stop.is_set()


@dataclass
class Traffic:
    """Log ends that grow with each reading: of `logs.web` and `orders` at the source, and of what arrives of them on east."""

    moves: tuple[str, ...] = ()
    arrives: tuple[str, ...] = ()
    looks: int = 0

    def __call__(self, alias: str, one: TopicPartition) -> int:
        self.looks += 1
        topic = one.topic.removeprefix("a.")
        return 100 + self.looks * (topic in (self.moves if alias == "a" else self.arrives))


@pytest.mark.parametrize(
    ("traffic", "verdict", "says"),
    [
        (Traffic(("orders", "logs.web"), ("orders", "logs.web")), None, "RUNNING"),
        (Traffic(("orders", "logs.web"), ("logs.web",)), "failed", "no record of orders arrives"),
        (Traffic(), None, "RUNNING, no new records to judge by"),
        (None, None, "RUNNING"),
    ],
)
def test_an_update_is_good_when_what_its_source_gets_arrives(
    site: Site, traffic: Traffic | None, verdict: str | None, says: str
) -> None:
    """A lost right to read leaves all tasks RUNNING, and nothing is logged that Connect would show."""
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge()
    before = live(site)
    site.ends = traffic
    seen = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=3.0, rollback=True)
    if verdict is None:
        assert seen.halted == {}
        assert seen.states["east", ORDERS].state == says
        return
    assert (seen.halted["east"].verdict, seen.halted["east"].left) == (verdict, (CHECKPOINT,))
    assert seen.halted["east"].why.startswith(f"{ORDERS}: RUNNING, {says}, although the source has new ones")
    assert {name: each for name, each in live(site).items() if "east/" in name} == {
        name: each for name, each in before.items() if "east/" in name
    }


@pytest.mark.parametrize(
    ("traffic", "arrived"),
    [(Traffic(("orders", "logs.web"), ("orders", "logs.web")), True), (Traffic(), False), (None, False)],
)
def test_whether_a_record_was_seen_to_arrive_is_known_of_each_source(
    site: Site, traffic: Traffic | None, arrived: bool
) -> None:
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge()
    site.ends = traffic
    states = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=3.0).states
    arrivals = {name: settled.arrived for (connect, name), settled in states.items() if connect == "east"}
    assert arrivals == {LOGS: arrived, ORDERS: arrived, CHECKPOINT: None}


@pytest.mark.parametrize("there", [("logs.web",), ()], ids=["one of two flows", "nothing"])
@pytest.mark.parametrize("moves", [(), ("orders", "logs.web")], ids=["idle", "under traffic"])
def test_a_new_name_that_the_target_does_not_get_is_for_a_person_to_look(
    site: Site, there: tuple[str, ...], moves: tuple[str, ...]
) -> None:
    """Brokers that refuse a name leave all tasks RUNNING; MirrorMaker only logs that it could not create the topic."""
    renamed = FLOWS.replace("targets: [", "separator: _, targets: [")
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge()
    traffic = Traffic(moves, there)

    def ends(alias: str, partition: TopicPartition) -> int | None:
        topic = partition.topic.removeprefix("a_")
        return None if alias == "east" and topic not in there else traffic(alias, TopicPartition(topic, 0))

    site.ends = ends  # type: ignore[assignment]
    plan = site.plan(renamed, allow={"target-names"})
    seen = applied(site, plan, renamed, wait_seconds=3.0, rollback=True)
    assert seen.halted["east"].verdict == "inconclusive"
    says = "nothing arrives in a_orders: not on east (the brokers may refuse the name, or a right is missing)"
    assert seen.states["east", ORDERS] == Settled(f"RUNNING, {says}", "inconclusive")
    assert (seen.states["east", LOGS].verdict == "ok") == bool(there)


def test_records_that_came_only_before_the_tasks_ran_are_for_a_person_to_judge(site: Site) -> None:
    """Whether the former tasks had a part in it is not known, so nothing is taken back."""
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge()
    seen = Counter[TopicPartition]()

    def ends(alias: str, one: TopicPartition) -> int:
        seen[one] += 1
        return 105 if alias == "a" and seen[one] > 1 else 100

    site.ends = ends
    halted = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=3.0, rollback=True).halted["east"]
    assert halted.verdict == "inconclusive"
    assert "no record of" in halted.why


@pytest.mark.parametrize("reads", [0, 3])
def test_a_topic_that_is_taken_out_under_traffic_is_not_missed(site: Site, reads: int) -> None:
    """The former tasks had it, and what comes of it now is to stay away."""
    both = FLOWS.replace("[orders]}", "[orders, more]}")
    site.east.source_topics = {"orders": 1, "more": 2, "logs.web": 1}
    site.converge(both)
    site.east.restart_reads = (reads, 0)
    site.ends = Traffic(("orders", "more"), ("orders",))
    assert applied(site, site.plan(), wait_seconds=5.0, rollback=True).halted == {}


def test_a_topic_that_the_new_tasks_do_not_have_is_not_missed(site: Site) -> None:
    """A filter class of one's own, or a topic that is deleted at the source while it is looked at."""
    every = FLOWS.replace("[orders]}", '["orders.*"]}')
    site.east.source_topics = {"orders": 1, "orders.old": 1, "logs.web": 1}
    site.converge(every)
    site.ends = Traffic(("orders", "orders.old"), ("orders",))
    put = site.east._config

    def config(method: str, name: str, sent: Any) -> Any:
        answer = put(method, name, sent)
        if method == "PUT":
            site.east.source_topics = {"orders": 1, "logs.web": 1}
        return answer

    site.east._config = config  # type: ignore[method-assign]
    site.east.restart_reads = (2, 0)
    slowly = every.replace("targets: [", "refresh_interval: 7s, targets: [")
    assert applied(site, site.plan(slowly), slowly, wait_seconds=5.0, rollback=True).halted == {}


@pytest.mark.parametrize(("topics", "verdict"), [({"more": 1}, None), ({"orders": 1}, "failed")])
def test_a_connector_whose_last_topic_is_taken_out_has_no_tasks_and_is_good(
    site: Site, topics: dict[str, int], verdict: str | None
) -> None:
    assert site.kafka is not None
    other = FLOWS.replace("[orders]}", "[more]}")
    site.east.source_topics = {"more": 1, "logs.web": 1}
    site.converge(other)
    site.kafka["a"] = topics_with(topics)
    with_tasks_lost(site, ORDERS)
    seen = applied(site, site.plan(), wait_seconds=2.0, rollback=True)
    assert (seen.halted["east"].verdict if seen.halted else None) == verdict
    if verdict is None:
        assert seen.states["east", ORDERS] == Settled("RUNNING, no topic matches yet", "ok")


TRANSFORMED = FLOWS.replace(
    "[orders]}",
    "[orders]}, silence: {transform-renames: a test}, source_connector: {transforms: t, transforms.t.type: com.acme.Sieve}",
)
"""All records of `orders` are dropped, with connector and task RUNNING, by a plugin that nobody knows."""


def test_where_records_of_transforms_arrive_is_not_known_and_no_reason_to_take_back(site: Site) -> None:
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge(TRANSFORMED)
    site.ends = Traffic(("orders", "logs.web"), ("logs.web",))
    slowly = TRANSFORMED.replace("targets: [", "refresh_interval: 7s, targets: [")
    seen = applied(site, site.plan(slowly), slowly, wait_seconds=5.0, rollback=True)
    assert (seen.halted, [result for result in seen.results if result.rolled_back]) == ({}, [])
    what = "RUNNING, not known whether records arrive (its transforms may drop records, or rename their topics)"
    assert seen.states["east", ORDERS] == Settled(what, "ok")


def test_a_new_connector_whose_transforms_drop_all_that_is_there_is_good(site: Site) -> None:
    assert site.kafka is not None
    site.kafka["a"] = topics_with({"orders": 1, "logs.web": 1}, {"orders": 3000})
    seen = applied(site, site.plan(TRANSFORMED), TRANSFORMED, wait_seconds=2.0, rollback=True)
    assert seen.halted == {}
    assert seen.states["east", ORDERS].state.startswith("RUNNING, no record has arrived yet (its transforms may drop")


# --- what was so before -----------------------------------------------------------------------------------------------

SLOWLY_INVALID = INVALID.replace("targets: [", "refresh_interval: 7s, targets: [")


def test_a_task_that_failed_before_in_the_same_way_is_as_before(site: Site) -> None:
    """No fault of this update, which innocent connectors of the cluster keep."""
    site.converge(INVALID)
    seen = applied(site, site.plan(SLOWLY_INVALID), SLOWLY_INVALID, wait_seconds=5.0, rollback=True)
    assert (seen.halted, {result.rolled_back for result in seen.results}) == ({}, {False})
    assert seen.states["east", ORDERS] == Settled("RUNNING, 1 of 1 tasks FAILED, as before the update", "ok")


TRACE = """org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback
Caused by: org.apache.kafka.common.errors.{}"""


@pytest.mark.parametrize(
    ("after", "is_as_before"),
    [
        ("TimeoutException: Expiring 7 record(s) for a.logs.web-1:120001 ms has passed", True),
        ("TimeoutException: Topic a.orders not present in metadata after 60000 ms.", False),
        ("RecordTooLargeException: The message is 2000088 bytes", False),
    ],
)
def test_the_same_cause_at_another_partition_is_as_before(after: str, is_as_before: bool) -> None:
    before = TRACE.format("TimeoutException: Expiring 1 record(s) for a.orders-0:120000 ms has passed")
    shown = [
        ConnectorStatus(ORDERS, "RUNNING", tasks=(TaskStatus(0, "FAILED", trace=trace),))
        for trace in (before, TRACE.format(after))
    ]
    assert (_failures(shown[1]) <= _failures(shown[0])) is is_as_before


def test_a_task_that_fails_in_another_way_than_before_is_a_failure(site: Site) -> None:
    site.converge()
    site.east.connectors[ORDERS].failed_tasks = {0: "java.lang.OutOfMemoryError: Java heap space"}
    assert applied(site, site.plan(INVALID), INVALID, wait_seconds=5.0).halted["east"].verdict == "failed"


def test_a_canary_that_failed_before_proves_nothing(site: Site) -> None:
    site.converge(INVALID)
    seen = applied(site, site.plan(SLOWLY_INVALID), SLOWLY_INVALID, canary=frozenset({"orders:a->east"}))
    assert seen.halted["west"].why.startswith("the canary on Connect cluster 'east' is not good")


def test_a_connector_without_tasks_before_is_as_before(site: Site) -> None:
    """Its source does not answer the workers."""
    site.converge()
    site.east.connectors[ORDERS].forced_tasks = 0
    site.kafka = None
    seen = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=2.0, rollback=True)
    assert seen.halted == {}
    assert seen.states["east", ORDERS].verdict == "ok"
    assert seen.states["east", ORDERS].state.endswith(", as before the update")


@pytest.mark.parametrize(
    ("source_wrote", "arrived", "halts"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_records_that_did_not_arrive_before_either_are_no_reason_to_take_back(
    site: Site, source_wrote: bool, arrived: bool, halts: bool
) -> None:
    """A minute before the update tells: the source got records then, and the target none."""
    site.east.source_topics = {"orders": 1, "logs.web": 1}
    site.converge()
    site.ends, began = Traffic(("orders", "logs.web"), ("logs.web",)), time.time()

    def since(alias: str, one: TopicPartition, since_ms: int) -> int:
        wrote_at = began - (45 if source_wrote else 5)
        if alias == "a":
            return 7 if since_ms / 1000 <= wrote_at else 9
        return 5 if arrived else -1

    site.since = since
    seen = applied(site, site.plan(SLOWLY), SLOWLY, wait_seconds=2.0, rollback=True)
    assert bool(seen.halted) == halts
    if not halts:
        assert seen.states["east", ORDERS].state.endswith("as before the update")


def test_what_is_not_seen_to_run_pauses_for_a_person(site: Site) -> None:
    site.east.status_after_reads = 10_000
    seen = applied(site, site.plan(), wait_seconds=3.0, rollback=True)
    assert (seen.halted["east"].verdict, seen.halted["east"].left) == ("inconclusive", tuple(ON_EAST[1:]))
    assert site.names("east") == [HEARTBEAT], "what is not known to be wrong is not taken back"
    assert site.names("west") == sorted(ON_WEST)


def test_a_cluster_that_does_not_answer_any_more_pauses(site: Site) -> None:
    def silence(event: Event) -> None:
        seen.events.append(event)
        if isinstance(event, Result) and event.connect == "east":
            site.east.fail_next("GET", "/connectors", 401, times=1000)

    seen = Seen([])
    topology, _ = site.declare()
    plan = site.plan()
    asyncio.run(
        apply_plan(
            topology, plan, rollout=Rollout(3.0, rollback=True), report=silence, limits=Limits(write_seconds=20.0)
        )
    )
    assert seen.halted["east"].verdict == "inconclusive"
    assert "unknown: Connect cluster 'east'" in seen.halted["east"].why


def test_a_connector_that_fails_later_halts_too(site: Site) -> None:
    """It was good when its own wave was looked at."""

    def fail_the_heartbeat(event: Event) -> None:
        seen.events.append(event)
        if isinstance(event, WaveVerified) and event.number == 1 and event.connect == "east":
            site.east.connectors[HEARTBEAT].failed_tasks = {0: "trace"}

    seen = Seen([])
    topology, _ = site.declare()
    plan = site.plan()
    asyncio.run(
        apply_plan(topology, plan, rollout=Rollout(20.0), report=fail_the_heartbeat, limits=Limits(write_seconds=20.0))
    )
    assert seen.halted["east"].left == (CHECKPOINT,)
    assert HEARTBEAT in seen.halted["east"].why


def test_a_write_that_is_refused_halts_nobody(site: Site) -> None:
    site.east.fail_next("POST", "/connectors", 400, "refused", times=1)
    seen = applied(site, site.plan())
    assert list(errors(seen.results)) == [HEARTBEAT]
    assert seen.halted == {}
    assert site.names("east") == sorted(ON_EAST[1:])


def test_without_a_wait_nothing_is_looked_at_and_all_is_written(site: Site) -> None:
    seen = applied(site, site.plan(INVALID), INVALID, wait_seconds=0.0)
    assert (seen.halted, seen.states) == ({}, {})
    assert site.names("east") == sorted(ON_EAST)


def test_a_wave_has_at_most_so_many_connectors(site: Site) -> None:
    seen = applied(site, site.plan(), at_once=1)
    assert seen.waves["east"] == [(name,) for name in ON_EAST]


# --- the canary -------------------------------------------------------------------------------------------------------


def test_the_canary_is_good_before_anything_else_begins(site: Site) -> None:
    seen = applied(site, site.plan(), canary=frozenset({"orders:a->east"}))
    begun = [event for event in seen.events if isinstance(event, WaveBegun)]
    assert [wave.connectors for wave in begun[:3]] == [(HEARTBEAT,), (ORDERS,), (CHECKPOINT,)]
    assert {wave.connect for wave in begun[:3]} == {"east"}
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))


def test_a_bad_canary_keeps_every_cluster_as_it_is(site: Site) -> None:
    seen = applied(site, site.plan(INVALID), INVALID, canary=frozenset({"orders:a->east"}), rollback=True)
    assert (site.names("east"), site.names("west")) == ([], [])
    assert {halted.verdict for halted in seen.halted.values()} == {"failed"}
    assert seen.halted["west"].why.startswith("the canary on Connect cluster 'east' is not good: ")
    assert seen.halted["west"].left == tuple(ON_WEST)


def test_a_canary_that_was_refused_is_not_good(site: Site) -> None:
    site.east.fail_next("POST", "/connectors", 400, "refused", times=1)
    seen = applied(site, site.plan(), canary=frozenset({"orders:a->east"}))
    assert site.names("west") == []
    assert "refused" in seen.halted["east"].why


def test_a_canary_without_changes_is_looked_at(site: Site) -> None:
    """The second apply after a bad canary must not go on as if it had never been bad."""
    site.converge()
    del site.west.connectors[ON_WEST[0]]
    site.east.connectors[ORDERS].failed_tasks = {0: "trace"}
    plan = site.plan()
    seen = applied(site, plan, canary=frozenset({"orders:a->east"}))
    assert seen.halted["west"].left == (ON_WEST[0],)
    site.east.connectors[ORDERS].failed_tasks = {}
    assert applied(site, plan, canary=frozenset({"orders:a->east"})).halted == {}
    assert site.names("west") == sorted(ON_WEST)


# --- taking back ------------------------------------------------------------------------------------------------------


def test_what_was_created_is_deleted_again(site: Site) -> None:
    seen = applied(site, site.plan(INVALID), INVALID, rollback=True)
    assert site.names("east") == []
    assert site.names("west") == sorted(ON_WEST)
    assert {result.connector for result in seen.results if result.rolled_back} == {HEARTBEAT, LOGS, ORDERS}
    assert not any(result.is_done for result in seen.results if result.connect == "east")
    assert not [name for _, name in seen.states if name in ON_EAST]


def test_configs_and_states_are_as_before(site: Site) -> None:
    site.converge()
    site.east.connectors[LOGS].state = "PAUSED"
    before = live(site)
    both = INVALID.replace('["logs[.].*"]}', '["logs[.].*"]}, state: running, source_consumer: {max.poll.records: 7}')
    seen = applied(site, site.plan(both), both, rollback=True)
    after = live(site)
    assert seen.halted["east"].verdict == "failed"
    assert {name: after[name] for name in after if "east/" in name} == {
        name: before[name] for name in before if "east/" in name
    }
    assert seen.states["east", ORDERS].state == "RUNNING"
    assert seen.states["east", LOGS].state == "PAUSED"


def test_what_somebody_else_changed_meanwhile_is_left_alone(site: Site) -> None:
    site.converge()
    broken = INVALID.replace("targets: [", "refresh_interval: 7s, targets: [")

    def meddle(event: Event) -> None:
        seen.events.append(event)
        if isinstance(event, Result) and event.connector == LOGS and event.connect == "east":
            site.east.connectors[LOGS].config[OWNER_KEY] = "them"

    seen = Seen([])
    topology, _ = site.declare(broken)
    plan = site.plan(broken)
    rollout = Rollout(20.0, rollback=True)
    results = asyncio.run(apply_plan(topology, plan, rollout=rollout, report=meddle, limits=Limits(write_seconds=20.0)))
    kept = {result.connector: result.error for result in results if result.error}
    assert kept == {LOGS: "not rolled back: it was changed since"}
    assert site.east.connectors[LOGS].config[OWNER_KEY] == "them"
    assert site.east.connectors[ORDERS].config["source.consumer.fetch.max.bytes"] != "-5"


def test_a_deleted_connector_comes_back_with_its_state(site: Site) -> None:
    """Deletes are the last wave; it is looked at too."""
    site.converge()
    site.east.connectors[LOGS].state = "STOPPED"
    fewer = FLOWS.replace("targets: [east, west]", "targets: [west]").replace("[orders]}", "[orders, more]}")
    before = live(site)

    def break_at_the_end(event: Event) -> None:
        seen.events.append(event)
        if isinstance(event, Result) and event.action == "delete":
            site.east.connectors[ORDERS].failed_tasks = {0: "trace"}
        if isinstance(event, Halted | RolledBack):
            site.east.connectors[ORDERS].failed_tasks = {}

    seen = Seen([])
    plan = site.plan(fewer, prune=True)
    topology, _ = site.declare(fewer)
    rollout = Rollout(20.0, rollback=True)
    asyncio.run(apply_plan(topology, plan, rollout=rollout, report=break_at_the_end, limits=Limits(write_seconds=20.0)))
    assert seen.halted["east"].verdict == "failed"
    assert live(site) == before


@pytest.mark.parametrize("seed", range(12))
def test_after_a_rollback_live_is_what_it_was(site: Site, seed: int) -> None:
    """Random states, changes and breaks; what is rolled back is equal, and what is not was somebody else's."""
    dice = random.Random(seed)
    flows = "flows:\n"
    for number in range(5):
        flows += f"  f{number}: {{sources: [a], targets: [east], topics: {{include: [t{number}]}}}}\n"
    site.kafka = None
    site.converge(flows)
    for connector in site.east.connectors.values():
        if dice.random() < 0.3:
            connector.state = dice.choice(["PAUSED", "STOPPED"])
    lines = flows.splitlines(keepends=True)
    chosen = [line for line in lines[1:] if dice.random() < 0.8]
    states = ["", ", state: running", ", state: paused", ", state: stopped"]
    changed = [
        line.replace(
            "]}}", "]}" + dice.choice(["", ", source_consumer: {max.poll.records: 7}"]) + dice.choice(states) + "}"
        )
        for line in chosen
    ]
    new = "  new: {sources: [a], targets: [west], topics: {include: [new]}, run_on: east}\n"
    wanted = lines[0] + "".join(changed) + (new if dice.random() < 0.5 else "")
    wanted = wanted if chosen else flows.replace("[t0]}", "[t0]}, source_consumer: {max.poll.records: 9}")
    plan = site.plan(wanted, prune=True)
    broken = dice.choice([change.connector for change in plan.writes if change.action != "delete"] or [""])
    before = live(site)

    def break_one(event: Event) -> None:
        seen.events.append(event)
        if isinstance(event, Result) and event.connector == broken and event.error is None:
            site.east.connectors[broken].shown_state = "FAILED"
        if isinstance(event, RolledBack) and broken in site.east.connectors:
            site.east.connectors[broken].shown_state = None

    seen = Seen([])
    topology, _ = site.declare(wanted)
    rollout = Rollout(20.0, dice.choice([None, 1, 2]), rollback=True)
    results = asyncio.run(
        apply_plan(topology, plan, rollout=rollout, report=break_one, limits=Limits(write_seconds=20.0))
    )
    assert errors(results) == {}
    if broken:
        assert seen.halted["east"].verdict == "failed"
        assert live(site) == before
        again = actions(site.plan(wanted, prune=True))
        assert again == actions(plan), "nothing is left of it"


def test_a_rollback_brings_back_nothing_that_another_connect_cluster_has_begun(site: Site) -> None:
    beside = "  beside: {sources: [west], targets: [east], run_on: east, topics: {include: [bills]}}\n"
    flows = FLOWS.replace("[east, west]", "[east]") + beside
    site.kafka = (site.kafka or {}) | {"west": topics_with({"bills": 1})}
    site.converge(flows)
    site.fakes["west"].cluster_id = "east"
    elsewhere = flows.replace("targets: [east], topics", "targets: [east], run_on: west, topics")
    elsewhere = elsewhere.replace("[bills]}", "[bills]}, tasks: {max: 3}")
    with_tasks_lost(site, "mm2.west.east.source.beside")
    plan = site.plan(elsewhere, prune=True, mirror_again=True, allow=["deletes"])
    seen = applied(site, plan, elsewhere, wait_seconds=2.0, rollback=True)
    assert seen.halted["east"].verdict == "failed"
    assert LOGS in site.names("west")
    assert LOGS not in site.names("east")
    whys = {each.connector: each.error for each in seen.results if each.connect == "east" and each.error}
    assert whys[LOGS] == "not rolled back: what followed it on another Connect cluster stays"
