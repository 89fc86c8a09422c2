"""Settings of Kafka's transformations, predicates and converters: what they refuse, each beside what they take."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mm2mgr.lint.findings import Hit
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.truth.keys import load
from tests.lint import made

TRANSFORMS = "org.apache.kafka.connect.transforms."
JSON = "org.apache.kafka.connect.json.JsonConverter"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
REFUSED, FAILED = "Connect refuses the config", "every task is FAILED when it starts"


def hits(changes: Mapping[str, str], version: str = "4.3.1") -> list[Hit]:
    return made.hits("plugin-settings", made.source(changes, worker=WorkerFacts(version=version)))


def transformation(type_: str, **settings: str) -> dict[str, str]:
    own = {f"transforms.t.{name.replace('__', '.')}": value for name, value in settings.items()}
    return {"transforms": "t", "transforms.t.type": TRANSFORMS + type_, **own}


def predicate(type_: str, **settings: str) -> dict[str, str]:
    own = {f"predicates.p.{name}": value for name, value in settings.items()}
    return {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}predicates.{type_}", **own}


@pytest.mark.parametrize(
    ("type_", "wrong", "right", "effect"),
    [
        ("Cast$Value", {}, {"spec": "int8"}, REFUSED),
        ("Cast$Value", {"spec": ""}, {"spec": "a:INT8 , b:string"}, REFUSED),
        ("Cast$Value", {"spec": "a:bytes"}, {"spec": "a:boolean"}, REFUSED),
        ("Cast$Key", {"spec": "int8,a:int8"}, {"spec": "int8:int8,a:int8"}, REFUSED),
        ("Cast$Key", {"spec": "a:b:int8"}, {"spec": "${env:SPEC}"}, REFUSED),
        ("DropHeaders", {"headers": ""}, {"headers": "a,b"}, REFUSED),
        ("ExtractField$Key", {}, {"field": ""}, REFUSED),
        ("ExtractField$Key", {"field": "a", "field__syntax__version": "V3"}, {"field": "`a"}, REFUSED),
        (
            "ExtractField$Key",
            {"field": "a.`b", "field__syntax__version": "v2"},
            {"field": "a.`b.c`.d", "field__syntax__version": "V2"},
            FAILED,
        ),
        ("HeaderFrom$Value", {"fields": "a", "headers": "h", "operation": "MOVE"}, {"fields": "a", "headers": "h", "operation": "move"}, REFUSED),
        ("HeaderFrom$Value", {"fields": "a,b", "headers": "h", "operation": "copy"}, {"fields": "a,b", "headers": "h,i", "operation": "copy"}, FAILED),
        ("HoistField$Value", {}, {"field": "a"}, REFUSED),
        ("InsertField$Value", {}, {"offset__field": "o?"}, FAILED),
        ("InsertField$Value", {"static__field": "a"}, {"static__field": "a", "static__value": "b"}, FAILED),
        ("InsertHeader", {"header": "h"}, {"header": "h", "value__literal": ""}, REFUSED),
        ("MaskField$Value", {"fields": "a", "replacement": ""}, {"fields": "a"}, REFUSED),
        ("RegexRouter", {"regex": "(a", "replacement": "b"}, {"regex": "(a)", "replacement": "$1"}, REFUSED),
        ("ReplaceField$Value", {"renames": "a"}, {"renames": "a:b"}, REFUSED),
        ("SetSchemaMetadata$Value", {}, {"schema__name": "s"}, FAILED),
        ("SetSchemaMetadata$Value", {"schema__version": "x"}, {"schema__version": "1"}, REFUSED),
        ("TimestampConverter$Value", {"target__type": "timestamp"}, {"target__type": "Timestamp"}, REFUSED),
        ("TimestampConverter$Value", {"target__type": "string"}, {"target__type": "string", "format": "yyyy"}, FAILED),
        ("TimestampConverter$Value", {"target__type": "unix", "format": "yyyy'T"}, {"target__type": "unix"}, FAILED),
        ("TimestampRouter", {"timestamp__format": "yyyyT"}, {"timestamp__format": "yyyy'T'"}, "the first record fails the task"),
        ("ValueToKey", {"fields": ""}, {"fields": "a"}, REFUSED),
    ],
)  # fmt: skip
def test_transformations(type_: str, wrong: dict[str, str], right: dict[str, str], effect: str) -> None:
    (hit,) = hits(transformation(type_, **wrong))
    assert hit.message.endswith(effect)
    assert not hits(transformation(type_, **right))


def test_predicates() -> None:
    assert hits(predicate("TopicNameMatches"))[0].message.endswith(f"needs predicates.p.pattern: {REFUSED}")
    assert hits(predicate("TopicNameMatches", pattern="["))
    assert not hits(predicate("TopicNameMatches", pattern="[a]"))
    assert hits(predicate("HasHeaderKey", name=""))
    assert not hits(predicate("HasHeaderKey", name="h") | predicate("RecordIsTombstone"))


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        (JSON, {"schemas.enable": "yes"}, {"schemas.enable": "TRUE"}),
        (JSON, {"decimal.format": "x"}, {"decimal.format": "numeric"}),
        (JSON, {"schema.content": "{"}, {"schema.content": ""}),
        (JSON, {"schema.content": '{"type": "struct"}'}, {"schema.content": "null"}),
        (JSON, {"schema.content": '{"type": "array"}'}, {"schema.content": '{"type": "array", "items": {"type": "int8"}}'}),
        (TEXT, {"converter.encoding": "UTF_9"}, {"converter.encoding": "utf8"}),
    ],
)  # fmt: skip
def test_converters(name: str, wrong: dict[str, str], right: dict[str, str]) -> None:
    def of(settings: dict[str, str]) -> dict[str, str]:
        return {"value.converter": name, **{f"value.converter.{key}": value for key, value in settings.items()}}

    assert len(hits(of(wrong))) == 1
    assert not hits(of(right))


def test_lines_differ() -> None:
    wrong = {"value.converter": JSON, "value.converter.schemas.enable": "yes"}
    assert [hits(wrong, version)[0].message.rpartition(": ")[2] for version in ("3.7.2", "3.8.1")] == [FAILED, REFUSED]
    encoding = {"value.converter": TEXT, "value.converter.converter.encoding": "x"}
    assert not hits(encoding, "3.7.2")
    assert not hits({"value.converter": JSON, "value.converter.schema.content": "{"}, "4.1.2")  # it exists since 4.2
    target = transformation("TimestampConverter$Value", target__type="x")
    assert [hits(target, version)[0].message.rpartition(": ")[2] for version in ("2.7.2", "4.3.1")] == [FAILED, REFUSED]


def test_what_is_not_listed_or_not_kafkas_is_not_judged() -> None:
    cast = transformation("Cast$Value")
    assert not hits(cast | {"transforms": "u", "transforms.u.type": "com.acme.Sieve"})
    assert not hits({"value.converter": "com.acme.Converter", "value.converter.schemas.enable": "yes"})


def test_each_transformation_of_each_line_has_its_settings() -> None:
    known = load()
    none = {"Filter"}
    for line in known.lines:
        for name in known.classes("transformation", line):
            assert known.settings(name, line) or name.rpartition(".")[2] in none, (line, name)
