"""What `pause`, `resume`, `stop`, `restart` and `offsets` found, are going to do and have done, as text."""

from __future__ import annotations

from collections.abc import Sequence

from mm2mgr.apply.verbs import StateChange
from mm2mgr.operations.offsets import FlowOffsets, ResetOffsets
from mm2mgr.operations.pause import Turned
from mm2mgr.output.console import STYLES, say, say_table, talk
from mm2mgr.output.history_text import say_unrecorded
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.plan.resets import FlowReset
from mm2mgr.text import number_of, one_line

_VERDICTS = {"ok": None, "failed": STYLES["failed"], "inconclusive": "yellow"}


def say_turns(turns: Sequence[StateChange]) -> None:
    """Print on stderr what is decided for each connector."""
    for turn in turns:
        if turn.action == "write":
            talk(f"{turn.name}: {turn.before or 'no status yet'}{f' ({turn.detail})' if turn.detail else ''}", None)
            if turn.warning:
                talk(f"warning: {turn.name}: {turn.warning}", STYLES["warning"])


def say_sent(turn: StateChange, wait_seconds: float) -> None:
    """Print on stderr what became of one request."""
    if turn.written:
        talk(f"{turn.name}: sent{', waiting' if wait_seconds else ''}")


def say_turned(turned: Turned) -> None:
    """Print one line per connector, and the count."""
    for turn in turned.turns:
        if turn.action in {"refused", "failed"}:
            say(f"! {turn.name}: {turn.action}: {one_line(turn.detail)}", STYLES["failed"])
        else:
            shown = turn.state or ("sent, not waited for" if turn.written else "")
            parts = [shown, turn.detail if turn.action == "none" else "", turn.doubt]
            sign = "=" if turn.action == "none" else "~"
            say(f"{sign} {turn.name}: {'; '.join(filter(None, parts))}", _VERDICTS.get(turn.verdict))
        if turn.hint:
            say(f"    {turn.hint}")
    say_unrecorded(turned.unrecorded)
    sent = sum(turn.written for turn in turned.turns)
    bad = sum(turn.action in {"refused", "failed"} or turn.verdict == "failed" for turn in turned.turns)
    unsure = sum(turn.verdict == "inconclusive" for turn in turned.turns)
    counts = [f"{turned.verb}: {sent} of {number_of(len(turned.turns), 'connector')} sent a request"]
    counts += [f"{bad} failed or refused"] if bad else []
    counts += [f"{unsure} not seen in that state in time"] if unsure else []
    say("; ".join(counts), style="bold")


# --- offsets ----------------------------------------------------------------------------------------------------------


def say_offsets(flows: Sequence[FlowOffsets]) -> None:
    """Print the partitions of each flow, and what is stored for partitions that its source does not have."""
    for flow in flows:
        lag = "unknown" if flow.lag_records is None else str(flow.lag_records)
        exact = "" if flow.exact else "; stored offsets are exact once it is STOPPED"
        say(f"{flow.flow}: {flow.state or 'unknown'}, lag {lag} records{exact}", "bold")
        rows = [
            (str(lag.partition), or_dash(lag.stored), str(lag.log.start), str(lag.log.end), str(lag.lag_records))
            for lag in flow.lag.partitions
        ]
        columns = ("partition", "stored offset", "log start", "log end", "lag (records)")
        say_table(Table(columns, rows, right=columns[1:]))
        for partition, offset in sorted(flow.others.items()):
            say(f"  {partition}: stored offset {offset} of a partition that the flow does not mirror, or that is gone")
        if flow.unknown:
            say(f"! {flow.flow}: {one_line(flow.unknown)}", STYLES["unknown"])


def say_planned_resets(flows: Sequence[FlowReset]) -> None:
    """Print on stderr how many records are mirrored again or skipped, by topic."""
    for flow in flows:
        talk(f"{flow.flow.id} ({flow.flow.connect.name}/{flow.connector}):", None)
        for topic, counts in sorted(flow.topics.items()):
            moved = [f"{number_of(counts['again'], 'record')} mirrored again"] if counts["again"] else []
            moved += [f"{number_of(counts['skipped'], 'record')} never mirrored"] if counts["skipped"] else []
            where = f"{number_of(counts['partitions'], 'partition')} written" if counts["partitions"] else "unchanged"
            talk(f"  {topic}: {', '.join([*moved, where])}", "yellow" if moved else None)


def say_resets(done: ResetOffsets) -> None:
    """Print what was written, and what to do next."""
    for reset in done.flows:
        name = f"{reset.flow.connect.name}/{reset.connector}"
        if reset.error:
            say(f"! {name}: {one_line(reset.error.message)}", STYLES["failed"])
            if reset.error.hint:
                say(f"    {reset.error.hint}")
        elif reset.written:
            count = number_of(len(reset.changes), "partition")
            say(f"~ {name}: offsets of {count} written and read back; mm2mgr resume '{reset.flow.id}' starts it again")
        else:
            say(f"= {name}: nothing to write")
    say_unrecorded(done.unrecorded)
