"""Rules over what Kafka's code refuses although its definitions allow it: each with a config that it takes beside."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import get_args

import pytest

from mm2mgr.connectors import ConnectorType
from mm2mgr.lint.findings import Hit
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.truth.exclusions import EXCLUSIONS, READ, matters
from mm2mgr.truth.keys import load
from tests.lint import made
from tools.kafka_refusals.cases import drawn
from tools.kafka_refusals.compare import SAYING, rules

KAFKA = "org.apache.kafka."
PLAIN = f'{KAFKA}common.security.plain.PlainLoginModule required username="u" password="${{file:/s:p}}";'
TOKEN = f"{KAFKA}common.security.oauthbearer.OAuthBearerLoginModule required;"
HANDLER = f"{KAFKA}common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def on(prefix: str, **settings: str) -> dict[str, str]:
    """`on("source.cluster.", ssl__protocol="TLS")`."""
    return {prefix + name.replace("__", "."): value for name, value in settings.items()}


def hits(changes: Mapping[str, str], version: str = "4.3.1", type_: ConnectorType = "source") -> list[Hit]:
    subject = made.connector(type_, changes, worker=WorkerFacts(version=version))
    return [hit for rule in ("refused-by-code", "class-refused", "upgrade-lists") for hit in made.hits(rule, subject)]


def tls(**settings: str) -> dict[str, str]:
    return on("source.cluster.", security__protocol="SSL", **settings)


def login(mechanism: str, jaas: str, **settings: str) -> dict[str, str]:
    return on(
        "source.cluster.",
        security__protocol="SASL_SSL",
        sasl__mechanism=mechanism,
        sasl__jaas__config=jaas,
        **settings,
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            on("source.admin.", default__api__timeout__ms="20000"),
            on("source.admin.", default__api__timeout__ms="30000"),
        ),
        (
            on("target.admin.", default__api__timeout__ms="60000", request__timeout__ms="60001"),
            on("target.admin.", request__timeout__ms="90000"),  # a default is raised
        ),
        (on("admin.", bootstrap__controllers="c1:9093"), on("admin.", bootstrap__controllers="")),
        (on("source.consumer.", group__remote__assignor="uniform"), on("source.consumer.", group__remote__assignor="")),
        (
            on("source.consumer.", group__protocol="consumer", heartbeat__interval__ms="3000"),
            on("source.consumer.", group__protocol="consumer"),
        ),
        (on("source.consumer.", share__acquire__mode="batch_optimized"), {}),
        (on("source.consumer.", group__id=""), on("source.consumer.", group__id="g")),
        (on("source.consumer.", group__instance__id="a b"), on("source.consumer.", group__instance__id="a-b")),
        (
            {"offsets.storage.topic": "own", **on("consumer.override.", heartbeat__interval__ms="45000")},
            {"offsets.storage.topic": "own", **on("consumer.override.", heartbeat__interval__ms="44999")},
        ),
        (
            on("source.producer.", max__in__flight__requests__per__connection="6"),
            on("source.producer.", max__in__flight__requests__per__connection="6", enable__idempotence="false"),
        ),
        (on("source.producer.", enable__idempotence="true", acks="1"), on("source.producer.", acks="1")),
        (on("source.producer.", enable__idempotence="true", retries="0"), on("source.producer.", retries="0")),
        (
            on("source.producer.", transaction__two__phase__commit__enable="true", transaction__timeout__ms="1000"),
            on("source.producer.", transaction__two__phase__commit__enable="true"),
        ),
        (
            tls(ssl__truststore__password="${file:/s:p}"),
            on("source.cluster.", ssl__truststore__password="${file:/s:p}"),
        ),
        (tls(ssl__keystore__location="/k.p12"), tls(ssl__keystore__location="/k.pem", ssl__keystore__type="PEM")),
        (tls(ssl__keystore__key="${dir:/t:k}", ssl__keystore__type="PEM"), {}),
        (
            tls(ssl__truststore__certificates="/etc/ca.pem", ssl__truststore__type="PEM"),
            tls(ssl__truststore__certificates="-----BEGIN CERTIFICATE-----\nAA\n-----END", ssl__truststore__type="PEM"),
        ),
        (tls(ssl__protocol="TLSv1.4"), tls(ssl__protocol="tlsv1.2")),
        (tls(ssl__enabled__protocols="tlsv1.2"), tls(ssl__enabled__protocols="TLSv1.2, TLSv1.3")),
        (
            tls(ssl__endpoint__identification__algorithm="none"),
            tls(ssl__endpoint__identification__algorithm=""),
        ),
        (tls(ssl__protocol="TLSv1.4"), tls(ssl__protocol="${env:TLS}")),
        (login("plain", "${file:/s:jaas}"), login("PLAIN", "${file:/s:jaas}")),
        (login("OAUTHBEARER", TOKEN), login("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule required;")),
        (
            login("OAUTHBEARER", TOKEN, sasl__login__callback__handler__class=HANDLER),
            login(
                "OAUTHBEARER",
                TOKEN,
                sasl__login__callback__handler__class=HANDLER,
                sasl__oauthbearer__token__endpoint__url="https://login.example.net/token",
            ),
        ),
        (login("PLAIN", PLAIN, sasl__login__callback__handler__class=HANDLER), login("PLAIN", PLAIN)),
        (on("source.consumer.", security__protocol="SASL_SSL", sasl__mechanism="PLAIN"), {}),
        ({"producer.override.bootstrap.servers": ""}, {}),
        (
            {"refresh.topics.interval.seconds": "9223372036854776"},
            {"refresh.topics.interval.seconds": "9223372036854775"},
        ),
        ({"topic.filter.class": f"{made.MIRROR}DefaultGroupFilter"}, {"topic.filter.class": "org.example.TopicFilter"}),
        ({"topic.filter.class": "DefaultTopicFilter"}, {"topic.filter.class": f"{made.MIRROR}DefaultTopicFilter"}),
        ({"config.property.filter.class": ""}, {"config.property.filter.class": "${env:FILTER}"}),
        ({"value.converter": f"{KAFKA}connect.json.JsonConvertor"}, {"value.converter": "ByteArrayConverter"}),
        (
            on("producer.override.", interceptor__classes=f"{KAFKA}common.metrics.JmxReporter"),
            on("producer.override.", interceptor__classes="org.example.A,org.example.B"),
        ),
        (
            login("PLAIN", PLAIN, sasl__client__callback__handler__class=f"{KAFKA}common.metrics.JmxReporter"),
            on("source.cluster.", sasl__client__callback__handler__class=f"{KAFKA}common.metrics.JmxReporter"),
        ),
    ],
)
def test_what_code_refuses(wrong: dict[str, str], right: dict[str, str]) -> None:
    found = hits(wrong)
    assert len(found) == 1, found
    assert found[0].key in wrong
    assert not hits(right), hits(right)


@pytest.mark.parametrize(
    ("changes", "last", "first"),
    [
        (on("source.producer.", max__in__flight__requests__per__connection="6"), "3.9.1", "4.0.0"),
        (on("source.consumer.", group__protocol="consumer", session__timeout__ms="9000"), "3.9.1", "4.0.0"),
        (on("source.consumer.", group__id=""), "3.9.1", "4.0.0"),
        (on("source.consumer.", group__remote__assignor="uniform"), "3.8.1", "3.9.0"),
        (
            on("producer.override.", partitioner__class=f"{KAFKA}clients.producer.UniformStickyPartitioner"),
            "3.9.1",
            "4.0.0",
        ),
    ],
)
def test_each_line_refuses_for_itself(changes: dict[str, str], last: str, first: str) -> None:
    assert not hits(changes, last)
    assert len(hits(changes, first)) == 1


def test_lists_that_newer_workers_refuse() -> None:
    twice = {"topics": "orders,payments,orders"}
    (hit,) = hits(twice, "4.1.2")
    assert [(edit.key, edit.value) for edit in hit.edits] == [("topics", "orders,payments")]
    assert not hits(twice, "4.2.0")  # an error there
    assert [each.key for each in made.hits("invalid-value", made.source(twice))] == ["topics"]
    protocols = on("source.cluster.", ssl__enabled__protocols="TLSv1.2,TLSv1.2")
    assert not hits(protocols, "4.1.2"), "Kafka removes doubles from what clients get"
    assert not made.hits("invalid-value", made.source(protocols))
    assert hits(on("source.cluster.", ssl__enabled__protocols="TLSv1.2,,TLSv1.3"), "4.1.2")


def test_a_class_for_both_sides_is_looked_at_for_the_one_that_logs_in() -> None:
    handler = {"admin.sasl.login.class": f"{KAFKA}common.metrics.JmxReporter"}
    assert not hits(handler)
    theirs = on("target.cluster.", security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__jaas__config=PLAIN)
    (hit,) = hits(handler | theirs)
    assert "target admin" in hit.message


def test_of_two_spellings_the_one_that_wins_counts() -> None:
    shadowed = {
        "source.cluster.sasl.login.connect.timeout.ms": "soon",
        "source.admin.sasl.login.connect.timeout.ms": "5",
    }
    assert [hit.key for hit in made.hits("invalid-value", made.checkpoint(shadowed))] == [
        "source.cluster.sasl.login.connect.timeout.ms"
    ], "the consumer of offset syncs still gets it"
    whole = {**shadowed, "source.consumer.sasl.login.connect.timeout.ms": "5"}
    assert not made.hits("invalid-value", made.checkpoint(whole))


def test_connectors_that_differ_in_secrets_share_an_answer_and_no_other_does() -> None:
    assert (
        matters("ssl.truststore.password", "a")
        == matters("ssl.truststore.password", "b")
        != matters("ssl.truststore.password", "")
    )
    assert matters("default.api.timeout.ms", "1") != matters("default.api.timeout.ms", "2")
    assert {plain for each in EXCLUSIONS for plain in each.keys} <= READ
    for value in ("20000", "30000", "20000"):
        assert bool(hits(on("source.admin.", default__api__timeout__ms=value))) is (value == "20000")


def test_every_row_names_keys_that_kafka_has() -> None:
    known = load()
    for each in EXCLUSIONS:
        assert each.source
        for plain in each.keys:
            assert any(known.history(kind, plain) for kind in each.kinds), plain


@pytest.mark.parametrize("version", ["2.7.2", "3.3.2", "4.0.2", "4.3.1"])
def test_whatever_is_drawn_rules_say_it_with_a_remedy(version: str) -> None:
    chance = random.Random(version)
    for _ in range(60):
        type_ = chance.choice(get_args(ConnectorType))
        subject = made.connector(type_, drawn(chance, type_, version, 6), worker=WorkerFacts(version=version))
        for rule in rules():
            for hit in made.hits(rule.id, subject):
                assert hit.message
                assert hit.fix
    assert {rule.id for rule in rules()} >= set(SAYING) - {"transform-incomplete"}
