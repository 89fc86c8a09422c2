"""How many examples a property test draws: a sample in the gate, the same at each run; with MM2MGR_EXAMPLES=N, N new ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]


def draw_examples(sample: int) -> Callable[[Any], Any]:
    """Decorate a property test that draws `sample` examples unless the environment asks for another number."""
    asked = os.environ.get("MM2MGR_EXAMPLES")
    return settings(
        max_examples=int(asked or sample), derandomize=asked is None, deadline=None, suppress_health_check=SLOW
    )
