"""Which topics of a cluster are compacted: offsets of those do not count records. In: names. Out: the compacted ones.

It reads configs and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.acting import ActingAs, batches
from mm2mgr.kafka.failures import is_silence

_POLICY = "cleanup.policy"
_GONE = confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def compacted(access: KafkaAccess, topics: Collection[str], timeout_seconds: float = 10.0) -> frozenset[str] | None:
    """Return the compacted ones of these topics; None when this login may not read the configs of one; KafkaError."""
    policies: list[tuple[str, str | None]] = []
    with ActingAs(access, timeout_seconds) as login, login.told("reading topic configs"):
        for names in batches(sorted(topics)):
            asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
            answers = login.admin.describe_configs(asked, request_timeout=login.left())
            policies += [(one.name, _policy(login, future)) for one, future in answers.items()]
    if any(policy is None for _, policy in policies):
        return None
    return frozenset(name for name, policy in policies if policy and "compact" in policy)


def _policy(login: ActingAs, future: Future[Any]) -> str | None:
    """Return a topic's policy, nothing for one that is gone, None for a refusal; silence is raised."""
    try:
        return str(login.result(future)[_POLICY].value)
    except confluent_kafka.KafkaException as error:
        if is_silence(error.args[0]):
            raise
        return "" if error.args[0].code() == _GONE else None
