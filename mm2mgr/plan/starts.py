"""Where a connector begins that never ran (`start:` in the tree), written as its stored offsets before it runs. Pure.

Without offsets it would begin at the first record of each log. A connector that runs keeps what it was created with: a
`start:` that is written or changed later is only noted, since it would mirror records again or skip them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import never_ran
from mm2mgr.connectors import Connector
from mm2mgr.errors import Mm2mgrError
from mm2mgr.lint.subject import WorkerFacts
from mm2mgr.live.questions import PartitionCounts, PlaceInLogs
from mm2mgr.live.snapshot import NotInSnapshot, Steps, or_error, side_by_side
from mm2mgr.log_places import START_KEY, OfGroup, Place
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import WRITES, Change, ClusterPlan
from mm2mgr.plan.heartbeats import RunningConnectors
from mm2mgr.plan.resets import StartOrder, StartPositions, next_offsets, resets
from mm2mgr.remarks import Remark
from mm2mgr.spec.scalars import log_place, place_text
from mm2mgr.text import few, number_of
from mm2mgr.topology import KafkaCluster
from mm2mgr.truth.reach import numbers, text_of

RULE = "start"
Configs = Mapping[Named, Mapping[str, str]]


def with_live_starts(connectors: Iterable[Connector], running: Configs) -> list[Connector]:
    """Return the tree's connectors, those that run with the mark of how they began, which is no reason to write."""

    def with_live_start(connector: Connector) -> Connector:
        live = running.get((connector.connect, connector.name))
        if live is None or never_ran(live) or live.get(START_KEY) == connector.config.get(START_KEY):
            return connector
        config = {key: value for key, value in connector.config.items() if key != START_KEY}
        return replace(connector, config=config | ({START_KEY: live[START_KEY]} if START_KEY in live else {}))

    return [with_live_start(connector) if connector.type == "source" else connector for connector in connectors]


def without_effect(connectors: Iterable[Connector], running: RunningConnectors) -> Iterator[tuple[str, str]]:
    """Yield Connect clusters with what `start:` of flows there would change, and does not: they began otherwise."""
    idle: dict[tuple[str, str, str], list[str]] = {}
    for connector in connectors:
        live = running.configs.get((connector.connect, connector.name))
        declared = connector.config.get(START_KEY)
        if live is None or declared is None or never_ran(live) or connector.type != "source":
            continue
        if declared != (began := live.get(START_KEY, "")) and (began or declared != "earliest"):
            idle.setdefault((connector.connect, declared, began), []).append(connector.flows[0])
    for (connect, declared, began), flows in idle.items():
        how = f"began with start: {began}" if began else "began without it"
        nothing = f"start: {declared} of {few(flows)} changes nothing: what exists {how}"
        yield connect, f"{nothing}, and goes on from its stored offsets; mm2mgr offsets reset stores others"


def with_starts(
    parts: Iterable[ClusterPlan],
    running: RunningConnectors,
    clusters: Mapping[str, KafkaCluster],
    connectors: Iterable[Connector],
) -> list[ClusterPlan]:
    """Return the plans in which connectors that never ran have the place at which they begin."""
    states = {(connector.connect, connector.name): connector.state or "" for connector in connectors}

    def with_start(change: Change) -> Change:
        text, live = (change.config or {}).get(START_KEY, "earliest"), change.before or {}
        is_write = change.type == "source" and change.action in WRITES and not change.moves_to
        is_new, pending = change.action == "create" and text != "earliest", never_ran(live)
        if not is_write or not (is_new or pending):
            return change
        if change.takes_over:
            idle = f"start: {text} has no effect: its stored offsets come with what it takes over"
            return change.with_remarks(Remark(idle, "notes"))
        order = _order(change, log_place(text), running, clusters, states.get(change.full_name, ""))
        if isinstance(order, Remark):
            return change.with_remarks(order)
        note = Remark(f"begins {order.words}, unless offsets are stored under its name", "notes")
        return replace(change, start=order).with_remarks(*([] if pending else [note]))

    return [part.each(with_start) for part in parts]


def _order(
    change: Change, place: Place, running: RunningConnectors, clusters: Mapping[str, KafkaCluster], then: str
) -> StartOrder | Remark:
    """Return where a connector that never ran begins, or why that cannot be had."""
    config, live = dict(change.config or {}), change.before
    if live is not None and live.get("enabled", "true").strip().lower() != "false":
        says = "its journal says that it never ran, and its config lets it run (enabled), so no apply wrote that"
        remedy = "remove the key mm2mgr.journal from its config over REST, and see whether it is to run"
        return Remark(says, "blocks", remedy, RULE)
    kafka = clusters.get(config.get("source.cluster.alias", ""))
    selection = running.selection(change.full_name, config)
    if selection is None or kafka is None:
        unknown = "which topics it takes is unknown (its topic.filter.class is not Kafka's)"
        return Remark(unknown, "blocks", "leave start: out", RULE)
    version = running.workers.get(change.connect, WorkerFacts()).version
    order = StartOrder(
        place,
        kafka,
        selection,
        text_of("source", config, "source consumer", "isolation.level") == "read_committed",
        text_of("source", config, "source consumer", "auto.offset.reset") or "earliest",
        not version or numbers(version) >= (3, 7),
        then,
        config.get("target.cluster.alias", ""),
    )
    return _too_old(change.connect, version, order) if version and numbers(version) < (3, 6) else order


def _too_old(connect: str, version: str, order: StartOrder) -> Remark:
    instead = (
        "; or leave start: out and write source_consumer: {auto.offset.reset: latest}, by which it begins at the ends"
        " when its tasks first read, and skips the first records of every partition that comes later"
        if order.place == "latest"
        else "; without start: it begins at the first records"
    )
    return Remark(
        f"the workers of Connect cluster '{connect}' run Kafka {version}, and to begin {order.words} it needs offsets"
        " before it runs, which takes 3.6 (KIP-875)",
        "blocks",
        f"upgrade them{instead}",
        RULE,
    )


def read_start(order: StartOrder) -> Steps[StartPositions]:
    """Return what a start comes to now; Mm2mgrError where a log or the group cannot be read."""
    alias = order.kafka.alias
    counts = (yield [PartitionCounts(alias)])[PartitionCounts(alias)]
    partitions = frozenset(
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if order.selection.takes(topic)
        for number in range(count)
    )
    if not partitions:
        return StartPositions()
    question = PlaceInLogs(alias, place_text(order.place), partitions, order.committed)
    place = (yield [question])[question]
    if unread := sorted(map(str, partitions - place.positions.keys())):
        raise Mm2mgrError(f"{alias}: the logs of {few(unread)} could not be read", hint="plan again when they can")
    offsets, gaps = next_offsets(order.place, place)
    logs = {partition: position.log for partition, position in place.positions.items()}
    # What a group says nothing about begins at its first record: skipped records would be lost.
    offsets |= {partition: logs[partition].start for partition in gaps.silent}
    present = yield from _present_topics(order, gaps.uncommitted, offsets.keys() - set(gaps.uncommitted))
    return StartPositions(resets(offsets, logs, {}, order.begins_at), gaps, place.members, present)


def _present_topics(
    order: StartOrder, uncommitted: Iterable[TopicPartition], committed: Iterable[TopicPartition]
) -> Steps[tuple[str, ...]]:
    """Return the topics of which the group never read anything and that the target has, by their names there; none
    where the target does not tell."""
    topics = {partition.topic for partition in uncommitted} - {partition.topic for partition in committed}
    if not topics or not order.target:
        return ()
    counts = (yield [PartitionCounts(order.target)]).get(PartitionCounts(order.target))
    if isinstance(counts, Mm2mgrError):
        return ()
    return tuple(sorted({order.selection.target_name(topic) or topic for topic in topics} & counts.keys()))


def ask_starts(changes: Iterable[Change]) -> Steps[tuple[dict[Named, StartPositions], dict[Named, Remark]]]:
    """Return what the starts of a plan come to, and what is against them; that a snapshot lacks them is only noted."""
    orders = {change.full_name: change.start for change in changes if change.start}
    answers = yield from side_by_side(*(or_error(read_start(order)) for order in orders.values()))
    positions: dict[Named, StartPositions] = {}
    remarks: dict[Named, Remark] = {}
    for named, answer in zip(orders, answers, strict=True):
        if isinstance(answer, NotInSnapshot):
            remarks[named] = Remark("what that skips is not known: it is not in the snapshot", "notes")
        elif isinstance(answer, Mm2mgrError):
            hint = answer.hint or "plan again when it can be read"
            remarks[named] = Remark(f"where it begins: {answer.message}", "blocks", hint, RULE)
        else:
            positions[named] = answer
    return positions, remarks


def with_positions(change: Change, positions: StartPositions | None) -> Change:
    """Return a change that says what its start comes to, and takes only the records that are left."""
    if positions is None or change.start is None or change.needs_offsets:
        return change
    skipped = f"skips {number_of(positions.skip_count, 'record')} of {number_of(len(positions.resets), 'partition')}"
    change = replace(change, positions=positions).with_remarks(Remark(skipped, "notes"), *_warnings(change, positions))
    if change.takes:
        left = positions.records
        topics = {t: (count, left.get(t, records)) for t, (count, records) in change.takes.topics.items()}
        change = replace(change, takes=replace(change.takes, topics=topics))
    return change


def _warnings(change: Change, positions: StartPositions) -> Iterator[Remark]:
    place = change.start.place if change.start else ""
    if not isinstance(place, OfGroup):
        return
    group, gaps = place.group, positions.gaps
    if gaps.uncommitted:
        which = few([str(partition) for partition in gaps.uncommitted])
        yield Remark(f"group '{group}' has no offset in {which}: there it begins at the first record", "warns")
    if positions.present:
        target = change.start.target if change.start else ""
        text = (
            f"group '{group}' never read {few(list(positions.present))}, which {target} has: what was mirrored there by"
            " others comes a second time, behind what is there"
        )
        yield Remark(text, "warns", "exclude these topics, or delete them on the target, unless others wrote them")
    if gaps.beyond:
        which = few([str(partition) for partition in gaps.beyond])
        text = f"the offset of group '{group}' is beyond the end of {which}: there it begins at the first record"
        yield Remark(text, "warns")
    if gaps.expired:
        which = few([str(partition) for partition in gaps.expired])
        yield Remark(f"records after the offset of group '{group}' are gone from {which}", "warns")
    if positions.members:
        text = (
            f"group '{group}' has {number_of(positions.members, 'member')}: what it reads after apply has looked it up,"
            " this flow mirrors, too"
        )
        yield Remark(text, "warns", "where it is another mirror, stop it before apply")
