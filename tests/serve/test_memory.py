"""Many real looks at the fake estate: what the process holds does not grow.

MM2MGR_LOOKS=N takes N looks instead of the gate's 60; 100000 take about twenty minutes.
"""

from __future__ import annotations

import gc
import os
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.cli import prepare_process
from mm2mgr.live.questions import NewestRecord, TopicRetention
from mm2mgr.operations import ServeOrder, Workspace
from mm2mgr.operations.estate_view import EstateLook
from mm2mgr.operations.serve import EstateWatch
from mm2mgr.operations.status import LagOptions, report
from mm2mgr.serve.metrics import exposition
from tests.observe.estate import Estate, estate
from tests.serve.estate import SURVEY

LOOKS = int(os.environ.get("MM2MGR_LOOKS", "60")) // 3
# Tracing counts single bytes and makes a look four times slower; the peak of the process costs nothing.
IS_TRACED = LOOKS < 1000
MOST_GROWN_BYTES = 50_000 if IS_TRACED else 4_000_000


def held_bytes() -> int:
    """Return the memory that Python's objects take now, or the most that the process ever took."""
    gc.collect()
    if IS_TRACED:
        return tracemalloc.get_traced_memory()[0]
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def look_at(made: Estate) -> EstateLook:
    """Look through real HTTP and the memory file, half a minute later than the last time, while records arrive."""
    made.now += 30
    made.log(0, int(made.now - 1_000_000))
    seen = made.look()
    # What the fakes log is theirs.
    kafka = made.kafka
    for log in (made.connect.requests, kafka.asked, kafka.asked_settings, kafka.asked_groups, kafka.asked_acls):
        log.clear()
    flows = made.topology.flows
    found = report(made.topology, seen, flows, LagOptions(store=made.memory_file.parent / "samples"))
    return EstateLook(made.now, made.now, seen.status, found, {one.flow: one.total for one in found.flows})


@pytest.mark.usefixtures("no_kafka", "rare_collection")
def test_memory_is_flat_over_real_looks_at_a_fake_estate(tmp_path: Path) -> None:
    with estate(tmp_path) as made:
        watch = EstateWatch(
            Workspace((tmp_path,)), ServeOrder(), look=lambda *_: look_at(made), survey=lambda *_: SURVEY
        )
        sizes = []
        if IS_TRACED:
            tracemalloc.start()
        try:
            for _ in range(3):
                for _ in range(LOOKS):
                    watch.look_once()
                    exposition(watch.view, 0.0)
                sizes.append(held_bytes())
        finally:
            tracemalloc.stop()
        assert (watch.view.looks, watch.view.failed_looks, watch.view.error) == (3 * LOOKS, 0, "")
        print(f"{3 * LOOKS} looks: {', '.join(f'{size:,}' for size in sizes)} bytes after each third")
        assert sizes[2] - sizes[1] < MOST_GROWN_BYTES, sizes


@pytest.fixture
def rare_collection() -> Iterator[None]:
    """Garbage is collected as rarely as in the process of a command."""
    before = gc.get_threshold()
    prepare_process()
    yield
    gc.set_threshold(*before)


@pytest.fixture
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is behind the fake estate: what `lag` reads beside the look is not there."""

    monkeypatch.setattr(TopicRetention, "ask_all", lambda _, questions: {one: {} for one in questions})
    monkeypatch.setattr(NewestRecord, "ask_all", lambda _, questions: dict.fromkeys(questions))
