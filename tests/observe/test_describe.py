"""`describe`: everything about one flow, without its secrets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from mm2mgr.json_values import to_json
from mm2mgr.observe.read import ObserveOptions
from mm2mgr.problems.status import describe
from tests.observe.estate import Estate, estate


def told(one: Estate) -> dict[str, object]:
    options = ObserveOptions(kafka=one.kafka, clock=lambda: one.now, memory_file=one.memory_file)
    description = asyncio.run(describe(one.topology, one.connectors, one.topology.flows[0], options=options))
    return json.loads(json.dumps(to_json(description)))  # type: ignore[no-any-return]


def test_it_tells_where_records_come_from_and_go(small: Estate) -> None:
    small.log(0, 10)
    small.stored(5)
    data = told(small)
    assert data["source"] == {"alias": "A", "bootstrap_servers": "a:9092", "security_protocol": "PLAINTEXT"}
    assert data["topics"] == [{"topic": "orders", "remote_topic": "A.orders", "partitions": 2}]
    assert [(one["partition"], one["lag_records"], one["task"]) for one in data["lag"]] == [(0, 4, 0), (1, 0, 1)]  # type: ignore[attr-defined]
    assert [task["partitions"] for task in data["tasks"]] == [["orders-0"], ["orders-1"]]  # type: ignore[attr-defined]
    assert {one["connector"] for one in data["companions"]} == {small.checkpoint, small.heartbeat}  # type: ignore[attr-defined]


def test_traces_are_cut_with_their_last_cause(small: Estate) -> None:
    trace = "\n".join(
        ["first"] + [f"\tat frame{n}{'x' * 500}" for n in range(50)] + ["Caused by: a", "Caused by: deep"]
    )
    small.connect.connectors[small.source].failed_tasks = {1: trace}
    lines = told(small)["tasks"][1]["trace"]  # type: ignore[index]
    assert (lines[0], lines[-2:], len(lines)) == ("first", ["…", "Caused by: deep"], 14)
    assert max(map(len, lines)) <= 200


def test_settings_say_who_said_them_and_hide_secrets(tmp_path: Path) -> None:
    with estate(tmp_path, more="source_consumer: {max.poll.records: 7, ssl.key.password: hunter2}") as one:
        data = told(one)
    settings = {each["setting"]: each for each in data["settings"]}  # type: ignore[attr-defined]
    assert settings["source_consumer.max.poll.records"]["value"] == "7"
    assert "tree.yaml:" in settings["source_consumer.max.poll.records"]["origin"]
    assert settings["topics.include"]["value"] == "orders.*"
    assert settings["refresh_interval"]["origin"] == "default mm2mgr"
    assert "hunter2" not in json.dumps(data)


def test_every_setting_that_was_written_is_shown_with_its_place(tmp_path: Path) -> None:
    more = """max_lag: 5min
    audit: 2%
    balance: plugin
    source_connector: {offset.lag.max: 7}
    checkpoint_connector: {offset.lag.max: 5, some.password: hunter2}
    heartbeats: {interval: 9s}
    failover: {check_every: 10min}
    sync: {topic_acls: true}
    silence: {one-task: "it is small"}
    record_producer: {acks: null}"""
    with estate(tmp_path, more=more) as one:
        data = told(one)
    rows = [(each["setting"], each["value"], each["origin"]) for each in data["settings"]]  # type: ignore[attr-defined]
    settings = {name: (value, origin) for name, value, origin in rows}
    assert len(settings) == len(rows), "none twice"
    wanted = {
        "sources": "A", "targets": "B", "max_lag": "5min", "audit": "2%", "balance.by": "plugin", "source_connector.offset.lag.max": "7",
        "checkpoint_connector.offset.lag.max": "5", "heartbeats.interval": "9s", "failover.check_every": "10min",
        "sync.topic_acls": "true", "silence.one-task": "it is small", "record_producer.acks": "null",
    }  # fmt: skip
    assert {name: settings[name][0] for name in wanted} == wanted
    assert all("tree.yaml:" in settings[name][1] for name in wanted)
    assert "hunter2" not in json.dumps(data)
    assert settings["checkpoint_connector.some.password"][0] != "hunter2"


def test_a_dead_connect_cluster_still_gives_a_description(tmp_path: Path) -> None:
    with estate(tmp_path) as gone:
        pass
    data = told(gone)
    assert data["status"]["health"] == "unknown"  # type: ignore[index]
    assert data["tasks"] == []
    assert "connect cb" in data["failures"]  # type: ignore[operator]
