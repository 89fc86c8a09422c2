"""The order of java.util.HashMap against the same collections in a real Java, and deals read back from task configs."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2mgr.partitions import TopicPartition, assignment_read_back, java_spread, listing_of, partitions_by_task, predict

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
topics = st.dictionaries(st.text("ab.-_0", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=20)


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
        deal = predict(listing_of(dict.fromkeys(names, 1)), wanted)
        certain += deal.source == "predicted"
        order = [one.topic for one in deal.order]
        assert deal.source == "guessed" or order == [name for name in line.split(",") if name], names
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
    assert predict(listing_of(dict.fromkeys(same, 1)), lambda _: True).source == "guessed"
    assert predict(listing_of(dict.fromkeys(same[:8], 1)), lambda _: True).source == "predicted"


@given(topics, st.integers(1, 12))
def test_what_tasks_were_assigned_gives_the_order_back(listing: dict[str, int], tasks: int) -> None:
    predicted = predict(listing_of(listing), lambda _: True)
    hands = [",".join(map(str, hand)) for hand in partitions_by_task(predicted.order, tasks)]
    deal = assignment_read_back(hands)
    assert deal is not None
    assert (deal.order, deal.source) == (predicted.order, "live")
    assert sorted(predicted.order) == sorted(
        TopicPartition(topic, number) for topic, count in listing.items() for number in range(count)
    )


@pytest.mark.parametrize(
    "hands",
    [
        [],
        [""],
        ["a-0", ""],
        ["a-0", "a-1,a-2"],
        ["a-0,a-1,a-2", "a-3"],
        ["a-0", "a-0"],
        ["a-0,b-x", "a-1"],
    ],
)
def test_half_a_change_is_no_deal(hands: list[str]) -> None:
    assert assignment_read_back(hands) is None


def test_a_dash_in_a_topic_is_the_topics_own() -> None:
    deal = assignment_read_back(["a-1-0,b-0", "a-1-1"])
    assert deal is not None
    assert deal.order == (TopicPartition("a-1", 0), TopicPartition("a-1", 1), TopicPartition("b", 0))
