"""The picture of the estate on the overview: flows by source and target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from mm2mgr.operations.serve import EstateView
from mm2mgr.problems.health import FlowStatus
from mm2mgr.serve.pages.base import WORST_FIRST, Context, flow_link
from mm2mgr.serve.pages.flows import UNKNOWN_LAG, pair_lag
from mm2mgr.text import number_of, span_text


def picture(now: float, view: EstateView, kind: str = "") -> Context | None:
    """Return what `picture.html.j2` draws; None before the first look. `kind`: `matrix`, or anything else."""
    if view.look is None:
        return None
    return {"kind": "matrix", "matrix": _matrix(now, view, view.look.status.flows)}


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

    def cell(row: str, column: str) -> Context | None:
        pair = (row, column) if across == "target" else (column, row)
        return _cell(now, pair, cells[pair], view) if pair in cells else None

    return {
        "down": "source" if across == "target" else "target",
        "across": across,
        "columns": along,
        "rows": [(row, [cell(row, column) for column in along]) for row in down],
    }


def _cell(now: float, pair: tuple[str, str], flows: Sequence[FlowStatus], view: EstateView) -> Context:
    lag, is_late = pair_lag([view.total(flow.flow) for flow in flows])
    ages = [now - last.taken_at for flow in flows if (last := view.last_known(flow))]
    only = len(flows) == 1
    return {
        "link": flow_link(flows[0].flow) if only else f"/flows?{urlencode({'source': pair[0], 'target': pair[1]})}",
        "health": min((flow.health for flow in flows), key=WORST_FIRST.index),
        "late": is_late,
        "lag": f"known {span_text(max(ages))} ago" if ages and lag == UNKNOWN_LAG else lag,
        "flows": "" if only else number_of(len(flows), "flow"),
        "pair": f"{pair[0]} to {pair[1]}",
    }
