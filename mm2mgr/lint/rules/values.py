"""Rules about values: what Kafka's definitions refuse, what is missing, and values without the intended effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from mm2mgr.assignment_text import is_plugin_class
from mm2mgr.connectors import PACKAGE
from mm2mgr.defaults import POLICIES
from mm2mgr.formats.properties import Entry
from mm2mgr.formats.templates import is_open
from mm2mgr.lint.classify import Context, context_of, ends, is_slip
from mm2mgr.lint.findings import (
    Edit,
    Hit,
    cluster_key,
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
from mm2mgr.lint.hops import SIDES, ClusterSide
from mm2mgr.lint.subject import Subject, SubjectKind
from mm2mgr.text import nearest
from mm2mgr.topics.java_regex import shape
from mm2mgr.truth.keys import Key, allowed_values, fault, is_checked, load
from mm2mgr.truth.reach import Client, numbers, seen_by

_LIVE = "tests/lint/test_seen_live_start.py::"
_GONE = "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy"
_TARGET = "target.cluster.alias"
_OPERATORS = {"tasks.max": "tasksMax", "connector.class": "class"}
_CREATION = ("topic.creation.default.replication.factor", "topic.creation.default.partitions")


@rule("invalid-value", "error", "Kafka's definitions", live=f"{_LIVE}test_invalid_client_value")
def invalid_value(subject: Subject) -> Iterator[Hit]:
    """Kafka's definition of the key does not allow this value.

    Connect checks the connector's own keys when the config is submitted and refuses an invalid one (400). For
    producer.override.* it checks only that the value can be parsed (500 for text where a number belongs). Ranges and
    choices, and all keys behind source.consumer.*, source.admin.* and similar prefixes, are checked when the client is
    created: Connect accepts the connector, then the task (for admin clients the connector) is FAILED with a
    ConfigException. The rule uses the definitions of the workers' Kafka line and skips placeholders of config
    providers.
    """
    yield from _no_bytes(subject)
    name = subject.config.get("name", "-")
    if not name.strip() or _CONTROL.search(name):
        problem = "has a control character, such as a tab" if name.strip() else "is empty"
        yield Hit(f"name {problem}: Connect refuses the config", "give the connector a permanent name", "name")
    checks = _checks(subject.kind)
    values = tuple(subject.get(check.key)[: check.counts] for check in checks)
    for check, wrong in _faults(subject.kind, values):
        if not _is_listed(subject, check):
            continue
        line = file_key(subject, check.key)
        consequence = failing(check.client) if check.client else "Connect refuses the config"
        message = f"{line}={show(subject, check.key)} is {wrong}: {consequence}"
        if wrong.startswith("a list") and "regular" not in wrong:
            items = dict.fromkeys(filter(None, subject.items(check.key)))
            if items:
                yield connector_hit(subject, check.key, ",".join(items), message)
            else:
                yield Hit(message, f"write the items of {line}, or remove the line", check.key)
        elif right := next(
            (choice for choice in check.definition.choices or () if choice.lower() == subject.get(check.key).lower()),
            "",
        ):
            yield connector_hit(subject, check.key, right, message)
        else:
            yield Hit(message, f"write {allowed_values(check.definition)} for {line}", check.key)


def _is_listed(subject: Subject, check: _ValueCheck) -> bool:
    """Tell whether the config lists what the key is for: Connect looks at no other group or transformation."""
    before, _, after = check.definition.name.partition("<")
    if not after or check.client:
        return True
    name = check.key.removeprefix(before).removesuffix(after.partition(">")[2])
    return name in subject.items("topic.creation.groups" if "topic" in before else before.removesuffix("."))


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _no_bytes(subject: Subject) -> Iterator[Hit]:
    """Report serializers other than ByteArraySerializer: Connect passes bytes; MirrorMaker's clients ignore them."""
    for key in ("producer.override.key.serializer", "producer.override.value.serializer"):
        value = subject.get(key)
        if key in subject.config and not is_open(value) and value.rpartition(".")[2] != "ByteArraySerializer":
            effect = "every task is FAILED at its first record"
            message = f"{file_key(subject, key)}={show(subject, key)} does not accept bytes: {effect}"
            yield removal_hit(subject, key, message)


@dataclass(frozen=True)
class _ValueCheck:
    """A key whose values Kafka checks, and the first client that gets it.

    `counts` is how much of a value decides: all (None), or one letter where any text will do that is not empty.
    """

    key: str
    definition: Key
    client: Client | None
    counts: int | None


@lru_cache(maxsize=4096)  # the same few values come back in thousands of connectors
def _faults(kind: SubjectKind, values: tuple[str, ...]) -> tuple[tuple[_ValueCheck, str], ...]:
    faults = []
    for check, value in zip(_checks(kind), values, strict=True):
        definition = check.definition
        # Without a text null-value and missing-required report.
        left_alone = is_open(value) or (definition.required and not value and definition.type == "string")
        wrong = "" if left_alone else fault(definition.scope, definition.name, kind.setting.version, value)
        if wrong := wrong or ("" if left_alone else _no_regex(definition, value)):
            faults.append((check, wrong))
    return tuple(faults)


def _no_regex(definition: Key, value: str) -> str:
    if "regular expressions" in definition.valid:
        for item in value.split(","):
            try:
                shape(item.strip())
            except ValueError as error:
                return f"a list with '{item.strip()}', which is not a Java regular expression, {error}"
    return ""


@lru_cache(maxsize=4096)
def _checks(kind: SubjectKind) -> tuple[_ValueCheck, ...]:
    definitions = ((key, *_definition(kind, context_of(kind), key)) for key in kind.keys)
    return tuple(
        _ValueCheck(key, definition, client, None if definition.choices or definition.type != "string" else 1)
        for key, definition, client in definitions
        if definition and is_checked(definition) and not key.endswith("bootstrap.servers")  # bad-address reports those
    )


def _definition(kind: SubjectKind, context: Context, key: str) -> tuple[Key | None, Client | None]:
    keys, version = load(), context.setting.version
    for type_ in context.types:
        if own := keys.find(type_, key, version):
            return own, None
    for client in kind.clients:
        for hit in seen_by(client, key):
            decides = hit.key not in client.forced and kind.winners[client.name].get(hit.key) == key
            if decides and (definition := keys.find(client.kind, hit.key, version)):
                return definition, client
    return None, None


@rule(
    "missing-required",
    "error",
    "MirrorClientConfig",
    live=f"{_LIVE}test_missing_address",
    reads=keys_ending("bootstrap.servers"),
)
def missing_required(subject: Subject) -> Iterator[Hit]:
    """A setting that the connector needs is missing.

    Connect refuses a config without connector.class or source.cluster.alias. It does not check addresses: without
    source.cluster.bootstrap.servers (source and checkpoint connectors) or target.cluster.bootstrap.servers (all three)
    it accepts the config, and the connector is FAILED when it creates its admin client.
    """
    for key in ("connector.class", "source.cluster.alias"):
        if key not in subject.config:
            message, alias = f"{key} is missing: Connect refuses the config", ends(subject)[0]
            of_pair = key == "source.cluster.alias" and alias  # its other keys name it
            yield (
                connector_hit(subject, key, alias, message)
                if of_pair
                else Hit(message, f"write {spell(subject, key)}", key)
            )
    for side in SIDES:
        if without := [name for name, key in _address_keys(subject.kind, side) if not key or not subject.get(key)]:
            message = f"no bootstrap.servers for the {' and the '.join(without)}: FAILED at start"
            alias = ends(subject)[SIDES.index(side)]
            servers = show(subject, f"{alias}.bootstrap.servers") or "host:9092,…"
            fix = f"write {cluster_key(subject, side, 'bootstrap.servers', servers)}"
            yield Hit(message, fix, f"{side}.cluster.bootstrap.servers")


@lru_cache(maxsize=4096)
def _address_keys(kind: SubjectKind, side: ClusterSide) -> tuple[tuple[str, str], ...]:
    """Return the clients of a side, each with the key that holds its address, "" for none."""
    names = dict.fromkeys(client.name for client in kind.clients if client.side == side)
    return tuple((name, kind.winners[name].get("bootstrap.servers", "")) for name in names)


@rule(
    "target-alias-missing",
    "warning",
    "KIP-382",
    live="tests/lint/test_seen_live_pairs.py::test_loop_by_alias",
    reads=keys_ending(),
)
def target_alias_missing(subject: Subject) -> Iterator[Hit]:
    """The target has no alias, so MirrorMaker calls it `target`.

    MirrorMaker uses the alias to recognise topics that came from the cluster it writes to, and as part of the name of
    the offset-syncs topic. Two clusters without an alias are the same cluster to MirrorMaker: with flows in both
    directions topics are mirrored in a loop, with one more prefix at each refresh (seen: 11, 19, 25, 29 topics).
    """
    if _TARGET not in subject.config:
        message = f"{_TARGET} is not set: MirrorMaker calls the target `target` and does not detect loops through it"
        alias = ends(subject)[1] if ends(subject)[1] != subject.target else "the alias that all flows use for it"
        yield Hit(message, f"write {spell(subject, _TARGET, alias)}", _TARGET)


@rule("partial-topic-creation", "error", "KIP-158", needs=("topic.creation.",), live=_LIVE)
def partial_topic_creation(subject: Subject) -> Iterator[Hit]:
    """topic.creation.* is used without the two defaults that it requires.

    As soon as one key starts with topic.creation., Connect requires topic.creation.default.replication.factor and
    topic.creation.default.partitions. Validation accepts the config, and the connector is FAILED when it starts
    (KIP-158). MirrorMaker creates its topics itself, so in most cases the keys can be removed.
    """
    keys = _creation_keys(subject)
    missing = [key for key in _CREATION if key not in subject.config]
    if keys and missing:
        message = f"{file_key(subject, keys[0])} is set and {' and '.join(missing)} is not: FAILED at start"
        edits = [Edit(key, None) for key in keys]
        yield edit_hit(subject, message, edits, keys[0], f", or write {' and '.join(missing)} too")


@rule("topic-creation-elsewhere", "warning", "KIP-158", needs=("topic.creation.",), live=_LIVE)
def topic_creation_elsewhere(subject: Subject) -> Iterator[Hit]:
    """topic.creation.* does not control how MirrorMaker creates topics.

    These keys configure Connect's own admin client, which uses the workers' Kafka unless admin.override.* says
    otherwise. MirrorMaker's target admin client creates the remote topics before any record is written, with the
    partition count of the source and the connector's replication.factor. The settings have no effect on these topics;
    where the workers use another Kafka cluster, empty topics can appear there.
    """
    keys = _creation_keys(subject)
    if keys and all(key in subject.config for key in _CREATION):
        message = "topic.creation.* creates no remote topic: MirrorMaker creates them itself, with replication.factor"
        edits = [Edit(key, None) for key in keys]
        yield edit_hit(subject, message, edits, keys[0], f"; use {spell(subject, 'replication.factor')}")


def _creation_keys(subject: Subject) -> list[str]:
    return [key for key in subject.config if key.startswith("topic.creation.") and key != "topic.creation.enable"]


@rule("enabled-false", "warning", "MirrorConnectorConfig", live=_LIVE, reads=keys_ending("enabled"))
def enabled_false(subject: Subject) -> Iterator[Hit]:
    """enabled=false switches a connector off while it still reports RUNNING.

    A source or checkpoint connector creates no tasks: it is RUNNING with an empty list of tasks and no error. A
    heartbeat connector ignores the key and continues. In mm2.properties this is the usual way to exclude a direction
    and is not reported. On Connect, pause or stop the connector instead, so that its state is visible.
    """
    if subject.form != "dedicated" and not subject.flag("enabled", default=True):
        is_heartbeat = subject.type == "heartbeat"
        message = "a heartbeat connector ignores enabled=false" if is_heartbeat else "it is RUNNING without a task"
        more = ", and stop or delete the connector to disable it"
        yield removal_hit(subject, "enabled", f"enabled=false: {message}", more)


@rule("policy-class", "error", "KIP-690", stops=True, live=_LIVE, reads=keys_ending("replication.policy.class"))
def policy_class(subject: Subject) -> Iterator[Hit]:
    """The class of the replication policy does not exist.

    IdentityReplicationPolicy is part of Kafka since 3.0 (KIP-690). Strimzi's class of that name was for older versions
    and is no longer in its images. Connect refuses a config whose class cannot be found; a misspelt name in Kafka's own
    package cannot be found either.
    """
    key = "replication.policy.class"
    name = subject.get(key)
    fault = ""
    older = numbers(subject.version) < (3, 0)
    if name == _GONE and not older:
        fault = "is Strimzi's class for Kafka before 3.0 and no longer shipped"
    elif name == POLICIES["identity"] and older:
        message = (
            f"{name} exists in Kafka since 3.0, and the workers run {subject.version}: the connector cannot be created"
        )
        yield Hit(message, "upgrade the workers, or install a class of that kind and name it", key)
    elif name.startswith(f"{PACKAGE}.") and name not in POLICIES.values():
        fault = f"is no replication policy of Kafka {subject.version}"
    if fault:
        right = next(iter(nearest(name, POLICIES.values(), 0.5)), POLICIES["identity"])
        hit = connector_hit(subject, key, right, f"{name} {fault}: the connector cannot be created")
        is_clear = name == _GONE or is_slip(name, right)
        yield hit if is_clear else replace(hit, edits=())


@rule("name-differs", "error", "ConnectorsResource of Kafka Connect")
def name_differs(subject: Subject) -> Iterator[Hit]:
    """The config holds another name than the one beside it.

    Connect calls a connector by the name beside its config (`{"name": …, "config": {…}}`) or in the URL. If the config
    holds a different name, Connect answers 400, `Connector name configuration (…) doesn't match connector name in the
    URL (…)`, and the connector is not created or stays unchanged. Strimzi's operator takes the name of the resource;
    its newer versions leave out a name in `config`, older ones send it. Write the name once.
    """
    for entry in subject.unused:
        if entry.key == "name" and entry.value != subject.name:
            message = f"the connector is called {subject.name}, and {entry.value} in its config: Connect answers 400"
            yield _removal_of(subject, entry, message, "remove the name from its config")


@rule("operator-leaves-out", "warning", "Strimzi's KafkaConnectorConfiguration")
def operator_leaves_out(subject: Subject) -> Iterator[Hit]:
    """Strimzi's operator does not take this key from `config`.

    The number of tasks and the class of a connector are members of the resource, tasksMax and class. The operator warns
    in its log when `config` holds tasks.max or connector.class, and leaves them out; older versions used such a
    tasks.max where there was no tasksMax. Without tasksMax one task does all the work.
    """
    for entry in subject.unused:
        if entry.key in _OPERATORS:
            member, value = _OPERATORS[entry.key], subject.get(entry.key)
            line = subject.spots[entry.key].line
            if line == entry.line:
                message = f"the operator leaves out {entry.key} in config, so one task does all the work"
                hit = _removal_of(
                    subject, entry, message, f"write {member}: {value} beside config instead of {entry.key}"
                )
                yield replace(hit, edits=(Edit(entry.key, value), *hit.edits))
            else:
                message = f"the operator leaves out {entry.key} in config: it is {value}"
                hit = _removal_of(subject, entry, message, f"remove {entry.key} from config")
                yield hit.with_severity("info") if entry.value == value else hit


def _removal_of(subject: Subject, entry: Entry, message: str, fix: str) -> Hit:
    spot = replace(subject.spot, line=entry.line, key=entry.key)
    return Hit(message, fix, entry.key, subject, spot, edits=(Edit(entry.key, None, at=entry),))


@rule("plugin-missing", "error", "Connect REST API", reads=keys_ending("connector.class"))
def plugin_missing(subject: Subject) -> Iterator[Hit]:
    """The workers do not have the connector's class.

    MirrorMaker's classes are in Kafka's connect-mirror jars, which some images for Connect leave out; the class that
    assigns partitions by load is in the jar that `mm2mgr plugin write` writes. Workers list
    their classes under /connector-plugins and refuse a config with any other class (400). The rule needs that list, so
    it reports only on live workers.
    """
    name, plugins = subject.get("connector.class"), subject.worker.plugins
    if not name or plugins is None:
        return
    simple = [plugin.rpartition(".")[2] for plugin in plugins]
    if name not in {*plugins, *simple, *(name_with_suffix.removesuffix("Connector") for name_with_suffix in simple)}:
        jars = "mm2mgr plugin write" if is_plugin_class(name) else "connect-mirror, connect-mirror-client"
        fix = f"add the jars with {name} ({jars}) to the plugin.path of every worker"
        yield Hit(f"the workers have no {name} and refuse the connector", fix, "connector.class")
