"""What is said of flows that do not run, and of connectors whose topics move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2mgr.comparison.ownership import Journal, Move
from mm2mgr.observe.reading import OtherConnector, Patience
from mm2mgr.problems.connectors import find_orphans
from mm2mgr.render import CLASSES, FLOW_KEY, render
from tests.observe.estate import TREE, Estate, kinds, sentences, topology_of

TRACE = "org.apache.kafka.common.errors.RecordTooLargeException: too large"


def test_a_failed_task_has_its_cause_and_no_second_remedy(small: Estate) -> None:
    """That its records wait follows from the cause: looking for another one is a waste of time."""
    small.log(0, 100)
    small.log(0, 100, partition=1)
    small.stored(9)
    small.stored(99, partition=1)
    small.connect.connectors[small.source].failed_tasks = {0: TRACE}
    small.flow()
    flow = small.flow(later_seconds=2 * Patience().no_progress_seconds)
    assert kinds(flow) == ["task-failed"]


def test_another_task_that_stands_still_is_still_said(small: Estate) -> None:
    for partition in (0, 1):
        small.log(0, 100, partition=partition)
        small.stored(9, partition=partition)
    small.connect.connectors[small.source].failed_tasks = {0: TRACE}
    small.flow()
    flow = small.flow(later_seconds=2 * Patience().no_progress_seconds)
    assert kinds(flow) == ["task-failed", "no-progress"]
    assert "for task 1;" in sentences(flow)[1]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_trend_does_not_span_a_change_of_state(small: Estate, state: str) -> None:
    small.stored(0)
    for look in range(4):
        small.log(0, 1 + 10_000 * look)
        running = small.flow(later_seconds=300)
    assert running.trend is not None
    assert (running.trend.direction, running.trend.seconds) == ("growing", 900)
    small.connect.connectors[small.source].state = state
    small.log(0, 50_000)
    assert small.flow(later_seconds=300).trend is None
    small.log(0, 60_000)
    resting = small.flow(later_seconds=300)
    assert resting.trend is not None
    assert resting.trend.seconds == 300, "since it rests, not since it began to fall behind"


def test_a_gap_without_a_look_ends_a_trend(small: Estate) -> None:
    small.stored(0)
    for look in range(4):
        small.log(0, 1 + 10_000 * look)
        assert small.flow(later_seconds=300) is not None
    small.log(0, 90_000)
    assert small.flow(later_seconds=3 * 3600).trend is None


def moved_tree(small: Estate, directory: Path, moved: str) -> None:
    """Rename the flow in the tree, whose old connector still runs."""
    text = TREE.format(url=small.topology.connects["cb"].model.url[0], more="").replace("  orders:\n", "  renamed:\n")
    small.topology = topology_of(f"{text}\n{moved}", directory)
    small.connectors = render(small.topology)


def test_a_flow_that_moves_names_its_partner_on_both_sides(small: Estate, tmp_path: Path) -> None:
    assert small.connect.connectors[small.source].config[FLOW_KEY] == "orders:A->B"
    moved_tree(small, tmp_path, 'moved: [{from: "orders:A->B", to: "renamed:A->B"}]')
    status = small.status()
    (flow,) = status.flows
    assert sentences(flow) == [
        "not on Connect cluster 'cb' yet: run mm2mgr apply, which moves the topics of orders:A->B to it, with their"
        " stored offsets"
    ]
    (orphan,) = status.orphans
    assert orphan.moves_to == "renamed:A->B"
    assert "mm2mgr apply moves its topics to renamed:A->B, with their stored offsets" in orphan.sentence()
    assert "--prune" not in orphan.sentence()


def test_what_serves_only_topics_that_move_goes_with_them(small: Estate, tmp_path: Path) -> None:
    moved_tree(small, tmp_path, 'moved: [{from: "orders:A->B", to: "renamed:A->B"}]')
    declared = small.topology.flows

    def orphan(kind: str, name: str, connect: str = "old", source: str = "A", target: str = "B") -> OtherConnector:
        config = {"connector.class": CLASSES[kind], "source.cluster.alias": source, "target.cluster.alias": target}
        return OtherConnector(connect, name, config, "RUNNING", "left-over")

    moves = tuple(small.topology.moved)
    giver = replace(orphan("source", "s"), config=orphan("source", "s").config | {FLOW_KEY: "orders:A->B"})
    companions = (orphan("checkpoint", "c"), orphan("heartbeat", "h", source="B", target="A"))
    elsewhere = orphan("checkpoint", "e", connect="other")
    moved = find_orphans((giver, *companions, elsewhere), declared, moves)
    assert [entry.moves_to for entry in moved] == ["renamed:A->B"] * 3 + [""]
    assert [entry.command(entry.problem) for entry in moved] == ["mm2mgr apply"] * 3 + ["mm2mgr plan --prune"]
    assert ["--prune" in entry.sentence() for entry in moved] == [False] * 3 + [True]
    staying = (giver, orphan("source", "another"), *companions)
    assert [entry.moves_to for entry in find_orphans(staying, declared, moves)] == ["renamed:A->B", "", "", ""]


def test_without_moved_it_is_left_over(small: Estate, tmp_path: Path) -> None:
    moved_tree(small, tmp_path, "")
    status = small.status()
    assert sentences(status.flows[0]) == ["not on Connect cluster 'cb': run mm2mgr plan, then mm2mgr apply"]
    assert "declare it, or delete it with mm2mgr plan --prune" in status.orphans[0].sentence()


@pytest.mark.parametrize(
    ("journal", "words"),
    [
        (
            Journal("RUNNING", move=Move(("cb", "old"), ("A", "B"), "RUNNING", created=True)),
            "the move of topics with their stored offsets from cb/old to it is not finished",
        ),
        (
            Journal("RUNNING", gives=("cb", "new")),
            "the move of topics with their stored offsets from it to cb/new is not finished",
        ),
        (Journal("RUNNING"), "the move of its stored offsets to another topic is not finished"),
        (Journal("RUNNING", start="asked"), "writing its first offsets is not finished"),
    ],
    ids=["receiver", "giver", "topic", "start"],
)
def test_a_journal_names_the_partner_and_nothing_advises_to_resume(small: Estate, journal: Journal, words: str) -> None:
    connector = small.connect.connectors[small.source]
    connector.config = journal.added_to(connector.config)
    connector.state = "STOPPED"
    small.log(0, 50)
    small.flow()
    small.log(0, 90)
    flow = small.flow(later_seconds=60)
    (sentence,) = (problem.sentence for problem in flow.problems if problem.kind == "offsets-move-unfinished")
    assert sentence.startswith(words)
    assert "do not resume it by hand" in sentence
    said = " ".join((*flow.sentences, *flow.notes))
    assert "mm2mgr resume" not in said
    assert "resting-while-lag-grows" not in kinds(flow)
