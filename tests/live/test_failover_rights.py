"""`failover check`, `rehearse` and `run` with a login that lacks rights, which real brokers refuse: each right is named with
the ACL to add, the verdict is never GO, and no offset of a group is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ResourcePatternType

from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.groups import group_offsets
from mm2mgr.kafka.records import commit_group
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.runtime import Runtime
from tests.check.brokers import Allowed

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import admin, create, end_offset, statuses, until, write_values

pytestmark = [pytest.mark.live, pytest.mark.matrix]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} user_keeper="keeper-secret";',
}
KEEPER = {
    "protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="keeper" password="keeper-secret";',
}
TOPIC, REMOTE = "orders", TopicPartition("src.orders", 0)
RUN = ("failover", "run", "src->tgt", "--yes", "--producers-stopped", "--quiet-for", "1s", "--timeout", "60s")
CHECK, REHEARSE = ("failover", "check", "src->tgt", "--translated"), ("failover", "rehearse", "src->tgt")


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    listeners = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT"}
    folder = tmp_path_factory.mktemp("rights")
    with serving_pair(folder, runtime, workers=["w"], brokers=LOGIN, listeners=listeners) as pair:
        yield pair


def allow(pair: Pair, *rights: str) -> None:
    """Give mm2mgr's login rights on both clusters, such as `Describe group *`."""
    for access in (pair.source, pair.target):
        acls = []
        for right in rights:
            operation, kind, *name = right.split()
            is_prefix = bool(name) and name[0].endswith("-*")
            pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
            named = [part.removesuffix("*") if is_prefix else part for part in name]
            acls.append(Allowed(access.alias, "keeper", operation, kind, *named, pattern=pattern).binding())
        for future in admin(access).create_acls(acls).values():
            future.result(20)


def with_login(pair: Pair, text: str) -> str:
    """Return a tree whose clusters are asked with mm2mgr's login, which its connectors do not have."""
    for broker in (pair.src, pair.tgt):
        plain = f'{broker.name}: {{bootstrap_servers: ["{broker.bootstrap_servers}"]}}'
        assert plain in text
        secure = {"bootstrap_servers": [broker.bootstrap("SECURE")], "security": KEEPER}
        text = text.replace(plain, f"{broker.name}: {json.dumps(secure)}")
    return text


def offsets(pair: Pair) -> dict[str, int]:
    with Kafka(pair.target) as kafka:
        found = group_offsets(kafka, ["a", "b"])
    return {group: places[REMOTE] for group, places in found.offsets.items() if REMOTE in places}


def test_each_right_that_is_missing_is_named_and_no_group_is_written(pair: Pair, tree: Tree) -> None:
    create(pair.source, [TOPIC])
    write_values(pair.source, TOPIC, *(b"%d" % number for number in range(200)))
    for group, offset in (("a", 60), ("b", 200)):
        commit_group(pair.source, group, {TopicPartition(TOPIC, 0): offset})
    text = pair.yaml("keeper", flow("moved", TOPIC, ", checkpoints: {interval: 1s}"))
    tree.write(text)
    tree.run("apply", "--yes")
    until(lambda: end_offset(pair.target, REMOTE.topic), lambda end: end == 200, "nothing arrives")
    until(lambda: tree.json(*CHECK)["verdict"]["word"], lambda word: word.startswith("GO"), "never ready")
    tree.write(with_login(pair, text))

    missing: list[tuple[tuple[str, ...], str]] = []

    def refused(commands: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        """Hold commands to what they are to say, and to writing nothing."""
        for arguments, texts in commands.items():
            said = tree.run(*arguments, code=1)
            print(arguments, said)
            missing.extend((arguments, text) for text in texts if text not in said)
            assert "\nGO" not in said
        assert offsets(pair) == {}
        assert {status["connector"]["state"] for status in statuses(pair.url).values()} == {"RUNNING"}

    cluster = ("DescribeConfigs cluster", "Create cluster", "ClusterAction cluster")
    allow(pair, "All topic *", *cluster)
    blind = ("needs Describe on ", "--operation Describe --cluster")
    refused({CHECK: blind, REHEARSE: ("needs Describe on ",), RUN: ("groups that this login may not describe",)})

    allow(pair, "Describe cluster")
    shown = ("offsets of 2 groups", "Describe on group a", "--operation Describe --group a")
    refused({CHECK: shown, REHEARSE: ("Describe on group a",), RUN: ("offsets of 2 groups",)})

    allow(pair, "Describe group *")
    assert tree.json(*CHECK)["verdict"]["word"].startswith("GO")
    unwritable = ("mm2mgr's login may not write the offsets of groups: it needs Read on group a, Read on group b",)
    refused({REHEARSE: ("Delete on group",), RUN: unwritable})

    allow(pair, "Read group mm2mgr-*")  # of leases
    refused({RUN: (*unwritable, "--operation Read --group a --group b")})

    allow(pair, "Read group *")
    print(tree.run(*RUN))
    assert missing == []
    assert offsets(pair) == {"a": 60, "b": 200}
