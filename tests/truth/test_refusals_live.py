"""Lint against Kafka's own classes: what they refuse of drawn configs is an error of lint, what they take is none.

A sample of `python -m tools.kafka_refusals.compare`, which draws 120 000.
"""

from __future__ import annotations

import pytest

from tests.examples import sampled
from tools.kafka_refusals.cases import healthy
from tools.kafka_refusals.compare import cases, differences, rules
from tools.kafka_refusals.kafka import asking

pytestmark = pytest.mark.live


@sampled("drawn_of", [("4.3.1", 400, 80)], [("3.6.2", 400, 80)], ids=lambda drawn_of: drawn_of[0])
def test_lint_refuses_what_kafka_refuses(drawn_of: tuple[str, int, int]) -> None:
    release, pairs, whole = drawn_of
    drawn = list(cases(release, 7, pairs, whole))
    with asking(release) as kafka:
        found = [str(each) for each in differences(kafka, release, drawn, rules()) if each and each.judged]
        assert not found, "\n".join(found)
        # Without its rules lint tells of nothing, so every refusal is a difference: the comparison can fail.
        alone = [each for each in differences(kafka, release, drawn[:40], ()) if each]
        assert len(alone) > 5
        assert kafka.refused([(type_, healthy(type_)) for type_ in ("source", "checkpoint", "heartbeat")]) == [()] * 3
