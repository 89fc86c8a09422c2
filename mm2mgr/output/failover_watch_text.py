"""What `serve --with failover` came to, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mm2mgr.text import few, one_line

if TYPE_CHECKING:
    from mm2mgr.operations.failover_watch import FailoverRound, PairCheck
    from mm2mgr.output.console import PartLog


def check_line(check: PairCheck) -> str:
    """Say what a check came to."""
    if check.error:
        return f"{check.pair}: not checked: {one_line(check.error)}"
    reasons = few([one_line(reason) for reason in check.reasons], 2, "; ")
    return f"{check.pair}: {check.verdict}{f': {reasons}' if reasons else ''}"


def turn_lines(done: FailoverRound) -> Iterator[tuple[str, str]]:
    """Yield what a turn came to, and before it what it is about."""
    if done.error or done.note:
        yield "", one_line(done.error or done.note)
    for check in done.checks:
        yield check.pair, check_line(check)
        yield from ((f"{check.pair} {warning}", f"{check.pair}: {warning}") for warning in check.warnings)
    yield from ((warning, warning) for warning in done.warnings)


def say_failover_round(done: FailoverRound, printed: Mapping[str, str], log: PartLog) -> dict[str, str]:
    """Print what differs from what was `printed` about the same; return what is printed now."""
    lines = dict(turn_lines(done))
    for subject, line in lines.items():
        if printed.get(subject) != line:
            log("failover", line)
    checked = {check.pair for check in done.checks}
    same = {subject: line for subject, line in printed.items() if subject and subject.split(" ")[0] not in checked}
    return {**same, **lines}
