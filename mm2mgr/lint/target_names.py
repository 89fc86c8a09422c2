"""What a source connector calls topics on the target: its replication policy's name, then its transformations'. Pure.

Kafka's own policies, and RegexRouter where its expression means in Java what it means here, are computed; a name that
no automaton of its expression accepts stays. Whatever else may rename is unknown: two connectors name a topic alike
there only if all settings of it are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mm2mgr.lint.subject import Subject
from mm2mgr.spec.scalars import replacement_of
from mm2mgr.topics.names import POLICIES, NameFilter, PolicyName, Selection, TooCostly, is_like_python, readable

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
    """A name as far as it is known: `unknown` are the settings of what changes `text` further, in an unknown way."""

    text: str
    unknown: tuple[Settings, ...] = ()

    def __str__(self) -> str:
        if not self.unknown:
            return self.text
        by = dict(self.unknown[0])
        return f"what {by.get('type') or by.get('replication.policy.class', '?')} makes of {self.text}"


@dataclass(frozen=True)
class Transformation:
    """A transformation that may rename: its settings, with those of its predicate, without its alias."""

    settings: Settings

    @cached_property
    def _values(self) -> dict[str, str]:
        return dict(self.settings)

    @cached_property
    def regex(self) -> str | None:
        """The expression that a name must match to be changed; None where there is none."""
        is_regex = self._values["type"].rpartition(".")[2] == "RegexRouter"
        return self._values.get("regex", "") if is_regex else None

    @cached_property
    def _replacement(self) -> Callable[[str], str | None] | None:
        regex = self.regex
        return replacement_of(regex, self._values.get("replacement", "")) if regex and is_like_python(regex) else None

    def target_name(self, name: str) -> str | None:
        """Return a name behind it, None where unknown. A name that its expression does not match stays in any case."""
        matches = self.regex is None or _matches(self.regex, name)
        if matches is False:
            return name
        is_selected = self.selects(name)
        if is_selected is False:
            return name
        if not (matches and is_selected and self._replacement):
            return None
        return self._replacement(name) or name

    def selects(self, name: str) -> bool | None:
        """Tell whether its predicate selects a topic of that name, None where unknown or where the record decides."""
        if not (predicate := self._values.get("predicate")):
            return True
        matches = _matches(self._values.get("predicate.pattern", ""), name) if predicate == _BY_NAME else None
        is_negated = self._values.get("negate", "").lower() == "true"
        return None if matches is None else matches != is_negated


def _matches(pattern: str, name: str) -> bool | None:
    """Tell whether a Java expression matches a whole name, None where that cannot be decided here."""
    if not readable(pattern):
        return None
    try:
        return NameFilter((pattern,), ()).matches(name)
    except TooCostly:
        return None


@dataclass(frozen=True)
class Naming:
    """How a connector names topics: equal ones give every topic the same name."""

    selection: Selection
    policy: Settings
    """The settings of a policy that is not Kafka's, () for Kafka's."""
    steps: tuple[Transformation, ...] = ()

    def __call__(self, topic: str) -> TargetName:
        name = topic if self.policy else self.selection.target_name(topic)
        unknown = [self.policy] if self.policy else []
        for step in self.steps:
            renamed = None if unknown else step.target_name(name)
            if renamed is None:
                unknown.append(step.settings)
            else:
                name = renamed
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
    """Return the settings of filters that drop some records of a topic, None where it is dropped as a whole."""
    if not subject.get("transforms"):
        return ()
    plain = replace(naming_of(subject), steps=())(topic)
    name, filters = None if plain.unknown else plain.text, list[Settings]()
    for alias in subject.items("transforms"):
        step = _step(subject, alias)
        if subject.get(f"transforms.{alias}.type") in _FILTERS:
            is_selected = None if name is None else step.selects(name)
            if is_selected:
                return None
            if is_selected is None:
                filters.append(step.settings)
        elif alias in routers(subject) and name is not None:
            name = step.target_name(name)
    return tuple(filters)


def routers(subject: Subject) -> tuple[str, ...]:
    """Return the names of its transformations that may rename topics."""
    return tuple(name for name in subject.items("transforms") if _may_rename(subject.get(f"transforms.{name}.type")))


def _may_rename(type_: str) -> bool:
    package, _, class_ = type_.rpartition(".")
    return class_ in _ROUTERS or (bool(package) and f"{package}." != KAFKAS)


def _step(subject: Subject, alias: str) -> Transformation:
    settings = dict(_keys_below(subject, f"transforms.{alias}."))
    if predicate := settings.get("predicate"):
        settings["predicate"] = subject.get(f"predicates.{predicate}.type")
        settings |= {f"predicate.{key}": value for key, value in _keys_below(subject, f"predicates.{predicate}.")}
    return Transformation(tuple(sorted(settings.items())))


def _keys_below(subject: Subject, prefix: str) -> Iterator[tuple[str, str]]:
    return ((key.removeprefix(prefix), subject.get(key)) for key in subject.config if key.startswith(prefix))
