"""What a dedicated MirrorMaker really does with two pairs whose workers share what rule pairs-share-workers reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.lint.reading import read_files
from mm2mgr.lint.rules import lint
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime
from mm2mgr.sandbox.server import write_properties

from .conftest import serving
from .dedicated import Dedicated
from .seen import create, end_offset, log_lines, topics, until, write_values

pytestmark = [pytest.mark.live, pytest.mark.matrix]

STORAGE = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
RECORDS = 100
SOURCES = ("harbor", "river")
BOTH_ONCE = (RECORDS, RECORDS)
# What the workers of both pairs share: the lines, and the severity that lint gives them.
SHARED = {
    "nothing": ((), ""),
    "storage-of-target": (tuple(f"delta.{key}" for key in STORAGE), "error"),
    "storage-at-top": (STORAGE, "error"),
    "config-topic": (("delta.config.storage.topic",), "error"),
    "group": (("delta.group.id",), "error"),
    "offset-topic": (("delta.offset.storage.topic",), "warning"),
    "status-topic": (("delta.status.storage.topic",), "warning"),
}
_LOOP = "is behind group assignment"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[dict[str, Broker]]:
    folder = tmp_path_factory.mktemp("shared")
    brokers = {name: Broker(name, folder / name, runtime=runtime) for name in (*SOURCES, "delta")}
    with serving(list(brokers.values())):
        yield brokers


@pytest.mark.parametrize("shared", SHARED)
def test_an_error_keeps_a_pair_from_mirroring_and_a_warning_does_not(
    brokers: dict[str, Broker], tmp_path: Path, runtime: Runtime, shared: str
) -> None:
    """Aliases of its own give each case topics and groups of its own."""
    keys, severity = SHARED[shared]
    alias = {name: f"{name}-{shared}" for name in brokers}
    accesses = {name: KafkaAccess(name, broker.bootstrap_servers) for name, broker in brokers.items()}
    for source in SOURCES:
        create(accesses[source], [f"t-{shared}"])
        write_values(accesses[source], f"t-{shared}", *(b"%d" % number for number in range(RECORDS)))
    properties = {
        "clusters": ", ".join(alias.values()),
        **{f"{alias[name]}.bootstrap.servers": broker.bootstrap_servers for name, broker in brokers.items()},
        **{f"{alias[source]}->{alias['delta']}.enabled": "true" for source in SOURCES},
        "topics": f"t-{shared}",
        "replication.factor": "1",
        **{f"{each}.topic.replication.factor": "1" for each in ("offset-syncs", "heartbeats", "checkpoints")},
        **{f"{each}.storage.replication.factor": "1" for each in ("offset", "status", "config")},
        "offset.flush.interval.ms": "1000",
        "sync.topic.acls.enabled": "false",
        **{key.replace("delta", alias["delta"]): f"{shared}-{number}" for number, key in enumerate(keys)},
    }
    file = tmp_path / "mm2.properties"
    write_properties(file, properties)
    findings = [finding for finding in lint(read_files([file])) if finding.rule == "pairs-share-workers"]
    assert {finding.severity for finding in findings} == ({severity} if severity else set())

    def mirrored() -> tuple[int, ...]:
        present = topics(accesses["delta"])
        names = [f"{alias[source]}.t-{shared}" for source in SOURCES]
        return tuple(end_offset(accesses["delta"], name) if name in present else 0 for name in names)

    with Dedicated(shared, tmp_path / shared, properties, runtime=runtime) as process:
        until(lambda: process.log_has("Kafka MirrorMaker started"), bool)
        if severity != "error":
            until(mirrored, lambda counts: min(counts) >= RECORDS)
        counts = until_settled(mirrored)
        loops = sum(_LOOP in line for line in log_lines(process))
    print(f"{shared}: {dict(zip(SOURCES, counts, strict=True))} of {RECORDS} each, {loops} loops for configs")
    if severity == "error":
        assert min(counts) == 0, counts
    else:
        assert counts == BOTH_ONCE


def until_settled(read: Callable[[], tuple[int, ...]], seconds: float = 40.0) -> tuple[int, ...]:
    """Return the counts once they stayed for so long; where nothing is mirrored, no event says so."""
    counts, since = read(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(1)
        if (now := read()) != counts:
            counts, since = now, time.monotonic()
    return counts
