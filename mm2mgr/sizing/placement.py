"""What a Connect cluster runs now: which tasks each worker has, what they carry, and so what is lost with that worker.

In go connectors as Connect's status tells them and the loads of flows, out come workers, the busiest first. It knows no
more than Connect: that tasks of a worker that died are RUNNING there, until the delay is over and others have them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mm2mgr.sizing.load import Load
from mm2mgr.sizing.words import listed, number_of

_NOBODYS = ("UNASSIGNED", "DESTROYED")


@dataclass(frozen=True)
class SeenTask:
    """A task, its state, and the worker that reported it last, as `host:port`."""

    number: int
    state: str
    worker: str


@dataclass(frozen=True)
class SeenConnector:
    """A connector, the worker with its instance, and its tasks."""

    name: str
    worker: str
    tasks: tuple[SeenTask, ...]


@dataclass(frozen=True)
class WorkerNow:
    """A worker and what is lost with it: `tasks` of all connectors, as Connect counts them; of flows, which ones by number.

    `bytes_per_second` is the planned load of the flows' tasks.
    """

    worker: str
    connectors: int
    tasks: int
    flows: Mapping[str, tuple[int, ...]]
    bytes_per_second: float

    @property
    def flow_tasks(self) -> int:
        """Tasks that move records of the tree's flows."""
        return sum(map(len, self.flows.values()))


@dataclass(frozen=True)
class Placement:
    """The workers that have anything, and the tasks that nobody has. `note`: why nothing could be read."""

    workers: tuple[WorkerNow, ...] = ()
    nowhere: tuple[str, ...] = ()
    note: str = ""

    def sentences(self, declared: int | None) -> list[str]:
        """Say what is odd about it: other workers than declared, tasks that nobody has, or nothing to be read."""
        if self.note:
            return [f"What runs is not known: {self.note}."]
        seen = len(self.workers)
        said = []
        if declared is not None and seen and seen != declared:
            at_work = f"{seen} of them" if seen < declared else f"but {seen}"
            said.append(
                f"{number_of(declared, 'worker')} declared (workers: count), {at_work} with tasks or connectors."
            )
        if self.nowhere:
            said.append(f"Tasks that no worker has now: {listed(self.nowhere)}.")
        return said

    def to_dict(self, declared: int | None) -> dict[str, Any]:
        """Return plain JSON values."""
        workers = [{**asdict(one), "flow_tasks": one.flow_tasks} for one in self.workers]
        return {"workers": workers, "nowhere": list(self.nowhere), "reasons": self.sentences(declared)}


def placed(seen: Iterable[SeenConnector], flows: Mapping[str, tuple[str, Load]]) -> Placement:
    """Return who has what; `flows` tells flow id and load by the name of the connector that moves the flow's records.

    Task i of n carries what the deal gives it, whatever number of tasks `size` recommends.
    """
    connectors = sorted(seen, key=lambda one: one.name)
    instances = Counter([one.worker for one in connectors if one.worker])
    hands: dict[str, list[_Held]] = {name: [] for name in instances}
    nowhere = []
    for connector in connectors:
        for task, held in _held(connector, flows.get(connector.name)):
            if task.state in _NOBODYS or not task.worker:
                nowhere.append(f"{connector.name}-{task.number}")
            else:
                hands.setdefault(task.worker, []).append(held)
    workers = [_worker(name, instances[name], hand) for name, hand in hands.items()]
    return Placement(
        tuple(sorted(workers, key=lambda one: (-one.bytes_per_second, -one.tasks, one.worker))), tuple(nowhere)
    )


_Held = tuple[str, int, float]  # flow id (empty: not of a flow), number, bytes per second


def _held(connector: SeenConnector, flow: tuple[str, Load] | None) -> Iterator[tuple[SeenTask, _Held]]:
    flow_id, load = flow or ("", None)
    dealt = load.per_task(len(connector.tasks)) if load else []
    for task in sorted(connector.tasks, key=lambda one: one.number):
        yield task, (flow_id, task.number, dealt[task.number] if task.number < len(dealt) else 0.0)


def _worker(name: str, connectors: int, hand: Iterable[_Held]) -> WorkerNow:
    held = list(hand)
    numbers: dict[str, list[int]] = {}
    for flow_id, number, _ in held:
        if flow_id:
            numbers.setdefault(flow_id, []).append(number)
    load = math.fsum(rate for *_, rate in held)
    return WorkerNow(name, connectors, len(held), {each: tuple(n) for each, n in numbers.items()}, load)
