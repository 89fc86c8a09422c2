"""losses: the ledger as a table and as JSON, its exit code, and its acknowledgement with who, when and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.observe.losses import LostRange, row_of
from mm2mgr.partitions import TopicPartition
from mm2mgr.samples.schema import LossRow
from mm2mgr.samples.store import LossStore

from .command import Command
from .load import declare

GONE = LostRange("re-created", "topic-id", "old", 500, None, None, 0, 60.0)
PASSED = LostRange("retention", "target", "id", 100, 299, 200, 200, 60.0)
SOME = LostRange("retention", "log-start", "id", 0, 99, 40, 0, None)


def row(flow: str, topic: str, lost: LostRange) -> LossRow:
    return row_of(flow, "a", TopicPartition(topic, 2), lost, 120.0)


@pytest.fixture
def ids(mm2mgr: Command, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Declare flows and put three losses into the ledger, the last of a flow that is not declared; return their ids."""
    monkeypatch.setenv("MM2MGR_WHO", "jo")
    declare(mm2mgr.tree, "a:1", "b:1")
    rows = [
        row("orders:a->hub", "orders", PASSED),
        row("logs:a->hub", "logs.web", SOME),
        row("older:a->hub", "x", GONE),
    ]
    LossStore(mm2mgr.folder / "store", "team").append(rows)
    return [one.id for one in rows]


def losses(mm2mgr: Command, *arguments: str, code: int = 0) -> list[str]:
    """Return the ids that are listed."""
    said = mm2mgr("losses", "--store", "store", *arguments, "-o", "json", code=code)
    return [one["id"] for one in said.json["losses"]]


def test_a_tree_without_losses_is_good(mm2mgr: Command) -> None:
    declare(mm2mgr.tree, "a:1", "b:1")
    said = mm2mgr("losses")
    assert (said.lines, said.err) == (["No loss to acknowledge."], "")
    assert not (mm2mgr.folder / ".mm2mgr").exists()


def test_losses_are_a_table_with_what_to_do(mm2mgr: Command, ids: list[str]) -> None:
    said = mm2mgr("losses", "--store", "store", code=1)
    by_id = {line.split()[0]: " ".join(line.split()) for line in said.lines}
    passed, some, gone = (by_id[one] for one in ids)
    times = "1970-01-01 00:01:00 1970-01-01 00:02:00"
    assert (
        passed
        == f"{ids[0]} orders:a->hub orders-2 100 to 299 200 retention {times} between two looks, counted on the target"
    )
    assert some.startswith(f"{ids[1]} logs:a->hub logs.web-2 0 to 99 up to 40 retention - ")
    assert gone == f"{ids[2]} older:a->hub x-2 from 500 on unknown re-created {times} by the topic id"
    assert (
        "retention: retention deleted them before they were mirrored; give the topic longer retention or the flow more tasks"
        in said.lines
    )
    assert said.lines[-1] == "3 losses to acknowledge: mm2mgr losses --ack ID --reason TEXT"


def test_losses_of_one_flow_declared_or_not(mm2mgr: Command, ids: list[str]) -> None:
    assert losses(mm2mgr, "orders", code=1) == [ids[0]]
    assert losses(mm2mgr, "older:a->hub", code=1) == [ids[2]]
    assert set(losses(mm2mgr, "orders", "older:a->hub", code=1)) == {ids[0], ids[2]}
    assert "nobody" in mm2mgr("losses", "--store", "store", "nobody", code=1).err


def test_an_acknowledged_loss_stays_in_the_ledger_with_who_when_and_why(mm2mgr: Command, ids: list[str]) -> None:
    said = mm2mgr("losses", "--store", "store", "--ack", ids[0], "--reason", "restored", code=1)
    assert said.err == f"acknowledged {ids[0]}: orders:a->hub: orders-2, offsets 100 to 299 (retention)\n"
    assert ids[0] not in said.out
    assert losses(mm2mgr, "--ack", ids[1], "--ack", ids[2]) == []
    (done, *_) = mm2mgr("losses", "--store", "store", "--all", "orders", "-o", "json").json["losses"]
    assert {**done["acknowledged"], "at": ""} == {"who": "jo", "at": "", "reason": "restored"}
    assert f"jo, {done['acknowledged']['at'][:10]}" in mm2mgr("losses", "--store", "store", "--all").out


def test_all_losses_of_a_flow_are_acknowledged_at_once(mm2mgr: Command, ids: list[str]) -> None:
    assert losses(mm2mgr, "orders", "--ack", "all") == []
    assert losses(mm2mgr, code=1) == [ids[1], ids[2]]


def test_an_unknown_id_acknowledges_nothing(mm2mgr: Command, ids: list[str]) -> None:
    said = mm2mgr("losses", "--store", "store", "--ack", ids[0], "--ack", "nope", code=1)
    assert said.err == f"error: no open loss nope\nhint: losses here: {', '.join(losses(mm2mgr, code=1))}\n"
    assert len(losses(mm2mgr, code=1)) == 3


def test_a_reason_without_an_acknowledgement_is_refused(mm2mgr: Command, ids: list[str]) -> None:
    assert "--reason goes with --ack" in mm2mgr("losses", "--reason", "because", code=64).err


def test_losses_of_other_owners_in_the_same_store_are_theirs(mm2mgr: Command, ids: list[str]) -> None:
    LossStore(mm2mgr.folder / "store", "others").append([replace(row("x:a->b", "t", PASSED), id="theirs")])
    assert len(losses(mm2mgr, code=1)) == 3


def test_a_file_of_the_table_that_is_damaged_is_said(mm2mgr: Command, ids: list[str]) -> None:
    (file,) = Path(mm2mgr.folder, "store", "losses").rglob("*.parquet")
    file.write_bytes(b"damaged")
    said = mm2mgr("losses", "--store", "store")
    assert "is not a readable Parquet file" in said.err
    assert "left out" in said.err
