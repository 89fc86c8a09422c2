"""Brokers that deny by default, their users and ACLs, and a tree with a principal of its own for each client.

In: rights as text. Out: running brokers whose ACLs a test can take away one at a time, and give back as a pasted command would.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from mm2mgr.check.judge import Checked, CheckRow
from mm2mgr.json_values import to_json
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations import Workspace
from mm2mgr.operations.status import check
from mm2mgr.sandbox.kafka_servers import Broker
from mm2mgr.sandbox.runtime import Runtime
from tests.live.seen import admin
from tests.live.test_security import identity

USERS = ("smain", "sadmin", "scons", "sprod", "tmain", "tadmin", "tprod", "tcons")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_OPERATIONS = {"".join(word.capitalize() for word in each.name.split("_")): each for each in AclOperation}
_RESOURCES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
SYNCS, CHECKPOINTS = "mm2-offset-syncs.B.internal", "A.checkpoints.internal"


def password(user: str) -> str:
    return f"{user}-secret"


def jaas(user: str, word: str | None = None) -> str:
    return f'{PLAIN} username="{user}" password="{word or password(user)}";'


@dataclass(frozen=True)
class Allowed:
    """One ACL: `sadmin Describe topic t`, on one of the two clusters."""

    cluster: str
    user: str
    operation: str
    kind: str
    name: str = "kafka-cluster"
    pattern: ResourcePatternType = field(default=ResourcePatternType.LITERAL, kw_only=True)
    permission: AclPermissionType = field(default=AclPermissionType.ALLOW, kw_only=True)

    def __str__(self) -> str:
        return f"{self.cluster}-{self.user}-{self.operation}-{self.name}"

    def binding(self) -> AclBinding:
        user, operation = f"User:{self.user}", _OPERATIONS[self.operation]
        return AclBinding(_RESOURCES[self.kind], self.name, self.pattern, user, "*", operation, self.permission)

    def filter(self) -> AclBindingFilter:
        one = self.binding()
        who, what = (one.principal, one.host), (one.operation, one.permission_type)
        return AclBindingFilter(one.restype, one.name, one.resource_pattern_type, *who, *what)


def _by_cluster(acls: Iterable[Allowed]) -> dict[str, list[Allowed]]:
    found: dict[str, list[Allowed]] = {}
    for each in acls:
        found.setdefault(each.cluster, []).append(each)
    return found


def allowed(cluster: str, *lines: str) -> list[Allowed]:
    words = [line.split() for line in lines]
    return [Allowed(cluster, user, operation, kind, *name) for user, operation, kind, *name in words]


# The least that all 24 rows ask for: each client has a login of its own, each ACL is there for one row or two.
ALL = [
    *allowed("A", "sadmin Describe topic t", "sadmin DescribeConfigs topic t", "scons Read topic t"),
    *allowed("A", "sadmin Describe topic heartbeats", "sadmin DescribeConfigs topic heartbeats", "scons Read topic heartbeats"),
    *allowed("A", "sadmin Describe cluster", f"sadmin Create topic {SYNCS}", f"sprod Write topic {SYNCS}"),
    *allowed("A", "sadmin Describe group g", f"sadmin Describe topic {SYNCS}", f"smain Read topic {SYNCS}"),
    *allowed("A", "sadmin Create topic heartbeats", "smain Write topic heartbeats"),
    *allowed("B", "tadmin Create topic A.t", "tadmin Alter topic A.t", "tadmin AlterConfigs topic A.t", "tprod Write topic A.t"),
    *allowed("B", "tadmin Create topic A.heartbeats", "tadmin Alter topic A.heartbeats", "tadmin AlterConfigs topic A.heartbeats"),
    *allowed("B", "tprod Write topic A.heartbeats", "tadmin Alter cluster", f"tadmin Create topic {CHECKPOINTS}"),
    *allowed("B", f"tadmin Describe topic {CHECKPOINTS}", f"tcons Read topic {CHECKPOINTS}", f"tmain Write topic {CHECKPOINTS}"),
    *allowed("B", "tadmin Read group g", "tadmin Read topic A.t"),
]  # fmt: skip


def deny_by_default(name: str, folder: Path, runtime: Runtime, tls: Mapping[str, str]) -> Broker:
    """Return a broker: SECURE wants a password, TLS a certificate, and INSIDE is the super user's."""
    users = " ".join(f'user_{user}="{password(user)}"' for user in USERS)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "listener.name.tls.ssl.client.auth": "required",
        **{f"listener.name.tls.{key}": value for key, value in tls.items()},
    }
    listeners = {"INSIDE": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT", "TLS": "SSL"}
    return Broker(name, folder / name, properties, listeners=listeners, runtime=runtime)


def certified(authority: trustme.CA, host: str) -> dict[str, str]:
    """Return the TLS settings, inline, of a client or a listener with a certificate of this authority."""
    own = identity(authority, host)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own.chain,
        "ssl.keystore.key": own.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }


@dataclass
class World:
    """Two brokers and a Connect cluster that only answers; `said` keeps every text that a check ever made."""

    brokers: dict[str, Broker]
    connect: str
    folder: Path
    authority: trustme.CA
    said: list[str] = field(default_factory=list)
    admins: dict[str, AdminClient] = field(default_factory=dict)

    def inside(self, cluster: str) -> KafkaAccess:
        return KafkaAccess(cluster, self.brokers[cluster].bootstrap("INSIDE"))

    def super_user(self, cluster: str) -> AdminClient:
        return self.admins.setdefault(cluster, admin(self.inside(cluster)))

    def add(self, acls: Iterable[Allowed]) -> None:
        for cluster, group in _by_cluster(acls).items():
            for future in self.super_user(cluster).create_acls([each.binding() for each in group]).values():
                future.result(20)

    def remove(self, acls: Iterable[Allowed]) -> None:
        for cluster, group in _by_cluster(acls).items():
            for future in self.super_user(cluster).delete_acls([each.filter() for each in group]).values():
                assert future.result(20), "it was not there"

    def acls(self, cluster: str) -> set[str]:
        any_ = AclPermissionType.ANY
        every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, any_)  # type: ignore[arg-type]
        return {str(binding) for binding in self.super_user(cluster).describe_acls(every).result(20)}

    def tree(self, kafka: str = "", more: str = "", **clusters: dict[str, object]) -> None:
        """Write the tree; `clusters` overlays entries of its Kafka clusters; with `kafka`, that is the workers' and has the history."""

        def cluster(alias: str, user: str) -> dict[str, object]:
            security = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(user)}
            servers = [self.brokers[alias].bootstrap("SECURE")]
            return {"bootstrap_servers": servers, "security": security, **clusters.get(alias, {})}

        blocks = {"source_admin": "sadmin", "source_consumer": "scons", "offset_syncs_producer": "sprod"}
        blocks |= {"target_admin": "tadmin", "record_producer": "tprod", "target_consumer": "tcons"}
        flow = {
            **{
                "sources": ["A"],
                "targets": ["B"],
                "run_on": "c",
                "topics": {"include": ["t"]},
                "sync": {"topic_acls": True},
            },
            **{"checkpoints": {"group_offsets": True, "groups": {"include": ["g"]}}},
            **{block: {"sasl.jaas.config": jaas(user)} for block, user in blocks.items()},
        }
        parts = {
            "owner": "rights",
            "defaults": {"clusters": {"replication_factor": 1}},
            "clusters": {
                "A": cluster("A", "smain"),
                "B": cluster("B", "tmain"),
                "W": {"bootstrap_servers": ["nowhere:1"]},
            },
            "connect": {"c": {"url": [self.connect], "kafka": kafka or "W", "history": bool(kafka)}},
            "flows": {"f": flow},
        }
        self.folder.mkdir(exist_ok=True)
        (self.folder / "tree.yaml").write_text(
            "".join(f"{key}: {json.dumps(part)}\n" for key, part in parts.items()) + more
        )

    def check(self, timeout_seconds: float = 45.0) -> Checked:
        found = check(Workspace((self.folder,)), timeout_seconds=timeout_seconds)
        self.said.append(json.dumps(to_json(found)))
        return found

    def paste(self, commands: Iterable[str]) -> None:
        """Do what the printed commands say, through the admin API as the super user."""
        self.add(acl for command in commands for acl in self.read(command))

    def read(self, command: str) -> list[Allowed]:
        words = shlex.split(command)
        assert words[:2] == ["kafka-acls.sh", "--bootstrap-server"]
        values: dict[str, list[str]] = {}
        for flag, value in zip(words, [*words[1:], ""], strict=True):
            if flag.startswith("--"):
                values.setdefault(flag, []).append(value)
        (cluster,) = (
            alias for alias, one in self.brokers.items() if words[2] in (one.bootstrap("SECURE"), one.bootstrap("TLS"))
        )
        (principal,) = values["--allow-principal"]
        resources = [(kind, name) for kind in ("topic", "group") for name in values.get(f"--{kind}", [])]
        resources += [("cluster", "kafka-cluster")] * ("--cluster" in values)
        user = principal.removeprefix("User:")
        return [Allowed(cluster, user, operation, *one) for one in resources for operation in values["--operation"]]


def numbers(found: Checked, status: str = "missing") -> set[int]:
    return {number for row in rights(found) if row.status == status for number in row.rows}


def rights(found: Checked) -> list[CheckRow]:
    return [row for row in found.rows if row.rows]


def until_missing(world: World, expected: set[int], seconds: float = 90.0) -> Checked:
    """Check until exactly these rows are missing: brokers apply a changed ACL a moment after they acknowledge it."""
    deadline = time.monotonic() + seconds
    while numbers(found := world.check()) != expected:
        assert time.monotonic() < deadline, f"{sorted(numbers(found))} are missing, not {sorted(expected)}"
    return found
