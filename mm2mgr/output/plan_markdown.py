"""A plan as Markdown for a pull request: a summary, what is costly or blocked, and the changes folded.

It stays below what GitHub takes in a comment; changes that find no room are counted. Text from outside cannot
break a table, nor mention people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mm2mgr.output.plan_text import (
    entity_text,
    group_entries,
    plan_counts_text,
    price_text,
    quota_text,
    rename_texts,
    resting,
    short,
)
from mm2mgr.output.tables import Table
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.text import few, fit_text, number_of, one_line, visible

MOST_BYTES = 60_000
_TABLE_BYTES, _LONGEST_CELL = 10_000, 300
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&]|:(?=//)")


def plan_markdown(plan: Plan) -> str:
    """Return the plan as Markdown of at most MOST_BYTES."""
    costs = price_text(plan.price)
    parts = [
        f"### mm2mgr plan: {_text(plan_counts_text(plan))}",
        *([f"**Price:** {_text(costs)}"] if costs else []),
        *_clusters(plan.clusters),
        *_costly(change for change in plan.changes if change.action != "blocked"),
        *_blocked_changes(change for change in plan.changes if change.action == "blocked"),
        *_warnings(plan.changes),
        *_lists(plan.clusters),
        *_quotas(plan.quotas),
    ]
    left = MOST_BYTES - 1_000 - sum(len(part.encode()) + 2 for part in parts)
    return "\n\n".join((*parts, *_details(plan.clusters, left))) + "\n"


def _clusters(clusters: Sequence[ClusterPlan]) -> Iterator[str]:
    rows = []
    for cluster in clusters:
        actions = [change.action for change in cluster.changes]
        numbers = (actions.count(action) or "" for action in ("create", "update", "delete", "no-op", "blocked"))
        notes = [f"not planned: {cluster.error}"] if cluster.error else list(cluster.notes)
        notes += resting(cluster.changes)
        if cluster.left_over:
            notes.append(f"no longer declared: {few(cluster.left_over)}")
        rows.append([_code(cluster.connect), *map(str, numbers), _text("; ".join(notes))])
    titles = ("Connect cluster", "create", "update", "delete", "unchanged", "blocked", "notes")
    yield Table(titles, rows).markdown(_TABLE_BYTES)


def _lists(clusters: Iterable[ClusterPlan]) -> Iterator[str]:
    rows = []
    for alike in group_entries(entry for cluster in clusters for entry in cluster.lists):
        names, first = few([f"{entry.connector} ({entry.place})" for entry in alike]), alike[0]
        rows.append([_code(first.list), _text(names), _text(first.says), "can go" if first.done else "needed"])
    if rows:
        yield "#### Connectors that change hands"
        yield Table(("list", "connectors", "what happens", "line"), rows).markdown(_TABLE_BYTES)


def _quotas(quotas: Sequence[QuotaChange]) -> Iterator[str]:
    rows = [
        [
            _code(quota.kafka),
            _code(entity_text(quota)),
            quota.action,
            _text("; ".join((quota_text(quota), *quota.notes))),
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
            rows.append([_code(change.connect), _code(change.connector), change.action, _text(costs)])
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
        names = few([f"{change.connect}/{change.connector}" for change in alike])
        text = "; ".join(filter(None, (reason, *(f"would cost: {cost}" for cost in costs))))
        rows.append([_code(names), _text(text), _text(remedy)])
    if rows:
        yield "#### Blocked"
        yield Table(("connectors", "reason", "what to do"), rows).markdown(_TABLE_BYTES)


def _warnings(changes: Iterable[Change]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for change in changes:
        for warning in change.warnings:
            names.setdefault(warning, []).append(f"{change.connect}/{change.connector}")
    if names:
        rows = [[_code(few(connectors)), _text(warning)] for warning, connectors in names.items()]
        yield "#### Warnings"
        yield Table(("connectors", "warning"), rows).markdown(_TABLE_BYTES)


def _details(clusters: Iterable[ClusterPlan], left: int) -> Iterator[str]:
    missing = 0
    for cluster in clusters:
        shown: list[str] = []
        for change in cluster.writes:
            block = _change(change)
            left -= len(block.encode()) + 2
            if left > 0:
                shown.append(block)
        missing += len(cluster.writes) - len(shown)
        if shown:
            title = f"{_code(cluster.connect)}: {number_of(len(cluster.writes), 'change')}"
            yield "\n\n".join((f"<details><summary>{title}</summary>", *shown, "</details>"))
    if missing:
        yield f"{number_of(missing, 'more change')} not shown here: `mm2mgr plan -o json` has them all."


def _change(change: Change) -> str:
    """Return one change: of a new connector only how many keys it has, of an updated one each key."""
    notes = [change.reason, price_text(change.price)]
    if change.state:
        notes.append(f"state: {change.state[0] or 'none'} -> {change.state[1]}")
    if change.takes and change.takes.topics:
        notes.append(f"takes {len(change.takes.topics)} of {change.takes.of} topics")
    notes += rename_texts(change.renames)
    lines = [f"- {change.action} {_code(change.connector)}", *(f"  - {_text(note)}" for note in notes if note)]
    text = "\n".join(lines)
    if change.action != "update" or not change.keys:
        return text
    rows = [
        [_code(key.key), _code(short(key.masked_before or "")), _code(short(key.masked_after or "")), _code(key.origin)]
        for key in change.keys
    ]
    return f"{text}\n\n{Table(('key', 'before', 'after', 'from'), rows).markdown(_TABLE_BYTES)}"


def _code(text: str) -> str:
    return f"<code>{_escape(text)}</code>" if text else ""


def _text(text: str) -> str:
    return _escape(text).replace("@", "<span>@</span>")


def _escape(text: str) -> str:
    line = fit_text(visible(one_line(text)), _LONGEST_CELL)
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", line)
