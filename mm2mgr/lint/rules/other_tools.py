"""The rule about keys that people bring along from other mirroring tools."""

from __future__ import annotations

from collections.abc import Iterator

from mm2mgr.defaults import POLICIES
from mm2mgr.lint.classify import keys_under
from mm2mgr.lint.findings import Edit, Hit, edit_hit, rule, written
from mm2mgr.lint.rules.keys import has_own_classes
from mm2mgr.lint.subject import Subject
from mm2mgr.truth.keys import load
from mm2mgr.truth.other_tools import other_tool

# What MirrorMaker does without these: Kafka's defaults take everything, or exclude only what is internal.
_INSTEAD_OF = {
    "topics": "every topic is mirrored",
    "topics.exclude": "these topics are mirrored",
    "groups": "every group is checkpointed",
    "groups.exclude": "these groups are checkpointed",
}
_POLICY = "replication.policy.class"


@rule("other-tools-key", "error", source="documentation of Confluent Replicator, Mirus and MirrorMaker 1")
def other_tools_key(subject: Subject) -> Iterator[Hit]:
    """This key belongs to another mirroring tool; MirrorMaker does not read it.

    Configs that were moved from Confluent Replicator (topic.whitelist, src.kafka.*, dest.kafka.*, topic.rename.format),
    Mirus (topics.whitelist, destination.topic.name.*), MirrorMaker 1 (whitelist, num.streams), uReplicator or Brooklin
    keep keys that Connect accepts and nobody reads; topics.whitelist, topics.include and groups.include were never keys
    of MirrorMaker 2. It is an error where the key selects topics or groups, because the defaults take all of them, and
    a warning otherwise. Write the key of MirrorMaker with the same meaning. Where custom classes are configured, which may
    read such keys, nothing is reported.
    """
    found = keys_under(subject, "other-tools-key")
    for key in () if found and has_own_classes(subject) else found:
        other = other_tool(key)
        if other is None:
            continue
        ours, value = _ours(subject, key, other.instead)
        own = bool(load().history(subject.type, ours))
        lost = _INSTEAD_OF.get(ours, "") if own and ours not in subject.config else ""
        reads = bool(ours) and ours not in subject.config and (own or ours.startswith(("source.", "target.")))
        edits = [Edit(ours, value), Edit(key, None)] if reads and value else [Edit(key, None)]
        whose = f"is a key of {other.tool}, which MirrorMaker does not read"
        if not other.tool:
            whose = "was never a key of MirrorMaker 2 and does nothing"
        message = f"{written(subject, key)} {whose}{': ' if lost else ''}{lost}"
        hit = edit_hit(subject, message, edits, key)
        yield hit if lost else hit.lowered("warning")


def _ours(subject: Subject, key: str, instead: str) -> tuple[str, str]:
    """Return the key and value of the same meaning."""
    value = subject.get(key)
    if key == "topic.rename.format" and value == "${topic}":
        return _POLICY, POLICIES["identity"]
    return instead, value
