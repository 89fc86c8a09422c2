"""The plan as a value: what would be created, updated and deleted, key by key. Pure: desired and live in, a Plan out.

A Connect cluster whose live state could not be read has an error and no changes: a failed read never becomes a create.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.reconcile.offset_move import is_moved, told
from mm2mgr.render import OWNER_KEY, Connector
from mm2mgr.secrets import mask

Action = Literal["create", "update", "delete", "no-op", "blocked"]
WRITES = frozenset({"create", "update"})
SELECTING = (
    "topics",
    "topics.exclude",
    "topic.filter.class",
    "source.cluster.alias",
    "target.cluster.alias",
    "source.cluster.bootstrap.servers",
    "target.cluster.bootstrap.servers",
    "replication.policy.class",
    "replication.policy.separator",
    "enabled",
)
"""The keys that decide what a source connector takes, and what it is called on the target."""
_ORDER: dict[str, int] = {"heartbeat": 0, "source": 1, "checkpoint": 2}


@dataclass(frozen=True)
class KeyChange:
    """One key of one connector: None before means added, None after means removed."""

    key: str
    before: str | None = field(repr=False)  # may be secrets
    after: str | None = field(repr=False)

    @property
    def kind(self) -> Literal["add", "change", "remove"]:
        if self.before is None:
            return "add"
        return "remove" if self.after is None else "change"

    def to_dict(self) -> dict[str, Any]:
        """Return the change with secrets masked."""
        shown = {
            name: None if v is None else mask(self.key, v)
            for name, v in (("before", self.before), ("after", self.after))
        }
        return {"key": self.key, "kind": self.kind, **shown}


@dataclass(frozen=True)
class Taken:
    """Topics of the source that a write begins to mirror, with partitions and records in each; `of` so many topics there."""

    topics: Mapping[str, tuple[int, int]]
    of: int

    def to_dict(self) -> dict[str, Any]:
        counts = {name: {"partitions": parts, "records": records} for name, (parts, records) in self.topics.items()}
        return {"topics": counts, "of": self.of}


@dataclass(frozen=True)
class Change:
    """What happens to one connector. `config` is what would be written; None for delete, no-op and blocked.

    `remedy` says how to get a blocked one through, `warnings` what is wrong although nothing is held back for it, `takes`
    what a source connector will mirror that it does not mirror now (None: nothing more, or it could not be read).
    """

    connect: str
    connector: str
    type: str
    action: Action
    flows: tuple[str, ...] = ()
    keys: tuple[KeyChange, ...] = ()
    reason: str = ""
    config: Mapping[str, str] | None = field(default=None, repr=False)
    remedy: str = ""
    warnings: tuple[str, ...] = ()
    takes: Taken | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON-ready values, secrets masked."""
        return {
            "connector": self.connector,
            "type": self.type,
            "action": self.action,
            "flows": list(self.flows),
            "reason": self.reason,
            "remedy": self.remedy,
            "warnings": list(self.warnings),
            "takes": self.takes and self.takes.to_dict(),
            "keys": [key.to_dict() for key in self.keys],
        }


@dataclass(frozen=True)
class ClusterPlan:
    """The plan of one Connect cluster; `error` when its live state is unknown (then there are no changes).

    `notes` say aloud what could not be verified beforehand.
    """

    connect: str
    changes: tuple[Change, ...] = ()
    left_over: tuple[str, ...] = ()
    unowned: int = 0
    error: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "connect": self.connect,
            "error": self.error,
            "hint": self.hint,
            "changes": [change.to_dict() for change in self.changes],
            "left_over": list(self.left_over),
            "unowned": self.unowned,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Plan:
    """The plan of the whole estate, one part per Connect cluster."""

    owner: str
    clusters: tuple[ClusterPlan, ...]
    prune: bool = False
    mirror_again: bool = False

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for cluster in self.clusters for change in cluster.changes)

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.action in {"create", "update", "delete"})

    @property
    def failed(self) -> bool:
        """True when a cluster could not be read or a connector is held back."""
        return any(cluster.error for cluster in self.clusters) or any(c.action == "blocked" for c in self.changes)

    def counts(self) -> dict[str, int]:
        """Return how many connectors each action concerns."""
        counts = {"create": 0, "update": 0, "delete": 0, "no-op": 0, "blocked": 0}
        for change in self.changes:
            counts[change.action] += 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return everything people and machines may see; text, JSON and plan files are made from this."""
        return {
            "owner": self.owner,
            "prune": self.prune,
            "mirror_again": self.mirror_again,
            "counts": self.counts(),
            "clusters": [cluster.to_dict() for cluster in self.clusters],
        }


def diff(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[KeyChange, ...]:
    """Return the differing keys in order of their names. Values compare as strings, as Connect stores them."""
    return tuple(
        KeyChange(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


LiveConfigs = Mapping[str, Mapping[str, str]]
Named = tuple[str, str]
"""A Connect cluster and a connector on it."""


@dataclass(frozen=True)
class Wish:
    """How a plan is to be made."""

    prune: bool = False
    mirror_again: bool = False


def plan_cluster(
    owner: str, connect: str, desired: Iterable[Connector], live: LiveConfigs, wish: Wish | None = None
) -> ClusterPlan:
    """Compare what one Connect cluster should run with the configs it has (name → config)."""
    wish = wish or Wish()
    wanted = sorted(desired, key=lambda connector: (connector.pair, _ORDER[connector.type], connector.name))
    changes = [_compare(owner, connect, connector, live.get(connector.name)) for connector in wanted]
    names = {connector.name for connector in wanted}
    left_over = sorted(name for name, config in live.items() if config.get(OWNER_KEY) == owner and name not in names)
    if wish.prune:
        changes += [_delete(connect, name, live[name]) for name in left_over]
    unowned = sum(1 for config in live.values() if config.get(OWNER_KEY) != owner)
    return ClusterPlan(connect, tuple(changes), () if wish.prune else tuple(left_over), unowned)


def with_predecessors_kept(clusters: Iterable[ClusterPlan], again: Mapping[Named, Named]) -> tuple[ClusterPlan, ...]:
    """Keep what a blocked connector is to take over from: deleted or narrowed alone, nobody would mirror these topics."""
    clusters = tuple(clusters)
    changes = {(c.connect, c.connector): c for cluster in clusters for c in cluster.changes}
    kept = {old: new for new, old in again.items() if new in changes and changes[new].action == "blocked"}
    # Its heartbeat and checkpoint connectors are named after the same pair, and run beside it.
    beside = {(old[0], _pair_of(changes[old])): new for old, new in kept.items() if old in changes}

    def kept_or_not(change: Change) -> Change:
        new = kept.get((change.connect, change.connector))
        if new is None and change.type != "source":
            new = beside.get((change.connect, _pair_of(change)))
        narrowed = change.action == "update" and any(key.key in SELECTING for key in change.keys)
        if new is None or not (change.action == "delete" or narrowed):
            return change
        reason = f"'{new[1]}' on Connect cluster '{new[0]}', which is to take over its topics, is blocked: nobody would mirror them"
        return replace(change, action="blocked", keys=(), reason=reason, config=None)

    return tuple(replace(each, changes=tuple(map(kept_or_not, each.changes))) for each in clusters)


def _pair_of(change: Change) -> frozenset[str]:
    """Return the two clusters that a deleted connector stands between; a heartbeat's are the other way round."""
    keys = ("source.cluster.alias", "target.cluster.alias")
    return frozenset(key.before or "" for key in change.keys if key.key in keys)


def _compare(owner: str, connect: str, desired: Connector, live: Mapping[str, str] | None) -> Change:
    def change(action: Action, keys: Sequence[KeyChange] = (), reason: str = "") -> Change:
        config = desired.config if action in {"create", "update"} else None
        return Change(connect, desired.name, desired.type, action, desired.flows, tuple(keys), reason, config)

    if live is None:
        return change("create", diff({}, desired.config))
    holder = live.get(OWNER_KEY)
    if holder != owner:
        whose = f"belongs to owner '{holder}'" if holder else "carries no owner mark"
        taken = change("blocked", reason=f"a connector of this name exists and {whose}; mm2mgr does not touch it")
        return replace(taken, remedy=_REMEDIES[desired.type].format(flow=desired.flows[0].partition(":")[0]))
    keys = diff(live, desired.config)
    along = told(live, desired.config) if desired.type == "source" and is_moved(live, desired.config) else ""
    return change("update", keys, along) if keys else change("no-op")


# A pair has one heartbeat and one checkpoint connector, whoever runs it.
_REMEDIES = {
    "heartbeat": "leave the heartbeats of the pair to that connector: write heartbeats: false in flow '{flow}' and the other flows of the pair",
    "checkpoint": "leave the checkpoints of the pair to that connector, which then has to take these topics and groups too: "
    "write checkpoints: false in flow '{flow}' and the other flows of the pair",
    "source": "rename flow '{flow}', or delete that connector if nobody needs it",
}


def _delete(connect: str, name: str, config: Mapping[str, str]) -> Change:
    kind = config.get("connector.class", "").rsplit(".Mirror", 1)[-1].removesuffix("Connector").lower()
    return Change(connect, name, kind, "delete", keys=diff(config, {}), reason="no longer declared")
