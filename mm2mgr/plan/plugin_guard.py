"""Holds back the Connect plugin's class until each worker has it. Pure.

A worker without the class fails what it is given and only the stock class heals that, and REST lists no workers: an idle
one is in no status. So all that are known are asked: those of the URLs, of statuses, and of the workers' group, where
their Kafka cluster tells it. All of the group must answer, and as many as are declared; one of both must be known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, VERSION, is_plugin_class
from mm2mgr.comparison.differences import Named
from mm2mgr.connect.types import PluginOnWorkers
from mm2mgr.connectors import workers_at_work
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.live.questions import Statuses, WorkerGroups, WorkersWithPlugin
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import WRITES, Change
from mm2mgr.plan.draft import Draft
from mm2mgr.plan.judges import PLUGIN_MISSING
from mm2mgr.remarks import Effect, Remark
from mm2mgr.text import few, number_of, whole_number
from mm2mgr.topology import ConnectCluster

RULE = "plugin-on-workers"
_INSTALL = "put the jar of `mm2mgr plugin write` onto every worker and restart them one after the other"
_OR_STOCK = "then plan again; until then write balance: stock"


@dataclass(frozen=True)
class PluginWorkers:
    """What is known of the workers of a Connect cluster: their answers, or why none was asked for (`unread`), how many
    are declared, and the members of their group, or why these are not known (`no_group`).
    """

    connect: str
    answers: PluginOnWorkers
    declared: int | None = None
    unread: str = ""
    members: tuple[str, ...] | None = None
    no_group: str = ""

    def remarks(self, change: Change) -> Iterator[Remark]:
        """Yield what is said of a write of the plugin's class; one that runs already is told, not stopped, where
        workers do not answer.
        """
        live, needed = change.before or {}, _text_version(change.config or {})
        lacking = [answer.worker for answer in self.answers.workers if answer.version is None and not answer.failure]
        if lacking:
            text = f"{few(lacking)} of '{self.connect}' {_has(lacking)} no {PLUGIN_CLASS}, and would fail its tasks"
            yield Remark(text, "blocks", f"{_INSTALL}, {_OR_STOCK}", PLUGIN_MISSING)
        versions = {answer.worker: answer.version for answer in self.answers.workers if answer.version is not None}
        older = [worker for worker, version in versions.items() if _major(version) < needed]
        if older:
            text = (
                f"{few([f'{worker} (version {versions[worker]})' for worker in older])} of '{self.connect}' {_has(older)}"
                f" a plugin too old for this assignment, which needs version {needed}"
            )
            yield Remark(text, "blocks", f"{_INSTALL}, {_OR_STOCK}", RULE)
        runs = is_plugin_class(live.get("connector.class", ""))
        effect: Effect = "warns" if runs else "blocks"
        if self.unread:
            text = f"which workers '{self.connect}' has could not be read ({self.unread})"
            yield Remark(text, effect, "plan again when they answer", RULE)
        elif self.declared is None and self.members is None:
            text = (
                f"how many workers '{self.connect}' has is not declared, and Connect lists no idle ones: one without the"
                f" plugin would fail its tasks ({self.no_group})"
            )
            yield Remark(text, effect, f"write workers: {{count: …}} under connect: {self.connect}", RULE)
        elif self.answered < self.expected:
            silent = [f"{answer.worker}: {answer.failure}" for answer in self.answers.workers if answer.failure]
            reasons = f" ({few(silent)})" if silent else ""
            text = (
                f"{self.answered} of the {number_of(self.expected, 'worker')} of '{self.connect}' answered whether they"
                f" have the plugin{reasons}"
            )
            is_group = self.declared is None or len(self.members or ()) >= self.declared
            count = "" if is_group else ", or correct workers: {count: …}"
            remedy = (
                f"write the address of each worker under url: of '{self.connect}', start those that are down{count};"
                " then plan again"
            )
            yield Remark(text, effect, remedy, RULE)

    @property
    def expected(self) -> int:
        """How many workers there are: those of the group, and no fewer than are declared."""
        return max(self.declared or 0, len(self.members or ()))

    @property
    def answered(self) -> int:
        """How many workers answered; of a group that is known, its members count."""
        if self.members is None:
            return self.answers.count
        answers = map(self.answers.of_worker, self.members)
        return sum(answer is not None and not answer.failure for answer in answers)


def _has(workers: list[str]) -> str:
    return "has" if len(workers) == 1 else "have"


def _text_version(config: Mapping[str, str]) -> int:
    """Return the version of the plugin that an assignment needs, also of one that nobody here can read."""
    head = re.match(r"\s*version=([0-9]{1,9})(;|$)", config.get(ASSIGNMENT_KEY, ""))
    return int(head[1]) if head else VERSION


def _major(version: str) -> int:
    return whole_number(version.partition(".")[0], 10) or 0


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


def ask_plugin_workers(draft: Draft) -> Steps[list[tuple[Named, Remark]]]:
    """Return what is said of writes of the plugin's class; nothing is asked where there is none."""
    writes = [
        change
        for change in draft.writes
        if change.keys and change.action in WRITES and is_plugin_class((change.config or {}).get("connector.class", ""))
    ]
    topology = draft.declared.topology
    connects = sorted({change.connect for change in writes})
    groups = {connect: WorkerGroups(topology.connects[connect].kafka) for connect in connects}
    statuses = yield [*map(Statuses, connects), *dict.fromkeys(groups.values())]
    questions: dict[str, WorkersWithPlugin] = {}
    members: dict[str, tuple[tuple[str, ...] | None, str]] = {}
    for connect in connects:
        if not isinstance(answer := statuses.get(Statuses(connect)), Mm2mgrError):
            at_work = workers_at_work(answer.values())
            members[connect] = _members(topology.connects[connect], at_work, statuses.get(groups[connect]))
            workers = sorted({*at_work, *(members[connect][0] or ())})
            questions[connect] = WorkersWithPlugin(connect, tuple(workers), PLUGIN_CLASS)
    answers = yield questions.values()

    def workers_of(connect: str) -> PluginWorkers:
        declared = topology.connects[connect].model.workers.count
        answer = answers.get(questions[connect]) if connect in questions else statuses.get(Statuses(connect))
        if isinstance(answer, PluginOnWorkers):
            return PluginWorkers(connect, answer, declared, "", *members[connect])
        unread = answer.one_line if isinstance(answer, Mm2mgrError) else ""
        return PluginWorkers(connect, PluginOnWorkers((), 0), declared, unread)

    by_connect = {connect: workers_of(connect) for connect in connects}
    return [(change.full_name, remark) for change in writes for remark in by_connect[change.connect].remarks(change)]
