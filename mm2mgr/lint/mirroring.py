"""What a connector mirrors, and what a change of configs changes of it: topics, names, clusters, state, logins. Pure.

Every form of file is judged alike: what counts is the config that the connector gets in the end. Nothing else may
decide that a machine applies a fix: two configs mirror the same only where it is proved here; what is not decided
counts as a change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from mm2mgr.formats.properties import meant_value
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.hops import arriving_alike, by_pair, carries_heartbeats, filter_of, hops, selection_of
from mm2mgr.lint.subject import Estate, Subject, addresses
from mm2mgr.lint.target_names import SEPARATOR, naming_of, policy_of, separator_of
from mm2mgr.spec.scalars import SECURITY_KEYS
from mm2mgr.text import few
from mm2mgr.topics.automaton import Machine, Search, shortest
from mm2mgr.topics.names import NameFilter, Selection, machine_of, refused_by
from mm2mgr.topics.shared import Catalog
from mm2mgr.truth.explain import RENAMED
from mm2mgr.truth.reach import CLUSTER_KEYS, numbers

_OTHER_NAME = "offsets are stored by the connector's name: under another one all of its topics are mirrored again"
Named = tuple[str, str, str, int]
"""Which connector it is for Connect: file or Connect cluster, name, type, and a number where several have one name."""

_MOST_STATES = 20_000
_LOGIN_KEYS = (CLUSTER_KEYS | SECURITY_KEYS) - {"bootstrap.servers"}
_STARTS = {
    "auto.offset.reset": "topics without stored offsets would be read from elsewhere on (auto.offset.reset)",
    "group.id": "topics without stored offsets would start elsewhere: where this group committed offsets, it counts",
    "isolation.level": "records of aborted transactions would be mirrored, or no longer (isolation.level)",
}
_STORED_IN = ("group.id", "offset.storage.topic", "config.storage.topic", "status.storage.topic")
_SYNCS, _GROUP_OFFSETS = "emit.offset-syncs.enabled", "sync.group.offsets.enabled"
_EMITS = {
    "source": (_SYNCS,),
    "checkpoint": ("emit.checkpoints.enabled", _SYNCS, _GROUP_OFFSETS),
    "heartbeat": ("emit.heartbeats.enabled",),
}


@dataclass(frozen=True)
class Difference:
    """What of one connector would be otherwise; `effect` says it as the end of a sentence, with what it costs.

    `was_idle`: only its topics differ, and before it took none that can exist. `starts`: there was none before.
    """

    full_name: Named
    effect: str
    was_idle: bool = False
    starts: bool = False


def changes(before: Estate, after: Estate) -> tuple[Difference, ...]:
    """Return what is mirrored otherwise after a change of configs, connector by connector; () where nothing is."""
    old, new = (_by_name(_as_kafka_reads(estate)) for estate in (before, after))
    differences = []
    for named in sorted(old.keys() - new.keys()):
        others = {other[2] for other in new.keys() - old.keys() if other[0] == named[0]}
        differences.append(Difference(named, _OTHER_NAME if named[2] in others else f"{named[1]} would be gone"))
    for named, subject in new.items():
        if named not in old:
            if not subject.is_off:
                start = ", from the first record on" if subject.type == "source" else ""
                differences.append(Difference(named, f"{named[1]} would start{start}", starts=True))
        elif other := difference(old[named], subject):
            differences.append(replace(other, full_name=named))
    return tuple(differences)


def _as_kafka_reads(estate: Estate) -> Iterator[Subject]:
    """Yield connectors with the values that Kafka gets: the reader repairs lost backslashes and trailing comments."""
    got = {
        (file.path, entry.line): entry.value
        for file in estate.files
        if file.kind in ("properties", "dedicated")
        for entry in file.entries
        if meant_value(entry) != entry.value
    }
    for subject in estate.subjects:
        places = ((key, (place.file, place.line)) for key, place in subject.spots.items() if got)
        other = {key: got[place] for key, place in places if place in got and key in subject.config}
        yield subject.with_config({**subject.config, **other}) if other else subject


def _by_name(subjects: Iterable[Subject]) -> dict[Named, Subject]:
    by_name: dict[Named, Subject] = {}
    for subject in subjects:
        by_name[_next(named_as(subject), by_name)] = subject
    return by_name


def _next(named: Named, taken: Mapping[Named, Subject]) -> Named:
    while named in taken:
        named = (*named[:3], named[3] + 1)
    return named


def named_as(subject: Subject) -> Named:
    """Return which connector it is; the first of that name."""
    return subject.spot.file or subject.connector.connect or subject.spot.connect, subject.name, subject.type, 0


def difference(before: Subject, after: Subject) -> Difference | None:
    """Return what one connector does otherwise under another config, the costliest effect; None if proved none."""
    if dict(before.config) == dict(after.config) and before.worker == after.worker and before.state == after.state:
        return None
    old, new = _with_new_names(before), _with_new_names(after)
    effects = [effect for compare in _ASPECTS if (effect := compare(old, new))]
    if not effects:
        return None
    is_idle = effects == [_topics(old, new)] and _takes_nothing(old)
    return Difference(named_as(before), effects[0], was_idle=is_idle)


def _with_new_names(subject: Subject) -> Subject:
    """Return a connector with the names that its lists have today: up to 3.9 Kafka takes the old ones too (KIP-629)."""
    if numbers(subject.version) >= (4, 0):
        return subject
    old = {key: new for key, new in RENAMED.items() if key in subject.config and new not in subject.config}
    config = {old.get(key, key): value for key, value in subject.config.items()}
    return subject.with_config(config) if old else subject


# --- what is compared -------------------------------------------------------------------------------------------------


def _running(before: Subject, after: Subject) -> str:
    if before.is_off == after.is_off:
        return ""
    return f"{after.name} is switched off and would start" if before.is_off else f"{after.name} would no longer mirror"


def _identity(before: Subject, after: Subject) -> str:
    if before.get("name") == after.get("name"):
        return ""
    return _OTHER_NAME


def _clusters(before: Subject, after: Subject) -> str:
    old, new = (_of_clients(subject, "bootstrap.servers") for subject in (before, after))
    other = [name for name in old.keys() & new.keys() if _servers(old[name]) != _servers(new[name])]
    return f"{_clients(sorted(other))} would connect to other brokers" if other else ""


def _servers(text: str | None) -> object:
    """Return addresses in any order; of a template, whose addresses are not known, the text."""
    return text if text and is_open(text) else addresses(text or "")


def _names(before: Subject, after: Subject) -> str:
    separators = {subject.config.get(SEPARATOR, ".") for subject in (before, after)}  # policies get it with its blanks
    if before.type == "heartbeat" or (naming_of(before) == naming_of(after) and len(separators) == 1):
        return ""
    return (
        f"the topics of {before.pair} would get other names on {after.target}: all of them are mirrored again under "
        "these, and consumers find the old ones without new records"
    )


def _topics(before: Subject, after: Subject) -> str:
    if before.type == "heartbeat" or is_same_selection(before, after):
        return ""
    more, less = (_example(*pair) for pair in ((after, before), (before, after)))
    if more and not less:
        return f"more topics would be mirrored, such as '{more}'"
    if less and not more:
        return f"topics such as '{less}' would no longer be mirrored"
    return (
        f"other topics would be mirrored: '{more}', and no longer '{less}'"
        if more
        else "other topics would be mirrored"
    )


def _takes_nothing(subject: Subject) -> bool:
    selection = selection_of(subject)
    include = machine_of(selection.names.include) if selection else None
    search = _search([include], refused_by(selection)) if selection and include else None
    return search is not None and search.word is None and not search.open


def _example(subject: Subject, other: Subject) -> str:
    selections = selection_of(subject), selection_of(other)
    if selections[0] is None or selections[1] is None:
        return ""
    search = missing(selections[0], selections[1])
    return (search.word if search else "") or ""


def _groups(before: Subject, after: Subject) -> str:
    if before.type != "checkpoint":
        return ""
    old, new = filter_of(before, "groups"), filter_of(after, "groups")
    same = _is_same_list(old, new) if old and new else _raw(before, "group") == _raw(after, "group")
    return "" if same else "offsets of other groups would be translated"


def _records(before: Subject, after: Subject) -> str:
    if _transformations(before) == _transformations(after):
        return ""
    return "other records would be written: a transformation would be gone or another one"


def _start(before: Subject, after: Subject) -> str:
    if before.type != "source":
        return ""
    for key, effect in _STARTS.items():
        if before.value("source consumer", key) != after.value("source consumer", key):
            return effect
    return ""


def _state(before: Subject, after: Subject) -> str:
    old, new = dict(_states(before)), dict(_states(after))
    other = [name for name in old if old[name] != new.get(name)]
    return f"{few(other)} would be others, so offsets of the pair are not translated or not found" if other else ""


def _states(subject: Subject) -> Iterator[tuple[str, object]]:
    """Yield where a connector and its workers keep state, and which of it they write."""
    for key in _EMITS[subject.type]:
        yield key, subject.setting.offset_syncs if key == _SYNCS else subject.flag(key, default=key != _GROUP_OFFSETS)
    if subject.type != "heartbeat":
        selection = selection_of(subject)
        separator = selection.internal_separator if selection else separator_of(subject)
        place = subject.setting.offset_syncs_location
        alias = subject.target if place == "source" else subject.source
        yield "the place of offset syncs", place if place in ("source", "target") else None
        yield "the offset-syncs topic", separator.join(("mm2-offset-syncs", alias, "internal"))
        yield "the checkpoints topic", separator.join((subject.source, "checkpoints", "internal"))
        yield "the policy", subject.get("replication.policy.class").rpartition(".")[2] or "DefaultReplicationPolicy"
    yield "the aliases", (subject.source, subject.target)
    yield "offsets.storage.topic", subject.get("offsets.storage.topic")
    for key in _STORED_IN:
        yield f"{key} of the workers", subject.worker_property(key)
    yield "the workers' Kafka", _servers(subject.worker_property("bootstrap.servers"))


def _heartbeats(before: Subject, after: Subject) -> str:
    if before.type != "source" or carries_heartbeats(before) == carries_heartbeats(after):
        return ""
    return "heartbeats would be mirrored" if carries_heartbeats(after) else "heartbeats would no longer be mirrored"


def _logins(before: Subject, after: Subject) -> str:
    names = {client.name for client in before.clients} & {client.name for client in after.clients}
    if (before.type, before.setting) == (after.type, after.setting):  # else defaults may differ
        names = {name for name in names if any(subject.is_set(name, *_LOGIN_KEYS) for subject in (before, after))}
    other = [name for name in names if any(before.value(name, key) != after.value(name, key) for key in _LOGIN_KEYS)]
    return f"{_clients(sorted(other))} would log in otherwise" if other else ""


_ASPECTS: tuple[Callable[[Subject, Subject], str], ...] = (
    *(_running, _identity, _names, _topics, _clusters, _records, _state, _groups, _start, _heartbeats, _logins),
)


# --- how it is compared -----------------------------------------------------------------------------------------------


def _of_clients(subject: Subject, plain: str) -> dict[str, str | None]:
    return {client.name: subject.value(client.name, plain) for client in subject.clients}


def _clients(names: Iterable[str]) -> str:
    return f"the {few(list(names), between=', the ')}"


def _transformations(subject: Subject) -> tuple[object, ...]:
    prefixes = [f"transforms.{name}." for name in subject.items("transforms")]
    prefixes += [f"predicates.{name}." for name in subject.items("predicates")]
    own = sorted((key, subject.get(key)) for key in subject.config if key.startswith(tuple(prefixes)))
    return (*subject.items("transforms"), *own)


def is_same_selection(before: Subject, after: Subject) -> bool:
    """Tell whether it is proved that two source or checkpoint connectors take the same topics."""
    mine, other = selection_of(before), selection_of(after)
    if mine is None or other is None:
        return (mine is None) == (other is None) and _raw(before, "topic") == _raw(after, "topic")
    return mine == other or _is_same_language(mine, other)


def _raw(subject: Subject, kind: str) -> tuple[object, ...]:
    own = sorted(item for item in subject.config.items() if item[0].startswith((f"{kind}.filter.", f"{kind}s")))
    return *own, policy_of(subject), subject.get("replication.policy.class")


def _is_same_list(names: NameFilter, other: NameFilter) -> bool:
    return (set(names.include), set(names.exclude)) == (set(other.include), set(other.exclude))


@lru_cache(maxsize=1024)
def _is_same_language(selection: Selection, other: Selection) -> bool:
    if _is_same_list(selection.names, other.names) and _about_names(selection) == _about_names(other):
        return True
    searches = missing(selection, other), missing(other, selection)
    return all(search is not None and search.word is None and not search.open for search in searches)


def _about_names(selection: Selection) -> tuple[object, ...]:
    """Return what besides its lists decides about a topic."""
    return selection.policy, selection.source, selection.target, selection.separator, selection.internal_separator


@lru_cache(maxsize=1024)
def missing(selection_here: Selection, other: Selection) -> Search | None:
    """Search for a topic that one takes and the other does not; None where their lists are no regular languages."""
    lists = [
        names for selection in (selection_here, other) for names in (selection.names.include, selection.names.exclude)
    ]
    include, _, other_include, _ = machines = [machine_of(items) for items in lists]
    if None in machines or include is None or other_include is None:
        return None
    refused = refused_by(selection_here)
    search = _search([include], [*refused, other_include])
    for machine in refused_by(other):
        if search.word is None and not search.open:
            search = _search([include, machine], refused)
    return search


def _search(required: Iterable[Machine], refused: Iterable[Machine]) -> Search:
    return shortest([(machine, "") for machine in required], [(machine, "") for machine in refused], _MOST_STATES)


_Name = tuple[str, str]  # a Connect cluster and a connector on it


def overlaps(
    ours: Mapping[_Name, Subject], others: Mapping[_Name, Subject], topics: Mapping[_Name, Collection[str]]
) -> Iterator[tuple[_Name, _Name, list[str]]]:
    """Yield ours with each of the others where records of both arrive under the same name, and topics, sorted.

    `topics`: those that the source of each of ours has. What runs may be among both, or wrongly declared. Connectors
    that take and name topics alike are compared once, by the topics that both take: the time grows with what is there,
    not with the pairs.
    """
    names = {subject: named for named, subject in {**others, **ours}.items()}
    running = [
        hop for hop in hops(Estate(tuple(names)).known_lines_only.subjects) if hop.selection and not hop.subject.is_off
    ]
    for group in by_pair(running).values():
        mine = [hop for hop in group if names[hop.subject] in ours]
        theirs = [hop for hop in group if names[hop.subject] in others]
        there = {id(topics[named]): topics[named] for named in (names[hop.subject] for hop in mine)}
        if mine and theirs:
            catalog = Catalog({topic for topics in there.values() for topic in topics})
            for hop, rival, shared in arriving_alike(mine, theirs, catalog):
                if own := [topic for topic in shared if topic in topics[names[hop.subject]]]:
                    yield names[hop.subject], names[rival.subject], own
