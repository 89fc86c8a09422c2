"""`--label`: only flows whose clusters have the labels, in every command that has it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from mm2mgr import operations
from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.history import History, HistoryEntry
from tests.plan.site import Site

from .command import Command

LOGS_EAST, LOGS_WEST, ORDERS = "logs:a->east", "logs:a->west", "orders:a->east"
ALL = {LOGS_EAST, LOGS_WEST, ORDERS}
COMMANDS = ("status", "lag", "history", "plan", "apply --yes", "pause")


@pytest.fixture
def labelled(site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The site, all applied, with labels on its clusters."""
    tree = next(mm2mgr.tree.glob("*.yaml"))
    text = tree.read_text()
    for alias, labels in (
        ("a", "tier: local, dc: home"),
        ("east", "dc: east, tier: hub"),
        ("west", "dc: west, tier: hub"),
    ):
        text = text.replace(f"cluster_id: {alias}", f"cluster_id: {alias}, labels: {{{labels}}}")
    tree.write_text(text)
    mm2mgr("apply", "--yes", "--wait", "0")

    def refuse(_kafka: Kafka, access: KafkaAccess, *_: object) -> None:
        raise KafkaError(f"{access.alias}: no broker answered")

    monkeypatch.setattr(Kafka, "__init__", refuse)
    return site


def flows_of(document: Any) -> set[str]:
    """Return the flows that a document of `-o json` is about."""
    if "flows" in document:
        return {flow["flow"] for flow in document["flows"]}
    changes = [change for cluster in document["clusters"] for change in cluster["changes"]]
    return {flow for change in changes if change["type"] == "source" for flow in change["flows"]}


@pytest.mark.parametrize(
    ("labels", "meant"),
    [
        (("dc=west",), {LOGS_WEST}),
        (("dc=east",), {LOGS_EAST, ORDERS}),
        (("tier=hub",), ALL),
        (("tier=local", "dc=west"), {LOGS_WEST}),
        (("dc=home", "dc=east"), {LOGS_EAST, ORDERS}),
    ],
)
def test_only_flows_of_the_labels_are_shown(
    labelled: Site, mm2mgr: Command, labels: tuple[str, ...], meant: set[str]
) -> None:
    chosen = [word for label in labels for word in ("--label", label)]
    for command in ("status", "lag"):
        assert flows_of(mm2mgr(command, *chosen, "-o", "json", code=1).json) == meant
        text = mm2mgr(command, *chosen, code=1).out
        assert {flow for flow in ALL if flow in text} == meant
    assert flows_of(mm2mgr("plan", *chosen, "-o", "json").json) == meant


def test_labels_come_beside_names(labelled: Site, mm2mgr: Command) -> None:
    for command, code in (("status", 1), ("lag", 1), ("plan", 0)):
        said = mm2mgr(command, ORDERS, "--label", "dc=west", "-o", "json", code=code)
        assert flows_of(said.json) == {ORDERS, LOGS_WEST}, command


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        ("dc=wset", "did you mean dc=west?"),
        ("dc=moon", "did you mean dc=east or dc=home or dc=west?"),
        ("teir=hub", "did you mean tier=hub?"),
        ("größe=*", "labels here: dc=east, dc=home, dc=west, tier=hub, tier=local"),
        ("dc=", "did you mean dc=east or dc=home or dc=west?"),
    ],
)
def test_a_label_that_no_flow_has_names_the_nearest(labelled: Site, mm2mgr: Command, label: str, hint: str) -> None:
    labelled.forget()
    for command in COMMANDS:
        said = mm2mgr(*command.split(), "--label", label, code=1)
        assert said.err.splitlines()[-2:] == [f"error: no flow has clusters with the labels {label}", f"hint: {hint}"]
        assert said.out == ""
    assert not labelled.east.requests, "nothing is asked"


def test_labels_that_no_flow_has_together_are_named_together(labelled: Site, mm2mgr: Command) -> None:
    said = mm2mgr("status", "--label", "dc=east", "--label", "dc=west", code=1)
    assert "no flow has clusters with the labels dc=east, dc=west" in said.err
    assert "hint: labels here: dc=east, dc=home, dc=west, tier=hub, tier=local" in said.err


@pytest.mark.parametrize("command", ["status", "lag"])
def test_each_look_is_about_the_flows_of_the_labels(
    labelled: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    looks: list[set[str]] = []

    def take(output: str, look: Any, *_: object, watching: bool) -> None:
        assert (output, watching) == ("json", True)
        looks.append(flows_of(operations.to_json(look)))
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("mm2mgr.output.status_text.say_look", take)
    mm2mgr(command, "--label", "dc=west", "--watch", "5", "-o", "json", code=1)
    assert looks == [{LOGS_WEST}] * 3


def test_the_history_of_labels_is_that_of_their_flows(
    labelled: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(number: int, flow: str) -> HistoryEntry:
        when = f"2026-11-20T10:0{number}:00+00:00"
        return HistoryEntry(
            f"{number}", when, "ann", "", "apply", "team", "east", "c", (flow,), "update", outcome="done"
        )

    entries = tuple(entry(number, flow) for number, flow in enumerate((ORDERS, LOGS_WEST, LOGS_EAST, LOGS_WEST)))

    def read(*_: object) -> Steps[History]:
        yield []
        return History(entries)

    monkeypatch.setattr(import_module("mm2mgr.operations.history"), "read_history", read)
    shown = mm2mgr("history", "--label", "dc=west", "-o", "json").json["entries"]
    assert [entry["flows"] for entry in shown] == [[LOGS_WEST]] * 2
    both = mm2mgr("history", ORDERS, "--label", "dc=west", "-o", "json").json["entries"]
    assert {flow for entry in both for flow in entry["flows"]} == {ORDERS, LOGS_WEST}
