"""Writes of a failover's rehearsal: its scratch groups on the target, which are deleted whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event

from mm2mgr.kafka import scratch_groups
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.scratch_groups import SESSION_SECONDS, GroupRead
from mm2mgr.partitions import TopicPartition

_LEFT_SECONDS = SESSION_SECONDS + 20.0
"""For so long a group may still have the member that has just left, or that was killed."""


@dataclass
class ScratchGroups:
    """The scratch groups of one rehearsal on its target; `names` are those that may be there and are to be deleted."""

    access: KafkaAccess
    names: list[str] = field(default_factory=list)

    def refusal_to_delete(self, name: str) -> str:
        """Return why this login could not delete a group of this name, which does not exist; "" where it could."""
        return scratch_groups.delete_groups(self.access, [name], 0.0).get(name, "")

    def delete_abandoned(self, names: Sequence[str]) -> dict[str, str]:
        """Delete groups that an earlier rehearsal left, and return why some are still there."""
        return scratch_groups.delete_groups(self.access, names, _LEFT_SECONDS) if names else {}

    def write(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, str]:
        """Commit offsets for the groups; return by group why it could not be written."""
        self.names += offsets  # before the first of them exists
        return scratch_groups.write_offsets(self.access, offsets)

    def read(
        self, most: Mapping[str, Mapping[TopicPartition, int]], at_once: int, limit_seconds: float
    ) -> Generator[tuple[str, GroupRead]]:
        """Yield what a member of each group read, in the order in which they end."""
        stop, waiting = Event(), list(most)
        with ThreadPoolExecutor(at_once, thread_name_prefix="mm2mgr-rehearsal") as threads:
            running: dict[Future[GroupRead], str] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < at_once:
                        name = waiting.pop(0)
                        running[
                            threads.submit(
                                scratch_groups.read_as_member, self.access, name, most[name], limit_seconds, stop
                            )
                        ] = name
                    for ended in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(ended), ended.result()
            finally:
                stop.set()

    def delete(self) -> dict[str, str]:
        """Delete all groups of this rehearsal, and return why some are still there."""
        left = scratch_groups.delete_groups(self.access, self.names, _LEFT_SECONDS) if self.names else {}
        self.names = list(left)
        return left
