"""Properties text is read as Java reads it: escapes, continued lines, separators, comments, with lines and raw texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mm2mgr.errors import SpecError
from mm2mgr.formats import properties
from mm2mgr.formats.properties import Entry
from mm2mgr.lint.reading import silences_of

TEXTS = [
    ("a=b", {"a": "b"}),
    ("a = b ", {"a": "b "}),
    ("  a\t:\tb", {"a": "b"}),
    ("a b c", {"a": "b c"}),
    ("a  =  = b", {"a": "= b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("= b", {"": "b"}),
    ("# a=b\n! c=d\n  # e=f\ng=h", {"g": "h"}),
    ("a=b\\\n    c", {"a": "bc"}),
    ("a=b\\\r\n    c\rd=e", {"a": "bc", "d": "e"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\n# no comment", {"a": "b# no comment"}),
    ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    ("a=b\\", {"a": "b"}),
    ("\\\n# comment\na=b", {"a": "b"}),
    ("a\\:\\=\\ b\\#=c", {"a:= b#": "c"}),
    ("a=\\t\\n\\r\\f\\u00e4\\z\\.", {"a": "\t\n\r\fäz."}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b # c", {"a": "b # c"}),
    ("A->B.enabled = true", {"A->B.enabled": "true"}),
    ("A -> B.enabled = true", {"A": "-> B.enabled = true"}),
    ("A=>B.enabled = true", {"A": ">B.enabled = true"}),
    ("\n \t\f\n\n", {}),
]


def values(text: str) -> dict[str, str]:
    return {key: entry.value for key, entry in properties.last(properties.read(text, "f")).items()}


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_reading(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_lines_and_raw_texts() -> None:
    entries = properties.read("# one\n\na = x\\\n    y\n\nb: foo\\\\.bar\n", "f")
    assert [(entry.key, entry.line, entry.raw) for entry in entries] == [("a", 3, "xy"), ("b", 6, "foo\\\\.bar")]


def test_a_broken_escape_is_an_error_with_its_line() -> None:
    with pytest.raises(SpecError, match=r"f:2:1: .*four hexadecimal digits") as raised:
        properties.read("a=b\npassword=secret\\u12", "f")
    assert "secret" not in str(raised.value)


def escaped(text: str, *, key: bool) -> str:
    """Write as Properties.store does, and without need at times: any sign may be escaped as its number."""
    signs = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "=": "\\=", ":": "\\:"}
    written = "".join(
        signs.get(sign, sign if " " <= sign <= "~" and sign not in "#!" else f"\\u{ord(sign):04x}") for sign in text
    )
    return written.replace(" ", "\\ ") if key else f"\\{written}" if written.startswith(" ") else written


# No surrogates and nothing beyond \uffff: Java writes those as two.
anything = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(anything, anything, max_size=6), st.sampled_from(["=", ":", " = ", "\t:  "]))
@example({"": "", "a": " \\"}, "=")
def test_what_is_written_is_read_again(config: dict[str, str], separator: str) -> None:
    text = "\n".join(f"{escaped(key, key=True)}{separator}{escaped(config[key], key=False)}" for key in config)
    assert values(text) == config


@pytest.mark.spark
def test_java_reads_the_same() -> None:
    """Hundreds of texts of the signs that matter, through java.util.Properties itself."""
    from mm2mgr.sandbox.runtime import find_java
    from tools.kafka_keys.definitions import gateway

    def named(config: dict[str, str]) -> dict[str, str]:
        return {
            key: value for key, value in config.items() if key
        }  # of a lone backslash at the end Java makes an entry

    texts = [text for text, _ in TEXTS]
    with gateway(find_java().java, []) as opened:
        jvm = opened.jvm

        @settings(max_examples=300, deadline=None)
        @given(st.text("ab \t\f\\=:#!\n\r.é", max_size=24))
        def agree(text: str) -> None:
            java = jvm.java.util.Properties()
            java.load(jvm.java.io.ByteArrayInputStream(text.encode("iso-8859-1")))
            told = {str(key): str(java.getProperty(key)) for key in java.stringPropertyNames()}
            assert named(values(text)) == named(told)

        for text in texts:
            agree.hypothesis.inner_test(text)
        agree()


@pytest.mark.parametrize(
    ("raw", "doubled"),
    [
        (r"foo\.bar", r"foo\\.bar"),
        (r"foo\\.bar", None),
        (r"foo\\\.bar", None),  # an escaped backslash and a needless one: the dot is escaped as it was meant
        (r"\d+,a\.b", r"\\d+,a\\.b"),
        (r"C:\kafka", r"C:\\kafka"),
        (r"a\nb\tc A", None),
        (r"username=\"kafka\"\;", None),
        (r"x\-y\=z", None),
    ],
)
def test_lost_backslashes(raw: str, doubled: str | None) -> None:
    entry = properties.read(f"k={raw}", "f")[0]
    assert properties.lost_backslashes(entry) == doubled
    if doubled:
        again = properties.read(f"k={doubled}", "f")[0]
        assert properties.lost_backslashes(again) is None
        assert again.value == properties.meant_value(entry)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true # on", "true"),
        ("3 // three", "3"),
        ("a #", "a"),
        ("a#b", "a#b"),
        ("http://x", "http://x"),
        ("a #b", "a #b"),  # may be a password
        ('x password="a # b";', 'x password="a # b";'),
        ('x password="a # b"; # prod', 'x password="a # b";'),
        ("# all", "# all"),
    ],
)
def test_remarks(value: str, meant: str) -> None:
    assert properties.meant_value(Entry("k", value, value, 1)) == meant


def test_long_runs_of_blanks_are_read_as_fast_as_anything() -> None:
    value = "a" + " " * 200_000 + "b"
    started = time.process_time()
    assert properties.meant_value(Entry("k", value, value, 1)) == value
    assert time.process_time() - started < 5  # a search from each blank takes a minute


def test_silences_stand_at_the_end_of_their_comment() -> None:
    text = "# mm2mgr: silence dead-key kept for 2.7\n! mm2mgr: silence bare-security\n# and more\na=b\n# mm2mgr silence x\n"
    found = silences_of(text, "f")
    assert [(each.rule, each.reason, each.spot.line) for each in found] == [
        ("dead-key", "kept for 2.7", 3),
        ("bare-security", "", 3),
    ]


def test_a_silence_behind_a_value_is_one_in_yaml_only() -> None:
    text = "key: value  # mm2mgr: silence sync-acls grün\n"
    assert silences_of(text, "f") == ()
    assert [(each.rule, each.reason) for each in silences_of(text, "f", inline=True)] == [("sync-acls", "grün")]
    latin = text.encode().decode("iso-8859-1")
    assert silences_of(latin, "f", inline=True)[0].reason == "grün"
