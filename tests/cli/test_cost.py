"""`cost` as people run it: from roll-ups alone, by flow, link, cluster and month, and what it says where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.operations.workspace import Workspace
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import KAFKA_OFFSETS, StoredSizeRow
from mm2mgr.samples.store import SampleStore, StoredSizeStore
from tests.spec.trees import write
from tests.throughput.stores import HOUR_MS, START, rolled

from .command import Command

TREE = """\
owner: team
clusters:
  dc1: {bootstrap_servers: ["dc1:9092"]}
  agg: {bootstrap_servers: ["agg:9092"], price_per_gb_in: 0.05, currency: EUR}
connect: {w: {url: "http://w:8083", kafka: agg}}
links: [{between: [dc1, agg], rtt: 80ms, price_per_gb: 0.02, currency: EUR}]
flows:
  orders: {sources: [dc1], targets: [agg], topics: {include: [orders]}}
"""
MISSING = "  other: {sources: [dc1], targets: [agg], topics: {include: [gone]}}\n"
RATE = 1_000_000  # records an hour


@pytest.fixture
def store(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with two hours of a topic on both ends of 2025-11-21T11, at the end of these."""
    folder = mm2mgr.folder / "store"
    quarters = [
        Batch(
            *("dc1", KAFKA_OFFSETS, START + quarter * HOUR_MS // 4, ["orders"], [0], ["id"]),
            end_offset=[quarter * RATE // 4],
            start_offset=[0],
            record_bytes=[1000.0],
        )
        for quarter in range(8)
    ]
    SampleStore(folder).append(*quarters)
    rolled(folder)
    rows = [
        StoredSizeRow("dc1", "orders", START, 1000.0, 400.0),
        StoredSizeRow("agg", "dc1.orders", START, 1000.0, 1020.0),
    ]
    StoredSizeStore(folder).append(rows, START)
    now = START / 1000 + 2 * 3600
    monkeypatch.setattr(Workspace, "now", property(lambda _: now))
    write(mm2mgr.tree, x=TREE)
    return folder


def test_a_month_that_is_not_over_says_how_much_of_it_was_measured(mm2mgr: Command, store: Path) -> None:
    said = mm2mgr("cost", "--store", "store", "-o", "json").json
    (line,) = said["lines"]
    records = RATE * 7 / 4
    assert (line["name"], said["months"]) == ("orders:dc1->agg", ["2025-11"])
    assert line["into_bytes"] == pytest.approx(1020 * records)
    assert line["link_bytes"] == pytest.approx(400 * records * 1.043)
    assert line["covered"] == pytest.approx(1.75 / 720, abs=1e-4)
    assert line["into_bytes_month"] == pytest.approx(1020 * RATE * 720)
    assert line["by_basis"].keys() == {"stored"}
    assert line["amounts"][0]["month"] == "42.73"
    assert "0.243 % of its 720 hours was measured" in said["notes"][0]
    text = mm2mgr("cost", "--store", "store")
    assert [word for word in text.lines[1].split() if word[0].isdigit()][:4] == ["0.730", "300.384", "1.785", "734.400"]
    assert "GB are 10^9 bytes" in text.out


@pytest.mark.parametrize(
    ("by", "names"), [("link", ["dc1->agg"]), ("cluster", ["agg"]), ("owner", ["team"]), ("month", ["2025-11"])]
)
def test_lines_are_what_was_asked_for(mm2mgr: Command, store: Path, by: str, names: list[str]) -> None:
    lines = mm2mgr("cost", "--store", "store", "--by", by, "-o", "json").json["lines"]
    assert [line["name"] for line in lines] == names


def test_a_flow_that_was_not_measured_is_named_and_the_exit_code_says_so(mm2mgr: Command, store: Path) -> None:
    write(mm2mgr.tree, x=TREE + MISSING)
    said = mm2mgr("cost", "--store", "store", code=1)
    assert "not counted: other:dc1->agg: nothing was measured of a topic that it carries from 'dc1'" in said.err
    assert "other" not in said.out
    page = mm2mgr("cost", "--store", "store", "-o", "markdown", code=1).out
    assert page.startswith("| flow | link GB |")
    assert "not counted: other" in page
    mm2mgr("cost", "orders", "--store", "store")


def test_a_month_without_any_measurement_is_no_zero(mm2mgr: Command, store: Path) -> None:
    report = mm2mgr("cost", "--store", "store", "--month", "2025-08", "-o", "json", code=1).json
    assert report["lines"] == []
    coming = mm2mgr("cost", "--store", "store", "--month", "2025-12", "-o", "json").json["lines"][0]
    assert (coming["into_bytes"], coming["covered"]) == (0, 0.0)
    assert coming["into_bytes_month"] == pytest.approx(1020 * RATE * 744)


def test_what_cannot_be_asked_is_wrong_usage(mm2mgr: Command, store: Path) -> None:
    assert "is not a month such as" in mm2mgr("cost", "--month", "2025-13", code=64).err
    assert "more than 12 months ahead" in mm2mgr("cost", "--store", "store", "--month", "2026-12", code=64).err
    assert "holds no throughput" in mm2mgr("cost", code=1).err


def test_hours_of_a_month_are_summed_by_topic(mm2mgr: Command, store: Path) -> None:
    from mm2mgr.throughput.topic_hours import measured_months, month_hours, read_topic_hours

    assert measured_months(store) == ["2025-11"]
    hours = month_hours("2025-11")
    assert (len(hours), len(month_hours("2024-02")), len(month_hours("2025-12"))) == (720, 29 * 24, 744)
    ((name, topic),) = read_topic_hours(store, hours, lambda *_: True).items()
    assert name == ("dc1", "orders")
    assert (sum(topic.records), sum(topic.covered_hours)) == pytest.approx((RATE * 7 / 4, 1.75))
    assert topic.record_bytes == pytest.approx(1000.0)
    assert read_topic_hours(store, hours, lambda *_: False) == {}
