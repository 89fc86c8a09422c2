"""plan and apply on two fake Connect clusters: exit codes, reviewed plans, refusals, and what is really requested."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import FakeConnect, serving
from tests.plan.site import FLOWS, ON_EAST, ON_WEST, Site
from tests.spec.trees import write

from .command import Command, finish, start

ALL = len(ON_EAST) + len(ON_WEST)
PASSWORD = "pa55-of-connect"


def test_plan_exit_codes_tell_changes_from_none(site: Site, mm2mgr: Command) -> None:
    assert f"Plan: {ALL} to create, 0 to update" in mm2mgr("plan").out
    mm2mgr("plan", "--detailed-exitcode", code=2)
    assert site.east.writes == site.west.writes == []
    mm2mgr("apply", "--yes")
    assert f"0 to create, 0 to update, 0 to delete, {ALL} unchanged" in mm2mgr("plan", "--detailed-exitcode").out


def test_plan_names_flows_as_apply_does(site: Site, mm2mgr: Command) -> None:
    assert mm2mgr("plan", "--flow", "orders").out == mm2mgr("plan", "orders").out
    both = mm2mgr("plan", "logs:a->west", "--flow", "orders", "-o", "json").json
    named = {flow for part in both["clusters"] for change in part["changes"] for flow in change["flows"]}
    assert {"logs:a->west", "orders:a->east"} <= named


SHOW = ("plan", "--show", "plan.json")


def made_lines(file: str = "plan.json") -> str:
    """Return a pattern of what `plan --show` says of a plan file itself."""
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return (
        rf"Saved: \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ, by sam\nOf: owner team, tree clusters, .*\nFile: sha256 {digest}\n"
    )


@pytest.mark.parametrize(
    "words",
    [(), ("--full",), ("--explain",), ("orders",), ("--label", "dc=west"), ("--prune", "--max-changes", "1")],
    ids=" ".join,
)
def test_a_saved_plan_is_shown_as_it_was_without_asking_anybody(
    site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MM2MGR_WHO", "sam")
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("cluster_id: west", "cluster_id: west, labels: {dc: west}"))
    code = 1 if "--max-changes" in words else 0
    shown = [word for word in words if word in {"--full", "--explain"}]
    text = mm2mgr("plan", *words, "--out", "plan.json", code=code).out
    page, values = (mm2mgr("plan", *words, "-o", form, code=code).out for form in ("markdown", "json"))
    before = sum(len(fake.requests) for fake in site.fakes.values())
    mm2mgr.tree.rename("elsewhere")
    again = mm2mgr(*SHOW, *shown)
    assert again.err == ""
    assert again.out.startswith(text)
    assert re.fullmatch(made_lines(), again.out.removeprefix(text))
    assert mm2mgr(*SHOW, "-o", "markdown").out.startswith(f"{page}\n- Saved: ")
    document = mm2mgr(*SHOW, "-o", "json").json
    assert (document.pop("saved")["who"], document) == ("sam", json.loads(values))
    assert sum(len(fake.requests) for fake in site.fakes.values()) == before, "no cluster is asked"


def test_what_apply_compares_is_what_is_shown(site: Site, mm2mgr: Command) -> None:
    """Whatever somebody wrote into the file beside it: there is no other text in it."""
    site.converge()
    site.forget()
    site.declare(FLOWS.replace("[orders]}", "[orders]}, tasks: {max: 3}"))
    mm2mgr("plan", "--out", "plan.json")
    file = Path("plan.json")
    assert "~ tasks.max: 1 -> 3" in mm2mgr(*SHOW).out
    text = file.read_text()
    file.write_text(text.replace('"after": "3"', '"after": "\\u001b[2J2"'))
    shown = mm2mgr(*SHOW).out
    assert "~ tasks.max: 1 -> \\x1b[2J2" in shown
    assert "\x1b" not in shown
    assert "other keys would change than reviewed" in mm2mgr("apply", "plan.json", code=1).err
    file.write_text(text.replace("orders (3 tasks)", "orders (2 tasks)"))
    assert "orders (2 tasks)" in mm2mgr(*SHOW).out
    assert "the tree has other flows than reviewed" in mm2mgr("apply", "plan.json", code=1).err
    assert site.east.writes == []


@pytest.mark.parametrize(
    "more",
    [("orders",), ("--prune",), ("--detailed-exitcode",), ("--out", "x"), ("--label", "a=b")],
)
def test_a_saved_plan_is_shown_as_it_is(mm2mgr: Command, more: tuple[str, ...]) -> None:
    assert "--show prints a saved plan as it is" in mm2mgr(*SHOW, *more, code=64).err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "plan.json: no such file"),
        (b"", "not a plan file: Expecting value"),
        (b'{"mm2mgr-plan": 1, "made": {"when": ', "not a plan file: Expecting value: line 1"),
        (b"{}", "not a plan file of mm2mgr"),
        (b"[1]", "not a plan file of mm2mgr"),
        (b'{"format_version": "1.2", "resource_changes": []}', "not a plan file of mm2mgr"),
        (b'{"mm2mgr-plan": true}', "not a plan file of mm2mgr"),
        (b'{"mm2mgr-plan": 2}', "a plan file of format 2, and this mm2mgr reads format 1"),
        (b'{"mm2mgr-plan": 1}', "this plan file is damaged: made: it is missing"),
        (b'{"mm2mgr-plan": 1, "mm2mgr-plan": 1}', "not a plan file: mm2mgr-plan: it is there twice"),
        ('{"mm2mgr-plan": 1}'.encode("utf-16"), "not a plan file: byte 1 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_saved_plan_is_one_error(mm2mgr: Command, content: bytes | None, problem: str) -> None:
    if content is not None:
        Path("plan.json").write_bytes(content)
    for words in (SHOW, (*SHOW, "-o", "json"), (*SHOW, "-o", "markdown"), ("apply", "plan.json")):
        said = mm2mgr(*words, code=1)
        error, hint = said.err.splitlines()
        assert error.startswith("error: plan.json: ")
        assert problem in error
        assert hint.startswith("hint: ")
        assert "mm2mgr plan --out FILE" in hint
        assert "Traceback" not in said.out


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"unowned": 0', '"unowned": "0"', "plan.clusters[0].unowned: a whole number expected"),
        ('"prune": false', '"prune": 0', "plan.prune: true or false expected"),
        ('"action": "create"', '"action": "drop"', "plan.clusters[0].changes[0].action: one of blocked, create,"),
        ('"flows": [', '"flow": [', "plan.clusters[0].changes[0].flows: it is missing"),
        ('"owner": "team"', '"owner": "team", "": ""', "plan.: no plan has this key"),
        ('"create": 7', '"create": 6', "plan.counts.create: it does not fit the rest of the plan"),
        ('"connect": "west"', '"connect": "east"', "plan.clusters[1]: it is there twice"),
    ],
)
def test_a_damaged_plan_names_the_key(site: Site, mm2mgr: Command, old: str, new: str, problem: str) -> None:
    assert site
    mm2mgr("plan", "--out", "plan.json")
    text = Path("plan.json").read_text()
    assert old in text
    Path("plan.json").write_text(text.replace(old, new, 1))
    for words in (SHOW, ("apply", "plan.json")):
        said = mm2mgr(*words, code=1)
        assert said.out == ""
        assert f"error: plan.json: this plan file is damaged: {problem}" in said.err


def test_labels_choose_what_is_planned_and_applied(site: Site, mm2mgr: Command) -> None:
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("cluster_id: west", "cluster_id: west, labels: {dc: west}"))
    shown = mm2mgr("plan", "--label", "dc=west")
    assert shown.out == mm2mgr("plan", "--flow", "logs:a->west").out
    none = mm2mgr("apply", "--yes", "--label", "dc=nowhere", code=1)
    assert none.err.splitlines()[-2:] == [
        "error: no flow has clusters with the labels dc=nowhere",
        "hint: labels here: dc=west",
    ]
    assert "'west' is not a label such as tier=local" in mm2mgr("plan", "--label", "west", code=64).err
    mm2mgr("plan", "--label", "dc=west", "--out", "plan.json")
    assert "leave the options out" in mm2mgr("apply", "plan.json", "--label", "dc=west", code=1).err
    assert site.east.writes == site.west.writes == []
    mm2mgr("apply", "--yes", "--label", "dc=west")
    assert (site.names("east"), site.names("west")) == ([], sorted(ON_WEST))
    assert site.east.writes == [], "nothing else is touched"


def test_plan_of_one_flow_is_about_its_connectors(site: Site, mm2mgr: Command) -> None:
    shown = mm2mgr("plan", "orders", "-o", "json").json
    assert [cluster["connect"] for cluster in shown["clusters"]] == ["east"]
    assert {change["connector"] for change in shown["clusters"][0]["changes"]} == set(ON_EAST) - {
        "mm2.a.east.source.logs"
    }


def test_a_second_apply_writes_nothing(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("apply", "--yes")
    assert f"Applied: {ALL} of {ALL} changes" in said.out
    assert "east: created mm2.a.east.heartbeat" in said.err
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    site.forget()
    assert "Applied: 0 of 0 changes" in mm2mgr("apply", "--yes").out
    assert site.east.requests
    assert site.east.writes == site.west.writes == []


def test_more_changes_than_meant_are_not_written(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("apply", "--yes", "--max-changes", str(ALL - 1), code=1)
    assert f"blocked {len(ON_EAST)} connectors" in said.out
    assert f"too many changes: {ALL}, and --max-changes allows {ALL - 1}" in said.out
    mm2mgr("plan", "--max-changes", str(ALL - 1), "--out", "plan.json", code=1)
    reviewed = mm2mgr("apply", "plan.json", code=1)
    assert f"too many changes: {ALL}, and --max-changes allows {ALL - 1}" in reviewed.out
    assert "stale" not in reviewed.err
    assert site.east.writes == site.west.writes == []
    mm2mgr("plan", "--max-changes", str(ALL), "--out", "plan.json")
    mm2mgr("apply", "plan.json")
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    mm2mgr("apply", "--yes", "--max-changes", str(ALL))


def test_a_costly_kind_has_to_be_a_known_one(mm2mgr: Command, site: Site) -> None:
    said = mm2mgr("plan", "--allow", "everything", code=64)
    assert "'everything' is not one of mirror-again, target-names, names-taken, deletes" in said.err
    assert site.east.requests == []


def test_a_plan_explains_its_steps_and_fits_a_pull_request(site: Site, mm2mgr: Command) -> None:
    assert "      1. create it\n" in mm2mgr("plan", "--explain").out
    assert "1. create it" not in mm2mgr("plan").out
    markdown = mm2mgr("plan", "-o", "markdown").out
    assert markdown.startswith(f"### mm2mgr plan: {ALL} to create")
    assert "<details>" in markdown


def test_a_wrong_tree_is_a_page_of_a_pull_request_too(site: Site, mm2mgr: Command) -> None:
    assert mm2mgr("plan", "--flow", "nobody", "-o", "markdown", code=1).out.startswith("### mm2mgr plan: no plan")
    write(mm2mgr.tree, more="flows:\n  more: {source: [a], targets: [east], topics: {include: [x]}}\n")
    said = mm2mgr("plan", "-o", "markdown", code=1)
    assert said.out.startswith("### mm2mgr plan: no plan, nothing was compared\n\n- ")
    assert "more.yaml:2" in said.out
    assert "more.yaml:2" in said.err, "and an error as ever"
    assert site.east.requests == []


def test_apply_without_a_terminal_refuses_unless_told_yes(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("apply", code=1)
    assert "to create" in said.out  # what it would have done
    assert said.err.splitlines() == [
        "error: apply asks before it writes and there is no terminal",
        "hint: add --yes, or apply a reviewed plan: mm2mgr apply PLANFILE",
    ]
    assert site.east.writes == site.west.writes == []


def test_apply_that_has_nothing_to_do_asks_nobody(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    mm2mgr("apply")


def test_apply_of_a_reviewed_plan_needs_no_yes(site: Site, mm2mgr: Command) -> None:
    said = mm2mgr("plan", "--out", "plan.json", "--detailed-exitcode", code=2)
    assert "apply it with: mm2mgr apply plan.json" in said.err
    mm2mgr("apply", "plan.json")
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))


@pytest.mark.parametrize("changed", ["the tree", "the live state"])
def test_a_stale_plan_is_refused(site: Site, mm2mgr: Command, changed: str) -> None:
    mm2mgr("plan", "--out", "plan.json")
    if changed == "the tree":
        site.declare(FLOWS.replace("[orders]", "[orders, payments]"))
        wanted = "east/mm2.a.east.checkpoint: other keys would change than reviewed"
    else:
        site.east.add("mm2.a.east.heartbeat", {"connector.class": "some.Other"})
        wanted = "east/mm2.a.east.heartbeat: reviewed as create, now blocked"
    said = mm2mgr("apply", "plan.json", code=1)
    assert said.out == ""
    assert said.err.startswith(f"error: the plan is stale: {wanted}")
    assert "hint: make and review a new one: mm2mgr plan --out FILE" in said.err
    assert site.east.writes == site.west.writes == []


def test_a_plan_file_says_itself_what_it_is_for(site: Site, mm2mgr: Command) -> None:
    mm2mgr("plan", "orders", "--out", "plan.json")
    said = mm2mgr("apply", "plan.json", "--prune", code=1)
    assert "hint: leave the options out" in said.err
    mm2mgr("apply", "plan.json")
    assert "mm2.a.east.source.orders" in site.names("east")
    assert site.names("west") == []


@pytest.mark.parametrize("text", ["", "[]", '{"mm2mgr-plan": 1, "plan": {}}', None])
def test_a_file_that_is_no_plan_is_refused(site: Site, mm2mgr: Command, text: str | None) -> None:
    if text is not None:
        (mm2mgr.folder / "plan.json").write_text(text)
    said = mm2mgr("apply", "plan.json", code=1)
    assert said.err.startswith("error: plan.json: ")
    assert site.east.requests == []


def test_json_is_alone_on_stdout_and_the_talk_on_stderr(site: Site, mm2mgr: Command) -> None:
    planned = mm2mgr("plan", "-o", "json", "--out", "plan.json")
    assert planned.json["counts"]["create"] == ALL
    written = json.loads((mm2mgr.folder / "plan.json").read_text())["plan"]
    for part in written["clusters"]:
        for change in part["changes"]:
            assert change.pop("saw")  # only the file needs what the plan saw of each connector
    assert planned.json == written
    assert planned.err.startswith("plan written to plan.json")
    applied = mm2mgr("apply", "--yes", "-o", "json")
    assert {(each["connector"], each["ok"]) for each in applied.json["results"]} == {
        (name, True) for name in (*ON_EAST, *ON_WEST)
    }
    assert (applied.json["left"], applied.json["failed_clusters"]) == ([], [])
    assert "west: created mm2.a.west.checkpoint" in applied.err


def test_prune_deletes_what_is_no_longer_declared(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    site.declare("".join(FLOWS.splitlines(keepends=True)[:-1]))
    assert "? mm2.a.east.source.orders: owned but no longer declared; --prune deletes it" in mm2mgr("plan").out
    mm2mgr("apply", "--yes", "--prune")
    assert "mm2.a.east.source.orders" not in site.names("east")
    assert "mm2.a.east.source.logs" in site.names("east")


def test_the_connector_of_somebody_else_is_blocked_and_left_alone(site: Site, mm2mgr: Command) -> None:
    site.east.add("mm2.a.east.heartbeat", {"connector.class": "some.Other"})
    assert "! blocked mm2.a.east.heartbeat" in mm2mgr("plan", code=1).out
    mm2mgr("apply", "--yes", code=1)
    assert site.east.connectors["mm2.a.east.heartbeat"].config["connector.class"] == "some.Other"
    assert site.names("west") == sorted(ON_WEST)


def test_a_connect_cluster_that_is_down_fails_and_the_other_is_applied(
    site: Site, mm2mgr: Command, closed_port: int
) -> None:
    site.urls["east"] = f"http://127.0.0.1:{closed_port}"
    site.declare()
    for arguments in (["plan"], ["plan", "--detailed-exitcode"], ["plan", "-o", "json"]):
        assert f"http://127.0.0.1:{closed_port}" in mm2mgr(*arguments, code=1).out
    said = mm2mgr("apply", "--yes", code=1)
    assert "Connect cluster east\n  ! not planned: " in said.out
    assert f"Applied: {len(ON_WEST)} of {len(ON_WEST)} changes" in said.out
    assert site.names("west") == sorted(ON_WEST)
    assert mm2mgr("apply", "--yes", "-o", "json", code=1).json["failed_clusters"] == ["east"]


def test_a_refused_write_is_told_with_what_is_left_to_do(site: Site, mm2mgr: Command) -> None:
    site.east.fail_next("POST", "/connectors", 400, "Connector configuration is invalid: topics", times=1)
    said = mm2mgr("apply", "--yes", code=1)
    assert "failed: east/mm2.a.east.heartbeat: " in said.out
    assert f"Applied: {ALL - 1} of {ALL} changes" in said.out
    assert "Apply again to converge" in said.out
    site.forget()
    mm2mgr("apply", "--yes")
    assert [request.body["name"] for request in site.east.writes] == ["mm2.a.east.heartbeat"]
    assert site.west.writes == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", ["plan", "apply --yes", "status", "plan -o json"])
def test_wrong_credentials_are_told_and_never_shown(mm2mgr: Command, mock_cluster: KafkaAccess, command: str) -> None:
    fake = FakeConnect(basic=("admin", "the-right-one"))
    a, b = mock_cluster.bootstrap_servers.split(",")
    with serving(fake) as url:
        auth = f"auth: {{basic: {{username: admin, password: {PASSWORD}}}}}"
        lines = ["owner: team", f"clusters: {{a: {{bootstrap_servers: ['{a}']}}, b: {{bootstrap_servers: ['{b}']}}}}"]
        lines += [f"connect: {{w: {{url: '{url}', kafka: b, {auth}}}}}"]
        write(mm2mgr.tree, x="\n".join(lines), y="flows: {f: {sources: [a], targets: [b], topics: {include: [t]}}}\n")
        said = mm2mgr(*command.split(), code=1)
    assert "401" in said.out or "refused" in said.out
    assert "HTTP basic credentials" in said.out
    assert PASSWORD not in said.out + said.err
    assert fake.writes == []


def test_credentials_that_are_not_there_are_named(mm2mgr: Command) -> None:
    connect = 'connect: {w: {url: "http://127.0.0.1:1", kafka: b, auth: {bearer: "${env:NO_SUCH_TOKEN}"}}}\n'
    clusters = "owner: team\nclusters: {a: {bootstrap_servers: ['a:1']}, b: {bootstrap_servers: ['b:1']}}\n"
    write(mm2mgr.tree, x=clusters + connect + "flows: {f: {sources: [a], targets: [b], topics: {include: [t]}}}\n")
    said = mm2mgr("plan", code=1)
    assert "NO_SUCH_TOKEN" in said.out
    assert "provide this variable or file on the machine that runs mm2mgr" in said.out


def test_a_plan_file_takes_no_other_tree(mm2mgr: Command, site: Site) -> None:
    mm2mgr("plan", "--out", "plan.json")
    said = mm2mgr("--clusters", "elsewhere", "apply", "plan.json", code=1)
    assert "error: plan.json was made from another tree or templates: clusters" in said.err
    assert not site.east.connectors
    mm2mgr("--clusters", "clusters", "apply", "plan.json")
    assert site.east.connectors


def test_a_renamed_flow_is_not_mirrored_again_unasked(mm2mgr: Command, site: Site) -> None:
    site.kafka = None
    mm2mgr("apply", "--yes")
    site.declare(FLOWS.replace("orders:", "trade:", 1))
    said = mm2mgr("apply", "--yes", "--prune", code=1)
    assert "blocked mm2.a.east.source.trade" in said.out
    assert "mm2.a.east.source.trade" not in site.east.connectors
    mm2mgr("apply", "--yes", "--allow", "mirror-again", "--prune")
    assert "mm2.a.east.source.trade" in site.east.connectors


def test_a_flow_that_the_workers_refuse_is_blocked_with_the_remedy(mm2mgr: Command, site: Site) -> None:
    site.east.policy = "None"
    said = mm2mgr("plan", code=1)
    assert "  ! blocked mm2.a.east.heartbeat  policy-forbids: the workers' policy None refuses " in said.out
    assert "      fix: set connector.client.config.override.policy=All on the workers" in said.out
    assert f"{len(ON_WEST)} to create, 0 to update, 0 to delete, 0 unchanged, {len(ON_EAST)} blocked" in said.out
    mm2mgr("plan", "--out", "plan.json", code=1)
    applied = mm2mgr("apply", "plan.json", "-o", "json", code=1).json
    assert {each["connector"] for each in applied["blocked"]} == set(ON_EAST)
    assert all(each["remedy"] or "serves only" in each["reason"] for each in applied["blocked"])
    assert {each["connector"] for each in applied["results"]} == set(ON_WEST)
    assert site.east.writes == []


def test_a_block_since_the_review_makes_the_plan_stale(mm2mgr: Command, site: Site) -> None:
    mm2mgr("plan", "--out", "plan.json")
    site.west.cluster_id = "another"
    said = mm2mgr("apply", "plan.json", code=1)
    assert "west/mm2.a.west.checkpoint: reviewed as create, now blocked" in said.err
    assert site.east.writes == site.west.writes == []


def test_a_warning_is_shown_and_makes_no_plan_stale_and_nothing_fail(mm2mgr: Command, site: Site) -> None:
    mm2mgr("apply", "--yes")
    mm2mgr("plan", "--out", "plan.json")
    site.east.cluster_id = "west"
    said = mm2mgr("plan")
    assert (
        "  ! warning 3 connectors: mm2.a.east.source.logs, mm2.a.east.source.orders, mm2.a.east.checkpoint  wrong-kafka: "
        in said.out
    )
    assert "0 to delete, 7 unchanged" in said.out
    mm2mgr("apply", "plan.json")


def test_what_was_not_verified_is_said(mm2mgr: Command, site: Site) -> None:
    site.east.fail_next("PUT", "/connector-plugins", 403, "read only", times=100)
    said = mm2mgr("plan")
    assert "  ? not verified: Connect cluster 'east': the override policy could not be found: " in said.out
    [east, west] = mm2mgr("plan", "-o", "json").json["clusters"]
    assert [len(east["notes"]), len(west["notes"])] == [1, 0]
    assert mm2mgr("apply", "--yes", "-o", "json").json["notes"] == east["notes"]


# --- what apply says when it has written ------------------------------------------------------------------------------

ORDERS = "mm2.a.east.source.orders"
INVALID = FLOWS.replace(
    "[orders]}", "[orders]}, silence: {invalid-value: a test}, source_consumer: {fetch.max.bytes: -5}"
)
VALID = INVALID.replace("-5", "5000000")


def test_breaking_a_running_task_fails_and_mending_it_succeeds(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    site.east.restart_reads = (2, 1)
    site.declare(INVALID)
    said = mm2mgr("apply", "--yes", code=1)
    assert f"east/{ORDERS}: RUNNING, 1 of 1 tasks FAILED" in said.out
    assert "Applied: 1 of 1 changes; 1 of them FAILED or lost afterwards" in said.out
    site.declare(VALID)
    said = mm2mgr("apply", "--yes")
    assert said.lines[-1] == "Applied: 1 of 1 changes"


def test_what_is_not_seen_to_run_is_inconclusive(site: Site, mm2mgr: Command) -> None:
    site.west.status_after_reads = 10_000
    said = mm2mgr("apply", "--yes", "--wait", "3", code=3)
    assert "west/mm2.a.west.heartbeat: no status yet" in said.out
    assert f"Applied: {len(ON_EAST) + 1} of {ALL} changes; 1 of them not seen to run yet" in said.out
    assert "west: paused for a person to look: mm2.a.west.heartbeat: no status yet; not begun: 2 changes" in said.out
    assert site.names("west") == ON_WEST[:1]
    shown = site_json(mm2mgr, site)
    assert {each["connector"]: each["verdict"] for each in shown["results"]} == {ON_WEST[0]: "inconclusive"}
    assert [(each["connect"], each["verdict"], each["left"]) for each in shown["halted"]] == [
        ("west", "inconclusive", ON_WEST[1:])
    ]
    site.west.status_after_reads = 0
    site.west.connectors[ON_WEST[0]].hidden_reads = 0
    assert "Applied: 2 of 2 changes" in mm2mgr("apply", "--yes").out  # goes on where it paused
    site.west.status_after_reads = 10_000
    site.west.connectors.clear()
    site.east.connectors.clear()
    site.declare(INVALID)
    mm2mgr("apply", "--yes", "--wait", "3", code=1)  # failed wins


def site_json(mm2mgr: Command, site: Site) -> Any:
    site.west.connectors.clear()
    return mm2mgr("apply", "--yes", "--wait", "3", "-o", "json", code=3).json


def test_without_a_wait_no_state_is_asked_for(site: Site, mm2mgr: Command) -> None:
    site.west.status_after_reads = 10_000
    mm2mgr("apply", "--yes", "--wait", "0")
    written = max(at for at, request in enumerate(site.west.requests) if request.writes)
    assert not any("status" in request.query for request in site.west.requests[written:])


def test_a_change_made_while_it_asks_is_kept(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    site.declare(VALID)
    terminal, inside = pty.openpty()
    running = start(mm2mgr.folder, "apply", "--wait", "0", stdin=inside)
    try:
        assert running.stdout
        assert any(line.startswith("Plan: ") for line in running.stdout)
        site.east.connectors[ORDERS].config["tasks.max"] = "9"
        os.write(terminal, b"y\n")
    finally:
        said = finish(running)
        os.close(terminal)
        os.close(inside)
    assert said.code == 1
    assert "its config changed since the plan was made (keys: tasks.max)" in said.out
    assert "Applied: 0 of 1 changes" in said.out
    assert site.east.connectors[ORDERS].config["tasks.max"] == "9"


# --- deletes ----------------------------------------------------------------------------------------------------------


def many(count: int) -> str:
    off = "checkpoints: false, heartbeats: false"
    lines = (f"  f{n}: {{sources: [a], targets: [east], topics: {{include: [t{n}]}}, {off}}}\n" for n in range(count))
    return "flows:\n" + "".join(lines)


def test_a_tree_without_flows_deletes_nothing_unasked(site: Site, mm2mgr: Command) -> None:
    site.declare(many(30))
    mm2mgr("apply", "--yes", "--wait", "0")
    site.declare("flows: {}\n")
    site.forget()
    for command in (
        ("plan", "--prune"),
        ("apply", "--prune", "--yes"),
        ("apply", "--prune", "--yes", "--allow-deletes", "29"),
    ):
        said = mm2mgr(*command, code=1)
        assert "! blocked 30 connectors: mm2.a.east.source.f0, " in said.out
        assert "one of 30 deletes, of 30 connectors of this owner" in said.out
        assert "fix: if all of them are intended, add --allow-deletes 30" in said.out
    assert said.lines[-1] == "Applied: 0 of 0 changes; 30 more blocked"
    assert site.east.writes == []
    mm2mgr("plan", "--prune", "--allow-deletes", "30", "--out", "plan.json")
    assert "leave the options out" in mm2mgr("apply", "plan.json", "--allow-deletes", "30", code=1).err
    mm2mgr("apply", "plan.json")
    assert site.names("east") == []


# --- plan files and Connect clusters that are down --------------------------------------------------------------------


@pytest.mark.parametrize("when", ["at the review", "at the apply"])
def test_one_connect_cluster_down_refuses_no_whole_plan_file(
    site: Site, mm2mgr: Command, closed_port: int, when: str
) -> None:
    there, gone = site.urls["east"], f"http://127.0.0.1:{closed_port}"
    site.urls["east"] = gone if when == "at the review" else there
    site.declare()
    mm2mgr("plan", "--out", "plan.json", code=1 if when == "at the review" else 0)
    site.urls["east"] = there if when == "at the review" else gone
    site.declare()
    said = mm2mgr("apply", "plan.json", code=1)
    assert site.names("west") == sorted(ON_WEST)
    assert site.names("east") == []
    if when == "at the review":
        assert (
            "! not planned: it could not be read when the plan was made, so its changes were never reviewed" in said.out
        )
    assert said.lines[-1] == (
        f"Applied: {len(ON_WEST)} of {len(ON_WEST)} changes; Connect cluster 'east' could not be read, "
        "its changes are not in this number"
    )


# --- the state of a flow ----------------------------------------------------------------------------------------------


def test_a_flow_is_paused_by_its_declaration(site: Site, mm2mgr: Command) -> None:
    mm2mgr("apply", "--yes")
    site.declare(FLOWS.replace("[orders]}", "[orders]}, state: paused"))
    assert f"  ~ update  {ORDERS}\n      ~ state: RUNNING -> PAUSED\n" in mm2mgr("plan", "--out", "plan.json").out
    said = mm2mgr("apply", "plan.json")
    assert f"east/{ORDERS}: PAUSED" in said.out
    assert site.east.connectors[ORDERS].state == "PAUSED"
    assert "Applied: 0 of 0 changes" in mm2mgr("apply", "--yes").out
