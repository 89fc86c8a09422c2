"""`failover rehearse`: groups of a pair tried out on its target, under scratch names that are deleted afterwards."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mm2mgr import timing
from mm2mgr.apply.rehearsal import ScratchGroups
from mm2mgr.check.judge import commands
from mm2mgr.errors import KafkaError, Mm2mgrError
from mm2mgr.failover.check import PairReadiness, Unread
from mm2mgr.failover.rehearsal import (
    DELETE,
    FIRST,
    JUDGE,
    PREFIX,
    READ,
    SOURCE,
    WRITE,
    Rehearsal,
    RehearsalOptions,
    RehearsedGroup,
    RehearsedPosition,
    ScratchGroup,
    ScratchNames,
    Stage,
    choose_groups,
    compare,
    place_id,
    source_place,
    source_places,
    untranslated_partitions,
)
from mm2mgr.files import hold_lock, state_folder
from mm2mgr.kafka.acls import Right
from mm2mgr.kafka.groups import RecordMark, RecordPlace
from mm2mgr.kafka.scratch_groups import GroupRead
from mm2mgr.live.endpoints import kafka_access
from mm2mgr.live.principals import principal_of
from mm2mgr.live.questions import GroupMembers, RecordMarks
from mm2mgr.live.reach import Limits
from mm2mgr.live.snapshot import Steps
from mm2mgr.observe.failover_rows import rehearsal_row
from mm2mgr.observe.pair_look import FailoverOptions
from mm2mgr.observe.state_file import StorePlace, record_rehearsal, state_file
from mm2mgr.operations.failover import check_and_keep, flows_of_pair
from mm2mgr.operations.workspace import DEFAULT_STORE, Workspace

if TYPE_CHECKING:
    from mm2mgr.samples.schema import Store
    from mm2mgr.topology import Flow

_LIMITS = Limits(kafka_seconds=10.0, measuring_seconds=300.0)


@dataclass(frozen=True)
class RehearsedPair:
    """A rehearsal of one pair, and what of it could not be kept, or of earlier looks could not be read."""

    rehearsal: Rehearsal
    warnings: tuple[str, ...] = ()


def failover_rehearse(
    workspace: Workspace,
    pair: str,
    options: RehearsalOptions,
    *,
    store: Store = DEFAULT_STORE,
    note: Callable[[str], object] = lambda _: None,
) -> RehearsedPair:
    """Try out on the target of a pair `source->target` that its groups go on where their translated offsets are.

    Only scratch groups are written, and they are deleted whatever happens; what the next rehearsal is left with, `note`
    is told. Locked where a rehearsal of the pair runs on this machine. Only one of all groups counts for the pair.
    """
    workspace.refuse_snapshot()
    flows = flows_of_pair(workspace, pair)
    owner, name = str(workspace.topology.owner), flows[0].pair
    place = place_id(socket.gethostname(), str(state_folder()), owner, name)
    with _lock(state_file(owner).with_suffix(f".rehearsal-{place}.lock"), name):
        run = _Rehearsing(
            workspace, flows, options, ScratchNames(owner, place, int(workspace.now)), workspace.now, note
        )
        rehearsal = run.rehearse(store)
    warnings = run.warnings
    if options.groups is None:
        row = rehearsal_row(rehearsal, "command")
        warnings += record_rehearsal(StorePlace(store, owner, state_file(owner)), row)
    return RehearsedPair(rehearsal, tuple(dict.fromkeys(warnings)))


@contextmanager
def _lock(file: Path, pair: str) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(file, f"rehearsing the failover of {pair}", 0.0):
        yield


@dataclass
class _Rehearsing:
    workspace: Workspace
    flows: Sequence[Flow]
    options: RehearsalOptions
    names: ScratchNames
    taken_at: float
    note: Callable[[str], object]
    stages: list[Stage] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def pair(self) -> str:
        return self.flows[0].pair

    @property
    def target(self) -> str:
        return self.flows[0].target.alias

    def rehearse(self, store: Store) -> Rehearsal:
        """Judge, write, read, compare and delete."""
        with self._stage(JUDGE):
            asked = FailoverOptions(self.options.groups, translated=True, sample=0)
            checked = check_and_keep(self.workspace, self.pair, asked, store=store)
        self.warnings += checked.warnings
        readiness = checked.readiness
        empty = self._empty(readiness)
        if readiness.looked is None:
            alias = self.flows[0].source.alias
            return replace(empty, not_begun=f"{alias} does not answer, and there is nothing to compare with")
        scratch = ScratchGroups(kafka_access(self.flows[0].target))
        groups = choose_groups(readiness, self.names, self.options.most_groups)
        try:
            abandoned = self._delete_abandoned(scratch)
            if reason := scratch.refusal_to_delete(self.names.name(0)):
                return replace(empty, unread=(*empty.unread, self._missing_rights(reason, ())), abandoned=abandoned)
            rehearsal = replace(empty, abandoned=abandoned, left_out=len(readiness.groups) - len(groups))
        except KafkaError as error:
            return replace(empty, unread=(*empty.unread, Unread(self.target, "scratch groups", error.one_line)))
        return self._on_target(rehearsal, readiness, scratch, groups)

    def _empty(self, readiness: PairReadiness) -> Rehearsal:
        blocks = tuple(remark.text for remark in readiness.remarks if remark.effect == "blocks")
        return Rehearsal(
            readiness.pair,
            self.taken_at,
            stages=tuple(self.stages),
            unread=readiness.unread,
            blocks=blocks,
            asked=self.options.groups,
            records=self.options.records,
        )

    def _delete_abandoned(self, scratch: ScratchGroups) -> int:
        """Delete what killed rehearsals of this owner left on the target, and return how many groups these were."""
        question = GroupMembers(self.target)

        def list_groups() -> Steps[Sequence[str]]:
            snapshot = yield [question]
            return list(snapshot[question])

        names = self.names.find_abandoned(self.workspace.ask(list_groups(), _LIMITS))
        left = scratch.delete_abandoned(names)
        self.warnings += [f"{name}, of an earlier rehearsal, is still there: {reason}" for name, reason in left.items()]
        return len(names) - len(left)

    def _on_target(
        self, rehearsal: Rehearsal, readiness: PairReadiness, scratch: ScratchGroups, groups: Sequence[ScratchGroup]
    ) -> Rehearsal:
        is_over = False
        try:
            rehearsed, unread = self._try_groups(readiness, scratch, groups)
            is_over = True
        finally:
            written = len(scratch.names)
            with self._stage(DELETE):
                left = self._delete(scratch, is_over=is_over)
        return replace(
            rehearsal,
            groups=rehearsed,
            unread=(*rehearsal.unread, *unread),
            stages=tuple(self.stages),
            deleted=written - len(left),
            remaining=tuple(left),
        )

    def _delete(self, scratch: ScratchGroups, *, is_over: bool) -> dict[str, str]:
        """Delete the scratch groups. After an interrupt or a failure, `note` is told of those that are still there."""
        try:
            left = scratch.delete()
        except KafkaError as error:
            left = dict.fromkeys(scratch.names, error.one_line)
        for name, reason in left.items():
            text = f"{name} is still on {self.target}: {reason}; the next rehearsal of this pair deletes it"
            self.note(text) if not is_over else self.warnings.append(text)
        return left

    def _try_groups(
        self, readiness: PairReadiness, scratch: ScratchGroups, groups: Sequence[ScratchGroup]
    ) -> tuple[tuple[RehearsedGroup, ...], list[Unread]]:
        by_name = {group.name: group for group in groups if group.positions}
        unread: list[Unread] = []
        with self._stage(WRITE):
            try:
                failed = scratch.write({name: group.offsets for name, group in by_name.items()})
            except KafkaError as error:
                failed = dict.fromkeys(by_name, error.one_line)
        refused = [name for name, reason in failed.items() if "authoriz" in reason.lower()]
        if refused:
            topics = sorted({place.remote.topic for name in refused for place in by_name[name].positions})
            unread.append(self._missing_rights(failed[refused[0]], topics))
        with self._stage(SOURCE):
            there = [group for name, group in by_name.items() if name not in failed]
            expected, missing = self._read_source(there)
        unread += missing
        results = {name: self._without_offsets(by_name[name], reason) for name, reason in failed.items()}
        with self._stage(READ):
            most = {group.name: group.most(self.options.records) for group in there}
            reads = scratch.read(most, self.options.groups_at_once, self.options.group_seconds)
            with closing(reads):  # so that no member is left when the groups are deleted
                for name, read in reads:
                    results[name] = self._compare(readiness, by_name[name], read, expected)
        first = [group.first_seconds for group in results.values() if group.first_seconds is not None]
        if first:
            self.stages.insert(-1, Stage(FIRST, max(first)))
        rest = (RehearsedGroup(group.group.group, group.name) for group in groups)
        rehearsed = {group.scratch: group for group in rest} | results
        return tuple(
            replace(rehearsed[group.name], untranslated=untranslated_partitions(group.group, group.positions))
            for group in groups
        ), unread

    def _without_offsets(self, group: ScratchGroup, reason: str) -> RehearsedGroup:
        """A right that is missing says nothing of the group."""
        if "authoriz" not in reason.lower():
            return RehearsedGroup(group.group.group, group.name, failure=f"offsets could not be written: {reason}")
        positions = (RehearsedPosition(position, "not read", reason=reason) for position in group.positions)
        return RehearsedGroup(group.group.group, group.name, tuple(positions))

    def _compare(
        self,
        readiness: PairReadiness,
        group: ScratchGroup,
        read: GroupRead,
        expected: dict[RecordPlace, tuple[RecordMark, ...]],
    ) -> RehearsedGroup:
        positions: list[RehearsedPosition] = []
        for position in group.positions:
            marks = expected.get(source_place(position, self.options.records))
            positions.append(compare(position, marks, read, readiness.traits))
        return RehearsedGroup(
            group.group.group, group.name, tuple(positions), read.first_seconds, read.seconds, failure=read.failure
        )

    def _read_source(
        self, groups: Sequence[ScratchGroup]
    ) -> tuple[dict[RecordPlace, tuple[RecordMark, ...]], list[Unread]]:
        """Read the records that the groups have to read next; what does not come in time is not among them."""
        alias = self.flows[0].source.alias
        question = RecordMarks(alias, source_places(groups, self.options.records))

        def read() -> Steps[dict[RecordPlace, tuple[RecordMark, ...]] | Mm2mgrError]:
            snapshot = yield [question]
            return snapshot.get(question)

        answer = self.workspace.ask(read(), _LIMITS) if question.places else {}
        if isinstance(answer, Mm2mgrError):
            return {}, [Unread(alias, "records", answer.one_line, answer.hint or "")]
        return answer, []

    def _missing_rights(self, reason: str, topics: Sequence[str]) -> Unread:
        """Return that this login may not write scratch groups on the target, with the commands that let it."""
        access = kafka_access(self.flows[0].target)
        principal = principal_of(access).name
        of_groups = [Right("Read", "group", f"{PREFIX}*"), Right("Delete", "group", f"{PREFIX}*")]
        of_topics = [Right("Read", "topic", topic) for topic in topics]
        names = ", ".join(map(str, of_groups)) + (", and Read on the mirrored topics" if topics else "")
        lines: list[str] = []
        if principal:
            grants = [Right(right.operation, right.kind, PREFIX) for right in of_groups]
            lines = commands([(access.bootstrap_servers, principal, right) for right in grants])
            lines = [f"{line} --resource-pattern-type prefixed" for line in lines]
            lines += commands([(access.bootstrap_servers, principal, right) for right in of_topics])
        return Unread(
            self.target,
            "scratch groups",
            reason,
            f"mm2mgr's login needs {names}",
            principal,
            (*of_groups, *of_topics),
            tuple(lines),
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = timing.now()
        try:
            yield
        finally:
            self.stages.append(Stage(name, timing.now() - began))
