"""Kafka Connect's REST API, one method per endpoint, with values of `types` and a ConnectError on failure.

A call retries temporary failures (rebalances, starting workers) until its deadline; a write whose answer was lost is
read back before it is repeated.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx

from mm2mgr.connect.errors import Call, Invalid, NotFound, Overwritten
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.types import (
    Plugin,
    PluginsOfWorker,
    PluginsOfWorkers,
    SourceOffset,
    Validation,
    WorkerInfo,
    as_list,
    as_object,
    parse_config,
    parse_connector,
    parse_state,
    parse_status,
    parse_task,
)
from mm2mgr.connect.wire import Caller, Check, ConnectHttp, Deadline, parse_answer
from mm2mgr.connectors import ConnectorStatus, RunningConnector, TaskConfig, with_statuses
from mm2mgr.errors import Mm2mgrError
from mm2mgr.json_values import to_json
from mm2mgr.secrets import mask_text, remember
from mm2mgr.text import is_addressable

T = TypeVar("T")
_CONNECT_SECONDS, _CONNECTS_AT_ONCE = 2.0, 64


class ConnectClient:
    """One Connect cluster: `async with ConnectClient(target) as connect: …`; safe to share in one event loop.

    `deadline_seconds` bounds every call with all its retries; None means the target's own (60 s for reads by default,
    and twice that for writes), `silence_seconds` the wait for a first answer. A cluster that no URL reaches fails at
    once, unless it was reached before by this client (then its workers may be restarting).
    """

    def __init__(
        self,
        target: ConnectTarget,
        *,
        deadline_seconds: float | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        first_backoff_seconds: float = 0.2,
        silence_seconds: float = math.inf,
    ) -> None:
        self.target = target
        self._wire = ConnectHttp(target, transport, silence_seconds)
        self._caller = Caller(self._wire, deadline_seconds, first_backoff_seconds)

    def with_deadline(self, deadline_seconds: float) -> ConnectClient:
        """Return a client that uses this one's connections while it is open, and bounds its calls otherwise."""
        client = copy(self)
        client._caller = self._caller.with_deadline(deadline_seconds)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.close()

    # The Connect cluster

    async def root(self) -> WorkerInfo:
        """Return the answering worker's version and the id of the Kafka cluster it runs on."""
        return await self._read(self._call("GET", "/"), WorkerInfo.parse)

    async def connectors(self) -> tuple[str, ...]:
        """Return the names of all connectors."""
        return await self._read(self._call("GET", "/connectors"), _names)

    async def infos(self) -> dict[str, RunningConnector]:
        """Return config and task ids of all connectors in one request (KIP-465, Kafka 2.3)."""
        call = self._call("GET", "/connectors?expand=info")
        return await self._read(call, lambda data: _parse_expanded(data, "info", parse_connector))

    async def statuses(self) -> dict[str, ConnectorStatus]:
        """Return the status of all connectors in one request; Connect leaves out those that have none yet."""
        call = self._call("GET", "/connectors?expand=status")
        return await self._read(call, lambda data: _parse_expanded(data, "status", parse_status))

    async def infos_with_states(self) -> dict[str, RunningConnector]:
        """Return config and state, without those of tasks, of all connectors in one request; those that have no status
        yet (up to seconds after a write) are left out.
        """
        return await self._infos_with(parse_state)

    async def infos_with_statuses(self) -> dict[str, RunningConnector]:
        """As `infos_with_states`, with the states of tasks."""
        return await self._infos_with(parse_status)

    async def _infos_with(self, of_status: Callable[[object], ConnectorStatus]) -> dict[str, RunningConnector]:
        def parse(data: object) -> dict[str, RunningConnector]:
            connectors = _parse_expanded(data, "info", parse_connector)
            return with_statuses(connectors, _parse_expanded(data, "status", of_status))

        return await self._read(self._call("GET", "/connectors?expand=info&expand=status"), parse)

    async def plugins(self) -> tuple[Plugin, ...]:
        """Return the plugins of the worker that answers: of all types since 3.2 (KIP-769), before that connectors.

        Other workers may have others during a rolling upgrade.
        """
        call = self._call("GET", "/connector-plugins?connectorsOnly=false")
        return await self._read(call, lambda data: _parse_items(data, Plugin.parse))

    async def validate(self, plugin: str, config: Mapping[str, str]) -> Validation:
        """Return what the worker thinks of a config, without writing anything; secrets of the config are masked."""
        path = f"/connector-plugins/{_quote_path(plugin)}/config/validate"
        remember(config)
        validation = await self._read(self._call("PUT", path, body=dict(config)), Validation.parse)
        errors = {key: tuple(map(mask_text, reasons)) for key, reasons in validation.errors.items()}
        return replace(validation, errors=errors)

    async def loggers(self) -> dict[str, str]:
        """Return the levels of the answering worker's loggers by name (KIP-495, Kafka 2.4); those that are OFF are
        left out, and before 4.0 those whose level was never set. Unsupported where `admin.listeners` has it elsewhere.
        """
        return await self._read(self._call("GET", "/admin/loggers"), _parse_levels)

    async def logger(self, name: str) -> str | None:
        """Return the level in effect of one logger of the answering worker, None where it has no such logger."""
        call = self._call("GET", f"/admin/loggers/{_quote_path(name)}")
        try:
            return await self._read(call, _parse_level)
        except NotFound:
            return None

    async def set_logger(self, name: str, level: str) -> None:
        """Set the level of a logger and of all below it, on the answering worker, until that restarts."""

        async def is_set(deadline: Deadline) -> bool:
            return await self.logger(name) == level

        call = self._call("PUT", f"/admin/loggers/{_quote_path(name)}", body={"level": level}, write=True)
        await self._caller.write(call, is_set)

    # One connector, reading

    async def info(self, name: str) -> RunningConnector:
        """Return a connector's config, type and task ids."""
        return await self._read(self._call_about(name, "GET"), parse_connector)

    async def config(self, name: str, deadline: Deadline | None = None) -> dict[str, str]:
        """Return a connector's config as stored: `${…}` unresolved, inline secrets in clear."""
        return await self._read(self._call_about(name, "GET", "/config"), parse_config, deadline)

    async def status(self, name: str, deadline: Deadline | None = None) -> ConnectorStatus:
        """Return a connector's status; NotFound also while a new connector has not reported yet (up to minutes)."""
        return await self._read(self._call_about(name, "GET", "/status"), parse_status, deadline)

    async def tasks(self, name: str) -> tuple[TaskConfig, ...]:
        """Return the configs of a connector's tasks; only these tell whether a new config has reached the tasks."""
        return await self._read(self._call_about(name, "GET", "/tasks"), lambda data: _parse_items(data, parse_task))

    async def topics(self, name: str) -> tuple[str, ...]:
        """Return the topics a connector wrote to (remote names); Unsupported if the workers do not track them."""

        def parse(data: object) -> tuple[str, ...]:
            own = as_object(data, "topics by connector").get(name)
            return _names(as_object(own, "a connector's topics").get("topics"))

        return await self._read(self._call_about(name, "GET", "/topics"), parse)

    async def offsets(self, name: str, deadline: Deadline | None = None) -> tuple[SourceOffset, ...]:
        """Return a connector's stored source offsets (KIP-875, Kafka 3.5); exact only while it is STOPPED."""

        def parse(data: object) -> tuple[SourceOffset, ...]:
            return _parse_items(as_object(data, "stored offsets").get("offsets"), SourceOffset.parse)

        return await self._read(self._call_about(name, "GET", "/offsets"), parse, deadline)

    # One connector, writing

    async def put_config(
        self, name: str, config: Mapping[str, str], before: Mapping[str, str] | None = None
    ) -> RunningConnector:
        """Create or update a connector; even an unchanged config restarts the connector instance.

        The result's tasks are those from before the change, and empty if the answer was lost but the config is stored.
        `before` is the config that it replaces: a write that a rebalance refused, and that would be sent again seconds
        later, raises Overwritten where another is stored by then.
        """
        call = self._call_about(name, "PUT", "/config", body=dict(config))
        return await self._upsert(call, name, config, before)

    async def create(self, name: str, config: Mapping[str, str], initial_state: str | None = None) -> RunningConnector:
        """Create a connector, or raise AlreadyExists; `initial_state` (RUNNING, PAUSED, STOPPED) needs Kafka 3.7."""
        body: dict[str, object] = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        call = self._call("POST", "/connectors", connector=name, body=body, write=True)
        return await self._upsert(call, name, config)

    async def delete(self, name: str) -> None:
        """Delete a connector; its source offsets stay in Kafka and come back with the name."""

        async def is_gone(deadline: Deadline) -> bool:
            return await self._config_if_there(name, deadline) is None

        await self._caller.write(self._call_about(name, "DELETE"), is_gone)

    async def pause(self, name: str) -> None:
        """Ask a connector and its tasks to pause; returns before they have."""
        await self._caller.write(self._call_about(name, "PUT", "/pause"), self._in_state(name, "PAUSED"))

    async def resume(self, name: str) -> None:
        """Ask a paused or stopped connector to run; returns before it does."""
        await self._caller.write(self._call_about(name, "PUT", "/resume"), self._in_state(name, "RUNNING"))

    async def stop(self, name: str) -> None:
        """Ask a connector to stop and give up its tasks (KIP-875, Kafka 3.5); returns before it has."""
        await self._caller.write(self._call_about(name, "PUT", "/stop"), self._in_state(name, "STOPPED"))

    async def restart(
        self, name: str, *, include_tasks: bool = False, only_failed: bool = False
    ) -> ConnectorStatus | None:
        """Restart a connector instance, or with its tasks (KIP-745, Kafka 3.0), and return the restart plan if any.

        Raises OutcomeUnknown when the answer is lost: a restart leaves nothing behind that could be read back.
        """
        chosen = {"includeTasks": include_tasks, "onlyFailed": only_failed}
        query = urlencode({key: str(value).lower() for key, value in chosen.items()})
        call = self._call_about(name, "POST", f"/restart?{query}" if any(chosen.values()) else "/restart")
        answer = await self._caller.write(call, None)
        return parse_answer(answer, call, parse_status) if answer and answer.text.strip() else None

    async def restart_task(self, name: str, task: int) -> None:
        """Restart one task and no other. Raises OutcomeUnknown when the answer is lost, as `restart` does."""
        await self._caller.write(self._call_about(name, "POST", f"/tasks/{task}/restart"), None)

    async def patch_offsets(self, name: str, offsets: Iterable[SourceOffset]) -> None:
        """Alter stored source offsets of a STOPPED connector (Kafka 3.6); offset None removes an entry, others stay."""
        new_entries = tuple(offsets)

        async def is_stored(deadline: Deadline) -> bool:
            stored_now = {entry.key: entry.offset for entry in await self.offsets(name, deadline)}
            return all(stored_now.get(entry.key) == entry.offset for entry in new_entries)

        body = {"offsets": to_json(new_entries)}
        await self._caller.write(self._call_about(name, "PATCH", "/offsets", body=body), is_stored)

    # How a call is made

    def _call(self, method: str, path: str, **more: Any) -> Call:
        return Call(self.target.name, method, path, credentials=self.target.credentials, **more)

    def _call_about(self, name: str, method: str, rest: str = "", **more: Any) -> Call:
        return self._call(
            method, f"/connectors/{_quote_path(name)}{rest}", connector=name, write=method != "GET", **more
        )

    async def _read(self, call: Call, parse: Callable[[object], T], deadline: Deadline | None = None) -> T:
        return parse_answer(await self._caller.read(call, deadline), call, parse)

    async def _upsert(
        self, call: Call, name: str, config: Mapping[str, str], before: Mapping[str, str] | None = None
    ) -> RunningConnector:
        remember(config)
        # The worker adds the name to a config that lacks it.
        desired = {"name": name, **config}

        async def is_stored(deadline: Deadline) -> bool:
            return await self._config_if_there(name, deadline) == desired

        async def is_untouched(deadline: Deadline) -> bool:
            for pause in self._caller.pauses:  # followers learn of a write a moment after the leader did
                await asyncio.sleep(min(pause, deadline.seconds_left()))
                live = await self._config_if_there(name, deadline)
                if live in (before, desired):
                    return live != desired
            hint = "Somebody else wrote it at the same time, and was not overwritten; plan again."
            change = "was deleted" if live is None else "got another config"
            raise call.error(Overwritten, f"it {change} while this write waited for the workers", hint=hint)

        if not is_addressable(name):
            hint = (
                "Use a name without / \\ % and surrounding white space: a worker would create it, but could not find it"
                " again."
            )
            raise call.error(Invalid, f"a connector named {name!r} cannot be addressed in a URL", hint=hint)
        answer = await self._caller.write(call, is_stored, is_untouched if before is not None else None)
        return parse_answer(answer, call, parse_connector) if answer else RunningConnector(name, desired)

    async def _config_if_there(self, name: str, deadline: Deadline) -> dict[str, str] | None:
        try:
            return await self.config(name, deadline)
        except NotFound:
            return None

    def _in_state(self, name: str, state: str) -> Check:
        async def check(deadline: Deadline) -> bool:
            try:
                return (await self.status(name, deadline)).state == state
            except NotFound:
                return False

        return check


async def silent_workers(target: ConnectTarget, workers: Iterable[str]) -> frozenset[str]:
    """Return which workers, by their ids (`host:port`), accept no connection at their address. Nothing is sent to them.

    These addresses are meant for other workers. Where none of them accepts a connection, they may be out of reach from
    here, and only a worker whose address is also a URL of the target counts as silent; behind a proxy none does.
    """
    places = {worker: place for worker in workers if (place := _place(f"//{worker}"))}
    urls = {_place(url) for url in target.urls}
    if target.proxy or len({*places.values(), *urls}) < 2:
        return frozenset()
    gate = asyncio.Semaphore(_CONNECTS_AT_ONCE)
    answers = await asyncio.gather(*(_accepts(gate, *place) for place in places.values()))
    silent = frozenset(worker for worker, accepts in zip(places, answers, strict=True) if not accepts)
    return silent if any(answers) else frozenset(worker for worker in silent if places[worker] in urls)


async def plugins_of_workers(
    target: ConnectTarget, workers: Iterable[str], deadline_seconds: float, *, with_kafka: bool = False
) -> PluginsOfWorkers:
    """Ask each worker that is known, by the URLs of the target and by ids (`host:port`), for its plugins; `with_kafka`:
    and for the version of Kafka that it runs.

    A status names whom it likes, so credentials and headers go to the URLs alone. Where no id is the address of a URL,
    URLs may be gateways, or other addresses of the same workers: then the larger group alone counts.
    """
    places = {worker: place for worker in sorted(workers) if (place := _place(f"//{worker}"))}
    of_urls = {url: place for url in target.urls if (place := _place(url))}
    whole = list(dict.fromkeys((*of_urls.values(), *places.values())))
    addresses = dict(zip(whole, await asyncio.gather(*map(_addresses, whole)), strict=True))

    def is_same(place: _Place, other: _Place) -> bool:
        return place[1] == other[1] and not addresses[place].isdisjoint(addresses[other])

    def others(candidates: Mapping[str, _Place], there: Iterable[_Place] = ()) -> dict[str, _Place]:
        """Return those that are not the same workers as one before them, or as those there."""
        taken, new = list(there), dict[str, _Place]()
        for name, place in candidates.items():
            if not any(is_same(place, other) for other in taken):
                new[name] = place
                taken.append(place)
        return new

    urls, ids = others(of_urls), others(places)
    only_ids = others(ids, urls.values())
    scheme = urlsplit(target.urls[0]).scheme
    own = replace(target, renewed=None)  # what is renewed has all URLs, and another worker would answer for a dead one
    bare = replace(own, auth=None, headers={})
    asked = {url: (own, url) for url in urls} | {worker: (bare, f"{scheme}://{worker}") for worker in only_ids}
    gate = asyncio.Semaphore(_CONNECTS_AT_ONCE)

    async def ask(worker: str) -> PluginsOfWorker:
        async with gate:
            try:
                whose, url = asked[worker]  # a status names whom it likes, also what is no host
                async with ConnectClient(replace(whose, urls=(url,)), deadline_seconds=deadline_seconds) as client:
                    kafka = (await client.root()).version if with_kafka else ""
                    plugins = await client.plugins()
            except Mm2mgrError as error:
                return PluginsOfWorker(worker, failure=error.one_line)
        return PluginsOfWorker(worker, {plugin.class_name: plugin.version for plugin in plugins}, kafka=kafka)

    answers = await asyncio.gather(*map(ask, asked))
    answering = {answer.worker for answer in answers if not answer.failure}
    by_url, by_id = len(answering & urls.keys()), len(answering & only_ids.keys())
    are_workers = len(only_ids) < len(ids) or not ids
    named = {**urls, **only_ids}
    asked_as = {
        worker: name for worker, place in places.items() for name, other in named.items() if is_same(place, other)
    }
    return PluginsOfWorkers(tuple(answers), by_url + by_id if are_workers else max(by_url, by_id), asked_as)


def open_worker(target: ConnectTarget, worker: str, deadline_seconds: float) -> ConnectClient:
    """Return the client of one worker, by a URL of the target or by its id (`host:port`), which gets no credentials: a
    status names whom it likes."""
    own = replace(target, renewed=None)
    if worker not in target.urls:
        scheme = urlsplit(target.urls[0]).scheme
        own, worker = replace(own, auth=None, headers={}), f"{scheme}://{worker}"
    return ConnectClient(replace(own, urls=(worker,)), deadline_seconds=deadline_seconds)


_Place = tuple[str, int]


async def _addresses(place: _Place) -> frozenset[str]:
    """Return the addresses of a host, or its name where it has none here."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(*place, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset([place[0]])
    return frozenset(str(entry[4][0]) for entry in entries)


def _place(url: str) -> _Place | None:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


async def _accepts(gate: asyncio.Semaphore, host: str, port: int) -> bool:
    async with gate:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError):  # ValueError: what is no host name
            return False
        writer.close()
        return True


def _quote_path(name: str) -> str:
    return quote(name, safe="")


def _parse_items(data: object, parse: Callable[[object], T]) -> tuple[T, ...]:
    return tuple(parse(entry) for entry in as_list(data, "a list"))


def _parse_level(data: object) -> str:
    return str(as_object(data, "the level of a logger").get("level"))


def _parse_levels(data: object) -> dict[str, str]:
    return {name: _parse_level(entry) for name, entry in as_object(data, "levels of loggers").items()}


def _names(data: object) -> tuple[str, ...]:
    return tuple(str(name) for name in as_list(data, "a list of names"))


def _parse_expanded(data: object, kind: str, parse: Callable[[object], T]) -> dict[str, T]:
    entries = as_object(data, "connectors by name")
    parts = ((name, as_object(entry, "an expanded connector").get(kind)) for name, entry in entries.items())
    return {name: parse(part) for name, part in parts if part is not None}
