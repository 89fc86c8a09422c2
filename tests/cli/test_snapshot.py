"""`snapshot`, and commands that answer from its file: the same as from the clusters, which are not asked."""

from __future__ import annotations

import difflib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.cli import main
from mm2mgr.live import read as live_read
from mm2mgr.observe.status import ObserveOptions
from tests.asking import answer_kafka
from tests.hostile.probes import Ground
from tests.reconcile.site import Site

from .command import Command

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("plan",),
    ("plan", "--prune"),
    ("status",),
    ("describe", "orders:a->east"),
    ("lag",),
    ("lag", "--by", "partition"),
    ("who", "orders"),
    ("who", "orders", "--cluster", "east"),
    ("topics", "orders:a->east", "--all"),
    ("drift",),
    ("lint", "--connect", "east", "--no-ask-brokers"),
)
MOVING = {"taken_at", "heartbeat_seconds"}


@pytest.fixture
def ground(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """Return the estate, applied, with one connector changed by hand, one paused and one unknown, and an idle history."""
    made = Ground(site, mm2mgr)
    _, *others = ObserveOptions.__init__.__defaults__ or ()
    monkeypatch.setattr(ObserveOptions.__init__, "__defaults__", (made.read_kafka, *others))
    answer_kafka(monkeypatch, texts=lambda _: dict(made.texts), idle=True)
    made.settle()
    east = site.east.connectors
    east["mm2.a.east.source.orders"].config["sync.topic.acls.enabled"] = "true"
    east["mm2.a.east.source.logs"].state = "PAUSED"
    site.east.add("theirs", {**east["mm2.a.east.source.orders"].config, "mm2mgr.owner": "others", "name": "theirs"})
    del site.west.connectors["mm2.a.west.checkpoint"]
    return made


def forget_looks(mm2mgr: Command) -> None:
    shutil.rmtree(mm2mgr.folder.parent / "state", ignore_errors=True)


def still(value: Any) -> Any:
    """Return a JSON value without what moves with the clock."""
    if isinstance(value, dict):
        return {key: still(part) for key, part in value.items() if key not in MOVING}
    return [still(part) for part in value] if isinstance(value, list) else value


def run(mm2mgr: Command, arguments: Sequence[str | Path]) -> tuple[int, Any]:
    forget_looks(mm2mgr)
    mm2mgr.monkeypatch.setattr(sys, "argv", ["mm2mgr", *map(str, arguments), "-o", "json"])
    mm2mgr.capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = mm2mgr.capsys.readouterr()
    assert out.startswith(("{", "[")), f"{arguments}: {err}"
    return int(ended.value.code or 0), still(json.loads(out))


def differences(one: tuple[int, Any], other: tuple[int, Any]) -> list[str]:
    texts = (json.dumps(ended, indent=1).splitlines() for ended in (one, other))
    return list(difflib.unified_diff(*texts, lineterm="", n=1))


def test_commands_answer_from_a_snapshot_as_from_the_clusters(
    ground: Ground, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mm2mgr.folder.parent / "night.json"
    forget_looks(mm2mgr)
    taken = mm2mgr("snapshot", "--out", file, "-o", "json").json
    assert taken["failed"] == {}
    live = {command: run(mm2mgr, command) for command in COMMANDS}

    def asked(*_: object) -> None:
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr(live_read, "ask_kafka", asked)
    monkeypatch.setattr(live_read, "ConnectClient", asked)
    for fake in ground.site.fakes.values():
        fake.requests.clear()
    before = mm2mgr.files()
    for command in COMMANDS:
        assert differences(live[command], run(mm2mgr, (*command, "--snapshot", file))) == [], command
    assert [request for fake in ground.site.fakes.values() for request in fake.requests] == []
    assert mm2mgr.files() == before
    actions = {change["action"] for part in live["plan",][1]["clusters"] for change in part["changes"]}
    assert actions >= {"create", "blocked", "no-op"}
