"""Prometheus alerting rules over the metrics of `serve`: one for each kind of problem, and those that need a time or a
limit. Pure.

`for` is how long a condition must last before the alert fires: longer for what an ordinary apply, restart or rebalance
causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from mm2mgr.observe.kinds import KINDS
from mm2mgr.topology import Topology

AlertSeverity = Literal["critical", "warning", "info"]


class Alert(NamedTuple):
    """One alerting rule. `condition`: PromQL with `OWN` where the label of the owner goes; `minutes`: its `for`."""

    name: str
    severity: AlertSeverity
    minutes: int
    condition: str
    summary: str
    action: str


class _Urgency(NamedTuple):
    severity: AlertSeverity
    minutes: int


# Records do not arrive, or are lost: critical. What an apply causes for a while waits for 15 minutes; a task without a
# worker waits longer than scheduled.rebalance.max.delay.ms (5 minutes).
_USUAL = _Urgency("warning", 5)
_URGENCY: Mapping[str, _Urgency] = {
    **dict.fromkeys(("connector-failed", "task-failed", "no-task", "no-topic-matches", "no-status"), _Urgency("critical", 2)),
    **dict.fromkeys(("no-progress", "offsets-not-stored", "records-lost", "records-not-on-target", "arrives-twice"), _Urgency("critical", 0)),
    **dict.fromkeys(("target-topic-missing", "target-partitions-fewer", "partitions-unassigned"), _Urgency("critical", 2)),
    **dict.fromkeys(("connector-unassigned", "task-unassigned", "worker-departed"), _Urgency("critical", 7)),
    **dict.fromkeys(("not-applied", "config-differs", "state-differs", "old-task-config"), _Urgency("warning", 15)),
    "overlap": _Urgency("critical", 2),  # an apply that moves topics between connectors stops one of them
    **dict.fromkeys(("offsets-move-unfinished", "orphan"), _Urgency("warning", 15)),
}  # fmt: skip
_FLOW = "{{ $labels.flow }}"
_MAX_LAG = "MirrorLagAboveMaximum"
_OVERTAKEN_SECONDS = 3600


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
        f"{_FLOW}: the oldest record that waits is {{{{ $value | humanizeDuration }}}} old, more than the flow's max_lag.",
        f"mm2mgr lag '{_FLOW}' --by task",
    ),
    Alert(
        "MirrorRetentionOvertakes", "critical", 5,
        f"mm2mgr_flow_retention_overtakes_in_seconds{{OWN}} < {_OVERTAKEN_SECONDS}",
        f"{_FLOW}: retention deletes records that wait in {{{{ $value | humanizeDuration }}}}.",
        f"raise the retention of the source's topics, then the flow's throughput: mm2mgr lag '{_FLOW}' --by topic",
    ),
    *(
        Alert(
            alert_name(kind), *_URGENCY.get(kind, _USUAL), f'mm2mgr_problem{{OWN,kind="{kind}"}} > 0',
            f"{{{{ or $labels.flow $labels.connect }}}}: {problem_kind.meaning}",
            f"{{{{ if $labels.flow }}}}mm2mgr describe '{_FLOW}'{{{{ else }}}}mm2mgr status{{{{ end }}}}",
        )
        for kind, problem_kind in KINDS.items()
    ),
)  # fmt: skip
"""Every alert: of `serve` itself, of flows, and one for each kind of problem."""


def alerts(topology: Topology) -> Iterator[Alert]:
    """Yield the alerts that can fire on an estate: none for heartbeats where no flow has any, nor for lag where none
    has a maximum.
    """
    with_heartbeats = any(flow.with_heartbeats for flow in topology.flows)
    with_max_lag = any(flow.settings.max_lag for flow in topology.flows)
    for alert in ALERTS:
        if (with_max_lag or alert.name != _MAX_LAG) and (with_heartbeats or "Heartbeat" not in alert.name):
            yield alert


def owned(condition: str, owner: str) -> str:
    """Return PromQL in which `OWN` is the label of an owner."""
    return condition.replace("OWN", f"owner={json.dumps(owner, ensure_ascii=False)}")


def rule_group(topology: Topology) -> dict[str, Any]:
    """Return the group of all alerting rules, as a rule file of Prometheus has it in `groups`."""
    owner = str(topology.owner)
    return {"name": f"mm2mgr {owner}", "rules": [_rule(alert, owner) for alert in alerts(topology)]}


def _rule(alert: Alert, owner: str) -> dict[str, Any]:
    lasts = {"for": f"{alert.minutes}m"} if alert.minutes else {}
    return {
        "alert": alert.name,
        "expr": owned(alert.condition, owner),
        **lasts,
        "labels": {"severity": alert.severity, "owner": owner},
        "annotations": {"summary": alert.summary, "description": alert.action},
    }
