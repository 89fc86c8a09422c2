"""What the one mask hides, in values and in texts, and what it leaves for the reader."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr import secrets
from mm2mgr.errors import Mm2mgrError
from mm2mgr.secrets import MASK, TEXT_CHARACTERS, cut, is_secret, mask, mask_text, remember
from mm2mgr.spec import scalars
from mm2mgr.truth.keys import DATA as KEYS

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="app" password="hunter2";'
BASIC = base64.b64encode(b"app:hunter2").decode()
LINES = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj", "AgEAAoIBAQC7VJTUt9Us8cKjMzEfYyjiWA4R4"]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *LINES, "-----END PRIVATE KEY-----"])
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG\n-----END CERTIFICATE-----"


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
        "Proxy-Authorization",
        # as people misspell them
        "sasl.jaas.confg",
        "sasl.jass.config",
        "ssl.key.pasword",
        "ssl.key.passwrod",
        "ssl.keystore.passwort",
        "sasl_password",
        "saslPasword",
        "client.scret",
        "client.secert",
        "access.tokn",
        "ssl.key.pass",
    ],
)
def test_secret_looking_keys(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "key.converter",
        "topics",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "sasl.oauthbearer.token.endpoint.url",
        "offset-syncs.topic.location",
        "task.assigned.partitions",
        "bypass",
        "keyword",
        "secure",
    ],
)
def test_other_keys(key: str) -> None:
    assert not is_secret(key)


def test_no_key_of_kafka_is_taken_for_a_misspelt_one() -> None:
    names = {*scalars.SECURITY_KEYS, *re.findall(r'"([a-z][\w.-]+)"', KEYS.read_text(encoding="utf-8"))}
    assert len(names) > 300
    assert [key for key in names if is_secret(key) and not secrets._SECRET_KEY.search(key)] == []


# --- what others wrote ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"Connector config {{name=a, sasl.jaas.config={JAAS}}} contains no connector type",
        "Invalid login option hunter2 in the JAAS line",
        json.dumps({"sasl.jaas.config": JAAS}),
        f"echo: {json.dumps(JAAS)}",
        html.escape(JAAS),
    ],
)
def test_a_sent_secret_is_masked_in_every_form(text: str) -> None:
    remember({"name": "a", "sasl.jaas.config": JAAS})
    said = mask_text(text)
    assert "hunter2" not in said
    assert MASK in said


@pytest.mark.parametrize(
    "text",
    [
        'LoginModule required password="hunter2";',
        "ssl.key.password=hunter2, acks=all",
        "ssl.key.pasword=hunter2",
        "sasl_password = hunter2",
        "clientSecret='hunter2'",
        json.dumps('x password="hunter2";'),
        json.dumps({"ssl.key.password": "hunter2"}),
        json.dumps(json.dumps({"ssl.key.password": 'a"hunter2'})),
        "{'password': 'hunter2'}",
        "password: hunter2\nnext: line",
        "{&quot;password&quot;:&quot;hunter2&quot;}",
        'cut in the middle: password="hunter2',
        r'password="a\"hunter2"',
        f'{MODULE} required user_app="hunter2" any.option=hunter2;',
        "Invalid value hunter2 for configuration ssl.key.pasword: Unknown",
        "GET http://app:hunter2@worker:8083/connectors failed",
        "GET http://app:p@hunter2@worker:8083/connectors failed",
        "GET http://hunter2@worker:8083/ failed",
        r"http:\/\/app:hunter2@worker",
        "GET /x?user=app&password=hunter2",
        f"Authorization: Basic {BASIC}",
        f"proxy-authorization: Basic {BASIC}\r\nHost: worker",
        "authorization: anything hunter2 goes",
        f"headers: {{Authorization=[Basic {BASIC}], Host=[worker]}}",
        json.dumps({"headers": {"Authorization": [f"Basic {BASIC}"]}}),
        f"<tr><th>Authorization:</th><td>Basic {BASIC}</td></tr>",
        f"[('authorization', 'Basic {BASIC}'), ('host', 'worker')]",
        f"refused the token Basic {BASIC}",
        "Cookie: session=hunter2; path=/",
        "Set-Cookie: hunter2=1",
        "X-Api-Key: hunter2",
        "Bearer hunter2 was refused",
        "java -Djavax.net.ssl.keyStorePassword=hunter2 -Xmx1g",
        "tool --password=hunter2 --verbose",
        "{'password' => 'hunter2'}",
        f"Authorization: Basic {BASIC} was refused by the proxy",
        "Cookie: sid=hunter2; theme=dark and nothing more was sent",
        "token eyJhbGciOiJIUzI1NiJ9.aHVudGVyMg.hunter2 has expired",
        "login failed with user:app,password:hunter2",
        "{user:app, keystore.password:hunter2}",
        "sslKeyPassword:hunter2 is wrong",
        "DB_PASSWORD:'hunter2 x'",
        "<tr><td>x</td></tr><password>hunter2</password>",
        "&lt;password&gt;hunter2&lt;/password&gt;",
        "cut: <password>hunter2",
        'run: "curl -u \\"app:hunter2\\" http://worker"',
    ],
)
def test_what_is_secret_by_its_look_is_masked_though_it_was_never_seen(text: str) -> None:
    said = mask_text(text)
    assert "hunter2" not in said
    assert BASIC not in said
    assert "aHVudGVyMg" not in said
    assert MASK in said


@pytest.mark.parametrize(
    "text",
    [
        "the bearer token is empty or holds characters that no HTTP header can carry",
        "The request carried HTTP basic credentials. Check `auth` and `tls`; Basic authentication is on",
        "SaslAuthenticationException: Authentication failed: Invalid username or password",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
        "Connect cluster 'private-east', connector 'a': GET /connectors: HTTP 500: busy",
        "private-dc: unreachable",
        "flow orders:dc-secret->agg and orders: dc-secret -> agg-token, no more",
        "wrong password: check the login",
        'Missing required configuration "ssl.key.password"; could not resolve ${file:/etc/x:key}; true; orders',
        "ssl.key.password=${file:/etc/x y:key}",
        "write sasl.jaas.config=${file:/path/on/the/workers:jaas} and security.protocol=SASL_SSL",
        "no broker of dc1-k1:9093,dc1-k2:9093 answered within 3 s",
        "http://worker:8083/connectors?expand=info answered 404",
        "dc-password:9092 and password:8083 are hosts; password:dc1->agg is a flow",
        "ssl.key.password=${vault:kafka/password:field} and ${file:/etc/x:password} and ${env:DB_PASSWORD}",
        "password:${file:/etc/x:key}; password:true; password:null",
        "principal User:alice@EXAMPLE.COM, User:app2@EXAMPLE.COM:9092 and User:kafka/host@REALM",
        "controller.quorum.voters=1@k1:9093,2@k2:9093,3@k3:9093",
        "mm2-offset-syncs.agg.internal-0@417, orders-3:120@k1:9092, k1:9092@rack1",
        "quay.io/strimzi/kafka:0.45.0-kafka-3.9.0@sha256:0a1b2c3d4e5f and kafka:3.9.1@sha256:12345",
        "state:org.apache.kafka.Consumer@6d06d69c and x:Foo2@deadbeef",
        "2026-11-26T16:27:32.123Z, 16:27:32@host:9092, 2026-11-26 16:27@worker:8083",
        "git@github.com:team/tree.git, team:jane.doe2@example.com, mailto:jane2@example.com:25",
        "RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//, orders:dc1->agg@main",
        "flow orders:dc1->agg, a:b->c, topics orders.*:3",
        "docker run -u 1000:1000 image; curl -s http://k1:8083/ -H 'a: b'; curl -u \"$USER:$PASS\" http://worker:8083",
        "curl -u app http://worker:8083/; curl --user ${U}:${P} http://worker:8083",
        "<secretName>kafka</secretName><tokenEndpoint>http://a/b</tokenEndpoint><passwordFile>/etc/x</passwordFile>",
        "<password>${env:PASSWORD}</password><password></password><password/>",
        "<th>password</th><td>no</td>",
        CERTIFICATE,
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    remember({"a.secret.enabled": "true", "topics": "orders", "ssl.key.password": "${file:/etc/x:key}"})
    assert mask_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            f"Authorization: Basic {BASIC} was refused by the proxy; ask its owner",
            "was refused by the proxy; ask its owner",
        ),
        ("the authorization: Bearer x1 of that host is `not sent` to others", "of that host is `not sent` to others"),
        ("Cookie: sid=hunter2; theme=dark and nothing more was sent", "and nothing more was sent"),
    ],
)
def test_a_sentence_goes_on_after_a_header(text: str, shown: str) -> None:
    said = mask_text(text)
    assert said.endswith(f"{MASK} {shown}")
    assert mask_text(said) == said


@pytest.mark.parametrize("key", ["ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.kye"])
@pytest.mark.parametrize("pem", [PEM, PEM.replace("\n", " "), PEM.replace("\n", "\\n"), f"{CERTIFICATE}\n{PEM}"])
def test_a_private_key_is_masked_whole_and_line_by_line(key: str, pem: str) -> None:
    assert not [line for line in LINES if line in mask(key, pem)]
    assert not [line for line in LINES if line in mask_text(f"cannot read {pem}")]
    remember({key: pem})
    for line in LINES:
        assert mask_text(f"bad base64 at '{line}'") == f"bad base64 at '{MASK}'"


def test_of_a_certificate_chain_only_the_private_key_is_hidden() -> None:
    assert mask("ssl.keystore.certificate.chain", f"{CERTIFICATE}\n{PEM}") == f"{CERTIFICATE}\n{MASK}"
    assert mask("ssl.keystore.certificate.chain", CERTIFICATE) == CERTIFICATE


@pytest.mark.parametrize("secret", ["s3cr t/+&<ü", "a\\b\"c'd%41", "pa55"])
def test_a_secret_that_was_seen_is_masked_in_every_encoding(secret: str) -> None:
    remember({"x.password": secret})
    forms = [secret, json.dumps(secret)[1:-1], html.escape(secret), quote(secret, safe=""), quote_plus(secret)]
    forms += [base64.b64encode(secret.encode()).decode(), base64.urlsafe_b64encode(secret.encode()).decode()]
    for form in forms:
        assert mask_text(f"<i>{form}</i>") in (f"<i>{MASK}</i>", f"<i>{MASK}=</i>", f"<i>{MASK}==</i>")


def test_a_url_s_password_is_remembered_by_itself() -> None:
    remember({"schema.registry.url": "http://app:s3cr3t@registry"})
    assert mask("schema.registry.url", "http://app:s3cr3t@registry") == MASK
    assert mask_text("refused s3cr3t") == f"refused {MASK}"


def test_a_password_that_is_a_common_word_blanks_no_class_names() -> None:
    remember({"ssl.key.password": "kafka", "sasl.password": "9092"})
    assert mask_text("org.apache.kafka.common.X at k1:19092") == "org.apache.kafka.common.X at k1:19092"
    assert mask_text("option kafka, 'kafka', kafka.") == f"option {MASK}, '{MASK}', {MASK}."


def test_a_secret_that_begins_like_another_leaves_no_tail() -> None:
    remember({"a.password": "pa55", "b.password": "pa55word1!"})
    assert mask_text("it said pa55word1!") == f"it said {MASK}"


def test_masking_twice_changes_nothing() -> None:
    once = mask_text(f"{JAAS} Authorization: Basic {BASIC} http://a:b@c password='x'")
    assert mask_text(once) == once


@settings(max_examples=50, deadline=None)
@given(
    st.text(min_size=4).filter(
        lambda text: text.strip() == text and text.lower() not in {"true", "false", "none", "null", MASK}
    )
)
def test_no_value_of_a_secret_key_survives(secret: str) -> None:
    secrets.forget()
    remember({"x.password": secret})
    if not secrets.is_placeholder(secret):
        assert mask_text(f"is {secret}.") == f"is {MASK}."  # words that no secret of four letters can be


@pytest.mark.parametrize(
    "page",
    [
        "x" * 125_000 + " password",
        'password="x\\' * 12_500,
        "-----BEGIN PRIVATE KEY-----" * 5_000,
        "Authorization " * 10_000,
        "authorization<b>" * 7_500,
        "://" * 37_500,
        "Bearer " * 18_750,
        f"{MODULE} required a=b " * 3_750,
        "curl " * 25_000,
        "curl -u a:" * 12_500,
        "a:b@" * 31_250,
        "a" * 63 + (":" + "b" * 120) * 1_000,
        "<password>" * 12_500,
        "<" + "token" * 25_000,
        "&lt;pwd&gt;" * 12_500,
        "password:" * 13_750,
        "${password:" * 11_250,
    ],
    ids=lambda page: page[:20],
)
def test_a_large_page_costs_no_time(page: str) -> None:
    remember({"a.token": "y" * 100_000})
    begun = time.process_time()
    mask_text(page)
    assert time.process_time() - begun < 1


def test_a_text_is_masked_before_it_is_cut() -> None:
    assert cut("x" * TEXT_CHARACTERS) == "x" * TEXT_CHARACTERS
    assert len(cut("x" * 10_000)) == TEXT_CHARACTERS + 1
    remember({"x.password": "s3cr3t" * 20})
    assert "s3cr3t" not in cut("x" * (TEXT_CHARACTERS - 50) + "s3cr3t" * 20)


def test_no_error_shows_a_secret() -> None:
    remember({"x.password": "s3cr3t!"})
    error = Mm2mgrError("it said s3cr3t!", hint="not s3cr3t!")
    assert (error.message, error.hint, str(error)) == (f"it said {MASK}", f"not {MASK}", f"it said {MASK}")


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
    assert mask("sasl.jaas.config", jaas) == shown
