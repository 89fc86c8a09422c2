"""Lint with what brokers and workers said in the place of what the tree declares. In: the tree and the facts. Out: findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mm2mgr.lint.findings import Finding
from mm2mgr.lint.run import lint
from mm2mgr.lint.subject import KafkaFacts as Kafka
from mm2mgr.lint.subject import Subject
from mm2mgr.lint.subject import WorkerFacts as Worker
from mm2mgr.lint.tree import from_tree
from mm2mgr.render import Connector
from mm2mgr.topology import Topology

if TYPE_CHECKING:
    from mm2mgr.spec.loader import Spec


def findings(  # noqa: PLR0913 - the tree is three values, and three are facts
    topology: Topology,
    connectors: Sequence[Connector],
    spec: Spec | None,
    *,
    facts: Mapping[str, Kafka],
    workers: Mapping[str, Worker],
    complete: bool,
) -> list[Finding]:
    """Return what lint finds, `facts` by alias and `workers` by Connect cluster; `complete`: these are all connectors."""
    estate = from_tree(topology, connectors, spec)
    subjects = tuple(
        _informed(subject, facts, workers.get(connector.connect), topology.connects[connector.connect].kafka)
        for subject, connector in zip(estate.subjects, connectors, strict=True)
    )
    return lint(replace(estate, subjects=subjects, complete=complete))


def _informed(subject: Subject, facts: Mapping[str, Kafka], told: Worker | None, lives_on: str) -> Subject:
    declared = subject.worker
    # Workers that do not answer are taken to live where the tree says, whatever id that cluster turned out to have.
    worker = told or replace(declared, cluster_id=facts[lives_on].cluster_id if lives_on in facts else None)
    once = declared.exactly_once if worker.exactly_once is None else worker.exactly_once
    return replace(
        subject,
        worker=replace(worker, version=worker.version or declared.version, exactly_once=once),
        source_kafka=facts.get(subject.source, subject.source_kafka),
        target_kafka=facts.get(subject.target, subject.target_kafka),
    )
