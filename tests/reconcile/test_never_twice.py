"""Whatever tree follows on whatever runs: what a plan lets through makes no topic grow by itself, no record arrive twice, and
nothing start over. A simulation of MirrorMaker that knows nothing of mm2mgr is the judge; plans are really made and applied.

The same days are drawn each time; with MM2MGR_EXAMPLES=N it is N new ones.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from mm2mgr.connect.client import ConnectClient
from mm2mgr.errors import Mm2mgrError
from mm2mgr.expand import expand
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.reconcile import live
from mm2mgr.reconcile.apply import apply_plan
from mm2mgr.reconcile.facts import TopicListing
from mm2mgr.reconcile.live import make_plan
from mm2mgr.reconcile.plan import Plan, Wish
from mm2mgr.render import OWNER_KEY, render
from mm2mgr.spec.loader import load
from tests.fake_connect import FakeConnect
from tests.reconcile.drawn import scenarios
from tests.reconcile.scenarios import CLUSTERS, CONNECTS, HARMLESS, KNOWN, Scenario, Step
from tests.reconcile.simulated import Connector, Harm, Told, World, Write, harms, run
from tests.spec.trees import write

EXAMPLES = int(os.environ.get("MM2MGR_EXAMPLES", "200"))
ADDRESSES = {cluster: f"{cluster}:9092" for cluster in CLUSTERS}
IDS = {cluster: f"kafka-{cluster}" for cluster in CLUSTERS}


class Estate:
    """The Kafka clusters of a scenario, simulated, and the Connect clusters beside them, which mm2mgr speaks to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fakes = {name: FakeConnect() for name in CONNECTS}
        self.world = World({}, {})
        self.tally: Counter[str] = Counter()

    def reset(self, scenario: Scenario) -> None:
        """Forget everything: one estate serves all examples, which is faster than a new one each."""
        self.scenario, self.lives = scenario, dict(scenario.connects)
        for name, fake in self.fakes.items():
            for kept in (fake.connectors, fake.offsets, fake.own_offsets, fake.faults, fake.requests):
                kept.clear()
            fake.version, fake.cluster_id = scenario.version, IDS.get(self.lives.get(name, ""), "")
        addresses = {address: cluster for cluster, address in ADDRESSES.items()}
        self.world = World({cluster: {} for cluster in scenario.clusters}, addresses)
        self.written: list[Write] = []
        self.diary: list[str] = []
        self.produced = 0
        self.produce()
        self.produce()

    def produce(self) -> None:
        """Write one more record, which nothing else is like, to every partition of the topics that are not mirrors."""
        self.produced += 1
        for cluster, topics in self.scenario.topics:
            for topic, count in topics:
                for number in range(count):
                    id_ = f"{cluster}/{topic}-{number}/{self.produced}"
                    self.world.produce(cluster, topic, id_, partition=number)

    def read_topics(
        self, access: KafkaAccess, wanted: Callable[[str], bool], known: TopicListing | None = None
    ) -> TopicListing:
        """Answer what a look at a Kafka cluster would."""
        topics = self.world.clusters[self.world.at(access.bootstrap_servers)]
        before = known.records if known else {}
        chosen = {topic: logs for topic, logs in topics.items() if topic in before or wanted(topic)}
        records = {topic: sum(map(len, logs)) for topic, logs in chosen.items()}
        return TopicListing({topic: len(logs) for topic, logs in topics.items()}, records, dict(records))

    # What Connect has, as the simulation sees it, and back

    def connectors(self) -> list[Connector]:
        return [
            Connector(connect, name, dict(one.config), self.lives[connect], fake.version, one.state == "RUNNING")
            for connect, fake in self.fakes.items()
            for name, one in fake.connectors.items()
        ]

    def take_offsets(self) -> None:
        """Let the world start from what Connect stores."""
        self.world.offsets = {
            (connect, name, place["cluster"], place["topic"], place["partition"]): value["offset"]
            for connect, fake in self.fakes.items()
            for name, stored in fake.offsets.items()
            for place, value in ((json.loads(key), value) for key, value in stored.items())
        }

    def store_offsets(self) -> None:
        """Store in Connect where the simulated connectors are."""
        for (connect, name, alias, topic, number), offset in self.world.offsets.items():
            key = json.dumps({"cluster": alias, "topic": topic, "partition": number}, sort_keys=True)
            self.fakes[connect].offsets.setdefault(name, {})[key] = {"offset": offset}

    # What happens on a day

    def step(self, step: Step) -> tuple[list[Harm], Plan | None]:
        """Make and apply a plan; return the harm that came of it, beside what would have come of doing nothing."""
        self.add_by_hand(step)
        self.produce()
        before = self.connectors()
        plan = self.apply(step)
        self.take_offsets()
        idle_world, now = self.world.copy(), self.world.copy()
        idle = run(idle_world, before)
        after = self.connectors()
        busy = run(self.world, after)
        there = {each.key for each in (*before, *after)}
        known = {each.key for each in before if each.config.get(OWNER_KEY) and each.connect != step.unread}
        told = Told(
            [write for write in self.written if write.by in known],
            [write for write in self.written if write.by not in there],
        )
        found = list(harms(now, (idle_world, idle), (self.world, busy), told))
        self.written += busy.writes
        self.store_offsets()
        return found, plan

    def add_by_hand(self, step: Step) -> None:
        """Add what people made and let everything run; what harms without mm2mgr's help is not there."""
        for made in step.by_hand:
            fake, earlier = self.fakes[made.connect], self.fakes[made.connect].connectors.get(made.name)
            fake.add(made.name, made.config(ADDRESSES, self.lives[made.connect]), state=made.state)
            world = self.world.copy()
            done = run(world, self.connectors())
            if done.growing or world.repeated() != self.world.repeated():
                del fake.connectors[made.name]
                if earlier:
                    fake.connectors[made.name] = earlier
                continue
            self.world = world
            self.written += done.writes
        self.store_offsets()

    def apply(self, step: Step) -> Plan | None:
        """Plan and apply as the commands do; None when the tree itself is refused."""
        connects = {name: (f"http://{name}:8083", cluster) for name, cluster in self.scenario.connects}
        text = step.tree.yaml(connects, ADDRESSES, IDS)
        try:
            spec = load([write(self.folder, x=text)])
            topology = expand(spec)
        except Mm2mgrError as refused:
            self.diary.append(f"{step.what}: the tree is refused: {refused.message}")
            self.tally["refused"] += 1
            return None
        if step.unread:
            self.fakes[step.unread].answer_only("/connectors", 401)

        async def both() -> Plan:
            plan = await make_plan(topology, render(topology), Wish(step.prune), spec=spec, deadline_seconds=5.0)
            await apply_plan(topology, plan, deadline_seconds=5.0)
            return plan

        plan = asyncio.run(both())
        self.fakes[step.unread or "x"].faults.clear()
        self.count(plan)
        for change in plan.changes:
            self.diary.append(f"{step.what}: {change.action} {change.connect}/{change.connector} {change.reason}")
        return plan

    def count(self, plan: Plan) -> None:
        self.tally["plans"] += 1
        self.tally["wrote"] += bool(plan.writes)
        self.tally["changed what ran"] += any(c.action in {"update", "delete"} for c in plan.changes)
        self.tally["blocked"] += any(c.action == "blocked" for c in plan.changes)


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Estate:
    made = Estate(tmp_path)
    init = ConnectClient.__init__

    def wired(self: ConnectClient, target: Any, **options: Any) -> None:
        init(self, target, **{**options, "transport": made.fakes[target.name].transport()})

    monkeypatch.setattr(ConnectClient, "__init__", wired)  # the same requests and answers, without a socket each
    monkeypatch.setattr(live, "read_topics", made.read_topics)
    return made


class Grows(AssertionError):
    """A topic grows by itself."""


class ArrivesTwice(AssertionError):
    """A record is in a topic twice."""


class StartsOver(AssertionError):
    """What had arrived is read from its start."""


KINDS: dict[str, type[AssertionError]] = {"grows": Grows, "twice": ArrivesTwice, "from the start": StartsOver}


def live_through(estate: Estate, scenario: Scenario) -> list[Plan | None]:
    """Go through a scenario; fail at the first harm."""
    estate.reset(scenario)
    plans = []
    for step in scenario.steps:
        found, plan = estate.step(step)
        plans.append(plan)
        if found:
            raise KINDS[found[0].kind]("\n".join([*map(str, found[:3]), *estate.diary]))
    return plans


def test_no_plan_makes_records_grow_arrive_twice_or_start_over(estate: Estate) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        derandomize="MM2MGR_EXAMPLES" not in os.environ,
        database=None,
    )
    @given(scenario=scenarios())
    def holds(scenario: Scenario) -> None:
        live_through(estate, scenario)

    holds()
    # What is blocked altogether proves nothing.
    tally = estate.tally
    assert tally["wrote"] > tally["plans"] / 4, tally
    assert tally["changed what ran"] > tally["plans"] / 10, tally


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_go_wrong_is_held_back(estate: Estate, name: str) -> None:
    plans = live_through(estate, KNOWN[name])
    assert any(plan is None or plan.failed for plan in plans)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_is_let_through(estate: Estate, name: str) -> None:
    for plan in live_through(estate, HARMLESS[name]):
        assert plan is not None
        assert [change.reason for change in plan.changes if change.action == "blocked"] == []
    assert estate.tally["wrote"] > 0
