"""The commands on the tree alone: `init`, `schema`, `render` and `rules`."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import command, option, output_option
from mm2mgr.operations.workspace import Workspace


@command("Every change", 1)
@click.argument("flows", nargs=-1)
@option("--origins", is_flag=True, help="Show where each value is set: spec line, override, default or template line.")
@output_option
@click.pass_obj
def render(workspace: Workspace, flows: tuple[str, ...], origins: bool, output: str) -> None:
    """Print the connector configs of FLOWS (all by default).

    Secrets are masked, placeholders are not. A flow is named by its id `logging:dc1-logging->agg-east`, its pair, or
    its declared name.

    \b
    Example:
      mm2mgr render 'logging:dc1-logging->agg-east' --origins
    """
    from mm2mgr.output.console import say, say_json, say_plain

    connectors = operations.render(workspace, flows).to_dict(origins=origins)
    if output == "json":
        say_json(connectors)
        return
    for connector in connectors:
        say(f"# {connector['connector']} on Connect cluster {connector['connect']}", style="bold")
        for key, value in connector["config"].items():
            say_plain(f"{key} = {value}" + (f"    # {connector['origins'][key]}" if origins else ""))
        say()


@command("First hour", 2)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="clusters")
def init(folder: Path) -> None:
    """Write a commented starter tree into FOLDER (default: clusters).

    Existing files are never overwritten.

    \b
    Example:
      mm2mgr init && mm2mgr render --origins
    """
    from mm2mgr.output.console import say

    for path in operations.init(folder):
        say(str(path))


@command("First hour", 4)
def schema() -> None:
    """Print the JSON Schema of the YAML files, for editors.

    \b
    Example:
      mm2mgr schema > mm2mgr.schema.json
      # first line of each file: # yaml-language-server: $schema=../mm2mgr.schema.json
    """
    from mm2mgr.output.console import say_json

    say_json(operations.schema())


@command("Every day", 14)
@option("--dashboard", is_flag=True, help="Print a dashboard for Grafana instead, as JSON.")
@option("--kubernetes", is_flag=True, help="Print it as a PrometheusRule, or the dashboard as a ConfigMap.")
@click.pass_obj
def rules(workspace: Workspace, dashboard: bool, kubernetes: bool) -> None:
    """Print alerting rules for Prometheus, or a Grafana dashboard.

    Both read the metrics of `mm2mgr serve` with the owner of this tree, so the trees of several teams can share a
    Prometheus. There is a rule for each kind of problem, for lag above a flow's `max_lag`, for retention that is
    about to overtake a flow, and for `serve` itself. Print them again after an upgrade of mm2mgr, or when the first
    flow gets a `max_lag`. No cluster is asked.

    \b
    Example:
      mm2mgr rules > mm2mgr.rules.yaml
      mm2mgr rules --dashboard > mm2mgr.dashboard.json
      mm2mgr rules --kubernetes | kubectl apply -f -
    """
    from mm2mgr.output.console import say_lines

    say_lines(operations.rules(workspace, dashboard=dashboard, kubernetes=kubernetes))
