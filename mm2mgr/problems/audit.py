"""What audits find, and that none does: records that differ from the source, and flows that nothing judges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote

from mm2mgr.observe.audits import AuditState
from mm2mgr.observe.losses import AUDIT, LossEntry
from mm2mgr.problems.kind import LiveProblem, ProblemEvidence, ProblemSubject, kind
from mm2mgr.problems.loss import LOSS_REMEDIES, name_entries, remedy_command
from mm2mgr.text import span_text
from mm2mgr.topology import Flow

NOT_AUDITED_SECONDS = 2 * 86_400.0
"""So long a flow that declares `audit` may go without a verdict."""
_ENTRIES_NAMED = 3


@kind("audit-differs", "critical", 0)
class AuditDiffers(ProblemEvidence):
    """An audit found records on the target that differ from the source; a problem until it is acknowledged."""

    topic: str
    "topic on the source, for extra records on the target"
    difference: str
    "missing, duplicated, altered, reordered or extra"
    records: int
    "how many"
    loss_count: int
    "how many entries the ledger has of it"
    losses: tuple[LossEntry, ...]
    "the first of them, as `mm2mgr losses -o json` shows them"

    def command(self, problem: LiveProblem) -> str:
        return remedy_command(self.difference, problem.argument, quote(self.topic))

    def sentence(self, problem: LiveProblem) -> str:
        parts, how = name_entries(self.losses, self.loss_count, problem.subject.flow)
        remedy = LOSS_REMEDIES[self.difference].replace("FLOW", problem.argument).replace("TOPIC", quote(self.topic))
        noun = "record" if self.records == 1 else "records"
        return (
            f"{self.records} {noun} {self.difference} in topic {self.topic}, as an audit found: {parts}; "
            f"{remedy.replace('`', '')}; acknowledge with mm2mgr losses {how}"
        )


def audit_differs(entries: Iterable[LossEntry], now: float) -> Iterator[LiveProblem]:
    """Yield one problem for each flow, topic and difference of open entries that an audit made."""
    groups: dict[tuple[str, str, str], list[LossEntry]] = {}
    for entry in entries:
        if entry.kind == AUDIT:
            groups.setdefault((entry.flow, entry.partition.topic, entry.cause), []).append(entry)
    for (flow, topic, cause), group in groups.items():
        group.sort(key=lambda entry: (entry.partition, entry.first_offset))
        records = sum(entry.records or 0 for entry in group)
        evidence = AuditDiffers(topic, cause, records, len(group), tuple(group[:_ENTRIES_NAMED]))
        since = max(0.0, now - min(entry.seen for entry in group))
        yield LiveProblem(evidence, ProblemSubject(flow=flow), since)


@kind("not-audited", "warning", 5)
class NotAudited(ProblemEvidence):
    """The flow declares `audit`, and no audit has judged a record of it for two days."""

    seconds: float
    "for how long"
    share: float
    "the share of the records that the tree asks for"
    not_judged: str
    "why the newest audit judged nothing; empty where there was none, or that is not known"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr audit {problem.argument} --since 2h"

    def sentence(self, problem: LiveProblem) -> str:
        reason = f" (the last audit: {self.not_judged})" if self.not_judged else ""
        return (
            f"audit: {self.share:.2%} is declared, and nothing was judged for {span_text(self.seconds)}{reason}: look"
            f" at the process of mm2mgr audit --follow or mm2mgr serve --with audit, or run"
            f" {problem.command}"
        )


def not_audited(flow: Flow, state: AuditState, since: float | None, now: float) -> Iterator[LiveProblem]:
    """Yield the problem of a flow that declares audits, known to do so `since` then (seconds since 1970), where nothing
    was judged for two days."""
    share = flow.settings.audit
    if share is None or since is None:
        return
    seconds = now - max(since, state.judged_at or 0.0)
    if seconds > NOT_AUDITED_SECONDS:
        evidence = NotAudited(seconds, share, state.not_judged)
        yield LiveProblem(evidence, ProblemSubject(flow=flow.id), seconds)
