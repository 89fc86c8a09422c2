"""The operations on the tree alone: `init` writes a starter, `schema` describes the files, `render` compiles them, and
`rules` makes alerting rules of Prometheus and a dashboard of Grafana from them. No network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from mm2mgr.connectors import Connector
from mm2mgr.operations.workspace import Workspace
from mm2mgr.secrets import mask_config
from mm2mgr.spec.files import write_starter, yaml_text
from mm2mgr.spec.mistakes import json_schema

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


def rules(workspace: Workspace, *, dashboard: bool = False, kubernetes: bool = False) -> str:
    """Return a rule file for Prometheus as YAML, or a dashboard for Grafana as JSON.

    With `kubernetes`, a manifest with it as YAML: a PrometheusRule of the Prometheus Operator, or a ConfigMap with the
    label `grafana_dashboard`, for which Grafana's sidecar looks.
    """
    from mm2mgr.problems.monitoring import (
        dashboard_of,
        rule_group,  # `render` does without
    )

    if dashboard:
        dashboard_document = dashboard_of(workspace.topology)
        if not kubernetes:
            return json.dumps(dashboard_document, indent=2, ensure_ascii=False) + "\n"
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(workspace, {"grafana_dashboard": "1"})}
        return yaml_text(
            {**head, "data": {f"{_name(workspace)}.json": json.dumps(dashboard_document, ensure_ascii=False)}}
        )
    groups = {"groups": [rule_group(workspace.topology)]}
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
