"""What a template fills in, and what only looks like it."""

from __future__ import annotations

import pytest

from mm2mgr.formats.templates import is_line_of_template, template_in, templates


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("harbor.{{ namespace }}.svc:9092", "{{ namespace }}"),
        ("{% if x %}a{% endif %}", "{% if x %}"),
        ("<%= @servers %>", "<%= @servers %>"),
        ("<BROKER>:9092", "<BROKER>"),
        ("<your broker:9092>", "<your broker:9092>"),
        ("{TARGET CLUSTER BROKERS ADDRESS}", "{TARGET CLUSTER BROKERS ADDRESS}"),
        ("${CA_PASS}", "${CA_PASS}"),
        ("${HOST:-localhost}:9092", "${HOST:-localhost}"),
        ("$BROKERS", "$BROKERS"),
        ("$(KAFKA_PASSWORD)", "$(KAFKA_PASSWORD)"),
    ],
)
def test_a_template_is_recognised(value: str, part: str) -> None:
    assert template_in(value) == part


@pytest.mark.parametrize(
    "value",
    [
        *(
            "${file:/etc/secrets:password}",
            "${env:NAME}",
            "(?<name>a|b)-eu",
            "(?<=a)b",
            "(?<!a)b",
            "orders$",
            "^(a|b)$",
        ),
        *("[a-z]{2}", r"\\p{ASCII}+", r"\\x{ABC}", "a<b", "", '{"a": {"b": 1}}', "a1:9092,b1:9092"),
    ],
)
def test_what_kafka_reads_itself_is_none(value: str) -> None:
    assert template_in(value) == ""


def test_variables_of_transformations_are_their_own() -> None:
    config = {"transforms.day.topic.format": "${topic}-${timestamp}", "topics": "${TOPICS}", "name": "m"}
    assert templates(config) == {"topics": "${TOPICS}"}


def test_lines_of_the_engine() -> None:
    assert is_line_of_template("{%")
    assert is_line_of_template("{{")
    assert not is_line_of_template("{{source}}.bootstrap.servers")
    assert not is_line_of_template("clusters")
