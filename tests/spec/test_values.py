"""Values of the wrong kind: types, durations, rates, shares, patterns, addresses. And the right ones, with what they mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.spec.scalars import bytes_per_second, check_pattern, duration_seconds, java_list, matcher, share
from mm2mgr.text import rate_text
from tests.spec.trees import BASE, FLOW, complaint, expanded


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x{1,2}", "Connect splits lists at commas"),
        ("app[.", "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
        ("x{a", "write a literal {"),
        ("(?i)app", "write (?i:...)"),
        ("(?P<n>app)", "Python syntax"),
        ("[a-z&&[^b]]", "write alternatives"),
        ("[a[bc]]", "write alternatives"),
        (r"\\[a[bc]]", "write alternatives"),
        ("[a||b]", "put a backslash before each literal character"),
        (" ", "an empty pattern matches nothing"),
    ],
)
def test_a_pattern_that_connect_would_misread_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        check_pattern(text)
    assert says in complaint(tmp_path, x=f"{BASE}{FLOW}".replace("[t]", f"['{text}']"))


@pytest.mark.parametrize("text", ["x{1,2}", "x{1,}"])
def test_a_comma_inside_braces_is_refused_in_a_plain_string_too(tmp_path: Path, text: str) -> None:
    assert "must not contain one" in complaint(tmp_path, x=f"{BASE}{FLOW}".replace("[t]", f"'{text}'"))


def test_a_string_of_names_is_a_list(tmp_path: Path) -> None:
    (flow,) = expanded(tmp_path, x=f"{BASE}{FLOW}".replace("[t]", '"t1, t2"')).flows
    assert flow.settings.topics.include == ["t1", "t2"]


@pytest.mark.parametrize(
    ("pattern", "matches", "does_not"),
    [
        ("app.orders", "app.orders", "appXorders"),  # a plain name: dots are dots
        ("app.*", "appXorders", "xapp"),
        (r"\Qa.b\E.*", "a.bc", "aXbc"),
        (r"\p{Lower}+", "abc", "aBc"),
        (r"[\p{Lower}_]+[\[&]", "a_b[", "aBc["),
        (r"\Q[a[\E.*", "[a[b", "[a"),
        ("(?i:app).x", "APP.x", "app.X"),
        ("a{2}", "aa", "a"),
    ],
)
def test_patterns_match_whole_names_as_java_does(pattern: str, matches: str, does_not: str) -> None:
    carried = matcher([check_pattern(pattern)], [])
    assert carried(matches)
    assert not carried(does_not)
    assert not matcher([pattern], [pattern])(matches)


def test_no_pattern_matches_nothing() -> None:
    assert not matcher([], [])("x")
    assert java_list(["a.b", "c.*"]) == r"a\.b,c.*"


@given(st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True), st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True))
def test_a_plain_name_matches_itself_only(name: str, other: str) -> None:
    assert matcher([name], [])(other) == (name == other)


@pytest.mark.parametrize(
    ("text", "seconds"), [("80ms", 0.08), ("30s", 30), ("10min", 600), ("10 m", 600), ("2h", 7200)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10 MB/s", 1e7), ("1Gbit/s", 1.25e8), ("500 kB/s", 5e5), ("1 MiB/s", 2**20), ("20Mbit/s", 2.5e6)],
)
def test_rates(text: str, rate: float) -> None:
    assert bytes_per_second(text) == rate


@pytest.mark.parametrize(
    ("number", "sent"), [("0", "0"), ("0.1", "0.1"), ("1000", "1000"), ("'010'", "010"), ("'1:30'", "1:30")]
)
def test_numbers_that_mean_what_they_look_like_pass(tmp_path: Path, number: str, sent: str) -> None:
    text = f"{BASE}{FLOW}    record_producer: {{linger.ms: {number}}}\n"
    assert expanded(tmp_path, x=text).flows[0].client("record_producer")["linger.ms"] == sent


@pytest.mark.parametrize("text", ["10", "10 MB", "10 Mb/s", "10 kb/s", "fast", "-1 MB/s", 10, True])
def test_what_is_no_rate(text: object) -> None:
    with pytest.raises(ValueError, match="a rate "):
        bytes_per_second(text)


def test_shares() -> None:
    assert share("70%") == share(0.7) == share("0.7") == pytest.approx(0.7)
    for wrong in ("0%", "101%", 0, 7, "x", True):
        with pytest.raises(ValueError, match="a share"):
            share(wrong)


@given(st.floats(1, 1e12))
def test_a_printed_rate_reads_back_within_its_rounding(rate: float) -> None:
    number, unit = rate_text(rate).split()
    assert bytes_per_second(f"{number} {unit}") == pytest.approx(rate, rel=0.06, abs=0.51)


@pytest.mark.parametrize("written", ["a1:9092", '"a1:9092, a2:9092"', '["${file:/x:y}"]', '["[::1]:9092"]'])
def test_addresses_may_be_one_many_or_a_placeholder(tmp_path: Path, written: str) -> None:
    flow = expanded(tmp_path, x=(BASE + FLOW).replace("[a1:9092]", written)).flows[0]
    assert flow.source.client["bootstrap.servers"].origin.where.endswith("x.yaml:3")
