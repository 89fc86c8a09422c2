"""The workers of all Connect clusters, as `serve` shows them: each is asked for its version and plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mm2mgr.assignment_text import PLUGIN_CLASS
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.live.each_worker import EachWorker, ask_each_worker
from mm2mgr.live.questions import KafkaAndPluginsOfEachWorker
from mm2mgr.live.reach import Limits
from mm2mgr.operations.workspace import Workspace

_LIMITS = Limits(connect_seconds=10.0, kafka_seconds=10.0)


@dataclass(frozen=True)
class SeenWorker:
    """A worker by its id, or by its URL where no id is known to be the same: the version of Kafka that it runs and its
    plugins by class, or why it did not answer."""

    worker: str
    kafka: str = ""
    plugins: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def own_plugin(self) -> str:
        """The version of mm2mgr's own plugin; empty where it has none."""
        return self.plugins.get(PLUGIN_CLASS, "")


@dataclass(frozen=True)
class SeenWorkers:
    """The workers of a Connect cluster. `declared`: how many the tree says there are; `tasks_per_worker`: how many busy
    tasks one carries; `unlisted`: why idle ones may be missing; `unknown`: why none could be asked."""

    workers: tuple[SeenWorker, ...] = ()
    declared: int | None = None
    tasks_per_worker: int | None = None
    unlisted: str = ""
    unknown: str = ""


def estate_workers(workspace: Workspace) -> dict[str, SeenWorkers]:
    """Ask the workers of all Connect clusters that have flows; nothing is raised."""
    connects = {flow.connect.name: flow.connect for flow in workspace.topology.flows}
    try:
        answers = workspace.ask(ask_each_worker(connects.values(), KafkaAndPluginsOfEachWorker), _LIMITS)
    except Exception as error:  # ends neither the survey nor the server
        answers = dict.fromkeys(connects, Mm2mgrError(cause(error)))
    workers = {}
    for name, connect in connects.items():
        answer, declared = answers[name], connect.model.workers
        numbers = (declared.count, declared.tasks_per_worker)
        if isinstance(answer, Mm2mgrError):
            workers[name] = SeenWorkers((), *numbers, unknown=answer.one_line)
        else:
            workers[name] = SeenWorkers(tuple(_workers(answer)), *numbers, answer.no_group)
    return workers


def _workers(asked: EachWorker) -> Iterator[SeenWorker]:
    answers = asked.answers
    names = {worker: answers.asked_as.get(worker) for worker in sorted({*answers.asked_as, *(asked.members or ())})}
    by_name = {answer.worker: answer for answer in answers.workers}
    others = [(name, name) for name in by_name if name not in names.values()]
    for worker, name in (*names.items(), *others):
        answer = by_name.get(name or "")
        if answer is None:
            yield SeenWorker(worker, failure="its address means nothing here")
        else:
            yield SeenWorker(worker, answer.kafka, answer.plugins, answer.failure)
