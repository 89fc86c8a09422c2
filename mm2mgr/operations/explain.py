"""The operation `explain`: what a key does, what a rule of lint is about, or what each client of a flow gets. Contacts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.lint.rules import BY_ID
from mm2mgr.operations.workspace import Workspace
from mm2mgr.secrets import mask
from mm2mgr.text import nearest
from mm2mgr.truth.explain import explain as explain_key
from mm2mgr.truth.keys import Keys, kafka_version, load
from mm2mgr.truth.reach import ConnectorType, client_settings, kafka_defaults

if TYPE_CHECKING:
    from mm2mgr.render import Connector

_TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


@dataclass(frozen=True)
class OtherLine:
    """A Kafka version is none of the known `lines` (such as 3.9), and judged by one of them."""

    version: str
    judged_by: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Explained:
    """An explanation of a key, a rule, or the clients of a flow, as JSON-ready values: a dict, of a flow a list per connector."""

    kind: Literal["key", "rule", "flow"]
    value: Any


def explain(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    name: str,
    *,
    on: str | None = None,
    kafka: str | None = None,
    everything: bool = False,
    report: Callable[[OtherLine], None] = lambda event: None,
) -> Explained:
    """Explain a key, however it is spelled; else the rule, else the flow of this name. Mm2mgrError when there is none.

    `on` is a connector type or class (None: all three), `kafka` the workers' version (None: the newest known line). With
    `everything` a flow's clients are shown with Kafka's defaults too. `report` gets the line that another version is judged by.
    """
    keys = load()
    types, version = _types(on), workers_version(kafka, report)
    try:
        return Explained("key", explain_key(name, types, version, keys).to_dict())
    except Mm2mgrError as unknown:
        if name in BY_ID:
            return Explained("rule", BY_ID[name].to_dict())
        connectors = _connectors(workspace, name)
        if not connectors:
            raise _with_nearest_rule(name, unknown) from None
    once = {name for name, connect in workspace.topology.connects.items() if connect.exactly_once}
    found = [
        _settings(each, version, keys, exactly_once=each.connect in once, everything=everything)
        for each in connectors
        if each.type in types
    ]
    return Explained("flow", found)


def workers_version(kafka: str | None, report: Callable[[OtherLine], None]) -> str:
    """Return the Kafka release that is meant by a line (3.9), a vendor's version (7.9.0-ccs) or a release; None: the newest."""
    keys = load()
    version = (kafka_version(kafka) or kafka) if kafka else keys.lines[-1]
    try:
        line = keys.line(version)
    except ValueError as error:
        raise InvalidArgument("kafka", f"'{version}' is not a version such as 3.9 or 4.3.1") from error
    if not f"{version}.".startswith(f"{line}."):
        report(OtherLine(version, line, keys.lines))
    return keys.releases.get(version, version)


def _types(on: str | None) -> tuple[ConnectorType, ...]:
    """Return the connector types that are meant by a type or by a class name."""
    if on is None:
        return _TYPES
    word = on.rpartition(".")[2].lower().removesuffix("connector").removeprefix("mirror")
    found = tuple(type_ for type_ in _TYPES if type_ == word)
    if not found:
        raise InvalidArgument("on", f"'{on}' is not one of {', '.join(_TYPES)}")
    return found


def _with_nearest_rule(name: str, unknown: Mm2mgrError) -> Mm2mgrError:
    near = nearest(name, BY_ID, 0.75)
    return Mm2mgrError(unknown.message, hint=f"nearest rule of lint: {near[0]}") if near else unknown


def _connectors(workspace: Workspace, name: str) -> Sequence[Connector]:
    """Return the connectors of the flows with this name, [] when there is no tree or no such flow in it."""
    if not any(path.exists() for path in workspace.files):
        return []
    topology = workspace.topology  # the errors of a broken tree are raised here
    try:
        flows = topology.select(name)
    except Mm2mgrError:
        if "->" in name:  # meant as a flow: the error lists those there are
            raise
        return []
    return workspace.connectors_of(flows)


def _settings(
    connector: Connector, version: str, keys: Keys, *, exactly_once: bool, everything: bool
) -> dict[str, Any]:
    clients = []
    found = client_settings(
        connector.type, connector.config, connector.origins, version, keys, exactly_once=exactly_once
    )
    for each in found:
        values = [*each.values, *(kafka_defaults(each, version, keys) if everything else ())]
        client = each.client
        clients.append(
            {
                "client": client.name,
                "kind": client.kind,
                "side": client.side,
                "below": [f"{prefix}*" for prefix in client.worker_prefixes],  # of the workers, unknown here
                "values": [asdict(value) | {"value": mask(value.key, value.value)} for value in values],
            }
        )
    return {
        "connector": connector.name,
        "type": connector.type,
        "connect": connector.connect,
        "kafka": version,
        "clients": clients,
    }
