"""What `apply` does (on stderr as it comes) and has done, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import quote

from mm2mgr.apply.applied import Applied
from mm2mgr.apply.waves import Event, Halted, LeaseAwaited, Result, RolledBack, Unguarded, Waiting, WaveVerified
from mm2mgr.output.console import PartLog, say, talk
from mm2mgr.output.history_text import say_unrecorded
from mm2mgr.output.plan_text import ALIKE, data_text
from mm2mgr.plan.quotas import QuotaResult
from mm2mgr.text import few, number_of, span_text

_NAMED = 3
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}


def say_event(event: Event) -> None:
    """Print one result, or what becomes of a wave."""
    for text, style in event_lines(event):
        talk(text, style)


def log_events(part: str, log: PartLog) -> Callable[[Event], None]:
    """Return what prints the same as lines of a part of a long process."""

    def print_event(event: Event) -> None:
        for text, style in event_lines(event):
            log(part, text, style)

    return print_event


def event_lines(event: Event) -> Iterator[tuple[str, str | None]]:
    """Yield one result, or what becomes of a wave, as a line with its style."""
    match event:
        case Result():
            yield _result_line(event)
        case QuotaResult():
            yield _quota_result_line(event)
        case Waiting(connect, connectors, seconds):
            yield f"{connect}: waiting up to {span_text(seconds)} for {few(list(connectors))} to run", "dim"
        case WaveVerified(connect, number, of, connectors, "ok") if of > 1:
            yield f"{connect}: wave {number} of {of} is good ({number_of(len(connectors), 'connector')})", "dim"
        case WaveVerified(connect, number, of, connectors, _, unwritten) if unwritten:
            count = f"{len(unwritten)} of {number_of(len(connectors), 'connector')}"
            yield f"{connect}: wave {number} of {of} is not good: {count} not written", "bold red"
        case LeaseAwaited(kafka, holder, seconds):
            lease = f"another process holds the lease on Kafka '{kafka}' ({holder})"
            yield f"{lease}: waiting up to {span_text(seconds)}, in which Kafka misses one that was killed", "dim"
        case Unguarded(connect, note):
            yield f"{connect}: {note}", "yellow"
        case Halted():
            yield _halt_text(event), _HALT_STYLES[event.verdict]
        case RolledBack(connect, results):
            back = [result.connector for result in results if result.rolled_back]
            names = f": {few(back)}" if back else ""
            yield f"{connect}: rolled back {number_of(len(back), 'change')}{names}", "bold yellow"


def _result_line(result: Result) -> tuple[str, str]:
    if result.doubt:
        return f"{result.connect}: {result.connector}: {result.doubt}", "yellow"
    if result.error is None:
        return f"{result.connect}: {_DONE[result.action]} {result.connector} ({result.seconds:.1f} s)", "dim"
    return f"{result.connect}: {result.action} of {result.connector} failed: {result.error}", "bold red"


def _quota_result_line(result: QuotaResult) -> tuple[str, str]:
    change = result.change
    if result.error is None:
        return f"{change.kafka}: {_DONE[change.action]} quota of {change.entity}", "dim"
    return f"{change.kafka}: {change.action} of the quota of {change.entity} failed: {result.error}", "bold red"


_HALT_STYLES = {"failed": "bold red", "inconclusive": "bold yellow"}


def _halt_text(halted: Halted) -> str:
    how = "halted" if halted.verdict == "failed" else "paused for a person to look"
    left = f"; not begun: {number_of(len(halted.left), 'change')}" if halted.left else ""
    return f"{halted.connect}: {how}: {halted.why}{left}"


def say_applied(applied: Applied) -> None:
    """Print what does not run, what failed, was rolled back, is unfinished or left, and the count of changes."""
    _say_states(applied)
    for halted in applied.halted:
        say(_halt_text(halted), style=_HALT_STYLES[halted.verdict])
    for result in applied.rolled_back:
        say(f"rolled back: {result.action} {result.connect}/{result.connector}", style="bold yellow")
    for result in applied.done_results:
        if result.doubt:
            say(f"{result.connect}/{result.connector}: {result.doubt}", style="yellow")
    for result in applied.failed_results:
        say(f"failed: {result.connect}/{result.connector}: {result.error}", style="bold red")
        if result.hint:
            say(f"        {result.hint}")
    for change in applied.unfinished_changes:
        say(f"unfinished: {change.action} {change.connect}/{change.connector}", style="bold red")
    for change in applied.left_changes:
        say(f"left: {change.action} {change.connect}/{change.connector}", style="bold yellow")
    _say_awaiting(applied.awaiting_flows)
    count = f"Applied: {len(applied.done_results)} of {len(applied.plan.writes)} changes{_say_applied_quotas(applied)}"
    say("; ".join((count, *_not_in_count(applied))), style="bold")
    _say_done_data(applied)
    say_unrecorded(applied.unrecorded)
    if applied.unlogged:
        say(applied.unlogged, style="yellow")
    if applied.lost_leases:
        lost = few([f"'{alias}'" for alias in applied.lost_leases])
        say(
            f"The lease on Kafka {lost} was lost: another process may write now, so this one stopped.",
            style="bold yellow",
        )
    if applied.rolled_back:
        say("What was rolled back runs as before; correct the tree, then apply again.")
    elif (
        applied.failed_results
        or applied.left_changes
        or applied.unfinished_changes
        or applied.failed_quotas
        or applied.left_quotas
    ):
        say("Apply again to converge; what is done already will not be written a second time.")


def _say_awaiting(flows: Sequence[str]) -> None:
    """Print of which flows no record was seen to arrive since they run with what was written, and what shows it."""
    if flows:
        names = f" {' '.join(map(quote, flows))}" if len(flows) <= _NAMED else ""
        say(f"No record was seen to arrive yet of {few(flows)}; this shows whether they do: mm2mgr lag{names}")


def _say_done_data(applied: Applied) -> None:
    """Print what that part of a plan which was written does to the data; of a whole one, the plan has said it."""
    if len(applied.done_results) == len(applied.plan.writes):
        return
    tried = [result.type for result in applied.results if result.rolled_back or (result.error and result.was_written)]
    tried += [change.type for change in applied.unfinished_changes]
    flows = number_of(tried.count("source"), "flow")
    more = f"; what {flows} mirrored before the change was taken back or cut short stays on the target"
    say(f"Data: {data_text(applied.done_plan)}{more if 'source' in tried else ''}", style="bold")


def _say_applied_quotas(applied: Applied) -> str:
    """Print the quotas that failed or were left, and return how many were written."""
    for failed in applied.failed_quotas:
        say(f"failed: {failed.change.action} of the quota of {failed.change.entity}: {failed.error}", style="bold red")
        say(f"        {failed.hint}")
    for left in applied.left_quotas:
        say(f"left: {left.action} of the quota of {left.entity} on {left.kafka}", style="bold yellow")
    count = len(applied.plan.quota_writes)
    done = len(applied.quotas) - len(applied.failed_quotas)
    return f", {done} of {number_of(count, 'client quota')}" if count else ""


def _say_states(applied: Applied) -> None:
    """Print each state that is not RUNNING; where many connectors show the same, in one line."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for (connect, connector), settled in sorted(applied.states.items()):
        if settled.state != "RUNNING":
            names.setdefault((connect, settled.state, settled.verdict), []).append(connector)
    for (connect, state, verdict), connectors in names.items():
        style = {"failed": "red", "ok": None}.get(verdict, "yellow")
        if len(connectors) > ALIKE:
            say(f"{connect}: {len(connectors)} connectors: {state} ({few(connectors)})", style=style)
            continue
        for connector in connectors:
            say(f"{connect}/{connector}: {state}", style=style)


def _not_in_count(applied: Applied) -> Iterable[str]:
    """Yield what the number of applied changes does not show."""
    verdicts = [settled.verdict for settled in applied.states.values()]
    for verdict, words in (("failed", "FAILED or lost afterwards"), ("inconclusive", "not seen to run yet")):
        if verdict in verdicts:
            yield f"{verdicts.count(verdict)} of them {words}"
    blocked = applied.plan.counts()["blocked"]
    if blocked:
        yield f"{blocked} more blocked"
    if applied.plan.left_over:
        yield f"{applied.plan.left_over} no longer declared and still there (--prune deletes)"
    if unread := ", ".join(f"'{name}'" for name in applied.unread_connects):
        plural, their = ("", "its") if len(applied.unread_connects) == 1 else ("s", "their")
        yield f"Connect cluster{plural} {unread} could not be read, {their} changes are not in this number"
