"""What people get wrong in YAML, and the whole message of each; `UPDATE_MISTAKES=1` writes the messages anew, for a person to read.

A case of `mistakes/*.txt` is a file of a tree.
The sections of the tree that it leaves out are in another file, and right; `# owner:` leaves one out of both.
"""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.lint.rules import lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.spec.mistakes import json_schema
from mm2mgr.spec.values import SIGNS
from tests.mistakes import cases, check

FILES = Path(__file__).parent / "mistakes"
CLUSTERS = {
    "dc1": "{bootstrap_servers: [k1:9092], labels: {tier: local}}",
    "dc2": "{bootstrap_servers: [k2:9092], labels: {tier: local}}",
    "agg": "{bootstrap_servers: [k3:9092], labels: {tier: aggregate}}",
}
GOOD = {
    "owner": "owner: team\n",
    "connect": 'connect:\n  main: {url: "http://connect-1:8083", kafka: agg}\n',
    "flows": "flows:\n  orders: {sources: [dc1], targets: [agg], topics: {include: [orders]}}\n",
}


CASES = cases(FILES)


def said(folder: Path, text: str) -> list[str]:
    """Return what is said about a tree in which somebody wrote this: problems, or else what lint finds."""
    written = set(re.findall(r"^(?:# )?(\w+) *:", text, re.MULTILINE))
    rest = "".join(section for key, section in GOOD.items() if key not in written)
    if not re.search(r"^clusters:\n(?!  \w)", text, re.MULTILINE) and "# clusters" not in text:
        others = [
            f"  {alias}: {body}\n" for alias, body in CLUSTERS.items() if not re.search(rf"^  {alias}:", text, re.M)
        ]
        rest += "".join(["clusters:\n", *others]) if others else ""
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    (folder / "y.yaml").write_text(rest, encoding="utf-8")
    try:
        spec = load([folder])
        topology = expand(spec)
    except SpecError as error:
        return error.message.replace(f"{folder}/", "").splitlines()
    findings = lint(from_tree(topology, render(topology), spec))
    return list(dict.fromkeys(f"lint: {each.rule}" for each in findings if each.severity != "info"))


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_answered_with_its_place_and_what_to_write(tmp_path: Path, name: str) -> None:
    check(FILES, name, said(tmp_path, CASES[name][0]))


def test_every_mistake_has_an_answer_and_one_title() -> None:
    assert [name for name, (_, wanted) in CASES.items() if not wanted] == []
    assert sum(file.read_text(encoding="utf-8").count("### ") for file in FILES.glob("*.txt")) == len(CASES) > 150


# --- no message shows how mm2mgr is built -----------------------------------------------------------------------------

TREE: dict[str, Any] = {
    "owner": "team",
    "defaults": {"clusters": {"replication_factor": 3}, "connect": {"workers": {"count": 3, "memory": "4 GiB"}}},
    "clusters": {
        "dc1": {"bootstrap_servers": ["k1:9092"], "labels": {"tier": "local"}, "security": {"protocol": "SSL"}},
        "agg": {
            "bootstrap_servers": "k3:9092",
            "metrics": {"prometheus": {"url": "http://p:9090", "labels": {"a": "b"}}},
        },
    },
    "connect": {
        "main": {"url": ["http://c:8083"], "kafka": "agg", "version": "3.9", "auth": {"bearer": "${env:TOKEN}"}}
    },
    "links": [{"between": ["dc1", "agg"], "rtt": "80ms", "bandwidth": "1Gbit/s"}],
    "flows": {
        "orders": {
            "sources": {"tier": "local"},
            "targets": ["agg"],
            "topics": {"include": ["orders", "logs[.].*"]},
            "tasks": {"max": "auto", "min": 2, "threshold": "70%"},
            "checkpoints": {"group_offsets": True, "groups": {"include": ["app-.*"]}},
            "heartbeats": True,
            "record_producer": {"linger.ms": 5},
            "source_connector": {"offset.lag.max": 100},
            "run_on": {"agg": "main"},
            "replication_policy": "identity",
            "delivery": "at_least_once",
            "separator": ".",
            "pairs": {"dc1->agg": {"refresh_interval": "10min"}},
            "silence": {"wrong-kafka": "seen"},
            "connector_name": "legacy-orders",
        }
    },
    "adopt": [{"connect": "main", "connector": "legacy-orders", "from_owner": "others"}],
    "moved": [
        {"from": "clicks:dc1->agg", "to": "orders:dc1->agg"},
        {"from": {"dedicated": "dc1->agg"}, "to": "orders:dc1->agg"},
        {"from": "main/legacy", "to": "orders:dc1->agg"},
    ],
    "release": [{"connect": "main", "connector": "gone"}],
}
OTHER = [
    None,
    True,
    -1,
    7,
    2**40,
    0.5,
    float("nan"),
    "",
    " ",
    "x",
    "a b",
    "->",
    "*",
    "[",
    "{{x}}",
    "2026-01-05",
    "é",
    "a: b",
    [],
    {},
]
OTHER += [["x"], [1], [[]], [{}], [{"a": 1}], {"a": 1}, {"a": {"b": None}}, {"": ""}, {"sources": []}, {"max": 1}]
FOREIGN = re.compile(
    r"[Ii]nput|[Ee]xtra |[Vv]alue error|[Ss]tring should|dictionary|instance of|validation|type=|\[key\]|function-|literal\[|"
    r"constrained|pydantic|\(\?|\\S|\[A-Za-z|\]\+|Traceback|DeclaredFlow|NoneType"
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, below in inner for found in places(below, (*path, key)))]


def mutated(random_: random.Random) -> dict[str, Any]:
    """Return the good tree with one to three values replaced, removed, doubled, or under another key."""
    tree = copy.deepcopy(TREE)
    for _ in range(random_.randint(1, 3)):
        *above, key = random_.choice(places(tree)[1:])
        node: Any = tree
        for step in above:
            node = node[step]
        value = node[key]
        change = random_.randrange(5)
        if change == 0:
            del node[key]
        elif change == 1 and isinstance(node, dict):
            node[random_.choice(["x", "Sources", "tasks.max", "a b", f"{key}s", "topics", "bootstrap.servers"])] = (
                node.pop(key)
            )
        elif change == 2:
            node[key] = [value, value]
        elif change == 3:
            node[key] = {str(key): value}
        else:
            node[key] = random_.choice(OTHER)
    return tree


@pytest.mark.parametrize("seed", range(12))
def test_no_message_speaks_of_the_program_whatever_is_wrong(tmp_path: Path, seed: int) -> None:
    random_, refused = random.Random(seed), 0
    for _ in range(40):
        text = yaml.safe_dump(mutated(random_), sort_keys=False)
        (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
        try:
            expand(load([tmp_path]))
        except SpecError as error:
            refused += 1
            for problem in error.problems:
                assert len(problem.message.partition("': ")[2] or problem.message) > 10
                assert not FOREIGN.search(problem.message), (problem.message, text)
                assert str(problem.place).startswith(f"{tmp_path}/x.yaml:")
    assert refused > 20


@pytest.mark.parametrize("seed", range(6))
def test_signs_lost_or_added_anywhere_are_answered_in_words(tmp_path: Path, seed: int) -> None:
    random_, refused = random.Random(seed), 0
    good = yaml.safe_dump(TREE, sort_keys=False, default_flow_style=None if seed % 2 else False)
    for _ in range(60):
        text = list(good)
        for _ in range(random_.randint(1, 3)):
            text[random_.randrange(len(text))] = random_.choice(["", "<<: ", *"\t :[]{}'*&!@%#\n-\"\\"])
        (tmp_path / "x.yaml").write_text("".join(text), encoding="utf-8")
        try:
            expand(load([tmp_path]))
        except SpecError as error:
            refused += 1
            said = [problem.message for problem in error.problems]
            assert not [one for one in said if FOREIGN.search(one) or "expected" in one], "".join(text)
    assert refused > 20


def test_every_pattern_of_the_schema_has_words() -> None:
    patterns = set(re.findall(r"'pattern': '((?:[^'\\]|\\.)*)'", str(json_schema())))
    assert patterns
    assert {pattern.encode().decode("unicode_escape") for pattern in patterns} <= SIGNS.keys()
