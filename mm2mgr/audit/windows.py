"""What an audit compares: per partition a window of the source log and one of the target log, and what the flow's
config makes of records on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from mm2mgr.partitions import Offsets, TopicPartition

ALL_FIELDS = ("key", "value", "timestamp", "headers")
"""What of a record counts, in the order in which it is told."""

LOG_END = 2**63 - 1
"""In the place of a window's end: all that the log has when it is read."""

CONTEXT = 2_000
"""So many source offsets around a window are read too, to tell where its records are on the target."""


class Matching(StrEnum):
    """How records of the two logs belong together: in their order, or the latest of each key, or in order among
    others' (several sources write into one log)."""

    ORDERED = "ordered"
    LATEST = "latest per key"
    FAN_IN = "fan-in"


@dataclass(frozen=True)
class LogAccess:
    """One cluster as its records are read: librdkafka's settings, secrets included, and whether open and aborted
    transactions are left out."""

    alias: str
    settings: Mapping[str, str] = field(repr=False)
    committed: bool = False


@dataclass(frozen=True)
class LogWindow:
    """A window of a partition's log: first offset included, end excluded."""

    partition: TopicPartition
    first: int
    end: int


@dataclass(frozen=True)
class RecordStep:
    """One transformation that works on bytes: it drops records, or removes headers with some names.

    `condition` says which records it gets: all, tombstones, or those with the header `header`; `negated`: all others.
    `says` is what it does in words.
    """

    says: str
    removes: frozenset[str] | None = None
    condition: Literal["all", "tombstones", "header"] = "all"
    header: str = ""
    negated: bool = False


@dataclass(frozen=True)
class Expectation:
    """What a flow's config makes of the records of one topic.

    `fields` are those that arrive unaltered. `steps` are applied to source records before they are compared.
    `late`: why records before the first mirrored one may never have been asked for, "" where they were.
    """

    matching: Matching = Matching.ORDERED
    fields: tuple[str, ...] = ALL_FIELDS
    steps: tuple[RecordStep, ...] = ()
    late: str = ""


@dataclass(frozen=True)
class PartitionOrder:
    """One partition to compare. The records of `source` are judged; those around it, within `source_log`, only help to
    tell what else the target has.

    `source_log` and `target_log` are what both logs held before anything was read, the source's end taken last: each
    record of the target's log is in the source's, or was before its start. `not_judged` has what could not be part of
    the windows, with the reason. Where it is not empty and
    the windows are, nothing is read. `stored_end`: records before this offset are mirrored, also behind the window.
    """

    source: LogWindow
    target: LogWindow
    source_log: Offsets
    target_log: Offsets
    expectation: Expectation = Expectation()
    source_topic_id: str = ""
    target_topic_id: str = ""
    not_judged: tuple[str, ...] = ()
    stored_end: int = 0

    @property
    def due(self) -> int:
        """The end of what must have arrived."""
        return max(self.source.end, self.stored_end)


@dataclass(frozen=True)
class FlowOrder:
    """The partitions of one flow, both clusters as they are read, and what "equal" promises."""

    flow: str
    source: LogAccess
    target: LogAccess
    partitions: tuple[PartitionOrder, ...] = ()
    promises: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuditOrder:
    """What `run_audit` compares. At most `most_differences` of each partition are told one by one."""

    flows: tuple[FlowOrder, ...]
    show_values: bool = False
    most_differences: int = 1_000
    warnings: tuple[str, ...] = ()


# --- what transformations make of records -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stripped:
    """A message without some of its headers."""

    message: Any
    left: list[tuple[str, bytes | None]] | None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.left

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)


def as_mirrored(messages: Iterable[Any], steps: Sequence[RecordStep], dropped: Counter[str]) -> Iterator[Any]:
    """Yield the records that transformations leave, as they leave them; count what they drop."""
    for message in messages:
        headers = message.headers()
        for step in steps:
            if not _gets(step, message, headers):
                continue
            if step.removes is None:
                dropped[step.says] += 1
                break
            headers = [header for header in headers or () if header[0] not in step.removes] or None
        else:
            yield _Stripped(message, headers)


def _gets(step: RecordStep, message: Any, headers: list[tuple[str, bytes | None]] | None) -> bool:
    if step.condition == "all":
        return True
    is_selected = message.value() is None
    if step.condition == "header":
        is_selected = any(name == step.header for name, _ in headers or ())
    return is_selected != step.negated
