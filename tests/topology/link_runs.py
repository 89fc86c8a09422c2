"""Measured runs over an emulated link: Kafka 4.3.1, one broker on each side, one worker, 1 KB records unless `record` says otherwise.

Rates: MB/s of 10^6 bytes that arrived, single runs beside other work on two cores. Plain settings are those of Kafka and Connect.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mm2mgr.link import MIB, BrokerLimits, Clients, FlowTraffic, Leg, Placement

AUTO = BrokerLimits(send_buffer_bytes=-1, receive_buffer_bytes=-1)
STOCK = BrokerLimits()
STOCK_CLIENTS = Clients()


@dataclass(frozen=True)
class Run:
    placement: Placement
    partitions: int
    tasks: int
    measured: float
    clients: Clients = STOCK_CLIENTS
    brokers: BrokerLimits = STOCK
    rtt: float = 0.1
    mbit: float = 200
    record: float = 1000
    used_to_fit: bool = field(default=False)

    @property
    def leg(self) -> Leg:
        return Leg(self.rtt, self.mbit * 125_000)

    @property
    def traffic(self) -> FlowTraffic:
        return FlowTraffic(self.partitions, self.tasks, self.record)


def _reading(of_one: int, fetch: int = 16 * MIB, window: int = -1) -> Clients:
    return Clients(
        receive_buffer_bytes=window, partition_fetch_bytes=of_one, fetch_bytes=max(fetch, of_one), batch_bytes=131_072
    )


TUNED = _reading(4 * MIB)
WINDOW_ONLY = Clients(receive_buffer_bytes=-1)
ARTICLE = Clients(partition_fetch_bytes=50 * MIB, batch_bytes=50 * MIB, buffer_bytes=64 * MIB, request_bytes=60 * MIB)
FETCH_50 = Clients(partition_fetch_bytes=50 * MIB)
BEST = Clients(send_buffer_bytes=-1, batch_bytes=900 * 1024, in_flight=5, request_bytes=16 * MIB, buffer_bytes=64 * MIB)
LARGE_TOPIC = BrokerLimits(send_buffer_bytes=-1, receive_buffer_bytes=-1, message_bytes=60 * MIB)

RUNS = (
    # remote consume, by window and fetch
    Run("target", 1, 1, 0.79, used_to_fit=True),
    Run("target", 1, 1, 2.25, TUNED, used_to_fit=True),
    Run("target", 1, 1, 12.1, TUNED, AUTO, used_to_fit=True),
    Run("target", 1, 1, 11.7, TUNED, AUTO),
    Run("target", 1, 1, 14.0, _reading(16 * MIB), AUTO),
    Run("target", 1, 1, 16.9, _reading(50 * MIB), AUTO),
    Run("target", 1, 1, 6.9, WINDOW_ONLY, AUTO),
    Run("target", 1, 1, 16.0, replace(FETCH_50, receive_buffer_bytes=-1), AUTO),
    Run("target", 12, 4, 3.0),
    Run("target", 12, 4, 4.0),
    Run("target", 12, 4, 12.5, TUNED),
    Run("target", 12, 4, 22.1, TUNED, AUTO),
    Run("target", 12, 4, 23.9, TUNED, AUTO),
    Run("target", 12, 4, 18.5, _reading(MIB), AUTO),
    Run("target", 12, 4, 18.1, WINDOW_ONLY, AUTO),
    Run("target", 12, 12, 7.5),
    Run("target", 12, 12, 23.0, TUNED),
    Run("target", 12, 12, 24.6, TUNED, AUTO),
    Run("target", 12, 4, 13.8, rtt=0.02),
    Run("target", 12, 4, 22.2, TUNED, AUTO, rtt=0.02),
    Run("target", 12, 4, 1.6, rtt=0.2),
    Run("target", 12, 4, 22.3, TUNED, AUTO, rtt=0.2),
    Run("target", 1, 1, 8.4, TUNED, AUTO, rtt=0.2),
    Run("target", 12, 4, 45.4, TUNED, AUTO, mbit=400),
    Run("target", 12, 1, 22.4, TUNED, AUTO, mbit=400),
    Run("target", 12, 4, 18.0, TUNED, AUTO, record=200),
    Run("target", 12, 4, 24.0, TUNED, AUTO, record=10_000),
    # remote produce
    Run("source", 1, 1, 0.15, used_to_fit=True),
    Run("source", 1, 1, 1.25, BEST, used_to_fit=True),
    Run("source", 1, 1, 23.6, BEST, AUTO),
    Run("source", 12, 1, 0.77, brokers=AUTO),
    Run("source", 12, 1, 1.36, BEST),
    Run("source", 12, 1, 18.5, BEST, AUTO),
    Run("source", 12, 4, 1.85),
    Run("source", 12, 4, 23.3, BEST, AUTO),
    Run("source", 12, 4, 24.1, BEST, AUTO),
    Run("source", 12, 12, 1.5),
    Run("source", 12, 12, 14.9, BEST),
    Run("source", 12, 4, 13.8, replace(BEST, send_buffer_bytes=131_072), AUTO),
    Run("source", 12, 4, 18.1, replace(BEST, in_flight=1), AUTO),
    Run("source", 12, 4, 9.1, replace(BEST, batch_bytes=16_384), AUTO),
    Run("source", 12, 4, 23.6, replace(BEST, request_bytes=MIB), AUTO),
    # nothing, or next to nothing, arrived
    Run("target", 1, 1, 0.0, FETCH_50),
    Run("target", 12, 1, 0.0, FETCH_50),
    Run("target", 12, 12, 0.0, FETCH_50),
    Run("target", 12, 4, 0.0, _reading(16 * MIB, 50 * MIB, window=65_536), AUTO),
    Run("target", 17, 1, 0.0, rtt=0.2),
    Run("source", 1, 1, 0.0, Clients(batch_bytes=50 * MIB)),
    Run("source", 12, 4, 0.08, replace(ARTICLE, buffer_bytes=128 * MIB), AUTO),
)


def _compiled(fetch: int = 0, batch: int = 0) -> Clients:
    """What mm2mgr compiles for a link: a fetch over it, or a batch and a small fetch on the near side."""
    if fetch:
        return Clients(receive_buffer_bytes=-1, send_buffer_bytes=-1, fetch_bytes=fetch, partition_fetch_bytes=fetch)
    return Clients(receive_buffer_bytes=-1, send_buffer_bytes=-1, fetch_bytes=8 * MIB, batch_bytes=batch, in_flight=5)


def _polled(fetch: int) -> Clients:
    """A fetch over the link whose records one poll returns."""
    return replace(_reading(fetch, fetch), poll_records=50_000)


# `benchmarks/long_link.py` on a machine with free cores; none of these was used to fit.
POLLED_RUNS = (
    Run("target", 1, 1, 16.56, _polled(8 * MIB), AUTO),
    Run("target", 1, 1, 17.40, _polled(16 * MIB), AUTO),
    Run("target", 1, 1, 18.52, _polled(24 * MIB), AUTO),
    Run("target", 12, 4, 23.05, _polled(4 * MIB), AUTO),
    Run("target", 12, 4, 23.57, _polled(8 * MIB), AUTO),
    Run("target", 12, 4, 23.78, _polled(16 * MIB), AUTO),
    Run("target", 12, 12, 22.60, _polled(4 * MIB)),
    Run("target", 12, 12, 22.64, _polled(8 * MIB)),
)
# Another emulator on another day (`benchmarks/long_link.py`), with a load of up to 11 on two cores: of these only the window
# of the source's brokers was fitted, so runs that it decides are `used_to_fit`.
LATER_RUNS = (
    Run("target", 1, 1, 1.5, _compiled(fetch=4 * MIB), used_to_fit=True),
    Run("target", 12, 4, 6.07, _compiled(fetch=4 * MIB), used_to_fit=True),
    Run("target", 12, 12, 17.65, _compiled(fetch=4 * MIB), used_to_fit=True),
    Run("target", 1, 1, 0.5, _compiled(fetch=4 * MIB), rtt=0.3, mbit=10, used_to_fit=True),
    Run("target", 1, 1, 0.79),
    Run("target", 1, 1, 0.81, brokers=AUTO),
    Run("target", 12, 4, 3.13),
    Run("target", 12, 4, 4.21, brokers=AUTO),
    Run("target", 12, 12, 8.21),
    Run("target", 1, 1, 13.03, TUNED, AUTO),
    Run("target", 12, 4, 22.38, TUNED, AUTO),
    Run("target", 1, 1, 7.88, TUNED, AUTO, rtt=0.2),
    Run("target", 1, 1, 8.58, _compiled(fetch=31 * MIB), AUTO),
    Run("target", 12, 4, 21.76, _compiled(fetch=14 * MIB), AUTO),
    Run("target", 12, 12, 23.77, _compiled(fetch=6 * MIB), AUTO),
    Run("target", 100, 1, 1.19, _compiled(fetch=4 * MIB), rtt=0.001, mbit=10),
    Run("source", 1, 1, 0.15),
    Run("source", 12, 4, 1.58),
    Run("source", 12, 12, 1.65),
    Run("source", 1, 1, 1.27, BEST),
    Run("source", 12, 4, 5.29, BEST),
    Run("source", 1, 1, 1.25, _compiled(batch=50_176)),
    Run("source", 12, 12, 11.62, _compiled(batch=50_176)),
    Run("source", 1, 1, 19.39, _compiled(batch=922_624), AUTO),
    Run("source", 12, 4, 22.86, _compiled(batch=922_624), AUTO),
    Run("source", 12, 12, 22.99, _compiled(batch=922_624), AUTO),
    Run("source", 100, 1, 1.12, _compiled(batch=16_384), rtt=0.001, mbit=10),
    Run("source", 1, 1, 0.38, _compiled(batch=50_176), rtt=0.3, mbit=10),
    Run("target", 12, 4, 0.0, ARTICLE),
    Run("source", 12, 4, 0.0, ARTICLE),
)
