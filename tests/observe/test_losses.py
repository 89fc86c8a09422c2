"""Losses: what is one, that it stays until it is acknowledged, and that an acknowledged one does not come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mm2mgr.observe.health import Status
from mm2mgr.observe.memory import RecordLoss
from mm2mgr.observe.status import acknowledge, describe
from tests.observe.estate import Estate, sentences, topology_of


def only_loss(status: Status) -> RecordLoss:
    (loss,) = status.losses
    (sentence,) = (one for one in sentences(status.flows[0]) if one.startswith("loss "))
    assert sentence.startswith(f"loss {loss.id}, first seen ")
    assert sentence.endswith(f"; acknowledge it with mm2mgr status --ack {loss.id}")
    assert loss.detail() in sentence
    assert (status.health, status.flows[0].health) == ("problem", "problem")
    return loss


def ack(small: Estate, *ids: str) -> None:
    acknowledge(small.topology, ids or ["all"], options=small.options)


def test_records_that_retention_took_stay_a_loss_until_acknowledged(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    first = only_loss(status := small.status())
    assert (first.kind, first.topic, first.records) == ("retention", "orders", 1000)
    assert first.detail().startswith(
        "up to 1000 records left the source before they were mirrored (retention): orders-0 (1000)"
    )
    assert "longer retention" in first.detail()
    assert status.flows[0].lag_records == 3000, "what is gone is lost, not behind"
    small.stored(4999)
    later = only_loss(small.status(later_seconds=7200))
    assert later == first, "the flow is fine again, and the records are lost as before"
    assert "first seen 2 h ago" in sentences(small.status().flows[0])[0]
    ack(small, first.id)
    status = small.status()
    assert (status.losses, status.health, status.flows[0].problems) == ((), "ok", ())


def test_the_same_incident_does_not_come_back_and_a_further_one_does(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    first = only_loss(small.status())
    ack(small)
    assert small.status(later_seconds=60).losses == (), "the offset is still the one before the gap"
    small.log(2500, 5000)
    further = only_loss(small.status(later_seconds=60))
    assert (further.records, further.id != first.id) == (500, True), "retention took more"
    ack(small)
    assert small.status().losses == ()
    small.stored(3000)
    small.log(4000, 5000)
    assert only_loss(small.status()).records == 999


def test_a_flow_that_is_too_slow_has_one_loss_that_grows(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    first = only_loss(small.status())
    small.log(2200, 5000)
    assert only_loss(small.status()).records == 1200
    small.stored(2299)
    small.log(2400, 5000)
    small.log(50, 60, partition=1)
    small.stored(39, partition=1)
    found = only_loss(small.status())
    assert (found.id, found.records) == (first.id, 1200 + 100 + 10)


@pytest.mark.parametrize(("start", "stored"), [(1000, 999), (1000, 998)])
def test_a_log_that_was_emptied_after_mirroring_lost_nothing(small: Estate, start: int, stored: int) -> None:
    """The second case is a transaction's end marker behind the last record."""
    small.log(start, 1000)
    small.stored(stored)
    flow = small.flow()
    assert (flow.problems, flow.lag_records) == ((), 0)


def test_what_arrived_before_its_offset_was_stored_is_not_lost(small: Estate) -> None:
    """Commits may hang for hours while all is mirrored, and retention passes the offset that is stored."""
    small.log(0, 1000)
    small.stored(999)
    small.log(0, 1000, alias="B", topic="A.orders")
    small.status()
    small.log(4000, 9000)
    small.log(0, 9000, alias="B", topic="A.orders")
    assert small.status(later_seconds=60).losses == ()
    small.log(9500, 9600)
    assert only_loss(small.status(later_seconds=60)).records == 500


def test_heartbeats_are_no_loss(small: Estate) -> None:
    small.kafka.clusters["A"]["heartbeats"] = [(500, 600)]
    small.stored(9, topic="heartbeats")
    config = small.connect.connectors[small.source].config | {"task.assigned.partitions": "orders-0,heartbeats-0"}
    body = [{"id": {"connector": small.source, "task": 0}, "config": config}]
    small.connect.fail_next("GET", f"/connectors/{small.source}/tasks", 200, body, times=9)
    assert small.status().losses == ()


def test_an_offset_at_or_past_the_end(small: Estate) -> None:
    small.log(0, 10)
    small.stored(9)
    assert small.status().losses == ()
    small.stored(10)
    loss = only_loss(small.status())
    assert (loss.kind, loss.records) == ("past-end", 10)
    assert (
        "at or past the end of orders-0 (10 stored): the topic was deleted and created again, or truncated"
        in loss.detail()
    )
    assert "reset these offsets" in loss.detail()
    small.log(0, 500)
    assert only_loss(small.status()).id == loss.id, "the log outgrew the offset, and its first records were skipped"
    ack(small)
    assert small.status().losses == ()


def test_a_topic_that_outgrew_its_old_offset_is_seen_by_its_id(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 5000)
    loss = only_loss(small.status(later_seconds=60))
    assert (loss.kind, loss.records) == ("re-created", 1000)
    assert "orders was deleted and created again: up to 1000 records of the new topic are skipped" in loss.detail()
    small.stored(4999)
    assert only_loss(small.status(later_seconds=60)) == loss
    ack(small)
    assert small.status().health == "ok"
    small.recreate("newer")
    assert only_loss(small.status()).id != loss.id


def test_a_shorter_topic_created_again_is_one_loss_and_not_two(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 10)
    loss = only_loss(small.status())
    assert loss.kind == "re-created"
    small.stored(1049)  # what was on its way when the topic went
    assert only_loss(small.status()) == loss
    ack(small)
    assert small.status().losses == ()


def test_a_topic_read_from_its_new_start_is_a_loss_of_what_the_old_one_held(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 500)
    small.stored(499)
    loss = only_loss(small.status())
    assert (loss.kind, loss.records) == ("re-created", 0)
    assert "its new records are mirrored from the start, records left in the old topic are lost" in loss.detail()


def test_a_topic_created_again_after_its_offsets_were_reset_is_no_loss(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.connect.offsets.clear()
    assert small.status().losses == ()
    small.stored(5)
    assert small.status().losses == ()


def test_what_happened_while_the_source_could_not_be_read_is_seen_afterwards(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.kafka.down.add("A")
    small.recreate("new")
    small.log(0, 5000)
    assert small.status().losses == ()
    small.kafka.down.clear()
    assert only_loss(small.status()).kind == "re-created"
    small.kafka.down.add("A")
    status = small.status()
    assert (len(status.losses), status.flows[0].health) == (1, "problem"), "a loss is shown whatever cannot be read"


def test_a_deleted_topic_is_remembered(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    gone = small.kafka.clusters["A"].pop("orders")
    assert small.status().losses == ()
    small.kafka.clusters["A"]["orders"] = gone
    assert small.status().losses == (), "it was only not shown"
    small.kafka.clusters["A"].pop("orders")
    small.status()
    small.recreate("new")
    small.kafka.clusters["A"]["orders"] = gone
    assert only_loss(small.status()).kind == "re-created"


def test_a_loss_of_a_flow_that_is_not_declared_any_more_is_still_shown(small: Estate, tmp_path: Path) -> None:
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(small.status())
    text = (tmp_path / "tree.yaml").read_text().replace("  orders:\n", "  renamed:\n")
    status = Estate(topology_of(text, tmp_path), small.connect, tmp_path).status()
    assert status.losses == (loss,)
    assert status.flows[0].problems == ()
    assert status.health == "problem"


def test_describe_shows_the_losses_of_its_flow(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(small.status())
    small.kafka.down.add("A")
    found = asyncio.run(
        describe(small.topology, small.connectors, small.topology.flows[0], options=small.options)
    ).to_dict()
    assert found["losses"] == [loss.to_dict()]
    assert found["losses"][0]["partitions"] == {"0": 1000}
