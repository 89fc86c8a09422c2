"""The workers of each Connect cluster, and the page of one worker: tasks with their load, version and plugins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from mm2mgr.evidence.flow_load import ConnectNeed, TaskLoad
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.output.tables import Table
from mm2mgr.problems.health import ConnectorState, FlowStatus, TaskState
from mm2mgr.serve.pages.base import MOST_ROWS, Context, flow_link, shown_health, utc
from mm2mgr.serve.pages.flow_list import flows_link
from mm2mgr.text import count_text, few, fit_text, nearest, number_of, rate_text, without_cluster

if TYPE_CHECKING:
    from mm2mgr.operations.estate_workers import SeenWorker, SeenWorkers

_MOST_NEAR, _MOST_LETTERS = 5, 300
_NOT_READ = "it is read at a slower pace"


def worker_link(connect: str, worker: str) -> str:
    """Return the address of a worker's page."""
    return f"/worker?{urlencode({'connect': connect, 'id': worker})}"


@dataclass(frozen=True)
class _Task:
    """A task on a worker: of which connector, and what it carries; None where that is unknown or nothing. `is_old`: its
    Connect cluster cannot be read now."""

    owner: ConnectorState
    state: TaskState
    load: TaskLoad | None
    is_old: bool = False

    @property
    def word(self) -> str:
        """Its state in Connect's words."""
        return f"last known {self.state.state}" if self.is_old else self.state.state


@dataclass
class _Worker:
    """A worker as the last look and the survey know it; `answer` None: not asked."""

    name: str
    tasks: list[_Task] = field(default_factory=list)
    answer: SeenWorker | None = None

    @property
    def busy(self) -> int:
        """Tasks that move records: those of source connectors."""
        return sum(isinstance(task.owner, FlowStatus) for task in self.tasks)

    @property
    def answers(self) -> tuple[str, str, str]:
        """A state, its word, and why."""
        if self.answer is None:
            return "unknown", "not asked", ""
        return ("problem", "no answer", self.answer.failure) if self.answer.failure else ("ok", "answers", "")

    def load(self) -> str:
        """What its tasks got on average in the newest hour of the store."""
        loads = [task.load for task in self.tasks if task.load]
        rates = [load.bytes_per_second for load in loads if load.bytes_per_second is not None]
        if not rates:
            return "unknown" if self.busy else "none"
        is_part = len(rates) < self.busy or any(load.unmeasured_partitions for load in loads)
        return f"{'at least ' if is_part else ''}{rate_text(sum(rates))}"


def workers(view: EstateView) -> Context:
    """Return the workers of all Connect clusters."""
    rosters = _rosters(view)
    asked, needs = view.survey.workers if view.survey else {}, view.needs.connects
    names = sorted({*rosters, *asked, *needs})
    loads = view.load
    return {
        "name": "workers",
        "here": "/workers",
        "connects": [_connect(name, rosters.get(name, {}), asked.get(name), needs.get(name), view) for name in names],
        "asked_at": utc(view.survey.taken_at) if view.survey else "",
        "load_note": f"The load of tasks is unknown: {loads.unknown}."
        if loads.unknown
        else f"The load is what the partitions of its tasks got on average in {loads.hours}.",
        "is_known": view.look is not None,
    }


def worker(view: EstateView, connect: str, name: str) -> Context | None:
    """Return one worker; None for one that nothing is known of."""
    roster = _rosters(view).get(connect, {})
    record = roster.get(name)
    if record is None:
        return None
    tasks = sorted(record.tasks, key=lambda task: (task.owner.name, task.state.id))
    plugins = sorted(record.answer.plugins.items()) if record.answer else []
    limit = _limit(view, connect)
    return {
        "name": f"worker {name}",
        "here": "/workers",
        "worker": name,
        "connect": connect,
        "connect_link": flows_link(connect=connect),
        "answers": record.answers,
        "asked_at": utc(view.survey.taken_at) if view.survey and record.answer else "",
        "facts": [
            ("Kafka", record.answer.kafka if record.answer and record.answer.kafka else "unknown"),
            ("mm2mgr's plugin", _own_plugin(record)),
            ("tasks that move records", f"{record.busy}{f' of {limit} at most' if limit else ''}"),
            ("load", record.load()),
        ],
        "tasks": [_task(view, task) for task in tasks[:MOST_ROWS]],
        "left_out": max(0, len(tasks) - MOST_ROWS),
        "others": [(other, worker_link(connect, other)) for other in roster if other != name],
        "plugins": Table(("plugin", "version"), [(plugin, version or "-") for plugin, version in plugins]),
    }


def unknown_worker(view: EstateView, connect: str, name: str) -> Context:
    """Return what is said of a worker that nothing is known of: the nearest ones."""
    asked = name.strip()[:_MOST_LETTERS]
    places = {worker: of for of, roster in _rosters(view).items() for worker in roster}
    near = nearest(asked, sorted(places), 0.5, _MOST_NEAR)
    return {
        "name": "no such worker",
        "here": "/workers",
        "heading": "No worker is known yet"
        if view.look is None and not view.survey
        else f"No worker of {fit_text(connect, _MOST_LETTERS) or 'a Connect cluster'} has this id",
        "asked": fit_text(name, _MOST_LETTERS),
        "others": "All workers",
        "near": [(f"{other} of {places[other]}", worker_link(places[other], other)) for other in near],
    }


def workers_dict(view: EstateView) -> dict[str, object]:
    """Return the workers as `/api/workers` has them, by Connect cluster."""
    needs, answers = view.needs.connects, view.survey.workers if view.survey else {}
    connects: dict[str, object] = {}
    for name, roster in sorted(_rosters(view).items()):
        need, asked = needs.get(name), answers.get(name)
        connects[name] = {
            "declared": asked.declared if asked else None,
            "needed": need.workers_needed if need else None,
            "unknown": asked.unknown if asked else _NOT_READ,
            "unlisted": asked.unlisted if asked else "",
            "workers": [
                {
                    "id": worker.name,
                    "kafka": worker.answer.kafka if worker.answer else "",
                    "plugin": worker.answer.own_plugin if worker.answer else "",
                    "failure": worker.answer.failure if worker.answer else None,
                    "tasks": [
                        {
                            "flow": task.owner.flow if isinstance(task.owner, FlowStatus) else "",
                            "connector": task.owner.connector,
                            "task": task.state.id,
                            "state": "unknown" if task.is_old else task.state.state,
                            "bytes_per_second": task.load.bytes_per_second if task.load else None,
                        }
                        for task in worker.tasks
                    ],
                }
                for worker in roster.values()
            ],
        }
    return {"asked_at": view.survey.taken_at if view.survey else None, "connects": connects}


def _rosters(view: EstateView) -> dict[str, dict[str, _Worker]]:
    """Return the workers that are known, by Connect cluster and id: those with tasks, and those that were asked."""
    rosters: dict[str, dict[str, _Worker]] = defaultdict(dict)
    for name, asked in (view.survey.workers if view.survey else {}).items():
        rosters[name] = {worker.worker: _Worker(worker.worker, answer=worker) for worker in asked.workers}
    status = view.look.status if view.look else None
    for owner in (*status.flows, *status.companions) if status else ():
        shown = (last.status if (last := view.last_known(owner)) else owner) if isinstance(owner, FlowStatus) else owner
        loads = {load.task: load for load in view.task_loads(owner)} if isinstance(owner, FlowStatus) else {}
        for task in shown.tasks:
            if task.worker:
                own = rosters[owner.connect].setdefault(task.worker, _Worker(task.worker))
                own.tasks.append(_Task(owner, task, loads.get(task.id), shown is not owner))
    return {name: dict(sorted(roster.items())) for name, roster in rosters.items()}


def _connect(
    name: str, roster: Mapping[str, _Worker], asked: SeenWorkers | None, need: ConnectNeed | None, view: EstateView
) -> Context:
    limit = _limit(view, name)
    rows = [
        {
            "worker": worker.name,
            "link": worker_link(name, worker.name),
            "answers": worker.answers,
            "kafka": worker.answer.kafka if worker.answer and worker.answer.kafka else "unknown",
            "plugin": _own_plugin(worker),
            "tasks": f"{worker.busy}{f' of {limit}' if limit else ''}",
            "is_over": bool(limit and worker.busy > limit),
            "beside": len(worker.tasks) - worker.busy,
            "states": _states(worker.tasks),
            "load": worker.load(),
        }
        for worker in roster.values()
    ]
    return {
        "name": name,
        "link": flows_link(connect=name),
        "sentences": list(_sentences(list(roster.values()), asked, need, view)),
        "warnings": list(_warnings(name, list(roster.values()), asked, need)),
        "rows": rows[:MOST_ROWS],
        "left_out": max(0, len(rows) - MOST_ROWS),
    }


def _sentences(
    roster: Sequence[_Worker], asked: SeenWorkers | None, need: ConnectNeed | None, view: EstateView
) -> Iterator[str]:
    at_work = sum(bool(worker.tasks) for worker in roster)
    declared = asked.declared if asked else None
    counts = [f"{number_of(len(roster), 'worker')} known", f"{at_work} with tasks"]
    silent = sum(bool(worker.answer and worker.answer.failure) for worker in roster)
    counts += [f"{silent} without an answer"] if silent else []
    counts += [f"{declared} declared"] if declared is not None else []
    needed = need.workers_needed if need else None
    if needed is None:
        reason = view.needs.unknown or "its load was not judged"
        yield f"{', '.join(counts)}; how many its load needs is unknown: {reason}."
    else:
        spare = _spare(roster, asked, needed)
        yield f"{', '.join(counts)}, {needed} needed by the load of the last four weeks; {spare}."
    if asked and asked.unlisted:
        yield f"Workers without a task may be missing here: {asked.unlisted}."


def _there(roster: Sequence[_Worker], asked: SeenWorkers | None) -> int:
    """Return how many workers can take tasks: those known that answer, or as many as are declared where idle ones are
    not listed."""
    silent = sum(bool(worker.answer and worker.answer.failure) for worker in roster)
    declared = asked.declared if asked and asked.unlisted and asked.declared else 0
    return max(len(roster), declared) - silent


def _spare(roster: Sequence[_Worker], asked: SeenWorkers | None, needed: int) -> str:
    spare = _there(roster, asked) - needed
    return f"{spare} to spare" if spare > 0 else "none to spare" if spare == 0 else f"{-spare} too few"


def _warnings(
    name: str, roster: Sequence[_Worker], asked: SeenWorkers | None, need: ConnectNeed | None
) -> Iterator[str]:
    if asked and asked.unknown:
        yield f"Its workers could not be asked: {without_cluster(asked.unknown, name)}"
    elif silent := [worker.name for worker in roster if worker.answer and worker.answer.failure]:
        yield f"No answer from {few(silent)}."
    spare = _there(roster, asked) - need.workers_needed if need and need.workers_needed else 1
    if spare < 0:
        yield f"{number_of(-spare, 'worker')} too few for its load."
    elif spare == 0:
        yield "When a worker is lost, the others cannot carry all tasks."
    versions = {worker.answer.kafka for worker in roster if worker.answer and worker.answer.kafka}
    if len(versions) > 1:
        yield f"Its workers run different versions of Kafka: {', '.join(sorted(versions))}."
    plugins = {worker.answer.own_plugin for worker in roster if worker.answer and not worker.answer.failure}
    if len(plugins) > 1:
        yield f"mm2mgr's plugin differs: {', '.join(version or 'none' for version in sorted(plugins))}."


def _limit(view: EstateView, connect: str) -> int | None:
    asked = view.survey.workers.get(connect) if view.survey else None
    return asked.tasks_per_worker if asked else None


def _own_plugin(worker: _Worker) -> str:
    if worker.answer is None or worker.answer.failure:
        return "unknown"
    return worker.answer.own_plugin or "none"


def _states(tasks: Sequence[_Task]) -> str:
    counts = Counter(task.word for task in tasks)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no task"


def _task(view: EstateView, task: _Task) -> Context:
    load, owner = task.load, task.owner
    least = "at least " if load and load.unmeasured_partitions else ""
    is_flow = isinstance(owner, FlowStatus)
    volume = load.bytes_per_second if load else None
    records = load.records_per_second if load else None
    return {
        "of": owner.name,
        "link": flow_link(owner.name) if is_flow else "",
        "health": shown_health(view, owner),
        "task": task.state.id,
        "state": task.word,
        "partitions": "-" if task.state.partitions is None else task.state.partitions,
        "load": ("unknown" if volume is None else f"{least}{rate_text(volume)}") if is_flow else "-",
        "records": ("unknown" if records is None else f"{least}{count_text(records)}/s") if is_flow else "-",
    }
