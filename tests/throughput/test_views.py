"""The named views: Spark SQL and DuckDB give the same rows for random stores, and what the command line prints is the same."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.batch import Batch
from mm2mgr.samples.schema import KAFKA_OFFSETS, SAMPLES, THROUGHPUT
from mm2mgr.samples.store import SampleStore
from mm2mgr.samples.tables import StoredTable
from mm2mgr.throughput import views
from mm2mgr.throughput.hourly import GroupRate, by_flow, by_topic, hourly, topic_growth, week_pattern
from mm2mgr.throughput.sample_sources import register_samples
from mm2mgr.throughput.views import VIEWS, create_views
from mm2mgr.throughput.windows import Throughput, choose, last_hours, read_window

from .stores import HOUR_MS, START, rolled

Rows = list[tuple[Any, ...]]
FLOWS = [("a", "dc1", ("t0", "t1")), ("b", "dc1", ("t2", "none")), ("c", "dc2", ("t0", "t1", "t2")), ("d", "dc9", ())]
CAPACITIES = [("a", 60.0), ("b", 1e12), ("c", 0.0)]


def random_store(store: Path, seed: int) -> Path:
    """Two clusters of three topics, hours of three weeks: gaps, topics created anew, sizes that are known late or never, and another source."""
    draw = random.Random(seed)
    samples = SampleStore(store)
    hours = sorted({*draw.sample(range(21 * 24), 7), *range(400, 400 + draw.randrange(1, 27))})
    for cluster in ("dc1", "dc2"):
        sized = [draw.random() < 0.5 for _ in range(3)]
        places = [(f"t{topic}", number) for topic in range(3) for number in range(draw.randrange(1, 3))]
        ends = dict.fromkeys(places, 0)
        ids = {f"t{topic}": f"id{topic}" for topic in range(3)}
        for hour in hours:
            if draw.random() < 0.1:
                ids["t1"] += "'"
                ends |= {place: 0 for place in places if place[0] == "t1"}
            for minute in range(0, 60, 20):
                ends = {place: end + draw.randrange(0, 2000) for place, end in ends.items()}
                known = [place for place in places if draw.random() < 0.9]
                sizes = [draw.choice([50.0, 100.0]) if sized[int(topic[1])] else None for topic, _ in known]
                samples.append(
                    Batch(
                        cluster,
                        KAFKA_OFFSETS,
                        START + hour * HOUR_MS + minute * 60_000,
                        [topic for topic, _ in known],
                        [number for _, number in known],
                        [ids[topic] for topic, _ in known],
                        end_offset=[ends[place] for place in known],
                        start_offset=[0] * len(known),
                        record_bytes=sizes if draw.random() < 0.3 else None,
                    )
                )
            if draw.random() < 0.2:
                time_ms = START + hour * HOUR_MS + 50 * 60_000
                rate = [draw.random() * 100]
                samples.append(
                    Batch(cluster, "prometheus:x", time_ms, ["t2"], [0], None, 60_000, bytes_per_second=rate)
                )
    rolled(store)
    return store


def whole_table(store: Path, name: str = THROUGHPUT) -> pa.Table:
    table = StoredTable(store, name)
    tables = []
    for file in table.files():
        rows = table.read_file(file, table.file_schema.names)
        for column, value in zip(table.partitioned_by, file.values, strict=True):
            rows = rows.append_column(column, pa.array([value] * len(rows), pa.string()))
        tables.append(rows)
    return pa.concat_tables(tables).unify_dictionaries()


def duckdb_over(store: Path) -> Callable[[str], Any]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("throughput", whole_table(store))
    connection.register("samples", whole_table(store, SAMPLES))
    connection.execute("CREATE TABLE flows (flow VARCHAR, cluster VARCHAR, topic VARCHAR)")
    connection.executemany("INSERT INTO flows VALUES (?, ?, ?)", flow_rows())
    connection.execute("CREATE TABLE capacities (flow VARCHAR, bytes_per_second DOUBLE)")
    connection.executemany("INSERT INTO capacities VALUES (?, ?)", CAPACITIES)
    run: Callable[[str], Any] = connection.sql
    return run


def spark_over(spark: SparkSession, store: Path) -> Callable[[str], Any]:
    names = [name for name in whole_table(store).column_names if not name.startswith("sketch")]
    table = whole_table(store).select(names)
    plain = table.cast(
        pa.schema([(of.name, pa.string() if pa.types.is_dictionary(of.type) else of.type) for of in table.schema])
    )
    spark.createDataFrame(plain).createOrReplaceTempView("throughput")
    register_samples(spark)
    spark.read.format("mm2mgr.samples").load(str(store)).createOrReplaceTempView("samples")
    spark.createDataFrame(flow_rows(), "flow STRING, cluster STRING, topic STRING").createOrReplaceTempView("flows")
    capacities = spark.createDataFrame(CAPACITIES, "flow STRING, bytes_per_second DOUBLE")
    capacities.createOrReplaceTempView("capacities")
    return spark.sql


def flow_rows() -> list[tuple[str, str, str | None]]:
    return [(flow, cluster, topic) for flow, cluster, topics in FLOWS for topic in (topics or (None,))]


def rows_of(run: Callable[[str], Any], view: str) -> Rows:
    answer = run(f"SELECT * FROM {view}")
    rows = answer.fetchall() if hasattr(answer, "fetchall") else answer.collect()
    return sorted((tuple(row) for row in rows), key=lambda row: tuple((value is None, str(value)) for value in row[:3]))


def same(found: Rows, expected: Sequence[Sequence[Any]]) -> bool:
    """Say whether rows are equal, floats up to the last digits."""

    def close(one: Any, other: Any) -> bool:
        is_number = isinstance(one, float) and isinstance(other, float)
        return math.isclose(one, other, rel_tol=1e-9) if is_number else one == other

    return len(found) == len(expected) and all(
        len(row) == len(other) and all(map(close, row, other)) for row, other in zip(found, expected, strict=True)
    )


def of_groups(groups: Sequence[GroupRate]) -> Rows:
    return [
        (group.partitions, group.bytes_per_second_mean, group.bytes_per_second_busiest_hour, group.busiest_hour)
        for group in groups
    ]


def check(run: Callable[[str], Any], throughput: Throughput, store: Path) -> None:
    """Hold every view to what `throughput --show --by …` prints of the same window."""
    hours = throughput.window.hours
    names = [view.name for view in VIEWS if SAMPLES not in view.needs]
    assert create_views(run, hours[0], hours[-1], ["flows", "capacities"]) == names
    rates = hourly(store, throughput.window, throughput)
    topics = sorted(by_topic(throughput, rates), key=lambda group: (group.cluster, group.name))
    found = rows_of(run, "throughput_by_topic")
    assert [row[:2] for row in found] == [(group.cluster, group.name) for group in topics]
    assert same([row[2:] for row in found], of_groups(topics))

    def carries(topics: Sequence[str]) -> Callable[[str], bool]:
        return lambda topic: topic in topics

    flows = by_flow(throughput, rates, [(flow, cluster, carries(topics)) for flow, cluster, topics in FLOWS])
    flows.sort(key=lambda group: group.name)
    found = rows_of(run, "throughput_by_flow")
    assert [row[:2] for row in found] == [(group.name, group.cluster) for group in flows]
    assert same([row[2:] for row in found], of_groups(flows))

    pattern = week_pattern(throughput, rates)
    cells = {
        (day * 24 + hour): rate for day, row in enumerate(pattern.bytes_per_second) for hour, rate in enumerate(row)
    }
    week = sorted(rows_of(run, "throughput_by_hour_of_week"))
    assert same([row[:2] for row in week], [cell for cell in cells.items() if cell[1] is not None])

    over = [
        (flow.name, capacity, len([rate for rate in known if rate > capacity]), len(known), *of_groups([flow])[0][2:])
        for flow in flows
        for name, capacity in CAPACITIES
        if name == flow.name and any((rate or 0) > capacity for rate in flow.by_hour)
        for known in [[rate for rate in flow.by_hour if rate is not None]]
    ]
    assert same(rows_of(run, "flows_over_capacity"), over)

    grown = sorted(topic_growth(topics, hours), key=lambda topic: (topic.cluster, topic.topic))
    grown_rows = [astuple(topic) for topic in grown]
    assert same(rows_of(run, "growth_by_topic"), grown_rows)


def windows(store: Path) -> list[Throughput]:
    chosen = [choose(store), last_hours(store, 24 * 3600), last_hours(store, 3600)]
    return [read_window(store, window) for window in chosen]


SEEDS = [
    2,
    *(
        pytest.param(seed, marks=pytest.mark.matrix)
        for seed in (3, *range(10, 10 + int(os.environ.get("MM2MGR_EXAMPLES", "20"))))
    ),
]


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_store(tmp_path_factory.mktemp("views"), 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_duckdb_gives_what_the_command_line_prints(tmp_path: Path, seed: int) -> None:
    store = random_store(tmp_path, seed)
    for throughput in windows(store):
        check(duckdb_over(store), throughput, store)


READS = [("dc1", "t", 30.0, 90.0, 15.0, 45.0, 3.0), ("dc1", "u", 0.0, 1.0, None, None, None)]


def store_of_reads(store: Path) -> Path:
    """Partition 0 of t at 10 and 30 B/s, the one twice; partition 1 at 10; each byte is read three times, others say nothing."""
    for topic, partition, minute, rate in (("t", 0, 0, 10.0), ("t", 0, 0, 10.0), ("t", 0, 2, 30.0), ("t", 1, 0, 10.0)):
        reads = {"bytes_per_second": [rate], "bytes_out_per_second": [3 * rate]}
        more = {"replication_bytes_in_per_second": [rate / 2], "replication_bytes_out_per_second": [1.5 * rate]}
        time_ms = START + minute * 60_000
        SampleStore(store).append(Batch("dc1", "cc", time_ms, [topic], [partition], **reads, **more))
    SampleStore(store).append(
        Batch("dc1", "cc", START, ["u"], [0], bytes_per_second=[0.0], bytes_out_per_second=[1.0]),
        Batch("dc1", "prometheus:x", START, ["t"], [0], bytes_per_second=[1e6]),
        Batch("dc1", KAFKA_OFFSETS, START, ["v"], [0], end_offset=[7]),
    )
    rolled(store)
    return store


def test_what_is_read_of_topics_counts_repeated_samples_once(tmp_path: Path) -> None:
    run = duckdb_over(store_of_reads(tmp_path))
    assert create_views(run, tables=[SAMPLES])[-1] == "reads_by_topic"
    assert rows_of(run, "reads_by_topic") == READS
    create_views(run, first="2025-11-21T11", tables=[SAMPLES])
    assert rows_of(run, "reads_by_topic") == []


@pytest.mark.spark
@pytest.mark.matrix  # the page's lines, run by test_any_engine.py, are the gate's sample of it
def test_spark_sql_gives_what_the_command_line_prints(spark: SparkSession, tmp_path: Path) -> None:
    store = random_store(tmp_path, 7)
    check(spark_over(spark, store), windows(store)[0], store)
    run = spark_over(spark, store_of_reads(tmp_path / "reads"))
    create_views(run, tables=[SAMPLES])
    assert rows_of(run, "reads_by_topic") == READS


def test_views_of_flows_need_the_tables_that_say_what_flows_are(small_store: Path) -> None:
    run = duckdb_over(small_store)
    names = create_views(run)
    assert "throughput_by_topic" in names
    assert not {"throughput_by_flow", "flows_over_capacity"} & set(names)
    assert "flows_over_capacity" not in create_views(run, tables=[views.FLOWS])


def test_a_column_that_a_view_needs_and_a_table_lacks_is_named(small_store: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("throughput", whole_table(small_store).drop_columns(["bytes", "period"]))
    with pytest.raises(Mm2mgrError, match=r"the view counted_periods needs bytes, period of throughput"):
        create_views(connection.sql)


def test_what_is_no_hour_never_gets_into_the_sql() -> None:
    with pytest.raises(ValueError, match="unconverted data"):
        create_views(pytest.fail, "2026-11-21T10' OR 'a' = 'a")


def test_a_view_that_gives_other_columns_than_promised_is_refused(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = views.View("wrong", "", {"throughput": ("period",)}, ("period", "size"), "SELECT period FROM throughput")
    monkeypatch.setattr(views, "VIEWS", (wrong,))
    with pytest.raises(Mm2mgrError, match="the view wrong gives period, not period, size"):
        create_views(duckdb_over(small_store))
