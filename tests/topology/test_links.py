"""What a declared link compiles to: settings that fill it, never a fetch or request that cannot end, never more than the heap.

They also decide how long an offset sync may wait for metadata: 5 x RTT, at least the default.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.link import MIB, BrokerLimits, Clients, FlowTraffic, Forecast, Leg, Route, predict
from mm2mgr.link_settings import Crossing, compile_block, may_pipeline
from mm2mgr.topology import Flow
from tests.spec.trees import BASE, FLOW, complaint, expanded

MB = 1e6
# Connect beside the source, and one far from both.
PLACES = BASE.replace(
    "kafka: b}", "kafka: b}\n  near: {url: 'http://x:8083', kafka: a}\n  far: {url: 'http://y:8083', kafka: c}"
)
PLACES = PLACES.replace("  b: {boot", "  c: {bootstrap_servers: [c1:9092]}\n  b: {boot")
LINK = "links: [{between: [b, a], rtt: 100ms, bandwidth: 200Mbit/s}]\n"


def _flow(folder: Path, link: str = LINK, more: str = "", base: str = BASE, **files: str) -> Flow:
    (flow,) = expanded(folder, x=f"{base}{link}{FLOW}{more}", **files).flows
    return flow


def _clients(reader: dict[str, str], writer: dict[str, str]) -> Clients:
    """Return compiled settings as Kafka would run them, with Connect's and Kafka's defaults for the others."""
    kafka = {
        "receive.buffer.bytes": "-1",
        "fetch.max.bytes": "52428800",
        "max.partition.fetch.bytes": "1048576",
        "max.poll.records": "500",
        "request.timeout.ms": "30000",
    }
    connect = {
        "send.buffer.bytes": "-1",
        "batch.size": "16384",
        "max.in.flight.requests.per.connection": "1",
        "max.request.size": "1048576",
        "request.timeout.ms": "30000",
        "buffer.memory": "33554432",
    }
    both = {"source consumer": kafka | reader, "record producer": connect | writer}
    found = Clients.read(lambda client, key: int(both[client][key]))
    assert found is not None
    return found


def _run(crossing: Crossing, partitions: int, record: float = 1000, compression: float = 1) -> Forecast:
    clients = _clients(compile_block("source_consumer", crossing), compile_block("record_producer", crossing))  # type: ignore[arg-type]
    traffic = FlowTraffic(partitions, crossing.tasks, record, compression)
    return predict(crossing.route, clients, traffic, crossing.source, crossing.target)


AUTO = BrokerLimits(send_buffer_bytes=-1, receive_buffer_bytes=-1, version="4.3", read=True)
STOCK = BrokerLimits(version="4.3", read=True)
LEG = Leg(0.1, 25 * MB)


@pytest.mark.parametrize(
    ("placement", "partitions", "tasks", "brokers", "share"),
    [
        ("target", 12, 4, AUTO, 0.9),
        ("source", 12, 4, AUTO, 0.9),
        ("source", 1, 1, AUTO, 0.9),
        ("target", 1, 1, AUTO, 0.7),
        ("target", 12, 12, STOCK, 0.65),
    ],
)
def test_compiled_settings_fill_the_link(
    placement: str, partitions: int, tasks: int, brokers: BrokerLimits, share: float
) -> None:
    route = Route.over_link(LEG, placement)  # type: ignore[arg-type]
    crossing = Crossing(route, tasks, source=brokers, target=brokers, worker_tasks=tasks, idempotent=True)
    assert _run(crossing, partitions).flow >= share * 25 * MB


sizes = st.sampled_from([-1, 102_400, 1_048_576])


@given(
    rtt=st.floats(0.001, 0.3),
    mbit=st.floats(10, 10_000),
    placement=st.sampled_from(["target", "source", "elsewhere"]),
    tasks=st.integers(1, 64),
    partitions=st.integers(1, 1_000),
    record=st.floats(100, 10 * MB),
    compression=st.floats(1, 20),
    buffer=sizes,
    brokers=st.integers(1, 9),
    read=st.booleans(),
    profile=st.sampled_from(["latency", "balanced", "throughput"]),
    idempotent=st.booleans(),
)
def test_no_compiled_settings_stall_or_outgrow_the_heap_or_lose_order(  # noqa: PLR0917  drawn
    rtt: float,
    mbit: float,
    placement: str,
    tasks: int,
    partitions: int,
    record: float,
    compression: float,
    buffer: int,
    brokers: int,
    read: bool,
    profile: str,
    idempotent: bool,
) -> None:
    accepted = max(1_048_588, int(record) + 100)
    limits = BrokerLimits(buffer, buffer, message_bytes=accepted, brokers=brokers, read=read)
    leg = Leg(rtt, mbit * 125_000)
    route = Route("elsewhere", leg, leg) if placement == "elsewhere" else Route.over_link(leg, placement)  # type: ignore[arg-type]
    crossing = Crossing(
        route,
        tasks,
        profile,
        limits,
        limits,
        worker_tasks=min(tasks, 10),
        idempotent=idempotent,  # type: ignore[arg-type]
    )
    found = _run(crossing, partitions, record, compression)
    assert found.stall == ""
    writer = compile_block("record_producer", crossing)
    assert int(writer.get("batch.size", "16384")) < accepted
    assert int(writer.get("buffer.memory", "33554432")) >= int(writer.get("batch.size", "16384"))
    if int(writer.get("max.in.flight.requests.per.connection", "1")) > 1:
        assert (writer["enable.idempotence"], writer["acks"]) == ("true", "all")
    least = max(2 * crossing.largest_record, 2 * brokers * max(65_536, record))
    if least < crossing.task_bytes / 2:
        assert found.fits(512 * MIB, crossing.worker_tasks)


def test_beside_the_source_the_producer_is_tuned_and_the_consumer_small(tmp_path: Path) -> None:
    flow = _flow(tmp_path, more="    run_on: near\n", base=PLACES)
    writer, reader = flow.client("record_producer"), flow.client("source_consumer")
    assert writer["enable.idempotence"] == "true"
    assert (writer["acks"], writer["max.in.flight.requests.per.connection"]) == ("all", "5")
    assert 482_000 < int(writer["batch.size"]) < 1_048_588
    assert (reader["fetch.max.bytes"], reader["max.partition.fetch.bytes"]) == ("8388608", "1048576")
    assert all(value.origin.where.startswith("mm2mgr: ") for value in (*writer.values(), *reader.values()))
    assert "one batch per round trip" in writer["max.in.flight.requests.per.connection"].origin.where


def test_a_worker_elsewhere_has_two_legs(tmp_path: Path) -> None:
    links = "links: [{between: [c, a], rtt: 20ms}, {between: [c, b], rtt: 80ms}]\n"
    flow = _flow(tmp_path, links, "    run_on: far\n", PLACES)
    assert flow.route == Route("elsewhere", Leg(0.02), Leg(0.08))
    assert "batch.size" in flow.client("record_producer")
    assert "link of 20 ms" in flow.client("source_consumer")["fetch.max.bytes"].origin.where
    only = _flow(tmp_path, LINK, "    run_on: far\n", PLACES)
    assert only.route == Route("elsewhere", Leg(0.1, 25 * MB))


def test_without_links_nothing_changes(tmp_path: Path) -> None:
    flow = _flow(tmp_path, "", "    run_on: near\n", PLACES)
    assert flow.route is None
    assert set(flow.client("record_producer")) == {"send.buffer.bytes", "receive.buffer.bytes"}
    assert flow.client("source_consumer")["fetch.max.bytes"] == "16777216"


@pytest.mark.parametrize(
    ("security", "brokers", "written", "pipelined"),
    [
        ("", "", "{}", True),
        ("    security: {protocol: SASL_SSL}\n", "", "{}", False),
        ("    security: {protocol: SASL_SSL}\n", "4.3", "{}", True),
        ("    security: {protocol: SASL_SSL}\n", "2.7", "{}", False),
        ("", "2.7", "{}", False),
        ("", "2.8", "{}", True),
        ("", "", "{acks: 1}", False),
        ("", "", "{enable.idempotence: false}", False),
        ("", "", "{enable.idempotence: null}", False),
        ("", "", "{max.in.flight.requests.per.connection: 8}", False),
        ("", "", "{max.in.flight.requests.per.connection: 3}", True),
    ],
)
def test_several_requests_in_flight_only_where_order_and_rights_allow(
    tmp_path: Path, security: str, brokers: str, written: str, pipelined: bool
) -> None:
    base = PLACES.replace(
        "  b: {bootstrap_servers: [b1:9092]}\n", f"  b:\n    bootstrap_servers: [b1:9092]\n{security}"
    )
    limits = f"brokers: {{b: {{version: '{brokers}'}}}}\n" if brokers else ""
    flow = _flow(
        tmp_path, LINK, f"    run_on: near\n    record_producer: {written}\n", base, overrides__brokers=limits or "{}"
    )
    writer = flow.client("record_producer")
    assert ("enable.idempotence" in writer and writer["enable.idempotence"] == "true") is pipelined
    if not pipelined and "in.flight" not in written:
        assert "max.in.flight.requests.per.connection" not in writer


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_on_exactly_once_workers_order_holds_also_before_they_are_switched_over(tmp_path: Path, delivery: str) -> None:
    base = PLACES.replace("kafka: a}", "kafka: a, exactly_once: true}")
    writer = _flow(tmp_path, LINK, f"    run_on: near\n    delivery: {delivery}\n", base).client("record_producer")
    assert writer["max.in.flight.requests.per.connection"] == "5"
    assert (writer["enable.idempotence"], writer["acks"]) == ("true", "all")


def test_may_pipeline_knows_versions() -> None:
    assert may_pipeline(BrokerLimits(version="10.0"), {}, secured=True)
    assert not may_pipeline(BrokerLimits(), {"retries": "0"}, secured=False)


def test_profiles_trade_size_for_time(tmp_path: Path) -> None:
    def fetch_and_linger(profile: str) -> tuple[int, int]:
        link = LINK.replace("}]", f", profile: {profile}}}]")
        reading, writing = _flow(tmp_path, link), _flow(tmp_path, link, "    run_on: near\n", PLACES)
        fetch = reading.client("source_consumer")["fetch.max.bytes"]
        return int(fetch), int(writing.client("record_producer")["linger.ms"])

    found = [fetch_and_linger(profile) for profile in ("latency", "balanced", "throughput")]
    assert sorted(set(found)) == found


def test_more_tasks_on_a_worker_get_smaller_fetches(tmp_path: Path) -> None:
    def fetch(more: str, workers: str) -> int:
        base = BASE.replace("kafka: b}", f"kafka: b, workers: {workers}}}")
        return int(_flow(tmp_path, LINK, more, base).client("source_consumer")["fetch.max.bytes"])

    one, ten = fetch("", "{}"), fetch("    tasks: {max: 30}\n", "{}")
    many, large = fetch("    tasks: {max: 30}\n", "{count: 10}"), fetch("    tasks: {max: 30}\n", "{memory: 4GiB}")
    assert ten < many <= one
    assert large > ten


@pytest.mark.parametrize("link", ["rtt: 2s", "rtt: 1ms, bandwidth: 8kbit/s"])
@pytest.mark.parametrize("run_on", ["w", "near"])
def test_extreme_links_get_time(tmp_path: Path, link: str, run_on: str) -> None:
    flow = _flow(
        tmp_path, f"links: [{{between: [b, a], {link}}}]\n", f"    run_on: {run_on}\n    tasks: {{max: 16}}\n", PLACES
    )
    assert flow.crossing is not None
    assert _run(flow.crossing, 16).stall == ""
    if "8kbit" in link:
        block = "source_consumer" if run_on == "w" else "record_producer"
        assert int(flow.client(block)["request.timeout.ms"]) > 30_000


@pytest.mark.parametrize(
    ("link", "block"),
    [("rtt: 1ms", 500), ("rtt: 100ms", 500), ("rtt: 101ms", 505), ("rtt: 300ms", 1500)],
)
def test_an_offset_sync_waits_for_five_round_trips(tmp_path: Path, link: str, block: int) -> None:
    flow = _flow(tmp_path, f"links: [{{between: [b, a], {link}}}]\n")
    value = flow.client("offset_syncs_producer")["max.block.ms"]
    assert value == str(block)
    assert ("round trips" in value.origin.where) is (block > 500)


def test_what_people_write_outranks_the_link(tmp_path: Path) -> None:
    more = "    source_consumer: {fetch.max.bytes: 9000000, receive.buffer.bytes: null}\n"
    reader = _flow(tmp_path, "links: [{between: [a, b], rtt: 300ms}]\n", more).client("source_consumer")
    assert reader["fetch.max.bytes"] == "9000000"
    assert "receive.buffer.bytes" not in reader
    assert int(reader["max.partition.fetch.bytes"]) <= 20 * 79_000 / 0.3  # Kafka's window, and a fetch still ends


def test_large_records_get_requests_that_hold_them(tmp_path: Path) -> None:
    files = "brokers: {a: {message.max.bytes: 10485760}, b: {message.max.bytes: 10485760}}\n"
    writer = _flow(tmp_path, LINK, "", overrides__brokers=files).client("record_producer")
    assert writer["max.request.size"] == "10485760"
    assert int(writer.get("buffer.memory", "33554432")) >= 2 * 10485760


def test_each_reason_names_its_limit(tmp_path: Path) -> None:
    reader = _flow(tmp_path, "links: [{between: [a, b], rtt: 300ms, bandwidth: 1Mbit/s}]\n").client("source_consumer")
    assert re.search(
        r"0\.12 MB/s per connection, and a fetch has to end within 20 s", reader["fetch.max.bytes"].origin.where
    )


@pytest.mark.parametrize(
    "wrong", ["rtt: 0ms", "rtt: 80", "rtt: -80ms", "rtt: 80ms, bandwidth: 0MB/s", "rtt: 80ms, bandwidth: 200"]
)
def test_numbers_that_mean_nothing_are_refused_with_their_line(tmp_path: Path, wrong: str) -> None:
    text = complaint(tmp_path, x=f"{BASE}links: [{{between: [a, b], {wrong}}}]\n{FLOW}")
    assert text.startswith("x.yaml:7:")
    assert "links." in text


def test_a_link_that_no_flow_uses_is_known_by_its_line(tmp_path: Path) -> None:
    links = "links: [{between: [c, b], rtt: 20ms}, {between: [a, b], rtt: 20ms}]\n"
    found = expanded(tmp_path, x=f"{PLACES}{links}{FLOW}").unused_links
    assert [(place.rpartition("/")[2], ends) for place, ends in found] == [("x.yaml:10", "c and b")]
