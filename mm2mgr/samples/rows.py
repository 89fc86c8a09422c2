"""Samples on their way from a metric source into batches: each value is believed or dropped, and what is dropped is counted.

It does no I/O and fills no gap: a value that is missing stays missing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mm2mgr.samples.batch import Batch
from mm2mgr.samples.inventory import Inventory, coverage

_WHOLE = 2.0**53  # metric systems carry offsets and sizes as doubles, which are exact up to here
_RATE = 1e12  # a terabyte (or as many records) a second through one partition is no measurement
_RECORD = 2.0**31  # Kafka counts the size of a record in 32 bits
LARGEST: Mapping[str, float] = {
    "end_offset": _WHOLE,
    "start_offset": _WHOLE,
    "log_bytes": _WHOLE,
    "records_per_second": _RATE,
    "bytes_per_second": _RATE,
    "record_bytes": _RECORD,
}
"""The columns of a sample that a source may fill, and what is not believed any more."""


class Doubts(Counter[str]):
    """Counts dropped values by reason."""

    def number(self, value: object, largest: float) -> float | None:
        """Return a value as a number between 0 and `largest`; None, counted, when it is none."""
        number = _number(value)
        if number is not None and 0 <= number <= largest:
            return number
        if number is None or math.isnan(number):
            self["no number"] += 1
        else:
            self["negative" if number < 0 else f"above {largest:.0e}"] += 1
        return None

    def notes(self) -> list[str]:
        """Say how many values were dropped and why, or nothing."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.items()))
        return [f"{self.total()} values dropped: {reasons}"] if self else []


class Rows:
    """Collects the values of wanted partitions by sample time."""

    def __init__(self, inventory: Inventory, source: str, resolution_ms: int = 0) -> None:
        self.inventory, self.source, self.resolution_ms = inventory, source, resolution_ms
        self.doubts = Doubts()
        self._wanted = inventory.wanted()
        self._rows: dict[int, dict[tuple[str, int], dict[str, float]]] = {}

    def add(self, topic: str, partition: int, at_ms: int, values: Mapping[str, object]) -> None:
        """Keep what can be believed of `values` (by column; None is unknown) of one partition at one time."""
        if topic not in self._wanted:
            return
        if not 0 <= partition < self._wanted[topic].partitions:
            self.doubts["of a partition that its topic does not have"] += 1
            return
        if kept := self._believed(values):
            self._rows.setdefault(at_ms, {})[topic, partition] = kept

    def share_out(self, topic: str, at_ms: int, rates: Mapping[str, object]) -> None:
        """Give each partition of a topic the same part of the topic's rates."""
        if topic in self._wanted and (believed := self._believed(rates)):
            count = self._wanted[topic].partitions
            kept = {name: rate / count for name, rate in believed.items()}
            self._rows.setdefault(at_ms, {}).update({(topic, number): kept for number in range(count)})

    def batches(self) -> list[Batch]:
        """Return one batch a sample time, oldest first."""
        return [self._batch(time, rows) for time, rows in sorted(self._rows.items())]

    def notes(self) -> list[str]:
        """Say what was dropped, and which wanted partitions have no sample at all."""
        measured = {place for rows in self._rows.values() for place in rows}
        return [*self.doubts.notes(), *(coverage(self.inventory, measured) if measured else [])]

    def _believed(self, values: Mapping[str, object]) -> dict[str, float]:
        checked = {name: self.doubts.number(each, LARGEST[name]) for name, each in values.items() if each is not None}
        return {name: each for name, each in checked.items() if each is not None}

    def _batch(self, time_ms: int, rows: Mapping[tuple[str, int], Mapping[str, float]]) -> Batch:
        columns: dict[str, Any] = {}
        for name in {name for row in rows.values() for name in row}:
            column = [row.get(name) for row in rows.values()]
            is_whole = LARGEST[name] == _WHOLE
            columns[name] = [None if each is None else int(each) for each in column] if is_whole else column
        topics = [topic for topic, _ in rows]
        topic_ids = [self._wanted[topic].topic_id for topic in topics]
        places = [partition for _, partition in rows]
        alias = self.inventory.alias
        return Batch(alias, self.source, time_ms, topics, places, topic_ids, self.resolution_ms, **columns)


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
