"""The daily verbs `pause`, `resume`, `stop` and `restart`, on flows, pairs and single connectors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mm2mgr import operations
from mm2mgr.cli.options import (
    OUTCOME_CODES,
    Decorated,
    Duration,
    command,
    connector_options,
    option,
    output_option,
    with_options,
)
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.operations import StateChange, Turned


def _verb_options(command: Decorated) -> Decorated:
    """Add what all verbs share: which connectors, why, and how long to wait."""
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
    """What these options become."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    everything: bool
    reason: str
    yes: bool
    wait: float


@command("Every day", 3)
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


@command("Every day", 4)
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


@command("Every day", 5)
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


@command("Every day", 6)
@option("--failed", "only_failed", is_flag=True, help="Only what FAILED: single tasks, or the connector itself.")
@_verb_options
@click.pass_obj
def restart(workspace: Workspace, /, output: str, only_failed: bool, **options: Unpack[_VerbOptions]) -> int:
    """Restart flows, pairs or connectors with their tasks.

    NAMES as for `pause`. Returns when all of it is seen RUNNING, or a task FAILED again (with its cause). Paused and
    stopped connectors are left alone.

    \b
    Example:
      mm2mgr restart --failed --all
    """
    return _turn(workspace, partial(operations.restart, only_failed=only_failed), "restart", output, **options)


def _turn(
    workspace: Workspace, operation: Callable[..., Turned], verb: str, output: str, **options: Unpack[_VerbOptions]
) -> int:
    from mm2mgr.output.console import carrying_on, say_as
    from mm2mgr.output.verbs_text import say_sent, say_turned, say_turns

    choice, wait = operations.Choice(options["names"], dict(options["labels"]), options["everything"]), options["wait"]

    def approve(turns: Sequence[StateChange]) -> bool:
        writes = [turn for turn in turns if turn.action == "write"]
        say_turns(turns)
        if len(writes) > 1 and not options["yes"]:
            confirm(verb, f"{verb} these {len(writes)} connectors?", output)
        return True

    with carrying_on():
        turned = operation(
            workspace,
            choice,
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
