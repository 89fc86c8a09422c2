"""Which part of a log is judged, and that nothing which may have been lost, or stands still, is silently equal."""

from __future__ import annotations

import random

import pytest

from mm2mgr.audit.bounds import cut_by_time, judged_until
from mm2mgr.audit.windows import LogWindow, PartitionOrder
from mm2mgr.partitions import Offsets, TopicPartition

T, R = TopicPartition("t", 0), TopicPartition("src.t", 0)
FULL, MIRROR = Offsets(0, 100), Offsets(0, 100)


def order(log: Offsets, mirror: Offsets, judged: Offsets | str) -> PartitionOrder:
    window, reasons = (Offsets(log.start, log.start), (judged,)) if isinstance(judged, str) else (judged, ())
    return PartitionOrder(LogWindow(T, *window), LogWindow(R, *mirror), log, mirror, not_judged=reasons)


@pytest.mark.parametrize(
    ("log", "mirror", "stored", "words"),
    [
        (Offsets(500, 500), Offsets(0, 200), 199, "no record left, its offsets ended at 499; the flow has stored 199"),
        (Offsets(500, 500), Offsets(0, 200), 199, "offsets 200-499 were never mirrored"),
        (Offsets(500, 500), Offsets(0, 500), 499, "no record left"),
        (Offsets(500, 500), Offsets(0, 0), None, "has stored no offset"),
        (Offsets(0, 0), Offsets(0, 205), 199, "created again, or truncated"),
        (Offsets(0, 0), Offsets(0, 205), None, "offsets up to 204: the topic was created again"),
        (Offsets(0, 0), Offsets(205, 205), None, "created again, or others write"),
        (Offsets(50, 90), Offsets(0, 50), 49, "nothing that was mirrored is left"),
        (Offsets(50, 90), Offsets(0, 40), 39, "offsets 40-49 were never mirrored"),
        (Offsets(0, 90), Offsets(0, 40), None, "90 offsets from 0 on may be on their way"),
    ],
)
def test_what_may_have_been_lost_is_not_judged(log: Offsets, mirror: Offsets, stored: int | None, words: str) -> None:
    judged = judged_until(log, mirror, stored, log.end, alone=True)
    assert isinstance(judged, str)
    assert words in judged


def test_a_topic_without_any_record_is_equal() -> None:
    assert judged_until(Offsets(0, 0), Offsets(0, 0), None, 0, alone=True) == Offsets(0, 0)
    assert judged_until(Offsets(0, 0), Offsets(0, 9), None, 0, alone=False) == Offsets(0, 0)


def test_an_open_transaction_ends_what_is_read() -> None:
    assert judged_until(Offsets(0, 70), Offsets(0, 50), 49, 50, alone=True) == Offsets(0, 50)
    assert "that is open" in str(judged_until(Offsets(0, 70), Offsets(0, 50), 49, 0, alone=True))


@pytest.mark.parametrize(
    ("end", "since", "until", "is_level", "words"),
    [
        (50, 50, None, False, "the 50 offsets from 50 on are not mirrored yet: the flow has stored 49"),
        (99, 99, None, False, "the 1 offsets from 99 on are not mirrored yet"),
        (99, -1, None, False, "no record is as late as the window, and the 1 offsets from 99 on"),
        (100, 5, 5, True, "its records from offset 5 on are of the window's end or later"),
        (100, None, 0, True, "its records from offset 0 on"),
        (100, 100, None, True, "of a transaction that is open, or was written after"),
        (99, 99, None, True, ""),
        (100, -1, None, True, ""),
        (100, -1, -1, True, ""),
    ],
)
def test_an_empty_window_is_equal_only_on_a_level_flow(
    end: int, since: int | None, until: int | None, is_level: bool, words: str
) -> None:
    part = cut_by_time(order(FULL, MIRROR, Offsets(0, end)), since, until, is_level=is_level)
    assert part.source.first == part.source.end
    assert bool(part.not_judged) is bool(words)
    assert words in "".join(part.not_judged)


def _first_since(times: list[int], log: Offsets, at: int | None) -> int | None:
    return None if at is None else next((offset for offset in range(*log) if times[offset] >= at), -1)


def test_what_is_equal_has_no_record_in_its_window_that_is_not_on_the_target() -> None:
    """Small logs at random: with retention, markers, late records, times out of order, topics created again."""
    chance, judged, empty = random.Random(11), 0, 0
    for _ in range(40_000):
        end = chance.randrange(9)
        log = Offsets(chance.choice((0, 0, chance.randint(0, end), end)), end)
        times = [chance.randrange(12) for _ in range(end)]
        times = times if chance.random() < 0.4 else sorted(times)
        is_record = [chance.random() < 0.85 for _ in range(end)]
        had = chance.choice((end, chance.randrange(9)))  # what the former topic of the name had
        is_again, mirrored = chance.random() < 0.2, chance.randint(0, end)
        stored = chance.choice((mirrored, had if is_again else mirrored)) - 1
        mirror_end = max(0, (stored + 1 if is_again else mirrored) + chance.choice((0, 0, 1)))
        mirror = Offsets(chance.choice((0, mirror_end)), mirror_end)
        since, until = sorted((chance.randrange(13), chance.randrange(13)))
        bounds = chance.choice(((None, None), (since, None), (None, until), (since, until + 1)))
        state = (log, mirror, stored, times, is_record, bounds, is_again)

        part = order(log, mirror, judged_until(log, mirror, stored if stored >= 0 else None, log.end, alone=True))
        is_level = not any(is_record[part.source.end :])
        if bounds != (None, None):
            offsets = [_first_since(times, log, at) for at in bounds]
            part = cut_by_time(part, *offsets, is_level=is_level)
        if part.not_judged:
            continue
        judged += 1
        window = part.source
        assert window.end <= max(0, stored + 1), state
        if window.first < window.end:  # its records are read and compared
            assert log.start <= window.first, state
            assert not any(
                is_record[offset] and (bounds[0] is None or times[offset] >= bounds[0])
                for offset in range(log.start, window.first)
            ), state
            continue
        empty += 1
        assert (log.start < log.end and is_level) or (stored < 0 and mirror.end == end == 0), state
        low, high = bounds[0] if bounds[0] is not None else -1, bounds[1] if bounds[1] is not None else 99
        assert not any(is_record[offset] and low <= times[offset] < high for offset in range(*log)), state
    assert judged > 5_000
    assert empty > 500
