"""The groups of Connect workers on the Kafka cluster that they use: who is a member, an idle worker too.

A worker tells its own URL in the metadata with which it joins, the same in all versions of Connect's protocol (version,
URL, offset of its config: `ConnectProtocol`, `IncrementalCooperativeConnectProtocol`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mm2mgr import timing

if TYPE_CHECKING:
    from mm2mgr.kafka.client import Kafka

_PROTOCOL = "connect"
_ASK_AGAIN_SECONDS = 0.2
_LONGEST_URL = 2_000


@dataclass(frozen=True)
class WorkerGroup:
    """A group of Connect workers: the ids of its members (host and port of their REST API), as statuses have them.

    `untold`: how many members more there are whose address is not known, as while the group rebalances, or which
    advertise that of another one, as behind one service: only one of these can be asked.
    """

    group: str
    workers: tuple[str, ...]
    untold: int = 0


def read_worker_groups(kafka: Kafka) -> tuple[WorkerGroup, ...]:
    """Return the groups of Connect workers that this login may describe; asked again while one rebalances, as long as
    there is time: members then have no metadata. Those of a dedicated MirrorMaker, which is such a group too, have some
    without an address. KafkaError where that fails.
    """
    kafka.identity(while_down=False)  # ends early where no broker listens
    with kafka.doing("listing groups of Connect workers"):
        while True:
            # describe_consumer_groups refuses groups of Connect workers: "is not a consumer group (connect)".
            listed = kafka.admin.list_groups(timeout=kafka.seconds_left())
            of_workers = [group for group in listed if group.protocol_type == _PROTOCOL and group.members]
            groups = list(map(_group, of_workers))
            is_settled = all(all(member.metadata for member in group.members) for group in of_workers)
            if is_settled or kafka.seconds_left() < 2 * _ASK_AGAIN_SECONDS:
                return tuple(sorted(groups, key=lambda group: group.group))
            timing.sleep(_ASK_AGAIN_SECONDS)


def _group(group: Any) -> WorkerGroup:
    told = {*_workers(member.metadata for member in group.members)}
    return WorkerGroup(group.id, tuple(sorted(told)), len(group.members) - len(told))


def _workers(metadata: Iterable[bytes]) -> Iterable[str]:
    return filter(None, map(worker_of, metadata))


def worker_of(metadata: bytes) -> str:
    """Return the id of the worker that joined with this metadata, empty where that is none of a worker."""
    try:
        _, size = struct.unpack_from(">hh", metadata)
        if not 0 < size <= min(len(metadata) - 4, _LONGEST_URL):
            return ""
        place = urlsplit(metadata[4 : 4 + size].decode())
        is_plain = place.netloc.isprintable() and not {"@", " "} & {*place.netloc}
        return place.netloc if is_plain and place.hostname and place.port else ""
    except (struct.error, ValueError):
        return ""
