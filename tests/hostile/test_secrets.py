"""Canaries in every field that may hold a secret × every command × hostile answers: none is printed or stored, in no encoding.

The workers, the proxy before them and the metric sources echo whatever they were sent and what they hold. Inputs aside, every
file below the test's folder is looked through: plan files, the state folder, logs, samples.
"""

from __future__ import annotations

import base64
import html
import json
import stat
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from httpx import Client

from mm2mgr.apply import execute, settle
from mm2mgr.cli import main
from mm2mgr.operations import EstateWatch, ServeOrder, Workspace
from tests.asking import answer_kafka
from tests.cli.command import Command
from tests.connect.forward_proxy import proxying
from tests.fake_connect import FakeConnect, serving
from tests.http_servers import answering
from tests.serve.estate import serving as serving_pages

NAMES = (
    *("basic", "bearer", "key_password", "jaas", "key_store", "key_line", "chain_line", "access", "access_key", "url"),
    *("prometheus", "cruise", "client", "misspelt", "underscored", "env_jaas", "pass_word", "live", "worker"),
    *("header", "api_key", "proxy"),
)
# Signs that JSON, HTML and URLs write in their own way.
CANARY = {name: f"cA{number}n4ry+/&<{name}>%{number * 7919:x}" for number, name in enumerate(NAMES)}
for line in ("key_line", "chain_line"):  # of a PEM: base64 it is already
    CANARY[line] = base64.b64encode(CANARY[line].encode() * 2).decode()[:64].replace("=", "A")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(password: str) -> str:
    return f'{MODULE} required username="mirror" password="{password}";'


def pem(line: str) -> str:
    return f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"


def forms(secret: str) -> set[str]:
    """Return what a secret may look like; of base64 the middle, which is the same whatever stands before and after it."""
    found = {secret, json.dumps(secret)[1:-1], html.escape(secret), quote(secret, safe=""), quote_plus(secret)}
    for shift in range(3):
        inner = base64.b64encode(b"x" * shift + secret.encode()).decode()[4:]
        found |= {
            inner[: len(inner) // 4 * 4 - 4],
            inner[: len(inner) // 4 * 4 - 4].replace("+", "-").replace("/", "_"),
        }
    return found


def leaks(text: str) -> list[str]:
    return [name for name, secret in CANARY.items() if any(form in text for form in forms(secret))]


def tree(urls: Mapping[str, str], port: int) -> dict[str, Any]:
    """Return a tree with a canary wherever a secret may stand; what is `${env:…}` is resolved on this machine."""
    key = pem(CANARY["key_line"])
    chain = f"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n{pem(CANARY['chain_line'])}"
    secure = {
        "protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(CANARY["jaas"]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": chain,
        "ssl.key.password": CANARY["key_store"],
    }
    access = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(CANARY["access"])}
    of_env = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("${env:CANARY_JAAS}")}
    metrics = {
        "prometheus": {"url": "http://127.0.0.1:1", "auth": {"bearer": CANARY["prometheus"].replace("<", "")}},
        "cruise_control": {
            "url": "http://127.0.0.1:1",
            "auth": {"basic": {"username": "u", "password": CANARY["cruise"]}},
            "tls": {"certificate": "c.pem", "key": "k.pem", "key_password": CANARY["access_key"]},
        },
    }
    basic = {"username": "app", "password": "${env:CANARY_BASIC}"}
    return {
        "owner": "team",
        "clusters": {
            "a": {
                "bootstrap_servers": [f"127.0.0.1:{port}"],
                "cluster_id": "a",
                "security": secure,
                "metrics": metrics,
            },
            "east": {
                "bootstrap_servers": [f"127.0.0.2:{port}"],
                "cluster_id": "east",
                "security": secure,
                "access": {"security": access},
            },
            "west": {"bootstrap_servers": [f"127.0.0.3:{port}"], "cluster_id": "west", "security": of_env},
        },
        "connect": {
            "east": {
                "url": urls["east"],
                "kafka": "east",
                "auth": {"basic": basic},
                "headers": {"X-Plain": "${env:CANARY_HEADER}", "X-Api-Key": CANARY["api_key"]},
                "proxy": {"url": urls["proxy"], "basic": {"username": "p", "password": "${env:CANARY_PROXY}"}},
            },
            "west": {
                "url": urls["west"],
                "kafka": "west",
                "auth": {"bearer": CANARY["bearer"]},
                "tls": {"key_password": CANARY["key_password"]},
            },
        },
        "flows": {
            "orders": {
                "sources": ["a"],
                "targets": ["east", "west"],
                "topics": {"include": ["orders"]},
                "record_producer": {"ssl.truststore.password": CANARY["client"]},
                "source_consumer": {"ssl.key.pasword": CANARY["misspelt"], "sasl_password": CANARY["underscored"]},
                "source_connector": {"x.registry.url": f"http://u:{CANARY['url'].replace('/', '')}@127.0.0.1/"},
                "checkpoint_connector": {"x.sasl.jaas.confg": jaas(CANARY["pass_word"])},
            }
        },
    }


CANARY["prometheus"] = CANARY["prometheus"].replace("<", "")
CANARY["url"] = CANARY["url"].replace("/", "")


class Echo(FakeConnect):
    """A Connect cluster that tells everything it was sent and everything that it holds, in the way of `mode`."""

    mode = ""

    def handle(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> Any:
        answer, late_seconds = super().handle(method, path, query, body, headers)
        if self.mode in ANSWERS and (not self.mode.startswith("write") or self.requests[-1].writes):
            status, kind = ANSWERS[self.mode]
            text = self.told(body.decode(), headers)
            if kind == "html":
                return (
                    status,
                    {"Content-Type": "text/html"},
                    f"<html><pre>{html.escape(text)}</pre></html>".encode(),
                ), 0.0
            said = json.dumps({"error_code": status, "message": text}).encode()
            return (status, {"Content-Type": "application/json"}, said if kind == "json" else text.encode()), 0.0
        if self.mode == "validation" and path.endswith("/validate"):
            found = json.loads(answer[2])
            for one in found["configs"]:
                one["value"]["errors"] = [f"Invalid: {self.told(body.decode(), headers)}"]
            return (200, answer[1], json.dumps({**found, "error_count": 9}).encode()), late_seconds
        return answer, late_seconds

    def told(self, body: str, headers: Mapping[str, str]) -> str:
        secret = ("authorization", "x-plain", "x-api-key", "proxy-authorization")
        sent = {key: value for key, value in headers.items() if key.lower() in secret}
        lines = [f"{key}: {value}" for key, value in sent.items()]
        configs = [one.config for one in self.connectors.values()]
        java = "{" + ", ".join(f"{key}={value}" for config in configs for key, value in config.items()) + "}"
        return "\n".join(
            [
                *lines,
                f"request {body}",
                json.dumps(sent),
                f"{sent}",
                f"Connector config {java}",
                json.dumps(configs),
                seen(),
            ]
        )


ANSWERS = {
    "refused": (401, "html"),
    "failed": (500, "json"),
    "page": (200, "html"),
    "text": (500, "text"),
    "write-invalid": (400, "json"),
    "write-failed": (500, "html"),
}


def seen() -> str:
    """Return what a worker may quote by itself: bare secrets, as they are and encoded."""
    known = [
        CANARY[name]
        for name in (
            "bearer",
            "jaas",
            "key_store",
            "key_line",
            "client",
            "misspelt",
            "url",
            "live",
            "basic",
            "header",
            "proxy",
        )
    ]
    texts = [text for one in known for text in (one, quote(one, safe=""), base64.b64encode(one.encode()).decode())]
    return (
        "quoted: "
        + " , ".join(texts)
        + f" password={CANARY['worker']} http://app:{CANARY['worker'].replace('/', '')}@proxy"
    )


@pytest.fixture
def hostile(
    mm2mgr: Command, closed_port: int, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> Iterator[dict[str, Echo]]:
    """Two Connect clusters that echo, and a tree full of canaries."""
    for name in ("basic", "env_jaas", "header", "proxy"):
        monkeypatch.setenv(f"CANARY_{name.removeprefix('env_').upper()}", CANARY[name])
    fakes = {name: Echo(cluster_id=name) for name in ("east", "west")}
    for fake in fakes.values():  # of nobody: what runs there beside ours
        fake.add("stranger", {"connector.class": "MirrorHeartbeatConnector", "x.password": CANARY["live"]})
    with serving(fakes["east"]) as east, serving(fakes["west"]) as west, proxying(("p", CANARY["proxy"])) as proxy:
        mm2mgr.tree.mkdir()
        declared = json.dumps(tree({"east": east, "west": west, "proxy": proxy.url}, closed_port), indent=1)
        (mm2mgr.tree / "tree.yaml").write_text(declared, encoding="utf-8")
        for name in ("_RACE_SECONDS", "_LONGEST_RACE_SECONDS"):
            monkeypatch.setattr(execute, name, 0.0)
        monkeypatch.setattr(execute, "_READ_BACK_SECONDS", 0.3)
        monkeypatch.setattr(settle, "HOLD_SECONDS", 0.2)
        answer_kafka(monkeypatch, topics=_no_topics)
        yield fakes


def _no_topics(*_: object) -> Any:
    from tests.asking import topics_with

    return topics_with({"orders": 1})


def said(mm2mgr: Command, *arguments: str) -> str:
    """Run a command, however it ends, and return all that it printed and all that it stored."""
    inputs = {path: path.stat().st_mtime_ns for path in mm2mgr.folder.parent.rglob("*") if path.is_file()}
    mm2mgr.monkeypatch.setattr(sys, "argv", ["mm2mgr", *arguments])
    mm2mgr.capsys.readouterr()
    with pytest.raises(SystemExit):
        main()
    out, err = mm2mgr.capsys.readouterr()
    assert "Traceback" not in err
    written = [
        path
        for path in mm2mgr.folder.parent.rglob("*")
        if path.is_file() and inputs.get(path) != path.stat().st_mtime_ns
    ]
    return out + err + "".join(path.read_bytes().decode("latin-1") for path in written)


READING = (
    ("plan",),
    ("plan", "--full", "--out", "plan.json"),
    ("plan", "-o", "json"),
    ("status",),
    ("status", "-o", "json"),
    ("describe", "orders:a->east"),
    ("describe", "orders:a->west", "-o", "json"),
    ("who", "orders"),
    ("who", "a.orders", "-o", "json"),
    ("topics", "orders", "--all"),
    ("check", "--timeout", "1"),
    ("lint", "--connect", "east", "--connect", "west", "-o", "sarif", "--all"),
    ("lint", "--connect", "west", "--timeout", "2"),
)


@pytest.mark.parametrize("mode", ["refused", "failed", "page", "text", "validation", "running"])
def test_what_a_worker_echoes_is_not_told_further(mm2mgr: Command, hostile: dict[str, Echo], mode: str) -> None:
    if mode == "running":
        said(mm2mgr, "apply", "--yes", "--wait", "0")
        for fake in hostile.values():
            assert len(fake.connectors) > 1, "the tree is applied"
            for one in fake.connectors.values():
                one.trace = f"org.apache.X: {fake.told('', {'Authorization': 'Bearer ' + CANARY['bearer']})}\nCaused by: {seen()}"
                one.failed_tasks, one.shown_state = {0: one.trace}, "FAILED"
    for fake in hostile.values():
        fake.mode = mode
    told = {" ".join(command): said(mm2mgr, *command) for command in READING}
    assert {command: found for command, text in told.items() if (found := leaks(text))} == {}
    assert "[hidden]" in "".join(told.values()), "the echo came through, without the secrets"


FURTHER = (
    ("drift",),
    ("history", "-o", "json"),
    ("lag", "-o", "json"),
    ("offsets", "show", "orders"),
    ("watch", "--once", "--dry-run", "--events", "watch.jsonl"),
    ("reconcile", "--once", "--report-only", "--events", "rounds.jsonl"),
    ("restart", "orders", "--yes"),
    ("stop", "orders", "--yes", "-o", "json"),
    ("topics", "-o", "json"),
)
PAGES = ("/", "/flows", "/flow?id=orders%3Aa-%3Eeast", "/findings", "/changes", "/plan", "/losses", "/metrics")
APIS = ("/api/status", "/api/flow?id=orders%3Aa-%3Ewest", "/api/findings", "/api/plan", "/api/history")


@pytest.mark.parametrize("mode", ["failed", "running"])
def test_no_page_and_no_other_command_tells_what_a_worker_says(
    mm2mgr: Command, hostile: dict[str, Echo], mode: str
) -> None:
    """`serve` as its own look and survey see it; the event logs are among the files that are looked through."""
    said(mm2mgr, "apply", "--yes", "--wait", "0")
    for fake in hostile.values():
        for one in fake.connectors.values():
            one.trace = f"org.apache.X: {fake.told('', {})}\nCaused by: {seen()}"
            one.failed_tasks, one.shown_state = {0: one.trace}, "FAILED"
        fake.mode = mode
    told = {" ".join(command): said(mm2mgr, *command) for command in FURTHER}
    watch = EstateWatch(Workspace((mm2mgr.tree,)), ServeOrder())
    watch.look_once()
    watch.survey_once()
    with serving_pages(lambda: watch.view) as url, Client(base_url=url, trust_env=False) as client:
        for path in (*PAGES, *APIS):
            answer = client.get(path)
            assert answer.status_code == 200, path
            told[path] = answer.text
    assert {place: found for place, text in told.items() if (found := leaks(text))} == {}
    assert "[hidden]" in told["/"] + told["/findings"] + told["/flow?id=orders%3Aa-%3Eeast"]


@pytest.mark.parametrize("mode", ["write-invalid", "write-failed"])
def test_what_a_worker_says_to_a_write_is_not_told_further(
    mm2mgr: Command, hostile: dict[str, Echo], mode: str
) -> None:
    for fake in hostile.values():
        fake.mode = mode
    text = said(mm2mgr, "apply", "--yes", "--wait", "0")
    assert leaks(text) == []
    assert "[hidden]" in text
    assert leaks(said(mm2mgr, "apply", "--yes", "--wait", "0", "-o", "json")) == []


def test_a_plan_file_is_its_owner_s_alone_and_applies(mm2mgr: Command, hostile: dict[str, Echo]) -> None:
    (mm2mgr.folder / "plan.json").write_text('{"mm2mgr-plan": 1, "older": "and readable by all"}')
    (mm2mgr.folder / "plan.json").chmod(0o644)
    said(mm2mgr, "plan", "--out", "plan.json")
    file = mm2mgr.folder / "plan.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert leaks(file.read_text()) == []
    assert leaks(said(mm2mgr, "apply", "plan.json", "--wait", "0")) == []
    assert hostile["east"].writes, "the masked plan is still the one that was reviewed"
    assert (
        hostile["east"].connectors["mm2.a.east.source.orders"].config["source.cluster.ssl.key.password"]
        == CANARY["key_store"]
    )


@pytest.mark.parametrize(
    "command",
    [
        ("render",),
        ("render", "--origins"),
        ("render", "-o", "json"),
        ("lint", "--all"),
        ("lint", "-o", "json"),
        ("lint", "-o", "sarif"),
        ("explain", "orders:a->east", "--all"),
        ("explain", "orders:a->west", "-o", "json"),
        ("explain", f"ssl.key.password={CANARY['client']}"),
        ("sample", "--duration", "0s"),
        ("sample", "--duration", "0s", "--from", "cruise-control"),
        ("size", "--dry-run"),
        ("fleet",),
    ],
    ids=" ".join,
)
def test_no_command_shows_what_stands_in_the_tree(
    mm2mgr: Command, hostile: dict[str, Echo], command: tuple[str, ...]
) -> None:
    text = said(mm2mgr, *command)
    assert leaks(text) == []


@pytest.mark.parametrize("field", ["auth", "security", "source_consumer", "tls", "metrics", "twice", "not-yaml"])
def test_a_refused_tree_is_refused_without_its_secrets(mm2mgr: Command, hostile: dict[str, Echo], field: str) -> None:
    file = mm2mgr.tree / "tree.yaml"
    declared = json.loads(file.read_text())
    wrong = {
        "no.such.key": CANARY["client"],
        "password": {"x": CANARY["basic"]},
        "sasl.jaas.config": [jaas(CANARY["jaas"])],
    }
    if field == "auth":
        declared["connect"]["west"]["auth"] |= {"basic": {"password": CANARY["basic"]}, CANARY["worker"][:5]: 1}
    elif field == "security":
        declared["clusters"]["a"]["security"] |= wrong
    elif field == "source_consumer":
        declared["flows"]["orders"]["source_consumer"] |= wrong
    elif field == "tls":
        declared["connect"]["west"]["tls"]["key_pasword"] = CANARY["key_password"]
    elif field == "metrics":
        declared["clusters"]["a"]["metrics"]["prometheus"] |= {"url": f"http://u:{CANARY['url']}@127.0.0.1"}
    text = json.dumps(declared, indent=1)
    text = text.replace('"auth": {', '"auth": {"bearer": "x",', 1) if field == "twice" else text
    text = text.replace(f'"{MODULE}', f"{MODULE}") if field == "not-yaml" else text
    file.write_text(text)
    for command in ("plan", "lint", "lint -o sarif", "status"):
        told = said(mm2mgr, *command.split())
        assert leaks(told) == []
        assert "tree.yaml" in told


def files(folder: Path) -> list[str]:
    """Write a connector, an mm2.properties, a Strimzi resource and workers' properties, all with canaries; return their names."""
    config = {
        "name": "x",
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": "a:1",
        "target.cluster.bootstrap.servers": "b:1",
        "topics": "orders",
        "source.cluster.sasl.jaas.config": jaas(CANARY["jaas"]),
        "source.cluster.sasl.jaas.confg": jaas(CANARY["pass_word"]),
        "source.ssl.key.pasword": CANARY["misspelt"],
        "ssl.truststore.password": CANARY["client"],
        "producer.override.ssl.keystore.key": pem(CANARY["key_line"]),
        "producer.override.ssl.keystore.certificate.chain": pem(CANARY["chain_line"]),
        "x.registry.url": f"http://u:{CANARY['url']}@127.0.0.1",
    }
    lines = "".join(f"{key}={json.dumps(value)[1:-1]}\n" for key, value in config.items())
    (folder / "one.json").write_text(json.dumps(config))
    (folder / "one.properties").write_text(lines + f"ssl.key.password = {CANARY['live']}  # remark\n" * 2)
    driver = f"clusters = a, b\na.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\na->b.enabled = true\na.sasl_password={CANARY['worker']}\n"
    (folder / "mm2.properties").write_text(driver + f"a.sasl.jaas.config = {jaas(CANARY['access'])}\n" * 2)
    (folder / "worker.properties").write_text(f"bootstrap.servers=b:1\nssl.key.password={CANARY['basic']}\n")
    strimzi = {"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaConnector", "metadata": {"name": "s"}}
    spec = {"class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "config": config}
    (folder / "strimzi.yaml").write_text(json.dumps({**strimzi, "spec": spec}))
    return ["one.json", "one.properties", "mm2.properties", "strimzi.yaml"]


@pytest.mark.parametrize("output", ["text", "json", "sarif"])
def test_lint_shows_no_secret_of_a_file(mm2mgr: Command, output: str) -> None:
    for file in files(mm2mgr.folder):
        text = said(mm2mgr, "lint", file, "--worker", "worker.properties", "--all", "-o", output)
        assert len(text) > 200, "it has findings"
        assert leaks(text) == [], file


def test_a_url_that_was_typed_is_shown_without_its_password(mm2mgr: Command) -> None:
    url = f"http://app:{CANARY['url']}@127.0.0.1:1"
    assert leaks(said(mm2mgr, "lint", "--connect", url, "--timeout", "1")) == []
    assert leaks(said(mm2mgr, "lint", "--fail-on", url)) == []
    assert leaks(said(mm2mgr, "status", url)) == []


def echo(request: BaseHTTPRequestHandler) -> bytes:
    """Answer as a metric source that repeats the request's headers."""
    headers = dict(request.headers)
    return f"no {headers}\n{request.headers}\n{json.dumps(headers)} {CANARY['cruise']}".encode()


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("kind", ["prometheus", "cruise-control"])
def test_what_a_metric_source_echoes_is_not_told_further(
    mm2mgr: Command, mock_cluster: Any, kind: str, status: int
) -> None:
    auth = (
        {"basic": {"username": "u", "password": CANARY["cruise"]}}
        if kind != "prometheus"
        else {"bearer": CANARY["prometheus"]}
    )
    with answering(lambda request: (status, echo(request))) as url:
        declared = {
            "owner": "team",
            "clusters": {
                "a": {
                    "bootstrap_servers": mock_cluster.bootstrap_servers,
                    "metrics": {kind.replace("-", "_"): {"url": url, "auth": auth}},
                },
                "b": {"bootstrap_servers": ["127.0.0.1:1"]},
            },
            "connect": {"b": {"url": "http://127.0.0.1:1", "kafka": "b"}},
            "flows": {"f": {"sources": ["a"], "targets": ["b"], "topics": {"include": ["orders"]}}},
        }
        mm2mgr.tree.mkdir()
        (mm2mgr.tree / "tree.yaml").write_text(json.dumps(declared))
        text = said(mm2mgr, "sample", "--duration", "0s", "--from", kind, "--cluster", "a")
    assert leaks(text) == []
    assert "[hidden]" in text or status == 200, text
