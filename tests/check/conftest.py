"""Two brokers that deny by default, started once for the live tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme

from mm2mgr.sandbox.runtime import Runtime
from tests.fake_connect import FakeConnect
from tests.fake_connect import serving as serving_connect
from tests.kafka.conftest import closed_port, mock_cluster
from tests.live.conftest import runtime, serving

from .brokers import ALL, World, certified, deny_by_default

__all__ = ["closed_port", "mock_cluster", "runtime"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rights")
    authority = trustme.CA()
    tls = certified(authority, "127.0.0.1")
    brokers = {name: deny_by_default(name, folder, runtime, tls) for name in ("A", "B")}
    with serving(list(brokers.values())), serving_connect(FakeConnect()) as url:
        made = World(brokers, url, folder / "clusters", authority)
        made.tree()
        made.add(ALL)
        yield made
