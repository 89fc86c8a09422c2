"""Connect's spread of tasks over workers, as IncrementalCooperativeAssignor makes it (KIP-415, Kafka 2.3 to 4.x).

In: tasks by connector, workers that come and go. Out: who has what. Time is left out: each rebalance is carried to its end.
"""

from __future__ import annotations

from collections.abc import Iterable

Task = tuple[str, int]


class Group:
    """The workers of a Connect cluster, each with its tasks."""

    def __init__(self, workers: int) -> None:
        self.workers: list[list[Task]] = [[] for _ in range(workers)]

    def create(self, connector: str, tasks: int) -> None:
        """Start a connector with so many tasks."""
        self._assign([(connector, number) for number in range(tasks)])

    def lose(self, worker: int) -> None:
        """Take a worker away; after the delay its tasks go to the others, which keep what they have."""
        self._assign(self.workers.pop(worker))
        self._balance()

    def join(self) -> None:
        """Add a worker; the others give up what is above their share, which need not be what they got last."""
        self.workers.append([])
        self._balance()

    def _assign(self, tasks: Iterable[Task]) -> None:
        for task in sorted(tasks):
            min(self.workers, key=len).append(task)

    def _balance(self) -> None:
        """Revoke what is above the share, so many with one more than the others as there are tasks left over.

        A worker names its tasks connector by connector, so whole connectors go together.
        """
        least, extras = divmod(sum(map(len, self.workers)), len(self.workers))
        revoked: list[Task] = []
        for hand in self.workers:
            hand.sort()
            keep = least
            if len(hand) > least and extras:
                keep, extras = least + 1, extras - 1
            revoked += hand[: len(hand) - keep] if len(hand) > keep else []
            del hand[: max(0, len(hand) - keep)]
        self._assign(revoked)
