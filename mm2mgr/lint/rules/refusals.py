"""Rules about what Kafka's code refuses although its definitions allow it: classes, values together, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mm2mgr.connectors import CLASSES, PACKAGE
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.findings import (
    RECORDS,
    Edit,
    Hit,
    connector_hit,
    edit_hit,
    failing,
    file_key,
    keys_ending,
    removal_hit,
    rule,
    show,
    spell,
)
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.secrets import is_secret
from mm2mgr.text import nearest, whole_number
from mm2mgr.truth import classes
from mm2mgr.truth.exclusions import EXCLUSIONS, INTERVALS, LONGEST_SECONDS, READ, Exclusion, Settings, matters
from mm2mgr.truth.keys import NO_DOUBLES, item_problem, load
from mm2mgr.truth.reach import Client, numbers, seen_by

_START = "FAILED when it starts"
_OF_CLASSES = ("class", "converter", "classes", "reporters", "strategy", "serializer", ".type")
# These decide whether it is made.
_BESIDE_CLASSES = ("transforms", "predicates", "metric.names.formats", "security.protocol", "group.protocol")
_TRANSFORMS = "org.apache.kafka.connect.transforms"


@rule(
    "class-refused",
    "error",
    "Utils.newInstance, AbstractConfig.getConfiguredInstance",
    live="tests/lint/test_seen_live_start.py::test_a_transformation_is_looked_for_among_what_the_workers_list",
    needs=("class", "converter", "interceptor", "reporters", "strategy", "serializer", ".type"),
    reads=keys_ending(*_OF_CLASSES, *_BESIDE_CLASSES),
)
def class_refused(subject: Subject) -> Iterator[Hit]:
    """Kafka cannot use the class in this key.

    Kafka creates filters, policies, reporters, partitioners, interceptors, converters and callback handlers from the
    name of their class. A class that does not exist is refused by Connect (400) where the key is the connector's own;
    one of the wrong kind, such as a group filter as topic.filter.class, is found when the connector or a client is
    made: FAILED. A name needs its package, except for connectors, converters and transformations. Newer lines lack some
    classes: 4.0 has no DefaultPartitioner and no UniformStickyPartitioner. Classes that are not Kafka's are judged
    where workers were asked that list their plugins (3.2 and newer): transformations, predicates and converters. Others
    are not judged.
    """
    yield from _of_connector(subject)
    reported: set[str] = set()
    for check in _class_keys(subject.kind):
        if check.key in reported:
            continue
        if check.alias and check.alias not in subject.items(check.key.partition(".")[0]):
            continue  # transform-unlisted reports that it never runs
        names = subject.items(check.key) if check.listed else [subject.get(check.key)]
        for name in names:
            # By policy-class, transform-needs-fields and transform-incomplete.
            told = check.key == "replication.policy.class" and name.startswith(f"{PACKAGE}.")
            told = told or (bool(check.alias) and not name)
            told = told or (check.purpose == "transformation" and _is_strange(name))
            wrong = "" if is_open(name) or told else _wrong_class(subject, check, name)
            wrong = wrong or ("" if is_open(name) or not name else _absent(subject, check, name))
            if wrong:
                reported.add(check.key)
                yield _of_class(subject, check, name, wrong)
                break


def _is_strange(name: str) -> bool:
    return name.rpartition(".")[0] == _TRANSFORMS and not classes.is_of_other_lines("transformation", name)


@dataclass(frozen=True)
class _ClassKey:
    """A key with a class: its purpose, when it is created, by which client (None: the connector), whether a list."""

    key: str
    plain: str
    purpose: str
    use: classes.Use
    client: Client | None
    listed: bool
    alias: str = ""


def _of_connector(subject: Subject) -> Iterator[Hit]:
    key = "connector.class"
    name = subject.get(key)
    simple = name.removeprefix(f"{PACKAGE}.")
    if simple != name and simple not in CLASSES and not is_open(name):
        right = next(name for name, type_ in CLASSES.items() if type_ == subject.type)
        message = f"{file_key(subject, key)}={name}: Kafka has no such connector, and Connect refuses the config"
        # By hand: with a class that exists the connector starts to mirror.
        yield Hit(message, f"write {spell(subject, key, f'{PACKAGE}.{right}')}", key)
    for key in _has_blanks(subject):
        effect = "and Connect looks for one of that name: it refuses the config"
        message = f"{file_key(subject, key)} has a blank before or behind the class, {effect}"
        yield connector_hit(subject, key, subject.get(key), message)


def _has_blanks(subject: Subject) -> Iterator[str]:
    """Yield the keys whose class Connect takes as it is written; of all others it removes the blanks around it."""
    plugins = [key for key in subject.kind.keys if _ALIAS.fullmatch(key)] if numbers(subject.version) >= (4, 1) else ()
    for key in ("connector.class", *plugins):
        text = subject.config.get(key, "")
        told = key == "connector.class" and subject.spot.file and text == text.lstrip()  # by blank-in-value
        if text != text.strip() and not told and not is_open(text) and _is_listed(subject, key):
            yield key


def _is_listed(subject: Subject, key: str) -> bool:
    kind, _, rest = key.partition(".")
    return key == "connector.class" or rest.rpartition(".")[0] in subject.items(kind)


@lru_cache(maxsize=4096)
def _class_keys(kind: SubjectKind) -> tuple[_ClassKey, ...]:
    return tuple(check for key in kind.keys if key.endswith(_OF_CLASSES) for check in _of_key(kind, key))


_ALIAS = re.compile(r"(?P<kind>transforms|predicates)\.(?P<alias>[^.]+)\.type")
_PLUGINS = {"transforms": "transformation", "predicates": "predicate"}


def _of_key(kind: SubjectKind, key: str) -> Iterator[_ClassKey]:
    """Yield a key once for the connector, or once for each client that gets it: of two sides one may log in."""
    definitions, version = load(), kind.setting.version
    if plugin := _ALIAS.fullmatch(key):
        yield _ClassKey(key, key, _PLUGINS[plugin["kind"]], "always", None, listed=False, alias=plugin["alias"])
    elif own := definitions.find(kind.type, key, version):
        if purpose := classes.purpose_of(kind.type, key):
            yield _ClassKey(key, key, *purpose, None, own.type == "list")
    else:
        for client in kind.clients:
            for hit in seen_by(client, key):
                if kind.winners[client.name].get(hit.key) == key:
                    yield from _of_client(client, key, hit.key, version)


def _of_client(client: Client, key: str, plain: str, version: str) -> Iterator[_ClassKey]:
    definition, purpose = load().find(client.kind, plain, version), classes.purpose_of(client.kind, plain)
    # Of the record producer's serializers invalid-value reports any that takes no bytes.
    if purpose and definition and plain not in client.forced and (client.name != RECORDS or purpose[0] != "serializer"):
        # Connect's own consumer makes its deserializers from their names; MirrorMaker's are given theirs.
        use: classes.Use = "always" if client.worker_prefixes and purpose[0] == "deserializer" else purpose[1]
        yield _ClassKey(key, plain, purpose[0], use, client, definition.type == "list")


def _wrong_class(subject: Subject, check: _ClassKey, name: str) -> str:
    created = check.use == "always"
    if check.use in ("SASL", "SSL") and check.client:
        protocol = subject.value(check.client.name, "security.protocol") or ""
        created = check.use in protocol.upper()
    if check.purpose == "assignor" and check.client:  # the brokers assign, and no assignor is made
        created = (subject.value(check.client.name, "group.protocol") or "").lower() != "consumer"
    if check.listed and (not created or not name):
        return ""  # a name in a list is only looked at when it is created; invalid-value reports an empty one
    if check.key == "metric.reporters" and not _legacy_metrics(subject):
        return ""
    return classes.problem(check.purpose, name, subject.version, created=created)


def _absent(subject: Subject, check: _ClassKey, name: str) -> str:
    """Return what is wrong with the class of a plugin that the workers, which were asked, do not have."""
    plugins = subject.worker.others
    if check.purpose not in classes.PLUGINS or plugins is None or classes.is_among(check.purpose, name, plugins):
        return ""
    return f"not on the workers, which list no such {check.purpose}"


def foreign_classes(subject: Subject) -> Iterator[str]:
    """Yield the classes that are not Kafka's and that nobody has told about."""
    for check in _class_keys(subject.kind):
        if check.purpose in classes.PLUGINS and subject.worker.others is not None:
            continue
        if not check.alias or check.alias in subject.items(check.key.partition(".")[0]):
            names = subject.items(check.key) if check.listed else [subject.get(check.key)]
            yield from (
                name for name in names if "." in name and not name.startswith(classes.KAFKA) and not is_open(name)
            )


def _legacy_metrics(subject: Subject) -> bool:
    """Tell whether its tasks make the reporters: since 4.3 those of the workers get the metrics of new names."""
    return "legacy" in (subject.items("metric.names.formats") or ["legacy"])


def _of_class(subject: Subject, check: _ClassKey, name: str, wrong: str) -> Hit:
    loaded = wrong.startswith("no ") and not wrong.startswith("no class")
    effect = f"the connector is {_START}" if loaded else "Connect refuses the config"
    effect = failing(check.client) if check.client else effect
    outcome = f"{'it' if not check.listed else name} is {wrong}: {effect}"
    message = f"{file_key(subject, check.key)}={show(subject, check.key)}: {outcome}"
    if wrong.startswith("not on"):
        return Hit(message, f"add the jar with {name} to the workers' plugin.path", check.key)
    own = classes.names(check.purpose, subject.version)
    simple = {name.rpartition(".")[2]: name for name in own}
    right = next(iter(nearest(name.rpartition(".")[2], simple, 0.8)), "")
    if right and not check.listed and simple[right] != name:
        return connector_hit(subject, check.key, simple[right], message)
    if not own:
        return removal_hit(subject, check.key, message, f", or name your own {check.purpose}")
    return Hit(
        message,
        f"write {'an' if check.purpose[0] in 'aeiou' else 'a'} {check.purpose}, such as {own[0]}, or remove "
        f"{file_key(subject, check.key)}",
        check.key,
    )


@lru_cache(maxsize=4096)
def _read_keys(kind: SubjectKind) -> tuple[tuple[str, str], ...]:
    """Return the keys whose values decide about these rows, with their plain names."""
    if not _exclusions(kind):
        return ()
    plain_of = {key: plain for winners in kind.winners.values() for plain, key in winners.items() if plain in READ}
    return tuple(plain_of.items())


@lru_cache(maxsize=4096)
def _exclusions(kind: SubjectKind) -> tuple[tuple[str, Exclusion], ...]:
    """Return the clients and refusals that may apply: a key of the refusal is set on the connector."""
    line = numbers(kind.setting.version)
    return tuple(
        (client.name, exclusion)
        for exclusion in EXCLUSIONS
        for client in sorted(
            kind.clients, key=lambda candidate: (candidate.name not in exclusion.told, candidate.kind != "admin")
        )
        if client.kind in exclusion.kinds
        and line >= exclusion.since
        and any(plain in kind.winners[client.name] for plain in exclusion.keys)
    )


def _of_refusals(kind: SubjectKind) -> tuple[str, ...]:
    intervals = [f"{job}.{part}" for job in INTERVALS[kind.type] for part in ("interval.seconds", "enabled")]
    return (*(key for key, _ in _read_keys(kind)), *intervals)


@rule("refused-by-code", "error", "the clients' constructors: see mm2mgr/truth/exclusions.py", reads=_of_refusals)
def refused_by_code(subject: Subject) -> Iterator[Hit]:
    """A client refuses a value that its definition allows, most often because of another one.

    Connect checks each key alone. What excludes another setting is found when the client is made, and the connector
    (admin clients) or each task is FAILED: default.api.timeout.ms below request.timeout.ms, group.protocol=consumer
    with session, heartbeat or assignor keys (since 4.0), idempotence with acks, retries or requests in flight that
    contradict it, a password without its store, two keystores at once. TLS protocols, the way to compare host names and
    SASL mechanisms are found at the first connection.
    """
    yield from _intervals(subject)
    for name, key, exclusion, wrong in _known_refusals(subject):
        yield _exclusion_hit(subject, name, key, exclusion, wrong)


_Refused = tuple[str, str, Exclusion, str]  # client, key, row, why
_ANSWERS: dict[tuple[SubjectKind, tuple[str, ...]], tuple[_Refused, ...]] = {}  # no value of a config is in it


def _known_refusals(subject: Subject) -> tuple[_Refused, ...]:
    """Return what is refused; of thousands of connectors most have the same values as far as these rows see them."""
    keys = _read_keys(subject.kind)
    if not keys:
        return ()
    if subject.worker.properties is not None:
        return tuple(_refusals(subject))
    asked = (subject.kind, tuple(matters(plain, subject.get(key)) for key, plain in keys))
    if asked not in _ANSWERS:
        if len(_ANSWERS) >= _MOST:
            _ANSWERS.clear()
        _ANSWERS[asked] = tuple(_refusals(subject))
    return _ANSWERS[asked]


_MOST = 4096


def _refusals(subject: Subject) -> Iterator[_Refused]:
    reported: set[tuple[str, Exclusion]] = set()
    settings: dict[str, Settings] = {}
    for name, exclusion in _exclusions(subject.kind):
        key = next((setting for plain in exclusion.keys if (setting := subject.written_key(name, plain))), "")
        if (key, exclusion) in reported or (is_open(subject.get(key)) and not is_secret(key)):
            continue
        if name not in settings:
            settings[name] = Settings(subject.configured_clients[name])
        if wrong := exclusion.reason(settings[name]):
            reported.add((key, exclusion))
            if name not in exclusion.told:
                yield name, key, exclusion, wrong


def _exclusion_hit(subject: Subject, name: str, key: str, exclusion: Exclusion, wrong: str) -> Hit:
    client = subject.client(name)
    effect = failing(client) if client else "FAILED"
    message = f"{file_key(subject, key)}={show(subject, key)} {wrong}: {effect}"
    if exclusion.by_hand:
        return Hit(message, exclusion.by_hand, key)
    if exclusion.write is not None:
        return connector_hit(subject, key, exclusion.write, message)
    return removal_hit(subject, key, message)


def _intervals(subject: Subject) -> Iterator[Hit]:
    for job in INTERVALS[subject.type]:
        key = f"{job}.interval.seconds"
        text = subject.get(key)
        seconds = whole_number(text)
        if seconds is None or not LONGEST_SECONDS < seconds < 2**63:
            continue
        if subject.flag(f"{job}.enabled", default=True):
            yield removal_hit(subject, key, f"{file_key(subject, key)}={text} overflows as milliseconds: {_START}")


@rule(
    "upgrade-lists", "warning", "KIP-1161", reads=lambda kind: () if numbers(kind.setting.version) >= (4, 2) else None
)
def upgrade_lists(subject: Subject) -> Iterator[Hit]:
    """A list has an item twice, or an empty one, which workers from 4.2 on refuse.

    Older Kafka takes such lists, and a running connector goes on running after the upgrade of its workers, since
    Connect validates a config only when it is submitted: the next change of the connector, whatever it is, then ends
    with 400, "values must not be duplicated" or "must not be empty" (KIP-1161). In lists of clients and filters Kafka
    removes doubles itself; an empty item there makes the connector or its tasks FAILED.
    """
    if numbers(subject.version) >= (4, 2):
        return  # invalid-value reports it
    for key, doubles, whose in _lists(subject.kind):
        text = subject.get(key)
        items = [item.strip() for item in text.split(",")] if "," in text and not is_open(text) else []
        if wrong := item_problem(items, doubles=doubles):
            left = dict.fromkeys(filter(None, items))
            message = f"{file_key(subject, key)} is {wrong}: workers of 4.2 and newer refuse {whose}"
            yield edit_hit(subject, message, [Edit(key, ",".join(left))], key)


@lru_cache(maxsize=4096)
def _lists(kind: SubjectKind) -> tuple[tuple[str, bool, str], ...]:
    """Return the keys whose lists newer Kafka checks, whether it refuses doubles, and what it refuses."""
    return tuple((key, *check) for key in kind.keys if (check := _checked_later(kind, key)))


def _checked_later(kind: SubjectKind, key: str) -> tuple[bool, str] | None:
    definitions = load()
    newest = definitions.lines[-1]
    if own := definitions.find(kind.type, key, newest):
        return (not own.read_by, "the config at its next change") if NO_DOUBLES in own.valid else None
    for client in kind.clients:
        for hit in seen_by(client, key):
            definition = definitions.find(client.kind, hit.key, newest)
            # bad-address reports that.
            if definition and NO_DOUBLES in definition.valid and hit.key != "bootstrap.servers":
                return False, f"to make the {client.name}"
    return None
