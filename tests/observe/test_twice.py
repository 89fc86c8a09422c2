"""What mirrors a flow's topics a second time: other connectors, dedicated MirrorMakers, and what nobody sees but the target's ends."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2mgr.connect.types import SOURCE_CLASS
from mm2mgr.json_values import to_json
from mm2mgr.live.dedicated import DedicatedMirrorMaker
from mm2mgr.live.kafka_state import RunningKafka, WantedLogs
from mm2mgr.live.reach import KafkaReach
from mm2mgr.problems.health import FlowStatus
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import TREE, Estate, FakeKafka, estate, kinds, sentences, topology_of

# --- other connectors -------------------------------------------------------------------------------------------------

BY_HAND = {
    "connector.class": SOURCE_CLASS,
    "source.cluster.alias": "A",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.alias": "B",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": "orders,payments",
    "tasks.max": "1",
}


def _beside(small: Estate, name: str = "legacy", **config: str) -> FlowStatus:
    """Look at the flow while a connector that was made by hand runs, with some keys of its config different."""
    small.connect.add(name, {**BY_HAND, **{key.replace("_", "."): value for key, value in config.items()}})
    return small.flow()


def _overlap(flow: FlowStatus) -> Mapping[str, Any]:
    (problem,) = flow.problems
    assert problem.kind == "overlap"
    return to_json(problem.evidence)


def test_a_connector_that_was_made_after_the_flow_is_named_with_the_topics(small: Estate) -> None:
    assert small.flow().problems == ()
    flow = _beside(small)
    assert _overlap(flow) == {
        "other": "cb/legacy",
        "standing": "unmarked",
        "owner": "",
        "topics": ["orders"],
        "topic_count": 1,
        "source": "A",
        "target": "B",
    }
    assert flow.problems[0].subject.connector == small.source
    assert small.status(only=["orders:A->B"]).health == "problem", "also where only this flow is asked for"
    assert sentences(flow) == [
        "connector cb/legacy (carries no owner mark) mirrors topic orders from A to B too: records arrive twice; stop or delete it there, "
        "or adopt it, or take the topics out of one of the two"
    ]


def test_it_may_run_on_a_connect_cluster_that_no_flow_of_the_tree_runs_on(tmp_path: Path) -> None:
    with serving(fake := FakeConnect()) as url, serving(other := FakeConnect()) as elsewhere:
        text = TREE.format(url=url, more="").replace("  cb:", f'  spare: {{url: "{elsewhere}", kafka: A}}\n  cb:')
        text = text.replace("tasks: {max: 2}", "tasks: {max: 2}\n    run_on: cb")
        small = Estate(topology_of(text, tmp_path), fake, tmp_path)
        other.add("legacy", BY_HAND)
        assert _overlap(small.flow())["other"] == "spare/legacy"
        assert other.requests, "it is asked for what it runs"


@pytest.mark.parametrize(
    "config",
    [
        {"topics": "payments"},
        {"topics": "orders-.*"},  # the flow's pattern takes such topics too, and the source has none
        {"source_cluster_alias": "elsewhere"},  # other names on the target
        {"replication_policy_class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"},
        {"enabled": "false"},
        {"target_cluster_bootstrap_servers": "c:9092", "target_cluster_alias": "C"},
        {"connector_class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"},
        {"connector_class": "io.confluent.connect.jdbc.JdbcSinkConnector"},
    ],
    ids=lambda config: ",".join(config.values())[:40],
)
def test_connectors_that_mirror_something_else_are_no_problem(small: Estate, config: dict[str, str]) -> None:
    assert _beside(small, **config).problems == ()


@pytest.mark.parametrize("who", ["legacy", Estate.source])
def test_nothing_arrives_twice_while_one_of_the_two_rests(small: Estate, who: str) -> None:
    _beside(small)
    small.connect.connectors[who].state = "PAUSED"
    assert "overlap" not in kinds(small.flow())


def test_a_flow_that_silences_the_rule_has_no_problem(tmp_path: Path) -> None:
    with estate(tmp_path, more='silence: {overlap: "both copies are wanted"}') as small:
        assert _beside(small).problems == ()


def test_the_topics_of_a_source_that_does_not_answer_are_those_that_both_match(small: Estate) -> None:
    small.kafka.down.add("A")
    assert _overlap(_beside(small))["topics"] == ["orders"]


@pytest.mark.parametrize(
    ("mark", "standing", "words"),
    [
        ("others", "other-owner", "belongs to owner 'others'"),
        ("tester", "left-over", "mm2mgr apply --prune"),
        ("tester", "released", "is released"),
    ],
)
def test_whose_it_is_is_said(tmp_path: Path, small: Estate, mark: str, standing: str, words: str) -> None:
    if standing == "released":
        entry = "release: [{connect: cb, connector: legacy}]\n"
        small.topology = topology_of(entry + (tmp_path / "tree.yaml").read_text(), tmp_path)
    flow = _beside(small, mm2mgr_owner=mark)
    assert _overlap(flow)["standing"] == standing
    assert words in sentences(flow)[0]


def test_two_flows_of_which_one_was_changed_by_hand_are_both_named(tmp_path: Path) -> None:
    two = "\n  payments: {{sources: [A], targets: [B], topics: {{include: [payments]}}}}\n"
    with serving(fake := FakeConnect()) as url:
        small = Estate(topology_of((TREE.rstrip() + two).format(url=url, more=""), tmp_path), fake, tmp_path)
        small.kafka.clusters["A"]["payments"] = [(0, 0)]
        fake.source_topics = {"orders": 2, "payments": 1}
        assert [one.problems for one in small.status().flows] == [(), ()]
        fake.connectors["mm2.A.B.source.payments"].config["topics"] = "payments,orders"
        orders, payments = small.status().flows
        assert kinds(orders) == ["overlap"]
        assert kinds(payments) == ["config-differs", "overlap"]
        assert to_json(orders.problems[0].evidence)["other"] == "cb/mm2.A.B.source.payments"
        assert "run mm2mgr plan" in sentences(orders)[0]


def test_a_flow_that_the_tree_stops_and_somebody_resumed_overlaps(tmp_path: Path) -> None:
    two = "\n  spare: {{sources: [A], targets: [B], topics: {{include: [orders]}}, state: stopped}}\n"
    with serving(fake := FakeConnect()) as url:
        small = Estate(topology_of((TREE.rstrip() + two).format(url=url, more=""), tmp_path), fake, tmp_path)
        spare = fake.connectors["mm2.A.B.source.spare"]
        spare.state = "STOPPED"
        assert [one.problems for one in small.status().flows] == [(), ()]
        spare.state = "RUNNING"
        orders, resumed = small.status().flows
        assert kinds(orders) == ["overlap"]
        assert kinds(resumed) == ["state-differs", "overlap"]


# --- dedicated MirrorMakers -------------------------------------------------------------------------------------------


def test_a_dedicated_mirrormaker_that_came_back_is_named(small: Estate) -> None:
    small.kafka.dedicated["B", "A"] = DedicatedMirrorMaker(1, {**BY_HAND, "enabled": "true"})
    flow = small.flow()
    assert _overlap(flow)["other"] == "A-mm2 on B"
    assert _overlap(flow)["standing"] == "dedicated"
    assert sentences(flow) == [
        "a dedicated MirrorMaker mirrors topic orders from A to B too (group A-mm2 on B has members): records arrive twice; stop its "
        "processes with SIGTERM, and see that nothing starts them again, or take the topics out of one of the two"
    ]
    small.kafka.dedicated.clear()
    assert small.flow().problems == ()


@pytest.mark.parametrize("config", [{"enabled": "false"}, {"topics": "payments"}], ids=str)
def test_a_dedicated_mirrormaker_of_other_topics_or_the_other_way_round_is_no_problem(
    small: Estate, config: dict[str, str]
) -> None:
    """It keeps a group for the way back too, whose connector is not enabled."""
    small.kafka.dedicated["B", "A"] = DedicatedMirrorMaker(1, {**BY_HAND, **config})
    flow = small.flow()
    assert (flow.problems, flow.notes) == ((), ())


def test_what_a_dedicated_mirrormaker_does_that_hides_its_config_is_not_known(small: Estate) -> None:
    small.kafka.dedicated["B", "A"] = DedicatedMirrorMaker(2)
    flow = small.flow()
    assert flow.problems == ()
    assert flow.notes == (
        "a dedicated MirrorMaker runs (group A-mm2 on B has 2 members); whether it mirrors this flow's topics is not known: mm2mgr's login "
        "could not read mm2-configs.A.internal",
    )


# --- records that arrive twice ----------------------------------------------------------------------------------------


def _traffic(
    small: Estate, looks: int, *, copies: int = 2, partitions: tuple[int, ...] = (0, 1), records: int = 1000
) -> list[FlowStatus]:
    """Look each half minute, with so many records of each partition in between; of some partitions so many copies arrive."""
    found = []
    for _ in range(looks):
        for number in (0, 1):
            end = small.kafka.clusters["A"]["orders"][number][1] + records
            there = small.kafka.clusters["B"]["A.orders"][number][1]
            small.log(0, end, partition=number)
            small.stored(end - 11, partition=number)
            arrives = records * copies if number in partitions else records
            small.log(0, there + arrives, partition=number, alias="B", topic="A.orders")
        found.append(small.flow(later_seconds=30))
    return found


def _before(small: Estate) -> None:
    """Let records arrive before the first look, and look."""
    for number in (0, 1):
        small.log(0, 795, partition=number)
        small.stored(500, partition=number)
        small.log(0, 795 + 300 * number, partition=number, alias="B", topic="A.orders")
    assert small.flow().problems == ()
    _traffic(small, 2, copies=1)


def test_a_second_copy_that_nobody_sees_is_named_at_the_second_look(small: Estate) -> None:
    _before(small)
    first, second = _traffic(small, 2)
    assert first.problems == (), "that may be a restart of the workers"
    (problem,) = second.problems
    assert (problem.kind, problem.since_seconds, problem.subject.tasks) == ("arrives-twice", 30, ())
    assert 2 * 1000 < to_json(problem.evidence)["records"] <= 2 * 2000
    assert {key: value for key, value in to_json(problem.evidence).items() if key != "records"} == {
        "topics": ["A.orders"],
        "topic_count": 1,
        "source": "A",
        "target": "B",
        "one_task": False,
        "exactly_once": False,
    }
    (said,) = sentences(second)
    assert said.startswith(
        f"at least {to_json(problem.evidence)['records']} records arrived twice in topic A.orders on B in the last 30 s"
    )
    assert kinds(_traffic(small, 1, copies=1)[0]) == ["arrives-twice"], "it stays a problem when it has ended"
    small.now += 3600
    assert _traffic(small, 1, copies=1)[0].problems == (), "for an hour"


def test_a_task_whose_partitions_alone_arrive_twice_is_named(small: Estate) -> None:
    _before(small)
    (problem,) = _traffic(small, 3, partitions=(1,))[-1].problems
    assert (problem.subject.tasks, to_json(problem.evidence)["one_task"]) == ((1,), True)
    assert "all are of task 1, and other tasks mirror each record once" in sentences(small.flow())[0]


class SlowTarget(FakeKafka):
    """Clusters of which the target answers last, after so many records more were produced and mirrored."""

    meanwhile = 0
    source_was_read = threading.Event()

    def __call__(self, reach: KafkaReach, choose: WantedLogs) -> RunningKafka:
        if choose.is_probe:
            return super().__call__(reach, choose)
        if choose.ends or reach.access.alias == "A":
            seen = super().__call__(reach, choose)
            self.source_was_read.set()
            return seen
        self.source_was_read.wait(10)
        for alias, topic in (("A", "orders"), ("B", "A.orders")):
            start, end = self.clusters[alias][topic][0]
            self.clusters[alias][topic][0] = start, end + self.meanwhile
        return super().__call__(reach, choose)


def test_a_source_that_was_read_too_early_is_read_again(small: Estate) -> None:
    """Clusters are read side by side: what is produced and mirrored between the two reads is no second copy."""
    _before(small)
    small.kafka = SlowTarget(**vars(small.kafka))
    for meanwhile in (0, 5000, 0, 7000, 9000, 0, 1):
        for number in (0, 1):
            small.stored(small.kafka.clusters["A"]["orders"][number][1] - 1, partition=number)
        small.kafka.meanwhile = meanwhile
        small.kafka.source_was_read.clear()
        assert small.flow(later_seconds=30).problems == ()
    assert small.kafka.asked_ends, "it was in doubt"


def test_a_healthy_look_reads_no_source_twice(small: Estate) -> None:
    _before(small)
    assert all(one.problems == () for one in _traffic(small, 5, copies=1))
    assert small.kafka.asked_ends == []


def test_workers_that_are_killed_once_send_again_and_that_is_no_problem(small: Estate) -> None:
    _before(small)
    assert _traffic(small, 1)[0].problems == ()
    assert all(one.problems == () for one in _traffic(small, 5, copies=1))


@pytest.mark.parametrize(
    "more",
    [
        "replication_policy: identity",
        "source_connector: {transforms: route, transforms.route.type: org.apache.kafka.connect.transforms.RegexRouter}",
        'record_producer: {acks: "1"}',
        'silence: {overlap: "both copies are wanted"}',
    ],
)
def test_flows_whose_target_does_not_count_their_records_are_not_judged(tmp_path: Path, more: str) -> None:
    with estate(tmp_path, more=more) as small:
        small.kafka.clusters["B"]["orders"] = small.kafka.clusters["B"]["A.orders"]
        _before(small)
        assert not any("arrives-twice" in kinds(one) for one in _traffic(small, 5))


def test_topics_that_another_flow_writes_to_by_the_tree_are_not_judged(tmp_path: Path) -> None:
    other = '\n  again: {{sources: [A], targets: [B], topics: {{include: ["ord.*"]}}, silence: {{overlap: "both are wanted"}}}}\n'
    with serving(fake := FakeConnect()) as url:
        small = Estate(topology_of((TREE.rstrip() + other).format(url=url, more=""), tmp_path), fake, tmp_path)
        _before(small)
        assert not any("arrives-twice" in kinds(one) for one in _traffic(small, 5))


def test_workers_that_do_not_tell_are_not_judged(small: Estate) -> None:
    small.connect.fail_next("PUT", "/connector-plugins", 403, "only GET", times=1000)
    _before(small)
    last = _traffic(small, 3)[-1]
    assert last.problems == ()
    assert last.notes[0].startswith("whether records arrive twice is not known: the workers do not tell")


def test_markers_of_exactly_once_workers_are_no_records(tmp_path: Path) -> None:
    """Two offsets on the target for each record: as many markers as there can be."""
    with estate(tmp_path, exactly_once=True) as small:
        _before(small)
        assert all(one.problems == () for one in _traffic(small, 6))
        last = _traffic(small, 4, copies=3)[-1]
        assert kinds(last) == ["arrives-twice"]
        assert to_json(last.problems[0].evidence)["exactly_once"] is True
