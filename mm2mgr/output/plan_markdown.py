"""A plan as Markdown for a pull request: a summary, what is costly or blocked, and the changes folded.

It stays below what GitHub takes in a comment; changes that find no room are counted. Text from outside cannot
break a table, nor mention people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mm2mgr.errors import Mm2mgrError
from mm2mgr.output.markdown import code, escape, html_code, sentence
from mm2mgr.output.plan_text import (
    data_text,
    end_texts,
    entity_text,
    group_entries,
    making_texts,
    plan_counts_text,
    price_text,
    quota_text,
    rename_texts,
    resting,
    short,
    taken_texts,
)
from mm2mgr.output.tables import Table
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.plan.planfile import PlanFile
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.text import few, number_of

MOST_BYTES = 60_000
_TABLE_BYTES = 10_000
_NAMES = 20  # of changes that are alike


def plan_markdown(plan: Plan) -> str:
    """Return the plan as Markdown of at most MOST_BYTES."""
    costs = price_text(plan.price)
    parts = [
        f"### mm2mgr plan: {escape(plan_counts_text(plan))}",
        *([f"**Price:** {escape(costs)}"] if costs else []),
        f"**Data:** {escape(data_text(plan))}",
        *_clusters(plan.clusters),
        *_costly(change for change in plan.changes if change.action != "blocked"),
        *_blocked_changes(change for change in plan.changes if change.action == "blocked"),
        *_warnings(plan.changes),
        *_lists(plan.clusters),
        *_quotas(plan.quotas),
    ]
    left = MOST_BYTES - 1_000 - sum(len(part.encode()) + 2 for part in parts)
    return "\n\n".join((*parts, *_details(plan.clusters, left))) + "\n"


def saved_markdown(saved: PlanFile) -> str:
    """Return what a plan was saved with as Markdown."""
    return "".join(f"- {escape(line)}\n" for line in making_texts(saved))


def error_markdown(error: Mm2mgrError) -> str:
    """Return why there is no plan as Markdown: a line per mistake of the tree, and what to do."""
    lines = [f"- {sentence(line)}" for line in error.message.splitlines() if line.strip()]
    hint = [f"**What to do:** {sentence(error.hint)}"] if error.hint else []
    text, room = "", MOST_BYTES - 3_000
    for number, line in enumerate(lines):
        if len(text.encode()) + len(line.encode()) > room:
            text += f"- … and {len(lines) - number} more: `mm2mgr plan` has them all\n"
            break
        text += f"{line}\n"
    return "\n\n".join(("### mm2mgr plan: no plan, nothing was compared", text.rstrip("\n"), *hint)) + "\n"


def _clusters(clusters: Sequence[ClusterPlan]) -> Iterator[str]:
    rows = []
    for cluster in clusters:
        actions = [change.action for change in cluster.changes]
        numbers = (actions.count(action) or "" for action in ("create", "update", "delete", "no-op", "blocked"))
        notes = [f"not planned: {cluster.error}"] if cluster.error else list(cluster.notes)
        notes += resting(cluster.changes)
        if cluster.left_over:
            notes.append(f"no longer declared: {few(cluster.left_over)}")
        rows.append([code(cluster.connect), *map(str, numbers), escape("; ".join(notes))])
    titles = ("Connect cluster", "create", "update", "delete", "unchanged", "blocked", "notes")
    yield Table(titles, rows).markdown(_TABLE_BYTES)


def _lists(clusters: Iterable[ClusterPlan]) -> Iterator[str]:
    rows = []
    for alike in group_entries(entry for cluster in clusters for entry in cluster.lists):
        names, first = few([f"{entry.connector} ({entry.place})" for entry in alike]), alike[0]
        rows.append([code(first.list), escape(names), escape(first.says), "can go" if first.done else "needed"])
    if rows:
        yield "#### Connectors that change hands"
        yield Table(("list", "connectors", "what happens", "line"), rows).markdown(_TABLE_BYTES)


def _quotas(quotas: Sequence[QuotaChange]) -> Iterator[str]:
    rows = [
        [
            code(quota.kafka),
            code(entity_text(quota)),
            quota.action,
            escape("; ".join((quota_text(quota), *quota.notes))),
        ]
        for quota in quotas
        if quota.action != "no-op"
    ]
    if rows:
        yield "#### Client quotas"
        yield Table(("Kafka cluster", "for", "change", "rate"), rows).markdown(_TABLE_BYTES)


def _costly(changes: Iterable[Change]) -> Iterator[str]:
    rows = []
    for change in changes:
        if change.price.again or change.price.irreversible:
            costs = "; ".join(filter(None, (price_text(change.price), *change.price.irreversible)))
            rows.append([code(change.connect), code(change.connector), change.action, escape(costs)])
    if rows:
        yield "#### Costly"
        yield Table(("Connect cluster", "connector", "change", "costs"), rows).markdown(_TABLE_BYTES)


def _blocked_changes(changes: Iterable[Change]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        reasons.setdefault((change.reason, change.remedy), []).append(change)
    rows = []
    for (reason, remedy), alike in reasons.items():
        costs = sorted(filter(None, {price_text(change.price) for change in alike}))[:1]
        text = "; ".join(filter(None, (reason, *(f"would cost: {cost}" for cost in costs))))
        rows.append([_connectors(alike), sentence(text), sentence(remedy)])
    if rows:
        yield "#### Blocked"
        yield Table(("connectors", "reason", "what to do"), rows).markdown(_TABLE_BYTES)


def _connectors(changes: Sequence[Change]) -> str:
    """Name the connectors of changes that are alike, with their number where there are several."""
    names = [f"{change.connect}/{change.connector}" for change in changes]
    return f"{len(names)} connectors: {code(few(names))}" if len(names) > 1 else code(names[0])


def _warnings(changes: Iterable[Change]) -> Iterator[str]:
    warned: dict[str, list[Change]] = {}
    for change in changes:
        for warning in change.warnings:
            warned.setdefault(warning, []).append(change)
    if warned:
        rows = [[_connectors(alike), sentence(warning)] for warning, alike in warned.items()]
        yield "#### Warnings"
        yield Table(("connectors", "warning"), rows).markdown(_TABLE_BYTES)


def _details(clusters: Iterable[ClusterPlan], left: int) -> Iterator[str]:
    missing = 0
    for cluster in clusters:
        shown: list[str] = []
        groups: dict[str, list[Change]] = {}
        for change in cluster.writes:
            groups.setdefault(f"{change.action}\0{_change_text(change)}", []).append(change)
        for text, alike in groups.items():
            block = _name_connectors(alike) + text.partition("\0")[2]
            left -= len(block.encode()) + 2
            if left > 0:
                shown.append(block)
            else:
                missing += len(alike)
        if shown:
            title = f"{html_code(cluster.connect)}: {number_of(len(cluster.writes), 'change')}"
            yield "\n\n".join((f"<details><summary>{title}</summary>", *shown, "</details>"))
    if missing:
        yield f"{number_of(missing, 'more change')} not shown here: `mm2mgr plan -o json` has them all."


def _name_connectors(alike: Sequence[Change]) -> str:
    """Return the line of changes that differ by the connector alone."""
    names = [change.connector for change in alike]
    if len(names) == 1:
        return f"- {alike[0].action} {code(names[0])}"
    return f"- {alike[0].action} {len(names)} connectors: {few(list(map(code, names)), _NAMES)}"


def _change_text(change: Change) -> str:
    """Return what is below the name of a change: of a new connector its notes, of an updated one each key."""
    notes = [change.reason, price_text(change.price)]
    if change.state:
        notes.append(f"state: {change.state[0] or 'none'} -> {change.state[1]}")
    notes += taken_texts(change)
    notes += end_texts(change)
    notes += rename_texts(change.renames)
    text = "".join(f"\n  - {escape(note)}" for note in notes if note)
    if change.action != "update" or not change.keys:
        return text
    rows = [
        [code(key.key), code(short(key.masked_before or "")), code(short(key.masked_after or "")), code(key.origin)]
        for key in change.keys
    ]
    return f"{text}\n\n{Table(('key', 'before', 'after', 'from'), rows).markdown(_TABLE_BYTES)}"
