"""A tree that is rendered, imported and rendered again has the same connectors, key for key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mm2mgr.expand import expand
from mm2mgr.export import StrimziApi
from mm2mgr.formats.recognise import read_file
from mm2mgr.imports.effective import with_declared_workers
from mm2mgr.imports.equivalence import compare_connectors
from mm2mgr.imports.tree import ImportOptions, import_tree
from mm2mgr.operations import Workspace, export
from mm2mgr.spec.files import Spec, spec_of, yaml_text
from mm2mgr.spec.places import read_yaml
from tests.examples import draw_examples
from tests.imports.random_trees import as_files, rendered, trees


@draw_examples(6, many=10_000)
@given(values=trees())
def test_the_connectors_of_an_imported_tree_are_those_that_were_imported(values: dict[str, Any]) -> None:
    connectors = rendered(values)
    assume(connectors)
    assert connectors
    imported = import_tree(as_files(connectors), ImportOptions(owner="team"))
    before = {(connector.connect, connector.name): dict(connector.config) for connector in connectors}
    after = {(connector.connect, connector.name): dict(connector.config) for connector in imported.connectors}
    assert after == before
    assert imported.report.left_out == ()
    assert imported.report.decisions == 0


@st.composite
def trees_of_mirror_makers(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a tree that Strimzi's operator can mostly run: a flow per pair, beside its target, and no heartbeats."""
    values: dict[str, Any] = draw(trees())
    [name, flow], *_ = values["flows"].items()
    producer_security = draw(st.sampled_from(["worker", "connector"]))
    values["connect"] = {
        f"on-{number}": {"url": f"http://c{number}:8083", "kafka": alias, "producer_security": producer_security}
        for number, alias in enumerate(values["clusters"])
    }
    flow["run_on"] = {alias: f"on-{number}" for number, alias in enumerate(values["clusters"])}
    pairs = {f"{source}->{target}" for source in flow["sources"] for target in flow["targets"]} - {*flow["except"]}
    for pair in sorted(pairs):
        flow["pairs"].setdefault(pair, {})["connector_name"] = f"{pair}.MirrorSourceConnector"
    values["flows"] = {name: flow}
    values["defaults"]["flows"]["heartbeats"] = False
    return values


def test_an_exported_mirror_maker_of_strimzi_is_imported_as_what_it_was(tmp_path: Path) -> None:
    exported: Counter[bool] = Counter()

    @draw_examples(6, many=2_000)
    @given(values=trees_of_mirror_makers(), api=st.sampled_from(["v1beta2", "v1"]))
    def holds(values: dict[str, Any], api: StrimziApi) -> None:
        assume(rendered(values))
        (tmp_path / "tree.yaml").write_text(yaml_text(values), encoding="utf-8")
        workspace = Workspace((tmp_path / "tree.yaml",))
        result = export(workspace, form="strimzi-mirrormaker2", api=api)
        exported[bool(result.files)] += 1
        if result.refusals:  # the operator's workers take no store from the config, and have converters of their own
            keys = {refusal.key for refusal in result.refusals}
            assert all(key == "key.converter" or key.startswith("ssl.truststore.") for key in keys), keys
            return
        files = [read_file(Path(file.name), file.text.encode()) for file in result.files]
        imported = import_tree(files, ImportOptions(owner="team", version="4.3.1"))
        assert imported.report.left_out == ()
        topology = workspace.topology
        before = [with_declared_workers(item, topology.connects, topology.clusters) for item in workspace.connectors]
        after = expand(spec_of_texts(imported.files))
        now = [with_declared_workers(item, after.connects, after.clusters) for item in imported.connectors]
        compared = compare_connectors(before, now, "4.3.1")
        assert compared.outcome == "equal", compared
        assert compared.connectors == len(workspace.connectors)

    holds()
    assert exported[True]


def spec_of_texts(texts: Mapping[str, str]) -> Spec:
    """Return the declaration in the texts of files."""
    documents = [item for name, text in texts.items() for item in read_yaml(Path(name), text.encode())]
    return spec_of(documents, tuple(texts))


LANES = """owner: team
clusters:
  dc1: {bootstrap_servers: ['dc1-k:9092']}
  dc2: {bootstrap_servers: ['dc2-k:9092']}
  agg: {bootstrap_servers: ['agg-k:9092']}
connect:
  agg: {url: 'http://c:8083', kafka: agg}
flows:
  f:
    sources: [dc1, dc2]
    targets: [agg]
    topics: {include: [orders, 'a.*'], exclude: [a.x]}
    tasks: {max: 3}
    balance: {lanes: {heavy: [a.big, orders], slow: {topics: [a.slow], tasks: {max: 1}}}}
  g: {sources: [dc1], targets: [agg], topics: {include: ['b.*', c]}, heartbeats: false}
"""


def test_lanes_are_lanes_again(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(LANES, encoding="utf-8")
    connectors = Workspace((tmp_path / "tree.yaml",)).connectors
    imported = import_tree(as_files(connectors), ImportOptions(owner="team"))
    flows = imported.files["flows.yaml"]
    assert "heavy: [a.big, orders]" in flows
    assert "tasks: {max: 1}" in flows
    assert "topics: {include: [a.*, orders], exclude: [a.x]}" in flows
    assert imported.report.flows == 3
    assert {item.name: item.config for item in imported.connectors} == {item.name: item.config for item in connectors}


def test_a_lane_that_was_changed_by_hand_is_a_flow(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(LANES, encoding="utf-8")
    changed = tuple(
        replace(item, config={**item.config, "offset.lag.max": "7"})
        if item.name.endswith("dc2.agg.source.f.slow")
        else item
        for item in Workspace((tmp_path / "tree.yaml",)).connectors
    )
    imported = import_tree(as_files(changed), ImportOptions(owner="team"))
    assert "lanes:" not in imported.files["flows.yaml"]
    assert imported.report.flows == 7
    configs = {item.name: {**item.config} for item in changed}
    for config in configs.values():
        config.pop("mm2mgr.lane-of", None)
    assert {item.name: item.config for item in imported.connectors} == configs


@pytest.mark.parametrize("change", [{"state": "PAUSED"}, {"name": "by-hand"}])
@pytest.mark.parametrize("part", ["source.f", "source.f.slow"])
def test_a_lane_with_a_state_or_a_name_of_its_own_keeps_it(tmp_path: Path, part: str, change: dict[str, Any]) -> None:
    (tmp_path / "tree.yaml").write_text(LANES, encoding="utf-8")
    connectors = tuple(
        replace(item, **change, config={**item.config, "name": change.get("name", item.name)})
        if item.name == f"mm2.dc1.agg.{part}"
        else item
        for item in Workspace((tmp_path / "tree.yaml",)).connectors
    )
    imported = import_tree(as_files(connectors), ImportOptions(owner="team"))
    assert imported.report.left_out == ()
    states = [{item.name: item.state or "RUNNING" for item in items} for items in (imported.connectors, connectors)]
    assert states[0] == states[1]
