"""All workers of Connect clusters that are known, each asked for its plugins: REST answers for one worker only.

Known are those of the URLs, those of statuses, and the members of the group that the workers are on their Kafka
cluster, where mm2mgr's login may describe it: idle ones are in no status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mm2mgr.connect.types import PluginsOfWorkers
from mm2mgr.connectors import workers_at_work
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.live.questions import PluginsOfEachWorker, Statuses, WorkerGroups
from mm2mgr.live.snapshot import Steps
from mm2mgr.text import number_of
from mm2mgr.topology import ConnectCluster


@dataclass(frozen=True)
class EachWorker:
    """The answers of the workers of a Connect cluster, and the members of their group, or why these are not known."""

    answers: PluginsOfWorkers
    members: tuple[str, ...] | None = None
    no_group: str = ""

    @property
    def answered_members(self) -> int:
        """How many members of the group answered; where it is not known, how many workers did."""
        if self.members is None:
            return self.answers.count
        answers = map(self.answers.of_worker, self.members)
        return sum(answer is not None and not answer.failure for answer in answers)


def ask_each_worker(connects: Iterable[ConnectCluster]) -> Steps[dict[str, EachWorker | Mm2mgrError]]:
    """Return what each worker of these Connect clusters answers, by their names, or why statuses were not read."""
    connects = list(connects)
    groups = {connect.name: WorkerGroups(connect.kafka) for connect in connects}
    snapshot = yield [*(Statuses(connect.name) for connect in connects), *dict.fromkeys(groups.values())]
    results: dict[str, EachWorker | Mm2mgrError] = {}
    members: dict[str, tuple[tuple[str, ...] | None, str]] = {}
    questions: dict[str, PluginsOfEachWorker] = {}
    for connect in connects:
        if isinstance(statuses := snapshot.get(Statuses(connect.name)), Mm2mgrError):
            results[connect.name] = statuses
            continue
        at_work = workers_at_work(statuses.values())
        members[connect.name] = _members(connect, at_work, snapshot.get(groups[connect.name]))
        workers = {*at_work, *(members[connect.name][0] or ())}
        questions[connect.name] = PluginsOfEachWorker(connect.name, tuple(sorted(workers)))
    snapshot = yield questions.values()
    for name, question in questions.items():
        answers = snapshot.get(question)
        results[name] = answers if isinstance(answers, Mm2mgrError) else EachWorker(answers, *members[name])
    return results


def _members(
    connect: ConnectCluster, at_work: Collection[str], groups: tuple[WorkerGroup, ...] | Mm2mgrError
) -> tuple[tuple[str, ...] | None, str]:
    """Return the workers of the group that a Connect cluster is, None where that is not known, and why."""
    if isinstance(groups, Mm2mgrError):
        return None, f"their group could not be read: {groups.one_line}"
    urls = {url.partition("://")[2].partition("/")[0] for url in connect.model.url}
    own = [group for group in groups if not {*urls, *at_work}.isdisjoint(group.workers)]
    if not own:
        return None, f"no group of Connect workers on Kafka cluster '{connect.kafka}' has one of those known here"
    if untold := sum(group.untold for group in own):
        return None, f"{number_of(untold, 'member')} of their group did not tell an address yet: it rebalances"
    return tuple(sorted({worker for group in own for worker in group.workers})), ""
