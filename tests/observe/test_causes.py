"""What made a task FAIL, from traces as Connect reports them: what no restart can cure is never taken for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS
from mm2mgr.connect.types import parse_status
from mm2mgr.connectors import Connector, RunningConnector
from mm2mgr.observe.reading import LiveConnector
from mm2mgr.problems.connectors import CAUSES, classify, failures_of
from mm2mgr.render import CLASSES

CALLBACK = (
    "org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback\n"
    "\tat org.apache.kafka.connect.runtime.WorkerSourceTask.maybeThrowProducerSendException(WorkerSourceTask.java:348)\n"
)
ERRORS = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("trace", "cause", "exception"),
    [
        (
            f"{CALLBACK}Caused by: {ERRORS}.RecordTooLargeException: The message is 2000088 bytes when serialized which is "
            "larger than 1048576, which is the value of the max.request.size configuration.\n",
            "record-size",
            f"{ERRORS}.RecordTooLargeException",
        ),
        (
            f"{CALLBACK}Caused by: {ERRORS}.TimeoutException: Expiring 1 record(s) for A.orders-0:4000 ms has passed since batch creation\n",
            "time-out",
            f"{ERRORS}.TimeoutException",
        ),
        (
            f"{CALLBACK}Caused by: {ERRORS}.TopicAuthorizationException: Not authorized to access topics: [A.orders]\n",
            "authorisation",
            f"{ERRORS}.TopicAuthorizationException",
        ),
        (
            f"java.util.concurrent.ExecutionException: {ERRORS}.TimeoutException: call timed out\n\tat java.base/x.y(Z.java:1)\n"
            f"Caused by: {ERRORS}.TimeoutException: call timed out\n"
            f"Caused by: {ERRORS}.SaslAuthenticationException: Authentication failed: Invalid username or password\n",
            "authentication",
            f"{ERRORS}.SaslAuthenticationException",
        ),
        (
            f"{ERRORS}.SslAuthenticationException: SSL handshake failed\nCaused by: javax.net.ssl.SSLHandshakeException: PKIX path "
            "building failed\nCaused by: sun.security.validator.ValidatorException: PKIX path building failed\n",
            "authentication",
            "javax.net.ssl.SSLHandshakeException",
        ),
        (
            "org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler\n\tat x.Y.z(Y.java:1)\n"
            "Caused by: org.apache.kafka.connect.errors.DataException: Conversion error: null value for field that is required\n",
            "deserialisation",
            "org.apache.kafka.connect.errors.DataException",
        ),
        (
            f"{CALLBACK}Caused by: org.apache.kafka.common.InvalidRecordException: Timestamp 1794814402150 of message with offset 0 is "
            "out of range. The timestamp should be within [1795592016156, 1795682016156]\n",
            "record-refused",
            "org.apache.kafka.common.InvalidRecordException",
        ),
        (
            f"{CALLBACK}Caused by: org.apache.kafka.common.InvalidRecordException: One or more records have been rejected due to 1 record "
            "errors in total, and only showing the first three errors at most: [Compacted topic cannot accept message without key]\n",
            "record-refused",
            None,
        ),
        (f"{CALLBACK}Caused by: {ERRORS}.InvalidTimestampException: out of range", "record-refused", None),
        (
            "java.lang.OutOfMemoryError: Java heap space\n\tat x.Y.z(Y.java:1)",
            "out-of-memory",
            "java.lang.OutOfMemoryError",
        ),
        (
            "org.apache.kafka.common.KafkaException: Failed to construct kafka producer\nCaused by: "
            "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
            "configuration",
            "org.apache.kafka.common.config.ConfigException",
        ),
        (
            f"{ERRORS}.UnknownTopicOrPartitionException: This server does not host this topic-partition.",
            "unknown-topic",
            None,
        ),
        (f"{CALLBACK}Caused by: {ERRORS}.ThrottlingQuotaExceededException: quota", "quota", None),
        (f"{CALLBACK}Caused by: {ERRORS}.NotLeaderOrFollowerException: moved", "unavailable", None),
        (
            f"{CALLBACK}Caused by: java.net.ConnectException: Connection refused",
            "unavailable",
            "java.net.ConnectException",
        ),
        (f"{CALLBACK}Caused by: {ERRORS}.ProducerFencedException: a newer producer", "fenced", None),
        (
            f"{CALLBACK}Caused by: {ERRORS}.InvalidTxnStateException: The producer attempted a transactional operation in an invalid state.",
            "fenced",
            None,
        ),
        (CALLBACK, "bug", "org.apache.kafka.connect.errors.ConnectException"),
        (
            f"{ERRORS}.TimeoutException: x\nCaused by: java.lang.NullPointerException",
            "bug",
            "java.lang.NullPointerException",
        ),
        (f"java.lang.IllegalStateException: caused by {ERRORS}.TimeoutException: x", "bug", None),
        (f"java.lang.IllegalStateException\n\tSuppressed: {ERRORS}.TimeoutException: x", "bug", None),
        ("no class at all", "bug", ""),
        ("", "bug", ""),
        (None, "bug", ""),
    ],
)
def test_traces_of_workers(trace: str | None, cause: str, exception: str | None) -> None:
    cause_found, shown_by = classify(trace)
    assert cause_found == cause
    assert exception is None or shown_by == exception


def test_what_may_be_restarted_is_a_short_list() -> None:
    assert {name for name, cause in CAUSES.items() if cause.retryable} == {"quota", "time-out", "unavailable", "fenced"}


NAMES = sorted((name, cause) for cause, known in CAUSES.items() for name in known.exceptions if "/" not in name)


@given(st.lists(st.sampled_from([*NAMES, ("ConnectException", ""), ("IllegalStateException", "")]), max_size=6))
def test_one_exception_that_no_restart_cures_is_enough(chain: list[tuple[str, str]]) -> None:
    lines = [f"org.example.{name}: because\n\tat x.Y.z(Y.java:1)" for name, _ in chain]
    found, _ = classify("\nCaused by: ".join(lines))
    never = {cause for _, cause in chain if cause and not CAUSES[cause].retryable}
    assert not (never and CAUSES[found].retryable)
    assert found in never if never else found in {chain[-1][1] or "bug"} if chain else found == "bug"


@pytest.mark.parametrize("version", ["3.6.2", "4.3.1"])
@pytest.mark.parametrize(("story", "tasks"), [("joined", (0, 1)), ("alone", (0, 1, 2, 3))])
def test_a_worker_without_the_class_of_the_plugin_is_named_with_what_to_do(
    version: str, story: str, tasks: tuple[int, ...]
) -> None:
    """As workers of both lines told it when one without the jar joined, and when the one with it had stopped."""
    folder = Path(__file__).parent / "without_plugin"
    status = parse_status(json.loads((folder / f"{story}-{version}.json").read_text()))

    def problems(kind: str) -> list[tuple[str, str, tuple[int, ...], str]]:
        config = {"connector.class": kind, ASSIGNMENT_KEY: "version=1;rates=1;unlisted=1"}
        running = RunningConnector("mirror", config, (0, 1, 2, 3), "unknown", status=status)
        live = LiveConnector(Connector("mirror", "source", "east", ("orders:a->b",), "a->b", config, {}), running)
        return [(one.kind, one.cause, one.subject.tasks, one.sentence) for one in failures_of(live)]

    found = problems(PLUGIN_CLASS)
    kinds = [("connector-failed", ())] * (story == "alone") + [("task-failed", tasks)]
    assert [(kind, shown) for kind, _, shown, _ in found] == kinds
    assert {cause for _, cause, _, _ in found} == {"plugin-missing"}
    for *_, sentence in found:
        assert "mm2mgr watch does, or write balance: stock" in sentence
        assert "onto every worker" in sentence
        assert "restart --failed" not in sentence
    assert f"worker {status.tasks[0].worker_id} lacks the connector's class" in found[-1][-1]
    assert {cause for _, cause, _, _ in problems(CLASSES["source"])} == {"class-missing"}
