"""Traffic to plan assignments for: four published sets of topics × Zipf × skew, and random sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from mm2mgr.balance.rates import MeasuredRate
from mm2mgr.partitions import TopicPartition, listing_of, predict
from mm2mgr.sizing.tasks import Capacity

CAPACITY = Capacity()
USABLE = CAPACITY.usable_bytes_per_second
HEAVIEST = 6_000_000.0

SCENARIOS = {  # topics, partitions, bytes per second: Wayfair's published sets, and one of LinkedIn's size
    "metrics": (4, 68, 70e6),
    "logging": (205, 442, 210e6),
    "clickstream": (302, 365, 140e6),
    "linkedin10k": (1500, 10_000, 2_100e6),
}
ZIPF = (0.8, 1.1, 1.4)
SKEWS = ("even", "0.5", "0.5+hot")

RateByPartition = Mapping[TopicPartition, MeasuredRate]


@dataclass(frozen=True)
class Shape:
    """A set of partitions with their rates."""

    name: str
    rates: RateByPartition


def published_shapes(names: tuple[str, ...] = tuple(SCENARIOS), seed: int = 0) -> Iterator[Shape]:
    """Yield the shapes: 36 for all scenarios."""
    for name in names:
        topics, partitions, total = SCENARIOS[name]
        for zipf in ZIPF:
            for skew in SKEWS:
                chance = Random(f"{name} {zipf} {skew} {seed}")
                loads = zipf_loads(topics, zipf, total)
                counts = partition_counts(loads, partitions, chance)
                rates = {}
                for topic, (load, count) in enumerate(zip(loads, counts, strict=True)):
                    for number, rate in enumerate(split(load, count, skew, chance)):
                        key = TopicPartition(f"team{topic % 7}.{name}-{topic}", number)
                        rates[key] = MeasuredRate(min(rate, HEAVIEST))
                yield Shape(f"{name:12} {zipf} {skew:7}", rates)


def random_shape(seed: int) -> Shape:
    """Return a random set with at least ten partitions per task; in every third, records decide as often as bytes."""
    chance = Random(seed)
    tasks = chance.randint(2, 25)
    partitions = tasks * chance.randint(10, 40)
    topics = chance.randint(1, max(1, partitions // 3))
    total = tasks * USABLE * chance.uniform(0.7, 0.99)
    loads = zipf_loads(topics, chance.uniform(0, 1.5), total)
    sigma, is_vector = chance.uniform(0.2, 1.2), seed % 3 == 0
    rates = {}
    for topic, (load, count) in enumerate(zip(loads, partition_counts(loads, partitions, chance), strict=True)):
        shares = [chance.lognormvariate(0, sigma) for _ in range(count)]
        record_bytes = 100 * chance.lognormvariate(0, 0.7) if is_vector else 1_000.0
        for number, share in enumerate(shares):
            rate = load * share / sum(shares)
            rates[TopicPartition(f"t{topic}", number)] = MeasuredRate(rate, rate / record_bytes)
    return Shape(f"random {seed}", rates)


def zipf_loads(topics: int, exponent: float, total: float) -> list[float]:
    """Return the load of each topic: the k-th has 1 / k^exponent of the first."""
    shares = [1 / (rank + 1) ** exponent for rank in range(topics)]
    return [total * share / sum(shares) for share in shares]


def partition_counts(loads: list[float], partitions: int, chance: Random) -> list[int]:
    """Give each topic a partition, and the others to busy topics, as their owners roughly do."""
    from heapq import heapify, heapreplace

    jitter = [chance.lognormvariate(0, 0.5) for _ in loads]
    counts = [1] * len(loads)
    heap = [(-load * jitter[topic], topic) for topic, load in enumerate(loads)]
    heapify(heap)
    for _ in range(partitions - len(loads)):
        topic = heap[0][1]
        counts[topic] += 1
        heapreplace(heap, (-loads[topic] * jitter[topic] / counts[topic], topic))
    return counts


def split(load: float, count: int, skew: str, chance: Random) -> list[float]:
    """Divide the load of a topic: evenly, lognormally, or so with one partition of every tenth topic four times as busy."""
    shares = [1.0 if skew == "even" else chance.lognormvariate(0, 0.5) for _ in range(count)]
    if skew.endswith("hot") and chance.random() < 0.1:
        shares[chance.randrange(count)] *= 4
    return [load * share / sum(shares) for share in shares]


def stock_order(rates: RateByPartition) -> tuple[TopicPartition, ...]:
    """Return the order in which MirrorMaker assigns these partitions, by the model of Java's tables."""
    counts: dict[str, int] = {}
    for topic, number in sorted(rates):
        counts[topic] = number + 1
    return predict(listing_of(counts), lambda topic: True).order


def issue_bound(rates: RateByPartition, tasks: int) -> float:
    """Return max(mean, heaviest, p_m + p_(m+1)) as a share of the usable capacity, in the dimension where it is larger."""
    by_records = CAPACITY.usable_records_per_second
    return max(
        _bound([rate.bytes_per_second / USABLE for rate in rates.values()], tasks),
        _bound([rate.records_per_second / by_records for rate in rates.values()], tasks),
    )


def _bound(shares: list[float], tasks: int) -> float:
    ordered = sorted(shares, reverse=True)
    pair = ordered[tasks - 1] + ordered[tasks] if len(ordered) > tasks else 0.0
    return max(math.fsum(ordered) / tasks, ordered[0], pair)


def share_of(rates: RateByPartition, partitions: tuple[TopicPartition, ...]) -> float:
    """Return the load of a task as a share of the usable capacity, in bytes or records, whichever is more."""
    volume = math.fsum(rates[partition].bytes_per_second for partition in partitions)
    records = math.fsum(rates[partition].records_per_second for partition in partitions)
    return max(volume / USABLE, records / CAPACITY.usable_records_per_second)
