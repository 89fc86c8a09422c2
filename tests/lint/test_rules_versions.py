"""Rules about the workers' Kafka version."""

from __future__ import annotations

from mm2mgr.lint.subject import WorkerFacts

from . import made


def test_a_known_bug_is_reported_once_per_file() -> None:
    pairs = [made.source(name=f"s{number}", worker=WorkerFacts(version="4.1.1")) for number in range(3)]
    [bug] = made.hits("known-bug", *pairs)
    assert bug.message.startswith("KAFKA-19012 in Kafka 4.1.1 (fixed after 3.9.1 and 4.0.1 and 4.1.1): ")
    assert [subject.name for subject in bug.subjects] == ["s0", "s1", "s2"]
