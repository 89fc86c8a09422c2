"""Reads docker-compose.yml the way Compose does, for the tests about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:-([^}]*))?\}")
INSIDE_PORT, CONTROLLER_PORT, OUTSIDE_PORT, CONNECT_PORT = 9092, 9093, 19092, 8083  # in the containers


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
    return found


def interpolated(text: str, given: Mapping[str, str] | None = None) -> str:
    """Do what Compose does to a string: ${VAR:-default}, and $$ for a dollar."""
    return VARIABLE.sub(lambda found: (given or {}).get(found[1], found[3]), text).replace("$$", "$")


def brokers() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in services().items() if "KAFKA_PROCESS_ROLES" in each["environment"]}


def workers() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in services().items() if "GROUP_ID" in each["environment"]}


def published(service: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return address and port on the host, and the port inside."""
    (port,) = service["ports"]
    address, outside, inside = interpolated(port).split(":")
    return address, int(outside), int(inside)


def listeners(value: str) -> dict[str, tuple[str, int]]:
    pairs = (each.split("://") for each in interpolated(value).split(","))
    return {name: (where.rpartition(":")[0], int(where.rpartition(":")[2])) for name, where in pairs}
