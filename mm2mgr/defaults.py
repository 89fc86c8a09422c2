"""The client settings that mm2mgr gives every flow, each with its reason, and the origin that every config value has.

Each default proved necessary on real workers. A plain key (or null) in the same block of a flow overrides it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

HISTORY_TOPIC = "mm2mgr.history.internal"
"""Where the history stands on the Kafka cluster of Connect workers: a name that MirrorMaker never mirrors."""

OriginKind = Literal["spec", "override", "default", "template", "file"]


class Origin(NamedTuple):
    """The origin of a value: a declared line, a reviewed override, a default of mm2mgr (with its reason), a template
    line, or a line of another tool's file.
    """

    kind: OriginKind
    where: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where}"


class Text(str):
    """A string with an origin; any string operation on it gives a plain str again."""

    origin: Origin
    __slots__ = ("origin",)

    def __new__(cls, value: str, origin: Origin) -> Text:
        text = super().__new__(cls, value)
        text.origin = origin
        return text

    def __reduce__(self) -> tuple[type[Text], tuple[str, Origin]]:
        """Let it be copied and pickled with its origin."""
        return Text, (str(self), self.origin)


def by_default(value: str, reason: str) -> Text:
    """Return a value that mm2mgr itself decides, with the reason."""
    return Text(value, Origin("default", f"mm2mgr: {reason}"))


# --- client settings --------------------------------------------------------------------------------------------------

_ADMIN = {
    "retry.backoff.ms": ("5000", "a 4.x admin client without brokers writes thousands of log lines a second otherwise"),
    "retry.backoff.max.ms": ("10000", "upper end of the same back-off"),
}
# block of a flow -> Kafka key -> (value, why)
CLIENT_DEFAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "source_consumer": {
        "allow.auto.create.topics": (
            "false",
            "a deleted source topic must not be created again by the mirror's own reads",
        ),
        "receive.buffer.bytes": (
            "-1",
            "64 KiB caps a 100 ms link at 0.8 MB/s; the operating system sizes the window better",
        ),
        "send.buffer.bytes": ("-1", "left to the operating system"),
        "fetch.max.bytes": (
            "16777216",
            "a fetch must finish inside request.timeout.ms (30 s), else the flow stalls while RUNNING",
        ),
        "max.partition.fetch.bytes": (
            "4194304",
            "one partition is request and response only: 1 MiB a round trip is slow over distance",
        ),
    },
    "record_producer": {
        "send.buffer.bytes": ("-1", "128 KiB caps the window of a long link; the operating system sizes it better"),
        "receive.buffer.bytes": ("-1", "left to the operating system"),
    },
    # With offset syncs on the target too: it can be down while other flows of the same workers go elsewhere.
    "offset_syncs_producer": {
        "max.block.ms": (
            "500",
            (
                "one thread commits the offsets of all flows on a worker; a dead source would hold it 60 s for each of"
                " its partitions"
            ),
        )
    },
    "source_admin": _ADMIN,
    "target_admin": _ADMIN,
}

# The same for flows with `delivery: exactly_once`, on top.
EXACTLY_ONCE_DEFAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "source_consumer": {
        "isolation.level": (
            "read_committed",
            (
                "records of aborted transactions must not cross; exactly.once.support=required is refused without it"
                " (KIP-618)"
            ),
        ),
        "max.poll.records": (
            "5000",
            "every poll is a transaction: Kafka's 500 halve the throughput (0.53 measured), with 5000 it is 0.97",
        ),
    }
}
# The same for workers that the tree declares with one of Kafka's versions from the first on and before the second.
METRIC_NAMES_VERSIONS = (4, 3), (5, 0)
_METRIC_NAMES = {
    "metric.names.formats": (
        "legacy,new",
        "Kafka 5.0 removes the old metric names (KIP-1280): dashboards and alerts can move while both are there",
    )
}
METRIC_NAMES_DEFAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "source_connector": _METRIC_NAMES,
    "checkpoint_connector": _METRIC_NAMES,
}
# What may be written there on exactly-once workers (None: only nothing), and what would happen otherwise.
EXACTLY_ONCE_ALLOWS: dict[tuple[str, str], tuple[tuple[str | None, ...], str]] = {
    ("source_consumer", "isolation.level"): (("read_committed",), "records of aborted transactions would be mirrored"),
    ("record_producer", "acks"): ((None, "all", "-1"), "a transactional producer refuses to start with less than all"),
    ("record_producer", "enable.idempotence"): ((None, "true"), "the workers decide this themselves"),
    ("record_producer", "transactional.id"): ((None,), "the workers decide this themselves"),
    ("source_connector", "transaction.boundary"): (
        (None, "poll", "interval"),
        "MirrorMaker draws no boundaries of its own",
    ),
}

# Never mirrored, whatever `topics` says: Kafka's default list of 4.0 and newer (KIP-1074) with the older internal
# suffixes.
TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*[\-.]internal", r".*\.replica", "__.*")
GROUPS_EXCLUDE = ("console-consumer-.*", "connect-.*", "__.*")
# DefaultConfigPropertyFilter's own list: giving the key replaces it, so it is always written whole. The two limits that
# took the place of message.timestamp.difference.max.ms (KIP-937) are meant in 4.3's list too, which writes the brokers'
# names for them.
PROPERTIES_EXCLUDE = (
    *(r"follower\.replication\.throttled\.replicas", r"leader\.replication\.throttled\.replicas"),
    *(r"message\.timestamp\.difference\.max\.ms", r"message\.timestamp\.before\.max\.ms"),
    *(r"message\.timestamp\.after\.max\.ms", r"message\.timestamp\.type", r"unclean\.leader\.election\.enable"),
    r"min\.insync\.replicas",
)

POLICIES = {
    "default": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "identity": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}
