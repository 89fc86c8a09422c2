"""What an import writes and reports: the tree of a file, a row for every key, no secret anywhere, and nothing half."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.comparison.differences import WorkerClients, compare
from mm2mgr.errors import InvalidArgument, Mm2mgrError, SpecError
from mm2mgr.formats.connectors import FoundWorkers
from mm2mgr.formats.recognise import read_file
from mm2mgr.formats.sources import read_sources
from mm2mgr.imports.tree import ImportedTree, ImportOptions, import_tree
from mm2mgr.json_values import to_json
from mm2mgr.operations import Workspace, import_sources

DEDICATED = r"""clusters = A, B
A.bootstrap.servers = a1:9092, a2:9092
B.bootstrap.servers = b1:9092
A.security.protocol = SASL_SSL
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2-x";
A->B.enabled = true
A->B.topics = foo.*
B->A.enable = true
replication.factor = 1
B.producer.linger.ms = 50
A.consumer.max.poll.records = 5000
producer.batch.size = 1000
tasks.max = 4
offset.storage.replication.factor = 1
refresh.topics.interval.seconds = 600
"""
SOURCE = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "dc1",
    "target.cluster.alias": "agg",
    "source.cluster.bootstrap.servers": "dc1-k1:9092",
    "target.cluster.bootstrap.servers": "agg-k1:9092",
}


def imported(text: str, name: str = "mm2.properties", version: str = "3.9", **options: object) -> ImportedTree:
    file = read_file(Path(name), text.encode())
    return import_tree([file], ImportOptions(owner="team", version=version, **options))  # type: ignore[arg-type]


def of_connectors(*configs: Mapping[str, object], version: str = "4.3") -> ImportedTree:
    dump = [{"name": config.get("name", f"c{number}"), "config": config} for number, config in enumerate(configs)]
    return imported(json.dumps(dump, indent=1), "east.json", version)


def outcomes(tree: ImportedTree) -> dict[str, str]:
    return {row.key: row.outcome for row in tree.report.rows}


def test_a_dedicated_mirror_maker_becomes_a_flow_that_goes_on_where_it_stopped() -> None:
    tree = imported(DEDICATED)
    flows = tree.files["flows.yaml"]
    assert "sources: [A]" in flows
    assert "targets: [B]" in flows
    assert "topics: {include: [foo.*]}  # mm2.properties:8" in flows
    assert "tasks: {max: 4}  # mm2.properties:14" in flows
    assert "max.poll.records: '5000'  # mm2.properties:12" in flows
    assert "linger.ms: '50'" in flows
    assert "{from: {dedicated: A->B}, to: 'mirror:A->B'}" in tree.files["handover.yaml"]
    assert "adopt" not in tree.files["handover.yaml"], "Connect has no connector of a dedicated MirrorMaker"
    assert outcomes(tree) == {
        "clusters": "kept",
        "A.bootstrap.servers": "kept",
        "B.bootstrap.servers": "kept",
        "A.security.protocol": "kept",
        "A.sasl.mechanism": "kept",
        "A.sasl.jaas.config": "different",
        "A->B.enabled": "kept",
        "A->B.topics": "kept",
        "B->A.enable": "nothing",
        "replication.factor": "kept",
        "B.producer.linger.ms": "kept",
        "A.consumer.max.poll.records": "kept",
        "producer.batch.size": "nothing",
        "tasks.max": "kept",
        "offset.storage.replication.factor": "nothing",
        "refresh.topics.interval.seconds": "default",
    }
    assert tree.report.sum_line == "16 keys: 11 kept, 3 did nothing, 1 defaults, 1 needs a decision"


PLAIN = """clusters = A, B, C
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
C.bootstrap.servers = c1:9092
A->B.enabled = true
"""


@pytest.mark.parametrize(
    ("more", "unneeded", "needs_decision"),
    [
        ("", "A->B A->C B->C C->A C->B", ()),  # only B->A writes to the source of the flow
        ("C->B.enabled = true", "A->B A->C C->A C->B", ()),  # and B->C, for C->B
        ("B->C.enabled = true", "A->B A->C B->C C->A", ()),  # C->B writes heartbeats of B, too
        ("B->C.enabled = true\nC->B.emit.heartbeats.enabled = false", "A->C B->C C->A", ("A->B",)),
        ("A->B.emit.heartbeats.interval.seconds = 5", "A->C B->C C->A C->B", ("A->B",)),
    ],
)
def test_heartbeats_that_no_flow_mirrors_end_without_a_decision(
    more: str, unneeded: str, needs_decision: tuple[str, ...]
) -> None:
    tree = imported(PLAIN + more)
    left = {item.connector.partition(" ")[0]: item.is_unneeded for item in tree.report.left_out}
    assert {pair for pair, unneeded in left.items() if not unneeded} == set(needs_decision)
    assert {pair for pair, is_unneeded in left.items() if is_unneeded} == set(unneeded.split())
    assert bool(tree.report.decisions) is bool(needs_decision)


def test_no_secret_is_written_printed_or_reported() -> None:
    tree = imported(DEDICATED)
    assert 'password="${env:A_SASL_PASSWORD}"' in tree.files["clusters.yaml"]
    assert [item.variable for item in tree.report.placeholders] == ["A_SASL_PASSWORD"]
    assert "hunter2" not in "".join(tree.files.values()) + json.dumps(to_json(tree.report)) + repr(tree)


def test_what_is_wrong_by_hand_goes_on_as_it_behaves_and_is_told_with_the_fix() -> None:
    wrong = {
        **SOURCE,
        "topics": "orders",
        "topics.blacklist": "x.*",
        "linger.ms": "100",
        "target.producer.batch.size": "100000",
        "errors.tolerance": "all",
    }
    tree = of_connectors(wrong)
    [connector] = tree.connectors
    assert "key.converter" not in connector.config, "converters that are missing stay so"
    assert "topics.exclude" not in connector.config, "Kafka 4 does not read the blacklist, so its default goes on"
    assert connector.config["errors.tolerance"] == "all"
    assert not [key for key in connector.config if "linger" in key or "batch" in key]
    rows = {row.key: row for row in tree.report.rows}
    assert (rows["linger.ms"].outcome, rows["linger.ms"].fix) == ("nothing", "write producer.override.linger.ms=100")
    assert "removed after 3.9" in rows["topics.blacklist"].reason
    assert {item.rule for item in tree.report.advice} == {"converter", "errors-tolerated"}
    old = of_connectors(wrong, version="3.9")
    assert old.connectors[0].config["topics.exclude"] == "x.*", "Kafka 3.9 reads it"


@pytest.mark.parametrize("version", ["2.8", "3.9", "4.3"])
def test_clients_of_connect_that_a_connector_sends_nowhere_stay_on_the_workers_kafka(version: str) -> None:
    elsewhere = {f"{kind}.override.bootstrap.servers": "agg-k1:9092" for kind in ("producer", "consumer")}
    half = {**SOURCE, "topics": "orders", **elsewhere}
    records = {"producer.override.bootstrap.servers": "agg-k1:9092"}
    checkpoint = {**SOURCE, **records, "connector.class": "MirrorCheckpointConnector", "topics": "orders"}
    tree = of_connectors(half, checkpoint, version=version)
    overrides = {
        connector.type: {key for key in connector.config if ".override." in key or key.startswith("offsets.")}
        for connector in tree.connectors
    }
    assert overrides["source"] == elsewhere.keys(), "a missing admin.override.bootstrap.servers is kept missing"
    assert overrides["checkpoint"] == records.keys()


def test_an_adopted_connector_needs_no_write() -> None:
    config = {
        **SOURCE,
        "name": "legacy",
        "topics": r"app\.orders,logs.*",
        "tasks.max": "3",
        "sync.topic.acls.enabled": "true",
    }
    checkpoint = {
        **SOURCE,
        "name": "legacy-cp",
        "connector.class": "MirrorCheckpointConnector",
        "groups": "app-.*",
        "topics": "logs.*",
        "sync.group.offsets.enabled": "true",
    }
    tree = of_connectors(config, checkpoint)
    live = {"legacy": config, "legacy-cp": checkpoint}
    assert {connector.name for connector in tree.connectors} == set(live)
    for connector in tree.connectors:
        assert compare(connector, live[connector.name], WorkerClients("4.3"))[0] == ()
    assert "{connect: agg, connector: legacy}" in tree.files["handover.yaml"]


IDLE = {
    **{"linger.ms": "100", "foo": "bar", "target.producer.batch.size": "5", "source.cluster.client.id": "me"},
    **{"topics.blacklist": "x.*", "security.protocol": "SSL", "groups.blacklist": "g.*", "rename.topics": "a:b"},
    **{"offsets.storage.topic": "mine", "metric.names.formats": "modern", "tasks.max.enforce": "false"},
}


def of_running(version: str, *configs: Mapping[str, str]) -> ImportedTree:
    dump = [{"name": config["name"], "config": config} for config in configs]
    file = read_file(Path("east.json"), json.dumps(dump, indent=1).encode())
    workers = FoundWorkers({}, version=version)
    running = [replace(connector, state="RUNNING", owner="east", workers=workers) for connector in file.connectors]
    return import_tree([replace(file, connectors=tuple(running))], ImportOptions(owner="team"))


@pytest.mark.parametrize("version", ["2.8", "3.9", "4.3"])
def test_what_runs_keeps_every_key_that_a_plan_would_take_out(version: str) -> None:
    source = {**SOURCE, "name": "by hand", "topics": "orders", **IDLE}
    checkpoint = {**source, "name": "offsets", "connector.class": "MirrorCheckpointConnector"}
    live = {"by hand": source, "offsets": checkpoint}
    tree = of_running(version, *live.values())
    assert {connector.name for connector in tree.connectors} == set(live)
    for connector in tree.connectors:
        assert compare(connector, live[connector.name], WorkerClients(version))[0] == ()
    rows = {row.key: row for row in tree.report.rows if row.line < 20}
    for key in ("linger.ms", "foo"):
        assert (rows[key].outcome, rows[key].where) == ("nothing", f"flows.by-hand.verbatim.source.{key}")
        assert rows[key].reason.endswith("; kept, since without it its tasks would restart")
    assert rows["topics.blacklist"].outcome == ("nothing" if version == "4.3" else "kept")
    assert tree.report.decisions == 0


def test_a_key_of_what_runs_that_no_tree_can_hold_needs_a_decision() -> None:
    tree = of_running("4.3", {**SOURCE, "name": "by hand", "topics": "orders", "odd key": "5"})
    [row] = [row for row in tree.report.rows if row.key == "odd key"]
    assert row.outcome == "lost"
    assert "a tree cannot hold it, so an apply takes it out: its tasks restart" in row.reason


def test_connectors_that_agree_are_one_flow_and_only_names_stand_below_it() -> None:
    names = ["dc1", "dc2", "dc3"]
    configs = [
        {
            **SOURCE,
            "name": f"{name}-to-agg-orders",
            "source.cluster.alias": name,
            "source.cluster.bootstrap.servers": f"{name}-k1:9092",
            "topics": "orders",
            "tasks.max": "2" if name == "dc3" else "4",
        }
        for name in names
    ]
    flows = of_connectors(*configs).files["flows.yaml"]
    assert "  orders:\n    sources: [dc1, dc2, dc3]\n" in flows
    assert "dc1->agg: {connector_name: dc1-to-agg-orders}" in flows
    assert "dc3->agg: {tasks: {max: 2}, connector_name: dc3-to-agg-orders}" in flows or "max: 2" in flows


def declared_flows(*pairs: str) -> dict[str, Any]:
    aliases = dict.fromkeys(alias for pair in pairs for alias in pair.split("->"))
    lines = [f"clusters = {', '.join(aliases)}"]
    lines += [f"{alias}.bootstrap.servers = {alias}:9092" for alias in aliases]
    lines += [f"{pair}.enabled = true" for pair in pairs]
    return yaml.safe_load(imported("\n".join(lines)).files["flows.yaml"])["flows"]


def test_a_dedicated_mirror_maker_without_checkpoints_is_a_flow_without_them() -> None:
    switched_off = "emit.checkpoints.enabled = false\ngroups = g.*\n"
    tree = imported(DEDICATED + switched_off)
    assert "checkpoints: false" in tree.files["flows.yaml"]
    assert "emit.checkpoints" not in "".join(tree.files.values()), "Connect refuses a connector with it"
    assert {connector.type for connector in tree.connectors} == {"source", "heartbeat"}
    assert outcomes(tree)["emit.checkpoints.enabled"] == "kept"
    assert outcomes(tree)["groups"] == "nothing"
    assert not tree.report.differences
    assert ["HeartbeatConnector" in left.connector for left in tree.report.left_out] == [True]


def test_pairs_that_have_nothing_in_common_are_flows_of_their_own() -> None:
    flows = declared_flows("s1->tgt", "a->b")
    assert {name: (flow["sources"], flow["targets"]) for name, flow in flows.items()} == {
        "mirror-tgt": (["s1"], ["tgt"]),
        "mirror-b": (["a"], ["b"]),
    }
    assert not any("except" in flow for flow in flows.values())
    grid = [f"{source}->{target}" for source in "pqrs" for target in "tuvw"]
    flows = declared_flows(*grid, "a->b")
    assert [(len(flow["sources"]), len(flow["targets"])) for flow in flows.values()] == [(4, 4), (1, 1)]


def test_pairs_that_are_nearly_all_of_sources_and_targets_are_a_flow_with_exceptions() -> None:
    flows = declared_flows("p->x", "p->y", "q->x")
    assert flows["mirror"]["except"] == ["q->y"]
    both_ways = declared_flows("p->q", "q->p")
    assert sorted(both_ways["mirror"]["except"]) == ["p->p", "q->q"]
    ring = declared_flows("p->q", "q->r", "r->p")
    assert sorted(ring) == ["mirror-p", "mirror-q", "mirror-r"]


def test_two_aliases_of_the_same_brokers_are_told_and_not_merged() -> None:
    twin = {**SOURCE, "source.cluster.alias": "dc1-again", "topics": "logs"}
    tree = of_connectors({**SOURCE, "topics": "orders"}, {**SOURCE, "topics": "payments"}, twin)
    [left] = tree.report.left_out
    assert "dc1-again has brokers of dc1" in left.reason
    assert "dc1-again" not in tree.files["clusters.yaml"]
    assert tree.report.decisions


def test_one_alias_with_other_brokers_keeps_them() -> None:
    other = {**SOURCE, "source.cluster.bootstrap.servers": "other-k1:9092", "topics": "logs"}
    tree = of_connectors({**SOURCE, "topics": "orders"}, {**SOURCE, "topics": "payments"}, other)
    servers = sorted(connector.config["source.cluster.bootstrap.servers"] for connector in tree.connectors)
    assert servers == ["dc1-k1:9092", "dc1-k1:9092", "other-k1:9092"]
    assert any("alias dc1" in note and "other-k1:9092" in note for note in tree.report.notes)


@pytest.mark.parametrize("value", ["{{ brokers }}", "${BROKERS}", "{{ lookup('x') }}:9092"])
def test_templates_are_placeholders_and_are_told(value: str) -> None:
    tree = of_connectors({**SOURCE, "source.cluster.bootstrap.servers": value, "topics": "orders"})
    assert "{{" not in "".join(tree.files.values())
    assert tree.report.placeholders


def test_java_reads_the_file_and_not_what_was_meant() -> None:
    tree = imported(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topics = logs # all of them\n"
    )
    [row] = [row for row in tree.report.rows if row.key == "A->B.topics"]
    assert row.outcome == "different"
    assert "which is not what was meant" in row.reason
    source = next(connector for connector in tree.connectors if connector.type == "source")
    assert source.config["topics"] == "logs # all of them"


def test_duplicate_keys_crlf_and_the_last_line_wins() -> None:
    tree = imported(DEDICATED.replace("\n", "\r\n") + "tasks.max = 7\r\n")
    assert "tasks: {max: 7}" in tree.files["flows.yaml"]
    rows = [row for row in tree.report.rows if row.key == "tasks.max"]
    assert [row.outcome for row in rows] == ["nothing", "kept"]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_the_tree_is_written_whole_loads_and_renders(tmp_path: Path) -> None:
    file, out = tmp_path / "mm2.properties", tmp_path / "new" / "clusters"
    file.write_text(DEDICATED)
    result = import_sources([file], ImportOptions(owner="team"), out)
    assert sorted(path.name for path in out.iterdir()) == ["clusters.yaml", "flows.yaml", "handover.yaml"]
    assert result.written == tuple(out / name for name in result.tree.files)
    assert [connector.name for connector in Workspace((out,)).connectors] == [
        "mm2.A.B.heartbeat",
        "mm2.A.B.source.mirror",
        "mm2.A.B.checkpoint",
    ]
    assert [path.name for path in out.parent.iterdir()] == ["clusters"], "no draft is left"


def test_an_empty_folder_in_which_a_person_stands_gets_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "mm2.properties", tmp_path / "clusters"
    file.write_text(DEDICATED)
    out.mkdir()
    before = out.stat().st_ino
    monkeypatch.chdir(out)
    import_sources([file], ImportOptions(owner="team"), Path())
    assert sorted(os.listdir()) == ["clusters.yaml", "flows.yaml", "handover.yaml"]
    assert out.stat().st_ino == before, "the folder is still the one that shells and mounts know"
    assert sorted(tmp_path.iterdir()) == [out, file], "no draft is left"


def test_a_failure_leaves_an_empty_folder_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "mm2.properties", tmp_path / "clusters"
    file.write_text(DEDICATED)
    out.mkdir()
    rename, calls = Path.rename, list[str]()

    def fail_at_the_second(source: Path, target: Path) -> Path:
        calls.append(target.name)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", fail_at_the_second)
    with pytest.raises(Mm2mgrError, match="No space left on device; nothing was written"):
        import_sources([file], ImportOptions(owner="team"), out)
    assert len(calls) == 2
    assert list(out.iterdir()) == []


def test_nothing_is_written_where_something_is(tmp_path: Path) -> None:
    file, out = tmp_path / "mm2.properties", tmp_path / "clusters"
    file.write_text(DEDICATED)
    out.mkdir()
    (out / "mine.txt").write_text("x")
    with pytest.raises(Mm2mgrError, match="holds files already; nothing was written"):
        import_sources([file], ImportOptions(owner="team"), out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Mm2mgrError, match="is no folder"):
        import_sources([file], ImportOptions(owner="team"), link)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    file, parent = tmp_path / "mm2.properties", tmp_path / "closed"
    file.write_text(DEDICATED)
    parent.mkdir(mode=0o500)
    with pytest.raises(Mm2mgrError, match="cannot be written"):
        import_sources([file], ImportOptions(owner="team"), parent / "clusters")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'{"name": "x", "config": {"a": 1,}}', "a comma before"),
        ("a.json", b"[" * 100_000, "nested deeper than 64 levels"),
        ("a.properties", b"clusters = A\0", "NUL byte"),
        ("a.properties", b"\xef\xbb\xbfclusters = A, B\n", "byte order mark"),
        ("a.properties", b"x" * 20_000_001, "larger than"),
        ("a.yaml", b"a: &a [x,x]\n" + b"".join(b"b%d: &b%d [*a,*a]\n" % (n, n) for n in range(3)), ""),
    ],
    ids=["comma", "deep", "nul", "bom", "20 MB", "no connector"],
)
def test_hostile_input_is_a_clear_error_and_writes_nothing(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    file, out = tmp_path / name, tmp_path / "clusters"
    file.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        import_sources([file], ImportOptions(owner="team"), out)
    assert name in caught.value.message
    assert message in caught.value.message
    assert not out.exists()


def test_a_new_tree_needs_an_owner(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(DEDICATED)
    with pytest.raises(InvalidArgument, match="is needed"):
        import_sources([file], ImportOptions(), tmp_path / "clusters")
    assert import_sources([file]).report.rows, "the report alone needs none"


def test_a_version_or_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(DEDICATED)
    with pytest.raises(InvalidArgument, match="no Kafka version"):
        import_sources([file], ImportOptions(version="new"))
    with pytest.raises(InvalidArgument, match="http"):
        import_sources([file], ImportOptions(urls={"east": ["ftp://x"]}))


CORPUS = Path(__file__).resolve().parents[1] / "lint" / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.matrix
def test_every_config_that_lint_is_held_by_is_imported_or_refused(path: Path) -> None:
    try:
        sources = read_sources([path], topics=".*")
    except SpecError:
        return
    tree = import_tree([replace(file, within=()) for file in sources.files], ImportOptions(owner="team"))
    assert "\n".join(tree.files.values()).strip()


def test_a_pair_of_a_cluster_that_is_not_listed_did_nothing(tmp_path: Path) -> None:
    lines = "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\na->b.topics = x\n"
    (tmp_path / "mm2.properties").write_text(f"{lines}a->c.enabled = true\n")
    imported = import_tree([read_file(tmp_path / "mm2.properties")], ImportOptions(owner="team"))
    rows = {row.key: row for row in imported.report.rows}
    assert (rows["a->b.enabled"].outcome, rows["a->c.enabled"].outcome) == ("kept", "nothing")
