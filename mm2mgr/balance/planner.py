"""Plans which task of a flow's source connector mirrors which partition, so that tasks are evenly busy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mm2mgr.assignment import Assignment
from mm2mgr.balance.fresh import BalancePlan, FlowToPack
from mm2mgr.balance.rates import Rates
from mm2mgr.balance.rules import BalanceHistory, BalanceRules
from mm2mgr.balance.running import RunningTasks
from mm2mgr.partitions import TopicPartition


def plan_balance(
    partitions: Iterable[TopicPartition],
    rates: Rates,
    current: Assignment | None = None,
    rules: BalanceRules = BalanceRules(),
    history: BalanceHistory = BalanceHistory(),
) -> BalancePlan:
    """Plan the assignment of a flow's partitions, those that Kafka has now.

    `rates`: by partition or topic, in bytes (before compression) and records per second, to plan with: such as p95 of
    four weeks, because a plan for this very hour is broken by the next peak. `current`: the running assignment, which
    is kept unless a change is worth a restart; None plans a fresh one. Nothing is read, and no clock: `history` has the
    time.
    """
    flow = FlowToPack(partitions, rates, rules)
    if current is not None and current.tasks:
        return RunningTasks(flow, current, history).plan()
    packing, capped = flow.pack_fresh()
    return replace(flow.result("fresh", packing, flow.reasons(packing, capped)), capped=capped)
