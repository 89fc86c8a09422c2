"""What made a task or connector FAIL, from its Java trace, and whether a restart can help. Pure.

A class of Kafka that says "try again" counts only as the root of the chain, and only where no exception in it says the
opposite: a time-out that wraps a refused login is a refused login.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_LINE = re.compile(r"^\s*(?:(Caused by|Suppressed): )?(?:Exception in thread \"[^\"]*\" )?([A-Za-z_][\w.$]*)(?=:|\s*$)")
_CAUSED = "Caused by"


@dataclass(frozen=True)
class FailureCause:
    """A class of failures: what it means, whether a restart alone can cure it, and the exceptions that show it, by
    simple name.

    `remedy` is what to do before a restart, in words for the middle of a sentence.
    """

    meaning: str
    retryable: bool
    exceptions: frozenset[str] = frozenset()
    remedy: str = "fix the cause"


def _cause(
    meaning: str, exceptions: str = "", *, retryable: bool = False, remedy: str = "fix the cause"
) -> FailureCause:
    return FailureCause(meaning, retryable, frozenset(exceptions.split()), remedy)


CAUSES: Mapping[str, FailureCause] = MappingProxyType(
    {
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
            "The brokers ended the task's transactional producer, for example after a long pause, or refused the end of"
            " its transaction (KAFKA-20785); a restart makes a new one.",
            "ProducerFencedException InvalidProducerEpochException TransactionAbortedException"
            " TransactionAbortableException TransactionCoordinatorFencedException InvalidPidMappingException"
            " InvalidTxnStateException UnknownProducerIdException",
            retryable=True,
        ),
        "bug": _cause("Everything else: a bug, or a failure that is not known here. See the trace."),
    }
)
"""Every cause by its identifier, which stays the same from release to release; the first that fits is taken."""


@dataclass(frozen=True)
class Classified:
    """The cause of a failure and the exception that showed it (its class; empty without a trace)."""

    cause: str
    exception: str = ""

    @property
    def retryable(self) -> bool:
        """Whether a restart alone can cure it."""
        return CAUSES[self.cause].retryable


def classify(trace: str | None) -> Classified:
    """Return what made a task or connector FAIL; `bug` where its trace names nothing known or is missing."""
    chain = list(_chain(trace or ""))
    if not chain:
        return Classified("bug")
    for cause, known_cause in CAUSES.items():
        if known_cause.retryable:
            continue
        for exception in reversed(chain):
            if _shows(known_cause, exception):
                return Classified(cause, exception)
    root = chain[-1]
    return Classified(next((cause for cause, known_cause in CAUSES.items() if _shows(known_cause, root)), "bug"), root)


def _chain(trace: str) -> Iterator[str]:
    """Yield the exception classes of a trace, outermost first; suppressed ones are no cause."""
    for number, line in enumerate(trace.splitlines()):
        match = _LINE.match(line)
        if match and (match[1] == _CAUSED or (number == 0 and not match[1])):
            yield match[2]


def _shows(cause: FailureCause, exception: str) -> bool:
    package, _, simple = exception.rpartition(".")
    return simple.rpartition("$")[2] in cause.exceptions or f"{simple}/{package}" in cause.exceptions
