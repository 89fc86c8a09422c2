"""Logs that differ on purpose: records of all kinds, a mirror of them with injected faults, and what an audit must say of each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mm2mgr.audit.report import DifferenceKind
from tests.live.seen import Message

Fault = tuple[DifferenceKind, int | None, int | None, tuple[str, ...]]
"""Kind, source offset, target offset, altered fields."""
_APART = 12  # records between two faults, so that each is told by itself
_START_MS = 1_700_000_000_000


def records(chance: random.Random, count: int, partition: int = 0, value_bytes: int = 40) -> list[Message]:
    """Return different records: tombstones, null keys, empty values, headers repeated and null, times out of order."""

    def one(number: int) -> Message:
        kind = chance.random()
        key = None if kind < 0.1 else f"key-{chance.randrange(count)}".encode()
        value: bytes | None = f"{partition}-{number}-".encode() + chance.randbytes(chance.randrange(value_bytes))
        if kind > 0.97:
            value = None if key else b""
        headers: list[tuple[str, bytes | None]] = []
        if kind > 0.5:
            headers = [("a", chance.choice([None, b"", b"x"])) for _ in range(chance.randrange(4))]
        return Message(partition, key, value, tuple(headers), _START_MS + 10 * number + chance.randrange(200))

    return [one(number) for number in range(count)]


@dataclass(frozen=True)
class Mirror:
    """A target's log and what differs in it."""

    log: list[Message]
    faults: list[Fault]


def with_faults(chance: random.Random, source: Sequence[Message], count: int) -> Mirror:
    """Mirror records with so many faults of all kinds, far enough from each other."""
    places = range(_APART, len(source) - 2 * _APART, 2 * _APART)
    chosen = set(chance.sample(places, count))
    log: list[Message] = []
    faults: list[Fault] = []
    moved: list[tuple[int, Message, int]] = []  # target length at which it is written, record, source offset
    again: list[tuple[int, Message, int]] = []
    for offset, record in enumerate(source):
        for waiting, kind in ((moved, DifferenceKind.REORDERED), (again, DifferenceKind.DUPLICATED)):
            while waiting and waiting[0][0] <= offset:
                _, late, of = waiting.pop(0)
                faults.append((kind, of, len(log), ()))
                log.append(late)
        if offset not in chosen:
            log.append(record)
            continue
        kind = chance.choice(list(DifferenceKind))
        if kind is DifferenceKind.MISSING:
            faults.append((kind, offset, None, ()))
        elif kind is DifferenceKind.DUPLICATED:
            log.append(record)
            again.append((offset + chance.randrange(1, 4), record, offset))
        elif kind is DifferenceKind.REORDERED:
            moved.append((offset + chance.randrange(3, 8), record, offset))
        elif kind is DifferenceKind.EXTRA:
            log.append(record)
            faults.append((kind, None, len(log), ()))
            log.append(replace(record, key=b"nobody's", value=chance.randbytes(12), timestamp_ms=_START_MS - offset))
        else:
            changed, fields = altered(chance, record)
            faults.append((kind, offset, len(log), fields))
            log.append(changed)
    return Mirror(log, faults)


def altered(chance: random.Random, record: Message) -> tuple[Message, tuple[str, ...]]:
    """Return a record with one field altered, as subtly as it gets."""
    fields = ["value", "timestamp", "headers"] + ["key"] * (record.key is not None)
    field = chance.choice(fields)
    if field == "key":
        return replace(record, key=(record.key or b"") + b"\0"), (field,)
    if field == "value":
        return replace(record, value=b"" if record.value is None else record.value + b"\0"), (field,)
    if field == "timestamp":
        return replace(record, timestamp_ms=record.timestamp_ms + 3_600_000), (field,)
    return replace(record, headers=(*record.headers, ("a", None))), (field,)


def told(differences: Iterator[object] | Sequence[object]) -> list[Fault]:
    """Return differences of a report in the words of faults."""
    return [(d.kind, d.source_offset, d.target_offset, d.fields) for d in differences]  # type: ignore[attr-defined]


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda one: (one[1] is None, one[1] or 0, one[2] or 0))
