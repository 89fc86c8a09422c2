"""Topics move between connectors with their offsets: whatever dies on the way, one more apply finishes, and every record arrives exactly once."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from mm2mgr.apply.carry_out import carry_out, refusal_of_unplanned
from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connectors import Connector
from mm2mgr.expand import expand
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live import dedicated
from mm2mgr.live import read as live_read
from mm2mgr.live.kafka_state import RunningKafka
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.plan.changes import Plan, Wish
from mm2mgr.plan.stages import stages
from mm2mgr.render import render
from mm2mgr.spec.files import load
from mm2mgr.topology import Topology
from tests.asking import answer_kafka, make_plan, topics_with
from tests.clock import jumping
from tests.fake_connect import FakeConnect
from tests.plan import simulated
from tests.spec.trees import write

EVERY = 11
"""In the gate mm2mgr dies after every so many requests; `make test-matrix` lets it die after each."""
SITES = ("east", "west")
TOPICS = ("orders", "logs.a", "logs.b")
FOREIGN = "of-another-team"
ORDERS = "orders: {sources: [a], targets: [east], topics: {include: [orders]}}"
LOGS = "logs: {sources: [a], targets: [east], topics: {include: [logs.a, logs.b]}}"
FEWER_LOGS = LOGS.replace(", logs.b", "")


def tree(*flows: str, moved: str = "", alias: str = "a") -> str:
    lines = ["owner: team", "clusters:"]
    lines += [f"  {alias}: {{bootstrap_servers: ['a:9092'], cluster_id: a}}"]
    lines += [f"  {name}: {{bootstrap_servers: ['{name}:9092'], cluster_id: {name}}}" for name in SITES]
    lines += [
        "connect:",
        *(f"  {name}: {{url: 'http://{name}:8083', kafka: {name}, history: false}}" for name in SITES),
    ]
    lines += ["flows:", *(f"  {flow}" for flow in flows), *([f"moved: [{moved}]"] if moved else [])]
    return "\n".join(lines).replace("sources: [a]", f"sources: [{alias}]")


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Waits take no time: the clock jumps."""
    with jumping():
        yield


@dataclass(frozen=True)
class Kind:
    """From one tree to another; `first` was applied before, and something of it ran."""

    before: str
    after: str
    first: str = ""


KINDS = {
    "renamed": Kind(
        tree(ORDERS, LOGS),
        tree(ORDERS.replace("orders:", "sales:", 1), LOGS, moved="{from: 'orders:a->east', to: 'sales:a->east'}"),
    ),
    "to another Connect cluster": Kind(
        tree(ORDERS),
        tree(
            ORDERS.replace("}}", "}, run_on: west}"),
            moved="{from: east/mm2.a.east.source.orders, to: 'orders:a->east'}",
        ),
    ),
    "a topic to another flow": Kind(
        tree(ORDERS, LOGS),
        tree(
            ORDERS.replace("[orders]", "[orders, logs.b]"),
            FEWER_LOGS,
            moved="{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.b]}",
        ),
    ),
    "a topic to a new flow": Kind(
        tree(LOGS),
        tree(
            FEWER_LOGS,
            "more: {sources: [a], targets: [east], topics: {include: [logs.b]}}",
            moved="{from: 'logs:a->east', to: 'more:a->east', topics: [logs.b]}",
        ),
    ),
    "one flow into another": Kind(
        tree(ORDERS, LOGS),
        tree(
            ORDERS.replace("[orders]", "[orders, logs.a, logs.b]"),
            moved="{from: 'logs:a->east', to: 'orders:a->east'}",
        ),
    ),
    "two flows to another Connect cluster": Kind(
        tree(ORDERS, LOGS),
        tree(
            ORDERS.replace("}}", "}, run_on: west}"),
            LOGS.replace("}}", "}, run_on: west}"),
            moved="{from: east/mm2.a.east.source.orders, to: 'orders:a->east'}, "
            "{from: east/mm2.a.east.source.logs, to: 'logs:a->east'}",
        ),
    ),
    "a topic that was removed earlier": Kind(
        tree(ORDERS, FEWER_LOGS),
        tree(
            ORDERS.replace("[orders]", "[orders, logs.b]"),
            FEWER_LOGS,
            moved="{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.b]}",
        ),
        tree(ORDERS, LOGS),
    ),
    "a topic that was removed earlier, to a new flow": Kind(
        tree(FEWER_LOGS),
        tree(
            FEWER_LOGS,
            "more: {sources: [a], targets: [east], topics: {include: [logs.b]}}",
            moved="{from: 'logs:a->east', to: 'more:a->east', topics: [logs.b]}",
        ),
        tree(LOGS),
    ),
    "one topic that was removed earlier and one that moves now": Kind(
        tree(ORDERS, FEWER_LOGS),
        tree(
            ORDERS.replace("[orders]", "[orders, logs.a, logs.b]"),
            LOGS.replace("logs.a, logs.b", "logs.c"),
            moved="{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.a, logs.b]}",
        ),
        tree(ORDERS, LOGS),
    ),
    "another alias": Kind(
        tree(ORDERS),
        tree(
            ORDERS.replace("}}", "}, allow: [target-names]}"),
            moved="{from: 'orders:a->east', to: 'orders:b->east'}",
            alias="b",
        ),
    ),
}


@cache
def rendered(text: str) -> tuple[Topology, tuple[Connector, ...]]:
    with TemporaryDirectory() as folder:
        topology = expand(load([write(Path(folder), x=text)]))
    return topology, render(topology)


def nothing(_: httpx.Request) -> None:
    """Nobody does anything meanwhile."""


class Killed(BaseException):
    """kill -9: not even what stands in `finally` reaches a worker any more."""


@dataclass
class Workers:
    """Two fake Connect clusters whose connectors mirror a record of each topic per request, and store offsets only on their way out."""

    fakes: dict[str, FakeConnect] = field(default_factory=dict)
    world: simulated.World = field(
        default_factory=lambda: simulated.World(
            {name: {} for name in ("a", *SITES)}, {f"{name}:9092": name for name in ("a", *SITES)}
        )
    )
    requests_left: int = 10**6
    produced: int = 0
    loaded: set[tuple[str, str]] = field(default_factory=set)
    meanwhile: Callable[[httpx.Request], None] = nothing
    """What others do just before a request arrives."""

    def __post_init__(self) -> None:
        self.fakes = {name: FakeConnect(cluster_id=name) for name in SITES}

    # What the connectors do

    def tick(self) -> None:
        """Produce a record to each topic and let what runs mirror all there is, from its stored offsets if it just began to run."""
        self.produced += 1
        for topic in TOPICS:
            self.world.produce("a", topic, f"{topic}-{self.produced}")
        runs = []
        for connect, fake in self.fakes.items():
            for name, connector in fake.connectors.items():
                if not connector.config["connector.class"].endswith("SourceConnector"):
                    continue
                named = connect, name
                if connector.state != "RUNNING":
                    self.loaded.discard(named)
                    continue
                if named not in self.loaded:
                    self.load(named)
                runs.append(simulated.Connector(connect, name, connector.config, kafka=connect))
        simulated.run(self.world, runs)

    def load(self, named: tuple[str, str]) -> None:
        self.loaded.add(named)
        for key in [key for key in self.world.offsets if key[:2] == named]:
            del self.world.offsets[key]
        for partition, offset in self.stored(named).items():
            self.world.offsets[(*named, *partition)] = offset

    def stored(self, named: tuple[str, str]) -> dict[tuple[str, str, int], int]:
        connect, name = named
        return {simulated_key(key): entry["offset"] for key, entry in self.fakes[connect].stores(name)[0].items()}

    def flush(self, connect: str, path: str) -> None:
        """Store the positions of a connector that a write concerns: its tasks do so on their way out."""
        name = path.split("/")[2] if path.startswith("/connectors/") else ""
        if (connect, name) in self.loaded:
            for (*named, alias, topic, number), offset in list(self.world.offsets.items()):
                if tuple(named) == (connect, name):
                    self.fakes[connect].add_offsets(name, topic, {number: offset}, alias=alias)
            self.loaded.discard((connect, name))

    # What mm2mgr does

    def client(self, name: str) -> ConnectClient:
        class Wire(httpx.AsyncBaseTransport):
            async def handle_async_request(_, request: httpx.Request) -> httpx.Response:
                if self.requests_left <= 0:
                    raise Killed
                self.requests_left -= 1
                self.tick()
                self.meanwhile(request)
                if request.method != "GET":
                    self.flush(name, request.url.path)
                return await self.fakes[name].transport().handle_async_request(request)

        target = ConnectTarget(name, (f"http://{name}:8083",))
        return ConnectClient(target, deadline_seconds=5, transport=Wire(), first_backoff_seconds=0.001)

    def plan(self, text: str, wish: Wish = Wish()) -> Plan:
        """Make a plan as `mm2mgr plan` does, from what the fakes answer and the simulated Kafka clusters hold."""
        topology, connectors = rendered(text)

        def asked(target: ConnectTarget, **_: object) -> ConnectClient:
            return ConnectClient(target, deadline_seconds=5, transport=self.fakes[target.name].transport())

        def listed(access: KafkaAccess) -> RunningKafka:
            held = {
                topic: sum(map(len, logs))
                for topic, logs in self.world.clusters[self.world.at(access.bootstrap_servers)].items()
            }
            return topics_with(dict.fromkeys(held, 1), held)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live_read, "ConnectClient", asked)
            answer_kafka(
                patch, topics=listed, sizes=lambda *_: TopicSizes({}, {}), groups=lambda *_: (), expiring=tuple
            )
            return asyncio.run(make_plan(topology, connectors, wish))

    def apply(self, text: str, requests: int = 10**6) -> list[str]:
        """Plan and carry out, in a process that is killed after so many requests; return what failed."""
        changes = self.plan(text).writes
        self.requests_left = requests
        for change in changes:
            planned = {change.full_name, *(each.full_name for each in changes if each.moves_to == change.full_name)}
            assert refusal_of_unplanned(stages(change, "team"), planned) is None

        async def main() -> list[str]:
            async with self.client("east") as east, self.client("west") as west:
                found = [await carry_out({"east": east, "west": west}, stages(each, "team")) for each in changes]
            return [str(each) for each in found if each]

        return asyncio.run(main())

    def writes(self, text: str) -> dict[str, str]:
        return {f"{c.connect}/{c.connector}": c.action for c in self.plan(text).changes if c.action != "no-op"}

    # What people see

    def every_record_once(self) -> None:
        for _ in range(2):
            self.tick()
        arrived = Counter(record for topic in self.world.clusters["east"].values() for log in topic for record in log)
        twice = {record: count for record, count in arrived.items() if count > 1}
        assert not twice
        taken = {record.rpartition("-")[0] for record in arrived}
        every = {f"{topic}-{number}" for topic in taken for number in range(1, self.produced + 1)}
        assert not every - arrived.keys()


def simulated_key(key: str) -> tuple[str, str, int]:
    partition = json.loads(key)
    return partition["cluster"], partition["topic"], partition["partition"]


def begin(kind: Kind, state: str = "RUNNING") -> Workers:
    """Return workers of one's own on which the tree before was applied, and something ran."""
    workers: Workers = pickle.loads(begun(kind, state))
    return workers


@cache
def begun(kind: Kind, state: str) -> bytes:
    workers = Workers()
    if kind.first:
        assert workers.apply(kind.first) == []
        for _ in range(3):
            workers.tick()
    assert workers.apply(kind.before) == []
    theirs = dict(next(iter(workers.fakes["east"].connectors.values())).config)
    theirs |= {"mm2mgr.owner": "them", "topics": "nothing", "connector.class": theirs["connector.class"]}
    for fake in workers.fakes.values():
        fake.add(FOREIGN, theirs)
    for _ in range(3):
        workers.tick()
    for connect, fake in workers.fakes.items():
        for name, connector in fake.connectors.items():
            if ".source." in name and state != "RUNNING":
                workers.flush(connect, f"/connectors/{name}/x")
                connector.state = state
    # What a former time left under the names of receivers: it neither hides nor repeats anything.
    for change in [change for change in workers.plan(kind.after).changes if change.takes_over and change.config]:
        taken, takes = ((c or {}).get("topics", "").replace("\\", "") for c in (change.before, change.config))
        stale = workers.fakes[change.connect].offsets.setdefault(change.connector, {})
        for topic in [t for t in TOPICS if t not in taken and (t in takes or change.action == "create")]:
            for number in (0, 7):
                key = {"cluster": change.config["source.cluster.alias"], "partition": number, "topic": topic}
                stale[json.dumps(key)] = {"offset": 1}
    return pickle.dumps(workers)


def converged(kind: Kind, workers: Workers, state: str = "RUNNING") -> None:
    assert workers.writes(kind.after) == {}
    for fake in workers.fakes.values():
        for name, connector in fake.connectors.items():
            assert JOURNAL_KEY not in connector.config
            if ".source." in name:
                assert connector.state == state, name
            if name == FOREIGN:
                assert connector.config["mm2mgr.owner"] == "them"
        assert not [each for each in fake.writes if FOREIGN in each.path]
    for fake in workers.fakes.values():
        for connector in fake.connectors.values():
            connector.state = "RUNNING"
    workers.every_record_once()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@cache
def requests_of(kind: Kind, state: str = "RUNNING") -> int:
    """How many requests a whole move takes."""
    workers = begin(kind, state)
    assert workers.apply(kind.after) == []
    count = 10**6 - workers.requests_left
    converged(kind, workers, state)
    return count


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED", "STOPPED"])
def test_every_record_arrives_exactly_once(kind: Kind, state: str) -> None:
    assert requests_of(kind, state) > 10


@pytest.fixture(params=[EVERY, pytest.param(1, marks=pytest.mark.matrix)])
def every(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def test_one_more_apply_finishes_whatever_a_kill_left(kind: Kind, every: int) -> None:
    for last in range(1, requests_of(kind), every):
        workers = begin(kind)
        with pytest.raises(Killed):
            workers.apply(kind.after, last)
        assert workers.apply(kind.after) == [], last
        converged(kind, workers)


@pytest.mark.parametrize("takes", ["logs.b", "'logs[.][bx]'"])
def test_a_pattern_takes_up_what_rests_where_it_was_removed(takes: str) -> None:
    after = KINDS["a topic that was removed earlier"].after.replace("[logs.b]", "['logs[.][b-z]']")
    kind = Kind(tree(ORDERS, FEWER_LOGS), after.replace("[orders, logs.b]", f"[orders, {takes}]"), tree(ORDERS, LOGS))
    assert requests_of(kind) > 10


ALIAS = KINDS["another alias"]
WITHOUT_A_WORD = ALIAS.after.replace(", allow: [target-names]", "")


def test_another_alias_is_other_names_on_the_target() -> None:
    workers = begin(ALIAS)
    plan = workers.plan(WITHOUT_A_WORD)
    changes = {change.connector: change for change in plan.changes}
    held = changes["mm2.b.east.source.orders"]
    assert (held.action, "a.orders -> b.orders" in held.reason) == ("blocked", True)
    assert "--allow target-names" in held.remedy
    assert plan.writes == ()
    kept = ALIAS.after.replace("allow: [target-names]", "replication_policy: identity")
    assert "a.orders -> orders" in workers.plan(kept).changes[1].reason


@pytest.mark.parametrize(("alias", "blocked"), [("old", True), ("a", False)])
def test_the_alias_of_a_dedicated_mirrormaker_is_part_of_names(
    monkeypatch: pytest.MonkeyPatch, alias: str, blocked: bool
) -> None:
    monkeypatch.setattr(dedicated, "read_dedicated", lambda *_: [])
    workers = Workers()
    workers.tick()
    text = tree(ORDERS, moved=f"{{from: {{dedicated: '{alias}->east'}}, to: 'orders:a->east'}}")
    found = {change.connector: change for change in workers.plan(text).changes}["mm2.a.east.source.orders"]
    assert (found.action == "blocked") == blocked
    assert ("old.orders -> a.orders" in found.reason) == blocked
    named = text.replace("}}", "}, replication_policy: identity}", 1)
    assert {change.action for change in workers.plan(named).changes} == {"create"}


def test_a_move_to_another_alias_that_was_begun_needs_no_word_to_end() -> None:
    workers = begin(ALIAS)
    with pytest.raises(Killed):
        workers.apply(ALIAS.after, 8)
    assert workers.apply(WITHOUT_A_WORD) == []
    converged(Kind(ALIAS.before, WITHOUT_A_WORD), workers)


def test_killed_twice(kind: Kind, every: int) -> None:
    for first in range(1, requests_of(kind), 3 * every):
        for second in range(first % 9 + 1, 40, 9):
            workers = begin(kind)
            with pytest.raises(Killed):
                workers.apply(kind.after, first)
            try:
                workers.apply(kind.after, second)
            except Killed:
                assert workers.apply(kind.after) == [], (first, second)
                converged(kind, workers)
            else:
                break


@pytest.mark.parametrize("who", ["giver", "receiver"])
def test_killed_and_resumed_by_hand(kind: Kind, who: str, every: int) -> None:
    """What a kill left stopped is resumed with curl and records flow: one more apply carries what differs, and never backwards."""
    ran = 0
    for last in range(1, requests_of(kind), every + every // 6):
        workers = begin(kind)
        givers = {c.takes_over.giver for c in workers.plan(kind.after).changes if c.takes_over}
        with pytest.raises(Killed):
            workers.apply(kind.after, last)
        for connect, fake in workers.fakes.items():
            for name, connector in fake.connectors.items():
                is_giver = (connect, name) in givers
                if ".source." in name and connector.state == "STOPPED" and is_giver is (who == "giver"):
                    connector.state = "RUNNING"
                    ran += 1
        for _ in range(3):
            workers.tick()
        assert workers.apply(kind.after) == [], last
        converged(kind, workers)
    assert ran > 0


def test_killed_and_taken_back(kind: Kind, every: int) -> None:
    """The tree says the old again: what was begun is undone; what is past that point is finished, and no record comes twice."""
    undone = 0
    for last in range(1, requests_of(kind), every):
        workers = begin(kind)
        with pytest.raises(Killed):
            workers.apply(kind.after, last)
        workers.apply(kind.before)
        if any(change.action == "blocked" for change in workers.plan(kind.before).changes):
            assert workers.apply(kind.after) == [], last
        receivers = [c for fake in workers.fakes.values() for c in fake.connectors.values()]
        assert not any(JOURNAL_KEY in each.config for each in receivers), last
        undone += workers.writes(kind.before) == {}
        assert all(each.state == "RUNNING" for each in receivers), last
        if kind.first:  # else nobody mirrors what was removed earlier
            assert workers.apply(kind.after) == [], last
        workers.every_record_once()
    assert undone > 0


def test_rebalances_refuse_for_a_while_and_nothing_is_lost(kind: Kind) -> None:
    """Workers answer 409 to offsets, and 500 to configs, for a moment after each write."""
    workers = begin(kind)
    for fake in workers.fakes.values():
        fake.busy_after_writes = 3
    assert workers.apply(kind.after) == []
    for fake in workers.fakes.values():
        fake.busy_after_writes = fake.busy = 0
    converged(kind, workers)


def test_somebody_resumes_what_is_about_to_get_offsets() -> None:
    """Workers refuse it, and the words say why; the connector that gives its topics goes on where it was."""
    kind = KINDS["a topic to another flow"]
    workers = begin(kind)
    receiver = workers.fakes["east"].connectors["mm2.a.east.source.orders"]

    def resume(request: httpx.Request) -> None:
        if request.method == "PATCH":
            receiver.state, workers.meanwhile = "RUNNING", nothing

    workers.meanwhile = resume
    (error,) = workers.apply(kind.after)
    assert "must be in the STOPPED state before their offsets can be modified" in error
    assert JOURNAL_KEY not in receiver.config
    workers.every_record_once()
    assert workers.apply(kind.after) == []
    converged(kind, workers)


OTHER_TREES = {
    "its line is gone": tree(ORDERS.replace("[orders]", "[orders, logs.b]"), FEWER_LOGS),
    "to a third flow instead": tree(
        ORDERS,
        FEWER_LOGS,
        "more: {sources: [a], targets: [east], topics: {include: [logs.b]}}",
        moved="{from: 'logs:a->east', to: 'more:a->east', topics: [logs.b]}",
    ),
    "the other topic too, and the line is gone": tree(
        ORDERS.replace("[orders]", "[orders, logs.a]"),
        LOGS.replace("logs.a, ", ""),
        moved="{from: 'logs:a->east', to: 'orders:a->east', topics: [logs.a]}",
    ),
}


@pytest.mark.parametrize("other", OTHER_TREES)
def test_killed_and_the_tree_says_something_else(other: str, every: int) -> None:
    """Past the point of no return the plan says what to do; whatever was done by then, no record is lost and none comes twice."""
    kind, refused = KINDS["a topic to another flow"], 0
    for last in range(1, requests_of(kind), every):
        workers = begin(kind)
        with pytest.raises(Killed):
            workers.apply(kind.after, last)
        changes = workers.plan(OTHER_TREES[other]).changes
        blocked = [c for c in changes if c.action == "blocked" and ("begun" in c.reason or "its journal" in c.reason)]
        workers.apply(OTHER_TREES[other])
        if blocked and "its journal" in blocked[0].reason:  # the giver does not speak of the move yet
            assert "which neither moved: nor that connector confirms" in blocked[0].reason
            again = "write moved: [{from: east/mm2.a.east.source.logs, to: orders:a->east, topics: […]}] and apply"
            assert again in blocked[0].remedy
        elif blocked:
            refused += 1
            assert "its offsets are carried already" in blocked[0].reason
            assert "bring the tree back to what it was, apply to finish the move" in blocked[0].remedy
        if blocked:
            assert workers.apply(kind.after) == [], last
            converged(kind, workers)
            workers.apply(OTHER_TREES[other])
        while workers.plan(OTHER_TREES[other]).writes:
            assert workers.apply(OTHER_TREES[other]) == [], last
        workers.every_record_once()
    assert refused > 0


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
def test_offsets_that_are_refused_leave_both_as_they_were(kind: Kind, verb: str) -> None:
    workers = begin(kind)
    before = {
        n: {k: (dict(c.config), c.state) for k, c in f.connectors.items() if ".source." in k}
        for n, f in workers.fakes.items()
    }
    for change in [change for change in workers.plan(kind.after).changes if change.takes_over]:
        connect, name = (
            change.takes_over.giver if verb == "GET" and change.takes_over else (change.connect, change.connector)
        )
        workers.fakes[connect].fail_next(
            verb, f"/connectors/{name}/offsets", 400, "no", times=2 if verb == "GET" else 1
        )
    assert workers.apply(kind.after) or (kind.first and verb == "GET"), "a plan that cannot read what rests is blocked"
    after = {
        n: {k: (dict(c.config), c.state) for k, c in f.connectors.items() if ".source." in k}
        for n, f in workers.fakes.items()
    }
    assert after == before
    for fake in workers.fakes.values():
        fake.faults.clear()
    if kind.first:  # else nobody mirrors what was removed earlier
        assert workers.apply(kind.after) == []
    workers.every_record_once()
