"""size: which number wins, what is said about topics that are new or gone, and what becomes of the file people review."""

from __future__ import annotations

import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2mgr.evidence import read as evidence
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.store import SampleStore
from mm2mgr.throughput.rollup_job import make
from tests.fake_connect import FakeConnect, serving

from .command import Command
from .load import addresses, declare, measured, produce

pytestmark = pytest.mark.usefixtures("impatient")
RESULT = ("--store", "result")


@pytest.fixture
def ready(mm2mgr: Command, mock_cluster: KafkaAccess) -> Command:
    """Topics logs.web and orders in the one mock cluster that both a and b name, rates for a."""
    declare(mm2mgr.tree, *addresses(mock_cluster))
    produce(mock_cluster, "logs.web")
    produce(mock_cluster, "orders")
    rates = {("a", "logs.web", number): 7_000_000.0 for number in range(3)}
    measured(mm2mgr.folder / "result", {**rates, ("a", "orders", 0): 1_000.0})
    return mm2mgr


def entries(mm2mgr: Command) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file_of(mm2mgr).read_text())
    return dict(document["sizing"])


def file_of(mm2mgr: Command) -> Path:
    return mm2mgr.tree / "overrides" / "sizing.yaml"


def tasks_max(mm2mgr: Command, connector: str) -> str:
    rendered = {each["connector"]: each["config"] for each in mm2mgr("render", "-o", "json").json}
    return str(rendered[connector]["tasks.max"])


def test_tasks_are_written_with_their_reasons_and_reach_the_connectors(ready: Command) -> None:
    assert tasks_max(ready, "mm2.a.hub.source.logs") == "1"
    said = ready("size", *RESULT)
    assert said.err == "clusters/overrides/sizing.yaml written: review it, then plan\n"
    # 3 × 7 MB/s measured, and a fourth partition that takes their mean: 28 MB/s by 7 MB/s a task.
    logs = entries(ready)["logs:a->hub"]
    assert (logs["tasks_max"], logs["bytes_per_second"]) == (4, 28_000_000)
    assert (
        "28 MB/s over 4 partitions, divided by 7 MB/s usable per task (10 MB/s × 70 %), needs 4 tasks."
        in logs["reason"]
    )
    assert "Of 4 partitions, 3 have a rate of their own, 1 takes the mean of their topic." in logs["reason"]
    assert logs["measured"].endswith("/2025-11-21T11:00:00Z")
    assert tasks_max(ready, "mm2.a.hub.source.logs") == "4"


def test_ways_to_assign_the_partitions_are_compared(ready: Command, mock_cluster: KafkaAccess) -> None:
    """Partitions of 6, 1, 5, 1 MB/s and four of 1 MB/s, of which one of three running tasks has the first three."""
    produce(mock_cluster, "logs.app")
    rates = {("a", "logs.web", n): rate for n, rate in enumerate((6e6, 1e6, 5e6, 1e6))}
    measured(ready.folder / "result", {**rates, **{("a", "logs.app", n): 1e6 for n in range(4)}})
    fake = FakeConnect(source_topics={"logs.web": 4, "logs.app": 4, "orders": 4})
    config = {"connector.class": "org.example.EvenMirrorSourceConnector", "topics": "logs[.].*", "tasks.max": "3"}
    fake.add("mm2.a.hub.source.logs", config)
    names = [f"logs.{topic}-{number}" for topic in ("web", "app") for number in range(4)]
    fake.connectors["mm2.a.hub.source.logs"].dealt = [",".join(names[:3]), names[3], ",".join(names[4:])]
    with serving(fake) as url:
        path = ready.tree / "x.yaml"
        path.write_text(path.read_text().replace("http://127.0.0.1:1", url))
        found = ready("size", "logs:a->hub", *RESULT, "--dry-run", "--balance", "-o", "json").json["sizings"][0]
        text = ready("size", "logs:a->hub", *RESULT, "--dry-run", "--balance").out
        assert "ways" not in ready("size", "logs:a->hub", *RESULT, "--dry-run", "-o", "json").json["sizings"][0]
    ways = {way["name"]: way for way in found["ways"]}
    assert list(ways) == ["today", "stock", "lanes", "plugin", "lower bound"]
    assert ways["lanes"]["connectors"] == 1  # none are better
    assert ways["lanes"]["tasks"] == ways["plugin"]["tasks"]
    assert ways["plugin"]["busiest"] <= ways["lanes"]["busiest"]
    assert (ways["today"]["tasks"], round(ways["today"]["busiest"] * 7)) == (3, 12)
    assert ways["today"]["tasks_needed"] is None
    assert ways["plugin"]["busiest"] <= ways["stock"]["busiest"] <= ways["today"]["busiest"]
    assert ways["plugin"]["over_bound"] <= 1.02
    assert ways["plugin"]["tasks_needed"] == ways["lower bound"]["tasks_needed"]
    assert "today" in text
    assert "lanes, 1 connector" in text
    assert "171 %" in text


def test_a_number_written_by_hand_wins(ready: Command, mock_cluster: KafkaAccess) -> None:
    measured(ready.folder / "result", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    declare(ready.tree, *addresses(mock_cluster), orders=", tasks: {max: 2}")
    said = ready("size", *RESULT)
    (row,) = [line.split() for line in said.lines if line.startswith("orders:a->hub ")]
    assert row[1:5] == ["28", "MB/s", "4", "2"]
    assert " ".join(row[5:]) == "set by hand, kept"
    assert entries(ready)["orders:a->hub"]["tasks_max"] == 4
    assert tasks_max(ready, "mm2.a.hub.source.orders") == "2"


def test_topics_nobody_measured_take_the_default(ready: Command) -> None:
    sizings = {each["flow_id"]: each for each in ready("size", *RESULT, "--dry-run", "-o", "json").json["sizings"]}
    assert sizings["logs:b->hub"]["bytes_per_second"] == 4 * 5_000
    assert "4 take the default of 5 kB/s." in " ".join(sizings["logs:b->hub"]["reasons"])


def test_a_topic_that_is_gone_from_kafka_is_named_and_not_counted(ready: Command) -> None:
    measured(ready.folder / "result", {("a", "logs.gone", 0): 90_000_000.0, ("a", "logs.web", 0): 1_000.0})
    said = ready("size", "logs:a->hub", *RESULT)
    assert "  Measured but no longer in Kafka, so ignored: logs.gone." in said.lines
    assert entries(ready)["logs:a->hub"]["tasks_max"] == 1


def test_the_statistic_can_be_chosen(ready: Command) -> None:
    ready("size", *RESULT, "--by", "max")
    assert entries(ready)["logs:a->hub"]["source"] == "max of result"


def test_entries_of_flows_that_were_not_sized_stay(ready: Command) -> None:
    ready("size", *RESULT)
    before = entries(ready)
    measured(ready.folder / "result", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    ready("size", "orders", *RESULT)
    after = entries(ready)
    assert after["orders:a->hub"]["tasks_max"] == 4
    assert {flow: entry for flow, entry in after.items() if flow != "orders:a->hub"} == {
        flow: entry for flow, entry in before.items() if flow != "orders:a->hub"
    }


def test_nothing_is_written_when_nothing_changed(ready: Command) -> None:
    ready("size", *RESULT)
    before, changed_at = ready.files(), file_of(ready).stat().st_mtime_ns
    said = ready("size", *RESULT)
    assert said.err == "clusters/overrides/sizing.yaml is up to date\n"
    assert ready.files() == before
    assert file_of(ready).stat().st_mtime_ns == changed_at


def test_a_dry_run_writes_nothing(ready: Command) -> None:
    before = ready.files()
    assert "logs:a->hub" in ready("size", *RESULT, "--dry-run").out
    assert ready.files() == before


def test_a_source_that_is_down_keeps_its_entries(ready: Command, mock_cluster: KafkaAccess, closed_port: int) -> None:
    ready("size", *RESULT)
    kept = entries(ready)["logs:b->hub"]
    declare(ready.tree, addresses(mock_cluster)[0], f"127.0.0.1:{closed_port}")
    measured(ready.folder / "result", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    said = ready("size", *RESULT, "-o", "json", code=1)
    assert f"error: b: no broker of 127.0.0.1:{closed_port}" in said.err
    assert "; its flows are not sized\nhint: their entries stay as they are\n" in said.err
    assert said.json["failures"].keys() == {"b"}
    assert entries(ready)["logs:b->hub"] == kept
    assert entries(ready)["orders:a->hub"]["tasks_max"] == 4


def test_without_a_result_nothing_is_sized(ready: Command) -> None:
    said = ready("size", "--store", "nowhere", code=1)
    assert said.err == "error: nowhere holds no throughput\nhint: run `mm2mgr throughput` first\n"
    assert not file_of(ready).exists()


def test_a_tree_of_single_files_has_no_place_for_overrides(ready: Command) -> None:
    said = ready("-f", ready.tree / "x.yaml", "size", *RESULT, code=1)
    assert "hint: use its folder: mm2mgr --clusters FOLDER size" in said.err


def test_a_tree_of_single_files_is_sized_where_nothing_is_written(ready: Command) -> None:
    file = str(next(ready.tree.glob("*.yaml")))
    ready("--clusters", file, "size", *RESULT, code=1)
    before = ready.files()
    said = ready("--clusters", file, "size", *RESULT, "--dry-run")
    assert "logs:a->hub" in said.out
    ready("--clusters", file, "size", *RESULT, "--check", code=2)
    assert ready.files() == before


def test_check_fails_when_a_flow_has_become_too_small_and_writes_nothing(ready: Command) -> None:
    ready("size", *RESULT)
    before = file_of(ready).read_bytes()
    assert ready("size", *RESULT, "--check").code == 0
    measured(ready.folder / "result", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    said = ready("size", *RESULT, "--check", "-o", "json", code=2)
    assert said.err == "error: too few tasks: orders:a->hub\nhint: mm2mgr size, then review and apply\n"
    verdicts = {each["flow_id"]: each["now"]["verdict"] for each in said.json["sizings"]}
    assert verdicts == {"logs:a->hub": "not measured", "logs:b->hub": "not measured", "orders:a->hub": "too small"}
    assert file_of(ready).read_bytes() == before


def test_a_number_written_by_hand_that_is_too_small_fails_the_check(ready: Command, mock_cluster: KafkaAccess) -> None:
    measured(ready.folder / "result", {("a", "orders", number): 7_000_000.0 for number in range(4)})
    declare(ready.tree, *addresses(mock_cluster), orders=", tasks: {max: 2}")
    said = ready("size", "orders", *RESULT, "--check", code=2)
    assert "  Set by hand: the busiest of 2 tasks handles 14 MB/s; too few, 4 are enough." in said.lines


def test_fewer_tasks_are_marked_as_a_saving_and_nothing_measured_changes_nothing(ready: Command) -> None:
    ready("size", *RESULT)
    assert entries(ready)["logs:a->hub"].keys().isdisjoint({"saves_tasks", "partitions"})
    measured(ready.folder / "result", {("a", "logs.web", number): 1_000.0 for number in range(4)})
    ready("size", *RESULT)
    entry = entries(ready)["logs:a->hub"]
    assert (entry["tasks_max"], entry["saves_tasks"], entry["partitions"]) == (3, True, 4)
    assert "One step towards 1" in entry["reason"]
    measured(ready.folder / "result", {("b", "orders", 0): 1_000.0})
    ready("size", *RESULT)
    assert (entries(ready)["logs:a->hub"]["tasks_max"], entries(ready)["logs:a->hub"]["saves_tasks"]) == (3, True)
    assert "no measurements for this flow; unchanged" in entries(ready)["logs:a->hub"]["reason"]


def test_an_elastic_flow_follows_the_week(ready: Command, mock_cluster: KafkaAccess) -> None:
    """7 MB/s in each hour that was measured twice, and 28 MB/s in one of 100 hours ago, which p95 of so few counts."""
    now = int(time.time() // 3_600)
    quiet = [now - back * 168 + hour for back in (1, 2) for hour in range(2)] + [now - 2, now - 1]
    rates = {**dict.fromkeys(quiet, 1_750_000.0), now - 100: 7_000_000.0}
    batches = [
        Batch(
            "a",
            "test",
            hour * 3_600_000 + 3_599_000,
            ["logs.web"] * 4,
            [0, 1, 2, 3],
            bytes_per_second=[rate] * 4,
            resolution_ms=3_598_000,
        )
        for hour, rate in sorted(rates.items())
    ]
    shutil.rmtree(ready.folder / "result")
    SampleStore(ready.folder / "result").append(*batches)
    make(ready.folder / "result")
    ready("size", *RESULT)
    assert entries(ready)["logs:a->hub"]["tasks_max"] == 4
    tree = ready.tree / "x.yaml"
    tree.write_text(tree.read_text().replace("{max: auto, limit: 8}", "{max: auto, limit: 8, elastic: true}"))
    said = ready("size", *RESULT)
    assert any("Stays at 4 instead of 1: the last change was less than 20 h ago." in line for line in said.lines)
    assert any("Elastic: sized for the coming 24 hours, by the same hours of 2 weeks." in line for line in said.lines)
    path = file_of(ready)
    path.write_text(re.sub("changed: .*", "changed: '2025-01-01T00:00:00Z'", path.read_text()))
    ready("size", *RESULT)
    entry = entries(ready)["logs:a->hub"]
    assert (entry["tasks_max"], entry["saves_tasks"]) == (3, True)
    assert entry["holds_until"].startswith(f"{datetime.fromtimestamp(time.time() + 86_000, UTC):%Y-%m-%dT}")
    path.unlink()
    ready("size", *RESULT)
    assert entries(ready)["logs:a->hub"]["tasks_max"] == 1


def test_workers_that_do_not_answer_make_it_a_prediction(ready: Command) -> None:
    (sizing,) = ready("size", "orders", *RESULT, "-o", "json").json["sizings"]
    assert sizing["deal"] == "predicted"
    assert "in the predicted order (Connect cluster 'w' could not be read)" in " ".join(sizing["reasons"])


def test_the_order_is_read_back_from_the_running_connector(ready: Command, mock_cluster: KafkaAccess) -> None:
    """The fake deals topics by name; what it deals must be what Kafka has now."""
    partitions = {"orders": 4}
    fake = FakeConnect(source_topics=partitions)
    flow = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "topics": "orders"}
    fake.add("mm2.a.hub.source.orders", {**flow, "tasks.max": "3"})
    with serving(fake) as url:
        tree = ready.tree / "x.yaml"
        tree.write_text(tree.read_text().replace("http://127.0.0.1:1", url))
        sizings = {each["flow_id"]: each for each in ready("size", *RESULT, "--dry-run", "-o", "json").json["sizings"]}
        assert [sizings[flow]["deal"] for flow in ("orders:a->hub", "logs:a->hub")] == ["live", "predicted"]
        assert "in the order of the running connector, the busiest" in " ".join(sizings["orders:a->hub"]["reasons"])
        assert "(not created yet)" in " ".join(sizings["logs:a->hub"]["reasons"])
        before = sizings["orders:a->hub"]
        produce(mock_cluster, "heartbeats")
        partitions["heartbeats"] = 4  # workers before 4.0 give it to each source connector
        fake.connectors["mm2.a.hub.source.orders"].config["topics"] = "orders,heartbeats"
        (orders,) = ready("size", "orders", *RESULT, "--dry-run", "-o", "json").json["sizings"]
        assert orders["deal"] == "live"
        assert {key: orders[key] for key in before} == before, "heartbeats are no load, and no partition of the flow"
        del partitions["heartbeats"]
        fake.connectors["mm2.a.hub.source.orders"].config["topics"] = "orders"
        partitions["orders"] = 3
        (orders,) = ready("size", "orders", *RESULT, "--dry-run", "-o", "json").json["sizings"]
        assert orders["deal"] == "predicted"
        assert "partitions of the running connector differ from those in Kafka" in " ".join(orders["reasons"])
    assert [request.method for request in fake.requests if request.method != "GET"] == []


def test_an_entry_edited_while_size_is_at_work_is_left_and_named(
    ready: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready("size", *RESULT)
    real = evidence.read_clusters

    def late(flows: Any) -> Any:
        found = yield from real(flows)
        edited = entries(ready)
        edited["logs:a->hub"] |= {"tasks_max": 7, "reason": "by hand"}
        header = file_of(ready).read_text().splitlines(keepends=True)[0]
        file_of(ready).write_text(header + yaml.safe_dump({"sizing": edited}))
        return found

    rates = {("a", "logs.web", number): 1_000_000.0 for number in range(3)}
    measured(ready.folder / "result", {**rates, ("a", "orders", 0): 40_000_000.0})
    monkeypatch.setattr(evidence, "read_clusters", late)
    said = ready("size", *RESULT, code=1)
    assert "not written for logs:a->hub: the entries changed while size was running" in said.err
    assert entries(ready)["logs:a->hub"]["reason"] == "by hand"
    assert entries(ready)["orders:a->hub"]["bytes_per_second"] > 1_000
    monkeypatch.setattr(evidence, "read_clusters", real)
    ready("size", *RESULT)
    assert entries(ready)["logs:a->hub"]["reason"] != "by hand"


def test_a_sizing_file_that_is_a_link_out_of_the_tree_is_not_written(ready: Command) -> None:
    file_of(ready).parent.mkdir()
    file_of(ready).symlink_to(ready.folder / "victim")
    (ready.folder / "victim").write_text("sizing: {}\n")
    said = ready("size", *RESULT, code=1)
    assert "sizing.yaml:1:1: a link that leads out of the tree" in said.err
    assert (ready.folder / "victim").read_text() == "sizing: {}\n"


def test_partitions_that_take_turns_are_added_up_hour_by_hour(ready: Command) -> None:
    """Each of four is busy in another hour: 6.3 MB/s at every moment, and 24 MB/s if their p95 are added up."""
    hours = [{("a", "logs.web", n): 6e6 if n == hour % 4 else 0.1e6 for n in range(4)} for hour in range(24)]
    measured(ready.folder / "result", *hours)
    said = ready("size", "logs:a->hub", *RESULT)
    assert (
        "  6.3 MB/s over 4 partitions at the same time (p95 of 24 hours), divided by 7 MB/s usable per task "
        "(10 MB/s × 70 %), needs 1 task." in said.lines
    )
    assert entries(ready)["logs:a->hub"]["tasks_max"] == 1


def test_records_in_a_topic_that_is_only_named_like_heartbeats_count(ready: Command, mock_cluster: KafkaAccess) -> None:
    produce(mock_cluster, "logs.my-heartbeats")
    rates = {("a", "logs.web", number): 1_000.0 for number in range(4)}
    measured(ready.folder / "result", rates | {("a", "logs.my-heartbeats", number): 7e6 for number in range(4)})
    ready("size", "logs:a->hub", *RESULT)
    assert entries(ready)["logs:a->hub"]["bytes_per_second"] == 28_004_000


def test_growth_over_the_week_before_is_seen_and_said(ready: Command) -> None:
    """Nearly two weeks at 4 MB/s, sampled now and then, and since yesterday 18 MB/s: p95 of all hours is still the old rate."""
    seen = [hour for hour in range(14 * 24) if hour % 4 == 3 and (hour < 13 * 24 or hour % 24 > 8)]
    rates = {hour: 4.5e6 if hour >= 13 * 24 else 1e6 for hour in seen}
    topics = ({("a", "logs.web", n): rates[hour] for n in range(4)} if hour in rates else {} for hour in range(14 * 24))
    measured(ready.folder / "result", *topics)
    (sizing,) = ready("size", "logs:a->hub", *RESULT, "-o", "json").json["sizings"]
    assert (sizing["tasks"], sizing["bytes_per_second"]) == (4, 18e6)
    assert sizing["growth"] == {"logs.web": {"factor": 4.5, "weeks": 1}}
    assert "Traffic grew: logs.web 4.5 times in 1 week." in entries(ready)["logs:a->hub"]["reason"]


def test_records_and_partitions_of_a_task_are_bounded_as_the_tree_says(ready: Command) -> None:
    """7 MB/s in records of 100 bytes are 70 000 a second, by default as much as a task takes."""

    def tasks(**fields: int) -> int:
        tree = ready.tree / "x.yaml"
        document = yaml.safe_load(tree.read_text())
        document["flows"]["logs"]["tasks"] = {"max": "auto", **fields}
        tree.write_text(yaml.safe_dump(document))
        (sizing,) = ready("size", "logs:a->hub", *RESULT, "--dry-run", "-o", "json").json["sizings"]
        return int(sizing["tasks"])

    measured(ready.folder / "result", {("a", "logs.web", n): 1.75e6 for n in range(4)})
    assert (tasks(), tasks(partition_limit=2), tasks(partition_limit=1)) == (1, 2, 4)
    assert (tasks(record_capacity=50_000), tasks(record_capacity=25_000)) == (2, 4)
