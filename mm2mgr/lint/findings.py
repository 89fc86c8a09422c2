"""Rules of lint, their hits, and findings with a place. `run` turns hits into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import getdoc
from types import ModuleType
from typing import Any, Literal, get_args

from mm2mgr.lint.subject import Estate, Spot, Subject, SubjectKind
from mm2mgr.secrets import mask_text
from mm2mgr.truth.reach import ConnectorType

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""Most severe first. error: records are lost, duplicated, blocked or in the wrong place; warning: they may be; info: a hint."""


@dataclass(frozen=True)
class Hit:
    """What a rule found: one sentence about its effect, and the fix. Neither may contain a secret.

    `key` is the connector's config key; rules over an estate set the `subject`, rules over files the `spot`.
    `others` are the other connectors that are part of it.
    """

    message: str
    fix: str
    key: str = ""
    subject: Subject | None = None
    spot: Spot | None = None
    others: tuple[Subject, ...] = ()

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Every connector that is part of it."""
        return (*((self.subject,) if self.subject else ()), *self.others)


@dataclass(frozen=True)
class Rule:
    """A rule: `check` looks at one connector, `over` at all of them and at the files. The function's docstring is the rule's page.

    `types` are the connectors that `check` looks at, and only those with a key that holds one of the texts `needs` (() for all).
    `source` is the KIP, JIRA or article behind it; `seen` names the live test that showed the effect ("" = unverified).
    Plan and apply block every write that an error is about, judged by what the real workers say.
    """

    id: str
    severity: Severity
    check: Callable[[Subject], Iterator[Hit]] | None = None
    over: Callable[[Estate], Iterator[Hit]] | None = None
    source: str = ""
    seen: str = ""
    types: tuple[ConnectorType, ...] = get_args(ConnectorType)
    needs: tuple[str, ...] = ()

    def asks(self, kind: SubjectKind) -> bool:
        """Tell whether `check` could find anything on connectors of a kind."""
        if self.check is None or kind.type not in self.types:
            return False
        return not self.needs or any(text in key for key in kind.keys for text in self.needs)

    @property
    def story(self) -> str:
        return getdoc(self.check or self.over) or ""

    @property
    def title(self) -> str:
        """The first sentence of its page, without the full stop."""
        return self.story.partition("\n")[0].rstrip(".")

    def to_dict(self) -> dict[str, Any]:
        evidence = self.seen or "unverified: not seen on a live worker yet"
        return {
            "rule": self.id,
            "severity": self.severity,
            "title": self.title,
            "story": self.story,
            "source": self.source,
            "seen": evidence,
        }


ConnectorCheck = Callable[[Subject], Iterator[Hit]]
EstateCheck = Callable[[Estate], Iterator[Hit]]
_REGISTERED: dict[str, list[Rule]] = {}


def rule(
    id: str, severity: Severity, *, over: EstateCheck | None = None, **facts: Any
) -> Callable[[ConnectorCheck], ConnectorCheck]:
    """Register the decorated function as a rule that looks at one connector; `facts` are the other fields of `Rule`.

    The function's docstring is the page of the rule, its first sentence the title.
    """

    def register(check: ConnectorCheck) -> ConnectorCheck:
        _REGISTERED.setdefault(check.__module__, []).append(Rule(id, severity, check, over, **facts))
        return check

    return register


def estate_rule(
    id: str, severity: Severity, *, source: str = "", seen: str = ""
) -> Callable[[EstateCheck], EstateCheck]:
    """Register the decorated function as a rule that looks at all connectors together, or at the files."""

    def register(over: EstateCheck) -> EstateCheck:
        _REGISTERED.setdefault(over.__module__, []).append(Rule(id, severity, over=over, source=source, seen=seen))
        return over

    return register


def rules_of(*modules: ModuleType) -> tuple[Rule, ...]:
    """Return the rules of these modules, in the order of the modules and of their functions."""
    return tuple(each for module in modules for each in _REGISTERED[module.__name__])


def rule_ids() -> tuple[str, ...]:
    """Return the id of every rule."""
    return tuple(each.id for rules in _REGISTERED.values() for each in rules)


@dataclass(frozen=True)
class Finding:
    """One finding. `more` counts other connectors where the same line does the same; `silenced` is the reason given."""

    rule: str
    severity: Severity
    spot: Spot
    message: str
    fix: str
    more: int = 0
    silenced: str | None = None

    def __post_init__(self) -> None:
        for name in ("message", "fix", "silenced"):
            if text := getattr(self, name):
                object.__setattr__(self, name, mask_text(text))

    def to_dict(self) -> dict[str, Any]:
        spot = {name: value for name, value in vars(self.spot).items() if value}
        return {
            "rule": self.rule,
            "severity": self.severity,
            "place": str(self.spot),
            **spot,
            "message": self.message,
            "fix": self.fix,
            "more": self.more,
            "silenced": self.silenced,
        }
