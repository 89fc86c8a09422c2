"""The command group `offsets`: where flows are in their sources' logs, and changing that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mm2mgr import operations
from mm2mgr.cli.options import CommandGroup, Count, connector_options, in_help, option, output_option
from mm2mgr.cli.pause import confirm
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import FlowReset, Place


@in_help("Every day", 7)
@click.group(cls=CommandGroup)
def offsets() -> None:
    """Show or reset the stored offsets of flows.

    \b
    Example:
      mm2mgr offsets show logging
    """


@offsets.command("show")
@connector_options
@output_option
@click.pass_obj
def show(
    workspace: Workspace, names: tuple[str, ...], labels: tuple[tuple[str, str], ...], everything: bool, output: str
) -> int:
    """Show stored offset, log start and end, and lag in records of each partition.

    NAMES as for `pause`; only source connectors store offsets of records. A stored offset is that of the last
    mirrored record, and is exact while its connector is STOPPED.

    \b
    Example:
      mm2mgr offsets show 'logging:dc1-logging->agg-east' -o json
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.verbs_text import say_offsets

    choice = operations.Choice(names, dict(labels), everything)
    with working("reading Connect and Kafka"):
        stored = operations.offsets(workspace, choice)
    say_as(output, {"flows": stored}, lambda _: say_offsets(stored))
    return 1 if any(flow.unknown for flow in stored) else 0


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """`earliest`, `latest` or an offset."""

    name = "place"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        text = str(value)
        if text not in {"earliest", "latest"} and not text.isdecimal():
            self.fail(f"{text!r} is none of earliest, latest and an offset from 0 on", param, ctx)
        return "earliest" if text == "earliest" else "latest" if text == "latest" else int(text)


@offsets.command("reset")
@connector_options
@option(
    "--to",
    type=_Place(),
    required=True,
    metavar="earliest|latest|OFFSET",
    help="The next record to mirror: the first or the one after the last in each log, or that of an offset.",
)
@option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this source topic (repeatable).")
@option(
    "--partition", "partitions", type=Count(0), multiple=True, metavar="N", help="Only this partition (repeatable)."
)
@option("--reason", default="", show_default=False, metavar="TEXT", help="Why; kept in the history.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option
@click.pass_obj
def reset(
    workspace: Workspace,
    names: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    everything: bool,
    to: Place,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    reason: str,
    yes: bool,
    output: str,
) -> int:
    """Make stopped flows continue at other offsets of their sources' logs.

    Refused unless every connector is STOPPED (`mm2mgr stop`), and its source can be read; waits up to 30 s for its
    tasks to end. Shows how many records are mirrored again or skipped, asks, writes, and reads back. The flows stay
    stopped: `mm2mgr resume` starts them again. Needs Kafka 3.6.

    \b
    Example:
      mm2mgr stop logging && mm2mgr offsets reset logging --topic app.orders --to earliest
    """
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.verbs_text import say_planned_resets, say_resets

    choice = operations.Choice(names, dict(labels), everything)

    def approve(planned: Sequence[FlowReset]) -> bool:
        say_planned_resets(planned)
        if not yes and any(flow.changes for flow in planned):
            confirm("offsets reset", "Write these offsets?", output)
        return True

    with carrying_on():
        order = operations.ResetOrder(to, topics, partitions)
        done = operations.reset_offsets(workspace, choice, order, reason=reason, approve=approve)
        say_as(output, done, say_resets)
    return 0 if done.outcome == "done" else 1
