"""Decides what a tree declares of some connectors: clusters, Connect clusters, which connector is which flow.

What a tree cannot hold is left out, each time with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from mm2mgr.connectors import ConnectorType
from mm2mgr.formats.connectors import NAMING_KEYS
from mm2mgr.imports.inputs import Mirror, Placeholder, alias_text, most_common
from mm2mgr.imports.settings import Pair
from mm2mgr.render import FLOW_KEY, OWNER_KEY
from mm2mgr.spec.files import refused_security
from mm2mgr.spec.scalars import SECURITY_KEYS, check_address, is_name
from mm2mgr.text import is_addressable, whole_number

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NOISE = frozenset(
    {
        *("mirror", "mirrormaker", "mirrormaker2", "mm", "mm2", "source", "connector", "connect", "mirrorsource"),
        *("mirrorsourceconnector", "to", "from", "and", "replication", "kafka", "sync", "src", "dst", "target"),
    }
)
_SERVERS = "bootstrap.servers"
_RECORDS_TO = f"producer.override.{_SERVERS}"
_FACTORS = {
    "source": ("replication.factor", "2", "target"),
    "checkpoint": ("checkpoints.topic.replication.factor", "3", "target"),
    "heartbeat": ("heartbeats.topic.replication.factor", "3", "target"),
}


@dataclass(frozen=True)
class LeftOut:
    """A connector that the tree does not declare, with the reason and what to do."""

    mirror: Mirror
    reason: str
    fix: str


@dataclass
class DeclaredCluster:
    """A Kafka cluster as it is going to be declared."""

    alias: str
    servers: list[str]
    security: dict[str, str]
    replication_factor: int = 3
    other_servers: tuple[str, ...] = ()
    """Addresses that some connectors have for the same alias."""


@dataclass
class DeclaredConnect:
    """A Connect cluster as it is going to be declared; `why_kafka` says how it is known which Kafka its workers use."""

    name: str
    kafka: str
    why_kafka: str
    is_kafka_known: bool
    urls: list[str]
    version: str | None = None
    exactly_once: bool = False
    producer_security: str = "worker"


@dataclass
class ImportedEstate:
    """What was decided about the connectors of all inputs."""

    clusters: dict[str, DeclaredCluster] = field(default_factory=dict)
    connects: dict[str, DeclaredConnect] = field(default_factory=dict)
    flows: dict[str, dict[tuple[str, str], Pair]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    placeholders: list[Placeholder] = field(default_factory=list)
    connectors: int = 0
    owner: str = ""
    """Of the new tree."""
    lanes: set[str] = field(default_factory=set)
    """Those of `flows` that the new tree has as lanes of another one."""

    @property
    def pairs(self) -> Iterator[Pair]:
        for pairs in self.flows.values():
            yield from pairs.values()

    def decider(self, pair: Pair) -> Pair:
        """Return the pair whose connectors decide what the flows between two clusters share: the first by name."""
        return next(
            other
            for name in sorted(self.flows)
            for ends, other in self.flows[name].items()
            if ends == (pair.source.source, pair.source.target)
        )


def decide_estate(
    mirrors: Sequence[Mirror], urls: Mapping[str, Sequence[str]], kafkas: Mapping[str, str], version: str | None
) -> ImportedEstate:
    """Decide what to declare. `urls` and `kafkas` are what the user says of Connect clusters by name."""
    estate = ImportedEstate(connectors=len(mirrors))
    usable = list(_usable([mirror for mirror in mirrors if not _is_silent(mirror)], estate))
    usable = list(_one_connect_per_pair(usable, estate))
    estate.clusters = {cluster.alias: cluster for cluster in _clusters(usable, estate)}
    usable = list(_without_second_aliases(usable, estate))
    _arrange_flows(usable, estate)
    in_flows = {
        id(mirror) for pair in estate.pairs for mirror in (pair.source, pair.checkpoint, pair.heartbeat) if mirror
    }
    remaining = [mirror for mirror in usable if id(mirror) in in_flows]
    estate.connects = {connect.name: connect for connect in _connects(remaining, estate, urls, kafkas, version)}
    used = {alias for mirror in remaining for alias in (mirror.source, mirror.target)}
    used |= {connect.kafka for connect in estate.connects.values()}
    estate.clusters = {alias: cluster for alias, cluster in estate.clusters.items() if alias in used}
    return estate


# --- what cannot be declared ------------------------------------------------------------------------------------------


def _usable(mirrors: Sequence[Mirror], estate: ImportedEstate) -> Iterator[Mirror]:
    taken: dict[tuple[str, str], Mirror] = {}
    for mirror in mirrors:
        reason, fix = _refusal(mirror)
        key = (mirror.origin.form, mirror.name) if mirror.is_dedicated else (mirror.connect, mirror.name)
        if not reason and (other := taken.setdefault(key, mirror)) is not mirror:
            reason = f"{other.place} has a connector of the same name for the same Connect cluster"
            reason = f"{other.place} starts the same already" if mirror.is_dedicated else reason
            fix = "import one of the two"
        if reason:
            estate.left_out.append(LeftOut(mirror, reason, fix))
        else:
            yield mirror


def _is_silent(mirror: Mirror) -> bool:
    """Tell whether a connector of dedicated mode is switched off and writes nothing: Connect is to have none for it."""
    switch = SWITCHES.get(mirror.type, "")
    return mirror.is_dedicated and mirror.config.get(switch, "").strip().lower() == "false"


SWITCHES: Mapping[ConnectorType, str] = {
    "checkpoint": "emit.checkpoints.enabled",
    "heartbeat": "emit.heartbeats.enabled",
}
"""The keys that decide whether connectors of a type do anything."""


def _refusal(mirror: Mirror) -> tuple[str, str]:
    if marked := sorted(NAMING_KEYS & mirror.origin.sensitive):
        return (
            f"its file marks {marked[0]} as secret, and a tree has it in clear",
            "move it to the config that is shown",
        )
    for side, alias in (("source", mirror.source), ("target", mirror.target)):
        if not alias:
            is_blank = f"{side}.cluster.alias" in mirror.config
            fault = "is blank, and a cluster of a tree has a name" if is_blank else "is missing, so Connect refuses it"
            return f"its {side}.cluster.alias {fault}", "write the alias"
        if not _ALIAS.fullmatch(alias):
            return (
                f"its {side}.cluster.alias is no name that a tree can have: letters, digits, '.', '_' and '-'",
                "render the template first" if "${" in alias else "the tree cannot hold this alias",
            )
    if mirror.source == mirror.target:
        return f"it would mirror {mirror.source} to itself", "give its two clusters two aliases"
    if not is_addressable(mirror.name) or not mirror.name:
        return "Connect cannot be asked about its name", "give it a name without / \\ % and blanks at its ends"
    return "", ""


def _one_connect_per_pair(mirrors: Sequence[Mirror], estate: ImportedEstate) -> Iterator[Mirror]:
    """Leave out source connectors of a pair on a second Connect cluster, or with other names of topics."""
    homes: dict[str, Counter[str]] = {}
    for mirror in mirrors:
        if mirror.type == "source":
            homes.setdefault(mirror.pair, Counter())[mirror.connect] += 1
    namings: dict[str, tuple[str, str]] = {}
    for mirror in sorted(mirrors, key=lambda mirror: mirror.type != "source"):
        pair = flow_pair(mirror)
        home = homes[pair].most_common(1)[0][0] if pair in homes else mirror.connect
        if mirror.connect != home and mirror.type == "source":
            reason = f"Connect cluster {home} mirrors {pair} too, and a tree runs all flows of a pair on one"
            estate.left_out.append(LeftOut(mirror, reason, "import it into another tree"))
            continue
        naming = topic_naming(mirror)
        if mirror.type != "heartbeat" and namings.setdefault(pair, naming) != naming:
            reason = f"another connector of {pair} has another replication policy or separator, and flows share it"
            fix = "import it into another tree" if mirror.type == "source" else "give both connectors the same"
            estate.left_out.append(LeftOut(mirror, reason, fix))
            continue
        yield mirror


def topic_naming(mirror: Mirror) -> tuple[str, str]:
    """Return the policy and the separator of a connector."""
    policy = mirror.config.get("replication.policy.class", "").strip().rpartition(".")[2]
    return policy or "DefaultReplicationPolicy", mirror.config.get("replication.policy.separator", ".")


def flow_pair(mirror: Mirror) -> str:
    """Return the pair of the flow that a connector serves: heartbeats are written to the source of a flow."""
    return f"{mirror.target}->{mirror.source}" if mirror.type == "heartbeat" else mirror.pair


def _without_second_aliases(mirrors: Sequence[Mirror], estate: ImportedEstate) -> Iterator[Mirror]:
    """Leave out connectors with a second alias of brokers: one Kafka cluster has one alias in a tree."""
    uses = Counter(alias for mirror in mirrors for alias in (mirror.source, mirror.target))
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    for alias in sorted(estate.clusters, key=lambda name: (-uses[name], name)):
        servers = estate.clusters[alias].servers
        other = next((first[server] for server in servers if server in first), None)
        if other is None:
            first |= dict.fromkeys(servers, alias)
        else:
            second[alias] = other
    estate.clusters = {alias: cluster for alias, cluster in estate.clusters.items() if alias not in second}
    for mirror in mirrors:
        doubled = [alias for alias in (mirror.source, mirror.target) if alias in second]
        if not doubled:
            yield mirror
            continue
        both = f"{doubled[0]} has brokers of {second[doubled[0]]}"
        reason = f"{both}: a Kafka cluster has one alias in a tree, as records loop else"
        fix = "aliases are in topic names and stored offsets, so they are not merged: import it into another tree"
        estate.left_out.append(LeftOut(mirror, reason, fix))


# --- Kafka clusters ---------------------------------------------------------------------------------------------------


def _clusters(mirrors: Sequence[Mirror], estate: ImportedEstate) -> Iterator[DeclaredCluster]:
    aliases = dict.fromkeys(alias for mirror in mirrors for alias in (mirror.source, mirror.target))
    for alias in sorted(aliases):
        sides = [
            (mirror, side) for mirror in mirrors for side in ("source", "target") if getattr(mirror, side) == alias
        ]
        addresses = [text for mirror, side in sides if (text := _servers_text(mirror, side))]
        chosen = most_common(addresses)
        servers = [server for part in chosen.split(",") if (server := part.strip()) and _is_address(server)]
        if not servers:
            variable = f"BOOTSTRAP_SERVERS_OF_{re.sub(r'[^A-Za-z0-9]+', '_', alias).upper()}"
            estate.placeholders.append(Placeholder(variable, f"bootstrap.servers of {alias}", "unknown", ""))
            servers = [f"${{env:{variable}}}"]
        others = dict.fromkeys(text for text in addresses if not set(text.split(",")) & set(servers))
        yield DeclaredCluster(
            alias, list(dict.fromkeys(servers)), _security(sides), _factor(alias, mirrors), tuple(others)
        )


def _servers_text(mirror: Mirror, side: str) -> str:
    config = mirror.config
    keys = [f"{side}.cluster.{_SERVERS}", f"{side}.consumer.{_SERVERS}", f"{side}.admin.{_SERVERS}"]
    keys += [_RECORDS_TO] if side == "target" else []
    text = next((config[key] for key in keys if config.get(key, "").strip()), "")
    if not text and side == "target" and mirror.workers:
        text = mirror.workers.get(_SERVERS, "")
    return ",".join(sorted({part.strip() for part in text.split(",") if part.strip()}))


def _is_address(text: str) -> bool:
    try:
        check_address(text)
    except ValueError:
        return False
    return not text.startswith("${") or "}" in text


def _security(sides: Iterable[tuple[Mirror, str]]) -> dict[str, str]:
    """Return what most connectors give the clients of a cluster; others say it verbatim."""
    votes: dict[str, Counter[str]] = {}
    for mirror, side in sides:
        prefix = f"{side}.cluster."
        own = {key[len(prefix) :]: value for key, value in mirror.config.items() if key.startswith(prefix)}
        if not own.get(_SERVERS):
            continue  # a heartbeat connector has no clients of its source
        for key in SECURITY_KEYS:
            votes.setdefault(key, Counter())[own.get(key, "").strip()] += 1
    chosen = {key: counted.most_common(1)[0][0] for key, counted in sorted(votes.items())}
    security = {key: value for key, value in chosen.items() if value}
    refused = refused_security(security)
    return {key: value for key, value in security.items() if key not in refused}


def _factor(alias: str, mirrors: Sequence[Mirror]) -> int:
    """Return the replication factor that most mirrored topics get; where none are, that of internal topics."""
    by_type: dict[str, list[str]] = {"source": [], "other": []}
    for mirror in mirrors:
        key, usual, side = _FACTORS[mirror.type]
        if getattr(mirror, side) == alias:
            by_type["source" if mirror.type == "source" else "other"].append(mirror.config.get(key, usual).strip())
        if mirror.type == "source" and mirror.source == alias:
            by_type["other"].append(mirror.config.get("offset-syncs.topic.replication.factor", "3").strip())
    text = most_common(by_type["source"] or by_type["other"])
    number = -1 if text == "-1" else whole_number(text, 2)
    return number if number is not None and (number == -1 or 1 <= number <= 32) else 3


# --- Connect clusters -------------------------------------------------------------------------------------------------


def _connects(
    mirrors: Sequence[Mirror],
    estate: ImportedEstate,
    urls: Mapping[str, Sequence[str]],
    kafkas: Mapping[str, str],
    version: str | None,
) -> Iterator[DeclaredConnect]:
    hosts: dict[str, str] = {}
    for name in dict.fromkeys(mirror.connect for mirror in mirrors):
        host = f"connect-{name.lower().replace('_', '-')}"
        hosts[name] = f"{host}-{len(hosts)}" if host in hosts.values() else host
        own = [mirror for mirror in mirrors if mirror.connect == name]
        kafka, reason = _home(name, own, estate, kafkas)
        security = estate.clusters[kafka].security
        here = [mirror for mirror in own if mirror.target == kafka]
        brought = [mirror for mirror in here if mirror.is_dedicated or _brings_security(mirror, security)]
        versions = {of for mirror in own if (of := mirror.origin.workers.version if mirror.origin.workers else None)}
        yield DeclaredConnect(
            name,
            kafka,
            reason,
            not reason.startswith("a guess"),
            list(urls.get(name, [f"http://{hosts[name]}:8083"])),
            version or (next(iter(versions)) if len(versions) == 1 else None),
            _is_exactly_once(own),
            "connector" if security and len(brought) * 2 > len(here) else "worker",
        )


def _is_exactly_once(mirrors: Sequence[Mirror]) -> bool:
    """Tell whether workers are exactly-once: the source connectors there decide, and without any all others.

    A connector that mm2mgr wrote has overrides of a consumer on such workers only.
    """
    if any(OWNER_KEY in mirror.config and any(map(_is_consumers, mirror.config)) for mirror in mirrors):
        return True
    deciding = [mirror for mirror in mirrors if mirror.type == "source"] or mirrors
    return any(mirror.exactly_once or "consumer.override.bootstrap.servers" in mirror.config for mirror in deciding)


def _is_consumers(key: str) -> bool:
    return key.startswith("consumer.override.")


def _brings_security(mirror: Mirror, security: Mapping[str, str]) -> bool:
    return _RECORDS_TO not in mirror.config and any(f"producer.override.{key}" in mirror.config for key in security)


def _home(name: str, mirrors: Sequence[Mirror], estate: ImportedEstate, kafkas: Mapping[str, str]) -> tuple[str, str]:
    """Return the alias of the workers' own Kafka, and how it is known."""
    if kafkas.get(name) in estate.clusters:
        return kafkas[name], "as given"
    if all(mirror.is_dedicated for mirror in mirrors):
        targets = [mirror.target for mirror in mirrors if mirror.type == "source"]
        return most_common(targets), "its new workers are to use the target, as the MirrorMaker before them"
    for mirror in mirrors:
        servers = {part.strip() for part in mirror.workers.get(_SERVERS, "").split(",")}
        for alias, cluster in estate.clusters.items():
            if servers & set(cluster.servers):
                return alias, "the bootstrap.servers of its workers"
    targets = [mirror.target for mirror in mirrors if _RECORDS_TO not in mirror.config]
    if targets:
        return most_common(targets), "connectors without producer.override.bootstrap.servers write there"
    written = {mirror.target for mirror in mirrors}
    sources = [mirror.source for mirror in mirrors if mirror.source not in written]
    others = [alias for alias in sorted(estate.clusters) if alias not in written]
    guess = most_common(sources) or (others[0] if others else most_common(mirror.target for mirror in mirrors))
    return guess, "a guess: all its connectors name the Kafka that they write to"


# --- flows ------------------------------------------------------------------------------------------------------------


def _arrange_flows(mirrors: Sequence[Mirror], estate: ImportedEstate) -> None:
    beside: dict[tuple[ConnectorType, str], Mirror] = {}
    for mirror in mirrors:
        if mirror.type != "source":
            key = (mirror.type, flow_pair(mirror))
            if key in beside:
                reason = f"{beside[key].place} is the {mirror.type} connector of {flow_pair(mirror)} already"
                estate.left_out.append(LeftOut(mirror, reason, "a pair has one: delete the other"))
            else:
                beside[key] = mirror
    sources = [mirror for mirror in mirrors if mirror.type == "source"]
    homes = {mirror.pair: mirror.connect for mirror in sources}
    for place, mirror in list(beside.items()):
        if (reason_and_fix := _why_alone(mirror, homes)) is not None:
            estate.left_out.append(LeftOut(mirror, *reason_and_fix))
            del beside[place]
    for name, group in _named_groups(sources).items():
        estate.flows[name] = {
            (mirror.source, mirror.target): Pair(
                name, mirror, beside.get(("checkpoint", mirror.pair)), beside.get(("heartbeat", mirror.pair))
            )
            for mirror in group
        }
    for pairs in estate.flows.values():
        for ends, pair in pairs.items():
            syncs = estate.decider(pair).source.config.get("emit.offset-syncs.enabled", "")
            if pair.checkpoint and syncs.strip().lower() == "false":
                reason = (
                    f"the source connector of {pair.name} writes no offset syncs, without which none are translated"
                )
                left = LeftOut(pair.checkpoint, reason, "delete it, or set emit.offset-syncs.enabled=true first")
                estate.left_out += [] if left in estate.left_out else [left]
                pairs[ends] = replace(pair, checkpoint=None)


def _why_alone(mirror: Mirror, homes: Mapping[str, str]) -> tuple[str, str] | None:
    pair = flow_pair(mirror)
    if pair not in homes and mirror.type == "heartbeat":
        reason = f"it writes heartbeats to {mirror.target}, and no source connector here mirrors {pair}"
        stays = "it ends with this MirrorMaker" if mirror.is_dedicated else "it stays as it is"
        return reason, f"{stays}: a flow has the heartbeats that are written to its source, where it does not say false"
    if pair not in homes:
        return f"no source connector of {pair} is among the inputs", "import it together with that one"
    if homes[pair] != mirror.connect:
        reason = f"it runs on Connect cluster {mirror.connect}, and the flows of {pair} on {homes[pair]}"
        return reason, "it stays as it is"
    return None


def _named_groups(sources: Sequence[Mirror]) -> dict[str, list[Mirror]]:
    """Return the source connectors by the name of the flow that they become; a flow has one of each pair."""
    aliases = {alias for mirror in sources for alias in (mirror.source, mirror.target)}
    groups: dict[str, list[Mirror]] = {}
    marked = [(mirror, _marked_name(mirror)) for mirror in sources]
    for mirror, name in marked:
        if name:
            groups.setdefault(name, []).append(mirror)
    by_stem: dict[str, list[Mirror]] = {}
    for mirror, name in marked:
        if not name:
            stem = "mirror" if mirror.is_dedicated else flow_stem(mirror, aliases)
            by_stem.setdefault(stem, []).append(mirror)
    for stem, group in by_stem.items():
        rest = group
        while rest:
            first: dict[str, Mirror] = {}
            for mirror in rest:
                first.setdefault(mirror.pair, mirror)
            parts = _in_products(list(first.values()))
            for part in parts:
                name = next(name for name in _flow_names(stem, part, len(parts) > 1) if name not in groups)
                groups[name] = part
            rest = [mirror for mirror in rest if first[mirror.pair] is not mirror]
    return groups


def _in_products(mirrors: Sequence[Mirror]) -> list[list[Mirror]]:
    """Divide the pairs of a flow into those that a person would write as one: sources × targets, with few exceptions.

    Sources whose targets are others have a flow of their own: without it a pair would run that nobody meant.
    """
    by_source: dict[str, list[Mirror]] = {}
    for mirror in mirrors:
        by_source.setdefault(mirror.source, []).append(mirror)
    parts: list[_Product] = []
    for source, group in by_source.items():
        targets = {mirror.target for mirror in group}
        part = next((part for part in parts if part.takes(source, targets)), None)
        if part is None:
            parts.append(part := _Product())
        part.sources.add(source)
        part.targets |= targets
        part.mirrors += group
    return [part.mirrors for part in parts]


@dataclass
class _Product:
    """Pairs of source connectors: all of `sources` × `targets`, or most."""

    sources: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    mirrors: list[Mirror] = field(default_factory=list)

    def takes(self, source: str, targets: set[str]) -> bool:
        """Tell whether a source with its targets adds few exceptions, or none."""
        is_apart = self.targets.isdisjoint(targets)
        if is_apart and self.targets != {source}:
            return False
        sources, all_targets = self.sources | {source}, self.targets | targets
        pairs = len(sources) * len(all_targets) - len(sources & all_targets)  # nothing mirrors to itself
        missing = pairs - len(self.mirrors) - len(targets)
        return missing == 0 or (missing * _MOST_EXCEPTIONS <= pairs and not is_apart)


_MOST_EXCEPTIONS = 4  # pairs of a flow for each that it leaves out


def _flow_names(stem: str, mirrors: Sequence[Mirror], is_part: bool) -> Iterator[str]:
    """Yield names for a flow, the best first; part of a flow has the name of its only target or source in it."""
    if is_part:
        for aliases in ({mirror.target for mirror in mirrors}, {mirror.source for mirror in mirrors}):
            if len(aliases) == 1:
                yield alias_text(f"{stem}-{next(iter(aliases))}")
    yield stem
    yield from (f"{stem}-{number}" for number in count(2))


def _marked_name(mirror: Mirror) -> str:
    """Return the flow's name that a config of mm2mgr carries, or that is in a name as mm2mgr makes it."""
    name, colon, pair = mirror.config.get(FLOW_KEY, "").partition(":")
    if colon and pair == mirror.pair and _ALIAS.fullmatch(name):
        return name
    prefix = f"mm2.{mirror.source}.{mirror.target}.source."
    rest = mirror.name.removeprefix(prefix)
    return rest if mirror.name.startswith(prefix) and _ALIAS.fullmatch(rest) else ""


def flow_stem(mirror: Mirror, aliases: Iterable[str]) -> str:
    """Return what is left of a connector's name without its aliases and usual words, else a name of its topics."""
    text = mirror.name
    for alias in sorted({mirror.source, mirror.target, *aliases}, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(alias)}(?![A-Za-z0-9])", " ", text, flags=re.IGNORECASE)
    words = [word for word in re.split(r"[^A-Za-z0-9]+", text) if word and word.lower() not in _NOISE]
    if words:
        return alias_text("-".join(words))
    topics = [item.strip().replace("\\.", ".") for item in mirror.config.get("topics", "").split(",")]
    return topics[0] if len(topics) == 1 and is_name(topics[0]) and _ALIAS.fullmatch(topics[0]) else "mirror"


def owners_of(mirrors: Iterable[Mirror]) -> list[str]:
    """Return the owners whose mark the connectors carry."""
    return list(dict.fromkeys(owner for mirror in mirrors if (owner := mirror.config.get(OWNER_KEY, ""))))
