"""What checks of failover say of a pair, and that none is made, or no rehearsal: consumers could not go on at its
target. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject, kind
from mm2mgr.text import number_of, span_text
from mm2mgr.topology import Flow

NOT_CHECKED_INTERVALS = 4
"""So many of the intervals that a pair declares may go by without a check, and no less than an hour."""
_LEAST_SECONDS = 3_600.0


@kind("failover-not-ready", "warning", 30)
class FailoverNotReady(ProblemEvidence):
    """Consumers of a pair that declares `failover` could not go on at its target: the newest check says NO-GO, or could
    not judge."""

    pair: str
    "source and target, as `source->target`"
    verdict: str
    "NO-GO or not judged"
    reason: str
    "why, as the check said"
    groups: int
    "consumer groups that were judged"
    groups_not_ready: int
    "of these, NO-GO or not judged"
    skipped: int
    "records that would be skipped at most, where that is known"
    lost: int | None
    "records that are not on the target at most; null where not known"
    checked_seconds: float
    "how long ago the check was"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr failover check {quote(self.pair)}"

    def sentence(self, problem: LiveProblem) -> str:
        groups = (
            f"{self.groups_not_ready} of {number_of(self.groups, 'group')} not ready" if self.groups else "no group"
        )
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{self.pair} cannot fail over ({self.verdict}, {groups}, checked {span_text(self.checked_seconds)} ago)"
            f"{reason}; {problem.command} names each group and what to do"
        )


@kind("failover-not-checked", "warning", 5)
class FailoverNotChecked(ProblemEvidence):
    """A pair declares `failover`, and no check was made for four of its intervals, and for an hour at least."""

    pair: str
    "source and target, as `source->target`"
    seconds: float
    "for how long"
    every_seconds: float
    "how often the tree asks for a check"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr failover check {quote(self.pair)}"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{self.pair}: failover is declared, and nothing checked it for {span_text(self.seconds)} (every"
            f" {span_text(self.every_seconds)} is asked for); look at the process of mm2mgr serve --with failover, or"
            f" run {problem.command}"
        )


@kind("failover-not-rehearsed", "warning", 60)
class FailoverNotRehearsed(ProblemEvidence):
    """A pair declares how often its failover is to be rehearsed, and the last good rehearsal of all groups is older, or
    there was none in 90 days."""

    pair: str
    "source and target, as `source->target`"
    seconds: float | None
    "how long ago the last good rehearsal was; null: there was none"
    every_seconds: float
    "how old the tree lets it become"
    verdict: str
    "what the newest rehearsal came to; empty where there was none"
    reason: str
    "why, as the rehearsal said"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr failover rehearse {quote(self.pair)}"

    def sentence(self, problem: LiveProblem) -> str:
        good = (
            "its failover was never rehearsed with a good result"
            if self.seconds is None
            else f"the last good rehearsal of its failover is {span_text(self.seconds)} old"
        )
        reason = f": {self.reason}" if self.reason else ""
        newest = f"; the newest came to {self.verdict}{reason}" if self.verdict.startswith("not ") else ""
        return (
            f"{self.pair}: {good} (one in {span_text(self.every_seconds)} is asked for){newest}; run {problem.command}"
        )


def rehearsal_problems(
    flow: Flow, subject: ProblemSubject, state: RehearsalState | None, now: float
) -> Iterator[LiveProblem]:
    """Yield what is wrong with the rehearsals of the pair of a flow; `state`: None where there was none in 90 days."""
    declared = flow.failover
    if declared is None or declared.rehearse_every is None:
        return
    every = float(declared.rehearse_every)
    seconds = None if state is None or state.good_at is None else max(0.0, now - state.good_at)
    if seconds is not None and seconds <= every:
        return
    verdict, reason = (state.verdict, state.reason) if state else ("", "")
    evidence = FailoverNotRehearsed(flow.pair, seconds, every, verdict, reason)
    yield LiveProblem(evidence, subject, None if seconds is None else seconds - every)


def failover_problems(
    flow: Flow, subject: ProblemSubject, state: ReadinessState | None, since: float | None, now: float
) -> Iterator[LiveProblem]:
    """Yield what is wrong with the failover of the pair of a flow, known to declare it `since` then.

    `state`: None where no check was made in the last days. Times in seconds since 1970.
    """
    declared, pair = flow.failover, flow.pair
    if declared is None:
        return
    if state and not state.is_ready:
        evidence = FailoverNotReady(
            pair,
            state.verdict,
            state.reason,
            state.groups,
            state.groups_not_ready,
            state.skipped,
            state.lost,
            max(0.0, now - state.checked_at),
        )
        begun = state.not_ready_since
        yield LiveProblem(evidence, subject, None if begun is None else max(0.0, now - begun))
    if since is None:
        return
    seconds = now - max(since, state.checked_at if state else 0.0)
    if seconds > max(_LEAST_SECONDS, NOT_CHECKED_INTERVALS * declared.check_every):
        yield LiveProblem(FailoverNotChecked(pair, seconds, declared.check_every), subject, seconds)
