"""The browser in which tests look at pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.estate import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The Chromium of this machine; whoever asks for it skips where there is none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
