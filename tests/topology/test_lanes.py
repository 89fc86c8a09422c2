"""Lanes in the tree: each topic on exactly one connector, whatever else the flow says, and clear errors."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.render import CLIENT_ID_KEY, FLOW_KEY, LANE_OF_KEY, render
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology
from tests.spec.trees import write

INCLUDES = ("app[.].*", "app.a", "app.b", "app.c", "[a-z].*", "app[.][ab]", ".*[.]c", ".*")
EXCLUDES = ("app.b", "app[.]d.*", ".*x")
NAMES = ("app.a", "app.b", "app.c", "app.d", "other", "other.c", "app.new", "appxa")


def topology(folder: Path, flow: str, more: str = "") -> Topology:
    return expand(
        load(
            [
                write(
                    folder,
                    x=f"""\
owner: team
clusters:
  a: {{bootstrap_servers: ['a:9092']}}
  b: {{bootstrap_servers: ['b:9092']}}
connect:
  b: {{url: 'http://b:8083', kafka: b}}
flows:
  app: {{sources: [a], targets: [b], {flow}}}
{more}""",
                )
            ]
        )
    )


def test_a_lane_is_a_flow_with_the_settings_of_its_own(tmp_path: Path) -> None:
    flow = (
        "topics: {include: ['app[.].*']}, connector_name: legacy, catch_up: {limit: 5MB/s}, tasks: {max: 4},"
        " balance: {lanes: {heavy: [app.a], light: {topics: [app.b], tasks: {max: 2}}}}"
    )
    expanded = topology(tmp_path, flow)
    configs = {connector.name: connector.config for connector in render(expanded)}
    sources = {name: config for name, config in configs.items() if "topics" in config and "groups" not in config}
    assert {name: (config["topics"], config["tasks.max"], config[FLOW_KEY]) for name, config in sources.items()} == {
        "legacy": ("app[.].*", "4", "app:a->b"),
        "legacy.heavy": (r"app\.a", "4", "app.heavy:a->b"),
        "legacy.light": (r"app\.b", "2", "app.light:a->b"),
    }
    assert {config[CLIENT_ID_KEY] for config in sources.values()} == {"mm2mgr.team/app:a->b"}  # one limit for all
    assert [config.get(LANE_OF_KEY) for config in sources.values()] == [None, "app:a->b", "app:a->b"]
    assert [config["heartbeats.replication.enabled"] for config in sources.values()] == ["true", "false", "false"]
    alone = topology(tmp_path / "alone", flow.partition(", balance")[0])
    checkpoint = next(connector for connector in render(alone) if connector.type == "checkpoint")
    assert configs[checkpoint.name] == checkpoint.config
    for name in ("app", "app:a->b", "a->b"):
        assert len(expanded.select(name)) == 3
    assert [flow.id for flow in expanded.select("app.heavy")] == ["app.heavy:a->b"]


@pytest.mark.parametrize("seed", range(30))
def test_each_topic_of_a_flow_is_on_exactly_one_connector(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    topics = f"include: {chance.sample(INCLUDES, 2)}, exclude: {chance.sample(EXCLUDES, chance.randrange(3))}"
    (whole,) = topology(tmp_path / "whole", f"topics: {{{topics}}}").flows
    lanes: dict[str, list[str]] = {}
    for name in filter(whole.carries, NAMES[:6]):
        if chance.random() < 0.6:
            lanes.setdefault(chance.choice(["x", "y"]), []).append(name)
    try:
        flows = topology(tmp_path / "lanes", f"topics: {{{topics}}}, balance: {{lanes: {lanes}}}").flows
    except SpecError as error:
        assert "have all its topics" in str(error)  # noqa: PT017  only this one is possible
        return
    for name in NAMES:
        assert sum(flow.carries(name) for flow in flows) == whole.carries(name), name


@pytest.mark.parametrize(
    ("flow", "more", "message"),
    [
        (
            "topics: {include: ['app[.].*']}, balance: {lanes: {x: [other]}}",
            "",
            "its `topics` do not include it; remove it from the lane",
        ),
        ("topics: {include: ['app[.].*'], exclude: [app.a]}, balance: {lanes: {x: [app.a]}}", "", "excluded by"),
        ("topics: {include: ['.*']}, balance: {lanes: {x: [heartbeats]}}", "", "heartbeats, which stay"),
        ("topics: {include: ['.*']}, balance: {lanes: {x: [a], y: [a]}}", "", "in lane 'x' and in lane 'y'"),
        (
            "topics: {include: ['.*']}, balance: {lanes: {x: [a, a]}}",
            "",
            "topic 'a' is twice in lane 'x': keep it once",
        ),
        ("topics: {include: [a, b]}, balance: {lanes: {x: [a, b]}}", "", "have all its topics"),
        ("topics: {include: ['.*']}, balance: {lanes: {x: []}}", "", "'flows.app.balance.lanes.x' is empty"),
        ("topics: {include: ['.*']}, balance: {lanes: {x: ['a.*']}}", "", "topic name"),
        (
            "topics: {include: ['a.*']}, balance: {lanes: {x: [ab]}}",
            "  app.x: {sources: [a], targets: [b], topics: {include: [b]}}",
            "would have the name of flow 'app.x'",
        ),
    ],
)
def test_what_lanes_cannot_be_is_said_with_its_place(tmp_path: Path, flow: str, more: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        topology(tmp_path, flow, more)
    assert message in str(error.value)
    assert "x.yaml:" in str(error.value)


@pytest.mark.parametrize("below", ["balance: ", "flows: {balance: "])
def test_lanes_of_the_defaults_are_answered_with_their_own_line(tmp_path: Path, below: str) -> None:
    """They are of every flow, and few have the same topics."""
    defaults = f"defaults:\n  {below}{{lanes: {{x: [other]}}}}{'}' * below.count('{')}\n"
    with pytest.raises(SpecError) as error:
        topology(tmp_path, "topics: {include: ['app[.].*']}", defaults)
    line = next(n for n, line in enumerate((tmp_path / "x.yaml").read_text().splitlines(), 1) if "lanes" in line)
    assert f"x.yaml:{line}:" in str(error.value)
    assert "write the lane in the flow that has the topic" in str(error.value)


def test_a_lane_has_the_tasks_settings_that_it_does_not_write(tmp_path: Path) -> None:
    """What `mm2mgr rebalance` prints has only the maximum: the capacity stays that of the flow."""
    lanes = "balance: {lanes: {heavy: {topics: [app.a], tasks: {max: 2}}, light: [app.b]}}"
    tasks = "tasks: {capacity: 5MB/s, max: 4, limit: 9}"
    flows = topology(tmp_path, f"topics: {{include: ['app[.].*']}}, {tasks}, {lanes}").flows
    assert [(flow.name, int(flow.tasks.maximum)) for flow in flows] == [("app", 4), ("app.heavy", 2), ("app.light", 4)]
    assert {flow.settings.tasks.capacity for flow in flows} == {5e6}
    assert {flow.settings.tasks.limit for flow in flows} == {9}
    assert {flow.origin("tasks", "capacity").kind for flow in flows} == {"spec"}
