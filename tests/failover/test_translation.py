"""The translation of offsets: against a model of mirroring, against the most that Kafka gives, and case by case."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter

import pytest

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import (
    MirroredEnds,
    TargetFacts,
    Translation,
    translate,
    translate_all,
)
from mm2mgr.partitions import Offsets

from .mirroring import PARTITION, random_mirroring

SEED = int(os.environ.get("MM2MGR_MIRRORING_SEED", "37"))


def syncs(*pairs: tuple[int, int]) -> list[OffsetSync]:
    return [OffsetSync(PARTITION, *pair) for pair in pairs]


def plain(end: int, *ends: MirroredEnds, start: int = 0) -> TargetFacts:
    """Return what is known of a log without transactions that was not read."""
    return TargetFacts(Offsets(start, end), ends, transactional=False)


def at(translation: Translation) -> tuple[int | None, int]:
    return translation.offset, translation.repeats_at_most


def test_between_syncs_of_the_same_distance_it_is_exact() -> None:
    assert at(translate(50, syncs((0, 10), (100, 110)), plain(200))) == (60, 0)
    assert at(translate(100, syncs((0, 10), (100, 110)), plain(200))) == (110, 0)


def test_where_offsets_do_not_advance_alike_it_is_behind_the_sync_below() -> None:
    assert at(translate(50, syncs((0, 10), (100, 109)), plain(200))) == (11, 49)
    # One more than there are offsets: a record that came twice, and may come again.
    assert at(translate(50, syncs((0, 10), (100, 111)), plain(200))) == (11, 50)


def test_offsets_of_transactions_are_not_counted() -> None:
    """A marker on the source and another on the target give the same distance, and no exact offset."""
    both = syncs((0, 0), (4, 4))  # source 0, marker, 2, 3, 4; target 0, 2, marker, 3, 4
    assert at(translate(2, both, TargetFacts(Offsets(0, 5), transactional=True))) == (1, 1)


def test_at_the_end_of_the_source_all_that_was_mirrored_is_read() -> None:
    newest = syncs((0, 0), (900, 900))
    drained = plain(1000, MirroredEnds(1000, 1000, 1000))
    assert at(translate(1000, newest, drained)) == (1000, 0)
    assert at(translate(990, newest, drained)) == (990, 0)
    # 30 of them are not mirrored yet, and come then.
    assert at(translate(1000, newest, plain(970, MirroredEnds(970, 1000, 960)))) == (970, 30)
    # A marker at the end of the source, behind which the group is.
    assert at(translate(1000, newest, plain(999, MirroredEnds(999, 1000, 1000)))) == (999, 0)


def test_an_earlier_look_helps_when_the_source_is_dead() -> None:
    look = MirroredEnds(950, 950, 940)
    assert at(translate(960, syncs((900, 900)), plain(1000, look))) == (950, 10)
    assert at(translate(930, syncs((900, 900)), plain(1000, look))) == (930, 0)
    assert at(translate(960, syncs((900, 900)), plain(1000))) == (901, 59)


def test_without_a_sync_below_it_is_unknown() -> None:
    for translation in (
        translate(50, (), plain(100)),
        translate(50, syncs((60, 60)), plain(100)),
        translate(0, syncs((60, 60)), plain(100)),
    ):
        assert translation.offset is None
        assert "no offset sync" in translation.reason


def test_a_log_that_ends_before_a_sync_is_another() -> None:
    translation = translate(50, syncs((0, 0), (200, 200)), plain(150))
    assert translation.offset is None
    assert "truncated or made anew" in translation.reason


def test_what_the_target_deleted_is_passed_over() -> None:
    assert at(translate(50, syncs((0, 0), (100, 100)), plain(200, start=80))) == (80, 0)
    assert at(translate(50, syncs((60, 60), (100, 100)), plain(200, start=80))) == (80, 0)


def test_records_mirrored_again_are_taken_from_the_new_run_once_it_is_as_far() -> None:
    """100 records, stored were 60: they come again from 101 on."""
    again = syncs((0, 0), (100, 100), (60, 101))
    assert at(translate(70, again, plain(120))) == (70, 10)  # 80 to 100 are before 101 only
    assert at(translate(70, again, plain(301))) == (102, 9)
    assert at(translate(70, [*again, *syncs((110, 151))], plain(301))) == (111, 0)
    assert at(translate(70, again, plain(142, MirroredEnds(142, 101, 101)))) == (111, 0)
    assert at(translate(50, again, plain(142))) == (50, 0)


def test_a_target_made_anew_drops_the_syncs_of_the_old() -> None:
    assert at(translate(550, syncs((0, 0), (500, 500), (510, 0), (600, 90)), plain(100))) == (40, 0)
    assert translate(505, syncs((0, 0), (500, 500), (510, 5), (600, 95)), plain(100)).offset is None
    assert at(translate(505, syncs((0, 0), (500, 500), (510, 0), (600, 90)), plain(100))) == (0, 0)


@pytest.mark.parametrize("count", [200, pytest.param(40_000, marks=pytest.mark.matrix)])
def test_no_record_is_missed_and_no_more_come_again_than_said(count: int) -> None:
    """From the translated offset on, each record that the group has not read is there; of those read, so many at most."""
    randomness = random.Random(SEED)
    seen: Counter[str] = Counter()
    for _ in range(count):
        mirroring = random_mirroring(randomness)
        restarts = bool(mirroring.habits.restart)
        read_syncs = mirroring.syncs_without_newest(randomness.choice((0, 0, 1, 3)))
        mirroring.mirror_unseen(randomness.choice((0, 0, 0, 20)))
        if randomness.random() < 0.15:
            mirroring.compact()
        if randomness.random() < 0.15:
            mirroring.expire()
        facts = mirroring.facts()
        offsets = sorted({randomness.randint(0, len(mirroring.source)) for _ in range(12)} | {len(mirroring.source)})
        translations = translate_all(offsets, read_syncs, facts)
        later = copy.deepcopy(mirroring)
        while later.next_offset < len(later.source):
            later.mirror(calmly=True)
        for offset, translation in zip(offsets, translations, strict=True):
            if translation.offset is None:
                seen["unknown"] += 1
                continue
            last = {source: place for place, source in sorted(mirroring.copies.items()) if source >= offset}
            missed = {source: place for source, place in last.items() if place < translation.offset}
            assert not missed, (translation, offset, read_syncs, facts, mirroring.copies)
            again = {
                source for place, source in later.copies.items() if place >= translation.offset and source < offset
            }
            assert len(again) <= translation.repeats_at_most, (translation, offset, read_syncs, facts, mirroring.copies)
            seen["exact" if translation.repeats_at_most == 0 else "bounded"] += 1
            below = [sync for sync in read_syncs if sync.upstream <= offset]
            if below and not restarts:
                # The next record behind the nearest sync, which Kafka may hold no more.
                kafka = below[-1].downstream + min(offset - below[-1].upstream, 1)
                assert translation.offset >= kafka
                seen["nearer"] += translation.offset > kafka
    assert min(seen[word] for word in ("exact", "bounded", "nearer")) > count, seen
    assert seen["unknown"]
