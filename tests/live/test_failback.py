"""`failover back` on real brokers: there and back, each id once on both sides in the end, no loop, lost ones listed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.runtime import Runtime

from .command import Tree
from .pair import Pair, serving_pair
from .seen import Message, connector_url, create, rest, until, values, write

pytestmark = pytest.mark.live
TOPIC, PARTITIONS = "orders", 2
THERE, BACK = "mm2.src.tgt.source.there", "mm2.tgt.src.source.back"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("failback"), runtime, workers=["w"]) as pair:
        yield pair


def tree_of(pair: Pair, topic: str, there: str = "", back: str = ", state: stopped", policy: str = "identity") -> str:
    more = f"replication_policy: {policy}, heartbeats: false, checkpoints: {{interval: 1s}}, "
    flows = (
        f"  there: {{sources: [src], targets: [tgt], topics: {{include: [{topic}]}}{there}}}\n"
        f"  back: {{sources: [tgt], targets: [src], run_on: pair, topics: {{include: [{topic}]}}{back}}}\n"
    )
    return pair.yaml("test", flows, more)


def produce(access: KafkaAccess, topic: str, *ids: str) -> None:
    write(access, topic, [Message(number % PARTITIONS, None, name.encode()) for number, name in enumerate(ids)])


def named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def ids(access: KafkaAccess, topic: str) -> Counter[str]:
    return Counter((value or b"").decode() for value in values(access, topic))


def until_there(access: KafkaAccess, topic: str, wanted: list[str]) -> None:
    until(lambda: set(wanted) - set(ids(access, topic)), lambda missing: not missing, "missing")


def back(tree: Tree, *arguments: str) -> Any:
    return tree.json("failover", "back", *arguments)


def state(pair: Pair, name: str) -> tuple[str, bool]:
    """Return a connector's state, and whether it is held."""
    config = rest("GET", connector_url(pair.url, name))["config"]
    shown = rest("GET", connector_url(pair.url, name, "/status"))["connector"]["state"]
    return shown, "mm2mgr.held" in config


def test_there_and_back_with_kept_names_each_record_is_once_on_both_sides(pair: Pair, tree: Tree) -> None:
    create(pair.source, [TOPIC], PARTITIONS)
    tree.write(tree_of(pair, TOPIC))
    said = tree.run("plan")
    assert "STOPPED without tasks" in said
    tree.run("apply", "--yes")
    assert state(pair, BACK) == ("STOPPED", True)
    rest("PUT", connector_url(pair.url, BACK, "/resume"))  # whoever resumes it: it has no tasks
    produce(pair.source, TOPIC, *named("a", 300))
    until_there(pair.target, TOPIC, named("a", 300))
    assert "no changes" in tree.run("plan").lower() or "0 to create" in tree.run("plan")
    assert "must be STOPPED" in tree.run("failover", "back", "src->tgt", code=1)
    assert "must not run" in tree.attempt("resume", "back")

    tree.run("stop", "there", "--yes")
    produce(pair.source, TOPIC, *named("lost", 7))
    produce(pair.target, TOPIC, *named("b", 40))
    found = back(tree, "src->tgt")
    assert found["outcome"] == "to prepare"
    assert sum(part["own_records"] for part in found["partitions"]) == 40
    print(tree.run("failover", "back", "src->tgt", "--apply", "--yes"))
    assert (state(pair, BACK), state(pair, THERE)) == (("STOPPED", False), ("STOPPED", True))
    rest("PUT", connector_url(pair.url, THERE, "/resume"))
    tree.run("failover", "back", "src->tgt", "--start", "--yes")
    until_there(pair.source, TOPIC, named("b", 40))
    produce(pair.target, TOPIC, *named("c", 40))
    until_there(pair.source, TOPIC, named("c", 40))

    lost = back(tree, "src->tgt", "--lost")["lost"]
    assert sum(part["count"] for part in lost) == 7
    file = tree.folder.parent / "lost.jsonl"
    tree.run("failover", "back", "src->tgt", "--export", str(file))
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert {base64.b64decode(record["value"]).decode() for record in records} == set(named("lost", 7))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists already" in tree.attempt("failover", "back", "src->tgt", "--export", str(file))

    assert ids(pair.target, TOPIC) == Counter(named("a", 300) + named("b", 40) + named("c", 40))
    assert ids(pair.source, TOPIC) == ids(pair.target, TOPIC) + Counter(named("lost", 7))
