"""The commands of a failover: whether a pair is ready for one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    CommandGroup,
    Count,
    in_help,
    invalid_arguments,
    option,
    output_in,
    output_option,
    reading,
    snapshot_option,
    store_option,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.observe.way_back import WayBack

_CODES = {"GO": ExitCode.YES, "GO WITH": ExitCode.DIFFERS, "NO-GO": ExitCode.NO, "not judged": ExitCode.NO}


@in_help("Every day", 14)
@click.group(cls=CommandGroup)
def failover() -> None:
    """Judge whether consumers can go on at the target of a pair.

    \b
    Example:
      mm2mgr failover check 'dc1-logging->agg-east'
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


@failover.command()
@click.argument("pair")
@option("--apply", "write", is_flag=True, help="Prepare it: hold the pair, and write where the way back begins.")
@option("--start", is_flag=True, help="Let the way back run, once it is prepared.")
@option("--lost", is_flag=True, help="List what the source has and the target never got, also of earlier ways back.")
@option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write these records to a new file, as JSON lines that only you can read.",
)
@option("--rows", type=Count(min=0), default=30, metavar="N", help="Rows of each table (JSON has all).")
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why; kept in the history.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option
@click.pass_obj
def back(  # noqa: PLR0913  one for each option
    workspace: Workspace,
    pair: str,
    write: bool,
    start: bool,
    lost: bool,
    export: Path | None,
    rows: int,
    reason: str,
    yes: bool,
    output: str,
) -> int:
    """Prepare the way back of PAIR, which failed over: the flow from its target to its source.

    Where topics keep their names, nothing that came from the source may go back: the way back begins behind the last
    record that the pair brought, by the journal of `failover run`, else by comparing records of both sides. The pair
    must be STOPPED; --apply holds it, so that nothing can run it, stores the offsets of the way back, reads them back,
    and lets that run. With default names the way back takes the target's own topics only, and needs no offsets.
    --start resumes it. Records that the source has and the target never got are listed, and never merged; --export
    writes them to a file. Where the tree declares no way back, the flow to add is printed, and the exit code is 1.

    \b
    Example:
      mm2mgr failover back 'dc1-logging->agg-east'
      mm2mgr failover back 'dc1-logging->agg-east' --apply
      mm2mgr failover back 'dc1-logging->agg-east' --start
      mm2mgr failover back 'dc1-logging->agg-east' --export lost.jsonl
    """
    from mm2mgr.cli.pause import confirm
    from mm2mgr.output.apply_text import say_event
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.failback_text import say_failback, say_way_back

    def approve(way: WayBack) -> bool:
        if output != "json":
            say_way_back(way, rows)
        if not yes:
            question = f"prepare the way back {way.back_pair}" if not way.is_prepared else f"start {way.back_pair}"
            confirm("failover back", f"{question}?", output)
        return True

    workspace.flows((pair,))  # an unknown pair is an error before anything is asked
    order = operations.FailbackOrder(write, start, lost, export, reason)
    with carrying_on():
        result = operations.failover_back(workspace, pair, order, approve=approve, report=say_event)
        say_as(output, result, partial(say_failback, rows=rows, with_lost=lost or export is not None))
    return ExitCode.NO if result.has_failed else ExitCode.YES
