"""`history`: what was changed, by whom and when. `drift`: what people changed by hand since. Both only read;
`forget_history` deletes old changes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mm2mgr.apply.history import forget
from mm2mgr.check.run import check
from mm2mgr.connectors import type_of
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import InvalidArgument, Mm2mgrError
from mm2mgr.files import FileKind, check_free, read_regular, write_whole
from mm2mgr.lint.rules import RULES
from mm2mgr.lint.workers import ask_worker, harmless_overrides, read_estates
from mm2mgr.live.anonymous import MadeUpNames, anonymous_snapshot, anonymous_tree, collect_names, kafka_words, words_of
from mm2mgr.live.questions import (
    AnsweringWorker,
    ClusterId,
    Configs,
    PartitionCounts,
    Quotas,
    Statuses,
    StoredOffsets,
    TaskConfigs,
    TextsByKey,
    TopicRetention,
    UserTopics,
)
from mm2mgr.live.reach import Limits
from mm2mgr.live.read import Clusters, read, run_steps
from mm2mgr.live.rights import LoggedIn, LogIn
from mm2mgr.live.snapshot import Question, Snapshot, Steps, ask, or_error, side_by_side
from mm2mgr.live.snapshot_file import SNAPSHOT, together, write_snapshot
from mm2mgr.observe.memory import Memory
from mm2mgr.observe.pair_look import FailoverOptions, PairToJudge
from mm2mgr.observe.pair_readiness import pair_readiness
from mm2mgr.observe.read import ObserveOptions, reading_of
from mm2mgr.observe.reading import Reading
from mm2mgr.observe.state_file import memory_text, parse_memory, state_file, timed_looks
from mm2mgr.operations.status import newest_heartbeat
from mm2mgr.operations.workspace import Workspace
from mm2mgr.plan.draft import Declared
from mm2mgr.plan.drift import DriftReport, find_drift
from mm2mgr.plan.history import HistoryEntry, read_history
from mm2mgr.plan.planner import plan_steps
from mm2mgr.spec.files import OVERRIDES, yaml_text
from mm2mgr.spec.mistakes import model_words
from mm2mgr.spec.models import OVERRIDE_KEYS
from mm2mgr.timing import wait_for
from mm2mgr.topology import Topology, by_pair


@dataclass(frozen=True)
class HistoryReport:
    """Recorded changes, newest last; `unread` has the Connect clusters whose history could not be read, with the
    reason."""

    entries: tuple[HistoryEntry, ...]
    unread: Mapping[str, str] = field(default_factory=dict)


def history(
    workspace: Workspace,
    flows: Sequence[str] = (),
    *,
    connects: Sequence[str] = (),
    since_seconds: float | None = None,
    last: int | None = None,
) -> HistoryReport:
    """Read what was changed, newest last. `flows` may be flows of the tree, flows that it had once, or names of
    connectors.

    `connects` limits it to some Connect clusters, `since_seconds` to the last so many seconds, `last` to so many
    entries.
    """
    _check_connects(workspace, connects)
    recorded = workspace.ask(read_history(workspace.topology, connects or None))
    entries = _entries_about(workspace, flows, recorded.entries)
    if since_seconds is not None:
        start = _seconds_ago(since_seconds)
        entries = tuple(entry for entry in entries if entry.when >= start)
    return HistoryReport(entries if last is None else entries[max(0, len(entries) - last) :], recorded.unread)


def forget_history(workspace: Workspace, older_seconds: float, *, connects: Sequence[str] = ()) -> HistoryReport:
    """Delete the entries that are older than so many seconds, and return them; the configs that were last applied stay.

    `unread` has the Connect clusters whose history could not be read or written, with the reason.
    """
    workspace.refuse_snapshot()
    report = history(workspace, connects=connects)
    end = _seconds_ago(older_seconds)
    old = tuple(entry for entry in report.entries if entry.when < end)
    return HistoryReport(old, {**report.unread, **wait_for(forget(workspace.topology, old))})


def _seconds_ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _check_connects(workspace: Workspace, connects: Sequence[str]) -> None:
    in_tree = workspace.topology.connects
    for name in connects:
        if name not in in_tree:
            message = f"no Connect cluster '{name}' in the tree; known: {', '.join(sorted(in_tree))}"
            raise InvalidArgument("connect", message)


def _entries_about(
    workspace: Workspace, names: Sequence[str], entries: tuple[HistoryEntry, ...]
) -> tuple[HistoryEntry, ...]:
    """Return the entries about these names; the tree's error about one that neither it nor an entry knows."""
    if not names:
        return entries
    chosen = set[str]()
    for name in names:
        about = {entry.id for entry in entries if _is_about(entry, name)}
        if any(name in _connector_names(entry) for entry in entries):
            chosen |= about  # a connector alone, although commands of flows take its name for its flow
            continue
        try:
            flow_ids = {flow.id for flow in workspace.flows((name,))}
        except Mm2mgrError:
            if not about:
                raise
            flow_ids = set()
        chosen |= about | {entry.id for entry in entries if flow_ids.intersection(entry.flows)}
    return tuple(entry for entry in entries if entry.id in chosen)


def _is_about(entry: HistoryEntry, name: str) -> bool:
    flows = {name for flow in entry.flows for name in (flow, *flow.split(":", 1))}
    return name in flows or name in _connector_names(entry)


def _connector_names(entry: HistoryEntry) -> tuple[str, str]:
    return entry.connector, f"{entry.connect}/{entry.connector}"


def drift(workspace: Workspace, flows: Sequence[str] = ()) -> DriftReport:
    """Compare what runs with what was applied last, for all connectors of this owner or those that serve `flows`.

    Where no history can be read, or it does not know a connector, the tree is compared: then a change of the tree that
    was not applied yet counts as well, and a connector that was deleted by hand is not found.
    """
    return workspace.ask(drift_of(workspace, flows))


def drift_of(workspace: Workspace, flows: Sequence[str]) -> Steps[DriftReport]:
    """Return the same from answers."""
    chosen = workspace.connectors_of(workspace.flows(flows)) if flows else None
    return find_drift(workspace.topology, workspace.connectors, chosen)


# --- snapshot ---------------------------------------------------------------------------------------------------------


_LIMITS = Limits(kafka_seconds=10.0)


@dataclass(frozen=True)
class SnapshotTaken:
    """A snapshot that was written. `failed` are clusters that did not answer something, with the first reason.

    `tree`: the folder with the tree of an anonymous one; `untranslated`: patterns that became lists of names in it.
    """

    file: Path
    size_bytes: int
    answers: int
    failed: Mapping[str, str] = field(default_factory=dict)
    tree: Path | None = None
    untranslated: tuple[str, ...] = ()

    json_keys = "file bytes=size_bytes answers failed tree untranslated"


def snapshot(workspace: Workspace, out: Path, *, anonymous: bool = False) -> SnapshotTaken:
    """Ask all clusters of the tree what the reading commands ask, and write the answers to a file, secrets masked.

    A cluster that does not answer is in the file with its failure. `anonymous`: with made-up names, and beside it the
    tree with the same ones; nothing else is written.
    """
    workspace.refuse_as_output(out, "--out")
    check_free(out, SNAPSHOT)
    tree = out.with_name(f"{out.stem}-tree") if anonymous else None
    if tree:
        for name in (*OVERRIDE_KEYS, _TREE):
            check_free(_part(tree, name), ANONYMOUS_TREE)
    taken = wait_for(_take(workspace))
    untranslated: tuple[str, ...] = ()
    stored = taken
    if tree:
        stored, untranslated = _make_anonymous(workspace, taken, tree)
    size = write_snapshot(out, stored)
    failed = {
        question.cluster: answer.one_line
        for question, answer in reversed([*taken.answers.items()])
        if isinstance(answer, Mm2mgrError)
    }
    return SnapshotTaken(out, size, len(taken.answers), failed, tree, untranslated)


_TREE = "tree"
ANONYMOUS_TREE = FileKind(
    "an anonymous tree",
    lambda head: head.startswith(_HEAD),
    mode=0o600,
    failure="the anonymous tree could not be written",
)
_HEAD = "# A tree with made-up names, written by `mm2mgr snapshot --anonymous`.\n"


def _part(tree: Path, name: str) -> Path:
    return tree / OVERRIDES / f"{name}.yaml" if name in OVERRIDE_KEYS else tree / f"{name}.yaml"


def _make_anonymous(workspace: Workspace, taken: Snapshot, tree: Path) -> tuple[Snapshot, tuple[str, ...]]:
    """Write the tree with made-up names, and return the snapshot with the same ones, and patterns that became lists."""
    raw = {key: value for key, value in workspace.spec.raw.items() if value is not None}
    memory = parse_memory(taken.memory) if taken.memory else Memory()
    names = MadeUpNames(
        os.urandom(16), kafka_words() | model_words() | frozenset(words_of([rule.id for rule in RULES]))
    )
    collect_names(taken, names)
    names.collect([raw, memory])
    untranslated = tuple(sorted(_find_untranslated(workspace.topology, taken, names)))
    whole = anonymous_tree(raw, names)
    parts = {name: {name: whole.pop(name)} for name in OVERRIDE_KEYS if name in whole} | {_TREE: whole}
    for name, part in parts.items():
        _part(tree, name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(_part(tree, name), _HEAD + yaml_text(part), ANONYMOUS_TREE)
    made_up = Workspace((tree,), workspace.templates)
    declared, new = (
        {(connector.connect, connector.name): connector.config for connector in connectors}
        for connectors in (workspace.connectors, made_up.connectors)
    )
    names.align(declared, new)
    anonymous = anonymous_snapshot(taken, names)
    return replace(anonymous, memory=memory_text(names.value(memory)) if taken.memory else ""), untranslated


def _find_untranslated(topology: Topology, taken: Snapshot, names: MadeUpNames) -> Iterator[str]:
    """Yield the patterns of flows that do not match the made-up names as they matched the real ones."""
    topics: dict[str, None] = {}
    groups: dict[str, None] = {}
    for question, answer in taken.answers.items():
        if isinstance(question, PartitionCounts) and not isinstance(answer, Mm2mgrError):
            topics.update(dict.fromkeys(answer))
        if isinstance(question, LogIn) and isinstance(answer, LoggedIn) and answer.view:
            groups.update(dict.fromkeys(answer.view.groups))
    done: set[str] = set()
    for flow in topology.flows:
        settings = flow.settings
        for patterns, real_names in ((settings.topics, topics), (settings.checkpoints.groups, groups)):
            for pattern in (*patterns.include, *patterns.exclude):
                if pattern not in done and not names.translate(pattern, real_names):
                    yield pattern
                done.add(pattern)


def _memory_in(file: Path) -> str:
    """Return the memory of earlier looks; empty where it is missing or damaged, which `status` says."""
    try:
        text = read_regular(file).decode()
        json.loads(text)
    except (OSError, ValueError, RecursionError):
        return ""
    return text


async def _take(workspace: Workspace) -> Snapshot:
    topology, connectors, clusters = workspace.topology, workspace.connectors, Clusters.of_tree(workspace.topology)
    file = state_file(str(topology.owner))
    how = ObserveOptions(earlier=timed_looks(file))
    memory = _memory_in(file)
    first = [kind(name) for name in topology.connects for kind in (Configs, Statuses, AnsweringWorker)]
    taken = await read(first, clusters, _LIMITS)
    taken = taken.with_answers(dict(together(taken.answers)))
    workers = (
        ask_worker(name, harmless_overrides(key for c in connectors if c.connect == name for key in c.config))
        for name in topology.connects
    )
    steps = side_by_side(
        reading_of(topology, connectors, topology.flows, how),
        plan_steps(Declared(topology, connectors, spec=workspace.spec)),
        read_estates(topology.connects),
        drift_of(workspace, ()),
        ask(_whole(topology, taken)),
        check(topology, connectors, topology.flows, workspace.spec, with_records=False),
        *map(or_error, workers),
        *map(or_error, _readiness_of_pairs(workspace, parse_memory(memory) if memory else Memory())),
    )
    (reading, *_), taken = await run_steps(steps, clusters, _LIMITS, taken)
    taken = await read(_of_lag(reading), clusters, _LIMITS, taken)
    return replace(taken, taken_at=reading.taken_at, memory=memory)


def _whole(topology: Topology, taken: Snapshot) -> Iterator[Question[object]]:
    for alias in topology.clusters:
        yield from (PartitionCounts(alias), UserTopics(alias), ClusterId(alias), Quotas(alias))
    for connect in topology.connects.values():
        if connect.model.history:
            yield TextsByKey(connect.kafka, HISTORY_TOPIC)
        infos = taken.get(Configs(connect.name))
        for name, info in {} if isinstance(infos, Mm2mgrError) else infos.items():
            if type_of(info.config.get("connector.class", "")) == "source":
                yield from (StoredOffsets(connect.name, name), TaskConfigs(connect.name, name))


def _readiness_of_pairs(workspace: Workspace, memory: Memory) -> Iterator[Steps[object]]:
    """Yield what `failover check` asks about each pair; records are not compared for a file."""
    topology, options = workspace.topology, FailoverOptions(sample=0)
    for flows in by_pair(topology.flows).values():
        pair = PairToJudge(topology, workspace.connectors, tuple(flows), options)
        yield pair_readiness(pair, memory, time.time)


def _of_lag(reading: Reading) -> Iterator[Question[object]]:
    for flow in reading.flows:
        for topic in dict.fromkeys(partition.topic for partition in reading.clusters[flow.source.alias].offsets):
            yield TopicRetention(flow.source.alias, topic)
        if question := newest_heartbeat(reading, flow):
            yield question
