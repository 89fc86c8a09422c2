"""The sentences of problems, from their JSON: what is wrong and, at the end, what to do. Every kind has one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mm2mgr.connectors import RESTING
from mm2mgr.output.losses_text import loss_sentence
from mm2mgr.text import number_of, span_text

_SHOWN, _FLOWS_SHOWN = 3, 5

Values = Mapping[str, Any]


def sentence(problem: Values) -> str:
    """Return one problem as a sentence."""
    return SENTENCES[problem["kind"]](problem, problem["evidence"])


def with_sentences(found: Values) -> dict[str, Any]:
    """Return the JSON of an observation with the sentences beside the values: `problems`, and `detail` of orphans and stale offsets."""
    return {key: _with_sentences(key, value) for key, value in found.items()}


def orphan(one: Values) -> str:
    """Return what an orphan is, what it still does, and how to remove it."""
    works = {"source": f"mirrors {one['topics']}", "heartbeat": "sends heartbeats", "checkpoint": "copies checkpoints"}
    rests = one["state"] in RESTING
    doing = "it does nothing until it is resumed" if rests else f"it still {works[one['type']]} {one['pair']}"
    return (
        f"not declared in the tree, and {one['state']}: {doing}; "
        "declare it, or delete it with mm2mgr plan --prune and mm2mgr apply --prune"
    )


def offsets_not_stored(one: Values) -> str:
    """Return what offsets that are not stored mean and, where known, what to do."""
    names = ", ".join(one["flows"][:_FLOWS_SHOWN]) + (", …" if len(one["flows"]) > _FLOWS_SHOWN else "")
    fact = (
        f"offsets of {number_of(len(one['flows']), 'flow')} not stored for {one['seconds']:.0f} s while their records arrive ({names}); "
        f"a restart would mirror at least {one['records']} records again"
    )
    if not one["unread_sources"]:
        normal = "normal if offset.flush.interval.ms of its workers is longer"
        return f"{fact}; {normal}, else check their log for a source that does not answer"
    dead = ", ".join(one["unread_sources"])
    return (
        f"{fact}; source {dead} could not be read, and a dead source blocks offset commits of every flow on its workers: "
        f"bring {dead} back, or declare state: stopped on the flows from it"
    )


def _with_problems(found: Values) -> dict[str, Any]:
    return {**found, "problems": [sentence(one) for one in found["problem_values"]]}


def _with_sentences(key: str, value: Any) -> Any:
    if key in {"flows", "companions"}:
        return [_with_problems(one) for one in value]
    if key == "status":  # of a description
        return _with_problems(value)
    if key in _DETAILS:
        return [{**one, "detail": _DETAILS[key](one)} for one in value]
    return value


_DETAILS: Mapping[str, Callable[[Values], str]] = {"orphans": orphan, "stale_offsets": offsets_not_stored}


# --- one function per kind --------------------------------------------------------------------------------------------


def _not_applied(one: Values, _: Values) -> str:
    return f"not on Connect cluster '{one['subject']['connect']}': run mm2mgr apply"


def _config_differs(_: Values, found: Values) -> str:
    keys = _some(found["keys"], "key")
    if found["adopted"]:
        return f"it is adopted, and differs from the tree in {keys}: run mm2mgr plan"
    return f"its config differs from the tree in {keys}: run mm2mgr plan"


def _offsets_move_unfinished(_: Values, found: Values) -> str:
    return (
        "the move of its stored offsets to another topic is not finished; do not resume it by hand, or it may mirror "
        f"everything again; unless an apply is in progress, run mm2mgr apply, which finishes the move and leaves it {found['then']}"
    )


def _no_status(one: Values, found: Values) -> str:
    return (
        f"no status for {one['since_seconds']:.0f} s: a connector has no status while it waits for a cluster that does not "
        f"answer; check addresses, ports and security protocol of {' and '.join(found['clusters'])} from the workers, then their log"
    )


def _connector_failed(one: Values, found: Values) -> str:
    running = " (tasks still run with the previous config)" if found["tasks_run"] else ""
    return f"connector FAILED{running}: {_failure(one, found)}"


def _task_failed(one: Values, found: Values) -> str:
    return f"{_tasks(one)} FAILED: {_failure(one, found)}; they do not recover by themselves"


def _failure(one: Values, found: Values) -> str:
    return f"{found['trace_summary']}; {found['remedy']}, then run mm2mgr restart --failed {_argument(one)}"


def _connector_unassigned(_: Values, __: Values) -> str:
    return (
        "connector UNASSIGNED: no worker has taken it, or its changed config waits for a cluster that does not answer "
        "while its tasks run with the previous config; check the workers and that they reach both clusters"
    )


def _task_unassigned(one: Values, _: Values) -> str:
    return f"{_tasks(one)} UNASSIGNED: no worker runs them; check that enough workers are up"


def _worker_departed(one: Values, found: Values) -> str:
    connector = "the connector" if found["connector_there"] else ""
    what = " and ".join(part for part in (connector, _tasks(one)) if part)
    return (
        f"{what} RUNNING by the status on worker {found['worker']}, which has accepted no connection for {one['since_seconds']:.0f} s while "
        "other workers do: start it again, or wait until Connect gives its work to them (scheduled.rebalance.max.delay.ms, 5 min by default)"
    )


def _heartbeat_without_task(one: Values, _: Values) -> str:
    return f"RUNNING without a task: no heartbeats are sent; check the workers' log and run mm2mgr restart {_argument(one)}"


def _heartbeats_not_emitted(one: Values, found: Values) -> str:
    return (
        f"RUNNING, but no heartbeat has arrived in {found['topic']} on {found['cluster']} for {one['since_seconds']:.0f} s (one is due every "
        f"{found['interval_seconds']:g} s): check that the connector's producer.override.bootstrap.servers is {found['cluster']}, that its "
        "login may write the topic, and the workers' log"
    )


def _checkpoints_not_emitted(one: Values, found: Values) -> str:
    return (
        f"no checkpoint has been written to {found['topic']} on {found['target']} for {one['since_seconds']:.0f} s since "
        f"{_some(found['groups'], 'consumer group', found['group_count'])} read on (one is due every {found['interval_seconds']:g} s), so "
        f"consumers that move to {found['target']} would read records again: check that the connector's producer.override.bootstrap.servers "
        f"is {found['target']}, that the workers' logins may write the topics of checkpoints and of offset syncs, and the workers' log"
    )


def _group_offsets_rewound(_: Values, found: Values) -> str:
    one = found["offsets"][0]
    return (
        f"offsets of {_some(found['groups'], 'consumer group', found['group_count'])} went back on {found['target']} and not on "
        f"{found['source']} ({one['group']}, {one['partition']}: {one['before']} to {one['offset']}): consumers there read records again; "
        "they were reset by hand, or by MirrorMaker (KAFKA-19794)"
    )


def _no_task(_: Values, found: Values) -> str:
    source = found["source"]
    if found["source_failure"]:
        return (
            f"RUNNING without a task, nothing is mirrored: usually the workers cannot reach or log in to {source}, "
            f"which mm2mgr could not read either ({found['source_failure']}); check the cluster, then the workers' log"
        )
    return (
        f"RUNNING without a task although {number_of(found['matching_topics'], 'topic')} on {source} match: the workers cannot "
        f"reach or log in to {source}, or may not describe its topics; check their log for 'loading initial set of topic-partitions'"
    )


def _no_topic_matches(_: Values, found: Values) -> str:
    return (
        f"{found['selection']}, nothing is mirrored: check the patterns, and that mm2mgr's login and that of the workers may "
        "describe the topics"
    )


def _state_differs(_: Values, found: Values) -> str:
    return f"the tree declares state: {found['declared']}, but the connector is {found['state']}; run mm2mgr plan"


def _resting_while_lag_grows(one: Values, found: Values) -> str:
    return (
        f"{found['state']} while its lag grows: {found['lag_records']} records wait, {found['grown_records']} of them new in the "
        f"last {one['since_seconds']:.0f} s; run mm2mgr resume {_argument(one)}, or declare state: {found['state'].lower()} on the "
        "flow if that is intended"
    )


def _no_progress(one: Values, found: Values) -> str:
    hint = " (read_committed: an open transaction on the source has the same effect)" if found["read_committed"] else ""
    still = "the stored offsets do not move" if found["blind"] else "neither the stored offsets nor the target move"
    return (
        f"no progress for {one['since_seconds']:.0f} s: records wait, but {still} for {_tasks(one) or 'the flow'}{hint}; check "
        f"the workers' log for 'Failure during poll' and check rights and space on {found['target']}"
    )


def _partitions_unassigned(one: Values, found: Values) -> str:
    return (
        f"{_some(found['partitions'], 'partition', found['partition_count'])} not assigned to any task for {one['since_seconds']:.0f} s, "
        f"longer than the refresh interval: check that the workers' login may describe them on {found['source']} and create topics "
        f"on {found['target']}"
    )


def _target_topic_missing(one: Values, found: Values) -> str:
    return (
        f"{_some(found['topics'], 'topic', found['topic_count'])} not seen on {found['target']} for {one['since_seconds']:.0f} s while "
        f"records wait: check that the topic was not deleted, that the workers' login may create it and mm2mgr's may describe it, and "
        f"that the connector's producer writes to {found['target']}"
    )


def _target_partitions_fewer(one: Values, found: Values) -> str:
    return (
        f"{_some(found['topics'], 'topic', found['topic_count'])} with fewer partitions on {found['target']} than on {found['source']} "
        f"for {one['since_seconds']:.0f} s, longer than the refresh interval: check that the workers' login may alter them on "
        f"{found['target']}, or add the partitions yourself; the records of the missing ones cannot arrive"
    )


def _records_not_on_target(one: Values, found: Values) -> str:
    return (
        f"{found['records']} records are mirrored, as the stored offsets say, but nothing arrived in "
        f"{_some(found['topics'], 'topic', found['topic_count'])} on {found['target']} for {one['since_seconds']:.0f} s: the connector "
        f"writes to another Kafka cluster; run mm2mgr check, compare bootstrap.servers of the workers and producer.override.bootstrap.servers "
        f"with those of {found['target']}, and check that mm2mgr's login may describe the topics there"
    )


def _arrives_twice(one: Values, found: Values) -> str:
    fact = (
        f"at least {found['records']} records arrived twice in {_some(found['topics'], 'topic', found['topic_count'])} on {found['target']} "
        f"in the last {span_text(one['since_seconds'])}: more than {found['source']} had for them, and more than one restart of workers sends again"
    )
    if found["one_task"]:
        return (
            f"{fact}; all are of {_tasks(one)}, and other tasks mirror each record once: two workers may run it, which Connect's status does "
            "not show; look for a worker that the others lost and that still runs, and stop it"
        )
    return (
        f"{fact}; look for a second mirror of these topics that mm2mgr cannot see (another Connect cluster, a dedicated MirrorMaker under "
        "another alias), for a producer that writes to them, for a worker that the others lost and that still runs, or for workers that die again "
        "and again"
    )


def _overlap(_: Values, found: Values) -> str:
    topics = _some(found["topics"], "topic", found["topic_count"])
    ends = f"from {found['source']} to {found['target']}"
    if found["standing"] == "dedicated":
        return (
            f"a dedicated MirrorMaker mirrors {topics} {ends} too (group {found['other']} has members): records arrive twice; stop its "
            "processes with SIGTERM, and see that nothing starts them again, or take the topics out of one of the two"
        )
    whose, remedy = {
        "unmarked": ("carries no owner mark", "stop or delete it there, or adopt it"),
        "other-owner": (
            f"belongs to owner '{found['owner']}'",
            "agree on one of the two, and stop or delete the other",
        ),
        "released": ("is released", "stop or delete it there, or take the flow out of this tree"),
        "left-over": ("is no longer declared", "run mm2mgr plan --prune and mm2mgr apply --prune"),
        "declared": ("runs otherwise than declared, or this one does", "run mm2mgr plan"),
    }[found["standing"]]
    return (
        f"connector {found['other']} ({whose}) mirrors {topics} {ends} too: records arrive twice; {remedy}, or take the topics out of one of "
        "the two"
    )


def _slower_than_production(one: Values, found: Values) -> str:
    return (
        f"the lag has grown for {span_text(one['since_seconds'])}, by {found['grown_records']} to {found['lag_records']} records: "
        f"{found['produced_records_per_second']:.0f} records/s are produced and {found['mirrored_records_per_second']:.0f} mirrored; "
        f"find the slow tasks with mm2mgr lag {_argument(one)} --by task, and the tasks that it needs with mm2mgr size"
    )


def _topic_configs_differ(one: Values, found: Values) -> str:
    return (
        f"{_some(found['topics'], 'topic', found['topic_count'])} on {found['target']} without the {_some(found['settings'], 'setting')} that "
        f"{found['source']} has, for {one['since_seconds']:.0f} s (copied every {found['interval_seconds']:g} s): check that the workers' login "
        f"may alter configs on {found['target']} and that its brokers take them all, as one that they refuse holds up the whole topic; the "
        "workers' log has 'Could not alter configuration of topic'; config.properties.exclude names what shall differ"
    )


def _topic_acls_differ(one: Values, found: Values) -> str:
    return (
        f"{_some(found['topics'], 'topic', found['topic_count'])} on {found['target']} without the {_some(found['acls'], 'ACL')} that MirrorMaker "
        f"copies from {found['source']}, for {one['since_seconds']:.0f} s (copied every {found['interval_seconds']:g} s): check that "
        f"{found['target']} has an authorizer, and that the workers' login has Describe on cluster {found['source']} and Alter on cluster "
        f"{found['target']}; the workers' log has 'Could not sync ACL of topic' or 'trying to describe ACLs'"
    )


def _old_task_config(one: Values, found: Values) -> str:
    return (
        f"{_tasks(one)} still on an older config ({_some(found['keys'], 'key')}): if this lasts longer than a rebalance, the "
        "connector cannot start with the new one; check the clusters and the workers' log"
    )


def _records_lost(one: Values, found: Values) -> str:
    return loss_sentence(one["subject"]["flow"], found, _ago(one["since_seconds"]))


SENTENCES: Mapping[str, Callable[[Values, Values], str]] = {
    "not-applied": _not_applied,
    "config-differs": _config_differs,
    "offsets-move-unfinished": _offsets_move_unfinished,
    "no-status": _no_status,
    "connector-failed": _connector_failed,
    "task-failed": _task_failed,
    "connector-unassigned": _connector_unassigned,
    "task-unassigned": _task_unassigned,
    "worker-departed": _worker_departed,
    "heartbeat-without-task": _heartbeat_without_task,
    "heartbeats-not-emitted": _heartbeats_not_emitted,
    "checkpoints-not-emitted": _checkpoints_not_emitted,
    "group-offsets-rewound": _group_offsets_rewound,
    "no-task": _no_task,
    "no-topic-matches": _no_topic_matches,
    "state-differs": _state_differs,
    "resting-while-lag-grows": _resting_while_lag_grows,
    "no-progress": _no_progress,
    "partitions-unassigned": _partitions_unassigned,
    "target-topic-missing": _target_topic_missing,
    "target-partitions-fewer": _target_partitions_fewer,
    "records-not-on-target": _records_not_on_target,
    "arrives-twice": _arrives_twice,
    "overlap": _overlap,
    "slower-than-production": _slower_than_production,
    "topic-configs-differ": _topic_configs_differ,
    "topic-acls-differ": _topic_acls_differ,
    "old-task-config": _old_task_config,
    "records-lost": _records_lost,
    "orphan": lambda _, found: orphan(found),
    "offsets-not-stored": lambda _, found: offsets_not_stored(found),
}
"""The sentence of each kind, from the problem and its evidence."""


def _argument(problem: Values) -> str:
    """Return what names the connector on the command line: its flow, in quotes for the shell, or `connect/connector`."""
    subject = problem["subject"]
    return f"'{subject['flow']}'" if subject["flow"] else f"{subject['connect']}/{subject['connector']}"


def _tasks(problem: Values) -> str:
    tasks = problem["subject"]["tasks"]
    return _some(map(str, tasks), "task") if tasks else ""


def _some(names: Iterable[str], what: str, count: int | None = None) -> str:
    """Name a few: `task 1`, `4 keys (a, b, c, …)`."""
    known = list(names)
    number = len(known) if count is None else count
    if number == 1:
        return f"{what} {known[0]}"
    return f"{number} {what}s ({', '.join(known[:_SHOWN])}{', …' if number > _SHOWN else ''})"


def _ago(seconds: float) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
