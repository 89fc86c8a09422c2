"""Plan and apply against real workers: two of one group on the target, and a second Connect cluster on the source.

The brokers have a second listener, for a login whose rights a test takes away.

Each test has flows, and an owner, of its own; heartbeats and checkpoints, which a pair has once, belong to the first.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from operator import ge
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclPermissionType  # type: ignore[attr-defined]

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.kafka.client import Kafka
from mm2mgr.partitions import TopicPartition
from mm2mgr.sandbox.kafka_servers import Worker
from mm2mgr.sandbox.runtime import Runtime
from tests.check.brokers import Allowed

from .command import Tree
from .conftest import WORKER, serving
from .gateway import Gateway
from .pair import Pair, flow, serving_pair
from .seen import (
    Message,
    admin,
    config_of,
    connector_url,
    create,
    end_offset,
    log_lines,
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
from .traffic import Traffic

pytestmark = pytest.mark.live
CONFIG_TOPIC = "connect-pair-configs"
STATUS_TOPIC = "connect-pair-status"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} user_mirror="right-one" user_blind="right-one";',
}

POLLED_400 = ", source_consumer: {max.poll.records: 400}"
QUIET = "checkpoints: false, heartbeats: false, "


@dataclass(frozen=True)
class World(Pair):
    """Connect cluster `spare` lives on the source."""

    spare: Worker

    def yaml(self, owner: str, flows: str, defaults: str = QUIET, connect: str = "", workers: str = "") -> str:
        spare = f'  spare: {{url: ["{self.spare.url}"], kafka: src}}\n'
        return super().yaml(owner, flows, defaults, connect + spare, workers)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("apply")
    listeners = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT"}
    with serving_pair(folder, runtime, brokers=LOGIN, listeners=listeners) as pair:
        spare = Worker("spare", folder / "spare", pair.src.bootstrap_servers, WORKER, runtime=runtime)
        with serving([spare]):
            yield World(pair.src, pair.tgt, pair.workers, spare)


@pytest.fixture(autouse=True)
def _few_connectors(world: World) -> Iterator[None]:
    """End the flows of each test: dozens of connectors that refresh every two seconds would slow the later ones down."""
    yield
    world.spare.start()  # a test that failed may have left it dead
    world.delete_connectors(".source.")


def test_a_second_apply_writes_nothing(world: World, tree: Tree) -> None:
    create(world.source, ["app.orders", "audit.log", "audit-log"])
    for topic in ("app.orders", "audit.log", "audit-log"):
        write_values(world.source, topic, b"1", b"2", b"3")
    tree.write(world.yaml("first", flow("logging", '"app[.].*", audit.log'), defaults=""))
    planned = tree.run("plan", "--detailed-exitcode", code=2)
    assert "Plan: 3 to create, 0 to update, 0 to delete, 0 unchanged" in planned
    assert "Applied: 3 of 3 changes" in tree.run("apply", "--yes")
    wanted = {topic: [b"1", b"2", b"3"] for topic in ("src.app.orders", "src.audit.log")}
    until(lambda: {topic: values(world.target, topic) for topic in wanted}, lambda found: found == wanted)
    # The flow finds the heartbeats topic at a refresh, and tells the workers so: what is written ends after that.
    until(lambda: values(world.target, "src.heartbeats"), bool, "no heartbeat crossed")
    assert "src.audit-log" not in topics(world.target), "the dot of audit.log was read as any character"

    before = end_offset(world.target, CONFIG_TOPIC)
    assert "0 to create, 0 to update, 0 to delete, 3 unchanged" in tree.run("plan", "--detailed-exitcode", code=0)
    assert "Applied: 0 of 0 changes" in tree.run("apply", "--yes")
    assert end_offset(world.target, CONFIG_TOPIC) == before, "the workers were told something"


def test_one_changed_key_reaches_the_tasks_of_one_connector(world: World, tree: Tree) -> None:
    create(world.source, ["keys.a", "keys.b"])
    tree.write(world.yaml("keys", flow("a", "keys.a") + flow("b", "keys.b")))
    tree.run("apply", "--yes")
    tree.write(
        world.yaml("keys", flow("a", "keys.a", ", source_consumer: {max.poll.records: 777}") + flow("b", "keys.b"))
    )
    planned = tree.run("plan")
    assert "~ update  mm2.src.tgt.source.a" in planned
    assert "0 to create, 1 to update, 0 to delete, 1 unchanged" in planned
    assert "+ source.consumer.max.poll.records: 777" in planned
    tree.run("apply", "--yes")
    changed = until(
        lambda: task_configs(world.url, "mm2.src.tgt.source.a"),
        lambda tasks: bool(tasks) and all("source.consumer.max.poll.records" in task for task in tasks),
    )
    assert [task["source.consumer.max.poll.records"] for task in changed] == ["777"]
    for task in task_configs(world.url, "mm2.src.tgt.source.b"):
        assert "source.consumer.max.poll.records" not in task


def test_only_prune_deletes_what_is_no_longer_declared(world: World, tree: Tree) -> None:
    create(world.source, ["stays", "goes"])
    tree.write(world.yaml("pruned", flow("stays", "stays") + flow("goes", "goes")))
    tree.run("apply", "--yes")
    tree.write(world.yaml("pruned", flow("stays", "stays")))
    assert "? mm2.src.tgt.source.goes: owned but no longer declared" in tree.run("apply", "--yes")
    assert "mm2.src.tgt.source.goes" in rest("GET", f"{world.url}/connectors")
    others = set(rest("GET", f"{world.url}/connectors")) - {"mm2.src.tgt.source.goes"}
    assert "pair: deleted mm2.src.tgt.source.goes" in tree.run("apply", "--yes", "--prune")
    left = until(lambda: set(rest("GET", f"{world.url}/connectors")), lambda names: names == others)
    assert "mm2.src.tgt.source.stays" in left


def test_a_connector_of_nobody_is_not_touched(world: World, tree: Tree) -> None:
    create(world.source, ["nobodys", "ours"])
    tree.write(world.yaml("somebody", flow("ours", "ours") + flow("nobodys", "nobodys")))
    [config] = [one.config for one in tree.workspace().connectors if one.name == "mm2.src.tgt.source.nobodys"]
    by_hand = {key: value for key, value in config.items() if not key.startswith("mm2mgr.")} | {"tasks.max": "3"}
    rest("PUT", connector_url(world.url, "mm2.src.tgt.source.nobodys", "/config"), by_hand)
    said = tree.run("apply", "--yes", code=1)
    assert "mm2.src.tgt.source.nobodys  a connector of this name exists and carries no owner mark" in said
    assert "pair: created mm2.src.tgt.source.ours" in said
    assert config_of(world.url, "mm2.src.tgt.source.nobodys") == by_hand
    assert config_of(world.url, "mm2.src.tgt.source.ours")["mm2mgr.owner"] == "somebody"


def test_a_reviewed_plan_is_refused_after_a_change_by_hand(world: World, tree: Tree) -> None:
    name = "mm2.src.tgt.source.stale"
    create(world.source, ["stale"])
    tree.write(world.yaml("reviewed", flow("stale", "stale")))
    tree.run("apply", "--yes")
    tree.write(world.yaml("reviewed", flow("stale", "stale", ", tasks: {max: 2}")))
    plan = str(tree.folder / "plan.json")
    tree.run("plan", "--out", plan)
    by_hand = {**config_of(world.url, name), "tasks.max": "5"}
    rest("PUT", connector_url(world.url, name, "/config"), by_hand)
    said = tree.run("apply", plan, code=1)
    assert f"the plan is stale: pair/{name}: other keys would change than reviewed" in said
    assert config_of(world.url, name) == by_hand
    tree.run("plan", "--out", plan)
    tree.run("apply", plan)
    assert config_of(world.url, name)["tasks.max"] == "2"


def test_a_stopped_connect_cluster_does_not_hold_up_the_other(world: World, tree: Tree) -> None:
    create(world.source, ["there"])
    create(world.target, ["back"])
    back = "  back: {sources: [tgt], targets: [src], topics: {include: [back]}}\n"
    tree.write(world.yaml("both", flow("there", "there") + back))
    world.spare.kill()
    said = tree.run("apply", "--yes", code=1)
    assert "! not planned: Connect cluster 'spare': GET /connectors?expand=info&expand=status: no URL answered" in said
    assert world.spare.url in said
    assert "1 Connect cluster could not be read" in said
    assert "Applied: 1 of 1 changes" in said
    assert statuses(world.url)["mm2.src.tgt.source.there"]["connector"]["state"] == "RUNNING"
    world.spare.start()
    assert "spare: created mm2.tgt.src.source.back" in tree.run("apply", "--yes")


def test_the_state_after_apply_is_that_of_the_new_config(world: World, tree: Tree) -> None:
    name = "mm2.src.tgt.source.turns"
    create(world.source, ["turns"], partitions=4)
    silenced = ", tasks: {max: 4}, silence: {invalid-value: a test}"  # else plan blocks it
    bad, good = (f"{silenced}, source_consumer: {{fetch.max.bytes: {size}}}" for size in (-5, 5000000))
    as_before, failed = bad + ", refresh_interval: 3s", f"pair/{name}: RUNNING, 4 of 4 tasks FAILED"
    for more, code in (("", 0), (bad, 1), (good, 0), (bad, 1), (as_before, 0), (good, 0)):
        tree.write(world.yaml("turned", flow("turns", "turns", more)))
        said = tree.run("apply", "--yes", code=code)
        assert (failed in said) == (more not in {"", good}), said
        assert (f"{failed}, as before the update" in said) == (more == as_before), said
        shown = {task["state"] for task in statuses(world.url)[name]["tasks"]}
        assert shown == {"RUNNING" if more in {"", good} else "FAILED"}


def test_a_connector_is_kept_in_the_state_of_its_flow(world: World, tree: Tree) -> None:
    name = "mm2.src.tgt.source.kept"
    create(world.source, ["kept"])
    write_values(world.source, "kept", b"1")
    for state, shown in (("paused", "PAUSED"), ("stopped", "STOPPED"), ("running", "RUNNING"), ("paused", "PAUSED")):
        tree.write(world.yaml("kept", flow("kept", "kept", f", state: {state}")))
        assert "Applied: 1 of 1 changes" in tree.run("apply", "--yes")
        assert statuses(world.url)[name]["connector"]["state"] == shown
        assert "0 to create, 0 to update, 0 to delete, 1 unchanged" in tree.run("plan", "--detailed-exitcode")
        if state == "stopped":
            assert "src.kept" not in topics(world.target), "it ran before it was told to"
    tree.write(world.yaml("kept", flow("kept", "kept", ", tasks: {max: 2}")))
    tree.run("apply", "--yes")
    assert statuses(world.url)[name]["connector"]["state"] == "RUNNING", (
        "what the tree had paused goes on without its line"
    )


POLLED = "source.consumer.max.poll.records"


@dataclass(frozen=True)
class Rivals:
    """Two trees of one owner with the same six flows, which poll 2 and 3 records at once; so far it is 1."""

    world: World
    folder: Path
    name: str

    def trees(self) -> tuple[Tree, Tree]:
        create(self.world.source, self.topics)
        ann, ben = (Tree(self.folder / name / "clusters") for name in ("ann", "ben"))
        self.declare(ann, 1)
        ann.run("apply", "--yes")
        self.declare(ann, 2)
        self.declare(ben, 3)
        return ann, ben

    @property
    def topics(self) -> list[str]:
        return [f"{self.name}{number}" for number in range(6)]

    def declare(self, tree: Tree, polled: int) -> None:
        more = f", source_consumer: {{max.poll.records: {polled}}}"
        tree.write(self.world.yaml(self.name, "".join(flow(topic, topic, more) for topic in self.topics)))

    def polled(self) -> list[str]:
        return [config_of(self.world.url, f"mm2.src.tgt.source.{topic}")[POLLED] for topic in self.topics]


def test_of_two_applies_at_once_one_is_refused_or_waits_and_sees_what_the_other_wrote(
    world: World, tmp_path: Path
) -> None:
    rivals = Rivals(world, tmp_path, "race")
    ann, ben = rivals.trees()
    with (
        ann.start("apply", "--yes", "--wait", "0") as anns,
        ben.start("apply", "--yes", "--wait", "0") as bens,
        ThreadPoolExecutor(2) as threads,
    ):
        said = ["".join(both) for both in threads.map(lambda running: running.communicate(timeout=180), (anns, bens))]
        codes = [anns.returncode, bens.returncode]
    refused = [" is at work: it holds the lease on Kafka 'tgt' (`apply` by " in text for text in said]
    waited = ["waiting up to 12 s" in text for text in said]
    assert codes == [int(is_refused) for is_refused in refused], said
    assert refused.count(True) == 1 or waited.count(True) == 1, said
    last = refused.index(False) if any(refused) else waited.index(True)
    assert rivals.polled() == [str(2 + last)] * 6, said


@pytest.mark.matrix  # test_two_applies.py lets it stand still at each of its steps; that real brokers give the lease on, test_verbs.py
def test_an_apply_that_slept_writes_nothing_more_and_the_next_one_waits_until_it_is_missed(
    world: World, tmp_path: Path
) -> None:
    """It is stopped after the first of its six writes, for longer than its session, and then goes on."""
    rivals = Rivals(world, tmp_path, "sleep")
    ann, ben = rivals.trees()
    with ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(worker.url)) for worker in world.workers]
        text = (ann.folder / "tree.yaml").read_text()
        for worker, gateway in zip(world.workers, gateways, strict=True):
            text = text.replace(worker.url, gateway.url)
        ann.write(text)
        anns = stack.enter_context(ann.start("apply", "--yes", "--wait", "0", "--at-once", "1"))
        is_asleep = threading.Event()

        def sleep(_name: str, _config: dict[str, str] | None) -> None:
            if not is_asleep.is_set():
                anns.send_signal(signal.SIGSTOP)
                is_asleep.set()

        for gateway in gateways:
            gateway.after = sleep
        assert is_asleep.wait(60)
        applied = ben.run("apply", "--yes", "--wait", "0")
        assert "another process holds the lease on Kafka 'tgt' (`apply` by " in applied
        assert "Applied: 6 of 6 changes" in applied
        anns.send_signal(signal.SIGCONT)
        out, err = anns.communicate(timeout=180)
    assert anns.returncode == 1, out + err
    assert "The lease on Kafka 'tgt' was lost: another process may write now, so this one stopped." in out
    assert "Applied: 0 of 6 changes" in out, "its first one was overwritten by one that saw it"
    assert rivals.polled() == ["3"] * 6


def test_ctrl_c_says_what_is_done_and_mass_deletes_need_a_word(world: World, tree: Tree) -> None:
    topics_ = [f"many{number}" for number in range(12)]
    create(world.source, topics_)
    flows = "".join(flow(topic, topic) for topic in topics_)
    tree.write(world.yaml("many", flows))
    tree.run("apply", "--yes")
    names = {f"mm2.src.tgt.source.{topic}" for topic in topics_}

    tree.write(world.yaml("many", flows).replace("refresh_interval: 2s", "refresh_interval: 3s"))
    with tree.start("apply", "--yes") as running:
        assert running.stdout
        assert running.stderr
        first = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        # Not communicate(): it would miss what readline() has read beyond the first line.
        err, out = running.stderr.read(), running.stdout.read()
        running.wait(120)
    assert running.returncode == 130, first + err
    done = set(re.findall(r"^pair: updated (\S+)", first + err, re.MULTILINE))
    left = set(re.findall(r"^left: update pair/(\S+)", out, re.MULTILINE))
    new = {name for name in names if config_of(world.url, name)["refresh.topics.interval.seconds"] == "3"}
    assert (done, left) == (new, names - new), first + err + out
    until(
        lambda: {statuses(world.url)[name]["connector"]["state"] for name in names},
        lambda states: states == {"RUNNING"},
        "what was begun did not run on",
    )

    tree.write(world.yaml("many", "").replace("flows:\n", "flows: {}\n"))
    refused = tree.run("apply", "--yes", "--prune", code=1)
    assert "one of 12 deletes, of 12 connectors of this owner" in refused
    assert names <= statuses(world.url).keys()
    assert "12 no longer declared and still there" in tree.run("plan", "--detailed-exitcode", code=2)
    tree.run("apply", "--yes", "--prune", "--allow-deletes", "12")
    assert names.isdisjoint(statuses(world.url))


def jaas(password: str = "right-one", user: str = "mirror") -> str:
    return f'{PLAIN} username="{user}" password="{password}";'


def with_login(world: World, owner: str, flows: str) -> str:
    """Return a tree whose flows read from the source with a login."""
    plain = f'src: {{bootstrap_servers: ["{world.src.bootstrap_servers}"]}}'
    security = {"protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas()}
    secure = {"bootstrap_servers": [world.src.bootstrap("SECURE")], "security": security}
    text = world.yaml(owner, flows)
    assert plain in text
    return text.replace(plain, f"src: {json.dumps(secure)}")


def as_it_is(world: World) -> dict[str, tuple[dict[str, str], str]]:
    """Return config and state of each connector of both Connect clusters."""
    shown = {
        (url, name): (config_of(url, name), status["connector"]["state"])
        for url in (world.url, world.spare.url)
        for name, status in statuses(url).items()
    }
    return {f"{url}/{name}": found for (url, name), found in shown.items()}


def test_a_wave_that_breaks_a_flow_is_rolled_back_and_the_other_cluster_converges(world: World, tree: Tree) -> None:
    """By a wrong password in a flow that runs, by a topic that a new flow may not read, by a login that may not read what it gets."""
    names = ["wave.a", "wave.b", "wave.c", "wave.locked"]
    create(world.source, names)
    for name in names:
        write_values(world.source, name, b"1")
    create(world.target, ["wave.d"])
    for each in ("topic", "group"):
        allow(world.source, Allowed("src", "mirror", "All", each, "*"))
    allow(world.source, Allowed("src", "mirror", "All", "cluster"))
    allow(world.source, Allowed("src", "blind", "Describe", "topic", "*"))
    allow(world.source, Allowed("src", "mirror", "Read", "topic", "wave.locked", permission=AclPermissionType.DENY))

    def flows(polled: int, b: str = "", new: str = "") -> str:
        more = f", source_consumer: {{max.poll.records: {polled}}}"
        here = {"a": more, "b": more + b, "c": more}
        lines = [flow(name, f"wave.{name}", each) for name, each in here.items()]
        back = f"  d: {{sources: [tgt], targets: [src], topics: {{include: [wave.d]}}{more}}}\n"
        return "".join((*lines, back, new))

    tree.write(with_login(world, "waves", flows(100)))
    tree.run("apply", "--yes")
    before, spare = as_it_is(world), f"{world.spare.url}/mm2.tgt.src.source.d"
    careful = ("apply", "--yes", "--at-once", "1", "--wait", "12", "--rollback")

    wrong = f", source_admin: {{sasl.jaas.config: {json.dumps(jaas('wrong-one'))}}}"
    tree.write(with_login(world, "waves", flows(200, wrong)))
    said = tree.run(*careful, code=1)
    assert "pair: halted: mm2.src.tgt.source.b: RUNNING, no tasks" in said
    assert "rolled back: update pair/mm2.src.tgt.source.a" in said
    assert "left: update pair/mm2.src.tgt.source.c" in said
    assert "wrong-one" not in said
    after = as_it_is(world)
    assert {name for name in before if before[name] != after[name]} == {spare}
    assert after[spare][0]["source.consumer.max.poll.records"] == "200"

    tree.write(with_login(world, "waves", flows(300, new=flow("b-locked", "wave.locked"))))
    said = tree.run(*careful, code=1)
    assert (
        "pair: halted: mm2.src.tgt.source.b-locked: RUNNING, no record has arrived yet (a right may be missing)" in said
    )
    assert "left: update pair/mm2.src.tgt.source.c" in said

    blind = f", source_consumer: {{max.poll.records: 400, sasl.jaas.config: {json.dumps(jaas(user='blind'))}}}"
    only_b = with_login(world, "waves", flows(400).replace(*(flow("b", "wave.b", one) for one in (POLLED_400, blind))))
    tree.write(only_b)
    patient = (*careful[:-2], "30", careful[-1])  # twice the time that a record has to arrive, also on a busy machine
    with Traffic(world.source, ["wave.a", "wave.b"], 20):
        said = tree.run(*patient, code=1)
    assert (
        "pair: halted: mm2.src.tgt.source.b: RUNNING, no record of wave.b arrives, although the source has new" in said
    )
    assert "rolled back: update pair/mm2.src.tgt.source.a" in said
    assert "left: update pair/mm2.src.tgt.source.c" in said

    final = as_it_is(world)
    assert final.keys() == before.keys()
    assert {name for name in before if before[name] != final[name]} == {spare}
    until(
        lambda: {task["state"] for name in "abc" for task in running(world, name)}, lambda states: states == {"RUNNING"}
    )


def running(world: World, flow_name: str) -> list[dict[str, str]]:
    """Return the tasks of a flow's connector on `pair`, at least one."""
    tasks: list[dict[str, str]] = statuses(world.url)[f"mm2.src.tgt.source.{flow_name}"]["tasks"]
    assert tasks
    return tasks


def allow(access: KafkaAccess, acl: Allowed) -> None:
    for future in admin(access).create_acls([acl.binding()]).values():
        future.result(20)


def test_a_url_that_never_answers_does_not_hide_its_connect_cluster(world: World, tree: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        text = world.yaml("hidden", flow("hidden", "hidden"))
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tree.write(text.replace(f"url: [{world.url}", f"url: [{hanging}, {world.url}"))
        assert hanging in tree.folder.joinpath("tree.yaml").read_text()
        assert "Plan: 1 to create" in tree.run("plan")


def test_a_second_owner_on_a_pair_is_told_what_to_write(world: World, tree: Tree) -> None:
    create(world.source, ["theirs"])
    tree.write(
        world.yaml("theirs", flow("theirs", "theirs"), defaults="")
    )  # the pair's connectors are the first owner's
    said = tree.run("plan", code=1)
    assert "write heartbeats: false in flow 'theirs'" in said
    assert "write checkpoints: false in flow 'theirs'" in said
    tree.write(world.yaml("theirs", flow("theirs", "theirs")))
    assert "Applied: 1 of 1 changes" in tree.run("apply", "--yes")


# --- connectors made by hand ------------------------------------------------------------------------------------------


def by_hand(world: World, number: int) -> dict[str, str]:
    """Return a config as people write it; of every third, the clusters' addresses and booleans are spelled otherwise."""
    odd = number % 3 == 0
    return {
        "name": f"legacy {number}",
        "connector.class": "MirrorSourceConnector" if odd else "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "src",
        "target.cluster.alias": "tgt",
        "source.cluster.bootstrap.servers": world.src.bootstrap_servers,
        "target.cluster.bootstrap.servers": f" {world.tgt.bootstrap_servers}" if odd else world.tgt.bootstrap_servers,
        "topics": f"hand.{number}",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "2",
        "heartbeats.replication.enabled": "FALSE" if odd else "false",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        **({"producer.override.bootstrap.servers": world.tgt.bootstrap_servers} if odd else {}),
    }


def adopting(world: World, owner: str, numbers: Iterable[int], of_first: str = "") -> str:
    """Return a tree that adopts these connectors; `of_first` is more of the flow of number 0."""
    flows, entries = "", ""
    for number in numbers:
        more = f', connector_name: "legacy {number}"{of_first if number == 0 else ""}'
        flows += flow(f"f{number}", f"hand.{number}", more)
        entries += f'  - {{connect: pair, connector: "legacy {number}"}}\n'
    return world.yaml(owner, flows) + f"adopt:\n{entries}"


def released(world: World, owner: str, number: int) -> str:
    entry = f'release:\n  - {{connect: pair, connector: "legacy {number}"}}\n'
    return world.yaml(owner, "").replace("flows:\n", "flows: {}\n") + entry


def writes(world: World) -> list[str]:
    """Return the lines of the workers' request logs that are of a write about connectors."""
    lines = [line for worker in world.workers for line in log_lines(worker)]
    return [line for line in lines if re.search(r'"(PUT|POST|PATCH|DELETE) /connectors', line)]


def test_connectors_made_by_hand_are_adopted_without_a_restart(world: World, tree: Tree, tmp_path: Path) -> None:
    """Nine of twelve, with traffic; then one changes, one is released, and another tree wants one too."""
    numbers = range(12)
    created = [f"hand.{number}" for number in numbers]
    create(world.source, created)
    names = {f"legacy {number}" for number in numbers}
    marks = {11: {"mm2mgr.owner": "other-team"}}  # the last three are another team's, with and without a mark
    with Traffic(world.source, created) as traffic:
        with ThreadPoolExecutor(8) as threads:
            bodies = [{"name": f"legacy {n}", "config": by_hand(world, n) | marks.get(n, {})} for n in numbers]
            list(threads.map(lambda body: rest("POST", f"{world.url}/connectors", body), bodies))
        # Each worker notes a connector's topic once, when its first record is there: then nothing more is written.
        until(lambda: [topics(world.target).get(f"src.{name}", 0) for name in created], all, "nothing crossed")
        until(lambda: [end_offset(world.target, f"src.{name}") for name in created], all, "nothing crossed")
        before = {name: config_of(world.url, name) for name in names}
        quiet = until(lambda: (shown(world), shown(world)), lambda twice: twice[0] == twice[1])
        # A line is there after its answer; on busy cores some were not when the last connector ran.
        sent = until(lambda: writes(world), lambda lines: len(lines) >= len(numbers), "the logs have no line for each")

        assert_imported_as_they_run(world, Tree(tmp_path / "imported"), names)  # and nothing is written, as seen below
        tree.write(adopting(world, "adopters", range(9)))
        said = tree.run("apply", "--yes")
        assert "Applied: 0 of 0 changes" in said
        assert "adopt 9 connectors: adopted; nothing is written until its config must change" in said
        # The three, and what other tests of this module left.
        assert f"{len(rest('GET', f'{world.url}/connectors')) - 9} connectors of other owners, not touched" in said
        assert "0 to create, 0 to update, 0 to delete, 9 unchanged" in tree.run("plan", "--detailed-exitcode", code=0)
        assert writes(world) == sent
        assert shown(world) == quiet[0], "Connect's status or config topic has a new record"
        assert {name: config_of(world.url, name) for name in names} == before
        rounds = traffic.rounds
        until(lambda: traffic.rounds, lambda now: now > rounds + 20)

        tree.write(adopting(world, "adopters", range(9), ", source_consumer: {max.poll.records: 777}"))
        said = tree.run("apply", "--yes")
        assert "pair: updated legacy 0" in said
        assert "Applied: 1 of 1 changes" in said
        assert config_of(world.url, "legacy 0")["mm2mgr.owner"] == "adopters"
        assert {name: config_of(world.url, name) for name in names - {"legacy 0"}} == {
            name: config for name, config in before.items() if name != "legacy 0"
        }
        said = tree.run("plan", "--detailed-exitcode", code=0)
        assert "adopt legacy 0: it carries the owner mark: this line can go" in said

        rivals = Tree(tmp_path / "rivals")
        rivals.write(adopting(world, "rivals", [2]))
        assert "owner 'adopters' has adopted it" in rivals.run("apply", "--yes", code=1)
        assert "owner 'rivals' has adopted it" in tree.run("plan", code=1)
        rivals.write(released(world, "rivals", 2))
        assert "release legacy 2: it carries no owner mark: this line can go" in rivals.run("apply", "--yes")
        tree.run("plan", code=0)

        marked = config_of(world.url, "legacy 0")
        tree.write(released(world, "adopters", 0))
        assert "release legacy 0: left running and not managed" in tree.run("apply", "--yes", "--prune")
        assert config_of(world.url, "legacy 0") == marked
        assert names <= statuses(world.url).keys()
    counts = traffic.arrived(world.target, "src")
    assert {topic: +(found - Counter(dict.fromkeys(found, 1))) for topic, found in counts.items()} == {
        topic: Counter() for topic in created
    }, "records came twice"
    world.delete_connectors("legacy")


def assert_imported_as_they_run(world: World, tree: Tree, names: set[str]) -> None:
    """Import all that runs: the new tree would write nothing, and is not given what another tree's mark is on."""
    tree.folder.mkdir(parents=True)
    said = tree.attempt("import", world.url, "--owner", "importers", "--out", str(tree.folder))
    assert "Written: " in said, said
    [cluster] = tree.json("plan")["clusters"]
    written = {change["connector"]: change["action"] for change in cluster["changes"] if change["connector"] in names}
    assert written == dict.fromkeys(names - {"legacy 11"}, "no-op") | {"legacy 11": "blocked"}


def shown(world: World) -> tuple[int, int]:
    """Return how much the workers have told each other: the ends of the group's status and config topics."""
    return end_offset(world.target, "connect-pair-status"), end_offset(world.target, CONFIG_TOPIC)


# --- prices -----------------------------------------------------------------------------------------------------------


def log_bytes(world: World, topic: str) -> int:
    """Return what the records of a topic take on the target's disk."""
    logs = (world.tgt.directory / "data").glob(f"{topic}-[0-9]*/*.log")
    return sum(log.stat().st_size for log in logs)


def record_count(world: World, topic: str, partitions: int) -> int:
    """Return how many records a topic of the target has."""
    with Kafka(world.target) as kafka:
        logs = kafka.offsets(TopicPartition(topic, number) for number in range(partitions))
    return sum(log.end for log in logs.values())


def test_a_plan_says_which_tasks_restart_and_how_much_comes_again(world: World, tree: Tree) -> None:
    """A flow of 30 MB, or of as many as the environment variable MM2MGR_PRICE_MB says (300 shown once), is changed and then renamed.

    So is one of a topic that is kept with zstd, where records are half noise and half blanks.
    """
    total, old = int(os.environ.get("MM2MGR_PRICE_MB", "30")) * 10**6, "mm2.src.tgt.source.bulk"
    create(world.source, ["bulk"], 6)
    drawn = random.Random(7)
    with Kafka(world.source) as kafka:
        kafka.create_topics({"packed": (2, 1, {"compression.type": "zstd", "retention.ms": "-1"})})
    noise = (drawn.randbytes(250).hex().encode() + b" " * 500 for _ in range(total // 4000))
    write(world.source, "packed", [Message(n % 2, str(n).encode(), value) for n, value in enumerate(noise)])
    sizes = [drawn.choice((200, 900, 2500, 6000)) for _ in range(total // 2400)]
    for start in range(0, len(sizes), 5000):
        part = enumerate(sizes[start : start + 5000], start)
        write(world.source, "bulk", [Message(n % 6, str(n).encode(), b"x" * size) for n, size in part])

    def arrived(times: int) -> None:
        """Wait for all records; a task that the workers restart before it commits its offsets brings a few of them again."""
        wanted = [times * len(sizes), times * (total // 4000)]
        until(
            lambda: [record_count(world, "src.bulk", 6), record_count(world, "src.packed", 2)],
            lambda found: all(map(ge, found, wanted)),
            "not all arrived",
            240,
        )

    bulk = flow("bulk", "bulk", ", tasks: {max: 3}")
    packed = flow("packed", "packed")
    tree.write(world.yaml("prices", bulk + packed))
    tree.run("apply", "--yes", "--wait", "90")
    arrived(1)

    slower = bulk.replace("{max: 3}", "{max: 3}, source_consumer: {max.poll.records: 777}")
    tree.write(world.yaml("prices", slower + packed))
    assert "price: restarts 3 tasks" in tree.run("plan")
    began_ms = time.time() * 1000
    tree.run("apply", "--yes", "--wait", "90")

    def restarted() -> set[bytes | None]:
        new = (one for one in messages(world.target, STATUS_TOPIC) if one.timestamp_ms >= began_ms)
        task = f"status-task-{old}-".encode()
        return {one.key for one in new if task in (one.key or b"") and b'"RUNNING"' in (one.value or b"")}

    assert len(until(restarted, lambda keys: len(keys) >= 3, "fewer restarts")) == 3

    topics = {"mm2.src.tgt.source.other": "bulk", "mm2.src.tgt.source.closer": "packed"}
    before = {topic: log_bytes(world, f"src.{topic}") for topic in topics.values()}
    renamed = bulk.replace("bulk:", "other:", 1) + packed.replace("packed:", "closer:", 1)
    tree.write(world.yaml("prices", renamed))

    def again(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
        changes = plan["clusters"][0]["changes"]
        return {
            each["connector"]: each["price"]["again"] for each in changes if each["price"] and each["price"]["again"]
        }

    def plan(*more: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Plan until the logs on both sides were read in time for the price, which a busy machine may not do at once."""
        return until(
            lambda: (found := tree.json("plan", "--prune", *more), again(found)),
            lambda both: not any(each["unmeasured"] or each["uncompressed"] for each in both[1].values()),
            "topics are unmeasured, or not as they are compressed",
        )

    (_, prices), (priced, allowed) = plan(), plan("--allow", "mirror-again", "--allow-deletes", "2")
    assert {name: each["records"] for name, each in prices.items()} == {
        "mm2.src.tgt.source.other": len(sizes),
        "mm2.src.tgt.source.closer": total // 4000,
    }
    assert prices.keys() == allowed.keys()
    assert priced["price"]["again"]["bytes"] == sum(each["bytes"] for each in allowed.values())
    tree.run("apply", "--yes", "--prune", "--allow", "mirror-again", "--allow-deletes", "2", "--wait", "90")
    arrived(2)
    for name, topic in topics.items():
        added, wanted = log_bytes(world, f"src.{topic}") - before[topic], allowed[name]["bytes"]
        print(f"{topic}: {wanted} bytes planned, {added} added: {wanted / added - 1:+.1%}")
        assert abs(wanted / added - 1) < 0.1
    assert allowed["mm2.src.tgt.source.closer"]["bytes"] < total // 4000 * 700, "it counts as uncompressed"
