"""Folders of files: in.yaml, and in out.json the connectors it must render to. MM2MGR_UPDATE_GOLDEN=1 rewrites out.json.

`plain` has whole configs; the others what differs from its connector of the same class, null where a key is not there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.parent for path in GOLDEN.glob("*/in.yaml"))
PLAIN = {
    connector["config"]["connector.class"]: connector["config"]
    for connector in json.loads((GOLDEN / "plain" / "out.json").read_text(encoding="utf-8")).values()
}


def rendered(case: Path) -> dict[str, object]:
    connectors = render(expand(load([case / "in.yaml"])))
    return {
        one.name: {
            "connect": one.connect,
            "flows": list(one.flows),
            "config": dict(one.config) if case.name == "plain" else beyond_plain(dict(one.config)),
        }
        for one in connectors
    }


def beyond_plain(config: dict[str, str]) -> dict[str, str | None]:
    plain = PLAIN[config["connector.class"]]
    return {key: config.get(key) for key in config | plain if config.get(key) != plain.get(key)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case: Path) -> None:
    found, file = rendered(case), case / "out.json"
    if os.environ.get("MM2MGR_UPDATE_GOLDEN") == "1":
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert found == expected
    assert list(found) == list(expected)  # apply goes in this order


def test_there_are_cases() -> None:
    assert len(CASES) >= 10
    assert len(PLAIN) == 3
