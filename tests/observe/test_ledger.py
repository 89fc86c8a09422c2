"""Losses as status sees them: what is one, that it stays until it is acknowledged, and that an acknowledged one does not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.json_values import to_json
from mm2mgr.observe import state_file
from mm2mgr.observe.losses import Acknowledgement, LossEntry
from mm2mgr.observe.state_file import load
from mm2mgr.problems.health import Status
from mm2mgr.problems.status import acknowledge, describe, read_losses
from mm2mgr.samples.schema import LossRow
from mm2mgr.samples.store import LossStore
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import TREE, Estate, sentences, topology_of

ACK = Acknowledgement("jo", 77.0, "restored")


def ranges(status: Status) -> list[tuple[str, int, int | None, int | None]]:
    """Return cause, first and last offset and records of each open loss of a status, in which they are problems."""
    assert (status.health, status.flows[0].health) == (
        ("problem", "problem") if status.losses else (status.health,) * 2
    )
    assert bool(status.flows[0].problems) == bool(status.losses)
    return [(one.cause, one.first_offset, one.last_offset, one.records) for one in status.losses]


def only_loss(status: Status) -> LossEntry:
    (loss,) = status.losses
    assert ranges(status)
    return loss


def ack(small: Estate, *ids: str) -> None:
    acknowledge(small.topology, ids or ["all"], ACK, options=small.options)


def mirrored(small: Estate, end: int) -> None:
    """Set where the target's log ends."""
    small.log(0, end, alias="B", topic="A.orders")


def test_records_that_retention_took_stay_a_loss_until_acknowledged(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    first = only_loss(status := small.status())
    assert ranges(status) == [("retention", 1000, 1999, 1000)]
    assert (str(first.partition), first.cluster, first.evidence, first.since) == ("orders-0", "A", "log-start", None)
    assert status.flows[0].lag_records == 3000, "what is gone is lost, not behind"
    mirrored(small, 3000)
    small.stored(4999)
    assert only_loss(small.status(later_seconds=7200)) == first, (
        "the flow is fine again, and the records are lost as before"
    )
    ack(small, first.id)
    status = small.status()
    assert (status.losses, status.health, status.flows[0].problems) == ((), "ok", ())
    (entry,) = read_losses(small.topology, small.options)[0]
    assert entry == replace(first, acknowledged=ACK), "it stays in the ledger, with who, when and why"


def test_the_same_incident_does_not_come_back_and_a_further_one_does(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    first = only_loss(small.status())
    ack(small)
    assert small.status(later_seconds=60).losses == (), "the offset is still the one before the gap"
    small.log(2500, 5000)
    further = only_loss(small.status(later_seconds=60))
    assert (further.first_offset, further.last_offset, further.id != first.id) == (2000, 2499, True), (
        "retention took more"
    )
    ack(small)
    assert small.status().losses == ()
    small.stored(3000)
    mirrored(small, 501)
    small.status(later_seconds=60)
    small.log(4000, 5000)
    assert ranges(small.status(later_seconds=60)) == [("retention", 3001, 3999, 999)]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "RUNNING"])
def test_what_retention_takes_before_anything_was_stored_is_a_loss(small: Estate, state: str) -> None:
    """Applied, paused, and nothing mirrored yet: what was deleted before the first look is not known, the rest is."""
    connector = small.connect.connectors[small.source]
    connector.state = state
    small.log(40, 100)
    assert small.status().losses == ()
    small.log(90, 160)
    loss = small.status(later_seconds=60).losses[0]
    assert (loss.cause, loss.offsets_text, loss.records, loss.least_records) == ("retention", "40 to 89", 50, 50)
    small.log(95, 160)
    (grown,) = small.status(later_seconds=60).losses
    assert (grown.id, grown.offsets_text) == (loss.id, "40 to 94")
    connector.state = "RUNNING"
    mirrored(small, 65)
    small.stored(159)
    assert small.status(later_seconds=60).losses == (grown,), "what was left has arrived"


@pytest.mark.parametrize("changed", [{"source.consumer.auto.offset.reset": "latest"}, {"transforms": "drop"}])
def test_a_flow_that_does_not_begin_at_the_start_of_the_log_has_lost_nothing(
    small: Estate, changed: dict[str, str]
) -> None:
    small.connect.connectors[small.source].config |= changed
    small.log(40, 100)
    assert small.status().losses == ()
    small.log(90, 160)
    assert small.status(later_seconds=60).losses == ()


def test_a_flow_that_is_too_slow_has_one_loss_that_grows(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    small.log(0, 40, partition=1)
    small.stored(39, partition=1)
    first = only_loss(small.status())
    small.log(2200, 5000)
    grown = only_loss(small.status(later_seconds=60))
    assert (grown.id, grown.first_offset, grown.last_offset, grown.records) == (first.id, 1000, 2199, 1200)
    small.log(50, 60, partition=1)
    assert ranges(small.status(later_seconds=60)) == [("retention", 1000, 2199, 1200), ("retention", 40, 49, 10)]


def test_records_passed_over_while_nobody_looked_are_found_afterwards(small: Estate) -> None:
    """The last look was before the records were produced; then they were deleted, and the flow is level again."""
    small.log(0, 1000)
    small.stored(999)
    mirrored(small, 1000)
    small.status()
    looked_at = small.now
    small.log(3000, 9000)
    small.stored(8999)
    mirrored(small, 1000 + 6000)
    loss = only_loss(status := small.status(later_seconds=3600))
    assert ranges(status) == [("retention", 1000, 2999, 2000)]
    assert (loss.least_records, loss.evidence, loss.since, loss.seen) == (2000, "target", looked_at, small.now)


def test_a_healthy_flow_that_nobody_looked_at_for_longer_than_retention_lost_nothing(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    mirrored(small, 1000)
    small.status()
    small.log(50_000, 60_000)
    small.stored(59_900)
    mirrored(small, 59_950)
    assert small.status(later_seconds=90_000).losses == (), "50 records are on their way, or lost: not decided yet"
    small.stored(59_999)
    mirrored(small, 60_000)
    assert small.status(later_seconds=60).losses == ()


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
    mirrored(small, 1000)
    small.status()
    small.log(4000, 9000)
    mirrored(small, 9000)
    assert small.status(later_seconds=60).losses == ()
    small.log(9500, 9600)
    (loss,) = small.status(later_seconds=60).losses
    assert (loss.first_offset, loss.last_offset) == (1000, 9499)
    assert loss.least_records == 500, "9000 had arrived"
    assert loss.records == 600, "or the task has read the 100 in the log, too"


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
    loss = only_loss(status := small.status(later_seconds=1))
    assert ranges(status) == [("past-end", 10, 10, 1)]
    small.log(0, 500)
    assert only_loss(small.status(later_seconds=1)) == loss, (
        "the log outgrew the offset, and its first records were skipped"
    )
    ack(small)
    assert small.status().losses == ()


def test_a_topic_that_outgrew_its_old_offset_is_seen_by_its_id(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 5000)
    found = small.status(later_seconds=60)
    assert sorted(ranges(found)) == [("re-created", 0, 999, 1000), ("re-created", 1000, None, None)]
    assert {one.topic_id for one in found.losses} == {"new", "A-orders"}
    small.stored(4999)
    assert small.status(later_seconds=60).losses == found.losses
    ack(small)
    assert small.status().health == "ok"
    small.recreate("newer")
    assert {one.topic_id for one in small.status().losses} == {"new", "newer"}


def test_a_shorter_topic_created_again_is_named_once(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 10)
    assert sorted(ranges(small.status())) == [("re-created", 0, 999, 1000), ("re-created", 1000, None, None)]
    small.stored(1049)  # what was on its way when the topic went
    grown = small.status(later_seconds=1)
    assert sorted(ranges(grown)) == [("re-created", 0, 1049, 1050), ("re-created", 1000, None, None)]
    ack(small)
    assert small.status().losses == ()


def test_a_topic_read_from_its_new_start_is_a_loss_of_what_the_old_one_held(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.log(0, 500)
    small.stored(499)
    assert ranges(small.status()) == [("re-created", 1000, None, None)]


@pytest.mark.parametrize(("allowed", "creates"), [("true", True), (None, True), ("false", False)])
def test_a_flow_that_creates_deleted_topics_itself_is_named(small: Estate, allowed: str | None, creates: bool) -> None:
    config = small.connect.connectors[small.source].config
    config.pop("source.consumer.allow.auto.create.topics")
    config.update({"source.consumer.allow.auto.create.topics": allowed} if allowed else {})
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    (lost,) = (one for one in small.flow().problems if one.kind == "records-lost")
    assert to_json(lost.evidence)["flow_creates_topics"] is creates
    (said,) = (one for one in sentences(small.flow()) if "acknowledge" in one)
    assert ("created again, perhaps by this flow's own consumer" in said) is creates


def test_a_topic_created_again_after_its_offsets_were_reset_is_named_when_offsets_are_stored(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.recreate("new")
    small.connect.offsets.clear()
    assert small.status().losses == ()
    small.stored(5)
    assert ranges(small.status()) == [("re-created", 1000, None, None)], "nobody saw what the old one held last"


@pytest.mark.parametrize("is_known_before", [True, False])
def test_a_look_without_topic_ids_hides_no_topic_that_is_created_again(small: Estate, is_known_before: bool) -> None:
    small.log(0, 1000)
    small.stored(999)
    if is_known_before:
        small.status()
    small.kafka.without_ids.add("A")
    status = small.status()
    assert [text for text in status.warnings if "kafka A: no broker gave the ids of topics in time" in text]
    small.kafka.without_ids.clear()
    if not is_known_before:
        small.status()
    small.recreate("new")
    small.log(0, 5000)
    small.kafka.without_ids.add("A")
    assert small.status().losses == ()
    small.kafka.without_ids.clear()
    assert {loss.cause for loss in small.status().losses} == {"re-created"}


def test_what_happened_while_the_source_could_not_be_read_is_seen_afterwards(small: Estate) -> None:
    small.log(0, 1000)
    small.stored(999)
    small.status()
    small.kafka.down.add("A")
    small.recreate("new")
    small.log(0, 5000)
    assert small.status().losses == ()
    small.kafka.down.clear()
    assert {one.cause for one in small.status().losses} == {"re-created"}
    small.kafka.down.add("A")
    status = small.status()
    assert (len(status.losses), status.flows[0].health) == (2, "problem"), "a loss is shown whatever cannot be read"


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
    assert {one.cause for one in small.status().losses} == {"re-created"}


def test_a_loss_of_a_flow_that_is_not_declared_any_more_is_still_shown(small: Estate, tmp_path: Path) -> None:
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(small.status())
    text = (tmp_path / "tree.yaml").read_text().replace("  orders:\n", "  renamed:\n")
    status = Estate(topology_of(text, tmp_path), small.connect, tmp_path).status()
    assert status.losses == (loss,)
    assert [one.kind for one in status.flows[0].problems] == ["overlap"], "the connector of the old name still runs"
    assert status.health == "problem"


def test_describe_shows_the_losses_of_its_flow(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(small.status())
    small.kafka.down.add("A")
    found = to_json(
        asyncio.run(describe(small.topology, small.connectors, small.topology.flows[0], options=small.options))
    )
    assert found["losses"] == [to_json(loss)]


# --- several processes, and a table that cannot be written --------------------------------------------------------------


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[tuple[Estate, Estate]]:
    """Serve one estate that two machines look at: one table, and a memory each."""
    fake = FakeConnect()
    with serving(fake) as url:
        one, other = (Estate(topology_of(TREE.format(url=url, more=""), tmp_path), fake, tmp_path) for _ in range(2))
        other.kafka, other.memory_file = one.kafka, tmp_path / "elsewhere" / "tester.json"
        yield one, other


def test_two_machines_that_see_the_same_loss_have_one_entry(twins: tuple[Estate, Estate]) -> None:
    one, other = twins
    one.log(0, 1000)
    one.stored(999)
    mirrored(one, 1000)
    one.status()
    other.status()
    one.log(1500, 1600)
    loss = only_loss(one.status(later_seconds=60))
    assert only_loss(other.status(later_seconds=90)) == loss
    ack(other, loss.id)
    assert one.status().losses == (), "what one of them acknowledged"
    assert other.status().losses == ()


def test_a_restart_of_everything_but_the_table_keeps_losses(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(small.status())
    small.memory_file.unlink()
    assert [one.id for one in small.status(later_seconds=60).losses] == [loss.id]


def test_what_cannot_be_written_to_the_table_waits_in_the_memory(small: Estate) -> None:
    small.store.write_text("a file")
    small.log(2000, 5000)
    small.stored(999)
    loss = only_loss(status := small.status())
    (warning,) = status.warnings
    assert warning.startswith("the table of losses: ")
    assert warning.endswith(f"; 1 row kept in {small.memory_file} until then")
    assert only_loss(small.status()) == loss
    ack(small, loss.id)
    assert small.status().losses == ()
    small.store.unlink()
    assert small.status().warnings == ()
    assert load(small.memory_file).unwritten == ()
    assert {row.kind for row in rows(small)} == {"loss", "acknowledgement"}


def rows(small: Estate) -> list[LossRow]:
    return LossStore(small.store, "tester").read()


def test_a_process_that_dies_between_table_and_memory_writes_nothing_twice(small: Estate) -> None:
    small.log(2000, 5000)
    small.stored(999)
    small.store.write_text("a file")
    small.status()
    small.store.unlink()
    LossStore(small.store, "tester").append(load(small.memory_file).unwritten)  # and it dies before it forgets them
    assert len(small.status().losses) == 1
    assert len(rows(small)) == 2
    assert len(set(rows(small))) == 1


def test_without_the_packages_for_tables_losses_stay_in_the_memory(
    small: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.log(2000, 5000)
    small.stored(999)
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "find_spec", lambda name: None)
        loss = only_loss(status := small.status())
        assert (status.warnings, small.store.exists()) == ((), False)
    assert only_loss(small.status()) == loss
    assert len(rows(small)) == 1, "they move when the packages are there"
    monkeypatch.setattr(state_file, "find_spec", lambda name: None)
    (warning,) = small.status().warnings
    assert "needs the Python package deltalake" in warning
