"""Writes the way back of a failover where topics keep their names: holds the pair, stores where the way back begins,
reads it back, keeps what was lost, and then lets the way back go. It stays STOPPED.

Whatever kills it: until the last step nothing of either direction can run, and a second run does the same again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from mm2mgr.apply.carry_out import carry_out
from mm2mgr.apply.history import Recorder, topic_of
from mm2mgr.apply.leases import Leases
from mm2mgr.comparison.differences import KeyChange, Named
from mm2mgr.comparison.ownership import HELD_KEY, Picks, as_held
from mm2mgr.connect.types import SourceOffset
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.read import open_client
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change
from mm2mgr.plan.stages import (
    Compare,
    ConnectorStage,
    ReadBack,
    Stage,
    Stop,
    TakeOffsets,
    WriteConfig,
    WriteOffsets,
)
from mm2mgr.topology import Flow, Topology

COMMAND = "failover back"
_WRITE_SECONDS = 60.0
Begins = Mapping[TopicPartition, int]
"""The first offset that a connector mirrors, by partition of its source."""


@dataclass(frozen=True)
class HeldConnector:
    """A source connector that is held, or is to be: as declared, with the config that it has, and its flow.

    `opposite`: the pair that may run instead.
    """

    desired: Connector
    flow: Flow
    config: Mapping[str, str]
    opposite: str

    @property
    def full_name(self) -> Named:
        return self.desired.connect, self.desired.name

    @property
    def held_config(self) -> dict[str, str]:
        """Its config once it is held."""
        live = {key: value for key, value in self.config.items() if key != "name"}
        return live if HELD_KEY in live else as_held(live, self.opposite)

    @property
    def released_config(self) -> dict[str, str]:
        """Its config once it may run."""
        config = {key: value for key, value in self.held_config.items() if key not in {HELD_KEY, "enabled"}}
        enabled = self.desired.config.get("enabled")
        return config if enabled is None else {**config, "enabled": enabled}

    def change(self, keys: Iterable[KeyChange]) -> Change:
        """Return what is written to it, as the history has it: with the config that it has then."""
        name, config = self.desired.name, self.held_config
        return Change(self.desired.connect, name, "source", "update", (self.flow.id,), tuple(keys), config=config)


def hold_stages(held: HeldConnector, owner: str) -> tuple[Stage, ...]:
    """Return how a STOPPED connector is held."""
    if HELD_KEY in held.config:
        return (Compare(held.full_name, owner, held.config),)
    compare = Compare(held.full_name, owner, held.config, "STOPPED")
    return compare, WriteConfig(held.full_name, held.held_config, "held", known=True)


def offset_stages(held: HeldConnector, owner: str, begins: Begins) -> tuple[Stage, ...]:
    """Return how a connector is held, and gets the offsets at which it begins."""
    full_name, alias = held.full_name, held.flow.source.alias
    # A stored offset is that of the last mirrored record; what begins with offset 0 has none.
    entries = tuple(
        SourceOffset({"cluster": alias, "partition": place.partition, "topic": place.topic}, {"offset": first - 1})
        for place, first in sorted(begins.items())
        if first > 0 and held.flow.carries(place.topic)
    )
    picks = Picks(alias, alias, (held.flow.selection,))
    hold = (Compare(full_name, owner, held.config), WriteConfig(full_name, held.held_config, "held", known=True))
    write = (TakeOffsets(full_name, entries), WriteOffsets(full_name, picks), ReadBack(full_name, picks))
    return (*hold, Stop(full_name), *write)


def release_stages(held: HeldConnector, owner: str) -> tuple[Stage, ...]:
    """Return how a connector may run again: it stays STOPPED, and has its tasks once it is resumed."""
    compare = Compare(held.full_name, owner, {"name": held.full_name[1], **held.held_config}, "STOPPED")
    return compare, WriteConfig(held.full_name, held.released_config, "it may run", known=True)


def offsets_as_recorded(held: HeldConnector, begins: Begins, stored: Begins) -> Change:
    """Return the offsets of a connector as the history has them: a key for each partition that changes."""
    return held.change(
        KeyChange(f"first offset of {place}", str(stored[place]) if place in stored else None, str(first))
        for place, first in sorted(begins.items())
        if held.flow.carries(place.topic) and stored.get(place, 0) != first
    )


def hold_as_recorded(held: HeldConnector) -> Change:
    """Return the hold of a connector as the history has it."""
    return held.change([KeyChange(HELD_KEY, held.config.get(HELD_KEY), held.held_config[HELD_KEY])])


@dataclass
class WayBackWriter:
    """Writes a way back while it holds the leases of its Connect clusters, and records what it does."""

    topology: Topology
    recorder: Recorder
    leases: Leases

    async def carry_out(self, stages: Sequence[Stage], change: Change | None = None) -> None:
        """Carry out the stages of one connector, and record them as a change; Mm2mgrError where they fail."""
        if change is not None:
            self.recorder.begin(change)
        names = {stage.full_name[0] for stage in stages if isinstance(stage, ConnectorStage)}
        async with AsyncExitStack() as opened:
            clients = {
                name: await opened.enter_async_context(open_client(self.topology.connects[name], _WRITE_SECONDS))
                for name in sorted(names)
            }
            error = await carry_out(clients, stages, guard=self.leases.check)
        if change is not None:
            self.recorder.end(change, "failed" if error else "done", error.one_line if error else None)
        if error is not None:
            raise error

    async def keep(self, alias: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts by key in the history topic of a Kafka cluster (None: delete); KafkaError where they are not
        stored."""
        await asyncio.to_thread(_write_texts, self.topology, alias, texts)


def _write_texts(topology: Topology, alias: str, texts: Mapping[str, str | None]) -> None:
    from mm2mgr.kafka.compacted import TextWriter

    topic = topic_of(topology, alias)
    topic.create()
    topic.check_partitions()
    writer = TextWriter(topic)
    for key, text in texts.items():
        writer.put(key, text)
    error: Mm2mgrError | None = writer.close()
    if error is not None:
        raise error
