"""A plan, from its JSON, as Markdown for a pull request: a summary, what is costly or blocked, and the changes folded.

It stays below what GitHub takes in a comment; changes that find no room are counted. Text from outside cannot
break a table, nor mention people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mm2mgr.output.plan_text import counts_text, entity_text, price_text, quota_text, resting, short
from mm2mgr.output.tables import Table
from mm2mgr.text import few, fit_text, number_of, one_line, visible

MOST_BYTES = 60_000
_TABLE_BYTES, _LONGEST_CELL = 10_000, 300
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&]|:(?=//)")


def plan_markdown(plan: Mapping[str, Any]) -> str:
    """Return the plan as Markdown of at most MOST_BYTES."""
    changes = [(cluster["connect"], change) for cluster in plan["clusters"] for change in cluster["changes"]]
    parts = [
        f"### mm2mgr plan: {_text(counts_text(plan))}",
        *_price(plan),
        *_clusters(plan["clusters"]),
        *_costly([(connect, change) for connect, change in changes if change["action"] != "blocked"]),
        *_blocked([(connect, change) for connect, change in changes if change["action"] == "blocked"]),
        *_warnings(changes),
        *_lists(plan["clusters"]),
        *_quotas(plan["quotas"]),
    ]
    left = MOST_BYTES - 1_000 - sum(len(part.encode()) + 2 for part in parts)
    return "\n\n".join((*parts, *_details(plan["clusters"], left))) + "\n"


def _price(plan: Mapping[str, Any]) -> Iterator[str]:
    costs = price_text(plan["price"]) if plan["price"] else ""
    if costs:
        yield f"**Price:** {_text(costs)}"


def _clusters(clusters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = []
    for cluster in clusters:
        actions = [change["action"] for change in cluster["changes"]]
        numbers = [actions.count(each) or "" for each in ("create", "update", "delete", "no-op", "blocked")]
        notes = [f"not planned: {cluster['error']}"] if cluster["error"] else list(cluster["notes"])
        notes += resting(cluster["changes"])
        if cluster["left_over"]:
            notes.append(f"no longer declared: {few(cluster['left_over'])}")
        rows.append([_code(cluster["connect"]), *map(str, numbers), _text("; ".join(notes))])
    titles = ("Connect cluster", "create", "update", "delete", "unchanged", "blocked", "notes")
    yield Table(titles, rows).markdown(_TABLE_BYTES)


def _lists(clusters: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what became of the entries of the tree's lists, alike ones together."""
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for cluster in clusters:
        for entry in cluster["lists"]:
            key = (entry["list"], entry["says"], entry["done"])
            alike.setdefault(key, []).append(f"{entry['connector']} ({entry['place']})")
    if alike:
        rows = [
            [_code(list_), _text(few(names)), _text(says), "can go" if done else "needed"]
            for (list_, says, done), names in alike.items()
        ]
        yield "#### Connectors that change hands"
        yield Table(("list", "connectors", "what happens", "line"), rows).markdown(_TABLE_BYTES)


def _quotas(quotas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the client quotas that are written or blocked."""
    rows = [
        [
            _code(each["kafka"]),
            _code(entity_text(each)),
            each["action"],
            _text("; ".join((quota_text(each), *each["notes"]))),
        ]
        for each in quotas
        if each["action"] != "no-op"
    ]
    if rows:
        yield "#### Client quotas"
        yield Table(("Kafka cluster", "for", "change", "rate"), rows).markdown(_TABLE_BYTES)


def _costly(changes: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield what is mirrored again or cannot be undone; restarts are in the details."""
    rows = []
    for connect, change in changes:
        price = change["price"]
        if price and (price["again"] or price["irreversible"]):
            said = [costs for costs in (price_text(price),) if costs] + list(price["irreversible"])
            rows.append([_code(connect), _code(change["connector"]), change["action"], _text("; ".join(said))])
    if rows:
        yield "#### Costly"
        yield Table(("Connect cluster", "connector", "change", "costs"), rows).markdown(_TABLE_BYTES)


def _blocked(changes: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield what is blocked, once for each reason."""
    reasons: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for connect, change in changes:
        reasons.setdefault((change["reason"], change["remedy"]), []).append((connect, change))
    rows = []
    for (reason, remedy), alike in reasons.items():
        costs = {text for _, change in alike if change["price"] and (text := price_text(change["price"]))}
        names = few([f"{connect}/{change['connector']}" for connect, change in alike])
        said = "; ".join(filter(None, (reason, *(f"would cost: {each}" for each in sorted(costs)[:1]))))
        rows.append([_code(names), _text(said), _text(remedy)])
    if rows:
        yield "#### Blocked"
        yield Table(("connectors", "reason", "what to do"), rows).markdown(_TABLE_BYTES)


def _warnings(changes: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for connect, change in changes:
        for warning in change["warnings"]:
            names.setdefault(warning, []).append(f"{connect}/{change['connector']}")
    if names:
        rows = [[_code(few(each)), _text(warning)] for warning, each in names.items()]
        yield "#### Warnings"
        yield Table(("connectors", "warning"), rows).markdown(_TABLE_BYTES)


def _details(clusters: Iterable[Mapping[str, Any]], left: int) -> Iterator[str]:
    """Yield the changes of each Connect cluster, folded, as long as there is room."""
    missing = 0
    for cluster in clusters:
        written = [change for change in cluster["changes"] if change["action"] not in {"no-op", "blocked"}]
        shown: list[str] = []
        for change in written:
            block = _change(change)
            left -= len(block.encode()) + 2
            if left > 0:
                shown.append(block)
        missing += len(written) - len(shown)
        if shown:
            title = f"{_code(cluster['connect'])}: {number_of(len(written), 'change')}"
            yield "\n\n".join((f"<details><summary>{title}</summary>", *shown, "</details>"))
    if missing:
        yield f"{number_of(missing, 'more change')} not shown here: `mm2mgr plan -o json` has them all."


def _change(change: Mapping[str, Any]) -> str:
    """Return one change: of a new connector only how many keys it has, of an updated one each key."""
    said = [change["reason"], price_text(change["price"]) if change["price"] else ""]
    if change["state"]:
        said.append(f"state: {change['state']['before'] or 'none'} -> {change['state']['after']}")
    if change["takes"] and change["takes"]["topics"]:
        said.append(f"takes {len(change['takes']['topics'])} of {change['takes']['of']} topics")
    lines = [f"- {change['action']} {_code(change['connector'])}", *(f"  - {_text(each)}" for each in said if each)]
    text = "\n".join(lines)
    if change["action"] != "update" or not change["keys"]:
        return text
    rows = [
        [
            _code(key["key"]),
            *(_code(short(key[side] or "")) for side in ("before", "after")),
            _code(key["origin"] or ""),
        ]
        for key in change["keys"]
    ]
    return f"{text}\n\n{Table(('key', 'before', 'after', 'from'), rows).markdown(_TABLE_BYTES)}"


def _code(text: str) -> str:
    """Return a name or value as code; nothing in it is markup."""
    return f"<code>{_escaped(text)}</code>" if text else ""


def _text(text: str) -> str:
    """Return a sentence; nothing in it is markup, or a mention."""
    return _escaped(text).replace("@", "<span>@</span>")


def _escaped(text: str) -> str:
    line = fit_text(visible(one_line(text)), _LONGEST_CELL)
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", line)
