"""Traffic on the pages: what the sources of flows and pairs get now, beside yesterday and last week at this hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from mm2mgr.evidence.traffic import Beside, Verdict, add_up, by_hour, rates_beside, verdict, volume
from mm2mgr.operations.estate_view import EstateView
from mm2mgr.serve.pages.base import Context, flow_link
from mm2mgr.serve.pages.charts import sparkline
from mm2mgr.text import count_text, number_of, rate_text, records_rate_text

_SHOWN = 8
"""Pairs that are not folded."""
_VERDICTS: Sequence[Verdict] = ("less than usual", "more than usual", "unknown", "as usual")
_AT_THIS_HOUR = "at this hour"


@dataclass(frozen=True)
class FlowTrafficNow:
    """What the source of a flow gets: records and bytes per second now and then, and records per second hour by hour
    over the last day, the hour that is not over included."""

    records: Beside = field(default_factory=Beside)
    volume: Beside = field(default_factory=Beside)
    day: tuple[float | None, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return verdict([self.records])

    @property
    def sparkline(self) -> str:
        """The last day as a small drawing; empty where nothing was measured."""
        return sparkline(self.day, _spark_label(self.day)) if any(rate is not None for rate in self.day) else ""


def traffic_of(view: EstateView, flow: str) -> FlowTrafficNow:
    """Return the traffic of a flow as of the last look."""
    if view.look is None:
        return FlowTrafficNow()
    now, moves, history = view.look.status.taken_at, view.throughput.get(flow), view.traffic.of_flow(flow)
    rate = moves.source_records_per_second if moves else None
    size = history.record_bytes
    if moves and moves.mirrored_records_per_second and moves.mirrored_bytes_per_second is not None:
        size = moves.mirrored_bytes_per_second / moves.mirrored_records_per_second
    records, volumes = rates_beside(history, rate, volume(rate, size), now)
    return FlowTrafficNow(records, volumes, tuple(value for _, value in by_hour(history, now)))


def traffic(view: EstateView) -> Context | None:
    """Return the traffic section of the overview: all of it in a sentence, and a row per pair, those that are not as
    usual first; None before the first look."""
    if view.look is None:
        return None
    flows, rows = _traffic(view)
    shown = rows if len(rows) <= _SHOWN + 2 else rows[:_SHOWN]
    return _section(view, flows, shown, _more(rows[len(shown) :]))


def traffic_page(view: EstateView) -> Context:
    """Return the page of the traffic of all pairs."""
    flows, rows = _traffic(view)
    return {"name": "traffic", "here": "/traffic", "traffic": _section(view, flows, rows)}


def _section(view: EstateView, flows: Sequence[FlowTrafficNow], rows: list[Context], more: str = "") -> Context:
    """Return what `traffic.html.j2` shows: without columns of earlier hours where none of them is known."""
    is_compared = any(of.records[1:] != (None, None) or any(rate is not None for rate in of.day) for of in flows)
    notes = _notes(view, flows)
    return {"total": _total(flows), "notes": notes, "rows": rows, "more": more, "is_compared": is_compared}


def _traffic(view: EstateView) -> tuple[list[FlowTrafficNow], list[Context]]:
    """Return the traffic of all flows, and a row per pair, those that are not as usual first."""
    pairs = defaultdict[str, list[tuple[str, FlowTrafficNow]]](list)
    for status in view.look.status.flows if view.look else ():
        pairs[status.pair].append((status.flow, traffic_of(view, status.flow)))
    rows = [_row(pair, flows) for pair, flows in pairs.items()]
    rows.sort(key=_order)
    return [of for several in pairs.values() for _, of in several], rows


def _order(row: Context) -> tuple[int, float, str]:
    verdicts, rate = list(map(str, _VERDICTS)), row["rate"]
    return verdicts.index(str(row["verdict"])), -rate if isinstance(rate, float) else 0.0, str(row["pair"])


def _notes(view: EstateView, flows: Sequence[FlowTrafficNow]) -> list[str]:
    unmeasured = sum(of.records.now is None for of in flows)
    notes = [f"{number_of(unmeasured, 'flow')} of {len(flows)} not measured now."] if unmeasured else []
    statuses = view.look.status.flows if view.look else ()
    if by_source := sum(
        traffic_of(view, of.flow).records.now is not None and view.is_without_workers(of) for of in statuses
    ):
        notes.append(
            f"{number_of(by_source, 'flow')} by the growth of the source's log alone: no worker tells its offsets."
        )
    earlier, volumes = view.traffic.unknown, view.traffic.bytes_unknown
    if earlier:
        notes.append(f"Earlier rates{' and bytes' * (volumes == earlier)} are unknown: {earlier}.")
    if volumes and volumes != earlier:
        notes.append(f"Bytes of earlier hours are unknown: {volumes}.")
    return [*notes, *view.traffic.warnings]


def _more(rows: Sequence[Context]) -> str:
    counts = [(word, sum(row["verdict"] == word for row in rows)) for word in _VERDICTS]
    words = ", ".join(f"{count} {word}" for word, count in counts if count)
    return f"{number_of(len(rows), 'more pair')}: {words}" if rows else ""


def _total(flows: Sequence[FlowTrafficNow]) -> str:
    records, volumes = add_up(of.records for of in flows), add_up(of.volume for of in flows)
    if records.now is None:
        return "What the sources get now is unknown: it takes two looks, and answers of the clusters."
    in_bytes = "" if volumes.now is None else f" and {rate_text(volumes.now)}"
    words = verdict(of.records for of in flows)
    shown = {"unknown": "what is usual is not known yet"}.get(words, words)
    return f"Sources get {records_rate_text(records.now)}{in_bytes}; {shown}."


def beside_lines(of: FlowTrafficNow) -> Iterator[str]:
    """Say what a flow's source gets beside what it got at this hour."""
    if of.records.now is not None:
        then = [
            f"{day} {_AT_THIS_HOUR} {'not measured' if rate is None else records_rate_text(rate)}"
            for day, rate in (("yesterday", of.records.yesterday), ("last week", of.records.last_week))
        ]
        word = "" if of.verdict == "unknown" else f", {of.verdict}"
        yield f"Its source gets {records_rate_text(of.records.now)}{word}: {', '.join(then)}."


def _row(pair: str, flows: Sequence[tuple[str, FlowTrafficNow]]) -> Context:
    source, _, target = pair.partition("->")
    records, volumes = add_up(of.records for _, of in flows), add_up(of.volume for _, of in flows)
    hours = [
        None if all(rate is None for rate in rates) else sum(rate or 0.0 for rate in rates)
        for rates in zip(*(of.day for _, of in flows), strict=True)
    ]
    only = flows[0][0] if len(flows) == 1 else ""
    return {
        "pair": f"{source} → {target}",
        "link": flow_link(only) if only else f"/flows?{urlencode({'source': source, 'target': target})}",
        "verdict": verdict(of.records for _, of in flows),
        "rate": records.now or 0.0,
        "drawn": sparkline(hours, _spark_label(hours)) if any(rate is not None for rate in hours) else "",
        "records": [_records(rate) for rate in records],
        "volume": ["unknown" if rate is None else rate_text(rate) for rate in volumes],
    }


def _records(rate: float | None) -> str:
    return "unknown" if rate is None else count_text(rate)


def _spark_label(hours: Sequence[float | None]) -> str:
    measured = [rate for rate in hours if rate is not None]
    if not measured:
        return ""
    gaps = f", {number_of(len(hours) - len(measured), 'hour')} not measured" if len(measured) < len(hours) else ""
    return f"24 h: {count_text(min(measured))} to {records_rate_text(max(measured))}{gaps}"
