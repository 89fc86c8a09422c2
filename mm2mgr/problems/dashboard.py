"""A Grafana dashboard over the metrics of `serve`: the estate, its flows, lag and load over time, and problems. Pure.

It is made for Grafana 9 and newer; its data source and the flows to show are variables of it. A graph shows the lines
with the most in the whole time that is shown, so that none comes and goes as time passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from mm2mgr.problems.monitoring import with_owner
from mm2mgr.topology import Topology

_SOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
_SHOWN = 20  # lines of a graph: those with the most
_WIDTH = 24
_COLOURS = {"ok": "green", "waiting": "blue", "unknown": "yellow", "problem": "red"}
_CHOSEN = 'OWN,flow=~"$flow"'
_CHECKPOINT = "mm2mgr_failover_oldest_checkpoint_timestamp_seconds{OWN}"


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


def _top(metric: str, legend: str = "{{flow}}", labels: str = "") -> Query:
    return Query(_most(f"{metric}{{{_CHOSEN}{labels}}}"), legend)


def _most(selector: str, shown: str = "", rank: str = "topk({}, max_over_time") -> str:
    """Return PromQL of the series that reach most in the whole time that is shown, the same ones at each point of it.

    `shown`: what is drawn of each, the series itself where nothing is said; `rank`: another order of them.
    """
    return f"{shown or selector} and {rank.format(_SHOWN)}({selector}[$__range] @ end()))"


def _row(title: str) -> Panel:
    return Panel(title, "row", (), "", _WIDTH, 1)


def _single(title: str, condition: str, unit: str = "none", meaning: str = "") -> Panel:
    return Panel(title, "stat", (Query(condition),), unit, 3, 4, meaning)


PANELS: tuple[Panel, ...] = (
    _row("Now"),
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
    _row("Problems"),
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
        "Interruptions", "timeseries",
        (
            Query(
                f'sum by (flow, kind) (mm2mgr_flow_interruptions{{{_CHOSEN},window="1h",kind!="workers"}}) > 0',
                "{{flow}} {{kind}}",
            ),
        ),
        "short", 12, 9, "Assignment changes and failures of tasks in the last hour: nothing is mirrored meanwhile.",
    ),
    Panel(
        "Age of heartbeats", "timeseries", (_top("mm2mgr_flow_heartbeat_age_seconds"),), "s", 12, 9,
        "The most that a record takes from end to end.",
    ),
    _row("Lag"),
    Panel(
        "Lag (time)", "timeseries", (_top("mm2mgr_flow_lag_seconds"),), "s", 12, 9,
        "Age of the oldest record that waits.",
    ),
    Panel("Lag (records)", "timeseries", (_top("mm2mgr_flow_lag_records"),), "short", 12, 9),
    Panel("Lag (bytes)", "timeseries", (_top("mm2mgr_flow_lag_bytes"),), "decbytes", 12, 9),
    _row("Throughput and load"),
    Panel(
        "Mirrored (bytes/s)", "timeseries", (_top("mm2mgr_flow_mirrored_bytes_per_second"),), "Bps", 12, 9,
        "Before compression.",
    ),
    Panel(
        "Mirrored (records/s)", "timeseries",
        (
            _top("mm2mgr_flow_mirrored_records_per_second"),
            _top("mm2mgr_flow_source_records_per_second", "{{flow}} on the source"),
        ),
        "short", 12, 9, "Beside what the source gets.",
    ),
    Panel(
        "Busiest task", "timeseries", (_top("mm2mgr_flow_busiest_task_ratio"),), "percentunit", 12, 9,
        "Of what a task is planned to carry; above 100 % it is overloaded.",
    ),
    Panel(
        "Balance of tasks", "timeseries", (_top("mm2mgr_flow_task_balance_ratio"),), "short", 12, 9,
        "The busiest task by the mean of the flow's tasks: 1 is even.",
    ),
    Panel(
        "Tasks: running and needed", "timeseries",
        (
            _top("mm2mgr_flow_tasks", "{{flow}} running", ',state="RUNNING"'),
            _top("mm2mgr_flow_tasks_needed", "{{flow}} needed"),
        ),
        "short", 12, 9,
    ),
    Panel(
        "Workers: at work and needed", "timeseries",
        (
            Query("mm2mgr_connect_workers{OWN}", "{{connect}} at work"),
            Query("mm2mgr_connect_workers_needed{OWN}", "{{connect}} needed"),
        ),
        "short", 12, 9, "Idle workers show nowhere.",
    ),
    Panel(
        "Hot partitions", "timeseries", (Query(f"mm2mgr_flow_hot_partitions{{{_CHOSEN}}} > 0", "{{flow}}"),),
        "short", 12, 9, "More than a task is planned to carry, so that more tasks do not help.",
    ),
    Panel(
        "Rebalances", "timeseries",
        (Query(f"sum by (flow) (increase(mm2mgr_rebalances_total{{{_CHOSEN}}}[1d])) > 0", "{{flow}}"),),
        "short", 12, 9, "In the last 24 hours; each restarts all tasks of the flow.",
    ),
    Panel(
        "Last rebalance", "timeseries",
        (_top("mm2mgr_flow_last_rebalance_balance_ratio", "{{flow}} {{when}}"),), "short", 12, 9,
        "The busiest task by the mean of the flow's tasks, before and after.",
    ),
    _row("Forecasts of lag"),
    Panel(
        "Level in", "timeseries", (Query(f"mm2mgr_flow_level_in_seconds{{{_CHOSEN}}}", "{{flow}}"),), "s", 12, 9,
        "Of lags that shrink.",
    ),
    Panel(
        "Retention overtakes in", "timeseries",
        (Query(f"mm2mgr_flow_retention_overtakes_in_seconds{{{_CHOSEN}}}", "{{flow}}"),), "s", 12, 9,
        "Until records that wait are deleted.",
    ),
    _row("Forecasts of growth"),
    Panel(
        "Limits of flows in", "timeseries",
        (Query(f"mm2mgr_flow_limit_in_seconds{{{_CHOSEN}}}", "{{flow}} {{limit}}"),), "s", 12, 9,
        "Until growth passes them: tasks of a flow, a partition one task.",
    ),
    Panel(
        "Limits of workers in", "timeseries",
        (Query("mm2mgr_connect_limit_in_seconds{OWN}", "{{connect}} {{limit}}"),), "s", 12, 9,
        "Until growth passes what the workers of a Connect cluster may have.",
    ),
    _row("Audits and failover"),
    Panel(
        "Records that differ", "timeseries",
        (Query(f"sum by (flow, kind) (mm2mgr_flow_audit_differences{{{_CHOSEN}}}) > 0", "{{flow}} {{kind}}"),),
        "short", 12, 9, "As the last audit of each flow found.",
    ),
    Panel(
        "Age of the last audit", "timeseries",
        (Query(f"time() - mm2mgr_flow_audit_judged_timestamp_seconds{{{_CHOSEN}}}", "{{flow}}"),), "s", 12, 9,
    ),
    Panel(
        "Failover: records at risk", "timeseries",
        (Query(_most("mm2mgr_failover_records_at_risk{OWN}"), "{{source}}->{{target}}"),), "short", 12, 9,
        "Records that would be lost or skipped, at most, if consumers went over to the target now.",
    ),
    Panel(
        "Failover: age of the oldest checkpoint", "timeseries",
        (
            Query(
                _most(_CHECKPOINT, f"time() - {_CHECKPOINT}", "bottomk({}, min_over_time"), "{{source}}->{{target}}"
            ),
        ),
        "s", 12, 9,
    ),
    _row("mm2mgr itself"),
    Panel(
        "Duration of a look", "timeseries", (Query("mm2mgr_look_duration_seconds{OWN}", "{{instance}}"),), "s", 12, 9,
    ),
)  # fmt: skip
"""Every panel, in reading order."""


APPLIED = "mm2mgr_connect_applied_timestamp_seconds{OWN}"
"""When the newest apply was: each value of it is a mark in the graphs."""


def dashboard_of(topology: Topology) -> dict[str, object]:
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
        "annotations": {"list": [_applies(owner)]},
        "panels": list(_place_panels(owner)),
    }


def _applies(owner: str) -> dict[str, object]:
    """Return a mark at the time of each apply and each change by `reconcile`, named after its Connect cluster."""
    return {
        "name": "Applies", "datasource": _SOURCE, "enable": True, "iconColor": "blue",
        "expr": f"1000 * {with_owner(APPLIED, owner)}", "useValueForTime": True,
        "titleFormat": "apply on {{connect}}", "tagKeys": "connect", "step": "60s",
    }  # fmt: skip


def _variables(owner: str) -> Iterator[dict[str, object]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    info = "mm2mgr_flow_info{OWN}"
    for name, label, of in (
        ("source", "Source", info),
        ("target", "Target", 'mm2mgr_flow_info{OWN,source=~"$source"}'),
        ("flow", "Flow", 'mm2mgr_flow_info{OWN,source=~"$source",target=~"$target"}'),
    ):
        query = f"label_values({with_owner(of, owner)}, {name})"
        yield {
            "name": name, "label": label, "type": "query", "datasource": _SOURCE, "query": query, "definition": query,
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "current": {"text": "All", "value": "$__all"},
        }  # fmt: skip


def _place_panels(owner: str) -> Iterator[dict[str, object]]:
    left = top = height = 0
    for number, panel in enumerate(PANELS, 1):
        if panel.kind == "row" and left:
            left, top = 0, top + height
        place, height = {"h": panel.height, "w": panel.width, "x": left, "y": top}, panel.height
        left += panel.width
        if left >= _WIDTH:
            left, top = 0, top + panel.height
        yield {"id": number, "gridPos": place, **(_panel(panel, owner) if panel.queries else _heading(panel))}


def _heading(panel: Panel) -> dict[str, object]:
    return {"title": panel.title, "type": panel.kind, "collapsed": False, "panels": []}


def _panel(panel: Panel, owner: str) -> dict[str, object]:
    is_table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": with_owner(query.condition, owner),
            "legendFormat": query.legend or "__auto",
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
            **({"format": "table"} if is_table else {}),
        }
        for place, query in enumerate(panel.queries)
    ]
    drawn: dict[str, object] = {
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


def _colour(panel: Panel) -> dict[str, object]:
    """Return the colour of a number: that of the health that it counts, red for other things that should be none."""
    if panel.kind != "stat" or panel.unit != "none":
        return {}
    word = panel.title.removeprefix("Flows: ")
    steps = [{"color": "text", "value": None}, {"color": _COLOURS.get(word, "orange"), "value": 1}]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}


def _table() -> dict[str, object]:
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
