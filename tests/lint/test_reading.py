"""Files of every dialect are told apart by what they hold; what cannot be read is an error with its place, quickly."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.lint.reading import Surroundings, read_files, read_worker
from mm2mgr.lint.rules import lint
from mm2mgr.lint.subject import Estate, KafkaFacts, LinkFacts, Subject, WorkerFacts

MIRROR = "org.apache.kafka.connect.mirror"
SOURCE = {"connector.class": f"{MIRROR}.MirrorSourceConnector", "source.cluster.alias": "A", "topics": "orders"}
SINK = {"connector.class": "com.example.S3SinkConnector", "topics": "orders"}


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def reading(text: str | bytes, name: str = "file.json", surroundings: Surroundings | None = None) -> Estate:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_files([path], surroundings or Surroundings())

    return reading


def only(estate: Estate) -> Subject:
    assert len(estate.subjects) == 1
    return estate.subjects[0]


# --- JSON ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (SOURCE, "file"),
        ({"name": "own", **SOURCE}, "own"),
        ({"name": "posted", "config": SOURCE}, "posted"),
        ([{"name": "listed", "config": SOURCE}], "listed"),
        ({"dumped": {"info": {"name": "dumped", "config": {"name": "dumped", **SOURCE}, "tasks": []}}}, "dumped"),
        ({"dumped": {"info": {"config": SOURCE}}, "sink": {"info": {"config": SINK}}}, "dumped"),
        ({"short": SOURCE}, "short"),
        ({"connectorName": "msk", "connectorConfiguration": SOURCE}, "msk"),
        (
            {"spec": {"class": SOURCE["connector.class"], "tasksMax": 1, "config": {}}, "metadata": {"name": "k8s"}},
            "k8s",
        ),
    ],
)
def test_wrappings(read, document: object, name: str) -> None:  # type: ignore[no-untyped-def]
    subject = only(read(json.dumps(document)))
    assert (subject.name, subject.type, subject.form) == (name, "source", "connect")
    assert subject.config["name"] == name
    assert subject.config["connector.class"] == SOURCE["connector.class"]


def test_values_become_what_connect_makes_of_them_and_keys_know_their_lines(read) -> None:  # type: ignore[no-untyped-def]
    text = """{
  "name": "n",
  "connector.class": "MirrorSource",
  "tasks.max": 10, "enabled": true,
  "offset.lag.max": 1e3,
  "topics": ["a",
     "b"],
  "groups": null,
  "topics.exclude": "x",
  "topics.exclude": "\\u0041\\\\.b"
}
"""
    estate = read(text)
    subject = only(estate)
    wanted = {"tasks.max": "10", "enabled": "true", "offset.lag.max": "1e3", "topics": "a,b", "topics.exclude": "A\\.b"}
    assert wanted.items() <= subject.config.items()
    assert "groups" not in subject.config
    assert [subject.spots[key].line for key in ("name", "enabled", "topics", "groups", "topics.exclude")] == [
        2,
        4,
        6,
        8,
        10,
    ]
    assert subject.spots["enabled"].connector == "n"
    raws = [(entry.key, entry.raw) for entry in estate.files[0].entries]
    assert ("groups", "null") in raws
    assert [key for key, _ in raws].count("topics.exclude") == 2


def test_a_state_in_the_dump_is_kept(read) -> None:  # type: ignore[no-untyped-def]
    dump = {"one": {"info": {"config": SOURCE}, "status": {"connector": {"state": "PAUSED"}}}}
    assert only(read(json.dumps(dump))).state == "PAUSED"


def test_a_silence_in_a_config(read) -> None:  # type: ignore[no-untyped-def]
    subject = only(read(json.dumps({**SOURCE, "mm2mgr.silence.pattern-dot": "one topic only"})))
    assert [(each.rule, each.reason) for each in subject.silences] == [("pattern-dot", "one topic only")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("null.json", '{"connector.class": "MirrorSource", "source.cluster.alias": "null", "topics": "null"}'),
        (
            "mirror.yaml",
            """kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  clusters: [{alias: "null", bootstrapServers: "null"}, {alias: B, bootstrapServers: "b:9092"}]
  mirrors: [{sourceCluster: "null", targetCluster: B, topicsPattern: "null", sourceConnector: {config: {}}}]
""",
        ),
        (
            "one.yaml",
            """kind: KafkaConnector
metadata: {name: "null"}
spec: {class: MirrorSource, config: {source.cluster.alias: "null", topics: "null"}}
""",
        ),
    ],
)
def test_the_text_null_is_no_null(read, name: str, text: str) -> None:  # type: ignore[no-untyped-def]
    estate = read(text, name)
    subject = only(estate)
    assert (subject.config["source.cluster.alias"], subject.config["topics"]) == ("null", "null")
    assert subject.config["name"] == subject.name
    assert "null-value" not in {finding.rule for finding in lint(estate)}


# --- properties ---------------------------------------------------------------------------------------------------------


def test_a_connectors_properties(read) -> None:  # type: ignore[no-untyped-def]
    text = "# mm2mgr: silence dead-key kept\nname=n\n\nconnector.class=MirrorCheckpointConnector\ngroups=a\n"
    estate = read(text, "n.properties")
    subject = only(estate)
    assert (subject.name, subject.type, subject.spot.line, subject.spots["groups"].line) == ("n", "checkpoint", 4, 5)
    assert (estate.files[0].kind, estate.files[0].silences[0].rule) == ("properties", "dead-key")


def test_mm2_properties(read) -> None:  # type: ignore[no-untyped-def]
    text = "clusters=A,B\nA->B.enabled=true\nA->B.topics=x\nB.exactly.once.source.support=enabled\n"
    estate = read(text, "any.name")
    names = [subject.name for subject in estate.subjects]
    assert names == [f"A->B Mirror{each}Connector" for each in ("Source", "Checkpoint", "Heartbeat")] + [
        "B->A MirrorHeartbeatConnector"
    ]
    source = estate.subjects[0]
    assert (source.form, source.pair, source.worker.policy, source.worker.exactly_once) == (
        "dedicated",
        "A->B",
        "All",
        True,
    )
    assert (source.spots["topics"].line, source.spots["topics"].key) == (3, "A->B.topics")
    assert estate.subjects[3].worker.exactly_once is False


def test_a_pair_alone_makes_it_mm2_properties(read) -> None:  # type: ignore[no-untyped-def]
    estate = read("us-west->us-east.enabled = true\n", "x.properties")
    assert (estate.files[0].kind, estate.subjects) == ("dedicated", ())


def test_latin_letters_are_read_as_java_does(read) -> None:  # type: ignore[no-untyped-def]
    subject = only(
        read("name=n\nconnector.class=MirrorHeartbeatConnector\nx=gr\xfcn\n".encode("latin-1"), "n.properties")
    )
    assert subject.config["x"] == "grün"


# --- YAML ---------------------------------------------------------------------------------------------------------------

MIRROR_MAKER = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm}
spec:
  version: 3.9.0
  connectCluster: tgt
  clusters:
  - alias: src
    bootstrapServers: s:9092
    config: {ssl.endpoint.identification.algorithm: ""}
  - alias: tgt
    bootstrapServers: t:9092
    config:
      config.storage.replication.factor: -1
      producer.max.request.size: 5000000
  mirrors:
  - sourceCluster: src
    targetCluster: tgt
    topicsPattern: "a,b"
    groupsPattern: ".*"
    sourceConnector:
      tasksMax: 3
      state: paused
      config:
        sync.topic.acls.enabled: false  # mm2mgr: silence sync-acls no ACLs here
    checkpointConnector: {}
"""


def test_the_operators_mirror_maker(read) -> None:  # type: ignore[no-untyped-def]
    estate = read(MIRROR_MAKER, "mm.yaml")
    source, checkpoint = estate.subjects
    assert (source.name, source.pair, source.state) == ("src->tgt.MirrorSourceConnector", "src->tgt", "PAUSED")
    wanted = {
        "topics": "a,b",
        "tasks.max": "3",
        "source.cluster.bootstrap.servers": "s:9092",
        "source.cluster.ssl.endpoint.identification.algorithm": "",
        "sync.topic.acls.enabled": "false",
    }
    assert wanted.items() <= source.config.items()
    assert "groups" not in source.config
    assert checkpoint.config["groups"] == ".*"
    assert not [key for key in source.config if "storage" in key or "max.request.size" in key]
    assert source.worker.version == "3.9.0"
    assert {"bootstrap.servers": "t:9092", "producer.max.request.size": "5000000"}.items() <= (
        source.worker.properties or {}
    ).items()
    assert source.worker.properties is not None
    assert source.worker.properties["header.converter"].endswith("ByteArrayConverter")
    assert source.spots["sync.topic.acls.enabled"].line == 25
    assert [(each.rule, each.spot.line) for each in estate.files[0].silences] == [("sync-acls", 25)]


def test_the_newer_form_of_the_mirror_maker(read) -> None:  # type: ignore[no-untyped-def]
    text = """\
kind: KafkaMirrorMaker2
metadata: {name: mm}
spec:
  target: {alias: tgt, bootstrapServers: "t:9092"}
  mirrors:
  - source: {alias: src, bootstrapServers: "s:9092"}
    sourceConnector: {tasksMax: 1}
"""
    subject = only(read(text, "mm.yaml"))
    assert subject.config["source.cluster.bootstrap.servers"] == "s:9092"
    assert subject.config["target.cluster.bootstrap.servers"] == "t:9092"


def test_a_connector_resource_and_its_connect_cluster(read) -> None:  # type: ignore[no-untyped-def]
    text = f"""\
kind: KafkaConnect
metadata: {{name: east}}
spec: {{bootstrapServers: "t:9092", version: 3.7.0, config: {{group.id: g}}}}
---
kind: KafkaConnector
metadata: {{name: mirror, labels: {{strimzi.io/cluster: east}}}}
spec:
  class: {MIRROR}.MirrorSourceConnector
  tasksMax: 2
  config: {{topics: a, offset.lag.max: 100}}
"""
    subject = only(read(text, "c.yml"))
    assert (subject.name, subject.get("tasks.max"), subject.get("offset.lag.max")) == ("mirror", "2", "100")
    workers = subject.worker.properties or {}
    assert (subject.worker.version, workers["bootstrap.servers"], workers["group.id"]) == ("3.7.0", "t:9092", "g")
    assert workers["config.storage.topic"] == "connect-cluster-configs"  # the operator's default
    assert subject.spots["connector.class"].line == 8


# --- surroundings -------------------------------------------------------------------------------------------------------


def test_surroundings_reach_every_subject(read) -> None:  # type: ignore[no-untyped-def]
    known = Surroundings(
        "3.9.1",
        WorkerFacts(policy="Principal", version="3.6.0"),
        LinkFacts(0.1),
        KafkaFacts(brokers=1),
        KafkaFacts(brokers=3),
    )
    subject = only(read(json.dumps(SOURCE), surroundings=known))
    assert (subject.worker.version, subject.worker.policy, subject.wire) == ("3.9.1", "Principal", LinkFacts(0.1))
    assert (subject.source_kafka.brokers, subject.target_kafka.brokers) == (1, 3)


def test_several_files_are_one_estate(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(SOURCE))
    (tmp_path / "sink.json").write_text(json.dumps(SINK))
    estate = read_files([tmp_path / f"{name}.json" for name in ("a", "b", "sink", "a")])
    assert [subject.name for subject in estate.subjects] == ["a", "b"]


def test_workers(tmp_path: Path) -> None:
    path = tmp_path / "connect-distributed.properties"
    path.write_text("bootstrap.servers=b:9092\nexactly.once.source.support=enabled\nproducer.acks=1\n")
    worker = read_worker(path)
    assert (worker.policy, worker.exactly_once) == ("All", True)  # All is Kafka's default since 3.0
    assert worker.properties is not None
    assert worker.properties["producer.acks"] == "1"
    key = "connector.client.config.override.policy"
    for written in (
        "Principal",
        "org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy",
    ):
        path.write_text(f"bootstrap.servers=b:9092\n{key}={written}\n")
        assert read_worker(path).policy == "Principal"
    assert read_worker(path).exactly_once is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters=A", "an mm2.properties"),
        ("connector.class=x", "a connector's config"),
        ("a=b", "no bootstrap.servers"),
    ],
)
def test_what_is_no_workers_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "w.properties").write_text(text)
    with pytest.raises(SpecError, match=message):
        read_worker(tmp_path / "w.properties")


# --- what cannot be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "f: is empty"),
        (b" \n\t", "f: is empty"),
        (b'{"a": }', "f:1:7: not JSON: expected a value, text in double quotes"),
        (b'{"a": 1', "f:1:8: not JSON: expected a comma, or } for the { of line 1"),
        (b'{"a": 1,\n}', "f:1:8: not JSON: a comma before }"),
        (b"{'a': 1}", "f:1:2: not JSON: single quotes: write double quotes"),
        (b'{"a" 1}', "f:1:6: not JSON: expected a colon"),
        (b'{"a": "x\ny"}', "f:1:9: not JSON: a line break or tab inside a text"),
        (b'{"a": "\\q"}', "f:1:8: not JSON: a backslash in a text"),
        (b'{"a": "x', "f:1:7: not JSON: this quote is never closed"),
        (b'{"a": 1} x', "f:1:10: not JSON: something follows"),
        (b'{"a": \xff}', "f:1:1: is not UTF-8"),
        (b"[" * 10_000, "f:1:66: nested deeper than 64"),
        (b'{"a":' * 10_000, "nested deeper than 64"),
        (b"{}", "f: holds no connector"),
        (b"[]", "f: holds no connector"),
        (b'{"x": {"connector.class": "com.example.S3SinkConnector"}}', "no MirrorMaker connector: it has com.example"),
        (b"connector.class=com.example.Sink", "no MirrorMaker connector: it has com.example.Sink"),
        (b"bootstrap.servers=b:9092\ngroup.id=c", "--worker"),
        (b"hello world", "neither a connector's config"),
        (b"name=n\nx=\\u12", "f:2:1: .*hexadecimal"),
        (b"kind: Nothing\n", "f: holds no connector"),
        (b"kind: [\n", "f:1:7: not YAML"),
        (b"---\n" + b"[" * 10_000, "f:"),
        ("clusters=A,B".encode("utf-16"), "f: is UTF-16"),
        (b"a=b\nc=\0", "f:2:1: holds a NUL byte"),
        (b"\x1f\x8b\x08\0\0\0", "NUL byte"),
        (b"\xef\xbb\xbfclusters=A", "f: starts with a byte order mark"),
        (b"owner: me\nflows: {}\n", "neither a connector's config"),
    ],
)
def test_bad_files_are_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f").write_bytes(text)
    started = time.process_time()
    with pytest.raises(SpecError, match=message.replace("{", "\\{").replace("}", "\\}")) as raised:
        read_files([Path("f")])
    assert raised.value.hint
    assert time.process_time() - started < 5


def test_a_byte_order_mark_is_fine_in_json(read) -> None:  # type: ignore[no-untyped-def]
    assert only(read(b"\xef\xbb\xbf" + json.dumps(SOURCE).encode())).name == "file"


def test_files_that_are_none_are_told_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "big.json").write_bytes(b"[" + b" " * 50_000_000 + b"]")
    (tmp_path / "tree.yaml").write_text("owner: me\nclusters: {}\n")
    with pytest.raises(SpecError) as raised:
        read_files([tmp_path, tmp_path / "missing.json", tmp_path / "big.json", tmp_path / "tree.yaml"])
    told = [problem.message for problem in raised.value.problems]
    assert len(told) == 3
    for message, part in zip(told, ["no such file", "larger than 20 MB", "mm2mgr tree"], strict=True):
        assert part in message


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"sasl.password": "s3cr3t" "x": 1}')
    with pytest.raises(SpecError) as raised:
        read_files([tmp_path / "f.json"])
    assert "s3cr3t" not in str(raised.value)
    (tmp_path / "g.json").write_text(json.dumps({**SOURCE, "producer.override.sasl.jaas.config": "s3cr3t"}))
    assert "s3cr3t" not in repr(read_files([tmp_path / "g.json"]))


def test_a_large_dump_is_read_in_time(tmp_path: Path) -> None:
    config = {**SOURCE, **{f"source.consumer.key.{number}": "value" * 3 for number in range(60)}}
    dump = {f"c{number}": {"info": {"config": config}} for number in range(500)}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    started = time.monotonic()
    assert len(read_files([tmp_path / "dump.json"]).subjects) == 500
    assert (
        time.monotonic() - started < 10
    )  # half a second on a machine that does nothing else; comparing all with all took a minute
