"""Each problem sentence: a case that trips it, one that does not, and that it says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS
from mm2mgr.comparison.ownership import HELD_KEY, Journal
from mm2mgr.json_values import to_json
from mm2mgr.problems.health import FlowStatus
from mm2mgr.topology import ListedConnector
from tests.observe.estate import Estate, estate, sentences

TRACE = """org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback
\tat org.apache.kafka.connect.runtime.WorkerSourceTask.lambda(WorkerSourceTask.java:1)
Caused by: java.util.concurrent.ExecutionException: outer
\t... 3 more
Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088 bytes when serialized
\t... 9 more
"""


def only_problem(flow: FlowStatus) -> str:
    assert flow.health == "problem"
    assert len(flow.problems) == 1, flow.problems
    return sentences(flow)[0]


def test_not_applied(small: Estate) -> None:
    del small.connect.connectors[small.source]
    flow = small.flow()
    assert flow.state == "not applied"
    assert only_problem(flow).endswith("not on Connect cluster 'cb': run mm2mgr plan, then mm2mgr apply")
    assert flow.lag_records is None


def test_no_status_is_waited_for_a_minute(small: Estate) -> None:
    small.connect.connectors[small.source].hidden_reads = 99
    early = small.flow()
    assert (early.state, early.health, early.problems) == ("no status", "waiting", ())
    assert any("first waits for both clusters" in note for note in early.notes)
    assert small.flow(later_seconds=59).problems == ()
    sentence = only_problem(small.flow(later_seconds=1))
    assert sentence.startswith("no status for 60 s")
    assert "check addresses, ports and security protocol of A and B" in sentence
    small.connect.connectors[small.source].hidden_reads = 0
    assert small.flow(later_seconds=1).health == "ok"
    small.connect.connectors[small.source].hidden_reads = 99
    assert small.flow(later_seconds=1).health == "waiting", "the minute begins anew"


def test_connector_failed(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.shown_state, connector.trace = "FAILED", TRACE
    sentence = only_problem(small.flow())
    assert sentence.startswith("connector FAILED (tasks still run with the previous config): org.apache.kafka.connect")
    assert "Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088" in sentence
    assert "ExecutionException" not in sentence
    assert "WorkerSourceTask" not in sentence
    assert sentence.endswith("then run mm2mgr restart --failed 'orders:A->B'")


def test_tasks_failed_for_the_same_reason_are_one_sentence(small: Estate) -> None:
    small.connect.connectors[small.source].failed_tasks = {0: TRACE, 1: TRACE}
    sentence = only_problem(small.flow())
    assert sentence.startswith("2 tasks (0, 1) FAILED: org.apache.kafka.connect.errors.ConnectException")
    assert "RecordTooLargeException" in sentence
    assert "then run mm2mgr restart --failed 'orders:A->B'" in sentence


def test_secrets_in_a_trace_are_masked(small: Estate) -> None:
    config = small.connect.connectors[small.source].config
    config["source.cluster.sasl.jaas.config"] = 'x.PlainLoginModule required username="u" password="hunter2secret";'
    trace = f"ConfigException: bad {config['source.cluster.sasl.jaas.config']} and hunter2secret"
    small.connect.connectors[small.source].failed_tasks = {0: trace}
    assert "hunter2secret" not in str(to_json(small.status()))


def test_unassigned_connector_and_task(small: Estate) -> None:
    small.connect.connectors[small.source].shown_state = "UNASSIGNED"
    sentence = only_problem(small.flow())
    assert sentence.startswith("connector UNASSIGNED")
    assert "check the workers" in sentence
    small.connect.connectors[small.source].shown_state = None
    small.connect.connectors[small.source].state = "UNASSIGNED"  # the fake gives tasks the same state
    told = next(one for one in sentences(small.flow()) if one.startswith("2 tasks (0, 1) UNASSIGNED"))
    assert "the others wait for them for scheduled.rebalance.max.delay.ms" in told


def test_running_without_tasks_although_topics_match(small: Estate) -> None:
    small.connect.connectors[small.source].forced_tasks = 0
    sentence = only_problem(small.flow())
    assert sentence.startswith("RUNNING without a task although 1 topic on A match")
    assert "check their log" in sentence


def test_running_without_tasks_because_no_topic_matches(small: Estate) -> None:
    small.connect.connectors[small.source].forced_tasks = 0
    small.kafka.clusters["A"] = {"other": [(0, 0)]}
    sentence = only_problem(small.flow())
    assert sentence.startswith("topics: orders.* matches 0 of 1 topic on A, nothing is mirrored: check the patterns")


def test_running_without_tasks_and_the_source_is_down(small: Estate) -> None:
    small.connect.connectors[small.source].forced_tasks = 0
    small.kafka.down.add("A")
    sentence = only_problem(small.flow())
    assert "mm2mgr could not read either (A: no broker answered)" in sentence
    assert "check the cluster" in sentence


def test_no_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    assert small.flow(later_seconds=74).problems == ()
    small.log(0, 200)  # the source goes on, which is no progress of the flow
    sentence = only_problem(small.flow(later_seconds=1))
    assert sentence.startswith("no progress for 75 s: records wait")
    assert "for task 0;" in sentence
    assert "check rights and space on B" in sentence
    small.stored(19)
    assert small.flow(later_seconds=60).health == "ok"


def test_one_task_that_stands_still_is_seen_beside_one_that_moves(small: Estate) -> None:
    for partition in (0, 1):
        small.log(0, 100, partition=partition)
        small.stored(9, partition=partition)
    small.flow()
    small.stored(50, partition=1)
    assert "for task 0;" in only_problem(small.flow(later_seconds=80))


def test_the_target_moving_is_progress(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.flow()
    small.log(0, 50, alias="B", topic="A.orders")
    assert small.flow(later_seconds=80).health == "ok"


def test_without_the_target_one_late_flush_is_forgiven(small: Estate) -> None:
    small.kafka.down.add("B")
    small.log(0, 100)
    small.stored(9)
    small.flow()
    assert small.flow(later_seconds=149).problems == ()
    assert "no progress for 2.5 min" in only_problem(small.flow(later_seconds=1))


def test_an_idle_flow_is_no_problem_however_long(small: Estate) -> None:
    small.log(0, 100)
    small.stored(99)
    small.flow()
    assert small.flow(later_seconds=100_000).health == "ok"
    small.log(0, 150)
    assert small.flow(later_seconds=1).health == "waiting", "records wait since now, not since the first look"


def test_drift_names_keys_and_no_values(small: Estate) -> None:
    small.connect.connectors[small.source].config |= {"tasks.max": "7", "source.cluster.ssl.key.password": "s3cr3t"}
    sentence = only_problem(small.flow())
    assert "differs from the tree in 2 keys (source.cluster.ssl.key.password, tasks.max)" in sentence
    assert sentence.endswith("run mm2mgr plan")
    assert "s3cr3t" not in sentence


def test_what_is_adopted_drifts_by_effect_only(small: Estate) -> None:
    live = small.connect.connectors[small.source]
    live.config = {key: value for key, value in live.config.items() if not key.startswith(("mm2mgr.", "header."))}
    assert "differs from the tree in 3 keys" in only_problem(small.flow())
    small.topology = replace(small.topology, adopted=(ListedConnector("cb", small.source, "x.yaml:1"),))
    assert small.flow().problems == ()
    live.config["tasks.max"] = "7"
    assert "it is adopted, and differs from the tree in key tasks.max" in only_problem(small.flow())


def test_fewer_tasks_that_only_save_are_no_drift_while_they_wait(small: Estate) -> None:
    small.connect.connectors[small.source].config |= {"tasks.max": "7"}
    assert "differs from the tree in key tasks.max" in only_problem(small.flow())
    flows = (replace(flow, tasks=replace(flow.tasks, is_saving=True)) for flow in small.topology.flows)
    small.topology = replace(small.topology, flows=tuple(flows))
    assert small.flow().problems == ()
    small.connect.connectors[small.source].config |= {"x.y": "1"}
    assert "differs from the tree in 2 keys (tasks.max, x.y)" in only_problem(small.flow())


def test_a_move_of_offsets_that_was_cut_short(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.config = Journal("RUNNING", {}).added_to(connector.config)
    connector.state = "STOPPED"
    sentence = only_problem(small.flow())
    assert "do not resume it by hand" in sentence
    assert sentence.endswith("run mm2mgr apply, which finishes it and leaves the connector RUNNING")


def test_tasks_on_an_older_config(small: Estate) -> None:
    config = dict(small.connect.connectors[small.source].config)
    stale = config | {"refresh.topics.interval.seconds": "5", "task.assigned.partitions": "orders-0,orders-1"}
    body = [{"id": {"connector": small.source, "task": 0}, "config": stale}]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=1)
    small.connect.connectors[small.source].forced_tasks = 1
    sentence = only_problem(small.flow())
    assert sentence.startswith("task 0 still on an older config (key refresh.topics.interval.seconds)")
    assert "check the clusters" in sentence


def _foreign(small: Estate, *dealt: str) -> None:
    """Let another class than Kafka's deal the partitions, and keep a key of its config to itself."""
    connector = small.connect.connectors[small.source]
    connector.config |= {"connector.class": "org.example.EvenMirrorSourceConnector", "assignment": "orders:0"}
    connector.own_keys, connector.dealt = {"assignment"}, [*dealt]


def test_a_class_may_keep_keys_of_its_config_to_itself(small: Estate) -> None:
    _foreign(small, "orders-0", "orders-1")
    assert _named(small.flow()) == ["config-differs"]
    small.connect.connectors[small.source].own_keys = set()
    assert _named(small.flow()) == ["config-differs"]
    config = dict(small.connect.connectors[small.source].config)
    older = config | {"topics": "x"}
    body = [
        {
            "id": {"connector": small.source, "task": task},
            "config": held | {"task.assigned.partitions": f"orders-{task}"},
        }
        for task, held in enumerate((config, older))
    ]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=1)
    (problem,) = (one for one in small.flow().problems if one.kind == "old-task-config")
    assert (problem.subject.tasks, to_json(problem.evidence)["keys"]) == ((1,), ["topics"])


def test_a_partition_in_two_tasks(small: Estate) -> None:
    _foreign(small, "orders-0,orders-1", "orders-1", "")
    flow = small.flow()
    (problem,) = (one for one in flow.problems if one.kind == "partitions-in-two-tasks")
    assert problem.subject.tasks == (0, 1)
    assert problem.sentence.startswith(
        "partition orders-1 assigned to more than one task (2 tasks (0, 1)), so that each record arrives more than once:"
        " org.example.EvenMirrorSourceConnector deals them wrongly; correct its assignment, or set connector.class to"
    )
    assert "without a partition, so that it mirrors nothing: task 2" in flow.notes
    assert [task.partitions for task in flow.tasks] == [2, 1, 0]
    _foreign(small, "orders-0", "orders-1")
    assert "partitions-in-two-tasks" not in _named(small.flow())


def test_a_partition_that_another_class_holds_back(small: Estate) -> None:
    _foreign(small, "orders-1")
    early = small.flow()
    assert any("1 partitions have no task" in note for note in early.notes)
    assert "partitions-unassigned" in _named(small.flow(later_seconds=601))


def test_the_assignment_of_a_declared_plugin_is_no_difference(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.config |= {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: "version=1;rates=9;unlisted=1;orders:0-1@0"}
    connector.own_keys, connector.dealt = {ASSIGNMENT_KEY}, ["orders-0,orders-1"]
    assert {*_named(small.flow())} == {"config-differs"}
    small.connectors = tuple(
        replace(declared, config=declared.config | {"connector.class": PLUGIN_CLASS})
        if declared.name == small.source
        else declared
        for declared in small.connectors
    )
    assert _named(small.flow()) == []
    connector.config |= {"topics": "x"}
    assert {*_named(small.flow())} >= {"config-differs"}


def test_what_holds_a_way_back_is_no_difference(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.config |= {HELD_KEY: "until mm2mgr failover back 'b->a'", "enabled": "false"}
    assert "config-differs" not in _named(small.flow())
    connector.config |= {"topics": "x"}
    (problem,) = small.flow().problems
    assert (problem.kind, problem.drift) == ("no-task", ("topics",))
    connector.state, connector.tasks = "STOPPED", 0
    assert "STOPPED: it does nothing until mm2mgr failover back 'b->a'" in small.flow().notes


def test_a_partition_that_an_assignment_holds_raises_no_alarm(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    text = "version=1;rates=9+7;unlisted=1;orders:0@hold+1@0"
    connector.config |= {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: text}
    connector.own_keys, connector.dealt = {ASSIGNMENT_KEY}, ["orders-1"]
    told = "held by the connector's assignment, in no task, so that their records wait: partition orders-0"
    for seconds in (0, 601, 601, 3_600, 3_600):
        flow = small.flow(later_seconds=seconds)
        assert told in flow.notes
        assert {*_named(flow)} == {"config-differs"}, "the test's tree does not declare the plugin"
    for damaged in (
        text.replace("hold", "0"),
        text.replace("orders:", "orders"),
        text.replace("version=1", "version=2"),
    ):
        connector.config |= {ASSIGNMENT_KEY: damaged}
        small.flow()
        assert "partitions-unassigned" in _named(small.flow(later_seconds=601)), damaged


def test_companions_have_their_own_problems(small: Estate) -> None:
    small.connect.connectors[small.checkpoint].failed_tasks = {0: TRACE}
    small.connect.connectors[small.heartbeat].forced_tasks = 0
    status = small.status()
    by_type = {one.type: one for one in status.companions}
    assert sentences(by_type["checkpoint"])[0].startswith("task 0 FAILED")
    assert "no heartbeats are sent" in sentences(by_type["heartbeat"])[0]
    assert (status.flows[0].health, status.health) == ("ok", "problem")


def test_a_checkpoint_connector_without_groups_is_no_problem(small: Estate) -> None:
    small.connect.connectors[small.checkpoint].forced_tasks = 0
    one = next(one for one in small.status().companions if one.type == "checkpoint")
    assert (one.health, one.problems) == ("waiting", ())
    assert "no consumer group" in one.notes[0]


def test_an_open_transaction_is_named_where_it_can_be_the_cause(tmp_path: Path) -> None:
    with estate(tmp_path, more="source_consumer: {isolation.level: read_committed}") as committed:
        committed.log(0, 100)
        committed.flow()
        assert "open transaction" in only_problem(committed.flow(later_seconds=80))


def _target_without_the_topic(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    small.kafka.clusters["B"] = {"heartbeats": [(0, 5)]}


def _named(flow: FlowStatus) -> list[str]:
    return [problem.kind for problem in flow.problems]


def test_a_topic_that_the_target_lacks_is_named_after_the_refresh_interval(small: Estate) -> None:
    _target_without_the_topic(small)
    small.flow()
    assert "target-topic-missing" not in _named(small.flow(later_seconds=600))
    late = small.flow(later_seconds=100)
    (found,) = (problem for problem in late.problems if problem.kind == "target-topic-missing")
    assert (to_json(found.evidence)["topics"], found.since_seconds) == (["A.orders"], 700)
    assert any(
        text.startswith("topic A.orders not seen on B for 11.7 min while records wait") for text in sentences(late)
    )
    small.kafka.clusters["B"]["A.orders"] = [(0, 0), (0, 0)]
    assert "target-topic-missing" not in _named(small.flow(later_seconds=1))


def test_a_missing_topic_on_the_target_is_no_guess(small: Estate) -> None:
    _target_without_the_topic(small)
    small.flow()
    small.kafka.down.add("B")
    assert "target-topic-missing" not in _named(small.flow(later_seconds=1000)), "the target was not read"
    small.kafka.down.clear()
    assert "target-topic-missing" not in _named(small.flow(later_seconds=1000)), "time unseen does not count"
    small.stored(99)
    assert _named(small.flow(later_seconds=1000)) == [], "nothing waits: a quiet topic"


def test_fewer_partitions_on_the_target_are_named_once_a_refresh_should_have_added_them(small: Estate) -> None:
    small.log(0, 100)
    small.stored(99)
    small.kafka.clusters["B"]["A.orders"] = [(0, 100)]
    small.flow()
    assert "target-partitions-fewer" not in _named(small.flow(later_seconds=600))
    late = small.flow(later_seconds=100)
    assert [
        text
        for text in sentences(late)
        if text.startswith("topic A.orders with fewer partitions on B than on A for 11.7 min")
    ]
    small.kafka.down.add("B")
    assert "target-partitions-fewer" not in _named(small.flow(later_seconds=1000)), "the target was not read"
    small.kafka.down.clear()
    small.kafka.clusters["B"]["A.orders"] = [(0, 100), (0, 0), (0, 0)]
    assert _named(small.flow(later_seconds=1000)) == [], "more partitions than the source's do no harm"
