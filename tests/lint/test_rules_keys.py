"""Rules over keys: each trips on one config, keeps quiet on a near miss, and its fix silences it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.formats import properties
from mm2mgr.formats.mm2_properties import Dedicated, connectors
from mm2mgr.lint.classify import what_is
from mm2mgr.lint.findings import Hit, rules_of
from mm2mgr.lint.reading import read_files, subject_of
from mm2mgr.lint.rules import keys, lint, security, values, worker
from mm2mgr.lint.subject import Spot, Subject, WorkerFacts
from mm2mgr.render import render
from mm2mgr.secrets import is_secret
from mm2mgr.spec.files import load as load_tree
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import CLIENTS
from tests.lint import made
from tests.truth.reaching import reached

KEY_RULES = {rule.id for rule in rules_of(keys)}
FAMILIES = (keys, values, worker, security)
LOOKED_AT = [rule.id for family in FAMILIES for rule in rules_of(family)]


def found(subject: Subject) -> dict[str, str]:
    """Return key → rule, of the rules over keys; a key that two rules tell fails."""
    result: dict[str, str] = {}
    for rule in rules_of(keys):
        assert rule.check
        for hit in rule.check(subject):
            assert hit.key not in result, f"{hit.key} is told by {result[hit.key]} and {rule.id}"
            assert hit.message
            assert hit.fix
            result[hit.key] = rule.id
    return result


def only(rule: str, subject: Subject) -> Hit:
    hits = made.hits(rule, subject)
    assert len(hits) == 1, hits
    return hits[0]


def applied(hit: Hit) -> dict[str, str | None]:
    """Return the change that the first spelling of a fix asks for."""
    spelled = re.search(r"write (\S+?)=(\S*)", hit.fix)
    assert spelled, hit.fix
    return {hit.key: None, spelled[1]: spelled[2]}


def in_file(*lines: str, clusters: str = "A, B") -> Subject:
    """Return the source connector that the first pair of an mm2.properties becomes."""
    source, target = clusters.split(", ")
    head = f"clusters = {clusters}\n{source}->{target}.enabled = true\n"
    file = Dedicated(properties.read(head + "\n".join(lines), "mm2.properties"))
    found = subject_of(next(connectors(file)), Spot("mm2.properties"))
    assert found
    return found


def test_healthy_connectors_are_not_told() -> None:
    for subject in (made.source(), made.checkpoint(), made.heartbeat()):
        assert found(subject) == {}


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("batch.size", "65536", "producer.override.batch.size=65536"),
        ("max.poll.records", "2000", "source.consumer.max.poll.records=2000"),
        ("target.producer.linger.ms", "5", "producer.override.linger.ms=5"),
        ("target.consumer.fetch.max.bytes", "8388608", "source.consumer.fetch.max.bytes=8388608"),
        ("source.cluster.consumer.fetch.max.bytes", "8388608", "source.consumer.fetch.max.bytes=8388608"),
        ("source.cluster.request.timeout.ms", "60000", "source.consumer.request.timeout.ms=60000"),
        ("target.cluster.request.timeout.ms", "60000", "target.admin.request.timeout.ms=60000"),
        ("offset-syncs.producer.linger.ms", "5", "producer.override.linger.ms=5"),
        ("source.bootstrap.servers", "a1:9092", "source.cluster.bootstrap.servers=a1:9092"),
        ("target.bootstrap.servers", "b1:9092", "target.cluster.bootstrap.servers=b1:9092"),
        ("A.bootstrap.servers", "a1:9092", "source.cluster.bootstrap.servers=a1:9092"),
        ("B.producer.linger.ms", "5", "producer.override.linger.ms=5"),
        ("A->B.topics", "orders", "topics=orders"),
        ("A->B.producer.override.linger.ms", "5", "producer.override.linger.ms=5"),
        ("source.cluster.topics", "orders", "topics=orders"),
        ("consumer.max.request.size", "10", "producer.override.max.request.size=10"),
    ],
)
def test_dead_keys_and_their_fix(key: str, value: str, fix: str) -> None:
    hit = only("dead-key", made.source({key: value}))
    assert hit.key == key
    assert fix in hit.fix
    assert found(made.source({key: value})) == {key: "dead-key"}
    assert found(made.source(applied(hit))) == {}


def test_a_line_of_mm2_properties_in_a_connector_is_dead() -> None:
    hit = only("dead-key", made.source({"clusters": "A, B"}))
    assert "mm2.properties" in hit.message


def test_a_prefix_is_dead_where_its_client_is_not_there() -> None:
    on_target = {"offset-syncs.topic.location": "target"}
    assert found(made.source({"target.producer.linger.ms": "5", **on_target})) == {}
    assert found(made.source({"source.producer.linger.ms": "5"})) == {}
    assert found(made.source({"source.producer.linger.ms": "5", **on_target})) == {
        "source.producer.linger.ms": "dead-key"
    }
    read_back = {"target.consumer.fetch.max.bytes": "8388608"}
    assert found(made.checkpoint(read_back)) == {}
    assert found(made.checkpoint(read_back, worker=WorkerFacts(version="3.6.2"))) == {
        "target.consumer.fetch.max.bytes": "dead-key"
    }


def test_a_heartbeat_connector_may_carry_the_address_of_the_source() -> None:
    assert found(made.heartbeat({"source.cluster.security.protocol": "SSL"})) == {}
    assert found(made.heartbeat({"producer.linger.ms": "5"})) == {"producer.linger.ms": "dead-key"}
    assert found(made.heartbeat({"source.consumer.max.poll.records": "5"})) == {
        "source.consumer.max.poll.records": "dead-key"
    }


def test_dead_keys_of_a_secret_are_told_without_it() -> None:
    hit = only("dead-key", made.source({"source.sasl.jaas.config": 'x.Login required password="hunter2";'}))
    assert "hunter2" not in hit.message + hit.fix


def test_dead_keys_reach_nobody_by_the_table() -> None:
    """Whatever the rules call dead, no client of the reach table makes anything of; the rest reaches somebody."""
    prefixes = {layer.prefix for each in CLIENTS.values() for client in each for layer in client.layers}
    known = load()
    for prefix in sorted(prefixes):
        for plain in ("linger.ms", "fetch.max.bytes", "retry.backoff.ms", "sasl.login.class"):
            subject = made.source({prefix + plain: "1"})
            hits = list(reached("source", prefix + plain, subject.setting))
            useful = any(known.find(hit.client.kind, hit.key, subject.version) for hit in hits)
            dead = what_is(subject, prefix + plain) in ("dead-key", "dead-override")
            assert dead != useful, prefix + plain


def test_overrides_for_clients_that_are_not_there() -> None:
    hit = only("dead-override", made.source({"consumer.override.fetch.max.bytes": "8388608"}))
    assert "source.consumer.fetch.max.bytes=8388608" in hit.fix
    assert found(made.source(applied(hit))) == {}
    assert found(made.source({"admin.override.retry.backoff.ms": "1"})) == {
        "admin.override.retry.backoff.ms": "dead-override"
    }
    for changes, workers in (
        ({"offsets.storage.topic": "mine"}, WorkerFacts()),
        ({}, WorkerFacts(exactly_once=True)),
        ({"exactly.once.support": "required"}, WorkerFacts()),
    ):
        both = {"consumer.override.fetch.max.bytes": "8388608", "admin.override.retry.backoff.ms": "1", **changes}
        assert found(made.source(both, worker=workers)) == {}


def test_overrides_that_prepare_for_exactly_once_workers_are_meant() -> None:
    same = {f"{kind}.override.bootstrap.servers": "b1:9092,b2:9092" for kind in ("consumer", "admin")}
    assert found(made.checkpoint(same)) == {}
    assert set(found(made.checkpoint(same, worker=WorkerFacts(exactly_once=False)))) == set(same)


def test_bare_security() -> None:
    hit = only("bare-security", made.source({"security.protocol": "SSL"}))
    assert "source.cluster.security.protocol=SSL" in hit.fix
    assert "producer.override.security.protocol=SSL" in hit.fix
    assert found(made.source({"bootstrap.servers": "a1:9092"})) == {"bootstrap.servers": "bare-security"}
    assert found(made.source(applied(hit))) == {}
    hit = only("bare-security", made.source({"ssl.keystore.password": "hunter2"}))
    assert "hunter2" not in hit.message + hit.fix


def test_misdirected_keys() -> None:
    hit = only("misdirected-key", made.source({"producer.linger.ms": "50"}))
    assert hit.fix == "write producer.override.linger.ms=50"
    assert found(made.source(applied(hit))) == {}
    assert found(made.source({"producer.linger.ms": "50", "producer.override.linger.ms": "5"})) == {}
    assert found(made.source({"producer.metadata.max.age.ms": "50"})) == {}
    assert found(made.source({"source.producer.linger.ms": "50"})) == {}


def test_addresses_for_both_sides() -> None:
    hit = only("unscoped-address", made.checkpoint({"consumer.bootstrap.servers": "a1:9092"}))
    assert "source.cluster.bootstrap.servers" in hit.fix
    assert "checkpoints consumer (target)" in hit.message
    assert found(made.source({"admin.sasl.mechanism": "PLAIN"})) == {"admin.sasl.mechanism": "unscoped-address"}
    assert found(made.source({"source.admin.sasl.mechanism": "PLAIN"})) == {}
    records = only("unscoped-address", made.source({"producer.bootstrap.servers": "b1:9092"}))
    assert records.fix.endswith("or write producer.override.bootstrap.servers=b1:9092 if that is meant")


def test_unknown_keys_and_the_nearest_known_one() -> None:
    hit = only("unknown-key", made.source({"sync.topic.config.enabled": "false"}))
    assert hit.fix == "write sync.topic.configs.enabled=false"
    assert found(made.source(applied(hit))) == {}
    hit = only("unknown-key", made.source({"producer.override.linger.m": "5"}))
    assert hit.fix == "write producer.override.linger.ms=5"
    assert "mm2mgr explain" in only("unknown-key", made.source({"somebody": "x"})).fix


def test_a_mistyped_secret_stays_secret() -> None:
    hit = only("unknown-key", made.source({"source.cluster.ssl.keystore.passwort": "hunter2"}))
    assert "source.cluster.ssl.keystore.password=" in hit.fix
    assert "hunter2" not in hit.message + hit.fix


def test_keys_of_plugins_are_theirs() -> None:
    changes = {
        "mm2mgr.owner": "team",
        "transforms": "route",
        "transforms.route.type": "org.example.Route",
        "transforms.route.field": "region",
        "predicates": "p",
        "predicates.p.pattern": "x",
        "value.converter.some.setting": "1",
        "topic.creation.default.compression.type": "zstd",
    }
    assert found(made.source(changes)) == {}
    custom = {"topic.filter.class": "org.example.Filter", "example.filter.file": "/etc/f"}
    assert found(made.source(custom)) == {}
    assert found(made.source({"example.filter.file": "/etc/f"})) == {"example.filter.file": "unknown-key"}
    near = {"topic.filter.class": "org.example.Filter", "sync.topic.config.enabled": "false"}
    assert found(made.source(near)) == {"sync.topic.config.enabled": "unknown-key"}


def test_keys_newer_than_the_workers() -> None:
    off = {"emit.offset-syncs.enabled": "false"}
    hit = only("key-too-new", made.source(off, worker=WorkerFacts(version="3.8.1")))
    assert "3.9" in hit.fix
    assert "3.8.1" in hit.message
    assert found(made.source(off, worker=WorkerFacts(version="3.9.0"))) == {}
    assert found(made.source(off)) == {}
    assert found(made.source({"emit.offset-syncs.enabled": "true"}, worker=WorkerFacts(version="3.8.1"))) == {}
    client = {"source.cluster.sasl.oauthbearer.scope": "kafka"}
    assert found(made.source(client, worker=WorkerFacts(version="4.0.0"))) == dict.fromkeys(client, "key-too-new")
    assert found(made.source(client, worker=WorkerFacts(version="4.1.0"))) == {}


@pytest.mark.parametrize("version", ["unknown", "", "9.9.9", "4"])
def test_a_version_that_is_not_kafkas_is_no_version(version: str) -> None:
    subject = made.source({"emit.offset-syncs.enabled": "false"}, worker=WorkerFacts(version=version))
    assert found(subject) == {}
    assert found(made.source({"topics.blacklist": "x"}, worker=WorkerFacts(version=version))) == {
        "topics.blacklist": "key-removed"
    }


@pytest.mark.parametrize("version", ["7.6.0-ccs", "3.8.1.redhat-00001", "3.8.0"])
def test_a_vendors_version_is_judged_by_its_kafka(version: str) -> None:
    subject = made.source({"emit.offset-syncs.enabled": "false"}, worker=WorkerFacts(version=version))
    assert found(subject) == {"emit.offset-syncs.enabled": "key-too-new"}
    old = made.source({"topics.blacklist": "x"}, worker=WorkerFacts(version=version))
    assert found(old) == {"topics.blacklist": "key-deprecated"}


def test_keys_that_went() -> None:
    hit = only("key-removed", made.source({"topics.blacklist": "x"}, worker=WorkerFacts(version="4.1.0")))
    assert hit.fix == "write topics.exclude=x"
    assert "3.9" in hit.message
    assert found(made.source(applied(hit), worker=WorkerFacts(version="4.1.0"))) == {}
    assert "unknown" in only("key-removed", made.source({"topics.blacklist": "x"})).message
    assert found(made.source({"use.incremental.alter.configs": "never"})) == {
        "use.incremental.alter.configs": "key-removed"
    }
    assert found(made.source({"use.incremental.alter.configs": "never"}, worker=WorkerFacts(version="3.7.0"))) == {}


def test_keys_that_will_go() -> None:
    old = made.checkpoint({"groups.blacklist": "x"}, worker=WorkerFacts(version="3.9.1"))
    assert only("key-deprecated", old).fix == "write groups.exclude=x"
    assert found(old) == {"groups.blacklist": "key-deprecated"}
    assert found(made.checkpoint({"groups.exclude": "x"}, worker=WorkerFacts(version="3.9.1"))) == {}


def test_keys_of_another_connector() -> None:
    hit = only("other-connectors-key", made.source({"sync.group.offsets.enabled": "true"}))
    assert "MirrorCheckpointConnector" in hit.fix
    assert found(made.heartbeat({"topics": "orders"})) == {"topics": "other-connectors-key"}
    # Its filter and its validation read these, although its own definition does not name them.
    read = {"topics.exclude": "x", "emit.offset-syncs.enabled": "true", "offset-syncs.topic.location": "source"}
    assert found(made.checkpoint(read)) == {}


def test_shadowed_keys() -> None:
    both = {"consumer.max.poll.records": "5000", "source.consumer.max.poll.records": "500"}
    hit = only("shadowed-key", made.source(both))
    assert hit.key == "consumer.max.poll.records"
    assert found(made.source({**both, hit.key: None})) == {}
    assert found(made.source({**both, hit.key: "500"})) == {}
    # The admin client of the target has only the general spelling, so that is still of use.
    assert found(made.source({"admin.retries": "7", "source.admin.retries": "9"})) == {}
    one_login = {"source.cluster.sasl.mechanism": "PLAIN", "source.consumer.sasl.mechanism": "SCRAM-SHA-512"}
    assert found(made.source(one_login)) == {}


def test_forced_keys() -> None:
    assert found(made.source({"source.consumer.enable.auto.commit": "true"})) == {
        "source.consumer.enable.auto.commit": "forced-key"
    }
    assert found(made.source({"source.consumer.enable.auto.commit": "false"})) == {}
    assert found(made.source({"consumer.group.id": "mine"})) == {"consumer.group.id": "forced-key"}
    strings = "org.apache.kafka.common.serialization.StringDeserializer"
    assert found(made.source({"source.consumer.value.deserializer": strings})) == {
        "source.consumer.value.deserializer": "forced-key"
    }
    own_id = {"producer.override.transactional.id": "x"}
    assert found(made.source(own_id)) == {}
    assert found(made.source(own_id, worker=WorkerFacts(exactly_once=True))) == dict.fromkeys(own_id, "forced-key")
    idempotent = {"producer.override.enable.idempotence": "true"}
    assert found(made.source(idempotent, worker=WorkerFacts(exactly_once=True))) == {}


def test_keys_of_the_workers() -> None:
    for key in ("offset.flush.interval.ms", "exactly.once.source.support", "topic.creation.enable", "group.id"):
        assert found(made.source({key: "1"})) == {key: "worker-key"}
    assert found(made.source({"offsets.storage.topic": "mine"})) == {}


def test_mm2_properties_is_judged_line_by_line() -> None:
    subject = in_file(
        "A->B.producer.linger.ms = 5",
        "A->B.target.consumer.fetch.max.bytes = 8388608",
        "groups = shop",
        "A->B.batch.size = 1",
        "A->B.task.max = 2",
        "B.producer.linger.m = 5",
        "A.producer.acks = 1",
        "A.offset.storage.topic = x",
    )
    assert found(subject) == {
        "producer.linger.ms": "misdirected-key",
        "batch.size": "dead-key",
        "task.max": "unknown-key",
        "target.producer.linger.m": "unknown-key",
    }
    fixes = {hit.key: hit.fix for rule in sorted(KEY_RULES) for hit in made.hits(rule, subject)}
    assert fixes["producer.linger.ms"] == "write B.producer.linger.ms = 5"
    assert fixes["batch.size"] == "write B.producer.batch.size = 1"
    assert fixes["task.max"] == "write A->B.tasks.max = 2"
    assert fixes["target.producer.linger.m"] == "write B.producer.linger.ms = 5"


def test_security_at_the_top_of_mm2_properties_is_for_every_cluster() -> None:
    assert found(in_file("security.protocol = SSL")) == {}
    assert found(in_file("A->B.security.protocol = SSL")) == {"security.protocol": "bare-security"}


def test_what_mm2mgr_renders_is_not_told() -> None:
    golden = Path(__file__).parent.parent / "render" / "golden"
    trees = sorted(golden.glob("*/in.yaml"))
    assert trees
    for tree in trees:
        for connector in render(expand(load_tree([tree]))):
            for version in (None, "4.3.1"):
                subject = Subject(
                    Connector(connector.name, connector.type, config=dict(connector.config)),
                    Spot(),
                    form="tree",
                    worker=WorkerFacts(version=version),
                )
                assert found(subject) == {}, (tree, connector.name)


PREFIXES = sorted({layer.prefix for each in CLIENTS.values() for client in each for layer in client.layers})
SPELLED = st.builds(
    str.__add__,
    st.sampled_from(["", "A.", "A->B.", "source.", "source.cluster.consumer.", "offset-syncs.producer.", *PREFIXES]),
    st.sampled_from(
        [name for scope in ("source", "checkpoint", "producer", "consumer") for name in load().names(scope)]
    )
    | st.text(max_size=12),
).filter(lambda key: not key.endswith("cluster.alias"))  # a fix names the alias, which is no secret
VERSIONS = st.sampled_from([None, "3.6.2", "3.9.1", "4.3.1", "7.6.0-ccs"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([made.source, made.checkpoint, made.heartbeat]),
    st.dictionaries(SPELLED, st.sampled_from(["hunter2", "", "-1", "true", "1" * 5000, "${file:/s:x}"]), max_size=8),
    st.sampled_from(["tree", "connect", "dedicated"]),
    VERSIONS,
    st.sampled_from([None, True, False]),
)
def test_whatever_is_written_no_rule_fails_or_tells_a_key_twice(
    make: Callable[..., Subject], changes: dict[str, str], form: str, version: str | None, exactly_once: bool | None
) -> None:
    worker = WorkerFacts(version=version, exactly_once=exactly_once)
    spots = {key: Spot("mm2.properties", 1, key=f"A->B.{key}") for key in changes}
    subject = make(changes, form=form, worker=worker, spots=spots if form == "dedicated" else {})
    found(subject)
    for hit in (hit for rule in LOOKED_AT for hit in made.hits(rule, subject)):
        assert not is_secret(hit.key) or "hunter2" not in hit.message + hit.fix


def test_thousands_of_connectors_are_looked_at_in_a_moment() -> None:
    own = {f"source.consumer.x{number}.y": "1" for number in range(3)}
    tuned = {"producer.override.linger.ms": "5", "source.consumer.fetch.max.bytes": "1048576", **own}
    subjects = [made.source({**tuned, "source.cluster.alias": f"c{number % 50}"}) for number in range(3000)]
    started = time.process_time()
    assert all(len(found(subject)) == len(own) for subject in subjects)
    assert time.process_time() - started < 3.0  # 0.3 s on two busy cores


@pytest.mark.parametrize(
    "key", ["producer.overrides.interceptor.classes", "consumers.override.sasl.login.class", "prodcer.config.providers"]
)
def test_a_class_behind_a_misspelt_prefix_is_told_and_quiets_nothing(key: str) -> None:
    config = {key: "com.example.Own", "sorce.nonsense": "1"}
    assert found(made.source(config)) == dict.fromkeys(config, "unknown-key")
    loaded = {"producer.override.interceptor.classes": "com.example.Own", "sorce.nonsense": "1"}
    assert found(made.source(loaded)) == {}


def test_a_misspelt_client_key_of_a_cluster_in_mm2_properties(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"
        "A->B.enabled = true\nA->B.topics = x\nB.producer.lingr.ms = 5\n"
    )
    [told] = [each for each in lint(read_files([file])) if each.severity != "info"]
    assert (told.rule, told.spot.line, told.fix) == ("unknown-key", 6, "write B.producer.linger.ms = 5")
