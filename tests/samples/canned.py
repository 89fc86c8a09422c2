"""Canned answers of an HTTP server, handed to the client as its transport: no socket, and any URL without an answer is an error."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from typing import Any

import httpx

Response = tuple[int, dict[str, str], str]


class CannedServer:
    """Answers a GET by its URL without query; the last answer set for a URL counts. `requests` are those that came."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)
        self._answers: dict[str, Callable[[httpx.Request], Response]] = {}

    def on(self, url: str, answer: Callable[[httpx.Request], Response]) -> None:
        """Answer this URL by a function."""
        self._answers[url] = answer

    def get(self, url: str, *, status: int = 200, body: str = "", json: Any = None) -> None:
        """Answer this URL the same way each time."""
        text = body if json is None else json_module.dumps(json)
        self.on(url, lambda _: (status, {}, text))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        url = str(request.url.copy_with(query=None))
        if url not in self._answers:
            raise httpx.ConnectError(f"nothing is canned for {url}", request=request)
        status, headers, body = self._answers[url](request)
        return httpx.Response(status, headers=headers, content=body.encode())
