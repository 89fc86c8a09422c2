"""The result of a check: rows, `kafka-acls.sh` commands for missing rights, and lint's findings on the real clusters. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mm2mgr.kafka.acls import Right
from mm2mgr.lint.findings import Finding

Status = Literal["missing", "failed", "unknown", "ok"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""Worst first: a right is missing; something did not answer or is not what was declared; it could not be verified; all is well."""


@dataclass(frozen=True)
class CheckRow:
    """One result. `where` is a cluster's alias or `connect NAME`; `rows` are numbers of the table in `needs`.

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

    `commands` give the missing rights, `unsure` those that could not be verified: granting a right twice does no harm.
    """

    rows: tuple[CheckRow, ...]
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


_RESOURCES = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
_NAMES_PER_LINE = 50
_OPERATIONS = ("Describe", "Read", "Write", "Create", "Alter", "DescribeConfigs", "AlterConfigs")


@dataclass(frozen=True)
class Grant:
    """A right that a principal is to be given on the cluster behind `servers`."""

    servers: str
    principal: str
    right: Right


def commands(grants: Iterable[Grant]) -> list[str]:
    """Return the commands: operations on a resource in one line, resources that need the same ones in one line too.

    Operations that others imply are left out. Who may alter ACLs adds `--command-config FILE` with a login of their own.
    """
    wanted: dict[tuple[str, str, str, str], set[Right]] = {}
    for each in grants:
        key = (each.servers, each.principal, each.right.kind, each.right.name)
        wanted.setdefault(key, set()).add(each.right)
    lines: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (servers, principal, kind, name), rights in sorted(wanted.items()):
        lines.setdefault((servers, principal, kind, _least(rights)), []).append(name)
    return [
        _line(*key, names[start : start + _NAMES_PER_LINE])
        for key, names in lines.items()
        for start in range(0, len(names), _NAMES_PER_LINE)
    ]


def _least(rights: set[Right]) -> tuple[str, ...]:
    given = {right.operation for right in rights}
    return tuple(sorted((right.operation for right in rights if not right.implied_by() & given), key=_OPERATIONS.index))


def _line(servers: str, principal: str, kind: str, operations: tuple[str, ...], names: list[str]) -> str:
    words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
    words += [word for operation in operations for word in ("--operation", operation)]
    words += ["--cluster"] if kind == "cluster" else [word for name in names for word in (_RESOURCES[kind], name)]
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./*-]+", word) and "*" not in word else shlex.quote(word)
