"""Whatever tree follows on whatever runs, and whatever fails meanwhile: no topic grows by itself, no record arrives twice, nothing
starts over; no connector of others is written or deleted; no failed read becomes a create or a delete; a plan after an apply
is empty; no secret is shown, kept in the history or in a journal.

A simulation of MirrorMaker that knows nothing of mm2mgr judges the records; plans are really made and applied, on a clock that
jumps. The same days are drawn each time; with MM2MGR_EXAMPLES=N, `make test-matrix` draws N new ones (about 0.15 s of CPU each).
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from mm2mgr.apply.execute import apply_plan
from mm2mgr.apply.history import Author, Recorder
from mm2mgr.apply.rounds import EventLog
from mm2mgr.apply.waves import Rollout
from mm2mgr.comparison.differences import Named
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connectors import Connector as Rendered
from mm2mgr.errors import Mm2mgrError
from mm2mgr.expand import expand
from mm2mgr.json_values import to_json
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.output.plan_markdown import plan_markdown
from mm2mgr.output.plan_text import say_plan
from mm2mgr.plan import planner
from mm2mgr.plan.changes import Change, ClusterPlan, Plan, Wish
from mm2mgr.plan.judges import JUDGES, PARTNERS, Facts, judge_parts
from mm2mgr.plan.planfile import read_plan, write_plan
from mm2mgr.render import OWNER_KEY, render
from mm2mgr.spec.files import Spec, load
from mm2mgr.topology import Topology
from tests.asking import answer_kafka, make_plan, topics_with
from tests.clock import jumping
from tests.examples import sampled
from tests.fake_connect import STARTING_PAGE, FakeConnect, Fault
from tests.plan.drawn import scenarios
from tests.plan.scenarios import CANARY, CLUSTERS, CONNECTS, HARMLESS, KNOWN, Scenario, Step
from tests.plan.simulated import Connector, Harm, Told, World, Write, harms, run
from tests.plan.site import MANY
from tests.scale.estate import Faults, Harsh
from tests.scale.kept import Kept, keeping
from tests.spec.trees import write

DAYS, DAYS_OF_MATRIX = 60, int(os.environ.get("MM2MGR_EXAMPLES", "120"))
PROMISES_ONLY = "MM2MGR_PROMISES_ONLY" in os.environ
"""Let a day end, and not fail, where records go wrong: only what must hold on every day is judged (`hold_to_promises`, and rest after an apply)."""
ADDRESSES = {cluster: f"{cluster}:9092" for cluster in CLUSTERS}
IDS = {cluster: f"kafka-{cluster}" for cluster in CLUSTERS}
OWNER = "team"
LISTING = "/connectors"
FAILED_READS: tuple[tuple[int, object], ...] = (
    (401, "no"),
    (403, "no"),
    (500, "java.lang.NullPointerException"),
    (500, f"ConfigException: Invalid value in {{source.admin.ssl.key.password={CANARY}-echoed, topics=t}}"),
    (503, "starting"),
    (404, STARTING_PAGE),
    *((200, body) for body in ("<html>", b"", b'{"name": {"info"', b"[]", b"null")),
)
NAMING = {"replication.policy.class": "", "replication.policy.separator": "."}
"""What gives topics their names on the target, with its default."""
Live = dict[Named, tuple[dict[str, str], str]]


def judged_in_any_order(facts: Facts) -> list[ClusterPlan]:
    """Judge as the planner does, and see that the order of the judges changes nothing but whose reason is given."""
    parts = judge_parts(facts)
    for judges, partners in ((JUDGES[::-1], PARTNERS), (JUDGES[2:] + JUDGES[:2], PARTNERS), (JUDGES, PARTNERS[::-1])):
        assert written(judge_parts(facts, judges, partners)) == written(parts)
    return parts


def written(parts: Sequence[ClusterPlan]) -> list[Change]:
    return [replace(change, remarks=()) for part in parts for change in part.changes]


class Estate:
    """The Kafka clusters of a scenario, simulated, and the Connect clusters beside them, which mm2mgr speaks to."""

    def __init__(self, folder: Path, kept: Kept) -> None:
        self.folder, self.kept = folder, kept
        self.fakes = {name: FakeConnect() for name in CONNECTS}
        self.harsh = {name: Harsh(fake) for name, fake in self.fakes.items()}
        self.world = World({}, {})
        self.unread: set[str] = set()
        self.is_blind = False
        """Whether something went wrong by connectors of others that could not be read: nothing after that is worth a look."""
        self.released: set[Named] = set()
        self.adopted: set[Named] = set()
        self.moved: set[Named] = set()
        """What the tree adopts, and what it lets another flow take over."""
        self.refused: set[Named] = set()
        """What the last apply said that it could not do."""
        self.tally: Counter[str] = Counter()

    def reset(self, scenario: Scenario) -> None:
        """Forget everything: one estate serves all examples, which is faster than a new one each."""
        self.scenario, self.lives = scenario, dict(scenario.connects)
        for name, fake in self.fakes.items():
            self.kept.clear()
            for kept in (fake.connectors, fake.offsets, fake.own_offsets, fake.faults, fake.requests):
                kept.clear()
            self.harsh[name] = Harsh(fake)
            fake.version, fake.cluster_id = scenario.version, IDS.get(self.lives.get(name, ""), "")
        addresses = {address: cluster for cluster, address in ADDRESSES.items()}
        self.world = World({cluster: {} for cluster in scenario.clusters}, addresses)
        self.written: list[Write] = []
        self.is_blind = False
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

    def read_topics(self, access: KafkaAccess) -> RunningKafka:
        """Answer what a look at a Kafka cluster would."""
        topics = self.world.clusters[self.world.at(access.bootstrap_servers)]
        records = {topic: sum(map(len, logs)) for topic, logs in topics.items()}
        return topics_with({topic: len(logs) for topic, logs in topics.items()}, records)

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
        self.edit_by_hand(step)
        self.add_by_hand(step)
        self.produce()
        before = self.connectors()
        plan = self.apply(step)
        self.take_offsets()
        after = self.connectors()
        found = self.harm(before, after)
        if found and self.unread and not self.harm(*map(self.without_unknown, (before, after))):
            self.is_blind = True
            found = []
        self.written += run(self.world, after).writes
        self.store_offsets()
        return found, plan

    def without_unknown(self, connectors: Sequence[Connector]) -> list[Connector]:
        """Return the connectors without those of others on Connect clusters that could not be read: nobody can judge what these do."""
        return [each for each in connectors if each.connect not in self.unread or each.config.get(OWNER_KEY) == OWNER]

    def harm(self, before: Sequence[Connector], after: Sequence[Connector]) -> list[Harm]:
        """Return what goes wrong while the later connectors run and would not have gone wrong with the earlier ones."""
        now, idle_world, busy_world = (self.world.copy() for _ in range(3))
        idle, busy = run(idle_world, before), run(busy_world, after)
        there = {each.key for each in (*before, *after)}
        ours = (each for each in before if each.config.get(OWNER_KEY) == OWNER)
        # One that is released goes on for somebody else: a second copy under another name may be meant.
        known = {each.key for each in ours if each.connect not in self.unread and each.key not in self.released}
        told = Told(
            [write for write in self.written if write.by in known],
            [write for write in self.written if write.by not in there],
        )
        return list(harms(now, (idle_world, idle), (busy_world, busy), told))

    def add_by_hand(self, step: Step) -> None:
        """Add what people made and let everything run; what harms without mm2mgr's help is not there.

        Nobody replaces a connector by one that names topics otherwise: stored offsets do not tell the names that its records got.
        """
        for made in step.by_hand:
            fake, earlier = self.fakes[made.connect], self.fakes[made.connect].connectors.get(made.name)
            config = made.config(ADDRESSES, self.lives[made.connect])
            if earlier and any(
                earlier.config.get(key, usual) != config.get(key, usual) for key, usual in NAMING.items()
            ):
                continue
            fake.add(made.name, config, state=made.state)
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
        text = step.tree.yaml(connects, ADDRESSES, IDS, security=True)
        try:
            spec = load([write(self.folder, x=text)])
            topology = expand(spec)
        except Mm2mgrError as refused:
            self.diary.append(f"{step.what}: the tree is refused: {refused.message}")
            self.tally["refused"] += 1
            return None
        connectors = render(topology)
        wanted = {(connector.connect, connector.name) for connector in connectors}
        before = self.live()
        self.released = {named for named in self.to_release(step) if named not in wanted}
        lists = self.lists(step, wanted, topology)
        if lists:
            text = "\n".join([text, *lists, ""])
            try:
                spec = load([write(self.folder, x=text)])
                topology = expand(spec)
                connectors = render(topology)
            except Mm2mgrError as refused:
                self.diary.append(f"{step.what}: the lists are refused: {refused.message}")
                self.tally["refused"] += 1
                return None
        self.spoil(step)
        plan = self.converge(topology, connectors, spec, step, self.rollout(step))
        self.count(plan, lists)
        self.hold_to_promises(step, before, wanted)
        for name, fake in self.fakes.items():
            fake.faults.clear()
            self.harsh[name].quiet()
        if step.bad_day or step.unread:
            self.converge(topology, connectors, spec, step)
            self.hold_to_promises(step, before, wanted, quiet=True)
        for _ in range(3):  # what is blocked may leave room for something else once the rest is written
            again = asyncio.run(self.plan(topology, connectors, spec, step))
            left = {(change.connect, change.connector) for change in again.writes} - self.refused
            if not left:
                break
            assert again.has_failed, ("planned again after an apply", left, step.what, *self.diary)
            self.converge(topology, connectors, spec, step)
        else:
            raise AssertionError(("never comes to rest", left, step.what, *self.diary))
        return plan

    async def plan(self, topology: Topology, connectors: Sequence[Rendered], spec: Spec, step: Step) -> Plan:
        return await make_plan(topology, connectors, Wish(step.prune, allow_deletes=MANY), spec=spec)

    def converge(
        self,
        topology: Topology,
        connectors: Sequence[Rendered],
        spec: Spec,
        step: Step,
        rollout: Rollout | None = None,
    ) -> Plan:
        """Plan and apply once."""

        async def both() -> Plan:
            plan = await self.plan(topology, connectors, spec, step)
            blocked = {change.full_name for change in plan.changes if change.action == "blocked"}
            before = self.live()
            recorder = Recorder(topology, "apply", Author("a person"))
            events = EventLog(self.folder / "events")
            results = await apply_plan(topology, plan, rollout=rollout, report=events.take, begin=recorder.begin)
            events.close()
            for one in results:
                assert one.change
                recorder.end(one.change, "failed" if one.error else "done", one.error)
            self.refused = {(one.connect, one.connector) for one in results if one.error is not None}
            now = self.live()
            assert {named: now.get(named) for named in blocked} == {named: before.get(named) for named in blocked}
            journals = [one.get("mm2mgr.journal") for one, _ in self.live().values()]
            shown = [
                json.dumps([to_json(plan), to_json(results), self.kept, journals]),
                repr((plan, results)),
                *self.written_down(plan),
            ]
            assert not [text for text in shown if CANARY in text], "a secret is shown"
            return plan

        plan = asyncio.run(both())
        for change in plan.changes:
            self.diary.append(f"{step.what}: {change.action} {change.connect}/{change.connector} {change.reason}")
        return plan

    def written_down(self, plan: Plan) -> Iterator[str]:
        """Yield what people and machines get of a plan and its apply: text, Markdown, the plan file and the event log."""
        out = io.StringIO()
        with redirect_stdout(out):
            say_plan(plan, full=True, explain=True)
        write_plan(self.folder / "plan.json", plan, ["x"], None, None)
        saved, again = read_plan(self.folder / "plan.json").as_shown, io.StringIO()
        with redirect_stdout(again):
            say_plan(saved, full=True, explain=True)
        assert again.getvalue() == out.getvalue(), "a saved plan reads as it did when it was made"
        assert plan_markdown(saved) == plan_markdown(plan)
        yield from (out.getvalue(), plan_markdown(plan), (self.folder / "plan.json").read_text())
        events = self.folder / "events"
        yield events.read_text()
        events.unlink()
        assert not plan.clusters or out.getvalue(), "nothing was shown"

    def rollout(self, step: Step) -> Rollout | None:
        """Return how carefully it is applied on a bad day."""
        dice = random.Random(step.bad_day)
        most, seconds = dice.choice((None, 1, 2)), dice.choice((0.0, 5.0))
        return Rollout(seconds, most, rollback=dice.random() < 0.5) if step.bad_day else None

    def to_release(self, step: Step) -> list[Named]:
        """Return connectors of the tree that are to be forgotten, where the tree no longer declares them."""
        ours = sorted(named for named, (config, _) in self.live().items() if config.get(OWNER_KEY) == OWNER)
        return [ours[place % len(ours)] for kind, place in step.edits if kind == "release" and ours]

    def lists(self, step: Step, wanted: set[Named], topology: Topology) -> list[str]:
        """Return the lines of `adopt:`, `moved:` and `release:`, as the step draws them."""
        live = self.live()
        lines = ["release:"] if self.released else []
        lines += [f"  - {{connect: {connect}, connector: {name}}}" for connect, name in sorted(self.released)]
        others = sorted(each for each in wanted & live.keys() if live[each][0].get(OWNER_KEY) != OWNER)
        gone = sorted(each for each in live.keys() - wanted if live[each][0].get(OWNER_KEY) == OWNER)
        self.adopted, self.moved = set(), set()
        for kind, place in step.edits:
            if kind == "adopt" and others and not self.adopted:
                connect, name = others[place % len(others)]
                whose = live[connect, name][0].get(OWNER_KEY)
                more = f", from_owner: {whose}" if whose else ""
                lines += ["adopt:", f"  - {{connect: {connect}, connector: {name}{more}}}"]
                self.adopted.add((connect, name))
            if kind == "move" and gone and topology.flows and not self.moved:
                giver = gone[place % len(gone)]
                near = [
                    flow
                    for flow in topology.flows
                    if giver[1].startswith(f"mm2.{flow.source.alias}.{flow.target.alias}.")
                ]
                to = near[-1] if near else topology.flows[place % len(topology.flows)]
                if giver not in self.released:
                    lines += ["moved:", f"  - {{from: '{giver[0]}/{giver[1]}', to: '{to.id}'}}"]
                    self.moved.add(giver)
        return lines

    # What goes wrong, and what must not come of it

    def spoil(self, step: Step) -> None:
        """Let requests fail as the seed of the step says."""
        self.unread = {step.unread} if step.unread else set()
        dice = random.Random(step.bad_day)
        for name, fake in self.fakes.items():
            fake.requests.clear()
            if name in self.unread:
                fake.faults.append(Fault("GET", LISTING, 10**6, 401, exactly=True))
            if not step.bad_day:
                continue
            shares = (
                dice.choice((0.0, 0.0, usual, high))
                for usual, high in ((0.15, 0.5), (0.02, 0.3), (0.02, 0.3), (0.05, 0.2))
            )
            self.harsh[name] = Harsh(fake, step.bad_day, Faults(*shares, breaks=dice.choice((0.0, 0.2))))
            if dice.random() < 0.5:
                path, times = (
                    dice.choice((LISTING, LISTING, "/connectors/", "/connector-plugins", "/")),
                    dice.choice((1, 3, 10**6)),
                )
                status, body = dice.choice(FAILED_READS)
                fake.faults.append(Fault("GET", path, times, status, body, exactly=path in {LISTING, "/"}))
                if path == LISTING and times > 3:
                    self.unread.add(name)

    def live(self) -> Live:
        """Return configs and states of all connectors."""
        return {
            (name, connector): (dict(one.config), one.state)
            for name, fake in self.fakes.items()
            for connector, one in fake.connectors.items()
        }

    def hold_to_promises(self, step: Step, before: Live, wanted: set[Named], *, quiet: bool = False) -> None:
        """Fail if anything was written that must not be."""
        after = self.live()
        foreign = {named for named, (config, _) in before.items() if config.get(OWNER_KEY) != OWNER} - self.adopted
        foreign |= self.released
        deleted: set[Named] = set()
        said = [step.what, *self.diary]
        assert {named: after.get(named) for named in foreign} == {named: before[named] for named in foreign}, said
        for name, fake in self.fakes.items():
            writes = fake.writes
            fake.requests.clear()
            assert quiet or name not in self.unread or not writes, (
                "written without having been read",
                name,
                writes,
                said,
            )
            for request in writes:
                named = name, request.path.split("/")[2] if request.path != LISTING else request.body["name"]
                assert named not in foreign, ("a connector of others", request, said)
                if (
                    request.method == "POST" and request.path == LISTING and named not in deleted
                ):  # else it is taken back
                    assert named in wanted, ("created, but not declared", request, said)
                    assert quiet or named not in before, ("created, but it was there", request, said)
                if request.method == "DELETE" and named in before and not request.path.endswith("/offsets"):
                    assert step.prune or named in self.moved, ("deleted without --prune", request, said)
                    assert named not in wanted, ("deleted, but declared", request, said)
                    deleted.add(named)

    def edit_by_hand(self, step: Step) -> None:
        """Do to connectors of the tree what people do."""
        for kind, place in step.edits:
            ours = sorted(named for named, (config, _) in self.live().items() if config.get(OWNER_KEY) == OWNER)
            if not ours:
                return
            name, connector = ours[place % len(ours)]
            connectors = self.fakes[name].connectors
            one = connectors[connector]
            if kind == "delete":
                del connectors[connector]
            elif kind == "pause":
                one.state = "PAUSED"
            elif kind == "edit":
                one.config["source.consumer.max.poll.records"] = "77"
            elif kind == "give away":
                one.config[OWNER_KEY] = "others"
            elif kind == "unmark":
                del one.config[OWNER_KEY]

    def count(self, plan: Plan, lists: Sequence[str]) -> None:
        self.tally["plans"] += 1
        self.tally["wrote"] += bool(plan.writes)
        self.tally["changed what ran"] += any(c.action in {"update", "delete"} for c in plan.changes)
        self.tally["adopted"] += "adopt:" in lists and not plan.has_failed
        self.tally["moved"] += "moved:" in lists and any(change.takes_over for change in plan.writes)
        self.tally["blocked"] += any(c.action == "blocked" for c in plan.changes)


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    made = Estate(tmp_path, keeping(monkeypatch))
    init = ConnectClient.__init__

    def wired(self: ConnectClient, target: Any, **options: Any) -> None:
        init(self, target, **{**options, "transport": made.harsh[target.name].transport()})

    monkeypatch.setattr(ConnectClient, "__init__", wired)  # the same requests and answers, without a socket each
    answer_kafka(monkeypatch, topics=made.read_topics, sizes=lambda *_: TopicSizes({}, {}), expiring=tuple)
    monkeypatch.setattr(planner, "judge_parts", judged_in_any_order)
    with jumping():
        yield made


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
        if estate.is_blind or (found and PROMISES_ONLY):
            break
        if found:
            raise KINDS[found[0].kind]("\n".join([*map(str, found[:3]), *estate.diary]))
    return plans


@sampled("count", [DAYS], [DAYS_OF_MATRIX])
def test_no_plan_makes_records_grow_arrive_twice_or_start_over(estate: Estate, count: int) -> None:
    @settings(
        max_examples=count,
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
    assert tally["changed what ran"] > tally["plans"] / 25, tally
    assert tally["adopted"] > count / 12, tally
    assert tally["moved"] > count / 60, tally


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_go_wrong_is_held_back(estate: Estate, name: str) -> None:
    plans = live_through(estate, KNOWN[name])
    assert any(plan is None or plan.has_failed for plan in plans)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_is_let_through(estate: Estate, name: str) -> None:
    for plan in live_through(estate, HARMLESS[name]):
        assert plan is not None
        assert [change.reason for change in plan.changes if change.action == "blocked"] == []
    assert estate.tally["wrote"] > 0
