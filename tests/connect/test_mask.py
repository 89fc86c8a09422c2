from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr import secrets
from mm2mgr.connect.mask import BODY_CHARACTERS, cut, mask
from mm2mgr.secrets import is_secret

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="hunter2";'


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "producer.override.ssl.keystore.password",
        "ssl.keystore.key",
        "source.cluster.ssl.truststore.password",
        "client.secret",
        "transforms.x.passwd",
        "x.private.key",
        "db.pwd",
        "basic.auth.user.info",
    ],
)
def test_secret_looking_keys(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["key.converter", "topics", "ssl.keystore.location", "sasl.oauthbearer.token.endpoint.url"]
)
def test_other_keys(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        f"Connector config {{name=a, sasl.jaas.config={JAAS}}} contains no connector type",
        "Invalid login option hunter2 in the JAAS line",
        json.dumps({"sasl.jaas.config": JAAS}),
        f"echo: {json.dumps(JAAS)}",
    ],
)
def test_a_sent_secret_is_masked_in_every_form(text: str) -> None:
    masked = mask(text, {"name": "a", "sasl.jaas.config": JAAS})
    assert "hunter2" not in masked
    assert "****" in masked


@pytest.mark.parametrize(
    "text",
    [
        'LoginModule required password="hunter2";',
        "ssl.key.password=hunter2, acks=all",
        "clientSecret='hunter2'",
        json.dumps('x password="hunter2";'),
    ],
)
def test_assignments_are_masked_even_if_the_config_is_unknown(text: str) -> None:
    assert "hunter2" not in mask(text)


def test_a_secret_that_begins_like_another_leaves_no_tail() -> None:
    assert mask("it said pa55word1!", {"a.password": "pa55", "b.password": "pa55word1!"}) == "it said ****"


def test_harmless_texts_stay_as_they_are() -> None:
    config = {"ssl.key.password": "${file:/etc/x:key}", "a.secret.enabled": "true", "topics": "orders"}
    text = 'Missing required configuration "ssl.key.password"; could not resolve ${file:/etc/x:key}; true; orders'
    assert mask(text, config) == text
    assert mask("ssl.key.password=${file:/etc/x:key}", config) == "ssl.key.password=${file:/etc/x:key}"


@given(
    st.text(min_size=1).filter(
        lambda text: text.lower() not in {"true", "false"} and "*" not in text and "$" not in text
    )
)
def test_no_value_of_a_secret_key_survives(secret: str) -> None:
    assert secret not in mask(f"<{secret}> refused: {secret}", {"x.password": secret}).replace("refused: ", "").strip(
        "<> "
    )


def test_a_large_page_costs_no_time() -> None:
    begun = time.monotonic()
    mask("x" * 1_000_000 + " password", {"a.token": "y" * 100_000})
    assert time.monotonic() - begun < 2


def test_cut() -> None:
    assert cut("x" * BODY_CHARACTERS) == "x" * BODY_CHARACTERS
    assert len(cut("x" * 10_000)) == BODY_CHARACTERS + 1


@pytest.mark.parametrize(
    ("jaas", "shown"),
    [
        ('x.Plain required username="u" password="p";', 'x.Plain required username="u" password="[hidden]";'),
        ('x.Y required passphrase="p" privateKey=q;', 'x.Y required passphrase="[hidden]" privateKey="[hidden]";'),
        ('x.Y required password="${file:/a:b}";', 'x.Y required password="${file:/a:b}";'),
        (
            "x.Krb5 required useKeyTab=true keyTab='/k' principal=me;",
            "x.Krb5 required useKeyTab=true keyTab='/k' principal=me;",
        ),
        ("hunter2", "[hidden]"),
        ("x.Y required password: hunter2;", "[hidden]"),
    ],
)
def test_of_a_jaas_string_only_known_options_are_shown(jaas: str, shown: str) -> None:
    assert secrets.mask("sasl.jaas.config", jaas) == shown
