"""What monitors the metrics of `serve`: Prometheus alerting rules, one for each kind of problem and those that need a
time or a limit; and a Grafana dashboard of the estate, its flows, lag over time, and problems. Pure.

`for` is how long a condition must last before the alert fires: longer for what an ordinary apply, restart or rebalance
causes. The dashboard is made for Grafana 9 and newer; its data source and the flows to show are variables of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from mm2mgr.problems import KINDS
from mm2mgr.problems.kind import AlertSeverity
from mm2mgr.topology import Topology


class Alert(NamedTuple):
    """One alerting rule. `condition`: PromQL with `OWN` where the label of the owner goes; `minutes`: its `for`."""

    name: str
    severity: AlertSeverity
    minutes: int
    condition: str
    summary: str
    action: str


_FLOW = "{{ $labels.flow }}"
_MAX_LAG = "MirrorLagAboveMaximum"
_LAG_UNKNOWN = "MirrorLagUnknown"
_REBALANCE_HELD = "MirrorRebalanceHeld"
_OVERTAKEN_SECONDS = 3600
_BEHIND_SECONDS = 120  # a flush interval of a minute, twice: what stored offsets alone cannot explain
_UNEVEN, _BUSY = 1.5, 0.7
_AHEAD_SECONDS = 14 * 86_400  # two weeks: time to order workers, or to give a topic more partitions


def alert_name(kind: str) -> str:
    """Return the name of the alert of a kind of problem, `MirrorTaskFailed` of `task-failed`."""
    return "Mirror" + "".join(word.capitalize() for word in kind.split("-"))


ALERTS: tuple[Alert, ...] = (
    Alert(
        "MirrorServeDown", "critical", 5, "absent(mm2mgr_build_info{OWN})",
        "mm2mgr serve gives no metrics of this tree, so no other alert can fire.",
        "look at the process of mm2mgr serve and at the scrape job",
    ),
    Alert(
        "MirrorLooksStale", "critical", 2, "mm2mgr_looks_stale{OWN} == 1",
        "mm2mgr serve runs, and its last complete look is too old.", "ask /healthz, and read the log of mm2mgr serve",
    ),
    Alert(
        "MirrorTreeWrong", "warning", 5, "mm2mgr_tree_error{OWN} == 1",
        "The YAML tree was changed and is wrong: mm2mgr serve looks at the one before it.", "mm2mgr lint",
    ),
    Alert(
        "MirrorClusterUnreadable", "warning", 5, "mm2mgr_unreadable_clusters{OWN} > 0",
        "{{ $value }} clusters of type {{ $labels.type }} cannot be read.", "mm2mgr status names them with the reason",
    ),
    Alert(
        "MirrorFlowUnknown", "warning", 15, 'mm2mgr_flow_health{OWN,health="unknown"} == 1',
        f"{_FLOW}: its health is unknown.", f"mm2mgr describe '{_FLOW}'",
    ),
    Alert(
        _MAX_LAG, "warning", 5, "mm2mgr_flow_lag_seconds{OWN} > mm2mgr_flow_max_lag_seconds{OWN}",
        f"{_FLOW}: the oldest record that waits is {{{{ $value | humanizeDuration }}}} old, more than the flow's"
        " max_lag.",
        f"mm2mgr lag '{_FLOW}' --by task",
    ),
    Alert(
        _LAG_UNKNOWN, "warning", 15, "mm2mgr_flow_max_lag_seconds{OWN} unless on (flow) mm2mgr_flow_lag_seconds{OWN}",
        f"{_FLOW}: how old its lag is cannot be told, so its max_lag is not watched.",
        f"keep mm2mgr sample running; mm2mgr lag '{_FLOW}' says what is not known",
    ),
    Alert(
        "MirrorRetentionOvertakes", "critical", 5,
        f"mm2mgr_flow_retention_overtakes_in_seconds{{OWN}} < {_OVERTAKEN_SECONDS}",
        f"{_FLOW}: retention deletes records that wait in {{{{ $value | humanizeDuration }}}}.",
        f"raise the retention of the source's topics, then the flow's throughput: mm2mgr lag '{_FLOW}' --by topic",
    ),
    Alert(
        "MirrorFallingBehind", "warning", 15,
        "mm2mgr_flow_mirrored_records_per_second{OWN} < 0.9 * mm2mgr_flow_source_records_per_second{OWN}"
        f" and mm2mgr_flow_lag_records{{OWN}} > {_BEHIND_SECONDS} * mm2mgr_flow_source_records_per_second{{OWN}}"
        ' and on (flow) mm2mgr_flow_tasks{OWN,state="RUNNING"} > 0',
        f"{_FLOW}: mirrors {{{{ $value | humanize }}}} records/s, less than its source gets, and is more than"
        f" {_BEHIND_SECONDS // 60} minutes of records behind.",
        f"mm2mgr lag '{_FLOW}' --by task",
    ),
    Alert(
        "MirrorTaskOverloaded", "warning", 30, "mm2mgr_flow_busiest_task_ratio{OWN} > 1",
        f"{_FLOW}: its busiest task gets {{{{ $value | humanizePercentage }}}} of what a task is planned to carry.",
        f"mm2mgr size '{_FLOW}' --dry-run",
    ),
    Alert(
        "MirrorTasksUneven", "info", 60,
        f"mm2mgr_flow_task_balance_ratio{{OWN}} > {_UNEVEN} and mm2mgr_flow_busiest_task_ratio{{OWN}} > {_BUSY}",
        f"{_FLOW}: its busiest task gets {{{{ $value | humanize }}}} times the mean of its tasks, and is busy:"
        " partitions are dealt by number, not by load.",
        f"mm2mgr size '{_FLOW}' --dry-run",
    ),
    Alert(
        "MirrorTooFewTasks", "warning", 60,
        "mm2mgr_flow_tasks_needed{OWN} > (sum without (state) (mm2mgr_flow_tasks{OWN}) > 0)",
        f"{_FLOW}: its load needs {{{{ $value }}}} tasks, more than it has.", f"mm2mgr size '{_FLOW}'",
    ),
    Alert(
        "MirrorHotPartition", "info", 60, "mm2mgr_flow_hot_partitions{OWN} > 0",
        f"{_FLOW}: {{{{ $value }}}} partitions are more than a task is planned to carry; more tasks do not help.",
        f"mm2mgr size '{_FLOW}' --dry-run names them, and so does the page of the flow",
    ),
    Alert(
        "MirrorTooFewWorkers", "warning", 60, "mm2mgr_connect_workers_needed{OWN} > mm2mgr_connect_workers{OWN}",
        "{{ $labels.connect }}: its load needs {{ $value }} workers, more than have a connector or a task.",
        "mm2mgr fleet",
    ),
    Alert(
        "MirrorFlowLimitAhead", "info", 60, f"mm2mgr_flow_limit_in_seconds{{OWN}} < {_AHEAD_SECONDS}",
        f"{_FLOW}: its growth passes a limit ({{{{ $labels.limit }}}}) in {{{{ $value | humanizeDuration }}}}.",
        f"mm2mgr size '{_FLOW}' --dry-run names it",
    ),
    Alert(
        "MirrorWorkerLimitAhead", "info", 60, f"mm2mgr_connect_limit_in_seconds{{OWN}} < {_AHEAD_SECONDS}",
        "{{ $labels.connect }}: growth passes what its workers may have ({{ $labels.limit }}) in"
        " {{ $value | humanizeDuration }}.",
        "mm2mgr fleet",
    ),
    Alert(
        _REBALANCE_HELD, "warning", 60,
        "mm2mgr_flow_busiest_task_ratio{OWN} > 1"
        ' and on (flow) mm2mgr_flow_rebalance_held{OWN,reason=~"frozen|history|rounds"} == 1',
        f"{_FLOW}: its busiest task gets {{{{ $value | humanizePercentage }}}} of what a task is planned to carry, and"
        " it may not be rebalanced: a freeze file, a history that is not read, or no round left today.",
        f"mm2mgr rebalance '{_FLOW}'; the page Rebalances of mm2mgr serve says what holds it",
    ),
    *(
        Alert(
            alert_name(name), kind.severity, kind.minutes, f'mm2mgr_problem{{OWN,kind="{name}"}} > 0',
            f"{{{{ or $labels.flow $labels.connect }}}}: {kind.meaning()}",
            f"{{{{ if $labels.flow }}}}mm2mgr describe '{_FLOW}'{{{{ else }}}}mm2mgr status{{{{ end }}}}",
        )
        for name, kind in KINDS.items()
    ),
)  # fmt: skip
"""Every alert: of `serve` itself, of flows, and one for each kind of problem."""


def alerts(topology: Topology) -> Iterator[Alert]:
    """Yield the alerts that can fire on an estate: none for heartbeats, lag limits, audits, rebalances or failover that
    no flow has."""
    with_heartbeats = any(flow.with_heartbeats for flow in topology.flows)
    without = set[str]()
    if not any(flow.settings.max_lag for flow in topology.flows):
        without |= {_MAX_LAG, _LAG_UNKNOWN}
    if not any(flow.settings.balance.by == "plugin" for flow in topology.flows):
        without.add(_REBALANCE_HELD)
    if not any(flow.settings.audit for flow in topology.flows):
        without.add(alert_name("not-audited"))
    if not topology.failover_pairs:
        without |= {alert_name("failover-not-ready"), alert_name("failover-not-checked")}
    if not any(settings.rehearse_every for settings in topology.failover_pairs.values()):
        without.add(alert_name("failover-not-rehearsed"))
    for alert in ALERTS:
        if alert.name not in without and (with_heartbeats or "Heartbeat" not in alert.name):
            yield alert


def with_owner(condition: str, owner: str) -> str:
    """Return PromQL in which `OWN` is the label of an owner."""
    return condition.replace("OWN", f"owner={json.dumps(owner, ensure_ascii=False)}")


def rule_group(topology: Topology) -> dict[str, object]:
    """Return the group of all alerting rules, as a rule file of Prometheus has it in `groups`."""
    owner = str(topology.owner)
    return {"name": f"mm2mgr {owner}", "rules": [_rule(alert, owner) for alert in alerts(topology)]}


def _rule(alert: Alert, owner: str) -> dict[str, object]:
    lasts = {"for": f"{alert.minutes}m"} if alert.minutes else {}
    return {
        "alert": alert.name,
        "expr": with_owner(alert.condition, owner),
        **lasts,
        "labels": {"severity": alert.severity, "owner": owner},
        "annotations": {"summary": alert.summary, "description": alert.action},
    }


# --- the dashboard ----------------------------------------------------------------------------------------------------

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


def _top(metric: str, legend: str = "{{flow}}", labels: str = "") -> Query:
    return Query(f"topk({_SHOWN}, {metric}{{{_CHOSEN}{labels}}})", legend)


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
    Panel(
        "Lag (time)", "timeseries", (_top("mm2mgr_flow_lag_seconds"),), "s", 12, 9,
        "Age of the oldest record that waits.",
    ),
    Panel("Lag (records)", "timeseries", (_top("mm2mgr_flow_lag_records"),), "short", 12, 9),
    Panel("Lag (bytes)", "timeseries", (_top("mm2mgr_flow_lag_bytes"),), "bytes", 12, 9),
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
    Panel(
        "Age of heartbeats", "timeseries", (_top("mm2mgr_flow_heartbeat_age_seconds"),), "s", 12, 9,
        "The most that a record takes from end to end.",
    ),
    Panel(
        "Problems", "timeseries", (Query("sum by (kind) (mm2mgr_problem{OWN})", "{{kind}}"),), "short", 12, 9,
        "Of the whole estate, by kind.",
    ),
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
        (Query(f"topk({_SHOWN}, mm2mgr_failover_records_at_risk{{OWN}})", "{{source}}->{{target}}"),), "short", 12, 9,
        "Records that would be lost or skipped, at most, if consumers went over to the target now.",
    ),
    Panel(
        "Failover: age of the oldest checkpoint", "timeseries",
        (
            Query(
                f"topk({_SHOWN}, time() - mm2mgr_failover_oldest_checkpoint_timestamp_seconds{{OWN}})",
                "{{source}}->{{target}}",
            ),
        ),
        "s", 12, 9,
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
        "Forecasts", "timeseries",
        (
            Query(f"mm2mgr_flow_level_in_seconds{{{_CHOSEN}}}", "{{flow}} level in"),
            Query(f"mm2mgr_flow_retention_overtakes_in_seconds{{{_CHOSEN}}}", "{{flow}} overtaken by retention in"),
        ),
        "s", 12, 9,
    ),
    Panel(
        "Limits ahead", "timeseries",
        (
            Query(f"mm2mgr_flow_limit_in_seconds{{{_CHOSEN}}}", "{{flow}} {{limit}} in"),
            Query("mm2mgr_connect_limit_in_seconds{OWN}", "{{connect}} {{limit}} in"),
        ),
        "s", 12, 9, "Until growth passes them: tasks of a flow, a partition one task, workers theirs.",
    ),
    Panel(
        "Duration of a look", "timeseries", (Query("mm2mgr_look_duration_seconds{OWN}", "{{instance}}"),), "s", 12, 9,
    ),
)  # fmt: skip
"""Every panel, in reading order."""


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
        "panels": list(_place_panels(owner)),
    }


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
    left = top = 0
    for number, panel in enumerate(PANELS, 1):
        place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
        left += panel.width
        if left >= _WIDTH:
            left, top = 0, top + panel.height
        yield {"id": number, "gridPos": place, **_panel(panel, owner)}


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
