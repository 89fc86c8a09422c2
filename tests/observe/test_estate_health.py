"""What concerns the whole estate: orphans, offsets that are not stored, connectors at rest, and the word above all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2mgr.comparison.ownership import HELD_KEY, Journal
from mm2mgr.json_values import to_json
from mm2mgr.output.status_text import say_status
from mm2mgr.problems.order import order_problems
from tests.fake_connect import FakeConnect, serving
from tests.observe.estate import Estate, assert_documented, estate, kinds, sentences, topology_of

OLD = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "topics": "payments",
    "mm2mgr.owner": "tester",
}


def test_an_estate_of_flows_that_are_ok_is_ok(small: Estate) -> None:
    small.connect.connectors[small.checkpoint].forced_tasks = 0
    small.kafka.down.add("B")
    status = small.status()
    assert {one.health for one in status.companions} == {"waiting", "ok"}
    assert (status.flows[0].health, status.health) == ("ok", "ok")


# --- orphans ----------------------------------------------------------------------------------------------------------


def test_a_connector_that_is_not_declared_any_more_and_runs_is_a_problem(small: Estate) -> None:
    small.connect.add("mm2.A.B.source.old", OLD)
    small.connect.add("mm2.A.B.source.other", OLD | {"mm2mgr.owner": "somebody else"})
    small.connect.add("theirs", {"connector.class": "x"})
    status = small.status()
    assert ([one.connector for one in status.orphans], status.flows[0].health, status.health) == (
        ["mm2.A.B.source.old"],
        "ok",
        "problem",
    )
    (said,) = [problem.sentence for problem in status.problems()]
    assert "RUNNING: it still mirrors payments A->B" in said
    assert "mm2mgr plan --prune" in said
    assert to_json(status)["orphans"][0]["connector"] == "mm2.A.B.source.old"
    chosen = small.status(only=[])
    assert (chosen.orphans, chosen.health) == ((), "ok"), "only asked about some flows"


def test_an_orphan_at_rest_is_said_and_no_problem(small: Estate) -> None:
    small.connect.add("mm2.A.B.source.old", OLD, state="STOPPED")
    status = small.status()
    assert (status.health, status.orphans[0].runs) == ("ok", False)
    assert "it does nothing until it is resumed" in status.orphans[0].sentence()


def test_orphans_are_looked_for_where_no_flow_runs_any_more(small: Estate, tmp_path: Path) -> None:
    left = FakeConnect()
    left.add("mm2.A.B.source.old", OLD)
    with serving(left) as url:
        text = (tmp_path / "tree.yaml").read_text().replace("flows:", f'  left: {{url: "{url}", kafka: B}}\nflows:')
        one = Estate(topology_of(text.replace("tasks: {max: 2}", "run_on: cb"), tmp_path), small.connect, tmp_path)
        assert [orphan.connect for orphan in one.status().orphans] == ["left"]
    gone = one.status()
    assert (list(gone.failures), gone.flows[0].health, gone.health) == (["connect left"], "ok", "unknown")


# --- connectors at rest -----------------------------------------------------------------------------------------------


RESUME = "mm2mgr resume 'orders:A->B'"


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_flow_paused_by_hand_is_a_problem_at_once_with_its_command(
    small: Estate, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small.log(0, 100)
    small.stored(9)
    small.connect.connectors[small.source].state = state
    status = small.status()
    (problem,) = status.flows[0].problems
    meant = f"run {RESUME}, or declare state: {state.lower()} on the flow if that is intended"
    assert problem.sentence == f"{state} by hand, and the tree says running: 90 records wait; {meant}"
    assert (problem.kind, problem.command) == ("paused-by-hand", RESUME)
    assert [(group.trouble, group.is_danger) for group in order_problems([problem])] == [("no progress", False)]
    say_status(status)
    assert f"{state} by hand, and the tree says running" in " ".join(capsys.readouterr().out.split())
    assert to_json(status)["problem_values"][0]["evidence"] == {"state": state, "lag_records": 90, "danger": ""}
    assert kinds(small.flow(later_seconds=50)) == ["paused-by-hand"], "records wait, and no new ones come"
    small.log(0, 140)
    (said,) = sentences(small.flow(later_seconds=50))
    assert said.startswith(f"{state} by hand while its lag grows, and the tree says running: 130 records wait, 40 of")
    assert "40 of them new in the last 100 s" in said
    assert said.endswith(meant)
    assert small.flow(later_seconds=50).health == "problem", "it stays one when the source is quiet for a moment"
    small.stored(139)
    assert sentences(small.flow()) == [f"{state} by hand, and the tree says running, and no record waits; {meant}"]
    small.connect.connectors[small.source].state = "RUNNING"
    assert small.flow().problems == ()


def test_a_paused_flow_over_its_max_lag_is_a_danger_without_any_sample(tmp_path: Path) -> None:
    with estate(tmp_path, more="max_lag: 10 min") as late:
        late.log(0, 100)
        late.stored(99)
        late.connect.connectors[late.source].state = "PAUSED"
        late.flow()
        late.log(0, 140)
        for _ in range(10):
            (problem,) = late.flow(later_seconds=60).problems
            assert not problem.evidence.endangers_records, "the first of them has waited for nine minutes at most"
        (problem,) = late.flow(later_seconds=61).problems
        assert problem.evidence.endangers_records
        assert (
            "the oldest record that waits is at least 10 min old, more than its max_lag of 10 min" in problem.sentence
        )
        assert order_problems([problem])[0].is_danger


def test_a_paused_flow_that_retention_is_about_to_overtake_is_a_danger(small: Estate) -> None:
    small.log(0, 100_000)
    small.stored(49_999)
    small.connect.connectors[small.source].state = "PAUSED"
    for look in range(1, 7):
        small.log(2000 * look, 100_000 + 2000 * look)
        (problem,) = small.flow(later_seconds=60).problems
    assert problem.evidence.endangers_records
    assert "retention deletes records that wait in 19" in problem.sentence


def test_what_mm2mgr_itself_holds_is_not_paused_by_hand(small: Estate) -> None:
    connector = small.connect.connectors[small.source]
    connector.state = "STOPPED"
    plain = dict(connector.config)
    connector.config = Journal("RUNNING").added_to(plain)
    assert kinds(small.flow()) == ["offsets-move-unfinished"]
    connector.config = plain | {HELD_KEY: "until mm2mgr failover back 'B->A'", "enabled": "false"}
    assert kinds(small.flow()) == [], "resume is refused; the failover's way back goes on"


MISSING = {
    "heartbeat": "no heartbeats are written to A, and what watches them takes the pair for dead",
    "checkpoint": "no offsets of consumer groups are translated or synced to B; after a failover groups would go"
    " on where they were when it was paused",
}


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
@pytest.mark.parametrize("type_", ["heartbeat", "checkpoint"])
def test_a_companion_paused_by_hand_says_what_is_missing_and_how_it_is_resumed(
    small: Estate, type_: str, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = {"heartbeat": small.heartbeat, "checkpoint": small.checkpoint}[type_]
    connector = small.connect.connectors[name]
    connector.config |= {"sync.group.offsets.enabled": "true"} if type_ == "checkpoint" else {}
    connector.state = state
    status = small.status()
    (companion,) = (companion for companion in status.companions if companion.problems)
    (problem,) = (problem for problem in companion.problems if problem.kind == "companion-paused-by-hand")
    assert_documented(problem)
    resume = f"mm2mgr resume {companion.connect}/{name}"
    assert problem.sentence.startswith(f"{state} by hand, and the tree says running: {MISSING[type_]}; ")
    assert (companion.type, companion.health, companion.notes) == (type_, "problem", ())
    assert (problem.evidence.command(problem), problem.evidence.endangers_records) == (resume, False)
    assert (status.flows[0].health, status.health) == ("ok", "problem"), "records arrive"
    say_status(status)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{name}: {state} by hand, and the tree says running: {MISSING[type_]}; " in said
    assert "connector waiting" not in said
    connector.state = "RUNNING"
    assert [kind for companion in small.status().companions for kind in kinds(companion)].count(problem.kind) == 0


def test_a_companion_that_mm2mgr_holds_is_not_paused_by_hand(small: Estate) -> None:
    connector = small.connect.connectors[small.checkpoint]
    connector.state = "STOPPED"
    connector.config = connector.config | {HELD_KEY: "until mm2mgr failover back 'B->A'", "enabled": "false"}
    (companion,) = (companion for companion in small.status().companions if companion.type == "checkpoint")
    assert "companion-paused-by-hand" not in kinds(companion)
    assert companion.notes == ("STOPPED: it does nothing until mm2mgr failover back 'B->A'",)


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_the_tree_may_want_it_at_rest(tmp_path: Path, state: str) -> None:
    with estate(tmp_path, more=f"state: {state.lower()}") as wanted:
        wanted.log(0, 100)
        wanted.stored(9)
        (said,) = sentences(wanted.flow())
        assert said == f"the tree declares state: {state.lower()}, but the connector is RUNNING; run mm2mgr plan"
        wanted.connect.connectors[wanted.source].state = state
        wanted.flow()
        wanted.log(0, 500)
        flow = wanted.flow(later_seconds=100)
        assert (flow.problems, flow.health) == ((), "waiting")
        assert f"{state}, as declared" in flow.notes


def test_the_tree_may_want_it_running(tmp_path: Path) -> None:
    with estate(tmp_path, more="state: running") as wanted:
        assert wanted.flow().health == "ok"
        wanted.connect.connectors[wanted.source].state = "PAUSED"
        (said,) = sentences(wanted.flow())
        assert said.startswith("PAUSED by hand, and the tree says running, and no record waits; run mm2mgr resume")


def test_topics_that_match_nothing_are_a_problem_though_heartbeats_keep_a_task_busy(small: Estate) -> None:
    small.kafka.clusters["A"] = {"payments": [(0, 0)], "heartbeats": [(0, 5)]}
    (said,) = sentences(small.flow())
    assert said.startswith("topics: orders.* matches 0 of 2 topics on A, nothing is mirrored")


# --- offsets that are not stored --------------------------------------------------------------------------------------

MANY = """
owner: tester
clusters:
  A: {{bootstrap_servers: "a:9092"}}
  B: {{bootstrap_servers: "b:9092"}}
  dead: {{bootstrap_servers: "dead:9092"}}
connect:
  cb: {{url: "{url}", kafka: B}}
flows:
  one: {{sources: [A], targets: [B], topics: {{include: [one]}}}}
  two: {{sources: [A], targets: [B], topics: {{include: [two]}}}}
  {more}
"""


class Many(Estate):
    """Two flows that mirror side by side, whose offsets are stored when a test says so."""

    def __init__(self, more: str, url: str, connect: FakeConnect, directory: Path) -> None:
        super().__init__(topology_of(MANY.format(url=url, more=more), directory), connect, directory)
        connect.source_topics = None
        self.kafka.clusters |= {"A": {}, "B": {}, "dead": {}}
        self.mirrored(1000, "one", "two")
        self.commits(990, "one", "two")

    def mirrored(self, records: int, *topics: str) -> None:
        """Let so many records be in the source, and all but ten on the target."""
        for topic in topics:
            self.kafka.clusters["A"][topic] = [(0, records)]
            self.kafka.clusters["B"][f"A.{topic}"] = [(0, records - 10)]

    def commits(self, offset: int, *topics: str) -> None:
        for topic in topics:
            self.connect.add_offsets(f"mm2.A.B.source.{topic}", topic, {0: offset - 1}, alias="A")


@pytest.fixture(params=["", "late: {sources: [dead], targets: [B], topics: {include: [late]}}"])
def many(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Many]:
    connect = FakeConnect()
    with serving(connect) as url:
        made = Many(request.param, url, connect, tmp_path)
        made.kafka.down.add("dead")
        yield made


def test_offsets_that_are_not_stored_while_records_arrive_are_one_sentence(many: Many) -> None:
    many.status()
    for records in (1500, 2000):
        many.mirrored(records, "one", "two")
        assert many.status(later_seconds=70).stale_offsets == (), "70 s since the first of them was seen"
    many.mirrored(2500, "one", "two")
    status = many.status(later_seconds=10)
    (stale,) = status.stale_offsets
    assert (stale.connect, stale.flows, stale.seconds, stale.records) == ("cb", ("one:A->B", "two:A->B"), 80, 3000)
    said = stale.sentence()
    assert said.startswith(
        "offsets of 2 flows not stored for 80 s while their records arrive (one:A->B, two:A->B); a restart would mirror at "
        "least 3000 records again"
    )
    is_dead = len(many.topology.flows) == 3
    assert stale.is_problem == is_dead
    assert ("source dead could not be read" in said) == is_dead
    assert ("normal if offset.flush.interval.ms" in said) != is_dead
    assert [flow.problems for flow in status.flows[:2]] == [(), ()], "records arrive"
    many.commits(2480, "one", "two")
    assert many.status(later_seconds=10).stale_offsets == ()


def test_one_late_flow_alone_is_only_said_beside_a_dead_source(many: Many) -> None:
    many.status()
    for records in (1500, 2000, 2500):
        many.mirrored(records, "one", "two")
        many.commits(records - 20, "two")
        status = many.status(later_seconds=70)
    assert bool(status.stale_offsets) == (len(many.topology.flows) == 3)


def test_a_flow_that_was_idle_gets_its_time_to_store(many: Many) -> None:
    many.mirrored(1000, "one", "two")
    many.commits(1000, "one", "two")
    many.status()
    assert many.status(later_seconds=10_000).stale_offsets == ()
    many.mirrored(2000, "one", "two")
    assert many.status(later_seconds=10_000).stale_offsets == ()
    assert many.status(later_seconds=60).stale_offsets == ()


def test_time_in_which_the_target_cannot_be_read_does_not_count_for_stored_offsets(many: Many) -> None:
    many.status()
    many.mirrored(1500, "one", "two")
    many.status(later_seconds=10)
    many.kafka.down.add("B")
    assert many.status(later_seconds=100).stale_offsets == ()
    many.kafka.down.discard("B")
    many.mirrored(1600, "one", "two")
    assert many.status(later_seconds=100).stale_offsets == ()
