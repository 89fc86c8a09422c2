"""What the workers of a Connect cluster say of themselves, as lint's Worker; and all that a live one runs, as lint's Estate.

In: a client or a target. Out: values of mm2mgr.lint.subject. Reads and validates only: nothing is created or changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from mm2mgr.connect.client import Connect
from mm2mgr.connect.errors import ConnectError
from mm2mgr.connect.probe import CONNECTOR_CLASS, PREFIXES, Probe, probe
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import Plugin, WorkerInfo
from mm2mgr.lint.subject import Estate, Silence, Spot, Subject
from mm2mgr.lint.subject import WorkerFacts as Worker
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.keys import kafka_version
from mm2mgr.truth.reach import type_of

SILENCE_PREFIX = "mm2mgr.silence."
# "1" can be read as a number, as text or as a list, but not as these; and errors are searched for what is sent as a password.
_HARMLESS = {"boolean": "true", "class": "java.lang.Object", "password": "mm2mgr-probe"}


async def read_worker(client: Connect, overrides: Mapping[str, str]) -> Worker:
    """Return what the answering worker says; its policy is None when the probe failed. `overrides`: see `harmless`."""
    worker, _ = await ask_worker(client, overrides)
    return worker


async def ask_worker(
    client: Connect, overrides: Mapping[str, str], root: WorkerInfo | None = None
) -> tuple[Worker, ConnectError | None]:
    """Return what the answering worker says, and why the probe failed if it did; three requests at once, two with its `root`.

    Raises ConnectError when version and Kafka cluster, or the plugins, cannot be read.
    """
    found, plugins, answered = await asyncio.gather(
        _probed(client, overrides), client.plugins(), client.root() if root is None else _known(root)
    )
    failed = found if isinstance(found, ConnectError) else None
    return _worker(answered, plugins, None if isinstance(found, ConnectError) else found), failed


async def read_live(target: ConnectTarget, deadline_seconds: float = 30.0) -> Estate:
    """Return every MirrorMaker connector that a Connect cluster runs, owned or not, with what its workers say.

    Raises ConnectError when the connectors cannot be read within the deadline; a policy that cannot be found is unknown.
    """
    async with Connect(target, deadline_seconds=deadline_seconds) as client:
        infos, statuses = await asyncio.gather(client.infos(), client.statuses())
        worker = await read_worker(client, harmless(key for info in infos.values() for key in info.config))
    states = {name: status.state for name, status in statuses.items()}
    subjects = (subject_of(target.name, name, info.config, states.get(name), worker) for name, info in infos.items())
    return Estate(tuple(subject for subject in subjects if subject), complete=True)


def harmless(keys: Iterable[str]) -> dict[str, str]:
    """Return the override keys among config keys, each with a value of its type that means nothing.

    A worker parses overrides before it asks its policy, and a placeholder would make it read a secret.
    """
    known = truth_keys.load()
    newest = known.releases[known.lines[-1]]
    found = {}
    for key in keys:
        if key.startswith(PREFIXES):
            kind, _, plain = key.split(".", 2)
            definition = known.find(kind, plain, newest)
            found[key] = _HARMLESS.get(definition.type if definition else "", "1")
    return found


async def _known(root: WorkerInfo) -> WorkerInfo:
    return root


async def _probed(client: Connect, overrides: Mapping[str, str]) -> Probe | ConnectError:
    try:
        return await probe(client, overrides)
    except ConnectError as error:
        return error


def version_of(root: WorkerInfo) -> Worker:
    """Return what a worker says of itself without being asked for its plugins and its policy."""
    return Worker(version=kafka_version(root.version), cluster_id=root.kafka_cluster_id or None)


def _worker(root: WorkerInfo, plugins: Iterable[Plugin], found: Probe | None) -> Worker:
    # What MirrorMaker's keys do follows its plugin's version, which may differ from the worker's own.
    versions = [plugin.version for plugin in plugins if plugin.class_name == CONNECTOR_CLASS]
    placed = (kafka_version(text) for text in (*versions, root.version))
    return Worker(
        version=next((version for version in placed if version), None),
        policy=found.policy if found else None,
        refused=found.refused if found else {},
        allowed=found.allowed if found else frozenset(),
        exactly_once=found.exactly_once if found else None,
        cluster_id=root.kafka_cluster_id or None,
        plugins=frozenset(plugin.class_name for plugin in plugins),
    )


def subject_of(connect: str, name: str, config: Mapping[str, str], state: str | None, worker: Worker) -> Subject | None:
    """Return a connector that runs as lint sees it, None for one that is not MirrorMaker's."""
    type_ = type_of(config.get("connector.class", ""))
    if type_ is None:
        return None
    spot = Spot(connect=connect, connector=name)
    silences = tuple(_silences(config, spot))
    return Subject(name, type_, config, spot, worker=worker, state=state, silences=silences)


def _silences(config: Mapping[str, str], spot: Spot) -> Iterator[Silence]:
    for key, reason in config.items():
        if key.startswith(SILENCE_PREFIX):
            yield Silence(key.removeprefix(SILENCE_PREFIX), reason, spot.at(key))
