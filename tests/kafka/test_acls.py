"""ACLs as brokers evaluate them: patterns, hosts, what an operation includes, and that a DENY comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2mgr.kafka.acls import Acl, Right, is_allowed

WRITE = Right("Write", "topic", "dc1.orders")
GIVEN = Acl("User:mirror", "*", "Write", "topic", "dc1.orders", prefixed=False, allow=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"name": "*"}, True),
        ({"name": "dc1.", "prefixed": True}, True),
        ({"operation": "All"}, True),
        ({"principal": "User:*"}, True),
        ({"host": "10.0.0.7"}, None),
        ({"name": "dc1.order"}, False),
        ({"name": "dc2.", "prefixed": True}, False),
        ({"name": "*", "prefixed": True}, False),  # a prefix is taken literally
        ({"operation": "Read"}, False),
        ({"kind": "group"}, False),
        ({"principal": "User:mirrors"}, False),
        ({"allow": False}, False),
    ],
)
def test_one_acl(change: dict[str, object], expected: bool | None) -> None:
    assert is_allowed([replace(GIVEN, **change)], "User:mirror", WRITE) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "given", "expected"),
    [
        *[("Describe", each, True) for each in ("Read", "Write", "Alter", "Delete", "Describe")],
        ("Describe", "Create", False),
        ("Describe", "AlterConfigs", False),
        ("DescribeConfigs", "AlterConfigs", True),
        ("DescribeConfigs", "Describe", False),
    ],
)
def test_what_an_operation_includes(operation: str, given: str, expected: bool) -> None:
    right = replace(WRITE, operation=operation)
    assert is_allowed([replace(GIVEN, operation=given)], "User:mirror", right) is expected


def test_a_deny_outweighs_and_names_only_itself() -> None:
    deny = replace(GIVEN, principal="User:*", operation="Read", allow=False)
    describe = replace(WRITE, operation="Describe")
    assert is_allowed([GIVEN, deny], "User:mirror", WRITE) is True
    assert is_allowed([GIVEN, deny], "User:mirror", describe) is True
    assert is_allowed([GIVEN, replace(deny, operation="All")], "User:mirror", WRITE) is False
    assert is_allowed([GIVEN, replace(deny, operation="Write", host="10.0.0.7")], "User:mirror", WRITE) is None


def test_a_right_in_words() -> None:
    assert str(WRITE) == "Write on topic dc1.orders"
    assert str(Right("Alter", "cluster")) == "Alter on the cluster"
