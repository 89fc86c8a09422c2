"""`records`: records of a topic beside their mirrors, a few at a time. `audit` compares all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mm2mgr.audit.report import content_text, stamp_text
from mm2mgr.audit.windows import ALL_FIELDS, FlowOrder, LogAccess, LogWindow, Matching, PartitionOrder, as_mirrored
from mm2mgr.errors import ExitCode, InvalidArgument, Mm2mgrError
from mm2mgr.operations.audit_bounds import AuditOptions, choose_flows, read_whole_windows
from mm2mgr.operations.audit_windows import offsets_since, with_targets
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import one_line

_CONTEXT = 200
_KEY_OFFSETS, _WIDE = 10_000, 50_000


@dataclass(frozen=True)
class RecordsOptions:
    """Which records: the newest `count`; with an `offset`, or a time `since_ms` (milliseconds since 1970), the first
    `count` from there on. `key`: only records with this key, among 10 000 offsets of each partition."""

    partitions: tuple[int, ...] = ()
    offset: int | None = None
    since_ms: int | None = None
    key: str | None = None
    count: int = 5
    show_values: bool = False


class MirrorState(StrEnum):
    """What is known of a record's mirror."""

    EQUAL = "equal"
    ALTERED = "altered"
    WAITING = "not yet"
    DROPPED = "dropped"
    MISSING = "not found"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class MirroredRecord:
    """A record of the source. `time_ms` is its timestamp, milliseconds since 1970 (negative: none). `mirrors` are the
    offsets of its copies in the same partition on the target, and `reason` what is to be said of them.

    `key` and `value` are told where they were asked for, without secrets.
    """

    partition: int
    offset: int
    time_ms: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: int = 0
    state: MirrorState = MirrorState.NOT_JUDGED
    mirrors: tuple[int, ...] = ()
    reason: str = ""
    shown: bool = False

    json_keys = (
        "partition offset time=time_utc key_bytes value_bytes headers key=key_text value=value_text "
        "state mirrors reason"
    )

    @property
    def time_utc(self) -> str | None:
        """Its timestamp, such as 2026-11-21T10:00:00.123Z."""
        return stamp_text(self.time_ms)

    @property
    def key_bytes(self) -> int | None:
        return None if self.key is None else len(self.key)

    @property
    def value_bytes(self) -> int | None:
        return None if self.value is None else len(self.value)

    @property
    def key_text(self) -> str | None:
        return content_text(self.key) if self.shown else None

    @property
    def value_text(self) -> str | None:
        return content_text(self.value) if self.shown else None


@dataclass(frozen=True)
class FlowRecords:
    """Records of a topic that a flow mirrors; `remote` is its name on the target, "" where nobody can know it."""

    flow: str
    source: str
    target: str
    topic: str
    remote: str
    records: tuple[MirroredRecord, ...]
    not_judged: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """2 where a mirror is wrong or not there, 1 where something could not be judged."""
        states = {record.state for record in self.records}
        if states & {MirrorState.ALTERED, MirrorState.MISSING}:
            return ExitCode.DIFFERS
        return ExitCode.NO if self.not_judged or MirrorState.NOT_JUDGED in states else ExitCode.YES


def records(workspace: Workspace, topic: str, options: RecordsOptions = RecordsOptions()) -> list[FlowRecords]:
    """Read records of a topic from its source and look for each in the mirror, for each flow that takes the topic.

    Nothing is committed. A record that the flow has not stored yet is "not yet"; what cannot be read is not judged,
    with the reason. Mm2mgrError for a topic that no flow mirrors.
    """
    workspace.refuse_snapshot()
    chosen = [entry for entry in choose_flows(workspace, (topic,), (topic,)) if entry.takes(topic)]
    if not chosen:
        raise Mm2mgrError(f"no flow takes a topic '{topic}'", hint="name a topic as it is on the source: mm2mgr topics")
    order = read_whole_windows(workspace, chosen, AuditOptions(topics=(topic,), partitions=options.partitions))
    starts = offsets_since(workspace, order.flows, options.since_ms) if options.since_ms is not None else {}
    return [
        _of_flow(workspace, (topic, entry.flow.target.alias, entry.target_topic(topic)), flow, starts, options)
        for entry, flow in zip(chosen, order.flows, strict=True)
    ]


def _of_flow(
    workspace: Workspace,
    names: tuple[str, str, str],
    flow: FlowOrder,
    starts: Mapping[str, Mapping[TopicPartition, int] | Mm2mgrError],
    options: RecordsOptions,
) -> FlowRecords:
    topic, target, remote = names
    if options.offset is not None and len(flow.partitions) > 1:
        message = f"offset {options.offset} of which partition? {topic} has {len(flow.partitions)}"
        raise InvalidArgument("offset", f"{message}: name it with --partition")
    since = starts.get(flow.source.alias, {})
    failures = [f"offsets by time: {one_line(since.message)}"] if isinstance(since, Mm2mgrError) else []
    parts = {part.source.partition: part for part in flow.partitions}
    windows = () if failures else [*_windows(parts.values(), {} if isinstance(since, Mm2mgrError) else since, options)]
    messages, faults = _read(flow.source, windows)
    failures += faults
    with_key = [message for message in messages if options.key is None or message.key() == options.key.encode()]
    with_key.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
    from_start = options.offset is not None or options.since_ms is not None
    few_messages = with_key[: options.count] if from_start else with_key[-options.count :]
    judged = _find_mirrors(workspace, flow, parts, few_messages)
    shown = tuple(replace(record, shown=options.show_values) for record in judged)
    return FlowRecords(flow.flow, flow.source.alias, target, topic, remote, shown, (*flow.not_judged, *failures))


def _windows(
    parts: Iterable[PartitionOrder], since: Mapping[TopicPartition, int], options: RecordsOptions
) -> Iterator[LogWindow]:
    """Yield where the records of each partition are read."""
    count = options.count if options.key is None else max(options.count, _KEY_OFFSETS)
    for part in parts:
        log, partition = part.source_log, part.source.partition
        if options.offset is not None:
            first = options.offset
        elif options.since_ms is not None:
            at = since.get(partition, -1)
            first = log.end if at < 0 else at
        else:
            first = log.end - count
        first = max(log.start, first)
        yield LogWindow(partition, min(first, log.end), min(log.end, first + count))


def _read(access: LogAccess, windows: Sequence[LogWindow]) -> tuple[list[Any], list[str]]:
    """Return the records of windows, each of another partition, and why some could not be read."""
    from mm2mgr.audit.reading import ReadFault, WindowReader

    messages: list[Any] = []
    faults: list[str] = []
    for answer in WindowReader(access, windows):
        if isinstance(answer, tuple):
            messages += answer[1]
        elif isinstance(answer, ReadFault):
            place = answer.window.partition
            faults.append(f"{place} on {access.alias} was read up to offset {answer.offset}: {answer.reason}")
    return messages, faults


@dataclass
class _Sought:
    """A record of the source as it was read, and what is known of its mirror so far."""

    message: Any
    record: MirroredRecord

    @property
    def is_missing(self) -> bool:
        return self.record.state is MirrorState.MISSING


def _find_mirrors(
    workspace: Workspace, flow: FlowOrder, parts: Mapping[TopicPartition, PartitionOrder], messages: Sequence[Any]
) -> list[MirroredRecord]:
    sought = [_Sought(message, _undue(parts[_place(message)], message)) for message in messages]
    due: dict[TopicPartition, list[_Sought]] = {}
    for entry in sought:
        if entry.is_missing:
            due.setdefault(_place(entry.message), []).append(entry)
    if due:
        orders = tuple(replace(parts[place], source=_span(place, entries)) for place, entries in due.items())
        (placed,) = with_targets(workspace, [replace(flow, partitions=orders)], context=_CONTEXT)
        for window_of in (_likely_window, _wide_window):  # times out of order make the first one too small
            _search(flow.target, placed.partitions, due, window_of)
    return [entry.record for entry in sought]


def _span(place: TopicPartition, entries: Iterable[_Sought]) -> LogWindow:
    offsets = [entry.message.offset() for entry in entries]
    return LogWindow(place, min(offsets), max(offsets) + 1)


def _likely_window(part: PartitionOrder) -> LogWindow:
    return replace(part.target, end=min(part.target.end, part.target.first + _WIDE))


def _wide_window(part: PartitionOrder) -> LogWindow:
    return LogWindow(part.target.partition, part.target.first, min(part.target_log.end, part.target.first + _WIDE))


def _search(
    target: LogAccess,
    parts: Iterable[PartitionOrder],
    due: Mapping[TopicPartition, Sequence[_Sought]],
    window_of: Callable[[PartitionOrder], LogWindow],
) -> None:
    """Judge the records that are still missing by what is in a window of their target's partition."""
    left = [part for part in parts if any(entry.is_missing for entry in due[part.source.partition])]
    windows = [window_of(part) for part in left]
    copies, faults = _read(target, windows)
    for part, window in zip(left, windows, strict=True):
        look = _Look(window, [copy for copy in copies if _place(copy) == window.partition], faults)
        for entry in due[part.source.partition]:
            if entry.is_missing:
                entry.record = _judge(part, entry.message, entry.record, look)


def _undue(part: PartitionOrder, message: Any) -> MirroredRecord:
    """Return a record that nothing is to be looked for, with the reason; MISSING where it is to be looked for."""
    _, time_ms = message.timestamp()
    place = message.partition(), message.offset(), time_ms, message.key(), message.value(), len(message.headers() or ())
    record = MirroredRecord(*place)
    if part.not_judged:
        return replace(record, reason=part.not_judged[0])
    if message.offset() >= part.due:
        text = f"the flow has stored offset {part.due - 1}" if part.due else "the flow has stored no offset"
        return replace(record, state=MirrorState.WAITING, reason=text)
    dropped: Counter[str] = Counter()
    if not list(as_mirrored([message], part.expectation.steps, dropped)):
        return replace(record, state=MirrorState.DROPPED, reason=next(iter(dropped)))
    return replace(record, state=MirrorState.MISSING)


@dataclass(frozen=True)
class _Look:
    """What was read of a target's partition."""

    window: LogWindow
    copies: Sequence[Any]
    faults: Sequence[str]


def _judge(part: PartitionOrder, message: Any, record: MirroredRecord, look: _Look) -> MirroredRecord:
    """Return the record with its mirrors among the records of the target."""
    window, copies = look.window, look.copies
    counted = part.expectation.fields
    (mirrored,) = as_mirrored([message], part.expectation.steps, Counter())
    equal = tuple(copy.offset() for copy in copies if _fields(copy, counted) == _fields(mirrored, counted))
    if equal:
        others = sorted({*ALL_FIELDS} - {*counted})
        reasons = [f"{' and '.join(others)} not compared: the flow's config alters them"] if others else []
        reasons += [f"{len(equal)} records of the target are equal to it"] if len(equal) > 1 else []
        return replace(record, state=MirrorState.EQUAL, mirrors=equal, reason="; ".join(reasons))
    identity = ("key", "timestamp")
    alike = [
        copy for copy in copies if message.key() is not None and _fields(copy, identity) == _fields(message, identity)
    ]
    if len(alike) == 1:
        (copy,) = alike
        differ = [name for name in counted if _fields(copy, (name,)) != _fields(mirrored, (name,))]
        reason = f"{' and '.join(differ)} differ"
        return replace(record, state=MirrorState.ALTERED, mirrors=(copy.offset(),), reason=reason)
    if look.faults:
        return replace(record, state=MirrorState.NOT_JUDGED, reason=look.faults[0])
    looked = f"not at offsets {window.first} to {window.end - 1}" if window.end > window.first else "nothing is there"
    if part.expectation.matching is Matching.LATEST:
        looked += "; the topic is compacted, so a later record of the key may have replaced it"
    return replace(record, reason=f"{looked}: `mm2mgr audit` compares all of them")


def _fields(message: Any, names: Iterable[str]) -> tuple[object, ...]:
    """Return parts of a record, as they are compared."""
    read = {
        "key": message.key,
        "value": message.value,
        "timestamp": lambda: message.timestamp()[1],
        "headers": lambda: message.headers() or None,
    }
    return tuple(read[name]() for name in names)


def _place(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())
