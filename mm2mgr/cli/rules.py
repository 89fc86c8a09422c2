"""The command `rules`."""

from __future__ import annotations

import click

from mm2mgr import operations
from mm2mgr.cli.options import command, option
from mm2mgr.operations.workspace import Workspace


@command("Every day", 14)
@option("--dashboard", is_flag=True, help="Print a dashboard for Grafana instead, as JSON.")
@option("--kubernetes", is_flag=True, help="Print it as a PrometheusRule, or the dashboard as a ConfigMap.")
@click.pass_obj
def rules(workspace: Workspace, dashboard: bool, kubernetes: bool) -> None:
    """Print alerting rules for Prometheus, or a Grafana dashboard.

    Both read the metrics of `mm2mgr serve` with the owner of this tree, so the trees of several teams can share a Prometheus. There is
    a rule for each kind of problem, for lag above a flow's `max_lag`, for retention that is about to overtake a flow, and for `serve`
    itself. Print them again after an upgrade of mm2mgr, or when the first flow gets a `max_lag`. No cluster is asked.

    \b
    Example:
      mm2mgr rules > mm2mgr.rules.yaml
      mm2mgr rules --dashboard > mm2mgr.dashboard.json
      mm2mgr rules --kubernetes | kubectl apply -f -
    """
    from mm2mgr.output.console import say_lines

    say_lines(operations.rules(workspace, dashboard=dashboard, kubernetes=kubernetes))
