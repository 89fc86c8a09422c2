"""Where the way back begins, in drawn worlds: nothing that came from the other side goes back, all of one's own does, and
what is lost is listed exactly."""

from __future__ import annotations

import random

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.back import (
    BackPartition,
    Beginning,
    Prepared,
    Range,
    begin_partition,
    compare_records,
    known_lost,
    lost_ranges,
    parse_prepared,
    stale_reason,
)
from mm2mgr.failover.journal import FailoverJournal
from mm2mgr.kafka.groups import RecordMark
from mm2mgr.partitions import Offsets, TopicPartition

from .rounds import HERE, Log, Mirror, fail_over, traffic, way_back


def lost_ids(log: Log, begin: Beginning) -> set[str]:
    return {name for lost in begin.lost for name in log.ids[lost.first : lost.end] if name is not None}


def play(seed: int, *, with_journal: bool, rounds: int = 4) -> None:
    dice = random.Random(seed)
    a, b = Log("a"), Log("b")
    there, back = Mirror(a, b, every=dice.randint(1, 6)), Mirror(b, a, every=dice.randint(1, 6))
    begun: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
    for number in range(rounds):
        traffic(dice, there, dice.randint(0, 40))
        fail_over(dice, there, clean=dice.random() < 0.5)
        end = len(b.ids)
        for _ in range(dice.randint(0, 12)):
            b.produce(gap=with_journal and dice.random() < 0.1)
        begin = way_back(there, end if with_journal else None, begun[a.name], back)
        if begin.refusal:
            assert not with_journal, (seed, number, begin)
            return
        own = [name for name in b.ids[end:] if name is not None]
        sent = [name for name in b.ids[begin.first :] if name is not None]
        assert sent == own, (seed, number, begin)
        assert not begin.strange or not with_journal
        mirrored = {name for name in b.ids if name is not None}
        assert lost_ids(a, begin) == {name for name in a.ids[there.stored or 0 :] if name} - mirrored, (seed, number)
        begun[b.name] = (begin.first, len(a.ids))
        back.go_on_at(begin.first)
        a, b, there, back = b, a, back, there


@pytest.mark.parametrize("with_journal", [True, False])
def test_only_what_was_produced_there_goes_back_and_what_is_lost_is_listed(with_journal: bool) -> None:
    for seed in (*range(80), 656):
        play(seed, with_journal=with_journal)


@pytest.mark.matrix
@pytest.mark.parametrize("with_journal", [True, False])
def test_the_same_in_many_worlds(with_journal: bool) -> None:
    for seed in range(3_000):
        play(seed, with_journal=with_journal, rounds=6)


def marks(*names: str, first: int = 0) -> list[RecordMark]:
    return [RecordMark(first + number, "", name, 0) for number, name in enumerate(names)]


def test_of_equal_records_at_the_end_as_many_are_lost_as_have_no_copy() -> None:
    copies = compare_records(marks("y", "x", "x", "x"), marks("y", "x"))
    assert (copies.copied, copies.behind) == (frozenset({0, 1}), 2)


def test_records_that_somebody_wrote_to_the_target_meanwhile_are_named() -> None:
    part = BackPartition(HERE, Offsets(0, 6), Offsets(0, 3), 3, 5)
    begin = begin_partition(part, marks("a0", "a1", "a2"), marks("a0", "own", "a1", "own2", "a2"))
    assert (begin.first, begin.strange, begin.refusal) == (5, (1, 3), "")
    blind = begin_partition(BackPartition(HERE, Offsets(0, 6), Offsets(0, 3), 3), marks("a0", "a1", "a2"),
                            marks("a0", "own", "a1", "own2", "a2", "b0"))  # fmt: skip
    assert blind.refusal.startswith("records that are not from A lie between copies of A's (first: offset 1)")


def test_a_way_back_that_has_run_further_than_the_journal_is_refused() -> None:
    begin = begin_partition(BackPartition(HERE, Offsets(0, 9), Offsets(0, 3), 3, 5, back_stored=7))
    assert begin.refusal == (
        "B->A has mirrored up to offset 7 already, which is behind 5: what is known of the stop is older than that"
    )


def test_a_target_that_was_made_anew_is_refused() -> None:
    assert begin_partition(BackPartition(HERE, Offsets(0, 4), Offsets(0, 3), 3, 5)).refusal.startswith("B's log has")


def test_topics_of_the_target_alone_begin_at_their_start() -> None:
    assert begin_partition(BackPartition(HERE, Offsets(2, 9))).first == 2
    assert begin_partition(BackPartition(HERE, Offsets(2, 9), Offsets(0, 0))).first == 2


def test_what_cannot_be_compared_is_refused_without_a_journal_and_all_of_it_counts_as_lost_with_one() -> None:
    part = BackPartition(HERE, Offsets(0, 4), Offsets(0, 9), 3)
    assert "no journal has the end of its log" in begin_partition(part).refusal
    begin = begin_partition(BackPartition(HERE, Offsets(0, 4), Offsets(0, 9), 3, 4))
    assert (begin.first, begin.lost, begin.exact) == (4, (Range(3, 9),), False)


def journal(**more: object) -> FailoverJournal:
    values = {"target_ends": {HERE: 5}, "source_stored": {HERE: 3}, **more}
    return FailoverJournal("id", "a->b", "test", "planned", 0.0, "me", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "mirrored", "reason"),
    [
        (journal(), {HERE: 3}, ""),
        (None, {HERE: 3}, "there is no journal of a failover"),
        (journal(outcome="abandoned"), {HERE: 3}, "the last failover was abandoned"),
        (journal(target_ends={}), {HERE: 3}, "the journal of the failover has no ends of logs yet"),
        (journal(), {HERE: 4}, "the mirror has stored other offsets since the failover"),
        (journal(), {}, "the mirror has stored other offsets since the failover"),
        (
            journal(source_stored={}),
            {HERE: 3},
            "the journal does not say how far all partitions were mirrored at the stop",
        ),
    ],
)
def test_a_journal_counts_only_while_nothing_was_mirrored_since(
    kept: FailoverJournal | None, mirrored: dict[TopicPartition, int], reason: str
) -> None:
    assert stale_reason(kept, mirrored) == reason


def test_what_was_prepared_is_read_again_and_replaced_when_it_is_repeated() -> None:
    lost = Beginning(HERE, Offsets(0, 9), 5, 7, "", lost_ranges([3, 4, 6], frozenset({4})), exact=False)
    prepared = Prepared.from_beginnings("a->b", "test", 10.0, [lost])
    again = Prepared.from_beginnings("a->b", "test", 20.0, [lost])
    assert prepared.texts().keys() == again.texts().keys()
    assert parse_prepared({**prepared.texts(), "failback/other/a->b/x/y": "{"}, "test", "a->b") == [prepared]
    assert [row[:2] for row in known_lost([prepared, again])] == [(HERE, Range(3, 4)), (HERE, Range(6, 7))]
    key = next(iter(prepared.texts()))
    for text in ("{", "[]", '{"version": 2}', '{"version": 1, "topic": "t", "at": 1, "partitions": [[0]]}'):
        with pytest.raises(Mm2mgrError, match="cannot be read"):
            parse_prepared({key: text}, "test", "a->b")


def test_ranges_join_what_lies_next_to_each_other_and_what_was_not_read() -> None:
    assert lost_ranges([1, 2, 5, 6], frozenset({2})) == (Range(1, 2), Range(5, 7))
    assert lost_ranges([5, 6], frozenset(), Range(7, 20)) == (Range(5, 20),)
    assert lost_ranges([], frozenset(), Range(7, 7)) == ()


def test_what_was_lost_does_not_go_back_in_a_later_round_where_the_other_side_never_had_a_record() -> None:
    part = BackPartition(HERE, Offsets(0, 12), Offsets(0, 0), begun=(0, 6))
    assert begin_partition(part).first == 6


def play_loss(seed: int) -> bool:
    """Let A lose its last records after a failover; tell whether where B->A begins is known then."""
    dice = random.Random(seed)
    a, b = Log("a"), Log("b")
    there = Mirror(a, b, every=dice.randint(1, 6))
    traffic(dice, there, 40)
    fail_over(dice, there, clean=dice.random() < 0.5)
    end = len(b.ids)
    for _ in range(dice.randint(0, 12)):
        b.produce()
    del a.ids[dice.randrange(there.stored or 1) :]
    if not there.stored:
        return False
    begin = way_back(there, end if dice.random() < 0.7 else None, None, Mirror(b, a))
    if begin.refusal:
        return False
    sent = {name for name in b.ids[begin.first :] if name is not None}
    assert sent == {name for name in b.ids if name is not None} - set(a.ids), (seed, begin)
    return True


def test_what_a_lost_after_the_failover_goes_back_and_nothing_else() -> None:
    known = sum(play_loss(seed) for seed in range(300))
    assert known > 150


def test_of_very_many_lost_ranges_the_last_are_joined_and_none_is_left_out() -> None:
    others = [TopicPartition("orders", number) for number in range(1, 4)]
    many = tuple(Range(offset, offset + 1) for offset in range(0, 16_000, 2))
    few = (Range(3, 4), Range(8, 9))
    begins = [
        Beginning(HERE, Offsets(0, 9), 5, 7, lost=few),
        *(Beginning(place, Offsets(0, 9), 5, 7, lost=many) for place in others),
    ]
    begins.append(Beginning(TopicPartition("bills", 0), Offsets(0, 9), 5, 7, lost=many))
    prepared = Prepared.from_beginnings("a->b", "test", 1.0, begins)
    assert parse_prepared(prepared.texts(), "test", "a->b") == [prepared]
    assert max(len(text) for text in prepared.texts().values()) < 500_000
    assert sum(len(prepared.lost[place]) for place in (HERE, *others)) <= 10_000
    assert prepared.lost[HERE] == few
    assert prepared.at_most == set(others), "what lies between is named as well: at most"
    assert prepared.lost[others[0]][-1].end == 15_999
    told = {offset for place, lost, _, _ in known_lost([prepared]) if place == others[0] for offset in range(*lost)}
    assert told >= {lost.first for lost in many}
