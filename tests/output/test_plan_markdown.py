"""A plan as Markdown for a pull request: what it shows, how long it gets, and that nothing in it is taken for markup."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from mm2mgr.comparison.differences import KeyChange
from mm2mgr.output.plan_markdown import MOST_BYTES, plan_markdown
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
    keys = (KeyChange("tasks.max", "1", "4", "spec f.yaml:1"),)
    changes = tuple(Change("c", f"mm2.a.b.source.{number}", "source", "update", (), keys) for number in range(100))
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
    for sign in ("<script", "](", "**z", "`c", "http://"):
        assert sign not in text
    assert text.count("</details>") == 1
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"\|(---\|)+", line):
            assert line.count("|") in {3, 4, 5, 8}
