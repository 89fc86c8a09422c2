"""What looks keep of a source that may die: by key the newest, bounded, and the same after the store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.failover.check import PairReadiness, RecoveryPoint
from mm2mgr.failover.kept import SYNCS_KEPT, KeptLooks, thin_syncs
from mm2mgr.failover.syncs import OffsetSync, OffsetSyncLog
from mm2mgr.failover.translation import MirroredEnds
from mm2mgr.observe.failover_rows import check_row, looks_of, readiness_states, rows_of
from mm2mgr.observe.state_file import StorePlace, keep_looks, read_looks, readiness_of, record_check
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.store import CheckStore, LookStore

NOW = 1_800_000_000.0
PAIR = ("a", "b")
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 3)
IDS = {"orders": ("id-o", "id-ao"), "clicks": ("id-c", "id-ac")}


def syncs(partition: TopicPartition, *offsets: tuple[int, int]) -> tuple[OffsetSync, ...]:
    return tuple(OffsetSync(partition, upstream, downstream) for upstream, downstream in offsets)


def look(at: float = NOW, **parts: object) -> KeptLooks:
    """Return a look that read everything at that time."""
    whole = KeptLooks(
        {"app": {ORDERS: 70, CLICKS: 5}, "idle": {}},
        at,
        {ORDERS: MirroredEnds(80, 100, 79), CLICKS: MirroredEnds(0, None, None)},
        at,
        OffsetSyncLog({ORDERS: syncs(ORDERS, (0, 0), (50, 50), (90, 88))}, at - 7),
        at,
        {},
        IDS,
    )
    return replace(whole, **parts)  # type: ignore[arg-type]


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_further_look_replaces_what_it_read_and_what_it_could_not_read_stays_with_its_time() -> None:
    later = KeptLooks({"app": {ORDERS: 75}}, NOW + 60, {ORDERS: MirroredEnds(90, 110, 89)}, NOW + 60)
    kept = look().join(later)
    assert kept.commits == {"app": {ORDERS: 75}}, "a group that is gone is gone"
    assert kept.ends == {ORDERS: MirroredEnds(90, 110, 89)}
    assert kept.syncs == look().syncs
    assert (kept.commits_at, kept.ends_at, kept.syncs_at) == (NOW + 60, NOW + 60, NOW)
    assert kept.age_seconds(NOW + 100) == 100, "it is as old as its oldest part"
    assert later.join(look()) == kept, "whichever was written first"


def test_a_look_at_some_groups_leaves_the_others_with_their_time() -> None:
    some = KeptLooks({"app": {ORDERS: 75}}, group_times={"app": NOW + 60})
    kept = look().join(some)
    assert kept.commits == {"app": {ORDERS: 75}, "idle": {}}
    assert (kept.group_read_at("app"), kept.group_read_at("idle")) == (NOW + 60, NOW)
    assert kept.oldest_at == NOW
    again = kept.join(look(NOW + 30))
    assert (again.group_read_at("app"), again.commits["app"]) == (NOW + 60, {ORDERS: 75})
    assert again.group_read_at("idle") == NOW + 30


def test_what_was_never_read_has_no_age() -> None:
    assert KeptLooks().age_seconds(NOW) is None
    assert look(syncs_at=0.0).age_seconds(NOW) is None
    assert not look(ends_at=0.0).is_whole


def test_syncs_that_compaction_removed_stay_where_the_topics_are_the_same_alone() -> None:
    compacted = OffsetSyncLog({ORDERS: syncs(ORDERS, (90, 88), (120, 118))}, NOW + 50)
    later = look(NOW + 60, syncs=compacted)
    assert look().join(later).syncs.by_partition[ORDERS] == syncs(ORDERS, (0, 0), (50, 50), (90, 88), (120, 118))
    created_again = replace(later, topic_ids={"orders": ("id-o", "another")})
    assert look().join(created_again).syncs.by_partition == compacted.by_partition
    old_brokers = replace(later, topic_ids={})
    assert look(topic_ids={}).join(old_brokers).syncs.by_partition == compacted.by_partition, "nothing tells"
    gone = replace(later, syncs=OffsetSyncLog({}, None))
    assert look().join(gone).syncs.by_partition == {}, "a whole look that has none"


def nearest(syncs: tuple[OffsetSync, ...], offset: int) -> tuple[OffsetSync | None, OffsetSync | None]:
    """Return the syncs next to an offset in the last run in which no offset goes back."""
    run: list[OffsetSync] = []
    for sync in syncs:
        if run and (sync.upstream < run[-1].upstream or sync.downstream < run[-1].downstream):
            run = []
        run.append(sync)
    return (
        next((sync for sync in reversed(run) if sync.upstream <= offset), None),
        next((sync for sync in run if sync.upstream > offset), None),
    )


def test_thinned_syncs_are_few_and_those_next_to_every_offset_stay() -> None:
    for seed in range(25):
        rng = random.Random(seed)
        upstream = downstream = 0
        every: list[tuple[int, int]] = []
        for _ in range(rng.randint(1, 1000)):
            upstream += rng.randint(1, 200)
            downstream += rng.randint(0, 200)
            if rng.random() < 0.001:
                upstream = rng.randint(0, upstream)  # a restart that mirrors again
            every.append((upstream, downstream))
        whole = syncs(ORDERS, *every)
        committed = sorted(rng.randint(0, upstream + 50) for _ in range(rng.randint(0, 10)))
        thin = thin_syncs(whole, committed)
        assert len(thin) <= SYNCS_KEPT + 2 * len(committed)
        assert thin[-1] == whole[-1]
        assert list(thin) == [sync for sync in whole if sync in set(thin)], "in the order of the log"
        assert [nearest(thin, offset) for offset in committed] == [nearest(whole, offset) for offset in committed], seed
        assert thin_syncs(thin, committed) == thin


# --- the store --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> StorePlace:
    return StorePlace(tmp_path / "store", "team", tmp_path / "state" / "team.json")


def test_rows_hold_all_of_a_look() -> None:
    some = replace(look(), group_times={"app": NOW - 5})
    assert looks_of(rows_of(some)) == some
    assert looks_of(rows_of(KeptLooks())) == KeptLooks()
    with pytest.raises(ValueError, match="not complete"):
        looks_of([row._replace(target_offset=None) for row in rows_of(look()) if row.kind == "sync"])


def test_what_is_kept_is_read_by_another_process_and_another_pair_or_owner_has_its_own(place: StorePlace) -> None:
    assert read_looks(place, PAIR) == (None, [])
    assert keep_looks(place, PAIR, look()) == []
    assert keep_looks(place, ("b", "a"), look(commits={"other": {ORDERS: 1}})) == []
    assert keep_looks(place._replace(owner="others"), PAIR, look(commits={"theirs": {}})) == []
    assert read_looks(place, PAIR) == (look(), [])
    text = (
        "from pathlib import Path\n"
        "from mm2mgr.observe.state_file import StorePlace, read_looks\n"
        f"kept, warnings = read_looks(StorePlace(Path({str(place.store)!r}), 'team', Path('x')), ('a', 'b'))\n"
        "print(sorted(kept.commits), kept.commits_at, warnings)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == f"['app', 'idle'] {NOW} []\n"


def test_the_table_has_one_file_per_pair_and_the_newest_of_each_key(place: StorePlace) -> None:
    for minute in range(5):
        at = NOW + 60 * minute
        assert keep_looks(place, PAIR, look(at, commits={"app": {ORDERS: 70 + minute}})) == []
    kept, _ = read_looks(place, PAIR)
    assert kept is not None
    assert (kept.commits, kept.commits_at) == ({"app": {ORDERS: 74}}, NOW + 240)
    table = LookStore(Path(place.store), "team", PAIR)._table
    assert [file.values for file in table.files()] == [("team", "a", "b")]
    row_count = table.files()[0].rows
    assert row_count == len(list(rows_of(kept)))


def test_a_look_that_read_nothing_of_the_source_leaves_what_is_kept(place: StorePlace) -> None:
    keep_looks(place, PAIR, look())
    assert keep_looks(place, PAIR, KeptLooks()) == []
    assert read_looks(place, PAIR)[0] == look()


def test_a_table_that_cannot_be_read_is_a_warning_and_nothing_is_kept(place: StorePlace) -> None:
    keep_looks(place, PAIR, look())
    (file,) = (Path(place.store) / "failover_looks").glob("owner=*/*.parquet")
    file.write_bytes(b"PAR1 no longer")
    kept, warnings = read_looks(place, PAIR)
    assert kept is None
    assert "is not a readable Parquet file" in warnings[0]
    warnings = keep_looks(place, PAIR, KeptLooks({"app": {ORDERS: 9}}, NOW + 9))
    assert "left out" in warnings[0]
    part, warnings = read_looks(place, PAIR)
    assert part is not None
    assert part.commits == {"app": {ORDERS: 9}}
    assert part.age_seconds(NOW) is None, "syncs and ends are not known: never GO"
    assert warnings, "the damaged file is named until a whole look replaces it"
    keep_looks(place, PAIR, look(NOW + 60))
    assert read_looks(place, PAIR) == (look(NOW + 60), [])


def test_a_folder_of_somebody_else_is_left_alone(place: StorePlace) -> None:
    folder = Path(place.store) / "failover_looks"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    assert "is not a table" in keep_looks(place, PAIR, look())[0]
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_row_of_another_shape_is_named_and_left_out(place: StorePlace) -> None:
    keep_looks(place, PAIR, look())
    store = LookStore(Path(place.store), "team", PAIR)
    store.keep(lambda files: [files[0][0]._replace(kind="later-kind")], is_whole=False)
    kept, warnings = read_looks(place, PAIR)
    assert kept is None
    assert "a row of the kind 'later-kind'" in warnings[0]


_WRITER = """
import os, signal, sys
from pathlib import Path
from mm2mgr.observe.failover_rows import check_row, looks_of, readiness_states, rows_of
from mm2mgr.observe.state_file import StorePlace, keep_looks
from mm2mgr.samples.tables import StoredTable
from tests.failover.test_kept import NOW, PAIR, look

place, die_at = StorePlace(Path(sys.argv[1]), "team", Path("x")), sys.argv[2]
was = getattr(StoredTable, die_at)

def dying(self, *args, **more):
    if die_at == "write_file":
        was(self, *args, **more)  # the file is there, and in no commit
    os.kill(os.getpid(), signal.SIGKILL)

setattr(StoredTable, die_at, dying)
keep_looks(place, PAIR, look(NOW + 60))
"""


@pytest.mark.parametrize("die_at", ["write_file", "vacuum"])
def test_a_writer_that_is_killed_leaves_the_look_before_or_its_own(place: StorePlace, die_at: str) -> None:
    keep_looks(place, PAIR, look())
    line = [sys.executable, "-c", _WRITER, str(place.store), die_at]
    done = subprocess.run(line, cwd=Path(__file__).parents[2], env=os.environ, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    expected = look(NOW + 60) if die_at == "vacuum" else look()
    assert read_looks(place, PAIR) == (expected, [])
    assert keep_looks(place, PAIR, look(NOW + 120)) == []
    assert read_looks(place, PAIR) == (look(NOW + 120), [])


def test_looks_of_two_processes_at_the_same_time_are_joined(place: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_looks(place, PAIR, look())
    store, beaten = LookStore, []
    rows = store._rows

    def read_while_another_writes(self: LookStore, file: object) -> object:
        if not beaten:
            beaten.append(file)
            keep_looks(place, PAIR, KeptLooks(ends={ORDERS: MirroredEnds(1, 2, 3)}, ends_at=NOW + 60))
        return rows(self, file)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_rows", read_while_another_writes)
    assert keep_looks(place, PAIR, KeptLooks({"app": {ORDERS: 71}}, NOW + 30)) == []
    kept, _ = read_looks(place, PAIR)
    assert kept is not None
    assert (kept.commits, kept.ends) == ({"app": {ORDERS: 71}}, {ORDERS: MirroredEnds(1, 2, 3)})


# --- checks -----------------------------------------------------------------------------------------------------------


def checked(at: float, **more: object) -> PairReadiness:
    return replace(PairReadiness("a->b", at, recovery=RecoveryPoint(0)), **more)  # type: ignore[arg-type]


def test_the_newest_check_of_a_pair_counts_and_since_when_it_is_not_ready(place: StorePlace) -> None:
    assert readiness_of(place, NOW) == ({}, [])
    unknown = {"source_age_seconds": None}
    days: Mapping[float, Mapping[str, object]] = {0: {}, 60: unknown, 120: unknown}
    for seconds, more in days.items():
        assert record_check(place, check_row(checked(NOW + seconds, **more), "serve")) == []
    states, warnings = readiness_of(place, NOW + 200)
    assert (warnings, states and states.keys()) == ([], {"a->b"})
    assert states is not None
    state = states["a->b"]
    assert (state.verdict, state.is_ready, state.checked_at) == ("not judged", False, NOW + 120)
    assert (state.not_ready_since, state.started_by) == (NOW + 60, "serve")
    assert "no earlier look at it was kept" in state.reason
    assert state.source_at is None
    assert readiness_of(place._replace(owner="others"), NOW) == ({}, [])


def test_checks_are_kept_for_90_days_in_a_file_per_day(place: StorePlace) -> None:
    row = check_row(checked(NOW), "command")
    for age in (100, 89, 1, 0):
        at = row.time_ms - age * 86_400_000
        for more in (0, 1):
            CheckStore(Path(place.store), "team").append([replace(row, time_ms=at + more)], at)
    store = CheckStore(Path(place.store), "team")
    assert len(store.read()) == 6
    assert len(store._table.files()) == 2 + 2, "a day that is over is one file"


def test_checks_of_many_pairs_in_a_day_are_few_files(place: StorePlace) -> None:
    row = check_row(checked(NOW), "serve")
    store = CheckStore(Path(place.store), "team")
    for number in range(45):
        later = replace(row, source=f"s{number % 9}", time_ms=row.time_ms + number)
        store.append([later], later.time_ms)
    assert len(store._table.files()) <= 21
    assert len(store.read()) == 45


def test_a_verdict_of_the_store_that_is_none_is_not_judged() -> None:
    row = replace(check_row(checked(NOW), "serve"), verdict="GO, believe me")
    assert readiness_states([row])["a->b"].verdict == "not judged"


def test_checks_that_cannot_be_read_are_a_warning_and_no_state(place: StorePlace) -> None:
    record_check(place, check_row(checked(NOW), "serve"))
    (file,) = (Path(place.store) / "failover_checks").glob("day=*/*.parquet")
    file.write_bytes(b"nothing")
    states, warnings = readiness_of(place, NOW)
    assert states is None
    assert "is not a readable Parquet file" in warnings[0]
