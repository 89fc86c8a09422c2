"""`size`: the number of tasks for each flow, from evidence, written to overrides/sizing.yaml for review."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mm2mgr.evidence.rates import DEFAULT_STORE, utc_text
from mm2mgr.evidence.read import read
from mm2mgr.operations.workspace import Workspace
from mm2mgr.sizing.load import Statistic
from mm2mgr.sizing.scenario import sized
from mm2mgr.sizing.stability import Decision, EarlierSizing, Policy, decide, overrides_document, settled
from mm2mgr.sizing.tasks import OVERLOADED, SizedFlow, Sizing
from mm2mgr.sizing.views import FlowView, flow_view
from mm2mgr.spec.sizing_file import read_sizing, sizing_path, sizing_target, write_sizing


@dataclass(frozen=True)
class SizingReport:
    """What `size` found and wrote. `failures`: source clusters that could not be read, with why; their flows are not sized.

    `needed`: by flow id the number that the load asks for, where `sizings` have the one decided for. `measured`: which rates it
    was planned with. `path`: the file that was to be written (None: nothing was), `is_changed`: whether its content is another
    one now, `refused`: flows whose entries somebody else changed meanwhile. `views`: what a page shows, if asked for.
    """

    sizings: tuple[Sizing, ...]
    needed: Mapping[str, int]
    decisions: Mapping[str, Decision]
    failures: Mapping[str, str]
    measured: str
    path: Path | None = None
    is_changed: bool = False
    refused: tuple[str, ...] = ()
    views: tuple[FlowView, ...] = ()

    @property
    def too_small(self) -> tuple[str, ...]:
        """The flows that have too few tasks today."""
        return tuple(one.flow_id for one in self.sizings if one.now and one.now.verdict in OVERLOADED)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rows = [
            {
                **sizing.to_dict(),
                "needed_tasks": self.needed[sizing.flow_id],
                "moved_partitions": self.decisions[sizing.flow_id].moved_partitions,
            }
            for sizing in self.sizings
        ]
        return {"sizings": rows, "failures": dict(self.failures)}


def size(  # noqa: PLR0913  one argument per option
    workspace: Workspace,
    flows: Sequence[str] = (),
    *,
    store: str | Path = DEFAULT_STORE,
    window_seconds: float | None = None,
    statistic: Statistic = "p95",
    policy: Policy | None = None,
    write: bool = True,
    views: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> SizingReport:
    """Size the named flows, or all, and write overrides/sizing.yaml; flows whose source cannot be read keep their entries.

    Mm2mgrError when nothing was rolled up, or the file cannot be written. `notify` gets warnings about the store and the file.
    """
    chosen = workspace.flows(flows)
    path = sizing_path(workspace.files)
    before = read_sizing(path)
    if write:
        sizing_target(path)  # refused now, not after minutes of work
    evidence = read(
        workspace, chosen, store=store, window_seconds=window_seconds, statistic=statistic, weeks=views, warn=notify
    )
    scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
    found = {flow_id: sized(scenario) for flow_id, scenario in scenarios.items()}
    decisions = decide(found, _earlier(workspace), policy or Policy(), int(time.time()))
    final = {
        flow_id: SizedFlow(settled(one, decisions[flow_id]), one.load, one.bounds, one.order)
        for flow_id, one in found.items()
    }
    sizings = tuple(one.sizing for one in final.values())
    shown = (
        (flow_view(one, scenarios[flow_id].rates, evidence.weeks.get(flow_id, ())) for flow_id, one in final.items())
        if views
        else ()
    )
    needed = {flow_id: one.sizing.tasks for flow_id, one in found.items()}
    report = (sizings, needed, decisions, evidence.failures, evidence.rates.text)
    if not (write and sizings):
        return SizingReport(*report, views=tuple(shown))
    changed = {
        flow_id: utc_text(one.changed_seconds) for flow_id, one in decisions.items() if one.changed_seconds is not None
    }
    document = overrides_document(sizings, evidence.rates.window, f"{statistic} of {store}", changed)
    known = {flow.id for flow in workspace.topology.flows}
    written = write_sizing(path, document["sizing"], known, before, notify)
    return SizingReport(*report, path, written.changed, written.refused, tuple(shown))


def _earlier(workspace: Workspace) -> dict[str, EarlierSizing]:
    """Return what the reviewed files say; a time that cannot be read counts as none."""
    sizing = workspace.spec.tree.sizing
    return {flow_id: EarlierSizing(one.tasks_max, _seconds(one.changed)) for flow_id, one in sizing.items()}


def _seconds(text: str | None) -> int | None:
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if when is None:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
