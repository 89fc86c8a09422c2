"""Connect clusters that mirror without storing offsets: one dead source blocks the commits of every flow on its worker. Pure.

In: a reading, and what is remembered of its flows. Out: one value per Connect cluster that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mm2mgr.observe.memory import Memory
from mm2mgr.observe.reading import Reading

_SHOWN = 5


@dataclass(frozen=True)
class StaleOffsets:
    """Flows of one Connect cluster whose records arrive while their offsets are not stored; `sources` could not be read."""

    connect: str
    flows: tuple[str, ...]
    seconds: float
    records: int
    sources: tuple[str, ...]

    @property
    def is_problem(self) -> bool:
        """Without a dead source it may be no more than a long offset.flush.interval.ms, which workers do not show."""
        return bool(self.sources)

    def sentence(self) -> str:
        """Say what it means and, where it is known, what to do."""
        names = ", ".join(self.flows[:_SHOWN]) + (", …" if len(self.flows) > _SHOWN else "")
        count = "1 flow" if len(self.flows) == 1 else f"{len(self.flows)} flows"
        fact = (
            f"offsets of {count} not stored for {self.seconds:.0f} s while their records arrive ({names}); a restart would "
            f"mirror at least {self.records} records again"
        )
        if not self.sources:
            return (
                f"{fact}; normal if offset.flush.interval.ms of its workers is longer, else look into their log for a "
                "source that does not answer"
            )
        dead = ", ".join(self.sources)
        return (
            f"{fact}; source {dead} could not be read, and a dead source blocks offset commits of every flow on its workers: "
            f"bring {dead} back, or write state: stopped on the flows from it"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "connect": self.connect,
            "flows": list(self.flows),
            "seconds": self.seconds,
            "records": self.records,
            "unread_sources": list(self.sources),
            "detail": self.sentence(),
        }


def stale_offsets(reading: Reading, memory: Memory, patience_seconds: float) -> Iterator[StaleOffsets]:
    """Yield the Connect clusters where several flows, or one beside a dead source, have waited this long for a commit."""
    for name in reading.connects:
        flows = [flow for flow in reading.flows if flow.connect.name == name]
        kept = [(flow.id, memory.of(flow.id).unstored) for flow in flows]
        waiting = [(flow, one.records, one.clock.seconds) for flow, one in kept
                   if one and one.clock and not one.clock.paused and one.clock.seconds >= patience_seconds]  # fmt: skip
        dead = tuple(sorted({flow.source.alias for flow in flows if reading.clusters[flow.source.alias].failure}))
        if len(waiting) > 1 or (waiting and dead):
            yield StaleOffsets(
                name,
                tuple(flow for flow, _, _ in waiting),
                min(seconds for _, _, seconds in waiting),
                sum(records for _, records, _ in waiting),
                dead,
            )
