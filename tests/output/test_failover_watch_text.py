"""What `serve --with failover` prints: a line where something is another than before, and nothing else."""

from __future__ import annotations

import pytest

from mm2mgr.operations.failover_watch import FailoverRound, PairCheck
from mm2mgr.output.console import log_lines
from mm2mgr.output.failover_watch_text import say_failover_round

GO = PairCheck("a->b", 1.0, "GO")
SKIPS = PairCheck(
    "a->b", 2.0, "NO-GO", ("1 group (app): would skip\nrecords", "x", "y"), warnings=("the disk is full",)
)
FAILED = PairCheck("c->d", 3.0, error="no lock\nwas had")


def test_a_line_comes_where_a_verdict_or_a_failure_is_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    printed: dict[str, str] = {}

    def lines(*checks: PairCheck, **more: object) -> list[str]:
        nonlocal printed
        printed = say_failover_round(FailoverRound(1, 0.0, checks, **more), printed, log_lines())  # type: ignore[arg-type]
        said = [line.partition("Z ")[2] for line in capsys.readouterr().err.splitlines()]
        assert all(line.startswith("failover: ") for line in said)
        return [line.removeprefix("failover: ") for line in said]

    assert lines(GO, FAILED) == ["a->b: GO", "c->d: not checked: no lock was had"]
    assert lines() == [], "nothing was due"
    assert lines(GO) == [], "the same again"
    assert lines(SKIPS) == [
        "a->b: NO-GO: 1 group (app): would skip records; x and 1 more",
        "a->b: the disk is full",
    ]
    assert lines(SKIPS, warnings=("the table is damaged",)) == ["the table is damaged"]
    assert lines(GO) == ["a->b: GO"]
    assert lines(error="the tree is wrong") == ["the tree is wrong"]
    assert lines(FAILED) == [], "that it failed was said, and no check has said otherwise since"
    assert lines(error="the tree is wrong") == ["the tree is wrong"], "a turn without it was between"
