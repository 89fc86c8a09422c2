"""How `apply` goes about it: plan anew, check against the reviewed plan, ask, write, wait, say what is left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import click

from mm2mgr.cli.interrupts import INTERRUPTED, halting
from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations.restarts import with_restarts_held
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import carrying_on, flush, say, say_json, shown, talk
from mm2mgr.output.plan_text import say_plan
from mm2mgr.reconcile.apply import FINISH_SECONDS, Result, apply_plan, read_back
from mm2mgr.reconcile.live import make_plan
from mm2mgr.reconcile.plan import Change, Named, Plan, Wish, few
from mm2mgr.reconcile.planfile import as_reviewed, read_plan
from mm2mgr.reconcile.restarts import RestartRules, with_waiting
from mm2mgr.reconcile.settle import States, settle

INCONCLUSIVE = 3
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}
_ALIKE = 5  # more connectors of one state share a line


@dataclass(frozen=True)
class Order:
    """What the user asked `apply` for."""

    planfile: Path | None = None
    flows: tuple[str, ...] = ()
    wish: Wish = field(default_factory=Wish)
    restarts: RestartRules = field(default_factory=RestartRules)
    yes: bool = False
    wait_seconds: float = 30.0
    output: str = "text"


def _unwind(_: int) -> NoReturn:
    raise KeyboardInterrupt


def run_apply(workspace: Workspace, order: Order, leave: Callable[[int], NoReturn] = _unwind) -> int:
    """Apply and return the exit code. `leave` is called for a second signal, when all is said."""
    plan, workspace = _plan(workspace, order)
    with carrying_on():
        if order.output == "text":
            say_plan(plan.to_dict())
        if plan.writes and not (order.yes or order.planfile):
            _confirm(order.output)
        account = _Account(plan)
        interrupted = asyncio.run(_write(workspace, order, account, leave))
        code = account.close(order.output)
    return INTERRUPTED if interrupted else code


async def _write(workspace: Workspace, order: Order, account: _Account, leave: Callable[[int], NoReturn]) -> bool:
    """Write and wait for states; return whether a signal cut that short."""

    def first() -> None:
        talk(
            f"interrupted: no new change is begun, those that were have {FINISH_SECONDS:.0f} s to end "
            "(interrupt again to stop at once)",
            style="bold red",
        )

    def second() -> NoReturn:
        account.close(order.output)
        flush()
        leave(INTERRUPTED)

    with halting(first, second) as halt:
        await apply_plan(workspace.topology, account.plan, report=account.take, begin=account.begin, halt=halt)
        if order.wait_seconds > 0 and account.done and not halt.is_set():
            talk(f"waiting up to {order.wait_seconds:.0f} s for the written connectors to run")
            waits = settle(workspace.topology, account.done, timeout_seconds=order.wait_seconds, states=account.states)
            either = [asyncio.ensure_future(waits), asyncio.ensure_future(halt.wait())]
            ended, unfinished = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in unfinished:
                task.cancel()
            for task in ended:
                task.result()
        for result in await read_back(workspace.topology, account.done):
            account.take(result)
        return halt.is_set()


def _plan(workspace: Workspace, order: Order) -> tuple[Plan, Workspace]:
    if order.planfile is None:
        only = workspace.only(order.flows)
        made = asyncio.run(
            make_plan(workspace.topology, workspace.connectors, order.wish, only=only, spec=workspace.spec)
        )
        return with_restarts_held(workspace, made, order.restarts), workspace
    if order.flows or order.wish != Wish() or order.restarts != RestartRules():
        raise Mm2mgrError(
            "a PLANFILE says itself which flows it is for, whether to prune or mirror again, which deletes are meant, and what waits",
            hint="leave the options out",
        )
    document = read_plan(order.planfile)
    templates = Path(document.templates) if document.templates else None
    if workspace.named_by_option and (tuple(map(str, workspace.files)), workspace.templates) != (
        document.clusters,
        templates,
    ):
        raise Mm2mgrError(
            f"{order.planfile} was made from another tree or templates: {', '.join(document.clusters)}",
            hint="leave --clusters and --templates out, or make a plan of the tree you name",
        )
    workspace = Workspace(tuple(Path(file) for file in document.clusters), templates)
    plan = asyncio.run(
        make_plan(workspace.topology, workspace.connectors, document.wish, only=document.only, spec=workspace.spec)
    )
    return as_reviewed(document.plan, with_waiting(plan, document.waiting)), workspace


def _confirm(output: str) -> None:
    if output == "json":
        raise Mm2mgrError(
            "apply -o json shows no plan to confirm", hint="add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE"
        )
    if not sys.stdin.isatty():
        raise Mm2mgrError(
            "apply asks before it writes and there is no terminal",
            hint="add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE",
        )
    if not shown():
        raise Mm2mgrError(
            "apply asks before it writes, and the plan could not be shown: stdout cannot be written",
            hint="add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE",
        )
    click.confirm("Apply this plan?", abort=True, err=True)


@dataclass
class _Account:
    """What has become of a plan so far: complete at any moment, also when the command is stopped in the middle."""

    plan: Plan
    begun: set[Named] = field(default_factory=set)
    results: dict[Named, Result] = field(default_factory=dict)
    states: States = field(default_factory=dict)

    def begin(self, change: Change) -> None:
        self.begun.add((change.connect, change.connector))

    def take(self, result: Result) -> None:
        """Take in a result, and say it; a later one of the same connector counts."""
        self.results[result.connect, result.connector] = result
        if result.doubt:
            talk(f"{result.connect}: {result.connector}: {result.doubt}", style="yellow")
        elif result.error is None:
            talk(f"{result.connect}: {_DONE[result.action]} {result.connector} ({result.seconds:.1f} s)")
        else:
            talk(f"{result.connect}: {result.action} of {result.connector} failed: {result.error}", style="bold red")

    @property
    def done(self) -> list[Result]:
        return [result for result in self.results.values() if result.error is None]

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results.values() if result.error is not None]

    @property
    def left(self) -> list[Change]:
        return [change for change in self.plan.writes if (change.connect, change.connector) not in self.begun]

    @property
    def unfinished(self) -> list[Change]:
        """What a second signal cut off: nobody knows how far it got."""
        named = self.begun - self.results.keys()
        return [change for change in self.plan.writes if (change.connect, change.connector) in named]

    def close(self, output: str) -> int:
        """Say how it ended, and return the exit code."""
        (self._say_json if output == "json" else self._say_text)()
        verdicts = {settled.verdict for settled in self.states.values()}
        if self.failed or self.left or self.unfinished or self.plan.failed or "failed" in verdicts:
            return 1
        return INCONCLUSIVE if "inconclusive" in verdicts or any(result.doubt for result in self.done) else 0

    def _say_json(self) -> None:
        results = []
        for name, result in self.results.items():
            settled = self.states.get(name)
            shown = {"state": settled.state, "verdict": settled.verdict} if settled else {"state": "", "verdict": ""}
            results.append({**result.to_dict(), **shown})
        say_json(
            {
                "results": results,
                "left": [change.connector for change in self.left],
                "unfinished": [change.connector for change in self.unfinished],
                "failed_clusters": self._unread(),
                "blocked": [change.to_dict() for change in self.plan.changes if change.action == "blocked"],
                "notes": [note for cluster in self.plan.clusters for note in cluster.notes],
            }
        )

    def _say_text(self) -> None:
        self._say_states()
        for result in self.done:
            if result.doubt:
                say(f"{result.connect}/{result.connector}: {result.doubt}", style="yellow")
        for result in self.failed:
            say(f"failed: {result.connect}/{result.connector}: {result.error}", style="bold red")
            if result.hint:
                say(f"        {result.hint}")
        for change in self.unfinished:
            say(f"unfinished: {change.action} {change.connect}/{change.connector}", style="bold red")
        for change in self.left:
            say(f"left: {change.action} {change.connect}/{change.connector}", style="bold yellow")
        say(
            "; ".join((f"Applied: {len(self.done)} of {len(self.plan.writes)} changes", *self._not_in_it())),
            style="bold",
        )
        if self.failed or self.left or self.unfinished:
            say("Apply again to converge; what is done already will not be written a second time.")

    def _say_states(self) -> None:
        """Say each state that is not RUNNING; where many connectors show the same, in one line."""
        names: dict[tuple[str, str, str], list[str]] = {}
        for (connect, connector), settled in sorted(self.states.items()):
            if settled.state != "RUNNING":
                names.setdefault((connect, settled.state, settled.verdict), []).append(connector)
        for (connect, state, verdict), connectors in names.items():
            style = {"failed": "red", "ok": None}.get(verdict, "yellow")
            if len(connectors) > _ALIKE:
                say(f"{connect}: {len(connectors)} connectors: {state} ({few(connectors)})", style=style)
                continue
            for connector in connectors:
                say(f"{connect}/{connector}: {state}", style=style)

    def _not_in_it(self) -> Iterable[str]:
        """Say what the number of applied changes does not show."""
        wrong = [settled.verdict for settled in self.states.values()]
        for verdict, what in (("failed", "FAILED or lost afterwards"), ("inconclusive", "not seen to run yet")):
            if verdict in wrong:
                yield f"{wrong.count(verdict)} of them {what}"
        blocked = self.plan.counts()["blocked"]
        if blocked:
            yield f"{blocked} more blocked"
        if self.plan.left_over:
            yield f"{self.plan.left_over} no longer declared and still there (--prune deletes)"
        unread = [f"'{name}'" for name in self._unread()]
        if len(unread) == 1:
            yield f"Connect cluster {unread[0]} could not be read, its changes are not in this number"
        elif unread:
            yield f"Connect clusters {', '.join(unread)} could not be read, their changes are not in this number"

    def _unread(self) -> list[str]:
        return [cluster.connect for cluster in self.plan.clusters if cluster.error]
