"""Files that are made to break a reader: large, deep, endless, linked; each gets a clear answer in bounded time and memory."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.formats import hcl
from mm2mgr.formats.sources import read_sources

SECONDS = 20  # of CPU for 20 MB, on a machine that others use too
MEGABYTE = 1_000_000
RESOURCE = 'resource "kafka-connect_connector" "m" {\n  name = "m"\n  config = {\n'
CLASS = '    "connector.class" = "MirrorSourceConnector"\n'
DRIVEN = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"


def refused(path: Path, data: bytes | str) -> str:
    """Return the message about a file, which has to come in time."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    started = time.process_time()
    with pytest.raises(SpecError) as raised:
        read_sources([path])
    assert time.process_time() - started < SECONDS
    return raised.value.message


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("a.tf", RESOURCE + '    "a" = "b\n', 4, "never closed"),
        ("a.tf", RESOURCE + CLASS, 3, "never closed"),
        ("a.tf", RESOURCE + '    "a" = <<EOT\nx\n', 4, "EOT"),
        ("a.tf", RESOURCE + '    "a" "b"\n', 4, "= is missing"),
        ("a.tf", 'resource "a" "b" {\n  x = "\\q"\n}\n', 2, "backslash"),
        ("a.tf", 'resource "a" "b" {\n  x =\n}\n', 3, "value is missing"),
        ("a.tf", 'resource "a" "b" {\n  x = "${a\n}\n', 2, "never closed"),
        ("a.tf", "{{ if .Values.x }}\n", 1, "template"),
        ("a.tf", 'resource "a" "b" {\n' + "x {\n" * 100, 66, "nested deeper than 64"),
        ("a.tf", 'resource "a" "b" {\n  x = ' + "[" * 100, 2, "nested deeper than 64"),
        ("a.tf", 'resource "a" "b" {\n  x = ' + "f(" * 100, 2, "nested deeper than 64"),
        ("a.tf", 'resource "a" "b" {\n  x = ' + "1 + (" * 100, 2, "nested deeper than 64"),
        ("a.tf", RESOURCE + '    "a\0" = 1\n', 4, "NUL"),
        ("a.json", '{"format_version": "1.0", "values": ' + '{"a": ' * 100, 1, "nested deeper"),
        ("a.json", '{"version": 3, "modules": [{"path": ["root"], "resources": {}}], "terraform_version": "0.11"}', 1, "0.12"),
        ("a.yaml", "kind: ConfigMap\ndata:\n  mm2.properties: |\n    clusters = A, B\n    A.x = \\u12\n    A->B.enabled = true\n", 5, "hexadecimal"),
        ("a.yaml", 'kind: ConfigMap\ndata:\n  m.json: |\n    {"connector.class": "MirrorSourceConnector",\n     "topics" "a"}\n', 5, "colon"),
        ("a.yaml", 'kind: ConfigMap\ndata:\n  a: 1\n  a: 2\n', 4, "duplicate key"),
        ("a.yaml", "services:\n  a: {image: x, volumes: [./b.properties:/b]}\n", 0, "holds no connector"),
        ("a.properties", b"\xef\xbb\xbf" + DRIVEN.encode(), 0, "byte order mark"),
        ("a.properties", b"\xff\xfe" + DRIVEN.encode("utf-16-le"), 0, "UTF-16"),
        ("a.sh", "#!/bin/sh\necho hello\n", 0, "neither a here-document nor a curl"),
        ("a.tf", 'resource "aws_s3_bucket" "b" {\n  bucket = "x"\n}\n', 0, "none of its resources is a connector (aws_s3_bucket)"),
        ("a.tf", 'variable "x" {}\n', 0, "it has no resource"),
        ("a.tf", RESOURCE.replace("config = {", "config = var.x\n}\n"), 3, "is an expression"),
    ],
)  # fmt: skip
def test_the_place_of_what_is_wrong(tmp_path: Path, name: str, text: str | bytes, line: int, words: str) -> None:
    if isinstance(text, str) and "config = var.x" in text:
        text = text[: text.index("}") + 2]
    message = refused(tmp_path / name, text)
    assert words in message
    assert f"{name}:{line}:" in message if line else f"{name}: " in message


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 3_300_000,
        "/*" * 10 * MEGABYTE,
        "# \n" * 6 * MEGABYTE,
        'a "' * 6 * MEGABYTE,
        'resource "a" "b" {\nx = "' + "${" * 9 * MEGABYTE,
        'resource "a" "b" {\nx = "' + '${"' * 6 * MEGABYTE,
        'resource "a" "b" {\nx = <<A\n' + "<<A\n" * 4 * MEGABYTE,
        'resource "a" "b" {\nx = [' + '"a",' * 4 * MEGABYTE,
        'resource "a" "b" {\nx = ' + "{}{}" * 4 * MEGABYTE,
    ],
    ids=["lines", "comments", "short-comments", "quotes", "braces", "nested", "here", "list", "objects"],
)
@pytest.mark.matrix
def test_twenty_megabytes_of_hcl(tmp_path: Path, text: str) -> None:
    assert "a.tf" in refused(tmp_path / "a.tf", text[: 19 * MEGABYTE])


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("a.sh", "cat <<A\n"),
        ("a.sh", "curl -d '{'\n"),
        ("a.sh", "curl -d '{"),
        ("a.sh", "kafka-mirror-maker "),
        ("a.sh", "kafka-mirror-maker x\n"),
        ("a.sh", "->"),
        ("a.properties", "\n"),
        ("a.properties", "->x"),
        ("a.properties", "a->b.c\\\n"),
        ("a.yaml", "a: |\n  <<A\n"),
        ("a.yaml", "{{ a }}\n"),
        ("a.txt", " \n"),
    ],
)
@pytest.mark.matrix
def test_twenty_megabytes_of_text(tmp_path: Path, name: str, unit: str) -> None:
    (tmp_path / name).write_text(unit * (19 * MEGABYTE // len(unit)) + "x")
    started = time.process_time()
    with suppress(SpecError):
        read_sources([tmp_path / name])
    assert time.process_time() - started < 3 * SECONDS


@pytest.mark.parametrize("unit", ["\n", "# x\n", " \n"])
def test_many_empty_lines_are_quick(tmp_path: Path, unit: str) -> None:
    message = refused(tmp_path / "a.txt", unit * 10_000 + "x=1\n")
    assert "neither a connector's config" in message


def test_locals_that_name_each_other_end(tmp_path: Path) -> None:
    chain = "".join(f"  a{n} = [local.a{n - 1}, local.a{n - 1}]\n" for n in range(1, 40))
    text = f"locals {{\n  a0 = 1\n  x = local.y\n  y = local.x\n{chain}}}\n{RESOURCE}{CLASS}    topics = local.x\n    b = local.a39\n  }}\n}}\n"
    (tmp_path / "a.tf").write_text(text)
    started = time.process_time()
    [connector] = read_sources([tmp_path / "a.tf"]).connectors
    assert connector.config["topics"].startswith("${local.")
    assert time.process_time() - started < SECONDS


def test_a_folder_is_not_left_by_links(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (folder / "sub").mkdir(parents=True)
    (outside / "mm2.properties").write_text(DRIVEN)
    (folder / "mine.properties").write_text(DRIVEN.replace("A", "C"))
    (folder / "link.properties").symlink_to(outside / "mm2.properties")
    (folder / "loop.properties").symlink_to(folder / "loop.properties")
    (folder / "all").symlink_to(outside)
    (folder / "sub" / "back").symlink_to(folder)
    os.mkfifo(folder / "pipe.json")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.properties").write_text(DRIVEN)
    (folder / "binary.json").write_bytes(b"\x00\x01" * 100)
    sources = read_sources([folder])
    assert {connector.config["source.cluster.alias"] for connector in sources.connectors} == {"C", "B"}
    notes = {Path(note.file).name: note.message for note in sources.notes}
    assert notes.keys() == {"link.properties", "loop.properties", "all", "back", "pipe.json", "binary.json"}
    assert "link out of the folder" in notes["link.properties"]
    assert "NUL" in notes["binary.json"]


def test_a_mount_is_not_left_by_links(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.properties").write_text(DRIVEN)
    (folder / "mm2.properties").symlink_to(tmp_path / "secret.properties")
    compose = folder / "compose.yaml"
    compose.write_text("services:\n  m: {image: 'apache/kafka:4.1.0', volumes: ['./mm2.properties:/x']}\n")
    with pytest.raises(SpecError, match="outside of the folder"):
        read_sources([compose])


def test_a_folder_without_a_mirror_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    with pytest.raises(SpecError, match="holds no connector"):
        read_sources([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match="no file that could hold a config"):
        read_sources([tmp_path / "empty"])


def test_a_folder_is_bounded(tmp_path: Path) -> None:
    for number in range(2_001):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(SpecError, match="more than 2,000 files"):
        read_sources([tmp_path])


def test_an_expression_is_no_literal() -> None:
    text = 'locals {\n  a = "x" == "y" ? [1] : [2]\n  b = [for x in var.y : x]\n  c = { for k, v in var.y : k => v }\n  d = [1][0]\n'
    text += '  e = "$${file:/x:y}"\n  f = "%%{x}"\n  g = "a-${upper("b}")}-c"\n  h = -1.5e3\n  i = var.x[*].id\n}\n'
    values = hcl.locals_of(hcl.parse(text, "a.tf"))
    kinds = {name: (node.kind, node.text) for name, node in values.items()}
    assert kinds == {
        "a": ("expression", "${expression_of_line_2}"),
        "b": ("expression", "${expression_of_line_3}"),
        "c": ("expression", "${expression_of_line_4}"),
        "d": ("expression", "${expression_of_line_5}"),
        "e": ("text", "${file:/x:y}"),
        "f": ("text", "%{x}"),
        "g": ("expression", "a-${expression_of_line_8}-c"),
        "h": ("number", "-1.5e3"),
        "i": ("expression", "${var.x[*].id}"),
    }


def test_a_broken_config_in_a_folder_is_no_note(tmp_path: Path) -> None:
    (tmp_path / "mm2.properties").write_text(DRIVEN)
    (tmp_path / "other.json").write_text('{"a": ')
    assert "other.json" in str(read_sources([tmp_path]).notes[0])
    (tmp_path / "mirror.json").write_text('{"connector.class": "MirrorSourceConnector"')
    with pytest.raises(SpecError, match=r"mirror.json:1"):
        read_sources([tmp_path])
