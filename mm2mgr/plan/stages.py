"""What `apply` does to a connector: an ordered list of small values that is decided when the plan is made.

`stages` makes the list and `explain` describes it; `carry_out` executes just that list, so that the description cannot
differ from what happens. Pure. A list that stops a connector writes a journal into its config first: whatever kills
mm2mgr, the next plan makes the list of what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mm2mgr.comparison.differences import Named
from mm2mgr.comparison.ownership import (
    EVERY,
    Journal,
    Picks,
    TakeOver,
    is_held,
    is_moved,
    left_at,
    place,
    with_offsets_at,
    without_journal,
)
from mm2mgr.connect.types import SourceOffset
from mm2mgr.connectors import RESTING
from mm2mgr.plan.changes import WRITES, Change, aliases_of
from mm2mgr.plan.resets import StartOrder
from mm2mgr.text import few, number_of
from mm2mgr.topology import KafkaCluster

Config = Mapping[str, str]


@dataclass(frozen=True)
class ConnectorStage:
    """Something that is done to one connector."""

    full_name: Named


@dataclass(frozen=True)
class OffsetsStage(ConnectorStage):
    """Something that is done to its stored offsets of the topics that `picks` has."""

    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class Compare(ConnectorStage):
    """Read the connector again: with another owner mark than the plan saw, or another config, nothing is written.

    `rests`: the state that people chose (empty: none), to which the list brings it back; None: not compared.
    """

    owner: str
    before: Config | None = field(repr=False)
    rests: str | None = None


@dataclass(frozen=True)
class Create(ConnectorStage):
    """Create it by POST, which cannot overwrite; it begins in `state` (None: RUNNING, on any version)."""

    config: Config = field(repr=False)
    state: str | None = None


@dataclass(frozen=True)
class WriteConfig(ConnectorStage):
    """Replace its config; a changed key restarts its tasks, unless it rests. `why` says what for, where that is not the
    tree's wish.

    `known`: wait until the worker that answers has it, since offsets are read by what that one knows.
    """

    config: Config = field(repr=False)
    why: str = ""
    known: bool = False


@dataclass(frozen=True)
class SetState(ConnectorStage):
    """Pause, stop or resume it."""

    state: str


class Stop(ConnectorStage):
    """Stop it and wait until it has no tasks: only then all its offsets are stored (KIP-875)."""


class ReadOffsets(OffsetsStage):
    """Read its stored offsets."""


@dataclass(frozen=True)
class ReadDedicated:
    """Read the offsets that a dedicated MirrorMaker stored on its target; refused unless it was shut down cleanly."""

    full_name: Named
    kafka: KafkaCluster = field(repr=False)
    picks: Picks = field(default=EVERY, repr=False)


@dataclass(frozen=True)
class ReadStart(ConnectorStage):
    """Read where it begins in the logs of its source; what is produced from now on it mirrors."""

    order: StartOrder


@dataclass(frozen=True)
class TakeOffsets(ConnectorStage):
    """Go on with these offsets, which were decided before."""

    entries: tuple[SourceOffset, ...] = field(repr=False)


@dataclass(frozen=True)
class KeepStored(ConnectorStage):
    """Keep to the offsets of what `picks` has that are stored under its name, if there are any, topic by topic; else
    write this config, whose journal says that there were none."""

    picks: Picks = field(repr=False)
    config: Config = field(repr=False)


@dataclass(frozen=True)
class WriteOffsets(OffsetsStage):
    """Store the offsets read for this connector; what else it has of these topics would hide records, and goes.

    `ahead`: it has some already and may have run since, so only those that are further on are stored, and nothing goes.
    `noted`: a journal says where they were read; where that place has none, or older ones than the connector, nothing
    goes, and that is an error.
    """

    ahead: bool = False
    noted: bool = False


class ReadBack(OffsetsStage):
    """Wait until the offsets that it has are those that were written."""


@dataclass(frozen=True)
class DropOffsets(OffsetsStage):
    """Remove its stored offsets that are no further on than those of `like` (None: all that it has)."""

    like: Named | None = None


@dataclass(frozen=True)
class Verify(ConnectorStage):
    """Wait until it is in `state`, and where that is RUNNING, its tasks are with this config."""

    config: Config = field(repr=False)
    state: str = "RUNNING"


@dataclass(frozen=True)
class Prove(ConnectorStage):
    """Go on only if offsets of these topics are stored under its name: it must never run without them.

    `is_new`: this list created it, so it is deleted where they are not; else only its journal says that it needs them,
    and it stays as it is.
    """

    topics: tuple[str, ...]
    alias: str
    is_new: bool = False


@dataclass(frozen=True)
class Undo:
    """From here on, what fails is undone by these stages; without any, there is only the way forward."""

    stages: tuple[Stage, ...] = ()


class Delete(ConnectorStage):
    """Delete it; the offsets that it stored stay in Kafka under its name."""


Stage = (
    Compare
    | Create
    | WriteConfig
    | SetState
    | Stop
    | ReadOffsets
    | ReadDedicated
    | ReadStart
    | TakeOffsets
    | KeepStored
    | WriteOffsets
    | ReadBack
    | DropOffsets
    | Verify
    | Prove
    | Undo
    | Delete
)


def stages(change: Change, owner: str) -> tuple[Stage, ...]:  # noqa: PLR0911  one list for each kind of change
    """Return what is done for a change, in order; nothing for one that is not written."""
    named, config = change.full_name, dict(change.config or {})
    before, wished = dict(change.before or {}), change.state[1] if change.state else None
    same = Compare(named, owner, change.before)
    if change.moves_to or change.action not in {"create", "update", "delete"}:
        return ()  # one that is given up is part of the list of the one that takes over
    if change.takes_over:
        return tuple(_move_stages(named, owner, change, change.takes_over))
    if change.action == "create" and change.needs_offsets:
        journal = Journal(wished or "RUNNING", needs=change.needs_offsets)
        prove = Prove(named, journal.needs, aliases_of(config)[0], is_new=True)
        return Create(named, journal.added_to(config), "STOPPED"), prove, *_finish(named, config, journal.then)
    if change.start and change.action in WRITES:
        return tuple(_begin(named, owner, change, change.start))
    if change.action == "create" and is_held(config):
        return Create(named, config), SetState(named, "STOPPED")  # without tasks, on any version
    if change.action == "create":
        return (Create(named, config, wished),)
    if change.action == "delete":
        return same, Delete(named)
    if change.type == "source" and is_moved(before, config):
        return tuple(_switch(named, owner, change, wished))
    write = (WriteConfig(named, config),) if change.keys else ()
    if wished is None:
        return same, *write
    # A connector that will be paused or stopped is so before it can run a new config.
    turn = SetState(named, wished)
    return (same, *write, turn) if wished == "RUNNING" else (same, turn, *write)


def _begin(named: Named, owner: str, change: Change, order: StartOrder) -> Iterable[Stage]:
    """Yield how a connector gets its first offsets before it runs; what is done already is left out.

    It has no tasks until then, whoever resumes it, and its journal says so: cut short, the next plan goes on. Where it
    begins is read first, so that nothing is created if that fails.
    """
    live, config = change.before, dict(change.config or {})
    journal = Journal.of_config(live) if live is not None else None
    then = order.then or (change.state[1] if change.state else journal.then if journal else "RUNNING")
    resting, alias = {**config, "enabled": "false"}, aliases_of(config)[0]
    # Offsets of topics that it does not take say nothing of where it begins, and stay.
    picks, begun = Picks(alias, alias, (order.selection,)), Journal(then, start="begun").added_to(resting)
    if live is not None:
        yield Compare(named, owner, live)
    yield ReadStart(named, order)
    if live is None:
        asked = Journal(then, start="asked").added_to(resting)
        yield Create(named, asked, "STOPPED" if order.born_stopped else None)
    yield Stop(named)
    if live is not None:
        yield Compare(named, owner, live)  # another apply may have ended it meanwhile, and then it has run
    if journal and journal.start == "begun":
        yield WriteOffsets(named, picks)
    else:
        yield from (KeepStored(named, picks, begun), WriteOffsets(named, picks, ahead=True))
    yield from (ReadBack(named, picks), *_finish(named, config, then))


def _switch(named: Named, owner: str, change: Change, wished: str | None) -> Iterable[Stage]:
    """Yield how a connector comes to store its offsets elsewhere, or how a journal that was found ends."""
    live, desired, journal = (
        dict(change.before or {}),
        dict(change.config or {}),
        Journal.of_config(change.before or {}),
    )
    rests = change.shown if change.shown in RESTING else ""
    was = journal.then if journal else rests or "RUNNING"
    then, behind = wished or was, left_at(live, desired)
    yield Compare(named, owner, live, None if journal else rests)
    if journal and journal.needs and behind is None and change.shown in {"RUNNING", "FAILED"}:
        if wished and wished != "RUNNING":
            yield SetState(named, wished)
        yield WriteConfig(named, without_journal(desired), "without the journal: it runs, so there is nothing to prove")
        return
    if change.needs_offsets:
        yield Prove(named, change.needs_offsets, aliases_of(desired)[0])
    if behind is None:
        yield from _finish(named, desired, then)
        return
    if journal is None:
        yield Undo(_finish(named, live, was))
        if then != "STOPPED":
            # Before it is stopped: afterwards nothing shows that it is to run again. Workers that are not exactly-once
            # any more refuse `required`, which would bar the way to at_least_once.
            lenient = {key: value for key, value in live.items() if key != "exactly.once.support"}
            yield WriteConfig(named, Journal(then).added_to(lenient), "the journal")
    # Whoever resumes it before its offsets are there would let it begin at the first record: it has no tasks until
    # then.
    moving = Journal(then, behind).added_to({**desired, "enabled": "false"})
    yield Stop(named)
    if place(live) != behind:  # cut short before: only the config that it had then finds them
        yield WriteConfig(named, with_offsets_at(behind, moving), "the place of its offsets", known=True)
    yield ReadOffsets(named)
    yield WriteConfig(named, moving, "the new place of its offsets", known=True)
    yield from (WriteOffsets(named, noted=journal is not None), ReadBack(named), Undo())
    yield from _finish(named, desired, then)


def _finish(named: Named, config: Config, then: str) -> tuple[Stage, ...]:
    """Bring a connector back to its state before the journal goes, with a config that finds its offsets."""
    last = WriteConfig(named, without_journal(config))
    if then == "STOPPED":
        return (last,)
    return WriteConfig(named, Journal(then).added_to(config), "its offsets are there"), SetState(named, then), last


def _move_stages(  # noqa: PLR0912  in one piece it can be read
    named: Named, owner: str, change: Change, over: TakeOver
) -> Iterable[Stage]:
    """Yield how a connector goes on where another one stops; what is done already is left out.

    The giver's topics and offsets stay as they are until the receiver has its offsets, so until then everything can be
    taken back. Both configs speak of the move from the moment that both are stopped: so what was begun can be ended
    also where the tree no longer asks for it.
    """
    move, giver, live, desired = over.move, over.giver, change.before, dict(change.config or {})
    began = live is not None and Journal.of_config(live) is not None
    # A receiver that somebody resumes before it has its offsets would begin at the first record: it has no tasks until
    # then.
    resting = {**desired, "enabled": "false"} if move.created else without_journal(live or {})
    rests = (change.shown if change.shown in RESTING else "") if live is not None and not began else None
    if live is not None:
        yield Compare(named, owner, live, rests)
    if over.before is not None:
        yield Compare(giver, owner, over.before, None if began or move.giver_then == "RUNNING" else move.giver_then)
    is_marked = over.before is not None and Journal.of_config(over.before) is not None
    if over.back:
        yield from _taken_back(named, resting, over, unmark=is_marked)
        return
    carried = replace(over.journal, needs=(), move=replace(move, carried=True)).added_to(desired)
    gives = Journal(move.giver_then, gives=named)
    if not move.carried:
        needs = change.needs_offsets
        marked = replace(over.journal, needs=needs).added_to(resting)
        if live is None:
            yield Create(named, marked, "STOPPED" if over.born_stopped else None)
        elif not began:
            yield WriteConfig(named, marked, "the journal")
        # What an earlier apply created is left to the next one: only a journal says that it never ran.
        left = (*_giver_goes_on(over), Stop(named))
        is_left = live is not None and move.created
        yield from (Undo(left if is_left else _taken_back(named, resting, over, unmark=is_marked)), Stop(named))
        if over.dedicated:
            yield ReadDedicated(giver, over.dedicated, over.picks)
        else:
            yield Stop(giver)
            if over.before is not None and not is_marked:
                yield WriteConfig(giver, gives.added_to(over.before), "the journal")
                yield Undo(left if is_left else _taken_back(named, resting, over, unmark=True))
            yield ReadOffsets(giver, over.picks)
        yield from (WriteOffsets(named, over.picks), ReadBack(named, over.picks), *_carry_resting(named, over))
        if needs:
            yield Prove(named, needs, over.picks.after, is_new=live is None)
        yield from (Undo(), WriteConfig(named, carried, "the journal: its offsets are there"))
    else:
        if over.before is not None and not _is_narrowed(over):
            # Cut short there: whoever resumed one of them since, none runs now, and what differs is carried.
            yield from (Stop(named), Stop(giver), ReadOffsets(giver, over.picks))
            yield from (WriteOffsets(named, over.picks, ahead=True), ReadBack(named, over.picks))
        if live != carried:
            yield WriteConfig(named, carried, "as the tree wants it now")
    yield from _giver_ends(owner, over, gives, is_marked=is_marked)
    then: list[tuple[Named, Config, str]] = [(named, carried, over.journal.then)]
    if over.before is not None and over.keeps is not None:
        then.append((giver, over.keeps, move.giver_then))
    yield from (SetState(connector, state) for connector, _, state in then if state != "STOPPED")
    yield from (Verify(connector, config, state) for connector, config, state in then)
    for companion, config in over.beside:
        yield from (Compare(companion, owner, config), Delete(companion))
    yield WriteConfig(named, desired, "without the journal")


def _carry_resting(named: Named, over: TakeOver) -> Iterable[Stage]:
    """Yield how offsets are carried that the giver once stored, whose topics the receiver may have mirrored since."""
    if over.resting and over.before is not None:
        yield ReadOffsets(over.giver, over.resting)
        yield from (WriteOffsets(named, over.resting, ahead=True), ReadBack(named, over.resting))


def _giver_ends(owner: str, over: TakeOver, gives: Journal, *, is_marked: bool) -> Iterable[Stage]:
    """Yield what becomes of a giver whose offsets are carried: it is deleted, narrowed, or left where it is."""
    giver = over.giver
    drop: list[Stage] = [DropOffsets(giver, picks.staying(), giver) for picks in (over.picks, over.resting) if picks]
    if over.before is None:
        return
    if over.keeps is None:
        now = over.before if is_marked or over.move.carried else gives.added_to(over.before)
        yield Compare(giver, owner, now, "STOPPED")
        yield WriteConfig(giver, without_journal(over.before), "without the journal") if over.leaves else Delete(giver)
    elif not _is_narrowed(over):
        # Narrowed before its offsets go: without them, and with its topics, it would begin at the first record.
        yield WriteConfig(giver, gives.added_to(over.keeps), "without what moves")
        yield from (*drop, WriteConfig(giver, over.keeps))
    elif is_marked or not over.move.carried:
        yield from (Stop(giver), *drop, WriteConfig(giver, over.keeps))


def _is_narrowed(over: TakeOver) -> bool:
    """Tell whether a giver that stays no longer takes what moves."""
    return over.before is not None and over.keeps is not None and without_journal(over.before) == dict(over.keeps)


def _taken_back(named: Named, config: Config, over: TakeOver, *, unmark: bool) -> tuple[Stage, ...]:
    """Let the giver go on first; then the receiver is as it was."""
    first: list[Stage] = []
    if over.before is not None and unmark:
        first.append(WriteConfig(over.giver, without_journal(over.before), "without the journal"))
    first += _giver_goes_on(over)
    stop = Stop(named)
    drop = (DropOffsets(named, over.picks, over.giver),) if over.before is not None else ()
    if over.move.created:
        return *first, stop, *(drop or (DropOffsets(named),)), Delete(named)
    return *first, stop, *drop, *_finish(named, config, over.journal.then)


def _giver_goes_on(over: TakeOver) -> tuple[Stage, ...]:
    if over.before is None or over.move.giver_then == "STOPPED":
        return ()
    return (SetState(over.giver, over.move.giver_then),)


def written_by(todo: Iterable[Stage]) -> set[Named]:
    """Return the connectors that a list writes to, with what may undo it."""
    reading = (Compare, ReadOffsets, ReadDedicated, ReadStart, TakeOffsets, ReadBack, Verify)
    written: set[Named] = set()
    for stage in todo:
        if isinstance(stage, Undo):
            written |= written_by(stage.stages)
        elif not isinstance(stage, reading):
            written.add(stage.full_name)
    return written


def steps_of(change: Change, owner: str) -> tuple[str, ...]:
    """Describe what is done for a change; of a list for two connectors each step names its connector."""
    todo = stages(change, owner)
    several = len({step.full_name for step in todo if not isinstance(step, Undo)}) > 1
    named = ("" if isinstance(step, Undo) or not several else f"{'/'.join(step.full_name)}: " for step in todo)
    return tuple(f"{name}{explain(step)}" for name, step in zip(named, todo, strict=True))


def explain(stage: Stage) -> str:  # noqa: PLR0911, PLR0912  one sentence for each kind
    """Describe a stage in words."""
    match stage:
        case Compare():
            return "compare its live config with the plan's; stop here if they differ"
        case Create(state=state):
            return f"create it{f' {state}' if state else ''}"
        case WriteConfig(why=why):
            return f"write its config{f' ({why})' if why else ''}"
        case SetState(state=state):
            return {"RUNNING": "resume it", "PAUSED": "pause it", "STOPPED": "stop it"}[state]
        case Stop():
            return "stop it, and wait until it has no tasks: then its stored offsets are exact"
        case ReadOffsets():
            return "read its stored offsets"
        case ReadDedicated():
            return "read the offsets that the dedicated MirrorMaker stored; stop here unless it was shut down cleanly"
        case ReadStart(order=order):
            return f"read where that is {order.words} of {order.kafka.alias}"
        case TakeOffsets(entries=entries):
            return f"go on with {number_of(len(entries), 'offset')}"
        case KeepStored():
            return "keep to offsets of its topics that are stored under its name; if there are none, note that"
        case WriteOffsets(ahead=True):
            return "store those of them that are further on than what it has"
        case WriteOffsets():
            return "store these offsets for it"
        case ReadBack():
            return "read them back"
        case DropOffsets():
            return "remove the stored offsets of what moves"
        case Verify(state=state):
            return f"wait until it is {state} with this config"
        case Prove(topics=topics, is_new=is_new):
            otherwise = "delete it" if is_new else "leave it as it is"
            return f"go on only if offsets of {few(list(topics))} are stored under its name, else {otherwise}"
        case Undo(stages=undo):
            return f"from here on a failure is undone in {len(undo)} steps" if undo else "from here on only forward"
        case Delete():
            return "delete it; its stored offsets stay in Kafka"
