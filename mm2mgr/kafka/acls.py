"""Rights on Kafka's resources and settings of topics as values, and whether a list of ACLs grants a right. Pure.

Super users and authorizers without ACLs are unknown here; `rights` asks the brokers themselves wherever it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

ResourceKind = Literal["topic", "group", "cluster", "transactional id"]
Permission = Literal["yes", "no", "open"]
"""What brokers answer when asked for a right; `open`: they answer only about a resource that exists."""
CLUSTER_NAME = "kafka-cluster"
# What AclAuthorizer and StandardAuthorizer read into an ALLOW; a DENY takes away only what it names.
_IMPLIED_BY = {
    "Describe": frozenset({"Read", "Write", "Delete", "Alter"}),
    "DescribeConfigs": frozenset({"AlterConfigs"}),
}


@dataclass(frozen=True, order=True)
class Right:
    """One operation on one resource, such as Write on topic dc1.orders."""

    operation: str
    kind: ResourceKind
    name: str = CLUSTER_NAME

    def __str__(self) -> str:
        return self.operation + (" on the cluster" if self.kind == "cluster" else f" on {self.kind} {self.name}")

    def implied_by(self) -> frozenset[str]:
        """Return the other operations on the same resource that include this one."""
        return _IMPLIED_BY.get(self.operation, frozenset())


@dataclass(frozen=True)
class Acl:
    """One access control entry; `pattern` is literal or prefixed, a literal `*` means every name."""

    principal: str
    host: str
    operation: str
    kind: ResourceKind
    name: str
    prefixed: bool
    allow: bool

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{'allow' if self.allow else 'deny'} {self.operation} for {self.principal}{host}"

    def covers(self, right: Right) -> bool:
        """Tell whether it is about this right's resource and operation, `All` and implied operations included."""
        named = right.name.startswith(self.name) if self.prefixed else self.name in (right.name, "*")
        operations = {right.operation, "All"} | (right.implied_by() if self.allow else frozenset())
        return self.kind == right.kind and named and self.operation in operations


def is_allowed(acls: Iterable[Acl], principal: str, right: Right) -> bool | None:
    """Tell whether ACLs give a principal a right from any host; None where that depends on the host."""
    about = [acl for acl in acls if acl.principal in (principal, "User:*") and acl.covers(right)]
    denied = {acl.host for acl in about if not acl.allow}
    granted = {acl.host for acl in about if acl.allow}
    if "*" in denied or not granted:
        return False
    return True if "*" in granted and not denied else None


@dataclass(frozen=True)
class TopicSettings:
    """The settings that apply to one topic, and those of them that were `set` on it; none that Kafka hides."""

    values: Mapping[str, str]
    set: Mapping[str, str]
