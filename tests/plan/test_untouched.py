"""What a plan says is what happens, whatever is combined: moves, adoptions, releases, another owner's claims, strangers of any class, journals
that somebody forged, --prune, and a manager that is killed. Afterwards what is blocked, foreign or not named as written is unchanged,
and each thing that changed is in the plan and in the history.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.apply.execute import apply_plan
from mm2mgr.apply.history import Author, Recorder
from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import JOURNAL_KEY, Journal, Move, Ownership
from mm2mgr.connect.client import ConnectClient
from mm2mgr.errors import Mm2mgrError
from mm2mgr.expand import expand
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.reach import Limits
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.plan.changes import Change, Plan, Wish, type_of
from mm2mgr.plan.history import Claim, HistoryEntry
from mm2mgr.render import OWNER_KEY, render
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology
from tests.asking import answer_kafka, make_plan, topics_with
from tests.clock import jumping
from tests.examples import draw_examples, sampled
from tests.fake_connect import FakeConnect
from tests.scale.kept import Kept, keeping
from tests.spec.trees import write

SAMPLE, MANY = 100, 150
CONNECTS = ("x", "y")
TOPICS = ("t", "u", "v")
OTHERS_TOPIC = "o"
JDBC = "io.confluent.connect.jdbc.JdbcSinkConnector"
MIRROR = "org.apache.kafka.connect.mirror."
WRITES = {"create", "update", "delete"}


class Killed(BaseException):
    """The manager's process ends here."""


@dataclass(frozen=True)
class Flow:
    name: str
    source: str
    topics: tuple[str, ...]
    connector_name: str = ""

    @property
    def id(self) -> str:
        return f"{self.name}:{self.source}->b"


@dataclass(frozen=True)
class Tree:
    flows: tuple[Flow, ...]
    run_on: str = "x"
    companions: bool = False
    lists: tuple[str, ...] = ()

    def yaml(self, owner: str) -> str:
        carried = str(self.companions).lower()
        lines = [
            f"owner: {owner}",
            "defaults:",
            f"  flows: {{heartbeats: {carried}, checkpoints: {carried}}}",
            "clusters:",
        ]
        lines += [f"  {alias}: {{bootstrap_servers: ['{alias}:9092'], cluster_id: {alias}}}" for alias in "abc"]
        lines += ["connect:", *(f"  {name}: {{url: 'http://{name}:8083', kafka: b}}" for name in CONNECTS)]
        lines += ["flows:" if self.flows else "flows: {}"]
        for flow in self.flows:
            name = f", connector_name: {flow.connector_name}" if flow.connector_name else ""
            topics = f"topics: {{include: [{', '.join(flow.topics)}]}}"
            lines.append(
                f"  {flow.name}: {{sources: [{flow.source}], targets: [b], {topics}, run_on: {self.run_on}{name}}}"
            )
        return "\n".join([*lines, *self.lists, ""])


Draw = Any


@dataclass
class Estate:
    """Two Connect clusters without sockets, what each command reads of them, and what the plans and the histories say."""

    folder: Path
    kept: Kept
    fakes: dict[str, FakeConnect] = field(default_factory=dict)
    requests_left: int = 10**6
    tally: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        self.fakes |= {name: FakeConnect(cluster_id="b") for name in CONNECTS}
        self.kept.clear()
        self.requests_left = 10**6

    def connectors(self) -> dict[Named, tuple[dict[str, str], str]]:
        return {
            (connect, name): (dict(one.config), one.state)
            for connect, fake in self.fakes.items()
            for name, one in fake.connectors.items()
        }

    def everything(self) -> dict[Named, Any]:
        """Return config, state and offsets of whatever has any of them."""
        found: dict[Named, Any] = {}
        for connect, fake in self.fakes.items():
            for name in fake.connectors.keys() | {name for name, stored in fake.offsets.items() if stored}:
                one = fake.connectors.get(name)
                found[connect, name] = (one and (one.config, one.state), fake.offsets.get(name) or {})
        return deepcopy(found)

    def declare(self, tree: Tree, owner: str = "team") -> tuple[Topology, Any]:
        topology = expand(load([write(self.folder, x=tree.yaml(owner))]))
        return topology, render(topology)

    def run(self, tree: Tree, owner: str) -> None:
        """Let a tree's connectors run as an apply made them, with some offsets."""
        for connector in self.declare(tree, owner)[1]:
            fake = self.fakes[connector.connect]
            fake.add(connector.name, connector.config)
            if connector.type == "source":
                for topic in (*TOPICS, OTHERS_TOPIC):
                    if topic in connector.config["topics"]:
                        fake.add_offsets(connector.name, topic, {0: 41}, alias=connector.config["source.cluster.alias"])

    def plan(self, tree: Tree, wish: Wish) -> tuple[Plan, Topology]:
        topology, connectors = self.declare(tree)
        return asyncio.run(make_plan(topology, connectors, wish)), topology

    def apply(self, plan: Plan, topology: Topology, requests: int) -> None:
        recorder = Recorder(topology, "apply", Author("a person"))

        async def main() -> None:
            for result in await apply_plan(topology, plan, begin=recorder.begin, limits=Limits(write_seconds=5.0)):
                assert result.change
                recorder.end(result.change, "failed" if result.error else "done", result.error)

        self.requests_left = requests
        with suppress(BaseExceptionGroup, Killed):
            asyncio.run(main())
        self.requests_left = 10**6
        recorder.close()

    def recorded(self) -> set[Named]:
        texts = (text for key, text in self.kept.get("b", {}).items() if key.startswith("entry/"))
        return {(entry.connect, entry.connector) for entry in map(HistoryEntry.parse, texts) if entry}


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    made = Estate(tmp_path, keeping(monkeypatch))
    init = ConnectClient.__init__

    class Wire(httpx.AsyncBaseTransport):
        def __init__(self, name: str) -> None:
            self.name = name

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if made.requests_left <= 0:
                raise Killed
            made.requests_left -= 1
            return await made.fakes[self.name].transport().handle_async_request(request)

    def wired(self: ConnectClient, target: Any, **options: Any) -> None:
        init(self, target, **{**options, "transport": Wire(target.name)})

    def listed(access: KafkaAccess) -> RunningKafka:
        return topics_with(dict.fromkeys(TOPICS, 1) if access.alias != "b" else {})

    monkeypatch.setattr(ConnectClient, "__init__", wired)
    answer_kafka(monkeypatch, topics=listed, sizes=lambda *_: TopicSizes({}, {}), groups=lambda *_: (), expiring=tuple)
    with jumping():
        yield made


# --- what people combine ------------------------------------------------------------------------------------------------


def draw_flows(draw: Draw, names: tuple[str, ...], most: int = 3) -> tuple[Flow, ...]:
    """Draw flows whose topics do not meet."""
    flows, free = [], {source: list(TOPICS) for source in "ac"}
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True)):
        source = draw(st.sampled_from("aaac"))
        if free[source]:
            count = draw(st.integers(1, min(2, len(free[source]))))
            flows.append(Flow(name, source, tuple(free[source][:count])))
            del free[source][:count]
    return tuple(flows)


def change_flows(draw: Draw, flows: tuple[Flow, ...]) -> tuple[tuple[Flow, ...], list[str]]:
    """Draw what becomes of flows, and the entries of `moved:` for that, most of the time."""
    after, moved = list[Flow](), list[str]()
    for flow in flows:
        what = draw(st.sampled_from(("stays", "stays", "goes", "is renamed", "is renamed", "is split", "is split")))
        new = Flow(f"{flow.name}n", flow.source, flow.topics[-1:] if what == "is split" else flow.topics)
        topics = ""
        if what == "is split" and len(flow.topics) > 1:
            after.append(Flow(flow.name, flow.source, flow.topics[:-1]))
            topics = f", topics: [{flow.topics[-1]}]"
        elif what in ("stays", "is split"):
            after.append(flow)
            continue
        if what != "goes":
            after.append(new)
            moved += [f"  - {{from: '{flow.id}', to: '{new.id}'{topics}}}"] if draw(st.integers(0, 4)) else []
    if not after or draw(st.integers(0, 3)) == 3:
        after.append(Flow("g", "c", ("w",)))
    return tuple(after), moved


ODD: tuple[dict[str, str], ...] = (
    {"topics": "["},
    {"enabled": "perhaps", "sync.topic.acls.enabled": "no"},
    {"replication.policy.class": "", "replication.policy.separator": ""},
    {"source.cluster.bootstrap.servers": "", "offsets.storage.topic": " "},
    {"mm2mgr.flow": "][", JOURNAL_KEY: "x", f"{JOURNAL_KEY}.": ""},
)
"""What strangers have in their configs, too: nothing that somebody else wrote ends a plan."""


def add_strangers(draw: Draw, estate: Estate) -> None:
    """Add connectors that no tree made: some near the flows, some of quite another class, some with a mark."""
    for number in range(draw(st.integers(0, 2))):
        fake = estate.fakes[draw(st.sampled_from(CONNECTS))]
        name = draw(st.sampled_from((*[f"legacy-{number}"] * 4, "mm2.a.b.source.f2", "mm2.a.b.checkpoint")))
        kinds = ("MirrorSourceConnector", "MirrorSourceConnector", "MirrorHeartbeatConnector")
        class_, source = draw(st.sampled_from((*(MIRROR + kind for kind in kinds), JDBC))), draw(st.sampled_from("ac"))
        config = {
            "connector.class": class_,
            "source.cluster.alias": source,
            "target.cluster.alias": "b",
            "source.cluster.bootstrap.servers": f"{source}:9092",
            "target.cluster.bootstrap.servers": "b:9092",
            "topics": draw(st.sampled_from(("t", "w", "w", "w"))),
        }
        config |= draw(st.sampled_from(({}, {}, *ODD)))
        config |= {OWNER_KEY: "others"} if draw(st.integers(0, 3)) == 3 else {}
        fake.add(name, config, state=draw(st.sampled_from(("RUNNING", "RUNNING", "STOPPED"))))
        fake.add_offsets(name, config["topics"], {0: 17}, alias=config["source.cluster.alias"])


JUNK = ("x", "[]", "{}", "null", '{"then": 1}', '{"then": "RUNNING", "move": 5}', "[" * 100_000, '{"then": {}}')


def forge_journals(draw: Draw, estate: Estate, into: list[Named], count: int) -> None:
    """Write journals into configs, as a copy, a prankster or a restore would."""
    every = sorted(estate.connectors())
    for _ in range(count if into else 0):
        (connect, name), other = (
            draw(st.sampled_from(into)),
            draw(st.sampled_from([*every, ("gone", "z"), ("x", "z")])),
        )
        kind, config = draw(st.integers(0, 6)), estate.fakes[connect].connectors[name].config
        there = estate.connectors().get(other)
        pair = (there or (config, ""))[0].get("source.cluster.alias", ""), "b"
        flags = {key: draw(st.booleans()) for key in ("created", "partial", "carried")}
        state = draw(st.sampled_from(("RUNNING", "PAUSED", "STOPPED")))
        move = Move(other, pair if draw(st.booleans()) else ("a", "b"), "RUNNING", **flags)
        journal = Journal(state, move=move) if kind else Journal(state, gives=other)
        needs = tuple(draw(st.lists(st.sampled_from((*TOPICS, "gone")), max_size=2)))
        place = draw(st.sampled_from(({}, {}, {"offsets.storage.topic": "elsewhere"}, {"offsets.storage.topic": ""})))
        journal = replace(journal, move=journal.move if kind < 4 else None, needs=needs, behind=place or None)
        if place and draw(st.booleans()):
            config["enabled"] = "false"  # as an apply that was cut short leaves it
        config.update(journal.added_to({}))
        if needs:
            estate.fakes[connect].connectors[name].state = draw(st.sampled_from(("RUNNING", "STOPPED", "PAUSED")))
        if kind == 3:
            config[JOURNAL_KEY] = draw(st.sampled_from(JUNK))
        estate.tally["forged"] += 1


def draw_lists(
    draw: Draw, estate: Estate, flows: tuple[Flow, ...], moved: list[str]
) -> tuple[tuple[Flow, ...], tuple[str, ...]]:
    """Draw what `moved:`, `adopt:` and `release:` say; what is adopted is a flow, or moves."""
    every = estate.connectors()
    sources = sorted(named for named, (config, _) in every.items() if type_of(config) == "source") or sorted(every)
    declared = {f"mm2.{flow.source}.b.source.{flow.name}" for flow in flows}
    moved, adopt, release = list(moved), list[str](), list[str]()

    def from_owner(named: Named) -> str:
        mark = every[named][0].get(OWNER_KEY, "")
        return f", from_owner: {mark}" if mark not in ("", "team") and draw(st.booleans()) else ""

    if flows and sources and draw(st.booleans()):
        named, to = draw(st.sampled_from(sources)), draw(st.sampled_from(flows))
        if named[1] not in declared:
            moved.append(f"  - {{from: '{'/'.join(named)}', to: '{to.id}'{from_owner(named)}}}")
            if draw(st.booleans()):
                adopt.append(f"  - {{connect: {named[0]}, connector: {named[1]}{from_owner(named)}}}")
    if flows and sources and draw(st.integers(0, 2)) == 2:
        connect, name = draw(st.sampled_from(sources))
        if name not in declared:
            flows = (Flow(flows[0].name, flows[0].source, flows[0].topics, name), *flows[1:])
            adopt.append(f"  - {{connect: {connect}, connector: {name}{from_owner((connect, name))}}}")
    if every and draw(st.integers(0, 3)) == 3:
        connect, name = draw(st.sampled_from(sorted(every)))
        release.append(f"  - {{connect: {connect}, connector: {name}}}")
    lists = (("moved:", moved), ("adopt:", list(dict.fromkeys(adopt))), ("release:", release))
    return flows, tuple(line for head, lines in lists if lines for line in (head, *lines))


def leave_claims(draw: Draw, estate: Estate) -> set[Named]:
    """Let another owner claim connectors that it adopts, whoever has them."""
    claimed = set()
    for connect, name in sorted(estate.connectors()):
        if draw(st.integers(0, 5)) == 5:
            config = estate.fakes[connect].connectors[name].config
            pair = config.get("source.cluster.alias", ""), config.get("target.cluster.alias", "")
            claim = Claim("others", connect, name, pair, (f"http://{connect}:8083",), "ann", "", "now")
            text = json.dumps({**vars(claim)})
            estate.kept.setdefault("b", {})[claim.key] = text
            claimed.add((connect, name))
    return claimed


# --- what must hold -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A plan, of what it was made, and which connectors another owner claims."""

    plan: Plan
    topology: Topology
    claimed: set[Named]

    @property
    def owners(self) -> Ownership:
        return Ownership.of_tree(self.topology)


def hold_to_offsets(named: Named, change: Change | None, before: dict[Named, Any], after: dict[Named, Any]) -> None:
    """Fail where stored offsets were emptied or rewound and the other side of their move does not have them."""
    other = change and (change.moves_to or (change.takes_over and change.takes_over.giver))
    there = after.get(other, (None, {}))[1] if other else {}
    now = after.get(named, (None, {}))[1]
    for key, stored in before.get(named, (None, {}))[1].items():
        place = json.loads(key)
        copies = [
            each["offset"] for at, each in there.items() if json.loads(at) | {"cluster": ""} == place | {"cluster": ""}
        ]
        positions = [now.get(key, {}).get("offset", -1), *copies]
        assert max(positions) >= stored["offset"], ("offsets taken away", named, key, stored, now, there, change)


def hold_to_plan(estate: Estate, made: Made, before: dict[Named, Any]) -> None:
    """Fail where something changed that the plan does not name as written, or that is not this tree's."""
    plan, topology, owners = made.plan, made.topology, made.owners
    changes = {change.full_name: change for change in plan.changes}
    after = estate.everything()
    moves = {change.moves_to for change in plan.writes if change.moves_to}
    for named in sorted(before.keys() | after.keys()):
        if before.get(named) == after.get(named):
            continue
        change, was = changes.get(named), before.get(named)
        said = named, change, was, after.get(named)
        hold_to_offsets(named, change, before, after)
        assert change, ("changed, and not in the plan", said)
        assert change.action in WRITES, ("changed, and not named as written", said)
        assert named in estate.recorded(), ("changed, and not in the history", said)
        if was is None or was[0] is None:
            assert change.action == "create", said
            estate.tally[f"create{' moved' if change.takes_over else ''}"] += 1
            continue
        is_gone = named not in after or after[named][0] is None
        assert not is_gone or change.action == "delete", ("deleted, and not named as deleted", said)
        config = was[0][0]
        mine = owners.is_ours(named, config)
        froms = {entry.from_owner for entry in topology.moved if entry.connector == named}
        assert mine or (config.get(OWNER_KEY) and config[OWNER_KEY] in froms), ("a stranger's", said)
        assert named not in made.claimed, ("claimed by another owner", said)
        if change.action == "delete" and not plan.wish.prune:
            journal = Journal.of_config(config)
            is_undone = journal and journal.move and change.takes_over and change.takes_over.back
            is_moved = any(
                entry.connector == named or entry.flow == config.get("mm2mgr.flow") for entry in topology.moved
            )
            is_companion = type_of(config) != "source" and change.moves_to in moves
            assert is_undone or is_moved or is_companion, ("deleted without moved: or --prune", said)
        estate.tally[f"{change.action}{' moved' if change.moves_to or change.takes_over else ''}"] += 1


def apply_and_hold(estate: Estate, tree: Tree, wish: Wish, claimed: set[Named], requests: int = 10**6) -> None:
    """Plan and apply, in a process that is killed after so many requests, and hold what changed to the plan."""
    before = estate.everything()
    try:
        made = Made(*estate.plan(tree, wish), claimed)
    except Mm2mgrError:
        estate.tally["refused"] += 1
        return
    estate.apply(made.plan, made.topology, requests)
    hold_to_plan(estate, made, before)
    estate.tally["blocked"] += made.plan.has_failed
    estate.tally["to be proved"] += any(c.action == "update" and c.needs_offsets for c in made.plan.changes)
    estate.tally["plans"] += 1


@sampled("count", [SAMPLE], [MANY])
def test_what_a_plan_does_not_name_as_written_is_untouched(estate: Estate, count: int) -> None:
    @draw_examples(count)
    @given(data=st.data())
    def holds(data: Any) -> None:
        draw = data.draw
        estate.reset()
        first = Tree(draw_flows(draw, ("f1", "f2", "f3")), draw(st.sampled_from("xxy")), draw(st.booleans()))
        estate.run(first, "team")
        estate.run(Tree((Flow("o1", "c", (OTHERS_TOPIC,)),), draw(st.sampled_from(CONNECTS))), "others")
        add_strangers(draw, estate)
        for fake in estate.fakes.values():
            for connector in fake.connectors.values():
                if draw(st.integers(0, 3)) == 3:
                    connector.config["source.consumer.max.poll.records"] = "77"
                connector.state = draw(st.sampled_from((*["RUNNING"] * 6, "PAUSED", "STOPPED")))
        forge_journals(draw, estate, sorted(estate.connectors()), draw(st.sampled_from((0, 0, 1, 2))))
        flows, lists = draw_lists(draw, estate, *change_flows(draw, first.flows))
        tree = Tree(flows, draw(st.sampled_from("xxxy")), draw(st.booleans()), lists)
        claimed = leave_claims(draw, estate)
        wish = Wish(prune=draw(st.integers(0, 2)) > 0, allow=frozenset({"mirror-again"} if draw(st.booleans()) else ()))
        for requests in (draw(st.sampled_from((10**6, 12, 20, 30))), 10**6):
            apply_and_hold(estate, tree, wish, claimed, requests)

    holds()
    tally = estate.tally
    assert tally["plans"] > count / 2, tally
    for kind in ("create", "update", "delete", "create moved", "delete moved", "blocked", "forged"):
        assert tally[kind] > count / 25, (kind, tally)


@sampled("count", [SAMPLE // 2], [MANY])
def test_whatever_journals_say_nothing_goes_that_the_plan_does_not_name(estate: Estate, count: int) -> None:
    """In connectors that run, are paused or are stopped: none is deleted unnamed, and no stored offsets are emptied or go back."""

    @draw_examples(count)
    @given(data=st.data())
    def holds(data: Any) -> None:
        draw = data.draw
        estate.reset()
        first = Tree(draw_flows(draw, ("f1", "f2", "f3")), companions=draw(st.booleans()))
        estate.run(first, "team")
        add_strangers(draw, estate)
        ours = [(connect, name) for connect, name in estate.connectors() if ".source." in name]
        for connect, name in ours:
            estate.fakes[connect].connectors[name].state = draw(st.sampled_from(("RUNNING", "PAUSED", "STOPPED")))
        forge_journals(draw, estate, ours, draw(st.integers(1, 2)))
        tree = first
        if draw(st.integers(0, 2)) == 2:
            flows, lists = draw_lists(draw, estate, *change_flows(draw, first.flows))
            tree = Tree(flows, companions=first.companions, lists=lists)
        allow = frozenset({"mirror-again"} if draw(st.integers(0, 3)) == 3 else ())
        wish = Wish(prune=draw(st.integers(0, 3)) == 3, allow=allow)
        for requests in (draw(st.sampled_from((10**6, 3, 5, 8, 12))), 10**6):
            apply_and_hold(estate, tree, wish, set(), requests)

    holds()
    for kind in ("plans", "forged", "update", "blocked", "to be proved"):
        assert estate.tally[kind] > count / 25, (kind, estate.tally)
