"""Schema ids in records and what both registries have under them: each verdict, what is not judged, and what is no id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import schemas
from mm2mgr.check.judge import schema_rows
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.expand import expand
from mm2mgr.lint.rules import lint
from mm2mgr.lint.tree import from_tree
from mm2mgr.live import read as live_read
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, run_steps
from mm2mgr.live.schemas import SchemaIds, SchemasById
from mm2mgr.live.snapshot import Question, Snapshot
from mm2mgr.live.snapshot_file import KINDS
from mm2mgr.registry.client import CannotResolve, RegistryError
from mm2mgr.registry.ids import Part, RegisteredSchema, SchemaId, TopicSample
from mm2mgr.render import render
from mm2mgr.schemas import PairSchemas, PairTopics, find_schemas, judge_pair
from mm2mgr.spec.files import load
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology
from tests.registry.fake import FakeRegistry, Schema, serving
from tests.spec.trees import write

TREE = """\
owner: tester
clusters:
  dc1: {{bootstrap_servers: ["dc1:9092"]{dc1}}}
  agg: {{bootstrap_servers: ["agg:9092"]{agg}}}
connect:
  agg: {{url: "http://localhost:1", kafka: agg}}
flows:
  f: {{sources: [dc1], targets: [agg], topics: {{include: ["app[.].*"]}}}}
"""
DECLARED = ", schema_registry: {url: 'http://localhost:2'}"
SEVEN, NINE = SchemaId("id", "7"), SchemaId("id", "9")
ORDER = RegisteredSchema("AVRO", "aaaaaaaaaaaa", ("shared", "app.orders-value"))
OTHER = RegisteredSchema("AVRO", "bbbbbbbbbbbb", ("app.users-value",))


def estate(tmp_path: Path, dc1: str = DECLARED, agg: str = DECLARED) -> Topology:
    return expand(load([write(tmp_path, x=TREE.format(dc1=dc1, agg=agg))]))


def pair_of(topology: Topology, topics: Mapping[str, int] | None = None) -> PairTopics:
    clusters = topology.clusters
    return PairTopics(clusters["dc1"], clusters["agg"], "dc1", {"app.orders": 3} if topics is None else topics)


def sample(
    ids: Mapping[Part, Mapping[SchemaId, int]] | None = None, topic: str = "app.orders"
) -> dict[str, TopicSample]:
    return {topic: TopicSample(topic, 20, ids or {"value": {SEVEN: 20}})}


def lines(pair: PairSchemas) -> list[str]:
    return [f"{row.status} {row.where}: {row.what}: {row.effect} | {row.fix}" for row in schema_rows([pair])]


@pytest.mark.parametrize(
    ("source", "target", "state", "words"),
    [
        (ORDER, ORDER, "equal", []),
        (ORDER, RegisteredSchema("AVRO", "aaaaaaaaaaaa", ("elsewhere",)), "equal", []),
        (
            ORDER,
            None,
            "absent",
            ["failed agg", "schema 7 (app.orders-value) in values of topic app.orders", "aaaaaaaaaaaa"],
        ),
        (ORDER, OTHER, "differs", ["failed agg", "schema 7 (app.orders-value)", "aaaaaaaaaaaa", "bbbbbbbbbbbb"]),
        (ORDER, RegisteredSchema("AVRO", "aaaaaaaaaaaa", (), missing="version 1 of C"), "unusable", ["version 1 of C"]),
        (None, OTHER, "no id", []),
        (None, None, "no id", []),
        (ORDER, CannotResolve("no GUIDs here"), "not judged", ["unknown agg", "not judged", "no GUIDs here"]),
        (RegisteredSchema("AVRO", "a", missing="C"), ORDER, "not judged", ["source's registry itself lacks C"]),
    ],
)
def test_what_an_id_is_judged_by(
    source: RegisteredSchema | None, target: Any, state: str, words: list[str], tmp_path: Path
) -> None:
    judged = judge_pair(pair_of(estate(tmp_path)), sample(), {SEVEN: source}, {SEVEN: target})
    (verdict,) = judged.verdicts
    assert verdict.state == state
    assert verdict.records == 20
    shown = "\n".join(lines(judged))
    for word in words or ["ok agg"]:
        assert word in shown
    assert ("mm2mgr copies no schemas" in shown) is (state in ("differs", "absent", "unusable"))


def test_a_zero_byte_that_is_no_id_is_no_error(tmp_path: Path) -> None:
    ids = {SchemaId("id", str(number)): 1 for number in range(100, 120)}
    judged = judge_pair(pair_of(estate(tmp_path)), sample({"value": ids}), dict.fromkeys(ids), dict.fromkeys(ids))
    (line,) = lines(judged)
    assert line.startswith("ok agg: schemas of dc1->agg: 0 ids with equal schemas: data that begin with a zero byte")


@pytest.mark.parametrize(
    ("dc1", "agg", "where", "text"),
    [
        (DECLARED, "", "agg", "records of 1 topic (app.orders) carry schema ids, and agg declares no schema registry"),
        ("", DECLARED, "dc1", "seem to carry schema ids, and dc1 declares no schema registry"),
    ],
)
def test_a_registry_that_is_not_declared_is_said_and_nothing_is_judged(
    dc1: str, agg: str, where: str, text: str, tmp_path: Path
) -> None:
    sides = ({SEVEN: ORDER}, None) if dc1 else (None, {SEVEN: ORDER})
    judged = judge_pair(pair_of(estate(tmp_path, dc1, agg)), sample(), *sides)
    (line,) = lines(judged)
    assert line.startswith(f"unknown {where}: schemas of dc1->agg: not judged:")
    assert text in line
    assert "schema_registry: {url: …}" in line
    no_ids = judge_pair(pair_of(estate(tmp_path, dc1, agg)), sample({}) | {}, *sides)
    assert {verdict.state for verdict in no_ids.verdicts} == {"not judged"} or not no_ids.verdicts


@pytest.mark.parametrize("side", [0, 1])
def test_a_registry_that_is_down_is_not_judged(side: int, tmp_path: Path) -> None:
    down = RegistryError("schema registry of 'x': no URL answered", hint="check that it runs")
    sides: list[Any] = [{SEVEN: ORDER}, {SEVEN: ORDER}]
    sides[side] = down
    judged = judge_pair(pair_of(estate(tmp_path)), sample(), *sides)
    (line,) = lines(judged)
    assert line.startswith(f"unknown {('dc1', 'agg')[side]}: schemas of dc1->agg: not judged:")
    assert "no URL answered" in line
    assert "check that it runs" in line


def test_topics_that_could_not_be_read_are_named_with_the_right(tmp_path: Path) -> None:
    samples = {"app.a": TopicSample("app.a", failure="Broker: Topic authorization failed")}
    judged = judge_pair(pair_of(estate(tmp_path), {"app.a": 1, "app.late": 1}), samples, {}, {})
    refused, late = lines(judged)
    assert "mm2mgr's login needs Read on topic app.a" in refused
    assert "not read in time (app.late)" in late
    silent = judge_pair(pair_of(estate(tmp_path)), KafkaError("dc1: no broker answered"), {}, {})
    assert "no broker answered" in lines(silent)[0]


def test_a_deleted_version_that_is_still_read_is_equal(tmp_path: Path) -> None:
    gone = RegisteredSchema("AVRO", ORDER.fingerprint, ORDER.subjects, is_deleted=True)
    (verdict,) = judge_pair(pair_of(estate(tmp_path)), sample(), {SEVEN: ORDER}, {SEVEN: gone}).verdicts
    assert (verdict.state, verdict.is_deleted) == ("equal", True)


# --- asked ------------------------------------------------------------------------------------------------------------


def ask(
    topology: Topology, samples: Mapping[str, TopicSample], patch: pytest.MonkeyPatch
) -> tuple[PairSchemas, Snapshot]:
    asked: list[Question[Any]] = []

    def answer(_: object, questions: list[Question[Any]]) -> dict[Question[Any], Any]:
        asked.extend(questions)
        return dict.fromkeys(questions, samples)

    patch.setattr(live_read, "ask_kafka", answer)
    topics = dict.fromkeys(samples, 1)
    steps = find_schemas([pair_of(topology, topics)])
    (judged,), snapshot = wait_for(run_steps(steps, Clusters.of_tree(topology), Limits(connect_seconds=5)))
    assert [type(question) for question in asked] == [SchemaIds]
    return judged, snapshot


def test_ids_are_looked_up_on_both_sides_with_each_ones_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_WORD", "s3cret-word")
    order = Schema(7, "app.orders-value", '{"type":"record","name":"O","fields":[]}')
    here = FakeRegistry([order, Schema(9, "app.users-value", '"string"')], login="Bearer s3cret-word")
    there = FakeRegistry([Schema(7, "x", '{ "name":"O", "type":"record", "fields":[] }'), Schema(9, "y", '"bytes"')])
    with serving(here) as one, serving(there) as other:
        auth = f", schema_registry: {{url: '{one}', auth: {{bearer: '${{env:REGISTRY_WORD}}'}}}}"
        topology = estate(tmp_path, auth, f", schema_registry: {{url: '{other}'}}")
        samples = sample({"value": {SEVEN: 2, NINE: 1}, "key": {SEVEN: 1}})
        judged, snapshot = ask(topology, samples, monkeypatch)
    assert [(verdict.part, str(verdict.schema_id), verdict.state) for verdict in judged.verdicts] == [
        ("value", "9", "differs"),
        ("key", "7", "equal"),
        ("value", "7", "equal"),
    ]
    assert [path for path in here.requests if path == "/schemas/ids/7"] == ["/schemas/ids/7"]  # once, for key and value
    assert "s3cret-word" not in f"{snapshot}{judged}{topology}"


def test_without_a_registry_no_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_read, "ask_kafka", lambda *_: pytest.fail("asked"))
    topology = estate(tmp_path, "", "")
    found, snapshot = wait_for(run_steps(find_schemas([pair_of(topology)]), Clusters.of_tree(topology), Limits()))
    assert (found, dict(snapshot.answers)) == ([], {})


def test_a_login_that_is_not_on_this_machine_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY_WORD", raising=False)
    with serving(FakeRegistry()) as url:
        auth = f", schema_registry: {{url: '{url}', auth: {{bearer: '${{env:REGISTRY_WORD}}'}}}}"
        judged, _ = ask(estate(tmp_path, auth), sample(), monkeypatch)
    line = next(line for line in lines(judged) if line.startswith("unknown dc1"))
    assert "schema registry of 'dc1', auth.bearer" in line


def test_so_many_ids_are_looked_up_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MOST_LOOKUPS", 10)
    here, there = FakeRegistry(), FakeRegistry()
    with serving(here) as one, serving(there) as other:
        topology = estate(tmp_path, *(f", schema_registry: {{url: '{url}'}}" for url in (one, other)))
        ids = {SchemaId("id", str(number)): 1 for number in range(100, 115)}
        judged, _ = ask(topology, sample({"value": ids}), monkeypatch)
    assert len(here.requests) == 10
    assert sum(verdict.state == "not judged" for verdict in judged.verdicts) == 5
    assert "no more are looked up" in "\n".join(lines(judged))


def test_a_snapshot_says_that_it_has_none(tmp_path: Path) -> None:
    topology = estate(tmp_path)
    steps = find_schemas([pair_of(topology)])
    (judged,), _ = wait_for(run_steps(steps, Clusters.of_tree(topology), Limits(), Snapshot(taken_at=1.0)))
    (line,) = lines(judged)
    assert "unknown: not in the snapshot" in line
    assert line.endswith("no snapshot holds records: ask the clusters")
    assert not {SchemaIds.__name__, SchemasById.__name__} & KINDS.keys()


def test_errors_of_one_id_hide_no_other(tmp_path: Path) -> None:
    sides: dict[SchemaId, Any] = {SEVEN: ORDER, NINE: Mm2mgrError("not this one")}
    judged = judge_pair(
        pair_of(estate(tmp_path)), sample({"value": {SEVEN: 1, NINE: 1}}), sides, {SEVEN: None, NINE: None}
    )
    assert [verdict.state for verdict in judged.verdicts] == ["absent", "not judged"]


def test_a_clusters_own_registry_replaces_that_of_the_defaults_as_a_whole(tmp_path: Path) -> None:
    basic = "{username: u, password: '${env:P}'}"
    defaults = f"defaults: {{clusters: {{schema_registry: {{url: 'http://r:1', auth: {{basic: {basic}}}}}}}}}\n"
    own = ", schema_registry: {url: 'http://own:1', auth: {bearer: '${env:T}'}}"
    topology = expand(load([write(tmp_path, x=defaults + TREE.format(dc1=own, agg=""))]))
    mine, shared = (topology.clusters[alias].model.schema_registry for alias in ("dc1", "agg"))
    assert mine is not None
    assert shared is not None
    assert (mine.url, shared.url) == (["http://own:1"], ["http://r:1"])
    assert mine.auth is not None
    assert (mine.auth.basic, mine.auth.bearer) == (None, "${env:T}")


def test_a_password_in_clear_is_a_finding_of_lint(tmp_path: Path) -> None:
    own = ", schema_registry: {url: 'http://own:1', auth: {bearer: 'clear-token'}}"
    spec = load([write(tmp_path, x=TREE.format(dc1=own, agg=""))])
    topology = expand(spec)
    found = lint(from_tree(topology, render(topology), spec))
    said = [f"{finding.message} {finding.fix}" for finding in found if "schema registry of 'dc1'" in finding.message]
    assert said
    assert "clear-token" not in "".join(said)
