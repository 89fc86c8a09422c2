"""The web application: who may ask, the headers of every answer, pages, JSON, metrics, and that foreign text stays text."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import replace
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr import timing
from mm2mgr.errors import Failure
from mm2mgr.evidence.flow_load import MeasuredLoad
from mm2mgr.observe.failover_rows import ReadinessState, RehearsalState
from mm2mgr.operations.automatic_rebalance import RebalancesView
from mm2mgr.operations.estate_view import PARTS, EstateView, PartState, RoundEnd, after_look
from mm2mgr.operations.failover_watch import FailoverRound, FailoverView, GroupLine, PairCheck
from mm2mgr.operations.plan import ReconcileView
from mm2mgr.operations.sample import SampleView
from mm2mgr.operations.watch import WatchdogView
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.changes import Plan
from mm2mgr.problems.health import TaskState
from mm2mgr.serve.app import Login, Site, application
from mm2mgr.serve.metrics import METRICS, exposition
from mm2mgr.serve.pages import flow_link
from mm2mgr.serve.pages.workers import worker_link
from mm2mgr.serve.server import is_loopback
from tests.clock import ShownClock
from tests.serve.estate import (
    NOW,
    SURVEY,
    ask_application,
    flow_status,
    look_of,
    loss,
    problem,
    rebalances_view,
    view_of,
    watchdog_view,
)  # fmt: skip

HOSTILE = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "\u202edesrever", "{{ 7 * 7 }}", "t" * 249]
PAGES = (
    *("/", "/?view=matrix", "/flows", "/flows?group=pair&sort=-lag", "/workers", "/traffic", "/losses", "/findings"),
    *("/changes", "/plan", "/watchdog", "/rebalance", "/failover", "/parts"),
)
FLOW = "orders:a->b"


def ask(
    view: EstateView,
    path: str,
    *,
    login: Login | None = None,
    now: float = NOW + 5,
    method: str = "GET",
    **more: object,
) -> httpx.Response:
    """Ask a server that has this view at this time."""
    hosts = more.pop("hosts", None)
    with timing.use(ShownClock(lambda: now)):
        app = application(lambda: view, login, site=Site(hosts), clock=lambda: now)  # type: ignore[arg-type]
        return ask_application(app, path, method=method, **more)


def small(**more: object) -> EstateView:
    return view_of(look_of([flow_status(FLOW, "a->b")], {FLOW: {"orders": 40}}), survey=SURVEY, **more)


# --- who may ask ------------------------------------------------------------------------------------------------------


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize("path", [*PAGES, "/metrics", "/api/status", "/api/plan", "/nothing"])
def test_without_the_login_nothing_is_shown(path: str) -> None:
    login = Login("ann", "right", "tok")
    said = ask(small(), path, login=login)
    assert (said.status_code, said.text) == (401, "log in\n")
    assert said.headers["WWW-Authenticate"] == 'Basic realm="mm2mgr", charset="UTF-8", Bearer realm="mm2mgr"'
    for headers in (basic("ann", "right"), {"Authorization": "Bearer tok"}):
        assert ask(small(), path, login=login, headers=headers).status_code in {200, 404}


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_other_words_are_the_login(user: str, password: str) -> None:
    login = Login("ann", "right", "tok")
    given_ = basic(user, password)["Authorization"]
    assert login.admits(given_) == ((user, password) == ("ann", "right"))
    assert login.admits(f"Bearer {password}") == (password.strip() == "tok")
    assert not login.admits(password)
    assert not Login("ann", "right").admits("Bearer "), "no token was set, so none is right"
    assert not Login(token="tok").admits(basic("", "")["Authorization"])


def test_the_login_prints_nothing_of_itself() -> None:
    assert repr(Login("ann", "right", "tok")) == "Login([hidden])"


def test_healthz_is_open_and_says_nothing_of_the_estate() -> None:
    said = ask(small(), "/healthz", login=Login("ann", "right"))
    assert said.status_code == 200
    assert FLOW not in said.text


def test_without_a_login_only_the_names_of_this_machine_are_answered() -> None:
    hosts = is_loopback
    assert ask(small(), "/", hosts=hosts).status_code == 200
    assert ask(small(), "/", hosts=hosts, headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(method: str) -> None:
    assert ask(small(), "/plan", method=method).status_code == 405


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, flow_link(FLOW), "/healthz", "/metrics", "/api/status", "/nothing"])
def test_every_answer_has_the_headers(path: str) -> None:
    said = ask(small(), path)
    assert said.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert said.headers["X-Content-Type-Options"] == "nosniff"
    assert said.headers["Cache-Control"] == "no-store"


def test_the_overview_shows_each_pair_with_word_sign_and_lag() -> None:
    said = ask(small(), "/?view=matrix").text
    assert '<a class="ok late" href="/flow?id=orders%3Aa-%3Eb"' in said
    assert re.search(r'<b><span aria-hidden="true">✓ </span>ok</b> <small>40 records</small>', said)
    assert "1 flow (1 ok); 1 task (1 RUNNING)." in said
    assert "Looked 5 s ago" in said


def test_a_flow_shows_tasks_lag_over_time_and_partitions() -> None:
    said = ask(small(), flow_link(FLOW)).text
    assert "worker:8083" in said
    assert '<svg class="chart"' in said
    assert '<td class="name">orders-0</td>' in said
    assert "mm2.a.b.source.orders: update; tasks.max: 1 → 2" in said, "the plan of its connectors"
    assert ask(small(), "/flow?id=other").status_code == 404
    assert ask(small(), "/api/flow?id=other").status_code == 404


def test_a_flow_and_its_lanes_name_each_other() -> None:
    lane = "orders.heavy:a->b"
    statuses = [flow_status(FLOW, "a->b"), flow_status(lane, "a->b", lane_of=FLOW)]
    view = view_of(look_of(statuses), survey=SURVEY)
    assert "Its lanes, each with topics of its own: orders.heavy:a-&gt;b." in ask(view, flow_link(FLOW)).text
    assert "It is a lane of orders:a-&gt;b." in ask(view, flow_link(lane)).text


def test_the_load_of_each_task_is_shown_and_what_is_unknown_says_why() -> None:
    load = MeasuredLoad(
        {"a": {TopicPartition("orders", 0): (2500.0, 20.0)}}, "2026-01-02T03 to 2026-01-02T03 (UTC, 1 h)"
    )
    view = small()
    assert view.survey
    known = replace(view, survey=replace(view.survey, load=load))
    said = ask(known, flow_link(FLOW)).text
    assert '<td class="n">2.5 kB/s</td>' in said
    assert "on average in 2026-01-02T03" in said
    (task,) = ask(known, "/api/flow", params={"id": FLOW}).json()["task_load"]
    assert task == {"task": 0, "bytes_per_second": 2500.0, "records_per_second": 20.0, "unmeasured_partitions": 0}
    unknown = replace(view, survey=replace(view.survey, load=MeasuredLoad(unknown="no roll-up")))
    said = ask(unknown, flow_link(FLOW)).text
    assert "The load is unknown: no roll-up." in said
    assert "0 B/s" not in said


def test_the_page_of_the_watchdog_says_whether_it_runs_and_what_it_did() -> None:
    def said(view: EstateView) -> tuple[int, str]:
        return ask(view, "/api/watchdog").status_code, ask(view, "/watchdog").text

    code, text = said(small())
    assert (code, "No watchdog runs in this process" in text) == (404, True)
    code, text = said(small(watchdog=WatchdogView()))
    assert (code, "The watchdog has not looked yet." in text) == (503, True)
    assert "mm2mgr_watchdog_restarts_total{" not in exposition(small(watchdog=WatchdogView()), NOW).decode()
    code, text = said(small(watchdog=watchdog_view(FLOW, "mm2", "no leader")))
    assert (code, "Since the start: 1 restart, and 1 restart that Connect did not carry out." in text) == (200, True)
    assert f"{FLOW}: task 0 FAILED (time-out): restarted (1): no leader" in html.unescape(text)
    assert "restart 2 was not carried out: no leader" in text


def test_the_page_of_failover_says_what_the_newest_checks_came_to() -> None:
    state = ReadinessState(
        *("a->b", NOW - 60, "NO-GO", "1 group (app): would skip records", 7, 1, 40, 3, 20, 5.0, NOW - 600, NOW - 60),
        not_ready_since=NOW - 960,
    )
    view = small()
    assert view.look is not None
    text = html.unescape(ask(view, "/failover").text)
    assert "No pair declares `failover`" in text
    assert "mm2mgr serve --with failover" in text
    status = replace(view.look.status, failover={"a->b": state, "b->c": None})
    view = replace(view, look=replace(view.look, status=status))
    text = html.unescape(ask(view, "/failover").text)
    assert all(words in text for words in ("NO-GO", "65 s ago", "10.1 min ago", "would skip records", "not checked"))
    answer = ask(view, "/api/failover").json()
    assert (answer["pairs"]["a->b"]["verdict"], answer["pairs"]["b->c"]) == ("NO-GO", None)
    assert answer["this_process"] is None
    metrics = exposition(view, NOW).decode().splitlines()
    of_pair = 'owner="ann",source="a",target="b"'
    for line in (
        f'mm2mgr_failover_verdict{{{of_pair},verdict="no-go"}} 1.0',
        f'mm2mgr_failover_verdict{{{of_pair},verdict="go"}} 0.0',
        f'mm2mgr_failover_records{{kind="lost",{of_pair}}} 20.0',
        f"mm2mgr_failover_records_at_risk{{{of_pair}}} 23.0",
        'mm2mgr_failover_groups{owner="ann",readiness="not-ready",source="a",target="b"} 1.0',
        f"mm2mgr_failover_oldest_checkpoint_timestamp_seconds{{{of_pair}}} {NOW - 600}",
        f"mm2mgr_failover_source_read_timestamp_seconds{{{of_pair}}} {NOW - 60}",
        f"mm2mgr_failover_checked_timestamp_seconds{{{of_pair}}} {NOW - 60}",
    ):
        name, value = line.rsplit(" ", 1)
        assert any(
            shown.startswith(f"{name} ") and float(shown.rsplit(" ", 1)[1]) == float(value) for shown in metrics
        ), line
    assert not any('target="c"' in shown for shown in metrics if shown.startswith("mm2mgr_failover")), (
        "no check, no row"
    )


def test_the_page_of_failover_says_when_pairs_were_rehearsed() -> None:
    view = small()
    assert view.look is not None
    rehearsal = RehearsalState("a->b", NOW - 60, "not good", "billing: not read", 7, NOW - 864_000, 42.0)
    rehearsals = {"a->b": rehearsal, "b->c": None}
    status = replace(view.look.status, failover=dict.fromkeys(rehearsals), rehearsals=rehearsals)
    view = replace(view, look=replace(view.look, status=status))
    text = html.unescape(ask(view, "/failover").text)
    assert all(words in text for words in ("not good", "65 s ago", "10 d ago", "42 s", "billing: not read", "never"))
    answer = ask(view, "/api/failover").json()["rehearsals"]
    assert (answer["a->b"]["verdict"], answer["b->c"]) == ("not good", None)
    shown = [line for line in exposition(view, NOW).decode().splitlines() if line.startswith("mm2mgr_failover")]
    values = {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in shown}
    assert values == {
        "mm2mgr_failover_last_good_rehearsal_timestamp_seconds": NOW - 864_000,
        "mm2mgr_failover_rehearsed_recovery_seconds": 42.0,
    }


def test_the_page_of_rebalances_says_what_was_done_and_what_holds_a_flow() -> None:
    def said(view: EstateView) -> tuple[int, str]:
        return ask(view, "/api/rebalance").status_code, html.unescape(ask(view, "/rebalance").text)

    code, text = said(small())
    assert (code, "Nothing is rebalanced by this process" in text) == (404, True)
    code, text = said(small(rebalances=RebalancesView()))
    assert (code, "No flow was judged yet." in text) == (503, True)
    view = small(rebalances=rebalances_view(FLOW, "rounds", "the limit is 1"))
    code, text = said(view)
    assert (code, "1.80 → 1.02 times the mean" in text, "the limit is 1" in text) == (200, True, True)
    answer = ask(view, "/api/rebalance").json()
    assert answer["flows"][0]["decision"]["hold"] == "rounds"
    assert [(one["flow"], one["outcome"]) for one in answer["done"]] == [(FLOW, "written")]
    series = exposition(view, NOW).decode()
    for line in (
        f'mm2mgr_rebalances_total{{flow="{FLOW}",owner="ann"}} 1.0',
        f'mm2mgr_flow_rebalance_held{{flow="{FLOW}",owner="ann",reason="rounds"}} 1.0',
        f'mm2mgr_flow_last_rebalance_balance_ratio{{flow="{FLOW}",owner="ann",when="before"}} 1.8',
        f'mm2mgr_flow_last_rebalance_balance_ratio{{flow="{FLOW}",owner="ann",when="after"}} 1.02',
    ):
        assert line in series, line
    assert "mm2mgr_rebalances_total{" not in exposition(small(rebalances=RebalancesView()), NOW).decode()


def test_the_slow_parts_are_shown_and_what_failed_of_them_says_so() -> None:
    assert "no client has &lt;b&gt;it&lt;/b&gt;" in ask(small(), "/findings").text
    assert "more &lt;i&gt;tasks&lt;/i&gt;" in ask(small(), "/changes").text
    written = ask(small(), "/plan").text
    assert "0 to create, 1 to update, 0 to delete, 2 unchanged, 0 blocked. To write it: mm2mgr plan" in written
    assert (written.count(">As of"), written.count("Plan as of")) == (1, 1), "the look and the plan are of two times"
    unchanged = replace(small(), survey=replace(SURVEY, plan=Plan("ann", ())))
    assert "To write it" not in ask(unchanged, "/plan").text, "there is nothing to write"
    broken = replace(small(), survey=replace(SURVEY, plan="no <answer>"))
    assert "It could not be made: no &lt;answer&gt;" in ask(broken, "/plan").text
    assert "Not made yet" in ask(replace(small(), survey=None), "/plan").text


def test_a_flow_whose_workers_are_down_keeps_what_was_known_with_its_age() -> None:
    down = flow_status(FLOW, "a->b", state="unknown", health="unknown", tasks=(), connector="")
    failure = {"connect main": Failure("main: connection refused", "start it")}
    view = after_look(small(), look_of([down], at=NOW + 120, failures=failure))
    overview = ask(view, "/?view=matrix", now=NOW + 125).text
    assert "Connect cluster main cannot be read: connection refused" in overview
    assert "known 2.08 min ago" in overview
    shown = ask(view, flow_link(FLOW), now=NOW + 125).text
    assert "below is what was known 2.08 min ago" in shown
    assert "worker:8083" in shown
    assert '<td class="n">40</td>' in shown
    found = ask(view, "/api/status", now=NOW + 125).json()
    assert found["last_known"][FLOW]["lag"]["lag_records"]["value"] == 40


def test_stale_and_failed_looks_are_said() -> None:
    view = replace(small(), error="no room <left>", failed_looks=1)
    said = ask(view, "/", now=NOW + 91).text
    assert "What is shown is stale" in said
    assert "The last look failed: no room &lt;left&gt;" in said
    assert "The last complete look was 91 s ago" in said
    health = ask(view, "/healthz", now=NOW + 91)
    assert (health.status_code, health.json()["state"], health.json()["stale_since"]) == (503, "stale", NOW + 90)


def test_before_the_first_look_there_is_a_page_and_no_health() -> None:
    view = EstateView(NOW, 30.0, began_at=NOW)
    assert all(ask(view, path).status_code == 200 for path in PAGES)
    assert (ask(view, "/healthz").status_code, ask(view, "/healthz").json()["state"]) == (503, "starting")
    assert 'mm2mgr_look_began_timestamp_seconds{owner=""} 1.7e+09' in ask(view, "/metrics").text


WAITS = ("connect main", "kafka hub")


@pytest.mark.parametrize(
    ("view", "now", "statement"),
    [
        (EstateView(NOW, 30.0), 5, "(5 s ago), looks every 30 s; none has begun."),
        (
            EstateView(NOW, 30.0, began_at=NOW, waits_for=WAITS),
            50,
            "(50 s ago), looks every 30 s; the first look still runs and waits for connect main, kafka hub.",
        ),
        (
            EstateView(NOW, 30.0, failed_looks=2, error="no room"),
            200,
            "(200 s ago), looks every 30 s; 2 looks failed, none has ended well.",
        ),
    ],
    ids=["started", "running", "failed"],
)
@pytest.mark.parametrize("path", [*PAGES, flow_link(FLOW), worker_link("main", "w:8083")])
def test_before_the_first_look_a_page_says_so_once_with_what_it_waits_for(
    view: EstateView, now: float, statement: str, path: str
) -> None:
    page = html.unescape(re.sub("<[^>]+>", " ", ask(view, path, now=NOW + now).text.partition("<body")[2]))
    text = " ".join(page.split())
    if now == 200:
        statement = statement.replace("200 s", "3.33 min")
    assert f"Started at 2023-11-14 22:13:20 UTC {statement} Why a cluster does not answer: mm2mgr check" in text
    assert len(re.findall("look(?:s|ed)? (?:every|has|have|ended)|[Nn]o look|stale", text)) == 1, text
    assert ("The last look failed: no room" in text) == bool(view.error)


def test_several_flows_of_a_pair_are_one_cell_with_the_worst_state() -> None:
    flows = [flow_status(FLOW, "a->b"), flow_status("x:a->b", "a->b", health="problem", problems=(problem("x:a->b"),))]
    said = ask(view_of(look_of(flows)), "/?view=matrix").text
    assert 'class="attention" href="/flows?source=a&amp;target=b"' in said, "it differs, and no record is in danger"
    assert "2 flows, level" in said
    listed = ask(view_of(look_of(flows)), "/flows?source=a&target=b").text
    assert listed.index("x:a-&gt;b") < listed.index(f">{FLOW.replace('>', '&gt;')}<"), "the worst first"


@pytest.mark.parametrize("refresh", ["30", "0", "99999999", "abc", "-1", "²"])
def test_a_page_loads_again_only_when_it_is_asked_to(refresh: str) -> None:
    found = re.findall(
        r'<meta http-equiv="refresh" content="(\d+); url=[^"]*">', ask(small(), f"/?refresh={refresh}").text
    )
    assert found == {"30": ["30"], "0": ["5"]}.get(refresh, [])


# --- foreign text -----------------------------------------------------------------------------------------------------


def hostile(name: str) -> EstateView:
    status = flow_status(
        f"{name}:a->b", f"{name}->b", state=name, notes=(name,), connector=name, connect=name, offsets_note=name,
        tasks=(TaskState(0, name, name, 1),), problems=(problem(name, name),), health="problem",
    )  # fmt: skip
    look = look_of(
        [status],
        {status.flow: {name: 5}},
        failures={f"kafka {name}": Failure(name, name)},
        losses=[loss(status.flow, name)],
    )
    dog = watchdog_view(status.flow, name, name)
    balance = rebalances_view(status.flow, None, name)
    ready = ReadinessState(f"{name}->b", NOW, "NO-GO", name, started_by=name)
    rehearsals = {ready.pair: RehearsalState(ready.pair, NOW, "not good", name)}
    look = replace(look, status=replace(look.status, failover={ready.pair: ready}, rehearsals=rehearsals))
    check = PairCheck(ready.pair, NOW, "NO-GO", (name,), (GroupLine(name, "NO-GO", "skips", 1, 1, NOW),), 1, (name,))
    failover = FailoverView().after_round(FailoverRound(1, NOW, (check,), warnings=(name,)))
    return view_of(
        look, survey=SURVEY, error=name, tree_error=name, watchdog=dog, rebalances=balance, failover=failover
    )


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("page", [*PAGES, "/flow", "/flow?id=", "/flows?q=", "/flows?source=", "/worker"])
def test_text_from_connect_kafka_and_addresses_stays_text(name: str, page: str) -> None:
    own = {"/flow": flow_link(f"{name}:a->b"), "/worker": worker_link(name, name)}
    said = ask(hostile(name), own.get(page, f"{page}{quote(name)}" if page.endswith("=") else page)).text
    said = re.sub(r'<script src="/static/\w+\.js\?[0-9a-f]{12}" defer></script>', "", said)
    assert not re.search(r"<(script|img)", said, re.IGNORECASE)
    assert "\u202e" not in said, "characters that reorder text are made visible"
    assert "49" not in re.sub(r"\d{3,}|:\d+|249|#[0-9a-f]+", "", said.partition("</style>")[2]) or "7 * 7" in said
    tags = re.findall(r"<[a-z][^>]*>", said.partition("</style>")[2])
    assert not [tag for tag in tags if re.search(r"\son\w+=", re.sub(r'"[^"]*"', '""', tag))]


# --- metrics ----------------------------------------------------------------------------------------------------------


def names_of(text: str) -> set[str]:
    return {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}


def test_every_metric_is_there_under_its_documented_name() -> None:
    text = exposition(small(), NOW).decode()
    assert names_of(text) == set(METRICS)
    for name, metric in METRICS.items():
        shown = f"{name}_total" if metric.kind == "counter" else name
        assert f"# HELP {shown} {metric.meaning}" in text
        for labels in re.findall(rf"^{shown}\{{(.*)\}} ", text, re.MULTILINE):
            assert set(re.findall(r'(\w+)="', labels)) == {"owner", *metric.labels}


@pytest.mark.parametrize("name", METRICS)
def test_names_end_in_their_base_unit(name: str) -> None:
    assert not re.search(r"(_ms|_minutes|_kb|_mb|_percent|_total)$", name)
    if "timestamp" in name or "age" in name or "duration" in name:
        assert name.endswith("_seconds")


def test_values_are_those_of_the_view() -> None:
    view = view_of(
        look_of([flow_status(FLOW, "a->b", problems=(problem(FLOW),), health="problem")], {FLOW: {"t": 40}}),
        survey=SURVEY,
    )
    lines = set(exposition(replace(view, failed_looks=2), NOW).decode().splitlines())
    assert {
        'mm2mgr_flow_lag_records{flow="orders:a->b",owner="ann"} 40.0',
        'mm2mgr_flow_health{flow="orders:a->b",health="problem",owner="ann"} 1.0',
        'mm2mgr_flow_health{flow="orders:a->b",health="ok",owner="ann"} 0.0',
        'mm2mgr_flow_tasks{flow="orders:a->b",owner="ann",state="RUNNING"} 1.0',
        'mm2mgr_problems{kind="not-applied",owner="ann"} 1.0',
        'mm2mgr_findings{owner="ann",severity="error"} 1.0',
        'mm2mgr_plan_changes{owner="ann"} 1.0',
        'mm2mgr_looks_total{owner="ann"} 1.0',
        'mm2mgr_failed_looks_total{owner="ann"} 2.0',
        'mm2mgr_look_duration_seconds{owner="ann"} 2.0',
        'mm2mgr_look_began_timestamp_seconds{owner="ann"} 0.0',
    } <= lines


def test_an_unknown_lag_is_no_zero() -> None:
    view = view_of(look_of([flow_status(FLOW, "a->b", state="unknown", health="unknown", tasks=())]))
    text = exposition(view, NOW).decode()
    assert "mm2mgr_flow_lag_records{" not in text
    assert 'mm2mgr_flow_lag_incomplete{flow="orders:a->b",owner="ann"} 1.0' in text


def series(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


@pytest.mark.parametrize("topics", [1, 300])
def test_series_are_bounded_by_flows_whatever_is_in_them(topics: int) -> None:
    def flow(number: int) -> str:
        return f"orders:a{number}->b"

    lags = {flow(number): {f"{HOSTILE[0]}{topic}": topic for topic in range(topics)} for number in range(30)}
    tasks = tuple(TaskState(number, f"STATE{number}") for number in range(50))
    flows = [flow_status(name, name.partition(":")[2], tasks=tasks, state=HOSTILE[0]) for name in lags]
    text = exposition(view_of(look_of(flows, lags), survey=SURVEY), NOW).decode()
    assert series(text) <= 28 * len(flows) + 50
    assert HOSTILE[0] not in text


def test_each_part_says_whether_it_runs_who_leads_when_it_is_due_and_what_failed_last() -> None:
    leaders = {"hub": "`reconcile` by ann, on 10.0.0.7"}
    led = RoundEnd("", ("main",), ("main",), True)
    parts = {
        "watch": PartState(10.0, True)
        .after_round(RoundEnd("main: refused"), {}, NOW - 60)
        .after_round(RoundEnd(), {}, NOW),
        "reconcile": PartState(60.0, True).after_round(led, leaders, NOW - 20),
        "throughput": PartState(3600.0).after_round(RoundEnd(rest_seconds=1800.0), {}, NOW - 5),
        "sample": PartState(30.0).after_round(RoundEnd("no route to dc1"), {}, NOW - 60),
        "audit": PartState(3600.0, True),
    }
    view = replace(small(), parts=parts, watchdog=watchdog_view(FLOW, "mm2", "no leader"), reconciles=ReconcileView())
    rows = re.findall(r"<tr><td[^>]*>.*?</tr>", html.unescape(ask(view, "/parts").text))
    cells = {
        row[0]: row[1:]
        for row in ([re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?</td>", row)] for row in rows)
    }
    assert cells.keys() == set(PARTS)
    assert cells["watch"][:5] == ["leader", "5 s ago", "in 5 s", "done", "65 s ago: main: refused"]
    standby = "standby: another process does main (`reconcile` by ann, on 10.0.0.7 leads on hub)"
    assert cells["reconcile"][:5] == ["standby", "25 s ago", "in 35 s", standby, "-"]
    assert cells["throughput"][:3] == ["on", "10 s ago", "in 29.8 min"]
    assert cells["sample"][:5] == ["on", "65 s ago", "now", "failed", "65 s ago: no route to dc1"]
    assert cells["audit"][:2] == ["on", "none yet"]
    assert cells["rebalance"] == ["off", *"----", "mm2mgr serve --with rebalance"]
    told = ask(view, "/api/parts").json()["parts"]
    assert told["rebalance"] is told["failover"] is None
    assert (told["sample"]["failing"], told["sample"]["failure"]) == (True, "no route to dc1")
    assert (told["reconcile"]["standby"], told["reconcile"]["leaders"]) == (["main"], leaders)


@pytest.mark.parametrize("name", ["watchdog", "reconcile", "rebalance", "sample"])
def test_a_part_answers_from_its_first_round_on_also_where_another_process_leads(name: str) -> None:
    part = {"watchdog": "watch"}.get(name, name)
    known = {
        "watchdog": WatchdogView(),
        "reconciles": ReconcileView(),
        "rebalances": RebalancesView(),
        "samples": SampleView(),
    }
    view = replace(small(), **known, parts={part: PartState(60.0, True)})  # type: ignore[arg-type]
    assert ask(small(), f"/api/{name}").status_code == 404
    assert ask(view, f"/api/{name}").status_code == 503
    led = view.parts[part].after_round(RoundEnd("", ("main",), ("main",), True), {"hub": "ann"}, NOW)
    answer = ask(replace(view, parts={part: led}), f"/api/{name}")
    assert answer.status_code == 200
    assert (answer.json()["part"]["outcome"], answer.json()["part"]["leaders"]) == ("standby", {"hub": "ann"})
