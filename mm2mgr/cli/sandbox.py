"""The commands that run real Kafka on this machine: `demo`, and the sandbox: up, status, down; topics and records for
people without a Kafka client."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    CommandGroup,
    Count,
    Duration,
    Number,
    command,
    folder_option,
    in_help,
    option,
    output_option,
)
from mm2mgr.text import number_of

_directory = folder_option(".mm2mgr/sandbox", "Folder of the sandbox: data, logs and state.")


@command("First hour", 1)
@option("--keep", is_flag=True, help="Leave everything running at the end, to play with.")
@folder_option(".mm2mgr/demo", "Where the demo keeps its files.")
@option("--seconds", type=Duration(5, 600), default="15s", help="How long to measure traffic.")
@option("--balance", is_flag=True, help="Show a task that skewed traffic overloads, and a rebalance, instead.")
def demo(keep: bool, directory: Path, seconds: float, balance: bool) -> int:
    """Run the whole workflow on this machine, with real Kafka.

    Declares, measures, sizes, plans, applies, mirrors, and proves the result.
    Starts four Kafka clusters and two Connect workers, keeps producing uneven traffic, and ends with an audit:
    everything arrived exactly once and in order. Stops what it started. DIR must be new, empty or that of an earlier
    demo, whose tree and samples are removed; changed by hand or sampled into for hours, they are not.

    --balance shows on two clusters and a worker with the Connect plugin how partitions of skewed traffic overload one
    of four tasks, which falls behind; a rebalance makes them even, and the audit proves that nothing was lost.

    \b
    Example:
      mm2mgr demo --keep
      mm2mgr demo --balance
    """
    from mm2mgr.errors import need_extras

    need_extras("sandbox", "spark", *(["serve"] if balance else []))  # before the demo imports one of them
    if balance:
        from mm2mgr.demo.balance import run_balance_demo

        return run_balance_demo(directory, keep=keep, measure_seconds=seconds)
    from mm2mgr.demo.story import run_demo

    return run_demo(directory, keep=keep, measure_seconds=seconds)


@in_help("First hour", 3)
@click.group(cls=CommandGroup)
def sandbox() -> None:
    """Run real Kafka brokers and Connect workers on this machine.

    Two source clusters, two aggregates, and a worker for each aggregate.

    \b
    Example:
      mm2mgr sandbox up && mm2mgr --clusters .mm2mgr/sandbox/clusters plan
    """


@sandbox.command("up")
@_directory
def sandbox_up(directory: Path) -> None:
    """Start what is not running and write a tree for it to DIR/clusters.

    DIR must be new, empty or an earlier sandbox's; a file of DIR/clusters that was changed by hand is not overwritten.

    \b
    Example:
      mm2mgr sandbox up
    """
    from mm2mgr.output.console import say, talk

    endpoints, tree = operations.sandbox_up(directory, report=talk)
    for alias, address in endpoints.bootstrap_servers.items():
        say(f"kafka   {alias:14} {address}")
    for name, url in endpoints.connect_urls.items():
        say(f"connect {name:14} {url}")
    say(f"tree    {tree}    try: mm2mgr --clusters {tree} plan")


@sandbox.command("status")
@_directory
@output_option
def sandbox_status(directory: Path, output: str) -> int:
    """Show each broker and worker.

    \b
    Example:
      mm2mgr sandbox status -o json
    """
    from mm2mgr.output.console import STYLES, say, say_json, say_table
    from mm2mgr.output.tables import Table

    states = operations.sandbox_status(directory)
    if output == "json":
        say_json(states)
    elif states:
        rows = [(s.kind, s.name, "up" if s.running else "down", str(s.pid), s.address, str(s.log_file)) for s in states]
        columns = ("kind", "name", "state", "pid", "address", "log")
        say_table(Table(columns, rows, drop=("pid", "log"), styles={"state": STYLES}))
    else:
        say(f"no sandbox in {directory}; start one: mm2mgr sandbox up")
    return 0 if all(state.running for state in states) else 1


@sandbox.command("down")
@_directory
def sandbox_down(directory: Path) -> None:
    """Stop exactly what `up` started here, and remove its data; any other folder is refused.

    \b
    Example:
      mm2mgr sandbox down
    """
    from mm2mgr.output.console import talk

    operations.sandbox_down(directory, report=talk)


@sandbox.group("topic")
def sandbox_topic() -> None:
    """Create and list topics of a sandbox's Kafka cluster."""


@sandbox_topic.command("create")
@click.argument("cluster")
@click.argument("name")
@option("--partitions", type=Count(1, 1000), default=1, help="Partitions of the new topic.")
@_directory
def topic_create(cluster: str, name: str, partitions: int, directory: Path) -> None:
    """Create topic NAME on CLUSTER; one that exists is left as it is.

    \b
    Example:
      mm2mgr sandbox topic create dc1-logging logs.web --partitions 6
    """
    from mm2mgr.output.console import say

    is_new = operations.sandbox_create_topic(cluster, name, partitions, directory=directory)
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
    from mm2mgr.output.console import say_as, say_table
    from mm2mgr.output.tables import Table

    partitions_of = operations.sandbox_topics(cluster, directory=directory)
    table = Table(
        ("topic", "partitions"), [(name, str(count)) for name, count in partitions_of.items()], ("partitions",)
    )
    say_as(output, partitions_of, lambda _: say_table(table))


@sandbox.command()
@click.argument("cluster")
@click.argument("topic")
@option("--records", type=Count(1), help="Write this many random records instead of lines of stdin.")
@option("--size", type=Count(1, 1_000_000), default=100, help="Bytes per record.")
@option("--rate", type=Number(0, 1_000_000, min_open=True), help="Records per second. Default: as fast as it goes.")
@_directory
def produce(cluster: str, topic: str, records: int | None, size: int, rate: float | None, directory: Path) -> None:
    """Write records to TOPIC of CLUSTER: a record per line of stdin.

    Partitions take turns. Ends when every record is stored.

    \b
    Example:
      echo hello | mm2mgr sandbox produce dc1-logging logs.web
      mm2mgr sandbox produce dc1-logging logs.web --records 60000 --size 1000 --rate 1000
    """
    from mm2mgr.output.console import say

    values = operations.random_values(records, size) if records else operations.lines_of(sys.stdin.buffer)
    values = operations.at_rate(values, rate) if rate else values
    count = operations.sandbox_produce(cluster, topic, values, directory=directory)
    say(f"{number_of(count, 'record')} written to {topic} of {cluster}")
