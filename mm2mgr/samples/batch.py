"""What a source gives to the store: the partitions of one cluster at one time, column by column.

Columns are lists or arrays of one length; nothing is computed or written here.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Whole: TypeAlias = "Sequence[int | None] | array[int]"
Real: TypeAlias = "Sequence[float | None] | array[float]"
_PARTITIONS = 1_000_000  # several times what a cluster can hold; ids are kept in arrays by partition number


@dataclass(frozen=True)
class Batch:
    """Samples of one cluster and source at one moment; row i of every column is about partition i.

    The columns are those of the table `samples` in `schema.TABLES`, None where the source has no value. A negative offset or size
    means unknown, and a row without any value is not kept. `topic_ids` may be None or hold None: then the samples belong
    to the topic as it is known last. `time_ms` is the last millisecond of the `resolution_ms` that rates cover.
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

    def __post_init__(self) -> None:
        columns = {"partitions": self.partitions, "topic_ids": self.topic_ids, **self.values()}
        wrong = [name for name, column in columns.items() if column is not None and len(column) != len(self.topics)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} and topics differ in length")
        if len(self.partitions) and not 0 <= min(self.partitions) <= max(self.partitions) < _PARTITIONS:
            raise ValueError(f"{self.cluster} has a partition number that is none")

    def __len__(self) -> int:
        return len(self.topics)

    def values(self) -> Mapping[str, Whole | Real | None]:
        """Return the columns of measured values by name."""
        return {
            "end_offset": self.end_offset,
            "start_offset": self.start_offset,
            "records_per_second": self.records_per_second,
            "bytes_per_second": self.bytes_per_second,
            "record_bytes": self.record_bytes,
            "log_bytes": self.log_bytes,
        }
