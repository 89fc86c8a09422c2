"""The picture of the estate on the overview: sources, Connect clusters and targets with what flows between them, or the
matrix of sources and targets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from mm2mgr.operations.estate_view import EstateView
from mm2mgr.output.sankey import Drawing, Stream, sankey, sum_text
from mm2mgr.output.tables import Table
from mm2mgr.problems.health import FlowStatus
from mm2mgr.serve.pages.base import MOST_ROWS, SIGNS, WORDS, WORST_FIRST, Context, flow_link, shown_health
from mm2mgr.serve.pages.flow_list import count_rate, flows_link
from mm2mgr.serve.pages.flows import UNKNOWN_LAG, pair_lag
from mm2mgr.text import number_of, rate_text, span_text

_COLUMNS = {"source": "source", "Connect cluster": "connect", "target": "target"}
_STATES = {word: ("" if word == "ok" else sign, WORDS[word]) for word, sign in SIGNS.items()}


def picture(now: float, view: EstateView, kind: str = "", pairs: str = "") -> Context | None:
    """Return what `picture.html.j2` draws; None before the first look and without flows. `kind`: `matrix`, or anything
    else; `pairs`: `all` shows those that are ok on narrow screens too."""
    flows = view.look.status.flows if view.look else ()
    if not flows:
        return None
    if kind == "matrix":
        return {"kind": "matrix", "matrix": _matrix(now, view, flows), "folds": pairs != "all"}
    return {"kind": "sankey", **_sankey(view, flows)}


def _sankey(view: EstateView, flows: Sequence[FlowStatus]) -> Context:
    rates, text, unit = _rates(view, flows)
    streams = [
        Stream((source, flow.connect, target), rates[flow.flow], shown_health(view, flow))
        for flow in flows
        for source, _, target in [flow.pair.partition("->")]
    ]
    by_places: dict[tuple[str, ...], list[Stream]] = defaultdict(list)
    for stream in streams:
        by_places[stream.places].append(stream)
    rows = []
    for places, own in by_places.items():
        measured = [stream.rate for stream in own if stream.rate is not None]
        rate = sum_text(sum(measured), len(own) - len(measured), len(own), text)
        rows.append((*places, str(len(own)), rate, min((stream.state for stream in own), key=WORST_FIRST.index)))
    rows.sort(key=lambda row: (WORST_FIRST.index(row[-1]), row))
    rows = [(*row[:-1], WORDS[row[-1]]) for row in rows]
    clusters = [len({stream.places[column] for stream in streams}) for column in range(3)]
    words = ("source", "Connect cluster", "target")
    label = ", ".join(number_of(count, word) for count, word in zip(clusters, words, strict=True))
    return {
        "drawn": sankey(
            streams, Drawing(tuple(_COLUMNS), _STATES, text, _address), f"{label}; numbers are in the table"
        ),
        "unit": unit,
        "numbers": Table((*_COLUMNS, "flows", "rate", "state"), rows[:MOST_ROWS], right=("flows", "rate")),
        "left_out": max(0, len(rows) - MOST_ROWS),
    }


def _address(places: Mapping[str, str]) -> str:
    return flows_link(**{_COLUMNS[column]: name for column, name in places.items()})


def _rates(
    view: EstateView, flows: Iterable[FlowStatus]
) -> tuple[dict[str, float | None], Callable[[float], str], str]:
    """Return the rate of each flow, how it is written, and its unit: bytes where those of all are known whose records
    are."""
    moves = {flow.flow: view.throughput.get(flow.flow) for flow in flows}
    records = {flow: move.mirrored_records_per_second if move else None for flow, move in moves.items()}
    volumes = {flow: move.mirrored_bytes_per_second if move else None for flow, move in moves.items()}
    measured = [flow for flow, rate in records.items() if rate is not None]
    if measured and all(volumes[flow] is not None for flow in measured):
        return volumes, rate_text, "bytes per second"
    return records, _records_rate, "records per second"


def _records_rate(rate: float) -> str:
    return f"{count_rate(rate)} records/s"


def _matrix(now: float, view: EstateView, flows: Iterable[FlowStatus]) -> Context:
    """Return the pairs of clusters as rows and columns; the side with more clusters is down, so that it stays
    readable."""
    cells: dict[tuple[str, str], list[FlowStatus]] = defaultdict(list)
    for flow in flows:
        source, _, target = flow.pair.partition("->")
        cells[source, target].append(flow)
    sources, targets = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    across = "target" if len(sources) >= len(targets) else "source"
    down, along = (sources, targets) if across == "target" else (targets, sources)

    shown = {pair: _cell(now, pair, own, view) for pair, own in cells.items()}

    def cell(row: str, column: str) -> Context | None:
        return shown.get((row, column) if across == "target" else (column, row))

    return {
        "down": "source" if across == "target" else "target",
        "across": across,
        "columns": along,
        "rows": [(row, [cell(row, column) for column in along]) for row in down],
        "well": sum(bool(cell["well"]) for cell in shown.values()),
    }


def _cell(now: float, pair: tuple[str, str], flows: Sequence[FlowStatus], view: EstateView) -> Context:
    lag, is_late = pair_lag([view.total(flow.flow) for flow in flows])
    ages = [now - last.taken_at for flow in flows if (last := view.last_known(flow))]
    only, health = len(flows) == 1, min((shown_health(view, flow) for flow in flows), key=WORST_FIRST.index)
    return {
        "link": flow_link(flows[0].flow) if only else flows_link(source=pair[0], target=pair[1]),
        "health": health,
        "late": is_late,
        "well": health == "ok" and not is_late,
        "lag": f"known {span_text(max(ages))} ago" if ages and lag == UNKNOWN_LAG else lag,
        "flows": "" if only else number_of(len(flows), "flow"),
        "pair": f"{pair[0]} to {pair[1]}",
    }
