"""The flow of the demo's story tests: the demo's own tree, with addresses that are never asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.expand import expand
from mm2mgr.sandbox.folder import Endpoints, write_tree
from mm2mgr.spec.files import load
from mm2mgr.topology import Flow

ENDPOINTS = Endpoints(
    {"dc1": "127.0.0.1:1", "dc2": "127.0.0.1:2", "agg": "127.0.0.1:3"}, {"east": "http://127.0.0.1:4"}, {"east": "agg"}
)


@pytest.fixture
def flows(tmp_path: Path) -> list[Flow]:
    """Return logging:dc1->agg and logging:dc2->agg."""
    return list(expand(load([write_tree(tmp_path / "tree", ENDPOINTS)])).flows)
