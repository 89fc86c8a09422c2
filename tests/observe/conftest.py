"""The small estate as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observe.estate import Estate, estate


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Estate]:
    with estate(tmp_path) as served:
        yield served
