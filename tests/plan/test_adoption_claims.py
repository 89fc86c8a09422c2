"""Two trees that adopt one connector: each leaves a claim beside the history, both refuse, and one gives way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mm2mgr.apply.history import Author, Recorder, read, settle_claims
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.plan.changes import Plan
from mm2mgr.plan.history import Claim
from mm2mgr.render import OWNER_KEY
from tests.kafka.conftest import mock_cluster
from tests.kafka.quick import Producer
from tests.plan.site import Site, actions
from tests.plan.test_adopt import BY_HAND, NONE, ORDERS, RELEASE, adopt, entry

__all__ = ["mock_cluster"]
TREE = ORDERS + adopt()


@pytest.fixture
def shared(site: Site, mock_cluster: KafkaAccess) -> Site:
    """The site, whose `east` keeps a history and runs a connector made by hand."""
    with Producer(mock_cluster, timeout_seconds=30) as producer:
        producer.send((HISTORY_TOPIC, 0), b"not a claim", key=b"claim/east/legacy/nobody")
    site.brokers |= {"east": mock_cluster.bootstrap_servers.partition(",")[0]}
    site.east.add("legacy", BY_HAND | {"target.cluster.bootstrap.servers": site.brokers["east"]})
    return site


def apply_as(site: Site, owner: str, tree: str) -> Plan:
    """Plan as this owner, and do with the claims what apply does."""
    site.owner = owner
    plan = site.plan(tree)
    topology, _ = site.declare(tree)
    recorder = Recorder(topology, "apply", Author("ann", "abc123"))
    asyncio.run(settle_claims(topology, plan.clusters, recorder))
    assert recorder.close() == {}
    return plan


def test_both_plans_refuse_and_name_the_other_until_one_releases(shared: Site) -> None:
    assert actions(apply_as(shared, "team", TREE)) == {"legacy": "no-op"}
    (change,) = apply_as(shared, "others", TREE).changes
    assert change.action == "blocked"
    assert "owner 'team' has adopted it (Connect cluster 'east' at http://" in change.reason
    assert "by ann" in change.reason
    assert "commit abc123" in change.reason
    plan = apply_as(shared, "team", TREE)
    (change,) = plan.changes
    assert (change.action, "owner 'others' has adopted it" in change.reason) == ("blocked", True)
    assert entry(plan)["says"].startswith("not adopted: owner 'others'")

    assert entry(apply_as(shared, "others", NONE + RELEASE))["done"]
    assert actions(apply_as(shared, "team", TREE)) == {"legacy": "no-op"}
    assert not shared.east.writes


def test_once_it_carries_the_mark_the_claim_is_over(shared: Site) -> None:
    apply_as(shared, "team", TREE)
    shared.east.connectors["legacy"].config[OWNER_KEY] = "team"
    apply_as(shared, "team", TREE)
    shared.east.connectors["legacy"].config.pop(OWNER_KEY)
    assert actions(apply_as(shared, "others", TREE)) == {"legacy": "no-op"}


def test_a_connector_of_that_name_between_other_clusters_is_another_one(shared: Site) -> None:
    apply_as(shared, "team", TREE)
    shared.east.connectors["legacy"].config["source.cluster.alias"] = "west"
    shared.east.connectors["legacy"].config["source.cluster.bootstrap.servers"] = "west:9092"
    tree = TREE.replace("sources: [a]", "sources: [west]")
    assert actions(apply_as(shared, "others", tree)) == {"legacy": "no-op"}


def test_claims_that_cannot_be_read_are_noted_and_the_mark_still_counts(site: Site) -> None:
    site.brokers |= {"east": "127.0.0.1:1"}
    site.east.add("legacy", BY_HAND | {"target.cluster.bootstrap.servers": site.brokers["east"]})
    plan = site.plan(TREE)
    (note,) = [note for part in plan.clusters for note in part.notes]
    assert note.startswith("not verified: whether another owner has adopted the same connectors (")
    assert actions(plan) == {"legacy": "no-op"}
    site.east.connectors["legacy"].config[OWNER_KEY] = "others"
    assert actions(site.plan(TREE)) == {"legacy": "blocked"}


def test_a_tree_that_adopts_nothing_reads_no_claims(site: Site) -> None:
    site.brokers |= {"east": "127.0.0.1:1"}
    site.converge()
    assert [note for part in site.plan().clusters for note in part.notes if "adopts" in note] == []


def test_what_another_tree_adopted_is_not_pruned_by_the_one_whose_mark_it_still_carries(shared: Site) -> None:
    shared.east.connectors["legacy"].config[OWNER_KEY] = "team"
    apply_as(shared, "others", ORDERS + adopt(", from_owner: team"))
    shared.owner = "team"
    (change,) = shared.plan(NONE, prune=True).changes
    assert (change.action, "owner 'others' has adopted it" in change.reason) == ("blocked", True)
    assert "release:" in change.remedy


def released_to_others(shared: Site) -> None:
    """`team` had the connector, released it, and `others` has adopted it; it carries the mark of `team` until its next change."""
    shared.east.connectors["legacy"].config[OWNER_KEY] = "team"
    assert entry(apply_as(shared, "team", NONE + RELEASE))["says"].startswith("left running and not managed")
    assert actions(apply_as(shared, "others", ORDERS + adopt(", from_owner: team"))) == {"legacy": "no-op"}


def test_an_old_checkout_of_the_tree_that_released_it_writes_nothing(shared: Site) -> None:
    released_to_others(shared)
    shared.owner = "team"
    for tree in (ORDERS, TREE):
        (change,) = (each for each in shared.plan(tree, allow=["mirror-again"]).changes if each.connector == "legacy")
        assert (change.action, "owner 'others' has adopted it" in change.reason) == ("blocked", True), change
        assert "apply its newest commit" in change.remedy
    assert not shared.east.writes


def test_a_claim_counts_whatever_a_tree_calls_the_connect_cluster(shared: Site) -> None:
    released_to_others(shared)
    shared.owner = "team"
    shared.called = {"east": "front-door"}
    (change,) = (each for each in shared.plan(ORDERS).changes if each.connector == "legacy")
    assert (change.connect, change.action) == ("front-door", "blocked")
    shared.urls["east"] = shared.urls["east"].replace("127.0.0.1", "localhost")
    (change,) = (each for each in shared.plan(ORDERS).changes if each.connector == "legacy")
    assert (change.connect, change.action) == ("front-door", "blocked"), "a URL that nobody else uses proves nothing"


def test_a_claim_on_another_connect_cluster_of_the_same_kafka_is_no_reason(shared: Site) -> None:
    """`others` calls it by a URL that is another Connect cluster here."""
    claim = Claim("others", "theirs", "legacy", ("a", "east"), (shared.urls["west"],), "bob", "", "")
    topology, _ = shared.declare(ORDERS)
    assert claim.places(topology, "east") == ("east",), "west runs on another Kafka cluster"
    topology, _ = shared.declare(ORDERS)
    topology.connects["west"] = replace(topology.connects["west"], kafka="east")  # type: ignore[index]
    topology.connects["west"] = replace(
        topology.connects["west"],
        model=topology.connects["east"].model.model_copy(update={"url": (shared.urls["west"],)}),
    )  # type: ignore[index]
    assert claim.places(topology, "east") == ("west",)


def test_what_another_team_calls_a_cluster_is_no_reason_to_rename_yours(site: Site) -> None:
    config = BY_HAND | {"topics": "theirs", "source.cluster.alias": "alpha"}
    for number in range(9):
        site.east.add(f"theirs{number}", config | {"topics": f"theirs{number}"})
    assert set(actions(site.plan()).values()) == {"create"}


def handed_over(site: Site) -> list[tuple[str, str, str]]:
    topology, _ = site.declare(TREE)
    history = asyncio.run(read(topology, ["east"]))
    return [(entry.action, entry.connector, entry.who) for entry in history.entries]


def test_the_history_has_who_adopted_and_released_what_once(shared: Site) -> None:
    for _ in range(2):
        apply_as(shared, "team", TREE)
    assert handed_over(shared) == [("adopt", "legacy", "ann")]
    for _ in range(2):
        apply_as(shared, "team", NONE + RELEASE)
    assert handed_over(shared) == [("adopt", "legacy", "ann"), ("release", "legacy", "ann")]
    assert not shared.east.writes


def test_what_carries_the_mark_is_released_once_in_the_history(shared: Site) -> None:
    shared.east.connectors["legacy"].config[OWNER_KEY] = "team"
    for _ in range(2):
        apply_as(shared, "team", NONE + RELEASE)
    assert handed_over(shared) == [("release", "legacy", "ann")]


def test_what_another_owner_claims_is_not_told_as_adopted(shared: Site) -> None:
    apply_as(shared, "others", TREE)
    apply_as(shared, "team", TREE)
    assert handed_over(shared) == []
