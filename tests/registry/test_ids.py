"""Schema ids in the bytes of records, as serializers write them, and what only looks like one."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.registry.ids import MOST_IDS, SampleOfTopic, SchemaId, schema_id_of

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")
LONG = (7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("data", "headers", "expected"),
    [
        (b"\x00\x00\x00\x00\x07\x02a", [], SchemaId("id", "7")),
        (b"\x00\x00\x00\x00\x07", [], SchemaId("id", "7")),
        (b"\x00" + LONG + b"\x02a", [], SchemaId("8-byte id", "7")),
        (b"data", [("__value_schema_id", b"\x01" + GUID.bytes)], SchemaId("guid", str(GUID))),
        (b"data", [("__value_schema_id", b"\x01" + GUID.bytes + b"\x00")], SchemaId("guid", str(GUID))),
        (b"data", [("__value_schema_id", b"\x00\x00\x00\x00\x07")], SchemaId("id", "7")),
        (b"data", [("apicurio.value.globalId", LONG)], SchemaId("globalId", "7")),
        (b"data", [("apicurio.value.contentId", LONG)], SchemaId("contentId", "7")),
        (None, [("apicurio.value.contentId", LONG), ("apicurio.value.globalId", LONG)], SchemaId("globalId", "7")),
        # A header comes first, and the last header of a name.
        (b"\x00\x00\x00\x00\x08", [("__value_schema_id", b"\x00\x00\x00\x00\x07")], SchemaId("id", "7")),
        (b"data", [("apicurio.value.globalId", b"x"), ("apicurio.value.globalId", LONG)], SchemaId("globalId", "7")),
        # What carries none.
        (None, [], None),
        (b"", [], None),
        (b"\x00", [], None),
        (b"\x00\x00\x00\x07", [], None),
        (b"\x00\x00\x00\x00\x00", [], None),
        (b"\x00" + bytes(8), [], None),
        (b"\x00\xff\xff\xff\xff rest", [], None),
        (b'{"a": 1}', [], None),
        (b"data", [("__key_schema_id", b"\x01" + GUID.bytes)], None),
        (b"data", [("__value_schema_id", None), ("apicurio.value.globalId", b"\x07")], None),
    ],
)
def test_the_id_of_a_value(
    data: bytes | None, headers: list[tuple[str, bytes | None]], expected: SchemaId | None
) -> None:
    assert schema_id_of("value", data, headers) == expected


def test_a_key_has_headers_of_its_own() -> None:
    headers = [("apicurio.key.globalId", LONG), ("__value_schema_id", b"\x01" + GUID.bytes)]
    assert schema_id_of("key", b"k", headers) == SchemaId("globalId", "7")
    assert schema_id_of("value", b"v", headers) == SchemaId("guid", str(GUID))


@given(st.binary(max_size=24), st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20))))
def test_any_bytes_have_an_id_or_none(data: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    schema_id = schema_id_of("value", data, headers)
    assert schema_id is None or schema_id.form == "guid" or 0 < int(schema_id.text) < 2**63


@given(st.integers(1, 2**31 - 1), st.binary(max_size=20))
def test_a_serializers_id_is_read_back(number: int, data: bytes) -> None:
    assert schema_id_of("value", b"\x00" + number.to_bytes(4, "big") + data, []) == SchemaId("id", str(number))


def test_a_sample_counts_records_and_keeps_no_data() -> None:
    sample = SampleOfTopic("t")
    for value in (b"\x00\x00\x00\x00\x07secret", b"\x00\x00\x00\x00\x07secret", b"plain"):
        sample.add(b"\x00\x00\x00\x00\x09k", value, ())
    result = sample.result()
    assert result.records == 3
    assert result.ids == {"key": {SchemaId("id", "9"): 3}, "value": {SchemaId("id", "7"): 2}}
    assert "secret" not in f"{vars(sample)}{result}"


def test_data_that_only_begin_with_a_zero_byte_do_not_fill_the_sample() -> None:
    sample = SampleOfTopic("t")
    for number in range(1, 1_000):
        sample.add(None, b"\x00" + number.to_bytes(4, "big"), ())
    result = sample.result()
    assert len(result.ids["value"]) == MOST_IDS
    assert result.further == 999 - MOST_IDS
