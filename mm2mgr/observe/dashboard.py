"""A Grafana dashboard over the metrics of `serve`: the estate, its flows, lag over time, and problems. Pure.

Made for Grafana 9 and newer; the data source and the flows to show are variables of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from mm2mgr.observe.alerts import owned
from mm2mgr.topology import Topology

_SOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
_SHOWN = 20  # lines of a graph: those with the most
_WIDTH = 24
_COLOURS = {"ok": "green", "waiting": "blue", "unknown": "yellow", "problem": "red"}
_CHOSEN = 'OWN,flow=~"$flow"'


class Query(NamedTuple):
    """PromQL with `OWN` where the label of the owner goes, and what its lines are called."""

    condition: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel. `height` and `width` in units of Grafana's grid, which is 24 wide."""

    title: str
    kind: str
    queries: tuple[Query, ...]
    unit: str
    width: int
    height: int
    meaning: str = ""


def _top(metric: str) -> Query:
    return Query(f"topk({_SHOWN}, {metric}{{{_CHOSEN}}})", "{{flow}}")


def _single(title: str, condition: str, unit: str = "none", meaning: str = "") -> Panel:
    return Panel(title, "stat", (Query(condition),), unit, 3, 4, meaning)


PANELS: tuple[Panel, ...] = (
    *(
        _single(f"Flows: {word}", f'sum(mm2mgr_flow_health{{{_CHOSEN},health="{word}"}})')
        for word in ("ok", "waiting", "unknown", "problem")
    ),
    _single("Open losses", "sum(mm2mgr_open_losses{OWN})"),
    _single("Unreadable clusters", "sum(mm2mgr_unreadable_clusters{OWN})"),
    _single("Planned changes", "sum(mm2mgr_plan_changes{OWN})", meaning="Connectors that mm2mgr apply would write."),
    _single("Age of the look", "time() - max(mm2mgr_look_ended_timestamp_seconds{OWN})", "s"),
    Panel(
        "Flows",
        "table",
        (
            Query(f"mm2mgr_flow_health{{{_CHOSEN}}} == 1"),
            Query(f"mm2mgr_flow_lag_records{{{_CHOSEN}}}"),
            Query(f"mm2mgr_flow_lag_seconds{{{_CHOSEN}}}"),
            Query(f"mm2mgr_flow_problems{{{_CHOSEN}}}"),
        ),
        "none",
        24,
        9,
    ),
    Panel("Lag (time)", "timeseries", (_top("mm2mgr_flow_lag_seconds"),), "s", 12, 9, "Age of the oldest record that waits."),
    Panel("Lag (records)", "timeseries", (_top("mm2mgr_flow_lag_records"),), "short", 12, 9),
    Panel("Lag (bytes)", "timeseries", (_top("mm2mgr_flow_lag_bytes"),), "bytes", 12, 9),
    Panel(
        "Age of heartbeats", "timeseries", (_top("mm2mgr_flow_heartbeat_age_seconds"),), "s", 12, 9,
        "The most that a record takes from end to end.",
    ),
    Panel(
        "Problems", "timeseries", (Query("sum by (kind) (mm2mgr_problem{OWN})", "{{kind}}"),), "short", 12, 9,
        "Of the whole estate, by kind.",
    ),
    Panel(
        "Tasks that do not run", "timeseries",
        (Query(f'sum by (flow, state) (mm2mgr_flow_tasks{{{_CHOSEN},state!="RUNNING"}}) > 0', "{{flow}} {{state}}"),),
        "short", 12, 9,
    ),
    Panel(
        "Forecasts", "timeseries",
        (
            Query(f"mm2mgr_flow_level_in_seconds{{{_CHOSEN}}}", "{{flow}} level in"),
            Query(f"mm2mgr_flow_retention_overtakes_in_seconds{{{_CHOSEN}}}", "{{flow}} overtaken by retention in"),
        ),
        "s", 12, 9,
    ),
    Panel(
        "Duration of a look", "timeseries", (Query("mm2mgr_look_duration_seconds{OWN}", "{{instance}}"),), "s", 12, 9,
    ),
)  # fmt: skip
"""Every panel, in reading order."""


def dashboard_of(topology: Topology) -> dict[str, Any]:
    """Return the dashboard of an estate, as Grafana imports it."""
    owner = str(topology.owner)
    return {
        "uid": f"mm2mgr-{sha256(owner.encode()).hexdigest()[:12]}",
        "title": f"MirrorMaker 2: {owner}",
        "tags": ["kafka", "mirrormaker", "mm2mgr"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables(owner))},
        "panels": list(_place_panels(owner)),
    }


def _variables(owner: str) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    info = "mm2mgr_flow_info{OWN}"
    for name, label, of in (
        ("source", "Source", info),
        ("target", "Target", 'mm2mgr_flow_info{OWN,source=~"$source"}'),
        ("flow", "Flow", 'mm2mgr_flow_info{OWN,source=~"$source",target=~"$target"}'),
    ):
        query = f"label_values({owned(of, owner)}, {name})"
        yield {
            "name": name, "label": label, "type": "query", "datasource": _SOURCE, "query": query, "definition": query,
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "current": {"text": "All", "value": "$__all"},
        }  # fmt: skip


def _place_panels(owner: str) -> Iterator[dict[str, Any]]:
    """Yield the panels in rows as wide as the grid."""
    left = top = 0
    for number, panel in enumerate(PANELS, 1):
        place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
        left += panel.width
        if left >= _WIDTH:
            left, top = 0, top + panel.height
        yield {"id": number, "gridPos": place, **_panel(panel, owner)}


def _panel(panel: Panel, owner: str) -> dict[str, Any]:
    is_table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": owned(query.condition, owner),
            "legendFormat": query.legend or "__auto",
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
            **({"format": "table"} if is_table else {}),
        }
        for place, query in enumerate(panel.queries)
    ]
    drawn: dict[str, Any] = {
        "title": panel.title,
        "description": panel.meaning,
        "type": panel.kind,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_colour(panel)}, "overrides": []},
    }
    if is_table:
        drawn |= _table()
    return drawn


def _colour(panel: Panel) -> dict[str, Any]:
    """Return the colour of a number: that of the health that it counts, red for other things that should be none."""
    if panel.kind != "stat" or panel.unit != "none":
        return {}
    word = panel.title.removeprefix("Flows: ")
    steps = [{"color": "text", "value": None}, {"color": _COLOURS.get(word, "orange"), "value": 1}]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}


def _table() -> dict[str, Any]:
    """Return how the results of the queries become the columns of one table, a row for each flow."""
    names = {"Value #B": "lag (records)", "Value #C": "lag (seconds)", "Value #D": "problems"}
    colours = {word: {"color": colour, "text": word} for word, colour in _COLOURS.items()}
    health = {
        "matcher": {"id": "byName", "options": "health"},
        "properties": [
            {"id": "mappings", "value": [{"type": "value", "options": colours}]},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ],
    }
    return {
        "transformations": [
            {"id": "joinByField", "options": {"byField": "flow", "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"pattern": "^(flow|health|Value #[BCD])$"}}},
            {"id": "organize", "options": {"renameByName": names}},
        ],
        "fieldConfig": {"defaults": {"unit": "none"}, "overrides": [health]},
    }
