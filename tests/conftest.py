"""What every test starts from: Ctrl-C works (a run in a shell's background inherits it ignored, and so would its children), no secrets are known."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from mm2mgr import secrets

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each run of the program begins without secrets that it has seen."""
    secrets.forget()
    yield
    secrets.forget()
