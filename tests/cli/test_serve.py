"""serve as a process: page, metrics and JSON of a real look, login, TLS, where it listens, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from httpx import Client, Response

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import FakeConnect

from .command import DEADLINE_SECONDS, Command, allowed_seconds, environment, finish, impatient_mm2mgr, until
from .load import ORDERS as FLOW
from .load import ORDERS_SOURCE, one_flow

MM2MGR = (sys.executable, "-m", "mm2mgr")


@pytest.fixture
def connect(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[FakeConnect]:
    """One applied flow that has copied two of three records."""
    with one_flow(mm2mgr, mock_cluster, produced=3, mirrored=2) as fake:
        yield fake


@contextmanager
def server(
    mm2mgr: Command, *options: str | Path, more: Mapping[str, str] | None = None, program: Sequence[str] = MM2MGR
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `serve` on a free port and yield it with its URL; it is ended on the way out."""
    line = [*program, "serve", "--listen", "127.0.0.1:0", "--every", "1", *map(str, options)]
    pipe = subprocess.PIPE
    env = environment(mm2mgr.folder.parent, more)
    running = subprocess.Popen(line, cwd=mm2mgr.folder, env=env, stdout=pipe, stderr=pipe, text=True)
    try:
        assert running.stderr
        said = running.stderr.readline()
        found = re.match(r"serving (https?://127\.0\.0\.1:\d+); Ctrl-C ends it\n", said)
        assert found, said + (running.stderr.read() if running.poll() is not None else "")
        yield running, found[1]
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        finish(running)


def get(url: str, verify: ssl.SSLContext | bool = False, **more: Any) -> Response:
    """Ask once; without `verify` no certificates are loaded, which would take more CPU time than all the rest."""
    with Client(verify=verify, trust_env=False) as client:
        return client.get(url, **more)


def is_well(url: str) -> bool:
    return get(f"{url}/healthz").status_code == 200


def test_a_real_look_is_on_the_page_in_metrics_and_in_json(mm2mgr: Command, connect: FakeConnect) -> None:
    written = connect.writes
    with server(mm2mgr, "--every", "1000", program=impatient_mm2mgr(2)) as (_, url):
        until(lambda: is_well(url), "a look has ended")
        page = get(url).text
        assert 'href="/flow?id=orders%3Aa-%3Eb"' in page
        assert "1 record" in get(f"{url}/flows").text
        metrics = get(f"{url}/metrics")
        assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert re.search(
            r'^mm2mgr_flow_lag_records\{flow="orders:a->b",owner="[^"]+"\} 1\.0$', metrics.text, re.MULTILINE
        )
        found = get(f"{url}/api/status").json()
        assert found["lag"][FLOW]["lag_records"] == {"value": 1, "at_least": False}
        flow = get(f"{url}/api/flow", params={"id": FLOW}).json()
        assert {row["partition"] for row in flow["partitions"]} == {0, 1, 2, 3}
        until(lambda: get(f"{url}/api/plan").status_code == 200, "the slow part is made")
        plan = get(f"{url}/api/plan").json()
        assert plan["counts"]["no-op"] == 3
        asked = len(connect.requests)
        for path in ("", "/flows", "/plan", "/metrics"):
            get(f"{url}{path}")
        assert len(connect.requests) == asked, "no answer asks a cluster"
        assert connect.writes == written, "and nothing is written"


def test_workers_that_go_down_are_said_and_what_was_known_stays(mm2mgr: Command, connect: FakeConnect) -> None:
    with server(mm2mgr, program=impatient_mm2mgr(2)) as (_, url):
        until(lambda: is_well(url), "a look has ended")
        connect.answer_only("/connectors", 403)
        until(lambda: "Connect cluster w cannot be read" in get(url).text, "the page says so")
        assert "below is what was known" in get(f"{url}/flow", params={"id": FLOW}).text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_two_seconds_even_while_a_look_waits(
    mm2mgr: Command, connect: FakeConnect, number: signal.Signals
) -> None:
    connect.delay_next("GET", "/connectors", seconds=30)
    connect.requests.clear()
    with server(mm2mgr) as (running, _):
        until(lambda: any(r.path == "/connectors" for r in connect.requests), "it reads")
        began = time.monotonic()
        running.send_signal(number)
        assert running.wait(DEADLINE_SECONDS) == 0
        assert time.monotonic() - began < allowed_seconds()


def test_the_login_is_wanted_and_never_shown(mm2mgr: Command, connect: FakeConnect) -> None:
    secret = mm2mgr.folder / "password"
    secret.write_text("sehr-geheim-7\nmore\n")
    with server(mm2mgr, "--user", "ann", "--password-file", secret, more={"MM2MGR_SERVE_TOKEN": "tok-9-tok"}) as (
        running,
        url,
    ):
        assert get(url).status_code == 401
        assert get(url, auth=("ann", "sehr-geheim-7")).status_code == 200
        assert get(url, headers={"Authorization": "Bearer tok-9-tok"}).status_code == 200
        running.send_signal(signal.SIGINT)
        said = finish(running)
    assert "geheim" not in said.out + said.err
    assert "tok-9" not in said.out + said.err


def test_tls(mm2mgr: Command, connect: FakeConnect) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = mm2mgr.folder / "tls.crt", mm2mgr.folder / "tls.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with server(mm2mgr, "--tls-certificate", certificate, "--tls-key", key) as (_, url):
        assert url.startswith("https://")
        assert get(f"{url}/flows", verify=trusted).status_code == 200


def test_a_secret_that_no_browser_could_send_is_refused(
    mm2mgr: Command, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "MM2MGR_SERVE_PASSWORD", os.fsdecode(b"ge\xffheim"))
    said = mm2mgr("serve", code=1)
    assert "error: $MM2MGR_SERVE_PASSWORD is not UTF-8" in said.err
    assert "heim" not in said.err


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:8642", "example.org:80"])
def test_other_machines_are_not_let_in_without_a_login(mm2mgr: Command, connect: FakeConnect, address: str) -> None:
    said = mm2mgr("serve", "--listen", address, code=64)
    assert "name --password-file or --token-file, or write --no-auth" in said.err


@pytest.mark.parametrize("address", ["8642", "localhost", ":8642", "::1:8642", "127.0.0.1:99999", "127.0.0.1:²"])
def test_an_address_that_is_none_is_refused(mm2mgr: Command, address: str) -> None:
    assert "is not an address such as 127.0.0.1:8642" in mm2mgr("serve", "--listen", address, code=64).err


def test_files_that_cannot_be_used_are_named(mm2mgr: Command, connect: FakeConnect) -> None:
    bad = mm2mgr.folder / "bad"
    bad.write_text("\nnot here\n")
    assert f"{bad}: its first line is empty" in mm2mgr("serve", "--token-file", bad, code=1).err
    said = mm2mgr("serve", "--tls-certificate", bad, code=64)
    assert "a certificate and its key are needed" in said.err
    said = mm2mgr("serve", "--tls-certificate", bad, "--tls-key", bad, code=64)
    assert "cannot be used: not a certificate with its unencrypted key" in said.err


def test_a_port_that_is_taken_is_said(mm2mgr: Command, connect: FakeConnect) -> None:
    with server(mm2mgr) as (_, url):
        address = url.removeprefix("http://")
        assert (
            f"cannot listen on 127.0.0.1 port {address.split(':')[1]}"
            in mm2mgr("serve", "--listen", address, code=64).err
        )


def test_an_empty_secret_is_refused(mm2mgr: Command, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MM2MGR_SERVE_PASSWORD", "")
    assert "$MM2MGR_SERVE_PASSWORD is empty" in mm2mgr("serve", code=1).err


# --- the watchdog -----------------------------------------------------------------------------------------------------


def test_the_watchdog_says_what_it_sees_on_the_page_and_in_json_and_ends_in_time(
    mm2mgr: Command, connect: FakeConnect
) -> None:
    trace = "org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for a.orders-0"
    connect.connectors[ORDERS_SOURCE].failed_tasks = {0: trace}
    written = list(connect.writes)
    with server(mm2mgr, "--every", "1000", "--with", "watch", "--dry-run", "--first-wait", "0s") as (running, url):
        until(lambda: get(f"{url}/api/watchdog").status_code == 200, "the watchdog has looked")
        found = get(f"{url}/api/watchdog").json()
        assert (found["dry_run"], found["restarts"], found["error"]) == (True, 0, None)
        assert [(one["action"], one["problem"]["cause"]) for one in found["actions"]] == [("restart", "time-out")]
        assert "would be restarted (1)" in get(f"{url}/watchdog").text
        began = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_SECONDS) == 0
        assert time.monotonic() - began < allowed_seconds()
        assert running.stderr
        said = running.stderr.read()
        assert re.match(
            r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ watch: .*task 0 FAILED \(time-out\): would be restarted \(1\)", said
        )
    assert connect.writes == written


def test_without_parts_their_options_are_refused_and_nothing_of_them_runs(
    mm2mgr: Command, connect: FakeConnect
) -> None:
    assert (
        "--freeze-file needs --with watch or --with rebalance"
        in mm2mgr("serve", "--freeze-file", "frozen", code=64).err
    )
    with server(mm2mgr) as (_, url):
        for path, part in (("reconcile", "reconcile"), ("sample", "sample"), ("watchdog", "watch")):
            answer = get(f"{url}/api/{path}")
            assert answer.status_code == 404
            assert f"mm2mgr serve --with {part}" in answer.json()["error"]
        assert not re.search(r"^mm2mgr_(reconcile|watchdog|stored_samples)\w*\{", get(f"{url}/metrics").text, re.M)
        assert "No watchdog runs in this process" in get(f"{url}/watchdog").text
