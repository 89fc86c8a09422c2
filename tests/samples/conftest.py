from collections.abc import Iterator

import pytest
from kafka.conftest import closed_port, mock_cluster
from responses import RequestsMock

__all__ = ["closed_port", "mock_cluster"]


@pytest.fixture
def wire() -> Iterator[RequestsMock]:
    """What answers HTTP requests inside the process; not every answer must be asked for."""
    with RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock
