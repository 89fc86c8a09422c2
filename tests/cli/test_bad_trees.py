"""Mistakes in the YAML: each is named with file, line, column and what to write, on stderr, before anything is done."""

from __future__ import annotations

import re

import click
import pytest

from mm2mgr.cli import _COMMANDS_ELSEWHERE, _ELSEWHERE, cli
from tests.plan.site import Site
from tests.spec.trees import BASE, FLOW, write

from .command import Command

# What is written beside (or instead of) a good tree, and what must be said about it.
MISTAKES = {
    "misspelt key": (
        {"x": BASE + FLOW + "    task: {max: 3}\n"},
        r"clusters/x.yaml:12:5: unknown key 'task'; did you mean 'tasks'\?\n$",
    ),
    "wrong type": (
        {"x": BASE + FLOW + "    tasks: {max: many}\n"},
        r"clusters/x.yaml:12:13: 'flows.f.tasks.max' should be 'auto' or a whole number from 1, not 'many'",
    ),
    "unknown alias": (
        {"x": BASE + FLOW.replace("[a]", "[aa]")},
        "clusters/x.yaml:9:15: unknown cluster alias 'aa'; did you mean 'a'",
    ),
    "alias in two files": (
        {"x": BASE + FLOW, "y": "clusters:\n  a: {bootstrap_servers: [other:9092]}\n"},
        r"clusters/y.yaml:2:3: 'clusters.a' is already declared at clusters/x.yaml:3:3",
    ),
    "a flow to itself": (
        {"x": BASE + FLOW.replace("[a]", "[a, b]")},
        "clusters/x.yaml:9:5: flow 'f' would mirror 'b' to itself; remove 'b' from .* or add 'b->b' to except:",
    ),
    "no YAML": (
        {"x": BASE + FLOW + "    topics: {include: [t}\n"},
        r"clusters/x.yaml:12:\d+: ",
    ),
    "nothing at all": ({"x": "# empty\n"}, "clusters: no YAML file with content"),
}
COMMANDS = {
    "render": "render",
    "plan": "plan --out plan.json --detailed-exitcode",
    "apply": "apply --yes",
    "status": "status",
    "describe": "describe f",
    "sample": "sample --duration 0s",
    "size": "size",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_where_it_stands(mm2mgr: Command, mistake: str) -> None:
    files, wanted = MISTAKES[mistake]
    write(mm2mgr.tree, **files)
    before = mm2mgr.files()
    said = mm2mgr("plan", "--out", "plan.json", "--detailed-exitcode", code=1)
    assert said.out == ""
    assert re.match(f"error: (?:{wanted})", said.err), said.err
    assert mm2mgr.files() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_bad_tree_before_it_does_anything(site: Site, mm2mgr: Command, command: str) -> None:
    tree = (mm2mgr.tree / "x.yaml").read_text()
    write(mm2mgr.tree, x=tree.replace("topics:", "topcis:"))
    before = mm2mgr.files()
    said = mm2mgr(*COMMANDS[command].split(), code=1)
    assert said.out == ""
    assert "unknown key 'topcis'; did you mean 'topics'?" in said.err
    assert mm2mgr.files() == before
    assert site.east.requests == site.west.requests == []


def test_all_mistakes_are_told_at_once(mm2mgr: Command) -> None:
    write(mm2mgr.tree, x=BASE + FLOW.replace("targets", "tragets"), y="flowz: {}\n")
    said = mm2mgr("plan", code=1)
    assert "clusters/x.yaml:10:5: unknown key 'tragets'" in said.err
    assert "clusters/y.yaml:1:1: unknown key 'flowz'; did you mean 'flows'?" in said.err


def test_a_tree_that_is_not_there_says_how_to_get_one(mm2mgr: Command) -> None:
    said = mm2mgr("plan", code=1)
    assert said.err.splitlines() == [
        "error: clusters: no such file or folder",
        "hint: name the tree with --clusters, or run mm2mgr init",
    ]


@pytest.mark.parametrize(
    "arguments", ["plan order", "apply --yes --flow order", "status order", "describe order", "size order"]
)
def test_a_flow_that_is_not_declared_is_answered_with_those_that_are(
    site: Site, mm2mgr: Command, arguments: str
) -> None:
    said = mm2mgr(*arguments.split(), code=1)
    assert said.out == ""
    assert "error: no flow 'order'\nhint: did you mean orders, " in said.err
    assert site.east.requests == []


def test_what_other_tools_call_it_leads_to_commands_and_options_that_exist() -> None:
    context = click.Context(cli)
    assert not {*_COMMANDS_ELSEWHERE} & {*cli.list_commands(context)}
    told = [*_COMMANDS_ELSEWHERE.values(), *(words for several in _ELSEWHERE.values() for _, words in several)]
    for command, option in [
        found for words in set(told) for found in re.findall(r"mm2mgr ([a-z]+)(?: (--[a-z]+))?", words)
    ]:
        known = cli.get_command(context, command)
        assert known, command
        assert not option or option in {
            name for parameter in [*known.params, *cli.params] for name in parameter.opts
        }, option


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("plna", "No such command 'plna'"),
        ("plan --ful", "No such option"),
        ("status --json", "Error: No such option --json; write -o json\n"),
        ("lag --format json", "Error: No such option --format; write -o json\n"),
        ("rules --grafana", "Error: No such option --grafana; write --dashboard\n"),
        ("offsets reset x --dry-run", "No such option --dry-run; it shows what it would write, and asks\n"),
        ("plan --mirror-again", "Error: --mirror-again is gone; write --allow mirror-again\n"),
        ("status --ack all", "Error: --ack is gone; write mm2mgr losses --ack ID\n"),
        ("destroy", "No such command destroy; take it out of the tree, then mm2mgr plan --prune and apply --prune\n"),
        ("get connectors", "No such command get; write mm2mgr status\n"),
        ("offsets get", "No such command get"),
        ("apply --auto-approve", "No such option --auto-approve; write --yes\n"),
        ("apply --dry-run", "No such option --dry-run; mm2mgr plan shows what it would do\n"),
        ("plan --refresh-only", "No such option --refresh-only; write mm2mgr drift\n"),
        ("plan -o yaml", "'yaml' is not one of 'text', 'json', 'markdown'"),
        ("sample --interval soon", "'soon' should be a duration such as 5 (seconds), 80ms, 30s, 10min or 2h"),
        ("history --since 14:00", "80ms, 30s, 10min or 2h, or a date or time such as 2026-11-20T14:00Z"),
        ("throughput --top -1", "-1 should be at least 0"),
    ],
)
def test_wrong_usage_is_exit_code_64(mm2mgr: Command, arguments: str, wanted: str) -> None:
    said = mm2mgr(*arguments.split(), code=64)
    assert said.out == ""
    of_any_click = said.err.replace("option: ", "option ").replace("'", "")
    assert wanted in said.err or wanted in of_any_click
