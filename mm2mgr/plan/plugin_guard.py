"""Holds back the Connect plugin's class until each worker has it. Pure.

A worker without the class fails what it is given and only the stock class heals that, and REST lists no workers: an
idle one is in no status. So all that are known are asked: those of the URLs, of statuses, and of the workers' group,
where their Kafka cluster tells it. All of the group must answer, and as many as are declared; one of both must be known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, VERSION, is_plugin_class
from mm2mgr.comparison.differences import Named
from mm2mgr.connect.types import PluginsOfWorkers
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.each_worker import EachWorker, ask_each_worker
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
    """What is known of the workers of a Connect cluster: their answers, or why none was asked for (`unread`), and how
    many are declared.
    """

    connect: str
    workers: EachWorker
    declared: int | None = None
    unread: str = ""

    def remarks(self, change: Change) -> Iterator[Remark]:
        """Yield what is said of a write of the plugin's class; one that runs already is told, not stopped, where
        workers do not answer.
        """
        live, needed = change.before or {}, _text_version(change.config or {})
        answers, members, answered = self.workers.answers.workers, self.workers.members, self.workers.answered_members
        lacking = [answer.worker for answer in answers if answer.lacks(PLUGIN_CLASS)]
        if lacking:
            text = f"{few(lacking)} of '{self.connect}' {_has(lacking)} no {PLUGIN_CLASS}, and would fail its tasks"
            yield Remark(text, "blocks", f"{_INSTALL}, {_OR_STOCK}", PLUGIN_MISSING)
        versions = {
            answer.worker: version for answer in answers if (version := answer.version_of(PLUGIN_CLASS)) is not None
        }
        older = [worker for worker, version in versions.items() if _major(version) < needed]
        if older:
            text = (
                f"{few([f'{worker} (version {versions[worker]})' for worker in older])} of '{self.connect}'"
                f" {_has(older)} a plugin too old for this assignment, which needs version {needed}"
            )
            yield Remark(text, "blocks", f"{_INSTALL}, {_OR_STOCK}", RULE)
        runs = is_plugin_class(live.get("connector.class", ""))
        effect: Effect = "warns" if runs else "blocks"
        if self.unread:
            text = f"which workers '{self.connect}' has could not be read ({self.unread})"
            yield Remark(text, effect, "plan again when they answer", RULE)
        elif self.declared is None and members is None:
            text = (
                f"how many workers '{self.connect}' has is not declared, and Connect lists no idle ones: one without"
                f" the plugin would fail its tasks ({self.workers.no_group})"
            )
            yield Remark(text, effect, f"write workers: {{count: …}} under connect: {self.connect}", RULE)
        elif answered < self.expected:
            silent = [f"{answer.worker}: {answer.failure}" for answer in answers if answer.failure]
            reasons = f" ({few(silent)})" if silent else ""
            text = (
                f"{answered} of the {number_of(self.expected, 'worker')} of '{self.connect}' answered whether they"
                f" have the plugin{reasons}"
            )
            is_group = self.declared is None or len(members or ()) >= self.declared
            count = "" if is_group else ", or correct workers: {count: …}"
            remedy = (
                f"write the address of each worker under url: of '{self.connect}', start those that are down{count};"
                " then plan again"
            )
            yield Remark(text, effect, remedy, RULE)

    @property
    def expected(self) -> int:
        """How many workers there are: those of the group, and no fewer than are declared."""
        return max(self.declared or 0, len(self.workers.members or ()))


def _has(workers: list[str]) -> str:
    return "has" if len(workers) == 1 else "have"


def _text_version(config: Mapping[str, str]) -> int:
    """Return the version of the plugin that an assignment needs, also of one that nobody here can read."""
    head = re.match(r"\s*version=([0-9]{1,9})(;|$)", config.get(ASSIGNMENT_KEY, ""))
    return int(head[1]) if head else VERSION


def _major(version: str) -> int:
    return whole_number(version.partition(".")[0], 10) or 0


def ask_plugin_workers(draft: Draft) -> Steps[list[tuple[Named, Remark]]]:
    """Return what is said of writes of the plugin's class; nothing is asked where there is none."""
    writes = [
        change
        for change in draft.writes
        if change.keys and change.action in WRITES and is_plugin_class((change.config or {}).get("connector.class", ""))
    ]
    topology = draft.declared.topology
    connects = [topology.connects[name] for name in sorted({change.connect for change in writes})]
    answers = yield from ask_each_worker(connects)

    def workers_of(connect: ConnectCluster) -> PluginWorkers:
        answer, declared = answers[connect.name], connect.model.workers.count
        if isinstance(answer, Mm2mgrError):
            return PluginWorkers(connect.name, EachWorker(PluginsOfWorkers((), 0)), declared, answer.one_line)
        return PluginWorkers(connect.name, answer, declared)

    by_connect = {connect.name: workers_of(connect) for connect in connects}
    return [(change.full_name, remark) for change in writes for remark in by_connect[change.connect].remarks(change)]
