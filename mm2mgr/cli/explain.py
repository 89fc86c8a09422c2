"""The command explain: what a key does, what a rule of lint is about, or what the clients of a flow get. It contacts nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mm2mgr.cli.options import output_option
from mm2mgr.operations.workspace import Workspace

if TYPE_CHECKING:
    from mm2mgr.errors import Mm2mgrError
    from mm2mgr.render import Connector
    from mm2mgr.truth.keys import Keys
    from mm2mgr.truth.reach import ConnectorType

_TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


@click.command()
@click.argument("name", metavar="KEY|RULE|FLOW")
@click.option(
    "--on", metavar="CLASS", help="Connector type (source, checkpoint, heartbeat) or class. Default: all types."
)
@click.option("--kafka", metavar="VERSION", help="Kafka version of the workers. Default: the newest known.")
@click.option("--all", "everything", is_flag=True, help="For a FLOW: also settings that keep Kafka's defaults.")
@output_option
@click.pass_obj
def explain(workspace: Workspace, name: str, on: str | None, kafka: str | None, everything: bool, output: str) -> None:
    """Explain a Kafka KEY, a lint RULE, or the clients of a FLOW.

    For a KEY, however it is spelled: what it does, and what to write instead. For a FLOW: the settings of each client. Use
    the id of a flow whose name is also a key or a rule. Exit code 1 for an unknown name.

    \b
    Example:
      mm2mgr explain producer.batch.size
      mm2mgr explain source.cluster.client.rack --on source --kafka 3.9
      mm2mgr explain wrong-kafka
      mm2mgr explain 'logging:dc1-logging->agg-east'
    """
    from mm2mgr.errors import Mm2mgrError
    from mm2mgr.output.console import say_json
    from mm2mgr.output.lint_text import say_client_settings, say_explanation, say_rule
    from mm2mgr.truth.explain import explain as explain_key
    from mm2mgr.truth.keys import load

    keys = load()
    types, version = _types(on), version_of(kafka, keys)
    try:
        explanation = explain_key(name, types, version, keys).to_dict()
    except Mm2mgrError as unknown:  # no key: a rule, else a flow if the tree has one
        if rule := _rule(name):
            return say_json(rule) if output == "json" else say_rule(rule)
        connectors = _connectors(workspace, name)
        if not connectors:
            raise _with_nearest_rule(name, unknown) from None
        once = {name for name, connect in workspace.topology.connects.items() if connect.exactly_once}
        settings = [
            _settings(each, version, keys, exactly_once=each.connect in once, everything=everything)
            for each in connectors
            if each.type in types
        ]
        return say_json(settings) if output == "json" else say_client_settings(settings)
    return say_json(explanation) if output == "json" else say_explanation(explanation)


def _types(on: str | None) -> tuple[ConnectorType, ...]:
    """Return the connector types that people mean by a type or by a class name."""
    if on is None:
        return _TYPES
    word = on.rpartition(".")[2].lower().removesuffix("connector").removeprefix("mirror")
    found = tuple(type_ for type_ in _TYPES if type_ == word)
    if not found:
        raise click.BadParameter(f"'{on}' is none of {', '.join(_TYPES)}", param_hint="--on")
    return found


def version_of(kafka: str | None, keys: Keys) -> str:
    """Return the release that a line such as 3.9 or a vendor's version such as 7.9.0-ccs stands for, or the version as given."""
    from mm2mgr.truth.versions import kafka_version

    version = (kafka_version(kafka) or kafka) if kafka else keys.lines[-1]
    try:
        line = keys.line(version)
    except ValueError as error:
        raise click.BadParameter(f"'{version}' is no version such as 3.9 or 4.3.1", param_hint="--kafka") from error
    if not f"{version}.".startswith(f"{line}."):
        from mm2mgr.output.console import talk

        talk(f"Kafka {version} is not among the lines that were read ({', '.join(keys.lines)}): judged by {line}")
    return keys.releases.get(version, version)


def _rule(name: str) -> dict[str, Any] | None:
    from mm2mgr.lint.catalogue import BY_ID

    return BY_ID[name].to_dict() if name in BY_ID else None


def _with_nearest_rule(name: str, unknown: Mm2mgrError) -> Mm2mgrError:
    from difflib import get_close_matches

    from mm2mgr.errors import Mm2mgrError
    from mm2mgr.lint.catalogue import BY_ID

    near = get_close_matches(name, BY_ID, n=1, cutoff=0.75)
    return Mm2mgrError(unknown.message, hint=f"nearest rule of lint: {near[0]}") if near else unknown


def _connectors(workspace: Workspace, name: str) -> list[Connector]:
    """Return the connectors of the flows with this name, [] when there is no tree or no such flow in it."""
    from mm2mgr.errors import Mm2mgrError

    if not any(path.exists() for path in workspace.files):
        return []
    topology = workspace.topology  # a broken tree is told as such
    try:
        wanted = {flow.id for flow in topology.select(name)}
    except Mm2mgrError:
        if "->" in name:  # meant as a flow: say which there are
            raise
        return []
    return [connector for connector in workspace.connectors if wanted & set(connector.flows)]


def _settings(
    connector: Connector, version: str, keys: Keys, *, exactly_once: bool, everything: bool
) -> dict[str, Any]:
    from mm2mgr.secrets import mask
    from mm2mgr.truth.explain_flow import client_settings, kafka_defaults

    clients = []
    found = client_settings(
        connector.type, connector.config, connector.origins, version, keys, exactly_once=exactly_once
    )
    for each in found:
        values = [*each.values, *(kafka_defaults(each, version, keys) if everything else ())]
        shown = [asdict(value) | {"value": mask(value.key, value.value)} for value in values]
        client = each.client
        clients.append(
            {
                "client": client.name,
                "kind": client.kind,
                "side": client.side,
                "below": [f"{prefix}*" for prefix in client.worker_prefixes],  # of the workers, unknown here
                "values": shown,
            }
        )
    return {
        "connector": connector.name,
        "type": connector.type,
        "connect": connector.connect,
        "kafka": version,
        "clients": clients,
    }
