"""Output as a pipe gets it: no colours, and a console that no test before has made for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mm2mgr.output import console


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for key in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(key, raising=False)
    console._console.cache_clear()
    yield
    console._console.cache_clear()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return the lines on stdout so far, without the blanks that align columns."""
    return lambda: [line.rstrip() for line in capsys.readouterr().out.splitlines()]
