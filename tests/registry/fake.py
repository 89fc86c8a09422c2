"""A schema registry in memory that answers as real ones were recorded to: Apicurio 2.6.13 and 3.3.3, over Confluent's API (ccompat) and its own.

What no real one here could be asked, Confluent's GUIDs, is answered as its API reference describes it. Every request is logged; nothing waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_servers import serving_handler

Reference = tuple[str, str, int]
"""Name, subject (or artifact) and version."""


@dataclass
class Schema:
    """A schema under an id, in one version of a subject."""

    id: int
    subject: str
    text: str
    type: str = "AVRO"
    references: Sequence[Reference] = ()
    version: int = 1
    guid: str = ""
    global_id: int = 0
    deleted: bool = False


@dataclass
class FakeRegistry:
    """`login`: the Authorization header that it asks for. `broken`: the status of every answer, with a page."""

    schemas: list[Schema] = field(default_factory=list)
    login: str = ""
    broken: int = 0
    requests: list[str] = field(default_factory=list)

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        self.requests.append(path)
        if self.broken:
            return self.broken, "text/html", b"<html>out of order</html>"
        if self.login and authorization != self.login:
            return 401, "application/json", b'{"error_code":401,"message":"Unauthorized"}'
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        place = [unquote(part) for part in parts.path.split("/")]
        if place[1:3] == ["apis", "registry"]:
            return self._apicurio(place[3], place[4:], query)
        return self._confluent(place[1:], query)

    def _confluent(self, place: list[str], query: dict[str, str]) -> tuple[int, str, bytes]:  # noqa: PLR0911  one per path
        with_deleted = query.get("deleted") == "true"
        match place:
            case ["schemas", "ids", number]:
                found = next((schema for schema in self.schemas if str(schema.id) == number), None)
                return _json(404, _NO_SCHEMA) if found is None else _json(200, _body(found))
            case ["schemas", "ids", number, "versions"]:
                found_all = [schema for schema in self.schemas if str(schema.id) == number]
                if not found_all:
                    return _json(404, _NO_SCHEMA)
                listed = [schema for schema in found_all if with_deleted or not schema.deleted]
                return _json(200, [{"subject": schema.subject, "version": schema.version} for schema in listed])
            case ["schemas", "guids", guid, *rest] if any(schema.guid for schema in self.schemas):
                found = next((schema for schema in self.schemas if schema.guid == guid), None)
                if found is None:
                    return _json(404, _NO_SCHEMA)
                return _json(200, [{"context": ".", "id": found.id}] if rest == ["ids"] else _body(found))
            case ["subjects", subject, "versions", version]:
                found = self._version(subject, version)
                if found is None or (found.deleted and not with_deleted):
                    return _json(404, {"error_code": 40402, "message": "Version not found."})
                return _json(200, {"subject": subject, "version": found.version, "id": found.id, **_body(found)})
        return _json(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def _version(self, subject: str, version: str) -> Schema | None:
        return next((each for each in self.schemas if (each.subject, str(each.version)) == (subject, version)), None)

    def _apicurio(self, api: str, place: list[str], query: dict[str, str]) -> tuple[int, str, bytes]:
        match place:
            case ["ids", kind, number, *rest] if kind in ("globalIds", "contentIds"):
                found = self._by_id(kind[:-3], number)
                if found is None:
                    name = "ContentNotFoundException" if kind == "contentIds" else "ArtifactNotFoundException"
                    return _json(404, {"error_code": 404, "message": f"No content with ID '{number}'", "name": name})
                return _json(200, _references(found)) if rest else (200, "application/json", found.text.encode())
            case ["search", listed]:
                (kind, number), *_ = query.items()
                found = self._by_id(kind[:-2], number)
                entries = [] if found is None or found.deleted else [_artifact(api, found)]
                return _json(200, {listed: entries, "count": len(entries)})
            case ["groups", "default", "artifacts", artifact, "versions", version, *rest]:
                found = self._version(artifact, version)
                if found is None:
                    return _json(404, {"error_code": 404, "name": "VersionNotFoundException"})
                return _json(200, _references(found)) if rest == ["references"] else (200, "", found.text.encode())
        return _json(404, {"error_code": 404, "name": "NotFoundException"})

    def _by_id(self, kind: str, number: str) -> Schema | None:
        return next(
            (each for each in self.schemas if str(each.id if kind == "content" else each.global_id) == number), None
        )


_NO_SCHEMA = {"error_code": 40403, "message": "Schema not found"}


def _body(schema: Schema) -> dict[str, Any]:
    references = [{"name": name, "subject": of, "version": number} for name, of, number in schema.references]
    # Confluent's API names the type of all but Avro.
    return {"schema": schema.text, "references": references} | (
        {"schemaType": schema.type} if schema.type != "AVRO" else {}
    )


def _references(schema: Schema) -> list[dict[str, str]]:
    return [{"artifactId": of, "name": name, "version": str(number)} for name, of, number in schema.references]


def _artifact(api: str, schema: Schema) -> dict[str, object]:
    if api == "v2":
        return {"id": schema.subject, "type": schema.type, "state": "ENABLED"}
    return {"artifactId": schema.subject, "artifactType": schema.type, "version": str(schema.version)}


def _json(status: int, body: object) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(body).encode()


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[str]:
    """Serve a registry on a free port of this machine; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving_handler(Handler) as url:
        yield url
