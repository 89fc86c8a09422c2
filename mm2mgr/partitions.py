"""Partitions: their names, the offsets of their logs, and the order in which a source connector deals them to its
tasks, predicted for the topics that the source's brokers list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Statistic = Literal["mean", "p50", "p95", "max"]
"""What one number stands for the rates of a partition over time."""


class TopicPartition(NamedTuple):
    """One partition of one topic; never joined into a string, because `a-2` is also a legal topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Offsets(NamedTuple):
    """The first offset still in a partition's log, and the next one to be written (the high watermark)."""

    start: int
    end: int


def goes_on(log: Offsets, stored: int | None, begins_at: str = "earliest") -> int:
    """Return the offset of the next record that a task mirrors."""
    if stored is not None and log.start <= stored + 1 <= log.end:
        return stored + 1
    return log.end if begins_at == "latest" else log.start


@dataclass(frozen=True)
class LogHistory:
    """The end offset of a partition's log at some times (milliseconds since 1970, oldest first), and the mean size of
    its records in bytes before compression (None: not measured).
    """

    times_ms: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    record_bytes: float | None = None


_LOAD_FACTOR = 0.75
_LEAST_TABLE = 16
_LIST_BUCKET = 8  # java.util.HashMap keeps more than these in a tree, whose order is not the order of insertion


@dataclass(frozen=True)
class PredictedOrder:
    """The partitions of a connector in the order in which it deals them; not `exact`: more than eight names share a
    bucket, so that the order inside it is not certain.
    """

    order: tuple[TopicPartition, ...]
    exact: bool


@dataclass(frozen=True)
class Listing:
    """The partitions by topic in the order of the admin client's table of topics, and whether that is certain.

    It holds every topic that the connector's login may see but Kafka's own: their number alone changes the order.
    """

    partitions: Mapping[str, int]
    exact: bool


def listing_of(partitions: Mapping[str, int]) -> Listing:
    """Put topics in the order of the admin client, from the order in which the brokers list them."""
    names = list(partitions)
    exact = _fill(names, _LEAST_TABLE, _grown_size(len(names)))
    return Listing({name: partitions[name] for name in names}, exact)


def predict(listing: Listing, carried: Callable[[str], bool]) -> PredictedOrder:
    """Predict the order of a connector that carries these topics.

    On their way through MirrorSourceConnector.findSourceTopicPartitions and the admin client the names pass five Java
    hash tables: the listing, the set of those that match, futures, their copy, descriptions. A table yields its buckets
    in turn, and what shares a bucket as it came in, so each is a stable sort by the bucket.
    """
    names = [name for name in listing.partitions if carried(name)]
    count, exact = len(names), listing.exact
    sized, copied = (_power_of_two(count), _presized_size(count)), (_copied_size(count), _copied_size(count))
    for first, last in ((_LEAST_TABLE, _grown_size(count)), sized, copied, sized):
        exact = _fill(names, first, last) and exact
    order = tuple(TopicPartition(name, number) for name in names for number in range(listing.partitions[name]))
    return PredictedOrder(order, exact)


@lru_cache(maxsize=1 << 18)
def java_spread(name: str) -> int:
    """Return java.util.HashMap's hash of a string: String.hashCode over UTF-16 units, its upper half folded in."""
    code = 0
    units = name.encode("ascii") if name.isascii() else memoryview(name.encode("utf-16-le")).cast("H")
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)


def _grown_size(count: int) -> int:
    """Return the table of a `new HashMap()` after so many insertions."""
    return max(_LEAST_TABLE, _presized_size(count))


def _presized_size(count: int) -> int:
    """Return the table of a `new HashMap(count)` after so many insertions; above three quarters it doubles."""
    table = _power_of_two(count)
    return table if count <= int(table * _LOAD_FACTOR) else 2 * table


def _copied_size(count: int) -> int:
    """Return the table of a `new HashMap(map)` (Java before 19 gives multiples of three a larger one)."""
    return _power_of_two(int(count / _LOAD_FACTOR + 1))


def _power_of_two(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def _fill(names: list[str], first: int, last: int) -> bool:
    """Put names in the order of a table that grew from `first` to `last` buckets; return whether that is certain.

    Where a bucket was ever too full for a list, its order is a tree's; growing keeps it.
    """
    spreads = [java_spread(name) for name in names]
    table, exact = first, True
    while table <= last:
        held = spreads[: int(table * _LOAD_FACTOR) + 1]
        buckets = Counter([spread & (table - 1) for spread in held])
        exact = exact and max(buckets.values(), default=0) <= _LIST_BUCKET
        table *= 2
    names.sort(key=lambda name: java_spread(name) & (last - 1))
    return exact
