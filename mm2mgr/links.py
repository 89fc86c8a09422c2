"""What a network link between two data centers lets a connection carry. Pure: the renderer, sizing and lint share these formulas.

Rates are bytes per second, round trips seconds; a bandwidth of None is no limit.
"""

from __future__ import annotations

import math

# A worker hands the records of one fetch on at this rate before it sends the next fetch; fitted to 64 measured runs.
_HAND_ON_BYTES_PER_SECOND = 60e6


def connection_rate(rtt: float, bandwidth: float | None, window_bytes: float, connections: int = 1) -> float:
    """Return what one TCP connection carries: its window per round trip, at most its share of the bandwidth (infinity: no limit)."""
    by_window = window_bytes / rtt if rtt > 0 else math.inf
    return min(by_window, bandwidth / max(connections, 1)) if bandwidth else by_window


def fetching_rate(rtt: float, connection: float, fetch_bytes: float) -> float:
    """Return what a task carries with one fetch D in flight over a connection of rate r: D / (RTT + D/r + D/P)."""
    return fetch_bytes / (rtt + fetch_bytes / connection + fetch_bytes / _HAND_ON_BYTES_PER_SECOND)
