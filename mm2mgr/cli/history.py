"""The commands `history` and `drift`."""

from __future__ import annotations

from functools import partial

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    Count,
    Duration,
    DurationWithUnit,
    command,
    invalid_arguments,
    option,
    output_option,
    snapshot_option,
)
from mm2mgr.errors import ExitCode, InvalidArgument
from mm2mgr.operations.workspace import Workspace


@command("Every day", 10)
@click.argument("flows", nargs=-1)
@option("--connect", "connects", multiple=True, help="Only this Connect cluster (repeatable).")
@option("--since", type=Duration(), help="Only changes of this last period, such as 2d.")
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
        if forget is not None and (flows or since is not None or last is not None):
            raise InvalidArgument("forget", "deletes all that is older, so leave FLOWS, --since and --last out")
        report = (
            operations.history(workspace, flows, connects=connects, since_seconds=since, last=last)
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
