"""The leases that make one process the only one of its kind that writes: one per Kafka cluster that Connect clusters run on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError
from mm2mgr.reconcile.history import TOPIC, topic_of
from mm2mgr.topology import Topology

if TYPE_CHECKING:
    from mm2mgr.kafka.access import KafkaAccess
    from mm2mgr.kafka.lease import Holder, Lease

_NAP_SECONDS = 1.0
"""A signal that comes just before Python falls asleep is handled only when it wakes up."""
_JOIN_SECONDS = 20.0


async def read_holders(
    topology: Topology, connects: Iterable[str], group: str
) -> tuple[dict[str, Holder], dict[str, str]]:
    """Return who holds the lease on the Kafka clusters of these Connect clusters now, by alias, and why that could not be asked.

    All are asked at the same time, without joining the group; each answers within a second or counts as not asked.
    """
    from mm2mgr.kafka.lease import read_holder  # a Kafka client, which `--help` does without

    def ask(alias: str) -> Holder | str | None:
        try:
            return read_holder(topic_of(topology, alias).access, TOPIC, group)
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
    """The leases of this process, one per Kafka cluster that Connect clusters run on; `group_of` names their consumer group."""

    def __init__(self, group_of: Callable[[Topology], str]) -> None:
        self._group_of = group_of
        self.changed = threading.Event()
        """Set when a lease was won or lost since the round before began."""
        self.lost = False
        """A lease that this round began with was lost."""
        self.when_lost: Callable[[], object] = lambda: None
        self._held: dict[str, tuple[KafkaAccess, Lease]] = {}
        self._watched: tuple[Lease, ...] = ()

    def missing(self, topology: Topology, note: str = "") -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the Connect clusters that another process writes, and those for which the lease could not be had, with the reason.

        `note` is what others are shown of this process while it holds a lease.
        """
        self.changed.clear()
        aliases = {connect.kafka for connect in topology.connects.values() if connect.model.history}
        errors = self._join(topology, aliases)
        standby, without = [], {}
        for name, connect in topology.connects.items():
            if not connect.model.history:
                without[name] = "no lease: the tree says history: false, so another writer could not be seen"
            elif connect.kafka in errors:
                without[name] = f"no lease: {errors[connect.kafka]}"
            elif not self._held[connect.kafka][1].held:
                standby.append(name)
            elif not self._held[connect.kafka][1].confirmed(note):
                without[name] = f"no lease: Kafka '{connect.kafka}' did not confirm it"
        return tuple(standby), without

    def _join(self, topology: Topology, aliases: set[str]) -> dict[str, str]:
        """Take part in the groups of these Kafka clusters and in no other; return why not."""
        from mm2mgr.kafka.lease import Lease  # a Kafka client, which `--help` does without

        errors, joined = dict[str, str](), list[Lease]()
        topics = {alias: topic_of(topology, alias) for alias in sorted(aliases)}
        for alias, (access, lease) in list(self._held.items()):
            if alias not in topics or topics[alias].access != access:
                del self._held[alias]
                lease.close()
        for alias in topics.keys() - self._held.keys():
            try:
                lease = Lease(topics[alias], self._group_of(topology), self._tell)
            except Mm2mgrError as error:
                errors[alias] = f"{error.one_line}; {error.hint}" if error.hint else error.one_line
                continue
            self._held[alias] = topics[alias].access, lease
            joined.append(lease)
        end = time.monotonic() + _JOIN_SECONDS
        for lease in joined:
            while not lease.answered.wait(_NAP_SECONDS) and time.monotonic() < end:
                pass
        return errors

    def _tell(self) -> None:
        self.changed.set()
        if not all(lease.held for lease in self._watched):
            self.lost = True
            self.when_lost()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, a lease that is held at its begin and lost ends the writes."""
        self.lost = False
        self._watched = tuple(lease for _, lease in self._held.values() if lease.held)
        try:
            yield
        finally:
            self._watched = ()

    def close(self) -> None:
        """Give all of them up; the next process has them at once."""
        for _, lease in self._held.values():
            lease.close()
        self._held = {}
