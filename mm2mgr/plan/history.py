"""What the history says: changes by whom and when, the config that each connector was last given, and which tree has
adopted it. Pure.

It stands in one compacted topic on the Kafka cluster that a Connect cluster runs on, masked; `apply.history` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import RESTING
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.questions import TextsByKey
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import Change, ClusterPlan, aliases_of
from mm2mgr.secrets import mask_text
from mm2mgr.text import visible
from mm2mgr.topology import Topology

ENTRY, CONFIG = "entry/", "config/"
"""How the keys of entries and of configs begin."""
RESTARTED, TASK = "restarted", "task "
"""What a key of an entry is changed to that names a part of a connector, and how it begins for a task."""


@dataclass(frozen=True)
class HistoryEntry:
    """One change of one connector. `keys` and `state` are as plans show them: from what to what, secrets masked.

    `who` is a name that may be given; `user` and `host` are the system's, where the command ran.
    `outcome` is `begun` until it is known: an entry that stays so is of a command that was killed.
    `was_written`: whether Connect stored a change that `failed`, or may have.
    """

    id: str
    when: str
    who: str
    commit: str
    command: str
    owner: str
    connect: str
    connector: str
    flows: tuple[str, ...] = ()
    action: str = ""
    reason: str = ""
    keys: tuple[Mapping[str, Any], ...] = ()
    state: Mapping[str, str] | None = None
    outcome: str = "begun"
    error: str | None = None
    was_written: bool = False
    user: str = ""
    host: str = ""

    @classmethod
    def parse(cls, text: str) -> HistoryEntry | None:
        """Read an entry, which anybody who may write to the topic may have written; None where it is something else."""
        try:
            read = json.loads(text)
            fields_read = {name: read[name] for name in (field.name for field in fields(cls)) if name in read}
            keys = tuple({"before": None, "after": None, **key} for key in read["keys"])
            entry = replace(cls(**fields_read), flows=tuple(read["flows"]), keys=keys)
            is_dated = datetime.fromisoformat(entry.when).tzinfo is not None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None
        return entry if is_dated and entry._is_of_its_types() else None

    @property
    def at_seconds(self) -> float:
        """When the change began, in seconds since 1970."""
        return datetime.fromisoformat(self.when).timestamp()

    def _is_of_its_types(self) -> bool:
        words = [getattr(self, column.name) for column in fields(self) if column.type == "str"]
        shown = [key[side] for key in self.keys for side in ("before", "after")]
        state = {"after": ""} if self.state is None else self.state
        return (
            isinstance(state, dict)
            and isinstance(self.was_written, bool)
            and all(isinstance(text, str) for text in (*words, *self.flows, *(key.get("key") for key in self.keys)))
            and all(text is None or isinstance(text, str) for text in (self.error, *shown, *state.values()))
            and isinstance(state.get("after"), str)
        )


@dataclass(frozen=True)
class History:
    """What the topics hold of one owner: entries, newest last, and the config that each connector was last given,
    secrets masked.

    `unread` has the Connect clusters whose history could not be read, with the reason.
    """

    entries: tuple[HistoryEntry, ...] = ()
    applied: Mapping[Named, Mapping[str, str]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def read_topics(aliases: Iterable[str]) -> Steps[dict[str, dict[str, str] | str]]:
    """Read the topic on each of these Kafka clusters: the text of each key, or why it could not be read."""
    questions = [TextsByKey(alias, HISTORY_TOPIC) for alias in sorted(aliases)]
    snapshot = yield questions
    answers = ((question.cluster, snapshot.get(question)) for question in questions)
    return {alias: answer.one_line if isinstance(answer, Mm2mgrError) else answer for alias, answer in answers}


def read_history(topology: Topology, connects: Iterable[str] | None = None) -> Steps[History]:
    """Read what is recorded of this tree's owner on some Connect clusters, or on all."""
    every = set(topology.connects if connects is None else connects)
    wanted = {connect for connect in every if topology.connects[connect].model.history}
    answers = yield from read_topics({topology.connects[connect].kafka for connect in wanted})
    entries, applied = list[HistoryEntry](), dict[Named, Mapping[str, str]]()
    unread = dict.fromkeys(sorted(every - wanted), "the tree says history: false")
    for alias, answer in answers.items():
        here = {connect for connect in wanted if topology.connects[connect].kafka == alias}
        if isinstance(answer, str):
            unread.update(dict.fromkeys(sorted(here), answer))
            continue
        entries_read = (HistoryEntry.parse(text) for key, text in answer.items() if key.startswith(ENTRY))
        entries += [
            entry for entry in entries_read if entry and entry.owner == topology.owner and entry.connect in here
        ]
        for connect in here:
            start = f"{CONFIG}{topology.owner}/{connect}/"
            applied |= {
                (connect, key.removeprefix(start)): config
                for key, text in answer.items()
                if key.startswith(start) and (config := _config(text))
            }
    return History(tuple(sorted(entries, key=lambda entry: (entry.when, entry.id))), applied, unread)


def with_newer(entries: Iterable[HistoryEntry], newer: Iterable[HistoryEntry], since: float) -> list[HistoryEntry]:
    """Return entries, oldest first, with those that came after `since` (seconds since 1970), and with the outcomes that
    were not known yet."""
    by_id = {entry.id: entry for entry in entries}
    for entry in newer:
        before = by_id.get(entry.id)
        if (before and before.outcome == "begun") or (before is None and entry.at_seconds >= since):
            by_id[entry.id] = entry
    return sorted(by_id.values(), key=lambda entry: (entry.when, entry.id))


_BY_TREE = frozenset({"apply", "reconcile"})
"""The commands that pause and stop as the tree says; all others do it because a person asked for it."""


def newest_applies(entries: Iterable[HistoryEntry]) -> dict[str, float]:
    """Return when an apply of the tree last changed something, per Connect cluster, in seconds since 1970."""
    times = dict[str, float]()
    for entry in entries:
        if entry.command in _BY_TREE and (entry.outcome in {"done", "inconclusive"} or entry.was_written):
            times[entry.connect] = max(entry.at_seconds, times.get(entry.connect, 0.0))
    return times


def rested_by_hand(entries: Iterable[HistoryEntry]) -> dict[Named, HistoryEntry]:
    """Return the entry of the newest pause or stop of each connector that a person asked for and that still holds: no
    person, and no `state: running` of the tree, has resumed it since, and it is the same connector.

    `entries`: oldest first. That the tree pauses or stops it too, or in its place, ends nothing.
    """
    held: dict[Named, HistoryEntry] = {}
    for entry in entries:
        named = entry.connect, entry.connector
        if entry.outcome == "failed" and not entry.was_written:
            continue
        if entry.action in {"create", "delete"}:
            held.pop(named, None)
        if not entry.state:
            continue
        by_tree, before = entry.command in _BY_TREE, entry.state.get("before")
        if entry.state["after"] not in RESTING or (by_tree and before and before not in RESTING):
            held.pop(named, None)  # where the tree found it running, somebody had resumed it
        if entry.state["after"] in RESTING and not by_tree:
            held[named] = entry
    return held


def rested_by_tree(entries: Iterable[HistoryEntry], resting: Mapping[Named, str]) -> dict[Named, str]:
    """Return which of these connectors, each with the state in which it rests, an apply of the tree brought there, and
    why they go on now: the newest change of their state was an apply's, and no person wants it to rest."""
    entries = list(entries)
    newest = {(entry.connect, entry.connector): entry for entry in entries if entry.state and entry.outcome != "failed"}
    held = rested_by_hand(entries)
    reasons = {}
    for named, shown in resting.items():
        entry = None if named in held else newest.get(named)
        if entry and entry.state and entry.command in _BY_TREE and entry.state["after"] == shown:
            since = entry.when[:16].replace("T", " ")
            reasons[named] = (
                f"goes on: the tree, which had it {shown} since {since} UTC, no longer says state: {shown.lower()}"
            )
    return reasons


def _config(text: str) -> dict[str, str] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else None


# --- what several trees adopt -----------------------------------------------------------------------------------------

# Each tree leaves a claim beside the history, since it writes nothing to the connector, and sees those of the others. A
# claim lasts until its connector carries the owner mark or its tree releases it. A tree that finds another owner's
# claim leaves its own all the same: so both refuse, and both name the other, until one of them gives way. It bars every
# write of the tree whose mark the connector still carries, too: that may be an old checkout, from before the connector
# was released.

_CLAIM = "claim/"
_NO_HISTORY = "the tree says history: false"
Pair = tuple[str, str]
"""Source and target alias in a connector's config, which are the same for every tree."""


@dataclass(frozen=True)
class Claim:
    """One owner's claim on a connector; `connect` and `urls` are how its tree calls and reaches the Connect cluster.

    Trees may call one Connect cluster differently. What is the same for all of them is the Kafka cluster that has the
    claim, the connector's name, and `pair`, which is read from the connector's config.
    """

    owner: str
    connect: str
    connector: str
    pair: Pair
    urls: tuple[str, ...]
    who: str
    commit: str
    when: str

    @property
    def full_name(self) -> Named:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    def places(self, topology: Topology, kafka: str) -> tuple[str, ...]:
        """Return the tree's Connect clusters that it may mean, of those on the Kafka cluster where it was found.

        A URL shows which one; without any in common it may be each of them.
        """
        urls = {
            name: {mask_text(url) for url in connect.model.url}
            for name, connect in topology.connects.items()
            if connect.kafka == kafka and connect.model.history
        }
        return tuple(name for name, own in urls.items() if own & set(self.urls)) or tuple(urls)

    @property
    def key(self) -> str:
        return f"{_CLAIM}{self.connect}/{self.connector}/{self.owner}"

    def __str__(self) -> str:
        tree = f", commit {self.commit}" if self.commit else ""
        where = (
            f"Connect cluster '{self.connect}' at {self.urls[0]}" if self.urls else f"Connect cluster '{self.connect}'"
        )
        return f"owner '{self.owner}' has adopted it ({where}; by {self.who}, {self.when}{tree})"

    @classmethod
    def parse(cls, text: str) -> Claim | None:
        """Read what was written; None where it is something else."""
        try:
            read = json.loads(text)
            words = {
                name: visible(str(read[name])) for name in ("owner", "connect", "connector", "who", "commit", "when")
            }
            source, target = read["pair"]
            return cls(**words, pair=(str(source), str(target)), urls=tuple(visible(str(url)) for url in read["urls"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


@dataclass(frozen=True)
class Claims:
    """What is claimed of some connectors: by others, and by this tree. `unread` has Connect clusters where that is not
    known, and why.
    """

    others: Mapping[Named, Claim] = field(default_factory=dict)
    own: tuple[Claim, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def adopting(owners: Ownership, parts: Iterable[ClusterPlan]) -> dict[Named, Pair]:
    """Return the connectors that are this tree's by its list alone, as a plan saw them."""
    changes = (change for part in parts for change in part.changes)
    return dict(_pair(c) for c in changes if c.before is not None and owners.is_adopted(_pair(c)[0], c.before))


def rewriting(parts: Iterable[ClusterPlan]) -> dict[Named, Pair]:
    """Return the connectors that a plan updates or deletes: another tree may have adopted them, and not have written
    its mark yet.
    """
    changes = (change for part in parts for change in part.changes)
    return dict(_pair(change) for change in changes if change.action in {"update", "delete"} and change.before)


def _pair(change: Change) -> tuple[Named, Pair]:
    return change.full_name, aliases_of(change.before or {})


def read_claims(topology: Topology, pairs: Mapping[Named, Pair], also: Iterable[str] = ()) -> Steps[Claims]:
    """Read the claims on these connectors, and this tree's own on their Connect clusters and on those in `also`."""
    names = {connect for connect, _ in pairs} | set(also)
    with_history = {name for name in names if topology.connects[name].model.history}
    unread = dict.fromkeys(names - with_history, _NO_HISTORY)
    answers = yield from read_topics({topology.connects[name].kafka for name in with_history})
    by_alias = {alias: answer if isinstance(answer, str) else _claims_in(answer) for alias, answer in answers.items()}
    others, own = dict[Named, Claim](), list[Claim]()
    for name in sorted(with_history):
        claims_there = by_alias[topology.connects[name].kafka]
        if isinstance(claims_there, str):
            unread[name] = claims_there
            continue
        own += [claim for claim in claims_there if (claim.owner, claim.connect) == (topology.owner, name)]
        others |= {
            (name, claim.connector): claim
            for claim in claims_there
            if claim.owner != topology.owner
            and pairs.get((name, claim.connector)) == claim.pair
            and name in claim.places(topology, topology.connects[name].kafka)
        }
    return Claims(others, tuple(own), unread)


def _claims_in(texts: Mapping[str, str]) -> list[Claim]:
    claims = (Claim.parse(text) for key, text in texts.items() if key.startswith(_CLAIM))
    return [claim for claim in claims if claim]


CLAIMED = (
    "if your tree has released it, apply its newest commit; else agree on one owner: the tree that gives it up writes"
    " it under release: and applies"
)
"""What to do about what another owner claims."""


def with_claims_shown(part: ClusterPlan, claims: Claims) -> ClusterPlan:
    """Return the part that says of its entries what another owner claims, and where that is not known."""
    lists = (
        replace(entry, says=f"not adopted: {claim}", done=False, pending=())
        if entry.list == "adopt" and (claim := claims.others.get((part.connect, entry.connector)))
        else entry
        for entry in part.lists
    )
    reason = claims.unread.get(part.connect)
    if reason == _NO_HISTORY and not any(entry.list == "adopt" for entry in part.lists):
        reason = None  # the tree knows that it leaves and reads no claims
    note = f"not verified: whether another owner has adopted the same connectors ({reason})" if reason else None
    return replace(part, lists=tuple(lists), notes=(*part.notes, *filter(None, [note])))
