"""Sizes of the records of topics, measured on samples. Reading blocks, and raises KafkaError."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mm2mgr.partitions import Offsets, TopicPartition

if TYPE_CHECKING:
    from mm2mgr.live.reach import KafkaReach

_SAMPLED_PARTITIONS = 60
_RECORDS_PER_WINDOW = 200


@dataclass(frozen=True)
class TopicSizes:
    """Logs of partitions of some topics, and by topic the mean size of a record, where that was measured: key, value
    and headers before compression.
    """

    logs: Mapping[TopicPartition, Offsets]
    record_bytes: Mapping[str, float]


def read_sizes(reach: KafkaReach, topics: Mapping[str, int]) -> TopicSizes:
    """Return logs and record sizes of topics (name → partitions), sampled at start, middle and end of large ones.

    Blocks; raises KafkaError.
    """
    from mm2mgr.kafka.records import ReadLimits, mean_record_bytes

    every = (TopicPartition(name, number) for name, count in topics.items() for number in range(count))
    logs = reach.kafka.offsets(every)
    by_size = sorted(
        (partition for partition in logs if logs[partition].end > logs[partition].start),
        key=lambda partition: logs[partition].start - logs[partition].end,
    )
    first = {partition.topic: partition for partition in reversed(by_size)}
    sampled = list(dict.fromkeys((*first.values(), *by_size)))[:_SAMPLED_PARTITIONS]
    sizes_of_topics: dict[str, list[float]] = {}
    for part in (0.0, 0.5, 1.0):
        windows = {}
        for partition in sampled:
            log = logs[partition]
            start = log.start + int(part * max(0, log.end - log.start - _RECORDS_PER_WINDOW))
            windows[partition] = Offsets(start, min(log.end, start + _RECORDS_PER_WINDOW))
        limits = ReadLimits(_RECORDS_PER_WINDOW, limit_seconds=reach.limits.kafka_seconds)
        for partition, mean in mean_record_bytes(reach.access, windows, limits).items():
            sizes_of_topics.setdefault(partition.topic, []).append(mean)
    return TopicSizes(logs, {topic: sum(means) / len(means) for topic, means in sizes_of_topics.items()})


def read_stored(reach: KafkaReach, topics: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return what a record takes in the logs of topics (name → partitions, and a record's size before compression).

    Too small ones are left out. Blocks; raises KafkaError.
    """
    from mm2mgr.kafka.records import stored_record_bytes

    with reach.connect(reach.limits.measuring_seconds) as kafka:
        every = (TopicPartition(name, number) for name, (count, _) in topics.items() for number in range(count))
        logs = kafka.offsets(every)
    of = ({partition: log for partition, log in logs.items() if partition.topic == name} for name in topics)
    with ThreadPoolExecutor(reach.limits.kafka_at_once) as threads:
        sizes = threads.map(partial(stored_record_bytes, reach.access), of, (size for _, size in topics.values()))
        return {name: size for name, size in zip(topics, sizes, strict=True) if size is not None}
