"""Types what the head of docker-compose.yml says, in its order, on Docker: from `up` to the page with a rate, and `down`.

Nothing is pulled here: `docker compose pull --ignore-buildable` and `docker pull python:3.13-slim-bookworm` first, or tag
images of your own with those names. The image of mm2mgr that it builds stays.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.sandbox.server import free_ports
from tests.project.compose_file import FILE, VARIABLE, services
from tests.project.test_image import DOCKERFILE

# Another project and other ports than those of a person who tries the file on this machine.
PROJECT = "mm2mgr-of-the-tests"
TYPED, RECORDS = 1000, 500  # by the head of the file, and by the test


def run(command: Sequence[str], deadline: float, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COMPOSE_PROJECT_NAME": PROJECT, **variables}
    return subprocess.run(
        command,
        cwd=FILE.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline,
    )


def docker(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(["docker", *arguments], 120, variables)


def why_not() -> str:
    """Return why Compose cannot run the file here, or an empty text."""
    if shutil.which("docker") is None or docker("info").returncode:
        return "Docker's engine does not answer"
    if docker("compose", "version").returncode:
        return "Docker has no Compose 2"
    base = re.search(r"^ARG BASE=(\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert base is not None
    images = {service["image"] for service in services().values() if "build" not in service} | {base[1]}
    absent = [image for image in sorted(images) if docker("image", "inspect", image).returncode]
    return f"Docker has no image {absent[0]}, and tests pull none" if absent else ""


def commands_of_the_head() -> list[str]:
    """Return what the head of the file says to type, with none of its lines that are continued."""
    head = re.sub(r"\\\n#\s+", "", FILE.read_text().partition("name: mm2mgr")[0])
    return re.findall(r"^#     (.+)", head, re.MULTILINE)


def typed(command: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return run(["bash", "-ec", command], 600, variables)


def soon(condition: Callable[[], object], seconds: float, told: Callable[[], str]) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, told()
        time.sleep(0.5)
    return answer


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    if reason := why_not():
        pytest.skip(f"docker-compose.yml is not run: {reason}")
    names = [name for service in services().values() for name, _, _ in VARIABLE.findall(str(service["ports"]))]
    yield dict(zip(names, map(str, free_ports(len(names))), strict=True))
    docker("compose", "down", "--volumes", "--timeout=1")


def has_all(port: str, counts: Mapping[str, int]) -> bool:
    """Tell whether a cluster has that many records of each topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "of-the-tests"})
    try:
        with suppress(confluent_kafka.KafkaException):  # as long as a topic is not there
            for topic, count in counts.items():
                partitions = consumer.list_topics(topic, timeout=5).topics[topic].partitions
                places = [confluent_kafka.TopicPartition(topic, number) for number in partitions]
                if sum(consumer.get_watermark_offsets(place, timeout=5)[1] for place in places) != count:
                    return False
            return True
        return False
    finally:
        consumer.close()


def flows_with_a_rate(variables: Mapping[str, str]) -> set[str]:
    rates = re.findall(
        r'^mm2mgr_flow_mirrored_records_per_second\{[^}]*flow="([^"]+)"[^}]*\} (\S+)$',
        page(variables, "/metrics"),
        re.MULTILINE,
    )
    return {flow for flow, rate in rates if float(rate) > 0}


def page(variables: Mapping[str, str], path: str) -> str:
    address = f"http://127.0.0.1:{variables['PAGE_PORT']}{path}"
    with suppress(urllib.error.URLError), DIRECT.open(address, timeout=20) as answer:
        return str(answer.read().decode())
    return ""


@pytest.mark.matrix
@pytest.mark.real_time
def test_what_the_head_says_ends_at_the_page_with_a_rate(variables: dict[str, str]) -> None:
    *commands, down = commands_of_the_head()
    assert (commands[0][:17], down[:19]) == ("docker compose up", "docker compose down")
    for command in commands:
        done = typed(command, variables)
        assert done.returncode == 0, command + done.stdout + done.stderr
    ids = docker("compose", "ps", "--quiet").stdout.split()
    containers = json.loads(docker("container", "inspect", *ids).stdout)
    healths = {each["Config"]["Hostname"]: each["State"]["Health"]["Status"] for each in containers}
    assert sorted(healths.values()) == ["healthy"] * len(services())
    volumes = [mount["Name"] for each in containers for mount in each["Mounts"] if mount["Type"] == "volume"]
    assert volumes, "the image of Kafka declares some"

    # As a program on this machine does, through the published ports.
    producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{variables['DC2_LOGGING_PORT']}"})
    for number in range(RECORDS):
        producer.produce("app.orders", str(number).encode())
    assert producer.flush(30) == 0
    arrived = {f"{source}.app.orders": count for source, count in (("dc1-logging", TYPED), ("dc2-logging", RECORDS))}
    for port in (variables["AGG_EAST_PORT"], variables["AGG_WEST_PORT"]):
        soon(partial(has_all, port, arrived), 60, lambda: docker("compose", "logs", "--tail=50", "east", "west").stdout)

    soon(partial(flows_with_a_rate, variables), 120, lambda: page(variables, "/metrics")[-3000:])
    soon(lambda: "No problem" in page(variables, "/"), 120, lambda: page(variables, "/"))
    status = typed("docker compose exec mm2mgr mm2mgr status", variables)
    assert (status.returncode, status.stdout.count("RUNNING   1 RUNNING")) == (0, 4), status.stdout + status.stderr

    done = typed(down, variables)
    assert done.returncode == 0, done.stderr
    of_the_project = f"--filter=label=com.docker.compose.project={PROJECT}"
    assert docker("container", "ls", "--all", "--quiet", of_the_project).stdout == ""
    assert docker("network", "ls", "--quiet", of_the_project).stdout == ""
    assert set(docker("volume", "ls", "--quiet").stdout.split()) & set(volumes) == set(), "down leaves nothing behind"
