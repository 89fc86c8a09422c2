"""The text of `failover back`: where the way back begins, what was lost, what comes next."""

from __future__ import annotations

from datetime import UTC, datetime

from mm2mgr.observe.way_back import WayBack
from mm2mgr.operations.failback import Failback, LostOffsets
from mm2mgr.output.console import say, say_lines, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import few, number_of


def say_way_back(way: WayBack, rows: int) -> None:
    """Print both directions, and where the way back begins in each partition."""
    for noun, connectors in (("pair", way.forward), ("way back", way.back)):
        for connector in connectors:
            held = ", held" if connector.is_held else ""
            say(f"{noun:8}  {connector.name}  {connector.state or 'does not exist'}{held}")
    if way.names == "default":
        own = few(list(way.own_topics)) if way.own_topics else "none yet"
        say(f"Topics get the source's alias: {way.back_pair} takes the own topics of its source only ({own}).")
        return
    if way.beginnings:
        if way.journal_reason:
            say(f"Not by the journal ({way.journal_reason}): records of both sides are compared.")
        begins = sorted(way.beginnings, key=lambda begin: (not begin.refusal, -begin.lost_count, begin.partition))
        table = [
            [
                str(begin.partition),
                "?" if begin.refusal else f"{begin.first:,}",
                "?" if begin.refusal else f"{begin.own_records:,}",
                f"{begin.lost_count:,}{'' if begin.exact else ' at most'}",
                begin.how,
            ]
            for begin in begins[:rows]
        ]
        columns = ("partition", "begins at", "goes back", "lost", "by")
        say_table(Table(columns, table, right=columns[1:4], wrap=("by",)))
        if len(begins) > rows:
            say(f"… and {number_of(len(begins) - rows, 'partition')} more (--rows, or -o json)")
        if strange := [begin for begin in begins if begin.strange]:
            count = sum(len(begin.strange) for begin in strange)
            which = few([f"{begin.partition} offset {begin.strange[0]}" for begin in strange])
            say(
                f"{number_of(count, 'record')} before these places {'is' if count == 1 else 'are'} not from the source"
                f" ({which}): somebody wrote to the target while it was mirrored to, or the source has lost them since;"
                " they do not go back."
            )


def say_failback(result: Failback, rows: int, *, with_lost: bool) -> None:
    """Print what was found and done, and what to do next."""
    way, pair = result.way, result.pair
    if way is None:
        say(f"The tree declares no flow that mirrors {pair} back. Add this to it, then run mm2mgr apply:")
        say_lines(f"\n{result.declaration}")
        return
    if not result.prepared and result.started is None:
        say_way_back(way, rows)
    for remark in result.refusals:
        say(f"refused: {remark.text}{f' ({remark.remedy})' if remark.remedy else ''}")
    if way.missing:
        say(f"{few(way.missing)} does not exist yet: run mm2mgr apply, which creates it without running it.")
    if with_lost:
        _say_lost(result.lost, rows)
    elif result.lost:
        records = number_of(sum(lost.count for lost in result.lost), "record")
        say(f"Lost, and never merged: {records} that only '{pair.partition('->')[0]}' has (--lost lists them).")
    if result.exported is not None:
        say(f"{number_of(result.exported, 'record')} exported.")
    for connect, reason in result.unrecorded.items():
        say(f"not recorded in the history of {connect}: {reason}")
    say(_next_text(result, way))


def _next_text(result: Failback, way: WayBack) -> str:
    command = f"mm2mgr failover back '{result.pair}'"
    match result.outcome:
        case "to prepare":
            if result.ordered_start:
                text = f"Nothing was started: it is not prepared yet. To do both: {command} --apply --start"
            else:
                text = f"To prepare: {command} --apply"
            return text
        case "prepared" if any(part.state == "RUNNING" for part in way.back):
            return f"Running: {way.back_pair}."
        case "prepared":
            return f"Prepared: {way.back_pair} may run. To start it: {command} --start"
        case "started":
            return (
                (
                    f"Started: {way.back_pair}. In the tree, write state: stopped to the flows of {result.pair}, and"
                    f" take it from those of {way.back_pair}."
                )
                if way.names == "identity"
                else f"Started: {way.back_pair}."
            )
        case "not started":
            return f"Not started: see mm2mgr status; {command} --start tries it again."
        case outcome:
            return f"Nothing was written: {outcome}."


def _say_lost(lost: tuple[LostOffsets, ...], rows: int) -> None:
    if not lost:
        say("Nothing was lost.")
        return
    table = [
        [
            str(part.partition),
            f"{part.offsets.first:,}",
            f"{part.offsets.end - 1:,}",
            f"{part.count:,}{'' if part.exact else ' at most'}",
            _time_text(part.first_at),
            _time_text(part.last_at),
        ]
        for part in lost[:rows]
    ]
    columns = ("partition", "first", "last", "records", "from", "to")
    say_table(Table(columns, table, right=columns[1:4]))
    if len(lost) > rows:
        say(f"… and {number_of(len(lost) - rows, 'range')} more (--rows, or -o json)")


def _time_text(at: float | None) -> str:
    return "?" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
