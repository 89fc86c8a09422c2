"""What lint could not judge: the facts that connectors lack, the rules that need them, and what supplies them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from mm2mgr.formats.templates import templates
from mm2mgr.lint.hops import SIDES, Point, filter_of, point, same
from mm2mgr.lint.rules.refusals import foreign_classes
from mm2mgr.lint.rules.worker import arrives
from mm2mgr.lint.subject import Estate, Subject
from mm2mgr.lint.target_names import policy_of


@dataclass(frozen=True)
class Fact:
    """A fact that some rules need. `open` is what is not judged without it, `give` what supplies it.

    `asked`: brokers report it, and those that were asked and did not answer are reasons.
    """

    name: str
    open: str
    give: str
    rules: tuple[str, ...]
    lacking: Callable[[Estate], Iterable[Subject]]
    asked: bool = False


@dataclass(frozen=True)
class NotJudged:
    """What was not judged, for how many connectors, and why a cluster that was asked did not answer."""

    fact: str
    open: str
    give: str
    rules: tuple[str, ...]
    connectors: int
    reasons: tuple[str, ...] = ()


def _lacking(lacks: Callable[[Subject], bool], *types: str) -> Callable[[Estate], Iterator[Subject]]:
    """Return what yields the connectors of an estate (of some types only) that lack something."""
    return lambda estate: (
        subject for subject in estate.subjects if (not types or subject.type in types) and lacks(subject)
    )


def _other_addresses(estate: Estate) -> Iterator[Subject]:
    """Yield connectors with an address of an alias that has another address elsewhere: one cluster or two."""
    first: dict[str, Point] = {}
    for subject in estate.subjects:
        for here in (point(subject, side) for side in SIDES):
            if here.alias and here.addresses:
                other = first.setdefault(here.alias, here)
                if not same(here, other) and not (here.cluster_id and other.cluster_id):
                    yield subject


def _of_unknown_policy(subject: Subject) -> bool:
    worker = subject.worker
    return worker.policy is None and worker.properties is None and any(".override." in key for key in subject.kind.keys)


# Where they matter: with one of these, exactly-once workers do something else than others. A tree declares them.
_OF_EXACTLY_ONCE = ("exactly.once.support", "producer.override.bootstrap.servers", "producer.override.transactional.id")


def _of_unknown_delivery(subject: Subject) -> bool:
    is_known = (
        subject.worker.exactly_once is not None or subject.worker.properties is not None or subject.form == "tree"
    )
    return not is_known and any(subject.get(key) for key in _OF_EXACTLY_ONCE)


def _of_unread_brokers(subject: Subject) -> bool:
    wire = subject.wire
    if wire is None:
        return False
    writes = bool(wire.route and wire.route.writing)
    reads = not wire.route or bool(wire.route.reading)
    return (reads and not wire.source.read) or (writes and not wire.target.read)


def _filters_records(subject: Subject) -> bool:
    types = (subject.get(f"transforms.{name}.type") for name in subject.items("transforms"))
    return policy_of(subject) == "identity" and any(type_.rpartition(".")[2] == "Filter" for type_ in types)


_LOOPS = ("overlap", "loop", "identity-loop", "two-ways", "fan-in", "renamed")

FACTS = (
    Fact(
        "Kafka version of the workers",
        "keys, defaults and known bugs (the newest Kafka's apply)",
        "--kafka, --connect, or `version` of the Connect cluster",
        (
            *("key-too-new", "key-removed", "key-deprecated", "kafka-unknown", "dead-key", "invalid-value"),
            *("exactly-once-unsupported", "include-excluded", "heartbeats-twice", "reset-latest"),
            *("class-refused", "refused-by-code", "plugin-settings", "upgrade-lists"),
            *("alter-configs-replaces", "bad-address", "delivery-below-request", "policy-class"),
            *("known-bug", "minor-bugs", "upgrade-override-policy", "upgrade-metric-names", "upgrade-deprecated"),
            "internal-rest-too-new",
        ),
        _lacking(lambda subject: subject.known_version is None),
    ),
    Fact(
        "cluster ids",
        "whether records are written to the target",
        "--connect, or `cluster_id` of the clusters",
        ("wrong-kafka",),
        _lacking(lambda subject: arrives(subject) is None),
        asked=True,
    ),
    Fact(
        "cluster ids of one alias",
        "whether an alias with several addresses is one cluster",
        "--connect, or one list of addresses",
        ("alias-reused", "cluster-two-aliases", *_LOOPS),
        lambda estate: dict.fromkeys(_other_addresses(estate)),
        asked=True,
    ),
    Fact(
        "override policy",
        "whether the workers refuse an override",
        "--connect, or --worker",
        ("policy-forbids",),
        _lacking(_of_unknown_policy),
    ),
    Fact(
        "properties of the workers",
        "values of keys; converters, stores, providers they bring",
        "--worker",
        (
            *("worker-value", "provider-unknown", "worker-keystore-clash", "catches-internal", "converter"),
            "offset-syncs-block",
        ),
        _lacking(lambda subject: subject.worker.properties is None),
    ),
    Fact(
        "plugins of the workers",
        "whether the workers have the connector's class",
        "--connect",
        ("plugin-missing",),
        _lacking(lambda subject: subject.worker.plugins is None and subject.form != "dedicated"),
    ),
    Fact(
        "classes that are not Kafka's",
        "whether the workers have them, and of the right kind",
        "--connect for transformations, predicates and converters (workers of 3.2 and newer list them); plan, which "
        "asks workers to validate, for others",
        ("class-refused",),
        _lacking(lambda subject: any(foreign_classes(subject))),
    ),
    Fact(
        "exactly-once of the workers",
        "where offsets are, and what the workers force",
        "--connect, --worker, or `exactly_once` of the Connect cluster",
        ("exactly-once-worker", "exactly-once-overrides", "exactly-once-slow", "forced-key", "transactional-id"),
        _lacking(_of_unknown_delivery, "source"),
    ),
    Fact(
        "number of brokers",
        "whether replication factors are possible",
        "--connect, or --brokers",
        ("replication-factor",),
        _lacking(
            lambda subject: (
                not subject.target_kafka.brokers or not (subject.type != "source" or subject.source_kafka.brokers)
            )
        ),
        asked=True,
    ),
    Fact(
        "record limits of brokers and topics",
        "whether the largest and the oldest records pass",
        "mm2mgr check, for a tree",
        ("request-below-records", "request-above-target", "batch-above-topic", "record-refused"),
        _lacking(
            lambda subject: None in (subject.source_kafka.message_max_bytes, subject.target_kafka.message_max_bytes),
            "source",
        ),
    ),
    Fact(
        "round trip",
        "whether fetches, batches and windows fit the link",
        "--rtt, or `links` of a tree",
        ("fetch-stalls", "fetch-small", "request-stalls", "batch-small", "one-in-flight", "send-window-small"),
        _lacking(lambda subject: subject.wire is None, "source"),
    ),
    Fact(
        "what brokers allow",
        "whether their socket buffers cap the link",
        "mm2mgr link read, for a tree",
        ("broker-window",),
        _lacking(_of_unread_brokers, "source"),
    ),
    Fact(
        "what classes of one's own do",
        "which topics connectors share, and loops",
        "compare the topics by hand",
        _LOOPS,
        _lacking(lambda subject: policy_of(subject) is None or filter_of(subject) is None, "source"),
    ),
    Fact(
        "what a template fills in",
        "values that a template fills in",
        "the file as the template writes it",
        ("invalid-value", "bad-address", "bad-pattern", "jaas-syntax", "jaas-module", "security-incomplete", *_LOOPS),
        _lacking(lambda subject: bool(templates(subject.config))),
    ),
    Fact(
        "what Filter transformations let through",
        "whether records of topics that keep their names return",
        "compare the predicates of both directions by hand",
        ("identity-loop", "two-ways"),
        _lacking(_filters_records, "source"),
    ),
    Fact(
        "the other connectors",
        "what other connectors share with these",
        "--connect, or all files at once",
        (*_LOOPS, "checkpoint-without-syncs", "same-name"),
        lambda estate: () if estate.complete else estate.subjects,
    ),
    Fact(
        "Kafka newer than the newest known",
        "what is new there (judged by the newest known Kafka)",
        "a newer mm2mgr",
        (),
        _lacking(lambda subject: subject.is_beyond),
    ),
)


def not_judged(estate: Estate, rules: Collection[str]) -> tuple[NotJudged, ...]:
    """Return what was not judged for lack of facts, by fact; `rules` are the ids of those that ran."""
    unknown = []
    for fact in FACTS:
        needing = tuple(rule for rule in fact.rules if rule in rules)
        lacking = list(fact.lacking(estate)) if needing else []
        if lacking:
            kafkas = (kafka for subject in lacking for kafka in subject.kafkas) if fact.asked else ()
            reasons = tuple(dict.fromkeys(kafka.unanswered for kafka in kafkas if kafka.unanswered))
            unknown.append(NotJudged(fact.name, fact.open, fact.give, needing, len(lacking), reasons))
    return tuple(unknown)
