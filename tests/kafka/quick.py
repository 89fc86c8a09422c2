"""A producer for brokers without a JVM: it asks for no producer id and waits for no second record, a twentieth of a second less each."""

from __future__ import annotations

from typing import Any

import pytest

from mm2mgr.kafka import records
from mm2mgr.kafka.access import KafkaAccess


class Producer(records.Producer):
    def __init__(self, access: KafkaAccess, timeout_seconds: float = 30.0) -> None:
        opened = records.open_client

        def quick(kind: Any, access: KafkaAccess, extra: dict[str, Any]) -> Any:
            return opened(kind, access, {**extra, "enable.idempotence": False, "linger.ms": 0})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "open_client", quick)
            super().__init__(access, timeout_seconds)
