"""`start:` on the command line: what plan, apply and a later plan say, with a fake Connect cluster and brokers without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.questions import PlaceInLogs
from mm2mgr.log_places import LogPosition, LogPositions
from mm2mgr.partitions import Offsets
from tests.asking import answer_kafka
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .load import PAIR_HEAD, addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
SOURCE = "mm2.a.b.source.orders"
TREE = (
    PAIR_HEAD
    + "  orders: {{sources: [a], targets: [b], topics: {{include: [orders]}}, {start}checkpoints: false, heartbeats: false}}\n"
)


@pytest.fixture
def fake(mm2mgr: Command, mock_cluster: KafkaAccess, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConnect]:
    """A topic of four partitions with ten records in the first one; a group of MirrorMaker 1 has read six of them."""

    def place(_access: KafkaAccess, question: PlaceInLogs) -> LogPositions:
        assert question.place == "group:mirrormaker1"
        log = {p: Offsets(0, 10 if p.partition == 0 else 0) for p in question.partitions}
        return LogPositions({p: LogPosition(log[p], 6 if p.partition == 0 else None) for p in log}, members=1)

    answer_kafka(monkeypatch, places=place)
    fake = FakeConnect(source_topics={"orders": 4})
    with serving(fake) as url:
        a, b = addresses(mock_cluster)
        write(mm2mgr.tree, x=TREE.format(a=a, b=b, url=url, start="start: {group: mirrormaker1}, "))
        produce(mock_cluster, "orders", 10)
        yield fake


def test_plan_and_apply_say_where_it_begins(mm2mgr: Command, fake: FakeConnect) -> None:
    planned = mm2mgr("plan").lines
    change = next(line for line in planned if SOURCE in line)
    assert change.endswith(
        "begins where group 'mirrormaker1' goes on, unless offsets are stored under its name; skips 6 records of 4 partitions"
    )
    assert any("takes 1 of 1 topics, 4 partitions, 4 records to copy: orders" in line for line in planned)
    warnings = [line for line in planned if "! warning" in line]
    assert warnings == [
        f"  ! warning {SOURCE}  group 'mirrormaker1' has no offset in orders-1, orders-2, orders-3: there it begins at the first record",
        f"  ! warning {SOURCE}  group 'mirrormaker1' has 1 member: what it reads after apply has looked it up, this flow"
        " mirrors, too (where it is another mirror, stop it before apply)",
    ]
    (json_change,) = mm2mgr("plan", "-o", "json").json["clusters"][0]["changes"]
    assert json_change["start"]["skipped"] == 6
    mm2mgr("apply", "--yes", "--wait", "0")
    assert [entry["offset"] for entry in fake.offsets[SOURCE].values()] == [5]
    assert "0 to create, 0 to update, 0 to delete, 1 unchanged" in mm2mgr("plan").out
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("{group: mirrormaker1}", "latest"))
    assert (
        "start: latest of orders:a->b changes nothing: what exists began with start: group:mirrormaker1, and goes on from"
        " its stored offsets; mm2mgr offsets reset stores others"
    ) in mm2mgr("plan").out
    assert "nothing" in mm2mgr("apply", "--yes", "--wait", "0").out


def test_a_plan_file_is_applied_with_more_records_skipped(mm2mgr: Command, fake: FakeConnect) -> None:
    mm2mgr("plan", "--out", "reviewed.json")
    mm2mgr("apply", "reviewed.json", "--yes", "--wait", "0")
    assert [entry["offset"] for entry in fake.offsets[SOURCE].values()] == [5]


@pytest.mark.parametrize(
    "start",
    ["tomorrow", "[latest]", "{group: ''}", "{group: a, topic: b}", "{groups: a}", "5", "true", "1969-01-01", "-2h"],
)
def test_what_is_no_place_is_an_error_with_its_line(mm2mgr: Command, fake: FakeConnect, start: str) -> None:
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("{group: mirrormaker1}", start))
    said = mm2mgr("plan", code=1).err
    assert f"{tree.name}:8" in said
    assert "latest, earliest, a time such as 2026-11-26T10:00 (UTC), a time back such as 2h, or {group: NAME}" in said
    assert fake.writes == []


@pytest.mark.parametrize(
    "start", ["latest", "2026-11-26", "2026-11-26T10:00", "2026-11-26 10:00:00+01:00", "90min", "'2h'"]
)
def test_what_is_a_place(mm2mgr: Command, fake: FakeConnect, start: str) -> None:
    tree = next(mm2mgr.tree.glob("*.yaml"))
    tree.write_text(tree.read_text().replace("{group: mirrormaker1}", start))
    expected = {
        "2026-11-26": "2026-11-26T00:00:00Z",
        "2026-11-26T10:00": "2026-11-26T10:00:00Z",
        "2026-11-26 10:00:00+01:00": "2026-11-26T09:00:00Z",
        "'2h'": "2h",
    }
    config = mm2mgr("render", "-o", "json").json
    assert expected.get(start, start) in str(config)
