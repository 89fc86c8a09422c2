"""Commands that name a flow which has lanes: a fake Connect cluster, and brokers without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mm2mgr.kafka.access import KafkaAccess
from tests.clock import jumping
from tests.fake_connect import FakeConnect, serving
from tests.spec.trees import write

from .command import Command
from .load import PAIR_HEAD, addresses, produce

pytestmark = pytest.mark.usefixtures("impatient")
OWN, HEAVY = "mm2.a.b.source.all", "mm2.a.b.source.all.heavy"
TREE = (
    PAIR_HEAD
    + """\
  all:
    {{sources: [a], targets: [b], topics: {{include: [orders, logs]}}, checkpoints: false, heartbeats: false,
    balance: {{lanes: {{heavy: [orders]}}}}}}
"""
)


@pytest.fixture
def connect(mm2mgr: Command, mock_cluster: KafkaAccess) -> Iterator[FakeConnect]:
    fake = FakeConnect(source_topics={"orders": 1, "logs": 1})
    with serving(fake) as url, jumping():
        a, b = addresses(mock_cluster)
        write(mm2mgr.tree, x=TREE.format(a=a, b=b, url=url))
        for topic in ("orders", "logs"):
            produce(mock_cluster, topic, 10)
        mm2mgr("apply", "--yes", "--wait", "0")
        yield fake


def test_describe_shows_the_flow_s_own_connector_and_each_lane(mm2mgr: Command, connect: FakeConnect) -> None:
    for name, connector in (("all", OWN), ("all:a->b", OWN), ("a->b", OWN), ("all.heavy", HEAVY)):
        out = mm2mgr("describe", name).out
        assert f"{connector}: RUNNING" in out
    lines = [line.split() for line in out.splitlines()]
    (include,) = [line for line in lines if line[:1] == ["topics.include"]]
    assert include[1:3] == ["orders", "spec"]


def test_a_topic_of_a_lane_is_reset_there(mm2mgr: Command, connect: FakeConnect) -> None:
    connect.add_offsets(OWN, "logs", {0: 5}, alias="a")
    connect.add_offsets(HEAVY, "orders", {0: 5}, alias="a")
    mm2mgr("stop", "all", "--yes")
    done = mm2mgr(
        "offsets", "reset", "all", "--topic", "orders", "--partition", "0", "--to", "2", "--yes", "-o", "json"
    ).json
    assert [flow["flow"] for flow in done["flows"]] == ["all.heavy:a->b"]
    assert [entry["offset"] for entry in connect.offsets[HEAVY].values()] == [1]
    assert [entry["offset"] for entry in connect.offsets[OWN].values()] == [5]
    mm2mgr("offsets", "reset", "all", "--topic", "orders", "--topic", "logs", "--partition", "0", "--to", "3", "--yes")
    assert [entry["offset"] for entry in connect.offsets[OWN].values()] == [2]
    refused = mm2mgr("offsets", "reset", "all", "--topic", "typo", "--to", "earliest", "--yes", code=1)
    assert "does not mirror typo" in refused.err
