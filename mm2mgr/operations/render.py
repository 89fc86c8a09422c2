"""The operations on the tree alone: `init` writes a starter, `schema` describes the files, `render` compiles them, and
`rules` makes alerting rules of Prometheus and a dashboard of Grafana from them. No network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NotRequired, TypedDict

from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError, absolute_url
from mm2mgr.operations.workspace import Workspace
from mm2mgr.secrets import mask_config
from mm2mgr.spec.files import write_starter, yaml_text
from mm2mgr.spec.mistakes import json_schema

if TYPE_CHECKING:
    from mm2mgr.export import Export, ExportFormat, StrimziApi
    from mm2mgr.imports.equivalence import SettingDifference

_LONGEST_NAME = 50


class ConnectorDocument(TypedDict):
    """A connector as JSON, secrets masked; `origins` has the file and line of each key."""

    connector: str
    connect: str
    type: str
    flows: tuple[str, ...]
    config: Mapping[str, str]
    origins: NotRequired[Mapping[str, str]]


@dataclass(frozen=True)
class Rendered:
    """Connectors with their configs; inline secrets are in `connectors`, and masked in `to_dict`."""

    connectors: tuple[Connector, ...]

    def to_dict(self, *, origins: bool = False) -> list[ConnectorDocument]:
        """Return JSON-ready values per connector, with `origins` also the file and line of each key."""
        return [_document(connector, origins=origins) for connector in self.connectors]


def init(folder: Path = Path("clusters")) -> list[Path]:
    """Write a commented starter tree and return its files. Mm2mgrError, with nothing written, if one of them exists."""
    return write_starter(folder)


def schema() -> dict[str, object]:
    """Return the JSON Schema of the YAML files."""
    return dict(json_schema())


def render(workspace: Workspace, flows: Sequence[str] = ()) -> Rendered:
    """Return the connectors that serve flows, all by default."""
    return Rendered(workspace.connectors_of(workspace.flows(flows)))


def export(
    workspace: Workspace, flows: Sequence[str] = (), form: ExportFormat = "json", api: StrimziApi = "v1beta2"
) -> Export:
    """Return the connectors that serve flows, all by default, in the form of another tool.

    The text is read back, and each client must get what it gets from the tree; what differs is a refusal. `api` is the
    version of Strimzi's resources.
    """
    from mm2mgr.export import ExportRefusal
    from mm2mgr.export import export as write_export
    from mm2mgr.formats.recognise import read_file
    from mm2mgr.imports.effective import with_declared_workers
    from mm2mgr.imports.equivalence import compare_connectors
    from mm2mgr.truth.keys import load

    topology, connectors = workspace.topology, workspace.connectors_of(workspace.flows(flows))
    result = write_export(connectors, topology, form, api)
    if result.refusals or not connectors:
        return result
    declared = [with_declared_workers(connector, topology.connects, topology.clusters) for connector in connectors]
    newest = load().releases[load().lines[-1]]
    read = [read_file(Path(f"export/{file.name}"), file.text.encode()) for file in result.files]
    written = [
        replace(connector, state=connector.state or ("RUNNING" if form != "properties" else None))
        for file in read
        for connector in file.connectors
    ]
    compared = compare_connectors(declared, written, newest)
    refusals = tuple(
        ExportRefusal(
            row.connector, row.key, _unequal(row), "declare it so that both are equal, or choose another format"
        )
        for row in (*compared.differences, *compared.open)
    )
    return replace(result, files=(), document="", refusals=refusals) if refusals else result


def _unequal(row: SettingDifference) -> str:
    would = f"the {row.client or 'connector'} would get {row.shown_new or 'nothing'}"
    return f"{would} instead of {row.shown_old or 'nothing'} ({row.changes})"


def write_export(export: Export, folder: Path) -> list[Path]:
    """Write the files of an export into a new or empty folder, all or none, and return them; Mm2mgrError otherwise."""
    if export.refusals:
        raise Mm2mgrError(f"{len(export.refusals)} settings cannot be said as {export.format}: nothing is written")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Mm2mgrError(f"{folder}: is not an empty folder", hint="name a new one: nothing is overwritten")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            begun = Path(name) / folder.name
            begun.mkdir()
            for file in export.files:
                (begun / file.name).write_text(file.text, encoding="utf-8")
            begun.replace(folder)
    except OSError as error:
        raise Mm2mgrError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return [folder / file.name for file in export.files]


def rules(workspace: Workspace, *, dashboard: bool = False, kubernetes: bool = False, runbooks: str = "") -> str:
    """Return a rule file for Prometheus as YAML, or a dashboard for Grafana as JSON.

    With `kubernetes`, a manifest with it as YAML: a PrometheusRule of the Prometheus Operator, or a ConfigMap with the
    label `grafana_dashboard`, for which Grafana's sidecar looks. `runbooks`: the address of the page that
    `runbook_url` of each rule leads to, with the anchors of mm2mgr's own page, which is referred to without it.
    InvalidArgument for one that is no http or https address.
    """
    from mm2mgr.problems.dashboard import dashboard_of  # `render` does without
    from mm2mgr.problems.monitoring import RUNBOOKS, rule_group

    if dashboard:
        dashboard_document = dashboard_of(workspace.topology)
        if not kubernetes:
            return json.dumps(dashboard_document, indent=2, ensure_ascii=False) + "\n"
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(workspace, {"grafana_dashboard": "1"})}
        return yaml_text(
            {**head, "data": {f"{_name(workspace)}.json": json.dumps(dashboard_document, ensure_ascii=False)}}
        )
    groups = {"groups": [rule_group(workspace.topology, absolute_url("runbooks", runbooks) or RUNBOOKS)]}
    if not kubernetes:
        return yaml_text(groups)
    head = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": _metadata(workspace, {})}
    return yaml_text({**head, "spec": groups})


def _document(connector: Connector, *, origins: bool) -> ConnectorDocument:
    document: ConnectorDocument = {
        "connector": connector.name,
        "connect": connector.connect,
        "type": connector.type,
        "flows": connector.flows,
        "config": mask_config(dict(connector.config)),
    }
    if origins:
        document["origins"] = {key: str(origin) for key, origin in connector.origins.items()}
    return document


def _metadata(workspace: Workspace, labels: dict[str, str]) -> dict[str, object]:
    name = _name(workspace)
    return {
        "name": name,
        "labels": {"app.kubernetes.io/managed-by": "mm2mgr", "app.kubernetes.io/name": name, **labels},
    }


def _name(workspace: Workspace) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", str(workspace.topology.owner).lower())[:_LONGEST_NAME].strip("-")
    return f"mm2mgr-{plain}".rstrip("-")
