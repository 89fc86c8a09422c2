"""Whose a live connector is, by the owner mark in its config and the lists `adopt:` and `release:` of this tree; and
the journal of a move between connectors, which stands in a config too. Pure.

Connect does not copy offsets when a config stores them elsewhere: its lookup in the workers' own topic, meant as a
fallback, is hidden by the nulls of the connector's empty topic (ConnectorOffsetBackingStore.get, KIP-618), so every
record would be mirrored again; seen on 4.3.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from mm2mgr.connect.types import SourceOffset
from mm2mgr.connectors import SETTABLE
from mm2mgr.json_values import to_json
from mm2mgr.render import OWNER_KEY
from mm2mgr.text import in_yaml
from mm2mgr.topics.names import NameFilter, Selection
from mm2mgr.topology import KafkaCluster, ListedConnector, Topology

_Named = tuple[str, str]  # a Connect cluster and a connector on it


@dataclass(frozen=True)
class ListEntry:
    """What became of one entry of `adopt:`, `moved:` or `release:`, as a plan shows it. `done`: its line can go.

    `pending` are the keys that an adopted connector gets with its next change, and that are no reason for one.
    """

    list: str
    connector: str
    place: str
    says: str = ""
    done: bool = False
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ownership:
    """Whose connectors are, as the tree of one owner sees it."""

    owner: str
    adopted: Mapping[_Named, ListedConnector] = field(default_factory=dict)
    released: Mapping[_Named, ListedConnector] = field(default_factory=dict)

    @classmethod
    def of_tree(cls, topology: Topology) -> Ownership:
        return cls(
            str(topology.owner),
            {entry.full_name: entry for entry in topology.adopted},
            {entry.full_name: entry for entry in topology.released},
        )

    def is_ours(self, named: _Named, config: Mapping[str, str]) -> bool:
        """Tell whether this tree may write a connector that runs: marked or adopted, and not released."""
        if named in self.released:
            return False
        return config.get(OWNER_KEY) == self.owner or self.is_adopted(named, config)

    def is_adopted(self, named: _Named, config: Mapping[str, str]) -> bool:
        """Tell whether it is this tree's by the list alone: no mark, or that of the owner it is adopted from."""
        entry = self.adopted.get(named)
        mark = config.get(OWNER_KEY) or None
        return entry is not None and mark != self.owner and mark in {None, entry.from_owner}

    def whose(self, named: _Named, config: Mapping[str, str]) -> str:
        """Return whose a connector is that is not this tree's, as the end of a sentence."""
        if named in self.released:
            return f"is released ({self.released[named].place})"
        holder = config.get(OWNER_KEY)
        return f"belongs to owner '{holder}'" if holder else "carries no owner mark"

    def remedy(self, named: _Named, config: Mapping[str, str]) -> str:
        """Return how a connector under a wanted name comes under this tree's management."""
        connect, name = named
        holder = config.get(OWNER_KEY)
        whose = f", from_owner: {in_yaml(holder)}" if holder else ""
        entry = f"adopt: [{{connect: {in_yaml(connect)}, connector: {in_yaml(name)}{whose}}}]"
        if holder and named in self.adopted:
            return f"write from_owner: {in_yaml(holder)} at {self.adopted[named].place} once that owner has released it"
        return f"to manage that connector, write {entry}{' once that owner has released it' if holder else ''}"

    def released_entry(self, named: _Named, config: Mapping[str, str] | None) -> ListEntry:
        """Return what became of an entry of `release:`; `config` is None when nothing of that name runs."""
        entry = ListEntry("release", named[1], self.released[named].place)
        if config is None:
            return replace(entry, says="nothing of that name runs there", done=True)
        holder = config.get(OWNER_KEY)
        if holder != self.owner:
            whose = f"it carries the mark of owner '{holder}'" if holder else "it carries no owner mark"
            return replace(entry, says=whose, done=True)
        says = (
            "left running and not managed; it keeps its owner mark, so this line is needed until "
            f"another tree has adopted it (from_owner: {self.owner}) and written its own"
        )
        return replace(entry, says=says)


Config = Mapping[str, str]

TOPIC = "offsets.storage.topic"
JOURNAL_KEY = "mm2mgr.journal"
"""JSON; the keys that lead to offsets at another place follow behind a dot, so that their secrets are masked like any
other.
"""
_BEHIND = f"{JOURNAL_KEY}."
HELD_KEY = "mm2mgr.held"
"""In the config of a connector that must not run: its opposite keeps the same topic names, and has run since this one's
offsets were written, or may. It is STOPPED, and has enabled=false whoever resumes it; `failover back` writes its
offsets and takes the mark away. The value says so in words.
"""
# Which Kafka the topic is on: without them a topic of the same name elsewhere would be read, and created, empty.
_OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")


Start = Literal["asked", "begun"]


@dataclass(frozen=True)
class Move:
    """Offsets of another connector: `giver` (empty Connect cluster: a dedicated MirrorMaker), and how both were.

    `created`: the receiver did not exist before. `partial`: the giver stays, with fewer topics. `carried`: the offsets
    are stored, so there is no way back. `topics`: those that move of a giver that stays, as they were asked for.
    """

    giver: tuple[str, str]
    pair: tuple[str, str]
    giver_then: str
    created: bool
    partial: bool = False
    carried: bool = False
    topics: tuple[str, ...] = ()
    json_keys = "from=giver pair from_then=giver_then created partial carried topics"

    @classmethod
    def parse(cls, data: object) -> Move:
        """Read what `to_dict` wrote; ValueError where it is something else."""
        fields = _check_type(data, dict)
        created, partial, carried = (_check_type(fields.get(key), bool) for key in ("created", "partial", "carried"))
        topics = tuple(_check_type(topic, str) for topic in _check_type(fields.get("topics", []), list))
        places = _two_texts(fields.get("from")), _two_texts(fields.get("pair"))
        return cls(*places, _state(fields.get("from_then")), created, partial, carried, topics)


@dataclass(frozen=True)
class Journal:
    """How a change that was begun ends: in state `then` ("": the journal is unreadable), with the offsets that are
    still `behind`.

    `behind` are the keys that lead to offsets which the config does not reach (None: it reaches them), `needs` the
    topics without whose stored offsets the connector must not run, and `move` says where offsets come from. `gives` is
    in the config of a giver: the connector that takes its topics over. A move of which only one of the two configs
    speaks is no move. `start` is in the config of a connector that never ran, and whose first offsets an apply writes:
    `asked`, or `begun` once it is known that none were stored under its name before.
    """

    then: str
    behind: Mapping[str, str] | None = field(default=None, repr=False)
    needs: tuple[str, ...] = ()
    move: Move | None = None
    gives: tuple[str, str] | None = None
    start: Start | None = None

    @classmethod
    def of_config(cls, config: Config) -> Journal | None:
        """Return the journal in a config, which anybody may have written: what is not of its types is unreadable."""
        text = config.get(JOURNAL_KEY)
        if text is None:
            return None
        behind = {key.removeprefix(_BEHIND): value for key, value in config.items() if key.startswith(_BEHIND)}
        try:
            fields = _check_type(json.loads(text), dict)
            needs = tuple(_check_type(topic, str) for topic in _check_type(fields.get("needs", []), list))
            move = Move.parse(fields["move"]) if "move" in fields else None
            gives = _two_texts(fields["gives"]) if "gives" in fields else None
            start = _check_start(fields["start"]) if "start" in fields else None
            return cls(_state(fields.get("then")), behind or None, needs, move, gives, start)
        except (ValueError, RecursionError):
            return cls("")

    @property
    def is_readable(self) -> bool:
        return bool(self.then)

    def added_to(self, config: Config) -> dict[str, str]:
        """Return a config with this journal."""
        data: dict[str, object] = {"then": self.then}
        data |= {"needs": list(self.needs)} if self.needs else {}
        data |= {"move": to_json(self.move)} if self.move else {}
        data |= {"gives": list(self.gives)} if self.gives else {}
        data |= {"start": self.start} if self.start else {}
        behind = {_BEHIND + key: value for key, value in (self.behind or {}).items()}
        return {**without_journal(config), JOURNAL_KEY: json.dumps(data), **behind}


_Type = TypeVar("_Type")


def _check_type(value: object, type_: type[_Type]) -> _Type:
    if not isinstance(value, type_):
        raise ValueError(f"{type_.__name__} expected")
    return value


def _two_texts(value: object) -> tuple[str, str]:
    first, second = _check_type(value, list)
    return _check_type(first, str), _check_type(second, str)


def _check_start(value: object) -> Start:
    if value == "asked":
        return "asked"
    if value == "begun":
        return "begun"
    raise ValueError("asked or begun expected")


def _state(value: object) -> str:
    if not isinstance(value, str) or value not in SETTABLE:
        raise ValueError("a connector state expected")
    return value


def without_journal(config: Config) -> dict[str, str]:
    """Return a config without a journal."""
    return {key: value for key, value in config.items() if key != JOURNAL_KEY and not key.startswith(_BEHIND)}


def is_moved(live: Config, desired: Config) -> bool:
    """Tell whether writing `wanted` would leave stored offsets behind, or a change that was begun unfinished."""
    return JOURNAL_KEY in live or storage_topic(live) != storage_topic(desired)


def left_at(live: Config, desired: Config) -> Mapping[str, str] | None:
    """Return the keys that lead to offsets which `wanted` does not reach; None when it reaches them."""
    journal = Journal.of_config(live)
    if journal and journal.behind is not None:
        return journal.behind
    return place(live) if storage_topic(live) != storage_topic(desired) else None


def place(config: Config) -> dict[str, str]:
    """Return the keys that say where offsets are stored; the topic is empty for the workers' own."""
    own = {key: value for key, value in config.items() if key.startswith(_OVERRIDES)}
    return {TOPIC: storage_topic(config)} | own


def with_offsets_at(where: Config, config: Config) -> dict[str, str]:
    """Return a config that finds its offsets at another place."""
    own = place(config)
    return {key: value for key, value in config.items() if key not in own} | {
        key: value for key, value in where.items() if value
    }


def move_text(live: Config, desired: Config, *, runs: bool) -> str:
    """Describe, for a plan, what an update does besides writing the config; `runs` where it was seen to."""
    journal = Journal.of_config(live)
    if journal and journal.needs and runs and journal.behind is None:
        return "its journal goes, which says what is to be proved before it runs: it runs already"
    if journal and journal.start:
        return f"finishes writing where it begins, then {journal.then}"
    if journal:
        verb = "checking" if journal.needs else "moving"
        return f"finishes {verb} its stored offsets, then {journal.then}{'' if journal.needs else ' again'}"
    return f"stops the connector, copies its offsets from {_name_of(live)} to {_name_of(desired)}, resumes it"


def storage_topic(config: Config) -> str:
    """Return the topic of its own that a connector stores offsets in, empty for the workers' own."""
    return config.get(TOPIC, "").strip()


def _name_of(config: Config) -> str:
    return storage_topic(config) or "the workers' own topic"


@dataclass(frozen=True)
class Picks:
    """Which stored offsets move: those under the alias `before` ("": all there are) of topics that each of `takes`
    takes and none of `leaves`.

    They are stored under the alias `after`: MirrorMaker reads no others.
    """

    before: str = ""
    after: str = ""
    takes: tuple[Selection | NameFilter, ...] = ()
    leaves: tuple[Selection, ...] = ()

    def has_topic(self, topic: str) -> bool:
        """Tell whether the offsets of a topic move."""
        return all(selection.takes(topic) for selection in self.takes) and not any(
            selection.takes(topic) for selection in self.leaves
        )

    def covers(self, entry: SourceOffset, alias: str) -> bool:
        """Tell whether an entry under an alias is one of them."""
        if not self.before:
            return True
        return self.has_topic(str(entry.partition.get("topic"))) and entry.partition.get("cluster") == alias

    def entries_of(self, entries: Iterable[SourceOffset]) -> list[SourceOffset]:
        """Return those that move, as the receiver stores them."""
        chosen = [entry for entry in entries if self.covers(entry, self.before)]
        if self.before == self.after:
            return chosen
        return [SourceOffset({**entry.partition, "cluster": self.after}, entry.offset) for entry in chosen]

    def staying(self) -> Picks:
        """Return the same choice for the connector that gives them."""
        return replace(self, after=self.before)


EVERY = Picks()


@dataclass(frozen=True)
class TakeOver:
    """What a connector takes over from another one: `giver`, its config as the plan saw it (None: gone), and the one
    that it keeps (None: deleted).

    `journal` is the one that the receiver has or gets, `beside` what served the giver alone and is deleted with it.
    `back`: the tree no longer wants it, so what was begun is undone. `leaves`: nothing in the tree says that the giver
    may go, so it stays, stopped. `resting` are the offsets of topics that the giver took once and takes no more:
    nothing moves them but this.
    """

    giver: tuple[str, str]
    before: Config | None = field(repr=False)
    keeps: Config | None = field(repr=False)
    journal: Journal
    picks: Picks = field(repr=False)
    beside: tuple[tuple[tuple[str, str], Config], ...] = field(default=(), repr=False)
    back: bool = False
    leaves: bool = False
    resting: Picks | None = field(default=None, repr=False)
    born_stopped: bool = True
    """Whether its workers can create a connector STOPPED (KIP-980); else it is created without tasks, then stopped."""
    dedicated: KafkaCluster | None = field(default=None, repr=False)
    """Where the giver keeps its offsets, if it is a dedicated MirrorMaker."""

    def has_topic(self, topic: str) -> bool:
        """Tell whether the offsets of a topic come along."""
        return self.picks.has_topic(topic) or (self.resting is not None and self.resting.has_topic(topic))

    @property
    def move(self) -> Move:
        """How it was begun."""
        assert self.journal.move is not None
        return self.journal.move


def is_held(config: Mapping[str, str]) -> bool:
    """Tell whether a connector must not run until `failover back` has written where it goes on."""
    return HELD_KEY in config


def as_held(config: Mapping[str, str], opposite: str) -> dict[str, str]:
    """Return a config with which a connector has no tasks, whoever resumes it; `opposite`: the pair that runs."""
    return {**config, HELD_KEY: f"until mm2mgr failover back '{opposite}'", "enabled": "false"}


def hold_keys(config: Mapping[str, str]) -> dict[str, str]:
    """Return what a held connector's config has beside what the tree declares."""
    return {HELD_KEY: config[HELD_KEY], "enabled": "false"}


def never_ran(config: Mapping[str, str]) -> bool:
    """Tell whether a config's journal says that its first offsets are still to be written."""
    journal = Journal.of_config(config) if JOURNAL_KEY in config else None
    return journal is not None and journal.start is not None
