"""What a dedicated MirrorMaker really does with two pairs whose workers share what rule pairs-share-workers reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import lint
from mm2mgr.sandbox.broker import Broker
from mm2mgr.sandbox.server import Runtime, write_properties

from .conftest import serving
from .dedicated import Dedicated
from .seen import create, end_offset, topics, until, write_values

pytestmark = [pytest.mark.live, pytest.mark.matrix]

STORAGE = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
RECORDS = 100
PAIRS = {"harbor": "h-two", "river": "r-two"}
# By what the workers share: the lines, whether lint calls it an error, and records per remote topic of 100 each, sorted.
SHARED = {
    "nothing": ({}, None, (100, 100)),
    "three topics of the target": ({f"delta.{key}": f"collect-{key}" for key in STORAGE}, "error", (0, 200)),
    "three topics at the top": ({key: f"mirror-{key}" for key in STORAGE}, "error", (0, 200)),
    "config topic": ({"delta.config.storage.topic": "collect"}, "error", (0, 200)),
    "group": ({"delta.group.id": "collect"}, "error", (0, 100)),
    "offset topic": ({"delta.offset.storage.topic": "collect"}, "warning", (100, 100)),
    "status topic": ({"delta.status.storage.topic": "collect"}, "warning", (100, 100)),
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[dict[str, Broker]]:
    folder = tmp_path_factory.mktemp("shared")
    brokers = {alias: Broker(alias, folder / alias, runtime=runtime) for alias in (*PAIRS, "delta")}
    with serving(list(brokers.values())):
        yield brokers


@pytest.mark.parametrize("shared", SHARED)
def test_pairs_that_share_workers(brokers: dict[str, Broker], tmp_path: Path, runtime: Runtime, shared: str) -> None:
    lines, severity, expected = SHARED[shared]
    accesses = {alias: KafkaAccess(alias, broker.bootstrap_servers) for alias, broker in brokers.items()}
    own = shared.replace(" ", "-")
    for source, topic in PAIRS.items():
        create(accesses[source], [f"{topic}-{own}"])
        write_values(accesses[source], f"{topic}-{own}", *(b"%d" % number for number in range(RECORDS)))
    properties = {
        "clusters": ", ".join(brokers),
        **{f"{alias}.bootstrap.servers": broker.bootstrap_servers for alias, broker in brokers.items()},
        **{f"{source}->delta.enabled": "true" for source in PAIRS},
        **{f"{source}->delta.topics": f"{topic}-{own}" for source, topic in PAIRS.items()},
        "replication.factor": "1",
        **{f"{each}.topic.replication.factor": "1" for each in ("offset-syncs", "heartbeats", "checkpoints")},
        **{f"{each}.storage.replication.factor": "1" for each in ("offset", "status", "config")},
        "offset.flush.interval.ms": "1000",
        "sync.topic.acls.enabled": "false",
        **lines,
    }
    file = tmp_path / "mm2.properties"
    write_properties(file, properties)
    assert {each.severity for each in lint(read_files([file])) if each.rule == "pairs-share-workers"} == (
        {severity} if severity else set()
    )

    def mirrored() -> tuple[int, ...]:
        present = topics(accesses["delta"])
        names = [f"{source}.{topic}-{own}" for source, topic in PAIRS.items()]
        return tuple(sorted(end_offset(accesses["delta"], name) if name in present else 0 for name in names))

    with Dedicated(own, tmp_path / own, properties, runtime=runtime) as process:
        until(mirrored, lambda counts: counts == expected, "", 90)
        time.sleep(15)  # nothing more arrives
        assert mirrored() == expected, process.log_tail()
