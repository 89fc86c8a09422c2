"""Guards over all that will run together: the tree, what it left behind, and what others run on the same Connect clusters."""

from __future__ import annotations

import pytest

from mm2mgr.plan.changes import Change, Plan
from tests.asking import topics_with
from tests.fake_connect import MIRROR
from tests.plan.site import Site, actions

ONE = "flows:\n  orders: {sources: [a], targets: [east], topics: {include: [orders, 'logs[.].*']}}\n"
ALONE = ONE.replace("topics:", "heartbeats: false, checkpoints: false, topics:")
RING = """\
defaults: {flows: {replication_policy: identity, heartbeats: false, checkpoints: false, topics: {include: [orders]}}}
flows:
  there: {sources: [a], targets: [east]}
  on: {sources: [east], targets: [west]}
  back: {sources: [west], targets: [a], run_on: east}
"""
SOURCE = "mm2.a.east.source.orders"


def of(plan: Plan, connector: str) -> Change:
    return next(change for change in plan.changes if change.connector == connector)


def by_hand(site: Site, name: str = "by-hand", **changes: str) -> None:
    """Let somebody create a connector from a to east that nobody marked."""
    site.east.connectors.pop(name, None)
    site.east.add(
        name,
        {
            "connector.class": f"{MIRROR}MirrorSourceConnector",
            "source.cluster.alias": "a",
            "target.cluster.alias": "east",
            "source.cluster.bootstrap.servers": "a:9092",
            "target.cluster.bootstrap.servers": "east:9092",
            "topics": "orders",
            **changes,
        },
    )


def test_a_ring_of_identity_flows_is_blocked_whole(site: Site) -> None:
    plan = site.plan(RING)
    assert set(actions(plan).values()) == {"blocked"}
    assert all(change.reason.startswith("identity-loop: topic 'orders' is mirrored ") for change in plan.changes)
    site.apply(plan, RING)
    assert (site.names("east"), site.names("west")) == ([], [])


def test_a_ring_is_closed_by_one_flow_more_and_only_that_is_blocked(site: Site) -> None:
    two = RING.rpartition("  back:")[0]
    site.converge(two)
    plan = site.plan(RING)
    assert actions(plan) == {
        "mm2.a.east.source.there": "no-op",
        "mm2.east.west.source.on": "no-op",
        "mm2.west.a.source.back": "blocked",
    }


def test_a_ring_with_a_reason_goes_through(site: Site) -> None:
    silenced = RING.replace("on: {", "on: {silence: {identity-loop: cut by an ACL on a}, ")
    plan = site.plan(silenced)
    assert set(actions(plan).values()) == {"create"}
    assert any("(silenced: cut by an ACL on a)" in warning for change in plan.changes for warning in change.warnings)


def test_identity_both_ways_with_names_that_differ_is_fine(site: Site) -> None:
    both = """\
defaults: {flows: {replication_policy: identity, heartbeats: false, checkpoints: false}}
flows:
  eu: {sources: [a], targets: [east], topics: {include: ['eu[.].*']}}
  us: {sources: [east], targets: [a], run_on: east, topics: {include: ['us[.].*']}}
"""
    assert set(actions(site.plan(both)).values()) == {"create"}


@pytest.mark.parametrize("where", ["east", "west"])
def test_a_connector_by_hand_on_the_same_topics_blocks(site: Site, where: str) -> None:
    by_hand(site)
    site.fakes[where].connectors["by-hand"] = site.east.connectors.pop("by-hand")
    plan = site.plan(ONE)
    assert set(actions(plan).values()) == {"blocked"}  # heartbeats and checkpoints wait with the flow
    change = of(plan, SOURCE)
    assert "overlap: " in change.reason
    assert "'by-hand'" in change.reason + change.remedy
    assert site.apply(plan, ONE) == []


def test_others_cannot_silence_what_concerns_the_tree(site: Site) -> None:
    by_hand(site, **{"mm2mgr.silence.overlap": "trust me"})
    assert of(site.plan(ONE), SOURCE).action == "blocked"


def test_one_on_other_topics_or_another_pair_does_not_block(site: Site) -> None:
    by_hand(site, topics="payments")
    by_hand(site, "other", **{"source.cluster.alias": "c", "source.cluster.bootstrap.servers": "c:9092"})
    assert set(actions(site.plan(ONE)).values()) == {"create"}


def test_one_that_is_stopped_and_has_mirrored_nothing_does_not_block(site: Site) -> None:
    by_hand(site)
    site.east.connectors["by-hand"].state = "STOPPED"
    assert set(actions(site.plan(ONE)).values()) == {"create"}


def test_one_that_appears_beside_what_runs_is_warned_of(site: Site) -> None:
    site.converge(ONE)
    by_hand(site)
    plan = site.plan(ONE)
    assert set(actions(plan).values()) == {"no-op"}
    [warning] = of(plan, SOURCE).warnings
    assert warning.startswith("overlap: ")
    site.east.connectors["by-hand"].state = "STOPPED"
    assert of(site.plan(ONE), SOURCE).warnings == ()


def test_an_update_that_overlaps_with_what_is_no_longer_declared_is_blocked(site: Site) -> None:
    two = ALONE.replace("[orders, 'logs[.].*']", "[orders]") + (
        "  logs: {sources: [a], targets: [east], heartbeats: false, checkpoints: false, topics: {include: ['logs[.].*']}}\n"
    )
    site.converge(two)
    plan = site.plan(ALONE)  # the topics of logs come back to orders, whose connector is left behind
    assert plan.clusters[0].left_over == ("mm2.a.east.source.logs",)
    assert of(plan, SOURCE).action == "blocked"
    assert "overlap: " in of(plan, SOURCE).reason


def test_a_value_that_would_fail_the_task_blocks(site: Site) -> None:
    plan = site.plan(ONE.replace("topics:", "record_producer: {compression.type: zstdd}, topics:"))
    assert set(actions(plan).values()) == {"blocked"}
    assert "invalid-value: " in of(plan, SOURCE).reason


def test_two_checkpoint_connectors_of_a_pair(site: Site) -> None:
    site.converge(ONE)
    site.kafka = {alias: topics_with({}) for alias in ("a", "east", "west")}
    site.east.connectors["theirs"] = site.east.connectors.pop("mm2.a.east.checkpoint")
    site.east.connectors["theirs"].config.update({"name": "theirs", "mm2mgr.owner": "another"})
    assert of(site.plan(ONE), "mm2.a.east.checkpoint").action == "blocked"


def test_a_second_owner_on_a_pair_is_told_what_to_write_and_then_goes_through(site: Site) -> None:
    site.converge(ONE)
    site.owner = "another"
    theirs = "flows:\n  pay: {sources: [a], targets: [east], topics: {include: [payments]}}\n"
    plan = site.plan(theirs)
    assert of(plan, "mm2.a.east.heartbeat").remedy.endswith(
        "write heartbeats: false in flow 'pay' and the other flows of the pair"
    )
    assert "write checkpoints: false in flow 'pay'" in of(plan, "mm2.a.east.checkpoint").remedy
    assert plan.has_failed
    plan = site.plan(theirs.replace("topics:", "heartbeats: false, checkpoints: false, topics:"))
    assert actions(plan) == {"mm2.a.east.source.pay": "create"}
    assert not plan.has_failed


def test_a_name_that_is_taken_holds_back_heartbeats_and_checkpoints_too(site: Site) -> None:
    by_hand(site, SOURCE, topics="payments")
    plan = site.plan(ONE)
    assert set(actions(plan).values()) == {"blocked"}
    assert of(plan, "mm2.a.east.checkpoint").reason == f"it serves only blocked connectors: {SOURCE}"


def test_a_flow_with_a_new_name_beside_its_old_connector_is_blocked_though_it_may_mirror_again(site: Site) -> None:
    site.converge(ONE)
    plan = site.plan(ONE.replace("orders:", "trade:", 1), mirror_again=True)
    change = of(plan, "mm2.a.east.source.trade")
    assert (change.action, change.reason.partition(":")[0]) == ("blocked", "overlap")
    assert change.remedy == (
        f"'{SOURCE}' on Connect cluster 'east' is no longer declared: let this one take its topics over by moved:, or"
        " --prune deletes it"
    )


def test_connectors_of_one_name_are_told_with_their_connect_clusters(site: Site) -> None:
    site.converge(ONE)
    elsewhere = ONE.replace("targets: [east]", "targets: [east], run_on: west")
    plan = site.plan(elsewhere, mirror_again=True)
    change = next(of for of in plan.changes if (of.connect, of.connector) == ("west", SOURCE))
    assert f"overlap: east/{SOURCE} and west/{SOURCE} both mirror" in change.reason


def test_a_deletion_that_is_blocked_is_not_advised_again(site: Site) -> None:
    two = f"{ONE}  pay: {{sources: [a], targets: [east], topics: {{include: [payments]}}}}\n"
    site.converge(two)
    elsewhere = two.replace("targets: [east]", "targets: [east], run_on: west")
    plan = site.plan(elsewhere, prune=True, mirror_again=True, allow_deletes=0)
    change = next(of for of in plan.changes if (of.connect, of.connector) == ("west", "mm2.a.east.source.pay"))
    assert change.action == "blocked"
    assert "--prune" not in change.remedy
    assert "its deletion is blocked here" in change.remedy
