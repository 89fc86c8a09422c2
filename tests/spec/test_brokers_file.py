"""overrides/brokers.yaml as it is loaded: limits of clusters, Kafka's own where nothing was read, and mistakes with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.link import BrokerLimits
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology

from .trees import BASE, FLOW

READ = """\
brokers:
  a: {count: 3, version: '3.9', socket.send.buffer.bytes: -1, socket.receive.buffer.bytes: 65536}
  b: {message.max.bytes: 2000000, flows: {'f:a->b': 900000}}
  gone: {count: 1}
"""


def loaded(folder: Path, brokers: str) -> Topology:
    (folder / "overrides").mkdir()
    (folder / "x.yaml").write_text(BASE + FLOW)
    (folder / "overrides" / "brokers.yaml").write_text(brokers)
    return expand(load([folder]))


def test_limits_of_brokers_are_those_of_the_file_else_those_of_kafka(tmp_path: Path) -> None:
    topology = loaded(tmp_path, READ)
    assert topology.clusters["a"].limits == BrokerLimits(-1, 65_536, brokers=3, version="3.9", read=True)
    assert topology.clusters["b"].limits == BrokerLimits(message_bytes=2_000_000, read=True)
    (flow,) = topology.flows
    assert flow.target_limits.message_bytes == 900_000
    assert topology.stale_brokers == ("gone",)


def test_without_the_file_nothing_was_read(tmp_path: Path) -> None:
    topology = loaded(tmp_path, "")
    assert {each.limits for each in topology.clusters.values()} == {BrokerLimits()}
    assert not BrokerLimits().read


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("brokers:\n  a: {count: 0}\n", ":2:7: ", "a whole number from 1"),
        ("brokers:\n  a:\n    socket.send.buffer.bytes: 100 KB\n", ":3:5: ", "a whole number from -1"),
        ("brokers:\n  a:\n    socket.send.bufer.bytes: 1\n", ":3:5: ", "socket.send.buffer.bytes"),
        ("brokers:\n  a: {count: 1}\n  a: {count: 2}\n", ":3:3: ", "duplicate key 'a', first in line 2"),
        ("brokers: {a: {count: 1}}\nflows: {}\n", ":2:1: ", "'flows' does not belong in this file"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, place: str, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, text)
    (problem,) = caught.value.problems
    assert f"overrides/brokers.yaml{place}" in str(problem)
    assert what in str(problem)
