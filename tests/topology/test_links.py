"""Links keep one fetch short: D <= min(240 kB / RTT, bandwidth / tasks) x 20 s, never above the default, never below 64 KiB.

They also decide how long an offset sync may wait for metadata: 5 x RTT, at least the default.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.trees import BASE, FLOW, expanded


@pytest.mark.parametrize(
    ("link", "tasks", "fetch", "partition"),
    [
        ("rtt: 1ms", 1, 16777216, 4194304),
        ("rtt: 200ms", 1, 16777216, 4194304),  # 1.2 MB/s x 20 s = 24 MB: no limit
        ("rtt: 400ms", 1, 12000000, 4194304),
        ("rtt: 2s", 1, 2400000, 2400000),
        ("rtt: 1ms, bandwidth: 8Mbit/s", 1, 16777216, 4194304),
        ("rtt: 1ms, bandwidth: 8Mbit/s", 4, 5000000, 4194304),
        ("rtt: 1ms, bandwidth: 8Mbit/s", 16, 1250000, 1250000),
        ("rtt: 1ms, bandwidth: 8kbit/s", 1, 65536, 65536),
        ("rtt: 0ms, bandwidth: 1Gbit/s", 1, 16777216, 4194304),
    ],
)
def test_fetch_limits(tmp_path: Path, link: str, tasks: int, fetch: int, partition: int) -> None:
    text = f"{BASE}links: [{{between: [b, a], {link}}}]\n{FLOW}    tasks: {{max: {tasks}}}\n"
    (flow,) = expanded(tmp_path, x=text).flows
    client = flow.client("source_consumer")
    assert (client["fetch.max.bytes"], client["max.partition.fetch.bytes"]) == (str(fetch), str(partition))
    limited = fetch < 16777216
    assert ("so a fetch ends within 20 s" in client["fetch.max.bytes"].origin.where) is limited


@pytest.mark.parametrize(
    ("link", "block"),
    [("rtt: 1ms", 500), ("rtt: 100ms", 500), ("rtt: 101ms", 505), ("rtt: 300ms", 1500), ("rtt: 0ms", 500)],
)
def test_an_offset_sync_waits_for_five_round_trips(tmp_path: Path, link: str, block: int) -> None:
    (flow,) = expanded(tmp_path, x=f"{BASE}links: [{{between: [b, a], {link}}}]\n{FLOW}").flows
    value = flow.client("offset_syncs_producer")["max.block.ms"]
    assert value == str(block)
    assert ("round trips" in value.origin.where) is (block > 500)


def test_what_people_write_outranks_the_link(tmp_path: Path) -> None:
    text = f"{BASE}links: [{{between: [a, b], rtt: 2s}}]\n{FLOW}    source_consumer: {{fetch.max.bytes: 9000000}}\n"
    client = expanded(tmp_path, x=text).flows[0].client("source_consumer")
    assert client["fetch.max.bytes"] == "9000000"
    assert client["max.partition.fetch.bytes"] == "2400000"
