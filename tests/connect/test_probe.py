"""What the probe makes of a worker's answer: the policy by its name, what is refused, and whether it writes exactly once."""

from __future__ import annotations

import json

import pytest

from mm2mgr.connect.errors import ConnectError
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.lint.workers import probe
from tests.asking import from_client
from tests.connect.conftest import Ask
from tests.fake_connect import PRINCIPAL, FakeConnect

WANTED = {"producer.override.acks": "1", "producer.override.security.protocol": "1", "admin.override.client.id": "1"}
PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")


def asked(ask: Ask, wanted: dict[str, str] | None = None) -> WorkerFacts:
    found = ask(lambda c: from_client(c, probe(c.target.name, WANTED if wanted is None else wanted)))
    assert isinstance(found, WorkerFacts)
    return found


def each(*keys: str) -> set[str]:
    return {prefix + key for prefix in PREFIXES for key in keys}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("All", set()),
        (
            "None",
            each("client.id", "sasl.mechanism", "bootstrap.servers")
            | {"producer.override.acks", "producer.override.security.protocol"},
        ),
        ("Principal", each("client.id", "bootstrap.servers") | {"producer.override.acks"}),
        ("Allowlist", each("sasl.mechanism", "client.id") | {"producer.override.security.protocol"}),
    ],
)
def test_each_policy_is_told_by_what_it_refuses(fake: FakeConnect, ask: Ask, policy: str, refused: set[str]) -> None:
    fake.policy, fake.allowlist = policy, frozenset({"bootstrap.servers", "acks"})
    found = asked(ask)
    assert (found.policy, set(found.refused)) == (policy, refused)
    assert all(f"The '{policy}' policy does not allow" in reason for reason in found.refused.values())
    assert found.allowed == set(WANTED) - refused, "of the keys it was asked for, and none of the probe's own"
    assert {"security.protocol"} < PRINCIPAL


def test_an_allowlist_without_entries_is_no_policy_none(fake: FakeConnect, ask: Ask) -> None:
    fake.policy = "Allowlist"
    assert asked(ask).policy == "Allowlist"


def test_the_whole_probe_is_one_request_that_writes_nothing(fake: FakeConnect, ask: Ask) -> None:
    asked(ask)
    assert [(request.method, request.writes) for request in fake.requests] == [("PUT", False)]
    assert (fake.connectors, fake.writes) == ({}, [])


@pytest.mark.parametrize("reason", ["not on my watch", "The 'House' policy does not allow 'x' to be overridden"])
def test_a_policy_with_words_of_its_own_is_custom(fake: FakeConnect, ask: Ask, reason: str) -> None:
    values = [{"name": "producer.override.client.id", "errors": [reason]}, {"name": "name", "errors": []}]
    fake.fail_next("PUT", "/connector-plugins", 200, {"error_count": 1, "configs": [{"value": one} for one in values]})
    found = asked(ask)
    assert (found.policy, found.refused) == ("custom", {"producer.override.client.id": reason})


def test_a_policy_that_mixes_words_is_custom(fake: FakeConnect, ask: Ask) -> None:
    sentence = "The 'None' policy does not allow 'client.id' to be overridden in the connector configuration."
    reasons = {"producer.override.client.id": sentence, "producer.override.acks": "nor this"}
    values = [{"value": {"name": key, "errors": [reason]}} for key, reason in reasons.items()]
    fake.fail_next("PUT", "/connector-plugins", 200, {"error_count": 2, "configs": values})
    assert asked(ask).policy == "custom"


def test_errors_of_other_keys_are_none_of_the_policys(fake: FakeConnect, ask: Ask) -> None:
    values = [{"name": "topics", "errors": ["no"]}, {"name": "producer.override.client.id", "errors": []}]
    fake.fail_next("PUT", "/connector-plugins", 200, {"error_count": 1, "configs": [{"value": one} for one in values]})
    assert asked(ask).policy == "All"


@pytest.mark.parametrize(
    ("version", "enabled", "wanted"),
    [("4.3.1", True, True), ("4.3.1", False, False), ("3.3.2", False, False), ("3.2.3", False, None)],
)
def test_whether_the_worker_writes_exactly_once(
    fake: FakeConnect, ask: Ask, version: str, enabled: bool, wanted: bool | None
) -> None:
    fake.version, fake.exactly_once = version, enabled
    assert asked(ask).exactly_once is wanted


def test_a_worker_before_3_3_judges_the_producers_overrides_only(fake: FakeConnect, ask: Ask) -> None:
    fake.version, fake.policy = "2.8.2", "None"
    found = asked(ask, {})
    assert found.policy == "None"
    assert {key.split(".")[0] for key in found.refused} == {"producer"}


def test_neither_placeholders_nor_other_keys_are_sent(fake: FakeConnect, ask: Ask) -> None:
    asked(ask, {"producer.override.sasl.jaas.config": "${file:/secrets:x}", "source.cluster.ssl.key.password": "pa55"})
    sent = json.dumps(fake.requests[0].body)
    assert "${" not in sent
    assert "pa55" not in sent


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (500, "ConfigException: Invalid value abc for configuration linger.ms", "linger.ms"),
        (200, {"error_count": 0, "configs": []}, "does not mention the overrides"),
        (200, {"hello": "world"}, "validated keys"),
        (200, b"<html>welcome</html>", "expected JSON"),
        (401, "no", "access refused"),
    ],
)
def test_another_answer_is_an_error_and_no_guess(
    fake: FakeConnect, ask: Ask, status: int, body: object, says: str
) -> None:
    fake.fail_next("PUT", "/connector-plugins", status, body, times=100)
    with pytest.raises(ConnectError, match="Connect cluster 'east': the override policy could not be found") as caught:
        asked(ask)
    assert says in caught.value.message
    assert caught.value.hint
