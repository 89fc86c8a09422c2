"""What is wrong now, the worst first, each with the command that begins its remedy; and what is not wrong yet and will
hurt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from mm2mgr.errors import Failure
from mm2mgr.evidence.flow_load import FlowThroughput
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.problems.flows import WorkersSilent
from mm2mgr.problems.health import Status
from mm2mgr.problems.kind import CHECK, LiveProblem
from mm2mgr.problems.order import TROUBLE_OF_KIND, WORST_TROUBLE_FIRST, ProblemGroup, order_problems
from mm2mgr.serve.pages.base import Context, flow_link, undone_changes, utc
from mm2mgr.text import few, list_names, number_of, one_line, span_text, without_cluster

_SHOWN = 8
"""Entries that stand on the first screen; the rest is folded."""
_LEAD = 210
"""Characters of a sentence that are shown before it is opened."""
_AHEAD_SECONDS = 14 * 86_400.0  # as the alerts: time to order workers
_UNREAD = "not read"
_CLUSTERS = {"connect": "Connect cluster", "kafka": "Kafka cluster"}
_NUMBER = re.compile(r"\d+")
_WORDS = [word for word in WORST_TROUBLE_FIRST if word != "not ready"]
_ORDER = {word: place for place, word in enumerate([*_WORDS[:4], _UNREAD, *_WORDS[4:]])}
_Line = tuple[str, str, str, str]


@dataclass(frozen=True)
class WrongEntry:
    """Something that is wrong: a word for it, a sentence, and the command that begins its remedy. `parts`: name,
    address, sentence and command of each flow or connector that it is about; `count`: how many, where there are
    several."""

    word: str
    sentence: str
    command: str
    parts: Sequence[_Line]
    is_danger: bool
    count: str = ""

    @property
    def lead(self) -> str:
        """The start of the sentence, in whole words where it is cut."""
        if len(self.sentence) <= _LEAD:
            return self.sentence
        start = self.sentence[:_LEAD]
        words = start.rpartition(" ")[0]
        return f"{words if len(words) > _LEAD // 2 else start} …"


def wrong(view: EstateView) -> Context:
    """Return what `wrong.html.j2` shows: entries, the first of them open, and what an empty list means."""
    status = view.look.status if view.look else None
    groups = order_problems(status.problems()) if status else []
    told_failures = status.told_failures() if status else {}
    entries = [_entry_of_group(group, told_failures) for group in groups if group.trouble != "not ready"]
    if status:
        entries += [*_late(view), *_unread_clusters(status), *_plan_changes(view)]
    entries.sort(key=lambda entry: (not entry.is_danger, _ORDER[entry.word]))  # else as they are ordered
    dangers = sum(len(entry.parts) for entry in entries if entry.is_danger)
    return {"shown": entries[:_SHOWN], "folded": entries[_SHOWN:], "dangers": dangers, "quiet": _quiet(view)}


def _quiet(view: EstateView) -> str:
    if view.quiet_since is None:
        return "Nothing is wrong now."
    return f"No problem in {number_of(view.quiet_looks, 'look')} since {utc(view.quiet_since)[:16]} UTC."


def _entry_of_group(group: ProblemGroup, told_failures: Mapping[str, Failure]) -> WrongEntry:
    """Return the entry of problems; why a cluster could not be read whose silence they are is told with them."""
    parts = [_part(problem) for problem in group.problems]
    noun = "flow" if all(problem.subject.flow for problem in group.problems) else "connector"
    count = number_of(len(parts), noun) if len(parts) > 1 else ""
    first = group.problems[0]
    places = first.evidence.places(first.subject.connect) if isinstance(first.evidence, WorkersSilent) else ()
    reasons = "".join(f". {place}: {_reason(told_failures[place])}" for place in places if place in told_failures)
    return WrongEntry(
        group.trouble, f"{first.sentence}{reasons}", group.command, parts, is_danger=group.is_danger, count=count
    )


def _reason(failure: Failure) -> str:
    hint = f"; {one_line(failure.hint).removesuffix('.')}" if failure.hint else ""
    return f"{one_line(failure.message).removesuffix('.')}{hint}"


def _part(problem: LiveProblem) -> _Line:
    subject = problem.subject
    link = flow_link(subject.flow) if subject.flow else ""
    return subject.flow or subject.connector or subject.connect, link, problem.sentence, problem.command


def _late(view: EstateView) -> Iterator[WrongEntry]:
    """Yield the flows over their `max_lag`: those that retention overtakes, which is a danger, and the others."""
    if view.look is None:
        return
    for is_danger in (True, False):
        late = [flow for flow in view.look.late_flows if (flow in view.look.overtaken_flows) == is_danger]
        parts = [line for flow in late if (line := late_line(view, flow))]
        if parts:
            names = " ".join(quote(flow) for flow in late[:3])
            command = parts[0][3] if len(parts) == 1 else f"mm2mgr lag {names}"
            count = number_of(len(parts), "flow") if len(parts) > 1 else ""
            yield WrongEntry("late", parts[0][2], command, parts, is_danger=is_danger, count=count)


def late_line(view: EstateView, flow: str) -> _Line | None:
    """Return name, address, sentence and command of a flow that is over its `max_lag`; None for any other."""
    if view.look is None or (seconds := view.look.late_flows.get(flow)) is None:
        return None
    limit = span_text(view.look.max_lag_seconds[flow])
    least = "at least " if view.look.totals[flow].seconds.at_least else ""
    text = f"the oldest record that waits is {least}{span_text(seconds)} old, more than its max_lag of {limit}"
    return flow, flow_link(flow), text, f"mm2mgr lag {quote(flow)} --by task"


def _unread_clusters(status: Status) -> Iterator[WrongEntry]:
    """Yield clusters that cannot be read, those that say the same as one entry: nothing is known of what runs there.

    It is a danger where not even a lag is known of a flow: whether its records arrive, nobody can say.
    """
    alike: dict[tuple[str, str], list[_Line]] = {}
    dangerous: set[tuple[str, str]] = set()
    told_failures = status.told_failures()
    for where, failure in status.failures.items():
        if where in told_failures:
            continue
        kind, _, name = where.partition(" ")
        flows = [flow for flow in status.flows if kind == "connect" and flow.connect == name]
        unknown = f"; {number_of(len(flows), 'flow')} on it not known now" if flows else ""
        cluster = f"{_CLUSTERS.get(kind, kind)} {name}"
        text = f"{cluster} cannot be read: {without_cluster(_reason(failure), name)}{unknown}"
        same = (kind, _NUMBER.sub("0", failure.message.replace(name, "…")))
        alike.setdefault(same, []).append((cluster, "", text, CHECK))
        if any(flow.health == "unknown" and flow.lag_records is None for flow in flows):
            dangerous.add(same)
    for same, parts in alike.items():
        count = number_of(len(parts), "cluster") if len(parts) > 1 else ""
        yield WrongEntry(_UNREAD, parts[0][2], CHECK, parts, is_danger=same in dangerous, count=count)


def _plan_changes(view: EstateView) -> Iterator[WrongEntry]:
    """Yield what a plan would change, where no problem says so already."""
    changes = undone_changes(view)
    if not changes:
        return
    actions = {action: sum(change.action == action for change in changes) for action in ("create", "update", "delete")}
    counts = [f"{count} to {action}" for action, count in actions.items() if count]
    if blocked := sum(change.action == "blocked" for change in changes):
        counts.append(f"{blocked} blocked")
    others = len(changes) - sum(actions.values()) - blocked
    counts += [f"{number_of(others, 'other change')}"] if others else []
    names = [f"{change.connect}/{change.connector}" for change in changes]
    text = f"what runs differs from the tree: {', '.join(counts)} ({few(names)})"
    yield WrongEntry("differs", text, "mm2mgr plan", [("plan", "/plan", text, "mm2mgr plan")], is_danger=False)


# --- what will hurt ---------------------------------------------------------------------------------------------------


def ahead(view: EstateView) -> list[Context]:
    """Return what is not wrong yet and will hurt, the nearest first: sentences with their commands."""
    lines = [*_retention(view), *_full_tasks(view), *_workers(view), *_growth(view), *_not_ready(view)]
    return [{"text": text, "name": name, "link": link, "command": command} for name, link, text, command in lines]


def _retention(view: EstateView) -> Iterator[_Line]:
    for flow, seconds in view.look.overtaken_flows.items() if view.look else ():
        text = f"retention deletes records that wait in {span_text(seconds)} at present rates"
        yield flow, flow_link(flow), text, f"mm2mgr lag {quote(flow)} --by topic"


def _full_tasks(view: EstateView) -> Iterator[_Line]:
    def share(flow: FlowThroughput) -> float:
        return flow.busiest_share or 0.0

    full = [(flow, share(moves)) for flow, moves in view.throughput.items() if share(moves) > 1.0]
    for flow, part in sorted(full, key=lambda line: -line[1]):
        text = f"its busiest task got {part * 100:.0f} % of what a task is planned to carry"
        yield flow, flow_link(flow), text, f"mm2mgr size {quote(flow)}"


def _workers(view: EstateView) -> Iterator[_Line]:
    unread = view.look.status.failures if view.look else {}
    for name, need in sorted(view.needs.connects.items()):
        if need.workers is None or need.workers == 0 or f"connect {name}" in unread:
            continue
        if need.workers_needed is None:
            yield name, "", "no number of workers carries its load: a single task is more than one can", "mm2mgr fleet"
        elif need.workers <= need.workers_needed:
            lack = "without a spare" if need.workers == need.workers_needed else "too few"
            text = f"{number_of(need.workers, 'worker')} at work, {need.workers_needed} needed: {lack}"
            yield name, "", text, "mm2mgr fleet"


def _growth(view: EstateView) -> Iterator[_Line]:
    limits = [
        (seconds, name, limit, is_flow)
        for is_flow, needs in ((True, view.needs.flows), (False, view.needs.connects))
        for name, need in needs.items()
        for limit, seconds in need.limits_in_seconds.items()
        if 0 < seconds < _AHEAD_SECONDS
    ]
    for seconds, name, limit, is_flow in sorted(limits):
        text = f"growth passes its {limit} in {span_text(seconds)}, as forecast"
        yield (
            name,
            flow_link(name) if is_flow else "",
            text,
            f"mm2mgr size {quote(name)}" if is_flow else "mm2mgr fleet",
        )


def _not_ready(view: EstateView) -> Iterator[_Line]:
    """Yield checks and rehearsals of failover that are too old, or that there was none of yet."""
    if view.look is None:
        return
    status = view.look.status
    problems = [problem for problem in status.problems() if TROUBLE_OF_KIND[problem.kind] == "not ready"]
    pairs = set[str]()
    for problem in problems:
        pairs.add(getattr(problem.evidence, "pair", ""))
        yield *_part(problem)[:2], problem.sentence, problem.command
    new = [pair for pair, state in sorted(status.failover.items()) if state is None and pair not in pairs]
    if new:
        text = f"failover is declared and was not checked yet: {list_names(new)}"
        yield "failover", "/failover", text, f"mm2mgr failover check {quote(new[0])}"
