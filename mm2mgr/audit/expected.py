"""What a connector's config makes of the records of one topic, and what "equal" then promises. Pure.

Read from the rendered config and the settings of both topics, never guessed: a transformation that is not Kafka's own
may do anything, so its topics are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mm2mgr.audit.windows import ALL_FIELDS, Expectation, Matching, RecordStep

_KAFKAS = "org.apache.kafka.connect.transforms."
_PREDICATES = f"{_KAFKAS}predicates."
_NAMES_ONLY = ("RegexRouter", "TimestampRouter", "SetSchemaMetadata")
_HEADERS = ("InsertHeader", "HeaderFrom")
_SIMPLE_HEADERS = "SimpleHeaderConverter"


class NotJudgeable(ValueError):
    """Why the records of a topic cannot be compared with what the config makes of them."""


@dataclass(frozen=True)
class TopicFacts:
    """What decides about the records of one topic, beside the connector's config.

    Settings of both topics (empty: unknown), whether another flow writes to the same topic, whether the workers write
    with transactions, and what the source's consumer has for isolation.level and auto.offset.reset.
    """

    source: Mapping[str, str] = field(default_factory=dict)
    target: Mapping[str, str] = field(default_factory=dict)
    other_writers: tuple[str, ...] = ()
    exactly_once: bool = False
    reads_committed: bool = False
    begins_at: str = "earliest"


def expectation(config: Mapping[str, str], facts: TopicFacts, dropped_by: str | None = None) -> Expectation:
    """Return what becomes of records; NotJudgeable where nobody can know.

    `dropped_by`: the transformation that drops the topic as a whole, None for none.
    """
    if dropped_by is not None:
        raise NotJudgeable(f"transformation '{dropped_by}' drops the whole topic")
    altered, steps = dict[str, str](), list[RecordStep]()
    for alias in _items(config.get("transforms", "")):
        for name in _altered_fields(config, alias):
            altered.setdefault(name, alias)
        steps.extend(_steps(config, alias))
    if config.get("header.converter", "").endswith(_SIMPLE_HEADERS):
        altered.setdefault("headers", "header.converter")
    if _is(facts.target, "message.timestamp.type", "LogAppendTime"):
        altered.setdefault("timestamp", "message.timestamp.type=LogAppendTime")
    compacted = any("compact" in settings.get("cleanup.policy", "") for settings in (facts.source, facts.target))
    if compacted and facts.other_writers:
        others = ", ".join(facts.other_writers)
        raise NotJudgeable(f"compacted, and also written by {others}: the latest record of a key may be of either")
    if compacted and any(step.removes is None for step in steps):
        raise NotJudgeable("compacted, and a transformation drops records: what is left of a key may be either's")
    if compacted and "key" in altered:
        raise NotJudgeable(
            f"compacted, and transformation '{altered['key']}' alters keys: which belong together is unknown"
        )
    matching = Matching.LATEST if compacted else Matching.FAN_IN if facts.other_writers else Matching.ORDERED
    late = ""
    if facts.begins_at == "latest":
        late = "the flow begins at the log's end of its first start (auto.offset.reset=latest)"
    return Expectation(matching, tuple(name for name in ALL_FIELDS if name not in altered), tuple(steps), late)


def promises(config: Mapping[str, str], facts: TopicFacts, expected: Expectation) -> Iterator[str]:
    """Yield the sentences that say what "equal" means for a topic."""
    if expected.matching is Matching.LATEST:
        yield (
            "compacted: of each key the latest record of the source is the latest on the target; older ones that"
            " compaction removes are not compared, and a tombstone may be gone on either side"
        )
    elif expected.matching is Matching.FAN_IN:
        others = ", ".join(facts.other_writers)
        judged = (
            "each record, or one like it, is there, in order; what came twice, and records of others, are not judged"
        )
        yield f"the target is also written by {others}: {judged}"
    else:
        yield "each record is on the target once, in order, and the target has no other"
    for name in ALL_FIELDS:
        if name not in expected.fields:
            yield f"{name}: not compared, altered by {_cause(config, facts, name)}"
    for step in expected.steps:
        yield step.says
    if config.get("transforms"):
        yield "the transformations are those of the tree now, also for records that were mirrored before these"
    if facts.exactly_once:
        yield "the target is read without aborted and open transactions, so a record that came twice is a fault"
    else:
        yield "delivery is at least once: a record that came twice after a restart is told as duplicated"
    if facts.reads_committed:
        yield "the source is read without aborted transactions, as the flow reads it"
    if expected.late:
        yield f"{expected.late}: records before the first mirrored one are expected to be missing"


def _cause(config: Mapping[str, str], facts: TopicFacts, name: str) -> str:
    for alias in _items(config.get("transforms", "")):
        if name in _altered_fields(config, alias):
            return f"transformation '{alias}' ({_class_of(config, alias)})"
    if name == "timestamp" and _is(facts.target, "message.timestamp.type", "LogAppendTime"):
        return "the target topic's message.timestamp.type=LogAppendTime"
    return "header.converter=SimpleHeaderConverter"


def _altered_fields(config: Mapping[str, str], alias: str) -> tuple[str, ...]:
    name = _class_of(config, alias)
    simple, _, part = name.partition("$")
    if simple in (*_NAMES_ONLY, "Filter", "DropHeaders"):
        return ()
    if simple in _HEADERS:
        moved = (part.lower(),) if part and config.get(f"transforms.{alias}.operation", "").strip() == "move" else ()
        return ("headers", *moved)
    if simple == "ValueToKey":
        return ("key",)
    return (part.lower(),) if part in ("Key", "Value") else ()


def _steps(config: Mapping[str, str], alias: str) -> Iterator[RecordStep]:
    simple = _class_of(config, alias).partition("$")[0]
    if simple not in ("Filter", "DropHeaders"):
        return
    removes = None
    if simple == "DropHeaders":
        removes = frozenset(_items(config.get(f"transforms.{alias}.headers", "")))
    predicate = config.get(f"transforms.{alias}.predicate", "").strip()
    negated = config.get(f"transforms.{alias}.negate", "").strip().lower() == "true"
    does = "drops" if removes is None else f"removes headers {', '.join(sorted(removes))} of"
    head = f"transformation '{alias}' ({simple}) {does}"
    if not predicate:
        yield RecordStep(f"{head} every record", removes)
        return
    kind = config.get(f"predicates.{predicate}.type", "").strip().removeprefix(_PREDICATES)
    if kind == "RecordIsTombstone":
        selected = "records that are no tombstone" if negated else "tombstones"
        yield RecordStep(f"{head} {selected}", removes, "tombstones", negated=negated)
    elif kind == "HasHeaderKey":
        header = config.get(f"predicates.{predicate}.name", "").strip()
        selected = f"records {'without' if negated else 'with'} header {header}"
        yield RecordStep(f"{head} {selected}", removes, "header", header, negated)
    elif kind != "TopicNameMatches":  # which decides for the whole topic: see `dropped_by`
        raise NotJudgeable(f"predicate '{predicate}' ({kind}) of transformation '{alias}' is not Kafka's own")
    elif removes is not None:
        raise NotJudgeable(f"transformation '{alias}' removes headers by the topic's name")


def _class_of(config: Mapping[str, str], alias: str) -> str:
    """Return the class of Kafka's own; NotJudgeable for any other."""
    name = config.get(f"transforms.{alias}.type", "").strip()
    if name.startswith(_KAFKAS):
        return name.removeprefix(_KAFKAS)
    if "." in name or not name:
        raise NotJudgeable(f"transformation '{alias}' ({name or 'no class'}) is not Kafka's own: it may do anything")
    return name


def _is(settings: Mapping[str, str], key: str, value: str) -> bool:
    return settings.get(key, "") == value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
