"""The commands of a failover: whether a pair is ready for one, its runbook, and carrying it out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    CommandGroup,
    Count,
    Duration,
    Parsed,
    in_help,
    invalid_arguments,
    option,
    output_in,
    output_option,
    reading,
    reason_option,
    snapshot_option,
    store_option,
    with_options,
)
from mm2mgr.errors import ExitCode, Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import WayBack

_CODES = {"GO": ExitCode.YES, "GO WITH": ExitCode.DIFFERS, "NO-GO": ExitCode.NO, "not judged": ExitCode.NO}


@in_help("Every day", 14)
@click.group(cls=CommandGroup)
def failover() -> None:
    """Judge whether consumers can go on at a target, and move them.

    \b
    Example:
      mm2mgr failover check 'dc1-logging->agg-east'
      mm2mgr failover rehearse 'dc1-logging->agg-east'
      mm2mgr failover plan 'dc1-logging->agg-east'
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


_LATER = "The time at which all producers stop (UTC without a zone), in the place of the question whether they have."


def _cutoff(text: str) -> float:
    from mm2mgr.spec.scalars import moment

    at = moment(text).time_ms
    if at is None:
        raise ValueError("is no time such as 2026-11-26T10:00 (UTC)")
    return at / 1000


def _mode_options(command: Callable[..., object]) -> Callable[..., object]:
    return with_options(
        command,
        option("--planned", is_flag=True, help="The source lives, and producers stop first (the default)."),
        option("--disaster", is_flag=True, help="The source is gone: go on with what has arrived on the target."),
        option("--cutoff", type=Parsed("time", _cutoff), metavar="TIME", help=_LATER),
        option(
            "--group", metavar="RE", help="Only groups whose whole name matches this Java expression. Default: all."
        ),
        option(
            "--quiet-for", type=Duration(1), default="10s", help="For so long no log of the source may move at the end."
        ),
        option(
            "--lag", type=Duration(1), default="2min", help="So old may the oldest record be that waits to be mirrored."
        ),
        store_option("Folder or URI of the tables in which the last looks at the source are kept."),
    )


def _order(
    planned: bool, disaster: bool, cutoff: float | None, group: str | None, quiet_for: float, lag: float
) -> operations.RunOrder:
    if planned + disaster + (cutoff is not None) > 1:
        raise click.UsageError("write one of --planned, --disaster and --cutoff")
    mode: Literal["planned", "disaster", "cutoff"] = (
        "disaster" if disaster else "planned" if cutoff is None else "cutoff"
    )
    return operations.RunOrder(mode, cutoff, quiet_for, lag, only=group)


@failover.command()
@click.argument("pair")
@_mode_options
@output_in("text", "markdown", "json")
@click.pass_obj
def plan(
    workspace: Workspace,
    pair: str,
    planned: bool,
    disaster: bool,
    cutoff: float | None,
    group: str | None,
    quiet_for: float,
    lag: float,
    store: Path,
    output: str,
) -> int:
    """Print a failover of PAIR as a runbook: who does what, and what to expect.

    Each stage has the command, what to expect after it, in numbers of this moment (lag, records that come again, groups
    to be written, time), and what stops it. `mm2mgr failover run` carries these stages out. Nothing is written to the
    clusters; what is read of the source is kept in the store, as `failover check` does.

    \b
    Example:
      mm2mgr failover plan 'dc1-logging->agg-east'
      mm2mgr failover plan 'dc1-logging->agg-east' --cutoff 2026-11-27T22:00 -o markdown
    """
    from mm2mgr.output.console import say_as, say_lines
    from mm2mgr.output.failover_run_text import runbook_markdown, say_runbook
    from mm2mgr.output.status_text import say_warnings

    order = _order(planned, disaster, cutoff, group, quiet_for, lag)
    workspace.flows((pair,))  # an unknown pair is an error before anything is asked
    with reading(workspace), invalid_arguments():
        planned_failover = operations.failover_plan(workspace, pair, order, store=store)
    say_warnings(planned_failover.warnings)
    if output == "markdown":
        say_lines(runbook_markdown(planned_failover.runbook))
    else:
        say_as(output, planned_failover.runbook, say_runbook)
    return _CODES[planned_failover.runbook.verdict.word]


@failover.command()
@click.argument("pair")
@_mode_options
@option("--producers-stopped", is_flag=True, help="Yes, all producers have stopped: do not ask.")
@option("--yes", "-y", is_flag=True, help="Do not ask before the first write.")
@option("--dry-run", is_flag=True, help="Judge each stage now, and write nothing.")
@option("--timeout", type=Duration(1), default="10min", help="Time limit of each stage.")
@option("--abandon", is_flag=True, help="Take back what a run did, while no group is written.")
@option(
    "--forget", is_flag=True, help="Delete the journal of a run, also one that cannot be read; change nothing else."
)
@reason_option
@output_option
@click.pass_obj
def run(
    workspace: Workspace,
    pair: str,
    planned: bool,
    disaster: bool,
    cutoff: float | None,
    group: str | None,
    quiet_for: float,
    lag: float,
    store: Path,
    producers_stopped: bool,
    yes: bool,
    dry_run: bool,
    timeout: float,
    abandon: bool,
    forget: bool,
    reason: str,
    output: str,
) -> int:
    """Fail PAIR over: stop it, and write its groups' offsets on the target.

    It begins with a check of all groups, and refuses NO-GO. Then it waits until almost all is mirrored, asks
    whether the producers have stopped, sees that nobody writes, that every record has arrived and every position is
    known, stops the source and checkpoint connectors, notes where the target's logs end, and writes the translated
    offsets: only of groups without a member on the target, never back. With --disaster it goes on with what has
    arrived. Where a stage ends it, or it is killed, it says how far it came, and the same command goes on: each
    stage is judged by what the clusters show. A journal is kept on the Kafka cluster of the target, in the topic of
    the history. Until groups are written, --abandon brings the connectors back to the states that they had.

    \b
    Example:
      mm2mgr failover run 'dc1-logging->agg-east' --dry-run
      mm2mgr failover run 'dc1-logging->agg-east' --producers-stopped --yes
    """
    from mm2mgr.output.apply_text import say_event
    from mm2mgr.output.console import carrying_on, say, say_as, talk
    from mm2mgr.output.failover_run_text import StageTalk, say_ended
    from mm2mgr.output.status_text import say_warnings

    if abandon + forget + dry_run > 1:
        raise click.UsageError("write one of --abandon, --forget and --dry-run")
    order = replace(_order(planned, disaster, cutoff, group, quiet_for, lag), timeout_seconds=timeout, dry_run=dry_run)
    workspace.flows((pair,))
    answers = {"write": yes, "abandon": yes, "producers": producers_stopped}
    needed = {"--yes": yes or dry_run}
    if order.mode == "planned" and not (abandon or forget):
        needed["--producers-stopped"] = producers_stopped or dry_run
    if (output == "json" or not sys.stdin.isatty()) and not all(needed.values()):
        missing = " and ".join(name for name, is_given in needed.items() if not is_given)
        raise Mm2mgrError("failover run asks first, and there is no terminal to answer on", hint=f"add {missing}")

    approved: list[str] = []

    def ask(question: str, text: str) -> bool:
        is_yes = answers[question] or click.confirm(text[0].upper() + text[1:], err=True)
        approved.extend([question] * is_yes)
        return is_yes

    how = operations.FailoverHow(ask, StageTalk(), say_event, reason, store)
    try:
        with carrying_on(), invalid_arguments():
            if forget:
                count = operations.failover_forget(workspace, pair, how)
                say(f"{count} texts of the journal deleted")
                return 0
            done = (
                operations.failover_abandon(workspace, pair, how, timeout_seconds=timeout)
                if abandon
                else operations.failover_run(workspace, pair, order, how)
            )
    except KeyboardInterrupt:
        if {"write", "abandon"} & set(approved):
            talk(
                f"what was done is in the journal: mm2mgr failover run '{pair}' goes on, --abandon takes it back", None
            )
        else:
            talk("this run wrote nothing", None)
        raise
    say_warnings(done.warnings)
    say_as(output, done, say_ended)
    if dry_run and done.result.verdict:
        return _CODES[done.result.verdict.word]
    result = done.result
    is_unsure = result.left_out or result.may_miss_groups or result.may_have_run
    return ExitCode.DIFFERS if is_unsure else ExitCode.YES


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
@store_option("Folder or URI of the tables in which the last looks at the source are kept.")
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why; kept in the history.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option
@click.pass_obj
def back(
    workspace: Workspace,
    pair: str,
    write: bool,
    start: bool,
    lost: bool,
    export: Path | None,
    rows: int,
    store: Path,
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
    order = operations.FailbackOrder(write, start, lost, export, reason, store=store)
    with carrying_on():
        result = operations.failover_back(workspace, pair, order, approve=approve, report=say_event)
        say_as(output, result, partial(say_failback, rows=rows, with_lost=lost or export is not None))
    return ExitCode.NO if result.has_failed else ExitCode.YES
