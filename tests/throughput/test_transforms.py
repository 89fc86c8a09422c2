"""The Spark transforms against a slow reference, and the cases that rates from offsets get wrong."""

from __future__ import annotations

from dataclasses import asdict, astuple, replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from mm2mgr.samples.schema import Sample
from mm2mgr.throughput.rates import PartitionRate
from mm2mgr.throughput.transforms import SAMPLE_SCHEMA, throughput
from throughput.reference import Key, reference

pytestmark = pytest.mark.spark
START = 1_763_719_200_000


def computed(
    spark: SparkSession, samples: list[Sample], max_gap_seconds: float | None = None, **window: int
) -> dict[Key, PartitionRate]:
    frame = spark.createDataFrame([astuple(sample) for sample in samples], SAMPLE_SCHEMA)
    rows = throughput(frame, max_gap_seconds=max_gap_seconds, **window).collect()
    assert all(row.__fields__ == list(PartitionRate.__dataclass_fields__) for row in rows)
    return {(row.cluster, row.topic, row.partition): PartitionRate(**row.asDict()) for row in rows}


def rounded(rate: PartitionRate) -> dict[str, object]:
    """Twelve digits are compared: the order of a sum is Spark's."""
    return {name: float(f"{value:.12g}") if isinstance(value, float) else value for name, value in asdict(rate).items()}


def series(
    topic: str, points: list[tuple[int, int]], topic_id: str | None = "id", size: float | None = 100.0
) -> list[Sample]:
    """Samples at (seconds after the start, end offset); only the first looks at record sizes."""
    return [
        Sample("dc1", topic, 0, START + seconds * 1000, offset, 0, topic_id, None if n else size, "test")
        for n, (seconds, offset) in enumerate(points)
    ]


@st.composite
def partition_samples(draw: st.DrawFn, key: Key) -> list[Sample]:
    steps = st.tuples(st.integers(0, 40), st.integers(-30, 400), st.sampled_from([None, None, "one", "one", "two"]))
    time_ms, offset, rows = START, 1000, {}
    for elapsed, records, topic_id in draw(st.lists(steps, min_size=1, max_size=12)):
        time_ms, offset = time_ms + elapsed * draw(st.sampled_from([1, 1, 1, 9])), max(0, offset + records)
        size = draw(st.none() | st.floats(1, 1000))
        rows[time_ms, offset] = Sample(*key, time_ms, offset, 0, topic_id, size, "test")
    chosen = list(rows.values())
    return draw(st.permutations([*chosen, *draw(st.lists(st.sampled_from(chosen), max_size=3))]))


@st.composite
def many_partitions(draw: st.DrawFn) -> list[Sample]:
    keys = [(cluster, topic, number) for cluster in ("dc1", "dc2") for topic in ("a", "b") for number in range(8)]
    return [sample for key in keys for sample in draw(partition_samples(key))]


# No shrinking: a Spark job takes a second, and a failure names its partition anyway.
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(samples=many_partitions(), max_gap_seconds=st.sampled_from([None, 0.05]))
def test_any_samples_give_what_the_reference_gives(
    spark: SparkSession, samples: list[Sample], max_gap_seconds: float | None
) -> None:
    expected, actual = reference(samples, max_gap_seconds), computed(spark, samples, max_gap_seconds)
    assert actual.keys() == expected.keys()
    for key, rate in expected.items():
        assert rounded(actual[key]) == rounded(rate)


def test_rates_resets_gaps_and_borrowed_sizes_at_a_glance(spark: SparkSession) -> None:
    steady = series("steady", [(0, 0), (10, 100), (20, 200), (30, 300)])
    reset = series("reset", [(0, 900), (10, 1000), (20, 5), (30, 15)])
    gap = series("gap", [(0, 0), (10, 10), (20, 20), (30, 30), (100, 100_000), (110, 100_010)])
    recreated = series("new", [(0, 0), (10, 10)], "one") + series(
        "new", [(20, 9_000_000), (30, 9_000_010)], "two", None
    )
    unsized = series("unsized", [(0, 0), (10, 10)], size=None)
    lonely = series("lonely", [(0, 5)])
    foreign = [replace(sample, cluster="dc2") for sample in unsized]
    rates = computed(spark, [*steady, *reset, *gap, *recreated, *unsized, *lonely, *foreign])

    def of(topic: str, cluster: str = "dc1") -> PartitionRate:
        return rates[cluster, topic, 0]

    assert (of("steady").bytes_per_second_p95, of("steady").records_per_second_mean) == (1000.0, 10.0)
    assert (of("steady").covered_seconds, of("steady").samples, of("steady").resets, of("steady").gaps) == (30, 4, 0, 0)
    assert (of("reset").resets, of("reset").covered_seconds, of("reset").records_per_second_max) == (1, 20.0, 10.0)
    assert (of("reset").records_per_second_mean, of("reset").gaps) == (5.5, 0)
    assert (of("gap").gaps, of("gap").covered_seconds, of("gap").records_per_second_max) == (1, 40.0, 1.0)
    assert (of("new").resets, of("new").records_per_second_max, of("new").bytes_per_second_max) == (1, 1.0, 100.0)
    assert (of("unsized").record_bytes, of("unsized").bytes_per_second_mean) == (100.0, 100.0)
    assert (of("lonely").bytes_per_second_p95, of("lonely").covered_seconds, of("lonely").samples) == (None, 0.0, 1)
    assert (of("unsized", "dc2").bytes_per_second_p95, of("unsized", "dc2").records_per_second_p95) == (None, 1.0)


def test_percentiles_weigh_intervals_by_their_seconds(spark: SparkSession) -> None:
    slow_for_long = series("t", [(0, 0), (30, 30), (60, 60), (90, 90), (91, 1090)])
    rate = computed(spark, slow_for_long)["dc1", "t", 0]
    assert (rate.records_per_second_p50, rate.records_per_second_p95) == (1.0, 1.0)
    assert (rate.records_per_second_max, rate.covered_seconds) == (1000.0, 91.0)


def test_the_window_is_since_inclusive_until_exclusive(spark: SparkSession) -> None:
    points = series("t", [(0, 0), (10, 10), (20, 30), (30, 60)])
    rate = computed(spark, points, since_ms=START + 10_000, until_ms=START + 30_000)["dc1", "t", 0]
    assert (rate.samples, rate.records_per_second_mean) == (2, 2.0)
