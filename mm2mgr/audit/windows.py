"""What an audit compares: per partition a window of the source log and one of the target log, and what the flow's
config makes of records on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mm2mgr.partitions import TopicPartition

ALL_FIELDS = ("key", "value", "timestamp", "headers")
"""What of a record counts, in the order in which it is told."""


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
class Expectation:
    """What a flow's config makes of the records of one topic.

    `fields` are those that arrive unaltered. `drops`, `alters`: sentences that name the transformation; the records
    that it drops, or the fields that it alters, are no fault. `keeps_offsets` is false where the source log has gaps
    by nature: compaction and transactions.
    """

    matching: Matching = Matching.ORDERED
    fields: tuple[str, ...] = ALL_FIELDS
    drops: str = ""
    alters: Mapping[str, str] = field(default_factory=dict)
    keeps_offsets: bool = True


@dataclass(frozen=True)
class PartitionOrder:
    """One partition to compare; `not_judged` has what of its log could not be part of the windows, with the reason.

    `several_targets`: the target has another number of partitions, and its windows are all that may hold the records.
    """

    source: LogWindow
    target: LogWindow
    expectation: Expectation = Expectation()
    source_topic_id: str = ""
    target_topic_id: str = ""
    not_judged: tuple[str, ...] = ()


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
