"""`size`: the number of tasks for each flow, from evidence, written to overrides/sizing.yaml for review."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2mgr.evidence.read import Evidence, EvidenceOptions, read
from mm2mgr.json_values import to_json
from mm2mgr.operations.plan import seconds_of
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.samples.schema import utc_text
from mm2mgr.sizing.scenario import FlowView, flow_view, size_scenario
from mm2mgr.sizing.stability import Decision, EarlierSizing, Policy, decide, overrides_document, sizing_as_decided
from mm2mgr.sizing.tasks import OVERLOADED, Sizing
from mm2mgr.spec.writer import SIZING, override_target


@dataclass(frozen=True)
class SizingReport:
    """What `size` found and wrote. `failures`: source clusters that could not be read, with why; their flows are not
    sized.

    `needed`: by flow id the number that the load asks for, where `sizings` have the one decided for. `measured`: which
    rates it was planned with. `path`: the file that was to be written (None: nothing was), `is_changed`: whether its
    content is another one now, `refused`: flows whose entries were changed meanwhile. `views`: what a page shows, if
    asked for.
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
    json_keys = "sizings=sizing_documents failures"

    @property
    def savings(self) -> dict[str, int]:
        """The flows whose number only saves tasks, each with its partitions: their restart can wait."""
        saving = (sizing for sizing in self.sizings if self.decisions[sizing.flow_id].is_saving)
        return {sizing.flow_id: sizing.partitions for sizing in saving}

    @property
    def too_small(self) -> tuple[str, ...]:
        """The flows that have too few tasks today."""
        return tuple(sizing.flow_id for sizing in self.sizings if sizing.now and sizing.now.verdict in OVERLOADED)

    @property
    def sizing_documents(self) -> list[dict[str, object]]:
        return [
            {
                **to_json(sizing),
                "needed_tasks": self.needed[sizing.flow_id],
                "moved_partitions": self.decisions[sizing.flow_id].moved_partitions,
            }
            for sizing in self.sizings
        ]


def size(
    workspace: Workspace,
    flows: Sequence[str] = (),
    options: EvidenceOptions = EvidenceOptions(DEFAULT_STORE),
    *,
    write: bool = True,
    report: Callable[[SizingReport], None] = lambda _: None,
) -> SizingReport:
    """Size the named flows, or all, and write overrides/sizing.yaml; flows whose source cannot be read keep their
    entries.

    Mm2mgrError when nothing was rolled up, or the file cannot be written; `report` gets the result before that.
    `options.notify` gets warnings about the file too.
    """
    chosen = workspace.flows(flows)
    path = SIZING.path(workspace.files)
    before = SIZING.read(path)
    if write:
        override_target(path)  # refused now, not after minutes of work
    evidence = read(workspace, options, chosen)
    result = _judge(workspace, evidence, views=options.views)
    report(result)
    if not (write and result.sizings):
        return result
    since = {flow_id: decision.changed_seconds for flow_id, decision in result.decisions.items()}
    changed = {flow_id: utc_text(seconds) for flow_id, seconds in since.items() if seconds is not None}
    source = f"{options.statistic} of {options.store}"
    document = overrides_document(result.sizings, evidence.rates.window, source, changed, result.savings)
    ids = {flow.id for flow in workspace.topology.flows}
    written = SIZING.write(path, document["sizing"], ids, before, options.notify)
    return replace(result, path=path, is_changed=written.changed, refused=written.refused)


def _judge(workspace: Workspace, evidence: Evidence, *, views: bool) -> SizingReport:
    scenarios = {scenario.flow_id: scenario for scenario in evidence.scenarios()}
    sized = {flow_id: size_scenario(scenario) for flow_id, scenario in scenarios.items()}
    earlier = {
        flow_id: EarlierSizing(entry.tasks_max, seconds_of(entry.changed), entry.saves_tasks)
        for flow_id, entry in workspace.spec.tree.sizing.items()
    }
    decisions = decide(sized, earlier, Policy(), int(workspace.now))
    sizings = {flow_id: sizing_as_decided(flow, decisions[flow_id]) for flow_id, flow in sized.items()}
    shown = [
        flow_view(replace(flow, sizing=sizings[name]), scenarios[name].rates, evidence.weeks.get(name, ()))
        for name, flow in (sized.items() if views else ())
    ]
    needed = {flow_id: flow.sizing.tasks for flow_id, flow in sized.items()}
    final, measured = tuple(sizings.values()), evidence.rates.text
    return SizingReport(final, needed, decisions, evidence.failures, measured, views=tuple(shown))
