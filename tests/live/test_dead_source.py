"""A source that dies beside a healthy flow on the same worker: what that does to the healthy flow's stored offsets.

Connect commits the offsets of all tasks of a worker in one thread, and in it MirrorMaker writes the offset syncs of each task
to the task's source. Two Connect clusters see the same outage: one runs what mm2mgr writes, the other Kafka's own max.block.ms.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import confluent_kafka
import pytest

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.reading import Patience
from mm2mgr.problems.status import status
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import start_all

from .command import Tree
from .conftest import WORKER, serving
from .seen import connector_url, create, end_offset, messages, rest, task_configs, until, values

pytestmark = pytest.mark.live
PARTITIONS = 4  # of the dying topic: the commit thread waits max.block.ms for each
RECORDS_A_SECOND = 20
DEAD_SECONDS = 14.0
SETTLED_SECONDS = 6.0  # 4 x 0.5 s, a flush interval, and a machine with other things to do
STANDSTILL_SECONDS = 10.0
OUTAGES = 4
NOT_STORED = "offsets-not-stored"
BLOCK_MS = {"ours": "500", "kafkas": "60000"}
# The client forgets a dead broker after a second or two; only an offset sync that is due later than that waits for it.
FLUSH_MS = {"ours": "1000", "kafkas": "5000"}


@dataclass(frozen=True)
class Group:
    """A Connect cluster with two flows: topic `alive` of a source that stays, topic `dying` of one that does not."""

    name: str
    worker: Worker
    agg: KafkaAccess

    @property
    def alias(self) -> str:
        return f"dc1-{self.name}"

    @property
    def mirrored(self) -> str:
        return f"{self.alias}.alive"

    @property
    def dying(self) -> str:
        return f"dc2-{self.name}.dying"

    def yaml(self, dc1: KafkaAccess, dc2: KafkaAccess) -> str:
        # The second group is there to show what happens without the default.
        block = "" if self.name == "ours" else ", offset_syncs_producer: {max.block.ms: null}"
        return f"""\
owner: {self.name}
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{checkpoints: false, heartbeats: false, refresh_interval: 2s{block}}}
clusters:
  {self.alias}: {{bootstrap_servers: ["{dc1.bootstrap_servers}"]}}
  dc2-{self.name}: {{bootstrap_servers: ["{dc2.bootstrap_servers}"]}}
  agg: {{bootstrap_servers: ["{self.agg.bootstrap_servers}"]}}
connect:
  {self.name}: {{url: ["{self.worker.url}"], kafka: agg}}
flows:
  alive: {{sources: [{self.alias}], targets: [agg], topics: {{include: [alive]}}}}
  dying: {{sources: [dc2-{self.name}], targets: [agg], topics: {{include: [dying]}}}}
"""

    def stored(self) -> int:
        """Return the source offset that Connect has stored for the healthy flow, -1 before there is one."""
        url = connector_url(self.worker.url, f"mm2.{self.alias}.agg.source.alive", "/offsets")
        return max((entry["offset"]["offset"] for entry in rest("GET", url)["offsets"]), default=-1)

    def wait_for_dying(self) -> None:
        """Wait until records of the other source arrive from all its partitions."""
        before = len(messages(self.agg, self.dying))

        def arrived() -> bool:
            found = messages(self.agg, self.dying)
            return len({one.partition for one in found}) == PARTITIONS and len(found) > before + RECORDS_A_SECOND

        until(arrived, bool)

    def block_ms(self) -> str:
        """Return what the dying flow's offset-syncs producer was started with."""
        name = f"mm2.dc2-{self.name}.agg.source.dying"
        [task] = until(lambda: task_configs(self.worker.url, name), bool)
        return task.get("source.producer.max.block.ms", "60000")


@dataclass(frozen=True)
class Look:
    """The healthy flow at a moment of the outage: offset stored, records at the target."""

    second: float
    stored: int
    arrived: int


@dataclass(frozen=True)
class Outage:
    """What a group saw: its flow while the other source was dead, and its topic after the worker was killed and came back; `told`
    are the kinds of problems that `status` had meanwhile."""

    block_ms: str
    linted: frozenset[str]
    told: frozenset[str]
    looks: tuple[Look, ...]
    copies: Counter[bytes | None]
    written: int

    @property
    def twice(self) -> int:
        return sum(self.copies.values()) - len(self.copies)


@contextmanager
def writing(access: KafkaAccess, topic: str, partitions: int = 1) -> Iterator[list[bytes]]:
    """Write records to every partition until the block ends; the list grows by each value. The broker may go meanwhile."""
    written: list[bytes] = []
    over = threading.Event()

    def write() -> None:
        producer = confluent_kafka.Producer(
            {**librdkafka_config(access), "message.timeout.ms": 2_000 if partitions > 1 else 30_000, "log_level": 0}
        )
        for number in count():
            for partition in range(partitions):
                written.append(f"{partition}-{number}".encode())
                producer.produce(topic, written[-1], partition=partition)
            producer.poll(0)
            if over.wait(1 / RECORDS_A_SECOND):
                break
        producer.flush(35)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


def watch(groups: list[Group]) -> dict[str, tuple[Look, ...]]:
    looks: dict[str, list[Look]] = {group.name: [] for group in groups}
    begun = time.monotonic()
    while (second := time.monotonic() - begun) < DEAD_SECONDS:
        for group in groups:
            looks[group.name].append(Look(second, group.stored(), end_offset(group.agg, group.mirrored)))
        time.sleep(0.25)
    return {name: tuple(found) for name, found in looks.items()}


def outage(groups: list[Group], broker: Broker, dc2: KafkaAccess) -> dict[str, tuple[Look, ...]]:
    """Kill the dying source and watch; again where its last offset syncs had just been sent, so that nothing had to wait."""
    for _ in range(OUTAGES):
        with writing(dc2, "dying", PARTITIONS):
            for group in groups:
                group.wait_for_dying()
            broker.kill()
        looks = watch(groups)
        if standstill_seconds(looks["kafkas"]) > STANDSTILL_SECONDS:
            break
        start_all([broker])
    return looks


def standstill_seconds(looks: tuple[Look, ...]) -> float:
    """Return the longest time without a newly stored offset."""
    moved = [looks[0].second]
    moved += [later.second for before, later in pairwise(looks) if later.stored > before.stored]
    return max(later - before for before, later in pairwise([*moved, looks[-1].second]))


def told_by_status(trees: dict[str, Tree], folder: Path) -> dict[str, frozenset[str]]:
    """Look at both groups until the control group's stored offsets are a problem; return the kinds of problems of the last look."""
    patience = Patience(not_stored_seconds=SETTLED_SECONDS)

    def look(name: str) -> frozenset[str]:
        workspace, own = trees[name].workspace(), folder / f"status-{name}"
        options = ObserveOptions(
            kafka_seconds=2.0,
            patience=patience,
            memory_file=own / "memory.json",
            store=own / "store",
        )
        found = asyncio.run(status(workspace.topology, workspace.connectors, options=options))
        return frozenset(problem.kind for problem in found.problems())

    def every() -> dict[str, frozenset[str]]:
        return {name: look(name) for name in trees}

    return until(every, lambda told: NOT_STORED in told["kafkas"], "status does not tell that offsets are not stored")


@pytest.fixture(scope="module")
def outages(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[dict[str, Outage]]:
    folder = tmp_path_factory.mktemp("dead-source")
    brokers = [Broker(name, folder / name, runtime=runtime) for name in ("dc1", "dc2", "agg")]
    with ExitStack() as stack:
        stack.enter_context(serving(brokers))
        dc1, dc2, agg = (KafkaAccess(broker.name, broker.bootstrap_servers) for broker in brokers)
        groups = [
            Group(name, Worker(name, folder / name, agg.bootstrap_servers, WORKER | flush, runtime=runtime), agg)
            for name in BLOCK_MS
            for flush in [{"offset.flush.interval.ms": FLUSH_MS[name]}]
        ]
        workers = [group.worker for group in groups]
        stack.enter_context(serving(workers))
        create(dc1, ["alive"])
        create(dc2, ["dying"], PARTITIONS)
        linted, trees = {}, {}
        for group in groups:
            tree = trees[group.name] = Tree(folder / f"tree-{group.name}" / "clusters")
            tree.write(group.yaml(dc1, dc2))
            tree.run("apply", "--yes")
            found = tree.json("lint", "--connect", group.worker.url)["findings"]
            linted[group.name] = frozenset(each["connector"] for each in found if each["rule"] == "offset-syncs-block")
        with writing(dc1, "alive") as written:
            for group in groups:
                until(group.stored, lambda offset: offset > RECORDS_A_SECOND)
            looks = outage(groups, brokers[1], dc2)
            told = told_by_status(trees, folder)
            blocks = {group.name: group.block_ms() for group in groups}
            for worker in workers:
                worker.kill()
            start_all(workers)
        wanted = set(written)
        for group in groups:
            until(
                lambda topic=group.mirrored: set(values(agg, topic)),
                lambda found: found == wanted,
                "records are missing",
            )
        yield {
            group.name: Outage(
                blocks[group.name],
                linted[group.name],
                told[group.name],
                looks[group.name],
                Counter(values(agg, group.mirrored)),
                len(wanted),
            )
            for group in groups
        }


def test_a_dead_source_does_not_hold_up_the_offsets_of_a_healthy_flow(outages: dict[str, Outage]) -> None:
    ours = outages["ours"]
    assert ours.block_ms == BLOCK_MS["ours"]
    assert standstill_seconds(ours.looks) < SETTLED_SECONDS
    lags = [look.arrived - 1 - look.stored for look in ours.looks if look.second > SETTLED_SECONDS]
    assert lags
    assert max(lags) < SETTLED_SECONDS * RECORDS_A_SECOND


def test_lint_names_the_connectors_on_real_workers(outages: dict[str, Outage]) -> None:
    assert outages["ours"].linted == frozenset()
    assert outages["kafkas"].linted == {"mm2.dc1-kafkas.agg.source.alive", "mm2.dc2-kafkas.agg.source.dying"}


def test_status_tells_of_the_flow_that_a_dead_source_holds_up(outages: dict[str, Outage]) -> None:
    assert NOT_STORED in outages["kafkas"].told
    assert NOT_STORED not in outages["ours"].told


def test_a_worker_killed_meanwhile_repeats_little_of_the_healthy_flow(outages: dict[str, Outage]) -> None:
    assert outages["ours"].twice < SETTLED_SECONDS * RECORDS_A_SECOND
    assert len(outages["ours"].copies) == outages["ours"].written


def test_with_kafkas_own_timeout_the_offsets_stand_still_while_records_arrive(outages: dict[str, Outage]) -> None:
    """The control group: without the default."""
    kafkas = outages["kafkas"]
    assert kafkas.block_ms == BLOCK_MS["kafkas"]
    assert standstill_seconds(kafkas.looks) > STANDSTILL_SECONDS
    arrived = kafkas.looks[-1].arrived - kafkas.looks[0].arrived
    assert arrived > STANDSTILL_SECONDS * RECORDS_A_SECOND / 2
    assert kafkas.twice > STANDSTILL_SECONDS * RECORDS_A_SECOND / 2, "a restarted worker repeats what was not stored"
    assert kafkas.twice > 3 * outages["ours"].twice
