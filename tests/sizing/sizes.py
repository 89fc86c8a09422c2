"""Sizes a flow from its rates alone, as most tests of sizing do."""

from __future__ import annotations

from collections.abc import Mapping

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.load import Hours
from mm2mgr.sizing.tasks import CurrentTasks, Prediction, Rules, Sizing, flow_load, size_load


def size_flow(
    flow_id: str,
    prediction: Prediction,
    rates: Mapping[TopicPartition, Hours],
    rules: Rules | None = None,
    now: CurrentTasks | None = None,
) -> Sizing:
    """Size one flow of which nothing but rates is known; see `flow_load`."""
    rules = rules or Rules()
    return size_load(flow_id, flow_load(prediction, rates, rules), rules, now)
