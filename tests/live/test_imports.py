"""`mm2mgr import` of what runs, under traffic: connectors of two Connect clusters, a dedicated MirrorMaker, a MirrorMaker 1."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.kafka.access import librdkafka_config
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime

from .command import Tree
from .days import World, difference, estate
from .dedicated import Dedicated
from .seen import commit_all, end_offset, is_transient, log_end, statuses, task_configs, topics, until
from .traffic import Entry, producing

pytestmark = [pytest.mark.live, pytest.mark.matrix]
PARTITIONS = 2
SOURCE, CHECKPOINT, HEARTBEAT = (
    f"org.apache.kafka.connect.mirror.Mirror{kind}Connector" for kind in ("Source", "Checkpoint", "Heartbeat")
)
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
QUIET_SECONDS = 60.0
"""So long no record may arrive while a dedicated MirrorMaker is taken over."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    with estate(tmp_path_factory.mktemp("imports"), runtime, ("dc1", "dc2", "agg"), {}) as world:
        yield world


@pytest.fixture
def clean(world: World) -> World:
    world.clear()
    return world


def by_hand(world: World, type_: str, source: str, target: str, **more: str) -> dict[str, str]:
    """Return a config as people write it; `__` in a name of `more` is a dot."""
    servers = {name: access.bootstrap_servers for name, access in world.kafkas.items()}
    factors = {
        SOURCE: ("replication.factor", "offset-syncs.topic.replication.factor"),
        CHECKPOINT: ("checkpoints.topic.replication.factor",),
        HEARTBEAT: ("heartbeats.topic.replication.factor",),
    }
    return {
        "connector.class": type_,
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": servers[source],
        "target.cluster.bootstrap.servers": servers[target],
        **dict.fromkeys(factors[type_], "1"),
        **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


_REFRESH = {"refresh__topics__interval__seconds": "2"}
_ROUTED = {
    "transforms": "route",
    "transforms__route__type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms__route__regex": "dc1[.](.*)",
    "transforms__route__replacement": "routed-$1",
}
_FILTERED = {
    "transforms": "drop",
    "transforms__drop__type": "org.apache.kafka.connect.transforms.Filter",
    "transforms__drop__predicate": "empty",
    "predicates": "empty",
    "predicates__empty__type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}
_DEAD = {
    "target__producer__batch__size": "262144",
    "producer__linger__ms": "100",
    "emit__checkpoint__enabled": "false",
    "source__cluster__consumer__fetch__min__bytes": "1000",
    "enabled": "true",
}


def connectors(world: World) -> dict[str, dict[str, dict[str, str]]]:
    """Return the twelve connectors by Connect cluster and name."""
    syncs = {"sync__topic__acls__enabled": "false", **_REFRESH}
    main = {
        "legacy orders (v1)": by_hand(world, SOURCE, "dc1", "agg", topics="orders", tasks__max="2", **syncs),
        "mm2_dc1__agg.CLICKS": by_hand(world, SOURCE, "dc1", "agg", topics="clicks", **syncs, **_ROUTED),
        "audit-dead-keys": by_hand(world, SOURCE, "dc1", "agg", topics="audit", **syncs, **_DEAD),
        "zahlung-ü": by_hand(world, SOURCE, "dc2", "agg", topics="pay", **syncs),
        "MirrorSourceConnector": by_hand(
            world, SOURCE, "dc2", "agg", topics="logs,traces", **syncs, **_FILTERED, tasks__max="3"
        ),
        "cp": by_hand(world, CHECKPOINT, "dc1", "agg", groups="billing.*", emit__checkpoints__interval__seconds="5"),
        "checkpoint@dc2": by_hand(world, CHECKPOINT, "dc2", "agg", sync__group__offsets__enabled="true"),
        "pulse": by_hand(
            world,
            *(HEARTBEAT, "agg", "dc1"),
            producer__override__bootstrap__servers=world.kafkas["dc1"].bootstrap_servers,
        ),
    }
    spare = {
        "back": by_hand(world, SOURCE, "agg", "dc1", topics="answers", tasks__max="1", **syncs),
        "side to side": by_hand(
            world, SOURCE, "dc2", "dc1", topics="stock", **syncs, producer__override__compression__type="zstd"
        ),
        "back-cp": by_hand(world, CHECKPOINT, "agg", "dc1"),
        "back-pulse": by_hand(
            world,
            *(HEARTBEAT, "dc1", "agg"),
            producer__override__bootstrap__servers=world.kafkas["agg"].bootstrap_servers,
            emit__heartbeats__interval__seconds="3",
        ),
    }
    return {"main": main, "spare": spare}


PAUSED = "zahlung-ü"
CROSSING = {
    ("dc1", "orders"): ("agg", "dc1.orders"),
    ("dc1", "clicks"): ("agg", "routed-clicks"),
    ("dc1", "audit"): ("agg", "dc1.audit"),
    ("dc2", "logs"): ("agg", "dc2.logs"),
    ("dc2", "traces"): ("agg", "dc2.traces"),
    ("agg", "answers"): ("dc1", "agg.answers"),
    ("dc2", "stock"): ("dc1", "dc2.stock"),
}
"""Where records of each source topic arrive"""


@contextmanager
def traffic(world: World, places: list[tuple[str, str]], every_seconds: float = 0.2) -> Iterator[None]:
    """Write records with ids to these topics of clusters without pause."""

    def entries_of(cluster: str, names: list[str]) -> Any:
        def entries() -> Iterator[Entry]:
            for topic, number in itertools.product(names, range(PARTITIONS)):
                yield (topic, number), f"{cluster}/{topic}/{next(world.ids)}".encode(), None

        return entries

    by_cluster: dict[str, list[str]] = {}
    for cluster, topic in places:
        by_cluster.setdefault(cluster, []).append(topic)

    with ExitStack() as stack:
        for cluster, names in by_cluster.items():
            stack.enter_context(producing(world.kafkas[cluster], entries_of(cluster, names), every_seconds))
        yield


def arrive_once(world: World, crossing: dict[tuple[str, str], tuple[str, str]]) -> int:
    """Wait until every record has arrived, and hold that none arrived twice; return how many there are."""
    total = 0
    for source, target in crossing.items():
        sent = world.held(*source)
        until(
            lambda sent=sent, target=target: sent.keys() - world.held(*target).keys(),  # type: ignore[misc]
            lambda missing: not missing,
            f"{source} is not all in {target}",
        )
        there = world.held(*target)
        assert there == sent, f"{source}: {difference(sent, there)}"
        total += sent.total()
    return total


def wait_for_more(world: World, target: tuple[str, str], count: int) -> None:
    """Wait until a topic of a cluster has more records than that."""
    until(lambda: world.held(*target).total(), lambda records: records > count, f"{target}")


def written_by_workers(world: World) -> dict[str, int]:
    """Return the ends of the topics in which workers keep configs and states: any restart is a record there."""
    ends = {}
    for worker, cluster in ((world.main, "agg"), (world.spare, "dc1")):
        access = world.kafkas[cluster]
        for name in sorted(topics(access)):
            if name.startswith("connect-") and name.endswith(("-configs", "-status")):
                ends[f"{worker.name}/{name}"] = sum(_ends(world, cluster, name))
    return ends


def _ends(world: World, cluster: str, topic: str) -> Iterator[int]:
    for number in range(topics(world.kafkas[cluster])[topic]):
        partition = confluent_kafka.TopicPartition(topic, number)
        yield int(world.readers[cluster].get_watermark_offsets(partition, timeout=20)[1])


def seen(world: World) -> dict[str, Any]:
    """Return states with workers, and the configs of connectors and tasks."""
    names = {connect: sorted(statuses(worker.url)) for connect, worker in world.workers.items()}
    return {
        "states": {connect: statuses(worker.url) for connect, worker in world.workers.items()},
        "configs": world.configs(),
        "tasks": {
            (connect, name): task_configs(world.workers[connect].url, name)
            for connect in names
            for name in names[connect]
        },
    }


def is_quiet(world: World) -> bool:
    """Tell whether the workers write nothing for two seconds."""
    before = written_by_workers(world)
    time.sleep(2)
    return written_by_workers(world) == before


def is_running(world: World) -> bool:
    """Tell whether all twelve are there, with tasks where they have any."""
    states = [state for worker in world.workers.values() for state in statuses(worker.url).values()]
    return len(states) == 12 and all(
        task["state"] in {"RUNNING", "PAUSED"} for state in states for task in state["tasks"]
    )


def test_twelve_connectors_are_imported_and_adopted_without_a_restart(clean: World, tree: Tree) -> None:
    world = clean
    for cluster, topic in (*CROSSING, ("dc2", "pay")):
        world.create(cluster, topic)
    world.create("agg", "routed-clicks", "routed-heartbeats")  # nobody creates what a transformation names
    for connect, configs in connectors(world).items():
        for name, config in configs.items():
            world.by_hand(connect, name, config, "PAUSED" if name == PAUSED else "RUNNING")
    tree.folder.mkdir()
    with traffic(world, [*CROSSING, ("dc2", "pay")]):
        for target in CROSSING.values():
            wait_for_more(world, target, 20)
        until(lambda: is_running(world), bool, "not all of them run")
        until(lambda: is_quiet(world), bool, "the workers write on")
        quiet, before = written_by_workers(world), seen(world)

        urls = [worker.url for worker in world.workers.values()]
        said = tree.attempt("import", *urls, "--owner", "team", "--out", str(tree.folder))
        print(said)
        for file in sorted(tree.folder.iterdir()):
            print(f"--- {file.name}\n{file.read_text()}")
        assert "(12 connectors in 7 flows)" in said
        assert "each gets what it got" in said
        said = tree.run("plan", "--detailed-exitcode", code=0)
        assert "0 to create, 0 to update, 0 to delete, 12 unchanged" in said
        applied = tree.run("apply", "--yes")
        assert "Applied: 0 of 0 changes" in applied
        assert "0 to create, 0 to update, 0 to delete, 12 unchanged" in tree.run("plan", "--detailed-exitcode", code=0)
        assert "each gets what it got" in tree.run("import", *urls, "--check", str(tree.folder))
        assert seen(world) == before
        assert written_by_workers(world) == quiet, "Connect's status or config topics have new records"
        counts = {target: world.held(*target).total() for target in CROSSING.values()}
        for target, count in counts.items():
            wait_for_more(world, target, count)
    print(f"{arrive_once(world, CROSSING)} records arrived once")
    assert seen(world) == before


# --- a dedicated MirrorMaker ------------------------------------------------------------------------------------------


def mm2_properties(world: World) -> dict[str, str]:
    """Return what a small team runs: two sources into one target, with heartbeats and checkpoints."""
    once = ("offset-syncs.topic", "heartbeats.topic", "checkpoints.topic")
    return {
        "clusters": "dc1, agg",
        **{f"{alias}.bootstrap.servers": world.kafkas[alias].bootstrap_servers for alias in ("dc1", "agg")},
        "dc1->agg.enabled": "true",
        "dc1->agg.topics": "orders, clicks",
        "agg->dc1.enabled": "false",
        "tasks.max": "2",
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "2",
        "offset.flush.interval.ms": "5000",
        "emit.checkpoints.interval.seconds": "5",
        "sync.topic.acls.enabled": "false",
        "agg.producer.compression.type": "lz4",
        **{f"{name}.replication.factor": "1" for name in once},
        **{f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")},
    }


class Arrivals:
    """Watches the ends of topics, in a thread; knows how long nothing arrived at most: `with Arrivals(…) as arrivals: …`."""

    def __init__(self, world: World, cluster: str, *names: str) -> None:
        self._access, self._names = world.kafkas[cluster], names
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest_seconds = 0.0

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer({**librdkafka_config(self._access), "group.id": "nobody"})
        partitions = [confluent_kafka.TopicPartition(name, n) for name in self._names for n in range(PARTITIONS)]
        was, since = -1, time.monotonic()
        while not self._ended.wait(0.1):
            ends = sum(log_end(consumer, each) for each in partitions)
            now = time.monotonic()
            if ends != was:
                was, since = ends, now
            self.longest_seconds = max(self.longest_seconds, now - since)
        consumer.close()


@pytest.mark.parametrize("version", ["3.6.2", "4.3.1"])
def test_a_dedicated_mirrormaker_goes_on_as_connectors(clean: World, tree: Tree, tmp_path: Path, version: str) -> None:
    world = clean
    crossing = {("dc1", name): ("agg", f"dc1.{name}") for name in ("orders", "clicks")}
    world.create("dc1", "orders", "clicks")
    properties = mm2_properties(world)
    file = tmp_path / "mm2.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
    tree.folder.mkdir()
    with traffic(world, list(crossing)):
        old = Dedicated("old", tmp_path / "old", properties, runtime=kafka_runtime(version))
        with old:
            for target in crossing.values():
                wait_for_more(world, target, 50)
            said = tree.run(
                *("import", str(file), "--owner", "team", "--kafka", version),
                *("--connect", world.main.url, "--out", str(tree.folder)),
            )
            print(said)
            for part in sorted(tree.folder.iterdir()):
                print(f"--- {part.name}\n{part.read_text()}")
            assert "dc1->agg: the heartbeats of this pair end" in said  # those into agg, which no flow mirrors
            checked = tree.run("import", str(file), "--check", str(tree.folder), "--kafka", version)
            print(checked)
            assert "Different on purpose" in checked
            assert "still runs" in tree.run("plan", code=1)
            assert "1 failed" not in tree.run("check"), "its group is one of workers"
            arrivals = Arrivals(world, "agg", *(target[1] for target in crossing.values()))
            arrivals.__enter__()
        stopped = time.monotonic()
        print("stopped")
        until(lambda: tree.attempt("plan"), lambda text: "still runs" not in text)
        print(tree.attempt("plan"))
        tree.run("apply", "--yes", "--wait", "60")
        counts = {target: world.held(*target).total() for target in crossing.values()}
        for target, count in counts.items():
            wait_for_more(world, target, count)
        print(f"applied and arriving {time.monotonic() - stopped:.1f} s after the stop")
        arrivals.__exit__()
    print(f"{arrive_once(world, crossing)} records arrived once; nothing for {arrivals.longest_seconds:.1f} s at most")
    assert arrivals.longest_seconds < QUIET_SECONDS
    assert "0 to create, 0 to update, 0 to delete" in tree.run("plan", "--detailed-exitcode", code=0)


# --- a MirrorMaker 1 --------------------------------------------------------------------------------------------------

GROUP = "copies"


class Copies:
    """What a MirrorMaker 1 does: read topics as a group, write the records under the same names, then commit."""

    def __init__(self, world: World, *names: str) -> None:
        self._world, self._names = world, names
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.copied = 0

    def __enter__(self) -> Copies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**librdkafka_config(self._world.kafkas["dc1"]), **settings})
        producer = confluent_kafka.Producer(librdkafka_config(self._world.kafkas["agg"]))
        consumer.subscribe(list(self._names))
        try:
            while not self._ended.is_set():
                records = list[confluent_kafka.Message]()
                for record in consumer.consume(500, 0.5):
                    if (error := record.error()) is None:
                        records.append(record)
                    else:
                        assert is_transient(error), error
                for record in records:
                    producer.produce(record.topic(), record.value(), record.key(), record.partition())
                assert producer.flush(30) == 0
                if records:
                    commit_all(consumer)
                    self.copied += len(records)
        finally:
            consumer.close()


def test_a_mirrormaker_1_goes_on_where_its_group_is(clean: World, tree: Tree, tmp_path: Path) -> None:
    world = clean
    crossing = {("dc1", name): ("agg", name) for name in ("orders", "clicks")}
    for cluster in ("dc1", "agg"):
        world.create(cluster, "orders", "clicks")
    servers = {name: access.bootstrap_servers for name, access in world.kafkas.items()}
    files = {
        "consumer.properties": f"bootstrap.servers={servers['dc1']}\ngroup.id={GROUP}\nauto.offset.reset=earliest\n",
        "producer.properties": f"bootstrap.servers={servers['agg']}\nacks=all\ncompression.type=lz4\n",
        "start.sh": "#!/bin/sh\nexec kafka-mirror-maker.sh --consumer.config consumer.properties \\\n"
        "  --producer.config producer.properties --num.streams 2 --whitelist 'orders|clicks'\n",
    }
    (tmp_path / "mm1").mkdir()
    for name, text in files.items():
        (tmp_path / "mm1" / name).write_text(text)
    tree.folder.mkdir()
    with traffic(world, list(crossing)):
        with Copies(world, "orders", "clicks") as copies:
            until(lambda: copies.copied, lambda count: count > 200, "nothing is copied")
        said = tree.attempt(
            *("import", *(str(tmp_path / "mm1" / name) for name in files), "--owner", "team"),
            *("--connect", world.main.url, "--out", str(tree.folder)),
        )
        print(said)
        for part in sorted(tree.folder.iterdir()):
            print(f"--- {part.name}\n{part.read_text()}")
        [clusters] = [part for part in tree.folder.iterdir() if "bootstrap_servers" in part.read_text()]
        clusters.write_text(f"{clusters.read_text()}defaults: {{clusters: {{replication_factor: 1}}}}\n")
        planned = tree.attempt("plan")
        print(planned)
        assert f"begins where group '{GROUP}' goes on" in planned
        assert "member" not in planned
        tree.run("apply", "--yes", "--wait", "60")
        before = end_offset(world.kafkas["agg"], "orders")
        until(lambda: end_offset(world.kafkas["agg"], "orders"), lambda end: end > before)
    print(f"{arrive_once(world, crossing)} records arrived once, {copies.copied} of them by the group")
    assert "0 to create, 0 to update, 0 to delete" in tree.run("plan", "--detailed-exitcode", code=0)
