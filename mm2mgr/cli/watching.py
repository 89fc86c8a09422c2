"""How status and describe go about it: looks through `mm2mgr.observe`, printed from its `to_dict()`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.status import acknowledge, describe, status
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import say_json, say_json_line, talk, working
from mm2mgr.output.status_text import say_description, say_look, say_status


def read_status(workspace: Workspace, names: Sequence[str]) -> dict[str, Any]:
    """Return the status of the named flows as JSON-ready values."""
    return asyncio.run(status(workspace.topology, workspace.connectors, only=workspace.only(names))).to_dict()


def run_status(
    workspace: Workspace, names: Sequence[str], *, watch_seconds: float | None, acknowledge: Sequence[str], output: str
) -> int:
    """Acknowledge what is to be, then print the status; return 1 when something is wrong or could not be read.

    With `watch_seconds` print one after the other until Ctrl-C, and return what the last whole look returned.
    """
    if acknowledge:
        _acknowledge(workspace, names, acknowledge)
    code: int | None = None
    try:
        while True:
            with working("reading Connect and Kafka") if code is None else nullcontext():
                found = read_status(workspace, names)
            code = _code(found["health"])  # before it is printed: who sees a look and interrupts means this one
            _print(found, output, watching=watch_seconds is not None)
            if watch_seconds is None:
                return code
            time.sleep(watch_seconds)
    except KeyboardInterrupt:
        if code is None:
            raise
        return code


def run_describe(workspace: Workspace, name: str, *, output: str) -> int:
    """Print everything about one flow; return 1 when it has a problem."""
    flows = workspace.flows((name,))
    if len(flows) > 1:
        raise Mm2mgrError(
            f"'{name}' means {len(flows)} flows", hint=f"name one: {', '.join(flow.id for flow in flows)}"
        )
    with working("reading Connect and Kafka"):
        found = asyncio.run(describe(workspace.topology, workspace.connectors, flows[0])).to_dict()
    _warn(found["warnings"])
    if output == "json":
        say_json(found)
    else:
        say_description(found)
    return _code(found["status"]["health"])


def _acknowledge(workspace: Workspace, names: Sequence[str], ids: Sequence[str]) -> None:
    for loss in acknowledge(workspace.topology, ids, only=workspace.only(names)):
        talk(f"acknowledged {loss.id}: {loss.flow}: {loss.detail()}")


def _print(found: dict[str, Any], output: str, *, watching: bool) -> None:
    _warn(found["warnings"])
    if output == "text":
        if watching:
            say_look(found["taken_at"])
        say_status(found)
    elif watching:
        say_json_line(found)
    else:
        say_json(found)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        talk(f"warning: {warning}", style="bold yellow")


def _code(health: str) -> int:
    return 1 if health in {"problem", "unknown"} else 0
