"""The commands that look: `status`, `describe`, `check`, `losses`, `lag`, `history`, `drift`, `who`, `snapshot` …"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    LEAST_SECONDS,
    OUTPUT_FILE,
    Count,
    Duration,
    DurationWithUnit,
    Since,
    command,
    invalid_arguments,
    label_option,
    option,
    output_option,
    reading,
    show_looks,
    snapshot_option,
    store_option,
)
from mm2mgr.errors import ExitCode, InvalidArgument
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import LagReport, Status


_NOTES = "Print also what is no problem: notes on flows, and what a lag is counted from. `describe` shows them too."
_EVERY = "Look again after this time, until Ctrl-C: redrawn on a terminal; with -o json one document per line."


@command("Every day", 1)
@click.argument("flows", nargs=-1)
@label_option
@option(
    "--watch",
    type=Duration(LEAST_SECONDS),
    help=_EVERY,
)
@option("--notes", is_flag=True, help=_NOTES)
@store_option("Folder or URI of the tables, for the one of losses.")
@output_option
@click.pass_obj
@snapshot_option
def status(
    workspace: Workspace,
    flows: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    watch: float | None,
    notes: bool,
    store: Path,
    output: str,
) -> int:
    """Show health, tasks and lag of FLOWS (all by default).

    Below the table are every problem and the lags that grow. Lag is that of `mm2mgr lag`; the true one may be smaller
    by what arrived since the workers last flushed. A connector that is RUNNING with zero tasks, silent for a minute,
    or without progress is a problem, whatever Connect says. Records that may be lost stay a problem until they are
    acknowledged (`losses` lists them).

    \b
    Example:
      mm2mgr status --watch 10
    """
    from mm2mgr.output.status_text import say_look, say_status

    watching = watch is not None

    def show(look: Status) -> None:
        say_look(output, look, lambda look: say_status(look, notes=notes), watching=watching)

    flows = workspace.flow_names(flows, labels)
    looks = operations.watch_status(workspace, flows, every_seconds=watch or 0.0, store=store)
    return show_looks(workspace, looks, show, lambda look: exit_code(look.health), watching=watching)


def exit_code(health: str) -> int:
    return 1 if health in {"problem", "unknown"} else 0


@command("Every day", 2)
@click.argument("flow")
@store_option("Folder or URI of the tables, for the one of losses.")
@output_option
@click.pass_obj
@snapshot_option
def describe(workspace: Workspace, flow: str, store: Path, output: str) -> int:
    """Show one FLOW in full: connectors, tasks, lag, settings.

    \b
    Example:
      mm2mgr describe 'logging:dc1-logging->agg-east'
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.status_text import say_description, say_warnings

    workspace.flow(flow)  # an unknown flow is an error before anything is asked
    with reading(workspace):
        described = operations.describe(workspace, flow, store=store)
    say_warnings(described.status.warnings)
    say_as(output, described, say_description)
    return exit_code(described.flow_status.health)


@command("Every change", 4)
@click.argument("flows", nargs=-1)
@option("--timeout", type=Duration(1), default="20s", help="Time limit for the check; unanswered checks are reported.")
@option(
    "--fix-only",
    is_flag=True,
    help="Print only the commands that grant missing rights, and those that could not be verified.",
)
@output_option
@click.pass_obj
@snapshot_option
def check(workspace: Workspace, flows: tuple[str, ...], timeout: float, fix_only: bool, output: str) -> int:
    """Ask brokers and workers whether FLOWS (all by default) can run.

    Logs in to every Kafka cluster as each client of the connectors would, and finds the rights that it lacks, most of
    which leave everything RUNNING; compares cluster ids, size limits, replication factors and the workers with what
    the flows need. Nothing is created, written or committed. Missing ACLs are printed as kafka-acls.sh commands.

    \b
    Example:
      mm2mgr check
      mm2mgr check logging --fix-only > acls.sh
    """
    from mm2mgr.output.console import say_as, say_command
    from mm2mgr.output.lint_text import say_check

    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    with reading(workspace, "asking Connect and Kafka"):
        checked = operations.check(workspace, flows, timeout_seconds=timeout)
    if fix_only:
        for line in (*checked.commands, *checked.unsure):
            say_command(line)
    else:
        say_as(output, checked, say_check)
    return 0 if checked.good else 1


@command("Every day", 13)
@click.argument("flows", nargs=-1)
@option("--all", "everything", is_flag=True, help="Acknowledged losses too, with who acknowledged them, when and why.")
@option(
    "--ack", multiple=True, metavar="ID", help="Acknowledge a loss (repeatable; 'all': every loss, of FLOWS if given)."
)
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why it is acknowledged; kept in the ledger.")
@store_option("Folder or URI of the tables.")
@output_option
@click.pass_obj
def losses(
    workspace: Workspace,
    flows: tuple[str, ...],
    everything: bool,
    ack: tuple[str, ...],
    reason: str,
    store: Path,
    output: str,
) -> int:
    """List records of FLOWS (all by default) that may never arrive.

    `status` and `sample` compare each partition with the look before, and put into the table `losses` which offsets
    retention deleted before they were mirrored, or were skipped because a topic was created again or truncated: also
    when it happened between two looks and the flow has recovered since. A loss stays until it is acknowledged. No
    cluster is asked.

    \b
    Example:
      mm2mgr losses
      mm2mgr losses orders --ack 3f2a9c1b04 --reason "restored from backup"
    """
    from mm2mgr.output.console import say_as, talk
    from mm2mgr.output.status_text import acknowledged_text, say_losses, say_warnings

    if reason and not ack:
        raise click.UsageError("--reason goes with --ack")
    if ack:
        for loss in operations.acknowledge(workspace, ack, flows, reason=reason, store=store):
            talk(acknowledged_text(loss))
    report = operations.losses(workspace, flows, store=store, everything=everything)
    say_warnings(report.warnings)
    say_as(output, report, say_losses)
    return 1 if report.still_open else 0


@command("Every day", 3)
@click.argument("flows", nargs=-1)
@label_option
@option("--by", type=click.Choice(["partition", "topic", "task", "flow"]), default="flow", help="What a row is about.")
@option(
    "--timestamps",
    is_flag=True,
    help="Count seconds from the timestamp of the next record to mirror: one is read of each partition that is behind.",
)
@option(
    "--watch",
    type=Duration(LEAST_SECONDS),
    help=_EVERY,
)
@option(
    "--rows",
    type=Count(min=0),
    default=30,
    metavar="N",
    help="Rows per flow, most behind first (as text; JSON has all).",
)
@option("--notes", is_flag=True, help=_NOTES)
@store_option("Folder or URI of the samples, from which lag in seconds and bytes is counted.")
@output_option
@click.pass_obj
@snapshot_option
def lag(
    workspace: Workspace,
    flows: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    by: str,
    timestamps: bool,
    watch: float | None,
    rows: int,
    notes: bool,
    store: Path,
    output: str,
) -> int:
    """Show how far flows are behind, and when they will be level.

    In records, bytes and seconds, with the trend since the lag began to grow or shrink, the time until it is level
    and until retention deletes records that still wait, both with an interval. A lag is counted from the target's end
    where only this mirror writes there, else from the stored offset, which is up to one `flush_interval` of the
    workers old; that of a STOPPED connector is exact. Seconds and bytes come from the samples of `mm2mgr sample`,
    trends from earlier looks, also those of `status`, `serve` and a running `sample`. "at least" marks a sum that
    lacks partitions, or of which no worker mirrors what arrives. A heartbeat's age (with --notes) is the most that a
    record takes from end to end.

    \b
    Example:
      mm2mgr lag --by task
      mm2mgr lag logging --by partition --timestamps
    """
    from mm2mgr.output.status_text import say_lag, say_look

    watching = watch is not None

    def show(report: LagReport) -> None:
        say_look(output, report, lambda look: say_lag(look, rows, notes=notes), watching=watching)

    flows = workspace.flow_names(flows, labels)
    options = operations.LagOptions(operations.LagLevel(by), timestamps, store)
    looks = operations.watch_lag(workspace, flows, options, every_seconds=watch or 0.0)
    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    return show_looks(workspace, looks, show, lambda report: 0 if report.is_known else 1, watching=watching)


@command("Every day", 11)
@click.argument("flows", nargs=-1)
@label_option
@option("--connect", "connects", multiple=True, help="Only this Connect cluster (repeatable).")
@option("--since", type=Since(), help="Only changes of this last period, such as 2d, or since a date or time (UTC).")
@option("--last", "-n", type=Count(1), metavar="N", help="Only the newest N changes.")
@option("--full", is_flag=True, help="Show every key that changed.")
@option(
    "--forget",
    type=DurationWithUnit(),
    metavar="AGE",
    help="Delete changes that are older, such as 400d, and show them.",
)
@output_option
@click.pass_obj
def history(
    workspace: Workspace,
    flows: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    connects: tuple[str, ...],
    since: float | None,
    last: int | None,
    full: bool,
    forget: float | None,
    output: str,
) -> int:
    """Show what was changed, by whom and when, newest last.

    FLOWS may be flows of the tree, flows that it had once, or names of connectors; all by default. What `apply`,
    `reconcile` and the verbs do is kept in topic mm2mgr.history.internal, on the Kafka cluster that each Connect
    cluster runs on, without secrets. A change that stays `begun` is one of a command that was killed.

    \b
    Example:
      mm2mgr history orders --since 7d --full
      mm2mgr history --forget 400d
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.history_text import say_history

    with invalid_arguments():
        if forget is not None and (flows or labels or since is not None or last is not None):
            raise InvalidArgument(
                "forget", "deletes all that is older, so leave FLOWS, --label, --since and --last out"
            )
        report = (
            operations.history(
                workspace, workspace.flow_names(flows, labels), connects=connects, since_seconds=since, last=last
            )
            if forget is None
            else operations.forget_history(workspace, forget, connects=connects)
        )
    say_as(output, report, partial(say_history, full=full))
    return 1 if report.unread else 0


@command("Every change", 7)
@click.argument("flows", nargs=-1)
@output_option
@click.pass_obj
@snapshot_option
def drift(workspace: Workspace, flows: tuple[str, ...], output: str) -> int:
    """Show what people changed by hand since the last apply.

    Keys, states and deleted connectors: what is live is compared with what was applied last (see `history`), not with
    the tree: what is only edited there is no drift, `plan` shows it. Where no history can be read the tree is
    compared, which the output says. A connector that was paused or stopped by a command is no drift. Of secrets it is
    only known whether there is one. Connect does not record who changed something. Client quotas count as well.
    Writes nothing.

    \b
    Example:
      mm2mgr drift -o json
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.history_text import say_drift

    report = operations.drift(workspace, flows)
    say_as(output, report, say_drift)
    if report.failed or report.failed_quotas:
        return ExitCode.NO
    return ExitCode.DIFFERS if report.drifts or report.quotas else ExitCode.YES


@command("Every day", 17)
@option("--out", type=OUTPUT_FILE, required=True, help="File to write.")
@option(
    "--anonymous",
    is_flag=True,
    help="With made-up names, for strangers; a tree with the same names is written beside it.",
)
@output_option
@click.pass_obj
def snapshot(workspace: Workspace, out: Path, anonymous: bool, output: str) -> int:
    """Write what the clusters answer now to a file, secrets masked.

    With --snapshot FILE, `plan`, `status`, `describe`, `lag`, `who`, `topics`, `drift`, `lint`, `check`, `size`,
    `fleet` and `simulate` answer from it as they would have answered then, anywhere, and contact nothing: for a bug
    report, for a plan that is reviewed offline, or to see what a new version says of last night. The tree is not in
    the file.

    \b
    Example:
      mm2mgr snapshot --out night.json
      mm2mgr plan --snapshot night.json
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.history_text import say_taken

    with working("asking Connect and Kafka"):
        taken = operations.snapshot(workspace, out, anonymous=anonymous)
    say_as(output, taken, say_taken)
    return 1 if taken.failed else 0


@command("Every day", 9)
@click.argument("topic")
@option("--cluster", metavar="ALIAS", help="Kafka cluster on which it has this name. Default: where it is.")
@option("--offline", is_flag=True, help="Contact nothing: what the tree declares.")
@output_option
@click.pass_obj
@snapshot_option
def who(workspace: Workspace, topic: str, cluster: str | None, offline: bool, output: str) -> int:
    """Show who mirrors TOPIC, and where it ends up.

    Over all hops, by connectors of the tree and all others that the declared Connect clusters run: every name that
    the topic has on its way, the connector behind each, its state and owner. TOPIC may be a mirrored name, such as
    dc1.orders: then it is shown where it comes from, too. Brokers are asked whether the names are there. Connectors
    whose list names the topic, but do not mirror it, are shown with the reason.

    \b
    Example:
      mm2mgr who app.orders
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.history_text import say_routes

    with reading(workspace), invalid_arguments():
        routes = operations.who(workspace, topic, cluster=cluster, offline=offline)
    say_as(output, routes, say_routes)
    return 1 if routes.unread else 0


@command("Every day", 10)
@click.argument("flows", nargs=-1, required=True)
@option("--all", "every", is_flag=True, help="Also topics of the source that are not taken, with the reason.")
@output_option
@click.pass_obj
@snapshot_option
def topics(workspace: Workspace, flows: tuple[str, ...], every: bool, output: str) -> int:
    """Show which topics FLOWS take of their sources now.

    The brokers of source and target are asked: partitions of each topic, its name on the target, and whether it is
    there.

    \b
    Example:
      mm2mgr topics 'logging:dc1-logging->agg-east' --all
    """
    from mm2mgr.output.console import say_as
    from mm2mgr.output.history_text import say_topics

    with reading(workspace, "reading Kafka"):
        taken = operations.topics(workspace, flows, every=every)
    say_as(output, taken, say_topics)
    if any(flow.error for flow in taken):
        return ExitCode.NO
    return ExitCode.LOOK if any(flow.notes for flow in taken) else ExitCode.YES
