"""Commands that run real Kafka, Connect and Spark on this machine: sandbox and demo."""

from __future__ import annotations

from pathlib import Path

import click

from mm2mgr.cli.options import output_option

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mm2mgr/sandbox"),
    show_default=True,
    help="Where data, logs and state of the sandbox live.",
)


@click.group()
def sandbox() -> None:
    """Real Kafka brokers and Connect workers on this machine: two sources, two aggregates, a worker each.

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
    from mm2mgr.demo.tree import check_tree, write_tree
    from mm2mgr.output.console import say, talk
    from mm2mgr.sandbox.layout import Sandbox

    here = Sandbox(directory)
    if here.check():  # before anything starts
        check_tree(directory / "clusters")
    endpoints = here.up(progress=talk)
    for alias, address in endpoints.bootstrap_servers.items():
        say(f"kafka   {alias:14} {address}")
    for name, url in endpoints.connect_urls.items():
        say(f"connect {name:14} {url}")
    folder = write_tree(directory / "clusters", endpoints)
    say(f"tree    {folder}    try: mm2mgr --clusters {folder} plan")


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
    from mm2mgr.sandbox.layout import Sandbox

    states = Sandbox(directory).status()
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
    from mm2mgr.sandbox.layout import Sandbox

    Sandbox(directory).down(progress=talk)


@click.command()
@click.option("--keep", is_flag=True, help="Leave everything running at the end, to play with.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mm2mgr/demo"),
    show_default=True,
    help="Where the demo keeps its files.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=15, show_default=True, help="How long to measure traffic."
)
def demo(keep: bool, directory: Path, seconds: int) -> int:
    """Run the whole job for real: declare, measure, size, plan, apply, mirror, prove, on this machine.

    Starts four Kafka clusters and two Connect workers, keeps producing uneven traffic, and ends with a proof by record
    ids that everything arrived exactly once and in order. Stops what it started. DIR must be new, empty or that of an
    earlier demo, whose tree and samples are removed; changed by hand or sampled into for hours, they are not.

    \b
    Example:
      mm2mgr demo --keep
    """
    from mm2mgr.extras import need_all

    need_all()  # before the demo imports the first of them
    from mm2mgr.demo.story import tell

    return tell(directory, keep=keep, measure_seconds=seconds)
