"""No list that `render` writes has an item twice, or an empty one: Kafka refuses such a config from 4.2 on (KIP-1161)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr import defaults
from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.truth import keys
from tests.examples import draw_examples, sampled

from .test_order import Tree, trees

USUAL = {"topics": defaults.TOPICS_EXCLUDE, "groups": defaults.GROUPS_EXCLUDE, "sync": defaults.PROPERTIES_EXCLUDE}


def with_doubles(tree: Tree, dice: random.Random) -> Tree:
    """Write items of lists of patterns twice, name what is excluded by default too, and let some depend on the order."""
    for flow in tree["flows"].values():
        groups = flow["checkpoints"].get("groups", {}) if isinstance(flow["checkpoints"], dict) else {}
        lists = [(flow["topics"], "include", ()), (flow["topics"], "exclude", USUAL["topics"])]
        lists += [(groups, "include", ()), (groups, "exclude", USUAL["groups"])] if groups else []
        for owner, key, usual in [*lists, (flow["sync"], "exclude_properties", USUAL["sync"])]:
            items = [*owner.get(key, []), *dice.sample(usual, min(len(usual), dice.randrange(3)))]
            items += [r"(x|y)\1"] * dice.randrange(3) if items and dice.random() < 0.3 else []
            doubled = [*items, *dice.sample(items, dice.randrange(len(items) + 1))]
            if doubled:
                owner[key] = doubled
    return tree


def lists_of(connector: Connector) -> dict[str, list[str]]:
    known = keys.load()
    newest = known.releases[known.lines[-1]]
    scopes = {key: known.find(connector.type, key, newest) for key in connector.config}
    return {
        key: connector.config[key].split(",")
        for key, definition in scopes.items()
        if (definition and definition.type == "list") or key in {"groups", "config.properties.exclude"}
    }


def rendered(folder: Path, tree: Any) -> tuple[Connector, ...]:
    folder.mkdir(exist_ok=True)
    (folder / "tree.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return render(expand(load([folder])))


@pytest.mark.long
@sampled("count", [40], [100])
def test_no_list_has_an_item_twice(tmp_path: Path, count: int) -> None:
    @draw_examples(count)
    @given(tree=trees(), seed=st.integers(0, 2**32))
    def holds(tree: Tree, seed: int) -> None:
        for connector in rendered(tmp_path, with_doubles(tree, random.Random(seed))):
            lists = lists_of(connector)
            assert lists.keys() >= ({"topics"} if connector.type != "heartbeat" else set())
            for key, items in lists.items():
                assert len(items) == len(set(items)), (key, items)
                assert "" not in items, (key, items)

    holds()


@pytest.mark.parametrize("excluded", [["__.*"], [r".*\.replica", "__.*"], [r"(a|b)\1", "__.*", "mm2.*\\.internal"]])
def test_a_default_that_is_written_too_stands_once(tmp_path: Path, excluded: list[str]) -> None:
    tree = {
        "owner": "me",
        "clusters": {"dc1": {"bootstrap_servers": ["dc1-k1:9092"]}, "agg": {"bootstrap_servers": ["agg-k1:9092"]}},
        "connect": {"main": {"url": "http://connect:8083", "kafka": "agg"}},
        "flows": {
            "f": {
                "sources": ["dc1"],
                "targets": ["agg"],
                "topics": {"include": ["inv.*"], "exclude": excluded},
                "checkpoints": {"groups": {"exclude": ["connect-.*", "etl-.*"]}},
            }
        },
    }
    (source,) = (each for each in rendered(tmp_path, tree) if each.type == "source")
    (checkpoint,) = (each for each in rendered(tmp_path, tree) if each.type == "checkpoint")
    items = source.config["topics.exclude"].split(",")
    assert sorted(items) == sorted({*defaults.TOPICS_EXCLUDE, *excluded})
    assert sorted(checkpoint.config["groups.exclude"].split(",")) == sorted({*defaults.GROUPS_EXCLUDE, "etl-.*"})
