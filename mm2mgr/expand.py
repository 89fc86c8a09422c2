"""Expands a Spec to a Topology: aliases resolved, defaults applied, sources × targets, exceptions removed. Pure.

Problems of the whole estate are collected and raised together as one SpecError, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import ceil

from mm2mgr.defaults import Origin, Text
from mm2mgr.errors import Problem, SpecError
from mm2mgr.link import BrokerLimits, Leg, Route
from mm2mgr.ownership_changes import handed_over
from mm2mgr.pair_settings import Statement, contradictions, statements_of_others
from mm2mgr.spec.files import Spec, check_merged
from mm2mgr.spec.models import Cluster, Connect, DeclaredFlow, FlowSettings, Link
from mm2mgr.spec.places import PathKey
from mm2mgr.spec.values import Selector, balance_way
from mm2mgr.text import nearest
from mm2mgr.topology import (
    ConnectCluster,
    Flow,
    KafkaCluster,
    TaskMaximum,
    Topology,
    clashes,
    topics_without,
    with_heartbeats_marked,
)

_SWITCHES = ("checkpoints", "heartbeats", "offset_syncs", "failover")
_BALANCE: PathKey = ("defaults", "balance")


def expand(spec: Spec) -> Topology:
    """Expand a spec. Raises SpecError with every unknown alias, self-flow, clash and missing Connect cluster."""
    return _Expansion(spec).topology()


class _Expansion:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.tree = spec.tree
        self.problems: list[Problem] = []
        self._taken: dict[tuple[str, str], list[Statement]] = {}
        self.clusters = {alias: self._cluster(alias) for alias in self.tree.clusters}
        self.connects = {
            name: ConnectCluster(name, model.kafka, self._connect_model(name, model))
            for name, model in self.tree.connect.items()
        }

    def topology(self) -> Topology:
        self._check_links()
        self._check_urls()
        self._check_addresses()
        flows = self._every_flow()
        self._taken = statements_of_others(self.spec, flows)
        if self._taken:
            flows = self._every_flow()
        flows = self._exactly_once(flows)
        for path, message in contradictions(self.spec, flows):
            self.problem(path, message)
        for path, message in clashes(flows):
            self.problem(path, message)
        self._refuse()
        flows = _sharing_workers(flows)
        marked = tuple(with_heartbeats_marked(flows))
        adopted, moved, released = handed_over(self.spec, marked, self.problem, self.report_unknown)
        self._refuse()
        owner = Text(self.tree.owner, self._origin(("owner",)))
        stale = tuple(sorted(self.tree.sizing.keys() - {flow.id for flow in flows}))
        return Topology(
            *(owner, self.clusters, self.connects, marked, stale),
            adopted=adopted,
            moved=moved,
            released=released,
            stale_brokers=tuple(sorted(self.tree.brokers.keys() - self.clusters.keys())),
            unused_links=tuple(self._unused_links(flows)),
        )

    def _refuse(self) -> None:
        if self.problems:
            raise SpecError(self.problems)

    def problem(self, path: PathKey, message: str) -> None:
        problem = Problem(self.spec.place(*path), message)
        if problem not in self.problems:  # one line of a flow declares many pairs
            self.problems.append(problem)

    def report_unknown(self, path: PathKey, kind: str, name: str, known_names: Iterable[str]) -> None:
        names = sorted(known_names)
        near = nearest(name, names, 0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names) or 'none'}"
        self.problem(path, f"unknown {kind} '{name}'; {hint}")

    # --- clusters and Connect clusters --------------------------------------------------------------------------------

    def _cluster(self, alias: str) -> KafkaCluster:
        own: PathKey = ("clusters", alias)
        layers: list[PathKey] = [("defaults", "clusters"), own]
        merged, written = self._layers(layers)
        registry = self.tree.clusters[alias].schema_registry
        if registry is not None:  # a whole value: half of one login and half of another are none
            merged["schema_registry"] = registry
        model = Cluster.model_validate(merged)
        if model.price_per_gb_in is not None and model.currency is None:
            at = next((path for path in reversed(layers) if (*path, "price_per_gb_in") in self.spec.places), own)
            self._ask_currency((*at, "price_per_gb_in"), f"the price of cluster '{alias}'")
        factor = Text(
            str(model.replication_factor),
            written.get(("replication_factor",), Origin("default", "mm2mgr: Kafka mixes 2 and 3")),
        )
        servers = ",".join(sorted(model.bootstrap_servers))  # Kafka's clients begin with any of them
        client = {"bootstrap.servers": Text(servers, written["bootstrap_servers",])}
        for key, value in model.security.items():
            client[key] = Text(value, written["security", key])
        return KafkaCluster(alias, client, factor, model, *self._limits(alias))

    def _limits(self, alias: str) -> tuple[BrokerLimits, dict[str, int]]:
        """Return what `link read` wrote about the brokers of a cluster, Kafka's defaults where it did not."""
        limits = self.tree.brokers.get(alias)
        if limits is None:
            return BrokerLimits(), {}
        sizes = (limits.send_buffer, limits.receive_buffer, limits.request, limits.message)
        return BrokerLimits(*sizes, limits.count, limits.version or "", read=True), limits.flows

    def _connect_model(self, name: str, model: Connect) -> Connect:
        if model.kafka not in self.tree.clusters:
            self.report_unknown(("connect", name, "kafka"), "cluster alias", model.kafka, self.tree.clusters)
        # Whole values, not key by key: half of one kind of credentials and half of another are none.
        shared = self.tree.defaults.connect
        inherited = shared.model_fields_set - model.model_fields_set
        whole = model.model_copy(update={key: getattr(shared, key) for key in inherited})
        if whole.auth and (
            header := next((header for header in whole.headers if header.lower() == "authorization"), "")
        ):
            path: PathKey = ("defaults", "connect") if "headers" in inherited else ("connect", name)
            message = f"Connect cluster '{name}' has `auth` and a header {header}, which are the same: keep one"
            self.problem((*path, "headers", header), message)
        return whole

    def _layers(self, paths: list[PathKey]) -> tuple[dict[str, object], dict[PathKey, Origin]]:
        """Merge the written values at `paths`, nearest last; return them and the origin of each leaf."""
        merged: dict[str, object] = {}
        written: dict[PathKey, Origin] = {}
        self._lay_paths(paths, merged, written)
        return merged, written

    def _lay_paths(self, paths: list[PathKey], merged: dict[str, object], written: dict[PathKey, Origin]) -> None:
        for path in paths:
            node: object = self.spec.raw
            for key in path:
                node = node.get(key, {}) if isinstance(node, dict) else {}
            if path == _BALANCE and node:  # the settings of one key, and not of a whole flow
                self._lay({"balance": node}, merged, written, path[:-1], ())
            elif isinstance(node, dict):
                self._lay(node, merged, written, path, ())

    def _lay(
        self,
        node: Mapping[str, object],
        into: dict[str, object],
        written: dict[PathKey, Origin],
        base: PathKey,
        path: PathKey,
    ) -> None:
        for spelt, written_value in node.items():
            security = path[-1:] == ("security",)
            key = "security.protocol" if security and spelt == "protocol" else spelt
            here = (*path, key)
            value = {"enabled": written_value} if not path and isinstance(written_value, bool) else written_value
            if not path and key == "balance":
                value = balance_way(value)
            if security and value is None:  # a plain-text cluster must get rid of the default's credentials
                into.pop(key, None)
                written.pop(here, None)
            elif isinstance(value, dict):
                below = into.get(key)
                if not isinstance(below, dict):
                    below = into[key] = {}
                if not path and key in _SWITCHES and below.get("enabled") is False and "enabled" not in value:
                    below["enabled"] = True  # settings imply that it is enabled
                    written[*here, "enabled"] = self._origin((*base, key))
                self._lay(value, below, written, base, here)
            else:
                into[key] = value
                written[here] = self._origin((*base, *path, spelt))

    def _origin(self, path: PathKey) -> Origin:
        place = self.spec.place(*path)
        return Origin("override" if place.file in self.spec.overrides else "spec", f"{place.file}:{place.line}")

    # --- flows --------------------------------------------------------------------------------------------------------

    def _every_flow(self) -> list[Flow]:
        return [flow for name in sorted(self.tree.flows) for flow in self._flows(name)]

    def _flows(self, name: str) -> list[Flow]:
        model = self.tree.flows[name]
        path: PathKey = ("flows", name)
        sources = self._select_clusters((*path, "sources"), model.sources)
        targets = self._select_clusters((*path, "targets"), model.targets)
        pairs = [(source, target) for target in sorted(targets) for source in sorted(sources)]
        self._check_pair_names(path, model, {f"{source}->{target}" for source, target in pairs})
        flows = []
        for source, target in pairs:
            pair = f"{source}->{target}"
            if pair in model.except_:
                continue
            if source == target:
                hint = f"remove '{source}' from sources or targets, or add '{pair}' to except:"
                self.problem((*path, "sources"), f"flow '{name}' would mirror '{source}' to itself; {hint}")
                continue
            flow = self._flow(name, source, target)
            if flow:
                flows += self._with_lanes(flow)
        return flows

    def _select_clusters(self, path: PathKey, selector: Selector) -> list[str]:
        if isinstance(selector, list):
            for index, alias in enumerate(selector):
                if alias not in self.clusters:
                    self.report_unknown((*path, index), "cluster alias", alias, self.clusters)
                elif alias in selector[:index]:
                    self.problem((*path, index), f"duplicate entry '{alias}'")
            return [alias for alias in dict.fromkeys(selector) if alias in self.clusters]
        aliases = [
            alias
            for alias, cluster in self.clusters.items()
            if all(cluster.model.labels.get(label) in values for label, values in selector.items())
        ]
        if not aliases:
            words = ", ".join(f"{label}={'|'.join(values)}" for label, values in selector.items())
            labels = sorted(
                {f"{key}={value}" for cluster in self.clusters.values() for key, value in cluster.model.labels.items()}
            )
            self.problem(path, f"no cluster has the labels {words}; labels here: {', '.join(labels) or 'none'}")
        return aliases

    def _check_pair_names(self, path: PathKey, model: DeclaredFlow, pairs: set[str]) -> None:
        for index, pair in enumerate(model.except_):
            if pair not in pairs:
                self.report_unknown((*path, "except", index), "pair", pair, pairs)
        for pair in model.pairs:
            if pair not in pairs:
                self.report_unknown((*path, "pairs", pair), "pair", pair, pairs)

    def _flow(self, name: str, source: str, target: str) -> Flow | None:
        own: PathKey = ("flows", name)
        pair: PathKey = (*own, "pairs", f"{source}->{target}")
        merged, written = self._layers([_BALANCE, ("defaults", "flows")])
        for taken in self._taken.get((name, f"{source}->{target}"), ()):
            self._lay(taken.values, merged, written, taken.base, ())
        self._lay_paths([own, pair], merged, written)
        for key in ("sources", "targets", "except", "pairs"):
            merged.pop(key, None)
        spelt = dict(_leaves(merged))
        settings, wrong = check_merged(merged, f" of {source}->{target}, defaults included")
        for where, message in wrong:
            self.problem((*own, *where), message)
        if settings is None:
            return None
        if not settings.topics.include:
            self.problem(own, f"flow '{name}' has no topics: write topics: {{include: [...]}}")
        connect = self._run_on(name, target, settings)
        if connect is None:
            return None
        link, route = self._links(source, target, connect.kafka)
        if link and link.catch_up:
            limit = ("links", self.tree.links.index(link), "catch_up", "limit")
            written["link", "catch_up", "limit"] = self._origin(limit)
            spelt["link", "catch_up", "limit"] = self.spec.raw[limit[0]][limit[1]][limit[2]][limit[3]]
        flow_id = f"{name}:{source}->{target}"
        sized = self.tree.sizing.get(flow_id)
        return Flow(
            name,
            self.clusters[source],
            self.clusters[target],
            connect,
            settings,
            written,
            spelt,
            self._tasks(flow_id, settings, written),
            link,
            route,
            sized.bytes_per_second if sized else None,
        )

    def _with_lanes(self, flow: Flow) -> list[Flow]:
        """Return a flow and its lanes, each a flow of its own: its topics are none of the others'."""
        settings = flow.settings
        lanes, topics = settings.balance.lanes, settings.topics
        if not lanes:
            return [flow]
        lane_of: dict[str, str] = {}
        flows = [self._lane(flow, lane, lane_of) for lane in lanes]
        rest = topics_without(topics, lane_of)
        if not rest.include:
            message = f"the lanes of flow '{flow.name}' have all its topics: leave one to its own connector"
            self.problem(self._lanes_path(flow), message)
        written = {**flow.written, ("topics", "exclude"): flow.origin_of("balance", "lanes")}
        settings = settings.model_copy(update={"topics": rest})
        return [replace(flow, settings=settings, written=written, undivided=topics), *flows]

    def _lanes_path(self, flow: Flow, *lane: str) -> PathKey:
        """Return where the lanes of a flow, or one of them, are written: in its pair, the flow, or the defaults."""
        own: PathKey = ("flows", flow.name)
        layers: list[PathKey] = [(*own, "pairs", flow.pair), own, ("defaults", "flows"), ("defaults",)]
        paths: list[PathKey] = [(*layer, "balance", "lanes", *lane) for layer in layers]
        return next((path for path in paths if path in self.spec.places), paths[1])

    def _lane(self, flow: Flow, lane: str, lane_of: dict[str, str]) -> Flow:
        """Return a lane as a flow; `lane_of` has the lanes of topics so far, and gets its own."""
        settings, name, path = flow.settings, f"{flow.name}.{lane}", ("balance", "lanes", lane)
        here, model = self._lanes_path(flow, lane), settings.balance.lanes[lane]
        remedy = "remove it from the lane" if here[0] == "flows" else "write the lane in the flow that has the topic"
        if name in self.tree.flows:
            self.problem(here, f"lane '{lane}' of flow '{flow.name}' would have the name of flow '{name}': rename it")
        for topic in model.topics:
            if topic in lane_of:
                other = lane_of[topic]
                places = f"in lane '{other}' and in lane '{lane}': keep it in one"
                places = f"twice in lane '{lane}': keep it once" if other == lane else places
                self.problem(here, f"topic '{topic}' is {places}")
            elif not flow.carries(topic) or flow.selection.is_heartbeats(topic):
                reason = flow.selection.refusal(topic) or "its `topics` do not include it"
                is_heartbeats = flow.selection.is_heartbeats(topic)
                reason = "it has heartbeats, which stay with the flow's own connector" if is_heartbeats else reason
                message = f"lane '{lane}' names topic '{topic}', which it cannot have of flow '{flow.name}': {reason}"
                self.problem(here, f"{message}; {remedy}")
            lane_of.setdefault(topic, lane)
        origin = flow.origin_of(*path)  # of a list, too
        own_tasks = {key: getattr(model.tasks, key) for key in model.tasks.model_fields_set} if model.tasks else {}
        written = {key: value for key, value in flow.written.items() if key[:2] != ("topics", "exclude")}
        written[("topics", "include")] = origin
        written |= {key[3:]: value for key, value in flow.written.items() if key[:4] == (*path, "tasks")}
        spelt = {**flow.spelt, **{key[3:]: text for key, text in flow.spelt.items() if key[:4] == (*path, "tasks")}}
        changes: dict[str, object] = {
            "topics": settings.topics.model_copy(update={"include": list(model.topics), "exclude": []}),
            "tasks": settings.tasks.model_copy(update=own_tasks),
            "balance": settings.balance.model_copy(update={"lanes": {}}),
        }
        if settings.connector_name:
            changes["connector_name"] = f"{settings.connector_name}.{lane}"
            written[("connector_name",)] = origin
            spelt[("connector_name",)] = changes["connector_name"]
        own_settings = settings.model_copy(update=changes)
        sized = self.tree.sizing.get(f"{name}:{flow.pair}")
        return replace(
            flow,
            name=name,
            settings=own_settings,
            written=written,
            spelt=spelt,
            tasks=self._tasks(f"{name}:{flow.pair}", own_settings, written),
            measured_bytes_per_second=sized.bytes_per_second if sized else None,
            lane_of=flow.name,
        )

    def _exactly_once(self, flows: list[Flow]) -> list[Flow]:
        """Mark the Connect clusters whose workers are exactly-once, declared or asked for by one of these flows."""
        asked = {flow.connect.name for flow in flows if flow.exactly_once}
        for name, connect in self.connects.items():
            if connect.model.exactly_once or name in asked:
                self.connects[name] = replace(connect, exactly_once=True)
        connects = self.connects
        return [
            flow if flow.connect is connects[flow.connect.name] else replace(flow, connect=connects[flow.connect.name])
            for flow in flows
        ]

    def _run_on(self, name: str, target: str, settings: FlowSettings) -> ConnectCluster | None:
        path: PathKey = ("flows", name, "run_on")
        by_target = settings.run_on if isinstance(settings.run_on, dict) else {}
        for alias in by_target.keys() - self.clusters.keys():
            self.report_unknown((*path, alias), "cluster alias", alias, self.clusters)
        connect = by_target.get(target) if not isinstance(settings.run_on, str) else settings.run_on
        if connect is not None:
            if connect not in self.connects:
                self.report_unknown(path, "Connect cluster", connect, self.connects)
            return self.connects.get(connect)
        near = [connect for connect in self.connects.values() if connect.kafka == target]
        if len(near) != 1:
            count = "no Connect cluster has" if not near else f"{len(near)} Connect clusters have"
            self.problem(
                path, f"{count} kafka: {target}; set the one that runs flow '{name}' with run_on: {{{target}: NAME}}"
            )
            return None
        return near[0]

    def _tasks(self, flow_id: str, settings: FlowSettings, written: Mapping[PathKey, Origin]) -> TaskMaximum:
        tasks = settings.tasks
        origin = written.get(("tasks", "max"), Origin("default", "mm2mgr"))
        if tasks.max != "auto":
            return TaskMaximum(Text(str(tasks.max), origin), automatic=False)
        sized = self.tree.sizing.get(flow_id)
        if sized is None:
            where = written.get(("tasks", "min"), Origin("default", "mm2mgr: not sized yet (mm2mgr size)"))
            return TaskMaximum(Text(str(tasks.min), where), automatic=True)
        bounded = min(sized.tasks_max, tasks.limit)  # not raised to `min`: sizing did, up to the number of partitions
        origin = self._origin(("sizing", flow_id, "tasks_max"))
        is_saving = sized.saves_tasks and bounded == sized.tasks_max
        return TaskMaximum(Text(str(bounded), Origin("override", origin.where)), True, is_saving)

    def _links(self, source: str, target: str, near: str) -> tuple[Link | None, Route | None]:
        link = self._link(source, target)
        if near not in {source, target}:
            reading, writing = _leg(self._link(near, source)), _leg(self._link(near, target))
            if reading or writing:
                return link, Route("elsewhere", reading, writing)
        leg = _leg(link)
        return link, (
            Route.over_link(leg, "source" if near == source else "target" if near == target else "elsewhere")
            if leg
            else None
        )

    def _link(self, alias: str, other: str) -> Link | None:
        return next((link for link in self.tree.links if set(link.between) == {alias, other}), None)

    def _unused_links(self, flows: list[Flow]) -> Iterator[tuple[str, str]]:
        ends = ((flow.source.alias, flow.target.alias, flow.connect.kafka) for flow in flows)
        used = {frozenset(pair) for end in ends for pair in combinations(end, 2)}
        for index, link in enumerate(self.tree.links):
            if frozenset(link.between) not in used:
                yield str(self._origin(("links", index)).where), " and ".join(link.between)

    # --- checks over the whole estate ---------------------------------------------------------------------------------

    def _check_links(self) -> None:
        first_index: dict[frozenset[str], int] = {}
        for index, link in enumerate(self.tree.links):
            for end, alias in enumerate(link.between):
                if alias not in self.clusters:
                    self.report_unknown(("links", index, "between", end), "cluster alias", alias, self.clusters)
            first = first_index.setdefault(frozenset(link.between), index)
            if len(set(link.between)) == 1:
                self.problem(("links", index), f"a link from '{link.between[0]}' to itself: name two clusters")
            elif first != index:
                ends = " and ".join(f"'{alias}'" for alias in link.between)
                where = self.spec.place("links", first)
                self.problem(("links", index), f"a second link between {ends}; the first is at {where}: keep one")
            if link.price_per_gb is not None and link.currency is None:
                self._ask_currency(("links", index, "price_per_gb"), f"the price of {' and '.join(link.between)}")
            for pair in link.price_per_gb if isinstance(link.price_per_gb, dict) else ():
                pairs = [f"{here}->{there}" for here, there in (link.between, link.between[::-1])]
                if pair not in pairs:
                    self.report_unknown(("links", index, "price_per_gb", pair), "direction of the link", pair, pairs)

    def _ask_currency(self, path: PathKey, price: str) -> None:
        self.problem(path, f"{price} is in no currency: write it beside, such as currency: EUR")

    def _check_urls(self) -> None:
        """Report one Connect cluster under two names: a plan of one would delete what the other created."""
        names: dict[str, str] = {}
        for name, connect in self.tree.connect.items():
            for url in connect.url:
                other = names.setdefault(url.rstrip("/").lower(), name)
                if other != name:
                    message = f"'{name}' and '{other}' share the URL {url}: one Connect cluster must have one name"
                    self.problem(("connect", name, "url"), message)

    def _check_addresses(self) -> None:
        aliases: dict[str, str] = {}
        for alias, cluster in self.clusters.items():
            for address in cluster.model.bootstrap_servers:
                other = aliases.setdefault(address, alias)
                if other != alias:
                    message = (
                        f"'{alias}' and '{other}' share the address {address}: one cluster must have one alias, else"
                        " records loop"
                    )
                    self.problem(("clusters", alias, "bootstrap_servers"), message)


def _leaves(values: Mapping[str, object], path: PathKey = ()) -> Iterator[tuple[PathKey, object]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _leg(link: Link | None) -> Leg | None:
    return Leg(link.rtt, link.bandwidth) if link else None


def _sharing_workers(flows: list[Flow]) -> list[Flow]:
    """Give flows with a link the tasks that share a worker's heap: a power of two, so that it rarely changes."""
    tasks: dict[str, int] = {}
    for flow in flows:
        tasks[flow.connect.name] = tasks.get(flow.connect.name, 0) + int(flow.tasks.maximum)
    with_tasks = []
    for flow in flows:
        workers = flow.connect.model.workers
        shared = 1 << (ceil(tasks[flow.connect.name] / (workers.count or 1)) - 1).bit_length()
        most = shared if workers.count else min(shared, workers.tasks_per_worker)
        with_tasks.append(replace(flow, worker_tasks=most) if flow.route else flow)
    return with_tasks
