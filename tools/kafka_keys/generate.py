"""Regenerates `keys.json` from the real jars of every Kafka line that has a lock file: `python -m tools.kafka_keys.generate`.

Prints what changed. To add a line, add its lock file in `mm2mgr/sandbox`; those in `locks` list only the jars that are read,
of lines that the sandbox does not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import cache_folder
from mm2mgr.sandbox.jars import kafka_jars, known_versions, locked_jars
from mm2mgr.sandbox.runtime import find_java
from mm2mgr.truth.keys import DATA
from tools.kafka_keys import definitions, rows

_OPTION = {"default": None, "importance": "medium", "typed": True, "read_by": "ConnectorConfig"}
# (scopes, name, first line, facts): read by Kafka's code, in no definition that exists without a plugin's class.
TYPED: tuple[tuple[tuple[str, ...], str, str, rows.Facts], ...] = (
    # ConnectorConfig.enrich adds these two to the definition of a transformation's own class.
    (("source", "checkpoint", "heartbeat"), "transforms.<alias>.predicate", "2.6", {"type": "string", **_OPTION}),
    (
        *(("source", "checkpoint", "heartbeat"), "transforms.<alias>.negate", "2.6"),
        {"type": "boolean", **_OPTION, "default": "false"},
    ),
    # MirrorCheckpointConnector.validate refuses "false" (KIP-1031).
    (
        *(("checkpoint",), "emit.offset-syncs.enabled", "3.9"),
        {
            **{"type": "boolean", "default": "true", "importance": "low"},
            **{"typed": True, "read_by": "MirrorCheckpointConnector"},
        },
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Regenerate the lines asked for (all without `--kafka`), write the file if it differs, and print the differences."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kafka_keys.generate", description="Regenerate Kafka's config keys."
    )
    parser.add_argument("--kafka", action="append", metavar="LINE", help="only this line, such as 3.9 (repeatable)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something differs")
    options = parser.parse_args(arguments)
    try:
        before = (
            json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {"kafka": {}, "keys": {}, "clients": {}}
        )
        after = regenerated(before, options.kafka)
    except Mm2mgrError as error:
        print(f"Error: {error}\n{error.hint or ''}", file=sys.stderr)
        return error.exit_code
    reported = differences(before, after)
    print("\n".join(reported) or "no difference")
    if not options.check and rows.text(after) != rows.text(before):
        DATA.write_text(rows.text(after), encoding="utf-8")
    return int(options.check and bool(reported))


def regenerated(before: Mapping[str, Any], lines: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the data with some lines read afresh from their jars, all of them by default."""
    locked = releases()
    snapshots = rows.unpack(before)
    kept = {line: release for line, release in before["kafka"].items() if line in locked}
    for line in reversed(list(lines or locked)):  # the newest first: older ones are split as it is
        if line not in locked:
            raise Mm2mgrError(f"no lock file for Kafka {line}", hint=f"known lines: {', '.join(locked)}")
        snapshots[line] = with_typed(line, read(locked[line]))
        if _number(line) < _number(_SPLIT):
            snapshots[line] = split(snapshots[line], snapshots[_SPLIT])
        kept[line] = locked[line]
    return rows.pack(dict(sorted(kept.items(), key=lambda item: _number(item[0]))), snapshots)


LOCKS = {path.stem.removeprefix("kafka-"): path for path in Path(__file__).with_name("locks").glob("*.lock")}
_LIBRARIES = "3.6.2"  # whose libraries fit the older lines
_SPLIT = "3.4"  # the first line in which each connector has a definition of its own (KAFKA-14413)


def releases() -> dict[str, str]:
    """Return the newest locked release of each Kafka line, oldest line first."""
    return {release.rpartition(".")[0]: release for release in sorted([*LOCKS, *known_versions()], key=_number)}


def read(release: str) -> rows.Snapshot:
    """Fetch the jars of a release if need be, and read its definitions."""
    return definitions.read(find_java().java, jars(release))


def jars(release: str) -> list[Path]:
    """Return the jars of a release that hold what is read, with their libraries."""
    if release not in LOCKS:
        return kafka_jars(release)
    libraries = [jar for jar in kafka_jars(_LIBRARIES) if not jar.stem.endswith(f"-{_LIBRARIES}")]
    return [*locked_jars(LOCKS[release], cache_folder() / f"kafka-keys-{release}"), *libraries]


def split(snapshot: rows.Snapshot, newer: rows.Snapshot) -> rows.Snapshot:
    """Keep of the one definition that all connectors once shared what each of them has since its own one."""
    own = {scope: newer["keys"][scope] for scope in ("source", "checkpoint", "heartbeat")}
    every = {name for names in own.values() for name in names}
    for scope, names in own.items():
        found = snapshot["keys"][scope]
        snapshot["keys"][scope] = {name: facts for name, facts in found.items() if name in names or name not in every}
    return snapshot


def with_typed(line: str, snapshot: rows.Snapshot) -> rows.Snapshot:
    """Add the table of this file; what the jars define outranks it."""
    for scopes, name, first, facts in TYPED:
        for scope in scopes:
            if _number(line) >= _number(first):
                snapshot["keys"][scope].setdefault(name, dict(facts))
    return snapshot


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what changed, in words: each change once, after the lines in which it happened."""
    old, new = rows.unpack(before), rows.unpack(after)
    reported: dict[str, list[str]] = {}
    for line in dict.fromkeys([*old, *new]):
        was, now = before["kafka"].get(line), after["kafka"].get(line)
        sentences = [f"release {was or 'none'} → {now or 'none'}"] if was != now else []
        sentences += rows.changes(old.get(line, {}), new.get(line, {}))
        for sentence in sentences:
            reported.setdefault(sentence, []).append(line)
    return [f"{', '.join(lines)}: {sentence}" for sentence, lines in reported.items()]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    sys.exit(main())
