"""`losses`: what the ledger holds of records that may never arrive, and its acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.errors import Mm2mgrError
from mm2mgr.observe.losses import Acknowledgement, LossEntry, open_entries
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.problems.status import acknowledge as acknowledge_losses
from mm2mgr.problems.status import read_losses

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store


@dataclass(frozen=True)
class LossReport:
    """Entries of the ledger, oldest first; `warnings` say what of it could not be read."""

    entries: tuple[LossEntry, ...]
    warnings: tuple[str, ...] = ()
    json_keys = "losses=entries open=open_count warnings"

    @property
    def still_open(self) -> tuple[LossEntry, ...]:
        """Those that are not acknowledged."""
        return open_entries(self.entries)

    @property
    def open_count(self) -> int:
        return len(self.still_open)


def losses(
    workspace: Workspace, flows: Sequence[str] = (), *, store: Store = DEFAULT_STORE, everything: bool = False
) -> LossReport:
    """Read the ledger: open entries of these flows (none named: of all), or all entries. No cluster is asked.

    A flow that is no longer declared is named by its id. Mm2mgrError for a flow that neither the tree nor the ledger
    has.
    """
    ledger = read_losses(workspace.topology, ObserveOptions(store=store))
    entries = ledger.entries if everything else open_entries(ledger.entries)
    flow_ids = _flow_ids(workspace, flows, ledger.entries)
    return LossReport(tuple(loss for loss in entries if flow_ids is None or loss.flow in flow_ids), ledger.warnings)


def acknowledge(
    workspace: Workspace,
    ids: Sequence[str],
    flows: Sequence[str] = (),
    *,
    reason: str = "",
    store: Store = DEFAULT_STORE,
) -> tuple[LossEntry, ...]:
    """Record that open losses were seen, with who, when and why, and return them; `all` as id means all, of these flows
    if any are named. Mm2mgrError, and nothing recorded, for an id that no open loss has."""
    from mm2mgr.apply.history import author

    options = ObserveOptions(store=store)
    flow_ids = _flow_ids(workspace, flows, read_losses(workspace.topology, options).entries)
    ack = Acknowledgement(author(workspace.files).who, time.time(), reason)
    return acknowledge_losses(workspace.topology, ids, ack, only=flow_ids, options=options)


def _flow_ids(workspace: Workspace, names: Sequence[str], entries: Sequence[LossEntry]) -> list[str] | None:
    """Return the ids of the named flows, declared or in the ledger; None for no names."""
    flow_ids: list[str] = []
    for name in names:
        try:
            flow_ids += [flow.id for flow in workspace.flows((name,))]
        except Mm2mgrError:
            if all(loss.flow != name for loss in entries):
                raise
            flow_ids.append(name)
    return flow_ids if names else None
