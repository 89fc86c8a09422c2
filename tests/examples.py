"""How many examples a property test draws: a sample in the gate, the same at each run; with MM2MGR_EXAMPLES=N, N new ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]


RUN = {"is matrix": False, "leaves matrix out": False}
"""Whether this run is `make test-matrix`, or one with `-m "not matrix"`: from tests/conftest.py before any module of tests is imported."""


def draw_examples(sample: int, many: int = 0) -> Callable[[Any], Any]:
    """Decorate a property test that draws `sample` examples unless the environment asks for another number.

    With `many`, `make test-matrix` runs the test too, and draws so many.
    """
    asked = os.environ.get("MM2MGR_EXAMPLES")
    is_long_form = bool(many) and RUN["is matrix"]
    drawn = settings(
        max_examples=int(asked or (many if is_long_form else sample)),
        derandomize=asked is None,
        deadline=None,
        suppress_health_check=SLOW,
    )
    return lambda test: pytest.mark.matrix(drawn(test)) if is_long_form else drawn(test)


def sampled(
    argument: str, sample: Iterable[Any], many: Iterable[Any], ids: Callable[[Any], str] | None = None
) -> pytest.MarkDecorator:
    """Run a test with the values of `sample` in the gate, and with those of `many` that are not among them in `make test-matrix`.

    Of the latter no tests are made where `-m` leaves them out: those of all modules are thousands, in each worker of pytest-xdist.
    """
    values = list(sample)
    left = () if RUN["leaves matrix out"] else many
    more = [pytest.param(value, marks=pytest.mark.matrix) for value in left if value not in values]
    return pytest.mark.parametrize(argument, [*values, *more], ids=ids)
