"""Records as columns: offset, timestamp, and 64-bit hashes of the whole and of its parts.

Two records are the same when the fields that count are the same: a null key is not an empty one, headers count in
their order, with null values and repeated names. Each part has its own hash, and the hash of the record is mixed from
those of the fields that count, so that other fields can be chosen without reading again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mm2mgr.audit.windows import ALL_FIELDS

SLOWEST_ALGORITHM = "blake2b"
"""Needs no package."""
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
"""The hash of a null key, of a null value and of no headers at all; that of real bytes with a chance of 1 in 2^64."""

RECORD_SCHEMA = pa.schema(
    [("offset", pa.int64()), ("time_ms", pa.int64())]
    + [(name, pa.uint64()) for name in ("hash", "key_hash", "value_hash", "headers_hash")]
)


def columns_in(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> list[Any]:
    """Return the columns of a schema as arrays; what it has as uint64 may be signed: Spark knows no other numbers."""
    arrays = (table.column(name).to_numpy(zero_copy_only=False) for name in schema.names)
    pairs = zip(arrays, schema.types, strict=True)
    return [array.view(np.uint64) if kind == pa.uint64() else array for array, kind in pairs]


def signed_columns(value: object, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of a schema from records or blocks, uint64 as the signed numbers that Spark knows."""
    arrays = (getattr(value, name) for name in schema.names)
    return [pa.array(array.view(np.int64) if array.dtype == np.uint64 else array) for array in arrays]


class Message(Protocol):
    """What is read of a confluent_kafka.Message."""

    def offset(self) -> Any: ...
    def timestamp(self) -> Any: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


@dataclass(frozen=True)
class Records:
    """Records of one log in the order of their offsets, which need not be contiguous.

    `time_ms` is as the log has it, also where the timestamp does not count in `hash`. The dtypes: int64 for the first
    two, uint64 for hashes.
    """

    offset: Ints
    time_ms: Ints
    hash: Hashes
    key_hash: Hashes
    value_hash: Hashes
    headers_hash: Hashes

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, rows: npt.NDArray[Any] | slice) -> Records:
        """Return some of the records, by numbers, flags or a slice."""
        return Records(*(getattr(self, column.name)[rows] for column in fields(self)))

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns of RECORD_SCHEMA."""
        return pa.RecordBatch.from_arrays(
            [pa.array(getattr(self, name)) for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA
        )

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> Records:
        """Read the columns of RECORD_SCHEMA, hashes also as signed numbers; others may be there."""
        return cls(*columns_in(table, RECORD_SCHEMA))

    @classmethod
    def join(cls, parts: Sequence[Records]) -> Records:
        """Return all records of consecutive parts."""
        if not parts:
            return cls.from_arrow(RECORD_SCHEMA.empty_table())
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))

    def hashed_over(self, counted: Sequence[str]) -> Records:
        """Return the same records with `hash` over other fields of key, value, timestamp and headers."""
        hashes = hash_of_parts(self.key_hash, self.value_hash, self.time_ms, self.headers_hash, counted)
        return Records(self.offset, self.time_ms, hashes, self.key_hash, self.value_hash, self.headers_hash)


def fastest_algorithm() -> str:
    """Return "xxh3" where the package xxhash is installed, else "blake2b" of Python, ten times slower per call.

    Both sides and all processes of an audit need the same one: choose it once and hand it to each reader.
    """
    return "xxh3" if importlib.util.find_spec("xxhash") else SLOWEST_ALGORITHM


def records_of(
    messages: Sequence[Message], counted: Sequence[str] = ALL_FIELDS, algorithm: str = SLOWEST_ALGORITHM
) -> Records:
    """Turn messages without an error, in the order of the log, into columns; `counted` are the fields that count.

    The algorithm must be installed: ModuleNotFoundError on an executor without xxhash.
    """
    digest = _digest_of(algorithm)
    count = len(messages)
    headers = [message.headers() for message in messages]
    key_hash = _hashes([message.key() for message in messages], digest)
    value_hash = _hashes([message.value() for message in messages], digest)
    if any(headers):
        # Format 2 of marshal has no references: equal lists are equal bytes, with types and lengths in front.
        headers_hash = _hashes([marshal.dumps(listed, 2) if listed else None for listed in headers], digest)
    else:
        headers_hash = np.full(count, NULL_HASH, np.uint64)
    time_ms = np.fromiter([message.timestamp()[1] for message in messages], np.int64, count)
    return Records(
        offset=np.fromiter([message.offset() for message in messages], np.int64, count),
        time_ms=time_ms,
        hash=hash_of_parts(key_hash, value_hash, time_ms, headers_hash, counted),
        key_hash=key_hash,
        value_hash=value_hash,
        headers_hash=headers_hash,
    )


def hash_of_parts(
    key_hash: Hashes, value_hash: Hashes, time_ms: Ints, headers_hash: Hashes, counted: Sequence[str]
) -> Hashes:
    """Mix the parts that count to one hash, always in the same order."""
    parts = {"key": key_hash, "value": value_hash, "timestamp": time_ms.view(np.uint64), "headers": headers_hash}
    hashes = np.full(len(key_hash), NULL_HASH, np.uint64)
    for name in ALL_FIELDS:
        if name in counted:
            hashes = mix(hashes + parts[name])
    return hashes


def hash_of_keys(key_hash: Hashes) -> Hashes:
    """Return the hashes of records of which only the key counts."""
    return mix(NULL_HASH + key_hash)


def mix(numbers: Hashes) -> Hashes:
    """Return a 64-bit number for each, so that close numbers get far apart (the finalizer of splitmix64)."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def key_text(key_hash: int) -> str | None:
    """Return a key's hash as 16 hexadecimal digits, None for a null key."""
    return None if key_hash == int(NULL_HASH) else f"{key_hash:016x}"


def _hashes(parts: list[bytes | None], digest: Callable[[bytes], bytes]) -> Hashes:
    """Return the hash of each part; xxh3's bytes are big-endian."""
    if None in parts:
        null = int(NULL_HASH).to_bytes(8, "big")
        joined = b"".join([null if part is None else digest(part) for part in parts])
    else:
        joined = b"".join(map(digest, parts))  # type: ignore[arg-type]
    return np.frombuffer(joined, ">u8").astype(np.uint64)


def _digest_of(algorithm: str) -> Callable[[bytes], bytes]:
    if algorithm == "xxh3":
        from xxhash import xxh3_64_digest

        return xxh3_64_digest
    return lambda part: hashlib.blake2b(part, digest_size=8).digest()
