"""The first screen: what is wrong now, what changed since the last visit, what will hurt, and the head of each page."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from mm2mgr import timing
from mm2mgr.errors import Failure
from mm2mgr.evidence.flow_load import ConnectNeed, EstateNeeds, FlowNeed
from mm2mgr.evidence.traffic import TrafficHistory
from mm2mgr.observe.lag import LastStored
from mm2mgr.observe.lag_report import Amount
from mm2mgr.observe.trend import TimeForecast
from mm2mgr.operations.estate_view import EstateView, after_look
from mm2mgr.operations.serve import tree_name
from mm2mgr.plan.changes import Plan
from mm2mgr.problems.connectors import ConfigDiffers, TaskFailed, classify
from mm2mgr.problems.drift import join_causes
from mm2mgr.problems.failover import FailoverNotRehearsed
from mm2mgr.problems.flows import NoTask, OldTaskConfig, PausedByHand, RestingWhileLagGrows, WorkersSilent
from mm2mgr.problems.health import with_lag
from mm2mgr.problems.kind import LiveProblem, ProblemSubject
from mm2mgr.serve.app import application
from mm2mgr.serve.pages.base import LoadPace, problem_count, static_files
from mm2mgr.serve.pages.changed import recent_changes
from mm2mgr.serve.pages.wrong import ahead, wrong
from mm2mgr.serve.visits import FIRST_SECONDS, VISIT_SECONDS, Visit
from tests.clock import ShownClock
from tests.observe.examples import example_problem
from tests.serve.estate import NOW, SURVEY, ask_application, facts, flow_status, flow_traffic, look_of, problem, view_of
from tests.serve.shop import shop

FLOW = "orders:a->b"


def ask(view: EstateView, path: str = "/", *, now: float = NOW + 5, **more: object) -> httpx.Response:
    with timing.use(ShownClock(lambda: now)):
        app = application(lambda: view, clock=lambda: now)
        return ask_application(app, path, **more)


def shown_text(view: EstateView, path: str = "/", *, now: float = NOW + 5) -> str:
    """Return what a page says, without its markup."""
    text = ask(view, path, now=now).text
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text.partition("</head>")[2])))


def entries(view: EstateView) -> list[tuple[object, ...]]:
    found = wrong(view)
    rows = [*found["shown"], *found["folded"]]  # type: ignore[misc]
    return [(row.word, row.is_danger, row.count, row.command) for row in rows]


def test_the_worst_is_first_and_each_entry_has_its_command() -> None:
    assert entries(shop(NOW)) == [
        ("loss", True, "", "mm2mgr losses 'logs:eu->archive'"),
        ("FAILED", True, "", "mm2mgr restart --failed 'orders:us->hub'"),
        ("not read", True, "", "mm2mgr check"),
        ("no progress", False, "", "mm2mgr resume 'payments:us->hub'"),
        ("late", False, "", "mm2mgr lag 'logs:us->archive' --by task"),
        ("differs", False, "", "mm2mgr plan"),
    ]
    said = shown_text(shop(NOW))
    assert "6 problems, 3 with data in danger" in said
    assert said.index("What changed") > said.index("mm2mgr plan") > said.index("mm2mgr losses"), "problems come first"
    assert said.index("What changed") < said.index("What will hurt") < said.index("The estate")


def test_what_drift_can_cause_is_one_entry_with_the_apply_that_repairs_it() -> None:
    """The same trouble is not FAILED, `differs` and an older config; drift that causes nothing is still counted."""
    subject = ProblemSubject("main", "mm2.a.b.source.orders", FLOW)
    refused = "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed"
    found = [
        LiveProblem(TaskFailed(refused, classify(refused)), replace(subject, tasks=(0,))),
        LiveProblem(ConfigDiffers(("producer.override.sasl.jaas.config", "tasks.max"), adopted=False), subject),
        LiveProblem(OldTaskConfig(("producer.override.sasl.jaas.config",)), replace(subject, tasks=(0, 1))),
    ]
    view = view_of(look_of([flow_status(FLOW, "a->b", health="problem", problems=join_causes(found))]), survey=SURVEY)
    assert entries(view) == [
        ("FAILED", True, "", f"mm2mgr apply --flow '{FLOW}'"),
        ("differs", False, "", "mm2mgr plan"),
    ]
    said = shown_text(view)
    assert "2 problems, 1 with data in danger" in said
    assert "differs from the tree in key producer.override.sasl.jaas.config, which can be the cause" in said
    assert "its config differs from the tree in key tasks.max: run mm2mgr plan" in said
    assert "mm2mgr restart" not in said.partition("What changed")[0]


@pytest.mark.parametrize("kind", ["config-differs", "paused-by-hand", "task-failed"])
def test_a_flow_is_red_on_all_pages_or_amber_on_all(kind: str) -> None:
    found = example_problem(kind, ProblemSubject("main", "m", FLOW, (0,)))
    if kind == "paused-by-hand":
        found = replace(found, evidence=PausedByHand("PAUSED", 7, ""))
    view = view_of(look_of([flow_status(FLOW, "a->b", health="problem", problems=(found,))]))
    shown = "problem" if kind == "task-failed" else "attention"
    ((_, is_danger, _, command),) = entries(view)
    assert is_danger == (shown == "problem")
    sign = "✕" if is_danger else "!"
    mark = f'<span class="state {shown}"><span aria-hidden="true">{sign} </span>problem</span>'
    assert mark in ask(view, "/flows").text
    assert mark in ask(view, f"/flow?id={FLOW}").text, "with the same word, that of status"
    assert f'<code class="command">{html.escape(str(command), quote=False)}' in ask(
        view, f"/flow?id={FLOW}"
    ).text.replace("&#39;", "'")
    assert f'<a class="{shown}" href="/flow' in ask(view, "/?view=matrix").text
    assert f'<path class="{shown}"' in ask(view).text
    assert f'class="entry {"danger" if is_danger else "amber"}"' in ask(view).text


def test_a_paused_flow_over_its_max_lag_is_one_red_entry() -> None:
    found = LiveProblem(PausedByHand("PAUSED", 4200, ""), ProblemSubject("main", "m", FLOW), 60.0)
    status = flow_status(FLOW, "a->b", state="PAUSED", health="problem", problems=(found,))
    look = look_of([status], {FLOW: {"orders": 4200}})
    total = replace(look.totals[FLOW], seconds=Amount(1440.0))
    totals, limits = {FLOW: total}, {FLOW: 900.0}
    look = replace(look, status=with_lag(look.status, totals, limits), totals=totals, max_lag_seconds=limits)
    assert entries(view_of(look)) == [("no progress", True, "", f"mm2mgr resume '{FLOW}'")]
    said = shown_text(view_of(look))
    assert "1 problem, data in danger" in said
    assert "the oldest record that waits is 24 min old, more than its max_lag of 15 min" in said
    assert f"mm2mgr lag '{FLOW}' --by task" not in said
    soon = replace(total, seconds=Amount(None), overtaken=TimeForecast(7200.0, 3600.0, None))
    look = replace(look, status=with_lag(look_of([status]).status, {FLOW: soon}, {}), totals={FLOW: soon})
    assert "retention deletes records that wait in 2 h; run mm2mgr resume" in shown_text(view_of(look))
    assert entries(view_of(look))[0][1]


def test_flows_that_one_apply_repairs_are_one_entry() -> None:
    flows = []
    for number in range(2):
        subject = ProblemSubject("main", f"m{number}", f"f{number}:a->b")
        drift = ConfigDiffers(("source.cluster.bootstrap.servers",), adopted=False)
        found = join_causes([LiveProblem(NoTask("a", None, 1), subject), LiveProblem(drift, subject)])
        flows.append(flow_status(subject.flow, "a->b", health="problem", problems=found))
    command = "mm2mgr apply --flow 'f0:a->b' --flow 'f1:a->b'"
    assert entries(view_of(look_of(flows))) == [("no progress", True, "2 flows", command)]


def test_the_title_of_every_page_counts_what_is_wrong() -> None:
    for path in ("/", "/flows", "/losses", "/plan"):
        assert "<title>(6) mm2mgr: " in ask(shop(NOW), path).text
    assert "<title>mm2mgr: overview</title>" in ask(view_of(look_of([flow_status(FLOW, "a->b")]))).text


def test_clusters_that_cannot_be_read_and_a_tree_that_is_not_applied_are_wrong_too() -> None:
    down = flow_status(FLOW, "a->b", state="unknown", health="unknown", tasks=(), lag_records=None)
    view = view_of(look_of([down], failures={"connect main": Failure("no answer", "start it")}), survey=SURVEY)
    assert entries(view) == [("not read", True, "", "mm2mgr check"), ("differs", False, "", "mm2mgr plan")]
    said = shown_text(view)
    assert "Connect cluster main cannot be read: no answer; start it; 1 flow on it not known now" in said
    assert "what runs differs from the tree: 1 to update (main/mm2.a.b.source.orders)" in said
    counted = replace(down, lag_records=7)  # both Kafkas answer: how far it is behind is known
    failures = {"connect main": Failure("no answer", "start it")}
    assert entries(view_of(look_of([counted], failures=failures))) == [("not read", False, "", "mm2mgr check")]


def test_what_endangers_data_is_above_all_that_only_differs() -> None:
    """A cluster that cannot be read, whatever its word, before a flow that somebody paused."""
    down = flow_status("logs:c->b", "c->b", connect="edge", state="unknown", health="unknown", lag_records=None)
    rests = LiveProblem(RestingWhileLagGrows("PAUSED", 9, "", 9), ProblemSubject("main", "mm2", FLOW), 900.0)
    paused = flow_status(FLOW, "a->b", health="problem", problems=(rests,))
    failure = {"connect edge": Failure("Connect cluster 'edge': http://edge-1:8083: connection refused", "")}
    view = view_of(look_of([paused, down], failures=failure))
    assert [(word, danger) for word, danger, *_ in entries(view)] == [("not read", True), ("no progress", False)]
    said = shown_text(view)
    assert "Connect cluster edge cannot be read: http://edge-1:8083: connection refused; 1 flow" in said, "named once"


def test_workers_that_nobody_could_read_are_not_counted_as_at_work() -> None:
    """The slow part counted them before; the look since then could not read their Connect cluster."""
    view = shop(NOW)
    assert view.needs.connects["edge"].workers == 1
    assert [line["name"] for line in ahead(view)] == ["main"]
    assert "edge: 1 worker at work" not in shown_text(view)


def test_traffic_without_earlier_hours_has_no_columns_of_them() -> None:
    new = ask(shop(NOW)).text
    assert "what is usual is not known yet" in new
    assert re.findall(r"<th[^>]*>(?:last week|yesterday|verdict|last 24 h)</th>", new) == []
    past = {"orders:eu->hub": flow_traffic(NOW)}
    view = shop(NOW)
    assert view.survey
    known = ask(replace(view, survey=replace(view.survey, traffic=TrafficHistory(past)))).text
    assert len(re.findall(r"<th[^>]*>(?:last week|yesterday|verdict|last 24 h)</th>", known)) == 6


@pytest.mark.parametrize("own_kafka", ["", "b"])
def test_silent_workers_are_one_thing_that_is_wrong(own_kafka: str) -> None:
    flows = []
    for number in range(2):
        flow = f"f{number}:a->b"
        evidence = WorkersSilent(7, 7, True, own_kafka, workers_answer=bool(own_kafka))
        silent = LiveProblem(evidence, ProblemSubject("main", flow=flow), 60.0)
        flows.append(flow_status(flow, "a->b", state="unknown", health="problem", problems=(silent,), lag_records=7))
    failures = {"connect main": Failure("refused"), "kafka b": Failure("no broker answered", "Start it.")}
    view = view_of(look_of(flows, failures=failures))
    told, other = ("kafka b", "connect main") if own_kafka else ("connect main", "kafka b")
    assert [entry[0] for entry in entries(view)] == ["no progress", "not read"]
    assert problem_count(view) == 3
    silent_row, unread = wrong(view)["shown"]  # type: ignore[misc]
    assert f". {told}: {failures[told].message}" in silent_row.sentence
    assert unread.parts[0][0] == other.replace(" ", " cluster ").replace("connect", "Connect").replace("kafka", "Kafka")


def test_a_failure_of_several_lines_is_a_sentence_and_a_long_name_leaves_words_to_read() -> None:
    failure = Failure("no URL answered:\n  http://c:1: refused", "Check that it runs.")
    said = shown_text(view_of(look_of([flow_status(FLOW, "a->b")], failures={"connect main": failure})))
    assert (
        "cannot be read: no URL answered: http://c:1: refused; Check that it runs; 1 flow on it not known now" in said
    )
    long = look_of([flow_status(FLOW, "a->b")], failures={f"kafka {'k' * 249}": Failure("no answer", "")})
    (row,) = wrong(view_of(long))["shown"]  # type: ignore[misc]
    assert row.lead == f"Kafka cluster {'k' * 196} …"


def test_clusters_that_fail_alike_are_one_entry() -> None:
    failures = {
        f"kafka dc{number}": Failure(f"dc{number}: no broker answers in 5.{number} s", "") for number in range(5)
    }
    failures["kafka hub"] = Failure("hub: login refused", "")
    view = view_of(look_of([flow_status(FLOW, "a->b")], failures=failures))
    assert [(word, count) for word, _, count, _ in entries(view)] == [("not read", "5 clusters"), ("not read", "")]
    assert "(6) mm2mgr" in ask(view).text, "each of them counts"


def test_a_change_that_a_problem_names_already_is_no_second_entry() -> None:
    name = "mm2.a.b.source.orders"
    status = flow_status(FLOW, "a->b", health="problem", problems=(problem(FLOW, name),))
    assert entries(view_of(look_of([status]), survey=SURVEY)) == [("differs", False, "", "mm2mgr plan")]


def test_a_late_flow_is_a_danger_once_retention_overtakes_it() -> None:
    view = shop(NOW)
    assert view.look
    late = "logs:us->archive"
    total = replace(view.look.totals[late], overtaken=TimeForecast(7200.0, 3600.0, None))
    view = replace(view, look=replace(view.look, totals={**view.look.totals, late: total}))
    assert ("late", True, "", f"mm2mgr lag '{late}' --by task") in entries(view)
    assert "retention deletes records that wait in 2 h at present rates" in shown_text(view)


def test_many_problems_are_eight_entries_and_the_rest_is_folded() -> None:
    kinds = ("records-lost", "task-failed", "no-progress", "no-task", "config-differs", "orphan", "overlap",
             "not-audited", "often-interrupted", "slower-than-production", "state-differs")  # fmt: skip
    flows = [
        flow_status(
            f"f{number}:s{number}->t",
            f"s{number}->t",
            health="problem",
            problems=(
                example_problem(kinds[number % len(kinds)], ProblemSubject("east", "m", f"f{number}:s{number}->t")),
            ),
        )
        for number in range(240)
    ]
    found = wrong(view_of(look_of(flows)))
    assert (len(found["shown"]), len(found["folded"])) == (8, 3)  # type: ignore[arg-type]
    said = shown_text(view_of(look_of(flows)))
    assert "240 problems" in said
    assert "mm2mgr restart --failed --all" in said


def test_an_estate_without_a_problem_says_since_when_and_how_often_it_was_seen() -> None:
    well = flow_status(FLOW, "a->b")
    ill = replace(well, health="problem", problems=(problem(FLOW),))
    view = view_of(look_of([ill], at=NOW - 120))
    assert view.quiet_since is None
    for number in range(120):
        view = after_look(view, look_of([well], at=NOW + 30 * number))
    assert "No problem in 120 looks since 2023-11-14 22:13 UTC." in shown_text(view, now=NOW + 3600)
    assert after_look(view, look_of([ill])).quiet_looks == 0


def test_what_will_hurt_has_only_lines_that_are_there() -> None:
    well = view_of(look_of([flow_status(FLOW, "a->b")]))
    assert ahead(well) == []
    assert "What will hurt" not in shown_text(well)
    need = FlowNeed(3, 1e6, None, limits_in_seconds={"one task": 86_400.0, "in a year": 3e7})
    needs = EstateNeeds({FLOW: need}, {"main": ConnectNeed(3, 3), "roomy": ConnectNeed(2, 5), "few": ConnectNeed(4, 2)})
    rehearsed = FailoverNotRehearsed("a->b", 9e6, 2.6e6, "", "")
    late = LiveProblem(rehearsed, ProblemSubject("main", "mm2.checkpoint", FLOW))
    status = flow_status(FLOW, "a->b", health="problem", problems=(late,))
    view = view_of(look_of([status]), survey=replace(SURVEY, plan=Plan("ann", ()), needs=needs))
    assert view.look
    view = replace(
        view, look=replace(view.look, status=replace(view.look.status, failover={"a->b": None, "c->d": None}))
    )
    lines = [(line["name"], line["text"], line["command"]) for line in ahead(view)]
    assert lines == [
        ("few", "2 workers at work, 4 needed: too few", "mm2mgr fleet"),
        ("main", "3 workers at work, 3 needed: without a spare", "mm2mgr fleet"),
        (FLOW, "growth passes its one task in 24 h, as forecast", f"mm2mgr size '{FLOW}'"),
        (FLOW, late.sentence, "mm2mgr failover rehearse 'a->b'"),
        ("failover", "failover is declared and was not checked yet: c->d", "mm2mgr failover check 'c->d'"),
    ]
    assert entries(view) == [], "what hurts one day is not wrong now"
    assert "Nothing is wrong" in shown_text(view)


# --- what changed -----------------------------------------------------------------------------------------------------


def lines(view: EstateView, since: float) -> list[str]:
    shown = recent_changes(NOW, view, Visit(since, False))["lines"]
    return [str(line["text"]) for line in shown]  # type: ignore[attr-defined]


def test_an_apply_is_one_line_and_restarts_and_losses_have_their_own() -> None:
    restart = "watchdog: clicks:eu->hub: task 0 FAILED (unavailable): restarted (1): no leader"
    loss = "logs:eu->archive: 1 loss in topic logs"
    apply = "apply by ann at commit ab12cd34ef56: 3 × update — more partitions"
    assert lines(shop(NOW), NOW - 86_400) == [restart, loss, apply]
    assert lines(shop(NOW), NOW - 1400) == [restart]
    assert lines(shop(NOW), NOW - 60) == []
    (apply_line,) = recent_changes(NOW, shop(NOW), Visit(NOW - 86_400, True))["lines"][2:]  # type: ignore[index]
    assert [line.partition(":")[0] for line in apply_line["details"]] == [
        "run as deploy@ops-1",
        *(f"main/mm2.eu.hub.source.{name}" for name in ("orders", "payments", "clicks")),
    ]
    assert "No apply, restart, loss or new topic is known" in shown_text(view_of(look_of([flow_status(FLOW, "a->b")])))


def test_topics_that_a_flow_takes_since_are_a_line_and_one_that_could_not_be_read_for_a_while_is_none() -> None:
    flow = flow_status(FLOW, "a->b")
    view = view_of(look_of([flow], {FLOW: {"orders": 0}}))
    assert lines(view, NOW - 60) == []
    view = after_look(view, look_of([flow], {FLOW: {}}, at=NOW + 30))
    view = after_look(view, look_of([flow], {FLOW: {"orders": 0, "refunds": 0, "bills": 0}}, at=NOW + 60))
    assert lines(view, NOW - 60) == ["orders:a->b: 2 new topics"]
    assert [topic.topic for topic in view.new_topics] == ["bills", "refunds"]
    assert lines(view, NOW + 90) == []


def test_a_restart_that_the_history_has_is_one_line() -> None:
    view = shop(NOW)
    assert view.survey
    assert view.watchdog
    assert not isinstance(view.survey.history, str)
    at, action = view.watchdog.actions[0]
    first = view.survey.history.entries[0]
    when = "2023-11-14T21:53:25.000+00:00"
    keys = ({"key": "task 2", "before": "FAILED", "after": "restarted"},)
    name = action.problem.subject.connector
    entry = replace(first, id="9a-0", when=when, command="watch", connector=name, keys=keys, user="ops", host="ops-1")
    assert abs(entry.at_seconds - at) < 120
    history = replace(view.survey.history, entries=(entry,))
    view = replace(view, survey=replace(view.survey, history=history))
    assert lines(view, NOW - 1400) == [
        f"watch by ann at commit {first.commit}: restart of task 2 ({first.flows[0]}) — more partitions"
    ]
    said = shown_text(view)
    assert "run as ops@ops-1" in said
    assert f"main/{name}: restart of task 2, done" in said
    two = replace(history, entries=(entry, replace(entry, id="9a-1")))
    view = replace(view, survey=replace(view.survey, history=two))
    assert lines(view, NOW - 1400) == [f"watch by ann at commit {first.commit}: 2 × restart — more partitions"]


# --- visits -----------------------------------------------------------------------------------------------------------


def test_a_visit_ends_after_half_an_hour_and_the_next_one_knows_when() -> None:
    first = Visit.from_cookie("", NOW)
    assert (first.since, first.is_first) == (NOW - FIRST_SECONDS, True)
    same = Visit.from_cookie(first.cookie, NOW + VISIT_SECONDS)
    assert same.is_first
    later = Visit.from_cookie(same.cookie, NOW + VISIT_SECONDS + 10_000)
    assert (later.since, later.is_first) == (NOW + VISIT_SECONDS, False)
    assert Visit.from_cookie(later.cookie, NOW + VISIT_SECONDS + 10_060).since == NOW + VISIT_SECONDS


def test_what_loads_by_itself_is_no_visit() -> None:
    cookie = Visit.from_cookie("", NOW).cookie
    all_night = Visit.from_cookie(cookie, NOW + 40_000, is_live=True)
    assert all_night.cookie == ""
    assert Visit.from_cookie(cookie, NOW + 40_010).since == NOW, "the morning sees what the night did"


@pytest.mark.parametrize("cookie", ["x", "1.2.3", "9999999999.9999999999", "5.4", "-1.5", "١.٢", "1" * 40, "0.0"])
def test_a_cookie_that_is_none_is_a_first_visit(cookie: str) -> None:
    visit = Visit.from_cookie(cookie, NOW)
    assert (visit.since, visit.is_first, visit.cookie) == (NOW - FIRST_SECONDS, True, f"0.{NOW:.0f}")


def test_the_cookie_stays_here_and_live_loads_get_none() -> None:
    cookie = ask(shop(NOW)).headers["set-cookie"]
    assert cookie.startswith(f"mm2mgr_visit=0.{NOW + 5:.0f};")
    assert all(part in cookie for part in ("HttpOnly", "Path=/", "SameSite=strict"))
    assert "set-cookie" not in ask(shop(NOW), "/?again=1").headers
    assert "set-cookie" not in ask(shop(NOW), headers={"X-Mm2mgr-Live": "1"}).headers
    assert "set-cookie" not in ask(shop(NOW), "/api/status").headers
    past = {"Cookie": f"mm2mgr_visit={NOW - 9000:.0f}.{NOW - 8000:.0f}"}
    assert "since your last visit, 2.22 h ago" in ask(shop(NOW), headers=past).text


def test_another_port_of_a_machine_is_another_estate_with_visits_of_its_own() -> None:
    past = {"Host": "localhost:8643", "Cookie": f"mm2mgr_visit_8642={NOW - 9000:.0f}.{NOW - 8000:.0f}"}
    answer = ask(shop(NOW), headers=past)
    assert answer.headers["set-cookie"].startswith("mm2mgr_visit_8643=0.")
    assert "in the last 24 h" in answer.text


# --- head and pace ----------------------------------------------------------------------------------------------------


def test_the_head_says_whose_estate_it_is_and_how_old() -> None:
    assert "shop · clusters · commit ab12cd34ef56 · ops-1 Looked 5 s ago" in shown_text(shop(NOW))
    assert tree_name([Path("clusters")]) == "clusters"
    assert tree_name([Path("/srv/secret-project/clusters"), Path("a/b.yaml")]) == "clusters, a/b.yaml"


@pytest.mark.parametrize(
    ("query", "live", "carried"),
    [("", "30", ""), ("?live=off", "0", "live=off"), ("?refresh=60", "60", "refresh=60"), ("?live=on", "30", "")],
)
def test_links_carry_the_pace(query: str, live: str, carried: str) -> None:
    text = re.sub("<noscript>.*?</noscript>", "", ask(shop(NOW), f"/{query}").text)  # its links choose another pace
    assert f'data-live="{live}"' in text
    links = re.findall(r'href="(/[^"]*)"', text)
    pages = [link.partition("#")[0] for link in links if not link.startswith("/static/")]
    assert all(link.endswith(carried) for link in pages)
    assert f"/flow?id=orders%3Aus-%3Ehub{'&amp;' if carried else ''}{carried}" in links
    assert ('name="' + carried.partition("=")[0] in text) or not carried, "the search keeps it too"
    assert ask(shop(NOW), html.unescape(links[3])).status_code == 200


def test_a_pause_keeps_the_interval_for_when_it_ends() -> None:
    text = ask(shop(NOW), "/?live=off&refresh=60").text
    assert 'data-live="0" data-every="60"' in text
    assert "http-equiv" not in text, "without script neither"
    assert 'href="/flows?refresh=60&amp;live=off"' in text


def test_the_pace_of_links_is_written_once() -> None:
    assert LoadPace(60).carry('<a href="/flow?id=1#lag">') == '<a href="/flow?id=1&amp;refresh=60#lag">'
    assert LoadPace(60).carry('<a href="/?live=off">') == '<a href="/?live=off">'
    assert LoadPace(60).carry('<a href="https://example.org/">') == '<a href="https://example.org/">'


def test_a_stale_view_is_grey_and_says_so() -> None:
    text = ask(shop(NOW), now=NOW + 400).text
    assert '<main id="main" class="stale">' in text
    assert "What is shown is stale: the last complete look ended 6.67 min ago" in text
    assert 'class="stale"' not in ask(shop(NOW)).text.partition("</style>")[2]


def test_script_is_a_file_of_its_own_that_browsers_keep() -> None:
    (address,) = re.findall(r'<script src="([^"]+)" defer>', ask(shop(NOW)).text)
    got = ask(shop(NOW), address)
    assert (got.status_code, got.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "immutable" in got.headers["cache-control"]
    assert "script-src 'self'" in got.headers["content-security-policy"]
    assert ask(shop(NOW), "/static/nothing.js").status_code == 404
    (icon,) = re.findall(r'<link rel="icon" type="image/svg\+xml" href="([^"]+)">', ask(shop(NOW)).text)
    assert ask(shop(NOW), icon).headers["Content-Type"] == "image/svg+xml"
    assert "img-src 'self'" in ask(shop(NOW), icon).headers["Content-Security-Policy"]
    assert ask(shop(NOW), "/favicon.ico").status_code == 204
    assert ask(shop(NOW), "/static/..%2fapp.py").status_code == 404
    assert ask(shop(NOW)).headers["cache-control"] == "no-store"
    assert sum(map(len, static_files().values())) < 150_000


def test_dead_workers_leave_a_lag_that_is_at_least_so_much() -> None:
    well = flow_status(FLOW, "a->b")
    down = flow_status(FLOW, "a->b", state="unknown", health="unknown", tasks=(), connector="")
    view = view_of(look_of([well], {FLOW: {"orders": 7}}))
    look = look_of([down], at=NOW + 120, failures={"connect main": Failure("no answer", "")})
    counted = facts(replace(down, state="RUNNING"), {"orders": 900})
    lag = replace(counted.lag, last_stored=LastStored(NOW, False))
    counted = replace(counted, state="unknown", lag=lag, taken_at=NOW + 120)
    look = replace(look, lag=replace(look.lag, flows=(counted,)), totals={FLOW: counted.total})
    assert counted.total.records == Amount(900, True)
    view = after_look(view, look)
    assert "at least 900 records" in shown_text(view, "/?view=matrix", now=NOW + 125)
    said = shown_text(view, "/flow?id=orders:a->b", now=NOW + 125)
    assert "at least 900" in said
    assert "tasks are as they were known 2.08 min ago" in said
