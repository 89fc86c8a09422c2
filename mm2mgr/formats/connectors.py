"""Connectors as the readers of this package return them."""

from __future__ import annotations

from dataclasses import dataclass

from mm2mgr.formats.properties import Entry

# What MirrorMaker's driver, like Strimzi's operator, gives its workers.
CONVERTERS = dict.fromkeys(
    ("key.converter", "value.converter", "header.converter"), "org.apache.kafka.connect.converters.ByteArrayConverter"
)


@dataclass(frozen=True)
class FoundConnector:
    """A connector in a file. `entries` are its config, duplicate keys and nulls included."""

    name: str
    class_name: str
    entries: tuple[Entry, ...]
    line: int
    state: str | None = None
    owner: str = ""  # the Connect cluster it is meant for, where the file says so
