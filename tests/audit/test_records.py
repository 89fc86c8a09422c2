"""Fingerprints: two records have one hash exactly where the fields that count are equal."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2mgr.audit import records as records_module
from mm2mgr.audit.records import NULL_HASH, Records, fastest_algorithm, key_text, records_of
from mm2mgr.audit.windows import ALL_FIELDS

from .logs import START_MS, FakeMessage, Log, Record

BASE = Record(b"k", b"v", START_MS, (("a", b"1"), ("b", None)))
DISTINCT = [
    BASE,
    replace(BASE, key=None),
    replace(BASE, key=b""),
    replace(BASE, key=b"v", value=b"k"),
    replace(BASE, value=None),
    replace(BASE, value=b""),
    replace(BASE, key=b"kv", value=b""),
    replace(BASE, key=None, value=None),
    replace(BASE, key=b"", value=None),
    replace(BASE, key=None, value=b""),
    replace(BASE, time_ms=START_MS + 1),
    replace(BASE, time_ms=START_MS + 3_600_000),
    replace(BASE, time_ms=-1),
    replace(BASE, headers=()),
    replace(BASE, headers=(("a", b"1"),)),
    replace(BASE, headers=(("b", None), ("a", b"1"))),
    replace(BASE, headers=(("a", b"1"), ("b", b""))),
    replace(BASE, headers=(("a", b"1b"), ("", None))),
    replace(BASE, headers=(("a1", b""), ("b", None))),
    replace(BASE, headers=(("a", b"1"), ("a", b"1"), ("b", None))),
    replace(BASE, headers=(("", b""),)),
    replace(BASE, headers=(("ä", b"1"), ("b", None))),
    replace(BASE, value=b"x" * 5_000_000),
    replace(BASE, value=b"x" * 4_999_999 + b"y"),
    replace(BASE, headers=tuple((f"h{number}", b"%d" % number) for number in range(1_000))),
]
ALGORITHMS = sorted({"blake2b", fastest_algorithm()})


def columns(records: list[Record], counted: tuple[str, ...] = ALL_FIELDS, algorithm: str = "blake2b") -> Records:
    return records_of([FakeMessage(record, row) for row, record in enumerate(records)], counted, algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_records_that_differ_anywhere_have_different_hashes(algorithm):
    assert len(set(columns(DISTINCT, algorithm=algorithm).hash.tolist())) == len(DISTINCT)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_record_has_one_hash_whatever_is_read_with_it(algorithm):
    together = columns(DISTINCT, algorithm=algorithm)
    alone = Records.join([columns([record], algorithm=algorithm) for record in DISTINCT])
    for name in ("hash", "key_hash", "value_hash", "headers_hash", "time_ms"):
        assert getattr(together, name).tolist() == getattr(alone, name).tolist()


field_values = {
    "key": st.one_of(st.none(), st.binary(max_size=3)),
    "value": st.one_of(st.none(), st.binary(max_size=3)),
    "time_ms": st.integers(0, 3),
    "headers": st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.binary(max_size=2))), max_size=3).map(
        tuple
    ),
}


@given(st.lists(st.builds(Record, **field_values), min_size=2, max_size=8), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_hashes_are_equal_exactly_where_the_fields_that_count_are(records, size):
    for counted in combinations(ALL_FIELDS, size):
        names = ["time_ms" if name == "timestamp" else name for name in counted]
        hashes = columns(records, counted).hash.tolist()
        for (first, a), (second, b) in combinations(zip(records, hashes, strict=True), 2):
            assert (a == b) == all(getattr(first, name) == getattr(second, name) for name in names)


def test_other_fields_are_chosen_without_reading_again():
    read = columns(DISTINCT)
    for size in range(5):
        for counted in combinations(ALL_FIELDS, size):
            assert read.hashed_over(counted).hash.tolist() == columns(DISTINCT, counted).hash.tolist()


def test_hashes_stay_what_they_are_between_processes_and_versions():
    read = columns([Record(b"k", None, 1_700_000_000_000), Record(None, b"", 0, (("a", b"1"), ("é", None)))])
    headers = b"[\2\0\0\0(\2\0\0\0u\1\0\0\0as\1\0\0\0001(\2\0\0\0u\2\0\0\0\xc3\xa9N"
    key, value, both = (
        int.from_bytes(hashlib.blake2b(part, digest_size=8).digest(), "big") for part in (b"k", b"", headers)
    )
    null = int(NULL_HASH)
    assert read.key_hash.tolist() == [key, null]
    assert read.value_hash.tolist() == [null, value]
    assert read.headers_hash.tolist() == [null, both]
    assert read.hash.tolist() == [8080454502077492030, 14722829556406929480]


def test_the_key_is_told_as_16_hexadecimal_digits():
    read = columns([BASE, replace(BASE, key=None)])
    key = hashlib.blake2b(b"k", digest_size=8).hexdigest()
    assert [key_text(number) for number in read.key_hash.tolist()] == [key, None]


def test_columns_come_back_from_arrow():
    log = Log(tuple(DISTINCT[:9]), tuple(range(0, 18, 2))).columns()
    back = Records.from_arrow(log.to_arrow())
    assert back.to_arrow().equals(log.to_arrow())
    assert back.hash.dtype == np.uint64
    assert len(Records.join([])) == 0


def test_without_xxhash_python_s_own_hash_is_taken(monkeypatch):
    monkeypatch.setattr(records_module.importlib, "util", SimpleNamespace(find_spec=lambda name: None))
    assert fastest_algorithm() == "blake2b"
