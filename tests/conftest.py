"""What every test starts from: Ctrl-C works (a run in a shell's background inherits it ignored, and so would its children), no secrets are known."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from mm2mgr import secrets

# No test is timed: on a busy machine a single example may take any time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each run of the program begins without secrets that it has seen."""
    secrets.forget()
    yield
    secrets.forget()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules that start real Kafka or Spark first: they mostly wait, and the others run beside them."""
    real = {item.path for item in items if any(item.iter_markers("live")) or any(item.iter_markers("spark"))}
    items.sort(key=lambda item: item.path not in real)
