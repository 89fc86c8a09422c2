"""`delivery: exactly_once` on real workers that are killed in the middle, and the way there from at_least_once.

Workers live on the target's own Kafka (a->b on `near`) and on a third one (b->a on `third`). Source log against target log,
record by record, as a reader of committed records sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from mm2mgr.comparison.ownership import Journal, place
from mm2mgr.demo.story import GROUP, RATES, Traffic
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import start_all

from .command import Tree
from .conftest import WORKER, serving
from .record_ids import PartitionProof, prove, read_ids
from .seen import (
    DEADLINE_SECONDS,
    Message,
    admin,
    config_of,
    connector_url,
    create,
    end_offset,
    messages,
    rest,
    statuses,
    task_configs,
    topics,
    until,
    write,
)

pytestmark = pytest.mark.live
ENABLED = {"exactly.once.source.support": "enabled"}
# What a killed worker leaves behind is waited for that long, 60 s by default: its place in a rebalance, and its open
# transactions, which keep a worker that starts from reading its own topic of offsets to the end.
QUICK = WORKER | {"rebalance.timeout.ms": "6000", "producer.transaction.timeout.ms": "10000"}
LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
KILLS = 2
PARTITIONS = [TopicPartition(topic, number) for topic, rates in RATES.items() for number in range(len(rates))]


@dataclass(frozen=True)
class World:
    """Three Kafka clusters; `c` is nobody's source or target."""

    a: Broker
    b: Broker
    c: Broker
    folder: Path
    runtime: Runtime

    def access(self, alias: str) -> KafkaAccess:
        broker: Broker = getattr(self, alias)
        return KafkaAccess(alias, broker.bootstrap_servers)

    def workers(self, prefix: str, properties: dict[str, str]) -> tuple[Worker, Worker]:
        """Return a worker on b, which the flow a->b writes to, and one on c."""
        near, third = (
            Worker(f"{prefix}{name}", self.folder / f"{prefix}{name}", kafka, QUICK | properties, runtime=self.runtime)
            for name, kafka in (("near", self.b.bootstrap_servers), ("third", self.c.bootstrap_servers))
        )
        return near, third

    def yaml(self, workers: tuple[Worker, Worker], flows: str, connect: str = "") -> str:
        addresses = {alias: self.access(alias).bootstrap_servers for alias in ("a", "b", "c")}
        clusters = "".join(f'  {alias}: {{bootstrap_servers: ["{kafka}"]}}\n' for alias, kafka in addresses.items())
        near, third = workers
        return f"""\
owner: {near.name}
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{refresh_interval: 2s}}
clusters:
{clusters}connect:
  near: {{url: "{near.url}", kafka: b{connect}}}
  third: {{url: "{third.url}", kafka: c{connect}}}
links: [{{between: [a, b], rtt: 100ms}}, {{between: [a, c], rtt: 100ms}}, {{between: [b, c], rtt: 80ms}}]
flows:
{flows}"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("once")
    a, b, c = (Broker(name, folder / name, LOOKS_OFTEN, runtime=runtime) for name in "abc")
    with serving([a, b, c]):
        yield World(a, b, c, folder, runtime)


def at_once(*calls: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(calls)) as threads:
        for one in [threads.submit(call) for call in calls]:
            one.result()


def all_running(worker: Worker, connectors: int) -> bool:
    found = statuses(worker.url).values()
    states = [part["state"] for one in found for part in (one["connector"], *one["tasks"])]
    return len(found) == connectors and all(one["tasks"] for one in found) and set(states) == {"RUNNING"}


def settings_of(access: KafkaAccess, topic: str) -> dict[str, str]:
    client, resource = admin(access), ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in client.describe_configs([resource])[resource].result(20).items()}


# --- workers that are killed ------------------------------------------------------------------------------------------

# One flow of each pair shares its workers with an exactly-once one, and so is mirrored in transactions too.
KILLED = """\
  there: {sources: [a], targets: [b], topics: {include: ["app[.].*"]}, delivery: exactly_once, checkpoints: {interval: 1s}}
  there-log: {sources: [a], targets: [b], topics: {include: [audit.log]}, checkpoints: {interval: 1s}}
  back:
    sources: [b]
    targets: [a]
    run_on: third
    topics: {include: ["app[.].*"]}
    delivery: exactly_once
    tasks: {max: 2}
    checkpoints: {interval: 1s}
  back-log: {sources: [b], targets: [a], run_on: third, topics: {include: [audit.log]}, checkpoints: {interval: 1s}}
"""


def verdicts(world: World, source: str, target: str) -> list[PartitionProof]:
    there = topics(world.access(target))
    remote = [TopicPartition(f"{source}.{one.topic}", one.partition) for one in PARTITIONS]
    sent = read_ids(world.access(source), PARTITIONS)
    got = read_ids(world.access(target), [one for one in remote if one.topic in there])
    return prove(sent, got, f"{source}.")


def kill_in_the_middle(world: World, workers: tuple[Worker, Worker]) -> None:
    """Kill both workers once records have crossed since they started, and start them again."""
    before = [end_offset(world.access(target), f"{source}.app.orders") for source, target in ("ab", "ba")]
    until(
        lambda: [end_offset(world.access(target), f"{source}.app.orders") for source, target in ("ab", "ba")],
        lambda now: all(new > old + 100 for new, old in zip(now, before, strict=True)),
        "no records crossed",
    )
    for worker in workers:
        worker.kill()
    start_all(workers)


REFUSED_TRANSACTIONS = ("InvalidTxnStateException", "before its producer transaction expired")


def revived(worker: Worker) -> bool:
    """Restart the tasks that failed for a transaction on busy cores, and tell whether there were any.

    Either it lasted longer than the ten seconds of these tests, or Kafka's coordinator refused a commit after it had
    made it. The second was seen with Kafka 4.3.1, in the coordinator's log as `state is COMPLETE_COMMIT, but received
    transaction marker result to send: COMMIT`; KAFKA-20785 is of the same kind. `mm2mgr watch` restarts such tasks.
    """
    refused = [
        connector_url(worker.url, name, f"/tasks/{task['id']}/restart")
        for name, status in statuses(worker.url).items()
        for task in status["tasks"]
        if task["state"] == "FAILED" and any(reason in task["trace"] for reason in REFUSED_TRANSACTIONS)
    ]
    for url in refused:
        rest("POST", url)
    return bool(refused)


def test_nothing_is_lost_or_duplicated_when_workers_are_killed(world: World, tree: Tree) -> None:
    workers = world.workers("", ENABLED)
    with serving([*workers]):
        with Traffic(world.access("a"), scale=0.25) as there, Traffic(world.access("b"), scale=0.25) as back:
            tree.write(world.yaml(workers, KILLED))
            said = tree.attempt("apply", "--yes")
            assert "Applied: 8 of 8 changes" in said, said
            assert "FAILED" not in said or [one for one in workers if revived(one)], said
            until(
                lambda: {"b.app.orders", "a.app.orders"} <= {*topics(world.access("a")), *topics(world.access("b"))},
                bool,
            )
            for _ in range(KILLS):
                kill_in_the_middle(world, workers)
            at_once(there.stop, back.stop)
        for source, target in ("ab", "ba"):
            assert_exact(world, source, target, workers)
            assert_beats_and_checkpoints(world, source, target)
        until(
            lambda: [all_running(worker, 4) for worker in workers if not revived(worker)],
            lambda running: running == [True, True],
            "not all RUNNING with a task",
        )
        assert "4 unchanged" in tree.run("plan", "there", "there-log")
        until(lambda: tree.json("status")["health"], lambda health: health == "ok", "not healthy")
        assert_offsets_live_beside_the_records(world)


def assert_exact(world: World, source: str, target: str, workers: Iterable[Worker]) -> None:
    found = until(
        lambda: verdicts(world, source, target),
        lambda found: not any(revived(one) for one in workers) and not sum(one.missing for one in found),
        "not all that was sent can be read as committed",
        2 * DEADLINE_SECONDS,  # what waits after the kills, on a busy machine
    )
    assert [one for one in found if not one.exact] == []
    assert sum(one.records for one in found) > 1000


def assert_beats_and_checkpoints(world: World, source: str, target: str) -> None:
    beats = len(messages(world.access(target), f"{source}.heartbeats"))
    until(lambda: len(messages(world.access(target), f"{source}.heartbeats")), lambda count: count > beats, "no beat")
    checkpoints = messages(world.access(target), f"{source}.checkpoints.internal")
    assert any(GROUP.encode() in (one.key or b"") for one in checkpoints)


def assert_offsets_live_beside_the_records(world: World) -> None:
    """`third` writes to a, and its heartbeats to b; `near` writes to its own Kafka, and its heartbeats to a."""
    on = {alias: {name for name in topics(world.access(alias)) if "offsets" in name} for alias in "abc"}
    ours = {alias: {name for name in names if name.startswith("mm2mgr-")} for alias, names in on.items()}
    assert ours == {
        "a": {"mm2mgr-offsets.near.internal", "mm2mgr-offsets.third.internal"},
        "b": {"mm2mgr-offsets.third.internal"},
        "c": set(),
    }
    assert settings_of(world.access("a"), "mm2mgr-offsets.third.internal")["cleanup.policy"] == "compact"
    strangers = {
        name for name in topics(world.access("c")) if not re.match("__|connect-third-|mm2mgr[.]history[.]", name)
    }
    assert strangers == set(), "records went to the workers' own Kafka"


# --- from at_least_once to exactly_once -------------------------------------------------------------------------------


def switched(delivery: str) -> str:
    more = f"delivery: {delivery}, checkpoints: false, heartbeats: false, topics: {{include: [switched]}}"
    return f"""\
  there: {{sources: [a], targets: [b], {more}}}
  back: {{sources: [b], targets: [a], run_on: third, {more}}}
"""


def arrive(world: World, source: str, target: str, wanted: int) -> None:
    """Wait until numbers up to `wanted` have crossed: each once and in order, no other record with them."""
    found = until(
        lambda: [int(one.value or b"-1") for one in messages(world.access(target), f"{source}.switched")],
        lambda found: len(found) >= wanted,
        "did not cross",
    )
    assert found == list(range(wanted))


def cross(world: World, numbers: range) -> None:
    """Write these numbers on both sides, and see that nothing else crossed in all."""
    for alias in ("a", "b"):
        write(world.access(alias), "switched", [Message(0, None, str(number).encode()) for number in numbers])
    for source, target in ("ab", "ba"):
        arrive(world, source, target, numbers.stop)


def required(worker: Worker, name: str) -> bool:
    """Whether the new config has reached the tasks."""
    found = task_configs(worker.url, name)
    return bool(found) and all(config.get("exactly.once.support") == "required" for config in found)


def cut_short(worker: Worker, tree: Tree, name: str) -> None:
    """Leave behind what is left when mm2mgr is killed with the new place of its offsets written, but not the offsets."""
    wanted = next(one.config for one in tree.workspace().connectors if one.name == name)
    left = Journal("RUNNING", place(config_of(worker.url, name))).added_to({**wanted, "enabled": "false"})
    rest("PUT", connector_url(worker.url, name, "/stop"))
    until(lambda: statuses(worker.url)[name], lambda one: (one["connector"]["state"], one["tasks"]) == ("STOPPED", []))
    rest("PUT", connector_url(worker.url, name, "/config"), left)
    # The topic is there since the test before, with offsets of other topics: they must neither count nor stay.
    found = rest("GET", connector_url(worker.url, name, "/offsets"))["offsets"]
    mine = [one["offset"] for one in found if one["partition"]["topic"] == "switched"]
    assert mine == [None], "resumed now, it would mirror everything again"


def test_a_running_flow_is_switched_over_and_goes_on_where_it_was(world: World, tree: Tree) -> None:
    workers = world.workers("switched-", {})
    for alias in ("a", "b"):
        create(world.access(alias), ["switched"])
    with serving([*workers]):
        tree.write(world.yaml(workers, switched("exactly_once")))
        before = [topics(world.access(alias)) for alias in "abc"]
        tree.run("apply", "--yes", code=1)  # these workers are not exactly-once
        assert [rest("GET", f"{worker.url}/connectors") for worker in workers] == [[], []]
        assert [topics(world.access(alias)) for alias in "abc"] == before

        tree.write(world.yaml(workers, switched("at_least_once")))
        tree.run("apply", "--yes")
        cross(world, range(300))

        # The overrides first: from the moment its workers are exactly-once, a flow without them would be astray.
        tree.write(world.yaml(workers, switched("at_least_once"), ", exactly_once: true"))
        cut_short(workers[1], tree, "mm2.b.a.source.back")
        assert "do not resume it by hand" in tree.run("status", code=1)
        planned = tree.run("plan")
        assert "0 to create, 1 to update, 0 to delete, 1 unchanged" in planned
        assert "finishes moving its stored offsets, then RUNNING again" in planned
        tree.run("apply", "--yes")
        cross(world, range(300, 400))

        at_once(*(worker.stop for worker in workers))
        for worker in workers:
            worker.properties |= ENABLED
        start_all(workers)
        cross(world, range(400, 500))

        tree.write(world.yaml(workers, switched("exactly_once"), ", exactly_once: true"))
        assert "0 to create, 2 to update, 0 to delete, 0 unchanged" in tree.run("plan")
        tree.run("apply", "--yes")
        for worker, name in zip(workers, ("mm2.a.b.source.there", "mm2.b.a.source.back"), strict=True):
            until(lambda: all_running(worker, 1) and required(worker, name), bool, "not RUNNING exactly-once")  # noqa: B023
        cross(world, range(500, 800))
