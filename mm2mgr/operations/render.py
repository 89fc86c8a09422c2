"""The operations on the tree alone: `init` writes a starter, `schema` describes the files, `render` compiles them. No network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm2mgr.operations.workspace import Workspace
from mm2mgr.render import Connector
from mm2mgr.secrets import masked
from mm2mgr.spec.schema import json_schema
from mm2mgr.spec.writer import write_starter


@dataclass(frozen=True)
class Rendered:
    """Connectors with their configs; inline secrets are in `connectors`, and masked in `to_dict`."""

    connectors: tuple[Connector, ...]

    def to_dict(self, *, origins: bool = False) -> list[dict[str, Any]]:
        """Return JSON-ready values per connector, with `origins` also the file and line of each key."""
        return [_shown(connector, origins=origins) for connector in self.connectors]


def init(folder: Path = Path("clusters")) -> list[Path]:
    """Write a commented starter tree and return its files. Mm2mgrError, with nothing written, if one of them exists."""
    return write_starter(folder)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the YAML files."""
    return json_schema()


def render(workspace: Workspace, flows: Sequence[str] = ()) -> Rendered:
    """Return the connectors that serve flows, all by default."""
    return Rendered(workspace.connectors_of(workspace.flows(flows)))


def _shown(connector: Connector, *, origins: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "connector": connector.name,
        "connect": connector.connect,
        "type": connector.type,
        "flows": list(connector.flows),
        "config": masked(dict(connector.config)),
    }
    if origins:
        result["origins"] = {key: str(origin) for key, origin in connector.origins.items()}
    return result
