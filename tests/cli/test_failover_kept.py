"""What `failover check` keeps of a source, what it says once that is dead, and what `serve --with failover` makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.errors import Mm2mgrError
from mm2mgr.failover.check import PairReadiness, RecoveryPoint
from mm2mgr.failover.kept import KeptLooks
from mm2mgr.failover.syncs import CheckpointLog
from mm2mgr.observe.failover_rows import check_row
from mm2mgr.observe.state_file import StorePlace, keep_looks, read_looks, readiness_of, record_check
from mm2mgr.operations import Workspace, check_and_keep
from mm2mgr.operations.failover import CheckedPair
from mm2mgr.operations.failover_watch import FailoverOrder, FailoverRound, FailoverView, watch_failover
from mm2mgr.partitions import Offsets, TopicPartition
from tests.failover.fake_pair import checkpoint, sync, syncs_of

from .test_failover import FLOWS, ORDERS, PAIR, PAYMENTS, REMOTE, SYNCS, Estate, estate

__all__ = ["estate"]
ALIASES = ("a", "east")


def place_of(estate: Estate) -> StorePlace:
    """Return where the command keeps what it saw."""
    folder = estate.mm2mgr.folder
    return StorePlace(folder / ".mm2mgr" / "samples", "team", folder / "unused")


def damage(estate: Estate, table: str) -> None:
    for file in (Path(place_of(estate).store) / table).rglob("*.parquet"):
        file.write_bytes(b"no longer")


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_check_keeps_syncs_commits_and_ends_of_the_source(estate: Estate) -> None:
    began = time.time()
    estate.check()
    kept, warnings = read_looks(place_of(estate), ALIASES)
    assert warnings == []
    assert kept is not None
    assert kept.is_whole
    assert kept.commits["billing"][ORDERS] == 600
    assert (kept.ends[ORDERS].source, kept.ends[ORDERS].target, kept.ends[ORDERS].stored) == (1_000, 800, 1_000)
    assert kept.syncs.by_partition == estate.source.syncs.by_partition
    assert kept.topic_ids["orders"] == ("a-orders", "east-a.orders")
    assert began - 1 <= (kept.oldest_at or 0) <= time.time()


def test_with_the_source_dead_the_next_check_goes_by_what_the_last_one_kept(estate: Estate) -> None:
    estate.check()
    estate.source.dead = True
    later = estate.check(code=2)
    assert later["verdict"]["word"] == "GO WITH"
    assert 0 < later["source_age_seconds"] < 60
    (group,) = later["groups"]
    assert {position["translated"] for position in group["positions"] if position["topic"] == "orders"} == {400}
    kept, _ = read_looks(place_of(estate), ALIASES)
    estate.check(code=2)
    assert read_looks(place_of(estate), ALIASES)[0] == kept, "a dead source leaves what is kept of it"


def test_kept_looks_that_cannot_be_read_are_a_warning_and_never_go(estate: Estate) -> None:
    estate.check()
    estate.source.dead = True
    damage(estate, "failover_looks")
    done = estate.mm2mgr("failover", "check", PAIR, code=1)
    assert "is not a readable Parquet file" in done.err
    assert "no earlier look at it was kept" in done.out


def test_a_topic_that_was_created_again_on_the_target_makes_kept_syncs_worthless(estate: Estate) -> None:
    estate.check()
    estate.source.dead = True
    estate.target.checkpoints = replace(estate.target.checkpoints, newest={})
    estate.target.ids["a.orders"] = "created again"
    found = estate.check(code=1)
    assert found["verdict"]["word"] == "NO-GO"
    assert {position["translated"] for position in found["groups"][0]["positions"]} <= {None, 0}
    assert found["verdict"]["lost_at_most"] is None, "what was mirrored before is gone, whatever Connect has stored"


def test_a_topic_that_is_gone_from_the_target_is_no_go_with_the_source_dead_and_one_that_is_hidden_is_not_judged(
    estate: Estate,
) -> None:
    estate.source.commits = {"billing": {PAYMENTS: 0}}
    estate.check()
    estate.source.dead = True
    estate.target.refused_topics.add("a.orders")
    hidden = estate.check(code=1)
    assert hidden["verdict"]["word"] == "not judged"
    assert "--operation Describe --topic a.orders" in hidden["unread"][0]["commands"][0]
    estate.target.refused_topics.clear()
    del estate.target.logs[REMOTE]
    assert estate.check(code=1)["verdict"]["word"] == "NO-GO"


def test_a_source_topic_that_this_login_no_longer_sees_is_not_judged(estate: Estate) -> None:
    estate.check()
    estate.source.commits = {"billing": {PAYMENTS: 0}}  # brokers leave out what it may not describe
    estate.source.refused_topics.add("orders")
    estate.site.east.connectors["mm2.a.east.source.orders"].dealt = ["heartbeats-0,payments-0"]
    assert "--operation Describe --topic orders" in estate.check(code=1)["unread"][0]["commands"][0]


def test_a_source_with_other_topics_than_at_the_last_look_is_no_plain_go(estate: Estate) -> None:
    estate.check()
    estate.source.commits.clear()
    estate.source.ids["payments"] = "again"
    del estate.source.logs[ORDERS]
    assert [remark["text"] for remark in estate.check(code=2)["remarks"]] == [
        "1 topic gone from a since the last look (orders)",
        "1 topic created again on a since the last look (payments)",
    ]


def test_groups_that_went_on_after_the_last_look_are_judged_by_their_newer_checkpoints(estate: Estate) -> None:
    estate.source.commits["reset"] = {ORDERS: 300}
    estate.target.commits["reset"] = {REMOTE: 500}
    before, after = time.time() - 60, time.time() + 60
    of_reset = checkpoint("reset", "a.orders", 700, 500)
    estate.target.checkpoints = CheckpointLog({of_reset: before})
    estate.check(code=1)
    estate.source.dead = True
    estate.target.commits |= {"billing": {REMOTE: 500}, "new": {REMOTE: 290}}
    newer = {checkpoint("billing", "a.orders", 700, 500): after, checkpoint("new", "a.orders", 500, 300): after}
    estate.target.checkpoints = CheckpointLog({of_reset: before, **newer})
    states = {group["group"]: (group["state"], group["repeats_at_most"]) for group in estate.check(code=1)["groups"]}
    assert states == {"billing": ("exact", 0), "new": ("repeats", 10), "reset": ("skips", 0)}


def test_groups_that_the_tree_leaves_out_are_left_out_with_the_source_dead_too(estate: Estate) -> None:
    estate.source.commits["rest"] = {ORDERS: 300}
    estate.source.commits["billing"][TopicPartition("debug", 0)] = 3
    estate.site.declare(FLOWS.replace("offsets: true", "offsets: true, groups: {exclude: [rest]}"))
    estate.check(code=2)
    estate.source.dead = True
    found = estate.check(code=2)
    assert [group["group"] for group in found["groups"]] == ["billing"]
    remarks = [remark["text"] for remark in found["remarks"]]
    assert "1 group left out of checkpoints by the tree (rest)" in remarks
    assert any("read 1 topic that this pair does not mirror (debug" in text for text in remarks)


def test_a_check_of_some_groups_keeps_them_and_is_no_verdict_on_the_pair(estate: Estate) -> None:
    estate.source.commits["other"] = {ORDERS: 300}
    estate.check(code=1)
    states, _ = readiness_of(place_of(estate), time.time())
    assert states is not None
    before = states[PAIR]
    estate.source.commits["billing"] = {ORDERS: 999}
    estate.check("--group", "billing", code=2)
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is not None
    assert (kept.commits["billing"][ORDERS], kept.commits["other"][ORDERS]) == (999, 300)
    assert kept.group_read_at("billing") > kept.group_read_at("other")
    assert (readiness_of(place_of(estate), time.time())[0] or {})[PAIR] == before


def test_what_a_login_may_not_read_is_not_kept_as_read(estate: Estate) -> None:
    estate.source.refused_groups = {"billing"}
    estate.check(code=1)
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is not None
    assert (kept.commits, kept.commits_at, kept.age_seconds(time.time())) == ({}, 0.0, None)


def test_kept_syncs_do_not_stand_in_for_a_topic_that_was_deleted_on_a_source_that_answers(estate: Estate) -> None:
    estate.check()
    del estate.source.logs[TopicPartition(SYNCS, 0)]
    (position, _) = estate.check(code=2)["groups"][0]["positions"]
    assert (position["translated"], position["translated_repeats_at_most"]) == (400, 400), "by its checkpoint alone"
    estate.site.east.add_offsets("mm2.a.east.source.orders", "orders", {0: 998}, alias="a")
    assert estate.check(code=1)["verdict"]["word"] == "not judged"


def test_ends_claim_nothing_on_a_target_that_was_not_read(estate: Estate) -> None:
    estate.target.dead = True
    estate.check(code=1)
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is not None
    ends = kept.ends[ORDERS]
    assert (ends.target, ends.source, ends.stored) == (0, 1_000, None)


def test_a_snapshot_keeps_nothing(estate: Estate) -> None:
    from mm2mgr.live.snapshot import Snapshot

    workspace = Workspace((estate.tree,), snapshot=Snapshot({}, time.time()))
    checked = check_and_keep(workspace, PAIR, store=place_of(estate).store)
    assert checked.readiness.verdict.word == "not judged"
    assert not Path(place_of(estate).store).exists()


def test_a_failed_write_of_the_store_is_a_warning_beside_the_verdict(estate: Estate) -> None:
    folder = Path(place_of(estate).store) / "failover_looks"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    done = estate.mm2mgr("failover", "check", PAIR)
    assert "this look is not in it" in done.err
    assert done.out.splitlines()[-1].startswith("GO")


# --- again and again --------------------------------------------------------------------------------------------------

DECLARED = FLOWS.replace("{group_offsets: true}", "{group_offsets: true}, failover: {check_every: 10min}")


class Turns:
    """Turns of a process that watches, on a clock of the test; each wait lets that clock go on."""

    def __init__(self, tree: Path, store: Path, now: Callable[[], float]) -> None:
        self.checked: list[tuple[str, float]] = []
        self.fails = False
        self.now, self.tree, self.store = now, tree, store
        order = FailoverOrder(store)
        self.waits: list[float] = []
        self.turns = watch_failover(Workspace((tree,)), order, self.check, clock=now, wait=self.waits.append)

    def check(self, workspace: Workspace, pair: str, order: FailoverOrder) -> CheckedPair:
        if self.fails:
            raise Mm2mgrError("password=geheim123 was refused")
        self.checked.append((pair, self.now()))
        readiness = PairReadiness(pair, self.now(), recovery=RecoveryPoint(0))
        place = StorePlace(self.store, "team", Path("unused"))
        return CheckedPair(readiness, tuple(record_check(place, check_row(readiness, order.started_by))))

    def turn(self) -> FailoverRound:
        return next(self.turns)


@pytest.fixture
def clock() -> list[float]:
    return [1_800_000_000.25]


@pytest.fixture
def watching(estate: Estate, clock: list[float]) -> Turns:
    estate.site.declare(DECLARED)
    return Turns(estate.tree, Path(place_of(estate).store), lambda: clock[0])


def test_a_pair_is_checked_as_often_as_it_declares(watching: Turns, clock: list[float]) -> None:
    first = watching.turn()
    assert [check.verdict for check in first.checks] == ["GO"]
    assert first.states[PAIR].verdict == "GO"
    for _ in range(24):
        clock[0] += 60
        watching.turn()
    began = 1_800_000_000.25
    assert watching.checked == [(PAIR, began), (PAIR, began + 600), (PAIR, began + 1200)]
    assert all(1.0 <= seconds <= 60.0 for seconds in watching.waits)


def test_another_process_of_the_owner_stands_by_and_takes_over_when_a_check_is_late(
    watching: Turns, clock: list[float]
) -> None:
    other = Turns(watching.tree, watching.store, watching.now)
    watching.turn()
    for _ in range(30):
        clock[0] += 60
        watching.turn()
        other.turn()
    assert len(watching.checked) == 4
    assert other.checked == []
    for _ in range(30):
        clock[0] += 60
        other.turn()
    assert [at - 1_800_000_000.25 for _, at in other.checked] == [1800 + 780, 1800 + 1380], "750 s after the last one"


def test_a_check_that_fails_ends_neither_the_others_nor_the_loop_and_shows_no_secret(
    watching: Turns, clock: list[float]
) -> None:
    watching.fails = True
    (failed,) = watching.turn().checks
    assert failed.error
    assert "geheim123" not in failed.error
    watching.fails = False
    clock[0] += 600
    (good,) = watching.turn().checks
    assert good.verdict == "GO"
    view = FailoverView().after_round(FailoverRound(1, 0.0, (failed,))).after_round(FailoverRound(2, 1.0, (good,)))
    assert view.checks == {PAIR: good}


def test_a_tree_that_declares_no_failover_is_refused_with_the_line_to_write(estate: Estate) -> None:
    with pytest.raises(Mm2mgrError, match="no flow of the tree declares failover") as refusal:
        watch_failover(Workspace((estate.tree,)), FailoverOrder())
    assert "failover: true" in str(refusal.value.hint)


def test_a_store_that_cannot_be_read_is_said_and_checks_go_on(
    estate: Estate, watching: Turns, clock: list[float]
) -> None:
    watching.turn()
    damage(estate, "failover_checks")
    clock[0] += 600
    later = watching.turn()
    assert [check.verdict for check in later.checks] == ["GO"]
    assert "is not a readable Parquet file" in later.warnings[0]
    assert later.states[PAIR].checked_at == clock[0]


def test_the_real_check_runs_inside_the_loop(estate: Estate) -> None:
    estate.site.declare(DECLARED)
    place = place_of(estate)
    turns = watch_failover(Workspace((estate.tree,)), FailoverOrder(place.store), wait=lambda _: True)
    (only,) = list(turns)
    (check,) = only.checks
    assert (check.error, check.verdict, check.group_count) == ("", "GO", 1)
    assert only.states[PAIR].started_by == "serve"
    assert read_looks(place, ALIASES)[0] is not None


def test_kept_syncs_outlive_compaction(estate: Estate) -> None:
    estate.check()
    estate.source.syncs = syncs_of(sync("orders", 999, 799))
    estate.check(code=2)
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is not None
    assert [sync.upstream for sync in kept.syncs.by_partition[ORDERS]] == [200, 600, 999]
    estate.source.dead = True
    (position,) = [
        position for position in estate.check(code=2)["groups"][0]["positions"] if position["topic"] == "orders"
    ]
    assert (position["translated"], position["state"]) == (400, "exact")


def test_keeping_a_look_is_quick_for_many_groups(estate: Estate) -> None:
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is None
    partitions = [TopicPartition(f"t{number}", 0) for number in range(20)]
    looks = KeptLooks({f"g{group}": dict.fromkeys(partitions, group) for group in range(500)}, time.time())
    assert keep_looks(place_of(estate), ALIASES, looks) == []
    kept, _ = read_looks(place_of(estate), ALIASES)
    assert kept is not None
    assert kept.commits == looks.commits


# --- topics that are made anew on the source --------------------------------------------------------------------------


def make_anew(estate: Estate, at: str = "new-orders") -> None:
    """Delete `orders` on the source, create it again, and fill it beyond what was mirrored of the old one."""
    estate.source.ids["orders"] = at
    estate.source.commits["billing"][ORDERS] = 700
    estate.source.records[ORDERS] = [
        mark._replace(value=f"{at}{mark.offset}") for mark in estate.source.records[ORDERS]
    ]


def position_of(told: dict[str, object]) -> dict[str, object]:
    (group,) = told["groups"]  # type: ignore[misc]
    return next(each for each in group["positions"] if each["topic"] == "orders")  # type: ignore[call-overload,no-any-return]


def test_a_topic_made_anew_and_filled_beyond_what_was_mirrored_is_never_judged_by_the_old(estate: Estate) -> None:
    estate.check()
    make_anew(estate)
    for source_is_dead in (False, False, True):  # the next looks know it, too
        estate.source.dead = source_is_dead
        told = estate.check("--sample", "0", code=1)
        assert position_of(told)["translated"] is None
        assert "the topic was made anew on a after 20" in str(position_of(told)["reason"])
        text = estate.text(code=1)
        assert "1 topic made anew on a after" in text
        assert "offsets reset" in text
    estate.source.dead = False
    # Reset, it is mirrored from its start on, behind the old records.
    estate.source.logs[ORDERS], estate.target.logs[REMOTE] = estate.source.logs[ORDERS], Offsets(0, 1_600)
    more = (sync("orders", 200, 800), sync("orders", 700, 1_300), sync("orders", 999, 1_599))
    (old,) = estate.source.syncs.by_partition.values()
    estate.source.syncs = syncs_of(*old, *more)
    told = estate.check("--translated", "--sample", "0", code=0)
    assert position_of(told)["translated"] == 1_300


def test_a_topic_made_anew_on_both_sides_is_judged_by_what_is_there(estate: Estate) -> None:
    estate.check()
    make_anew(estate)
    estate.target.ids["a.orders"] = "new"
    told = estate.check("--translated", "--sample", "0", code=2)
    assert position_of(told)["translated"] == 500
    assert not any("made anew" in remark["text"] for remark in told["remarks"])
