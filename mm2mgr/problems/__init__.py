"""Every kind of problem: its evidence, rule, sentence, alert and page stand beside each other in one module. Pure.

To add a kind, write its class and its rule into the module that they are about (see `kind`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mm2mgr.problems import arrival, audit, connectors, failover, flows, loss
from mm2mgr.problems.drift import join_causes
from mm2mgr.problems.kind import REGISTERED, ConnectorCase, FlowCase, LiveProblem, ProblemEvidence

_MODULES = [REGISTERED[module.__name__] for module in (connectors, flows, arrival, loss, audit, failover)]
KINDS: Mapping[str, type[ProblemEvidence]] = MappingProxyType(
    {evidence.kind: evidence for module in _MODULES for evidence in module.kinds}
)
"""Every kind by its identifier."""


def flow_problems(case: FlowCase) -> tuple[LiveProblem, ...]:
    """Return the problems of a flow: of its source connector, and of what arrives."""
    rules = [rule for module in _MODULES for rule in module.flow_rules]
    return join_causes((*_connector_problems(case), *(problem for rule in rules for problem in rule(case))))


def companion_problems(case: ConnectorCase) -> tuple[LiveProblem, ...]:
    """Return the problems of a checkpoint or heartbeat connector."""
    rules = [rule for module in _MODULES for rule in module.companion_rules]
    return join_causes((*_connector_problems(case), *(problem for rule in rules for problem in rule(case))))


def _connector_problems(case: ConnectorCase) -> tuple[LiveProblem, ...]:
    return tuple(problem for module in _MODULES for rule in module.connector_rules for problem in rule(case))
