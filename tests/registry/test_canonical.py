"""When two schema texts are the same schema."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.registry.canonical import fingerprint

RECORD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"c","type":"string"}]}'
PROTO = 'syntax = "proto3"; package shop; message P { string a = 1; }'


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("AVRO", RECORD, json.dumps(json.loads(RECORD), indent=2)),
        (
            "AVRO",
            RECORD,
            '{"name":"Order","fields":[{"type":"long","name":"id"},{"type":"string","name":"c"}],"type":"record"}',
        ),
        ("AVRO", '"string"', '{"type":"string"}'),
        ("AVRO", RECORD, RECORD.replace('"string"', '{"type": "string"}')),
        (
            "JSON",
            '{"type":"object","properties":{"a":{},"b":{}}}',
            '{ "properties" : {"b":{}, "a":{}},\n"type":"object"}',
        ),
        ("PROTOBUF", PROTO, PROTO.replace(" ", "\n  ") + "\n"),
        ("PROTOBUF", PROTO, "// made by a tool\n" + PROTO.replace("message", "/* what it is; */ message")),
        ("PROTOBUF", 'option a = "x//y";', 'option a="x//y";'),
    ],
)
def test_the_same_schema(kind: str, one: str, other: str) -> None:
    assert fingerprint(kind, one, {}) == fingerprint(kind, other, {})
    assert fingerprint(kind, one, {}) == fingerprint(
        "", other, {}
    )  # of a deleted one, a registry may not tell the type


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("AVRO", RECORD, RECORD.replace("long", "int")),
        ("AVRO", RECORD, RECORD.replace("Order", "Orders")),
        ("AVRO", '{"type":"enum","name":"E","symbols":["A","B"]}', '{"type":"enum","name":"E","symbols":["B","A"]}'),
        ("AVRO", '{"name":"a","type":"string","default":"x"}', '{"name":"a","type":"string","default":"y"}'),
        ("AVRO", '{"name":"a","default":{"type":"int"}}', '{"name":"a","default":"int"}'),
        ("JSON", '{"type":"object"}', '{"type":"array"}'),
        ("PROTOBUF", PROTO, PROTO.replace("a = 1", "a = 2")),
        ("PROTOBUF", 'option a = "x//y";', 'option a = "x//z";'),
        ("PROTOBUF", "message AB {}", "message A B {}"),
        ("AVRO", "not JSON", "not  JSON"),
    ],
)
def test_another_schema(kind: str, one: str, other: str) -> None:
    assert fingerprint(kind, one, {}) != fingerprint(kind, other, {})


def test_what_a_schema_refers_to_is_part_of_it() -> None:
    assert fingerprint("AVRO", RECORD, {"shop.C": "a"}) != fingerprint("AVRO", RECORD, {"shop.C": "b"})
    assert fingerprint("AVRO", RECORD, {"a": "1", "b": "2"}) == fingerprint("AVRO", RECORD, {"b": "2", "a": "1"})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(JSON_VALUES, st.sampled_from([None, 1, 3]))
def test_white_space_and_the_order_of_keys_are_no_difference(value: object, indent: int | None) -> None:
    turned = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert fingerprint("JSON", json.dumps(value), {}) == fingerprint("JSON", json.dumps(turned, indent=indent), {})


@given(st.text(max_size=200))
def test_any_text_has_a_fingerprint(text: str) -> None:
    for kind in ("AVRO", "PROTOBUF", "XML", ""):
        assert len(fingerprint(kind, text, {})) == 12


def test_a_schema_nested_without_end_has_one_too() -> None:
    assert len(fingerprint("AVRO", "[" * 100_000, {})) == 12
