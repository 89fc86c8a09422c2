"""explain judges the connectors of exactly-once workers as such: other clients exist, and other values are decided for them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spec.trees import BASE, FLOW, write

from .command import Command

ON_THIRD = BASE.replace("connect:", "  c: {bootstrap_servers: [c1:9092]}\nconnect:").replace("kafka: b", "kafka: c%s")


def clients(mm2mgr: Command, connect: str, more: str) -> dict[str, dict[str, str]]:
    """Return plain key -> value by client of the source connector."""
    write(mm2mgr.tree, x=ON_THIRD % connect + FLOW + "    run_on: w\n" + more)
    found: list[dict[str, Any]] = mm2mgr("explain", "f", "--on", "source", "-o", "json").json
    return {
        client["client"]: {value["key"]: value["value"] for value in client["values"]} for client in found[0]["clients"]
    }


@pytest.mark.parametrize(
    ("connect", "more"), [("", "    delivery: exactly_once\n"), (", exactly_once: true", ""), ("", "")]
)
def test_exactly_once_workers_have_more_clients(mm2mgr: Command, connect: str, more: str) -> None:
    found, once = clients(mm2mgr, connect, more), bool(connect or more)
    assert found["record producer"]["enable.idempotence"] == str(once).lower()
    assert ("framework admin" in found, "framework offsets consumer" in found) == (once, once)
    if once:
        for client in ("record producer", "framework offsets consumer", "framework admin"):
            assert found[client]["bootstrap.servers"] == "b1:9092"
