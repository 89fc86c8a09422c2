"""The order of java.util.HashMap against the same collections in a real Java, and assignments read back from tasks."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.assignment import Defects, moved_partitions, read_back, round_robin, spread
from mm2mgr.connectors import deals_in_turn
from mm2mgr.partitions import TopicPartition, java_spread, listing_of, predict
from tests.sizing.assignments import STOCK, Drawn, assignments, texts, topics

_JAVA = """
import java.util.*;
import java.util.stream.*;
public class Order {
  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in, "UTF-8");
    while (lines.hasNextLine()) {
      Map<String, String> listing = new HashMap<>();
      for (String name : lines.nextLine().split(",")) listing.put(name, name);
      Set<String> topics = listing.keySet().stream().filter(t -> t.startsWith("m")).collect(Collectors.toSet());
      Map<String, String> futures = new HashMap<>(topics.size());
      for (String topic : topics) futures.put(topic, topic);
      Map<String, String> copy = new HashMap<>(futures);
      Map<String, String> descriptions = new HashMap<>(copy.size());
      for (Map.Entry<String, String> each : copy.entrySet()) descriptions.put(each.getKey(), each.getValue());
      System.out.println(String.join(",", descriptions.values()));
    }
  }
}
"""


def wanted(name: str) -> bool:
    return name.startswith("m")


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: compares with Java's own collections")
def test_the_order_is_that_of_java_wherever_it_is_called_certain(tmp_path: Path) -> None:
    chance = random.Random(7)
    styles = ("m{}", "mtopic.{:04}", "m{:x}-events", "m-logs-{}", "mAa{}BB")
    listings = []
    for _ in range(400):
        ours, others = (int(10 ** chance.uniform(0, 2.7)) for _ in range(2))
        style = chance.choice(styles)
        numbers = [chance.randrange(10 ** chance.randint(1, 6)) for _ in range(ours)]
        names = [style.format(number) for number in numbers] + [f"o{chance.randrange(10**6)}" for _ in range(others)]
        chance.shuffle(names)
        listings.append(list(dict.fromkeys(names)))
    source = tmp_path / "Order.java"
    source.write_text(_JAVA)
    said = subprocess.run(
        ["java", str(source)], input="\n".join(map(",".join, listings)), capture_output=True, text=True, check=True
    )
    certain = 0
    for names, line in zip(listings, said.stdout.splitlines(), strict=True):
        predicted = predict(listing_of(dict.fromkeys(names, 1)), wanted)
        certain += predicted.exact
        order = [one.topic for one in predicted.order]
        assert not predicted.exact or order == [name for name in line.split(",") if name], names
    assert certain >= 0.98 * len(listings)


@pytest.mark.parametrize(
    ("name", "code"), [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31))]
)
def test_strings_hash_as_in_java(name: str, code: int) -> None:
    unsigned = code & 0xFFFFFFFF
    assert java_spread(name) == unsigned ^ (unsigned >> 16)


def test_pairs_of_utf_16_units_are_hashed_one_by_one() -> None:
    assert java_spread("\U0001d11e") == 0xD834 * 31 + 0xDD1E ^ (0xD834 * 31 + 0xDD1E) >> 16


def test_names_that_share_a_hash_are_only_guessed() -> None:
    same = ["".join("Aa" if number >> bit & 1 else "BB" for bit in range(4)) for number in range(16)]
    assert predict(listing_of(dict.fromkeys(same, 1)), lambda _: True).exact is False
    assert predict(listing_of(dict.fromkeys(same[:8], 1)), lambda _: True).exact is True


@given(topics, st.integers(1, 12))
def test_what_tasks_were_assigned_gives_the_order_back(listing: dict[str, int], tasks: int) -> None:
    order = predict(listing_of(listing), lambda _: True).order
    running = read_back(texts(round_robin(order, tasks)))
    assert running.order == order
    assert running.is_round_robin
    assert len(running.tasks) == min(tasks, len(order))
    assert sorted(order) == sorted(
        TopicPartition(topic, number) for topic, count in listing.items() for number in range(count)
    )


@pytest.mark.parametrize(
    "hands", [["a-0", ""], ["a-0", "a-1,a-2"], ["a-0,a-1,a-2", "a-3"], ["a-0", "a-0"], ["a-0", "a-1,b-0,b-1"]]
)
def test_what_is_not_dealt_in_turn_is_read_back_just_so(hands: list[str]) -> None:
    running = read_back(dict(enumerate(hands)))
    assert not running.is_round_robin
    assert [",".join(map(str, task)) for task in running.tasks] == hands


def test_a_dash_in_a_topic_is_the_topics_own() -> None:
    running = read_back({0: "a-1-0,b-0", 1: "a-1-1"})
    assert running.order == (TopicPartition("a-1", 0), TopicPartition("a-1", 1), TopicPartition("b", 0))


def test_a_missing_task_is_one_without_partitions_and_a_number_that_is_none_is_left_out() -> None:
    assert read_back({2: "a-0", 10**12: "b-0", -1: "c-0"}).tasks == ((), (), (TopicPartition("a", 0),))
    assert read_back({}).tasks == ()


@pytest.mark.parametrize("name", ["MirrorSource", "MirrorSourceConnector", f" {STOCK}", STOCK])
def test_mirrormakers_own_class_deals_in_turn_in_any_spelling(name: str) -> None:
    assert deals_in_turn(name)
    assert not deals_in_turn(f"org.example.{name.strip().rpartition('.')[2]}")
    assert not deals_in_turn("")


# --- whatever dealt it ------------------------------------------------------------------------------------------------


@given(assignments())
def test_every_defect_is_named_and_nothing_else(
    drawn: Drawn,
) -> None:
    assignment, carried, there = drawn.assignment, drawn.carried, drawn.there
    assert read_back(texts(assignment)) == assignment
    having = {one: [task for task, hand in enumerate(assignment.tasks) if one in hand] for one in assignment.order}
    defects = assignment.defects(carried, there)
    if not having:
        assert defects == Defects()
        return
    assert defects.idle == tuple(task for task, hand in enumerate(assignment.tasks) if not hand)
    assert defects.twice == {one: tuple(tasks) for one, tasks in having.items() if len(tasks) > 1}
    assert set(defects.unassigned) == carried - having.keys()
    assert set(defects.gone) == {one for one in having if one.partition >= there.get(one.topic, 0)}
    assert assignment.task_of == {one: tasks[0] for one, tasks in having.items()}
    assert assignment.topics == {one.topic for one in having}


@given(assignments(), st.integers(1, 6), st.integers(0, 9))
def test_loads_spread_and_moves_are_those_of_the_tasks(drawn: Drawn, tasks: int, factor: int) -> None:
    before, after = drawn.assignment, round_robin(drawn.assignment.order, tasks)
    rates = {one: float(place * factor % 7) for place, one in enumerate(before.order)}
    loads = before.loads(rates)
    assert loads == [sum(rates[one] for one in hand) for hand in before.tasks]
    assert spread(loads) == pytest.approx(max(loads) / (sum(loads) / len(loads)) if any(loads) else 1.0)
    other = {one for one in before.order if before.task_of[one] != after.task_of[one]}
    assert before.count_moved(after) == len(other)
    assert before.count_moved(before) == 0


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_moves_between_numbers_of_tasks_are_counted_by_position(partitions: int, before: int, after: int) -> None:
    order = [TopicPartition("t", number) for number in range(partitions)]
    was, now = round_robin(order, before), round_robin(order, after)
    assert was.count_moved(now) == moved_partitions(partitions, min(before, partitions), min(after, partitions))
