"""Two applies of one owner, step by step in any order, with workers that hold a write back, and processes that stand still for a minute.

Each apply is a thread of its own. Only one goes on at a time, and at each of its steps (a request, a word with Kafka, a nap) what was drawn
says which one does next. Time is a value. Whatever the order: no change is overwritten by an apply that did not see it, unless the
one that is overwritten says that it failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from mm2mgr import operations
from mm2mgr.apply import execute, leases
from mm2mgr.apply.history import Author
from mm2mgr.connect.client import ConnectClient
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka import lease
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.compacted import CompactedTopic
from mm2mgr.kafka.lease import SESSION_SECONDS, Holder
from mm2mgr.live.record_sizes import TopicSizes
from mm2mgr.operations import Applied, Workspace
from tests.asking import answer_kafka, topics_with
from tests.clock import Clock, jumping
from tests.examples import draw_examples, sampled
from tests.fake_connect import FakeConnect
from tests.scale.kept import keeping

SAMPLE, MANY = 25, 80
CONNECTS = {"x": "b", "y": "c"}  # each with its Kafka cluster
FLOWS = {"logs": "x", "orders": "x", "sales": "y"}
MINUTE = 60.0
DEADLINE_SECONDS = 60.0  # of the test itself: a side that waits so long for its turn is stuck


@dataclass
class Turns:
    """Who goes on at each step: as drawn, else the other side.

    A side that stands still, after so many steps as a member of a group, gets no turn until the other one has ended, or has had its turns.
    """

    order: list[int]
    still_at: dict[int, int]
    clock: Clock
    steps: dict[int, int] = field(default_factory=dict)
    still: dict[int, int] = field(default_factory=dict)
    left: set[int] = field(default_factory=lambda: {0, 1})
    now: int = 0
    change: threading.Condition = field(default_factory=threading.Condition)

    def step(self, *, may_stand_still: bool = True) -> None:
        """Let the other side go on, if that is drawn."""
        if not (name := threading.current_thread().name).startswith("side "):
            return
        me = int(name[-1])
        other = 1 - me
        with self.change:
            self.clock.seconds += 0.1
            if GroupMember.is_member(me):
                self.steps[me] = self.steps.get(me, 0) + 1
            if may_stand_still and self.steps.get(me, 0) >= self.still_at.get(me, 10**6) and other in self.left:
                del self.still_at[me]
                self.still[me] = 200
                self.clock.seconds += MINUTE
                GroupMember.miss(me)
            if other in self.still:
                self.still[other] -= 1
                if not self.still[other]:
                    del self.still[other]
            is_other = me in self.still or bool(self.order.pop(0) if self.order else 1)
            if is_other and other in self.left and other not in self.still:
                self._wait(me, other)

    def _wait(self, me: int, other: int) -> None:
        self.now = other
        self.change.notify_all()
        assert self.change.wait_for(lambda: self.now == me, DEADLINE_SECONDS), "stuck"

    def run(self, me: int, work: Callable[[], None]) -> None:
        with self.change:
            assert self.change.wait_for(lambda: self.now == me, DEADLINE_SECONDS)
        try:
            work()
        finally:
            with self.change:
                self.left.discard(me)
                self.still.pop(1 - me, None)
                self.now = 1 - me
                self.change.notify_all()


class GroupMember:
    """What `Lease` is, with the groups in memory: a member knows that it lost the lease only when it asks, as one that stood still."""

    groups: ClassVar[dict[str, list[GroupMember]]] = {}
    notes: ClassVar[dict[str, tuple[GroupMember, str]]] = {}
    turns: ClassVar[Turns]

    def __init__(self, topic: CompactedTopic, group: str, changed: Callable[[], None]) -> None:
        self.turns.step()
        assert group == "mm2mgr-team"
        self.alias, self.changed, self.side = topic.access.alias, changed, threading.current_thread().name
        self.refused, self.answered = None, threading.Event()
        self.answered.set()
        self.members = self.groups.setdefault(self.alias, [])
        self.members.append(self)
        self.is_held = self.members == [self]
        self.confirmed_at: float | None = None

    @classmethod
    def is_member(cls, side: int) -> bool:
        return any(member.side == f"side {side}" for members in cls.groups.values() for member in members)

    @classmethod
    def miss(cls, side: int) -> None:
        """Take a side that stands still out of all groups."""
        for members in cls.groups.values():
            for member in [member for member in members if member.side == f"side {side}"]:
                member._leave()

    def _leave(self) -> None:
        was_first = self.members[:1] == [self]
        if self in self.members:
            self.members.remove(self)
        if was_first and self.members:
            self.members[0].is_held = True
            self.members[0].changed()

    def confirm(self, note: str | None = None) -> bool:
        self.turns.step()
        if self.members[:1] != [self]:
            self.is_held = False
            self.changed()
            return False
        self.confirmed_at = self.turns.clock.now()
        if note is not None:
            self.notes[self.alias] = self, note
        return True

    def was_confirmed(self) -> bool:
        at = self.confirmed_at
        return self.is_held and at is not None and self.turns.clock.now() - at < SESSION_SECONDS / 2

    def close(self) -> None:
        self.turns.step()
        self._leave()


def read_holder(access: KafkaAccess, topic: str, group: str) -> Holder | None:
    GroupMember.turns.step()
    members = GroupMember.groups.get(access.alias)
    if not members:
        return None
    member, note = GroupMember.notes.get(access.alias, (None, ""))
    return Holder("host", note if member is members[0] else "")


def side_by_side(do: Callable[[Any], Any], values: Any) -> list[Any]:
    """Do it for one value after the other; the two sides begin at different ends."""
    turn = -1 if threading.current_thread().name == "side 1" else 1
    return [do(value) for value in values[::turn]][::turn]


@dataclass
class Estate:
    folder: Path
    clock: Clock
    fakes: dict[str, FakeConnect] = field(default_factory=dict)
    holds: list[int] = field(default_factory=list)
    """Steps for which workers hold the next configs back."""

    def workspace(self, side: str, polled: dict[str, int]) -> Workspace:
        """Return a tree of this owner whose flows poll so many records at once."""
        lines = ["owner: team", "defaults: {flows: {heartbeats: false, checkpoints: false}}", "clusters:"]
        lines += [f"  {alias}: {{bootstrap_servers: ['{alias}:9092'], cluster_id: {alias}}}" for alias in "abc"]
        lines += ["connect:"]
        lines += [f"  {name}: {{url: 'http://{name}:8083', kafka: {kafka}}}" for name, kafka in CONNECTS.items()]
        lines += ["flows:"]
        for name, connect in FLOWS.items():
            poll = f"source_consumer: {{max.poll.records: {polled[name]}}}"
            ends = f"sources: [a], targets: [{CONNECTS[connect]}]"
            lines.append(f"  {name}: {{{ends}, topics: {{include: [{name}]}}, run_on: {connect}, {poll}}}")
        file = self.folder / f"{side}.yaml"
        file.write_text("\n".join([*lines, ""]))
        return Workspace((file,))

    def run(self, polled: dict[str, int]) -> None:
        """Let the connectors run as an apply made them."""
        self.fakes |= {name: FakeConnect(cluster_id=kafka) for name, kafka in CONNECTS.items()}
        for connector in self.workspace("before", polled).connectors:
            self.fakes[connector.connect].add(connector.name, connector.config)

    def stored(self) -> dict[tuple[str, str], dict[str, str]]:
        return {
            (name, one): dict(found.config)
            for name, fake in self.fakes.items()
            for one, found in fake.connectors.items()
        }


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    init = ConnectClient.__init__

    class Wire(httpx.AsyncBaseTransport):
        def __init__(self, name: str) -> None:
            self.name = name

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            # What is sent to a worker is with the worker: no clock of ours reaches it there.
            GroupMember.turns.step(may_stand_still=request.method == "GET")
            if request.method == "PUT" and request.url.path.endswith("/config"):
                for _ in range(made.holds.pop(0) if made.holds else 0):
                    GroupMember.turns.step(may_stand_still=False)
            answer = await made.fakes[self.name].transport().handle_async_request(request)
            if request.method == "GET":
                GroupMember.turns.step()  # what was read may be old before anything is done about it
            return answer

    def wired(self: ConnectClient, target: Any, **options: Any) -> None:
        init(self, target, **{**options, "transport": Wire(target.name)})

    def nap(seconds: float) -> None:
        made.clock.seconds += seconds
        GroupMember.turns.step()

    monkeypatch.setattr(ConnectClient, "__init__", wired)
    answer_kafka(
        monkeypatch,
        topics=lambda *_: topics_with(dict.fromkeys(FLOWS, 1)),
        sizes=lambda *_: TopicSizes({}, {}),
        groups=lambda *_: (),
        expiring=tuple,
    )
    monkeypatch.setattr(lease, "Lease", GroupMember)
    monkeypatch.setattr(lease, "read_holder", read_holder)
    monkeypatch.setattr(leases, "_side_by_side", side_by_side)
    monkeypatch.setattr(leases, "_NAP_SECONDS", 0.0)
    monkeypatch.setattr(execute, "_RACE_SECONDS", 0.0)  # the lease alone has to do
    monkeypatch.setattr(execute, "_LONGEST_RACE_SECONDS", 0.0)
    monkeypatch.setattr(import_module("mm2mgr.apply.history"), "author", lambda files: Author(files[0].stem))
    monkeypatch.setattr(Clock, "sleep", lambda _, seconds: nap(seconds))
    keeping(monkeypatch)
    with jumping() as clock:
        made = Estate(tmp_path, clock)
        yield made


def run_both(estate: Estate, turns: Turns, trees: list[dict[str, int]]) -> list[Applied | Mm2mgrError]:
    """Apply both trees, and return what became of each."""
    GroupMember.groups, GroupMember.notes, GroupMember.turns = {}, {}, turns
    workspaces = [estate.workspace(name, tree) for name, tree in zip(("ann", "ben"), trees, strict=True)]
    ends: dict[int, Applied | Mm2mgrError] = {}

    def work(side: int) -> None:
        try:
            ends[side] = operations.apply(workspaces[side], wait_seconds=0)
        except Mm2mgrError as refused:
            ends[side] = refused

    threads = [
        threading.Thread(target=turns.run, args=(side, lambda side=side: work(side)), name=f"side {side}")
        for side in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ends[0], ends[1]]


def check_claims(estate: Estate, ends: list[Applied | Mm2mgrError]) -> None:
    """What an apply says is written is stored, or the other one saw it when it made its plan."""
    stored, plans = estate.stored(), [end.plan.writes if isinstance(end, Applied) else [] for end in ends]
    for mine, theirs in ((ends[0], plans[1]), (ends[1], plans[0])):
        before = {change.full_name: change.before for change in theirs}
        for result in mine.done_results if isinstance(mine, Applied) else ():
            assert result.change
            assert result.change.written_config in (stored[result.full_name], before.get(result.full_name)), (
                result.full_name,
                ends,
            )


ORDERS = st.lists(st.integers(0, 1), max_size=250)
TREES = tuple(st.fixed_dictionaries({name: st.sampled_from((polled, 1)) for name in FLOWS}) for polled in (2, 3))


@pytest.mark.long
@sampled("count", [SAMPLE], [MANY])
def test_no_change_is_overwritten_by_an_apply_that_did_not_see_it(estate: Estate, count: int) -> None:
    @draw_examples(count)
    @given(
        order=ORDERS,
        still_at=st.dictionaries(st.integers(0, 1), st.integers(1, 30), max_size=1),
        trees=st.tuples(*TREES),
        holds=st.lists(st.integers(0, 40), max_size=6),
    )
    def check(order: list[int], still_at: dict[int, int], trees: tuple[dict[str, int], ...], holds: list[int]) -> None:
        estate.run(dict.fromkeys(FLOWS, 1))
        estate.holds = list(holds)
        ends = run_both(estate, Turns(list(order), dict(still_at), estate.clock), list(trees))
        check_claims(estate, ends)
        kinds = sorted(end.outcome if isinstance(end, Applied) else "refused" for end in ends)
        event(" and ".join(kinds))
        if not still_at:
            assert "done" in kinds, "two that begin at once must not refuse each other"

    check()


def test_the_second_of_two_is_told_who_is_at_work(estate: Estate) -> None:
    """Both find nobody, and join at the same time."""
    estate.run(dict.fromkeys(FLOWS, 1))
    estate.holds = [400]
    ends = run_both(estate, Turns([], {}, estate.clock), [dict.fromkeys(FLOWS, 2), dict.fromkeys(FLOWS, 3)])
    (refused,) = [end for end in ends if isinstance(end, Mm2mgrError)]
    (done,) = [end for end in ends if isinstance(end, Applied)]
    assert done.outcome == "done"
    assert "another process of owner 'team' is at work: it holds the lease on Kafka" in refused.message
    assert "nothing was written" in refused.message
    assert refused.hint
    name = "ann" if ends[0] is done else "ben"
    assert f"`apply` by {name}, since " in refused.message


def test_an_apply_that_stood_still_writes_nothing_more_and_says_why(estate: Estate) -> None:
    """The first side stands still at each step that it does with a lease: what it wrote before is there, and the other one finishes."""
    told: set[str] = set()
    for number in range(1, 40):
        estate.run(dict.fromkeys(FLOWS, 1))
        turns = Turns([0] * 200, {0: number}, estate.clock)
        first, second = run_both(estate, turns, [dict.fromkeys(FLOWS, 2), dict.fromkeys(FLOWS, 3)])
        if isinstance(first, Applied) and first.lost_leases:
            assert (first.outcome, first.interrupted) == ("failed", False)
            told |= {
                "lost"
                for result in first.failed_results
                if "was lost, so another process may write now" in (result.error or "")
            }
        check_claims(estate, [first, second])
        if 0 in turns.still_at:
            break
        assert isinstance(second, Applied), "a process that stands still blocks nobody for longer than its session"
    assert told == {"lost"}
