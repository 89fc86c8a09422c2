"""What a failover reads of connectors and of its journal, and what it writes: states of connectors, group offsets on
the target, the journal. Each write asks for the lease first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mm2mgr.apply.failover_run import GroupOutcome
from mm2mgr.apply.history import Recorder, topic_of
from mm2mgr.apply.leases import Leases
from mm2mgr.apply.verbs import Choice, StateChange, StateRequest, Verb, choose_connectors, plan_states, send_requests
from mm2mgr.connectors import Connector, with_statuses
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.group_offsets import Written
from mm2mgr.failover.journal import JOURNAL, FailoverJournal, journal_texts, key_of, parse_journal, stale_keys
from mm2mgr.failover.stages import PairConnector
from mm2mgr.kafka.acls import Right
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.questions import CommittedOffsets, Configs, GroupMembers, Statuses, TextsByKey
from mm2mgr.live.read import ask_all
from mm2mgr.live.snapshot import Steps, ask
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Change, ClusterPlan, Plan
from mm2mgr.text import few
from mm2mgr.topology import Flow, Topology

if TYPE_CHECKING:
    from mm2mgr.kafka.compacted import CompactedTopic

COMMAND = "failover run"
_VERBS: Mapping[str, Verb] = {"STOPPED": "stop", "PAUSED": "pause", "RUNNING": "resume"}
_ALTER_SECONDS = 60.0
_JOINED = "a member joined: it is not written"


def read_pair_connectors(
    topology: Topology, connectors: Sequence[Connector], pair: str
) -> Steps[tuple[tuple[PairConnector, ...], str]]:
    """Return the source and checkpoint connectors of a pair as their Connect cluster shows them, lanes that the tree
    has no more too, or why it does not. Heartbeats go on: they mirror nothing."""
    chosen = choose_connectors(topology, connectors, Choice((pair,)))
    changes = yield from plan_states(topology, StateRequest("stop"), chosen)
    names = {change.connect for change in changes}
    snapshot = yield [kind(name) for name in sorted(names) for kind in (Configs, Statuses)]
    shown: list[PairConnector] = []
    for change in changes:
        if change.action == "failed":
            return (), change.detail
        live = with_statuses(snapshot[Configs(change.connect)], snapshot[Statuses(change.connect)])
        running = live.get(change.connector)
        kind = change.kind or next((item.type for item in connectors if item.name == change.connector), "")
        if kind == "heartbeat":
            continue
        state = running.state or "no status" if running else ""
        rests = running is not None and running.has_stopped
        refusal = change.detail if change.action == "refused" and running else ""
        shown.append(PairConnector(change.connect, change.connector, kind, state, rests, refusal, change.declared))
    return tuple(shown), ""


def read_failover_journal(topology: Topology, target: str, pair: str) -> Steps[FailoverJournal | None]:
    """Return the journal of a pair; Mm2mgrError where it cannot be read."""
    question = TextsByKey(target, HISTORY_TOPIC)
    texts = (yield [question])[question]
    return parse_journal(texts, str(topology.owner), pair)


@dataclass
class FailoverWriter:
    """Writes for one pair, whose flows these are."""

    topology: Topology
    flows: Sequence[Flow]
    recorder: Recorder
    leases: Leases

    @property
    def connect(self) -> str:
        return self.flows[0].connect.name

    @property
    def target(self) -> str:
        return self.flows[0].target.alias

    @property
    def pair(self) -> str:
        return self.flows[0].pair

    def plan(self, connectors: Sequence[PairConnector]) -> Plan:
        """Return what is to be written as a plan, which says for which Connect cluster a lease is needed."""
        changes = tuple(_as_recorded(self._change(item), "STOPPED") for item in connectors)
        whole = Change(self.connect, self.pair, "source", "update", self._flow_ids)
        return Plan(str(self.topology.owner), (ClusterPlan(self.connect, (*changes, whole)),))

    @property
    def _flow_ids(self) -> tuple[str, ...]:
        return tuple(flow.id for flow in self.flows)

    def _change(self, connector: PairConnector) -> StateChange:
        flows = self._flow_ids
        return StateChange(
            connector.connect, connector.name, flows, action="write", before=connector.state, kind=connector.type
        )

    # --- the journal --------------------------------------------------------------------------------------------------

    async def keep_journal(self, journal: FailoverJournal) -> None:
        """Store the journal; Mm2mgrError unless all of it is stored."""
        await self.leases.check(self.connect)
        topic = topic_of(self.topology, self.target)
        texts = journal_texts(journal)
        stored = await self._texts()
        new = {key: text for key, text in texts.items() if stored.get(key) != text}
        head = {key: new.pop(key) for key in [key_of(journal.owner, journal.pair)] if key in new}
        await asyncio.to_thread(_write_texts, topic, new)  # stored before the head names them
        await asyncio.to_thread(_write_texts, topic, head)
        if stale := stale_keys(stored, journal):
            await asyncio.to_thread(_write_texts, topic, dict.fromkeys(stale))

    async def forget_journal(self) -> int:
        """Delete the journal of the pair, whatever it holds; return how many texts that were."""
        await self.leases.check(self.connect)
        key = key_of(str(self.topology.owner), self.pair)
        names = [name for name in await self._texts() if name == key or name.startswith(f"{key}/")]
        await asyncio.to_thread(_write_texts, topic_of(self.topology, self.target), dict.fromkeys(names))
        return len(names)

    async def _texts(self) -> dict[str, str]:
        question = TextsByKey(self.target, HISTORY_TOPIC)
        answer = (await ask_all(ask([question]), self.topology)).get(question)
        if isinstance(answer, Mm2mgrError):
            raise answer
        return {key: text for key, text in answer.items() if key.startswith(JOURNAL)}

    # --- connectors ---------------------------------------------------------------------------------------------------

    async def set_states(self, goals: Mapping[PairConnector, str]) -> None:
        """Ask connectors to come to states; Mm2mgrError where Connect refuses one."""
        failed: list[str] = []
        for state in dict.fromkeys(goals.values()):
            await self.leases.check(self.connect)
            request = StateRequest(_VERBS[state])
            changes = [self._change(connector) for connector, goal in goals.items() if goal == state]
            for change in changes:
                self.recorder.begin(_as_recorded(change, state))
            for change in await send_requests(self.topology, request, changes, lambda change: None):
                error = change.detail if change.action == "failed" else None
                self.recorder.end(_as_recorded(change, state), "failed" if error else "done", error)
                if error:
                    failed.append(f"{change.name}: {error}")
        if failed:
            raise Mm2mgrError(f"{self.pair}: {few(failed, between='; ')}", hint="look with mm2mgr status")

    # --- groups -------------------------------------------------------------------------------------------------------

    async def write_groups(self, changes: Mapping[str, Written]) -> list[GroupOutcome]:
        """Write offsets of groups that have no member and are where they were seen, and read them back.

        Brokers refuse a group that has members (KIP-396). One that got a member before it was read back is told, too.
        """
        outcomes: dict[str, GroupOutcome] = {}
        offsets, members = await self._read_groups(changes)
        for group, written in changes.items():
            if group in members:
                outcomes[group] = GroupOutcome(group, "joined", _JOINED)
            elif any(offsets.get(group, {}).get(partition) != change.before for partition, change in written.items()):
                outcomes[group] = GroupOutcome(group, "failed", "its offsets changed since they were judged")
        due = {
            group: {partition: change.after for partition, change in written.items()}
            for group, written in changes.items()
            if group not in outcomes
        }
        if not due:
            return list(outcomes.values())
        await self.leases.check(self.connect)
        refused = await asyncio.to_thread(self._alter, due)
        offsets, members = await self._read_groups(due)
        for group, goals in due.items():
            outcomes[group] = _outcome(group, goals, offsets.get(group, {}), refused.get(group), group in members)
        done = {group: len(due[group]) for group in due if outcomes[group].outcome == "written"}
        told = [f"{item.group}: {item.text}" for item in outcomes.values() if item.outcome != "written"]
        change = Change(self.connect, f"groups on {self.target}", "", "update", self._flow_ids)
        self.recorder.group_offsets(change, done, "failed" if told else "done", few(told, between="; ") or None)
        return list(outcomes.values())

    def _alter(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, tuple[str, bool]]:
        from mm2mgr.kafka.client import Kafka
        from mm2mgr.kafka.groups import alter_group_offsets

        with Kafka(kafka_access(self.topology.clusters[self.target]), _ALTER_SECONDS) as kafka:
            return alter_group_offsets(kafka, offsets)

    async def _read_groups(
        self, groups: Mapping[str, object]
    ) -> tuple[Mapping[str, Mapping[TopicPartition, int]], set[str]]:
        """Return the offsets of groups on the target, and those that have members."""
        committed, states = CommittedOffsets(self.target, tuple(sorted(groups))), GroupMembers(self.target)
        snapshot = await ask_all(ask([committed, states]), self.topology)
        offsets = snapshot[committed]
        if offsets.refused:
            right = Right("Describe", "group", offsets.refused[0])
            raise Mm2mgrError(
                f"{self.target}: offsets of {few(offsets.refused)} may not be read",
                hint=f"mm2mgr's login needs {right}",
            )
        members = {group for group, state in snapshot[states].items() if state.has_members}
        return offsets.offsets, members


def _outcome(
    group: str,
    goals: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, int],
    refusal: tuple[str, bool] | None,
    has_members: bool,
) -> GroupOutcome:
    is_there = all(there.get(partition) == offset for partition, offset in goals.items())
    if has_members:
        text = "a member joined right after it was written: it may have begun elsewhere" if is_there else _JOINED
        return GroupOutcome(group, "joined", text)
    if refusal:
        reason, is_right = refusal
        topics = sorted({partition.topic for partition in goals})
        needs = [Right("Read", "group", group), *(Right("Read", "topic", topic) for topic in topics)]
        more = f": mm2mgr's login needs {few(list(map(str, needs)))}" if is_right else ""
        return GroupOutcome(group, "failed", f"{reason}{more}")
    return (
        GroupOutcome(group, "written")
        if is_there
        else GroupOutcome(group, "failed", "it does not show what was written")
    )


def _as_recorded(change: StateChange, goal: str) -> Change:
    state = change.before, goal
    return Change(change.connect, change.connector, change.kind, "update", change.flows, state=state)


def _write_texts(topic: CompactedTopic, texts: Mapping[str, str | None]) -> None:
    from mm2mgr.kafka.compacted import TextWriter

    if not texts:
        return
    writer = TextWriter(topic)
    for key, text in texts.items():
        writer.put(key, text)
    if error := writer.close():
        raise error
