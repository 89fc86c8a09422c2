"""The plan as a value: creates, updates and deletes, key by key, and the restarts for fewer tasks that wait. Pure.

A Connect cluster whose live state could not be read has an error and no changes: a failed read never becomes a create.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.partitions import moved_partitions
from mm2mgr.reconcile.offsets import is_moved, move_text
from mm2mgr.reconcile.ownership import Ownership
from mm2mgr.render import Connector
from mm2mgr.secrets import mask
from mm2mgr.text import number_of

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
RESTING = frozenset({"PAUSED", "STOPPED"})
_SETTLED = frozenset({"RUNNING", "FAILED"}) | RESTING
# More deletes than both the number and the share of the owner's connectors need a word.
DELETES_UNASKED = 10
DELETES_UNASKED_SHARE = 0.2


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

    `before` is the live config that the plan saw, of connectors of this owner; it is compared again before a write and is
    never printed. `shown` is the state that Connect showed ("": none, or not read). `state` has the state that Connect showed (empty: none, or not read) and the wished one, where they differ.
    `remedy` says how to get a blocked one through, `warnings` what is wrong although nothing is held back for it, `takes`
    what a source connector will mirror that it does not mirror now (None: nothing more, or it could not be read).
    `waits` says why an update that only lowers the number of tasks is not written now.
    `needs_offsets` are topics that have arrived already: it is created to run only if their offsets are stored under its name.
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
    needs_offsets: tuple[str, ...] = ()
    before: Mapping[str, str] | None = field(default=None, repr=False)
    shown: str = ""
    state: tuple[str, str] | None = None
    waits: str = ""

    @property
    def only_rests(self) -> bool:
        """Tell whether nothing is written but that it pauses or stops."""
        return not self.keys and self.state is not None and self.state[1] != "RUNNING"

    def blocked(self, reason: str, remedy: str = "") -> Change:
        """Return the change as one that is not written."""
        return replace(self, action="blocked", reason=reason, remedy=remedy, keys=(), config=None, state=None)

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
            "needs_offsets": list(self.needs_offsets),
            "keys": [key.to_dict() for key in self.keys],
            "state": self.state and {"before": self.state[0], "after": self.state[1]},
            "waits": self.waits or None,
        }


@dataclass(frozen=True)
class ClusterPlan:
    """The plan of one Connect cluster; `error` when its live state is unknown (then there are no changes).

    `notes` name what could not be verified beforehand.
    """

    connect: str
    changes: tuple[Change, ...] = ()
    left_over: tuple[str, ...] = ()
    unowned: int = 0
    error: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.action in {"create", "update", "delete"})

    def each(self, of: Callable[[Change], Change]) -> ClusterPlan:
        """Return the plan with another change in the place of each."""
        return replace(self, changes=tuple(map(of, self.changes)))

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
    allow_deletes: int = 0

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for cluster in self.clusters for change in cluster.changes)

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(change for cluster in self.clusters for change in cluster.writes)

    @property
    def left_over(self) -> int:
        """How many connectors of this owner run, are no longer declared, and stay."""
        return sum(len(cluster.left_over) for cluster in self.clusters)

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
            "allow_deletes": self.allow_deletes,
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
    """How a plan is to be made. `allow_deletes` is how many deletes are meant, where there are more than go unasked."""

    prune: bool = False
    mirror_again: bool = False
    allow_deletes: int = 0


def plan_cluster(  # noqa: PLR0913  both sides, and what is wanted of them
    owners: Ownership,
    connect: str,
    desired: Iterable[Connector],
    live: LiveConfigs,
    wish: Wish | None = None,
    *,
    states: Mapping[str, str] | None = None,
) -> ClusterPlan:
    """Compare what one Connect cluster should run with the configs it has (name → config).

    `states` has the states that connectors show, in Connect's words; one that is not there is unknown.
    """
    wish, states = wish or Wish(), states or {}
    wanted = sorted(desired, key=lambda connector: (connector.pair, _ORDER[connector.type], connector.name))
    changes = [
        _compare(owners, connect, connector, live.get(connector.name), state=states.get(connector.name, ""))
        for connector in wanted
    ]
    names = {connector.name for connector in wanted}
    ours = {name for name, config in live.items() if owners.is_ours((connect, name), config)}
    left_over = sorted(ours - names)
    if wish.prune:
        changes += [_delete(connect, name, live[name]) for name in left_over]
    return ClusterPlan(connect, tuple(changes), () if wish.prune else tuple(left_over), len(live) - len(ours))


def with_predecessors_kept(
    clusters: Iterable[ClusterPlan], again: Mapping[Named, Sequence[Named]]
) -> tuple[ClusterPlan, ...]:
    """Keep the connectors that a blocked one replaces: if they were deleted or narrowed alone, these topics would not be mirrored."""
    clusters = tuple(clusters)
    changes = {(c.connect, c.connector): c for cluster in clusters for c in cluster.changes}
    blocked = {new: olds for new, olds in again.items() if new in changes and changes[new].action == "blocked"}
    kept = {old: new for new, olds in blocked.items() for old in olds}
    # Its heartbeat and checkpoint connectors are named after the same pair, and run beside it.
    beside = {(old[0], _pair_of(changes[old])): new for old, new in kept.items() if old in changes}

    def kept_or_not(change: Change) -> Change:
        new = kept.get((change.connect, change.connector))
        if new is None and change.type != "source" and change.action == "delete":
            new = beside.get((change.connect, _pair_of(change)))
        narrowed = change.action == "update" and any(key.key in SELECTING for key in change.keys)
        if new is None or not (change.action == "delete" or narrowed):
            return change
        reason = f"'{new[1]}' on Connect cluster '{new[0]}', which takes over its topics, is blocked: they would no longer be mirrored"
        return replace(change.blocked(reason), state=change.state)

    return tuple(cluster.each(kept_or_not) for cluster in clusters)


def _pair_of(change: Change) -> frozenset[str]:
    """Return the two clusters that a deleted connector connects; a heartbeat's are the other way round."""
    keys = ("source.cluster.alias", "target.cluster.alias")
    return frozenset(key.before or "" for key in change.keys if key.key in keys)


def with_mass_deletes_held(clusters: Iterable[ClusterPlan], allowed: int = 0) -> tuple[ClusterPlan, ...]:
    """Block all deletes where they are too many to go unasked: the common accident is a tree that lost its flows."""
    clusters = tuple(clusters)
    changes = [change for cluster in clusters for change in cluster.changes]
    count = sum(change.action == "delete" for change in changes)
    owned = sum(change.before is not None for change in changes) + sum(len(each.left_over) for each in clusters)
    if count <= max(allowed, DELETES_UNASKED) or count <= owned * DELETES_UNASKED_SHARE:
        return clusters
    reason = f"one of {count} deletes, of {owned} connectors of this owner"
    remedy = f"if all of them are intended, add --allow-deletes {count}"

    def held(change: Change) -> Change:
        return change.blocked(reason, remedy) if change.action == "delete" else change

    return tuple(cluster.each(held) for cluster in clusters)


def _compare(
    owners: Ownership, connect: str, desired: Connector, live: Mapping[str, str] | None, *, state: str
) -> Change:
    named = connect, desired.name
    ours = live is not None and owners.is_ours(named, live)

    def change(action: Action, keys: tuple[KeyChange, ...] = (), reason: str = "") -> Change:
        config, before = desired.config if action in WRITES else None, live if ours else None
        flows, name = desired.flows, desired.name
        return Change(connect, name, desired.type, action, flows, keys, reason, config, before=before, shown=state)

    if live is None:
        rests = ("", desired.state) if desired.state in RESTING else None
        return replace(change("create", diff({}, desired.config)), state=rests)
    if not ours:
        whose = owners.whose(named, live)
        taken = change("blocked", reason=f"a connector of this name exists and {whose}; mm2mgr does not touch it")
        without = _REMEDIES[desired.type].format(flow=desired.flows[0].partition(":")[0])
        return replace(taken, remedy=f"{owners.remedy(named, live)}; else {without}")
    keys = diff(live, desired.config) if live != desired.config else ()
    moves = keys and desired.type == "source" and is_moved(live, desired.config)
    along = move_text(live, desired.config) if moves else ""
    turn = _turn(state, desired.state)
    found = change("update", keys, along) if keys or turn else change("no-op")
    if turn:
        found = replace(found, state=turn)
    if desired.state is None or state in _SETTLED:
        return found
    unknown = f"whether it is {desired.state} could not be read (it shows {state or 'no status yet'}); plan again"
    return replace(found, warnings=(unknown,))


def _turn(shown: str, wished: str | None) -> tuple[str, str] | None:
    """Return the states before and after, where a connector is to be paused, resumed or stopped.

    A failed connector is not resumed for that. No state, or a transitional one, says nothing.
    """
    if wished is None or shown not in _SETTLED or shown == wished or (shown, wished) == ("FAILED", "RUNNING"):
        return None
    return shown, wished


# A pair has one heartbeat and one checkpoint connector, whoever runs it.
_REMEDIES = {
    "heartbeat": "leave the heartbeats of the pair to that connector: write heartbeats: false in flow '{flow}' and the other flows of the pair",
    "checkpoint": "leave the checkpoints of the pair to that connector, which then has to take these topics and groups too: "
    "write checkpoints: false in flow '{flow}' and the other flows of the pair",
    "source": "rename flow '{flow}', or delete that connector if it is no longer needed",
}


def _delete(connect: str, name: str, config: Mapping[str, str]) -> Change:
    kind = config.get("connector.class", "").rsplit(".Mirror", 1)[-1].removesuffix("Connector").lower()
    return Change(connect, name, kind, "delete", keys=diff(config, {}), reason="no longer declared", before=config)


_TASKS = "tasks.max"


@dataclass(frozen=True)
class OffPeak:
    """The hours (UTC) in which restarts do not hurt, from `start_hour` up to and without `end_hour`; may span midnight."""

    start_hour: int
    end_hour: int

    def contains(self, when_seconds: float) -> bool:
        """Tell whether a time (in seconds since 1970) is in these hours; equal hours mean the whole day."""
        length = (self.end_hour - self.start_hour) % 24 or 24
        return (int(when_seconds) // 3600 - self.start_hour) % 24 < length

    def __str__(self) -> str:
        return f"{self.start_hour:02d}-{self.end_hour:02d} h UTC"


@dataclass(frozen=True)
class RestartRules:
    """When fewer tasks are applied: so long after the sizing changed, in these hours, and so many moved partitions in one apply."""

    cool_down_seconds: float = 86_400.0
    off_peak: OffPeak | None = None
    moved_partitions: int | None = None


@dataclass(frozen=True)
class Saving:
    """What the reviewed sizing says of a flow that gets fewer tasks although more would fit as well.

    `changed_seconds`: since when (None: it does not say); `partitions`: how many the flow has (None: it does not say).
    """

    tasks: int
    changed_seconds: int | None = None
    partitions: int | None = None


def waiting(plan: Plan, rules: RestartRules, savings: Mapping[str, Saving], now_seconds: float) -> dict[Named, str]:
    """Return the connectors whose update waits, each with the reason; `savings` are by flow id.

    Connectors share the budget of moved partitions in the order of the plan.
    """
    found, left = {}, rules.moved_partitions
    for change in plan.changes:
        saving = _saving(change, savings)
        if saving is None:
            continue
        (key,) = change.keys
        why = _too_early(saving, rules, now_seconds)
        if why is None and left is not None:
            every = saving.partitions
            moved = None if every is None else moved_partitions(every, int(key.before or 0), saving.tasks)
            if moved is None:
                why = "the number of partitions that would move is unknown, run mm2mgr size (--move-budget)"
            elif moved > left:
                why = f"{number_of(moved, 'partition')} would move, {left} left of the budget (--move-budget)"
            else:
                left -= moved
        if why:
            found[change.connect, change.connector] = why
    return found


def with_waiting(plan: Plan, reasons: Mapping[Named, str]) -> Plan:
    """Return the plan with these updates held: shown with their reason, and not written."""

    def held(change: Change) -> Change:
        why = reasons.get((change.connect, change.connector))
        if not why or not _lowers_tasks(change):
            return change
        (key,) = change.keys
        sentence = f"waiting with {key.after} instead of {key.before} tasks: {why}"
        return replace(change, action="no-op", config=None, waits=why, warnings=(*change.warnings, sentence))

    return replace(plan, clusters=tuple(part.each(held) for part in plan.clusters))


def _saving(change: Change, savings: Mapping[str, Saving]) -> Saving | None:
    """Return the saving that an update is for; None where it is for something else."""
    if not _lowers_tasks(change):
        return None
    found = (savings[flow] for flow in change.flows if flow in savings)
    return next((saving for saving in found if str(saving.tasks) == change.keys[0].after), None)


def _lowers_tasks(change: Change) -> bool:
    return change.action == "update" and change.state is None and lowers_tasks(change.keys)


def lowers_tasks(keys: Sequence[KeyChange]) -> bool:
    """Tell whether a change of keys lowers the number of tasks and does nothing else."""
    if [key.key for key in keys] != [_TASKS]:
        return False
    before, after = keys[0].before or "", keys[0].after or ""
    return before.isdecimal() and after.isdecimal() and 0 < int(after) < int(before)


def _too_early(saving: Saving, rules: RestartRules, now_seconds: float) -> str | None:
    changed = saving.changed_seconds
    if changed is not None and now_seconds < changed + rules.cool_down_seconds:
        hours = rules.cool_down_seconds / 3600
        span = f"{hours / 24:g} d" if hours >= 24 else f"{hours:g} h"
        return f"{span} after the last change of its sizing (--cool-down)"
    if rules.off_peak is not None and not rules.off_peak.contains(now_seconds):
        return f"for {rules.off_peak} (--off-peak)"
    return None
