"""Files of every syntax become the same value: connectors with their type, config, workers, and the place of each key."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.formats.mm2_properties import Line
from mm2mgr.formats.recognise import read_file

CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
DRIVEN = "clusters = A, B\nA->B.enabled = true\nA->B.topics = orders\nB.bootstrap.servers = b:9092\n"
PROPERTIES = f"name = mine\nconnector.class = {CLASS}\ntopics = orders\nA->B.enabled = true\nclusters = A, B\n"
WRAPPED = f'{{"name": "mine",\n"config": {{"connector.class": "{CLASS}",\n"topics": "orders", "name": "other"}}}}'
OPERATOR = f"""\
kind: KafkaConnector
metadata: {{name: mine}}
spec: {{class: {CLASS}, config: {{topics: orders, tasks.max: 3}}}}
"""


@pytest.mark.parametrize(
    ("file", "text", "syntax", "name"),
    [
        ("a.properties", DRIVEN, "dedicated", "A->B MirrorSourceConnector"),
        ("a.properties", PROPERTIES, "properties", "mine"),
        ("a.json", WRAPPED, "json", "mine"),
        ("a.yaml", OPERATOR, "yaml", "mine"),
    ],
)
def test_one_value_for_every_syntax(tmp_path: Path, file: str, text: str, syntax: str, name: str) -> None:
    path = tmp_path / file
    path.write_text(text)
    read = read_file(path)
    found = read.connectors[0]
    assert (read.syntax, found.name, found.type) == (syntax, name, "source")
    assert (found.config["topics"], found.lines["topics"].line) == ("orders", 3)
    assert found.form == ("dedicated" if syntax == "dedicated" else "connect")
    assert (found.workers is not None) == (syntax == "dedicated")


def test_a_line_of_the_driver_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(DRIVEN)
    lines = read_file(path).connectors[0].lines
    aliases = {key: line.aliases for key, line in lines.items() if isinstance(line, Line)}
    assert (aliases["topics"], aliases["target.cluster.bootstrap.servers"]) == (("A", "B"), ("B",))


@pytest.mark.parametrize(("file", "text", "unused"), [("a.json", WRAPPED, "name"), ("a.yaml", OPERATOR, "tasks.max")])
def test_what_the_file_says_elsewhere_is_unused(tmp_path: Path, file: str, text: str, unused: str) -> None:
    path = tmp_path / file
    path.write_text(text)
    found = read_file(path).connectors[0]
    assert [entry.key for entry in found.unused] == [unused]
    assert found.config["name"] == "mine"


@pytest.mark.parametrize("option", ["-d ", "-d", "-sd ", "-d \\\n ", "--json=", "--data-raw "])
def test_every_body_that_curl_sends_is_read(tmp_path: Path, option: str) -> None:
    path = tmp_path / "create.sh"
    bodies = [f"'{WRAPPED.replace('mine', name)}'" for name in ("first", "second")]
    path.write_text("".join(f"curl http://c:8083/connectors {option}{body}\n" for body in bodies))
    read = [found for inner in read_file(path).within for found in inner.connectors]
    more = option.count("\n")
    assert [(found.name, found.lines["topics"].line) for found in read] == [
        ("first", 3 + more),
        ("second", 6 + 2 * more),
    ]


def test_a_body_with_the_escapes_of_bash_is_read_as_bash_reads_it(tmp_path: Path) -> None:
    body = json.dumps({"connector.class": CLASS, "topics": "it's|a\\.b"}, indent=1)
    quoted = body.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{\\n", 1)
    path = tmp_path / "create.sh"
    path.write_text(f"curl -X PUT http://c:8083/connectors/mine/config -d $'{quoted}'\n")
    (read,) = (found for inner in read_file(path).within for found in inner.connectors)
    assert (read.name, read.config["topics"], read.lines["topics"].line) == ("mine", "it's|a\\.b", 3)
    echoed = subprocess.run(["bash", "-c", f"printf %s $'{quoted}'"], capture_output=True, text=True, check=True).stdout
    assert json.loads(echoed)["topics"] == read.config["topics"]


@pytest.mark.parametrize("within", ["command", "content", "environment"])
def test_a_dollar_that_compose_does_not_fill_in_is_one(tmp_path: Path, within: str) -> None:
    """Compose writes `$$` for a dollar, which is what the container gets."""
    config = json.dumps({"connector.class": CLASS, "topics": "orders$$", "ssl.key": "$${env:KEY}"})
    command = f"curl -X PUT http://c:8083/connectors/mine/config -d '{config}'"
    text = {
        "command": f"services:\n  a:\n    image: curl\n    command:\n      - sh\n      - -c\n      - |\n        {command}\n",
        "content": f"services: {{a: {{image: b}}}}\nconfigs:\n  mine.json:\n    content: |\n      {config}\n",
        "environment": f"services:\n  a:\n    image: b\n    environment:\n      MINE: |\n        {config}\n",
    }[within]
    path = tmp_path / "docker-compose.yml"
    path.write_text(text)
    (read,) = (found for inner in read_file(path).within for found in inner.connectors)
    assert (read.config["topics"], read.config["ssl.key"]) == ("orders$", "${env:KEY}")


def test_a_body_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "create.sh"
    body = WRAPPED.replace(' "other"', " '$NAME'")
    broken = f"curl http://c:8083/connectors -d '{body}'\n"
    path.write_text(f"curl http://c:8083/connectors -d '{WRAPPED}'\n{broken}")
    read = read_file(path)
    assert [len(inner.connectors) for inner in read.within] == [1]
    assert [(note.line, "variable outside of quotes" in note.message) for note in read.notes] == [(4, True)]
    path.write_text(broken)
    with pytest.raises(SpecError, match=r"create.sh:1:1: this config is no JSON"):
        read_file(path)
