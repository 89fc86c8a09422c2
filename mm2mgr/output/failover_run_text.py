"""A failover in words: its runbook, its stages while it goes on, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from mm2mgr import timing
from mm2mgr.failover.runbook import Runbook, RunbookStep
from mm2mgr.failover.stages import FailoverStage, RunVerdict, StageProgress
from mm2mgr.operations.failover_run import FailoverEnded
from mm2mgr.output.console import say, say_command, talk
from mm2mgr.output.markdown import code, escape
from mm2mgr.text import few, number_of, one_line, span_text

_STYLES = {"NO-GO": "bold red", "not judged": "yellow", "GO WITH": "yellow", "GO": "green"}
_EVERY_SECONDS = 5.0
_MOST_GROUPS = 20


def say_runbook(plan: Runbook) -> None:
    """Print a runbook: each stage with its command, what to expect and what stops it; the verdict last."""
    for line in _head(plan):
        say(line)
    for step in plan.steps:
        say_step(step)
    say(verdict_line(plan.pair, plan.verdict), _STYLES[plan.verdict.word])


def say_step(step: RunbookStep) -> None:
    """Print a stage of a runbook."""
    say(f"{step.number}. {step.stage.title} ({step.stage.by})", "bold" if step.stage.by == "you" else None)
    if step.task:
        say(f"   {one_line(step.task)}")
    for command in step.commands:
        say_command(f"     {command}")
    if step.expect:
        say(f"   expect: {one_line(step.expect)}")
    if step.stops:
        say(f"   stops it: {one_line(step.stops)}")


def _head(plan: Runbook) -> Iterator[str]:
    at = f"{datetime.fromtimestamp(plan.taken_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield f"Failover of {plan.pair} ({plan.mode}), as of {at}"
    if plan.under_way:
        yield plan.under_way
    if plan.mode == "disaster":
        yield f"If it happens now: {plan.lost}"
    elif plan.total_seconds is not None:
        yield f"Once producers have stopped it takes about {span_text(plan.total_seconds)}"
    yield f"{plan.command} does what is mm2mgr's below, and asks for what is yours"


def verdict_line(pair: str, verdict: RunVerdict) -> str:
    """Return the verdict with its reasons."""
    numbers = f"{number_of(verdict.groups_in_all, 'group')}, {verdict.groups_to_write} to be written"
    if verdict.word in {"GO", "GO WITH"}:
        return f"{verdict.word}: {pair}: {'; '.join((*verdict.reasons, numbers))}"
    return f"{verdict.word}: {pair}: {'; '.join(verdict.reasons)}"


def runbook_markdown(plan: Runbook) -> str:
    """Return a runbook as Markdown, with a box to tick for each stage."""
    head, *more = _head(plan)
    parts = [f"### {escape(head)}", *map(escape, more), f"**{escape(verdict_line(plan.pair, plan.verdict))}**"]
    for step in plan.steps:
        lines = [f"- [ ] **{step.number}. {escape(step.stage.title)}** ({step.stage.by}): {escape(step.task)}"]
        lines += [f"  - {code(command)}" for command in step.commands]
        lines += [f"  - expect: {escape(step.expect)}"] * bool(step.expect)
        lines += [f"  - stops it: {escape(step.stops)}"] * bool(step.stops)
        parts.append("\n".join(lines))
    left = [order for order in plan.orders if order.action not in {"level", "gone on", "write"} or order.unknown]
    if left:
        names = "\n".join(f"- {code(order.group)}: {escape(order.action)}" for order in left[:_MOST_GROUPS])
        parts.append(f"Groups that are left as they are:\n\n{names}")
    return "\n\n".join(parts) + "\n"


class StageTalk:
    """Prints how far stages are on stderr: what changed, and no more often than people can read."""

    def __init__(self) -> None:
        self._last: tuple[str, str, bool] = "", "", False
        self._said_at = 0.0

    def __call__(self, stage: FailoverStage, progress: StageProgress) -> None:
        shown = stage.name, progress.text, progress.done
        is_new = stage.name != self._last[0] or progress.done != self._last[2]
        is_due = shown != self._last and timing.now() - self._said_at >= _EVERY_SECONDS
        if not (is_new or is_due):
            return
        self._last, self._said_at = shown, timing.now()
        mark = "✓" if progress.done else "…"
        talk(f"{mark} {stage.title}{f': {one_line(progress.text)}' * bool(progress.text)}", None)


def say_ended(done: FailoverEnded) -> None:
    """Print what became of a failover, what is left to people, and the verdict or outcome as the last line."""
    result = done.result
    if result.outcome == "abandoned":
        say(f"abandoned: {result.pair}: its connectors are back in the states that they had", "green")
        return
    _say_groups(done)
    if result.outcome == "dry run":
        assert result.verdict
        say("nothing was written (--dry-run)")
        say(verdict_line(result.pair, result.verdict), _STYLES[result.verdict.word])
        return
    if result.may_miss_groups:
        say("! groups of the source that have no checkpoint are not known: the source was not read", "yellow")
    if result.may_have_run:
        text = f"whether the pair has run since is not known ({result.may_have_run}): --forget begins anew"
        say(f"! {one_line(text)}", "yellow")
    say_steps(done.left)
    journal = result.journal
    since = f" at {datetime.fromtimestamp(journal.began_at, UTC):%Y-%m-%d %H:%M:%S} UTC" if journal else ""
    began = f", begun by {journal.by}{since}" if journal and result.outcome == "already done" else ""
    ready = sum(order.action in {"level", "gone on"} for order in result.orders)
    written = journal.group_count if journal else 0
    numbers = f"{number_of(ready, 'group')} at the offsets to go on from, {written} written"
    say(f"{result.outcome}: {result.pair}: {numbers}{began}", "green")


def say_steps(steps: Sequence[RunbookStep]) -> None:
    """Print what is left to people."""
    for step in steps:
        say(f"Next: {step.stage.title}: {one_line(step.task)}", "bold")
        for command in step.commands:
            say_command(f"  {command}")


def _say_groups(done: FailoverEnded) -> None:
    result = done.result
    for order in [order for order in result.orders if order.action == "write"][:_MOST_GROUPS]:
        again = f", at most {number_of(order.repeats, 'record')} again" if order.repeats else ""
        say(f"  {order.group}: {number_of(order.count, 'offset')} to be written{again}")
    for order in result.left_out[:_MOST_GROUPS]:
        places = few([str(partition) for partition in (*order.ahead, *order.unknown)])
        say(f"! {order.group}: {order.action}{f' ({places})' * bool(places)}: left as it is", "yellow")
    if len(result.left_out) > _MOST_GROUPS:
        say(f"  … and {number_of(len(result.left_out) - _MOST_GROUPS, 'more group')} (-o json)", "dim")
