"""What a flow carries over its link as its settings are, and what the other end would change; sizing counts the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.evidence.read import capacity_of
from mm2mgr.json_values import to_json
from mm2mgr.link_forecast import outlook
from mm2mgr.topology import Flow
from tests.spec.trees import BASE, FLOW, expanded

PLACES = BASE.replace("kafka: b}", "kafka: b}\n  near: {url: 'http://x:8083', kafka: a}")
LINK = "links: [{between: [b, a], rtt: 100ms, bandwidth: 200Mbit/s}]\n"
OPEN = "".join(
    f"  {alias}: {{version: '4.3', socket.send.buffer.bytes: -1, socket.receive.buffer.bytes: -1}}\n" for alias in "ab"
)


def _flow(folder: Path, more: str = "", brokers: str = f"brokers:\n{OPEN}", link: str = LINK) -> Flow:
    (flow,) = expanded(folder, x=f"{PLACES}{link}{FLOW}{more}", overrides__brokers=brokers).flows
    return flow


def test_the_verdict_compares_both_ends(tmp_path: Path) -> None:
    found = outlook(_flow(tmp_path))
    assert found is not None
    assert to_json(found)["verdict"] == found.sentences
    assert found.sentences[0].startswith("workers beside the target (remote consume), over 100 ms, 25 MB/s: 18.3 MB/s")
    assert found.sentences[1] == (
        "one partition cannot exceed 18.3 MB/s here; with workers beside the source (remote produce) 24.1 MB/s"
    )
    back = outlook(_flow(tmp_path, "    run_on: near\n"))
    assert back is not None
    assert "can carry 24.1 MB/s here; with workers beside the target (remote consume) 18.3 MB/s" in back.sentences[1]


def test_limits_that_were_not_read_are_named(tmp_path: Path) -> None:
    found = outlook(_flow(tmp_path, brokers="brokers: {}"))
    assert found is not None
    assert found.sentences[-1].startswith("the limits of a and b were not read")
    assert "socket buffers" in found.sentences[0]


def test_a_stall_is_said_first(tmp_path: Path) -> None:
    found = outlook(
        _flow(
            tmp_path,
            "    source_consumer: {receive.buffer.bytes: 65536, fetch.max.bytes: 52428800, max.partition.fetch.bytes: 52428800}\n",
        )
    )
    assert found is not None
    assert "nothing arrives: a fetch takes 66.5 s" in found.sentences[0]


def test_without_a_link_there_is_none(tmp_path: Path) -> None:
    assert outlook(_flow(tmp_path, link="")) is None


@pytest.mark.parametrize(
    ("run_on", "brokers", "settings", "rate"),
    [
        ("w", "{}", "", 1.64),
        ("near", "{}", "", 1.26),  # the target's brokers
        ("near", "{}", "    record_producer: {batch.size: 16384, max.in.flight.requests.per.connection: 1}\n", 0.14),
        ("w", f"\n{OPEN}", "", 10),  # the default: the model knows no slow brokers
        ("near", f"\n{OPEN}", "", 10),
    ],
)
def test_the_capacity_of_a_task_is_that_of_its_side(
    tmp_path: Path, run_on: str, brokers: str, settings: str, rate: float
) -> None:
    flow = _flow(tmp_path, f"    run_on: {run_on}\n{settings}", f"brokers: {brokers}")
    assert capacity_of(flow).bytes_per_second / 1e6 == pytest.approx(rate, rel=0.05)
