"""How mm2mgr's own machine reaches a declared Kafka cluster, and which cluster really answers there.

In: clusters of the topology. Out: a KafkaAccess (placeholders unresolved), and cluster ids with the reasons for missing ones.
It loads a Kafka client only for a cluster whose id is not declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.topology import KafkaCluster, Topology

_ID_TIMEOUT_SECONDS = 3.0


def kafka_access(cluster: KafkaCluster) -> KafkaAccess:
    """Return how mm2mgr itself reaches a cluster; addresses and security are each replaced only where `access:` has them."""
    model, own = cluster.model, cluster.model.access
    servers = own.bootstrap_servers if own and own.bootstrap_servers is not None else model.bootstrap_servers
    security = own.security if own and own.security is not None else model.security
    return KafkaAccess(cluster.alias, ",".join(servers), dict(security))


@dataclass(frozen=True)
class ClusterIds:
    """Kafka's own ids by alias, and for the others why they are not known."""

    known: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


async def cluster_ids(
    topology: Topology, aliases: Iterable[str], timeout_seconds: float = _ID_TIMEOUT_SECONDS
) -> ClusterIds:
    """Return the declared ids, and ask the other clusters, all at once."""
    ids = ClusterIds()
    asked = []
    for alias in dict.fromkeys(aliases):
        declared = topology.clusters[alias].model.cluster_id
        if declared:
            ids.known[alias] = declared
        else:
            asked.append(alias)
    answers = (asyncio.to_thread(_ask, topology.clusters[alias], timeout_seconds) for alias in asked)
    for alias, answer in zip(asked, await asyncio.gather(*answers), strict=True):
        if isinstance(answer, Mm2mgrError):
            ids.unknown[alias] = answer.message
        else:
            ids.known[alias] = answer
    return ids


def _ask(cluster: KafkaCluster, timeout_seconds: float) -> str | Mm2mgrError:
    from mm2mgr.kafka.client import Kafka  # loads librdkafka, which a plan with declared ids does without

    try:
        with Kafka(kafka_access(cluster), timeout_seconds) as kafka:
            return kafka.cluster_id()
    except Mm2mgrError as error:
        return error
