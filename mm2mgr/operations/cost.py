"""`cost`: what flows move over links and into clusters, with the prices of the tree, by month and with a forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.cost import (
    BASES,
    WIRE_FACTOR,
    By,
    CostLine,
    Measured,
    MonthOfFlows,
    Unmeasured,
    cost_lines,
    cost_of,
    total_line,
    unmeasured_sentences,
)
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace
from mm2mgr.text import few, number_of
from mm2mgr.weeks import WEEK_HOURS, WEEKS

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow

_MONTHS_AHEAD = 12
_HOUR_SECONDS = 3_600


@dataclass(frozen=True)
class CostReport:
    """What flows cost in some months, added up by what was asked for, and in `total`.

    `unmeasured`: flows and topics that are in no sum. `notes`: sentences about what was measured, what is forecast, and
    what the bytes are.
    """

    by: By
    months: tuple[str, ...]
    lines: tuple[CostLine, ...]
    total: CostLine
    unmeasured: tuple[Unmeasured, ...]
    notes: tuple[str, ...]
    json_keys = "by months gb_bytes wire_factor lines total unmeasured notes"

    @property
    def gb_bytes(self) -> int:
        from mm2mgr.cost import GB

        return GB

    @property
    def wire_factor(self) -> str:
        return str(WIRE_FACTOR)

    @property
    def sentences(self) -> list[str]:
        """What is in no sum, in sentences."""
        return unmeasured_sentences(self.unmeasured)


@dataclass(frozen=True)
class CostOrder:
    """What to count: the named flows (none: all), from which store, in a month such as 2026-10 (None: this one; by
    month all that were measured), and what a line of the answer is."""

    flows: Sequence[str] = ()
    store: Store = DEFAULT_STORE
    month: str | None = None
    by: By = "flow"


def cost(
    workspace: Workspace, order: CostOrder = CostOrder(), warn: Callable[[str], None] = lambda _: None
) -> CostReport:
    """Return what flows cost. Nothing is asked of a cluster.

    Mm2mgrError when nothing was rolled up, InvalidArgument for a month that is too far ahead. `warn` gets a sentence
    for each damaged file.
    """
    from mm2mgr.samples.schema import hour_of
    from mm2mgr.throughput.topic_hours import measured_months

    flows = workspace.flows(order.flows)
    kept_months = measured_months(order.store)
    if not kept_months:
        raise Mm2mgrError(f"{order.store} holds no throughput", hint="run `mm2mgr throughput` first")
    now_hour, this_month = int(workspace.now) // _HOUR_SECONDS, hour_of(int(workspace.now * 1000))[: len("2026-10")]
    month = order.month
    if month is not None and _months_of(month) > _months_of(this_month) + _MONTHS_AHEAD:
        raise InvalidArgument("month", f"{month} is more than {_MONTHS_AHEAD} months ahead: nothing is forecast")
    months = (month,) if month else tuple(kept_months) if order.by == "month" else (this_month,)
    links = workspace.spec.tree.links
    results = {name: cost_of(flows, links, _read_month(flows, order.store, name, now_hour, warn)) for name in months}
    charges = tuple(charge for result in results.values() for charge in result.charges)
    unmeasured = tuple(missing for result in results.values() for missing in result.unmeasured)
    lines = tuple(cost_lines(charges, order.by, str(workspace.topology.owner)))
    return CostReport(order.by, months, lines, total_line(charges), unmeasured, tuple(_notes(results, now_hour)))


def _read_month(
    flows: Sequence[Flow], store: Store, month: str, now_hour: int, warn: Callable[[str], None]
) -> Measured:
    from mm2mgr.throughput.topic_hours import month_hours, read_topic_hours

    hours = month_hours(month)
    until = min(now_hour, hours.stop - 1)
    read = range(min(hours.start, until + 1 - WEEKS * WEEK_HOURS), until + 1)
    by_source: dict[str, list[Flow]] = {}
    for flow in flows:
        by_source.setdefault(flow.source.alias, []).append(flow)

    def is_carried(cluster: str, topic: str) -> bool:
        return any(flow.carries(topic) for flow in by_source.get(cluster, ()))

    topics = read_topic_hours(store, read, is_carried)
    return Measured(month, hours, until, topics, _stored_sizes(store, read, hours, warn))


def _stored_sizes(
    store: Store, read: range, month: range, warn: Callable[[str], None]
) -> Mapping[tuple[str, str], float]:
    """Return what a record takes in the log of each topic: the mean of the month, else what was measured last."""
    from mm2mgr.samples.schema import HOUR_MS
    from mm2mgr.samples.store import StoredSizeStore

    rows = StoredSizeStore(store, warn).read(read.start * HOUR_MS, max(read.stop, month.stop) * HOUR_MS)
    last: dict[tuple[str, str], float] = {}
    of_month: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        last[row.cluster, row.topic] = row.stored_bytes
        if month.start <= row.time_ms // HOUR_MS < month.stop:
            of_month.setdefault((row.cluster, row.topic), []).append(row.stored_bytes)
    return last | {name: sum(sizes) / len(sizes) for name, sizes in of_month.items()}


def _months_of(month: str) -> int:
    year, number = map(int, month.split("-"))
    return 12 * year + number


def _notes(results: Mapping[str, MonthOfFlows], now_hour: int) -> list[str]:
    from mm2mgr.throughput.topic_hours import month_hours

    notes, unpriced = list[str](), dict[str, None]()
    for month, result in results.items():
        if not result.charges:
            continue
        shares = [charge.volume.covered for charge in result.charges]
        hours = month_hours(month)
        ahead = min(len(hours), max(0, hours.stop - 1 - now_hour))
        covered = _percent(min(shares)) + (
            f" to {_percent(max(shares))}" if _percent(min(shares)) != _percent(max(shares)) else ""
        )
        note = f"{month} (UTC): {covered} of its {len(hours)} hours was measured"
        if min(shares) < 1:
            grows = _growth_text([filled.growth for filled in result.growth.values() if filled.compared])
            still = f", of which {number_of(ahead, 'hour')} are to come," if ahead else ""
            note += f"; the rest{still} counts as the same hours of the week did, {grows}"
        notes.append(f"{note}.")
        unpriced |= {charge.place: None for charge in result.charges if charge.price_per_gb is None}
    used = {basis for result in results.values() for charge in result.charges for basis in charge.volume.by_basis}
    if any(result.charges for result in results.values()):
        notes.append(
            f"GB are 10^9 bytes: over links on the wire (Kafka's bytes × {WIRE_FACTOR}), into clusters Kafka's bytes."
        )
    notes += [f"{basis}: {text}." for basis, text in BASES.items() if basis in used]
    if unpriced:
        notes.append(
            f"No price is declared for {few(list(unpriced), 8)} (price_per_gb of a link, price_per_gb_in of a cluster)."
        )
    return notes


def _growth_text(growths: Sequence[float]) -> str:
    if not growths:
        return "without growth, of which too little is known"
    ends = [f"{(growth - 1) * 100:.1f} %" for growth in (min(growths), max(growths))]
    return f"at their growth of {' to '.join(dict.fromkeys(ends))} a week"


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"
