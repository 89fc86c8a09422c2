"""Ways to a Connect cluster as companies have them: proxies, headers of gateways, paths, tokens and certificates that rotate."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from mm2mgr.connect import wire
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectAuthError, ConnectError, ConnectUnreachable
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, ProxyServer, TlsFiles
from mm2mgr.expand import expand
from mm2mgr.live.endpoints import connect_target
from mm2mgr.spec.files import load
from tests.connect.dead_ends import dead_url
from tests.connect.forward_proxy import proxying
from tests.connect.test_sockets import server_side
from tests.fake_connect import FakeConnect, serving

Ask = Callable[..., Any]
FLOW = {"connector.class": "MirrorSourceConnector", "topics": "orders"}
LOGIN = BasicAuth("ops", "pr0xy-pa55")


class Gateway(FakeConnect):
    """A Connect cluster behind a path, for which every request needs a header; otherwise it has a page."""

    path, token = "", ""

    def handle(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> Any:
        sent = {key.lower(): value for key, value in headers.items()}
        if self.token and sent.get("x-token") != self.token:
            return (401, {"Content-Type": "text/html"}, f"<html>not you: {headers}</html>".encode()), 0.0
        if not path.startswith(self.path):
            return (404, {"Content-Type": "text/html"}, b"<html>no such page</html>"), 0.0
        return super().handle(method, path.removeprefix(self.path), query, body, headers)


def target_of(folder: Path, **connect: Any) -> ConnectTarget:
    """Return what a tree with these settings of a Connect cluster means on this machine."""
    kafka = {"a": {"bootstrap_servers": ["a:1"]}, "b": {"bootstrap_servers": ["b:1"]}}
    tree = {"owner": "team", "clusters": kafka, "connect": {"east": {"kafka": "b", **connect}}}
    (folder / "tree.yaml").write_text(json.dumps(tree))
    return connect_target(expand(load([folder / "tree.yaml"])).connects["east"])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


# --- proxies ----------------------------------------------------------------------------------------------------------


def test_a_plain_url_is_asked_through_the_proxy(fake: FakeConnect, ask: Ask) -> None:
    with serving(fake) as url, proxying(("ops", "pr0xy-pa55")) as proxy:
        target = ConnectTarget("east", (url,), proxy=ProxyServer(proxy.url, LOGIN))
        ask(lambda c: c.put_config("a", FLOW), target=target)
    assert fake.connectors["a"].config["topics"] == "orders"
    assert proxy.heads[0].startswith(f"PUT {url}/connectors/a/config ")


def test_tls_goes_through_a_tunnel_that_sees_no_credentials(
    fake: FakeConnect, ask: Ask, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving(fake, server_side(authority)) as url, proxying(("ops", "pr0xy-pa55")) as proxy:
        way = ProxyServer(proxy.url, LOGIN)
        target = ConnectTarget(
            "east", (url,), BearerAuth("t0ken-t0ken"), TlsFiles(tmp_path / "ca.pem"), {"X-Api-Key": "k3y-k3y"}, way
        )
        ask(lambda c: c.put_config("a", FLOW), target=target)
    assert fake.requests[0].headers["x-api-key"] == "k3y-k3y"
    assert {head.split(" ")[0] for head in proxy.heads} == {"CONNECT"}
    assert "t0ken" not in "".join(proxy.heads)
    assert "k3y" not in "".join(proxy.heads)


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_proxy_that_refuses_is_named_with_its_key_and_nothing_is_in_doubt(
    fake: FakeConnect, ask: Ask, authority: trustme.CA, tmp_path: Path, over_tls: bool
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = TlsFiles(tmp_path / "ca.pem")
    with serving(fake, server_side(authority) if over_tls else None) as url, proxying(("ops", "right")) as proxy:
        target = ConnectTarget("east", (url,), tls=tls, proxy=ProxyServer(proxy.url, LOGIN))
        with pytest.raises(ConnectError, match="407") as caught:
            ask(lambda c: c.put_config("a", FLOW), target=target)
    assert isinstance(caught.value, ConnectUnreachable if over_tls else ConnectAuthError)
    assert "`proxy: {basic: …}` of Connect cluster 'east'" in str(caught.value.hint)
    assert LOGIN.password not in f"{caught.value!r} {caught.value.hint}"
    assert fake.requests == []


def test_a_tunnel_that_is_not_made_lets_the_next_url_take_the_write(
    fake: FakeConnect, ask: Ask, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving(fake, server_side(authority)) as url, proxying() as proxy, dead_url() as dead:
        urls = dead.replace("http:", "https:"), url
        target = ConnectTarget("east", urls, tls=TlsFiles(tmp_path / "ca.pem"), proxy=ProxyServer(proxy.url))
        ask(lambda c: c.put_config("a", FLOW), target=target)
        assert [request.method for request in fake.requests] == ["PUT"]
        proxy.broken = True
        with pytest.raises(ConnectUnreachable, match="503") as caught:
            ask(lambda c: c.put_config("b", FLOW), target=target)
    assert f"{url} through the proxy {proxy.url}: " in caught.value.message
    assert "`url`, `proxy` and `tls`" in str(caught.value.hint)


def test_a_dead_proxy_is_told_at_once(ask: Ask) -> None:
    with dead_url() as dead, pytest.raises(ConnectUnreachable, match="through the proxy http://127"):
        ask(lambda c: c.root(), target=ConnectTarget("east", ("http://connect:8083",), proxy=ProxyServer(dead)))


def test_a_proxy_of_the_environment_counts_only_where_the_tree_names_it(
    fake: FakeConnect, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(fake) as url, proxying(("ops", "p:a@5")) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.replace("://", "://ops:p%3Aa%405@"))
        ask(lambda c: c.root(), target=target_of(tmp_path, url=url))
        assert proxy.heads == []
        named = target_of(tmp_path, url=url, proxy="${env:HTTP_PROXY}")
        ask(lambda c: c.root(), target=named)
    assert len(proxy.heads) == 1
    assert "a%405" not in repr(named)
    assert "p:a@5" not in repr(named)


@pytest.mark.parametrize("value", ["proxy:3128", "socks5://proxy:1080", "http://", "http://u:s3cr3t@proxy:99999"])
def test_a_bad_proxy_from_the_environment_is_refused_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("THE_PROXY", value)
    with pytest.raises(ConnectError, match=r"Connect cluster 'east': the URL of the proxy is not http") as caught:
        target_of(tmp_path, url="http://c:1", proxy="${env:THE_PROXY}")
    assert "`proxy`" in str(caught.value.hint)
    assert "s3cr3t" not in caught.value.message


def test_a_cluster_leaves_the_proxy_of_the_defaults(tmp_path: Path) -> None:
    defaults = 'defaults: {connect: {proxy: "http://proxy:3128", headers: {X-Team: a}, timeout: 2min}}\n'
    (tmp_path / "defaults.yaml").write_text(defaults)

    def found(**connect: Any) -> ConnectTarget:
        target_of(tmp_path, url="http://c:1", **connect)
        return connect_target(expand(load([tmp_path])).connects["east"])

    assert found().proxy == ProxyServer("http://proxy:3128")
    assert found().timeout_seconds == 120
    assert found(proxy=False).proxy is None
    assert found(headers={"X-Other": "b"}).headers == {"X-Other": "b"}


# --- headers, paths, times --------------------------------------------------------------------------------------------


def test_every_request_carries_the_headers_to_every_url(fake: FakeConnect, ask: Ask) -> None:
    with dead_url() as dead, serving(fake) as url:
        target = ConnectTarget("east", (dead, url), headers={"X-Tenant": "mirrors", "Authorization": "ApiKey k3y"})

        async def both(c: ConnectClient) -> None:
            await c.put_config("a", FLOW)
            await c.infos()

        ask(both, target=target)
    sent = {(each.headers["x-tenant"], each.headers["authorization"]) for each in fake.requests}
    assert sent == {("mirrors", "ApiKey k3y")}
    assert target.credentials == "the headers X-Tenant, Authorization"


def test_urls_with_a_path_lead_to_the_same_calls(ask: Ask) -> None:
    gateway = Gateway()
    gateway.path = "/connect/east"
    with dead_url() as dead, serving(gateway) as url:
        target = ConnectTarget("east", (f"{dead}/connect/east", f"{url}/connect/east/"))

        async def some(c: ConnectClient) -> None:
            await c.root()
            await c.put_config("a", FLOW)
            await c.statuses()
            await c.restart("a", include_tasks=True)

        ask(some, target=target)
        assert [(each.method, each.path) for each in gateway.requests] == [
            ("GET", "/"),
            ("PUT", "/connectors/a/config"),
            ("GET", "/connectors"),
            ("POST", "/connectors/a/restart"),
        ]


def test_a_login_page_says_what_is_missing(fake: FakeConnect, ask: Ask) -> None:
    fake.fail_next("GET", "/", 302, "<html>Sign in</html>", Location="https://login.example.org/oauth2?rd=x")
    with (
        serving(fake) as url,
        pytest.raises(ConnectError, match=r"redirected to https://login\.example\.org") as caught,
    ):
        ask(lambda c: c.root(), target=ConnectTarget("east", (url,)))
    assert "`auth` or `headers`" in str(caught.value.hint)


def test_the_declared_time_bounds_a_read_with_its_repeats() -> None:
    async def busy() -> float:
        fake = FakeConnect()
        fake.fail_next("GET", "/", 409, "stale", times=1000)
        target = ConnectTarget("east", ("http://connect:8083",), timeout_seconds=0.3)
        began = time.monotonic()
        async with ConnectClient(target, transport=fake.transport(), first_backoff_seconds=0.01) as client:
            with pytest.raises(ConnectError):
                await client.root()
        assert len(fake.requests) > 1
        return time.monotonic() - began

    assert asyncio.run(busy()) < 30  # 60 by default


@pytest.mark.parametrize("value", ["", "two\nlines", "é"])
def test_a_file_that_is_no_header_is_named_without_its_content(tmp_path: Path, value: str) -> None:
    (tmp_path / "token").write_text(f"s3cr3t{value}" if value else "\n")
    with pytest.raises(ConnectError, match=r"the header X-Token is empty or holds characters") as caught:
        target_of(tmp_path, url="http://c:1", headers={"X-Token": f"${{dir:{tmp_path}:token}}"})
    assert "s3cr3t" not in str(caught.value)


def test_a_missing_variable_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(
        ConnectError, match=r"'east', headers \(X-Token\): \$\{env:NO_SUCH\} has no value on this machine"
    ):
        target_of(tmp_path, url="http://c:1", headers={"X-Token": "${env:NO_SUCH}"})
    basic = {"username": "u", "password": "${env:NO_SUCH}"}
    with pytest.raises(ConnectError, match=r"'east', proxy\.basic\.password: \$\{env:NO_SUCH\} has no value"):
        target_of(tmp_path, url="http://c:1", proxy={"url": "http://proxy:3128", "basic": basic})


# --- what rotates -----------------------------------------------------------------------------------------------------


def rotating(folder: Path, name: str, text: str) -> None:
    """Put a file in place as Kubernetes and cert-manager do: whole, by a rename."""
    (folder / "new").write_text(text)
    os.replace(folder / "new", folder / name)


@pytest.mark.parametrize("way", ["headers", "bearer"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_a_token_that_rotates_is_read_again(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, asked_before: bool
) -> None:
    gateway = Gateway()
    rotating(tmp_path, "token", "first-t0ken\n")
    placeholder = f"${{dir:{tmp_path}:token}}"
    if asked_before:  # then no request is refused
        monkeypatch.setattr(wire, "RENEW_SECONDS", 0.0)

    def wants(token: str) -> None:
        if way == "headers":
            gateway.token = token
        else:
            gateway._authorization = f"Bearer {token}"

    async def long(c: ConnectClient) -> None:
        wants("first-t0ken")
        await c.put_config("a", FLOW)
        rotating(tmp_path, "token", "second-t0ken\n")
        wants("second-t0ken")
        await c.put_config("b", FLOW)
        (tmp_path / "token").unlink()  # what is being replaced stays as it was
        await c.root()
        wants("third-t0ken")
        with pytest.raises(ConnectAuthError) as caught:
            await c.root()
        assert "t0ken" not in str(caught.value)

    with serving(gateway) as url:
        settings = {"headers": {"X-Token": placeholder}} if way == "headers" else {"auth": {"bearer": placeholder}}
        ask(long, target=target_of(tmp_path, url=url, **settings))
    assert gateway.connectors.keys() == {"a", "b"}
    if way == "bearer":
        refused = [each for each in gateway.writes if each.headers["authorization"] == "Bearer first-t0ken"]
        assert len(refused) == (1 if asked_before else 2)


def test_calls_that_are_refused_together_all_go_on_with_the_new_token(ask: Ask, tmp_path: Path) -> None:
    gateway = Gateway()
    rotating(tmp_path, "token", "first-t0ken")
    with serving(gateway) as url:
        target = target_of(tmp_path, url=url, headers={"X-Token": f"${{dir:{tmp_path}:token}}"})
        rotating(tmp_path, "token", "second-t0ken")
        gateway.token = "second-t0ken"

        async def together(c: ConnectClient) -> None:
            await asyncio.gather(*(c.put_config(f"f{number}", FLOW) for number in range(20)))

        ask(together, target=target, deadline=20)
    assert len(gateway.connectors) == 20


def test_certificates_that_rotate_are_read_again(ask: Ask, authority: trustme.CA, tmp_path: Path) -> None:
    fake, other = FakeConnect(), trustme.CA()

    def issued_by(ca: trustme.CA) -> None:
        mine = ca.issue_cert("ops@example.org")
        rotating(tmp_path, "c.pem", mine.cert_chain_pems[0].bytes().decode())
        rotating(tmp_path, "k.pem", mine.private_key_pem.bytes().decode())

    rotating(tmp_path, "ca.pem", other.cert_pem.bytes().decode())
    issued_by(other)
    files = {"ca": str(tmp_path / "ca.pem"), "certificate": str(tmp_path / "c.pem"), "key": str(tmp_path / "k.pem")}

    async def long(c: ConnectClient) -> None:
        with pytest.raises(ConnectUnreachable, match=r"(?i)certificate.verify.failed"):
            await c.root()
        rotating(tmp_path, "ca.pem", authority.cert_pem.bytes().decode())
        with pytest.raises(ConnectUnreachable, match=r"(?i)unknown.ca"):
            await c.put_config("a", FLOW)
        issued_by(authority)
        await c.put_config("a", FLOW)

    context = server_side(authority, mutual=True)
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    with serving(fake, context) as url:
        ask(long, target=target_of(tmp_path, url=url, tls=files))
    assert len(fake.writes) == 1


def test_a_target_made_by_hand_is_never_read_again(fake: FakeConnect, ask: Ask) -> None:
    with serving(FakeConnect(bearer="right")) as url, pytest.raises(ConnectAuthError):
        ask(lambda c: c.root(), target=replace(ConnectTarget("east", (url,)), auth=BearerAuth("wrong")))
