"""Consumer groups on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mm2mgr.output.console import say, say_table
from mm2mgr.output.failover_text import say_unread
from mm2mgr.output.tables import Table, or_dash
from mm2mgr.text import number_of, span_text, visible

if TYPE_CHECKING:
    from mm2mgr.observe.group_lag import GroupLag, GroupOnTarget, GroupsReport

_UNKNOWN = "unknown"
_MOST_TOPICS = 3


def say_groups(report: GroupsReport, most: int) -> None:
    """Print the groups, most behind first (as many as `most`), and what could not be read."""
    if report.groups:
        say_table(groups_table(report, most))
    elif report.is_known and report.nearest is not None:
        near = f"; did you mean {' or '.join(map(visible, report.nearest))}?" if report.nearest else ""
        say(f"No consumer group there has this name, or matches it{near}")
    elif report.is_known:
        say("No consumer group has committed offsets on these topics (--all: every group).")
    if len(report.groups) > most:
        more = number_of(len(report.groups) - most, "more group")
        say(f"  … and {more} (--most, or -o json)", "dim")
    say_unread(report.unread, "read")


def groups_table(report: GroupsReport, most: int) -> Table:
    """Return the table: a row per group, with the cluster where there are several."""
    columns = ["cluster", "group", "state", "members", "lag (records)", "worst partition", "topics", "translated"]
    rows = [_cells(report, group) for group in report.groups[:most]]
    first = 0 if len(report.clusters) > 1 else 1
    return Table(
        columns[first:],
        [row[first:] for row in rows],
        right=("members", "lag (records)"),
        drop=("topics", "worst partition"),
        wrap=("topics", "translated"),
        styles={name: {_UNKNOWN: "yellow"} for name in columns[2:]},
    )


def _cells(report: GroupsReport, group: GroupLag) -> list[str]:
    worst = group.worst
    translated = ", ".join(_translated_text(report, target) for target in group.targets)
    return [
        group.cluster,
        group.group,
        group.state or _UNKNOWN,
        _UNKNOWN if group.members is None else f"{group.members}",
        lag_text(group),
        or_dash(worst and f"{worst.partition} ({worst.lag_records})"),
        _topics_text(group.topics),
        translated or "-",
    ]


def lag_text(group: GroupLag) -> str:
    """Return the lag of a group: a dash where it committed nothing, `at least` where a partition is unknown."""
    if group.lag_records is not None:
        return f"{group.lag_records}"
    if group.partitions == ():
        return "-"
    return _UNKNOWN if group.at_least_records is None else f"at least {group.at_least_records}"


def _topics_text(topics: list[str] | None) -> str:
    if topics is None:
        return _UNKNOWN
    more = len(topics) - _MOST_TOPICS
    return ", ".join(topics[:_MOST_TOPICS] + ([f"{more} more"] if more > 0 else [])) or "-"


def _translated_text(report: GroupsReport, target: GroupOnTarget) -> str:
    word = f"{target.target}: {target.translated}"
    if target.translated == "partly":
        word += f" ({target.translated_partitions} of {target.partitions} partitions)"
    if target.checkpoint_at is None:
        return word
    return f"{word}, {span_text(max(0.0, report.taken_at - target.checkpoint_at))} old"
