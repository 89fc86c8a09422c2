"""Findings and rules of lint, explanations of keys, and checks as text, from the values that `-o json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mm2mgr.output.console import STYLES, say, say_command, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import few, number_of


def say_findings(report: Mapping[str, Any]) -> None:
    """Print findings by file or connector, worst first, then the totals, then what was not judged and why."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for finding in report["findings"]:
        whole = (finding["file"],) if "file" in finding else (finding.get("connect", ""), finding.get("connector", ""))
        groups.setdefault(whole, []).append(finding)
    for group in groups.values():
        say_table(finding_table(group))
        say()
    say(summary(report["summary"]), style="bold")
    if report["not_judged"]:
        say()
        say_table(_open_table(report["not_judged"]))


def _open_table(facts: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("not judged", "connectors", "unknown", "supplied by")
    rows = [(each["open"], str(each["connectors"]), each["fact"], each["give"]) for each in facts]
    below = [[few(each["reasons"], between="; ")] if each["reasons"] else [] for each in facts]
    wrap = ("not judged", "unknown", "supplied by")
    return Table(columns, rows, right=("connectors",), drop=("connectors",), wrap=wrap, below=below)


def say_fixes(fixes: Mapping[str, Any]) -> None:
    """Print the diff of fixes, and the findings that stay with what to do."""
    for line in fixes["diff"]:
        say(line, style={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    if fixes["left"]:
        say()
        say_table(finding_table([each | {"fix": f"{each['fix']} ({each['why']})"} for each in fixes["left"]]))
    done, left = number_of(len(fixes["fixed"]), "finding"), number_of(len(fixes["left"]), "finding")
    how = "fixed" if fixes["written"] else "fixed by this; write it with --yes"
    say()
    say(f"{done} {how}, {left} left" if fixes["fixed"] else f"No fix that a machine can apply, {left} left", "bold")


def finding_table(findings: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row per finding with its fix below, or the reason why it is silenced."""
    rows = []
    for finding in findings:
        more = f" (and {finding['more']} more like this)" if finding["more"] else ""
        rows.append((finding["place"], finding["severity"], finding["rule"], finding["message"] + more))
    silenced = {number for number, finding in enumerate(findings) if finding["silenced"] is not None}
    below = [
        [f"silenced: {finding['silenced'] or 'no reason given'}" if number in silenced else f"fix: {finding['fix']}"]
        for number, finding in enumerate(findings)
    ]
    columns, styles = ("place", "severity", "rule", "message"), {"severity": STYLES}
    return Table(columns, rows, wrap=("message",), styles=styles, gap=2, header=False, below=below, muted=silenced)


def summary(counts: Mapping[str, Any]) -> str:
    """Return `3 errors, 1 warning in 12 connectors (2 silenced)`, or the inputs where there are no findings."""
    found = [number_of(counts[f"{word}s"], word) for word in ("error", "warning", "info") if counts[f"{word}s"]]
    where = number_of(counts["connectors"], "connector")
    silenced = f" ({counts['silenced']} silenced)" if counts["silenced"] else ""
    if found:
        return f"{', '.join(found)} in {where}{silenced}"
    return f"No findings in {where}{silenced}; checked {', '.join(counts['looked_at']) or 'nothing'}"


def say_rules(rules: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per rule."""
    rows = [(rule["rule"], rule["severity"], rule["title"]) for rule in rules]
    say_table(Table(("rule", "severity", "what"), rows, wrap=("what",), styles={"severity": STYLES}))


def say_explanation(found: Mapping[str, Any]) -> None:
    """Print what a key does, what to write instead, and its definition in Kafka."""
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
    say_table(Table(("seen on", "by the", "when", "outranked by"), rows, wrap=("when", "outranked by")))


def _say_ways(ways: Sequence[Mapping[str, Any]]) -> None:
    if not ways:
        return
    say()
    template = "(a line in a template of your own)"
    rows = [(each["client"], ", ".join(each["connectors"]), each["yaml"] or template, each["raw"]) for each in ways]
    say_table(Table(("for the", "on", "write in YAML", "raw Connect"), rows, wrap=("for the", "on")))
    policies = [f"{each['raw']} needs the workers' override policy {each['policy']}" for each in ways if each["policy"]]
    for policy in dict.fromkeys(policies):
        say(policy)


def _say_definition(plain: str, each: Mapping[str, Any]) -> None:
    say()
    shown = "none" if each["default"] is None else each["default"] or "empty"
    default = "required" if each["required"] else f"default {shown}"
    valid = f", {each['valid']}" if each["valid"] else ""
    say(f"{plain} of {each['scope']}: {each['type']}{valid}, {default}; {each['lines']}")
    if each["history"]:
        say(f"  default {'; '.join(each['history'])}")
    for other in each["set_instead"]:
        say(f"  {other}")


def say_rule(rule: Mapping[str, Any]) -> None:
    """Print a lint rule: its severity, explanation and source, and the test that reproduces its effect."""
    title, _, story = rule["story"].partition("\n")
    say(f"{rule['rule']} ({rule['severity']}): {title}", style="bold")
    if story.strip():
        say()
        for paragraph in story.strip("\n").split("\n\n"):
            is_prose = not any(line.startswith((" ", "-", "*")) for line in paragraph.split("\n"))
            for line in [" ".join(paragraph.split("\n"))] if is_prose else paragraph.split("\n"):
                say(line)
    say()
    if rule["source"]:
        say(f"source: {rule['source']}")
    say(f"test:   {rule['seen']}")


def say_bug(bug: Mapping[str, Any]) -> None:
    """Print a known bug: which releases and configs have it, its effect, and what to do."""
    say(f"{bug['bug']} ({bug['severity']}): {bug['effect']}", style="bold")
    say()
    say(f"releases:   {bug['span']}")
    say(f"connectors: {', '.join(bug['connectors'])}, {bug['condition']}")
    say(f"what to do: {bug['remedy']}")
    say(f"rule:       {bug['rule']}")
    say(f"test:       {bug['evidence']}")


def say_client_settings(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the settings of each client of a flow, each with its origin."""
    for connector in found:
        say(f"{connector['connector']} on Connect cluster {connector['connect']} (Kafka {connector['kafka']})", "bold")
        for sentence in connector["link"]["verdict"] if "link" in connector else ():
            say(f"  {sentence}")
        if "catch_up" in connector:
            say(f"  {connector['catch_up']}")
        for client in connector["clients"]:
            say()
            say(f"{client['client']} ({client['kind']} towards {client['side']})")
            rows = [(value["key"], value["value"], value["origin"]) for value in client["values"]]
            say_table(Table(("key", "value", "origin"), rows, drop=("origin",), wrap=("value", "origin"), indent=2))
            if client["below"]:
                own = " and ".join(client["below"])
                say(f"  {own} in the workers' properties outranks what Connect sets here", style="dim")
        say()


_COLUMNS = ("status", "where", "principal", "client", "what")
_SENTENCE = ("status", "where", "principal", "clients", "rows", "effect", "fix")


def say_check(found: Mapping[str, Any]) -> None:
    """Print what is missing, failed or unknown and what happens because of it; what is ok is only counted."""
    groups = _alike([row for row in found["rows"] if row["status"] != "ok"])
    _say_table(groups)
    _say_fixes(groups)
    findings = [finding for finding in found["findings"] if finding["silenced"] is None]
    if findings:
        say_table(finding_table(findings))
    _say_commands("run these with a login that may alter ACLs (--command-config FILE):", found["commands"])
    _say_commands("could not be verified; granting a right twice does no harm:", found["unsure"])
    _say_end(found)


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the rows that differ only in the resource: one topic, or a hundred."""
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in _SENTENCE if name != "fix" or not row["rows"])
        groups.setdefault((*key, _operation(row)), []).append(row)
    return list(groups.values())


def _say_table(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Print one row per group, and below it what happens because of it."""
    below = []
    for first, *_ in groups:
        effect = " ".join(first["effect"].split())
        below.append([f"{'otherwise ' if first['rows'] else ''}{effect}"] if effect else [])
    rows = [_cells(group) for group in groups]
    if rows:
        styles = {"status": STYLES}
        say_table(Table(_COLUMNS, rows, wrap=_COLUMNS[2:], styles=styles, gap=2, below=below))


def _cells(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    first = group[0]
    operation = _operation(first)
    what = operation + few([row["what"].removeprefix(operation) for row in group])
    return (first["status"], first["where"], first["principal"], few(first["clients"]), what)


def _operation(row: Mapping[str, Any]) -> str:
    """Return the words before the resource's name: `Write on topic `."""
    what: str = row["what"]
    return " ".join(what.split(" ")[:3]) + " " if row["rows"] and what.count(" ") >= 3 else ""


def _say_fixes(groups: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Print what to do where no command does it, each sentence once."""
    places: dict[str, list[str]] = {}
    for group in groups:
        first = group[0]
        if first["fix"] and not first["fix"].startswith("give "):
            places.setdefault(first["fix"], []).append(f"{first['where']}: {first['principal']}".rstrip(": "))
    for fix, where in places.items():
        say(f"  {', '.join(dict.fromkeys(where))}: {fix}", style="yellow")


def _say_commands(why: str, commands: Sequence[str]) -> None:
    if commands:
        say()
        say(f"# {why}", style="dim")
    for command in commands:
        say_command(command)


def _say_end(found: Mapping[str, Any]) -> None:
    counts = found["counts"]
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing to check"
    errors = sum(each["severity"] == "error" and each["silenced"] is None for each in found["findings"])
    more = f", {number_of(errors, 'lint error')}" if errors else ""
    say(f"Checked in {found['seconds']:g} s: {words}{more}", style=STYLES["ok" if found["good"] else "failed"])
    if counts["unknown"]:
        say("Unknown means the check could not run: no cluster answered.", style="dim")
    inferred = sum(row["how"] == "inferred" for row in found["rows"])
    if inferred:
        text = f"{number_of(inferred, 'right')} on topics that do not exist yet: inferred from Describe; check again after the first apply"
        say(text, style="dim")
