"""Findings and rules of lint, explanations of keys, and checks as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from mm2mgr import __version__
from mm2mgr.lint.findings import SEVERITIES, Finding, Rule
from mm2mgr.lint.unjudged import NotJudged
from mm2mgr.output.console import STYLES, say, say_command, say_table
from mm2mgr.output.tables import Table
from mm2mgr.text import few, number_of
from mm2mgr.truth.bugs import Bug
from mm2mgr.truth.explain import Definition, Effect, Explanation, Instead

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked, CheckRow
    from mm2mgr.operations.fix import Fixes
    from mm2mgr.operations.lint import ConnectorClients, Explained, LintReport


def say_findings(report: LintReport) -> None:
    """Print findings by file or connector, worst first, then the totals, then what was not judged and why."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in report.listed_findings:
        spot = finding.spot
        groups.setdefault((spot.file,) if spot.file else (spot.connect, spot.connector), []).append(finding)
    for group in groups.values():
        say_table(finding_table(group))
        say()
    say(_summary(report), style="bold")
    if report.notes:
        say()
        for note in report.notes:
            say(f"note: {note}")
    if report.not_judged:
        say()
        say_table(_not_judged_table(report.not_judged))


def _not_judged_table(facts: Sequence[NotJudged]) -> Table:
    columns = ("not judged", "connectors", "unknown", "supplied by")
    rows = [(fact.open, str(fact.connectors), fact.fact, fact.give) for fact in facts]
    below = [[few(fact.reasons, between="; ")] if fact.reasons else [] for fact in facts]
    wrap = ("not judged", "unknown", "supplied by")
    return Table(columns, rows, right=("connectors",), drop=("connectors",), wrap=wrap, below=below)


def say_fixes(fixes: Fixes) -> None:
    """Print the diff of fixes, and the findings that stay with what to do."""
    for line in fixes.diff:
        say(line, style={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    if fixes.left:
        say()
        findings, reasons = zip(*fixes.left, strict=True)
        say_table(finding_table(findings, [f" ({reason})" for reason in reasons]))
    fixed, left = number_of(len(fixes.fixed), "finding"), number_of(len(fixes.left), "finding")
    written = "fixed" if fixes.written else "fixed by this; write it with --yes"
    say()
    say(f"{fixed} {written}, {left} left" if fixes.fixed else f"No fix that a machine can apply, {left} left", "bold")


def finding_table(findings: Sequence[Finding], remarks: Sequence[str] = ()) -> Table:
    """Return a row per finding with its fix and the remark on it below, or the reason why it is silenced."""
    rows, below = [], []
    for number, finding in enumerate(findings):
        more = f" (and {finding.more} more like this)" if finding.more else ""
        rows.append((str(finding.spot), finding.severity, finding.rule, finding.message + more))
        fix = f"fix: {finding.fix}{remarks[number] if remarks else ''}"
        below.append([fix if finding.silenced is None else f"silenced: {finding.silenced or 'no reason given'}"])
    silenced = {number for number, finding in enumerate(findings) if finding.silenced is not None}
    columns, styles = ("place", "severity", "rule", "message"), {"severity": STYLES}
    return Table(columns, rows, wrap=("message",), styles=styles, gap=2, header=False, below=below, muted=silenced)


def counts_text(report: LintReport) -> str:
    """Return `3 errors, 1 warning`, "" where there are no findings."""
    counts = ((sum(finding.severity == word for finding in report.loud), word) for word in SEVERITIES)
    return ", ".join(number_of(count, word) for count, word in counts if count)


def _summary(report: LintReport) -> str:
    count = len(report.findings) - len(report.loud)
    connectors = number_of(report.connectors, "connector") + (f" ({count} silenced)" if count else "")
    if counts := counts_text(report):
        return f"{counts} in {connectors}"
    return f"No findings in {connectors}; checked {', '.join(report.looked_at) or 'nothing'}"


def say_rules(rules: Iterable[Rule]) -> None:
    """Print one line per rule."""
    rows = [(rule.id, rule.severity, rule.title) for rule in rules]
    say_table(Table(("rule", "severity", "what"), rows, wrap=("what",), styles={"severity": STYLES}))


# --- explain ----------------------------------------------------------------------------------------------------------


def say_explained(explained: Explained) -> None:
    """Print what a key does, a lint rule, a known bug, or the settings of the clients of a flow."""
    match explained:
        case Explanation():
            _say_key(explained)
        case Rule():
            _say_rule(explained)
        case Bug():
            _say_bug(explained)
        case _:
            _say_clients(explained)


def _say_key(key: Explanation) -> None:
    say(f"{key.key} (Kafka {key.kafka}) {key.verdict}", style="bold")
    for note in key.notes:
        say(f"  {note}")
    _say_effects([effect for effect in key.effects if effect.client != "connector"])
    _say_ways(key.instead)
    for definition in key.definitions:
        _say_definition(key.plain, definition)


def _say_effects(effects: Sequence[Effect]) -> None:
    if not effects:
        return
    say()
    rows = [
        (effect.connector, effect.client, effect.note or effect.when, ", ".join(effect.outranked_by))
        for effect in effects
    ]
    say_table(Table(("seen on", "by the", "when", "outranked by"), rows, wrap=("when", "outranked by")))


def _say_ways(ways: Sequence[Instead]) -> None:
    if not ways:
        return
    say()
    template = "(a line in a template of your own)"
    rows = [(way.client, ", ".join(way.connectors), way.yaml or template, way.raw) for way in ways]
    say_table(Table(("for the", "on", "write in YAML", "raw Connect"), rows, wrap=("for the", "on")))
    policies = [f"{way.raw} needs the workers' override policy {way.policy}" for way in ways if way.policy]
    for policy in dict.fromkeys(policies):
        say(policy)


def _say_definition(plain: str, definition: Definition) -> None:
    say()
    text = "none" if definition.default is None else definition.default or "empty"
    default = "required" if definition.required else f"default {text}"
    valid = f", {definition.valid}" if definition.valid else ""
    say(f"{plain} of {definition.scope}: {definition.type}{valid}, {default}; {definition.lines}")
    if definition.history:
        say(f"  default {'; '.join(definition.history)}")
    for other in definition.set_instead:
        say(f"  {other}")


def _say_rule(rule: Rule) -> None:
    title, _, story = rule.story.partition("\n")
    say(f"{rule.id} ({rule.severity}): {title}", style="bold")
    if story.strip():
        say()
        for paragraph in story.strip("\n").split("\n\n"):
            is_prose = not any(line.startswith((" ", "-", "*")) for line in paragraph.split("\n"))
            for line in [" ".join(paragraph.split("\n"))] if is_prose else paragraph.split("\n"):
                say(line)
    if facts := [(key, text) for key, text in (("source:", rule.source), ("test:  ", rule.live)) if text]:
        say()
    for key, text in facts:
        say(f"{key} {text}")


def _say_bug(bug: Bug) -> None:
    say(f"{bug.id} ({bug.severity}): {bug.effect}", style="bold")
    say()
    say(f"releases:   {bug.span}")
    say(f"connectors: {', '.join(bug.types)}, {bug.condition}")
    say(f"what to do: {bug.remedy}")
    say(f"rule:       {bug.rule}")
    say(f"test:       {bug.evidence}")


def _say_clients(connectors: Iterable[ConnectorClients]) -> None:
    for connector in connectors:
        where = f"in {connector['file']}" if "file" in connector else f"on Connect cluster {connector['connect']}"
        say(f"{connector['connector']} {where} (Kafka {connector['kafka']})", "bold")
        for sentence in connector["link"].sentences if "link" in connector else ():
            say(f"  {sentence}")
        if "catch_up" in connector:
            say(f"  {connector['catch_up']}")
        for client in connector["clients"]:
            say()
            say(f"{client['client']} ({client['kind']} towards {client['side']})")
            rows = [(setting["key"], setting["value"], setting["origin"]) for setting in client["values"]]
            say_table(Table(("key", "value", "origin"), rows, drop=("origin",), wrap=("value", "origin"), indent=2))
            if client["below"]:
                own = " and ".join(client["below"])
                say(f"  {own} in the workers' properties outranks what Connect sets here", style="dim")
        say()


# --- check ------------------------------------------------------------------------------------------------------------

_COLUMNS = ("status", "where", "principal", "client", "what")


def say_check(checked: Checked) -> None:
    """Print what is missing, failed or unknown and what happens because of it; what is ok is only counted."""
    groups = _alike(row for row in checked.rows if row.status != "ok")
    _say_rows(groups)
    _say_remedies(groups)
    if findings := [finding for finding in checked.findings if finding.silenced is None]:
        say_table(finding_table(findings))
    _say_commands("run these with a login that may alter ACLs (--command-config FILE):", checked.commands)
    _say_commands("could not be verified; granting a right twice does no harm:", checked.unsure)
    _say_end(checked, sum(finding.severity == "error" for finding in findings))


def _alike(rows: Iterable[CheckRow]) -> list[list[CheckRow]]:
    groups: dict[tuple[object, ...], list[CheckRow]] = {}
    for row in rows:
        fix = "" if row.rows else row.fix
        key = (row.status, row.where, row.principal, row.clients, row.rows, row.effect, fix, _operation(row))
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _say_rows(groups: Sequence[Sequence[CheckRow]]) -> None:
    rows, below = [], []
    for group in groups:
        first, operation = group[0], _operation(group[0])
        resources = operation + few([row.what.removeprefix(operation) for row in group])
        rows.append((first.status, first.where, first.principal, few(first.clients), resources))
        effect = " ".join(first.effect.split())
        below.append([f"{'otherwise ' if first.rows else ''}{effect}"] if effect else [])
    if rows:
        say_table(Table(_COLUMNS, rows, wrap=_COLUMNS[2:], styles={"status": STYLES}, gap=2, below=below))


def _operation(row: CheckRow) -> str:
    return " ".join(row.what.split(" ")[:3]) + " " if row.rows and row.what.count(" ") >= 3 else ""


def _say_remedies(groups: Sequence[Sequence[CheckRow]]) -> None:
    places: dict[str, list[str]] = {}
    for first, *_ in groups:
        if first.fix and not first.fix.startswith("give "):
            places.setdefault(first.fix, []).append(f"{first.where}: {first.principal}".rstrip(": "))
    for fix, names in places.items():
        say(f"  {', '.join(dict.fromkeys(names))}: {fix}", style="yellow")


def _say_commands(comment: str, commands: Sequence[str]) -> None:
    if commands:
        say()
        say(f"# {comment}", style="dim")
    for command in commands:
        say_command(command)


def _say_end(checked: Checked, errors: int) -> None:
    counts: Mapping[str, int] = checked.counts
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing to check"
    more = f", {number_of(errors, 'lint error')}" if errors else ""
    say(f"Checked in {checked.seconds:.1f} s: {words}{more}", style=STYLES["ok" if checked.good else "failed"])
    if counts["unknown"]:
        say("Unknown means the check could not run: no cluster answered.", style="dim")
    if inferred := sum(row.how == "inferred" for row in checked.rows):
        rights = f"{number_of(inferred, 'right')} on topics that do not exist yet"
        say(f"{rights}: inferred from Describe; check again after the first apply", style="dim")


# --- sarif ------------------------------------------------------------------------------------------------------------


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "mm2mgrFinding/v1"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "info": "recommendation"}
_LINE = re.compile(r":\d+(:\d+)?\b")
_SIGNS = re.compile(r"[\\*_<>\[\]|#](?! )")

Json = dict[str, object]


class SarifPlaces(NamedTuple):
    """Where a log leads to: paths are relative to `root`; `rule_pages` is the address of the folder with a page per
    rule, for `informationUri` and `helpUri`. SARIF has absolute ones alone: without it a log has neither."""

    root: Path
    rule_pages: str = ""


def sarif(
    findings: Sequence[Finding],
    rules: Sequence[Rule],
    places: SarifPlaces,
    unread: Sequence[str] = (),
    not_judged: Sequence[NotJudged] = (),
) -> Json:
    """Return one SARIF log with the rules of the findings; `unread` says what could not be checked.

    What was not judged for lack of a fact is a note of the run, and no failure.
    """
    hit = {finding.rule for finding in findings}
    used = [rule for rule in rules if rule.id in hit]
    pages = f"{places.rule_pages.rstrip('/')}/" if places.rule_pages else ""
    driver = {
        "name": "mm2mgr",
        "version": __version__,
        **({"informationUri": pages} if pages else {}),
        "rules": [_rule(rule, pages) for rule in used],
    }
    notes = [{"level": "error", "message": {"text": message}} for message in unread]
    notes += [{"level": "note", "message": {"text": _not_judged_text(fact)}} for fact in not_judged]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": notes}],
        "results": _results(findings, [rule.id for rule in used], places.root),
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _not_judged_text(fact: NotJudged) -> str:
    count = number_of(fact.connectors, "connector")
    reasons = f" ({'; '.join(fact.reasons)})" if fact.reasons else ""
    return f"Not judged for {count}: {fact.open}. Unknown: {fact.fact}{reasons}. Supplied by: {fact.give}."


def _rule(rule: Rule, pages: str) -> Json:
    facts = [f"Source: {rule.source}"] if rule.source else []
    facts += [f"Reproduced by: {rule.live}"] if rule.live else []
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.title},
        **({"helpUri": f"{pages}{rule.id}.md"} if pages else {}),
        "help": {
            "text": "\n\n".join((rule.story, *facts)),
            "markdown": _markdown(rule),
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["kafka", "mirrormaker"], "problem.severity": _PROBLEMS[rule.severity]},
    }


def _markdown(rule: Rule) -> str:
    """Return the help as Markdown: the story's paragraphs and lists as they are, with nothing that could be markup."""
    title, _, story = rule.story.partition("\n")
    facts = [f"*Source:* {_literal(rule.source)}"] if rule.source else []
    facts += [f"*Reproduced by:* `{rule.live}`"] if rule.live else []
    return "\n\n".join(filter(None, [f"**{_literal(title)}**", _literal(story.strip("\n")), *facts]))


def _literal(text: str) -> str:
    """Return text whose words Markdown shows as they are; what stands in backticks is code already."""
    parts = text.split("`")
    return "`".join(part if place % 2 else _SIGNS.sub(r"\\\g<0>", part) for place, part in enumerate(parts))


def _results(findings: Sequence[Finding], rules: Sequence[str], root: Path) -> list[Json]:
    prints: Counter[str] = Counter()
    some_silenced = any(finding.silenced is not None for finding in findings)
    results = []
    for finding in findings:
        uri = _uri(finding, root)
        print_ = _fingerprint(finding, uri)
        prints[print_] += 1
        result: Json = {
            "ruleId": finding.rule,
            "level": _LEVELS[finding.severity],
            "message": {"text": f"{finding.message}\n\nFix: {finding.fix}"},
            "locations": [_location(finding, uri)],
            "partialFingerprints": {FINGERPRINT: f"{print_}:{prints[print_]}"},
        }
        if finding.rule in rules:
            result["ruleIndex"] = rules.index(finding.rule)
        if some_silenced:  # section 3.27.23: all results of a run have this list, or none has
            reason = finding.silenced
            result["suppressions"] = [] if reason is None else [{"kind": "inSource", "justification": reason}]
        results.append(result)
    return results


def _uri(finding: Finding, root: Path) -> str:
    """Return the file, or the path of the connector in Connect's REST API: code scanning refuses a log with a result
    without."""
    if not finding.spot.file:
        return f"connectors/{quote(finding.spot.connector, safe='')}"
    path = Path(finding.spot.file)
    if not path.is_absolute():
        return quote(path.as_posix())
    return quote(path.relative_to(root).as_posix()) if path.is_relative_to(root) else path.as_uri()


def _names(finding: Finding) -> tuple[str, str, str]:
    return finding.spot.connect, finding.spot.connector, finding.key or finding.spot.key


def _location(finding: Finding, uri: str) -> Json:
    column = {"startColumn": finding.spot.column} if finding.spot.column else {}
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.spot.line or 1, **column}}
    location: Json = {"physicalLocation": physical}
    names = [name for name in _names(finding) if name]
    if names:
        kind = "property" if _names(finding)[-1] else "object"
        location["logicalLocations"] = [{"name": names[-1], "fullyQualifiedName": "/".join(names), "kind": kind}]
    return location


def _fingerprint(finding: Finding, uri: str) -> str:
    """Return a fingerprint that does not change when lines move: the place and the message without line numbers."""
    text = "\0".join([finding.rule, uri, *_names(finding), _LINE.sub("", finding.message)])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
