"""Errors of librdkafka as KafkaErrors: sentences that name the cluster and contain no secret."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from mm2mgr.errors import KafkaError
from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.secrets import cut, mask_text

_NO_ANSWER = {
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._RESOLVE,
}
_LOGIN = {
    confluent_kafka.KafkaError._AUTHENTICATION,
    confluent_kafka.KafkaError._SSL,
    confluent_kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
}
_LONGEST_REASON = 300

# librdkafka prints to stderr unless it has a logger; its errors reach the user through `Failures` instead.
_silent = logging.getLogger("mm2mgr.kafka.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass
class Failures:
    """The last background error of one client that explains failures, and the KafkaErrors built from it."""

    access: KafkaAccess
    last: confluent_kafka.KafkaError | None = None
    all_down: bool = False

    def note(self, error: confluent_kafka.KafkaError) -> None:
        """Keep a background error; a refused login stays, because the `all brokers down` that follows it is less specific."""
        self.all_down |= error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN
        if self.last is None or self.last.code() not in _LOGIN:
            self.last = error

    @property
    def is_final(self) -> bool:
        """Tell whether waiting is of no use: the login was refused, or no broker's address takes a connection."""
        return self.all_down or (self.last is not None and self.last.code() in _LOGIN)

    def error(self, cause: BaseException, doing: str, timeout_seconds: float) -> KafkaError:
        """Build the KafkaError for a failed call: no answer, a refused login, or the broker's own message."""
        reported = cause.args[0] if isinstance(cause, confluent_kafka.KafkaException) and cause.args else None
        code = reported.code() if isinstance(reported, confluent_kafka.KafkaError) else None
        if code in _NO_ANSWER or isinstance(cause, TimeoutError):
            return self.no_answer(timeout_seconds)
        reason = reported.str() if isinstance(reported, confluent_kafka.KafkaError) else str(reported or cause)
        return KafkaError(f"{self.access.alias}: {doing} failed: {self.cut(reason)}", hint=_hint(code, reason))

    def no_answer(self, timeout_seconds: float) -> KafkaError:
        """Build the error for no answer in time, with the refused login or connection that explains it."""
        why = f": {self.cut(self.last.str())}" if self.last is not None else ""
        refused = self.last is not None and self.last.code() in _LOGIN
        servers, alias = self.access.bootstrap_servers, self.access.alias
        message = f"{alias}: no broker of {servers} answered within {timeout_seconds:g} s{why}"
        return KafkaError(message, hint=_hint(self.last.code() if refused and self.last else None))

    def cut(self, text: str) -> str:
        """Put a library's text on one line, without secrets, and shorten it."""
        return cut(" ".join(mask_text(text).split()), _LONGEST_REASON)


def client_settings(access: KafkaAccess, extra: Mapping[str, Any]) -> tuple[dict[str, Any], Failures]:
    """Return the settings of one silent client, and where its background errors are kept."""
    config = librdkafka_config(access)
    failures = Failures(access)
    quiet = {"logger": _silent, "log_level": 0, "error_cb": failures.note, "client.id": "mm2mgr"}
    return {**config, **quiet, **extra}, failures


def is_silence(error: confluent_kafka.KafkaError) -> bool:
    """Tell whether an error means that no broker answered, as against a broker that said no."""
    return error.code() in _NO_ANSWER


def is_refusal(error: confluent_kafka.KafkaError) -> bool:
    """Tell whether an error means that the login or the TLS handshake failed, which waiting does not fix."""
    return error.code() in _LOGIN


def _hint(code: int | None, reason: str = "") -> str:
    if "ssl.key." in reason:
        return "check the private key; an encrypted one needs `ssl.key.password` beside it"
    if code in _LOGIN:
        return "check security.protocol, the login and the truststore of this cluster; mm2mgr reads with them itself"
    if code in (
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ):
        return "this login needs Describe and Read on the topics that mm2mgr looks at"
    return "check bootstrap servers and network from this machine; an `access:` block can name other listeners"
