"""Answers are bounded in size, time and depth, whoever gives them; and the loopback is asked directly, whatever a proxy is."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr import bounded_http
from mm2mgr.bounded_http import Body, BodyRefused
from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError, OutcomeUnknown
from mm2mgr.connect.target import ConnectTarget
from mm2mgr.errors import Mm2mgrError
from mm2mgr.kafka.client import TopicInfo
from mm2mgr.samples.batch import Inventory
from mm2mgr.samples.cruise_control import CruiseControlSource
from mm2mgr.samples.http import Endpoint, Http
from mm2mgr.samples.prometheus import PrometheusReading, PrometheusSource
from mm2mgr.sandbox.kafka_servers import DIRECT, Worker
from tests.cli.command import Command
from tests.cli.conftest import mm2mgr, site
from tests.fake_connect import FakeConnect, serving
from tests.plan.site import Site

from .answers import LATE, NO_HTTP, NONSENSE, REFUSED, TOO_LARGE, Pieces, body, bomb, once, speaking

__all__ = ["mm2mgr", "site"]

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1 << 20
KNOWN = Inventory("dc1", {"logs": TopicInfo(3, "id", False)}, lambda topic: True)


def ask_connect(url: str, seconds: float) -> object:
    async def ask() -> object:
        async with ConnectClient(ConnectTarget("east", (url,)), deadline_seconds=seconds) as connect:
            return await connect.infos()

    return asyncio.run(ask())


def ask_prometheus(url: str, seconds: float) -> object:
    with Http(Endpoint("Prometheus of 'dc1'", url, timeout_seconds=seconds)) as http:
        return list(PrometheusSource(http, PrometheusReading()).gather(KNOWN, None, 1_795_255_200_000))


def ask_cruise_control(url: str, seconds: float) -> object:
    with Http(Endpoint("Cruise Control of 'dc1'", url, timeout_seconds=seconds)) as http:
        return list(CruiseControlSource(http, seconds).gather(KNOWN, None, 1_795_255_200_000))


Ask = Callable[[str, float], object]
CLIENTS: dict[str, Ask] = {
    "Connect cluster 'east'": ask_connect,
    "Prometheus of 'dc1'": ask_prometheus,
    "Cruise Control of 'dc1'": ask_cruise_control,
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refusal(client: str, pieces: Pieces, seconds: float = 20.0) -> str:
    """Return what the client says of the answer; it must name itself and the URL."""
    with speaking(pieces) as url, pytest.raises(Mm2mgrError) as caught:
        CLIENTS[client](url, seconds)
    assert client in caught.value.message
    assert url in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_an_answer_without_end_is_cut_off_at_the_limit(client: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "LIMIT_BYTES", 2 * MIB)
    begun = time.monotonic()
    assert "the answer is larger than 2 MiB" in refusal(client, TOO_LARGE[kind])
    assert time.monotonic() - begun < 15  # long before its time is up


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_packed_otherwise_or_holds_too_much_is_refused(
    client: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "LIMIT_VALUES", 1_000)
    pieces, sentence = REFUSED[kind]
    assert sentence in refusal(client, pieces)


@pytest.mark.parametrize("kind", LATE)
def test_an_answer_by_drips_ends_with_its_time(client: str, kind: str) -> None:
    begun = time.monotonic()
    said = refusal(client, LATE[kind], seconds=0.5)
    assert time.monotonic() - begun < 15  # else without end
    assert re.search(
        r"no answer in time \(0\.(5|4\d+) s\)|no (whole )?(final )?answer (to /state )?(within|in) 0\.(5|4\d+) s"
        r"|the answer did not come whole in 0\.(5|4\d+) s",
        said,
    )


@pytest.mark.parametrize("kind", NO_HTTP)
def test_what_is_no_http_is_an_error_in_words(client: str, kind: str) -> None:
    is_connect = client.startswith("Connect")  # it asks again until its time is up
    said = refusal(client, once(NO_HTTP[kind]), 0.5 if is_connect else 20.0)
    assert "bytearray" not in said
    assert "invalid literal" not in said
    if not is_connect:
        begun = "chunk" in kind
        words = (
            "the connection broke in the middle of an answer" if begun else "what answers there does not speak HTTP: "
        )
        assert words in said


@pytest.mark.parametrize("answer", [b"302 Found\r\nLocation: /login", b"304 Not Modified"])
def test_a_redirect_to_no_host_names_none(client: str, answer: bytes) -> None:
    with (
        speaking(once(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")) as url,
        pytest.raises(Mm2mgrError, match=f"HTTP {answer[:3].decode()}: ") as caught,
    ):
        CLIENTS[client](url, 20.0)
    assert "None" not in caught.value.message


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_an_error_and_no_traceback(client: str, kind: str) -> None:
    with speaking(body(NONSENSE[kind])) as url, pytest.raises(Mm2mgrError) as caught:
        CLIENTS[client](url, 5.0)
    assert client in caught.value.message
    assert len(caught.value.message) < 1_000


ODD: list[Any] = [
    None,
    True,
    -1,
    10**400,
    "x" * 100_000,
    "9" * 5_000,
    [],
    {},
    [[]],
    [[1]],
    [[1, 2, 3]],
    {"a": {}},
    [None],
]
PROMETHEUS = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}}
STATE = {"MonitorState": {"monitoredWindows": {"1795255000000": 1.0, "1795255100000": 1.0}}, "records": []}
RECORD = {"topic": "logs", "partition": 0, "networkInbound": 1.0, "msg_in": 1.0, "disk": 1.0}


def replaced(value: Any, odd: Any) -> Iterator[Any]:
    """Yield the value with each of its parts, and each name of a part, replaced by something odd."""
    yield odd
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: each} for each in replaced(part, odd))
            yield {**value, str(odd)[:5_000]: part}
    if isinstance(value, list):
        for place, part in enumerate(value):
            yield from ([*value[:place], each, *value[place + 1 :]] for each in replaced(part, odd))


class Canned(Http):
    """Gives each question the same answer, without a socket."""

    def __init__(self, answer: Any) -> None:
        super().__init__(Endpoint("source", "http://127.0.0.1:1"))
        self._answer = answer

    def get(self, path: str, *arguments: Any, **more: Any) -> Any:
        from mm2mgr.samples.http import HttpAnswer

        answer = self._answer(path) if callable(self._answer) else self._answer
        return HttpAnswer(200, {}, answer, json.dumps(answer, default=str)[:300])


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_no_odd_value_of_a_metric_source_is_a_traceback(odd: Any) -> None:
    exporter = {"metric": {"__name__": "kafka_topic_partition_current_offset"}, "value": [0, "1"]}
    series = {"metric": {"topic": "logs", "partition": "0"}, "values": [[1_795_255_200, "5"]]}
    vector = {"status": "success", "warnings": ["w"], "data": {"resultType": "vector", "result": [exporter]}}
    matrix = {"status": "success", "infos": ["i"], "data": {"resultType": "matrix", "result": [series]}}
    answers = [(each, matrix) for each in replaced(vector, odd)] + [(vector, each) for each in replaced(matrix, odd)]
    for instant, span in answers:
        http = Canned(lambda path, instant=instant, span=span: span if path.endswith("range") else instant)
        try:
            list(PrometheusSource(http, PrometheusReading()).gather(KNOWN, None, 1_795_255_200_000))
        except Mm2mgrError:
            continue
    for answer in replaced(STATE | {"records": [RECORD]}, odd):
        try:
            list(CruiseControlSource(Canned(answer), 1.0).gather(KNOWN, 0, 1_795_255_200_000))
        except Mm2mgrError:
            continue


def test_a_write_whose_answer_never_ends_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "LIMIT_BYTES", 2 * MIB)

    async def write(url: str) -> None:
        async with ConnectClient(ConnectTarget("east", (url,)), deadline_seconds=20) as connect:
            await connect.put_config("a", {"connector.class": "x"})

    with speaking(TOO_LARGE["endless"]) as url, pytest.raises(OutcomeUnknown) as caught:
        asyncio.run(write(url))
    assert f"the answer was lost: {url}: the answer is larger than 2 MiB" in caught.value.message


def test_a_page_of_megabytes_is_masked_and_cut_at_once() -> None:
    page = "<html>" + "password=hunter2 " * 1_000_000
    with speaking(body(page)) as url:
        begun = time.monotonic()
        with pytest.raises(ConnectError) as caught:
            ask_connect(url, 20.0)
    assert "hunter2" not in caught.value.message
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("kind", ["gzip bomb", "deep lists"])
def test_plan_says_which_url_and_goes_on(
    site: Site, mm2mgr: Command, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(bounded_http, "LIMIT_BYTES", 2 * MIB)
    pieces = TOO_LARGE.get(kind) or body(NONSENSE[kind])
    with speaking(pieces) as url:
        for file in mm2mgr.tree.glob("*.yaml"):
            file.write_text(re.sub(r"(east: \{url: )\S+,", rf"\1[{url}],", file.read_text()))
        said = mm2mgr("plan", code=1)
    sentence = {"gzip bomb": f"{url}: the answer is larger than 2 MiB, unpacked"}
    assert sentence.get(kind, "characters of something else, expected JSON") in " ".join((said.out + said.err).split())


# --- the sizes of real estates, and the memory of hostile ones ------------------------------------------------------------


def test_the_largest_real_answer_is_within_the_limits() -> None:
    """The status that the limits are derived from: 5 000 connectors of 500 tasks on workers with long host names."""
    worker = "connect-east-0.connect.mirror.svc.cluster.local:8083"
    task = json.dumps({"id": 499, "state": "RUNNING", "worker_id": worker, "version": None}, separators=(",", ":"))
    task = task.replace(',"version":null', "")
    name = "x" * 60
    head = f'"{name}":{{"status":{{"name":"{name}","connector":{{"state":"RUNNING","worker_id":"{worker}"}},"tasks":['
    connector = (head + ",".join([task] * 500) + '],"type":"source"}}').encode()
    found = Body()
    for number in range(5_000):
        found.add((b"," if number else b"{") + connector)
    found.add(b"}")
    assert found.received_bytes < bounded_http.LIMIT_BYTES
    assert len(found.text()) == found.received_bytes


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_connect_cluster_is_read(packed: bool) -> None:
    tasks = [{"id": number, "state": "RUNNING", "worker_id": "10.0.0.1:8083"} for number in range(200)]
    status = {"connector": {"state": "RUNNING", "worker_id": "10.0.0.1:8083"}, "tasks": tasks, "type": "source"}
    answer = json.dumps({f"c{n}": {"status": {"name": f"c{n}", **status}} for n in range(300)}).encode()

    async def ask(url: str) -> int:
        async with ConnectClient(ConnectTarget("east", (url,))) as connect:
            return sum(len(each.tasks) for each in (await connect.statuses()).values())

    with speaking(body(gzip.compress(answer, 1) if packed else answer, "gzip" if packed else "")) as url:
        assert asyncio.run(ask(url)) == 60_000


def test_gzip_files_that_follow_one_another_are_one_body() -> None:
    whole = gzip.compress(b"[1,") + gzip.compress(b"") + gzip.compress(b"2]")
    for size in (1, 7, len(whole)):
        found = Body("GZIP")
        for start in range(0, len(whole), size):
            found.add(whole[start : start + size])
        assert found.text() == "[1,2]"


def test_values_are_counted_before_they_are_made() -> None:
    found = Body()
    found.add(b"[" + b"{}," * (bounded_http.LIMIT_VALUES // 2) + b"1]")
    with pytest.raises(BodyRefused, match="more than 12 million values"):
        found.text()


PEAK = """
import resource, sys
from tests.hostile.test_servers import CLIENTS
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    CLIENTS[sys.argv[1]](sys.argv[2], 60.0)
except Exception as error:
    print(type(error).__mro__[-4].__name__, getattr(error, "message", error))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("client", ["Connect cluster 'east'", "Prometheus of 'dc1'"])
def test_a_bomb_takes_no_more_memory_than_the_limit(client: str) -> None:
    """At the real limit, in a process of its own: the body once, and one unpacked piece of it."""
    with speaking(bomb) as url:
        command = [sys.executable, "-c", PEAK, client, url]
        ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=100)
    said, peak_mib = ran.stdout.splitlines()
    assert "the answer is larger than 256 MiB, unpacked" in said
    assert int(peak_mib) < 512


# --- proxies ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A proxy that the environment asks everybody to use, and that answers everything with a page of its own."""
    with speaking(body("<html>proxy</html>")) as url:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, url)
            monkeypatch.setenv(name.upper(), url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield url


def test_no_proxy_of_the_environment_is_asked(proxy: str, tmp_path: Path) -> None:
    with serving(FakeConnect()) as url:
        assert ask_connect(url, 5.0) == {}
        worker = Worker("mover", tmp_path, "127.0.0.1:1")
        worker.ports = {"REST": int(url.rpartition(":")[2])}
        worker.log_file.write_text("Finished starting connectors and tasks")
        assert worker.ready()
        with DIRECT.open(f"{url}/connectors", timeout=5) as answer:
            assert json.load(answer) == []
    with speaking(body(json.dumps(PROMETHEUS))) as url, Http(Endpoint("Prometheus of 'dc1'", url)) as http:
        assert http.get("/api/v1/query", {}).json == PROMETHEUS


def test_nobody_asks_in_a_way_that_a_proxy_of_the_environment_would_see() -> None:
    """Of the clients that obey `http_proxy` unasked, none is in the package, the tests or the benchmarks."""
    asks = re.compile(
        r"\burlopen\(|\brequests\.(get|post|put|delete|request)\(|\bhttpx\.(get|post|put|delete|request|stream|Client)\("
    )
    sessions = re.compile(r"AsyncClient\(|\bSession\(\)")
    files = [file for part in ("mm2mgr", "tests", "benchmarks") for file in (REPOSITORY / part).rglob("*.py")]
    texts = {file: file.read_text() for file in files if file != Path(__file__)}
    assert [str(file) for file, text in texts.items() if asks.search(text)] == []
    assert [str(f) for f, text in texts.items() if sessions.search(text) and "trust_env" not in text] == []
