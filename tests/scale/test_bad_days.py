"""500 and 1 000 connectors on 20 Connect clusters on a bad day: what can be reached converges in one apply, the rest is named.

The clock jumps, so the seconds are those that a person would have waited. MM2MGR_SEEDS=N draws N days instead of the gate's.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.cli.command import Said
from tests.scale.conftest import Estate
from tests.scale.estate import CLUSTERS, NONE, Faults

SEEDS = range(int(os.environ.get("MM2MGR_SEEDS", "1")))
DOWN, SLOW = "w3", "w11"
GOOD = [name for number in range(CLUSTERS) if (name := f"w{number}") not in {DOWN, SLOW}]


def bad_day(estate: Estate, faults: Faults = Faults()) -> None:  # noqa: B008  frozen
    """Let all clusters fail now and then, one be down, and one take 10 s for each answer."""
    for harsh in estate.clusters.values():
        harsh.faults = faults
    estate.clusters[DOWN].down, estate.clusters[SLOW].answer_seconds = True, 10.0


def good_day(estate: Estate) -> None:
    for harsh in estate.clusters.values():
        harsh.faults, harsh.down, harsh.answer_seconds = NONE, False, 0.02


def tally(estate: Estate) -> Counter[str]:
    """Count what happened, to see that it was a bad day."""
    return sum((harsh.tally for harsh in estate.clusters.values()), Counter())


def assert_converged(estate: Estate, names: list[str]) -> None:
    wanted, stored = estate.wanted(), estate.stored()
    assert {name: stored[name] for name in names} == {name: wanted[name] for name in names}


def assert_named(said: Said, estate: Estate) -> None:
    """Hold the last lines to naming what did not converge."""
    last = said.out[said.out.rindex("Plan: ") :].splitlines()[1:]
    assert any(
        f"Connect cluster '{DOWN}' could not be read, its changes are not in this number" in line for line in last
    )
    if estate.stored()[SLOW] != estate.wanted()[SLOW]:
        assert any(SLOW in line for line in last[-8:]), last


@pytest.mark.parametrize("seed", SEEDS)
def test_eighteen_clusters_converge_beside_one_that_is_down_and_one_that_is_slow(estate: Estate, seed: int) -> None:
    estate.declare(500, seed)
    bad_day(estate)
    said = estate.mm2mgr("apply", "--yes", code=1)
    assert_converged(estate, GOOD)
    assert min(tally(estate)[each] for each in ("conflict", "lost", "reset")) > 0
    assert_named(said, estate)
    ends = {name: harsh.written_at for name, harsh in estate.clusters.items()}
    assert max(ends[name] for name in GOOD) < ends[SLOW] - 30, "the slow one held the others"

    estate.forget()
    estate.mm2mgr("apply", "--yes", code=1)
    assert set(estate.writes()) <= {SLOW}
    good_day(estate)
    estate.mm2mgr("apply", "--yes")
    assert_converged(estate, list(estate.clusters))
    estate.forget()
    estate.mm2mgr("apply", "--yes")
    assert estate.writes() == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_key_of_a_thousand_connectors_changes_on_a_bad_day(estate: Estate, seed: int) -> None:
    estate.declare(1000, seed)
    for name, configs in estate.wanted().items():
        for connector, config in configs.items():
            estate.clusters[name].fake.add(connector, config)
    estate.write(estate.text().replace("refresh_interval: 10min", "refresh_interval: 7min"))
    bad_day(estate)
    said = estate.mm2mgr("apply", "--yes", code=1)
    assert_converged(estate, GOOD)
    assert min(tally(estate)[each] for each in ("conflict", "lost", "reset", "rebalance")) > 0
    assert_named(said, estate)

    estate.forget()
    estate.mm2mgr("apply", "--yes", code=1)
    assert set(estate.writes()) <= {SLOW}


def test_what_an_apply_asks_and_waits_for(estate: Estate) -> None:
    """Requests are what it costs the workers; the seconds are those of answers alone, 20 ms each."""
    estate.declare(1000, 0)
    begun = estate.clock.seconds
    estate.mm2mgr("apply", "--yes")
    created, waited = tally(estate), estate.clock.seconds - begun
    assert created["write"] == 1000
    assert created["read"] <= 15 * CLUSTERS + 1000, created  # each config is validated once
    assert waited < 3.0, "one after the other, 1 000 creates would take 20 s"
    for harsh in estate.clusters.values():
        harsh.tally.clear()
    begun = estate.clock.seconds
    estate.mm2mgr("plan", "--detailed-exitcode")
    assert tally(estate) == {"read": 2 * CLUSTERS}
    assert estate.clock.seconds - begun < 0.1


def test_a_pause_of_everything_holds_on_18_clusters_and_names_the_others(estate: Estate) -> None:
    estate.declare(100, 0)
    estate.mm2mgr("apply", "--yes", "--wait", "0")
    estate.forget()
    bad_day(estate)
    said = estate.mm2mgr("pause", "--all", "--yes", code=1)
    states = {name: {one.state for one in harsh.fake.connectors.values()} for name, harsh in estate.clusters.items()}
    assert {name: states[name] for name in GOOD} == {name: {"PAUSED"} for name in GOOD}
    unsure = {line.split("/")[0][2:] for line in said.lines if line.startswith(("! ", "~ ")) and ": PAUSED" not in line}
    assert DOWN in unsure
    assert unsure <= {DOWN, SLOW}
    for name in GOOD:
        estate.clusters[name].faults = NONE
    estate.forget()
    estate.mm2mgr("pause", "--all", "--yes", "--wait", "0", code=1)
    assert set(estate.writes()) <= {SLOW}
