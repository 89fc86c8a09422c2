"""Where the socket buffers of brokers cap what a flow carries over a long link, and what lifting them gains. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from mm2mgr.link import BY_SYSTEM, GAIN_WORTH_SAYING, BrokerLimits, Clients, FlowTraffic, Leg, Route, predict
from mm2mgr.text import number_of, rate_text

ENOUGH_PARTITIONS = 64
"""Taken where the number of partitions is not known: more tasks than that make up for no buffer."""
_AS_MUCH = 0.9


@dataclass(frozen=True)
class Ceiling:
    """A buffer of the brokers at one end that caps a flow: bytes per second of one partition `now` and once `lifted`.

    With it the flow would carry `flow_lifted`; without it, so many `tasks` carry `flow`, which is as much, or the most that they can.
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
            return f"without it {number_of(self.tasks, 'task')} {'carries' if self.tasks == 1 else 'carry'} {rate_text(self.flow)}, with it {rate_text(self.flow_lifted)}"
        return f"its {tasks} tasks make up for it" if self.tasks <= tasks else f"without it use {self.tasks} tasks"


@lru_cache(4096)  # many flows of an estate are alike
def ceilings(
    route: Route, clients: Clients, traffic: FlowTraffic, source: BrokerLimits, target: BrokerLimits
) -> tuple[Ceiling, ...]:
    """Return the buffers that cap a flow and were read from brokers, on the legs that its workers have to them."""
    found: list[Ceiling] = []
    if route.reading and source.read and source.send_buffer_bytes != BY_SYSTEM:
        ways = (source, target), (replace(source, send_buffer_bytes=BY_SYSTEM), target)
        found += _ceiling("source", "socket.send.buffer.bytes", route, route.reading, clients, traffic, ways)
    if route.writing and target.read and target.receive_buffer_bytes != BY_SYSTEM:
        ways = (source, target), (source, replace(target, receive_buffer_bytes=BY_SYSTEM))
        found += _ceiling("target", "socket.receive.buffer.bytes", route, route.writing, clients, traffic, ways)
    return tuple(found)


def _ceiling(  # noqa: PLR0913, PLR0917  the arguments of the model, twice
    end: Literal["source", "target"],
    key: str,
    route: Route,
    leg: Leg,
    clients: Clients,
    traffic: FlowTraffic,
    ways: tuple[tuple[BrokerLimits, BrokerLimits], tuple[BrokerLimits, BrokerLimits]],
) -> Iterator[Ceiling]:
    one = replace(traffic, partitions=1, tasks=1)
    now, lifted = (predict(route, clients, one, *way).partition for way in ways)
    if not lifted or lifted <= GAIN_WORTH_SAYING * now:
        return
    whole = predict(route, clients, traffic, *ways[1]).flow
    flows = {
        n: predict(route, clients, replace(traffic, tasks=n), *ways[0]).flow for n in range(1, traffic.partitions + 1)
    }
    enough = (n for n, flow in flows.items() if flow >= _AS_MUCH * whole)
    tasks = next(enough, max(flows, key=lambda n: flows[n]))
    yield Ceiling(end, key, leg, now, lifted, tasks, flows[tasks], whole)
