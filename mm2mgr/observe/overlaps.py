"""Connectors that mirror what a flow mirrors too: made by hand, of other owners, left over, or of a dedicated MirrorMaker. Pure.

Whether two connectors overlap is decided as for plan, by `lint.mirroring`. It loads the rules of lint, so it is asked only where
something runs that the tree does not declare like this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from mm2mgr.comparison.differences import Named, selects_otherwise
from mm2mgr.connect.exactly_once import SOURCE_CLASS
from mm2mgr.connectors import RESTING
from mm2mgr.live.dedicated import configs_topic, dedicated_names
from mm2mgr.live.kafka_state import SeenKafka
from mm2mgr.observe.kinds import LiveProblem, ProblemSubject
from mm2mgr.observe.reading import LiveConnector, OtherConnector, Reading
from mm2mgr.text import number_of
from mm2mgr.topology import Flow
from mm2mgr.truth.keys import kafka_version

_RULE = "overlap"
_NAMED = 20  # topics of one problem


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
    dedicated, notes = _dedicated(reading, [flow for flow, _ in flows.values()])
    others = [*(other for connect in reading.connects.values() for other in connect.others), *dedicated]
    changed = {named for named, (_, connector) in flows.items() if _runs_otherwise(connector)}
    if not flows or not (others or changed):
        return Overlaps(notes=notes)
    beside = {named: OtherConnector(*named, {}, "", "declared") for named in flows}
    beside |= {(other.connect, other.connector): other for other in others if other.state != "FAILED"}
    problems: dict[str, tuple[LiveProblem, ...]] = {}
    for mine, theirs, topics in _shared(reading, flows, beside, changed):
        flow = flows[mine][0]
        # What a connector that is not declared says in its config is no authority.
        if not any(_RULE in flows[named][0].settings.silence for named in (mine, theirs) if named in flows):
            problems[flow.id] = (*problems.get(flow.id, ()), _problem(flow, mine, beside[theirs], topics))
    return Overlaps(problems, notes)


def _runs_otherwise(connector: LiveConnector) -> bool:
    """Tell whether a flow's connector mirrors what the tree does not declare like this: lint has judged what is declared."""
    rests = connector.desired.state in RESTING and not (connector.status and connector.status.state in RESTING)
    return rests or (
        connector.running is not None and selects_otherwise(connector.running.config, connector.desired.config)
    )


def _shared(
    reading: Reading,
    flows: Mapping[Named, tuple[Flow, LiveConnector]],
    beside: Mapping[Named, OtherConnector],
    changed: Set[Named],
) -> Iterator[tuple[Named, Named, list[str]]]:
    """Yield each flow's connector with one that overlaps, and the topics of both: those that the source has, or where it was not read
    those that the flow's tasks have."""
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
        source = reading.clusters.get(flow.source.alias, SeenKafka())
        assigned = (topic for partitions in connector.partitions_by_task().values() for topic, _ in partitions)
        there[named] = {*assigned} if source.failure else source.topics
    reported = set[tuple[Named, Named]]()
    for mine, theirs, topics in overlaps(ours, rivals, there):
        for pair in ((mine, theirs), (theirs, mine)):
            if pair[0] in flows and pair not in reported:
                reported.add(pair)
                yield *pair, topics


def _problem(flow: Flow, mine: Named, other: OtherConnector, topics: Sequence[str]) -> LiveProblem:
    values = {
        "other": "/".join(part for part in (other.connect, other.connector) if part),
        "standing": other.standing,
        "owner": other.owner,
        "topics": list(topics[:_NAMED]),
        "topic_count": len(topics),
        "source": flow.source.alias,
        "target": flow.target.alias,
    }
    return LiveProblem(_RULE, ProblemSubject(*mine, flow.id), values)


def _dedicated(reading: Reading, flows: Iterable[Flow]) -> tuple[list[OtherConnector], dict[str, tuple[str, ...]]]:
    """Return the source connectors of dedicated MirrorMakers that run, and notes on those whose configs cannot be read."""
    connectors: dict[str, OtherConnector] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for flow in flows:
        source, target = flow.source.alias, flow.target.alias
        runs = reading.clusters.get(target, SeenKafka()).dedicated.get(source)
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
