"""Two outcomes side by side as plain JSON values: flows that differ, what Connect clusters need, and what that means in sentences."""

from __future__ import annotations

import math
from typing import Any

from mm2mgr.sizing.scenario import Outcome
from mm2mgr.sizing.tasks import Sizing
from mm2mgr.sizing.words import listed
from mm2mgr.text import number_of


def comparison(before: Outcome, after: Outcome) -> dict[str, Any]:
    """Return both outcomes side by side as plain JSON values: flows that differ, Connect clusters, totals, and what that means."""
    flows = {
        flow_id: {
            "before": _of_flow(before, flow_id),
            "after": _of_flow(after, flow_id),
            "why_fewer_tasks": _why_fewer(before.sizings.get(flow_id), after.sizings.get(flow_id)),
        }
        for flow_id in dict.fromkeys((*before.sizings, *after.sizings))
    }
    connects = {
        name: {side: _of_connect(found, name) for side, found in (("before", before), ("after", after))}
        for name in dict.fromkeys((*before.needs, *after.needs))
    }
    totals = {side: _totals(found) for side, found in (("before", before), ("after", after))}
    changed = {flow_id: both for flow_id, both in flows.items() if both["before"] != both["after"]}
    return {
        "flows": changed,
        "unchanged_flows": len(flows) - len(changed),
        "connect": connects,
        "totals": totals,
        "reasons": _consequences(before, after),
    }


def _why_fewer(before: Sizing | None, after: Sizing | None) -> str | None:
    """Say why a flow with more load gets fewer tasks than before, or than it has now; None where it does not.

    Without a hot partition and a limit that cannot happen: what fits a load fits a smaller one too.
    """
    if before is None or after is None or after.bytes_per_second <= before.bytes_per_second:
        return None
    said = f"{after.flow_id}: {after.tasks} instead of {number_of(before.tasks, 'task')} despite more traffic"
    if after.tasks < before.tasks:
        hot_before = {(one.topic, one.partition) for one in before.hot_partitions}
        hot = [one for one in after.hot_partitions if (one.topic, one.partition) not in hot_before]
        if after.capped_by == "limit":
            return f"{said}: capped by its limit."
        if hot:
            names = listed([f"{one.topic}-{one.partition}" for one in hot])
            alone = "alone exceeds" if len(hot) == 1 else "each alone exceed"
            return f"{said}: {names} {alone} the usable capacity of a task, so more tasks do not help there; for the rest {after.tasks} are enough."
        return (
            f"{said}: its partitions are assigned in another order, or alone exceed the usable capacity in more hours."
        )
    now = after.now
    if now is None or after.tasks >= now.tasks:
        return None
    by = "set by hand" if now.by_hand else "set by an earlier `size`"
    return (
        f"{after.flow_id}: {number_of(now.tasks, 'task')} now ({by}) {'is' if now.tasks == 1 else 'are'} more than its load needs: "
        f"{before.tasks} before the change, {after.tasks} after it."
    )


def _consequences(before: Outcome, after: Outcome) -> list[str]:
    """Say which partitions become hot or cease to be, which flows get too little, and what each Connect cluster then needs."""
    hot, hot_before = _hot(after), _hot(before)
    short, short_before = _short(after), _short(before)
    pairs = set(map(_pair, after.sizings))
    changes = (
        ("New hot partitions (adding tasks does not help)", [hot[one] for one in hot if one not in hot_before]),
        (
            "No longer hot",
            [f"{name} of {pair}" for name, pair in hot_before if (name, pair) not in hot and pair in pairs],
        ),
        (
            "Capped by their limit, with more load on a task than planned",
            [one for one in short if one not in short_before],
        ),
    )
    said = [f"{what}: {listed(names)}." for what, names in changes if names]
    both = ((before.sizings.get(flow_id), sizing) for flow_id, sizing in after.sizings.items())
    said += [why for one in both if (why := _why_fewer(*one))]
    for name in dict.fromkeys((*before.needs, *after.needs)):
        old, new = before.needs.get(name), after.needs.get(name)
        if new is None:
            said.append(f"{name}: no traffic left.")
        elif old is None or old.reasons[-1] != new.reasons[-1]:
            said.append(f"{name}: {new.reasons[-1]}")
    return said


def _hot(found: Outcome) -> dict[tuple[str, str], str]:
    """Return hot partitions by name and pair, whichever flow they are in, each with how many times it is too much."""
    return {
        (
            f"{hot.topic}-{hot.partition}",
            _pair(flow_id),
        ): f"{hot.topic}-{hot.partition} of {flow_id} ({hot.factor:.1f} times)"
        for flow_id, sizing in found.sizings.items()
        for hot in sizing.hot_partitions
    }


def _pair(flow_id: str) -> str:
    return flow_id.partition(":")[2]


def _short(found: Outcome) -> list[str]:
    return [
        flow_id
        for flow_id, sizing in found.sizings.items()
        if sizing.capped_by == "limit" and sizing.busiest_bytes_per_second > sizing.usable_bytes_per_second
    ]


def _of_flow(found: Outcome, flow_id: str) -> dict[str, Any] | None:
    sizing = found.sizings.get(flow_id)
    if sizing is None:
        return None
    return {
        "bytes_per_second": sizing.bytes_per_second,
        "tasks": sizing.tasks,
        "busiest_bytes_per_second": sizing.busiest_bytes_per_second,
        "usable_bytes_per_second": sizing.usable_bytes_per_second,
        "busiest_share": sizing.busiest_bytes_per_second / sizing.usable_bytes_per_second,
        "hot_partitions": len(sizing.hot_partitions),
        "capped_by": sizing.capped_by,
        "reasons": list(sizing.reasons),
    }


def _of_connect(found: Outcome, name: str) -> dict[str, Any] | None:
    one = found.needs.get(name)
    return None if one is None else one.to_dict()


def _totals(found: Outcome) -> dict[str, Any]:
    needs = found.needs.values()
    return {
        "flows": len(found.sizings),
        "bytes_per_second": math.fsum(one.bytes_per_second for one in needs),
        "tasks": sum(one.tasks for one in needs),
        "workers_needed": None
        if any(one.workers_needed is None for one in needs)
        else sum(one.workers_needed or 0 for one in needs),
        "workers_today": sum(today) if (today := [one.workers_today for one in needs if one.workers_today]) else None,
        "hot_partitions": sum(len(one.hot_partitions) for one in found.sizings.values()),
    }
