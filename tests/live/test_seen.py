"""What passes by itself, on a busy machine, fails no live test: it is asked again. All else is told at once."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from email.message import Message as Headers
from typing import Any
from urllib.error import HTTPError

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import NO_LEADER, REBALANCE, TIMED_OUT

from . import seen, transactions
from .seen import create, delete, rest, retry

ACCESS = KafkaAccess("src", "127.0.0.1:9")
EXISTS = "Connector a already exists"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "_POLL_SECONDS", 0.0)


def refusal(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def answers(*codes: int) -> Callable[..., str]:
    """Refuse with these codes, one call after the other, then answer."""
    left: Iterator[int] = iter(codes)

    def ask(*_: object, **__: object) -> str:
        for code in left:
            raise refusal(code)
        return "answer"

    return ask


@pytest.mark.parametrize(
    "code", [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT]
)
def test_a_question_that_a_broker_refuses_for_the_moment_is_asked_again(code: int) -> None:
    assert retry(answers(code, code)) == "answer"
    with pytest.raises(KafkaException):
        retry(answers(code, code), seconds=-1)


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_TXN_STATE])
def test_a_refusal_for_good_is_told_at_once(code: int) -> None:
    with pytest.raises(KafkaException) as told:
        retry(answers(code))
    assert told.value.args[0].code() == code


class Admin:
    """Answers each request for a topic with its next code; 0: done."""

    def __init__(self, **codes: list[int]) -> None:
        self.codes = codes

    def _answer(self, names: list[str]) -> dict[str, Future[None]]:
        futures = {name: Future[None]() for name in names}
        for name, future in futures.items():
            code = self.codes[name].pop(0)
            future.set_exception(refusal(code)) if code else future.set_result(None)
        return futures

    def create_topics(self, new: list[Any]) -> dict[str, Future[None]]:
        return self._answer([topic.topic for topic in new])

    delete_topics = _answer


def test_topics_are_created_and_deleted_although_an_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, exists, gone = KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART
    asked = Admin(a=[lost, exists], b=[0], c=[KafkaError.NOT_CONTROLLER, 0])
    monkeypatch.setattr(seen, "admin", lambda _: asked)
    create(ACCESS, ["a", "b", "c"])
    assert asked.codes == {"a": [], "b": [], "c": []}
    asked.codes = {"a": [lost, gone], "b": [0]}
    delete(ACCESS, ["a", "b"])
    for change, code in ((create, exists), (delete, gone)):
        asked.codes = {"a": [code], "b": [lost]}
        with pytest.raises(KafkaException) as told:
            change(ACCESS, ["a", "b"])
        assert told.value.args[0].code() == code, "nobody asked before"


class Worker:
    """Refuses with codes and messages, one request after the other, then answers."""

    def __init__(self, *refusals: tuple[int, str]) -> None:
        self.refusals = list(refusals)

    def open(self, request: Any, timeout: float) -> io.BytesIO:
        if not self.refusals:
            return io.BytesIO(b'{"name": "a"}')
        code, message = self.refusals.pop(0)
        body = io.BytesIO(json.dumps({"error_code": code, "message": message}).encode())
        raise HTTPError(request.full_url, code, "refused", Headers(), body)


def test_a_worker_that_rebalances_is_asked_again_and_any_other_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker((409, NO_LEADER), (500, REBALANCE))
    monkeypatch.setattr(seen, "DIRECT", worker)
    assert rest("POST", "http://w/connectors", {}) == {"name": "a"}
    worker.refusals = [(500, TIMED_OUT)]
    assert rest("GET", "http://w/connectors/a") == {"name": "a"}
    for method, code, message in (("POST", 409, EXISTS), ("POST", 500, TIMED_OUT), ("GET", 404, REBALANCE)):
        worker.refusals = [(code, message)]
        with pytest.raises(HTTPError) as told:
            rest(method, "http://w/connectors", {})
        assert (told.value.code, message in told.value.read().decode()) == (code, True)


class TransactionalProducer:
    """Refuses the ends of transactions with these codes, of all producers one after the other."""

    made = 0
    ends = staticmethod(answers())

    def __init__(self, _config: object) -> None:
        type(self).made += 1

    def init_transactions(self, seconds: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def flush(self, seconds: float) -> int:
        return 0

    def commit_transaction(self, seconds: float) -> str:
        return self.ends()

    abort_transaction = commit_transaction


@pytest.mark.parametrize(
    ("codes", "made"),
    [
        ((KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT), 1),
        ((KafkaError.INVALID_TXN_STATE,), 2),
        ((KafkaError._TIMED_OUT, KafkaError.INVALID_TXN_STATE), 2),
    ],
)
def test_a_transaction_ends_although_its_coordinator_refuses(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], made: int
) -> None:
    kind: Any = type("Made", (TransactionalProducer,), {"ends": staticmethod(answers(*codes))})
    monkeypatch.setattr(confluent_kafka, "Producer", kind)
    written = transactions.Transactions(ACCESS, "test")
    written.begin()
    written.commit()
    written.begin()
    written.abort()
    assert kind.made == made


def test_a_transaction_that_was_fenced_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = type("Made", (TransactionalProducer,), {"ends": staticmethod(answers(KafkaError._FENCED))})
    monkeypatch.setattr(confluent_kafka, "Producer", kind)
    with pytest.raises(KafkaException):
        transactions.Transactions(ACCESS, "test").commit()
