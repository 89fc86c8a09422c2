"""The leases that make one process the only writer of its kind: one per Kafka cluster that Connect clusters run on.

`reconcile` and `apply` of one owner share a lease, `watch` has another. Whoever has it asks again before a write where
that is some seconds ago, so a process that slept, or was cut off, learns that another one may be at work before it
writes anything more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import timing
from mm2mgr.apply.history import topic_of
from mm2mgr.apply.waves import LeaseAwaited, Report, Unguarded
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.plan.changes import Plan
from mm2mgr.text import visible
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology, lease_group

if TYPE_CHECKING:
    from mm2mgr.kafka.access import KafkaAccess
    from mm2mgr.kafka.lease import Holder, Lease

T = TypeVar("T")
Answer = TypeVar("Answer")
_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_JOIN_SECONDS = 20.0
_YIELD_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 1.0
_LOOKS_FOR_NOTE = 4
_KILLED_SECONDS = 12.0
"""After so long a member that was killed has lost its lease: the session time-out, and what brokers take to act on
it.
"""


class LeaseLost(KafkaError):
    """A lease was lost, so another process may write now; nothing more is written, and nothing is undone."""


def holder_note(command: str, author: object, since: float) -> str:
    """Return what others are shown of a process that holds a lease."""
    return f"`{command}` by {author}, since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC"


async def read_holders(
    topology: Topology, connects: Iterable[str], group: str
) -> tuple[dict[str, Holder], dict[str, str]]:
    """Return who holds the lease of these Connect clusters' Kafka clusters now, by alias, and why some are unknown.

    All are asked at the same time, without joining the group; each answers within a second or counts as not asked.
    """
    from mm2mgr.kafka.lease import read_holder  # a Kafka client, which `--help` does without

    def ask(alias: str) -> Holder | str | None:
        try:
            return read_holder(topic_of(topology, alias).access, HISTORY_TOPIC, group)
        except Mm2mgrError as error:
            return error.one_line

    chosen = (topology.connects[name] for name in connects)
    aliases = sorted({connect.kafka for connect in chosen if connect.model.history})
    answers = dict(
        zip(aliases, await asyncio.gather(*(asyncio.to_thread(ask, alias) for alias in aliases)), strict=True)
    )
    unasked = {alias: answer for alias, answer in answers.items() if isinstance(answer, str)}
    return {alias: answer for alias, answer in answers.items() if answer and not isinstance(answer, str)}, unasked


class Leases:
    """The leases of this process, one per Kafka cluster that workers use; `group_of` names their consumer group."""

    def __init__(self, group_of: Callable[[Topology], str]) -> None:
        self._group_of = group_of
        self.changed = threading.Event()
        """Set when a lease was won or lost since the round before began."""
        self.lost: frozenset[str] = frozenset()
        """Kafka clusters whose lease was lost since `watch_held` began."""
        self._when_lost: Callable[[], object] = lambda: None
        self._joined: dict[str, tuple[KafkaAccess, Lease]] = {}
        self._watched: Mapping[str, Lease] = MappingProxyType({})
        self._kafka_of: Mapping[str, str] = MappingProxyType({})

    def missing(
        self, topology: Topology, note: str = "", connects: Collection[str] | None = None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the Connect clusters that another process writes, and those for which the lease could not be had, with
        the reason.

        Of all Connect clusters, or of some. `note` is what others are shown of this process while it holds a lease.
        """
        self.changed.clear()
        chosen = {name: connect for name, connect in topology.connects.items() if connects is None or name in connects}
        aliases = {connect.kafka for connect in chosen.values() if connect.model.history}
        errors = self._join(topology, aliases)
        for alias, (_, lease) in self._joined.items():
            is_unconfirmed = lease.is_held and not lease.confirm(note) and lease.is_held
            if lease.refused:
                errors[alias] = _because(lease.refused)
            elif is_unconfirmed or not lease.answered.is_set():
                errors[alias] = f"Kafka '{alias}' did not say who has it"
        standby, without = [], {}
        for name, connect in chosen.items():
            if not connect.model.history:
                without[name] = "no lease: the tree says history: false, so another writer could not be seen"
            elif connect.kafka in errors:
                without[name] = f"no lease: {errors[connect.kafka]}"
            elif not self._joined[connect.kafka][1].is_held:
                standby.append(name)
        return tuple(standby), without

    def take(self, topology: Topology, connects: Collection[str], note: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Take all leases of these Connect clusters, for one piece of work that needs all of them; returns what
        `missing` does.

        Of two processes that begin at the same moment each may get some. The one with the first by name waits until the
        other gives way.
        """
        standby, without = self.missing(topology, note, connects)
        end = timing.now() + _YIELD_SECONDS
        while standby and self._joined[min(self._joined)][1].is_held and timing.now() < end:
            timing.wait(self.changed, _NAP_SECONDS)
            standby, without = self.missing(topology, note, connects)
        return standby, without

    def _join(self, topology: Topology, aliases: set[str]) -> dict[str, str]:
        """Take part in the groups of these Kafka clusters and in no other; return why not."""
        from mm2mgr.kafka.lease import Lease  # a Kafka client, which `--help` does without

        topics = {alias: topic_of(topology, alias) for alias in sorted(aliases)}
        for alias, (access, lease) in list(self._joined.items()):
            if alias not in topics or topics[alias].access != access or lease.refused:
                del self._joined[alias]
                lease.close()

        def join(alias: str) -> Lease | str:
            try:
                return Lease(topics[alias], self._group_of(topology), self._tell)
            except Mm2mgrError as error:
                return _because(error)

        new = sorted(topics.keys() - self._joined.keys())
        answers = dict(zip(new, _side_by_side(join, new), strict=True))
        errors = {alias: answer for alias, answer in answers.items() if isinstance(answer, str)}
        joined = {alias: answer for alias, answer in answers.items() if not isinstance(answer, str)}
        self._joined |= {alias: (topics[alias].access, lease) for alias, lease in joined.items()}
        end = timing.now() + _JOIN_SECONDS
        for lease in joined.values():
            while not timing.wait(lease.answered, _NAP_SECONDS) and timing.now() < end:
                pass
        return errors

    def _tell(self) -> None:
        self.changed.set()
        if gone := {alias for alias, lease in self._watched.items() if not lease.is_held} - self.lost:
            self._lose(gone)

    def _lose(self, aliases: Iterable[str]) -> None:
        self.lost |= frozenset(aliases)
        self._when_lost()

    @contextmanager
    def watch_held(self, topology: Topology) -> Iterator[None]:
        """Within the block, a lease that is held at its begin and lost ends the writes, also where it is won again."""
        self.lost = frozenset()
        self._watched = {alias: lease for alias, (_, lease) in self._joined.items() if lease.is_held}
        self._kafka_of = {name: connect.kafka for name, connect in topology.connects.items()}
        try:
            yield
        finally:
            self._watched = {}

    @contextmanager
    def ending(self, halt: asyncio.Event) -> Iterator[None]:
        """Within the block, a lost lease sets `halt`, as an interrupt does."""
        loop = asyncio.get_running_loop()
        self._when_lost = lambda: loop.call_soon_threadsafe(halt.set)
        if self.lost:
            halt.set()
        try:
            yield
        finally:
            self._when_lost = lambda: None

    async def check(self, connect: str) -> None:
        """Raise LeaseLost where the lease of a Connect cluster was lost; to be asked before each write. Brokers are
        asked every few seconds.
        """
        alias = self._kafka_of.get(connect, "")
        lease = self._watched.get(alias)
        if lease is None:
            return
        if alias not in self.lost and not lease.was_confirmed() and not await asyncio.to_thread(lease.confirm):
            self._lose({alias})
        if alias in self.lost:
            raise LeaseLost(
                f"not written: the lease on Kafka '{alias}' was lost, so another process may write now",
                hint="apply again: it goes on from what is written",
            )

    def close(self) -> None:
        """Give all of them up; the next process has them at once."""
        _side_by_side(lambda lease: lease.close(), [lease for _, lease in self._joined.values()])
        self._joined = {}

    def close_within(self, seconds: float) -> None:
        """Give all of them up, and wait for it no longer than this: a broker that does not answer delays nothing."""
        thread = threading.Thread(target=self.close, name="leaves the lease", daemon=True)
        thread.start()
        thread.join(seconds)


def wait_for_lease(topology: Topology, plan: Plan, report: Report) -> bool:
    """Wait while another process of this owner holds the lease where the plan writes, no longer than Kafka takes to
    miss one that was killed.

    Returns whether there was one; Mm2mgrError where it still holds it. Without the lease being taken, so that nothing
    is held while a person thinks.
    """
    end: float | None = None
    while held := wait_for(read_holders(topology, _written_connects(topology, plan), lease_group(topology)))[0]:
        alias, holder = next(iter(held.items()))
        if end is None:
            end = timing.now() + _KILLED_SECONDS
            report(LeaseAwaited(alias, describe_holder(holder), _KILLED_SECONDS))
        elif timing.now() > end:
            raise _refusal(plan.owner, alias, holder)
        timing.sleep(_ASK_AGAIN_SECONDS)
    return end is not None


def take_lease(  # noqa: PLR0913
    leases: Leases, topology: Topology, plan: Plan, by: object, report: Report, *, command: str = "apply"
) -> Plan:
    """Take the lease where the plan writes, and return the plan with a note where it cannot be had; Mm2mgrError where
    another process has it.
    """
    connects = _written_connects(topology, plan)
    if not connects:
        return plan
    standby, without = leases.take(topology, connects, holder_note(command, by, time.time()))
    if standby:
        leases.close()  # else this process may be taken for the holder
        alias = topology.connects[standby[0]].kafka
        for _ in range(_LOOKS_FOR_NOTE):
            holder = wait_for(read_holders(topology, standby, lease_group(topology)))[0].get(alias)
            if holder and holder.note:
                break
            timing.sleep(_ASK_AGAIN_SECONDS)
        raise _refusal(plan.owner, alias, holder)
    notes = {
        connect: f"not verified: that no other process of owner '{plan.owner}' writes here at the same time ({reason})"
        for connect, reason in without.items()
    }
    for connect, note in notes.items():
        report(Unguarded(connect, note))
    parts = (
        replace(part, notes=(*part.notes, notes[part.connect])) if part.connect in notes else part
        for part in plan.clusters
    )
    return replace(plan, clusters=tuple(parts))


def _written_connects(topology: Topology, plan: Plan) -> set[str]:
    """Return the Connect clusters that the plan writes, where the tree lets others see who does."""
    return {change.connect for change in plan.writes if topology.connects[change.connect].model.history}


def describe_holder(holder: Holder | None) -> str:
    """Return who holds a lease, and where, in words."""
    if holder is None:
        return "it is not known which"
    return ", ".join(filter(None, (visible(holder.note), f"on {visible(holder.host)}")))


def _refusal(owner: str, alias: str, holder: Holder | None) -> Mm2mgrError:
    return Mm2mgrError(
        f"another process of owner '{owner}' is at work: it holds the lease on Kafka '{alias}'"
        f" ({describe_holder(holder)}); nothing was written",
        hint="when an `apply` has ended, apply again; a `reconcile` goes on: let it apply the tree, or end it before"
        " you apply by hand",
    )


def _because(error: Mm2mgrError) -> str:
    return f"{error.one_line}; {error.hint}" if error.hint else error.one_line


def _side_by_side(do: Callable[[T], Answer], values: Sequence[T]) -> list[Answer]:
    """Do it for all values at the same time: brokers that do not answer hold up no other."""
    if not values:
        return []
    with ThreadPoolExecutor(len(values)) as threads:
        return list(threads.map(do, values))
