"""From connectors to a tree: decide, fold, write, render what was written, and add what its connectors lack.

Rendering is the proof: what a connector had and a rendered one has not is written verbatim, or has a line in the
report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mm2mgr.comparison.differences import WorkerClients, compare
from mm2mgr.connectors import Connector, ConnectorType
from mm2mgr.defaults import Origin
from mm2mgr.errors import SpecError
from mm2mgr.expand import expand
from mm2mgr.formats.connectors import FoundConnector
from mm2mgr.formats.recognise import ForeignFile
from mm2mgr.imports.effective import with_declared_workers
from mm2mgr.imports.effects import WorkerSetting, is_addable, overlaid, verbatim_keys, without_workers
from mm2mgr.imports.equivalence import compare_connectors
from mm2mgr.imports.estate import ImportedEstate, decide_estate, owners_of
from mm2mgr.imports.fold import FoldedFlow, fold_flows, fold_pairs, nest_settings
from mm2mgr.imports.inputs import Mirror, Placeholder, Preparation, with_new_names
from mm2mgr.imports.report import ImportReport, Judged, TreeLine, make_report, with_comparison
from mm2mgr.imports.settings import Pair, Settings, add_lane, around_of, flow_of_lane, read_settings
from mm2mgr.imports.write import write_document
from mm2mgr.render import OWNER_KEY, render
from mm2mgr.spec.files import Spec, check_merged, spec_of
from mm2mgr.spec.places import PathKey, read_yaml
from mm2mgr.topology import Flow
from mm2mgr.truth.explain import RENAMED
from mm2mgr.truth.keys import load

FILES = ("clusters.yaml", "flows.yaml", "handover.yaml")
"""The files of an imported tree: clusters and Connect clusters, flows, connectors that change hands."""
_LISTS: Mapping[tuple[ConnectorType, str], tuple[str, ...]] = {
    ("source", "topics.exclude"): ("topics", "exclude"),
    ("source", "config.properties.exclude"): ("sync", "exclude_properties"),
    ("checkpoint", "groups.exclude"): ("checkpoints", "groups", "exclude"),
}
_OF_OFFSETS = ("admin.override.", "consumer.override.", "offsets.storage.topic")
_TYPES: tuple[ConnectorType, ...] = ("source", "checkpoint", "heartbeat")


@dataclass(frozen=True)
class ImportOptions:
    """What the inputs do not say. `owner`: "" takes that of marks in them; `version`: of the workers, None: the newest.

    `urls` and `kafkas` have, by the name of a Connect cluster, its REST URLs and the alias of its workers' Kafka;
    `logins` the environment variables with the user and the password that it wants.
    """

    owner: str = ""
    version: str | None = None
    urls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kafkas: Mapping[str, str] = field(default_factory=dict)
    templates: Path | None = None
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportedTree:
    """A tree as text by the names of its files, and the report on every key that was read."""

    files: Mapping[str, str] = field(repr=False)
    report: ImportReport
    connectors: tuple[Connector, ...] = field(default=(), repr=False)
    """What the tree renders, without secrets."""
    mirrors: tuple[Mirror, ...] = field(default=(), repr=False)
    flows: tuple[Flow, ...] = field(default=(), repr=False)
    json_keys = "report"


def import_tree(files: Sequence[ForeignFile], options: ImportOptions = ImportOptions()) -> ImportedTree:
    """Return the tree that keeps the connectors of these files as they are; nothing is contacted or written."""
    files = [_without_marked_names(inner) for file in files for inner in (file, *file.within)]
    preparation = Preparation(options.version, tuple(options.urls))
    mirrors = preparation.mirrors(files)
    estate = decide_estate(mirrors, options.urls, options.kafkas, options.version)
    draft = _Draft(estate, options, options.owner or next(iter(owners_of(mirrors)), "mirrors"))
    draft.settle()
    estate.owner = draft.owner
    estate.placeholders = draft.placeholders_in_use([*preparation.placeholders.values(), *estate.placeholders])
    old = [connector for file in files for connector in file.connectors]
    compared = compare_connectors(
        old, draft.declared_connectors(), options.version or load().releases[load().lines[-1]]
    )
    report = make_report(files, estate, draft.judge_pairs(), draft.lines(), preparation.version)
    report = with_comparison(report, compared)
    return ImportedTree(draft.texts(report), report, draft.connectors, tuple(mirrors), draft.flows)


def _without_marked_names(file: ForeignFile) -> ForeignFile:
    return replace(file, connectors=tuple(connector.without_marked_names() for connector in file.connectors))


class _Draft:
    """A tree in the making: settings of each pair, and what is rendered of them."""

    def __init__(self, estate: ImportedEstate, options: ImportOptions, owner: str) -> None:
        self.estate, self.options, self.owner = estate, options, owner
        self.settings: dict[str, dict[tuple[str, str], Settings]] = {
            name: {ends: self._settings(pair) for ends, pair in pairs.items()} for name, pairs in estate.flows.items()
        }
        self.values: dict[str, dict[str, object]] = {}
        self.spec: Spec | None = None
        self.connectors: tuple[Connector, ...] = ()

    # --- settings -----------------------------------------------------------------------------------------------------

    def _settings(self, pair: Pair) -> Settings:
        settings = read_settings(pair, self.estate.decider(pair))
        for wrong in self._find_refused(settings):
            settings.pop(wrong, None)
        settings.setdefault(("topics", "include"), [".*"])
        if not settings["topics", "include"]:
            settings["topics", "include"] = [".*"]
        self._name_connectors(pair, settings)
        return settings

    def _find_refused(self, settings: Settings) -> list[tuple[str, ...]]:
        """Return the paths whose values the declaration does not take; these go on verbatim."""
        _, problems = check_merged(nest_settings(settings), "")
        return [
            path
            for path in settings
            if any(tuple(map(str, where))[: len(path)] == path or path[: len(where)] == where for where, _ in problems)
        ]

    def _name_connectors(self, pair: Pair, settings: Settings) -> None:
        source, target = pair.source.source, pair.source.target
        usual = f"mm2.{source}.{target}"
        for mirror, path, name in (
            (pair.source, ("connector_name",), f"{usual}.source.{pair.flow}"),
            (pair.checkpoint, ("checkpoints", "connector_name"), f"{usual}.checkpoint"),
            (pair.heartbeat, ("heartbeats", "connector_name"), f"{usual}.heartbeat"),
        ):
            if mirror and not mirror.is_dedicated and mirror.name != name:
                settings[path] = mirror.name

    # --- rendering ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Render, write verbatim what the rendered connectors lack, and render again."""
        self._fold_lanes()
        if self._add_verbatim():
            self._render()

    def _fold_lanes(self) -> None:
        """Render, with lanes as parts of their flow where a tree says all of its connectors so."""
        apart, folded, lanes = self.settings, dict(self.settings), dict[str, str]()
        for name, pairs in self.estate.flows.items():
            flow = flow_of_lane(pairs.values())
            if flow in folded and (whole := add_lane(folded[flow], name.removeprefix(f"{flow}."), apart[name])):
                folded[flow], lanes[name] = whole, flow
                del folded[name]
        self.settings = folded
        try:
            self._render()
            flows = {*lanes, *lanes.values()}
            sources = [match for match in self.matches() if match[1] == "source" and match[0].flow in flows]
            is_whole = all(
                connector and connector.name == mirror.name and not self._verbatim(type_, mirror, connector)
                for _, type_, mirror, connector in sources
            )
        except SpecError:  # such as a lane with a topic that the flow does not mirror
            if not lanes:
                raise
            is_whole = False
        if not is_whole:
            self.settings = apart
            self._render()
        self.estate.lanes = set(apart) - set(self.settings)

    def _render(self) -> None:
        self.values = self._values()
        documents = [
            document
            for name, values in self.values.items()
            for document in read_yaml(Path(name), write_document(values, {}, is_compact=False).encode())
        ]
        self.spec = spec_of(documents, tuple(self.values))
        topology = expand(self.spec)
        self.topology = topology
        self.flows, self.connectors = topology.flows, render(topology, self.options.templates)

    def declared_connectors(self) -> list[FoundConnector]:
        """Return the rendered connectors with the workers that the tree declares."""
        connects, clusters = self.topology.connects, self.topology.clusters
        return [with_declared_workers(connector, connects, clusters) for connector in self.connectors]

    def rendered_by_flow(self) -> Mapping[tuple[str, ConnectorType, str], Connector]:
        """Return the rendered connectors by flow (source connectors only), type and pair."""
        by_flow = {}
        for connector in self.connectors:
            name = connector.flows[0].partition(":")[0] if connector.type == "source" else ""
            by_flow[name, connector.type, connector.pair] = connector
        return by_flow

    def matches(self) -> Iterable[tuple[Pair, ConnectorType, Mirror, Connector | None]]:
        """Yield each imported connector with the rendered one."""
        rendered = self.rendered_by_flow()
        for pair in self.estate.pairs:
            for type_ in _TYPES:
                mirror: Mirror | None = getattr(pair, type_)
                if mirror is None or (type_ != "source" and self.estate.decider(pair) is not pair):
                    continue
                name = pair.flow if type_ == "source" else ""
                yield pair, type_, mirror, rendered.get((name, type_, pair.name))

    def places_of(self, mirror: Mirror) -> tuple[WorkerSetting, WorkerSetting]:
        """Return where a connector runs, and where it is going to."""
        connect = self.estate.connects[mirror.connect]
        servers = ",".join(self.estate.clusters[connect.kafka].servers if connect.is_kafka_known else ())
        after = replace(around_of(mirror, servers), exactly_once=connect.exactly_once)
        if not mirror.is_dedicated:
            return after, after
        own = ",".join(self.estate.clusters[mirror.target].servers)
        return around_of(mirror, own), without_workers(after)

    def _add_verbatim(self) -> bool:
        added = False
        for pair, type_, mirror, connector in self.matches():
            if connector is None:
                continue
            for key, value in self._verbatim(type_, mirror, connector).items():
                for flow, of_pair in self._owners(pair, type_):
                    settings = self.settings[flow][of_pair]
                    settings["verbatim", type_, key] = value
                    if settings.get(_LISTS.get((type_, key), ())):
                        settings[_LISTS[type_, key]] = []  # the whole list is verbatim
                    added = True
        return added

    def _verbatim(self, type_: ConnectorType, mirror: Mirror, connector: Connector) -> dict[str, str | None]:
        """Return what a rendered connector lacks, None for what it has too much."""
        keys = verbatim_keys(type_, mirror.config, connector.config, *self.places_of(mirror))
        keys = {**_never_given(mirror, connector), **keys}
        return keys | _refused_by_plan(mirror, _with_keys(connector, keys))

    def _owners(self, pair: Pair, type_: ConnectorType) -> list[tuple[str, tuple[str, str]]]:
        """Return the flows that must say the same of a connector."""
        ends = (pair.source.source, pair.source.target)
        if type_ == "source":
            return [(pair.flow, ends)]
        return [(name, ends) for name, pairs in self.settings.items() if ends in pairs]

    def judge_pairs(self) -> list[Judged]:
        """Return each imported connector beside what became of it."""
        return [
            Judged(
                mirror,
                _in_new_names(connector, mirror.version),
                *self.places_of(mirror),
                frozenset(_changed_by_plan(mirror, connector)),
            )
            for _, _, mirror, connector in self.matches()
            if connector
        ]

    # --- values and texts ---------------------------------------------------------------------------------------------

    def _values(self) -> dict[str, dict[str, object]]:
        estate = self.estate
        clusters: dict[str, object] = {}
        for cluster in estate.clusters.values():
            entry: dict[str, object]
            entry = {"bootstrap_servers": list(cluster.servers)}
            if cluster.replication_factor != 3:
                entry["replication_factor"] = cluster.replication_factor
            if cluster.security:
                names = {"security.protocol": "protocol"}
                entry["security"] = {names.get(key, key): value for key, value in cluster.security.items()}
            clusters[cluster.alias] = entry
        connects: dict[str, object] = {}
        for connect in estate.connects.values():
            entry = {"url": connect.urls, "kafka": connect.kafka}
            entry |= {"version": connect.version} if connect.version else {}
            entry |= {"exactly_once": True} if connect.exactly_once else {}
            entry |= {"producer_security": "connector"} if connect.producer_security == "connector" else {}
            if login := self.options.logins.get(connect.name):
                user, password = (f"${{env:{variable}}}" for variable in login)
                entry["auth"] = {"basic": {"username": user, "password": password}}
            connects[connect.name] = entry
        first: dict[str, object] = {"owner": self.owner, "clusters": clusters, "connect": connects}
        values: dict[str, dict[str, object]] = {FILES[0]: first}
        if flows := self._flows():
            values[FILES[1]] = flows
        if handover := self._handover():
            values[FILES[2]] = handover
        return values

    def _flows(self) -> dict[str, object]:
        flows = [fold_pairs(name, settings) for name, settings in self.settings.items()]
        shared = fold_flows(flows)
        result: dict[str, object] = {}
        if shared := {path: value for path, value in shared.items() if not _says_nothing(path, value, {})}:
            result["defaults"] = {"flows": nest_settings(shared, order_of)}
        result["flows"] = {flow.name: self._flow(flow, shared) for flow in flows}
        return result if flows else {}

    def _flow(self, flow: FoldedFlow, shared: Settings) -> dict[str, object]:
        entry: dict[str, object] = {"sources": flow.sources, "targets": flow.targets}
        if flow.missing:
            entry["except"] = flow.missing
        if run_on := self._run_on(flow):
            entry["run_on"] = run_on
        own = {path: value for path, value in flow.settings.items() if not _says_nothing(path, value, shared)}
        entry |= nest_settings(own, order_of)
        if flow.pairs:
            entry["pairs"] = {pair: nest_settings(settings, order_of) for pair, settings in flow.pairs.items()}
        return entry

    def _run_on(self, flow: FoldedFlow) -> object:
        """Return the Connect clusters of a flow where they are not those whose Kafka is the target."""
        by_kafka: dict[str, list[str]] = {}
        for connect in self.estate.connects.values():
            by_kafka.setdefault(connect.kafka, []).append(connect.name)
        pairs = self.estate.flows[flow.name]
        homes: dict[str, set[str]] = {}
        for (_, target), pair in pairs.items():
            homes.setdefault(target, set()).add(pair.source.connect)
        if all(by_kafka.get(target) == list(names) for target, names in homes.items() if len(names) == 1) and all(
            len(names) == 1 for names in homes.values()
        ):
            return None
        every = {name for names in homes.values() for name in names}
        if len(every) == 1:
            return next(iter(every))
        for (source, target), pair in pairs.items():
            if len(homes[target]) > 1:
                flow.pairs.setdefault(f"{source}->{target}", {})["run_on",] = pair.source.connect
        single = {target: next(iter(names)) for target, names in homes.items() if len(names) == 1}
        return single or None

    def _handover(self) -> dict[str, object]:
        adopt: list[object] = []
        moved: list[object] = []
        for pair, type_, mirror, _ in self.matches():
            if mirror.is_dedicated:
                if type_ == "source" and mirror.origin.form == "dedicated":
                    moved.append({"from": {"dedicated": pair.name}, "to": f"{pair.flow}:{pair.name}"})
                continue
            if mirror.config.get(OWNER_KEY, "") != self.owner:  # another tree's: plan blocks it until a person says so
                adopt.append({"connect": mirror.connect, "connector": mirror.name})
        lists = {"adopt": adopt, "moved": moved}
        return {name: entries for name, entries in lists.items() if entries}

    def lines(self) -> list[TreeLine]:
        """Return the path of every value of the tree, with its file and line."""
        assert self.spec is not None
        return [TreeLine(path, place.file, place.line) for path, place in self.spec.places.items()]

    def placeholders_in_use(self, placeholders: Iterable[Placeholder]) -> list[Placeholder]:
        """Return the placeholders that the tree has."""
        text = "".join(write_document(values, {}) for values in self.values.values())
        return [placeholder for placeholder in placeholders if f"${{env:{placeholder.variable}}}" in text]

    def texts(self, report: ImportReport) -> dict[str, str]:
        """Return the files, with the origin of each value at the end of its line."""
        comments: dict[PathKey, str] = dict(report.comments)
        for name in self.estate.connects.keys() - self.options.urls.keys():
            comments["connect", name, "url"] = "to be set: the REST URL of its workers"
        return {name: write_document(values, comments, _HEADS[name]) for name, values in self.values.items()}


def _never_given(mirror: Mirror, connector: Connector) -> dict[str, str | None]:
    """Return what a tree by itself gives the clients that keep a connector's offsets, to be taken out.

    Workers of some versions have no such clients; those that have would improve a connector unasked.
    """
    if mirror.is_dedicated:
        return {}
    keys = connector.config.keys() - mirror.config.keys()
    return {key: None for key in sorted(keys) if key.startswith(_OF_OFFSETS)}


def _refused_by_plan(mirror: Mirror, connector: Connector) -> dict[str, str | None]:
    """Return what makes a plan leave a connector that runs as it is, also in keys that nothing reads: a write restarts
    its tasks. None takes out what the connector lacks."""
    running = _running_config(mirror)
    keys = filter(is_addable, _changed_by_plan(mirror, connector))
    return {key: running.get(key) for key in keys if mirror.type != "source" or key != "tasks.max"}


def _changed_by_plan(mirror: Mirror, connector: Connector) -> tuple[str, ...]:
    """Return the keys for which a plan would write to a connector that runs; () for one of which that is not known."""
    if mirror.is_dedicated or not mirror.origin.state:
        return ()
    return compare(connector, _running_config(mirror), WorkerClients(mirror.version))[0]


def _with_keys(connector: Connector, keys: Mapping[str, str | None]) -> Connector:
    """Return a rendered connector with keys that a tree is to give verbatim."""
    origins = {**connector.origins, **dict.fromkeys(keys, Origin("spec", "verbatim"))}
    return replace(connector, config=overlaid(connector.config, keys), origins=origins)


def _running_config(mirror: Mirror) -> dict[str, str]:
    """Return a connector's config with the names that it has, where old ones count as the new."""
    new_names = {key: key if key in mirror.config else RENAMED.get(key, "") for key in mirror.origin.config}
    return {key: mirror.config[name] for key, name in new_names.items() if name in mirror.config}


def _in_new_names(connector: Connector, version: str) -> Connector:
    """Return a rendered connector with new names for old ones where Kafka reads both, as those are imported."""
    config, _ = with_new_names(connector.config, {}, version)
    renamed = {RENAMED[key]: key for key in connector.config if key in RENAMED and key not in config}
    origins = {key: connector.origins[renamed.get(key, key)] for key in config}
    return replace(connector, config=config, origins=origins)


_HEADS = {
    FILES[0]: ("Kafka clusters and Connect clusters. A key's origin is at the end of its line.",),
    FILES[1]: (
        "What runs today, as it behaves today. `verbatim` and null keep what mm2mgr would do otherwise:",
        "remove such a line to take what mm2mgr does by itself.",
    ),
    FILES[2]: ("Connectors that come under management as they are. `mm2mgr plan` says when a line can go.",),
}
_ORDER = (
    *("topics", "run_on", "replication_policy", "separator", "delivery", "tasks", "balance", "checkpoints"),
    *("heartbeats", "offset_syncs", "sync", "refresh_interval", "connector_name", "start", "state", "silence"),
    *("source_consumer", "record_producer", "source_admin", "target_admin", "offset_syncs_producer"),
    *("target_consumer", "source_connector", "checkpoint_connector", "heartbeat_connector", "verbatim"),
)


def order_of(path: tuple[str, ...]) -> tuple[object, ...]:
    """Return by what settings are sorted: as the reference lists them, keys of clients by name."""
    place = _ORDER.index(path[0]) if path[0] in _ORDER else len(_ORDER)
    return (place, *(path[1:] if path[0] in _ORDER[-10:] else ()))


def _says_nothing(path: tuple[str, ...], value: object, above: Settings) -> bool:
    """Tell whether a switch only repeats that it is on."""
    return path[1:] == ("enabled",) and value is True and above.get(path) is not False
