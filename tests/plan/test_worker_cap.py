"""`tasks_per_worker` is held by plan: what raises the tasks of a Connect cluster above its workers is blocked, and only that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.connect.client import ConnectClient
from mm2mgr.connect.errors import ConnectError
from mm2mgr.plan.changes import Change, Plan
from mm2mgr.plan.schedule import Saving, waiting
from mm2mgr.plan.worker_cap import ALLOW, TaskCount, WorkerCap
from tests.asking import topics_with
from tests.fake_connect import MIRROR, FakeConnect
from tests.plan.site import Site, actions

NAMES = ("big", "mid", "small")
PARTITIONS = 8
IDLE = ("MirrorCheckpointConnector", "MirrorHeartbeatConnector")
SINK = {"connector.class": "com.acme.Sink", "topics": "anything"}


def tree(*, per_worker: int = 4, count: int | None = 2, more: str = "", **tasks: int) -> str:
    """Return flows from a to east with so many tasks each, and what a worker carries."""
    number = "" if count is None else f", count: {count}"
    lines = [
        f"  {name}: {{sources: [a], targets: [east], topics: {{include: [{name}]}}, tasks: {{max: {most}}}{more}}}"
        for name, most in tasks.items()
    ]
    workers = f"defaults: {{connect: {{workers: {{tasks_per_worker: {per_worker}{number}}}}}}}"
    return "\n".join(["flows:", *lines, workers, ""])


@pytest.fixture
def wide(site: Site) -> Site:
    """A site whose topics have eight partitions each."""
    topics = dict.fromkeys(NAMES, PARTITIONS)
    assert site.kafka
    site.kafka["a"] = topics_with(topics)
    site.east.source_topics = topics
    return site


def source(name: str) -> str:
    return f"mm2.a.east.source.{name}"


def of(plan: Plan, name: str) -> Change:
    return next(change for change in plan.changes if change.connector == source(name))


def blocked(plan: Plan) -> set[str]:
    """Return the flows that are blocked; heartbeats and checkpoints go with them."""
    sources = (change for change in plan.changes if change.type == "source")
    return {change.connector.rpartition(".")[2] for change in sources if change.action == "blocked"}


# --- a plan over real sockets -----------------------------------------------------------------------------------------


def test_what_the_workers_may_not_carry_is_blocked_and_the_rest_goes_on(wide: Site) -> None:
    flows = tree(big=6, mid=4, small=2)
    plan = wide.plan(flows)
    assert blocked(plan) == {"big"}, "2 + 4 fit eight tasks, and 6 more do not"
    change = of(plan, "big")
    says = "12 tasks on 'east': its 2 workers with tasks_per_worker: 4 may have 8"
    assert change.reason == f"{ALLOW}: {says}"
    assert f"--allow {ALLOW}" in change.remedy
    assert plan.has_failed
    wide.apply(plan, flows)
    assert source("big") not in wide.names("east")
    assert {source("mid"), source("small")} <= set(wide.names("east"))


def test_tasks_that_fit_only_with_all_workers_are_warned_of(wide: Site) -> None:
    plan = wide.plan(tree(mid=4, small=2))
    assert not blocked(plan)
    [warning] = of(plan, "mid").warnings
    assert (
        "if one of the 2 workers with tasks_per_worker: 4 of 'east' is lost, its 6 tasks are more than the 4" in warning
    )
    assert of(wide.plan(tree(mid=2, small=2)), "mid").warnings == ()
    assert of(wide.plan(tree(count=1, mid=4)), "mid").warnings == (), "of one worker nothing is left to overload"


def test_it_goes_through_where_it_is_allowed_and_is_warned_of(wide: Site) -> None:
    plan = wide.plan(tree(big=8, mid=4), allow=[ALLOW])
    assert not blocked(plan)
    assert any("12 tasks on 'east'" in warning for warning in of(plan, "big").warnings)


def test_a_number_that_nobody_wrote_blocks_nothing(wide: Site) -> None:
    plan = wide.plan(tree(big=8, mid=8, small=8).replace("tasks_per_worker: 4, ", ""))
    assert not blocked(plan)
    assert of(plan, "big").warnings == ()


def test_partitions_bound_the_tasks_of_a_flow(wide: Site) -> None:
    assert not blocked(wide.plan(tree(big=100))), "eight partitions have eight tasks"
    wide.kafka = None  # no broker answers
    assert blocked(wide.plan(tree(big=100))) == {"big"}


def test_tasks_of_strangers_count_and_their_checkpoints_and_heartbeats_do_not(wide: Site) -> None:
    wide.east.add("theirs", SINK)
    wide.east.connectors["theirs"].forced_tasks = 5
    for kind in ("Checkpoint", "Heartbeat"):
        wide.east.add(kind, {"connector.class": f"{MIRROR}Mirror{kind}Connector"})
        wide.east.connectors[kind].forced_tasks = 9
    assert not blocked(wide.plan(tree(small=3)))
    change = of(wide.plan(tree(mid=4)), "mid")
    assert change.action == "blocked"
    assert "9 tasks on 'east', 5 of them not this tree's: its 2 workers" in change.reason


def test_an_update_is_blocked_where_it_raises_and_never_where_it_lowers(wide: Site) -> None:
    wide.converge(tree(per_worker=20, mid=4, small=4))
    raised = wide.plan(tree(mid=4, small=5))
    assert blocked(raised) == {"small"}
    assert of(raised, "small").config is None
    over = tree(per_worker=1, mid=3, small=4)  # two workers with one task each already have eight
    assert actions(wide.plan(over))[source("mid")] == "update"
    tuned = tree(per_worker=1, mid=4, small=4, more=", source_consumer: {max.poll.records: 400}")
    assert not blocked(wide.plan(tuned)), "what has as many tasks as before"


def test_what_shrinks_or_goes_makes_room_in_the_same_plan(wide: Site) -> None:
    wide.converge(tree(mid=4, small=4))
    assert not blocked(wide.plan(tree(mid=2, small=6)))
    assert not blocked(wide.plan(tree(small=4, big=4), prune=True))
    assert blocked(wide.plan(tree(small=4, big=4))) == {"big"}, "what is left over still has its tasks"


def test_tasks_that_run_beside_the_new_ones_until_they_are_given_up_are_warned_of(wide: Site) -> None:
    wide.converge(tree(mid=1, small=6))
    plan = wide.plan(tree(mid=1, big=6), prune=True)
    assert not blocked(plan)
    warnings = of(plan, "big").warnings
    meanwhile = "up to 13 tasks run on 'east' at first, because those of mm2.a.east.source.small go later: its"
    assert any(meanwhile in warning for warning in warnings), warnings
    raised = of(wide.plan(tree(mid=6, small=2)), "mid").warnings
    assert any("up to 12 tasks run on 'east'" in warning for warning in raised)
    assert not any("up to" in warning for warning in of(wide.plan(tree(mid=2, small=4)), "mid").warnings)


def test_room_of_a_delete_that_is_blocked_is_none(wide: Site) -> None:
    alone = ", heartbeats: false, checkpoints: false"
    wide.converge(tree(mid=4, small=4, more=alone))
    assert not blocked(wide.plan(tree(big=8, more=alone), prune=True))
    assert blocked(wide.plan(tree(big=1, more=alone), prune=True, allow_deletes=0)) == {"mid", "small", "big"}


def test_what_is_blocked_for_another_reason_takes_no_room(wide: Site) -> None:
    wide.converge(tree(mid=4))
    wide.east.add(source("small"), SINK)  # of somebody else, and in the way
    wide.east.connectors[source("small")].forced_tasks = 0
    plan = wide.plan(tree(mid=4, small=1, big=4))
    assert blocked(plan) == {"small"}


def test_what_rests_by_hand_counts_and_what_is_declared_stopped_does_not(wide: Site) -> None:
    wide.converge(tree(mid=4))
    wide.east.connectors[source("mid")].state = "STOPPED"
    assert blocked(wide.plan(tree(mid=4, big=6))) == {"big"}, "it is resumed without a plan"
    stopped = tree(mid=4, big=6).replace("include: [mid]}", "include: [mid]}, state: stopped")
    assert not blocked(wide.plan(stopped))
    wide.converge(stopped)
    assert blocked(wide.plan(tree(mid=4, big=6).replace("include: [mid]}", "include: [mid]}, state: running"))) == {
        "mid"
    }


def test_workers_that_are_seen_count_where_none_are_declared(wide: Site) -> None:
    undeclared = {"count": None}
    first = wide.plan(tree(**undeclared, big=8))
    assert not blocked(first)
    [note] = [note for part in first.clusters for note in part.notes if "tasks_per_worker" in note]
    assert note.startswith("not verified: whether the tasks fit the workers (tasks_per_worker): none has anything yet")
    wide.converge(tree(**undeclared, mid=2))
    wide.east.worker_ids = {0: "w1:8083", 1: "w2:8083", None: "w1:8083"}
    assert not blocked(wide.plan(tree(**undeclared, mid=2, small=6)))
    plan = wide.plan(tree(**undeclared, mid=2, small=7))
    assert "its 2 workers seen at work with tasks_per_worker: 4 may have 8" in of(plan, "small").reason


def test_statuses_that_cannot_be_read_never_pass_silently(wide: Site) -> None:
    wide.converge(tree(count=None, mid=2))

    async def refuse(_: ConnectClient) -> None:
        raise ConnectError("no worker answered")

    wide.patch.setattr(ConnectClient, "statuses", refuse)
    plan = wide.plan(tree(count=None, mid=2, small=1))
    assert blocked(plan) == {"small"}
    assert "they could not be read (no worker answered)" in of(plan, "small").reason
    allowed = wide.plan(tree(count=None, mid=2, small=1), allow=[ALLOW])
    assert any("no worker answered" in warning for warning in of(allowed, "small").warnings)
    assert not blocked(wide.plan(tree(count=2, mid=2, small=1))), "declared workers need no answer"
    assert not blocked(wide.plan(tree(count=None, mid=1))), "what raises nothing neither"


def test_a_saving_that_waits_makes_no_room_yet(wide: Site) -> None:
    wide.converge(tree(mid=4, small=4))

    def waits(plan: Plan) -> Mapping[tuple[str, str], str]:
        savings = {"mid:a->east": Saving(2, changed_seconds=0)}
        return waiting(plan, savings, 3600.0)

    assert not blocked(wide.plan(tree(mid=2, small=6)))
    assert blocked(wide.plan(tree(mid=2, small=6), waits=waits)) == {"small"}


def test_what_another_one_takes_over_stays_while_that_is_blocked(wide: Site) -> None:
    wide.converge(tree(mid=4, small=4))
    assert wide.kafka
    wide.east.add_offsets(source("mid"), "mid", {0: 9}, "a")
    wide.kafka["a"] = topics_with(dict.fromkeys(NAMES, PARTITIONS), {"mid": 10})
    wide.kafka["east"] = topics_with({"a.mid": PARTITIONS}, {"a.mid": 10})
    renamed = tree(mid=6, small=4).replace("  mid: {", "  other: {")
    plan = wide.plan(renamed, prune=True, mirror_again=True)
    assert blocked(plan) == {"other", "mid"}, "else nobody would mirror its topic"
    assert not blocked(wide.plan(renamed.replace("max: 6", "max: 4"), prune=True, mirror_again=True))


def tasks_on(fake: FakeConnect) -> int:
    busy = (name for name, one in fake.connectors.items() if not one.config["connector.class"].endswith(IDLE))
    return sum(fake.task_count(name) for name in busy)


@pytest.mark.parametrize("seed", range(6))
def test_no_apply_ever_brings_tasks_above_the_cap(wide: Site, seed: int) -> None:
    """Random flows, strangers and numbers, from tree to tree; the order of the flows in it means nothing."""
    draw = Random(seed)
    wide.east.add("theirs", SINK)
    wide.east.connectors["theirs"].forced_tasks = draw.randint(0, 4)
    for _ in range(4):
        tasks = {name: draw.randint(1, PARTITIONS + 2) for name in draw.sample(NAMES, draw.randint(1, len(NAMES)))}
        per_worker, count = draw.randint(2, 6), draw.randint(1, 3)
        flows = tree(per_worker=per_worker, count=count, **tasks)
        reversed_flows = tree(per_worker=per_worker, count=count, **dict(reversed(tasks.items())))
        before, prune = tasks_on(wide.east), draw.random() < 0.5
        plan = wide.plan(flows, prune=prune)
        assert blocked(plan) == blocked(wide.plan(reversed_flows, prune=prune)), "order means nothing"
        shown = {name.rpartition(".")[2]: wide.east.task_count(name) for name in wide.names("east")}
        assert not {name for name in blocked(plan) if min(tasks[name], PARTITIONS) <= shown.get(name, 0)}
        wide.apply(plan, flows)
        after = tasks_on(wide.east)
        assert after <= max(per_worker * count, before), (tasks, per_worker, count)


# --- random estates ---------------------------------------------------------------------------------------------------

counts = st.builds(TaskCount, st.integers(0, 12), st.integers(0, 12))
estates = st.builds(
    WorkerCap,
    st.integers(1, 6),
    st.dictionaries(st.sampled_from("abcdefgh"), counts, max_size=8),
    st.integers(1, 6),
    others=st.just(frozenset({"h"})),
)


def judged(cap: WorkerCap, writes: set[str], *, allowed: bool = False) -> tuple[set[str], set[str]]:
    """Return what is blocked, and what is warned of."""
    remarks = list(cap.remarks("w", writes, allowed=allowed))
    return tuple({name for name, remark in remarks if remark.effect == effect} for effect in ("blocks", "warns"))  # type: ignore[return-value]


@given(estates, st.sets(st.sampled_from("abcdefg")), st.randoms(use_true_random=False))
def test_whatever_the_estate(cap: WorkerCap, writes: set[str], random: object) -> None:
    refused, warned = judged(cap, writes)
    grown = {name for name, count in cap.tasks.items() if name in writes and count.after > count.now}
    assert refused <= grown
    assert warned <= grown - refused

    def tasks(written: set[str]) -> int:
        return sum(count.after if name in written else count.now for name, count in cap.tasks.items())

    workers = cap.workers or 0
    most, now = cap.per_worker * workers, tasks(set())
    assert tasks(writes - refused) <= max(most, now), "never above the cap, nor above what runs"
    if tasks(writes) <= max(most, now):
        assert not refused, "a plan that does not raise the tasks, or fits, is never blocked"
    for name in refused:
        assert tasks((writes - refused) | {name}) > max(most, now), "each one that is blocked would not fit"
    assert judged(cap, writes, allowed=True)[0] == set()
    total = tasks(writes - refused)
    together = total + sum(max(0, count.now - count.after) for name, count in cap.tasks.items() if name in writes)
    is_crowded = together > most or (workers > 1 and total > most - cap.per_worker)
    assert bool(warned) == bool(is_crowded and grown - refused)
    shuffled = list(cap.tasks.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert judged(replace(cap, tasks=dict(shuffled)), writes) == (refused, warned), "order means nothing"


@given(estates, st.sets(st.sampled_from("abcdefg")))
def test_workers_that_could_not_be_read_block_whatever_grows(cap: WorkerCap, writes: set[str]) -> None:
    unread = replace(cap, workers=None, unread="no answer")
    grown = {name for name, count in cap.tasks.items() if name in writes and count.after > count.now}
    assert judged(unread, writes) == (grown, set())
    assert judged(unread, writes, allowed=True) == (set(), grown)
