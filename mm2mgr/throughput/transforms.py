"""From samples to rates per partition: pure DataFrame → DataFrame functions, no action, no session, no Python per row.

In goes the sample table in any order, out comes one row per (cluster, topic, partition).
The last `select` of `throughput` is the schema contract with `rates.PartitionRate`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

GAP_FACTOR = 3.0
# Even, so that an interval's own kind is never outnumbered where two overlapping samplers alternate short and long.
GAP_NEIGHBOURS = 6
_PARTITION = ["cluster", "topic", "partition"]
_TOPIC = ["cluster", "topic"]

SAMPLE_SCHEMA = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("time_ms", LongType()),
        StructField("end_offset", LongType()),
        StructField("start_offset", LongType()),
        StructField("topic_id", StringType()),
        StructField("record_bytes", DoubleType()),
        StructField("source", StringType()),
    ]
)


def in_window(samples: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    """Keep the samples of a window: since inclusive, until exclusive, None is open."""
    if since_ms is not None:
        samples = samples.filter(F.col("time_ms") >= since_ms)
    if until_ms is not None:
        samples = samples.filter(F.col("time_ms") < until_ms)
    return samples


def intervals(samples: DataFrame) -> DataFrame:
    """Give every sample the distance to the one before it in its partition: milliseconds, records, and a changed id.

    Two samples of the same moment (a repeated or a second sampler) are zero milliseconds apart and carry no rate.
    `record_bytes` becomes the size in force: the last one known at that time, else the next one known.
    """
    by_time = Window.partitionBy(*_PARTITION).orderBy("time_ms", "end_offset")
    before = by_time.rowsBetween(Window.unboundedPreceding, -1)
    until_now = by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Not from the current row on: Spark reads such a frame anew for every row, quadratic in the partition's samples.
    all_time = by_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    known_id = F.last("topic_id", ignorenulls=True)
    size = F.coalesce(
        F.last("record_bytes", ignorenulls=True).over(until_now),
        F.first("record_bytes", ignorenulls=True).over(all_time),
    )
    return samples.select(
        *_PARTITION,
        "time_ms",
        "end_offset",
        (F.col("time_ms") - F.lag("time_ms").over(by_time)).alias("elapsed_ms"),
        (F.col("end_offset") - F.lag("end_offset").over(by_time)).alias("records"),
        F.coalesce(F.col("topic_id") != known_id.over(before), F.lit(False)).alias("another_topic"),
        F.col("record_bytes").alias("sampled_bytes"),
        size.alias("record_bytes"),
    )


def judged(steps: DataFrame, max_gap_seconds: float | None = None) -> DataFrame:
    """Say of every interval whether it is a reset, a gap, or usable.

    Reset: the end offset went back or the topic id changed, so the two samples belong to different logs. Gap: longer
    than three times the median of itself and its neighbours, up to six on either side, or than `max_gap_seconds`.
    Neighbours, not the whole partition: a sampler that was set to a longer pace has no gaps once six intervals of
    that pace are known. Neither a reset nor a gap has a rate across it; intervals of zero milliseconds are neither
    judged as gaps nor counted as neighbours.
    """
    has_distance = F.col("elapsed_ms") > 0
    by_time = Window.partitionBy(*_PARTITION, has_distance).orderBy("time_ms")
    nearby_ms = F.percentile("elapsed_ms", F.lit(0.5)).over(by_time.rowsBetween(-GAP_NEIGHBOURS, GAP_NEIGHBOURS))
    too_long = F.col("elapsed_ms") > GAP_FACTOR * nearby_ms
    if max_gap_seconds is not None:
        too_long = too_long | (F.col("elapsed_ms") > max_gap_seconds * 1000)
    reset = F.coalesce((F.col("records") < 0) | F.col("another_topic"), F.lit(False))
    gap = F.coalesce(has_distance & too_long & ~reset, F.lit(False))
    usable = F.coalesce(has_distance & ~reset & ~gap, F.lit(False))
    return steps.withColumns({"reset": reset, "gap": gap, "usable": usable})


def rolled_up(steps: DataFrame) -> DataFrame:
    """Reduce the judged intervals to one row per partition.

    Percentiles count every interval with its milliseconds, as if the rate had been noted once a millisecond, and
    interpolate between neighbours; the mean is records (bytes) over covered time.
    """
    seconds = F.col("elapsed_ms") / 1000
    moment = F.col("elapsed_ms").isNull() | (F.col("elapsed_ms") > 0)
    used_ms = F.sum(_if_usable(F.col("elapsed_ms")))
    records, volume = F.col("records"), F.col("records") * F.col("record_bytes")
    return steps.groupBy(*_PARTITION).agg(
        F.min("time_ms").alias("window_start_ms"),
        F.max("time_ms").alias("window_end_ms"),
        F.count(F.when(moment, 1)).cast("int").alias("samples"),
        F.coalesce(used_ms / 1000, F.lit(0.0)).alias("covered_seconds"),
        F.count(F.when(F.col("reset"), 1)).cast("int").alias("resets"),
        F.count(F.when(F.col("gap"), 1)).cast("int").alias("gaps"),
        *_statistics("records_per_second", records, seconds),
        *_statistics("bytes_per_second", volume, seconds),
        F.sum("sampled_bytes").alias("sampled_sum"),
        F.count("sampled_bytes").alias("sampled_count"),
        F.max_by("record_bytes", F.struct("time_ms", "end_offset")).alias("record_bytes"),
    )


def with_borrowed_sizes(partitions: DataFrame) -> DataFrame:
    """Fill bytes of partitions whose records were never looked at: mean size of their topic, else of their cluster."""

    def mean_over(columns: list[str]) -> Column:
        window = Window.partitionBy(*columns)
        return F.sum("sampled_sum").over(window) / F.nullif(F.sum("sampled_count").over(window), F.lit(0))

    filled = partitions.withColumn("borrowed", F.coalesce(mean_over(_TOPIC), mean_over(["cluster"])))
    bytes_columns = {
        f"bytes_per_second_{name}": F.coalesce(
            F.col(f"bytes_per_second_{name}"), F.col(f"records_per_second_{name}") * F.col("borrowed")
        )
        for name in ("mean", "p50", "p95", "max")
    }
    return filled.withColumns({**bytes_columns, "record_bytes": F.coalesce("record_bytes", "borrowed")})


def throughput(
    samples: DataFrame, since_ms: int | None = None, until_ms: int | None = None, max_gap_seconds: float | None = None
) -> DataFrame:
    """Turn samples of a window into one row per partition."""
    steps = judged(intervals(in_window(samples, since_ms, until_ms)), max_gap_seconds)
    return with_borrowed_sizes(rolled_up(steps)).select(
        "cluster",
        "topic",
        "partition",
        "window_start_ms",
        "window_end_ms",
        "samples",
        "covered_seconds",
        "resets",
        "gaps",
        "bytes_per_second_mean",
        "bytes_per_second_p50",
        "bytes_per_second_p95",
        "bytes_per_second_max",
        "records_per_second_mean",
        "records_per_second_p50",
        "records_per_second_p95",
        "records_per_second_max",
        "record_bytes",
    )


def _if_usable(column: Column) -> Column:
    return F.when(F.col("usable"), column)


def _statistics(name: str, amount: Column, seconds: Column) -> list[Column]:
    rate = _if_usable(amount / seconds)
    weight = F.coalesce(_if_usable(F.col("elapsed_ms")), F.lit(0))
    measured_seconds = _if_usable(F.when(amount.isNotNull(), seconds))
    return [
        (F.sum(_if_usable(amount)) / F.sum(measured_seconds)).alias(f"{name}_mean"),
        F.percentile(rate, F.lit(0.5), weight).alias(f"{name}_p50"),
        F.percentile(rate, F.lit(0.95), weight).alias(f"{name}_p95"),
        F.max(rate).alias(f"{name}_max"),
    ]
