"""Java client keys become librdkafka's, or an error that says what to do; secrets stay out of sight."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config, parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def translated(**security: str) -> dict[str, str]:
    return librdkafka_config(KafkaAccess("dc1", "h:9092", {key.replace("__", "."): v for key, v in security.items()}))


def test_plaintext_needs_nothing_and_keeps_nothing_else() -> None:
    config = translated(ssl__truststore__location="/jks", sasl__mechanism="GSSAPI")
    assert config == {"bootstrap.servers": "h:9092", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_password_logins(mechanism: str, module: str) -> None:
    config = translated(
        security__protocol="SASL_SSL",
        sasl__mechanism=mechanism,
        sasl__jaas__config=f'{module} required username="al ice" password="p\\"w;\\\\d";',
        ssl__endpoint__identification__algorithm="",
    )
    assert config["sasl.mechanism"] == mechanism
    assert (config["sasl.username"], config["sasl.password"]) == ("al ice", 'p"w;\\d')
    assert config["ssl.endpoint.identification.algorithm"] == "none"


def test_bootstrap_and_values_may_hold_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DC1_HOST", "kafka.example")
    monkeypatch.setenv("DC1_PASSWORD", "pa$$ word")
    jaas = f"{PLAIN} required username=alice password='${{env:DC1_PASSWORD}}';"
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    config = librdkafka_config(KafkaAccess("dc1", "${env:DC1_HOST}:9092", security))
    assert config["bootstrap.servers"] == "kafka.example:9092"
    assert config["sasl.password"] == "pa$$ word"


@pytest.mark.parametrize(
    ("security", "names"),
    [
        ({"security.protocol": "SASL_SSL"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{SCRAM} required username="u" password="hunter2";',
            },
            "ScramLoginModule",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN} required user="u" password="hunter2";',
            },
            "username",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} required username=u password=%hunter2;",
            },
            "quotes",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/ca.jks"}, "truststore is JKS"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PKCS12", "ssl.truststore.location": "/ca.p12"},
            "truststore is PKCS12",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/me.jks"}, "keystore is JKS"),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": "hunter2"},
            "belong together",
        ),
    ],
)
def test_what_cannot_be_translated_says_so(security: dict[str, str], names: str) -> None:
    with pytest.raises(KafkaError) as caught:
        librdkafka_config(KafkaAccess("dc1-logging", "h:1", security))
    assert caught.value.message.startswith("dc1-logging: ")
    assert names in caught.value.message
    assert "access:" in str(caught.value.hint)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"


def test_pem_values_also_with_blanks_for_line_breaks_are_accepted_by_the_library() -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("client.example")
    ca = authority.cert_pem.bytes().decode()
    chain = identity.cert_chain_pems[0].bytes().decode()
    key = identity.private_key_pem.bytes().decode()
    for change in (str, lambda pem: " ".join(pem.split("\n"))):
        config = translated(
            security__protocol="SSL",
            ssl__truststore__type="PEM",
            ssl__truststore__certificates=change(ca),
            ssl__keystore__type="PEM",
            ssl__keystore__certificate__chain=change(chain),
            ssl__keystore__key=change(key),
        )
        assert config["ssl.ca.pem"].split() == ca.split()
        assert (
            confluent_kafka.Consumer({**config, "group.id": "x", "log_level": 0}) is not None
        )  # OpenSSL parses all three here


def test_a_pem_keystore_file_with_key_and_chain_is_accepted_by_the_library(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    config = translated(
        security__protocol="SSL",
        ssl__truststore__type="PEM",
        ssl__truststore__location=str(tmp_path / "ca.pem"),
        ssl__keystore__type="PEM",
        ssl__keystore__location=str(tmp_path / "me.pem"),
    )
    assert config["ssl.certificate.location"] == config["ssl.key.location"] == str(tmp_path / "me.pem")
    assert confluent_kafka.Consumer({**config, "group.id": "x", "log_level": 0}) is not None


def test_a_pkcs12_keystore_is_passed_on() -> None:
    config = translated(
        security__protocol="SSL",
        ssl__keystore__type="pkcs12",
        ssl__keystore__location="/me.p12",
        ssl__keystore__password="pw",
    )
    assert (config["ssl.keystore.location"], config["ssl.keystore.password"]) == ("/me.p12", "pw")


def test_repr_shows_no_setting() -> None:
    access = KafkaAccess("dc1", "h:1", {"sasl.jaas.config": "hunter2"})
    assert "hunter2" not in repr(access)
    assert "dc1" in repr(access)


@given(st.text(), st.text())
def test_any_quoted_login_comes_back_as_it_was(username: str, password: str) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'

    login = parse_jaas(f"{PLAIN} required username={quoted(username)}\n password={quoted(password)} ;")
    assert login == ("PlainLoginModule", {"username": username, "password": password})


def test_comments_octal_escapes_and_single_quotes_of_javas_tokenizer() -> None:
    login = parse_jaas("/* who */ a.B required // why\n k='x\\101\"y' other-key=w.o-r_d$;")
    assert login == ("B", {"k": 'xA"y', "other-key": "w.o-r_d$"})


@pytest.mark.parametrize(
    "text", ["", "A required", 'A required a="1"', "A required a=1;", "A required a=;", "A required a;"]
)
def test_broken_login_entries_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_jaas(text)
