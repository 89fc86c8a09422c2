"""Connectors that mirror what a flow mirrors too: made by hand, of other owners, left over, or of a dedicated
MirrorMaker. Pure.

Whether two connectors overlap is decided as for plan, by `lint.mirroring`, which is loaded only where something runs
that the tree does not declare like this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from mm2mgr.comparison.differences import Named, selects_otherwise
from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.connectors import RESTING
from mm2mgr.live.dedicated import configs_topic, dedicated_names
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Reading, Standing
from mm2mgr.problems.kind import (
    NAMED,
    FlowCase,
    LiveProblem,
    ProblemEvidence,
    ProblemSubject,
    flow_rule,
    kind,
    name_some,
)
from mm2mgr.text import number_of
from mm2mgr.topology import Flow
from mm2mgr.truth.keys import kafka_version

_RULE = "overlap"


@kind(_RULE, "critical", 2)  # an apply that moves topics between connectors stops one of them
class Overlap(ProblemEvidence):
    """Another connector that runs mirrors the same topics to the same names on the target, so that their records arrive
    twice: one made by hand, of another owner or left over, or that of a dedicated MirrorMaker. A dedicated MirrorMaker
    is seen by the members of its group on the target (`SOURCE-mm2`); where its config cannot be read, that it runs is a
    note. Connectors whose tasks have all failed do not count, nor do two that choose records by what these hold, each
    in its own way.
    """

    other: str
    "the other connector, as connect/name; of a dedicated MirrorMaker its group and target"
    standing: Standing
    "unmarked, other-owner, released, left-over (this owner's, no longer declared), dedicated or declared"
    owner: str
    "the owner in its mark, empty without one"
    topics: tuple[str, ...]
    (
        "the first topics of the source that both mirror; where the source could not be read, of those that the flow's"
        " tasks have"
    )
    topic_count: int
    "how many there are"
    source: str
    "alias of the source"
    target: str
    "alias of the target"

    def sentence(self, problem: LiveProblem) -> str:
        topics = name_some(self.topics, "topic", self.topic_count)
        ends = f"from {self.source} to {self.target}"
        if self.standing == "dedicated":
            return (
                f"a dedicated MirrorMaker mirrors {topics} {ends} too (group {self.other} has members): records arrive"
                " twice; stop its processes with SIGTERM, and see that nothing starts them again, or take the topics"
                " out of one of the two"
            )
        whose, remedy = {
            "unmarked": ("carries no owner mark", "stop or delete it there, or adopt it"),
            "other-owner": (
                f"belongs to owner '{self.owner}'",
                "agree on one of the two, and stop or delete the other",
            ),
            "released": ("is released", "stop or delete it there, or take the flow out of this tree"),
            "left-over": ("is no longer declared", "run mm2mgr plan --prune and mm2mgr apply --prune"),
            "declared": ("runs otherwise than declared, or this one does", "run mm2mgr plan"),
        }[self.standing]
        return (
            f"connector {self.other} ({whose}) mirrors {topics} {ends} too: records arrive twice; {remedy}, or take the"
            " topics out of one of the two"
        )


@flow_rule
def overlap(case: FlowCase) -> Iterator[LiveProblem]:
    """Judged for all flows at once (`find_overlaps`), since the time grows with what is there, not with the pairs."""
    yield from case.overlaps


@dataclass(frozen=True)
class Overlaps:
    """What else mirrors the topics of flows: problems, and notes on what is not known, by the ids of the flows."""

    problems: Mapping[str, tuple[LiveProblem, ...]] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_overlaps(reading: Reading) -> Overlaps:
    """Return what mirrors topics of the flows of a reading beside their connectors."""
    flows: dict[Named, tuple[Flow, LiveConnector]] = {}
    for flow in reading.flows:
        connector = reading.source_connector(flow)
        if connector and connector.running and not (connector.status and connector.status.work_state == "FAILED"):
            flows[connector.desired.connect, connector.desired.name] = flow, connector
    dedicated, notes = _dedicated_connectors(reading, [flow for flow, _ in flows.values()])
    others = [*(other for connect in reading.connects.values() for other in connect.others), *dedicated]
    changed = {named for named, (_, connector) in flows.items() if _runs_otherwise(connector)}
    if not flows or not (others or changed):
        return Overlaps(notes=notes)
    beside = {named: OtherConnector(*named, {}, "", "declared") for named in flows}
    beside |= {(other.connect, other.connector): other for other in others if other.state != "FAILED"}
    problems: dict[str, tuple[LiveProblem, ...]] = {}
    for mine, theirs, topics in _shared_topics(reading, flows, beside, changed):
        flow = flows[mine][0]
        # What a connector that is not declared says in its config is no authority.
        if not any(_RULE in flows[named][0].settings.silence for named in (mine, theirs) if named in flows):
            problems[flow.id] = (*problems.get(flow.id, ()), _problem(flow, mine, beside[theirs], topics))
    return Overlaps(problems, notes)


def _runs_otherwise(connector: LiveConnector) -> bool:
    """Lint has judged what is declared."""
    rests = connector.desired.state in RESTING and not (connector.status and connector.status.state in RESTING)
    return rests or (
        connector.running is not None and selects_otherwise(connector.running.config, connector.desired.config)
    )


def _shared_topics(
    reading: Reading,
    flows: Mapping[Named, tuple[Flow, LiveConnector]],
    beside: Mapping[Named, OtherConnector],
    changed: Set[Named],
) -> Iterator[tuple[Named, Named, list[str]]]:
    """Topics are those that the source has, or where it was not read those of the flow's tasks."""
    from mm2mgr.lint.mirroring import overlaps
    from mm2mgr.lint.reading import running_subject
    from mm2mgr.lint.subject import WorkerFacts

    versions = {name: connect.version for name, connect in reading.connects.items()}
    configs: dict[Named, tuple[Mapping[str, str], str | None]] = {
        named: (other.config, other.state) for named, other in beside.items()
    }
    configs |= {
        named: (connector.running.config, connector.status.state if connector.status else None)
        for named, (_, connector) in flows.items()
        if connector.running
    }
    subjects = {
        named: subject
        for named, (config, state) in configs.items()
        if (
            subject := running_subject(
                *named, config, state, WorkerFacts(version=kafka_version(versions.get(named[0], "")))
            )
        )
    }
    ours = {named: subject for named, subject in subjects.items() if named in flows}
    rivals = {named: subject for named, subject in subjects.items() if named not in flows or named in changed}
    there: dict[Named, Collection[str]] = {}
    for named, (flow, connector) in flows.items():
        source = reading.clusters.get(flow.source.alias, RunningKafka())
        assigned = (topic for partitions in connector.partitions_by_task().values() for topic, _ in partitions)
        there[named] = {*assigned} if source.failure else source.topics
    reported = set[tuple[Named, Named]]()
    for mine, theirs, topics in overlaps(ours, rivals, there):
        for pair in ((mine, theirs), (theirs, mine)):
            if pair[0] in flows and pair not in reported:
                reported.add(pair)
                yield *pair, topics


def _problem(flow: Flow, mine: Named, other: OtherConnector, topics: Sequence[str]) -> LiveProblem:
    name = "/".join(filter(None, (other.connect, other.connector)))
    ends = flow.source.alias, flow.target.alias
    evidence = Overlap(name, other.standing, other.owner, tuple(topics[:NAMED]), len(topics), *ends)
    return LiveProblem(evidence, ProblemSubject(*mine, flow.id))


def _dedicated_connectors(
    reading: Reading, flows: Iterable[Flow]
) -> tuple[list[OtherConnector], dict[str, tuple[str, ...]]]:
    connectors: dict[str, OtherConnector] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for flow in flows:
        source, target = flow.source.alias, flow.target.alias
        runs = reading.clusters.get(target, RunningKafka()).dedicated.get(source)
        name = f"{dedicated_names(source)[2]} on {target}"
        if runs is None:
            continue
        if runs.config is None:
            notes[flow.id] = (
                (
                    f"a dedicated MirrorMaker runs (group {name} has {number_of(runs.members, 'member')}); whether it"
                    f" mirrors this flow's topics is not known: mm2mgr's login could not read {configs_topic(source)}"
                ),
            )
        else:
            config = {"connector.class": SOURCE_CLASS, **runs.config}
            connectors[name] = OtherConnector("", name, config, "RUNNING", "dedicated")
    return list(connectors.values()), notes
