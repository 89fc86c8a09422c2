"""One task of the job: some hours, or one day, of one range of partition ids, from files to files.

In goes a Unit, out comes what was written and what could not be read. It runs wherever Spark puts it and shares nothing
but the storage; what it writes has no final name until the driver gives it one.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mm2mgr.samples.schema import HOUR_PREFIX, hour_end_ms, hour_start_ms
from mm2mgr.throughput.days import merge_day
from mm2mgr.throughput.hours import (
    IDS_PER_PART,
    hour_before,
    part_name,
    read_hour,
    recoded,
    rollup_directory,
)
from mm2mgr.throughput.parts import write_part
from mm2mgr.throughput.proof import Seen, read_proof, require, unseen
from mm2mgr.throughput.rollup import roll_up, stacked
from mm2mgr.throughput.series import Series, clean, in_blocks, joined, rank_sources, tail


@dataclass(frozen=True)
class Unit:
    """Hours that follow one another (or those to merge into a day, `onto` what it has) and the first id.

    `proof` is where the driver's list of files lies, which whoever does this must see, too.
    """

    store: str
    draft: str
    hours: tuple[str, ...]
    low_id: int
    day: str | None = None
    onto: bool = False
    proof: str = ""

    @property
    def ids(self) -> range:
        return range(self.low_id, self.low_id + IDS_PER_PART)


def work(unit: Unit) -> str:
    """Do the unit; return JSON: `written` as [roll-up, part, draft file], `unreadable` files with reasons, `samples`, and
    the files of the driver's list that were `missing`. NotSeenError where this is not the driver's store.
    """
    done: dict[str, Any] = {"written": [], "unreadable": {}, "samples": 0, "missing": []}
    seen = read_proof(unit.proof)
    if unit.day is None:
        _roll_hours(unit, seen, done)
    else:
        _merge(unit, unit.day, seen, done)
    return json.dumps(done)


def _roll_hours(unit: Unit, seen: Seen, done: dict[str, Any]) -> None:
    """Walk through the hours, each with the last samples of the one before in front, so each is read once."""
    before, names = _cleaned(unit, hour_before(unit.hours[0]), seen, {**done, "unreadable": {}})
    for hour in unit.hours:
        samples, found = _cleaned(unit, hour, seen, done)
        ranks = rank_sources([*names, *found])
        rolled = stacked(
            roll_up(joined(tail(recoded(lead, names, ranks)), recoded(now, found, ranks)), hour_start_ms(hour))
            for lead, now in zip(before, samples, strict=True)
        )
        done["samples"] += sum(map(len, samples))
        if rolled is not None:
            draft = _draft(unit)
            write_part(draft, rolled, list(ranks))
            done["written"].append([f"{HOUR_PREFIX}{hour}", part_name(unit.low_id), str(draft)])
        before, names = samples, found


def _cleaned(unit: Unit, hour: str, seen: Seen, done: dict[str, Any]) -> tuple[list[Series], list[str]]:
    raw, names, bad, files = read_hour(Path(unit.store), hour, unit.ids)
    done["unreadable"].update(bad)
    folder = f"{HOUR_PREFIX}{hour}"
    done["missing"] += [f"{folder}/{name}" for name in unseen(seen.get(folder, ()), files)]
    return [clean(block, hour_start_ms(hour), hour_end_ms(hour)) for block in in_blocks(raw, unit.ids)], names


def _merge(unit: Unit, day: str, seen: Seen, done: dict[str, Any]) -> None:
    taken = [*([day] if unit.onto else []), *(f"{HOUR_PREFIX}{hour}" for hour in unit.hours)]
    parts: list[Path] = []
    for name in taken:
        mine = [part for part in seen.get(name, ()) if part[0] == part_name(unit.low_id)]
        parts += require(rollup_directory(Path(unit.store), name), mine)
    merged, names = merge_day(parts, unit.low_id)
    if len(merged):
        draft = _draft(unit)
        write_part(draft, merged, names)
        done["written"].append([day, part_name(unit.low_id), str(draft)])


def _draft(unit: Unit) -> Path:
    # Spark may run a task twice; each run has its own file, and only those that a finished task names are taken.
    return Path(unit.draft) / f"{unit.low_id}-{uuid.uuid4().hex}.parquet"
