"""The operations on the sandbox: real brokers and workers on this machine, and a tree for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mm2mgr.sandbox.folder import Endpoints, check_tree, write_tree
from mm2mgr.sandbox.layout import DEFAULT_DIRECTORY, ProcessState, Sandbox, create_topic, produce, topics


@dataclass(frozen=True)
class SandboxUp:
    """A running sandbox: where it answers, and the tree that was written for it."""

    endpoints: Endpoints
    tree: Path


def sandbox_up(directory: Path = DEFAULT_DIRECTORY, *, report: Callable[[str], None] = lambda line: None) -> SandboxUp:
    """Start what is not running and write its tree to DIRECTORY/clusters; files there that were edited are kept.

    SandboxError, with nothing touched, when the directory holds anything but a sandbox. `report` gets lines of
    progress.
    """
    sandbox, tree = Sandbox(directory), directory / "clusters"
    if sandbox.check():
        check_tree(tree)
    endpoints = sandbox.start(progress=report)
    return SandboxUp(endpoints, write_tree(tree, endpoints))


def sandbox_status(directory: Path = DEFAULT_DIRECTORY) -> list[ProcessState]:
    """Return each broker and worker, running or not; none when nothing was started there."""
    return Sandbox(directory).status()


def sandbox_down(directory: Path = DEFAULT_DIRECTORY, *, report: Callable[[str], None] = lambda line: None) -> None:
    """Stop what `sandbox_up` started and remove its data."""
    Sandbox(directory).stop(progress=report)


def sandbox_topics(cluster: str, *, directory: Path = DEFAULT_DIRECTORY) -> dict[str, int]:
    """Return the number of partitions of each topic on a Kafka cluster of the sandbox, without Kafka's own topics."""
    return topics(directory, cluster)


def sandbox_create_topic(cluster: str, topic: str, partitions: int = 1, *, directory: Path = DEFAULT_DIRECTORY) -> bool:
    """Create a topic; return False where it exists already, and is left as it is."""
    return create_topic(directory, cluster, topic, partitions)


def sandbox_produce(cluster: str, topic: str, values: Iterable[bytes], *, directory: Path = DEFAULT_DIRECTORY) -> int:
    """Write a record per value to the partitions in turn; return the number of records once all are stored."""
    return produce(directory, cluster, topic, values)
