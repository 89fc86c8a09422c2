"""Effective topic and group filters of connectors: the lists of a config, with the defaults of its Kafka version.

None where they are unknown: a custom filter class, placeholders, expressions that cannot be parsed. What a filter takes
is the subject of `mm2mgr.topics`. Source: DefaultTopicFilter.
"""

from __future__ import annotations

from functools import cache, lru_cache

from mm2mgr.lint.subject import Subject
from mm2mgr.spec.patterns import is_name
from mm2mgr.topics.names import Items, NameFilter, literal, readable
from mm2mgr.topics.selection import POLICIES, PolicyName, Selection
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.reach import numbers

FILTERS = {
    "topics": ("topic.filter.class", "DefaultTopicFilter"),
    "groups": ("group.filter.class", "DefaultGroupFilter"),
    "config.properties": ("config.property.filter.class", "DefaultConfigPropertyFilter"),
}
_SEPARATOR = "replication.policy.separator"


def judged(subject: Subject, what: str) -> bool:
    """Tell whether Kafka's own filter class reads the lists of `what` (topics, groups, config.properties)."""
    key, own = FILTERS[what]
    return subject.get(key, own).rpartition(".")[2] == own


def items(subject: Subject, key: str) -> Items:
    """Return the items of a LIST key, Kafka's default if it is not set; () where it is unknown."""
    what = key.removesuffix(".exclude")
    if not judged(subject, what) or "${" in subject.get(key):
        return ()
    return _split(subject.get(key)) if key in subject.config else default(subject, key)


def default(subject: Subject, key: str) -> Items:
    """Return Kafka's own list for a key in the subject's version."""
    return _default(subject.type, key, subject.version)


def repeats_default(subject: Subject, key: str) -> bool:
    """Tell whether a list holds all of Kafka's default for it."""
    return set(default(subject, key)) <= set(items(subject, key))


@cache
def _default(type_: str, key: str, version: str) -> Items:
    found = truth_keys.load().find(type_, key, version)
    return tuple(item for item in (found.default or "").split(",") if item) if found else ()


def policy_of(subject: Subject) -> PolicyName | None:
    """Return which of Kafka's two policies a connector has, None for any other class."""
    return POLICIES.get(subject.get("replication.policy.class", "DefaultReplicationPolicy").rpartition(".")[2])


def separator_of(subject: Subject) -> str:
    """Return the separator as it is configured; an empty one is none, not a dot."""
    return subject.get(_SEPARATOR, ".")


def selection(subject: Subject) -> Selection | None:
    """Return what a source connector takes, None when its filter is unknown."""
    found, separator = names(subject), separator_of(subject)
    if found is None:
        return None
    own = subject.flag("replication.policy.internal.topic.separator.enabled", default=True)
    internal = separator if own or _SEPARATOR not in subject.config or numbers(subject.version) < (3, 6) else "."
    ends = subject.source, subject.target
    return Selection(found, policy_of(subject), *ends, separator, internal, subject.version)


def unread(subject: Subject) -> str:
    """Return the first expression for topics whose meaning is not known, "" without one."""
    every = (item for key in ("topics", "topics.exclude") for item in items(subject, key))
    return next((item for item in every if not _known("topics", item)), "")


def names(subject: Subject, what: str = "topics") -> NameFilter | None:
    """Return a connector's filter of topics or groups, None when it is unknown."""
    include, exclude = (subject.config.get(key) for key in (what, f"{what}.exclude"))
    return _names(subject.type, what, include, exclude, subject.version) if judged(subject, what) else None


@lru_cache(maxsize=8192)
def _names(type_: str, what: str, include: str | None, exclude: str | None, version: str) -> NameFilter | None:
    lists = [
        _default(type_, key, version) if text is None else _split(text)
        for key, text in ((what, include), (f"{what}.exclude", exclude))
    ]
    return NameFilter(*lists) if all(_known(what, item) for each in lists for item in each) else None


def _known(what: str, item: str) -> bool:
    return "${" not in item and readable(item, topics=what == "topics")


@lru_cache(maxsize=8192)
def _split(text: str) -> Items:
    """Split as Kafka does; empty items match no name."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


def plain_name(item: str) -> str | None:
    """Return the one name an item is meant for, None for a real expression (unescaped dots of a name count as dots)."""
    return item if is_name(item) else literal(item) or None
