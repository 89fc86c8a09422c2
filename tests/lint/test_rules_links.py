"""Rules about a known long link: what stalls, and what leaves it unfilled, on either side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.link import BrokerLimits, Leg, Route
from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import links, lint
from mm2mgr.lint.subject import KafkaFacts, LinkFacts, WorkerFacts
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from tests.lint import made
from tests.spec.trees import loaded

RULES = {rule.id for rule in rules_of(links)}
MIB = 1024 * 1024
BATCH, BUFFER, FLYING, SENT = (
    f"producer.override.{key}"
    for key in ("batch.size", "buffer.memory", "max.in.flight.requests.per.connection", "send.buffer.bytes")
)
PARTITION, FETCH, WINDOW = (
    f"source.consumer.{key}" for key in ("max.partition.fetch.bytes", "fetch.max.bytes", "receive.buffer.bytes")
)
AUTO = BrokerLimits(send_buffer_bytes=-1, receive_buffer_bytes=-1, read=True)
LEG = Leg(0.1, 25e6)
READING = LinkFacts(0.1, 25e6, Route.over_link(LEG), AUTO, AUTO)
WRITING = replace(READING, route=Route.over_link(LEG, "source"))
BEST = {BATCH: "921600", SENT: "-1", FLYING: "5", "producer.override.enable.idempotence": "true"}


@pytest.mark.parametrize(
    ("wire", "changes", "rules"),
    [
        (WRITING, {}, {"batch-small", "one-in-flight"}),
        (WRITING, {BATCH: "921600"}, {"one-in-flight", "send-window-small"}),
        (WRITING, {BATCH: "921600", SENT: "-1"}, {"one-in-flight"}),
        (WRITING, {**BEST, SENT: None}, {"send-window-small"}),
        (WRITING, {**BEST, BATCH: "16384"}, {"batch-small"}),
        (WRITING, BEST, set()),
        (replace(WRITING, target=BrokerLimits()), {**BEST, SENT: None}, set()),  # the brokers' buffer is the limit
        (READING, {}, {"window-small", "link-placement"}),
        (READING, {WINDOW: "-1"}, {"fetch-small", "link-placement"}),
        (READING, {WINDOW: "-1", PARTITION: str(16 * MIB)}, {"link-placement"}),
        (READING, {WINDOW: "-1", PARTITION: str(32 * MIB)}, set()),
        (READING, {PARTITION: str(50 * MIB)}, {"fetch-stalls"}),
        (
            replace(READING, heap_bytes=512 * MIB, worker_tasks=4),
            {WINDOW: "-1", PARTITION: str(50 * MIB)},
            {"link-memory"},
        ),
        (replace(READING, heap_bytes=2048 * MIB, worker_tasks=4), {WINDOW: "-1", PARTITION: str(50 * MIB)}, set()),
    ],
)
def test_what_each_way_over_a_link_trips(wire: LinkFacts, changes: dict[str, str | None], rules: set[str]) -> None:
    assert made.told(made.source(changes, wire=wire)) & RULES == rules


def test_fixes_silence_their_rules() -> None:
    for rule, wire, changes in (
        ("batch-small", WRITING, {}),
        ("one-in-flight", WRITING, {BATCH: "921600"}),
        ("send-window-small", WRITING, {**BEST, SENT: None}),
        ("window-small", READING, {}),
        ("fetch-small", READING, {WINDOW: "-1"}),
        ("fetch-stalls", READING, {PARTITION: str(50 * MIB)}),
    ):
        (hit,) = made.hits(rule, made.source(changes, wire=wire))
        edits = {edit.key: edit.value for edit in hit.edits}
        assert made.hits(rule, made.source({**changes, **edits}, wire=wire)) == [], rule


def test_a_request_that_outlasts_its_timeout() -> None:
    slow = LinkFacts(0.1, 1e5, Route.over_link(Leg(0.1, 1e5), "source"), AUTO, AUTO)
    (hit,) = made.hits("request-stalls", made.source({**BEST, "tasks.max": "12"}, wire=slow))
    assert "shared by 12 tasks" in hit.message
    edits = {edit.key: edit.value for edit in hit.edits}
    assert made.hits("request-stalls", made.source({**BEST, "tasks.max": "12", **edits}, wire=slow)) == []


def test_the_workers_properties_tell_where_they_are() -> None:
    """Producers that are directed away from the workers' own Kafka write over the link."""
    beside_source = WorkerFacts(properties={"bootstrap.servers": "a1:9092,a2:9092"})
    beside_target = WorkerFacts(properties={"bootstrap.servers": "b2:9092"})
    assert "batch-small" in made.told(made.source(wire=LinkFacts(0.1), worker=beside_source))
    for worker in (beside_target, WorkerFacts()):
        assert "window-small" in made.told(made.source(wire=LinkFacts(0.1), worker=worker))


TREE = """\
owner: team
clusters:
  a: {bootstrap_servers: [a1:9092]}
  b: {bootstrap_servers: [b1:9092]}
connect:
  w: {url: "http://localhost:8083", kafka: b}
  near: {url: "http://localhost:8084", kafka: a}
links: [{between: [a, b], rtt: 200ms, bandwidth: 1Gbit/s}]
flows:
  f: {sources: [a], targets: [b], topics: {include: [t]}, run_on: RUN, record_producer: WRITER}
"""


@pytest.mark.parametrize("run_on", ["w", "near"])
def test_what_mm2mgr_compiles_for_a_link_trips_no_rule(tmp_path: Path, run_on: str) -> None:
    assert _rules_of_tree(tmp_path, run_on, "{}") & RULES == set()


def test_hand_written_keys_of_a_tree_are_judged(tmp_path: Path) -> None:
    assert "batch-small" in _rules_of_tree(tmp_path, "near", "{batch.size: 16384}")
    assert "batch-above-topic" in _rules_of_tree(tmp_path, "near", "{batch.size: 52428800, buffer.memory: 99000000}")


def _rules_of_tree(folder: Path, run_on: str, writer: str) -> set[str]:
    spec = loaded(folder, x=TREE.replace("RUN", run_on).replace("WRITER", writer))
    topology = expand(spec)
    return {finding.rule for finding in lint(from_tree(topology, render(topology), spec))}


@pytest.mark.parametrize(("policy", "refused"), [("All", False), ("Principal", True), ("None", True)])
def test_workers_that_refuse_the_client_id_of_a_catch_up_limit_are_told(
    tmp_path: Path, policy: str, refused: bool
) -> None:
    limited = TREE.replace("200ms,", "200ms, catch_up: {limit: 5MB/s},").replace("RUN", "w").replace("WRITER", "{}")
    spec = loaded(tmp_path, x=limited)
    topology = expand(spec)
    estate = from_tree(topology, render(topology), spec)
    known = tuple(replace(each, worker=replace(each.worker, policy=policy)) for each in estate.subjects)
    found = [each for each in lint(replace(estate, subjects=known)) if each.rule == "policy-forbids"]
    assert any("producer.override.client.id" in each.message for each in found) is refused


def test_a_fetch_that_outlasts_its_timeout_over_the_link() -> None:
    """Measured: 50 MiB over 100 ms with the default window never ended; Kafka's defaults at 200 ms and 17 partitions neither."""
    long = LinkFacts(0.1)
    (hit,) = made.hits("fetch-stalls", made.source({PARTITION: str(50 * MIB)}, wire=long))
    assert hit.key == PARTITION
    assert "receive.buffer.bytes=-1" in hit.fix
    many = KafkaFacts(partitions={"orders": 17})
    assert made.hits("fetch-stalls", made.source(wire=LinkFacts(0.2), source_kafka=many))
    assert made.hits("fetch-stalls", made.source({FETCH: str(4 * MIB)}, wire=LinkFacts(0.2), source_kafka=many)) == []
    assert made.hits("fetch-stalls", made.source(wire=long)) == []
    assert made.hits("fetch-stalls", made.source({PARTITION: str(50 * MIB)})) == []


def test_a_window_that_no_link_is_known_for() -> None:
    (hit,) = made.hits("window-small", made.source({PARTITION: str(50 * MIB)}))
    assert hit.key == PARTITION


@pytest.mark.parametrize(
    ("wire", "tasks", "partitions", "said"),
    [
        (READING, 1, 1, ()),
        (replace(READING, source=BrokerLimits()), 1, 1, ()),  # assumed, not read
        (
            replace(READING, source=BrokerLimits(read=True)),
            *(4, 24),
            ("socket.send.buffer.bytes=-1 on the brokers of A, with a rolling restart: ", "without it use 1"),
        ),
        (
            replace(READING, source=BrokerLimits(read=True)),
            *(24, 24),
            ("socket.send.buffer.bytes=-1", "its 24 tasks make up for it"),
        ),
        (
            replace(READING, source=BrokerLimits(read=True)),
            *(1, 1),
            ("socket.send.buffer.bytes=-1", "without it 1 task carries "),
        ),
        (
            replace(WRITING, target=BrokerLimits(read=True)),
            *(1, 1),
            (
                "socket.receive.buffer.bytes=-1 on the brokers of B, with a rolling restart: ",
                "without it 1 task carries ",
            ),
        ),
    ],
)
def test_a_buffer_of_the_brokers_that_caps_the_link_is_named_with_its_gain(
    wire: LinkFacts, tasks: int, partitions: int, said: tuple[str, ...]
) -> None:
    changes = {**BEST, WINDOW: "-1", PARTITION: str(16 * MIB), "tasks.max": str(tasks)}
    kafka = KafkaFacts(partitions={"orders": partitions})
    found = [
        each
        for each in lint(made.estate(made.source(changes, wire=wire, source_kafka=kafka)))
        if each.rule == "broker-window"
    ]
    assert len(found) == bool(said)
    for each in found:
        assert all(words in each.fix for words in said), each.fix
