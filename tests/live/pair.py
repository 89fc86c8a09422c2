"""Two Kafka clusters, `src` and `tgt`, and a Connect cluster `pair` on the target: what most live tests start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.sandbox.kafka_servers import Broker, Worker
from mm2mgr.sandbox.runtime import Runtime, kafka_runtime

from .conftest import WORKER, serving
from .seen import connector_url, rest, until


@dataclass(frozen=True)
class Pair:
    """The brokers, and the workers of `pair`, which are one group."""

    src: Broker
    tgt: Broker
    workers: tuple[Worker, ...]

    @property
    def source(self) -> KafkaAccess:
        return KafkaAccess(self.src.name, self.src.bootstrap_servers)

    @property
    def target(self) -> KafkaAccess:
        return KafkaAccess(self.tgt.name, self.tgt.bootstrap_servers)

    @property
    def url(self) -> str:
        return self.workers[0].url

    def listing(self) -> dict[str, int]:
        """Return partitions by topic as the source's brokers list them."""
        with Kafka(self.source) as kafka:
            return {name: topic.partitions for name, topic in kafka.topics().items() if not topic.internal}

    def delete_connectors(self, kind: str = "") -> None:
        """Delete all connectors of `pair` with this word in their names, and wait until every worker knows."""

        def left() -> set[str]:
            return {name for worker in self.workers for name in rest("GET", f"{worker.url}/connectors") if kind in name}

        def delete(name: str) -> None:
            with suppress(HTTPError):  # a rebalance; it is asked again
                rest("DELETE", connector_url(self.url, name))

        def less() -> set[str]:
            with ThreadPoolExecutor(8) as threads:  # one after the other, each would wait for a rebalance of its own
                list(threads.map(delete, left()))
            return left()

        until(less, lambda names: not names)

    def yaml(self, owner: str, flows: str, defaults: str = "", connect: str = "", workers: str = "") -> str:
        """Return a tree; `defaults` are of flows, `connect` is lines of other Connect clusters, `workers` more of `pair`."""
        urls = ", ".join(worker.url for worker in self.workers)
        return f"""\
owner: {owner}
defaults:
  clusters: {{replication_factor: 1}}
  flows: {{{defaults}refresh_interval: 2s}}
clusters:
  src: {{bootstrap_servers: ["{self.src.bootstrap_servers}"]}}
  tgt: {{bootstrap_servers: ["{self.tgt.bootstrap_servers}"]}}
connect:
  pair: {{url: [{urls}], kafka: tgt{workers}}}
{connect}flows:
{flows}"""


def flow(name: str, topic: str, more: str = "") -> str:
    return f"  {name}: {{sources: [src], targets: [tgt], topics: {{include: [{topic}]}}{more}}}\n"


@contextmanager
def serving_pair(
    folder: Path,
    runtime: Runtime | None = None,
    *,
    workers: Sequence[str] = ("first", "second"),
    brokers: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
    settings: Mapping[str, str] = WORKER,
    heap: str = Worker.heap,
) -> Iterator[Pair]:
    """Start both clusters and then the workers; on the way out all of them are ended."""
    runtime = runtime or kafka_runtime()
    src, tgt = (Broker(name, folder / name, brokers, listeners=listeners, runtime=runtime) for name in ("src", "tgt"))
    with serving([src, tgt]):
        group = [
            Worker(name, folder / name, tgt.bootstrap_servers, settings | {"group.id": "pair"}, runtime=runtime)
            for name in workers
        ]
        for worker in group:
            worker.heap = heap
        with serving(group):
            yield Pair(src, tgt, tuple(group))
