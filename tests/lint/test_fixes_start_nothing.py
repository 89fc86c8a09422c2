"""What `--fix` makes of lines that the driver does not read: a pair that mirrors stays as it is, and none starts with less than was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.operations import LintOptions
from mm2mgr.operations.fix import fix
from mm2mgr.operations.workspace import Workspace

HEAD = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"


def fixed(folder: Path, text: str, name: str = "mm2.properties", kafka: str | None = None) -> str:
    path = folder / name
    path.write_text(text)
    fixes = fix(Workspace(), [path], LintOptions(kafka=kafka))
    fixes.write()
    again = fix(Workspace(), [path], LintOptions(kafka=kafka))
    assert not again.new, "a second time changes nothing"
    return path.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "A -> B.topics = orders",
        "A-->B.replication.policy.separator = _",
        "a->B.groups = shop",
        "A=>B.topics.exclude = debug-.*",
    ],
)
def test_a_misspelt_line_of_a_pair_that_mirrors_stays(tmp_path: Path, line: str) -> None:
    text = f"{HEAD}A->B.enabled = true\n{line}\n"
    assert fixed(tmp_path, text) == text


def test_a_pair_starts_with_all_of_its_misspelt_lines(tmp_path: Path) -> None:
    lines = "A -> B.enabled = true\nA -> B.topics = orders\nA -> B.replication.policy.separator = _\n"
    assert fixed(tmp_path, HEAD + lines) == HEAD + lines.replace(" -> ", "->")


def test_a_pair_starts_with_the_topics_that_were_meant(tmp_path: Path) -> None:
    result = fixed(tmp_path, f"{HEAD}A->B.enable = true\nA->B.topic = orders\n")
    assert result == f"{HEAD}A->B.enabled = true\nA->B.topics = orders\n"


@pytest.mark.parametrize(
    ("clusters", "other"), [("dc1, dc2", "dc3->dc2"), ("eu-east, us", "eu-west->us"), ("osl, rom", "rok->osl")]
)
def test_a_cluster_that_is_not_listed_is_no_misspelt_neighbour(tmp_path: Path, clusters: str, other: str) -> None:
    names = [*clusters.split(", "), other.partition("->")[0]]
    text = f"clusters = {clusters}\n" + "".join(f"{name}.bootstrap.servers = {name}:9092\n" for name in names)
    text += f"{other}.enabled = true\n{other}.topics = x\n"
    assert fixed(tmp_path, text) == text


@pytest.mark.parametrize("kafka", ["3.7", "3.9"])
def test_an_address_of_which_kafka_reads_the_last_broker_is_left_to_people(tmp_path: Path, kafka: str) -> None:
    text = f"{HEAD.replace('a:9092', 'a:9092;a2:9092')}A->B.enabled = true\nA->B.topics = orders\n"
    assert fixed(tmp_path, text, kafka=kafka) == text
    assert "A.bootstrap.servers = a:9092,a2:9092\n" in fixed(tmp_path, text, kafka="4.3")


def test_a_fix_that_another_fault_stood_in_the_way_of_is_made(tmp_path: Path) -> None:
    """Of a login without its semicolon no copy is made; with it, in the same run."""
    text = """{
 "name": "s", "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "topics": "orders",
 "source.cluster.alias": "A", "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:9092",
 "target.cluster.bootstrap.servers": "b:9092", "producer.override.bootstrap.servers": "b:9092",
 "target.cluster.security.protocol": "SASL_SSL", "target.cluster.sasl.mechanism": "PLAIN",
 "target.cluster.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='p'"
}
"""
    assert fixed(tmp_path, text, "s.json").count("username='u' password='p';") == 2


TEMPLATES = [
    "{% if prod %}\nA->B.topics = orders\n{% else %}\nA->B.topics = payments\n{% endif %}\n",
    "{{- if .Values.prod }}\nA->B.topics = orders\n{{- else }}\nA->B.topics = payments\n{{- end }}\n",
    "<% if prod %>\nA->B.topics = orders\n<% else %>\nA->B.topics = payments\n<% end %>\n",
    "# {% for pair in pairs %}\nA->B.topics = orders\nB.producer.compresion.type = zstd\n# {% endfor %}\n",
]


@pytest.mark.parametrize("lines", TEMPLATES)
def test_a_file_whose_lines_a_template_chooses_is_left_to_people(tmp_path: Path, lines: str) -> None:
    text = f"{HEAD}A->B.enabled = true\n{lines}"
    assert fixed(tmp_path, text) == text


def test_a_misspelt_login_of_an_unlisted_cluster_is_not_given_to_all(tmp_path: Path) -> None:
    text = "clusters = A,\nA.bootstrap.servers = a:9092\nB.ssl.keystore.pasword = secret-k\nA->B.enabled = true\n"
    assert fixed(tmp_path, text) == text


def test_a_misspelt_line_of_a_pair_stays_beside_the_one_for_all_pairs(tmp_path: Path) -> None:
    text = (
        f"{HEAD}A->B.enabled = true\nA->B.topics = o.*\ntopics.exclude = internal-.*\nA->B.topics.excludes = .*-tmp\n"
    )
    assert fixed(tmp_path, text) == text


def test_a_misspelt_start_of_a_consumer_is_not_taken_out(tmp_path: Path) -> None:
    text = f"{HEAD}A->B.enabled = true\nA->B.topics = o.*\nA.consumer.auto.offset.rest = latest\n"
    assert fixed(tmp_path, text) == text


def test_a_comment_behind_a_login_that_is_repaired_stays(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p"'
    text = f"{HEAD}A->B.enabled = true\nA->B.topics = o.*\nA.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\n"
    result = fixed(tmp_path, f"{text}A.sasl.jaas.config = {jaas} # of the vault\n")
    assert result == f"{text}# of the vault\nA.sasl.jaas.config = {jaas};\n"


def test_what_stands_where_a_config_belongs_stays(tmp_path: Path) -> None:
    text = (
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\nmetadata: {name: c, labels: {strimzi.io/cluster: c}}\nspec:\n"
        "  class: org.apache.kafka.connect.mirror.MirrorCheckpointConnector\n  config:\n    - groups: shop # keep\n"
    )
    assert fixed(tmp_path, text, "c.yaml") == text


def test_where_a_file_is_read_only_none_is_written(tmp_path: Path) -> None:
    text = f"{HEAD.replace('a:9092', 'a:9092 a2:9092')}A->B.enabled = true\nA->B.topics = orders\n"
    paths = [tmp_path / "one.properties", tmp_path / "two.properties"]
    texts = [
        text,
        text.replace("A", "C").replace("B", "D").replace("a:", "c:").replace("b:", "d:").replace("a2:", "c2:"),
    ]
    for path, each in zip(paths, texts, strict=True):
        path.write_text(each)
    paths[1].chmod(0o444)
    fixes = fix(Workspace(), paths, LintOptions())
    assert len(fixes.new) == 2
    with pytest.raises(Mm2mgrError, match=r"two\.properties is read-only; nothing was written"):
        fixes.write()
    assert [path.read_text() for path in paths] == texts
    assert sorted(tmp_path.iterdir()) == paths, "no draft is left"


def test_what_is_told_as_fixed_is_what_was_done(tmp_path: Path) -> None:
    """Where the key would be read its value is harmful, so it is gone and written nowhere."""
    path = tmp_path / "mm2.properties"
    path.write_text(f"{HEAD}A->B.enabled = true\nA->B.topics = o.*\nA->B.acks = 1\n")
    fixes = fix(Workspace(), [path], LintOptions())
    [text] = fixes.new.values()
    assert b"acks" not in text
    assert [finding.fix.partition(";")[0] for finding in fixes.fixed] == ["remove A->B.acks"]


def test_a_misspelt_key_of_a_flow_is_not_taken_out_for_what_mm2mgr_writes(tmp_path: Path) -> None:
    head = "owner: t\nconnect: {c: {url: http://c:8083, kafka: B}}\nclusters:\n"
    head += "".join(f"  {name}: {{bootstrap_servers: [{name}:9092]}}\n" for name in "AB")
    text = f"{head}flows:\n  f:\n    sources: [A]\n    targets: [B]\n    topics: {{include: [orders]}}\n"
    text += "    source_connector: {offset-syncs.topic.locaton: target}  # meant\n"
    assert "{offset-syncs.topic.locaton: target}  # meant\n" in fixed(tmp_path, text, "tree.yaml")
