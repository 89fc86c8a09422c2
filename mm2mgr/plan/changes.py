"""The plan as a value: creates, updates and deletes, key by key, with what they cost and what is said of them. Pure.

A Connect cluster whose live state could not be read has an error and no changes: a failed read never becomes a create.
Costly kinds are written only where `--allow KIND`, or `allow: [KIND]` on the flow, says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mm2mgr import connectors
from mm2mgr.comparison.differences import KeyChange, Named
from mm2mgr.comparison.ownership import ListEntry, TakeOver
from mm2mgr.connectors import RESTING
from mm2mgr.json_values import to_json
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.plan.resets import StartOrder, StartPositions
from mm2mgr.remarks import Remark, texts_of

Action = Literal["create", "update", "delete", "no-op", "blocked"]
WRITES = frozenset({"create", "update"})
ORDER: Mapping[str, int] = {"heartbeat": 0, "source": 1, "checkpoint": 2}
"""Heartbeats first: their topic must be there when the source connector looks; checkpoints after what they
translate.
"""


KINDS = {
    "mirror-again": "mirror records a second time that another connector has mirrored",
    "target-names": "mirror topics of a flow that runs under other names on the target from now on",
    "names-taken": "go on under names on the target that have records already",
    "deletes": "delete more connectors than go unasked (half of this owner's; 10, or 20 % of them)",
    "tasks-per-worker": "raise the tasks on a Connect cluster above `tasks_per_worker` × workers",
}
"""The costly kinds of change; the last two belong to no flow. The flow's `allow` (spec) has the others."""


@dataclass(frozen=True)
class Volume:
    """Records, and their bytes in the target's log; `unmeasured` names what could not be measured and is left out.

    `uncompressed` names topics that were mirrored there before, but whose size there could not be measured: they count
    with the size of their records before compression.
    """

    records: int = 0
    size_bytes: int = 0
    unmeasured: tuple[str, ...] = ()
    uncompressed: tuple[str, ...] = ()
    json_keys = "records bytes=size_bytes unmeasured uncompressed"

    def __add__(self, other: Volume) -> Volume:
        names = ((self.unmeasured, other.unmeasured), (self.uncompressed, other.uncompressed))
        both = (tuple(dict.fromkeys((*own, *others))) for own, others in names)
        return Volume(self.records + other.records, self.size_bytes + other.size_bytes, *both)


@dataclass(frozen=True)
class Price:
    """What one change costs, or several together.

    `restarts` are tasks that run now and start anew; `moved` of `partitions` get another task, None where they could
    not be counted; `again` is what is mirrored a second time; `groups` are consumer groups whose checkpoints start
    anew, `group_patterns` what they match where they could not be read; `irreversible` says what no later plan undoes.
    """

    restarts: int = 0
    moved: int | None = 0
    partitions: int = 0
    again: Volume | None = None
    groups: tuple[str, ...] = ()
    group_patterns: tuple[str, ...] = ()
    irreversible: tuple[str, ...] = ()

    def __add__(self, other: Price) -> Price:
        return Price(
            self.restarts + other.restarts,
            None if self.moved is None or other.moved is None else self.moved + other.moved,
            self.partitions + other.partitions,
            self.again + other.again if self.again and other.again else self.again or other.again,
            tuple(dict.fromkeys((*self.groups, *other.groups))),
            tuple(dict.fromkeys((*self.group_patterns, *other.group_patterns))),
            tuple(dict.fromkeys((*self.irreversible, *other.irreversible))),
        )

    def to_dict(self) -> dict[str, object] | None:
        """Return JSON-ready values, None for nothing."""
        if self == Price():
            return None
        return {
            "restarts": self.restarts,
            "moved_partitions": self.moved,
            "partitions": self.partitions,
            "again": to_json(self.again),
            "groups": list(self.groups),
            "group_patterns": list(self.group_patterns),
            "irreversible": list(self.irreversible),
        }


def total_price(prices: Iterable[Price]) -> Price:
    """Return the prices together."""
    return sum(prices, Price())


@dataclass(frozen=True)
class Taken:
    """Topics that a write begins to mirror, with partitions and records to copy of each; `of` so many topics there.

    `stored` are those that it mirrored earlier: it goes on at its stored offsets, and only later records are to copy.
    `moved` come with their stored offsets from a connector that it takes over: nothing of them is copied.
    """

    topics: Mapping[str, tuple[int, int]]
    of: int
    stored: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, object]:
        counts = {name: {"partitions": parts, "records": records} for name, (parts, records) in self.topics.items()}
        return {"topics": counts, "of": self.of, "stored": sorted(self.stored), "moved": sorted(self.moved)}


@dataclass(frozen=True)
class Handover:
    """Where one partition goes on: `first` is the source's offset of the first record under the new name.

    None: nothing is stored, so it begins as a new partition does. `old_end` and `new_start` are the ends of the logs
    on the target, of the old and of the new name (None: not read).
    """

    partition: int
    first: int | None
    old_end: int | None
    new_start: int | None
    json_keys = "partition first old_end new_start"


@dataclass(frozen=True)
class RenamedTopic:
    """A topic of the source with its names on the target, before and after.

    `is_final`: its connector is STOPPED, so that all that was mirrored is stored and the offsets are exact (KIP-875);
    else they move on until it stops.
    """

    topic: str
    old: str
    new: str
    handovers: tuple[Handover, ...]
    is_final: bool
    json_keys = "topic old new handovers is_final"


@dataclass(frozen=True)
class Change:
    """What happens to one connector. `config` is what would be written; None for delete, no-op and blocked.

    `before` is the live config that the plan saw, of connectors of this owner; it is compared again before a write and
    is never printed. `shown` is the state that Connect showed then ("": none), and `tasks` how many tasks it had.
    `state` has that state and the wished one, where they differ. `remarks` say why it is so, blocked or late: see
    `with_remarks`. `takes` is what a source connector will mirror that it does not mirror now (None: nothing more, or
    it could not be read), `ends` the topics that it mirrors now and nothing mirrors afterwards, and `renames` what it
    goes on with under other names. `needs_offsets` are topics that have
    arrived already: it is created to run only if their offsets are stored under its name. Of an update, its journal
    says so. `takes_over` is what it takes over from another connector, which has it in `moves_to` and is written by the
    same list of stages. `start`: it never ran, and this is where it begins; `positions` is what that came to when the
    plan was made.
    """

    connect: str
    connector: str
    type: str
    action: Action
    flows: tuple[str, ...] = ()
    keys: tuple[KeyChange, ...] = ()
    remarks: tuple[Remark, ...] = ()
    config: Mapping[str, str] | None = field(default=None, repr=False)
    takes: Taken | None = None
    ends: tuple[str, ...] = ()
    renames: tuple[RenamedTopic, ...] = ()
    needs_offsets: tuple[str, ...] = ()
    before: Mapping[str, str] | None = field(default=None, repr=False)
    tasks: int = 0
    shown: str = ""
    state: tuple[str, str] | None = None
    price: Price = field(default_factory=Price)
    steps: tuple[str, ...] = ()
    """What apply will do, in order (`stages`)."""
    takes_over: TakeOver | None = None
    moves_to: tuple[str, str] | None = None
    start: StartOrder | None = None
    positions: StartPositions | None = field(default=None, repr=False)
    follows: tuple[tuple[str, str], ...] = ()
    """The connectors whose deletion comes first, since they still do what this one begins to do."""

    @property
    def full_name(self) -> Named:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    @property
    def only_rests(self) -> bool:
        """Tell whether nothing is written but that it pauses or stops."""
        return not self.keys and self.state is not None and self.state[1] != "RUNNING"

    @property
    def written_config(self) -> dict[str, str]:
        """The config as Connect shows it once it is written: with the connector's name."""
        return {"name": self.connector, **(self.config or {})}

    @property
    def reason(self) -> str:
        """Why it is blocked, else why it is done and how."""
        return texts_of(self.remarks, "blocks" if self.action == "blocked" else "notes")

    @property
    def remedy(self) -> str:
        """How to get a blocked one through."""
        remedies = (remark.remedy for remark in self.remarks if remark.effect == "blocks")
        return "; ".join(dict.fromkeys(filter(None, remedies)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong although nothing is held back for it."""
        warnings = (remark for remark in self.remarks if remark.effect == "warns")
        return tuple(dict.fromkeys(f"{w} ({w.remedy})" if w.remedy else str(w) for w in warnings))

    @property
    def waits(self) -> str:
        """Why it is not written now."""
        return texts_of(self.remarks, "waits")

    @property
    def rests(self) -> str:
        """The state in which somebody left it, where the tree declares none: PAUSED, with who and why if known."""
        return texts_of(self.remarks, "rests")

    def with_remarks(self, *remarks: Remark) -> Change:
        """Return the change with more remarks, and what they do to it: what is blocked or waits is not written."""
        if not remarks:
            return self
        change, effects = replace(self, remarks=(*self.remarks, *remarks)), {remark.effect for remark in remarks}
        if "blocks" in effects and self.action != "blocked":
            price = Price(again=self.price.again, irreversible=self.price.irreversible)
            change = replace(change, action="blocked", keys=(), config=None, state=None, follows=(), start=None)
            return replace(change, price=price, steps=())
        if "waits" in effects:
            return replace(change, action="no-op", config=None, price=Price(), steps=())
        return change

    def with_reason(self, text: str) -> Change:
        """Return the change with this as its reason."""
        others = tuple(remark for remark in self.remarks if remark.effect != "notes")
        return replace(self, remarks=(*others, Remark(text, "notes")))

    def to_dict(self) -> dict[str, object]:
        """Return the change as JSON-ready values, secrets masked."""
        return {
            "connector": self.connector,
            "type": self.type,
            "action": self.action,
            "flows": list(self.flows),
            "reason": self.reason,
            "remedy": self.remedy,
            "warnings": list(self.warnings),
            "takes": to_json(self.takes),
            "ends": list(self.ends),
            "renames": to_json(self.renames),
            "needs_offsets": list(self.needs_offsets),
            "keys": to_json(self.keys),
            "state": self.state and {"before": self.state[0], "after": self.state[1]},
            "waits": self.waits or None,
            "rests": self.rests or None,
            "price": to_json(self.price),
            "steps": list(self.steps),
            "takes_over": self.takes_over and list(self.takes_over.giver),
            "moves_to": self.moves_to and list(self.moves_to),
            "follows": [list(named) for named in self.follows],
            **({"start": to_json(self.positions)} if self.positions else {}),
        }


@dataclass(frozen=True)
class ClusterPlan:
    """The plan of one Connect cluster; `error` when its live state is unknown (then there are no changes).

    `notes` name what could not be verified beforehand; `lists` say of entries of the tree's lists what became of them.
    """

    connect: str
    changes: tuple[Change, ...] = ()
    left_over: tuple[str, ...] = ()
    unowned: int = 0
    error: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()
    lists: tuple[ListEntry, ...] = ()
    json_keys = "connect error hint changes left_over unowned notes lists"

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.action in {"create", "update", "delete"})

    def each(self, of: Callable[[Change], Change]) -> ClusterPlan:
        """Return the plan with another change in the place of each."""
        return replace(self, changes=tuple(map(of, self.changes)))


@dataclass(frozen=True)
class Wish:
    """How a plan is to be made: which costly kinds it may have (`price.KINDS`), how many deletes are meant where there
    are more than go unasked, and how many changes it may have at most (None: any number)."""

    prune: bool = False
    allow: frozenset[str] = frozenset()
    allow_deletes: int = 0
    max_changes: int | None = None
    deletes_held: str = ""
    """Why `prune` is left out for now, where a loop deletes later."""

    def to_dict(self) -> dict[str, object]:
        return {
            "prune": self.prune,
            "allow": sorted(self.allow),
            "allow_deletes": self.allow_deletes,
            "max_changes": self.max_changes,
        }


@dataclass(frozen=True)
class Plan:
    """The plan of the whole estate, one part per Connect cluster."""

    owner: str
    clusters: tuple[ClusterPlan, ...]
    wish: Wish = Wish()
    quotas: tuple[QuotaChange, ...] = ()
    """Client quotas that catch-up limits become."""

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for cluster in self.clusters for change in cluster.changes)

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(change for cluster in self.clusters for change in cluster.writes)

    @property
    def quota_writes(self) -> tuple[QuotaChange, ...]:
        return tuple(change for change in self.quotas if change.is_write)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is to be written."""
        return not self.writes and not self.quota_writes

    @property
    def left_over(self) -> int:
        """How many connectors of this owner run, are no longer declared, and stay."""
        return sum(len(cluster.left_over) for cluster in self.clusters)

    @property
    def has_failed(self) -> bool:
        """True when a cluster could not be read, or a connector or a quota is held back."""
        actions = {*(change.action for change in self.changes), *(change.action for change in self.quotas)}
        return "blocked" in actions or any(cluster.error for cluster in self.clusters)

    @property
    def price(self) -> Price:
        """What all that is written costs."""
        return total_price(change.price for change in self.writes)

    def flow_prices(self) -> dict[str, Price]:
        """Return what is written for each flow costs; a connector that serves several flows counts for each of them."""
        prices: dict[str, Price] = {}
        for change in self.writes:
            for flow in change.flows if change.price != Price() else ():
                prices[flow] = prices.get(flow, Price()) + change.price
        return prices

    def counts(self) -> dict[str, int]:
        """Return how many connectors each action concerns."""
        counts = {"create": 0, "update": 0, "delete": 0, "no-op": 0, "blocked": 0}
        for change in self.changes:
            counts[change.action] += 1
        return counts

    def to_dict(self) -> dict[str, object]:
        """Return everything people and machines may see; text, JSON and plan files are made from this."""
        return {
            "owner": self.owner,
            **to_json(self.wish),
            "counts": self.counts(),
            "price": to_json(self.price),
            "flow_prices": {flow: to_json(price) for flow, price in self.flow_prices().items()},
            "clusters": to_json(self.clusters),
            "quotas": to_json(self.quotas),
        }


def with_price(change: Change) -> Change:
    """Return the change with what it costs on the Connect cluster."""
    if change.action == "delete":
        gone = f"{change.connector} is deleted; its stored offsets stay in Kafka under its name"
        return replace(change, price=Price(irreversible=(gone,)))
    if change.action != "update" or not change.keys or change.shown in RESTING:
        return change
    groups = (change.config or {}).get("groups", "") if change.type == "checkpoint" else ""
    return replace(change, price=Price(change.tasks, group_patterns=tuple(filter(None, groups.split(",")))))


def count_deletes(changes: Collection[Change], left_over: int) -> tuple[int, int]:
    """Return how many connectors are deleted because nothing declares them, and how many there are of this owner.

    `left_over`: so many run, are no longer declared, and have no change.
    """
    owned = sum(change.before is not None for change in changes) + left_over
    return sum(change.action == "delete" and not change.moves_to for change in changes), owned


def connector_text(named: Named) -> str:
    """Return in words which connector is meant."""
    return f"'{named[1]}' on Connect cluster '{named[0]}'"


def aliases_of(config: Mapping[str, str]) -> tuple[str, str]:
    """Return the source and the target alias of a config, "" for one that it does not have."""
    return config.get("source.cluster.alias", ""), config.get("target.cluster.alias", "")


def type_of(config: Mapping[str, str]) -> str:
    """Return source, checkpoint or heartbeat; of any other class its name."""
    name = config.get("connector.class", "").strip()
    return connectors.type_of(name) or name
