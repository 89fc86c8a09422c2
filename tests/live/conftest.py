"""Brokers and workers for a module: started side by side, killed by their own ids also when a test fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mm2mgr.sandbox.runtime import Runtime, kafka_runtime
from mm2mgr.sandbox.server import Server, start_all

from .command import Tree
from .seen import close_clients

# Quick to flush, and quick to notice that a worker of the group is dead (10 s by default).
WORKER = {"offset.flush.interval.ms": "1000", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    return kafka_runtime()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "clusters")


@contextmanager
def serving(*waves: list[Server]) -> Iterator[None]:
    """Start the servers of each wave at once, one wave after the other; end all of them on the way out."""
    with ExitStack() as stack:
        for wave in waves:
            for server in wave:
                stack.callback(server.kill)
            start_all(wave)
        stack.callback(close_clients)
        yield
