"""The picture of an estate: widths are rates, nothing is drawn over a name, names are whole, and text stays text."""

from __future__ import annotations

import html
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2mgr.output.sankey import Drawing, Stream, sankey, sum_text
from mm2mgr.text import rate_text

COLUMNS = ("source", "Connect cluster", "target")
DRAWING = Drawing(COLUMNS, {"bad": ("!", "bad"), "good": ("", "")}, rate_text)


def large() -> list[Stream]:
    return [
        Stream(
            (f"dc{source:02}", f"connect-{target % 2}", f"agg-{target}"),
            float(source * target),
            "bad" if source == 7 else "good",
        )
        for source in range(40)
        for target in range(6)
    ]


def rows_of(drawn: str) -> dict[str, list[tuple[float, float]]]:
    """Return from where to where the lines of each name reach, by where they begin: their column."""
    columns: dict[str, list[tuple[float, float]]] = {}
    for anchor, lines in re.findall(r'<text class="end" text-anchor="(\w+)">(.*?)</text>', drawn):
        tops = [float(top) for top in re.findall(r' y="([\d.]+)"', lines)]
        columns.setdefault(anchor, []).append((min(tops) - 12, max(tops) + 4))
    return columns


def test_bands_are_as_wide_as_their_rates() -> None:
    streams = [Stream(("a", "c", "x"), 100.0, "good"), Stream(("b", "c", "x"), 300.0, "good")]
    widths = {
        title: float(width)
        for width, title in re.findall(r'stroke-width="([\d.]+)"[^>]*><title>([^<:]+):', sankey(streams, DRAWING, "x"))
    }
    assert widths["b to c"] == pytest.approx(3 * widths["a to c"], abs=0.2)
    assert widths["c to x"] == pytest.approx(widths["a to c"] + widths["b to c"], abs=0.2)


def test_states_are_bands_of_their_own_and_the_worst_is_drawn_last() -> None:
    streams = [Stream(("a", "c", "x"), 1000.0, "good"), Stream(("a", "c", "x"), 0.0, "bad")]
    drawn = sankey(streams, DRAWING, "x")
    assert re.findall(r'<path class="(\w+)"', drawn) == ["good", "good", "bad", "bad"]
    assert "a to c: 0 B/s, 1 flow, bad" in drawn
    assert drawn.count(">! a<") == drawn.count(">! c<") == drawn.count(">! x<") == 1


@pytest.mark.parametrize("streams", [large(), large()[:9], [Stream(("a" * 100, "b" * 90, "c-" * 45), None, "good")]])
def test_no_name_is_cut_or_drawn_over_another(streams: list[Stream]) -> None:
    drawn = sankey(streams, DRAWING, "x")
    for rows in rows_of(drawn).values():
        assert all(below[0] >= above[1] for above, below in pairwise(sorted(rows)))
    names = {
        html.unescape("".join(re.findall(r">([^<]*)</tspan>", text))).removeprefix("! ")
        for text in re.findall(r"<text .*?</text>", drawn)
    }
    assert names == {name for stream in streams for name in stream.places}
    height = float(re.findall(r'height="(\d+)" role', drawn)[0])
    assert all(top >= 0 and bottom <= height for rows in rows_of(drawn).values() for top, bottom in rows)


def test_what_is_unknown_is_dashed_and_said() -> None:
    drawn = sankey([Stream(("a", "c", "x"), None, "good"), Stream(("b", "c", "x"), 5.0, "good")], DRAWING, "x")
    assert len(re.findall("stroke-dasharray", drawn)) == 1
    assert "c to x: at least 5 B/s, 2 flows" in drawn
    assert sum_text(0.0, 2, 2, rate_text) == "unknown"


def test_links_lead_to_clusters_and_only_names_are_reached_by_keyboard() -> None:
    drawing = Drawing(COLUMNS, DRAWING.states, rate_text, lambda places: "/?" + "&".join(places))
    drawn = sankey([Stream(("a", "c", "x"), 1.0, "good")], drawing, "x")
    assert drawn.count("<a ") == 5
    assert drawn.count('tabindex="-1"') == 2
    assert 'role="group"' in drawn
    assert 'role="img"' in sankey([Stream(("a", "c", "x"), 1.0, "good")], DRAWING, "x")
    assert 'href="/?source&amp;Connect cluster"' in drawn


def test_two_columns_are_drawn_too() -> None:
    drawn = sankey([Stream(("a", "x"), 1.0, "good")], Drawing(("source", "target"), DRAWING.states, rate_text), "x")
    assert drawn.count("<path") == 1
    assert "box" not in drawn


NAMES = st.text(min_size=1, max_size=60)


@example([("0", "0", "0", 3.5601181736115222e-307, "bad")])
@given(
    st.lists(
        st.tuples(NAMES, NAMES, NAMES, st.none() | st.floats(0, 1e12), st.sampled_from(["bad", "good"])),
        min_size=1,
        max_size=12,
    )
)
def test_any_names_and_rates_are_a_picture(rows: list[tuple[str, str, str, float | None, str]]) -> None:
    drawn = sankey([Stream(row[:3], row[3], row[4]) for row in rows], DRAWING, "<x>")
    assert "nan" not in re.sub(r"<(title|tspan)[^>]*>[^<]*", "", drawn)
    assert not re.search(r"<(script|img)", drawn)
    assert drawn.count("<svg") == 1
    assert 'aria-label="&lt;x&gt;"' in drawn
