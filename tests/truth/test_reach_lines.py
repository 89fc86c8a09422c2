"""The reach table against what Kafka's own classes of every line answer (`reached.json`, written by `tools.kafka_keys.reached`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.connectors import ConnectorType
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, Client, clients_of_line

ANSWERS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("reached.json").read_text())
BY_LINE: dict[str, dict[str, Any]] = {line: each for each in ANSWERS for line in each["lines"]}
KINDS = ("producer", "consumer", "admin")
CELLS = [(line, type_) for line in BY_LINE for type_ in CLIENTS]


def test_every_known_line_was_asked() -> None:
    assert tuple(BY_LINE) == load().lines


def answered(client: Client, line: str) -> dict[str, Any] | None:
    """Return what the classes of a line say of a client, None where they have no such client."""
    name = client.name if client.worker_prefixes else f"{client.side} {client.kind}"
    found: dict[str, Any] | None = BY_LINE[line]["clients"].get(name)
    return found


@pytest.mark.parametrize(("line", "type_"), CELLS)
def test_the_prefixes_that_reach_a_client_and_their_order(line: str, type_: ConnectorType) -> None:
    for client in clients_of_line(type_, load().releases[line]):
        said = answered(client, line)
        assert said is not None, client.name
        workers = [f"workers' {prefix}" for prefix in reversed(client.worker_prefixes)]
        for what, plain in (("cluster key", "ssl.provider"), ("other key", "client.rack")):
            layers = [layer.prefix for layer in reversed(client.layers) if layer.plain(layer.prefix + plain)]
            assert [*layers, *workers] == said[what], (client.name, what)


@pytest.mark.parametrize(("line", "type_"), CELLS)
def test_the_keys_that_nobody_can_set(line: str, type_: ConnectorType) -> None:
    for client in clients_of_line(type_, load().releases[line]):
        said = answered(client, line)
        assert said is not None
        assert sorted(client.forced) == sorted(said["forced"]), client.name


@pytest.mark.parametrize("line", BY_LINE)
def test_every_client_that_a_line_builds_is_in_its_table(line: str) -> None:
    tables = (client for type_ in CLIENTS for client in clients_of_line(type_, load().releases[line]))
    names = {client.name if client.worker_prefixes else f"{client.side} {client.kind}" for client in tables}
    assert names == set(BY_LINE[line]["clients"])


@pytest.mark.parametrize("line", BY_LINE)
def test_the_cluster_prefixes_pass_what_the_line_lets_pass(line: str) -> None:
    known = {key for key in CLUSTER_KEYS if any(load().find(kind, key, line) for kind in KINDS)}
    assert sorted(known) == BY_LINE[line]["passed"]
