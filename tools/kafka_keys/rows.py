"""Packs the definitions of each Kafka line into rows that hold for a span of lines, and unpacks them again. Pure.

A snapshot is line → section → scope → name → facts. `keys.json` has one name per line, so that a diff shows which keys
changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Facts = dict[str, Any]  # of one key in one line: type, default, …
Snapshot = dict[str, dict[str, dict[str, Facts]]]  # one line: section → scope → name → facts
Row = dict[str, Any]  # facts, and "in": the lines where they hold
SECTIONS = ("keys", "clients", "classes")


def pack(releases: Mapping[str, str], snapshots: Mapping[str, Snapshot]) -> dict[str, Any]:
    """Return the value of `keys.json`; `releases` gives the lines, oldest first, and the release each was read from."""
    lines = list(releases)
    data: dict[str, Any] = {"kafka": dict(releases)}
    for section in SECTIONS:
        scopes = dict.fromkeys(scope for line in lines for scope in snapshots[line][section])
        data[section] = {scope: _scope(lines, snapshots, section, scope) for scope in scopes}
    return data


def _scope(lines: Sequence[str], snapshots: Mapping[str, Snapshot], section: str, scope: str) -> dict[str, list[Row]]:
    by_line = [snapshots[line][section].get(scope, {}) for line in lines]
    names = sorted({name for facts in by_line for name in facts})
    return {name: _rows(lines, [facts.get(name) for facts in by_line]) for name in names}


def _rows(lines: Sequence[str], facts_by_line: Sequence[Facts | None]) -> list[Row]:
    rows: list[Row] = []
    before: Facts | None = None
    for line, facts in zip(lines, facts_by_line, strict=True):
        if facts is not None and facts == before:
            rows[-1]["in"] = f"{rows[-1]['in'].partition('-')[0]}-{line}"
        elif facts is not None:
            rows.append({"in": line, **facts})
        before = facts
    return rows


def unpack(data: Mapping[str, Any]) -> dict[str, Snapshot]:
    """Return one snapshot per line: the inverse of `pack`."""
    lines = list(data["kafka"])
    snapshots: dict[str, Snapshot] = {
        line: {section: {scope: {} for scope in data.get(section, {})} for section in SECTIONS} for line in lines
    }
    for section, scope, name, row in _each(data):
        first, _, last = row["in"].partition("-")
        for line in lines[lines.index(first) : lines.index(last or first) + 1]:
            snapshots[line][section][scope][name] = {key: value for key, value in row.items() if key != "in"}
    return snapshots


def _each(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Row]]:
    for section in SECTIONS:
        for scope, names in data.get(section, {}).items():
            for name, rows in names.items():
                yield from ((section, scope, name, row) for row in rows)


def text(data: Mapping[str, Any]) -> str:
    """Return the file's text: the same value always gives the same bytes."""
    sections = [f'"kafka": {json.dumps(data["kafka"])}']
    for section in SECTIONS:
        scopes = [f"{json.dumps(scope)}: {_block(names)}" for scope, names in data.get(section, {}).items()]
        sections.append(f'"{section}": {{\n' + ",\n".join(scopes) + "\n}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _block(names: Mapping[str, Sequence[Row]]) -> str:
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows)}" for name, rows in names.items()) + "\n}"


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Return one sentence for each key that differs between two snapshots."""
    reported = []
    for section in SECTIONS:
        for scope in dict.fromkeys([*before.get(section, {}), *after.get(section, {})]):
            old, new = before.get(section, {}).get(scope, {}), after.get(section, {}).get(scope, {})
            for name in sorted({*old, *new}):
                reported += [f"{scope} {name}: {what}" for what in _differences(old.get(name), new.get(name))]
    return reported


def _differences(old: Facts | None, new: Facts | None) -> list[str]:
    if old is None:
        return ["added"]
    if new is None:
        return ["removed"]
    parts = sorted({*old, *new})
    return [
        f"{part} {_shown(old, part)} → {_shown(new, part)}" for part in parts if _shown(old, part) != _shown(new, part)
    ]


def _shown(facts: Facts, part: str) -> str:
    return json.dumps(facts[part]) if part in facts else "none"
