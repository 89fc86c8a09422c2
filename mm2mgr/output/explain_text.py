"""Explanations as text. In: the `to_dict()` of an explanation or a rule, or the settings of a flow's clients. Out: words on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import say, say_table


def say_explanation(found: Mapping[str, Any]) -> None:
    """Print what a key does, what to write instead, and what Kafka says of it."""
    say(f"{found['key']} (Kafka {found['kafka']}) {found['verdict']}", style="bold")
    for note in found["notes"]:
        say(f"  {note}")
    _say_effects([effect for effect in found["effects"] if effect["client"] != "connector"])
    _say_ways(found["instead"])
    for each in found["definitions"]:
        _say_definition(found["plain"], each)


def _say_effects(effects: Sequence[Mapping[str, Any]]) -> None:
    if not effects:
        return
    say()
    rows = [
        (each["connector"], each["client"], each["note"] or each["when"], ", ".join(each["outranked_by"]))
        for each in effects
    ]
    say_table(["seen on", "by the", "when", "outranked by"], rows)


def _say_ways(ways: Sequence[Mapping[str, Any]]) -> None:
    if not ways:
        return
    say()
    rows = [
        (each["client"], ", ".join(each["connectors"]), each["yaml"] or "(a line in your own template)", each["raw"])
        for each in ways
    ]
    say_table(["for the", "on", "write in YAML", "raw Connect"], rows)
    policies = [f"{each['raw']} needs the workers' override policy {each['policy']}" for each in ways if each["policy"]]
    for policy in dict.fromkeys(policies):
        say(policy)


def _say_definition(plain: str, each: Mapping[str, Any]) -> None:
    say()
    default = "required" if each["required"] else f"default {_shown(each['default'])}"
    valid = f", {each['valid']}" if each["valid"] else ""
    say(f"{plain} of {each['scope']}: {each['type']}{valid}, {default}; {each['lines']}")
    if each["history"]:
        say(f"  default {'; '.join(each['history'])}")
    for other in each["set_instead"]:
        say(f"  {other}")


def _shown(default: str | None) -> str:
    return "none" if default is None else default or "empty"


def say_rule(rule: Mapping[str, Any]) -> None:
    """Print a rule of lint: its severity and story, what it rests on, and the live test that saw its effect."""
    title, _, story = rule["story"].partition("\n")
    say(f"{rule['rule']} ({rule['severity']}): {title}", style="bold")
    if story.strip():
        say()
        for line in story.strip("\n").split("\n"):
            say(line)
    say()
    if rule["source"]:
        say(f"source: {rule['source']}")
    say(f"seen:   {rule['seen']}")


def say_client_settings(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the settings of each client of a flow with who said them."""
    for connector in found:
        say(f"{connector['connector']} on Connect cluster {connector['connect']} (Kafka {connector['kafka']})", "bold")
        for client in connector["clients"]:
            say()
            say(f"{client['client']} ({client['kind']} towards {client['side']})")
            rows = [(f"  {value['key']}", value["value"], value["origin"]) for value in client["values"]]
            say_table(["  key", "value", "origin"], rows)
            if client["below"]:
                own = " and ".join(client["below"])
                say(f"  {own} in the workers' properties outranks what is set by Connect here", style="dim")
        say()
