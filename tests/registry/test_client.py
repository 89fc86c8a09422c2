"""Schemas by id over both APIs, and what a registry says when it has none, refuses, or is another one."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import cycle
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connect.errors import Answer
from mm2mgr.connect.target import BasicAuth, ConnectTarget
from mm2mgr.live.endpoints import REGISTRY
from mm2mgr.registry.client import CannotResolve, RegistryClient, RegistryError
from mm2mgr.registry.ids import RegisteredSchema, SchemaId
from tests.examples import draw_examples

from .fake import FakeRegistry, Schema, serving

CURRENCY = Schema(1, "Currency", '{"type":"enum","name":"Currency","symbols":["EUR"]}', global_id=11)
ORDER = Schema(
    2, "app.orders-value", '{"type":"record","name":"Order","fields":[]}', references=[("shop.Currency", "Currency", 1)],
    global_id=12, guid="01234567-89ab-cdef-0123-456789abcdef",
)  # fmt: skip
GUID = SchemaId("guid", ORDER.guid)


def look_up(
    registry: FakeRegistry,
    schema_id: SchemaId,
    api: Literal["confluent", "apicurio"] = "confluent",
    path: str = "",
    *,
    ids: Literal["content", "global"] | None = None,
    auth: BasicAuth | None = None,
) -> RegisteredSchema | None:
    async def run(url: str) -> RegisteredSchema | None:
        target = ConnectTarget("dc1", (url + path,), auth, noun=REGISTRY)
        async with RegistryClient(target, api, ids, deadline_seconds=5) as client:
            return await client.schema(schema_id)

    with serving(registry) as url:
        return asyncio.run(run(url))


V2, V3 = "/apis/registry/v2", "/apis/registry/v3"
ID = SchemaId("id", "2")


def test_a_schema_has_its_type_its_subject_and_what_it_refers_to() -> None:
    registry = FakeRegistry([CURRENCY, ORDER])
    found = look_up(registry, ID)
    assert found is not None
    assert (found.type, found.subjects, found.is_deleted, found.missing) == ("AVRO", ("app.orders-value",), False, "")
    other = FakeRegistry([Schema(1, "Currency", CURRENCY.text.replace("EUR", "USD")), ORDER])
    assert look_up(other, ID) != found


def test_both_apis_give_one_fingerprint_and_need_not_the_same_subjects() -> None:
    moved = FakeRegistry([
        Schema(5, "Money", CURRENCY.text.replace(":", ": "), version=3, global_id=5),
        Schema(2, "orders", ORDER.text, references=[("shop.Currency", "Money", 3)], global_id=2),
    ])  # fmt: skip
    found = [look_up(FakeRegistry([CURRENCY, ORDER]), ID), look_up(moved, ID)]
    found += [look_up(moved, ID, "apicurio", path) for path in (V2, V3)]
    assert len({schema.fingerprint for schema in found if schema}) == 1
    assert [schema.subjects for schema in found if schema] == [("app.orders-value",), *[("orders",)] * 3]


@pytest.mark.parametrize("path", [V2, V3])
@pytest.mark.parametrize(
    ("schema_id", "ids", "subject"),
    [
        (SchemaId("id", "2"), None, "app.orders-value"),
        (SchemaId("id", "12"), "global", "app.orders-value"),
        (SchemaId("8-byte id", "12"), None, "app.orders-value"),
        (SchemaId("8-byte id", "2"), "content", "app.orders-value"),
        (SchemaId("globalId", "11"), "content", "Currency"),
        (SchemaId("contentId", "1"), "global", "Currency"),
    ],
)
def test_apicurios_ids_are_of_content_or_global(
    path: str, schema_id: SchemaId, ids: Literal["content", "global"] | None, subject: str
) -> None:
    found = look_up(FakeRegistry([CURRENCY, ORDER]), schema_id, "apicurio", path, ids=ids)
    assert found is not None
    assert found.subjects == (subject,)


def test_a_guid_is_looked_up_and_its_subject_too() -> None:
    found = look_up(FakeRegistry([CURRENCY, ORDER]), GUID)
    assert found == look_up(FakeRegistry([CURRENCY, ORDER]), ID)
    with pytest.raises(CannotResolve, match="by GUID"):
        look_up(FakeRegistry([CURRENCY]), GUID)  # a registry that has no such endpoint
    with pytest.raises(CannotResolve, match="GUIDs"):
        look_up(FakeRegistry([ORDER]), GUID, "apicurio", V3)
    with pytest.raises(CannotResolve, match="api: apicurio"):
        look_up(FakeRegistry([ORDER]), SchemaId("globalId", "2"))


@pytest.mark.parametrize(("api", "path"), [("confluent", ""), ("apicurio", V2), ("apicurio", V3)])
def test_an_id_that_is_not_there_is_none(api: Literal["confluent", "apicurio"], path: str) -> None:
    assert look_up(FakeRegistry([CURRENCY]), SchemaId("id", "9"), api, path) is None


def test_an_id_of_0_is_none_of_confluents() -> None:
    assert look_up(FakeRegistry([CURRENCY]), SchemaId("8-byte id", "1")) is None


def test_a_deleted_version_is_still_there_and_a_missing_reference_is_named() -> None:
    deleted = Schema(3, "j-value", "{}", "JSON", deleted=True)
    found = look_up(FakeRegistry([deleted]), SchemaId("id", "3"))
    assert found is not None
    assert (found.subjects, found.is_deleted) == (("j-value",), True)
    for api, path in (("confluent", ""), ("apicurio", V3)):
        alone = look_up(FakeRegistry([ORDER]), ID, api, path)  # type: ignore[arg-type]
        assert alone is not None
        assert alone.missing == "version 1 of Currency"


def test_references_in_a_circle_end() -> None:
    circle = [Schema(1, "a", "{}", references=[("b", "b", 1)]), Schema(2, "b", "{}", references=[("a", "a", 1)])]
    for api, path in (("confluent", ""), ("apicurio", V2)):
        with pytest.raises(CannotResolve, match="too deep"):
            look_up(FakeRegistry(circle), SchemaId("id", "1"), api, path)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_page_of_something_else_is_a_failure_and_no_missing_schema(status: int) -> None:
    with pytest.raises(RegistryError) as error:
        look_up(FakeRegistry([ORDER], broken=status), ID)
    assert "schema registry of 'dc1'" in error.value.message
    assert str(status) in error.value.message


@pytest.mark.parametrize(("api", "path"), [("confluent", V3), ("apicurio", "/apis/registry")])
def test_the_wrong_path_of_an_api_is_told(api: Literal["confluent", "apicurio"], path: str) -> None:
    with pytest.raises(RegistryError) as error:
        look_up(FakeRegistry([ORDER]), ID, api, path)
    assert error.value.hint


def test_a_login_is_sent_and_never_shown() -> None:
    login = BasicAuth("reader", "s3cret-word")
    registry = FakeRegistry([CURRENCY, ORDER], login=login.header())
    assert look_up(registry, ID, auth=login) is not None
    with pytest.raises(RegistryError) as error:
        look_up(registry, ID, auth=BasicAuth("reader", "0ther-word"))
    assert error.value.hint == "check `auth`"
    assert "0ther-word" not in f"{error.value}{error.value!r}"


def test_a_registry_that_is_down_is_told_with_its_url() -> None:
    async def run() -> None:
        async with RegistryClient(ConnectTarget("dc1", ("http://127.0.0.1:9",), noun=REGISTRY), "confluent") as client:
            await client.schema(ID)

    with pytest.raises(RegistryError, match=r"schema registry of 'dc1'.*\n.*127\.0\.0\.1:9"):
        asyncio.run(run())


# --- whatever answers there -------------------------------------------------------------------------------------------

WORDS = (
    "schema",
    "schemaType",
    "references",
    "name",
    "subject",
    "version",
    "versions",
    "artifacts",
    "artifactId",
    "groupId",
    "id",
    "error_code",
)
VALUES = st.recursive(
    st.none()
    | st.integers(-1, 3)
    | st.sampled_from(["Currency", "1", "{}", "\x1b[31m\nred", "message P { string a = 1; }", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=10,
)
ANSWERS = st.lists(
    st.tuples(st.sampled_from([200, 200, 200, 404]), VALUES.map(json.dumps) | st.text(max_size=20)),
    min_size=1,
    max_size=6,
)


@draw_examples(40)
@given(ANSWERS, st.sampled_from([("confluent", ""), ("apicurio", V2), ("apicurio", V3)]), st.sampled_from([ID, GUID]))
def test_whatever_answers_there_is_a_schema_none_or_a_failure_that_is_told(
    answers: list[tuple[int, str]], api: tuple[Literal["confluent", "apicurio"], str], schema_id: SchemaId
) -> None:
    turn = cycle(answers)

    async def get(_: str) -> Answer:
        status, text = next(turn)
        return Answer(status, text)

    async def run() -> RegisteredSchema | None:
        async with RegistryClient(ConnectTarget("dc1", (f"http://r:1{api[1]}",), noun=REGISTRY), api[0]) as client:
            client.get = get  # type: ignore[method-assign]
            return await client.schema(schema_id)

    found: RegisteredSchema | None = None
    with suppress(RegistryError, CannotResolve):
        found = asyncio.run(run())
    assert found is None or all(name.isprintable() for name in (*found.subjects, found.missing))
