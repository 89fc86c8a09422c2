"""What a check found, as values: rows, commands that give what is missing, and lint's findings with what brokers and workers said. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mm2mgr.check.commands import Grant
from mm2mgr.lint.findings import Finding

Status = Literal["missing", "failed", "unknown", "ok"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""Worst first: a right is missing; something did not answer or is not what was declared; nobody can tell; all is well."""


@dataclass(frozen=True)
class Row:
    """One thing that was asked. `where` is a cluster's alias or `connect NAME`; `rows` are numbers of the table in `needs`.

    `how`: `asked` of the brokers, read from `ACLs`, or `inferred` because only this right lets its login describe the topic.
    """

    status: Status
    where: str
    what: str
    principal: str = ""
    clients: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    effect: str = ""
    fix: str = ""
    how: str = "asked"
    grant: Grant | None = None

    def to_dict(self) -> dict[str, Any]:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        values.pop("grant")  # is among the commands
        return values


@dataclass(frozen=True)
class Checked:
    """Everything that a check found; `seconds` is how long it took.

    `commands` give the missing rights, `unsure` those that nobody could be asked for: giving one twice does no harm.
    """

    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Return how many rows have each status."""
        counted = Counter(row.status for row in self.rows)
        return {status: counted[status] for status in STATUSES}

    @property
    def good(self) -> bool:
        """Tell whether nothing is missing, failed, or an error of lint; what is unknown alone does not count."""
        errors = any(finding.severity == "error" and finding.silenced is None for finding in self.findings)
        return not errors and all(row.status in ("ok", "unknown") for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "good": self.good,
            "counts": self.counts,
            "rows": [row.to_dict() for row in self.rows],
            "commands": list(self.commands),
            "unsure": list(self.unsure),
            "findings": [finding.to_dict() for finding in self.findings],
            "seconds": round(self.seconds, 1),
        }
