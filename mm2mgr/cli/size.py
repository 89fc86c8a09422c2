"""The command `size`: measured throughput → tasks per flow, in a file for review."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import (
    Count,
    Duration,
    Hours,
    command,
    evidence_options,
    option,
    output_option,
    page_option,
    snapshot_option,
    write_page,
)
from mm2mgr.errors import ExitCode
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import EvidenceOptions
    from mm2mgr.operations.size import SizingReport


@command("Load", 4)
@click.argument("flows", nargs=-1)
@evidence_options
@option("--dry-run", is_flag=True, help="Do not write overrides/sizing.yaml.")
@option(
    "--check",
    is_flag=True,
    help="Print only, and tell by the exit code whether a flow has too few tasks today (for CI).",
)
@option("--cool-down", type=Duration(), hidden=True)
@option("--off-peak", type=Hours(), hidden=True)
@option("--move-budget", type=Count(0), hidden=True)
@page_option
@output_option
@click.pass_obj
@snapshot_option
def size(
    workspace: Workspace,
    flows: tuple[str, ...],
    evidence: EvidenceOptions,
    dry_run: bool,
    check: bool,
    cool_down: float | None,
    off_peak: tuple[int, int] | None,
    move_budget: int | None,
    page: Path | None,
    output: str,
) -> int:
    """Compute tasks per flow from measured throughput, for review.

    Writes them to overrides/sizing.yaml. The smallest number whose every task fits capacity × threshold when Connect
    assigns it partitions, hour by hour, within min and limit; each number with its reason. If a topic grew since
    earlier weeks, their hours count at today's level. More tasks at once, fewer step by step, no change where nothing
    was measured. Numbers written by hand in the tree outrank the file.

    \b
    Example:
      mm2mgr size --dry-run
    """
    from mm2mgr.operations.size import size as size_flows
    from mm2mgr.output.console import talk

    if (cool_down, off_peak, move_budget) != (None, None, None):
        message = "--cool-down, --off-peak and --move-budget are options of plan and apply now, and do nothing here"
        talk(message, "yellow")
    report = size_flows(
        workspace,
        flows,
        evidence,
        write=not (dry_run or check),
        report=lambda report: _say_sizing(workspace, report, output, page),
    )
    code = _say_written(report)
    if check and report.too_small:
        from mm2mgr.output.console import complain

        complain(f"too few tasks: {', '.join(report.too_small)}", "mm2mgr size, then review and apply")
        return ExitCode.DIFFERS
    return code


def _say_sizing(workspace: Workspace, report: SizingReport, output: str, page: Path | None) -> None:
    """Print what was found, and write its page."""
    from mm2mgr.output.console import complain, say_json
    from mm2mgr.output.load_text import say_sizings

    if output == "json":
        say_json(report)
    else:
        say_sizings(report.sizings, {flow.id: flow.tasks for flow in workspace.topology.flows})
    for message in report.failures.values():
        complain(f"{message}; its flows are not sized", "their entries stay as they are")
    if page:
        write_page(page, report.views, measured=report.measured)


def _say_written(report: SizingReport) -> int:
    """Print what became of the file, and return the exit code."""
    from mm2mgr.output.console import complain, talk

    path = report.path
    if path and (report.is_changed or not report.refused):
        talk(f"{path} {'written: review it, then plan' if report.is_changed else 'is up to date'}")
    if report.refused:
        message = f"{path}: not written for {', '.join(report.refused)}: the entries changed while size was running"
        complain(message, "look at what others wrote, then run size again")
    return 1 if report.failures or report.refused else 0
