"""Our own translation: against a model of mirroring, against Kafka's, and case by case."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from itertools import pairwise

import pytest

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import (
    MirroredEnds,
    ReadSection,
    TargetFacts,
    Translation,
    section_to_count,
    stored_syncs,
    translate,
    translate_all,
    translate_as_kafka,
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


# --- as Kafka does it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "offset", "expected"),
    [
        ("2.7.2", 150, 140),  # newest sync only, and the same distance behind it, whatever gaps there are
        ("3.3.2", 150, 140),
        ("3.4.0", 150, 140),
        ("3.4.1", 150, 91),  # one record behind a sync
        ("3.6.2", 150, 91),
        ("4.3.1", 150, 91),
        ("3.4.0", 50, None),
        ("3.4.1", 50, 1),
        ("4.3", 100, 90),
    ],
)
def test_releases_differ(release: str, offset: int, expected: int | None) -> None:
    assert translate_as_kafka(release, offset, syncs((0, 0), (100, 90))) == expected


def test_before_3_3_a_partition_without_syncs_is_translated_to_the_same_offset() -> None:
    assert translate_as_kafka("3.2.0", 50, ()) == 50
    assert translate_as_kafka("3.3.2", 50, ()) is None
    assert stored_syncs("3.2.0", ()) == ()


def test_a_start_forgets_earlier_syncs_unless_checkpoints_are_read() -> None:
    many = syncs((0, 0), (100, 100), (200, 200))
    assert translate_as_kafka("3.6.2", 150, many, started_at=3) is None
    assert translate_as_kafka("3.7.1", 150, many, started_at=3) == 101
    assert translate_as_kafka("3.7.1", 150, many, started_at=3, read_checkpoints=False) is None
    assert translate_as_kafka("3.6.2", 150, many, started_at=2) == 101


def test_older_syncs_become_sparse() -> None:
    upstream = [sync.upstream for sync in stored_syncs("4.3.1", syncs(*((n * 100, n * 100) for n in range(10_000))))]
    assert upstream[0] == 999_900
    assert upstream[-1] == 0
    assert len(upstream) < 30
    distances = [later - earlier for later, earlier in pairwise(upstream)]
    assert distances[0] < 1000
    assert distances[-2] > 100_000


@pytest.mark.parametrize("release", ["trunk", "", "v4"])
def test_what_is_no_release_is_refused(release: str) -> None:
    with pytest.raises(ValueError, match="no release of Kafka"):
        translate_as_kafka(release, 1, syncs((0, 0)))


# --- our own ----------------------------------------------------------------------------------------------------------


def test_between_syncs_of_the_same_distance_it_is_exact() -> None:
    assert at(translate(50, syncs((0, 10), (100, 110)), plain(200))) == (60, 0)
    assert at(translate(100, syncs((0, 10), (100, 110)), plain(200))) == (110, 0)


def test_where_offsets_do_not_advance_alike_it_is_behind_the_sync_below() -> None:
    assert at(translate(50, syncs((0, 10), (100, 109)), plain(200))) == (11, 49)
    # One more than there are offsets: a record that came twice, and may come again.
    assert at(translate(50, syncs((0, 10), (100, 111)), plain(200))) == (11, 50)


def test_transactions_are_counted_only_where_records_were_read() -> None:
    """A marker on the source and another on the target give the same distance, and no exact offset."""
    both = syncs((0, 0), (4, 4))  # source 0, marker, 2, 3, 4; target 0, 2, marker, 3, 4
    facts = TargetFacts(Offsets(0, 5), transactional=True)
    assert at(translate(2, both, facts)) == (1, 1)
    assert section_to_count(2, both, facts) == (1, 5)
    section = ReadSection.from_records(1, 5, [(1, "2"), (3, "3"), (4, "4")])
    assert section == ReadSection(1, 5, empty=(2,))
    read = TargetFacts(Offsets(0, 5), transactional=True, sections=(section,))
    assert at(translate(3, both, read)) == (3, 1)
    assert at(translate(2, both, read)) == (1, 1)


def test_records_that_came_twice_are_not_counted() -> None:
    both = syncs((0, 0), (50, 20))
    straight = TargetFacts(Offsets(0, 60), sections=(ReadSection(0, 60),))
    assert at(translate(45, both, straight)) == (15, 30)
    section = ReadSection.from_records(0, 60, ((offset, offset if offset != 12 else 7) for offset in range(60)))
    twice = TargetFacts(Offsets(0, 60), sections=(section,))
    assert section == ReadSection(0, 60, repeated=(12,))
    assert at(translate(45, both, twice)) == (1, 44)


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


def test_sections_that_touch_are_counted_together() -> None:
    both = syncs((0, 0), (50, 40))
    halves = ReadSection(1, 20), ReadSection(20, 41, empty=(30,))
    assert at(translate(45, both, TargetFacts(Offsets(0, 60), sections=halves))) == (35, 11)
    assert at(translate(25, both, TargetFacts(Offsets(0, 60), sections=halves))) == (14, 11)
    apart = ReadSection(1, 20), ReadSection(21, 41)
    assert at(translate(45, both, TargetFacts(Offsets(0, 60), sections=apart))) == (1, 44)


def test_without_a_sync_below_it_is_unknown() -> None:
    for translation in (
        translate(50, (), plain(100)),
        translate(50, syncs((60, 60)), plain(100)),
        translate(0, syncs((60, 60)), plain(100)),
    ):
        assert translation.offset is None
        assert "no offset sync" in translation.reason
    assert section_to_count(50, syncs((60, 60)), plain(100)) is None


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
        facts = mirroring.facts(read=randomness.random() < 0.4)
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
            kafka = translate_as_kafka("4.3.1", offset, read_syncs)
            if kafka is not None and not restarts:
                assert translation.offset >= kafka
                seen["nearer"] += translation.offset > kafka
    assert min(seen[word] for word in ("exact", "bounded", "nearer")) > count, seen
    assert seen["unknown"]
