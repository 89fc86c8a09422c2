"""Every line of the table of shapes, by its own examples: hidden in each form of text that may have it; and what is near it, not."""

from __future__ import annotations

import html
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import yaml

from mm2mgr.formats import properties
from mm2mgr.secret_shapes import KEYS, VALUES
from mm2mgr.secrets import MASK, forget, is_secret, mask, mask_text, remember
from mm2mgr.truth.keys import DATA as KAFKAS_KEYS
from tests.lint.test_corpus import FAULTY, SECRET, VALID

SECRET_KEYS = [example for shape in KEYS for example in shape.examples]
MARKED = [example for shape in VALUES for example in shape.examples]
VALUE = "geheim99.X"
NOT_KEYS = [
    "key.converter",
    "key.converter.schemas.enable",
    "key.deserializer",
    "key.serializer",
    "value.converter",
    "header.converter",
    "max.poll.records",
    "max.poll.interval.ms",
    "topics",
    "topics.exclude",
    "groups",
    "name",
    "connector.class",
    "tasks.max",
    "ssl.keystore.location",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "ssl.keymanager.algorithm",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.jwks.endpoint.url",
    "oauth.client.assertion.type",
    "transforms",
    "transforms.key.type",
    "transforms.insertKey.type",
    "transforms.extractKey.field",
    "transforms.k.fields",
    "transforms.hoist.type",
    "predicates",
    "primary_key",
    "primary.keys",
    "primaryKey",
    "partition_key",
    "partitionKey",
    "partition_keys",
    "partition.key",
    "message.key",
    "record.key",
    "routing_key",
    "foreign_key",
    "foreignKey",
    "sort_key",
    "sortKey",
    "message_key",
    "messageKey",
    "record_key",
    "cache_key",
    "group_key",
    "public_key",
    "publicKey",
    "publicKeyData",
    "key",
    "keys",
    "keyword",
    "key_field",
    "keyspace",
    "monkey",
    "turnkey",
    "hotkey",
    "key-alias",
    "keyId",
    "key_name",
    "keyColumn",
    "topic_key",
    "pk.fields",
    "document.id.strategy",
    "confluent.license.topic",
    "confluent.license.topic.replication.factor",
    "licensed",
    "basic.authentication",
    "auth",
    "assertion.type",
    "signature.algorithm",
    "sign",
    "design",
    "sigma",
    "significant",
    "signal.data.collection",
    "webhook.enabled",
    "webhooks",
    "connection.strings.enabled",
    "connection.url",
    "bypass",
    "secure",
    "passed",
    "passive",
    "offset-syncs.topic.location",
    "task.assigned.partitions",
    "client.id",
    "client.rack",
    "account",
    "account_id",
    "master",
    "encryption",
    "storage",
    "session.timeout.ms",
    "secretName",
    "compass",
    "passing",
    "by_passed",
    "encryption.algorithm",
    "ssl.cipher.suites",
    "producer.override.key.serializer",
    "donkey.key.name",
]
NOT_VALUES = (
    "orders",
    "orders.*,payments",
    "skills-of-the-customers-in-the-east",
    "sk-customers-orders-events-v1",
    "task-1",
    "hooks",
    "webhooks",
    "http://worker:8083/connectors",
    "http://worker:8083/connectors/orders@east/status",
    "https://chat.example/hooks/list",
    "https://git.example/team/hooks/README",
    "https://worker:8083/a/b@c",
    "PLAINTEXT://a:9092,SSL://b:9093",
    "a1:9092,a2:9092",
    "http://a:8083, http://b:8083/x@y",
    "ghp_short",
    "AKIA",
    "ASIAPACIFIC",
    "AKIAIOSFODNN7EXAMPLEANDMORE",
    "xoxo-kisses",
    "glpat",
    "dapi",
    "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "org.apache.kafka.connect.transforms.ValueToKey",
    "hvs.orders",
    "SG.a.b",
    "hf_orders",
    "npm_events",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG\n-----END CERTIFICATE-----",
    "lkc-abc123.eu-west-1.aws.confluent.cloud:9092",
    "4L6g3nShT-eMCtK--X86sw",
    "mail orders@example.com",
    "eyJust a word",
    "a@b",
    "mailto:team@example.com",
    "http://worker:8083<br>ask team@example.com",
    "s3://bucket/path@2024",
    "file:///etc/x@y",
    "${file:/etc/x:key}",
    "topic key=order-1",
    "primary_key=id",
)


def plain(example: str) -> str:
    return example.translate({ord("⟨"): None, ord("⟩"): None})


def hidden(example: str) -> str:
    return re.sub(r"(?s)⟨.*⟩", MASK, example)


def secret_of(example: str) -> str:
    return example[example.index("⟨") + 1 : example.index("⟩")]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_of_this_shape_shows_no_value(key: str) -> None:
    assert is_secret(key)
    assert mask(key, VALUE) == MASK
    config = {"a.b": "1", key: VALUE, "c.d": "2"}
    java = "{" + ", ".join(f"{name}={value}" for name, value in config.items()) + "}"
    lines = "\n".join(f"{name} = {value}" for name, value in config.items())
    url = f"GET /x?{key}={VALUE}&a=1 failed"
    for text in (
        java,
        lines,
        url,
        json.dumps(config),
        f"{config}",
        json.dumps(json.dumps(config)),
        html.escape(json.dumps(config)),
    ):
        assert VALUE not in mask_text(text), text
    assert mask_text(lines) == lines.replace(VALUE, MASK)


@pytest.mark.parametrize("key", NOT_KEYS)
def test_a_key_that_is_near_one_keeps_its_value(key: str) -> None:
    assert not is_secret(key)
    for text in (f"{key}={VALUE}", f"{key}: {VALUE}", json.dumps({key: VALUE})):
        assert mask_text(text) == text


@pytest.mark.parametrize("example", MARKED, ids=plain)
def test_of_a_value_of_this_shape_only_the_secret_is_hidden(example: str) -> None:
    text = plain(example)
    assert mask_text(text) == hidden(example)
    assert mask_text(f"it is '{text}'\nand more") == f"it is '{hidden(example)}'\nand more" or text.startswith(
        "-----BEGIN"
    )
    shown = [
        mask("a.b", text),
        mask_text(json.dumps({"a.b": text})),
        mask_text(html.escape(text)),
        mask_text(f"a.b={text},c=1"),
    ]
    for part in (
        part
        for part in re.split(r"\W+", secret_of(example).rpartition(":")[2])
        if len(part) > 5 and part not in ("PRIVATE", "ENCRYPTED")
    ):
        assert all(part not in text for text in shown)


@pytest.mark.parametrize("example", MARKED, ids=plain)
def test_what_is_secret_of_a_value_is_hidden_where_it_stands_alone(example: str) -> None:
    remember({"a.b": plain(example)})
    secret = secret_of(example)
    if plain(example)[plain(example).index(secret) + len(secret) :][:1] == "@":
        secret = secret.partition(":")[2] or secret
    for part in (part for part in re.split(r"\\n|\n", secret) if not part.startswith("--") and len(part) >= 8):
        assert mask_text(f"refused {part}") == f"refused {MASK}"


@pytest.mark.parametrize("text", NOT_VALUES)
def test_a_value_that_is_near_one_stays(text: str) -> None:
    assert mask_text(text) == text
    assert mask("a.b", text) == text


def test_the_table_holds_what_people_meet() -> None:
    assert len(SECRET_KEYS) + len(MARKED) >= 83
    assert len(NOT_KEYS) + len(NOT_VALUES) >= 100


def test_no_more_values_of_the_corpus_are_hidden_than_hold_a_secret() -> None:
    """Hidden without need are the id of an OAuth client, and JAAS strings that are none to Kafka either."""
    pairs = {
        (str(key), value)
        for case in FAULTY + VALID
        for file, text in case.texts().items()
        for key, value in _pairs(file, text)
    }
    forget()  # a password that is the name of a group, too, is a matter of its own
    masked = {(key, value) for key, value in pairs if mask(key, value) != value and SECRET not in value}
    assert len(pairs) > 1000
    assert Counter(key.removeprefix("source.cluster.") for key, _ in masked) == {
        "sasl.jaas.config": 6,
        "target.cluster.sasl.jaas.config": 1,  # `...`, as people publish it
        "target.sasl.jaas.config": 1,  # a password that a template fills in
        "sasl.oauthbearer.client.credentials.client.id": 1,
        "password": 1,  # a key of a Kubernetes secret, as Strimzi calls it
    }


def _pairs(file: str, text: str) -> Iterator[tuple[str, str]]:
    if file.endswith(".properties"):
        yield from ((entry.key, entry.value) for entry in properties.read(text, file))
    for document in yaml.safe_load_all(text) if not file.endswith(".properties") else ():
        waiting = [("", document)]
        while waiting:
            key, value = waiting.pop()
            waiting += (
                value.items()
                if isinstance(value, dict)
                else [(key, item) for item in value]
                if isinstance(value, list)
                else []
            )
            if isinstance(value, str):
                yield key, value


def test_no_other_key_of_kafka_is_taken_for_a_secret() -> None:
    names = set(re.findall(r'"([a-z][a-z\d_.-]+\.[a-z\d_.-]+)"', KAFKAS_KEYS.read_text(encoding="utf-8")))
    assert len(names) > 250
    assert {name for name in names if is_secret(name)} == {
        *(
            "sasl.jaas.config",
            "ssl.key.password",
            "ssl.keystore.key",
            "ssl.keystore.password",
            "ssl.truststore.password",
        ),
        *("sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase"),
        *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
    }


HEADS = (
    "https://a.b/hooks/",
    "http://a:b/",
    "http://a:9/@",
    "://a:",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    "xoxb-",
    "sk-",
    "eyJaaaaaaaa.",
    "AccountKey=",
    "a.key: ",
    "SG.aaaaaaaaaaaaaaaa.",
    "hooks.slack.com/services/",
    "ghp_",
    "a/hook/",
    "x",
    "x.",
    "=x",
    "{a: ",
)


UNITS = (
    *HEADS,
    *(
        "a",
        "7",
        "aB3",
        "QUJDRGVm/+",
        "/",
        "\\",
        '"',
        "a'",
        "=",
        ": ",
        " ",
        "\n",
        "\\\\/",
        ":\\/\\/",
        "a:",
        "b:9092,",
        "a.",
        "a-",
        "_",
    ),
    *(
        "${",
        "a=${",
        "a='",
        'a="',
        "a.b required ",
        "a b= ",
        "Basic ",
        "Invalid value ",
        "authorization: ",
        "&quot;",
        "</b>",
    ),
)
OPENINGS = ("", "password=", "PLAINTEXT://a:", "http://a:b/", "a.LoginModule required x")


def longer_and_longer(judge: Callable[[str], object], opening: str, unit: str) -> None:
    """Assert that eight times the text takes about eight times as long: were it to grow with the square, it would be 64 times.

    It begins with a few characters, so that what doubles with each of them is told before it takes for ever.
    """
    longest = 16_000 // len(unit)
    for count in (20, 40, longest):
        shorter, text = opening + unit * (count // 8), opening + unit * count
        for final in (False, False, True):  # again where the machine was busy
            before, after = cost(judge, shorter), cost(judge, text)
            if after < 28 * max(before, 0.0005):
                break
            assert not final, f"{len(text)} characters of {opening!r} and {unit!r}: {before} s, then {after} s"


def cost(judge: Callable[[str], object], text: str) -> float:
    forget()
    begun = time.process_time()
    judge(text)
    return time.process_time() - begun


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_text_costs_grows_with_its_length_and_not_faster(unit: str) -> None:
    for opening in OPENINGS:
        longer_and_longer(lambda text: mask_text(f"{text}: {text[:20]}=1"), opening, unit)
    longer_and_longer(lambda text: mask("a.sasl.jaas.config", text), "a.LoginModule required ", unit)
    longer_and_longer(lambda text: remember({"a.b": f"{text}=1", "a.sasl.jaas.config": text}), "a.B required ", unit)


def test_the_addresses_of_many_brokers_are_shown_at_once() -> None:
    brokers = "SASL_SSL://" + ",".join(f"broker-{number}.example:9092" for number in range(1000))
    assert mask_text(f"cannot reach {brokers}") == f"cannot reach {brokers}"


@pytest.mark.parametrize("password", ["it's", 'a"b"c', "x<y>z", "p@ss", "a:b:c", "50%/2", "a\\b-c"])
def test_a_password_of_a_url_is_known_whatever_it_holds(password: str) -> None:
    remember({"url": f"http://app:{password}@worker:8083"})
    assert mask_text(f"refused: {password}1 {html.escape(password)}") == f"refused: {MASK}1 {MASK}"
