"""What a source connector calls topics on the target: what its replication policy makes of a name, then its transformations. Pure.

Kafka's own policies, and RegexRouter where its expression means in Java what it means here, are computed. Whatever else may rename is
unknown: two connectors name a topic alike there only if all settings of it are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mm2mgr.lint.subject import Subject
from mm2mgr.spec.scalars import replacement_of
from mm2mgr.topics.names import POLICIES, NameFilter, PolicyName, Selection, is_like_python

SEPARATOR = "replication.policy.separator"
KAFKAS = "org.apache.kafka.connect.transforms."
_ROUTERS = ("RegexRouter", "TimestampRouter")
_FILTERS = ("Filter", f"{KAFKAS}Filter")
_BY_NAME = f"{KAFKAS}predicates.TopicNameMatches"
_NOTHING = NameFilter((), ())

Settings = tuple[tuple[str, str], ...]


def policy_of(subject: Subject) -> PolicyName | None:
    """Return which of Kafka's two policies a connector has, None for any other class."""
    return POLICIES.get(subject.get("replication.policy.class", "DefaultReplicationPolicy").rpartition(".")[2])


def separator_of(subject: Subject) -> str:
    """Return the separator as it is configured; an empty one is none, not a dot."""
    return subject.get(SEPARATOR, ".")


@dataclass(frozen=True)
class TargetName:
    """A name as far as it is known: `unknown` are the settings of what changes `text` from there on, in an unknown way."""

    text: str
    unknown: tuple[Settings, ...] = ()

    def __str__(self) -> str:
        if not self.unknown:
            return self.text
        by = dict(self.unknown[0])
        return f"what {by.get('type') or by.get('replication.policy.class', '?')} makes of {self.text}"


@dataclass(frozen=True)
class _Step:
    """A transformation that may rename: its settings, with those of its predicate, without its alias."""

    settings: Settings

    @cached_property
    def rename(self) -> Callable[[str], str | None] | None:
        """Return what it does to a name, None where that is unknown; the function returns None for a name that it does not select."""
        values = dict(self.settings)
        if values["type"].rpartition(".")[2] != "RegexRouter":
            return None
        router, selects = _replacing(values.get("regex", ""), values.get("replacement", "")), self.selects
        if router is None or selects is None:
            return None
        return lambda name: router(name) if selects(name) else None

    @cached_property
    def selects(self) -> Callable[[str], bool] | None:
        """Return whether it is for the records of a topic, by its name; None where what a record holds decides."""
        values = dict(self.settings)
        if not values.get("predicate"):
            return lambda _: True
        chosen = _replacing(values.get("predicate.pattern", ""), "") if values["predicate"] == _BY_NAME else None
        if chosen is None:
            return None
        is_negated = values.get("negate", "").lower() == "true"
        return lambda name: (chosen(name) is not None) != is_negated


def _replacing(pattern: str, replacement: str) -> Callable[[str], str | None] | None:
    return replacement_of(pattern, replacement) if is_like_python(pattern) else None


@dataclass(frozen=True)
class Naming:
    """How a connector names topics: equal ones give every topic the same name."""

    selection: Selection
    policy: Settings
    """The settings of a policy that is not Kafka's, () for Kafka's."""
    steps: tuple[_Step, ...] = ()

    def __call__(self, topic: str) -> TargetName:
        name = topic if self.policy else self.selection.renamed(topic)
        unknown = [self.policy] if self.policy else []
        for step in self.steps:
            if unknown or step.rename is None:
                unknown.append(step.settings)
            else:
                name = step.rename(name) or name
        return TargetName(name, tuple(unknown))


def naming_of(subject: Subject) -> Naming:
    """Return how a source connector names topics on the target."""
    policy, separator = policy_of(subject), separator_of(subject)
    own: Settings = ()
    if policy is None:
        keys = (key for key in subject.config if key.startswith("replication.policy.") or key == "source.cluster.alias")
        own = tuple((key, subject.get(key)) for key in sorted(keys))
    steps = tuple(_step(subject, name) for name in routers(subject))
    return Naming(Selection(_NOTHING, policy, subject.source, "", separator), own, steps)


def filters_of(subject: Subject, topic: str) -> tuple[Settings, ...] | None:
    """Return the settings of filters that drop some records of a topic, () where there are none; None where it is dropped as a whole."""
    if not subject.get("transforms"):
        return ()
    plain = replace(naming_of(subject), steps=())(topic)
    name, found = None if plain.unknown else plain.text, list[Settings]()
    for alias in subject.items("transforms"):
        step = _step(subject, alias)
        if subject.get(f"transforms.{alias}.type") in _FILTERS:
            if step.selects is None or name is None:
                found.append(step.settings)
            elif step.selects(name):
                return None
        elif alias in routers(subject) and name is not None:
            name = step.rename(name) or name if step.rename else None
    return tuple(found)


def routers(subject: Subject) -> tuple[str, ...]:
    """Return the names of its transformations that may rename topics."""
    return tuple(name for name in subject.items("transforms") if _may_rename(subject.get(f"transforms.{name}.type")))


def _may_rename(type_: str) -> bool:
    package, _, class_ = type_.rpartition(".")
    return class_ in _ROUTERS or (bool(package) and f"{package}." != KAFKAS)


def _step(subject: Subject, alias: str) -> _Step:
    settings = dict(_below(subject, f"transforms.{alias}."))
    if predicate := settings.get("predicate"):
        settings["predicate"] = subject.get(f"predicates.{predicate}.type")
        settings |= {f"predicate.{key}": value for key, value in _below(subject, f"predicates.{predicate}.")}
    return _Step(tuple(sorted(settings.items())))


def _below(subject: Subject, prefix: str) -> Iterator[tuple[str, str]]:
    return ((key.removeprefix(prefix), subject.get(key)) for key in subject.config if key.startswith(prefix))
