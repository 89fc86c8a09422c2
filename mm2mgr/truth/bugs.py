"""Known bugs of Kafka that concern MirrorMaker's connectors: releases, configs, what to do. Pure data.

The releases are those whose git history lacks the fix, up to 3.9.0; for newer ones as jars and issue say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, Protocol, get_args

from mm2mgr.connectors import ConnectorType
from mm2mgr.truth.reach import numbers


class Configured(Protocol):
    """What a condition may ask of a connector."""

    @property
    def name(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def config(self) -> Mapping[str, str]: ...
    def get(self, key: str, default: str = "") -> str: ...
    def flag(self, key: str, *, default: bool) -> bool: ...
    def worker_property(self, key: str) -> str | None: ...


Condition = Callable[[Configured], bool]
_FIRST = "2.4.0"  # the first release with these connectors
_OPEN = ""


@dataclass(frozen=True)
class Bug:
    """A bug: `releases` are spans of first and last release that have it, the last one empty while it is not fixed.

    `only` says in words which configs have it, and asks one. `rule` is the rule of lint that reports it
    instead of `known-bug`, "" where a config does not tell whether it matters. `evidence` names the live test that
    showed it. `twins`: other issues that report the same.
    """

    id: str
    severity: Literal["warning", "info"]
    effect: str
    remedy: str
    releases: tuple[tuple[str, str], ...]
    types: tuple[ConnectorType, ...] = get_args(ConnectorType)
    only: tuple[str, Condition] = ("every config", lambda connector: True)
    key: str = ""
    rule: str = "known-bug"
    evidence: str = "unverified"
    twins: tuple[str, ...] = ()
    json_keys = "bug=id severity effect remedy releases span connectors=types condition rule evidence"

    def affects(self, version: str) -> bool:
        """Tell whether a version has it; a vendor's line without a patch only when no release of it is fixed."""
        asked = numbers(version)
        asked = asked if len(asked) > 2 else (*asked, 999)
        return any(numbers(first) <= asked and (not last or asked <= numbers(last)) for first, last in self.releases)

    @property
    def fixed_in(self) -> str:
        """Return where it is fixed, in words: the last release that has it is known, not always the next one."""
        ends = [last for _, last in self.releases]
        return "not fixed yet" if _OPEN in ends else f"fixed after {' and '.join(ends)}"

    @property
    def span(self) -> str:
        """Return the releases that have it, in words."""
        return ", ".join(f"{first} to {last}" if last else f"{first} and newer" for first, last in self.releases)

    @property
    def condition(self) -> str:
        """Which configs have it, in words."""
        return self.only[0]


def _is_on(key: str, *, default: bool) -> Condition:
    return lambda connector: connector.flag(key, default=default)


def _has(key: str, value: str) -> Condition:
    return lambda connector: connector.get(key).lower() == value


def _has_placeholder(connector: Configured) -> bool:
    """Tell whether a value names a secret that may be gone; those of Strimzi's operator live as its resource."""
    return any("${" in value.replace("${strimzi", "") for value in connector.config.values())


def _is_dedicated(connector: Configured) -> bool:
    return connector.form == "dedicated"


def _odd_name(connector: Configured) -> bool:
    return connector.form != "dedicated" and re.search(r"[^\w.~-]", connector.name) is not None


def _excludes(connector: Configured) -> bool:
    return any(connector.get(f"config.properties.{name}") for name in ("exclude", "blacklist"))


def _writes_syncs(connector: Configured) -> bool:
    off = connector.get("emit.offset-syncs.enabled").lower() == "false"
    return not off and connector.get("offset.lag.max", "100") != "0"


def _copies_timestamp_limits(connector: Configured) -> bool:
    patterns = connector.get("config.properties.exclude").replace("\\", "").split(",")
    limits = [f"message.timestamp.{side}.max.ms" for side in ("before", "after")]
    is_excluded = all(
        any(fnmatchcase(limit, pattern.strip().replace(".*", "*")) for pattern in patterns) for limit in limits
    )
    return connector.flag("sync.topic.configs.enabled", default=True) and not is_excluded


_Only = tuple[str, Condition]  # which configs have a bug: in words, and as a question
_SYNCING_GROUPS: _Only = ("with sync.group.offsets.enabled=true", _is_on("sync.group.offsets.enabled", default=False))
_CHECKPOINTING: _Only = ("unless emit.checkpoints.enabled=false", _is_on("emit.checkpoints.enabled", default=True))
_SYNCING_CONFIGS: _Only = (
    "unless sync.topic.configs.enabled=false",
    _is_on("sync.topic.configs.enabled", default=True),
)
_DEDICATED: _Only = ("in mm2.properties", _is_dedicated)
_TOLERANT: _Only = ("with errors.tolerance=all", _has("errors.tolerance", "all"))
_SEVERAL_TASKS: _Only = (
    "with tasks.max above 1",
    lambda connector: connector.get("tasks.max", "1") not in ("", "0", "1"),
)
_DRIVERS_PLACEHOLDERS: _Only = (
    "in mm2.properties with placeholders ${…}",
    lambda connector: _is_dedicated(connector) and _has_placeholder(connector),
)
_FAILOVER: tuple[ConnectorType, ...] = ("checkpoint",)
_SOURCE: tuple[ConnectorType, ...] = ("source",)

BUGS: tuple[Bug, ...] = (
    Bug(
        "KAFKA-9747",
        "warning",
        "a worker that does not lead cannot hand over new task configs of a connector whose name needs escaping in a "
        "URL: it has no tasks, and keeps old ones",
        "give the connector a name of letters, digits, dots and hyphens, or upgrade the workers",
        ((_FIRST, "2.8.0"), ("3.0.0", "3.0.0")),
        only=("with signs other than letters, digits, dots and hyphens in its name, such as A->B", _odd_name),
        key="name",
    ),
    Bug(
        "KAFKA-9981",
        "info",
        "in a dedicated MirrorMaker of several nodes, nodes that do not lead drop changes of tasks: new topics and "
        "partitions are not mirrored",
        "run one node, or upgrade to 3.5 with dedicated.mode.enable.internal.rest=true",
        ((_FIRST, "3.4.1"),),
        only=_DEDICATED,
    ),
    Bug(
        "KAFKA-12226",
        "info",
        "the commit of source offsets waits until all records on their way are written: under load it times out again "
        "and again, and a restart mirrors the records since the last commit once more",
        "lower producer.override.buffer.memory or raise offset.flush.timeout.ms of the workers, or upgrade them",
        ((_FIRST, "3.0.0"),),
        types=_SOURCE,
    ),
    Bug(
        "KAFKA-12252",
        "info",
        "after another worker became the leader, requests between the workers may be refused (403) until the session "
        "key is renewed: new task configs do not arrive",
        "restart the workers one after the other, or upgrade them",
        ((_FIRST, "2.7.1"), ("2.8.0", "2.8.0")),
        twins=("KAFKA-12262",),
    ),
    Bug(
        "KAFKA-12254",
        "info",
        "MirrorMaker creates topics with the defaults of the target and copies the source's settings minutes later: "
        "until then records of a compacted topic may be deleted",
        "create the topics on the target beforehand, or upgrade the workers",
        ((_FIRST, "2.7.2"),),
        types=_SOURCE,
    ),
    Bug(
        "KAFKA-12468",
        "warning",
        "translated offsets may be ahead of the records that consumers still need, or beyond the end of the topic: "
        "consumers that fail over skip records (KAFKA-13659: and go back after a restart)",
        "let consumers start by timestamp after a failover, or upgrade the workers",
        ((_FIRST, "3.4.0"),),
        types=_FAILOVER,
        only=_CHECKPOINTING,
    ),
    Bug(
        "KAFKA-12495",
        "info",
        "after a rolling restart tasks may stay unevenly spread over the workers",
        "restart the worker that has too many tasks, or upgrade the workers",
        ((_FIRST, "3.3.2"),),
        only=_SEVERAL_TASKS,
        key="tasks.max",
    ),
    Bug(
        "KAFKA-12525",
        "info",
        "a late status of an earlier assignment may hide a newer one: a running task is shown UNASSIGNED until its "
        "next change of state",
        "restart the task that is shown so before anything else is done about it, or upgrade the workers",
        ((_FIRST, "3.5.2"),),
    ),
    Bug(
        "KAFKA-12558",
        "info",
        "an offset sync that could not be written is counted as written: offsets of its partition are translated too "
        "late",
        "upgrade the workers",
        ((_FIRST, "3.4.0"),),
        types=_SOURCE,
    ),
    Bug(
        "KAFKA-12635",
        "warning",
        "group offsets are written for partitions without an offset sync, beyond the end of the target's partition: "
        "lag is negative, and consumers that fail over may reset",
        "set sync.group.offsets.enabled=false until the workers are upgraded",
        (("2.7.0", "3.2.3"),),
        types=_FAILOVER,
        only=_SYNCING_GROUPS,
        key="sync.group.offsets.enabled",
        evidence="tests/truth/test_bugs_live.py::test_group_offsets_are_written_beyond_the_end_of_an_empty_topic",
    ),
    Bug(
        "KAFKA-13255",
        "warning",
        "topics that MirrorMaker creates get settings that config.properties.exclude names",
        "create the topics on the target beforehand, or upgrade the workers",
        (("2.8.0", "3.1.0"),),
        types=_SOURCE,
        only=("with config.properties.exclude", _excludes),
        key="config.properties.exclude",
        evidence="tests/truth/test_bugs_live.py::test_topics_are_created_with_excluded_settings",
    ),
    Bug(
        "KAFKA-13469",
        "info",
        "a task that stops does not wait for records on their way: each orderly restart mirrors them once more",
        "restart rarely, or upgrade the workers",
        ((_FIRST, "3.0.0"),),
        types=_SOURCE,
    ),
    Bug(
        "KAFKA-13586",
        "warning",
        "an error of a config provider while a connector is updated ends the worker, with everything that runs there",
        "make sure that every ${…} can be resolved on all workers, or upgrade them",
        ((_FIRST, "3.3.1"),),
        only=("with placeholders ${…}", _has_placeholder),
    ),
    Bug(
        "KAFKA-13719",
        "warning",
        "a restart of a connector with its tasks by REST may leave its old tasks beside the new ones: records arrive "
        "twice until the workers restart",
        "restart connector and tasks by requests of their own, or upgrade the workers",
        (("3.0.0", "3.1.0"),),
    ),
    Bug(
        "KAFKA-13988",
        "warning",
        "auto.offset.reset=latest is ignored: a task without stored offset reads its partitions from the beginning",
        "write earliest, or upgrade the workers",
        (("2.8.0", "3.6.1"),),
        types=_SOURCE,
        only=("with source.consumer.auto.offset.reset=latest", _has("source.consumer.auto.offset.reset", "latest")),
        key="source.consumer.auto.offset.reset",
        rule="reset-latest",
        evidence="tests/truth/test_bugs_live.py::test_latest_is_ignored",
    ),
    Bug(
        "KAFKA-14079",
        "warning",
        "the first record that cannot be written stops the commit of source offsets for good, and memory fills up: a "
        "restart mirrors everything since then once more",
        "set errors.tolerance=none, or upgrade the workers",
        (("3.2.0", "3.2.0"),),
        only=_TOLERANT,
        key="errors.tolerance",
    ),
    Bug(
        "KAFKA-14420",
        "info",
        "each sync of topic settings replaces all settings of the target's topics: those that "
        "config.properties.exclude names are lost, too",
        "set sync.topic.configs.enabled=false, or upgrade the workers",
        ((_FIRST, "3.4.1"),),
        types=_SOURCE,
        only=_SYNCING_CONFIGS,
        evidence="tests/truth/test_bugs_live.py::test_each_sync_of_topic_settings_replaces_all_of_them",
    ),
    Bug(
        "KAFKA-14545",
        "warning",
        "a group that has no offset on one of its partitions fails the checkpoint task (NullPointerException)",
        "exclude such groups with groups.exclude, or upgrade the workers",
        ((_FIRST, "3.4.0"),),
        types=_FAILOVER,
        only=_CHECKPOINTING,
    ),
    Bug(
        "KAFKA-14653",
        "warning",
        "the driver replaces ${…} before it passes the settings on: secrets are stored in clear in the configs topic "
        "of the target",
        "restrict who may read mm2-configs.*.internal, or upgrade MirrorMaker",
        ((_FIRST, "3.4.1"),),
        only=_DRIVERS_PLACEHOLDERS,
    ),
    Bug(
        "KAFKA-14837",
        "info",
        "all checkpoint tasks restart whenever a consumer group of the source comes or goes, whether or not it is one "
        "of theirs",
        "name the groups, or upgrade the workers",
        ((_FIRST, "3.4.0"),),
        types=_FAILOVER,
        only=_CHECKPOINTING,
        evidence="tests/truth/test_bugs_live.py::test_groups_of_other_topics_restart_the_tasks",
        twins=("KAFKA-14842",),
    ),
    Bug(
        "KAFKA-15059",
        "warning",
        "tasks that write exactly once do not start while a rebalance is pending: the connector fails and has to be "
        "restarted",
        "restart a connector that failed so once the rebalance is over, or upgrade the workers",
        (("3.5.0", "3.5.2"),),
        types=_SOURCE,
        only=("with exactly.once.support=required", _has("exactly.once.support", "required")),
        key="exactly.once.support",
    ),
    Bug(
        "KAFKA-15139",
        "info",
        "each refresh of groups costs the square of their number: with thousands of groups it keeps a core busy",
        "name the groups, raise refresh.groups.interval.seconds, or upgrade the workers",
        ((_FIRST, "3.5.2"),),
        types=_FAILOVER,
    ),
    Bug(
        "KAFKA-15202",
        "info",
        "offsets of groups that are behind are translated to much older ones than necessary: consumers that fail over "
        "read many records again",
        "upgrade the workers",
        (("3.4.1", "3.5.1"),),
        types=_FAILOVER,
    ),
    Bug(
        "KAFKA-15372",
        "warning",
        "a dedicated MirrorMaker of several nodes may go on with the old configuration when another node leads after "
        "a restart",
        "restart all nodes at the same time after a change, or upgrade MirrorMaker",
        ((_FIRST, "3.6.1"),),
        only=_DEDICATED,
    ),
    Bug(
        "KAFKA-15607",
        "info",
        "a group whose offset on the target was reset to a negative one, as some clients do, stops the sync of its "
        "group offsets (NullPointerException)",
        "upgrade the workers",
        (("2.7.0", "3.5.1"), ("3.6.0", "3.6.0")),
        types=_FAILOVER,
        only=_SYNCING_GROUPS,
        key="sync.group.offsets.enabled",
    ),
    Bug(
        "KAFKA-15693",
        "warning",
        "connectors and tasks of a lost worker may stay unassigned",
        "set scheduled.rebalance.max.delay.ms of the workers to 1 or more, or upgrade them",
        ((_FIRST, "3.5.1"), ("3.6.0", "3.6.0")),
        only=(
            "with scheduled.rebalance.max.delay.ms=0 in the workers' properties",
            lambda connector: connector.worker_property("scheduled.rebalance.max.delay.ms") == "0",
        ),
    ),
    Bug(
        "KAFKA-15800",
        "warning",
        "one record in the offsets topic that cannot be read hides the offsets behind it: connectors begin at the "
        "first record again",
        "let nobody else write into offset.storage.topic, or upgrade the workers",
        (("3.5.0", "3.5.1"), ("3.6.0", "3.6.0")),
        types=_SOURCE,
    ),
    Bug(
        "KAFKA-15827",
        "info",
        "a checkpoint task that is stopped before it has begun to read offset syncs leaves its clients open: "
        "connections and threads of the workers grow",
        "restart the workers now and then, or upgrade them",
        ((_FIRST, "3.7.2"),),
        types=_FAILOVER,
    ),
    Bug(
        "KAFKA-15905",
        "info",
        "a restart of the checkpoint task forgets the earlier offset syncs: groups that are behind get no checkpoints "
        "until they catch up",
        "let groups catch up before a planned failover, or upgrade the workers",
        (("3.4.1", "3.7.0"),),
        types=_FAILOVER,
        evidence="tests/truth/test_bugs_live.py::test_a_restart_forgets_earlier_offset_syncs",
    ),
    Bug(
        "KAFKA-15906",
        "info",
        "the last offset syncs of a partition without new records are never written: translated offsets stop short of "
        "its end, by up to offset.lag.max records",
        "write offset.lag.max=0 for topics with few records, or upgrade the workers",
        (("3.4.1", "3.6.2"),),
        types=_SOURCE,
        only=("unless offset.lag.max=0", _writes_syncs),
        key="offset.lag.max",
        evidence="tests/truth/test_bugs_live.py::test_the_last_offset_syncs_are_not_written",
    ),
    Bug(
        "KAFKA-16087",
        "warning",
        "where a record cannot be written, another one that is on its way may be dropped in its place",
        "set errors.tolerance=none, or upgrade the workers",
        ((_FIRST, "3.7.2"),),
        types=_SOURCE,
        only=_TOLERANT,
        key="errors.tolerance",
    ),
    Bug(
        "KAFKA-16837",
        "warning",
        "an update fails or restarts tasks in vain when earlier task configs of the connector hold a ${…} that can no "
        "longer be resolved",
        "keep earlier secrets until the update is through, or upgrade the workers",
        ((_FIRST, "3.7.0"),),
        only=("with placeholders ${…}", lambda connector: not _is_dedicated(connector) and _has_placeholder(connector)),
        evidence="tests/truth/test_bugs_live.py::test_an_update_fails_on_an_earlier_placeholder",
    ),
    Bug(
        "KAFKA-17049",
        "info",
        "after rebalances the tasks of one connector may pile up on one worker, since workers are dealt tasks without "
        "regard to their connectors",
        "look at the tasks of each worker after a rebalance, and restart the worker that has too many of one connector",
        ((_FIRST, _OPEN),),
        only=_SEVERAL_TASKS,
        key="tasks.max",
        rule="",
    ),
    Bug(
        "KAFKA-17192",
        "warning",
        "the driver drops config.providers itself: ${…} stays as it is, and logins fail",
        "upgrade MirrorMaker to 3.8.1 or newer",
        (("3.5.0", "3.8.0"),),
        only=_DRIVERS_PLACEHOLDERS,
    ),
    Bug(
        "KAFKA-17232",
        "info",
        "a checkpoint connector whose groups do not load within admin.timeout.ms at its start has no tasks until the "
        "next refresh, and its state is RUNNING",
        "raise admin.timeout.ms where the source has many groups, or upgrade the workers",
        ((_FIRST, "3.8.1"),),
        types=_FAILOVER,
    ),
    Bug(
        "KAFKA-19012",
        "warning",
        "the producer may use a buffer again while it is being sent, when a batch expires or a broker disconnects: "
        "records arrive in another topic or partition, with a right checksum",
        "upgrade the workers: their kafka-clients jar has the fault",
        (("2.8.0", "3.9.1"), ("4.0.0", "4.0.1"), ("4.1.0", "4.1.1")),
    ),
    Bug(
        "KAFKA-19794",
        "info",
        "the sync of group offsets may move a group back that is active on the target, when it became active or could "
        "not be asked just then",
        "leave groups that run on the target out of groups",
        (("2.7.0", _OPEN),),
        types=_FAILOVER,
        only=_SYNCING_GROUPS,
        key="sync.group.offsets.enabled",
    ),
    Bug(
        "KAFKA-20017",
        "info",
        "the workers log the warning 'Could not alter configuration of topic' for every topic at every sync, also "
        "where it worked",
        "do not alert on it, or upgrade the workers",
        (("4.0.0", "4.2.0"),),
        types=_SOURCE,
        only=_SYNCING_CONFIGS,
        evidence="tests/truth/test_bugs_live.py::test_settings_that_were_synced_are_said_not_to_be",
    ),
    Bug(
        "KAFKA-20163",
        "info",
        "message.timestamp.before.max.ms and after.max.ms of the source's topics are copied to the target, which then "
        "refuses records that were within the limit when they were written: their task fails for good",
        "add message\\.timestamp\\.before\\.max\\.ms and message\\.timestamp\\.after\\.max\\.ms to "
        "config.properties.exclude, beside Kafka's own list",
        (("3.6.0", _OPEN),),
        types=_SOURCE,
        only=(
            "unless sync.topic.configs.enabled=false, or config.properties.exclude names both",
            _copies_timestamp_limits,
        ),
        key="config.properties.exclude",
        rule="",
        evidence="tests/truth/test_bugs_live.py::test_records_older_than_a_copied_limit_are_refused",
    ),
)
BY_BUG: Mapping[str, Bug] = {id: bug for bug in BUGS for id in (bug.id, *bug.twins)}


@lru_cache
def bugs_of(type_: ConnectorType, version: str) -> tuple[Bug, ...]:
    """Return the bugs that connectors of a type may have in a version, whatever their config."""
    return tuple(bug for bug in BUGS if type_ in bug.types and bug.affects(version))
