"""Everything about one flow as JSON-ready values: clusters, connectors, tasks, partitions, lag, traces, settings. Pure.

In: a flow with its reading, lag and status. Out: a Description; secrets are masked here, traces cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mm2mgr import secrets
from mm2mgr.observe.health import FlowStatus, Status
from mm2mgr.observe.lag import FlowLag
from mm2mgr.observe.reading import Reading, SeenConnector
from mm2mgr.topology import Flow, KafkaCluster, config_text

_TRACE_LINES = 12
_TRACE_CHARACTERS = 200
_CLIENTS = (
    "source_consumer",
    "record_producer",
    "source_admin",
    "target_admin",
    "offset_syncs_producer",
    "target_consumer",
)


@dataclass(frozen=True)
class Description:
    """One flow, told in full."""

    flow: Flow
    reading: Reading
    lag: FlowLag
    status: Status

    @property
    def flow_status(self) -> FlowStatus:
        """The flow's own status."""
        return next(one for one in self.status.flows if one.flow == self.flow.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the description; `topics` maps each source topic to where its records go."""
        flow, seen = self.flow, self.reading.source_connector(self.flow)
        return {
            "flow": flow.id,
            "source": _cluster(flow.source),
            "target": _cluster(flow.target),
            "connect": {"name": flow.connect.name, "urls": list(flow.connect.model.url), "kafka": flow.connect.kafka},
            "status": self.flow_status.to_dict(),
            "trace": trace_lines(seen.status.trace) if seen and seen.status else [],
            "tasks": _tasks(seen) if seen else [],
            "lag": [one.to_dict() for one in self.lag.partitions],
            "topics": self.topics(),
            "companions": [one.to_dict() for one in self.status.companions],
            "settings": [
                {"setting": name, "value": value, "origin": origin} for name, value, origin in _settings(flow)
            ],
            "losses": [one.to_dict() for one in self.status.losses],
            "warnings": list(self.status.warnings),
            "failures": {where: failure.to_dict() for where, failure in self.status.failures.items()},
        }

    def topics(self) -> list[dict[str, Any]]:
        """Return each topic that the flow carries, its name on the target, and its partitions."""
        counts: dict[str, int] = {}
        for one in self.lag.partitions:
            counts[one.partition.topic] = counts.get(one.partition.topic, 0) + 1
        return [
            {"topic": topic, "remote_topic": self.flow.remote_topic(topic), "partitions": count}
            for topic, count in sorted(counts.items())
        ]


def trace_lines(trace: str | None) -> list[str]:
    """Return the first lines of a Java trace and its last cause; masked before they are cut."""
    lines = secrets.mask_text(trace or "").splitlines()
    shown = lines[:_TRACE_LINES]
    causes = [line for line in lines[_TRACE_LINES:] if line.startswith("Caused by:")]
    if len(lines) > len(shown):
        shown += ["…", *causes[-1:]]
    return [line.rstrip()[:_TRACE_CHARACTERS] for line in shown]


def _cluster(cluster: KafkaCluster) -> dict[str, Any]:
    protocol = cluster.client.get("security.protocol", "PLAINTEXT")
    return {
        "alias": cluster.alias,
        "bootstrap_servers": str(cluster.client["bootstrap.servers"]),
        "security_protocol": str(protocol),
    }


def _tasks(seen: SeenConnector) -> list[dict[str, Any]]:
    assigned = seen.assigned()
    return [
        {
            "id": task.id,
            "state": task.state,
            "worker": task.worker_id,
            "partitions": [str(one) for one in sorted(assigned.get(task.id, ()))],
            "trace": trace_lines(task.trace),
        }
        for task in (seen.status.tasks if seen.status else ())
    ]


def _settings(flow: Flow) -> Iterator[tuple[str, str, str]]:
    """Yield setting, value and who said it; of the clients only what differs from Kafka's own defaults."""
    s = flow.settings
    simple: dict[tuple[str, ...], object] = {
        ("topics", "include"): ", ".join(s.topics.include),
        ("topics", "exclude"): ", ".join(s.topics.exclude),
        ("replication_policy",): s.replication_policy,
        ("separator",): s.separator,
        ("refresh_interval",): f"{s.refresh_interval:g} s",
        ("checkpoints", "enabled"): s.checkpoints.enabled,
        ("checkpoints", "group_offsets"): s.checkpoints.group_offsets,
        ("heartbeats", "enabled"): s.heartbeats.enabled,
        ("offset_syncs", "enabled"): s.offset_syncs.enabled,
        ("offset_syncs", "location"): s.offset_syncs.location,
        ("sync", "topic_configs"): s.sync.topic_configs,
        ("sync", "topic_acls"): s.sync.topic_acls,
    }
    yield "tasks.max", str(flow.tasks.maximum), str(flow.tasks.maximum.origin)
    for path, value in simple.items():
        yield ".".join(path), config_text(value), str(flow.origin(*path))
    for block in _CLIENTS:
        for key, text in flow.client(block).items():
            yield f"{block}.{key}", secrets.mask(key, text), str(text.origin)
