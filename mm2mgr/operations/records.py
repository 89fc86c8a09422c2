"""`records`: records of a topic beside their mirrors, a few at a time. `audit` compares all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from mm2mgr.audit.report import content_text, stamp_text
from mm2mgr.audit.windows import ALL_FIELDS, FlowOrder, LogAccess, LogWindow, Matching, PartitionOrder, as_mirrored
from mm2mgr.errors import ExitCode, InvalidArgument, Mm2mgrError
from mm2mgr.operations.audit_bounds import AuditOptions, choose_topic, read_whole_windows
from mm2mgr.operations.audit_windows import offsets_since, with_targets
from mm2mgr.operations.workspace import Workspace
from mm2mgr.partitions import TopicPartition
from mm2mgr.text import few, one_line

MOST_RECORDS = 1_000
_CONTEXT = 200
_SEARCHED, _WIDE = 10_000, 50_000
_IDENTITY = ("key", "timestamp")


@dataclass(frozen=True)
class RecordsOptions:
    """Which records: the newest `count`, 1 000 at most; with an `offset`, or a time `since_ms` (milliseconds since
    1970), the first `count` from there on. `key`: only records with this key, among 10 000 offsets of each
    partition."""

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
    with the reason. `topic` may be a mirror's name on a target as well, where it is the mirror of a single topic's name
    and no source has such a topic. Mm2mgrError for a topic that no flow mirrors, and for the mirror of several;
    InvalidArgument for more than 1 000 records, and for an `offset` beside a mirror's name.
    """
    workspace.refuse_snapshot()
    if options.count > MOST_RECORDS:
        message = f"{options.count} should be at most {MOST_RECORDS}: mm2mgr audit compares more, and keeps none"
        raise InvalidArgument("last", message)
    named, (topic, chosen) = topic, choose_topic(workspace, topic)
    if topic != named and options.offset is not None:
        message = f"offsets are those of {topic} on the source, and {named} is its mirror: name {topic}"
        raise InvalidArgument("offset", message)
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
    parts = {part.source.partition: part for part in flow.partitions}
    if isinstance(since, Mm2mgrError):
        messages, failures = list[Any](), [f"offsets by time: {one_line(since.message)}"]
    else:
        messages, failures = _choose_records(flow.source, parts, since, options)
    judged = _find_mirrors(workspace, flow, parts, messages)
    shown = tuple(replace(record, shown=options.show_values) for record in judged)
    return FlowRecords(flow.flow, flow.source.alias, target, topic, remote, shown, (*flow.not_judged, *failures))


def _choose_records(
    access: LogAccess,
    parts: Mapping[TopicPartition, PartitionOrder],
    since: Mapping[TopicPartition, int],
    options: RecordsOptions,
) -> tuple[list[Any], list[str]]:
    """Return the records that are asked for, in their order, and what could not be read or was not looked through.

    Markers of transactions and what compaction removed take offsets, too: where these hold fewer records than asked
    for, more are read, as many as are for a key.
    """
    key = None if options.key is None else os.fsencode(options.key)
    from_start = options.offset is not None or options.since_ms is not None

    def is_wanted(message: Any) -> bool:
        is_late = options.since_ms is None or message.timestamp()[1] >= options.since_ms
        return is_late and (key is None or message.key() == key)

    def cut(messages: list[Any]) -> list[Any]:
        return messages[: options.count] if from_start else messages[-options.count :]

    def is_cut(place: TopicPartition) -> bool:
        window, log = windows[place], parts[place].source_log
        return window.end < log.end if from_start else window.first > log.start

    most = max(options.count, _SEARCHED)
    width = options.count if key is None else most
    windows: dict[TopicPartition, LogWindow] = {}
    by_partition: dict[TopicPartition, list[Any]] = {}
    faults: dict[TopicPartition, str] = {}
    left = list(parts)
    while left:
        windows |= {place: _window(parts[place], since, options, width) for place in left}
        answers, failed = _read(access, [windows[place] for place in left], is_wanted, cut)
        faults |= failed
        by_partition |= {place: answers.get(place, []) for place in left}
        is_short = width < most
        left = [p for p in left if is_short and p not in failed and len(by_partition[p]) < options.count and is_cut(p)]
        width = min(most, 10 * width)
    messages = [message for group in by_partition.values() for message in group]
    if options.offset is None:
        messages.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
    reasons = [] if messages else [_unread_text(windows[place]) for place in parts if is_cut(place)]
    return cut(messages), [*faults.values(), *reasons, *_beyond_end(parts.values(), options.offset)]


def _window(
    part: PartitionOrder, since: Mapping[TopicPartition, int], options: RecordsOptions, width: int
) -> LogWindow:
    """Return where the records of a partition are read."""
    log, partition = part.source_log, part.source.partition
    if options.offset is not None:
        first = options.offset
    elif options.since_ms is not None:
        at = since.get(partition, -1)
        first = log.end if at < 0 else at
    else:
        first = log.end - width
    first = max(log.start, first)
    return LogWindow(partition, min(first, log.end), min(log.end, first + width))


def _beyond_end(parts: Iterable[PartitionOrder], offset: int | None) -> Iterator[str]:
    for part in parts:
        if offset is not None and offset >= part.source_log.end:
            end = f"which ends before {part.source_log.end}" if part.source_log.end else "which is empty"
            yield f"offset {offset} is not in the log of {part.source.partition}, {end}"


def _unread_text(window: LogWindow) -> str:
    """Return where no such record is, of a log of which more could be read."""
    return f"no such record at offsets {window.first} to {window.end - 1} of {window.partition}; others were not read"


def _read(
    access: LogAccess,
    windows: Sequence[LogWindow],
    is_wanted: Callable[[Any], bool],
    cut: Callable[[list[Any]], list[Any]] = list,
) -> tuple[dict[TopicPartition, list[Any]], dict[TopicPartition, str]]:
    """Return by partition the records of windows that are wanted, cut as they come, and why some could not be read."""
    from mm2mgr.audit.reading import ReadFault, WindowReader

    messages: dict[TopicPartition, list[Any]] = {}
    faults: dict[TopicPartition, str] = {}
    for answer in WindowReader(access, windows):
        if isinstance(answer, tuple):
            place = answer[0].partition
            messages[place] = cut([*messages.get(place, ()), *filter(is_wanted, answer[1])])
        elif isinstance(answer, ReadFault):
            place = answer.window.partition
            faults[place] = f"{place} on {access.alias} was read up to offset {answer.offset}: {answer.reason}"
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
        for is_last in (False, True):  # times out of order make the first window too small
            _search(flow.target, placed.partitions, due, is_last=is_last)
    return [entry.record for entry in sought]


def _span(place: TopicPartition, entries: Iterable[_Sought]) -> LogWindow:
    offsets = [entry.message.offset() for entry in entries]
    return LogWindow(place, min(offsets), max(offsets) + 1)


def _search(
    target: LogAccess,
    parts: Sequence[PartitionOrder],
    due: Mapping[TopicPartition, Sequence[_Sought]],
    *,
    is_last: bool,
) -> None:
    """Judge the records that are still missing by what is in a window of their target's partition."""
    left = [part for part in parts if any(entry.is_missing for entry in due[part.source.partition])]
    windows = [
        _wide_window(part) if is_last else replace(part.target, end=min(part.target.end, part.target.first + _WIDE))
        for part in left
    ]
    messages = {place: [entry.message for entry in entries] for place, entries in due.items()}
    copies, faults = _read(target, windows, _copies_wanted(parts, messages))
    for part, window in zip(left, windows, strict=True):
        place = window.partition
        look = _Look(window, copies.get(place, ()), part.expectation.fields, faults.get(place, ""), is_last)
        _judge(part, sorted(due[part.source.partition], key=lambda entry: entry.message.offset()), look)


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
    counted: tuple[str, ...]
    fault: str
    is_last: bool

    @cached_property
    def by_fields(self) -> Mapping[tuple[object, ...], Sequence[Any]]:
        """The records by all that is compared."""
        return _group(self.copies, self.counted)

    @cached_property
    def by_identity(self) -> Mapping[tuple[object, ...], Sequence[Any]]:
        """The records by key and timestamp."""
        return _group(self.copies, _IDENTITY)


def _group(messages: Iterable[Any], names: Iterable[str]) -> dict[tuple[object, ...], list[Any]]:
    groups: dict[tuple[object, ...], list[Any]] = {}
    for message in messages:
        groups.setdefault(_fields(message, names), []).append(message)
    return groups


def _judge(part: PartitionOrder, entries: Sequence[_Sought], look: _Look) -> None:
    """Judge the records that are still missing, in their order; no record of the target is the mirror of two."""
    taken = {offset for entry in entries for offset in entry.record.mirrors}
    groups: dict[tuple[object, ...], list[_Sought]] = {}
    for entry in entries:
        if entry.is_missing:
            (mirrored,) = as_mirrored([entry.message], part.expectation.steps, Counter())
            groups.setdefault(_fields(mirrored, look.counted), []).append(entry)
    for fields, group in groups.items():
        free = [copy.offset() for copy in look.by_fields.get(fields, ()) if copy.offset() not in taken]
        for place, entry in enumerate(group):
            if mirrors := tuple(free if len(free) > len(group) else free[place : place + 1]):
                entry.record = _as_equal(entry.record, mirrors, look)
        taken.update(free)
    for fields, group in groups.items():
        for entry in group:
            if entry.is_missing:
                entry.record = _without_equal(part, entry, fields, taken, look)
                taken.update(entry.record.mirrors)


def _as_equal(record: MirroredRecord, mirrors: tuple[int, ...], look: _Look) -> MirroredRecord:
    others = sorted({*ALL_FIELDS} - {*look.counted})
    reasons = [f"{' and '.join(others)} not compared: by the config they are altered on the way"] if others else []
    reasons += [f"{len(mirrors)} records of the target are equal to it"] if len(mirrors) > 1 else []
    return replace(record, state=MirrorState.EQUAL, mirrors=mirrors, reason="; ".join(reasons))


def _without_equal(
    part: PartitionOrder, entry: _Sought, fields: tuple[object, ...], taken: Collection[int], look: _Look
) -> MirroredRecord:
    """Return a record, of which these `fields` are compared, that no record of the target is equal to but those that
    are `taken`: the mirrors of others."""
    window, counted, record, message = look.window, look.counted, entry.record, entry.message
    alike = look.by_identity.get(_fields(message, _IDENTITY), ()) if message.key() is not None else ()
    alike = [copy for copy in alike if copy.offset() not in taken]
    is_latest = part.expectation.matching is Matching.LATEST
    if len(alike) == 1 and not is_latest:
        (copy,) = alike
        differ = [name for name, field in zip(counted, fields, strict=True) if _fields(copy, (name,)) != (field,)]
        reason = f"{' and '.join(differ)} {'differs' if len(differ) == 1 else 'differ'}"
        return replace(record, state=MirrorState.ALTERED, mirrors=(copy.offset(),), reason=reason)
    looked = f"not at offsets {window.first} to {window.end - 1}" if window.end > window.first else "nothing is there"
    if copies := [str(copy.offset()) for copy in look.by_fields.get(fields, ())]:
        looked = f"fewer copies than records: what is equal at {few(copies)} mirrors others that are equal"
    doubt = look.fault
    if is_latest:
        doubt = doubt or f"{looked}; the topic is compacted, so a later record of the key may have replaced it"
    elif look.is_last:
        doubt = doubt or _doubt(part, record, look)
    if doubt:
        return replace(record, state=MirrorState.NOT_JUDGED, reason=doubt)
    return replace(record, reason=f"{looked}: `mm2mgr audit` compares all of them")


def _doubt(part: PartitionOrder, record: MirroredRecord, look: _Look) -> str:
    """Return why a mirror may have been, or may be, where nothing was read; "" where it should have been seen."""
    log, window = part.target_log, look.window
    if window.end < log.end:
        read = f"only offsets {window.first} to {window.end - 1} of the target were read"
        return f"{read}, and its log ends before {log.end}"
    is_of_time = "timestamp" in part.expectation.fields
    is_later = any(is_of_time and copy.timestamp()[1] < record.time_ms for copy in look.copies)
    if 0 < log.start >= window.first and not is_later:
        return f"the target's log begins at {log.start}: its mirror may have been deleted there"
    return ""


def _wide_window(part: PartitionOrder) -> LogWindow:
    """Return a window of the target's log for a second look: what has another time than the record may begin before."""
    first = part.target.first
    if "timestamp" not in part.expectation.fields:
        first = max(part.target_log.start, first - _WIDE // 2)
    return LogWindow(part.target.partition, first, min(part.target_log.end, first + _WIDE))


def _copies_wanted(
    parts: Iterable[PartitionOrder], due: Mapping[TopicPartition, Sequence[Any]]
) -> Callable[[Any], bool]:
    """Return whether a record of the target is kept: one like a record that is looked for, or the log's first."""
    starts, like = set[tuple[TopicPartition, int]](), set[object]()
    fields = {part.target.partition: part.expectation.fields for part in parts}
    for part in parts:
        starts.add((part.target.partition, part.target_log.start))
        for message in as_mirrored(due[part.source.partition], part.expectation.steps, Counter()):
            like.add((part.target.partition, _fields(message, part.expectation.fields)))
            if message.key() is not None:
                like.add((part.target.partition, _fields(message, _IDENTITY)))

    def is_wanted(copy: Any) -> bool:
        place = _place(copy)
        is_like = any((place, _fields(copy, names)) in like for names in (fields[place], _IDENTITY))
        return is_like or (place, copy.offset()) in starts

    return is_wanted


def _fields(message: Any, names: Iterable[str]) -> tuple[object, ...]:
    """Return parts of a record, as they are compared."""
    read = {
        "key": message.key,
        "value": message.value,
        "timestamp": lambda: message.timestamp()[1],
        "headers": lambda: tuple(message.headers() or ()),
    }
    return tuple(read[name]() for name in names)


def _place(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())
