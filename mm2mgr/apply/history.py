"""What was changed, by whom and when, and the config that each connector was last given: kept in one compacted topic on
the Kafka cluster that a Connect cluster runs on, so that whoever comes next finds it.

Values are masked before they leave the process. The topic is created where it is missing; where it cannot be written,
the reason is reported, and nothing else fails. The name is one that MirrorMaker never mirrors. A Kafka client is loaded
only when something is recorded or read.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mm2mgr.assignment_text import ASSIGNMENT_KEY, digest
from mm2mgr.comparison.differences import KeyChange, Named
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import read_regular, special_kind, state_folder, write_all
from mm2mgr.json_values import to_json
from mm2mgr.kafka.quotas import RATE_KEY
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.read import ask_all
from mm2mgr.live.snapshot import Steps
from mm2mgr.plan.changes import Change, ClusterPlan
from mm2mgr.plan.history import (
    CONFIG,
    ENTRY,
    Claim,
    Claims,
    History,
    HistoryEntry,
    Pair,
    adopting,
    read_claims,
    read_history,
)
from mm2mgr.plan.quotas import QuotaResult
from mm2mgr.render import LANE_OF_KEY, flow_of_lane
from mm2mgr.secrets import mask_config, mask_text
from mm2mgr.text import number_of, visible
from mm2mgr.topology import Topology

if TYPE_CHECKING:
    from mm2mgr.kafka.compacted import CompactedTopic, TextWriter

# No retention by time: the config that a connector was last given, and a claim, are needed however old they are.
_CONFIGS = {"cleanup.policy": "compact"}
_GIT_SECONDS = 5.0
_DIGEST = "digest "
_MOST_GROUPS = 200


@dataclass(frozen=True)
class Author:
    """Who changes something, and the commit of the tree that says so; `commit` is empty outside git.

    `user` and `host`: the system's user, and the machine, that run it.
    """

    who: str
    commit: str = ""
    user: str = ""
    host: str = ""

    def __str__(self) -> str:
        return _safe(f"{self.who}, commit {self.commit}" if self.commit else self.who)


def topic_of(topology: Topology, alias: str) -> CompactedTopic:
    """Return the topic on one Kafka cluster."""
    from mm2mgr.kafka.compacted import CompactedTopic

    cluster = topology.clusters[alias]
    return CompactedTopic(kafka_access(cluster), HISTORY_TOPIC, cluster.model.replication_factor, _CONFIGS)


def _history_of(topology: Topology, kafka: str) -> str:
    """Return the Connect cluster in whose history quotas on a Kafka cluster are recorded."""
    return next((name for name, connect in topology.connects.items() if connect.kafka == kafka), min(topology.connects))


class Recorder:
    """Records what one command does while it does it. Nothing waits for it until `close`."""

    def __init__(
        self,
        topology: Topology,
        command: str,
        author: Author,
        reason: str = "",
        failed_before: Mapping[Named, HistoryEntry] = MappingProxyType({}),
    ) -> None:
        """Begin; a change that is tried again and is in `failed_before` keeps its entry."""
        self.topology, self.author = topology, replace(author, who=_safe(author.who))
        self._failed_before = failed_before
        self.reasons: Mapping[Named, str] = {}
        """Why single changes are made, where that is another reason than the command's."""
        self._common: dict[str, Any] = {
            "who": _safe(author.who),
            "commit": author.commit,
            "command": command,
            "owner": str(topology.owner),
            "reason": _safe(reason),
            "user": _safe(author.user),
            "host": _safe(author.host),
        }
        self._run = uuid.uuid4().hex[:12]
        self._entries: dict[Named, HistoryEntry] = {}
        self._writers: dict[str, TextWriter | Mm2mgrError] = {}
        self._connects: set[str] = set()

    def begin(self, change: Change) -> None:
        """Record that a change begins; what stays of a command that is killed. A second time does nothing."""
        if change.full_name in self._entries:
            return
        shown = to_json(change)
        keys = tuple(map(_with_digests, shown["keys"]))
        before = self._failed_before.get(change.full_name)
        again = before and (before.action, before.keys) == (change.action, keys)
        entry = HistoryEntry(
            before.id if before and again else f"{self._run}-{len(self._entries)}",
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            connect=change.connect,
            connector=change.connector,
            flows=self._flows_of(change),
            action=change.action,
            keys=keys,
            state=shown["state"],
            **self._common,
        )
        if change.full_name in self.reasons:
            entry = replace(entry, reason=_safe(self.reasons[change.full_name]))
        self._entries[change.full_name] = entry
        self.put(entry)

    def _flows_of(self, change: Change) -> tuple[str, ...]:
        """Return the flows that a change is about: of a lane also the flow that it is of, which may outlive it."""
        lanes = (flow for flow in self.topology.flows_of(change.flows) if flow.lane_of is not None)
        config = change.config or change.before or {}
        of_config = map(_safe, filter(None, (flow_of_lane(config), config.get(LANE_OF_KEY))))
        return tuple(dict.fromkeys((*change.flows, *(flow.whole_id for flow in lanes), *of_config)))

    def end(self, change: Change, outcome: str, error: str | None = None, *, was_written: bool = False) -> None:
        """Record what became of a change that was begun; a later call for the same connector replaces it.

        `was_written`: of one that failed, whether Connect stored it, or may have.
        """
        named = change.full_name
        if named not in self._entries:
            self.begin(change)
        entry = replace(self._entries[named], outcome=outcome, error=error and _safe(error), was_written=was_written)
        if entry == self._entries[named]:
            return
        self._entries[named] = entry
        self.put(entry)
        if error is None:
            self._keep(named, change)

    def quota(self, result: QuotaResult) -> None:
        """Record a written quota, in the history of the first Connect cluster that runs on its Kafka cluster."""
        change = result.change
        if result.error is not None:
            return
        before, after = (None if rate is None else f"{rate:.0f}" for rate in (change.before, change.after))
        entry = HistoryEntry(
            f"{self._run}-quota-{uuid.uuid4().hex[:8]}",
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            connect=_history_of(self.topology, change.kafka),
            connector=str(change.entity),
            flows=change.flows,
            action=change.action,
            keys=({"key": f"{RATE_KEY} on {change.kafka}", "before": before, "after": after},),
            state=None,
            outcome="done",
            **self._common,
        )
        self.put(entry)

    def hand_over(self, action: Literal["adopt", "release"], named: Named, flows: tuple[str, ...]) -> None:
        """Record that a connector came under the tree's management, or left it; nothing is written to it."""
        entry = HistoryEntry(
            f"{self._run}-{action}-{uuid.uuid4().hex[:8]}",
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            connect=named[0],
            connector=named[1],
            flows=flows,
            action=action,
            outcome="done",
            **self._common,
        )
        self.put(entry)

    def logger_levels(self, connect: str, keys: Sequence[KeyChange], outcome: str, error: str | None = None) -> None:
        """Record levels of loggers of a Connect cluster's workers, a key for each logger of a worker; a later call
        replaces the first."""
        entry = HistoryEntry(
            f"{self._run}-loggers",
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            connect=connect,
            connector="loggers",
            action="update",
            keys=tuple(to_json(key) for key in keys),
            outcome=outcome,
            error=error and _safe(error),
            **self._common,
        )
        self.put(entry)

    def group_offsets(self, change: Change, written: Mapping[str, int], outcome: str, error: str | None = None) -> None:
        """Record how many offsets groups were given on the target of a pair, in the history of its Connect cluster.

        `change` names that cluster, what is shown in the place of a connector, and the flows.
        """
        keys = [
            {"key": f"group {_safe(group)}", "before": None, "after": number_of(count, "offset")}
            for group, count in sorted(written.items())[:_MOST_GROUPS]
        ]
        if len(written) > _MOST_GROUPS:
            keys.append({"key": f"and {len(written) - _MOST_GROUPS} more groups", "before": None, "after": None})
        entry = HistoryEntry(
            f"{self._run}-groups",
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            connect=change.connect,
            connector=change.connector,
            flows=change.flows,
            action=change.action,
            keys=tuple(keys),
            outcome=outcome,
            error=error and _safe(error),
            **self._common,
        )
        self.put(entry)

    def take_back(self, change: Change) -> None:
        """Record that a change was rolled back: the config before it is the one that was applied last."""
        self.end(change, "rolled back", "its wave, or a later one, was not good")
        recreated = replace(change, action="create", config=change.before)
        self._keep(change.full_name, recreated if change.before else replace(change, action="delete"))

    def put(self, entry: HistoryEntry) -> None:
        """Record an entry as it is, and note it on this machine."""
        text = json.dumps(to_json(entry))
        self.write(entry.connect, ENTRY + entry.id, text)
        if self.topology.connects[entry.connect].model.history:
            _note(str(self.topology.owner), text)

    def drop(self, entry: HistoryEntry) -> None:
        """Delete an entry."""
        self.write(entry.connect, ENTRY + entry.id, None)

    def _keep(self, named: Named, change: Change) -> None:
        key = "/".join((CONFIG.rstrip("/"), self.topology.owner, *named))
        if change.action == "delete":
            self.write(named[0], key, None)
        elif change.config is not None:
            config = mask_config(change.written_config)
            if text := config.get(ASSIGNMENT_KEY):
                config = {**config, ASSIGNMENT_KEY: _digest_of(text)}
            self.write(named[0], key, json.dumps(config))

    def write(self, connect: str, key: str, value: str | None) -> None:
        """Record a text under a key on the Kafka cluster of a Connect cluster; None deletes it."""
        if not self.topology.connects[connect].model.history:
            return
        self._connects.add(connect)
        alias = self.topology.connects[connect].kafka
        if alias not in self._writers:
            self._writers[alias] = self._writer(alias)
        writer = self._writers[alias]
        if not isinstance(writer, Mm2mgrError):
            writer.put(key, value)

    def _writer(self, alias: str) -> TextWriter | Mm2mgrError:
        from mm2mgr.kafka.compacted import TextWriter

        try:
            return TextWriter(topic_of(self.topology, alias))
        except Mm2mgrError as error:  # its credentials are not on this machine
            return error

    def begin_all(self, changes: Iterable[Change]) -> dict[str, str]:
        """Record that changes begin and wait until that is stored, for work that must not be done unrecorded; return
        why it is not for each Connect cluster concerned."""
        for change in changes:
            self.begin(change)
        return self.close()

    @property
    def failed_entries(self) -> dict[Named, HistoryEntry]:
        """The changes that failed, to be given to the recorder of the next try."""
        return {named: entry for named, entry in self._entries.items() if entry.outcome == "failed"}

    def close(self) -> dict[str, str]:
        """Wait until all is stored, or known not to be; return why not for each Connect cluster concerned."""
        from concurrent.futures import ThreadPoolExecutor

        if not self._writers:
            return {}
        with ThreadPoolExecutor(len(self._writers)) as threads:
            ends = dict(zip(self._writers, threads.map(_close_writer, self._writers.values()), strict=True))
        connects, self._connects, self._writers = sorted(self._connects), set(), {}
        reasons = {connect: ends[self.topology.connects[connect].kafka] for connect in connects}
        return {connect: error.one_line for connect, error in reasons.items() if error is not None}


def _with_digests(key: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a changed key as it is kept: an assignment may be almost as long as a record of Kafka."""
    if key["key"] != ASSIGNMENT_KEY:
        return key
    return {**key, **{side: key[side] and _digest_of(key[side]) for side in ("before", "after")}}


def _digest_of(text: str) -> str:
    return text if text.startswith(_DIGEST) else f"{_DIGEST}{digest(text)}"


def _close_writer(writer: TextWriter | Mm2mgrError) -> Mm2mgrError | None:
    return writer if isinstance(writer, Mm2mgrError) else writer.close()


# --- notes on this machine --------------------------------------------------------------------------------------------

# The history is on Kafka, where reading all of it takes a while. What commands on this machine write is noted beside
# the memory of looks, so that pages of a process here show it with their next look.

_MOST_NOTED_BYTES = 1 << 20


def _notes(owner: str) -> Path:
    return state_folder() / f"{owner}.changes.jsonl"


def _note(owner: str, text: str) -> None:
    """Append an entry; a file that has grown long begins anew. Where it cannot be written nothing is noted."""
    with suppress(OSError, Mm2mgrError):
        file = _notes(owner)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if special_kind(file):
            return
        if file.exists() and file.stat().st_size > _MOST_NOTED_BYTES:
            file.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(file, flags, 0o600)
        try:
            write_all(opened, text.encode() + b"\n")
        finally:
            os.close(opened)


def read_notes(owner: str) -> list[HistoryEntry]:
    """Return what commands on this machine recorded lately, oldest first, each entry as it was noted last; nothing
    where the file is not there or is something else."""
    try:
        lines = read_regular(_notes(owner)).decode(errors="replace").splitlines()
    except (OSError, Mm2mgrError):
        return []
    entries = {entry.id: entry for entry in map(HistoryEntry.parse, lines) if entry and entry.owner == owner}
    return list(entries.values())


async def read(topology: Topology, connects: Iterable[str] | None = None) -> History:
    """Read what is recorded of this tree's owner on some Connect clusters, or on all, side by side."""
    return await ask_all(read_history(topology, connects), topology)


async def forget(topology: Topology, entries: Iterable[HistoryEntry]) -> dict[str, str]:
    """Delete entries; return why not for each Connect cluster whose Kafka could not be written."""
    recorder = Recorder(topology, "", Author(""))
    for entry in entries:
        recorder.drop(entry)
    return await asyncio.to_thread(recorder.close)


def _safe(text: str) -> str:
    return visible(mask_text(text))


# --- claims on what a tree adopts -------------------------------------------------------------------------------------


async def settle_claims(topology: Topology, parts: Sequence[ClusterPlan], recorder: Recorder) -> None:
    """Leave a claim on what is adopted, or would be if no other owner claimed it, and withdraw those that are over;
    what is new of it is in the history."""
    owners = Ownership.of_tree(topology)
    readable = {part.connect for part in parts if not part.error}
    concerned = {named[0] for named in (*owners.adopted, *owners.released)} & readable
    adopted = adopting(owners, parts)
    claims, history = await ask_all(_read_claims_and_history(topology, adopted, concerned), topology)
    newest = {(entry.connect, entry.connector): entry.action for entry in history.entries if entry.action in _HANDOVERS}
    planned = {change.full_name: change.action for part in parts for change in part.changes}
    mine = {claim.full_name: claim for claim in claims.own}
    for named, pair in adopted.items():
        is_held = planned.get(named) != "blocked" or named in claims.others
        if is_held and named not in mine and named[0] not in claims.unread:
            urls = tuple(mask_text(url) for url in topology.connects[named[0]].model.url)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            by = recorder.author
            claim = Claim(str(topology.owner), *named, pair, urls, by.who, by.commit, when)
            recorder.write(claim.connect, claim.key, json.dumps(asdict(claim)))
            if named not in claims.others:
                change = next(change for part in parts for change in part.changes if change.full_name == named)
                recorder.hand_over("adopt", named, change.flows)
    for part in parts:
        for entry in part.lists if part.connect in readable - history.unread.keys() else ():
            named = part.connect, entry.connector
            # One whose line can go carries no mark of this tree: it is somebody else's, or nobody's, for longer.
            is_new = newest.get(named) != "release" and (named in mine or not entry.done)
            if entry.list == "release" and is_new:
                recorder.hand_over("release", named, ())
    for named, claim in mine.items():
        is_marked = named in planned and named not in adopted
        if named not in owners.adopted or is_marked:
            recorder.write(claim.connect, claim.key, None)


_HANDOVERS = frozenset({"adopt", "release"})


def _read_claims_and_history(
    topology: Topology, pairs: Mapping[Named, Pair], connects: Iterable[str]
) -> Steps[tuple[Claims, History]]:
    claims = yield from read_claims(topology, pairs, connects)
    return claims, (yield from read_history(topology, {connect for connect, _ in pairs} | set(connects)))


async def read_undeclared_claims(topology: Topology, connects: Iterable[str]) -> list[Claim]:
    """Return this tree's claims on connectors that it adopts no more: `adopt:` may go without a `release:`."""
    declared = Ownership.of_tree(topology).adopted
    claims = await ask_all(read_claims(topology, {}, connects), topology)
    return [claim for claim in claims.own if claim.full_name not in declared]


# --- who and which commit ---------------------------------------------------------------------------------------------

_NAMES = ("MM2MGR_WHO", "GITHUB_ACTOR", "GITLAB_USER_LOGIN", "GIT_AUTHOR_NAME")


def author(files: Sequence[Path]) -> Author:
    """Return who runs this (environment, git or system), and where, and the tree's commit, `+dirty` where files
    differ."""
    named, user = next((name for variable in _NAMES if (name := os.environ.get(variable, ""))), ""), _system_user()
    who = named or _git(_folder(files), "config", "user.name") or user
    return Author(who, tree_commit(files), user, socket.gethostname())


def tree_commit(files: Sequence[Path]) -> str:
    """Return the commit of a tree, `+dirty` where files differ; empty where it is not in git."""
    folder = _folder(files)
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if commit and _git(folder, "status", "--porcelain", "--", *(str(file.resolve()) for file in files)):
        commit += "+dirty"
    return commit


def _folder(files: Sequence[Path]) -> Path:
    return next((file if file.is_dir() else file.parent for file in files if file.exists()), Path())


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container runs as a number without a name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _git(folder: Path, *arguments: str) -> str:
    line = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
