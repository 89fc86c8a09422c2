"""The Spark transforms against a slow reference, and the cases that rates from offsets get wrong."""

from __future__ import annotations

from dataclasses import asdict, astuple, replace
from itertools import accumulate

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
    for elapsed, records, topic_id in draw(st.lists(steps, min_size=1, max_size=30)):
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


def paced(topic: str, *intervals: int) -> list[Sample]:
    """Samples with these seconds between them, one record a second."""
    return series(topic, [(second, second) for second in accumulate(intervals, initial=0)])


def gaps(spark: SparkSession, *cases: list[Sample], max_gap_seconds: float | None = None) -> dict[str, int]:
    samples = [sample for case in cases for sample in case]
    return {key[1]: rate.gaps for key, rate in computed(spark, samples, max_gap_seconds).items()}


def test_a_longer_sampling_interval_makes_no_gaps(spark: SparkSession) -> None:
    often = [(second, 10 * second) for second in range(0, 601, 10)]
    seldom = [(second, 6_000 + 1_000 * (second - 600)) for second in range(660, 1801, 60)]
    samples = series("t", often + seldom)
    rate = computed(spark, samples)["dc1", "t", 0]
    assert (rate.gaps, rate.covered_seconds, rate.records_per_second_mean) == (0, 1800.0, 670.0)
    assert (rate.bytes_per_second_p95, rate.bytes_per_second_max) == (100_000.0, 100_000.0)
    sized = [replace(sample, record_bytes=100.0) for sample in samples]
    last_twenty_minutes = computed(spark, sized, since_ms=START + 600_000)["dc1", "t", 0]
    assert (last_twenty_minutes.gaps, last_twenty_minutes.bytes_per_second_mean) == (0, 100_000.0)


def test_a_new_pace_is_known_after_six_intervals(spark: SparkSession) -> None:
    assert gaps(
        spark,
        paced("six", *[10] * 60, *[60] * 6),
        paced("five", *[10] * 60, *[60] * 5),
        paced("hourly", *[10] * 60, *[3600] * 20),
        paced("shorter", *[60] * 20, *[10] * 60),
        paced("there and back", *[10] * 60, *[60] * 20, *[10] * 60),
        paced("outage at the change", *[10] * 60, 600, *[60] * 20),
    ) == {"six": 0, "five": 1, "hourly": 0, "shorter": 0, "there and back": 0, "outage at the change": 1}


def test_one_outage_is_a_gap_wherever_it_lies(spark: SparkSession) -> None:
    places = (0, 1, 6, 20, 38, 39)
    lost = [paced(f"lost {place}", *[10] * place, 31, *[10] * (39 - place)) for place in places]
    late = [paced(f"late {place}", *[10] * place, 30, *[10] * (39 - place)) for place in places]
    rates = computed(spark, [sample for case in lost + late for sample in case])
    for place in places:
        lost_rate, late_rate = rates["dc1", f"lost {place}", 0], rates["dc1", f"late {place}", 0]
        assert (lost_rate.gaps, lost_rate.covered_seconds) == (1, 390.0), place
        assert (late_rate.gaps, late_rate.covered_seconds) == (0, 420.0), place


def test_overlapping_samplers_make_no_gaps(spark: SparkSession) -> None:
    assert gaps(
        spark,
        paced("a second apart", *[1, 9] * 20),
        paced("short at both ends", *[1, 9] * 20, 1),
        paced("long at both ends", *[9, 1] * 20, 9),
        paced("same moment", *[0, 10] * 20),
        paced("same moment, outage", *[0, 10] * 20, 0, 100, *[0, 10] * 20),
    ) == {
        "a second apart": 0,
        "short at both ends": 0,
        "long at both ends": 0,
        "same moment": 0,
        "same moment, outage": 1,
    }


def test_two_samples_are_a_gap_only_beyond_the_given_limit(spark: SparkSession) -> None:
    two, three = paced("two", 3600), paced("three", 10, 3600)
    assert gaps(spark, two, three) == {"two": 0, "three": 0}
    assert gaps(spark, two, three, max_gap_seconds=3600) == {"two": 0, "three": 0}
    assert gaps(spark, two, three, max_gap_seconds=3599) == {"two": 1, "three": 1}


def test_percentiles_weigh_intervals_by_their_seconds(spark: SparkSession) -> None:
    slow_for_long = series("t", [(0, 0), (30, 30), (60, 60), (90, 90), (91, 1090)])
    rate = computed(spark, slow_for_long)["dc1", "t", 0]
    assert (rate.records_per_second_p50, rate.records_per_second_p95) == (1.0, 1.0)
    assert (rate.records_per_second_max, rate.covered_seconds) == (1000.0, 91.0)


def test_the_window_is_since_inclusive_until_exclusive(spark: SparkSession) -> None:
    points = series("t", [(0, 0), (10, 10), (20, 30), (30, 60)])
    rate = computed(spark, points, since_ms=START + 10_000, until_ms=START + 30_000)["dc1", "t", 0]
    assert (rate.samples, rate.records_per_second_mean) == (2, 2.0)
