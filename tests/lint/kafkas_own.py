"""What files of connectors mirror, worked out a second time as Kafka's sources say, with nothing of mm2mgr: the tests' own answer.

For each connector: what it takes of some topics and groups, the names on the target, addresses, logins, and where state is kept.
Sources: MirrorSourceConnector, DefaultTopicFilter, DefaultReplicationPolicy, MirrorConnectorConfig, MirrorMakerConfig, and
KafkaMirrorMaker2Connectors of Strimzi's operator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

TOPICS = (
    *(
        "orders",
        "order",
        "orders-eu",
        "orders.eu",
        "orders_eu",
        "ordersss",
        "payments",
        "payments.orders",
        "payments-orders",
    ),
    *(
        "shop.orders",
        "shopxorders",
        "invoices",
        "legacy-a",
        "my-topic",
        "x",
        "x.replica",
        "debug-",
        "debug-a",
        "orders_debug",
    ),
    *(
        "A.orders",
        "B.orders",
        "B.x",
        "target.x",
        "__x",
        "mm2-configs.A.internal",
        "connect-status",
        "a.internal",
        "parcels",
        "tickets",
    ),
)
GROUPS = ("shop", "shop.eu", "shopxeu", "console-consumer-1", "connect-x", "__x", "x")
TYPES = {
    "MirrorSourceConnector": "source",
    "MirrorCheckpointConnector": "checkpoint",
    "MirrorHeartbeatConnector": "heartbeat",
}
EXCLUDED = {
    "topics": r"mm2.*\.internal,.*\.replica,__.*",
    "groups": r"console-consumer-.*,connect-.*,__.*",
}
STATE = "(state of the resource)"
LOGIN = re.compile(
    r"security\.protocol|ssl\.((truststore|keystore)\.(location|password|type|certificates|key|certificate\.chain)|key\.password"
    r"|protocol|enabled\.protocols|endpoint\.identification\.algorithm)|sasl\.(mechanism|jaas\.config|kerberos\.service\.name)"
)
SECURITY = ("security.", "ssl.", "sasl.")
Config = dict[str, str]


def configs(file: str, text: str) -> dict[tuple[str, ...], Config]:
    """Return the connectors of a file by name, each with the config that it gets; a key that stands twice counts as its last."""
    if text.lstrip()[:1] in "{[":
        found = of_json(json.loads(text))
    elif file.endswith((".yaml", ".yml")):
        found = (each for document in yaml.safe_load_all(text) for each in of_yaml(document or {}))
    else:
        found = of_properties(lines_of(text))
    numbered: dict[tuple[str, ...], Config] = {}
    for name, config in found:
        number = sum(1 for each in numbered if each[1] == name)
        numbered[file, name, str(number)] = config
    return numbered


def lines_of(text: str) -> Config:
    """Read as java.util.Properties does."""
    found: Config = {}
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*", r"\1", text)
    for line in (line.lstrip(" \t\f") for line in text.split("\n")):
        if line and line[0] not in "#!":
            key, _, value = re.fullmatch(
                r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:]?[ \t\f]*)(.*)", line, re.DOTALL
            ).groups()  # type: ignore[union-attr]
            found[_unescaped(key)] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    letters = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)", lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else letters.get(m[1], m[1]), text
    )


def of_json(data: Any) -> Iterator[tuple[str, Config]]:
    """Yield connectors in any of the shapes of Connect's REST API."""
    if isinstance(data, list):
        for each in data:
            yield from of_json(each)
    elif isinstance(data, dict):
        config = data.get("config") if isinstance(data.get("config"), dict) else data
        if "connector.class" in config:
            yield str(data.get("name") or config.get("name", "")), {key: _text(value) for key, value in config.items()}
        else:
            for name, each in data.items():
                for found, config in of_json(each.get("info", each) if isinstance(each, dict) else each):
                    yield found or name, config


def _text(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def of_properties(lines: Config) -> Iterator[tuple[str, Config]]:
    """Yield the connector of a file, or those that the driver makes of mm2.properties."""
    if "connector.class" in lines:
        yield lines.get("name", ""), lines
        return
    names = [name.strip() for name in lines.get("clusters", "").split(",")]
    for source in names:
        for target in names:
            if source == target or lines.get(f"{source}->{target}.enabled", "").strip().lower() != "true":
                continue
            for class_ in TYPES:
                yield f"{source}->{target} {class_}", _driven(lines, source, target, class_)


def _driven(lines: Config, source: str, target: str, class_: str) -> Config:
    """MirrorMakerConfig.connectorBaseConfig, with the target's `producer.` lines that its workers hand to the record producer."""
    config = {
        key: value
        for key, value in lines.items()
        if "->" not in key and not key.startswith((f"{source}.", f"{target}."))
    }
    config = {
        key: value
        for key, value in config.items()
        if not key.startswith((*SECURITY, "consumer.", "producer.", "admin."))
    }
    for side, alias in (("source", source), ("target", target)):
        own = {key[len(alias) + 1 :]: value for key, value in lines.items() if key.startswith(f"{alias}.")}
        for key, value in {**{key: value for key, value in lines.items() if key.startswith(SECURITY)}, **own}.items():
            is_client = key.startswith(("producer.", "consumer.", "admin."))
            config[f"{side}.{key}" if is_client else f"{side}.cluster.{key}"] = value
            if side == "target" and (key.startswith(SECURITY) or key == "bootstrap.servers"):
                config[f"producer.override.{key}"] = value
    config |= {
        key[len(f"{source}->{target}.") :]: value
        for key, value in lines.items()
        if key.startswith(f"{source}->{target}.")
    }
    config.pop("enabled", None)
    ends = {"source.cluster.alias": source, "target.cluster.alias": target}
    return {"connector.class": class_, **ends, **config}


def of_yaml(resource: Any) -> Iterator[tuple[str, Config]]:
    """Yield what Strimzi's operator makes of a resource."""
    spec, name = resource.get("spec") or {}, (resource.get("metadata") or {}).get("name", "")
    for item in resource.get("items", ()):
        yield from of_yaml(item)
    if spec.get("class"):
        config = {
            key: _text(value)
            for key, value in (spec.get("config") or {}).items()
            if key not in ("name", "connector.class")
        }
        yield name, {**config, "connector.class": spec["class"], STATE: _state(spec)}
    clusters = {each.get("alias"): each for each in spec.get("clusters", ()) if isinstance(each, dict)}
    for mirror in spec.get("mirrors", ()) if resource.get("kind") == "KafkaMirrorMaker2" else ():
        source = mirror.get("source") or clusters.get(mirror.get("sourceCluster"))
        target = spec.get("target") or clusters.get(mirror.get("targetCluster"))
        for part in ("source", "checkpoint", "heartbeat"):
            own = mirror.get(f"{part}Connector")
            if source and target and isinstance(own, dict):
                config = {
                    **_side("target", target),
                    **_side("source", source),
                    **{k: _text(v) for k, v in (own.get("config") or {}).items()},
                }
                for member, key in (
                    ("topicsPattern", "topics"),
                    ("topicsExcludePattern", "topics.exclude"),
                    ("groupsPattern", "groups"),
                    ("groupsExcludePattern", "groups.exclude"),
                ):
                    if mirror.get(member) is not None:
                        config[key] = str(mirror[member])
                class_ = f"Mirror{part.capitalize()}Connector"
                yield (
                    f"{source.get('alias', '')}->{target.get('alias', '')}.{class_}",
                    {**config, "connector.class": class_, STATE: _state(own)},
                )


def _state(spec: Mapping[str, Any]) -> str:
    return str(spec.get("state") or ("paused" if spec.get("pause") else "running")).lower()


def _side(side: str, cluster: Mapping[str, Any]) -> Config:
    config = {key: _text(value) for key, value in (cluster.get("config") or {}).items()}
    own = {"alias": cluster.get("alias", ""), "bootstrap.servers": cluster.get("bootstrapServers", "")}
    if isinstance(login := cluster.get("authentication"), dict):
        own |= {"sasl.jaas.config": json.dumps(login, default=str)}
    if isinstance(cluster.get("tls"), dict):
        own |= {"security.protocol": "SSL", "ssl.truststore.certificates": json.dumps(cluster["tls"], default=str)}
    return {f"{side}.cluster.{key}": value for key, value in {**own, **config}.items()}


# --- what a connector does with its config ----------------------------------------------------------------------------


def mirrored(config: Config, version: tuple[int, ...]) -> dict[str, object]:
    """Return what a connector mirrors."""
    get = {key: value.strip() for key, value in config.items()}.get
    type_ = TYPES.get(config["connector.class"].strip().rpartition(".")[2], "")
    source, target = get("source.cluster.alias", "source"), get("target.cluster.alias", "target")
    separator = config.get("replication.policy.separator", ".")
    policy = get("replication.policy.class", "DefaultReplicationPolicy").rpartition(".")[2]
    own: dict[str, object] = {
        "off": get("enabled", "true").lower() == "false" or get(STATE, "running") != "running",
        "aliases": (source, target),
        "transforms": sorted(_transformations(config)),
        "offsets": get("offsets.storage.topic", ""),
        **{
            f"logs in to {side}": _login(config, side)
            for side in ("target.cluster.", "producer.override.", *["source.cluster."] * (type_ != "heartbeat"))
        },
    }
    if type_ in ("source", "checkpoint"):
        takes = _filter(config, "topics", version)
        own["topics"] = (
            "FAILED"
            if takes is None
            else {
                topic: topic if policy.startswith("Identity") else f"{source}{separator}{topic}"
                for topic in TOPICS
                if takes(topic) and not _is_cycle(topic, target, separator, policy)
            }
        )
        own["policy"] = policy, separator
        own["state"] = (
            get("offset-syncs.topic.location", "source") if version >= (3, 0) else "source",
            get("emit.offset-syncs.enabled", "true") if version >= (3, 9) else "true",
        )
    if type_ == "source":
        own["start"] = [
            _first(config, ("source.consumer.", "consumer."), key)
            for key in ("auto.offset.reset", "group.id", "isolation.level")
        ]
    if type_ == "checkpoint":
        takes = _filter(config, "groups", version)
        own["groups"] = "FAILED" if takes is None else list(filter(takes, GROUPS))
        own["writes"] = get("sync.group.offsets.enabled", "false"), get("emit.checkpoints.enabled", "true")
    return own


def _transformations(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings of the transformations that are listed, and of all predicates."""
    names = [name.strip() for name in config.get("transforms", "").split(",") if name.strip()]
    if names:
        yield "transforms", ",".join(names)
        prefixes = (*(f"transforms.{name}." for name in names), "predicates")
        yield from (item for item in config.items() if item[0].startswith(prefixes))


def _is_cycle(topic: str, target: str, separator: str, policy: str) -> bool:
    """MirrorSourceConnector.isCycle: one of the aliases before the name is the target's."""
    return policy.startswith("Default") and bool(separator) and target in topic.split(separator)[:-1]


def _first(config: Config, prefixes: tuple[str, ...], key: str) -> str:
    defaults = {"auto.offset.reset": "earliest", "isolation.level": "read_uncommitted"}
    return next(
        (config[f"{prefix}{key}"].strip() for prefix in prefixes if f"{prefix}{key}" in config), defaults.get(key, "")
    )


def _login(config: Config, prefix: str) -> dict[str, object]:
    own = {key.removeprefix(prefix): value.strip() for key, value in config.items() if key.startswith(prefix)}
    login: dict[str, object] = {key: value for key, value in own.items() if LOGIN.fullmatch(key)}
    for key, default in (
        ("security.protocol", "PLAINTEXT"),
        ("ssl.endpoint.identification.algorithm", "https"),
        ("ssl.protocol", "TLSv1.3"),
        ("ssl.truststore.type", "JKS"),
        ("ssl.keystore.type", "JKS"),
    ):
        if login.get(key) == default:
            login.pop(key)
    servers = re.split(r"[,\s]+", own.get("bootstrap.servers", ""))
    return login | {"servers": sorted({server.rpartition("://")[2].lower() for server in servers if server})}


def _filter(config: Config, what: str, version: tuple[int, ...]) -> Any:
    """DefaultTopicFilter and DefaultGroupFilter: the whole name matches one of `what` and none of what is excluded."""
    excluded = config.get(f"{what}.exclude")
    if excluded is None and version < (4, 0):
        excluded = config.get(f"{what}.blacklist")  # KIP-629
    lists = config.get(what, ".*"), EXCLUDED[what] if excluded is None else excluded
    try:
        include, exclude = (
            re.compile("|".join(f"(?:{item.strip()})" for item in text.split(",") if item.strip()) or "(?!)")
            for text in lists
        )
    except re.error:
        return None
    return lambda name: bool(include.fullmatch(name)) and not exclude.fullmatch(name)
