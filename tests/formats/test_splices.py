"""Keys of a file are changed, and every other letter of it stays."""

from __future__ import annotations

import json

import pytest
import yaml

from mm2mgr.formats import properties
from mm2mgr.formats.text_edits import NotEditable, PropertiesText, StructuredText, Value, escape
from mm2mgr.spec.places import PathKey

PROPERTIES = """\
# the orders
name = orders
topics = a,\\
   b
linger.ms=5
! tail
linger.ms=6
"""


@pytest.mark.parametrize(
    ("key", "value", "instead_of", "old", "new"),
    [
        ("name", "x y", "", "name = orders", "name = x y"),
        ("topics", "a\\.b", "", "topics = a,\\\n   b", "topics = a\\\\.b"),
        ("linger.ms", "7", "", "linger.ms=6", "linger.ms=7"),
        ("acks", "all", "", "linger.ms=6\n", "linger.ms=6\nacks = all\n"),
        ("A->B.x", "1", "name", "name = orders", "A->B.x = 1"),
        ("group", " é\u20ac", "", "linger.ms=6\n", "linger.ms=6\ngroup = \\ é\\u20ac\n"),
    ],
)
def test_properties(key: str, value: str, instead_of: str, old: str, new: str) -> None:
    text = PropertiesText(PROPERTIES)
    text.set((key,), value, (instead_of,) if instead_of else ())
    assert text.result() == PROPERTIES.replace(old, new)
    assert properties.last(properties.read(text.result(), ""))[key].value == value


def test_properties_of_a_removed_key_go_with_its_duplicates_and_the_lines_that_continue_it() -> None:
    text = PropertiesText(PROPERTIES)
    text.remove(("topics",))
    text.remove(("linger.ms",))
    assert text.result() == "# the orders\nname = orders\n! tail\n"
    text = PropertiesText(PROPERTIES)
    text.remove(("linger.ms",), 5)
    assert text.result() == PROPERTIES.replace("linger.ms=5\n", "")


def test_a_key_is_escaped_so_that_java_reads_it_back() -> None:
    text = f"{escape('a b:c=d#', key=True)}={escape(' x')}"
    [entry] = properties.read(text, "")
    assert (entry.key, entry.value) == ("a b:c=d#", " x")


def test_windows_line_ends_stay() -> None:
    text = PropertiesText("a=1\r\nb=2\r\n")
    text.set(("c",), "3")
    text.remove(("a",))
    assert text.result() == "b=2\r\nc=3\r\n"


JSON = """\
[
  {"name": "one", "config": {"topics": "a", "tasks.max": 4}},
  {
    "name": "two",
    "config": {
      "topics": "b",
      "linger.ms": "5"
    }
  }
]
"""
YAML = """\
# a comment
spec:
  mirrors:
    - source: a   # why
      config:
        acks: 1
        linger.ms: "5"  # five
    - {source: b, config: {acks: 1}}
  list:
    - x
    - y
empty:
"""


@pytest.mark.parametrize(
    ("path", "value", "instead_of", "old", "new"),
    [
        ((0, 0, "config", "tasks.max"), "8", (), '"tasks.max": 4', '"tasks.max": 8'),
        ((0, 0, "config", "tasks.max"), "x", (), '"tasks.max": 4', '"tasks.max": "x"'),
        ((0, 0, "config", "acks"), "all", (), '"tasks.max": 4', '"tasks.max": 4, "acks": "all"'),
        ((0, 1, "config", "a\\b"), 'q"', (), '"5"\n', '"5",\n      "a\\\\b": "q\\""\n'),
        ((0, 1, "config", "acks"), "1", (0, 1, "config", "topics"), '"topics": "b"', '"acks": "1"'),
    ],
)
def test_json(path: PathKey, value: Value, instead_of: PathKey, old: str, new: str) -> None:
    text = StructuredText(JSON)
    text.set(path, value, instead_of)
    assert text.result() == JSON.replace(old, new)
    json.loads(text.result())


@pytest.mark.parametrize(
    ("path", "old"),
    [((0, 0, "config", "topics"), '"topics": "a", '), ((0, 1, "config", "linger.ms"), ',\n      "linger.ms": "5"')],
)
def test_json_without_a_key(path: PathKey, old: str) -> None:
    text = StructuredText(JSON)
    text.remove(path)
    assert text.result() == JSON.replace(old, "")


MIRROR = (0, "spec", "mirrors", 0)


@pytest.mark.parametrize(
    ("path", "value", "instead_of", "old", "new"),
    [
        ((*MIRROR, "source"), "c", (), "source: a   # why", "source: c   # why"),
        ((*MIRROR, "config", "linger.ms"), "6", (), '"5"  # five', '"6"  # five'),
        ((*MIRROR, "config", "x"), "true", (), "# five\n", "# five\n        x: 'true'\n"),
        ((*MIRROR, "config", "z"), "1", (*MIRROR, "config", "acks"), "acks: 1\n        l", "z: 1\n        l"),
        ((0, "spec", "mirrors", 1, "config", "x"), [1, "a b"], (), "acks: 1}}", "acks: 1, x: [1, 'a b']}}"),
        ((0, "spec", "mirrors", 1, "new", "x"), "v", (), "acks: 1}}", "acks: 1}, new: {x: v}}"),
        ((0, "spec", "list"), ["z"], (), "- x\n    - y", "[z]"),
        ((0, "empty", "a"), "b", (), "empty:", "empty: {a: b}"),
        ((0, "end"), "a\nb", (), "empty:\n", 'empty:\nend: "a\\nb"\n'),
    ],
)
def test_yaml(path: PathKey, value: Value, instead_of: PathKey, old: str, new: str) -> None:
    text = StructuredText(YAML)
    text.set(path, value, instead_of)
    assert text.result() == YAML.replace(old, new)
    yaml.safe_load(text.result())


@pytest.mark.parametrize(
    ("paths", "old", "new"),
    [
        ([(*MIRROR, "config", "acks")], "        acks: 1\n", ""),
        ([(*MIRROR, "source")], "source: a   # why\n      config", "config"),
        ([(0, "spec", "mirrors", 1, "config")], ", config: {acks: 1}", ""),
        ([(0, "spec", "mirrors", 1, "config", "acks")], "config: {acks: 1}", "config: {}"),
        ([(0, "nothing")], "", ""),
    ],
)
def test_yaml_without_a_key(paths: list[PathKey], old: str, new: str) -> None:
    text = StructuredText(YAML)
    for path in paths:
        text.remove(path)
    assert text.result() == YAML.replace(old, new)


def test_two_changes_of_one_place_are_refused() -> None:
    text = StructuredText(YAML)
    text.set((*MIRROR, "new", "a"), "1")
    with pytest.raises(NotEditable):
        text.set((*MIRROR, "new", "b"), "2")
    with pytest.raises(NotEditable):
        text.copy().set((*MIRROR, "new"), "2")


def test_what_an_anchor_shares_is_left_alone() -> None:
    text = StructuredText("a: &x {k: 1}\nb: *x\n")
    with pytest.raises(NotEditable, match="anchor"):
        text.set((0, "b", "k"), "2")
