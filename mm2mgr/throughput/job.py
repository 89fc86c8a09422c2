"""The throughput job: rolls up the hours of a sample store that are new or changed, on Spark.

Called as `run(...)`, or unchanged by `spark-submit mm2mgr/throughput/job.py --store URI`; driver and executors share nothing
but the tables at this URI. A job that dies leaves every roll-up as it was or as it shall be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path: let it find its own package
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # PySpark's bridge, ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import Store, store_of
from mm2mgr.text import visible
from mm2mgr.throughput.rollup_job import Report, is_due, make
from mm2mgr.throughput.session import end, failure, session
from mm2mgr.throughput.work_unit import WorkUnit, work


def run(
    store: Store, java_home: Path | None = None, spark: SparkSession | None = None, log_file: Path | None = None
) -> Report:
    """Roll up what is due; without anything due no session is started.

    Mm2mgrError when the store holds no sample at all; JavaMissing before anything is touched. A session started here is
    stopped here; `log_file` takes what its JVM writes to stderr.
    """
    if not is_due(store):
        return Report()
    own = None if spark else session(java_home, log_file)
    try:
        return _on(spark or own, store)
    finally:
        if own:
            end(own)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run under spark-submit; print one line and return the exit code."""
    parser = argparse.ArgumentParser(description="Roll up the hours of a sample store that are new or changed.")
    parser.add_argument("--store", type=store_of, required=True, help="folder or URI that `mm2mgr sample` writes to")
    store = parser.parse_args(arguments).store
    try:
        report = run(store)
    except Mm2mgrError as error:
        print(f"error: {visible(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {visible(error.hint)}", file=sys.stderr)
        return error.exit_code
    for path, reason in report.unreadable.items():
        print(visible(f"left out: {path}: {reason}"), file=sys.stderr)
    print(visible(f"{report.samples} samples rolled up in {store}: {len(report.made)} roll-ups made"))
    return 0


def _on(spark: SparkSession | None, store: Store) -> Report:
    def spread(units: Sequence[WorkUnit]) -> list[str]:
        """Run every unit as a task of its own, one row each.

        The arrays of a unit never pass through the JVM, which is most of what Spark would cost here.
        """
        if not units or spark is None:
            return []
        do = F.udf(lambda number: work(units[number]), StringType(), useArrow=False)
        answers = spark.range(0, len(units), 1, len(units)).select(do("id").alias("done")).collect()
        return [str(answer["done"]) for answer in answers]

    try:
        return make(store, spread)
    except (PySparkException, Py4JError) as error:
        raise _failed(error) from error


def _failed(error: Exception) -> Mm2mgrError:
    return failure("the Spark job failed", error, "roll-ups made before stay readable; run `mm2mgr throughput` again")


if __name__ == "__main__":
    sys.exit(main())
