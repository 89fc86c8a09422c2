"""What an audit found: differences of single records, and a verdict for each partition, flow and the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from mm2mgr.errors import ExitCode
from mm2mgr.partitions import TopicPartition


class Verdict(StrEnum):
    """What is said of a window of records."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_JUDGED = "not judged"


class DifferenceKind(StrEnum):
    """How a record of one log differs from the other log."""

    MISSING = "missing"
    DUPLICATED = "duplicated"
    ALTERED = "altered"
    REORDERED = "reordered"
    EXTRA = "extra"


@dataclass(frozen=True)
class RecordDifference:
    """One record that differs.

    `source_offset` is None for an extra record, `target_offset` for a missing one. `time_ms` is the record's own
    timestamp, milliseconds since 1970 UTC. `key_hash` is 16 hexadecimal digits, None for a null key. `fields` names
    what was altered: key, value, timestamp, headers. `expected` says why the flow's config makes this difference
    and is empty for a fault. `note` adds what is known of the cause: "came twice, after the record of 12:03 UTC".
    `content` is a hash of what an altered or extra record has on the target, to compare two mirrors; it is not told.
    Values are there only where they were asked for; as JSON and text they are without secrets.
    """

    kind: DifferenceKind
    source_offset: int | None
    target_offset: int | None
    time_ms: int | None = None
    key_hash: str | None = None
    fields: tuple[str, ...] = ()
    expected: str = ""
    note: str = ""
    content: int | None = field(default=None, repr=False, compare=False)
    source_value: bytes | None = field(default=None, repr=False)
    target_value: bytes | None = field(default=None, repr=False)
    json_keys = (
        "kind source_offset target_offset time=time_utc key_hash fields expected note source_value=source_text "
        "target_value=target_text"
    )

    @property
    def time_utc(self) -> str | None:
        """Its timestamp, such as 2026-11-21T10:00:00.123Z; None where it has none."""
        return stamp_text(self.time_ms)

    @property
    def source_text(self) -> str | None:
        return content_text(self.source_value)

    @property
    def target_text(self) -> str | None:
        return content_text(self.target_value)


@dataclass(frozen=True)
class PartitionAudit:
    """What was compared of one partition, and the outcome.

    The windows are offsets, first included, end excluded. `counts` has all differences that no config explains, also
    those that `differences` leaves out beyond its limit. `not_judged` has a sentence with offsets for each part of the
    window that could not be compared; where it has any, the partition is never equal. `unlisted` has the ranges of the
    differences beyond that limit, by kind, as `ranges_of` returns them.
    """

    source: TopicPartition
    target: TopicPartition
    source_window: tuple[int, int]
    target_window: tuple[int, int]
    source_records: int = 0
    target_records: int = 0
    counts: Mapping[DifferenceKind, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[RecordDifference, ...] = ()
    not_judged: tuple[str, ...] = ()
    source_topic_id: str = ""
    target_topic_id: str = ""
    unlisted: Mapping[DifferenceKind, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    json_keys = (
        "topic=source.topic partition=source.partition target_topic=target.topic target_partition=target.partition "
        "verdict source_window target_window source_records target_records counts expected not_told differences "
        "not_judged"
    )

    @property
    def not_told(self) -> int:
        """How many differences are counted and not in `differences`."""
        return sum(self.counts.values()) - sum(not difference.expected for difference in self.differences)

    @property
    def verdict(self) -> Verdict:
        """A difference wins over what was not judged: it stands, whatever the rest would show."""
        if any(self.counts.values()):
            return Verdict.DIFFERS
        return Verdict.NOT_JUDGED if self.not_judged else Verdict.EQUAL


def stamp_text(time_ms: int | None) -> str | None:
    """Return a record's timestamp, such as 2026-11-21T10:00:00.123Z; None where it has none (negative)."""
    if time_ms is None or time_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{time_ms} ms after 1970"
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def ranges_of(differences: Iterable[RecordDifference]) -> dict[DifferenceKind, tuple[tuple[int, int], ...]]:
    """Return by kind the offsets of faults as ranges, first and last: of the target for extra records, else of the
    source."""
    offsets: dict[DifferenceKind, set[int]] = {}
    for difference in differences:
        is_extra = difference.kind is DifferenceKind.EXTRA
        offset = difference.target_offset if is_extra else difference.source_offset
        if not difference.expected and offset is not None:
            offsets.setdefault(difference.kind, set()).add(offset)
    ranges: dict[DifferenceKind, tuple[tuple[int, int], ...]] = {}
    for kind, places in offsets.items():
        runs: list[tuple[int, int]] = []
        for offset in sorted(places):
            if runs and runs[-1][1] == offset - 1:
                runs[-1] = runs[-1][0], offset
            else:
                runs.append((offset, offset))
        ranges[kind] = tuple(runs)
    return ranges


@dataclass(frozen=True)
class FlowAudit:
    """What was compared of one flow. `promises` are the sentences that say what "equal" means for its topics."""

    flow: str
    partitions: tuple[PartitionAudit, ...] = ()
    promises: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    json_keys = "flow verdict counts partitions promises not_judged"

    @property
    def counts(self) -> dict[DifferenceKind, int]:
        """The differences of all partitions, those of every kind."""
        return {kind: sum(part.counts.get(kind, 0) for part in self.partitions) for kind in DifferenceKind}

    @property
    def verdict(self) -> Verdict:
        """The worst of its partitions; not judged where there is none."""
        return worst([part.verdict for part in self.partitions] + [Verdict.NOT_JUDGED for _ in self.not_judged])


@dataclass(frozen=True)
class AuditReport:
    """An audit: its flows, when it began (seconds since 1970), how long it took, and what did the work."""

    flows: tuple[FlowAudit, ...]
    began: float
    seconds: float
    engine: str
    warnings: tuple[str, ...] = ()
    json_keys = "verdict began=began_utc seconds engine flows warnings"

    @property
    def began_utc(self) -> str:
        return f"{datetime.fromtimestamp(self.began, UTC):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def verdict(self) -> Verdict:
        """The worst of its flows; not judged where there is none."""
        return worst([flow.verdict for flow in self.flows])

    @property
    def exit_code(self) -> ExitCode:
        """Equal is 0, a difference 2, and 1 what could not be judged."""
        codes = {Verdict.EQUAL: ExitCode.YES, Verdict.DIFFERS: ExitCode.DIFFERS, Verdict.NOT_JUDGED: ExitCode.NO}
        return codes[self.verdict]


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return DIFFERS where any verdict is that, then NOT_JUDGED, also for no verdict at all."""
    if Verdict.DIFFERS in verdicts:
        return Verdict.DIFFERS
    return Verdict.EQUAL if verdicts and set(verdicts) == {Verdict.EQUAL} else Verdict.NOT_JUDGED


def content_text(value: bytes | None) -> str | None:
    """Return a key or value as text without secrets; None for null."""
    if value is None:
        return None
    from mm2mgr.secrets import mask_text  # what reads logs on executors does without

    return mask_text(value.decode("utf-8", "backslashreplace"))
