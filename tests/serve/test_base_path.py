"""The page below a path of a reverse proxy: every link stays there, whether the proxy takes the path off or not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import httpx
import pytest

from mm2mgr import timing
from mm2mgr.errors import InvalidArgument
from mm2mgr.sandbox.kafka_servers import DIRECT
from mm2mgr.serve.app import Login, Site, application, parse_base_path
from tests.cli.command import Command
from tests.cli.conftest import mm2mgr
from tests.clock import ShownClock
from tests.http_servers import serving_handler
from tests.serve.estate import CHROMIUM, NOW, ask_application, serving
from tests.serve.shop import shop

__all__ = ["mm2mgr"]
BASE = "/sites/mm2mgr"
_ADDRESS = re.compile(r'(?:href|src|action)="([^"]*)"|content="\d+; url=([^"]*)"')


def ask(path: str, base: str = BASE, **more: Any) -> httpx.Response:
    login = more.pop("login", None)
    with timing.use(ShownClock(lambda: NOW + 5)):
        view = shop(NOW)
        app = application(lambda: view, login, site=Site(base_path=base), clock=lambda: NOW + 5)
        return ask_application(app, path, **more)


def addresses(page: str) -> set[str]:
    """Return what a page links to, loads or sends forms to, but places in itself."""
    found = (unescape(first or second) for first, second in _ADDRESS.findall(page))
    return {address for address in found if not address.startswith("#")}


STARTS = ("/", "/?live=off", "/?view=matrix&refresh=30", "/flows?group=connect", "/flow?id=orders")


def test_every_link_of_every_page_stays_below_the_base_path() -> None:
    """Of addresses with the same parameters one is asked: flows, ranges and searches are alike, and without end."""
    view, waiting, asked = shop(NOW), [BASE + start for start in STARTS], set[tuple[str, frozenset[str]]]()
    app = application(lambda: view, site=Site(base_path=BASE), clock=lambda: NOW + 5)
    with timing.use(ShownClock(lambda: NOW + 5)):
        while waiting:
            address = waiting.pop(0).partition("#")[0]
            path, _, query = address.partition("?")
            kind = path, frozenset(name.partition("=")[0] for name in query.split("&"))
            if kind in asked:
                continue
            asked.add(kind)
            said = ask_application(app, address)
            assert said.status_code == (404 if address.endswith("id=orders") else 200), address
            if "html" in said.headers["content-type"]:
                links = addresses(said.text)
                assert {link for link in links if not link.startswith(f"{BASE}/")} == set(), address
                waiting += sorted(links)
    pages = {path.removeprefix(BASE) for path, _ in asked}
    assert pages >= {"/", "/flows", "/flow", "/workers", "/worker", "/losses", "/changes", "/plan", "/parts"}


@pytest.mark.parametrize("path", ["/", "/flows?q=us", "/flow?id=orders%3Aus-%3Ehub", "/api/status", "/metrics"])
def test_requests_are_answered_alike_with_and_without_the_base_path(path: str) -> None:
    stripped, whole = ask(path), ask(f"{BASE}{path}")
    assert (stripped.status_code, stripped.text) == (200, whole.text)


def test_the_base_path_itself_is_the_overview_and_a_path_like_it_is_none() -> None:
    assert ask(BASE).text == ask("/").text
    assert ask(f"{BASE}2/flows").status_code == 404
    assert ask(f"{BASE}/healthz", login=Login("ann", "right")).status_code == 200
    assert ask(f"{BASE}/flows", login=Login("ann", "right")).status_code == 401


def test_the_visit_is_kept_below_the_base_path_alone() -> None:
    assert f"; Path={BASE};" in ask("/").headers["set-cookie"]
    assert "; Path=/;" in ask("/", base="").headers["set-cookie"]


def test_what_people_wrote_is_not_changed() -> None:
    """A connector's name that looks like a link is text."""
    page = ask('/flows?q=<a href="/flows">x</a>').text
    assert f'value="{"&lt;a href=&#34;/flows&#34;&gt;x&lt;/a&gt;"}"' in page


@pytest.mark.parametrize(
    ("text", "path"), [("", ""), ("/", ""), ("/mm2mgr", "/mm2mgr"), ("/a/b.c-d_e/", "/a/b.c-d_e"), ("/flow2", "/flow2")]
)
def test_a_base_path_is_read(text: str, path: str) -> None:
    assert parse_base_path(text) == path


@pytest.mark.parametrize(
    "text", ["mm2mgr", "//evil.example", "/a b", "/a/../b", "/a//b", "/a?b", "/%2e", "/ä", "/a\n", "/flows", "/api"]
)
def test_what_is_no_base_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"not a path such as|the path of a page"):
        parse_base_path(text)


@contextmanager
def proxy(target: str, *, strips: bool) -> Iterator[str]:
    """Yield the address of a reverse proxy that has a server below BASE, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{BASE}/"):
                self.send_error(404)
                return
            path = self.path.removeprefix(BASE) if strips else self.path
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}
            }
            try:
                answer = DIRECT.open(Request(f"{target}{path}", headers=headers), timeout=20)
            except HTTPError as refusal:
                answer = refusal
            with answer:
                body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving_handler(Handler) as front:
        yield front


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "whole"])
def test_behind_a_proxy_the_page_loads_searches_and_loads_again(browser: Any, strips: bool) -> None:
    looks = [0]
    with serving(lambda: shop(time.time()), site=Site(base_path=BASE)) as url, proxy(url, strips=strips) as front:
        page = browser.new_page()
        refused = list[str]()
        page.on("response", lambda said: refused.append(said.url) if said.status >= 400 else None)
        page.on("request", lambda request: looks.append(1) if "x-mm2mgr-live" in request.headers else None)
        page.goto(f"{front}{BASE}/flows?refresh=5")
        page.fill(".find [name=q]", "payments")
        page.wait_for_url(f"{front}{BASE}/flows?q=payments**")
        assert page.locator("#found tbody tr").count() == 2
        page.click("#found tbody a")
        page.wait_for_url(f"{front}{BASE}/flow?**")
        page.click("nav[aria-label=Pages] a >> nth=0")
        page.wait_for_url(f"{front}{BASE}/?**")
        before = len(looks)
        deadline = time.monotonic() + 20
        while len(looks) == before and time.monotonic() < deadline:
            page.wait_for_timeout(100)
        assert len(looks) > before, "it loads again"
        assert refused == []
        page.close()


def test_a_wrong_base_path_is_a_clear_error(mm2mgr: Command) -> None:
    (mm2mgr.folder / "clusters").mkdir()
    said = mm2mgr("serve", "--base-path", "/flows", code=64)
    assert "/flows is, or begins, the path of a page (/flows): name another one" in said.err
