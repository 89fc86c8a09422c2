"""Our own translation: against a model of mirroring, against Kafka's, and case by case."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter

import pytest

from mm2mgr.failover.syncs import OffsetSync
from mm2mgr.failover.translation import (
    Ends,
    TargetFacts,
    translate_all,
    translate_as_kafka,
)
from mm2mgr.partitions import Offsets

from .mirroring import PARTITION, Mirroring, random_mirroring

SEED = int(os.environ.get("MM2MGR_MIRRORING_SEED", "37"))


def syncs(*pairs: tuple[int, int]) -> list[OffsetSync]:
    return [OffsetSync(PARTITION, *pair) for pair in pairs]


def plain(start: int, end: int, *ends: Ends) -> TargetFacts:
    return TargetFacts(Offsets(start, end), ends, transactional=False)


@pytest.mark.parametrize("count", [600, pytest.param(60_000, marks=pytest.mark.matrix)])
def test_no_record_is_missed_and_no_more_come_again_than_said(count: int) -> None:
    """From the translated offset on, each record that the group has not read is there; of those read, so many at most."""
    randomness = random.Random(SEED)
    seen: Counter[str] = Counter()
    for _ in range(count):
        mirroring = random_mirroring(randomness)
        read_syncs = list(mirroring.syncs)
        if randomness.random() < 0.3:  # the last have not been written, or are lost with the source
            del read_syncs[len(read_syncs) - randomness.randint(0, min(3, len(read_syncs))) :]
        for _ in range(randomness.choice((0, 0, 0, 20))):
            mirroring.mirror()
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
            if kafka is not None and not mirroring.habits.restart:
                assert translation.offset >= min(kafka, mirroring.end)
                seen["nearer"] += translation.offset > kafka
    assert min(seen[word] for word in ("unknown", "exact", "bounded", "nearer")) > count / 10
    assert isinstance(mirroring, Mirroring)
