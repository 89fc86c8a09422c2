"""The order of files, of keys and of lists that are sets means nothing: every permutation of a tree renders the same."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.spec.scalars import java_list
from tests.examples import draw_examples, sampled

ALIASES = ("a", "b", "c-x", "c.x")
PATTERNS = ("t", "u.v", "eu[.].*", "[a-c]-x", "(?i:Web)[.].*", "z.*")
KEYS = ("linger.ms", "batch.size", "compression.type", "buffer.memory")
Tree = dict[str, Any]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draw a tree of one folder, as what its files have together."""
    names = st.sampled_from(("orders", "a", "web-clicks", "Zoo", "b_1", "a-b"))
    some = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4, unique=True)
    servers = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)
    clusters = {alias: {"bootstrap_servers": [f"{alias}-{n}:9092" for n in draw(servers)]} for alias in ALIASES}
    for cluster in clusters.values():
        if draw(st.booleans()):
            cluster["security"] = {"protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "${x:y:z}"}  # type: ignore[assignment]
    connect = {f"on-{alias}": {"url": f"http://{alias}:8083", "kafka": alias} for alias in ALIASES}
    syncs = draw(st.sampled_from((True, False, {"location": "target"})))
    defaults = {"flows": {"run_on": f"on-{draw(st.sampled_from(ALIASES))}", "offset_syncs": syncs}}
    flows: dict[str, Any] = {}
    for number, name in enumerate(draw(st.lists(names, min_size=1, max_size=4, unique=True))):
        ends = draw(st.lists(st.sampled_from(ALIASES), min_size=2, unique=True))
        cut = draw(st.integers(1, len(ends) - 1))
        include = [f"{number}{item}" for item in draw(some)]
        flow: dict[str, Any] = {"sources": ends[:cut], "targets": ends[cut:], "topics": {"include": include}}
        if draw(st.booleans()):
            flow["topics"]["exclude"] = draw(some)
        flow["checkpoints"] = draw(
            st.sampled_from((True, False, {"groups": {"include": draw(some), "exclude": draw(some)}}))
        )
        flow["heartbeats"] = draw(st.booleans())
        flow["record_producer"] = dict.fromkeys(draw(st.lists(st.sampled_from(KEYS[:2]), unique=True)), 100000)
        flow["sync"] = {"exclude_properties": draw(some)}
        flow["source_connector"] = {
            "transforms": "first,second",
            **{
                f"transforms.{name}.{key}": value
                for name in ("first", "second")
                for key, value in (("type", "org.apache.kafka.connect.transforms.DropHeaders"), ("headers", "h"))
            },
        }
        flows[name] = flow
    return {"owner": "team", "clusters": clusters, "connect": connect, "defaults": defaults, "flows": flows}


def shuffled(value: Any, dice: random.Random) -> Any:
    """Return a value with the keys of its maps and the items of its lists in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, dice)) for key, item in value.items()]
        return dict(dice.sample(items, len(items)))
    if isinstance(value, list):
        return dice.sample(value, len(value))
    return value


def written(folder: Path, tree: Tree, dice: random.Random) -> Path:
    """Write a tree as files: each entry of a map in one of some files with names at random."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files: dict[str, Tree] = {}
    names = [f"{dice.randrange(1000)}-{number}" for number in range(dice.randrange(1, 4))]
    for key, value in shuffled(tree, dice).items():
        if isinstance(value, dict) and key != "defaults":
            for name, item in value.items():
                files.setdefault(dice.choice(names), {}).setdefault(key, {})[name] = item
        else:
            files.setdefault(dice.choice(names), {})[key] = value
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder


def rendered(folder: Path) -> list[object]:
    """Return all that is rendered, in order."""
    connectors = render(expand(load([folder])))
    return [(c.connect, c.name, c.type, c.flows, c.state, list(c.config.items())) for c in connectors]


@sampled("count", [40], [120])
def test_any_order_of_files_keys_and_lists_renders_the_same(tmp_path: Path, count: int) -> None:
    @draw_examples(count)
    @given(tree=trees(), seed=st.integers(0, 2**32))
    def holds(tree: Tree, seed: int) -> None:
        dice = random.Random(seed)
        first, second = (rendered(written(tmp_path / name, tree, dice)) for name in ("one", "other"))
        assert first == second
        assert first

    holds()


def test_a_renamed_file_and_a_new_flow_beside(tmp_path: Path) -> None:
    estate = """\
owner: shop
clusters: {dc1: {bootstrap_servers: ["127.0.0.1:19092"]}, agg: {bootstrap_servers: ["127.0.0.1:19094"]}}
connect: {main: {url: "http://127.0.0.1:18083", kafka: agg}}
"""
    flow = "flows: {{{}: {{sources: [dc1], targets: [agg], topics: {{include: [{}]}}}}}}\n"

    def configs(**files: str) -> dict[str, dict[str, str]]:
        folder = tmp_path / "_".join(files)
        folder.mkdir()
        for name, text in {"clusters": estate, **files}.items():
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        return {c.name: dict(c.config) for c in render(expand(load([folder])))}

    orders, clicks, archive = (
        flow.format("orders", "app.orders"),
        flow.format("clicks", '"web[.].*"'),
        flow.format("archive", "b.c"),
    )
    before, renamed = configs(orders=orders, web=clicks), configs(orders=orders, a_web=clicks)
    assert renamed == before
    added = configs(orders=orders, web=clicks, archive=archive)
    changed = {(name, key) for name in before for key in before[name] if added[name][key] != before[name][key]}
    assert changed == {  # what it must translate, and what plans go on with as it runs
        ("mm2.dc1.agg.checkpoint", "topics"),
        ("mm2.dc1.agg.source.clicks", "heartbeats.replication.enabled"),
    }


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        (["b", "a.c", "b"], r"a\.c,b"),
        ([r"(x)\1", "(a|b)"], r"(x)\1,(a|b)"),  # behind the other one, \1 would be its group
        (["(?i:z)", "a"], "(?i:z),a"),
    ],
)
def test_a_list_is_sorted_where_it_has_no_order(patterns: list[str], text: str) -> None:
    assert java_list(patterns) == text
