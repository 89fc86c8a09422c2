"""Reads a flow's settings back from the connectors of a pair: the inverse of `render`, as flat paths and values.

What no setting says is left to `verbatim`; a value that the declaration would refuse is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mm2mgr import defaults
from mm2mgr.assignment_text import is_plugin_class
from mm2mgr.connectors import ConnectorType
from mm2mgr.imports.effective import CONVERTERS
from mm2mgr.imports.effects import Effects, KeyReader, WorkerSetting
from mm2mgr.imports.inputs import Mirror
from mm2mgr.log_places import GROUP_PREFIX, START_KEY
from mm2mgr.render import LANE_OF_KEY
from mm2mgr.spec.scalars import (
    CONNECTOR_KEYS_LIKE_PREFIXES,
    OWNED_CONNECTOR_KEYS,
    PREFIX_BLOCKS,
    SECURITY_KEYS,
    is_name,
)
from mm2mgr.text import whole_number
from mm2mgr.truth.reach import CLUSTER_KEYS

Path = tuple[str, ...]
Settings = dict[Path, object]
"""Values by path below a flow; a client's key that mm2mgr would set and the connector has not is None."""

SILENCE_KEY = "mm2mgr.silence."
DEFAULTS: Settings = {
    ("topics", "exclude"): [],
    ("replication_policy",): "default",
    ("separator",): ".",
    ("delivery",): "at_least_once",
    ("balance", "by"): "stock",
    ("checkpoints", "enabled"): True,
    ("checkpoints", "group_offsets"): False,
    ("checkpoints", "groups", "include"): [".*"],
    ("checkpoints", "groups", "exclude"): [],
    ("checkpoints", "interval"): "60s",
    ("heartbeats", "enabled"): True,
    ("heartbeats", "interval"): "1s",
    ("offset_syncs", "enabled"): True,
    ("offset_syncs", "location"): "source",
    ("sync", "topic_configs"): True,
    ("sync", "topic_acls"): False,
    ("sync", "exclude_properties"): [],
    ("refresh_interval",): "600s",
}
"""What a flow has where nothing is written, of the settings that are read back."""
BLOCKS: Mapping[ConnectorType, tuple[tuple[str, str], ...]] = {
    "source": (
        ("source consumer", "source_consumer"),
        ("record producer", "record_producer"),
        ("source admin", "source_admin"),
        ("target admin", "target_admin"),
        ("offset-syncs producer", "offset_syncs_producer"),
    ),
    "checkpoint": (
        ("checkpoints consumer", "target_consumer"),
        ("source admin", "source_admin"),
        ("target admin", "target_admin"),
    ),
    "heartbeat": (("target admin", "source_admin"),),  # it writes to the source of its flow
}
"""The clients of a connector that have a block of settings in a flow."""
SHARED_BY_PAIR = (
    *(("replication_policy",), ("separator",), ("offset_syncs",), ("target_consumer",), ("source_admin",)),
    *(("target_admin",), ("refresh_interval",), ("checkpoint_connector",), ("checkpoints", "group_offsets")),
    *(("checkpoints", "interval"), ("checkpoints", "connector_name"), ("heartbeats",), ("heartbeat_connector",)),
)
"""What all flows of a pair must agree on."""
_TYPES_BLOCK = {"source": "source_connector", "checkpoint": "checkpoint_connector", "heartbeat": "heartbeat_connector"}
_POLICIES = {class_name: word for word, class_name in defaults.POLICIES.items()}


@dataclass(frozen=True)
class Pair:
    """The connectors of one flow between two clusters: its source connector, and what serves its pair beside it."""

    flow: str
    source: Mirror
    checkpoint: Mirror | None = None
    heartbeat: Mirror | None = None

    @property
    def name(self) -> str:
        """`source->target`."""
        return self.source.pair


def around_of(mirror: Mirror, home_servers: str) -> WorkerSetting:
    """Return where a connector runs, as far as its input says."""
    return WorkerSetting(
        mirror.version, mirror.workers, mirror.exactly_once, home_servers, is_known=bool(mirror.workers)
    )


def read_settings(pair: Pair, shared: Pair) -> Settings:
    """Return the settings of a pair's flow; `shared` is the pair whose connectors decide what its flows share."""
    settings = dict(_of_source(pair.source))
    settings |= dict(_of_checkpoint(pair.checkpoint, shared))
    settings |= dict(_of_heartbeat(pair.heartbeat))
    if shared is not pair:
        common = dict(_of_source(shared.source))
        settings = {path: value for path, value in settings.items() if not _is_shared(path)}
        settings |= {path: value for path, value in common.items() if _is_shared(path)}
        settings |= dict(_of_checkpoint(pair.checkpoint, shared))
        settings |= dict(_of_heartbeat(pair.heartbeat))
    return settings


def _is_shared(path: Path) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in SHARED_BY_PAIR)


def _of_source(mirror: Mirror) -> Iterator[tuple[Path, object]]:
    config = mirror.config
    yield ("topics", "include"), patterns_of(config.get("topics", ".*"))
    yield ("topics", "exclude"), drop_usual(patterns_of(config.get("topics.exclude", "")), defaults.TOPICS_EXCLUDE)
    policy = config.get("replication.policy.class", defaults.POLICIES["default"]).strip()
    yield ("replication_policy",), _POLICIES.get(policy, policy)
    yield ("separator",), config.get("replication.policy.separator", ".")
    is_required = config.get("exactly.once.support", "").strip().lower() == "required"
    yield ("delivery",), "exactly_once" if is_required else "at_least_once"
    yield ("tasks", "max"), whole_number(config.get("tasks.max", "1").strip(), 10) or 1
    yield ("balance", "by"), "plugin" if is_plugin_class(config.get("connector.class", "")) else "stock"
    yield ("offset_syncs", "enabled"), flag(config, "emit.offset-syncs.enabled", default=True)
    yield ("offset_syncs", "location"), config.get("offset-syncs.topic.location", "source").strip()
    yield ("sync", "topic_configs"), flag(config, "sync.topic.configs.enabled", default=True)
    yield ("sync", "topic_acls"), flag(config, "sync.topic.acls.enabled", default=True)
    excluded = patterns_of(config.get("config.properties.exclude", ""))
    yield ("sync", "exclude_properties"), drop_usual(excluded, defaults.PROPERTIES_EXCLUDE)
    yield ("refresh_interval",), seconds_text(config.get("refresh.topics.interval.seconds", "600"))
    if (state := (mirror.origin.state or "").lower()) in ("paused", "stopped"):
        yield ("state",), state
    if group := mirror.origin.start_group:
        yield ("start", "group"), group
    elif start := config.get(START_KEY):
        of_group = start.startswith(GROUP_PREFIX)
        path = ("start", "group") if of_group else ("start",)
        yield path, start.removeprefix(GROUP_PREFIX) if of_group else start
    for key, reason in config.items():
        if key.startswith(SILENCE_KEY) and reason.strip():
            yield ("silence", key.removeprefix(SILENCE_KEY)), reason.strip()
    yield from _blocks(mirror)
    yield from _other_keys(mirror)


def _of_checkpoint(mirror: Mirror | None, shared: Pair) -> Iterator[tuple[Path, object]]:
    yield ("checkpoints", "enabled"), mirror is not None
    if mirror is None:
        return
    config = mirror.config
    yield ("checkpoints", "group_offsets"), flag(config, "sync.group.offsets.enabled", default=False)
    yield ("checkpoints", "groups", "include"), patterns_of(config.get("groups", ".*"))
    excluded = drop_usual(patterns_of(config.get("groups.exclude", "")), defaults.GROUPS_EXCLUDE)
    yield ("checkpoints", "groups", "exclude"), excluded
    yield ("checkpoints", "interval"), seconds_text(config.get("emit.checkpoints.interval.seconds", "60"))
    of_source = {path for path, _ in _blocks(shared.source)}
    yield from (
        (path, value) for path, value in _blocks(mirror) if path not in of_source and path[0] == "target_consumer"
    )
    yield from _other_keys(mirror)


def _of_heartbeat(mirror: Mirror | None) -> Iterator[tuple[Path, object]]:
    yield ("heartbeats", "enabled"), mirror is not None
    if mirror is not None:
        yield ("heartbeats", "interval"), seconds_text(mirror.config.get("emit.heartbeats.interval.seconds", "1"))
        yield from _other_keys(mirror)


def _blocks(mirror: Mirror) -> Iterator[tuple[Path, object]]:
    """Yield the plain keys of clients, and None for those that only mm2mgr sets."""
    effects = Effects(mirror.type, mirror.config, WorkerSetting(mirror.version, exactly_once=mirror.exactly_once))
    is_once = mirror.config.get("exactly.once.support", "").strip().lower() == "required"
    for name, block in BLOCKS[mirror.type]:
        client = effects.clients.get(name)
        if client is None:
            continue
        ours = dict(defaults.CLIENT_DEFAULTS.get(block, {}))
        if is_once:
            ours |= defaults.EXACTLY_ONCE_DEFAULTS.get(block, {})
        own = {plain: mirror.config[key] for plain, key in client.written.items() if effects.is_known(client, plain)}
        for plain, value in own.items():
            if plain not in CLUSTER_KEYS | SECURITY_KEYS and (plain not in ours or ours[plain][0] != value.strip()):
                yield (block, plain), value.strip()
        yield from (((block, plain), None) for plain in ours if plain not in own)


def _other_keys(mirror: Mirror) -> Iterator[tuple[Path, object]]:
    """Yield the connector's own keys that have no setting, as Kafka names them."""
    effects = Effects(mirror.type, mirror.config, WorkerSetting(mirror.version, exactly_once=mirror.exactly_once))
    block = _TYPES_BLOCK[mirror.type]
    has_metric_names = block in defaults.METRIC_NAMES_DEFAULTS
    for key, value in mirror.config.items():
        if key in OWNED_CONNECTOR_KEYS or key.startswith("mm2mgr.") or KeyReader("", key) not in effects.readers(key):
            continue
        is_prefixed = key.startswith(tuple(PREFIX_BLOCKS)) and key not in CONNECTOR_KEYS_LIKE_PREFIXES
        if is_prefixed or key.startswith(tuple(f"{name}." for name in CONVERTERS)):
            continue
        definition = effects.definition(key)
        if definition and definition.default is not None and definition.default.strip() == value.strip():
            continue  # Kafka's own default
        if (key, value) != ("offsets.storage.topic", f"mm2mgr-offsets.{mirror.connect}.internal"):  # its usual name
            yield (block, key), value
    first, until = defaults.METRIC_NAMES_VERSIONS
    number = tuple(int(part) for part in re.findall(r"\d+", mirror.version)[:2])
    if has_metric_names and first <= number < until:
        names = defaults.METRIC_NAMES_DEFAULTS[block]
        yield from (((block, key), None) for key in names if key not in mirror.config)


_SAME_IN_LANES: tuple[Path, ...] = (("state",), ("start",), ("start", "group"))  # a lane has none of its own


def flow_of_lane(pairs: Iterable[Pair]) -> str:
    """Return the flow of which a flow is a lane, by the marks of its connectors; "" for a flow of its own."""
    marks = {(pair.source.config.get(LANE_OF_KEY, "").partition(":"), pair.name) for pair in pairs}
    flows = {flow if of == pair else "" for (flow, _, of), pair in marks}
    return flows.pop() if len(flows) == 1 else ""


def add_lane(
    flow: Mapping[tuple[str, str], Settings], lane: str, own: Mapping[tuple[str, str], Settings]
) -> dict[tuple[str, str], Settings] | None:
    """Return a flow's settings by pair with those of another as a lane; None where it lists more than names."""
    result = dict(flow)
    for ends, settings in own.items():
        names, tasks = settings.get(("topics", "include")), settings.get(("tasks", "max"))
        if ends not in flow or not isinstance(names, list) or settings.get(("topics", "exclude")):
            return None
        rest = flow[ends]
        if any(settings.get(path) != rest.get(path) for path in _SAME_IN_LANES):
            return None
        include, exclude = (list(map(str, _list_of(rest.get(("topics", part))))) for part in ("include", "exclude"))
        of_lane = names if tasks == rest.get(("tasks", "max")) else {"topics": names, "tasks": {"max": tasks}}
        result[ends] = rest | {
            ("topics", "include"): [*include, *(name for name in names if name not in exclude)],
            ("topics", "exclude"): [name for name in exclude if name not in names],
            ("balance", "lanes", lane): of_lane,
        }
    return result


def _list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


# --- values -----------------------------------------------------------------------------------------------------------


def flag(config: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Return a truth value of a config."""
    text = config.get(key, "").strip().lower()
    return text == "true" if text in ("true", "false") else default


def seconds_text(text: str) -> str:
    """Return seconds as a duration of the declaration."""
    number = whole_number(text.strip(), 9)
    return f"{number}s" if number is not None and number > 0 else "1s"


def patterns_of(text: str) -> list[str]:
    """Return a list of Kafka's expressions as a tree has them: names without backslashes, none twice."""
    items = (item for part in text.split(",") if (item := part.strip()))
    return list(dict.fromkeys(name_or_pattern(item) for item in items))


def name_or_pattern(item: str) -> str:
    """Return the plain name that an expression with escaped dots means, another expression as it is."""
    plain = item.replace(r"\.", ".")
    return plain if is_name(plain) else item


def drop_usual(items: Iterable[str], always: Iterable[str]) -> list[str]:
    """Return the items that a tree does not have by itself."""
    usual = {name_or_pattern(item) for item in always} | set(always)
    return [item for item in items if item not in usual]
