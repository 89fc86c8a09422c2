"""The journal of a failover: what a run has done, for the run that goes on after it and for the way back. Pure.

It is kept as texts by key in the history topic on the Kafka cluster of the target: a head, and chunks of at most
`CHUNK_BYTES` with ends of logs and offsets of groups. The head is written last and names its chunks by their digest. It
is no authority on what is true of clusters: each stage is judged by what they show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.group_offsets import OffsetChange, Written
from mm2mgr.partitions import TopicPartition

VERSION = 1
JOURNAL = "failover/"
"""How the keys of journals begin."""
CHUNK_BYTES = 400_000
Outcome = Literal["", "abandoned", "done"]
Mode = Literal["planned", "disaster", "cutoff"]
Ends = Mapping[TopicPartition, int]
_REMEDY = (
    "look at the connectors and groups by hand (`mm2mgr failover check`), then `mm2mgr failover run PAIR --forget` "
    "deletes the journal"
)


@dataclass(frozen=True)
class FailoverJournal:
    """One failover of a pair `source->target`, by a tree's owner. Times are in seconds since 1970.

    `reached`: stages by name, with when each was done last. `stopped`: the state that each connector
    (`connect/connector`) was in before this failover stopped it. `target_ends`: the ends of the target's logs of
    mirrored topics, by the names there, once nothing was mirrored any more. `source_stored`: the offsets of the source
    that are mirrored next, as stored then; `source_ends`: the ends of its logs then, where they could be read.
    `groups`: the offsets that each group had in partitions of the target, and those that it was given.
    """

    id: str
    pair: str
    owner: str
    mode: Mode
    began_at: float
    by: str
    reached: Mapping[str, float] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    target_ends: Ends = field(default_factory=dict)
    source_stored: Ends = field(default_factory=dict)
    source_ends: Ends = field(default_factory=dict)
    groups: Mapping[str, Written] = field(default_factory=dict)
    outcome: Outcome = ""

    json_keys = "id pair mode began_at by reached stopped outcome groups=group_count partitions=partition_count"

    @property
    def group_count(self) -> int:
        changed = (changes.values() for changes in self.groups.values())
        return sum(any(change.before != change.after for change in changes) for changes in changed)

    @property
    def partition_count(self) -> int:
        return len(self.target_ends)

    @property
    def is_open(self) -> bool:
        """Whether it is neither done nor abandoned."""
        return self.outcome == ""

    def with_stage(self, name: str, at: float) -> FailoverJournal:
        """Return it with a stage done."""
        return replace(self, reached={**self.reached, name: at})

    def with_groups(self, changes: Mapping[str, Written]) -> FailoverJournal:
        """Return it with offsets that groups are given; what a group had before its first change stays."""
        groups = dict(self.groups)
        for group, written in changes.items():
            before = groups.get(group, {})
            groups[group] = {
                **before,
                **{
                    partition: OffsetChange(before[partition].before, change.after) if partition in before else change
                    for partition, change in written.items()
                },
            }
        return replace(self, groups=groups)


def key_of(owner: str, pair: str) -> str:
    """Return the key of a journal's head; those of its chunks are `KEY/DIGEST`, so that none replaces another one's."""
    return f"{JOURNAL}{owner}/{pair}"


# --- to text ----------------------------------------------------------------------------------------------------------


def journal_texts(journal: FailoverJournal) -> dict[str, str]:
    """Return the texts to write, by key, in the order in which they are to be written: the head comes last."""
    key = key_of(journal.owner, journal.pair)
    chunks = list(_chunks(journal))
    head = {
        "version": VERSION,
        "id": journal.id,
        "pair": journal.pair,
        "owner": journal.owner,
        "mode": journal.mode,
        "began_at": journal.began_at,
        "by": journal.by,
        "reached": dict(journal.reached),
        "stopped": dict(journal.stopped),
        "outcome": journal.outcome,
        "chunks": [_digest(chunk) for chunk in chunks],
    }
    texts = {f"{key}/{_digest(chunk)}": chunk for chunk in chunks}
    return {**texts, key: json.dumps(head)}


def _chunks(journal: FailoverJournal) -> Iterator[str]:
    chunk: list[str] = []
    size = 0
    for row in _rows(journal):
        text = json.dumps(row, separators=(",", ":"))
        if chunk and size + len(text) > CHUNK_BYTES:
            yield f"[{','.join(chunk)}]"
            chunk, size = [], 0
        chunk.append(text)
        size += len(text) + 1
    if chunk:
        yield f"[{','.join(chunk)}]"


def _rows(journal: FailoverJournal) -> Iterator[list[object]]:
    """Yield a row for each topic of a map, which is small enough for a chunk, with values by partition."""
    for name in ("target_ends", "source_stored", "source_ends"):
        for topic, numbers in _by_topic(getattr(journal, name)).items():
            yield [name, topic, numbers]
    for group, written in journal.groups.items():
        for topic, changes in _by_topic(written).items():
            yield ["groups", group, topic, changes]


def _by_topic(values: Mapping[TopicPartition, object]) -> dict[str, list[object]]:
    by_topic: dict[str, list[object]] = {}
    for partition, value in sorted(values.items(), key=lambda item: item[0]):
        shown = list(value) if isinstance(value, OffsetChange) else [value]
        by_topic.setdefault(partition.topic, []).append([partition.partition, *shown])
    return by_topic


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=12).hexdigest()


# --- from text --------------------------------------------------------------------------------------------------------


def parse_journal(texts: Mapping[str, str], owner: str, pair: str) -> FailoverJournal | None:
    """Read the journal of a pair from the texts of the history topic; None where there is none.

    Mm2mgrError where it is not whole or of another version: nothing may go on then as if there was none.
    """
    key = key_of(owner, pair)
    if key not in texts:
        return None
    head = _read(texts[key], key)
    if not isinstance(head, dict) or head.get("version") != VERSION:
        version = head.get("version") if isinstance(head, dict) else None
        raise Mm2mgrError(
            f"the journal of the failover of {pair} (key {key}) is of version {version!r}; this mm2mgr reads {VERSION}",
            hint=f"go on with the mm2mgr that wrote it, or {_REMEDY}",
        )
    rows: list[Any] = []
    try:
        for digest in head["chunks"]:
            chunk = texts.get(f"{key}/{digest}", "")
            if _digest(chunk) != digest:
                raise _unreadable(key, f"chunk {digest} is missing, or was altered")
            rows += json.loads(chunk)
        journal = _journal_of(head, rows)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _unreadable(key, f"{type(error).__name__}: {error}") from error
    if (journal.pair, journal.owner) != (pair, owner):
        raise _unreadable(key, "it names another pair or owner")
    return journal


def _read(text: str, key: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(key, str(error)) from error


def _unreadable(key: str, reason: str) -> Mm2mgrError:
    return Mm2mgrError(f"the journal of a failover (key {key}) cannot be read: {reason}", hint=_REMEDY)


def _journal_of(head: Mapping[str, Any], rows: Iterable[Any]) -> FailoverJournal:
    maps: dict[str, dict[TopicPartition, int]] = {"target_ends": {}, "source_stored": {}, "source_ends": {}}
    groups: dict[str, dict[TopicPartition, OffsetChange]] = {}
    for row in rows:
        if row[0] == "groups":
            _, group, topic, changes = row
            written = groups.setdefault(_word(group), {})
            for number, before, after in changes:
                written[_partition(topic, number)] = OffsetChange(
                    None if before is None else _offset(before), _offset(after)
                )
        else:
            name, topic, numbers = row
            for number, offset in numbers:
                maps[name][_partition(topic, number)] = _offset(offset)
    mode, outcome = head["mode"], head["outcome"]
    if mode not in get_args(Mode) or outcome not in get_args(Outcome):
        raise ValueError(f"unknown mode {mode!r} or outcome {outcome!r}")
    return FailoverJournal(
        _word(head["id"]),
        _word(head["pair"]),
        _word(head["owner"]),
        mode,
        float(head["began_at"]),
        _word(head["by"]),
        {_word(name): float(at) for name, at in head["reached"].items()},
        {_word(name): _word(state) for name, state in head["stopped"].items()},
        maps["target_ends"],
        maps["source_stored"],
        maps["source_ends"],
        groups,
        outcome,
    )


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is no offset")
    return value


def _partition(topic: object, number: object) -> TopicPartition:
    return TopicPartition(_word(topic), _offset(number))


def stale_keys(texts: Mapping[str, str], journal: FailoverJournal) -> list[str]:
    """Return the keys of chunks that earlier journals of the pair left, to be deleted once the head is written."""
    start, current = f"{key_of(journal.owner, journal.pair)}/", journal_texts(journal)
    return [name for name in texts if name.startswith(start) and name not in current]
