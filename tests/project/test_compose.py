"""Holds docker-compose.yml to the sandbox's layout, to the Compose format, and to itself."""

from __future__ import annotations

import base64
import re

import pytest
import yaml

from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.sandbox.jars import DEFAULT_VERSION
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.layout import Layout
from mm2mgr.spec.files import load
from tests.docs.test_documents import unknown_calls
from tests.project.compose_file import (
    CONNECT_PORT,
    CONTROLLER_PORT,
    FILE,
    INSIDE_PORT,
    OUTSIDE_PORT,
    VARIABLE,
    brokers,
    interpolated,
    listeners,
    published,
    services,
    workers,
)

# Of the Compose Specification's service keys, those that this file may need.
SERVICE_KEYS = {"image", "hostname", "command", "environment", "ports", "depends_on", "healthcheck"}
PAGE_KEYS = {"build", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt"}
TREE = FILE.parent / "deploy" / "compose" / "clusters"
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}


def test_it_is_the_layout_of_the_sandbox() -> None:
    layout = Layout()
    assert tuple(brokers()) == layout.kafka_clusters
    own_kafka = {name: each["environment"]["BOOTSTRAP_SERVERS"] for name, each in workers().items()}
    assert own_kafka == {name: f"{kafka}:{INSIDE_PORT}" for name, kafka in layout.connect.items()}


def test_every_service_runs_the_kafka_of_the_sandbox() -> None:
    images = {service["image"] for service in (brokers() | workers()).values()}
    assert images == {f"apache/kafka:{DEFAULT_VERSION}"}


def test_it_uses_known_keys_only() -> None:
    tree = yaml.safe_load(FILE.read_text())
    assert {key for key in tree if not key.startswith("x-")} == {"name", "services"}
    for name, service in services().items():
        assert set(service) <= SERVICE_KEYS | (PAGE_KEYS if name == "mm2mgr" else set())
        assert set(service["healthcheck"]) == HEALTH_KEYS
        assert service["healthcheck"]["test"][0] == "CMD"


def test_every_variable_has_a_default() -> None:
    text = re.sub(r"^#.*", "", FILE.read_text(), flags=re.MULTILINE)
    found = VARIABLE.findall(text)
    assert found
    assert [name for name, _, default in found if not default] == []
    left = re.findall(r"(?<!\$)\$(?!\$|\{\w+:-)", re.sub(r"\$\$", "", text))
    assert left == [], "a dollar that Compose would read as a variable"


def test_host_ports_are_distinct_and_open_on_the_loopback_only() -> None:
    ports = [published(service) for service in services().values()]
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    assert len({outside for _, outside, _ in ports}) == len(ports)


@pytest.mark.parametrize("name", Layout().kafka_clusters)
def test_a_broker_advertises_where_it_is_reached(name: str) -> None:
    service = brokers()[name]
    environment = service["environment"]
    bound, advertised = listeners(environment["KAFKA_LISTENERS"]), listeners(environment["KAFKA_ADVERTISED_LISTENERS"])
    address, outside, inside = published(service)
    assert (service["hostname"], inside) == (name, OUTSIDE_PORT)
    assert advertised == {"INSIDE": (name, INSIDE_PORT), "OUTSIDE": (address, outside)}
    assert bound == {"INSIDE": ("", INSIDE_PORT), "OUTSIDE": ("", inside), "CONTROLLER": ("", CONTROLLER_PORT)}
    protocols = dict(each.split(":") for each in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(protocols) == set(bound)
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"1@127.0.0.1:{CONTROLLER_PORT}"


def test_a_changed_host_port_is_advertised_too() -> None:
    (variable,) = VARIABLE.findall(brokers()["agg-east"]["ports"][0])
    changed = {variable[0]: "45678"}
    service = brokers()["agg-east"]
    assert interpolated(service["ports"][0], changed).startswith("127.0.0.1:45678:")
    advertised = interpolated(service["environment"]["KAFKA_ADVERTISED_LISTENERS"], changed)
    assert advertised.endswith("OUTSIDE://127.0.0.1:45678")


def test_cluster_ids_are_distinct_and_of_sixteen_bytes() -> None:
    ids = [each["environment"]["CLUSTER_ID"] for each in brokers().values()]
    assert len(set(ids)) == len(ids)
    assert {len(base64.urlsafe_b64decode(f"{each}==")) for each in ids} == {16}


def test_workers_have_the_heap_of_the_sandbox() -> None:
    heaps = {service["environment"]["KAFKA_HEAP_OPTS"].rpartition(" ")[2] for service in workers().values()}
    assert heaps == {f"-Xmx{Worker.heap}"}


def test_workers_wait_for_all_brokers() -> None:
    for service in workers().values():
        assert published(service)[2] == CONNECT_PORT
        assert service["depends_on"] == {name: {"condition": "service_healthy"} for name in brokers()}


def test_the_tree_beside_it_plans_this_layout() -> None:
    topology = expand(load([TREE]))
    inside = {name: [f"{name}:{INSIDE_PORT}"] for name in brokers()}
    assert {name: cluster.model.bootstrap_servers for name, cluster in topology.clusters.items()} == inside
    for name, connect in topology.connects.items():
        assert connect.model.url == [f"http://{name}:{CONNECT_PORT}"]
        assert f"{connect.model.kafka}:{INSIDE_PORT}" == workers()[name]["environment"]["BOOTSTRAP_SERVERS"]
    assert {connector.connect for connector in render(topology)} == set(workers())


def test_it_ends_at_the_page_of_that_tree() -> None:
    page = services()["mm2mgr"]
    (volume,) = page["volumes"]
    folder, inside, mode = volume.split(":")
    assert (FILE.parent / folder).resolve() == TREE
    assert (page["environment"], mode) == ({"MM2MGR_CLUSTERS": inside}, "ro")
    address, outside, port = published(page)
    assert unknown_calls(f"`mm2mgr {' '.join(page['command'])}`") == []
    assert page["command"][:3] == ["serve", "--listen", f"0.0.0.0:{port}"]
    assert f"http://{address}:{outside}" in FILE.read_text(), "the page is where the head of the file says"
    assert f"http://127.0.0.1:{port}/healthz" in page["healthcheck"]["test"][-1]
    compile(page["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert page["depends_on"] == {name: {"condition": "service_healthy"} for name in workers()}


def test_the_container_of_the_page_can_write_to_memory_only() -> None:
    page = services()["mm2mgr"]
    assert (page["read_only"], page["cap_drop"]) == (True, ["ALL"])
    assert [mount.partition(":")[0] for mount in page["tmpfs"]] == ["/tmp", "/data"]


def test_what_its_head_says_to_type_exists() -> None:
    head = FILE.read_text().partition("name: mm2mgr")[0]
    calls = re.findall(r"exec mm2mgr (mm2mgr .*)", head)
    assert len(calls) == 2
    assert [call for call in calls if unknown_calls(f"`{call}`")] == []
    named = re.findall(r"compose exec (?:-T )?(\S+)", head) + re.findall(r"for kafka in ([\w -]+);", head)[0].split()
    assert set(named) - {"$kafka"} <= set(services())
    assert set(re.findall(r"\b[A-Z0-9_]+_PORT\b", head)) == {name for name, _, _ in VARIABLE.findall(FILE.read_text())}
