"""Known bugs against real workers: each is there on a release that `bugs` says has it, and not on one where it is fixed.

One broker is source and target; one worker of a release runs at a time. What is asserted is that a release shows a bug exactly if the data
says that it has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from mm2mgr.connectors import ConnectorType
from mm2mgr.defaults import PROPERTIES_EXCLUDE
from mm2mgr.files import cache_folder
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.jars import known_versions, locked_jars
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime, find_java, kafka_runtime
from mm2mgr.truth.bugs import BY_BUG
from tests.live import seen
from tests.truth.test_reach_live import put

pytestmark = [pytest.mark.live, pytest.mark.matrix]

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PATIENCE_SECONDS = (
    20.0  # after which what has not happened is said never to happen; what must happen has a longer deadline
)
EVERY_SECOND = (
    "refresh.topics",
    "refresh.groups",
    "sync.topic.configs",
    "emit.checkpoints",
    "sync.group.offsets",
)
SYNCS_GROUPS = {"sync.group.offsets.enabled": "true", "offset.lag.max": "0"}


def runtime(version: str) -> Runtime:
    """Return a release of the sandbox, or an older one that only works as a worker."""
    if version in known_versions():
        return kafka_runtime(version)
    lock = Path(__file__).with_name(f"worker-{version}.lock")
    return Runtime(find_java(), tuple(locked_jars(lock, cache_folder() / f"worker-{version}")))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAccess]:
    with Broker("kafka", tmp_path_factory.mktemp("bugs") / "kafka") as broker:
        yield KafkaAccess("kafka", broker.bootstrap_servers)
        seen.close_clients()


@dataclass(frozen=True)
class Release:
    """A worker of a release, and what a test does with it; names of topics, groups and connectors differ from release to release."""

    version: str
    kafka: KafkaAccess
    worker: Worker

    def name(self, text: str) -> str:
        return f"{text}-{self.number}"

    @property
    def number(self) -> str:
        return self.version.replace(".", "")

    def topic(self, text: str, records: int = 0, config: Mapping[str, str] | None = None) -> str:
        seen.create(self.kafka, [self.name(text)], config=config)
        seen.write_values(self.kafka, self.name(text), *(b"%d" % number for number in range(records)))
        return self.name(text)

    def remote(self, topic: str) -> str:
        return f"A{self.number}.{topic}"

    def run(self, type_: ConnectorType, name: str, config: Mapping[str, str]) -> str:
        """Create a connector, and return its name."""
        servers = self.kafka.bootstrap_servers
        base = {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{type_.capitalize()}Connector",
            "source.cluster.alias": f"A{self.number}",
            "target.cluster.alias": f"B{self.number}",
            "source.cluster.bootstrap.servers": servers,
            "target.cluster.bootstrap.servers": servers,
            "replication.factor": "1",
            **{f"{kind}.topic.replication.factor": "1" for kind in ("offset-syncs", "checkpoints", "heartbeats")},
            **{f"{key}.interval.seconds": "1" for key in EVERY_SECOND},
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
            "sync.topic.acls.enabled": "false",
            "emit.heartbeats.enabled": "false",
        }
        connector = self.name(name)
        put(f"{self.worker.url}/connectors/{connector}/config", {**base, **config})
        return connector

    def state(self, connector: str) -> str:
        """Return the state of a connector's first task, "" while it has none."""
        tasks = seen.statuses(self.worker.url).get(connector, {}).get("tasks", [])
        return str(tasks[0]["state"]) if tasks else ""

    def until_running(self, connector: str) -> None:
        seen.until(lambda: self.state(connector), "RUNNING".__eq__, f"the task of {connector}")

    def until_mirrored(self, topic: str, records: int) -> None:
        seen.until(lambda: self.records(topic), lambda count: count >= records, f"the records of {topic}")

    def records(self, topic: str) -> int:
        remote = self.remote(topic)
        return seen.end_offset(self.kafka, remote) if remote in seen.topics(self.kafka) else 0

    def group_offset(self, group: str, topic: str) -> int:
        return seen.committed(self.kafka, group, self.remote(topic))

    def has(self, bug: str) -> bool:
        return BY_BUG[bug].affects(self.version)

    def happens(self, is_so: Callable[[], bool], *, expected: bool) -> bool:
        """Tell whether something comes true; what is expected has longer for it."""
        deadline = time.monotonic() + (seen.DEADLINE_SECONDS if expected else PATIENCE_SECONDS)
        while time.monotonic() < deadline:
            if is_so():
                return True
            time.sleep(0.5)
        return False


@pytest.fixture(scope="module")
def release(
    request: pytest.FixtureRequest, kafka: KafkaAccess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    version = request.param
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "offset.flush.interval.ms": "1000",
    }
    group = f"workers-{version.replace('.', '')}"
    place = tmp_path_factory.mktemp("worker")
    with Worker(group, place, kafka.bootstrap_servers, properties, runtime=runtime(version)) as worker:
        yield Release(version, kafka, worker)


def on(*versions: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("release", versions, indirect=True, scope="module")


# --- source connectors ------------------------------------------------------------------------------------------------


@on("3.2.0", "3.9.2")
def test_latest_is_ignored(release: Release) -> None:
    topic = release.topic("latest", records=5)
    config = {"topics": topic, "source.consumer.auto.offset.reset": "latest"}
    release.until_running(release.run("source", "latest", config))

    def arrived() -> int:
        seen.write_values(release.kafka, topic, b"later")
        return release.records(topic)

    seen.until(arrived, bool, "a record on the target")
    is_from_the_beginning = seen.values(release.kafka, release.remote(topic))[0] == b"0"
    assert is_from_the_beginning is release.has("KAFKA-13988")


@on("2.8.2", "3.2.0")
def test_topics_are_created_with_excluded_settings(release: Release) -> None:
    topic = release.topic("created", config={"retention.ms": "7200000", "max.message.bytes": "200000"})
    config = {"topics": topic, "config.properties.exclude": "retention\\.ms", "sync.topic.configs.enabled": "false"}
    release.run("source", "created", config)
    remote = release.remote(topic)
    seen.until(lambda: remote in seen.topics(release.kafka), bool, remote)
    has_excluded = _setting(release, remote, "retention.ms") == "7200000"
    assert has_excluded is release.has("KAFKA-13255")


@on("3.2.0", "3.6.2")
def test_each_sync_of_topic_settings_replaces_all_of_them(release: Release) -> None:
    topic = release.topic("settings", config={"retention.ms": "7200000"})
    config = {"topics": topic, "config.properties.exclude": "retention\\.ms"}
    release.run("source", "settings", config)
    remote = release.remote(topic)
    seen.until(lambda: remote in seen.topics(release.kafka), bool, remote)
    _alter(release, remote, "retention.ms", "3600000")
    _alter(release, remote, "segment.ms", "3600000")
    _alter(release, topic, "max.message.bytes", "200000")
    seen.until(lambda: _setting(release, remote, "max.message.bytes"), "200000".__eq__, "a synced setting")
    is_lost = _setting(release, remote, "retention.ms") != "3600000"
    assert is_lost is release.has("KAFKA-14420")
    assert (
        _setting(release, remote, "segment.ms") != "3600000"
    )  # not excluded: the source's default counts, in all releases


@on("4.2.0", "4.3.1")
def test_settings_that_were_synced_are_said_not_to_be(release: Release) -> None:
    topic = release.topic("warned")
    release.run("source", "warned", {"topics": topic})
    remote = release.remote(topic)
    seen.until(lambda: remote in seen.topics(release.kafka), bool, remote)
    _alter(release, topic, "max.message.bytes", "200000")
    seen.until(lambda: _setting(release, remote, "max.message.bytes"), "200000".__eq__, "a synced setting")
    warns = release.happens(
        lambda: any("Could not alter configuration of topic" in line for line in seen.log_lines(release.worker)),
        expected=release.has("KAFKA-20017"),
    )
    assert warns is release.has("KAFKA-20017")


@on("3.9.2", "4.3.1")
def test_records_older_than_a_copied_limit_are_refused(release: Release) -> None:
    topic, limit = release.topic("aged"), "message.timestamp.before.max.ms"
    old = int((time.time() - 86_400) * 1000)
    seen.write(release.kafka, topic, [seen.Message(0, None, b"old", timestamp_ms=old)])
    _alter(release, topic, limit, "3600000")
    mirror = release.run("source", "aged", {"topics": topic})
    fails = release.happens(lambda: release.state(mirror) == "FAILED", expected=release.has("KAFKA-20163"))
    assert fails is release.has("KAFKA-20163")
    assert "InvalidTimestampException" in "".join(seen.log_lines(release.worker))
    remedied = release.topic("remedied")
    seen.write(release.kafka, remedied, [seen.Message(0, None, b"old", timestamp_ms=old)])
    _alter(release, remedied, limit, "3600000")
    release.run("source", "remedied", {"topics": remedied, "config.properties.exclude": ",".join(PROPERTIES_EXCLUDE)})
    release.until_mirrored(remedied, 1)


@on("3.6.2", "3.9.2")
def test_an_update_fails_on_an_earlier_placeholder(release: Release, tmp_path: Path) -> None:
    topic = release.topic("secret", records=1)
    secrets = [tmp_path / "first", tmp_path / "second"]
    for file in secrets:
        file.write_text("value=1\n")
    config = {"topics": topic, "transforms": ""}
    notes = [{**config, "source.consumer.client.rack": f"${{file:{file}:value}}"} for file in secrets]
    mirror = release.run("source", "secret", notes[0])
    release.until_mirrored(topic, 1)
    secrets[0].unlink()
    release.run("source", "secret", notes[1])

    def is_updated() -> bool:
        tasks = seen.task_configs(release.worker.url, mirror)
        return bool(tasks) and str(secrets[1]) in tasks[0].get("source.consumer.client.rack", "")

    updates = release.happens(is_updated, expected=not release.has("KAFKA-16837"))
    assert updates is not release.has("KAFKA-16837")


# --- checkpoint connectors --------------------------------------------------------------------------------------------


@on("3.2.0", "3.6.2")
def test_group_offsets_are_written_beyond_the_end_of_an_empty_topic(release: Release) -> None:
    gone, there = release.topic("gone", records=20), release.topic("there", records=5)
    client = seen.admin(release.kafka)
    for future in client.delete_records([confluent_kafka.TopicPartition(gone, 0, 20)]).values():
        future.result(30)
    group = release.name("behind")
    for topic, offset in ((gone, 20), (there, 5)):
        seen.commit(release.kafka, group, topic, offset)
    topics = {"topics": f"{gone},{there}", "groups": group, **SYNCS_GROUPS}
    release.run("source", "empty", topics)
    release.until_mirrored(there, 5)
    release.run("checkpoint", "empty-groups", topics)
    seen.until(lambda: release.group_offset(group, there), lambda offset: offset > 0, "the group on the target")
    is_beyond = release.group_offset(group, gone) > release.records(gone)
    assert is_beyond is release.has("KAFKA-12635")


@on("3.2.0", "3.6.2")
def test_groups_of_other_topics_restart_the_tasks(release: Release) -> None:
    topic, other = release.topic("mine", records=5), release.topic("others", records=5)
    groups = [f"g{release.number}-{text}" for text in ("first", "second", "of-others")]
    seen.commit(release.kafka, groups[0], topic, 1)
    tasks = release.run("checkpoint", "restarts", {"topics": topic, "groups": f"g{release.number}-.*"})

    def assigned() -> str:
        return ",".join(task.get("task.assigned.groups", "") for task in seen.task_configs(release.worker.url, tasks))

    seen.until(assigned, lambda names: groups[0] in names, "the first group")
    seen.commit(release.kafka, groups[2], other, 1)
    seen.commit(release.kafka, groups[1], topic, 1)
    seen.until(assigned, lambda names: groups[1] in names, "the second group")
    is_given = release.happens(lambda: groups[2] in assigned(), expected=release.has("KAFKA-14837"))
    assert is_given is release.has("KAFKA-14837")


@on("3.6.2", "3.9.2")
def test_the_last_offset_syncs_are_not_written(release: Release) -> None:
    topic, group = release.topic("last", records=30), release.name("at-the-end")
    seen.commit(release.kafka, group, topic, 30)
    config = {"topics": topic, "groups": group, "sync.group.offsets.enabled": "true"}
    release.run("source", "last", config)
    release.until_mirrored(topic, 30)
    release.run("checkpoint", "last-groups", config)
    seen.until(lambda: release.group_offset(group, topic), lambda offset: offset > 0, "the group on the target")
    arrives = release.happens(lambda: release.group_offset(group, topic) == 30, expected=not release.has("KAFKA-15906"))
    assert arrives is not release.has("KAFKA-15906")


@on("3.6.2", "3.9.2")
def test_a_restart_forgets_earlier_offset_syncs(release: Release) -> None:
    topic, group = release.topic("history"), release.name("lagging")
    config = {"topics": topic, "groups": group, **SYNCS_GROUPS}
    release.run("source", "history", config)
    seen.write_values(release.kafka, topic, b"x")
    seen.commit(release.kafka, group, topic, 0)
    groups = release.run("checkpoint", "history-groups", config)
    release.until_running(groups)
    for number in range(1, 9):  # an offset sync of each batch
        seen.write_values(release.kafka, topic, *[b"x"] * 10)
        release.until_mirrored(topic, 1 + number * 10)
    seen.commit(release.kafka, group, topic, 30)
    seen.until(lambda: release.group_offset(group, topic), lambda offset: offset > 0, "the group on the target")
    before = release.group_offset(group, topic)
    seen.rest("POST", f"{release.worker.url}/connectors/{groups}/tasks/0/restart")
    release.until_running(groups)
    seen.commit(release.kafka, group, topic, 70)
    moves = release.happens(
        lambda: release.group_offset(group, topic) > before, expected=not release.has("KAFKA-15905")
    )
    assert moves is not release.has("KAFKA-15905")


def _alter(release: Release, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in seen.admin(release.kafka).incremental_alter_configs([resource]).values():
        future.result(30)


def _setting(release: Release, topic: str, key: str) -> str:
    (future,) = seen.admin(release.kafka).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(future.result(30)[key].value)
