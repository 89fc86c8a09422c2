"""How names in mm2mgr read: what tools/names.py measures may fall and never rise; its table is tightened by a command."""

import ast
from pathlib import Path

import pytest

from tools import names


def test_no_folder_has_more_fillers_bare_function_names_or_long_lines_than_the_table_allows():
    assert names.exceeding(names.measure(), names.read_table()) == [], (
        "name it after what it holds, in Kafka's words; `python -m tools.names FOLDER` lists the names"
    )


def test_a_folder_that_rises_is_named_with_both_figures():
    figures = names.Figures(names=50, fillers=[names.Name("one", Path("a.py"), 1)])
    row = {"function_names": 0, "long_lines": 0, "too_long_lines": 0}
    assert names.exceeding({"topics": figures}, {"topics": {"fillers_percent": 2, **row}}) == []
    assert names.exceeding({"topics": figures}, {"topics": {"fillers_percent": 1.9, **row}}) == [
        "topics: fillers_percent 2, and 1.9 are allowed"
    ]
    assert names.exceeding({"new": figures}, {}) == ["new: fillers_percent 2, and 0 are allowed"]


@pytest.mark.parametrize("name", ["one", "each", "_found", "found_one", "known2", "whys", "SEEN"])
def test_a_name_of_filler_words_only_is_a_filler(name):
    assert names.is_filler(name)


@pytest.mark.parametrize("name", ["topic", "known_topics", "found_connector", "everyone", "_", "given_up", "no"])
def test_a_name_that_says_what_it_holds_is_none(name):
    assert not names.is_filler(name)


def test_a_bare_participle_or_preposition_is_no_function_name():
    bare = ["held", "_named", "of", "at", "taken", "blocked", "undone"]
    phrases = ["read", "shed", "topic_count", "read_topics", "held_back_by", "after_restart", "__enter__", "need"]
    assert [name for name in (*bare, *phrases) if names.is_bare(name)] == bare


def test_every_way_to_bind_a_name_counts_and_reading_does_not():
    text = """
import known
def found(self, one, *each, seen=0, **kept) -> int:
    made = [what for what in known.why]
    with open(one) as said: pass
    for given, _ in each: pass
    (wanted := 1)
    match one:
        case {"a": why, **each}: pass
    try: pass
    except OSError as error: pass
"""
    bound = sorted(name for name, _ in names.bound_names(ast.parse(text)))
    assert bound == sorted(
        ["found", "one", "each", "seen", "kept", "made", "what", "said", "given", "_", "wanted", "why", "each", "error"]
    )


def test_tightening_lowers_the_table_and_never_raises_it(monkeypatch, tmp_path):
    monkeypatch.setattr(names, "TABLE", tmp_path / "names.json")
    figures = names.Figures(names=100, fillers=[names.Name("one", Path("a.py"), 1)] * 3)
    monkeypatch.setattr(names, "measure", lambda: {"topics": figures})
    names.tighten()
    assert names.read_table()["topics"]["fillers_percent"] == 3
    figures.fillers.pop()
    names.tighten()
    assert names.read_table()["topics"]["fillers_percent"] == 2
    figures.fillers *= 2
    names.tighten()
    assert names.read_table()["topics"]["fillers_percent"] == 2
