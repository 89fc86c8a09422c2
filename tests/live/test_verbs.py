"""What is done to flows that run, on real workers: pause, resume, restart --failed, offsets reset, reconcile, and their history and drift.

Two processes of `reconcile` are among them, one of which is killed; and records of all sizes cross a declared link, counted by id.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from httpx import Client

from mm2mgr.defaults import HISTORY_TOPIC
from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.sandbox.runtime import Runtime
from tests.cli.command import allowed_seconds

from .command import Tree
from .pair import Pair, flow, serving_pair
from .seen import (
    Message,
    admin,
    config_of,
    connector_url,
    create,
    end_offset,
    messages,
    rest,
    statuses,
    task_configs,
    topics,
    until,
    values,
    write,
    write_values,
)
from .starts import begin_where_it_is_said
from .traffic import Traffic

pytestmark = pytest.mark.live
QUIET = "checkpoints: false, heartbeats: false, "
FLUSH_SECONDS = 1.0  # of the workers, see conftest.WORKER
STATUS_TOPIC = "connect-pair-status"
CONFIG_TOPIC = "connect-pair-configs"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Pair]:
    with serving_pair(tmp_path_factory.mktemp("verbs"), runtime) as served:
        yield served


@pytest.fixture(autouse=True)
def _no_connectors_left(pair: Pair) -> Iterator[None]:
    yield
    pair.delete_connectors()


def declared(pair: Pair, owner: str, flows: str) -> str:
    return pair.yaml(owner, flows, QUIET, workers=f", flush_interval: {FLUSH_SECONDS:g}s")


def source(name: str) -> str:
    return f"mm2.src.tgt.source.{name}"


def stored(pair: Pair, name: str) -> object:
    return rest("GET", connector_url(pair.url, source(name), "/offsets"))["offsets"]


def test_one_flow_of_four_is_paused_under_traffic_and_loses_nothing(pair: Pair, tree: Tree) -> None:
    names = ["one", "two", "three", "four"]
    create(pair.source, names)
    tree.write(declared(pair, "verbs", "".join(flow(name, name) for name in names)))
    tree.run("apply", "--yes", "--wait", "90")
    with Traffic(pair.source, names, 400) as traffic:
        for name in names:
            until(lambda name=name: end_offset(pair.target, f"src.{name}"), bool, f"{name} does not move")
        before = {name: end_offset(pair.target, f"src.{name}") for name in names}
        said = tree.run("pause", "two", "--reason", "upgrade of the target")
        assert f"~ pair/{source('two')}: PAUSED\n" in said
        assert {task["state"] for task in statuses(pair.url)[source("two")]["tasks"]} == {"PAUSED"}
        still = stored(pair, "two")
        after = {name: end_offset(pair.target, f"src.{name}") for name in names}
        assert all(after[name] > before[name] for name in names if name != "two"), "the others stood still"

        config_end = end_offset(pair.target, CONFIG_TOPIC)
        assert "already PAUSED" in tree.run("pause", "two", "--wait", "0")
        planned = tree.run("plan", "--detailed-exitcode", code=0)
        assert "0 to create, 0 to update, 0 to delete, 4 unchanged" in planned
        assert re.search(rf"= {source('two')}: PAUSED by .+ since .+ UTC: upgrade of the target; it stays so", planned)
        tree.run("drift", code=0)  # a pause by verb is chosen
        tree.run("apply", "--yes")
        assert end_offset(pair.target, CONFIG_TOPIC) == config_end, "the workers were told something"
        assert stored(pair, "two") == still, "what is stored moved after the pause had returned"
        assert end_offset(pair.target, "src.two") == after["two"]
        assert f"~ pair/{source('two')}: RUNNING\n" in tree.run("resume", "two")
    sent = Counter(range(1, traffic.rounds + 1))
    assert traffic.arrived(pair.target, "src") == dict.fromkeys(names, sent), "lost or repeated"
    history = tree.run("history", "two")
    assert "upgrade of the target" in history


def _limit(pair: Pair, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    client = admin(pair.target)
    for future in client.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values():
        future.result(30)


def _task_states(pair: Pair, name: str) -> dict[int, str]:
    return {task["id"]: task["state"] for task in statuses(pair.url)[source(name)]["tasks"]}


def test_restart_failed_restarts_that_task_only(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["large"], partitions=2)
    tree.write(declared(pair, "verbs", flow("large", "large", ", tasks: {max: 2}")))
    tree.run("apply", "--yes", "--wait", "90")
    write(pair.source, "large", [Message(0, None, b"0"), Message(1, None, b"1")])
    until(lambda: values(pair.target, "src.large"), lambda found: len(found) == 2)
    _limit(pair, "src.large", 1000)
    large = b"x" * 5000
    write(pair.source, "large", [Message(0, None, large)])
    states = until(lambda: _task_states(pair, "large"), lambda found: "FAILED" in found.values())
    (failed,) = [task for task, state in states.items() if state == "FAILED"]
    assert "mm2mgr restart --failed 'large:src->tgt'" in tree.run("status", code=1)

    # On a busy machine it may take the task longer to fail again than `restart` looks at it.
    again = until(lambda: tree.attempt("restart", "--failed", "large"), lambda said: "RUNNING, 1 of 2" in said)
    assert "RecordTooLargeException" in again
    until(lambda: _task_states(pair, "large"), lambda found: found[failed] == "FAILED")

    _limit(pair, "src.large", 1_000_000)
    before = _status_records(pair)
    tree.run("restart", "--failed", "--all", "--reason", "the limit is raised")
    until(lambda: values(pair.target, "src.large"), lambda found: large in found)
    touched = {key for key in _status_records(pair) - before if source("large") in key}
    assert touched == {f"status-task-{source('large')}-{failed}"}
    assert sorted(values(pair.target, "src.large"), key=str) == sorted([b"0", b"1", large], key=str)
    assert "restart: 0 of 1 connector sent a request" in tree.run("restart", "--failed", "large")


def _status_records(pair: Pair) -> Counter[str]:
    """Return how often Connect wrote the status of each connector and task."""
    return Counter((one.key or b"").decode() for one in messages(pair.target, STATUS_TOPIC))


def test_offsets_reset_shows_and_does_what_comes_again_or_is_skipped(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["back"])
    tree.write(declared(pair, "verbs", flow("back", "back")))
    tree.run("apply", "--yes", "--wait", "90")
    ids = [str(number).encode() for number in range(15)]
    write_values(pair.source, "back", *ids[:10])
    until(lambda: values(pair.target, "src.back"), lambda found: found == ids[:10])

    assert "mm2mgr stop 'back:src->tgt'" in tree.run("offsets", "reset", "back", "--to", "4", "--yes", code=1)
    tree.run("stop", "back")
    shown = tree.json("offsets", "show", "back")["flows"][0]
    assert (shown["exact"], shown["lag_records"], shown["partitions"][0]["stored_offset"]) == (True, 0, 9)
    assert "offset 11 is not in every log" in tree.run("offsets", "reset", "back", "--to", "11", "--yes", code=1)
    assert "back: 6 records mirrored again" in tree.run("offsets", "reset", "back", "--to", "4", "--yes")
    tree.run("resume", "back")
    until(lambda: values(pair.target, "src.back"), lambda found: found == [*ids[:10], *ids[4:10]])

    tree.run("stop", "back")
    write_values(pair.source, "back", *ids[10:13])
    assert "back: 3 records never mirrored" in tree.run("offsets", "reset", "back", "--to", "latest", "--yes")
    write_values(pair.source, "back", *ids[13:])
    tree.run("resume", "back")
    until(lambda: values(pair.target, "src.back"), lambda found: found[16:] == ids[13:])

    tree.run("stop", "back")
    assert "back: 15 records mirrored again" in tree.run("offsets", "reset", "back", "--to", "earliest", "--yes")
    tree.run("resume", "back")
    until(lambda: values(pair.target, "src.back"), lambda found: found[18:] == ids)


def test_a_flow_begins_where_it_is_said(pair: Pair, tree: Tree) -> None:
    begin_where_it_is_said(pair, tree)


HUGE = 10_000_000
LIMIT = 11_000_000


def _kinds() -> dict[str, list[bytes]]:
    """Return tiny records, records that compress, and one of 10 MB between small ones: each begins with its number."""
    noise = random.Random(7)
    sizes = [100, HUGE, 100, HUGE, 100]
    return {
        "tiny": [b"%08d" % number + b"x" * 92 for number in range(20_000)],
        "packed": [b"%08d" % number + b"the same words over and over " * 70 for number in range(4_000)],
        "huge": [b"%08d" % number + noise.randbytes(size) for number, size in enumerate(sizes)],
    }


@pytest.mark.parametrize("source_alias", ["src", "tgt"])
def test_tiny_compressed_and_huge_records_cross_a_link_in_order(pair: Pair, tree: Tree, source_alias: str) -> None:
    """The workers are beside tgt: from there they send over the link, with five requests in flight, else they fetch over it."""
    here, there = (pair.source, pair.target) if source_alias == "src" else (pair.target, pair.source)
    target_alias = "tgt" if source_alias == "src" else "src"
    for kind, records in _kinds().items():
        topic = f"{kind}-{source_alias}"
        config = {"max.message.bytes": str(LIMIT), "compression.type": "zstd" if kind == "packed" else "producer"}
        create(here, [topic], config=config)
        write(here, topic, [Message(0, None, each) for each in records], **{"message.max.bytes": LIMIT})
    tree.write(
        declared(pair, f"kinds-{source_alias}", "").replace(
            "flows:\n",
            "links: [{between: [src, tgt], rtt: 100ms, bandwidth: 200Mbit/s}]\n"
            f"flows:\n  kinds: {{sources: [{source_alias}], targets: [{target_alias}], run_on: pair, "
            f'topics: {{include: ["(tiny|packed|huge)-{source_alias}"]}}}}\n',
        )
    )
    limits = "".join(f"  {alias}: {{version: '4.0', message.max.bytes: {LIMIT}}}\n" for alias in ("src", "tgt"))
    tree.write_more("overrides/brokers.yaml", f"brokers:\n{limits}")
    tree.run("apply", "--yes", "--wait", "90")
    config = config_of(pair.url, f"mm2.{source_alias}.{target_alias}.source.kinds")
    assert config["producer.override.max.request.size"] == str(LIMIT)
    assert (config.get("producer.override.enable.idempotence") == "true") is (source_alias == "tgt")
    for kind, records in _kinds().items():
        _arrive(there, f"{source_alias}.{kind}-{source_alias}", records)


def _arrive(there: KafkaAccess, topic: str, records: list[bytes]) -> None:
    until(lambda: end_offset(there, topic), lambda end: end >= len(records), f"{topic} is not complete")
    assert values(there, topic) == records, topic


# --- history, drift and reconcile -------------------------------------------------------------------------------------

NAME = source("orders")
KEY = "source.consumer.max.poll.records"


def tree_of(pair: Pair, records: int, owner: str) -> str:
    more = f", checkpoints: false, heartbeats: false, source_consumer: {{max.poll.records: {records}}}"
    return pair.yaml(owner, flow("orders", "orders", more))


def by_hand(pair: Pair, value: str) -> None:
    """Change one key as people do, over REST."""
    rest("PUT", connector_url(pair.url, NAME, "/config"), {**config_of(pair.url, NAME), KEY: value})


def git(folder: Path, *arguments: str) -> str:
    line = ["git", "-C", str(folder), "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_who_changed_what_is_kept_a_change_by_hand_is_found_and_an_older_tree_brings_the_config_back(
    pair: Pair, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(pair.source, ["orders"])
    monkeypatch.setenv("MM2MGR_WHO", "ann")
    commits = []
    tree.write("")
    git(tree.folder, "init", "-q")
    for records in (500, 700):
        tree.write(tree_of(pair, records, "ann"))
        git(tree.folder, "add", "tree.yaml")
        git(tree.folder, "commit", "-q", "-m", f"{records} records")
        commits.append(git(tree.folder, "rev-parse", "--short=12", "HEAD"))
        tree.run("apply", "--yes", "--reason", f"{records} at a time")
    assert topics(pair.target)[HISTORY_TOPIC] == 1
    assert "Drift: none" in tree.run("drift")

    first, second = tree.json("history", NAME)["entries"]
    assert [(each["action"], each["commit"], each["reason"]) for each in (first, second)] == [
        ("create", commits[0], "500 at a time"),
        ("update", commits[1], "700 at a time"),
    ]
    assert (second["who"], second["command"], second["outcome"], second["flows"]) == (
        "ann",
        "apply",
        "done",
        ["orders:src->tgt"],
    )
    assert [(key["key"], key["before"], key["after"]) for key in second["keys"]] == [(KEY, "500", "700")]

    by_hand(pair, "11")
    said = tree.run("drift", code=2)
    assert f"pair/{NAME}\n  {KEY}: 700 -> 11\n" in said
    tree.write(tree_of(pair, 900, "ann"))
    assert f"  {KEY}: 700 -> 11\n" in tree.run("drift", code=2), "what is only edited in the tree is no drift"
    tree.write(tree_of(pair, 700, "ann"))

    older = tree.folder.parent / "older"
    git(tree.folder, "worktree", "add", "-q", str(older), commits[0])
    back = Tree(older)
    assert f"~ {KEY}: 11 -> 500" in back.run("plan", "--out", str(older.parent / "back.json"))
    back.run("apply", str(older.parent / "back.json"), "--reason", "back to the first")
    assert config_of(pair.url, NAME)[KEY] == "500"
    assert tree.json("history")["entries"][-1]["commit"] == commits[0]
    assert tree.json("drift")["drift"] == []

    rest("PUT", connector_url(pair.url, NAME, "/pause"))
    until(lambda: statuses(pair.url)[NAME]["connector"]["state"], lambda state: state == "PAUSED")
    (paused,) = tree.json("drift")["drift"]
    assert paused["state"] == {"applied": "RUNNING", "live": "PAUSED"}
    rest("DELETE", connector_url(pair.url, NAME))
    (gone,) = until(lambda: tree.json("drift")["drift"], lambda found: bool(found) and found[0]["deleted"])
    assert (gone["connector"], gone["compared_with"]) == (NAME, "history")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kinds(file: Path) -> list[str]:
    return [line["event"] for line in lines(file)]


def test_one_of_two_reconcilers_writes_and_the_other_takes_over_when_it_is_killed(pair: Pair, tree: Tree) -> None:
    if "orders" not in topics(pair.source):
        create(pair.source, ["orders"])
    tree.write(tree_of(pair, 500, "loop"))
    first, second = (tree.folder.parent / f"{name}.jsonl" for name in ("first", "second"))
    order = ("reconcile", "--every", "2s", "--wait", "30", "--events")
    with tree.start(*order, str(first)) as one, tree.start(*order, str(second)) as two:
        # Whichever joined first writes.
        until(lambda: (kinds(first), kinds(second)), lambda both: sum("change_done" in each for each in both) == 1)
        writer, other = one, two
        if "change_done" in kinds(second):
            first, second, writer, other = second, first, two, one
        until(lambda: kinds(second), lambda found: "standby" in found)
        by_hand(pair, "11")
        until(lambda: config_of(pair.url, NAME)[KEY], lambda value: value == "500", "the writer did not repair it")
        assert "change_begun" not in kinds(second)
        until(lambda: kinds(first)[-1], lambda kind: kind == "finished", "its repair is not in the history")
        writer.kill()
        writer.wait()
        by_hand(pair, "12")
        until(lambda: config_of(pair.url, NAME)[KEY], lambda value: value == "500", "nobody took over")
        assert "change_begun" in kinds(second)
        until(lambda: kinds(second)[-1], lambda kind: kind == "finished")
        other.send_signal(signal.SIGTERM)
        out, err = other.communicate(timeout=90)
        assert other.returncode == 0, out + err
        assert "Traceback" not in out + err

    entries = tree.json("history", NAME)["entries"]
    assert [each["command"] for each in entries] == ["reconcile"] * 3
    by_hand(pair, "13")
    until(lambda: {task.get(KEY) for task in task_configs(pair.url, NAME)}, lambda values: values == {"13"})
    before = end_offset(pair.target, CONFIG_TOPIC)
    said = tree.run("reconcile", "--report-only", "--once", code=2)
    assert f"pair: update {NAME}" in said
    assert end_offset(pair.target, CONFIG_TOPIC) == before, "the workers were told something"
    assert config_of(pair.url, NAME)[KEY] == "13"


@pytest.mark.matrix
def test_reconcile_in_serve_shares_the_lease_and_gives_it_up_at_its_end(pair: Pair, tree: Tree) -> None:
    if "orders" not in topics(pair.source):
        create(pair.source, ["orders"])
    tree.write(tree_of(pair, 500, "loop"))
    first, second = (tree.folder.parent / f"{name}.jsonl" for name in ("serve", "beside"))
    parts = ("--with", "watch,reconcile", "--events", str(first))
    with tree.serve("--every", "5", *parts) as (serving, url):
        until(lambda: kinds(first), lambda found: "finished" in found, "no round has ended")
        until(lambda: config_of(pair.url, NAME)[KEY], lambda value: value == "500", "the tree was not applied")
        with tree.start("reconcile", "--every", "2s", "--wait", "30", "--events", str(second)) as other:
            until(lambda: kinds(second), lambda found: "standby" in found)
            with Client(trust_env=False) as client:
                shown = client.get(f"{url}/api/reconcile").json()
            assert shown["rounds"].keys() <= {"done", "inconclusive"}
            assert "change_begun" not in kinds(second)
            by_hand(pair, "11")
            began = time.monotonic()
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(60) == 0
            assert time.monotonic() - began < 2 * allowed_seconds(), "it ends at once where nothing is being written"
            until(lambda: config_of(pair.url, NAME)[KEY], lambda value: value == "500", "nobody took over")
            assert "change_begun" in kinds(second)
            other.send_signal(signal.SIGTERM)
            out, err = other.communicate(timeout=90)
            assert other.returncode == 0, out + err


@pytest.mark.matrix
def test_single_tasks_restart_and_levels_of_loggers_are_set_and_back(pair: Pair, tree: Tree) -> None:
    create(pair.source, ["tasks"], partitions=2)
    tree.write(declared(pair, "verbs", flow("tasks", "tasks", ", tasks: {max: 2}")))
    tree.run("apply", "--yes", "--wait", "90")
    before = _status_records(pair)
    assert f"~ pair/{source('tasks')}: RUNNING" in tree.run("restart", "tasks", "--task", "1")
    touched = {key for key in _status_records(pair) - before if source("tasks") in key}
    assert touched == {f"status-task-{source('tasks')}-1"}

    mirror = "org.apache.kafka.connect.mirror"
    levels = {worker.url: rest("GET", f"{worker.url}/admin/loggers") for worker in pair.workers}
    said = tree.run("loggers", "pair", "--set", f"{mirror}=DEBUG")
    for worker in pair.workers:
        assert rest("GET", f"{worker.url}/admin/loggers/{mirror}")["level"] == "DEBUG"
    back = [shlex.split(line)[1:] for line in said.splitlines() if line.strip().startswith("mm2mgr loggers")]
    for arguments in back:
        tree.run(*arguments)
    for worker in pair.workers:
        after = rest("GET", f"{worker.url}/admin/loggers")
        changed = {
            name for name, level in levels[worker.url].items() if after.get(name, {}).get("level") != level["level"]
        }
        assert not changed
