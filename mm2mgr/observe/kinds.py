"""A problem as a value, and every kind of problem with what it means and its evidence. Pure; the words for people are
in output/.

Kinds, causes and evidence keep their names from release to release: terminal, JSON and whatever acts on problems use
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ProblemSubject:
    """What a problem is about, as closely as is known: a Connect cluster, a connector, its flow, some of its tasks."""

    connect: str = ""
    connector: str = ""
    flow: str = ""
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True)
class LiveProblem:
    """One problem. `cause` is an identifier of CAUSES for failures, else empty; `evidence` is JSON-ready and holds no
    secrets.

    `since_seconds`: for how long it has been seen (None: that is not remembered). `retryable`: a restart alone can cure
    it.
    """

    kind: str
    subject: ProblemSubject
    evidence: Mapping[str, Any] = field(default_factory=dict)
    since_seconds: float | None = None
    cause: str = ""
    retryable: bool = False


@dataclass(frozen=True)
class ProblemKind:
    """What a kind of problem means, and the fields of its evidence."""

    meaning: str
    evidence: Mapping[str, str] = field(default_factory=dict)


_TRACE = {
    "trace_summary": "first line and last cause of the trace, secrets masked, cut",
    "exception": "class of the exception that decided the cause; empty without a trace",
    "remedy": "what to do before a restart",
}
_TARGET_TOPICS = {
    "topics": "the first of them, by their names on the target",
    "topic_count": "how many there are",
    "source": "alias of the source",
    "target": "alias of the target",
}
_GROUPS = {
    "groups": "the first of them",
    "group_count": "how many there are",
    "source": "alias of the source",
    "target": "alias of the target",
}
_KEYS = "config keys, without values"

KINDS: Mapping[str, ProblemKind] = MappingProxyType(
    {
        "not-applied": ProblemKind("The tree declares a connector that Connect does not have."),
        "config-differs": ProblemKind(
            "A connector's config was changed elsewhere, or the tree is not applied.",
            {"keys": _KEYS, "adopted": "whether the tree adopts the connector and has not written it yet"},
        ),
        "offsets-move-unfinished": ProblemKind(
            "A move of stored offsets was interrupted, or is in progress.",
            {"then": "the state that the connector gets when the move is finished"},
        ),
        "no-status": ProblemKind(
            "A connector has had no status for a minute: it waits for a cluster that does not answer.",
            {"clusters": "the source and the target of its pair"},
        ),
        "connector-failed": ProblemKind(
            "A connector itself FAILED.",
            {**_TRACE, "tasks_run": "whether tasks still run, with the previous config"},
        ),
        "task-failed": ProblemKind("Tasks FAILED for the same reason; Connect never restarts them by itself.", _TRACE),
        "connector-unassigned": ProblemKind(
            "No worker runs a connector, or its changed config waits for a cluster that does not answer."
        ),
        "task-unassigned": ProblemKind("No worker runs these tasks."),
        "worker-departed": ProblemKind(
            "A connector or tasks are RUNNING by their status on a worker that accepts no connection, while other"
            " workers do: Connect starts them elsewhere only after its session timeout and"
            " scheduled.rebalance.max.delay.ms. Not judged where mm2mgr reaches the workers through a proxy, or none of"
            " them at its own address.",
            {
                "worker": "its id: host and port of its REST API",
                "connector_there": "whether the connector itself is there too",
            },
        ),
        "heartbeat-without-task": ProblemKind(
            "A heartbeat connector is RUNNING without a task: no heartbeats are sent."
        ),
        "heartbeats-not-emitted": ProblemKind(
            "A heartbeat connector's task runs, and no heartbeat has arrived for several of its intervals and at least"
            " a minute.",
            {
                "cluster": "alias of the cluster that it writes to",
                "topic": "the topic there",
                "interval_seconds": "its emit.heartbeats.interval.seconds",
            },
        ),
        "checkpoints-not-emitted": ProblemKind(
            "No checkpoint has been written for longer than two of the connector's intervals and a minute, although"
            " consumer groups have read on by more than offset.lag.max mirrored records. Seen only where mm2mgr's own"
            " login may describe the groups.",
            {
                **_GROUPS,
                "topic": "the topic on the target",
                "interval_seconds": "its emit.checkpoints.interval.seconds",
            },
        ),
        "group-offsets-rewound": ProblemKind(
            "Offsets of consumer groups went back on the target although they did not on the source; a problem until"
            " they are where they were. Seen only where group offsets are synced and mm2mgr's own login may describe"
            " the groups.",
            {
                **_GROUPS,
                "offsets": "the first of them: group, partition on the source, offset on the target now and before",
            },
        ),
        "no-task": ProblemKind(
            "A source connector is RUNNING without a task: nothing is mirrored.",
            {
                "source": "alias of the source",
                "source_failure": "why mm2mgr could not read the source; null where it could",
                "matching_topics": "topics of the source that the flow matches; null where it could not be read",
            },
        ),
        "no-topic-matches": ProblemKind(
            "No topic on the source matches the flow: nothing is mirrored.",
            {"selection": "the flow's patterns against the source's topics, in words"},
        ),
        "state-differs": ProblemKind(
            "A connector was paused, stopped or resumed, and the tree declares another state.",
            {"declared": "the state that the tree declares", "state": "the connector's state"},
        ),
        "resting-while-lag-grows": ProblemKind(
            "A connector was paused or stopped, and records keep arriving on the source.",
            {
                "state": "PAUSED or STOPPED",
                "lag_records": "records that wait",
                "grown_records": "records that arrived since it was first seen at rest",
            },
        ),
        "no-progress": ProblemKind(
            "Records wait, and neither stored offsets nor the remote topics move.",
            {
                "blind": "whether the target's end offsets are unknown, so that only stored offsets were compared",
                "read_committed": "whether an open transaction on the source can be the cause",
                "target": "alias of the target",
            },
        ),
        "partitions-unassigned": ProblemKind(
            "No task has partitions of the flow for longer than its refresh interval.",
            {
                "partitions": "the first of them",
                "partition_count": "how many there are",
                "source": "alias of the source",
                "target": "alias of the target",
            },
        ),
        "target-topic-missing": ProblemKind(
            "Tasks have topics that the target does not, and records wait, for longer than the refresh interval.",
            _TARGET_TOPICS,
        ),
        "target-partitions-fewer": ProblemKind(
            "Topics on the target have fewer partitions than on the source for longer than the refresh interval.",
            _TARGET_TOPICS,
        ),
        "records-not-on-target": ProblemKind(
            "Stored offsets advance, look after look, while nothing arrives in the topics on the target.",
            {**_TARGET_TOPICS, "records": "how many are mirrored by the stored offsets and not there, at least"},
        ),
        "arrives-twice": ProblemKind(
            "More records arrived in topics on the target than the source had for them, look after look, and more than"
            " one restart of workers sends again; a problem until an hour after the last of them. Not judged where"
            " other flows of the tree write to the same topics, where the flow silences `overlap`, with another"
            " replication policy than the default one, with transforms, with acks of 0 or 1, or where workers do not"
            " tell whether they are exactly-once, or tell otherwise than the tree declares. Offsets of the source that"
            " are no records, as the markers of transactions, hide as many.",
            {
                **_TARGET_TOPICS,
                "records": "how many of them arrived twice, at least",
                "one_task": "whether all of them are of one task, while other tasks mirror each record once",
                "exactly_once": "whether the workers write with transactions, whose markers are not counted",
            },
        ),
        "overlap": ProblemKind(
            "Another connector that runs mirrors the same topics to the same names on the target, so that their records"
            " arrive twice: one made by hand, of another owner or left over, or that of a dedicated MirrorMaker. A"
            " dedicated MirrorMaker is seen by the members of its group on the target (`SOURCE-mm2`); where its config"
            " cannot be read, that it runs is a note. Connectors whose tasks have all failed do not count, nor do two"
            " that choose records by what these hold, each in its own way.",
            {
                "other": "the other connector, as connect/name; of a dedicated MirrorMaker its group and target",
                "standing": (
                    "unmarked, other-owner, released, left-over (this owner's, no longer declared), dedicated or"
                    " declared"
                ),
                "owner": "the owner in its mark, empty without one",
                "topics": (
                    "the first topics of the source that both mirror; where the source could not be read, of those that"
                    " the flow's tasks have"
                ),
                "topic_count": "how many there are",
                "source": "alias of the source",
                "target": "alias of the target",
            },
        ),
        "slower-than-production": ProblemKind(
            "Tasks mirror, but the lag has grown for a quarter of an hour: records are produced faster.",
            {
                "produced_records_per_second": "since the lag began to grow",
                "mirrored_records_per_second": "in the same time",
                "grown_records": "by how much the lag grew meanwhile",
                "lag_records": "records that wait",
            },
        ),
        "topic-configs-differ": ProblemKind(
            "Settings of topics have not reached the target for longer than the connector's interval and a minute. Seen"
            " only where mm2mgr's own login has DescribeConfigs on the topics of both clusters.",
            {
                **_TARGET_TOPICS,
                "settings": "names of the first settings",
                "interval_seconds": "its sync.topic.configs.interval.seconds",
            },
        ),
        "topic-acls-differ": ProblemKind(
            "ACLs that MirrorMaker copies from topics of the source have not reached the target for longer than the"
            " connector's interval and a minute. Seen only where the flow copies them and mm2mgr's own login has"
            " Describe on both clusters.",
            {
                **_TARGET_TOPICS,
                "acls": "the first ACLs, as they would be on the target",
                "interval_seconds": "its sync.topic.acls.interval.seconds",
            },
        ),
        "old-task-config": ProblemKind("Tasks still run on an older config than their connector's.", {"keys": _KEYS}),
        "records-lost": ProblemKind(
            "Records may never arrive; a problem until it is acknowledged.",
            {
                "topic": "topic on the source",
                "cause": "retention, re-created, past-end or truncation",
                "records": "how many at most, of all partitions",
                "least_records": "how many at least",
                "is_bounded": "false where a deleted topic held an unknown number of others",
                "flow_creates_topics": (
                    "whether the flow's consumer creates a topic that is deleted on the source "
                    "(allow.auto.create.topics); null where its config was not read"
                ),
                "loss_count": "how many entries the ledger has of it",
                "losses": "the first of them, as `mm2mgr losses -o json` shows them",
            },
        ),
        "orphan": ProblemKind(
            "A connector with this tree's owner mark that the tree does not declare still works.",
            {
                "connect": "Connect cluster",
                "connector": "name",
                "type": "source, checkpoint or heartbeat",
                "pair": "source and target",
                "topics": "its topics, cut",
                "state": "its state",
            },
        ),
        "offsets-not-stored": ProblemKind(
            "Records of several flows arrive while their offsets are not stored, because a source on the same workers"
            " is dead.",
            {
                "connect": "Connect cluster",
                "flows": "ids of the flows",
                "seconds": "for how long",
                "records": "records that a restart would mirror again, at least",
                "unread_sources": "sources that mm2mgr could not read",
            },
        ),
    }
)
"""Every kind by its identifier."""
