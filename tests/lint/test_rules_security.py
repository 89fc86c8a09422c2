"""Rules over protocols, logins and stores; none of them may show a secret."""

from __future__ import annotations

from typing import Any

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import security as security_rules
from mm2mgr.lint.subject import Subject, WorkerFacts
from tests.lint import made

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="hunter2";'
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="m@X";'
PEM = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"


def on(prefix: str, **settings: str) -> dict[str, str]:
    return {f"{prefix}{name.replace('__', '.')}": value for name, value in settings.items()}


def one(rule: str, subject: Subject) -> Any:
    (hit,) = made.hits(rule, subject)
    return hit


def quiet(rule: str, *configs: dict[str, str], **facts: object) -> None:
    for config in configs:
        assert made.hits(rule, made.source(config, **facts)) == [], config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source.cluster.sasl.jaas.config", SCRAM),
        ("target.cluster.ssl.keystore.key", PEM),
        ("producer.override.ssl.truststore.password", "hunter2"),
        ("source.cluster.ssl.key.password", "hunter2"),
        ("source.cluster.sasl.oauthbearer.client.credentials.client.secret", "hunter2"),
    ],
)
def test_secrets_in_clear(key: str, value: str) -> None:
    hit = one("secret-in-clear", made.source({key: value}))
    assert hit.key == key
    assert "${file:" in hit.fix
    quiet("secret-in-clear", {key: "${file:/s:x}"}, {key: ""})


def test_what_looks_like_a_secret_and_is_none() -> None:
    quiet(
        "secret-in-clear",
        {"source.cluster.sasl.jaas.config": SCRAM.replace("hunter2", "${env:P}")},
        {"source.cluster.sasl.jaas.config": KERBEROS},
        {"source.cluster.sasl.oauthbearer.assertion.private.key.file": "/etc/key"},
        {"source.cluster.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----"},
        {"source.cluster.ssl.keystore.location": "/etc/k.p12"},
    )


def test_no_rule_shows_a_secret() -> None:
    broken = {
        **on("source.cluster.", sasl__jaas__config=SCRAM, security__protocol="SASL_SSL"),
        **on("target.cluster.", ssl__keystore__key=PEM.replace("\n", "\\n"), security__protocol="PLAINTEXT"),
        **on("producer.override.", ssl__keystore__password="hunter2", ssl__keystore__location="/k"),
        **on("producer.override.", ssl__keystore__type="PEM"),
    }
    hits = [hit for rule in rules_of(security_rules) for hit in made.hits(rule.id, made.source(broken))]
    assert len(hits) >= 6
    assert not [hit for hit in hits if "hunter2" in hit.message + hit.fix]


@pytest.mark.parametrize("prefix", ["source.cluster.", "target.cluster.", "producer.override."])
def test_half_a_security(prefix: str) -> None:
    login = on(prefix, sasl__mechanism="SCRAM-SHA-512", sasl__jaas__config="${file:/s:jaas}")
    trust = on(prefix, ssl__truststore__location="/ca.p12")
    for half, wanted in (
        (login, "security.protocol=SASL_SSL"),
        (trust, "security.protocol=SSL"),
        ({**login, **trust}, "security.protocol=SASL_SSL"),
        ({**trust, f"{prefix}security.protocol": "PLAINTEXT"}, "security.protocol=SSL"),
        ({**login, f"{prefix}security.protocol": "SSL"}, "security.protocol=SASL_SSL"),
        (on(prefix, security__protocol="SASL_SSL", sasl__mechanism="PLAIN"), "sasl.jaas.config="),
        (on(prefix, security__protocol="SASL_SSL", sasl__jaas__config=SCRAM), "sasl.mechanism=SCRAM"),
        (on(prefix, security__protocol="SASL_SSL"), "sasl.mechanism="),
    ):
        assert f"write {prefix}{wanted}" in one("security-incomplete", made.source(half)).fix, half
    whole = {**login, **trust, f"{prefix}security.protocol": "SASL_SSL"}
    quiet(
        "security-incomplete",
        whole,
        on(prefix, security__protocol="SSL"),
        on(prefix, security__protocol="PLAINTEXT"),
        on(prefix, security__protocol="SASL_SSL", sasl__jaas__config=KERBEROS),
        {**whole, f"{prefix}security.protocol": "${env:PROTOCOL}"},
    )


def test_what_a_client_of_its_own_adds_counts() -> None:
    whole = {
        **on("source.cluster.", security__protocol="SASL_SSL", sasl__mechanism="PLAIN"),
        **on("source.admin.", sasl__jaas__config="${file:/s:admin}"),
    }
    quiet("security-incomplete", whole)


def test_the_workers_producer_security_counts() -> None:
    worker = WorkerFacts(properties={"producer.security.protocol": "SASL_SSL", "producer.sasl.mechanism": "PLAIN"})
    quiet("security-incomplete", on("producer.override.", sasl__jaas__config="${file:/s:jaas}"), worker=worker)


def test_pem_needs_its_type() -> None:
    whole = {
        **on("source.cluster.", ssl__keystore__certificate__chain="${dir:/t:c}", ssl__keystore__key="${dir:/t:k}"),
        **on("source.cluster.", security__protocol="SSL"),
    }
    assert one("store-type-missing", made.source(whole)).fix == "write source.cluster.ssl.keystore.type=PEM"
    quiet("store-type-missing", {**whole, "source.cluster.ssl.keystore.type": "PEM"})
    assert (
        "it is pem"
        in one("store-type-missing", made.source({**whole, "source.cluster.ssl.keystore.type": "pem"})).message
    )
    quiet("store-type-missing", {**whole, "source.cluster.security.protocol": "SASL_PLAINTEXT"})
    jks = on("producer.override.", ssl__truststore__certificates="${dir:/t:c}", ssl__truststore__type="JKS")
    jks["producer.override.security.protocol"] = "SSL"
    assert "it is JKS" in one("store-type-missing", made.source(jks)).message


def test_a_pem_file_has_no_store_password() -> None:
    pem = on("target.cluster.", ssl__keystore__location="/k.pem", ssl__keystore__type="PEM")
    hit = one("store-type-missing", made.source({**pem, "target.cluster.ssl.keystore.password": "hunter2"}))
    assert hit.key == "target.cluster.ssl.keystore.password"
    assert "target.cluster.ssl.key.password" in hit.fix
    quiet("store-type-missing", pem, {**pem, "target.cluster.ssl.key.password": "x"})
    p12 = on("target.cluster.", ssl__keystore__location="/k.p12", ssl__keystore__password="x")
    quiet("store-type-missing", p12)


def test_pem_with_line_ends_that_are_none() -> None:
    typed = on("source.cluster.", ssl__keystore__type="PEM")
    escaped = {**typed, "source.cluster.ssl.keystore.key": PEM.replace("\n", "\\n")}
    assert one("pem-not-lines", made.source(escaped)).key == "source.cluster.ssl.keystore.key"
    quiet("pem-not-lines", {**typed, "source.cluster.ssl.keystore.key": PEM})
    quiet("pem-not-lines", {**typed, "source.cluster.ssl.keystore.key": PEM.replace("\n", " ")})


def test_host_names_that_nobody_checks() -> None:
    tls = on("source.cluster.", security__protocol="SSL", ssl__endpoint__identification__algorithm="")
    assert "=https" in one("host-name-unchecked", made.source(tls)).fix
    quiet("host-name-unchecked", {**tls, "source.cluster.ssl.endpoint.identification.algorithm": "https"})
    quiet("host-name-unchecked", {**tls, "source.cluster.security.protocol": "PLAINTEXT"})
