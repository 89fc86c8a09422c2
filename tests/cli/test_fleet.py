"""fleet, simulate and the pages: what is declared and measured becomes workers, times and comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.kafka.access import KafkaAccess
from tests.fake_connect import FakeConnect, serving

from .command import Command, left_early
from .load import addresses, declare, measured, produce

pytestmark = pytest.mark.usefixtures("impatient")
STORE = ("--store", "store")


@pytest.fixture
def ready(mm2mgr: Command, mock_cluster: KafkaAccess) -> Command:
    """Four partitions each of logs.web and orders; a carries 28 MB/s of logs.web and 1 kB/s of orders-0."""
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "logs.web")
    produce(mock_cluster, "orders")
    rates = {("a", "logs.web", number): 7_000_000.0 for number in range(4)}
    measured(mm2mgr.folder / "store", {**rates, ("a", "orders", 0): 1_000.0})
    return mm2mgr


def workers(mm2mgr: Command, **fields: Any) -> None:
    """Declare the machines of the Connect cluster w."""
    path = mm2mgr.tree / "x.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["connect"]["w"]["workers"] = fields
    path.write_text(yaml.safe_dump(tree))


def fleet(mm2mgr: Command, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = mm2mgr("fleet", *STORE, "-o", "json", *arguments).json
    return found


def test_workers_come_from_the_tasks_that_size_recommends_and_what_a_worker_carries(ready: Command) -> None:
    workers(ready, tasks_per_worker=2, count=2)
    one = fleet(ready)["connect"]["w"]
    # logs:a->hub needs four tasks; logs:b->hub and orders:a->hub one each.
    # Connect counts the four idle ones alike: ten tasks, two on each of five, make sure that no three busy ones meet.
    assert (one["tasks"], one["workers_needed"], one["workers_today"], one["judged_workers"]) == (6, 5, 2, 2)
    assert one["by_limit"] == {"tasks": 5, "memory": 1, "network": 1}
    assert one["reasons"][-1] == "5 workers needed, 6 with one spare; today 2: too few."
    assert one["side_tasks"] == 4


def test_a_load_that_nobody_measured_is_not_told_as_if_it_were(ready: Command) -> None:
    sentence = "The load of what was not measured is a guess: logs:b->hub."
    assert sentence in fleet(ready)["connect"]["w"]["reasons"]
    everything = {
        (alias, topic, number): 1e6 for alias in "ab" for topic in ("logs.web", "orders") for number in range(4)
    }
    measured(ready.folder / "store", everything)
    assert "guess" not in " ".join(fleet(ready)["connect"]["w"]["reasons"])


def test_what_people_wrote_by_hand_is_what_runs(ready: Command, mock_cluster: KafkaAccess) -> None:
    declare(ready.tree, *addresses(mock_cluster), orders=", tasks: {max: 3}")
    assert fleet(ready)["connect"]["w"]["tasks"] == 8


def test_lag_in_hours_and_in_records_is_the_same_lag(ready: Command) -> None:
    measured(ready.folder / "store", {("a", "logs.web", number): 5_000_000.0 for number in range(4)})
    by_hours = fleet(ready, "--lag", "2h", "--workers", "4")["connect"]["w"]
    total = by_hours["bytes_per_second"]
    by_records = fleet(ready, "--lag-records", str(round(total / 100 * 7200)), "--workers", "4")["connect"]["w"]
    (first,), (second,) = by_hours["recoveries"], by_records["recoveries"]
    assert first["now"]["seconds"] == pytest.approx(second["now"]["seconds"], rel=1e-4)
    # 5 of 10 MB/s: as much is left over as comes in.
    assert first["now"]["seconds"] == pytest.approx(7200)
    assert by_records["lag"].endswith(" records")


def test_workers_that_catch_up_within_a_time(ready: Command) -> None:
    """28 MB/s of logs in four partitions, of which a task moves 10 MB/s each: level after 4 h × 0.7 ÷ 0.3."""
    workers(ready, tasks_per_worker=2, count=2)
    asked = ("--lag", "4h", "--within")
    within = fleet(ready, *asked, "10h")["connect"]["w"]["within"]
    assert (within["workers"], within["tasks"]) == (5, 6)
    assert within["catch_up"]["seconds"] == pytest.approx(4 * 3600 * 0.7 / 0.3, rel=1e-3)
    none = ready("fleet", *STORE, *asked, "20min")
    [line] = [
        line for line in none.lines if line.startswith("  No number of workers works off 4 h of lag within 20 min")
    ]
    assert line.endswith("even with a worker for each task, logs:a->hub takes 9.33 h.")
    assert fleet(ready)["connect"]["w"]["within"] is None


@pytest.mark.parametrize(("way", "tasks", "after"), [("stock", 3, 4), ("plugin", 2, 2)])
def test_a_flow_of_the_plugin_is_judged_by_load_in_size_fleet_and_simulate(
    ready: Command, way: str, tasks: int, after: int
) -> None:
    """Partitions of 6, 1, 5 and 1 MB/s: in turn two tasks have 11 and 2 MB/s, by load 7 and 6."""
    tree = ready.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("limit: 8}", f"limit: 8}}, balance: {way}"))
    rates = {("a", "logs.web", number): rate for number, rate in enumerate((6e6, 1e6, 5e6, 1e6))}
    measured(ready.folder / "store", {**rates, ("a", "orders", 0): 1_000.0})
    sized = ready("size", "logs", *STORE, "--dry-run", "-o", "json").json["sizings"][0]
    assert (sized["tasks"], sized["busiest_bytes_per_second"]) == (tasks, 7e6)
    moved = simulate(ready, "--move", "orders=logs")["flows"]["logs:a->hub"]["after"]
    assert moved["tasks"] == after
    within = fleet(ready, "--lag", "4h", "--within", "6h")["connect"]["w"]["within"]
    assert within["workers"] == 1
    faster = fleet(ready, "--lag", "4h", "--workers", "1")["connect"]["w"]["recoveries"][0]
    assert faster["raised"]["seconds"] == pytest.approx(4 * 3600 * 0.6 / 0.4), "the partition of 6 MB/s alone"


def test_text_tells_every_number_with_its_reason(ready: Command) -> None:
    workers(ready, count=1, memory="1 GiB", network="1Gbit/s")
    said = ready("fleet", *STORE)
    assert said.lines[0].split() == ["connect", "cluster", "load", "tasks", "workers", "today"]
    assert "  The only worker lost: no task runs." in said.lines
    assert any(
        line.startswith("  Network: the fullest of 1 worker may hold 28 MB/s each way of 125 MB/s")
        for line in said.lines
    )
    assert any(
        line.startswith(
            "With one Connect cluster per source–target pair: 2 clusters, 4 workers, instead of 1 Connect cluster"
        )
        for line in said.lines
    )


def test_a_source_that_is_down_is_said_and_not_counted(
    ready: Command, mock_cluster: KafkaAccess, closed_port: int
) -> None:
    declare(ready.tree, addresses(mock_cluster)[0], f"127.0.0.1:{closed_port}")
    said = ready("fleet", *STORE, "-o", "json", code=1)
    assert said.json["failures"].keys() == {"b"}
    assert said.json["connect"]["w"]["tasks"] == 5
    assert "; its flows are not counted\n" in said.err


def test_without_roll_ups_nothing_is_told(ready: Command) -> None:
    assert "run `mm2mgr throughput` first" in ready("fleet", "--store", "nowhere", code=1).err


class TwoWorkers(FakeConnect):
    """A Connect cluster that gives its tasks to two workers in turn."""

    def status(self, name: str) -> dict[str, Any]:
        said = super().status(name)
        said["connector"]["worker_id"] = "w1:8083"
        for task in said["tasks"]:
            task["worker_id"] = f"w{task['id'] % 2 + 1}:8083"
        return said


@pytest.fixture
def running(ready: Command) -> Iterator[Command]:
    """Four tasks of logs from a, and one each of orders and heartbeats, on two workers."""
    fake = TwoWorkers(source_topics={"logs.web": 4, "orders": 4})
    source = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    fake.add("mm2.a.hub.source.logs", {**source, "topics": "logs.web", "tasks.max": "4"})
    fake.add("mm2.a.hub.source.orders", {**source, "topics": "orders", "tasks.max": "1"})
    fake.add("mm2.a.hub.heartbeat", {"connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"})
    with serving(fake) as url:
        path = ready.tree / "x.yaml"
        path.write_text(path.read_text().replace("http://127.0.0.1:1", url))
        yield ready


def test_what_runs_now_is_told_by_worker(running: Command) -> None:
    workers(running, count=3, tasks_per_worker=4)
    one = fleet(running)["connect"]["w"]
    first, second = one["running"]["workers"]
    # Orders has one rate of 1 kB/s, which its other three partitions take.
    assert first["flows"] == {"logs:a->hub": [0, 2], "orders:a->hub": [0]}
    assert (first["worker"], first["tasks"], first["flow_tasks"]) == ("w1:8083", 4, 3)
    assert first["bytes_per_second"] == pytest.approx(14_004_000)
    assert (second["flows"], second["tasks"], second["connectors"]) == ({"logs:a->hub": [1, 3]}, 2, 0)
    assert one["running"]["reasons"] == ["3 workers declared (workers: count), 2 of them with tasks or connectors."]
    said = running("fleet", *STORE, "--page", "page.html")
    rows = [line.split(maxsplit=5)[-1] for line in said.lines if line.startswith(("  w1:8083", "  w2:8083"))]
    assert rows == ["logs:a->hub 0 2, orders:a->hub 0, 1 other", "logs:a->hub 1 3"]
    text = (running.folder / "page.html").read_text()
    assert '<td class="name">logs:a-&gt;hub 0 2, orders:a-&gt;hub 0, 1 other</td>' in text


def test_the_placement_that_really_runs_is_judged_beside_an_even_one(running: Command) -> None:
    """Of 28 MB/s each of two workers has half: too much for one of 13 MB/s, and the first has too many tasks as well."""
    heaps = [each["heap_bytes"] for each in fleet(running)["connect"]["w"]["running"]["workers"]]
    between = f"{sum(heaps) / 2 / 0.7 / 2**20:.0f} MiB"
    workers(running, count=2, tasks_per_worker=2, network="104Mbit/s", memory=between)
    one = fleet(running)["connect"]["w"]
    first, second = one["running"]["workers"]
    assert (first["over_limits"], second["over_limits"]) == (["tasks", "memory", "network"], ["network"])
    reason = next(line for line in one["running"]["reasons"] if line.startswith("w1:8083"))
    assert reason.startswith("w1:8083 is overloaded as placed now: 3 tasks of at most 2, ")
    assert re.search(r" of heap, more than fits \d+ MiB, 14 MB/s each way of 13 MB/s[.]$", reason)
    assert "  " + reason in running("fleet", *STORE).lines
    assert one["running"]["read"]


def test_tasks_that_run_are_judged_whatever_number_is_recommended(running: Command) -> None:
    measured(running.folder / "store", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    one = fleet(running)["connect"]["w"]
    (orders,) = [each for each in one["running"]["flows"] if each["flow_id"] == "orders:a->hub"]
    assert (orders["tasks"], orders["fits"], orders["busiest_share"]) == (1, False, 4)
    assert one["running"]["reasons"] == [
        "orders:a->hub runs 1 task: the busiest handles 28 MB/s, 400 % of the usable capacity."
    ]


def test_an_assignment_that_is_not_of_now_is_said_to_be_predicted(ready: Command) -> None:
    """The connector runs with three of the four partitions that Kafka has now."""
    fake = TwoWorkers(source_topics={"orders": 3})
    source = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    fake.add("mm2.a.hub.source.orders", {**source, "topics": "orders", "tasks.max": "1"})
    with serving(fake) as url:
        path = ready.tree / "x.yaml"
        path.write_text(path.read_text().replace("http://127.0.0.1:1", url))
        assert fleet(ready)["connect"]["w"]["running"]["reasons"] == [
            "orders:a->hub: the load of each task is predicted, because its assignment was not read back."
        ]


def test_the_workers_seen_stand_in_for_a_number_that_is_not_declared(running: Command) -> None:
    one = fleet(running)["connect"]["w"]
    assert (one["workers_today"], one["judged_workers"], one["running"]["reasons"]) == (2, 2, [])
    assert one["reasons"][-1] == "1 worker needed, 2 with one spare; today 2: enough."


def test_workers_that_do_not_answer_are_said(ready: Command) -> None:
    one = fleet(ready)["connect"]["w"]
    assert (one["running"]["workers"], one["workers_today"]) == ([], None)
    (said,) = one["running"]["reasons"]
    assert said.startswith("Running tasks could not be read, so an even spread is assumed: ")
    assert "\n" not in said


def test_the_workers_delay_is_told(ready: Command) -> None:
    workers(ready, count=3, tasks_per_worker=4)
    found = fleet(ready, "--rebalance-delay", "30s", "--session-timeout", "6s")["connect"]["w"]["losses"][0]
    assert (found["stopped_seconds"], found["leader_stopped_seconds"]) == (36, 6)
    assert (
        "stop for about 36 s (session.timeout.ms of 6 s, then scheduled.rebalance.max.delay.ms of 30 s)"
        in found["reason"]
    )
    assert "or about 6 s if it was the leader of the Connect group" in found["reason"]
    assert f"  {found['reason']}" in ready("fleet", *STORE, "--rebalance-delay", "30s", "--session-timeout", "6s").lines


def test_so_many_workers_are_lost_as_is_asked(ready: Command) -> None:
    workers(ready, count=5, tasks_per_worker=4)
    losses = fleet(ready, "--lose", "3")["connect"]["w"]["losses"]
    assert [(each["lost"], each["workers"]) for each in losses] == [(3, 2)]
    assert [each["lost"] for each in fleet(ready)["connect"]["w"]["losses"]] == [1, 2]
    assert f"  {losses[0]['reason']}" in ready("fleet", *STORE, "--lose", "3").lines


def simulate(mm2mgr: Command, *arguments: str) -> dict[str, Any]:
    before = mm2mgr.files()
    found: dict[str, Any] = mm2mgr("simulate", *STORE, "-o", "json", *arguments).json
    assert mm2mgr.files() == before
    return found


def test_more_traffic_needs_more_tasks_and_makes_hot_partitions(ready: Command) -> None:
    found = simulate(ready, "--traffic", "1.5")
    assert found["change"] == "traffic × 1.5"
    both = found["flows"]["logs:a->hub"]
    assert (both["before"]["hot_partitions"], both["after"]["hot_partitions"]) == (0, 4)
    assert both["after"]["bytes_per_second"] == pytest.approx(42e6)


def test_a_lost_source_takes_its_flows_along(ready: Command) -> None:
    found = simulate(ready, "--lose-source", "a")
    assert {flow for flow, both in found["flows"].items() if both["after"] is None} == {"logs:a->hub", "orders:a->hub"}
    assert (found["totals"]["before"]["tasks"], found["totals"]["after"]["tasks"]) == (6, 1)


def test_a_moved_topic_takes_its_load_along(ready: Command) -> None:
    found = simulate(ready, "--move", "logs.web=orders")
    after = {flow: both["after"]["bytes_per_second"] for flow, both in found["flows"].items()}
    # Heartbeats go with the first flow of a pair and carry nothing.
    assert after == {"logs:a->hub": 0, "orders:a->hub": pytest.approx(28e6 + 4_000, rel=1e-3)}
    [note] = found["notes"]
    assert "plan blocks such a move of logs.web (mirrored-already)" in note


def test_a_new_target_doubles_the_flows_on_workers_of_its_own(ready: Command) -> None:
    found = simulate(ready, "--add-target", "north")
    assert {flow for flow, both in found["flows"].items() if both["before"] is None} == {
        "logs:a->north", "logs:b->north", "orders:a->north",
    }  # fmt: skip
    assert found["connect"]["north (new)"]["before"] is None
    assert found["totals"]["after"]["tasks"] == 2 * found["totals"]["before"]["tasks"]
    only = simulate(ready, "--add-target", "orders=north")
    assert only["flows"].keys() == {"orders:a->north"}


def test_a_limit_caps_and_says_so(ready: Command) -> None:
    both = simulate(ready, "--limit", "logs=2")["flows"]["logs:a->hub"]
    assert (both["before"]["tasks"], both["after"]["tasks"], both["after"]["capped_by"]) == (4, 2, "limit")
    said = ready("simulate", *STORE, "--limit", "logs=2")
    (row,) = [line for line in said.lines if line.startswith("logs:a->hub ")]
    assert "4 → 2" in row
    assert row.endswith("capped by limit")
    assert "2 other flows stay as they are" in said.lines


def test_a_limit_holds_for_flows_that_the_same_change_adds(ready: Command) -> None:
    found = simulate(ready, "--add-target", "north", "--limit", "logs=2")["flows"]
    assert {found[flow]["after"]["tasks"] for flow in ("logs:a->hub", "logs:a->north")} == {2}
    only = simulate(ready, "--add-target", "north", "--limit", "logs:a->north=3")["flows"]
    assert only["logs:a->north"]["after"]["tasks"] == 3


def test_a_source_that_is_down_is_not_called_unused_when_it_is_lost(
    ready: Command, mock_cluster: KafkaAccess, closed_port: int
) -> None:
    declare(ready.tree, addresses(mock_cluster)[0], f"127.0.0.1:{closed_port}")
    said = ready("simulate", *STORE, "--lose-source", "b", code=1)
    assert "error: 'b' could not be read, so its flows are not counted to begin with" in said.err


def test_two_topics_moved_to_one_new_name_share_a_flow(ready: Command) -> None:
    found = simulate(ready, "--move", "logs.web=web", "--move", "orders=web")
    loads = {flow: both["after"]["bytes_per_second"] for flow, both in found["flows"].items()}
    assert loads["web:a->hub"] == pytest.approx(28e6 + 4_000, rel=1e-6)
    assert found["totals"]["after"]["bytes_per_second"] == found["totals"]["before"]["bytes_per_second"]
    assert found["totals"]["after"]["flows"] == 5


def test_a_topic_moved_to_a_name_that_no_flow_has_gets_a_flow_of_its_own(ready: Command) -> None:
    found = simulate(ready, "--move", "logs.web=web")["flows"]
    loads = {flow: (both["before"], both["after"]["bytes_per_second"]) for flow, both in found.items()}
    assert loads["web:a->hub"] == (None, pytest.approx(28e6, rel=1e-3))
    assert loads["logs:a->hub"][1] == 0
    assert "orders:a->hub" not in found


def test_fewer_tasks_for_more_traffic_are_explained(ready: Command) -> None:
    """With 7 MB/s usable per task, 6.6 and 0.6 MB/s do not share one; 13.2 MB/s are too much for any, whatever is beside them."""
    rates = {("a", "logs.web", number): 6.6e6 if number < 2 else 0.6e6 for number in range(4)}
    measured(ready.folder / "store", rates)
    found = simulate(ready, "--traffic", "2")
    both = found["flows"]["logs:a->hub"]
    assert (both["before"]["tasks"], both["after"]["tasks"]) == (4, 2), both
    why = (
        "logs:a->hub: 2 instead of 4 tasks despite more traffic: logs.web-0, logs.web-1 each alone exceed the usable capacity of a "
        "task, so more tasks do not help there; for the rest 2 are enough."
    )
    assert both["why_fewer_tasks"] == why
    assert why in found["reasons"]
    assert why in ready("simulate", *STORE, "--traffic", "2").lines


def test_a_flow_that_has_more_tasks_than_more_traffic_needs_is_named(ready: Command, mock_cluster: KafkaAccess) -> None:
    declare(ready.tree, *addresses(mock_cluster), orders=", tasks: {max: 3}")
    found = simulate(ready, "--traffic", "1.5")
    why = "orders:a->hub: 3 tasks now (set by hand) are more than its load needs: 1 before the change, 1 after it."
    assert found["flows"]["orders:a->hub"]["why_fewer_tasks"] == why
    assert why in found["reasons"]
    assert found["flows"]["logs:a->hub"]["why_fewer_tasks"] is None


def test_a_comparison_says_what_it_means(ready: Command) -> None:
    workers(ready, tasks_per_worker=4, count=2)
    lines = ready("simulate", *STORE, "--traffic", "1.5").lines
    assert lines[0] == "If: traffic × 1.5"
    hot = next(line for line in lines if line.startswith("New hot partitions"))
    assert "logs.web-0 of logs:a->hub (1.5 times)" in hot
    (row,) = [line for line in lines if line.startswith("logs:a->hub ")]
    assert "100 % → 150 %" in row
    (connect,) = [line for line in lines if line.startswith("w ")]
    assert connect.split()[-1] == "2"
    ended = ready("simulate", *STORE, "--lose-source", "a", "--lose-source", "b").lines
    assert "w: no traffic left." in ended


def test_nothing_changed_is_said_without_an_empty_table(ready: Command) -> None:
    lines = ready("simulate", *STORE, "--limit", "logs=30").lines
    assert "3 flows stay as they are" in lines
    assert not [line for line in lines if line.startswith("flow ")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "no change given"),
        (("--lose-source", "hub"), "no flow reads from 'hub'"),
        (("--move", "orders=orders"), "no other flow of a->hub carries 'orders'"),
        (("--move", "nothing=more"), "no flow carries 'nothing'"),
        (("--limit", "orders=none"), "'none' is not a number of tasks"),
        (("--limit", "nowhere=3"), "no flow 'nowhere'"),
        (("--add-target", "hub"), "these flows already go to 'hub' or come from it"),
    ],
)
def test_changes_that_mean_nothing_are_refused(ready: Command, arguments: tuple[str, ...], error: str) -> None:
    said = ready("simulate", *STORE, *arguments, code=1)
    assert f"error: {error}" in said.err
    assert "hint: " in said.err


def test_a_change_of_another_form_is_wrong_usage(ready: Command) -> None:
    assert "is not of the form TOPIC=FLOW" in ready("simulate", "--move", "orders", code=64).err


@pytest.mark.parametrize("command", [("fleet",), ("size", "--dry-run")])
def test_the_page_stands_alone_and_shows_tasks_partitions_and_the_week(
    ready: Command, command: tuple[str, ...]
) -> None:
    said = ready(*command, *STORE, "--page", "out/page.html")
    assert said.err.endswith("page in out/page.html\n")
    text = (ready.folder / "out" / "page.html").read_text()
    assert Balanced.of(text).open == []
    assert not re.findall(r"<script|<link|@import|url\(|\ssrc=|href=\"(?!#)", text)
    assert "Before: 1 task, the busiest 28 MB/s" in text
    assert "After: 4 tasks, the busiest 7 MB/s" in text
    assert "logs.web-3" in text
    assert "busiest on Fri at 11 h UTC with 28 MB/s on average; 167 of 168 hours not measured" in text


@pytest.mark.parametrize("command", [("fleet",), ("size", "--dry-run")])
def test_partitions_that_are_gone_are_not_among_the_hottest(ready: Command, command: tuple[str, ...]) -> None:
    measured(ready.folder / "store", {("a", "logs.web", 0): 1e6, ("a", "logs.old", 0): 9e9, ("a", "logs.web", 7): 9e9})
    ready(*command, *STORE, "--page", "page.html")
    named = re.findall(r'<td class="name">(logs\.[^<]*-\d+)</td>', (ready.folder / "page.html").read_text())
    assert named == ["logs.web-0"]


@pytest.mark.parametrize("command", ["fleet", "size --dry-run", "size"])
def test_files_are_written_though_the_reader_leaves(ready: Command, command: str) -> None:
    left_early(ready, *command.split(), *STORE, "--page", "page.html")
    assert Balanced.of((ready.folder / "page.html").read_text()).open == []
    sizing = [name for name in ready.files() if name.endswith("sizing.yaml")]
    assert bool(sizing) == (command == "size")


def test_a_page_that_cannot_be_written_is_an_error(ready: Command) -> None:
    (ready.folder / "file").write_text("")
    assert (
        "error: file/page.html: cannot be written: " in ready("fleet", *STORE, "--page", "file/page.html", code=1).err
    )


class Balanced(HTMLParser):
    """Holds every start tag to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    @classmethod
    def of(cls, text: str) -> Balanced:
        parser = cls()
        parser.feed(text)
        return parser

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that ends itself opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_pages_file_is_all_that_is_written(ready: Command) -> None:
    before = ready.files()
    ready("fleet", *STORE, "--page", "page.html")
    assert ready.files().keys() - before.keys() == {str(Path(ready.folder / "page.html"))}
