"""Where the clients that Connect itself gives a connector are sent: the record producer, and what keeps its offsets. Pure.

In: a flow and the Kafka cluster that a connector's records go to. Out: settings without their prefix (`producer.override.`,
`consumer.override.`, `admin.override.`). MirrorMaker's own clients are not its business.
"""

from __future__ import annotations

from mm2mgr.origins import Origin, Text
from mm2mgr.topology import Flow, KafkaCluster


def retarget(flow: Flow, records: KafkaCluster) -> dict[str, Text]:
    """Return what sends a client of Connect to `records` (without it, it goes to the workers' Kafka as the workers do)."""
    if _elsewhere(flow, records):
        # Whatever the workers' producer.security.protocol says would be inherited, so plain text is said too.
        return {"security.protocol": Text("PLAINTEXT", Origin("default", "Kafka")), **records.client}
    if flow.connect.model.producer_security == "connector":
        return {key: value for key, value in records.client.items() if key != "bootstrap.servers"}
    return {}


def own_offsets(flow: Flow, records: KafkaCluster, block: str) -> dict[str, dict[str, Text]]:
    """Return the clients that keep the offsets of a connector, and its other keys (`block` of the flow), by template name.

    On exactly-once workers offsets are part of the records' transaction, so they live on `records` too (KIP-618). A
    consumer or an admin left on the workers' Kafka lets the connector wait for ever, or duplicates records after a crash.
    """
    keys = flow.client(block)
    if not flow.connect.exactly_once:
        return {"offsets_consumer": {}, "offsets_admin": {}, "connector": keys}
    consumer = retarget(flow, records)
    if not _elsewhere(flow, records):  # the admin, unlike the others, has the workers' top-level security
        return {"offsets_consumer": consumer, "offsets_admin": {}, "connector": keys}
    if "offsets.storage.topic" not in getattr(flow.settings, block):
        keys = {"offsets.storage.topic": _offsets_topic(flow), **keys}
    return {"offsets_consumer": consumer, "offsets_admin": dict(consumer), "connector": keys}


def _elsewhere(flow: Flow, records: KafkaCluster) -> bool:
    return flow.connect.kafka != records.alias


def _offsets_topic(flow: Flow) -> Text:
    """Name the topic of offsets on a Kafka that is not the workers' own.

    Without a name it would be called as the workers' own topic, which that Kafka's Connect may use already, and a flow
    that reads from there would mirror it. Its offsets outrank the workers' own, so it must be in use with and without
    exactly-once alike: a topic that comes and goes would bring old offsets back.
    """
    why = "mm2mgr: offsets go where the records go; mm2*.internal is never mirrored"
    return Text(f"mm2mgr-offsets.{flow.connect.name}.internal", Origin("default", why))
