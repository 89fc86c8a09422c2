"""lint, lint --fix and explain on files of other tools: Terraform, scripts, folders of all kinds."""

from __future__ import annotations

import json

import pytest

from mm2mgr.operations.lint import running_connectors
from mm2mgr.operations.workspace import Workspace
from tests.fake_connect import FakeConnect, serving

from .command import Command

SECRET = "s3cr3t"
TERRAFORM = """\
resource "kafka-connect_connector" "mirror" {
  name = "mirror"
  config = {
    "connector.class"                  = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    "source.cluster.alias"             = "mill"
    "target.cluster.alias"             = "dock"
    "source.cluster.bootstrap.servers" = "mill-1:9092"
    "target.cluster.bootstrap.servers" = "dock-1:9092"
    "key.converter"                    = "org.apache.kafka.connect.converters.ByteArrayConverter"
    "value.converter"                  = "org.apache.kafka.connect.converters.ByteArrayConverter"
    "header.converter"                 = "org.apache.kafka.connect.converters.ByteArrayConverter"
    "topics"                           = "parcels;crates"
    "source.cluster.max.poll.records"  = var.records
  }
}
"""


def test_lint_judges_what_terraform_declares(mm2mgr: Command) -> None:
    (mm2mgr.folder / "main.tf").write_text(TERRAFORM)
    report = mm2mgr("lint", "main.tf", "--kafka", "3.9", "-o", "json", code=1).json
    rules = {(finding["rule"], finding["line"]) for finding in report["findings"] if finding["severity"] != "info"}
    assert rules == {("pattern-matches-nothing", 12), ("dead-key", 13)}
    [note] = report["summary"]["notes"]
    assert note.startswith(
        "main.tf:13: kafka-connect_connector.mirror: source.cluster.max.poll.records is an expression"
    )
    assert "note: main.tf:13:" in mm2mgr("lint", "main.tf", "--kafka", "3.9", code=1).out


@pytest.mark.parametrize("name", ["main.tf", "main.tf.json", "setup.sh"])
def test_no_machine_changes_terraform_and_scripts(mm2mgr: Command, name: str) -> None:
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        **{f"{side}.cluster.alias": side for side in ("source", "target")},
        **{f"{side}.cluster.bootstrap.servers": f"{side}:9092" for side in ("source", "target")},
        "topics": "parcels;crates",
    }
    resource = {"resource": {"kafka-connect_connector": {"m": {"name": "m", "config": config}}}}
    script = f"#!/bin/sh\ncurl -X PUT http://c:8083/connectors/m/config -d '{json.dumps(config)}'\n"
    text = {"main.tf": TERRAFORM, "main.tf.json": json.dumps(resource), "setup.sh": script}[name]
    (mm2mgr.folder / name).write_text(text)
    fixed = mm2mgr("lint", name, "--fix", "--yes", code=1)
    assert "No fix that a machine can apply" in fixed.out
    assert (mm2mgr.folder / name).read_text() == text


def test_a_folder_is_linted_as_one_estate(mm2mgr: Command) -> None:
    folder = mm2mgr.folder / "mirrors"
    folder.mkdir()
    (folder / "main.tf").write_text(TERRAFORM)
    (folder / "notes.json").write_text('{"a": 1}')
    said = mm2mgr("lint", "mirrors", "--kafka", "3.9", code=1)
    assert "mirrors/main.tf:12" in said.out
    assert "note: mirrors/notes.json: holds no connector" in said.out
    (folder / "tree.yaml").write_text("owner: me\nclusters: {a: {bootstrap_servers: [a:9092]}}\n")
    assert "main.tf" not in mm2mgr("lint", "mirrors", code=1).out  # a tree is one, whatever lies beside it


def test_a_pair_of_a_file_is_explained_client_by_client(mm2mgr: Command) -> None:
    (mm2mgr.folder / "mm2.properties").write_text(
        "clusters = mill, dock\nmill.bootstrap.servers = mill-1:9092\ndock.bootstrap.servers = dock-1:9092\n"
        "mill->dock.enabled = true\nmill.consumer.max.poll.records = 7\nmill.ssl.key.password = s3cr3t-word\n"
    )
    explained = mm2mgr("explain", "mill->dock", "--from", "mm2.properties", "--on", "source", "-o", "json").json
    [connector] = explained
    assert (connector["connector"], connector["file"]) == ("mill->dock MirrorSourceConnector", "mm2.properties")
    values = {(client["client"], value["key"]): value for client in connector["clients"] for value in client["values"]}
    value = values["source consumer", "max.poll.records"]
    assert (value["value"], value["origin"]) == ("7", "file mm2.properties:5")
    assert SECRET not in json.dumps(explained)
    refused = mm2mgr("explain", "mill->dok", "--from", "mm2.properties", code=1)
    assert "did you mean mill->dock?" in refused.err


def test_values_that_terraform_hides_are_hidden(mm2mgr: Command) -> None:
    (mm2mgr.folder / "main.tf").write_text(
        TERRAFORM.replace("  }\n}", '  }\n  config_sensitive = {\n    "topics" = "s3cr3t-topic;x"\n  }\n}')
    )
    for code, command in ((1, ("lint", "main.tf")), (0, ("explain", "mirror", "--from", "main.tf"))):
        said = mm2mgr(*command, code=code)
        assert SECRET not in said.out + said.err


def test_what_runs_is_read_as_files_are(closed_port: int) -> None:
    fake = FakeConnect()
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        **{f"{side}.cluster.alias": side for side in ("source", "target")},
        **{f"{side}.cluster.bootstrap.servers": f"{side}:9092" for side in ("source", "target")},
        "mm2mgr.owner": "somebody-else",
    }
    fake.add("mirror", config)
    fake.add("sink", {"connector.class": "com.acme.Sink"})
    with serving(fake) as url:
        connectors, unread = running_connectors(Workspace(), [url, f"http://127.0.0.1:{closed_port}"], 5)
    [connector] = connectors[url]
    assert (connector.name, connector.type, connector.state) == ("mirror", "source", "RUNNING")
    assert connector.owner == url.removeprefix("http://")
    assert connector.config["mm2mgr.owner"] == "somebody-else"
    assert connector.place_of("mm2mgr.owner") == (f"{connector.owner}/mirror", 0)
    assert {entry.key for entry in connector.entries} == connector.config.keys()
    assert connector.workers
    assert connector.workers.version == "4.3.1"
    assert connector.workers.policy == "All"
    assert list(unread) == [f"http://127.0.0.1:{closed_port}"]
    assert fake.writes == []


def test_the_topics_of_a_mirror_maker_1_without_its_command_are_an_option(mm2mgr: Command) -> None:
    (mm2mgr.folder / "consumer.properties").write_text("bootstrap.servers=mill-1:9092\ngroup.id=old-mirror\n")
    (mm2mgr.folder / "producer.properties").write_text("bootstrap.servers=dock-1:9092\n")
    files = ("consumer.properties", "producer.properties")
    assert "give them with --topics" in mm2mgr("import", *files, code=1).err
    mm2mgr("import", *files, "--topics", "parcels|crates", "--owner", "me", "--out", "tree")
    assert "topics: {include: [parcels|crates]}" in (mm2mgr.folder / "tree" / "flows.yaml").read_text()
    mm2mgr("import", *files, "--topics", "parcels|crates", "--check", "tree", "--kafka", "4.3.1")
    mm2mgr("import", *files, "--topics", "parcels", "--check", "tree", "--kafka", "4.3.1", code=2)


def test_a_mirror_maker_1_goes_on_where_its_group_stands(mm2mgr: Command) -> None:
    (mm2mgr.folder / "consumer.properties").write_text(
        "bootstrap.servers=mill-1:9092\ngroup.id=old-mirror\nmax.poll.records=100\n"
    )
    (mm2mgr.folder / "producer.properties").write_text("bootstrap.servers=dock-1:9092\nacks=1\n")
    (mm2mgr.folder / "run.sh").write_text(
        "#!/bin/sh\nkafka-mirror-maker.sh --consumer.config consumer.properties \\\n"
        "  --producer.config producer.properties --num.streams 3 --whitelist 'parcels|crates'\n"
    )
    files = ("consumer.properties", "producer.properties", "run.sh")
    said = mm2mgr("import", *files, "--owner", "me", "--all", "-o", "json", "--out", "tree")
    rows = {(row["file"], row["line"], row["key"]): row["where"] for row in said.json["rows"]}
    flow = "flows.mirror"
    assert rows == {
        ("consumer.properties", 1, "bootstrap.servers"): "clusters.mill-1.bootstrap_servers",
        ("consumer.properties", 2, "group.id"): f"{flow}.start.group",
        ("consumer.properties", 3, "max.poll.records"): f"{flow}.source_consumer.max.poll.records",
        ("producer.properties", 1, "bootstrap.servers"): "clusters.dock-1.bootstrap_servers",
        ("producer.properties", 2, "acks"): f"{flow}.record_producer.acks",
        ("run.sh", 3, "whitelist"): f"{flow}.topics.include",
        ("run.sh", 3, "num.streams"): f"{flow}.tasks.max",
    }
    declared = (mm2mgr.folder / "tree" / "flows.yaml").read_text()
    assert "start: {group: old-mirror}" in declared
    assert "replication_policy: identity" in declared
    assert "adopt" not in "".join(path.read_text() for path in (mm2mgr.folder / "tree").iterdir())
    mm2mgr("-f", "tree", "render")
    assert "MirrorMaker 1, which no connector" in mm2mgr("lint", *files, code=1).err
