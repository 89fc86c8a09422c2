"""Acting as a login when nothing answers, and brokers' words that are neither a yes nor a no; real answers: tests/check/test_acls_live.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import confluent_kafka
import pytest

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acls import Permission, Right
from mm2mgr.kafka.client import Kafka
from mm2mgr.kafka.inspection import ClusterView, may, view_cluster

CODES = confluent_kafka.KafkaError
SEEN = ClusterView("id", (1,), frozenset({"Describe"}), {}, frozenset())


def answered(code: int | None) -> Callable[..., dict[str, Future[Any]]]:
    """Return an admin call that answers for every topic with this error, or with success."""

    def call(new: list[Any], **_: object) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {one.topic: Future() for one in new}
        for future in futures.values():
            if code is None:
                future.set_result(None)
            else:
                future.set_exception(confluent_kafka.KafkaException(CODES(code)))
        return futures

    return call


def create_is(closed_port: int, code: int | None) -> Permission:
    right = Right("Create", "topic", "t")
    with Kafka(KafkaAccess("a", f"127.0.0.1:{closed_port}"), 2) as login:
        wire = type("Wire", (), {"create_topics": staticmethod(answered(code)), "poll": staticmethod(lambda _: 0)})
        login.admin = wire()
        return may(login, [right], SEEN)[right]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "yes"),
        (CODES.TOPIC_ALREADY_EXISTS, "yes"),
        (CODES.POLICY_VIOLATION, "yes"),
        (CODES.INVALID_REPLICATION_FACTOR, "yes"),
        (CODES.TOPIC_AUTHORIZATION_FAILED, "no"),
        (CODES.CLUSTER_AUTHORIZATION_FAILED, "no"),
        (CODES.TOPIC_EXCEPTION, "open"),
    ],
)
def test_brokers_authorize_before_they_look_closer(closed_port: int, code: int | None, said: Permission) -> None:
    assert create_is(closed_port, code) == said


def test_a_word_that_is_neither_yes_nor_no_is_an_error(closed_port: int) -> None:
    with pytest.raises(KafkaError, match="a: asking for rights failed"):
        create_is(closed_port, CODES.UNKNOWN)


def test_rights_on_the_cluster_are_what_was_seen_at_login(closed_port: int) -> None:
    describe, alter = Right("Describe", "cluster"), Right("Alter", "cluster")
    with Kafka(KafkaAccess("a", f"127.0.0.1:{closed_port}"), 2) as login:
        assert may(login, [describe, alter], SEEN) == {describe: "yes", alter: "no"}


def test_nothing_answers_within_the_deadline(closed_port: int) -> None:
    started = time.monotonic()
    with (
        Kafka(KafkaAccess("a", f"127.0.0.1:{closed_port}"), 1.5) as login,
        pytest.raises(KafkaError, match="no broker of"),
    ):
        view_cluster(login)
    assert time.monotonic() - started < 20
