"""Findings as SARIF 2.1.0, for code scanning, from the JSON of findings and rules. Reads no file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mm2mgr import __version__
from mm2mgr.text import number_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "mm2mgrFinding/v1"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "info": "recommendation"}
_LINE = re.compile(r":\d+(:\d+)?\b")

Values = Mapping[str, Any]


def sarif(
    findings: Sequence[Values],
    rules: Sequence[Values],
    root: Path,
    unread: Sequence[str] = (),
    not_judged: Sequence[Values] = (),
) -> dict[str, Any]:
    """Return one SARIF log with the rules of the findings; paths are relative to `root`, `unread` says what could not be checked.

    What was not judged for lack of a fact is a note of the run, and no failure.
    """
    found = {finding["rule"] for finding in findings}
    used = [rule for rule in rules if rule["rule"] in found]
    driver = {"name": "mm2mgr", "version": __version__, "rules": [_rule(rule) for rule in used]}
    notes = [{"level": "error", "message": {"text": each}} for each in unread]
    notes += [{"level": "note", "message": {"text": _open(each)}} for each in not_judged]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": notes}],
        "results": _results(findings, [rule["rule"] for rule in used], root),
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _open(fact: Values) -> str:
    count = number_of(fact["connectors"], "connector")
    why = f" ({'; '.join(fact['reasons'])})" if fact["reasons"] else ""
    return f"Not judged for {count}: {fact['open']}. Unknown: {fact['fact']}{why}. Supplied by: {fact['give']}."


def _rule(rule: Values) -> dict[str, Any]:
    source = f"\n\nSource: {rule['source']}" if rule["source"] else ""
    return {
        "id": rule["rule"],
        "shortDescription": {"text": rule["title"]},
        "fullDescription": {"text": rule["title"]},
        "help": {"text": f"{rule['story']}{source}\n\nReproduced by: {rule['seen']}"},
        "defaultConfiguration": {"level": _LEVELS[rule["severity"]]},
        "properties": {"tags": ["kafka", "mirrormaker"], "problem.severity": _PROBLEMS[rule["severity"]]},
    }


def _results(findings: Sequence[Values], rules: Sequence[str], root: Path) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    judged = any(finding["silenced"] is not None for finding in findings)
    results = []
    for finding in findings:
        uri = _uri(finding, root)
        print_ = _fingerprint(finding, uri)
        seen[print_] += 1
        result = {
            "ruleId": finding["rule"],
            "level": _LEVELS[finding["severity"]],
            "message": {"text": f"{finding['message']}\n\nFix: {finding['fix']}"},
            "locations": [_location(finding, uri)],
            "partialFingerprints": {FINGERPRINT: f"{print_}:{seen[print_]}"},
        }
        if finding["rule"] in rules:
            result["ruleIndex"] = rules.index(finding["rule"])
        if judged:  # section 3.27.23: all results of a run have this list, or none has
            result["suppressions"] = _suppressions(finding)
        results.append(result)
    return results


def _suppressions(finding: Values) -> list[dict[str, str]]:
    reason = finding["silenced"]
    return [] if reason is None else [{"kind": "inSource", "justification": reason}]


def _uri(finding: Values, root: Path) -> str:
    """Return the file, or the path of the connector in Connect's REST API: code scanning refuses a log with a result without."""
    if not finding.get("file"):
        return f"connectors/{quote(finding.get('connector', ''), safe='')}"
    path = Path(finding["file"])
    if not path.is_absolute():
        return quote(path.as_posix())
    return quote(path.relative_to(root).as_posix()) if path.is_relative_to(root) else path.as_uri()


def _location(finding: Values, uri: str) -> dict[str, Any]:
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.get("line", 1)}}
    location: dict[str, Any] = {"physicalLocation": physical}
    names = [finding[part] for part in ("connect", "connector", "key") if finding.get(part)]
    if names:
        kind = "property" if finding.get("key") else "object"
        location["logicalLocations"] = [{"name": names[-1], "fullyQualifiedName": "/".join(names), "kind": kind}]
    return location


def _fingerprint(finding: Values, uri: str) -> str:
    """Return a fingerprint that does not change when lines move: the place and the message without line numbers."""
    place = [finding.get(part, "") for part in ("connect", "connector", "key")]
    text = "\0".join([finding["rule"], uri, *place, _LINE.sub("", finding["message"])])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
