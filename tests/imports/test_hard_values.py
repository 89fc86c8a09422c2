"""Values, aliases and files that people do not expect: kept to the letter, without a secret, and reported right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mm2mgr.json_values import to_json
from mm2mgr.operations import imports
from mm2mgr.spec.files import inline_yaml
from mm2mgr.spec.places import read_yaml
from mm2mgr.truth.keys import item_problem
from tests.imports.test_imports import DEDICATED, SOURCE, imported, of_connectors


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transforms.h.value.literal", "Bearer hunter2-x"),
        ("transforms.h.value.literal", "Basic YXBwOmh1bnRlcjItYnV0LWxvbmdlcg=="),
        ("transforms.h.headers", "Authorization: Bearer hunter2-x, X-Api-Key: hunter2-y"),
    ],
)
def test_a_token_behind_its_scheme_is_no_value_of_a_tree(key: str, value: str) -> None:
    tree = of_connectors({**SOURCE, "transforms": "h", "transforms.h.type": "com.acme.Header", key: value})
    text = "".join(tree.files.values()) + json.dumps(to_json(tree.report))
    assert "hunter2" not in text
    assert "YXBwOmh1bnRlcjI" not in text
    assert "${env:AGG_" in tree.files["flows.yaml"]


@pytest.mark.parametrize("value", ["a\n", "line 1\nline 2\n", "ü\u2028\x85x", "x\x85", "\r", "yes", "1e3", "~"])
def test_text_of_several_lines_is_one_line_of_yaml_and_the_same_text(value: str) -> None:
    line = f"key: {inline_yaml(value)}  # origin\n"
    assert len(line.splitlines()) == 1
    [document] = read_yaml(Path("x.yaml"), line.encode())
    assert document.values == {"key": value}
    tree = of_connectors({**SOURCE, "transforms": "a", "transforms.a.type": "com.acme.X", "transforms.a.text": value})
    assert tree.connectors[0].config["transforms.a.text"] == value
    assert not tree.report.decisions


def test_a_shell_can_export_every_variable_and_each_cluster_has_its_own() -> None:
    text = DEDICATED.replace("A", "3rd").replace("hunter2", "hunter3") + "ssl.truststore.password = hunter2-y\n"
    tree = imported(text.replace("S3rdSL", "SASL"))
    names = [item.variable for item in tree.report.placeholders]
    assert names
    assert all(name.isidentifier() for name in names), names
    assert {"_3RD_SSL_TRUSTSTORE_PASSWORD", "B_SSL_TRUSTSTORE_PASSWORD"} <= set(names)
    assert "truststore" not in tree.files["flows.yaml"], "the clusters say it"


def test_a_pair_that_is_off_is_no_key_that_nobody_knows() -> None:
    text = "clusters = us.1, b\nus.1->b.enabled = true\nb->us.1.enabled = false\nb->us.1.topics = x\nb->us.1.emit.heartbeats.enabled = false\n"
    rows = {row.key: row for row in imported(text).report.rows}
    assert rows["b->us.1.topics"].reason == "the pair is off"


def test_a_key_that_a_line_has_twice_is_one_row_of_what_counts() -> None:
    config = json.dumps({**SOURCE, "topics": "y"}).replace('"topics"', '"topics": "x", "topics"')
    rows = imported(f'{{"name": "d", "config": {config}}}', "d.json").report.rows
    [row] = [row for row in rows if row.key == "topics"]
    assert row.where == "flows.d.topics.include"


def test_connectors_of_two_connect_clusters_may_have_one_name(tmp_path: Path) -> None:
    for name, target in (("east", "agg"), ("west", "agw")):
        (tmp_path / f"{name}.json").write_text(
            json.dumps(
                {
                    **SOURCE,
                    "name": "m",
                    "target.cluster.alias": target,
                    "target.cluster.bootstrap.servers": f"{target}:1",
                }
            )
        )
    options = imports.ImportOptions(owner="team", urls={"east": ["http://e:1"], "west": ["http://w:1"]})
    report = imports.import_sources([tmp_path], options).report
    assert not report.left_out
    assert "same-name" not in {item.rule for item in report.advice}


def test_a_blank_alias_is_no_missing_alias() -> None:
    [left] = of_connectors({**SOURCE, "source.cluster.alias": ""}).report.left_out
    assert "is blank" in left.reason


def test_an_interrupted_import_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "mm2.properties"
    source.write_text(DEDICATED)

    def interrupt(path: Path, *_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(imports.Path, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        imports.import_sources([source], imports.ImportOptions(owner="team"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == [source]


def test_names_are_written_as_the_writer_of_yaml_does() -> None:
    """A list of 100,000 topics is written without it."""
    plain = [f"a{sign}b" for sign in "._-"] + ["e1", "E5", "inf", "NaN", "x0", "null1", "yes.no", "a1e5", "Topic-7"]
    odd = ["y", "No", "ON", "null", "True", "~", "1e3", "0x1f", "a-", "a.", "-a", "a b", "a#", "", "=", "2024-01-01"]
    for text in (*plain, *odd):
        assert inline_yaml(text) == yaml.safe_dump([text], default_flow_style=True).strip()[1:-1]
    assert inline_yaml(plain) == f"[{', '.join(plain)}]"


def test_doubles_of_a_long_list_are_found_in_one_pass() -> None:
    items = [f"topic-{number}" for number in range(200_000)]
    assert item_problem(items, doubles=True) == ""
    assert item_problem([*items, "topic-7"], doubles=True) == "a list with 'topic-7' twice"


def test_the_producer_of_a_mirror_maker_1_keeps_its_login(tmp_path: Path) -> None:
    login = "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=hunter2-pem\n"
    (tmp_path / "consumer.properties").write_text("bootstrap.servers=old:9092\ngroup.id=mm1\n")
    (tmp_path / "producer.properties").write_text(f"bootstrap.servers=new:9093\n{login}")
    (tmp_path / "run.sh").write_text(
        "kafka-mirror-maker --consumer.config consumer.properties --producer.config producer.properties --whitelist a\n"
    )
    tree = imports.import_sources([tmp_path], imports.ImportOptions(owner="team")).tree
    [connector] = tree.connectors
    assert connector.config["producer.override.security.protocol"] == "SSL"
    assert connector.config["producer.override.ssl.keystore.key"] == "${env:NEW_SSL_KEYSTORE_KEY}"
    assert "hunter2" not in "".join(tree.files.values())


def test_a_connector_runs_on_the_worker_whose_service_creates_it(tmp_path: Path) -> None:
    def service(name: str, version: str, linger: int) -> str:
        ends = f'"source.cluster.alias": "src", "target.cluster.alias": "{name}", "topics": "a"'
        servers = f'"source.cluster.bootstrap.servers": "src:9092", "target.cluster.bootstrap.servers": "{name}:9092"'
        return f"""  {name}:
    image: confluentinc/cp-kafka-connect:{version}
    environment: {{CONNECT_BOOTSTRAP_SERVERS: '{name}:9092', CONNECT_PRODUCER_LINGER_MS: {linger}}}
    command:
      - bash
      - -c
      - |
        /etc/confluent/docker/run &
        curl -X PUT http://localhost:8083/connectors/to-{name}/config -d '{{
          "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
          {ends}, {servers}}}'
"""

    text = "services:\n" + service("east", "7.5.0", 33) + service("west", "7.9.0", 44)
    (tmp_path / "docker-compose.yml").write_text(text)
    tree = imports.import_sources([tmp_path / "docker-compose.yml"], imports.ImportOptions(owner="team")).tree
    assert {mirror.name: mirror.workers["producer.linger.ms"] for mirror in tree.mirrors} == {
        "to-east": "33",
        "to-west": "44",
    }
    assert "kafka: east, version: '3.5'" in tree.files["clusters.yaml"]
    assert "kafka: west, version: '3.9'" in tree.files["clusters.yaml"]
