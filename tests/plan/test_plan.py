"""The plan as a value: which action, which keys, in which order. Pure; no wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.comparison.differences import KeyChange, diff
from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import Connector, ConnectorStatus, ConnectorType, RunningConnector
from mm2mgr.defaults import Origin
from mm2mgr.json_values import to_json
from mm2mgr.plan.changes import ClusterPlan, Plan, Wish
from mm2mgr.plan.draft import plan_cluster, with_deletes
from mm2mgr.plan.judges import Facts, judge_parts, too_many_deletes
from mm2mgr.render import CLASSES, OWNER_KEY

OWNER = "team"


def wanted(name: str, kind: str = "source", pair: str = "a->b", **keys: str) -> Connector:
    type_ = cast(ConnectorType, kind)
    config = {"name": name, "connector.class": CLASSES[type_], OWNER_KEY: OWNER, **keys}
    return Connector(name, type_, "w", pair, (f"f:{pair}",), config, {key: Origin("spec", "x") for key in config})


def running(configs: Mapping[str, dict[str, str]], state: str = "") -> dict[str, RunningConnector]:
    """Return what runs with these configs, and shows this state."""
    status = {name: ConnectorStatus(name, state) if state else None for name in configs}
    return {name: RunningConnector(name, config, status=status[name]) for name, config in configs.items()}


def live(name: str, owner: str | None = OWNER, **keys: str) -> dict[str, dict[str, str]]:
    mark = {} if owner is None else {OWNER_KEY: owner}
    return {name: {"name": name, "connector.class": CLASSES["source"], **mark, **keys}}


def planned(desired: list[Connector], found: Mapping[str, Mapping[str, str]], *, prune: bool = False) -> ClusterPlan:
    part = plan_cluster(Ownership(OWNER), "w", desired, running(found))
    return with_deletes(part, running(found)) if prune else part


def test_what_is_not_there_is_created_with_every_key() -> None:
    (change,) = planned([wanted("n", topics="t")], {}).changes
    assert (change.action, change.type, change.flows) == ("create", "source", ("f:a->b",))
    assert {key.kind for key in change.keys} == {"add"}
    assert {key.key: key.after for key in change.keys} == change.config == wanted("n", topics="t").config


def test_what_differs_is_updated_key_by_key() -> None:
    (change,) = planned([wanted("n", same="1", new="2", other="3")], live("n", same="1", other="4", gone="5")).changes
    assert change.action == "update"
    assert [(key.key, key.kind, key.before, key.after) for key in change.keys] == [
        ("gone", "remove", "5", None),
        ("new", "add", None, "2"),
        ("other", "change", "4", "3"),
    ]
    assert change.config == wanted("n", same="1", new="2", other="3").config


def test_what_is_equal_is_left_alone() -> None:
    (change,) = planned([wanted("n", x="1")], live("n", x="1")).changes
    assert (change.action, change.keys, change.config) == ("no-op", (), None)


@pytest.mark.parametrize(("owner", "whose"), [(None, "carries no owner mark"), ("them", "belongs to owner 'them'")])
def test_a_name_that_others_hold_is_blocked_also_if_equal_otherwise(owner: str | None, whose: str) -> None:
    part = planned([wanted("n", x="1")], live("n", owner, x="1"), prune=True)
    (change,) = part.changes
    assert (change.action, change.config) == ("blocked", None)
    assert whose in change.reason
    assert Plan(OWNER, (part,)).has_failed
    assert Plan(OWNER, (part,)).writes == ()


def test_what_is_no_longer_declared_is_named_and_deleted_only_with_prune() -> None:
    found = live("old") | live("theirs", "them") | live("nobodys", None)
    part = planned([], found)
    assert (part.changes, part.left_over, part.unowned) == ((), ("old",), 2)
    part = planned([], found, prune=True)
    assert [(change.connector, change.action, change.type) for change in part.changes] == [("old", "delete", "source")]
    assert (part.left_over, part.unowned) == ((), 2)
    assert {key.kind for key in part.changes[0].keys} == {"remove"}


def test_changes_come_pair_by_pair_heartbeats_first_and_deletes_last() -> None:
    kinds = ["checkpoint", "source", "heartbeat"]
    desired = [wanted(f"{pair}.{kind}", kind, pair) for pair in ("x->y", "a->b") for kind in kinds]
    names = [change.connector for change in planned(desired, live("0"), prune=True).changes]
    assert names == [f"{p}.{k}" for p in ("a->b", "x->y") for k in ("heartbeat", "source", "checkpoint")] + ["0"]


def test_a_cluster_that_could_not_be_read_has_no_changes_and_fails_the_plan() -> None:
    plan = Plan(OWNER, (ClusterPlan("w", error="no URL answered", hint="look"), planned([wanted("n")], {})))
    assert plan.has_failed
    assert plan.counts() == {"create": 1, "update": 0, "delete": 0, "no-op": 0, "blocked": 0}
    said = to_json(plan)["clusters"][0]
    assert (said["error"], said["hint"], said["changes"]) == ("no URL answered", "look", [])


CONFIGS = st.dictionaries(st.sampled_from("abcdef"), st.text(max_size=3), max_size=6)


@given(CONFIGS, CONFIGS)
def test_a_diff_says_exactly_how_to_get_from_one_to_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    result = dict(before)
    for change in diff(before, after):
        assert (change.before, change.after) == (before.get(change.key), after.get(change.key))
        assert change.before != change.after
        if change.after is None:
            del result[change.key]
        else:
            result[change.key] = change.after
    assert result == after


@given(
    st.dictionaries(st.sampled_from("abcd"), CONFIGS), st.dictionaries(st.sampled_from("bcde"), CONFIGS), st.booleans()
)
def test_carrying_out_a_plan_leaves_nothing_to_plan(
    desired: dict[str, dict[str, str]], found: dict[str, dict[str, str]], prune: bool
) -> None:
    connectors = [wanted(name, **keys) for name, keys in desired.items()]
    state: dict[str, Mapping[str, str]] = {}
    for name, keys in found.items():
        state |= live(name, **keys)
    for change in planned(connectors, state, prune=prune).changes:
        if change.config is not None:
            state[change.connector] = change.config
        elif change.action == "delete":
            del state[change.connector]
    again = planned(connectors, state, prune=prune)
    assert {change.action for change in again.changes} <= {"no-op"}
    assert set(again.left_over) == (set() if prune else found.keys() - desired.keys())


def pruned(doomed: int, staying: int) -> list[ClusterPlan]:
    """Two Connect clusters, the first of which loses connectors."""
    keys = [f"n{number}" for number in range(doomed)]
    stays = [wanted(f"s{number}") for number in range(staying)]
    found = {name: config for one in stays for name, config in live(one.name).items()}
    going = {name: config for key in keys for name, config in live(key).items()}
    return [planned([], going, prune=True), planned(stays, found, prune=True)]


@pytest.mark.parametrize(
    ("doomed", "staying", "allowed", "held"),
    [
        (500, 0, 0, True),  # a tree that lost its flows
        (500, 0, 499, True),
        (500, 0, 500, False),
        (10, 0, 0, True),  # all of a small estate
        (1, 0, 0, True),
        (1, 0, 1, False),
        (2, 1, 0, True),
        (1, 1, 0, False),  # half of it
        (5, 5, 0, False),
        (6, 5, 0, True),
        (11, 0, 0, True),
        (11, 43, 0, True),
        (11, 44, 0, False),  # a fifth
        (11, 43, 11, False),
    ],
)
def test_many_deletes_need_a_word(doomed: int, staying: int, allowed: int, held: bool) -> None:
    parts = tuple(judge_parts(Facts(pruned(doomed, staying), Wish(allow_deletes=allowed)), [too_many_deletes]))
    changes = parts[0].changes
    assert {change.action for change in changes} == {"blocked" if held else "delete"}
    assert {change.action for change in parts[1].changes} <= {"no-op"}
    if held:
        assert {change.reason for change in changes} == {
            f"one of {doomed} deletes, of {doomed + staying} connectors of this owner"
        }
        assert {change.remedy for change in changes} == {f"if all of them are intended, add --allow-deletes {doomed}"}
        assert Plan(OWNER, parts).has_failed


def test_key_changes_do_not_print_their_values() -> None:
    assert "hunter2" not in repr(KeyChange("ssl.key.password", "hunter2", "hunter2"))
    (change,) = planned([wanted("n", x="1")], live("n", password="hunter2")).changes
    assert change.before
    assert "hunter2" not in repr(change) + str(to_json(change))
