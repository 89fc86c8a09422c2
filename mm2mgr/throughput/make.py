"""Making what is due: the steps of the job apart from who does the units, which is Spark's part.

In go a store and a way to do units, out comes a report. `one_by_one` does them in this process, which is over before a JVM
is warm where little is due, such as one more hour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mm2mgr.errors import Mm2mgrError
from mm2mgr.samples.schema import HOUR_PREFIX, hours_text
from mm2mgr.throughput.hours import check_layout, next_id, sample_files, samples_in
from mm2mgr.throughput.plan import alone, commit, day_units, due_days, due_hours, hour_units, still_there
from mm2mgr.throughput.proof import judge, require_drafts
from mm2mgr.throughput.unit import Unit, work

Spread = Callable[[Sequence[Unit]], Sequence[str]]
"""Does units in any order and anywhere; returns the answer of `unit.work` to each."""


SAMPLES_WORTH_SPARK = 10_000_000
"""This many samples take one process about as long as Spark takes to start (measured: 5 s, 9 s)."""


@dataclass
class Report:
    """What a run did: roll-ups made by name, samples read for them, and why files were left out."""

    made: list[str] = field(default_factory=list)
    samples: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


def is_due(store: Path) -> bool:
    """Say whether there is anything to make; Mm2mgrError when the store is of another layout or holds no sample."""
    check_layout(store)
    files = sample_files(store)
    if not files:
        raise Mm2mgrError(f"no samples in {store}", hint=hours_text([]))
    return bool(due_hours(store, files).marks or due_days(store).marks)


def under_spark_submit() -> bool:
    """Say whether spark-submit started this process: it hands over the port of a JVM that it configured."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def due_samples(store: Path) -> int:
    """Return how many samples the due hours hold, from the footers of their files."""
    files = sample_files(store)
    hours = (name.removeprefix(HOUR_PREFIX) for name in due_hours(store, files).names)
    return sum(samples_in(path) for hour in hours for path in files[hour])


def make(store: Path, spread: Spread) -> Report:
    """Roll up the hours and merge the days that are due; what is whole stays readable at every moment."""
    report, store = Report(), store.resolve()
    try:
        with alone(store) as drafts:
            hours, above = due_hours(store, sample_files(store)), next_id(store)
            written, missing = _done(spread(hour_units(store, drafts, hours, above)), report)
            judge(store, missing)
            hours = still_there(store, hours)
            commit(store, hours, written)
            days = due_days(store)
            commit(store, days, _done(spread(day_units(store, drafts, days, above)), report)[0])
            report.made = [*hours.names, *days.names]
    except OSError as error:
        hint = "check the directory's rights and space; roll-ups made before stay readable"
        raise Mm2mgrError(f"roll-ups cannot be written to {store}: {error.strerror}", hint=hint) from error
    return report


def one_by_one(units: Sequence[Unit]) -> list[str]:
    """Do units here, one after the other."""
    return [work(unit) for unit in units]


def _done(answers: Sequence[str], report: Report) -> tuple[list[list[str]], list[str]]:
    """Return what was written, and the files that were missing; NotSeenError when the driver does not see the drafts."""
    written: list[list[str]] = []
    missing: list[str] = []
    for answer in answers:
        done = json.loads(answer)
        written += done["written"]
        missing += done["missing"]
        report.samples += done["samples"]
        report.unreadable |= done["unreadable"]
    require_drafts(draft for _, _, draft in written)
    return written, missing
