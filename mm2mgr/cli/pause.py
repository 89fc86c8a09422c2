"""The daily verbs on flows, pairs and connectors: `pause`, `resume`, `stop`, `restart` and `offsets`; and `watch`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    OUTCOME_CODES,
    CommandGroup,
    Count,
    Duration,
    Parsed,
    command,
    connector_options,
    in_help,
    option,
    output_option,
    watchdog_options,
    with_options,
)
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import Choice, FlowReset, Place, StateChange, Turned, WatchOrder


def _verb_options(command: Callable[..., object]) -> Callable[..., object]:
    return with_options(
        command,
        connector_options,
        option("--reason", default="", show_default=False, metavar="TEXT", help="Why; kept in the history."),
        option("--yes", "-y", is_flag=True, help="Do not ask where several connectors are meant."),
        option(
            "--wait",
            type=Duration(),
            default="1min",
            help="Time limit for connectors to reach the state; pause adds three flush intervals; 0: do not look.",
        ),
        output_option,
    )


class _VerbOptions(TypedDict):
    choice: Choice
    reason: str
    yes: bool
    wait: float


@command("Every day", 4)
@_verb_options
@click.pass_obj
def pause(workspace: Workspace, /, output: str, **options: Unpack[_VerbOptions]) -> int:
    """Pause flows, pairs or connectors until they are resumed.

    NAMES are flows (their source connectors), pairs (every connector of the pair) or CONNECT/CONNECTOR. Returns when
    every task is PAUSED and stored offsets have not changed over two flushes (`flush_interval` of the Connect
    cluster). `plan` shows the pause and changes nothing. A second call sends nothing. Connectors without this tree's
    owner mark are refused.

    \b
    Example:
      mm2mgr pause logging --reason 'upgrade of agg-east'
    """
    return _turn(workspace, operations.pause, "pause", output, **options)


@command("Every day", 5)
@_verb_options
@click.pass_obj
def resume(workspace: Workspace, /, output: str, **options: Unpack[_VerbOptions]) -> int:
    """Resume paused or stopped flows, pairs or connectors.

    NAMES as for `pause`. Returns when the connectors and their tasks are RUNNING.

    \b
    Example:
      mm2mgr resume logging
    """
    return _turn(workspace, operations.resume, "resume", output, **options)


@command("Every day", 6)
@_verb_options
@click.pass_obj
def stop(workspace: Workspace, /, output: str, **options: Unpack[_VerbOptions]) -> int:
    """Stop flows, pairs or connectors: they end their tasks.

    NAMES as for `pause`. Returns when they are STOPPED without a task: stored offsets are exact then, and can be
    reset. Needs Kafka 3.5.

    \b
    Example:
      mm2mgr stop 'logging:dc1-logging->agg-east'
    """
    return _turn(workspace, operations.stop, "stop", output, **options)


@command("Every day", 7)
@option("--failed", "only_failed", is_flag=True, help="Only what FAILED: single tasks, or the connector itself.")
@option(
    "--task",
    "tasks",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this task, RUNNING or not, of one flow or CONNECT/CONNECTOR (repeatable). Not with --failed.",
)
@_verb_options
@click.pass_obj
def restart(
    workspace: Workspace, /, output: str, only_failed: bool, tasks: tuple[int, ...], **options: Unpack[_VerbOptions]
) -> int:
    """Restart flows, pairs or connectors with their tasks.

    NAMES as for `pause`. Returns when all of it is seen RUNNING, or a task FAILED again (with its cause). Paused and
    stopped connectors are left alone.

    \b
    Example:
      mm2mgr restart --failed --all
      mm2mgr restart 'logging:dc1-logging->agg-east' --task 3
    """
    if tasks and only_failed:
        raise click.UsageError("--task and --failed exclude each other")
    operation = partial(operations.restart, only_failed=only_failed, tasks=tasks)
    return _turn(workspace, operation, "restart", output, **options)


def _turn(
    workspace: Workspace, operation: Callable[..., Turned], verb: str, output: str, **options: Unpack[_VerbOptions]
) -> int:
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.history_text import say_sent, say_turned, say_turns

    wait = options["wait"]

    def approve(turns: Sequence[StateChange]) -> bool:
        writes = [turn for turn in turns if turn.action == "write"]
        say_turns(turns)
        if len(writes) > 1 and not options["yes"]:
            confirm(verb, f"{verb} these {len(writes)} connectors?", output)
        return True

    with carrying_on():
        turned = operation(
            workspace,
            options["choice"],
            wait_seconds=wait,
            approve=approve,
            report=lambda turn: say_sent(turn, wait),
            reason=options["reason"],
        )
        say_as(output, turned, say_turned)
    return OUTCOME_CODES[turned.outcome]


def confirm(name: str, question: str, output: str) -> None:
    """Ask on a terminal; Mm2mgrError where there is no terminal to answer on."""
    if output == "json":
        raise Mm2mgrError(f"{name} -o json cannot ask", hint="add --yes")
    if not sys.stdin.isatty():
        raise Mm2mgrError(f"{name} asks first and there is no terminal", hint="add --yes")
    click.confirm(question[0].upper() + question[1:], abort=True, err=True)


@in_help("Every day", 8)
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
def show(workspace: Workspace, choice: Choice, output: str) -> int:
    """Show stored offset, log start and end, and lag in records of each partition.

    NAMES as for `pause`; only source connectors store offsets of records. A stored offset is that of the last
    mirrored record, and is exact while its connector is STOPPED.

    \b
    Example:
      mm2mgr offsets show 'logging:dc1-logging->agg-east' -o json
    """
    from mm2mgr.output.console import say_as, working
    from mm2mgr.output.history_text import say_offsets

    with working("reading Connect and Kafka"):
        stored = operations.offsets(workspace, choice)
    say_as(output, {"flows": stored}, lambda _: say_offsets(stored))
    return 1 if any(flow.unknown for flow in stored) else 0


def _place(text: str) -> Place:
    from mm2mgr.spec.scalars import moment

    if text.isdecimal():
        return int(text)
    if text in {"earliest", "latest"}:
        return "earliest" if text == "earliest" else "latest"
    try:
        return moment(text)
    except ValueError:
        raise ValueError(
            "is none of earliest, latest, an offset from 0 on, a time (UTC) and a time back (2h)"
        ) from None


def _group(text: str) -> Place:
    from mm2mgr.spec.scalars import of_group

    return of_group(text)


@offsets.command("reset")
@connector_options
@option(
    "--to",
    type=Parsed("place", _place),
    metavar="earliest|latest|OFFSET|TIME|2h",
    help="The next record to mirror: the first or the one after the last in each log, that of an offset, or the first"
    " one of a time (UTC) or a time back.",
)
@option(
    "--from-group",
    "of_group",
    type=Parsed("group", _group),
    metavar="GROUP",
    help="Instead of --to: the next record that this consumer group of the source reads. Partitions in which it has"
    " committed no offset are left as they are.",
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
    choice: Choice,
    to: Place | None,
    of_group: Place | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    reason: str,
    yes: bool,
    output: str,
) -> int:
    """Make stopped flows continue at other offsets of their sources' logs.

    Refused unless every connector is STOPPED (`mm2mgr stop`), and its source can be read; waits up to 30 s for its
    tasks to end. Shows how many records are mirrored again or skipped, asks, writes, and reads back. The flows stay
    stopped: `mm2mgr resume` starts them again. Needs Kafka 3.6; --from-group needs Describe on the group.

    \b
    Example:
      mm2mgr stop logging && mm2mgr offsets reset logging --topic app.orders --to earliest
      mm2mgr offsets reset logging --to 2026-11-26T10:00
      mm2mgr offsets reset logging --from-group mirrormaker1
    """
    place = to if of_group is None else of_group
    if place is None or (to is not None and of_group is not None):
        raise click.UsageError("write one of --to and --from-group")
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.history_text import say_planned_resets, say_resets

    def approve(planned: Sequence[FlowReset]) -> bool:
        say_planned_resets(planned)
        if not yes and any(flow.changes for flow in planned):
            confirm("offsets reset", "Write these offsets?", output)
        return True

    with carrying_on():
        order = operations.ResetOrder(place, topics, partitions)
        done = operations.reset_offsets(workspace, choice, order, reason=reason, approve=approve)
        say_as(output, done, say_resets)
    return 0 if done.outcome == "done" else 1


_END_SECONDS = 0.5
"""What threads get that wait for a broker, once the leases are given up."""


@command("Every day", 14)
@click.argument("flows", nargs=-1)
@option("--every", type=Duration(1), default="10s", help="Time between two looks, 10 % more or less.")
@option("--once", is_flag=True, help="End after one look; --first-wait 0s then restarts at once.")
@watchdog_options
@output_option
@click.pass_obj
def watch(
    workspace: Workspace,
    flows: tuple[str, ...],
    every: float,
    once: bool,
    order: WatchOrder,
    events: Path | None,
    output: str,
) -> int:
    """Restart FAILED tasks that a restart can cure, one by one.

    A task that FAILED because a cluster did not answer in time, a quota was used up, or a broker or leader moved, is
    restarted: that task alone, after --first-wait, then after twice as long each time, and not more often than
    --restarts within --window; after that it is left alone until it is seen to run. What FAILED for another reason
    (authentication, a missing right, a record that is too large or cannot be read, a bug) is reported once and never
    restarted. A connector with mm2mgr's Connect plugin, part of which FAILED on a worker that lacks its jar, gets
    MirrorMaker's own class within the same limits, and goes on from its stored offsets. Only connectors of this tree
    are touched.

    Of several processes with the same owner one restarts, the others stand by. Its lease is a consumer group,
    mm2mgr-OWNER-watch, on each Kafka cluster that Connect clusters run on. A Connect cluster that cannot be read is
    asked again after longer and longer pauses, 10 min at most, while the others continue. SIGTERM and Ctrl-C end it
    within two seconds.

    \b
    Example:
      mm2mgr watch --events watch.jsonl --freeze-file /run/mm2mgr/freeze
      mm2mgr watch --dry-run --once --first-wait 0s
    """
    from mm2mgr.output.console import log_lines, say_json_line, talk
    from mm2mgr.output.history_text import say_watch_round

    workspace.flows(flows)  # an unknown flow is an error before anything is asked
    rounds = operations.watch(workspace, replace(order, flows=flows), every_seconds=every, events=events)
    printed, log = "", log_lines("result")
    try:
        for done in rounds:
            if output == "json":
                say_json_line(done)
            else:
                printed = say_watch_round(done, printed, log)
            if once:
                rounds.close()
                return 1 if done.has_failed else 0
    except KeyboardInterrupt:
        with _soon():
            rounds.close()
    talk("ended")
    return 0


@contextmanager
def _soon() -> Iterator[None]:
    """Let the process end in time, also where a thread still waits for a broker that does not answer."""
    from mm2mgr.output.console import flush

    def end() -> None:
        flush()
        os._exit(0)

    timer = threading.Timer(_END_SECONDS, end)
    timer.daemon = True
    timer.start()
    yield
    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        timer.cancel()
