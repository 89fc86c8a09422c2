"""Commands that run real Kafka, Connect and Spark on this machine: sandbox and demo."""

from __future__ import annotations

import sys
from pathlib import Path

import click

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
    from mm2mgr.output.console import STYLES, say, say_json, say_table
    from mm2mgr.output.tables import Table
    from mm2mgr.sandbox.layout import Sandbox

    states = Sandbox(directory).status()
    if output == "json":
        say_json([{**vars(state), "log_file": str(state.log_file)} for state in states])
    elif states:
        rows = [(s.kind, s.name, "up" if s.running else "down", str(s.pid), s.address, str(s.log_file)) for s in states]
        columns = ("kind", "name", "state", "pid", "address", "log")
        say_table(Table(columns, rows, drop=("pid", "log"), styles={"state": STYLES}))
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


@sandbox.group("topic")
def sandbox_topic() -> None:
    """Create and list topics of a sandbox's Kafka cluster."""


@sandbox_topic.command("create")
@click.argument("cluster")
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=1, show_default=True, help="Partitions of the new topic."
)
@_directory
def topic_create(cluster: str, name: str, partitions: int, directory: Path) -> None:
    """Create topic NAME on CLUSTER; one that exists is left as it is.

    \b
    Example:
      mm2mgr sandbox topic create dc1-logging logs.web --partitions 6
    """
    from mm2mgr.output.console import say
    from mm2mgr.sandbox.records import create_topic

    is_new = create_topic(directory, cluster, name, partitions)
    say(f"topic {name} {'created' if is_new else 'exists already'} on {cluster}")


@sandbox_topic.command("list")
@click.argument("cluster")
@_directory
@output_option
def topic_list(cluster: str, directory: Path, output: str) -> None:
    """List the topics of CLUSTER, without those of Kafka itself.

    \b
    Example:
      mm2mgr sandbox topic list agg-east
    """
    from mm2mgr.output.console import say_json, say_table
    from mm2mgr.output.tables import Table
    from mm2mgr.sandbox.records import topics

    found = topics(directory, cluster)
    if output == "json":
        say_json(found)
    else:
        say_table(
            Table(("topic", "partitions"), [(name, str(count)) for name, count in found.items()], ("partitions",))
        )


@sandbox.command()
@click.argument("cluster")
@click.argument("topic")
@click.option("--records", type=click.IntRange(1), help="Write this many random records instead of lines of stdin.")
@click.option("--size", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Bytes per record.")
@_directory
def produce(cluster: str, topic: str, records: int | None, size: int, directory: Path) -> None:
    """Write records to TOPIC of CLUSTER: a record per line of stdin.

    Partitions take turns. Ends when every record is stored.

    \b
    Example:
      echo hello | mm2mgr sandbox produce dc1-logging logs.web
      mm2mgr sandbox produce dc1-logging logs.web --records 10000 --size 1000
    """
    from mm2mgr.output.console import say
    from mm2mgr.sandbox.records import lines_of, random_values
    from mm2mgr.sandbox.records import produce as write

    values = random_values(records, size) if records else lines_of(sys.stdin.buffer)
    count = write(directory, cluster, topic, values)
    say(f"{count} record{'' if count == 1 else 's'} written to {topic} of {cluster}")


@click.command()
@click.option("--keep", is_flag=True, help="Leave everything running at the end.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".mm2mgr/demo"),
    show_default=True,
    help="Folder of the demo's files.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=15, show_default=True, help="How long to measure traffic."
)
def demo(keep: bool, directory: Path, seconds: int) -> int:
    """Run the whole workflow on this machine, with real Kafka.

    Declares, measures, sizes, plans, applies, mirrors, and proves the result.
    Starts four Kafka clusters and two Connect workers, keeps producing uneven traffic, and ends with a proof by record
    ids that everything arrived exactly once and in order. Stops what it started. DIR must be new, empty or that of an
    earlier demo, whose tree and samples are removed; changed by hand or sampled into for hours, they are not.

    \b
    Example:
      mm2mgr demo --keep
    """
    from mm2mgr.demo.story import tell

    return tell(directory, keep=keep, measure_seconds=seconds)
