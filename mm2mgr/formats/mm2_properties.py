"""Translates mm2.properties as MirrorMaker's driver does: the connectors that a file starts, and whose line each is.

Follows MirrorMakerConfig: clusterProps, workerConfig, connectorBaseConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from mm2mgr.connectors import CLASSES, PACKAGE
from mm2mgr.formats.connectors import CONVERTERS, EXACTLY_ONCE_KEY, FoundConnector, FoundWorkers
from mm2mgr.formats.properties import Entry, as_typed, last, meant_value
from mm2mgr.formats.templates import template_in
from mm2mgr.truth import keys as truth_keys
from mm2mgr.truth.explain import KINDS, REST_PREFIXES, to_worker
from mm2mgr.truth.reach import CLIENTS, CLUSTER_KEYS

_CLIENT = re.compile(r"(producer|consumer|admin).*", re.DOTALL)
# Defined beside the three connectors' own definitions, which are all that the driver looks for at the top level.
_NOT_AT_TOP = frozenset({"exactly.once.support", "offsets.storage.topic", "use.defaults.from"})
_NOT_AT_TOP_PREFIXES = ("topic.creation.", "transaction.boundary")
# What the driver reads of a file itself: MirrorMakerConfig's own definition, with that of its REST server (KIP-710).
_OWN = frozenset({"clusters", "dedicated.mode.enable.internal.rest", "bootstrap.servers", "security.providers"})
_OWN_PREFIXES = (*REST_PREFIXES, "ssl.", "sasl.", "config.providers", "mm2mgr.")
# Prefixes of a connector config, which stand for a side there and not for a cluster's name.
CONNECTOR_PREFIXES = tuple(
    {layer.prefix for clients in CLIENTS.values() for client in clients for layer in client.layers}
    | {"source.", "target.", "transforms.", "predicates.", "topic.creation."}
)
_ARROW = r"\s*(?:-+>|=>|>|→)\s*"
_PAIR = re.compile(r"(?P<source>[^\s>]+?)->(?P<target>[^\s>]+)")


def is_passed(key: str) -> bool:
    """Tell whether the driver passes a top-level line to the connectors."""
    return key.startswith(("config.providers", "replication.policy")) or key in _top_level_names()


def is_top_level_name(key: str) -> bool:
    """Tell whether the driver looks for this name at the top level, even where a cluster is called so."""
    return (
        key in _top_level_names() or key in _OWN or (to_worker(key) and bool(truth_keys.load().history("worker", key)))
    )


@cache
def _top_level_names() -> frozenset[str]:
    keys = truth_keys.load()
    names = {name for scope in CLASSES.values() for name in keys.names(scope)}
    return frozenset(
        name
        for name in names
        if "<" not in name and name not in _NOT_AT_TOP and not name.startswith(_NOT_AT_TOP_PREFIXES)
    )


@dataclass(frozen=True)
class Line(Entry):
    """A line that counts. `aliases`: () is the top level, (A,) a cluster, (A, B) a pair; `plain` is the key below them.

    They are names as the line has them: whether `clusters` lists them is another question.
    """

    aliases: tuple[str, ...] = ()
    plain: str = ""


@dataclass(frozen=True)
class Dedicated:
    """An mm2.properties file."""

    entries: tuple[Entry, ...]

    @cached_property
    def lines(self) -> dict[str, Line]:
        """The last line of each key, with the value that was meant."""
        return {key: self._line(entry) for key, entry in self._last.items()}

    @cached_property
    def _last(self) -> dict[str, Entry]:
        return last(self.entries)

    def _line(self, entry: Entry) -> Line:
        aliases = () if self.meant_pair(entry) else self.aliases(entry.key)
        plain = entry.key[len("->".join(aliases)) + 1 :] if aliases else entry.key
        return Line(entry.key, meant_value(entry), entry.raw, entry.line, file=entry.file, aliases=aliases, plain=plain)

    def aliases(self, key: str) -> tuple[str, ...]:
        """Return whose line it is: of names of which one begins with another the longer one, as people mean it."""
        for names, aliases in self._prefixes:
            if key.startswith(names) and (len(aliases) > 1 or not is_top_level_name(key)):
                return aliases
        return _named_in(key)

    @cached_property
    def _prefixes(self) -> list[tuple[str, tuple[str, ...]]]:
        every = [*((alias,) for alias in self.clusters), *self.pairs()]
        prefixes = [("->".join(aliases) + ".", aliases) for aliases in every]
        return sorted(prefixes, key=lambda pair: len(pair[0]), reverse=True)

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """The aliases; the driver ignores clusters that are not listed here."""
        return tuple(dict.fromkeys(alias for part in self.value("clusters").split(",") if (alias := part.strip())))

    def misspelt(self, entry: Entry) -> str:
        """Return how the line of a pair is written right, "" when it is right or of no pair."""
        pair, _, tail = entry.key.rpartition(".")
        if is_misspelt_enabled(tail) and pair in {"->".join(names) for names in self.pairs()}:
            return f"{pair}.enabled = true"
        return self.meant_pair(entry)

    def meant_pair(self, entry: Entry) -> str:
        """Return how a misspelt pair of two listed clusters is written right, "" for every other line."""
        names = "|".join(map(re.escape, sorted(self.clusters, key=len, reverse=True)))
        text = whole(entry)
        match = names and re.match(rf"({names})({_ARROW}|\.)({names})(\s*(?:\.|->)\s*)([\w.-]+)", text)
        if not match or (match[2] == "." and match[5] not in ("enabled", "enable")):
            return ""
        if (match[2], match[4]) == ("->", ".") and text == entry.key:
            return f"a pair of two clusters: {match[1]} cannot mirror itself" if match[1] == match[3] else ""
        key = "enabled" if is_misspelt_enabled(match[5]) else match[5]
        return f"{match[1]}->{match[3]}.{key} = …"

    def value(self, key: str) -> str:
        entry = self._last.get(key)
        return meant_value(entry).strip() if entry else ""

    def flag(self, key: str, *, default: bool = False) -> bool:
        return (self.value(key) or str(default)).lower() == "true"

    def is_enabled(self, source: str, target: str) -> bool:
        """Tell whether a pair mirrors; one for which a template decides it is judged as one that does."""
        key = f"{source}->{target}.enabled"
        return self.flag(key) or bool(template_in(self.value(key)))

    def sends_heartbeats(self, source: str, target: str) -> bool:
        """Tell whether a pair's heartbeat connector runs; it also runs for pairs that mirror nothing."""
        everywhere = self.flag("emit.heartbeats.enabled", default=True)
        return self.flag(f"{source}->{target}.emit.heartbeats.enabled", default=everywhere)

    def pairs(self) -> list[tuple[str, str]]:
        """Return every pair that could mirror."""
        return [(source, target) for source in self.clusters for target in self.clusters if source != target]


def connectors(file: Dedicated) -> Iterator[FoundConnector]:
    """Yield what the driver starts: three connectors per pair that mirrors, else its heartbeats unless disabled.

    Two things are left out that decide nothing: `enabled`, which the driver fills in, and the copies of top-level
    security keys, which no client reads; all clusters have them as their defaults.
    """
    # Those that mirror first: what is found in a line that several pairs have is reported for one of them.
    for source, target in sorted(file.pairs(), key=lambda pair: not file.is_enabled(*pair)):
        types: Sequence[str] = list(CLASSES) if file.is_enabled(source, target) else []
        if not types and file.sends_heartbeats(source, target):
            types = ["MirrorHeartbeatConnector"]
        for class_name in types:
            yield _connector(file, source, target, class_name)


def _connector(file: Dedicated, source: str, target: str, class_name: str) -> FoundConnector:
    lines = _config(file, source, target)
    own = {
        "name": class_name,
        "connector.class": f"{PACKAGE}.{class_name}",
        "source.cluster.alias": source,
        "target.cluster.alias": target,
    }
    pair = f"{source}->{target}"
    return FoundConnector(
        f"{pair} {class_name}",
        class_name,
        own | {key: line.value for key, line in lines.items()},
        lines,
        (file.lines.get(f"{pair}.enabled") or file.lines["clusters"]).line,
        form="dedicated",
        workers=FoundWorkers(_worker(file, source, target), policy="All"),
    )


def _config(file: Dedicated, source: str, target: str) -> dict[str, Line]:
    """Merge the layers of connectorBaseConfig, lowest first."""
    result = {key: line for key, line in file.lines.items() if is_passed(key) and key not in CLUSTER_KEYS}
    for side, alias in (("source", source), ("target", target)):
        for key, line in _cluster(file, alias).items():
            result[f"{side}.{key}" if _CLIENT.fullmatch(key) else f"{side}.cluster.{key}"] = line
    # The target's `producer.` lines, as overrides: the workers pass them to the record producer.
    of_records = _lines_below(file, f"{target}.producer.").items()
    result |= {f"producer.override.{key}": line for key, line in of_records if key not in CLUSTER_KEYS}
    result |= _lines_below(file, f"{source}->{target}.")
    for key in ("enabled", EXACTLY_ONCE_KEY, *filter(is_misspelt_enabled, list(result))):
        result.pop(key, None)
    return result


def _lines_below(file: Dedicated, prefix: str) -> dict[str, Line]:
    return {key[len(prefix) :]: line for key, line in file.lines.items() if key.startswith(prefix)}


def _cluster(file: Dedicated, alias: str) -> dict[str, Line]:
    """Return clusterProps: a cluster's own lines, copied to its clients where they need them; top-level lines last."""
    result = _lines_below(file, f"{alias}.")
    for layer in (dict(result), file.lines):
        for key in CLUSTER_KEYS & layer.keys():
            for name in (f"producer.{key}", f"consumer.{key}", f"admin.{key}", key):
                result.setdefault(name, layer[key])
    return result


def _worker(file: Dedicated, source: str, target: str) -> dict[str, str]:
    """Return workerConfig: the driver's defaults, the target's lines, and top-level lines for workers, lowest first."""
    defaults = {
        "client.id": f"{source}->{target}",
        "group.id": f"{source}-mm2",
        "offset.storage.topic": f"mm2-offsets.{source}.internal",
        "status.storage.topic": f"mm2-status.{source}.internal",
        "config.storage.topic": f"mm2-configs.{source}.internal",
        **CONVERTERS,
    }
    own = {key: line.value for key, line in _cluster(file, target).items()}
    top = {key: line.value for key, line in file.lines.items() if to_worker(key)}
    return defaults | own | top


def is_misspelt_enabled(key: str) -> bool:
    """Tell whether a key of a pair is a misspelt `enabled`."""
    return (
        key != "enabled" and re.fullmatch(r"enabl?e?d?|is[._-]?enabled|enabeld|enbaled", key.strip(), re.I) is not None
    )


def whole(entry: Entry) -> str:
    """Return the key, with what follows where a blank or an equals sign ended it too early."""
    ends_in_pair = "->" in entry.key and "." not in entry.key.rpartition("->")[2]
    split = re.match(_ARROW, as_typed(entry.value)) or (ends_in_pair and entry.value.startswith("."))
    return as_typed(f"{entry.key} {entry.value}") if split else entry.key


# --- whose line it is -------------------------------------------------------------------------------------------------


def is_ignored(key: str) -> bool:
    """Tell whether the driver ignores a top-level line; lines for clients (`producer.x`) are not included."""
    if is_passed(key) or to_worker(key) or key in _OWN or key in CLUSTER_KEYS or key == EXACTLY_ONCE_KEY:
        return False
    if key.startswith(_OWN_PREFIXES) or not key:
        return False
    kind, _, plain = key.partition(".")
    return kind not in KINDS or plain.startswith("override.")


def _named_in(key: str) -> tuple[str, ...]:
    """Guess the names of clusters in a key that starts with none of the listed ones; () for none."""
    pair = _PAIR.match(key)
    if pair is None:
        alias = _alias_of(key)
        return (alias,) if alias else ()
    target = pair["target"]
    keys = truth_keys.load()
    for index in (dot.start() for dot in re.finditer(r"\.", target)):
        tail = target[index + 1 :]
        if tail == "enabled" or tail.startswith(CONNECTOR_PREFIXES) or any(keys.history(s, tail) for s in CLIENTS):
            return pair["source"], target[:index]
    return (pair["source"], target.partition(".")[0]) if "." in target else ()


def _alias_of(key: str) -> str | None:
    keys = truth_keys.load()
    if "->" in key or is_passed(key) or to_worker(key) or key.startswith((*_OWN_PREFIXES, *CONNECTOR_PREFIXES)):
        return None
    if key in _OWN or key in CLUSTER_KEYS or any(keys.history(scope, key) for scope in (*CLIENTS, *KINDS, "worker")):
        return None
    for dot in re.finditer(r"\.", key):
        tail = key[dot.end() :]
        kind, _, plain = tail.partition(".")
        of_client = kind in KINDS and keys.history(kind, plain)
        # What can follow a cluster's name: an address or security key, a client's or a worker's setting.
        if tail in CLUSTER_KEYS or of_client or keys.history("worker", tail):
            return key[: dot.start()]
    return None
