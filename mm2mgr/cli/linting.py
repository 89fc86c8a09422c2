"""How `lint` goes about it: the inputs become one estate, the rules run over it, and the findings are printed.

What cannot be read of several Connect clusters is told, and the rest is looked at all the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from mm2mgr.errors import Mm2mgrError, SpecError
from mm2mgr.lint import subject as lint_subject
from mm2mgr.lint.catalogue import BY_ID, RULES
from mm2mgr.lint.findings import SEVERITIES, Finding
from mm2mgr.lint.reading import TREE_KEYS, Surroundings, read_files, read_worker
from mm2mgr.lint.run import lint
from mm2mgr.lint.subject import Kafka, Subject, Wire, Worker
from mm2mgr.operations.workspace import Workspace
from mm2mgr.output.console import complain, say_json
from mm2mgr.output.lint_text import say_findings, say_rules
from mm2mgr.output.sarif import sarif

if TYPE_CHECKING:
    from mm2mgr.connect.target import ConnectTarget

USER, PASSWORD = "MM2MGR_CONNECT_USER", "MM2MGR_CONNECT_PASSWORD"
Facts = TypeVar("Facts", Worker, Kafka)


@dataclass(frozen=True)
class Order:
    """What the user asked `lint` to look at, and what they know of its surroundings."""

    files: tuple[Path, ...] = ()
    connects: tuple[str, ...] = ()
    kafka: str | None = None
    worker: Path | None = None
    rtt_seconds: float | None = None
    bytes_per_second: float | None = None
    brokers: int | None = None
    timeout_seconds: float = 30.0


@dataclass(frozen=True)
class Look:
    """What was read: the connectors, findings of a tree that could not be compiled, and what could not be read.

    `other` are connectors that run with another config than the one that a tree or a file gives them.
    """

    estate: lint_subject.Estate
    other: tuple[Subject, ...]
    invalid: tuple[Finding, ...]
    unread: tuple[Mm2mgrError, ...]
    looked_at: tuple[str, ...]


def run_lint(
    workspace: Workspace, order: Order, *, ignored: Sequence[str], fail_on: str, everything: bool, output: str
) -> int:
    """Print the findings; return 1 when one is as bad as `fail_on`, or an input could not be read."""
    refuse_unknown(ignored)
    look = look_at(workspace, order)
    rules = [rule for rule in RULES if rule.id not in ignored]
    found = [finding for finding in look.invalid if finding.rule not in ignored]
    found += [
        *lint(look.estate, rules),
        *lint(lint_subject.Estate(look.other), [rule for rule in rules if rule.check]),
    ]
    shown = [finding for finding in found if everything or finding.silenced is None]
    _print(_report(shown, found, look), output)
    for error in look.unread:
        complain(error.message, error.hint)
    return int(bool(look.unread) or is_bad(found, fail_on))


def is_bad(findings: Sequence[Finding], fail_on: str) -> bool:
    """Tell whether a finding that nobody silenced is as bad as `fail_on`, or worse."""
    bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on in SEVERITIES else ()
    return any(finding.silenced is None and finding.severity in bad for finding in findings)


def say_all_rules(output: str) -> int:
    """Print every rule."""
    if output == "sarif":
        raise click.UsageError("--rules has -o text and -o json")
    rules = [rule.to_dict() for rule in RULES]
    if output == "json":
        say_json(rules)
    else:
        say_rules(rules)
    return 0


def refuse_unknown(rules: Sequence[str]) -> None:
    """Refuse a rule that is none: a misspelt --ignore would silently do nothing."""
    for rule in rules:
        if rule not in BY_ID:
            near = get_close_matches(rule, BY_ID, n=1)
            nearest = f"; nearest: {near[0]}" if near else "; see mm2mgr lint --rules"
            raise click.BadParameter(f"there is no rule '{rule}'{nearest}", param_hint="--ignore")


def _report(shown: Sequence[Finding], found: Sequence[Finding], look: Look) -> dict[str, Any]:
    loud = [finding for finding in found if finding.silenced is None]
    counts = {f"{word}s": sum(finding.severity == word for finding in loud) for word in SEVERITIES}
    summary = {
        **counts,
        "silenced": len(found) - len(loud),
        "connectors": len(look.estate.subjects),
        "looked_at": list(look.looked_at),
        "unread": [error.message for error in look.unread],
    }
    return {"summary": summary, "findings": [finding.to_dict() for finding in shown]}


def _print(report: dict[str, Any], output: str) -> None:
    if output == "text":
        say_findings(report)
    elif output == "json":
        say_json(report)
    else:
        rules = [rule.to_dict() for rule in RULES]
        say_json(sarif(report["findings"], rules, Path.cwd(), report["summary"]["unread"]))


# --- reading ----------------------------------------------------------------------------------------------------------


def look_at(workspace: Workspace, order: Order) -> Look:
    """Read everything that was asked for into one estate; the tree when nothing was named."""
    known = _surroundings(order)
    trees = tuple(path for path in dict.fromkeys(order.files) if is_tree(path))
    files = [path for path in dict.fromkeys(order.files) if path not in trees]
    if trees:
        workspace = replace(workspace, files=trees)
    elif not files and not order.connects:
        trees = workspace.files
    connects = _targets(workspace, order.connects)
    declared, invalid = _tree(workspace, known) if trees else ((), ())
    live, unread = _live(connects, order.timeout_seconds) if connects else ([], {})
    if len(unread) == 1 and not trees and not files and not live:
        raise next(iter(unread.values()))
    parts, other = _as_one(
        [*declared, *([read_files(files, known)] if files else [])], [_completed(each, known) for each in live]
    )
    return Look(
        lint_subject.Estate(
            tuple(subject for part in parts for subject in part.subjects),
            tuple(file for part in parts for file in part.files),
            complete=all(part.complete for part in parts) and not (unread or invalid),
            logins=tuple(login for part in parts for login in part.logins),
        ),
        other,
        invalid,
        tuple(unread.values()),
        (*map(str, (*trees, *files)), *(name for name in connects if name not in unread)),
    )


def is_tree(path: Path) -> bool:
    """Tell whether a path is a tree for mm2mgr: a folder, or YAML that is no resource of Kubernetes."""
    if path.is_dir():
        return True
    if path.suffix.lower() not in {".yaml", ".yml"} or not path.exists():
        return False
    from mm2mgr.spec.places import read_yaml

    try:
        keys = {key for document in read_yaml(path) for key in document.values}
    except SpecError:
        return True  # the tree's reader says what is wrong, with its place
    return bool(keys & TREE_KEYS) and not keys & {"kind", "apiVersion"}


def _tree(workspace: Workspace, known: Surroundings) -> tuple[tuple[lint_subject.Estate, ...], tuple[Finding, ...]]:
    """Return the connectors of the tree, or what is wrong in it."""
    from mm2mgr.lint.tree import from_tree, invalid

    try:
        return (_completed(from_tree(workspace.topology, workspace.connectors, workspace.spec), known),), ()
    except SpecError as error:
        return (), tuple(invalid(error))


def _surroundings(order: Order) -> Surroundings:
    from mm2mgr.cli.explain import version_of
    from mm2mgr.truth.keys import load

    version = version_of(order.kafka, load()) if order.kafka else None
    worker = read_worker(order.worker) if order.worker else Worker()
    wire = None if order.rtt_seconds is None else Wire(order.rtt_seconds, order.bytes_per_second)
    kafka = Kafka(brokers=order.brokers)
    return Surroundings(version=version, worker=worker, wire=wire, source=kafka, target=kafka)


def _completed(estate: lint_subject.Estate, known: Surroundings) -> lint_subject.Estate:
    """Fill in what a tree or a Connect cluster did not say; the version is the user's word, so that an upgrade can be tried."""
    if known == Surroundings():
        return estate
    return replace(estate, subjects=tuple(_completed_one(subject, known) for subject in estate.subjects))


def _completed_one(subject: Subject, known: Surroundings) -> Subject:
    worker = _filled(subject.worker, known.worker)
    return replace(
        subject,
        worker=replace(worker, version=known.version or worker.version),
        source_kafka=_filled(subject.source_kafka, known.source),
        target_kafka=_filled(subject.target_kafka, known.target),
        wire=subject.wire or known.wire,
    )


def _filled(own: Facts, given: Facts) -> Facts:
    missing = [each.name for each in fields(own) if getattr(own, each.name) in (None, {})]
    return replace(own, **{name: getattr(given, name) for name in missing})


# --- what is declared and runs as well ----------------------------------------------------------------------------------


def _as_one(
    given: Sequence[lint_subject.Estate], live: Sequence[lint_subject.Estate]
) -> tuple[list[lint_subject.Estate], tuple[Subject, ...]]:
    """Leave out what runs of connectors that a tree or a file gives too: they are one, and would be told to mirror twice.

    The given ones get to know the real workers; second are those that run with another config.
    """
    running: dict[tuple[str, ...], list[Subject]] = {}
    for subject in (subject for part in live for subject in part.subjects):
        running.setdefault(_identity(subject), []).append(subject)
    twins = {subject: twin for part in given for subject in part.subjects if (twin := _twin(subject, running))}
    told = {subject: replace(subject, worker=_filled(twin.worker, subject.worker)) for subject, twin in twins.items()}
    gone = set(twins.values())
    parts = [replace(part, subjects=tuple(told.get(each, each) for each in part.subjects)) for part in given]
    parts += [replace(part, subjects=tuple(each for each in part.subjects if each not in gone)) for part in live]
    return parts, tuple(twin for subject, twin in twins.items() if dict(twin.config) != dict(subject.config))


def _identity(subject: Subject) -> tuple[str, ...]:
    return subject.name, subject.type, subject.source, subject.target


def _twin(subject: Subject, running: Mapping[tuple[str, ...], Sequence[Subject]]) -> Subject | None:
    """Return what runs of a connector; None where several Connect clusters run one of its name and nothing says which it is."""
    found = running.get(_identity(subject), ())
    here = [each for each in found if each.spot.connect == subject.connect] or found
    return here[0] if len(here) == 1 else None


# --- Connect clusters -------------------------------------------------------------------------------------------------


def _live(
    targets: Mapping[str, ConnectTarget], timeout_seconds: float
) -> tuple[list[lint_subject.Estate], dict[str, Mm2mgrError]]:
    """Read all Connect clusters at once; return what was read, and by name why a cluster was not."""
    from mm2mgr.reconcile.workers import read_live

    async def read(target: ConnectTarget) -> lint_subject.Estate | Mm2mgrError:
        try:
            return await read_live(target, timeout_seconds)
        except Mm2mgrError as error:
            return error

    async def read_all() -> list[lint_subject.Estate | Mm2mgrError]:
        return await asyncio.gather(*map(read, targets.values()))

    answers = asyncio.run(read_all())
    unread = {name: each for name, each in zip(targets, answers, strict=True) if isinstance(each, Mm2mgrError)}
    return [each for each in answers if not isinstance(each, Mm2mgrError)], unread


def _targets(workspace: Workspace, names: Sequence[str]) -> dict[str, ConnectTarget]:
    """Return each Connect cluster once, whether it is given by its name in the tree, by a URL, or by both."""
    found: dict[str, ConnectTarget] = {}
    for name in sorted(names, key=lambda name: "://" in name):  # a name brings its credentials
        target = _target(workspace, name)
        if all(set(target.urls).isdisjoint(other.urls) for other in found.values()):
            found[name] = target
    return found


def _target(workspace: Workspace, name: str) -> ConnectTarget:
    """Return where a Connect cluster is: a URL, or a name in the tree."""
    from mm2mgr.connect.target import BasicAuth, ConnectTarget
    from mm2mgr.endpoints import connect_target

    if "://" in name:
        user, password = os.environ.get(USER), os.environ.get(PASSWORD)
        if bool(user) != bool(password):
            raise Mm2mgrError(f"only one of ${USER} and ${PASSWORD} is set", hint="set both, or none")
        return ConnectTarget(_host(name), (name,), BasicAuth(user, password) if user and password else None)
    connects = workspace.topology.connects
    if name not in connects:
        hint = f"there are: {', '.join(connects)}; or give a URL: http://…"
        raise Mm2mgrError(f"the tree has no Connect cluster '{name}'", hint=hint)
    return connect_target(connects[name])


def _host(url: str) -> str:
    """Return host and port of a URL, never the user and password that somebody may have put there."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "--connect"
    except ValueError:
        return "--connect"
