"""What a plan proposes leads out: typed into the tree or the command line as it is written, it ends in a plan without that block.

Not here: what only waits or upgrades; fixes of lint (tests/lint/test_heal.py), claims (test_adoption_claims) and journals (test_moves).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mm2mgr.plan.changes import Plan
from mm2mgr.plan.judges import with_many_changes_held
from mm2mgr.render import FLOW_KEY, OWNER_KEY
from tests.asking import topics_with
from tests.fake_connect import CLASSES
from tests.plan.site import FLOWS, Site

ALONE = "checkpoints: false, heartbeats: false"
A_TO_EAST = {
    "connector.class": CLASSES[0],
    "topics": "orders",
    "source.cluster.alias": "a",
    "target.cluster.alias": "east",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "east:9092",
}


def flow(name: str, topics: str, more: str = "") -> str:
    return f"  {name}: {{sources: [a], targets: [east], topics: {{include: [{topics}]}}, {ALONE}{more}}}\n"


def flows(*declared: str) -> str:
    return "flows:\n" + "".join(declared)


ORDERS, SALES, LOGS = flow("orders", "orders"), flow("sales", "orders"), flow("logs", "logs.web")
LEGACY = flow("orders", "orders", ", connector_name: legacy")
Typed = tuple[str, dict[str, Any]]
"""A tree and the options of plan."""


@dataclass(frozen=True)
class Case:
    """A plan that blocks `connector`, for `reason`; `typed` returns the tree and options that its remedy asks for."""

    tree: str
    connector: str
    reason: str
    typed: Callable[[str, str], Typed]
    before: tuple[str, ...] = ()
    """Trees that were applied, one after the other."""
    live: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Connectors that others made on east."""
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = "4.3.1"
    max_changes: int | None = None


# --- typing ------------------------------------------------------------------------------------------------------------


def entry(name: str) -> Callable[[str, str], Typed]:
    """Write the entry of a list that the remedy shows."""

    def typed(tree: str, remedy: str) -> Typed:
        (text,) = re.findall(rf"{name}: \[\{{.*?\}}\]", remedy)
        return f"{tree}{text}\n", {}

    return typed


def option(name: str, pattern: str = r"\S+") -> Callable[[str, str], Typed]:
    """Add the option that the remedy shows."""

    def typed(tree: str, remedy: str) -> Typed:
        value = re.findall(rf"--{name} ({pattern})", remedy)[-1]
        keys: dict[str, Any] = {
            "allow": {"allow": [value]},
            "allow-deletes": {"allow_deletes": int(value or 0) if value.isdecimal() else 0},
        }
        return tree, keys.get(name, {name: value})

    return typed


def replaced(says: str, old: str, new: str) -> Callable[[str, str], Typed]:
    """Do what the remedy says in words."""

    def typed(tree: str, remedy: str) -> Typed:
        assert says in remedy, remedy
        assert old in tree
        return tree.replace(old, new), {}

    return typed


STORED = {"orders": 9, "logs.web": 9}
CASES = {
    "a connector of that name without a mark": Case(
        flows(LEGACY), "legacy", "carries no owner mark", entry("adopt"), live={"legacy": A_TO_EAST}
    ),
    "a connector of that name of another owner": Case(
        flows(LEGACY),
        "legacy",
        "belongs to owner 'them'",
        entry("adopt"),
        live={"legacy": A_TO_EAST | {OWNER_KEY: "them"}},
    ),
    "adopted, and of another owner": Case(
        flows(LEGACY) + "adopt: [{connect: east, connector: legacy}]\n",
        "legacy",
        "belongs to owner 'them'",
        replaced("write from_owner: them at", "connector: legacy}]", "connector: legacy, from_owner: them}]"),
        live={"legacy": A_TO_EAST | {OWNER_KEY: "them"}},
    ),
    "a connector of that name and of another class": Case(
        flows(LEGACY),
        "legacy",
        "it is a org.example.Sink",
        replaced("write another connector_name in flow 'orders'", "name: legacy", "name: mine"),
        live={"legacy": {"connector.class": "org.example.Sink"}},
    ),
    "an adopted connector of another class": Case(
        flows(LEGACY) + "adopt: [{connect: east, connector: legacy}]\n",
        "legacy",
        "the connector to be adopted is a org.example.Sink",
        lambda tree, remedy: (
            (flows(LEGACY).replace("name: legacy", "name: mine"), {})
            if "remove that entry, and write another connector_name in flow 'orders'" in remedy
            else (remedy, {})
        ),
        live={"legacy": {"connector.class": "org.example.Sink"}},
    ),
    "an adopted connector between other clusters": Case(
        flows(LEGACY) + "adopt: [{connect: east, connector: legacy}]\n",
        "legacy",
        "has source.cluster.alias=alpha",
        lambda tree, remedy: (
            (flows(LEGACY).replace("name: legacy", "name: mine"), {})
            if "remove that entry, and write another connector_name in flow 'orders'" in remedy
            else (remedy, {})
        ),
        live={"legacy": A_TO_EAST | {"source.cluster.alias": "alpha", "topics": "other"}},
    ),
    "an adopted connector that does not run": Case(
        flows(LEGACY) + "adopt: [{connect: east, connector: legacy}]\n",
        "legacy",
        "nothing of that name runs there",
        replaced("or remove that entry", "adopt: [{connect: east, connector: legacy}]\n", ""),
    ),
    "heartbeats of somebody else": Case(
        FLOWS,
        "mm2.a.east.heartbeat",
        "carries no owner mark",
        replaced("write heartbeats: false in flow", "topics:", "heartbeats: false, topics:"),
        live={"mm2.a.east.heartbeat": {"connector.class": CLASSES[2]}},
    ),
    "checkpoints of somebody else": Case(
        FLOWS,
        "mm2.a.east.checkpoint",
        "carries no owner mark",
        replaced("write checkpoints: false in flow", "topics:", "checkpoints: false, topics:"),
        live={"mm2.a.east.checkpoint": {"connector.class": CLASSES[1]}},
    ),
    "a renamed flow": Case(
        flows(SALES), "mm2.a.east.source.sales", "mirrored-already", entry("moved"), before=(flows(ORDERS),)
    ),
    "a renamed flow that may mirror again": Case(
        flows(SALES),
        "mm2.a.east.source.sales",
        "mirrored-already",
        option("allow"),
        before=(flows(ORDERS),),
        options={"prune": True},
    ),
    "a topic that goes to another flow": Case(
        flows(flow("orders", "orders, logs.web"), flow("logs", "other")),
        "mm2.a.east.source.orders",
        "mirrored-already",
        entry("moved"),
        before=(flows(ORDERS, LOGS),),
    ),
    "a topic that another flow gave up earlier": Case(
        flows(flow("orders", "orders, logs.web"), flow("logs", "other")),
        "mm2.a.east.source.orders",
        "mirrored-already",
        entry("moved"),
        before=(flows(ORDERS, LOGS), flows(ORDERS, flow("logs", "other"))),
    ),
    "two topics, and one of them is not in the entry": Case(
        flows(flow("orders", "orders, logs.web, logs.app"), flow("logs", "other"))
        + "moved: [{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.app]}]\n",
        "mm2.a.east.source.orders",
        "mirrored-already",
        replaced("write logs.web under topics: of that entry of moved:, too", "[logs.app]}]", "[logs.app, logs.web]}]"),
        before=(flows(ORDERS, flow("logs", "logs.web, logs.app")),),
    ),
    "other names on the target": Case(
        flows(flow("orders", "orders", ", separator: '_'")),
        "mm2.a.east.source.orders",
        "target-names",
        option("allow", r"target-names"),
        before=(flows(ORDERS),),
    ),
    "many deletes": Case(
        flows(ORDERS).replace("orders", "other"),
        "mm2.a.east.source.orders",
        "one of 1 deletes",
        option("allow-deletes", r"\d+"),
        before=(flows(ORDERS),),
        options={"prune": True, "allow_deletes": 0},
    ),
    "a move from a connector that nobody adopted": Case(
        flows(ORDERS) + "moved: [{from: east/legacy, to: 'orders:a->east'}]\n",
        "mm2.a.east.source.orders",
        "carries no owner mark and is not adopted",
        entry("adopt"),
        live={"legacy": A_TO_EAST},
    ),
    "a move from another owner": Case(
        flows(ORDERS) + "moved: [{from: east/legacy, to: 'orders:a->east'}]\n",
        "mm2.a.east.source.orders",
        "belongs to owner 'them'",
        replaced(
            "write from_owner: them in the entry of moved:",
            "from: east/legacy,",
            "from: east/legacy, from_owner: them,",
        ),
        live={"legacy": A_TO_EAST | {OWNER_KEY: "them"}},
    ),
    "a move from a released connector": Case(
        flows(SALES) + "moved: [{from: 'orders:a->east', to: 'sales:a->east'}]\n"
        "release: [{connect: east, connector: legacy}]\n",
        "mm2.a.east.source.sales",
        "is under release:",
        replaced("remove its entry of release:", "release: [{connect: east, connector: legacy}]\n", ""),
        live={"legacy": A_TO_EAST | {OWNER_KEY: "team", FLOW_KEY: "orders:a->east"}},
    ),
    "two moves of one connector": Case(
        flows(flow("orders", "orders, logs.web, more"))
        + "moved: [{from: 'logs:a->east', to: 'orders:a->east'}, {from: 'more:a->east', to: 'orders:a->east'}]\n",
        "mm2.a.east.source.orders",
        "one of its two connectors is part of another move",
        lambda tree, remedy: (
            flows(flow("orders", "orders, logs.web"), flow("more", "more"))
            + "moved: [{from: 'logs:a->east', to: 'orders:a->east'}]\n",
            {} if "keep one entry of moved: for now" in remedy else {"": remedy},
        ),
        before=(flows(ORDERS, LOGS, flow("more", "more")),),
    ),
    "two flows that swap a topic": Case(
        flows(flow("orders", "logs.web, more"), flow("logs", "orders, logs.app"))
        + "moved: [{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.web]}, "
        "{from: 'orders:a->east', to: 'logs:a->east', topics: [orders]}]\n",
        "mm2.a.east.source.logs",
        "one of its two connectors is part of another move",
        lambda tree, remedy: (
            flows(flow("orders", "orders, logs.web, more"), flow("logs", "logs.app"))
            + "moved: [{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.web]}]\n",
            {} if remedy.endswith(", and leave the topics of the other one where they are") else {"": remedy},
        ),
        before=(flows(flow("orders", "orders, more"), flow("logs", "logs.web, logs.app")),),
    ),
    "a move from a connector that is no source connector": Case(
        flows(ORDERS) + "moved: [{from: east/sink, to: 'orders:a->east'}]\n",
        "mm2.a.east.source.orders",
        "is no MirrorSourceConnector",
        replaced("or remove that entry", "moved: [{from: east/sink, to: 'orders:a->east'}]\n", ""),
        live={"sink": {"connector.class": "org.example.Sink", OWNER_KEY: "team"}},
    ),
    "a move from a flow that two connectors have the mark of": Case(
        flows(SALES) + "moved: [{from: 'orders:a->east', to: 'sales:a->east'}]\n",
        "mm2.a.east.source.sales",
        "may be any of east/one, east/two",
        replaced("write one of them as from: at", "from: 'orders:a->east'", "from: east/one"),
        live={
            "one": A_TO_EAST | {OWNER_KEY: "team", FLOW_KEY: "orders:a->east"},
            "two": A_TO_EAST | {OWNER_KEY: "team", FLOW_KEY: "orders:a->east", "topics": "nothing"},
        },
    ),
    "workers too old to create it paused": Case(
        flows(flow("orders", "orders", ", state: paused")),
        "mm2.a.east.source.orders",
        "state-too-new",
        replaced("leave `state` out until", ", state: paused", ""),
        version="3.6.2",
    ),
    "too many changes": Case(
        FLOWS,
        "mm2.a.east.source.orders",
        "too many changes: 7, and --max-changes allows 2",
        option("max-changes", r"\d+"),
        max_changes=2,
    ),
}


def planned(site: Site, tree: str, case: Case, more: Mapping[str, Any]) -> Plan:
    options = {**case.options, **more}
    most = options.pop("max-changes", case.max_changes)
    plan = site.plan(tree, **options)
    if most is None:
        return plan
    return with_many_changes_held(replace(plan, wish=replace(plan.wish, max_changes=int(most))))


def blocked(plan: Plan) -> dict[str, tuple[str, str]]:
    return {change.connector: (change.reason, change.remedy) for change in plan.changes if change.action == "blocked"}


@pytest.mark.parametrize("name", CASES)
def test_a_remedy_that_is_typed_as_it_is_written_ends_the_block(name: str, site: Site) -> None:
    case = CASES[name]
    site.east.version = case.version
    site.kafka = {
        "a": topics_with(
            {"orders": 1, "logs.web": 1, "logs.app": 1, "more": 1},
            {"orders": 9, "logs.web": 9, "logs.app": 9, "more": 9},
            {"orders": 9, "logs.web": 9, "logs.app": 9, "more": 9},
        ),
        "east": topics_with({}),
        "west": topics_with({}),
    }
    for tree in case.before:
        assert not [each for each in site.converge(tree) if each.error]
        for connector, running in site.east.connectors.items():
            for topic in ("orders", "logs.web", "logs.app", "more"):
                if topic in running.config.get("topics", "").replace("\\", "").split(","):
                    site.east.add_offsets(connector, topic, {0: 8}, alias="a")
    for connector, config in case.live.items():
        site.east.add(connector, config)
        if config.get("topics") == "orders":
            site.east.add_offsets(connector, "orders", {0: 8}, alias=config["source.cluster.alias"])
    reason, remedy = blocked(planned(site, case.tree, case, {}))[case.connector]
    assert case.reason in reason
    tree, options = case.typed(case.tree, remedy)
    assert (tree, options) != (case.tree, {})
    after = planned(site, tree, case, options)
    assert blocked(after) == {}, (remedy, tree, options)


@pytest.mark.parametrize("name", ["it's", "orders: old", "#1", "true", "123", "a, b", "- x", "[x]", "&x", "ü"])
@pytest.mark.parametrize("owner", ["", "team", "42"])
def test_a_remedy_names_whatever_a_connector_is_called_as_yaml_reads_it(name: str, owner: str, site: Site) -> None:
    site.kafka = {alias: topics_with({"orders": 1} if alias == "a" else {}) for alias in ("a", "east", "west")}
    site.east.add(name, A_TO_EAST | ({OWNER_KEY: owner} if owner else {}))
    site.east.add_offsets(name, "orders", {0: 8}, alias="a")
    text = name.replace("'", "''")
    of_owner = f", from_owner: '{owner}'" if owner not in {"", "team"} else ""
    tree = flows(ORDERS)
    if owner != "team":
        tree += f"moved: [{{from: 'east/{text}', to: 'orders:a->east'{of_owner}}}]\n"
    if of_owner:
        tree = flows(ORDERS).replace("heartbeats: false", f"heartbeats: false, connector_name: '{text}'")
    (_, remedy) = next(iter(blocked(site.plan(tree)).values()))
    (typed,) = re.findall(r"(?:adopt|moved): \[\{.*?\}\](?= |$|;)", remedy)
    assert blocked(site.plan(f"{tree}{typed}\n")) == {}, remedy
