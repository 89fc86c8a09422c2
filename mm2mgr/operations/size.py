"""`size`: the number of tasks for each flow, from evidence, written to overrides/sizing.yaml for review."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mm2mgr.evidence.read import Evidence, read
from mm2mgr.json_values import to_json
from mm2mgr.operations.plan import seconds_of
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.partitions import Statistic
from mm2mgr.samples.schema import utc_text
from mm2mgr.sizing.scenario import FlowView, flow_view, size_scenario
from mm2mgr.sizing.stability import Decision, EarlierSizing, Policy, decide, overrides_document, sizing_as_decided
from mm2mgr.sizing.tasks import OVERLOADED, Sizing
from mm2mgr.spec.writer import SIZING, override_target


@dataclass(frozen=True)
class SizingReport:
    """What `size` found and wrote. `failures`: source clusters that could not be read, with why; their flows are not sized.

    `needed`: by flow id the number that the load asks for, where `sizings` have the one decided for. `measured`: which rates it
    was planned with. `path`: the file that was to be written (None: nothing was), `is_changed`: whether its content is another
    one now, `refused`: flows whose entries were changed meanwhile. `views`: what a page shows, if asked for.
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
    def savings(self) -> dict[str, int]:
        """The flows whose number only saves tasks, each with its partitions: their restart can wait."""
        saving = (one for one in self.sizings if self.decisions[one.flow_id].is_saving)
        return {one.flow_id: one.partitions for one in saving}

    @property
    def too_small(self) -> tuple[str, ...]:
        """The flows that have too few tasks today."""
        return tuple(one.flow_id for one in self.sizings if one.now and one.now.verdict in OVERLOADED)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rows = []
        for one in self.sizings:
            moved = self.decisions[one.flow_id].moved_partitions
            rows.append({**to_json(one), "needed_tasks": self.needed[one.flow_id], "moved_partitions": moved})
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
    report: Callable[[SizingReport], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
) -> SizingReport:
    """Size the named flows, or all, and write overrides/sizing.yaml; flows whose source cannot be read keep their entries.

    Mm2mgrError when nothing was rolled up, or the file cannot be written; `report` gets the result before that. `notify` gets
    warnings about the store and the file.
    """
    chosen = workspace.flows(flows)
    path = SIZING.path(workspace.files)
    before = SIZING.read(path)
    if write:
        override_target(path)  # refused now, not after minutes of work
    evidence = read(
        workspace, chosen, store=store, window_seconds=window_seconds, statistic=statistic, weeks=views, warn=notify
    )
    found = _judged(workspace, evidence, policy or Policy(), views=views)
    report(found)
    if not (write and found.sizings):
        return found
    since = {flow_id: one.changed_seconds for flow_id, one in found.decisions.items()}
    changed = {flow_id: utc_text(seconds) for flow_id, seconds in since.items() if seconds is not None}
    source = f"{statistic} of {store}"
    document = overrides_document(found.sizings, evidence.rates.window, source, changed, found.savings)
    written = SIZING.write(path, document["sizing"], {flow.id for flow in workspace.topology.flows}, before, notify)
    return replace(found, path=path, is_changed=written.changed, refused=written.refused)


def _judged(workspace: Workspace, evidence: Evidence, policy: Policy, *, views: bool) -> SizingReport:
    scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
    found = {flow_id: size_scenario(scenario) for flow_id, scenario in scenarios.items()}
    earlier = {
        flow_id: EarlierSizing(one.tasks_max, seconds_of(one.changed), one.saves_tasks)
        for flow_id, one in workspace.spec.tree.sizing.items()
    }
    decisions = decide(found, earlier, policy, int(workspace.now))
    sizings = {flow_id: sizing_as_decided(one, decisions[flow_id]) for flow_id, one in found.items()}
    shown = [
        flow_view(replace(one, sizing=sizings[name]), scenarios[name].rates, evidence.weeks.get(name, ()))
        for name, one in (found.items() if views else ())
    ]
    needed = {flow_id: one.sizing.tasks for flow_id, one in found.items()}
    final, measured = tuple(sizings.values()), evidence.rates.text
    return SizingReport(final, needed, decisions, evidence.failures, measured, views=tuple(shown))
