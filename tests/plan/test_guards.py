"""What is held back before anything is written, why, and what goes on; over real sockets, with the real guard rules."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from mm2mgr.expand import expand
from mm2mgr.json_values import to_json
from mm2mgr.lint.subject import KafkaFacts, WorkerFacts
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.judges import ClusterFacts, objections, rules_alone, rules_together
from mm2mgr.remarks import Remark
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.asking import make_plan
from tests.lint import made
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site, actions

EVERYTHING = frozenset({"bootstrap.servers", "security.protocol", "send.buffer.bytes", "receive.buffer.bytes"})
ACKS = FLOWS.replace("{include: [orders]}", "{include: [orders]}, record_producer: {acks: all}")


def of(plan: Plan, connector: str) -> Change:
    return next(change for change in plan.changes if change.connector == connector)


def blocked(plan: Plan) -> set[str]:
    return {change.connector for change in plan.changes if change.action == "blocked"}


def test_a_policy_that_refuses_blocks_with_reason_and_remedy_and_the_other_cluster_goes_on(site: Site) -> None:
    site.east.policy = "None"
    plan = site.plan()
    assert blocked(plan) == set(ON_EAST)
    assert {actions(plan)[name] for name in ON_WEST} == {"create"}
    change = of(plan, "mm2.a.east.heartbeat")
    assert change.reason.startswith("policy-forbids: the workers' policy None refuses")
    assert "producer.override.bootstrap.servers" in change.reason
    assert "connector.client.config.override.policy=All" in change.remedy
    assert (change.config, change.keys) == (None, ())
    assert plan.has_failed
    assert {result.connector for result in site.apply(plan)} == set(ON_WEST)
    assert site.east.writes == []


def test_what_only_tunes_can_be_done_without(site: Site) -> None:
    site.east.policy = "None"
    change = of(site.plan(), "mm2.a.east.source.orders")
    assert "or do without: record_producer: {receive.buffer.bytes: null, send.buffer.bytes: null}" in change.remedy
    without = "record_producer: {receive.buffer.bytes: null, send.buffer.bytes: null}"
    plan = site.plan(FLOWS + f"defaults: {{flows: {{{without}}}}}\n")
    assert blocked(plan) == {"mm2.a.east.heartbeat"}  # it has to reach the source, so it needs the address


def test_one_flow_is_blocked_and_the_other_of_its_pair_goes_on(site: Site) -> None:
    site.east.policy, site.east.allowlist = "Allowlist", EVERYTHING
    plan = site.plan(ACKS)
    assert blocked(plan) == {"mm2.a.east.source.orders"}
    assert of(plan, "mm2.a.east.source.orders").reason.endswith(
        "refuses producer.override.acks: Connect refuses the config (400)"
    )
    assert actions(plan)["mm2.a.east.checkpoint"] == "create"  # it serves the other flow too


def test_what_serves_only_blocked_flows_waits_with_them(site: Site) -> None:
    site.east.policy, site.east.allowlist = "Allowlist", EVERYTHING
    only_orders = "flows:\n" + ACKS.splitlines()[-1] + "\n"
    plan = site.plan(only_orders)
    assert blocked(plan) == {f"mm2.a.east.{name}" for name in ("heartbeat", "source.orders", "checkpoint")}
    for name in ("heartbeat", "checkpoint"):
        reason = of(plan, f"mm2.a.east.{name}").reason
        assert reason == "it serves only blocked connectors: mm2.a.east.source.orders"


def test_workers_of_another_kafka_than_declared(site: Site) -> None:
    site.east.cluster_id = "west"
    plan = site.plan()
    assert blocked(plan) == set(ON_EAST)
    change = of(plan, "mm2.a.east.source.logs")
    assert change.reason.startswith("wrong-kafka: records are not written to east")
    assert (
        change.remedy
        == "the workers run on the Kafka cluster with id west: correct connect: {east: {kafka: west}} or its url"
    )
    assert {actions(plan)[name] for name in ON_WEST} == {"create"}


def test_workers_without_mirrormaker(site: Site) -> None:
    site.east.plugins.clear()
    plan = site.plan()
    assert blocked(plan) == set(ON_EAST)
    assert of(plan, "mm2.a.east.source.logs").reason.startswith("plugin-missing: ")


def test_what_runs_already_is_warned_of_and_not_blocked(site: Site) -> None:
    site.converge()
    site.east.policy = "None"
    plan = site.plan(FLOWS.replace("[orders]", "[orders, payments]"))
    assert actions(plan)["mm2.a.east.source.logs"] == "no-op"
    [warning] = of(plan, "mm2.a.east.source.logs").warnings
    assert warning.startswith("policy-forbids: the workers' policy None refuses producer.override.receive.buffer.bytes")
    assert of(plan, "mm2.a.west.source.logs").warnings == ()


def test_what_runs_and_writes_to_another_kafka_is_warned_of_although_nothing_is_to_be_written(site: Site) -> None:
    site.converge()
    site.east.cluster_id = "west"
    plan = site.plan()
    assert set(actions(plan).values()) == {"no-op"}
    assert not plan.has_failed
    assert of(plan, "mm2.a.east.source.logs").warnings[0].startswith("wrong-kafka: records are not written to east")


def test_an_update_of_what_runs_is_blocked(site: Site) -> None:
    site.converge()
    site.east.policy = "None"
    plan = site.plan(FLOWS.replace("[orders]", "[orders, payments]"))
    assert blocked(plan) == {"mm2.a.east.source.orders"}
    assert actions(plan)["mm2.a.east.checkpoint"] == "update"  # the flow logs runs, and the checkpoints serve it


def test_exactly_once_needs_workers_that_can(site: Site) -> None:
    once = FLOWS.replace("{include: [orders]}", "{include: [orders]}, delivery: exactly_once")
    plan = site.plan(once)
    assert blocked(plan) == {"mm2.a.east.source.orders"}
    assert "exactly-once-worker: " in of(plan, "mm2.a.east.source.orders").reason
    site.east.exactly_once = True
    assert blocked(site.plan(once)) == set()


def test_a_silenced_guard_only_warns(site: Site) -> None:
    site.east.policy, site.east.allowlist = "Allowlist", EVERYTHING
    plan = site.plan(ACKS.replace("acks: all}", "acks: all}, silence: {policy-forbids: tested by hand}"))
    assert blocked(plan) == set()
    assert "(silenced: tested by hand)" in of(plan, "mm2.a.east.source.orders").warnings[0]


def test_a_comment_of_the_tree_silences_a_guard_as_the_field_does(site: Site) -> None:
    site.east.policy, site.east.allowlist = "Allowlist", EVERYTHING
    site.declare(ACKS.replace("  orders:", "  # mm2mgr: silence policy-forbids tested by hand\n  orders:"))
    spec = load([site.folder])
    topology = expand(spec)
    plan = asyncio.run(make_plan(topology, render(topology), spec=spec, deadline_seconds=2.0))
    assert blocked(plan) == set()
    assert "(silenced: tested by hand)" in of(plan, "mm2.a.east.source.orders").warnings[0]


# --- keys that older workers skip ---------------------------------------------------------------------------------------

NO_SYNCS = FLOWS.replace("{include: [orders]}", "{include: [orders]}, offset_syncs: false").replace(
    'targets: [east, west], topics: {include: ["logs[.].*"]}',
    'targets: [west], topics: {include: ["logs[.].*"]}',
)


@pytest.mark.parametrize(
    ("version", "held"), [("3.8.1", True), ("3.9.0", False), ("7.8.0-ccs", True), ("4.3.1", False)]
)
def test_switching_offset_syncs_off_needs_workers_that_know_how(site: Site, version: str, held: bool) -> None:
    site.east.version = version
    change = of(site.plan(NO_SYNCS), "mm2.a.east.source.orders")
    assert (change.action == "blocked") is held
    if held:
        assert "does not know emit.offset-syncs.enabled (KIP-1031, 3.9)" in change.reason
        assert "offset_syncs: {location: target}" in change.remedy


def test_the_plugins_version_counts_not_the_workers(site: Site) -> None:
    site.east.version = "4.3.1"
    site.east.plugins = dict.fromkeys(site.east.plugins, "3.6.2")
    assert "Kafka 3.6.2" in of(site.plan(NO_SYNCS), "mm2.a.east.source.orders").reason


def test_heartbeats_that_older_workers_mirror_twice_are_warned_of(site: Site) -> None:
    site.east.version = "3.9.1"
    site.west.version = "3.9.1"
    plan = site.plan()
    warned = {change.connector for change in plan.changes if change.warnings}
    assert warned == {"mm2.a.east.source.orders"}  # the second flow of its pair
    assert blocked(plan) == set()
    site.east.version = "4.0.0"
    assert not any(change.warnings for change in site.plan().changes)


# --- what cannot be verified --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "body"), [(403, "no"), (200, {"configs": []}), (500, "ConfigException: nonsense")])
def test_a_policy_that_cannot_be_found_is_said_aloud_and_blocks_nothing(site: Site, status: int, body: object) -> None:
    site.east.fail_next("PUT", "/connector-plugins", status, body, times=100)
    plan = site.plan()
    assert blocked(plan) == set()
    [note] = plan.clusters[0].notes
    assert note.startswith("not verified: Connect cluster 'east': the override policy could not be found: ")
    assert plan.clusters[1].notes == ()
    assert to_json(plan)["clusters"][0]["notes"] == [note]


@pytest.mark.usefixtures("impatient")
def test_a_kafka_that_does_not_say_its_id_is_noted(site: Site) -> None:
    site.declare()
    text = next(site.folder.glob("*.yaml")).read_text()
    nowhere = text.replace("bootstrap_servers: ['east:9092'], cluster_id: east", "bootstrap_servers: ['127.0.0.1:1']")
    assert nowhere != text
    next(site.folder.glob("*.yaml")).write_text(nowhere)
    plan = site.plan_as_written()
    assert blocked(plan) == set()
    [note] = plan.clusters[0].notes
    assert note.startswith("not verified: that these workers write to Kafka 'east', whose id could not be read (east: ")
    assert "cluster_id: …" in note


def test_the_probe_sends_no_secret_and_no_placeholder(site: Site) -> None:
    secret = (
        "record_producer: {sasl.jaas.config: 'org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="hunter2";\', linger.ms: "${env:LINGER}", enable.idempotence: "${env:ONCE}"}'
    )
    assert not site.plan(FLOWS.replace("{include: [orders]}", "{include: [orders]}, " + secret)).clusters[0].notes
    sent = json.dumps([request.body for request in site.east.requests])
    assert "producer.override.linger.ms" in sent
    assert "hunter2" not in sent
    assert "${" not in sent


# --- two Connect clusters, one declared Kafka -----------------------------------------------------------------------------

HERE = {"producer.override.bootstrap.servers": None}


def disputed(ids: dict[str, str], theirs: str | None, **changes: str | None) -> tuple[Remark, ...]:
    known = ClusterFacts(
        {"x": WorkerFacts(cluster_id="one"), "y": WorkerFacts(cluster_id=theirs)}, ids, {"x": "B", "y": "B", "z": "C"}
    )
    return objections("x", made.estate(made.source({**HERE, **changes})), known).get("mm2.A.B.source", ())


def test_workers_of_one_declared_kafka_that_live_on_two() -> None:
    [said] = disputed({}, "two")
    assert said.rule == "wrong-kafka"
    assert said.effect == "blocks"
    assert "'x' and 'y' are both declared on Kafka 'B', but their workers run on two: one and two" in said.text
    assert "cluster_id" in said.remedy


def test_no_dispute_without_difference_or_where_it_does_not_matter() -> None:
    assert disputed({}, "one") == ()
    assert disputed({}, None) == ()
    assert disputed({}, "two", **{"producer.override.bootstrap.servers": "b1:9092"}) == ()


def test_the_id_says_which_of_the_two_is_wrong() -> None:
    assert disputed({"B": "one"}, "two") == ()
    [said] = disputed({"B": "two"}, "two")
    assert (
        said.remedy == "the workers run on the Kafka cluster with id one: correct connect: {x: {kafka: …}} or its url"
    )


def test_what_is_not_known_of_a_worker_stays_as_declared() -> None:
    subject = made.source(
        HERE, worker=WorkerFacts(version="3.8", exactly_once=True), target_kafka=KafkaFacts(cluster_id="one")
    )
    assert objections("x", made.estate(subject), ClusterFacts({"x": WorkerFacts(cluster_id="one")})) == {}
    assert objections("x", made.estate(subject), ClusterFacts({"x": WorkerFacts(cluster_id="two")})).keys() == {
        subject.name
    }


def test_plan_imports_only_the_rules_that_it_asks() -> None:
    """Rules that only hint, and those about the text of other files, are left to lint."""
    code = (
        "import sys, mm2mgr.operations.plan, mm2mgr.plan.judges; mm2mgr.plan.judges.rules_alone(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {name.rpartition(".")[2] for name in done.stdout.split() if name.startswith("mm2mgr.lint.rules.")}
    asked = {
        getattr(rule.check or rule.over, "__module__", "").rpartition(".")[2]
        for rule in (*rules_alone(), *rules_together())
    }
    assert {"keys", "values", "pair"} <= asked
    assert not {"files", "advice", "versions"} & names
    assert names == asked
