"""What is there: `status`, `watch_status`, `describe` and `check` ask the clusters and write nothing there; `losses` is
what the ledger holds of records that may never arrive, and `acknowledge` its acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.reach import Limits
from mm2mgr.observe.losses import Acknowledgement, LossEntry, open_entries
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace, repeat
from mm2mgr.problems.health import Description, Status
from mm2mgr.problems.status import acknowledge as acknowledge_losses
from mm2mgr.problems.status import describe as read_flow
from mm2mgr.problems.status import read_losses
from mm2mgr.problems.status import status as read_status
from mm2mgr.timing import wait_for

if TYPE_CHECKING:
    from mm2mgr.check.judge import Checked
    from mm2mgr.samples.schema import Store

_LEAST_SECONDS = 1.0


def status(workspace: Workspace, flows: Sequence[str] = (), *, store: Store = DEFAULT_STORE) -> Status:
    """Read the health, tasks and lag of flows (all by default), and remember what was seen; losses go into a table of
    the store. No failed cluster raises."""
    only = workspace.only(flows)
    with looks_of(workspace, store) as options:
        return wait_for(read_status(workspace.topology, workspace.connectors, only=only, options=options))


def watch_status(
    workspace: Workspace, flows: Sequence[str] = (), *, every_seconds: float, store: Store = DEFAULT_STORE
) -> Iterator[Status]:
    """Yield a status, then one after each pause, until the caller stops."""
    return repeat(lambda: status(workspace, flows, store=store), every_seconds)


def describe(workspace: Workspace, flow: str, *, store: Store = DEFAULT_STORE) -> Description:
    """Read clusters, connectors, tasks with partitions, lag per partition, traces and losses of one flow."""
    chosen = workspace.flow(flow)
    with looks_of(workspace, store) as options:
        return wait_for(read_flow(workspace.topology, workspace.connectors, chosen, options=options))


@contextmanager
def looks_of(workspace: Workspace, store: Store) -> Iterator[ObserveOptions]:
    """Yield how to observe: a snapshot at its time and after what it remembers, and all that this leaves behind
    goes."""
    if workspace.snapshot is None:
        yield ObserveOptions(store=store)
        return
    with TemporaryDirectory(prefix="mm2mgr-") as folder:
        memory = Path(folder) / "memory.json"
        if workspace.snapshot.memory:
            memory.write_text(workspace.snapshot.memory)
        yield ObserveOptions(
            clock=lambda: workspace.now, memory_file=memory, store=Path(folder), snapshot=workspace.snapshot
        )


def check(workspace: Workspace, flows: Sequence[str] = (), *, timeout_seconds: float = 20.0) -> Checked:
    """Log in to every Kafka cluster as each client of the flows' connectors would, and compare rights, limits and
    workers.

    Whatever does not answer within `timeout_seconds` is a row of its own. Nothing is created, written or committed.
    """
    from mm2mgr.check.run import check as run  # needs lint, which `status` does without

    ends_at = timing.now() + timeout_seconds

    def limits() -> Limits:
        seconds = max(
            _LEAST_SECONDS, (ends_at - timing.now()) / 2
        )  # half of what is left, so that the next round has some
        return Limits(connect_seconds=seconds, kafka_seconds=seconds, is_total=True)

    steps = run(workspace.topology, workspace.connectors, workspace.flows(flows), workspace.spec)
    checked = workspace.ask(steps, limits)
    return replace(checked, seconds=timing.now() - ends_at + timeout_seconds)


# --- losses -----------------------------------------------------------------------------------------------------------


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
