"""What a page shows of one flow: tasks before and after, hottest partitions, and the week."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mm2mgr.partitions import TopicPartition
from mm2mgr.sizing.tasks import SizedFlow

_HOTTEST = 10
Week = tuple[tuple[float | None, ...], ...]
"""Mean bytes per second by day of week and hour of day; None where nothing was measured."""


@dataclass(frozen=True)
class FlowView:
    """What is shown of a flow: its sizing as JSON has it, load per task with today's number (empty: new) and with the
    recommended one, hottest partitions, and mean load by day of week and hour of day (empty: not measured); bytes per second."""

    sizing: Mapping[str, Any]
    before: tuple[float, ...]
    after: tuple[float, ...]
    hottest: tuple[tuple[str, float], ...]
    week: Week


def flow_view(sized: SizedFlow, measured: Collection[TopicPartition], week: Week) -> FlowView:
    """Return what the page shows of a flow; `measured` are the partitions with a rate of their own."""
    sizing, load = sized.sizing, sized.load
    before = tuple(load.per_task(sizing.now.tasks)) if sizing.now else ()
    return FlowView(sizing.to_dict(), before, tuple(load.per_task(sizing.tasks)), _hottest(sized, measured), week)


def _hottest(sized: SizedFlow, measured: Collection[TopicPartition]) -> tuple[tuple[str, float], ...]:
    """Return the measured partitions with the highest rates, of those that Kafka has now."""
    rates = dict(zip(sized.order, sized.load.alone.tolist(), strict=True))
    known = sorted(
        (one for one in sized.order if one in measured and rates[one] > 0), key=lambda one: (-rates[one], one)
    )
    return tuple((str(one), rates[one]) for one in known[:_HOTTEST])
