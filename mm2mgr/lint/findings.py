"""Rules of lint, what they report, and how a fix is written in the syntax of its file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import getdoc
from types import ModuleType
from typing import Any, Literal, get_args

from mm2mgr import defaults
from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.client_security import PROTOCOL, WRITTEN
from mm2mgr.formats.properties import Entry
from mm2mgr.lint.subject import Estate, Spot, Subject, SubjectKind
from mm2mgr.secrets import mask, mask_text
from mm2mgr.spec.scalars import CONNECTOR_KEYS_LIKE_PREFIXES, SECURITY_KEYS
from mm2mgr.truth.explain import GENERAL
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS, Client

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""Most severe first. error: records are lost, duplicated, blocked or misplaced; warning: they may be; info: a hint."""


@dataclass(frozen=True)
class Edit:
    """One change of a fix that a machine can make: a key gets a value, or is removed (None).

    `key` is the key of the connector's config, whatever its file calls it (see `spelled`). `of` is the connector, where
    it is not the hit's own. Hits over files change the line `at`: its value, its key, or the whole line. `comment` goes
    above it.
    """

    key: str
    value: str | None = field(repr=False)  # may be a secret that moves to another key
    of: Subject | None = None
    at: Entry | None = None
    comment: str = ""


@dataclass(frozen=True)
class Hit:
    """What a rule found: one sentence about its effect, and the fix. Neither may contain a secret.

    `key` is the connector's config key; rules over an estate set the `subject`, rules over files the `spot`. `others`
    are the other connectors that are part of it. `edits` do the same as `fix` says, the first way of several; none
    where a person must decide, or do something outside of the config. `severity` is set where the effect in this config
    is less severe than the rule's; it is never more severe, since plan and apply ask only the rules that may report an
    error. `mirrors`: its rule `stops` connectors, and with this fault they mirror all the same.
    """

    message: str
    fix: str
    key: str = ""
    subject: Subject | None = None
    spot: Spot | None = None
    others: tuple[Subject, ...] = ()
    edits: tuple[Edit, ...] = ()
    severity: Severity | None = None
    mirrors: bool = False

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Every connector that is part of it."""
        return (*((self.subject,) if self.subject else ()), *self.others)

    def with_severity(self, severity: Severity) -> Hit:
        """Return the same hit, less severe than its rule."""
        return replace(self, severity=severity)


@dataclass(frozen=True)
class Rule:
    """A rule: `check` looks at one connector, `over` at all of them and at files. The function's docstring is its page.

    `severity` is that of its worst case; a hit may lower it. `types` are the connectors that `check` looks at, and only
    those with a key that holds one of the texts `needs` (() for all). `reads` returns the keys whose values decide, for
    connectors of a kind; of addresses only whether there is one. Beside them only the kind, the workers and the file
    may decide. Of connectors that are equal in these, one without a hit stands for all. None: anything may decide.
    `source` is the KIP, JIRA or article behind it; `live` names the live test that showed the effect ("" =
    unverified); one that ends in `::` is completed by the function's name. `of_unknown_lines`: it looks at connectors
    of Kafka lines that are not known here, at which no other rule looks. `stops`: with an error of it a connector
    mirrors nothing, as it is refused, FAILED or never started, so its fix may change what is mirrored. Plan and apply
    block every write that an error is about, judged by what the real workers say.
    """

    id: str
    severity: Severity
    check: Callable[[Subject], Iterator[Hit]] | None = None
    over: Callable[[Estate], Iterator[Hit]] | None = None
    source: str = ""
    live: str = ""
    types: tuple[ConnectorType, ...] = get_args(ConnectorType)
    needs: tuple[str, ...] = ()
    reads: Callable[[SubjectKind], Sequence[str] | None] | None = None
    of_unknown_lines: bool = False
    stops: bool = False
    json_keys = "rule=id severity title story source seen=proof"

    def asks(self, kind: SubjectKind) -> bool:
        """Tell whether `check` could find anything on connectors of a kind."""
        if self.check is None or kind.type not in self.types or self.of_unknown_lines == kind.of_known_line:
            return False
        return not self.needs or any(text in key for key in kind.keys for text in self.needs)

    @property
    def module(self) -> str:
        return self.check.__module__ if self.check else ""

    @property
    def story(self) -> str:
        return getdoc(self.check or self.over) or ""

    @property
    def title(self) -> str:
        """The first sentence of its page, without the full stop."""
        return self.story.partition("\n")[0].rstrip(".")

    @property
    def proof(self) -> str:
        return self.live or "unverified: not seen on a live worker yet"


def keys_ending(*ends: str) -> Callable[[SubjectKind], tuple[str, ...]]:
    """Return what finds the keys of a kind of connectors that end so, for `Rule.reads`."""
    return lambda kind: tuple(key for key in kind.keys if key.endswith(ends))


ConnectorCheck = Callable[[Subject], Iterator[Hit]]
EstateCheck = Callable[[Estate], Iterator[Hit]]
_REGISTERED: dict[str, list[Rule]] = {}


def rule(id: str, severity: Severity, source: str = "", **facts: Any) -> Callable[[ConnectorCheck], ConnectorCheck]:
    """Register the decorated function as a rule that looks at one connector; `facts` are the other fields of `Rule`.

    The function's docstring is the page of the rule, its first sentence the title.
    """

    def register(check: ConnectorCheck) -> ConnectorCheck:
        _register(check, Rule(id, severity, check, source=source, **facts))
        return check

    return register


def _register(function: ConnectorCheck | EstateCheck, new_rule: Rule) -> None:
    if new_rule.live.endswith("::"):
        new_rule = replace(new_rule, live=f"{new_rule.live}test_{function.__name__}")
    _REGISTERED.setdefault(function.__module__, []).append(new_rule)


def estate_rule(id: str, severity: Severity, source: str = "", **facts: Any) -> Callable[[EstateCheck], EstateCheck]:
    """Register the decorated function as a rule that looks at all connectors together, or at the files."""

    def register(over: EstateCheck) -> EstateCheck:
        _register(over, Rule(id, severity, over=over, source=source, **facts))
        return over

    return register


def rules_of(*modules: ModuleType) -> tuple[Rule, ...]:
    """Return the rules of these modules, in the order of the modules and of their functions."""
    return tuple(registered for module in modules for registered in _REGISTERED[module.__name__])


def rule_ids() -> tuple[str, ...]:
    """Return the id of every rule."""
    return tuple(registered.id for rules in _REGISTERED.values() for registered in rules)


@dataclass(frozen=True)
class Finding:
    """A finding, made of a `hit`. `more` counts other connectors with the same; `silenced` is the reason given.

    `key` is the key it is about; the place has it only where it is set.
    """

    rule: str
    severity: Severity
    spot: Spot
    message: str
    fix: str
    more: int = 0
    silenced: str | None = None
    key: str = ""
    hit: Hit | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("message", "fix", "silenced"):
            if text := getattr(self, name):
                object.__setattr__(self, name, mask_text(text))

    @property
    def sentence(self) -> str:
        """What happens because of it and, at the end, what to do."""
        return f"{self.message}; fix: {self.fix}" if self.fix else self.message

    def to_dict(self) -> dict[str, object]:
        where = vars(self.spot) | {"key": self.key or self.spot.key}
        return {
            "rule": self.rule,
            "severity": self.severity,
            "place": str(self.spot),
            **{name: value for name, value in where.items() if value},
            "message": self.message,
            "fix": self.fix,
            "more": self.more,
            "silenced": self.silenced,
        }


# The setting of a tree that becomes a connector's key; what is not here is written by a template and by nothing else.
_TREE = {
    "tasks.max": "tasks: {max: VALUE}",
    "topics": "topics: {include: LIST}",
    "topics.exclude": "topics: {exclude: LIST}",
    "groups": "checkpoints: {groups: {include: LIST}}",
    "groups.exclude": "checkpoints: {groups: {exclude: LIST}}",
    "config.properties.exclude": "sync: {exclude_properties: LIST}",
    "replication.policy.class": "replication_policy: VALUE",
    "replication.policy.separator": "separator: VALUE",
    "offset-syncs.topic.location": "offset_syncs: {location: VALUE}",
    "emit.offset-syncs.enabled": "offset_syncs: {enabled: VALUE}",
    "emit.checkpoints.enabled": "checkpoints: {enabled: VALUE}",
    "emit.heartbeats.enabled": "heartbeats: {enabled: VALUE}",
    "sync.group.offsets.enabled": "checkpoints: {group_offsets: VALUE}",
    "sync.topic.configs.enabled": "sync: {topic_configs: VALUE}",
    "sync.topic.acls.enabled": "sync: {topic_acls: VALUE}",
    "refresh.topics.interval.seconds": "refresh_interval: VALUEs",
    "refresh.groups.interval.seconds": "refresh_interval: VALUEs",
    "emit.checkpoints.interval.seconds": "checkpoints: {interval: VALUEs}",
    "sync.group.offsets.interval.seconds": "checkpoints: {interval: VALUEs}",
    "emit.heartbeats.interval.seconds": "heartbeats: {interval: VALUEs}",
    "source.cluster.alias": "clusters: {VALUE: {…}}",
    "target.cluster.alias": "clusters: {VALUE: {…}}",
    "replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "checkpoints.topic.replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "heartbeats.topic.replication.factor": "clusters: {TARGET: {replication_factor: VALUE}}",
    "offset-syncs.topic.replication.factor": "clusters: {SYNCS: {replication_factor: VALUE}}",
}
_OF_TEMPLATES = (
    *("name", "connector.class", "key.converter", "value.converter", "header.converter", "enabled", "errors.tolerance"),
    *("refresh.topics.enabled", "refresh.groups.enabled", "heartbeats.replication.enabled"),
    "replication.policy.internal.topic.separator.enabled",
)
_WORDS = {class_: word for word, class_ in defaults.POLICIES.items()}
# A tree adds these to its own lists, so they are not written there.
_ALWAYS = {
    "topics.exclude": defaults.TOPICS_EXCLUDE,
    "groups.exclude": defaults.GROUPS_EXCLUDE,
    "config.properties.exclude": defaults.PROPERTIES_EXCLUDE,
}
_PLAIN = re.compile(r"[\w.+/…-]+")
# Prefix in a connector's config → prefix of the line in mm2.properties that becomes it; others are lines of the pair.
_DEDICATED = {
    "producer.override.": "{target}.producer.",
    "source.cluster.": "{source}.",
    "target.cluster.": "{target}.",
    **{f"{side}.{prefix}": f"{{{side}}}.{prefix}" for side in ("source", "target") for prefix in GENERAL},
}


OPERATORS_MEMBERS = frozenset(
    (
        "tasksMax",
        "taskMax",
        "topicsPattern",
        "topicsExcludePattern",
        "groupsPattern",
        "groupsExcludePattern",
        "bootstrapServers",
    )
)


def config_key(subject: Subject, client: str, plain: str) -> str:
    """Return the key of the connector's config that gives a client a plain key."""
    of_client = subject.client(client) or next(
        candidate for candidate in CLIENTS[subject.type] if candidate.name == client
    )
    return of_client.layers[-1].prefix + plain


def key_for(subject: Subject, client: str, plain: str) -> str:
    """Return the key that sets a client's plain key, or the one to write where none does."""
    return subject.written_key(client, plain) or config_key(subject, client, plain)


def cluster_key(subject: Subject, side: Literal["source", "target"], plain: str, value: str = "…") -> str:
    """Return how to give one side's clients a security key or address."""
    return spell(subject, f"{side}.cluster.{plain}", value)


def spell(subject: Subject, key: str, value: str = "…") -> str:
    """Return how to write a key of a connector's config in the syntax of its file, whichever client reads it."""
    if subject.form == "connect":
        return _of_connector(subject, key, value)
    if subject.form == "dedicated":
        return f"{line_key(subject, key)} = {value}"
    for side in ("source", "target"):
        if (plain := _without_prefix(key, f"{side}.cluster.")) in CLUSTER_KEYS:
            return _of_cluster(subject, side, plain, value)
    if (plain := _without_prefix(key, "producer.override.")) in SECURITY_KEYS | {"bootstrap.servers"}:
        return _of_cluster(subject, "target", plain, value)  # the override is written from the cluster's own
    for client in CLIENTS[subject.type]:
        if plain := _without_prefix(key, client.layers[-1].prefix):
            return f"{client.block}: {{{plain}: {yaml(value)}}}" if client.block else _of_template(subject, key, value)
    return _of_tree(subject, key, value)


def _of_connector(subject: Subject, key: str, value: str) -> str:
    """Return how to write a key of a connector's config, or the member of a resource of Strimzi that becomes it."""
    side, _, plain = key.partition(".cluster.")
    if subject.resource and subject.resource.kind == "KafkaMirrorMaker2" and side in ("source", "target"):
        if plain == "alias":
            return f"alias: {yaml(value)} of that cluster, and wherever the resource names it"
        if plain in WRITTEN and not subject.paths.get(key):
            alias = subject.source if side == "source" else subject.target
            return (
                f"{_operators_security(plain, value)} in the cluster {alias}, of which the operator makes {key}={value}"
            )
    member = member_of(subject, key)
    return f"{member}: {yaml(value)}" if member in OPERATORS_MEMBERS else f"{key}={value}"


def _operators_security(plain: str, value: str) -> str:
    tls = "" if value.endswith("PLAINTEXT") else "tls: {trustedCertificates: […]}"
    login = "authentication: {type: …}"
    if plain == PROTOCOL:
        parts = [*([tls] if tls else []), *([login] if value.startswith("SASL") else [])]
        return " and ".join(parts) or "neither tls nor authentication"
    return tls if plain.startswith("ssl.truststore.") else login


def line_key(subject: Subject, key: str) -> str:
    """Return the key in mm2.properties that becomes a connector's key: that of its line, or of a new one."""
    if place := subject.spots.get(key):
        return place.key
    # The workers' own login, which is that of the target.
    if _without_prefix(key, "producer.override.") in CLUSTER_KEYS:
        return key.replace("producer.override", subject.pair.rpartition("->")[2], 1)
    source, _, target = subject.pair.partition("->")
    for prefix, line in _DEDICATED.items():
        if plain := _without_prefix(key, prefix):
            return f"{line.format(source=source, target=target)}{plain}"
    return f"{subject.pair}.{key}"


def _of_cluster(subject: Subject, side: str, plain: str, value: str) -> str:
    servers = ", ".join(yaml(server.strip()) for server in value.split(","))
    inner = f"security: {{{plain}: {yaml(value)}}}"
    if plain == "bootstrap.servers":
        inner = f"bootstrap_servers: [{servers}]"
    return f"clusters: {{{yaml(subject.source if side == 'source' else subject.target)}: {{{inner}}}}}"


def yaml(value: str) -> str:
    """Return a value for a YAML flow mapping, quoted where necessary."""
    return value if _PLAIN.fullmatch(value) else "'" + value.replace("'", "''") + "'"


def _without_prefix(key: str, prefix: str) -> str:
    return key.removeprefix(prefix) if key.startswith(prefix) else ""


def _of_template(subject: Subject, key: str, value: str) -> str:
    return f"{key} = {value} in {subject.type}.properties.j2, your own template"


def _of_tree(subject: Subject, key: str, value: str) -> str:
    if key == "exactly.once.support":
        return f"delivery: {'exactly_once' if value == 'required' else 'at_least_once'}"
    # Before 2.8 only these prefixes reach some clients; no block of a flow writes them.
    general = key.startswith(GENERAL) and key not in CONNECTOR_KEYS_LIKE_PREFIXES
    if key in _OF_TEMPLATES or general:
        return _of_template(subject, key, value)
    shape = _TREE.get(key, f"{subject.type}_connector: {{{key}: VALUE}}")
    items = [item.strip() for item in value.split(",") if item.strip() and item.strip() not in _ALWAYS.get(key, ())]
    syncs = subject.target if subject.setting.offset_syncs_location == "target" else subject.source
    words = {
        "LIST": f"[{', '.join(map(yaml, items))}]",
        "TARGET": yaml(subject.target),
        "SYNCS": yaml(syncs),
        "VALUE": yaml(_WORDS.get(value, value)),
    }
    return re.sub("|".join(words), lambda match: words[match[0]], shape)


_LONGEST = 60


def file_key(subject: Subject, key: str) -> str:
    """Return the key as it is written: in mm2.properties it has a prefix that the driver removes."""
    place = subject.spots.get(key)
    return member_of(subject, key) or (place.key if place else "") or key


def member_of(subject: Subject, key: str) -> str:
    """Return the member of a resource of Strimzi that becomes a key, "" for a key of `config` and in other files."""
    path = subject.paths.get(key, ()) if subject.resource else ()
    return str(path[-1]) if path and path[-1] != key else ""


def show(subject: Subject, key: str) -> str:
    """Return a key's value for a fix: masked, and shortened when it is long."""
    value = mask(key, subject.get(key))
    return value if len(value) <= _LONGEST and "\n" not in value else "…"


RECORDS, READER = "record producer", "source consumer"


def describe(subject: Subject, client: str, plain: str) -> str:
    """Return a setting with its origin for a message: `producer.override.acks=1`, or the workers', or the default."""
    setting = subject.setting_of(client, plain)
    if setting is None or setting.written_as is None:
        return f"{plain}={setting.value if setting else None}, the default"
    if setting.origin == "workers":
        return f"{setting.written_as}={setting.value} of the workers"
    return f"{file_key(subject, setting.written_as)}={setting.value}"


def failing(client: Client) -> str:
    """Return what becomes of a connector whose client cannot be created."""
    if client.kind == "admin":
        return f"the connector is FAILED when it creates its {client.name} client"
    return f"the tasks are FAILED when they create the {client.name}"


def client_edit(subject: Subject, client: str, plain: str, value: str) -> Edit:
    """Return the edit that gives a client a plain key, where it is written now or behind the prefix of this client."""
    return Edit(key_for(subject, client, plain), value)


def client_hit(subject: Subject, client: str, plain: str, value: str, message: str) -> Hit:
    """Return a hit about a client's setting, with the value to write as its fix."""
    edit = client_edit(subject, client, plain, value)
    return edit_hit(subject, message, [edit], key_for(subject, client, plain))


def connector_hit(subject: Subject, key: str, value: str, message: str, more: str = "") -> Hit:
    """Return a hit about one of the connector's own keys, with the value to write; `more` continues its fix."""
    return edit_hit(subject, message, [Edit(key, value)], key, more)


def removal_hit(subject: Subject, key: str, message: str, more: str = "") -> Hit:
    """Return a hit about a key that is to be removed."""
    return edit_hit(subject, message, [Edit(key, None)], key, more)


def edit_hit(subject: Subject, message: str, edits: Sequence[Edit], key: str = "", more: str = "") -> Hit:
    """Return a hit whose fix is its edits; a value with `…` is for people to fill in, so no machine applies it."""
    fix = f"{phrase(subject, edits, key)}{more}"
    open_ = any("…" in (edit.value or "") for edit in edits)
    return Hit(message, fix, key, subject, edits=() if open_ else tuple(edits))


def phrase(subject: Subject, edits: Sequence[Edit], key: str = "") -> str:
    """Return edits as text, secrets masked: `write A=1`, `remove C`, `write A=1 instead of C` (unless C is `key`)."""
    writes = [spell(edit.of or subject, edit.key, _to_show(subject, edit)) for edit in edits if edit.value is not None]
    removed = [file_key(edit.of or subject, edit.key) for edit in edits if edit.value is None]
    if not writes:
        return f"remove {', '.join(removed)}"
    removed = [name for name in removed if name != file_key(subject, key)]
    return f"write {', '.join(dict.fromkeys(writes))}{' instead of ' if removed else ''}{', '.join(removed)}"


def _to_show(subject: Subject, edit: Edit) -> str:
    value = mask(edit.key, edit.value or "")
    moved = edit.value in subject.config.values()
    return "…" if "\n" in value or (moved and len(value) > _LONGEST) else value
