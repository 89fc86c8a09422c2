"""audit: options and exit codes, documents, what is kept, and that nothing is written where nothing was judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Producer

from mm2mgr import operations
from mm2mgr.audit.report import AuditReport
from mm2mgr.audit.run import AuditProgress
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import TopicSettings
from mm2mgr.kafka.client import Kafka
from mm2mgr.operations import AuditOptions, AuditRound, Workspace
from mm2mgr.operations.audit_bounds import AuditedFlow, choose_topic, flows_meant
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.store import AuditStore
from tests.audit.reports import DIFFERS, EQUAL, MISSING, NOT_JUDGED, report
from tests.fake_connect import FakeConnect
from tests.spec.trees import write

from .command import Command
from .leases import FakeLease
from .load import ORDERS_SOURCE, one_flow

TREE = """\
owner: team
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
connect:
  w: {url: "http://127.0.0.1:1", kafka: b, history: false}
flows:
  orders: {sources: [a], targets: [b], topics: {include: [orders]}}
"""


@dataclass
class Engine:
    """Answers audits with a report, and remembers what was asked."""

    answer: AuditReport = EQUAL
    asked: list[tuple[tuple[str, ...], AuditOptions]] = field(default_factory=list)

    def __call__(
        self,
        workspace: Workspace,
        names: tuple[str, ...] = (),
        options: AuditOptions = AuditOptions(),  # noqa: B008 - as the operation has it
        progress: Callable[[AuditProgress], None] | None = None,
    ) -> AuditReport:
        self.asked.append((names, options))
        if progress:
            progress(AuditProgress("comparing", 10, 200))
        return replace(self.answer, began=time.time() - 5)

    @property
    def options(self) -> AuditOptions:
        return self.asked[-1][1]


@pytest.fixture
def engine(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Engine:
    write(mm2mgr.tree, x=TREE)
    engine = Engine()
    monkeypatch.setattr(operations, "audit", engine)
    monkeypatch.setattr(import_module("mm2mgr.operations.audit"), "audit", engine)
    return engine


@pytest.mark.parametrize(("answer", "code"), [(EQUAL, 0), (DIFFERS, 2), (NOT_JUDGED, 1)])
def test_the_exit_code_is_the_verdict_in_every_format(
    mm2mgr: Command, engine: Engine, answer: AuditReport, code: int
) -> None:
    engine.answer = answer
    text = mm2mgr("audit", "orders", code=code)
    assert text.lines[-1].startswith({0: "Equal", 1: "Not judged", 2: "Differs"}[code])
    assert "reading Connect and Kafka" in text.err
    assert "compared in this process\n" in text.err, "as the report of the test says; with a reason in earnest"
    assert mm2mgr("audit", "orders", "-o", "json", code=code).json["verdict"] == answer.verdict
    assert mm2mgr("audit", "orders", "-o", "markdown", code=code).out.startswith("**")


def test_bounds_are_times_or_spans_back(mm2mgr: Command, engine: Engine) -> None:
    mm2mgr("audit", "orders", "--since", "2h", "--until", "2026-11-26T10:00")
    assert abs(time.time() - 7200 - (engine.options.since_ms or 0) / 1000) < 60
    assert engine.options.until_ms == 1_795_687_200_000
    mm2mgr("audit", "orders", "--since", "2026-11-26", "--until", "2026-11-26T12:00+02:00")
    assert (engine.options.since_ms, engine.options.until_ms) == (1_795_651_200_000, 1_795_687_200_000)
    mm2mgr("audit", "orders", "--sample", "2%", "--seed", "7", "--partition", "3", "--partition", "4", "--no-spark")
    options = engine.options
    assert (options.sample, options.seed, options.partitions, options.spark) == (0.02, 7, (3, 4), False)


@pytest.mark.parametrize("back", ["20min", "20m", "1200s", "1200000ms", "0.333334h"])
def test_a_span_back_has_the_units_of_every_duration(mm2mgr: Command, engine: Engine, back: str) -> None:
    mm2mgr("audit", "orders", "--since", back)
    assert abs(time.time() - 1200 - (engine.options.since_ms or 0) / 1000) < 60


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "every record of every flow would be read: name flows or topics"),
        ("orders --since yesterday", "'yesterday' is neither a time such as 2026-11-26T10:00 (UTC) nor a time back"),
        ("orders --since 2weeks", "is neither a time"),
        ("orders --since 1969-12-31T23:59", "'1969-12-31T23:59' is before 1970: no record has such a timestamp"),
        ("orders --sample 200%", "should be a share such as 70% or 0.7"),
        ("orders --seed 3", "--seed needs --sample"),
        ("orders --counts --repair-plan", "--counts reads no record"),
        ("orders --counts --show-values", "--counts reads no record"),
        ("orders --compare", "--compare takes two flows"),
        ("orders --counts --follow", "exclude each other"),
        ("--follow --since 2h", "--follow chooses its windows itself"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_read(
    mm2mgr: Command, engine: Engine, arguments: str, complaint: str
) -> None:
    assert complaint in " ".join(mm2mgr("audit", *arguments.split(), code=64).err.split())
    assert engine.asked == []


def test_a_name_of_no_flow_and_no_topic_gets_the_nearest(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=TREE)
    said = mm2mgr("audit", "ordesr", code=1)
    assert said.err == (
        "reading Connect and Kafka\n"
        "error: 'ordesr' is no flow, and no flow mirrors such a topic\nhint: did you mean orders, orders:a->b?\n"
    )


def test_an_audit_is_kept_and_its_differences_are_in_the_ledger(mm2mgr: Command, engine: Engine) -> None:
    engine.answer = DIFFERS
    mm2mgr("audit", "orders", "--store", "store", code=2)
    rows = AuditStore(mm2mgr.folder / "store", "team").read()
    assert [(row.flow, row.topic, row.partition, row.started_by) for row in rows] == [
        ("orders:a->b", "orders", number, "command") for number in range(3)
    ]
    document = mm2mgr("losses", "--store", "store", "-o", "json", code=1).json
    found = {(loss["kind"], loss["cause"], loss["first_offset"], loss["last_offset"]) for loss in document["losses"]}
    assert ("audit", "missing", 1010, 1011) in found
    assert len(found) == 5
    listed = mm2mgr("losses", "--store", "store", code=1)
    assert "record by record, by an audit" in listed.out
    assert "missing: an audit did not find them on the target; `mm2mgr audit FLOW --repair-plan` prints" in listed.out
    mm2mgr("losses", "--store", "store", "--ack", "all", "--reason", "replayed")
    mm2mgr("audit", "orders", "--store", "store", code=2)
    assert mm2mgr("losses", "--store", "store").lines == ["No loss to acknowledge."]


def test_counts_and_comparisons_are_not_kept(mm2mgr: Command, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.answer = DIFFERS
    mm2mgr("audit", "--counts", code=2)
    assert engine.options.counts
    compared: list[tuple[str, ...]] = []

    def compare(workspace: Workspace, first: str, second: str, *_: object) -> AuditReport:
        compared.append((first, second))
        return EQUAL

    monkeypatch.setattr(operations, "audit_compare", compare)
    mm2mgr("audit", "orders", "orders2", "--compare")
    assert compared == [("orders", "orders2")]
    assert not (mm2mgr.folder / ".mm2mgr").exists()


def test_a_repair_plan_is_printed_and_in_the_document(mm2mgr: Command, engine: Engine) -> None:
    engine.answer = report(MISSING)
    said = mm2mgr("audit", "orders", "--repair-plan", code=2)
    assert "mm2mgr offsets reset 'orders:a->b' --topic orders --partition 0 --to 1010" in said.lines
    document = mm2mgr("audit", "orders", "--repair-plan", "-o", "json", code=2).json
    (replay,) = document["repair_plan"]
    assert (replay["offset"], replay["arrives"], replay["comes_twice"]) == (1010, 3, 87)
    assert "repair_plan" not in mm2mgr("audit", "orders", "-o", "json", code=2).json


def test_the_page_is_written_with_this_audit_in_its_timeline(mm2mgr: Command, engine: Engine) -> None:
    said = mm2mgr("audit", "orders", "--page", "audit.html")
    assert "page in audit.html" in said.err
    text = (mm2mgr.folder / "audit.html").read_text()
    assert text.count('<rect class="none"') == 29
    assert "Equal: 200 records" in text


def test_a_store_that_cannot_be_written_takes_no_verdict_away(mm2mgr: Command, engine: Engine) -> None:
    (mm2mgr.folder / "store").write_text("a file")
    said = mm2mgr("audit", "orders", "--store", "store/below", "-o", "json")
    assert said.json["verdict"] == "equal"
    assert "this audit is not in it" in said.err


# --- again and again --------------------------------------------------------------------------------------------------


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a follower end, by Ctrl-C, after its second round."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 1:
            raise KeyboardInterrupt

    follow = operations.follow_audits

    def bounded(workspace: Workspace, order: operations.FollowOrder) -> Iterator[AuditRound]:
        return follow(workspace, order, wait=wait)

    monkeypatch.setattr(operations, "follow_audits", bounded)
    yield
    assert waits == [3600.0, 3600.0]


def test_what_the_tree_declares_is_audited_at_every_interval(mm2mgr: Command, engine: Engine, rounds: None) -> None:
    write(mm2mgr.tree, x=TREE.replace("topics:", "audit: 5%, topics:"))
    said = mm2mgr("audit", "--follow", "--store", "store", "-o", "json")
    documents: list[dict[str, Any]] = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["number"], each["report"]["verdict"]) for each in documents] == [(1, "equal"), (2, "equal")]
    assert [names for names, _ in engine.asked] == [("orders:a->b",)] * 2
    assert engine.options.sample == 0.05
    assert engine.options.until_ms is None, "a record with a timestamp ahead hides none behind it"
    two_intervals = 1000 * time.time() - (engine.options.since_ms or 0)
    assert 7_200_000 <= two_intervals < 7_500_000
    assert {row.started_by for row in AuditStore(mm2mgr.folder / "store", "team").read()} == {"follow"}
    assert "no lease: the tree says history: false" in documents[0]["without_lease"]["w"]


def test_named_flows_are_followed_without_a_declaration(mm2mgr: Command, engine: Engine, rounds: None) -> None:
    engine.answer = DIFFERS
    said = mm2mgr("audit", "orders", "--follow", "--store", "store", code=2)
    assert engine.options.sample == 0.02
    assert sum(line.startswith("Differs: ") for line in said.lines) == 2
    assert said.err.endswith("ended\n")


def test_a_round_that_fails_ends_no_follower(
    mm2mgr: Command, engine: Engine, rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> AuditReport:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_module("mm2mgr.operations.audit"), "audit", fail)
    said = mm2mgr("audit", "orders", "--follow", code=1)
    assert sum("not judged: " in line for line in said.lines) == 2


def test_a_tree_that_declares_no_audits_is_told_how(mm2mgr: Command, engine: Engine) -> None:
    said = mm2mgr("audit", "--follow", code=1)
    assert said.err.startswith("error: no flow of the tree declares audits\nhint: write `audit: 2%` for a flow")


TWO_CONNECTS = """\
owner: team
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
  c: {bootstrap_servers: ["c:9092"]}
connect:
  east: {url: "http://127.0.0.1:1", kafka: b}
  west: {url: "http://127.0.0.1:2", kafka: c}
flows:
  orders: {sources: [a], targets: [b, c], run_on: {b: east, c: west}, audit: 5%, topics: {include: [orders]}}
"""


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeLease]]:
    monkeypatch.setattr("mm2mgr.kafka.lease.Lease", FakeLease)
    yield FakeLease
    FakeLease.forget()


def test_one_process_of_an_owner_audits_and_the_others_stand_by(
    mm2mgr: Command, engine: Engine, leases: type[FakeLease]
) -> None:
    write(mm2mgr.tree, x=TWO_CONNECTS)
    leases.of_others = {"b"}
    order = operations.FollowOrder(store=mm2mgr.folder / "store")
    rounds = operations.follow_audits(Workspace((mm2mgr.tree,)), order, wait=lambda _: None)
    first = next(rounds)
    assert (first.standby, engine.asked[-1][0]) == (("orders:a->b",), ("orders:a->c",))
    leases.of_others = {"b", "c"}
    second = next(rounds)
    assert (second.report, second.verdict, second.standby) == (None, "not judged", ("orders:a->b", "orders:a->c"))
    leases.of_others = set()
    assert next(rounds).standby == (), "the other one has ended"
    assert engine.asked[-1][0] == ("orders:a->b", "orders:a->c")
    rounds.close()
    assert leases.groups == {"mm2mgr-team-audit"}
    assert sorted(leases.closed) == ["b", "c"], "the next process has them at once"
    assert leases.notes[0].startswith("`audit --follow` by ")


def test_without_a_lease_the_flows_are_audited_all_the_same(
    mm2mgr: Command, engine: Engine, leases: type[FakeLease]
) -> None:
    write(mm2mgr.tree, x=TWO_CONNECTS)
    leases.dead = {"c"}
    order = operations.FollowOrder(store=mm2mgr.folder / "store")
    rounds = operations.follow_audits(Workspace((mm2mgr.tree,)), order, wait=lambda _: None)
    done = next(rounds)
    rounds.close()
    assert engine.asked[-1][0] == ("orders:a->b", "orders:a->c")
    assert done.without_lease == {"west": "no lease: c: no broker answered"}


def test_names_mean_flows_or_their_topics_in_the_order_of_names_and_tree(mm2mgr: Command) -> None:
    flows = [f"f{number}" for number in range(9)]
    more = "".join(f"  {name}: {{sources: [a], targets: [b], topics: {{include: [t.{name}]}}}}\n" for name in flows)
    write(
        mm2mgr.tree,
        x=TWO_CONNECTS.replace("flows:\n", f"flows:\n{more}").replace("targets: [b]", "targets: [b], run_on: east"),
    )
    topology = Workspace((mm2mgr.tree,)).topology
    every = [flow.id for flow in topology.flows]
    assert list(flows_meant(topology, ())) == every
    assert list(flows_meant(topology, ("a->b",))) == [name for name in every if name.endswith("a->b")]
    west, east = "orders:a->c", "orders:a->b"
    assert flows_meant(topology, (west, "t.f3", "orders")) == {west: None, "f3:a->b": frozenset({"t.f3"}), east: None}
    assert list(flows_meant(topology, (west, "orders"))) == [west, east]
    assert flows_meant(topology, ("t.f3", "f3")) == flows_meant(topology, ("f3", "t.f3")) == {"f3:a->b": None}


def test_a_tree_that_changes_is_followed(mm2mgr: Command, engine: Engine, leases: type[FakeLease]) -> None:
    write(mm2mgr.tree, x=TWO_CONNECTS)
    order = operations.FollowOrder(store=mm2mgr.folder / "store")
    rounds = operations.follow_audits(Workspace((mm2mgr.tree,)), order, wait=lambda _: None)
    next(rounds)
    write(mm2mgr.tree, x=TWO_CONNECTS.replace("targets: [b, c]", "targets: [b]").replace("5%", "7%"))
    next(rounds)
    assert (engine.asked[-1][0], engine.options.sample) == (("orders:a->b",), 0.07)
    write(mm2mgr.tree, x="owner: [")
    assert next(rounds).error, "a tree that is wrong ends no follower"
    rounds.close()


# --- the engine itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def mirrored(
    mm2mgr: Command, mock_cluster: KafkaAccess, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeConnect]:
    """Put 100 records into partition 0 of `orders`, and their mirror, in which one differs and one is missing."""

    def settings(_: object, topics: Iterable[str]) -> dict[str, TopicSettings]:
        return {topic: TopicSettings({"cleanup.policy": "delete"}, {}) for topic in topics}  # mock brokers tell none

    monkeypatch.setattr("mm2mgr.kafka.inspection.topic_configs", settings)
    producer = Producer({"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0})
    with one_flow(mm2mgr, mock_cluster, produced=0, mirrored=0) as fake:
        for number in range(100):
            record: dict[str, Any] = {"key": b"k%d" % number, "partition": 0, "timestamp": 1_700_000_000_000 + number}
            producer.produce("orders", b"password=geheim123 %d" % number, **record)
            if number != 30:
                producer.produce("a.orders", b"v" if number == 20 else b"password=geheim123 %d" % number, **record)
        assert producer.flush(30) == 0
        yield fake


def test_each_record_is_shown_beside_its_mirror(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 89}, alias="a")
    arguments = ("records", "orders", "--partition", "0", "--offset", "18", "--last", "15")
    (flow,) = mm2mgr(*arguments, "-o", "json", code=2).json
    assert (flow["flow"], flow["topic"], flow["remote"]) == ("orders:a->b", "orders", "a.orders")
    rows = {record["offset"]: (record["state"], record["mirrors"]) for record in flow["records"]}
    shifted = {offset: ("equal", [offset - (offset > 30)]) for offset in range(18, 33)}
    assert rows == shifted | {20: ("altered", [20]), 30: ("not found", [])}
    assert [record["value"] for record in flow["records"]] == [None] * 15
    said = mm2mgr(*arguments, code=2)
    assert said.lines[-1].strip() == "15 records: 13 equal, 1 altered, 1 not found"
    assert "  0@20 altered: value differs" in said.out
    assert "geheim" not in said.out


def test_a_record_that_is_not_stored_yet_is_not_missing(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 97}, alias="a")
    (flow,) = mm2mgr("records", "orders", "--last", "3", "-o", "json").json
    states = {record["offset"]: record["state"] for record in flow["records"]}
    assert states == {97: "equal", 98: "not yet", 99: "not yet"}


def test_records_of_a_key_are_shown_with_secrets_masked(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 99}, alias="a")
    by_key = ("records", "orders", "--partition", "0", "--key", "k42", "--show-values")
    (record,) = mm2mgr(*by_key, "-o", "json").json[0]["records"]
    assert (record["offset"], record["key"], record["mirrors"]) == (42, "k42", [41])
    assert "geheim" not in record["value"]
    assert "k42" in mm2mgr(*by_key).out
    assert "geheim" not in mm2mgr(*by_key).out


def test_an_offset_needs_its_partition_and_a_topic_its_flow(mm2mgr: Command, mirrored: FakeConnect) -> None:
    said = mm2mgr("records", "orders", "--offset", "3", code=64)
    assert "offset 3 of which partition? orders has 4: name it with --partition" in said.err
    assert "'ordrs' is no flow, and no flow mirrors such a topic" in mm2mgr("records", "ordrs", code=1).err


def test_a_mirrors_name_means_its_topic(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 99}, alias="a")
    named, by_mirror = (mm2mgr("records", name, "--last", "3") for name in ("orders", "a.orders"))
    assert by_mirror.lines == named.lines
    assert named.lines[0] == "orders:a->b: orders on a, a.orders on b"
    said = mm2mgr("records", "a.orders", "--partition", "0", "--offset", "3", code=64).err
    assert "--offset: offsets are those of orders on the source, and a.orders is its mirror: name orders" in said
    assert "'a.ordrs' is no flow, and no flow mirrors such a topic" in mm2mgr("records", "a.ordrs", code=1).err
    said = mm2mgr("records", "orders:a->b", code=1).err
    assert "'orders:a->b' is a flow, and no flow takes such a topic" in said
    assert (
        "1001 should be at most 1000: mm2mgr audit compares more"
        in mm2mgr("records", "orders", "--last", "1001", code=64).err
    )


MESH = """\
owner: team
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
  c: {bootstrap_servers: ["c:9092"]}
  d: {bootstrap_servers: ["d:9092"]}
connect:
  main: {url: "http://127.0.0.1:1", kafka: b}
  next: {url: "http://127.0.0.1:2", kafka: d}
flows:
  orders: {sources: [a], targets: [b], run_on: main, topics: {include: [".*"]}}
  pay: {sources: [c], targets: [b], run_on: main, topics: {include: [".*"]}}
  further: {sources: [b], targets: [d], run_on: next, topics: {include: ["a[.].*"]}}
"""


@pytest.mark.parametrize(
    ("name", "there", "meant"),
    [
        ("orders", {}, ("orders", ["orders:a->b", "pay:c->b"])),
        ("a.orders", {"a": [], "b": ["a.orders"], "c": []}, ("a.orders", ["further:b->d"])),
        ("a.orders", {"a": [], "b": [], "c": []}, ("orders", ["orders:a->b"])),
        ("a.orders", {"a": [], "b": None, "c": []}, ("a.orders", ["further:b->d"])),
        ("c.orders", {"a": [], "b": [], "c": []}, ("orders", ["pay:c->b"])),
        ("b.a.orders", {"a": [], "b": ["a.orders"], "c": []}, ("a.orders", ["further:b->d"])),
    ],
)
def test_a_name_means_a_topic_of_a_source_before_a_mirror(
    mm2mgr: Command,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    there: dict[str, list[str] | None],
    meant: tuple[str, list[str]],
) -> None:
    def listed(_: object, aliases: Iterable[str]) -> dict[str, frozenset[str] | None]:
        return {alias: None if (names := there[alias]) is None else frozenset(names) for alias in aliases}

    monkeypatch.setattr("mm2mgr.operations.audit_bounds._source_topics", listed)
    write(mm2mgr.tree, x=MESH)
    topic, chosen = choose_topic(Workspace((mm2mgr.tree,)), name)
    assert (topic, [entry.flow.id for entry in chosen]) == meant
    assert all(entry.takes(topic) for entry in chosen)


ROUTED = """\
owner: team
clusters:
  a: {bootstrap_servers: ["a:9092"]}
  b: {bootstrap_servers: ["b:9092"]}
connect:
  main: {url: "http://127.0.0.1:1", kafka: b}
flows:
  orders:
    sources: [a]
    targets: [b]
    run_on: main
    topics: {include: ["(orders|pay).v[0-9]"]}
    source_connector:
      transforms: route
      transforms.route.type: org.apache.kafka.connect.transforms.RegexRouter
      transforms.route.regex: 'a[.](.*)[.]v[0-9]'
      transforms.route.replacement: $1
"""


def test_a_mirror_by_a_transform_is_known_by_the_sources_topics(
    mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = frozenset({"orders.v1", "orders.v2", "pay.v1"})
    monkeypatch.setattr(
        "mm2mgr.operations.audit_bounds._source_topics", lambda _, aliases: dict.fromkeys(aliases, there)
    )
    write(mm2mgr.tree, x=ROUTED)
    topic, chosen = choose_topic(Workspace((mm2mgr.tree,)), "pay")
    assert (topic, [entry.flow.id for entry in chosen]) == ("pay.v1", ["orders:a->b"])
    with pytest.raises(Mm2mgrError, match=r"'orders' is the mirror of 2 topics: orders\.v1, orders\.v2"):
        choose_topic(Workspace((mm2mgr.tree,)), "orders")


def test_real_logs_are_compared_in_this_process(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 99}, alias="a")
    said = mm2mgr("audit", "orders", "--no-spark", "--show-values", "--store", "store", "-o", "json", code=2)
    assert "differs in" not in said.err
    assert "compared in this process (--no-spark)\n" in said.err
    (flow,) = said.json["flows"]
    (part,) = [part for part in flow["partitions"] if part["verdict"] != "equal"]
    assert (part["source_window"], part["source_records"], part["target_records"]) == ([0, 100], 100, 99)
    found = [
        (each["kind"], each["source_offset"], each["target_offset"], each["fields"]) for each in part["differences"]
    ]
    assert found == [("altered", 20, 20, ["value"]), ("missing", 30, None, [])]
    assert part["differences"][0]["target_value"] == "v"
    assert "geheim123" not in said.out
    losses = mm2mgr("losses", "--store", "store", "-o", "json", code=1).json["losses"]
    assert [(loss["cause"], loss["first_offset"], loss["last_offset"]) for loss in losses] == [
        ("altered", 20, 20),
        ("missing", 30, 30),
    ]


def test_a_connector_that_runs_with_other_transformations_than_the_tree_is_told(
    mm2mgr: Command, mirrored: FakeConnect
) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 9}, alias="a")
    mirrored.connectors[ORDERS_SOURCE].config |= {"transforms": "x", "transforms.x.type": "a.b.C", "tasks.max": "9"}
    said = mm2mgr("audit", "orders", "--no-spark", "--partition", "0")
    assert (
        "orders:a->b: the connector that runs differs in transforms, transforms.x.type: records are judged by"
        in said.err
    )


def test_what_is_not_mirrored_yet_is_never_an_empty_window_that_is_equal(
    mm2mgr: Command, mirrored: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 9}, alias="a")

    def offsets_since(_: object, since_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {partition: 60 if partition.partition == 0 else -1 for partition in since_ms}

    monkeypatch.setattr(Kafka, "offsets_since", offsets_since)
    said = mm2mgr("audit", "orders", "--no-spark", "--since", "2023-11-14", code=1)
    sentence = "orders-0: the 40 offsets from 60 on are not mirrored yet: the flow has stored 9"
    assert sentence in said.out
    said = mm2mgr("audit", "orders", "--no-spark", "--since", "2h", "--until", "1h", code=1)
    assert "orders-0: its records from offset 60 on are of the window's end or later" in said.out


def test_one_record_that_is_not_mirrored_is_no_marker_of_a_transaction(
    mm2mgr: Command, mirrored: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 98}, alias="a")
    first = {"orders": 99}
    monkeypatch.setattr(
        Kafka,
        "offsets_since",
        lambda _, since: {name: first["orders"] if name.partition == 0 else -1 for name in since},
    )
    said = mm2mgr("audit", "orders", "--no-spark", "--since", "10m", code=1)
    assert "orders-0: the 1 offsets from 99 on are not mirrored yet: the flow has stored 98" in said.out
    first["orders"] = -1
    said = mm2mgr("audit", "orders", "--no-spark", "--since", "10m", code=1)
    assert "the 1 offsets from 99 on are not mirrored yet: the flow has stored 98" in said.out
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 99}, alias="a")
    said = mm2mgr("audit", "orders", "--no-spark", "--since", "10m")
    assert said.lines[-1].startswith("Equal: nothing was compared, as there was no record, in 4 partitions")


def test_an_empty_source_is_equal_only_where_nothing_was_ever_there(mm2mgr: Command, mirrored: FakeConnect) -> None:
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {0: 99, 1: 199}, alias="a")
    said = mm2mgr("audit", "orders", "--no-spark", "--partition", "1", code=1)
    assert "orders-1: the flow's stored offset 199 is past the end 0" in said.out
    assert "created again" in said.out
    said = mm2mgr("audit", "orders", "--no-spark", "--partition", "2", "--partition", "9", code=1)
    assert "none of its topics has partition 9" in said.out
    said = mm2mgr("audit", "orders", "--no-spark", "--partition", "2")
    assert "Equal: nothing was compared, as there was no record, in 1 partition" in said.lines[-1]


def test_an_open_transaction_on_the_source_ends_its_log(
    mm2mgr: Command, mirrored: FakeConnect, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0})
    for number in range(70):  # the last 20 stand for those of the transaction
        record: dict[str, Any] = {"partition": 3, "timestamp": 1_700_000_000_000 + number}
        producer.produce("orders", b"%d" % number, **record)
        if number < 50:
            producer.produce("a.orders", b"%d" % number, **record)
    assert producer.flush(30) == 0
    mirrored.add_offsets(ORDERS_SOURCE, "orders", {3: 49}, alias="a")
    operation = import_module("mm2mgr.operations.audit")
    read, narrow = Kafka.read_offsets, operation.narrow_windows
    orders: list[Any] = []

    def read_offsets(kafka: Kafka, partitions: Iterable[TopicPartition], *, committed: bool = False) -> Any:
        answer = read(kafka, partitions)
        ended = {name: log._replace(end=min(log.end, 50)) for name, log in answer.found.items()}
        return replace(answer, found=ended) if committed else answer

    def narrow_windows(workspace: Workspace, order: Any, options: AuditOptions) -> Any:
        orders.append(order)
        return narrow(workspace, order, options)

    monkeypatch.setattr(Kafka, "read_offsets", read_offsets)
    monkeypatch.setattr(operation, "narrow_windows", narrow_windows)
    monkeypatch.setattr(AuditedFlow, "reads_committed", True)
    said = mm2mgr("audit", "orders", "--no-spark", "--partition", "3")
    assert said.lines[-1].startswith("Equal: 50 records of 1 partition")
    (part,) = orders[0].flows[0].partitions
    assert (part.source.end, part.source_log.end) == (50, 50), "nothing behind it is waited for"
