"""The web application: routes, who may ask, and the headers of every answer. It renders the newest view and changes
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mm2mgr import timing
from mm2mgr.errors import InvalidArgument
from mm2mgr.evidence.traffic import RANGES, USUAL_RANGE
from mm2mgr.json_values import to_json
from mm2mgr.operations.estate_view import PARTS, EstateView
from mm2mgr.serve import pages
from mm2mgr.serve.metrics import exposition
from mm2mgr.serve.visits import Visit

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CACHED = "private, max-age=31536000, immutable"
_LIVE, _AGAIN = "x-mm2mgr-live", "again"  # of a request that a page makes by itself: by script, and without
_COOKIE, _COOKIE_SECONDS = "mm2mgr_visit", 400 * 86_400
_OPEN = "/healthz"
_PARTS = {
    "watchdog": ("watch", "no watchdog runs in this process"),
    "reconcile": ("reconcile", "this process reconciles nothing"),
    "rebalance": ("rebalance", "nothing is rebalanced by this process"),
    "sample": ("sample", "this process samples nothing"),
}
_BASE_PATH = re.compile(r"(/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*/?", re.ASCII)
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, repr=False)
class Login:
    """Who may ask: a user with a password, a bearer of the token, or both. Nothing of it is ever printed."""

    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Login([hidden])"

    def admits(self, authorization: str) -> bool:
        """Tell whether a header `Authorization` has the token or the password; takes equally long wherever they
        differ.
        """
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.token:
            return _is_same(credentials.strip(), self.token)
        if scheme.lower() == "basic" and self.password:
            try:
                user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
            except ValueError:  # no Base64, not even ASCII, or no UTF-8 in it
                return False
            return _is_same(user, self.user) & _is_same(password, self.password)
        return False


@dataclass(frozen=True)
class Site:
    """Where browsers find the pages. `hosts`: which names are answered (None: any); `base_path`: what stands before
    every path, such as `/mm2mgr` behind a proxy that has other sites too; empty for none."""

    hosts: Callable[[str], bool] | None = None
    base_path: str = ""

    def own_path(self, path: str) -> str:
        """Return the path of a request without the base path; a proxy may have taken it off."""
        base = self.base_path
        return path[len(base) :] or "/" if base and (path == base or path.startswith(f"{base}/")) else path


def parse_base_path(text: str) -> str:
    """Return a base path without a slash at its end; InvalidArgument for one that is no path, or that pages begin with:
    whether a proxy has taken it off could not be told then."""
    if not _BASE_PATH.fullmatch(text):
        raise InvalidArgument("base-path", f"'{text}' is not a path such as /mm2mgr (letters, digits and . _ ~ - only)")
    base = text.rstrip("/")
    own = [_OPEN, *(route.path for route in _routes(_Answers(lambda: EstateView(0.0, 1.0), time.time, {})))]
    if base and (taken := next((path for path in own if f"{path}/".startswith(f"{base}/")), "")):
        raise InvalidArgument("base-path", f"{base} is, or begins, the path of a page ({taken}): name another one")
    return base


def _is_same(first: str, other: str) -> bool:
    """Compare digests in constant time, so that not even the length shows."""
    digests = (hashlib.sha256(text.encode(errors="surrogateescape")).digest() for text in (first, other))
    return hmac.compare_digest(*digests)


@cache
def security_headers() -> Mapping[str, str]:
    """Return the headers that every answer has, those of errors too."""
    digest = base64.b64encode(hashlib.sha256(pages.style().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


class _Guard:
    """Refuses strangers, and adds the headers that every answer has.

    It judges the path and headers as they came, and no URL that a library puts together from them: a Host such as
    `x/healthz?` would change that. /healthz, which says nothing of the estate, is open to all, and an application of
    its own: nothing else is behind it.
    """

    def __init__(self, health: ASGIApp, pages: ASGIApp, login: Login | None, site: Site) -> None:
        self._health, self._pages, self._login, self._site = health, pages, login, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode(): value.encode() for name, value in security_headers().items()}
                headers = message.get("headers", ())
                if any(name.lower() == b"cache-control" for name, _ in headers):
                    own.pop(b"cache-control")  # what never changes under its address may be kept
                others = [(name, value) for name, value in headers if name.lower() not in own]
                message = {**message, "headers": [*others, *own.items()]}
            await send(message)

        scope = {**scope, "path": self._site.own_path(scope["path"])}
        answer = self._health if scope["path"] == _OPEN else self._refusal(scope["headers"]) or self._pages
        await answer(scope, receive, send_with_headers)

    def _refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
        hosts = [value for name, value in headers if name == b"host"]
        is_served = self._site.hosts
        if is_served is not None and not (len(hosts) == 1 and is_served(_host_name(hosts[0]))):
            # A page of another site may have its own name resolved to this machine, and read what the browser gets from
            # here.
            return PlainTextResponse(
                "this server answers to localhost only; name it so, or start it with a login\n", 421
            )
        logins = [value for name, value in headers if name == b"authorization"]
        if self._login and not (len(logins) == 1 and self._login.admits(logins[0].decode(errors="surrogateescape"))):
            schemes = ['Basic realm="mm2mgr", charset="UTF-8"'] if self._login.password else []
            schemes += ['Bearer realm="mm2mgr"'] if self._login.token else []
            return PlainTextResponse("log in\n", 401, {"WWW-Authenticate": ", ".join(schemes)})
        return None


def _host_name(host: bytes) -> str:
    parts = _HOST.fullmatch(host)
    return parts[1].decode().strip("[]").lower() if parts else ""


def _cookie_name(request: Request) -> str:
    """Return the name of a visit's cookie: browsers send cookies to all ports of a host, each another estate."""
    parts = _HOST.fullmatch(request.headers.get("host", "").encode(errors="replace"))
    return f"{_COOKIE}_{parts[2].decode()}" if parts and parts[2] else _COOKIE


def application(
    view: Callable[[], EstateView],
    login: Login | None = None,
    *,
    site: Site = Site(),
    clock: Callable[[], float] = time.time,
    closed: Mapping[str, int] | None = None,
) -> ASGIApp:
    """Return the application over a function that returns the newest view.

    `closed`: how many connections the server has ended, by reason.
    """
    answers = _Answers(view, clock, {} if closed is None else closed, site.base_path)
    return _Guard(_app_of_routes([Route(_OPEN, answers.healthz)]), _app_of_routes(_routes(answers)), login, site)


def _routes(answers: _Answers) -> list[Route]:
    return [
        Route("/metrics", answers.metrics),
        Route("/api/status", answers.api_status),
        Route("/api/flow", answers.api_flow),
        Route("/api/workers", answers.api_workers),
        *(Route(f"/api/{path}", answers.api_part) for path in _PARTS),
        Route("/api/parts", answers.api_parts),
        Route("/api/failover", answers.api_failover),
        *(Route(f"/api/{part}", answers.api_survey) for part in ("findings", "plan", "history")),
        Route("/static/{name}", answers.static),
        Route("/favicon.ico", answers.favicon),
        Route("/", answers.overview),
        Route("/flows", answers.flows),
        Route("/flow", answers.flow),
        Route("/traffic", answers.traffic),
        Route("/workers", answers.workers),
        Route("/worker", answers.worker),
        Route("/losses", answers.losses),
        Route("/watchdog", answers.watchdog),
        Route("/rebalance", answers.rebalance),
        Route("/failover", answers.failover),
        Route("/parts", answers.parts),
        *(Route(f"/{part}", answers.show_survey) for part in ("findings", "changes", "plan")),
    ]


def _app_of_routes(routes: Sequence[BaseRoute]) -> Starlette:
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False  # the address to go to would be made from the header Host
    return app


class _PathlessJson(JSONResponse):
    """JSON without paths of this machine."""

    def __init__(self, view: EstateView, content: object, status: int = 200) -> None:
        self._hide = view.local_paths.hide_in_json
        super().__init__(to_json(content), status)

    def render(self, content: object) -> bytes:
        return self._hide(super().render(content).decode()).encode()


class _Answers:
    """The answers. Each is made of one view, so that nothing in it contradicts itself."""

    def __init__(
        self, view: Callable[[], EstateView], clock: Callable[[], float], closed: Mapping[str, int], base_path: str = ""
    ) -> None:
        self._view, self._clock, self._closed, self._base_path = view, clock, closed, base_path

    def healthz(self, request: Request) -> Response:
        health = self._view().health_dict(timing.now())
        return JSONResponse(health, 200 if health["state"] == "ok" else 503)

    def metrics(self, request: Request) -> Response:
        return Response(exposition(self._view(), timing.now(), self._closed), headers={"Content-Type": _METRICS_TYPE})

    def api_status(self, request: Request) -> Response:
        view = self._view()
        return _PathlessJson(view, view.overview_dict(timing.now()))

    def api_flow(self, request: Request) -> Response:
        view, flow = self._view(), request.query_params.get("id", "")
        status = view.status(flow)
        if view.look is None:
            return JSONResponse({"error": "no look has ended yet"}, 503)
        if status is None:
            return JSONResponse({"error": "no flow has this id", "nearest": pages.nearest_flows(view, flow)}, 404)
        name = request.query_params.get("range", USUAL_RANGE)
        if name not in RANGES:
            return JSONResponse({"error": f"range is one of {', '.join(RANGES)}"}, 400)
        return _PathlessJson(view, view.flow_dict(status, self._clock(), name))

    def api_workers(self, request: Request) -> Response:
        view = self._view()
        return _PathlessJson(view, pages.workers_dict(view))

    def api_parts(self, request: Request) -> Response:
        view = self._view()
        return _PathlessJson(view, {"parts": {name: view.parts.get(name) for name in PARTS}})

    def api_part(self, request: Request) -> Response:
        """Answer what a part did; that of one that stands by says who leads, also before it did anything itself."""
        view, (name, absent) = self._view(), _PARTS[request.scope["path"].rpartition("/")[2]]
        done = {"watch": view.watchdog, "reconcile": view.reconciles, "rebalance": view.rebalances}.get(
            name, view.samples
        )
        part = view.parts.get(name)
        if done is None:
            return JSONResponse({"error": f"{absent}: mm2mgr serve --with {name}"}, 404)
        if done.last is None and not (part and part.ended_at):
            return JSONResponse({"error": "no round has ended yet"}, 503)
        standby = {"standby": part.standby if part else ()}
        return _PathlessJson(view, {**standby, **to_json(done), "part": part})

    def api_failover(self, request: Request) -> Response:
        view = self._view()
        if view.look is None:
            return JSONResponse({"error": "no look has ended yet"}, 503)
        status = view.look.status
        checked = {"pairs": status.failover, "rehearsals": status.rehearsals, "this_process": view.failover}
        return _PathlessJson(view, checked)

    def api_survey(self, request: Request) -> Response:
        view = self._view()
        if view.survey is None:
            return JSONResponse({"error": "not made yet"}, 503)
        part = getattr(view.survey, request.scope["path"].rpartition("/")[2])
        content = {"error": part} if isinstance(part, str) else to_json(part)
        return _PathlessJson(view, {"taken_at": view.survey.taken_at, **content})

    def overview(self, request: Request) -> Response:
        view = self._view()
        context = pages.overview(self._clock(), view, request.query_params, self._visit(request))
        return self._html(request, "overview", view, context)

    def flows(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "flows", view, pages.flow_list(view, request.query_params))

    def flow(self, request: Request) -> Response:
        view, flow = self._view(), request.query_params.get("id", "")
        status = view.status(flow)
        if status is None:
            return self._html(request, "nowhere", view, pages.unknown_flow(view, flow), 404)
        context = pages.flow(self._clock(), view, status, request.query_params.get("range", ""))
        return self._html(request, "flow", view, context)

    def workers(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "workers", view, pages.workers(view))

    def worker(self, request: Request) -> Response:
        view, query = self._view(), request.query_params
        connect, worker = query.get("connect", ""), query.get("id", "")
        if context := pages.worker(view, connect, worker):
            return self._html(request, "worker", view, context)
        return self._html(request, "nowhere", view, pages.unknown_worker(view, connect, worker), 404)

    def traffic(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "all_traffic", view, pages.traffic_page(view))

    def losses(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "table", view, pages.losses(view))

    def watchdog(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "table", view, pages.watchdog(view.watchdog))

    def rebalance(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "table", view, pages.rebalance(view))

    def failover(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "table", view, pages.failover(self._clock(), view))

    def parts(self, request: Request) -> Response:
        view = self._view()
        return self._html(request, "table", view, pages.parts(self._clock(), view))

    def show_survey(self, request: Request) -> Response:
        view = self._view()
        page = {"findings": pages.findings, "changes": pages.changes, "plan": pages.plan}
        context = page[request.scope["path"].removeprefix("/")](view.survey)
        return self._html(request, "table", view, context)

    def favicon(self, request: Request) -> Response:
        """Answer browsers that ask for it beside JSON, which names no icon, without an error in their console."""
        return Response(status_code=204, headers={"Cache-Control": _CACHED})

    def static(self, request: Request) -> Response:
        content = pages.static_files().get(request.path_params["name"])
        if content is None:
            return PlainTextResponse("there is no such file\n", 404)
        is_icon = request.path_params["name"].endswith(".svg")
        headers = {
            "Content-Type": "image/svg+xml" if is_icon else "text/javascript; charset=utf-8",
            "Cache-Control": _CACHED if request.url.query else "no-cache",
        }
        return Response(content, headers=headers)

    def _visit(self, request: Request) -> Visit:
        """Return the visit that a request belongs to. What loads again by itself is none."""
        is_live = _LIVE in request.headers or _AGAIN in request.query_params
        return Visit.from_cookie(request.cookies.get(_cookie_name(request), ""), self._clock(), is_live=is_live)

    def _html(
        self, request: Request, page: str, view: EstateView, context: pages.Context, status: int = 200
    ) -> Response:
        query = request.query_params
        pace = pages.LoadPace.parse(query.get("live", ""), query.get("refresh", ""))
        own = urlencode([item for item in query.multi_items() if item[0] not in {_AGAIN, *pages.CARRIED}])
        address = f"{request.scope['path']}?{f'{own}&' if own else ''}"
        text = pages.html(page, view, timing.now(), context, pace, address)
        response = HTMLResponse(pages.put_under(self._base_path, view.local_paths.hide_in_html(text)), status)
        if cookie := self._visit(request).cookie:
            is_secure = request.scope["scheme"] == "https"
            response.set_cookie(
                _cookie_name(request),
                cookie,
                _COOKIE_SECONDS,
                path=self._base_path or "/",
                secure=is_secure,
                httponly=True,
                samesite="strict",
            )
        return response
