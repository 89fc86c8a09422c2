"""The roll-up job, whether Spark or this process does the work: hours, then the days of whole hours, then what expired.

What it does is in two objects: `RollupReader` reads samples as roll-ups, `ThroughputWriter` puts these into the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from mm2mgr.samples.schema import Store
from mm2mgr.samples.tables import Conflict, StoredTable, by_period
from mm2mgr.throughput.periods_due import days_due, expired_periods, hours_due
from mm2mgr.throughput.rollup import throughput_table
from mm2mgr.throughput.rollup_reader import RollupReader
from mm2mgr.throughput.rollup_writer import Report, ThroughputWriter

Pipeline = Callable[[Store, Mapping[str, str]], Report]
"""Reads what is due with these options of `RollupReader`, and writes it."""


def is_due(store: Store) -> bool:
    """Say whether there is anything to make; Mm2mgrError when the store holds no sample."""
    return bool(hours_due(store).made_from or days_due(throughput_table(store)))


def in_process(store: Store, options: Mapping[str, str]) -> Report:
    """Read and write here, one unit after the other."""
    reader, writer = RollupReader(store, **options), ThroughputWriter(store)
    return writer.commit([writer.write(reader.read(unit)) for unit in reader.partitions()])


def make(store: Store, pipeline: Pipeline = in_process) -> Report:
    """Roll up the hours and merge the days that are due; what is whole stays readable at every moment."""
    report, due, table = Report(), hours_due(store), throughput_table(store)
    table.create()
    for since, until in due.batches():
        report.add(pipeline(store, {"since": since, "until": until}))
    if days_due(table):
        report.add(pipeline(store, {"period": "day"}))
    if report.made:
        _expire(table)
        with suppress(Conflict):
            table.vacuum()
    return report


def _expire(table: StoredTable) -> None:
    state = table.snapshot()
    roll_ups = by_period(state.files)
    with suppress(Conflict):  # the next run does it
        table.replace(state, [file for name in expired_periods(roll_ups) for file in roll_ups[name]], [])
