"""How mm2mgr's own machine reaches a declared cluster: its `access:` block where given, else what the workers use.

In: a cluster of the topology. Out: the KafkaAccess for mm2mgr's own clients; placeholders stay unresolved.
"""

from __future__ import annotations

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.topology import KafkaCluster


def kafka_access(cluster: KafkaCluster) -> KafkaAccess:
    """Return how mm2mgr itself reaches a cluster; addresses and security are each replaced only where `access:` has them."""
    model, own = cluster.model, cluster.model.access
    servers = own.bootstrap_servers if own and own.bootstrap_servers is not None else model.bootstrap_servers
    security = own.security if own and own.security is not None else model.security
    return KafkaAccess(cluster.alias, ",".join(servers), dict(security))
