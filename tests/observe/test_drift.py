"""A connector that does not work since its config is not the tree's: one problem, whose command repairs the cause."""

from __future__ import annotations

import pytest

from mm2mgr.json_values import to_json
from mm2mgr.output.status_text import say_status
from mm2mgr.problems.connectors import CAUSES, classify
from mm2mgr.problems.order import order_problems
from tests.observe.estate import Estate, kinds, sentences
from tests.observe.test_problem_order import parsed

REFUSED = "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: invalid credentials"
TOO_LARGE = "org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088 bytes when serialized"
SILENT = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listTopics"
WRONG_ACKS = (
    "org.apache.kafka.common.config.ConfigException: Invalid value 7 for configuration acks: String must be one"
)
WRONG_CODE = "java.lang.IllegalStateException: boom"
APPLY = "mm2mgr apply --flow 'orders:A->B'"
RESTART = "mm2mgr restart --failed 'orders:A->B'"


def fail(small: Estate, trace: str, **changed: str) -> None:
    """Change the connector's config by hand, after which one of its tasks FAILED."""
    connector = small.connect.connectors[small.source]
    connector.config |= {key.replace("__", "."): value for key, value in changed.items()}
    connector.failed_tasks = {0: trace}


@pytest.mark.parametrize(
    ("trace", "key"),
    [
        (REFUSED, "source.cluster.sasl.mechanism"),
        (TOO_LARGE, "producer.override.max.request.size"),
        (SILENT, "target.cluster.bootstrap.servers"),
        (WRONG_ACKS, "producer.override.acks"),
        (WRONG_CODE, "transforms"),
        (f"{WRONG_CODE} for value of offset.lag.max", "offset.lag.max"),
    ],
)
def test_a_failure_that_follows_from_drift_is_one_problem_and_an_apply_repairs_it(
    small: Estate, trace: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(small, trace, **{key: "7"})
    status = small.status()
    (problem,) = status.flows[0].problems
    assert (problem.kind, problem.drift, problem.command, problem.retryable) == ("task-failed", (key,), APPLY, False)
    assert parsed(problem.command).command_path == "mm2mgr apply"
    (said,) = sentences(status.flows[0])
    assert said.endswith(f"; its config differs from the tree in key {key}, which can be the cause: run {APPLY}")
    assert "mm2mgr restart" not in said, "it would fail again"
    (value,) = to_json(status)["problem_values"]
    assert (value["kind"], value["drift"], value["older"]) == ("task-failed", [key], [])
    say_status(status)
    printed = " ".join(capsys.readouterr().out.split())
    assert APPLY in printed
    assert "mm2mgr plan" not in printed
    assert "restart --failed" not in printed


@pytest.mark.parametrize(
    ("trace", "key"),
    [
        (REFUSED, "tasks.max"),
        (REFUSED, "sync.topic.acls.enabled"),
        (TOO_LARGE, "topics.exclude"),
        (WRONG_ACKS, "sync.topic.acls.enabled"),
        (WRONG_CODE, "producer.override.max.request.size"),
    ],
)
def test_drift_that_is_not_the_cause_stays_a_problem_of_its_own(small: Estate, trace: str, key: str) -> None:
    fail(small, trace, **{key: "7"})
    flow = small.flow()
    assert kinds(flow) == ["task-failed", "config-differs"]
    assert [problem.command for problem in flow.problems] == [RESTART, "mm2mgr plan"]
    assert key in sentences(flow)[1]


def test_of_several_keys_that_differ_the_others_are_still_counted(small: Estate) -> None:
    fail(small, REFUSED, source__cluster__sasl__mechanism="PLAIN", tasks__max="7", offset__lag__max="3")
    first, second = small.flow().problems
    assert first.drift == ("source.cluster.sasl.mechanism",)
    assert to_json(second.evidence) == {"keys": ["offset.lag.max", "tasks.max"], "adopted": False}


def test_without_drift_a_failure_is_restarted_once_its_cause_is_repaired(small: Estate) -> None:
    fail(small, REFUSED)
    (problem,) = small.flow().problems
    assert (problem.command, problem.drift) == (RESTART, ())


def test_a_connector_that_cannot_start_with_a_changed_config_is_one_problem_with_its_older_tasks(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.config |= {"target.cluster.sasl.mechanism": "PLAIN"}
    connector.shown_state, connector.trace = "FAILED", REFUSED
    connector.own_keys = set()
    older = {key: value for key, value in connector.config.items() if key != "target.cluster.sasl.mechanism"}
    body = [
        {
            "id": {"connector": small.source, "task": task},
            "config": older | {"task.assigned.partitions": f"orders-{task}"},
        }
        for task in range(2)
    ]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=1)
    flow = small.flow()
    assert kinds(flow) == ["connector-failed"]
    (problem,) = flow.problems
    assert (problem.drift, problem.older, problem.command) == (
        ("target.cluster.sasl.mechanism",), ("target.cluster.sasl.mechanism",), APPLY,
    )  # fmt: skip
    assert "tasks still have an older config (key target.cluster.sasl.mechanism)" in sentences(flow)[0]


def test_a_change_by_hand_that_tasks_do_not_have_yet_is_one_problem(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    older = dict(connector.config)
    connector.config |= {"offset.lag.max": "7"}
    body = [
        {
            "id": {"connector": small.source, "task": task},
            "config": older | {"offset.lag.max": "100", "task.assigned.partitions": f"orders-{task}"},
        }
        for task in range(2)
    ]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=1)
    flow = small.flow()
    assert kinds(flow) == ["config-differs"]
    assert (flow.problems[0].older, flow.problems[0].command) == (("offset.lag.max",), "mm2mgr plan")


def test_the_same_drift_of_several_flows_is_one_group(small: Estate) -> None:
    fail(small, REFUSED, source__cluster__sasl__mechanism="PLAIN")
    (group,) = order_problems(small.flow().problems)
    assert (group.trouble, group.is_danger, group.command) == ("FAILED", True, APPLY)


def test_every_cause_of_a_failure_has_keys_from_which_it_can_follow() -> None:
    from mm2mgr.problems.drift import KEYS_OF_CAUSES

    assert KEYS_OF_CAUSES.keys() == CAUSES.keys() - {"configuration", "quota"}
    assert classify(REFUSED)[0] == "authentication"
