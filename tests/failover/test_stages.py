"""Stages by what clusters show: who still writes, what counts as quiet, and which journal is of this failover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2mgr.failover.journal import FailoverJournal
from mm2mgr.failover.stages import (
    MirrorFacts,
    PairConnector,
    QuietSource,
    arrived_progress,
    drain_progress,
    goes_on,
    quiet_progress,
    run_verdict,
    stages_of,
    stop_progress,
)
from mm2mgr.partitions import TopicPartition

from .test_check import group_of, pair, position

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
STOPPED = PairConnector("east", "mirror", "source", "STOPPED", rests=True)
FACTS = MirrorFacts(100.0, (STOPPED,), {ORDERS: 10, BILLS: 7}, {ORDERS: 10, BILLS: 7}, {})
JOURNAL = FailoverJournal("f1", "a->east", "team", "planned", 1.0, "ops", {"stop": 1.0})


def quiet_after(*looks: MirrorFacts) -> QuietSource:
    first, *more = looks
    quiet = QuietSource.begin(first, 0.0)
    for number, facts in enumerate(more, 1):
        quiet = quiet.next_look(facts, 5.0 * number, 5.0 * number + 1)
    return quiet


def test_quiet_counts_from_the_end_of_a_look_to_the_begin_of_the_last_one() -> None:
    assert quiet_after(FACTS, FACTS, FACTS).seconds == 10
    assert quiet_progress(quiet_after(FACTS, FACTS, FACTS), FACTS, 10).done
    moved = replace(FACTS, source_ends={ORDERS: 11, BILLS: 7})
    assert quiet_after(FACTS, moved, moved).seconds == 4
    told = quiet_progress(quiet_after(FACTS, moved), moved, 10, ["user importer"])
    assert (told.done, told.text) == (
        False,
        "1 partition still written: orders-0 (+1); Kafka does not tell who writes to a partition; clients with a quota "
        "there: user importer",
    )


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, unread=(BILLS,), source_ends={ORDERS: 10}),
        replace(FACTS, source_ends={ORDERS: 10}),
        replace(FACTS, source_ends={ORDERS: 10, BILLS: 3}),
        replace(FACTS, source_ends={**FACTS.source_ends, TopicPartition("new", 0): 1}),
    ],
)
def test_an_end_that_is_unread_gone_set_back_or_new_is_not_quiet(facts: MirrorFacts) -> None:
    assert quiet_after(FACTS, FACTS, facts).seconds == 0


def test_a_source_that_does_not_answer_is_never_quiet() -> None:
    silent = replace(FACTS, source_ends={}, unknown="a does not answer")
    quiet = quiet_after(silent, silent, silent)
    assert quiet.seconds == 0
    told = quiet_progress(quiet, silent, 5)
    assert (told.done, told.text) == (False, "the ends of the source's logs could not be read (a does not answer)")
    assert quiet_after(silent, silent, FACTS, FACTS, FACTS).seconds == 9, "quiet counts from the first look that saw it"


def test_records_after_the_cutoff_that_could_not_be_read_are_not_none() -> None:
    quiet = quiet_after(FACTS, FACTS, FACTS)
    assert "cutoff" not in quiet_progress(quiet, FACTS, 5).text
    assert "could not be read" in quiet_progress(quiet, replace(FACTS, late=None), 5).text


def test_open_transactions_are_named() -> None:
    facts = replace(FACTS, open_ends={ORDERS: 8, BILLS: 7})
    assert quiet_progress(quiet_after(FACTS, FACTS, FACTS), facts, 5).text == "open transactions: orders-0"


def test_what_is_behind_is_named_and_an_unknown_lag_is_never_done() -> None:
    behind = replace(FACTS, behind={ORDERS: 3}, seconds_behind=90.0)
    assert arrived_progress(behind).text == "3 records not known to be there: orders-0 (3)"
    assert (drain_progress(behind, 120).done, drain_progress(behind, 60).done) == (True, False)
    blind = replace(FACTS, unknown="east does not answer")
    assert (arrived_progress(blind).done, drain_progress(blind, 60).done) == (False, False)


def test_a_connect_cluster_that_does_not_answer_ends_a_planned_failover_and_is_a_risk_in_a_disaster() -> None:
    silent = replace(FACTS, connectors=(), connect_failure="no worker answers")
    assert stop_progress(silent, "planned").blocked
    assert stop_progress(silent, "disaster").done
    assert "is not known" in stop_progress(silent, "disaster").text
    assert not stop_progress(replace(FACTS, connectors=(replace(STOPPED, rests=False),)), "planned").done


def test_which_journal_a_run_goes_on_with() -> None:
    ended = replace(JOURNAL, reached={"stop": 1.0, "ends": 2.0}, source_stored={ORDERS: 10})
    running = replace(FACTS, connectors=(replace(STOPPED, state="RUNNING", rests=False),))
    assert not goes_on(None, FACTS)
    assert goes_on(JOURNAL, running)
    assert not goes_on(replace(JOURNAL, outcome="abandoned"), FACTS)
    assert goes_on(ended, FACTS)
    assert goes_on(replace(ended, outcome="done"), FACTS)
    assert not goes_on(ended, running), "it was started again"
    assert not goes_on(replace(ended, source_stored={ORDERS: 9}), FACTS), "it has run since"
    noted = replace(ended, source_stored=FACTS.stored, target_ends={ORDERS: 10})
    newer = replace(FACTS, stored={**FACTS.stored, TopicPartition("new", 0): 5}, target_ends={ORDERS: 10})
    assert goes_on(noted, newer), "stored offsets that could not be read then"
    newer = replace(newer, target_ends={ORDERS: 10, TopicPartition("new", 0): 5})
    assert not goes_on(noted, newer), "it has mirrored a new topic since"


def test_the_verdict_of_a_run_is_that_of_a_check_but_for_groups_that_are_to_be_written() -> None:
    from mm2mgr.failover.group_offsets import order_groups

    absent = pair(group_of(position(on_target=None)))
    orders = order_groups(absent.groups, {})
    assert absent.verdict.word == "NO-GO"
    verdict = run_verdict(absent, orders)
    assert (verdict.word, verdict.groups_to_write) == ("GO", 1)
    declared = replace(STOPPED, declared=("RUNNING", "x.yaml:3:4"))
    assert "x.yaml:3:4" in run_verdict(absent, orders, [declared]).reasons[0]
    assert run_verdict(absent, orders, [replace(STOPPED, refusal="of another owner")]).word == "NO-GO"


def test_the_order_of_stages_depends_on_the_mode() -> None:
    assert [stage.name for stage in stages_of("disaster")] == [
        "readiness",
        "stop",
        "ends",
        "groups",
        "consumers",
        "back",
    ]
    assert {stage.name for stage in stages_of("planned") if stage.by == "you"} == {"producers", "back", "consumers"}
    assert next(stage for stage in stages_of("cutoff") if stage.name == "producers").by == "mm2mgr"
