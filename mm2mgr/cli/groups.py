"""The command about consumer groups: `groups`."""

from __future__ import annotations

from functools import partial

import click

from mm2mgr import operations
from mm2mgr.cli.options import Count, command, invalid_arguments, option, output_option, reading
from mm2mgr.operations.workspace import Workspace


@command("Every day", 4)
@click.argument("place", required=False, metavar="[CLUSTER|PAIR]")
@option("--group", metavar="RE", help="Only this group, or those whose whole name matches this Java expression.")
@option(
    "--topic",
    metavar="RE",
    help="Only this topic, or those whose whole name matches this Java expression, mirrored or not.",
)
@option("--all", "with_all", is_flag=True, help="Every group and topic, also those that no flow mirrors.")
@option("--most", type=Count(min=1), default=30, metavar="N", help="Groups to show, most behind first (JSON has all).")
@output_option
@click.pass_obj
def groups(
    workspace: Workspace,
    place: str | None,
    group: str | None,
    topic: str | None,
    with_all: bool,
    most: int,
    output: str,
) -> int:
    """List consumer groups: lag, members, translated offsets.

    Of a Kafka cluster of the tree, of the source of a pair or flow, or of all clusters that flows use: state, members,
    topics, and the lag in records, from what a group committed to the ends of logs, with the partition that is most
    behind. By default groups count that committed offsets on topics that flows mirror from or to the cluster, and these
    topics alone; of a pair or flow, only its own. Partitions without a committed offset are not in the sum. For each
    target, by the checkpoints there: yes, no or partly translated; left out or not declared by the tree. What could not
    be read is unknown, and never 0; a missing right is named with the command that gives it. Nothing is joined or
    written.

    \b
    Example:
      mm2mgr groups
      mm2mgr groups dc1-logging --group 'billing.*'
      mm2mgr groups 'dc1-logging->agg-east' --topic app.events -o json
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.groups_text import say_groups

    order = operations.GroupsOrder(group, topic, with_all)
    operations.groups_place(workspace, place)  # an unknown name is an error before anything is asked
    with reading(workspace, "reading groups"), invalid_arguments():
        report = operations.groups(workspace, place, order)
    say_as(output, report, partial(say_groups, most=most))
    return 0 if report.is_known else 1
