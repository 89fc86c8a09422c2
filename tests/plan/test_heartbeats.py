"""Heartbeats of a pair stay with the connector that mirrors them, and nothing begins what a left-over still does."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.apply.waves import Rollout
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.planfile import as_reviewed, read_plan, write_plan
from mm2mgr.render import HEARTBEATS_KEY, render
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology
from tests.asking import answer_kafka, make_plan, topics_with
from tests.clock import jumping
from tests.examples import draw_examples, sampled
from tests.fake_connect import FakeConnect
from tests.plan.site import FLOWS, ON_EAST, Site, actions, errors
from tests.spec.trees import write

BEAT, LOGS, ORDERS, CHECKPOINT = ON_EAST
ARCHIVE = FLOWS + "  archive: {sources: [a], targets: [east], topics: {include: [bills]}}\n"
ON_ARCHIVE = "mm2.a.east.source.archive"
WITHOUT_LOGS = FLOWS.replace("targets: [east, west]", "targets: [west]")


def change(plan: Plan, connector: str) -> Change:
    return next(each for each in plan.changes if each.connector == connector)


def carriers(site: Site, cluster: str = "east") -> list[str]:
    configs = {name: one.config for name, one in site.fakes[cluster].connectors.items()}
    return sorted(name for name, config in configs.items() if config.get(HEARTBEATS_KEY) == "true")


def notes(plan: Plan, connect: str = "east") -> str:
    return "\n".join(note for part in plan.clusters if part.connect == connect for note in part.notes)


def test_a_new_flow_that_sorts_first_takes_no_heartbeats(site: Site) -> None:
    site.converge()
    plan = site.plan(ARCHIVE)
    assert {name for name, action in actions(plan).items() if action != "no-op"} == {ON_ARCHIVE, CHECKPOINT}
    assert [key.key for key in change(plan, CHECKPOINT).keys] == ["topics"]
    assert f"the heartbeats of a->east stay with '{LOGS}', which mirrors them now" in notes(plan)
    assert f"names '{ON_ARCHIVE}'" in notes(plan)
    site.apply(plan, ARCHIVE)
    assert carriers(site) == [LOGS]
    again = site.plan(ARCHIVE)
    assert again.is_empty
    assert "stay with" not in notes(again)  # said where a flow is new, and not for ever


def test_a_live_config_with_its_sets_in_another_order_is_no_change(site: Site) -> None:
    site.converge(ARCHIVE)
    for name, keys in {
        LOGS: ("topics.exclude", "config.properties.exclude"),
        CHECKPOINT: ("topics", "groups.exclude"),
    }.items():
        config = site.east.connectors[name].config
        for key in keys:
            config[key] = ", ".join(reversed(config[key].split(",")))
    assert site.plan(ARCHIVE).is_empty
    tuned = ARCHIVE.replace("topics: {include: [orders]}", "topics: {include: [orders]}, tasks: {max: 2}").replace(
        "east, west], ", "east, west], tasks: {max: 2}, "
    )
    plan = site.plan(tuned)
    assert [key.key for key in change(plan, LOGS).keys] == ["tasks.max"]
    assert errors(site.apply(plan, tuned)) == {}
    assert site.plan(tuned).is_empty


def test_a_chain_that_has_an_order_is_a_change(site: Site) -> None:
    drop = "{{transforms.{0}.type: org.apache.kafka.connect.transforms.DropHeaders, transforms.{0}.headers: {0}"
    chain = f"source_connector: {drop.format('x')}, transforms: 'x,y', {drop.format('y').removeprefix('{')}}}"
    flows = FLOWS.replace("topics: {include: [orders]}", f"topics: {{include: [orders]}}, {chain}")
    site.converge(flows)
    assert site.plan(flows).is_empty
    plan = site.plan(flows.replace("'x,y'", "'y,x'"))
    assert [key.key for key in change(plan, ORDERS).keys] == ["transforms"]


def test_what_a_running_left_over_mirrors_nobody_else_does(site: Site) -> None:
    site.converge()
    plan = site.plan(WITHOUT_LOGS)
    assert actions(plan)[ORDERS] == "no-op"
    assert f"the heartbeats of a->east are still mirrored by '{LOGS}'" in notes(plan)
    assert "--prune" in notes(plan)
    site.apply(plan, WITHOUT_LOGS)
    assert carriers(site) == [LOGS]
    site.forget()
    pruned = site.plan(WITHOUT_LOGS, prune=True)
    assert actions(pruned)[LOGS] == "delete"
    assert change(pruned, ORDERS).follows == (("east", LOGS),)
    assert (
        f"'{LOGS}' on Connect cluster 'east', which still mirrors the heartbeats, is deleted first"
        in change(pruned, ORDERS).reason
    )
    again = change(pruned, ORDERS).price.again
    assert again is not None
    assert errors(site.apply(pruned, WITHOUT_LOGS)) == {}
    writes = [(each.method, each.path.split("/")[2]) for each in site.east.writes]
    assert writes.index(("DELETE", LOGS)) < writes.index(("PUT", ORDERS))
    assert carriers(site) == [ORDERS]
    assert site.plan(WITHOUT_LOGS, prune=True).is_empty


def test_a_left_over_deleted_by_hand_leaves_heartbeats_to_the_next(site: Site) -> None:
    site.converge()
    del site.east.connectors[LOGS]
    plan = site.plan(WITHOUT_LOGS)
    assert [key.key for key in change(plan, ORDERS).keys] == [HEARTBEATS_KEY]


def test_what_is_released_goes_on_alone(site: Site) -> None:
    site.converge()
    released = WITHOUT_LOGS + f"release: [{{connect: east, connector: {LOGS}}}]\n"
    for prune in (False, True):
        plan = site.plan(released, prune=prune)
        assert actions(plan)[ORDERS] == "no-op"
        assert f"'{LOGS}' on Connect cluster 'east', which is released" in notes(plan)
        assert "--prune" not in notes(plan)


def test_a_deletion_that_fails_lets_nobody_begin(site: Site) -> None:
    site.converge()
    plan = site.plan(WITHOUT_LOGS, prune=True)
    site.east.fail_next("DELETE", f"/connectors/{LOGS}", 403, "no", times=100)
    found = errors(site.apply(plan, WITHOUT_LOGS))
    assert "could not be deleted" in found[ORDERS]
    assert carriers(site) == [LOGS]


def test_a_canary_begins_after_what_it_follows_is_deleted(site: Site) -> None:
    site.converge()
    plan = site.plan(WITHOUT_LOGS, prune=True)
    site.forget()
    site.apply(plan, WITHOUT_LOGS, rollout=Rollout(canary=frozenset({"orders:a->east"})))
    writes = [(each.method, each.path.split("/")[2]) for each in site.east.writes]
    assert writes[:2] == [("DELETE", LOGS), ("PUT", ORDERS)]


@pytest.mark.parametrize("canary", [frozenset[str](), frozenset({"logs:a->east"})])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_deletion_on_another_connect_cluster_comes_first(
    site: Site, canary: frozenset[str], is_refused: bool
) -> None:
    flows = FLOWS.replace("[east, west]", "[east]")
    site.converge(flows)
    site.fakes["west"].cluster_id = "east"
    elsewhere = flows.replace("targets: [east],", "targets: [east], run_on: west,")
    plan = site.plan(elsewhere, prune=True, mirror_again=True, allow=["deletes"])
    assert change(plan, LOGS).connect == "east"
    begins = next(each for each in plan.writes if each.full_name == ("west", LOGS))
    assert begins.follows == (("east", LOGS),)
    site.east.fail_next("DELETE", f"/connectors/{LOGS}", 403, "no", times=100 if is_refused else 0)
    results = site.apply(plan, elsewhere, rollout=Rollout(canary=canary))
    assert (carriers(site, "east"), carriers(site, "west")) == (([LOGS], []) if is_refused else ([], [LOGS]))
    skipped = [each.connect for each in results if "could not be deleted" in (each.error or "")]
    assert skipped == (["west"] if is_refused else [])


def test_a_plan_file_goes_on_after_the_deletion_that_came_first(site: Site, tmp_path: Path) -> None:
    site.converge()
    reviewed = site.plan(WITHOUT_LOGS, prune=True)
    write_plan(tmp_path / "plan.json", reviewed, [], None, None)
    site.east.fail_next("PUT", f"/connectors/{ORDERS}/config", 403, "no", times=1)
    assert ORDERS in errors(site.apply(reviewed, WITHOUT_LOGS))
    now = as_reviewed(read_plan(tmp_path / "plan.json").plan, site.plan(WITHOUT_LOGS, prune=True))
    assert errors(site.apply(now, WITHOUT_LOGS)) == {}
    assert carriers(site) == [ORDERS]


def test_a_flow_that_moves_takes_heartbeats_along(site: Site) -> None:
    site.converge()
    renamed = (
        FLOWS.replace("  logs:", "  zlogs:")
        + 'moved: [{from: "logs:a->east", to: "zlogs:a->east"}, {from: "logs:a->west", to: "zlogs:a->west"}]\n'
    )
    plan = site.plan(renamed)
    assert change(plan, "mm2.a.east.source.zlogs").takes_over is not None
    assert actions(plan)[ORDERS] == "no-op"
    assert errors(site.apply(plan, renamed)) == {}
    assert carriers(site) == ["mm2.a.east.source.zlogs"]


@pytest.mark.parametrize("kind", ["heartbeat", "checkpoint"])
def test_another_heartbeat_or_checkpoint_connector_waits_for_the_left_over(site: Site, kind: str) -> None:
    site.converge()
    named = f"{kind}s: {{connector_name: other-{kind}}}, topics:"
    flows = FLOWS.replace("topics:", named).replace("[east, west]", "[east]")
    plan = site.plan(flows)
    blocked = change(plan, f"other-{kind}")
    assert blocked.action == "blocked"
    assert "--prune" in blocked.remedy
    pruned = site.plan(flows, prune=True)
    assert not pruned.has_failed
    site.forget()
    assert errors(site.apply(pruned, flows)) == {}
    writes = [(each.method, each.path.rstrip("/").rsplit("/", 1)[-1]) for each in site.east.writes]
    assert writes.index(("DELETE", f"mm2.a.east.{kind}")) < writes.index(("POST", "connectors"))
    assert site.plan(flows, prune=True).is_empty


# --- an unrelated new flow ----------------------------------------------------------------------------------------------------

CONNECTS = ("x", "y")
ALIASES = ("a", "b", "c")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, FakeConnect]]:
    fakes = {name: FakeConnect(cluster_id="a") for name in CONNECTS}
    init = ConnectClient.__init__

    def wired(self: ConnectClient, target: Any, **options: Any) -> None:
        init(self, target, **{**options, "transport": fakes[target.name].transport()})

    monkeypatch.setattr(ConnectClient, "__init__", wired)
    answer_kafka(
        monkeypatch, topics=lambda *_: topics_with({}), sizes=lambda *_: TopicSizes({}, {}), groups=lambda *_: ()
    )
    with jumping():
        yield fakes


@st.composite
def additions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw flows that come one after the other, with names that sort anyhow."""
    names = draw(st.lists(st.from_regex("[abz][abz1._-]?", fullmatch=True), min_size=2, max_size=5, unique=True))
    flows = []
    for number, name in enumerate(names):
        ends = draw(st.sampled_from((("a", "b", "c"), ("a", "b", "c"), ("b", "c", "a"))))
        flow = {
            "sources": [ends[0]],
            "targets": [ends[1]],
            "topics": {"include": draw(st.permutations((f"t{number}", f"u{number}")))},
        }
        if draw(st.booleans()):
            flow["sources"] = [ends[0], ends[2]]
        flow |= {"heartbeats": draw(st.booleans()), "checkpoints": draw(st.sampled_from((False, False, True)))}
        flows.append({name: flow})
    return flows


def tree(folder: Path, flows: list[dict[str, Any]]) -> tuple[Topology, tuple[Connector, ...]]:
    clusters = "\n".join(
        f"  {alias}: {{bootstrap_servers: ['{alias}:9092'], cluster_id: {alias}}}" for alias in ALIASES
    )
    connects = "".join(f"  {name}: {{url: 'http://{name}:8083', kafka: a}}\n" for name in CONNECTS)
    text = f"owner: team\nclusters:\n{clusters}\nconnect:\n{connects}defaults: {{flows: {{run_on: x}}}}\nflows:\n"
    text += "".join(f"  {name}: {flow}\n" for each in flows for name, flow in each.items())
    topology = expand(load([write(folder, x=text)]))
    return topology, render(topology)


@sampled("count", [40], [150])
def test_an_unrelated_new_flow_changes_no_other_connector(
    tmp_path: Path, fakes: dict[str, FakeConnect], count: int
) -> None:
    seen: Counter[str] = Counter()

    @draw_examples(count)
    @given(flows=additions(), place=st.integers(0, 4), seed=st.integers(0, 2**32))
    def holds(flows: list[dict[str, Any]], place: int, seed: int) -> None:
        *before, new = flows
        let_run(fakes, *tree(tmp_path, before), random.Random(seed))
        (name,) = new
        before.insert(min(place, len(before)), new)
        plan = asyncio.run(make_plan(*tree(tmp_path, before)))
        assert [(c.reason, c.remedy) for c in plan.changes if c.action == "blocked"] == []
        for one in plan.writes:
            assert any(each.startswith(f"{name}:") for each in one.flows), (name, one.connector)
            seen[one.action] += 1
            if one.action == "update":  # a flow's groups are translated by the checkpoint connector of its pair
                assert (one.type, {key.key for key in one.keys}) == ("checkpoint", {"topics"}), one
                assert new[name]["checkpoints"]
            fakes[one.connect].connectors.pop(one.connector, None)
            fakes[one.connect].add(one.connector, dict(one.config or {}))
        assert asyncio.run(make_plan(*tree(tmp_path, before[::-1]))).is_empty
        assert all(len(names) == 1 for names in carrying(fakes).values())
        seen["another carrier than by name"] += "stay with" in notes(plan, "x")

    holds()
    assert all(seen[each] > count / 30 for each in ("create", "update", "another carrier than by name")), seen


def let_run(
    fakes: dict[str, FakeConnect], topology: Topology, connectors: Sequence[Connector], dice: random.Random
) -> None:
    """Let connectors run; of each pair with heartbeats, any one mirrors them whose flow has some."""
    for fake in fakes.values():
        fake.connectors.clear()
    for connector in connectors:
        fakes[connector.connect].add(connector.name, dict(connector.config))
    with_heartbeats = {flow.id for flow in topology.flows if flow.settings.heartbeats.enabled}
    for pair in carrying(fakes):
        sources = (c for c in connectors if c.type == "source" and c.pair == pair)
        candidates = [c for c in sources if c.flows[0] in with_heartbeats]
        carrier = dice.choice(candidates)
        for each in candidates:
            fakes[each.connect].connectors[each.name].config[HEARTBEATS_KEY] = "true" if each is carrier else "false"


def carrying(fakes: dict[str, FakeConnect]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fake in fakes.values():
        for name, one in fake.connectors.items():
            if one.config.get(HEARTBEATS_KEY) == "true":
                found.setdefault(
                    f"{one.config['source.cluster.alias']}->{one.config['target.cluster.alias']}", []
                ).append(name)
    return found


_TWO = """\
flows:
  first: {sources: [a], targets: [east], topics: {include: [logs]}}
  second: {sources: [a], targets: [east], topics: {include: [orders]}}
"""
_THIRD = """\
flows:
  third: {sources: [a], targets: [east], topics: {include: [orders]}}
"""
_MORE = f"""\
defaults:
  flows: {{heartbeats: false, checkpoints: false}}
{_TWO}  more: {{sources: [a], targets: [east], topics: {{include: [orders]}}}}
"""


def _let_two_run(site: Site) -> None:
    records = {"orders": 5, "logs": 5}
    assert site.kafka is not None
    site.kafka["a"] = topics_with({"orders": 1, "logs": 1}, records, records)
    site.converge(_TWO)
    for name, connector in site.east.connectors.items():
        if "source" in name:
            site.east.add_offsets(name, connector.config["topics"], {0: 4}, alias="a")


def test_a_carrier_that_stays_blocks_who_follows_the_deletion_of_another(site: Site) -> None:
    _let_two_run(site)
    site.east.connectors["mm2.a.east.source.first"].config["mm2mgr.journal"] = "x"  # so it cannot be deleted
    plan = site.plan(_THIRD, prune=True, mirror_again=True)
    assert actions(plan)["mm2.a.east.source.third"] == "blocked"


def test_companions_are_deleted_although_a_repeat_of_what_stays_is_blocked(site: Site) -> None:
    _let_two_run(site)
    changes = actions(site.plan(_MORE, prune=True))
    assert changes["mm2.a.east.source.more"] == "blocked"
    assert changes["mm2.a.east.heartbeat"] == changes["mm2.a.east.checkpoint"] == "delete"
