"""Answers of clusters as a value: what was asked, and what came back or why nothing did. No I/O."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, get_args

from mm2mgr.errors import Mm2mgrError

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Question(Generic[Answer_co]):
    """Something that one cluster can be asked: a Connect cluster by its name, a Kafka cluster by its alias."""

    cluster: str
    answer: ClassVar[Any] = None
    """The type of its answer."""

    def __init_subclass__(cls) -> None:
        (cls.answer,) = get_args(vars(cls)["__orig_bases__"][0])

    def as_stored(self) -> Question[Answer_co]:
        """Return it as a file has it, without secrets."""
        return self


Answers: TypeAlias = Mapping[Question[object], Any]
"""An answer of the type that its question names, or the Mm2mgrError why there is none."""


class NotInSnapshot(Mm2mgrError):
    """Nobody asked this when the snapshot was taken."""


@dataclass(frozen=True)
class Snapshot:
    """The answers that there are. A failed read is an answer too, so one dead cluster hides no other.

    `taken_at` (seconds since 1970) is set for a snapshot that was read from a file: nothing is asked beside it.
    """

    answers: Answers = field(default_factory=lambda: MappingProxyType({}), repr=False)
    taken_at: float | None = None
    memory: str = field(default="", repr=False)
    """The memory of the looks before it, as JSON."""

    def get(self, question: Question[Answer]) -> Answer | Mm2mgrError:
        """Return the answer, or why there is none."""
        key = question if self.taken_at is None else question.as_stored()
        if key not in self.answers:
            return NotInSnapshot(f"{question.cluster}: unknown: not in the snapshot")
        answer: Answer | Mm2mgrError = self.answers[key]
        return answer

    def __getitem__(self, question: Question[Answer]) -> Answer:
        """Return the answer, or raise why there is none."""
        answer = self.get(question)
        if isinstance(answer, Mm2mgrError):
            raise answer
        return answer

    def lacking(self, questions: Iterable[Question[object]]) -> list[Question[object]]:
        """Return the questions that are still to be asked, each once."""
        if self.taken_at is not None:
            return []
        return [question for question in dict.fromkeys(questions) if question not in self.answers]

    def with_answers(self, answers: Answers) -> Snapshot:
        """Return the snapshot with more answers."""
        return replace(self, answers={**self.answers, **answers}) if answers else self


Steps = Generator[Iterable[Question[object]], Snapshot, Result]
"""A judgement that reads: it yields questions, is sent a snapshot that has their answers, and returns its result.

It takes no client, no clock and no `await`, so a snapshot from a file gives what the clusters gave.
"""


def ask(questions: Iterable[Question[object]]) -> Steps[Snapshot]:
    """Return a snapshot that has the answers to these questions."""
    return (yield questions)


def or_error(steps: Steps[Result]) -> Steps[Result | Mm2mgrError]:
    """Return the result of a judgement, or the error that it raises."""
    try:
        return (yield from steps)
    except Mm2mgrError as error:
        return error


def side_by_side(*parts: Steps[Any]) -> Steps[list[Any]]:
    """Let judgements ask in the same rounds; return their results in this order."""
    results: dict[int, Any] = {}
    questions: dict[int, Iterable[Question[object]]] = {}
    snapshot: Snapshot | None = None
    while len(results) < len(parts):
        for place, part in enumerate(parts):
            if place in results:
                continue
            try:
                questions[place] = next(part) if snapshot is None else part.send(snapshot)
            except StopIteration as end:
                results[place] = end.value
                questions.pop(place, None)
        if questions:
            snapshot = yield [question for asked in questions.values() for question in asked]
    return [results[place] for place in range(len(parts))]
