"""The verdict on a failover, judged from values: a skip is never GO, an unknown is never GO, and order means nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.failover.check import (
    GroupPosition,
    GroupReadiness,
    PairReadiness,
    PositionBounds,
    RecoveryPoint,
    TimeToExpect,
    Unread,
    bounds_of,
)
from mm2mgr.failover.differences import acl_gaps, quota_gaps, streams_states
from mm2mgr.failover.translation import Translation
from mm2mgr.kafka.acls import Acl, Right
from mm2mgr.kafka.quotas import ProducerQuotas, QuotaEntity
from mm2mgr.partitions import Offsets, TopicPartition
from mm2mgr.remarks import Remark
from tests.examples import draw_examples

PARTITION, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
LOG = Offsets(0, 1_000)


def position(group: str = "billing", **more: object) -> GroupPosition:
    """Return a position whose copy of the next record is at 500, and that is level on the target."""
    usual = GroupPosition(
        group, PARTITION, REMOTE, 500, 1_000, 500, (500, 500), 90.0, PositionBounds(500, 0), "between two syncs", LOG
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def pair(*groups: GroupReadiness, **more: object) -> PairReadiness:
    usual = PairReadiness("a->east", 100.0, groups, recovery=RecoveryPoint(0, 0.0), time=TimeToExpect(0.0, 60.0))
    return replace(usual, **more)  # type: ignore[arg-type]


def group_of(*positions: GroupPosition, **more: object) -> GroupReadiness:
    return replace(GroupReadiness(positions[0].group, positions), **more)  # type: ignore[arg-type]


def test_all_level_and_nothing_lost_is_go() -> None:
    verdict = pair(group_of(position())).verdict
    assert (verdict.word, verdict.reasons) == ("GO", ())
    assert (verdict.repeats_at_most, verdict.skips_at_most, verdict.lost_at_most) == (0, 0, 0)


@pytest.mark.parametrize(
    ("change", "word", "state"),
    [
        ({"on_target": 440}, "GO WITH", "repeats"),
        ({"bounds": PositionBounds(480, 30), "on_target": 480}, "GO WITH", "repeats"),
        ({"on_target": 501}, "NO-GO", "skips"),
        ({"bounds": PositionBounds(480, 30), "on_target": 481}, "not judged", "unknown"),
        ({"bounds": PositionBounds(480, 30), "on_target": 511}, "NO-GO", "skips"),
        ({"on_target": None}, "NO-GO", "absent"),
        ({"on_target": 1_001}, "NO-GO", "out of range"),
        ({"log": Offsets(600, 1_000)}, "NO-GO", "out of range"),
        ({"bounds": None}, "not judged", "unknown"),
        ({"log": None}, "not judged", "unknown"),
        ({"sampled": "differs"}, "NO-GO", "differs"),
    ],
)
def test_what_one_position_makes_of_the_verdict(change: dict[str, object], word: str, state: str) -> None:
    judged = pair(group_of(position(**change)), group_of(position("other")))
    assert judged.verdict.word == word
    assert judged.worst_first[0].state == state
    assert judged.worst_first[0].group == "billing"


def test_repeats_count_what_lies_before_the_translation_and_what_that_may_be_off() -> None:
    risk = position(bounds=PositionBounds(480, 30), on_target=400).risk
    assert (risk.repeats, risk.skips) == (110, 0)
    assert pair(group_of(position(bounds=PositionBounds(480, 30), on_target=400))).verdict.repeats_at_most == 110


def test_a_group_that_is_nowhere_is_fine_where_both_logs_are_empty() -> None:
    empty = position(committed=7, end=7, on_target=None, bounds=None, log=Offsets(3, 3))
    assert empty.risk.state == "exact"
    assert replace(empty, end=8).risk.state == "absent"
    assert replace(empty, log=Offsets(3, 4)).risk.state == "absent"


def test_translated_offsets_are_judged_in_the_place_of_those_on_the_target() -> None:
    absent = group_of(position(on_target=None, bounds=PositionBounds(480, 30)), translated=True)
    assert (absent.word, absent.repeats) == ("GO WITH", 30)
    unknown = group_of(position(on_target=500, bounds=None), translated=True)
    assert unknown.word == "not judged"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"remarks": (Remark("2 topics not on the target", "blocks"),)}, "NO-GO"),
        ({"remarks": (Remark("settings differ", "warns"),)}, "GO WITH"),
        ({"remarks": (Remark("judged from earlier looks", "notes"),)}, "GO"),
        ({"unread": (Unread("east", "ACLs", "refused"),)}, "not judged"),
        ({"recovery": RecoveryPoint(reason="the source is dead")}, "not judged"),
        ({"recovery": RecoveryPoint(12, 3.0, 1)}, "GO WITH"),
        ({"source_age_seconds": None}, "not judged"),
        ({"source_age_seconds": 30.0}, "GO WITH"),
    ],
)
def test_what_is_beside_the_groups_counts(more: dict[str, object], word: str) -> None:
    verdict = pair(group_of(position()), **more).verdict
    assert verdict.word == word
    assert bool(verdict.reasons) == (word != "GO")


def test_members_on_the_target_are_no_go_and_named() -> None:
    verdict = pair(group_of(position(), has_members=True)).verdict
    assert verdict.word == "NO-GO"
    assert "billing" in verdict.reasons[0]


def test_a_checkpoint_stands_in_for_a_translation_and_makes_none_sharper() -> None:
    assert bounds_of(Translation(480, 30, ""), 490, LOG) == PositionBounds(480, 30)
    assert bounds_of(Translation(480, 30, ""), 470, LOG) == PositionBounds(480, 30)
    assert bounds_of(Translation(None, 0, "no sync below"), 470, LOG) == PositionBounds(470, 530)
    assert bounds_of(Translation(None, 0, "no sync below"), None, LOG) is None
    assert bounds_of(Translation(None, 0, ""), 2_000, LOG) is None, "of another topic"
    assert bounds_of(None, 470, None) is None


# --- properties -------------------------------------------------------------------------------------------------------


@st.composite
def truths(draw: st.DrawFn) -> tuple[int, GroupPosition]:
    """Draw the true position of a group on the target, and what is known of it."""
    start = draw(st.integers(0, 20))
    log = Offsets(start, start + draw(st.integers(0, 60)))
    true = draw(st.integers(log.start, log.end))
    lower = draw(st.integers(max(0, log.start - 3), true))
    bounds = draw(st.sampled_from([PositionBounds(lower, true - lower + draw(st.integers(0, 9))), None]))
    on_target = draw(st.one_of(st.none(), st.integers(0, log.end + 5)))
    end = draw(st.sampled_from([true, true + 5]))
    known_log = draw(st.sampled_from([log, log, log, None]))
    name = draw(st.sampled_from("abc"))
    return true, GroupPosition(name, PARTITION, REMOTE, true, end, on_target, bounds=bounds, log=known_log)


@draw_examples(120)
@given(st.lists(truths(), min_size=1, max_size=6), st.booleans())
def test_a_skip_or_an_unknown_is_never_go_and_repeats_are_bounded(
    drawn: list[tuple[int, GroupPosition]], translated: bool
) -> None:
    groups = tuple(group_of(position, translated=translated) for _, position in drawn)
    verdict = pair(*groups, translated=translated).verdict
    if verdict.word not in {"GO", "GO WITH"}:
        return
    repeats = 0
    for true, position in drawn:
        assert position.log is not None, "what was not read is unknown"
        start = position.translated_offset if translated else position.on_target
        if start is None:  # nothing to read on either side
            assert position.log.start == position.log.end
            continue
        assert start <= true, "a record would be skipped"
        repeats += true - max(start, position.log.start)
    assert verdict.repeats_at_most is not None
    assert repeats <= verdict.repeats_at_most
    assert verdict.word == "GO WITH" or repeats == 0


@draw_examples(40)
@given(st.lists(truths(), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_groups_means_nothing(drawn: list[tuple[int, GroupPosition]], chance: random.Random) -> None:
    groups = [group_of(replace(position, group=f"g{number}")) for number, (_, position) in enumerate(drawn)]
    before = pair(*groups)
    chance.shuffle(groups)
    after = pair(*groups)
    assert after.verdict == before.verdict
    assert after.worst_first == before.worst_first


@draw_examples(40)
@given(st.sampled_from(["unread", "recovery", "source", "bounds", "log", "states"]), truths())
def test_anything_unknown_is_never_go(kind: str, drawn: tuple[int, GroupPosition]) -> None:
    known = position()
    unknown: dict[str, PairReadiness] = {
        "unread": pair(group_of(known), unread=(Unread("a", "quotas", "refused"),)),
        "recovery": pair(group_of(known), recovery=RecoveryPoint(None, 1.0)),
        "source": pair(group_of(known), source_age_seconds=None),
        "bounds": pair(group_of(known), group_of(position("b", bounds=None))),
        "log": pair(group_of(known), group_of(replace(drawn[1], log=None))),
        "states": pair(group_of(known), unread=(Unread("east", "members of billing", "not told"),)),
    }
    assert unknown[kind].verdict.word in {"NO-GO", "not judged"}


# --- what differs -----------------------------------------------------------------------------------------------------


def acl(principal: str, name: str, kind: str = "topic", operation: str = "Read", **more: bool) -> Acl:
    return Acl(principal, "*", operation, kind, name, **{"prefixed": False, "allow": True, **more})  # type: ignore[arg-type]


def test_rights_that_readers_have_on_the_source_alone_are_gaps() -> None:
    source = [
        acl("User:shop", "orders"),
        acl("User:all", "ord", prefixed=True),
        acl("User:shop", "billing", "group"),
        acl("User:writer", "orders", operation="Write"),
        acl("User:other", "private"),
    ]
    remotes, groups = {"orders": "a.orders"}, {"billing"}
    gaps = set(acl_gaps(source, [], remotes, groups))
    assert gaps == {
        ("User:shop", Right("Read", "topic", "a.orders")),
        ("User:all", Right("Read", "topic", "a.orders")),
        ("User:shop", Right("Read", "group", "billing")),
    }
    target = [acl("User:shop", "a.", prefixed=True), acl("User:*", "a.orders"), acl("User:shop", "*", "group")]
    assert list(acl_gaps(source, target, remotes, groups)) == []


def test_quotas_differ_by_what_all_brokers_let_through() -> None:
    shop, ours = QuotaEntity("shop"), QuotaEntity("mm2mgr.team/x")
    source = ProducerQuotas(2, {shop: 100.0, ours: 5.0})
    assert quota_gaps(source, ProducerQuotas(4, {shop: 50.0}), lambda entity: entity == ours) == []
    assert quota_gaps(source, ProducerQuotas(4, {shop: 100.0}), lambda entity: entity == ours) == [shop]


def test_streams_applications_are_known_by_the_names_of_their_topics() -> None:
    topics = ["app-store-changelog", "app-by-key-repartition", "app", "other-changelog", "app-2-x-changelog"]
    states = streams_states(topics, {"app", "app-2"})
    assert [(state.application, state.topics) for state in states] == [
        ("app", ("app-by-key-repartition", "app-store-changelog")),
        ("app-2", ("app-2-x-changelog",)),
    ]
