"""The library: one plain function per command, with a result value. Command line, notebooks, CI and services call the
same.

    from mm2mgr.operations import Workspace, apply, plan

    workspace = Workspace()  # ./clusters; or Workspace((Path("prod"),))
    made = plan(workspace)
    print(made.counts())
    if not made.has_failed:
        applied = apply(workspace, wait_seconds=60)
        print(applied.outcome)

Functions take typed arguments with the defaults of the command line and return frozen values; `to_json(value)` makes of
them what the command line prints as JSON. Errors are `mm2mgr.errors.Mm2mgrError`. Nothing here prints, asks, exits or
handles signals: what happens meanwhile goes to a callback. Modules are imported when a name is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names again, for type checkers; a test holds the two lists to each other
    from mm2mgr.apply.applied import Applied
    from mm2mgr.apply.execute import FINISH_SECONDS
    from mm2mgr.apply.failover_run import FailoverResult, RunOrder
    from mm2mgr.apply.loggers import WorkerLoggers
    from mm2mgr.apply.verbs import Choice, StateChange
    from mm2mgr.apply.waves import Halted, Result, RolledBack, Waiting, WaveBegun, WaveVerified
    from mm2mgr.assignment import Assignment
    from mm2mgr.audit.report import AuditReport
    from mm2mgr.audit.run import AuditProgress
    from mm2mgr.balance.fresh import BalancePlan, FlowToPack, PartitionMove, TaskShare
    from mm2mgr.balance.lanes import LanePlan, PlannedLane, plan_lanes
    from mm2mgr.balance.planner import plan_balance
    from mm2mgr.balance.rates import MeasuredRate, PlannedRate, rates_of_coming_hours
    from mm2mgr.balance.rules import BalanceHistory, BalanceRules, LoadLook
    from mm2mgr.balance.ways import Way, compare_ways
    from mm2mgr.check.judge import Checked
    from mm2mgr.evidence.read import Changes, EvidenceOptions
    from mm2mgr.export import Export, ExportFormat, ExportRefusal, StrimziApi
    from mm2mgr.failover.check import FailoverVerdict, GroupPosition, GroupReadiness, PairReadiness
    from mm2mgr.failover.kept import KeptLooks
    from mm2mgr.failover.rehearsal import (
        Rehearsal,
        RehearsalOptions,
        RehearsalVerdict,
        RehearsedGroup,
        RehearsedPosition,
    )
    from mm2mgr.failover.runbook import Runbook
    from mm2mgr.failover.stages import FailoverStage, StageProgress
    from mm2mgr.imports.equivalence import Equivalence, IdleKey, SecretPlace, SettingDifference
    from mm2mgr.imports.report import ImportReport, ReportRow
    from mm2mgr.imports.tree import ImportedTree, ImportOptions
    from mm2mgr.json_values import to_json
    from mm2mgr.kafka.bandwidth import TransferLimits
    from mm2mgr.link_forecast import buffer_advice
    from mm2mgr.lint.findings import Finding, Rule, Severity
    from mm2mgr.log_places import Place
    from mm2mgr.observe.group_lag import GroupLag, GroupOnTarget, GroupPartition, GroupsOrder, GroupsReport
    from mm2mgr.observe.lag_report import LagLevel
    from mm2mgr.observe.pair_look import FailoverOptions
    from mm2mgr.observe.way_back import WayBack
    from mm2mgr.operations.audit import (
        AuditHistory,
        AuditRound,
        FollowOrder,
        Replay,
        audit,
        audit_compare,
        audit_history,
        follow_audits,
        record_audit,
        repair_plan,
    )
    from mm2mgr.operations.audit_bounds import AuditOptions
    from mm2mgr.operations.automatic_rebalance import RebalanceOrder, RebalanceRound
    from mm2mgr.operations.cost import CostOrder, CostReport, cost
    from mm2mgr.operations.estate_view import EstateView
    from mm2mgr.operations.failback import Failback, FailbackOrder, LostOffsets, failover_back
    from mm2mgr.operations.failover import CheckedPair, check_and_keep, failover_check
    from mm2mgr.operations.failover_rehearsal import RehearsedPair, failover_rehearse
    from mm2mgr.operations.failover_run import (
        FailoverEnded,
        FailoverHow,
        FailoverPlan,
        failover_abandon,
        failover_forget,
        failover_plan,
        failover_run,
    )
    from mm2mgr.operations.failover_watch import FailoverOrder, FailoverRound
    from mm2mgr.operations.fix import Fixes, fix
    from mm2mgr.operations.groups import groups, groups_place
    from mm2mgr.operations.history import HistoryReport, SnapshotTaken, drift, forget_history, history, snapshot
    from mm2mgr.operations.import_check import ImportCheck, check_import
    from mm2mgr.operations.imports import ImportedFolder, import_sources
    from mm2mgr.operations.link import BrokersReport, LinkProbe, link_explain, link_probe, link_read
    from mm2mgr.operations.lint import (
        Explained,
        LintOptions,
        LintReport,
        OtherLine,
        explain,
        explain_files,
        lint,
        lint_rules,
    )
    from mm2mgr.operations.loggers import LoggersReport, loggers
    from mm2mgr.operations.pause import (
        FlowOffsets,
        ResetOffsets,
        Turned,
        offsets,
        pause,
        reset_offsets,
        restart,
        resume,
        stop,
    )
    from mm2mgr.operations.plan import PlanOptions, ReconcileOrder, ReconcileRound, apply, plan, reconcile, saved_plan
    from mm2mgr.operations.plugin import PluginWritten, write_plugin
    from mm2mgr.operations.rebalance import FlowBalance, RebalanceReport, rebalance
    from mm2mgr.operations.records import FlowRecords, MirroredRecord, MirrorState, RecordsOptions, records
    from mm2mgr.operations.render import Rendered, export, init, render, rules, schema, write_export
    from mm2mgr.operations.sample import Sampled, SampleOrder, TableSize, sample, table_sizes
    from mm2mgr.operations.serve import EstateWatch, serve
    from mm2mgr.operations.serve_parts import (
        AuditsOrder,
        FailoverChecksOrder,
        RebalancesOrder,
        ReconcilesOrder,
        RollUpsOrder,
        SamplesOrder,
        ServeOrder,
        WatchdogOrder,
    )
    from mm2mgr.operations.size import (
        BusiestPartitions,
        FleetReport,
        RolledUp,
        SimulationReport,
        SizingReport,
        busiest_partitions,
        fleet,
        group_rates,
        read_throughput,
        roll_up,
        simulate,
        size,
        week,
    )
    from mm2mgr.operations.status import (
        LagOptions,
        LagReport,
        LossReport,
        acknowledge,
        check,
        describe,
        lag,
        losses,
        status,
        watch_lag,
        watch_status,
    )
    from mm2mgr.operations.throughput import RollUpOrder, RollUpRound, follow_roll_ups
    from mm2mgr.operations.watch import WatchOrder, WatchRound, watch
    from mm2mgr.operations.who import FlowTopics, TopicRoutes, topics, who
    from mm2mgr.operations.workspace import Workspace
    from mm2mgr.partitions import Statistic, TopicPartition
    from mm2mgr.plan.changes import KINDS, Plan
    from mm2mgr.plan.drift import DriftReport
    from mm2mgr.plan.quotas import QuotaResult
    from mm2mgr.plan.resets import FlowReset, ResetOrder
    from mm2mgr.problems.health import Description, Status
    from mm2mgr.problems.kind import LiveProblem
    from mm2mgr.problems.watchdog import RestartPolicy, WatchAction
    from mm2mgr.samples.follow import Round
    from mm2mgr.samples.schema import is_remote, store_of
    from mm2mgr.sandbox.layout import (
        at_rate,
        lines_of,
        random_values,
        sandbox_create_topic,
        sandbox_down,
        sandbox_produce,
        sandbox_status,
        sandbox_topics,
        sandbox_up,
    )
    from mm2mgr.sizing.fleet import Failover
    from mm2mgr.sizing.recovery import Lag
    from mm2mgr.sizing.scenario import FlowView
    from mm2mgr.sizing.tasks import Bounds, Capacity
    from mm2mgr.weeks import LimitPassed, LoadWeek, forecast_limits, week_of_load

_HOMES: Mapping[str, str] = {
    name: f"mm2mgr.{module}"
    for module, names in {
        "audit.report": "AuditReport",
        "audit.run": "AuditProgress",
        "assignment": "Assignment",
        "balance.fresh": "BalancePlan FlowToPack PartitionMove TaskShare",
        "balance.lanes": "LanePlan PlannedLane plan_lanes",
        "balance.planner": "plan_balance",
        "balance.rates": "MeasuredRate PlannedRate rates_of_coming_hours",
        "balance.rules": "BalanceHistory BalanceRules LoadLook",
        "balance.ways": "Way compare_ways",
        "check.judge": "Checked",
        "export": "Export ExportFormat ExportRefusal StrimziApi",
        "failover.check": "FailoverVerdict GroupPosition GroupReadiness PairReadiness",
        "failover.kept": "KeptLooks",
        "failover.runbook": "Runbook",
        "failover.stages": "FailoverStage StageProgress",
        "failover.rehearsal": "Rehearsal RehearsalOptions RehearsalVerdict RehearsedGroup RehearsedPosition",
        "json_values": "to_json",
        "kafka.bandwidth": "TransferLimits",
        "link_forecast": "buffer_advice",
        "lint.findings": "Finding Rule Severity",
        "problems.health": "Description Status",
        "problems.kind": "LiveProblem",
        "observe.group_lag": "GroupLag GroupOnTarget GroupPartition GroupsOrder GroupsReport",
        "observe.lag_report": "LagLevel",
        "observe.pair_look": "FailoverOptions",
        "problems.watchdog": "RestartPolicy WatchAction",
        "operations.audit": "AuditHistory AuditRound FollowOrder Replay audit audit_compare audit_history "
        "follow_audits record_audit repair_plan",
        "operations.audit_bounds": "AuditOptions",
        "operations.automatic_rebalance": "RebalanceOrder RebalanceRound",
        "observe.way_back": "WayBack",
        "operations.cost": "CostOrder CostReport cost",
        "operations.failback": "Failback FailbackOrder LostOffsets failover_back",
        "operations.failover": "CheckedPair check_and_keep failover_check",
        "operations.failover_run": "FailoverEnded FailoverHow FailoverPlan failover_abandon failover_forget "
        "failover_plan failover_run",
        "operations.failover_rehearsal": "RehearsedPair failover_rehearse",
        "operations.failover_watch": "FailoverOrder FailoverRound",
        "operations.fix": "Fixes fix",
        "evidence.read": "Changes EvidenceOptions",
        "operations.groups": "groups groups_place",
        "operations.history": "HistoryReport SnapshotTaken drift forget_history history snapshot",
        "operations.import_check": "ImportCheck check_import",
        "operations.imports": "ImportedFolder import_sources",
        "imports.report": "ImportReport ReportRow",
        "imports.equivalence": "Equivalence IdleKey SecretPlace SettingDifference",
        "imports.tree": "ImportOptions ImportedTree",
        "operations.link": "BrokersReport LinkProbe link_explain link_probe link_read",
        "operations.lint": "Explained LintOptions LintReport OtherLine explain explain_files lint lint_rules",
        "operations.loggers": "LoggersReport loggers",
        "operations.pause": "FlowOffsets ResetOffsets Turned offsets pause reset_offsets restart resume stop",
        "operations.plan": "PlanOptions ReconcileOrder ReconcileRound apply plan reconcile saved_plan",
        "operations.plugin": "PluginWritten write_plugin",
        "operations.rebalance": "FlowBalance RebalanceReport rebalance",
        "operations.records": "FlowRecords MirroredRecord MirrorState RecordsOptions records",
        "operations.render": "Rendered export init render rules schema write_export",
        "operations.sample": "SampleOrder Sampled TableSize sample table_sizes",
        "operations.estate_view": "EstateView",
        "operations.serve": "EstateWatch serve",
        "operations.serve_parts": "AuditsOrder FailoverChecksOrder RebalancesOrder ReconcilesOrder RollUpsOrder "
        "SamplesOrder ServeOrder WatchdogOrder",
        "operations.size": "BusiestPartitions FleetReport RolledUp SimulationReport SizingReport busiest_partitions "
        "fleet group_rates read_throughput roll_up simulate size week",
        "operations.throughput": "RollUpOrder RollUpRound follow_roll_ups",
        "operations.status": "LagOptions LagReport LossReport acknowledge check describe lag losses status "
        "watch_lag watch_status",
        "operations.watch": "WatchOrder WatchRound watch",
        "operations.who": "FlowTopics TopicRoutes topics who",
        "operations.workspace": "Workspace",
        "partitions": "Statistic TopicPartition",
        "apply.applied": "Applied",
        "apply.failover_run": "FailoverResult RunOrder",
        "apply.execute": "FINISH_SECONDS",
        "plan.changes": "KINDS Plan",
        "plan.drift": "DriftReport",
        "plan.quotas": "QuotaResult",
        "log_places": "Place",
        "plan.resets": "FlowReset ResetOrder",
        "apply.loggers": "WorkerLoggers",
        "apply.verbs": "Choice StateChange",
        "apply.waves": "Halted Result RolledBack Waiting WaveBegun WaveVerified",
        "samples.follow": "Round",
        "samples.schema": "is_remote store_of",
        "sandbox.layout": "at_rate lines_of random_values sandbox_create_topic sandbox_down sandbox_produce "
        "sandbox_status sandbox_topics sandbox_up",
        "sizing.fleet": "Failover",
        "sizing.recovery": "Lag",
        "sizing.scenario": "FlowView",
        "sizing.tasks": "Bounds Capacity",
        "weeks": "LimitPassed LoadWeek forecast_limits week_of_load",
    }.items()
    for name in names.split()
}
"""The module of each name of the library."""


class _Library(ModuleType):
    """This package, in which `plan` is the function and not the module of that name, where Python would bind this
    one."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Library
