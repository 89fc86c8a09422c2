"""`snapshot`, and commands that answer from its file: the same as from the clusters, which are not asked."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml

from mm2mgr.cli import main
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live import read as live_read
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs, list_topics
from mm2mgr.live.questions import PartitionCounts
from mm2mgr.live.reach import KafkaReach
from mm2mgr.live.snapshot import Snapshot
from mm2mgr.live.snapshot_file import KINDS, from_stored, hints_of, to_stored
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.observe.state_file import state_file
from mm2mgr.operations import Choice, Workspace, apply, forget_history, pause, reconcile, watch
from mm2mgr.partitions import Offsets
from mm2mgr.plan.history import HistoryEntry
from tests.asking import answer_kafka
from tests.hostile.probes import Ground
from tests.plan.site import Site

from .command import Command
from .load import measured

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("plan",),
    ("plan", "--prune"),
    ("status",),
    ("describe", "orders:a->east"),
    ("lag",),
    ("lag", "--by", "partition"),
    ("who", "orders"),
    ("who", "orders", "--cluster", "east"),
    ("topics", "orders:a->east", "--all"),
    ("drift",),
    ("lint", "--connect", "east", "--no-ask-brokers"),
    ("size", "--store", "store", "--dry-run"),
    ("fleet", "--store", "store"),
    ("simulate", "--store", "store", "--traffic", "2"),
    ("check",),
    ("check", "orders:a->east"),
    ("failover", "check", "a->east", "--sample", "0"),
)
MOVING = {"taken_at", "since", "heartbeat_seconds", "seconds"}


@pytest.fixture
def ground(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """Return the estate, applied, with one connector changed by hand, one paused and one unknown, and an idle history."""
    made = Ground(site, mm2mgr)
    _, *others = ObserveOptions.__init__.__defaults__ or ()
    monkeypatch.setattr(ObserveOptions.__init__, "__defaults__", (made.read_kafka, *others))
    answer_kafka(site.patch, texts=lambda _: dict(made.texts), idle=True)
    made.settle()
    east = site.east.connectors
    east["mm2.a.east.source.orders"].config["sync.topic.acls.enabled"] = "true"
    east["mm2.a.east.source.logs"].state = "PAUSED"
    site.east.add("theirs", {**east["mm2.a.east.source.orders"].config, "mm2mgr.owner": "others", "name": "theirs"})
    del site.west.connectors["mm2.a.west.checkpoint"]
    measured(mm2mgr.folder / "store", {("a", "orders", 0): 20e6, ("a", "logs.web", 0): 1e6})
    return made


def forget_looks(mm2mgr: Command) -> None:
    shutil.rmtree(mm2mgr.folder.parent / "state", ignore_errors=True)


def still(value: Any) -> Any:
    """Return a JSON value without what moves with the clock."""
    if isinstance(value, dict):
        return {key: still(part) for key, part in value.items() if key not in MOVING}
    return [still(part) for part in value] if isinstance(value, list) else value


def run(mm2mgr: Command, arguments: Sequence[str | Path]) -> tuple[int, Any]:
    forget_looks(mm2mgr)
    mm2mgr.monkeypatch.setattr(sys, "argv", ["mm2mgr", *map(str, arguments), "-o", "json"])
    mm2mgr.capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = mm2mgr.capsys.readouterr()
    assert out.startswith(("{", "[")), f"{arguments}: {err}"
    says = re.findall("(?:reading|asking|looking)[^\n]*(?:Connect|Kafka|cluster)", err)
    assert says == [] or "--snapshot" not in arguments, f"{arguments}: no cluster is asked, and it says {says}"
    assert "reading the snapshot" not in err or "--snapshot" in arguments
    return int(ended.value.code or 0), still(json.loads(out))


def differences(one: tuple[int, Any], other: tuple[int, Any]) -> list[str]:
    texts = (json.dumps(ended, indent=1).splitlines() for ended in (one, other))
    return list(difflib.unified_diff(*texts, lineterm="", n=1))


def test_commands_answer_from_a_snapshot_as_from_the_clusters(ground: Ground, mm2mgr: Command) -> None:
    file = mm2mgr.folder.parent / "night.json"
    forget_looks(mm2mgr)
    taken = mm2mgr("snapshot", "--out", file, "-o", "json").json
    assert taken["failed"] == {}
    live = {command: run(mm2mgr, command) for command in COMMANDS}

    def asked(*_: object) -> None:
        raise AssertionError("a cluster was asked")

    ground.site.patch.setattr(live_read, "ask_kafka", asked)
    ground.site.patch.setattr(live_read, "ConnectClient", asked)
    for fake in ground.site.fakes.values():
        fake.requests.clear()
    before = mm2mgr.files()
    for command in COMMANDS:
        assert differences(live[command], run(mm2mgr, (*command, "--snapshot", file))) == [], command
    assert [request for fake in ground.site.fakes.values() for request in fake.requests] == []
    assert mm2mgr.files() == before
    actions = {change["action"] for part in live["plan",][1]["clusters"] for change in part["changes"]}
    assert actions >= {"create", "blocked", "no-op"}
    assert {sizing["flow_id"] for sizing in live[COMMANDS[11]][1]["sizings"]} >= {"orders:a->east", "logs:a->west"}
    counts = live["check",][1]["counts"]
    assert min(counts["missing"], counts["ok"]) > 0, counts


SOURCES = {"east": 2, "west": 1}
WORKER, SHOWN = 3, 2  # root, plugins and the probe; configs and states
REQUESTS: dict[tuple[str, ...], Callable[[int], int]] = {
    ("plan",): lambda _: 2,
    ("status",): lambda sources: SHOWN + 2 + 2 * sources,  # worker, exactly-once; tasks and offsets
    ("lag",): lambda sources: SHOWN + 2 + 2 * sources,
    ("who", "orders"): lambda _: SHOWN + WORKER,
    ("topics", "orders:a->east"): lambda _: 0,
    ("drift",): lambda _: SHOWN,
    ("lint", "--connect", "east", "--connect", "west", "--no-ask-brokers"): lambda _: SHOWN + WORKER,
    ("size", "--store", "store", "--dry-run"): lambda sources: 1 + sources,  # states; the tasks of each
    ("fleet", "--store", "store"): lambda sources: 1 + sources,
    ("simulate", "--store", "store", "--traffic", "2"): lambda sources: 1 + sources,
    ("check",): lambda _: 1 + WORKER,
    ("snapshot", "--out", "night.json"): lambda sources: SHOWN + WORKER + 1 + 2 * sources,  # and exactly-once
}


@pytest.mark.parametrize("command", REQUESTS, ids=" ".join)
def test_what_each_command_asks_of_a_connect_cluster(ground: Ground, mm2mgr: Command, command: tuple[str, ...]) -> None:
    ground.reset()
    run(mm2mgr, command)
    for name, fake in ground.site.fakes.items():
        asked = [f"{request.method} {request.path}?{request.query}" for request in fake.requests]
        assert len(asked) == REQUESTS[command](SOURCES[name]), asked
        assert fake.writes == []


def test_what_is_not_in_the_file_is_unknown(ground: Ground, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    file = mm2mgr.folder.parent / "night.json"
    mm2mgr("snapshot", "--out", file)
    document = json.loads(file.read_text())
    west = [answer for answer in document["answers"] if answer["cluster"] != "west"]
    file.write_text(json.dumps({**document, "answers": west}))
    code, plan = run(mm2mgr, ("plan", "--snapshot", file))
    errors = {part["connect"]: part["error"] for part in plan["clusters"]}
    assert (code, errors) == (1, {"east": None, "west": "west: unknown: not in the snapshot"})
    said = mm2mgr("plan", "--snapshot", file, code=1)
    assert "unknown: not in the snapshot" in said.out + said.err


def test_a_right_that_nobody_asked_for_is_unknown_and_no_cluster_is_asked(ground: Ground, mm2mgr: Command) -> None:
    """The tree got a topic since: brokers were asked for no right on it, which is neither there nor missing."""
    file = mm2mgr.folder.parent / "night.json"
    mm2mgr("snapshot", "--out", file)
    tree = ground.tree_file.read_text()
    ground.tree_file.write_text(tree.replace("include: [orders]", "include: [orders, invoices]"))
    assert "invoices" in ground.tree_file.read_text()
    rows = run(mm2mgr, ("check", "--snapshot", file))[1]["rows"]
    new = [row for row in rows if row["what"].endswith("invoices")]
    assert {row["status"] for row in new} == {"unknown"}
    assert all("not in the snapshot" in row["fix"] for row in new)
    assert any(row["status"] == "missing" for row in rows)

    document = json.loads(file.read_text())
    answers = [
        answer for answer in document["answers"] if answer["cluster"] != "a" and answer["ask"] != "AnsweringWorker"
    ]
    file.write_text(json.dumps({**document, "answers": answers}))
    rows = run(mm2mgr, ("check", "--snapshot", file))[1]["rows"]
    told = {row["where"]: row["status"] for row in rows if "not in the snapshot" in row["effect"]}
    assert told == {"a": "unknown", "connect east": "unknown", "connect west": "unknown"}
    assert run(mm2mgr, ("size", "--store", "store", "--dry-run", "--snapshot", file))[1]["failures"] == {
        "a": "a: unknown: not in the snapshot"
    }


def test_secrets_are_masked_and_one_that_did_not_change_is_no_change(
    ground: Ground, mm2mgr: Command, tmp_path: Path
) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password={};"
    lines = "security: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.jaas.config: '{}'}}"

    def declare(password: str) -> None:
        ground.site.declare()
        text = ground.tree_file.read_text()
        secret = lines.format(jaas.format(password))
        ground.tree_file.write_text(text.replace("['a:9092'], cluster_id: a", f"['a:9092'], cluster_id: a, {secret}"))

    ground.reset()
    declare("hunter2-hunter2")
    mm2mgr("apply", "--yes")
    file = tmp_path / "night.json"
    mm2mgr("snapshot", "--out", file)
    assert "hunter2" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    actions = [
        change["action"]
        for part in run(mm2mgr, ("plan", "--snapshot", file))[1]["clusters"]
        for change in part["changes"]
    ]
    assert {*actions} == {"no-op"}
    assert "old-task-config" not in json.dumps(run(mm2mgr, ("status", "--snapshot", file))[1])


def test_topics_whose_logs_are_not_in_the_file_are_not_taken_for_empty(
    ground: Ground, mm2mgr: Command, tmp_path: Path
) -> None:
    asking = list_topics({"a": lambda _: True})
    next(asking)
    asking.send(Snapshot({PartitionCounts("a"): {"t": 1}}))
    with pytest.raises(StopIteration) as end:
        asking.send(Snapshot({PartitionCounts("a"): {"t": 1}}))
    assert "not in the snapshot" in end.value.value["a"].failure.message


def test_lint_of_a_snapshot_needs_no_credentials(ground: Ground, mm2mgr: Command, tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    mm2mgr("snapshot", "--out", file)
    text = ground.tree_file.read_text()
    auth = "auth: {basic: {username: '${env:NOT_HERE}', password: '${env:NOT_HERE}'}}"
    ground.tree_file.write_text(re.sub(r"(east: \{)(.*url: )", rf"\1{auth}, \2", text, count=1))
    assert "NOT_HERE" in ground.tree_file.read_text()
    command = ("lint", "--connect", "east", "--no-ask-brokers", "--snapshot", file)
    assert run(mm2mgr, command)[1]["summary"]["unread"] == []


def test_a_damaged_memory_does_not_stop_a_snapshot(ground: Ground, mm2mgr: Command, tmp_path: Path) -> None:
    state_file("team").parent.mkdir(parents=True, exist_ok=True)
    for memory in state_file("team").parent.iterdir():
        memory.write_text('{"half')
    file = tmp_path / "night.json"
    mm2mgr("snapshot", "--out", file)
    assert json.loads(file.read_text())["memory"] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"mm2mgr-snapshot": 2}',
        '{"mm2mgr-snapshot":1,"taken_at":"x","memory":null,"answers":[]}',
        '{"mm2mgr-snapshot":1,"taken_at":1.0,"memory":null,"answers":[{"ask":"Configs"}]}',
        '{"mm2mgr-snapshot":1,"taken_at":1.0,"memory":null,"answers":[{"ask":"eval","cluster":"a"}]}',
        '{"mm2mgr-snapshot":1,"taken_at":1.0,"memory":null,"answers":[{"ask":"Configs","cluster":"a","answer":{"x":1}}]}',
    ],
)
def test_what_is_no_snapshot_is_refused(site: Site, mm2mgr: Command, tmp_path: Path, text: str) -> None:
    file = tmp_path / "night.json"
    file.write_text(text)
    said = mm2mgr("plan", "--snapshot", file, code=1)
    assert str(file) in said.err
    assert "mm2mgr snapshot --out FILE" in said.err


def test_a_snapshot_replaces_no_other_file(site: Site, mm2mgr: Command, tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text("mine")
    mm2mgr("snapshot", "--out", file, code=1)
    mm2mgr("snapshot", "--out", mm2mgr.tree / "x.yaml", code=1)
    assert file.read_text() == "mine"


def test_five_hundred_connectors_with_ten_thousand_partitions_are_under_five_megabytes(
    site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = 20
    topics = {f"team{number}.orders": partitions for number in range(248)}
    mirrors = {f"a.{topic}": count for topic, count in topics.items()}

    def state(reach: KafkaReach, wanted: WantedLogs) -> RunningKafka:
        there = topics if reach.access.alias == "a" else mirrors
        return RunningKafka(there, dict.fromkeys(wanted.ends or wanted(there), Offsets(1_234_567_890, 1_234_987_654)))

    _, *others = ObserveOptions.__init__.__defaults__ or ()
    monkeypatch.setattr(ObserveOptions.__init__, "__defaults__", (state, *others))
    answer_kafka(site.patch, texts=lambda _: {}, idle=True)
    flows = (
        f"  f{n}: {{sources: [a], targets: [east, west], topics: {{include: [{t}]}}}}\n" for n, t in enumerate(topics)
    )
    _, connectors = site.declare("flows:\n" + "".join(flows))
    for fake in site.fakes.values():
        fake.source_topics = topics
    for connector in connectors:
        site.fakes[connector.connect].add(connector.name, dict(connector.config))
    assert len(connectors) == 500
    file = mm2mgr.folder.parent / "night.json"
    taken = mm2mgr("snapshot", "--out", file, "-o", "json").json
    assert (taken["failed"], taken["bytes"]) == ({}, file.stat().st_size)
    assert taken["bytes"] < 5_000_000
    code, plan = run(mm2mgr, ("plan", "--snapshot", file))
    assert (code, {change["action"] for part in plan["clusters"] for change in part["changes"]}) == (0, {"no-op"})


def test_what_writes_refuses_a_workspace_of_a_snapshot(site: Site, mm2mgr: Command, tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text('{"mm2mgr-snapshot":1,"taken_at":1.0,"memory":null,"answers":[]}')
    workspace = Workspace((mm2mgr.tree,)).of_snapshot(tmp_path / "night.json")
    writers: list[Callable[[], object]] = [
        lambda: apply(workspace),
        lambda: pause(workspace, Choice(everything=True)),
        lambda: next(reconcile(workspace)),
        lambda: next(watch(workspace)),
        lambda: forget_history(workspace, 0.0),
    ]
    for write in writers:
        with pytest.raises(Mm2mgrError, match="a snapshot is only read"):
            write()
    assert [fake.requests for fake in site.fakes.values()] == [[], []]


ESTATE = ("orders", "logs", "east", "west", "team", "theirs", "billing", "3com", "7up", "zork")
AUTHOR = ("Alice", "Smithers", "alice", "acme", "Acme", "Payments")


def kinds_of(document: Any, key: str) -> list[str]:
    """Return every value of a key in a JSON value, sorted."""
    if isinstance(document, dict):
        own = [str(document[key])] if key in document else []
        return sorted(own + [kind for part in document.values() for kind in kinds_of(part, key)])
    return sorted(kind for part in document for kind in kinds_of(part, key)) if isinstance(document, list) else []


def test_an_anonymous_snapshot_has_no_name_of_the_estate_and_tells_the_same(ground: Ground, mm2mgr: Command) -> None:
    east = ground.site.east.connectors
    east["mm2.a.east.source.orders"].state = "FAILED"
    east["theirs"].config["topics"] = "3com-a, 7up-b"
    entry = HistoryEntry(
        "1", "2026-03-01T02:00:00Z", "Alice Smithers", "", "apply", "team", "east", "mm2.a.east.source.orders"
    )
    failed = replace(entry, outcome="failed", error="spec /srv/alice/acme/clusters/x.yaml:6: orders-0 is lost")
    ground.texts["entry/1"] = json.dumps({field.name: getattr(failed, field.name) for field in fields(failed)})
    tree_text = ground.tree_file.read_text()
    labelled = tree_text.replace("cluster_id: a", "cluster_id: a, labels: {team name: 'Acme Payments'}")
    patterns = r"include: [orders, '(?i:ORDERS[.]acme.*)', '\p{Alpha}zork.*']"
    ground.tree_file.write_text(labelled.replace("include: [orders]", patterns))
    assert ground.tree_file.read_text().count("Acme Payments") == 1
    ground.site.ends, ground.site.since, ground.site.groups = lambda *_: 0, lambda *_: 0, {}
    plain, strange = mm2mgr.folder.parent / "night.json", mm2mgr.folder.parent / "strange.json"
    forget_looks(mm2mgr)
    mm2mgr("snapshot", "--out", plain)
    forget_looks(mm2mgr)
    taken = mm2mgr("snapshot", "--out", strange, "--anonymous", "-o", "json").json
    tree = Path(taken["tree"])
    texts = strange.read_text() + "".join(file.read_text() for file in tree.rglob("*.yaml"))
    assert {word for word in re.findall(r"[^\W_]+", texts) if word in {*ESTATE, *AUTHOR, "a"}} == set()
    assert taken["untranslated"] == []
    connects = yaml.safe_load((tree / "tree.yaml").read_text())["connect"]
    lint = [
        ("lint", *(f"--connect={name}" for name in names), "--no-ask-brokers") for names in (("east", "west"), connects)
    ]
    for command, made_up_command, key in (
        (("status",), ("status",), "kind"),
        (("plan", "--prune"), ("plan", "--prune"), "action"),
        (("drift",), ("drift",), "state"),
        (("check",), ("check",), "status"),
        (("lag",), ("lag",), "state"),
        (*lint, "rule"),
    ):
        real = run(mm2mgr, (*command, "--snapshot", plain))
        made_up = run(mm2mgr, ("--clusters", tree, *made_up_command, "--snapshot", strange))
        assert made_up[0] == real[0], command
        assert kinds_of(made_up[1], key) == kinds_of(real[1], key), command
        assert kinds_of(real[1], key), command


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_answer_is_read_back_from_a_file(kind: Any) -> None:
    answer = example(kind.answer)
    assert from_stored(kind.answer, json.loads(json.dumps(to_stored(answer)))) == answer


def example(type_: Any) -> Any:  # noqa: PLR0911  one per shape
    """Return a value of a type, nothing in it empty."""
    origin, parts = get_origin(type_), [part for part in get_args(type_) if part not in {type(None), Ellipsis}]
    if origin is Literal:
        return parts[0]
    if origin in {Union, UnionType}:
        return example(parts[0])
    if origin in {tuple, frozenset}:
        return origin(example(part) for part in parts)
    if origin:
        return {example(parts[0]): example(parts[1])}
    if is_dataclass(type_):
        hints, stored = hints_of(type_), (field for field in fields(type_) if field.compare and field.init)
        return type_(**{field.name: example(hints[field.name]) for field in stored})  # type: ignore[operator]
    if hasattr(type_, "_fields"):
        return type_(*map(example, hints_of(type_).values()))
    return {int: 1, float: 1.5, bool: True}.get(type_, "text")
