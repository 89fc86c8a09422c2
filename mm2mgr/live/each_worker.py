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
from mm2mgr.live.questions import KafkaAndPluginsOfEachWorker, PluginsOfEachWorker, Statuses, WorkerGroups
from mm2mgr.live.snapshot import Steps
from mm2mgr.text import number_of
from mm2mgr.topology import ConnectCluster

_AskWorkers = PluginsOfEachWorker | KafkaAndPluginsOfEachWorker


@dataclass(frozen=True)
class EachWorker:
    """The answers of the workers of a Connect cluster, and the members of their group, or why these are not known."""

    answers: PluginsOfWorkers
    members: tuple[str, ...] | None = None
    no_group: str = ""

    @property
    def answered_members(self) -> int:
        """How many members of the group answered, each at an address of its own; where it is not known, how many
        workers did."""
        if self.members is None:
            return self.answers.count
        answers = filter(None, map(self.answers.of_worker, self.members))
        return len({answer.worker for answer in answers if not answer.failure})


def ask_each_worker(
    connects: Iterable[ConnectCluster], ask: type[_AskWorkers] = PluginsOfEachWorker
) -> Steps[dict[str, EachWorker | Mm2mgrError]]:
    """Return what each worker of these Connect clusters answers, by their names, or why statuses were not read. `ask`:
    what each is asked for."""
    connects = list(connects)
    groups = {connect.name: WorkerGroups(connect.kafka) for connect in connects}
    snapshot = yield [*(Statuses(connect.name) for connect in connects), *dict.fromkeys(groups.values())]
    results: dict[str, EachWorker | Mm2mgrError] = {}
    members: dict[str, tuple[tuple[str, ...] | None, str]] = {}
    questions: dict[str, _AskWorkers] = {}
    at_work: dict[str, Collection[str]] = {}
    for connect in connects:
        if isinstance(statuses := snapshot.get(Statuses(connect.name)), Mm2mgrError):
            results[connect.name] = statuses
            continue
        at_work[connect.name] = workers_at_work(statuses.values())
        members[connect.name] = _members(connect, at_work[connect.name], snapshot.get(groups[connect.name]))
        workers = {*at_work[connect.name], *(members[connect.name][0] or ())}
        questions[connect.name] = ask(connect.name, tuple(sorted(workers)))
    snapshot = yield questions.values()
    for name, question in questions.items():
        answers = snapshot.get(question)
        group = (
            members[name] if isinstance(answers, Mm2mgrError) else _group_of_all(answers, at_work[name], *members[name])
        )
        results[name] = answers if isinstance(answers, Mm2mgrError) else EachWorker(answers, *group)
    return results


def _group_of_all(
    answers: PluginsOfWorkers, at_work: Collection[str], members: tuple[str, ...] | None, no_group: str
) -> tuple[tuple[str, ...] | None, str]:
    """Return the members of a group; None, and why, where a worker that runs tasks and answers is none of them: then it
    is the group of others, or that worker has just lost it.
    """
    if members is None:
        return members, no_group
    of_group = {answer.worker for answer in filter(None, map(answers.of_worker, members))}
    others = (answers.of_worker(worker) for worker in sorted(at_work))
    stranger = next((a.worker for a in others if a and not a.failure and a.worker not in of_group), None)
    if stranger is None:
        return members, no_group
    return None, f"{stranger} runs tasks, and is no member of their group"


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
        return None, (
            f"{number_of(untold, 'member')} of their group did not tell an address of their own: it rebalances, or"
            " several advertise the same one"
        )
    return tuple(sorted({worker for group in own for worker in group.workers})), ""
