"""Findings as SARIF 2.1.0, for code scanning. Reads no file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from mm2mgr import __version__
from mm2mgr.lint.findings import Finding, Rule
from mm2mgr.lint.unjudged import NotJudged
from mm2mgr.text import number_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "mm2mgrFinding/v1"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "info": "recommendation"}
_LINE = re.compile(r":\d+(:\d+)?\b")

Json = dict[str, object]


def sarif(
    findings: Sequence[Finding],
    rules: Sequence[Rule],
    root: Path,
    unread: Sequence[str] = (),
    not_judged: Sequence[NotJudged] = (),
) -> Json:
    """Return one SARIF log with the rules of the findings; paths are relative to `root`, `unread` says what could not
    be checked.

    What was not judged for lack of a fact is a note of the run, and no failure.
    """
    hit = {finding.rule for finding in findings}
    used = [rule for rule in rules if rule.id in hit]
    driver = {"name": "mm2mgr", "version": __version__, "rules": [_rule(rule) for rule in used]}
    notes = [{"level": "error", "message": {"text": message}} for message in unread]
    notes += [{"level": "note", "message": {"text": _not_judged_text(fact)}} for fact in not_judged]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": notes}],
        "results": _results(findings, [rule.id for rule in used], root),
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _not_judged_text(fact: NotJudged) -> str:
    count = number_of(fact.connectors, "connector")
    reasons = f" ({'; '.join(fact.reasons)})" if fact.reasons else ""
    return f"Not judged for {count}: {fact.open}. Unknown: {fact.fact}{reasons}. Supplied by: {fact.give}."


def _rule(rule: Rule) -> Json:
    source = f"\n\nSource: {rule.source}" if rule.source else ""
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.title},
        "help": {"text": f"{rule.story}{source}\n\nReproduced by: {rule.live}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["kafka", "mirrormaker"], "problem.severity": _PROBLEMS[rule.severity]},
    }


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
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.spot.line or 1}}
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
