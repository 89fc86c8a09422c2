"""Rendered connectors in forms of other tools: read back they are the same, what a form cannot say is named, nothing is half-written."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connectors import PACKAGE, Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.export import ExportedFile, ExportFormat
from mm2mgr.export import export as build
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.recognise import read_file
from mm2mgr.imports.effective import config_of, with_declared_workers
from mm2mgr.imports.equivalence import CONNECTOR, compare_connectors
from mm2mgr.operations import Export, Workspace, export, write_export
from mm2mgr.secrets import mask
from tests.examples import draw_examples
from tests.render.test_order import KEYS, PATTERNS, Tree, trees, written
from tests.spec.trees import BASE, FLOW, write

FORMATS: tuple[ExportFormat, ...] = ("json", "strimzi", "properties")


def read_back(files: tuple[ExportedFile, ...]) -> list[FoundConnector]:
    return [
        connector
        for file in files
        for connector in read_file(Path(f"export/{file.name}"), file.text.encode()).connectors
    ]


def declared(workspace: Workspace) -> list[FoundConnector]:
    topology = workspace.topology
    return [with_declared_workers(each, topology.connects, topology.clusters) for each in workspace.connectors]


def of(folder: Path, **files: str) -> Workspace:
    return Workspace((write(folder, **files),))


# --- the same connectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "strimzi"])
def test_random_trees_come_back_key_for_key(tmp_path: Path, form: ExportFormat) -> None:
    @draw_examples(6, 1_000)
    @given(tree=trees())
    def holds(tree: Tree) -> None:
        workspace = Workspace((written(tmp_path / "tree", tree, random.Random(1)),))
        result = export(workspace, form=form)
        if result.refusals:
            assert form == "strimzi"
            assert {refusal.key for refusal in result.refusals} == {"name"}
            return
        configs = {connector.name: connector.config for connector in read_back(result.files)}
        expected = {connector.name: dict(connector.config) for connector in workspace.connectors}
        assert {name: dict(config) for name, config in configs.items()} == expected
        assert compare_connectors(declared(workspace), read_back(result.files), "4.3.1").outcome == "equal"

    holds()


@st.composite
def dedicated_trees(draw: st.DrawFn) -> Tree:
    """Draw a tree that a dedicated MirrorMaker may be able to run: a flow per pair, one task each."""
    aliases = ("a", "b", "c-x", "c.x")
    pairs = draw(st.lists(st.permutations(aliases).map(lambda order: (order[0], order[1])), min_size=1, unique=True))
    clusters: dict[str, Any] = {alias: {"bootstrap_servers": [f"{alias}-1:9092"]} for alias in aliases}
    for alias in draw(st.lists(st.sampled_from(aliases), unique=True)):
        clusters[alias]["security"] = {
            "protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "${x:y:z}",
        }
    flows: dict[str, Any] = {}
    for number, (source, target) in enumerate(pairs):
        flows[f"f{number}"] = {
            **{
                "sources": [source],
                "targets": [target],
                "tasks": {"max": 1},
                "run_on": f"on-{draw(st.sampled_from(aliases))}",
            },
            **{"topics": {"include": draw(st.lists(st.sampled_from(PATTERNS), min_size=1, unique=True))}},
            **{"heartbeats": draw(st.booleans()), "checkpoints": draw(st.booleans())},
            "record_producer": dict.fromkeys(draw(st.lists(st.sampled_from(KEYS[:2]), unique=True)), 100000),
        }
    connect = {f"on-{alias}": {"url": f"http://{alias}:8083", "kafka": alias} for alias in aliases}
    return {"owner": "team", "clusters": clusters, "connect": connect, "flows": flows}


def test_random_trees_as_mm2_properties_are_equal_or_name_what_is_not(tmp_path: Path) -> None:
    outcomes: set[bool] = set()

    @draw_examples(10, 2_000)
    @given(tree=dedicated_trees())
    def holds(tree: Tree) -> None:
        workspace = Workspace((written(tmp_path / "tree", tree, random.Random(1)),))
        result = export(workspace, form="properties")
        outcomes.add(bool(result.refusals))
        if result.refusals:  # what a line of a pair sets for one of its connectors reaches the others too
            ends = [
                (each.config["source.cluster.alias"], each.config["target.cluster.alias"])
                for each in workspace.connectors
            ]
            assert len(set(ends)) < len(ends)
            assert not result.files
        else:
            compared = compare_connectors(declared(workspace), read_back(result.files), "3.9.1")
            assert compared.outcome == "equal"
            assert compared.connectors == len(workspace.connectors)

    holds()
    assert outcomes == {True, False}


def test_a_dedicated_file_as_people_would_write_it(tmp_path: Path) -> None:
    flow = FLOW.replace(
        "topics: {include: [t]}", "topics: {include: [t.u]}\n    tasks: {max: 1}\n    checkpoints: false"
    )
    [file] = export(of(tmp_path, x=BASE + flow), form="properties").files
    lines = file.text.splitlines()
    assert "clusters = b, a" in lines
    assert "emit.heartbeats.enabled = false" in lines
    assert "a.bootstrap.servers = a1:9092" in lines
    assert "a->b.enabled = true" in lines
    assert "a->b.topics = t\\\\.u" in lines
    assert "b->a.enabled = false" in lines
    assert "b->a.emit.heartbeats.enabled = true" in lines
    assert not [line for line in lines if "mm2mgr." in line]


def test_a_body_of_post_connectors(tmp_path: Path) -> None:
    result = export(of(tmp_path, x=BASE + FLOW + "    state: paused\n"), ["f"])
    [body] = [json.loads(file.text) for file in result.files if file.name == "w.mm2.a.b.source.f.json"]
    assert body["initial_state"] == "PAUSED"
    assert body["name"] == body["config"]["name"] == "mm2.a.b.source.f"
    assert len(json.loads(result.document)) == 3
    assert {connector.state for connector in read_back(result.files)} == {None, "PAUSED"}


@pytest.mark.parametrize("api", ["v1beta2", "v1"])
def test_a_resource_of_strimzi(tmp_path: Path, api: Any) -> None:
    result = export(of(tmp_path, x=BASE + FLOW + "    state: paused\n"), form="strimzi", api=api)
    documents = {document["metadata"]["name"]: document for document in yaml.safe_load_all(result.document)}
    resource = documents["mm2.a.b.source.f"]
    assert resource["apiVersion"] == f"kafka.strimzi.io/{api}"
    assert resource["metadata"]["labels"] == {"strimzi.io/cluster": "w"}
    assert (resource["spec"]["tasksMax"], resource["spec"]["state"]) == (1, "paused")
    assert {type(value) for value in resource["spec"]["config"].values()} == {str}
    assert not {"name", "connector.class", "tasks.max"} & resource["spec"]["config"].keys()


@pytest.mark.parametrize("api", ["v1beta2", "v1"])
def test_a_mirror_maker_of_strimzi(tmp_path: Path, api: Any) -> None:
    more = """    heartbeats: false
    connector_name: a->b.MirrorSourceConnector
    topics: {include: [t.u]}
    tasks: {max: 4}
    state: paused
"""
    base = BASE.replace("[b1:9092]}", "[b1:9092], security: {protocol: SASL_SSL, sasl.mechanism: PLAIN}}").replace(
        "kafka: b}", "kafka: b, version: 4.1.0, exactly_once: true}"
    )
    [file] = export(
        of(tmp_path, x=base + FLOW.replace("    topics: {include: [t]}\n", more)), form="strimzi-mirrormaker2", api=api
    ).files
    resource = yaml.safe_load(file.text)
    spec = resource["spec"]
    [mirror] = spec["mirrors"]
    assert (file.name, resource["kind"], resource["metadata"]) == ("w.yaml", "KafkaMirrorMaker2", {"name": "w"})
    assert resource["apiVersion"] == f"kafka.strimzi.io/{api}"
    assert (spec["version"], mirror["topicsPattern"], mirror["groupsPattern"]) == ("4.1.0", "t\\.u", ".*")
    assert (mirror["sourceConnector"]["tasksMax"], mirror["sourceConnector"]["state"]) == (4, "paused")
    target = spec["target"] if api == "v1" else spec["clusters"][1]
    assert target["authentication"] == {"type": "custom", "sasl": True, "config": {"sasl.mechanism": "PLAIN"}}
    assert target["config"]["exactly.once.source.support"] == "enabled"
    if api == "v1":
        assert mirror["source"] == {"alias": "a", "bootstrapServers": "a1:9092"}
        assert (target["groupId"], target["offsetStorageTopic"]) == (
            "mirrormaker2-cluster",
            "mirrormaker2-cluster-offsets",
        )
    else:
        assert (mirror["sourceCluster"], mirror["targetCluster"], spec["connectCluster"]) == ("a", "b", "b")
    assert {connector.type for connector in read_back((file,))} == {"source", "checkpoint"}


def test_mirror_makers_beside_one_kafka_share_no_group(tmp_path: Path) -> None:
    base = BASE.replace("connect:\n", 'connect:\n  v: {url: "http://v:8083", kafka: b}\n').replace(
        "clusters:\n", "clusters:\n  c: {bootstrap_servers: [c1:9092]}\n"
    )
    flows = "flows:\n" + "".join(
        f"  f{alias}: {{sources: [{alias}], targets: [b], run_on: {connect}, topics: {{include: [t]}}, heartbeats: false, "
        f"connector_name: '{alias}->b.MirrorSourceConnector'}}\n"
        for alias, connect in (("a", "v"), ("c", "w"))
    )
    result = export(of(tmp_path, x=base + flows), form="strimzi-mirrormaker2", api="v1")
    targets = [document["spec"]["target"] for document in yaml.safe_load_all(result.document)]
    assert [target["groupId"] for target in targets] == ["mirrormaker2-v", "mirrormaker2-w"]
    assert len({target["offsetStorageTopic"] for target in targets}) == 2


# --- what a form cannot say -------------------------------------------------------------------------------------------

SECRET = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter22";'


@pytest.mark.parametrize("form", [*FORMATS, "strimzi-mirrormaker2"])
def test_a_secret_in_clear_is_refused_and_never_shown(tmp_path: Path, form: ExportFormat) -> None:
    secured = BASE.replace(
        "[a1:9092]}",
        f"[a1:9092], security: {{protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: '{SECRET}'}}}}",
    )
    result = export(of(tmp_path, x=secured + FLOW), form=form)
    assert ("mm2.a.b.source.f", "source.cluster.sasl.jaas.config") in {(r.connector, r.key) for r in result.refusals}
    assert not result.files
    assert "hunter" not in repr(result)


@pytest.mark.parametrize(
    ("form", "more", "key", "words"),
    [
        ("json", "    start: latest\n", "mm2mgr.start", "where a flow begins"),
        ("json", "    catch_up: {limit: 20MB/s}\n", "catch_up", "quota"),
        ("strimzi", "    connector_name: Orders\n", "name", "Kubernetes takes small letters"),
        ("strimzi-mirrormaker2", "", "", "heartbeats of a flow are written to its source"),
        ("strimzi-mirrormaker2", "", "name", "the operator calls it a->b.MirrorSourceConnector"),
        ("strimzi-mirrormaker2", "    balance: plugin\n", "connector.class", "MirrorMaker's own MirrorSource"),
        (
            "strimzi-mirrormaker2",
            "    verbatim: {source: {source.cluster.bootstrap.servers: 'x:1'}}\n",
            "source.cluster.bootstrap.servers",
            "what the cluster a has: a1:9092",
        ),
        ("properties", "    tasks: {max: 4}\n", "tasks.max", "here it is 4, and 1 in mm2.a.b.checkpoint"),
        ("properties", "    tasks: {max: 1}\n    state: stopped\n", "state", "no state of connectors"),
        ("properties", "    balance: plugin\n", "connector.class", "MirrorMaker's own class"),
        ("properties", "    tasks: {max: 1}\n", "allow.auto.create.topics", "offset-syncs consumer would get false"),
    ],
)
def test_what_a_form_cannot_say_is_named(tmp_path: Path, form: ExportFormat, more: str, key: str, words: str) -> None:
    result = export(of(tmp_path, x=BASE + FLOW + more), form=form)
    assert not result.files
    assert not result.document
    assert any(refusal.key == key and words in refusal.reason for refusal in result.refusals), result.refusals


def test_two_flows_of_a_pair_are_no_dedicated_mirror(tmp_path: Path) -> None:
    more = FLOW.replace("flows:\n", "").replace("  f:", "  g:").replace("[t]", "[u]")
    result = export(of(tmp_path, x=BASE + FLOW + more), form="properties")
    assert any("one source connector per pair" in refusal.reason for refusal in result.refusals)


def test_old_workers_take_no_state(tmp_path: Path) -> None:
    old = BASE.replace("kafka: b}", "kafka: b, version: 3.6.2}")
    result = export(of(tmp_path, x=old + FLOW + "    state: paused\n"))
    assert [(refusal.connector, refusal.key) for refusal in result.refusals] == [("mm2.a.b.source.f", "state")]


# --- files ------------------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    result = export(of(tmp_path / "tree", x=BASE + FLOW))
    paths = write_export(result, tmp_path / "out")
    assert sorted(path.name for path in paths) == sorted(path.name for path in (tmp_path / "out").iterdir())
    with pytest.raises(Mm2mgrError, match="not an empty folder"):
        write_export(result, tmp_path / "out")
    broken = replace(result, files=(*result.files, ExportedFile("no/such/folder.json", "x")))
    with pytest.raises(Mm2mgrError, match="cannot be written"):
        write_export(broken, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tree"]


def test_names_that_a_file_system_takes_for_one_get_files_of_their_own(tmp_path: Path) -> None:
    flows = "flows:\n" + "".join(
        f"  f{n}: {{sources: [a], targets: [b], topics: {{include: [t{n}]}}, connector_name: '{name}'}}\n"
        for n, name in enumerate(("a->b", "a--b", "A->B"))
    )
    names = [file.name for file in export(of(tmp_path, x=BASE + flows)).files]
    assert len({name.lower() for name in names}) == len(names) == 5


# --- a key that somebody changes in an exported file ------------------------------------------------------------------


def expected_rows(result: Export, at: int, key: str, value: str | None) -> tuple[FoundConnector, FoundConnector]:
    connectors = read_back(result.files)
    config: Mapping[str, str] = connectors[at].config
    changed = {name: text for name, text in {**config, key: value}.items() if text is not None}
    return connectors[at], replace(connectors[at], config=changed, lines={})


def test_a_changed_key_is_reported_at_the_clients_that_read_it(tmp_path: Path) -> None:
    """Asked of the table of prefixes, key by key: no other client is named, and none is missing."""
    from mm2mgr.truth.keys import load
    from mm2mgr.truth.reach import CLUSTER_KEYS, Setting, clients, seen_by

    @draw_examples(8, 1_000)
    @given(tree=trees(), data=st.data())
    def holds(tree: Tree, data: st.DataObject) -> None:
        workspace = Workspace((written(tmp_path / "tree", tree, random.Random(1)),))
        result = export(workspace)
        at = data.draw(st.integers(0, len(result.files) - 1))
        config = read_back(result.files)[at].config
        fixed = (
            "name",
            "connector.class",
            "source.cluster.alias",
            "target.cluster.alias",
            "offset-syncs.topic.location",
        )
        key = data.draw(
            st.sampled_from(
                [
                    name
                    for name in sorted(config)
                    if name not in fixed and not name.endswith((".enabled", "security.protocol"))
                ]
            )
        )
        before, after = expected_rows(result, at, key, "7654321")
        compared = compare_connectors([before], [after], "3.9.1")
        reported = {(row.client, row.key) for row in (*compared.differences, *compared.open)}
        assert before.type
        readers = [
            (client.name, hit.key)
            for client in clients(before.type, Setting.from_config(config, "3.9.1"))
            for hit in seen_by(client, key)
            if load().find(client.kind, hit.key, "3.9.1") and hit.key not in client.forced
        ]
        outranked = {
            (client.name, hit.key)
            for client in clients(before.type, Setting.from_config(config, "3.9.1"))
            for hit in seen_by(client, key)
            if any(other.key == hit.key and other.rank > hit.rank for name in config for other in seen_by(client, name))
        }
        of_clients = {row for row in reported if row[0] != CONNECTOR}
        assert of_clients == set(readers) - outranked
        of_connector = load().find(before.type, key, "3.9.1") is not None and key not in CLUSTER_KEYS
        assert ((CONNECTOR, key) in reported) <= (of_connector or key.startswith(("transforms.", "predicates.")))
        if not reported:
            assert compared.outcome == "equal"
            assert key.startswith("mm2mgr.") or {row.key for row in compared.idle} == {key}

    holds()


# --- any text, without a tree -----------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [
        "true",
        "null",
        "~",
        "1e3",
        "0x1f",
        "${file:/a b:c}",
        " lead",
        "trail ",
        "a\\.b",
        "#no",
        "! no",
        "x: y",
        "- z",
        "'",
        '"',
        "",
        "…",
        "😀",
    ]
)


@pytest.mark.parametrize("form", FORMATS)
def test_any_text_comes_back(tmp_path: Path, form: ExportFormat) -> None:
    """Keys and values that a template of somebody's own may write, as the reader of the other tool takes them."""
    topology = of(tmp_path, x=BASE + FLOW).topology

    @draw_examples(30, 10_000)
    @given(
        st.dictionaries(
            st.sampled_from([f"{prefix}{key}" for prefix in ("source.consumer.", "transforms.t.", "") for key in KEYS])
            | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map("z.{}".format),
            TEXTS,
        )
    )
    def holds(more: dict[str, str]) -> None:
        config = {"name": "n", "connector.class": f"{PACKAGE}.MirrorSourceConnector", "tasks.max": "2"}
        config |= {"source.cluster.alias": "a", "target.cluster.alias": "b", **more}
        result = build([Connector("n", "source", "w", "a->b", ("f:a->b",), config)], topology, form)
        if result.refusals:
            assert any(mask(key, value) != value for key, value in config.items())
            return
        [connector, *_] = [each for each in read_back(result.files) if each.type == "source"]
        after = config_of(connector)
        if form == "properties":
            after = {key: text for key, text in after.items() if key in config} | {"name": "n"}
        assert after == config | ({"connector.class": after["connector.class"]} if form == "properties" else {})

    holds()
