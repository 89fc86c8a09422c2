"""A failover as a runbook: each stage with who does it, the command, what to expect then and what stops it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mm2mgr.failover.check import PairReadiness, lost_text
from mm2mgr.failover.group_offsets import GroupOrder
from mm2mgr.failover.journal import FailoverJournal, Mode
from mm2mgr.failover.stages import FailoverStage, MirrorFacts, RunVerdict, StageName, goes_on, stages_of
from mm2mgr.text import few, number_of, span_text

_MOST_NAMES = 8
WAY_BACK = (
    "leave the pair stopped: what is written on the target from now on is not on the source. Once the source is there "
    "again, this prepares the flow back, which begins where the target's logs ended: the journal keeps that"
)


@dataclass(frozen=True)
class PairNames:
    """What people need to know of a pair: aliases, the target's bootstrap servers, and topics with their names there.

    `asked`: how the mode is written on the command line.
    """

    pair: str
    source: str
    target: str
    servers: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    asked: str = ""

    @property
    def run(self) -> str:
        return f"mm2mgr failover run '{self.pair}'{self.asked}"


@dataclass(frozen=True)
class RunbookStep:
    """One stage for people: what is to be done, by whom, with which commands, what to see then, and what stops it."""

    number: int
    stage: FailoverStage
    task: str
    commands: tuple[str, ...] = ()
    expect: str = ""
    stops: str = ""

    json_keys = "number stage=stage.name title=stage.title by=stage.by task commands expect stops"


@dataclass(frozen=True)
class Runbook:
    """The stages of a failover with what they would come to now, and whether it may begin."""

    pair: str
    mode: Mode
    taken_at: float
    verdict: RunVerdict
    steps: tuple[RunbookStep, ...] = ()
    orders: tuple[GroupOrder, ...] = ()
    under_way: str = ""
    lost: str = ""
    total_seconds: float | None = None
    command: str = ""

    json_keys = "pair mode taken_at verdict under_way lost total_seconds command steps groups=orders"


@dataclass(frozen=True)
class RunbookFacts:
    """What a runbook is made of: the judgement of the pair, and how it is to be failed over."""

    mode: Mode
    readiness: PairReadiness
    facts: MirrorFacts
    orders: Sequence[GroupOrder]
    verdict: RunVerdict
    journal: FailoverJournal | None = None
    quiet_seconds: float = 10.0
    lag_seconds: float = 120.0
    cutoff: str = ""


def runbook(names: PairNames, pair: RunbookFacts) -> Runbook:
    """Return the runbook of a failover."""
    steps = tuple(
        RunbookStep(number, stage, *_TEXTS[stage.name](names, pair))
        for number, stage in enumerate(stages_of(pair.mode), 1)
    )
    journal = pair.journal if goes_on(pair.journal, pair.facts) else None
    return Runbook(
        names.pair,
        pair.mode,
        pair.readiness.taken_at,
        pair.verdict,
        steps,
        tuple(pair.orders),
        _under_way(journal),
        lost_text(pair.readiness.recovery),
        pair.readiness.time.total_seconds if pair.mode != "disaster" else None,
        names.run,
    )


def _under_way(journal: FailoverJournal | None) -> str:
    if journal is None:
        return ""
    state = "done" if journal.outcome == "done" else f"at '{list(journal.reached)[-1]}'" if journal.reached else "begun"
    return f"a failover of {journal.by} ({journal.mode}) is {state}: a run goes on with it"


_Text = tuple[str, tuple[str, ...], str, str]
"""What, commands, what to expect, what stops it."""


def _readiness(names: PairNames, pair: RunbookFacts) -> _Text:
    now = f"{pair.verdict.word}{': ' * bool(pair.verdict.reasons)}{'; '.join(pair.verdict.reasons)}"
    command = f"mm2mgr failover check '{names.pair}' --translated"
    stops = "a disaster goes on with what it says" if pair.mode == "disaster" else "NO-GO and not judged (exit code 1)"
    return "the run checks all groups again when it begins", (command,), f"now: {now}", stops


def _drain(names: PairNames, pair: RunbookFacts) -> _Text:
    facts = pair.facts
    old = "" if facts.seconds_behind is None else f", the oldest written {span_text(facts.seconds_behind)} ago"
    now = facts.unknown or (f"{number_of(facts.records_behind, 'record')} behind{old}" if facts.behind else "no lag")
    task = f"the oldest record that waits is less than {span_text(pair.lag_seconds)} old"
    return task, (f"mm2mgr lag '{names.pair}'",), f"now: {now}", "a lag that grows, or that is not known"


def _producers(names: PairNames, pair: RunbookFacts) -> _Text:
    topics = few(sorted(names.topics), _MOST_NAMES)
    if pair.mode == "cutoff":
        task = f"all producers of {topics} on {names.source} stop at {pair.cutoff}; the run waits until then"
        return task, (), f"records written at {pair.cutoff} or later are named as late", ""
    task = (
        f"stop all that writes to {topics} on {names.source}; let the consumers there read to the end, and stop them: "
        "what they commit after their offsets are written comes again"
    )
    return task, (), "the run asks whether it is done; --producers-stopped answers", "answer no"


def _quiet(names: PairNames, pair: RunbookFacts) -> _Text:
    task = f"the ends of the logs on {names.source} stand still for {span_text(pair.quiet_seconds)}"
    expect = (
        f"{number_of(len(pair.facts.source_ends), 'log')} watched; who still writes is named by topic and partition"
    )
    return (
        task,
        (names.run,),
        expect,
        "records, markers of transactions or open transactions, for longer than --timeout",
    )


def _arrival(names: PairNames, pair: RunbookFacts) -> _Text:
    seconds = pair.readiness.time.drain_seconds
    expect = f"after about {span_text(seconds)}, and a flush interval of the workers" if seconds is not None else ""
    return "stored offsets come to the ends of the logs", (f"mm2mgr lag '{names.pair}'",), expect, "a flow that stands"


def _translation(names: PairNames, pair: RunbookFacts) -> _Text:
    expect = f"now: at most {number_of(pair.verdict.repeats_at_most, 'record')} again in all groups"
    longest = span_text(pair.readiness.time.checkpoint_seconds)
    return (
        f"exact, or named after {longest}",
        (),
        expect,
        "a group that reads on the source, and whose position is unknown",
    )


def _stop(names: PairNames, pair: RunbookFacts) -> _Text:
    facts, stops = pair.facts, [connector.full_name for connector in pair.facts.to_stop]
    verb, state = ("stop", "STOPPED") if facts.can_stop else ("pause", "PAUSED")
    task = "source and checkpoint connectors: group sync is no second writer any more; heartbeats go on"
    if not facts.can_stop:
        task += (
            ". Workers before Kafka 3.5 cannot stop: paused connectors keep tasks, and group sync goes on, ahead only"
        )
    command = (f"mm2mgr {verb} {' '.join(stops)}",) if stops else ()
    if facts.connect_failure:
        expect = f"{facts.connect_failure}: whether workers still write is not known"
    else:
        expect = f"{few(stops, _MOST_NAMES)}: {state}" if stops else "they rest already"
    return task, command, expect, "a connector of another owner, or `state: running` in the tree"


def _ends(names: PairNames, pair: RunbookFacts) -> _Text:
    expect = f"{number_of(len(pair.facts.target_ends), 'partition')} in the journal, in topic mm2mgr.history.internal"
    return f"the way back begins there; kept on {names.target}", (), expect, "ends that cannot be read"


def _groups(names: PairNames, pair: RunbookFacts) -> _Text:
    writes = [order for order in pair.orders if order.action == "write"]
    there = sum(order.action in {"level", "gone on"} and not order.unknown for order in pair.orders)
    left = [order.group for order in pair.orders if order.action not in {"write", "level", "gone on"}]
    count = sum(order.count for order in writes)
    expect = f"{number_of(count, 'offset')} of {number_of(len(writes), 'group')} written, {there} there already"
    expect += f"; left as they are: {few(sorted(left))}" * bool(left)
    expect += f"; at most {number_of(pair.verdict.repeats_at_most, 'record')} again"
    task = f"the translated offsets, for groups that have no member on {names.target}, and only ahead"
    command = f"mm2mgr failover check '{names.pair}'"
    return task, (command,), expect, "a group that got a member on the target: it is named, and not written"


def _back(names: PairNames, pair: RunbookFacts) -> _Text:
    command = f"mm2mgr failover back '{names.pair}'"
    expect = f"the way back may run, and is STOPPED until {command} --start; what was lost is listed"
    return WAY_BACK, (f"{command} --apply",), expect, "partitions of which it is not certain where the flow back begins"


def _consumers(names: PairNames, pair: RunbookFacts) -> _Text:
    renamed = [f"{topic} is {remote}" for topic, remote in sorted(names.topics.items()) if topic != remote]
    topics = f"there {few(renamed, _MOST_NAMES)}" if renamed else "topics have the same names there"
    task = f"with bootstrap.servers={names.servers}; {topics}; consumers first, then producers; move DNS names"
    again = f"at most {number_of(pair.verdict.repeats_at_most, 'record')} come again"
    return task, (), f"consumers go on where they were; {again}", ""


_TEXTS: Mapping[StageName, Callable[[PairNames, RunbookFacts], _Text]] = {
    "readiness": _readiness,
    "drain": _drain,
    "producers": _producers,
    "quiet": _quiet,
    "arrived": _arrival,
    "translated": _translation,
    "stop": _stop,
    "ends": _ends,
    "groups": _groups,
    "back": _back,
    "consumers": _consumers,
}
