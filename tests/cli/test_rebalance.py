"""`rebalance`: what it shows of each flow, and what `--apply` writes, leaves and takes back."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.apply import execute
from mm2mgr.assignment import ASSIGNED_KEY, Assignment, parse_assigned, round_robin
from mm2mgr.assignment_text import ASSIGNMENT_KEY, DIGEST_KEY, PLUGIN_CLASS, PluginAssignment, digest, read_text
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.partitions import TopicPartition
from mm2mgr.plan.history import History, HistoryEntry
from tests.clock import jumping
from tests.examples import sampled
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .load import PAIR_HEAD, addresses, measured, produce

pytestmark = pytest.mark.usefixtures("impatient")
FLOW, NAME = "orders:a->b", "mm2.a.b.source.orders"
TREE = (
    PAIR_HEAD
    + """\
  orders: {{sources: [a], targets: [b], topics: {{include: ["t[0-9]"]}}, tasks: {{max: 4}}}}
"""
)
TOPICS = tuple(f"t{number}" for number in range(6))
ALL = tuple(TopicPartition(topic, number) for topic in TOPICS for number in range(4))
HOUR_MS = 3_600_000
STOCK = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
# Dealt in turn over four tasks, the first partitions of all topics meet in task 0.
SKEWED = {partition: 1_500_000.0 if partition.partition == 0 else 200_000.0 for partition in ALL}
DEALT = round_robin(ALL, 4)


@dataclass
class Site:
    """One flow on a fake Connect cluster that has the plugin."""

    mm2mgr: Command
    fake: FakeConnect

    @property
    def config(self) -> dict[str, str]:
        return self.fake.connectors[NAME].config

    def use_plugin(self, assignment: Assignment = DEALT, **more: str) -> None:
        text = PluginAssignment.build(assignment, [1.0] * len(assignment.tasks), 10).text
        self.fake.connectors[NAME].config = self.config | {
            "connector.class": PLUGIN_CLASS,
            ASSIGNMENT_KEY: text,
            **more,
        }

    def measure(self, rates: Mapping[TopicPartition, float], hours: int = 3, age_ms: int = 0) -> None:
        by_key = {("a", *partition): rate for partition, rate in rates.items()}
        end = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS - age_ms
        measured(self.mm2mgr.folder / "store", *[by_key] * hours, end_ms=end)

    def rebalance(self, *arguments: str, code: int) -> Any:
        return self.mm2mgr("rebalance", "--store", "store", *arguments, code=code)

    def flow(self, *arguments: str, code: int) -> dict[str, Any]:
        (flow,) = self.rebalance("-o", "json", *arguments, code=code).json["flows"]
        return dict(flow)

    def loads(self) -> list[float]:
        tasks = [parse_assigned(task["config"]["task.assigned.partitions"]) for task in self.fake._tasks(NAME)]
        return Assignment(tuple(tasks)).loads(SKEWED)


@contextmanager
def site_of(mm2mgr: Command, cluster: KafkaAccess) -> Iterator[Site]:
    fake = FakeConnect(source_topics=dict.fromkeys(TOPICS, 4))
    fake.plugins[PLUGIN_CLASS] = "1.0"
    with serving(fake) as url:
        a, b = addresses(cluster)
        write(mm2mgr.tree, x=TREE.format(a=a, b=b, url=url))
        for topic in TOPICS:
            produce(cluster, topic)
        with jumping(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(execute, "_RACE_SECONDS", 0.0)
            patch.setattr(execute, "_LONGEST_RACE_SECONDS", 0.0)
            mm2mgr("apply", "--yes", "--wait", "0")
            yield Site(mm2mgr, fake)


@pytest.fixture
def site(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[Site]:
    with site_of(mm2mgr, mock_cluster) as site:
        site.measure(SKEWED)
        yield site


def test_a_stock_connector_is_told_what_it_takes_and_nothing_is_written(site: Site) -> None:
    writes = len(site.fake.writes)
    flow = site.flow("--apply", "--yes", code=0)
    assert (flow["verdict"], len(site.fake.writes)) == ("stock", writes)
    assert "plugin.md" in flow["hint"]
    today, stock, lanes, plugin, bound = flow["ways"]
    assert [way["name"] for way in flow["ways"]] == ["today", "stock", "lanes", "plugin", "lower bound"]
    assert lanes["tasks"] <= plugin["tasks"]
    assert today["busiest"] == pytest.approx(9_000_000 / 7_000_000, rel=0.01)
    assert plugin["over_bound"] <= stock["over_bound"]
    assert plugin["over_bound"] < 1.02
    assert bound["over_bound"] == 1


def test_lanes_of_a_flow_are_judged_together(site: Site) -> None:
    tree = site.mm2mgr.tree / "x.yaml"
    rates = {partition: 3_000_000.0 if partition.topic == "t0" else 200_000.0 for partition in ALL}
    site.measure(rates)
    before = tree.read_text().replace('["t[0-9]"]', f"[{', '.join(TOPICS)}]")

    def judged(lanes: str) -> tuple[dict[str, Any], str]:
        tree.write_text(before.replace("{max: 4}}", f"{{max: 2}}, balance: {{lanes: {{{lanes}}}}}}}"))
        for _ in range(4):
            site.mm2mgr("apply", "--yes", "--wait", "0")
        answer = site.rebalance("-o", "json", "orders", code=0).json["flows"][0]
        return dict(answer), site.rebalance("orders", code=0).out

    flow, text = judged("heavy: {topics: [t1], tasks: {max: 1}}")
    assert "its lanes are uneven: the busiest task of its 2 connectors has" in flow["detail"]
    assert flow["lanes"]
    assert "Or lanes" in text
    assert flow["ways"][0]["tasks"] == 3
    flow, text = judged("heavy: {topics: [t0], tasks: {max: 2}}")
    assert "its lanes are good: the busiest task of its 2 connectors has 86 % of the usable capacity" in flow["detail"]
    assert not flow["lanes"]
    assert "Or lanes" not in text
    # The name of the flow as the receiver of a lane's topic is its own connector.
    sized = site.mm2mgr("size", "--store", "store", "--dry-run", "--balance", "orders", "-o", "json").json["sizings"]
    ways = {sizing["flow_id"]: sizing["ways"] for sizing in sized}
    by_name = {way["name"]: way for way in flow["ways"]}
    assert [(way["name"], way["connectors"]) for way in ways["orders:a->b"]][::2] == [
        ("today", 2),
        ("lanes", 2),
        ("lower bound", 1),
    ]
    assert by_name["today"]["busiest"] == pytest.approx(ways["orders:a->b"][0]["busiest"], rel=0.05)
    assert "lanes" not in {way["name"] for way in ways["orders.heavy:a->b"]}
    moved = site.mm2mgr("simulate", "--store", "store", "--move", "t0=orders").out
    assert "orders:a->b" in moved
    assert "mirrored-already" not in moved  # a lane brings its stored offsets
    limited = site.mm2mgr("simulate", "--store", "store", "--limit", "orders=1", "-o", "json").json["flows"]
    assert "orders.heavy:a->b" in limited


def test_a_pinned_partition_is_missed_by_the_connector_that_has_its_topic_only(site: Site) -> None:
    """`pinned` is written once for a flow and its lanes; what no lane lists is missed by the flow's own connector."""
    tree = site.mm2mgr.tree / "x.yaml"
    balance = "balance: {pinned: [t0-0, t1-1, t2-9, nope-7], lanes: {heavy: {topics: [t0, t2], tasks: {max: 2}}}}"
    text = tree.read_text().replace('["t[0-9]"]', f"[{', '.join(TOPICS)}]")
    tree.write_text(text.replace("{max: 4}}", f"{{max: 2}}, {balance}}}"))
    for _ in range(4):
        site.mm2mgr("apply", "--yes", "--wait", "0")
    for name in (NAME, f"{NAME}.heavy"):
        site.fake.connectors[name].config |= {"connector.class": PLUGIN_CLASS}
    flows = {flow["flow"]: flow for flow in site.rebalance("-o", "json", code=2).json["flows"]}
    missed = {name: [reason for reason in flow["plan"]["reasons"] if "inned" in reason] for name, flow in flows.items()}
    sentence = "Pinned, but not a partition that the tasks of this flow have: "
    assert missed == {FLOW: [f"{sentence}nope-7."], "orders.heavy:a->b": [f"{sentence}t2-9."]}
    tree.write_text(tree.read_text().replace(", t2-9, nope-7", ""))
    texts = [" ".join(flow["plan"]["reasons"]) for flow in site.rebalance("-o", "json", code=2).json["flows"]]
    assert all("1 partition stays pinned." in text for text in texts)


def test_a_skewed_assignment_is_shown_and_apply_makes_it_even(site: Site) -> None:
    site.use_plugin()
    before, writes = dict(site.config), len(site.fake.writes)
    shown = site.rebalance(code=2).out
    assert "129 % of usable" in shown
    assert "Worth a restart" in shown
    assert "\n1 change worth a restart; p95 of" in shown
    flow = site.flow(code=2)
    assert flow["verdict"] == "rebalance"
    assert len(site.fake.writes) == writes
    site.rebalance("--apply", "--yes", "--reason", "even tasks", code=0)
    assert {key for key in site.config if site.config[key] != before.get(key)} == {ASSIGNMENT_KEY}
    assert site.config.keys() == before.keys()
    loads = site.loads()
    assert max(loads) / (sum(loads) / 4) <= 1.1
    assert max(loads) / 7_000_000 == pytest.approx(flow["plan"]["busiest"], abs=0.001)
    texts = {task["config"][DIGEST_KEY] for task in site.fake._tasks(NAME)}
    assert texts == {digest(site.config[ASSIGNMENT_KEY])}
    assert [tuple(map(int, read_text(site.config[ASSIGNMENT_KEY]).rates))] == [tuple(map(round, loads))]


def test_a_second_rebalance_writes_nothing(site: Site) -> None:
    site.use_plugin()
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    writes = len(site.fake.writes)
    assert site.flow("--apply", "--yes", code=0)["verdict"] == "keep"
    assert "\nNo change is worth a restart; p95 of" in site.rebalance(code=0).out
    assert len(site.fake.writes) == writes


def test_a_question_comes_before_the_write(site: Site) -> None:
    site.use_plugin()
    writes = len(site.fake.writes)
    assert "add --yes" in site.rebalance("--apply", code=1).err
    assert "add --yes" in site.rebalance("--apply", "-o", "json", code=1).err
    assert len(site.fake.writes) == writes


def test_held_partitions_stay_held(site: Site) -> None:
    held = ALL[0], ALL[5]
    text = PluginAssignment.build(DEALT, [1.0] * 4, 10, held).text
    site.use_plugin()
    site.config[ASSIGNMENT_KEY] = text
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert site.config[ASSIGNMENT_KEY] != text
    assert [read_text(site.config[ASSIGNMENT_KEY]).goal(partition) for partition in held] == ["hold", "hold"]


def test_a_billion_partitions_to_come_stay_held_as_one_range(site: Site) -> None:
    held = "to-come:0-999999999@hold"
    site.use_plugin()
    site.config[ASSIGNMENT_KEY] = f"{PluginAssignment.build(DEALT, [1.0] * 4, 10).text};{held}"
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert site.config[ASSIGNMENT_KEY].endswith(f";{held}")


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_what_rests_is_told_and_left(site: Site, state: str) -> None:
    site.use_plugin()
    site.fake.connectors[NAME].state = state
    flow = site.flow("--apply", "--yes", code=0)
    assert (flow["verdict"], state in flow["detail"]) == ("left", True)
    assert "1 change worth a restart may not be written now; p95 of" in site.rebalance(code=0).out


def _another_owner(site: Site) -> None:
    site.config["mm2mgr.owner"] = "others"


def _without_mark(site: Site) -> None:
    del site.config["mm2mgr.owner"]


def _failed_task(site: Site) -> None:
    site.fake.connectors[NAME].failed_tasks = {1: "java.lang.OutOfMemoryError"}


def _newer_text(site: Site) -> None:
    site.config[ASSIGNMENT_KEY] = site.config[ASSIGNMENT_KEY].replace("version=1", "version=2")
    site.fake.connectors[NAME].dealt = [",".join(map(str, task)) for task in DEALT.tasks]


def _older_tasks(site: Site) -> None:
    connector = site.fake.connectors[NAME]
    site.fake._change(connector, connector.config | {ASSIGNMENT_KEY: PluginAssignment.build(DEALT, [2.0] * 4, 9).text})
    connector.old_tasks = 1_000


@pytest.mark.parametrize("spoil", [_another_owner, _without_mark, _failed_task, _newer_text, _older_tasks])
def test_what_may_not_be_written_is_told_and_left(site: Site, spoil: Any) -> None:
    site.use_plugin()
    site.fake.restart_reads = (1_000, 0)
    spoil(site)
    before, writes = dict(site.config), len(site.fake.writes)
    flow = site.flow("--apply", "--yes", code=0)
    assert flow["verdict"] == "left"
    assert flow["detail"]
    assert (site.config, len(site.fake.writes)) == (before, writes)


def test_a_provider_that_fell_silent_changes_nothing_and_says_why(site: Site) -> None:
    site.use_plugin()
    site.measure(SKEWED, age_ms=5 * HOUR_MS)
    flow = site.flow("--apply", "--yes", code=0)
    assert flow["verdict"] == "keep"
    assert "0 of 24 partitions have a fresh rate" in " ".join(flow["plan"]["reasons"])


def test_a_skew_of_weeks_that_the_newest_day_does_not_show_changes_nothing(site: Site) -> None:
    site.use_plugin()
    even = {("a", *partition): 300_000.0 for partition in ALL}
    skewed = {("a", *partition): rate for partition, rate in SKEWED.items()}
    end = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    measured(site.mm2mgr.folder / "store", *[skewed] * 30, *[even] * 24, end_ms=end)
    flow = site.flow(code=0)
    assert flow["verdict"] == "keep"
    assert "in 1 of the 2 looks that a change needs" in " ".join(flow["plan"]["reasons"])


def test_fewer_tasks_in_the_tree_are_assigned_before_tasks_max_may_be_lowered(site: Site) -> None:
    site.use_plugin()
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("max: 4", "max: 3"))
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert len(read_text(site.config[ASSIGNMENT_KEY]).rates) == 3
    assert site.config["tasks.max"] == "4"


def size_elastically(site: Site, tasks: int, **more: object) -> None:
    """Make the flow an elastic one, for which `size` wrote so many tasks."""
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("tasks: {max: 4}", "tasks: {limit: 8, elastic: true}"))
    path = site.mm2mgr.tree / "overrides" / "sizing.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"sizing": {FLOW: {"tasks_max": tasks, "changed": "2025-01-01T00:00:00Z", **more}}}))


def test_an_elastic_flow_gets_the_tasks_of_its_coming_hours_though_past_ones_do_not_ask_for_them(site: Site) -> None:
    """So a peak that comes once a week, which p95 of four weeks does not show, finds its tasks at work."""
    site.measure(dict.fromkeys(ALL, 100_000.0))
    site.use_plugin(round_robin(ALL, 2))
    assert site.flow(code=0)["verdict"] == "keep"
    size_elastically(site, 4)
    flow = site.flow("--apply", "--yes", "--wait", "0", code=0)
    assert "elastic, and the tree has 4 tasks for the coming hours" in flow["plan"]["reasons"][0]
    assert len(read_text(site.config[ASSIGNMENT_KEY]).rates) == 4
    assert [len(parse_assigned(task["config"][ASSIGNED_KEY])) for task in site.fake._tasks(NAME)] == [6] * 4
    assert site.flow(code=0)["verdict"] == "keep"


def test_an_elastic_flow_gives_up_tasks_only_in_the_hours_that_fewer_are_enough_for(site: Site) -> None:
    def until(hours: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600 * hours))

    site.measure(dict.fromkeys(ALL, 100_000.0))
    site.use_plugin()
    size_elastically(site, 3, saves_tasks=True, holds_until=until(-0.1))
    writes = len(site.fake.writes)
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert len(site.fake.writes) == writes
    size_elastically(site, 3, saves_tasks=True, holds_until=until(20))
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert len(read_text(site.config[ASSIGNMENT_KEY]).rates) == 3


def test_a_refused_write_leaves_the_assignment_and_is_a_failure(site: Site) -> None:
    site.use_plugin()
    before = dict(site.config)
    site.fake.fail_next("PUT", f"/connectors/{NAME}/config", 400, {"error_code": 400, "message": "no"})
    site.rebalance("--apply", "--yes", code=1)
    assert site.config == before


@pytest.mark.parametrize("path", ["/", f"/connectors/{NAME}/tasks"])
def test_a_connect_cluster_that_was_not_read_is_named_with_the_reason(site: Site, path: str) -> None:
    site.use_plugin()
    site.fake.fail_next("GET", path, 500, {"error_code": 500, "message": "boom"}, times=1_000)
    writes = len(site.fake.writes)
    flow = site.flow("--apply", "--yes", code=1)
    assert (flow["verdict"], len(site.fake.writes)) == ("unknown", writes)
    assert "HTTP 500: boom" in flow["detail"]


def test_without_a_roll_up_it_cannot_be_judged(site: Site) -> None:
    assert "mm2mgr throughput" in site.mm2mgr("rebalance", "--store", "empty", code=1).err


def test_tasks_max_is_a_limit_and_is_said(site: Site) -> None:
    site.measure({partition: 5 * rate for partition, rate in SKEWED.items()})
    site.use_plugin()
    flow = site.flow("--apply", "--yes", "--wait", "0", code=0)
    assert site.config["tasks.max"] == "4"
    assert len(read_text(site.config[ASSIGNMENT_KEY]).rates) == 4
    assert "mm2mgr size" in " ".join(flow["plan"]["reasons"])


def test_what_a_history_tells_of_today_is_a_reason_to_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change a day; a history that cannot be read is no sign that there was none."""
    site.use_plugin()
    hour_ago = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 7200))
    entry = HistoryEntry("1", hour_ago, "me", "", "rebalance", "tester", "w", NAME, outcome="done")
    set_history(monkeypatch, History((entry,)))
    flow = site.flow(code=0)
    assert flow["verdict"] == "keep"
    assert "the last 24 hours had 1 change, and the limit is 1" in " ".join(flow["plan"]["reasons"])
    set_history(monkeypatch, History((), {}, {"w": "no broker answered"}))
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace(", history: false", ""))
    flow = site.flow(code=1)
    assert (flow["verdict"], "no broker answered" in flow["detail"]) == ("unknown", True)


def tell_rounds(monkeypatch: pytest.MonkeyPatch, *hours_ago: float) -> None:
    whens = (time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 3_600 * ago)) for ago in hours_ago)
    entries = (
        HistoryEntry(str(number), when, "me", "", "rebalance", "tester", "w", NAME, outcome="done")
        for number, when in enumerate(whens)
    )
    set_history(monkeypatch, History(tuple(entries)))


def add_to_flow(site: Site, text: str) -> None:
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("tasks: {max: 4}", text))


@pytest.mark.parametrize("hold", ["freeze", "windows", "bounds"])
def test_what_the_tree_holds_is_told_and_written_with_now_only(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hold: str
) -> None:
    """A person may overrule it, and has to say so; fewer tasks in the tree do not wait for a cool-down by themselves."""
    site.use_plugin()
    file, hour = tmp_path / "freeze", time.gmtime().tm_hour
    file.touch()
    tell_rounds(monkeypatch, *[2] * (hold == "bounds"))
    balance, reason = {
        "freeze": (f"tasks: {{max: 4}}, balance: {{freeze: {file}}}", f"{file} exists"),
        "windows": (f"tasks: {{max: 4}}, balance: {{windows: ['{(hour + 2) % 24}-{(hour + 3) % 24}']}}", "only in "),
        "bounds": ("tasks: {max: 3}", "the last 24 hours had 1 change, and the limit is 1"),
    }[hold]
    add_to_flow(site, balance)
    shown, before = site.rebalance(code=2).out, dict(site.config)
    assert "Worth a restart" in shown
    assert f"The tree holds it now: {reason}" in shown
    assert "--now does not wait for that" in shown
    flow = site.flow("--apply", "--yes", "--wait", "0", code=0)
    assert (flow["verdict"], reason in flow["detail"], site.config) == ("left", True, before)
    flow = site.flow("--apply", "--yes", "--now", "--wait", "0", code=0)
    assert (flow["verdict"], reason in flow["held"][0]) == ("rebalance", True)
    assert site.config != before


def test_a_wait_for_the_next_day_can_be_overruled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.use_plugin()
    before = dict(site.config)
    tell_rounds(monkeypatch, 0.1)
    flow = site.flow("--apply", "--yes", code=0)
    assert (flow["verdict"], "--now" in flow["hint"], site.config) == ("keep", True, before)
    flow = site.flow("--apply", "--yes", "--now", "--wait", "0", code=0)
    assert (flow["verdict"], "the limit is 1" in flow["held"][0]) == ("rebalance", True)
    assert max(site.loads()) * 4 / sum(site.loads()) <= 1.1


def _pause(site: Site, _: pytest.MonkeyPatch) -> None:
    site.fake.connectors[NAME].state = "PAUSED"


def _change_config(site: Site, _: pytest.MonkeyPatch) -> None:
    site.config["tasks.max"] = "9"


def _rebalance_elsewhere(_: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_rounds(monkeypatch, 0.01)


@pytest.mark.parametrize("change", [_pause, _change_config, _rebalance_elsewhere])
def test_what_changed_while_it_asked_is_left_and_told(site: Site, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    site.use_plugin()
    tell_rounds(monkeypatch)
    text, asked = site.config[ASSIGNMENT_KEY], []

    def confirm(_name: str, question: str, _output: str) -> None:
        asked.append(question)
        change(site, monkeypatch)

    monkeypatch.setattr(sys.modules["mm2mgr.cli.rebalance"], "confirm", confirm)
    said = site.rebalance("--apply", "--wait", "0", code=1).out
    assert len(asked) == 1
    assert "Nothing is written: " in said
    assert site.config[ASSIGNMENT_KEY] == text


def test_the_question_says_what_is_overruled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.use_plugin()
    tell_rounds(monkeypatch, 0.1)
    asked: list[str] = []
    monkeypatch.setattr(sys.modules["mm2mgr.cli.rebalance"], "confirm", lambda _, question, __: asked.append(question))
    site.rebalance("--apply", "--now", "--wait", "0", code=0)
    assert "although the last 24 hours had 1 change, and the limit is 1" in asked[0]


def set_history(monkeypatch: pytest.MonkeyPatch, history: History) -> None:
    def read_history(*_: object) -> Any:
        yield ()
        return history

    monkeypatch.setattr(sys.modules["mm2mgr.operations.rebalance"], "read_history", read_history)


@sampled("seed", range(2), range(10))
def test_of_any_estate_a_second_rebalance_writes_nothing(site: Site, seed: int) -> None:
    """Random rates and assignments; a stock connector, one of another owner, and a paused one are never written."""
    draw = random.Random(seed)
    rates = {partition: draw.choice((5_000.0, 90_000.0, draw.paretovariate(1.2) * 300_000.0)) for partition in ALL}
    site.measure(rates)
    tasks: list[list[TopicPartition]] = [[] for _ in range(draw.randint(1, 4))]
    for number, partition in enumerate(draw.sample(ALL, len(ALL))):
        tasks[number if number < len(tasks) else draw.randrange(len(tasks))].append(partition)
    site.use_plugin(Assignment(tuple(tuple(task) for task in tasks)))
    spoils = {"stock": dict(STOCK), "owner": {"mm2mgr.owner": "others"}, "paused": dict[str, str]()}
    before = dict(site.config)
    for name, change in spoils.items():
        site.fake.connectors[NAME].config = before | change
        site.fake.connectors[NAME].state = "PAUSED" if name == "paused" else "RUNNING"
        writes = len(site.fake.writes)
        site.rebalance("--apply", "--yes", "--wait", "0", code=0)
        assert (len(site.fake.writes), site.config) == (writes, before | change)
    site.fake.connectors[NAME].config, site.fake.connectors[NAME].state = before, "RUNNING"
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    once, writes = dict(site.config), len(site.fake.writes)
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    assert (len(site.fake.writes), site.config) == (writes, once)
    shown = sorted(
        name for task in site.fake._tasks(NAME) for name in parse_assigned(task["config"]["task.assigned.partitions"])
    )
    assert shown == sorted(ALL)
    assert {key for key in once if once[key] != before[key]} <= {ASSIGNMENT_KEY}


def test_a_text_that_connect_could_not_store_is_refused_before_the_write(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.use_plugin()
    del site.config[ASSIGNMENT_KEY]  # the class then assigns round-robin
    monkeypatch.setattr("mm2mgr.assignment_text.LONGEST", 100)
    writes = len(site.fake.writes)
    flow = site.flow("--apply", "--yes", code=0)
    assert (flow["verdict"], len(site.fake.writes)) == ("left", writes)
    assert "Connect can store 100 in a connector's config" in flow["detail"]


@pytest.mark.long
def test_a_plan_file_from_before_a_rebalance_is_stale(site: Site) -> None:
    site.use_plugin()
    tree = site.mm2mgr.tree / "x.yaml"
    tree.write_text(
        tree.read_text()
        .replace("tasks: {max: 4}", "balance: plugin, tasks: {max: 5}")
        .replace("history: false", "history: false, workers: {count: 1}")
    )
    site.mm2mgr("plan", "--out", "plan.json")
    site.rebalance("--apply", "--yes", "--wait", "0", code=0)
    text = site.config[ASSIGNMENT_KEY]
    assert "the plan is stale" in site.mm2mgr("apply", "plan.json", "--yes", code=1).err
    site.mm2mgr("apply", "--yes", "--wait", "0")
    assert (site.config[ASSIGNMENT_KEY], site.config["tasks.max"]) == (text, "5")
