"""The printed commands: merged, nothing that is implied, and safe to paste into a shell."""

from __future__ import annotations

import shlex

from mm2mgr.check.judge import Grant, commands
from mm2mgr.kafka.acls import ResourceKind, Right


def grants(principal: str, *rights: tuple[str, ResourceKind, str]) -> list[Grant]:
    return [("agg:9092", principal, Right(*right)) for right in rights]


def test_operations_and_resources_are_merged_and_implied_ones_left_out() -> None:
    wanted = grants("User:m", *((operation, "topic", "dc1.a") for operation in ("Describe", "Create", "Alter")))
    wanted += grants("User:m", ("Create", "topic", "dc1.b"), ("Alter", "topic", "dc1.b"), ("Read", "group", "g"))
    begin = "kafka-acls.sh --bootstrap-server agg:9092 --add --allow-principal User:m"
    assert commands([*wanted, *wanted]) == [
        f"{begin} --operation Read --group g",
        f"{begin} --operation Create --operation Alter --topic dc1.a --topic dc1.b",
    ]


def test_describe_alone_and_the_cluster() -> None:
    lines = commands([*grants("User:m", ("Describe", "topic", "t")), ("a:1", "User:m", Right("Alter", "cluster"))])
    assert lines[0].endswith("--operation Alter --cluster")
    assert lines[1].endswith("--operation Describe --topic t")


def test_names_reach_the_shell_as_they_are() -> None:
    principal, group = "User:CN=o'neil, $(reboot),O=Ex", "my group; rm -rf *"
    (line,) = commands(grants(principal, ("Read", "group", group)))
    words = shlex.split(line)
    assert words[words.index("--allow-principal") + 1] == principal
    assert words[words.index("--group") + 1] == group


def test_a_thousand_topics_are_lines_that_a_shell_can_hold() -> None:
    lines = commands(grants("User:m", *(("Read", "topic", f"dc1.t{number}") for number in range(1000))))
    assert len(lines) == 20
    assert sum(line.count("--topic") for line in lines) == 1000
