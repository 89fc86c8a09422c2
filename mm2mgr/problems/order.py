"""Which problem comes first, what is in danger, and which are the same: what a person reads first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mm2mgr.problems.kind import APPLY_FLOW, LiveProblem

Trouble = Literal["loss", "FAILED", "arrives twice", "no progress", "late", "differs", "other", "not ready"]
_KINDS: Mapping[Trouble, str] = {
    "loss": "records-lost audit-differs",
    "FAILED": "connector-failed task-failed",
    "arrives twice": "arrives-twice overlap partitions-in-two-tasks",
    "no progress": (
        "connector-gone records-not-on-target no-progress workers-silent no-task no-topic-matches no-status"
        " target-topic-missing target-partitions-fewer partitions-unassigned connector-unassigned task-unassigned"
        " worker-departed offsets-not-stored resting-while-lag-grows paused-by-hand"
    ),
    "late": "slower-than-production",
    "differs": (
        "offsets-move-unfinished not-applied config-differs state-differs companion-paused-by-hand old-task-config"
        " orphan topic-configs-differ topic-acls-differ"
    ),
    "other": (
        "often-interrupted heartbeat-without-task heartbeats-not-emitted checkpoints-not-emitted group-offsets-rewound"
        " failover-not-ready not-audited"
    ),
    "not ready": "failover-not-checked failover-not-rehearsed",
}
WORST_TROUBLE_FIRST: Sequence[Trouble] = tuple(_KINDS)
"""Troubles, the worst first; `late` has lags over `max_lag` too. `not ready` is nothing that is wrong now: it hurts on
the day of a failover."""
TROUBLE_OF_KIND: Mapping[str, Trouble] = MappingProxyType(
    {kind: trouble for trouble, kinds in _KINDS.items() for kind in kinds.split()}
)
"""The trouble that each kind of problem is."""
_ORDER = {kind: place for place, kind in enumerate(TROUBLE_OF_KIND)}
_MOST_NAMED = 8
_AMOUNT = r"\d+(?:\.\d+)?(?: (?:ms|s|min|h|d)\b)?"
_AMOUNTS = re.compile(rf"{_AMOUNT}(?: {_AMOUNT})*")  # 7, 59 s, 1 min 5 s
_ENDS = re.compile(r"\([^()]*->[^()]*\)")
_SHORT = 4  # a name of so few characters may be a part of a word
_SEVERAL = ("mm2mgr restart --failed", "mm2mgr resume", "mm2mgr losses", "mm2mgr check", APPLY_FLOW)
"""These take several names."""
_ALL = {"mm2mgr restart --failed": "mm2mgr restart --failed --all", APPLY_FLOW: "mm2mgr apply"}


@dataclass(frozen=True)
class ProblemGroup:
    """Problems that say the same of several connectors, the longest seen first."""

    trouble: Trouble
    problems: tuple[LiveProblem, ...]

    @property
    def is_danger(self) -> bool:
        """Whether records are lost or do not arrive, or may be lost soon; else something differs."""
        return in_danger(self.problems)

    @property
    def command(self) -> str:
        """The command that begins the remedy: of all of them where it takes several names, else of the first."""
        commands = [problem.command for problem in self.problems]
        if len(set(commands)) == 1:
            return commands[0]
        start = commands[0].removesuffix(self.problems[0].argument).rstrip()
        arguments = list(dict.fromkeys(problem.argument for problem in self.problems))
        if start not in _SEVERAL or commands != [f"{start} {problem.argument}" for problem in self.problems]:
            return commands[0]
        if len(arguments) > _MOST_NAMED and start != "mm2mgr resume":  # nothing is resumed that was not named
            return _ALL.get(start, start)
        return f"{start} {(' --flow ' if start == APPLY_FLOW else ' ').join(arguments)}"


def shown_health(
    health: str, problems: Iterable[LiveProblem], *, is_late: bool = False, is_overtaken: bool = False
) -> str:
    """Return what the colour of a flow or connector goes by, the one rule for all pages: `problem` (red) where records
    are in danger, `attention` (amber) where something else is wrong, else its health.

    `is_late`: whether it is further behind than its `max_lag`; `is_overtaken`: whether retention deletes records that
    wait within a day, which is a danger where it is late.
    """
    if in_danger(problems) or (is_late and is_overtaken):
        return "problem"
    return "attention" if is_late or health == "problem" else health


def in_danger(problems: Iterable[LiveProblem]) -> bool:
    """Tell whether one of the problems endangers records."""
    return any(problem.evidence.endangers_records for problem in problems)


def order_problems(problems: Iterable[LiveProblem]) -> list[ProblemGroup]:
    """Return all problems, the worst first, with those that say the same of several connectors as one group."""
    groups: dict[tuple[str, str, str], list[LiveProblem]] = {}
    for problem in problems:
        groups.setdefault((problem.kind, problem.cause, _sameness(problem)), []).append(problem)
    ordered = [
        ProblemGroup(TROUBLE_OF_KIND[kind], tuple(sorted(alike, key=lambda problem: -problem.seconds)))
        for (kind, _, _), alike in groups.items()
    ]
    return sorted(ordered, key=lambda group: (_ORDER[group.problems[0].kind], -len(group.problems)))


def _sameness(problem: LiveProblem) -> str:
    """Return its sentence without what names its connector, and without numbers and spans: two that are equal then say
    the same."""
    subject, sentence = problem.subject, _ENDS.sub("", problem.sentence)
    long_names = [name for name in (problem.argument, subject.flow, subject.connector) if len(name) > _SHORT]
    for name in sorted(long_names, key=len, reverse=True):
        sentence = sentence.replace(name, "…")
    names = {subject.flow, subject.connector, *subject.flow.partition(":")[2].split("->")}
    words = ("…" if word.strip("',;:()") in names else word for word in sentence.split(" "))
    return _AMOUNTS.sub("0", " ".join(words))
