"""What metric sources give to the store: the partitions of one cluster at one time, column by column.

Values and topic names of other systems are believed or refused here, and what is refused is counted. No I/O, and no gap
is filled: a value that is missing stays missing.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mm2mgr.text import few

if TYPE_CHECKING:
    from mm2mgr.kafka.client import TopicInfo

Whole: TypeAlias = "Sequence[int | None] | array[int]"
Real: TypeAlias = "Sequence[float | None] | array[float]"
_PARTITIONS = 1_000_000  # several times what a cluster can hold; ids are kept in arrays by partition number
_NAMED = 5
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
    "bytes_out_per_second": _RATE,
    "replication_bytes_in_per_second": _RATE,
    "replication_bytes_out_per_second": _RATE,
}
"""The columns of a sample that a source may fill, and the largest value of each that is believed."""


@dataclass(frozen=True)
class Batch:
    """Samples of one cluster and source at one moment; row i of every column is about partition i.

    The columns are those of the table `samples` in `schema.TABLES`, None where the source has no value. A negative
    offset or size means unknown, and a row without any value is not kept. `topic_ids` may be None or hold None: then
    the samples belong to the topic as it is known last. `time_ms` is the last millisecond of the `resolution_ms` that
    rates cover.
    """

    cluster: str
    source: str
    time_ms: int
    topics: Sequence[str]
    partitions: Sequence[int]
    topic_ids: Sequence[str | None] | None = None
    resolution_ms: int = 0
    end_offset: Whole | None = None
    start_offset: Whole | None = None
    records_per_second: Real | None = None
    bytes_per_second: Real | None = None
    record_bytes: Real | None = None
    log_bytes: Whole | None = None
    bytes_out_per_second: Real | None = None
    replication_bytes_in_per_second: Real | None = None
    replication_bytes_out_per_second: Real | None = None

    def __post_init__(self) -> None:
        columns = {"partitions": self.partitions, "topic_ids": self.topic_ids, **self.values()}
        wrong = [name for name, column in columns.items() if column is not None and len(column) != len(self.topics)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} and topics differ in length")
        if len(self.partitions) and not 0 <= min(self.partitions) <= max(self.partitions) < _PARTITIONS:
            raise ValueError(f"{self.cluster} has an impossible partition number")

    def __len__(self) -> int:
        return len(self.topics)

    def values(self) -> Mapping[str, Whole | Real | None]:
        """Return the columns of measured values by name."""
        return {name: getattr(self, name) for name in LARGEST}


@dataclass(frozen=True)
class Inventory:
    """The topics of one cluster by name, and which of them are wanted."""

    alias: str
    topics: Mapping[str, TopicInfo]
    accepts: Callable[[str], bool]

    def topics_to_sample(self) -> dict[str, TopicInfo]:
        """Return the topics to sample: accepted ones that are not Kafka's own."""
        return {name: info for name, info in self.topics.items() if self.accepts(name) and not info.internal}


@dataclass(frozen=True)
class Gathered:
    """One answer of a source: its samples, and sentences with everything that a reader of them has to know.

    `stored`: how many samples the source appended to the table itself.
    """

    batches: list[Batch]
    notes: list[str]
    stored: int = 0


@dataclass
class TopicNames:
    """Maps the topic names of a source back to the cluster's topics.

    Some metric pipelines write `_` for `.`, so `a_b` may mean `a.b`. Where no name of an answer has a dot (`keeps_dots`
    is False), a name that fits two topics is refused.
    """

    inventory: Inventory
    keeps_dots: bool
    ambiguous: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    _flat: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for topic in self.inventory.topics:
            self._flat.setdefault(topic.replace(".", "_"), []).append(topic)

    def topic(self, label: str) -> str | None:
        """Return the topic that a label means; None, remembered, for none or several."""
        exact = [label] if label in self.inventory.topics else []
        fitting = exact if self.keeps_dots else self._flat.get(label, [])
        if len(fitting) == 1:
            return fitting[0]
        if not label.startswith("__"):  # Kafka lists some of its own logs nowhere, such as that of its controllers
            (self.ambiguous if fitting else self.unknown).add(label)
        return None

    def notes(self) -> list[str]:
        """Say which names were refused and which this cluster does not have."""
        notes = []
        for label in sorted(self.ambiguous):
            fitting = " and ".join(sorted(self._flat[label]))
            notes.append(f"ambiguous label “{label}”: “.” is exported as “_”, and it matches {fitting}")
        if self.unknown:
            some = few(sorted(self.unknown), _NAMED)
            notes.append(f"{len(self.unknown)} topics in the answer are not this cluster's: {some}")
        return notes


class Doubts(Counter[str]):
    """Counts dropped values by reason."""

    def number(self, value: object, largest: float) -> float | None:
        """Return a value as a number between 0 and `largest`; None, counted, when it is none."""
        number = _number(value)
        if number is not None and 0 <= number <= largest:
            return number
        if number is None or math.isnan(number):
            self["not a number"] += 1
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
        self._wanted = inventory.topics_to_sample()
        self._rows: dict[int, dict[tuple[str, int], dict[str, float]]] = {}

    def add(self, topic: str, partition: int, at_ms: int, values: Mapping[str, object]) -> None:
        """Keep what can be believed of `values` (by column; None is unknown) of one partition at one time."""
        if topic not in self._wanted:
            return
        if not 0 <= partition < self._wanted[topic].partitions:
            self.doubts["of a partition that its topic does not have"] += 1
            return
        if believed := self._plausible_values(values):
            self._rows.setdefault(at_ms, {})[topic, partition] = believed

    def share_out(self, topic: str, at_ms: int, rates: Mapping[str, object]) -> None:
        """Give each partition of a topic the same part of the topic's rates."""
        if topic in self._wanted and (believed := self._plausible_values(rates)):
            count = self._wanted[topic].partitions
            row = {name: rate / count for name, rate in believed.items()}
            self._rows.setdefault(at_ms, {}).update({(topic, number): row for number in range(count)})

    def batches(self) -> list[Batch]:
        """Return one batch per sample time, oldest first."""
        return [self._batch(time, rows) for time, rows in sorted(self._rows.items())]

    def notes(self) -> list[str]:
        """Say what was dropped, and which wanted partitions have no sample at all: missing is not zero."""
        measured = {place for rows in self._rows.values() for place in rows}
        partitions = {topic: info.partitions for topic, info in self._wanted.items()}
        return [*self.doubts.notes(), *missing_notes(Counter(topic for topic, _ in measured), partitions)]

    def _plausible_values(self, values: Mapping[str, object]) -> dict[str, float]:
        checked = {
            name: self.doubts.number(value, LARGEST[name]) for name, value in values.items() if value is not None
        }
        return {name: value for name, value in checked.items() if value is not None}

    def _batch(self, time_ms: int, rows: Mapping[tuple[str, int], Mapping[str, float]]) -> Batch:
        columns: dict[str, Any] = {}
        for name in {name for row in rows.values() for name in row}:
            column = [row.get(name) for row in rows.values()]
            is_whole = LARGEST[name] == _WHOLE
            columns[name] = [None if value is None else int(value) for value in column] if is_whole else column
        topics = [topic for topic, _ in rows]
        topic_ids = [self._wanted[topic].topic_id for topic in topics]
        places = [partition for _, partition in rows]
        alias = self.inventory.alias
        return Batch(alias, self.source, time_ms, topics, places, topic_ids, self.resolution_ms, **columns)


def missing_notes(measured: Mapping[str, int], partitions: Mapping[str, int]) -> list[str]:
    """Say which topics to sample have fewer measured partitions than partitions; nothing where none was measured."""
    missing = [topic for topic, count in partitions.items() if measured.get(topic, 0) < count]
    if not measured or not missing:
        return []
    total, of = sum(partitions.values()), few(sorted(missing), _NAMED)
    return [f"{sum(measured.values())} of {total} partitions have samples; missing (not zero): partitions of {of}"]


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
