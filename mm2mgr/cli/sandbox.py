"""The commands of the sandbox: up, status, down."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import output_option

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mm2mgr/sandbox"),
    show_default=True,
    help="Folder of the sandbox: data, logs and state.",
)


@click.group()
def sandbox() -> None:
    """Run real Kafka brokers and Connect workers on this machine.

    Two source clusters, two aggregates, and a worker for each aggregate.

    \b
    Example:
      mm2mgr sandbox up && mm2mgr --clusters .mm2mgr/sandbox/clusters plan
    """


@sandbox.command()
@_directory
def up(directory: Path) -> None:
    """Start what is not running and write a tree for it to DIR/clusters.

    DIR must be new, empty or an earlier sandbox's; a file of DIR/clusters that was changed by hand is not overwritten.

    \b
    Example:
      mm2mgr sandbox up
    """
    from mm2mgr.output.console import say, talk

    made = operations.sandbox_up(directory, report=talk)
    for alias, address in made.endpoints.bootstrap_servers.items():
        say(f"kafka   {alias:14} {address}")
    for name, url in made.endpoints.connect_urls.items():
        say(f"connect {name:14} {url}")
    say(f"tree    {made.tree}    try: mm2mgr --clusters {made.tree} plan")


@sandbox.command("status")
@_directory
@output_option
def sandbox_status(directory: Path, output: str) -> int:
    """Show each broker and worker. Exit code 1 when one of them is down.

    \b
    Example:
      mm2mgr sandbox status -o json
    """
    from mm2mgr.output.console import say, say_json, say_table

    states = operations.sandbox_status(directory)
    if output == "json":
        say_json([{**vars(state), "log_file": str(state.log_file)} for state in states])
    elif states:
        rows = [(s.kind, s.name, "up" if s.running else "DOWN", str(s.pid), s.address, str(s.log_file)) for s in states]
        say_table(["kind", "name", "state", "pid", "address", "log"], rows)
    else:
        say(f"no sandbox in {directory}; start one: mm2mgr sandbox up")
    return 0 if all(state.running for state in states) else 1


@sandbox.command()
@_directory
def down(directory: Path) -> None:
    """Stop exactly what `up` started here, and remove its data; any other folder is refused.

    \b
    Example:
      mm2mgr sandbox down
    """
    from mm2mgr.output.console import talk

    operations.sandbox_down(directory, report=talk)
