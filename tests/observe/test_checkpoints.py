"""Checkpoints that a consumer group must have got, and its offsets on the target."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.json_values import to_json
from mm2mgr.problems.health import ConnectorState
from tests.fake_connect import Fault
from tests.observe.estate import Estate, estate, sentences

TOPIC, PLACE, REMOTE = "A.checkpoints.internal", ("orders", 0), ("A.orders", 0)
LATE = 2 * 60 + 60  # two intervals and the patience
NOT_EMITTED, REWOUND = "checkpoints-not-emitted", "group-offsets-rewound"


@dataclass
class World:
    """The small estate with one group that reads orders-0 on A; all that is produced is mirrored and stored."""

    estate: Estate

    def __post_init__(self) -> None:
        self.estate.connect.connectors[self.estate.checkpoint].groups = ["readers"]
        self.estate.kafka.clusters["B"][TOPIC] = [(0, 5)]
        self.at(1_000, group=1_000)

    def at(self, end: int, *, group: int | None = None, mirrored: int | None = None) -> None:
        """Set the end of the log, how far the mirror is, and the group's offset."""
        arrived = end if mirrored is None else mirrored
        self.estate.log(0, end)
        self.estate.log(0, arrived, alias="B", topic="A.orders")
        self.estate.stored(arrived - 1)
        if group is not None:
            self.estate.kafka.groups.setdefault("A", {})["readers"] = {PLACE: group}

    def checkpoint(self) -> None:
        """Write a checkpoint."""
        ((start, end),) = self.estate.kafka.clusters["B"][TOPIC]
        self.estate.kafka.clusters["B"][TOPIC] = [(start, end + 1)]

    def look(self, later_seconds: float) -> ConnectorState:
        companions = self.estate.status(later_seconds=later_seconds).companions
        return next(one for one in companions if one.type == "checkpoint")

    def kinds(self, later_seconds: float) -> list[str]:
        return [one.kind for one in self.look(later_seconds).problems]

    def begin(self) -> None:
        """Look until offsets of the group have been read once while no checkpoint comes."""
        assert self.kinds(0) + self.kinds(61) + self.kinds(1) == []


@pytest.fixture
def world(small: Estate) -> World:
    return World(small)


def test_a_group_that_read_on_and_gets_no_checkpoint_is_a_problem_until_it_does(world: World) -> None:
    world.begin()
    world.at(1_200, group=1_200)
    assert world.kinds(61) == []
    assert world.kinds(LATE - 1) == []
    found = world.look(2)
    assert ([one.kind for one in found.problems], found.health) == ([NOT_EMITTED], "problem")
    assert to_json(found.problems[0].evidence) == {
        "topic": TOPIC,
        "interval_seconds": 60.0,
        "groups": ["readers"],
        "group_count": 1,
        "source": "A",
        "target": "B",
    }
    (said,) = sentences(found)
    assert f"no checkpoint has been written to {TOPIC} on B for 3.02 min since consumer group readers read on" in said
    world.checkpoint()
    assert world.kinds(1) == []


@pytest.mark.parametrize(
    ("end", "group", "mirrored"),
    [
        (1_000, 1_000, 1_000),  # a quiet topic
        (1_100, 1_100, 1_100),  # no more than offset.lag.max
        (9_000, 1_000, 9_000),  # the group is at rest
        (9_000, 1_500, 9_000),  # far behind, where offset syncs are sparse
        (9_000, 9_000, 1_000),  # the mirror is at rest
    ],
)
def test_a_group_to_which_no_checkpoint_is_due_is_well(world: World, end: int, group: int, mirrored: int) -> None:
    world.begin()
    world.at(end, group=group, mirrored=mirrored)
    assert [kind for _ in range(20) for kind in world.kinds(300) if kind == NOT_EMITTED] == []


def test_a_group_is_counted_from_where_it_was_once_the_mirror_has_come_there(world: World) -> None:
    world.at(5_000, group=5_000, mirrored=1_000)
    world.begin()
    world.at(5_100, group=5_100, mirrored=5_100)
    assert [kind for _ in range(20) for kind in world.kinds(300)] == [], "4 100 records arrived, 100 since its offset"
    world.at(5_300, group=5_300, mirrored=5_300)
    assert world.kinds(61) + world.kinds(LATE) == [NOT_EMITTED]


def test_groups_are_asked_for_once_an_interval_and_only_while_no_checkpoint_comes(world: World) -> None:
    for _ in range(20):
        world.checkpoint()
        world.kinds(30)
    assert world.estate.kafka.asked_groups == []
    for _ in range(20):
        world.kinds(30)
    assert world.estate.kafka.asked_groups == [("A", ("readers",))] * 9, (
        "after the first interval, and every second look"
    )


def test_groups_that_this_login_may_not_read_are_not_judged(world: World) -> None:
    world.begin()
    world.at(1_200, group=1_200)
    world.estate.kafka.groups = {}
    assert [kind for _ in range(9) for kind in world.kinds(300)] == []


@pytest.mark.parametrize("alias", ["A", "B"])
def test_time_in_which_a_cluster_cannot_be_read_does_not_count(world: World, alias: str) -> None:
    world.begin()
    world.at(1_200, group=1_200)
    world.kinds(61)
    world.estate.kafka.down.add(alias)
    world.kinds(1)
    assert NOT_EMITTED not in world.kinds(3_600)
    world.estate.kafka.down.clear()
    assert world.kinds(1) + world.kinds(LATE - 5) == []
    assert world.kinds(6) == [NOT_EMITTED]


def test_groups_stay_remembered_where_the_tasks_cannot_be_read(world: World) -> None:
    world.begin()
    world.at(1_200, group=1_200)
    world.kinds(61)
    world.estate.connect.faults.append(
        Fault("GET", f"/connectors/{world.estate.checkpoint}/tasks", status=403, times=99)
    )
    assert world.kinds(61) + world.kinds(LATE) == [NOT_EMITTED]


def test_a_connector_at_rest_owes_no_checkpoint_and_starts_anew(world: World) -> None:
    world.begin()
    world.at(1_200, group=1_200)
    world.kinds(61)
    world.estate.connect.connectors[world.estate.checkpoint].state = "PAUSED"
    assert world.kinds(600) == ["companion-paused-by-hand"]
    world.estate.connect.connectors[world.estate.checkpoint].state = "RUNNING"
    assert [kind for _ in range(9) for kind in world.kinds(300)] == []


# --- against MirrorMaker's own rules ----------------------------------------------------------------------------------


@dataclass
class MirrorMaker:
    """When MirrorMaker writes offset syncs and checkpoints of one partition (PartitionState, OffsetSyncStore from 3.5.1 on,
    MirrorCheckpointTask). `gap`: offsets of the source per record, as transaction markers and compaction leave them."""

    gap: int
    lag_max: int = 100
    mirrored: int = 0  # records
    last_sync: int | None = None
    syncs: list[int] = field(default_factory=list)  # the store, in records
    checkpoint: int = -1
    checkpoints: int = 0

    def mirror(self, until: int) -> None:
        for number in range(self.mirrored, until):
            if self.last_sync is None or number - (self.last_sync + 1) >= self.lag_max:
                self.last_sync = number
                self._store(number)
        self.mirrored = until

    def _store(self, new: int) -> None:
        if not self.syncs:
            self.syncs = [new] * 64
        self.syncs[0], old, put = new, self.syncs[0], new
        for i in range(1, 64):
            before = self.syncs[i - 1]
            apart = i + 1 >= 64 or self._apart(old, self.syncs[i + 1], i)
            if self._is_recent(before, old, i - 1, i) and self._apart(before, old, i - 1) and apart:
                put = old
            if self._is_recent(before, self.syncs[i], i - 1, i):
                break
            old, self.syncs[i] = self.syncs[i], put

    def _is_recent(self, newer: int, older: int, i: int, j: int) -> bool:
        return newer * self.gap <= older * self.gap + 2**j - 2**i

    def _apart(self, newer: int, older: int, i: int) -> bool:
        return newer == older or newer * self.gap >= older * self.gap + 2 ** max(i - 2, 0)

    def emit(self, group: int) -> None:
        """Write a checkpoint of a group's offset on the source, if it translates to a higher one than the last."""
        sync = next((each for each in self.syncs if each * self.gap <= group), None)
        if sync is None:
            return
        translated = sync + (group != sync * self.gap)
        if translated > self.checkpoint:
            self.checkpoint, self.checkpoints = translated, self.checkpoints + 1


STEP = st.tuples(
    st.sampled_from([0, 0, 1, 50, 150, 1_000, 20_000]),  # records that are produced
    st.sampled_from([0.0, 0.5, 1.0, 1.0]),  # of those that wait, how many are mirrored
    st.sampled_from([0.0, 0.1, 0.9, 1.0, 1.0]),  # and how many the group reads
    st.booleans(),  # whether stored offsets are flushed
    st.sampled_from([7.0, 30.0, 61.0, 200.0]),  # seconds until the look
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=25), gap=st.sampled_from([1, 2, 7]))
def test_nothing_is_told_of_a_mirror_that_writes_checkpoints_by_its_own_rules(
    steps: list[tuple[int, float, float, bool, float]], gap: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, estate(Path(folder)) as served:
        world, mirror = World(served), MirrorMaker(gap)
        produced = group = stored = 0
        for records, mirrors, reads, flush, seconds in steps:
            produced += records
            mirror.mirror(mirror.mirrored + int(mirrors * (produced - mirror.mirrored)))
            group += int(reads * (produced * gap - group))
            stored = mirror.mirrored if flush else stored
            for _ in range(int(seconds // 60)):
                mirror.emit(group)
            served.log(0, produced * gap)
            served.log(0, mirror.mirrored, alias="B", topic="A.orders")
            served.stored(stored * gap - 1)
            served.kafka.groups["A"]["readers"] = {PLACE: group}
            served.kafka.clusters["B"][TOPIC] = [(0, mirror.checkpoints)]
            assert NOT_EMITTED not in world.kinds(seconds)


# --- offsets of groups on the target ----------------------------------------------------------------------------------


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[World]:
    """The group's offsets are synced, and level."""
    with estate(tmp_path, more="checkpoints: {group_offsets: true}") as served:
        world = World(served)
        served.kafka.groups["B"] = {"readers": {REMOTE: 1_000}}
        world.begin()
        yield world


def rewinds(state: ConnectorState) -> list[str]:
    return [one.kind for one in state.problems if one.kind == REWOUND]


def test_an_offset_that_goes_back_on_the_target_is_a_problem_until_it_is_where_it_was(synced: World) -> None:
    synced.estate.kafka.groups["B"]["readers"] = {REMOTE: 400}
    found = synced.look(61)
    assert (rewinds(found), found.health) == ([REWOUND], "problem")
    (one,) = (each for each in found.problems if each.kind == REWOUND)
    assert to_json(one.evidence)["offsets"] == [
        {"group": "readers", "partition": "orders-0", "offset": 400, "before": 1_000}
    ]
    assert any(
        "(readers, orders-0: 1000 to 400): consumers there read records again" in said for said in sentences(found)
    )
    synced.estate.kafka.groups["B"]["readers"] = {REMOTE: 999}
    assert rewinds(synced.look(61)) == [REWOUND]
    synced.estate.connect.connectors[synced.estate.checkpoint].state = "PAUSED"
    assert rewinds(synced.look(61)) == [REWOUND]
    synced.estate.connect.connectors[synced.estate.checkpoint].state = "RUNNING"
    synced.look(1)
    synced.estate.kafka.groups["B"]["readers"] = {REMOTE: 1_000}
    assert rewinds(synced.look(61)) == []


def test_a_group_that_was_reset_on_the_source_may_go_back_on_the_target(synced: World) -> None:
    synced.at(1_000, group=200)
    synced.estate.kafka.groups["B"]["readers"] = {REMOTE: 200}
    assert rewinds(synced.look(61)) == []


def test_offsets_that_grow_stand_still_or_are_gone_are_well(synced: World) -> None:
    for there in (1_000, 1_500, None, 1_500, 2_000):
        synced.estate.kafka.groups["B"] = {"readers": {} if there is None else {REMOTE: there}}
        assert rewinds(synced.look(61)) == []


def test_offsets_on_the_target_are_not_asked_for_where_they_are_not_synced(world: World) -> None:
    world.begin()
    assert {alias for alias, _ in world.estate.kafka.asked_groups} == {"A"}
