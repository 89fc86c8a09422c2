"""mm2mgr is killed at each of its requests while it brings a flow to the plugin, back, or writes another assignment.

The connector always has one whole config and runs, and the next run ends what was begun, without a second restart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, digest, read_text
from mm2mgr.connect.wire import ConnectHttp
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.worker_groups import WorkerGroup
from mm2mgr.live import questions

from .command import Command
from .test_rebalance import NAME, SKEWED, STOCK, Site, site_of

pytestmark = pytest.mark.usefixtures("impatient")


class Killed(BaseException):
    """kill -9: not even what stands in `finally` reaches a worker any more."""


@dataclass
class Line:
    """All requests go over it; after `left` more of them the process is dead, `answers_late` once that one has arrived."""

    left: int = 10**6
    answers_late: bool = False

    def cut(self, send: Callable[..., Any]) -> Callable[..., Any]:
        async def handle(*request: Any) -> Any:
            self.left -= 1
            if self.left < 0 and not (self.left == -1 and self.answers_late):
                raise Killed
            answer = await send(*request)
            if self.left < 0:
                raise Killed
            return answer

        return handle


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    line = Line()
    monkeypatch.setattr(ConnectHttp, "send", line.cut(ConnectHttp.send))
    return line


def no_groups(_: object) -> tuple[WorkerGroup, ...]:
    raise KafkaError("no broker answered")


@pytest.fixture
def site(mm2mgr: Command, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(questions, "read_worker_groups", no_groups)
    with site_of(mm2mgr, mock_cluster) as site:
        site.measure(SKEWED)
        tree = mm2mgr.tree / "x.yaml"
        tree.write_text(
            tree.read_text().replace("history: false", "history: false, workers: {count: 1}"), encoding="utf-8"
        )
        yield site


def declare(site: Site, balance: str) -> None:
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("tasks: {max: 4}", f"tasks: {{max: 4}}, balance: {balance}"))


STEPS = [
    pytest.param(step, late, id=f"{step}, {'after' if late else 'before'}", marks=marks)
    for step in ("to the plugin", "back to stock", "another assignment")
    for late in (False, True)
    for marks in ((() if (step, late) == ("to the plugin", True) else pytest.mark.matrix),)
]


@pytest.mark.parametrize(("step", "answers_late"), STEPS)
def test_killed_at_each_request(site: Site, line: Line, step: str, *, answers_late: bool) -> None:
    if step != "to the plugin":
        site.use_plugin()
    declare(site, "stock" if step == "back to stock" else "plugin")
    command = ("rebalance", "--store", "store") if step == "another assignment" else ("apply",)
    if step == "another assignment":
        command = (*command, "--apply")
    begin, before = copy.deepcopy(site.fake.connectors), dict(site.config)
    finals, written = set[str](), set[bool]()
    for requests in range(1000):
        site.fake.connectors = copy.deepcopy(begin)
        writes = len(site.fake.writes)
        line.left, line.answers_late = requests, answers_late
        try:
            site.mm2mgr(*command, "--yes", code=0)
            is_over = True
        except* Killed:
            is_over = False
        line.left = 10**6
        status, there = site.fake.status(NAME), dict(site.config)
        assert {part["state"] for part in (status["connector"], *status["tasks"])} == {"RUNNING"}
        assert len(status["tasks"]) == 4
        written.add(there != before)
        if not is_over:
            site.mm2mgr(*command, "--yes", code=0)
        assert site.config != before
        assert there in (before, site.config), "half a config"
        assert len(site.fake.writes) == writes + 1, "one write, and one restart of the tasks"
        finals.add(ends_as(site, step))
        if is_over:
            break
    else:
        pytest.fail("it never came to its end")
    assert len(finals) == 1
    assert written == {False, True}
    assert requests > 3


def ends_as(site: Site, step: str) -> str:
    """Return the config's class and assignment, by which the tasks run."""
    config, tasks = site.config, site.fake._tasks(NAME)
    digests = {task["config"].get("mm2mgr.assignment.digest") for task in tasks}
    if step == "another assignment":
        assert read_text(config[ASSIGNMENT_KEY])
        assert digests == {digest(config[ASSIGNMENT_KEY])}
        return config[ASSIGNMENT_KEY]
    assert ASSIGNMENT_KEY not in config
    assert digests == {None}
    assert config["connector.class"] == (STOCK["connector.class"] if step == "back to stock" else PLUGIN_CLASS)
    return config["connector.class"]
