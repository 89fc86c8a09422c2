"""Whether consumers at a target resolve the schema ids in mirrored records to the schemas of the source. Pure.

MirrorMaker copies keys, values and headers as they are, schema ids included; schemas it does not copy, and nor does
mm2mgr. An id that the source's own registry does not know is no id: the data only begin with a zero byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from mm2mgr.errors import Mm2mgrError
from mm2mgr.live.schemas import Resolved, SchemaIds, SchemasById
from mm2mgr.live.snapshot import NotInSnapshot, Snapshot, Steps
from mm2mgr.registry.ids import Part, RegisteredSchema, SchemaId, TopicSample
from mm2mgr.text import few, number_of
from mm2mgr.topology import KafkaCluster

State = Literal["differs", "absent", "unusable", "not judged", "no id", "equal"]
"""Another schema there, none, one that lacks what it refers to; not known; not an id of the source's; the same."""
BROKEN: frozenset[State] = frozenset(("differs", "absent", "unusable"))
MOST_TOPICS = 1_000
"""Of one cluster, of which records are read."""
MOST_LOOKUPS = 500
"""Of one registry."""


@dataclass(frozen=True)
class PairTopics:
    """The mirrored topics of a pair as they are on the cluster `sampled_at`, with their partitions."""

    source: KafkaCluster
    target: KafkaCluster
    sampled_at: str
    topics: Mapping[str, int]

    @property
    def is_declared(self) -> bool:
        """Whether one of the clusters declares a schema registry; without that no record is read."""
        return self.source.model.schema_registry is not None or self.target.model.schema_registry is not None


@dataclass(frozen=True)
class SchemaVerdict:
    """One id in keys or values of a topic: its subject, and the fingerprints of its schema on both sides ("": none).

    `records` of the sample carry it. `reason` says more: what is missing, or why it is not judged. `is_deleted`: the
    target has it as a deleted version only.
    """

    topic: str
    part: Part
    schema_id: SchemaId
    state: State
    subject: str = ""
    source_fingerprint: str = ""
    target_fingerprint: str = ""
    records: int = 0
    reason: str = ""
    is_deleted: bool = False

    @property
    def name(self) -> str:
        """The schema and where it is used."""
        subject = f" ({self.subject})" if self.subject else ""
        return f"schema {self.schema_id}{subject} in {self.part}s of topic {self.topic}"


@dataclass(frozen=True)
class OpenPoint:
    """What is not known of schemas, and why; `kind`: a registry that is not declared, a read that failed, or a sample
    that is not whole, or not in a snapshot."""

    where: str
    reason: str
    remedy: str = ""
    kind: Literal["undeclared", "failed", "sample", "snapshot"] = "failed"


@dataclass(frozen=True)
class PairSchemas:
    """The schemas of a pair: verdicts, worst first, and what is not judged. `topics` were sampled."""

    source: str
    target: str
    verdicts: tuple[SchemaVerdict, ...] = ()
    open_points: tuple[OpenPoint, ...] = ()
    topics: int = 0

    @property
    def equal(self) -> tuple[SchemaVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.state == "equal")


def find_schemas(pairs: Sequence[PairTopics]) -> Steps[list[PairSchemas]]:
    """Read the schema ids of mirrored records, look them up on both sides, and judge each pair.

    Pairs without a registry are passed over, and cost nothing.
    """
    declared = [pair for pair in pairs if pair.is_declared and pair.topics]
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for pair in declared:
        topics[pair.sampled_at].update(pair.topics)
    samples = {alias: SchemaIds(alias, tuple(sorted(counts.items())[:MOST_TOPICS])) for alias, counts in topics.items()}
    snapshot = yield samples.values()
    by_alias = {alias: snapshot.get(question) for alias, question in samples.items()}
    ids: dict[str, set[SchemaId]] = defaultdict(set)
    for pair in declared:
        answer = by_alias[pair.sampled_at]
        for cluster in (pair.source, pair.target):
            if cluster.model.schema_registry is not None and not isinstance(answer, Mm2mgrError):
                ids[cluster.alias] |= {schema_id for _, schema_id in _ids_of(answer, pair.topics)}
    lookups = {
        alias: SchemasById(alias, frozenset(sorted(of_alias)[:MOST_LOOKUPS]))
        for alias, of_alias in ids.items()
        if of_alias
    }
    snapshot = yield lookups.values()
    return [judge_pair(pair, by_alias[pair.sampled_at], _side(pair.source, lookups, snapshot),
                       _side(pair.target, lookups, snapshot)) for pair in declared]  # fmt: skip


Side: TypeAlias = Resolved | Mm2mgrError | None
"""What a registry answered; why it did not; None where none is declared."""


def _side(cluster: KafkaCluster, lookups: Mapping[str, SchemasById], snapshot: Snapshot) -> Side:
    if cluster.model.schema_registry is None:
        return None
    return snapshot.get(lookups[cluster.alias]) if cluster.alias in lookups else {}


def _ids_of(samples: Mapping[str, TopicSample], topics: Iterable[str]) -> Iterator[tuple[Part, SchemaId]]:
    for topic in topics:
        if topic in samples:
            yield from samples[topic].every_id()


# --- judging ----------------------------------------------------------------------------------------------------------


def judge_pair(
    pair: PairTopics, answer: Mapping[str, TopicSample] | Mm2mgrError, source: Side, target: Side
) -> PairSchemas:
    """Judge every id of a pair's sample by what both registries have under it."""
    aliases = pair.source.alias, pair.target.alias
    if isinstance(answer, Mm2mgrError):
        return PairSchemas(*aliases, open_points=(_failure_point(pair.sampled_at, "schema ids of records", answer),))
    samples = {topic: answer[topic] for topic in pair.topics if topic in answer}
    verdicts = [
        replace(_verdict(sample.topic, part, schema_id, (source, target)), records=sample.ids[part][schema_id])
        for sample in samples.values()
        for part, schema_id in sample.every_id()
    ]
    verdicts.sort(key=lambda verdict: (_ORDER.index(verdict.state), verdict.topic, verdict.part, verdict.schema_id))
    in_doubt = [verdict for verdict in verdicts if verdict.state == "not judged"]
    open_points = [*_sides(pair, in_doubt, source, target), *_gaps(pair, samples)]
    reasons: dict[str, list[SchemaVerdict]] = defaultdict(list)
    for verdict in in_doubt:
        if verdict.reason:
            reasons[verdict.reason].append(verdict)
    open_points += [
        OpenPoint(aliases[1], f"{few([verdict.name for verdict in group])}: {reason}")
        for reason, group in reasons.items()
    ]
    return PairSchemas(*aliases, tuple(verdicts), tuple(open_points), len(samples))


_ORDER: tuple[State, ...] = ("differs", "absent", "unusable", "not judged", "no id", "equal")
_TOO_MANY = f"more than {MOST_LOOKUPS} ids were found, and no more are looked up"


def _verdict(topic: str, part: Part, schema_id: SchemaId, sides: tuple[Side, Side]) -> SchemaVerdict:
    source, target = sides
    here, there = _entry(source, schema_id), _entry(target, schema_id)
    if isinstance(source, Mapping) and here is None:
        return SchemaVerdict(topic, part, schema_id, "no id")
    own = here if isinstance(here, RegisteredSchema) else None
    theirs = there if isinstance(there, RegisteredSchema) else None
    subject = _subject(topic, part, own or theirs)
    fingerprints = own.fingerprint if own else "", theirs.fingerprint if theirs else ""
    state: State = "not judged"
    reason = next((side.message for side in (here, there) if isinstance(side, Mm2mgrError)), "")
    if own and own.missing:
        reason = f"the source's registry itself lacks {own.missing}, to which it refers"
    elif own and isinstance(target, Mapping) and not isinstance(there, Mm2mgrError):
        if theirs is None:
            state = "absent"
        elif theirs.missing:
            state, reason = "unusable", theirs.missing
        else:
            state = "equal" if theirs.fingerprint == own.fingerprint else "differs"
    is_deleted = theirs is not None and theirs.is_deleted
    return SchemaVerdict(topic, part, schema_id, state, subject, *fingerprints, 0, reason, is_deleted)


def _entry(side: Side, schema_id: SchemaId) -> RegisteredSchema | Mm2mgrError | None:
    """Return what a registry has under an id, or why that is not known for this id alone."""
    if side is None or isinstance(side, Mm2mgrError):
        return None
    entry: RegisteredSchema | Mm2mgrError | None = side.get(schema_id, Mm2mgrError(_TOO_MANY))
    return entry


def _subject(topic: str, part: Part, schema: RegisteredSchema | None) -> str:
    """Return the subject by which a schema is named: that of the topic (TopicNameStrategy) before others."""
    names = schema.subjects if schema else ()
    usual = [name for name in names if topic.endswith(name.removesuffix(f"-{part}")) and name.endswith(f"-{part}")]
    return (usual or [*names, ""])[0]


def _sides(pair: PairTopics, in_doubt: Sequence[SchemaVerdict], source: Side, target: Side) -> Iterator[OpenPoint]:
    """Yield what keeps all ids of a pair from being judged."""
    doubtful = [verdict for verdict in in_doubt if not verdict.reason]
    if not doubtful:
        return
    topics = list(dict.fromkeys(verdict.topic for verdict in doubtful))
    seem = "carry" if isinstance(source, Mapping) else "seem to carry"
    text = f"records of {number_of(len(topics), 'topic')} ({few(topics)}) {seem} schema ids"
    for cluster, side in ((pair.source, source), (pair.target, target)):
        if side is None:
            reason = f"{text}, and {cluster.alias} declares no schema registry"
            yield OpenPoint(
                cluster.alias, reason, f"write `schema_registry: {{url: …}}` for {cluster.alias}", "undeclared"
            )
        elif isinstance(side, Mm2mgrError):
            yield _failure_point(cluster.alias, text, side)


def _failure_point(where: str, subject: str, error: Mm2mgrError) -> OpenPoint:
    kind: Literal["snapshot", "failed"] = "snapshot" if isinstance(error, NotInSnapshot) else "failed"
    return OpenPoint(where, f"{subject}: {error.one_line}", error.hint or "", kind)


def _gaps(pair: PairTopics, samples: Mapping[str, TopicSample]) -> Iterator[OpenPoint]:
    """Yield topics of which no record was read."""
    refused: dict[str, list[str]] = defaultdict(list)
    for topic, sample in samples.items():
        if sample.failure:
            refused[sample.failure].append(topic)
    for reason, topics in refused.items():
        remedy = f"mm2mgr's login needs Read on {few([f'topic {topic}' for topic in topics])}"
        is_right = "authoriz" in reason.lower()
        yield OpenPoint(pair.sampled_at, f"records of {few(topics)} could not be read: {reason}", remedy * is_right)
    late = [topic for topic in pair.topics if topic not in samples]
    if late:
        text = f"records of {number_of(len(late), 'topic')} were not read in time ({few(late)})"
        yield OpenPoint(pair.sampled_at, text, "name fewer flows, or give more time", "sample")


# --- words ------------------------------------------------------------------------------------------------------------


def effect_of(verdict: SchemaVerdict, source: str, target: str) -> str:
    """Say what a schema that is not the same does to consumers at the target."""
    if verdict.state == "differs":
        return (
            f"the registry of {target} has another schema under this id (fingerprint {verdict.target_fingerprint}, at "
            f"{source} {verdict.source_fingerprint}): consumers there read these records wrongly, or fail"
        )
    if verdict.state == "unusable":
        return (
            f"the registry of {target} has this schema (fingerprint at {source} {verdict.source_fingerprint}) without "
            f"{verdict.reason}, to which it refers: consumers there cannot read these records"
        )
    return (
        f"the registry of {target} has no schema under this id (fingerprint at {source} "
        f"{verdict.source_fingerprint}): consumers there cannot read these records"
    )


def remedy_of(verdict: SchemaVerdict, source: str) -> str:
    """Say what to do about it."""
    if verdict.state == "differs":
        return (
            f"an id cannot be changed where records carry it: let consumers there use the registry of {source}, or one "
            "that has the source's schemas under their ids; mm2mgr copies no schemas"
        )
    return (
        "copy the schemas there with their ids (Confluent: schema linking, or mode IMPORT; Apicurio: export and "
        f"import), or let consumers there use the registry of {source}; mm2mgr copies no schemas"
    )
