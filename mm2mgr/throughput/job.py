"""The throughput job on Spark: it rolls up the hours of a sample store that are new or changed.

Called as `run(...)`, or unchanged by `spark-submit mm2mgr/throughput/job.py --store URI`; driver and executors share
nothing but the tables at this URI. A job that dies leaves every roll-up either unchanged or complete.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

if not __package__:  # spark-submit runs this file by its path: let it find its own package
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import SparkSession

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import Store, store_of
from mm2mgr.text import visible
from mm2mgr.throughput.periods_due import hours_due
from mm2mgr.throughput.rollup_job import is_due, make
from mm2mgr.throughput.rollup_writer import Report
from mm2mgr.throughput.spark_session import SPARK_ERRORS, end, failure, session
from mm2mgr.throughput.spark_source import ANSWER, ROLLUPS, THROUGHPUT, register

_WORTH_COMPILING = 20_000_000
"""From about this many samples on, compiling what copies rows costs less than it spares: 5 of 40 CPU seconds at 100
million, and half a second at any size (measured)."""


def run(
    store: Store, java_home: Path | None = None, spark: SparkSession | None = None, log_file: Path | None = None
) -> Report:
    """Roll up what is due; without anything due no session is started.

    Mm2mgrError when the store holds no sample at all; JavaMissing before anything is touched. A session started here is
    stopped here; `log_file` takes what its JVM writes to stderr.
    """
    if not is_due(store):
        return Report()
    if spark:
        return _run_on(spark, store)
    own = session(java_home, log_file)
    try:
        return _run_on(own, store)
    finally:
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


def _run_on(spark: SparkSession, store: Store) -> Report:
    def pipeline(store: Store, options: Mapping[str, str]) -> Report:
        """Run one read and write of Spark; the commit, in a process of its own, answers in a file."""
        with TemporaryDirectory(prefix="mm2mgr-") as folder:
            answer = Path(folder, "answer.json")
            frame = spark.read.format(ROLLUPS).options(**options).load(str(store))
            try:
                frame.write.format(THROUGHPUT).option(ANSWER, str(answer)).mode("append").save(str(store))
            except SPARK_ERRORS:
                if answer.exists():
                    message, hint = json.loads(answer.read_text())["error"]
                    raise Mm2mgrError(message, hint=hint) from None
                raise
            return Report(**json.loads(answer.read_text()))

    register(spark)
    if hours_due(store).samples > _WORTH_COMPILING:
        spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")  # what Spark does where nobody tells it otherwise
    try:
        return make(store, pipeline)
    except SPARK_ERRORS as error:
        hint = "roll-ups made before stay readable; run `mm2mgr throughput` again"
        raise failure("the Spark job failed", error, hint) from error


if __name__ == "__main__":
    sys.exit(main())
