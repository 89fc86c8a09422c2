"""The text of an assignment for the Connect plugin; tests/connect_plugin/test_jar.py holds the plugin to the same."""

from __future__ import annotations

import math
import random

import pytest

from mm2mgr.assignment import Assignment
from mm2mgr.assignment_text import (
    ASSIGNMENT_KEY,
    DIGEST_KEY,
    LONGEST,
    PLUGIN_CLASS,
    AssignmentRefused,
    PluginAssignment,
    digest,
    expected_task_config,
    read_text,
)
from mm2mgr.partitions import TopicPartition
from tests.connect_plugin.plugin_cases import random_assignment, random_partitions


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_the_text_has_ranges_per_topic_and_is_read_back() -> None:
    tasks = (partitions("orders", *range(8)), (*partitions("orders", 9), *partitions("a.b-1", 0)))
    plugin = PluginAssignment.build(Assignment(tasks), [9000.4, 7000], 10, held=partitions("logs", 2, 3))
    assert plugin.text == "version=1;rates=9000+7000;unlisted=10;a.b-1:0@1;logs:2-3@hold;orders:0-7@0+9@1"
    assert read_text(plugin.text) == plugin
    assert plugin.goal(TopicPartition("orders", 7)) == 0
    assert plugin.goal(TopicPartition("orders", 8)) is None
    assert plugin.goal(TopicPartition("orders", 10)) is None
    assert plugin.goal(TopicPartition("logs", 2)) == "hold"
    assert plugin.goal(TopicPartition("none", 0)) is None


def test_a_held_partition_is_in_no_task_although_it_was_assigned() -> None:
    plugin = PluginAssignment.build(Assignment((partitions("t", 0, 1),)), [1], 1, held=partitions("t", 1))
    assert plugin.tasks(partitions("t", 0, 1), 1).tasks == (partitions("t", 0),)


def test_new_partitions_go_to_the_lightest_task_and_those_that_are_gone_leave_it() -> None:
    plugin = PluginAssignment.build(Assignment((partitions("t", 0), partitions("t", 1))), [100, 50], 30)
    assert plugin.tasks(partitions("t", 5, 4, 3, 2, 1, 0), 2).tasks == (
        partitions("t", 0, 4),
        partitions("t", 1, 2, 3, 5),
    )
    assert plugin.tasks(partitions("t", 1), 2).tasks == (partitions("t", 1),)
    assert plugin.tasks(partitions("t", 0, 1), 1).tasks == (partitions("t", 0, 1),)
    assert plugin.tasks((), 2).tasks == ()


def test_it_is_the_same_text_whatever_the_order_of_the_tasks_partitions() -> None:
    """Connect restarts all tasks for another text, though it means the same."""
    randomness = random.Random(3)
    tasks = [[*partitions("b", *range(20))], [*partitions("a", *range(9)), *partitions("b", 20, 22)]]
    texts = set()
    for _ in range(20):
        for task in tasks:
            randomness.shuffle(task)
        texts.add(PluginAssignment.build(Assignment(tuple(map(tuple, tasks))), [2, 1], 5).text)
    assert len(texts) == 1


def test_what_is_written_is_read_back_for_random_flows() -> None:
    randomness = random.Random(36)
    for _ in range(300):
        flow = random_partitions(randomness)
        plugin = random_assignment(randomness, flow)
        assert read_text(plugin.text) == plugin
        held = {partition for partition in flow if plugin.goal(partition) == "hold"}
        made = plugin.tasks(flow, 9)
        assert sorted(partition for task in made.tasks for partition in task) == sorted(set(flow) - held)


def test_the_partitions_of_a_topic_that_are_spread_take_few_characters() -> None:
    """10 000 partitions of 1 250 topics with long names on 300 tasks, each partition on another one."""
    tasks: list[list[TopicPartition]] = [[] for _ in range(300)]
    for topic in range(1250):
        for number in range(8):
            tasks[(topic * 7 + number * 37) % 300].append(
                TopicPartition(f"team-{topic:04}.some.longer.topic.name", number)
            )
    plugin = PluginAssignment.build(Assignment(tuple(map(tuple, tasks))), [7e6] * 300, 1000)
    assert len(plugin.text) < 110_000


def test_an_assignment_that_connect_could_not_store_is_refused_with_a_way_out() -> None:
    many = Assignment((tuple(TopicPartition(f"{'t' * 240}{number:06}", 0) for number in range(3000)),))
    with pytest.raises(AssignmentRefused, match=f"can store {LONGEST}") as refused:
        PluginAssignment.build(many, [1], 1).text  # noqa: B018
    assert "split the flow" in str(refused.value.hint)


def test_a_rate_that_no_text_can_have_is_bounded() -> None:
    tasks = Assignment(tuple(partitions("t", number) for number in range(4)))
    plugin = PluginAssignment.build(tasks, [math.inf, math.nan, -1.0, 1e30], math.inf)
    assert (plugin.rates, plugin.unlisted_rate) == ((10**15 - 1, 0, 0, 10**15 - 1), 10**15 - 1)
    assert PluginAssignment.build(tasks, [0.0] * 4, math.nan).unlisted_rate == 1
    assert read_text(plugin.text) == plugin


def test_rates_that_are_not_one_per_task_and_partitions_in_two_tasks_are_mistakes() -> None:
    with pytest.raises(ValueError, match="2 rates for 1 tasks"):
        PluginAssignment.build(Assignment((partitions("t", 0),)), [1, 2], 1)
    with pytest.raises(ValueError, match="t-0 is in two tasks"):
        PluginAssignment.build(Assignment((partitions("t", 0), partitions("t", 0))), [1, 2], 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2;rates=1;unlisted=1", "is of version 2, and this mm2mgr reads version 1: use a newer mm2mgr"),
        ("rates=1;unlisted=1", 'has "rates=1" where version= belongs'),
        ("version=1;rates=1;unlisted=1;t:0-3@1", "has 1 rates, and a partition of t for task 1"),
        ("version=1;rates=1;unlisted=1;t:3@0+1@0", 'has partitions of t not in ascending order: "1@0"'),
        ("version=1;rates=1;unlisted=1;t,u:3@0", 'has no topic and partitions in "t,u:3@0"'),
        ("version=1;rates=1;unlisted=1;t:3@0;t:4@0", "names topic t twice"),
        ("version=1;rates=1;unlisted=1;t:-3@0", 'has "" where a partition belongs'),
    ],
)
def test_a_bad_text_is_refused_and_says_where(text: str, reason: str) -> None:
    with pytest.raises(AssignmentRefused) as refused:
        read_text(text)
    assert refused.value.message == f"{ASSIGNMENT_KEY} {reason}"


def test_a_range_of_a_billion_partitions_takes_no_time() -> None:
    plugin = read_text("version=1;rates=1;unlisted=1;t:0-999999999@0")
    assert plugin.tasks(partitions("t", 5), 1).tasks == (partitions("t", 5),)


def test_tasks_have_a_digest_instead_of_the_assignment() -> None:
    config = {"connector.class": PLUGIN_CLASS, ASSIGNMENT_KEY: "version=1;rates=1;unlisted=1", "topics": "t"}
    assert expected_task_config(config) == {
        "connector.class": PLUGIN_CLASS,
        DIGEST_KEY: digest(config[ASSIGNMENT_KEY]),
        "topics": "t",
    }
    assert digest("") == "e3b0c44298fc1c14"
    stock = config | {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    assert expected_task_config(stock) == stock  # the stock connector copies whatever its config has
    resolved = config | {ASSIGNMENT_KEY: "${file:/etc/assignments:orders}"}
    assert expected_task_config(resolved).keys() == config.keys() - {ASSIGNMENT_KEY}, "the worker knows the digest"
