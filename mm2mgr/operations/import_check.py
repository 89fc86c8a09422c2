"""`import --check` compares a tree with the connectors it was made from, client by client. Nothing is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.formats.connectors import FoundConnector, FoundWorkers
from mm2mgr.imports.effective import with_declared_workers
from mm2mgr.imports.equivalence import Equivalence, compare_connectors
from mm2mgr.operations.import_reading import ImportInputs, Source, known_version, read_import_sources
from mm2mgr.operations.workspace import Workspace
from mm2mgr.truth.keys import load


@dataclass(frozen=True)
class ImportCheck:
    """What sources and tree do not say. `kafka`: version of the workers; without it all known lines are compared, and
    what only some of them show is open, or only the newest with `assume_newest`, as an import judges.

    `worker` has the properties of the workers that run the old connectors, `topics` the list of topics of a
    MirrorMaker 1 whose command is not among the sources.
    """

    kafka: str | None = None
    worker: Path | None = None
    topics: str = ""
    assume_newest: bool = False

    @property
    def version(self) -> str | None:
        """The version to judge by where nothing says it; InvalidArgument for one that is not known."""
        if self.kafka is not None:
            known_version(self.kafka)
        newest = load().releases[load().lines[-1]] if self.assume_newest else None
        return self.kafka or newest


def check_import(
    workspace: Workspace, sources: Sequence[Source] | ImportInputs, options: ImportCheck = ImportCheck()
) -> Equivalence:
    """Compare what each client of the sources' connectors effectively gets with what it gets from a tree.

    `sources` may be what an import has read of them.
    """
    version = options.version
    read = sources if isinstance(sources, ImportInputs) else read_import_sources(sources, {}, options.topics)
    topology = workspace.topology
    new = [with_declared_workers(connector, topology.connects, topology.clusters) for connector in workspace.connectors]
    return compare_connectors(_with_workers(read.connectors, options.worker), new, version)


def _with_workers(connectors: Sequence[FoundConnector], worker: Path | None) -> list[FoundConnector]:
    """Return connectors with the properties of a file where their own say nothing of their workers."""
    if worker is None:
        return list(connectors)
    from mm2mgr.lint.reading import read_worker

    facts = read_worker(worker)
    workers = FoundWorkers(facts.properties or {}, facts.version, facts.policy)
    return [replace(connector, workers=connector.workers or workers) for connector in connectors]
