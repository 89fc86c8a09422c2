"""Keys that people mistype, misplace or prefix: each is refused with its place and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.trees import BASE, FLOW, complaint, complaints, expanded


@pytest.mark.parametrize(
    ("extra", "place", "advice"),
    [
        ("flowz: {}\n", "x.yaml:7:1", "unknown key 'flowz'; did you mean 'flows'?"),
        ("links: [{between: [a, b], rrt: 3ms, rtt: 3ms}]\n", "x.yaml:7:27", "unknown key 'rrt'; did you mean 'rtt'?"),
        ("defaults: {clusters: {labls: {}}}\n", "x.yaml:7:23", "did you mean 'labels'?"),
        ("defaults: {flows: {tasks: {maximum: 3}}}\n", "x.yaml:7:28", "unknown key 'maximum'; did you mean 'max'?"),
        (
            "defaults: {flows: {tasks: {zzz: 3}}}\n",
            "x.yaml:7:28",
            "known here: capacity, cool_down, default_rate, elastic, limit,",
        ),
        ("defaults: {flows: {checkpoints: {group_offset: true}}}\n", "x.yaml:7:34", "did you mean 'group_offsets'?"),
        ("defaults: {connect: {auth: {basic: {username: u, passwort: p}}}}\n", "x.yaml:7:50", "'password'"),
    ],
)
def test_a_misspelt_key_is_told_the_nearest_known_one(tmp_path: Path, extra: str, place: str, advice: str) -> None:
    found = complaints(tmp_path, x=BASE + extra)
    assert [one for one in found if one.startswith(f"{place}: ") and advice in one], found


def test_misspelt_keys_inside_pairs_and_flows_are_found_together(tmp_path: Path) -> None:
    text = BASE + FLOW + '    pairs:\n      "a->b":\n        topic: {}\n    record_produce: {}\n'
    assert complaints(tmp_path, x=text) == [
        "x.yaml:14:9: unknown key 'topic'; did you mean 'topics'?",
        "x.yaml:15:5: unknown key 'record_produce'; did you mean 'record_producer'?",
    ]


@pytest.mark.parametrize(
    ("block", "key", "advice"),
    [
        (
            "record_producer",
            "producer.override.linger.ms",
            "without the prefix 'producer.override.', under record_producer",
        ),
        ("record_producer", "producer.linger.ms", "without the prefix 'producer.'"),
        ("source_consumer", "consumer.max.poll.records", "under source_consumer"),
        ("source_consumer", "source.cluster.sasl.mechanism", "under the cluster's own entry under clusters:"),
        ("source_admin", "target.admin.retries", "under target_admin"),
        ("source_consumer", "bootstrap.servers", "use bootstrap_servers under clusters:"),
        ("source_connector", "source.consumer.max.poll.records", "write 'max.poll.records' under source_consumer"),
        ("source_connector", "topics", "write topics: {include: [...]}"),
        ("source_connector", "tasks.max", "write tasks: {max: N}"),
        ("checkpoint_connector", "sync.group.offsets.enabled", "write checkpoints: {group_offsets: true|false}"),
        ("source_connector", "replication.factor", "write replication_factor: under clusters:"),
        ("source_connector", "value.converter", "any other converter alters them"),
        ("source_connector", "enabled", "pause the connector in Connect"),
        ("source_connector", "replication.policy.internal.topic.separator.enabled", "not supported"),
        ("source_connector", "refresh.topics.enabled", "write refresh_interval:"),
        ("checkpoint_connector", "refresh.groups.enabled", "write refresh_interval:"),
        ("heartbeat_connector", "mm2mgr.owner", "mark ownership"),
        ("source_connector", "two words", "a Kafka key of letters, digits"),
        ("record_producer", "linger.ms=5", "a Kafka key of letters, digits"),
    ],
)
def test_keys_that_mm2mgr_writes_are_refused_with_the_place_to_say_it(
    tmp_path: Path, block: str, key: str, advice: str
) -> None:
    found = complaint(tmp_path, x=f'{BASE}{FLOW}    {block}:\n      "{key}": "1"\n')
    assert found.startswith(f"x.yaml:13:7: 'flows.f.{block}")
    assert advice in found


@pytest.mark.parametrize("key", ["admin.timeout.ms", "consumer.poll.timeout.ms", "offset.lag.max"])
def test_connector_keys_that_only_look_like_prefixes_pass(tmp_path: Path, key: str) -> None:
    (flow,) = expanded(tmp_path, x=f"{BASE}{FLOW}    source_connector: {{{key}: 5}}\n").flows
    assert flow.client("source_connector") == {key: "5"}


def test_an_unknown_security_key_is_told_the_nearest_one(tmp_path: Path) -> None:
    text = BASE.replace("[a1:9092]}", "[a1:9092], security: {sasl.mechansim: PLAIN}}")
    found = complaint(tmp_path, x=text + FLOW)
    assert found.startswith("x.yaml:3:48: 'clusters.a.security")
    assert "not a security setting of a Kafka client; did you mean 'sasl.mechanism'?" in found


def test_an_unknown_protocol_lists_the_four(tmp_path: Path) -> None:
    text = BASE.replace("[a1:9092]}", "[a1:9092], security: {protocol: TLS}}")
    assert "protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL" in complaint(tmp_path, x=text + FLOW)


def test_both_spellings_of_the_protocol_in_one_block(tmp_path: Path) -> None:
    text = BASE.replace("[a1:9092]}", "[a1:9092], security: {protocol: SSL, security.protocol: SASL_SSL}}")
    found = complaint(tmp_path, x=text + FLOW)
    assert (
        found
        == "x.yaml:3:37: 'clusters.a.security': 'protocol' and 'security.protocol' are the same key: write only one"
    )


def test_a_misspelt_security_key_is_found_where_it_should_drop_one(tmp_path: Path) -> None:
    text = BASE.replace("[a1:9092]}", "[a1:9092], security: {sasl.jaas.confg: null}}")
    assert (
        "'sasl.jaas.confg' is not a security setting of a Kafka client; did you mean 'sasl.jaas.config'?"
        in complaint(tmp_path, x=text + FLOW)
    )


def test_what_is_missing_is_named_at_its_parent(tmp_path: Path) -> None:
    text = "clusters:\n  a:\n    labels: {x: y}\nconnect: {}\n"
    assert complaints(tmp_path, x=text) == [
        "x.yaml:1:1: 'owner' is missing; for example owner: data-platform",
        "x.yaml:2:3: 'clusters.a.bootstrap_servers' is missing; for example bootstrap_servers: ['dc1-k1:9092', 'dc1-k2:9092']",
    ]


def test_the_python_name_of_a_key_is_no_way_around(tmp_path: Path) -> None:
    assert "unknown key 'except_'; write 'except'" in complaint(tmp_path, x=BASE + FLOW + "    except_: []\n")
