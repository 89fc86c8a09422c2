"""Missing rights as `kafka-acls.sh` lines that are ready to paste. In: grants. Out: text lines. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from mm2mgr.kafka.acls import Right

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
