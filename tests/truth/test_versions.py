"""Versions as workers report them, vendors' numbering included."""

from __future__ import annotations

import pytest

from mm2mgr.truth.keys import kafka_version


@pytest.mark.parametrize(
    ("text", "kafka"),
    [
        ("4.3.1", "4.3.1"),
        ("3.9", "3.9"),
        (" 3.6.2\n", "3.6.2"),
        ("4.1.0-SNAPSHOT", "4.1.0"),
        ("3.9.1.redhat-00001", "3.9.1"),
        ("2.8.2.amzn.1", "2.8.2"),
        ("7.6.0-ccs", "3.6"),
        ("7.9.2-ce", "3.9"),
        ("8.1.0-ccs", "4.1"),
        ("6.2.15-ccs", "2.8"),
        ("5.5.1-ccs", "2.5"),
    ],
)
def test_the_kafka_version_behind_a_version(text: str, kafka: str) -> None:
    assert kafka_version(text) == kafka


@pytest.mark.parametrize("text", ["", "newest", "4", "v4.3", "4.3.1beta", "7.6.0", "12.0.0-ccs", "unknown"])
def test_what_cannot_be_placed_is_not_guessed(text: str) -> None:
    assert kafka_version(text) is None
