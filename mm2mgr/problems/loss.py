"""Records that may never arrive, and those that a restart would mirror again, their offsets not stored. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mm2mgr.observe.losses import LOSS, LossEntry
from mm2mgr.observe.memory import Memory
from mm2mgr.observe.reading import Reading
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject, kind
from mm2mgr.text import number_of, span_text

_LOSSES_NAMED = 3
_FLOWS_NAMED = 5

LOSS_CAUSES: Mapping[str, str] = {
    "retention": "retention deleted them before they were mirrored",
    "re-created": "the topic was deleted and created again",
    "past-end": "the stored offset is not in the log: the topic was created again, or truncated",
    "truncation": "the end of the log went back",
    "erased": "the topic on the target was deleted and created again, or truncated, after they had arrived",
    "missing": "an audit did not find them on the target",
    "duplicated": "an audit found them more than once on the target",
    "altered": "an audit found them with another key, value, timestamp or headers on the target",
    "reordered": "an audit found them in another order on the target",
    "extra": "an audit found them on the target alone",
}
"""What happened, by the cause of an entry of the ledger; the last five are what an audit finds."""
_FATES = {"erased": "are gone from the target"}
_RESET = "compare the topic with the target; stop the flow and reset its offsets where new records are skipped"
LOSS_REMEDIES: Mapping[str, str] = {
    "retention": "give the topic longer retention or the flow more tasks",
    "re-created": _RESET,
    "past-end": "compare the topic with the target, then stop the flow and reset these offsets",
    "truncation": _RESET,
    "erased": "to mirror again what the source still has, stop the flow, reset the offsets of the topic, and resume it",
    "missing": "`mm2mgr audit FLOW --repair-plan` prints how they are mirrored again",
    "duplicated": "look in `mm2mgr history` for a restart then; with delivery: exactly_once none comes twice",
    "altered": "look for a transformation or another writer: `mm2mgr audit FLOW --show-values`",
    "reordered": "set record_producer: {enable.idempotence: true}, or {max.in.flight.requests.per.connection: 1}",
    "extra": "look for another writer of the topic: `mm2mgr who TOPIC`",
}


def remedy_command(cause: str, flow: str, topic: str) -> str:
    """Return the command that LOSS_REMEDIES names for what an audit finds, names quoted for the shell; that which shows
    its offsets where there is none."""
    named = re.search("`(mm2mgr [^`]+)`", LOSS_REMEDIES[cause])
    if named is None:
        return f"mm2mgr losses {flow}"
    return named[1].replace("FLOW", flow).replace("TOPIC", topic)


@kind("records-lost", "critical", 0)
class RecordsLost(ProblemEvidence):
    """Records may never arrive; a problem until it is acknowledged."""

    topic: str
    "topic on the source"
    cause_of_loss: str
    "retention, re-created, past-end, truncation or erased"
    records: int
    "how many at most, of all partitions"
    least_records: int
    "how many at least"
    is_bounded: bool
    "false where a deleted topic held an unknown number of others"
    flow_creates_topics: bool | None
    (
        "whether the flow's consumer creates a topic that is deleted on the source (allow.auto.create.topics); null"
        " where its config was not read"
    )
    loss_count: int
    "how many entries the ledger has of it"
    losses: tuple[LossEntry, ...]
    "the first of them, as `mm2mgr losses -o json` shows them"
    json_keys = "topic cause=cause_of_loss records least_records is_bounded flow_creates_topics loss_count losses"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr losses {problem.argument}"

    def sentence(self, problem: LiveProblem) -> str:
        cause = self.cause_of_loss
        parts, entries = name_entries(self.losses, self.loss_count, problem.subject.flow)
        by_flow = ", perhaps by this flow's own consumer, whose allow.auto.create.topics is true"
        is_by_flow = cause == "re-created" and bool(self.flow_creates_topics)
        return (
            f"{self._count()} of topic {self.topic} {_FATES.get(cause, 'may never arrive')}, first seen"
            f" {_ago(problem.seconds)}:"
            f" {LOSS_CAUSES[cause]}{by_flow * is_by_flow}: {parts}; {LOSS_REMEDIES[cause]}; acknowledge with mm2mgr"
            f" losses {entries}"
        )

    def _count(self) -> str:
        rest = "" if self.is_bounded else "what the old topic still held"
        if not self.records:
            return rest
        exactly = "" if self.records == self.least_records else "up to "
        return f"{exactly}{number_of(self.records, 'record')}{' and ' if rest else ''}{rest}"


def name_entries(losses: Sequence[LossEntry], count: int, flow: str) -> tuple[str, str]:
    """Return the first of so many entries with their offsets, and the arguments that acknowledge all of them."""
    more = count - len(losses)
    parts = ", ".join(f"{loss.partition} (offsets {loss.offsets_text})" for loss in losses)
    parts += f" and {more} more" * (more > 0)
    return parts, f"--ack {losses[0].id}" if count == 1 else f"'{flow}' --ack all"


def _ago(seconds: float) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def records_lost(
    entries: Iterable[LossEntry], now: float, flow_creates_topics: bool | None = None
) -> Iterator[LiveProblem]:
    """Yield one problem for each flow, topic and cause of open entries, in the order of the first of each; without what
    audits found.

    `flow_creates_topics`: whether the flow's consumer creates what it misses, None: unknown.
    """
    groups: dict[tuple[str, str, str], list[LossEntry]] = {}
    for entry in entries:
        if entry.kind == LOSS:
            groups.setdefault((entry.flow, entry.partition.topic, entry.cause), []).append(entry)
    for (flow, topic, cause), losses in groups.items():
        losses.sort(key=lambda loss: loss.partition)
        evidence = RecordsLost(
            topic,
            cause,
            records=sum(loss.records or 0 for loss in losses),
            least_records=sum(loss.least_records for loss in losses),
            is_bounded=all(loss.records is not None for loss in losses),
            flow_creates_topics=flow_creates_topics,
            loss_count=len(losses),
            losses=tuple(losses[:_LOSSES_NAMED]),
        )
        since = max(0.0, now - min(loss.seen for loss in losses))
        yield LiveProblem(evidence, ProblemSubject(flow=flow), since)


@kind("offsets-not-stored", "critical", 0)
class OffsetsNotStored(ProblemEvidence):
    """Records of several flows arrive while their offsets are not stored, because a source on the same workers is
    dead.
    """

    connect: str
    "Connect cluster"
    flows: tuple[str, ...]
    "ids of the flows"
    seconds: float
    "for how long"
    records: int
    "records that a restart would mirror again, at least"
    unread_sources: tuple[str, ...]
    "sources that mm2mgr could not read"

    @property
    def is_problem(self) -> bool:
        """Whether a source is dead; otherwise offset.flush.interval.ms may be long, which workers do not show."""
        return bool(self.unread_sources)

    @property
    def problem(self) -> LiveProblem:
        return LiveProblem(self, ProblemSubject(self.connect), self.seconds)

    def sentence(self, problem: LiveProblem | None = None) -> str:
        names = ", ".join(self.flows[:_FLOWS_NAMED]) + (", …" if len(self.flows) > _FLOWS_NAMED else "")
        fact = (
            f"offsets of {number_of(len(self.flows), 'flow')} not stored for {span_text(self.seconds)} while their"
            f" records arrive ({names}); a restart would mirror at least {self.records} records again"
        )
        if not self.unread_sources:
            normal = "normal if offset.flush.interval.ms of its workers is longer"
            return f"{fact}; {normal}, else check their log for a source that does not answer"
        dead = ", ".join(self.unread_sources)
        return (
            f"{fact}; source {dead} could not be read, and a dead source blocks offset commits of every flow on its"
            f" workers: bring {dead} back, or declare state: stopped on the flows from it"
        )


def offsets_not_stored(reading: Reading, memory: Memory, patience_seconds: float) -> Iterator[OffsetsNotStored]:
    """Yield the Connect clusters where several flows, or one beside a dead source, have waited so long."""
    for name in reading.connects:
        flows = [flow for flow in reading.flows if flow.connect.name == name]
        waiting = [
            (flow.id, unstored.records, unstored.clock.seconds)
            for flow in flows
            if (unstored := memory.flow(flow.id).unstored)
            and unstored.clock
            and not unstored.clock.paused
            and unstored.clock.seconds >= patience_seconds
        ]
        dead = tuple(sorted({flow.source.alias for flow in flows if reading.clusters[flow.source.alias].failure}))
        if len(waiting) > 1 or (waiting and dead):
            ids, records, seconds = zip(*waiting, strict=True)
            yield OffsetsNotStored(name, ids, min(seconds), sum(records), dead)
