"""Rules about the connectors of one pair: topics, heartbeats, names, offset syncs and checkpoints."""

from __future__ import annotations

import pytest

from mm2mgr.lint.findings import rules_of
from mm2mgr.lint.rules import pair
from mm2mgr.lint.subject import Spot, Subject, WorkerFacts
from tests.lint import made

OWN = rules_of(pair)
RULES = {rule.id for rule in OWN}
BACK = {
    "source.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "b1:9092",
    "target.cluster.alias": "A",
    "target.cluster.bootstrap.servers": "a1:9092",
}
NO_BEATS = {"heartbeats.replication.enabled": "false"}


def told(*subjects: Subject, complete: bool = False) -> set[str]:
    return made.told(*subjects, complete=complete) & RULES


def test_a_whole_pair_trips_none() -> None:
    beats = made.heartbeat(BACK)
    assert told(made.source(), made.checkpoint(), beats, complete=True) == set()
    second = made.source({**NO_BEATS, "topics": "clicks"}, name="second")
    assert told(made.source(), second, made.checkpoint(), beats, complete=True) == set()


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        ("orders", "orders", "orders"),
        ("orders.*", "x,orders-eu", "orders-eu"),
        (".*", "team-.*", "team-x"),
        ("a.b", "a-b", "a-b"),
        ("team-.*", ".*-events", "team-x-events"),
        ("[a-m].*", "[k-z]+", "k"),
    ],
)
def test_two_connectors_take_one_topic(one: str, other: str, topic: str) -> None:
    (hit,) = made.hits("overlap", made.source({"topics": one}), made.source({"topics": other}, name="second"))
    assert f"'{topic}'" in hit.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("orders", "payments"),
        ("orders-.*", "payments-.*"),
        ("[a-m].*", "[n-z].*"),
        ("(?!orders).*", "orders.*"),
        (".*-events", ".*-logs"),
        ("a&&[", "a&&["),  # Java refuses it
        ("(x+x+)+y", "x" * 200),  # would match for ever
        ("([a-z]+)*9", "abc" * 80),
    ],
)
def test_topics_apart_or_not_to_be_judged(one: str, other: str) -> None:
    assert made.hits("overlap", made.source({"topics": one}), made.source({"topics": other}, name="second")) == []


def test_an_exclude_keeps_topics_apart() -> None:
    wide = made.source({"topics": ".*", "topics.exclude": r".*\.replica,__.*,mm2.*internal,orders.*"})
    assert made.hits("overlap", wide, made.source({"topics": "orders.*"}, name="second")) == []
    assert made.hits("overlap", wide, made.source({"topics": ".*"}, name="second"))
    assert made.hits("overlap", made.source(), made.source(BACK, name="back")) == []


@pytest.mark.parametrize("off", [{"state": "STOPPED"}, {"state": "PAUSED"}])
def test_a_second_connector_beside_one_that_stands_still(off: dict[str, str]) -> None:
    (hit,) = made.hits("renamed", made.source(**off), made.source(NO_BEATS, name="new"))
    assert hit.subject is not None
    assert hit.subject.name == "new"
    assert told(made.source(**off), made.source(NO_BEATS, name="new")) == {"renamed"}
    assert told(made.source(**off), made.source({**NO_BEATS, "topics": "clicks"}, name="new")) == set()


def test_a_second_connector_with_another_alias() -> None:
    assert made.told(made.source(), made.source({"source.cluster.alias": "A2"}, name="new")) & {
        *("renamed", "overlap", "cluster-two-aliases")
    } == {"renamed"}


def test_heartbeats_twice() -> None:
    second = made.source({"topics": "clicks"}, name="second")
    assert (
        made.hits("heartbeats-twice", made.source(), second, made.heartbeat(BACK))[0].key
        == "heartbeats.replication.enabled"
    )
    assert made.hits("heartbeats-twice", made.source(), second) == []
    quiet = made.source({**NO_BEATS, "topics": "clicks"}, name="second")
    assert made.hits("heartbeats-twice", made.source(), quiet, made.heartbeat(BACK)) == []
    old = WorkerFacts(version="3.9.1")
    assert made.hits(
        "heartbeats-twice",
        made.source(worker=old),
        made.source({**NO_BEATS, "topics": "x"}, worker=old),
        made.heartbeat(BACK),
    )


def test_heartbeats_beside_the_flow() -> None:
    (hit,) = made.hits("heartbeats-never-cross", made.source(), made.heartbeat())
    assert "target must be A" in hit.fix
    assert made.hits("heartbeats-never-cross", made.source(), made.heartbeat(), made.heartbeat(BACK, name="b")) == []
    assert made.hits("heartbeats-never-cross", made.source(), made.source(BACK, name="back"), made.heartbeat()) == []
    assert made.hits("heartbeats-never-cross", made.heartbeat()) == []


def test_checkpoints_without_syncs() -> None:
    no_syncs = {"emit.offset-syncs.enabled": "false"}
    assert told(made.source(no_syncs), made.checkpoint()) == {"checkpoint-without-syncs"}
    some = made.source({"topics": "clicks"}, name="second")
    assert told(made.source(no_syncs), some, made.checkpoint({"topics": None})) == set()
    assert told(made.checkpoint(), complete=True) == {"checkpoint-without-syncs"}
    assert told(made.checkpoint()) == set()
    assert told(made.checkpoint(no_syncs)) == {"checkpoint-without-syncs"}
    assert told(made.checkpoint({"emit.checkpoints.enabled": "false"})) == {"checkpoint-without-syncs"}
    assert told(made.checkpoint({**no_syncs, "enabled": "false"})) == set()
    assert told(made.checkpoint(no_syncs, worker=WorkerFacts(version="3.8.1"))) == set()


def test_syncs_off_and_configured() -> None:
    both = {"emit.offset-syncs.enabled": "false", "offset-syncs.topic.replication.factor": "1"}
    assert told(made.source(both)) == {"syncs-with-off"}
    assert told(made.source({"emit.offset-syncs.enabled": "false"})) == set()
    assert told(made.source({**both, "emit.offset-syncs.enabled": "true"})) == set()
    assert told(made.source(both, worker=WorkerFacts(version="3.8.1"))) == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("offset-syncs.topic.location", "target"),
        ("replication.policy.class", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"),
        ("replication.policy.separator", "_"),
    ],
)
def test_source_and_checkpoint_disagree(key: str, value: str) -> None:
    (hit,) = made.hits("pair-disagrees", made.source(), made.checkpoint({key: value}))
    assert hit.key == key
    fixed = hit.fix.removeprefix("write ").partition(",")[0].partition("=")[2]
    assert made.hits("pair-disagrees", made.source(), made.checkpoint({key: fixed})) == []
    assert made.hits("pair-disagrees", made.source({key: value}), made.checkpoint({key: value})) == []
    assert made.hits("pair-disagrees", made.source(BACK), made.checkpoint({key: value})) == []


def test_checkpoints_of_one_group_by_two_connectors() -> None:
    one, two = made.checkpoint({"topics": None}, name="one"), made.checkpoint({"groups": "shop-.*"}, name="two")
    (hit,) = made.hits("checkpoints-twice", one, two)
    assert (hit.subject, hit.others) == (two, (one,))
    assert "groups such as 'shop-x' into A.checkpoints.internal" in hit.message
    for state in ("PAUSED", "STOPPED"):
        assert made.hits("checkpoints-twice", one, made.checkpoint(name="two", state=state)) == []
    assert made.hits("checkpoints-twice", one, made.checkpoint({"enabled": "false"})) == []
    apart = made.checkpoint({"groups": "stock-.*"}, name="one"), made.checkpoint({"topics": "x"}, name="three")
    assert made.hits("checkpoints-twice", two, apart[0]) == []
    assert made.hits("checkpoints-twice", made.checkpoint({"topics": "y"}), apart[1]) == []
    assert made.hits("checkpoints-twice", one, made.checkpoint(BACK, name="back")) == []
    nodes = [made.checkpoint(name="A->B", form="dedicated", spot=Spot(file)) for file in ("n1/mm2", "n2/mm2")]
    assert made.hits("checkpoints-twice", *nodes) == []
    assert len(made.hits("checkpoints-twice", one, *nodes)) == 1


def test_checkpoints_for_topics_that_nobody_mirrors() -> None:
    assert told(made.source(), made.checkpoint({"topics": "A.orders"})) >= {"checkpoint-other-topics"}
    assert told(made.source(), made.checkpoint({"topics": "A.orders,payments"})) == set()
    assert told(made.source(), made.checkpoint({"topics": None})) == set()
    assert told(made.checkpoint({"topics": "A.orders"})) == set()


def test_two_connectors_of_one_name() -> None:
    def at(file: str, **facts: object) -> Subject:
        return made.source({"topics": file}, name="mirror", spot=Spot(file=file), **facts)

    assert made.hits("same-name", at("mm2/a.json"), at("mm2/b.json"))
    assert made.hits("same-name", at("east/a.json"), at("west/b.json")) == []
    workers = [WorkerFacts(properties={"bootstrap.servers": f"{side}:9092"}) for side in ("east", "west")]
    assert made.hits("same-name", at("mm2/a.json", worker=workers[0]), at("mm2/b.json", worker=workers[1])) == []
    assert made.hits("same-name", made.source(name="one"), made.source(name="two")) == []


@pytest.mark.parametrize(
    ("policy", "version", "own", "differs"),
    [
        ("io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", "2.8.2", None, False),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "3.0.2", None, False),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "3.1.2", None, True),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "3.5.2", "false", True),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "4.3.1", "false", False),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "3.0.2", None, True),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "4.3.1", "false", True),
    ],
)
def test_a_separator_counts_where_a_name_has_it(policy: str, version: str, own: str | None, differs: bool) -> None:
    """Of remote topics where the policy adds the alias, of internal ones since 3.1 (KIP-690, KIP-949)."""
    alike = {pair._POLICY: policy, "replication.policy.internal.topic.separator.enabled": own}
    worker = WorkerFacts(version=version)
    first, second = made.source({**alike, pair._SEPARATOR: "_"}, worker=worker), made.checkpoint(alike, worker=worker)
    assert bool(made.hits("pair-disagrees", first, second)) is differs
