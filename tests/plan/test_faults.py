"""Workers that rebalance, lose answers or die half way: nothing is written twice, and the next apply converges."""

from __future__ import annotations

import random

import pytest

from mm2mgr.apply.waves import Event, Result
from tests.fake_connect import NO_LEADER, REBALANCE, STALE
from tests.plan.site import ON_EAST, ON_WEST, Site, actions, errors


def test_rebalances_are_waited_out(site: Site) -> None:
    site.east.fail_next("POST", "/connectors", 409, STALE, times=2)
    site.east.fail_next("POST", "/connectors", 500, REBALANCE, times=1)
    site.west.fail_next("POST", "/connectors", 409, NO_LEADER, times=1)
    assert errors(site.apply(site.plan(), deadline_seconds=20)) == {}
    assert set(actions(site.plan()).values()) == {"no-op"}


@pytest.mark.parametrize("happened", [True, False])
def test_an_answer_that_is_lost_is_read_back(site: Site, happened: bool) -> None:
    site.east.drop_next("POST", "/connectors", times=1, apply=happened)
    results = site.apply(site.plan(), deadline_seconds=20)
    assert errors(results) == {}
    beats = [one for one in site.east.writes if one.body["name"].endswith("heartbeat")]
    assert len(beats) == (1 if happened else 2)
    assert set(actions(site.plan()).values()) == {"no-op"}


@pytest.mark.parametrize("survived", [1, 3])
def test_a_worker_that_dies_half_way(site: Site, survived: int) -> None:
    def die(event: Event) -> None:
        if isinstance(event, Result) and event.connect == "east" and len(site.east.connectors) >= survived:
            site.east.drop_next("*", "/", times=10**6)

    results = site.apply(site.plan(), report=die, deadline_seconds=2.0)
    failed = errors(results)
    done = {one.connector for one in results if one.error is None}
    assert done == set(site.names("east")) | set(ON_WEST)
    assert failed.keys() == set(ON_EAST) - done
    assert failed
    assert all(error.startswith("Connect cluster 'east', connector 'mm2.a.east.") for error in failed.values())

    down = site.plan(deadline_seconds=2.0)
    assert down.has_failed
    assert down.clusters[0].changes == ()  # unreadable is not empty
    site.east.faults.clear()
    site.forget()
    again = site.plan()
    assert {name for name, action in actions(again).items() if action == "create"} == failed.keys()
    assert errors(site.apply(again)) == {}
    assert len(site.east.writes) == len(failed)
    assert set(actions(site.plan()).values()) == {"no-op"}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_the_next_quiet_apply_converges(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    for fake in site.fakes.values():
        for _ in range(dice.randint(1, 6)):
            method, times = dice.choice(["POST", "GET", "*"]), dice.randint(1, 3)
            if dice.random() < 0.4:
                fake.drop_next(method, "/connectors", times=times, apply=dice.random() < 0.5)
            else:
                fake.fail_next(method, "/connectors", dice.choice([409, 500, 502, 503, 504]), times=times)
    site.apply(site.plan(deadline_seconds=0.5), deadline_seconds=0.5)
    for fake in site.fakes.values():
        fake.faults.clear()
    assert errors(site.converge()) == {}
    assert (site.names("east"), site.names("west")) == (sorted(ON_EAST), sorted(ON_WEST))
    site.forget()
    assert set(actions(site.plan()).values()) == {"no-op"}
