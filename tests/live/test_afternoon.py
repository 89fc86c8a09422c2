"""One afternoon on real clusters: what people combine, step after step, while records keep coming. Each record is counted by its id.

Three brokers, a Connect cluster on each of two of them, six connectors that somebody made by hand and that the tree adopts. After each step nothing has
arrived twice or is lost, or `status` named it within two looks. Each step can be run alone: `pytest tests/live/test_afternoon.py -k split`.
At the end pytest prints what each step came to. MM2MGR_AFTERNOON_KILLS=every-write kills mm2mgr after each of its writes, not only where
a journal changes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.comparison.ownership import JOURNAL_KEY
from mm2mgr.sandbox.runtime import Runtime

from .afternoon import Afternoon, Count, Records, Step, Stream, problems, step_of
from .command import Tree
from .days import Day, World, estate, flow
from .dedicated import Dedicated, mm2_properties
from .seen import statuses, until

pytestmark = [pytest.mark.live, pytest.mark.matrix]
QUICK = {"offset.flush.interval.ms": "2000"}
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
EVERY_WRITE = os.environ.get("MM2MGR_AFTERNOON_KILLS") == "every-write"
MOST_KILLS = 30


def route(prefix: str) -> dict[str, str]:
    """Return the transform that gives topics another prefix on the target."""
    return {
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r"dc1\.(.*)",
        "transforms.route.replacement": f"{prefix}.$1",
    }


ROUTE = "source_connector: {" + ", ".join(f"{key}: '{value}'" for key, value in route("mirror").items()) + "}"
SILENCE = "silence: {transform-renames: consumers read the mirror topics}"

# By flow: the connector's name, its own keys, and the flow as the tree has it.
BY_HAND: dict[str, tuple[str, dict[str, str], str]] = {
    "orders": ("Orders Mirror (prod)", {"topics": "app.orders,app.returns"}, flow(
        "orders", "app.orders", "app.returns", more=", tasks: {max: 2}, connector_name: Orders Mirror (prod)",
    )),
    "clicks": ("clicks_v6", {
        "topics": "clicks", "source.consumer.fetch.min.bytes": "1", "producer.override.linger.ms": "20",
        "producer.override.compression.type": "lz4", "offset.lag.max": "77",
    }, flow("clicks", "clicks", sources="dc2", more=(
        ", tasks: {max: 2}, connector_name: clicks_v6, source_consumer: {fetch.min.bytes: 1}"
        ", record_producer: {linger.ms: 20, compression.type: lz4}, source_connector: {offset.lag.max: 77}"
    ))),
    "pay": ("smt-pay", {"topics": "pay.cards", **route("mirror")}, flow(
        "pay", "pay.cards", more=f", tasks: {{max: 2}}, connector_name: smt-pay, {SILENCE}, {ROUTE}",
    )),
    "audit": ("paused.audit", {"topics": "audit_log"}, flow(
        "audit", "audit_log", sources="dc2", more=", tasks: {max: 2}, connector_name: paused.audit",
    )),
    "tmp": ("tmp (all of it)", {"topics": "tmp[.].*"}, flow(
        "tmp", '"tmp[.].*"', more=", tasks: {max: 2}, connector_name: tmp (all of it)",
    )),
    "logs": ("FAILED-logs", {"topics": "logs", "producer.override.max.request.size": "1"}, flow(
        "logs", "logs", more=", tasks: {max: 2}, connector_name: FAILED-logs, record_producer: {max.request.size: 1}",
    )),
}  # fmt: skip
TOPICS = {
    "orders": ["app.orders", "app.returns"], "clicks": ["clicks"], "pay": ["pay.cards"], "audit": ["audit_log"],
    "tmp": ["tmp.a", "tmp.b"], "logs": ["logs"],
}  # fmt: skip
ON_DC2 = {"clicks", "audit"}


def by_hand(world: World, own: dict[str, str], *, connect: str = "main", source: str = "dc1") -> dict[str, str]:
    """Return a config as people write it."""
    servers = {name: access.bootstrap_servers for name, access in world.kafkas.items()}
    return {
        "connector.class": MIRROR,
        "source.cluster.alias": source,
        "target.cluster.alias": "agg",
        "source.cluster.bootstrap.servers": servers[source],
        "target.cluster.bootstrap.servers": servers["agg"],
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "2",
        "key.converter": BYTES,
        "value.converter": BYTES,
        **({"producer.override.bootstrap.servers": servers["agg"]} if connect == "spare" else {}),
        **own,
    }


def moved(from_: str, to: str, *topics: str) -> str:
    """Return an entry of `moved:`; flows without a pair are of dc1->agg."""
    only = f", topics: [{', '.join(topics)}]" if topics else ""
    from_, to = (end if "->" in end or "/" in end else f"{end}:dc1->agg" for end in (from_, to))
    return f"{{from: '{from_}', to: '{to}'{only}}}"


def named(name: str, source: str = "dc1", target: str = "agg") -> str:
    return f"mm2.{source}.{target}.source.{name}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[World]:
    with estate(tmp_path_factory.mktemp("afternoon"), runtime, ("dc1", "dc2", "agg"), QUICK) as world:
        yield world


@pytest.fixture(scope="module")
def adopted(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Afternoon, Any, Any, str]]:
    """Make the six by hand, adopt them, and send records from then on; yield the estate, what ran before and after, and what apply output."""
    records = Records(world)
    tree = Tree(tmp_path_factory.mktemp("tree") / "clusters")
    afternoon = Afternoon(world, Day(world, tree, "afternoon"), records)
    for name, topics in TOPICS.items():
        source = "dc2" if name in ON_DC2 else "dc1"
        prefixes = ("mirror", source) if name == "pay" else (source,)
        own = [Stream(topic, tuple(f"{prefix}.{topic}" for prefix in prefixes), source) for topic in topics]
        afternoon.streams_of[name] = own
        afternoon.expect(*own)
    world.create("agg", "mirror.pay.cards", "mirror.tmp.a", "mirror.tmp.b")
    afternoon.resting |= {*afternoon.streams_of["audit"], *afternoon.streams_of["logs"]}
    for name, (connector, keys, _) in BY_HAND.items():
        config = by_hand(world, keys, source="dc2" if name in ON_DC2 else "dc1")
        world.by_hand("main", connector, config, "PAUSED" if "paused" in connector else "RUNNING")
    world.settle(besides=("FAILED-logs",))
    until(lambda: failed(world, "FAILED-logs"), bool, "it does not fail")
    before = afternoon.snapshot()
    afternoon.flows |= {name: text for name, (_, _, text) in BY_HAND.items()}
    afternoon.adopted |= {
        name: f"{{connect: main, connector: '{connector}'}}" for name, (connector, _, _) in BY_HAND.items()
    }
    output = afternoon.apply()
    after = afternoon.snapshot()
    with records:
        yield afternoon, before, after, output


def failed(world: World, name: str) -> bool:
    return any(task["state"] == "FAILED" for task in statuses(world.main.url)[name]["tasks"])


@pytest.fixture
def afternoon(adopted: tuple[Afternoon, Any, Any, str]) -> Afternoon:
    return adopted[0]


@pytest.fixture
def step(
    afternoon: Afternoon, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[Step]:
    title = request.node.name.removeprefix("test_").replace("_", " ")
    with step_of(afternoon, title) as step:
        yield step
    record_property("afternoon", f"{title}: {'; '.join(step.summary)}")


# --- adopted ------------------------------------------------------------------------------------------------------------


def test_six_connectors_are_adopted_as_they_are(adopted: tuple[Afternoon, Any, Any, str], step: Step) -> None:
    _, before, after, output = adopted
    assert after == before, output
    assert len(before) == len(BY_HAND)
    assert "Applied: 0 of 0 changes" in output
    step.counted()


# --- moved --------------------------------------------------------------------------------------------------------------


def test_a_flow_is_renamed(afternoon: Afternoon, step: Step) -> None:
    (stream,) = step.takes("clicks")
    text = afternoon.flows["clicks"].replace(", connector_name: clicks_v6", "").replace("clicks:", "web-clicks:")
    step.declare(clicks=None, web_clicks=text)
    afternoon.apply(moved=[moved("main/clicks_v6", "web-clicks:dc2->agg")])
    afternoon.adopted.pop("clicks")
    assert ("main", "clicks_v6") not in afternoon.world.configs()
    afternoon.streams_of["web-clicks"] = [stream]
    afternoon.wait_for_more(stream)
    step.counted()


def test_all_flows_of_a_pair_run_elsewhere_and_one_is_paused(afternoon: Afternoon, step: Step) -> None:
    flows = [name for name in afternoon.flows if "sources: [dc2]" in afternoon.flows[name]]
    streams = step.takes(*flows)
    entries = []
    for name in flows:
        connector = BY_HAND[name][0] if name in BY_HAND else named(name, "dc2")
        own = afternoon.flows[name].replace(f", connector_name: {connector}", "").rstrip("}\n")
        step.declare(**{name: f"{own}}}, run_on: spare}}\n"})
        entries.append(moved(f"main/{connector}", f"{name}:dc2->agg"))
    afternoon.apply(moved=entries)
    for name in flows:
        afternoon.adopted.pop(name, None)
    states = statuses(afternoon.world.spare.url)
    assert {name: states[named(name, "dc2")]["connector"]["state"] for name in flows} == {
        name: "PAUSED" if name == "audit" else "RUNNING" for name in flows
    }
    if "audit" in flows:
        (paused,) = afternoon.streams_of["audit"]
        assert not afternoon.arrived(paused)
        afternoon.day.tree.run("resume", "audit")
        afternoon.resting.discard(paused)
    for stream in streams:
        afternoon.wait_for_more(stream)
    step.counted()


def test_an_adopted_flow_is_renamed_by_its_flow(afternoon: Afternoon, step: Step) -> None:
    """`from` is the flow, which its adopted connector does not name."""
    stream = step.stream("unmarked")
    afternoon.world.by_hand("main", "unmarked-v1", by_hand(afternoon.world, {"topics": "unmarked"}))
    afternoon.wait_for_more(stream)
    step.declare(unmarked=flow("unmarked", "unmarked", more=", tasks: {max: 2}, connector_name: unmarked-v1"))
    afternoon.adopted["unmarked"] = "{connect: main, connector: unmarked-v1}"
    afternoon.apply()
    step.declare(unmarked=None, marked=flow("marked", "unmarked", more=", tasks: {max: 2}"))
    output = afternoon.apply(moved=[moved("unmarked", "marked")])
    assert "takes over" in output or ("main", named("marked")) in afternoon.world.configs(), output
    afternoon.adopted.pop("unmarked")
    afternoon.wait_for_more(stream)
    step.counted()


def test_a_topic_is_split_out_and_merged_back(afternoon: Afternoon, step: Step) -> None:
    returns = step.takes("orders")[1]
    own = ", tasks: {max: 2}, connector_name: Orders Mirror (prod)"
    step.declare(orders=flow("orders", "app.orders", more=own), returns=flow("returns", "app.returns"))
    afternoon.apply(moved=[moved("orders", "returns", "app.returns")])
    afternoon.wait_for_more(returns)
    step.declare(orders=flow("orders", "app.orders", "app.returns", more=own), returns=None)
    afternoon.apply(moved=[moved("returns", "orders")])
    assert ("main", named("returns")) not in afternoon.world.configs()
    afternoon.wait_for_more(returns)
    step.counted()


def test_a_connector_that_nobody_adopted_is_not_moved_unseen(afternoon: Afternoon, step: Step) -> None:
    """`moved:` names it, `adopt:` does not: it is blocked, or the plan's last line counts it as deleted."""
    stream = step.stream("loose")
    afternoon.world.by_hand("main", "loose-v1", by_hand(afternoon.world, {"topics": "loose"}))
    afternoon.wait_for_more(stream)
    step.declare(claimed=flow("claimed", "loose"))
    before = afternoon.world.configs()
    afternoon.write(moved=[moved("main/loose-v1", "claimed")])
    planned = afternoon.day.tree.attempt("plan")
    counts = next(line for line in planned.splitlines() if line.startswith("Plan:"))
    if "1 to delete" not in counts:
        output = afternoon.apply(code=1, moved=[moved("main/loose-v1", "claimed")])
        assert "adopt" in output, output
        assert afternoon.world.configs() == before, output
        step.declare(claimed=None)
        afternoon.write()
        afternoon.delete(("main", "loose-v1"))
        afternoon.forget([stream])
    else:
        assert "not touched" not in planned, planned
        afternoon.apply(moved=[moved("main/loose-v1", "claimed")])
    step.counted()


# --- changed ------------------------------------------------------------------------------------------------------------


def test_a_default_changes_and_nothing_is_taken_back(afternoon: Afternoon, step: Step) -> None:
    """One flow has a silenced RegexRouter, one is paused and one has failed before."""
    afternoon.defaults = ", source_consumer: {max.poll.records: 499}"
    try:
        output = afternoon.apply("--rollback")
    except AssertionError:
        afternoon.defaults = ""
        afternoon.apply("--wait", "0")
        raise
    assert "rolled back" not in output, output
    afternoon.wait_for_more(afternoon.streams_of["pay"][0])
    step.counted()


def test_a_transform_that_renames_is_gated(afternoon: Afternoon, step: Step) -> None:
    streams = step.takes("tmp")
    before = afternoon.world.configs()
    text = afternoon.flows["tmp"].rstrip("}\n")
    step.declare(tmp=f"{text}, {ROUTE}}}\n")
    output = afternoon.apply(code=1)
    assert afternoon.world.configs() == before, output
    assert "target-names" in output, output
    assert "silence" in output, output
    step.declare(tmp=f"{text}, {ROUTE}, {SILENCE}, allow: [target-names]}}\n")
    afternoon.apply()
    for stream in streams:
        afternoon.forget([stream])
    routed = [Stream(stream.topic, (*stream.remotes, f"mirror.{stream.topic}")) for stream in streams]
    afternoon.records.streams += tuple(routed)
    step.streams[:] = routed
    for stream in routed:
        until(lambda stream=stream: afternoon.world.held("agg", stream.remotes[1]), bool, f"{stream}")  # type: ignore[misc]
    step.counted()


def test_a_transform_that_renames_is_not_removed_unseen(afternoon: Afternoon, step: Step) -> None:
    before, text = afternoon.world.configs(), afternoon.flows["pay"]
    afternoon.flows["pay"] = text.replace(f", {ROUTE}", "")
    try:
        output = afternoon.apply(code=1)
        assert "target-names" in output, output
        assert afternoon.world.configs() == before, output
    finally:
        afternoon.flows["pay"] = text
        afternoon.apply()
    step.counted()


def test_a_failed_flow_is_repaired(afternoon: Afternoon, step: Step) -> None:
    (stream,) = step.takes("logs")
    step.declare(logs=afternoon.flows["logs"].replace(", record_producer: {max.request.size: 1}", ""))
    afternoon.apply("--wait", "60")
    afternoon.resting.discard(stream)
    afternoon.wait_for_more(stream)
    step.counted()


def test_a_topic_is_removed_under_traffic_and_added_to_another_flow(afternoon: Afternoon, step: Step) -> None:
    stays, leaves = step.stream("fewer.stays"), step.stream("fewer.leaves")
    step.declare(fewer=flow("fewer", "fewer.stays", "fewer.leaves", more=", tasks: {max: 2}"))
    afternoon.apply()
    for stream in (stays, leaves):
        afternoon.wait_for_more(stream)
    step.declare(fewer=flow("fewer", "fewer.stays", more=", tasks: {max: 2}"))
    afternoon.apply("--wait", "30")
    afternoon.resting.add(leaves)
    afternoon.wait_for_more(stays)
    before = afternoon.arrived(leaves)
    afternoon.wait_for_more(stays)
    assert afternoon.arrived(leaves) == before
    step.declare(later=flow("later", "fewer.leaves"))
    afternoon.apply(moved=[moved("fewer", "later", "fewer.leaves")])
    afternoon.resting.discard(leaves)
    afternoon.wait_for_more(leaves)
    step.counted()


def test_a_name_that_is_too_long_on_the_target_is_named_before(afternoon: Afternoon, step: Step) -> None:
    long = "long." + "n" * 241
    assert len(long) <= 249 < len(f"dc1.{long}")
    stream = step.stream("long.a")
    afternoon.world.create("dc1", long)
    step.declare(long=flow("long", '"long[.].*"'))
    afternoon.write()
    plan, check = (afternoon.day.tree.attempt(*command) for command in (("plan",), ("check", "long")))
    unnamed = [name for name, text in (("plan", plan), ("check", check)) if "249" not in text or long[:20] not in text]
    assert not unnamed, f"{unnamed} name it not: {plan}{check}"
    output = afternoon.day.tree.attempt("apply", "--yes", "--wait", "0")
    if ("main", named("long")) in afternoon.world.configs():
        afternoon.wait_for_more(stream)
        assert {task["state"] for task in statuses(afternoon.world.main.url)[named("long")]["tasks"]} == {"RUNNING"}
    else:
        assert "blocked" in output, output
        afternoon.forget([stream])
        step.declare(long=None)
        afternoon.write()
    step.counted()


# --- cut short ----------------------------------------------------------------------------------------------------------


def kills(
    afternoon: Afternoon,
    step: Step,
    stream: Stream,
    tmp_path: Path,
    change: Callable[[int], tuple[str, tuple[str, str]]],
) -> None:
    """Move over and over, killed a write later each time, until a move ends before its kill.

    After each kill a person resumes the giver, records flow, and mm2mgr runs from another home. `change` declares a move, and returns
    its entry and the giver.
    """
    killed_at = 0
    for number in range(1, MOST_KILLS):
        entry, giver = change(number)
        afternoon.write(moved=[entry])
        journals = 0

        def is_moment(writes: int, is_journal: bool, number: int = number) -> bool:
            nonlocal journals
            journals += is_journal
            return writes == number if EVERY_WRITE else is_journal and journals == number

        if not afternoon.apply_and_kill(is_moment):
            break
        killed_at += 1
        if giver in afternoon.world.configs():
            afternoon.set_state(*giver, "resume")
        try:
            afternoon.wait_for_more(stream, seconds=15)
        except AssertionError:
            step.summary.append(f"nothing flowed after kill {number}")
        other = Tree(tmp_path / f"home-{number}" / "clusters")
        afternoon.write(moved=[entry], tree=other)
        output = other.run("apply", "--yes", "--wait", "0")
        assert not any(JOURNAL_KEY in config for config in afternoon.world.configs().values()), output
        count = afternoon.count([stream])[stream]
        assert (count.twice, count.lost) == (0, 0), f"kill {number}: {count}\n{output}"
    step.summary.append(f"{killed_at} kills")
    assert killed_at >= 3
    step.counted()


def test_a_split_is_killed_at_each_journal_and_its_giver_resumed(
    afternoon: Afternoon, step: Step, tmp_path: Path
) -> None:
    stream = step.stream("killed.moves")
    step.stream("killed.left")
    step.stream("killed.right")
    sides = ["left", "right"]
    step.declare(left=flow("left", "killed.left", "killed.moves"), right=flow("right", "killed.right"))
    afternoon.apply()
    afternoon.wait_for_more(stream)

    def change(number: int) -> tuple[str, tuple[str, str]]:
        giver, receiver = sides
        sides.reverse()
        step.declare(
            **{giver: flow(giver, f"killed.{giver}"), receiver: flow(receiver, f"killed.{receiver}", "killed.moves")}
        )
        return moved(giver, receiver, "killed.moves"), ("main", named(giver))

    kills(afternoon, step, stream, tmp_path, change)


def test_a_move_to_the_other_cluster_is_killed_at_each_journal_and_its_giver_resumed(
    afternoon: Afternoon, step: Step, tmp_path: Path
) -> None:
    stream = step.stream(
        "carried", "agg", "dc1"
    )  # no other flow is of this pair: all of one run on the same Connect cluster
    step.declare(carry=flow("carry", "carried", sources="agg", target="dc1", more=", run_on: main"))
    afternoon.apply()
    afternoon.wait_for_more(stream)
    places = ["main", "spare"]

    def change(number: int) -> tuple[str, tuple[str, str]]:
        before, after = places
        places.reverse()
        step.declare(carry=flow("carry", "carried", sources="agg", target="dc1", more=f", run_on: {after}"))
        name = named("carry", "agg", "dc1")
        return moved(f"{before}/{name}", "carry:agg->dc1"), (before, name)

    kills(afternoon, step, stream, tmp_path, change)


# --- others -------------------------------------------------------------------------------------------------------------


def named_within_two_looks(afternoon: Afternoon, step: Step, stream: Stream, *words: str) -> str:
    """Look twice while records arrive twice, and return the kinds that the flow of a step has by then; a look names it by one of these words."""
    kinds: list[str] = []
    for number in (1, 2):
        afternoon.wait_for_more(stream, 40)
        status = step.look()
        problem_values = json.dumps(status["problem_values"])
        kinds = sorted({problem["kind"] for problem in status["problem_values"]})
        if any(word in problem_values for word in words):
            assert status["health"] != "ok"
            step.summary.append(f"named by look {number}")
            return ", ".join(kinds)
    raise AssertionError(f"{step.title}: {afternoon.count([stream])[stream]}, and two looks named only {kinds}")


def test_a_strangers_connector_is_named(afternoon: Afternoon, step: Step) -> None:
    stream = step.stream("watched")
    step.declare(watched=flow("watched", "watched"))
    afternoon.apply()
    afternoon.wait_for_more(stream)
    assert "watched" not in problems(step.look())
    own = {"topics": "watched", "offset.lag.max": "5"}
    afternoon.world.by_hand("spare", "somebody's", by_hand(afternoon.world, own, connect="spare"))
    try:
        until(lambda: afternoon.count([stream])[stream].twice, bool, "nothing arrives twice")
        named_within_two_looks(afternoon, step, stream, "somebody's")
    finally:
        afternoon.delete(("spare", "somebody's"))
    step.summary.insert(0, f"as meant, {afternoon.count([stream])[stream]}; of all others:")
    afternoon.forget([stream])
    step.declare(watched=None)
    afternoon.apply("--wait", "0", "--prune")
    step.counted()


def test_a_dedicated_mirrormaker_that_comes_back_is_named(
    afternoon: Afternoon, step: Step, tmp_path: Path, runtime: Runtime
) -> None:
    world, stream = afternoon.world, step.stream("legacy")
    servers = {alias: access.bootstrap_servers for alias, access in world.kafkas.items()}
    properties = mm2_properties(servers, "dc1", "agg", "legacy")
    entry = "{from: {dedicated: dc1->agg}, to: 'taken:dc1->agg'}"
    with Dedicated("legacy", tmp_path / "legacy", properties, runtime=runtime):
        until(lambda: afternoon.arrived(stream).total(), lambda count: count > 20, "no traffic")
    step.declare(taken=flow("taken", "legacy"))
    afternoon.write(moved=[entry])
    until(lambda: afternoon.day.tree.attempt("plan"), lambda text: "still runs" not in text)
    afternoon.apply(moved=[entry])
    afternoon.wait_for_more(stream)
    count = afternoon.count([stream])[stream]
    assert (count.twice, count.lost) == (0, 0), count
    assert "taken" not in problems(step.look())
    with Dedicated("legacy", tmp_path / "legacy", properties, runtime=runtime):
        until(lambda: afternoon.count([stream])[stream].twice, bool, "nothing arrives twice")
        named_within_two_looks(afternoon, step, stream, "arrives-twice", "dc1-mm2", "dedicated")
    step.summary.insert(0, f"as meant, {afternoon.count([stream])[stream]}; of all others:")
    afternoon.forget([stream])
    step.declare(taken=None)
    afternoon.apply("--wait", "0", "--prune")
    step.counted()


def owner_tree(world: World, folder: Path, owner: str, text: str, entries: str = "") -> Tree:
    """Return the tree of another owner."""
    tree = Tree(folder / owner / "clusters")
    Day(world, tree, owner).declare({name: name for name in world.kafkas}, text)
    file = tree.folder / "tree.yaml"
    file.write_text(file.read_text() + entries)
    return tree


def test_an_old_checkout_does_not_write_what_was_released(afternoon: Afternoon, step: Step, tmp_path: Path) -> None:
    world, stream = afternoon.world, step.stream("given")
    first = owner_tree(world, tmp_path, "first", flow("given", "given"))
    first.run("apply", "--yes", "--wait", "0")
    afternoon.wait_for_more(stream)
    old = Tree(tmp_path / "old" / "clusters")
    shutil.copytree(first.folder, old.folder)
    release = f"release: [{{connect: main, connector: {named('given')}}}]\n"
    owner_tree(world, tmp_path, "first", "", release).run("apply", "--yes", "--wait", "0")
    own = flow("got", "given", more=f", connector_name: {named('given')}")
    adopt = f"adopt: [{{connect: main, connector: {named('given')}, from_owner: first}}]\n"
    second = owner_tree(world, tmp_path, "second", own, adopt)
    second.run("apply", "--yes", "--wait", "0")
    before = world.configs()
    file = old.folder / "tree.yaml"
    file.write_text(file.read_text().replace("given]}", "given]}, source_consumer: {max.poll.records: 33}"))
    output = old.run("apply", "--yes", "--wait", "0", code=1)
    assert world.configs() == before, output
    assert "second" in output, output
    afternoon.wait_for_more(stream)
    step.counted()


def test_what_another_tree_adopted_is_not_taken_over(afternoon: Afternoon, step: Step, tmp_path: Path) -> None:
    world, stream = afternoon.world, step.stream("theirs")
    world.by_hand("main", "legacy-theirs", by_hand(world, {"topics": "theirs"}))
    afternoon.wait_for_more(stream)
    own = flow("theirs", "theirs", more=", tasks: {max: 2}, connector_name: legacy-theirs")
    me = owner_tree(world, tmp_path, "me", own, "adopt: [{connect: main, connector: legacy-theirs}]\n")
    me.run("apply", "--yes", "--wait", "0")
    entry = f"moved:\n  - {moved('main/legacy-theirs', 'mine')}\n"
    stranger = owner_tree(world, tmp_path, "stranger", flow("mine", "theirs"), entry)
    before = world.configs()
    output = stranger.run("apply", "--yes", "--wait", "0", code=1)
    assert world.configs() == before, output
    assert "0 unchanged" in me.run("plan") or "1 unchanged" in me.run("plan")
    afternoon.wait_for_more(stream)
    step.counted()


# --- order --------------------------------------------------------------------------------------------------------------


def test_order_of_files_means_nothing(afternoon: Afternoon, step: Step, tmp_path: Path) -> None:
    """Two flows the other way, with heartbeats: a file gets another name, and one that sorts first a flow."""
    world = afternoon.world
    heartbeats = Stream("heartbeats", ("agg.heartbeats",), "agg", "dc1")
    streams = [Stream(f"rev.{name}", (f"agg.rev.{name}",), "agg", "dc1") for name in ("one", "two", "three")]
    afternoon.expect(*streams)
    step.streams += streams
    tree = Tree(tmp_path / "order" / "clusters")
    Day(world, tree, "order").declare({name: name for name in world.kafkas}, "")
    file = tree.folder / "tree.yaml"
    file.write_text(file.read_text().replace("heartbeats: false", "heartbeats: true").replace("flows: {}\n", ""))

    def part(name: str) -> str:
        return "flows:\n" + flow(name, f"rev.{name}", sources="agg", target="dc1")

    tree.write_more("one.yaml", part("one"))
    tree.write_more("two.yaml", part("two"))
    tree.run("apply", "--yes", "--wait", "0")
    for stream in (*streams[:2], heartbeats):
        afternoon.wait_for_more(stream, 3)
    before = world.configs()
    (tree.folder / "two.yaml").rename(tree.folder / "a-two.yaml")
    assert changes(tree) == {"no-op"}
    tree.run("apply", "--yes", "--wait", "0")
    assert world.configs() == before
    tree.write_more("a.yaml", part("three"))
    assert changes(tree) == {"no-op", "create"}
    tree.run("apply", "--yes", "--wait", "0")
    assert {named: world.configs()[named] for named in before} == before
    for stream in (*streams, heartbeats):
        afternoon.wait_for_more(stream, 3)
    count = afternoon.count([heartbeats])[heartbeats]
    step.summary.append(f"heartbeats: {count}")
    assert (count.twice, count.lost) == (0, 0), count
    step.counted()


def changes(tree: Tree) -> set[str]:
    """Return the kinds of changes that a plan has."""
    return {change["action"] for cluster in tree.json("plan")["clusters"] for change in cluster["changes"]}


# --- at the end ---------------------------------------------------------------------------------------------------------


def test_then_all_that_was_sent_is_there_once(afternoon: Afternoon, step: Step) -> None:
    """After the last record, and when all is at rest."""
    afternoon.records.end()
    counts = afternoon.count(afternoon.records.streams)
    wrong = {stream.topic: str(count) for stream, count in counts.items() if count.twice or count.lost}
    total = sum(counts.values(), Count(0, 0, 0, 0))
    step.summary.append(f"{len(counts)} topics, {total}")
    step.is_good = True
    assert not wrong, wrong
    step.judge(step.look())
