"""Commands about the declaration: init, schema, render. They contact nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.render import Connector


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="clusters")
def init(folder: Path) -> None:
    """Write a commented starter tree into FOLDER (default: clusters).

    Existing files are never overwritten.

    \b
    Example:
      mm2mgr init && mm2mgr render --origins
    """
    from mm2mgr.output.console import say
    from mm2mgr.spec.starter import write_starter

    for path in write_starter(folder):
        say(str(path))


@click.command()
def schema() -> None:
    """Print the JSON Schema of the YAML files, for editors.

    \b
    Example:
      mm2mgr schema > mm2mgr.schema.json
      # first line of each file: # yaml-language-server: $schema=../mm2mgr.schema.json
    """
    from mm2mgr.output.console import say_json
    from mm2mgr.spec.models import json_schema

    say_json(json_schema())


@click.command()
@click.argument("flows", nargs=-1)
@click.option(
    "--origins", is_flag=True, help="Show where each value is set: spec line, override, default or template line."
)
@output_option
@click.pass_obj
def render(workspace: Workspace, flows: tuple[str, ...], origins: bool, output: str) -> None:
    """Print the connector configs of FLOWS (all by default).

    Secrets are masked, placeholders are not. A flow is named by its id `logging:dc1-logging->agg-east`, its pair, or its declared name.

    \b
    Example:
      mm2mgr render 'logging:dc1-logging->agg-east' --origins
    """
    from mm2mgr.output.console import say, say_json, say_plain
    from mm2mgr.secrets import mask

    wanted = {flow.id for flow in workspace.flows(flows)}
    chosen = [connector for connector in workspace.connectors if wanted & set(connector.flows)]
    if output == "json":
        say_json([_connector(connector, origins=origins) for connector in chosen])
        return
    for connector in chosen:
        say(f"# {connector.name} on Connect cluster {connector.connect}", style="bold")
        for key, value in connector.config.items():
            shown = mask(key, value)
            say_plain(f"{key} = {shown}" + (f"    # {connector.origins[key]}" if origins else ""))
        say()


def _connector(connector: Connector, *, origins: bool) -> dict[str, object]:
    from mm2mgr.secrets import masked

    result: dict[str, object] = {
        "connector": connector.name,
        "connect": connector.connect,
        "type": connector.type,
        "flows": list(connector.flows),
        "config": masked(dict(connector.config)),
    }
    if origins:
        result["origins"] = {key: str(origin) for key, origin in connector.origins.items()}
    return result
