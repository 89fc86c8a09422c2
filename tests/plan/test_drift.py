"""Drift as a value: which keys and states count as changed by hand, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mm2mgr.comparison.ownership import Ownership
from mm2mgr.connectors import ConnectorStatus, RunningConnector
from mm2mgr.json_values import to_json
from mm2mgr.plan.drift import Drift, LastApplied, drifts, last_applied
from mm2mgr.plan.history import History, HistoryEntry
from mm2mgr.secrets import MASK, mask_config
from tests.plan.test_plan import live, wanted

SECRET = "source.cluster.ssl.key.password"


def running(config: Mapping[str, str], state: str = "RUNNING") -> dict[str, RunningConnector]:
    return {"n": RunningConnector("n", dict(config), status=ConnectorStatus("n", state))}


def found(config: Mapping[str, str] | None, last: LastApplied, state: str = "RUNNING", **keys: Any) -> Drift | None:
    """Return the drift of the connector `n` of owner `team`, whose tree has `keys`."""
    here = {} if config is None else running(config, state)
    return next(drifts("w", Ownership("team"), [wanted("n", **keys)], {"n": last}, here), None)


def applied(**keys: str) -> LastApplied:
    return LastApplied(mask_config({**live("n")["n"], "name": "n", **keys}))


def config(**keys: str) -> dict[str, str]:
    return {**live("n")["n"], "name": "n", **keys}


def test_only_keys_that_differ_from_what_was_applied_are_named_whatever_the_tree_says() -> None:
    assert found(config(a="1"), applied(a="1"), a="edited in the tree") is None
    drift = found(config(a="2", new="x"), applied(a="1", gone="y"))
    assert drift is not None
    assert [(key.key, key.before, key.after) for key in drift.keys] == [
        ("a", "1", "2"),
        ("gone", "y", None),
        ("new", None, "x"),
    ]
    assert drift.compared_with == "history"


def test_of_secrets_only_their_presence_counts_and_none_is_shown() -> None:
    assert found(config(**{SECRET: "other than before"}), applied(**{SECRET: "hunter2hunter2"})) is None
    assert found(config(), applied(**{SECRET: "hunter2hunter2"})) is not None
    drift = found(config(**{SECRET: "hunter3hunter3"}), applied())
    assert drift is not None
    assert "hunter3" not in str(to_json(drift))
    assert [(key["before"], key["after"]) for key in to_json(drift)["keys"]] == [(None, MASK)]


def test_a_masked_part_stands_for_anything() -> None:
    jaas = 'x.PlainLoginModule required username="{}" password="{}";'
    key = "source.cluster.sasl.jaas.config"
    assert found(config(**{key: jaas.format("u", "new-password")}), applied(**{key: jaas.format("u", "old")})) is None
    assert found(config(**{key: jaas.format("x", "old")}), applied(**{key: jaas.format("u", "old")})) is not None


def test_a_lost_owner_mark_a_deleted_connector_and_one_of_others() -> None:
    mark = config()
    del mark["mm2mgr.owner"]
    drift = found(mark, applied())
    assert drift is not None
    assert to_json(drift)["owner_mark"] == "gone"
    deleted = found(None, applied())
    assert deleted is not None
    assert deleted.deleted
    assert found(None, LastApplied()) is None, "it may never have been created"
    assert found(mark, LastApplied()) is None, "it was never ours"


def test_a_connector_that_another_owner_took_over_is_no_drift_unless_the_tree_still_has_it() -> None:
    theirs = config(**{"mm2mgr.owner": "others"})
    assert list(drifts("w", Ownership("team"), [], {"n": applied()}, running(theirs))) == []
    assert found(theirs, applied()) is not None


def test_without_history_the_tree_is_compared() -> None:
    drift = found(config(a="2"), LastApplied(), a="1")
    assert drift is not None
    assert (drift.compared_with, [key.key for key in drift.keys]) == ("tree", ["a"])


def test_marks_of_an_unfinished_move_are_no_drift() -> None:
    assert found(config(**{"mm2mgr.journal": "{}"}), applied()) is None


@pytest.mark.parametrize(
    ("chosen", "shown", "drifted"),
    [
        (None, "RUNNING", None),
        (None, "PAUSED", ("RUNNING", "PAUSED")),
        ("PAUSED", "PAUSED", None),
        ("PAUSED", "RUNNING", ("PAUSED", "RUNNING")),
        ("STOPPED", "PAUSED", ("STOPPED", "PAUSED")),
        ("RUNNING", "FAILED", None),
        (None, "", None),
    ],
)
def test_a_state_that_a_command_chose_is_no_drift(chosen: str | None, shown: str, drifted: object) -> None:
    drift = found(config(), LastApplied(applied().config, chosen), shown)
    assert (drift.state if drift else None) == drifted


def entry(number: int, action: str, outcome: str = "done", **more: Any) -> HistoryEntry:
    when = f"2026-01-01T00:00:{number:02d}"
    return HistoryEntry(f"1-{number}", when, "ann", "", "apply", "team", "w", "n", (), action, outcome=outcome, **more)


def test_what_a_killed_command_may_have_written_is_no_drift() -> None:
    key = {"key": "a", "kind": "change", "before": "1", "after": "2"}
    entries = (entry(1, "create"), entry(2, "update", "begun", keys=(key,)))
    last = last_applied(History(entries, {("w", "n"): dict(applied(a="1").config or {})}), "w")["n"]
    assert found(config(a="2"), last) is None
    assert found(config(a="1"), last) is None
    assert found(config(a="3"), last) is not None


def test_the_newest_choice_of_a_state_counts_and_a_new_connector_has_none() -> None:
    pause = {"before": "RUNNING", "after": "PAUSED"}
    entries = [entry(1, "create"), entry(2, "update", state=pause), entry(3, "update")]
    assert last_applied(History(tuple(entries)), "w")["n"].state == "PAUSED"
    assert last_applied(History((*entries, entry(4, "create"))), "w")["n"].state is None
    failed = last_applied(History((entry(1, "update", "failed", state=pause),)), "w")["n"]
    assert failed.state is None, "a verb that failed chose nothing"


def test_a_set_in_another_order_is_no_drift() -> None:
    assert found(config(topics="b, a"), applied(topics="a,b")) is None
    assert found(config(topics="b,a"), LastApplied(), topics="a,b") is None
    assert found(config(topics="b,c"), applied(topics="a,b")) is not None
    assert found(config(transforms="b,a"), applied(transforms="a,b")) is not None
