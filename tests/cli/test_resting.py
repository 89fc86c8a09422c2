"""What rests, and who resumes it: what a person paused stays until `resume`, what the tree paused goes on with the tree.

The history is in memory here: that it gets to Kafka and back is in `test_history`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from mm2mgr.apply.history import Recorder
from mm2mgr.kafka import lease
from mm2mgr.live.snapshot import Steps
from tests.plan.site import FLOWS, Site

from .command import Command
from .leases import FakeLease

SOURCE = "mm2.a.east.source.orders"
FLOW = "orders:a->east"
VERBS = {"pause": "PAUSED", "stop": "STOPPED", "resume": "RUNNING"}
GOALS = {"running": "RUNNING", "paused": "PAUSED", "stopped": "STOPPED"}


@pytest.fixture
def kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The site, with a history that is written to and read from memory, and the flows applied."""
    texts: dict[str, str] = {}

    class Writer:
        def put(self, key: str, value: str | None) -> None:
            if value is None:
                texts.pop(key, None)
            else:
                texts[key] = value

        def close(self) -> None:
            """Everything is stored already."""

    def read(aliases: Any) -> Steps[Mapping[str, Mapping[str, str] | str]]:
        yield []
        return {alias: dict(texts) for alias in aliases}

    monkeypatch.setattr(Recorder, "_writer", lambda *_: Writer())
    monkeypatch.setattr("mm2mgr.plan.history.read_topics", read)
    monkeypatch.setattr(lease, "Lease", FakeLease)
    monkeypatch.setenv("MM2MGR_WHO", "ann")
    site.brokers |= {"east": "east:9092", "west": "west:9092"}
    site.declare()
    yield site
    FakeLease.forget()


@dataclass
class Estate:
    """The flow `orders` of a site, and by the rule the state that it has and whether a person wants it to rest."""

    site: Site
    mm2mgr: Command
    state: str = "RUNNING"
    is_held: bool = False
    declared: str | None = None

    def declare(self, state: str | None) -> None:
        more = f", state: {state}" if state else ""
        self.site.declare(FLOWS.replace("include: [orders]}", f"include: [orders]}}{more}"))
        self.declared = GOALS[state] if state else None

    def apply(self) -> None:
        self.mm2mgr("apply", "--yes", "--wait", "0")
        if self.declared is None:
            self.state = self.state if self.is_held else "RUNNING"
        else:
            self.state, self.is_held = self.declared, self.is_held and self.declared != "RUNNING"
        self.check()

    def by_hand(self, verb: str) -> None:
        self.mm2mgr(verb, FLOW, "--wait", "0")
        self.state = VERBS[verb]
        self.is_held = verb != "resume"
        self.check()

    def check(self) -> None:
        assert self.site.east.connectors[SOURCE].state == self.state


@pytest.fixture
def estate(kept: Site, mm2mgr: Command) -> Estate:
    estate = Estate(kept, mm2mgr)
    estate.declare(None)
    estate.apply()
    return estate


@pytest.mark.parametrize("declared", GOALS)
@pytest.mark.parametrize("verb", VERBS)
def test_what_a_person_paused_stays_and_what_the_tree_paused_goes_on(estate: Estate, declared: str, verb: str) -> None:
    """In each order of a state in the tree, its removal, an apply of each, and a verb by hand."""
    orders = (
        ("tree", "apply", "hand", "removed", "apply"),
        ("hand", "tree", "apply", "removed", "apply"),
        ("tree", "apply", "removed", "hand", "apply"),
        ("tree", "hand", "apply", "removed", "apply"),
        ("tree", "apply", "removed", "apply", "hand", "apply"),
    )
    for order in orders:
        for step in order:
            match step:
                case "tree":
                    estate.declare(declared)
                case "removed":
                    estate.declare(None)
                case "apply":
                    estate.apply()
                case "hand":
                    estate.by_hand(verb)
        said = estate.mm2mgr("plan")
        assert "0 to create, 0 to update" in said.out
        if estate.is_held:
            wished = VERBS[verb] if estate.state == VERBS[verb] else f"{estate.state}, {VERBS[verb]}"
            assert f"{SOURCE}: {wished} by ann since" in said.out, order
        assert ("it stays so until mm2mgr resume" in said.out) == (estate.state != "RUNNING") == estate.is_held, order
        if estate.state != "RUNNING":
            estate.by_hand("resume")


def test_a_pause_of_what_rests_by_the_tree_is_noted_once(estate: Estate) -> None:
    estate.declare("paused")
    estate.apply()
    estate.declare(None)
    said = estate.mm2mgr("pause", FLOW, "--reason", "upgrade", "-o", "json").json["connectors"]
    assert [(turn["action"], turn["noted"]) for turn in said] == [("none", True)]
    second = estate.mm2mgr("pause", FLOW, "--wait", "0")
    assert second.lines[0] == f"= east/{SOURCE}: already PAUSED"
    noted = [entry for entry in estate.mm2mgr("history", "orders", "-o", "json").json["entries"] if entry["reason"]]
    assert [(entry["command"], entry["state"]) for entry in noted] == [
        ("pause", {"before": "PAUSED", "after": "PAUSED"})
    ]
    estate.mm2mgr("apply", "--yes", "--wait", "0")
    assert estate.site.east.connectors[SOURCE].state == "PAUSED"
    estate.by_hand("resume")
    estate.declare("paused")
    estate.apply()
    said = estate.mm2mgr("pause", FLOW, "--wait", "0")
    assert said.lines[0] == (
        f"= east/{SOURCE}: already PAUSED; noted as PAUSED by hand: it stays so until mm2mgr resume"
    )


@pytest.mark.parametrize("seed", range(2))
def test_in_any_order_the_rule_holds(estate: Estate, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(15):
        match chance.choice(["declare", "apply", "hand"]):
            case "declare":
                estate.declare(chance.choice([None, *GOALS]))
            case "apply":
                estate.apply()
            case "hand":
                estate.by_hand(chance.choice(list(VERBS)))
