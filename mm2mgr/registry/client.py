"""Reads schemas by id from one registry, over Confluent's REST API or Apicurio's own (v2, v3). Nothing is written.

That an id is not there is an answer only where the registry says so in its own words: a page of something else is a
failure. Answers were recorded from Apicurio 2.6.13 and 3.3.3; Confluent's API is as its reference describes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from mm2mgr.connect.errors import Answer, Call, ConnectError
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.connect.wire import ConnectHttp, Deadline
from mm2mgr.errors import Mm2mgrError
from mm2mgr.registry.canonical import fingerprint
from mm2mgr.registry.ids import RegisteredSchema, SchemaId
from mm2mgr.secrets import cut, mask_text

Api = Literal["confluent", "apicurio"]
IdKind = Literal["content", "global"]
_MOST_SUBJECTS = 5
_DEEPEST, _MOST_REFERENCES = 10, 100
_LONGEST, _LONGEST_NAME = 20_000, 300
_NO_SCHEMA = frozenset((40401, 40402, 40403))  # no such subject, version, schema
_NOT_THERE = frozenset(("ContentNotFoundException", "ArtifactNotFoundException", "VersionNotFoundException"))


class RegistryError(Mm2mgrError):
    """A schema registry did not answer, refused, or is another one than declared."""


class CannotResolve(Mm2mgrError):
    """This registry has no way to look such an id up, whatever it holds."""


class RegistryClient:
    """One schema registry: `async with RegistryClient(target, "confluent") as registry: …`."""

    def __init__(
        self, target: ConnectTarget, api: Api, ids: IdKind | None = None, *, deadline_seconds: float = 30.0
    ) -> None:
        self.target = target
        self._http = ConnectHttp(target)
        self._deadline = Deadline.in_seconds(deadline_seconds)
        path = urlsplit(target.urls[0]).path.rstrip("/")
        self._api: _Confluent | _Apicurio
        if api == "confluent":
            self._api = _Confluent(self)
        elif path.endswith(("/v2", "/v3")):
            self._api = _Apicurio(self, path[-2:], ids)
        else:
            hint = "write its whole path, such as http://registry:8080/apis/registry/v3"
            raise self.error(f"url {target.urls[0]} does not end with /v2 or /v3, as Apicurio's API does", hint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with this id, None where there is none; RegistryError, CannotResolve."""
        return await self._api.schema(schema_id)

    def error(self, reason: str, hint: str | None = None) -> RegistryError:
        """Build an error that names this registry."""
        return RegistryError(f"{self.target.noun} '{self.target.name}': {reason}", hint=hint)

    async def get(self, path: str) -> Answer:
        """Return an answer, of success or 404; RegistryError for all others."""
        call = Call(self.target.name, "GET", path, noun=self.target.noun)
        try:
            answer = await self._http.send(call, self._deadline)
        except ConnectError as error:
            hint = "check that it runs, and `url`, `proxy` and `tls` of its `schema_registry`"
            raise RegistryError(error.message, hint=hint) from error
        if answer.status in (200, 404):
            return answer
        text = cut(" ".join(mask_text(answer.text[:_LONGEST]).split()), 200)
        hints = {401: "check `auth`", 403: "check `auth`: this login may not read schemas"}
        hints |= dict.fromkeys((301, 302, 303, 307, 308), "check `url`: a redirect is not followed")
        raise self.error(f"GET {path}: HTTP {answer.status}: {text or 'an empty answer'}", hints.get(answer.status))

    def other(self, path: str, answer: Answer) -> RegistryError:
        """Build the error for an answer that the declared API does not give."""
        hint = "check `url` and `api` of its `schema_registry`"
        text = cut(" ".join(mask_text(answer.text[:_LONGEST]).split()), 120)
        return self.error(f"GET {path}: HTTP {answer.status} that is not of the declared API: {text}", hint)

    def parse(self, path: str, answer: Answer) -> Any:
        """Return the JSON of an answer; RegistryError where it is none."""
        try:
            return json.loads(answer.text)
        except (ValueError, RecursionError):
            raise self.other(path, answer) from None


@dataclass
class _Budget:
    """How many references may still be looked up for one schema: they may form a circle, or be without end."""

    left: int = _MOST_REFERENCES


class _Confluent:
    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry

    async def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
        if schema_id.form == "8-byte id":
            return None  # an id of 0, which Confluent's API does not know
        if schema_id.form in ("globalId", "contentId"):
            raise CannotResolve(f"Confluent's API does not know Apicurio's {schema_id.form}s: declare `api: apicurio`")
        kind = "guids" if schema_id.form == "guid" else "ids"
        path = f"/schemas/{kind}/{schema_id.text}"
        body = await self._object(path, may_be_unknown=schema_id.form == "guid")
        if body is None:
            return None
        schema_type, text, references = _confluent_parts(body)
        fingerprints, missing = await self._references(references, _Budget(), 0)
        number = schema_id.text if kind == "ids" else await self._number_of(schema_id.text)
        subjects, is_deleted = await self._subjects(number) if number else ((), False)
        return RegisteredSchema(
            schema_type, fingerprint(schema_type, text, fingerprints), subjects, is_deleted, missing
        )

    async def _object(self, path: str, *, may_be_unknown: bool = False) -> dict[str, Any] | None:
        answer = await self._registry.get(path)
        if answer.status == 404:
            if _number(answer, "error_code") in _NO_SCHEMA:
                return None
            if may_be_unknown:
                raise CannotResolve("this registry does not look schemas up by GUID")
            raise self._registry.other(path, answer)
        value = self._registry.parse(path, answer)
        if not isinstance(value, dict) or not isinstance(value.get("schema"), str):
            raise self._registry.other(path, answer)
        return value

    async def _list(self, path: str) -> list[Any]:
        answer = await self._registry.get(path)
        value = [] if answer.status == 404 else self._registry.parse(path, answer)
        return value if isinstance(value, list) else []

    async def _number_of(self, guid: str) -> str:
        """Return the number of a schema that is known by its GUID, "" where the registry does not tell."""
        ids = [entry.get("id") for entry in _objects(await self._list(f"/schemas/guids/{guid}/ids"))]
        return str(ids[0]) if ids and isinstance(ids[0], int) else ""

    async def _subjects(self, number: str) -> tuple[tuple[str, ...], bool]:
        path = f"/schemas/ids/{number}/versions"
        if subjects := _subjects_of(await self._list(path)):
            return subjects, False
        subjects = _subjects_of(await self._list(f"{path}?deleted=true"))
        return subjects, bool(subjects)

    async def _references(self, references: Sequence[Any], budget: _Budget, depth: int) -> tuple[dict[str, str], str]:
        """Return the fingerprints of what a schema refers to, by name, and what of it is not there."""
        fingerprints: dict[str, str] = {}
        missing = ""
        for reference in references:
            name, subject, version = (str(reference.get(key, "")) for key in ("name", "subject", "version"))
            budget.left -= 1
            if budget.left < 0 or depth >= _DEEPEST:
                raise CannotResolve("its references are too many, or too deep, to be compared")
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}?deleted=true"
            body = await self._object(path)
            if body is None:
                missing = missing or _plain(f"version {version} of {subject}")
                continue
            schema_type, text, further = _confluent_parts(body)
            own, its_missing = await self._references(further, budget, depth + 1)
            fingerprints[name] = fingerprint(schema_type, text, own)
            missing = missing or its_missing
        return fingerprints, missing


def _objects(entries: object) -> list[dict[str, Any]]:
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _confluent_parts(body: Mapping[str, Any]) -> tuple[str, str, list[dict[str, Any]]]:
    return str(body.get("schemaType") or "AVRO").upper(), body["schema"], _objects(body.get("references"))


def _subjects_of(versions: object) -> tuple[str, ...]:
    names = (entry.get("subject") for entry in _objects(versions))
    return tuple(dict.fromkeys(_plain(name) for name in names if isinstance(name, str)))[:_MOST_SUBJECTS]


def _plain(text: object) -> str:
    """Return a name from a registry as it may be printed: on one line, without control characters, and cut."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(text)[:_LONGEST_NAME])


def _number(answer: Answer, key: str) -> object:
    try:
        body = json.loads(answer.text)
    except (ValueError, RecursionError):
        return None
    return body.get(key) if isinstance(body, dict) else None


class _Apicurio:
    """Apicurio's own API: content by globalId or contentId, references, and artifacts in groups."""

    def __init__(self, registry: RegistryClient, version: str, ids: IdKind | None) -> None:
        self._registry, self._version, self._ids = registry, version, ids

    def _kind(self, schema_id: SchemaId) -> IdKind:
        if schema_id.form == "guid":
            raise CannotResolve("Apicurio's own API does not look schemas up by Confluent's GUIDs")
        if schema_id.form in ("globalId", "contentId"):
            return "global" if schema_id.form == "globalId" else "content"
        return self._ids or ("content" if schema_id.form == "id" else "global")

    async def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
        kind = self._kind(schema_id)
        path = f"/ids/{kind}Ids/{schema_id.text}"
        text = await self._content(path)
        if text is None:
            return None
        schema_type, subjects = await self._artifacts(kind, schema_id.text)
        fingerprints, missing = await self._references(f"{path}/references", schema_type, _Budget(), 0)
        own = fingerprint(schema_type, text, fingerprints)
        return RegisteredSchema(schema_type, own, subjects, not subjects, missing)

    async def _content(self, path: str) -> str | None:
        answer = await self._registry.get(path)
        if answer.status == 200:
            return answer.text
        if _number(answer, "name") in _NOT_THERE:
            return None
        raise self._registry.other(path, answer)

    async def _artifacts(self, kind: IdKind, number: str) -> tuple[str, tuple[str, ...]]:
        """Return the type of a schema, and its artifacts as `group/artifact` (without the default group)."""
        listed, name = ("versions", "artifactId") if self._version == "v3" else ("artifacts", "id")
        path = f"/search/{listed}?{kind}Id={number}"
        answer = await self._registry.get(path)
        body = self._registry.parse(path, answer)
        entries = body.get(listed) if isinstance(body, dict) else None
        if answer.status != 200 or not isinstance(entries, list):
            raise self._registry.other(path, answer)
        artifacts = _objects(entries)
        types = [str(entry.get("artifactType") or entry.get("type") or "") for entry in artifacts]
        names = (_artifact_name(entry.get("groupId"), entry.get(name)) for entry in artifacts)
        return (types[0] if types else ""), tuple(dict.fromkeys(names))[:_MOST_SUBJECTS]

    async def _references(self, path: str, schema_type: str, budget: _Budget, depth: int) -> tuple[dict[str, str], str]:
        answer = await self._registry.get(path)
        entries = self._registry.parse(path, answer) if answer.status == 200 else []
        fingerprints: dict[str, str] = {}
        missing = ""
        for entry in _objects(entries):
            budget.left -= 1
            if budget.left < 0 or depth >= _DEEPEST:
                raise CannotResolve("its references are too many, or too deep, to be compared")
            group, artifact, version = entry.get("groupId") or "default", entry.get("artifactId"), entry.get("version")
            of_version = (
                "/".join(("/groups", quote(group, safe=""), "artifacts", quote(str(artifact), safe=""), "versions"))
                + f"/{quote(str(version), safe='')}"
            )
            text = await self._content(of_version + ("/content" if self._version == "v3" else ""))
            if text is None:
                name = _artifact_name(entry.get("groupId"), artifact)
                missing = missing or _plain(f"version {version} of {name}")
                continue
            own, its_missing = await self._references(f"{of_version}/references", schema_type, budget, depth + 1)
            # What a schema refers to has its type.
            fingerprints[str(entry.get("name"))] = fingerprint(schema_type, text, own)
            missing = missing or its_missing
        return fingerprints, missing


def _artifact_name(group: object, artifact: object) -> str:
    return _plain(f"{artifact}" if group in (None, "default") else f"{group}/{artifact}")
