"""Lag of partitions: what a stored offset says, what the target's end adds, and what must never be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2mgr.observe.lag import PartitionLag
from tests.observe.estate import Estate, estate

FLOW = "orders:A->B"


def first(small: Estate, *, later_seconds: float = 0.0) -> PartitionLag:
    """Look, and return partition 0."""
    return small.look(later_seconds=later_seconds).lags[FLOW].partitions[0]


def arrived(small: Estate, end: int) -> None:
    small.log(0, end, alias="B", topic="A.orders")


def test_the_targets_growth_since_the_stored_offset_was_first_seen_is_no_lag(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    arrived(small, 700)
    seen = first(small)
    assert (seen.lag_records, seen.basis, seen.unchanged_seconds) == (900, "stored offset", None)
    arrived(small, 950)
    seen = first(small, later_seconds=20)
    assert (seen.lag_records, seen.basis, seen.unchanged_seconds) == (650, "target end", 20)
    assert seen.stored_lag_records == 900, "so many would come again after a crash"


def test_a_flush_replaces_what_was_counted_from_the_target(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    arrived(small, 100)
    first(small)
    arrived(small, 600)
    assert first(small, later_seconds=30).lag_records == 400
    small.stored(599)
    seen = first(small, later_seconds=10)
    assert (seen.lag_records, seen.basis) == (400, "stored offset")


def test_what_was_counted_goes_on_over_a_flush(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    arrived(small, 100)
    first(small)
    arrived(small, 600)
    first(small, later_seconds=30)
    arrived(small, 720)
    small.stored(649)
    seen = first(small, later_seconds=10)
    assert (seen.lag_records, seen.basis) == (280, "target end"), (
        "70 records arrived after the flush and before the look"
    )


def test_records_that_came_twice_count_until_the_next_flush_only(small: Estate) -> None:
    small.log(0, 2000)
    small.stored(99)
    arrived(small, 100)
    first(small)
    arrived(small, 600)
    first(small, later_seconds=30)
    arrived(small, 1100)  # the worker was killed, and sends 500 records again
    assert first(small, later_seconds=10).lag_records == 900
    small.stored(599)
    assert first(small, later_seconds=10).lag_records == 1400
    arrived(small, 1200)
    assert first(small, later_seconds=10).lag_records == 1300


def test_a_task_that_has_stored_nothing_yet_is_seen_to_progress(small: Estate) -> None:
    small.log(0, 1000)
    assert first(small).lag_records == 1000
    arrived(small, 300)
    seen = first(small, later_seconds=10)
    assert (seen.lag_records, seen.basis) == (700, "target end")


def test_records_that_came_twice_are_never_a_negative_lag(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(899)
    first(small)
    arrived(small, 5000)
    assert first(small, later_seconds=10).lag_records == 0


@pytest.mark.parametrize(
    "more", ["replication_policy: identity", "delivery: exactly_once"], ids=["anybody may write", "transaction markers"]
)
def test_the_target_counts_only_where_each_new_offset_is_a_mirrored_record(tmp_path: Path, more: str) -> None:
    with estate(tmp_path, more=more) as small:
        topic = "orders" if "identity" in more else "A.orders"
        small.kafka.clusters["B"] = {topic: [(0, 0), (0, 0)]}
        small.log(0, 1000)
        small.stored(99)
        first(small)
        small.log(0, 800, alias="B", topic=topic)
        seen = first(small, later_seconds=10)
    assert (seen.lag_records, seen.basis, seen.arrived) == (900, "stored offset", 800)


def test_the_target_counts_only_with_as_many_partitions(small: Estate) -> None:
    small.kafka.clusters["B"]["A.orders"] = [(0, 0)]
    small.log(0, 1000)
    small.stored(99)
    first(small)
    arrived(small, 500)
    assert first(small, later_seconds=10).basis == "stored offset"


def test_the_lag_of_a_stopped_connector_is_that_of_its_stored_offsets(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    first(small)
    arrived(small, 500)
    small.connect.connectors[small.source].state = "STOPPED"
    found = small.look(later_seconds=10).lags[FLOW]
    assert (found.exact, found.partitions[0].lag_records) == (True, 900)


def test_a_topic_that_was_created_again_does_not_use_what_the_old_one_left(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    first(small)
    arrived(small, 500)
    small.recreate("another")
    assert first(small, later_seconds=10).lag_records == 900


def test_what_could_not_be_read_makes_the_total_a_lower_bound(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(99)
    small.kafka.unread["A"] = {("orders", 1): "no leader"}
    flow = small.flow()
    assert (flow.lag_records, flow.lag_at_least) == (900, True)
    small.kafka.unread["A"] = {("orders", 0): "no leader", ("orders", 1): "no leader"}
    assert small.flow().lag_records is None, "nothing is known, and so not 0"
