"""The throughput job: reads a sample directory, writes one Parquet file of rates per partition.

Called as `run(...)`, or unchanged by `spark-submit mm2mgr/throughput/job.py --samples DIR --output DIR`; both
directories are on storage that driver and executors share. A job that dies leaves the previous result as it was.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path: let it find its own package
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # PySpark's bridge, ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_PREFIX, hour_of, hours_text, window_text
from mm2mgr.throughput.session import session, submitted_session
from mm2mgr.throughput.table import RESULT_FILE, count_rows
from mm2mgr.throughput.transforms import SAMPLE_SCHEMA, throughput


@dataclass(frozen=True)
class Job:
    """What to compute: the window is since (inclusive) to until (exclusive) in milliseconds since 1970, None is open."""

    samples: Path
    output: Path
    since_ms: int | None = None
    until_ms: int | None = None
    max_gap_seconds: float | None = None


def run(
    job: Job, java_home: Path | None = None, spark: SparkSession | None = None, log_file: Path | None = None
) -> int:
    """Compute and write the result; return the number of partitions.

    Mm2mgrError when the window holds no sample; JavaMissing before anything is touched. A session started here is
    stopped here; `log_file` takes what its JVM writes to stderr.
    """
    hours = _hours_in_window(job)
    if spark:
        return _write(spark, job, hours)
    own = session(java_home, log_file)
    try:
        return _write(own, job, hours)
    finally:
        own.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run under spark-submit; print one line and return the exit code."""
    job = _job_from(arguments)
    try:
        partitions = run(job, spark=submitted_session())
    except Mm2mgrError as error:
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    print(f"throughput of {partitions} partitions written to {job.output / RESULT_FILE}")
    return 0


def _hours_in_window(job: Job) -> list[Path]:
    """Return the hour directories that the window touches: the only files Spark has to list."""
    directories = {path.parent for path in job.samples.glob(f"{HOUR_PREFIX}*/*.parquet") if path.name[0] != "."}
    hours = {path.name.removeprefix(HOUR_PREFIX): path for path in sorted(directories)}
    first = "" if job.since_ms is None else hour_of(job.since_ms)
    last = "~" if job.until_ms is None else hour_of(job.until_ms)
    touched = [path for hour, path in hours.items() if first <= hour <= last]
    if not touched:
        raise _empty(job, list(hours))
    return touched


def _write(spark: SparkSession, job: Job, hours: list[Path]) -> int:
    draft = job.output / f".writing-{uuid.uuid4().hex[:8]}"
    try:
        job.output.mkdir(parents=True, exist_ok=True)
        samples = spark.read.schema(SAMPLE_SCHEMA).parquet(*[str(path.resolve()) for path in hours])
        rates = throughput(samples, job.since_ms, job.until_ms, job.max_gap_seconds)
        rates.coalesce(1).write.parquet(str(draft.resolve()))
        part = next(draft.glob("part-*.parquet"), None)
        rows = count_rows(part) if part else 0
        if part is None or rows == 0:
            raise _empty(job, sorted(path.name.removeprefix(HOUR_PREFIX) for path in hours))
        os.replace(part, job.output / RESULT_FILE)
        return rows
    except (PySparkException, Py4JError) as error:
        raise _failed(error) from error
    except OSError as error:
        raise Mm2mgrError(f"the throughput result cannot be written to {job.output}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _empty(job: Job, hours: list[str]) -> Mm2mgrError:
    window = window_text(job.since_ms, job.until_ms)
    return Mm2mgrError(f"no samples {window} in {job.samples}", hint=hours_text(hours))


def _failed(error: Exception) -> Mm2mgrError:
    text = str(error)
    unreadable = re.search(r"file:(/\S+?\.parquet)", text)
    if unreadable:
        path = re.sub(r"^/+", "/", unreadable[1])
        return Mm2mgrError(f"{path} is not a readable sample file", hint="move this file away to go on without it")
    first_line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return Mm2mgrError(f"the Spark job failed: {first_line[:300]}")


def _job_from(arguments: Sequence[str] | None) -> Job:
    parser = argparse.ArgumentParser(description="Turn partition samples into throughput per partition.")
    parser.add_argument("--samples", type=Path, required=True, help="directory written by `mm2mgr sample`")
    parser.add_argument("--output", type=Path, required=True, help=f"directory that receives {RESULT_FILE}")
    parser.add_argument(
        "--since", type=_milliseconds, help="start of the window, ISO 8601, UTC unless it says otherwise"
    )
    parser.add_argument("--until", type=_milliseconds, help="end of the window (exclusive), likewise")
    parser.add_argument("--max-gap-seconds", type=float, help="no rate across a longer pause between two samples")
    given = parser.parse_args(arguments)
    return Job(given.samples, given.output, given.since, given.until, given.max_gap_seconds)


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


if __name__ == "__main__":
    sys.exit(main())
