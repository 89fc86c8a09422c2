"""A folder of its own for each test, the command in it, two fake Connect clusters, and brokers without a JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.evidence import task_rates
from mm2mgr.output import console
from tests.clock import go_by
from tests.kafka.conftest import closed_port, mock_cluster
from tests.plan.site import Site, running
from tests.samples.sampler import Clock

from .command import Command, environment

__all__ = ["closed_port", "mock_cluster"]


@pytest.fixture
def mm2mgr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    wanted = environment(tmp_path)
    for key in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "MM2MGR_CLUSTERS", "MM2MGR_TEMPLATES"):
        monkeypatch.delenv(key, raising=False)
    for key in ("MM2MGR_CACHE", "MM2MGR_STATE"):
        monkeypatch.setenv(key, wanted[key])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    console._console.cache_clear()  # another test may have made it for a terminal
    yield Command(tmp_path / "work", monkeypatch, capsys)
    console._console.cache_clear()


@pytest.fixture
def site(mm2mgr: Command) -> Iterator[Site]:
    """Two fake Connect clusters, east and west, and the tree in `clusters` that names them."""
    with running(mm2mgr.tree) as made:
        made.declare()
        yield made


@pytest.fixture
def unwaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes for `sample` when it waits for its next round, and then at once: no round is late on a busy machine."""
    clock = Clock(time.time_ns() // 1_000_000, rounds=1_000_000)
    monkeypatch.setattr(task_rates, "time", clock)
    go_by(clock, monkeypatch)
