"""The commands `plan`, `apply` and `reconcile`: apply asks before it writes, and an interrupt ends it in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.interrupts import ending_in_order
from mm2mgr.cli.options import (
    FILE,
    OUTCOME_CODES,
    OUTPUT_FILE,
    Count,
    Duration,
    change_options,
    command,
    events_option,
    invalid_arguments,
    label_option,
    option,
    output_in,
    output_option,
    reason_option,
    snapshot_option,
    store_option,
)
from mm2mgr.errors import ExitCode, Mm2mgrError
from mm2mgr.operations.workspace import Workspace
from mm2mgr.text import span_text

if TYPE_CHECKING:
    from mm2mgr.operations import Plan, PlanOptions


@command("Every change", 5)
@click.argument("flows", nargs=-1)
@change_options
@label_option
@option("--full", is_flag=True, help="Show every key of connectors that are created or deleted.")
@option("--explain", is_flag=True, help="Show the steps in which each change is made.")
@option("--out", type=OUTPUT_FILE, help="Write the plan to a file for review and apply.")
@option(
    "--show",
    "saved",
    type=FILE,
    help="Print the plan that --out wrote to this file, of the values that apply compares; no cluster is asked.",
)
@option(
    "--detailed-exitcode",
    is_flag=True,
    help="Tell by the exit code whether there are changes, or connectors that are no longer declared.",
)
@output_in("text", "json", "markdown")
@click.pass_obj
@snapshot_option
def plan(
    workspace: Workspace,
    flows: tuple[str, ...],
    options: PlanOptions,
    labels: tuple[tuple[str, str], ...],
    full: bool,
    explain: bool,
    out: Path | None,
    saved: Path | None,
    detailed_exitcode: bool,
    output: str,
) -> int:
    """Show what would change on the Connect clusters. Writes nothing.

    FLOWS, --flow or --label, as in `apply`, limits the plan to some flows. Blocked are flows that their workers would
    refuse or write to another Kafka, and more deletes than --prune may make. Updates that only save tasks (`size` found
    fewer to be enough) wait for `cool_down` and `off_peak` of `tasks:` in the tree, and for its `move_budget`.

    Costly kinds of change are blocked, with what they cost, until --allow or the flow's `allow` permits them. `-o
    markdown` is meant for a pull request: less than 60 kB, without secrets.

    \b
    Example:
      mm2mgr plan --out plan.json --detailed-exitcode
    """
    from mm2mgr.output.console import talk

    if saved:
        is_bare = not (flows or labels or out or detailed_exitcode or workspace.snapshot)
        if not is_bare or options != operations.PlanOptions():
            raise click.UsageError("--show prints a saved plan as it is: no other option of planning goes with it")
        _show_saved(saved, output, full=full, explain=explain)
        return ExitCode.YES
    options = replace(options, flows=(*flows, *options.flows), labels=labels)
    with _error_as_page(output) as shown:
        plan = _make_plan(
            workspace, options, out, _shown_as(output, workspace, options, shown, full=full, explain=explain)
        )
    if out:
        talk(f"plan written to {out}; apply it with: mm2mgr apply {out}")
    if plan.has_failed:
        return ExitCode.NO
    return ExitCode.DIFFERS if detailed_exitcode and (not plan.is_empty or plan.left_over) else ExitCode.YES


@contextmanager
def _error_as_page(output: str) -> Iterator[list[Plan]]:
    """Print an error as Markdown too where that was asked for and no plan was shown, so that what a pull request gets
    is never empty; yields the list for plans that were shown."""
    shown: list[Plan] = []
    try:
        yield shown
    except Mm2mgrError as error:
        from mm2mgr.output.console import say_lines
        from mm2mgr.output.plan_markdown import error_markdown

        if output == "markdown" and not shown:
            say_lines(error_markdown(error))
        raise


def _shown_as(
    output: str, workspace: Workspace, options: PlanOptions, shown: list[Plan], *, full: bool, explain: bool
) -> Callable[[Plan], None]:
    """Return what prints a plan in this form, and adds it to those that were shown."""
    from mm2mgr.output.console import say_json, say_lines
    from mm2mgr.output.plan_text import say_plan, say_topology

    def show(plan: Plan) -> None:
        if output == "json":
            say_json(plan)
        elif output == "markdown":
            from mm2mgr.output.plan_markdown import plan_markdown

            say_lines(plan_markdown(plan))
        else:
            if not (options.flows or options.labels):
                say_topology(workspace.flow_matrix)
            say_plan(plan, full=full, explain=explain)
        shown.append(plan)

    return show


def _make_plan(workspace: Workspace, options: PlanOptions, out: Path | None, show: Callable[[Plan], None]) -> Plan:
    """Plan, and say on stderr what the tree ignores and what caps a flow."""
    from mm2mgr.output.console import talk

    for entry in workspace.topology.stale_sizing:
        talk(f"overrides: flow '{entry}' is no longer declared; its sizing is ignored, and mm2mgr size removes it")
    for entry in workspace.topology.stale_brokers:
        undeclared = f"overrides: cluster '{entry}' is no longer declared"
        talk(f"{undeclared}; its limits are ignored, and mm2mgr link read removes them")
    if any(cluster.limits.read for cluster in workspace.topology.clusters.values()):
        for line in operations.buffer_advice(workspace.flows(options.only(workspace) or ())):
            talk(f"link: {line}")
    return operations.plan(workspace, options, out=out, report=show)


def _show_saved(file: Path, output: str, *, full: bool, explain: bool) -> None:
    """Print a plan that was saved as it was printed when it was made, and then what it was saved with."""
    from mm2mgr.output.console import say, say_json, say_lines
    from mm2mgr.output.plan_markdown import plan_markdown, saved_markdown
    from mm2mgr.output.plan_text import making_texts, say_plan, say_topology

    saved = operations.saved_plan(file)
    if output == "json":
        say_json(saved)
    elif output == "markdown":
        say_lines(f"{plan_markdown(saved.as_shown)}\n{saved_markdown(saved)}")
    else:
        if saved.matrix:
            say_topology(saved.matrix)
        say_plan(saved.as_shown, full=full, explain=explain)
        for line in making_texts(saved):
            say(line)


@command("Every change", 6)
@click.argument("planfile", type=FILE, required=False)
@change_options
@label_option
@option("--yes", "-y", is_flag=True, help="Do not ask. Needed without a terminal, unless a PLANFILE is given.")
@option(
    "--wait",
    type=Duration(),
    default="30s",
    help="Time to wait after each wave until its connectors are seen to run with their new config; 0: do not look.",
)
@option(
    "--canary",
    multiple=True,
    metavar="FLOW",
    help="Write the connectors of this flow first; others only when it is good.",
)
@option(
    "--at-once", type=Count(min=1), metavar="N", help="Write at most N connectors of a Connect cluster in one wave."
)
@option("--pause-between", type=Duration(), default="0s", help="Time between two waves of a Connect cluster.")
@option(
    "--rollback", is_flag=True, help="Take back what was written on a Connect cluster where a wave breaks a connector."
)
@reason_option
@events_option
@output_option
@click.pass_obj
def apply(
    workspace: Workspace,
    planfile: Path | None,
    options: PlanOptions,
    labels: tuple[tuple[str, str], ...],
    yes: bool,
    wait: float,
    canary: tuple[str, ...],
    at_once: int | None,
    pause_between: float,
    rollback: bool,
    reason: str,
    events: Path | None,
    output: str,
) -> int:
    """Make the Connect clusters run what the tree declares.

    A second apply writes nothing. With a PLANFILE (from `plan --out`) just that reviewed plan is applied, and refused
    if tree or live state changed since (inline secrets excepted, which a plan file does not hold). A Connect cluster
    that cannot be read holds up no other. Updates that only save tasks wait for `cool_down` and `off_peak`
    of `tasks:` in the tree, and for its `move_budget`; those of a PLANFILE as it says. Connectors without this tree's owner mark are never touched, nor
    those whose config changed since the plan. Each Connect cluster is written in waves: heartbeats, sources,
    checkpoints, deletes. A wave that breaks a connector halts its Connect cluster (--rollback takes back what was
    written there); one whose connectors are not seen to run within --wait pauses it for a person (apply again
    continues). The other Connect clusters continue.

    While it writes it holds the lease that `reconcile` of this owner holds, too; where another process has it, that
    is named, and after 12 s nothing is written.

    Ctrl-C (SIGTERM, SIGHUP) begins no new change, ends those that were begun, and says what is left; a second one
    stops at once.

    \b
    Example:
      mm2mgr plan --out plan.json
      mm2mgr apply plan.json --canary orders --rollback
    """
    from mm2mgr.output.apply_text import say_applied, say_event
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.plan_text import say_plan

    def approve(plan: Plan) -> bool:
        if output == "text":
            say_plan(plan)
        if not plan.is_empty and not (yes or planfile):
            _confirm(output)
        return True

    sentence = (
        f"interrupted: no new change begins, those in progress have {span_text(operations.FINISH_SECONDS)} to finish"
    )
    with carrying_on(), invalid_arguments():
        applied = operations.apply(
            workspace,
            planfile,
            replace(options, labels=labels),
            wait_seconds=wait,
            at_once=at_once,
            canary=canary,
            pause_seconds=pause_between,
            rollback=rollback,
            approve=approve,
            report=say_event,
            interrupts=lambda so_far: ending_in_order(
                sentence, "bold red", lambda: say_as(output, so_far(), say_applied)
            ),
            reason=reason,
            events=events,
        )
        say_as(output, applied, say_applied)
    return ExitCode.INTERRUPTED if applied.interrupted else OUTCOME_CODES[applied.outcome]


def _confirm(output: str) -> None:
    from mm2mgr.output.console import is_result_printed

    hint = "add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE"
    if output == "json":
        raise Mm2mgrError("apply -o json shows no plan to confirm", hint=hint)
    if not sys.stdin.isatty():
        raise Mm2mgrError("apply asks before it writes and there is no terminal", hint=hint)
    if not is_result_printed():
        message = "apply asks before it writes, and the plan could not be shown: stdout cannot be written"
        raise Mm2mgrError(message, hint=hint)
    click.confirm("Apply this plan?", abort=True, err=True)


@command("Every day", 12)
@change_options
@option("--every", type=Duration(1), default="60s", help="Time between two rounds, 10 % more or less.")
@option(
    "--once",
    is_flag=True,
    help="End after one round, with its exit code; with --prune after those that its deletes need.",
)
@option("--report-only", is_flag=True, help="Write nothing, and take no lease: only say what would change.")
@option("--wait", type=Duration(), default="30s", help="As in apply: time to see written connectors run.")
@option("--rollback", is_flag=True, help="As in apply: take back what a wave that breaks a connector wrote.")
@option("--rebalance", is_flag=True, help="Rebalance too, where and when `balance` of the tree allows it.")
@option(
    "--freeze-file", type=click.Path(path_type=Path), help="With --rebalance: nothing is rebalanced while it exists."
)
@store_option("With --rebalance: folder or URI of the samples, rolled up.")
@reason_option
@events_option
@output_option
@click.pass_obj
def reconcile(
    workspace: Workspace,
    options: PlanOptions,
    every: float,
    once: bool,
    report_only: bool,
    wait: float,
    rollback: bool,
    rebalance: bool,
    freeze_file: Path | None,
    store: Path,
    reason: str,
    events: Path | None,
    output: str,
) -> int:
    """Apply the tree again and again, and repair changes made by hand.

    The tree is read anew each round; one with mistakes is reported, and nothing is written. What `apply` would block
    is blocked here, too: nothing is deleted without --prune, and with it only what the tree still leaves out when it
    is read again a minute later. Of several processes with the same owner one writes, the others stand by; when it
    ends or crashes, another takes over within about 10 s. The lease is a consumer group, mm2mgr-OWNER, on each Kafka
    cluster that Connect clusters run on. A Connect cluster that fails is tried again after longer and longer pauses,
    10 min at most, while the others continue.

    With --rebalance each round then looks at the load and lag of flows with `balance: plugin`, and writes another
    assignment as `rebalance` does, within the hours, the cool-down and the rounds per day that the tree has; rounds are
    counted in the history, and without it nothing is rebalanced.

    SIGTERM and Ctrl-C end it after the changes that were begun.

    \b
    Example:
      mm2mgr reconcile --every 60s --events events.jsonl
      mm2mgr reconcile --report-only --once
    """
    from mm2mgr.output.apply_text import log_events
    from mm2mgr.output.console import log_lines, say_json_line, talk
    from mm2mgr.output.history_text import say_round

    if not rebalance and freeze_file:
        raise click.UsageError("--freeze-file needs --rebalance")
    if rebalance and report_only:
        raise click.UsageError("--rebalance writes, and --report-only does not: leave one out")
    flows = tuple(options.flows)
    balance = operations.RebalanceOrder(flows, freeze_file, wait, store, reason) if rebalance else None
    order = operations.ReconcileOrder(options, every, wait, rollback, report_only, reason, balance)
    rounds = operations.reconcile(
        workspace,
        order,
        events=events,
        report=log_events("reconcile", log_lines()),
        interrupts=lambda _: ending_in_order("ending: no new change begins", "dim", lambda: None),
    )
    printed, log = "", log_lines("result")
    try:
        for done in rounds:
            if output == "json":
                say_json_line(done)
            else:
                printed = say_round(done, printed, log)
            if once and not done.deletes_wait:
                return OUTCOME_CODES[done.outcome]
    except KeyboardInterrupt:
        pass
    finally:
        rounds.close()
    talk("ended")
    return 0
