"""What every operation starts from: the tree, expanded and rendered when first asked for. Imports lazily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mm2mgr.render import Connector
    from mm2mgr.spec.loader import Spec
    from mm2mgr.topology import Flow, Topology


@dataclass(frozen=True)
class Workspace:
    """The files the user named, and what comes of them."""

    files: tuple[Path, ...]
    own_templates: Path | None = None
    named_by_option: bool = False
    """True when --clusters or --templates stood on the command line."""

    @cached_property
    def spec(self) -> Spec:
        from mm2mgr.spec.loader import load

        return load(self.files)

    @cached_property
    def topology(self) -> Topology:
        from mm2mgr.expand import expand

        return expand(self.spec)

    @cached_property
    def templates(self) -> Path | None:
        """The user's templates: as named, else ./templates if it is there."""
        return self.own_templates or (Path("templates") if Path("templates").is_dir() else None)

    @cached_property
    def connectors(self) -> tuple[Connector, ...]:
        from mm2mgr.render import render

        return render(self.topology, self.templates)

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return the flows people mean by names (id, pair or declared name); all of them for no names."""
        if not names:
            return list(self.topology.flows)
        return list({flow.id: flow for name in names for flow in self.topology.select(name)}.values())

    def only(self, names: Sequence[str]) -> list[str] | None:
        """Return the ids of the named flows, or None for no names."""
        return [flow.id for flow in self.flows(names)] if names else None
