"""The two fake Connect clusters of the command's tests, and their tree in `clusters` of the working folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plan.site import Site, running


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    for variable in ("MM2MGR_STATE", "MM2MGR_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    with running(tmp_path / "clusters") as made:
        made.declare()
        yield made
