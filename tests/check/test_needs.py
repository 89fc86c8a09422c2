"""The table of needs, as connectors of a tree ask for it: which rows, which names, which logins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mm2mgr.check.judge import unmatched_rows
from mm2mgr.check.needs import EFFECTS, ROWS, ExistingNames, RequiredRight, needs, own_needs
from mm2mgr.check.run import own_login
from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.spec.trees import write

_CLUSTERS = """\
owner: tester
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
connect:
  w: {url: "http://localhost:1", kafka: b}
"""
NOTHING: ExistingNames = ({}, {})
KNOWN: ExistingNames = (
    {"a": ["orders", "orders.eu", "other", "heartbeats", "x.heartbeats", "b.heartbeats"]},
    {"a->b": ["g"]},
)


def found(
    folder: Path, flow: str, known: ExistingNames = KNOWN, versions: Mapping[str, str | None] | None = None
) -> list[RequiredRight]:
    topology = expand(load([write(folder, x=f"{_CLUSTERS}flows:\n  f: {{sources: [a], targets: [b], {flow}}}\n")]))
    return list(needs(topology, render(topology), known, versions or {}))


def names(wanted: list[RequiredRight], number: int) -> list[str]:
    return [need.right.name for need in wanted if need.number == number]


def test_every_row_has_an_effect_and_the_table_its_24_rows() -> None:
    assert sorted(EFFECTS) == list(range(1, 49))
    assert all(EFFECTS.values())
    assert len([row for row in ROWS if row.number <= 24]) == 24


def test_a_plain_flow_needs_all_but_what_is_switched_off(tmp_path: Path) -> None:
    wanted = found(tmp_path, 'topics: {include: ["orders.*"]}')
    assert {need.number for need in wanted} == set(range(1, 25)) - {9, 10, 21, 22}
    assert names(wanted, 1) == ["heartbeats", "orders", "orders.eu", "x.heartbeats"]
    assert names(wanted, 7) == ["a.heartbeats", "a.orders", "a.orders.eu", "a.x.heartbeats"]
    assert names(wanted, 14) == ["orders", "orders.eu"]
    assert names(wanted, 12) == ["mm2-offset-syncs.b.internal"]
    assert names(wanted, 20) == ["a.checkpoints.internal"]
    assert names(wanted, 13) == ["g"]


@pytest.mark.parametrize(
    ("flow", "gone"),
    [
        ("topics: {include: [orders]}, heartbeats: false", {23, 24}),
        ("topics: {include: [orders]}, checkpoints: false", set(range(13, 23))),
        ("topics: {include: [orders]}, offset_syncs: false", {11, 12, *range(13, 23)}),
        ("topics: {include: [orders]}, sync: {topic_configs: false}", {8}),
    ],
)
def test_what_is_switched_off_needs_nothing(tmp_path: Path, flow: str, gone: set[int]) -> None:
    numbers = {need.number for need in found(tmp_path, flow)}
    assert numbers == set(range(1, 25)) - {9, 10, 21, 22} - gone


def test_syncs_on_the_target_are_the_targets_rights(tmp_path: Path) -> None:
    wanted = found(tmp_path, "topics: {include: [orders]}, offset_syncs: {location: target}")
    syncs = [need for need in wanted if need.number in (11, 12, 15, 16)]
    assert {need.login.cluster for need in syncs} == {"b"}
    assert {need.right.name for need in syncs} == {"mm2-offset-syncs.a.internal"}


def test_a_named_topic_is_needed_whether_or_not_anybody_sees_it(tmp_path: Path) -> None:
    wanted = found(tmp_path, 'topics: {include: [secret, "orders.*"]}, heartbeats: false', NOTHING)
    assert names(wanted, 1) == ["secret"]


def test_old_workers_do_not_read_checkpoints_back(tmp_path: Path) -> None:
    numbers = {need.number for need in found(tmp_path, "topics: {include: [orders]}", versions={"w": "3.6.2"})}
    assert not numbers & {18, 19}
    assert 20 in numbers


def test_names_that_a_class_of_ones_own_makes_are_not_guessed(tmp_path: Path) -> None:
    wanted = found(tmp_path, "topics: {include: [orders]}, replication_policy: com.example.Policy, heartbeats: false")
    assert names(wanted, 1) == ["orders"]
    assert names(wanted, 7) == []


def test_the_logins_of_clients(tmp_path: Path) -> None:
    flow = (
        "topics: {include: [orders]}, heartbeats: false, source_consumer: {security.protocol: SASL_SSL, "
        "sasl.mechanism: PLAIN}, record_producer: {client.id: me}"
    )
    wanted = {need.number: need.login for need in found(tmp_path, flow)}
    assert wanted[1].security == ()
    assert dict(wanted[3].security) == {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}
    assert (wanted[7].cluster, wanted[7].servers, wanted[7].assumed) == ("b", "b:9092", False)


def test_a_producer_that_logs_in_as_the_workers_do_is_assumed(tmp_path: Path) -> None:
    text = _CLUSTERS.replace('["b:9092"]', '["b:9092"], security: {protocol: SSL}')
    text += "flows:\n  f: {sources: [a], targets: [b], topics: {include: [orders]}, heartbeats: false}\n"
    topology = expand(load([write(tmp_path, x=text)]))
    logins = {need.number: need.login for need in needs(topology, render(topology), NOTHING, {})}
    assert logins[7].assumed
    assert not logins[4].assumed
    assert logins[7].security == logins[4].security
    assert "SSL" not in repr(logins[7])


def test_a_topic_of_offsets_needs_its_own_rights(tmp_path: Path) -> None:
    text = _CLUSTERS.replace("kafka: b}", "kafka: c, exactly_once: true}").replace(
        "  a:", "  c: {bootstrap_servers: ['c:1']}\n  a:"
    )
    text += (
        "flows:\n  f: {sources: [a], targets: [b], run_on: w, topics: {include: [orders]}, delivery: exactly_once}\n"
    )
    topology = expand(load([write(tmp_path, x=text)]))
    wanted = [need for need in needs(topology, render(topology), NOTHING, {}) if need.number > 24]
    assert {(need.client, need.right.operation) for need in wanted} == {
        ("record producer", "Write"),
        ("framework offsets consumer", "Read"),
        ("framework admin", "Create"),
    }
    assert {need.login.cluster for need in wanted if "source" in need.connector} == {"b"}
    assert {need.login.cluster for need in wanted if "heartbeat" in need.connector} == {"a"}


@pytest.mark.parametrize(
    ("history", "moved", "expected"),
    [
        (True, "", {"b": {"mm2mgr.history.internal", "mm2mgr-tester", "mm2mgr-tester-watch"}}),
        (False, "", {}),
        (
            False,
            "moved: [{from: {dedicated: old->b}, to: 'f:a->b'}]\n",
            {"b": {"mm2-configs.old.internal", "mm2-offsets.old.internal", "mm2-status.old.internal", "old-mm2"}},
        ),
    ],
)
def test_mm2mgr_itself_needs_its_history_its_lease_and_what_it_takes_over(
    tmp_path: Path, history: bool, moved: str, expected: dict[str, set[str]]
) -> None:
    text = _CLUSTERS if history else _CLUSTERS.replace("kafka: b}", "kafka: b, history: false}")
    text = text.replace('["b:9092"]', '["b:9092"], access: {bootstrap_servers: ["outside:9092"]}')
    text += f"flows:\n  f: {{sources: [a], targets: [b], topics: {{include: [orders]}}}}\n{moved}"
    topology = expand(load([write(tmp_path, x=text)]))
    wanted = list(own_needs(topology, render(topology), KNOWN, lambda alias: own_login(topology, alias)))
    found = {alias: {need.right.name for need in wanted if need.login.cluster == alias} for alias in expected}
    assert found == expected
    assert {need.login.servers for need in wanted} <= {"outside:9092"}


@pytest.mark.parametrize("limit", ["", ", catch_up: {limit: 9MB/s}"])
def test_a_catch_up_limit_needs_rights_on_the_quotas_of_the_target(tmp_path: Path, limit: str) -> None:
    text = _CLUSTERS.replace("kafka: b}", "kafka: b, history: false}")
    text += f"flows:\n  f: {{sources: [a], targets: [b], topics: {{include: [orders]}}{limit}}}\n"
    topology = expand(load([write(tmp_path, x=text)]))
    wanted = own_needs(topology, render(topology), KNOWN, lambda alias: own_login(topology, alias))
    found = {(each.login.cluster, str(each.right)) for each in wanted}
    assert found == ({("b", f"{each}Configs on the cluster") for each in ("Describe", "Alter")} if limit else set())


def test_a_flow_that_declares_audits_needs_to_read_both_sides_and_a_lease(tmp_path: Path) -> None:
    text = _CLUSTERS + 'flows:\n  f: {sources: [a], targets: [b], topics: {include: ["orders.*"]}, audit: 2%}\n'
    text += "  g: {sources: [a], targets: [b], topics: {include: [other]}}\n"
    topology = expand(load([write(tmp_path, x=text)]))
    wanted = own_needs(topology, render(topology), KNOWN, lambda alias: own_login(topology, alias))
    audits = {(each.login.cluster, str(each.right)) for each in wanted if each.number >= 39}
    assert audits == {
        *(("a", f"{each} on topic {name}") for each in ("Read", "DescribeConfigs") for name in ("orders", "orders.eu")),
        *(
            ("b", f"{each} on topic a.{name}")
            for each in ("Read", "DescribeConfigs")
            for name in ("orders", "orders.eu")
        ),
        ("b", "Read on group mm2mgr-tester-audit"),
    }


def test_a_pair_that_declares_failover_needs_what_its_check_and_its_run_take(tmp_path: Path) -> None:
    text = _CLUSTERS + 'flows:\n  f: {sources: [a], targets: [b], topics: {include: ["orders.*"]}, failover: true}\n'
    for declared, rights in (
        (
            text,
            {
                *((alias, right) for alias in "ab" for right in ("Describe on the cluster", "Describe on group g")),
                *(("a", "Read on topic mm2-offset-syncs.b.internal"), ("b", "Read on topic a.checkpoints.internal")),
                ("b", "Read on group g"),
            },
        ),
        (text.replace(", failover: true", ""), set()),
    ):
        topology = expand(load([write(tmp_path, x=declared)]))
        wanted = own_needs(topology, render(topology), KNOWN, lambda alias: own_login(topology, alias))  # noqa: B023
        assert {(each.login.cluster, str(each.right)) for each in wanted if each.number >= 44} == rights


def test_a_flow_that_takes_no_topic_of_its_source_gets_a_row(tmp_path: Path) -> None:
    text = f"{_CLUSTERS}flows:\n  f: {{sources: [a], targets: [b], topics: {{include: ['app[.].*']}}}}\n"
    flows = expand(load([write(tmp_path, x=text)])).flows
    (row,) = unmatched_rows(flows, {"a": ["orders", "app-x", "__consumer_offsets"]})
    assert (row.status, row.where, row.what) == ("unknown", "a", "topics: app[.].* matches 0 of 2 topics on a")
    assert row.effect.startswith("flow f:a->b mirrors nothing")
    assert list(unmatched_rows(flows, {"a": ["orders", "app.x"]})) == []
    assert list(unmatched_rows(flows, {"b": ["orders"]})) == []  # nobody got in to see
