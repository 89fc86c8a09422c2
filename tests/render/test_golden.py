"""Folders of files: in.yaml, and in out.json the connectors it must render to. MM2MGR_UPDATE_GOLDEN=1 rewrites out.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.render import render
from mm2mgr.spec.files import load

CASES = sorted(path.parent for path in (Path(__file__).parent / "golden").glob("*/in.yaml"))


def rendered(case: Path) -> dict[str, object]:
    connectors = render(expand(load([case / "in.yaml"])))
    return {
        one.name: {"connect": one.connect, "flows": list(one.flows), "config": dict(one.config)} for one in connectors
    }


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
