"""An example of each kind of problem, made from the types of its evidence."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from mm2mgr.observe.interruptions import InterruptionCounts
from mm2mgr.observe.losses import LossEntry
from mm2mgr.partitions import TopicPartition
from mm2mgr.problems import KINDS
from mm2mgr.problems.arrival import RewoundOffset
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject

_LOSS = LossEntry("id1", "f:a->b", "a", TopicPartition("t", 0), "id", "retention", "log-start", 1, 2, 2, 2, None, 0.0)
_BY_NAME: dict[str, Any] = {
    "cause_of_loss": "retention",
    "difference": "missing",
    "standing": "unmarked",
    "type": "source",
    "classified": ("bug", ""),
    "losses": (_LOSS,),
    "offsets": (RewoundOffset("g", "t-0", 1, 2),),
}
_BY_TYPE: dict[str, Any] = {"str": "x", "int": 1, "float": 1.0, "bool": True, "tuple[str, ...]": ("x", "y")}
_BY_TYPE["InterruptionCounts"] = InterruptionCounts(4, 2, 1)


def example(kind: str) -> ProblemEvidence:
    """Return evidence of a kind."""
    evidence = KINDS[kind]
    values = {
        field.name: _BY_NAME.get(field.name, _BY_TYPE.get(str(field.type).removesuffix(" | None")))
        for field in fields(evidence)  # type: ignore[arg-type]  # `kind` makes each a dataclass
    }
    return evidence(**values)


def example_problem(kind: str, subject: ProblemSubject | None = None) -> LiveProblem:
    """Return a problem of a kind, of two tasks unless a subject is given."""
    return LiveProblem(example(kind), subject or ProblemSubject("east", "mm2", "f:a->b", (0, 1)), 60.0)
