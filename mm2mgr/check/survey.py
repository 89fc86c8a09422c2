"""What exists on the clusters: topics, groups whose offsets are translated, size limits. In: logged-in sessions. Out: values.

A topic that one login may not see can still be there, so what any login of a cluster sees counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from mm2mgr import defaults
from mm2mgr.check.needs import Known, mirrored
from mm2mgr.check.sessions import Session, Team
from mm2mgr.kafka.acting import ActingAs
from mm2mgr.lint.subject import KafkaFacts as Kafka
from mm2mgr.render import Connector
from mm2mgr.spec.patterns import is_name, java_pattern
from mm2mgr.topics.names import NameFilter as Names
from mm2mgr.topology import Flow, Topology

_GROUPS_AT_MOST = 500  # each is a request of its own


def survey(team: Team, topology: Topology, connectors: Iterable[Connector]) -> Known:
    """Return the topics of each cluster, and by pair the groups that its checkpoint connector translates."""
    aliases = {session.alias for session in team.sessions.values()}
    topics = {
        alias: {topic for each in team.of(alias) if each.seen for topic in each.seen.partitions} for alias in aliases
    }
    groups: dict[str, list[str]] = {}
    checkpoints = [connector for connector in connectors if connector.type == "checkpoint"]
    jobs = [partial(_translated, team, topology.flows_of(one.flows), groups) for one in checkpoints]
    team.run(jobs)
    return Known(topics, groups)


def _translated(team: Team, flows: Sequence[Flow], groups: dict[str, list[str]]) -> None:
    """Add the groups of one pair: those that it names, and those seen that committed offsets on topics it mirrors."""
    filters = [flow.settings.checkpoints.groups for flow in flows]
    wanted = [
        Names(*(tuple(map(java_pattern, list_)) for list_ in (each.include, [*defaults.GROUPS_EXCLUDE, *each.exclude])))
        for each in filters
    ]
    named = {name for each in filters for name in each.include if is_name(name)}
    found = {name for name in named if any(each.matches(name) for each in wanted)}
    looked_at: set[str] = set()

    def read(names: list[str], acting: ActingAs) -> None:
        for group, topics in acting.topics_of(names).items():
            looked_at.add(group)
            if any(flow.carries(topic) for flow in flows for topic in topics):
                found.add(group)

    for session in team.of(flows[0].source.alias):
        seen = session.seen.groups if session.seen else frozenset()
        new = sorted(name for name in seen - found - looked_at if any(each.matches(name) for each in wanted))
        session.attempt(team.left / 2, partial(read, new[:_GROUPS_AT_MOST]))
    groups[flows[0].pair] = sorted(found)


def kafkas(team: Team, topology: Topology, connectors: Iterable[Connector], known: Known) -> dict[str, Kafka]:
    """Return what lint wants to know of each cluster, as far as a login may read it."""
    flows = [flow for flow in topology.flows if any(flow.id in one.flows for one in connectors)]
    topics: dict[str, set[str]] = {}
    for flow in flows:
        names = mirrored(flow, known.topics.get(flow.source.alias, ()))
        topics.setdefault(flow.source.alias, set()).update(names)
        topics.setdefault(flow.target.alias, set()).update(map(flow.remote_topic, names))
    found: dict[str, Kafka] = {}
    team.run(partial(_kafka, team, alias, topics[alias], found) for alias in topics)
    return found


def _kafka(team: Team, alias: str, topics: set[str], found: dict[str, Kafka]) -> None:
    for session in team.of(alias):
        _limits(team, session, topics, found)
        if alias in found and found[alias].message_max_bytes is not None:
            return


def _limits(team: Team, session: Session, topics: set[str], found: dict[str, Kafka]) -> None:
    seen = session.seen
    if seen is None:
        return
    here = {topic: count for topic, count in seen.partitions.items() if topic in topics}
    found.setdefault(session.alias, Kafka(seen.cluster_id, len(seen.brokers), partitions=here))

    def read(acting: ActingAs) -> None:
        most, per_topic = acting.message_limits(seen.brokers, sorted(here))
        if most is not None or per_topic:
            found[session.alias] = Kafka(seen.cluster_id, len(seen.brokers), most, per_topic, here)

    session.attempt(team.left, read, optional=True)
