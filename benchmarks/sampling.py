"""What one poll of a large estate costs, beside its bound of a minute; and what real brokers take per 1 000 partitions.

    python benchmarks/sampling.py [--rounds N] [--partitions N]     # --partitions 0 leaves the real broker out

The large estate is fake where the network would be: 50 clusters of 200 topics × 50 partitions whose clients answer at once.
Everything behind them is the real loop: columns, dictionary, Parquet on disk, and the compaction of the finished hour. The
bound adds what the real broker took. Exits with 1 above the bound.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka, TopicInfo
from mm2mgr.kafka.records import Ends
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.follow import Round, Schedule, follow
from mm2mgr.samples.readers import KafkaReader
from mm2mgr.samples.store import SampleStore
from mm2mgr.sandbox.kafka_servers import Broker

CLUSTERS, TOPICS, PARTITIONS = 50, 200, 50
BOUND_SECONDS = 60.0


class Estate:
    """One fake cluster: the ends of its logs grow by the same uneven steps with every reading."""

    def __init__(self, access: KafkaAccess, timeout_seconds: float) -> None:
        self.steps: list[int] = []
        self.ends = array("q")

    def topics(self) -> dict[str, TopicInfo]:
        return {f"team-{n % 20}.events.{n}": TopicInfo(PARTITIONS, f"id-{n:018d}", False) for n in range(TOPICS)}

    def watch(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps = [hash(one) % 10_007 for one in partitions]
        self.ends = array("q", (hash(one) % 1_000_000_007 for one in partitions))

    def read(self) -> Ends:
        self.ends = array("q", map(int.__add__, self.ends, self.steps))
        return Ends(array("q", bytes(8 * len(self.ends))), self.ends, {})

    def close(self) -> None:
        self.steps = []


def resident_mib() -> float:
    """Return the memory in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def large_estate(rounds: int) -> float:
    """Print and return seconds per poll of the fake estate; the first poll, which names every partition, is shown apart."""
    polls: list[tuple[float, float, Round]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = SampleStore(Path(folder))
        readers = [KafkaReader(KafkaAccess(f"dc{n:02d}", "none"), connect=Estate) for n in range(CLUSTERS)]
        begun, cpu = time.monotonic(), time.process_time()
        follow(
            readers,
            Schedule(0.001, 3600.0),
            store,
            lambda one: polls.append((time.monotonic(), resident_mib(), one)),
            _After(polls, rounds),
        )
        cpu = time.process_time() - cpu
        written = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        spans = [end - start for (end, _, _), start in zip(polls, [begun, *(end for end, _, _ in polls)], strict=False)]
        samples = sum(one.samples for _, _, one in polls)
        print(f"{samples // len(polls)} partitions on {CLUSTERS} clusters, fake clients, {len(polls)} polls")
        print(f"  first poll (table created)      {spans[0]:6.1f} s")
        print(f"  later polls, median / longest    {statistics.median(spans[1:]):6.2f} s / {max(spans[1:]):.2f} s")
        print(f"  CPU per poll                     {cpu / len(polls):6.2f} s")
        print(f"  on disk per poll                 {written / len(polls) / 2**20:6.2f} MiB")
        print(f"  memory after poll 2 / the last   {polls[1][1]:6.0f} MiB / {polls[-1][1]:.0f} MiB")
        hours = store.hours()
        compacting = _seconds(lambda: [store.compact(hour) for hour in hours])
        small = sum(file.size for file in store.table.files())
        print(
            f"  compacting these {len(polls)} polls        {compacting:6.1f} s, then {small / samples:.2f} bytes per sample"
        )
        print(f"  memory after compaction          {resident_mib():6.0f} MiB")
    return statistics.median(spans[1:])


class _After:
    """Ends the loop after so many rounds without waiting between them."""

    def __init__(self, polls: Sequence[object], rounds: int) -> None:
        self.polls, self.rounds = polls, rounds

    def wait(self, timeout: float | None = None) -> bool:
        return len(self.polls) >= self.rounds


def real_broker(partitions: int) -> float:
    """Print what one broker takes; return seconds per 1 000 partitions and poll, the look at topics shared out."""
    topics = {f"bench-{n}": (50, 1, {}) for n in range(max(1, partitions // 50))}
    with tempfile.TemporaryDirectory() as folder, Broker("bench", Path(folder)) as broker:
        access = KafkaAccess("bench", broker.bootstrap_servers)
        with Kafka(access, timeout_seconds=120) as kafka:
            for name, wanted in topics.items():
                kafka.create_topics({name: wanted})
        reader = KafkaReader(access, timeout_seconds=60)
        begun = time.process_time()
        first = _seconds(reader.poll)
        looking = time.process_time() - begun
        begun = time.process_time()
        later = [_seconds(reader.poll) for _ in range(5)]
        cpu = (time.process_time() - begun) / len(later)
        reader.close()
        thousands = len(topics) * 50 / 1000
        print(f"{int(thousands * 1000)} partitions on one real broker")
        print(
            f"  first poll (topics described)    {1000 * first / thousands:6.0f} ms per 1 000 partitions, {1000 * looking / thousands:.0f} ms CPU"
        )
        print(
            f"  later polls, median              {1000 * statistics.median(later) / thousands:6.0f} ms per 1 000 partitions, {1000 * cpu / thousands:.0f} ms CPU"
        )
        return cpu / thousands + (looking - cpu) / thousands / 5  # topics are described in every fifth poll of a minute


def _seconds(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def main() -> int:
    """Print the figures; return 1 above the bound."""
    parser = argparse.ArgumentParser(description="The cost of one poll.")
    parser.add_argument("--rounds", type=int, default=10, help="polls of the fake estate")
    parser.add_argument("--partitions", type=int, default=2_000, help="partitions on the real broker; 0: no broker")
    given = parser.parse_args()
    total = large_estate(given.rounds)
    if given.partitions:
        per_thousand = real_broker(given.partitions)
        clients = per_thousand * CLUSTERS * TOPICS * PARTITIONS / 1000
        print(f"clients' CPU for all partitions at the broker's rate: {clients:.1f} s a poll")
        total += clients
    print(f"together {total:.1f} s of {BOUND_SECONDS:.0f} s")
    return 0 if total <= BOUND_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
