"""An in-memory Kafka Connect that answers as real workers (3.6 to 4.3) were seen to: same codes, same texts.

`FakeConnect.handle` is pure HTTP in, HTTP out; use it through `transport()` (httpx.MockTransport) or `serving(fake)`
(a real server on a free port). Faults are scripted beforehand, requests are logged, and nothing ever waits by itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from mm2mgr.assignment_text import ASSIGNMENT_KEY, PLUGIN_CLASS, AssignmentRefused, expected_task_config, read_text
from mm2mgr.partitions import TopicPartition
from mm2mgr.truth.keys import kafka_version, load

MIRROR = "org.apache.kafka.connect.mirror."
CLASSES = tuple(
    MIRROR + name for name in ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
)
STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
NO_LEADER = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
REBALANCE = "Request cannot be completed because a rebalance is expected"
TIMED_OUT = "Request timed out. The worker is currently flushing updates to the status topic"
FORWARDING = "IO Error trying to forward REST request: java.net.ConnectException: Connection refused"
FORWARD_CUT = "IO Error trying to forward REST request: java.io.EOFException: HttpConnectionOverHTTP"
STARTING_PAGE = (
    "<html><head><title>Error 404 Not Found</title></head><body><h2>HTTP ERROR 404 Not Found</h2></body></html>"
)
NOT_EXACTLY_ONCE = "This worker does not have exactly-once source support enabled."
ONLY_COMMITTED = (
    "MirrorSourceConnector can only provide exactly-once guarantees when its source consumer is configured with "
    "isolation.level set to 'read_committed'; otherwise, records from aborted and uncommitted transactions will be "
    "replicated from the source cluster to the target cluster."
)
INSTALLED = [(f"com.acme.{name}", "transformation") for name in ("Router", "Sieve")]
OTHER_PLUGINS = {
    **{"transformation": "transformation", "predicate": "predicate"},
    **{"converter": "converter", "header converter": "header_converter"},
}
LISTS = frozenset({"topics", "topics.exclude"})
LISTS_OF = {
    "MirrorSourceConnector": LISTS | {"config.properties.exclude"},
    "MirrorCheckpointConnector": LISTS | {"groups", "groups.exclude"},
}
KAFKA_KEYS = load()
PRINCIPAL = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})

Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Request:
    """One logged request; `path` is decoded, `body` is decoded JSON."""

    method: str
    path: str
    query: str
    body: Any
    headers: dict[str, str] = field(repr=False)

    @property
    def writes(self) -> bool:
        return self.method != "GET" and not self.path.endswith("/validate")


@dataclass
class Fault:
    """What happens to the next `times` requests of a method ("*": any) under a path prefix (decoded)."""

    method: str
    path_prefix: str
    times: int
    status: int | None = None  # None: answer normally
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    apply: bool = False
    drop: bool = False
    latency_seconds: float = 0.0
    exactly: bool = False  # the path itself, not what begins with it

    def hits(self, method: str, path: str) -> bool:
        there = path == self.path_prefix if self.exactly else path.startswith(self.path_prefix)
        return self.times > 0 and self.method in {"*", method} and there


class Dropped(Exception):
    """The connection is cut before an answer."""


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Connector:
    """A stored connector; states and traces set here show up in its status."""

    config: dict[str, str]
    state: str = "RUNNING"  # the target state
    ending_statuses: int = 0  # this many reads of its status show a task although it is STOPPED
    groups: list[str] = field(default_factory=list)  # of a checkpoint connector
    shown_state: str | None = None  # what the status shows instead, e.g. FAILED
    trace: str | None = None
    failed_tasks: dict[int, str] = field(default_factory=dict)
    shown_task_state: str | None = None  # what its tasks show instead, e.g. UNASSIGNED after their worker died
    hidden_reads: int = 0  # status reads that still find no status
    forced_tasks: int | None = None
    dealt: list[str] | None = None  # what another class than Kafka's assigns to each task,
    own_keys: set[str] = field(default_factory=set)  # and which keys of its config it does not pass on
    topics: list[str] = field(default_factory=list)
    old: Connector | None = None  # as it was before the last change of its config,
    old_tasks: int = 0  # which this many reads of its tasks still show,
    old_statuses: int = 0  # and then this many reads of its status


class FakeConnect:
    """State, faults and log of one fake Connect cluster. `source_topics` (topic → partitions) is what flows match;
    None takes every name in `topics` for an existing topic of one partition."""

    def __init__(
        self,
        *,
        version: str = "4.3.1",
        cluster_id: str = "fake-kafka-cluster-id",
        source_topics: Mapping[str, int] | None = None,
        policy: str = "All",
        allowlist: frozenset[str] = frozenset(),
        exactly_once: bool = False,
        plugin_version: str | None = None,
        basic: tuple[str, str] | None = None,
        bearer: str | None = None,
        status_after_reads: int = 0,
        restart_reads: tuple[int, int] = (0, 0),
        busy_after_writes: int = 0,
    ) -> None:
        self.loggers = {"root": "INFO", "org.apache.kafka.connect": "INFO", "org.reflections": "ERROR"}
        self.has_admin = True  # False: with `admin.listeners=` of the worker
        self.version, self.cluster_id, self.source_topics = version, cluster_id, source_topics
        self.reported_version: str | None = None  # what a vendor's workers say instead
        self.worker_ids: dict[int | None, str] = {}  # by task number, of every connector; None: the connector itself
        self.policy, self.allowlist, self.exactly_once = policy, allowlist, exactly_once
        self.plugins = dict.fromkeys(sorted(CLASSES), plugin_version)  # None: the worker's own version
        # Class and type of what is no connector: Kafka's own, and some of other people.
        self.other_plugins = [
            *INSTALLED,
            *(
                (name, type_)
                for purpose, type_ in OTHER_PLUGINS.items()
                for name in load().classes(purpose, kafka_version(version) or "4.3.1")
            ),
        ]
        self.lists_all = True  # False: connectors alone, as workers before 3.2 do
        self.status_after_reads = status_after_reads
        # How long tasks show the config before, and then the status their state under it. Seen: 0.1 to 9 s, and up to 0.45 s.
        self.restart_reads = restart_reads
        # How many questions a rebalance refuses that a write has begun. Seen: 409 to PATCH offsets, 500 to GET config and tasks, and no others.
        self.busy_after_writes, self.busy = busy_after_writes, 0
        self.connectors: dict[str, Connector] = {}
        self.offsets: dict[str, dict[str, dict[str, Any]]] = {}  # outlive their connector, as in Kafka
        # In a topic of the connector's own (KIP-618): by connector, topic, and the Kafka it is read from ("": the workers').
        self.own_offsets: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self._authorization = f"Bearer {bearer}" if bearer else None
        if basic:
            self._authorization = "Basic " + base64.b64encode(":".join(basic).encode()).decode()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    # Scripting and looking back

    def fail_next(
        self,
        method: str,
        path_prefix: str,
        status: int,
        body: object = None,
        *,
        times: int = 1,
        apply: bool = False,
        **headers: str,
    ) -> None:
        """Answer the next requests with this status; text of a body becomes Connect's error JSON unless it is HTML.

        With `apply` the request is carried out and the error is answered all the same: an ambiguous outcome.
        """
        self.faults.append(Fault(method, path_prefix, times, status, body, headers, apply))

    def answer_only(self, path: str, status: int) -> None:
        """Answer every request for exactly this path with a status."""
        self.faults.append(Fault("*", path, 1_000_000, status, exactly=True))

    def drop_next(self, method: str, path_prefix: str, times: int = 1, apply: bool = False) -> None:
        """Cut the connection instead of answering the next requests."""
        self.faults.append(Fault(method, path_prefix, times, apply=apply, drop=True))

    def delay_next(self, method: str, path_prefix: str, seconds: float, times: int = 1) -> None:
        """Carry out the next requests, and answer them late."""
        self.faults.append(Fault(method, path_prefix, times, latency_seconds=seconds))

    @property
    def writes(self) -> list[Request]:
        """The logged requests that change something."""
        return [request for request in self.requests if request.writes]

    def add(self, name: str, config: Mapping[str, str], **more: Any) -> Connector:
        """Store a connector without a request."""
        self.connectors[name] = Connector({"name": name, **config}, **more)
        return self.connectors[name]

    def add_offsets(self, name: str, topic: str, partitions: Mapping[int, int], alias: str = "source") -> None:
        """Store MirrorSource offsets where the connector has them: partition → last replicated source offset."""
        stored = self.stores(name)[0]
        for partition, offset in partitions.items():
            stored[_key({"cluster": alias, "partition": partition, "topic": topic})] = {"offset": offset}

    # HTTP

    def handle(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[Answer, float]:
        """Return the answer and the seconds by which it is late; raise Dropped for a cut connection."""
        with self._lock:
            segments = [unquote(part) for part in path.strip("/").split("/") if part]
            decoded = "/" + "/".join(segments)
            sent = json.loads(body) if body else None
            self.requests.append(Request(method, decoded, query, sent, {k.lower(): v for k, v in headers.items()}))
            fault = next((fault for fault in self.faults if fault.hits(method, decoded)), None)
            if fault is None:
                return self._answer(method, segments, query, sent), 0.0
            fault.times -= 1
            failing = fault.drop or fault.status is not None
            answer = self._answer(method, segments, query, sent) if fault.apply or not failing else None
            if fault.drop:
                raise Dropped
            if fault.status is not None or answer is None:
                answer = _scripted(fault)
            return answer, fault.latency_seconds

    def _answer(self, method: str, segments: list[str], query: str, sent: Any) -> Answer:
        if self._authorization and self.requests[-1].headers.get("authorization") != self._authorization:
            return 401, {"WWW-Authenticate": "Basic"}, b"User cannot access the resource."
        if any(character in segment for segment in segments for character in "/\\%"):
            # Seen on 4.3.1: Jetty 12 refuses %2F, %5C and %25 before Connect sees the request.
            return (
                400,
                {"Content-Type": "text/html"},
                b"<html><body><h2>HTTP ERROR 400 Ambiguous URI</h2></body></html>",
            )
        try:
            self._rebalance(method, segments)
            status, body = self._route(method, segments, parse_qs(query), sent)
        except Refusal as refusal:
            status, body = refusal.status, {"error_code": refusal.status, "message": str(refusal)}
        data = b"" if body is None else json.dumps(body).encode()
        return status, {"Content-Type": "application/json"} if data else {}, data

    def _route(self, method: str, segments: list[str], query: dict[str, list[str]], sent: Any) -> tuple[int, Any]:  # noqa: PLR0911, PLR0912
        match (method, *segments):
            case ("GET",):
                version = self.reported_version or self.version
                return 200, {"version": version, "commit": "fake", "kafka_cluster_id": self.cluster_id}
            case ("GET", "health"):
                return 200, {
                    "status": "healthy",
                    "message": "Worker has completed startup and is ready to handle requests.",
                }
            case ("GET", "connectors"):
                return 200, self._list(query.get("expand", []))
            case ("POST", "connectors"):
                return self._create(sent)
            case (_, "connectors", name):
                return self._one(method, name)
            case (_, "connectors", name, "config"):
                return self._config(method, name, sent)
            case ("GET", "connectors", name, "status"):
                return 200, self._seen_status(name)
            case ("GET", "connectors", name, "tasks"):
                return 200, self._tasks(name)
            case ("GET", "connectors", name, "topics"):
                return 200, {name: {"topics": self.connectors[name].topics if name in self.connectors else []}}
            case (_, "connectors", name, "offsets"):
                return self._offsets(method, name, sent)
            case ("PUT", "connectors", name, "pause" | "resume" | "stop" as verb):
                return self._set_state(name, verb)
            case ("POST", "connectors", name, "restart"):
                return self._restart(name, query)
            case ("POST", "connectors", name, "tasks", task, "restart"):
                return self._restart_task(name, int(task))
            case ("GET", "connector-plugins"):
                listed = [(name, "source") for name in self.plugins]
                listed += self.other_plugins if query.get("connectorsOnly") == ["false"] and self.lists_all else []
                return 200, [
                    {
                        "class": name,
                        "type": type_,
                        "version": self.plugins.get(name) or self.reported_version or self.version,
                    }
                    for name, type_ in listed
                ]
            case ("PUT", "connector-plugins", _, "config", "validate"):
                return 200, self._validate(sent)
            case (_, "admin", "loggers", *name) if self.has_admin:
                return self._loggers(method, name, sent)
        raise Refusal(404, "HTTP 404 Not Found")

    def _rebalance(self, method: str, path: list[str]) -> None:
        """Refuse what a rebalance refuses, and begin one with each write of a config or a state."""
        match (method, *path):
            case ("PATCH" | "DELETE", "connectors", _, "offsets") if self.busy:
                self.busy -= 1
                raise Refusal(409, STALE)
            case ("GET", "connectors", _, "config" | "tasks") if self.busy:
                self.busy -= 1
                raise Refusal(500, REBALANCE)
            case ("POST", "connectors") | ("PUT", "connectors", _, "config" | "stop" | "resume" | "pause"):
                self.busy = self.busy_after_writes

    # Endpoints

    def _list(self, expand: list[str]) -> Any:
        if not expand:
            return list(self.connectors)
        expanded = {}
        for name in self.connectors:
            # Seen on 4.3.1: while a connector has no status, expand=status leaves it out altogether.
            if "status" in expand and self._no_status_yet(name):
                continue
            parts = {"info": self._info(name)} if "info" in expand else {}
            expanded[name] = parts | ({"status": self.status(name)} if "status" in expand else {})
        return expanded

    def _create(self, sent: dict[str, Any]) -> tuple[int, Any]:
        name, config = sent["name"].strip(), sent.get("config", {})
        if "initial_state" in sent and self._older_than(3, 7):
            raise Refusal(
                500, 'Unrecognized field "initial_state" (class CreateConnectorRequest), not marked as ignorable'
            )
        self._check_config(name, config)
        if name in self.connectors:
            raise Refusal(409, f"Connector {name} already exists")
        self.add(name, config, state=sent.get("initial_state", "RUNNING").upper(), hidden_reads=self.status_after_reads)
        return 201, self._info(name)

    def _one(self, method: str, name: str) -> tuple[int, Any]:
        self._found(name)
        if method == "GET":
            return 200, self._info(name)
        if method != "DELETE":
            raise Refusal(405, "HTTP 405 Method Not Allowed")
        del self.connectors[name]
        return 204, None

    def _config(self, method: str, name: str, sent: dict[str, Any]) -> tuple[int, Any]:
        if method == "GET":
            return 200, self._found(name).config
        if method == "PATCH" and self._older_than(3, 8):
            raise Refusal(405, "HTTP 405 Method Not Allowed")
        if method == "PATCH":
            sent = {k: v for k, v in (self._found(name).config | sent).items() if v is not None}
        if sent.get("name", name) != name:
            text = f"Connector name configuration ({sent['name']}) doesn't match connector name in the URL ({name})"
            raise Refusal(400, text)
        self._check_config(name, sent)
        known = self.connectors.get(name)
        if known is None:
            self.add(name, sent, hidden_reads=self.status_after_reads)
            return 201, self._info(name)
        info = self._info(name)  # its tasks are the old ones
        known.shown_state = known.trace = None
        # An identical config restarts the connector instance only: FAILED tasks stay FAILED.
        if known.config != {"name": name, **sent}:
            self._change(known, {"name": name, **sent})
        return 200, info | {"config": known.config}

    def _change(self, known: Connector, config: dict[str, str]) -> None:
        paused = known.state == "PAUSED"  # seen: its tasks show the new config once it is resumed
        if paused or self.restart_reads != (0, 0):
            known.old = Connector(known.config, known.state, failed_tasks=known.failed_tasks)
            known.old_tasks, known.old_statuses = (1_000_000, 0) if paused else self.restart_reads
        known.config, known.failed_tasks = config, {}

    def _set_state(self, name: str, verb: str) -> tuple[int, Any]:
        if verb == "stop" and self._older_than(3, 5):
            raise Refusal(404, "HTTP 404 Not Found")
        if name not in self.connectors:
            raise Refusal(404, f"Unknown connector {name}")
        self.connectors[name].state = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}[verb]
        if verb == "stop":
            self.connectors[name].shown_state = None  # stopping a FAILED connector works
        if verb != "pause":
            self.connectors[name].old = None
        return (204 if verb == "stop" else 202), None

    def _restart(self, name: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if name not in self.connectors:
            raise Refusal(404, f"Unknown connector: {name}")
        connector = self.connectors[name]
        include, only_failed = (query.get(key) == ["true"] for key in ("includeTasks", "onlyFailed"))
        plan = self.status(name)
        if not only_failed or plan["connector"]["state"] == "FAILED":
            plan["connector"]["state"] = "RESTARTING"
        connector.shown_state = connector.trace = None
        if not include and not only_failed:
            return 204, None
        for task in plan["tasks"] if include else []:
            if not only_failed or task["state"] == "FAILED":
                task["state"] = "RESTARTING"
                connector.failed_tasks.pop(task["id"], None)
        return 202, plan

    def _restart_task(self, name: str, task: int) -> tuple[int, Any]:
        connector = self._found(name)
        if task not in {each["id"] for each in self.status(name)["tasks"]}:
            raise Refusal(404, f"Unknown task: {name}-{task}")
        connector.failed_tasks.pop(task, None)
        return 204, None

    def _loggers(self, method: str, name: list[str], sent: Any) -> tuple[int, Any]:
        """As Kafka's LoggingResource: the list leaves out what is OFF; a level is that of all names that begin so."""

        def shown(level: str) -> dict[str, Any]:
            return {"level": level} if self._older_than(3, 7) else {"level": level, "last_modified": None}

        if not name:
            return 200, {logger: shown(level) for logger, level in sorted(self.loggers.items()) if level != "OFF"}
        (logger,) = name
        if method == "GET":
            if logger not in self.loggers:
                raise Refusal(404, f"Logger {logger} not found.")
            return 200, shown(self.loggers[logger])
        if sent["level"] not in {"OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}:
            raise Refusal(404, f"invalid log level '{sent['level']}'.")
        changed = sorted({logger, *(one for one in self.loggers if logger == "root" or one.startswith(logger))})
        self.loggers |= dict.fromkeys(changed, sent["level"])
        return 200, changed

    def _offsets(self, method: str, name: str, sent: Any) -> tuple[int, Any]:
        if self._older_than(3, 5):
            raise Refusal(404, "HTTP 404 Not Found")
        if method != "GET" and self._older_than(3, 6):
            raise Refusal(405, "HTTP 405 Method Not Allowed")
        if method == "PATCH" and not sent.get("offsets"):
            raise Refusal(400, "Partitions / offsets need to be provided for an alter offsets request")
        connector, stores = self._found(name), self.stores(name)
        if method == "GET":
            # Partitions of both are listed, but a topic of its own hides with nulls what only the workers' has.
            known = dict.fromkeys(key for stored in stores for key in stored)
            return 200, {"offsets": [{"partition": json.loads(key), "offset": stores[0].get(key)} for key in known]}
        if connector.state != "STOPPED":
            text = (
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the"
            )
            raise Refusal(
                400, f"{text} specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        if method == "DELETE":
            for stored in stores:
                stored.clear()
            return 200, {"message": "The offsets for this connector have been reset successfully"}
        for stored in stores:
            self._alter(stored, sent["offsets"])
        return 200, {"message": "The offsets for this connector have been altered successfully"}

    def stores(self, name: str) -> list[dict[str, dict[str, Any]]]:
        """Where a connector's offsets are: a topic of its own first if it has one, then the workers' own."""
        config = self.connectors[name].config if name in self.connectors else {}
        topic = config.get("offsets.storage.topic", "").strip()
        kafka = config.get("consumer.override.bootstrap.servers", "")
        stores = [self.offsets.setdefault(name, {})]
        if topic or (self.exactly_once and kafka):
            stores.insert(0, self.own_offsets.setdefault((name, topic or "connect-offsets", kafka), {}))
        return stores

    def _alter(self, stored: dict[str, dict[str, Any]], entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            value = entry["offset"] and entry["offset"].get("offset")
            if isinstance(value, int) and value < 0:
                offset, partition = _java_map(entry["offset"]), _java_map(dict(sorted(entry["partition"].items())))
                text = f"Source offset {offset} for source partition {partition} has an invalid value {value}"
                raise Refusal(500, f"{text} for the 'offset' key, which cannot be negative")
            if entry["offset"] is not None and not isinstance(value, int):
                raise Refusal(500, f"Source offset {_java_map(entry['offset'])} has an invalid value")
        for entry in entries:
            if entry["offset"] is None:
                stored.pop(_key(entry["partition"]), None)
            else:
                stored[_key(entry["partition"])] = entry["offset"]

    # Validation

    def _check_config(self, name: str, config: dict[str, Any]) -> None:
        for key, value in config.items():
            if value is None:
                raise Refusal(400, f"Configuration '{key}' values must not be null.")
        kind = config.get("connector.class")
        if kind is None:
            # The worker prints the whole config, Java style, secrets included.
            printed = _java_map({"name": name} | config)
            raise Refusal(400, f"Connector config {printed} contains no connector type")
        if not self._is_installed(kind):
            raise Refusal(400, self._no_class(kind))
        self._refuse_types(config)
        if errors := self._errors(config):
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            tail = "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
            raise Refusal(400, "\n".join((head, *errors.values(), tail)))

    def _is_installed(self, kind: str) -> bool:
        return (
            (kind == PLUGIN_CLASS and kind in self.plugins)
            or kind in CLASSES
            or kind in {name.rsplit(".", 1)[1] for name in CLASSES}
        )

    def _no_class(self, kind: str) -> str:
        text = f"Failed to find any class that implements Connector and which name matches {kind}, available connectors are:"
        return f"{text} {', '.join(self._described(name) for name in sorted(CLASSES))}"

    def _described(self, name: str) -> str:
        version = f"version='{self.version}', encodedVersion={self.version}"
        return f"PluginDesc{{klass=class {name}, name='{name}', {version}, type=source, typeName='source', location='classpath'}}"

    def _refuse_types(self, config: dict[str, str]) -> None:
        """Overrides are parsed before the policy is asked, and what cannot be parsed is not caught."""
        for key, value in config.items():
            kind, override, plain = ([*key.split(".", 2), "", ""])[:3]
            known = KAFKA_KEYS.find(kind, plain, "4.3.1") if override == "override" else None
            if known and known.type in {"int", "long"} and not value.lstrip("-").isdigit():
                text = f"Invalid value {value} for configuration {plain}: Not a number of type {known.type.upper()}"
                raise Refusal(500, f"org.apache.kafka.common.config.ConfigException: {text}")

    def _checked_prefixes(self, config: dict[str, str]) -> list[str]:
        """Which overrides are judged: before Kafka 3.3 only the producer's, since then also those of clients in use."""
        own_offsets = bool(config.get("offsets.storage.topic", "").strip()) or self.exactly_once
        creates = any(key.startswith("topic.creation.") for key in config)
        since = not self._older_than(3, 3)
        prefixes = ["producer.override."]
        prefixes += ["consumer.override."] if own_offsets and since else []
        return prefixes + (["admin.override."] if (own_offsets or creates) and since else [])

    def _errors(self, config: dict[str, str]) -> dict[str, str]:
        return (
            self._exactly_once_errors(config)
            | self._policy_errors(config)
            | self._value_errors(config)
            | self._assignment_errors(config)
        )

    def _assignment_errors(self, config: dict[str, str]) -> dict[str, str]:
        """What the Connect plugin refuses."""
        if config["connector.class"] != PLUGIN_CLASS or ASSIGNMENT_KEY not in config:
            return {}
        try:
            tasks, most = len(read_text(config[ASSIGNMENT_KEY]).rates), int(config.get("tasks.max", "1"))
        except AssignmentRefused as refused:
            return {ASSIGNMENT_KEY: refused.message}
        return {ASSIGNMENT_KEY: f"{ASSIGNMENT_KEY} has {tasks} tasks, but tasks.max is {most}"} if tasks > most else {}

    def _value_errors(self, config: dict[str, str]) -> dict[str, str]:
        """Transformations that no plugin has, and since Kafka 4.2 (KIP-1161) lists with an item twice, or an empty one."""
        errors = {}
        for alias in filter(None, map(str.strip, config.get("transforms", "").split(","))):
            key = f"transforms.{alias}.type"
            kind = config.get(key)
            if kind is None:
                errors[key] = f'Missing required configuration "{key}" which has no default value.'
            elif not any(kind in (name, name.rpartition(".")[2]) for name, _ in self.other_plugins):
                errors[key] = f"Invalid value {kind} for configuration {key}: Class {kind} could not be found."
        lists = LISTS_OF.get(config["connector.class"].removeprefix(MIRROR), frozenset())
        for key in () if self._older_than(4, 2) else lists & config.keys():
            items = [item.strip() for item in config[key].split(",")]
            what = "empty" if len(items) > 1 and "" in items else "duplicated" if len(items) > len(set(items)) else ""
            if what:
                errors[key] = f"Configuration '{key}' values must not be {what}."
        return errors

    def _exactly_once_errors(self, config: dict[str, str]) -> dict[str, str]:
        if config.get("exactly.once.support") != "required" or self._older_than(3, 3):
            return {}
        if config.get("source.consumer.isolation.level") != "read_committed":
            return {"exactly.once.support": ONLY_COMMITTED}
        return {} if self.exactly_once else {"exactly.once.support": NOT_EXACTLY_ONCE}

    def _policy_errors(self, config: dict[str, str]) -> dict[str, str]:
        """Which overrides the worker's policy refuses."""
        prefixes = self._checked_prefixes(config)
        errors = {}
        for key in config:
            bare = next((key.removeprefix(prefix) for prefix in prefixes if key.startswith(prefix)), None)
            allowed = {"Principal": PRINCIPAL, "Allowlist": self.allowlist}.get(self.policy, frozenset())
            if bare is not None and self.policy != "All" and bare not in allowed:
                text = f"The '{self.policy}' policy does not allow '{bare}' to be overridden in the connector configuration."
                errors[key] = text
        return errors

    def _validate(self, config: dict[str, str]) -> Any:
        if "connector.class" not in config:
            raise Refusal(500, "Connector config contains no connector type")
        if not self._is_installed(config["connector.class"]):
            error = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"
            raise Refusal(500, f"{error}: {self._no_class(config['connector.class'])}")
        self._refuse_types(config)
        errors = self._errors(config)
        for key in {"name", "source.cluster.alias"} - config.keys():
            errors[key] = f'Missing required configuration "{key}" which has no default value.'
        known = ["name", "connector.class", *(name for name, _, _ in KEYS)]
        known += [] if self._older_than(3, 3) else ["exactly.once.support"]
        known += [key for key in config if key.startswith(tuple(self._checked_prefixes(config)))]
        known += [key for key in errors if key not in known]
        values = [
            {"name": key, "value": config.get(key), "errors": [errors[key]] if key in errors else []} for key in known
        ]
        configs = [{"definition": None, "value": value} for value in values]
        return {"name": config["connector.class"], "error_count": len(errors), "groups": [], "configs": configs}

    # What a connector looks like

    def task_count(self, name: str) -> int:
        """How many tasks the connector has now: min(tasks.max, partitions) for a MirrorSource, one for the others."""
        connector = self.connectors[name]
        if connector.state == "STOPPED":
            return 0
        if connector.forced_tasks is not None:
            return connector.forced_tasks
        if connector.dealt is not None:
            return len(connector.dealt)
        if not connector.config["connector.class"].endswith("MirrorSourceConnector"):
            return 1
        if (assigned := self._assigned(connector.config)) is not None:
            return len(assigned)
        partitions = sum(count for _, count in self._matched(connector.config.get("topics", "")))
        wish = connector.config.get("tasks.max", "1")
        return min(int(wish), partitions) if wish.isdecimal() else 0

    def status(self, name: str) -> dict[str, Any]:
        """The connector's status as Connect prints it."""
        connector, worker = self.connectors[name], "127.0.0.1:8083"
        failed_tasks = self._failed_tasks(connector)
        own = {"state": connector.shown_state or connector.state, "worker_id": self.worker_ids.get(None, worker)}
        tasks = []
        ending = int(connector.state == "STOPPED" and connector.ending_statuses > 0)
        connector.ending_statuses -= ending
        for number in range(self.task_count(name) + ending):
            trace = failed_tasks.get(number)
            shown = connector.shown_task_state or connector.state
            state = {"state": shown} if trace is None else {"state": "FAILED", "trace": trace}
            tasks.append({"id": number, "worker_id": self.worker_ids.get(number, worker), **state})
        own |= {"trace": connector.trace} if connector.trace else {}
        return {"name": name, "connector": own, "tasks": tasks, "type": "source"}

    def _failed_tasks(self, connector: Connector) -> dict[int, str]:
        """Return traces by task: those that a test wants, or what a client's invalid setting does to each task."""
        if connector.old is not None and connector.old_tasks + connector.old_statuses > 0:
            connector.old_statuses -= not connector.old_tasks
            return self._failed_tasks(connector.old)
        invalid = connector.config.get("source.consumer.fetch.max.bytes", "").startswith("-")
        trace = "org.apache.kafka.common.config.ConfigException: Invalid value -5 for configuration fetch.max.bytes"
        return dict.fromkeys(range(100), trace) if invalid else connector.failed_tasks

    def _matched(self, topics: str) -> list[tuple[str, int]]:
        wanted = [item.strip() for item in topics.split(",") if item.strip()]
        known = self.source_topics
        if known is None:
            return [(topic, 1) for topic in wanted]
        names = {name for item in wanted for name in ([item] if item in known else _matching(item, known))}
        return [(name, known[name]) for name in sorted(names)]

    def _info(self, name: str) -> dict[str, Any]:
        tasks = [{"connector": name, "task": number} for number in range(self.task_count(name))]
        return {"name": name, "config": self.connectors[name].config, "tasks": tasks, "type": "source"}

    def _tasks(self, name: str) -> list[dict[str, Any]]:
        connector, count = self._found(name), self.task_count(name)
        config = connector.config
        if connector.old is not None and connector.old_tasks > 0:
            connector.old_tasks -= 1
            config = connector.old.config
        parts = [
            f"{topic}-{number}" for topic, size in self._matched(config.get("topics", "")) for number in range(size)
        ]
        task_class = config["connector.class"].removesuffix("Connector") + "Task"
        passed_on, dealt = dict(config), connector.dealt or self._assigned(config)
        if config["connector.class"] == PLUGIN_CLASS:
            task_class, passed_on = f"{MIRROR}MirrorSourceTask", expected_task_config(config)
        of_groups = task_class.endswith("MirrorCheckpointTask")
        key, items = ("groups", connector.groups) if of_groups else ("partitions", parts)
        return [
            {
                "id": {"connector": name, "task": number},
                "config": {key: value for key, value in passed_on.items() if key not in connector.own_keys}
                | {
                    "task.class": task_class,
                    "task.index": str(number),
                    f"task.assigned.{key}": dealt[number] if dealt else ",".join(items[number::count]),
                },
            }
            for number in range(count)
        ]

    def _assigned(self, config: Mapping[str, str]) -> list[str] | None:
        """What the Connect plugin assigns to each task, where the config has an assignment."""
        if config.get("connector.class") != PLUGIN_CLASS or ASSIGNMENT_KEY not in config:
            return None
        topics = self._matched(config.get("topics", ""))
        there = [TopicPartition(topic, number) for topic, size in topics for number in range(size)]
        try:
            tasks = read_text(config[ASSIGNMENT_KEY]).tasks(there, int(config.get("tasks.max", "1"))).tasks
        except AssignmentRefused:  # of a newer plugin
            return None
        return [",".join(map(str, task)) for task in tasks]

    def _seen_status(self, name: str) -> dict[str, Any]:
        if name not in self.connectors or self._no_status_yet(name):
            raise Refusal(404, f"No status found for connector {name}")
        return self.status(name)

    def _no_status_yet(self, name: str) -> bool:
        connector = self.connectors[name]
        hidden = connector.hidden_reads > 0
        connector.hidden_reads -= hidden
        return hidden

    def _found(self, name: str) -> Connector:
        if name not in self.connectors:
            raise Refusal(404, f"Connector {name} not found")
        return self.connectors[name]

    def _older_than(self, *version: int) -> bool:
        return tuple(int(part) for part in self.version.split(".")[:2]) < version

    # Ways to reach it

    def transport(self) -> Any:
        """Return an httpx.MockTransport that answers from this fake."""
        import httpx

        async def answer(request: httpx.Request) -> httpx.Response:
            url = urlsplit(str(request.url))
            try:
                reply, late_seconds = self.handle(request.method, url.path, url.query, request.content, request.headers)
            except Dropped:
                raise httpx.ReadError("connection reset by peer") from None
            if late_seconds:
                try:
                    async with asyncio.timeout(request.extensions["timeout"]["read"]):
                        await asyncio.sleep(late_seconds)
                except TimeoutError:
                    raise httpx.ReadTimeout("no answer") from None
            return httpx.Response(reply[0], headers=reply[1], content=reply[2])

        return httpx.MockTransport(answer)


KEYS = (
    ("source.cluster.alias", "STRING", None),
    ("topics", "LIST", ".*"),
    ("sync.topic.acls.enabled", "BOOLEAN", "true"),
)


@contextmanager
def serving(fake: FakeConnect, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve a fake on a free port of 127.0.0.1 and yield its URL; every thread has ended on leaving."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body go out as two packets: the second would wait 40 ms for an ACK
        timeout = 30

        def setup(self) -> None:
            if tls:
                self.request = tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
                self.request.settimeout(self.timeout)
                try:
                    self.request.do_handshake()
                except ssl.SSLError:
                    _drain(self.request)  # closing with unread bytes would send RST and lose the TLS alert
                    raise
            super().setup()

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                (status, headers, data), late_seconds = fake.handle(
                    self.command, url.path, url.query, body, dict(self.headers)
                )
            except Dropped:
                self._reset()
                return
            if late_seconds:
                time.sleep(late_seconds)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(data)

        def _reset(self) -> None:
            # Linger of zero: close() sends RST, which is what a dying worker looks like.
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256
        is_closing = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hung up, or a TLS handshake that was meant to fail

    server = Server(("127.0.0.1", 0), Handler)
    address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=_accept, args=(server,), daemon=True)
    thread.start()
    if not tls:
        _SERVED[address] = fake
    try:
        yield f"{'https' if tls else 'http'}://{address}"
    finally:
        _SERVED.pop(address, None)
        server.is_closing = True
        with suppress(OSError):
            socket.create_connection(server.server_address, timeout=1).close()  # what the thread waits for
        thread.join()
        server.server_close()


_SERVED: dict[str, FakeConnect] = {}
"""The fakes that are served without TLS, by host and port."""


def _accept(server: Any) -> None:
    """Take connections until the server is closing, without looking again and again whether it is."""
    while True:
        with suppress(OSError):
            request, address = server.get_request()
            if server.is_closing:
                request.close()
                return
            server.process_request(request, address)


@contextmanager
def without_sockets() -> Iterator[None]:
    """Let Connect clients of this process hand their requests to the fakes that are served: the same answers in half of the time.

    Every test of a folder but those of `connect`, `hostile` and `live` has it so, from tests/conftest.py.
    """
    import httpx
    import pytest

    from mm2mgr.connect import wire

    class Handed(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self._real = httpx.AsyncHTTPTransport(verify=False, trust_env=False)

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            fake = _SERVED.get(f"{request.url.host}:{request.url.port}")
            way = fake.transport() if fake else self._real
            return await way.handle_async_request(request)  # type: ignore[no-any-return]

        async def aclose(self) -> None:
            await self._real.aclose()

    connect = wire.http_client

    def handed(headers: Any, verify: Any, transport: Any, proxy: Any = None) -> httpx.AsyncClient:
        own = Handed() if _SERVED and not (verify or transport or proxy) else transport
        return connect(headers, verify, own, proxy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "http_client", handed)
        yield


def _drain(refused: socket.socket) -> None:
    with suppress(OSError):
        refused.shutdown(socket.SHUT_WR)
        while refused.recv(4096):
            pass


def _scripted(fault: Fault) -> Answer:
    body = fault.body if fault.body is not None else f"scripted {fault.status}"
    if isinstance(body, str) and not body.startswith("<"):
        body = {"error_code": fault.status, "message": body}
    if isinstance(body, bytes):
        return fault.status or 200, fault.headers, body
    if isinstance(body, str):
        return fault.status or 200, {"Content-Type": "text/html", **fault.headers}, body.encode()
    return fault.status or 200, {"Content-Type": "application/json", **fault.headers}, json.dumps(body).encode()


def _java_map(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}={values[key]}" for key in values) + "}"


def _matching(pattern: str, known: Mapping[str, int]) -> Iterator[str]:
    compiled = re.compile(pattern)
    return (name for name in known if compiled.fullmatch(name))


def _key(partition: Mapping[str, Any]) -> str:
    return json.dumps(partition, sort_keys=True)
