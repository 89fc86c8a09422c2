"""lint: the four inputs and all together, exit codes, formats, silences, secrets that stay hidden, and Connect at its worst."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.lint.rules import RULES
from mm2mgr.operations.lint import _targets
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.lint_text import FINGERPRINT
from tests.clock import jumping
from tests.fake_connect import FakeConnect, serving
from tests.kafka.conftest import closed_port
from tests.lint.made import CONVERTERS, DECIDED, MIRROR, PAIR
from tests.plan.site import Site
from tests.project.test_cold_start import HEAVY, loaded
from tests.spec.trees import BASE, FLOW, write

from .command import Command, Said, finish, start
from .test_voices import on_a_terminal

__all__ = ["closed_port"]

pytestmark = pytest.mark.usefixtures("impatient")

HEALTHY = {"connector.class": f"{MIRROR}MirrorSourceConnector", "topics": "orders", **PAIR, **CONVERTERS, **DECIDED}
DEAD = {"batch.size": "500000"}  # an error: it reaches no client
MISSPELT = {"refresh.topics.interval.second": "60"}  # a warning
SECRETS = {
    "source.cluster.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="pa55-in-jaas";',
    "target.cluster.ssl.key.password": "pa55-of-key",
    "producer.override.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----pa55-pem",
    "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="pa55-bare";',
    "ssl.keystore.passwort": "pa55-misspelt",
    "admin.override.sasl.jaas.config": "pa55-no-jaas",
    "producer.sasl.password": "pa55-of-nobody",
    "consumer.ssl.truststore.password": "pa55-unscoped",
}


def file(folder: Path, name: str, *changes: Mapping[str, str], **more: str) -> Path:
    """Write a connector as JSON, or as properties, with changes to a healthy one."""
    config = {"name": name.partition(".")[0], **HEALTHY, **more}
    for change in changes:
        config |= change
    path = folder / name
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    path.write_text(json.dumps({"name": config["name"], "config": config}) if path.suffix == ".json" else text)
    return path


def rules_of(said: Said) -> list[str]:
    return [finding["rule"] for finding in said.json["findings"]]


@pytest.fixture
def fake() -> FakeConnect:
    made = FakeConnect(cluster_id="kafka-of-b")
    made.add("healthy", HEALTHY)
    made.add("dead", {**HEALTHY, **DEAD, "source.cluster.alias": "C", "source.cluster.bootstrap.servers": "c1:9092"})
    made.add("other", {"connector.class": "org.example.S3SinkConnector", **DEAD})
    return made


@pytest.fixture
def url(fake: FakeConnect) -> Iterator[str]:
    with serving(fake) as served:
        yield served


# --- files and what is printed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.properties", "a.json"])
def test_a_healthy_file_has_no_finding_and_says_what_was_looked_at(mm2mgr: Command, name: str) -> None:
    file(mm2mgr.folder, name)
    said = mm2mgr("lint", name)
    assert said.lines[:2] == [f"No findings in 1 connector; checked {name}", ""]
    assert said.lines[2].startswith("not judged")
    assert said.err == ""


def test_a_finding_has_place_severity_rule_and_fix(mm2mgr: Command) -> None:
    path = file(mm2mgr.folder, "a.properties", DEAD)
    line = path.read_text().splitlines().index("batch.size=500000") + 1
    said = mm2mgr("lint", "a.properties", code=1)
    assert said.lines[0].startswith(f"a.properties:{line}  error  dead-key  batch.size ")
    assert said.lines[1].startswith("    fix: ")
    assert "producer.override.batch.size" in said.lines[1]
    assert said.lines[2:5] == ["", "1 error in 1 connector", ""]


def test_findings_stand_by_file_the_worst_first(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.properties", MISSPELT)
    file(
        mm2mgr.folder,
        "b.json",
        MISSPELT,
        DEAD,
        **{"source.cluster.alias": "C", "source.cluster.bootstrap.servers": "c1:1"},
    )
    said = mm2mgr("lint", "a.properties", "b.json", code=1)
    end = said.lines.index("1 error, 2 warnings in 2 connectors")
    found = [line.split()[:3] for line in said.lines[:end] if line and not line.startswith(" ")]
    assert [(place.partition(":")[0], severity) for place, severity, _ in found] == [
        ("b.json", "error"),
        ("b.json", "warning"),
        ("a.properties", "warning"),
    ]


@pytest.mark.parametrize(
    ("changes", "fail_on", "code"),
    [
        (DEAD, "error", 1),
        (DEAD, "never", 0),
        (DEAD, "warning", 1),
        (MISSPELT, "error", 0),
        (MISSPELT, "warning", 1),
        (MISSPELT, "info", 1),
        ({}, "info", 0),
    ],
)
def test_fail_on(mm2mgr: Command, changes: dict[str, str], fail_on: str, code: int) -> None:
    file(mm2mgr.folder, "a.json", changes)
    for output in ("text", "json", "sarif"):
        mm2mgr("lint", "a.json", "--fail-on", fail_on, "-o", output, code=code)


def test_json_is_the_same_findings(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", DEAD, MISSPELT)
    found = mm2mgr("lint", "a.json", "-o", "json", code=1).json
    assert found["summary"] == {
        **{"errors": 1, "warnings": 1, "infos": 0, "silenced": 0, "connectors": 1},
        "looked_at": ["a.json"],
        "unread": [],
        "notes": [],
    }
    text = mm2mgr("lint", "a.json", code=1).out
    for finding in found["findings"]:
        assert all(finding[part] in text for part in ("place", "severity", "rule", "message", "fix"))
    for fact in found["not_judged"]:
        assert all(fact[part] in text for part in ("fact", "open", "give"))
    assert [fact["connectors"] for fact in found["not_judged"] if fact["fact"] == "round trip"] == [1]


def test_sarif_has_the_same_findings_with_relative_paths(mm2mgr: Command) -> None:
    path = file(mm2mgr.folder, "a.json", DEAD, MISSPELT)
    (run,) = mm2mgr("lint", path.resolve(), "-o", "sarif", code=1).json["runs"]
    found = mm2mgr("lint", "a.json", "-o", "json", code=1).json["findings"]
    assert [result["ruleId"] for result in run["results"]] == [finding["rule"] for finding in found]
    assert any("column" in finding for finding in found), "all keys are on one line"
    for result, finding in zip(run["results"], found, strict=True):
        physical = result["locations"][0]["physicalLocation"]
        assert physical["artifactLocation"] == {"uri": "a.json"}
        column = {"startColumn": finding["column"]} if "column" in finding else {}
        assert physical["region"] == {"startLine": finding["line"], **column}
        assert len(result["partialFingerprints"][FINGERPRINT]) > 30


def test_ignored_rules_are_left_out_and_misspelt_ones_refused(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", DEAD, MISSPELT)
    assert rules_of(mm2mgr("lint", "a.json", "--ignore", "dead-key", "-o", "json")) == ["unknown-key"]
    mm2mgr("lint", "a.json", "--ignore", "dead-key", "--ignore", "unknown-key", "--fail-on", "info")
    assert "nearest: dead-key" in mm2mgr("lint", "a.json", "--ignore", "dead-keys", code=64).err


def test_silenced_findings_show_with_all_and_never_fail(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", DEAD, {"mm2mgr.silence.dead-key": "kept for the old workers"})
    said = mm2mgr("lint", "a.json", "--fail-on", "info")
    assert said.lines[0] == "No findings in 1 connector (1 silenced); checked a.json"
    shown = mm2mgr("lint", "a.json", "--fail-on", "info", "--all")
    assert shown.lines[1] == "    silenced: kept for the old workers"
    assert rules_of(mm2mgr("lint", "a.json", "-o", "json")) == []
    assert mm2mgr("lint", "a.json", "-o", "json").json["summary"]["silenced"] == 1
    (run,) = mm2mgr("lint", "a.json", "--all", "-o", "sarif").json["runs"]
    suppressed = [{"kind": "inSource", "justification": "kept for the old workers"}]
    assert [result["suppressions"] for result in run["results"]] == [suppressed]
    assert mm2mgr("lint", "a.json", "-o", "sarif").json["runs"][0]["results"] == []


def test_a_comment_silences_the_line_below(mm2mgr: Command) -> None:
    path = file(mm2mgr.folder, "a.properties", DEAD)
    path.write_text(path.read_text().replace("batch.size", "# mm2mgr: silence dead-key known\nbatch.size"))
    assert "(1 silenced)" in mm2mgr("lint", "a.properties", "--fail-on", "info").out


def test_what_is_known_beside_the_file_is_used(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.properties", {"topics.blacklist": "x"})
    file(mm2mgr.folder, "b.properties", {"offset-syncs.topic.replication.factor": "3"})
    assert rules_of(mm2mgr("lint", "a.properties", "--kafka", "3.9", "-o", "json")) == ["key-deprecated"]
    assert rules_of(mm2mgr("lint", "a.properties", "--kafka", "4.3", "-o", "json", code=1)) == ["key-removed"]
    worker = mm2mgr.folder / "connect-distributed.properties"
    worker.write_text("bootstrap.servers=b1:9092\nconnector.client.config.override.policy=None\n")
    assert "policy-forbids" in rules_of(mm2mgr("lint", "b.properties", "--worker", worker, "-o", "json", code=1))
    assert "replication-factor" in rules_of(mm2mgr("lint", "b.properties", "--brokers", "1", "-o", "json", code=1))


def test_the_link_is_read_with_units(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", {"source.consumer.fetch.max.bytes": "52428800"}, MISSPELT)
    fetches = {"source.consumer.max.partition.fetch.bytes": "52428800", "source.consumer.request.timeout.ms": "10000"}
    file(mm2mgr.folder, "b.json", fetches)
    assert "fetch-stalls" not in rules_of(mm2mgr("lint", "b.json", "-o", "json", "--fail-on", "never"))
    long = ("--rtt", "300ms", "--bandwidth", "10Mbit/s")
    assert "fetch-stalls" in rules_of(mm2mgr("lint", "b.json", *long, "-o", "json", code=1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rtt", "80"), "'80' should be a duration with its unit, 80s or 80ms"),
        (("--bandwidth", "fast", "--rtt", "1s"), "'fast' should be a rate such as"),
        (("--bandwidth", "1Gbit/s"), "--bandwidth needs --rtt"),
        (("--brokers", "0"), "--brokers"),
        (("--kafka", "newest"), "'newest' is not a version"),
        (("--fail-on", "panic"), "--fail-on"),
        (("-o", "xml"), "'xml' is not one of"),
        (("--rules", "-o", "sarif"), "--rules has -o text"),
        (("--timeout", "0"), "--timeout"),
    ],
)
def test_wrong_usage_is_refused(mm2mgr: Command, arguments: tuple[str, ...], said: str) -> None:
    file(mm2mgr.folder, "a.json")
    assert said in " ".join(mm2mgr("lint", "a.json", *arguments, code=64).err.split())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", b"{not json", "a.json:1"),
        ("a.json", b"[" * 10_000, "a.json:1"),
        ("a.json", b'{"name": "x", "config": {"connector.class": "org.example.Sink"}}', "org.example.Sink"),
        ("a.properties", b"", "is empty"),
        ("a.properties", "a=b".encode("utf-16"), "UTF-16"),
        ("a.yaml", b"a: [", "a.yaml:"),
        ("a.bin", bytes(range(256)), "NUL"),
    ],
)
def test_what_is_no_config_is_told_with_its_place(mm2mgr: Command, name: str, text: bytes, said: str) -> None:
    (mm2mgr.folder / name).write_bytes(text)
    ended = mm2mgr("lint", name, code=1)
    assert said in ended.out + ended.err
    assert "No findings" not in ended.out


def test_a_missing_file_is_told(mm2mgr: Command) -> None:
    assert "nowhere.json" in mm2mgr("lint", "nowhere.json", code=1).err
    assert "nowhere.yaml" in mm2mgr("lint", "nowhere.yaml", code=1).err


def test_names_cannot_steer_a_terminal(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", {"batch\u001b[2J.size": "1", "linger\n\u009b31m.ms": "1"}, MISSPELT)
    printed = mm2mgr("lint", "a.json", "--fail-on", "never").out
    assert "\x1b" not in printed
    assert "\x9b" not in printed


def test_only_a_terminal_gets_colour(mm2mgr: Command) -> None:
    file(mm2mgr.folder, "a.json", DEAD)
    assert "\x1b[" in on_a_terminal(mm2mgr, "lint", "a.json")
    assert "\x1b" not in on_a_terminal(mm2mgr, "lint", "a.json", NO_COLOR="1")
    assert "\x1b" not in finish(start(mm2mgr.folder, "lint", "a.json")).out


def test_dedicated_files_are_read(mm2mgr: Command) -> None:
    lines = ["clusters = A, B", "A.bootstrap.servers = a1:9092", "B.bootstrap.servers = b1:9092"]
    lines += ["A->B.enabled = true", "A->B.topics = orders", "A->B.producer.batch.size = 500000"]
    (mm2mgr.folder / "mm2.properties").write_text("\n".join(lines) + "\n")
    found = mm2mgr("lint", "mm2.properties", "-o", "json", code=1).json
    assert [(each["rule"], each["place"]) for each in found["findings"] if each["severity"] == "error"] == [
        ("misdirected-key", "mm2.properties:6")
    ]
    assert found["summary"]["connectors"] >= 3


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_without_inputs_the_tree_is_looked_at(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW)
    assert mm2mgr("lint").lines[0] == "No findings in 3 connectors; checked clusters"
    write(mm2mgr.tree, x=BASE + FLOW + "    record_producer: {acks: 1}\n")
    found = mm2mgr("lint", "-o", "json", code=1).json["findings"]
    assert [(each["rule"], each["place"]) for each in found] == [("acks-weak", "clusters/x.yaml:12")]


def test_links_and_limits_of_a_tree_are_judged(mm2mgr: Command) -> None:
    links = "links: [{between: [a, c], rtt: 9ms}, {between: [a, b], rtt: 9ms, bandwidth: 8Mbit/s, catch_up: {limit: 1MB/s}}]\n"
    more = "  c: {bootstrap_servers: ['c1:9092']}\n"
    write(mm2mgr.tree, x=BASE.replace("connect:", f"{more}connect:") + links + FLOW)
    found = mm2mgr("lint", "-o", "json", "--fail-on", "never").json["findings"]
    assert {"link-unused", "limit-above-link"} <= {each["rule"] for each in found}


@pytest.mark.parametrize("name", ["clusters", "clusters/x.yaml"])
def test_a_folder_and_a_file_of_a_tree_are_a_tree(mm2mgr: Command, name: str) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "    record_producer: {acks: 1}\n")
    file(
        mm2mgr.folder,
        "a.json",
        MISSPELT,
        **{"source.cluster.alias": "a", "source.cluster.bootstrap.servers": "a1:9092"},
    )
    found = mm2mgr("-f", "nowhere", "lint", name, "a.json", "-o", "json", code=1).json
    assert {each["rule"] for each in found["findings"]} >= {"acks-weak", "unknown-key"}
    assert found["summary"]["connectors"] == 4
    assert found["summary"]["looked_at"] == [name, "a.json"]


def test_a_flow_and_a_comment_silence_with_a_reason(mm2mgr: Command) -> None:
    weak = "    record_producer: {acks: 1}\n"
    write(mm2mgr.tree, x=BASE + FLOW + weak + "    silence: {acks-weak: metrics may be lost}\n")
    assert "silenced: metrics may be lost" in mm2mgr("lint", "--all").out
    write(mm2mgr.tree, x=BASE + FLOW + weak.rstrip() + "  # mm2mgr: silence acks-weak only metrics\n")
    assert "silenced: only metrics" in mm2mgr("lint", "--all").out


def test_what_the_tree_does_not_say_can_be_given(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE.replace("kafka: b}", 'kafka: b, version: "3.9"}') + FLOW)
    mm2mgr("lint", "--fail-on", "warning")
    assert "replication-factor" in rules_of(mm2mgr("lint", "--brokers", "1", "-o", "json", code=1))


@pytest.mark.parametrize("output", ["text", "json", "sarif"])
def test_a_tree_that_cannot_be_compiled_is_findings_and_the_rest_is_looked_at(mm2mgr: Command, output: str) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "    nonsense: 1\n")
    file(mm2mgr.folder, "a.json", DEAD)
    said = mm2mgr("lint", "clusters", "a.json", "-o", output, code=1)
    assert "invalid-declaration" in said.out
    assert "nonsense" in said.out
    assert "dead-key" in said.out
    assert said.err == ""
    mm2mgr("lint", "clusters", "--fail-on", "never", "-o", output)


def test_the_shipped_estate_has_no_finding(mm2mgr: Command) -> None:
    estate = Path(__file__).parents[2] / "clusters"
    said = mm2mgr("lint", estate, "--fail-on", "info")
    assert said.lines[0] == f"No findings in 45 connectors; checked {estate}"


def test_no_tree_and_no_input_is_told(mm2mgr: Command) -> None:
    assert "hint: name the tree with --clusters" in mm2mgr("lint", code=1).err


# --- Connect ----------------------------------------------------------------------------------------------------------


def test_everything_on_a_connect_cluster_is_looked_at_and_nothing_written(
    fake: FakeConnect, url: str, mm2mgr: Command
) -> None:
    said = mm2mgr("lint", "--connect", url, "-o", "json", code=1)
    (finding,) = [each for each in said.json["findings"] if each["rule"] == "dead-key"]
    assert finding["connector"] == "dead"
    assert finding["place"] == f"{url.removeprefix('http://')}/dead/batch.size"
    assert said.json["summary"]["connectors"] == 2
    assert fake.writes == []
    [line] = [line for line in mm2mgr("lint", "--connect", url, code=1).lines if "dead-key" in line]
    assert line.split()[:3] == [f"{url.removeprefix('http://')}/dead/batch.size", "error", "dead-key"]


def test_brokers_that_only_the_workers_can_log_in_to_are_named_as_not_judged(mm2mgr: Command, closed_port: int) -> None:
    made, login = FakeConnect(), {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": "${file:/b:jaas}"}
    config = {**HEALTHY, **{f"target.cluster.{key}": value for key, value in login.items()}}
    config["source.cluster.bootstrap.servers"] = f"localhost:{closed_port}"
    made.add("c", {key: value for key, value in config.items() if not key.startswith("producer.")})
    reasons = []
    with serving(made) as url:
        for more in ((), ("--no-ask-brokers",)):
            open_ = mm2mgr("lint", "--connect", url, "-o", "json", "--fail-on", "never", *more).json["not_judged"]
            reasons += [fact["reasons"] for fact in open_ if fact["fact"] == "cluster ids"]
    (source, target), none = reasons
    assert source.startswith(f"A: no broker of localhost:{closed_port} answered")
    assert (target, none) == ("B: sasl.jaas.config is a placeholder of the workers", [])


def test_a_live_connector_is_found_by_code_scanning(url: str, mm2mgr: Command) -> None:
    (run,) = mm2mgr("lint", "--connect", url, "-o", "sarif", code=1).json["runs"]
    (result,) = [each for each in run["results"] if each["ruleId"] == "dead-key"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "connectors/dead"}
    assert result["locations"][0]["logicalLocations"][0]["name"] == "batch.size"


def test_a_name_is_a_connect_cluster_of_the_tree_with_its_credentials(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeConnect(basic=("ann", "pa55"))
    fake.add("dead", {**HEALTHY, **DEAD})
    monkeypatch.setenv("PASSWORD_OF_W", "pa55")
    with serving(fake) as url:
        auth = "auth: {basic: {username: ann, password: '${env:PASSWORD_OF_W}'}}"
        write(mm2mgr.tree, x=BASE.replace('"http://localhost:8083"', f"'{url}', {auth}") + FLOW)
        assert "w/dead/batch.size" in mm2mgr("lint", "--connect", "w", code=1).out
        assert "pa55" not in mm2mgr("lint", "--connect", url, code=1).err
        monkeypatch.setenv("MM2MGR_CONNECT_USER", "ann")
        assert "$MM2MGR_CONNECT_PASSWORD" in mm2mgr("lint", "--connect", url, code=1).err
        monkeypatch.setenv("MM2MGR_CONNECT_PASSWORD", "pa55")
        assert "/dead/batch.size" in mm2mgr("lint", "--connect", url, code=1).out
    said = mm2mgr("lint", "--connect", "x", code=1)
    assert said.err.splitlines() == [
        "error: the tree has no Connect cluster 'x'",
        "hint: there are: w; or give a URL: http://…",
    ]


def test_credentials_in_a_url_are_refused_and_not_repeated(mm2mgr: Command) -> None:
    said = mm2mgr("lint", "--connect", "http://ann:pa55-in-url@localhost:1", code=64)
    assert "write the user and password under $MM2MGR_CONNECT_USER and $MM2MGR_CONNECT_PASSWORD" in said.err
    assert "pa55-in-url" not in said.err


def test_tree_files_and_connect_clusters_are_one_estate(site: Site, mm2mgr: Command) -> None:
    site.east.add("dead", {**HEALTHY, **DEAD})
    site.west.add("lost", {**HEALTHY, **MISSPELT})
    site.declare()
    file(mm2mgr.folder, "c.json", {"linger.ms": "5"})
    urls = [f"--connect={url}" for url in site.urls.values()]
    found = mm2mgr("lint", "clusters", "c.json", *urls, "--connect=east", "-o", "json", code=1).json
    assert found["summary"]["connectors"] == 7 + 1 + 1 + 1
    assert {"dead-key", "unknown-key"} <= {each["rule"] for each in found["findings"]}


def test_what_a_tree_or_a_file_declares_and_what_runs_of_it_are_one_connector(site: Site, mm2mgr: Command) -> None:
    site.converge()
    urls = [f"--connect={url}" for url in site.urls.values()]
    assert mm2mgr("lint", "clusters", *urls, "--fail-on", "info").lines[0].startswith("No findings in 7 connectors")
    config = dict(site.east.connectors["mm2.a.east.source.orders"].config)
    (mm2mgr.folder / "c.json").write_text(json.dumps({"name": config["name"], "config": config}))
    said = mm2mgr("lint", "c.json", urls[0], "--fail-on", "info")
    assert said.lines[0].startswith("No findings in 4 connectors")


def test_what_runs_with_another_config_than_declared_is_judged_too(site: Site, mm2mgr: Command) -> None:
    site.converge()
    site.east.connectors["mm2.a.east.source.orders"].config["linger.ms"] = "50"
    found = mm2mgr("lint", "clusters", "--connect=east", "-o", "json", code=1).json
    assert [(each["rule"], each["place"]) for each in found["findings"]] == [
        ("dead-key", "east/mm2.a.east.source.orders/linger.ms")
    ]


def test_a_declared_connector_is_judged_by_the_workers_that_it_runs_on(site: Site, mm2mgr: Command) -> None:
    site.converge()
    site.east.policy = "None"
    assert "policy-forbids" in rules_of(mm2mgr("lint", "clusters", "--connect=east", "-o", "json", code=1))


def test_one_connector_on_two_connect_clusters_still_mirrors_twice(site: Site, mm2mgr: Command) -> None:
    site.converge()
    name = "mm2.a.east.source.orders"
    site.west.add(name, site.east.connectors[name].config)
    found = mm2mgr("lint", "clusters", "--connect=east", "--connect=west", "-o", "json", code=1).json
    assert "overlap" in {each["rule"] for each in found["findings"]}


def test_a_loop_through_a_tree_and_a_live_connector_is_found(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW + "    replication_policy: identity\n")
    back = {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy", "topics": "t"}
    back |= {"source.cluster.alias": "b", "source.cluster.bootstrap.servers": "b1:9092"}
    back |= {"target.cluster.alias": "a", "target.cluster.bootstrap.servers": "a1:9092"}
    fake = FakeConnect()
    fake.add("back", {**HEALTHY, **back, "producer.override.bootstrap.servers": "a1:9092"})
    with serving(fake) as url:
        alone = rules_of(mm2mgr("lint", "--connect", url, "-o", "json", "--fail-on", "never"))
        together = rules_of(mm2mgr("lint", "clusters", "--connect", url, "-o", "json", code=1))
    assert "identity-loop" not in alone
    assert "identity-loop" in together


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"not json"),
        (200, b'{"dead": 7}'),
        (200, b'{"dead": {"info": {"config": ["x"]}}}'),
        (200, b"[]"),
        (200, "<html>Sign in</html>"),
        (500, "boom"),
        (401, "no"),
    ],
)
def test_a_connect_that_answers_nonsense_is_an_error(
    fake: FakeConnect, url: str, mm2mgr: Command, status: int, body: Any
) -> None:
    fake.fail_next("GET", "/connectors", status, body, times=1000)
    said = mm2mgr("lint", "--connect", url, "--timeout", "1", code=1)
    assert said.err.startswith("error: ")
    assert url.removeprefix("http://") in said.err
    assert said.out == ""


def test_a_slow_connect_ends_at_the_deadline(fake: FakeConnect, url: str, mm2mgr: Command) -> None:
    fake.delay_next("GET", "/connectors", 60.0, times=1000)
    with jumping() as clock:
        began = clock.seconds
        said = mm2mgr("lint", "--connect", url, "--timeout", "0.3", code=1)
        assert clock.seconds - began < 30
    assert said.err.startswith("error: ")


def test_the_others_are_looked_at_when_one_connect_is_down(url: str, mm2mgr: Command, closed_port: int) -> None:
    dead = f"http://127.0.0.1:{closed_port}"
    said = mm2mgr("lint", "--connect", dead, "--connect", url, "--fail-on", "never", code=1)
    assert said.err.startswith("error: ")
    assert str(closed_port) in said.err
    assert "/dead/batch.size" in said.out
    found = mm2mgr("lint", "--connect", dead, "--connect", url, "-o", "json", code=1).json["summary"]
    assert len(found["unread"]) == 1
    assert found["looked_at"] == [url]
    (run,) = mm2mgr("lint", "--connect", dead, "--connect", url, "-o", "sarif", code=1).json["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    alone = mm2mgr("lint", "--connect", dead, code=1)
    assert alone.out == ""
    assert str(closed_port) in alone.err


# --- rules, secrets, cold start ---------------------------------------------------------------------------------------


def test_the_rules_are_listed(mm2mgr: Command) -> None:
    listed = mm2mgr("lint", "--rules", "-o", "json").json
    assert [rule["rule"] for rule in listed] == [rule.id for rule in RULES]
    assert all(rule["severity"] and rule["title"] and rule["story"] for rule in listed)
    text = mm2mgr("lint", "--rules").lines
    assert len(text) == 1 + len(RULES)
    assert all(
        f"{rule['rule']} " in line and rule["title"] in line for rule, line in zip(listed, text[1:], strict=True)
    )


@pytest.mark.parametrize("output", ["text", "json", "sarif"])
def test_no_secret_of_any_input_is_printed(mm2mgr: Command, output: str) -> None:
    file(mm2mgr.folder, "a.properties", SECRETS)
    file(mm2mgr.folder, "b.json", SECRETS)
    dedicated = ["clusters=A,B", "A.bootstrap.servers=a:1", "B.bootstrap.servers=b:1", "A->B.enabled=true"]
    dedicated += [f"{prefix}{key}={value}" for prefix in ("", "A.", "A->B.") for key, value in SECRETS.items()]
    (mm2mgr.folder / "mm2.properties").write_text("\n".join(dedicated) + "\n")
    jaas = "security: {protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: 'pa55-in-tree'}"
    write(mm2mgr.tree, x=BASE.replace("[a1:9092]", f"[a1:9092], {jaas}") + FLOW)
    worker = mm2mgr.folder / "worker.properties"
    worker.write_text("bootstrap.servers=b1:9092\nproducer.ssl.keystore.password=pa55-of-worker\n")
    fake = FakeConnect()
    fake.add("secretive", {**HEALTHY, **SECRETS})
    with serving(fake) as url:
        said = mm2mgr(
            *("lint", "a.properties", "b.json", "mm2.properties", "clusters", "--connect", url),
            *("--worker", worker, "--all", "-o", output),
            code=1,
        )
    assert "pa55" not in said.out + said.err
    assert "bare-security" in said.out  # the keys were looked at


def test_a_small_file_loads_no_client_no_model_and_no_template(tmp_path: Path) -> None:
    path = file(tmp_path, "a.properties", MISSPELT)
    modules = loaded("lint", str(path))
    assert "rich" in modules
    assert not modules & (HEAVY - {"rich"})


@pytest.mark.parametrize(
    "line", ['sasl.jass.config=org.x.Login required password="hunter2"; # c', "url=https://u:hunter2@host/x # y"]
)
@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_what_looks_like_a_secret_is_hidden_under_any_key(
    mm2mgr: Command, tmp_path: Path, line: str, form: str
) -> None:
    file = tmp_path / "c.properties"
    file.write_text(f"name=x\nconnector.class=MirrorSourceConnector\n{line}\n")
    said = mm2mgr("lint", str(file), "-o", form, code=1)
    assert "comment-in-value" in said.out
    assert "hunter2" not in said.out + said.err


def test_workers_of_an_unknown_line_are_named_and_nothing_else_is_judged(mm2mgr: Command) -> None:
    cases = yaml.safe_load_all(Path(__file__).parents[1].joinpath("lint/corpus/faulty/versions.yaml").read_text())
    (case,) = [case for case in cases if case["case"] == "unknown-line-strimzi"]
    (mm2mgr.folder / "mirror.yaml").write_text(case["files"]["mirror.yaml"])
    found = mm2mgr("lint", "mirror.yaml", "-o", "json").json
    assert [finding["rule"] for finding in found["findings"]] == ["kafka-unknown"]
    assert found["not_judged"] == []


def test_an_upgrade_is_asked_for_with_the_one_line_that_the_workers_need(mm2mgr: Command) -> None:
    Path("orders.properties").write_text(
        "name=orders\nconnector.class=MirrorSourceConnector\nsource.cluster.alias=a\ntarget.cluster.alias=b\n"
        "producer.override.bootstrap.servers=b1:9092\nproducer.override.linger.ms=20\n"
    )
    asked = ("lint", "orders.properties", "--kafka", "5.0", "-o", "json", "--fail-on", "never")
    fixes = {finding["rule"]: finding["fix"] for finding in mm2mgr(*asked).json["findings"]}
    line = "connector.client.config.override.allowlist=bootstrap.servers,linger.ms"
    assert f"write {line} in the properties of the workers" in fixes["upgrade-override-policy"]
    assert "metric.names.formats=legacy,new" in fixes["upgrade-metric-names"]
    now = mm2mgr("lint", "orders.properties", "-o", "json", "--fail-on", "never").json["findings"]
    assert not [finding for finding in now if finding["rule"].startswith("upgrade-")]


def test_two_paths_of_one_gateway_are_two_connect_clusters(mm2mgr: Command) -> None:
    workspace = Workspace((mm2mgr.tree,))
    targets = _targets(workspace, ["http://gateway:8083/a", "http://gateway:8083/b", "http://gateway:8083/a"])
    assert [target.urls for target in targets.values()] == [("http://gateway:8083/a",), ("http://gateway:8083/b",)]
    assert len({target.name for target in targets.values()}) == 2
