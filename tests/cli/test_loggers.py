"""`loggers` on two fake workers of one Connect cluster: what is shown, set, told as it was before, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from mm2mgr.apply.history import Recorder
from mm2mgr.plan.history import HistoryEntry
from tests.fake_connect import FakeConnect, serving
from tests.plan.site import FLOWS, Site

from .command import Command

MIRROR = "org.apache.kafka.connect.mirror"
ORDERS = "mm2.a.east.source.orders"


@pytest.fixture
def second(site: Site, mm2mgr: Command) -> Iterator[tuple[FakeConnect, str]]:
    """A second worker of `east`, known by its id alone."""
    site.declare(FLOWS)
    mm2mgr("apply", "--yes", "--wait", "0")
    other = FakeConnect(cluster_id=site.east.cluster_id)
    with serving(other) as url:
        own, worker = (address.removeprefix("http://") for address in (site.urls["east"], url))
        site.east.worker_ids = {None: own, 0: worker}
        site.forget()
        yield other, worker


def test_levels_are_shown_with_workers_that_differ(
    site: Site, second: tuple[FakeConnect, str], mm2mgr: Command
) -> None:
    other, worker = second
    other.loggers[f"{MIRROR}.MirrorSourceTask"] = "INFO"
    said = mm2mgr("loggers", "east")
    assert [line.split() for line in said.lines[:2]] == [["root", "INFO"], ["org.reflections", "ERROR"]]
    assert "differs" not in said.out, "a logger that only one of them has made says nothing"
    other.loggers[MIRROR] = "DEBUG"
    differing = mm2mgr("loggers", "east").out
    assert f"! {MIRROR}" in differing
    assert f"INFO on {site.urls['east']}, DEBUG on {worker}" in differing
    levels = {each["worker"]: each["levels"] for each in mm2mgr("loggers", "east", "-o", "json").json["workers"]}
    assert levels[worker][MIRROR] == "DEBUG"
    assert not site.east.writes + other.writes


def test_a_level_is_set_on_all_workers_and_back(site: Site, second: tuple[FakeConnect, str], mm2mgr: Command) -> None:
    other, worker = second
    other.loggers |= {MIRROR: "WARN", f"{MIRROR}.Scheduler": "OFF", f"{MIRROR}.MirrorSourceTask": "ERROR"}
    said = mm2mgr("loggers", "east", "--set", f"{MIRROR}=debug")
    assert f"~ {site.urls['east']}: {MIRROR} INFO -> DEBUG" in said.lines
    assert f"~ {worker}: {MIRROR} WARN -> DEBUG" in said.lines
    assert [fake.loggers[MIRROR] for fake in (site.east, other)] == ["DEBUG", "DEBUG"]
    assert {request.path for request in site.east.writes + other.writes} == {f"/admin/loggers/{MIRROR}"}
    back = [line.split()[1:] for line in said.lines if line.strip().startswith("mm2mgr loggers")]
    assert len(back) == 2, "the two had other levels"
    for arguments in back:
        mm2mgr(*arguments)
    assert (site.east.loggers[MIRROR], other.loggers[MIRROR]) == ("INFO", "WARN")
    assert other.loggers[f"{MIRROR}.MirrorSourceTask"] == "ERROR"


def test_levels_that_were_set_are_in_the_history(
    site: Site, second: tuple[FakeConnect, str], mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, worker = second
    recorded: list[HistoryEntry] = []
    monkeypatch.setattr(Recorder, "put", lambda _, entry: recorded.append(entry))
    mm2mgr("loggers", "east")
    assert not recorded, "reading changes nothing"
    mm2mgr("loggers", "east", "--set", f"{MIRROR}=DEBUG", "--reason", "ticket 12")
    begun, done = recorded
    assert (begun.id, begun.outcome, done.outcome, done.reason) == (done.id, "begun", "done", "ticket 12")
    assert (done.command, done.connect, done.connector) == ("loggers", "east", "loggers")
    first, last = sorted(done.keys, key=lambda key: worker in str(key["key"]))
    assert (first["key"], first["before"], first["after"]) == (f"{MIRROR} on {site.urls['east']}", "INFO", "DEBUG")
    assert last["key"] == f"{MIRROR} on {worker}"
    other.cluster_id = "of-others"
    mm2mgr("loggers", "east", "--set", "root=DEBUG", code=1)
    assert recorded[-1].outcome == "failed"
    assert "it is no worker of this Connect cluster" in str(recorded[-1].error)
    assert [key["key"] for key in recorded[-1].keys] == [f"root on {site.urls['east']}"]


def test_a_worker_that_is_named_is_set_alone(site: Site, second: tuple[FakeConnect, str], mm2mgr: Command) -> None:
    other, worker = second
    mm2mgr("loggers", "east", "--set", "root=TRACE", "--worker", f"http://{worker}")
    assert (site.east.loggers["root"], other.loggers["root"]) == ("INFO", "TRACE")
    back = mm2mgr("loggers", "east", "--set", "root=DEBUG", "--worker", worker).lines[-1].strip()
    assert back.startswith(f"mm2mgr loggers east --worker {worker} --set root=TRACE"), "not the others, too"
    said = mm2mgr("loggers", "east", "--worker", "nowhere:1", code=1)
    assert "has no worker nowhere:1" in said.err
    assert worker in said.err


def test_what_cannot_be_set_is_told(site: Site, second: tuple[FakeConnect, str], mm2mgr: Command) -> None:
    other, worker = second
    assert "levels: OFF, FATAL" in mm2mgr("loggers", "east", "--set", "root=LOUD", code=1).err
    assert "is not NAME=LEVEL" in mm2mgr("loggers", "east", "--set", "root", code=64).err
    assert "no Connect cluster is called 'eats'" in mm2mgr("loggers", "eats", code=1).err
    other.cluster_id = "of-others"
    refused = mm2mgr("loggers", "east", "--set", "root=DEBUG", code=1)
    assert f"! {worker}: it is no worker of this Connect cluster" in refused.out
    assert not other.writes
    site.east.has_admin = False
    assert "admin.listeners of the worker switches it off or moves it" in mm2mgr("loggers", "east", code=1).out


def test_a_worker_that_does_not_answer_is_named_and_the_other_is_set(site: Site, mm2mgr: Command) -> None:
    site.declare(FLOWS)
    mm2mgr("apply", "--yes", "--wait", "0")
    site.east.worker_ids = {None: site.urls["east"].removeprefix("http://"), 0: "127.0.0.1:1"}
    said = mm2mgr("loggers", "east", "--set", "root=DEBUG", code=1)
    assert "! 127.0.0.1:1: " in said.out
    assert site.east.loggers["root"] == "DEBUG"


def test_a_worker_is_named_by_its_url_or_its_address(site: Site, mm2mgr: Command) -> None:
    site.declare(FLOWS)
    url = site.urls["east"]
    for name in (url, f"{url}/", url.removeprefix("http://"), url.upper()):
        assert mm2mgr("loggers", "east", "--worker", name).lines[0].split() == ["root", "INFO"], name
    assert "has no worker 127.0.0.1:9" in mm2mgr("loggers", "east", "--worker", "127.0.0.1:9", code=1).err


@pytest.mark.parametrize("name", ["org.größe/x", "org x", "a\\b", "a%2Fb", "a;b", "a?b", "a\tb", "a\x1bb"])
def test_what_is_no_name_of_a_logger_is_not_sent(site: Site, mm2mgr: Command, name: str) -> None:
    site.declare(FLOWS)
    said = mm2mgr("loggers", "east", "--set", f"{name}=DEBUG", code=1)
    assert "no name of a logger" in said.err
    assert "\x1b" not in said.err
    assert not site.east.requests


def test_a_logger_that_is_set_twice_or_that_nobody_uses_is_told(site: Site, mm2mgr: Command) -> None:
    site.declare(FLOWS)
    site.east.loggers |= {f"{MIRROR}.MirrorSourceTask": "INFO"}
    twice = mm2mgr("loggers", "east", "--set", f"{MIRROR}=DEBUG", "--set", f"{MIRROR}=INFO", code=64)
    assert f"{MIRROR} is set twice" in twice.err
    assert not site.east.writes
    said = mm2mgr("loggers", "east", "--set", "org.apache.kafka.connect.miror=DEBUG")
    assert "no class of these workers has logged under org.apache.kafka.connect.miror so far; did you mean" in said.out
    assert MIRROR in said.out
    assert "has logged" not in mm2mgr("loggers", "east", "--set", f"{MIRROR}=DEBUG").out
    assert "hint: did you mean west, east?" in mm2mgr("loggers", "eest", code=1).err


def test_an_interrupt_says_how_to_set_back_what_may_be_set(
    site: Site, second: tuple[FakeConnect, str], mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_short(*_: object) -> None:
        raise KeyboardInterrupt

    second[0].loggers[MIRROR] = "WARN"
    monkeypatch.setattr(import_module("mm2mgr.operations.loggers"), "set_levels", cut_short)
    said = mm2mgr("loggers", "east", "--set", f"{MIRROR}=DEBUG", code=130)
    assert "interrupted: levels may be set on some workers" in said.err
    assert f"mm2mgr loggers east --worker {second[1]} --set {MIRROR}=WARN" in said.err.splitlines()
