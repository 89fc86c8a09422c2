"""Writes `tests/truth/reached.json`: which prefixes reach each client, asked of Kafka's own classes of every line: `python -m tools.kafka_keys.reached`.

A connector's config sets one plain key behind every prefix, each to another value; the value that a client gets names the
prefix that wins. That one is taken out and the client asked again, until none is left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mm2mgr.sandbox.runtime import find_java
from tools.kafka_keys.definitions import CONNECTOR, WORKER, KafkaClasses, gateway, mirror_config, worker_arguments
from tools.kafka_keys.generate import jars, releases

GOLDEN = Path(__file__).parents[2] / "tests" / "truth" / "reached.json"
_KINDS = ("producer.", "consumer.", "admin.")
_SIDES = ("source.", "target.")
OVERRIDES = tuple(f"{kind}override." for kind in _KINDS)
# The last ones are found in the wild, and no line reads them.
PREFIXES = (
    *("source.cluster.", "target.cluster.", *_KINDS, *(side + kind for side in _SIDES for kind in _KINDS), *OVERRIDES),
    *("", "source.cluster.consumer.", "target.cluster.admin.", "offset-syncs.producer.", "source.producer.override."),
)
WORKERS = {f"workers' {prefix}": prefix for prefix in ("", *_KINDS)}
PLAIN = {"cluster key": "ssl.provider", "other key": "probe"}
_FORCED = ("enable.auto.commit", "auto.offset.reset")
Ask = Callable[[Mapping[str, str], Mapping[str, str]], Mapping[str, Any]]  # connector's config, workers' properties


def reached(kafka: KafkaClasses) -> dict[str, Any]:
    """Return for each client the prefixes that reach it, the winning one first, and the keys that no prefix can set."""
    found: dict[str, Any] = {}
    for client, ask in _clients(kafka):
        found[client] = {what: list(_order(ask, plain)) for what, plain in PLAIN.items()}
        config = {prefix + key: prefix for prefix in PREFIXES for key in _FORCED}
        found[client]["forced"] = [key for key in _FORCED if ask(config, {}).get(key) not in (None, *PREFIXES)]
    passed = kafka.field("connect.mirror.MirrorClientConfig", "CLIENT_CONFIG_DEF").names()
    return {"clients": found, "passed": sorted(passed)}


def _order(ask: Ask, plain: str) -> Iterator[str]:
    config = {prefix + plain: prefix or "none" for prefix in PREFIXES}
    workers = {prefix + plain: name for name, prefix in WORKERS.items()}
    while (won := ask(config, workers).get(plain)) is not None:
        name = "" if won == "none" else str(won)
        yield name
        if name in WORKERS:
            del workers[WORKERS[name] + plain]
        else:
            del config[name + plain]


def _clients(kafka: KafkaClasses) -> Iterator[tuple[str, Ask]]:
    mirror, runtime = "connect.mirror.MirrorConnectorConfig", "connect.runtime.Worker"
    for side in ("source", "target"):
        for kind in ("producer", "consumer", "admin"):
            method = f"{side}{kind.capitalize()}Config"
            if kafka.has(mirror, method):
                role = () if kafka.has(mirror, method, 0) else ("role",)

                def own(
                    config: Mapping[str, str], _: Mapping[str, str], method: str = method, role: tuple[str, ...] = role
                ) -> Any:
                    return kafka.call(mirror, method, *role, on=mirror_config(kafka, {**CONNECTOR, **config}))

                yield f"{side} {kind}", own
    task = kafka.packages.connect.util.ConnectorTaskId("name", 0)
    since_3_3 = kafka.has(runtime, "baseProducerConfigs")
    name = "name" if since_3_3 else task
    more = (kafka.field("connect.health.ConnectorType", "SOURCE"),) if kafka.has(runtime, "adminConfigs", 8) else ()
    methods: dict[str, tuple[str, tuple[Any, ...]]] = {
        "record producer": ("baseProducerConfigs" if since_3_3 else "producerConfigs", ())
    }
    methods |= {"framework offsets consumer": ("regularSourceOffsetsConsumerConfigs", ())} if since_3_3 else {}
    methods |= {"framework admin": ("adminConfigs", more)}
    for client, (method, last) in methods.items():

        def framework(
            config: Mapping[str, str], workers: Mapping[str, str], method: str = method, last: Any = last
        ) -> Any:
            made_for = worker_arguments(kafka, {**WORKER, **workers}, {**CONNECTOR, **config})
            return kafka.call(runtime, method, name, "client", *made_for, *last)

        yield client, framework


def _text(lines: list[dict[str, Any]]) -> str:
    """Return the answers as JSON with a client per line, so that a diff shows which one changed."""
    blocks = []
    for each in lines:
        answer = each["answer"]
        clients = ",\n".join(f"  {json.dumps(name)}: {json.dumps(said)}" for name, said in answer["clients"].items())
        passed = json.dumps(answer["passed"])
        blocks.append(f'{{"lines": {json.dumps(each["lines"])},\n "passed": {passed},\n "clients": {{\n{clients}\n}}}}')
    return "[\n" + ",\n".join(blocks) + "\n]"


def main() -> int:
    """Ask every line and write the answers; equal ones of neighbouring lines once."""
    lines: list[dict[str, Any]] = []
    for line, release in releases().items():
        with gateway(find_java().java, jars(release)) as opened:
            answer = reached(KafkaClasses(opened))
        if lines and lines[-1]["answer"] == answer:
            lines[-1]["lines"].append(line)
        else:
            lines.append({"lines": [line], "answer": answer})
        print(line, file=sys.stderr)
    GOLDEN.write_text(_text(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
