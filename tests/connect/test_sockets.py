"""The same client over real sockets: dead workers, resets, credentials, TLS."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectAuthError, ConnectError, ConnectUnreachable
from mm2mgr.connect.target import BasicAuth, BearerAuth, ConnectTarget, TlsFiles
from tests.connect.dead_ends import dead_url, silent_url
from tests.fake_connect import FakeConnect, serving

Ask = Callable[..., Any]
FLOW = {"connector.class": "MirrorSourceConnector", "topics": "orders"}


def test_the_next_url_is_used_and_remembered(fake: FakeConnect, ask: Ask) -> None:
    with dead_url() as dead, serving(fake) as alive:

        async def twice(c: ConnectClient) -> None:
            await c.put_config("a", FLOW)
            await c.root()

        ask(twice, target=ConnectTarget("east", (dead, alive)))
    assert [request.method for request in fake.requests] == ["PUT", "GET"]


def test_a_worker_that_resets_is_left_for_the_next(fake: FakeConnect, ask: Ask) -> None:
    dying = FakeConnect()
    dying.drop_next("*", "/", times=100)
    with serving(dying) as first, serving(fake) as second:

        async def both(c: ConnectClient) -> None:
            await c.root()
            await c.put_config("a", FLOW)

        ask(both, target=ConnectTarget("east", (first, second)))
    assert len(dying.requests) == 1
    assert fake.connectors["a"].config["topics"] == "orders"


@pytest.mark.parametrize("apply", [True, False])
def test_a_write_cut_off_by_a_reset_is_read_back_elsewhere(ask: Ask, apply: bool) -> None:
    # Two workers of one Connect cluster share their state.
    one, two = FakeConnect(), FakeConnect()
    two.connectors = one.connectors
    one.drop_next("PUT", "/", apply=apply)
    with serving(one) as first, serving(two) as second:
        ask(lambda c: c.put_config("a", FLOW), target=ConnectTarget("east", (first, second)))
    assert len(one.writes) == 1
    assert len(two.writes) == (0 if apply else 1)
    assert one.connectors["a"].config["topics"] == "orders"


def test_if_all_urls_fail_each_is_listed_with_its_reason(ask: Ask) -> None:
    with dead_url() as dead, serving(FakeConnect()) as plain:
        wrong = plain.replace("http:", "https:")
        begun = time.monotonic()
        with pytest.raises(ConnectUnreachable) as caught:
            ask(lambda c: c.root(), target=ConnectTarget("east", (dead, wrong)), deadline=30)
    assert time.monotonic() - begun < 15  # a cluster that was never reached is not waited for
    assert f"{dead}: " in str(caught.value)
    assert f"{wrong}: " in str(caught.value)
    assert "'east'" in str(caught.value)


def test_a_worker_that_restarts_is_waited_for(fake: FakeConnect, ask: Ask) -> None:
    fake.drop_next("GET", "/", times=3)
    with serving(fake) as url:
        assert ask(lambda c: c.connectors(), target=ConnectTarget("east", (url,))) == ()
    assert len(fake.requests) == 4


def test_silence_is_bounded_by_the_deadline(ask: Ask) -> None:
    with (
        silent_url() as url,
        pytest.raises(ConnectUnreachable, match=r"accepted the connection, no answer in 0\.3 s") as caught,
    ):
        ask(lambda c: c.root(), target=ConnectTarget("east", (url,)), deadline=0.3)
    assert "is suspended, overloaded, or waits for its own Kafka cluster: check the brokers" in str(caught.value.hint)


@pytest.mark.parametrize("auth", [BasicAuth("ops", "hunter2"), BearerAuth("hunter2")])
def test_credentials_are_sent_and_never_shown(ask: Ask, auth: BasicAuth | BearerAuth) -> None:
    fake = FakeConnect(basic=("ops", "hunter2")) if isinstance(auth, BasicAuth) else FakeConnect(bearer="hunter2")
    with serving(fake) as url:
        assert ask(lambda c: c.connectors(), target=ConnectTarget("east", (url,), auth)) == ()
        for wrong, kind in (
            (None, "no credentials"),
            (BasicAuth("ops", "pa55"), "HTTP basic"),
            (BearerAuth("pa55"), "bearer"),
        ):
            with pytest.raises(ConnectAuthError) as caught:
                ask(lambda c: c.connectors(), target=ConnectTarget("east", (url,), wrong))
            assert kind in str(caught.value.hint)
            assert "pa55" not in f"{caught.value!r}{caught.value.hint}"


def test_a_redirect_carries_no_credentials_elsewhere(ask: Ask) -> None:
    fake, elsewhere = FakeConnect(), FakeConnect()
    with serving(elsewhere) as other, serving(fake) as url:
        fake.fail_next("GET", "/", 307, "moved", Location=f"{other}/connectors")
        with pytest.raises(ConnectError, match="redirected"):
            ask(lambda c: c.connectors(), target=ConnectTarget("east", (url,), BasicAuth("ops", "hunter2")))
    assert elsewhere.requests == []


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_files(authority: trustme.CA, tmp_path: Path) -> TlsFiles:
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key"))
    issued = authority.issue_cert("ops@example.org")
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return TlsFiles(ca, certificate, key)


def server_side(authority: trustme.CA, *, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def test_tls_with_a_client_certificate(fake: FakeConnect, ask: Ask, authority: trustme.CA, tls_files: TlsFiles) -> None:
    with serving(fake, server_side(authority, mutual=True)) as url:
        ask(lambda c: c.put_config("a", FLOW), target=ConnectTarget("east", (url,), tls=tls_files))
        assert "a" in fake.connectors
        with pytest.raises(ConnectUnreachable, match=r"(?i)certificate.required"):
            ask(
                lambda c: c.put_config("b", FLOW), target=ConnectTarget("east", (url,), tls=TlsFiles(tls_files.ca_file))
            )
    assert "b" not in fake.connectors


def test_an_unknown_authority_is_a_reason_to_go_on(
    fake: FakeConnect, ask: Ask, authority: trustme.CA, tls_files: TlsFiles
) -> None:
    with serving(FakeConnect(), server_side(trustme.CA())) as stranger, serving(fake, server_side(authority)) as known:
        assert ask(lambda c: c.connectors(), target=ConnectTarget("east", (stranger, known), tls=tls_files)) == ()
        with pytest.raises(ConnectUnreachable, match=r"(?i)certificate.verify.failed"):
            ask(lambda c: c.root(), target=ConnectTarget("east", (stranger,), tls=tls_files))
    assert fake.requests[0].path == "/connectors"


def test_tls_files_that_cannot_be_used_are_named(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("no PEM")
    for ca in ("missing.pem", "broken.pem"):
        with pytest.raises(ConnectError, match=ca):
            ask(lambda c: c.root(), target=ConnectTarget("east", ("https://127.0.0.1:1",), tls=TlsFiles(tmp_path / ca)))
