"""`serve --with failover`: checks the pairs that declare `failover` again and again, as `failover check` does.

Clusters are only read. What a look left of the source and what the check came to is in the store, so that another
process of the owner sees it: whoever checked a pair last goes on with it, and the others take over when that is late.
No lease is needed for that, and two checks at once do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.garbage import collect_garbage
from mm2mgr.observe.failover_rows import ReadinessState
from mm2mgr.observe.state_file import StorePlace, readiness_of, state_file
from mm2mgr.operations.failover import CheckedPair, check_and_keep
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, pause

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Topology

GROUPS_SHOWN = 200
"""Groups of a pair that a view has, worst first; `failover check` has all."""
_TAKE_OVER = 1.25  # of the interval: so late another process may be
_ROUNDING_SECONDS = 0.001  # the store has milliseconds
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 1.0, 60.0  # within which a changed tree is read again


@dataclass(frozen=True)
class FailoverOrder:
    """Where the last looks and the checks are kept, and who makes them."""

    store: Store = DEFAULT_STORE
    started_by: str = "serve"


class GroupLine(NamedTuple):
    """One group of a check: its verdict and state, and as for `GroupReadiness` what would come again or be skipped."""

    group: str
    verdict: str
    state: str
    repeated: int | None
    skipped: int
    checkpoint_at: float | None


@dataclass(frozen=True)
class PairCheck:
    """What one check of this process came to, short: times in seconds since 1970. `error`: why there was none."""

    pair: str
    taken_at: float
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    groups: tuple[GroupLine, ...] = ()
    group_count: int = 0
    warnings: tuple[str, ...] = ()
    error: str = ""

    @classmethod
    def of_checked(cls, checked: CheckedPair) -> PairCheck:
        """Return the short form, which holds no position of a group."""
        readiness = checked.readiness
        lines = tuple(
            GroupLine(group.group, group.word, group.state, group.repeats, group.skips, group.checkpoint_at)
            for group in readiness.worst_first[:GROUPS_SHOWN]
        )
        verdict, count = readiness.verdict, len(readiness.groups)
        return cls(*(readiness.pair, readiness.taken_at, verdict.word, verdict.reasons, lines, count, checked.warnings))


@dataclass(frozen=True)
class FailoverRound:
    """One turn: the checks that were due, and how long the next one may wait. `states`: what the store has of each
    pair. `error`: why there was no turn, `note`: why nothing was due."""

    number: int
    taken_at: float
    checks: tuple[PairCheck, ...] = ()
    states: Mapping[str, ReadinessState] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    note: str = ""
    error: str = ""
    wait_seconds: float = _MOST_WAIT_SECONDS


@dataclass(frozen=True)
class FailoverView:
    """What the checks of this process came to: the last turn, and the newest check of each pair."""

    last: FailoverRound | None = None
    checks: Mapping[str, PairCheck] = field(default_factory=dict)
    json_keys = "last checks"

    def after_round(self, ended: FailoverRound) -> FailoverView:
        """Return what is known after a further turn."""
        return FailoverView(ended, {**self.checks, **{check.pair: check for check in ended.checks}})


Check = Callable[[Workspace, str, FailoverOrder], CheckedPair]
"""Checks one pair, keeps what it saw, and returns both; may raise any exception."""


def check_pair(workspace: Workspace, pair: str, order: FailoverOrder) -> CheckedPair:
    """Check one pair as `failover check` does."""
    return check_and_keep(workspace, pair, store=order.store, started_by=order.started_by)


def watch_failover(
    workspace: Workspace,
    order: FailoverOrder,
    check: Check = check_pair,
    *,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], object] = pause,
) -> Generator[FailoverRound]:
    """Yield turn after turn until the caller stops; between two it calls `wait` with seconds, and what is true ends it.

    The tree is read anew each time. Mm2mgrError where no pair declares failover.
    """
    workspace.refuse_snapshot()
    refuse_without_pairs(workspace.topology)
    return _Watching(workspace, order, check, clock).rounds(wait)


def refuse_without_pairs(topology: Topology) -> None:
    """Mm2mgrError where no pair of a tree declares failover."""
    if not topology.failover_pairs:
        hint = "write `failover: true` for the flows of a pair, or under defaults: flows:"
        raise Mm2mgrError("no flow of the tree declares failover", hint=hint)


@dataclass
class _Watching:
    workspace: Workspace
    order: FailoverOrder
    check: Check
    clock: Callable[[], float]
    number: int = 0
    own: dict[str, float] = field(default_factory=dict)
    """When this process last checked a pair, or tried to."""

    def rounds(self, wait: Callable[[float], object]) -> Generator[FailoverRound]:
        while True:
            self.number += 1
            try:
                ended = self.round()
            except Exception as error:  # whatever it is, it ends this turn and not the loop
                ended = FailoverRound(self.number, self.clock(), error=cause(error))
            yield ended
            collect_garbage()
            if wait(ended.wait_seconds):
                return

    def round(self) -> FailoverRound:
        """Check what is due, with the tree as it is now."""
        workspace, now = replace(self.workspace), self.clock()
        declared = {pair: settings.check_every for pair, settings in workspace.topology.failover_pairs.items()}
        if not declared:
            return FailoverRound(self.number, now, note="no flow of the tree declares failover any more")
        owner = str(workspace.topology.owner)
        place = StorePlace(self.order.store, owner, state_file(owner))
        states, warnings = readiness_of(place, now)
        due = [pair for pair, every in declared.items() if self._due_at(pair, every, states) <= now]
        checks = tuple(self._check_pair(workspace, pair) for pair in due)
        if checks:
            states, warnings = readiness_of(place, self.clock())
        of_tree = {pair: state for pair, state in (states or {}).items() if pair in declared}
        next_at = min(self._due_at(pair, every, of_tree) for pair, every in declared.items())
        wait_seconds = min(max(next_at - self.clock(), _LEAST_WAIT_SECONDS), _MOST_WAIT_SECONDS)
        return FailoverRound(self.number, now, checks, of_tree, tuple(warnings), wait_seconds=wait_seconds)

    def _due_at(self, pair: str, every: float, states: Mapping[str, ReadinessState] | None) -> float:
        """Return when this process is to check a pair, in seconds since 1970; a time ahead counts for nothing."""
        own = self.own.get(pair, float("-inf"))
        state, now = (states or {}).get(pair), self.clock()
        if state is None or not own + _ROUNDING_SECONDS < state.checked_at <= now + _ROUNDING_SECONDS:
            return own + every
        return state.checked_at + every * _TAKE_OVER

    def _check_pair(self, workspace: Workspace, pair: str) -> PairCheck:
        self.own[pair] = began = self.clock()
        try:
            checked = self.check(workspace, pair, self.order)
        except Exception as error:  # one pair that fails ends no other
            return PairCheck(pair, began, error=cause(error))
        self.own[pair] = max(began, checked.readiness.taken_at)
        return PairCheck.of_checked(checked)
