"""Alerting rules for Prometheus over the metrics of `serve`: one per kind of problem, and those that need a time or a
limit. Pure.

`for` is how long a condition must last before the alert fires: longer for what an ordinary apply, restart or rebalance
causes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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

    @property
    def anchor(self) -> str:
        """Its anchor in the runbooks: the kind of its problem, or its name in the same spelling (`lag-unknown`)."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name.removeprefix("Mirror")).lower()


RUNBOOKS = "docs/how-to/something-is-red.md"
"""What `runbook_url` refers to unless an address is given: mm2mgr's own page, from the top of its repository."""

_FLOW = "{{ $labels.flow }}"
_MAX_LAG = "MirrorLagAboveMaximum"
_LAG_UNKNOWN = "MirrorLagUnknown"
_REBALANCE_HELD = "MirrorRebalanceHeld"
_OVERTAKEN_SECONDS = 3600
_BEHIND_SECONDS = 120  # a flush interval of a minute, twice: what stored offsets alone cannot explain
_STALLED_ROUNDS, _STALLED_SECONDS = 3, 900  # a round may last: applying in waves, a roll-up of a long pause
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
        "MirrorPartStalled", "warning", 0,
        f"time() - mm2mgr_part_ended_timestamp_seconds{{OWN}} > {_STALLED_ROUNDS} * mm2mgr_part_interval_seconds{{OWN}}"
        f" + {_STALLED_SECONDS}",
        f"{{{{ $labels.part }}}}: no round has ended for {{{{ $value | humanizeDuration }}}}, {_STALLED_ROUNDS} of its"
        " intervals and more.",
        "read the log of mm2mgr serve and its page Parts, and start it again",
    ),
    Alert(
        "MirrorPartFailing", "warning", 15, "mm2mgr_part_failing{OWN} == 1",
        "{{ $labels.part }}: its rounds fail.", "the page Parts of mm2mgr serve says why",
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


def rule_group(topology: Topology, runbooks: str = RUNBOOKS) -> dict[str, object]:
    """Return the group of all alerting rules, as a rule file of Prometheus has it in `groups`.

    `runbooks`: the address of the page that says what to do, to which `runbook_url` adds the alert's anchor.
    """
    owner = str(topology.owner)
    return {"name": f"mm2mgr {owner}", "rules": [_rule(alert, owner, runbooks) for alert in alerts(topology)]}


def _rule(alert: Alert, owner: str, runbooks: str) -> dict[str, object]:
    lasts = {"for": f"{alert.minutes}m"} if alert.minutes else {}
    return {
        "alert": alert.name,
        "expr": with_owner(alert.condition, owner),
        **lasts,
        "labels": {"severity": alert.severity, "owner": owner},
        "annotations": {
            "summary": alert.summary,
            "description": alert.action,
            "runbook_url": f"{runbooks}#{alert.anchor}",
        },
    }
