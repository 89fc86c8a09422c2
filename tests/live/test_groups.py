"""`groups` on real brokers: a group with a member, one without, and one that committed nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest

from mm2mgr.kafka.access import KafkaAccess, librdkafka_config
from mm2mgr.kafka.records import commit_group
from mm2mgr.operations import GroupsOrder, Workspace, groups
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Broker
from tests.live import seen

pytestmark = [pytest.mark.live, pytest.mark.matrix]
TREE = """\
owner: test
clusters:
  here: {{bootstrap_servers: ["{servers}"]}}
  there: {{bootstrap_servers: ["127.0.0.1:1"]}}
connect:
  there: {{url: "http://127.0.0.1:1", kafka: there}}
flows:
  orders: {{sources: [here], targets: [there], topics: {{include: [orders]}}, checkpoints: false}}
"""


def test_state_members_and_lag_are_those_of_the_broker(tmp_path: Path) -> None:
    with Broker("kafka", tmp_path / "kafka") as broker:
        access = KafkaAccess("here", broker.bootstrap_servers)
        tree = tmp_path / "tree.yaml"
        tree.write_text(TREE.format(servers=access.bootstrap_servers))
        workspace = Workspace((tree,))
        seen.create(access, ["orders", "other"], partitions=2)
        seen.write_values(access, "orders", *(b"%d" % number for number in range(10)))
        seen.write_values(access, "other", b"0")
        commit_group(access, "rests", {TopicPartition("orders", 0): 7, TopicPartition("other", 0): 0})
        commit_group(access, "reads", {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 0})
        with closing(confluent_kafka.Consumer({**librdkafka_config(access), "group.id": "reads"})) as consumer:
            consumer.subscribe(["orders"])
            seen.until(lambda: (consumer.poll(1.0), consumer.assignment())[1], bool, "an assignment")
            report = groups(workspace, "here")
            assert report.is_known, report
            rows = {group.group: group for group in report.groups}
            assert (rows["reads"].state, rows["reads"].members) == ("STABLE", 1)
            assert (rows["rests"].state, rows["rests"].members, rows["rests"].lag_records) == ("EMPTY", 0, 3)
            assert rows["rests"].topics == ["orders"]
            assert [target.translated for target in rows["rests"].targets] == ["not declared"]
        everything = groups(workspace, "here", GroupsOrder(group="rests", with_all=True))
        assert [(group.group, group.lag_records) for group in everything.groups] == [("rests", 4)]
        seen.close_clients()
    silent = groups(workspace, "here")
    assert (silent.is_known, silent.groups) == (False, ())
    assert [missing.where for missing in silent.unread] == ["here"]
