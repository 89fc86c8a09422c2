"""Several inputs as one estate: a tree or files, what runs on Connect clusters, and what the user knows of their surroundings. Pure
but for `is_tree`, which reads a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from mm2mgr.errors import SpecError
from mm2mgr.lint.reading import TREE_KEYS, Surroundings
from mm2mgr.lint.subject import Estate, KafkaFacts, Subject, WorkerFacts
from mm2mgr.spec.places import read_yaml

Facts = TypeVar("Facts", WorkerFacts, KafkaFacts)


def is_tree(path: Path) -> bool:
    """Tell whether a path is a tree for mm2mgr: a folder, or YAML that is no resource of Kubernetes."""
    if path.is_dir():
        return True
    if path.suffix.lower() not in {".yaml", ".yml"} or not path.exists():
        return False
    try:
        keys = {key for document in read_yaml(path) for key in document.values}
    except SpecError:
        return True  # the tree's reader reports what is wrong, with its place
    return bool(keys & TREE_KEYS) and not keys & {"kind", "apiVersion"}


def completed(estate: Estate, known: Surroundings) -> Estate:
    """Fill in unknown facts from what the user knows; the user's Kafka version wins, so that an upgrade can be tried."""
    if known == Surroundings():
        return estate
    return replace(estate, subjects=tuple(_completed(subject, known) for subject in estate.subjects))


def _completed(subject: Subject, known: Surroundings) -> Subject:
    worker = _filled(subject.worker, known.worker)
    return replace(
        subject,
        worker=replace(worker, version=known.version or worker.version),
        source_kafka=_filled(subject.source_kafka, known.source),
        target_kafka=_filled(subject.target_kafka, known.target),
        wire=subject.wire or known.wire,
    )


def _filled(own: Facts, known: Facts) -> Facts:
    missing = [each.name for each in fields(own) if getattr(own, each.name) in (None, {})]
    return replace(own, **{name: getattr(known, name) for name in missing})


def joined(declared: Sequence[Estate], live: Sequence[Estate]) -> tuple[list[Estate], tuple[Subject, ...]]:
    """Return the estates, each connector once, and the connectors that run with another config than the declared one.

    A connector that is declared and runs counts as declared, with the real workers' facts; twice it would mirror twice.
    """
    running: dict[tuple[str, ...], list[Subject]] = {}
    for subject in (subject for estate in live for subject in estate.subjects):
        running.setdefault(_identity(subject), []).append(subject)
    twins = {subject: twin for estate in declared for subject in estate.subjects if (twin := _twin(subject, running))}
    informed = {
        subject: replace(subject, worker=_filled(twin.worker, subject.worker)) for subject, twin in twins.items()
    }
    gone = set(twins.values())
    estates = [replace(one, subjects=tuple(informed.get(each, each) for each in one.subjects)) for one in declared]
    estates += [replace(one, subjects=tuple(each for each in one.subjects if each not in gone)) for one in live]
    return estates, tuple(twin for subject, twin in twins.items() if dict(twin.config) != dict(subject.config))


def _identity(subject: Subject) -> tuple[str, ...]:
    return subject.name, subject.type, subject.source, subject.target


def _twin(subject: Subject, running: Mapping[tuple[str, ...], Sequence[Subject]]) -> Subject | None:
    """Return the running connector of a declared one; None where several Connect clusters run it and none is declared."""
    found = running.get(_identity(subject), ())
    here = [each for each in found if each.spot.connect == subject.connect] or found
    return here[0] if len(here) == 1 else None
