"""mm2mgr's Connect plugin on real workers: it loads, its tasks are as planned, and every record arrives whatever happens.

What a worker without the jar does, seen on 3.6.2 and 4.3.1, is told by `test_the_stock_class_heals_a_flow_whose_worker_lacks_the_jar`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned
from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, PLUGIN_CLASS, PluginAssignment, digest
from mm2mgr.kafka.records import Producer
from mm2mgr.operations import write_plugin
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.runtime import kafka_runtime

from .conftest import WORKER, serving
from .pair import Pair, serving_pair
from .record_ids import prove, read_ids
from .seen import admin, connector_url, create, rest, statuses, task_configs, until
from .traffic import producing

pytestmark = pytest.mark.live
STOCK_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
NAME = "mirror"
TOPICS = {"orders": 8, "a.b_c-1": 4}
ALL = tuple(TopicPartition(topic, number) for topic in sorted(TOPICS) for number in range(TOPICS[topic]))
OLDEST = "3.6.2"
CASES = [
    pytest.param(DEFAULT_VERSION, False, id="4.3.1"),
    pytest.param(OLDEST, False, id="3.6.2", marks=pytest.mark.matrix),
    pytest.param(DEFAULT_VERSION, True, id="4.3.1-exactly-once", marks=pytest.mark.matrix),
    pytest.param(OLDEST, True, id="3.6.2-exactly-once", marks=pytest.mark.matrix),
]
EXACTLY_ONCE = {"exactly.once.support": "required", "source.consumer.isolation.level": "read_committed"}


@dataclass
class Mirror:
    """One connector made by hand, under traffic whose records have ids."""

    pair: Pair
    more: dict[str, str] = field(default_factory=dict)
    partitions: list[TopicPartition] = field(default_factory=lambda: list(ALL))
    url: str = ""
    """The worker that is asked, where not the first of the pair."""

    def config(self, plugin: PluginAssignment | None, **more: str) -> dict[str, str]:
        """Return the connector's config: of the plugin with an assignment, or of the stock class."""
        own = (
            {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: plugin.text}
            if plugin
            else {"connector.class": STOCK_CLASS}
        )
        return {
            "name": NAME,
            "tasks.max": "4",
            "source.cluster.alias": "src",
            "target.cluster.alias": "tgt",
            "source.cluster.bootstrap.servers": self.pair.src.bootstrap_servers,
            "target.cluster.bootstrap.servers": self.pair.tgt.bootstrap_servers,
            "topics": ",".join(topic.replace(".", "[.]") for topic in sorted(TOPICS)),
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "refresh.topics.interval.seconds": "2",
            "sync.topic.acls.enabled": "false",
            **{f"{kind}.converter": BYTES for kind in ("key", "value", "header")},
            **self.more,
            **own,
            **more,
        }

    def put(self, config: Mapping[str, str], url: str = "") -> int | str:
        """Send a config to a worker and return 200, or the code and the message of a refusal."""
        return answer_of("PUT", connector_url(url or self.asked, NAME, "/config"), config)

    @property
    def asked(self) -> str:
        return self.url or self.pair.url

    def tasks(self) -> list[dict[str, str]]:
        return task_configs(self.asked, NAME)

    def runs_as(self, expected: Assignment, digest_: str = "") -> None:
        """Wait until the tasks have just these partitions, were made from this text, and all run."""

        def read() -> tuple[Assignment, set[str], list[str]]:
            configs = self.tasks()
            assigned = Assignment(tuple(parse_assigned(config[ASSIGNED_KEY]) for config in configs))
            states = [state for state, _ in self.places()[1:]]
            return assigned, {config.get(DIGEST_KEY, "") for config in configs}, states

        until(
            read, lambda answer: answer == (expected, {digest_}, ["RUNNING"] * len(expected.tasks)), f"not {expected}"
        )

    def places(self) -> list[tuple[str, str]]:
        """Return state and worker of the connector, then of its tasks."""
        status = statuses(self.asked).get(NAME)
        return (
            [(part["state"], part["worker_id"]) for part in (status["connector"], *status["tasks"])] if status else []
        )

    def places_become(self, connector: str, tasks: list[str]) -> list[tuple[str, str]]:
        """Wait until connector and tasks are in these states, tasks in any order, and return where they are."""

        def are_so(places: list[tuple[str, str]]) -> bool:
            states = [state for state, _ in places]
            return states[:1] == [connector] and sorted(states[1:]) == sorted(tasks)

        return until(self.places, are_so, f"not {connector} with {tasks}")

    def mirrors_all(self) -> None:
        """Wait until every task runs with the stock class, and records of each partition arrive."""
        self.places_become("RUNNING", ["RUNNING"] * 4)
        until(self.tasks, lambda tasks: {task["connector.class"] for task in tasks} == {STOCK_CLASS})
        before = self.ends()
        until(self.ends, lambda ends: all(ends[each] > before[each] for each in before), "a partition does not go on")

    def ends(self) -> dict[TopicPartition, int]:
        there = read_ids(self.pair.target, [remote(each) for each in self.partitions])
        return {partition: len(ids) for partition, ids in there.items()}

    def arrived(self) -> int:
        return sum(self.ends().values())

    def exact(self, *, twice: bool = False) -> None:
        """Every record arrives once, in order and unaltered; `twice`: at least once, where a stop was not clean."""
        source = read_ids(self.pair.source, self.partitions)

        def proofs() -> list[Any]:
            return prove(source, read_ids(self.pair.target, [remote(each) for each in self.partitions]), "src.")

        found = until(proofs, lambda proofs: not any(proof.missing for proof in proofs), "records are missing")
        total = sum(proof.records for proof in found)
        doubled = sum(proof.duplicated for proof in found)
        print(f"{total} records, {doubled} twice")
        assert total > 100
        assert twice or all(proof.exact for proof in found), found
        assert not any(proof.unexpected for proof in found)


def remote(partition: TopicPartition) -> TopicPartition:
    return TopicPartition(f"src.{partition.topic}", partition.partition)


def answer_of(method: str, url: str, body: object = None) -> int | str:
    """Return the code of an answer, with its message where it is a refusal."""
    try:
        rest(method, url, body)
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    return 200


def traffic(mirror: Mirror) -> AbstractContextManager[None]:
    """Write records with ids to every partition without pause, and begin when they are there."""
    ids = map(b"%d".__mod__, itertools.count())
    return producing(
        mirror.pair.source, lambda: [(place, b"value " + id_, id_) for place, id_ in zip(ALL, ids, strict=False)], 0.05
    )


def plugin_path(folder: Path) -> dict[str, str]:
    """Return the settings of a worker that has the plugin, put out as people do."""
    write_plugin(folder / "plugins" / "mm2mgr")
    return {"plugin.path": str(folder / "plugins")}


def planned(*shares: float, held: tuple[TopicPartition, ...] = ()) -> PluginAssignment:
    """Return an assignment with so many of ALL, in order, on each task."""
    rest_of, tasks = list(ALL), []
    for share in shares:
        count = round(share * len(ALL))
        tasks.append(tuple(rest_of[:count]))
        rest_of = rest_of[count:]
    return PluginAssignment.build(Assignment(tuple(tasks)), [1000 * len(task) for task in tasks], 10, held)


@pytest.mark.parametrize(("version", "exactly_once"), CASES)
def test_tasks_are_as_planned_and_every_record_arrives_once_whatever_is_changed(
    version: str, exactly_once: bool, tmp_path: Path
) -> None:
    """Stock → plugin → another assignment → hold → release → a bad one → stock, new partitions in between, all under traffic."""
    settings = {**WORKER, **plugin_path(tmp_path)}
    if exactly_once:
        settings["exactly.once.source.support"] = "enabled"
    with serving_pair(tmp_path, kafka_runtime(version), workers=["w"], settings=settings) as pair:
        mirror = Mirror(pair, EXACTLY_ONCE if exactly_once else {})
        for topic, partitions in TOPICS.items():
            create(pair.source, [topic], partitions)
        plugins = {plugin["class"]: plugin for plugin in rest("GET", f"{pair.url}/connector-plugins")}
        assert plugins[PLUGIN_CLASS] == {"class": PLUGIN_CLASS, "type": "source", "version": "1.0"}
        with traffic(mirror):
            assert mirror.put(mirror.config(None)) in (200, 201)
            until(mirror.tasks, lambda tasks: len(tasks) == 4)
            uneven, even = planned(0.5, 0.25, 0.25), planned(0.25, 0.25, 0.25, 0.25)
            for plugin in (uneven, even):
                mirror.put(mirror.config(plugin))
                mirror.runs_as(plugin.tasks(ALL, 4), digest(plugin.text))
                assert all(ASSIGNMENT_KEY not in config for config in mirror.tasks())
            refuses_bad_assignments(mirror, even)
            held = ALL[:3]
            holding = planned(0.25, 0.25, 0.25, 0.25, held=held)
            mirror.put(mirror.config(holding))
            mirror.runs_as(holding.tasks(ALL, 4), digest(holding.text))
            holds(mirror, held)
            mirror.put(mirror.config(even))
            mirror.runs_as(even.tasks(ALL, 4), digest(even.text))
            mirror.partitions += grow(pair)
            mirror.runs_as(even.tasks(mirror.partitions, 4), digest(even.text))
            mirror.put(mirror.config(None))
            until(mirror.tasks, lambda tasks: len(tasks) == 4 and all(DIGEST_KEY not in config for config in tasks))
        mirror.exact()


def refuses_bad_assignments(mirror: Mirror, running: PluginAssignment) -> None:
    """A 400 that says what is wrong, and the tasks go on as they were."""
    before, arrived = mirror.tasks(), mirror.arrived()
    for text, reason in {
        running.text.replace("version=1", "version=2"): "install the newer plugin on every worker",
        running.text.replace("@3", "@4"): "has 4 rates, and a partition of",
        running.text + " " * 700_000: "at most 700000 can be stored",
        "": 'has "" where version= belongs',
    }.items():
        refused = str(mirror.put(mirror.config(running) | {ASSIGNMENT_KEY: text}))
        assert refused.startswith("400 ")
        assert reason in refused.replace('\\"', '"')
        assert len(refused) < 1000
    too_few = str(mirror.put(mirror.config(running, **{"tasks.max": "3"})))
    assert "has 4 tasks, but tasks.max is 3" in too_few
    assert mirror.tasks() == before
    until(mirror.arrived, lambda count: count > arrived, "the tasks do not go on")


def holds(mirror: Mirror, held: tuple[TopicPartition, ...]) -> None:
    """Nothing of held partitions arrives while others go on."""
    ends = {each: len(ids) for each, ids in read_ids(mirror.pair.target, [remote(each) for each in held]).items()}
    arrived = mirror.arrived()
    until(mirror.arrived, lambda count: count > arrived + 200, "nothing goes on")
    assert {each: len(ids) for each, ids in read_ids(mirror.pair.target, list(ends)).items()} == ends


def grow(pair: Pair) -> list[TopicPartition]:
    """Give a topic two partitions more, with records in them."""
    for future in admin(pair.source).create_partitions([NewPartitions("orders", TOPICS["orders"] + 2)]).values():
        future.result(30)
    fresh = [TopicPartition("orders", TOPICS["orders"] + more) for more in range(2)]
    until(lambda: pair.listing()["orders"], lambda count: count == TOPICS["orders"] + 2)
    with Producer(pair.source, timeout_seconds=60) as producer:
        for partition, number in itertools.product(fresh, range(50)):
            producer.send(partition, b"value", key=b"%d of the new" % number)
    return fresh


@contextmanager
def joined(pair: Pair, folder: Path, name: str, version: str, settings: Mapping[str, str]) -> Iterator[Worker]:
    """Start one more worker of the pair's group."""
    worker = Worker(
        name,
        folder / name,
        pair.tgt.bootstrap_servers,
        {**settings, "group.id": "pair"},
        runtime=kafka_runtime(version),
    )
    with serving([worker]):
        yield worker


@pytest.mark.matrix
@pytest.mark.parametrize("version", [DEFAULT_VERSION, OLDEST])
def test_the_stock_class_heals_a_flow_whose_workers_lack_the_jar(version: str, tmp_path: Path) -> None:
    """Two workers: `w` has the jar, `bare` has not. Seen on 4.3.1 and 3.6.2, all under traffic, nothing lost:

    1. `bare` joins: the connector stays RUNNING on `w`, and so do the tasks there; the tasks that move to `bare` are FAILED.
    2. PUT of the plugin's class to `w`, the leader: 200, and its tasks take the new assignment; those on `bare` stay FAILED.
       PUT to `bare`: 400, on 3.6.2 500, "Failed to find any class …". POST restart with the tasks: 200, and they
       stay FAILED or RESTARTING (for 180 s on 4.3.1).
    3. PUT of the stock class, to either worker: 200, and all tasks run within seconds, from the offsets that are stored.
    4. `w` stops: connector and all tasks FAILED on `bare`. PUT of the plugin's class: as above. PUT of the stock class: all runs.
    5. `w` is back, and `bare` leads: PUT of the plugin's class to `w`, which has it, is refused, too: the leader validates again.
       PUT of the stock class to `w` is a 200. So what heals is the stock class, whoever leads, owns or is asked.
    6. `bare` is restarted with the jar: PUT of the plugin's class is a 200 again, and the tasks are as planned.
    """
    settings = {**WORKER, **plugin_path(tmp_path)}
    with serving_pair(tmp_path, kafka_runtime(version), workers=["w"], settings=settings) as pair:
        mirror = Mirror(pair)
        (has_jar,) = pair.workers
        for topic, partitions in TOPICS.items():
            create(pair.source, [topic], partitions)
        four, three = planned(0.25, 0.25, 0.25, 0.25), planned(0.5, 0.25, 0.25)
        with traffic(mirror):
            mirror.put(mirror.config(four))
            mirror.runs_as(four.tasks(ALL, 4), digest(four.text))
            with joined(pair, tmp_path, "bare", version, WORKER) as bare:
                on_bare = mirror.places_become("RUNNING", ["FAILED", "FAILED", "RUNNING", "RUNNING"])
                assert {worker for state, worker in on_bare if state == "FAILED"} == {worker_id(bare)}
                assert mirror.put(mirror.config(three)) == 200
                mirror.places_become("RUNNING", ["FAILED", "FAILED", "RUNNING"])
                assert lacks_class(mirror.put(mirror.config(four), bare.url))
                restarted = answer_of("POST", connector_url(pair.url, NAME, "/restart?includeTasks=true"))
                until(mirror.places, lambda places: not {"FAILED", "RESTARTING"}.isdisjoint(dict(places)), "it healed")
                print("restart:", restarted, [state for state, _ in mirror.places()])
                for worker in (has_jar, bare):
                    assert mirror.put(mirror.config(None), worker.url) == 200
                    mirror.mirrors_all()
                    assert mirror.put(mirror.config(four), has_jar.url) == 200
                    mirror.places_become("RUNNING", ["FAILED", "FAILED", "RUNNING", "RUNNING"])
                has_jar.stop()
                mirror.url = bare.url
                mirror.places_become("FAILED", ["FAILED"] * 4)
                assert lacks_class(mirror.put(mirror.config(three)))
                assert mirror.put(mirror.config(None)) == 200
                mirror.mirrors_all()
                has_jar.start()
                until(lambda: mirror.put(mirror.config(four), has_jar.url), lacks_class)
                assert mirror.put(mirror.config(None, **{"refresh.topics.interval.seconds": "3"}), has_jar.url) == 200
                mirror.mirrors_all()
                bare.stop()
            mirror.url = ""
            until(lambda: mirror.put(mirror.config(four)), lambda answer: answer == 200)
            mirror.runs_as(four.tasks(ALL, 4), digest(four.text))
            with joined(pair, tmp_path, "upgraded", version, settings):
                until(lambda: {worker for _, worker in mirror.places()}, lambda workers: len(workers) == 2)
                mirror.runs_as(four.tasks(ALL, 4), digest(four.text))
        mirror.exact(twice=True)


def lacks_class(answer: int | str) -> bool:
    """Tell whether a worker refused a config as one that lacks the connector's class (400 since 4.0, before that 500)."""
    return str(answer)[:4] in ("400 ", "500 ") and "Failed to find any class that implements Connector" in str(answer)


def worker_id(worker: Worker) -> str:
    return worker.url.removeprefix("http://")
