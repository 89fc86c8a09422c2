"""Transactions that end as they were meant to, whatever a coordinator on busy cores says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config

from .seen import retry


class Transactions:
    """A producer with a transactional id: `begin`, `produce`, then `commit` or `abort`, and so on.

    What was only delayed is asked again. A commit or an abort that Kafka refuses after it has made it (INVALID_TXN_STATE,
    seen with Kafka 4.3.1 on busy cores) ends the producer: the next transaction is written by a new one. Records are in
    the log before the end of their transaction is asked for, also those that are aborted.
    """

    def __init__(self, access: KafkaAccess, name: str) -> None:
        self._config = {**librdkafka_config(access), "transactional.id": name}
        self._producer = self._open()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, partition: int = 0, **more: Any
    ) -> None:
        self._producer.produce(topic, value, key, partition, **more)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _open(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(self._config)
        retry(lambda: producer.init_transactions(30))
        return producer

    def _end(self, end: Callable[[float], None]) -> None:
        self.flush()  # else what is aborted never leaves the producer
        try:
            retry(lambda: end(30))
        except confluent_kafka.KafkaException as refused:
            if refused.args[0].code() != confluent_kafka.KafkaError.INVALID_TXN_STATE:
                raise
            self._producer = self._open()
