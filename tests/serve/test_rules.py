"""`mm2mgr rules`: every alert fires for its fault and for nothing else, evaluated by Prometheus itself where the machine has it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx import Client

from mm2mgr.assignment import round_robin
from mm2mgr.errors import Failure, InvalidArgument
from mm2mgr.evidence.flow_load import ConnectNeed, EstateNeeds, FlowNeed, MeasuredLoad
from mm2mgr.observe.lag_report import Amount
from mm2mgr.observe.trend import FLOW as FLOW_POINTS
from mm2mgr.observe.trend import LagPoint, TimeForecast
from mm2mgr.operations import Workspace, rules
from mm2mgr.operations.estate_view import EstateView, PartState
from mm2mgr.operations.history import HistoryReport
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.history import HistoryEntry
from mm2mgr.problems import KINDS
from mm2mgr.problems.dashboard import APPLIED, PANELS, dashboard_of
from mm2mgr.problems.health import TaskState
from mm2mgr.problems.kind import ProblemSubject
from mm2mgr.problems.monitoring import RUNBOOKS, Alert, alert_name, alerts, with_owner
from mm2mgr.serve.metrics import METRICS, families
from mm2mgr.sizing.tasks import HotPartition
from tests.cli.command import until
from tests.observe.examples import example_problem
from tests.serve.estate import NOW, SURVEY, flow_status, look_of, rebalances_view, serving, view_of

FLOW, OTHER = "orders:a->b", "clicks:a->b"
TREE = """
owner: {owner}
clusters:
  a: {{bootstrap_servers: [a:9092]}}
  b: {{bootstrap_servers: [b:9092]}}
connect:
  main: {{url: "http://c:8083", kafka: b}}
flows:
  orders: {{sources: [a], targets: [b], topics: {{include: [orders]}}, {more}}}
"""
REPOSITORY = Path(__file__).resolve().parents[2]
APPLIED_ENTRY = HistoryEntry(
    "1", "2026-01-02T03:04:05.000+00:00", "ann", "", "apply", "ann", "main", "mm2.a.b.source.orders", outcome="done"
)
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine: apt-get install prometheus")


def workspace(
    folder: Path,
    owner: str = "ann",
    more: str = "max_lag: 5min, audit: 2%, balance: plugin, failover: {rehearse_every: 30d}",
) -> Workspace:
    file = folder / "tree.yaml"
    file.write_text(TREE.format(owner=owner, more=more))
    return Workspace((file,))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def every(tree: Workspace) -> dict[str, Alert]:
    return {one.name: one for one in alerts(tree.topology)}


# --- what they read ---------------------------------------------------------------------------------------------------


def read_by(condition: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric that PromQL reads, with the labels that it is selected by."""
    for name, selected in re.findall(r"\b(mm2mgr_\w+)\{([^}]*)\}", condition):
        yield name, set(re.findall(r"(\w+)(?==)", selected))


def test_alerts_and_panels_read_metrics_that_serve_has_with_labels_that_these_have(every: dict[str, Alert]) -> None:
    asked = [one.condition for one in every.values()]
    asked += [query.condition for panel in PANELS for query in panel.queries] + [APPLIED]
    for condition in asked:
        found = dict(read_by(condition))
        assert found.keys() == set(re.findall(r"mm2mgr_\w+", condition)), condition
        for name, labels in found.items():
            assert labels <= {"owner", *METRICS[name.removesuffix("_total")].labels}, condition


def test_every_kind_of_problem_has_an_alert(every: dict[str, Alert]) -> None:
    assert {alert_name(kind) for kind in KINDS} <= every.keys()


def test_alerts_that_the_tree_cannot_need_are_left_out(tmp_path: Path) -> None:
    found = {one.name for one in alerts(workspace(tmp_path, more="heartbeats: false").topology)}
    assert "MirrorLagAboveMaximum" not in found
    assert "MirrorNotAudited" not in found, "no flow declares audits"
    assert "MirrorRebalanceHeld" not in found, "no flow has the plugin"
    assert not {name for name in found if "Failover" in name}, "no pair declares failover"
    assert not {name for name in found if "Heartbeat" in name}


def test_rules_ask_for_the_metrics_of_their_owner_alone(tmp_path: Path) -> None:
    made = yaml.safe_load(rules(workspace(tmp_path, owner="data.platform-2")))["groups"][0]["rules"]
    for rule in made:
        selectors = re.findall(r"mm2mgr_\w+(\{[^}]*\})?", rule["expr"])
        assert selectors, rule
        assert all('owner="data.platform-2"' in one for one in selectors), rule


def test_every_rule_leads_to_a_line_of_the_page_or_of_the_copy_that_is_served(tree: Workspace) -> None:
    page = (REPOSITORY / RUNBOOKS).read_text()
    for address in ("", "https://wiki.example.net/red.html"):
        for rule in yaml.safe_load(rules(tree, runbooks=address))["groups"][0]["rules"]:
            where, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert where == (address or RUNBOOKS)
            assert page.count(f'<a id="{anchor}"></a>') == 1, rule["alert"]


@pytest.mark.parametrize("address", ["wiki/red.html", "javascript:alert(1)", "https://x/{{ $value }}", "https://x/a#b"])
def test_what_is_no_address_of_a_page_is_refused(tree: Workspace, address: str) -> None:
    with pytest.raises(InvalidArgument, match="is no address"):
        rules(tree, runbooks=address)


# --- the dashboard ----------------------------------------------------------------------------------------------------


def test_panels_lie_side_by_side_within_the_grid(tree: Workspace) -> None:
    taken = set[tuple[int, int]]()
    for panel in dashboard_of(tree.topology)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_of_another_owner_is_another_one(tmp_path: Path) -> None:
    made = {owner: json.loads(rules(workspace(tmp_path, owner), dashboard=True)) for owner in ("ann", "ben")}
    assert made["ann"]["uid"] != made["ben"]["uid"]
    assert all(len(one["uid"]) <= 40 for one in made.values())  # Grafana refuses longer ones


def test_sections_begin_on_a_line_of_their_own(tree: Workspace) -> None:
    panels = dashboard_of(tree.topology)["panels"]
    assert panels[0]["type"] == "row"
    ends = 0
    for panel in panels:
        place = panel["gridPos"]
        if panel["type"] == "row":
            assert (place["x"], place["w"]) == (0, 24)
            assert place["y"] >= ends, panel["title"]
        ends = max(ends, place["y"] + place["h"])


def test_an_apply_is_a_mark_at_its_time(tree: Workspace) -> None:
    (mark,) = dashboard_of(tree.topology)["annotations"]["list"]
    metric = re.search(r"mm2mgr_\w+", mark["expr"])
    assert metric is not None
    assert mark["useValueForTime"]

    def entry(name: str, when: str, **more: str) -> HistoryEntry:
        return replace(APPLIED_ENTRY, id=name, when=when, **more)

    entries = (
        entry("1", "2026-01-02T03:04:05.000+00:00"),
        entry("2", "2026-01-02T03:05:00.000+00:00"),
        entry("3", "2026-01-02T03:06:00.000+00:00", command="restart"),
        entry("4", "2026-01-02T03:07:00.000+00:00", outcome="failed"),
        entry("5", "2026-01-02T03:00:00.000+00:00", connect="east", command="reconcile"),
    )
    view = replace(healthy(), survey=replace(SURVEY, history=HistoryReport(entries)))
    marks = {name: value for name, value in scraped(view).items() if name.startswith(metric[0])}
    assert marks == {
        f'{metric[0]}{{owner="ann",connect="main"}}': 1767323100.0,
        f'{metric[0]}{{owner="ann",connect="east"}}': 1767322800.0,
    }
    assert not [name for name in scraped(replace(view, survey=None)) if name.startswith(metric[0])]


def test_kubernetes_gets_objects_with_names_that_it_takes(tmp_path: Path) -> None:
    tree = workspace(tmp_path, owner="Data.Platform_2")
    made = yaml.safe_load(rules(tree, kubernetes=True))
    shown = yaml.safe_load(rules(tree, dashboard=True, kubernetes=True))
    assert (made["kind"], shown["kind"]) == ("PrometheusRule", "ConfigMap")
    assert made["metadata"]["name"] == shown["metadata"]["name"] == "mm2mgr-data-platform-2"
    assert made["spec"] == yaml.safe_load(rules(tree))
    assert json.loads(shown["data"]["mm2mgr-data-platform-2.json"]) == json.loads(rules(tree, dashboard=True))


# --- what fires -------------------------------------------------------------------------------------------------------


def healthy(lag_seconds: float = 0.0) -> EstateView:
    """Return an estate that is well, while the oldest record that waits is so old."""
    look = look_of([flow_status(FLOW, "a->b"), flow_status(OTHER, "a->b")], {FLOW: {"orders": round(lag_seconds)}})
    totals = {name: replace(row, seconds=Amount(lag_seconds)) for name, row in look.totals.items()}
    return view_of(replace(look, totals=totals, max_lag_seconds={FLOW: 300.0}))


def without_age() -> EstateView:
    """Return an estate that is well, and of which nobody knows how old a record that waits is."""
    view = healthy()
    assert view.look is not None
    totals = {name: replace(row, seconds=Amount(None)) for name, row in view.look.totals.items()}
    return replace(view, look=replace(view.look, totals=totals))


def with_problem(kind: str) -> EstateView:
    found = example_problem(kind, ProblemSubject("main", "mm2.a.b.source.orders", FLOW))
    return view_of(
        look_of([flow_status(FLOW, "a->b", problems=(found,), health="problem"), flow_status(OTHER, "a->b")])
    )


def forecast() -> EstateView:
    view = healthy(60.0)
    assert view.look is not None
    totals = dict(view.look.totals)
    totals[FLOW] = replace(totals[FLOW], overtaken=TimeForecast(1800.0, 900.0, None))
    return replace(view, look=replace(view.look, totals=totals))


ENOUGH, ENOUGH_WORKERS = FlowNeed(1, 10e6, None), ConnectNeed(1, 1)


def with_load(
    busiest: float = 5e6,
    other: float = 5e6,
    *,
    need: FlowNeed = ENOUGH,
    workers: ConnectNeed = ENOUGH_WORKERS,
    points: Sequence[LagPoint] = (),
) -> EstateView:
    """Return an estate whose flow has two partitions on two tasks, with so many bytes per second in the last hour."""
    view = healthy()
    assert view.look is not None
    places = [TopicPartition("orders", number) for number in range(2)]
    report = replace(
        view.look.lag,
        flows=tuple(
            replace(
                one,
                lag=replace(one.lag, assignment=round_robin(places, 2)),
                points={FLOW_POINTS: tuple(points) or one.points[FLOW_POINTS]},
            )
            if one.flow == FLOW
            else one
            for one in view.look.lag.flows
        ),
    )
    totals = dict(view.look.totals)
    if points:
        totals[FLOW] = replace(totals[FLOW], records=Amount(points[-1].lag_records))
    rates = dict(zip(places, ((busiest, None), (other, None)), strict=True))
    survey = replace(
        SURVEY, load=MeasuredLoad({"a": rates}, "an hour"), needs=EstateNeeds({FLOW: need}, {"main": workers})
    )
    return replace(view, look=replace(view.look, lag=report, totals=totals), survey=survey)


def point(seconds: float, end: int, position: int) -> LagPoint:
    return LagPoint(NOW + seconds, 2, 0, end, position)


FAULTS: Mapping[str, EstateView | None] = {
    "MirrorServeDown": None,
    "MirrorLooksStale": replace(healthy(), started_at=NOW - 5000, look=None),
    "MirrorPartStalled": replace(
        healthy(), parts={"sample": PartState(30.0, ended_at=-1000.0)}
    ),  # Prometheus begins at 0
    "MirrorPartFailing": replace(healthy(), parts={"sample": PartState(30.0, ended_at=NOW, is_failing=True)}),
    "MirrorTreeWrong": replace(healthy(), tree_error="flows.yaml:3: no such cluster"),
    "MirrorClusterUnreadable": view_of(
        look_of([flow_status(FLOW, "a->b")], failures={"kafka a": Failure("no answer")})
    ),
    "MirrorFlowUnknown": view_of(look_of([flow_status(FLOW, "a->b", state="unknown", health="unknown", tasks=())])),
    "MirrorLagAboveMaximum": healthy(301.0),
    "MirrorLagUnknown": without_age(),
    "MirrorRetentionOvertakes": forecast(),
    "MirrorFallingBehind": with_load(points=(point(-120, 100_000, 80_000), point(0, 112_000, 86_000))),
    "MirrorTaskOverloaded": with_load(11e6, 11e6),
    "MirrorTasksUneven": with_load(8e6, 1e6),
    "MirrorTooFewTasks": with_load(need=FlowNeed(2, 10e6, None)),
    "MirrorHotPartition": with_load(need=FlowNeed(1, 10e6, None, (HotPartition("orders", 0, 12e6, 1.2),))),
    "MirrorTooFewWorkers": with_load(workers=ConnectNeed(2, 1)),
    "MirrorFlowLimitAhead": with_load(need=replace(ENOUGH, limits_in_seconds={"tasks": 13 * 86_400.0})),
    "MirrorWorkerLimitAhead": with_load(workers=replace(ENOUGH_WORKERS, limits_in_seconds={"network": 0.0})),
    "MirrorRebalanceHeld": replace(with_load(11e6, 11e6), rebalances=rebalances_view(FLOW, "frozen")),
    **{alert_name(kind): with_problem(kind) for kind in KINDS},
}
# What fires as well, and is meant to: the flow is overloaded, and may not be rebalanced.
ALSO = {"MirrorRebalanceHeld": "MirrorTaskOverloaded"}
Series = dict[str, float]


def scraped(view: EstateView | None) -> Series:
    """Return what Prometheus gets from a scrape; nothing where nobody answers."""
    if view is None:
        return {}
    samples = (sample for family in families(view, NOW) for sample in family.samples)
    labelled = (
        (one.name, ",".join(f"{key}={json.dumps(value)}" for key, value in one.labels.items()), one.value)
        for one in samples
    )
    return {f"{name}{{{labels}}}": value for name, labels, value in labelled}


def input_series(scrapes: Sequence[Series]) -> list[dict[str, str]]:
    """Return scrapes, one a minute, as promtool has them: a series that is gone is stale, as after a real scrape."""
    made = []
    for name in sorted({name for one in scrapes for name in one}):
        values, before = [], False
        for one in scrapes:
            values.append(str(one[name]) if name in one else "stale" if before else "_")
            before = name in one
        made.append({"series": name, "values": " ".join(values)})
    return made


def promtool(folder: Path, *words: str) -> str:
    """Run promtool, which must succeed, and return what it prints."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_tests_pass(folder: Path, tests: list[dict[str, Any]], rule_files: Sequence[str] = ()) -> None:
    """Have promtool run unit tests, with an evaluation each minute, of the rules in some files of the folder."""
    document = {"rule_files": list(rule_files), "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool(folder, "test", "rules", "tests.yaml")


def test_every_alert_has_a_fault_here(every: dict[str, Alert]) -> None:
    assert FAULTS.keys() == every.keys()


def drawn(dashboard: Mapping[str, Any]) -> list[str]:
    """Return every query of a dashboard as Grafana asks it for six hours."""
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [one["expr"].replace("$__range", "6h") for one in (*targets, *dashboard["annotations"]["list"])]


@needs_promtool
def test_prometheus_accepts_the_rules_and_the_queries_of_the_dashboard(tmp_path: Path, tree: Workspace) -> None:
    (tmp_path / "rules.yaml").write_text(rules(tree))
    shown = drawn(dashboard_of(tree.topology))
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(shown)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    assert "rules found" in promtool(tmp_path, "check", "rules", "rules.yaml", "panels.yaml")


@needs_promtool
def test_a_graph_shows_the_same_flows_from_its_first_point_to_its_last(tmp_path: Path, tree: Workspace) -> None:
    """Thirty flows change places; promtool asks at both ends of what is shown, with the modifier of a range query."""
    panel = next(panel for panel in PANELS if panel.title == "Lag (records)")
    expr = with_owner(panel.queries[0].condition, "ann").replace('flow=~"$flow"', 'flow=~".*"')
    expr = expr.replace("$__range", "60m").replace("end()", str(3600))
    series = [
        {"series": f'mm2mgr_flow_lag_records{{owner="ann",flow="f{number}"}}', "values": f"{number}+0x30 {peak}+0x30"}
        for number, peak in ((number, 1000 - number if number < 15 else 0) for number in range(30))
    ]
    wanted = sorted([*range(15), *range(25, 30)])
    asked = [
        {"expr": f"count({expr})", "eval_time": at, "exp_samples": [{"labels": "{}", "value": 20}]}
        for at in ("0m", "60m")
    ]
    asked.append({"expr": f"sum({expr})", "eval_time": "0m", "exp_samples": [{"labels": "{}", "value": sum(wanted)}]})
    test = {"interval": "1m", "input_series": series, "promql_expr_test": asked}
    assert_tests_pass(tmp_path, [test])


@needs_promtool
def test_each_alert_fires_for_its_fault_alone_once_it_has_lasted_and_ends_with_it(
    tmp_path: Path, tree: Workspace, every: dict[str, Alert]
) -> None:
    """Half an hour without a fault, with bursts that are mirrored, then the fault for as long as it must last and half an
    hour more, then none.
    """
    (tmp_path / "rules.yaml").write_text(rules(tree))
    calm = [scraped(healthy(0.0) if minute % 7 else healthy(250.0)) for minute in range(15)]
    calm += [scraped(with_load() if minute % 7 else healthy(250.0)) for minute in range(16)]
    firing = 'ALERTS{alertstate="firing"}'
    made: list[dict[str, Any]] = []
    for name, fault in FAULTS.items():
        begins, minutes = len(calm), every[name].minutes
        wrong = [scraped(fault)] * (minutes + 30)
        also = [{"labels": f'{{alertname="{ALSO[name]}"}}', "value": 1}] if name in ALSO else []
        fired = [{"labels": f'{{alertname="{name}"}}', "value": 1}, *also]
        expected: dict[int, list[dict[str, object]]] = {
            **{minute: [] for minute in range(begins)},
            **({begins + minutes - 1: [*also]} if minutes else {}),
            begins + minutes: fired,
            begins + minutes + 29: fired,
            begins + minutes + 31: [],
        }
        asked = [
            {"expr": f"count by (alertname) ({firing})", "eval_time": f"{minute}m", "exp_samples": samples}
            for minute, samples in expected.items()
        ]
        series = input_series([*calm, *wrong, *calm[:3]])
        made.append({"name": name, "interval": "1m", "input_series": series, "promql_expr_test": asked})
    assert_tests_pass(tmp_path, made, ["rules.yaml"])


@needs_promtool
def test_a_flow_that_rests_is_not_told_to_fall_behind(tmp_path: Path, tree: Workspace) -> None:
    behind = FAULTS["MirrorFallingBehind"]
    assert behind is not None
    assert behind.look is not None
    tests = []
    for state, firing in (("RUNNING", 1), ("PAUSED", 0), ("STOPPED", 0)):
        tasks = () if state == "STOPPED" else (TaskState(0, state, "worker:8083", 2),)
        status = replace(behind.look.status, flows=(flow_status(FLOW, "a->b", state=state, tasks=tasks),))
        series = input_series([scraped(replace(behind, look=replace(behind.look, status=status)))] * 60)
        expected = [{"labels": "{}", "value": 1}] if firing else []
        query = 'count(ALERTS{alertstate="firing",alertname="MirrorFallingBehind"})'
        asked = [{"expr": query, "eval_time": "59m", "exp_samples": expected}]
        tests.append({"name": state, "interval": "1m", "input_series": series, "promql_expr_test": asked})
    (tmp_path / "rules.yaml").write_text(rules(tree))
    assert_tests_pass(tmp_path, tests, ["rules.yaml"])


@needs_promtool
def test_a_server_that_never_gave_a_metric_is_down_whoever_else_is_up(tmp_path: Path, tree: Workspace) -> None:
    """No series of this owner was ever there, so only `absent` can see it; those of another owner fire nothing here."""
    (tmp_path / "rules.yaml").write_text(rules(tree))
    failed = scraped(with_problem("task-failed"))
    theirs = {name.replace('owner="ann"', 'owner="ben"'): value for name, value in failed.items()}
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    fired = [{"labels": '{alertname="MirrorServeDown"}', "value": 1}]
    asked = [
        {"expr": query, "eval_time": at, "exp_samples": samples}
        for at, samples in (("4m", []), ("5m", fired), ("59m", fired))
    ]
    tests = [
        {"interval": "1m", "input_series": input_series([series] * 60), "promql_expr_test": asked}
        for series in ({}, theirs)
    ]
    assert_tests_pass(tmp_path, tests, ["rules.yaml"])


@needs_promtool
def test_a_lag_that_is_at_least_so_long_fires_as_one_that_is_known(tmp_path: Path, tree: Workspace) -> None:
    """While all workers are dead the last stored offsets are what lag is counted from."""
    (tmp_path / "rules.yaml").write_text(rules(tree))
    tests = []
    for seconds, firing in ((301.0, True), (200.0, False)):
        view = healthy(seconds)
        assert view.look is not None
        totals = {name: replace(row, seconds=Amount(seconds, at_least=True)) for name, row in view.look.totals.items()}
        series = input_series([scraped(replace(view, look=replace(view.look, totals=totals)))] * 60)
        expected = [{"labels": "{}", "value": 1}] if firing else []
        query = 'count(ALERTS{alertstate="firing",alertname="MirrorLagAboveMaximum"})'
        asked = [{"expr": query, "eval_time": "59m", "exp_samples": expected}]
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": asked})
    assert_tests_pass(tmp_path, tests, ["rules.yaml"])


@needs_promtool
def test_an_alert_says_which_flow_and_what_to_run(tmp_path: Path, tree: Workspace) -> None:
    (tmp_path / "rules.yaml").write_text(rules(tree))
    wanted = {
        "exp_labels": {
            **{"severity": "critical", "owner": "ann", "kind": "records-lost", "connect": "main", "flow": FLOW},
        },
        "exp_annotations": {
            "summary": f"{FLOW}: {KINDS['records-lost'].meaning()}",
            "description": f"mm2mgr describe '{FLOW}'",
            "runbook_url": f"{RUNBOOKS}#records-lost",
        },
    }
    test = {
        "interval": "1m",
        "input_series": input_series([scraped(with_problem("records-lost"))]),
        "alert_rule_test": [{"eval_time": "0m", "alertname": "MirrorRecordsLost", "exp_alerts": [wanted]}],
    }
    assert_tests_pass(tmp_path, [test], ["rules.yaml"])


# --- a real Prometheus ------------------------------------------------------------------------------------------------


@contextmanager
def prometheus(folder: Path, rule_file: str, metrics: str) -> Iterator[str]:
    """Run Prometheus with these rules on a free port, scraping this address every second, and yield its URL."""
    assert PROMETHEUS is not None
    (folder / "rules.yaml").write_text(rule_file)
    scrape = {"job_name": "mm2mgr", "static_configs": [{"targets": [metrics.removeprefix("http://")]}]}
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    said = folder / "said"
    with said.open("w") as log:
        line = [PROMETHEUS, "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.format=json"]
        line.append("--web.listen-address=127.0.0.1:0")
        running = subprocess.Popen(line, cwd=folder, stdout=log, stderr=log, text=True)

    def address() -> str | None:
        events = [json.loads(one) for one in said.read_text().splitlines() if one.endswith("}")]
        return next((one["address"] for one in events if one.get("msg") == "Listening on"), None)

    try:
        until(address, "Prometheus listens")
        url = f"http://{address()}"
        with Client(base_url=url, trust_env=False) as client:
            until(lambda: client.get("/-/ready").is_success, "Prometheus is ready")
        yield url
    finally:
        running.terminate()
        try:
            running.wait(30)
        finally:
            running.kill()


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on this machine: apt-get install prometheus")
def test_a_real_prometheus_scrapes_serve_fires_for_a_problem_and_ends_with_it(tmp_path: Path, tree: Workspace) -> None:
    groups = yaml.safe_load(rules(tree))
    for rule in groups["groups"][0]["rules"]:
        rule.pop("for", None)  # promtool has the time in no time
    shown = [healthy()]

    def now() -> EstateView:
        assert shown[0].look is not None
        return replace(shown[0], look=replace(shown[0].look, ended_at=time.time()))

    with (
        serving(now) as url,
        prometheus(tmp_path, yaml.safe_dump(groups), url) as asked,
        Client(base_url=asked, trust_env=False) as client,
    ):

        def flows() -> set[str]:
            found = client.get("/api/v1/query", params={"query": "mm2mgr_flow_info"}).json()
            return {one["metric"]["flow"] for one in found["data"]["result"]}

        def firing() -> dict[str, str]:
            found = client.get("/api/v1/alerts").json()["data"]["alerts"]
            return {one["labels"]["alertname"]: one["annotations"]["description"] for one in found}

        until(lambda: flows() == {FLOW, OTHER}, "the flows are scraped")
        until(lambda: not firing(), "nothing fires")
        shown[0] = with_problem("task-failed")
        until(firing, "an alert fires")
        assert firing() == {"MirrorTaskFailed": f"mm2mgr describe '{FLOW}'"}
        shown[0] = healthy()
        until(lambda: not firing(), "the alert ends")
