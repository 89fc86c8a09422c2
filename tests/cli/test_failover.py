"""`failover check` as people type it: verdicts, numbers, exit codes, missing rights, a dead source, a snapshot."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from mm2mgr.failover.kept import KeptLooks
from mm2mgr.failover.syncs import CheckpointLog
from mm2mgr.failover.translation import MirroredEnds
from mm2mgr.kafka.acls import Acl
from mm2mgr.kafka.groups import GroupState, RecordMark
from mm2mgr.kafka.quotas import ProducerQuotas, QuotaEntity
from mm2mgr.live import read as live_read
from mm2mgr.live.questions import CheckpointRecords, ClusterAcls, GroupMembers, OffsetSyncRecords, Quotas, RecordMarks
from mm2mgr.operations import FailoverOptions, Workspace, failover_check
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.registry.ids import SchemaId, TopicSample
from tests.failover.fake_pair import ALL, DESCRIBED, FakeCluster, FakePair, checkpoint, sync, syncs_of
from tests.plan.site import Site
from tests.registry.fake import FakeRegistry, Schema, serving

from .command import Command

FLOWS = """\
flows:
  orders: {sources: [a], targets: [east], topics: {include: [orders, payments]}, checkpoints: {group_offsets: true}}
"""
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
HEARTBEATS = TopicPartition("heartbeats", 0)
REMOTE, REMOTE_PAYMENTS = TopicPartition("a.orders", 0), TopicPartition("a.payments", 0)
SYNCS, CHECKPOINTS = "mm2-offset-syncs.east.internal", "a.checkpoints.internal"
PAIR = "a->east"


class Estate:
    """A pair that is level: 1,000 records in `orders`, none in `payments`, and a group at 600, which is 400 there."""

    def __init__(self, site: Site, mm2mgr: Command) -> None:
        self.site, self.mm2mgr = site, mm2mgr
        log, mirror = Offsets(200, 1_000), Offsets(0, 800)
        empty = Offsets(0, 0)
        self.source = FakeCluster(
            {ORDERS: log, PAYMENTS: empty, HEARTBEATS: Offsets(0, 50), TopicPartition(SYNCS, 0): Offsets(0, 9)},
            commits={"billing": {ORDERS: 600, PAYMENTS: 0}},
            syncs=syncs_of(sync("orders", 200, 0), sync("orders", 600, 400), sync("orders", 999, 799)),
        )
        self.target = FakeCluster(
            {REMOTE: mirror, REMOTE_PAYMENTS: empty, TopicPartition(CHECKPOINTS, 0): Offsets(0, 9)},
            commits={"billing": {REMOTE: 400}},
            checkpoints=CheckpointLog({checkpoint("billing", "a.orders", 600, 400): time.time() - 20}),
        )
        marks = [RecordMark(number, f"k{number}", f"v{number}", number) for number in range(200, 1_000)]
        self.source.records[ORDERS] = marks
        self.target.records[REMOTE] = [mark._replace(offset=mark.offset - 200) for mark in marks]
        self.pair = FakePair({"a": self.source, "east": self.target, "west": FakeCluster()})
        self.pair.serve(site.patch)
        site.declare(FLOWS)
        site.east.source_topics = {"orders": 1, "payments": 1}
        self.tree = mm2mgr.tree

    def settle(self) -> None:
        """Run the pair's connectors, with all that is in `orders` stored."""
        _, connectors = self.site.declare(FLOWS)
        for connector in connectors:
            self.site.fakes[connector.connect].add(connector.name, dict(connector.config))
        self.site.east.connectors["mm2.a.east.source.orders"].dealt = ["heartbeats-0,orders-0,payments-0"]
        self.site.east.add_offsets("mm2.a.east.source.orders", "orders", {0: 999}, alias="a")

    def check(self, *arguments: str, code: int = 0) -> Any:
        return self.mm2mgr("failover", "check", PAIR, *arguments, "-o", "json", code=code).json

    def text(self, *arguments: str, code: int = 0) -> str:
        return self.mm2mgr("failover", "check", PAIR, *arguments, code=code).out


@pytest.fixture
def estate(site: Site, mm2mgr: Command) -> Estate:
    made = Estate(site, mm2mgr)
    made.settle()
    return made


def test_a_level_pair_is_go_and_the_last_line_says_so(estate: Estate) -> None:
    text = estate.text()
    assert text.splitlines()[-1] == ("GO: a->east: 1 group in 2 positions, at most 0 again, 0 skipped, at most 0 lost")
    found = estate.check()
    assert found["verdict"]["word"] == "GO"
    (group,) = found["groups"]
    orders = next(each for each in group["positions"] if each["topic"] == "orders")
    assert (orders["committed"], orders["checkpoint"], orders["on_target"], orders["translated"]) == (
        *(600, [600, 400], 400),
        400,
    )
    assert (orders["state"], orders["sampled"], orders["remote_topic"]) == ("exact", "same", "a.orders")
    assert estate.site.east.writes == []


def test_records_that_come_again_are_counted(estate: Estate) -> None:
    estate.target.commits["billing"][REMOTE] = 350
    assert estate.text(code=2).splitlines()[-1].startswith("GO WITH: a->east: at most 50 records again")
    assert estate.check(code=2)["verdict"]["repeats_at_most"] == 50


def test_a_skip_is_no_go_and_names_group_and_number(estate: Estate) -> None:
    estate.target.commits["billing"][REMOTE] = 407
    found = estate.check(code=1)
    assert (found["verdict"]["word"], found["verdict"]["skips_at_most"]) == ("NO-GO", 7)
    last = estate.text(code=1).splitlines()[-1]
    assert last == "NO-GO: a->east: 1 group (billing): would skip records, which is an error"


def test_a_group_without_an_offset_on_the_target_is_no_go_unless_the_translated_one_is_judged(estate: Estate) -> None:
    estate.target.commits.clear()
    assert "no offset on the target" in estate.text(code=1)
    assert estate.check("--translated")["verdict"]["word"] == "GO"


def test_a_group_with_members_on_the_target_is_no_go(estate: Estate) -> None:
    estate.target.states["billing"] = GroupState("STABLE")
    assert estate.text(code=1).splitlines()[-1] == "NO-GO: a->east: 1 group (billing): has members on the target"


def test_a_checkpoint_stands_in_for_lost_syncs_once_all_is_mirrored(estate: Estate) -> None:
    estate.source.syncs = syncs_of(sync("orders", 999, 799))
    estate.target.checkpoints = CheckpointLog({checkpoint("billing", "a.orders", 590, 390): time.time()})
    estate.target.commits["billing"][REMOTE] = 390
    found = estate.check("--sample", "0", code=2)
    (position,) = (each for each in found["groups"][0]["positions"] if each["topic"] == "orders")
    assert (position["translated"], position["translated_repeats_at_most"]) == (390, 410)
    estate.target.commits["billing"][REMOTE] = 391
    assert estate.check("--sample", "0", code=1)["verdict"]["word"] == "not judged"
    estate.target.commits["billing"][REMOTE] = 390
    estate.site.east.add_offsets("mm2.a.east.source.orders", "orders", {0: 998}, alias="a")
    assert estate.check("--sample", "0", code=1)["verdict"]["word"] == "not judged", "records may be mirrored again"


def test_checkpoints_of_old_workers_are_not_believed(estate: Estate) -> None:
    estate.source.syncs = syncs_of(sync("orders", 999, 799))
    estate.site.east.version = "3.4.0"
    assert estate.check("--sample", "0", code=1)["verdict"]["word"] == "not judged"


def test_other_records_at_the_translated_offset_are_no_go(estate: Estate) -> None:
    estate.target.records[REMOTE] = [RecordMark(number, "x", f"{number}", 1) for number in range(800)]
    assert estate.check(code=1)["groups"][0]["state"] == "differs"
    assert estate.check("--sample", "0")["verdict"]["word"] == "GO"


def test_what_is_not_mirrored_yet_is_the_recovery_point(estate: Estate) -> None:
    estate.site.east.add_offsets("mm2.a.east.source.orders", "orders", {0: 989}, alias="a")
    found = estate.check(code=2)
    assert (found["recovery"]["records"], found["recovery"]["partitions"]) == (10, 1)
    assert "at most 10 records lost" in estate.text(code=2).splitlines()[-1]


@pytest.mark.parametrize(
    ("refused", "on", "right"),
    [
        (OffsetSyncRecords, "a", f"--operation Read --topic {SYNCS}"),
        (CheckpointRecords, "east", f"--operation Read --topic {CHECKPOINTS}"),
        (ClusterAcls, "east", "--operation Describe --cluster"),
        (Quotas, "a", "--operation DescribeConfigs --cluster"),
        (GroupMembers, "a", "--operation Describe --cluster"),
        (RecordMarks, "east", "--operation Read --topic a.orders"),
    ],
)
def test_what_is_refused_is_named_with_the_right_to_add(estate: Estate, refused: type, on: str, right: str) -> None:
    estate.pair.clusters[on].refused.add(refused)
    found = estate.check(code=1)
    assert found["verdict"]["word"] in {"not judged", "NO-GO"}
    (unread,) = found["unread"]
    assert unread["where"] == on
    assert unread["commands"] == [
        f"kafka-acls.sh --bootstrap-server {on}:9092 --add --allow-principal User:mm2mgr {right}"
    ]
    assert right in estate.text(code=1)


def test_a_login_that_may_not_see_all_groups_is_never_go(estate: Estate) -> None:
    estate.source.operations = frozenset()
    found = estate.check(code=1)
    assert found["verdict"]["word"] == "not judged"
    assert "--operation Describe --cluster" in found["unread"][0]["commands"][0]


def test_a_group_that_may_not_be_read_is_never_go(estate: Estate) -> None:
    estate.source.commits["payroll"] = {ORDERS: 5}
    estate.source.refused_groups.add("payroll")
    assert "--group payroll" in estate.check(code=1)["unread"][0]["commands"][0]
    estate.source.refused_groups.clear()
    estate.target.refused_groups.add("billing")
    found = estate.check("--group", "billing", code=1)
    assert found["groups"][0]["state"] == "unknown"


def test_a_topic_that_may_not_be_described_is_not_taken_for_a_missing_one(estate: Estate) -> None:
    estate.target.refused_topics.add(CHECKPOINTS)
    found = estate.check(code=1)
    assert "--operation Describe --topic a.checkpoints.internal" in json.dumps(found["unread"])


def test_a_topic_that_is_not_there_or_too_small_is_no_go(estate: Estate) -> None:
    del estate.target.logs[REMOTE_PAYMENTS]
    assert "1 topic not on the target yet (payments)" in estate.text(code=1)
    estate.target.logs[REMOTE_PAYMENTS] = Offsets(0, 0)
    estate.source.logs[TopicPartition("payments", 1)] = Offsets(0, 0)
    assert "fewer partitions on the target (payments)" in estate.text(code=1)


def test_settings_rights_quotas_and_transactions_that_differ_are_counted(estate: Estate) -> None:
    estate.source.settings["orders"] = {"retention.ms": "1000"}
    estate.source.operations = estate.target.operations = DESCRIBED
    estate.source.acls = (Acl("User:shop", "*", "Read", "topic", "orders", prefixed=False, allow=True),)
    estate.source.quotas = ProducerQuotas(1, {QuotaEntity("shop"): 10.0})
    estate.source.open_ends[ORDERS] = 990
    remarks = [each["text"] for each in estate.check(code=2)["remarks"]]
    assert remarks == [
        "settings differ of 1 topic (orders: retention.ms)",
        "1 right of consumers missing on the target (User:shop: Read on topic a.orders)",
        "quotas of producers differ for 1 client (client id shop)",
        "1 partition with an open transaction (orders-0)",
    ]
    estate.target.operations = ALL
    assert len(estate.check(code=2)["remarks"]) == 3, "the target has no authorizer, so no right is missing"


def test_records_that_arrive_while_it_reads_are_no_open_transaction(estate: Estate) -> None:
    read = live_read._read

    async def read_under_traffic(*arguments: Any) -> Any:
        log = estate.source.logs[ORDERS]
        estate.source.open_ends[ORDERS] = log.end  # of what is asked side by side, this may be answered first
        estate.source.logs[ORDERS] = Offsets(log.start, log.end + 1)
        return await read(*arguments)

    estate.site.patch.setattr(live_read, "_read", read_under_traffic)
    assert "open transaction" not in estate.mm2mgr("failover", "check", PAIR, code=2).out


def test_what_groups_read_beside_the_flows_is_named(estate: Estate) -> None:
    estate.source.logs |= {
        TopicPartition("debug", 0): Offsets(0, 5),
        TopicPartition("billing-store-changelog", 0): Offsets(0, 5),
        TopicPartition("__share_group_state", 0): Offsets(0, 5),
    }
    estate.source.commits["billing"][TopicPartition("debug", 0)] = 3
    text = estate.text(code=2)
    assert "1 group (billing) read 1 topic that this pair does not mirror (debug: no flow names it)" in text
    assert "Kafka Streams applications (billing)" in text
    assert "share groups are used on a" in text


def test_groups_can_be_chosen_by_an_expression(estate: Estate) -> None:
    estate.source.commits["dead"] = {ORDERS: 5}
    assert estate.check(code=1)["verdict"]["word"] == "NO-GO"
    assert [group["group"] for group in estate.check("--group", "bil+ing")["groups"]] == ["billing"]
    assert "is no expression" in estate.mm2mgr("failover", "check", PAIR, "--group", "(", code=64).err
    assert estate.mm2mgr("failover", "check", "a->nowhere", code=1).err.startswith("error: no flow 'a->nowhere'")


def test_an_expression_that_no_group_matches_is_never_go(estate: Estate) -> None:
    last = estate.text("--group", "biling", code=1).splitlines()[-1]
    assert last == "not judged: a->east: no group that reads a mirrored topic matches 'biling'"


def test_a_group_with_a_strange_name_is_named_and_breaks_no_line(estate: Estate) -> None:
    estate.source.commits["x\nGO: fake"] = {ORDERS: 600}
    last = estate.text(code=2).splitlines()[-1]
    assert "1 group left out of checkpoints by the tree (x\\nGO: fake)" in last, "no expression of the tree matches it"


def test_without_checkpoints_in_the_tree_groups_without_offsets_on_the_target_are_no_go(estate: Estate) -> None:
    estate.site.declare(FLOWS.replace("{group_offsets: true}", "false"))
    estate.target.commits.clear()
    found = estate.check(code=1)
    assert (found["verdict"]["word"], found["groups"][0]["state"]) == ("NO-GO", "absent")
    assert estate.check("--translated", code=2)["groups"][0]["state"] == "exact"


def test_an_offset_beyond_the_end_of_the_source_is_of_another_log_and_never_go(estate: Estate) -> None:
    estate.source.commits["billing"][ORDERS] = 1_001
    estate.target.commits["billing"][REMOTE] = 800
    (group,) = estate.check(code=1)["groups"]
    assert (group["word"], group["positions"][0]["translated"]) == ("not judged", None)
    assert "ends at 1000, before what is committed: truncated or created again" in group["positions"][0]["reason"]


def test_syncs_of_a_source_topic_before_it_was_created_again_translate_nothing(estate: Estate) -> None:
    estate.source.logs[ORDERS] = Offsets(0, 700)
    found = estate.check("--sample", "0", code=1)
    assert (found["verdict"]["word"], found["groups"][0]["positions"][0]["translated"]) == ("not judged", None)


def test_records_that_only_the_target_has_deleted_are_skipped(estate: Estate) -> None:
    estate.target.logs[REMOTE] = Offsets(450, 800)
    estate.target.commits["billing"][REMOTE] = 450
    for more in ((), ("--translated",)):
        found = estate.check("--sample", "0", *more, code=1)
        assert (found["groups"][0]["state"], found["verdict"]["skips_at_most"]) == ("skips", 50)
    estate.source.logs[ORDERS] = Offsets(650, 1_000)
    assert estate.check("--sample", "0")["verdict"]["word"] == "GO", "the source has deleted them too"


def test_a_topic_that_was_created_again_on_the_target_is_no_go_without_any_group(estate: Estate) -> None:
    estate.source.commits.clear()
    estate.target.commits.clear()
    assert estate.check()["verdict"]["word"] == "GO"
    estate.target.logs[REMOTE] = Offsets(0, 0)
    found = estate.check(code=1)
    assert (found["verdict"]["word"], found["recovery"]["records"]) == ("NO-GO", None)
    assert "orders-0" in found["verdict"]["reasons"][0]


def test_a_failed_connect_cluster_is_never_go(estate: Estate) -> None:
    estate.site.east.answer_only("/connectors", 500)
    found = estate.check(code=1)
    assert found["unread"][0]["where"] == "connect east"


def test_connectors_that_do_not_run_are_named(estate: Estate) -> None:
    estate.site.east.connectors["mm2.a.east.checkpoint"].state = "PAUSED"
    assert "mm2.a.east.checkpoint does not run (PAUSED)" in estate.text(code=2)
    estate.site.east.connectors["mm2.a.east.checkpoint"].state = "RUNNING"
    estate.site.east.connectors["mm2.a.east.checkpoint"].forced_tasks = 0
    assert "mm2.a.east.checkpoint is RUNNING, but it has no task" in estate.text(code=2)
    del estate.site.east.connectors["mm2.a.east.source.orders"]
    assert "mm2.a.east.source.orders is not applied" in estate.text(code=1)


# --- without the source -----------------------------------------------------------------------------------------------


def test_with_a_dead_source_checkpoints_and_groups_are_left_and_the_verdict_says_so(estate: Estate) -> None:
    estate.source.dead = True
    estate.target.commits["billing"][REMOTE] = 390
    found = estate.check(code=1)
    assert (found["verdict"]["word"], found["source_age_seconds"]) == ("not judged", None)
    (group,) = found["groups"]
    (position,) = group["positions"]
    assert (position["committed"], position["checkpoint"], position["on_target"]) == (600, [600, 400], 390)
    assert position["translated"] == 400, "the checkpoint is what is left"
    assert 19 < found["taken_at"] - group["checkpoint_at"] < 60
    text = estate.text(code=1)
    assert "the source does not answer, and no earlier look at it was kept" in text.splitlines()[-1]


def test_with_kept_looks_a_dead_source_is_go_with_the_age_of_what_is_known(estate: Estate) -> None:
    estate.source.dead = True
    at = time.time() - 120
    kept = KeptLooks(
        {"billing": {ORDERS: 600}}, at, {ORDERS: MirroredEnds(800, 1_005, 1_000)}, at, estate.source.syncs, at
    )
    readiness = failover_check(Workspace((estate.tree,)), PAIR, FailoverOptions(), kept)
    verdict = readiness.verdict
    assert (verdict.word, verdict.repeats_at_most, verdict.lost_at_most) == ("GO WITH", 0, 5)
    assert any("2 min" in reason for reason in verdict.reasons)
    missing = replace(kept, ends={}, ends_at=0.0)
    assert failover_check(Workspace((estate.tree,)), PAIR, FailoverOptions(), missing).verdict.word == "not judged"


def test_with_a_dead_target_nothing_is_judged(estate: Estate) -> None:
    estate.target.dead = True
    assert estate.check(code=1)["verdict"]["word"] in {"not judged", "NO-GO"}


# --- other forms ------------------------------------------------------------------------------------------------------


def test_markdown_has_verdict_and_table(estate: Estate) -> None:
    estate.source.commits["a|b"] = {ORDERS: 600}
    text = estate.text("-o", "markdown", code=1)
    assert text.startswith("### NO-GO: a-")
    assert "| <code>a&#124;b</code> | NO-GO |" in text


def test_partitions_are_rows_where_that_is_asked_for(estate: Estate) -> None:
    estate.target.commits["billing"][REMOTE] = 350
    lines = estate.text("--by", "partition", code=2).splitlines()
    assert lines[0].split()[:4] == ["group", "partition", "verdict", "committed"]
    assert lines[1].split()[:3] == ["billing", "orders-0", "repeats"] or lines[2].split()[:3] == [
        *("billing", "orders-0"),
        "repeats",
    ]
    assert "… and 1 more position" in estate.text("--by", "partition", "--rows", "1", code=2)


def test_the_check_costs_each_cluster_a_few_questions(estate: Estate) -> None:
    for number in range(50):
        estate.source.commits[f"g{number}"] = {ORDERS: 600}
        estate.target.commits[f"g{number}"] = {REMOTE: 400}
    estate.pair.asked.clear()
    estate.check()
    assert estate.pair.asked["CommittedOffsets"] == 2
    assert sum(estate.pair.asked.values()) < 30


def test_nothing_is_asked_twice(estate: Estate) -> None:
    estate.pair.asked.clear()
    estate.check()
    assert {kind: count for kind, count in estate.pair.asked.items() if count > 4} == {}


# --- schemas ----------------------------------------------------------------------------------------------------------

ORDER_SCHEMA = Schema(7, "orders-value", '{"type":"record","name":"Order","fields":[]}')
OTHER_SCHEMA = Schema(7, "users-value", '"string"')


def declare_registries(estate: Estate, **urls: str) -> None:
    (file,) = estate.site.folder.glob("*.yaml")
    text = file.read_text()
    for alias, url in urls.items():
        text = text.replace(f"cluster_id: {alias}}}", f"cluster_id: {alias}, schema_registry: {{url: '{url}'}}}}")
    file.write_text(text)
    estate.target.samples["a.orders"] = TopicSample("a.orders", 20, {"value": {SchemaId("id", "7"): 20}})


@pytest.mark.parametrize(
    ("there", "code", "word", "text"),
    [
        ([ORDER_SCHEMA], 0, "GO", ""),
        ([], 1, "NO-GO", "schema 7 (orders-value) in values of topic a.orders: the registry of east has no schema"),
        ([OTHER_SCHEMA], 1, "NO-GO", "the registry of east has another schema under this id"),
        ([replace(ORDER_SCHEMA, deleted=True)], 0, "GO", "as a deleted version only"),
    ],
)
def test_schemas_that_the_targets_registry_does_not_have_are_no_go(
    there: list[Schema], code: int, word: str, text: str, estate: Estate
) -> None:
    with serving(FakeRegistry([ORDER_SCHEMA])) as one, serving(FakeRegistry(there)) as other:
        declare_registries(estate, a=one, east=other)
        found = estate.check(code=code)
        assert found["verdict"]["word"] == word
        texts = [remark["text"] for remark in found["remarks"]]
        assert any(text in each for each in texts) if text else texts == []
        assert estate.check("--sample", "0", code=0)["verdict"]["word"] == "GO"  # no record is read


def test_schemas_of_a_registry_that_is_down_are_not_judged(estate: Estate) -> None:
    with serving(FakeRegistry([ORDER_SCHEMA])) as one, serving(FakeRegistry(broken=503)) as other:
        declare_registries(estate, a=one, east=other)
        found = estate.check(code=1)
    assert found["verdict"]["word"] == "not judged"
    (unread,) = found["unread"]
    assert (unread["where"], unread["what"]) == ("east", "schemas")
    assert "HTTP 503" in unread["reason"]


def test_a_target_without_a_registry_is_said_and_data_with_a_zero_byte_are_fine(estate: Estate) -> None:
    registry = FakeRegistry([ORDER_SCHEMA])
    with serving(registry) as one:
        declare_registries(estate, a=one)
        found = estate.check(code=2)
        assert found["verdict"]["word"] == "GO WITH"
        assert "east declares no schema registry" in found["remarks"][0]["text"]
        registry.schemas = []
        assert estate.check()["verdict"]["word"] == "GO"


def test_a_dead_source_whose_registry_is_dead_too_leaves_schemas_open(estate: Estate) -> None:
    here = FakeRegistry([ORDER_SCHEMA])
    with serving(here) as one, serving(FakeRegistry([ORDER_SCHEMA])) as other:
        declare_registries(estate, a=one, east=other)
        estate.check()
        estate.source.dead, here.broken = True, 503
        found = estate.check(code=2)
    assert found["verdict"]["word"] == "GO WITH"
    assert any(remark["text"].startswith("schemas are not judged") for remark in found["remarks"])
