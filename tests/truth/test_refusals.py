"""Lint against recorded answers of Kafka's own classes of four lines: `refused.json`, by `python -m tools.kafka_refusals.compare --golden 70 --seed 3`."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tools.kafka_refusals.cases import healthy
from tools.kafka_refusals.compare import GOLDEN, RELEASES, SAYING, errors, rules

CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kafka']}-{case['type']}")
def test_lint_refuses_what_kafka_refused(case: dict[str, Any]) -> None:
    config = {**healthy(case["type"]), **case["changes"]}
    told = errors(case["type"], config, case["kafka"], rules())
    if case["refused"]:
        assert told, case["refused"]
    else:
        assert not [text for rule, text in told if rule in SAYING]


def test_the_sample_holds_both_kinds_of_each_line() -> None:
    counts = Counter((case["kafka"], bool(case["refused"])) for case in CASES)
    assert counts.keys() == {(release, refused) for release in RELEASES for refused in (True, False)}
    assert min(counts.values()) >= 20
