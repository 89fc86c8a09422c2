"""What is wrong with a connector by its states, its config, its workers and the Java trace of what FAILED. Pure.

No problem known does not mean that all is well: `health` decides that. A class of Kafka that says "try again" counts
only as the root of the chain, and only where no exception in it says the opposite: a time-out that wraps a refused
login is a refused login.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, is_plugin_class
from mm2mgr.comparison.differences import compare, diff, lowers_tasks
from mm2mgr.comparison.ownership import hold_keys, is_held, without_journal
from mm2mgr.connect.types import trace_summary
from mm2mgr.connectors import RESTING, TaskStatus
from mm2mgr.observe.reading import LiveConnector, OtherConnector
from mm2mgr.problems.kind import (
    ConnectorCase,
    FlowCase,
    LiveProblem,
    ProblemEvidence,
    ProblemSubject,
    companion_rule,
    connector_rule,
    kind,
    name_some,
)
from mm2mgr.render import CLASSES, FLOW_KEY, LANE_OF_KEY
from mm2mgr.secrets import cut
from mm2mgr.text import span_text
from mm2mgr.topology import Flow, Moved

_LINE = re.compile(r"^\s*(?:(Caused by|Suppressed): )?(?:Exception in thread \"[^\"]*\" )?([A-Za-z_][\w.$]*)(?=:|\s*$)")
_CAUSED = "Caused by"
PLUGIN_MISSING, CLASS_MISSING = "plugin-missing", "class-missing"
TaskState = Literal["FAILED", "RESTARTING"]


@dataclass(frozen=True)
class FailureCause:
    """A class of failures: meaning, whether a restart alone can cure it, and exceptions that show it by name.

    `remedy` is what to do before a restart, in words for the middle of a sentence; `instead`: what to do where a
    restart never helps.
    """

    meaning: str
    retryable: bool
    exceptions: frozenset[str] = frozenset()
    remedy: str = "fix the cause"
    instead: str = ""


def _cause(
    meaning: str, exceptions: str = "", *, retryable: bool = False, remedy: str = "fix the cause", instead: str = ""
) -> FailureCause:
    return FailureCause(meaning, retryable, frozenset(exceptions.split()), remedy, instead)


# By their messages, since the exception is Connect's general one. That of tasks is what a worker says that cannot tell
# whether the class is a source or a sink (AbstractHerder.connectorType, DistributedHerder.startTask).
_LACKS_CLASS = re.compile(
    r"\s*[\w.]+\.ConnectException: (Failed to find any class that implements Connector and which name matches "
    r"|Failed to start task .* since it is not a recognizable type \(source or sink\))"
)


CAUSES: Mapping[str, FailureCause] = MappingProxyType(
    {
        PLUGIN_MISSING: _cause(
            "A worker lacks the class of mm2mgr's Connect plugin. A restart does not help; the stock class, which"
            " `mm2mgr watch` sets then, goes on from the stored offsets.",
            instead=(
                "set the stock class (mm2mgr watch does, or write balance: stock and run mm2mgr apply), and put the jar"
                " of mm2mgr plugin write onto every worker before the flow goes back to the plugin"
            ),
        ),
        CLASS_MISSING: _cause(
            "A worker lacks the connector's class: it has other plugins than the worker that took the config.",
            remedy="put the jars with the connector's class onto every worker and restart that worker",
        ),
        "out-of-memory": _cause(
            "The worker has no heap left: a restart brings the same load back, and the worker that takes over can run"
            " out of memory too.",
            "OutOfMemoryError",
        ),
        "authentication": _cause(
            "A cluster refuses the login, or its certificate is not trusted.",
            "AuthenticationException SaslAuthenticationException SslAuthenticationException IllegalSaslStateException"
            " UnsupportedSaslMechanismException UnsupportedByAuthenticationException UnacceptableCredentialException"
            " DelegationTokenExpiredException DelegationTokenNotFoundException DelegationTokenDisabledException"
            " DelegationTokenOwnerMismatchException DelayedResponseAuthenticationException JwtRetrieverException"
            " JwtValidatorException OAuthBearerIllegalTokenException LoginException SSLHandshakeException"
            " SSLPeerUnverifiedException",
        ),
        "authorisation": _cause(
            "The login lacks a right.",
            "AuthorizationException TopicAuthorizationException GroupAuthorizationException"
            " ClusterAuthorizationException TransactionalIdAuthorizationException DelegationTokenAuthorizationException"
            " SecurityDisabledException",
        ),
        "record-size": _cause(
            "A record is larger than the producer, the broker or the topic takes.",
            "RecordTooLargeException RecordBatchTooLargeException",
        ),
        # What a producer is told about one of its records. MirrorMaker's tasks survive records that they cannot read.
        "record-refused": _cause(
            "The target refuses a record: its timestamp is outside of message.timestamp.before.max.ms or after.max.ms"
            " of the topic there (MirrorMaker may have copied them from the source's topic, KAFKA-20163), or that topic"
            " is compacted and the record has no key. Change the setting of the topic on the target, and name it in"
            " config.properties.exclude so that it is not copied again.",
            "InvalidRecordException InvalidTimestampException",
            remedy=(
                "change the setting of the target's topic that refuses the record (message.timestamp.before.max.ms,"
                " after.max.ms, or cleanup.policy where it has no key) and add it to config.properties.exclude"
            ),
        ),
        "deserialisation": _cause(
            "A record cannot be read or converted.",
            "SerializationException RecordDeserializationException DataException SchemaBuilderException"
            " SchemaProjectorException SchemaException CorruptRecordException UnsupportedCompressionTypeException",
        ),
        "unknown-topic": _cause(
            "A topic does not exist, or cannot have that name; a task's restart creates none.",
            "UnknownTopicOrPartitionException UnknownTopicIdException InvalidTopicException"
            " InconsistentTopicIdException",
        ),
        "configuration": _cause(
            "A client or the cluster refuses a setting.",
            "ConfigException InvalidConfigurationException PolicyViolationException UnsupportedVersionException "
            "InvalidRequiredAcksException InvalidTxnTimeoutException OAuthBearerConfigException TooManyTasksException",
        ),
        "quota": _cause(
            "A quota of the cluster is used up for the moment.",
            "ThrottlingQuotaExceededException QuotaViolationException",
            retryable=True,
        ),
        "time-out": _cause(
            "A cluster did not answer in time.",
            "TimeoutException SocketTimeoutException StagedTimeoutException BufferExhaustedException",
            retryable=True,
        ),
        "unavailable": _cause(
            "A broker went away, a leader or coordinator moved, or too few replicas were in sync.",
            "BrokerNotAvailableException ConcurrentTransactionsException ControllerMovedException"
            " CoordinatorLoadInProgressException CoordinatorNotAvailableException DisconnectException"
            " FencedLeaderEpochException InvalidMetadataException KafkaStorageException LeaderNotAvailableException"
            " NetworkException NewLeaderElectedException NotControllerException NotCoordinatorException"
            " NotEnoughReplicasException NotEnoughReplicasAfterAppendException NotLeaderOrFollowerException"
            " OffsetNotAvailableException PreferredLeaderNotAvailableException EligibleLeadersNotAvailableException"
            " RebalanceInProgressException RebootstrapRequiredException ReplicaNotAvailableException RetriableException"
            " UnknownLeaderEpochException UnstableOffsetCommitException ConnectException/java.net SocketException"
            " ClosedChannelException EOFException NoRouteToHostException",
            retryable=True,
        ),
        "fenced": _cause(
            "The brokers ended the task's transactional producer: its transaction was open for longer than"
            " transaction.timeout.ms (while the target was down, after a long pause, or where a catch-up limit or a"
            " slow target lets the records of one poll take so long), or they refused its end (KAFKA-20785). A restart"
            " makes a new one. Where it comes again and again, lower max.poll.records of the source consumer, or raise"
            " transaction.timeout.ms of the record producer.",
            "ProducerFencedException InvalidProducerEpochException TransactionAbortedException"
            " TransactionAbortableException TransactionCoordinatorFencedException InvalidPidMappingException"
            " InvalidTxnStateException UnknownProducerIdException",
            retryable=True,
            remedy=(
                "if it comes again, let a transaction end in time: lower max.poll.records of the source consumer or"
                " raise transaction.timeout.ms of the record producer"
            ),
        ),
        "bug": _cause("Everything else: a bug, or a failure that is not known here. See the trace."),
    }
)
"""Every cause by its identifier, which stays the same from release to release; the first that fits is taken."""


def classify(trace: str | None) -> tuple[str, str]:
    """Return what made a task or connector FAIL, and the class of the exception that showed it ("" without a trace).

    The cause is `bug` where the trace names nothing known or is missing. `plugin-missing` is `class-missing` here: a
    trace does not tell whose class it is.
    """
    chain = list(_chain(trace or ""))
    if not chain:
        return "bug", ""
    if _LACKS_CLASS.match(trace or ""):
        return CLASS_MISSING, chain[0]
    for cause, known_cause in CAUSES.items():
        if known_cause.retryable:
            continue
        for exception in reversed(chain):
            if _shows(known_cause, exception):
                return cause, exception
    root = chain[-1]
    return next((cause for cause, known_cause in CAUSES.items() if _shows(known_cause, root)), "bug"), root


def _chain(trace: str) -> Iterator[str]:
    """Yield the exception classes of a trace, outermost first; suppressed ones are no cause."""
    for number, line in enumerate(trace.splitlines()):
        match = _LINE.match(line)
        if match and (match[1] == _CAUSED or (number == 0 and not match[1])):
            yield match[2]


def _shows(cause: FailureCause, exception: str) -> bool:
    package, _, simple = exception.rpartition(".")
    return simple.rpartition("$")[2] in cause.exceptions or f"{simple}/{package}" in cause.exceptions


@kind("not-applied", "warning", 15)
class NotApplied(ProblemEvidence):
    """The tree declares a connector that Connect does not have."""

    takes_over: str = ""
    "what it takes over, as `from:` of its entry of `moved:` says; empty where it takes over nothing"

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr apply" if self.takes_over else "mm2mgr plan"  # plan says what blocks it, where something does

    def sentence(self, problem: LiveProblem) -> str:
        where = f"not on Connect cluster '{problem.subject.connect}'"
        if self.takes_over:
            return (
                f"{where} yet: run mm2mgr apply, which moves the topics of {self.takes_over} to it, with their stored"
                " offsets"
            )
        return f"{where}: run {problem.command}, then mm2mgr apply"


@connector_rule
def not_applied(case: ConnectorCase) -> Iterator[LiveProblem]:
    if case.connector.running is None:
        flows = case.connector.desired.flows if case.connector.desired.type == "source" else ()
        over = [entry.written for entry in case.reading.moves if entry.to in flows and not entry.topics]
        is_gone = not over and _is_gone(case)
        yield case.problem(ConnectorGone() if is_gone else NotApplied(over[0] if over else ""))


@kind("connector-gone", "critical", 5)
class ConnectorGone(ProblemEvidence):
    """A source connector that had mirrored is not in Connect any more, so that nothing of its flow arrives."""

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr plan"

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"gone from Connect cluster '{problem.subject.connect}', where it had mirrored: nothing of it arrives any"
            f" more; run {problem.command}, then mm2mgr apply"
        )


def _is_gone(case: ConnectorCase) -> bool:
    """Tell whether a connector that is not in Connect had stored offsets there at an earlier look, should run, and no
    connector outside of the tree runs between its two clusters, as after a flow was renamed or moved."""
    desired, reading = case.connector.desired, case.reading
    if desired.type != "source" or desired.state in RESTING:
        return False
    flows = [flow for flow, source in reading.desired.items() if source.name == desired.name]
    had_mirrored = any(
        offset.stored >= 0
        for flow in flows
        for topic in case.memory.flow(flow).topics.values()
        for offset in topic.places.values()
    )
    instead = (
        Orphan.from_connector(other)
        for connect in reading.connects.values()
        for other in (*connect.orphans, *connect.others)
        if other.standing != "declared"
    )
    return had_mirrored and not any(other.runs and other.pair == desired.pair for other in instead)


@kind("no-status", "critical", 2)
class NoStatus(ProblemEvidence):
    """A connector has had no status for a minute: it waits for a cluster that does not answer."""

    clusters: tuple[str, ...]
    "the source and the target of its pair"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"no status for {span_text(problem.seconds)}: a connector has no status while it waits for a cluster that"
            f" does not answer; check addresses, ports and security protocol of {' and '.join(self.clusters)} from the"
            " workers, then their log"
        )


@connector_rule
def no_status(case: ConnectorCase) -> Iterator[LiveProblem]:
    """MirrorMaker's start jobs wait for both clusters, 60 s each by default, and Connect has no status meanwhile."""
    waited = case.without_status_seconds
    if case.state == "no status" and waited >= case.patience.no_status_seconds:
        yield case.problem(NoStatus(tuple(case.connector.desired.pair.split("->"))), since=waited)


# --- failures ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failed(ProblemEvidence):
    """What a failure of a connector and one of tasks have in common."""

    trace_summary: str
    "first line and last cause of the trace, secrets masked, cut"
    classified: tuple[str, str]
    json_keys = "trace_summary exception remedy"

    @property
    def exception(self) -> str:
        "class of the exception that decided the cause; empty without a trace"
        return self.classified[1]

    @property
    def remedy(self) -> str:
        "what to do before a restart, or in its place"
        return CAUSES[self.cause].instead or CAUSES[self.cause].remedy

    @property
    def cause(self) -> str:
        return self.classified[0]

    @property
    def retryable(self) -> bool:
        return CAUSES[self.cause].retryable

    def command(self, problem: LiveProblem) -> str:
        if CAUSES[self.cause].instead:
            return "mm2mgr watch"
        only_failed = "" if problem.older and problem.subject.tasks else "--failed "
        return f"mm2mgr restart {only_failed}{problem.argument}"

    def text(self, problem: LiveProblem) -> str:
        if problem.drift:  # what can be the cause is repaired first: a restart would fail again
            return self.trace_summary
        if instead := CAUSES[self.cause].instead:
            return f"{self.trace_summary}; {instead}"
        return f"{self.trace_summary}; {self.remedy}, then run {problem.command}"


@kind("connector-failed", "critical", 2)
class ConnectorFailed(Failed):
    """A connector itself FAILED."""

    tasks_run: bool
    "whether tasks still run, with the previous config"
    json_keys = f"{Failed.json_keys} tasks_run"

    def sentence(self, problem: LiveProblem) -> str:
        running = " (tasks still run with the previous config)" if self.tasks_run else ""
        return f"connector FAILED{running}: {self.text(problem)}"


@kind("task-failed", "critical", 2)
class TaskFailed(Failed):
    """Tasks FAILED for the same reason; Connect never restarts them by itself. Those that stay RESTARTING on a worker
    that lacks the plugin's class count too."""

    state: TaskState = "FAILED"
    "what Connect shows of them"
    json_keys = f"{Failed.json_keys} state"

    def sentence(self, problem: LiveProblem) -> str:
        return f"{problem.tasks} {self.state}: {self.text(problem)}; they do not recover by themselves"


@connector_rule
def failures(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A failed connector, whose clients usually refuse a setting; and failed tasks, one problem per cause."""
    running, status = case.connector.running, case.connector.status
    if running is None or status is None:
        return

    def cause_of(trace: str | None) -> tuple[str, str]:
        cause, exception = classify(trace)
        is_ours = cause == CLASS_MISSING and is_plugin_class(running.config.get("connector.class", ""))
        return PLUGIN_MISSING if is_ours else cause, exception

    if status.state == "FAILED":
        run_on = any(task.state == "RUNNING" for task in status.tasks)
        yield case.problem(ConnectorFailed(trace_summary(status.trace), cause_of(status.trace), run_on))
    by_cause: dict[TaskFailed, list[int]] = {}
    for task in status.tasks:
        if task.state == "FAILED":
            by_cause.setdefault(TaskFailed(_task_summary(task), cause_of(task.trace)), []).append(task.id)
        elif task.state == "RESTARTING" and task.worker_id in case.connector.without_plugin:
            lacks = f"worker {task.worker_id} has no {PLUGIN_CLASS}"
            by_cause.setdefault(TaskFailed(lacks, (PLUGIN_MISSING, ""), "RESTARTING"), []).append(task.id)
    for evidence, tasks in by_cause.items():
        yield case.problem(evidence, tasks=tasks)


def _task_summary(task: TaskStatus) -> str:
    """Return a trace in one line; where a worker lacks the class each has the number of its task, and is the same."""
    if _LACKS_CLASS.match(task.trace or ""):
        return f"worker {task.worker_id} lacks the connector's class, so it cannot start the task"
    return trace_summary(task.trace)


def failures_of(connector: LiveConnector) -> tuple[LiveProblem, ...]:
    """Return what of a connector FAILED."""
    return tuple(failures(ConnectorCase(connector)))


# --- workers ----------------------------------------------------------------------------------------------------------

_WAITS_FOR_WORKERS = (
    "after workers stopped, the others wait for them for scheduled.rebalance.max.delay.ms, 5 min by default"
)


@kind("connector-unassigned", "critical", 7)
class ConnectorUnassigned(ProblemEvidence):
    """No worker runs a connector, or its changed config waits for a cluster that does not answer."""

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"connector UNASSIGNED: no worker has taken it ({_WAITS_FOR_WORKERS}), or its changed config waits for a"
            " cluster that does not answer while its tasks run with the previous config; check the workers and that"
            " they reach both clusters"
        )


@kind("task-unassigned", "critical", 7)
class TaskUnassigned(ProblemEvidence):
    """No worker runs these tasks."""

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        return (
            f"{problem.tasks} UNASSIGNED: no worker runs them; {_WAITS_FOR_WORKERS}, so start the workers that stopped,"
            " or wait"
        )


@connector_rule
def not_assigned(case: ConnectorCase) -> Iterator[LiveProblem]:
    status = case.connector.status
    if status and status.state == "UNASSIGNED":
        yield case.problem(ConnectorUnassigned())
    if tasks := [task.id for task in status.tasks if task.state == "UNASSIGNED"] if status else []:
        yield case.problem(TaskUnassigned(), tasks=tasks)


@kind("worker-departed", "critical", 7)
class WorkerDeparted(ProblemEvidence):
    """A connector or tasks are RUNNING by their status on a worker that accepts no connection, while other workers do:
    Connect starts them elsewhere only after its session timeout and scheduled.rebalance.max.delay.ms. Not judged where
    mm2mgr reaches the workers through a proxy, or none of them at its own address.
    """

    worker: str
    "its id: host and port of its REST API"
    connector_there: bool
    "whether the connector itself is there too"

    def command(self, problem: LiveProblem) -> str:
        return problem.check_command

    def sentence(self, problem: LiveProblem) -> str:
        parts = ("the connector" if self.connector_there else "", problem.tasks)
        return (
            f"{' and '.join(filter(None, parts))} RUNNING by the status on worker {self.worker}, which has accepted no"
            f" connection for {span_text(problem.seconds)} while other workers do: start it again, or wait until"
            " Connect gives its work to them (scheduled.rebalance.max.delay.ms, 5 min by default)"
        )


@connector_rule
def worker_departed(case: ConnectorCase) -> Iterator[LiveProblem]:
    """What a dead worker ran stays RUNNING until Connect gives it to others, five minutes later by default."""
    status = case.connector.status
    for worker, seconds in sorted(case.silent_seconds.items()):
        if status is None or seconds < case.patience.departed_seconds:
            continue
        tasks = [task.id for task in status.tasks if task.worker_id == worker and task.state == "RUNNING"]
        is_there = status.worker_id == worker and status.state == "RUNNING"
        if tasks or is_there:
            yield case.problem(WorkerDeparted(worker, is_there), since=seconds, tasks=tasks)


@kind("heartbeat-without-task")
class HeartbeatWithoutTask(ProblemEvidence):
    """A heartbeat connector is RUNNING without a task: no heartbeats are sent."""

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr restart {problem.argument}"

    def sentence(self, problem: LiveProblem) -> str:
        return f"RUNNING without a task: no heartbeats are sent; check the workers' log and run {problem.command}"


@connector_rule
def heartbeat_without_task(case: ConnectorCase) -> Iterator[LiveProblem]:
    """A heartbeat connector always has one task."""
    if case.connector.desired.type == "heartbeat" and case.runs_no_task:
        yield case.problem(HeartbeatWithoutTask())


@kind("companion-paused-by-hand", "warning", 15)
class CompanionPausedByHand(ProblemEvidence):
    """A heartbeat or checkpoint connector was paused or stopped by hand, with `mm2mgr pause` or over REST, and the tree
    has it running. Records arrive as before; what it does for monitoring or for a failover is missing meanwhile.
    """

    type: str
    "heartbeat or checkpoint"
    state: str
    "PAUSED or STOPPED"
    cluster: str
    "alias of the cluster that it writes to"
    syncs_groups: bool
    "whether it writes translated offsets of consumer groups to the target (sync.group.offsets.enabled)"

    def command(self, problem: LiveProblem) -> str:
        return f"mm2mgr resume {problem.argument}"

    def sentence(self, problem: LiveProblem) -> str:
        missing = f"no heartbeats are written to {self.cluster}, and what watches them takes the pair for dead"
        if self.type == "checkpoint":
            synced = " or synced" if self.syncs_groups else ""
            missing = (
                f"no offsets of consumer groups are translated{synced} to {self.cluster}; after a failover groups would"
                " go on where they were when it was paused"
            )
        return f"{self.state} by hand, and the tree says running: {missing}; run {problem.command}"


@companion_rule
def companion_rests_by_hand(case: ConnectorCase) -> Iterator[LiveProblem]:
    """What a move or the way back of a failover holds is refused by `resume` and is no rest by hand."""
    desired, running = case.connector.desired, case.connector.running
    if case.state not in RESTING or running is None or desired.state in RESTING:
        return
    if case.journal is None and not is_held(running.config):
        cluster = running.config.get("target.cluster.alias", "")
        syncs_groups = running.config.get("sync.group.offsets.enabled", "").lower() == "true"
        yield case.problem(CompanionPausedByHand(desired.type, case.state, cluster, syncs_groups))


# --- configs ----------------------------------------------------------------------------------------------------------


@kind("offsets-move-unfinished", "warning", 15)
class OffsetsMoveUnfinished(ProblemEvidence):
    """A move of stored offsets was interrupted, or is in progress: to another topic, or to another connector."""

    then: str
    "the state that the connector gets when the move is finished"
    takes_from: str = ""
    "the connector whose topics it takes over, as connect/name; empty where it takes none"
    gives_to: str = ""
    "the connector that takes its topics over, as connect/name; empty where it gives none"
    starts: bool = False
    "whether its first offsets are written, so that it begins at a declared place"

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr apply"

    def sentence(self, problem: LiveProblem) -> str:
        change = "the move of its stored offsets to another topic"
        if self.takes_from or self.gives_to:
            way = f"from {self.takes_from} to it" if self.takes_from else f"from it to {self.gives_to}"
            change = f"the move of topics with their stored offsets {way}"
        elif self.starts:
            change = "writing its first offsets"
        return (
            f"{change} is not finished; do not resume it by hand, or it may mirror everything again; unless an apply is"
            f" in progress, run mm2mgr apply, which finishes it and leaves the connector {self.then}"
        )


@connector_rule
def offsets_move_unfinished(case: ConnectorCase) -> Iterator[LiveProblem]:
    """mm2mgr was killed, or is still working on it."""
    if journal := case.journal:
        giver = "/".join(filter(None, journal.move.giver)) if journal.move else ""
        taker = "/".join(journal.gives) if journal.gives else ""
        yield case.problem(OffsetsMoveUnfinished(journal.then, giver, taker, journal.start is not None))


@kind("config-differs", "warning", 15)
class ConfigDiffers(ProblemEvidence):
    """A connector's config was changed elsewhere, or the tree is not applied."""

    keys: tuple[str, ...]
    "config keys, without values"
    adopted: bool
    "whether the tree adopts the connector and has not written it yet"

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr plan"

    def sentence(self, problem: LiveProblem) -> str:
        keys = name_some(self.keys, "key")
        if self.adopted:
            return f"it is adopted, and differs from the tree in {keys}: run {problem.command}"
        return f"its config differs from the tree in {keys}: run {problem.command}"


@connector_rule
def config_differs(case: ConnectorCase) -> Iterator[LiveProblem]:
    """Names keys only: values may be secrets."""
    if case.connector.running is None:
        return
    desired, running = case.connector.desired, without_journal(case.connector.running.config)
    if all(is_plugin_class(config.get("connector.class", "")) for config in (desired.config, running)):
        running = {
            key: text for key, text in running.items() if key != ASSIGNMENT_KEY
        }  # not of the tree: plan keeps it
    if is_held(running):  # plan keeps it held
        desired = replace(desired, config={**desired.config, **hold_keys(running)})
    if case.connector.adopted:
        differing, _ = compare(desired, running, case.connector.adopted)
        if differing:
            yield case.problem(ConfigDiffers(differing, adopted=True))
        return
    changes = diff(running, desired.config)
    if lowers_tasks(changes) and isinstance(case, FlowCase) and case.flow.tasks.is_saving:
        return  # it may wait for its time: plan shows it
    if changes:
        yield case.problem(ConfigDiffers(tuple(change.key for change in changes), adopted=False))


# --- connectors that are not declared ---------------------------------------------------------------------------------


@kind("orphan", "warning", 15)
class Orphan(ProblemEvidence):
    """A connector with this tree's owner mark that the tree does not declare still works."""

    connect: str
    "Connect cluster"
    connector: str
    "name"
    type: str
    "source, checkpoint or heartbeat"
    pair: str
    "source and target"
    topics: str
    "its topics, cut"
    state: str
    "its state"
    lane_of: str = ""
    "id of the declared flow that it was a lane of; empty where there is none"
    moves_to: str = ""
    "id of the flow that takes its topics, or those that it serves, over by `moved:`; empty where there is none"

    @classmethod
    def from_connector(
        cls, connector: OtherConnector, declared: Collection[str] = (), moves: Iterable[Moved] = ()
    ) -> Orphan:
        """Return it; `declared`: the ids of the tree's flows, `moves`: what it has under `moved:`."""
        config, types = connector.config, {name: type_ for type_, name in CLASSES.items()}
        pair = f"{config.get('source.cluster.alias', '?')}->{config.get('target.cluster.alias', '?')}"
        type_ = types.get(config.get("connector.class", ""), "source")
        topics = cut(config.get("topics", ""))
        lane_of = config.get(LANE_OF_KEY, "")
        lane_of = lane_of if lane_of in declared else ""
        place, flow = (connector.connect, connector.connector), config.get(FLOW_KEY)
        over = [m.to for m in moves if type_ == "source" and (m.connector == place or (flow and m.flow == flow))]
        moves_to = over[0] if over else ""
        return cls(*place, type_, pair, topics, connector.state, lane_of, moves_to)

    @property
    def runs(self) -> bool:
        """Whether it still works, or would after a restart."""
        return self.state not in RESTING

    @property
    def problem(self) -> LiveProblem:
        return LiveProblem(self, ProblemSubject(self.connect, self.connector))

    def command(self, problem: LiveProblem) -> str:
        return "mm2mgr apply" if self.lane_of or self.moves_to else "mm2mgr plan --prune"

    def sentence(self, problem: LiveProblem | None = None) -> str:
        works = {
            "source": f"mirrors {self.topics}",
            "heartbeat": "sends heartbeats",
            "checkpoint": "copies checkpoints",
        }
        doing = f"it still {works[self.type]} {self.pair}" if self.runs else "it does nothing until it is resumed"
        stands = f"not declared in the tree, and {self.state}: {doing}"
        if self.lane_of:
            return (
                f"{stands}; it is a lane of {self.lane_of}, to which mm2mgr apply gives its topics back with their"
                " stored offsets, and deletes it then"
            )
        if self.moves_to and self.type != "source":
            return f"{stands}; it serves only topics that mm2mgr apply moves to {self.moves_to}, and deletes it then"
        if self.moves_to:
            return (
                f"{stands}; mm2mgr apply moves its topics to {self.moves_to}, with their stored offsets, and deletes it"
                " then: do not resume it meanwhile"
            )
        return f"{stands}; declare it, or delete it with mm2mgr plan --prune and mm2mgr apply --prune"

    @property
    def place(self) -> tuple[str, frozenset[str]]:
        """Its Connect cluster and both clusters of its pair: a connector of heartbeats goes the other way."""
        return self.connect, frozenset(self.pair.split("->"))


def find_orphans(
    connectors: Iterable[OtherConnector], declared: Collection[Flow], moves: Sequence[Moved]
) -> tuple[Orphan, ...]:
    """Return the connectors that are not declared. One of checkpoints or heartbeats that serves nothing but topics that
    move goes with them."""
    ids = {flow.id for flow in declared}
    orphans = [Orphan.from_connector(connector, ids, moves) for connector in connectors]
    staying = {(flow.connect.name, frozenset((flow.source.alias, flow.target.alias))) for flow in declared}
    staying |= {orphan.place for orphan in orphans if orphan.type == "source" and not orphan.moves_to}
    moving = {orphan.place: orphan.moves_to for orphan in orphans if orphan.moves_to}
    return tuple(
        replace(orphan, moves_to=moving[orphan.place])
        if orphan.type != "source" and orphan.place in moving and orphan.place not in staying
        else orphan
        for orphan in orphans
    )
