"""Rates in words: three digits in decimal units, whatever their size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.text import bytes_text, count_text, rate_text, records_rate_text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.6, "1 kB/s"),
        (26_600_000.0, "26.6 MB/s"),
        (1e12, "1 TB/s"),
        (1.5e15, "1.5 PB/s"),
        (2e20, "200 EB/s"),
        (1e24, "1e+24 B/s"),
    ],
)
def test_a_rate_of_bytes_has_the_unit_that_fits(rate: float, text: str) -> None:
    assert rate_text(rate) == text
    assert bytes_text(rate) == text.removesuffix("/s")


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0"), (12.34, "12.3"), (1234.0, "1.23 k"), (1e12, "1 T"), (1e24, "1e+24")]
)
def test_a_rate_of_records_has_the_same_digits(rate: float, text: str) -> None:
    assert count_text(rate) == text
    assert records_rate_text(rate) == f"{text} records/s"


@given(st.floats(0, 1e30))
def test_no_rate_is_long(rate: float) -> None:
    assert len(rate_text(rate)) <= len("9.99 MB/s") + 1
