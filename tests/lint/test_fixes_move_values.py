"""A fix that moves a value to another key takes it there only where that key takes it, and carries no fault of it along."""

from __future__ import annotations

import pytest

from mm2mgr.connectors import ConnectorType
from mm2mgr.lint.findings import Finding
from mm2mgr.lint.subject import Subject, WorkerFacts
from tests.lint import made

OF_VALUES = {
    "invalid-value",
    "pattern-matches-nothing",
    "bad-pattern",
    "bad-address",
    "refused-by-code",
    "class-refused",
}
VALUES = (
    *('"debug-.*,x"', "'debug'", '"debug-.*","x"', "debug-.*;x", "debug-.* x", "[a, b]", "a/.*", "!x", "", " "),
    *(
        "abc",
        "-5",
        "TRUE",
        "NONE",
        "10 MB",
        "99999999999999999999",
        "${file:/a:b}",
        "{{ value }}",
        "read_committed",
        "a,,a",
    ),
)
KEYS: tuple[tuple[ConnectorType, str], ...] = (
    *(("source", key) for key in ("topics.blacklist", "config.properties.blacklist", "topics.whitelist", "topic")),
    *(("source", key) for key in ("whitelist", "topicsPattern", "topicsExcludePattern", "A->B.topics", "topcis")),
    *(("source", key) for key in ("A.bootstrap.servers", "source.bootstrap.servers", "src.kafka.bootstrap.servers")),
    *(("source", key) for key in ("source.cluster.max.poll.records", "max.poll.records", "linger.ms", "producer.acks")),
    *(("source", key) for key in ("target.producer.batch.size", "consumer.override.isolation.level", "task.max")),
    *(("source", key) for key in ("topic.rename.format", "offset-syncs.topic.locaton", "producer.compression.type")),
    *(("checkpoint", key) for key in ("groups.blacklist", "group", "groups.include", "groupsPattern")),
)


def faults(subject: Subject) -> set[tuple[str, str]]:
    return {(each.rule, each.key or each.spot.key) for each in made.findings(subject) if each.rule in OF_VALUES}


def after(subject: Subject, finding: Finding) -> Subject:
    """Return a connector with one fix."""
    assert finding.hit
    config = dict(subject.config)
    for edit in finding.hit.edits:
        config.pop(edit.key, None)
        if edit.value is not None:
            config[edit.key] = edit.value
    return subject.with_config(config)


@pytest.mark.parametrize(("type_", "key"), KEYS)
def test_no_fix_carries_a_fault_of_the_value_along(type_: ConnectorType, key: str) -> None:
    version = "3.9.1" if key == "topics.blacklist" else "4.3.1"
    for value in VALUES:
        subject = made.connector(type_, {"topics": None, key: value}, worker=WorkerFacts(version=version))
        before = faults(subject)
        for finding in made.findings(subject):
            moved = {edit.key for edit in finding.hit.edits if edit.value is not None} if finding.hit else set()
            if key == (finding.key or finding.spot.key) and moved:
                new = {each for each in faults(after(subject, finding)) - before if each[1] in moved}
                assert not new, f"{key}={value}: {finding.fix}"


@pytest.mark.parametrize("key", ["topics.blacklist", "config.properties.blacklist"])
def test_quotes_stay_behind_when_a_list_moves(key: str) -> None:
    subject = made.source({key: '"debug-.*,tmp.*"'}, worker=WorkerFacts(version="4.3.1"))
    [finding] = [each for each in made.findings(subject) if each.rule == "key-removed"]
    assert finding.fix.startswith(f"write {key.replace('blacklist', 'exclude')}=debug-.*,tmp.*")
