"""Fixes as edits: one truth for the text of a fix and for the machine that applies it."""

from __future__ import annotations

import pytest

from mm2mgr.lint.findings import Edit, client_hit, connector_hit, edit_hit, line_key, removal_hit
from mm2mgr.lint.subject import Form
from tests.lint import made


@pytest.mark.parametrize(
    ("form", "fix"),
    [
        ("connect", "write producer.override.acks=all"),
        ("dedicated", "write B.producer.acks = all"),
        ("tree", "write record_producer: {acks: all}"),
    ],
)
def test_text_and_edit_are_of_one_source(form: Form, fix: str) -> None:
    hit = client_hit(made.source(form=form), "record producer", "acks", "all", "why")
    assert (hit.fix, hit.edits) == (fix, (Edit("producer.override.acks", "all"),))


def test_a_value_that_people_fill_in_is_no_edit() -> None:
    hit = connector_hit(made.source(), "groups", "…", "why", ", or delete one")
    assert (hit.fix, hit.edits) == ("write groups=…, or delete one", ())


def test_a_removal_and_a_key_that_moves() -> None:
    subject = made.source({"linger.ms": "5"})
    assert removal_hit(subject, "linger.ms", "why").fix == "remove linger.ms"
    moved = edit_hit(subject, "why", [Edit("producer.override.linger.ms", "5"), Edit("linger.ms", None)])
    assert moved.fix == "write producer.override.linger.ms=5 instead of linger.ms"


def test_no_secret_in_the_text_or_the_repr_of_an_edit() -> None:
    key = "producer.override.sasl.jaas.config"
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="s3cr3t";'
    hit = edit_hit(made.source(), "why", [Edit(key, jaas)])
    assert hit.edits[0].value == jaas
    assert "s3cr3t" not in f"{hit}"


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("source.consumer.max.poll.records", "A.consumer.max.poll.records"),
        ("target.cluster.security.protocol", "B.security.protocol"),
        ("producer.override.security.protocol", "B.security.protocol"),
        ("producer.override.linger.ms", "B.producer.linger.ms"),
        ("source.producer.max.block.ms", "A.producer.max.block.ms"),
        ("topics", "A->B.topics"),
    ],
)
def test_a_key_of_a_connector_is_a_line_of_mm2_properties(key: str, line: str) -> None:
    assert line_key(made.source(form="dedicated"), key) == line
