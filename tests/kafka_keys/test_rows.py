"""Rows hold facts over spans of lines; nothing is lost on the way in and out, and changes are reported in words."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tools.kafka_keys import rows
from tools.kafka_keys.generate import DATA, differences, with_typed

LINES = ("3.8", "3.9", "4.0", "4.1")
RELEASES = {line: f"{line}.0" for line in LINES}
_facts = st.none() | st.fixed_dictionaries({"type": st.sampled_from(["int", "list"])})


def snapshots(by_line: list[rows.Facts | None]) -> dict[str, rows.Snapshot]:
    return {
        line: {"keys": {"source": {} if facts is None else {"tasks.max": facts}}, "clients": {}, "classes": {}}
        for line, facts in zip(LINES, by_line, strict=True)
    }


@given(st.lists(_facts, min_size=len(LINES), max_size=len(LINES)))
def test_unpack_is_the_inverse_of_pack(by_line: list[rows.Facts | None]) -> None:
    given_snapshots = snapshots(by_line)
    data = json.loads(rows.text(rows.pack(RELEASES, given_snapshots)))
    assert rows.unpack(data) == given_snapshots


def test_a_key_that_goes_and_comes_back_has_two_rows() -> None:
    data = rows.pack(RELEASES, snapshots([{"type": "int"}, {"type": "int"}, None, {"type": "int"}]))
    assert data["keys"]["source"]["tasks.max"] == [{"in": "3.8-3.9", "type": "int"}, {"in": "4.1", "type": "int"}]


def test_the_committed_file_is_in_its_own_form() -> None:
    data = json.loads(DATA.read_text())
    assert rows.text(data) == DATA.read_text()
    assert rows.pack(data["kafka"], rows.unpack(data)) == data


def test_changes_name_line_scope_key_and_both_values() -> None:
    def packed(*facts: Any, release: str = "4.1.0") -> dict[str, Any]:
        return rows.pack({**RELEASES, "4.1": release}, snapshots(list(facts)))

    one, two = {"type": "int", "default": None}, {"type": "int", "default": "1"}
    assert differences(packed(one, one, one, None), packed(two, two, None, one, release="4.1.2")) == [
        '3.8, 3.9: source tasks.max: default null → "1"',
        "4.0: source tasks.max: removed",
        "4.1: release 4.1.0 → 4.1.2",
        "4.1: source tasks.max: added",
    ]
    assert differences(packed(one, one, one, one), packed(one, one, one, one)) == []


def test_the_typed_table_yields_to_what_the_jars_define() -> None:
    scopes = ("source", "checkpoint", "heartbeat")
    snapshot: rows.Snapshot = {"keys": {scope: {} for scope in scopes}, "clients": {}, "classes": {}}
    snapshot["keys"]["checkpoint"]["emit.offset-syncs.enabled"] = {"type": "boolean"}
    with_typed("3.9", snapshot)
    assert snapshot["keys"]["checkpoint"]["emit.offset-syncs.enabled"] == {"type": "boolean"}
    assert snapshot["keys"]["source"]["transforms.<alias>.negate"]["typed"]
