"""What a failover writes for a group: only ahead, only without members, and nothing that nobody knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.failover.check import GroupPosition, GroupReadiness, PositionBounds
from mm2mgr.failover.group_offsets import GroupOrder, OffsetChange, group_reasons, order_group
from mm2mgr.partitions import Offsets, TopicPartition
from tests.examples import draw_examples

from .test_check import REMOTE, group_of, position

OTHER = TopicPartition("a.orders", 1)


@pytest.mark.parametrize(
    ("change", "action", "word", "writes"),
    [
        ({}, "level", "GO", {}),
        ({"on_target": 440}, "write", "GO", {REMOTE: (440, 500)}),
        ({"on_target": None}, "write", "GO", {REMOTE: (None, 500)}),
        ({"on_target": None, "bounds": PositionBounds(480, 30)}, "write", "GO WITH", {REMOTE: (None, 480)}),
        ({"on_target": 501}, "ahead", "NO-GO", {}),
        ({"on_target": 511, "bounds": PositionBounds(480, 30)}, "ahead", "NO-GO", {}),
        ({"on_target": 485, "bounds": PositionBounds(480, 30)}, "uncertain", "GO WITH", {}),
        ({"bounds": None}, "unknown", "GO WITH", {}),
        ({"sampled": "differs", "on_target": None}, "differs", "NO-GO", {}),
        ({"deleted": 7, "on_target": None}, "deleted", "NO-GO", {}),
        ({"log": None, "on_target": None}, "unknown", "GO WITH", {}),
        (
            {"committed": 7, "end": 7, "on_target": None, "bounds": None, "log": Offsets(3, 3)},
            "write",
            "GO",
            {REMOTE: (None, 3)},
        ),
    ],
)
def test_what_becomes_of_a_group(
    change: dict[str, object], action: str, word: str, writes: dict[TopicPartition, tuple[int | None, int]]
) -> None:
    order = order_group(group_of(position(**change)))
    assert (order.action, order.word, order.changes) == (action, word, writes)
    assert bool(group_reasons([order])) == (action not in {"level", "write"})


def test_a_group_with_members_on_the_target_is_not_written() -> None:
    order = order_group(group_of(position(on_target=None), has_members=True))
    assert (order.action, order.word, order.changes) == ("active", "NO-GO", {})


def test_a_group_that_reads_on_the_source_may_not_be_unknown() -> None:
    assert order_group(group_of(position(bounds=None), on_source="STABLE")).word == "not judged"


def test_where_only_a_partition_is_unknown_the_others_are_written() -> None:
    order = order_group(group_of(position(on_target=None), position(remote=OTHER, bounds=None)))
    assert (order.action, order.changes, order.unknown) == ("write", {REMOTE: (None, 500)}, (OTHER,))


def test_what_was_written_is_known_again() -> None:
    written = {REMOTE: OffsetChange(440, 500)}

    def order(start: int | None, **more: object) -> GroupOrder:
        return order_group(group_of(position(on_target=start), **more), written)

    assert order(440).changes == {REMOTE: (440, 500)}, "killed before it was written"
    assert order(500).action == "level"
    assert order(730, has_members=True).action == "gone on", "its consumers have started"
    assert order(10).action == "changed", "somebody set it back to read again"
    assert order(None).action == "changed"


@st.composite
def groups(draw: st.DrawFn) -> tuple[GroupReadiness, dict[TopicPartition, OffsetChange]]:
    """Draw a group with some positions, and what a run before wrote."""
    positions, written = [], {}
    for number in range(draw(st.integers(1, 3))):
        lower = draw(st.integers(0, 30))
        remote = TopicPartition("a.orders", number)
        log = draw(st.none() | st.just(Offsets(draw(st.integers(0, 30)), 30)))
        positions.append(
            GroupPosition(
                "billing",
                TopicPartition("orders", number),
                remote,
                draw(st.integers(0, 30)),
                30,
                draw(st.none() | st.integers(0, 35)),
                bounds=draw(st.none() | st.just(PositionBounds(lower, draw(st.integers(0, 5))))),
                log=log,
                sampled=draw(st.sampled_from(["", "", "same", "differs"])),
                deleted=draw(st.sampled_from([0, 0, 0, 2])),
            )
        )
        if draw(st.booleans()):
            written[remote] = OffsetChange(draw(st.none() | st.integers(0, 30)), draw(st.integers(0, 30)))
    return GroupReadiness(
        "billing", tuple(positions), draw(st.booleans()), draw(st.sampled_from(["", "STABLE"]))
    ), written


@draw_examples(100)
@given(groups())
def test_no_group_with_members_is_written_none_is_set_back_and_none_beyond_what_is_proven(
    drawn: tuple[GroupReadiness, dict[TopicPartition, OffsetChange]],
) -> None:
    group, written = drawn
    order = order_group(group, written)
    places = {place.remote: place for place in group.positions}
    assert not (group.has_members and order.changes)
    assert not (order.word in {"NO-GO"} and order.changes)
    for remote, change in order.changes.items():
        place = places[remote]
        assert change.before == place.on_target
        assert change.before is None or change.after > change.before
        assert place.log
        assert change.after == place.log.end or place.bounds
        assert place.bounds is None or change.after <= place.bounds.lower
        assert (place.sampled == "differs", place.risk_at(change.after).skips) in {(False, 0), (False, None)}
    after = replace(
        group,
        positions=tuple(
            replace(
                place, on_target=order.changes[place.remote].after if place.remote in order.changes else place.on_target
            )
            for place in group.positions
        ),
    )
    again = order_group(after, {**written, **order.changes})
    assert not again.changes, "written twice"
    assert order.action != "write" or again.action in {"level", "gone on"}
