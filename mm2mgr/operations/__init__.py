"""The library: one plain function per command, with a result value. Command line, notebooks, CI and services call the same.

    from mm2mgr.operations import Workspace, apply, plan

    workspace = Workspace()  # ./clusters; or Workspace((Path("prod"),))
    made = plan(workspace)
    print(made.counts())
    if not made.failed:
        applied = apply(workspace, prune=False, wait_seconds=60)
        print(applied.outcome)

Functions take typed arguments with the defaults of the command line and return frozen values; those that the command line
prints as JSON have `to_dict()`. Errors are `mm2mgr.errors.Mm2mgrError`. Nothing here prints, asks, exits or handles signals:
what happens meanwhile goes to a callback. Modules are imported when a name is first used.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib import import_module
from pkgutil import get_data
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked as Checked
    from mm2mgr.kafka.bandwidth import TransferLimits as TransferLimits
    from mm2mgr.link_forecast import capped as capped
    from mm2mgr.lint.findings import Finding as Finding
    from mm2mgr.lint.findings import Rule as Rule
    from mm2mgr.lint.findings import Severity as Severity
    from mm2mgr.observe.health import Description as Description
    from mm2mgr.observe.health import Status as Status
    from mm2mgr.observe.lag_report import LagLevel as LagLevel
    from mm2mgr.observe.watchdog import RestartPolicy as RestartPolicy
    from mm2mgr.observe.watchdog import WatchAction as WatchAction
    from mm2mgr.operations.fix import Fixes as Fixes
    from mm2mgr.operations.fix import fix as fix
    from mm2mgr.operations.fleet import Changes as Changes
    from mm2mgr.operations.fleet import FleetReport as FleetReport
    from mm2mgr.operations.fleet import SimulationReport as SimulationReport
    from mm2mgr.operations.fleet import fleet as fleet
    from mm2mgr.operations.fleet import simulate as simulate
    from mm2mgr.operations.history import DriftReport as DriftReport
    from mm2mgr.operations.history import HistoryReport as HistoryReport
    from mm2mgr.operations.history import drift as drift
    from mm2mgr.operations.history import forget_history as forget_history
    from mm2mgr.operations.history import history as history
    from mm2mgr.operations.lag import LagOptions as LagOptions
    from mm2mgr.operations.lag import LagReport as LagReport
    from mm2mgr.operations.lag import lag as lag
    from mm2mgr.operations.lag import watch_lag as watch_lag
    from mm2mgr.operations.link import BrokersReport as BrokersReport
    from mm2mgr.operations.link import LinkProbe as LinkProbe
    from mm2mgr.operations.link import LinkReport as LinkReport
    from mm2mgr.operations.link import link_explain as link_explain
    from mm2mgr.operations.link import link_probe as link_probe
    from mm2mgr.operations.link import link_read as link_read
    from mm2mgr.operations.lint import Explained as Explained
    from mm2mgr.operations.lint import LintReport as LintReport
    from mm2mgr.operations.lint import OtherLine as OtherLine
    from mm2mgr.operations.lint import explain as explain
    from mm2mgr.operations.lint import lint as lint
    from mm2mgr.operations.lint import lint_rules as lint_rules
    from mm2mgr.operations.losses import LossReport as LossReport
    from mm2mgr.operations.losses import acknowledge as acknowledge
    from mm2mgr.operations.losses import losses as losses
    from mm2mgr.operations.offsets import FlowOffsets as FlowOffsets
    from mm2mgr.operations.offsets import FlowReset as FlowReset
    from mm2mgr.operations.offsets import ResetOffsets as ResetOffsets
    from mm2mgr.operations.offsets import offsets as offsets
    from mm2mgr.operations.offsets import reset_offsets as reset_offsets
    from mm2mgr.operations.pause import Choice as Choice
    from mm2mgr.operations.pause import Turned as Turned
    from mm2mgr.operations.pause import pause as pause
    from mm2mgr.operations.pause import restart as restart
    from mm2mgr.operations.pause import resume as resume
    from mm2mgr.operations.pause import stop as stop
    from mm2mgr.operations.plan import Applied as Applied
    from mm2mgr.operations.plan import apply as apply
    from mm2mgr.operations.plan import plan as plan
    from mm2mgr.operations.reconcile import ReconcileOrder as ReconcileOrder
    from mm2mgr.operations.reconcile import ReconcileRound as ReconcileRound
    from mm2mgr.operations.reconcile import reconcile as reconcile
    from mm2mgr.operations.render import Rendered as Rendered
    from mm2mgr.operations.render import init as init
    from mm2mgr.operations.render import render as render
    from mm2mgr.operations.render import rules as rules
    from mm2mgr.operations.render import schema as schema
    from mm2mgr.operations.sample import Sampled as Sampled
    from mm2mgr.operations.sample import SampleOrder as SampleOrder
    from mm2mgr.operations.sample import TableSize as TableSize
    from mm2mgr.operations.sample import sample as sample
    from mm2mgr.operations.sample import table_sizes as table_sizes
    from mm2mgr.operations.sandbox import SandboxUp as SandboxUp
    from mm2mgr.operations.sandbox import sandbox_create_topic as sandbox_create_topic
    from mm2mgr.operations.sandbox import sandbox_down as sandbox_down
    from mm2mgr.operations.sandbox import sandbox_produce as sandbox_produce
    from mm2mgr.operations.sandbox import sandbox_status as sandbox_status
    from mm2mgr.operations.sandbox import sandbox_topics as sandbox_topics
    from mm2mgr.operations.sandbox import sandbox_up as sandbox_up
    from mm2mgr.operations.serve import EstateView as EstateView
    from mm2mgr.operations.serve import EstateWatch as EstateWatch
    from mm2mgr.operations.serve import ServeOrder as ServeOrder
    from mm2mgr.operations.serve import WatchdogOrder as WatchdogOrder
    from mm2mgr.operations.serve import serve as serve
    from mm2mgr.operations.size import SizingReport as SizingReport
    from mm2mgr.operations.size import size as size
    from mm2mgr.operations.status import check as check
    from mm2mgr.operations.status import describe as describe
    from mm2mgr.operations.status import status as status
    from mm2mgr.operations.status import watch_status as watch_status
    from mm2mgr.operations.throughput import BusiestPartitions as BusiestPartitions
    from mm2mgr.operations.throughput import RolledUp as RolledUp
    from mm2mgr.operations.throughput import busiest_partitions as busiest_partitions
    from mm2mgr.operations.throughput import group_rates as group_rates
    from mm2mgr.operations.throughput import read_throughput as read_throughput
    from mm2mgr.operations.throughput import roll_up as roll_up
    from mm2mgr.operations.throughput import week as week
    from mm2mgr.operations.watch import WatchOrder as WatchOrder
    from mm2mgr.operations.watch import WatchRound as WatchRound
    from mm2mgr.operations.watch import watch as watch
    from mm2mgr.operations.who import FlowTopics as FlowTopics
    from mm2mgr.operations.who import TopicRoutes as TopicRoutes
    from mm2mgr.operations.who import topics as topics
    from mm2mgr.operations.who import who as who
    from mm2mgr.operations.workspace import Workspace as Workspace
    from mm2mgr.partitions import Statistic as Statistic
    from mm2mgr.reconcile.apply import FINISH_SECONDS as FINISH_SECONDS
    from mm2mgr.reconcile.plan import Plan as Plan
    from mm2mgr.reconcile.price import KINDS as KINDS
    from mm2mgr.reconcile.quotas import QuotaResult as QuotaResult
    from mm2mgr.reconcile.resets import Place as Place
    from mm2mgr.reconcile.resets import ResetOrder as ResetOrder
    from mm2mgr.reconcile.schedule import OffPeak as OffPeak
    from mm2mgr.reconcile.schedule import RestartRules as RestartRules
    from mm2mgr.reconcile.verbs import Turn as Turn
    from mm2mgr.reconcile.waves import Halted as Halted
    from mm2mgr.reconcile.waves import Result as Result
    from mm2mgr.reconcile.waves import RolledBack as RolledBack
    from mm2mgr.reconcile.waves import Waiting as Waiting
    from mm2mgr.reconcile.waves import WaveBegun as WaveBegun
    from mm2mgr.reconcile.waves import WaveVerified as WaveVerified
    from mm2mgr.samples.follow import Round as Round
    from mm2mgr.samples.schema import is_remote as is_remote
    from mm2mgr.samples.schema import store_of as store_of
    from mm2mgr.sandbox.layout import lines_of as lines_of
    from mm2mgr.sandbox.layout import random_values as random_values
    from mm2mgr.sizing.fleet import Failover as Failover
    from mm2mgr.sizing.recovery import Lag as Lag
    from mm2mgr.sizing.scenario import FlowView as FlowView


@cache
def _homes() -> dict[str, str]:
    """Return the module of each name, read from the imports above: type checkers see these, and a name is written once."""
    tree = ast.parse(get_data(__name__, "__init__.py") or b"")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {each.asname: str(node.module) for node in imports for each in node.names if each.asname}


class _Library(ModuleType):
    """This package, in which `plan` is the function and not the module of that name, where Python would bind this one."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)

    def __getattr__(self, name: str) -> Any:
        if name not in _homes():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_homes()[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_homes()})


sys.modules[__name__].__class__ = _Library
