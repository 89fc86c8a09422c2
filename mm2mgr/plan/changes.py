"""The plan as a value: creates, updates and deletes, key by key, with what they cost. Pure.

A Connect cluster whose live state could not be read has an error and no changes: a failed read never becomes a create.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mm2mgr.comparison.differences import KeyChange, Named, diff
from mm2mgr.comparison.equivalence import WorkerClients, another_connector, compare, with_live_order
from mm2mgr.comparison.journal import JOURNAL_KEY, Journal, TakeOver, is_moved, move_text
from mm2mgr.comparison.ownership import ListEntry, Ownership
from mm2mgr.connectors import RESTING, SETTLED, Connector
from mm2mgr.json_values import to_json
from mm2mgr.plan.price import Price, summed
from mm2mgr.plan.quotas import QuotaChange
from mm2mgr.remarks import Remark, texts_of
from mm2mgr.text import few, number_of
from mm2mgr.topology import Adopted
from mm2mgr.truth import reach

Action = Literal["create", "update", "delete", "no-op", "blocked"]
WRITES = frozenset({"create", "update"})
ORDER: Mapping[str, int] = {"heartbeat": 0, "source": 1, "checkpoint": 2}
"""Heartbeats first: their topic must be there when the source connector looks; checkpoints after what they
translate.
"""


@dataclass(frozen=True)
class Taken:
    """Topics of the source that a write begins to mirror, with partitions and records in each; `of` so many topics
    there.
    """

    topics: Mapping[str, tuple[int, int]]
    of: int

    def to_dict(self) -> dict[str, Any]:
        counts = {name: {"partitions": parts, "records": records} for name, (parts, records) in self.topics.items()}
        return {"topics": counts, "of": self.of}


@dataclass(frozen=True)
class Change:
    """What happens to one connector. `config` is what would be written; None for delete, no-op and blocked.

    `before` is the live config that the plan saw, of connectors of this owner; it is compared again before a write and
    is never printed. `shown` is the state that Connect showed then ("": none), and `tasks` how many tasks it had.
    `state` has that state and the wished one, where they differ. `remarks` say why it is so, blocked or late: see
    `with_remarks`. `takes` is what a source connector will mirror that it does not mirror now (None: nothing more, or
    it could not be read). `needs_offsets` are topics that have arrived already: it is created to run only if their
    offsets are stored under its name. Of an update, its journal says so. `takes_over` is what it takes over from
    another connector, which has it in `moves_to` and is written by the same list of stages.
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
    follows: tuple[tuple[str, str], ...] = ()
    """The connectors whose deletion comes first, since they still do what this one begins to do."""

    @property
    def named(self) -> Named:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    @property
    def only_rests(self) -> bool:
        """Tell whether nothing is written but that it pauses or stops."""
        return not self.keys and self.state is not None and self.state[1] != "RUNNING"

    @property
    def written(self) -> dict[str, str]:
        """The config as Connect shows it once it is written: with the connector's name."""
        return {"name": self.connector, **(self.config or {})}

    @property
    def reason(self) -> str:
        """Why it is blocked, else why it is done and how."""
        return texts_of(self.remarks, "blocks" if self.action == "blocked" else "notes")

    @property
    def remedy(self) -> str:
        """How to get a blocked one through."""
        return "; ".join(dict.fromkeys(one.remedy for one in self.remarks if one.effect == "blocks" and one.remedy))

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
            change = replace(change, action="blocked", keys=(), config=None, state=None, follows=())
            return replace(change, price=price, steps=())
        if "waits" in effects:
            return replace(change, action="no-op", config=None, price=Price(), steps=())
        return change

    def explained(self, text: str) -> Change:
        """Return the change with this as its reason."""
        others = tuple(remark for remark in self.remarks if remark.effect != "notes")
        return replace(self, remarks=(*others, Remark(text, "notes")))

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
            "takes": to_json(self.takes),
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

    def to_dict(self) -> dict[str, Any]:
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
    def failed(self) -> bool:
        """True when a cluster could not be read, or a connector or a quota is held back."""
        actions = {*(change.action for change in self.changes), *(change.action for change in self.quotas)}
        return "blocked" in actions or any(cluster.error for cluster in self.clusters)

    @property
    def price(self) -> Price:
        """What all that is written costs."""
        return summed(change.price for change in self.writes)

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

    def to_dict(self) -> dict[str, Any]:
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


LiveConfigs = Mapping[str, Mapping[str, str]]


def plan_cluster(  # noqa: PLR0913  both sides, and what is wanted of them
    owners: Ownership,
    connect: str,
    desired: Iterable[Connector],
    live: LiveConfigs,
    wish: Wish | None = None,
    *,
    states: Mapping[str, str] | None = None,
    tasks: Mapping[str, int] | None = None,
    workers: WorkerClients | None = None,
) -> ClusterPlan:
    """Compare what one Connect cluster should run with the configs it has (name → config).

    `states` has the states that connectors show, in Connect's words; one that is not there is unknown. `tasks` has how
    many tasks they have.
    """
    wish, states, tasks, workers = wish or Wish(), states or {}, tasks or {}, workers or WorkerClients()
    ordered = sorted(desired, key=lambda connector: (connector.pair, ORDER[connector.type], connector.name))
    lists: list[ListEntry] = []
    changes = []
    for connector in ordered:
        config, state = live.get(connector.name), states.get(connector.name, "")
        entry = owners.adopted.get((connect, connector.name))
        if entry:
            change, listed = _adopt(owners, entry, connector, config, workers, state=state)
            lists.append(listed)
        else:
            change = _compare(owners, connect, connector, config, state=state)
        changes.append(change)
    names = {connector.name for connector in ordered}
    ours = {name for name, config in live.items() if owners.is_ours((connect, name), config)}
    left_over = sorted(ours - names)
    if wish.prune:
        changes += [_delete(connect, name, live[name]) for name in left_over]
    lists += [owners.released_entry(named, live.get(named[1])) for named in owners.released if named[0] == connect]
    shown_changes = (
        with_price(replace(change, shown=states.get(change.connector, ""), tasks=tasks.get(change.connector, 0)))
        for change in changes
    )
    left = () if wish.prune else tuple(left_over)
    return ClusterPlan(connect, tuple(shown_changes), left, len(live) - len(ours), lists=tuple(lists))


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


def _compare(
    owners: Ownership, connect: str, desired: Connector, live: Mapping[str, str] | None, *, state: str
) -> Change:
    named = connect, desired.name
    ours = live is not None and owners.is_ours(named, live)
    desired_config = desired.config if live is None else with_live_order(desired.config, live)

    def change(action: Action, keys: tuple[KeyChange, ...] = (), *remarks: Remark) -> Change:
        config, before = desired_config if action in WRITES else None, live if ours else None
        flows, name = desired.flows, desired.name
        return Change(connect, name, desired.type, action, flows, keys, remarks, config, before=before, shown=state)

    if live is None:
        rests = ("", desired.state) if desired.state in RESTING else None
        return replace(change("create", diff({}, desired.config, desired.origins)), state=rests)
    if not ours:
        reason = f"a connector of this name exists and {owners.whose(named, live)}; mm2mgr does not touch it"
        other = another_connector(desired, live) if JOURNAL_KEY not in live else None
        if other:  # adopting it would be refused, for this reason
            return change("blocked", (), Remark(f"{reason}; it {other}", remedy=_without_text(desired)))
        remedy = f"{owners.remedy(named, live)}; else {_without_text(desired)}"
        return change("blocked", (), Remark(reason, remedy=remedy))
    keys = diff(live, desired_config, desired.origins) if live != desired_config else ()
    moves = keys and desired.type == "source" and is_moved(live, desired_config)
    runs = state in {"RUNNING", "FAILED"}
    along = (Remark(move_text(live, desired_config, runs=runs), "notes"),) if moves else ()
    turn = _turn(state, desired.state)
    change_found = change("update", keys, *along) if keys or turn else change("no-op")
    if turn:
        change_found = replace(change_found, state=turn)
    if moves and not runs and (journal := Journal.of(live)):  # what runs has nothing to prove
        change_found = replace(change_found, needs_offsets=journal.needs)
    if desired.state is None and state in RESTING and JOURNAL_KEY not in live:
        return change_found.with_remarks(Remark(state, "rests"))
    if desired.state is None or state in SETTLED:
        return change_found
    unknown = f"whether it is {desired.state} could not be read (it shows {state or 'no status yet'}); plan again"
    return change_found.with_remarks(Remark(unknown, "warns"))


def _adopt(  # noqa: PLR0913  both sides, and what is known of them
    owners: Ownership,
    entry: Adopted,
    desired: Connector,
    live: Mapping[str, str] | None,
    workers: WorkerClients,
    *,
    state: str,
) -> tuple[Change, ListEntry]:
    """Return what happens to a connector that `adopt:` names, and what its line says."""
    change = _compare(owners, entry.connect, desired, live, state=state)
    listed = ListEntry("adopt", entry.connector, entry.place)
    is_marked = live is not None and not owners.is_adopted(entry.named, live)
    if live is None:
        reason = "nothing of that name runs there, and a new connector would mirror everything from the start"
        change = change.with_remarks(Remark(reason, remedy=f"correct {entry.place}, or remove that entry"))
    elif not is_marked and (other := another_connector(desired, live)):
        reason = f"the connector to be adopted {other}"
        remove = f"if another connector is meant, correct {entry.place}; else remove that entry, and {_without_text(desired)}"
        change = change.with_remarks(Remark(reason, remedy=remove))
    if live is None or change.action == "blocked":
        return change, replace(listed, says=f"not adopted: {change.reason}")
    if is_marked:
        return change, replace(listed, says="it carries the owner mark", done=True)
    comparison = compare(desired, live, workers)
    if comparison.differing:
        rest = (
            f"{number_of(len(comparison.pending), 'other key')} mark it, are defaults of mm2mgr, or say what holds"
            " already"
        )
        reason = f"adopted: the tree differs in {few(comparison.differing)}; {rest}"
        says = "its owner mark is written with this change; then this line can go"
        return change.with_remarks(Remark(reason, "notes")), replace(listed, says=says)
    # With the config that it has: what only pauses or stops it leaves that as it is.
    rests = replace(change, action="update", keys=(), config=live) if change.state else None
    says = "nothing is written until its config must change, and the owner mark then: this line is needed until then"
    remarks = tuple(remark for remark in change.remarks if remark.effect != "notes")
    nothing = replace(change, action="no-op", keys=(), config=None, remarks=remarks)
    return rests or nothing, replace(listed, says=f"adopted; {says}", pending=comparison.pending)


def _turn(shown: str, wished: str | None) -> tuple[str, str] | None:
    """Return the states before and after, where a connector is to be paused, resumed or stopped.

    A failed connector is not resumed for that. No state, or a transitional one, says nothing.
    """
    if wished is None or shown not in SETTLED or shown == wished or (shown, wished) == ("FAILED", "RUNNING"):
        return None
    return shown, wished


# A pair has one heartbeat and one checkpoint connector, whoever runs it.
_REMEDIES = {
    "heartbeat": (
        "leave the heartbeats of the pair to that connector: write heartbeats: false in flow '{flow}' and the other"
        " flows of the pair"
    ),
    "checkpoint": (
        "leave the checkpoints of the pair to that connector, which then has to take these topics and groups too: "
        "write checkpoints: false in flow '{flow}' and the other flows of the pair"
    ),
    "source": "rename flow '{flow}', or delete that connector if it is no longer needed",
}


def _without_text(desired: Connector) -> str:
    """Return how a flow does without a connector that has its name and is not this tree's."""
    flow, origin = desired.flows[0].partition(":")[0], desired.origins.get("name")
    if desired.type == "source" and origin and origin.kind == "spec":
        return (
            f"write another connector_name in flow '{flow}' ({origin.where}), or delete that connector if it is no"
            " longer needed"
        )
    return _REMEDIES[desired.type].format(flow=flow)


def connector_text(named: Named) -> str:
    """Return in words which connector is meant."""
    return f"'{named[1]}' on Connect cluster '{named[0]}'"


def aliases_of(config: Mapping[str, str]) -> tuple[str, str]:
    """Return the source and the target alias of a config, "" for one that it does not have."""
    return config.get("source.cluster.alias", ""), config.get("target.cluster.alias", "")


def type_of(config: Mapping[str, str]) -> str:
    """Return source, checkpoint or heartbeat; of any other class its name."""
    name = config.get("connector.class", "").strip()
    return reach.type_of(name) or name


def _delete(connect: str, name: str, config: Mapping[str, str]) -> Change:
    type_, keys = type_of(config), diff(config, {})
    return Change(connect, name, type_, "delete", (), keys, (Remark("no longer declared", "notes"),), before=config)
