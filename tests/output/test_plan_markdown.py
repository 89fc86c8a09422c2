"""A plan as Markdown for a pull request: what it shows, how long it gets, and that nothing in it is taken for markup."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.errors import Mm2mgrError
from mm2mgr.output.markdown import code, escape, html_code, sentence
from mm2mgr.output.plan_markdown import MOST_BYTES, error_markdown, plan_markdown
from mm2mgr.plan.changes import Change, ClusterPlan, Plan, Price, Volume
from mm2mgr.remarks import Remark

from .test_plan_text import EAST, NORTH, WEST

GOLDEN = Path(__file__).parent / "golden" / "plan.md"


def test_a_plan_is_shown_as_reviewed() -> None:
    text = plan_markdown(Plan("team", (EAST, WEST, NORTH)))
    if os.environ.get("UPDATE_SCREENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert not any(secret in text for secret in ("pa55", "old-word"))


def test_255_connectors_fit_into_a_comment() -> None:
    keys = tuple(
        KeyChange(f"source.consumer.key.{number}", "x" * 90, "y" * 90, "spec f.yaml:1") for number in range(20)
    )
    again = Price(4, 10, 40, Volume(10**6, 10**9), irreversible=("topics get other names " * 20,))
    changes = [
        Change(
            "c",
            f"mm2.source-{number}.target.source.flow",
            "source",
            action,
            ("f:a->b",),
            keys,
            (Remark("r" * 500, "notes"), Remark("r" * 500)),
            price=again,
        )
        for number, action in zip(range(255), ("update", "create", "blocked", "delete", "update") * 51, strict=True)
    ]
    differing = [
        replace(each, remarks=(Remark(f"{each.reason}{number}", "notes"), Remark(f"w{number} {'x' * 500}", "warns")))
        for number, each in enumerate(changes)
    ]
    for all_changes in (changes, differing):
        parts = tuple(ClusterPlan(f"connect-{n}", tuple(all_changes[n::60]), notes=("note " * 200,)) for n in range(60))
        text = plan_markdown(Plan("team", parts))
        assert len(text.encode()) < MOST_BYTES
        assert "not shown here: `mm2mgr plan -o json` has them all" in text
        assert text.count("<details>") == text.count("</details>") > 0


def test_most_plans_are_shown_whole() -> None:
    changes = tuple(
        Change(
            "c", f"mm2.a.b.source.{number}", "source", "update", (),
            (KeyChange("tasks.max", "1", str(number + 2), "spec f.yaml:1"),),
        )
        for number in range(100)
    )  # fmt: skip
    text = plan_markdown(Plan("team", (ClusterPlan("c", changes),)))
    assert text.count("tasks.max") == 100
    assert "not shown" not in text


def test_nothing_from_outside_is_markup_or_a_mention() -> None:
    odd = "a|b`c</details><script> @team [x](http://y) **z**\n| new row"
    change = Change(
        "c", odd, "source", "update", (), (KeyChange(odd, odd, odd, odd),), (Remark(odd, "notes"), Remark(odd, "warns"))
    )
    blocked = Change("c", "n", "source", "blocked", remarks=(Remark(odd, remedy=odd),))
    parts = (ClusterPlan(odd, (change, blocked), (odd,), notes=(odd,)), ClusterPlan("d", error=odd))
    text = plan_markdown(Plan("t", parts))
    assert "@team" not in re.sub("<code>.*?</code>", "", text)  # in code, nobody is mentioned
    assert re.findall("(.)http://", text) == ["`"] * text.count("http://")  # as code, so that it is no link
    for sign in ("<script", "x](", "**z", "b`c"):
        assert sign not in text
    assert text.count("</details>") == 1
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"\|(---\|)+", line):
            assert line.count("|") in {3, 4, 5, 8}


def test_changes_and_blocks_that_are_alike_are_one_entry() -> None:
    keys = (KeyChange("acks", "1", "all", "spec f.yaml:1"),)
    updates = tuple(Change("c", f"mm2.a.b.source.{number}", "source", "update", (), keys) for number in range(25))
    creates = tuple(Change("c", f"new-{number}", "source", "create") for number in range(2))
    blocks = tuple(
        Change("c", f"held-{number}", "source", "blocked", remarks=(Remark("it is held", remedy="let it go"),))
        for number in range(3)
    )
    text = plan_markdown(Plan("team", (ClusterPlan("c", (*updates, *creates, *blocks)),)))
    assert text.count("| `acks` |") == 1
    assert "- update 25 connectors: `mm2.a.b.source.0`, " in text
    assert "`mm2.a.b.source.19` and 5 more\n" in text
    assert "- create 2 connectors: `new-0`, `new-1`" in text
    assert "| 3 connectors: `c/held-0, c/held-1, c/held-2` | it is held | let it go |" in text
    assert "<summary><code>c</code>: 27 changes</summary>" in text


def test_a_remedy_is_not_cut() -> None:
    remedy = "write this: " + "topics: [orders], " * 40 + "the end"
    blocked = Change("c", "n", "source", "blocked", remarks=(Remark("why " * 100 + "so", remedy=remedy),))
    text = plan_markdown(Plan("team", (ClusterPlan("c", (blocked,)),)))
    assert "the end |" in text
    assert "why so |" in text


def test_an_error_of_a_tree_is_a_page_too() -> None:
    error = Mm2mgrError("a.yaml:1: no such key 'topcs' @team\na.yaml:2: <b>wrong</b>", hint="write topics")
    assert error_markdown(error) == (
        "### mm2mgr plan: no plan, nothing was compared\n\n"
        "- a.yaml:1: no such key 'topcs' <span>@</span>team\n- a.yaml:2: &lt;b>wrong&lt;/b>\n\n"
        "**What to do:** write topics\n"
    )
    many = Mm2mgrError("\n".join(f"a.yaml:{number}: {'x' * 200}" for number in range(1000)))
    assert len(error_markdown(many).encode()) < MOST_BYTES
    assert "more: `mm2mgr plan` has them all" in error_markdown(many)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clusters/flows.yaml:3: no such key 'max_lag_'", "clusters/flows.yaml:3: no such key 'max_lag\\_'"),
        ("set replication.policy.separator: '_' of dc1->agg", "set replication.policy.separator: '\\_' of dc1->agg"),
        ("run mm2mgr plan -o json (3 > 2 & more)", "run mm2mgr plan -o json (3 > 2 & more)"),
        ("https://a.example:8083/x?y=1_2*3, or www.b.example.", "`https://a.example:8083/x?y=1_2*3`, or `www.b.example`."),
        ("> quoted #12 &lt; [x](http://y) ~~z~~ @team", "\\> quoted \\#12 &amp;lt; \\[x\\](`http://y`) "
         "\\~\\~z\\~\\~ <span>@</span>team"),
        ("http://`|", "http&#58;//&#96;&#124;"),
    ],
)  # fmt: skip
def test_only_what_is_markup_is_escaped(text: str, shown: str) -> None:
    assert escape(text) == sentence(text) == shown


def test_code_reads_as_it_is_and_holds_whatever_comes() -> None:
    assert code("mm2mgr apply --connect http://a:8083 *_[") == "`mm2mgr apply --connect http://a:8083 *_[`"
    assert code("a|`b`\\ <i> @team http://x") == ("<code>a&#124;&#96;b&#96;&#92; &lt;i> @team http&#58;//x</code>")
    assert code("") == html_code("") == ""
