"""What makes a flow ok, waiting or unknown, and what is said about its lag."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mm2mgr.json_values import to_json
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import TREE, Estate, estate, kinds, sentences, topology_of


def test_a_flow_whose_records_all_arrived_is_ok(small: Estate) -> None:
    small.log(0, 10)
    small.stored(9)
    flow = small.flow()
    assert (flow.health, flow.state, flow.lag_records, flow.problems) == ("ok", "RUNNING", 0, ())
    assert flow.partitions_per_task == {0: 1, 1: 1}
    assert flow.offsets_note == ""


def test_lag_is_source_end_minus_the_next_offset(small: Estate) -> None:
    small.log(0, 100)
    small.stored(59)
    small.log(5, 25, partition=1)
    flow = small.flow()
    assert flow.lag_records == 40 + 20
    first, second = flow.lag_partitions
    assert (first.partition.partition, first.lag_records, first.task) == (0, 40, 0)
    assert (second.lag_records, to_json(second)["note"]) == (20, "nothing stored yet")
    assert "workers store offsets every 60 s (flush_interval)" in flow.offsets_note
    assert flow.lag_age_seconds == 60.0
    assert "nothing stored yet for 1 partitions" in flow.offsets_note


def test_records_that_wait_are_not_ok_until_something_moved(small: Estate) -> None:
    small.log(0, 100)
    small.stored(59)
    assert small.flow().health == "waiting"
    small.log(0, 20, alias="B", topic="A.orders")
    moved = small.flow(later_seconds=10)
    assert (moved.health, moved.lag_records) == ("ok", 20), (
        "what arrived since the stored offset was first seen is no lag"
    )
    assert "in the last 10 s the target received 20 records, of which the stored offsets show 0" in moved.offsets_note
    assert small.flow(later_seconds=1).health == "ok", "a second look right after must not take it back"


def test_end_offsets_are_no_numbers_of_records_where_workers_write_in_transactions(tmp_path: Path) -> None:
    with estate(tmp_path, more="delivery: exactly_once", exactly_once=True) as small:
        small.log(0, 1000)
        small.log(0, 501, alias="B", topic="A.orders")
        note = small.flow().offsets_note
        assert "their remote topics hold 501 records and transaction markers already" in note
        small.stored(499)
        small.log(0, 1002, alias="B", topic="A.orders")
        note = small.flow(later_seconds=10).offsets_note
        assert "the target got" not in note, "stored in the same transaction: what more there is, is markers"
        assert "workers store offsets" not in note


def test_progress_of_stored_offsets_alone_counts_too(small: Estate) -> None:
    small.kafka.down.add("B")
    small.log(0, 100)
    small.stored(9)
    assert small.flow().health == "waiting"
    small.stored(49)
    flow = small.flow(later_seconds=60)
    assert flow.health == "ok"
    assert "the target could not be read" in flow.offsets_note


def test_a_target_that_went_away_is_not_ok_by_what_was_stored_before(small: Estate) -> None:
    small.log(0, 100)
    small.stored(9)
    assert small.flow().health == "waiting"
    small.kafka.down.add("B")
    small.stored(49)
    gone = small.flow(later_seconds=60)
    assert (gone.health, kinds(gone)) == ("unknown", [])
    assert "kafka B" in small.status().failures
    still = small.flow(later_seconds=160)
    assert (still.health, kinds(still)) == ("problem", ["no-progress"])
    assert "B does not answer mm2mgr either: start its brokers, restart no task" in sentences(still)[0]
    small.kafka.down.clear()
    small.log(0, 90, alias="B", topic="A.orders")
    assert small.flow(later_seconds=5).health == "ok"


def test_workers_whose_own_kafka_is_down_are_told_by_that(small: Estate) -> None:
    """They answer for states from memory, and for tasks and offsets not at all."""
    small.log(0, 100)
    small.stored(9)
    assert "live on B" not in str(small.flow().notes)
    for path in ("tasks", "offsets"):
        small.connect.fail_next("GET", f"/connectors/{small.source}/{path}", 404, "no answer", times=99)
    assert "live on B" not in str(small.flow().notes), "its own Kafka answers"
    small.kafka.down.add("B")
    flow = small.flow()
    assert (flow.health, flow.problems) == ("unknown", ())
    [note] = [note for note in flow.notes if "live on B, which does not answer mm2mgr either" in note]
    assert "restart nothing" in note


def test_offsets_that_live_on_a_target_that_is_down_are_told_by_that(tmp_path: Path) -> None:
    """Those of an exactly-once flow whose workers live elsewhere."""
    fake = FakeConnect(exactly_once=True, source_topics={"orders": 2})
    with serving(fake) as url:
        text = TREE.format(url=url, more="delivery: exactly_once\n    run_on: cb").replace("kafka: B", "kafka: C")
        text = text.replace("connect:", '  C: {bootstrap_servers: "c:9092"}\nconnect:', 1)
        apart = Estate(topology_of(text, tmp_path), fake, tmp_path)
        apart.log(0, 100)
        fake.fail_next("GET", f"/connectors/{apart.source}/offsets", 404, "no answer", times=99)
        assert "live on" not in str(apart.flow().notes)
        apart.kafka.down.add("B")
        (note,) = [note for note in apart.flow().notes if "live on" in note]
    assert note == "its stored offsets live on B, which does not answer mm2mgr either: start its brokers"


def test_what_is_on_the_target_already_is_said(small: Estate) -> None:
    small.log(0, 100)
    small.log(0, 90, alias="B", topic="A.orders")
    assert "nothing stored yet for 1 partitions, but their remote topics hold 90 records already" in (
        small.flow().offsets_note
    )


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_flow_at_rest_is_shown_as_such_and_is_a_problem_at_once(small: Estate, state: str) -> None:
    small.log(0, 100)
    small.stored(9)
    small.connect.connectors[small.source].state = state
    assert small.flow().health == "problem"
    flow = small.flow(later_seconds=10_000)
    assert (flow.state, flow.health, flow.lag_records) == (state, "problem", 90)
    (problem,) = flow.problems
    assert (problem.kind, problem.evidence.endangers_records) == ("paused-by-hand", False)
    assert any(state in note for note in flow.notes)
    assert ("exact" in flow.offsets_note) == (state == "STOPPED")


def test_one_record_behind_for_ever_may_be_a_transaction_marker(small: Estate) -> None:
    small.log(0, 100)
    small.stored(98)
    small.flow()
    flow = small.flow(later_seconds=1000)
    assert (flow.health, flow.problems) == ("waiting", ())
    assert "transaction's end marker" in flow.offsets_note


def test_heartbeats_do_not_count_as_lag_but_show_that_an_idle_flow_is_stuck(small: Estate) -> None:
    small.kafka.clusters["A"]["heartbeats"] = [(0, 60)]
    config = small.connect.connectors[small.source].config | {
        "task.assigned.partitions": "orders-0,orders-1,heartbeats-0"
    }
    body = [{"id": {"connector": small.source, "task": 0}, "config": config}]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=9)
    first = small.flow()
    assert (first.health, first.lag_records) == ("ok", 0)
    small.log(0, 140, topic="heartbeats")
    later = small.flow(later_seconds=80)
    assert (later.health, later.lag_records) == ("problem", 0)
    assert sentences(later)[0].startswith("no progress for 80 s")


def test_a_new_topic_waits_for_the_refresh_and_is_a_problem_after_it(small: Estate) -> None:
    small.kafka.clusters["A"]["orders.new"] = [(0, 0)]
    early = small.flow()
    assert (early.health, early.problems) == ("waiting", ())
    assert any("1 partitions have no task" in note for note in early.notes)
    late = small.flow(later_seconds=601)
    assert late.health == "problem"
    assert "partition orders.new-0 not assigned to any task for 10 min" in sentences(late)[0]
    assert "check that" in sentences(late)[0]


def test_a_topic_deleted_at_the_source_is_a_note(small: Estate) -> None:
    del small.kafka.clusters["A"]["orders"]
    small.kafka.clusters["A"]["orders2"] = [(0, 0)]
    flow = small.flow()
    assert any("no longer has: orders" in note for note in flow.notes)


def test_without_the_source_lag_is_unknown_not_zero(small: Estate) -> None:
    small.kafka.down.add("A")
    flow = small.flow()
    assert (flow.health, flow.lag_records, flow.state) == ("unknown", None, "RUNNING")
    assert "A: no broker answered" in flow.offsets_note
    assert small.status().failures["kafka A"].hint == "check the network"


def test_without_the_offsets_api_lag_is_unknown(tmp_path: Path) -> None:
    with estate(tmp_path, version="3.4.0") as old:
        flow = old.flow()
    assert (flow.health, flow.lag_records) == ("unknown", None)
    assert "stored offsets could not be read" in flow.offsets_note


def test_a_connect_cluster_that_is_down_is_unknown_and_hides_nothing_else(tmp_path: Path) -> None:
    with estate(tmp_path) as gone:
        pass
    status = gone.status()
    assert (status.flows[0].health, status.flows[0].state) == ("unknown", "unknown")
    assert "connect cb" in status.failures
    assert status.health == "unknown"
    assert status.flows[0].flow == "orders:A->B"


def test_auto_offset_reset_latest_does_not_owe_old_records(tmp_path: Path) -> None:
    with estate(tmp_path, more="source_consumer: {auto.offset.reset: latest}") as latest:
        latest.log(0, 1000)
        assert latest.flow().lag_records == 0


@pytest.mark.parametrize(("begins_at", "lag"), [("earliest", 40), ("latest", 0)])
def test_an_offset_past_the_end_of_a_topic_that_was_created_again_is_no_lag_of_zero(
    tmp_path: Path, begins_at: str, lag: int
) -> None:
    """A task that finds no such offset begins where its consumer's auto.offset.reset says."""
    with estate(tmp_path, more=f"source_consumer: {{auto.offset.reset: {begins_at}}}") as small:
        small.log(0, 1000)
        small.stored(999)
        assert small.flow().lag_records == 0
        small.log(0, 40)
        flow = small.flow()
    assert flow.lag_records == lag
    assert "the stored offset is past the end of orders-0" in flow.offsets_note
    assert [to_json(one)["note"] for one in flow.lag_partitions] == ["stored offset is past the end"] * (lag > 0)


def test_the_status_is_json_and_says_it_once(small: Estate) -> None:
    small.log(0, 10)
    data = json.loads(json.dumps(to_json(small.status())))
    assert data["counts"] == {"problem": 0, "unknown": 0, "waiting": 1, "ok": 0}
    flow = data["flows"][0]
    assert flow["partitions_per_task"] == {"0": 1, "1": 1}
    assert flow["lag_partitions"][0]["log_end"] == 10
    assert [one["type"] for one in data["companions"]] == ["checkpoint", "heartbeat"]
    assert {one["health"] for one in data["companions"]} == {"ok"}
