"""The commands of a failover: whether a pair is ready for one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    CommandGroup,
    Count,
    in_help,
    invalid_arguments,
    option,
    output_in,
    reading,
    snapshot_option,
    store_option,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

_CODES = {"GO": ExitCode.YES, "GO WITH": ExitCode.DIFFERS, "NO-GO": ExitCode.NO, "not judged": ExitCode.NO}


@in_help("Every day", 14)
@click.group(cls=CommandGroup)
def failover() -> None:
    """Judge whether consumers can go on at the target of a pair.

    \b
    Example:
      mm2mgr failover check 'dc1-logging->agg-east'
      mm2mgr failover rehearse 'dc1-logging->agg-east'
    """


@failover.command()
@click.argument("pair")
@option("--group", metavar="RE", help="Only groups whose whole name matches this Java expression. Default: all groups.")
@option(
    "--translated",
    is_flag=True,
    help="Judge the translated offsets, as if they were committed on the target before consumers start there.",
)
@option(
    "--sample", type=Count(min=0), default=20, metavar="N", help="Positions at which records are read and compared."
)
@option("--by", type=click.Choice(["group", "partition"]), default="group", help="What a row of the table is about.")
@option("--rows", type=Count(min=0), default=30, metavar="N", help="Rows, worst first (JSON has all).")
@store_option("Folder or URI of the tables in which the last looks at the source and the checks are kept.")
@output_in("text", "json", "markdown")
@click.pass_obj
@snapshot_option
def check(
    workspace: Workspace,
    pair: str,
    group: str | None,
    translated: bool,
    sample: int,
    by: str,
    rows: int,
    store: Path,
    output: str,
) -> int:
    """Say GO, GO WITH numbers, or NO-GO: could the groups of PAIR go on at its target now?

    For each group and partition: what it committed on the source, its checkpoint, its offset on the target, and the
    offset that mm2mgr translates to, with the records that would come again at most. A group that would skip records,
    has no offset on the target or has members there is NO-GO. On a sample, the record that a group reads next is read
    on both sides and compared. Beside groups: topics, partitions, settings, ACLs and quotas that differ, what the pair
    does not mirror, the records that would be lost, and how long a planned failover takes. What could not be read is
    never GO; a missing right is named with the command that gives it. Nothing is written to the clusters. What is read
    of the source (offset syncs, what groups committed, ends of logs) is kept in the store for the day on which it does
    not answer: a check goes by that then, and says how old it is; without it, checkpoints and the groups on the target
    are what is left, and nothing is GO. `mm2mgr serve --with failover` checks, and keeps, every 15 minutes.

    \b
    Example:
      mm2mgr failover check 'dc1-logging->agg-east'
      mm2mgr failover check 'dc1-logging->agg-east' --group 'billing.*' --by partition
    """
    from mm2mgr.output.console import say_as, say_lines
    from mm2mgr.output.failover_text import readiness_markdown, say_readiness
    from mm2mgr.output.status_text import say_warnings

    options = operations.FailoverOptions(group, translated, sample)
    workspace.flows((pair,))  # an unknown pair is an error before anything is asked
    with reading(workspace), invalid_arguments():
        checked = operations.check_and_keep(workspace, pair, options, store=store)
    readiness = checked.readiness
    say_warnings(checked.warnings)
    if output == "markdown":
        say_lines(readiness_markdown(readiness, rows))
    else:
        say_as(output, readiness, partial(say_readiness, rows=rows, by_partition=by == "partition"))
    return _CODES[readiness.verdict.word]


_REHEARSED = {"good": ExitCode.YES, "good with": ExitCode.DIFFERS, "not good": ExitCode.NO, "not judged": ExitCode.NO}


@failover.command()
@click.argument("pair")
@option("--group", metavar="RE", help="Only groups whose whole name matches this Java expression. Default: all groups.")
@option("--records", type=Count(min=1, max=100), default=10, metavar="N", help="Records to read from each position.")
@option("--most-groups", type=Count(min=1), default=300, metavar="N", help="Groups to rehearse at most, worst first.")
@option(
    "--groups-at-once", type=Count(min=1, max=64), default=8, metavar="N", help="Groups that read at the same time."
)
@option("--rows", type=Count(min=0), default=30, metavar="N", help="Rows, worst first (JSON has all).")
@store_option("Folder or URI of the tables in which rehearsals and the last looks at the source are kept.")
@output_in("text", "json", "markdown")
@click.pass_obj
def rehearse(
    workspace: Workspace,
    pair: str,
    group: str | None,
    records: int,
    most_groups: int,
    groups_at_once: int,
    rows: int,
    store: Path,
    output: str,
) -> int:
    """Try out on the target of PAIR that its groups go on where they should, and measure how long that takes.

    Copies the groups to scratch groups there, named __mm2mgr-rehearsal.OWNER.ID.N, with their translated offsets
    committed; joins each as a consumer, reads records from these offsets on, compares key, value and timestamp with
    what the group has to read on the source, and deletes what it made, after Ctrl-C too. What a rehearsal that was
    killed left is deleted by the next one of the same owner. No group, topic or flow of yours is touched, and nothing
    has to stop. A record that a group has to read and that is not there is an error; records that come again are not,
    up to the number that is named. mm2mgr's login needs Read and Delete on these groups, and Read on mirrored topics.

    \b
    Example:
      mm2mgr failover rehearse 'dc1-logging->agg-east'
      mm2mgr failover rehearse 'dc1-logging->agg-east' --group 'billing.*' --records 50 -o markdown
    """
    from mm2mgr.cli.interrupts import signals_interrupt
    from mm2mgr.output.console import say_as, say_lines, talk
    from mm2mgr.output.rehearsal_text import rehearsal_markdown, say_rehearsal
    from mm2mgr.output.status_text import say_warnings

    options = operations.RehearsalOptions(group, records, groups_at_once, most_groups)
    workspace.flows((pair,))  # an unknown pair is an error before anything is asked
    with signals_interrupt(), reading(workspace, "rehearsing with scratch groups"), invalid_arguments():
        rehearsed = operations.failover_rehearse(workspace, pair, options, store=store, note=talk)
    rehearsal = rehearsed.rehearsal
    say_warnings(rehearsed.warnings)
    if output == "markdown":
        say_lines(rehearsal_markdown(rehearsal, rows))
    else:
        say_as(output, rehearsal, partial(say_rehearsal, rows=rows))
    return _REHEARSED[rehearsal.verdict.word]
