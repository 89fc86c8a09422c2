"""With which login, and to which Kafka cluster, each client of a connector goes. In: a rendered connector. Out: Logins. Pure.

Placeholders stay as they are; `principals` finds the name behind a login.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.render import Connector
from mm2mgr.topology import KafkaCluster, Topology
from mm2mgr.truth.reach import CLUSTER_KEYS, Client, effective

_BOOTSTRAP = "bootstrap.servers"


@dataclass(frozen=True)
class Login:
    """A way into one Kafka cluster, as the workers use it. `assumed`: the workers bring theirs, this is what the tree says of it."""

    cluster: str
    servers: str
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    assumed: bool = False

    @classmethod
    def of(cls, cluster: str, config: Mapping[str, str], *, assumed: bool = False) -> Login:
        """Make one of plain client keys; keys that are neither address nor security are dropped."""
        security = {key: value for key, value in config.items() if key in CLUSTER_KEYS and key != _BOOTSTRAP}
        if security.get("security.protocol") == "PLAINTEXT":  # said or not said: one login
            security = {}
        return cls(cluster, config.get(_BOOTSTRAP, ""), tuple(sorted(security.items())), assumed)

    def access(self, cluster: KafkaCluster) -> KafkaAccess:
        """Return how this machine acts as the login: through the addresses of `access:` where given, never with its security."""
        own = cluster.model.access
        servers = ",".join(own.bootstrap_servers) if own and own.bootstrap_servers is not None else self.servers
        return KafkaAccess(self.cluster, servers, dict(self.security))


def login_of(client: Client, connector: Connector, topology: Topology) -> Login:
    """Return the login of one client of a connector."""
    config = connector.config
    side = "source" if client.side == "source" else "target"
    alias = config[f"{side}.cluster.alias"]
    found = {plain: config[key] for plain, key in effective(client, config).items()}
    if client.side in ("source", "target"):
        return Login.of(alias, found)
    # Connect's own clients start from the workers' settings, which are not in the tree; what it says of that cluster is
    # said of the workers.
    declared = {key: str(value) for key, value in topology.clusters[alias].client.items()}
    whole = "security.protocol" in found
    known = {**({_BOOTSTRAP: declared[_BOOTSTRAP]} if whole else declared), **found}
    return Login.of(alias, known, assumed=not whole and len(declared) > 1)
