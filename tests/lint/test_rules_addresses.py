"""bootstrap.servers as Kafka's own class reads it: each value was given to ClientUtils.parseAndValidateAddresses of 3.6.2 and 4.3.1."""

from __future__ import annotations

import pytest

from mm2mgr.lint.subject import WorkerFacts
from tests.lint import made

KEY = "source.cluster.bootstrap.servers"


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("localhost", "has no port"),
        ("[::1]", "has no port"),
        ("a1:9092;a2:9092", "semicolon"),
        ("a1 :9092", "blank"),
        ("a1:9092,,a2:9092", "an item of the list is empty"),
        (",", "an item of the list is empty"),
        ("a1:65536", "not between 1 and 65535"),
        ("a1:0", "not between 1 and 65535"),
        ("a1:-1", "no number"),
        ("'a1:9092'", "quotes"),
        ("//a1:9092", "a path"),
        ("https://a1", "has no port"),
        ("h&st:9092", "a character"),
        ("a1:9092:9093", "two ports"),
    ],
)
def test_an_address_that_fails_the_client(servers: str, words: str) -> None:
    (hit,) = made.hits("bad-address", made.source({KEY: servers}))
    assert words in hit.message
    assert "the connector is FAILED" in hit.message
    assert hit.key == KEY


def test_an_address_without_a_host_is_the_workers_machine() -> None:
    (hit,) = made.hits("bad-address", made.source({KEY: ":9092"}))
    assert "':9092' has no host" in hit.message
    assert "its worker's machine" in hit.message
    assert hit.severity == "warning"


@pytest.mark.parametrize("servers", ["a_1:9092", "::1:9092", "fe80::1%eth0:9092", "a1:9092 , a2:09092", "X://a1:1"])
def test_an_address_that_works(servers: str) -> None:
    assert not made.hits("bad-address", made.source({KEY: servers}))
    assert not made.hits("address-scheme", made.source({KEY: servers}))


@pytest.mark.parametrize(("servers", "read"), [("a1:9092;a2:9092", "a2:9092"), ("u@a1:9092", "a1:9092")])
def test_kafka_up_to_3_7_reads_what_is_behind(servers: str, read: str) -> None:
    (hit,) = made.hits("bad-address", made.source({KEY: servers}, worker=WorkerFacts("3.7.2")))
    assert f"Kafka 3.7.2 reads only '{read}'" in hit.message
    assert "FAILED" not in hit.message
    assert not made.hits("bad-address", made.source({KEY: "a1:9092,"}, worker=WorkerFacts("4.1.2")))


def test_a_password_before_the_host_is_not_shown() -> None:
    (finding,) = (
        each for each in made.findings(made.source({KEY: "bob:s3cr3t@a1:9092"})) if each.rule == "bad-address"
    )
    assert "s3cr3t" not in f"{finding}"


def test_which_client_fails() -> None:
    own = made.source({"producer.override.bootstrap.servers": "b1", "consumer.override.bootstrap.servers": "b1"})
    (hit,) = made.hits("bad-address", own)
    assert "the tasks are FAILED when they create the record producer" in hit.message


def test_a_comma_too_many_is_a_warning_where_the_version_is_unknown() -> None:
    for version, severity in ((None, "warning"), ("4.3.1", None)):
        (hit,) = made.hits("bad-address", made.source({KEY: "a1:9092,"}, worker=WorkerFacts(version)))
        assert hit.severity == severity
