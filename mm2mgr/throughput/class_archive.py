"""Makes the archive of loaded classes that lets a local Spark session start in half the time.

It takes about 20 s and 160 MB, so no command waits for it: `mm2mgr throughput --prepare-spark` makes it, `make demo`
does, and otherwise a process at lowest priority after the first run on a terminal (`spark_session.end` begins it).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import Locked, hold_lock
from mm2mgr.samples.schema import SAMPLES, hour_of
from mm2mgr.samples.tables import StoredTable
from mm2mgr.throughput.job import run
from mm2mgr.throughput.sample_sources import SAMPLES_FORMAT, register_samples
from mm2mgr.throughput.spark_session import class_archive, end, session

_WAIT_SECONDS = 600.0
_LOWEST_PRIORITY = 19
_FIRST_MS = 1_700_000_000_000


def prepare(java_home: Path | None = None) -> Path:
    """Make the archive where there is none, by a roll-up and a query of a few samples, and return its path.

    Several processes at once: one makes it, the others wait. OSError where the cache folder cannot be written;
    Mm2mgrError where Java wrote none.
    """
    archive = class_archive(java_home or os.environ.get("JAVA_HOME"))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(archive.with_name("spark-classes.lock"), "the archive of Spark's classes", _WAIT_SECONDS):
        if archive.is_file():
            return archive
        for draft in archive.parent.glob(f"{archive.name}.*"):  # of a process that was killed
            draft.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="mm2mgr-") as folder:
            store = Path(folder, "store")
            _write_samples(store)
            spark = session(java_home, Path(folder, "spark.log"), archives_classes=True)
            try:
                run(store, spark=spark)
                _query(spark, store)
            finally:
                end(spark)
        if not archive.is_file():
            raise Mm2mgrError(
                f"Java wrote no archive of its classes to {archive}", hint="run it again on a quiet machine"
            )
    return archive


def _write_samples(store: Path) -> None:
    table = StoredTable(store, SAMPLES)
    table.create()
    row = {"cluster": "c", "topic": "t", "partition": 0, "source": "kafka-offsets", "resolution_ms": 0}
    rows = [{**row, "time_ms": _FIRST_MS + 60_000 * number, "end_offset": number} for number in range(3)]
    file = table.write_file((hour_of(_FIRST_MS),), [pa.Table.from_pylist(rows, schema=table.file_schema)])
    table.replace(table.snapshot(), [], [file] if file else [])


def _query(spark: SparkSession, store: Path) -> None:
    """Run what audits need beside a roll-up: windows behind a shuffle, aggregates, and an answer as Arrow."""
    register_samples(spark)
    samples = spark.read.format(SAMPLES_FORMAT).load(str(store)).repartition(2, "topic")
    log = Window.partitionBy("topic").orderBy("time_ms")
    place = F.coalesce(F.sum("end_offset").over(log.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    places = samples.withColumns({"place": place, "before": F.lag("end_offset").over(log)})
    newest = F.max(F.struct("place", "before")).alias("newest")
    sums = places.groupBy("topic", "partition").agg(newest, F.bit_xor("place"), F.bool_or(F.col("before") > 1))
    sums.withColumn("rows", F.count("*").over(Window.partitionBy("topic"))).where(F.col("rows") > 0).toArrow()


def main() -> int:
    """Make the archive, at lowest priority and without a word; the next run tries again where it fails."""
    os.nice(_LOWEST_PRIORITY)
    try:
        prepare()
    except (OSError, Locked, Mm2mgrError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
