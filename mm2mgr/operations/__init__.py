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

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked as Checked
    from mm2mgr.lint.findings import Finding as Finding
    from mm2mgr.lint.findings import Rule as Rule
    from mm2mgr.lint.findings import Severity as Severity
    from mm2mgr.observe.health import Status as Status
    from mm2mgr.observe.status import Description as Description
    from mm2mgr.operations.apply import Applied as Applied
    from mm2mgr.operations.apply import Waiting as Waiting
    from mm2mgr.operations.apply import apply as apply
    from mm2mgr.operations.check import check as check
    from mm2mgr.operations.explain import Explained as Explained
    from mm2mgr.operations.explain import OtherLine as OtherLine
    from mm2mgr.operations.explain import explain as explain
    from mm2mgr.operations.fleet import FleetReport as FleetReport
    from mm2mgr.operations.fleet import fleet as fleet
    from mm2mgr.operations.lint import LintReport as LintReport
    from mm2mgr.operations.lint import lint as lint
    from mm2mgr.operations.lint import rules as rules
    from mm2mgr.operations.plan import plan as plan
    from mm2mgr.operations.render import Rendered as Rendered
    from mm2mgr.operations.render import init as init
    from mm2mgr.operations.render import render as render
    from mm2mgr.operations.render import schema as schema
    from mm2mgr.operations.sample import Sampled as Sampled
    from mm2mgr.operations.sample import SampleOrder as SampleOrder
    from mm2mgr.operations.sample import sample as sample
    from mm2mgr.operations.samples import TableSize as TableSize
    from mm2mgr.operations.samples import convert_samples as convert_samples
    from mm2mgr.operations.samples import table_sizes as table_sizes
    from mm2mgr.operations.sandbox import SandboxUp as SandboxUp
    from mm2mgr.operations.sandbox import sandbox_create_topic as sandbox_create_topic
    from mm2mgr.operations.sandbox import sandbox_down as sandbox_down
    from mm2mgr.operations.sandbox import sandbox_produce as sandbox_produce
    from mm2mgr.operations.sandbox import sandbox_status as sandbox_status
    from mm2mgr.operations.sandbox import sandbox_topics as sandbox_topics
    from mm2mgr.operations.sandbox import sandbox_up as sandbox_up
    from mm2mgr.operations.simulate import Changes as Changes
    from mm2mgr.operations.simulate import SimulationReport as SimulationReport
    from mm2mgr.operations.simulate import simulate as simulate
    from mm2mgr.operations.size import SizingReport as SizingReport
    from mm2mgr.operations.size import size as size
    from mm2mgr.operations.status import acknowledge as acknowledge
    from mm2mgr.operations.status import describe as describe
    from mm2mgr.operations.status import status as status
    from mm2mgr.operations.status import watch as watch
    from mm2mgr.operations.throughput import BusiestPartitions as BusiestPartitions
    from mm2mgr.operations.throughput import RolledUp as RolledUp
    from mm2mgr.operations.throughput import busiest_partitions as busiest_partitions
    from mm2mgr.operations.throughput import group_rates as group_rates
    from mm2mgr.operations.throughput import read_throughput as read_throughput
    from mm2mgr.operations.throughput import roll_up as roll_up
    from mm2mgr.operations.throughput import week as week
    from mm2mgr.operations.workspace import Workspace as Workspace
    from mm2mgr.reconcile.apply import FINISH_SECONDS as FINISH_SECONDS
    from mm2mgr.reconcile.apply import Result as Result
    from mm2mgr.reconcile.plan import Plan as Plan
    from mm2mgr.reconcile.restarts import OffPeak as OffPeak
    from mm2mgr.reconcile.restarts import RestartRules as RestartRules
    from mm2mgr.samples.follow import Round as Round
    from mm2mgr.samples.schema import is_remote as is_remote
    from mm2mgr.samples.schema import store_of as store_of
    from mm2mgr.sandbox.layout import lines_of as lines_of
    from mm2mgr.sandbox.layout import random_values as random_values
    from mm2mgr.sizing.fleet import Failover as Failover
    from mm2mgr.sizing.recovery import Lag as Lag
    from mm2mgr.sizing.scenario import FlowView as FlowView
    from mm2mgr.throughput.rates import Statistic as Statistic

_NAMES = {
    "check.checked": ("Checked",),
    "lint.findings": ("Finding", "Rule", "Severity"),
    "observe.health": ("Status",),
    "observe.status": ("Description",),
    "operations.apply": ("Applied", "Waiting", "apply"),
    "operations.check": ("check",),
    "operations.explain": ("Explained", "OtherLine", "explain"),
    "operations.fleet": ("FleetReport", "fleet"),
    "operations.lint": ("LintReport", "lint", "rules"),
    "operations.plan": ("plan",),
    "operations.render": ("Rendered", "init", "render", "schema"),
    "operations.sandbox": (
        "SandboxUp",
        "sandbox_create_topic",
        "sandbox_down",
        "sandbox_produce",
        "sandbox_status",
        "sandbox_topics",
        "sandbox_up",
    ),
    "operations.simulate": ("Changes", "SimulationReport", "simulate"),
    "operations.size": ("SizingReport", "size"),
    "operations.status": ("acknowledge", "describe", "status", "watch"),
    "operations.sample": ("Sampled", "SampleOrder", "sample"),
    "operations.samples": ("TableSize", "convert_samples", "table_sizes"),
    "operations.throughput": (
        "BusiestPartitions",
        "RolledUp",
        "busiest_partitions",
        "group_rates",
        "read_throughput",
        "roll_up",
        "week",
    ),
    "operations.workspace": ("Workspace",),
    "reconcile.apply": ("FINISH_SECONDS", "Result"),
    "reconcile.plan": ("Plan",),
    "reconcile.restarts": ("OffPeak", "RestartRules"),
    "samples.follow": ("Round",),
    "samples.schema": ("is_remote", "store_of"),
    "sizing.fleet": ("Failover",),
    "sizing.recovery": ("Lag",),
    "sizing.scenario": ("FlowView",),
    "throughput.rates": ("Statistic",),
    "sandbox.layout": ("lines_of", "random_values"),
}
_HOME = {name: f"mm2mgr.{module}" for module, names in _NAMES.items() for name in names}


class _Library(ModuleType):
    """This package, whose functions keep their names where Python would bind a module of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOME})


sys.modules[__name__].__class__ = _Library
