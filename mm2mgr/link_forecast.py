"""What the link model says of a flow: with the settings of the tree and with two others beside them, in both
placements, and where the socket buffers of brokers cap it. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, get_args

from mm2mgr.defaults import Text, by_default
from mm2mgr.link import (
    BY_SYSTEM,
    GAIN_WORTH_SAYING,
    MIB,
    USUAL_HEAP_BYTES,
    WORKER_HEAP_BYTES,
    BrokerLimits,
    Clients,
    FlowTraffic,
    Forecast,
    Leg,
    Placement,
    Route,
    predict,
)
from mm2mgr.link_settings import compiled_clients, may_pipeline
from mm2mgr.text import number_of, rate_text
from mm2mgr.truth.reach import CLIENTS, text_of

if TYPE_CHECKING:
    from mm2mgr.topology import Flow  # with its models, which a lint of single files does without

Settings = Literal["Kafka's defaults", "published recipe", "this tree"]
SETTINGS: tuple[Settings, ...] = get_args(Settings)
Quantity = Literal["round trip", "tasks", "fetch", "batch"]
_OTHERS: dict[Settings, Clients] = {
    "Kafka's defaults": Clients(),
    # 50 MiB for a partition's fetch and for a batch, as often published for long links, with what lets a producer start
    # with it.
    "published recipe": Clients(
        fetch_bytes=50 * MIB,
        partition_fetch_bytes=50 * MIB,
        batch_bytes=50 * MIB,
        request_bytes=60 * MIB,
        buffer_bytes=128 * MIB,
    ),
}
_TREE: Settings = "this tree"
_ROUND_TRIPS_MS = (1, 5, 10, 20, 50, 100, 150, 200, 300)
_TASKS = (1, 2, 4, 8, 16, 32, 64)
_SIZES = (*(16 * 1024 * 4**power for power in range(6)), 50 * MIB)


@dataclass(frozen=True)
class Row:
    """One placement with one set of client settings. `heap_bytes`: of a worker that runs `worker_tasks` such tasks."""

    placement: str
    settings: Settings
    is_current: bool
    forecast: Forecast
    heap_bytes: float
    fits: bool


@dataclass(frozen=True)
class CurvePoint:
    """Bytes per second of the flow by settings at one value. `marks`: the settings, or `here`, that have this value."""

    value: float
    rates: Mapping[Settings, float]
    marks: tuple[str, ...] = ()
    task_heap_bytes: float | None = None


@dataclass(frozen=True)
class Curve:
    """The flow's rate over one quantity, all else as it is: seconds of round trip, tasks, bytes of a fetch or batch."""

    over: Quantity
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class LinkComparison:
    """A flow over its link: what decides, what other settings and placement would give, how it changes."""

    flow: str
    route: str
    placement: str
    traffic: FlowTraffic
    brokers_read: bool
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    limit: str = ""
    """Its catch-up limit, in words."""
    json_keys = "flow route placement traffic brokers_read rows curves limit verdict"

    @property
    def verdict(self) -> str:
        """What the flow carries now, and what decides it."""
        (now,) = (row for row in self.rows if row.is_current)
        return "; ".join(filter(None, (now.forecast.verdict, self.limit)))


def forecast_of(flow: Flow, route: Route, traffic: FlowTraffic, clients: Clients | None = None) -> Forecast:
    """Return what the flow carries over a route with its own settings or others, and the limits of its brokers."""
    return predict(route, clients or _clients_of(flow), traffic, flow.source.limits, flow.target_limits)


def _clients_of(flow: Flow) -> Clients:
    return Clients.read(lambda client, key: client_number(flow, client, key)) or Clients()


def client_number(flow: Flow, client: str, key: str) -> int:
    """Return a client's setting as a number: Kafka's default where the tree unsets it or writes a placeholder."""
    (definition,) = (definition for definition in CLIENTS["source"] if definition.name == client)
    written = flow.client(definition.block or "").get(key, "")
    config = {definition.layers[-1].prefix + key: written} if written.removeprefix("-").isdecimal() else {}
    return int(text_of("source", config, client, key))


def compare(flow: Flow, route: Route, traffic: FlowTraffic) -> LinkComparison:
    """Return what the model says of a flow over a route that crosses a declared link."""
    leg = route.legs[0]
    placements = {
        "target": Route.over_link(leg, "target"),
        "source": Route.over_link(leg, "source"),
        route.placement: route,
    }
    rows = [
        _row(flow, there, settings, traffic, is_current=there == route and settings == _TREE)
        for there in placements.values()
        for settings in SETTINGS
    ]
    curves = _over_round_trip(flow, route, traffic), _over_tasks(flow, route, traffic), _over_size(flow, route, traffic)
    limits = flow.source.limits if route.reading else flow.target_limits
    limit = flow.catch_up.words if flow.catch_up else ""
    return LinkComparison(flow.id, route.words, route.placement, traffic, limits.read, tuple(rows), curves, limit)


def _clients(flow: Flow, route: Route, settings: Settings) -> Clients:
    """Return the client settings: those of the tree as they would be compiled for this route."""
    return _OTHERS.get(settings) or _clients_of(replace(flow, route=route))


def _row(flow: Flow, route: Route, settings: Settings, traffic: FlowTraffic, *, is_current: bool) -> Row:
    forecast = forecast_of(flow, route, traffic, _clients(flow, route, settings))
    heap = WORKER_HEAP_BYTES + flow.worker_tasks * forecast.task_heap_bytes
    fits = forecast.fits(flow.connect.model.workers.memory or USUAL_HEAP_BYTES, flow.worker_tasks)
    return Row(route.placement, settings, is_current, forecast, heap, fits)


def _rates(find: Callable[[Settings], Forecast]) -> dict[Settings, float]:
    return {settings: find(settings).flow for settings in SETTINGS}


def _values(usual: Iterable[float], *own: float) -> list[float]:
    return sorted({*usual, *own})


def _over_round_trip(flow: Flow, route: Route, traffic: FlowTraffic) -> Curve:
    def with_trip(leg: Leg | None, seconds: float) -> Leg | None:
        return replace(leg, rtt_seconds=seconds) if leg else None

    def point(seconds: float) -> CurvePoint:
        there = replace(route, reading=with_trip(route.reading, seconds), writing=with_trip(route.writing, seconds))
        rates = _rates(lambda settings: forecast_of(flow, there, traffic, _clients(flow, there, settings)))
        return CurvePoint(seconds, rates, ("here",) if seconds == here else ())

    here = route.rtt_seconds
    return Curve("round trip", tuple(map(point, _values((round_trip / 1000 for round_trip in _ROUND_TRIPS_MS), here))))


def _over_tasks(flow: Flow, route: Route, traffic: FlowTraffic) -> Curve:
    def point(value: float) -> CurvePoint:
        count = int(value)
        maximum: Text = by_default(str(count), "asked")
        with_tasks = replace(flow, tasks=replace(flow.tasks, maximum=maximum))
        now = replace(traffic, tasks=count)
        rates = _rates(lambda settings: forecast_of(flow, route, now, _clients(with_tasks, route, settings)))
        return CurvePoint(value, rates, ("here",) if count == traffic.tasks else ())

    usual = [count for count in _TASKS if count < traffic.partitions]
    return Curve("tasks", tuple(map(point, _values(usual, traffic.partitions, traffic.tasks))))


def _over_size(flow: Flow, route: Route, traffic: FlowTraffic) -> Curve:
    """Change the size of a partition's fetch, or of a batch where the records are sent over the link."""
    by_settings = {settings: _clients(flow, route, settings) for settings in SETTINGS}
    own = {
        name: clients.partition_fetch_bytes if route.reading else clients.batch_bytes
        for name, clients in by_settings.items()
    }

    def with_size(clients: Clients, size: int) -> Clients:
        if route.reading:
            return replace(clients, partition_fetch_bytes=size, fetch_bytes=max(size, clients.fetch_bytes))
        return replace(clients, batch_bytes=size)

    def point(value: float) -> CurvePoint:
        forecasts = {
            name: forecast_of(flow, route, traffic, with_size(clients, int(value)))
            for name, clients in by_settings.items()
        }
        marks = tuple(name for name, size in own.items() if size == value)
        return CurvePoint(
            value,
            {name: forecast.flow for name, forecast in forecasts.items()},
            marks,
            forecasts[_TREE].task_heap_bytes,
        )

    return Curve("fetch" if route.reading else "batch", tuple(map(point, _values(_SIZES, *own.values()))))


# --- in two sentences, for `explain FLOW`
# ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkForecast:
    """What a flow carries over its link as it is set, with one partition for each task; `other`: with workers beside
    the other end.
    """

    route: Route
    here: Forecast
    other: Forecast | None
    unread: tuple[str, ...] = ()
    """Clusters whose brokers' limits were not read."""
    json_keys = "placement=route.placement route=route.words forecast=here other_end=other verdict=sentences"

    @property
    def sentences(self) -> list[str]:
        sentences = [f"workers {_PLACES[self.route.placement]}, over {self.route.words}: {self.here.verdict}"]
        if self.other and not self.here.stall and not self.other.stall:
            way, end = ("produce", "source") if self.route.reading else ("consume", "target")
            words = "cannot exceed" if self.other.partition > self.here.partition else "can carry"
            then = f"with workers beside the {end} (remote {way}) {rate_text(self.other.partition)}"
            sentences.append(f"one partition {words} {rate_text(self.here.partition)} here; {then}")
        if self.unread:
            sentences.append(
                f"the limits of {' and '.join(self.unread)} were not read, so Kafka's defaults count: mm2mgr link read"
            )
        return sentences


_PLACES: dict[Placement, str] = {
    "target": "beside the target (remote consume)",
    "source": "beside the source (remote produce)",
    "elsewhere": "elsewhere",
}


def outlook(flow: Flow) -> LinkForecast | None:
    """Return what a flow carries over its link, None where none is declared."""
    route, crossing = flow.route, flow.crossing
    if route is None or crossing is None:
        return None
    tasks, other = int(flow.tasks.maximum), None
    if len(route.legs) == 1:
        there = Route.over_link(route.legs[0], "source" if route.reading else "target")
        secured = bool(flow.target.model.security)
        moved = replace(crossing, route=there, idempotent=may_pipeline(flow.target_limits, {}, secured=secured))
        other = predict(
            there, compiled_clients(moved), FlowTraffic(tasks, tasks), flow.source.limits, flow.target_limits
        )
    unread = tuple(end.alias for end in (flow.source, flow.target) if not end.limits.read)
    return LinkForecast(route, forecast_of(flow, route, FlowTraffic(tasks, tasks)), other, unread)


# --- the socket buffers of brokers that cap a flow
# ---------------------------------------------------------------------

ENOUGH_PARTITIONS = 64
"""Taken where the number of partitions is not known: more tasks than that make up for no buffer."""
_AS_MUCH = 0.9


@dataclass(frozen=True)
class Ceiling:
    """A buffer of the brokers at one end that caps a flow: bytes per second of one partition `now` and once `lifted`.

    With it the flow would carry `flow_lifted`; without it, so many `tasks` carry `flow`, which is as much, or the most
    that they can.
    """

    end: Literal["source", "target"]
    key: str
    leg: Leg
    now: float
    lifted: float
    tasks: int
    flow: float
    flow_lifted: float

    def advice(self, cluster: str) -> str:
        """Return what to do about it, and what it gains."""
        rates = f"{rate_text(self.now)} -> {rate_text(self.lifted)} per partition"
        return f"set {self.key}=-1 on the brokers of {cluster}, with a rolling restart: {rates}"

    def meanwhile(self, tasks: int) -> str:
        """Return how far tasks make up for it."""
        if self.flow < _AS_MUCH * self.flow_lifted:
            return (
                f"without it {number_of(self.tasks, 'task')} {'carries' if self.tasks == 1 else 'carry'}"
                f" {rate_text(self.flow)}, with it {rate_text(self.flow_lifted)}"
            )
        return f"its {tasks} tasks make up for it" if self.tasks <= tasks else f"without it use {self.tasks} tasks"


@lru_cache(4096)  # many flows of an estate are alike
def ceilings(
    route: Route, clients: Clients, traffic: FlowTraffic, source: BrokerLimits, target: BrokerLimits
) -> tuple[Ceiling, ...]:
    """Return the buffers that cap a flow and were read from brokers, on the legs that its workers have to them."""
    forecast, ceilings_found = partial(predict, route, clients), list[Ceiling]()
    if route.reading and source.read and source.send_buffer_bytes != BY_SYSTEM:
        ways = (source, target), (replace(source, send_buffer_bytes=BY_SYSTEM), target)
        ceilings_found += _ceiling("source", route.reading, forecast, traffic, ways)
    if route.writing and target.read and target.receive_buffer_bytes != BY_SYSTEM:
        ways = (source, target), (source, replace(target, receive_buffer_bytes=BY_SYSTEM))
        ceilings_found += _ceiling("target", route.writing, forecast, traffic, ways)
    return tuple(ceilings_found)


def _ceiling(
    end: Literal["source", "target"],
    leg: Leg,
    forecast: Callable[[FlowTraffic, BrokerLimits, BrokerLimits], Forecast],
    traffic: FlowTraffic,
    ways: tuple[tuple[BrokerLimits, BrokerLimits], tuple[BrokerLimits, BrokerLimits]],
) -> Iterator[Ceiling]:
    single = replace(traffic, partitions=1, tasks=1)
    now, lifted = (forecast(single, *way).partition for way in ways)
    if not lifted or lifted <= GAIN_WORTH_SAYING * now:
        return
    whole = forecast(traffic, *ways[1]).flow
    flows = {n: forecast(replace(traffic, tasks=n), *ways[0]).flow for n in range(1, traffic.partitions + 1)}
    enough = (n for n, flow in flows.items() if flow >= _AS_MUCH * whole)
    tasks = next(enough, max(flows, key=lambda n: flows[n]))
    key = "socket.send.buffer.bytes" if end == "source" else "socket.receive.buffer.bytes"
    yield Ceiling(end, key, leg, now, lifted, tasks, flows[tasks], whole)


def buffer_advice(flows: Iterable[Flow]) -> list[str]:
    """Return a sentence for each brokers' buffer that caps flows beyond their tasks: what to set, and the gain."""
    cappings: dict[tuple[str, str], list[tuple[Ceiling, Flow]]] = {}
    for flow in flows:
        if flow.route is None:
            continue
        tasks = int(flow.tasks.maximum)
        traffic = FlowTraffic(max(ENOUGH_PARTITIONS, tasks), tasks)
        for ceiling in ceilings(flow.route, _clients_of(flow), traffic, flow.source.limits, flow.target_limits):
            if ceiling.tasks > tasks:
                cluster = flow.source if ceiling.end == "source" else flow.target
                cappings.setdefault((cluster.alias, ceiling.key), []).append((ceiling, flow))
    lines = []
    for (alias, _), capping in sorted(cappings.items()):
        ceiling, flow = max(capping, key=lambda pair: pair[0].lifted / pair[0].now)
        more = f" and {number_of(len(capping) - 1, 'other flow')}" if len(capping) > 1 else ""
        lines.append(f"{flow.id}{more}: {ceiling.advice(alias)}; {ceiling.meanwhile(int(flow.tasks.maximum))}")
    return lines
