"""How carefully a plan is carried out, which of its changes are written at the same time, how one is taken back, and
what is reported on the way. Values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from mm2mgr.apply.settle import Verdict
from mm2mgr.comparison.differences import Named, diff
from mm2mgr.connectors import RESTING
from mm2mgr.errors import Mm2mgrError
from mm2mgr.plan.changes import ORDER, Change, ClusterPlan, Plan
from mm2mgr.plan.quotas import QuotaResult
from mm2mgr.text import few


@dataclass(frozen=True)
class Rollout:
    """How carefully changes are written.

    `wait_seconds`: how long the connectors of a wave have to be seen running with their new config; 0: do not look, go
    on. `at_once`: the most changes in a wave (None: all of a type). `pause_seconds`: between waves. `canary`: ids of
    flows whose connectors are written first; nothing else is until they are good. `rollback`: take back what was
    written where a wave is bad. `first` and `before_canary` (from `of_plan`): what is deleted before another connector
    begins, on whichever Connect cluster, and which of that the canary waits for.
    """

    wait_seconds: float = 0.0
    at_once: int | None = None
    pause_seconds: float = 0.0
    canary: frozenset[str] = frozenset()
    rollback: bool = False
    first: frozenset[Named] = frozenset()
    before_canary: frozenset[Named] = frozenset()

    def is_canary(self, change: Change) -> bool:
        """Tell whether a connector serves a flow that goes first, or is deleted before one that does begins."""
        return bool(self.canary.intersection(change.flows)) or change.full_name in self.before_canary

    def of_plan(self, changes: Iterable[Change]) -> Rollout:
        """Return it with what these changes delete before others of them begin."""
        followed = [(named, self.is_canary(change)) for change in changes for named in change.follows]
        before_canary = frozenset(named for named, is_canary in followed if is_canary)
        return replace(self, first=frozenset(named for named, _ in followed), before_canary=before_canary)

    def check_canary(self, plan: Plan) -> None:
        """Mm2mgrError for a canary that could prove nothing."""
        if not self.canary:
            return
        serving = [change for change in plan.changes if self.is_canary(change) and change.type == "source"]
        unread = [f"Connect cluster '{part.connect}' could not be read" for part in plan.clusters if part.error]
        blocked = [f"{change.connector} is blocked" for change in serving if change.action == "blocked"]
        if missing := self.canary.difference(*(change.flows for change in serving)):
            trouble = unread or [f"the plan has no connector of {few(sorted(missing))}"]
        else:
            trouble = blocked
        if trouble:
            raise Mm2mgrError(
                f"the canary cannot go first: {trouble[0]}", hint="nothing was written; name another flow"
            )


@dataclass(frozen=True)
class Result:
    """The result of one change. `error` is None on success, `doubt` says why what was written needs a look: it could
    not be read back, or a stop on the way was not clean.

    `rolled_back`: it was written, and taken back, since its wave or a later one was bad. `was_written`: whether Connect
    stored a change that has an error, or may have.
    """

    connect: str
    connector: str
    action: str
    type: str = ""
    error: str | None = None
    hint: str | None = None
    seconds: float = 0.0
    doubt: str = ""
    rolled_back: bool = False
    was_written: bool = field(default=False, compare=False)
    change: Change | None = field(default=None, repr=False, compare=False)
    ended: float = field(default=0.0, repr=False, compare=False)  # of the monotonic clock
    json_keys = "connect connector action ok=is_done error hint doubt rolled_back"

    @property
    def full_name(self) -> Named:
        """The Connect cluster and the connector."""
        return self.connect, self.connector

    @property
    def is_done(self) -> bool:
        """Tell whether the change was written and is there."""
        return self.error is None and not self.rolled_back


@dataclass(frozen=True)
class Wave:
    """Changes of one Connect cluster that are written at the same time: number `number` of `of`."""

    connect: str
    number: int
    of: int
    connectors: tuple[str, ...]


class WaveBegun(Wave):
    """The changes of a wave are written now."""


@dataclass(frozen=True)
class Waiting:
    """A wave is written; these connectors do not show a state of their new config yet, and get this long."""

    connect: str
    connectors: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class WaveVerified(Wave):
    """What the connectors of this wave and those before were seen to do; `unwritten`: those whose write failed."""

    verdict: Verdict = "ok"
    unwritten: tuple[str, ...] = ()


Trouble = Literal["failed", "inconclusive"]


@dataclass(frozen=True)
class Halted:
    """No further change of a Connect cluster is begun: it is broken (`failed`), or to be looked at (`inconclusive`)."""

    connect: str
    verdict: Trouble
    why: str
    left: tuple[str, ...]


@dataclass(frozen=True)
class RolledBack:
    """What was written on a Connect cluster was taken back; a result with an error says why it was not."""

    connect: str
    results: tuple[Result, ...]


@dataclass(frozen=True)
class LeaseAwaited:
    """Another process holds a Kafka cluster's lease; nothing is written until it ends or is missed, in `seconds`."""

    kafka: str
    holder: str
    seconds: float


@dataclass(frozen=True)
class Unguarded:
    """The lease cannot be had for a Connect cluster, which is written all the same."""

    connect: str
    note: str


Event = Result | QuotaResult | WaveBegun | Waiting | WaveVerified | Halted | RolledBack | LeaseAwaited | Unguarded
Report = Callable[[Event], None]


def waves(part: ClusterPlan, rollout: Rollout) -> Iterator[list[Change]]:
    """Yield what is written at the same time; connectors of a canary that stay as they are belong to its waves.

    First what is deleted before another one begins; what may turn out not to run, so that nothing is written beside it;
    then heartbeats (their topic must be there when the source connector looks), sources, checkpoints after what they
    translate, deletes.
    """

    def rank(change: Change) -> tuple[bool, bool, bool, int]:
        goes_first = change.action == "delete" and change.full_name in rollout.first
        return (
            not rollout.is_canary(change),
            change.action == "delete" and not goes_first,
            not (change.needs_offsets or goes_first),
            0 if change.action == "delete" else 1 + ORDER[change.type],
        )

    canary = [change for change in part.changes if change.action == "no-op" and rollout.is_canary(change)]
    writes = [
        write for write in part.writes if not write.moves_to
    ]  # the others are written with what takes over from them
    for _, alike in groupby(sorted((*writes, *canary), key=rank), key=rank):
        changes = list(alike)
        size = rollout.at_once or len(changes)
        yield from (changes[start : start + size] for start in range(0, len(changes), size))


def is_as_written(change: Change, live: Mapping[str, str] | None) -> bool:
    """Tell whether what runs is what a change wrote: then it was not changed since."""
    if change.action == "delete":
        return live is None
    return live == change.written_config


def inverse_of(change: Change, state_before: str | None) -> Change:
    """Return the change that takes back another one which was written."""
    written = change.written_config
    if change.action == "create":
        return replace(change, action="delete", keys=diff(written, {}), config=None, before=written, state=None)
    before = dict(change.before or {})
    if change.action == "delete":
        rests = ("", state_before) if state_before in RESTING else None
        return replace(change, action="create", keys=diff({}, before), config=before, before=None, state=rests)
    state = change.state and (change.state[1], change.state[0] if change.state[0] in RESTING else "RUNNING")
    return replace(change, keys=diff(written, before), config=before, before=written, state=state)
