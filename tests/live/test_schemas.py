"""Schema ids in records on real brokers. In the gate registries are fakes that answer as real ones were recorded to; in the matrix they are Apicurio's."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.reach import KafkaReach, Limits
from mm2mgr.live.schemas import read_schema_ids
from mm2mgr.registry.ids import SchemaId
from mm2mgr.sandbox.kafka_servers import DIRECT, Broker
from mm2mgr.sandbox.runtime import Runtime
from tests.registry.apicurio import Apicurio, apicurio_jar
from tests.registry.fake import FakeRegistry, Schema
from tests.registry.fake import serving as serving_registry

from .command import Tree
from .conftest import serving
from .seen import Message, create, write

pytestmark = pytest.mark.live
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"c","type":"shop.Currency"}]}'
CURRENCY = '{"type":"enum","name":"Currency","namespace":"shop","symbols":["EUR","USD"]}'
SECRET = b"secret-of-a-customer"


def framed(number: int) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + SECRET


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Broker]:
    broker = Broker("src", tmp_path_factory.mktemp("schemas"), runtime=runtime)
    with serving([broker]):
        yield broker


@pytest.fixture(scope="module")
def source(broker: Broker) -> KafkaAccess:
    access = KafkaAccess("src", broker.bootstrap_servers)
    create(access, ["app.orders"], 2)
    create(access, ["app.plain", "app.empty", "app.zeros", "app.headers"])
    # At its start a log was written with another schema, and what is between is not read.
    values = [framed(3)] * 10 + [b"between"] * 50 + [framed(2)] * 10
    write(access, "app.orders", [Message(0, framed(1), value) for value in values])
    write(access, "app.plain", [Message(0, b"k", b'{"a": 1}')] * 5)
    write(access, "app.zeros", [Message(0, None, b"\x00text that begins with a zero byte")] * 5)
    header = ("apicurio.value.globalId", (12).to_bytes(8, "big"))
    write(access, "app.headers", [Message(0, None, SECRET, (header,))])
    return access


def tree_text(broker: Broker, source: str, target: str) -> str:
    return f"""\
owner: schemas
clusters:
  src: {{bootstrap_servers: ["{broker.bootstrap_servers}"], schema_registry: {source}}}
  tgt: {{bootstrap_servers: ["127.0.0.1:9"], schema_registry: {target}}}
connect:
  c: {{url: "http://127.0.0.1:9", kafka: tgt}}
flows:
  app: {{sources: [src], targets: [tgt], topics: {{include: ["app[.].*"]}}, checkpoints: false, heartbeats: false}}
"""


def schema_rows(found: Any) -> list[dict[str, Any]]:
    return [row for row in found["rows"] if row["what"].startswith("schema")]


def test_ids_at_both_ends_of_logs_and_no_data(source: KafkaAccess) -> None:
    reach = KafkaReach(source, Limits())
    names = {"app.orders": 2, "app.plain": 1, "app.empty": 1, "app.zeros": 1, "app.headers": 1, "app.gone": 1}
    samples = read_schema_ids(reach, names, 20.0)
    orders = samples["app.orders"]
    assert orders.records == 20
    assert orders.ids == {
        "key": {SchemaId("id", "1"): 20},
        "value": {SchemaId("id", "2"): 10, SchemaId("id", "3"): 10},
    }
    assert (samples["app.plain"].records, dict(samples["app.plain"].ids)) == (5, {})
    assert (samples["app.empty"].records, samples["app.empty"].failure) == (0, "")
    assert list(samples["app.zeros"].ids["value"].values()) == [5]
    assert samples["app.headers"].ids == {"value": {SchemaId("globalId", "12"): 1}}
    assert "app.gone" not in samples
    assert SECRET.decode() not in f"{samples}"


def test_a_check_names_what_the_targets_registry_does_not_resolve(
    broker: Broker, source: KafkaAccess, tree: Tree
) -> None:
    here = [Schema(1, "app.orders-key", '"string"'), Schema(2, "app.orders-value", ORDER), Schema(3, "old", '"bytes"')]
    there = [Schema(1, "app.orders-key", '{"type": "string"}'), Schema(2, "app.users-value", '"long"')]
    with serving_registry(FakeRegistry(here)) as one, serving_registry(FakeRegistry(there)) as other:
        tree.write(tree_text(broker, f"{{url: '{one}'}}", f"{{url: '{other}'}}"))
        rows = schema_rows(tree.json("check", "--timeout", "25"))
    failed = [row["what"] for row in rows if row["status"] == "failed"]
    assert failed == [
        "schema 2 (app.orders-value) in values of topic app.orders",
        "schema 3 (old) in values of topic app.orders",
    ]
    assert all("mm2mgr copies no schemas" in row["fix"] for row in rows if row["status"] == "failed")
    (unknown,) = (row for row in rows if row["status"] == "unknown")
    assert "declare `api: apicurio`" in unknown["effect"]
    assert SECRET.decode() not in "".join(tree.said)


# --- a real registry --------------------------------------------------------------------------------------------------


def post(
    url: str, subject: str, schema: str, *, kind: str = "AVRO", references: tuple[tuple[str, str], ...] = ()
) -> int:
    listed = [{"name": name, "subject": of, "version": 1} for name, of in references]
    body = json.dumps({"schema": schema, "schemaType": kind, "references": listed}).encode()
    request = urllib.request.Request(f"{url}/apis/ccompat/v7/subjects/{subject}/versions", body)
    request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    with DIRECT.open(request, timeout=30) as answer:
        number: int = json.load(answer)["id"]
    return number


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("path", "more"),
    [("/apis/ccompat/v7", ""), ("/apis/registry/v2", ", api: apicurio"), ("/apis/ccompat/v6", "")],
    ids=["as Confluent's", "its own API", "as an older Confluent's"],
)
def test_with_apicurio(path: str, more: str, broker: Broker, source: KafkaAccess, tree: Tree) -> None:
    jar = apicurio_jar()
    registries = [Apicurio(name, tree.folder.parent / name, jar) for name in ("one", "other")]
    with serving(registries):  # type: ignore[arg-type]
        urls = [registry.url for registry in registries]
        for url in urls:
            assert post(url, "Currency", CURRENCY if url == urls[0] else CURRENCY.replace(":", " : ")) == 1
        for url, schema in zip(urls, (ORDER, ORDER.replace("id", "number")), strict=True):
            assert post(url, "app.orders-value", schema, references=(("shop.Currency", "Currency"),)) == 2
        assert post(urls[0], "old", '"bytes"') == 3
        declared = [f"{{url: '{url}{path}'{more}}}" for url in urls]
        tree.write(tree_text(broker, *declared))
        rows = schema_rows(tree.json("check", "--timeout", "25"))
        failed = {row["what"]: row["effect"] for row in rows if row["status"] == "failed"}
        assert list(failed) == [
            "schema 2 (app.orders-value) in values of topic app.orders",
            "schema 3 (old) in values of topic app.orders",
        ]
        assert "another schema" in failed["schema 2 (app.orders-value) in values of topic app.orders"]
        assert "no schema under this id" in failed["schema 3 (old) in values of topic app.orders"]
        # A soft-deleted schema is still read by its id, and one registry for both sides has equal schemas.
        request = urllib.request.Request(f"{urls[0]}/apis/ccompat/v7/subjects/old", method="DELETE")
        DIRECT.open(request, timeout=30).close()
        tree.write(tree_text(broker, declared[0], declared[0]))
        rows = schema_rows(tree.json("check", "--timeout", "25"))
        assert [row for row in rows if row["status"] == "failed"] == []
