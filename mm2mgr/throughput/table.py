"""Throughput as plain values, one a partition: what sizing and the command line read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mm2mgr.throughput.rates import PartitionRate
from mm2mgr.throughput.windows import Throughput, last_hours, read_window


def read_throughput(store: Path, last_seconds: float | None = None) -> list[PartitionRate]:
    """Return the rates of the last whole hours of a store, or of all; ordered by cluster, topic and partition.

    Mm2mgrError when the store has no roll-up.
    """
    return rates_of(read_window(store, last_hours(store, last_seconds)))


def busiest(found: Throughput, top: int) -> Any:
    """Return the rows of the partitions with the highest p95 in bytes per second, busiest first; 0 is all of them."""
    order = np.argsort(-np.nan_to_num(found.values["bytes_per_second_p95"], nan=-1.0), kind="stable")
    return order[:top] if top else order


def rates_of(found: Throughput, rows: Any = None) -> list[PartitionRate]:
    """Return one value a partition, of all or of some rows; what is not known is None."""
    names, chosen = found.names, slice(None) if rows is None else rows
    place = found.place[chosen]
    clusters = [names.clusters[number] for number in names.cluster[place].tolist()]
    topics = [names.topics[number] for number in names.topic[place].tolist()]
    fields = list(PartitionRate.__dataclass_fields__)[3:]
    columns = [_plain(found.values[name][chosen].tolist()) for name in fields]
    return [
        PartitionRate(*row) for row in zip(clusters, topics, names.partition[place].tolist(), *columns, strict=True)
    ]


def _plain(column: list[Any]) -> list[Any]:
    return [None if value != value else value for value in column]  # noqa: PLR0124  # NaN alone differs from itself
