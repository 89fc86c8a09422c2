"""What the watchdog does about a FAILED task or connector: a delay policy as arithmetic on given times. Pure.

A failure is restarted only where a restart alone can cure it, after a wait that doubles with every restart, and only so
often within a window; then a breaker opens, and stays open until the task is seen to run. Where a worker lacks the
Connect plugin, the whole connector gets the stock class in place of a restart, within the same limits.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from mm2mgr.problems.connectors import CLASS_MISSING, PLUGIN_MISSING
from mm2mgr.problems.kind import LiveProblem

EscalationReason = Literal["not-retryable", "breaker", "frozen"]
FailedPart: TypeAlias = tuple[str, str, int | None]
"""A Connect cluster, a connector on it, and a task; None: the connector itself, WHOLE: it with all of its tasks."""
WHOLE = -1
_LEFT_SECONDS = 30.0


@dataclass(frozen=True)
class RestartPolicy:
    """When a failure is restarted: `first_seconds` after it was seen, twice as long each time, up to `longest_seconds`
    where the first wait is not longer.

    Never more than `restarts` of one task or connector within `window_seconds`. Waits are up to `jitter` longer, so
    that tasks that failed together do not come back together.
    """

    first_seconds: float = 10.0
    longest_seconds: float = 600.0
    restarts: int = 5
    window_seconds: float = 3600.0
    jitter: float = 0.2

    def backoff_seconds(self, restarts: int) -> float:
        """Return the shortest wait after so many restarts within the window."""
        return min(max(self.first_seconds, self.longest_seconds), self.first_seconds * 2.0 ** min(restarts, 30))

    def recent(self, restarts: Iterable[float], now: float) -> tuple[float, ...]:
        """Return the restarts that count."""
        return tuple(at for at in restarts if now - at <= self.window_seconds)


@dataclass(frozen=True)
class RestartHistory:
    """What is known of a task or connector: since when it was seen FAILED, its restarts, whether the breaker is open.

    Times: seconds of a clock that is never set back. `reported`: what was last said, so it is not said twice.
    """

    failing_since: float | None = None
    restarts: tuple[float, ...] = ()
    is_open: bool = False
    reported: str = ""


def decide(
    problem: LiveProblem,
    history: RestartHistory,
    now: float,
    policy: RestartPolicy | None = None,
    *,
    frozen: bool = False,
) -> WatchAction:
    """Decide about one failure, of one task or of a connector itself: restart it now or give it the stock class,
    `wait`, or `tell` a person, since neither can cure it, did not help, or is not allowed now.
    """
    policy = policy or RestartPolicy()
    recent = policy.recent(history.restarts, now)
    is_plugin = problem.cause == PLUGIN_MISSING
    if not problem.retryable and not is_plugin:
        return WatchAction("tell", problem, "not-retryable", len(recent))
    if history.is_open or len(recent) >= policy.restarts:
        return WatchAction("tell", problem, "breaker", len(recent))
    longer = 1 + policy.jitter * _fraction(problem, recent)
    since = now if history.failing_since is None else history.failing_since
    due = [since + policy.first_seconds * longer]
    due += [at + policy.backoff_seconds(len(recent)) * longer for at in recent[-1:]]
    left = max(due) - now
    if left > 0:
        return WatchAction("wait", problem, number=len(recent), after_seconds=left)
    if frozen:
        return WatchAction("tell", problem, "frozen", len(recent))
    return WatchAction("stock-class" if is_plugin else "restart", problem, number=len(recent) + 1)


def _fraction(problem: LiveProblem, recent: tuple[float, ...]) -> float:
    """Return a number from 0 to 1 for each task and restart, the same when asked again."""
    text = f"{part_of(problem)} {len(recent)} {recent[-1:]}"
    return zlib.crc32(text.encode()) / 0xFFFFFFFF


def part_of(problem: LiveProblem) -> FailedPart:
    """Return what a failure of one part is about."""
    subject = problem.subject
    if problem.cause == PLUGIN_MISSING:
        return subject.connect, subject.connector, WHOLE
    return subject.connect, subject.connector, subject.tasks[0] if subject.tasks else None


def per_task(problems: Iterable[LiveProblem]) -> Iterator[LiveProblem]:
    """Yield failures one by one: a problem of several tasks once for each, unless it is one of the whole connector."""
    for problem in problems:
        for task in problem.subject.tasks if problem.cause != PLUGIN_MISSING else ():
            yield replace(problem, subject=replace(problem.subject, tasks=(task,)))
        if not problem.subject.tasks or problem.cause == PLUGIN_MISSING:
            yield problem


@dataclass(frozen=True)
class WatchAction:
    """What was done, or is going to be, about one failure; `problem` is of one task or of the connector itself.

    `stock-class`: the connector gets MirrorMaker's own class, which restarts all of its tasks and counts as a restart.
    `number` counts restarts within the window, `after_seconds` is the time until the next one (`wait`). `error`: why a
    restart was not carried out.
    """

    action: Literal["restart", "stock-class", "wait", "tell", "recovered"]
    problem: LiveProblem
    reason: EscalationReason | Literal[""] = ""
    number: int = 0
    after_seconds: float | None = None
    dry_run: bool = False
    error: str | None = None

    @property
    def writes(self) -> bool:
        """Whether something is sent to Connect."""
        return self.action in ("restart", "stock-class")


@dataclass
class Watchdog:
    """What is known of every task and connector that FAILED, or was restarted within the window."""

    policy: RestartPolicy = field(default_factory=RestartPolicy)
    histories: dict[FailedPart, RestartHistory] = field(default_factory=dict)
    _problems: dict[FailedPart, LiveProblem] = field(default_factory=dict)

    def look(
        self,
        problems: Iterable[LiveProblem],
        running: Collection[FailedPart],
        read: Collection[str],
        now: float,
        *,
        frozen: bool = False,
    ) -> list[WatchAction]:
        """Return what is new after a look: restarts, which the caller has to carry out and which count from now on, and
        what to report.

        `running` are the parts that were seen to run, `read` the Connect clusters that could be read.
        """
        failing = {
            part_of(problem): problem for problem in per_task(problems) if not self._is_from_before(problem, now)
        }
        whole = {part[:2] for part in failing if part[2] == WHOLE}
        failing = {part: problem for part, problem in failing.items() if part[2] == WHOLE or part[:2] not in whole}
        actions = [action for problem in failing.values() if (action := self._decide(problem, now, frozen=frozen))]
        for part in [part for part in self.histories if part not in failing and part[0] in read]:
            if part in running and part in self._problems:
                actions.append(WatchAction("recovered", self._problems.pop(part)))
            self._not_failing(part, now, runs=part in running)
        return actions

    def _is_from_before(self, problem: LiveProblem, now: float) -> bool:
        """Tell whether a failure is what is left of one that was just answered with the stock class: seen for up to
        3 s, the connector has its new class by then, so that the trace seems to be of that one."""
        whole = self.histories.get((problem.subject.connect, problem.subject.connector, WHOLE))
        if problem.cause != CLASS_MISSING or whole is None or not whole.restarts:
            return False
        return now - whole.restarts[-1] < _LEFT_SECONDS

    def _not_failing(self, part: FailedPart, now: float, *, runs: bool) -> None:
        """Keep the restarts that count; only what runs closes the breaker."""
        history = self.histories[part]
        recent = self.policy.recent(history.restarts, now)
        is_open = history.is_open and not runs
        if recent or is_open:
            self.histories[part] = RestartHistory(None, recent, is_open, "" if runs else history.reported)
        else:
            del self.histories[part]
            self._problems.pop(part, None)

    def _decide(self, problem: LiveProblem, now: float, *, frozen: bool) -> WatchAction | None:
        part = part_of(problem)
        history = self.histories.get(part, RestartHistory())
        since = now if history.failing_since is None else history.failing_since
        history, problem = replace(history, failing_since=since), replace(problem, since_seconds=max(0.0, now - since))
        action = decide(problem, history, now, self.policy, frozen=frozen)
        if action.writes:
            history = replace(history, restarts=(*self.policy.recent(history.restarts, now), now))
        history = replace(history, is_open=history.is_open or action.reason == "breaker")
        reported = f"{action.action} {problem.cause} {action.reason or action.number}"
        self.histories[part], self._problems[part] = replace(history, reported=reported), problem
        return None if reported == history.reported else action
