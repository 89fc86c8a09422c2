"""Regenerates `servers.json`, the names of Kafka's settings of topics and brokers: `python -m tools.kafka_keys.servers` (needs Java and the network).

The oldest and the newest line of the sandbox are read; a name that clients, connectors or workers have too is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from mm2mgr.sandbox.jars import kafka_jars, known_versions
from mm2mgr.sandbox.runtime import find_java
from mm2mgr.truth.keys import SCOPES, SERVERS, load
from tools.kafka_keys.definitions import KafkaClasses, gateway


def main() -> None:
    """Read the names and write the file."""
    found: dict[str, set[str]] = {"topic": set(), "broker": set()}
    for version in (known_versions()[0], known_versions()[-1]):
        with gateway(find_java().java, kafka_jars(version)) as opened:
            names = KafkaClasses(opened).call("storage.internals.log.LogConfig", "configNames")
            found["topic"] |= set(names)
            found["broker"] |= set(opened.jvm.kafka.server.KafkaConfig.configDef().names())
    SERVERS.write_text(text(found), encoding="utf-8")


def text(found: dict[str, set[str]]) -> str:
    """Return the file, one name per line; a setting of topics that brokers have under the same name counts as one of topics."""
    known = {name for scope in SCOPES for name in load().names(scope)}
    names: dict[str, Iterable[str]] = {
        "topic": sorted(found["topic"] - known),
        "broker": sorted(found["broker"] - found["topic"] - known),
    }
    return json.dumps(names, indent=0) + "\n"


if __name__ == "__main__":
    main()
