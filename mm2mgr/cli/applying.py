"""How `apply` goes about it: plan anew, check against the reviewed plan, ask, write, wait, say what is left."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from mm2mgr.cli.estate import Estate
from mm2mgr.errors import Mm2mgrError
from mm2mgr.output.console import say, say_json, talk
from mm2mgr.output.plan_text import say_plan
from mm2mgr.reconcile.apply import Result, apply_plan, settle
from mm2mgr.reconcile.live import make_plan
from mm2mgr.reconcile.plan import Plan, Wish
from mm2mgr.reconcile.planfile import read_plan, refuse_stale

INTERRUPTED = 130
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}


@dataclass(frozen=True)
class Order:
    """What the user asked `apply` for."""

    planfile: Path | None = None
    flows: tuple[str, ...] = ()
    prune: bool = False
    mirror_again: bool = False
    yes: bool = False
    wait_seconds: float = 30.0
    output: str = "text"


def run_apply(estate: Estate, order: Order) -> int:
    """Apply and return the exit code."""
    plan, estate = _plan(estate, order)
    if order.output == "text":
        say_plan(plan.to_dict())
    if plan.writes and not (order.yes or order.planfile):
        _confirm(order.output)
    results: list[Result] = []
    states: dict[tuple[str, str], str] = {}

    async def write() -> None:
        def report(result: Result) -> None:
            results.append(result)
            _tell(result)

        await apply_plan(estate.topology, plan, report=report)
        if order.wait_seconds > 0 and any(result.error is None for result in results):
            talk(f"waiting up to {order.wait_seconds:.0f} s for the written connectors to run")
            states.update(await settle(estate.topology, results, timeout_seconds=order.wait_seconds))

    interrupted = False
    try:
        asyncio.run(write())
    except KeyboardInterrupt:
        interrupted = True
        talk("interrupted", style="bold red")
    code = _close(plan, results, states, order.output)
    return INTERRUPTED if interrupted else code


def _plan(estate: Estate, order: Order) -> tuple[Plan, Estate]:
    if order.planfile is None:
        wish, only = Wish(order.prune, order.mirror_again), estate.only(order.flows)
        return asyncio.run(make_plan(estate.topology, estate.connectors, wish, only=only, spec=estate.spec)), estate
    if order.flows or order.prune or order.mirror_again:
        raise Mm2mgrError(
            "a PLANFILE says itself which flows it is for, and whether to prune or mirror again",
            hint="leave the options out",
        )
    document = read_plan(order.planfile)
    templates = Path(document.templates) if document.templates else None
    if estate.named_by_option and (tuple(map(str, estate.files)), estate.templates) != (document.clusters, templates):
        raise Mm2mgrError(
            f"{order.planfile} was made from another tree or templates: {', '.join(document.clusters)}",
            hint="leave --clusters and --templates out, or make a plan of the tree you name",
        )
    estate = Estate(tuple(Path(file) for file in document.clusters), templates)
    wish = Wish(bool(document.plan.get("prune")), bool(document.plan.get("mirror_again")))
    plan = asyncio.run(make_plan(estate.topology, estate.connectors, wish, only=document.only, spec=estate.spec))
    refuse_stale(document.plan, plan)
    return plan, estate


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
    click.confirm("Apply this plan?", abort=True, err=True)


def _tell(result: Result) -> None:
    if result.error is None:
        talk(f"{result.connect}: {_DONE[result.action]} {result.connector} ({result.seconds:.1f} s)")
    else:
        talk(f"{result.connect}: {result.action} of {result.connector} failed: {result.error}", style="bold red")


def _close(plan: Plan, results: list[Result], states: dict[tuple[str, str], str], output: str) -> int:
    failed = [result for result in results if result.error is not None]
    told = {(result.connect, result.connector) for result in results}
    left = [change for change in plan.writes if (change.connect, change.connector) not in told]
    broken = {name: state for name, state in states.items() if "FAILED" in state}
    if output == "json":
        done = [{**r.to_dict(), "state": states.get((r.connect, r.connector), "")} for r in results]
        blocked = [change.to_dict() for change in plan.changes if change.action == "blocked"]
        notes = [note for cluster in plan.clusters for note in cluster.notes]
        left_names = [change.connector for change in left]
        say_json(
            {"results": done, "left": left_names, "failed_clusters": _unread(plan), "blocked": blocked, "notes": notes}
        )
    else:
        for (connect, connector), state in sorted(states.items()):
            if state != "RUNNING":
                say(f"{connect}/{connector}: {state}", style="red" if "FAILED" in state else "yellow")
        for result in failed:
            say(f"failed: {result.connect}/{result.connector}: {result.error}", style="bold red")
            if result.hint:
                say(f"        {result.hint}")
        for change in left:
            say(f"left: {change.action} {change.connect}/{change.connector}", style="bold yellow")
        say(f"Applied: {len(results) - len(failed)} of {len(plan.writes)} changes", style="bold")
        if failed or left:
            say("Apply again to converge; what is done already will not be written a second time.")
    return 1 if failed or left or broken or plan.failed else 0


def _unread(plan: Plan) -> list[str]:
    return [cluster.connect for cluster in plan.clusters if cluster.error]
