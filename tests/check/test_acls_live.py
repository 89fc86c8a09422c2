"""Each of the 24 rights is taken away on real brokers: the check names that one, and the command it prints gives it back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclPermissionType, ResourcePatternType  # type: ignore[attr-defined]

from mm2mgr.audit.report import FlowAudit, Verdict
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.bandwidth import TransferLimits, write_rate
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.compacted import CompactedTopic, TextWriter
from mm2mgr.kafka.lease import Lease
from mm2mgr.kafka.quotas import QuotaEntity, read_quotas, write_quotas
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.operations import AuditOptions, Workspace, audit
from tests.cli.command import allowed_seconds
from tests.fake_connect import FakeConnect, serving
from tests.live.seen import Message, commit, create, topics, until, write, write_values

from .brokers import (
    ALL,
    CHECKPOINTS,
    SYNCS,
    Allowed,
    World,
    allowed,
    certified,
    jaas,
    numbers,
    password,
    rights,
    until_missing,
)

pytestmark = pytest.mark.live

# What is taken away, and which rows are then missing. Three rows cannot stand alone: 1 and 14 are one right of one login, and
# 5 is gone only with Alter (row 6) and Read (row 22), which both include Describe.
LEFT_OUT: list[tuple[set[int], list[Allowed]]] = [
    ({1, 14}, allowed("A", "sadmin Describe topic t")),
    ({2}, allowed("A", "sadmin DescribeConfigs topic t")),
    ({3}, allowed("A", "scons Read topic t")),
    ({4}, allowed("B", "tadmin Create topic A.t")),
    ({5, 6, 22}, allowed("B", "tadmin Alter topic A.t", "tadmin Read topic A.t")),
    ({6}, allowed("B", "tadmin Alter topic A.t")),
    ({7}, allowed("B", "tprod Write topic A.t")),
    ({8}, allowed("B", "tadmin AlterConfigs topic A.t")),
    ({9}, allowed("A", "sadmin Describe cluster")),
    ({10}, allowed("B", "tadmin Alter cluster")),
    ({11}, allowed("A", f"sadmin Create topic {SYNCS}")),
    ({12}, allowed("A", f"sprod Write topic {SYNCS}")),
    ({13}, allowed("A", "sadmin Describe group g")),
    ({15}, allowed("A", f"sadmin Describe topic {SYNCS}")),
    ({16}, allowed("A", f"smain Read topic {SYNCS}")),
    ({17}, allowed("B", f"tadmin Create topic {CHECKPOINTS}")),
    ({18}, allowed("B", f"tadmin Describe topic {CHECKPOINTS}")),
    ({19}, allowed("B", f"tcons Read topic {CHECKPOINTS}")),
    ({20}, allowed("B", f"tmain Write topic {CHECKPOINTS}")),
    ({21}, allowed("B", "tadmin Read group g")),
    ({22}, allowed("B", "tadmin Read topic A.t")),
    ({23}, allowed("A", "sadmin Create topic heartbeats")),
    ({24}, allowed("A", "smain Write topic heartbeats")),
]
BEFORE, AFTER = "before the first apply", "when MirrorMaker has run"
MADE_BY_MIRRORMAKER = {"A": ["heartbeats", SYNCS], "B": ["A.t", "A.heartbeats", CHECKPOINTS]}


@pytest.fixture(scope="module", params=[BEFORE, AFTER])
def asked(world: World, request: pytest.FixtureRequest) -> World:
    if request.param == BEFORE:
        create(world.inside("A"), ["t"], 3)
        write_values(world.inside("A"), "t", b"one")
        commit_soon(world, "A", "t")
    else:
        for alias, names in MADE_BY_MIRRORMAKER.items():
            create(world.inside(alias), names)
        commit_soon(world, "B", "A.t")
    return world


def commit_soon(world: World, alias: str, topic: str) -> None:
    """Give the group its first offset: brokers that have just made their topic of offsets refuse for a moment."""
    deadline = time.monotonic() + 180
    while True:
        try:
            return commit(world.inside(alias), "g", topic, 1)
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def state(world: World) -> dict[str, object]:
    return {alias: (topics(world.inside(alias)), world.acls(alias)) for alias in world.brokers}


def test_with_all_rights_nothing_is_missing(asked: World) -> None:
    before = state(asked)
    found = until_missing(asked, set())
    assert numbers(found, "ok") == set(range(1, 25))
    assert {row.status for row in rights(found)} == {"ok"}
    assert found.commands == ()
    assert found.good
    requests = {row.where: row.status for row in found.rows if row.what.startswith("brokers that workers of Kafka 4")}
    assert requests == {"A": "ok", "B": "ok"}
    assert state(asked) == before


@pytest.mark.parametrize(("expected", "left_out"), LEFT_OUT, ids=lambda value: "-".join(map(str, value)))
def test_a_right_left_out_is_named_and_its_command_gives_it_back(
    asked: World, expected: set[int], left_out: list[Allowed], request: pytest.FixtureRequest
) -> None:
    before = BEFORE in request.node.name
    asked.remove(left_out)
    try:
        found = until_missing(asked, expected)
        assert not found.good
        missing = [row for row in rights(found) if row.status == "missing"]
        assert {row.principal for row in missing} == {f"User:{acl.user}" for acl in left_out}
        assert {row.where for row in missing} == {acl.cluster for acl in left_out}
        # Without Alter on B's cluster nobody reads its ACLs. Then nobody can tell Read from Describe on a missing topic, and
        # to ask about a group would make Kafka create its topic of group offsets.
        assert numbers(found, "unknown") == ({21, 22} if expected == {10} and before else set())
        pasted = {acl for command in found.commands for acl in asked.read(command)}
        assert pasted == set(left_out)
        asked.paste(found.commands)
        until_missing(asked, set())
    finally:
        asked.add(left_out)


def test_all_rights_left_out_at_once_come_back_by_one_paste(asked: World) -> None:
    asked.remove(ALL)
    try:
        found = until_missing(asked, set(range(1, 25)) - {21})  # nobody sees any more that B has had groups
        assert numbers(found, "unknown") == {21}
        asked.paste((*found.commands, *found.unsure))
        until_missing(asked, set())
    finally:
        asked.add(ALL)


def test_a_prefix_for_the_rights_of_one_login(asked: World) -> None:
    left_out = allowed("B", "tprod Write topic A.t", "tprod Write topic A.heartbeats")
    prefix = [replace(left_out[0], name="A.", pattern=ResourcePatternType.PREFIXED)]
    asked.remove(left_out)
    asked.add(prefix)
    try:
        until_missing(asked, set())
    finally:
        asked.remove(prefix)
        asked.add(left_out)


def test_a_deny_is_named_because_no_added_acl_outweighs_it(asked: World) -> None:
    deny = [replace(allowed("B", "tprod Write topic A.t")[0], permission=AclPermissionType.DENY)]
    asked.add(deny)
    try:
        found = until_missing(asked, {7})
        (row,) = (row for row in rights(found) if row.status == "missing")
        assert row.fix == "remove the ACL that denies User:tprod Write on topic A.t: it outweighs every ACL that allows"
        assert found.commands == ()
    finally:
        asked.remove(deny)


# --- certificates, and what does not answer ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored(world: World) -> Iterator[World]:
    yield world
    world.tree()


def by_certificate(world: World, authority: trustme.CA) -> dict[str, object]:
    trusted = {"ssl.truststore.certificates": authority.cert_pem.bytes().decode()}
    security = {"protocol": "SSL", **certified(world.authority, "mirror.example"), **trusted}
    return {"bootstrap_servers": [world.brokers["B"].bootstrap("TLS")], "security": security}


def test_the_subject_of_a_certificate_is_a_principal_to_paste(restored: World) -> None:
    restored.tree(B=by_certificate(restored, restored.authority))
    on_target = {number for number in range(4, 23) if number not in (9, 11, 12, 13, 14, 15, 16)}
    found = restored.check()
    assert numbers(found) | numbers(found, "unknown") == on_target
    (principal,) = {row.principal for row in rights(found) if row.where == "B"}
    assert principal.startswith("User:OU=Testing cert")
    given = [acl for command in (*found.commands, *found.unsure) for acl in restored.read(command)]
    restored.add(given)
    try:
        until_missing(restored, set())
    finally:
        restored.remove(given)


def test_an_authority_that_did_not_sign_is_told_and_the_others_go_on(restored: World) -> None:
    restored.tree(B=by_certificate(restored, trustme.CA()))
    found = restored.check(timeout_seconds=90)
    failed = [row for row in found.rows if row.status == "failed"]
    assert {row.where for row in failed} == {"B"}
    assert "certificate verify failed" in failed[0].effect
    assert found.seconds < 60
    assert {row.where for row in rights(found)} == {"A"}


def test_a_wrong_password_is_told_at_once_and_the_others_go_on(restored: World) -> None:
    secure = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("smain", "not-it")}
    restored.tree(A={"security": secure})
    started = time.monotonic()
    found = restored.check(timeout_seconds=90)
    assert time.monotonic() - started < 60
    failed = [row for row in found.rows if row.status == "failed"]
    assert {(row.where, row.principal) for row in failed} == {("A", "User:smain")}
    assert "uthentication" in failed[0].effect
    assert {row.status for row in rights(found)} == {"ok"}
    assert set(range(1, 25)) - numbers(found, "ok") == {16, 24}  # those of the login that could not be asked


def test_a_client_that_speaks_plain_text_to_a_secure_listener(restored: World) -> None:
    restored.tree(B={"security": {"protocol": "PLAINTEXT"}})
    found = restored.check(timeout_seconds=6)
    assert {row.where for row in found.rows if row.status == "failed"} == {"B"}
    assert found.seconds < 6 + allowed_seconds()


def test_a_declared_id_that_another_cluster_has(restored: World) -> None:
    restored.tree(A={"cluster_id": "not-this-one"})
    (row,) = (row for row in restored.check().rows if row.status == "failed")
    assert (row.where, row.what) == ("A", "cluster id")
    with Kafka(restored.inside("A")) as kafka:
        assert row.effect == f"another Kafka cluster answers there: {kafka.cluster_id()}, not not-this-one"


def test_a_placeholder_that_this_machine_lacks(restored: World) -> None:
    secure = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "${vault:kv:jaas}"}
    own = {"security": {**secure, "sasl.jaas.config": jaas("smain")}}
    restored.tree(A={"security": secure, "access": own})
    found = restored.check()
    unknown = [row for row in found.rows if row.status == "unknown"]
    assert {(row.where, row.what) for row in unknown} == {("A", "log in")}
    assert "`access:` block is for mm2mgr's reads" in unknown[0].fix
    assert found.good


# What mm2mgr itself needs, in the order in which it is given, and the rows that each one fills.
OWN = {
    f"scons Create topic {HISTORY_TOPIC}": {29},
    f"scons Write topic {HISTORY_TOPIC}": {28},
    f"scons Read topic {HISTORY_TOPIC}": {30},
    "scons Read group mm2mgr-rights": {31},
    "scons Read group mm2mgr-rights-watch": {38},
    "scons Read topic mm2-offsets.old.internal": {32},
    "scons Read topic mm2-status.old.internal": {33},
    "scons Read topic mm2-configs.old.internal": {37},
    "scons Describe group old-mm2": {34},
    "scons DescribeConfigs cluster": {35},
    "scons AlterConfigs cluster": {36},
}
IMPLIED = "scons DescribeConfigs cluster"
"""By AlterConfigs, so one command is enough where both are missing."""


def test_mm2mgr_itself_needs_the_rights_of_the_page_and_no_more(restored: World) -> None:
    world = restored
    security = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("scons")}
    moved = "moved: [{from: {dedicated: old->B}, to: 'f:A->B'}]\n"
    limit = "links: [{between: [A, B], rtt: 1ms, catch_up: {limit: 9MB/s}}]\n"
    world.tree("B", moved + limit, B={"access": {"security": security}})
    access = KafkaAccess(
        "B", world.brokers["B"].bootstrap("SECURE"), {"security.protocol": security.pop("protocol"), **security}
    )
    topic = CompactedTopic(access, HISTORY_TOPIC, 1, {"cleanup.policy": "compact"})

    def write() -> str:
        writer = TextWriter(topic)
        writer.put("a", "1")
        return str(writer.close())

    works: dict[int, Callable[[], bool]] = {
        28: lambda: write() == "None",
        30: lambda: topic.read() == {"a": "1"},
        31: lambda: leases(topic, "mm2mgr-rights"),
        38: lambda: leases(topic, "mm2mgr-rights-watch"),
        35: lambda: read_quotas(access).brokers == 1,
        36: lambda: write_quotas(access, {QuotaEntity("mm2mgr.rights/A->B"): 9_000_000}) == {},
    }
    assert "Topic authorization failed" in write()
    assert list(write_quotas(access, {QuotaEntity("mm2mgr.rights/A->B"): 1}).values()) == ["this login may not do that"]
    with pytest.raises(KafkaError, match="B: reading client quotas failed: this login may not do that"):
        read_quotas(access)
    missing = set().union(*OWN.values())
    commands = until_missing(world, missing).commands
    assert {acl for command in commands for acl in world.read(command)} == set(allowed("B", *OWN.keys() - {IMPLIED}))
    granted: list[Allowed] = []
    try:
        for line, (row,) in OWN.items():
            granted += allowed("B", line)
            world.add(granted[-1:])
            missing -= {row}
            until_missing(world, missing)
            if row in works:
                until(lambda: answered(works[row]), bool, f"still refused after: {line}", 30)  # noqa: B023  used at once
    finally:
        world.remove(granted)


def leases(topic: CompactedTopic, group: str) -> bool:
    lease = Lease(topic, group)
    try:
        return lease.answered.wait(60) and lease.confirm()
    finally:
        lease.close()


# What an audit needs beside the history, and what it says of its one topic where that is missing.
AUDITS = {
    "A tmain Read topic audited": "A has no topic audited (deleted?), or this login may not see it: it needs Read on topic audited",
    "A tmain DescribeConfigs topic audited": "such as cleanup.policy: it needs DescribeConfigs on topic audited",
    "B smain Read topic A.audited": "B has no topic A.audited (deleted?), or this login may not see it: it needs Read on topic A.audited",
    "B smain DescribeConfigs topic A.audited": "such as cleanup.policy: it needs DescribeConfigs on topic A.audited",
}
DESCRIBED = "A tmain Describe topic audited"
"""With this instead of Read the topic is seen, and its records cannot be read."""


def test_an_audit_needs_the_rights_of_the_page_and_no_more(restored: World) -> None:
    """mm2mgr has logins of its own without any right; what the connectors lack does not count here."""
    world, fake = restored, FakeConnect(source_topics={"audited": 1})
    log = [Message(0, b"k", b"%d" % number, timestamp_ms=1_795_687_200_000 + number) for number in range(20)]
    for alias, topic in (("A", "audited"), ("B", "A.audited")):
        create(world.inside(alias), [topic])
        write(world.inside(alias), topic, log)
    clusters = {}
    for alias, user, own in (("A", "sadmin", "tmain"), ("B", "tadmin", "smain")):
        of_connectors, of_mm2mgr = (
            {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(name)}
            for name in (user, own)
        )
        servers = [world.brokers[alias].bootstrap("SECURE")]
        clusters[alias] = {"bootstrap_servers": servers, "security": of_connectors, "access": {"security": of_mm2mgr}}
    flow = {"sources": ["A"], "targets": ["B"], "topics": {"include": ["audited"]}, "audit": "2%"}
    with serving(fake) as url:
        tree = {"owner": "rights", "defaults": {"clusters": {"replication_factor": 1}}, "clusters": clusters}
        tree |= {"connect": {"c": {"url": [url], "kafka": "B"}}, "flows": {"audited": flow}}
        (world.folder / "tree.yaml").write_text(json.dumps(tree))
        workspace = Workspace((world.folder,))
        for connector in workspace.connectors:
            fake.add(connector.name, connector.config)
        fake.add_offsets("mm2.A.B.source.audited", "audited", {0: 19}, "A")

        def missing() -> set[int]:
            return {number for number in numbers(world.check()) if number >= 28}

        until(missing, lambda rows: rows == {28, 29, 30, 31, 38, 39, 40, 41})
        granted = [acl for command in world.check().commands for acl in world.read(command)]
        granted = [acl for acl in granted if acl.user in ("tmain", "smain")]
        needed = {line: allowed(line[0], line[2:]) for line in AUDITS}
        lease = allowed("B", "smain Read group mm2mgr-rights-audit")
        assert {acl for acl in granted if acl.name.endswith(("audited", "-audit"))} == {*chain(lease, *needed.values())}

        def judge() -> FlowAudit:
            return audit(workspace, ("audited",), AuditOptions(spark=False)).flows[0]

        def reasons(flow: FlowAudit) -> str:
            return " ".join((*flow.not_judged, *(reason for part in flow.partitions for reason in part.not_judged)))

        world.add(granted)
        try:
            until(missing, lambda rows: not rows)
            assert until(judge, lambda flow: flow.verdict is Verdict.EQUAL).partitions[0].source_records == 20
            topic = CompactedTopic(kafka_access(workspace.topology.clusters["B"]), HISTORY_TOPIC, 1, {})
            assert until(lambda: answered(lambda: leases(topic, "mm2mgr-rights-audit")), bool)
            for line, reason in AUDITS.items():
                world.remove(needed[line])
                row = 41 if "DescribeConfigs" in line else 40
                until(missing, lambda rows: rows == {row})  # noqa: B023  used at once
                assert until(judge, lambda flow: reason in reasons(flow)).verdict is Verdict.NOT_JUDGED  # noqa: B023  at once
                world.add(needed[line])
            described = allowed(DESCRIBED[0], DESCRIBED[2:])
            world.add(described)
            world.remove(needed["A tmain Read topic audited"])
            granted += described
            flow_audit = until(judge, lambda flow: "this login needs Read on the topic" in reasons(flow))
            assert flow_audit.verdict is Verdict.NOT_JUDGED
            world.add(needed["A tmain Read topic audited"])
        finally:
            world.remove(granted)


def answered(works: Callable[[], bool]) -> bool:
    """Tell whether it works; brokers apply a changed ACL a moment after they acknowledge it."""
    try:
        return works()
    except KafkaError:
        return False


def test_a_bandwidth_is_not_made_of_writes_that_brokers_refuse(world: World) -> None:
    rights_ = ("Create", "Describe", "Delete")
    acls = [
        Allowed("A", "smain", each, "topic", "mm2mgr.probe.", pattern=ResourcePatternType.PREFIXED) for each in rights_
    ]
    world.add(acls)
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("smain")}
    access = KafkaAccess("A", world.brokers["A"].bootstrap("SECURE"), security)
    try:
        with pytest.raises(KafkaError, match=r"A: writing topic mm2mgr\.probe\.team\..* failed: .*[Aa]uthorization"):
            write_rate(access, "team", TransferLimits(5e6, 20.0, 2))
        with Kafka(world.inside("A")) as kafka:  # brokers list a topic for a moment after they took its deletion
            until(
                lambda: [name for name in kafka.partition_counts() if name.startswith("mm2mgr.probe.")],
                lambda names: not names,
                "its topic is left behind",
            )
    finally:
        world.remove(acls)


def test_a_broker_that_is_down_hides_nothing_else(world: World) -> None:
    world.brokers["A"].kill()
    found = world.check(timeout_seconds=8)
    assert found.seconds < 7 + allowed_seconds()
    assert {row.where for row in found.rows if row.status == "failed"} == {"A"}
    assert {row.where for row in rights(found)} == {"B"}
    assert not found.good


def test_no_check_ever_told_a_password(world: World) -> None:
    said = "\n".join(world.said)
    assert "User:tprod" in said
    assert not [user for user in ("smain", "sadmin", "tprod", "tadmin") if password(user) in said]
    assert "not-it" not in said
