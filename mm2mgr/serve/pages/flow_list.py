"""The list of flows: searched, filtered, sorted and grouped as its address says, which can be sent as a link."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.output.tables import or_dash
from mm2mgr.problems.health import FlowStatus, TaskState
from mm2mgr.serve.pages.base import (
    CARRIED,
    MOST_ROWS,
    WORDS,
    WORST_FIRST,
    Context,
    flow_link,
    shown_health,
    static_address,
)
from mm2mgr.serve.pages.flows import pair_lag
from mm2mgr.serve.pages.traffic import traffic_of
from mm2mgr.text import fit_text, nearest, number_of, whole_number

FILTERS = {
    "health": "health",
    "source": "source",
    "target": "target",
    "connect": "Connect cluster",
    "label": "label",
    "owner": "owner",
}
"""What flows are filtered by, by parameter; labels are those of source and target."""
GROUPS = {"pair": "pair", "source": "source", "target": "target", "connect": "Connect cluster", "owner": "owner"}
_MOST_LETTERS = 300  # of a search or an id that is looked for
_MOST_NEAR = 5
_TOPICS_NAMED = 3


@dataclass(frozen=True)
class FlowQuery:
    """What a list of flows shows, from the parameters of its address. `sort`: a column, after `-` with the largest
    first; `carried`: parameters of all pages, which links of this one carry on."""

    q: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    sort: str = ""
    group: str = ""
    page: int = 1
    carried: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> FlowQuery:
        """Read the parameters; those that mean nothing here are left out."""
        sort, group = parameters.get("sort", ""), parameters.get("group", "")
        return cls(
            parameters.get("q", "").strip()[:_MOST_LETTERS],
            {name: value for name in FILTERS if (value := parameters.get(name, ""))},
            sort if sort.removeprefix("-") in _COLUMNS else "",
            group if group in GROUPS else "",
            max(1, whole_number(parameters.get("page", ""), 6) or 1),
            {name: value for name in CARRIED if (value := parameters.get(name, ""))},
        )

    def address(self, **changes: object) -> str:
        """Return the address of this list with some changes, on its first page unless that is one."""
        changed = replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]
        page = str(changed.page) if changed.page > 1 else ""
        words = {"q": changed.q, **changed.filters, "sort": changed.sort, "group": changed.group, "page": page}
        return flows_link(**words, **changed.carried)

    def address_without(self, name: str) -> str:
        """Return the address without a filter."""
        return self.address(filters={other: value for other, value in self.filters.items() if other != name})


def flows_link(**parameters: str) -> str:
    """Return the address of a list of flows."""
    words = {name: value for name, value in parameters.items() if value}
    return f"/flows?{urlencode(words)}" if words else "/flows"


def count_rate(per_second: float) -> str:
    """Write a number of records per second."""
    return f"{per_second:,.0f}" if per_second >= 100 or not per_second else f"{per_second:.1f}"


@dataclass(frozen=True)
class _Row:
    """A flow with what it is found, filtered and sorted by: `shown` is its health as pages colour it, `problem_count` what is
    wrong with it; `topics` that the search was found in are named."""

    status: FlowStatus
    shown: str
    problem_count: int
    lag: str
    lag_order: tuple[float, float]
    rate: float | None
    values: Mapping[str, tuple[str, ...]]
    topics: tuple[str, ...] = ()


def flow_list(view: EstateView, parameters: Mapping[str, str]) -> Context:
    """Return the list of flows that the parameters of its address ask for."""
    query = FlowQuery.from_parameters(parameters)
    every = [_row(view, status) for status in (view.look.status.flows if view.look else ())]
    matching = list(_matching(every, query.q, _topics(view) if query.q else {}))
    rows = [row for row in matching if _passes(row, query.filters)]
    rows.sort(key=lambda row: (WORST_FIRST.index(row.shown), row.status.flow))
    if query.sort:
        rows.sort(key=_COLUMNS[query.sort.removeprefix("-")].order, reverse=query.sort.startswith("-"))
        rows.sort(key=lambda row: _is_unknown(row, query.sort))
    if query.group:
        rows.sort(key=lambda row: row.values[query.group])
    pages = max(1, math.ceil(len(rows) / MOST_ROWS))
    page = min(query.page, pages)
    shown = rows[(page - 1) * MOST_ROWS : page * MOST_ROWS]
    return {
        "name": "flows",
        "here": "/flows",
        "heading": "Flows",
        "query": query,
        "counts": f"{len(rows)} of {number_of(len(every), 'flow')}{_healths(rows)}",
        "facets": list(_facets(matching, query)),
        "groups": GROUPS if len({row.values["owner"] for row in every}) > 1 else _leave_out(GROUPS, "owner"),
        "chips": list(_chips(query)),
        "columns": [_heading(name, column, query) for name, column in _COLUMNS.items()],
        "parts": list(_parts(rows, shown, query.group)),
        "pages": [(number, query.address(page=number), number == page) for number in range(1, pages + 1)],
        "clear": FlowQuery(carried=query.carried).address() if query.q or query.filters else "",
        "is_known": bool(every),
        "spark": lambda flow: traffic_of(view, flow).sparkline,
        "find_script": static_address("find.js"),
    }


def unknown_flow(view: EstateView, flow: str) -> Context:
    """Return what is said of an id that no flow has: the nearest ones."""
    near = [(other, flow_link(other)) for other in nearest_flows(view, flow)]
    return {
        "name": "no such flow",
        "here": "/flows",
        "heading": "No flow has this id" if view.look else "No flow is known yet",
        "asked": fit_text(flow, _MOST_LETTERS),
        "others": "All flows",
        "near": near,
    }


def nearest_flows(view: EstateView, flow: str) -> list[str]:
    """Return the ids of flows most like one that none has: those with it in their id, then those spelt like it."""
    asked = flow.strip()[:_MOST_LETTERS]
    ids = sorted(status.flow for status in view.look.status.flows) if view.look else []
    whole = [other for other in ids if asked and asked.lower() in other.lower()][:_MOST_NEAR]
    return list(dict.fromkeys([*whole, *nearest(asked, ids, 0.5, _MOST_NEAR)]))[:_MOST_NEAR]


def _row(view: EstateView, status: FlowStatus) -> _Row:
    source, _, target = status.pair.partition("->")
    total, moves, shown = view.total(status.flow), view.throughput.get(status.flow), shown_health(view, status)
    seconds = total.seconds.value if total else None
    records = total.records.value if total else None
    lag_seconds = 0.0 if records == 0 else math.inf if seconds is None else seconds
    labels = {label for alias in (source, target) for label in (view.look.labels.get(alias, ()) if view.look else ())}
    values = {
        "health": (WORDS[shown],),
        "source": (source,),
        "target": (target,),
        "connect": (status.connect,),
        "label": tuple(sorted(labels)),
        "owner": (view.owner,),
        "pair": (status.pair,),
    }
    rate = moves.mirrored_records_per_second if moves else None
    count = len(status.problems) + bool(view.look and status.flow in view.look.late_flows)
    lag_order = (lag_seconds, -1.0 if records is None else float(records))
    return _Row(status, shown, count, pair_lag([total])[0], lag_order, rate, values)


def _topics(view: EstateView) -> dict[str, frozenset[str]]:
    """Return the topics of each flow, as they were last known."""
    if view.look is None:
        return {}
    now = {facts.flow: facts for facts in view.look.lag.flows}
    last = {flow: last_known.lag for flow, last_known in view.known.items()}
    return {
        flow: frozenset(
            partition.partition.topic
            for facts in (last.get(flow), now.get(flow))
            if facts
            for partition in facts.lag.partitions
        )
        for flow in now
    }


def _matching(rows: Iterable[_Row], search: str, topics: Mapping[str, frozenset[str]]) -> Iterator[_Row]:
    """Yield the flows that have each word of a search in their id, clusters, labels, connector or in a topic."""
    words = search.lower().split()
    for row in rows:
        own = " ".join((row.status.flow, row.status.connect, row.status.connector, *row.values["label"])).lower()
        of_topics = [word for word in words if word not in own]
        named: set[str] = set()
        for word in of_topics:
            hits = {topic for topic in topics.get(row.status.flow, ()) if word in topic.lower()}
            if not hits:
                break
            named = named & hits or hits
        else:
            yield replace(row, topics=tuple(sorted(named)))


def _passes(row: _Row, filters: Mapping[str, str]) -> bool:
    return all(value in row.values[name] for name, value in filters.items())


def _healths(rows: Sequence[_Row]) -> str:
    counts: Counter[str] = Counter(row.values["health"][0] for row in rows)
    return f": {', '.join(f'{counts[word]} {word}' for word in WORST_FIRST if counts[word])}" if counts else ""


def _facets(rows: Sequence[_Row], query: FlowQuery) -> Iterator[Context]:
    """Yield each filter with its values and how many flows they would leave, beside the other filters."""
    for name, title in FILTERS.items():
        chosen = query.filters.get(name, "")
        others = _leave_out(query.filters, name)
        counts = Counter(value for row in rows if _passes(row, others) for value in row.values[name] if value)
        every = {value for row in rows for value in row.values[name] if value}
        if len(every) < 2 and not chosen:
            continue
        order: Callable[[str], Any] = WORST_FIRST.index if name == "health" else str
        values = sorted(counts, key=order)
        options = [(value, f"{value} ({counts[value]})", value == chosen) for value in values]
        if chosen and chosen not in counts:
            options.insert(0, (chosen, f"{chosen} (0)", True))
        yield {"name": name, "title": title, "options": options}


def _chips(query: FlowQuery) -> Iterator[tuple[str, str]]:
    if query.q:
        yield f"search: {query.q}", query.address(q="")
    for name, value in query.filters.items():
        yield f"{FILTERS[name]}: {value}", query.address_without(name)


def _parts(rows: Sequence[_Row], shown: Sequence[_Row], group: str) -> Iterator[Context]:
    """Yield the rows of a page, by group where they are grouped; counts are those of all pages."""
    if not group:
        yield {"heading": "", "rows": [_cells(row) for row in shown]}
        return
    for value in dict.fromkeys(row.values[group] for row in shown):
        own = [row for row in rows if row.values[group] == value]
        name = or_dash(", ".join(value).replace("->", " → ") or None)
        heading = f"{name}: {number_of(len(own), 'flow')} ({_healths(own).removeprefix(': ')})"
        yield {"heading": heading, "rows": [_cells(row) for row in shown if row.values[group] == value]}


def _cells(row: _Row) -> Context:
    status = row.status
    more = len(row.topics) - _TOPICS_NAMED
    topics = ", ".join(row.topics[:_TOPICS_NAMED]) + (f" and {more} more" if more > 0 else "")
    return {
        "flow": status.flow,
        "link": flow_link(status.flow),
        "topics": topics,
        "shown": row.shown,
        "lag": row.lag,
        "rate": "unknown" if row.rate is None else count_rate(row.rate),
        "state": status.state,
        "tasks": _tasks_text(status.tasks),
        "connect": status.connect,
        "connect_link": flows_link(connect=status.connect),
        "problems": row.problem_count,
    }


def _tasks_text(tasks: Sequence[TaskState]) -> str:
    counts = Counter(task.state for task in tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no task"


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column: its heading, what it is sorted by, and whether the largest value comes `first` (`-`) when it is chosen;
    `is_minor`: left out on narrow screens."""

    heading: str
    order: Callable[[_Row], Any]
    is_number: bool = False
    first: str = ""
    is_minor: bool = False


_COLUMNS: Mapping[str, _Column] = {
    "flow": _Column("flow", lambda row: row.status.flow),
    "health": _Column("health", lambda row: WORST_FIRST.index(row.shown)),
    "lag": _Column("lag", lambda row: row.lag_order, first="-"),
    "rate": _Column("records/s", lambda row: -1.0 if row.rate is None else row.rate, is_number=True, first="-"),
    "state": _Column("connector", lambda row: row.status.state, is_minor=True),
    "tasks": _Column("tasks", lambda row: len(row.status.tasks), first="-"),
    "connect": _Column("Connect cluster", lambda row: row.status.connect, is_minor=True),
    "problems": _Column("problems", lambda row: row.problem_count, is_number=True, first="-", is_minor=True),
}


def _is_unknown(row: _Row, sort: str) -> bool:
    """Tell whether a flow has no value to sort by: it comes last, whichever way."""
    column = sort.removeprefix("-")
    return (column == "rate" and row.rate is None) or (column == "lag" and row.lag_order == (math.inf, -1.0))


def _heading(name: str, column: _Column, query: FlowQuery) -> Context:
    down = query.sort.startswith("-")
    is_sorted = query.sort.removeprefix("-") == name
    other = ("" if down else "-") + name
    return {
        "heading": column.heading,
        "link": query.address(sort=other if is_sorted else f"{column.first}{name}"),
        "sorted": ("descending" if down else "ascending") if is_sorted else "",
        "is_number": column.is_number,
        "is_minor": column.is_minor,
    }


def _leave_out(values: Mapping[str, str], name: str) -> dict[str, str]:
    return {other: value for other, value in values.items() if other != name}
