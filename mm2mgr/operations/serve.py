"""`serve`: looks at the estate again and again in the background, and holds the newest view of it.

Showing the view asks no cluster: requests cost nothing there, however many come. One thread looks at status and lag;
another one makes the slow part (`Survey`: lint, plan, history), because a plan of a large estate takes longer than the
time between two looks. A tree whose files have changed counts from the next look on, and the slow part is made anew at
once. What else is asked for is in `serve_parts`.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mm2mgr import timing
from mm2mgr.apply.history import read_notes, tree_commit
from mm2mgr.errors import Mm2mgrError, cause
from mm2mgr.evidence.flow_load import (
    EstateNeeds,
    MeasuredLoad,
    estate_needs,
    measured_load,
)
from mm2mgr.evidence.traffic import (
    traffic_history,
)
from mm2mgr.garbage import collect_garbage
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.operations.estate_view import EstateLook, EstateView, Survey, WrittenFlow, after_look, with_notes
from mm2mgr.operations.failover_watch import (
    refuse_without_pairs,
)
from mm2mgr.operations.local_paths import LocalPaths
from mm2mgr.operations.sample import refuse_unsampled
from mm2mgr.operations.serve_parts import Parts, PartsHost, ServeOrder, part_thread
from mm2mgr.operations.status import LagOptions, report
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.problems.status import observe
from mm2mgr.spec.files import tree_state
from mm2mgr.text import few
from mm2mgr.timing import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mm2mgr.problems.kind import ProblemSubject
    from mm2mgr.samples.schema import Store

Part = TypeVar("Part")
Done = TypeVar("Done")
_CHANGES_KEPT = 1000
_DIFFERENCES = ("not-applied", "connector-gone", "config-differs", "state-differs", "orphan")
_NEW_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 0.1
_SAMPLE_AGAIN_SECONDS = 60.0


def look(
    workspace: Workspace,
    store: Store = DEFAULT_STORE,
    report_waits: Callable[[tuple[str, ...]], object] | None = None,
) -> EstateLook:
    """Look at all flows once and remember what was seen, as `status` and `lag` do. No failed cluster raises.

    `report_waits` is called with the clusters that have not answered yet, whenever these change.
    """
    began_at, began, flows = time.time(), timing.now(), workspace.topology.flows
    options = ObserveOptions(store=store, shares=True, report_waits=report_waits)
    observed = wait_for(observe(workspace.topology, workspace.connectors, options=options))
    lag = report(workspace.topology, observed, flows, LagOptions(store=store))
    totals = {facts.flow: facts.total for facts in lag.flows}
    limits = {
        flow.id: most for flow in flows if (most := flow.settings.max_lag) and flow.settings.state in (None, "running")
    }
    labels = {
        alias: tuple(f"{key}={value}" for key, value in sorted(cluster.model.labels.items()))
        for alias, cluster in workspace.topology.clusters.items()
        if cluster.model.labels
    }
    return EstateLook(began_at, began_at + timing.now() - began, observed.status, lag, totals, limits, labels)


def survey(workspace: Workspace, store: Store = DEFAULT_STORE) -> Survey:
    """Make the slow part: lint of the tree, the plan, the newest changes, the measured load and what it needs, and the
    workers."""
    from mm2mgr.operations.estate_workers import estate_workers
    from mm2mgr.operations.history import history
    from mm2mgr.operations.lint import lint
    from mm2mgr.operations.plan import plan
    from mm2mgr.problems.health import flow_settings

    flows, now = workspace.topology.flows, time.time()
    connectors = {flow.id: tuple((of.connect, of.name) for of in workspace.connectors_of([flow])) for flow in flows}
    return Survey(
        now,
        _or_error(lambda: lint(workspace)),
        _or_error(lambda: plan(workspace)),
        _or_error(lambda: history(workspace, last=_CHANGES_KEPT)),
        measured_load(store),
        estate_needs(workspace, store),
        estate_workers(workspace),
        traffic_history(str(workspace.topology.owner), flows, store, now),
        {flow.id: WrittenFlow(tuple(flow_settings(flow)), connectors[flow.id]) for flow in flows},
    )


def _or_error(make: Callable[[], Part]) -> Part | str:
    try:
        return make()
    except Exception as error:  # one part that fails ends neither the others nor the server
        return cause(error)


def tree_name(files: Sequence[Path]) -> str:
    """Return a tree as it was typed; of what has an absolute path the name alone, as folders may tell of people."""
    return few([file.name if file.is_absolute() else str(file) for file in files])


def _local_paths(workspace: Workspace, order: ServeOrder) -> LocalPaths:
    writers = (order.watchdog, order.rebalances, order.reconciles)
    orders = (order.watchdog, order.rebalances)
    files = (*(writer.events for writer in writers if writer), *(of.order.freeze_file for of in orders if of))
    return LocalPaths.of_process(order.store, workspace.files, files)


class EstateWatch:
    """Looks in the background from `start` to `close`; `look` and `survey` may raise any exception."""

    def __init__(
        self,
        workspace: Workspace,
        order: ServeOrder | None = None,
        *,
        look: Callable[[Workspace, Store, Callable[[tuple[str, ...]], object]], EstateLook] = look,
        survey: Callable[[Workspace, Store], Survey] = survey,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._workspace, self._order = workspace, order or ServeOrder()
        self._look, self._survey, self._clock = look, survey, clock
        self._closing, self._lock, self._stopped_at = threading.Event(), threading.Lock(), 0.0
        self._survey_due, self._tree_lock = threading.Event(), threading.Lock()
        self._tree_state, self._follow_up = tree_state(workspace.files), False
        self._differing: frozenset[ProblemSubject] | None = None
        self._view = EstateView(
            clock(),
            self._order.every_seconds,
            owner=str(workspace.topology.owner),
            started_tick=timing.now(),
            tree=tree_name(workspace.files),
            commit=tree_commit(workspace.files),
            host=socket.gethostname(),
            local_paths=_local_paths(workspace, self._order),
        )
        host = PartsHost(self._closing, lambda: self._workspace, lambda: self._view, self._publish, clock)
        self._parts = Parts(self._order, host)
        looks = (self.look_once, self._order.every_seconds, self._closing)
        surveys = (self.survey_once, self._order.survey_seconds, self._survey_due)
        self._threads = [part_thread(step[0].__name__, self._repeat, *step) for step in (looks, surveys)]
        self._threads += self._parts.readers

    @property
    def view(self) -> EstateView:
        """What is known now; an immutable value."""
        return self._view

    def start(self) -> None:
        """Begin to look."""
        for thread in (*self._threads, *self._parts.leased):
            thread.start()

    def stop(self) -> None:
        """Begin no more looks and no more writes, and let all parts give up their leases; waits for nothing."""
        if not self._closing.is_set():
            self._stopped_at = timing.now()
            self._closing.set()
            self._survey_due.set()
            self._parts.stop()

    def close(self, seconds: float, write_seconds: float = 0.0, read_seconds: float | None = None) -> bool:
        """Stop, wait for what runs until so long after the stop, and tell whether all has ended.

        While connectors are being written it waits until `write_seconds` after the stop. `read_seconds`: what holds no
        lease is given less time, as all that it leaves is written whole or not.
        """
        self.stop()
        self._join(self._parts.leased, lambda: max(seconds, write_seconds) if self._parts.is_writing else seconds)
        self._join(self._threads, lambda: seconds if read_seconds is None else read_seconds)
        return not any(thread.is_alive() for thread in (*self._parts.leased, *self._threads))

    def _join(self, threads: Sequence[threading.Thread], longest: Callable[[], float]) -> None:
        for thread in threads:
            while thread.ident is not None and thread.is_alive():
                if (left := self._stopped_at + longest() - timing.now()) <= 0:
                    break
                thread.join(min(left, _JOIN_SECONDS))

    def look_once(self) -> None:
        """Look once and publish what was found; a failure is published too."""
        self._publish(lambda view: replace(view, began_at=self._clock()))
        self._read_changed_tree()
        try:
            newest = self._look(self._workspace, self._order.store, self._note_waits)
        except BaseException as error:  # the server outlives whatever happens to one look, also one that is cancelled
            words = cause(error)
            self._publish(lambda view: replace(view, began_at=None, failed_looks=view.failed_looks + 1, error=words))
        else:
            noted = read_notes(str(self._workspace.topology.owner))
            self._publish(lambda view: with_notes(after_look(view, newest, timing.now()), noted))
            differing = frozenset(of.subject for of in newest.status.problems() if of.kind in _DIFFERENCES)
            if self._differing not in (None, differing):  # an apply has ended, or somebody changed a connector
                self._survey_due.set()
            self._differing = differing

    def _read_changed_tree(self) -> None:
        """Read the tree where its files have changed. The slow part is then made now and after the next look, as what
        was written may be applied in between."""
        if self._follow_up:
            self._survey_due.set()
        self._follow_up = tree_state(self._workspace.files) != self._tree_state
        if self._follow_up:
            self._read_tree()
            self._survey_due.set()

    def _read_tree(self) -> None:
        with self._tree_lock:
            self._tree_state = tree_state(self._workspace.files)  # before it is read: what comes later is read again
            fresh, trouble = replace(self._workspace), ""
            try:
                _ = fresh.connectors
                if fresh.spec.tree != self._workspace.spec.tree:
                    self._parts.sample_anew()
                self._workspace = fresh
            except Exception as error:  # a tree that is wrong changes nothing of what is looked at
                trouble = cause(error)
            commit = tree_commit(self._workspace.files)
            self._publish(lambda view: replace(view, tree_error=trouble, commit=commit))

    def _note_waits(self, clusters: tuple[str, ...]) -> None:
        """Keep which clusters the first look waits for: nothing else is known then."""
        if self._view.look is None:
            self._publish(lambda view: replace(view, waits_for=clusters))

    def survey_once(self) -> None:
        """Read the tree again, make the slow part and publish it."""
        self._read_tree()
        try:
            newest = self._survey(self._workspace, self._order.store)
        except BaseException as error:
            failed = cause(error)
            newest = Survey(
                self._clock(), failed, failed, failed, MeasuredLoad(unknown=failed), EstateNeeds(unknown=failed)
            )
        noted = read_notes(str(self._workspace.topology.owner))
        self._publish(lambda view: with_notes(replace(view, survey=newest), noted))

    def _publish(self, change: Callable[[EstateView], EstateView]) -> None:
        with self._lock:
            self._view = change(self._view)

    def _repeat(self, step: Callable[[], None], every_seconds: float, is_due: threading.Event) -> None:
        while not self._closing.is_set():
            step()
            collect_garbage()
            timing.wait(is_due, every_seconds)
            if not self._closing.is_set():
                is_due.clear()


def serve(workspace: Workspace, order: ServeOrder | None = None) -> EstateWatch:
    """Return a watch over the workspace's estate that looks from `start` to `close`. Mm2mgrError for a tree that is
    wrong.
    """
    _ = workspace.connectors
    writers = (order.watchdog, order.rebalances, order.reconciles) if order else ()
    for events in {writer.events for writer in writers if writer}:
        workspace.event_log(events).close()
    if order and order.reconciles:
        workspace.only(order.reconciles.order.options.flows)
    if order and order.samples:
        refuse_unsampled(workspace, order.samples.order)
    if order and order.audits:
        from mm2mgr.operations.audit import followed_flows

        audits = order.audits.order
        _refuse_idle("audit", lambda: followed_flows(workspace, audits))
    if order and order.failover:
        _refuse_idle("failover", lambda: refuse_without_pairs(workspace.topology))
    return EstateWatch(workspace, order)


def _refuse_idle(part: str, read_declared: Callable[[], object]) -> None:
    """Mm2mgrError that names the part of the process for which a tree declares nothing."""
    try:
        read_declared()
    except Mm2mgrError as error:
        hint = f"{error.hint}; or leave {part} out of --with"
        raise Mm2mgrError(f"--with {part}: {error.message}", hint=hint) from error
