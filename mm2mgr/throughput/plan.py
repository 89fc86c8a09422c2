"""What the job has to do, and how its results get their names: decided and done by the driver alone.

A roll-up is a directory with a part for every range of ids, and a hidden list of what it was made from, written last.
Parts replace parts of the same name, so at no moment is an hour absent or counted twice; a crash in between leaves no list,
and the next run makes the roll-up again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm2mgr.errors import Mm2mgrError
from mm2mgr.files import listed
from mm2mgr.locks import Locked, locked
from mm2mgr.samples.schema import DAY_PREFIX, HOUR_PREFIX, ROLLUPS
from mm2mgr.throughput.hours import IDS_PER_PART, hour_before, mark_of, rollup_directory
from mm2mgr.throughput.proof import Seen, write_proof
from mm2mgr.throughput.unit import Unit

MADE_FROM = ".made-from.json"
_VERSION = "roll-up 1"  # another way to compute makes every roll-up again
_HOURS_PER_UNIT = 12  # each unit reads one hour more than it rolls up
_DRAFTS = ".drafts"


@dataclass(frozen=True)
class Due:
    """Roll-ups to make: their names with the marks of what they are made from."""

    marks: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        return sorted(self.marks)


@contextmanager
def alone(store: Path) -> Iterator[Path]:
    """Be the only job that writes roll-ups of this store; yields a folder for drafts, empty now and gone afterwards."""
    rollups = store / ROLLUPS
    rollups.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked(rollups / ".lock", f"another throughput job is at work on {store}", 0))
        except Locked as error:
            hint = "wait until it is done; `mm2mgr throughput --show` reads what there is"
            raise Mm2mgrError(error.message, hint=hint) from error
        drafts = rollups / _DRAFTS
        shutil.rmtree(drafts, ignore_errors=True)  # of a job that was killed
        drafts.mkdir()
        try:
            yield drafts
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def due_hours(store: Path, files: Mapping[str, Sequence[Path]]) -> Due:
    """Find the hours whose samples, or whose samples of the hour before, are not those of their roll-up.

    Samples of the hour before that are gone by now (retention) are no reason: the roll-up has seen them.
    """
    due = {}
    for hour, paths in files.items():
        name = f"{HOUR_PREFIX}{hour}"
        mark = {"version": _VERSION, "hour": mark_of(paths), "before": mark_of(files.get(hour_before(hour), ()))}
        mark["parts"] = mark_of(_parts(store, name))
        old = made_from(store, name)
        if not mark["before"] and old and old.get("before"):
            mark["before"] = old["before"]
        if old != mark:
            due[f"{HOUR_PREFIX}{hour}"] = mark
    return Due(due)


def due_days(store: Path) -> Due:
    """Find the days whose roll-up is not made from their hours' present ones; the newest hour is in none, it still grows."""
    hours = finished(store, HOUR_PREFIX)
    days: dict[str, list[str]] = {}
    for hour in hours[:-1]:
        days.setdefault(hour[:10], []).append(hour)
    due = {}
    for day, of_day in days.items():
        parts = {hour: mark_of(_parts(store, f"{HOUR_PREFIX}{hour}")) for hour in of_day}
        mark = {"version": _VERSION, "hours": parts, "over": day < hours[-1][:10]}
        mark["parts"] = mark_of(_parts(store, f"{DAY_PREFIX}{day}"))
        if made_from(store, f"{DAY_PREFIX}{day}") != mark:
            due[f"{DAY_PREFIX}{day}"] = mark
    return Due(due)


def hours_seen(due: Due) -> Seen:
    """Return the sample files that the due hours are made from, by folder."""
    before = {
        f"{HOUR_PREFIX}{hour_before(name.removeprefix(HOUR_PREFIX))}": due.marks[name]["before"] for name in due.names
    }
    return before | {name: due.marks[name]["hour"] for name in due.names}


def days_seen(due: Due) -> Seen:
    """Return the parts that the due days are made from, by roll-up."""
    hours = {f"{HOUR_PREFIX}{hour}": parts for mark in due.marks.values() for hour, parts in mark["hours"].items()}
    return hours | {name: mark["parts"] for name, mark in due.marks.items()}


def hour_units(store: Path, drafts: Path, due: Due, next_id: int) -> list[Unit]:
    """Cut the due hours into units: neighbours together, one range of ids each."""
    proof = write_proof(drafts, hours_seen(due))
    runs: list[list[str]] = []
    for hour in (name.removeprefix(HOUR_PREFIX) for name in due.names):
        if runs and runs[-1][-1] == hour_before(hour) and len(runs[-1]) < _HOURS_PER_UNIT:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    lows = range(0, max(next_id, 1), IDS_PER_PART)
    return [Unit(str(store), str(drafts), tuple(run), low, proof=proof) for run in runs for low in lows]


def day_units(store: Path, drafts: Path, due: Due, next_id: int) -> list[Unit]:
    """Cut the due days into units of one range of ids.

    A day that goes on takes only the hours that are new onto what it has; once it is over it is merged anew, so that its
    last digits do not depend on how often that was.
    """
    units, proof = [], write_proof(drafts, days_seen(due))
    for day in due.names:
        mark, old = due.marks[day], made_from(store, day)
        onto = bool(old) and not mark["over"] and old["hours"].items() <= mark["hours"].items()
        hours = tuple(hour for hour in mark["hours"] if not onto or hour not in old["hours"])
        units += [
            Unit(str(store), str(drafts), hours, low, day, onto, proof)
            for low in range(0, max(next_id, 1), IDS_PER_PART)
        ]
    return units


def commit(store: Path, due: Due, written: Iterable[Sequence[str]]) -> None:
    """Give the drafts of what is due their names and write down what each was made from; other parts of it are removed."""
    parts: dict[str, dict[str, str]] = {name: {} for name in due.names}
    for name, part, draft in written:
        if name in parts:
            parts[name][part] = draft
    for name, drafts in parts.items():
        target = rollup_directory(store, name)
        target.mkdir(parents=True, exist_ok=True)
        _forget_day(store, name.removeprefix(HOUR_PREFIX))
        (target / MADE_FROM).unlink(missing_ok=True)
        for part, draft in drafts.items():
            os.replace(draft, target / part)
        for surplus in _parts(store, name):
            if surplus.name not in drafts:
                surplus.unlink()
        note = target / f"{MADE_FROM}.draft"
        made = {**due.marks[name], "parts": mark_of(_parts(store, name))}
        note.write_text(json.dumps(made), encoding="utf-8")
        os.replace(note, target / MADE_FROM)


def still_there(store: Path, due: Due) -> Due:
    """Leave out hours whose samples retention took meanwhile: what was read of them must not replace a whole roll-up."""
    return Due({name: mark for name, mark in due.marks.items() if (store / name).is_dir()})


def _forget_day(store: Path, hour: str) -> None:
    """Take the list from a day that holds this hour as it was: nobody reads the day until it is made anew."""
    day = f"{DAY_PREFIX}{hour[:10]}"
    if hour in (made_from(store, day) or {"hours": ()})["hours"]:
        (rollup_directory(store, day) / MADE_FROM).unlink(missing_ok=True)


def finished(store: Path, prefix: str) -> list[str]:
    """Return the hours or days whose roll-up is whole, oldest first."""
    return sorted(path.parent.name.removeprefix(prefix) for path in _lists(store, prefix))


def _lists(store: Path, prefix: str) -> Iterator[Path]:
    return (path for folder in listed(store / ROLLUPS, f"{prefix}*") if (path := folder / MADE_FROM).is_file())


def _parts(store: Path, name: str) -> list[Path]:
    return listed(rollup_directory(store, name), "part-*.parquet")


def made_from(store: Path, name: str) -> Any:
    """Return what a roll-up was made from, None where it is not whole."""
    try:
        found = json.loads((rollup_directory(store, name) / MADE_FROM).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    keys = {"version", "parts", "hours" if name.startswith(DAY_PREFIX) else "hour"}
    return found if isinstance(found, dict) and keys <= found.keys() else None
