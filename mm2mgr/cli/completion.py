"""Completion in the shell: the command that prints its script, and the names it offers, all read from the tree.

Which parameter takes which names is the table NAMES: a new command gets completion by naming its parameter as others
do.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import click

from mm2mgr.cli.options import command
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem, ShellComplete

_PROGRAM, _VARIABLE = "mm2mgr", "_MM2MGR_COMPLETE"


def _flows(workspace: Workspace) -> Iterable[str]:
    flows = workspace.topology.flows
    return [*(flow.name for flow in flows), *(flow.id for flow in flows)]


def _connectors(workspace: Workspace) -> Iterable[str]:
    yield from _flows(workspace)
    yield from dict.fromkeys(flow.pair for flow in workspace.topology.flows)
    yield from (f"{connector.connect}/{connector.name}" for connector in workspace.connectors)


def _labels(workspace: Workspace) -> Iterable[str]:
    clusters = workspace.topology.clusters.values()
    return sorted({f"{key}={value}" for cluster in clusters for key, value in cluster.model.labels.items()})


def _clusters(workspace: Workspace) -> Iterable[str]:
    return sorted({end.alias for flow in workspace.topology.flows for end in (flow.source, flow.target)})


def _clusters_and_pairs(workspace: Workspace) -> Iterable[str]:
    yield from _clusters(workspace)
    yield from dict.fromkeys(flow.pair for flow in workspace.topology.flows)
    yield from _flows(workspace)


def _rules(_: Workspace) -> Iterable[str]:
    from mm2mgr import operations

    return [rule.id for rule in operations.lint_rules()]


def _explainable(workspace: Workspace) -> Iterable[str]:
    yield from _rules(workspace)
    yield from _flows(workspace)


NAMES: dict[str, Callable[[Workspace], Iterable[str]]] = {
    "flows": _flows,
    "only_flows": _flows,
    "flow": _flows,
    "names": _connectors,
    "labels": _labels,
    "name": _explainable,
    "connect": lambda workspace: workspace.topology.connects,
    "connects": lambda workspace: workspace.topology.connects,
    "aliases": _clusters,
    "place": _clusters_and_pairs,
    "lose_source": _clusters,
    "add_target": _clusters,
    "ignored": _rules,
}


class _Name(click.types.StringParamType):
    """A name that the tree declares. Anything may be typed: the command itself refuses what it does not know."""

    def __init__(self, names: Callable[[Workspace], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Return the names that start so; none where the tree is missing or broken."""
        from click.shell_completion import CompletionItem

        root_params = ctx.find_root().params
        try:
            workspace = Workspace(root_params["clusters"], root_params["templates"])
            names = list(dict.fromkeys(map(str, self._names(workspace))))
        except Exception:  # a shell that completes has no place for an error
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def with_names(command: click.Command) -> click.Command:
    """Let the parameters of a command complete names, as NAMES has it."""
    for parameter in command.params:
        if (names := NAMES.get(parameter.name or "")) and parameter.type is click.STRING:
            parameter.type = _Name(names)
    return command


@cache
def _shells() -> dict[str, type[ShellComplete]]:
    """Return the shells that click completes in, once it is told of ours; `--help` does without."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete, add_completion_class

    class Bash(BashComplete):
        """Quotes what it offers: `->` in the id of a flow would redirect the output. Flows have colons, which split
        words."""

        source_template = BashComplete.source_template + "\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"

        def format_completion(self, item: CompletionItem[str]) -> str:
            """Return the name as the shell shall insert it; inside quotes that were typed, without more of them."""
            is_quoted = os.environ["COMP_WORDS"].split(" ")[-1].startswith(("'", '"'))
            item.value = item.value if is_quoted else shlex.quote(item.value)
            return super().format_completion(item)

    add_completion_class(Bash)
    return {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def prepare_completion() -> None:
    """Tell click of our shells where one of them asks what to complete."""
    if _VARIABLE in os.environ:
        _shells()


@command("First hour", 5)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and names.

    It completes the names of flows, clusters, Connect clusters and lint rules, as the tree declares them.

    \b
    Example:
      eval "$(mm2mgr completion bash)"
      mm2mgr completion fish > ~/.config/fish/completions/mm2mgr.fish
    """
    from click.shell_completion import ShellComplete

    from mm2mgr.output.console import say_lines

    root = context.find_root().command
    say_lines(ShellComplete.source(_shells()[shell](root, {}, _PROGRAM, _VARIABLE)))
