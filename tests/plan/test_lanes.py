"""Lanes of a flow come, change and go: whatever dies on the way, further applies finish, and every record arrives exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random

import pytest

from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.plan.changes import Plan, Wish
from tests.clock import jumping
from tests.plan.test_moves import TOPICS, Killed, Workers, rendered

FLOW = "all:a->east"
OWN = "mm2.a.east.source.all"
Lanes = Mapping[str, list[str]]
MOST_APPLIES = 14


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    with jumping():
        yield


def tree(lanes: Lanes, more: str = "") -> str:
    balance = f", balance: {{lanes: {{{', '.join(f'{lane}: {topics}' for lane, topics in lanes.items())}}}}}"
    lines = [
        "owner: team",
        "clusters:",
        "  a: {bootstrap_servers: ['a:9092'], cluster_id: a}",
        "  east: {bootstrap_servers: ['east:9092'], cluster_id: east}",
        "  west: {bootstrap_servers: ['west:9092'], cluster_id: west}",
        "connect:",
        "  east: {url: 'http://east:8083', kafka: east, history: false}",
        "  west: {url: 'http://west:8083', kafka: west, history: false}",
        "flows:",
        f"  all: {{sources: [a], targets: [east], topics: {{include: ['orders', 'logs[.].*']}}{balance if lanes else ''}{more}}}",
    ]
    return "\n".join(lines)


def random_lanes(chance: Random) -> Lanes:
    lanes: dict[str, list[str]] = {}
    for topic in TOPICS:
        if chance.random() < 0.7:
            lanes.setdefault(chance.choice(["l1", "l2", "l3"]), []).append(topic)
    return lanes


def apply_until_still(workers: Workers, text: str) -> list[Plan]:
    """Apply again and again, as people do while a plan says so; return the plans."""
    plans = []
    for _ in range(MOST_APPLIES):
        plan = workers.plan(text)
        plans.append(plan)
        blocked = [change for change in plan.changes if change.action == "blocked"]
        assert not blocked, (blocked[0].connector, blocked[0].reason)
        if not plan.writes:
            break
        assert workers.apply(text) == []
    else:
        pytest.fail(f"not still after {MOST_APPLIES} applies")
    assert not [note for part in plans[-1].clusters for note in part.notes]
    return plans


def as_declared(workers: Workers, text: str) -> None:
    topology, connectors = rendered(text)
    live = {name: connector.config for name, connector in workers.fakes["east"].connectors.items()}
    assert live == {connector.name: dict(connector.config) for connector in connectors}
    for flow in topology.flows:
        for other in topology.flows:
            both = [topic for topic in (*TOPICS, "logs.new", "orders2") if flow.carries(topic) and other.carries(topic)]
            assert flow is other or not both
    assert all(any(flow.carries(topic) for flow in topology.flows) for topic in (*TOPICS, "logs.new"))
    assert not [config for config in live.values() if JOURNAL_KEY in config]


@pytest.mark.parametrize("version", ["3.5.2", "3.6.2"])
def test_a_new_flow_begins_with_lanes_and_is_told_where_these_stay_as_they_are(version: str) -> None:
    workers = Workers()
    workers.fakes["east"].version = version
    text = tree({"heavy": ["orders"]})
    changes = workers.plan(text).changes
    warned = {change.connector for change in changes if "cannot change connectors later" in " ".join(change.warnings)}
    assert warned == ({f"{OWN}.heavy"} if version == "3.5.2" else set())
    assert workers.apply(text) == []
    as_declared(workers, text)


@pytest.mark.parametrize("version", ["3.6.2", "4.3.1"])
def test_lanes_come_and_go_and_every_record_arrives_once(version: str) -> None:
    workers = Workers()
    workers.fakes["east"].version = version
    for lanes in ({}, {"heavy": ["orders"], "light": ["logs.a", "logs.b"]}, {"heavy": ["logs.a"]}, {}):
        apply_until_still(workers, tree(lanes))
        as_declared(workers, tree(lanes))
        for _ in range(3):
            workers.tick()
    workers.every_record_once()


def test_a_flow_begins_with_lanes() -> None:
    workers = Workers()
    plans = apply_until_still(workers, tree({"heavy": ["orders"]}))
    assert len(plans) == 2
    workers.every_record_once()


def test_lanes_that_exchange_their_only_topics() -> None:
    workers = Workers()
    apply_until_still(workers, tree({"l1": ["orders"], "l2": ["logs.a"]}))
    apply_until_still(workers, tree({"l1": ["logs.a"], "l2": ["orders"]}))
    as_declared(workers, tree({"l1": ["logs.a"], "l2": ["orders"]}))
    workers.every_record_once()


def test_prune_deletes_no_lane_that_has_topics_to_give() -> None:
    workers = Workers()
    apply_until_still(workers, tree({"l1": ["orders"], "l2": ["logs.a"]}))
    plan = workers.plan(tree({}), Wish(prune=True, allow=frozenset({"deletes"})))
    deletes = [change for change in plan.changes if change.action == "delete"]
    assert [(change.connector, change.moves_to) for change in deletes] == [(f"{OWN}.l2", ("east", OWN))]
    assert not [name for part in plan.clusters for name in part.left_over]
    assert any("apply again" in note for part in plan.clusters for note in part.notes)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.matrix) for n in range(12, 300))])
def test_random_lanes_whatever_dies_on_the_way(seed: int) -> None:
    chance = Random(seed)
    workers = Workers()
    apply_until_still(workers, tree(random_lanes(chance) if chance.random() < 0.5 else {}))
    for _ in range(3):
        for _ in range(chance.randrange(3)):
            workers.tick()
        text = tree(random_lanes(chance))
        for _ in range(chance.randrange(4)):
            if workers.plan(text).writes:
                with suppress(Killed):
                    workers.apply(text, chance.randrange(1, 45))
        apply_until_still(workers, text)
        as_declared(workers, text)
        workers.every_record_once()


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.matrix) for n in range(8, 300))])
def test_another_tree_after_a_kill_finishes_too(seed: int) -> None:
    chance = Random(1000 + seed)
    workers = Workers()
    apply_until_still(workers, tree(random_lanes(chance) if chance.random() < 0.5 else {}))
    for _ in range(3):
        first, second = tree(random_lanes(chance)), tree(random_lanes(chance))
        if workers.plan(first).writes:
            with suppress(Killed):
                workers.apply(first, chance.randrange(1, 45))
        apply_until_still(workers, second)
        as_declared(workers, second)
        workers.every_record_once()


def renamed(lanes: Lanes) -> str:
    return tree(lanes).replace("  all:", "  any:") + "\nmoved:\n  - {from: 'all:a->east', to: 'any:a->east'}\n"


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.matrix) for n in range(8, 200))])
def test_a_flow_is_renamed_with_its_lanes_whatever_dies_on_the_way(seed: int) -> None:
    chance, workers = Random(2000 + seed), Workers()
    lanes = {"heavy": ["orders"], "light": ["logs.a", "logs.b"]} if seed % 2 else {"heavy": ["logs.a"]}
    apply_until_still(workers, tree(lanes))
    for _ in range(chance.randrange(4)):
        workers.tick()
    for _ in range(chance.randrange(4)):
        if workers.plan(renamed(lanes)).writes:
            with suppress(Killed):
                workers.apply(renamed(lanes), chance.randrange(1, 60))
        assert not [name for part in workers.plan(renamed(lanes)).clusters for name in part.left_over]
    for _ in range(MOST_APPLIES):
        plan = workers.plan(renamed(lanes))
        assert not [change.reason for change in plan.changes if change.action == "blocked"]
        if not plan.writes:
            break
        assert workers.apply(renamed(lanes)) == []
    as_declared(workers, renamed(lanes))
    workers.every_record_once()


def test_prune_deletes_no_lane_whose_topics_are_not_clear() -> None:
    workers = Workers()
    apply_until_still(workers, tree({"l1": ["orders"]}))
    workers.fakes["east"].connectors[f"{OWN}.l1"].config["topics"] = "ord.*"
    plan = workers.plan(tree({}))
    assert not [name for part in plan.clusters for name in part.left_over]
    assert [change.connector for change in plan.changes if change.action == "blocked"] == [OWN]


def test_workers_without_stored_offsets_in_their_api_get_no_lanes() -> None:
    workers = Workers()
    workers.fakes["east"].version = "3.5.2"
    assert workers.apply(tree({})) == []
    plan = workers.plan(tree({"heavy": ["orders"]}))
    assert not plan.writes
    assert {c.connector for c in plan.changes if c.action == "blocked"} == {OWN, f"{OWN}.heavy"}
    assert any("needs 3.6" in change.reason for change in plan.changes)


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_lanes_of_a_flow_that_rests_rest_too(state: str) -> None:
    workers = Workers()
    apply_until_still(workers, tree({}))
    workers.tick()
    workers.flush("east", f"/connectors/{OWN}")
    workers.fakes["east"].connectors[OWN].state = state
    apply_until_still(workers, tree({"heavy": ["orders"], "light": ["logs.a"]}))
    connectors = workers.fakes["east"].connectors
    assert {connectors[name].state for name in (OWN, f"{OWN}.heavy", f"{OWN}.light")} == {state}
    for name in (OWN, f"{OWN}.heavy", f"{OWN}.light"):
        connectors[name].state = "RUNNING"
    workers.every_record_once()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.matrix) for n in range(4, 100))])
def test_lanes_move_to_another_connect_cluster_whatever_dies_on_the_way(seed: int) -> None:
    chance, workers, lanes = Random(3000 + seed), Workers(), {"heavy": ["orders"], "light": ["logs.a"]}
    apply_until_still(workers, tree(lanes))
    for _ in range(chance.randrange(4)):
        workers.tick()
    entries = [f"  - {{from: east/{OWN}{lane}, to: 'all{lane}:a->east'}}" for lane in ("", ".heavy", ".light")]
    text = "\n".join([tree(lanes, ", run_on: west"), "moved:", *entries])
    for _ in range(chance.randrange(4)):
        with suppress(Killed):
            workers.apply(text, chance.randrange(1, 60))
        left = [name for part in workers.plan(text).clusters for name in part.left_over]
        assert not [name for name in left if "source" in name]
    for _ in range(MOST_APPLIES):
        plan = workers.plan(text)
        assert not [change.reason for change in plan.changes if change.action == "blocked"]
        if not plan.writes:
            break
        assert workers.apply(text) == []
    sources = {name: sorted(n for n in fake.connectors if "source" in n) for name, fake in workers.fakes.items()}
    assert sources == {"east": [], "west": [OWN, f"{OWN}.heavy", f"{OWN}.light"]}
    workers.every_record_once()
