"""The metrics of `/metrics`: what each is called, its unit and labels; and their values from a view. Pure.

Every metric has the label `owner`, so that the trees of several teams can share a Prometheus. No label has a topic, a
partition, a connector or a text from outside: the number of series is bounded by the flows and clusters that the tree
declares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mm2mgr import __version__
from mm2mgr.failover.check import WORDS
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.plan.history import newest_applies
from mm2mgr.problems import KINDS

HEALTHS = ("ok", "waiting", "unknown", "problem")
TASK_STATES = ("RUNNING", "FAILED", "UNASSIGNED", "PAUSED", "RESTARTING", "other")
_CLOSING_REASONS = ("late", "crowded", "not-accepted")
SEVERITIES = ("error", "warning", "info")
_INTERRUPTIONS = ("assignment", "workers", "failures")

_THROUGHPUT = {
    "mm2mgr_flow_mirrored_records_per_second": "mirrored_records_per_second",
    "mm2mgr_flow_mirrored_bytes_per_second": "mirrored_bytes_per_second",
    "mm2mgr_flow_source_records_per_second": "source_records_per_second",
    "mm2mgr_flow_busiest_task_ratio": "busiest_share",
    "mm2mgr_flow_task_balance_ratio": "balance",
}

Row = tuple[tuple[str, ...], float]


class ServedMetric(NamedTuple):
    """One metric with its labels besides `owner`; counters are exposed with `_total` behind the name."""

    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    meaning: str


METRICS: Mapping[str, ServedMetric] = MappingProxyType(
    {
        "mm2mgr_flow_health": ServedMetric(
            "gauge", ("flow", "health"), "1 for the health that the flow has, 0 for the others."
        ),
        "mm2mgr_flow_info": ServedMetric(
            "gauge", ("flow", "source", "target", "connect"), "1, with the flow's clusters: a list of all flows."
        ),
        "mm2mgr_flow_lag_records": ServedMetric(
            "gauge", ("flow",), "Records that wait on the source. Missing where unknown."
        ),
        "mm2mgr_flow_lag_bytes": ServedMetric(
            "gauge", ("flow",), "Bytes that wait on the source, from the sample store. Missing where unknown."
        ),
        "mm2mgr_flow_lag_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "Age in seconds of the oldest record that waits, from the sample store, else how long ago the source's log"
            " ended where the mirror is, as looks saw it; 0 when level. Missing where unknown.",
        ),
        "mm2mgr_flow_max_lag_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "The flow's `max_lag`. Missing where the tree declares none, or declares the flow paused or stopped.",
        ),
        "mm2mgr_flow_level_in_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "Seconds until a lag that shrinks is level, as forecast. Missing where it does not shrink.",
        ),
        "mm2mgr_flow_retention_overtakes_in_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "Seconds until retention deletes records that wait, as forecast. Missing where it will not, or that is"
            " unknown.",
        ),
        "mm2mgr_flow_lag_incomplete": ServedMetric(
            "gauge", ("flow",), "1 where the lag in records lacks partitions and is a lower bound, or is unknown."
        ),
        "mm2mgr_flow_tasks": ServedMetric("gauge", ("flow", "state"), "Tasks of the flow's source connector by state."),
        "mm2mgr_flow_interruptions": ServedMetric(
            "gauge",
            ("flow", "kind", "window"),
            "What interrupted the flow in the last hour (`window` 1h, to five minutes) and in 30 days (30d, to a day),"
            " as two looks show it: `assignment` changes (tasks with other partitions or on other workers), those of"
            " them with other `workers`, and `failures` of tasks. Lanes have series of their own. Missing before the"
            " first look that reads it.",
        ),
        "mm2mgr_flow_tasks_needed": ServedMetric(
            "gauge",
            ("flow",),
            "Tasks that `size` computes for the flow from the last four weeks in the sample store. Missing where"
            " nothing was rolled up, as all that comes from the store.",
        ),
        "mm2mgr_flow_mirrored_records_per_second": ServedMetric(
            "gauge",
            ("flow",),
            "Records per second that were mirrored in the last five minutes, by stored offsets and the target's ends."
            " Missing until two looks are a flush interval apart.",
        ),
        "mm2mgr_flow_mirrored_bytes_per_second": ServedMetric(
            "gauge",
            ("flow",),
            "The same in bytes before compression, with the mean record size of the newest hour in the sample store.",
        ),
        "mm2mgr_flow_source_records_per_second": ServedMetric(
            "gauge", ("flow",), "Records per second that the flow's topics got on the source in the last five minutes."
        ),
        "mm2mgr_flow_busiest_task_ratio": ServedMetric(
            "gauge",
            ("flow",),
            "What the flow's busiest task got in the newest hour of the sample store, by what a task is planned to"
            " carry (capacity × threshold).",
        ),
        "mm2mgr_flow_task_balance_ratio": ServedMetric(
            "gauge", ("flow",), "The busiest task's bytes in that hour by the mean of the flow's tasks: 1 is even."
        ),
        "mm2mgr_flow_hot_partitions": ServedMetric(
            "gauge",
            ("flow",),
            "Partitions of the flow that are more than a task is planned to carry, which no number of tasks helps."
            " Their names are on the flow's page.",
        ),
        "mm2mgr_flow_limit_in_seconds": ServedMetric(
            "gauge",
            ("flow", "limit"),
            "Seconds until the flow's growth passes a limit: `tasks`, its limit of tasks; `partition`, what one task is"
            " planned to carry by the next partition. 0 where it is passed. Missing where the load does not grow, where"
            " less than two weeks are measured, and where it is more than a year.",
        ),
        "mm2mgr_connect_limit_in_seconds": ServedMetric(
            "gauge",
            ("connect", "limit"),
            "Seconds until growth passes what the workers of today may have: `tasks` (`tasks_per_worker`) or `network`."
            " Missing as for flows, and where the number of workers is unknown.",
        ),
        "mm2mgr_rebalances": ServedMetric(
            "counter",
            ("flow",),
            "Rebalances of the flow that the history has, those by hand included. Missing, as all that follows of"
            " rebalances, without `serve --with rebalance`, and for flows that it does not rebalance.",
        ),
        "mm2mgr_flow_last_rebalance_timestamp_seconds": ServedMetric(
            "gauge", ("flow",), "When the last one was, in seconds since 1970."
        ),
        "mm2mgr_flow_last_rebalance_balance_ratio": ServedMetric(
            "gauge",
            ("flow", "when"),
            "The busiest task's bytes by the mean of the flow's tasks `before` and `after` the last one, by the rates"
            " that it was planned with.",
        ),
        "mm2mgr_flow_rebalance_allowed_timestamp_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "When the flow may be rebalanced next, in seconds since 1970. Missing where a freeze file or the limit of"
            " the tree forbids it, and while the history cannot be read.",
        ),
        "mm2mgr_flow_rebalance_held": ServedMetric(
            "gauge",
            ("flow", "reason"),
            "1 while the flow may not be rebalanced: `frozen` by a file, the `history` was not read, the `rounds` of"
            " the day or the cool-down, outside of its `window`, `stale` rates, `settling`. Missing otherwise.",
        ),
        "mm2mgr_connect_workers": ServedMetric(
            "gauge", ("connect",), "Workers with a connector or a task: Connect shows no idle ones."
        ),
        "mm2mgr_connect_workers_needed": ServedMetric(
            "gauge",
            ("connect",),
            "Workers that `fleet` computes for the Connect cluster, without a spare. Missing where no number is"
            " enough.",
        ),
        "mm2mgr_flow_problems": ServedMetric("gauge", ("flow",), "Problems of the flow."),
        "mm2mgr_flow_heartbeat_age_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "Seconds since the newest heartbeat on the target was sent: the most that a record takes from end to end."
            " Missing where unknown.",
        ),
        "mm2mgr_flow_audit_judged_timestamp_seconds": ServedMetric(
            "gauge",
            ("flow",),
            "When an audit last judged records of the flow, in seconds since 1970. Missing where the flow declares no"
            " `audit`, and where none judged it in the last week.",
        ),
        "mm2mgr_flow_audit_records": ServedMetric("gauge", ("flow",), "Records that this audit compared."),
        "mm2mgr_flow_audit_differences": ServedMetric(
            "gauge", ("flow", "kind"), "Records that this audit found missing, duplicated, altered, reordered or extra."
        ),
        "mm2mgr_failover_verdict": ServedMetric(
            "gauge",
            ("source", "target", "verdict"),
            "1 for what the newest check of the pair in the last week says, 0 for the others: `go`, `go-with`, `no-go`,"
            " `not-judged`. Missing, as all that follows of failover, where the pair declares no `failover`, and where"
            " there was no such check.",
        ),
        "mm2mgr_failover_records": ServedMetric(
            "gauge",
            ("source", "target", "kind"),
            "Records that this check counted, at most: that would be `lost`, `skipped`, or come again (`repeated`)."
            " Missing where unknown.",
        ),
        "mm2mgr_failover_records_at_risk": ServedMetric(
            "gauge",
            ("source", "target"),
            "Records that would be lost or skipped, at most: those that nobody would read. Missing where unknown.",
        ),
        "mm2mgr_failover_groups": ServedMetric(
            "gauge",
            ("source", "target", "readiness"),
            "Consumer groups of the pair that this check judged `ready` and `not-ready`.",
        ),
        "mm2mgr_failover_oldest_checkpoint_timestamp_seconds": ServedMetric(
            "gauge",
            ("source", "target"),
            "When the oldest of the groups' newest checkpoints was written, in seconds since 1970. Missing where a"
            " group has none.",
        ),
        "mm2mgr_failover_source_read_timestamp_seconds": ServedMetric(
            "gauge",
            ("source", "target"),
            "When what this check knew of the source was read, in seconds since 1970: the check itself, or with a dead"
            " source what earlier looks kept of it. Missing where nothing was kept.",
        ),
        "mm2mgr_failover_checked_timestamp_seconds": ServedMetric(
            "gauge", ("source", "target"), "When this check was made, in seconds since 1970."
        ),
        "mm2mgr_failover_last_good_rehearsal_timestamp_seconds": ServedMetric(
            "gauge",
            ("source", "target"),
            "When the last good rehearsal of the pair began, in seconds since 1970. Missing where the pair declares no"
            " `rehearse_every`, and where there was none in 90 days.",
        ),
        "mm2mgr_failover_rehearsed_recovery_seconds": ServedMetric(
            "gauge",
            ("source", "target"),
            "The recovery time that this rehearsal measured. Missing where it measured none.",
        ),
        "mm2mgr_flow_known_timestamp_seconds": ServedMetric(
            "gauge", ("flow",), "When the flow could last be read, in seconds since 1970."
        ),
        "mm2mgr_problems": ServedMetric(
            "gauge", ("kind",), "Problems of the whole estate by kind (docs/reference/problems.md)."
        ),
        "mm2mgr_problem": ServedMetric(
            "gauge",
            ("kind", "connect", "flow"),
            "Problems of one kind, of one flow or of no flow (an empty label). Missing where there is none.",
        ),
        "mm2mgr_open_losses": ServedMetric("gauge", (), "Losses of records that are not acknowledged."),
        "mm2mgr_unreadable_clusters": ServedMetric(
            "gauge", ("type",), "Connect and Kafka clusters that the last look could not read."
        ),
        "mm2mgr_findings": ServedMetric("gauge", ("severity",), "Findings of lint in the tree."),
        "mm2mgr_plan_changes": ServedMetric(
            "gauge", (), "Connectors that `mm2mgr apply` would write or that are blocked."
        ),
        "mm2mgr_connect_applied_timestamp_seconds": ServedMetric(
            "gauge",
            ("connect",),
            "When `mm2mgr apply` or `reconcile` last changed a connector there, in seconds since 1970,"
            " as the newest 1000 changes of the history say. Missing where they have none.",
        ),
        "mm2mgr_tree_error": ServedMetric(
            "gauge", (), "1 where the tree was changed and is wrong, so that the one before it is looked at."
        ),
        "mm2mgr_looks_stale": ServedMetric(
            "gauge", (), "1 where the last complete look is so old that /healthz says `stale`."
        ),
        "mm2mgr_watchdog_restarts": ServedMetric(
            "counter",
            ("result",),
            "Restarts by the watchdog of this process since the start, the stock class where a worker lacks the Connect"
            " plugin included, and those that were not carried out. Missing without a watchdog.",
        ),
        "mm2mgr_watchdog_looked_timestamp_seconds": ServedMetric(
            "gauge", (), "When the watchdog last looked, in seconds since 1970. Missing without one."
        ),
        "mm2mgr_watchdog_frozen": ServedMetric(
            "gauge", (), "1 while the freeze file holds the watchdog back. Missing without one."
        ),
        "mm2mgr_reconcile_rounds": ServedMetric(
            "counter",
            ("outcome",),
            "Rounds of `reconcile` in this process since the start: `done`, `changes` (blocked, or only reported),"
            " `failed`, `inconclusive`, or `standby` while another process of the owner writes. Missing, as what"
            " follows of it, without `serve --with reconcile`.",
        ),
        "mm2mgr_reconcile_written": ServedMetric("counter", (), "Connectors that these rounds wrote."),
        "mm2mgr_reconcile_ended_timestamp_seconds": ServedMetric(
            "gauge", (), "When the last of these rounds ended, in seconds since 1970."
        ),
        "mm2mgr_stored_samples": ServedMetric(
            "counter",
            (),
            "Samples that this process stored since the start. Missing, as what follows of it, without `serve --with"
            " sample`.",
        ),
        "mm2mgr_sampled_timestamp_seconds": ServedMetric(
            "gauge", (), "When the last round of samples ended, in seconds since 1970."
        ),
        "mm2mgr_sample_sources_unread": ServedMetric("gauge", (), "Sources without a sample in the last round."),
        "mm2mgr_part_ended_timestamp_seconds": ServedMetric(
            "gauge",
            ("part",),
            "When the last round of a part that `--with` names ended, also one that failed or stood by, in seconds"
            " since 1970; the start of the process before the first. Missing, as what follows, for parts that it does"
            " not name.",
        ),
        "mm2mgr_part_interval_seconds": ServedMetric("gauge", ("part",), "How long the part rests between two rounds."),
        "mm2mgr_part_failing": ServedMetric("gauge", ("part",), "1 where its last round failed."),
        "mm2mgr_part_standby": ServedMetric(
            "gauge", ("part",), "1 where another process of the owner did all of its last round."
        ),
        "mm2mgr_look_began_timestamp_seconds": ServedMetric(
            "gauge", (), "When the running look began, in seconds since 1970; 0 while none runs."
        ),
        "mm2mgr_look_ended_timestamp_seconds": ServedMetric(
            "gauge", (), "When the last complete look ended, in seconds since 1970; 0 before the first."
        ),
        "mm2mgr_look_duration_seconds": ServedMetric("gauge", (), "How long the last complete look took."),
        "mm2mgr_looks": ServedMetric("counter", (), "Complete looks since the start."),
        "mm2mgr_failed_looks": ServedMetric("counter", (), "Looks that failed since the start."),
        "mm2mgr_closed_connections": ServedMetric(
            "counter",
            ("reason",),
            "Connections to this server that it ended since the start: `late` sent no whole request or did not take the"
            " answer in time, `crowded` waited longest while too many were open, `not-accepted` could not begin.",
        ),
        "mm2mgr_build_info": ServedMetric("gauge", ("version",), "1, with the version of mm2mgr."),
    }
)
"""Every metric by its name."""


def exposition(view: EstateView, tick: float, closed: Mapping[str, int] = MappingProxyType({})) -> bytes:
    """Return the view in the text format of Prometheus. `tick`: now, on the clock of its ages; `closed`: connections
    ended, by reason.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(families(view, tick, closed))))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._found = metrics

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(view: EstateView, tick: float, closed: Mapping[str, int] = MappingProxyType({})) -> Iterator[Metric]:
    """Yield every metric with its values, those without a value too."""
    samples = {**_of_looks(view, tick, closed), **_of_flows(view), **_of_load(view), **_of_the_estate(view)}
    samples |= {**_of_rebalances(view), **_of_failover(view)}
    for name, metric in METRICS.items():
        family_class = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = family_class(name, metric.meaning, labels=("owner", *metric.labels))
        for labels, value in samples.get(name, ()):
            family.add_metric((view.owner, *labels), value)
        yield family


def _of_looks(view: EstateView, tick: float, closed: Mapping[str, int]) -> dict[str, list[Row]]:
    look = view.look
    values = {
        "mm2mgr_tree_error": float(bool(view.tree_error)),
        "mm2mgr_looks_stale": float(view.state(tick) == "stale"),
        "mm2mgr_look_began_timestamp_seconds": view.began_at or 0.0,
        "mm2mgr_look_ended_timestamp_seconds": look.ended_at if look else 0.0,
        "mm2mgr_looks": float(view.looks),
        "mm2mgr_failed_looks": float(view.failed_looks),
        **({"mm2mgr_look_duration_seconds": look.ended_at - look.began_at} if look else {}),
    }
    rows: dict[str, list[Row]] = {name: [((), value)] for name, value in values.items()}
    rows["mm2mgr_closed_connections"] = [((reason,), float(closed.get(reason, 0))) for reason in _CLOSING_REASONS]
    rows["mm2mgr_build_info"] = [((__version__,), 1.0)]
    for name, part in view.parts.items():
        values = {
            "ended_timestamp_seconds": part.ended_at or view.started_at,
            "interval_seconds": part.every_seconds,
            "failing": float(part.is_failing),
            "standby": float(part.outcome == "standby"),
        }
        for metric, value in values.items():
            rows.setdefault(f"mm2mgr_part_{metric}", []).append(((name,), value))
    if (dog := view.watchdog) and dog.last:
        counts = {"done": dog.restarts, "failed": dog.failed_restarts}
        rows["mm2mgr_watchdog_restarts"] = [((result,), float(count)) for result, count in counts.items()]
        rows["mm2mgr_watchdog_looked_timestamp_seconds"] = [((), dog.last.taken_at)]
        rows["mm2mgr_watchdog_frozen"] = [((), float(dog.last.frozen))]
    if (reconciles := view.reconciles) and reconciles.last:
        rows["mm2mgr_reconcile_rounds"] = [((outcome,), float(count)) for outcome, count in reconciles.rounds.items()]
        rows["mm2mgr_reconcile_written"] = [((), float(reconciles.written))]
        rows["mm2mgr_reconcile_ended_timestamp_seconds"] = [((), reconciles.taken_at)]
    if (samples := view.samples) and samples.last:
        rows["mm2mgr_stored_samples"] = [((), float(samples.samples))]
        rows["mm2mgr_sampled_timestamp_seconds"] = [((), samples.taken_at)]
        rows["mm2mgr_sample_sources_unread"] = [((), float(len(samples.last.sources_without_samples)))]
    return rows


def _of_flows(view: EstateView) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}

    def add(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            rows.setdefault(name, []).append((labels, float(value)))

    for flow in view.look.status.flows if view.look else ():
        add("mm2mgr_flow_info", 1.0, flow.flow, *flow.pair.split("->"), flow.connect)
        for health in HEALTHS:
            add("mm2mgr_flow_health", flow.health == health, flow.flow, health)
        states = Counter(task.state if task.state in TASK_STATES else "other" for task in flow.tasks)
        for state in TASK_STATES:
            add("mm2mgr_flow_tasks", states[state], flow.flow, state)
        add("mm2mgr_flow_problems", len(flow.problems), flow.flow)
        if flow.interruptions:
            for window, counts in (("1h", flow.interruptions.last_hour), ("30d", flow.interruptions.last_30_days)):
                for kind, count in zip(_INTERRUPTIONS, counts, strict=True):
                    add("mm2mgr_flow_interruptions", count, flow.flow, kind, window)
        if flow.audit and flow.audit.judged_at:
            add("mm2mgr_flow_audit_judged_timestamp_seconds", flow.audit.judged_at, flow.flow)
            add("mm2mgr_flow_audit_records", flow.audit.records, flow.flow)
            for kind, count in (flow.audit.counts or {}).items():
                add("mm2mgr_flow_audit_differences", count, flow.flow, kind)
    for name, total in view.look.totals.items() if view.look else ():
        add("mm2mgr_flow_lag_records", total.records.value, name)
        add("mm2mgr_flow_lag_bytes", total.bytes.value, name)
        add("mm2mgr_flow_lag_seconds", total.seconds.value, name)
        add("mm2mgr_flow_level_in_seconds", total.level.seconds if total.level else None, name)
        overtaken = total.overtaken.seconds if total.overtaken else None
        add("mm2mgr_flow_retention_overtakes_in_seconds", overtaken, name)
        add("mm2mgr_flow_lag_incomplete", total.records.at_least or total.records.value is None, name)
    for name, most in view.look.max_lag_seconds.items() if view.look else ():
        add("mm2mgr_flow_max_lag_seconds", most, name)
    for facts in view.look.lag.flows if view.look else ():
        beat = facts.heartbeat_seconds
        add("mm2mgr_flow_heartbeat_age_seconds", beat if isinstance(beat, float) else None, facts.flow)
    for name, flow_view in view.known.items():
        add("mm2mgr_flow_known_timestamp_seconds", flow_view.taken_at, name)
    return rows


def _of_load(view: EstateView) -> dict[str, list[Row]]:
    flows = {status.flow for status in view.look.status.flows} if view.look else set[str]()
    of_flows: dict[str, Mapping[str, float | None]] = {
        "mm2mgr_flow_tasks_needed": {name: need.tasks for name, need in view.needs.flows.items()},
        "mm2mgr_flow_hot_partitions": {name: len(need.hot_partitions) for name, need in view.needs.flows.items()},
        **{
            metric: {name: getattr(throughput, field) for name, throughput in view.throughput.items()}
            for metric, field in _THROUGHPUT.items()
        },
    }
    of_connects: dict[str, Mapping[str, float | None]] = {
        "mm2mgr_connect_workers": {name: need.workers for name, need in view.needs.connects.items()},
        "mm2mgr_connect_workers_needed": {name: need.workers_needed for name, need in view.needs.connects.items()},
    }
    rows: dict[str, list[Row]] = {
        metric: [((name,), value) for name, value in values.items() if value is not None and name in flows]
        for metric, values in of_flows.items()
    }
    for metric, values in of_connects.items():
        rows[metric] = [((name,), value) for name, value in values.items() if value is not None]
    rows["mm2mgr_flow_limit_in_seconds"] = [
        ((name, limit), seconds)
        for name, need in view.needs.flows.items()
        if name in flows
        for limit, seconds in need.limits_in_seconds.items()
    ]
    rows["mm2mgr_connect_limit_in_seconds"] = [
        ((name, limit), seconds)
        for name, need in view.needs.connects.items()
        for limit, seconds in need.limits_in_seconds.items()
    ]
    return rows


def _of_rebalances(view: EstateView) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}

    def add(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            rows.setdefault(name, []).append((labels, float(value)))

    for flow in view.rebalances.last.flows if view.rebalances and view.rebalances.last else ():
        add("mm2mgr_rebalances", flow.rounds, flow.flow)
        add("mm2mgr_flow_rebalance_allowed_timestamp_seconds", flow.decision.allowed_at, flow.flow)
        if flow.decision.hold:
            add("mm2mgr_flow_rebalance_held", 1.0, flow.flow, flow.decision.hold)
        if flow.last:
            add("mm2mgr_flow_last_rebalance_timestamp_seconds", flow.last.at_seconds, flow.flow)
            add("mm2mgr_flow_last_rebalance_balance_ratio", flow.last.before, flow.flow, "before")
            add("mm2mgr_flow_last_rebalance_balance_ratio", flow.last.after, flow.flow, "after")
    return rows


def _of_failover(view: EstateView) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}

    def add(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            rows.setdefault(f"mm2mgr_failover_{name}", []).append((labels, float(value)))

    for pair, state in view.look.status.failover.items() if view.look else ():
        if state is None:
            continue
        source, _, target = pair.partition("->")
        for word in WORDS:
            add("verdict", state.verdict == word, source, target, word.lower().replace(" ", "-"))
        for kind, records in (("lost", state.lost), ("skipped", state.skipped), ("repeated", state.repeated)):
            add("records", records, source, target, kind)
        add("records_at_risk", state.records_at_risk, source, target)
        add("groups", state.groups - state.groups_not_ready, source, target, "ready")
        add("groups", state.groups_not_ready, source, target, "not-ready")
        add("oldest_checkpoint_timestamp_seconds", state.checkpoint_at, source, target)
        add("source_read_timestamp_seconds", state.source_at, source, target)
        add("checked_timestamp_seconds", state.checked_at, source, target)
    for pair, rehearsed in view.look.status.rehearsals.items() if view.look else ():
        if rehearsed is not None:
            source, _, target = pair.partition("->")
            add("last_good_rehearsal_timestamp_seconds", rehearsed.good_at, source, target)
            add("rehearsed_recovery_seconds", rehearsed.recovery_seconds, source, target)
    return rows


def _of_the_estate(view: EstateView) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    if view.look:
        status = view.look.status
        problems = status.problems()
        counts = Counter(problem.kind for problem in problems)
        single = Counter((problem.kind, problem.subject.connect, problem.subject.flow) for problem in problems)
        rows["mm2mgr_problem"] = [(labels, float(count)) for labels, count in single.items()]
        rows["mm2mgr_problems"] = [((kind,), float(counts[kind])) for kind in KINDS]
        rows["mm2mgr_open_losses"] = [((), float(len(status.losses)))]
        unread = Counter(where.partition(" ")[0] for where in status.failures)
        rows["mm2mgr_unreadable_clusters"] = [((kind,), float(unread[kind])) for kind in ("connect", "kafka")]
    if view.survey and not isinstance(view.survey.findings, str):
        severities = Counter[str](finding.severity for finding in view.survey.findings.loud)
        rows["mm2mgr_findings"] = [((word,), float(severities[word])) for word in SEVERITIES]
    if view.survey and not isinstance(view.survey.plan, str):
        changes = view.survey.plan.changes
        rows["mm2mgr_plan_changes"] = [((), float(sum(change.action != "no-op" for change in changes)))]
    if view.survey and not isinstance(view.survey.history, str):
        applies = newest_applies(view.survey.history.entries)
        rows["mm2mgr_connect_applied_timestamp_seconds"] = [((connect,), at) for connect, at in applies.items()]
    return rows
