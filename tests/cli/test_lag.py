"""lag: rows by level, seconds from samples and from timestamps, exit codes, and that status says the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.operations import EstateWatch, ServeOrder, Workspace
from mm2mgr.samples.schema import KAFKA_OFFSETS
from mm2mgr.samples.store import SampleStore
from mm2mgr.serve.pages import html, overview
from tests.fake_connect import FakeConnect
from tests.samples.rows import Sample, batches, data_files

from .command import Command
from .load import ORDERS as FLOW
from .load import ORDERS_SOURCE as SOURCE
from .load import one_flow, produce

pytestmark = pytest.mark.usefixtures("impatient")


@dataclass
class Behind:
    """One flow that has mirrored six of the ten records in partition 0 of its topic, which has four."""

    mm2mgr: Command
    connect: FakeConnect
    cluster: KafkaAccess


@pytest.fixture
def behind(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[Behind]:
    with one_flow(mm2mgr, mock_cluster, produced=10, mirrored=6) as connect:
        yield Behind(mm2mgr, connect, mock_cluster)


def test_a_flow_that_is_behind_in_records_bytes_and_seconds(behind: Behind, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    ends = ((300, 2), (200, 6), (100, 9))
    samples = [Sample("a", "orders", 0, now_ms - 1_000 * ago, end, 0, None, 250.0, KAFKA_OFFSETS) for ago, end in ends]
    for batch in batches(samples):
        SampleStore(tmp_path / "store").append(batch)
    said = behind.mm2mgr("lag", "--store", str(tmp_path / "store"))
    assert said.lines[0].split("   ")[0] == "flow"
    row = said.lines[1]
    assert row.split()[:4] == [FLOW, "4", "1", "kB"]
    assert "3.3" in row.split()[4], "the log ended at offset 6 200 s ago"
    assert "unknown" in row, "one look has no trend"
    found = behind.mm2mgr("lag", "-o", "json", "--store", str(tmp_path / "store")).json
    (data,) = found["rows"]
    assert (data["lag_records"], data["lag_bytes"]) == (
        {"value": 4, "at_least": False},
        {"value": 1000.0, "at_least": False},
    )
    assert data["lag_seconds"]["value"] == pytest.approx(200, abs=10)
    assert found["known"] is True


def _sampled(store: Path) -> list[Path]:
    """Write three samples of the flow's topic into files of their own, the newest last."""
    now_ms = time.time_ns() // 1_000_000
    for ago, end in ((300, 2), (200, 6), (100, 9)):
        sample = Sample("a", "orders", 0, now_ms - 1_000 * ago, end, 0, None, 250.0, KAFKA_OFFSETS)
        SampleStore(store).append(*batches([sample]))
    return sorted(data_files(store), key=lambda path: path.stat().st_mtime_ns)


def test_a_file_of_the_store_that_is_gone_is_named_and_the_others_count(behind: Behind, tmp_path: Path) -> None:
    *_, newest = _sampled(tmp_path / "store")
    newest.unlink()
    done = behind.mm2mgr("lag", "--store", str(tmp_path / "store"), "-o", "json")
    (row,) = done.json["rows"]
    assert (row["lag_records"]["value"], row["lag_bytes"]["value"]) == (4, 1000.0)
    assert done.json["warnings"] == [f"{newest} is gone; left out"]
    assert f"{newest} is gone" in done.err


@pytest.mark.parametrize("table", ["samples", "losses", "lag"])
@pytest.mark.parametrize("damage", ["foreign", "log"])
def test_a_store_that_cannot_be_read_blinds_neither_status_nor_lag_nor_serve(
    behind: Behind, tmp_path: Path, table: str, damage: str
) -> None:
    store = tmp_path / "store"
    _sampled(store)
    if damage == "foreign":
        shutil.rmtree(store / table, ignore_errors=True)
        write_deltalake(str(store / table), pa.table({"a": [1]}))
    else:
        (store / table / "_delta_log").mkdir(parents=True, exist_ok=True)
        (store / table / "_delta_log" / "00000000000000000000.json").write_text("{")
    says = "is not the table" if damage == "foreign" else "is damaged"
    (row,) = behind.mm2mgr("lag", "--store", str(store), "-o", "json").json["rows"]
    assert row["lag_records"]["value"] == 4
    watch = EstateWatch(Workspace((behind.mm2mgr.tree,)), ServeOrder(store=store))
    watch.look_once()
    view, now = watch.view, time.monotonic()
    assert view.look is not None
    assert (view.error, view.state(now), view.look.status.flows[0].lag_records) == ("", "ok", 4)
    assert [warning for warning in view.warnings if says in warning] != []
    assert says in html("overview", view, now, overview(time.time(), view))
    if table == "losses":
        assert says in behind.mm2mgr("status", "--store", str(store)).err


@pytest.mark.parametrize("command", [("lag",), ("sample", "--duration", "1s"), ("serve",), ("throughput",), ("size",)])
@pytest.mark.parametrize("store", ["s3://", "s3:/x", "", "http://host/x"])
def test_a_store_that_is_no_place_is_refused_and_makes_no_folder(
    mm2mgr: Command, command: tuple[str, ...], store: str
) -> None:
    said = mm2mgr(*command, "--store", store, code=64)
    assert "Invalid value for '--store': it " in said.err
    assert list(mm2mgr.folder.iterdir()) == []


def test_seconds_come_from_the_next_record_itself_if_asked(behind: Behind, tmp_path: Path) -> None:
    (without,) = behind.mm2mgr("lag", "-o", "json").json["rows"]
    assert without["lag_seconds"] == {"value": None, "at_least": False}
    (row,) = behind.mm2mgr("lag", "--timestamps", "-o", "json").json["rows"]
    assert 0 < row["lag_seconds"]["value"] < 60
    said = behind.mm2mgr("lag", "--notes")
    assert "no samples of a in .mm2mgr/samples, and so no lag in bytes and seconds" in said.out


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("partition", [["orders-0", "0", "4"], ["orders-1", "1", "0"], ["orders-2", "0", "0"], ["orders-3", "1", "0"]]),
        ("task", [["0", "4"], ["1", "0"]]),
        ("topic", [["orders", "4"]]),
        ("flow", [["4"]]),
    ],
)
def test_a_row_is_about_what_by_says(behind: Behind, by: str, names: list[list[str]]) -> None:
    said = behind.mm2mgr("lag", "--by", by)
    assert [line.split()[1 : 1 + len(names[0])] for line in said.lines[1 : 1 + len(names)]] == names
    assert "level" in said.out or len(names) == 1


def test_lag_and_describe_tell_what_is_wrong_with_the_tasks_that_they_name(behind: Behind) -> None:
    """As another class may deal them: a partition in two tasks, one in none, a task without any, a topic that is gone."""
    connector = behind.connect.connectors[SOURCE]
    connector.config |= {"connector.class": "org.example.EvenMirrorSourceConnector"}
    connector.dealt = ["orders-0,orders-1", "orders-1,orders-2,gone-0", ""]
    said = behind.mm2mgr("lag", "--by", "task")
    notes = " ".join(line.strip() for line in said.lines)
    for told in (
        f"{FLOW}: partition orders-1 assigned to more than one task (2 tasks (0, 1)), so that each record arrives more",
        f"{FLOW}: 1 partitions have no task",
        f"{FLOW}: without a partition, so that it mirrors nothing: task 2",
        f"{FLOW}: tasks still hold partitions that a no longer has: gone",
    ):
        assert told in notes
    rows = behind.mm2mgr("lag", "--by", "task", "-o", "json").json["rows"]
    assert {row["task"]: row["partitions"] for row in rows} == {0: 2, 1: 1, None: 1}
    described = behind.mm2mgr("describe", FLOW, "-o", "json", code=1).json
    assert [task["partitions"] for task in described["tasks"]] == [
        ["orders-0", "orders-1"],
        ["gone-0", "orders-1", "orders-2"],
        [],
    ]


def test_rows_are_cut_as_text_and_whole_as_json(behind: Behind) -> None:
    said = behind.mm2mgr("lag", "--by", "partition", "--rows", "1")
    assert "3 rows less behind not shown: --rows shows more, -o json all" in said.out
    assert len(behind.mm2mgr("lag", "--by", "partition", "--rows", "1", "-o", "json").json["rows"]) == 4


def test_losses_go_into_the_store_that_is_named(behind: Behind, tmp_path: Path) -> None:
    store = str(tmp_path / "elsewhere")
    behind.connect.add_offsets(SOURCE, "orders", {0: 99}, alias="a")
    behind.mm2mgr("lag", "--store", store)
    assert len(behind.mm2mgr("losses", "--store", store, "-o", "json", code=1).json["losses"]) == 1
    assert behind.mm2mgr("losses", "-o", "json").json["losses"] == []


def test_status_and_lag_say_the_same_and_share_what_they_saw(behind: Behind) -> None:
    behind.mm2mgr("status")
    produce(behind.cluster, "a.orders", 3)
    (row,) = behind.mm2mgr("lag", "-o", "json").json["rows"]
    assert (row["lag_records"]["value"], row["basis"]) == (1, "target end")
    assert row["trend"] is not None
    assert behind.mm2mgr("status", "-o", "json").json["flows"][0]["lag_records"] == 1


def test_a_sampler_remembers_what_the_lag_was_also_for_other_machines(
    behind: Behind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unwaited: None
) -> None:
    store = str(tmp_path / "store")
    behind.mm2mgr("sample", "--interval", "1s", "--duration", "1s", "--store", store)
    produce(behind.cluster, "orders", 20)
    (flow,) = behind.mm2mgr("status", "-o", "json").json["flows"]
    assert flow["trend"]["records"] == 20
    for machine, at, grown in (("second", "another store", None), ("third", "store", 20)):
        monkeypatch.setenv("MM2MGR_STATE", str(tmp_path / machine))
        (flow,) = behind.mm2mgr("status", "-o", "json", "--store", str(tmp_path / at)).json["flows"]
        assert (flow["trend"] and flow["trend"]["records"]) == grown


def test_a_flow_without_offsets_is_unknown_with_exit_code_1(behind: Behind) -> None:
    behind.connect.fail_next("GET", f"/connectors/{SOURCE}/offsets", 500, {"message": "no"}, times=99)
    said = behind.mm2mgr("lag", code=1)
    assert said.lines[1].split()[:2] == [FLOW, "unknown"]
    assert "unknown: stored offsets could not be read" in said.out
    assert behind.mm2mgr("lag", "-o", "json", code=1).json["rows"][0]["lag_records"]["value"] is None


def test_a_flow_that_is_not_applied_is_unknown_not_level(behind: Behind) -> None:
    behind.connect.connectors.pop(SOURCE)
    said = behind.mm2mgr("lag", code=1)
    assert said.lines[1].split()[:2] == [FLOW, "unknown"]
    assert "its connector is not applied: run mm2mgr apply" in said.out


def test_the_age_of_the_newest_heartbeat_bounds_the_latency(behind: Behind) -> None:
    assert (
        "a->b: latency unknown: no heartbeats of a on b: none in topic a.heartbeats"
        in behind.mm2mgr("lag", "--notes").out
    )


def test_an_unknown_flow_is_an_error_before_anything_is_asked(behind: Behind) -> None:
    behind.connect.requests.clear()
    assert "nothing" in behind.mm2mgr("lag", "nothing", code=1).err
    assert behind.connect.requests == []
