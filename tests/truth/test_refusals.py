"""Lint against recorded answers of Kafka's own classes of four lines: `refused.json`, by `python -m tools.kafka_refusals.compare --golden 70 --seed 33`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from mm2mgr.lint.rules import RULES
from tools.kafka_refusals.cases import healthy
from tools.kafka_refusals.compare import ASKED, GOLDEN, RELEASES, SAYING, errors, rules

CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
QUESTIONS: list[dict[str, Any]] = json.loads(ASKED.read_text(encoding="utf-8"))
"""Cases of Kafka's tests (`from` names them), and some that people made up: `changes` to a healthy connector. `refused` is what Kafka's
classes answer (all four releases, or some), by `python -m tools.kafka_refusals.compare --asked`. `runs` are the rules with an error
about a config that Kafka takes and that does not do what it should; `judged` is false where a class of somebody else decides."""
ADDRESSES = {f"{key}.bootstrap.servers": f"{key}:9092" for key in ("source.cluster", "target.cluster")}


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


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: ",".join(question["changes"]))
def test_lint_answers_as_kafka_does(question: dict[str, Any]) -> None:
    """What Kafka refuses is an error of some rule; of what it takes there is no error but those of effects that it does not look at."""
    config = {**healthy(question["type"]), **ADDRESSES, "producer.override.bootstrap.servers": "target.cluster:9092"}
    refused = question["refused"]
    for release in RELEASES:
        told = errors(question["type"], config | question["changes"], release, RULES)
        if refused.get(release) if isinstance(refused, dict) else refused:
            assert told or not question.get("judged", True), (release, refused)
        else:
            assert {rule for rule, _ in told} <= {*question.get("runs", ())}, (release, told)


def test_what_lint_does_not_judge_is_a_class_of_somebody_else() -> None:
    unjudged = [question for question in QUESTIONS if not question.get("judged", True)]
    assert len(unjudged) < len(QUESTIONS) / 50
    assert all(re.search(r"lass|LoginModule|not be found", str(question["refused"])) for question in unjudged)
