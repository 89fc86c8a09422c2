"""Schema ids as serializers put them into records, and what a sample of a topic's records carries. Pure.

Confluent: byte 0 and a 4-byte id before the data, or a header `__key_schema_id` / `__value_schema_id` with byte 1 and
the 16 bytes of a GUID (or byte 0 and 4 bytes). Apicurio: byte 0 and an 8-byte (2.x) or 4-byte id (3.x, or 2.x on
request), or headers such as `apicurio.value.globalId` with 8 bytes. A header comes before what the data begin with, and
a globalId before a contentId, as in their deserializers. All numbers are big-endian.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

Part = Literal["key", "value"]
PARTS: tuple[Part, Part] = ("key", "value")
Form = Literal["id", "8-byte id", "guid", "globalId", "contentId"]
"""Where it was: 4 or 8 bytes before the data, Confluent's header with a GUID, Apicurio's headers."""
MOST_IDS = 20
"""Of one topic's keys or values; data that only begin with a zero byte have as many as there are records."""

_LARGEST = 2**31 - 1  # of Java's int: a registry counts up from 1
_LARGEST_LONG = 2**63 - 1


class SchemaId(NamedTuple):
    """A schema id in a record: a number, or a GUID in its usual form with hyphens."""

    form: Form
    text: str

    def __str__(self) -> str:
        return self.text if self.form == "id" else f"{self.form} {self.text}"


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema by its fingerprint, and where it is registered; its text is not kept.

    `is_deleted`: no subject has it any more except as a deleted version, which readers still get by its id. `missing`:
    a reference that the registry does not have, so that readers cannot use the schema.
    """

    type: str
    fingerprint: str
    subjects: tuple[str, ...] = ()
    is_deleted: bool = False
    missing: str = ""


Headers = Sequence[tuple[str, bytes | None]]


def schema_id_of(part: Part, data: bytes | None, headers: Headers) -> SchemaId | None:
    """Return the schema id that the key or the value of a record seems to carry; None: none."""
    values = {name: value for name, value in headers if value is not None}  # the last of a name counts
    return (
        _id_of_confluent_header(values.get(f"__{part}_schema_id", b""))
        or _id_of_long("globalId", values.get(f"apicurio.{part}.globalId", b""))
        or _id_of_long("contentId", values.get(f"apicurio.{part}.contentId", b""))
        or _id_before_data(data or b"")
    )


def _id_of_confluent_header(value: bytes) -> SchemaId | None:
    if value[:1] == b"\x01" and len(value) >= 17:  # a Protobuf message's indexes may follow
        return SchemaId("guid", str(UUID(bytes=value[1:17])))
    return _id_before_data(value) if len(value) >= 5 else None


def _id_of_long(form: Form, value: bytes) -> SchemaId | None:
    number = int.from_bytes(value, "big") if len(value) == 8 else 0
    return SchemaId(form, str(number)) if 0 < number <= _LARGEST_LONG else None


def _id_before_data(data: bytes) -> SchemaId | None:
    if len(data) < 5 or data[0] != 0:
        return None
    number = int.from_bytes(data[1:5], "big")
    if number == 0:  # no registry gives this id: the first half of a longer one
        return _id_of_long("8-byte id", data[1:9])
    return SchemaId("id", str(number)) if number <= _LARGEST else None


@dataclass(frozen=True)
class TopicSample:
    """What records of a topic carry: how many were read, and by part how many of them have which schema id.

    `further`: records with ids beyond those that are kept. `failure`: why no record was read, "" where some were, or
    there is none.
    """

    topic: str
    records: int = 0
    ids: Mapping[Part, Mapping[SchemaId, int]] = field(default_factory=dict)
    further: int = 0
    failure: str = ""

    def every_id(self) -> Iterable[tuple[Part, SchemaId]]:
        """Yield each id once, with the part that carries it."""
        return ((part, schema_id) for part in PARTS for schema_id in self.ids.get(part, ()))


class SampleOfTopic:
    """Counts the schema ids of a topic's records while they are read; keys, values and headers are not kept."""

    def __init__(self, topic: str) -> None:
        self.topic, self.records, self.further = topic, 0, 0
        self.failure = ""
        self._counts: dict[Part, Counter[SchemaId]] = {"key": Counter(), "value": Counter()}

    def add(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Count one record."""
        self.records += 1
        for part, data in (("key", key), ("value", value)):
            counts = self._counts[part]  # type: ignore[index]
            schema_id = schema_id_of(part, data, headers)  # type: ignore[arg-type]
            if schema_id is None:
                continue
            if schema_id in counts or len(counts) < MOST_IDS:
                counts[schema_id] += 1
            else:
                self.further += 1

    def result(self) -> TopicSample:
        """Return what was counted."""
        ids: dict[Part, Mapping[SchemaId, int]] = {
            part: dict(counts) for part, counts in self._counts.items() if counts
        }
        return TopicSample(self.topic, self.records, ids, self.further, self.failure if not self.records else "")
