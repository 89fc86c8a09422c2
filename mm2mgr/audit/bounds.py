"""Which part of a source's log is judged: up to the stored offset, between two times. Pure.

An empty window is equal only where nothing can have been to compare; each other one is not judged, with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from mm2mgr.audit.windows import LogWindow, PartitionOrder
from mm2mgr.partitions import Offsets


def judged_until(log: Offsets, mirror: Offsets, stored: int | None, readable_end: int, *, alone: bool) -> Offsets | str:
    """Return the judged offsets of a source's log, or why nothing of it is judged.

    `mirror` is the target's log, `stored` the offset of the last record that was mirrored, `readable_end` where an
    open transaction stops the flow's consumer (else the log's end), `alone` whether no other flow writes to the
    target's log. The answer is an empty window only where the source never had a record, nor the target one of it.
    """
    if stored is not None and stored >= log.end:
        was = f"the flow's stored offset {stored} is past the end {log.end} of the source's log"
        return f"{was}: the topic was created again, or truncated"
    if log.start == log.end:
        return _empty_log(log, mirror, stored, alone=alone)
    if stored is None:
        waiting = f"{log.end - log.start} offsets from {log.start} on may be on their way"
        return f"the flow has stored no offset of it yet: {waiting}"
    if stored + 1 <= log.start:
        gone = f"the source's log begins at {log.start}, behind the flow's stored offset {stored}"
        return f"{gone}: nothing that was mirrored is left to compare{_loss_text(log, stored)}"
    if readable_end <= log.start:
        return f"all that the source's log has, from {log.start} on, is of a transaction that is open"
    return Offsets(log.start, min(stored + 1, readable_end))


def _empty_log(log: Offsets, mirror: Offsets, stored: int | None, *, alone: bool) -> Offsets | str:
    if log.end > 0:
        has = "the flow has stored no offset of it" if stored is None else f"the flow has stored {stored}"
        return (
            f"the source's log has no record left, its offsets ended at {log.end - 1}; {has}{_loss_text(log, stored)}"
        )
    if mirror.end > 0 and alone:
        there = f"the target's log has had offsets up to {mirror.end - 1}"
        return f"the source's log never had a record, and {there}: the topic was created again, or others write"
    return log


def _loss_text(log: Offsets, stored: int | None) -> str:
    return (
        f"; offsets {stored + 1}-{log.start - 1} were never mirrored"
        if stored is not None and stored + 1 < log.start
        else ""
    )


def cut_by_time(part: PartitionOrder, since: int | None, until: int | None, *, is_level: bool) -> PartitionOrder:
    """Return the partition with the part of its window that lies between two times.

    `since`, `until`: the first offset at that time or later, -1 where the log has none, None where no time was asked
    for. `is_level`: no record is behind the window, or only offsets without one, such as markers of transactions.
    """
    window, log_end = part.source, part.source_log.end
    if part.not_judged or log_end == 0:
        return part
    limit = log_end if until is None or until < 0 else until
    first = window.first if since is None else window.end if since < 0 else max(window.first, since)
    end = min(window.end, limit)
    if first < end:
        return replace(part, source=replace(window, first=first, end=end))
    empty = replace(part, source=LogWindow(window.partition, window.end, window.end))
    has_stored = f"the flow has stored {window.end - 1}"
    if since is not None and (since < 0 or window.end <= since < log_end) and is_level:
        return empty
    if since is not None and since < 0:
        waiting = f"the {log_end - window.end} offsets from {window.end} on are not mirrored yet: {has_stored}"
        reason = f"no record is as late as the window, and {waiting}"
    elif since is not None and since >= log_end:
        reason = f"offset {since} is of a transaction that is open, or was written after the log's end was read"
    elif since is not None and window.end <= since < limit:
        reason = f"the {limit - since} offsets from {since} on are not mirrored yet: {has_stored}"
    else:
        later = f"its records from offset {limit} on are of the window's end or later"
        reason = f"{later}; whether some behind have earlier timestamps is not known: leave out the end of the window"
    return replace(empty, not_judged=(reason,))
