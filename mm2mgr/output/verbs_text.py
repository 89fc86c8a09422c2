"""What `pause`, `resume`, `stop` and `restart` are going to do, send and have done, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mm2mgr.output.console import STYLES, say, talk
from mm2mgr.reconcile.verbs import Turn
from mm2mgr.text import number_of, one_line

_VERDICTS = {"ok": None, "failed": STYLES["failed"], "inconclusive": "yellow"}


def say_turns(turns: Sequence[Turn]) -> None:
    """Print on stderr what is decided for each connector."""
    for turn in turns:
        if turn.action == "write":
            talk(f"{turn.name}: {turn.before or 'no status yet'}{f' ({turn.detail})' if turn.detail else ''}", None)
            if turn.warning:
                talk(f"warning: {turn.name}: {turn.warning}", STYLES["warning"])


def say_sent(turn: Turn, wait_seconds: float) -> None:
    """Print on stderr what became of one request."""
    if turn.written:
        talk(f"{turn.name}: sent{', waiting' if wait_seconds else ''}")


def say_turned(turned: dict[str, Any]) -> None:
    """Print one line per connector, and the count."""
    for turn in turned["connectors"]:
        name = f"{turn['connect']}/{turn['connector']}"
        if turn["action"] in {"refused", "failed"}:
            say(f"! {name}: {turn['action']}: {one_line(turn['detail'])}", STYLES["failed"])
        else:
            shown = turn["state"] or ("sent, not waited for" if turn["written"] else "")
            why = [shown, turn["detail"] if turn["action"] == "none" else "", turn["doubt"]]
            sign = "=" if turn["action"] == "none" else "~"
            say(f"{sign} {name}: {'; '.join(filter(None, why))}", _VERDICTS.get(turn["verdict"]))
        if turn["hint"]:
            say(f"    {turn['hint']}")
    for connect, why in turned["unrecorded"].items():
        talk(f"history not written for Connect cluster {connect}: {why}", "yellow")
    sent = sum(turn["written"] for turn in turned["connectors"])
    bad = sum(turn["action"] in {"refused", "failed"} or turn["verdict"] == "failed" for turn in turned["connectors"])
    unsure = sum(turn["verdict"] == "inconclusive" for turn in turned["connectors"])
    parts = [f"{turned['verb']}: {sent} of {number_of(len(turned['connectors']), 'connector')} sent a request"]
    parts += [f"{bad} failed or refused"] if bad else []
    parts += [f"{unsure} not seen there in time"] if unsure else []
    say("; ".join(parts), style="bold")
