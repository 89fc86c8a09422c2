"""Whether a flow could move to Cluster Mirroring (KIP-1279), and by which property it could not. Pure.

KIP-1279 (KAFKA-20186) lets brokers of the target fetch partitions of another cluster, batch by batch: offsets, names
and ids of topics stay as they are, a topic has one source, and a mirror topic takes no other writes. No release of
Kafka has it, so what is said here is of the KIP's text and of its discussion in 2026, and promises nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mm2mgr.connectors import Connector
from mm2mgr.text import few
from mm2mgr.topics.shared import Budget, meeting
from mm2mgr.topology import Flow
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import numbers

NEWEST_WITHOUT = "4.3"
"""The newest release line of Kafka that was looked at (November 2026); it is developed for a later one."""
_OLDEST_SOURCE = (2, 1)  # of the KIP's own tests, and of brokers that clients since 4.0 can use (KIP-896)
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CONVERTERS = ("key.converter", "value.converter")
_FILTER = "org.apache.kafka.connect.transforms.Filter"


@dataclass(frozen=True)
class MirroringAdvice:
    """`obstacles`: properties of a flow that Cluster Mirroring does not have; `cautions`: what would be otherwise."""

    flow: str
    obstacles: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    json_keys = "flow could_move obstacles cautions sentence"

    @property
    def could_move(self) -> bool:
        return not self.obstacles

    @property
    def sentence(self) -> str:
        """One line; nothing is promised before a release has it."""
        kip = f"Cluster Mirroring (KIP-1279, in no release up to Kafka {NEWEST_WITHOUT})"
        if self.obstacles:
            return f"{kip}: could not take this flow: {'; '.join(self.obstacles)}"
        return f"{kip}: by the KIP's text it could take this flow; {'; '.join(self.cautions)}"


def advise_flow(
    flow: Flow, flows: Sequence[Flow], connectors: Sequence[Connector], tiered: Collection[str] = ()
) -> MirroringAdvice:
    """Return what stands between a flow and Cluster Mirroring. `flows` and `connectors` are those of the estate;
    `tiered` are topics of the target that are known to have remote storage."""
    obstacles = [*_naming(flow), *_fan_in(flow, flows), *_both_ways(flow, flows), *_alterations(flow, connectors)]
    obstacles += _versions(flow)
    if tiered:
        obstacles.append(f"tiered storage of topics on the target ({few(sorted(tiered))}), where a mirror cannot begin")
    return MirroringAdvice(flow.id, tuple(obstacles), () if obstacles else tuple(_cautions(flow, flows)))


def _naming(flow: Flow) -> Iterator[str]:
    policy = flow.settings.replication_policy
    if policy == "default":
        yield f"its topics get other names (replication_policy: default, such as {flow.remote_topic('orders')})"
    elif policy != "identity":
        yield f"its topics may get other names (replication_policy: {policy})"


def _fan_in(flow: Flow, flows: Sequence[Flow]) -> Iterator[str]:
    """Yield the topic that another source is mirrored to as well, under the same name."""
    for other in flows:
        is_rival = other.target.alias == flow.target.alias and other.source.alias != flow.source.alias
        if is_rival and {flow.settings.replication_policy, other.settings.replication_policy} == {"identity"}:
            shared = meeting((flow.selection, other.selection), budget=Budget())
            if shared.is_possible:
                name = f"'{shared.topic}'" if shared.topic else "a name"
                yield f"fan-in: {other.source.alias} is mirrored to {name} on {flow.target.alias} too ({other.id})"
                return


def _both_ways(flow: Flow, flows: Sequence[Flow]) -> Iterator[str]:
    """Yield the topic that is mirrored in both directions, and so written on both sides."""
    for other in flows:
        if (other.source.alias, other.target.alias) == (flow.target.alias, flow.source.alias):
            shared = meeting((flow.selection, other.selection), budget=Budget())
            if shared.is_possible:
                name = f"'{shared.topic}'" if shared.topic else "a topic"
                yield f"active/active: {name} is written on both sides ({other.id}), and a mirror topic is read-only"
                return


def _alterations(flow: Flow, connectors: Sequence[Connector]) -> Iterator[str]:
    own = (connector for connector in connectors if connector.type == "source" and flow.id in connector.flows)
    config = next((connector.config for connector in own), {})
    names = [name.strip() for name in config.get("transforms", "").split(",") if name.strip()]
    types = {name: config.get(f"transforms.{name}.type", "") for name in names}
    if filters := [name for name in names if types[name] == _FILTER or types[name].endswith("Filter")]:
        yield f"a filter leaves out records (transforms: {few(filters)}), and copies are whole"
    if others := [name for name in names if name not in filters]:
        yield f"transforms alter records ({few(others)}), and copies are byte for byte"
    altering = [key for key in _CONVERTERS if config.get(key, _BYTES) not in (_BYTES, "")]
    if altering:
        yield f"converters write records anew ({few(altering)}), and copies are byte for byte"


def _versions(flow: Flow) -> Iterator[str]:
    version = flow.source.limits.version
    read_version = kafka_version(version) if version else None
    if read_version and numbers(read_version) < _OLDEST_SOURCE:
        yield f"the brokers of {flow.source.alias} are older than 2.1 ({version})"


def _cautions(flow: Flow, flows: Sequence[Flow]) -> Iterator[str]:
    yield "its topics would be copied anew, with the offsets and ids of the source"
    if any((other.source.alias, other.target.alias) == (flow.target.alias, flow.source.alias) for other in flows):
        yield f"{flow.target.alias} is mirrored back too: no topic may be in both directions"
    if flow.exactly_once:
        yield (
            "exactly once comes with copies of whole batches, but records of open transactions are copied too, and cut "
            "off when mirroring stops"
        )
    if flow.lane_of:
        yield f"together with the other lanes of {flow.whole_id}"
