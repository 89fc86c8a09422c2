"""What decides how fast a flow crosses a long link, as values. Pure: no I/O, no clock. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass

BY_SYSTEM = -1
"""A socket buffer that the operating system sizes."""


@dataclass(frozen=True)
class BrokerLimits:
    """What the brokers of one Kafka cluster allow, the smallest value where they differ; Kafka's defaults until they were `read`.

    `version`: at least this Kafka, "" where unknown.
    """

    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    socket_request_bytes: int = 104_857_600
    message_bytes: int = 1_048_588
    brokers: int = 1
    version: str = ""
    read: bool = False
