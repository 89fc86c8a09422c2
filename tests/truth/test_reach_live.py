"""The reach table against real workers: a distinct value under every prefix, and what each client says it was given.

Each connector gets eight plain and eight cluster keys; each key is set under another choice of prefixes, so that both the
reach of every prefix and the order among them show in the values that the clients write to the worker's log.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mm2mgr.connectors import ConnectorType
from mm2mgr.sandbox.kafka_servers import DIRECT, Broker, Worker
from mm2mgr.sandbox.runtime import kafka_runtime
from mm2mgr.truth.keys import load
from mm2mgr.truth.reach import Setting, clients, winners
from tests.examples import sampled
from tests.live.seen import log_texts

pytestmark = pytest.mark.live

VERSIONS = ("3.6.2", "4.3.1")
DEADLINE_SECONDS = 180.0
CLUSTER, GENERAL = ("source.cluster.", "target.cluster."), ("consumer.", "producer.", "admin.")
SIDED = tuple(f"{side}.{kind}" for side in ("source", "target") for kind in GENERAL)
OVERRIDE = ("producer.override.", "consumer.override.", "admin.override.")
# Spellings that are found in the wild and that no client looks at.
DEAD = ("", "source.cluster.consumer.", "source.cluster.producer.", "target.cluster.admin.", "offset-syncs.producer.")
PREFIXES = (*CLUSTER, *GENERAL, *SIDED, *OVERRIDE, *DEAD)
CHOICES = (CLUSTER, GENERAL, SIDED, OVERRIDE, DEAD, (*CLUSTER, *GENERAL), (*CLUSTER, *SIDED, *DEAD), PREFIXES)
# Harmless numbers that producers, consumers and admin clients of all lines know, with a value to count from.
PLAIN = {
    "metadata.max.age.ms": 40_000,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 200,
    "connections.max.idle.ms": 500_000,
    "metrics.sample.window.ms": 30_000,
    "send.buffer.bytes": 131_072,
    "receive.buffer.bytes": 65_536,
}
SECURITY = {
    "sasl.login.retry.backoff.ms": 100,
    "sasl.login.retry.backoff.max.ms": 10_000,
    "sasl.login.connect.timeout.ms": 5_000,
    "sasl.login.read.timeout.ms": 6_000,
    "sasl.login.refresh.buffer.seconds": 300,
    "sasl.login.refresh.min.period.seconds": 60,
    "sasl.kerberos.min.time.before.relogin": 60_000,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": 3_600_000,
}
# Two names at the border of what `*.cluster.` lets pass; 3.6 does not know the second.
BORDER = {"security.providers": "org.example.None", "sasl.oauthbearer.scope": "probe"}
# What only the worker says, to see from where each framework client takes it.
WORKER_KEY = "metrics.num.samples"
WORKER_VALUES = {"": "11", "producer.": "12", "consumer.": "13", "admin.": "14"}
CLASS = "org.apache.kafka.connect.mirror.Mirror{}Connector"
COMPARED = (*PLAIN, *SECURITY, *BORDER)
ByClient = dict[str, dict[str, set[str]]]


@dataclass(frozen=True)
class Case:
    """One connector: its type and what it sets besides the keys above."""

    name: str
    type: ConnectorType
    more: Mapping[str, str]


OWN_OFFSETS = {"offsets.storage.topic": "own-offsets"}
CREATION = {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}
ON_TARGET = {"offset-syncs.topic.location": "target"}
CASES = (
    Case("s-source", "source", {}),
    Case("s-target", "source", ON_TARGET | CREATION),
    Case("s-offsets", "source", OWN_OFFSETS),
    Case("s-nosyncs", "source", {"emit.offset-syncs.enabled": "false"}),
    Case("c-source", "checkpoint", {}),
    Case("c-target", "checkpoint", ON_TARGET | OWN_OFFSETS),
    Case("h-plain", "heartbeat", {}),
    Case("h-offsets", "heartbeat", OWN_OFFSETS),
)
EXACTLY_ONCE_CASES = (Case("x-source", "source", {}), Case("x-heart", "heartbeat", {}))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with three addresses, so that a client's bootstrap.servers tells which cluster it was meant for."""
    listeners = dict.fromkeys(("WORKER", "A", "B"), "PLAINTEXT")
    with Broker("kafka", tmp_path_factory.mktemp("reach") / "kafka", listeners=listeners) as made:
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": made.bootstrap("A")}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        # A checkpoint connector without groups has no task, and so hardly a client.
        consumer = Consumer({**client, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        yield made


@pytest.mark.parametrize("exactly_once", [False, True], ids=["", "exactly-once"])
@sampled("version", VERSIONS[-1:], VERSIONS)
def test_every_client_has_the_values_that_the_table_says(
    version: str, exactly_once: bool, broker: Broker, tmp_path: Path
) -> None:
    cases = EXACTLY_ONCE_CASES if exactly_once else CASES
    properties = {f"{prefix}{WORKER_KEY}": value for prefix, value in WORKER_VALUES.items()}
    properties |= {"exactly.once.source.support": "enabled"} if exactly_once else {}
    group = f"w{version}{'x' if exactly_once else ''}".replace(".", "")
    place = tmp_path / "worker"
    runtime = kafka_runtime(version)
    worker = Worker("worker", place, broker.bootstrap("WORKER"), {**properties, "group.id": group}, runtime=runtime)
    configs = {case.name: config(case, broker, version) for case in cases}
    wanted = {
        case.name: expected(
            case,
            configs[case.name],
            broker,
            Setting.from_config(configs[case.name], version, exactly_once=exactly_once),
        )
        for case in cases
    }
    with worker:
        for name, body in configs.items():
            put(f"{worker.url}/connectors/{name}/config", body)
        until_seen(worker, wanted)
        for name in configs:
            put(f"{worker.url}/connectors/{name}", None, "DELETE")
    found = {name: seen(worker, name) for name in configs}  # the worker has stopped: its log is whole
    assert {name: differences(wanted[name], found[name]) for name in configs} == {name: [] for name in configs}


def config(case: Case, broker: Broker, version: str) -> dict[str, str]:
    a, b = broker.bootstrap("A"), broker.bootstrap("B")
    result = {
        "connector.class": CLASS.format(case.type.capitalize()),
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": a,
        "target.cluster.bootstrap.servers": b,
        "producer.override.bootstrap.servers": b,
        "consumer.override.bootstrap.servers": b,
        "admin.override.bootstrap.servers": b,
        "consumer.enable.auto.commit": "true",
        "producer.override.enable.idempotence": "false",
        "consumer.override.isolation.level": "read_uncommitted",
        "topics": "orders",
        "groups": "billing",
        "replication.factor": "1",
        **{f"{name}.topic.replication.factor": "1" for name in ("offset-syncs", "checkpoints", "heartbeats")},
        **case.more,
    }
    known = [key for key in BORDER if load().find("consumer", key, version)]
    result |= {prefix + key: BORDER[key] for key in known for prefix in CLUSTER}
    if not Setting.from_config(result, version).offset_syncs:
        del result["offset-syncs.topic.replication.factor"]  # refused together
    for names in (PLAIN, SECURITY):
        for (key, base), choice in zip(names.items(), CHOICES, strict=True):
            result |= {prefix + key: str(base + 1 + PREFIXES.index(prefix)) for prefix in choice}
    return result


def expected(case: Case, body: Mapping[str, str], broker: Broker, setting: Setting) -> ByClient:
    """Return role -> key -> values by the table."""
    result: ByClient = {}
    for client in clients(case.type, setting):
        values = {plain: body[key] for plain, key in winners(client, body).items()}
        result[client.role] = {key: {values[key]} if key in values else set() for key in COMPARED}
        is_framework = bool(client.worker_prefixes)
        result[client.role]["bootstrap.servers"] = {values.get("bootstrap.servers", broker.bootstrap("WORKER"))}
        worker_value = next((WORKER_VALUES[prefix] for prefix in reversed(client.worker_prefixes)), None)
        result[client.role][WORKER_KEY] = {worker_value} if worker_value and is_framework else set()
        if client.kind == "consumer":
            result[client.role]["enable.auto.commit"] = {"false"}
        if client.name == "record producer":
            result[client.role]["enable.idempotence"] = {str(setting.exactly_once).lower()}
        if client.name == "framework offsets consumer":
            level = "read_committed" if setting.exactly_once else "read_uncommitted"
            result[client.role]["isolation.level"] = {level}
    return result


def differences(wanted: ByClient, found: ByClient) -> list[str]:
    """Return every client and key where table and worker differ; a key that the table says nobody sets has a default."""
    result = [f"{role}: not in the log" for role in wanted.keys() - found.keys()]
    result += [f"{role}: not in the table" for role in found.keys() - wanted.keys()]
    bases = {**PLAIN, **SECURITY}.values()
    own = {str(base + 1 + place) for base in bases for place in range(len(PREFIXES))}
    own |= {*WORKER_VALUES.values(), *BORDER.values()}
    for role in wanted.keys() & found.keys():
        for key, values in wanted[role].items():
            got = found[role].get(key, set())
            if (got != values) if values else (got & own):
                result.append(f"{role}: {key} is {sorted(got)}, by the table {sorted(values) or 'a default'}")
    return sorted(result)


def seen(worker: Worker, connector: str) -> ByClient:
    """Return role -> key -> all values in the config dumps of one connector's clients."""
    result: ByClient = defaultdict(lambda: defaultdict(set))
    text = "".join(log_texts(worker))
    for dump in re.findall(r"(?:Producer|Consumer|AdminClient)Config values:\s*\n((?:\t.*\n)+)", text):
        values = dict(re.findall(r"^\t(\S+) = (.*)$", dump, re.MULTILINE))
        role = role_of(values.get("client.id", ""), connector)
        if role:
            for key, value in values.items():
                result[role][key].add(value.strip("[]"))
    return {role: dict(values) for role, values in result.items()}


def role_of(client_id: str, connector: str) -> str | None:
    parts = client_id.split("|")
    if len(parts) > 1:
        return parts[-1] if re.fullmatch(rf"{connector}(-\d+)?", parts[-2]) else None
    found = re.fullmatch(rf"(connector(?:-worker)?-[a-z]+)-{connector}(?:-\d+)?", client_id)
    return found[1] if found else None


def until_seen(worker: Worker, wanted: Mapping[str, ByClient]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while missing := {name: sorted(roles.keys() - seen(worker, name).keys()) for name, roles in wanted.items()}:
        if not any(missing.values()):
            return
        assert time.monotonic() < deadline, f"no such clients in the log: {missing}"
        time.sleep(0.5)


def put(url: str, body: Mapping[str, str] | None, method: str = "PUT") -> Any:
    """Send a request, again while a rebalance is in the way."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    data = json.dumps(body).encode() if body is not None else None
    while True:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with DIRECT.open(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:2000]
            if error.code != 409 or time.monotonic() > deadline:
                raise AssertionError(said) from error
            time.sleep(0.2)
