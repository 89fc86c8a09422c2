"""Explains a key in any spelling: the clients that read it, what to write instead, its defaults, its versions.

Pure: it reads no tree, contacts nothing, and knows no output format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby

from mm2mgr.connectors import ConnectorType
from mm2mgr.defaults import CLIENT_DEFAULTS
from mm2mgr.errors import Mm2mgrError
from mm2mgr.spec.scalars import OWNED_CONNECTOR_KEYS, SECURITY_KEYS
from mm2mgr.truth.keys import Key, Keys, server_setting
from mm2mgr.truth.reach import (
    CLIENTS,
    CLUSTER_KEYS,
    Reached,
    Setting,
    clients,
    clients_of_line,
    framework,
    framework_defaults,
    numbers,
    seen_by,
)


@dataclass(frozen=True)
class Definition:
    """Kafka's definition of a key in one scope, and other defaults of it."""

    scope: str
    type: str
    valid: str
    default: str | None
    required: bool
    history: tuple[str, ...]
    lines: str
    set_instead: tuple[str, ...]


def define_all(
    scopes: Sequence[str], name: str, types: Sequence[ConnectorType], version: str, keys: Keys
) -> tuple[Definition, ...]:
    """Return the definitions of a key in several scopes; equal ones are merged."""
    scopes_of: dict[Definition, list[str]] = {}
    for scope in scopes:
        scopes_of.setdefault(replace(define(scope, name, types, version, keys), scope=""), []).append(scope)
    return tuple(replace(definition, scope=", ".join(same)) for definition, same in scopes_of.items())


def define(scope: str, name: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Definition:
    """Return a key's definition, its last one if `version` has none. `types` select the defaults to add."""
    history = keys.history(scope, name)
    now = keys.find(scope, name, version) or history[-1]
    first, last = now.exists_in[0], now.exists_in[-1]
    lines = f"since {first}{' or earlier' if first == keys.lines[0] else ''}"
    lines += "" if last == keys.lines[-1] else f", gone after {last}"
    lines += "" if keys.line(version) in now.exists_in else f"; not in {version}"
    others = tuple(dict.fromkeys(_other_defaults(scope, name, types, version, keys)))
    changes = tuple(_changes(history))
    return Definition(scope, now.type, now.valid, now.default, now.required, changes, lines, others)


def _other_defaults(kind: str, plain: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Iterator[str]:
    every = (client for type_ in types for client in clients_of_line(type_, version))
    for client in (client for client in every if client.kind == kind):
        if (value := framework_defaults(client, Setting(version), keys).get(plain)) is not None:
            yield f"{client.name}: {value} ({framework(client)})"
        if client.block and plain in CLIENT_DEFAULTS.get(client.block, {}):
            value, reason = CLIENT_DEFAULTS[client.block][plain]
            yield f"{client.block}: {value} (mm2mgr: {reason})"


def _changes(history: Sequence[Key]) -> Iterator[str]:
    runs = groupby(history, key=lambda key: key.default)
    spans = [(default, [line for key in same for line in key.lines]) for default, same in runs]
    for default, lines in spans if len(spans) > 1 else ():
        value = "none" if default is None else default or "empty"
        yield f"{value} in {lines[0]}" + (f"-{lines[-1]}" if lines[1:] else "")


KINDS = ("producer", "consumer", "admin")
_BLOCKS = sorted({client.block for of_type in CLIENTS.values() for client in of_type if client.block})
_PAIR = re.compile(r"[^.\s]+->(?P<target>[^.\s]+)\.")  # of mm2.properties
RENAMED = {f"{name}.blacklist": f"{name}.exclude" for name in ("topics", "groups", "config.properties")}  # KIP-629
GENERAL = ("consumer.", "producer.", "admin.")
# Prefixes that some client looks at, and those that people try although none does; the longest match is what was meant.
_LIVE = {layer.prefix for of_type in CLIENTS.values() for client in of_type for layer in client.layers}
_DEAD = {f"{side}.cluster.{kind}." for side in ("source", "target") for kind in KINDS} | {
    *("offset-syncs.producer.", "offset-syncs.consumer.", "source.producer.override.", "target.producer.override."),
    *("source.consumer.override.", "target.consumer.override.", "source.override.", "target.override."),
    *("source.", "target."),
}
_PREFIXES = sorted(_LIVE | _DEAD, key=len, reverse=True)
PRINCIPAL_KEYS = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")  # what the policy of that name lets pass


def policy_refuses(policy: str, plain: str, allowlist: Collection[str] | None) -> bool:
    """Tell whether the workers' override policy, by its short name, refuses a client's key (KIP-458, KIP-1188).

    `allowlist` is what Allowlist lists, None where that is not known; custom policies are taken to allow all.
    """
    if policy == "Principal":
        return plain not in PRINCIPAL_KEYS
    if policy == "Allowlist" and allowlist is not None:
        return plain not in allowlist
    return policy == "None"


def policy_name(text: str) -> str:
    """Return the short name of an override policy in any spelling that the workers take."""
    return text.strip().rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")


_WHEN = {
    "always": "",
    "syncs on source": "while the offset-syncs topic is on the source (Kafka's default)",
    "syncs on target": "only with offset-syncs.topic.location=target",
    "own offsets": "only with offsets.storage.topic or an exactly-once worker",
    "framework admin": "only with offsets.storage.topic, topic.creation.* or an exactly-once worker",
}
_CONDITIONAL = ("syncs on target", "own offsets", "framework admin")


@dataclass(frozen=True)
class Effect:
    """A client that gets the key. `outranked_by` are prefixes over this spelling; not `does`: the client ignores it."""

    connector: str
    client: str
    key: str
    when: str
    outranked_by: tuple[str, ...]
    does: bool
    note: str


@dataclass(frozen=True)
class Instead:
    """How to set the key for one client: in YAML (None: only in your own template), and in a raw connector config."""

    connectors: tuple[str, ...]
    client: str
    yaml: str | None
    raw: str
    policy: str


@dataclass(frozen=True)
class Explanation:
    """The complete explanation of one spelling."""

    key: str
    kafka: str
    plain: str
    verdict: str
    effects: tuple[Effect, ...]
    instead: tuple[Instead, ...]
    definitions: tuple[Definition, ...]
    notes: tuple[str, ...]


def explain(key: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Explanation:
    """Explain a spelling for some connector types; raise Mm2mgrError with the nearest known key if it is unknown."""
    if key in _OF_DRIVER:
        return _driver_key(key, version, keys)
    if key not in CLUSTER_KEYS and any(keys.history(type_, key) for type_ in CLIENTS):
        return _connector_key(key, types, version, keys)
    if pair := _PAIR.match(key):
        return _line_of_pair(key, pair, types, version, keys)
    prefix, plain = split(key, keys)
    scopes = [kind for kind in KINDS if keys.history(kind, plain)]
    if not scopes:
        return _elsewhere(prefix, plain, types, version, keys)
    effects = tuple(_effects(prefix, plain, types, version, keys))
    return Explanation(
        key,
        version,
        plain,
        _verdict(prefix, plain, effects),
        effects,
        tuple(_instead(plain, prefix, types, version, keys)),
        define_all(scopes, plain, types, version, keys),
        (*_notes(prefix, plain, effects), *_place_on_workers(key, keys)),
    )


def split(key: str, keys: Keys) -> tuple[str, str]:
    """Return prefix (or block of the YAML, with a dot) and plain key; a key that a client knows has no prefix."""
    if any(keys.history(kind, key) for kind in KINDS):
        return "", key
    prefixes = [*(f"{block}." for block in _BLOCKS), *_PREFIXES]
    prefix = next((prefix for prefix in prefixes if key.startswith(prefix)), "")
    return prefix, key.removeprefix(prefix)


# --- keys of clients --------------------------------------------------------------------------------------------------


def _effects(prefix: str, plain: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Iterator[Effect]:
    for type_, client in (
        (connector_type, client) for connector_type in types for client in clients_of_line(connector_type, version)
    ):
        key = prefix + plain
        if prefix[:-1] in _BLOCKS:
            key = client.layers[-1].prefix + plain if client.block == prefix[:-1] else ""
        for hit in seen_by(client, key):
            note = _useless(hit, version, keys)
            higher = tuple(layer.prefix for layer in client.layers[hit.rank + 1 :])
            yield Effect(type_, client.name, hit.key, _WHEN[client.exists], higher, not note, note)


def _useless(hit: Reached, version: str, keys: Keys) -> str:
    if hit.key in hit.client.forced:
        return "MirrorMaker sets this itself, last"
    if not keys.find(hit.client.kind, hit.key, version):
        return f"{'an' if hit.client.kind == 'admin' else 'a'} {hit.client.kind} does not know this key"
    return ""


def _verdict(prefix: str, plain: str, effects: Sequence[Effect]) -> str:
    working = [effect for effect in effects if effect.does]
    sure = [effect for effect in working if not effect.when.startswith("only")]
    if sure:
        return f"reaches {_clients_of(sure)}"
    if working:
        return f"does nothing by default: {_clients_of(working)} would see it {working[0].when}"
    return f"does nothing: {_why_nothing(prefix, plain, effects)}"


def _clients_of(effects: Sequence[Effect]) -> str:
    by_client: dict[str, list[str]] = {}
    for effect in effects:
        by_client.setdefault(f"the {effect.client}", []).append(effect.connector)
    return ", ".join(f"{client} ({', '.join(dict.fromkeys(types))})" for client, types in by_client.items())


def _why_nothing(prefix: str, plain: str, effects: Sequence[Effect]) -> str:
    if effects:
        return effects[0].note
    if not prefix and plain in SECURITY_KEYS:
        return "Connect checks it, but no client reads it without a prefix"
    if not prefix:
        return "no client reads a connector's key without a prefix, and Connect reports no error"
    if prefix.startswith(("source.cluster.", "target.cluster.")):
        return (
            f"{prefix[:15]} passes only bootstrap.servers, security.protocol, ssl.* and sasl.*, and drops other keys "
            "without an error"
        )
    return f"no client of these connectors reads {prefix}*"


def _instead(plain: str, prefix: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Iterator[Instead]:
    if plain in CLUSTER_KEYS:
        yield from _cluster_ways(plain, types)
        return
    ways: dict[tuple[str | None, str], tuple[list[str], list[str]]] = {}
    for type_ in types:
        # Connect's rarely created clients count if the key has their prefix.
        rare = [
            rare_client
            for rare_client in clients_of_line(type_, version)
            if rare_client.layers[-1].prefix == prefix and rare_client.exists in _CONDITIONAL
        ]
        for client in (*clients(type_, Setting(version)), *rare):
            if keys.find(client.kind, plain, version) and plain not in client.forced:
                yaml = f"{client.block}: {{{plain}: …}}" if client.block else None
                names = ways.setdefault((yaml, client.layers[-1].prefix + plain), ([], []))
                names[0].append(type_)
                names[1].append(client.name)
    for (yaml, raw), (of_types, of_clients) in ways.items():
        names_once = ", ".join(dict.fromkeys(of_clients))
        yield Instead(tuple(dict.fromkeys(of_types)), names_once, yaml, raw, policy_of(raw))


def _cluster_ways(plain: str, types: Sequence[ConnectorType]) -> Iterator[Instead]:
    yaml = "clusters: {<alias>: {bootstrap_servers: […]}}" if plain == "bootstrap.servers" else None
    if plain in SECURITY_KEYS:
        name = "protocol" if plain == "security.protocol" else plain
        yaml = f"clusters: {{<alias>: {{security: {{{name}: …}}}}}}"
    with_source = tuple(type_ for type_ in types if type_ != "heartbeat")
    if with_source:
        yield Instead(with_source, "all clients that read the source", yaml, f"source.cluster.{plain}", "")
    yield Instead(tuple(types), "admin and checkpoint clients on the target", yaml, f"target.cluster.{plain}", "")
    raw = f"producer.override.{plain}"
    yield Instead(tuple(types), "record producer", yaml, raw, policy_of(raw))


def policy_of(raw: str) -> str:
    """Return what connector.client.config.override.policy must be for a raw key, "" if it does not matter."""
    _, override, plain = raw.partition(".override.")
    if not override:
        return ""
    principal = ", Principal" if plain in PRINCIPAL_KEYS else ""
    return f"All (Kafka's default since 3.0){principal}, or Allowlist (4.2 and newer) that lists {plain}"


def _notes(prefix: str, plain: str, effects: Sequence[Effect]) -> Iterator[str]:
    if prefix.endswith("producer.") and prefix != "record_producer.":
        yield "mirrored records are written by Connect's own producer, which only producer.override.* reaches"
    if prefix in ("consumer.override.", "admin.override."):
        yield (
            "these are Connect's own clients for offsets, not the clients with which MirrorMaker reads and creates "
            "topics"
        )
    if prefix in GENERAL and plain in CLUSTER_KEYS and effects:
        yield f"{prefix}{plain} applies to clients of both clusters, and overrides source.cluster. and target.cluster."
    if plain in ("enable.idempotence", "transactional.id"):
        yield "an exactly-once worker sets this for the record producer, whatever is configured"
    if not prefix and plain in CLUSTER_KEYS:
        yield "only in mm2.properties does it have an effect without a prefix"


# --- lines of mm2.properties ------------------------------------------------------------------------------------------


_DRIVER = "MirrorMaker's driver"
_CLIENT_LINES_SINCE = (2, 8)  # before, they were below source.cluster., where no client looks (apache/kafka#9313)
# Lines that the driver reads itself (MirrorMakerConfig): what they do, and since which line of Kafka.
_OF_DRIVER: dict[str, tuple[str, Definition, tuple[int, ...]]] = {
    "clusters": (
        "lists the aliases of the clusters; each pair of them can mirror, and A->B.enabled = true starts one",
        Definition(_DRIVER, "list", "", None, True, (), "since 2.7 or earlier", ()),
        (),
    ),
    "dedicated.mode.enable.internal.rest": (
        "starts a REST server on each node of a dedicated MirrorMaker, by which nodes forward changes of connectors "
        "and tasks to the one that leads (KIP-710); without it several nodes miss new topics and partitions "
        "(KAFKA-9981)",
        Definition(_DRIVER, "boolean", "", "false", False, (), "since 3.5", ()),
        (3, 5),
    ),
}


def _driver_key(key: str, version: str, keys: Keys) -> Explanation:
    does, definition, since = _OF_DRIVER[key]
    verdict = _BEGINS if numbers(version) >= since else f"does nothing: Kafka {version} does not have it"
    notes = (does, "a connector on Connect, and a tree, have no such key")
    return Explanation(key, version, key, verdict, (), (), (definition,), notes)


_ENABLED = Definition(_DRIVER, "boolean", "", "false", False, (), "since 2.7 or earlier", ())
_BEGINS = "is a line of mm2.properties"


def _line_of_pair(
    key: str, match: re.Match[str], types: Sequence[ConnectorType], version: str, keys: Keys
) -> Explanation:
    """Explain a line `A->B.…` (MirrorMakerConfig.connectorBaseConfig): the pair's connectors get the rest."""
    target, plain = match["target"], key[match.end() :]
    pair = key.removesuffix(f".{plain}")
    notes: tuple[str, ...]
    if plain == "enabled":
        switch = (
            f"true starts all three connectors of {pair}; otherwise it mirrors nothing, and only its heartbeat "
            "connector runs (emit.heartbeats.enabled, which is true by default)",
            f"only true counts, in any letters: yes, on and 1 leave {pair} switched off",
        )
        return Explanation(key, version, plain, f"{_BEGINS}: it switches {pair} on", (), (), (_ENABLED,), switch)
    right = explain(plain, types, version, keys)
    notes = right.notes
    if not right.effects and keys.history("worker", plain):
        notes = (f"the workers of {pair} take it from {target}.{plain}",)
    if plain == "emit.heartbeats.enabled":
        notes = (f"false also keeps the workers of {pair} from starting where {pair}.enabled is not true",)
    does = any(effect.does for effect in right.effects)
    if not does:
        return replace(
            right, key=key, verdict=f"does nothing for a pair: {right.verdict.partition(': ')[2]}", notes=notes
        )
    notes = (*notes, f"a connector on Connect has it as {plain}")
    return replace(right, key=key, verdict=f"{_BEGINS} for one pair: it {right.verdict}", notes=notes)


def _line_of_cluster(key: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Explanation | None:
    """Explain a line `A.…` of a cluster (MirrorMakerConfig.clusterProps); None if no cluster's key follows."""
    for dot in re.finditer(r"\.", key):
        alias, tail = key[: dot.start()], key[dot.end() :]
        kind, _, plain = tail.partition(".")
        is_client = kind in KINDS and bool(keys.history(kind, plain))
        if tail in CLUSTER_KEYS or is_client or keys.history("worker", tail):
            break
    else:
        return None
    begins = f"{_BEGINS} that lists {alias} under clusters: it"
    near = nearest(key, "", key, keys)
    notes = (f"no connector has such a key{f'; nearest: {near}' if near else ''}",)
    on_workers = f"the workers of the pairs that write to {alias}"
    if is_client:
        # The target's lines for a producer are the workers' too, who write the records.
        prefixes = ["producer.override."] if kind == "producer" else []
        if numbers(version) >= _CLIENT_LINES_SINCE:
            prefixes += [f"source.{kind}.", f"target.{kind}."]
        effects = tuple(effect for prefix in prefixes for effect in _effects(prefix, plain, types, version, keys))
        instead = tuple(_instead(plain, "", types, version, keys))
        definitions = define_all([kind], plain, types, version, keys)
        verdict = f"{begins} {_verdict(f'source.{kind}.', plain, effects)}"
        if not effects:
            verdict = f"does nothing: Kafka {version} gives such a line of mm2.properties to no client"
        return Explanation(key, version, plain, verdict, effects, instead, definitions, notes)
    if tail in CLUSTER_KEYS:
        sides = ("source.cluster.", "target.cluster.")
        effects = tuple(effect for side in sides for effect in _effects(side, tail, types, version, keys))
        verdict = f"{begins} reaches all clients of {alias}, and {on_workers}"
        definitions = define_all([scope for scope in KINDS if keys.history(scope, tail)], tail, types, version, keys)
        return Explanation(key, version, tail, verdict, effects, tuple(_cluster_ways(tail, types)), definitions, notes)
    definitions = (define("worker", tail, (), version, keys),)
    return Explanation(key, version, tail, f"{begins} reaches {on_workers}", (), (), definitions, notes)


def _place_on_workers(key: str, keys: Keys) -> tuple[str, ...]:
    return (place_of_worker_key(key),) if key not in CLUSTER_KEYS and keys.history("worker", key) else ()


# --- keys of connectors, and unknown keys -----------------------------------------------------------------------------


def _connector_key(key: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Explanation:
    owners = [type_ for type_ in CLIENTS if keys.history(type_, key)]
    effects = tuple(
        Effect(type_, "connector", key, "", (), True, "") for type_ in types if keys.find(type_, key, version)
    )
    if effects:
        verdict = f"is read by the connector itself ({', '.join(effect.connector for effect in effects)})"
    elif any(keys.find(type_, key, version) for type_ in owners):
        verdict = f"does nothing: only {', '.join(owners)} connectors read it"
    else:
        verdict = f"does nothing: Kafka {version} does not have it"
    right = key if not verdict.endswith("have it") else RENAMED.get(key)
    reported: dict[Definition, str] = {}
    for type_ in owners:
        reported.setdefault(replace(define(type_, key, (), version, keys), scope="connector"), type_)
    instead = tuple(_connector_ways(right, owners)) if right else ()
    return Explanation(key, version, key, verdict, effects, instead, tuple(reported), ())


def _connector_ways(key: str, owners: Sequence[ConnectorType]) -> Iterator[Instead]:
    by_yaml: dict[str, list[str]] = {}
    for type_ in owners:
        yaml = OWNED_CONNECTOR_KEYS.get(key, f"{type_}_connector: {{{key}: …}}").removeprefix("write ")
        by_yaml.setdefault(yaml, []).append(type_)
    for yaml, types in by_yaml.items():
        yield Instead(tuple(types), "connector", yaml, key, "")


def _elsewhere(prefix: str, plain: str, types: Sequence[ConnectorType], version: str, keys: Keys) -> Explanation:
    """Explain a key that no client knows: a connector key with a prefix, a worker key, or an unknown key."""
    key, owners = prefix + plain, [type_ for type_ in CLIENTS if prefix and keys.history(type_, plain)]
    if owners:
        right = _connector_key(plain, owners, version, keys)
        verdict = f"does nothing: it is a connector's own key and has no prefix {prefix}"
        return replace(right, key=key, verdict=verdict, effects=())
    if keys.history("worker", key):
        verdict = "does nothing on a connector: it belongs in the properties of the Connect workers"
        definitions = (define("worker", key, (), version, keys),)
        return Explanation(key, version, key, verdict, (), (), definitions, _place_on_workers(key, keys))
    if key.startswith(PROVIDERS):
        verdict = "does nothing on a connector: it belongs in the properties of the Connect workers"
        return Explanation(key, version, key, verdict, (), (), (), (place_of_worker_key(key),))
    if (line := _line_of_cluster(key, types, version, keys)) is not None:
        return line
    if kind := server_setting(plain):
        raise Mm2mgrError(f"'{plain}' is a setting of {kind}s, which no connector reads", hint=f"set it on the {kind}s")
    near = nearest(key, prefix, plain, keys)
    hint = f"nearest: {near}" if near else "see the keys of a connector with: mm2mgr render"
    raise Mm2mgrError(f"no Kafka from {keys.lines[0]} to {keys.lines[-1]} knows the key '{key}'", hint=hint)


def nearest(key: str, prefix: str, plain: str, keys: Keys) -> str | None:
    """Return the most similar known key, with the original prefix if it is a client's key."""
    candidates = [(prefix + near, near, plain) for kind in KINDS if (near := keys.nearest(plain, kind))]
    candidates += [(near, near, key) for scope in (*CLIENTS, "worker") if (near := keys.nearest(key, scope))]
    ratios = [(SequenceMatcher(None, near, meant).ratio(), spelled) for spelled, near, meant in candidates]
    return max(ratios)[1] if ratios else None


_WORKER_PREFIXES = (
    *("offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter"),
    *("task", "worker", "replication.policy", "config.providers"),
)
REST_PREFIXES = ("listeners", "admin.listeners", "rest.", "access.control.", "response.http.headers.")
"""Settings of a dedicated MirrorMaker's REST server, with dedicated.mode.enable.internal.rest (KIP-710, 3.5)."""
PROVIDERS = "config.providers."


def to_worker(key: str) -> bool:
    """Tell whether the driver passes a top-level line to the workers of every pair."""
    return key.startswith(_WORKER_PREFIXES)


def place_of_worker_key(key: str) -> str:
    """Say where a setting of the workers has an effect in mm2.properties."""
    if to_worker(key):
        return (
            f"in mm2.properties, {key} reaches the workers of all pairs, and B.{key} those of the pairs that write to B"
        )
    if key.startswith(REST_PREFIXES):
        return (
            f"in mm2.properties, {key} is a setting of the driver's own REST server "
            "(dedicated.mode.enable.internal.rest, since 3.5)"
        )
    return f"in mm2.properties, B.{key} reaches the workers of the pairs that write to B; {key} alone reaches no worker"
