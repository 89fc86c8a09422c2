"""All rules of lint, and how they run: hits become findings, equal ones of a line are merged, silences apply.

A rule is a decorated function in one of these modules; a new module needs its name in one of the lists here. `RULES`
and `BY_ID` import all of them when they are first asked for; plan and apply import only those that may block a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any

from mm2mgr.formats.templates import template_in
from mm2mgr.lint.findings import SEVERITIES, Edit, Finding, Hit, Rule, line_key, rules_of
from mm2mgr.lint.subject import Estate, SourceFile, Spot, Subject, SubjectKind

# In the order in which people read them.
_OF_CONNECTORS = (
    *("keys", "values", "refusals", "addresses", "worker", "security", "logins", "records", "transforms"),
    *("sizes", "links", "topics", "patterns", "sync", "loops", "pair"),
)
# No error of these is about a connector of a tree: hints, and what only other files have.
_BESIDE = ("files", "deployments", "advice")

RULES: tuple[Rule, ...]
BY_ID: Mapping[str, Rule]


def __getattr__(name: str) -> Any:
    if name == "RULES":
        return _rules((*_OF_CONNECTORS, *_BESIDE))
    if name == "BY_ID":
        return {rule.id: rule for rule in _rules((*_OF_CONNECTORS, *_BESIDE))}
    raise AttributeError(name)


@cache
def _rules(modules: tuple[str, ...]) -> tuple[Rule, ...]:
    return rules_of(*(import_module(f"{__name__}.{module}") for module in modules))


def of_connectors() -> tuple[Rule, ...]:
    """Return the rules that plan and apply choose from: all that can report an error about a connector of a tree."""
    return _rules(_OF_CONNECTORS)


def lint(estate: Estate, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """Return every finding of all rules or of some, silenced ones too (they carry the reason)."""
    every = _rules((*_OF_CONNECTORS, *_BESIDE)) if rules is None else rules
    return sort_findings(finding for finding, _ in find(estate, every))


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings as they are shown: equal ones of one line merged, the worst first."""
    return sorted(
        _merge(findings), key=lambda finding: (SEVERITIES.index(finding.severity), finding.spot, finding.rule)
    )


def find(estate: Estate, rules: Sequence[Rule]) -> Iterator[tuple[Finding, Hit]]:
    """Yield every finding, its silence applied, with the hit that it was made from."""
    judged = ((rule, hit) for rule, hit in _hits(rules, estate) if not _judges_template(rule, hit))
    for rule, hit in ((rule, _without_edits_in_templates(hit)) for rule, hit in judged):
        spot = hit.spot or (hit.subject.spot_of(hit.key) if hit.subject else Spot())
        reason = silence_of(rule.id, spot, hit.subjects, estate.files)
        severity, key = hit.severity or rule.severity, spot.key or _key(hit)
        yield Finding(rule.id, severity, spot, hit.message, hit.fix, silenced=reason, key=key, hit=hit), hit


_OF_ANY_VALUE = f"{__name__}.keys"  # rules about keys whatever their values are
_OF_TEMPLATES = "placeholder-unfilled"


def _judges_template(rule: Rule, hit: Hit) -> bool:
    """Tell whether a hit is about a value that a template fills in: what it will be is not known, see `unjudged`."""
    value = hit.subject.config.get(hit.key, "") if hit.subject else ""
    of_keys = rule.id == _OF_TEMPLATES or (rule.check is not None and rule.check.__module__ == _OF_ANY_VALUE)
    return bool(template_in(value)) and not of_keys


def _without_edits_in_templates(hit: Hit) -> Hit:
    inside = any(_is_in_template(edit, edit.of or hit.subject) for edit in hit.edits)
    return replace(hit, edits=()) if inside else hit


def _is_in_template(edit: Edit, subject: Subject | None) -> bool:
    old = edit.at.value if edit.at else subject.config.get(edit.key, "") if subject else ""
    return edit.value not in (None, old) and bool(template_in(old))


def _key(hit: Hit) -> str:
    return line_key(hit.subject, hit.key) if hit.subject and hit.subject.form == "dedicated" and hit.key else hit.key


def silence_of(rule: str, spot: Spot, subjects: Iterable[Subject], files: Iterable[SourceFile]) -> str | None:
    """Return the reason of the first silence: a connector's cover all of it, a comment's its line and the next."""
    silences = [silence for subject in subjects for silence in subject.silences]
    silences += [
        silence
        for file in files
        if file.path == spot.file
        for silence in file.silences
        if spot.line - silence.spot.line in (0, 1)
    ]
    # One without a reason switches nothing off.
    return next((silence.reason for silence in silences if silence.rule == rule and silence.reason), None)


def _hits(rules: Sequence[Rule], estate: Estate) -> Iterator[tuple[Rule, Hit]]:
    for rule in rules:
        if rule.over:
            yield from ((rule, hit) for hit in rule.over(estate.known_lines_only))
    groups: dict[SubjectKind, list[_Group]] = {}
    loud: dict[tuple[object, ...], list[Rule]] = {}  # what is left to ask connectors that are alike to a group
    for subject in estate.subjects:
        if subject.kind not in groups:
            groups[subject.kind] = _groups(rules, subject.kind)
        for group in groups[subject.kind]:
            alike = group.id, id(subject.worker), subject.spot.file, *map(subject.config.get, group.keys)
            if group.addresses:
                alike = *alike, *(bool(subject.get(key)) for key in group.addresses)
            is_first = bool(group.quick) and alike not in loud
            quiet = []
            for rule in loud.get(alike, group.rules):
                hit = None
                for hit in rule.check(subject) if rule.check else ():
                    yield rule, replace(hit, subject=subject)
                if is_first and hit is None and rule.id in group.quick:
                    quiet.append(rule.id)
            if is_first:
                loud[alike] = [rule for rule in group.rules if rule.id not in quiet]


@dataclass(frozen=True)
class _Group:
    """The rules of one module that have something to ask of a kind of connectors.

    The `quick` ones read the values of `keys`, and whether there are `addresses`.
    """

    id: tuple[str, int]
    rules: list[Rule]
    quick: frozenset[str]
    keys: tuple[str, ...]
    addresses: tuple[str, ...]


def _groups(rules: Sequence[Rule], kind: SubjectKind) -> list[_Group]:
    asking = [rule for rule in rules if rule.asks(kind)]  # most rules have nothing to ask of most connectors
    return [_group(list(group), kind) for _, group in groupby(asking, lambda rule: rule.module)]


def _group(rules: list[Rule], kind: SubjectKind) -> _Group:
    # In mm2.properties the scopes of the lines decide too.
    reads = {rule.id: rule.reads(kind) for rule in rules if rule.reads and kind.form != "dedicated"}
    quick = {id: keys for id, keys in reads.items() if keys is not None}
    keys = {key: key.endswith("bootstrap.servers") for names in quick.values() for key in names}
    values, addresses = (tuple(key for key in keys if keys[key] == is_address) for is_address in (False, True))
    return _Group((rules[0].id, id(kind)), rules, frozenset(quick), values, addresses)


def _merge(findings: Iterable[Finding]) -> list[Finding]:
    """Merge equal findings of one line: in a tree or an mm2.properties one line concerns many connectors."""
    first: dict[object, Finding] = {}
    for finding in findings:
        spot = finding.spot
        # Connector and key, for a whole answer of Connect may be on one line; without a key a line may have several
        # faults,
        # in a tree one that becomes several keys.
        of_tree = (
            finding.hit and finding.hit.subject and finding.hit.subject.form == "tree" and finding.rule != "known-bug"
        )
        where = (finding.rule, spot, "" if spot.line and (spot.key or of_tree) else finding.message)
        merged = first.setdefault(where, finding)
        if merged is not finding:
            first[where] = replace(merged, more=merged.more + 1)
    return list(first.values())
