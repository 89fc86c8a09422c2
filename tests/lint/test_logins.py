"""Where mm2mgr logs in by itself: secrets that stand in the tree, and credentials that cross the network unencrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import first_remote, is_loopback
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from mm2mgr.spec.files import load
from tests.lint import made

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'
RULES = ("secret-in-tree", "login-unencrypted")


def tree(  # one part of it at a time
    folder: Path,
    *,
    connect: str = 'url: "http://127.0.0.1:8083"',
    cluster: str = 'bootstrap_servers: ["a:9092"]',
    more: str = "",
) -> list[tuple[str, int, str]]:
    """Return rule, line and message of what the two rules say of a tree."""
    lines = [
        "owner: team",
        "clusters:",
        f"  a: {{{cluster}}}",
        '  b: {bootstrap_servers: ["b:9092"]}',
        "connect:",
        f"  w: {{kafka: b, {connect}}}",
        "flows:",
        "  f: {sources: [a], targets: [b], topics: {include: [orders]}}",
        more,
    ]
    (folder / "tree.yaml").write_text("\n".join(lines))
    return [(each.rule, each.spot.line, each.message) for each in findings(folder)]


def findings(folder: Path) -> list[Finding]:
    spec = load([folder])
    topology = expand(spec)
    found = lint(from_tree(topology, render(topology), spec))
    assert not [each for each in found if "hunter2" in each.message + each.fix]
    return [each for each in found if each.rule in RULES]


@pytest.mark.parametrize(
    ("connect", "key"),
    [
        ('url: "http://127.0.0.1:1", auth: {basic: {username: u, password: hunter2}}', "auth.basic.password"),
        ('url: "https://w", auth: {bearer: hunter2}', "auth.bearer"),
        ('url: "https://w", tls: {certificate: c, key: k, key_password: hunter2}', "tls.key_password"),
        ('url: "https://w", headers: {X-Team: a, X-Api-Key: hunter2}', "headers.X-Api-Key"),
        ('url: "https://w", headers: {authorization: hunter2}', "headers.authorization"),
        (
            'url: "https://w", proxy: {url: "http://p:1", basic: {username: u, password: hunter2}}',
            "proxy.basic.password",
        ),
    ],
)
def test_a_secret_of_a_connect_cluster_in_the_tree(tmp_path: Path, connect: str, key: str) -> None:
    message = f"everyone who can read this file sees the secret in {key} of Connect cluster 'w'"
    assert tree(tmp_path, connect=connect) == [("secret-in-tree", 6, message)]
    assert tree(tmp_path, connect=connect.replace("hunter2", "'${env:SECRET}'")) == []


@pytest.mark.parametrize("kind", ["prometheus", "cruise_control"])
def test_a_secret_of_a_metric_source_in_the_tree(tmp_path: Path, kind: str) -> None:
    cluster = f'bootstrap_servers: ["a:9092"], metrics: {{{kind}: {{url: "https://m", auth: {{bearer: hunter2}}}}}}'
    assert [(rule, line) for rule, line, _ in tree(tmp_path, cluster=cluster)] == [("secret-in-tree", 3)]
    assert tree(tmp_path, cluster=cluster.replace("hunter2", "'${file:/s:token}'")) == []


def test_a_secret_of_access_in_the_tree(tmp_path: Path) -> None:
    login = f"protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: '{JAAS.format('hunter2')}'"
    cluster = f'bootstrap_servers: ["a:9092"], access: {{security: {{{login}, ssl.key.password: "hunter2"}}}}'
    assert [
        (rule, line, message.rpartition("secret in ")[2]) for rule, line, message in tree(tmp_path, cluster=cluster)
    ] == [
        ("secret-in-tree", 3, "access.security.sasl.jaas.config of `access` of 'a'"),
        ("secret-in-tree", 3, "access.security.ssl.key.password of `access` of 'a'"),
    ]
    assert tree(tmp_path, cluster=cluster.replace("hunter2", "${env:P}")) == []


def test_what_the_defaults_say_is_told_once_at_their_line(tmp_path: Path) -> None:
    defaults = "defaults:\n  connect: {auth: {basic: {username: u, password: hunter2}}}"
    found = tree(tmp_path, connect='url: "http://w:8083"', more=defaults)
    assert [(rule, line) for rule, line, _ in found] == [("login-unencrypted", 10), ("secret-in-tree", 10)]


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        ('"http://w:8083"', True),
        ('["https://w:8083", "http://10.0.0.1:8083"]', True),
        ('"https://w:8083"', False),
        ('"http://127.0.0.1:8083"', False),
        ('"http://localhost:8083"', False),
        ('"http://[::1]:8083"', False),
    ],
)
@pytest.mark.parametrize(
    ("auth", "sends"),
    [
        ("basic: {username: u, password: '${env:P}'}", "user name and password cross"),
        ("bearer: '${env:T}'", "the token crosses"),
        ("headers: {X-Api-Key: '${env:T}'}", "the login in its headers crosses"),
    ],
)
def test_credentials_over_plain_http(tmp_path: Path, url: str, is_told: bool, auth: str, sends: str) -> None:
    found = tree(tmp_path, connect=f"url: {url}, {auth if 'headers' in auth else f'auth: {{{auth}}}'}")
    assert [(rule, line) for rule, line, _ in found] == ([("login-unencrypted", 6)] if is_told else [])
    assert not is_told or f"Connect cluster 'w': {sends} the network unencrypted to http://" in found[0][2]
    assert tree(tmp_path, connect=f"url: {url}") == []


def test_credentials_of_a_metric_source_over_plain_http(tmp_path: Path) -> None:
    cluster = 'bootstrap_servers: ["a:9092"], metrics: {prometheus: {url: "http://p:9090", auth: {bearer: "${env:T}"}}}'
    ((rule, line, message),) = tree(tmp_path, cluster=cluster)
    assert (rule, line) == ("login-unencrypted", 3)
    assert message.startswith("Prometheus of 'a': the token")
    assert tree(tmp_path, cluster=cluster.replace("http:", "https:")) == []


@pytest.mark.parametrize(
    ("protocol", "mechanism", "servers", "is_told"),
    [
        ("SASL_PLAINTEXT", "PLAIN", "x:1", True),
        ("SASL_PLAINTEXT", "OAUTHBEARER", "127.0.0.1:1,x:1", True),
        ("SASL_PLAINTEXT", "PLAIN", "127.0.0.1:1", False),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", "x:1", False),
        ("SASL_SSL", "PLAIN", "x:1", False),
    ],
)
def test_sasl_without_tls(tmp_path: Path, protocol: str, mechanism: str, servers: str, is_told: bool) -> None:
    login = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": "${file:/s:jaas}"}
    config = {f"source.cluster.{key}": value for key, value in login.items()}
    hits = made.hits("login-unencrypted", made.source({**config, "source.cluster.bootstrap.servers": servers}))
    assert [hit.key for hit in hits] == (["source.cluster.security.protocol"] if is_told else [])
    if is_told:
        assert "source.cluster.security.protocol=SASL_SSL" in hits[0].fix
    of_tree = f"security: {{protocol: {protocol}, sasl.mechanism: {mechanism}, sasl.jaas.config: '${{file:/s:jaas}}'}}"
    access = f'bootstrap_servers: ["a:9092"], access: {{bootstrap_servers: "{servers}", {of_tree}}}'
    assert [(rule, line) for rule, line, _ in tree(tmp_path, cluster=access)] == (
        [("login-unencrypted", 3)] if is_told else []
    )


def test_a_comment_silences_a_login(tmp_path: Path) -> None:
    tree(tmp_path, connect='url: "http://w:8083", auth: {bearer: "${env:T}"}')
    file = tmp_path / "tree.yaml"
    text = file.read_text().replace("  w: {", "  # mm2mgr: silence login-unencrypted the link is a VPN\n  w: {")
    file.write_text(text)
    assert [each.silenced for each in findings(tmp_path)] == ["the link is a VPN"]


def test_what_stays_on_the_machine() -> None:
    stays = ["localhost:1", "127.0.0.9:1", "[::1]:1", "http://localhost/x"]
    leaves = ["k1:9092", "10.0.0.1:1", "0.0.0.0:1", "http://127.0.0.1.example:1", "${env:SERVERS}"]
    assert [is_loopback(each) for each in (*stays, *leaves)] == [True] * 4 + [False] * 5
    assert (first_remote("127.0.0.1:1, k1:9092"), first_remote("127.0.0.1:1,"), first_remote("")) == ("k1:9092", "", "")
